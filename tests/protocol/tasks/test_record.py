"""The record of a task: what is in it, how it is stored, task ids and cursors."""

import json
import re
import tracemalloc
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, InvalidArgument, LocalProtocolError, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, InputRequests, Revision
from colonnade.protocol.tasks.lifecycle import (
    CancelRequested,
    EffectRecorded,
    InputRefused,
    InputRequested,
    LeaseReleased,
    LeaseTaken,
    ProgressReported,
    TaskCompleted,
    TaskExpired,
    TaskFailed,
)
from colonnade.protocol.tasks.record import (
    MIN_TTL_S,
    TERMINAL,
    TaskError,
    TaskLimits,
    TaskRecord,
    decode_cursor,
    decode_record,
    encode_cursor,
    encode_record,
    inside_task,
    is_task_id,
    make_task_id,
    new_task,
    short_digest,
    unknown_task,
)
from protocol.input_requests import ROOTS, sample
from protocol.links import ABLE_CLIENT, ABLE_SERVER
from protocol.task_records import (
    ERROR,
    GENERATIONS,
    LIMITS,
    NOW,
    after,
    created,
    raw,
    responses,
    running,
    task_id,
    waiting,
)

# ---------------------------------------------------------------- creation


@pytest.mark.spec("R0526")
@pytest.mark.parametrize("revision", GENERATIONS, ids=lambda revision: revision.date)
def test_a_new_task_is_working(revision: Revision) -> None:
    record = created(revision)
    assert record.status == "working"
    assert not record.ended
    assert (record.revision, record.principal, record.tool) == (revision.date, "ada", "book")
    assert json.loads(bytes(record.arguments)) == {"topic": "tea"}
    assert record.created_at == record.updated_at == NOW
    assert "working" in repr(record)


def test_what_the_caller_may_be_asked_is_in_the_record() -> None:
    record = decode_record(encode_record(created(NOVEMBER_2025)))
    peer = record.peer()
    assert peer.capabilities == ABLE_CLIENT
    assert peer.revision.date == NOVEMBER_2025.date


@pytest.mark.parametrize("revision", ALL, ids=lambda revision: revision.date)
def test_a_handler_in_a_task_waits_for_input_in_every_revision(revision: Revision) -> None:
    seen = inside_task(revision)
    assert seen.input_requests is InputRequests.AS_REQUEST
    assert (seen.date, seen.methods) == (revision.date, revision.methods)
    assert inside_task(revision) is seen


def test_a_revision_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="2031-01-01"):
        replace(created(), revision="2031-01-01").peer()


def test_scopes_are_kept_sorted_and_none_stays_none() -> None:
    assert created().scopes is None
    assert created(scopes=frozenset({"b", "a"})).scopes == ("a", "b")
    assert created(scopes=frozenset()).scopes == ()


def test_a_call_without_arguments_has_empty_ones() -> None:
    assert bytes(created(arguments="").arguments) == b"{}"


def test_a_task_needs_an_id_of_ours_and_a_client() -> None:
    fields: dict[str, Any] = {
        "principal": "ada",
        "tool": "book",
        "arguments": Raw(b"{}"),
        "limits": LIMITS,
        "now": NOW,
    }
    with pytest.raises(InvalidArgument, match="make_task_id"):
        new_task(id="1", peer=Peer(JULY_2026, ABLE_CLIENT), **fields)
    with pytest.raises(InvalidArgument, match="only a server"):
        new_task(id=task_id(), peer=Peer(JULY_2026, ABLE_SERVER), **fields)


# ---------------------------------------------------------------- ttl


def test_without_a_requested_ttl_there_is_none_until_the_end() -> None:
    record = created()
    assert record.ttl_s is None
    assert record.run_until == NOW + LIMITS.max_run_s


@pytest.mark.parametrize(
    ("requested_ms", "ttl_s"),
    [
        (300_000, 300.0),
        (300_500, 300.5),
        (0, MIN_TTL_S),
        (-1, MIN_TTL_S),
        (1, MIN_TTL_S),
        (7_800_000, 7800.0),
        (7_800_001, 7800.0),
        pytest.param(10**400, 7800.0, id="huge"),
        pytest.param(-(10**400), MIN_TTL_S, id="huge and negative"),
    ],
)
def test_a_requested_ttl_is_kept_within_bounds(requested_ms: int, ttl_s: float) -> None:
    record = created(NOVEMBER_2025, requested_ttl_ms=requested_ms)
    assert record.ttl_s == ttl_s
    assert record.run_until == NOW + min(ttl_s, LIMITS.max_run_s)


def test_the_shortest_ttl_is_not_longer_than_the_longest() -> None:
    assert TaskLimits(max_run_s=3, keep_s=2).ttl_s(1) == 5


