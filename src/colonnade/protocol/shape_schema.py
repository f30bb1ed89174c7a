"""A tool's JSON Schemas, made to fit revisions that know less of JSON Schema than the newest.

Rules: a schema means the same afterwards; what comes in is never changed, and what fits already
is given back as the very same object.
"""

from typing import Any, cast

from colonnade.protocol.subschemas import Schema, mapped

# The member that holds a result which is no object, where only objects may be results (D17).
WRAPPED = "result"

# A boolean here is as old as JSON Schema itself, and every reader knows it.
_BOOLEAN_BY_TRADITION = frozenset({"additionalProperties", "additionalItems"})
# What a reference from anywhere finds at the root, and what holds for the document as a whole.
_DEFINITIONS = frozenset({"$defs", "definitions"})
_ROOT_KEYWORDS = _DEFINITIONS | {"$schema", "$id"}
_REFERENCES = ("$ref", "$dynamicRef")


def is_object_schema(schema: Schema) -> bool:
    """Whether a schema's values are objects, by its own word."""
    return schema.get("type") == "object"


def wrapped_schema(schema: Schema) -> Schema:
    """The schema of `{"result": value}`; definitions stay at the root, where references look.

    One with an absolute `$id` moves whole: its references start from that, wherever it stands.
    """
    if "://" in str(schema.get("$id")):
        inner = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
        outer = {keyword: value for keyword, value in schema.items() if keyword == "$schema"}
        return outer | {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
    moved = _moved(schema)
    inner = {keyword: value for keyword, value in moved.items() if keyword not in _ROOT_KEYWORDS}
    outer = {keyword: value for keyword, value in moved.items() if keyword in _ROOT_KEYWORDS}
    return outer | {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}


def _moved(schema: Schema) -> Schema:
    """The schema with every reference into it following it to its new place."""
    copy = mapped(schema, _moved_below)
    for keyword in _REFERENCES:
        target = copy.get(keyword)
        if isinstance(target, str) and _points_into_what_moves(target):
            copy[keyword] = f"#/properties/{WRAPPED}{target[1:]}"
    return copy


def _moved_below(_keyword: str, schema: Any) -> Any:
    # A subschema with an `$id` is a document of its own: its references do not leave it.
    if not isinstance(schema, dict) or "$id" in schema:
        return cast("Any", schema)
    return _moved(cast("Schema", schema))


def _points_into_what_moves(target: str) -> bool:
    if target == "#":
        return True
    return target.startswith("#/") and target.split("/")[1] not in _DEFINITIONS


def without_boolean_schemas(schema: Schema) -> Schema:
    """The same schema with `true` and `false` as `{}` and `{"not": {}}` (D17)."""
    shaped = mapped(schema, _as_object)
    return schema if shaped == schema else shaped


def _as_object(keyword: str, schema: Any) -> Any:
    if isinstance(schema, bool):
        if keyword in _BOOLEAN_BY_TRADITION:
            return schema
        return {} if schema else {"not": {}}
    if isinstance(schema, dict):
        return mapped(cast("Schema", schema), _as_object)
    return schema
