"""Types of the standard library without pydantic, defaults that are made anew, and complaints that
say everything at once."""

import datetime
import ipaddress
import re
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import pytest
from msgspec import Meta
from pydantic import BaseModel, Field, field_validator

from colonnade.errors import Fault, LocalProtocolError
from colonnade.signatures.signature import Signature


def fault(function: Callable[..., Any], raw: bytes) -> str:
    with pytest.raises(Fault) as caught:
        Signature(function).decode(raw)
    return caught.value.message


def refusal(function: Callable[..., Any]) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        Signature(function)
    return str(caught.value)


# ---------------------------------------------------------------- the standard library


def test_paths_addresses_decimals_and_bytes_need_no_pydantic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tool(
        path: Path,
        pure: PurePosixPath,
        price: Decimal,
        data: bytes,
        host: ipaddress.IPv4Address,
        net: ipaddress.IPv6Network | None = None,
        pattern: re.Pattern[str] = re.compile("a"),
    ) -> dict[str, Decimal]: ...

    monkeypatch.setitem(sys.modules, "pydantic", None)
    signature = Signature(tool)
    assert signature.decode(
        b'{"path":"a/b","pure":"c","price":"1.50","data":"\xc3\xa4","host":"192.0.2.1",'
        b'"net":"2001:db8::/32","pattern":"b+"}'
    ) == {
        "path": Path("a/b"),
        "pure": PurePosixPath("c"),
        "price": Decimal("1.50"),
        "data": b"\xc3\xa4",
        "host": ipaddress.IPv4Address("192.0.2.1"),
        "net": ipaddress.IPv6Network("2001:db8::/32"),
        "pattern": re.compile("b+"),
    }
    assert signature.schema["properties"]["pattern"]["default"] == "a"
    output = signature.output()
    assert output is not None
    assert output.schema == {"type": "object", "additionalProperties": {"type": "string"}}
    assert output.encode({"a": Decimal("1.50")}) == b'{"a":"1.50"}'
    with pytest.raises(LocalProtocolError, match="finite"):
        output.encode({"a": Decimal("NaN")})


def test_bytes_are_the_text_and_not_base64_of_it() -> None:
    def tool(data: bytes = b"hi") -> dict[str, tuple[bytes, ...]]: ...

    signature = Signature(tool)
    assert signature.schema["properties"]["data"]["default"] == "hi"
    assert signature.decode(b'{"data":"aGk="}') == {"data": b"aGk="}
    output = signature.output()
    assert output is not None
    assert output.encode({"a": (b"hi", "ä".encode())}) == '{"a":["hi","ä"]}'.encode()
    with pytest.raises(LocalProtocolError, match="not UTF-8; return them as File"):
        output.encode({"a": (b"\xff",)})


def test_a_text_of_another_format_is_told_without_being_repeated() -> None:
    def tool(host: ipaddress.IPv4Address, pattern: re.Pattern[str], price: Decimal) -> None: ...

    assert fault(tool, b'{"host":"secret","pattern":"(secret","price":"secret"}') == (
        "host: expected an IPv4 address such as 192.0.2.1, got another string; "
        "pattern: expected a regular expression, got another string; "
        "price: expected a number, or a string such as '12.50', got another string"
    )
    assert fault(tool, b'{"host":"192.0.2.1","pattern":"a","price":"NaN"}') == (
        "price: Expected a finite number"
    )


def test_what_has_no_text_of_its_own_still_needs_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Packed:
        data: bytes

    def inside(x: Packed) -> None: ...
    def loose(x: bytearray) -> None: ...
    def union(x: Path | int) -> None: ...
    def bounded(x: Annotated[Decimal, Meta(ge=1)]) -> None: ...
    def unknown(x: threading.Event) -> None: ...

    monkeypatch.setitem(sys.modules, "pydantic", None)
    for function in (inside, loose, union, bounded, unknown):
        assert "this needs pydantic (" in refusal(function)
        assert "pip install pydantic" in refusal(function)


