"""Decoding: JSON to a protocol type, once, and back.

`decode_as` decodes strictly first. Only if that fails does it look again, level by level along the
fields of the type, for what other implementations send and the strict decoder refuses:

- a content block of an unknown type: kept whole, as `UnknownContent`;
- `1.0` for an integer: taken as `1` (D31). `1.5` and `true` stay refused.
- structured content of a tool without `content`, which is required and may be empty (D46);
- a field of a form that may be null, `anyOf: [T, null]` or `type: [T, "null"]`: taken as `T`, since
  a field that is not `required` may be left out (D44). `mcp` up to 1.30 writes optional fields so.

Rules: nothing but `Fault` leaves the decoders, nothing but `LocalProtocolError` leaves the
encoders; time is linear in the bytes; an error names places and types, never a value that the peer
sent.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, ValidationError, inspect, structs

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.jsonrpc import refuse_duplicate_members
from colonnade.protocol.types import ABSENT, ProtocolType, UnknownContent, UnknownMembers

T = TypeVar("T")

# Beyond this a float no longer identifies one integer.
MAX_EXACT: Final = 2**53

# The result of a tool, and a field of an elicitation form; by name, since a program loads only the
# types that it needs.
TOOL_RESULT: Final = "CallToolResult"
FORM_FIELD: Final = "PrimitiveSchema"
NO_BLOCKS: Final = Raw(b"[]")

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_UNWRITABLE: Final = (TypeError, ValueError, RecursionError)

_decoders: dict[type, "msgspec.json.Decoder[Any]"] = {}
_Level = dict[str, Raw] | list[Raw] | str | int | float | bool | None
_one_level: Final = cast("msgspec.json.Decoder[_Level]", msgspec.json.Decoder(_Level))


def decode_as(kind: type[T], raw: Raw | bytes) -> T:
    """Decode a protocol type; absent params (no bytes at all) are decoded as `{}`.

    Raises `Fault` (invalid params), whose message says what is wrong, where, and what to send.
    """
    found = decode_unchecked(kind, raw)
    # The decoder keeps the last of two duplicate members; another one may keep the first.
    refuse_duplicate_members(raw)
    return found


def decode_unchecked(kind: type[T], raw: Raw | bytes) -> T:
    """The same without the check for duplicate members, for what no other party decodes, such as
    a response to us: the last of two members counts."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(raw or b"{}")
    except ValidationError:
        return _decode_repaired(kind, raw or b"{}")
    except _UNREADABLE as error:
        raise _refusal(kind, error) from None


def readable_items(kind: type, raw: Raw | bytes) -> tuple[Raw, list[str]]:
    """A page of a list that cannot be decoded, without its invalid items, and the problem of each.

    Unchanged if no item is to blame, or every item.
    """
    try:
        members = _one_level.decode(raw)
    except _UNREADABLE:
        return Raw(raw), []
    problems: list[str] = []
    if isinstance(members, dict):
        for field in cast("inspect.StructType", _shape(kind)).fields:
            items = members.get(field.encode_name)
            if isinstance(field.type, inspect.ListType) and items is not None:
                members[field.encode_name] = _without_bad(field.type.item_type, items, problems)
    return Raw(msgspec.json.encode(members)) if problems else Raw(raw), problems


def _without_bad(shape: inspect.Type, raw: Raw, problems: list[str]) -> Raw:
    items = _one_level.decode(raw)
    if not isinstance(items, list):
        return raw
    kept, bad = list[Raw](), list[str]()
    for item in items:
        try:
            decode_unchecked(cast("inspect.StructType", shape).cls, item)
        except Fault as fault:
            bad.append(fault.message)
        else:
            kept.append(item)
    if not kept:
        return raw
    problems += bad
    return Raw(msgspec.json.encode(kept))


def convert_to(kind: type[T], value: object) -> T:
    """Decode a protocol type from an already decoded value: `convert_to(ResultMeta,
    result.meta)`."""
    return decode_as(kind, encode_any(value))


def _decode_repaired(kind: type[T], raw: Raw | bytes) -> T:
    try:
        return msgspec.convert(_repair(_shape(kind), raw), kind)
    except _UNREADABLE as error:
        raise _refusal(kind, error) from None


