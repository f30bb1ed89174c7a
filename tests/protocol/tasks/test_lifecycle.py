"""The life cycle of a task, event by event: the table, leases, input, effects, the end."""

import json
from itertools import product

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.protocol.input_requests import MAX_INPUT_REQUESTS
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.protocol.tasks.lifecycle import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TASK_INPUT_REQUESTS,
    TRANSITIONS,
    CancelRequested,
    EffectRecorded,
    InputReceived,
    InputRefused,
    InputRequested,
    InputWithdrawn,
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    Outcome,
    ProgressReported,
    TaskCompleted,
    TaskEvent,
    TaskExpired,
    TaskFailed,
    apply,
    due_at,
    input_key,
    is_runnable,
    retention_s,
)
from colonnade.protocol.tasks.record import TERMINAL, TaskError, TaskRecord
from protocol.input_requests import ROOTS, sample
from protocol.task_records import (
    ERROR,
    GENERATIONS,
    LIMITS,
    NAMED,
    NOW,
    after,
    applied,
    created,
    name_form,
    raw,
    responses,
    running,
    waiting,
)

LATER = NOW + 10
OVER = NOW + LIMITS.max_run_s

# One event of each kind that applies to a running task which waits for input under `a`.
EVENTS: tuple[TaskEvent, ...] = (
    LeaseTaken("other", NOW + 9000),
    LeaseRenewed(1, NOW + 9000),
    LeaseReleased(1),
    InputRequested(1, "b", name_form("b")),
    responses("a"),
    InputRefused("a", ERROR),
    InputWithdrawn(1, frozenset({"a"})),
    EffectRecorded(1, "x", raw(1)),
    ProgressReported(1, 1),
    TaskCompleted(1),
    TaskFailed(1, ERROR),
    CancelRequested(),
    TaskExpired(),
)

ENDED = [
    after(running(), TaskCompleted(1)),
    after(running(), TaskCompleted(1, is_error=True)),
    after(running(), TaskFailed(1, ERROR)),
    after(running(), CancelRequested()),
    after(running(), TaskExpired(), now=OVER),
]


def of_ended(record: TaskRecord) -> str:
    return f"{record.status}{' with isError' * record.is_error}"


# ---------------------------------------------------------------- the table


def test_the_table_knows_every_status_and_every_event() -> None:
    assert {type(event) for event in EVENTS} == TRANSITIONS["input_required"].keys()
    assert TRANSITIONS.keys() == {"working", "input_required", *TERMINAL}


@pytest.mark.spec("R0527")
def test_the_table_has_only_the_transitions_of_the_specification() -> None:
    allowed = {
        "working": {"working", "input_required", *TERMINAL},
        "input_required": {"working", "input_required", *TERMINAL},
        **{status: set[str]() for status in TERMINAL},
    }
    for status, row in TRANSITIONS.items():
        assert set(row.values()) <= allowed[status]


@pytest.mark.spec("R0527")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("record", [running(), waiting("a")], ids=lambda record: record.status)
def test_an_event_leads_to_the_status_of_the_table(record: TaskRecord, event: TaskEvent) -> None:
    transition = apply(record, event, OVER)
    expected = TRANSITIONS[record.status].get(type(event))
    if expected is None:
        assert transition.outcome is Outcome.UNCHANGED
        assert transition.record is record
    else:
        assert transition.applied
        assert transition.record.status == expected


@pytest.mark.spec("R0528", "R0562")
@pytest.mark.parametrize("record", ENDED, ids=of_ended)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_ended_task_never_changes(record: TaskRecord, event: TaskEvent) -> None:
    for now in (NOW, OVER, OVER * 2):
        transition = apply(record, event, now)
        assert transition.outcome is Outcome.ENDED
        assert transition.record is record
        assert not transition.notify


@pytest.mark.parametrize("record", ENDED, ids=of_ended)
def test_an_ended_task_is_not_run(record: TaskRecord) -> None:
    assert not is_runnable(record, OVER * 2)


