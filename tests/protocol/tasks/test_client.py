"""The client of a task: handles, delays between polls, and what to do about a state."""

import json
from base64 import urlsafe_b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from colonnade.errors import InvalidArgument, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.revision import JULY_2026, Tasks
from colonnade.protocol.tasks.client import (
    CLOCK_DIFFERENCE_S,
    FIRST_POLL_S,
    MAX_HANDLE_CHARACTERS,
    MAX_POLL_S,
    MAX_QUIET_POLL_S,
    MIN_POLL_S,
    FetchResult,
    HasError,
    HasExpired,
    HasResult,
    PollAfter,
    RespondToInput,
    TaskHandle,
    TaskState,
    WasCancelled,
    next_step,
    poll_delay_s,
    state_of,
    update_task_params,
)
from colonnade.protocol.tasks.lifecycle import CancelRequested, TaskCompleted, TaskFailed
from colonnade.protocol.tasks.record import TaskRecord
from colonnade.protocol.tasks.results import (
    cancel_task_result,
    create_task_result,
    ext_create_task_result,
    ext_get_task_result,
    ext_task_status,
    get_task_result,
    task,
    task_status,
)
from protocol.input_requests import ROOTS, reply, sample
from protocol.task_records import (
    ERROR,
    NOW,
    after,
    created,
    name_form,
    raw,
    running,
    waiting,
)

NOTHING: frozenset[str] = frozenset()
ENDPOINT = "https://press.example/mcp"

# ---------------------------------------------------------------- handles


@given(
    server=st.text(max_size=100),
    task_id=st.text(max_size=100),
    tool=st.text(max_size=100),
    generation=st.sampled_from([Tasks.CORE, Tasks.EXTENSION]),
)
def test_a_handle_is_one_string_and_back(
    server: str, task_id: str, tool: str, generation: Tasks
) -> None:
    handle = TaskHandle(server, task_id, tool, generation)
    text = handle.encode()
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert TaskHandle.decode(f" {text}\n") == handle


def test_a_handle_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="4096"):
        TaskHandle(ENDPOINT, "x" * MAX_HANDLE_CHARACTERS, "book", Tasks.CORE).encode()


def test_there_is_no_handle_without_tasks() -> None:
    with pytest.raises(InvalidArgument, match="without tasks"):
        TaskHandle(ENDPOINT, "x", "book", Tasks.NONE).encode()


def handle_of(value: Any) -> str:
    return "task1." + urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "task1.",
        "task2.W10",
        "https://press.example/mcp",
        "task1.!!!",
        "task1.é",
        handle_of({}),
        handle_of(["a", "b", "c"]),
        handle_of(["a", "b", 5, "core"]),
        handle_of(["a", "b", "c", "core", "d"]),
        "task1." + urlsafe_b64encode(b"[" * 2000).decode(),
        "task1." + "a" * MAX_HANDLE_CHARACTERS,
    ],
)
def test_other_strings_are_no_handle(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a task handle"):
        TaskHandle.decode(text)


def test_a_handle_of_a_later_generation_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidArgument, match="'quantum'; use a newer version"):
        TaskHandle.decode(handle_of([ENDPOINT, "x", "book", "quantum"]))


@given(text=st.text(max_size=60).map("task1.".__add__) | st.text(max_size=60))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    with suppress(InvalidArgument):
        assert isinstance(TaskHandle.decode(text), TaskHandle)


# ---------------------------------------------------------------- states


def extended(record: TaskRecord, result: Raw = t.ABSENT) -> TaskState:
    return state_of(ext_get_task_result(record, JULY_2026, result))


def test_a_state_is_the_same_from_every_message_of_a_generation() -> None:
    record = created()
    core = state_of(get_task_result(record))
    assert core == TaskState(
        task_id=record.id,
        status="working",
        generation=Tasks.CORE,
        created_at=NOW,
        last_updated_at="2026-09-21T14:13:20.000Z",
        poll_interval_s=2.0,
    )
    for message in (
        create_task_result(record),
        task(record),
        task_status(record),
        cancel_task_result(record),
    ):
        assert state_of(message) == core
    ext = extended(record)
    assert ext == replace(core, generation=Tasks.EXTENSION)
    assert state_of(ext_create_task_result(record)) == ext
    assert state_of(ext_task_status(record, JULY_2026)) == ext


