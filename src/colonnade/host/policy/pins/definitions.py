"""Definitions of tools, prompts, resources and templates: canonical JSON, digests, and what differs
between two of them, for people.

A definition is read from the bytes of a list, so that members which no type has (those of a vendor,
of a later revision) count as the others do.

Rules: pure; no I/O, no clock. Equal definitions have equal digests, whatever the order of their
members and the whitespace between them. Nothing of a definition is shown without `clean`.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import to_builtins
from colonnade.text import ELLIPSIS, clean, cut

ItemKind: TypeAlias = Literal["tool", "prompt", "resource", "template", "instructions"]

# The member of a result that has the items, and the member that names an item.
LIST_MEMBER: Final[dict[ItemKind, str]] = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "resourceTemplates",
}
KEY_MEMBER: Final[dict[ItemKind, str]] = {
    "tool": "name",
    "prompt": "name",
    "resource": "uri",
    "template": "uriTemplate",
    "instructions": "name",
}
# The one name of the instructions of a server.
INSTRUCTIONS: Final = "instructions"

# Keys of `_meta` that are of one message or one hop, and so no part of a definition. Other keys
# are, also reserved ones: an extension says there which page belongs to a tool.
HOP_KEYS: Final = frozenset(
    {
        t.PROTOCOL_VERSION_KEY,
        t.SERVER_INFO_KEY,
        t.SUBSCRIPTION_ID_KEY,
        t.RELATED_TASK_KEY,
        t.PROGRESS_TOKEN_KEY,
        t.TRACEPARENT_KEY,
        t.TRACESTATE_KEY,
        t.BAGGAGE_KEY,
    }
)

# Beyond this a float does not identify one integer.
_MAX_EXACT: Final = 2**53
# The size of a resource and the time of its last change describe its content, which changes without
# its definition. Only what can be nothing else is left out: a text there is part of the definition.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?)?")
_OF_CONTENT: Final = ("resource", "template")

# Lines and columns of a diff, for a terminal; a description of 10 kB has some 150 lines.
MAX_DIFF_LINES: Final = 400
MAX_DIFF_COLUMNS: Final = 400
# Levels of a definition that are compared by member; what is below is compared as a whole.
MAX_DEPTH: Final = 32
# Members that a message names.
MAX_NAMED: Final = 4


class Definition(Struct, frozen=True):
    """One definition: `text` is its canonical JSON, and `digest` the digest of that."""

    kind: ItemKind
    name: str
    text: bytes
    digest: str

    @property
    def body(self) -> str:
        """The digest of all but its name; empty if there is no description, by which it could be
        recognised under another name. Computed on use: most definitions have not changed."""
        found: object = _decoder.decode(self.text)
        members = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if not members.get("description"):
            return ""
        key = KEY_MEMBER[self.kind]
        return digest_of(
            self.kind, canonical({name: one for name, one in members.items() if name != key})
        )


# ---------------------------------------------------------------- canonical JSON


def _number(literal: str) -> Any:
    """A number with a fraction or an exponent: `1.0` and `1e0` are `1`."""
    value = float(literal)
    if not isfinite(value):
        return Raw(literal.encode())  # as it is written, since no float has its value
    return int(value) if value.is_integer() and abs(value) <= _MAX_EXACT else value


_decoder: Final = msgspec.json.Decoder(float_hook=_number)
_encoder: Final = msgspec.json.Encoder(order="sorted")
_items: Final = msgspec.json.Decoder(dict[str, Raw])


def canonical(value: object) -> bytes:
    """JSON with sorted keys and without whitespace; strings as they are."""
    return _encoder.encode(value)


def digest_of(kind: str, text: bytes) -> str:
    """The digest of canonical JSON; a tool and a prompt with the same members differ."""
    return sha256(b"%s\n%s" % (kind.encode(), text)).hexdigest()


# ---------------------------------------------------------------- definitions


def digest(item: t.ProtocolType) -> str:
    """The digest of an item as it was decoded, for an approval that shows it: of the members that
    the types have. Pins use those of `read_definitions`."""
    kind = "item"
    for known, of in _KINDS.items():
        if isinstance(item, known):
            kind = of
    members = cast("dict[str, Any]", _decoder.decode(canonical(to_builtins(item))))
    return digest_of(kind, canonical(_without_hop(members)))


_KINDS: Final[dict[type[t.ProtocolType], ItemKind]] = {
    t.Tool: "tool",
    t.Prompt: "prompt",
    t.Resource: "resource",
    t.ResourceTemplate: "template",
}


def read_definitions(kind: ItemKind, pages: Iterable[Raw | bytes]) -> dict[str, Definition]:
    """The definitions in the pages of a list, as they were sent, by name or URI.

    Items of one name are one definition: which of them is used does not matter then. What has no
    name, or is not JSON, is no item of the list either.
    """
    steps = definition_steps(kind, pages)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("dict[str, Definition]", end.value)


def definition_steps(
    kind: ItemKind, pages: Iterable[Raw | bytes]
) -> Generator[None, None, dict[str, Definition]]:
    """The same, with a pause after each definition: a list may have thousands of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    key = KEY_MEMBER[kind]
    for page in pages:
        raw = _items.decode(page).get(LIST_MEMBER[kind])
        listed: object = _decoder.decode(raw) if raw is not None else None
        for one in cast("list[object]", listed) if isinstance(listed, list) else ():
            item = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
            name = item.get(key)
            if isinstance(name, str):
                found.setdefault(name, []).append(item)
    definitions: dict[str, Definition] = {}
    for name, items in found.items():
        definitions[name] = _definition(kind, name, items)
        yield
    return definitions


