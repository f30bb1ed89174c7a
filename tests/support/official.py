"""The official schemas, closed: what they list is all that there may be.

As published they admit any extra member, so a `title` would pass even where nobody knows one.
Closing means `additionalProperties: false` on every object that lists its properties, with the
few openings that the specification itself makes (`OPEN`).

Rules: the schemas are read from beside the repository and never copied into it.
"""

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

ROOT = Path(__file__).resolve().parents[3] / "shared" / "spec"
DATES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")

Schema = dict[str, Any]

# Objects that list members and are open all the same, each with its reason.
OPEN = {
    "_meta": "anyone may add keys, by the naming rule",
    "MetaObject": "anyone may add keys, by the naming rule",
    "RequestMetaObject": "anyone may add keys, by the naming rule",
    "ResultMetaObject": "anyone may add keys, by the naming rule",
    "NotificationMetaObject": "anyone may add keys, by the naming rule",
    "SubscriptionsListenResultMetaObject": "anyone may add keys, by the naming rule",
    "inputSchema": "a JSON Schema, with any keyword",
    "outputSchema": "a JSON Schema, with any keyword",
}


def available(name: str = DATES[0]) -> bool:
    """Whether the schema of a revision, or those of all, can be read."""
    return (ROOT / name / "schema.json").is_file()


@cache
def published(name: str) -> Schema:
    return json.loads((ROOT / name / "schema.json").read_text("utf-8"))


def definitions(schema: Schema) -> dict[str, Schema]:
    return schema.get("$defs") or schema["definitions"]


@cache
def closed(name: str) -> Schema:
    schema = copy.deepcopy(published(name))
    table = definitions(schema)
    for title in list(table):
        table[title] = _close(table[title], title, table)
    return schema


def _close(node: Any, name: str, table: dict[str, Schema]) -> Any:
    if isinstance(node, list):
        return [_close(item, name, table) for item in node]
    if not isinstance(node, dict):
        return node
    if "allOf" in node and name not in OPEN:
        merged = [_merge(parts) for parts in _alternatives(node, table)]
        node = merged[0] if len(merged) == 1 else {"anyOf": merged}
    shut = {
        key: value
        if key in ("enum", "const", "required", "default")
        else _inside(key, value, name, table)
        for key, value in node.items()
    }
    if "properties" in shut and "additionalProperties" not in shut and name not in OPEN:
        if name == "params":
            # Every request and notification may carry `_meta`: their base definition says so.
            shut["properties"].setdefault("_meta", {"type": "object"})
        if name in ("ClientCapabilities", "ServerCapabilities"):
            # Not a closed set by its own words, so extensions go to every peer (D33).
            shut["properties"].setdefault("extensions", {"type": "object"})
        shut["additionalProperties"] = False
    return shut


def _inside(key: str, value: Any, name: str, table: dict[str, Schema]) -> Any:
    if key == "properties":
        return {member: _close(inner, member, table) for member, inner in value.items()}
    return _close(value, name, table)


def _alternatives(node: Schema, table: dict[str, Schema]) -> Iterator[list[Schema]]:
    """What must hold together, once for each way through the alternatives."""
    if "$ref" in node:
        yield from _alternatives(table[node["$ref"].rpartition("/")[2]], table)
        return
    own = {key: value for key, value in node.items() if key not in ("allOf", "anyOf")}
    ways: list[list[Schema]] = [[own] if own else []]
    for part in node.get("allOf", ()):
        ways = [way + more for way in ways for more in _alternatives(part, table)]
    if "anyOf" in node:
        ways = [
            way + more
            for way in ways
            for option in node["anyOf"]
            for more in _alternatives(option, table)
        ]
    yield from ways


def _merge(parts: list[Schema]) -> Schema:
    merged: Schema = {"type": "object", "properties": {}, "required": []}
    for part in parts:
        for member, inner in part.get("properties", {}).items():
            before = merged["properties"].get(member)
            merged["properties"][member] = inner if before in (None, {}) else before | inner
        merged["required"] += [
            name for name in part.get("required", ()) if name not in merged["required"]
        ]
    return merged


@cache
def validator(name: str, definition: str) -> Any:
    """A validator for one definition of a closed schema."""
    schema = closed(name)
    place = "$defs" if "$defs" in schema else "definitions"
    root = {
        "$schema": schema.get("$schema", "https://json-schema.org/draft/2020-12/schema"),
        "$ref": f"#/{place}/{definition}",
        place: schema[place],
    }
    return jsonschema_rs.validator_for(root)


def problems(name: str, definition: str, value: Any) -> list[str]:
    """What the closed schema has against a value."""
    errors = validator(name, definition).iter_errors(value)
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in errors]
