"""Bytes to a noun, once, and back.

`read` decodes strictly first. Only when that fails does it look again, level by level along the
noun's own type, for the things that other implementations send and the decoder refuses:

- a content block of a kind that nobody knows yet: kept whole, as `UnknownContent`;
- `1.0` where an integer is due: taken as `1` (D31). `1.5` and `true` stay refused.
- structured content of a tool without `content`, which must be there and may be empty (D46);
- a field of a form that may be null, `anyOf: [T, null]` or `type: [T, "null"]`: taken as `T`, since
  a field that is not `required` may be left out (D44). `mcp` up to 1.30 writes optional fields so.

Rules: nothing but `Fault` leaves `read`, nothing but `LocalProtocolError` leaves the writers; time
is linear in the bytes; a refusal names places and types, never a value that the peer sent.
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

# Beyond this a float no longer says which integer is meant.
MAX_EXACT: Final = 2**53

# A result of a tool, and a field of an elicitation's form; by their names, since a program loads
# the types that it needs.
TOOL_RESULT: Final = "CallToolResult"
FORM_FIELD: Final = "PrimitiveSchema"
NO_BLOCKS: Final = Raw(b"[]")

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_UNWRITABLE: Final = (TypeError, ValueError, RecursionError)

_decoders: dict[type, "msgspec.json.Decoder[Any]"] = {}
_Level = dict[str, Raw] | list[Raw] | str | int | float | bool | None
_one_level: Final = cast("msgspec.json.Decoder[_Level]", msgspec.json.Decoder(_Level))


def decode_as(kind: type[T], raw: Raw | bytes) -> T:
    """The noun that `raw` holds; absent params (no bytes at all) are read as `{}`.

    Raises `Fault` (invalid params), whose words say what is wrong, where, and what to send.
    """
    found = decode_unchecked(kind, raw)
    # The decoder keeps the last of two members of one name; another reader may keep the first.
    refuse_duplicate_members(raw)
    return found


def decode_unchecked(kind: type[T], raw: Raw | bytes) -> T:
    """The same for what nobody else reads, such as an answer to us: of two members the last."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(raw or b"{}")
    except ValidationError:
        return _read_again(kind, raw or b"{}")
    except _UNREADABLE as error:
        raise _refusal(kind, error) from None


def readable_items(kind: type, raw: Raw | bytes) -> tuple[Raw, list[str]]:
    """A page of a list that cannot be read, without the items that are to blame, and what is wrong
    with each of them; as it is where no item is to blame, or every one: then nothing is a list."""
    try:
        members = _one_level.decode(raw)
    except _UNREADABLE:
        return Raw(raw), []
    wrong: list[str] = []
    if isinstance(members, dict):
        for field in cast("inspect.StructType", _shape(kind)).fields:
            items = members.get(field.encode_name)
            if isinstance(field.type, inspect.ListType) and items is not None:
                members[field.encode_name] = _without_bad(field.type.item_type, items, wrong)
    return Raw(msgspec.json.encode(members)) if wrong else Raw(raw), wrong


def _without_bad(shape: inspect.Type, raw: Raw, wrong: list[str]) -> Raw:
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
    wrong += bad
    return Raw(msgspec.json.encode(kept))


def convert_to(kind: type[T], value: object) -> T:
    """The noun that an already decoded value holds: `reread(ResultMeta, result.meta)`."""
    return decode_as(kind, encode_any(value))


def _read_again(kind: type[T], raw: Raw | bytes) -> T:
    try:
        return msgspec.convert(_loosen(_shape(kind), raw), kind)
    except _UNREADABLE as error:
        raise _refusal(kind, error) from None


@cache
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def _options(shape: inspect.Type) -> Sequence[inspect.Type]:
    """The types that may stand here, marks taken off."""
    if isinstance(shape, inspect.Metadata):
        return _options(shape.type)
    return shape.types if isinstance(shape, inspect.UnionType) else (shape,)


def _loosen(shape: inspect.Type, raw: Raw | bytes) -> Any:
    """`raw` as plain values, with whatever `shape` lets us mend already mended."""
    options = _options(shape)
    if any(isinstance(option, inspect.RawType) for option in options):
        return raw
    value = _one_level.decode(raw)
    if isinstance(value, dict):
        return _loosen_object(options, value, raw)
    if isinstance(value, list):
        for option in options:
            if isinstance(option, inspect.ListType):
                return [_loosen(option.item_type, item) for item in value]
        return msgspec.json.decode(raw)
    if isinstance(value, float) and _only_integers(options):
        return int(value) if value.is_integer() and abs(value) <= MAX_EXACT else value
    return value


def _only_integers(options: Sequence[inspect.Type]) -> bool:
    kinds = {type(option) for option in options}
    return inspect.IntType in kinds and inspect.FloatType not in kinds


def _loosen_object(
    options: Sequence[inspect.Type], members: dict[str, Raw], raw: Raw | bytes
) -> Any:
    candidates = [option for option in options if isinstance(option, inspect.StructType)]
    chosen = _chosen(candidates, members)
    if chosen is not None:
        if chosen.cls.__name__ == FORM_FIELD:
            members = _without_null(members)
        elif chosen.cls.__name__ == TOOL_RESULT and "structuredContent" in members:
            members = {"content": NO_BLOCKS, **members}
        mended = {
            field.encode_name: _loosen(field.type, members[field.encode_name])
            for field in chosen.fields
            if field.encode_name in members
        }
        if chosen.tag_field in members:
            mended[chosen.tag_field] = msgspec.json.decode(members[chosen.tag_field])
        return mended
    for option in options:
        if isinstance(option, inspect.DictType):
            return {key: _loosen(option.value_type, item) for key, item in members.items()}
    whole = msgspec.json.decode(raw)
    if isinstance(whole.get("type"), str) and _keeps_unknown(candidates):
        return {"type": UnknownContent.__struct_config__.tag, "whole": UnknownMembers(whole)}
    return whole


