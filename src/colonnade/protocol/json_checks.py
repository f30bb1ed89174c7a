"""Checks of JSON text that a decoder does not report: nesting depth and duplicate members.

Rules: whatever the bytes are, linear time, and nothing but `Fault` is raised.
"""

import re
from array import array
from collections import Counter
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from colonnade.errors import Fault, FaultKind

# What msgspec raises: malformed JSON and wrong types, invalid UTF-8, nesting too deep for the
# stack.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# From here on it is faster to look for some brackets than to count them all.
LONG = 1024

# How much of either end of an undecodable body is searched for the id of a response: more than the
# longest id and the names around it take.
END_BYTES = 1024

_QUOTE = b'"'
_BACKSLASH = ord("\\")

_any = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

# Compiled on use, as are the next: most bodies are neither deep nor malformed. A closing quote is
# optional, so that an unterminated string is swallowed once and the scan stays linear.
_STRINGS = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
# A high surrogate that is not followed by a low one. One at the end of the body is cut short.
_LONE_SURROGATE = (
    rb"(?<!\\)(?:\\\\)*+(\\u[dD][89abAB][0-9a-fA-F]{2})"
    rb"(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])"
)
# The name of a member, and its value unless that is an object or an array.
_STRING = rb'"(?:[^"\\]|\\.)*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_MEMBER = rb"\s*+(%b)\s*+:\s*+(%b|%b|true|false|null)?+\s*+" % (_STRING, _STRING, _NUMBER)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))


def invalid_json(body: bytes, error: Exception) -> Fault:
    """The fault for a body that cannot be decoded.

    msgspec reports a lone surrogate as the end of the input, wherever it stands.
    """
    words = str(error)
    if "truncated" in words or "surrogate" in words or "hex escape" in words:
        half = re.search(_LONE_SURROGATE, body)
        if half is not None:
            where = f"{half[1].decode()} (byte {half.start(1)})"
            words = f"{where} is a lone surrogate; write both halves of the pair or neither"
    return Fault(FaultKind.PARSE, f"not JSON: {words}")


def depth(body: bytes) -> int:
    """The nesting depth of the brackets outside of strings.

    For a malformed body it is at least what a decoder meets before it stops.
    """
    brackets = re.sub(_STRINGS, b"", body, flags=re.DOTALL).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(array("b", brackets), initial=0))


def may_be_deep(body: bytes, limit: int) -> bool:
    """Whether there are enough brackets for more levels than the limit.

    In a long body they are not counted, which takes longer, but searched until there are enough.
    """
    if len(body) < LONG:
        return body.count(b"{") + body.count(b"[") > limit
    found = 0
    for bracket in (b"{", b"["):
        at = body.find(bracket)
        while at >= 0:
            found += 1
            if found > limit:
                return True
            at = body.find(bracket, at + 1)
    return False


def outline(body: bytes) -> tuple[set[str], bytes]:
    """The names of the members at both ends of an object that cannot be decoded, and its id as
    written.

    The id is empty if none was found there, or two.
    """
    names: set[str] = set()
    ids: list[bytes] = []

    def follow(text: bytes, at: int) -> None:
        """Collect members until one has a value that is not a scalar."""
        while found := re.compile(_MEMBER, re.DOTALL).match(text, at):
            name, value = found.groups()
            names.add(name[1:-1].decode(errors="replace"))
            at = found.end() + 1
            if value is None or text[at - 1 : at] not in (b",", b"}"):
                return
            if name == b'"id"':
                ids.append(value)

    head, tail = body[:END_BYTES].lstrip(), body[-END_BYTES:].rstrip()
    if head[:1] == b"{":
        follow(head, 1)
    if tail[-1:] == b"}":  # what follows the last object or array stands before it
        rest = tail[max(tail.rfind(b"}", 0, -1), tail.rfind(b"]")) + 1 :].lstrip()
        if rest[:1] == b",":
            follow(rest, 1)
    return names, ids[0] if len(ids) == 1 else b""


def has_duplicate_members(raw: bytes | Raw) -> bool:
    """Whether any object in this JSON has a duplicate member."""
    raw = bytes(raw)
    return bool(raw) and _decoded(raw)[1]


def refuse_duplicate_members(raw: bytes | Raw) -> None:
    """Raise `Fault` if two decoders of these bytes could see two different values."""
    if raw:
        decode_unique(raw)


def decode_unique(raw: bytes | Raw) -> Any:
    """The value of some JSON. Raises `Fault` for what is not JSON, and if two decoders of these
    bytes could see two different values."""
    value, has_duplicates = _decoded(bytes(raw))
    if has_duplicates:
        words = "an object has the same member twice; send each once"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    return value


def _decoded(raw: bytes) -> tuple[Any, bool]:
    """The value of some JSON, and whether any object in it has a duplicate member.

    msgspec silently keeps the last one, so decoding and encoding again loses the quotes of the
    others. Only an escaped quote could make up for that, and such bodies take the slow path.
    """
    try:
        value = _any.decode(raw)
        again = _encode(value)
        if again == raw:  # the common compact form
            return value, False
        if _BACKSLASH not in raw or b"\\u0022" not in raw:
            return value, again.count(_QUOTE) != raw.count(_QUOTE)
        return value, _has_duplicates_slowly(raw)
    except msgspec.ValidationError as error:
        raise Fault(FaultKind.INVALID_PARAMS, f"a number is out of range: {error}") from None
    except DECODE_ERRORS as error:
        raise invalid_json(raw, error) from None


def _has_duplicates_slowly(raw: bytes) -> bool:
    import json  # on use: few bodies need this

    found = False

    def pairs(members: list[tuple[str, object]]) -> None:
        nonlocal found
        found = found or len({name for name, _ in members}) != len(members)

    json.loads(raw, object_pairs_hook=pairs, parse_int=len, parse_float=len)
    return found


def duplicate_members(raw: bytes, members: dict[str, Raw]) -> set[str]:
    """The duplicate members of this object, not counting those inside its values.

    A name takes two quotes at least, so a name that is missing in `members` leaves a gap in their
    number. So does a quote inside a name, and only then every name is compared.
    """
    if raw.count(_QUOTE) == sum(2 + bytes(value).count(_QUOTE) for value in members.values()):
        return set()
    import json

    names: list[str] = json.loads(raw, object_pairs_hook=_names, parse_int=len, parse_float=len)
    return {name for name, times in Counter(names).items() if times > 1}


def _names(pairs: list[tuple[str, object]]) -> list[str]:
    return [name for name, _ in pairs]