# ---------------------------------------------------------------- leases


def test_a_new_task_is_taken_by_the_first_worker() -> None:
    record = created()
    assert is_runnable(record, NOW)
    taken = applied(record, LeaseTaken("one", NOW + 30), now=NOW)
    assert (taken.record.lease_owner, taken.record.lease_until) == ("one", NOW + 30)
    assert (taken.record.lease_number, taken.record.attempt) == (1, 0)
    assert not taken.notify
    assert taken.record.updated_at == NOW
    assert apply(taken.record, LeaseTaken("two", NOW + 30), NOW).outcome is Outcome.NOT_RUNNABLE


def test_a_lease_that_lapsed_is_taken_by_another_worker_under_the_next_number() -> None:
    record = after(running(), LeaseRenewed(1, NOW + 40))
    assert not is_runnable(record, NOW + 39.9)
    assert is_runnable(record, NOW + 40)
    taken = after(record, LeaseTaken("two", NOW + 70), now=NOW + 40)
    assert (taken.lease_owner, taken.lease_number, taken.attempt) == ("two", 2, 1)


@pytest.mark.parametrize(
    "event",
    [event for event in EVENTS if hasattr(event, "lease")],
    ids=lambda event: type(event).__name__,
)
def test_the_events_of_a_worker_that_lost_its_lease_are_dropped(event: TaskEvent) -> None:
    lost = after(waiting("a"), LeaseTaken("two", NOW + 7000), now=NOW + 60)
    released = after(waiting("a"), LeaseReleased(1))
    for record in (lost, released, created()):
        transition = apply(record, event, OVER)
        assert transition.outcome is Outcome.STALE_LEASE
        assert transition.record is record


def test_a_worker_whose_lease_lapsed_keeps_it_until_another_takes_it() -> None:
    record = running()
    assert after(record, LeaseRenewed(1, NOW + 90), now=NOW + 60).lease_until == NOW + 90
    assert after(record, TaskCompleted(1), now=NOW + 60).status == "completed"


def test_a_released_task_is_run_at_once_and_counts_as_the_same_attempt() -> None:
    record = after(running(), LeaseReleased(1))
    assert is_runnable(record, NOW)
    taken = after(record, LeaseTaken("two", NOW + 30))
    assert (taken.lease_number, taken.attempt) == (2, 0)


def test_a_parked_task_is_run_again_when_a_response_arrives() -> None:
    parked = after(waiting("a", "b"), LeaseReleased(1, parked=True))
    assert not is_runnable(parked, OVER)
    assert apply(parked, LeaseTaken("two", OVER), OVER).outcome is Outcome.NOT_RUNNABLE
    assert is_runnable(after(parked, responses("b")), NOW)
    assert is_runnable(after(parked, InputRefused("a", ERROR)), NOW)


def test_attempts_are_counted_until_the_task_advances() -> None:
    record = created()
    for number in range(1, 4):
        record = after(record, LeaseTaken("w", NOW + number), now=NOW + number)
        assert record.attempt == number - 1
    assert after(record, EffectRecorded(3, "x", raw(1))).attempt == 0
    asked = after(record, InputRequested(3, "a", name_form()))
    assert asked.attempt == 2
    assert after(asked, responses("a")).attempt == 0


# ---------------------------------------------------------------- input


@pytest.mark.spec("R0532")
def test_a_task_that_needs_input_says_so() -> None:
    asked = applied(running(), InputRequested(1, "a", name_form()), now=LATER)
    assert asked.record.status == "input_required"
    assert asked.notify
    assert asked.record.updated_at == LATER
    assert asked.record.pending["a"].params == name_form().params


