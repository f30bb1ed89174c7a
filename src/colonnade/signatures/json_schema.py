"""JSON Schema of a type that msgspec decodes.

The schemas of msgspec lose the format of dates, sort what the author ordered, and put a title on
everything. Rules: the schema admits what the decoder admits, no more; what msgspec decodes
differently from pydantic raises `UnsupportedByMsgspec` here, so that it is never used.
"""

import enum
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import inspect as mi

from colonnade.protocol.schema.bounds import Schema, tuple_items
from colonnade.protocol.schema.error_messages import json_type
from colonnade.protocol.schema.validate import Types, admitted_types
from colonnade.signatures.type_hints import (
    SchemaNotes,
    UnsupportedByMsgspec,
    literal_key,
    text_format,
)

_Fields: TypeAlias = mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType

# The types of `dict` keys, and the schemas of their names; JSON has only strings there.
_KEYS: dict[type[mi.Type], Schema] = {
    mi.AnyType: {},
    mi.StrType: {},
    mi.FloatType: {},
    mi.IntType: {"pattern": "^-?[0-9]+$"},
}


def schema_of(info: mi.Type, notes: SchemaNotes) -> Schema:
    """The schema of a type. Raises `UnsupportedByMsgspec` if msgspec and pydantic would
    disagree."""
    writer = _Writer(notes)
    schema = writer.write(info)
    return {**schema, "$defs": writer.definitions} if writer.definitions else schema


class _Writer:
    """Writes the schemas of types; classes go under `$defs`, by name."""

    def __init__(self, notes: SchemaNotes) -> None:
        self.definitions: Schema = {}
        self._notes = notes
        self._names: dict[Any, str] = {}

    def write(self, info: mi.Type) -> Schema:
        if isinstance(info, mi.Metadata):
            return {
                **self.write(info.type),
                **cast(Schema, cast(Any, info).extra_json_schema or {}),
            }
        write = _WRITERS.get(type(info))
        if write is None:
            raise UnsupportedByMsgspec(type(info).__name__.removesuffix("Type").lower())
        return write(self, info)

    def union(self, info: mi.UnionType) -> Schema:
        members = [self.write(one) for one in info.types]
        _refuse_merged(
            info.types, [admitted_types(one, {"$defs": self.definitions}) for one in members]
        )
        return {"anyOf": members}

    def literal(self, info: mi.LiteralType) -> Schema:
        return _enumerated(self._notes.literals.get(literal_key(info.values), list(info.values)))

    def collection(self, info: mi.CollectionType) -> Schema:
        schema: Schema = {"type": "array", "items": self.write(info.item_type)}
        if isinstance(info, mi.SetType | mi.FrozenSetType):
            schema["uniqueItems"] = True
        return schema | _given(minItems=info.min_length, maxItems=info.max_length)

    def row(self, info: mi.TupleType) -> Schema:
        return _row([self.write(one) for one in info.item_types], len(info.item_types))

    def mapping(self, info: mi.DictType) -> Schema:
        schema: Schema = {"type": "object"}
        if not isinstance(info.value_type, mi.AnyType):
            schema["additionalProperties"] = self.write(info.value_type)
        names = self._names_of(info.key_type)
        if names:
            schema["propertyNames"] = names
        return schema | _given(minProperties=info.min_length, maxProperties=info.max_length)

    def _names_of(self, key: mi.Type) -> Schema:
        bare = key.type if isinstance(key, mi.Metadata) else key
        if isinstance(bare, mi.CustomType | mi.DecimalType):
            raise UnsupportedByMsgspec(f"{bare.__class__.__name__.removesuffix('Type')} as a key")
        words: Schema = {k: v for k, v in self.write(key).items() if k != "type"}
        if type(bare) in _KEYS:
            return _KEYS[type(bare)] or words
        choices: list[Any] = words.get("enum", [] if "format" in words else [None])
        if not all(type(choice) in (str, int) for choice in choices):
            raise UnsupportedByMsgspec("keys that are neither strings nor integers")
        return {**words, "enum": [str(choice) for choice in choices]} if choices else words

    def decimal(self, info: mi.DecimalType) -> Schema:
        text: Schema = {"type": "string"}
        return text if self._notes.outgoing else {"anyOf": [{"type": "number"}, text]}

    def text(self, info: mi.CustomType) -> Schema:
        format = text_format(info.cls)
        if format is None:
            raise UnsupportedByMsgspec(info.cls.__name__)
        return {"type": "string", "format": format}

    def fields(self, info: _Fields) -> Schema:
        if info.cls not in self._names:
            name = _free(_class_name(info.cls), self.definitions)
            self._names[info.cls] = name
            self.definitions[name] = {}  # reserved while its fields are written
            array = isinstance(info, mi.NamedTupleType) or getattr(info, "array_like", False)
            self.definitions[name] = self._array(info) if array else self._object(info)
        return {"$ref": f"#/$defs/{self._names[info.cls]}"}

    def _object(self, info: _Fields) -> Schema:
        properties, required = dict[str, Any](), list[str]()
        tag = getattr(info, "tag_field", None)
        if tag is not None:
            properties[tag] = _enumerated([getattr(info, "tag", None)])
            required.append(tag)
        order = list(getattr(_origin(info.cls), "__annotations__", {}))
        for field in sorted(info.fields, key=lambda one: _position(one.name, info, order)):
            properties[field.encode_name] = self._field(info.cls, field)
            if field.required:
                required.append(field.encode_name)
        schema: Schema = {"type": "object", **_doc(info.cls), "properties": properties}
        if required:
            schema["required"] = required
        if getattr(info, "forbid_unknown_fields", False):
            schema["additionalProperties"] = False
        return schema

    def _array(self, info: _Fields) -> Schema:
        # An array item has no name; the title keeps the one of the author.
        places = [{"title": f.encode_name, **self._field(info.cls, f)} for f in info.fields]
        least = sum(field.required for field in info.fields)
        if (tag := getattr(info, "tag", None)) is not None:
            places, least = [_enumerated([tag]), *places], least + 1
        row = _row(places, least)
        if isinstance(info, mi.StructType) and not info.forbid_unknown_fields:
            del row["maxItems"]
            row["items"] = {}
        return {**row, **_doc(info.cls)}

    def _field(self, cls: Any, field: mi.Field) -> Schema:
        schema = self.write(field.type) | self._notes.fields.get((_origin(cls), field.name), {})
        if field.default is not msgspec.NODEFAULT:
            with suppress(TypeError, ValueError):  # a default that JSON cannot hold is left out
                schema["default"] = msgspec.to_builtins(field.default, str_keys=True)
        return schema


