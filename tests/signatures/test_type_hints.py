"""The table of annotations, read by us and, beside it, by pydantic.

Rules: no row is left out; where we judge a value otherwise than pydantic does, the row says why.
"""

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.schema.validate import Validator
from colonnade.signatures.codecs import MsgspecCodec
from colonnade.signatures.signature import Signature
from protocol.annotations import TABLE, Row

READABLE = [row for row in TABLE if not row.refused]
REFUSED = [row for row in TABLE if row.refused]


def each(rows: list[Row]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def function_of(annotation: Any) -> Callable[..., Any]:
    def tool(x: Any) -> None: ...

    tool.__annotations__ = {"x": annotation}
    return tool


def decoded(signature: Signature, text: str) -> Any:
    return signature.decode(b'{"x":%b}' % text.encode())["x"]


def test_the_table_has_at_least_eighty_annotations_with_names_of_their_own() -> None:
    assert len(TABLE) >= 80
    assert len({row.name for row in TABLE}) == len(TABLE)
    print(
        len(TABLE), "annotations,", sum(row.plain for row in READABLE), "of them without pydantic"
    )


@each(READABLE)
def test_the_schema_is_the_one_in_the_table(row: Row) -> None:
    signature = Signature(function_of(row.annotation))
    assert signature.parameters[0].schema == row.schema
    inline = {key: value for key, value in row.schema.items() if key != "$defs"}  # type: ignore[union-attr]
    assert signature.schema["properties"] == {"x": inline}


@each(READABLE)
def test_the_schema_is_valid_json_schema(row: Row) -> None:
    Validator(Signature(function_of(row.annotation)).schema).compile()


@each(READABLE)
def test_good_values_arrive_as_the_table_says(row: Row) -> None:
    signature = Signature(function_of(row.annotation))
    for text, value in row.good.items():
        found = decoded(signature, text)
        assert found == value, text
        assert type(found) is type(value), text


@each(READABLE)
def test_bad_values_are_refused_with_the_name_of_the_parameter_and_without_the_value(
    row: Row,
) -> None:
    signature = Signature(function_of(row.annotation))
    for text in row.bad:
        with pytest.raises(Fault) as caught:
            decoded(signature, text)
        assert caught.value.kind is FaultKind.INVALID_PARAMS
        assert caught.value.message.startswith("x"), text
        if len(text) > 6:
            assert text.strip('"') not in caught.value.message


@each(READABLE)
def test_what_arrives_can_be_sent_back_and_fits_its_own_schema(row: Row) -> None:
    def tool() -> Any: ...

    tool.__annotations__ = {"return": row.annotation}
    signature = Signature(function_of(row.annotation))
    output = Signature(tool).output()
    if output is None:
        assert row.annotation is None
        return
    for text in row.good:
        value = decoded(signature, text)
        sent = output.encode(value)
        assert not output.validator.check(json.loads(sent)), text


@each(READABLE)
def test_without_pydantic_only_plain_annotations_work_and_others_name_the_way_out(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    if row.plain:
        signature = Signature(function_of(row.annotation))
        assert isinstance(signature.parameters[0].codec, MsgspecCodec)
        return
    with pytest.raises(LocalProtocolError) as caught:
        Signature(function_of(row.annotation))
    assert "tool: parameter 'x': " in str(caught.value)
    assert "pip install pydantic" in str(caught.value)


@each(REFUSED)
def test_what_cannot_be_read_is_refused_at_registration_with_its_parameter(row: Row) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Signature(function_of(row.annotation))
    assert str(caught.value).startswith("tool: parameter 'x': ")
    assert row.refused in str(caught.value)


# ---------------------------------------------------------------- beside pydantic


def adapter_of(row: Row) -> "TypeAdapter[Any] | None":
    """pydantic's reading of the annotation; none for what it does not know."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TypeAdapter(row.annotation)
    except Exception:
        return None


@each(READABLE)
def test_pydantic_knows_the_annotation_unless_the_row_says_otherwise(row: Row) -> None:
    assert (adapter_of(row) is None) == ("*" in row.differs)


@each(READABLE)
def test_pydantic_reads_the_same_from_each_value_unless_the_row_says_why_not(row: Row) -> None:
    adapter = adapter_of(row)
    if adapter is None:
        assert "*" in row.differs
        return
    for text in [*row.good, *row.bad]:
        try:
            found = adapter.validate_json(text)
            same = text in row.good and found == row.good[text]
            same = same and isinstance(found, type(row.good[text]))
        except Exception:
            same = text in row.bad
        assert same == (text not in row.differs), text


@each(READABLE)
def test_our_schema_admits_what_pydantics_admits_unless_the_row_says_why_not(row: Row) -> None:
    adapter = adapter_of(row)
    if adapter is None:
        assert "*" in row.differs
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Validator(adapter.json_schema())
    ours = Validator(row.schema)
    for text in [*row.good, *row.bad]:
        value = json.loads(text)
        same = bool(ours.check(value)) == bool(theirs.check(value))
        assert same == (text not in row.lenient), text


def test_every_difference_from_pydantic_names_a_value_of_its_row_and_a_reason() -> None:
    for row in TABLE:
        for text, why in {**row.differs, **row.lenient}.items():
            assert text == "*" or text in row.good or text in row.bad
            assert len(why) > 20
