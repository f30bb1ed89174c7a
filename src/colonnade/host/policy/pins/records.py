"""The record of accepted definitions of one server, and the comparison of a list with it.

A record has the definitions of one kind. Of each item it keeps the variants that were accepted (a
server may describe an item to each caller in another way), and those that were seen and wait for a
person.

Rules: pure; no I/O, and the time is an argument. What is not accepted is held, never accepted
because it looks similar. A record has definitions, which servers tell everyone who may list them,
and no arguments, results, headers or environment variables.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from colonnade.host.policy.lookalikes import skeleton
from colonnade.host.policy.pins.definitions import (
    Definition,
    ItemKind,
    changed_members,
    closest_text,
    name_members,
)
from colonnade.text import clean, cut

# Variants of one item that are accepted, and that wait: a server that describes a tool in more ways
# than this describes it to each caller differently, which a person cannot review.
MAX_VARIANTS: Final = 8
# Items of one kind: as many as a list may have.
MAX_ITEMS: Final = 50_000
# Of a definition whose text is kept for a diff; a longer one is compared by its digest alone.
MAX_TEXT_BYTES: Final = 64 * 1024
# Of all texts in one record, before compression. Definitions compress to a fifth, and a store
# takes 8 MiB.
MAX_TEXTS_BYTES: Final = 16 * 1024 * 1024
# A record is decompressed to this much at most: the texts, and 50,000 items without one.
MAX_RECORD_BYTES: Final = 64 * 1024 * 1024

FirstSight: TypeAlias = Literal["accept", "review"]
HeldState: TypeAlias = Literal[
    "new", "changed", "renamed", "swapped", "copied", "lookalike", "too many"
]

# The names of other servers that look the same, each with its server, by what they look like.
Lookalikes: TypeAlias = Mapping[str, Mapping[str, str]]

_WHAT: Final[dict[ItemKind, str]] = {
    "tool": "tool",
    "prompt": "prompt",
    "resource": "resource",
    "template": "resource template",
    "instructions": "instructions",
}


class Variant(Struct, frozen=True, omit_defaults=True):
    """One definition of an item: `text` is its canonical JSON, empty if it was too long to keep;
    `at` is when it was accepted, or first seen (Unix time). One that waits has what has happened to
    it, and the item that it was, has become or looks like."""

    digest: str
    body: str = ""
    text: str = ""
    at: float = 0.0
    state: HeldState = "new"
    other: str = ""


class PinnedItem(Struct, frozen=True, omit_defaults=True):
    """The variants of one item that were accepted, and those that wait, the oldest first."""

    accepted: tuple[Variant, ...] = ()
    pending: tuple[Variant, ...] = ()


class PinRecord(Struct, frozen=True):
    """The pinned items of one kind of one server, by name or URI."""

    items: dict[str, PinnedItem] = field(default_factory=dict[str, PinnedItem])


EMPTY: Final = PinRecord()
_decoder: Final = msgspec.json.Decoder(PinRecord)


def encode_record(record: PinRecord) -> bytes:
    """A record for the store. If its texts are too many, all but the pending ones are left out."""
    texts = sum(
        len(one.text) for item in record.items.values() for one in (*item.accepted, *item.pending)
    )
    if texts > MAX_TEXTS_BYTES:
        items = {name: _without_texts(item) for name, item in record.items.items()}
        record = PinRecord(items)
    return zlib.compress(msgspec.json.encode(record), 1)


def decode_record(data: bytes | None) -> PinRecord:
    """A record of the store. Raises `ValueError` if it is none."""
    if data is None:
        return EMPTY
    try:
        decompressor = zlib.decompressobj()
        text = decompressor.decompress(data, MAX_RECORD_BYTES)
        if decompressor.unconsumed_tail or not decompressor.eof:
            raise ValueError("it is incomplete, or too large")
        return _decoder.decode(text)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError("it is damaged") from error


def _without_texts(item: PinnedItem) -> PinnedItem:
    return replace(item, accepted=tuple(replace(one, text="") for one in item.accepted))


# ---------------------------------------------------------------- comparison


class HeldItem(Struct, frozen=True):
    """An item that is not used until a person accepts it, and why. `other` is the item that it was,
    has become or looks like; `members` are the paths of the members that have changed."""

    kind: ItemKind
    name: str
    state: HeldState
    digest: str
    other: str = ""
    members: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why it is held, for people."""
        other, what = repr(_short(self.other)), _WHAT[self.kind]
        match self.state:
            case "new":
                return "not accepted yet"
            case "changed":
                named = name_members(self.members) or "definition"
                return f"its {named} changed since it was accepted"
            case "renamed":
                return f"it is the accepted {what} {other} under another name"
            case "swapped":
                return f"it was swapped with {other}: each has the definition of the other"
            case "copied":
                return f"it has taken over the definition of {other}"
            case "lookalike":
                return f"its name looks like {other}"
            case "too many":
                return f"more than {MAX_ITEMS} items of this server are pinned"

    @property
    def subject(self) -> str:
        """What is held, for people: `tool 'read'`, or `instructions`."""
        what = _WHAT[self.kind]
        return what if self.kind == "instructions" else f"{what} {_short(self.name)!r}"