@pytest.mark.spec("R0535")
@pytest.mark.parametrize("revision", GENERATIONS, ids=lambda revision: revision.date)
def test_a_task_goes_on_when_all_input_is_there(revision: Revision) -> None:
    record = waiting("a", "b", revision=revision)
    first = applied(record, responses("a", revision=revision))
    assert first.record.status == "input_required"
    assert first.notify
    assert list(first.record.pending) == ["b"]
    second = applied(first.record, responses("b", revision=revision))
    assert second.record.status == "working"
    assert second.record.pending == {}
    assert second.record.responses == {"a": NAMED, "b": NAMED}


def test_sampling_and_roots_are_answered_like_a_form() -> None:
    record = after(
        running(), InputRequested(1, "s", sample("sum it up")), InputRequested(1, "r", ROOTS)
    )
    said = raw({"role": "assistant", "content": {"type": "text", "text": "short"}, "model": "m"})
    roots = raw({"roots": [{"uri": "file:///tea"}]})
    record = after(record, InputReceived({"s": said, "r": roots}, NOVEMBER_2025))
    assert record.status == "working"
    assert record.responses == {"s": said, "r": roots}


def test_a_declined_form_is_a_response() -> None:
    said = raw({"action": "decline"})
    assert after(waiting("a"), responses("a", value=said)).responses == {"a": said}


def test_an_error_in_response_is_kept_for_the_handler() -> None:
    error = TaskError.of(RemoteError(-32603, "no terminal"))
    refused = applied(waiting("a"), InputRefused("a", error))
    assert refused.record.status == "working"
    assert refused.record.refusals == {"a": error}
    assert refused.notify
    again = apply(refused.record, InputRefused("a", error), NOW)
    assert again.outcome is Outcome.UNCHANGED
    other = waiting("b")
    assert apply(other, InputRefused("a", error), NOW).record is other


@pytest.mark.spec("R1187")
@pytest.mark.parametrize("value", [b'{"ignored":true}', b"null", b'{"a":1,"a":2}', b"not JSON"])
def test_a_key_that_is_not_pending_is_ignored_whatever_its_value_is(value: bytes) -> None:
    record = after(waiting("a", "b"), responses("a"))
    for key in ("unknown", "a"):
        transition = apply(record, responses(key, value=Raw(value)), NOW)
        assert transition.outcome is Outcome.UNCHANGED
        assert transition.record is record
    mixed = InputReceived({"a": Raw(value), "b": NAMED, "?": Raw(value)}, JULY_2026)
    assert after(record, mixed).responses == {"a": NAMED, "b": NAMED}
    assert apply(running(), responses("a", value=Raw(value)), NOW).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    "value",
    [
        raw({"action": "accept", "content": {"name": 5}}),
        raw({"action": "accept", "content": {}}),
        raw({"action": "maybe"}),
        raw([]),
        Raw(b"not JSON"),
        Raw(b'{"action":"accept","action":"decline"}'),
    ],
    ids=lambda value: bytes(value).decode(),
)
def test_a_response_that_does_not_fit_changes_nothing_at_all(value: Raw) -> None:
    record = waiting("a", "b")
    for both in ({"a": NAMED, "b": value}, {"b": value, "a": NAMED}):
        with pytest.raises(Fault, match="inputResponses, at `b`") as caught:
            apply(record, InputReceived(both, NOVEMBER_2025), NOW)
        assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert record == waiting("a", "b")
    assert after(record, responses("a", "b")).status == "working"


@pytest.mark.spec("R1181", "R1182")
def test_a_key_never_means_two_input_requests() -> None:
    record = waiting("a")
    for before in (record, after(record, responses("a")), after(record, InputRefused("a", ERROR))):
        with pytest.raises(LocalProtocolError, match="'a' has meant another"):
            apply(before, InputRequested(1, "a", name_form("another")), NOW)


def test_the_same_input_request_is_not_sent_again_after_a_restart() -> None:
    record = waiting("a")
    assert apply(record, InputRequested(1, "a", name_form("a")), NOW).outcome is Outcome.UNCHANGED
    answered = after(record, responses("a"))
    again = apply(answered, InputRequested(1, "a", name_form("a")), NOW)
    assert again.outcome is Outcome.UNCHANGED
    assert again.record.status == "working"