def _refuse_merged(types: tuple[mi.Type, ...], admits: list[Types]) -> None:
    """msgspec merges members of one JSON type; pydantic tries each by itself."""
    bare = [one.type if isinstance(one, mi.Metadata) else one for one in types]
    if mi.AnyType() in bare and any(one not in (mi.AnyType(), mi.NoneType()) for one in bare):
        raise UnsupportedByMsgspec("a union with Any")
    for kind in ("string", "number", "integer"):
        both = {kind, "number"} if kind == "integer" else {kind}
        alike = [one for one, kinds in zip(bare, admits, strict=True) if kinds & both]
        literal = [one for one in alike if isinstance(one, mi.LiteralType)]
        plain = [one for one in alike if one in (mi.StrType(), mi.IntType(), mi.FloatType())]
        if len(alike) > 1 and len(literal) + len(plain) < len(alike):
            raise UnsupportedByMsgspec("a union of members that look alike in JSON")
        if literal and mi.FloatType() in plain and kind == "integer":
            raise UnsupportedByMsgspec("a union of a Literal and float")


def _given(**facts: Any) -> Schema:
    return {name: value for name, value in facts.items() if value is not None}


def _row(places: list[Schema], least: int) -> Schema:
    schema: Schema = {"type": "array", "prefixItems": places} if places else {"type": "array"}
    return {**schema, "items": tuple_items(places), "minItems": least, "maxItems": len(places)}


def _enumerated(values: list[Any]) -> Schema:
    kinds = {json_type(value) for value in values}
    return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}


def _enum(_: _Writer, info: mi.EnumType) -> Schema:
    if issubclass(info.cls, enum.Flag):  # any combination is a value too, and often any number
        return {"type": "integer", **_doc(info.cls)}
    return {**_enumerated([member.value for member in info.cls]), **_doc(info.cls)}


def _number(kind: str) -> "Callable[[_Writer, Any], Schema]":
    def write(_: _Writer, info: mi.IntType | mi.FloatType) -> Schema:
        return {"type": kind} | _given(
            minimum=info.ge,
            exclusiveMinimum=info.gt,
            maximum=info.le,
            exclusiveMaximum=info.lt,
            multipleOf=info.multiple_of,
        )

    return write


def _string(_: _Writer, info: mi.StrType) -> Schema:
    return {"type": "string"} | _given(
        minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern
    )


def _fixed(**schema: Any) -> "Callable[[_Writer, Any], Schema]":
    return lambda _, info: dict(schema)


def _position(name: str, info: _Fields, order: list[str]) -> int:
    """msgspec sorts the members of a TypedDict; this restores their order."""
    return order.index(name) if isinstance(info, mi.TypedDictType) and name in order else 0


def _origin(cls: Any) -> Any:
    return getattr(cls, "__origin__", cls)


def _class_name(cls: Any) -> str:
    parts = [
        _origin(cls).__name__,
        *(getattr(a, "__name__", "") for a in getattr(cls, "__args__", ())),
    ]
    return "_".join(part for part in parts if part.isidentifier())


def _free(name: str, taken: Schema) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}{number}"
        number += 1
    return free


def _doc(cls: Any) -> Schema:
    """The docstring of the author; not the one that a dataclass or an Enum generates."""
    cls = _origin(cls)
    own = cast(dict[str, Any], cls.__dict__)
    text = inspect.cleandoc(own.get("__doc__") or "")
    generated = text.startswith(f"{cls.__name__}(") or text in ("", "An enumeration.")
    return {} if generated else {"description": text}


_WRITERS: dict[type[mi.Type], Callable[[_Writer, Any], Schema]] = {
    mi.AnyType: _fixed(),
    mi.NoneType: _fixed(type="null"),
    mi.BoolType: _fixed(type="boolean"),
    mi.IntType: _number("integer"),
    mi.FloatType: _number("number"),
    mi.StrType: _string,
    mi.DateTimeType: _fixed(type="string", format="date-time"),
    mi.DateType: _fixed(type="string", format="date"),
    mi.TimeType: _fixed(type="string", format="time"),
    mi.TimeDeltaType: _fixed(type="string", format="duration"),
    mi.UUIDType: _fixed(type="string", format="uuid"),
    mi.DecimalType: _Writer.decimal,
    mi.CustomType: _Writer.text,
    mi.EnumType: _enum,
    mi.LiteralType: _Writer.literal,
    mi.UnionType: _Writer.union,
    mi.ListType: _Writer.collection,
    mi.SetType: _Writer.collection,
    mi.FrozenSetType: _Writer.collection,
    mi.VarTupleType: _Writer.collection,
    mi.TupleType: _Writer.row,
    mi.DictType: _Writer.mapping,
    mi.StructType: _Writer.fields,
    mi.DataclassType: _Writer.fields,
    mi.TypedDictType: _Writer.fields,
    mi.NamedTupleType: _Writer.fields,
}
