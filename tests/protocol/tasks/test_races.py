"""Several processes change one task at once: every interleaving, and every order of events.

A process reads the entry of a task, applies an event, and writes the record only if the entry is
still what it read. `explore` takes these steps in every possible order. Each reachable state of
store and processes is visited once, so that this is all interleavings and still takes seconds.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import Fault, LocalProtocolError
from colonnade.protocol.tasks.lifecycle import (
    TRANSITIONS,
    CancelRequested,
    EffectRecorded,
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
    is_runnable,
    retention_s,
)
from colonnade.protocol.tasks.record import (
    TERMINAL,
    TaskRecord,
    decode_record,
    encode_record,
)
from colonnade.protocol.tasks.results import ext_create_task_result, get_task_result
from protocol.task_records import (
    ERROR,
    LIMITS,
    NOW,
    created,
    name_form,
    raw,
    responses,
    waiting,
)

OVER = NOW + LIMITS.max_run_s
# What a process does next, given the number of its lease, and its clock.
Step = tuple[Callable[[int], TaskEvent], float]


class Process(NamedTuple):
    """One process: what it has still to do, what it read last, and what became of its events."""

    todo: tuple[Step, ...]
    lease: int = 1
    read: bytes | None = None
    outcomes: tuple[str, ...] = ()


class World(NamedTuple):
    """The entry of the task, the results by the number of the lease, and all processes."""

    entry: bytes
    results: frozenset[int]
    processes: tuple[Process, ...]
    ends: int = 0


def process(*events: Callable[[int], TaskEvent], now: float, lease: int = 1) -> Process:
    return Process(tuple((event, now) for event in events), lease)


PROCESSES = {
    "cancel": process(lambda _: CancelRequested(), now=NOW + 5),
    "cancel again": process(lambda _: CancelRequested(), now=NOW + 6),
    "update": process(lambda _: responses("a"), now=NOW + 5),
    "update all": process(lambda _: responses("a", "b"), now=NOW + 6),
    "expire": process(lambda _: TaskExpired(), now=OVER),
    "complete": process(
        lambda lease: EffectRecorded(lease, "printed", raw(lease)), TaskCompleted, now=NOW + 59
    ),
    "fail": process(lambda lease: TaskFailed(lease, ERROR), now=NOW + 59),
    "park": process(
        lambda lease: InputRequested(lease, "c", name_form("c")),
        lambda lease: LeaseReleased(lease, parked=True),
        now=NOW + 59,
    ),
    "withdraw": process(
        lambda lease: InputWithdrawn(lease, frozenset({"a", "b"})),
        lambda lease: InputRequested(lease, "a", name_form("a")),
        now=NOW + 59,
    ),
    "take over": process(
        lambda _: LeaseTaken("two", NOW + 90),
        lambda lease: EffectRecorded(lease, "printed", raw(lease)),
        TaskCompleted,
        now=NOW + 60,
        lease=0,
    ),
    "take over as well": process(
        lambda _: LeaseTaken("three", NOW + 91),
        lambda lease: ProgressReported(lease, 1),
        lambda lease: TaskFailed(lease, ERROR),
        now=NOW + 61,
        lease=0,
    ),
}


def step(world: World, index: int) -> World:
    """One read, or one write, of one process."""
    mine = world.processes[index]
    (make, now), rest = mine.todo[0], mine.todo[1:]
    event = make(mine.lease)
    if mine.read is None:
        # A result is written before the record that names it.
        new = {mine.lease} if isinstance(event, TaskCompleted) else set[int]()
        return changed(world, index, mine._replace(read=world.entry), results=world.results | new)
    transition = apply(decode_record(mine.read), event, now)
    if transition.applied and world.entry != mine.read:
        return changed(world, index, mine._replace(read=None))
    said = (*mine.outcomes, transition.outcome.name)
    if not transition.applied:
        goes_on = transition.outcome is Outcome.UNCHANGED
        done = mine._replace(read=None, todo=rest if goes_on else (), outcomes=said)
        return changed(world, index, done)
    record = transition.record
    lease = record.lease_number if isinstance(event, LeaseTaken) else mine.lease
    done = Process(rest, lease, None, said)
    ends = world.ends + record.ended
    return changed(world, index, done, entry=encode_record(record), ends=ends)


def changed(world: World, index: int, mine: Process, **more: Any) -> World:
    processes = (*world.processes[:index], mine, *world.processes[index + 1 :])
    return world._replace(processes=processes, **more)


def explore(first: World) -> Iterator[tuple[World, World | None]]:
    """Every state that can be reached, with each state after it; None where all are done."""
    seen, left = {first}, [first]
    while left:
        world = left.pop()
        able = [index for index, one in enumerate(world.processes) if one.todo]
        if not able:
            yield world, None
        for index in able:
            after = step(world, index)
            yield world, after
            if after not in seen:
                seen.add(after)
                left.append(after)


COMBINATIONS = [*combinations(PROCESSES, 2), *combinations(PROCESSES, 3)]


@pytest.mark.spec("R0528", "R0562")
@pytest.mark.parametrize("names", COMBINATIONS, ids=" + ".join)
def test_in_every_interleaving_a_task_ends_at_most_once(names: tuple[str, ...]) -> None:
    start = waiting("a", "b")
    first = World(encode_record(start), frozenset(), tuple(PROCESSES[name] for name in names))
    last = 0
    for world, after in explore(first):
        before = decode_record(world.entry)
        if after is None:
            last += 1
            check_last(names, world, before)
        elif after.entry != world.entry:
            check_change(before, decode_record(after.entry))
    assert last


def check_change(before: TaskRecord, after: TaskRecord) -> None:
    assert not before.ended, "an ended task has changed"
    assert after.lease_number >= before.lease_number
    if not after.ended:
        assert before.responses.items() <= after.responses.items(), "a response was lost"
        assert before.journal.items() <= after.journal.items(), "an effect was recorded twice"
        assert before.digests.items() <= after.digests.items()


def check_last(names: tuple[str, ...], world: World, record: TaskRecord) -> None:
    said = {name: one.outcomes for name, one in zip(names, world.processes, strict=True)}
    assert world.ends == record.ended
    if {"cancel", "cancel again", "expire"} & said.keys():
        assert record.ended
    if record.status == "completed":
        assert record.result_of in world.results
    cancelled = any(said.get(name) == ("APPLIED",) for name in ("cancel", "cancel again"))
    assert (record.status == "cancelled") == cancelled
    for name in ("update", "update all"):
        if said.get(name) == ("APPLIED",) and not record.ended:
            assert "a" in record.responses
    if any(one[:1] == ("APPLIED",) for name, one in said.items() if name.startswith("take over")):
        assert record.result_of != 1, "the result of a worker that lost its lease counts"


def test_the_interleavings_would_show_a_write_without_a_comparison() -> None:
    """The check is worth something: a process that writes blindly loses a response."""
    first = World(
        encode_record(waiting("a", "b")), frozenset(), (PROCESSES["update"], PROCESSES["park"])
    )
    lost = 0
    for world, after in explore(first):
        for mine in world.processes:
            if after is None or mine.read is None or mine.read == world.entry:
                continue
            make, now = mine.todo[0]
            blind = apply(decode_record(mine.read), make(mine.lease), now).record
            lost += not decode_record(world.entry).responses.items() <= blind.responses.items()
    assert lost


# ---------------------------------------------------------------- any order of events


LEASES = st.integers(0, 3)
KEYS = st.sampled_from(["a", "b", "c"])
TIMES = st.floats(NOW - 10, OVER + 100)
EVENTS = st.one_of(
    st.builds(LeaseTaken, st.sampled_from(["one", "two"]), TIMES),
    st.builds(LeaseRenewed, LEASES, TIMES),
    st.builds(LeaseReleased, LEASES, st.booleans()),
    st.builds(InputRequested, LEASES, KEYS, st.sampled_from([name_form("x"), name_form("y")])),
    st.builds(lambda keys: responses(*keys), st.sets(KEYS)),
    st.builds(lambda key: responses(key, value=raw({"action": "?"})), KEYS),
    st.builds(InputRefused, KEYS, st.just(ERROR)),
    st.builds(InputWithdrawn, LEASES, st.frozensets(KEYS)),
    st.builds(EffectRecorded, LEASES, KEYS, st.sampled_from([raw(1), raw(2)])),
    st.builds(ProgressReported, LEASES, st.floats(0, 10)),
    st.builds(TaskCompleted, LEASES, st.booleans()),
    st.builds(TaskFailed, LEASES, st.just(ERROR)),
    st.just(CancelRequested()),
    st.just(TaskExpired()),
)


@pytest.mark.spec("R0527", "R1181", "R1182")
@settings(max_examples=400, derandomize=True)
@given(events=st.lists(st.tuples(EVENTS, TIMES), max_size=25), ttl_ms=st.none() | st.integers())
def test_any_sequence_of_events_keeps_the_invariants(
    events: list[tuple[TaskEvent, float]], ttl_ms: int | None
) -> None:
    record = created(requested_ttl_ms=ttl_ms)
    meant: dict[str, str] = {}
    for event, now in events:
        before = encode_record(record)
        try:
            transition = apply(record, event, now)
        except (Fault, LocalProtocolError):
            assert encode_record(record) == before
            continue
        after = transition.record
        assert encode_record(record) == before, "the argument was changed"
        assert decode_record(encode_record(after)) == after
        if transition.applied:
            assert not record.ended
            assert after.status in {record.status, *TRANSITIONS[record.status].values()}
            assert transition.notify or visible(after) == visible(record)
        else:
            assert after is record
            assert not transition.notify
        check_record(after, now)
        for key, digest in after.digests.items():
            assert meant.setdefault(key, digest) == digest
        record = after


def visible(record: TaskRecord) -> tuple[object, ...]:
    """All that a client sees of a task."""
    return get_task_result(record), ext_create_task_result(record), record.pending, record.error


def check_record(record: TaskRecord, now: float) -> None:
    assert (record.status == "input_required") == bool(record.pending)
    assert record.pending.keys() <= record.digests.keys()
    assert not record.pending.keys() & (record.responses.keys() | record.refusals.keys())
    assert record.updated_at >= record.created_at
    assert (record.status == "completed") == bool(record.result_of)
    assert (record.status == "failed") == (record.error is not None)
    assert not record.is_error or record.status == "completed"
    assert retention_s(record, now) >= 0
    if record.ended:
        assert record.status in TERMINAL
        assert record.ttl_s is not None
        assert record.ttl_s > 0
        assert record.lease_until is None
        assert not is_runnable(record, now)
        assert not record.pending | record.responses | record.journal | record.digests
