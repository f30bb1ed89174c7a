"""Names of streams, which say what is lost when all else about a stream is gone."""

import pytest

from colonnade.protocol.http.security import HttpError
from colonnade.protocol.jsonrpc import encode
from colonnade.transport.http_server.sessions.event_ids import (
    MAX_MARK_BYTES,
    NOTIFICATIONS_MARK,
    bound_tag,
    ids_of,
    is_of,
    mark_of,
    split_event_id,
)

TAG = bound_tag("session", "5f3a9c01", "k2vabcdefghijklm")


@pytest.mark.parametrize(
    "ids",
    [[1], [-7], ["a"], ['with "quotes", commas - and dashes'], ["é"], [1, "1", 2**40], []],
)
def test_the_name_of_a_stream_says_which_requests_it_is_for(ids: list[int | str]) -> None:
    raw_ids = [encode(id) for id in ids]
    assert ids_of(f"{TAG}-7{mark_of(raw_ids)}") == raw_ids


def test_the_name_of_a_stream_says_that_it_is_for_notifications() -> None:
    assert ids_of(f"{TAG}-7{NOTIFICATIONS_MARK}") is None


def test_a_name_stays_short_and_its_stream_is_then_refused_with_what_is_known() -> None:
    longest = encode("i" * (MAX_MARK_BYTES - 2))
    assert ids_of(f"{TAG}-7{mark_of([longest])}") == [longest]
    with pytest.raises(HttpError, match="whether it had an effect is unknown") as caught:
        ids_of(f"{TAG}-7{mark_of([longest, b'1'])}")
    assert (caught.value.status, caught.value.data) == (410, {"effectUnknown": True})


@pytest.mark.parametrize(
    "mark", ["", ".", ".x", ".3", ".7b7d", ".5b5d", ".6e756c6c", ".31" + "31" * MAX_MARK_BYTES]
)
def test_a_name_that_no_stream_has_is_unknown(mark: str) -> None:
    if mark == ".":
        assert ids_of(f"{TAG}-7{mark}") == []
        return
    with pytest.raises(HttpError) as caught:
        ids_of(f"{TAG}-7{mark}")
    assert caught.value.status == 400


def test_a_name_is_of_one_session() -> None:
    assert is_of(f"{TAG}-7.31", "session")
    assert not is_of(f"{TAG}-7.31", "another")
    assert not is_of(f"{TAG[:-1]}x-7.31", "session")
    assert not is_of("-7.31", "session")


@pytest.mark.parametrize("event_id", ["", "x", "a-", "a--1x", f"a-{'9' * 16}"])
def test_an_event_id_without_a_number_is_unknown(event_id: str) -> None:
    with pytest.raises(HttpError) as caught:
        split_event_id(event_id)
    assert caught.value.status == 400
    assert split_event_id("a-b-3.31-12") == ("a-b-3.31", 12)
