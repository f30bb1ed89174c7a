"""Our own requests in flight: ids, deadlines, progress."""

import json

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.in_flight import MAX_SENT, OutgoingRequest, OutgoingRequests


def sent(
    flight: OutgoingRequests,
    timeout_s: float = 10,
    max_s: float = 25,
    progress: bool = True,
    *,
    method: str = "tools/call",
    now: float = 100.0,
) -> OutgoingRequest:
    return flight.open(method, now, timeout_s, max_s, progress)


def test_ids_count_up_and_are_never_used_again() -> None:
    flight = OutgoingRequests()
    ids: list[RequestId] = []
    for _ in range(5):
        call = sent(flight)
        ids.append(call.id)
        flight.settle(call.id)
    assert ids == [1, 2, 3, 4, 5]
    assert len(flight) == 0
    assert sent(OutgoingRequests(next_id=9)).id == 9


def test_ids_name_their_sender_if_there_are_several() -> None:
    flight = OutgoingRequests()
    flight.sender = "abc"
    assert (flight.id_of_next(), sent(flight).id, sent(flight).id) == ("abc.1", "abc.1", "abc.2")
    assert flight.by_progress_token("abc.2") is flight.get("abc.2") is not None


def test_an_answer_settles_its_own_call_once() -> None:
    flight = OutgoingRequests()
    first, second = sent(flight), sent(flight)
    for unknown in ("1", 0, 3, None, "", -1):
        assert flight.settle(unknown) is None
        assert flight.get(unknown) is None
    assert flight.settle(second.id) is second
    assert flight.settle(second.id) is None
    assert flight.get(first.id) is first
    assert [call.id for call in flight.calls] == [first.id]


def test_what_is_handed_out_of_it_moves_nothing_in_it() -> None:
    flight = OutgoingRequests()
    sent(flight)
    (copy,) = flight.calls
    copy.deadline = 0.0
    assert flight.next_deadline == 110.0
    restored = OutgoingRequests(5, flight.calls)
    (call,) = restored.overdue(1e9)
    restored.progress(call, 1, 105.0)
    assert (restored.next_deadline, flight.next_deadline) == (115.0, 110.0)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_every_call_ends_some_day(seconds: float) -> None:
    flight = OutgoingRequests()
    for times in ((seconds, 10), (10, seconds)):
        with pytest.raises(LocalProtocolError, match="timeout"):
            sent(flight, *times)
    assert (len(flight), flight.next_id) == (0, 1)


def test_calls_that_nobody_answers_are_bounded() -> None:
    flight = OutgoingRequests()
    for _ in range(MAX_SENT):
        sent(flight)
    with pytest.raises(LocalProtocolError, match=str(MAX_SENT)):
        sent(flight)
    flight.settle(1)
    assert sent(flight).id == MAX_SENT + 1


def test_a_time_out_is_the_shorter_of_the_two() -> None:
    flight = OutgoingRequests()
    assert sent(flight, timeout_s=10, max_s=25).deadline == 110.0
    assert sent(flight, timeout_s=10, max_s=5).deadline == 105.0
    assert flight.next_deadline == 105.0
    assert [call.id for call in flight.overdue(105.0)] == [2]
    assert [call.id for call in flight.overdue(110.0)] == [1, 2]
    assert flight.overdue(104.9) == []
    assert OutgoingRequests().next_deadline is None


def test_progress_gives_more_time_but_never_more_than_the_limit() -> None:
    flight = OutgoingRequests()
    call = sent(flight, timeout_s=10, max_s=25)
    assert call.timeout_text == "10"
    for now, deadline in ((108.0, 118.0), (117.0, 125.0), (124.0, 125.0)):
        assert flight.progress(call, now, now)
        assert call.deadline == deadline
    assert call.timeout_text == "25"


def test_progress_that_does_not_go_up_gives_nothing() -> None:
    flight = OutgoingRequests()
    call = sent(flight)
    assert flight.progress(call, 5, 101.0)
    for value in (5, 4.9, 0, -1):
        assert not flight.progress(call, value, 109.0)
    assert (call.last_progress, call.deadline) == (5, 111.0)
    assert flight.progress(call, 10**400, 102.0)
    assert not flight.progress(call, 1e300, 103.0)


def test_progress_counts_for_a_call_that_runs_and_wants_it() -> None:
    flight = OutgoingRequests()
    call, quiet = sent(flight), sent(flight, progress=False)
    assert flight.by_progress_token(call.id) is call
    for token in (quiet.id, "1", 3, 0):
        assert flight.by_progress_token(token) is None
    flight.settle(call.id)
    assert flight.by_progress_token(call.id) is None


def test_what_stays_open_has_no_deadline_and_never_gets_one() -> None:
    flight = OutgoingRequests()
    call = sent(flight, method="subscriptions/listen", now=0.0)
    flight.keep_open(call)
    assert flight.progress(call, 1, 5.0)
    assert (call.deadline, flight.next_deadline, flight.overdue(1e9)) == (None, None, [])
    assert call.timeout_text == "25"
    other = sent(flight)
    assert flight.overdue(1e9) == [other]
    assert flight.next_deadline == 110.0


def test_a_cancellation_names_the_call() -> None:
    call = sent(OutgoingRequests(next_id=7))
    assert json.loads(call.cancellation("enough")) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 7, "reason": "enough"},
    }
    assert json.loads(call.cancellation(None))["params"] == {"requestId": 7}


def test_what_stays_open_has_no_end_while_the_time_stands_still_nor_after() -> None:
    flight = OutgoingRequests()
    call = sent(flight)
    flight.keep_open(call)
    held = flight.pause_timeouts(100.0)
    assert flight.next_deadline is None
    assert flight.overdue(1e9) == []
    flight.resume_timeouts(held, 130.0)
    assert call.deadline is None
    assert flight.overdue(1e9) == []


def test_progress_while_the_time_stands_still_begins_it_anew_from_there() -> None:
    flight = OutgoingRequests()
    call = sent(flight, timeout_s=10, max_s=500)
    held = flight.pause_timeouts(104.0)
    assert flight.progress(call, 1, 190.0)
    flight.resume_timeouts(held, 200.0)
    assert call.deadline == 210.0


def test_who_goes_on_elsewhere_is_held_by_no_question_of_before() -> None:
    flight = OutgoingRequests()
    sent(flight)
    flight.pause_timeouts(104.0)
    assert OutgoingRequests(5, flight.calls).next_deadline == 110.0


@pytest.mark.parametrize(
    ("timeout_s", "after_s", "words"),
    [
        (0.5, 0.001202, "0.5"),
        (0.5, 0.0123, "0.5"),
        (0.05, 0.0, "0.05"),
        (0.01, 0.002, "0.1"),
        (1.25, 0.0, "1.25"),
        (60, 3.21, "63"),
        (0.2, 2.345678, "2.5"),
        (600, 0.0, "600"),
    ],
)
def test_how_long_it_was_waited_for_is_said_in_numbers_for_people(
    timeout_s: float, after_s: float, words: str
) -> None:
    flight = OutgoingRequests()
    call = sent(flight, timeout_s, 1000)
    if after_s:
        flight.progress(call, 1, 100.0 + after_s)
    assert call.timeout_text == words
