"""Every kind of callable, and where the names in its annotations come from."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest
from typing_extensions import TypedDict

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.signatures.signature import Signature

if TYPE_CHECKING:
    pass  # pyright: ignore[reportMissingImports]


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


# ---------------------------------------------------------------- kinds of callables


class Weather:
    """Says the weather."""

    def __init__(self, city: str) -> None:
        self.city = city

    def method(self, days: int) -> str:
        """A method."""
        return f"{self.city} {days}"

    @classmethod
    def of(cls, city: str) -> Weather:
        return cls(city)

    @staticmethod
    def parse(text: str) -> int:
        return int(text)

    def __call__(self, days: int) -> str:
        return f"{self.city} {days}"


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def later(days: int) -> str:
    await asyncio.sleep(0)
    return str(days)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (Weather("Oslo").method, ["days"]),
        (Weather.of, ["city"]),
        (Weather.parse, ["text"]),
        (Weather.__dict__["parse"], ["text"]),
        (Weather("Oslo"), ["days"]),
        (Weather, ["city"]),
        (decorated(forecast), ["city", "days", "units"]),
        (later, ["days"]),
        (functools.partial(forecast, "Oslo"), ["days", "units"]),
        (functools.partial(forecast, days=5), ["city", "units"]),
        (functools.partial(functools.partial(forecast, days=5), units="metric"), ["city"]),
        (functools.partial(Weather("Oslo").method), ["days"]),
        (functools.partial(decorated(forecast), city="Oslo"), ["days", "units"]),
    ],
)
def test_every_kind_of_callable_is_read(function: Any, names: list[str]) -> None:
    signature = Signature(function)
    assert [parameter.name for parameter in signature.parameters] == names


def test_a_callable_object_is_described_by_its_class() -> None:
    assert Signature(Weather("Oslo")).docs.summary == "Says the weather."
    assert Signature(Weather("Oslo").method).docs.summary == "A method."
    assert Signature(Weather("Oslo").method).name == "method"
    assert Signature(functools.partial(later)).docs.summary == ""
    assert Signature(forecast, name="weather").name == "weather"


def test_an_argument_that_a_partial_holds_is_not_in_the_schema() -> None:
    def send(to: str, *, key: str) -> None: ...

    signature = Signature(functools.partial(send, key="s3cret"))
    assert "s3cret" not in str(signature.schema)
    assert fault(signature, b'{"to":"a","key":"b"}') == "unknown argument 'key'; there are 'to'"


@pytest.mark.parametrize("function", [5, None, Weather.__dict__["of"]])
def test_what_is_no_function_is_refused(function: Any) -> None:
    assert "cannot be inspected as a function" in refusal(function)


def test_a_builtin_is_read_as_far_as_it_says_what_it_takes() -> None:
    assert "positional" not in refusal(len)
    assert "remove the '/'" in refusal(len)


def test_parameters_that_nobody_can_name_are_refused() -> None:
    def many(*args: int) -> None: ...

    def keywords(**kwargs: int) -> None: ...

    def positional(a: int, /) -> None: ...

    assert refusal(many) == (
        "many: parameter 'args': callers send arguments by name; take one list instead of *"
    )
    assert "take one dict instead" in refusal(keywords)
    assert "remove the '/'" in refusal(positional)


# ---------------------------------------------------------------- where names come from


def test_annotations_may_name_classes_that_are_local_to_a_function() -> None:
    @dataclass
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner
        many: list[Inner] = field(default_factory=list["Inner"])

    class Movie(TypedDict):
        outer: Outer

    def tool(x: Outer, y: Movie | None = None) -> Outer: ...

    signature = Signature(tool)
    raw = b'{"x":{"inner":{"n":1}},"y":{"outer":{"inner":{"n":2}}}}'
    assert signature.decode(raw) == {"x": Outer(Inner(1)), "y": {"outer": Outer(Inner(2))}}
    assert signature.returns is Outer


def test_names_are_found_in_closures_and_in_every_enclosing_function() -> None:
    @dataclass
    class Near:
        n: int

    def middle() -> Callable[..., Any]:
        @dataclass
        class Nearer:
            near: Near

        def tool(x: Nearer, y: Near) -> None: ...

        Signature(tool)  # both frames run
        return tool

    middle()

    def later_on() -> Callable[..., Any]:
        @dataclass
        class Gone:
            n: int

        late: type

        def used(x: Gone) -> Any:
            return Gone, late  # pyright: ignore[reportUnboundVariable]  # noqa: F821

        def unused(x: Gone) -> None: ...

        return lambda which: used if which else unused

    functions = later_on()
    assert Signature(functions(True)).schema["properties"]["x"]["type"] == "object"
    assert "'Gone' is not defined" in refusal(functions(False))


def test_type_parameters_of_a_function_are_names_too() -> None:
    def tool(x: Kind, y: list[Kind]) -> None: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    Kind = TypeVar("Kind", bound=int)
    tool.__type_params__ = (Kind,)  # pyright: ignore[reportFunctionMemberAccess]
    del Kind
    assert Signature(tool).schema["properties"]["x"] == {"type": "integer"}


def test_a_name_that_only_some_other_frame_has_is_not_taken() -> None:
    def tool(x: Elsewhere) -> None: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    def register() -> str:
        Elsewhere = int  # pyright: ignore[reportUnusedVariable]  # noqa: F841
        return refusal(tool)

    assert "'Elsewhere' is not defined" in register()


def test_annotations_that_are_no_types_are_refused() -> None:
    def tool(x: Any) -> None: ...

    for annotation in ("1 +", "int[", "[int]"):
        tool.__annotations__ = {"x": annotation}
        assert refusal(tool).startswith("tool: parameter 'x': ")
    for annotation in ([int], 5, "5", {"a": int}):
        tool.__annotations__ = {"x": annotation}
        assert refusal(tool).startswith("tool: parameter 'x': ")


def test_a_class_with_unknown_names_is_refused_by_its_name() -> None:
    @dataclass
    class Broken:
        x: Missing  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    @dataclass
    class Malformed:
        x: int

    Malformed.__annotations__["x"] = "1 +"

    def tool(x: Broken) -> None: ...

    def other(x: Malformed) -> None: ...

    assert "Broken: name 'Missing' is not defined" in refusal(tool)
    assert "the annotations of Malformed are not valid" in refusal(other)


def test_inherited_annotations_are_found_where_they_were_written() -> None:
    @dataclass
    class Part:
        n: int

    class Empty:
        pass

    @dataclass
    class Parent(Empty):
        part: Part

    @dataclass
    class Child(Parent):
        other: Part | None = None

    def tool(x: Child) -> None: ...

    assert Signature(tool).decode(b'{"x":{"part":{"n":1}}}') == {"x": Child(Part(1))}
