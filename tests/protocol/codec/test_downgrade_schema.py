"""A tool's schemas for revisions that know less of JSON Schema: the same meaning, nothing changed."""

import copy
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import (
    is_object_schema,
    without_boolean_schemas,
    wrapped_schema,
)
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.revision import ALL, JUNE_2025, OutputRoot, Revision

NOTHING = {"not": {}}


@pytest.mark.parametrize(
    ("schema", "shaped"),
    [
        ({"properties": {"a": True, "b": False}}, {"properties": {"a": {}, "b": NOTHING}}),
        ({"properties": {"a": {"items": True}}}, {"properties": {"a": {"items": {}}}}),
        ({"patternProperties": {"^x": False}}, {"patternProperties": {"^x": NOTHING}}),
        ({"$defs": {"a": True}, "allOf": [False]}, {"$defs": {"a": {}}, "allOf": [NOTHING]}),
        ({"prefixItems": [True], "items": False}, {"prefixItems": [{}], "items": NOTHING}),
        ({"items": [True, {"not": True}]}, {"items": [{}, {"not": {}}]}),
        ({"if": True, "then": False, "else": True}, {"if": {}, "then": NOTHING, "else": {}}),
        ({"contains": True, "propertyNames": True}, {"contains": {}, "propertyNames": {}}),
        ({"dependentSchemas": {"a": True}}, {"dependentSchemas": {"a": {}}}),
        ({"dependencies": {"a": ["b"], "c": True}}, {"dependencies": {"a": ["b"], "c": {}}}),
        ({"properties": {"a": 7, "b": True}}, {"properties": {"a": 7, "b": {}}}),
    ],
)
def test_a_boolean_schema_becomes_an_object_of_the_same_meaning(
    schema: dict[str, Any], shaped: dict[str, Any]
) -> None:  # D17
    before = copy.deepcopy(schema)
    assert without_boolean_schemas(schema) == shaped
    assert schema == before


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": False, "properties": {"a": {"type": "string"}}},
        {"properties": {"a": {"additionalProperties": True, "additionalItems": False}}},
        {"properties": {"a": {"enum": [True, False], "const": True, "default": False}}},
        {"properties": {"a": {"examples": [{"properties": {"x": True}}]}}},
        {"properties": {"a": {"uniqueItems": True, "deprecated": True, "readOnly": False}}},
        {"x-own": {"properties": {"a": True}}},
    ],
)
def test_a_schema_without_boolean_schemas_stays_the_same_object(schema: dict[str, Any]) -> None:
    assert without_boolean_schemas(schema) is schema


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "oneOf": []}, True),
        ({"type": ["object"]}, False),
        ({"type": "array"}, False),
        ({"$ref": "#/$defs/a"}, False),
        ({}, False),
    ],
)
def test_only_a_schema_that_says_so_itself_is_one_of_objects(
    schema: dict[str, Any], answer: bool
) -> None:
    assert is_object_schema(schema) is answer


TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"leaf": {"type": "integer"}, "again": {"$ref": "#"}},
    "anyOf": [
        {"$ref": "#/$defs/leaf"},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "prefixItems": [{"$ref": "#/anyOf/0"}, {"$ref": "#/$defs/again"}]},
    ],
    "default": {"$ref": "#"},
}


def test_a_wrapped_schema_keeps_its_definitions_at_the_root_and_its_references_true() -> None:
    before = copy.deepcopy(TREE)
    shaped = wrapped_schema(TREE)
    assert before == TREE
    assert shaped["$schema"] == TREE["$schema"]
    assert shaped["type"] == "object"
    assert shaped["required"] == ["result"]
    inner = shaped["properties"]["result"]
    assert set(inner) == {"anyOf", "default"}
    assert shaped["$defs"]["again"] == {"$ref": "#/properties/result"}
    assert inner["anyOf"][2]["prefixItems"][0] == {"$ref": "#/properties/result/anyOf/0"}
    assert inner["anyOf"][0] == {"$ref": "#/$defs/leaf"}
    assert inner["default"] == {"$ref": "#"}


def test_a_subschema_with_an_address_of_its_own_keeps_its_references() -> None:
    own = {"$id": "https://example.com/own", "items": {"$ref": "#"}}
    schema = {"anyOf": [own, True, {"$ref": "https://example.com/own"}], "$dynamicRef": "#/anyOf/1"}
    inner = wrapped_schema(schema)["properties"]["result"]
    assert inner["anyOf"] == [own, True, {"$ref": "https://example.com/own"}]
    assert inner["$dynamicRef"] == "#/properties/result/anyOf/1"


def test_a_schema_with_an_address_moves_whole_and_stays_where_its_references_look() -> None:
    schema = TREE | {"$id": "https://example.com/tree"}
    shaped = wrapped_schema(schema)
    assert shaped["$schema"] == TREE["$schema"]
    assert "$id" not in shaped
    inner = shaped["properties"]["result"]
    assert inner == {keyword: value for keyword, value in schema.items() if keyword != "$schema"}