@cache
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _options(shape: inspect.Type) -> Sequence[inspect.Type]:
    """The alternatives of a type, without annotations."""
    if isinstance(shape, inspect.Metadata):
        return _options(shape.type)
    return shape.types if isinstance(shape, inspect.UnionType) else (shape,)


def _repair(shape: inspect.Type, raw: Raw | bytes) -> Any:
    """`raw` as plain values, repaired as far as `shape` allows."""
    options = _options(shape)
    if any(isinstance(option, inspect.RawType) for option in options):
        return raw
    value = _one_level.decode(raw)
    if isinstance(value, dict):
        return _repair_object(options, value, raw)
    if isinstance(value, list):
        for option in options:
            if isinstance(option, inspect.ListType):
                return [_repair(option.item_type, item) for item in value]
        return msgspec.json.decode(raw)
    if isinstance(value, float) and _only_integers(options):
        return int(value) if value.is_integer() and abs(value) <= MAX_EXACT else value
    return value


def _only_integers(options: Sequence[inspect.Type]) -> bool:
    kinds = {type(option) for option in options}
    return inspect.IntType in kinds and inspect.FloatType not in kinds


def _repair_object(
    options: Sequence[inspect.Type], members: dict[str, Raw], raw: Raw | bytes
) -> Any:
    candidates = [option for option in options if isinstance(option, inspect.StructType)]
    chosen = _matching_struct(candidates, members)
    if chosen is not None:
        if chosen.cls.__name__ == FORM_FIELD:
            members = _without_null(members)
        elif _decoded_as(chosen.cls) == TOOL_RESULT and "structuredContent" in members:
            members = {"content": NO_BLOCKS, **members}
        repaired = {
            field.encode_name: _repair(field.type, members[field.encode_name])
            for field in chosen.fields
            if field.encode_name in members
        }
        if chosen.tag_field in members:
            repaired[chosen.tag_field] = msgspec.json.decode(members[chosen.tag_field])
        return repaired
    for option in options:
        if isinstance(option, inspect.DictType):
            return {key: _repair(option.value_type, item) for key, item in members.items()}
    whole = msgspec.json.decode(raw)
    if isinstance(whole.get("type"), str) and _allows_unknown(candidates):
        return {"type": UnknownContent.__struct_config__.tag, "whole": UnknownMembers(whole)}
    return whole


def _decoded_as(kind: type) -> str:
    """The name of a type, or of the one that it takes the place of."""
    name: str = getattr(kind, "decodes", kind.__name__)
    return name


