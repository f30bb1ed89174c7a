"""Forms of an elicitation: what is one, and what fits it."""

from typing import Any

import pytest

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.elicitation import (
    MAX_PROBLEMS,
    check_content,
    check_form,
    is_url,
    split_selections,
    with_defaults,
)


def field(**more: Any) -> t.PrimitiveSchema:
    return t.PrimitiveSchema(**more)


def form(field: t.PrimitiveSchema, required: bool = False) -> t.ElicitSchema:
    return t.ElicitSchema(properties={"it": field}, required=["it"] if required else None)


def problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    """What is wrong with a value, in the words that its sender reads."""
    try:
        check_content(form(field), {"it": value})
    except Fault as fault:
        return fault.message.partition("it: ")[2]
    return None


OPTIONS = [t.EnumOption(const="a", title="A"), t.EnumOption(const="b", title="B")]
SINGLE = [
    field(type="string", enum=["a", "b"]),
    field(type="string", enum=["a", "b"], enum_names=["A", "B"]),
    field(type="string", one_of=OPTIONS),
]
MULTI = [
    field(type="array", items=t.EnumItems(type="string", enum=["a", "b"])),
    field(type="array", items=t.EnumItems(any_of=OPTIONS)),
]

GOOD: list[tuple[t.PrimitiveSchema, list[Any]]] = [
    (field(type="boolean"), [True, False]),
    (field(type="integer"), [0, -7, 3.0, 10**400]),
    (field(type="integer", minimum=1, maximum=3), [1, 3, 2.0]),
    (field(type="number"), [0, 1.5, -2, 10**400]),
    (field(type="number", minimum=0.5, maximum=1), [0.5, 1]),
    (field(type="string"), ["", "x", "ä" * 1000]),
    (field(type="string", min_length=2, max_length=3), ["ab", "äöü"]),
    (field(type="string", format="email"), ["a@b", "ada.l@example.com"]),
    (field(type="string", format="uri"), ["https://example.com/a?b", "mailto:a@b", "urn:x:y"]),
    (field(type="string", format="date"), ["2024-02-29", "0001-01-01"]),
    (
        field(type="string", format="date-time"),
        ["2024-02-29T23:59:60Z", "2024-01-01t00:00:00.123+05:30", "2024-01-01T00:00:00z"],
    ),
    *((single, ["a", "b"]) for single in SINGLE),
    *((multi, [[], ["a"], ["b", "a"], ["a", "a"]]) for multi in MULTI),
    (
        field(type="array", items=t.EnumItems(enum=["a"]), min_items=1, max_items=2),
        [["a"], ["a", "a"]],
    ),
]

BAD: list[tuple[t.PrimitiveSchema, list[Any], str]] = [
    (field(type="boolean"), [0, 1, "true", None], "expected true or false"),
    (field(type="integer"), [True, "1", None, [1]], "expected an integer"),
    (field(type="integer"), [1.5, -0.1], "expected an integer"),
    (field(type="integer"), [float("inf"), float("nan")], "expected a finite number"),
    (field(type="number"), [False, "1.5", None, {}], "expected a number"),
    (field(type="number"), [float("-inf"), float("nan")], "expected a finite number"),
    (field(type="number", minimum=0.5), [0.4, -(10**400)], "must be at least 0.5"),
    (field(type="integer", maximum=3), [4, 10**400], "must be at most 3"),
    (field(type="string"), [1, True, None, ["a"]], "expected a string"),
    (field(type="string", min_length=2), ["", "a"], "needs at least 2 characters"),
    (field(type="string", max_length=2), ["abc"], "takes at most 2 characters"),
    (
        field(type="string", format="email"),
        ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@" + "b" * 256],
        "expected the format email",
    ),
    (
        field(type="string", format="uri"),
        ["", "example.com", "/a", "https:", "a b:c", "https://[", "https://a:b/", "x:a\n"],
        "expected the format uri",
    ),
    (
        field(type="string", format="date"),
        [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "20240101",
            "0000-01-01",
            "2024-01-01T",
            "٢٠٢٤-01-01",
        ],
        "expected the format date",
    ),
    (
        field(type="string", format="date-time"),
        [
            "2024-01-01",
            "2024-01-01T00:00:00",
            "2024-02-30T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:00+24:00",
            "2024-01-01 00:00:00Z",
        ],
        "expected the format date-time",
    ),
    *((single, ["c", "A", ""], "expected one of the choices") for single in SINGLE),
    *((single, [1, None], "expected a string") for single in SINGLE),
    *((multi, ["a", None, {"a": 1}], "expected a list of choices") for multi in MULTI),
    *(
        (multi, [["c"], ["a", "A"], [1], [["a"]], [None]], "expected a list of the choices")
        for multi in MULTI
    ),
    (
        field(type="array", items=t.EnumItems(enum=["a"]), min_items=1),
        [[]],
        "needs at least 1 choices",
    ),
    (
        field(type="array", items=t.EnumItems(enum=["a"]), max_items=1),
        [["a", "a"]],
        "takes at most 1 choices",
    ),
]