def test_an_input_request_that_is_withdrawn_may_be_sent_again_under_its_key() -> None:
    record = waiting("a", "b")
    gone = applied(record, InputWithdrawn(1, frozenset({"a", "unknown"})))
    assert gone.notify
    assert (gone.record.status, list(gone.record.pending)) == ("input_required", ["b"])
    assert apply(gone.record, responses("a"), NOW).outcome is Outcome.UNCHANGED
    assert after(gone.record, InputWithdrawn(1, frozenset({"b"}))).status == "working"
    nothing = apply(gone.record, InputWithdrawn(1, frozenset({"a"})), NOW)
    assert nothing.outcome is Outcome.UNCHANGED
    with pytest.raises(LocalProtocolError, match="'a' has meant another"):
        apply(gone.record, InputRequested(1, "a", name_form("another")), NOW)
    again = after(gone.record, InputRequested(1, "a", name_form("a")))
    assert again.pending.keys() == {"a", "b"}


@pytest.mark.spec("R1182")
def test_a_name_whose_words_changed_gets_a_number_and_finds_it_again() -> None:
    record = after(waiting("a"), responses("a"))
    assert input_key(record, "a", name_form("a")) == "a"
    assert input_key(record, "new", name_form("a")) == "new"
    for number, about in enumerate(("b", "c"), start=2):
        key = input_key(record, "a", name_form(about))
        assert key == f"a.{number}"
        record = after(record, InputRequested(1, key, name_form(about)))
    assert input_key(record, "a", name_form("b")) == "a.2"
    assert input_key(record, "a", name_form("a")) == "a"


def test_input_requests_are_limited_at_once_and_for_life() -> None:
    asked = waiting(*(str(number) for number in range(MAX_INPUT_REQUESTS)))
    with pytest.raises(LocalProtocolError, match="50 pending"):
        apply(asked, InputRequested(1, "one more", name_form()), NOW)
    digests = {str(number): "0" for number in range(MAX_TASK_INPUT_REQUESTS)}
    with pytest.raises(LocalProtocolError, match="1000 input requests in one task"):
        apply(replace(running(), digests=digests), InputRequested(1, "x", name_form()), NOW)


# ---------------------------------------------------------------- effects and progress


def test_an_effect_is_recorded_once() -> None:
    first = applied(running(), EffectRecorded(1, "printed", raw({"copies": 3})), now=LATER)
    assert first.record.journal == {"printed": raw({"copies": 3})}
    assert not first.notify
    assert first.record.updated_at == NOW
    second = apply(first.record, EffectRecorded(1, "printed", raw("twice")), LATER)
    assert second.outcome is Outcome.UNCHANGED
    assert second.record is first.record


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ProgressReported(1, 2, 5, "chapter 2"), "chapter 2"),
        (ProgressReported(1, 2, 5), "2 of 5"),
        (ProgressReported(1, 0.25), "0.25"),
        (ProgressReported(1, 2, 5, "x" * 5000), "x" * (MAX_MESSAGE_CHARACTERS - 1) + "…"),
        (ProgressReported(1, 2, 5, ""), ""),
    ],
)
def test_progress_becomes_the_status_message(event: ProgressReported, message: str) -> None:
    reported = applied(running(), event, now=LATER)
    assert reported.record.message == message
    assert reported.notify
    assert reported.record.updated_at == LATER


def test_progress_that_does_not_increase_is_dropped() -> None:
    record = after(running(), ProgressReported(1, 3, 5, "three"))
    for progress in (3, 2.5, 0):
        again = apply(record, ProgressReported(1, progress, 5, "again"), LATER)
        assert again.outcome is Outcome.UNCHANGED
    assert after(record, ProgressReported(1, 4)).message == "4"


# ---------------------------------------------------------------- the end