def instructions_definition(text: str) -> Definition:
    """The instructions of a server as a definition."""
    item = {"name": INSTRUCTIONS, "description": text}
    return _definition("instructions", INSTRUCTIONS, [item])


def _definition(kind: ItemKind, name: str, items: list[dict[str, Any]]) -> Definition:
    members = [_without_content(kind, _without_hop(item)) for item in items]
    text = canonical(members[0] if len(members) == 1 else members)
    return Definition(kind, name, text, digest_of(kind, text))


def _without_hop(members: dict[str, Any]) -> dict[str, Any]:
    meta = members.get("_meta")
    if not isinstance(meta, dict):
        return members
    kept = {key: one for key, one in cast("dict[str, Any]", meta).items() if key not in HOP_KEYS}
    rest = {key: one for key, one in members.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def _without_content(kind: ItemKind, members: dict[str, Any]) -> dict[str, Any]:
    if kind not in _OF_CONTENT:
        return members
    size, about = members.get("size"), members.get("annotations")
    changed = dict(members)
    if type(size) is int and size >= 0:
        del changed["size"]
    if isinstance(about, dict):
        hints = cast("dict[str, Any]", about)
        when = hints.get("lastModified")
        if isinstance(when, str) and _TIME.fullmatch(when):
            changed["annotations"] = {k: one for k, one in hints.items() if k != "lastModified"}
            if not changed["annotations"]:
                del changed["annotations"]
    return changed


# ---------------------------------------------------------------- differences


def changed_members(before: bytes, after: bytes) -> list[str]:
    """The paths of the members that differ: `description`, `inputSchema.properties.path.type`."""
    old, new = _leaves(before), _leaves(after)
    paths = dict.fromkeys([*old, *new])
    return [path for path in paths if old.get(path) != new.get(path)]


def name_members(paths: Sequence[str]) -> str:
    """What has changed, in a few words for a message: `description, inputSchema`."""
    tops = list(dict.fromkeys(clean(cut(path.partition(".")[0], 40)) for path in paths))
    more = f" and {len(tops) - MAX_NAMED} more" if len(tops) > MAX_NAMED else ""
    return ", ".join(tops[:MAX_NAMED]) + more


def diff(before: bytes, after: bytes) -> list[str]:
    """The differences by member, as lines: its path, then what was (`-`) and what is (`+`).
    Invisible characters are shown as their escapes."""
    old, new = _leaves(before), _leaves(after)
    lines: list[str] = []
    for path in dict.fromkeys([*old, *new]):
        if old.get(path) == new.get(path):
            continue
        lines.append(_shown(path))
        lines += [f"  {line}" for line in _line_diff(old.get(path), new.get(path))]
        if len(lines) > MAX_DIFF_LINES:
            return [*lines[:MAX_DIFF_LINES], ELLIPSIS]
    return lines


def describe(text: bytes) -> list[str]:
    """A definition by member, as lines."""
    lines: list[str] = []
    for path, value in _leaves(text).items():
        first, *rest = _value_lines(value)
        lines.append(f"{_shown(path)}: {first}")
        lines += [f"  {line}" for line in rest]
        if len(lines) > MAX_DIFF_LINES:
            return [*lines[:MAX_DIFF_LINES], ELLIPSIS]
    return lines


def differing_lines(before: str, after: str) -> list[str]:
    """A definition that waits, as lines: compared with the accepted one, if there is one."""
    if not after:
        return ["(too long to be kept; read it with colonnade ls)"]
    return diff(before.encode(), after.encode()) if before else describe(after.encode())


def _leaves(text: bytes) -> dict[str, str | bytes]:
    """The values of a definition by their path: strings, and all others as JSON."""
    return dict(_walk("", _decoder.decode(text), MAX_DEPTH))


def _walk(path: str, value: object, depth: int) -> Iterator[tuple[str, str | bytes]]:
    if isinstance(value, dict) and value and depth:
        for key, one in cast("dict[str, object]", value).items():
            # A dot in a key is escaped, or two different paths could look the same.
            name = key.replace("\\", "\\\\").replace(".", "\\.")
            yield from _walk(f"{path}.{name}" if path else name, one, depth - 1)
    elif isinstance(value, list) and depth and _has_containers(cast("list[object]", value)):
        for number, one in enumerate(cast("list[object]", value)):
            yield from _walk(f"{path}[{number}]", one, depth - 1)
    else:
        yield path, value if isinstance(value, str) else canonical(cast("object", value))


def _has_containers(values: list[object]) -> bool:
    return any(isinstance(one, dict | list) for one in values)


def _line_diff(before: str | bytes | None, after: str | bytes | None) -> Iterable[str]:
    from difflib import ndiff  # on use: for people alone

    old = [] if before is None else _value_lines(before)
    new = [] if after is None else _value_lines(after)
    if len(old) + len(new) > MAX_DIFF_LINES:  # it takes quadratic time
        return [*(f"- {line}" for line in old), *(f"+ {line}" for line in new)]
    return [_shown(line) for line in ndiff(old, new) if not line.startswith("?")]


def _value_lines(value: str | bytes) -> list[str]:
    if isinstance(value, bytes):
        return [_shown(value.decode())]
    return [_shown(line) for line in value.split("\n", MAX_DIFF_LINES)]


def _shown(line: str) -> str:
    return cut(clean(line), MAX_DIFF_COLUMNS)


def closest_text(texts: Sequence[bytes], after: bytes) -> bytes:
    """Of several accepted definitions, the one with the fewest differences."""
    return min(texts, key=lambda one: len(changed_members(one, after)))
