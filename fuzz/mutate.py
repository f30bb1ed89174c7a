"""What chance makes of a seed: flipped bits and cut bytes, and changes to the value it stands for.

Changes to the value leave most inputs well-formed, so that they get past the first check; changes
to the bytes do not. Text that no encoder writes (two members of one name, `1e999`, half a
surrogate pair) goes in as a mark and is put in its place afterwards.

Rules: all chance comes from the `Random` that is passed in. No input is longer than
`MAX_INPUT_BYTES`: that, and not a clock, bounds the time that one may take.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, cast

from fuzz.corpus import AWAITED, IDS, JSON, Seed

# Beyond this nothing new happens: every bound of the core that counts bytes is tested by itself.
MAX_INPUT_BYTES: Final = 64 * 1024
# Most findings need one change; some need two that belong together.
MAX_CHANGES: Final = 4

# ---------------------------------------------------------------- tokens

_PLAIN = """
    null true false 0 -0 1 7 -1 1.0 7.0 1.5 1e2 1E400 -1e999 1e-999 0.1 01 +1 .5 1. NaN Infinity
    -Infinity nan 9007199254740993 9223372036854775807 9223372036854775808 18446744073709551616
    [] {} [[]] [{}] {"":0} "" "7" "1" " " "2.0" "null" {"a":1,"a":2} {"\\u0061":1,"a":2} undefined
    "2024-11-05" "2025-03-26" "2025-11-25" "2026-07-28" "2099-01-01" 'a' "a "a" /**/ // , : [ ] { }
    "\\u0000" "\\ud800" "\\udc00\\ud800" "\\ud83d\\ude00" "\\u0022" "\\" "\\x" "\\u12"
