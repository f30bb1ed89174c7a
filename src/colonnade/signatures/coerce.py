"""Coercion of values that models write in another type than the schema has.

A number or a boolean as a string, `5.0` for an integer, an object or an array as JSON in a string:
each is converted if the schema allows no other interpretation. `str | None` stays a string.

Rules: only if the schema admits no string (or no fraction) at that place, or clearly not this
one; never a guess between two interpretations; nothing here refuses anything. It runs only after a
value was refused as it is. The table in `readings.py` has every reading that is used here.
"""

import re
from typing import Any, cast

import msgspec

from colonnade.protocol.json_checks import depth, may_be_deep
from colonnade.protocol.jsonrpc import MAX_DEPTH
from colonnade.protocol.schema.error_messages import json_type
from colonnade.protocol.schema.validate import Schema, Types, admitted_types
from colonnade.signatures.readings import FORMATS, MAX_NUMBER, NUMBER, OUR_WORDS, json_in

# Alternatives that are searched for the one that fits; larger unions are not coerced.
MAX_ALTERNATIVES = 64

# Formats that no number or boolean has.
_TIMES = frozenset({"date-time", "date", "time", "duration"})


def coerce(value: Any, schema: Schema, *, scalars: bool = True) -> Any:
    """A copy of the value as the schema means it; without `scalars`, only JSON in strings."""
    return _Coercion(schema, scalars).fix(value, schema)


class _Coercion:
    def __init__(self, root: Schema, scalars: bool) -> None:
        self._root = root
        self._scalars = scalars
        # Results for a subschema hold for every value.
        self._kinds: dict[int, Types] = {}
        self._found: dict[tuple[int, str], list[Schema]] = {}

    def fix(self, value: Any, schema: Any) -> Any:
        if isinstance(value, str):
            return self._text(value, schema)
        if isinstance(value, float) and self._scalars and value.is_integer():
            kinds = self._admitted(schema)
            return int(value) if "integer" in kinds and "number" not in kinds else value
        if isinstance(value, dict):
            members = cast(dict[str, Any], value)
            place = self._place(schema, "object")
            named, rest = place.get("properties", {}), place.get("additionalProperties", True)
            return {k: self.fix(v, named.get(k, rest)) for k, v in members.items()}
        if isinstance(value, list):
            items = cast(list[Any], value)
            place = self._place(schema, "array")
            first, rest = place.get("prefixItems", []), place.get("items", True)
            return [
                self.fix(one, first[at] if at < len(first) else rest)
                for at, one in enumerate(items)
            ]
        return value

    def _text(self, value: str, schema: Any) -> Any:
        kinds, text = self._admitted(schema), value.strip()
        if "string" in kinds:
            places = self._places(schema, "string")
            if not all(_excludes(place, text) for place in places):
                write = FORMATS.get(places[0].get("format", "")) if len(places) == 1 else None
                return write(value) if write and self._scalars else value
        if self._scalars:
            if "boolean" in kinds and text.lower() in OUR_WORDS:
                return OUR_WORDS[text.lower()]
            numeric = len(text) <= MAX_NUMBER and re.fullmatch(NUMBER, text)
            if numeric and kinds & {"integer", "number"}:
                return _number(text, value, "number" in kinds)
        if text[:1] in ("{", "["):
            parsed = json_in(text)
            if isinstance(parsed, dict | list) and json_type(parsed) in kinds:
                return self.fix(parsed, schema)
        return value

    def _place(self, schema: Any, kind: str) -> Schema:
        """The one alternative that a value of this type can be meant for, or an empty schema."""
        found = self._places(schema, kind)
        return found[0] if len(found) == 1 else {}

    def _admitted(self, schema: Any) -> Types:
        kinds = self._kinds.get(id(schema))
        if kinds is None:
            kinds = self._kinds[id(schema)] = admitted_types(schema, self._root)
        return kinds

    def _places(self, schema: Any, kind: str) -> list[Schema]:
        key = (id(schema), kind)
        if key not in self._found:
            self._found[key] = self._search(schema, kind)
        return self._found[key]

    def _search(self, schema: Any, kind: str) -> list[Schema]:
        found: list[Schema] = []
        waiting = [schema]
        for one in waiting:
            if not isinstance(one, dict) or len(waiting) > MAX_ALTERNATIVES:
                return [{}, {}]  # too many, or one that admits anything
            branch = cast(Schema, one)
            inner = [*branch.get("anyOf", ()), *branch.get("oneOf", ())]
            if "$ref" in branch:
                inner.append(self._root.get("$defs", {}).get(branch["$ref"].rpartition("/")[2]))
            waiting.extend(inner)
            if not inner and kind in self._admitted(branch):
                found.append(branch)
        return found


def _excludes(place: Schema, text: str) -> bool:
    """Whether a schema that admits strings clearly does not admit this one."""
    if "enum" in place:
        return text not in place["enum"]
    plain = re.fullmatch(NUMBER, text) or text.lower() in OUR_WORDS
    return place.get("format") in _TIMES and bool(plain)


def parse(raw: bytes) -> Any:
    """Parse any JSON, or return `UNSET` if it is invalid or nests too deep."""
    if may_be_deep(raw, MAX_DEPTH) and depth(raw) > MAX_DEPTH:
        return msgspec.UNSET
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.UNSET


def _number(text: str, otherwise: str, fractions: bool) -> Any:
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    if number.is_integer() and not fractions:
        return int(number)
    finite = number - number == 0
    return number if fractions and finite else otherwise