@pytest.mark.parametrize("name", ["max_run_s", "keep_s", "poll_interval_s"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_limit_is_a_positive_number(name: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match=name) as caught:
        TaskLimits(**{name: value})
    assert caught.value.argument == name


# ---------------------------------------------------------------- encoding


def several() -> list[TaskRecord]:
    """Records in every status, with every field used somewhere."""
    asked = after(
        waiting("a", "b", "c"),
        InputRequested(1, "s", sample("sum it up")),
        InputRequested(1, "r", ROOTS),
        responses("a"),
        InputRefused("b", ERROR),
        EffectRecorded(1, "chapter 1", raw({"title": "Leaves", "n": [1, None, 2.5]})),
        ProgressReported(1, 0.5, 3, "chapter 1"),
    )
    return [
        created(),
        created(NOVEMBER_2025, requested_ttl_ms=90_000, progress_token="t-1"),
        created(NOVEMBER_2025, progress_token=7, scopes=frozenset({"notes:write"})),
        running(),
        after(running(), LeaseTaken("other", NOW + 90), now=NOW + 60),
        asked,
        after(asked, LeaseReleased(1, parked=True)),
        after(asked, TaskCompleted(1)),
        after(running(), TaskCompleted(1, is_error=True, message="no tea")),
        after(running(), TaskFailed(1, ERROR)),
        after(running(), TaskFailed(1, TaskError.of(RemoteError(-32042, "elsewhere")))),
        after(asked, CancelRequested()),
        after(running(), TaskExpired(), now=NOW + 7200),
    ]


@pytest.mark.parametrize("record", several(), ids=lambda record: record.status)
def test_a_record_is_the_same_after_it_was_stored(record: TaskRecord) -> None:
    data = encode_record(record)
    again = decode_record(data)
    assert again == record
    assert encode_record(again) == data


def test_the_examples_use_every_field() -> None:
    empty = TaskRecord(
        id="", principal="", tool="", revision="", created_at=0, updated_at=0, run_until=0, keep_s=0
    )
    for name in TaskRecord.__struct_fields__:
        assert any(getattr(record, name) != getattr(empty, name) for record in several()), name
    assert {record.status for record in several()} == {"working", "input_required", *TERMINAL}


def test_the_stored_record_is_plain_json_with_its_version() -> None:
    stored = json.loads(encode_record(waiting("a")))
    assert stored["v"] == 1
    assert stored["pending"]["a"]["method"] == "elicitation/create"
    assert "token" not in json.dumps(stored)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a task record"),
        (b"\xff\x00", "not a task record"),
        (b"[]", "not a task record"),
        (b"{}", "not a task record"),
        (b'{"v":"1"}', "not a task record"),
        (b"[" * 10_000, "not a task record"),
        (b'{"v":2,"id":"x"}', "version 2; this program has version 1"),
        (b'{"v":1}', "cannot be decoded: Object missing required field `id`"),
        (b'{"v":1,"id":5}', "cannot be decoded: Expected `str`"),
    ],
)
def test_other_bytes_are_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_record(data)
    assert words in str(caught.value)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        decode_record(data)


@given(cut=st.integers(0, 600), byte=st.integers(0, 255))
def test_a_damaged_record_is_a_record_or_refused(cut: int, byte: int) -> None:
    data = bytearray(encode_record(waiting("a")))
    data[cut % len(data)] = byte
    with suppress(InvalidArgument):
        assert isinstance(decode_record(bytes(data)), TaskRecord)


def test_what_json_cannot_hold_is_refused_before_it_is_stored() -> None:
    bad: Any = object()
    with pytest.raises(LocalProtocolError):
        encode_record(replace(created(), tool=bad))


def test_ten_thousand_waiting_tasks_take_less_than_fifty_mebibytes() -> None:
    record = after(waiting("a"), LeaseReleased(1, parked=True))
    assert len(encode_record(record)) < 1200
    tracemalloc.start()
    try:
        kept = [encode_record(replace(record, id=task_id(number))) for number in range(10_000)]
        stored, _ = tracemalloc.get_traced_memory()
        decoded = [decode_record(data) for data in kept]
        both, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(decoded) == 10_000
    assert stored < 15 * 2**20
    assert both < 100 * 2**20


def test_an_ended_task_keeps_nothing_that_only_a_run_needs() -> None:
    asked = after(waiting("a"), EffectRecorded(1, "x", raw("secret draft")), responses("a"))
    for event in (TaskCompleted(1), TaskFailed(1, ERROR), CancelRequested()):
        data = encode_record(after(asked, event))
        assert b"secret" not in data
        assert b"Ada" not in data
        assert b"tea" not in data or isinstance(event, TaskFailed)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("revision", GENERATIONS, ids=lambda revision: revision.date)
