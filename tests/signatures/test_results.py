"""What functions return, and metadata that is never ignored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import annotated_types
import attrs
import pydantic
import pytest
from msgspec import Meta
from pydantic import AnyUrl, BaseModel, Field

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.signatures.signature import EMPTY, Signature

if TYPE_CHECKING:
    pass  # pyright: ignore[reportMissingImports]


def fault(signature: Signature, raw: bytes) -> str:
    with pytest.raises(Fault) as caught:
        signature.decode(raw)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    return caught.value.message


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        Signature(function, **options)
    return str(caught.value)


# ---------------------------------------------------------------- results


@pytest.mark.spec("R0377")
def test_a_result_is_encoded_if_it_fits_its_declared_type() -> None:
    def tool() -> dict[str, float | None]: ...

    output = Signature(tool).output()
    assert output is not None
    assert output.schema == {
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    }
    assert output.encode({"a": 1.5, "b": None}) == b'{"a":1.5,"b":null}'
    with pytest.raises(LocalProtocolError, match="tool: return: a: expected a number or null"):
        output.encode({"a": "x"})
    with pytest.raises(LocalProtocolError, match="NaN and Infinity are not JSON"):
        output.encode({"a": float("nan")})
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        output.encode({"a": object()})


@pytest.mark.spec("R0377")
def test_a_result_of_pydantics_is_encoded_if_it_fits() -> None:
    def tool() -> Report: ...

    output = Signature(tool).output()
    assert output is not None
    assert output.schema["required"] == ["Value", "twice"]
    assert output.encode(Report(Value=1.5)) == b'{"Value":1.5,"note":null,"twice":3.0}'
    assert output.encode({"Value": 1}) == b'{"Value":1.0,"note":null,"twice":2.0}'
    for bad, words in (
        ({"Value": "x"}, "should be a valid number"),
        (Report(Value=float("inf")), "NaN and Infinity"),
        (Report.model_construct(value=-1.0), "at least 0"),
        (5, "return: "),
    ):
        with pytest.raises(LocalProtocolError, match=words):
            output.encode(bad)


class Report(BaseModel):
    value: float = Field(alias="Value", ge=0)
    note: str | None = None

    @pydantic.computed_field
    @property
    def twice(self) -> float:
        return 2 * self.value


@dataclass
class Careful:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n must not be negative")


class Opaque:
    pass


def test_an_author_who_checks_in_a_dataclass_is_heard_for_results_too() -> None:
    def tool() -> list[Careful]: ...

    output = Signature(tool).output()
    assert output is not None
    with pytest.raises(LocalProtocolError, match="n must not be negative"):
        output.encode([{"n": -1}])


def test_anything_may_hold_paths_and_models() -> None:
    def tool() -> Any: ...

    output = Signature(tool).output()
    assert output is not None
    assert (
        output.encode([Path("a"), Report(Value=1)])
        == b'["a",{"Value":1.0,"note":null,"twice":2.0}]'
    )
    assert output.encode({"a": None, "b": (1, 2)}) == b'{"a":null,"b":[1,2]}'
    for endless in ((float("inf"),), {"a": [float("nan")]}):
        with pytest.raises(LocalProtocolError, match="NaN"):
            output.encode(endless)


def test_a_function_that_returns_nothing_has_no_output() -> None:
    def nothing() -> None: ...

    def unsaid(): ...

    assert Signature(nothing).output() is None
    assert Signature(unsaid).output() is None
    assert Signature(unsaid).returns is EMPTY


def test_a_result_without_schema_is_refused_by_its_name() -> None:
    def tool() -> Opaque: ...

    def unknown() -> Missing: ...  # pyright: ignore[reportUndefinedVariable]  # noqa: F821

    with pytest.raises(LocalProtocolError, match="tool: return: "):
        Signature(tool).output()
    assert "unknown: return: name 'Missing' is not defined" in refusal(unknown)


# ---------------------------------------------------------------- metadata that is not ignored


def test_words_and_bounds_in_a_class_reach_the_schema_or_are_refused() -> None:
    @attrs.define
    class Attr:
        x: Annotated[int, annotated_types.Ge(1)]

    @dataclass
    class Deep:
        x: list[Annotated[int, "a note that nobody would see"]]

    @dataclass
    class Both:
        link: AnyUrl
        x: Annotated[int, "How many."] = 1

    @dataclass
    class Many:
        x: Iterable[int]

    def attr(x: Attr) -> None: ...
    def deep(x: Deep) -> None: ...
    def both(x: Both) -> None: ...
    def many(x: Many) -> None: ...

    assert "inside Attr" in refusal(attr)
    assert "in Deep, is ignored by pydantic" in refusal(deep)
    assert "in Both, is ignored by pydantic" in refusal(both)
    assert "Iterable is decoded as list" in refusal(many)


from collections.abc import Iterable  # noqa: E402


def test_a_named_zone_or_metadata_of_strangers_is_refused_for_pydantic_too() -> None:
    def zone(x: Annotated[Path | int, annotated_types.Timezone(None)]) -> None: ...
    def meta(x: Annotated[Path | int, Meta(tz=True)]) -> None: ...
    def unknown(x: Annotated[Path, object()]) -> None: ...

    assert "AwareDatetime" in refusal(zone)
    assert "AwareDatetime" in refusal(meta)
    assert "'object' in Annotated is not supported" in refusal(unknown)


def test_words_on_any_annotation_of_pydantics_reach_the_schema() -> None:
    def tool(
        a: Annotated[Path, "Where."],
        b: Annotated[Path, Meta(title="T", extra={"mine": 1})],
        c: Annotated[object, Meta(description="C.")],
        d: Annotated[list[object] | Path, "D."],
    ) -> None: ...

    properties = Signature(tool).schema["properties"]
    assert properties["a"]["description"] == "Where."
    assert properties["b"]["title"] == "T"
    assert properties["c"] == {"description": "C."}
    assert properties["d"]["description"] == "D."


def test_a_field_that_says_more_than_bounds_goes_to_pydantic() -> None:
    def extra(schema: dict[str, Any]) -> None:
        schema["x-mine"] = True

    def tool(
        a: Annotated[int, Field(json_schema_extra=extra)],
        b: Annotated[int, Field(ge=1), Field(ge=2)],
        c: Annotated[int, Field(json_schema_extra={"x-mcp-header": "C"})],
        d: Annotated[str, Field(pattern="^a")],
    ) -> None: ...

    signature = Signature(tool)
    properties = signature.schema["properties"]
    assert properties["a"]["x-mine"] is True
    assert properties["c"]["x-mcp-header"] == "C"
    assert fault(signature, b'{"a":1,"b":1,"c":1,"d":"b"}') == (
        "b: expected at least 2, got 1; d: expected a string that matches ^a, got another string"
    )


def test_a_default_of_a_model_that_json_cannot_say_is_not_in_the_schema() -> None:
    class Odd(BaseModel):
        x: Any = object()

    def tool(x: Odd) -> None: ...

    assert Signature(tool).schema["properties"]["x"]["properties"] == {"x": {}}
