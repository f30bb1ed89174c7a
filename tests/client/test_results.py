"""What a tool answered, as a value: wrapped or bare, structured or in words, of a type or not."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec import UNSET

from colonnade.client.results import ToolResult
from colonnade.errors import LocalProtocolError, RemoteProtocolError, ToolError
from colonnade.protocol import types as t


@dataclass
class Forecast:
    degrees: int = 0
    words: str = "none"


@dataclass
class Sum:
    result: int


def result(
    *texts: str, data: Any = UNSET, returns: Any = None, is_error: bool | None = None
) -> ToolResult[Any]:
    content: list[Any] = [t.TextContent(text=text) for text in texts]
    instance = t.CallToolResult(content=content, structured_content=data, is_error=is_error)
    return ToolResult("tool", instance, returns)


@pytest.mark.parametrize("value", [5, "5", None, [1, 2], {"a": 1}, {}, True, {"result": 1, "b": 2}])
def test_a_bare_value_is_the_value(value: Any) -> None:
    assert result("words", data=value).data == value


@pytest.mark.parametrize("value", [5, "5", None, [1, 2], {"a": 1}])
def test_a_wrapped_value_is_the_value(value: Any) -> None:
    assert result("words", data={"result": value}).data == value
    assert result("words", data={"result": {"result": value}}).data == {"result": value}


def test_a_value_of_a_type_is_of_that_type_wrapped_or_bare() -> None:
    assert result(data={"degrees": 7}, returns=Forecast).data == Forecast(7)
    # Wrapped, because it might be nothing: and never taken for a forecast of nothing.
    wrapped = {"result": {"degrees": 7}}
    assert result(data=wrapped, returns=Forecast).data == Forecast(7)
    assert result(data=wrapped, returns=Forecast | None).data == Forecast(7)
    assert result(data={"result": None}, returns=Forecast | None).data is None
    assert result(data={"result": [1]}, returns=list[int]).data == [1]


def test_an_object_whose_only_member_is_called_result_is_found_by_its_type() -> None:
    assert result(data={"result": 5}, returns=Sum).data == Sum(5)
    assert result(data={"result": 5}, returns=int).data == 5


@pytest.mark.parametrize(
    ("text", "returns", "value"),
    [
        ("5", int, 5),
        ("5", str, "5"),
        ("null", str, "null"),
        ("5.5", float, 5.5),
        ("true", bool, True),
        ("red", Literal["red", "blue"], "red"),
        ('["a"]', list[str], ["a"]),
        ('{"degrees":7}', Forecast, Forecast(7)),
    ],
)
def test_where_nothing_is_structured_a_type_reads_the_words(
    text: str, returns: Any, value: Any
) -> None:
    assert result(text, returns=returns).data == value


def test_without_a_type_words_are_words_whatever_they_look_like() -> None:
    assert result("5").data == "5"
    assert result("a", "b").data == result("a", "b").text == "a\nb"
    assert result("").data == ""
    assert result().data is None


def test_a_value_that_is_not_of_the_type_is_the_server_s_mistake() -> None:
    with pytest.raises(RemoteProtocolError, match="tool did not return int: Expected int, got str"):
        _ = result(data={"result": "many"}, returns=int).data
    with pytest.raises(RemoteProtocolError, match="tool did not return Forecast: degrees: "):
        _ = result(data={"degrees": "x"}, returns=Forecast).data
    with pytest.raises(RemoteProtocolError, match="tool did not return int"):
        _ = result("some words", returns=int).data


def test_a_type_that_has_no_json_is_the_caller_s_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="Strange"):
        _ = result("x", returns=type("Strange", (), {"__slots__": ()})).data


def test_an_error_has_words_and_no_data() -> None:
    failed = result("no such city", is_error=True)
    assert failed.is_error
    assert repr(failed) == "ToolResult(tool, error 'no such city')"
    with pytest.raises(ToolError, match="no such city"):
        _ = failed.data
    with pytest.raises(ToolError, match="tool failed without an error message"):
        _ = result(is_error=True, data={"result": 5}).data


def test_a_picture_has_no_words_and_no_data() -> None:
    picture = t.ImageContent(data="aGk=", mime_type="image/png")
    instance = t.CallToolResult(content=[picture], meta={"a": 1})
    found: ToolResult[Any] = ToolResult("draw", instance)
    assert found.content == [picture]
    assert (found.text, found.data, found.meta) == ("", None, {"a": 1})


def test_where_nothing_is_wrapped_an_object_with_a_result_in_it_is_that_object() -> None:
    instance = t.CallToolResult(content=[], structured_content={"result": {"result": 5}})

    def read(returns: Any = None) -> Any:
        return ToolResult[Any]("tool", instance, returns, wrapped=False).data

    assert read() == {"result": {"result": 5}}
    assert read(dict[str, dict[str, int]]) == {"result": {"result": 5}}
    assert read(Sum) == Sum(5)  # which nothing else can be