def test_an_annotation_that_is_a_value_is_refused_in_words() -> None:
    def thing(a: object()) -> None: ...  # pyright: ignore[reportInvalidTypeForm]
    def described(a: Field(description="A.")) -> None: ...  # pyright: ignore[reportInvalidTypeForm]

    assert "thing: parameter 'a': its annotation is a value (object), not a type" in refusal(thing)
    assert "(FieldInfo), not a type; write a type such as str" in refusal(described)


# ---------------------------------------------------------------- all that is wrong


@dataclass
class Stay:
    start: datetime.date
    end: datetime.date
    guests: int = 1


def test_every_date_that_is_none_is_told_and_not_only_the_first() -> None:
    def tool(stay: Stay, days: list[datetime.date], id: uuid.UUID) -> None: ...

    assert fault(
        tool, b'{"stay":{"start":"x","end":"y","guests":"z"},"days":["x","2026-01-31","y"]}'
    ) == (
        "stay.start: expected a date such as 2026-01-31, got another string; "
        "stay.end: expected a date such as 2026-01-31, got another string; "
        "stay.guests: expected an integer, got a string; "
        "days[0]: expected a date such as 2026-01-31, got another string; "
        "days[2]: expected a date such as 2026-01-31, got another string; "
        "missing required argument 'id'"
    )


def test_the_words_of_an_authors_validator_are_told_beside_those_of_the_schema() -> None:
    class Order(BaseModel):
        count: int
        price: int
        day: datetime.date
        note: str

        @field_validator("count")
        @classmethod
        def check(cls, count: int) -> int:
            if count > 3:
                raise ValueError("at most three")
            return count

    def tool(order: Order) -> None: ...

    assert fault(tool, b'{"order":{"count":5,"price":"x","day":"y"}}') == (
        "order: missing required 'note'; order.price: expected an integer, got a string; "
        "order.count: Value error, at most three; "
        "order.day: Input should be a valid date or datetime, input is too short"
    )


def test_members_of_a_union_that_nobody_meant_say_nothing() -> None:
    class Cat(BaseModel):
        lives: int

    class Dog(BaseModel):
        owner: str
        age: int

    def tool(pets: list[Cat | Dog]) -> None: ...

    assert fault(tool, b'{"pets":[{"lives":"many"}]}') == (
        "pets[0].lives: expected an integer, got a string"
    )


# ---------------------------------------------------------------- defaults


def test_a_default_factory_is_called_for_each_call() -> None:
    def tool(
        a: list[int] = Field(default_factory=list),
        b: Annotated[dict[str, int], Field(default_factory=dict)] = ...,
        c: list[int] = Field(default_factory=lambda *more: [7, *more]),
    ) -> None: ...

    def bare(b: Annotated[dict[str, int], Field(default_factory=dict)]) -> None: ...

    signature = Signature(bare)
    assert signature.schema.get("required") is None
    first, second = signature.decode(b"{}"), signature.decode(b"{}")
    assert first == second == {"b": {}}
    assert first["b"] is not second["b"]
    assert Signature(tool).decode(b"{}")["a"] == []
    assert Signature(tool).decode(b"{}")["c"] == [7]


@dataclass
class Settings:
    names: list[str] = field(default_factory=list)


def test_a_default_that_a_call_could_change_is_copied_for_each_call() -> None:
    unset = object()
    lock = threading.Lock()

    def tool(
        names: list[list[str]] = [["a"]],  # noqa: B006
        settings: Settings = Settings(["b"]),
        other: Any = unset,
        held: Any = [lock],  # noqa: B006
    ) -> None: ...

    signature = Signature(tool)
    first = signature.decode(b"{}")
    assert first == {"names": [["a"]], "settings": Settings(["b"])}
    first["names"][0].append("changed")
    first["settings"].names.append("changed")
    assert signature.decode(b"{}") == {"names": [["a"]], "settings": Settings(["b"])}
    assert signature.schema["properties"]["names"]["default"] == [["a"]]
    assert signature.decode(b'{"names":[]}')["names"] == []
