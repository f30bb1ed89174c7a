"""Schemas for model providers: what they accept, what can be strict, and the way back."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.commands.inspect import lint
from colonnade.protocol import types as t
from colonnade.protocol.schema.validate import Validator
from colonnade.providers.schemas import (
    ANTHROPIC,
    MAX_LEVELS,
    OPENAI,
    NoStrictForm,
    provider_schema,
    remove_null_fillers,
    strict_schema,
)
from providers.scripted import check_schema, check_strict

JSON = dict[str, Any]
POINT: JSON = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
}


def taking(required: tuple[str, ...] = (), **properties: Any) -> JSON:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_a_plain_schema_stays_as_it_is_but_for_its_dialect() -> None:
    schema = taking(city={"type": "string"})
    assert (
        provider_schema({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
        == schema
    )
    assert provider_schema({"type": "object"}) == {"type": "object", "properties": {}}


def test_references_are_written_out() -> None:
    schema = taking(at={"$ref": "#/$defs/P", "description": "Where."}) | {"$defs": {"P": POINT}}
    assert provider_schema(schema) == taking(at={**POINT, "description": "Where."})


@pytest.mark.parametrize(
    "defs",
    [
        {"P": {"type": "object", "properties": {"next": {"$ref": "#/$defs/P"}}}},
        {"P": {"$ref": "https://example.com/p"}},
        {},
        {f"P{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/P{n + 1}"}] * 9}
         for n in range(9)} | {"P": {"$ref": "#/$defs/P0"}, "P9": {}},
    ],
    ids=["endless", "elsewhere", "missing", "exploding"],
)  # fmt: skip
def test_references_that_cannot_be_written_out_stay(defs: JSON) -> None:
    schema = taking(at={"$ref": "#/$defs/P"}) | {"$defs": defs}
    assert provider_schema(schema)["properties"]["at"] == {"$ref": "#/$defs/P"}
    assert provider_schema(schema)["$defs"] == defs
    with pytest.raises(NoStrictForm):
        strict_schema(schema, OPENAI)


def test_a_union_at_the_root_becomes_one_object_that_asks_for_what_all_of_it_needs() -> None:
    by_id = taking(("id", "why"), id={"type": "integer"}, why={"type": "string"})
    by_name = taking(("name", "why"), name={"type": "string"}, why={"type": "string"})
    found = provider_schema({"anyOf": [by_id, by_name]})
    check_schema("look", found)
    assert list(found["properties"]) == ["id", "why", "name"]
    assert found["required"] == ["why"]
    either = taking(a={"type": "string"}, b={"type": "string"}) | {
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "additionalProperties": False,
    }
    assert provider_schema(either)["required"] == []


# ---------------------------------------------------------------- strict


def test_what_may_be_left_out_is_required_and_may_be_null_where_that_is_the_rule() -> None:
    schema = taking(("at",), at=POINT, unit={"enum": ["C", "F"], "default": "C"})
    made = strict_schema(schema, OPENAI)
    check_strict(made, True)
    assert made["required"] == ["at", "unit"]
    assert made["properties"]["unit"] == {
        "type": ["string", "null"],
        "enum": ["C", "F", None],
        "description": '(default "C")',
    }
    assert made["properties"]["at"]["properties"]["y"]["type"] == ["integer", "null"]
    other = strict_schema(schema, ANTHROPIC)
    check_strict(other, False)
    assert other["required"] == ["at"]
    assert other["properties"]["unit"]["type"] == "string"


def test_what_strict_mode_does_not_know_is_told_in_words() -> None:
    days = {"type": "integer", "minimum": 1, "description": "How many.", "default": 3}
    made = strict_schema(taking(("days",), days=days), OPENAI)["properties"]["days"]
    assert made == {"type": "integer", "minimum": 1, "description": "How many. (default 3)"}
    made = strict_schema(taking(("days",), days=days), ANTHROPIC)["properties"]["days"]
    assert made == {"type": "integer", "description": "How many. (minimum 1, default 3)"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "additionalProperties": {"type": "string"}}, "any other members"),
        (taking(a={"type": "object"}), "a may have any members"),
        (taking(a={}), "a may be anything"),
        (taking(a=True), "a may be anything"),
        (taking(a={"type": "array"}), "a is a list of anything"),
        (taking(a={"not": {}, "type": "string"}), "a has not"),
        (taking(a={"allOf": [POINT, POINT]}), "a has allOf"),
        (taking(a={"anyOf": [POINT, taking(z={"type": "string"})]}), "one of several objects"),
        (
            taking(a={"anyOf": [{"type": "array", "items": one} for one in (POINT, POINT)]}),
            "objects or lists",
        ),
        (taking(a={"enum": [[1]]}), "lists or objects"),
        (taking(a={"enum": list(range(2000))}), "more than 1000"),
        ({"type": "object", "anyOf": [POINT]}, "anyOf at its root"),
    ],
)
def test_what_cannot_be_strict_says_why(schema: JSON, words: str) -> None:
    with pytest.raises(NoStrictForm, match=words):
        strict_schema(schema, OPENAI)


def test_what_nests_too_deep_cannot_be_strict() -> None:
    schema: JSON = {"type": "string"}
    for _ in range(MAX_LEVELS + 1):
        schema = taking(("a",), a=schema)
    with pytest.raises(NoStrictForm, match="deeper than 10 levels"):
        strict_schema(schema, OPENAI)


# ---------------------------------------------------------------- the way back


def test_a_null_that_stands_for_nothing_goes_and_any_other_stays() -> None:
    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    schema = taking(
        ("must",), must={"type": "string"}, may={"type": "string"}, none=nullable, at=POINT,
        all={"type": "array", "items": POINT},
    )  # fmt: skip
    given = {"must": None, "may": None, "none": None, "at": {"x": 1, "y": None}, "odd": None}
    kept = {"must": None, "none": None, "at": {"x": 1}, "odd": None}
    assert remove_null_fillers(given, schema) == kept
    assert remove_null_fillers({"all": [{"x": 1, "y": None}, 2]}, schema) == {"all": [{"x": 1}, 2]}
    maybe = taking(at={"anyOf": [POINT, {"type": "null"}]})
    assert remove_null_fillers({"at": {"x": 1, "y": None}}, maybe) == {"at": {"x": 1}}
    twice = taking(at={"anyOf": [{"anyOf": [POINT, {"type": "null"}]}, {"type": "null"}]})
    assert remove_null_fillers({"at": {"x": 1, "y": None}}, twice) == {"at": {"x": 1}}


SCALARS = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"enum": ["a", 1]}]
)
NAMED = st.sampled_from(["a", "b", "c"])


def objects(inner: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    return st.builds(
        lambda members, needed: taking(tuple(n for n in needed if n in members), **members),
        st.dictionaries(NAMED, inner, min_size=1, max_size=3),
        st.sets(NAMED),
    )


SCHEMAS = objects(
    st.recursive(
        SCALARS,
        lambda inner: (
            objects(inner)
            | st.builds(lambda one: {"type": "array", "items": one}, inner)
            | st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, inner)
            | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
        ),
        max_leaves=6,
    )
)


def sample(schema: JSON, data: st.DataObject) -> Any:
    """A value as a model writes it that is held to a strict schema."""
    if "anyOf" in schema:
        return sample(data.draw(st.sampled_from(schema["anyOf"])), data)
    if "enum" in schema:
        return data.draw(st.sampled_from(schema["enum"]))
    kind = schema["type"]
    kind = data.draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == "object":
        return {name: sample(one, data) for name, one in schema["properties"].items()}
    if kind == "array":
        return [sample(schema["items"], data) for _ in range(data.draw(st.integers(0, 2)))]
    return {"string": "x", "integer": 1, "boolean": True, "null": None}[kind]


@given(SCHEMAS, st.data())
def test_whatever_a_strict_model_writes_fits_the_tools_own_schema_in_the_end(
    schema: JSON, data: st.DataObject
) -> None:
    try:
        made = strict_schema(schema, OPENAI)
    except NoStrictForm:
        return  # it is told as it is
    check_schema("look", made)
    check_strict(made, True)
    value = sample(made, data)
    assert Validator(made).check(value) == []
    assert Validator(schema).check(remove_null_fillers(value, schema)) == []


KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "enum",
        "const",
        "$ref",
        "$defs",
        "default",
        "description",
        "format",
        "minimum",
        "prefixItems",
        "a",
        "b",
    ]
)
LEAVES = st.sampled_from(
    [
        "object",
        "array",
        "string",
        "null",
        "#/$defs/a",
        "#/properties/a",
        "#",
        "",
        0,
        1.5,
        None,
        True,
    ]
)
# Schemas of a server that nobody has checked: keywords where they belong, and where they do not.
WILD = st.dictionaries(
    KEYWORDS,
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=6,
)


@given(WILD, st.dictionaries(st.sampled_from(["a", "b"]), WILD | st.none()))
def test_whatever_a_server_calls_a_schema_nothing_breaks(schema: JSON, value: JSON) -> None:
    check_schema("look", {**provider_schema(schema), "properties": {}})
    assert remove_null_fillers(value, schema).keys() <= value.keys()
    tool = t.Tool(name="look", input_schema=schema)
    assert lint([tool], [], [], [])
    for mode in (OPENAI, ANTHROPIC):
        with contextlib.suppress(NoStrictForm):
            check_strict(strict_schema(schema, mode), mode.fills)


def test_a_schema_of_any_depth_has_an_end() -> None:
    schema: JSON = {"$ref": "#/$defs/a"}
    for _ in range(500):
        schema = {"type": "array", "items": schema}
    deep = taking(at=schema) | {"$defs": {"a": {"type": "string"}}}
    assert provider_schema(deep)["properties"]["at"] is schema