def test_the_code_of_our_own_error_is_that_of_the_revision_that_reads_it(
    revision: Revision,
) -> None:
    fault = Fault(FaultKind.RESOURCE_MISSING, "gone", {"uri": "a:b"})
    recorded = TaskError.of(fault)
    shown = recorded.as_object(revision)
    assert shown.code == revision.codes[FaultKind.RESOURCE_MISSING]
    assert shown.message == "gone"
    assert json.loads(bytes(shown.data)) == {"uri": "a:b"}
    again = recorded.error()
    assert isinstance(again, Fault)
    assert (again.kind, again.message) == (fault.kind, fault.message)
    assert json.loads(bytes(again.data)) == fault.data


def test_the_error_of_another_party_keeps_its_code() -> None:
    recorded = TaskError.of(RemoteError(-7, "full"))
    assert recorded.as_object(JULY_2026) == t.ErrorObject(code=-7, message="full")
    again = recorded.error()
    assert isinstance(again, RemoteError)
    assert (again.code, again.message, again.data) == (-7, "full", None)


def test_a_kind_of_a_later_version_is_an_internal_error() -> None:
    recorded = msgspec.json.decode(b'{"message":"?","kind":"LATER"}', type=TaskError)
    again = recorded.error()
    assert isinstance(again, Fault)
    assert again.kind is FaultKind.INTERNAL
    assert recorded.as_object(JULY_2026).code == -32603


def test_data_that_json_cannot_hold_is_refused_before_it_is_recorded() -> None:
    with pytest.raises(LocalProtocolError):
        TaskError.of(Fault(FaultKind.INTERNAL, "x", float("nan")))


# ---------------------------------------------------------------- ids and cursors


def test_a_task_id_has_128_random_bits() -> None:
    assert make_task_id(NOW, b"\xff" * 16) == "01a0c4506c00-" + "f" * 32
    assert make_task_id(NOW, bytes(range(16))).endswith(bytes(range(16)).hex())


@given(
    first=st.floats(0, 2**48 / 1000 - 1),
    second=st.floats(0, 2**48 / 1000 - 1),
    bits=st.binary(min_size=16, max_size=16),
)
def test_task_ids_sort_by_time(first: float, second: float, bits: bytes) -> None:
    one, other = make_task_id(first, bits), make_task_id(second, bits)
    assert is_task_id(one)
    assert (one <= other) == (int(first * 1000) <= int(second * 1000))


@pytest.mark.parametrize("size", [0, 15, 17])
def test_fewer_or_more_random_bytes_are_refused(size: int) -> None:
    with pytest.raises(InvalidArgument, match="16 random bytes"):
        make_task_id(NOW, bytes(size))


@pytest.mark.parametrize("now", [-1.0, float("nan"), float("inf"), 2.0**48])
def test_a_time_that_does_not_fit_is_refused(now: float) -> None:
    with pytest.raises(InvalidArgument, match="since the epoch"):
        make_task_id(now, bytes(16))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        task_id() + "\n",
        task_id().upper().replace("0", "A"),
        "../" + task_id(),
        task_id()[1:],
    ],
)
def test_nothing_else_is_a_task_id(text: str) -> None:
    assert is_task_id(task_id())
    assert not is_task_id(text)


def test_a_digest_names_what_is_not_shown() -> None:
    assert short_digest(task_id(1)) == short_digest(task_id(1)) != short_digest(task_id(2))
    assert re.fullmatch("[0-9a-f]{16}", short_digest("a query, or the name of a server"))


def test_the_refusal_of_an_id_does_not_say_why() -> None:
    fault = unknown_task()
    assert fault.kind is FaultKind.INVALID_PARAMS
    assert (str(fault), fault.data) == (str(unknown_task()), None)


@given(number=st.integers(0, 2**128 - 1))
def test_a_cursor_is_the_id_of_the_last_task(number: int) -> None:
    cursor = encode_cursor(task_id(number))
    assert task_id(number) not in cursor
    assert decode_cursor(cursor) == task_id(number)


@pytest.mark.spec("R0569")
@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!!!",
        "é",
        task_id(),
        encode_cursor("x"),
        encode_cursor(task_id()) + "=",
        "a" * 5000,
    ],
)
def test_an_invalid_cursor_is_invalid_params(cursor: str) -> None:
    with pytest.raises(Fault) as caught:
        decode_cursor(cursor)
    assert NOVEMBER_2025.codes[caught.value.kind] == -32602


@given(cursor=st.text(max_size=70))
def test_any_text_is_a_cursor_or_refused(cursor: str) -> None:
    with suppress(Fault):
        assert encode_cursor(decode_cursor(cursor)) == cursor
