"""From functions to schemas, and from bytes to their arguments."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Raw
from pydantic import AliasChoices, BaseModel, Field

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.schema.error_messages import MAX_PROBLEMS
from colonnade.protocol.schema.validate import DRAFT_2020_12, Validator, dialect
from colonnade.signatures.signature import EMPTY, HiddenParameter, Signature

if TYPE_CHECKING:
    from somewhere import Context  # pyright: ignore[reportMissingImports]


def forecast(city: str, days: int = 3, units: Literal["metric", "imperial"] = "metric") -> str:
    """Forecast for a city.

    Args:
        city: Name of the city.
    """
    return f"{city} {days} {units}"


FORECAST = Signature(forecast)


def fault(signature: Signature, raw: bytes) -> str:
    with pytest.raises(Fault) as caught:
        signature.decode(raw)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    return caught.value.message


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        Signature(function, **options)
    return str(caught.value)


# ---------------------------------------------------------------- the schema


@pytest.mark.spec("R0658")
def test_a_signature_becomes_a_closed_object_with_descriptions_and_defaults() -> None:
    assert list(FORECAST.schema) == ["type", "properties", "required", "additionalProperties"]
    assert FORECAST.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city."},
            "days": {"type": "integer", "default": 3},
            "units": {"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert FORECAST.name == "forecast"
    assert FORECAST.docs.summary == "Forecast for a city."


@pytest.mark.spec("R0460")
def test_our_schemas_are_2020_12() -> None:
    assert dialect(FORECAST.schema) == DRAFT_2020_12
    Validator(FORECAST.schema).compile()


@pytest.mark.spec("R0658")
def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def nothing() -> None: ...

    signature = Signature(nothing)
    assert signature.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature.decode(b"{}") == signature.decode(b"") == {}
    assert fault(signature, b'{"a":1}') == "unknown argument 'a'; there are none"


def test_a_parameter_without_annotation_takes_anything() -> None:
    def tool(x, y=1): ...  # pyright: ignore[reportMissingParameterType]

    signature = Signature(tool)
    assert signature.schema["properties"] == {"x": {}, "y": {"default": 1}}
    assert signature.decode(b'{"x":[1,"2"]}') == {"x": [1, "2"]}


def test_the_same_class_twice_is_described_in_place_and_a_recursive_one_once() -> None:
    signature = Signature(lambda a, b: None)
    assert signature.name == "<lambda>"

    def tool(a: Leaf, b: Leaf, c: Tree, d: list[Tree]) -> None: ...

    schema = Signature(tool).schema
    assert schema["properties"]["a"] == schema["properties"]["b"]
    assert list(schema["$defs"]) == ["Tree"]
    assert schema["properties"]["c"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["d"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    Validator(schema).compile()


def test_recursive_classes_of_one_name_stay_apart() -> None:
    def tool(a: Tree, b: OtherTrees.Tree) -> None: ...

    schema = Signature(tool).schema
    assert list(schema["$defs"]) == ["Tree", "Tree2"]
    assert schema["properties"]["b"]["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree2"}
    assert Validator(schema).check({"a": {}, "b": {"below": [{"below": []}]}}) == []

    def two(x: Twins) -> None: ...

    assert sorted(Signature(two).schema["$defs"]) == ["Tree", "Tree2"]


@dataclass
class Leaf:
    color: str = "green"


@dataclass
class Tree:
    children: list[Tree] = field(default_factory=list["Tree"])


class OtherTrees:
    @dataclass
    class Tree:
        below: list[OtherTrees.Tree] = field(default_factory=list["OtherTrees.Tree"])


@dataclass
class Twins:
    one: Tree
    two: OtherTrees.Tree


# ---------------------------------------------------------------- calls


def test_arguments_that_are_not_sent_are_left_to_the_function() -> None:
    assert FORECAST.decode(b'{"city":"Oslo"}') == {"city": "Oslo"}
    assert forecast(**FORECAST.decode(b'{"city":"Oslo","days":5}')) == "Oslo 5 metric"
    assert FORECAST.decode(Raw(b'{"city":"Oslo"}')) == {"city": "Oslo"}


def test_every_problem_is_told_at_once() -> None:
    assert fault(FORECAST, b'{"dais":1,"days":"x","units":5}') == (
        "missing required argument 'city'; "
        "days: expected an integer, got a string; "
        "units: expected one of 'metric', 'imperial', got 5; "
        "unknown argument 'dais'; did you mean 'days'?"
    )


def test_a_default_of_another_type_is_refused_and_one_out_of_bounds_is_left_out() -> None:
    def words(days: int = "three") -> None: ...  # type: ignore[assignment]

    def flag(days: int = True) -> None: ...

    def bound(
        days: Annotated[float, Meta(ge=10)] = 5, name: Annotated[str, Meta(min_length=1)] = ""
    ) -> None: ...

    def other(days: int = object()) -> None: ...  # type: ignore[assignment]

    for function, kind in ((words, "'three' is invalid: expected an integer, got a string"), (flag, "True is invalid: expected an integer, got a boolean")):  # fmt: skip
        with pytest.raises(LocalProtocolError) as caught:
            Signature(function)
        assert str(caught.value) == f"{function.__name__}: parameter 'days': its default {kind}"
    for function in (bound, other):
        assert all("default" not in p.schema for p in Signature(function).parameters)


def test_null_for_an_argument_with_a_default_says_to_leave_it_out() -> None:
    assert fault(FORECAST, b'{"city":"Oslo","days":null}') == (
        "days: expected an integer, got null; leave it out to use the default"
    )
    assert fault(FORECAST, b'{"city":null}') == "city: expected a string, got null"


def test_the_number_of_problems_is_bounded() -> None:
    many = b",".join(b'"zz%d":1' % number for number in range(50))
    message = fault(FORECAST, b'{"city":5,' + many + b"}")
    assert message.count("unknown argument") == MAX_PROBLEMS - 1
    assert message.endswith("and 1 more")


@pytest.mark.parametrize(
    "raw",
    [
        b"[]", b"null", b"5", b'"x"', b"{", b'{"city":', b"\xff", b'{"city":"\xff"}', b"NaN",
        b'{"city":"\\ud800"}', b'{"city":NaN}', b'{"city":"a","days":Infinity}',
        b'{"city":"a","days":1e400}', b'{"city":"a","days":' + b"9" * 5000 + b"}",
        b'{"city":' + b"[" * 100_000, b'{"city":' + b"[" * 60 + b"]" * 60 + b"}",
        b'{"city":"a","days":"' + b"9" * 5000 + b'"}', b'{"city":"a","days":"1e999999"}',
        b'{"city":"a","days":"[' + b"[" * 100 + b'"}', b'{"city":{"a":1}}',
    ],
)  # fmt: skip
def test_hostile_arguments_raise_our_fault_and_nothing_else(raw: bytes) -> None:
    message = fault(FORECAST, raw)
    assert len(message) < 500


def everything(
    a: Any = 1,
    b: list[Literal["x", "y"]] | None = None,
    c: Tree | None = None,
    d: CarefulModel | Path | None = None,
    e: dict[int, float] = {},  # noqa: B006
) -> None: ...


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcdenx"), inner),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(st.binary() | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_the_bytes_are_nothing_but_our_fault_is_raised(raw: bytes) -> None:
    for body in (raw, b'{"a":%b}' % raw, b'{"c":%b,"d":%b}' % (raw, raw), b'{"e":%b}' % raw):
        with suppress(Fault):
            assert EVERYTHING.decode(body).keys() <= set("abcde")


@pytest.mark.parametrize("depth", [10, 60])
def test_nesting_is_bounded_by_us(depth: int) -> None:
    def tool(x: Any) -> None: ...

    signature = Signature(tool)
    nested = b"[" * depth + b"]" * depth
    assert signature.decode(b'{"x":%b}' % nested)["x"] is not None
    too_deep = b"[" * 100 + b"]" * 100
    assert "nested deeper" in fault(signature, b'{"x":%b}' % too_deep)


def test_json_in_a_string_is_bounded_like_json() -> None:
    def tool(x: list[Any]) -> None: ...

    signature = Signature(tool)
    assert signature.decode(b'{"x":"[1]"}') == {"x": [1]}
    too_deep = b"[" * 100 + b"]" * 100
    assert fault(signature, b'{"x":"%b"}' % too_deep) == "x: expected an array, got a string"


def test_undeclared_arguments_can_be_ignored_and_then_the_schema_does_not_forbid_them() -> None:
    signature = Signature(forecast, closed=False)
    assert "additionalProperties" not in signature.schema
    assert signature.decode(b'{"city":"Oslo","sessionId":1}') == {"city": "Oslo"}
    assert signature.decode(b'{"city":"Oslo","days":"5","sessionId":1}') == {
        "city": "Oslo",
        "days": 5,
    }


def test_a_good_argument_is_read_as_it_stands_beside_one_that_is_put_right() -> None:
    def tool(a: Annotated[list[str], pydantic.BeforeValidator(str.split)], b: int) -> None: ...

    signature = Signature(tool)
    assert signature.decode(b'{"a":"[1] x","b":1}') == {"a": ["[1]", "x"], "b": 1}
    assert signature.decode(b'{"a":"[1] x","b":"1"}') == {"a": ["[1]", "x"], "b": 1}


def test_arguments_for_pydantic_may_be_left_out_too() -> None:
    def tool(path: Path = Path(), other: Path | None = None) -> None: ...

    signature = Signature(tool)
    assert signature.decode(b"{}") == {}
    assert signature.decode(b'{"path":"a"}') == {"path": Path("a")}
    assert signature.schema["properties"]["path"]["default"] == "."


def test_the_words_of_the_authors_own_checks_reach_the_caller() -> None:
    def tool(x: Careful, y: CarefulModel | None = None) -> None: ...

    signature = Signature(tool)
    assert fault(signature, b'{"x":{"n":-1}}') == "x: n must not be negative"
    assert fault(signature, b'{"x":{"n":0}}') == "x: is invalid"
    assert (
        fault(signature, b'{"x":{"n":1},"y":{"n":-1}}') == "y.n: Value error, not negative please"
    )

    def several(x: list[CarefulModel]) -> None: ...

    words = "x[1].n: Value error, not negative please"
    assert fault(Signature(several), b'{"x":[{"n":1},{"n":-1}]}') == words


@dataclass
class Careful:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n must not be negative")
        if not self.n:
            raise KeyError("none")


class CarefulModel(BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        if n < 0:
            raise ValueError("not negative please")
        return n


@pytest.mark.parametrize(
    ("annotation", "raw", "words"),
    [
        ("datetime.datetime", b'"x"', "expected a date and time such as 2026-01-31T09:30:00Z, got another string"),
        ("datetime.date", b'"x"', "expected a date such as 2026-01-31, got another string"),
        ("datetime.time", b'"x"', "expected a time such as 09:30:00, got another string"),
        ("datetime.timedelta", b'"x"', "expected an ISO 8601 duration such as PT1H30M, got another string"),
        ("datetime.timedelta", b'"P1M"', "expected an ISO 8601 duration such as PT1H30M, got another string"),
        ("uuid.UUID", b'"x"', "expected a UUID such as 123e4567-e89b-42d3-a456-426614174000, got another string"),
        ("list[datetime.date]", b'["2026-01-31","x"]', "[1]: expected a date such as 2026-01-31, got another string"),
        ("dict[datetime.date, int]", b'{"x":1}', "a member name is invalid: expected a date such as 2026-01-31, got another string"),
        ("Annotated[datetime.datetime, Meta(tz=True)]", b'"2026-01-31T09:30:00"', "Expected datetime with a timezone component"),
    ],
)  # fmt: skip
def test_formats_are_named_by_an_example(annotation: str, raw: bytes, words: str) -> None:
    import datetime
    import uuid

    scope = {"datetime": datetime, "uuid": uuid, "Annotated": Annotated, "Meta": Meta}

    def tool(x: Any) -> None: ...

    tool.__annotations__ = {"x": eval(annotation, scope)}
    where = "x" if words.startswith("[") else "x: "
    assert fault(Signature(tool), b'{"x":%b}' % raw) == where + words


# ---------------------------------------------------------------- names and defaults


def test_parameters_may_be_called_anything() -> None:
    def tool(__b: str, __c: list[int] | None = None, *, _a: int, self: int, cls: int) -> None: ...

    signature = Signature(tool)
    raw = b'{"_a":1,"__b":"x","self":2,"cls":3,"__c":[1]}'
    assert signature.decode(raw) == {"_a": 1, "__b": "x", "self": 2, "cls": 3, "__c": [1]}
    assert "__c" not in signature.decode(b'{"_a":1,"__b":"x","self":2,"cls":3}')


def test_a_mutable_default_is_in_the_schema_and_copied_for_the_call() -> None:
    def tool(tags: list[str] = ["a"], more: dict[str, int] = {}) -> None: ...  # noqa: B006

    signature = Signature(tool)
    assert signature.decode(b"{}") == {"tags": ["a"], "more": {}}
    assert signature.schema["properties"]["tags"]["default"] == ["a"]
    assert signature.schema["properties"]["more"]["default"] == {}


def test_a_default_that_json_cannot_say_is_not_in_the_schema() -> None:
    unsayable: Any = object()

    def tool(x: int = unsayable, y: float = float("nan"), z: Any = unsayable) -> None: ...

    schema = Signature(tool).schema
    assert schema["properties"] == {"x": {"type": "integer"}, "y": {"type": "number"}, "z": {}}
    assert "required" not in schema


def test_none_as_default_says_that_none_will_do() -> None:
    nothing: Any = None

    def tool(
        x: int = nothing, y: Annotated[int, Field(ge=1, description="Y.")] = nothing
    ) -> None: ...

    signature = Signature(tool)
    assert signature.decode(b'{"x":null,"y":null}') == {"x": None, "y": None}
    assert signature.schema["properties"]["y"] == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "description": "Y.",
        "default": None,
    }


def test_a_field_as_default_value_describes_bounds_names_and_fills() -> None:
    def tool(
        a: int = Field(ge=1),
        b: int = Field(3, ge=1, description="How many."),
        c: list[int] = Field(default_factory=lambda: [7]),
        d: int = Field(4, alias="from"),
        e: list[int] = Field([1]),
    ) -> None: ...

    signature = Signature(tool)
    assert signature.schema["required"] == ["a"]
    assert signature.schema["properties"]["b"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many.",
        "default": 3,
    }
    found = signature.decode(b'{"a":1}')
    assert found == {"a": 1, "b": 3, "c": [7], "d": 4, "e": [1]}
    assert found["e"] is not signature.decode(b'{"a":1}')["e"]
    assert signature.decode(b'{"a":1,"from":5,"c":"[8]"}')["d"] == 5
    assert fault(signature, b'{"a":0,"d":5}') == (
        "a: expected at least 1, got 0; unknown argument 'd'; there are 'a', 'b', 'c', 'from', 'e'"
    )


def test_a_field_in_annotated_says_the_same() -> None:
    def tool(
        a: Annotated[int, Field(default=3, alias="A")],
        b: Annotated[Path, Field(default=Path("x"), description="B.", validation_alias="B")],
        c: Annotated[int, Field(default=3)] = 5,
    ) -> None: ...

    signature = Signature(tool)
    assert signature.decode(b"{}") == {"a": 3, "b": Path("x")}
    assert signature.decode(b'{"A":1,"B":"y"}') == {"a": 1, "b": Path("y")}
    assert signature.schema["properties"]["B"] == {
        "description": "B.",
        "format": "path",
        "type": "string",
        "default": "x",
    }
    assert signature.schema["properties"]["c"]["default"] == 5


def test_what_a_field_cannot_mean_for_a_parameter_is_refused() -> None:
    def aliases(x: Annotated[int, Field(validation_alias=AliasChoices("a", "b"))]) -> None: ...

    def factory(x: int = Field(default_factory=lambda data: data["y"])) -> None: ...

    def twins(a: int, b: Annotated[int, Field(alias="a")]) -> None: ...

    def frozen(x: Annotated[int, Field(frozen=True)]) -> None: ...

    assert "only one alias is supported" in refusal(aliases)
    assert "default_factory gets no arguments" in refusal(factory)
    assert "two parameters have the wire name 'a'" in refusal(twins)
    assert "'frozen'" in refusal(frozen)


# ---------------------------------------------------------------- hidden parameters


class Db:
    pass


def test_hidden_parameters_are_left_out_by_name_or_by_judgement() -> None:
    def tool(city: str, db: Db, *, limit: int = 5) -> None: ...

    def is_db(name: str, annotation: Any) -> bool:
        return annotation is Db

    for hidden in ({"db"}, is_db):
        signature = Signature(tool, hidden=hidden)
        assert list(signature.schema["properties"]) == ["city", "limit"]
        assert signature.hidden == {"db": HiddenParameter("db", Db, EMPTY)}
        assert (
            fault(signature, b'{"city":"a","db":1}')
            == "unknown argument 'db'; there are 'city', 'limit'"
        )
    assert "Db" in refusal(tool)


def test_a_marker_hides_in_annotated_or_as_the_default() -> None:
    marker: Any = object()

    def tool(a: int, b: Annotated[Db, marker], c: Db = marker, d: list[int] = []) -> None: ...  # noqa: B006

    def is_marked(name: str, annotation: Any) -> bool:
        return marker in getattr(annotation, "__metadata__", ())

    signature = Signature(tool, hidden=is_marked)
    assert list(signature.hidden) == ["b", "c"]
    assert signature.hidden["c"] == HiddenParameter("c", Db, marker)
    assert list(signature.schema["properties"]) == ["a", "d"]


def test_a_hidden_parameter_may_be_annotated_with_a_name_for_type_checkers_only() -> None:
    def tool(city: str, ctx: Context, *args: int) -> None: ...

    def is_context(name: str, annotation: Any) -> bool:
        return annotation == "Context" or name == "args"

    signature = Signature(tool, hidden=is_context)
    assert signature.hidden["ctx"].annotation == "Context"
    assert "'Context' is not defined" in refusal(tool)
    assert "TYPE_CHECKING" in refusal(tool)


EVERYTHING = Signature(everything)


LAZY = """
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from decimal import Decimal


def pay(amount: Decimal) -> int:
    return 1


class Bill(TypedDict):
    amount: Decimal


def send(bill: Bill) -> int:
    return 1
"""


# Before 3.14 such a name fails where it is written.
if sys.version_info >= (3, 14):

    @pytest.mark.parametrize("name", ["pay", "send"])
    def test_a_name_that_only_a_type_checker_imports_is_refused_in_words_without_quotes(
        name: str,
    ) -> None:
        """PEP 649: it is looked up when the annotation is asked for, and not before."""
        module = ModuleType("lazy")
        exec(compile(LAZY, "lazy.py", "exec", dont_inherit=True), vars(module))
        sys.modules["lazy"] = module
        try:
            with pytest.raises(LocalProtocolError, match=r"Decimal.*outside of TYPE_CHECKING"):
                Signature(getattr(module, name))
        finally:
            del sys.modules["lazy"]