@pytest.mark.parametrize(("field", "values"), GOOD, ids=lambda value: str(value)[:60])
def test_a_value_that_fits_has_no_problem(field: t.PrimitiveSchema, values: list[Any]) -> None:
    assert [problem(field, value) for value in values] == [None] * len(values)


@pytest.mark.parametrize(("field", "values", "words"), BAD, ids=lambda value: str(value)[:60])
def test_a_value_that_does_not_fit_is_told_why(
    field: t.PrimitiveSchema, values: list[Any], words: str
) -> None:
    assert [problem(field, value) for value in values] == [words] * len(values)


def test_a_required_field_must_be_there_and_an_unknown_one_must_not() -> None:
    asked = form(field(type="string"), required=True)
    check_content(asked, {"it": "x"})
    for content in ({}, {"it": None}):
        with pytest.raises(Fault, match="it: missing"):
            check_content(asked, content)
    with pytest.raises(Fault, match="other: not a field of the form") as caught:
        check_content(asked, {"it": "x", "other": 1})
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    check_content(form(field(type="string")), {})


def test_problems_name_fields_and_never_values_and_are_few() -> None:
    names = [f"field {n} " + "x" * 500 for n in range(100)]
    asked = t.ElicitSchema(properties={name: field(type="integer") for name in names})
    with pytest.raises(Fault) as caught:
        check_content(asked, dict.fromkeys(names, "my secret"))
    message = caught.value.message
    assert "secret" not in message
    assert message.count("expected an integer") == MAX_PROBLEMS
    assert len(message) < MAX_PROBLEMS * 120
    with pytest.raises(Fault) as caught:
        check_content(asked, {"y" * 5000: 1})
    assert len(caught.value.message) < 200


def test_a_form_is_one_that_can_be_filled_in() -> None:
    for good in (*SINGLE, *MULTI, field(type="boolean", default=False)):
        check_form(form(good, required=True))
    check_form(t.ElicitSchema(properties={}))
    bad = [
        (t.ElicitSchema(properties={}, required=["it"]), "it: required, but not a field"),
        (form(field(type="array")), "it: a selection without choices"),
        (form(field(type="array", items=t.EnumItems(enum=[]))), "it: a selection without choices"),
        (form(field(type="integer", default="x")), "the default is invalid, expected an integer"),
        (form(field(type="string", enum=["a"], default="b")), "expected one of the choices"),
    ]
    for wrong, words in bad:
        with pytest.raises(Fault, match="not a form") as caught:
            check_form(wrong)
        assert words in caught.value.message


def test_defaults_stand_where_the_user_left_a_field_alone() -> None:
    asked = t.ElicitSchema(
        properties={
            "on": field(type="boolean", default=False),
            "name": field(type="string", default="ada"),
            "age": field(type="integer"),
        }
    )
    assert with_defaults(asked, {"name": "eve"}) == {"on": False, "name": "eve"}


def test_choices_that_were_typed_are_a_list_again() -> None:
    asked = t.ElicitSchema(
        properties={
            "pick": field(type="array", items=t.EnumItems(enum=["a", "b", "x, y"])),
            "name": field(type="string"),
        }
    )
    typed = [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a , b ,", ["a", "b"]),
        ("", []),
        (" x, y ", ["x, y"]),
    ]
    for words, chosen in typed:
        assert split_selections(asked, {"pick": words}) == {"pick": chosen}
    kept = {"pick": ["a"], "name": "a, b", "other": "a, b"}
    assert split_selections(asked, kept) == kept


def test_a_url_elicitation_goes_to_a_host_on_the_web() -> None:
    for good in ("https://example.com", "http://127.0.0.1:8080/a", "https://ünicode.example/ö"):
        assert is_url(good)
    for bad in (
        "urn:x:y",
        "mailto:a@b",
        "file://host/a",
        "data://x/",
        "vbscript://h/",
        "blob://h/",
    ):
        assert not is_url(bad)
