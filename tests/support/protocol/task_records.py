"""Task records and events for tests: one task of a client that supports every input request.

Rules: no clock, no randomness. `NOW` is the creation of every task here.
"""

import json
from typing import Any

from msgspec import Raw

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.protocol.tasks.lifecycle import (
    InputReceived,
    InputRequested,
    LeaseTaken,
    TaskEvent,
    Transition,
    apply,
)
from colonnade.protocol.tasks.record import (
    TaskError,
    TaskLimits,
    TaskRecord,
    make_task_id,
    new_task,
)
from protocol.links import ABLE_CLIENT

NOW = 1_790_000_000.0
LIMITS = TaskLimits(max_run_s=7200, keep_s=600, poll_interval_s=2)
GENERATIONS = (NOVEMBER_2025, JULY_2026)


def task_id(number: int = 0, now: float = NOW) -> str:
    """A task id whose random bits are a number."""
    return make_task_id(now, number.to_bytes(16, "big"))


def created(
    revision: Revision = JULY_2026,
    *,
    number: int = 0,
    limits: TaskLimits = LIMITS,
    arguments: str = '{"topic":"tea"}',
    **more: Any,
) -> TaskRecord:
    """A new task."""
    return new_task(
        id=task_id(number),
        principal="ada",
        tool="book",
        arguments=Raw(arguments.encode()),
        peer=Peer(revision, ABLE_CLIENT),
        limits=limits,
        now=NOW,
        **more,
    )


def after(record: TaskRecord, *events: TaskEvent, now: float = NOW + 1) -> TaskRecord:
    """The record after events that all apply."""
    for event in events:
        record = applied(record, event, now=now).record
    return record


def applied(record: TaskRecord, event: TaskEvent, *, now: float = NOW + 1) -> Transition:
    """The transition of an event that applies."""
    transition = apply(record, event, now)
    assert transition.applied, (transition.outcome, event)
    return transition


def running(revision: Revision = JULY_2026, **more: Any) -> TaskRecord:
    """A task that a worker runs, under the lease with number 1."""
    return after(created(revision, **more), LeaseTaken("worker", NOW + 31))


def waiting(*keys: str, revision: Revision = JULY_2026) -> TaskRecord:
    """A task that waits for input under these keys."""
    events = [InputRequested(1, key, name_form(key)) for key in keys]
    return after(running(revision), *events)


def name_form(about: str = "you") -> InputRequest:
    """An elicitation of one string, `name`."""
    fields = {"name": t.PrimitiveSchema(type="string")}
    form = t.ElicitSchema(properties=fields, required=["name"])
    return InputRequest(t.ElicitRequestParams(message=f"Who is {about}?", requested_schema=form))


def raw(value: Any) -> Raw:
    """Any value as raw JSON."""
    return Raw(json.dumps(value).encode())


NAMED = raw({"action": "accept", "content": {"name": "Ada"}})


def responses(*keys: str, value: Raw = NAMED, revision: Revision = JULY_2026) -> InputReceived:
    """The same response under each of these keys."""
    return InputReceived(dict.fromkeys(keys, value), revision)


ERROR = TaskError.of(Fault(FaultKind.INVALID_PARAMS, "no such topic", {"topic": "tea"}))
