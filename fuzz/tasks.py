"""Tasks: stored records, responses to their input requests, cursors, handles, and states.

Rules: as in the other targets. A record that can be decoded is one that can be ended and stored.
"""

from random import Random

import msgspec
from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, InvalidArgument
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Tasks
from colonnade.protocol.tasks.client import MAX_POLL_S, PollAfter, TaskHandle, next_step, state_of
from colonnade.protocol.tasks.lifecycle import (
    CancelRequested,
    InputReceived,
    InputRequested,
    LeaseTaken,
    TaskExpired,
    apply,
    retention_s,
)
from colonnade.protocol.tasks.record import (
    TaskLimits,
    TaskRecord,
    decode_cursor,
    decode_record,
    encode_cursor,
    encode_record,
    make_task_id,
    new_task,
)
from colonnade.protocol.tasks.results import ext_get_task_result, get_task_result
from fuzz.corpus import ANSWERS, CLIENT_CAN, FORM, SAMPLE, Seed, seed
from fuzz.mutate import MAX_INPUT_BYTES, mutate
from fuzz.target import Case, check_fault, held, ours

NOW = 1_790_000_000.0


def _record() -> TaskRecord:
    """A task that waits for everything that can be asked."""
    capabilities = decode_as(t.ClientCapabilities, seed(CLIENT_CAN).body)
    record = new_task(
        id=make_task_id(NOW, bytes(16)),
        principal="ada",
        tool="book",
        arguments=Raw(b'{"flight":"DY 620"}'),
        peer=Peer(JULY_2026, capabilities),
        limits=TaskLimits(),
        now=NOW,
        requested_ttl_ms=90_000,
    )
    record = apply(record, LeaseTaken("one", NOW + 30), NOW).record
    asked = {
        "seat": InputRequest(decode_as(t.ElicitRequestParams, seed(FORM).body)),
        "words": InputRequest(decode_as(t.CreateMessageRequestParams, seed(SAMPLE).body)),
        "roots": InputRequest(t.ListRootsRequestParams()),
    }
    for key, request in asked.items():
        record = apply(record, InputRequested(1, key, request), NOW).record
    return record


RECORD = _record()
CORE, EXTENSION = Encoder(NOVEMBER_2025), Encoder(JULY_2026)


def _parsed(body: bytes) -> Seed:
    return Seed(body, msgspec.json.decode(body))


SEEDS = {
    "record": _parsed(encode_record(RECORD)),
    "update": seed({key: ANSWERS[key] for key in ("seat", "words", "roots")}),
    "core": _parsed(CORE.result(get_task_result(RECORD))),
    "extension": _parsed(EXTENSION.result(ext_get_task_result(RECORD, JULY_2026))),
    "cursor": Seed(encode_cursor(RECORD.id).encode()),
    "handle": Seed(TaskHandle("https://a.example", "x", "book", Tasks.CORE).encode().encode()),
}
OTHERS = tuple(SEEDS.values())


class StoredTasks:
    """`protocol.tasks`: whatever a store, a client or a server has, in what it was kept or sent."""

    name = "tasks"

    def draw(self, rng: Random, most: int) -> Case:
        where = rng.choice(list(SEEDS))
        return Case(where, (mutate(rng, SEEDS[where], OTHERS, gently=True)[:MAX_INPUT_BYTES],))

    def check(self, case: Case) -> list[str]:
        (body,) = case.parts
        match case.where:
            case "record":
                return [_check_record(body)]
            case "update":
                return [_check_update(body)]
            case "cursor" | "handle":
                return [_check_text(case.where, body.decode("utf-8", "replace"))]
            case _:
                return [_check_state(case.where, body)]


def _check_record(body: bytes) -> str:
    record = ours(lambda: decode_record(body))
    if isinstance(record, ColonnadeError):
        held(isinstance(record, InvalidArgument), "a record was refused as a peer's")
        return "record refused"
    held(decode_record(encode_record(record)) == record, "a record is another one when stored")
    retention_s(record, NOW)
    for event in (CancelRequested(), TaskExpired()):
        after = apply(record, event, NOW).record
        held(after is record or after.ended, "an end does not end a task")
    return "record"


def _check_update(body: bytes) -> str:
    responses = ours(lambda: decode_as(dict[str, Raw], body))
    if isinstance(responses, ColonnadeError):
        return "no responses"
    result = ours(lambda: apply(RECORD, InputReceived(responses, JULY_2026), NOW))
    if isinstance(result, Fault):
        check_fault(result)
        return "responses refused"
    held(not isinstance(result, ColonnadeError), f"responses were refused as ours: {result!r}")
    record = result.record if not isinstance(result, ColonnadeError) else RECORD
    held(record.responses.keys() <= responses.keys() & RECORD.pending.keys(), "another response")
    held(decode_record(encode_record(record)) == record, "responses cannot be stored")
    return f"{len(record.responses)} responses"


def _check_text(where: str, text: str) -> str:
    if where == "cursor":
        last = ours(lambda: decode_cursor(text))
        if not isinstance(last, ColonnadeError):
            held(encode_cursor(last) == text, "two cursors for one task")
            return "cursor"
        held(isinstance(last, Fault), "a cursor was refused as ours")
        return "cursor refused"
    handle = ours(lambda: TaskHandle.decode(text))
    if isinstance(handle, TaskHandle):
        held(TaskHandle.decode(handle.encode()) == handle, "a handle is another one when kept")
        return "handle"
    return "handle refused"


def _check_state(where: str, body: bytes) -> str:
    kind = t.GetTaskResult if where == "core" else t.ExtGetTaskResult
    received = ours(lambda: decode_as(kind, body))
    if isinstance(received, ColonnadeError):
        return "state refused"
    step = next_step(state_of(received), frozenset({"seat"}), 3, NOW)
    if isinstance(step, PollAfter):
        held(0 <= step.delay_s <= MAX_POLL_S, f"a poll after {step.delay_s} seconds")
    return type(step).__name__
