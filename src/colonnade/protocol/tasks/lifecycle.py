"""The life cycle of a task: a record and an event give the next record.

`TRANSITIONS` is the state machine. An event that it does not list for a status is ignored, so a
terminal status is final. A worker runs a task under a lease; its events carry the number of that
lease, and are dropped if another worker has taken the task since.

Rules: no I/O, no clock, no randomness: `now` is an argument. The caller replaces the old record by
the new one in its store only if the old one is still there (compare and swap); if it is not, it
reads again and applies the event again. So each event is applied to the state that it meets.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import FastEnum, Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import MAX_INPUT_REQUESTS, InputRequest
from colonnade.protocol.revision import Revision
from colonnade.protocol.tasks.record import TaskError, TaskRecord

# Input requests over the whole life of a task; the digest of each is kept.
MAX_TASK_INPUT_REQUESTS = 1000
# A status message is a line for a person; the rest of a longer one is cut off.
MAX_MESSAGE_CHARACTERS = 1000


# ---------------------------------------------------------------- events


class LeaseTaken(Struct, frozen=True):
    """A worker wants to run the task. `owner` is unique among all workers, `until` absolute."""

    owner: str
    until: float


class LeaseRenewed(Struct, frozen=True):
    """The worker is still alive."""

    lease: int
    until: float


class LeaseReleased(Struct, frozen=True):
    """The worker gives the task back; `parked` if it is not to be run before a response."""

    lease: int
    parked: bool = False


class InputRequested(Struct, frozen=True):
    """The handler waits for a response to this input request."""

    lease: int
    key: str
    request: InputRequest


class InputReceived(Struct, frozen=True):
    """A client of this revision sent responses, by key; `tasks/update` or a response in core."""

    responses: Mapping[str, Raw]
    revision: Revision


class InputRefused(Struct, frozen=True):
    """A client responded to an input request with an error, which the handler is to see."""

    key: str
    error: TaskError


class InputWithdrawn(Struct, frozen=True):
    """The handler no longer waits for these: it gave up waiting, or does not ask any more."""

    lease: int
    keys: frozenset[str]


class EffectRecorded(Struct, frozen=True):
    """The handler did something once; `value` is its JSON result."""

    lease: int
    key: str
    value: Raw


class ProgressReported(Struct, frozen=True):
    """The handler reported progress."""

    lease: int
    progress: float
    total: float | None = None
    message: str | None = None


class TaskCompleted(Struct, frozen=True):
    """The handler returned, and its result is stored under the number of the lease.

    `message` is the text of the result if `is_error`.
    """

    lease: int
    is_error: bool = False
    message: str | None = None


class TaskFailed(Struct, frozen=True):
    """The call ended with a JSON-RPC error."""

    lease: int
    error: TaskError


class CancelRequested(Struct, frozen=True):
    """The client or the server cancels the task."""

    message: str = "the task was cancelled"


class TaskExpired(Struct, frozen=True):
    """The time for the run may be over; ignored if it is not."""


WorkEvent: TypeAlias = (
    LeaseTaken
    | LeaseRenewed
    | LeaseReleased
    | InputRequested
    | InputReceived
    | InputRefused
    | InputWithdrawn
    | EffectRecorded
    | ProgressReported
)
EndEvent: TypeAlias = TaskCompleted | TaskFailed | CancelRequested | TaskExpired
TaskEvent: TypeAlias = WorkEvent | EndEvent


# ---------------------------------------------------------------- the table


# R0527, R0528: for each status, the events that change a task and the status after them. As long as
# other input requests are pending, a response does not lead out of `input_required` (R0535, R1188).
TRANSITIONS: Final[Mapping[t.TaskStatus, Mapping[type[Struct], t.TaskStatus]]] = {
    "working": {
        LeaseTaken: "working",
        LeaseRenewed: "working",
        LeaseReleased: "working",
        InputRequested: "input_required",
        EffectRecorded: "working",
        ProgressReported: "working",
        TaskCompleted: "completed",
        TaskFailed: "failed",
        CancelRequested: "cancelled",
        TaskExpired: "failed",
    },
    "input_required": {
        LeaseTaken: "input_required",
        LeaseRenewed: "input_required",
        LeaseReleased: "input_required",
        InputRequested: "input_required",
        InputReceived: "working",
        InputRefused: "working",
        InputWithdrawn: "working",
        EffectRecorded: "input_required",
        ProgressReported: "input_required",
        TaskCompleted: "completed",
        TaskFailed: "failed",
        CancelRequested: "cancelled",
        TaskExpired: "failed",
    },
    "completed": {},
    "failed": {},
    "cancelled": {},
}


class Outcome(FastEnum):
    """What became of an event."""

    APPLIED: "ClassVar[Outcome]"  # there is a new record
    UNCHANGED: "ClassVar[Outcome]"  # known already, not due, or about keys that are not pending
    ENDED: "ClassVar[Outcome]"  # the task has a terminal status
    STALE_LEASE: "ClassVar[Outcome]"  # from a worker that no longer has the lease
    NOT_RUNNABLE: "ClassVar[Outcome]"  # another worker has the lease, or the task is parked


class Transition(Struct, frozen=True):
    """The record after an event; the very same one unless the outcome is `APPLIED`.

    `notify` is whether the client sees a difference: send the task to those that listen to it.
    """

    record: TaskRecord
    outcome: Outcome
    notify: bool = False

    @property
    def applied(self) -> bool:
        """Whether there is a new record to store."""
        return self.outcome is Outcome.APPLIED


def apply(record: TaskRecord, event: TaskEvent, now: float) -> Transition:
    """Apply an event.

    Raises `Fault` for a response that does not fit its input request: no response of the event is
    taken then (D52). Raises `LocalProtocolError` for too many input requests, or a key that has
    meant another one.
    """
    if record.ended:
        return Transition(record, Outcome.ENDED)
    number: int | None = getattr(event, "lease", None)
    if number is not None and (record.lease_until is None or number != record.lease_number):
        return Transition(record, Outcome.STALE_LEASE)
    status = TRANSITIONS[record.status].get(type(event))
    if status is None:
        return Transition(record, Outcome.UNCHANGED)
    if isinstance(event, EndEvent):
        return _apply_end(record, event, status, now)
    return _apply_change(record, event, status, now)


def _apply_change(
    record: TaskRecord, event: WorkEvent, status: t.TaskStatus, now: float
) -> Transition:
    match event:
        case LeaseTaken():
            return _take(record, event, now)
        case LeaseRenewed():
            return _silent(record, lease_until=float(event.until))
        case LeaseReleased():
            return _silent(record, lease_until=None, parked=event.parked)
        case InputRequested():
            return _request_input(record, event, status, now)
        case InputReceived():
            return _receive_input(record, event, status, now)
        case InputRefused():
            return _refuse_input(record, event, status, now)
        case InputWithdrawn():
            return _answer(record, status, now, event.keys & record.pending.keys())
        case EffectRecorded():
            return _record_effect(record, event)
        case _:
            return _report_progress(record, event, now)


def _apply_end(record: TaskRecord, event: EndEvent, status: t.TaskStatus, now: float) -> Transition:
    match event:
        case TaskCompleted():
            message = event.message or ("the tool returned an error" if event.is_error else None)
            number, failed = record.lease_number, event.is_error
            return _end(record, status, now, message, result_of=number, is_error=failed)
        case TaskFailed():  # R1212, R0574
            return _end(record, status, now, event.error.message, error=event.error)
        case CancelRequested():
            return _end(record, status, now, event.message)
        case _:
            return _expire(record, status, now)


# ---------------------------------------------------------------- leases


def is_runnable(record: TaskRecord, now: float) -> bool:
    """Whether a worker may take the task: it is not over, not parked, and has no valid lease."""
    free = record.lease_until is None or record.lease_until <= now
    return free and not record.parked and not record.ended


def _take(record: TaskRecord, event: LeaseTaken, now: float) -> Transition:
    if not is_runnable(record, now):
        return Transition(record, Outcome.NOT_RUNNABLE)
    # A worker that was stopped has released its lease; one that died has not.
    died = record.lease_until is not None
    return _silent(
        record,
        lease_owner=event.owner,
        lease_until=float(event.until),
        lease_number=record.lease_number + 1,
        attempt=record.attempt + died,
    )


# ---------------------------------------------------------------- input requests


def input_key(record: TaskRecord, key: str, request: InputRequest) -> str:
    """The key to send an input request under: `key`, unless that has meant another one (D53).

    R1182: a key never means two input requests. The other one gets a number after its key, and
    finds it again when the handler runs from the top.
    """
    digest = request.digest()
    candidate, number = key, 1
    while record.digests.get(candidate, digest) != digest:
        number += 1
        candidate = f"{key}.{number}"
    return candidate


def _request_input(
    record: TaskRecord, event: InputRequested, status: t.TaskStatus, now: float
) -> Transition:
    digest = event.request.digest()
    known = record.digests.get(event.key)
    if known is not None and known != digest:  # R1182
        raise LocalProtocolError(f"the key {event.key!r} has meant another input request")
    if event.key in record.pending or event.key in record.responses or event.key in record.refusals:
        return Transition(record, Outcome.UNCHANGED)  # sent already, before a restart
    if len(record.pending) >= MAX_INPUT_REQUESTS:
        raise LocalProtocolError(f"more than {MAX_INPUT_REQUESTS} pending input requests")
    if known is None and len(record.digests) >= MAX_TASK_INPUT_REQUESTS:
        raise LocalProtocolError(f"more than {MAX_TASK_INPUT_REQUESTS} input requests in one task")
    return _visible(
        record,
        now,
        status=status,
        pending=record.pending | {event.key: event.request.as_input()},
        digests=record.digests | {event.key: digest},
    )


def _receive_input(
    record: TaskRecord, event: InputReceived, status: t.TaskStatus, now: float
) -> Transition:
    accepted: dict[str, Raw] = {}
    for key, raw in event.responses.items():
        asked = record.pending.get(key)
        if asked is None:  # R1187: the value of such a key is not even decoded
            continue
        request = InputRequest(asked.params or t.ListRootsRequestParams())
        try:
            request.decode_response(raw, event.revision)
        except Fault as fault:
            raise Fault(fault.kind, f"inputResponses, at `{key}`: {fault.message}") from None
        accepted[key] = Raw(bytes(raw))
    return _answer(record, status, now, frozenset(accepted), responses=record.responses | accepted)


def _refuse_input(
    record: TaskRecord, event: InputRefused, status: t.TaskStatus, now: float
) -> Transition:
    keys = frozenset({event.key}) & record.pending.keys()
    return _answer(record, status, now, keys, refusals=record.refusals | {event.key: event.error})


def _answer(
    record: TaskRecord, status: t.TaskStatus, now: float, keys: frozenset[str], **changes: Any
) -> Transition:
    if not keys:
        return Transition(record, Outcome.UNCHANGED)
    left = {key: asked for key, asked in record.pending.items() if key not in keys}
    after = record.status if left else status
    return _visible(record, now, status=after, pending=left, parked=False, attempt=0, **changes)


# ---------------------------------------------------------------- effects and progress


def _record_effect(record: TaskRecord, event: EffectRecorded) -> Transition:
    if event.key in record.journal:  # the first one counts
        return Transition(record, Outcome.UNCHANGED)
    value = Raw(bytes(event.value))
    return _silent(record, journal=record.journal | {event.key: value}, attempt=0)


def _report_progress(record: TaskRecord, event: ProgressReported, now: float) -> Transition:
    if record.progress is not None and event.progress <= record.progress:
        return Transition(record, Outcome.UNCHANGED)  # D32; and a handler that runs from the top
    message = event.message
    if message is None:
        message = f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
    return _visible(record, now, progress=float(event.progress), message=_cut(message))


# ---------------------------------------------------------------- the end


def _expire(record: TaskRecord, status: t.TaskStatus, now: float) -> Transition:
    if now < record.run_until:
        return Transition(record, Outcome.UNCHANGED)
    seconds = record.run_until - record.created_at
    fault = Fault(FaultKind.INTERNAL, f"the task was not done after {seconds:g} seconds")
    return _end(record, status, now, fault.message, error=TaskError.of(fault))


def _end(
    record: TaskRecord, status: t.TaskStatus, now: float, message: str | None, **changes: Any
) -> Transition:
    """End the task. What only a further run would need is dropped, arguments included."""
    ttl_s = record.ttl_s
    if ttl_s is None:
        ttl_s = max(now - record.created_at, 0.0) + record.keep_s
    return _visible(
        record,
        now,
        status=status,
        message=None if message is None else _cut(message),
        ttl_s=ttl_s,
        arguments=Raw(b"{}"),
        pending={},
        digests={},
        responses={},
        refusals={},
        journal={},
        lease_until=None,
        parked=False,
        **changes,
    )


def due_at(record: TaskRecord) -> float:
    """When its time is over: that of the run, or that of an ended task, which is deleted then."""
    if record.ended and record.ttl_s is not None:
        return record.created_at + record.ttl_s
    return record.run_until


def retention_s(record: TaskRecord, now: float) -> float:
    """How long a store is to keep the record; 0 if it is to be deleted.

    A task that still runs is kept beyond the end of its time, so that the client sees how it ended.
    """
    extra = 0.0 if record.ended else record.keep_s
    return max(due_at(record) + extra - now, 0.0)


# ---------------------------------------------------------------- new records


def _silent(record: TaskRecord, **changes: Any) -> Transition:
    """A change that no client sees."""
    return Transition(replace(record, **changes), Outcome.APPLIED)


def _visible(record: TaskRecord, now: float, **changes: Any) -> Transition:
    """A change that clients see. The clocks of two servers may differ: time never goes back."""
    updated_at = max(float(now), record.updated_at)
    return Transition(replace(record, updated_at=updated_at, **changes), Outcome.APPLIED, True)


def _cut(message: str) -> str:
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