def _without_null(members: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a nullable form field, as those of its one other type."""
    kinds = _non_null(members.get("type"), "null")
    if len(kinds) == 1:
        return {**members, "type": kinds[0]}
    options = _non_null(members.get("anyOf"), {"type": "null"})
    if len(options) == 1 and "type" not in members:
        inner = _one_level.decode(options[0])
        if isinstance(inner, dict):
            return {**inner, **{key: raw for key, raw in members.items() if key != "anyOf"}}
    return members


def _non_null(raw: Raw | None, null: object) -> list[Raw]:
    """The other alternatives if one of them is null; empty if none is."""
    found = _one_level.decode(raw) if raw is not None else None
    if not isinstance(found, list):
        return []
    others = [one for one in found if msgspec.json.decode(one) != null]
    return others if len(others) < len(found) else []


def _matching_struct(
    candidates: Sequence[inspect.StructType], members: dict[str, Raw]
) -> inspect.StructType | None:
    """The struct that these members are; None if their tag is unknown."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    tag_field = cast("str", candidates[0].tag_field)  # structs in a union share their tag field
    tag = msgspec.json.decode(members.get(tag_field, b"null"))
    for candidate in candidates:
        if candidate.tag == tag and candidate.cls is not UnknownContent:
            return candidate
    return None


def _allows_unknown(candidates: Sequence[inspect.StructType]) -> bool:
    return any(candidate.cls is UnknownContent for candidate in candidates)


# --- error messages ---


def _refusal(kind: type, error: Exception) -> Fault:
    """A fault that repeats nothing of what the peer sent but the types."""
    name = kind.__name__.lstrip("_")
    if not isinstance(error, ValidationError):
        return Fault(
            FaultKind.INVALID_PARAMS,
            f"{name} is not valid JSON; send UTF-8 JSON that is not nested too deeply",
        )
    text = str(error)
    what, found, where = text.rpartition(" - at ")
    if not found:
        what, where = text, "`$`"
    path = where.strip("`").removeprefix("$")
    place = f"`{path.removeprefix('.')}`" if path else "the top"
    advice = _advice(kind, what, path)
    return Fault(FaultKind.INVALID_PARAMS, f"{name}, at {place}: {advice}")


def _advice(kind: type, what: str, path: str) -> str:
    if what.startswith(
        ("Invalid enum value", "Invalid value")
    ):  # what follows is a value of the peer
        allowed = ", ".join(sorted(set(_allowed(_shape(kind), path))))
        return f"not an allowed value; send one of {allowed}"
    what = what.removeprefix("Object ")
    what = what[:1].lower() + what[1:]
    if what.startswith("missing required field"):
        return f"{what}; add it"
    if what.startswith("expected"):
        return f"{what}; send what is expected"
    return f"{what}; correct it"


def _allowed(shape: inspect.Type, path: str) -> Iterator[str]:
    """The values that are allowed at a path that the decoder named."""
    for option in _options(shape):
        if isinstance(option, inspect.LiteralType) and not path:
            yield from map(str, option.values)
        elif isinstance(option, inspect.StructType):
            if path == f".{option.tag_field}" and option.cls is not UnknownContent:
                yield str(option.tag)
            for field in option.fields:
                rest = path.removeprefix(f".{field.encode_name}")
                if rest != path and rest[:1] in ("", ".", "["):
                    yield from _allowed(field.type, rest)
        elif isinstance(option, inspect.ListType) and path:
            yield from _allowed(option.item_type, path.partition("]")[2])
        elif isinstance(option, inspect.DictType) and path:
            yield from _allowed(option.value_type, path.partition("]")[2])


# --- encoding ---


class _HasUnknownContent(Exception):  # raised by the encoder's hook, for its caller
    """There is a content block that must be encoded as it came."""


def _open(value: object) -> Any:
    if isinstance(value, UnknownMembers):
        raise _HasUnknownContent
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"a value of type `{type(value).__name__}` cannot be encoded as JSON")


_encoder: Final = msgspec.json.Encoder(enc_hook=_open)


def encode_any(value: object) -> bytes:
    """Encode a protocol type, or anything made of them; unknown blocks as they came, `Raw`
    verbatim.

    Raises `LocalProtocolError` for what JSON cannot hold.
    """
    try:
        try:
            return _encoder.encode(value)
        except _HasUnknownContent:
            return _encoder.encode(_unfold(value))
    except _UNWRITABLE as error:
        raise _unwritable(value, error) from error


def to_builtins(value: object) -> Any:
    """A protocol type, or anything made of them, as dicts, lists and scalars, ready for JSON.

    Raises `LocalProtocolError` for what JSON cannot hold.
    """
    try:
        try:
            return msgspec.to_builtins(value, str_keys=True, enc_hook=_open)
        except _HasUnknownContent:
            return msgspec.to_builtins(_unfold(value), str_keys=True, enc_hook=_open)
    except (msgspec.MsgspecError, *_UNWRITABLE) as error:
        raise _unwritable(value, error) from error


def _unwritable(value: object, error: Exception) -> LocalProtocolError:
    return LocalProtocolError(
        f"a value of type `{type(value).__name__}` cannot be encoded as JSON ({error}); "
        "use only dicts with string keys, lists, strings, numbers, booleans and None"
    )


def _unfold(value: object) -> object:
    """`value` with every struct as a dict, and every unknown block as its members."""
    if isinstance(value, UnknownContent):
        return value.whole.members
    if isinstance(value, ProtocolType):
        return _unfold_struct(value)
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {key: _unfold(item) for key, item in members.items()}
    if isinstance(value, list | tuple):
        return [_unfold(item) for item in cast("Sequence[object]", value)]
    return value


def _unfold_struct(obj: ProtocolType) -> dict[str, object]:
    config = obj.__struct_config__
    unfolded: dict[str, object] = {}
    if config.tag_field is not None:
        unfolded[config.tag_field] = config.tag
    for field in structs.fields(obj):
        value: object = getattr(obj, field.name)
        # If null is a value of its own, an absent member is UNSET.
        absent = value is UNSET or value is ABSENT or (value is None and field.default is None)
        if field.required or not absent:
            unfolded[field.encode_name] = _unfold(value)
    return unfolded
