"""JSON Schema documents: dialects, bounds, checking values, and their layout for readers."""

import socket
import subprocess
import sys
import time
from copy import deepcopy
from typing import Any

import pytest

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.schema import validate as s
from colonnade.protocol.schema.bounds import MAX_DEPTH, MAX_NODES, MAX_SUBSCHEMAS
from colonnade.protocol.schema.error_messages import MAX_PROBLEMS
from colonnade.protocol.schema.validate import Validator, admitted_types, inline_references

JSON: dict[str, Any] = {
    "$defs": {
        "json": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
            ]
        }
    },
    "$ref": "#/$defs/json",
}


def nested(levels: int, leaf: Any = 1) -> Any:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


def words(document: Any, value: Any) -> list[str]:
    return [str(problem) for problem in Validator(document).check(value)]


def refusal(document: Any) -> str:
    with pytest.raises(Fault) as caught:
        Validator(document).compile()
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    return caught.value.message


# ---------------------------------------------------------------- dialects


@pytest.mark.spec("R0459", "R0461", "R0462")
def test_a_schema_without_a_dialect_is_2020_12() -> None:
    document = {"type": "array", "prefixItems": [{"type": "string"}], "items": False}
    assert words(document, ["a"]) == []
    assert words(document, ["a", "b"]) == ["[1]: not allowed here"]
    assert s.dialect(document) == s.DRAFT_2020_12


@pytest.mark.spec("R0462")
@pytest.mark.parametrize(
    "name",
    [
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft-07/schema#",
    ],
)
def test_draft_07_is_read_by_its_own_rules(name: str) -> None:
    document = {"$schema": name, "items": [{"type": "string"}], "additionalItems": False}
    assert words(document, ["a"]) == []
    assert words(document, [1]) == ["[0]: expected a string, got an integer"]
    assert words(document, ["a", "b"]) != []
    # In draft-07 prefixItems says nothing.
    assert words({"$schema": name, "prefixItems": [{"type": "string"}]}, [1]) == []


@pytest.mark.spec("R0462")
def test_2020_12_may_be_named() -> None:
    assert words({"$schema": s.DRAFT_2020_12, "prefixItems": [{"type": "string"}]}, [1]) != []


@pytest.mark.spec("R0463")
@pytest.mark.parametrize("name", ["http://json-schema.org/draft-04/schema#", "urn:mine", 5, ""])
def test_an_unknown_dialect_is_refused_and_the_known_ones_are_named(name: Any) -> None:
    message = refusal({"$schema": name})
    assert "dialect" in message
    assert "not supported" in message
    assert s.DRAFT_2020_12 in message
    assert s.DRAFT_07 in message


@pytest.mark.spec("R0464")
def test_the_dialects_are_documented() -> None:
    assert s.__doc__ is not None
    assert "2020-12" in s.__doc__
    assert "draft-07" in s.__doc__


def test_one_document_has_one_dialect() -> None:
    inner = {"$id": "urn:x", "$schema": "http://json-schema.org/draft-07/schema#"}
    assert "another dialect" in refusal({"$defs": {"x": inner}})
    assert words({"$defs": {"x": {"$schema": s.DRAFT_2020_12}}}, 1) == []


@pytest.mark.spec("R0465", "R0658")
@pytest.mark.parametrize(
    "document",
    [
        None, 5, "x", [], {"type": "strin"}, {"properties": {"a": 5}}, {"pattern": "("},
        {"anyOf": [5]}, {"multipleOf": 0}, {"$ref": 5}, {"minLength": 10**5000},
        {"pattern": "(?=" }, {"required": "a"},
    ],
)  # fmt: skip
def test_what_is_no_valid_schema_is_refused(document: Any) -> None:
    assert refusal(document).startswith("schema: ")


def test_a_validator_compiles_once_and_checks_many_values() -> None:
    validator = Validator({"type": "integer"})
    validator.compile()
    assert [bool(validator.check(value)) for value in (1, "a", 2.0, None)] == [0, 1, 0, 1]


def test_our_own_bad_schema_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="outside the schema"):
        Validator({"$ref": "https://example.com/x"}, ours=True)
    with pytest.raises(LocalProtocolError, match="not a valid JSON Schema"):
        Validator({"type": "strin"}, ours=True).compile()


