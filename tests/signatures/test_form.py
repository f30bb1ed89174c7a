"""Forms for people: from types to flat schemas, and from answers to values."""

import enum
import json
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from msgspec import Meta, Struct
from pydantic import BaseModel, Field

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import elicitation as forms
from colonnade.protocol.types import ElicitSchema
from colonnade.signatures.form import ElicitationForm


class Color(enum.Enum):
    RED = "#f00"
    DARK_BLUE = "#00f"


class Size(enum.Enum):
    SMALL = "small"
    VERY_LARGE = "very-large"


class Number(enum.Enum):
    ONE = 1


@dataclass
class Seat:
    row: Annotated[int, Meta(gt=0, lt=40, description="Counted from the front.")]
    letter: Literal["A", "B"]
    color: Color
    weight: float | None
    size: Size = Size.SMALL
    note: Annotated[str, Meta(max_length=20, pattern="^[a-z ]*$")] = ""
    when: Optional[date] = None  # noqa: UP045
    ticket: UUID | None = None
    colors: list[Color] = field(default_factory=list[Color])
    sizes: Annotated[list[Size], Meta(min_length=1)] = field(default_factory=list[Size])
    window: bool = True


def fault(form: ElicitationForm, content: Any) -> str:
    with pytest.raises(Fault) as caught:
        form.decode(json.dumps(content).encode())
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    return caught.value.message


def as_type(form: ElicitationForm) -> ElicitSchema:
    """The form as it travels: it is one, by the rules of both sides."""
    instance = msgspec.convert(form.schema, ElicitSchema)
    forms.check_form(instance)
    return instance


def test_a_dataclass_becomes_a_flat_form_with_titles_for_what_needs_them() -> None:
    form = ElicitationForm(Seat)
    assert form.schema == {
        "type": "object",
        "properties": {
            "row": {"type": "integer", "description": "Counted from the front.", "minimum": 1, "maximum": 39},
            "letter": {"type": "string", "enum": ["A", "B"]},
            "color": {
                "type": "string",
                "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Dark blue"}],
            },
            "weight": {"type": "number"},
            "size": {"type": "string", "default": "small", "enum": ["small", "very-large"]},
            "note": {"type": "string", "default": "", "maxLength": 20},
            "when": {"type": "string", "format": "date"},
            "ticket": {"type": "string"},
            "colors": {
                "type": "array",
                "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Dark blue"}]},
            },
            "sizes": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["small", "very-large"]}},
            "window": {"type": "boolean", "default": True},
        },
        "required": ["row", "letter", "color"],
    }  # fmt: skip
    as_type(form)


@pytest.mark.spec("R0366", "R0641")
def test_an_answer_becomes_a_value_of_the_type() -> None:
    content = {"row": 1, "letter": "A", "color": "#f00", "colors": ["#00f"], "when": "2026-01-31"}
    forms.check_content(as_type(ElicitationForm(Seat)), content)
    assert ElicitationForm(Seat).decode(json.dumps(content).encode()) == Seat(
        1, "A", Color.RED, None, when=date(2026, 1, 31), colors=[Color.DARK_BLUE]
    )


@pytest.mark.spec("R0366", "R0641")
def test_an_answer_that_does_not_fit_is_refused_with_every_problem() -> None:
    content = {"row": 0, "letter": "C", "color": "red", "note": "NO", "ticket": 5, "sizes": []}
    assert set(fault(ElicitationForm(Seat), content).split("; ")) == {
        "row: expected more than 0, got 0",
        "letter: expected one of 'A', 'B', got another string",
        "color: expected one of '#f00', '#00f', got another string",
        "note: expected a string that matches ^[a-z ]*$, got another string",
        "ticket: expected a string or null, got an integer",
        "sizes: expected at least 1 item, got 0",
    }
    assert fault(ElicitationForm(Seat), {}) == (
        "missing required 'row'; missing required 'letter'; missing required 'color'"
    )


@pytest.mark.parametrize(
    ("annotation", "field_schema", "content", "value"),
    [
        (int, {"type": "integer"}, 5, 5),
        (int, {"type": "integer"}, 5.0, 5),
        (str, {"type": "string"}, "x", "x"),
        (bool, {"type": "boolean"}, True, True),
        (Annotated[float, Meta(ge=0.5)], {"type": "number", "minimum": 0.5}, 1, 1.0),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
        (Size, {"type": "string", "enum": ["small", "very-large"]}, "small", Size.SMALL),
        (list[Literal["a"]], {"type": "array", "items": {"type": "string", "enum": ["a"]}}, ["a"], ["a"]),
    ],
)  # fmt: skip
def test_a_plain_type_is_asked_for_under_one_name(
    annotation: Any, field_schema: Any, content: Any, value: Any
) -> None:
    form = ElicitationForm(annotation)
    assert form.schema == {
        "type": "object",
        "properties": {"value": field_schema},
        "required": ["value"],
    }
    as_type(form)
    assert form.decode(json.dumps({"value": content}).encode()) == value


def test_a_plain_type_must_be_answered_unless_none_will_do() -> None:
    assert fault(ElicitationForm(int), {}) == "missing required 'value'"
    form = ElicitationForm(int | None)
    assert "required" not in form.schema
    assert form.decode(b"{}") is None
    assert form.decode(b'{"value":"5"}') == 5


class Person(BaseModel):
    name: str = Field(min_length=1, title="Name")
    age: int = Field(ge=18, description="In years.")
    size: Size = Size.SMALL


class Contact(TypedDict):
    email: Annotated[str, Meta(extra_json_schema={"format": "email"})]


class Place(Struct):
    city: str


def test_models_typed_dicts_and_structs_are_forms_too() -> None:
    person = ElicitationForm(Person)
    assert person.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 1},
            "age": {"type": "integer", "description": "In years.", "minimum": 18},
            "size": {"type": "string", "default": "small", "enum": ["small", "very-large"]},
        },
        "required": ["name", "age"],
    }
    as_type(person)
    assert person.decode(b'{"name":"A","age":18}') == Person(name="A", age=18)
    assert ElicitationForm(Contact).schema["properties"]["email"] == {
        "type": "string",
        "format": "email",
    }
    assert ElicitationForm(Contact).decode(b'{"email":"a@b.c"}') == {"email": "a@b.c"}
    assert ElicitationForm(Place).decode(b'{"city":"Oslo"}') == Place("Oslo")


@dataclass
class Nested:
    seat: Seat


@dataclass
class Listed:
    numbers: list[int]


@dataclass
class Either:
    both: int | str


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Nested, "the field 'seat' is more than a form can hold"),
        (Listed, "the field 'numbers' is more"),
        (Either, "the field 'both' is more"),
        (dict[str, int], "the field 'value' is more"),
        (Number, "the choices of 'value' are not strings"),
        (list[Literal[1, 2]], "the choices of 'value' are not strings"),
        (bytearray, "a form for bytearray: "),
        (Any, "the field 'value' is more"),
    ],
)
def test_what_no_form_can_ask_for_is_refused(annotation: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        ElicitationForm(annotation)


@pytest.mark.parametrize("raw", [b"[]", b"", b"null", b"{", b"\xff", b'{"value":"\\ud800"}'])
def test_an_answer_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Fault, match="expected an object of fields"):
        ElicitationForm(str).decode(raw)
