"""Values as models send them: what is put right, and what is left alone."""

from typing import Any

import pytest
from msgspec import UNSET

from colonnade.signatures.coerce import MAX_ALTERNATIVES, coerce, parse

INTEGER: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOLEAN: dict[str, Any] = {"type": "boolean"}
STRING: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
LIST: dict[str, Any] = {"type": "array", "items": INTEGER}


def either(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


def formatted(name: str) -> dict[str, Any]:
    return {"type": "string", "format": name}


@pytest.mark.parametrize(
    ("schema", "value", "meant"),
    [
        (INTEGER, "5", 5), (INTEGER, " -5 ", -5), (INTEGER, "+5", 5), (INTEGER, 5.0, 5),
        (INTEGER, "5.0", 5), (INTEGER, "1e3", 1000), (INTEGER, "9" * 300, int("9" * 300)),
        (NUMBER, "5", 5), (NUMBER, ".5", 0.5), (NUMBER, "1.5e3", 1500.0),
        (BOOLEAN, "true", True), (BOOLEAN, "FALSE", False),
        (either(INTEGER, NULL), "5", 5), (either(BOOLEAN, INTEGER), "true", True),
        (LIST, "[1, 2]", [1, 2]), (LIST, '["1", 2.0]', [1, 2]), (LIST, ["1"], [1]),
        (LIST, '"[1]"', '"[1]"'), ({"type": "array"}, "[[1]]", [[1]]),
        ({"type": "array", "prefixItems": [INTEGER, STRING]}, ["1", "2", "3"], [1, "2", "3"]),
        ({"type": "object"}, '{"a":"1"}', {"a": "1"}),
        ({"type": "object", "properties": {"a": INTEGER}}, '{"a":"1","b":"2"}', {"a": 1, "b": "2"}),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": "1"}, {"a": 1}),
        ({"type": "object", "additionalProperties": False}, {"a": "1"}, {"a": "1"}),
        (either(LIST, NULL), "[1]", [1]), ({"oneOf": [LIST, NULL]}, '["1"]', [1]),
        ({"$ref": "#/$defs/list", "$defs": {"list": LIST}}, "[1]", [1]),
        ({"items": {"$ref": "#/$defs/n"}, "$defs": {"n": either({"$ref": "#/$defs/l"}, NULL), "l": LIST}}, [["1"]], [[1]]),
        ({"enum": [1, 2]}, "1", 1), (either(INTEGER, LIST), "[1]", [1]), (either(INTEGER, LIST), "1", 1),
    ],
)  # fmt: skip
def test_what_can_only_be_meant_one_way_is_put_right(schema: Any, value: Any, meant: Any) -> None:
    found = coerce(value, schema)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (STRING, "5"), (STRING, "[1]"), (either(STRING, NULL), "5"), (either(STRING, LIST), "[1]"),
        ({}, "5"), (True, "[1]"), (INTEGER, "5.5"), (INTEGER, 5.5), (INTEGER, "x"), (INTEGER, ""),
        (INTEGER, "0x10"), (INTEGER, "٣"), (INTEGER, "1_000"), (INTEGER, "9" * 5000),
        (INTEGER, "1e999"), (NUMBER, "1e999"), (NUMBER, "NaN"), (NUMBER, "Infinity"), (NUMBER, 5.0),
        (BOOLEAN, "yes"), (BOOLEAN, "1"), (BOOLEAN, 1), (NULL, "null"), (INTEGER, None),
        ({"type": "object"}, '{"a":1,"a":2}'), (LIST, "{}"), (LIST, "[1"), (LIST, "x"), (LIST, "[" * 100 + "]" * 100), ({"type": "object"}, "[1]"),
        (LIST, "[\ud800]"), (LIST, "[1e400]"),
        (either(LIST, {"type": "array", "items": STRING}), ["1"]),
        ({"$ref": "#/$defs/none"}, {"a": "1"}),
        (either(*[{"type": "object", "properties": {"a": INTEGER}}] * (MAX_ALTERNATIVES + 5)), {"a": "1"}),
    ],
)  # fmt: skip
def test_what_could_be_meant_otherwise_is_left_alone(schema: Any, value: Any) -> None:
    found = coerce(value, schema)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("date-time", "2026-01-31", "2026-01-31T00:00:00"),
        ("date-time", "2026-01-31T09:30", "2026-01-31T09:30:00"),
        ("date-time", "2026-01-31 09:30Z", "2026-01-31T09:30:00Z"),
        ("date-time", "2026-01-31t09:30:15,5+0200", "2026-01-31T09:30:15.5+0200"),
        ("date-time", "31.1.2026", "31.1.2026"),
        ("date", "2026-01-31T00:00:00Z", "2026-01-31"),
        ("date", "2026-01-31T09:00:00Z", "2026-01-31T09:00:00Z"),
        ("time", "09:30", "09:30:00"),
        ("time", "09:30+02:00", "09:30:00+02:00"),
        ("time", "9:30", "9:30"),
        ("duration", "P2W", "P14D"),
        ("duration", "-1:30:00.5", "-PT1H30M00.5S"),
        ("duration", "an hour", "an hour"),
        ("uuid", "{123e4567-e89b-42d3-a456-426614174000}", "123e4567-e89b-42d3-a456-426614174000"),
        ("other", "x", "x"),
    ],
)
def test_dates_and_times_may_be_short(name: str, text: str, meant: str) -> None:
    assert coerce(text, formatted(name)) == meant
    assert coerce(text, either(formatted(name), NULL)) == meant
    assert coerce(text, formatted(name), scalars=False) == text


def test_without_scalars_only_json_in_strings_is_read() -> None:
    schema = {"type": "object", "properties": {"a": INTEGER, "b": LIST, "c": BOOLEAN}}
    value = '{"a":"1","b":"[1.0]","c":"true"}'
    assert coerce(value, schema, scalars=False) == {"a": "1", "b": [1.0], "c": "true"}
    assert type(coerce(value, schema, scalars=False)["b"][0]) is float


def test_json_that_is_too_deep_or_none_is_not_parsed() -> None:
    assert parse(b"[" * 100 + b"]" * 100) is UNSET
    assert parse(b"[1") is UNSET
    assert parse(b"[[1]]") == [[1]]
