"""Arguments at a glance: the same as the long way, or nothing; and never with a member twice."""

from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Raw
from pydantic import Field

from colonnade.protocol.jsonrpc import has_duplicate_members
from colonnade.signatures.signature import Signature


def forecast(
    city: str,
    days: Annotated[int, Meta(ge=1)] = 3,
    sure: bool = False,
    units: Literal["metric", "imperial"] = "metric",
    near: str | int | None = None,
    total: Annotated[int, Meta(extra={"unhashable": []})] = 0,
) -> None: ...


def plain(city: str, days: int, sure: bool, units: Literal["metric", "imperial"]) -> None: ...


def nothing() -> None: ...


PLAIN, FORECAST, NOTHING = Signature(plain), Signature(forecast), Signature(nothing)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (
            b'{"city":"Oslo","days":3,"sure":true,"units":"metric"}',
            {"city": "Oslo", "days": 3, "sure": True, "units": "metric"},
        ),
        (
            '{"days":0,"sure":true,"units":"metric","city":"Tromsø"}'.encode(),
            {"city": "Tromsø", "days": 0, "sure": True, "units": "metric"},
        ),
    ],
)
def test_what_is_said_in_the_shortest_way_is_found_at_a_glance(
    raw: bytes, found: dict[str, Any]
) -> None:
    assert PLAIN.decode_plain(Raw(raw)) == found == PLAIN.decode(raw)


def test_what_is_not_sent_is_left_to_the_function() -> None:
    def found(days: int = 3, near: str | None = None) -> None: ...

    assert Signature(found).decode_plain(Raw(b"{}")) == {}
    assert Signature(found).decode_plain(Raw(b'{"near":null}')) == {"near": None}
    assert NOTHING.decode_plain(Raw(b"{}")) == {}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"7",
        b"[]",
        b"{}",
        b'{"city":"Oslo","city":"Oslo","days":3,"sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":3,"sure":true,"units":"metric","unknown":1}',
        b'{"city":"Oslo","days":3,"sure":true,"units":"metric" }',
        b'{"cit\\u0079":"Oslo","days":3,"sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":-0,"sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":3.0,"sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":"3","sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":3,"sure":true,"units":"other"}',
        b'{"city":"\xff","days":3,"sure":true,"units":"metric"}',
        b'{"city":"Oslo","days":3,"sure":true,"units":"metric"',
    ],
)
def test_everything_else_is_left_to_the_long_way(raw: bytes) -> None:
    assert PLAIN.decode_plain(Raw(raw)) is None


def test_what_is_not_hashable_in_a_type_is_no_trouble() -> None:
    def found(
        total: Annotated[int, Meta(extra={"a": []})],
        self: Annotated[int, Meta(extra={"a": []})] | None = None,
    ) -> Annotated[int, Meta(extra={"a": []})]: ...

    signature = Signature(found)
    assert signature.decode_plain(Raw(b'{"self":null,"total":1}')) == {"self": None, "total": 1}
    codec = signature.output()
    assert codec is not None
    assert codec.encode(1) == b"1"


def _float(x: float) -> None: ...
def _list(x: list[str]) -> None: ...
def _open(x: Any) -> None: ...
def _named(x: Annotated[str, Field(alias="y")]) -> None: ...
def _filled(x: Annotated[str, Field(default_factory=lambda: "")]) -> None: ...


@pytest.mark.parametrize("function", [_float, _list, _open, _named, _filled])
def test_what_may_become_longer_or_needs_more_is_never_found_at_a_glance(function: Any) -> None:
    for raw in (b"{}", b'{"x":1}', b'{"x":"1"}', b'{"y":"1"}', b'{"x":1e3}', b'{"x":["a"]}'):
        assert Signature(function).decode_plain(Raw(raw)) is None


_names = st.sampled_from(
    [
        *(b'"city"', b'"days"', b'"sure"', b'"units"', b'"near"', b'"total"'),
        *(b'"other"', b'"d\\u0061ys"'),
    ]
)
_values = st.sampled_from(
    [
        *(b'"Oslo"', b'"metric"', b'"\\u0022"', b'"\\""', b'"\\/"', b'"\\ud83d\\ude00"', b'""'),
        *(b"3", b"-0", b"3.0", b"1e2", b"true", b"false", b"null", b"{}", b'{"a":1,"a":2}', b"[1]"),
    ]
)
_gaps = st.sampled_from([b"", b"", b"", b" "])


@settings(max_examples=400)
@given(st.lists(st.tuples(_names, _values, _gaps), max_size=6))
def test_a_glance_is_the_long_way_or_nothing_and_has_no_member_twice(
    members: list[tuple[bytes, bytes, bytes]],
) -> None:
    raw = b"{%b}" % b",".join(b"%b:%b%b" % one for one in members)
    for signature in (FORECAST, PLAIN, NOTHING):
        found = signature.decode_plain(Raw(raw))
        if found is not None:
            assert found == signature.decode(raw)
            assert not has_duplicate_members(raw)
