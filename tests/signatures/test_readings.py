"""The table of readings: what a server may read a value as."""

from typing import Any

import pytest
from msgspec import UNSET

from colonnade.signatures.readings import (
    MAX_STRUCTURE,
    UNREADABLE,
    boolean_of,
    forms_of,
    json_in,
    may_be_json,
    numbers_of,
    structure_in,
    texts_of,
)

ID = "8d8ac610-566d-4ef0-9c22-186b2a5ed793"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        (" \ufeff[1]\u2003", [1]),
        ('"a"', "a"),
        ("[NaN", UNSET),
        ('["\\ud800"]', ["\ud800"]),
        ('{"a": 1, "b": NaN, "a": 2}', UNREADABLE),
        ('{"a": 1, "a": 2}', UNREADABLE),
        ("[" * 100 + "]" * 100, UNREADABLE),
        ("[" + " " * MAX_STRUCTURE + "]", UNREADABLE),
        ("5", UNSET),
        ("true", UNSET),
        (" x", UNSET),
        ("", UNSET),
        ("[a link](x)", UNSET),
    ],
)
def test_json_in_a_string_is_read_unless_servers_may_read_it_in_two_ways(
    text: str, expected: Any
) -> None:
    assert structure_in(text) == expected
    assert may_be_json(text) or expected is UNSET


def test_a_number_that_is_out_of_range_is_read_in_no_one_way() -> None:
    assert json_in("[1e999]") is UNREADABLE
    assert json_in("[1") is UNSET


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, [5]),
        (2**53 + 1, [2**53 + 1, float(2**53)]),
        (10**400, [10**400, float("inf")]),
        (-(10**400), [-(10**400), float("-inf")]),
        (1.5, [1.5]),
        (True, [1]),
        (None, []),
        ("x", []),
        ("yes", [1]),
        (" 1_0 ", [10, 10, 10]),
        ("1_.5", [1.5, 1.5]),
        ("0_-1", [-1, -1, -1]),
        ("inf", [float("inf")]),
        ("0x10", [16]),
        ("0xg", []),
        ("1/2", [0.5]),
        ("1/0", []),
        ("00-5", [-5, -5]),
        ("+-5", [-5, -5]),
        ("5 apples", []),
        ("1" * 500 + "x", []),
    ],
)
def test_a_value_is_every_number_that_a_server_may_make_of_it(
    value: Any, expected: list[float]
) -> None:
    assert numbers_of(value) == tuple(expected)


def test_a_number_of_too_many_digits_is_not_parsed() -> None:
    assert numbers_of("1" * 500) is UNREADABLE
    assert boolean_of("0" * 500) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        ("off", False),
        (" On ", True),
        (1, True),
        ("0.0", False),
        (2, None),
        ("x", None),
    ],
)
def test_a_value_is_the_boolean_that_a_server_may_make_of_it(
    value: Any, expected: bool | None
) -> None:
    assert boolean_of(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (22, ["22", "1970-01-01", "0.0.0.22", "::16"]),
        (22.0, ["22.0", "22", "1970-01-01T00:00:22Z"]),
        (-1, ["-1"]),
        (10**30, [str(10**30), "0:c:9f2c:9cd0:4674:edea:4000:0"]),
        (10**40, [str(10**40)]),
        (True, ["true"]),
        ("1798070400", ["2026-12-24"]),
        ("1" * 60, []),
        (ID.replace("-", ""), [ID]),
        ("{x}", ["x"]),
        ("0:0:0:0:0:0:0:1", ["::1"]),
        (":x", []),
        ("1:2", []),
        ("2026-12-24", ["2026-12-24T00:00:00"]),
        ("10:00", ["10:00:00"]),
        ("P1W", ["P7D"]),
        ("1:00:00", ["PT1H00M00S"]),
        (None, []),
        ("path", []),
    ],
)
def test_a_value_is_every_text_that_a_server_may_make_of_it(
    value: Any, expected: list[str]
) -> None:
    found = list(texts_of(value))
    assert set(expected) <= set(found)
    assert expected or not found


def test_a_long_text_has_no_other_form() -> None:
    assert list(forms_of(ID * 9)) == []
    assert list(texts_of("1" * 1000)) == []
    assert list(texts_of("1700000000", moments=False)) == []
    assert list(texts_of(1700000000, moments=False)) == ["1700000000"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01 12:00:00,50+0200", "2024-01-01T10:00:00.500000Z"),
        ("2024-01-01T10:00:00.000", "2024-01-01T10:00:00"),
        ("2024-01-01t00:00z", "2024-01-01T00:00:00Z"),
        ("2024-01-01T00:00:00.0+05:00", "2024-01-01"),
        ("10:00", "10:00:00"),
        ("10:00:00.0-00:00", "10:00:00Z"),
    ],
)
def test_a_moment_is_each_of_its_spellings(text: str, expected: str) -> None:
    assert expected in forms_of(text)


@pytest.mark.parametrize(
    "text", ["2024-02-30T10:00:00Z", "0001-01-01T01:00:00+23:00", "99:99:99Z", "5 apples"]
)
def test_a_moment_that_no_calendar_has_is_a_text(text: str) -> None:
    assert list(forms_of(text)) == []