SCHEMAS = st.sampled_from(
    [
        TREE,
        {"type": "integer", "minimum": 0},
        {"type": "array", "items": {"type": "string"}},
        {"definitions": {"a": {"type": "null"}}, "$ref": "#/definitions/a"},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}},
        {"anyOf": [{"type": "object", "additionalProperties": {"$ref": "#"}}, {"type": "null"}]},
        {"enum": [1, "a", None]},
        {
            "$id": "https://example.com/tree",
            "$defs": {"leaf": {"type": "integer"}},
            "anyOf": [
                {"$ref": "#/$defs/leaf"},
                {"type": "array", "items": {"$ref": "#"}},
                {"type": "object", "additionalProperties": {"$ref": "/tree#/anyOf/1"}},
            ],
        },
    ]
)
VALUES = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)


@settings(max_examples=300, derandomize=True)
@given(schema=SCHEMAS, value=VALUES)
def test_a_wrapped_value_fits_its_wrapped_schema_as_the_bare_one_did(
    schema: dict[str, Any], value: Any
) -> None:
    bare = jsonschema_rs.validator_for(schema).is_valid(value)
    wrapped = jsonschema_rs.validator_for(wrapped_schema(schema))
    assert wrapped.is_valid({"result": value}) == bare
    assert not wrapped.is_valid({})


@settings(max_examples=200, derandomize=True)
@given(value=VALUES)
def test_an_object_in_place_of_a_boolean_admits_the_same(value: Any) -> None:
    schema = {
        "properties": {"a": True, "b": False},
        "prefixItems": [True, {"not": True}],
        "items": {"type": "integer"},
    }
    shaped = jsonschema_rs.validator_for(without_boolean_schemas(schema))
    assert shaped.is_valid(value) == jsonschema_rs.validator_for(schema).is_valid(value)


# ---------------------------------------------------------------- a tool and its result


OUTPUTS: dict[str, tuple[dict[str, Any] | None, list[Any]]] = {
    "integer": ({"type": "integer"}, [5]),
    "array": ({"type": "array"}, [[], [1]]),
    "object": ({"type": "object"}, [{}, {"a": 1}]),
    "object by reference": (
        {"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a"},
        [{}, {"result": 1}],
    ),
    "anything": ({}, [None, 1, "a", [], {}]),
    "object or null": ({"anyOf": [{"type": "object"}, {"type": "null"}]}, [None, {"a": 1}]),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_tool_returns_fits_the_schema_that_the_peer_was_shown(
    revision: Revision, name: str
) -> None:  # D17
    schema, values = OUTPUTS[name]
    tool = t.Tool(name="x", input_schema={"type": "object"}, output_schema=schema)
    writer = Encoder(revision)
    shown = writer.downgrade(tool)
    assert isinstance(shown, t.Tool)
    for value in values:
        result = t.CallToolResult(content=[], structured_content=value)
        sent = writer.downgrade(result, None, writer.wraps(tool))
        assert isinstance(sent, t.CallToolResult)
        if revision.output_root is OutputRoot.NONE:
            assert shown.output_schema is None
            continue
        assert shown.output_schema is not None
        assert jsonschema_rs.validator_for(shown.output_schema).is_valid(sent.structured_content)
        if revision.output_root is OutputRoot.OBJECT:
            assert is_object_schema(shown.output_schema)
            assert isinstance(sent.structured_content, dict)
        else:
            assert sent.structured_content is value


def test_a_tool_whose_schemas_fit_stays_the_same_object(revision: Revision) -> None:
    plain = t.Tool(name="x", input_schema={"type": "object", "properties": {"a": {}}})
    assert Encoder(revision).downgrade(plain) is plain
    if revision.output_root is not OutputRoot.NONE:
        both = t.Tool(name="x", input_schema={"type": "object"}, output_schema={"type": "object"})
        assert Encoder(revision).downgrade(both) is both


def test_only_where_objects_are_wanted_does_a_tool_wrap() -> None:
    tool = t.Tool(name="x", input_schema={"type": "object"}, output_schema={"type": "integer"})
    assert [Encoder(revision).wraps(tool) for revision in ALL] == [False, False, True, True, False]
    bare = t.Tool(name="x", input_schema={"type": "object"})
    assert not Encoder(JUNE_2025).wraps(bare)


def test_booleans_in_both_schemas_are_objects_before_the_newest(revision: Revision) -> None:
    schema = {"type": "object", "properties": {"a": True}}
    tool = t.Tool(name="x", input_schema=schema, output_schema=schema)
    shown = Encoder(revision).downgrade(tool)
    assert isinstance(shown, t.Tool)
    expected = schema if revision.boolean_schemas else {"type": "object", "properties": {"a": {}}}
    assert shown.input_schema == expected
    if revision.output_root is not OutputRoot.NONE:
        assert shown.output_schema == expected
    assert schema["properties"] == {"a": True}