"""
TOKENS: tuple[bytes, ...] = (
    *_PLAIN.encode().split(),
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\t ",
    b'"\n"',
    b'"\t"',
    b"\x1e",
    "\u2028".encode(),
    "\u00a0".encode(),
    "☃".encode(),
    b'"x"' + b",1" * 40,
    b"[" * 63 + b"]" * 63,
    b"[" * 64 + b"]" * 64,
    b'{"":' * 70 + b"0" + b"}" * 70,
    b"[" * 70,
)
# Long enough to meet the bounds on numbers, on depth and on ids; each costs as much as fifty others.
HEAVY_TOKENS: tuple[bytes, ...] = (
    b"7" * 5000,
    b"-" + b"9" * 400,
    b"0." + b"3" * 5000,
    b"1e" + b"9" * 500,
    b"[" * 10_000 + b"]" * 10_000,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    b"[" * 300 + b"]" * 300,
    b'"' + b"x" * 600 + b'"',
    b'"' + b"x" * 30_000 + b'"',
    b'"' + b"\\u0041" * 100 + b'"',
    b'{"a":' * 300,
    b"," * 2000,
    b'"' * 3001,
    b" " * 5000,
    b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 101) + b"]",
)
ONE_HEAVY_IN: Final = 50

VALUES: tuple[JSON, ...] = (
    *(None, True, False, 0, 1, 7, -1, 2, 1.5, 1.0, 2**53 + 1, 2**63, 2**64, -(2**70), 1e308),
    *("", "7", "1", "a-7", "ping", "initialize", "tools/call", "notifications/cancelled"),
    *("server/discover", "subscriptions/listen", "2.0", "2.1", "complete", "input_required"),
    *("2024-11-05", "2025-03-26", "2026-07-28", "1999-01-01", "\ud800", "\u2028\n\r\0", "x" * 513),
    *([], [None], [1], {}, {"a": {"b": [1]}}, {"type": "text"}, {"type": "hologram"}),
)
NAMES: tuple[str, ...] = (
    *("jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data"),
    *("_meta", "name", "arguments", "uri", "cursor", "requestId", "progressToken", "progress"),
    *("protocolVersion", "capabilities", "clientInfo", "resultType", "inputResponses", "type"),
    *("content", "structuredContent", "task", "taskId", "level", "requestState", "extra", ""),
    *("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"),
    *("io.modelcontextprotocol/subscriptionId", "io.modelcontextprotocol/logLevel", "__proto__"),
    *("$ref", "x-mcp-header", "\ud800", 'a"b', "a\\u0022", "ID", "Method"),
)

_MARK = re.compile(rb'"@@(\d+)@@"')
_TWICE = "@@twice@@"


# ---------------------------------------------------------------- bytes


def flip(rng: Random, body: bytes) -> bytes:
    at = rng.randrange(len(body))
    return body[:at] + bytes([body[at] ^ (1 << rng.randrange(8))]) + body[at + 1 :]


def cut(rng: Random, body: bytes) -> bytes:
    start, end = _span(rng, body)
    return body[:start] + body[end:]


def truncate(rng: Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body))]


def repeat(rng: Random, body: bytes) -> bytes:
    start, end = _span(rng, body)
    return body[:end] + body[start:end] * rng.randint(1, 3) + body[end:]


def insert(rng: Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + _token(rng) + body[at:]


def overwrite(rng: Random, body: bytes) -> bytes:
    start, end = _span(rng, body)
    return body[:start] + _token(rng) + body[end:]


def swap(rng: Random, body: bytes) -> bytes:
    first, second = sorted((_span(rng, body), _span(rng, body)))
    if first[1] > second[0]:
        return body[::-1]
    parts = body[: first[0]], body[slice(*second)], body[first[1] : second[0]], body[slice(*first)]
    return b"".join(parts) + body[second[1] :]


def _span(rng: Random, body: bytes) -> tuple[int, int]:
    start = rng.randrange(len(body))
    return start, min(len(body), start + 1 + int(rng.expovariate(0.15)))


def _token(rng: Random) -> bytes:
    return rng.choice(TOKENS if rng.randrange(ONE_HEAVY_IN) else HEAVY_TOKENS)


_BYTE_CHANGES = (flip, flip, cut, cut, truncate, repeat, insert, insert, overwrite, overwrite, swap)


def change_bytes(
    rng: Random, body: bytes, others: Sequence[Seed], tokens: Sequence[bytes] = ()
) -> bytes:
    """One change to the bytes; `tokens` are more to put in, for what is no JSON."""
    if not body:
        return _token(rng)
    if tokens and rng.randrange(2):
        at = rng.randrange(len(body) + 1)
        return body[:at] + rng.choice(tokens) + body[at + rng.randrange(3) :]
    if rng.randrange(12):
        return rng.choice(_BYTE_CHANGES)(rng, body)
    other = rng.choice(others).body
    return body[: rng.randrange(len(body) + 1)] + other[rng.randrange(len(other) + 1) :]


# ---------------------------------------------------------------- values


def change_tree(rng: Random, tree: JSON, others: Sequence[Seed]) -> JSON:
    """The value with one place in it changed; everything beside that place is shared."""
    if isinstance(tree, dict) and tree:
        members = cast("dict[str, JSON]", tree)
        if rng.random() < 0.7:
            inner = [name for name, value in members.items() if isinstance(value, dict | list)]
            # At the top of a message nearly every change is the end of it; go on to the params.
            name = rng.choice(inner if inner and rng.random() < 0.75 else list(members))
            return {**members, name: change_tree(rng, members[name], others)}
        return rng.choice(_OBJECT_CHANGES)(rng, members)
    if isinstance(tree, list) and tree:
        items = cast("list[JSON]", tree)
        if rng.random() < 0.7:
            at = rng.randrange(len(items))
            return [*items[:at], change_tree(rng, items[at], others), *items[at + 1 :]]
        return rng.choice(_ARRAY_CHANGES)(rng, items)
    return _replaced(rng, tree, others)


def _replaced(rng: Random, value: JSON, others: Sequence[Seed]) -> JSON:
    way = rng.random()
    if way < 0.35:
        return rng.choice(VALUES)
    if way < 0.6:
        return _retyped(rng, value)
    if way < 0.8:
        heavy = not rng.randrange(ONE_HEAVY_IN)
        chosen = len(TOKENS) + rng.randrange(len(HEAVY_TOKENS)) if heavy else 0
        return f"@@{chosen or rng.randrange(len(TOKENS))}@@"
    if way < 0.9:
        return [value] if rng.randrange(2) else {rng.choice(NAMES): value}
    return _graft(rng, rng.choice(others).tree)


def _retyped(rng: Random, value: JSON) -> JSON:
    """The same thing said in another type: what a sloppy peer sends."""
    if isinstance(value, bool) or value is None:
        return rng.choice((str(value).lower(), int(value or 0), not value, None))
    if isinstance(value, int):
        return rng.choice(
            (str(value), float(value) if abs(value) < 2**60 else 0, value + 1, -value)
        )
    if isinstance(value, float):
        return rng.choice((str(value), int(value), -value))
    if isinstance(value, str):
        longer = value + rng.choice(("", " ", "\0", "\n", "é", "x" * 90))
        number = int(value) if value.isdecimal() and len(value) < 9 else len(value)
        return rng.choice((longer, value.upper(), value[:-1], number, [value], list(value[:9])))
    return rng.choice((None, str(value), 0))


def _graft(rng: Random, tree: JSON) -> JSON:
    """Some part of another message."""
    while isinstance(tree, dict | list) and tree and rng.random() < 0.6:
        found = cast("dict[str, JSON] | list[JSON]", tree)
        tree = rng.choice(list(found.values()) if isinstance(found, dict) else found)
    return tree


def _without(rng: Random, members: dict[str, JSON]) -> JSON:
    gone = rng.choice(list(members))
    return {name: value for name, value in members.items() if name != gone}


def _renamed(rng: Random, members: dict[str, JSON]) -> JSON:
    old, new = rng.choice(list(members)), rng.choice(NAMES)
    return {new if name == old else name: value for name, value in members.items()}


def _joined(rng: Random, members: dict[str, JSON]) -> JSON:
    return {**members, rng.choice(NAMES): rng.choice(VALUES)}


def _doubled(rng: Random, members: dict[str, JSON]) -> JSON:
    name = rng.choice(list(members))
    value = members[name] if rng.randrange(2) else rng.choice(VALUES)
    return (
        {_TWICE + name: value, **members} if rng.randrange(2) else {**members, _TWICE + name: value}
    )


def _shuffled(rng: Random, members: dict[str, JSON]) -> JSON:
    names = list(members)
    rng.shuffle(names)
    return {name: members[name] for name in names}


def _emptied(rng: Random, members: dict[str, JSON]) -> JSON:
    return rng.choice(({}, [], None, list(members.values()), [members]))


def _shorter(rng: Random, items: list[JSON]) -> JSON:
    at = rng.randrange(len(items))
    return items[:at] + items[at + 1 :]


def _longer(rng: Random, items: list[JSON]) -> JSON:
    return items * rng.choice((2, 2, 3, 60)) + [rng.choice(VALUES)]


def _turned(rng: Random, items: list[JSON]) -> JSON:
    return rng.choice((items[::-1], [], {str(n): item for n, item in enumerate(items)}, items[0]))


_OBJECT_CHANGES: tuple[Callable[[Random, dict[str, JSON]], JSON], ...] = (
    *(_without, _without, _renamed, _joined, _joined),
    *(_doubled, _doubled, _shuffled, _emptied),
)
_ARRAY_CHANGES: tuple[Callable[[Random, list[JSON]], JSON], ...] = (_shorter, _longer, _turned)


def _harmless(rng: Random, tree: JSON) -> JSON:
    """A message that says as much as before, or says it of another call: state moves on."""
    if not isinstance(tree, dict):
        return tree
    members = cast("dict[str, JSON]", tree)
    way = rng.randrange(3)
    if way == 0:
        return _shuffled(rng, members)
    if way == 1 and "id" in members:
        return {**members, "id": rng.choice((*IDS, *AWAITED))}
    inner = rng.choice(("params", "result", "error"))
    if isinstance(members.get(inner), dict):
        return {**members, inner: {**members[inner], "extra": rng.choice(VALUES)}}
    return {**members, "extra": rng.choice(VALUES)}


# ---------------------------------------------------------------- written out

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"))
_SPACED = json.JSONEncoder(ensure_ascii=False, separators=(", ", " : "))
_LINES = json.JSONEncoder(ensure_ascii=True, indent=1)
_WRITERS = (*[_COMPACT] * 6, _ESCAPED, _ESCAPED, _SPACED, _LINES)


def written(rng: Random, tree: JSON) -> bytes:
    """The bytes of a changed value, in one of the ways that JSON may be written, marks resolved."""
    text = rng.choice(_WRITERS).encode(tree).encode("utf-8", "surrogatepass")
    if b"@@" in text:
        text = _MARK.sub(_resolved, text).replace(_TWICE.encode(), b"")
    return text


def _resolved(found: re.Match[bytes]) -> bytes:
    number = int(found[1])
    tokens: Any = TOKENS if number < len(TOKENS) else HEAVY_TOKENS
    return tokens[number % len(TOKENS)]


def mutate(rng: Random, seed: Seed, others: Sequence[Seed], *, gently: bool = False) -> bytes:
    """A mutated input: the value changed, or the bytes, or one and then the other.

    `gently` is for what lies behind the first check: nearly all of it is still JSON.
    """
    body = seed.body
    changes = 1
    while changes < MAX_CHANGES and rng.random() < (0.15 if gently else 0.35):
        changes += 1
    in_bytes = rng.random() * (0.8 if gently else 1)
    if seed.tree is not None and in_bytes < 0.75:
        tree = seed.tree
        if gently and not rng.randrange(3):
            tree, changes = _harmless(rng, tree), 0
        for _ in range(changes):
            tree = change_tree(rng, tree, others)
        body = written(rng, tree)
        changes = int(in_bytes < (0.02 if gently else 0.1))
    for _ in range(changes):
        body = change_bytes(rng, body, others)
    if body == seed.body:
        body = change_bytes(rng, body, others)
    return body[:MAX_INPUT_BYTES]