class ListComparison(Struct, frozen=True):
    """A list compared with a record: what is held, what was accepted at first sight, and the record
    that is to be kept, which is the given one if nothing is new."""

    held: dict[str, HeldItem]
    first_seen: tuple[str, ...]
    record: PinRecord


def compare(
    record: PinRecord,
    definitions: Mapping[str, Definition],
    *,
    first: FirstSight,
    now: float,
    others: Lookalikes | None = None,
) -> ListComparison:
    """Compare a list with what was accepted. `first` says what happens to an item that was never
    seen; `others` are the names that other servers have."""
    items = record.items
    unaccepted = {
        name: one
        for name, one in definitions.items()
        if not is_accepted(items.get(name), one.digest)
    }
    if not unaccepted:  # as nearly always
        return ListComparison({}, (), record)
    held: dict[str, HeldItem] = {}
    seen: list[str] = []
    changed = dict(items)
    judge = _Judge(record, definitions, first, others or {})
    for name, definition in unaccepted.items():
        item = items.get(name, PinnedItem())
        found = judge.judge(definition, item)
        if name not in changed and len(changed) >= MAX_ITEMS:
            held[name] = HeldItem(definition.kind, name, "too many", definition.digest)
        elif found is None:
            changed[name] = _accept(item, _variant(definition, now))
            seen.append(name)
        else:
            held[name] = found
            variant = _variant(definition, now)
            changed[name] = _wait(item, replace(variant, state=found.state, other=found.other))
    is_same = changed == items
    return ListComparison(held, tuple(seen), record if is_same else PinRecord(changed))


def is_accepted(item: PinnedItem | None, digest: str) -> bool:
    """Whether a definition is one of the accepted variants of an item."""
    return item is not None and any(one.digest == digest for one in item.accepted)