def test_a_task_without_a_ttl_is_kept_without_a_limit_and_null_is_sent() -> None:
    # As `mcp` up to 1.30 sends it (D70).
    members = b'"taskId":"1","status":"working","createdAt":"","lastUpdatedAt":""'
    begun = decode_as(t.CreateTaskResult, b'{"task":{%s}}' % members)
    found = decode_as(t.ExtGetTaskResult, b"{%s}" % members)
    assert [state_of(one).ttl_s for one in (begun, found)] == [None, None]
    assert b'"ttl":null' in encode(begun)
    assert b'"ttlMs":null' in encode(found)


def test_what_a_task_needs_or_resulted_in_is_in_the_state() -> None:
    asked = waiting("a")
    assert extended(asked).input_requests == asked.pending
    assert not extended(asked).ended
    done = after(running(), TaskCompleted(1))
    assert extended(done, raw({"content": []})).result == raw({"content": []})
    assert extended(done, raw({"content": []})).ended
    failed = extended(after(running(), TaskFailed(1, ERROR)))
    assert failed.error is not None
    assert failed.error.code == -32602


def received(**more: Any) -> TaskState:
    """The state of a task as a server sent it, valid or not."""
    sent = {
        "resultType": "complete",
        "taskId": "x",
        "status": "working",
        "createdAt": "2026-09-21T14:13:20Z",
        "lastUpdatedAt": "2026-09-21T14:13:20Z",
        "ttlMs": None,
    }
    return state_of(decode_as(t.ExtGetTaskResult, json.dumps(sent | more).encode()))


@pytest.mark.parametrize("value", [0, -1, -(10**400)])
def test_an_interval_or_a_ttl_that_is_not_positive_is_none(value: int) -> None:
    state = received(pollIntervalMs=value, ttlMs=value)
    assert (state.poll_interval_s, state.ttl_s) == (None, None)