def test_a_completed_task_names_the_lease_whose_result_counts() -> None:
    taken = after(running(), LeaseTaken("two", NOW + 90), now=NOW + 60)
    ended = applied(taken, TaskCompleted(2), now=LATER)
    assert ended.record.result_of == 2
    assert (ended.record.message, ended.record.is_error) == (None, False)
    assert ended.notify
    assert apply(ended.record, TaskCompleted(1), LATER).record.result_of == 2


@pytest.mark.spec("R0574")
@pytest.mark.parametrize(
    ("event", "message"),
    [
        (TaskCompleted(1, is_error=True, message="no tea"), "no tea"),
        (TaskCompleted(1, is_error=True), "the tool returned an error"),
        (TaskFailed(1, ERROR), "no such topic"),
        (TaskExpired(), "the task was not done after 7200 seconds"),
        (CancelRequested(), "the task was cancelled"),
        (CancelRequested("the client is gone"), "the client is gone"),
        (TaskFailed(1, TaskError("y" * 2000)), "y" * 999 + "…"),
    ],
)
def test_the_end_has_a_message(event: TaskEvent, message: str) -> None:
    assert after(running(), event, now=OVER).message == message


def test_a_task_that_was_not_done_in_time_has_an_internal_error() -> None:
    ended = after(running(), TaskExpired(), now=OVER)
    assert ended.status == "failed"
    assert ended.error is not None
    error = ended.error.error()
    assert isinstance(error, Fault)
    assert error.kind is FaultKind.INTERNAL


def test_no_task_expires_early() -> None:
    record = running()
    assert apply(record, TaskExpired(), OVER - 0.001).outcome is Outcome.UNCHANGED
    assert apply(record, TaskExpired(), OVER).applied
    short = created(NOVEMBER_2025, requested_ttl_ms=90_000)
    assert apply(short, TaskExpired(), NOW + 89.9).outcome is Outcome.UNCHANGED
    assert (
        after(short, TaskExpired(), now=NOW + 90).message
        == "the task was not done after 90 seconds"
    )


def test_an_ended_task_is_kept_for_a_time_that_counts_from_its_end() -> None:
    record = running()
    assert due_at(record) == OVER
    assert retention_s(record, NOW) == LIMITS.max_run_s + LIMITS.keep_s
    ended = after(record, TaskCompleted(1), now=NOW + 100)
    assert ended.ttl_s == 100 + LIMITS.keep_s
    assert due_at(ended) == NOW + 100 + LIMITS.keep_s
    assert retention_s(ended, NOW + 100) == LIMITS.keep_s
    assert retention_s(ended, NOW + 9000) == 0


def test_a_requested_ttl_stays_as_it_was_told() -> None:
    ended = after(created(NOVEMBER_2025, requested_ttl_ms=90_000), CancelRequested(), now=NOW + 10)
    assert ended.ttl_s == 90
    assert retention_s(ended, NOW + 10) == 80


def test_a_clock_that_is_behind_changes_no_time_back() -> None:
    record = after(running(), ProgressReported(1, 1), now=NOW + 50)
    ended = after(record, TaskCompleted(1), now=NOW - 30)
    assert ended.updated_at == NOW + 50
    assert ended.ttl_s == LIMITS.keep_s


def test_every_pair_of_ends_keeps_the_first() -> None:
    ends: tuple[TaskEvent, ...] = (
        TaskCompleted(1),
        TaskCompleted(1, is_error=True),
        TaskFailed(1, ERROR),
        CancelRequested(),
        TaskExpired(),
    )
    for first, second in product(ends, ends):
        ended = after(running(), first, now=OVER)
        assert apply(ended, second, OVER).record is ended


def test_the_recorded_error_is_that_of_the_call() -> None:
    failed = after(running(), TaskFailed(1, ERROR))
    assert failed.error == ERROR
    assert json.loads(bytes(ERROR.data)) == {"topic": "tea"}
    assert failed.result_of == 0