class _Judge:
    """Says what has happened to a definition that is not accepted."""

    def __init__(
        self,
        record: PinRecord,
        definitions: Mapping[str, Definition],
        first: FirstSight,
        others: Lookalikes,
    ) -> None:
        self._record = record
        self._definitions = definitions
        self._first: FirstSight = first
        self._others = others
        # The names that have an accepted body.
        self._by_body: dict[str, list[str]] = {}
        self._own: dict[str, dict[str, str]] = {}
        for name, item in record.items.items():
            for variant in item.accepted:
                if variant.body:
                    self._by_body.setdefault(variant.body, []).append(name)
            if item.accepted:
                self._own.setdefault(skeleton(name), {})[name] = ""

    def judge(self, one: Definition, item: PinnedItem) -> HeldItem | None:
        """Why it is held; None if it may be accepted at first sight."""
        bodies = [name for name in self._by_body.get(one.body, ()) if name != one.name]
        if not item.accepted:
            return self._judge_new(one, item, bodies)
        held = HeldItem(one.kind, one.name, "changed", one.digest)
        for other in bodies:
            now_there = self._definitions.get(other)
            own = [variant.body for variant in item.accepted if variant.body]
            if now_there is not None and now_there.body in own:
                return replace(held, state="swapped", other=other)
        if bodies:
            return replace(held, state="copied", other=bodies[0])
        texts = [variant.text.encode() for variant in item.accepted if variant.text]
        if not texts:
            return held
        paths = changed_members(closest_text(texts, one.text), one.text)
        return replace(held, members=tuple(paths))

    def _judge_new(self, one: Definition, item: PinnedItem, bodies: list[str]) -> HeldItem | None:
        held = HeldItem(one.kind, one.name, "new", one.digest)
        gone = next((name for name in bodies if name not in self._definitions), "")
        if gone:
            return replace(held, state="renamed", other=gone)
        lookalike = self._lookalike(one)
        if lookalike:
            return replace(held, state="lookalike", other=lookalike)
        # What has once waited for a person is not accepted because it is asked for again.
        return held if self._first == "review" or item.pending else None

    def _lookalike(self, one: Definition) -> str:
        if one.kind not in ("tool", "prompt"):  # URIs often differ in one character
            return ""
        shape = skeleton(one.name)
        for names in (self._own.get(shape, {}), self._others.get(shape, {})):
            for name, server in names.items():
                if one.name not in names:
                    return f"{name} of server {server}" if server else name
        return ""


def _variant(one: Definition, now: float) -> Variant:
    text = one.text.decode() if len(one.text) <= MAX_TEXT_BYTES else ""
    return Variant(one.digest, one.body, text, now)


def _accept(item: PinnedItem, variant: Variant) -> PinnedItem:
    """Accept a variant; beyond the limit the oldest one is no longer accepted."""
    kept = [one for one in item.accepted if one.digest != variant.digest]
    pending = tuple(one for one in item.pending if one.digest != variant.digest)
    return PinnedItem((*kept, variant)[-MAX_VARIANTS:], pending)


def _wait(item: PinnedItem, variant: Variant) -> PinnedItem:
    if any(one.digest == variant.digest for one in item.pending):
        return item
    return replace(item, pending=(*item.pending, variant)[-MAX_VARIANTS:])


def accept_pending(
    record: PinRecord, wanted: Iterable[tuple[str, str]], now: float
) -> tuple[PinRecord, list[tuple[str, str]]]:
    """Accept these pending variants (name, digest). Returns the record, and those of them that were
    pending: what a person has seen is accepted, and nothing that came after it."""
    items = dict(record.items)
    done: list[tuple[str, str]] = []
    for name, digest in wanted:
        item = items.get(name)
        found = [one for one in item.pending if one.digest == digest] if item is not None else []
        if item is not None and found:
            items[name] = _accept(item, replace(found[0], at=now))
            done.append((name, digest))
    return PinRecord(items), done


def drop_pending(record: PinRecord) -> PinRecord:
    """The record without what waits, before everything is read again."""
    kept = {name: replace(item, pending=()) for name, item in record.items.items()}
    return PinRecord({name: item for name, item in kept.items() if item.accepted})


class PendingDefinition(Struct, frozen=True, omit_defaults=True):
    """A definition that waits: what has happened to it, its text, and the accepted text to compare
    it with. A text is empty if it was too long to keep, or there is none."""

    item: HeldItem
    text: str = ""
    before: str = ""


def pending_in(record: PinRecord, kind: ItemKind) -> Iterator[PendingDefinition]:
    """What waits in a record, each with what has happened to it."""
    for name, item in record.items.items():
        for one in item.pending:
            held, text = HeldItem(kind, name, one.state, one.digest, one.other), one.text.encode()
            other = one.other if one.state in ("renamed", "copied") else name
            accepted = record.items.get(other, PinnedItem()).accepted
            texts = [each.text.encode() for each in accepted if each.text]
            before = closest_text(texts, text) if texts and text else b""
            if one.state == "changed" and before:
                held = replace(held, members=tuple(changed_members(before, text)))
            yield PendingDefinition(held, one.text, before.decode())


def _short(name: str) -> str:
    return cut(clean(name), 80)