def _without_null(members: dict[str, Raw]) -> dict[str, Raw]:
    """The members of a form's field that is of one type or null, as those of that type."""
    kinds = _but_null(members.get("type"), "null")
    if len(kinds) == 1:
        return {**members, "type": kinds[0]}
    options = _but_null(members.get("anyOf"), {"type": "null"})
    if len(options) == 1 and "type" not in members:
        inner = _one_level.decode(options[0])
        if isinstance(inner, dict):
            return {**inner, **{key: raw for key, raw in members.items() if key != "anyOf"}}
    return members


def _but_null(raw: Raw | None, null: object) -> list[Raw]:
    """The other alternatives where one of them is null; none where that is not so."""
    found = _one_level.decode(raw) if raw is not None else None
    if not isinstance(found, list):
        return []
    others = [one for one in found if msgspec.json.decode(one) != null]
    return others if len(others) < len(found) else []


def _chosen(
    candidates: Sequence[inspect.StructType], members: dict[str, Raw]
) -> inspect.StructType | None:
    """The struct that these members mean; none, if their tag is not one that we know."""
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    tag_field = cast("str", candidates[0].tag_field)  # structs in a union share their tag field
    tag = msgspec.json.decode(members.get(tag_field, b"null"))
    for candidate in candidates:
        if candidate.tag == tag and candidate.cls is not UnknownContent:
            return candidate
    return None


def _keeps_unknown(candidates: Sequence[inspect.StructType]) -> bool:
    return any(candidate.cls is UnknownContent for candidate in candidates)


# --- words for a refusal ---


def _refusal(kind: type, error: Exception) -> Fault:
    """A fault that repeats nothing of what the peer sent but the types."""
    name = kind.__name__.lstrip("_")
    if not isinstance(error, ValidationError):
        return Fault(
            FaultKind.INVALID_PARAMS,
            f"{name} is not readable JSON; send valid UTF-8 JSON, less deeply nested",
        )
    text = str(error)
    what, found, where = text.rpartition(" - at ")
    if not found:
        what, where = text, "`$`"
    path = where.strip("`").removeprefix("$")
    place = f"`{path.removeprefix('.')}`" if path else "the top"
    wish = _wish(kind, what, path)
    return Fault(FaultKind.INVALID_PARAMS, f"{name}, at {place}: {wish}")


def _wish(kind: type, what: str, path: str) -> str:
    if what.startswith(("Invalid enum value", "Invalid value")):  # what follows is the peer's
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
    """The values that may stand at a place that the decoder named."""
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


# --- and back ---


class _HasUnknownContent(Exception):  # a signal between the encoder's hook and its caller
    """There is a block in here that must be written as it came."""


def _open(value: object) -> Any:
    if isinstance(value, UnknownMembers):
        raise _HasUnknownContent
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"a value of type `{type(value).__name__}` has no form in JSON")


_encoder: Final = msgspec.json.Encoder(enc_hook=_open)


def encode_any(value: object) -> bytes:
    """A noun, or anything made of nouns, as JSON; unknown blocks as they came, `Raw` verbatim.

    Raises `LocalProtocolError` for what JSON cannot hold.
    """
    try:
        try:
            return _encoder.encode(value)
        except _HasUnknownContent:
            return _encoder.encode(_spread(value))
    except _UNWRITABLE as error:
        raise _unwritable(value, error) from error


def to_builtins(value: object) -> Any:
    """A noun, or anything made of nouns, as dicts, lists and scalars, ready for JSON.

    Raises `LocalProtocolError` for what JSON cannot hold.
    """
    try:
        try:
            return msgspec.to_builtins(value, str_keys=True, enc_hook=_open)
        except _HasUnknownContent:
            return msgspec.to_builtins(_spread(value), str_keys=True, enc_hook=_open)
    except (msgspec.MsgspecError, *_UNWRITABLE) as error:
        raise _unwritable(value, error) from error


def _unwritable(value: object, error: Exception) -> LocalProtocolError:
    return LocalProtocolError(
        f"a value of type `{type(value).__name__}` cannot be written as JSON ({error}); "
        "use only dicts with text keys, lists, text, numbers, booleans and None"
    )


def _spread(value: object) -> object:
    """`value` with every noun made a dict, and so every unknown block what it was."""
    if isinstance(value, UnknownContent):
        return value.whole.members
    if isinstance(value, ProtocolType):
        return _spread_noun(value)
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        return {key: _spread(item) for key, item in members.items()}
    if isinstance(value, list | tuple):
        return [_spread(item) for item in cast("Sequence[object]", value)]
    return value


def _spread_noun(noun: ProtocolType) -> dict[str, object]:
    config = noun.__struct_config__
    spread: dict[str, object] = {}
    if config.tag_field is not None:
        spread[config.tag_field] = config.tag
    for field in structs.fields(noun):
        value: object = getattr(noun, field.name)
        # Where null is a value of its own, what was not sent is UNSET.
        absent = value is UNSET or value is ABSENT or (value is None and field.default is None)
        if field.required or not absent:
            spread[field.encode_name] = _spread(value)
    return spread