@pytest.mark.parametrize("value", [10 * 365 * 24 * 3600 * 1000, 10**400])
def test_an_absurd_interval_or_ttl_is_still_a_number(value: int) -> None:
    state = received(pollIntervalMs=value, ttlMs=value)
    assert next_step(state, NOTHING, 0, NOW) == PollAfter(MAX_POLL_S)
    assert isinstance(next_step(state, NOTHING, 0, NOW + 3600), PollAfter)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("2026-09-21T14:13:20Z", NOW),
        ("2026-09-21T16:13:20.000+02:00", NOW),
        ("2026-09-21T14:13:20", NOW),
        ("yesterday", None),
        ("", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_time_that_is_not_valid_is_none(said: str, seconds: float | None) -> None:
    found = received(createdAt=said).created_at
    if seconds is None:
        assert found is None or found < 0
    else:
        assert found == seconds


# ---------------------------------------------------------------- polls


@given(interval=st.floats(0.0001, 1e9), quiet=st.integers(0, 10**6))
def test_no_poll_is_earlier_than_the_server_said(interval: float, quiet: int) -> None:
    delay = poll_delay_s(interval, quiet)
    assert MIN_POLL_S <= delay <= MAX_POLL_S
    assert delay >= min(interval, MAX_POLL_S)


def test_without_an_interval_the_delay_grows_to_an_end() -> None:
    delays = [poll_delay_s(None, quiet) for quiet in range(20)]
    assert delays[0] == FIRST_POLL_S
    assert delays == sorted(delays)
    assert delays[-1] == poll_delay_s(None, 10**9) == MAX_QUIET_POLL_S


# ---------------------------------------------------------------- steps


def test_a_working_task_is_polled_at_its_interval() -> None:
    assert next_step(extended(running()), NOTHING, 3, NOW) == PollAfter(2.0)
    assert next_step(state_of(get_task_result(running())), NOTHING, 3, NOW) == PollAfter(2.0)
    assert next_step(received(), NOTHING, 1, NOW) == PollAfter(FIRST_POLL_S * 1.5)


def test_each_input_request_is_responded_to_once() -> None:
    state = extended(waiting("a", "b"))
    first = next_step(state, NOTHING, 0, NOW)
    assert isinstance(first, RespondToInput)
    assert first.requests.keys() == {"a", "b"}
    second = next_step(state, frozenset({"a"}), 0, NOW)
    assert isinstance(second, RespondToInput)
    assert second.requests.keys() == {"b"}
    assert next_step(state, frozenset({"a", "b"}), 0, NOW) == PollAfter(2.0)


def test_the_outcome_of_the_extension_is_in_the_state() -> None:
    done = after(running(), TaskCompleted(1, is_error=True))
    assert next_step(extended(done, raw({})), NOTHING, 0, NOW) == HasResult(raw({}))
    failed = next_step(extended(after(running(), TaskFailed(1, ERROR))), NOTHING, 0, NOW)
    assert isinstance(failed, HasError)
    assert failed.error.message == "no such topic"


@pytest.mark.parametrize("event", [TaskCompleted(1), TaskFailed(1, ERROR)])
def test_a_task_that_had_ended_when_it_was_created_is_read_at_once(event: Any) -> None:
    state = state_of(ext_create_task_result(after(running(), event)))
    assert next_step(state, NOTHING, 0, NOW) == PollAfter(0.0)


def test_core_has_outcome_and_input_requests_in_tasks_result() -> None:
    for record in (
        waiting("a"),
        after(running(), TaskCompleted(1)),
        after(running(), TaskCompleted(1, is_error=True)),
        after(running(), TaskFailed(1, ERROR)),
    ):
        assert next_step(state_of(get_task_result(record)), NOTHING, 0, NOW) == FetchResult()


def test_a_cancelled_task_is_over_in_both_generations() -> None:
    record = after(running(), CancelRequested("enough"))
    for state in (extended(record), state_of(get_task_result(record))):
        assert next_step(state, NOTHING, 0, NOW) == WasCancelled("enough")


def test_a_ttl_that_is_over_ends_the_wait_unless_the_task_has_ended() -> None:
    state = received(ttlMs=90_000)
    over = NOW + 90 + CLOCK_DIFFERENCE_S
    assert isinstance(next_step(state, NOTHING, 0, over), PollAfter)
    assert next_step(state, NOTHING, 0, over + 1) == HasExpired()
    unknown = received(ttlMs=90_000, createdAt="?")
    assert isinstance(next_step(unknown, NOTHING, 0, over + 1), PollAfter)
    done = received(ttlMs=90_000, status="completed", result={})
    assert next_step(done, NOTHING, 0, over + 1) == HasResult(raw({}))


# ---------------------------------------------------------------- tasks/update


def test_responses_may_be_sent_for_some_input_requests() -> None:
    encoder = Encoder(JULY_2026)
    asked = {key: one.as_input() for key, one in (("s", sample("x")), ("r", ROOTS))}
    asked["f"] = name_form().as_input()
    params = update_task_params("x", asked, {"r": reply(ROOTS), "s": reply(sample("x"))}, encoder)
    assert params.task_id == "x"
    assert params.input_responses.keys() == {"r", "s"}
    without = {"r": t.ListRootsRequest()}
    assert update_task_params("x", without, {"r": reply(ROOTS)}, encoder).input_responses
    assert update_task_params("x", asked, {}, encoder).input_responses == {}


def test_a_response_that_does_not_fit_is_not_sent() -> None:
    encoder = Encoder(JULY_2026)
    asked = {"f": name_form().as_input()}
    good = t.ElicitResult(action="accept", content={"name": "Ada"})
    with pytest.raises(LocalProtocolError):
        update_task_params("x", asked, {"f": replace(good, content={"name": 5})}, encoder)
    with pytest.raises(LocalProtocolError, match="no input request 'g'"):
        update_task_params("x", asked, {"g": good}, encoder)
    sent = update_task_params("x", asked, {"f": good}, encoder).input_responses["f"]
    assert json.loads(bytes(sent)) == {"action": "accept", "content": {"name": "Ada"}}