# ---------------------------------------------------------------- references


@pytest.mark.spec("R0756", "R0757", "R0758")
@pytest.mark.parametrize(
    "reference",
    [
        "https://example.com/schema.json", "http://127.0.0.1:1/x#/a", "file:///etc/passwd",
        "other.json", "//host/x", "ftp://x/y", "https://json-schema.org/draft/2020-12/schema",
    ],
)  # fmt: skip
def test_a_reference_to_elsewhere_is_never_fetched_and_the_schema_is_refused(
    reference: str,
) -> None:
    for document in (
        {"$ref": reference},
        {"properties": {"a": {"anyOf": [{"$ref": reference}, True]}}},
        {"$defs": {"unused": {"$dynamicRef": reference}}},
    ):
        message = refusal(document)
        assert reference in message
        assert "never fetched" in message


def test_nobody_is_connected_to_for_a_schema() -> None:
    """1G-74, 1G-75: a listener that a schema names hears nothing, whoever would have called."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        there = f"http://127.0.0.1:{listener.getsockname()[1]}/x.json"
        for document in (
            {"$ref": there},
            {"type": "object", "properties": {"a": {"$ref": f"{there}#/a"}}},
            {"$id": there, "$ref": "y.json"},
            {"$schema": there},
        ):
            refusal(document)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_the_validating_library_is_given_a_retriever_that_refuses() -> None:
    with pytest.raises(ValueError, match="never fetched"):
        s._never_fetch("https://example.com/")


@pytest.mark.parametrize(
    ("reference", "definitions"),
    [
        ("#/$defs/a", {"$defs": {"a": {"type": "string"}}}),
        ("#/definitions/a", {"definitions": {"a": {"type": "string"}}}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": {"type": "string"}}}),
        ("#/$defs/a%20b", {"$defs": {"a b": {"type": "string"}}}),
        ("#/$defs/a/anyOf/0", {"$defs": {"a": {"anyOf": [{"type": "string"}]}}}),
        ("#/x-mine/a", {"x-mine": {"a": {"type": "string"}}}),
        ("#name", {"$defs": {"a": {"$anchor": "name", "type": "string"}}}),
        ("#name", {"$defs": {"a": {"$dynamicAnchor": "name", "type": "string"}}}),
        ("b.json", {"$id": "https://e.com/a.json", "$defs": {"b": {"$id": "b.json", "type": "string"}}}),
        ("https://e.com/b#/$defs/c", {"$defs": {"b": {"$id": "https://e.com/b", "$defs": {"c": {"type": "string"}}}}}),
        ("https://e.com/a#/$defs/c", {"$id": "https://e.com/a", "$defs": {"c": {"type": "string"}}}),
        ("#/$defs/t", {"$defs": {"t": True}}),
    ],
)  # fmt: skip
def test_references_inside_the_document_are_followed(
    reference: str, definitions: dict[str, Any]
) -> None:
    document = {**definitions, "properties": {"x": {"$ref": reference}}}
    assert words(document, {"x": "text"}) == []
    if reference != "#/$defs/t":
        assert words(document, {"x": 5}) == ["x: expected a string, got an integer"]


def test_a_dynamic_reference_finds_its_anchor() -> None:
    tree = {
        "$id": "https://e.com/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    assert words(tree, {"kids": [{"kids": []}]}) == []
    assert words(tree, {"kids": [{"kids": [5]}]}) != []


def test_an_anchor_of_draft_07_is_an_id_with_a_hash() -> None:
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"$id": "#name", "type": "string"}},
        "properties": {"x": {"$ref": "#name"}},
        "dependencies": {"x": ["y"], "y": {"required": ["z"]}},
    }
    assert words(document, {"x": 5, "y": 1, "z": 1}) == ["x: expected a string, got an integer"]
    assert words(document, {"x": "a"}) == ["missing required 'y'"]


@pytest.mark.parametrize(
    "reference", ["#/$defs/none", "#none", "#/$defs/a/5", "#/$defs/a/enum/7", "#/$defs/a/enum/x"]
)
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    document = {"$defs": {"a": {"enum": [1]}}, "$ref": reference}
    assert "which is not defined" in refusal(document)


@pytest.mark.parametrize("keyword", ["$id", "$ref"])
def test_an_address_that_is_none_is_refused(keyword: str) -> None:
    assert "is not a URI" in refusal(
        {"$id": "https://e.com/", "$defs": {"a": {keyword: "http://[x/y"}}}
    )


def test_a_member_that_is_called_like_a_keyword_is_just_a_member() -> None:
    document = {
        "properties": {
            "$ref": {"type": "string"},
            "enum": {"type": "integer"},
            "items": {"type": "string"},
        },
        "enum": [{"$ref": "https://example.com/", "enum": 5}],
    }
    assert words(document, {"$ref": "https://example.com/", "enum": 5}) == []


# ---------------------------------------------------------------- bounds


@pytest.mark.spec("R0759")
def test_a_definition_that_refers_to_itself_without_end_is_refused() -> None:
    for document in (
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    ):
        assert "without a member or item between" in refusal(document)


@pytest.mark.spec("R0759")
def test_a_schema_is_bounded_in_depth_subschemas_and_size() -> None:
    assert "deeper than" in refusal(nested(MAX_DEPTH + 1))
    many = {"properties": {f"p{number}": {} for number in range(MAX_SUBSCHEMAS)}}
    assert "subschemas" in refusal(many)
    assert "too large" in refusal({"enum": list(range(MAX_NODES))})
    assert "too large" in refusal({"description": "x" * 2_000_000})
    deep = {
        "$defs": {f"d{n}": {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(500)}
    }
    deep["$defs"]["d500"] = {}
    assert words({**deep, "$ref": "#/$defs/d0"}, nested(3)) == []


@pytest.mark.spec("R0759")
def test_alternatives_that_are_too_intertwined_are_refused() -> None:
    members = {"properties": {f"p{number}": {} for number in range(300)}}
    document: dict[str, Any] = {"anyOf": [members]}
    for number in range(25):
        document = {"anyOf": [document, {"properties": {f"q{number}": {}}}]}
    assert "intertwined" in refusal({"allOf": [deepcopy(document) for _ in range(10)]})


def doubling(steps: int) -> dict[str, Any]:
    definitions = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(steps)
    }
    return {"$defs": {**definitions, f"d{steps}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.spec("R0759")
@pytest.mark.parametrize("steps", [4, 16, 40, 500])
def test_alternatives_of_alternatives_do_not_make_checking_endless(steps: int) -> None:
    started = time.process_time()
    assert words(doubling(steps), 5) != []
    assert time.process_time() - started < 30


@pytest.mark.spec("R0759")
@pytest.mark.parametrize("levels", [4, 14, 30, 60])
def test_a_union_that_leads_back_to_itself_does_not_make_checking_endless(levels: int) -> None:
    branch = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}}
    document = {"$defs": {"n": {"anyOf": [branch, dict(branch)]}}, "$ref": "#/$defs/n"}
    started = time.process_time()
    assert words(document, nested(levels)) != []
    assert time.process_time() - started < 30


def test_recursive_types_are_checked_at_any_depth() -> None:
    assert words(JSON, nested(MAX_DEPTH - 1, "leaf")) == []
    optional = {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}
    tree = {
        "$defs": {"t": {"type": "object", "properties": {"a": optional, "b": optional}}},
        "$ref": "#/$defs/t",
    }
    assert words(tree, nested(40, None)) == []
    path = ".".join("a" * 40)
    assert words(tree, nested(40, 5)) == [f"{path}: expected an object or null, got an integer"]
    assert (
        words({"items": {"prefixItems": [JSON["$defs"]["json"]]}, "$defs": JSON["$defs"]}, [[1]])
        == []
    )


def test_a_value_is_bounded_in_depth_and_work() -> None:
    assert words({}, nested(MAX_DEPTH + 1)) == ["nested deeper than 64 levels; flatten it"]
    costly = {"items": {"enum": [{"a": number} for number in range(5_000)]}}
    assert words(costly, [{"a": -1}] * 20_000) == ["too large or too deeply nested to be validated"]


NAMES = [f"n{number}" for number in range(15_000)]
TOO_LARGE = ["too large or too deeply nested to be validated"]


@pytest.mark.spec("R0759")
@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"dependentRequired": {name: [] for name in NAMES}}, [{}] * 10_000),
        ({"dependentRequired": {"n0": NAMES}}, [{}] * 10_000),
        ({"dependentSchemas": dict.fromkeys(NAMES, True)}, [{}] * 10_000),
        ({"patternProperties": dict.fromkeys(NAMES, True)}, [dict.fromkeys(NAMES, 0)]),
        ({"allOf": [True] * 15_000}, [0] * 10_000),
        ({"anyOf": [False] * 15_000}, [0] * 1_000),
        ({"multipleOf": 1e-300}, [1e308] * 100_000),
        ({"multipleOf": 3}, [10**4_000] * 200),
    ],
    ids=lambda one: "value" if isinstance(one, list) else next(iter(one)),
)
def test_keywords_that_cost_more_than_their_place_are_counted(items: Any, value: Any) -> None:
    started = time.process_time()
    assert words({"items": items}, value) == TOO_LARGE
    assert time.process_time() - started < 30


@pytest.mark.spec("R0759")
def test_names_of_draft_07_dependencies_are_counted_too() -> None:
    names = {"dependencies": {name: [] for name in NAMES}}
    assert words({"$schema": s.DRAFT_07, "items": names}, [{}] * 10_000) == TOO_LARGE


@pytest.mark.spec("R0759")
def test_a_thousand_missing_members_are_not_complained_about_one_by_one() -> None:
    assert words({"items": {"required": NAMES}}, [{}] * 100) == [
        "does not fit the schema, and is too large to locate the problem"
    ]
    assert words({"required": ["a", "b"]}, {}) == [
        "missing required 'a'",
        "missing required 'b'",
    ]


def test_ordinary_numbers_and_booleans_cost_little() -> None:
    assert words({"items": {"multipleOf": 0.5}}, [1.5] * 20_000) == []
    assert words({"items": {"multipleOf": 5.0}}, [10] * 500_000) == []
    assert words({"anyOf": [True, {"type": "string"}], "dependentRequired": {"a": ["b"]}}, {}) == []
    assert words({"additionalProperties": True}, dict.fromkeys(NAMES, 2**80)) == []


def test_where_a_large_value_fails_is_not_searched_for() -> None:
    started = time.process_time()
    assert words({"items": {"type": "integer"}}, ["x"] * 100_000) == [
        "does not fit the schema, and is too large to locate the problem"
    ]
    assert words({"items": {"type": "integer"}}, [1] * 100_000) == []
    assert time.process_time() - started < 30


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"(a|aa)+$", r"^(\w+\s?)*$"])
def test_patterns_match_in_linear_time(pattern: str) -> None:
    started = time.process_time()
    assert words({"pattern": pattern}, "a" * 200_000 + "!") != []
    assert time.process_time() - started < 30


def test_a_pattern_with_look_ahead_works_on_text_of_bounded_length() -> None:
    decimals = {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}
    assert words(decimals, "1.50") == []
    assert words(decimals, "-") == [
        r"expected a string that matches ^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$, got another string"
    ]
    evil = {"pattern": "(?=.*a)(?=.*b)(.*)*$"}
    started = time.process_time()
    assert words(evil, "a" * 100_000) == ["too large or too deeply nested to be validated"]
    assert words({"pattern": r"^(a*)*(?=b)c\1$"}, "a" * 500) != []
    assert time.process_time() - started < 30


@pytest.mark.parametrize("value", ["\ud800", b"x", {1: 2}, {"a": {1}}])
def test_what_is_not_json_does_not_fit(value: Any) -> None:
    assert words({"type": "null"}, value) == ["contains a value that JSON cannot hold"]


def test_the_library_is_loaded_when_the_first_value_is_checked() -> None:
    code = (
        "import sys; from colonnade.protocol.schema.validate import Validator; v = Validator({'type': 'null'});"
        "import colonnade.signatures.signature;"
        "names = {'jsonschema_rs', 'pydantic', 'annotated_types', 'attrs'};"
        "assert not names & sys.modules.keys(), names & sys.modules.keys();"
        "assert v.check(None) == []; assert 'jsonschema_rs' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("document", "value", "expected"),
    [
        ({"type": "integer"}, "x", "expected an integer, got a string"),
        ({"type": "integer"}, True, "expected an integer, got a boolean"),
        ({"type": "boolean"}, 1, "expected true or false, got an integer"),
        ({"type": ["string", "null"]}, 1.5, "expected a string or null, got a number"),
        ({"type": "object"}, [], "expected an object, got an array"),
        ({"type": "array"}, {}, "expected an array, got an object"),
        ({"type": "string"}, None, "expected a string, got null"),
        ({"required": ["a"]}, {}, "missing required 'a'"),
        ({"properties": {}, "additionalProperties": False}, {"a": 1, "b": 2}, "unknown 'a', 'b'"),
        ({"unevaluatedProperties": False}, {"a": 1}, "unknown 'a'"),
        ({"properties": {}, "additionalProperties": False}, {"n" * 200: 1}, f"unknown '{'n' * 79}…'"),
        ({"enum": ["a", 1, None, True]}, 5, "expected one of 'a', 1, null, true, got 5"),
        ({"enum": list(range(30))}, -1, f"expected one of {', '.join(map(str, range(20)))}, …, got -1"),
        ({"const": "a"}, 5, "expected 'a', got 5"),
        ({"const": 5}, True, "expected 5, got true"),
        ({"const": 5}, None, "expected 5, got null"),
        ({"const": 5}, [], "expected 5, got an array"),
        ({"const": 5}, "five", "expected 5, got another string"),
        ({"enum": ["celsius", "kelvin", 3]}, "celcius", "expected one of 'celsius', 'kelvin', 3, got another string; did you mean 'celsius'?"),
        ({"minimum": 1}, 0, "expected at least 1, got 0"),
        ({"maximum": 1}, 2, "expected at most 1, got 2"),
        ({"maximum": 1}, 10**30, "expected at most 1, got a number of many digits"),
        ({"minimum": 1}, -1e300, "expected at least 1, got a number of many digits"),
        ({"minimum": 1}, 0.25, "expected at least 1, got 0.25"),
        ({"exclusiveMinimum": 1}, 1, "expected more than 1, got 1"),
        ({"exclusiveMaximum": 1}, 1, "expected less than 1, got 1"),
        ({"multipleOf": 3}, 4, "expected a multiple of 3, got 4"),
        ({"minLength": 1}, "", "expected at least 1 character, got 0"),
        ({"maxLength": 2}, "abc", "expected at most 2 characters, got 3"),
        ({"minItems": 2}, [], "expected at least 2 items, got 0"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 item, got 2"),
        ({"minProperties": 1}, {}, "expected at least 1 member, got 0"),
        ({"maxProperties": 0}, {"a": 1}, "expected at most 0 members, got 1"),
        ({"uniqueItems": True}, [1, 1], "expected unique items, got duplicates"),
        ({"pattern": "^a"}, "b", "expected a string that matches ^a, got another string"),
        ({"not": {}}, 1, "a value of this kind is not allowed here"),
        (False, 1, "not allowed here"),
        ({"contains": {"type": "string"}}, [1], "lacks an item that the schema requires"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "a member name is invalid: expected at most 1 character, got 2"),
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, 2], "does not satisfy 'unevaluatedItems' of the schema"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", "expected an integer or null, got a string"),
        ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]}, 1, "expected at least 5, got 1"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 5, "fits more than one alternative, which exclude each other"),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1, "x"]}, "a[1]: expected an integer, got a string"),
        ({"items": {"properties": {"b": {"type": "integer"}}}}, [{"b": "x"}], "[0].b: expected an integer, got a string"),
    ],
)  # fmt: skip
def test_a_problem_says_what_is_expected(document: Any, value: Any, expected: str) -> None:
    assert words(document, value) == [expected]


def test_of_a_union_the_member_that_came_closest_speaks() -> None:
    document = {
        "anyOf": [
            {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind", "lives"]},
            {"type": "object", "properties": {"kind": {"const": "dog"}, "age": {"type": "integer"}}, "required": ["kind", "age"]},
        ]
    }  # fmt: skip
    assert words(document, {"kind": "cat", "lives": "x"}) == [
        "lives: expected an integer, got a string"
    ]


def test_the_value_is_never_repeated_and_the_number_of_problems_is_bounded() -> None:
    document = {"items": {"type": "integer"}}
    found = words(document, ["secret"] * 50)
    assert len(found) == MAX_PROBLEMS
    assert not any("secret" in one for one in found)


# ---------------------------------------------------------------- what a schema admits


@pytest.mark.parametrize(
    ("document", "types"),
    [
        (True, s._ALL_TYPES),
        (False, set()),
        ({}, s._ALL_TYPES),
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1, 1.5, None, True, {}, []]}, s._ALL_TYPES),
        ({"enum": ["a"], "type": ["string", "integer"]}, {"string"}),
        ({"const": 5}, {"integer"}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"string", "null"}),
        ({"oneOf": [{"type": "string"}, False]}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "object"]}]}, {"null"}),
        ({"$ref": "#/$defs/a"}, {"string"}),
        ({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}, {"string"}),
        ({"$ref": "#/$defs/self"}, s._ALL_TYPES),
        ({"$ref": "#anchor"}, s._ALL_TYPES),
    ],
)
def test_the_types_that_a_schema_admits(document: Any, types: set[str]) -> None:
    definitions = {"a": {"type": "string"}, "self": {"anyOf": [{"$ref": "#/$defs/self"}]}}
    assert admitted_types(document, {"$defs": definitions}) == types


def test_references_in_no_document_admit_anything() -> None:
    assert admitted_types({"$ref": "#/$defs/a"}, True) == s._ALL_TYPES


# ---------------------------------------------------------------- layout


def test_a_reference_at_the_root_is_replaced_by_what_it_names() -> None:
    document = {
        "$defs": {"P": {"type": "object", "properties": {"e": {"$ref": "#/$defs/E"}}}, "E": {"enum": ["a"]}},
        "$ref": "#/$defs/P",
        "description": "Here.",
    }  # fmt: skip
    assert inline_references(document) == {
        "type": "object",
        "properties": {"e": {"enum": ["a"]}},
        "description": "Here.",
    }


def test_a_recursive_definition_keeps_its_name_and_the_root_its_type() -> None:
    tree = {"type": "object", "properties": {"kids": {"items": {"$ref": "#/$defs/T~1x"}}}}
    holder = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/T~1x"}}}
    document = {"$defs": {"T/x": tree, "H": holder}, "$ref": "#/$defs/H"}
    assert inline_references(document) == {**holder, "$defs": {"T/x": tree}}
    assert inline_references({"$defs": {"T/x": tree}, "$ref": "#/$defs/T~1x"}) == {
        **tree,
        "$defs": {"T/x": tree},
    }


def test_two_definitions_that_need_each_other_are_kept_both() -> None:
    a = {"properties": {"b": {"$ref": "#/$defs/B"}}}
    b = {"properties": {"a": {"$ref": "#/$defs/A"}}}
    document = {"$defs": {"A": a, "B": b}, "items": {"$ref": "#/$defs/A"}}
    assert inline_references(document) == {
        "items": {"$ref": "#/$defs/A"},
        "$defs": {"A": a, "B": b},
    }


def test_what_stands_beside_a_reference_is_not_lost() -> None:
    definitions = {"A": {"type": "integer", "minimum": 1}, "yes": True, "no": False}
    document = {
        "$defs": definitions,
        "properties": {
            "note": {"$ref": "#/$defs/A", "title": "T"},
            "bound": {"$ref": "#/$defs/A", "minimum": 5},
            "yes": {"$ref": "#/$defs/yes"},
            "no": {"$ref": "#/$defs/no"},
        },
    }
    assert inline_references(document)["properties"] == {
        "note": {"type": "integer", "minimum": 1, "title": "T"},
        "bound": {"allOf": [{"type": "integer", "minimum": 1}], "minimum": 5},
        "yes": {},
        "no": {"not": {}},
    }


def test_copies_that_would_outgrow_the_references_are_not_made() -> None:
    document = doubling(40)
    found = inline_references(document)
    assert found["anyOf"] == document["$defs"]["d0"]["anyOf"]
    assert found["$defs"] == document["$defs"]


def test_a_union_of_objects_says_that_it_is_an_object() -> None:
    one, two = {"type": "object", "title": "a"}, {"type": "object", "title": "b"}
    assert inline_references({"anyOf": [one, two]}) == {"type": "object", "anyOf": [one, two]}
    assert inline_references({"anyOf": [one, {"type": "null"}]}) == {
        "anyOf": [one, {"type": "null"}]
    }


def test_a_circle_of_references_at_the_root_ends() -> None:
    document = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a",
    }
    assert inline_references(document)["$ref"] in ("#/$defs/a", "#/$defs/b")
