"""One record on the wire of both generations: results and notifications, and the official schemas."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

import official
from colonnade.errors import Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.input_requests import input_requests_in
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.protocol.tasks.lifecycle import (
    CancelRequested,
    InputRequested,
    ProgressReported,
    TaskCompleted,
    TaskExpired,
    TaskFailed,
)
from colonnade.protocol.tasks.record import TaskError, TaskRecord, decode_cursor
from colonnade.protocol.tasks.results import (
    cancel_task_result,
    create_task_result,
    ext_create_task_result,
    ext_get_task_result,
    ext_task_status,
    get_task_result,
    list_tasks_result,
    refused_cancellation,
    related,
    related_input_requests,
    task,
    task_payload,
    task_progress,
    task_status,
    timestamp,
)
from protocol.input_requests import ROOTS, sample, text
from protocol.links import LIBRARY
from protocol.task_records import (
    ERROR,
    GENERATIONS,
    LIMITS,
    NOW,
    after,
    created,
    responses,
    running,
    task_id,
    waiting,
)

JSON = dict[str, Any]
EXTENSION = "extensions/tasks"

CORE = Encoder(NOVEMBER_2025)
EXT = Encoder(JULY_2026, LIBRARY)
DONE = text("done")
RESULT = Raw(EXT.result(DONE))

STATES: dict[str, TaskRecord] = {
    "working": running(),
    "with a message": after(running(), ProgressReported(1, 1, 3)),
    "input_required": after(
        waiting("a", "b"), InputRequested(1, "s", sample("sum")), InputRequested(1, "r", ROOTS)
    ),
    "completed": after(running(), TaskCompleted(1)),
    "with isError": after(running(), TaskCompleted(1, is_error=True, message="no tea")),
    "failed": after(running(), TaskFailed(1, ERROR)),
    "expired": after(running(), TaskExpired(), now=NOW + LIMITS.max_run_s),
    "cancelled": after(running(), CancelRequested()),
    "of core": created(NOVEMBER_2025, requested_ttl_ms=90_000),
    "without an interval": replace(created(), poll_interval_s=None),
}
EVERY_STATE = pytest.mark.parametrize("record", STATES.values(), ids=STATES.keys())


def result_of(record: TaskRecord) -> Raw:
    return RESULT if record.status == "completed" else t.ABSENT


def problems(name: str, definition: str, data: bytes) -> list[str]:
    """What the official schema has against a message; nothing, and a word, if there is none."""
    if not official.available(name):
        print(f"no official schema of {name}: nothing was compared with it")
        return []
    return official.problems(name, definition, json.loads(data))


# ---------------------------------------------------------------- the schemas


@EVERY_STATE
def test_the_messages_of_core_match_its_schema(record: TaskRecord) -> None:
    date = NOVEMBER_2025.date
    messages: list[tuple[str, bytes]] = [
        ("CreateTaskResult", CORE.result(create_task_result(record, "it is being written"))),
        ("GetTaskResult", CORE.result(get_task_result(record))),
        ("CancelTaskResult", CORE.result(cancel_task_result(record))),
        ("ListTasksResult", CORE.result(list_tasks_result([record, record], more=True))),
        ("TaskStatusNotificationParams", CORE.params(task_status(record))),
    ]
    for definition, data in messages:
        assert problems(date, definition, data) == []


@EVERY_STATE
def test_the_messages_of_the_extension_match_its_schema(record: TaskRecord) -> None:
    result = result_of(record)
    messages: list[tuple[str, bytes]] = [
        ("CreateTaskResult", EXT.result(ext_create_task_result(record))),
        ("GetTaskResult", EXT.result(ext_get_task_result(record, JULY_2026, result))),
        ("TaskStatusNotificationParams", EXT.params(ext_task_status(record, JULY_2026, result))),
        ("UpdateTaskResult", EXT.result(t.ExtUpdateTaskResult())),
        ("CancelTaskResult", EXT.result(t.ExtCancelTaskResult())),
    ]
    for definition, data in messages:
        assert problems(EXTENSION, definition, data) == []


def test_the_schemas_would_find_a_mistake() -> None:
    if not official.available(EXTENSION):
        print("no official schema: nothing to try")
        return
    bad = json.loads(EXT.result(ext_get_task_result(STATES["working"], JULY_2026)))
    assert problems(EXTENSION, "GetTaskResult", json.dumps(bad).encode()) == []
    assert problems(EXTENSION, "GetTaskResult", json.dumps(bad | {"ttl": 1}).encode()) != []


# ---------------------------------------------------------------- core


def shown(message: t.ProtocolType) -> JSON:
    return json.loads(CORE.result(message))


@pytest.mark.spec("R0536", "R0537", "R0539")
def test_a_task_of_core_has_its_times_and_its_real_ttl() -> None:
    record = created(NOVEMBER_2025, requested_ttl_ms=1)
    record = after(record, CancelRequested(), now=NOW + 1.5)
    for message in (get_task_result(record), cancel_task_result(record)):
        assert shown(message) == {
            "taskId": record.id,
            "status": "cancelled",
            "statusMessage": "the task was cancelled",
            "createdAt": "2026-09-21T14:13:20.000Z",
            "lastUpdatedAt": "2026-09-21T14:13:21.500Z",
            "ttl": 60_000,
            "pollInterval": 2000,
        }


@pytest.mark.spec("R0539")
def test_a_ttl_that_is_not_limited_is_null_until_the_end() -> None:
    assert shown(get_task_result(running()))["ttl"] is None
    ended = after(running(), TaskCompleted(1), now=NOW + 0.0005)
    assert shown(get_task_result(ended))["ttl"] == 600_001


def test_a_created_task_is_nested_and_may_have_a_text_for_the_model() -> None:
    record = created(NOVEMBER_2025)
    assert shown(create_task_result(record)) == {"task": shown(get_task_result(record))}
    meta = shown(create_task_result(record, "wait"))["_meta"]
    assert meta == {"io.modelcontextprotocol/model-immediate-response": "wait"}


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("working", "working"),
        ("input_required", "input_required"),
        ("completed", "completed"),
        ("with isError", "failed"),
        ("failed", "failed"),
        ("expired", "failed"),
        ("cancelled", "cancelled"),
    ],
)
def test_core_says_failed_for_a_result_with_is_error(state: str, status: str) -> None:
    record = STATES[state]
    assert task(record).status == get_task_result(record).status == status
    assert task_status(record).status == cancel_task_result(record).status == status
    if status == "failed":
        assert task(record).status_message


@pytest.mark.spec("R0552", "R0555")
@EVERY_STATE
def test_what_has_the_id_of_its_task_has_no_related_task(record: TaskRecord) -> None:
    for message in (
        get_task_result(record),
        cancel_task_result(record),
        list_tasks_result([record], more=False),
        task_status(record),
    ):
        assert message.meta is None


@pytest.mark.spec("R0557")
def test_a_page_has_a_cursor_if_more_tasks_follow() -> None:
    records = [created(number=number) for number in range(3)]
    page = list_tasks_result(records, more=True)
    assert [one.task_id for one in page.tasks] == [record.id for record in records]
    assert decode_cursor(page.next_cursor or "") == task_id(2)
    assert list_tasks_result(records, more=False).next_cursor is None
    assert shown(list_tasks_result([], more=False)) == {"tasks": []}
    assert list_tasks_result([], more=True).next_cursor is None


@pytest.mark.spec("R0567", "R0576")
@pytest.mark.parametrize("state", ["completed", "with isError"])
def test_tasks_result_returns_the_result_of_the_call_and_names_the_task(state: str) -> None:
    record = STATES[state]
    given = replace(DONE, is_error=record.is_error, meta={"com.example/a": 1})
    returned = task_payload(record, given)
    assert shown(returned)["_meta"] == {
        "com.example/a": 1,
        "io.modelcontextprotocol/related-task": {"taskId": record.id},
    }
    assert replace(returned, meta=given.meta) == given


@pytest.mark.spec("R0575")
def test_tasks_result_returns_the_error_of_the_call() -> None:
    with pytest.raises(Fault, match="no such topic") as caught:
        task_payload(STATES["failed"], None)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    elsewhere = TaskError.of(RemoteError(-7, "full"))
    with pytest.raises(RemoteError) as remote:
        task_payload(after(running(), TaskFailed(1, elsewhere)), None)
    assert remote.value.code == -7
    with pytest.raises(Fault, match="not done after 7200 seconds"):
        task_payload(STATES["expired"], None)


def test_tasks_result_of_a_cancelled_task_is_an_error_that_says_so() -> None:
    for record in (STATES["cancelled"], replace(STATES["cancelled"], message=None)):
        with pytest.raises(Fault, match="was cancelled") as caught:
            task_payload(record, None)
        assert caught.value.kind is FaultKind.INTERNAL
        assert caught.value.data == {"status": "cancelled"}


def test_a_task_that_has_not_ended_has_no_result_yet() -> None:
    with pytest.raises(LocalProtocolError, match="has ended"):
        task_payload(running(), DONE)


def test_a_result_that_is_gone_is_an_internal_error() -> None:
    with pytest.raises(Fault, match="no longer there") as caught:
        task_payload(STATES["completed"], None)
    assert caught.value.kind is FaultKind.INTERNAL
    with pytest.raises(Fault, match="no longer there"):
        ext_get_task_result(STATES["completed"], JULY_2026)


def test_params_and_results_name_their_task_whatever_they_named_before() -> None:
    key = "io.modelcontextprotocol/related-task"
    asked = t.ListRootsRequestParams(meta={key: {"taskId": "another"}, "com.example/a": 1})
    assert related(asked, "x").meta == {key: {"taskId": "x"}, "com.example/a": 1}
    told = t.ProgressNotificationParams(progress_token=1, progress=2)
    assert related(told, "x").meta == {key: {"taskId": "x"}}
    assert told.meta is None


@pytest.mark.spec("R0533", "R0549")
def test_an_input_request_of_a_task_names_the_task() -> None:
    record = STATES["input_required"]
    requests = related_input_requests(record)
    assert requests.keys() == record.pending.keys()
    for key, request in requests.items():
        assert request.params.meta == {
            "io.modelcontextprotocol/related-task": {"taskId": record.id}
        }
        assert request.digest() == record.digests[key]
    without = replace(record, pending={"r": t.ListRootsRequest()})
    assert related_input_requests(without)["r"].params.meta


@pytest.mark.parametrize("token", ["t-1", 0])
def test_progress_of_a_task_has_the_token_of_the_call_and_ends_with_it(token: str | int) -> None:
    event = ProgressReported(1, 2, 5, "chapter 2")
    record = after(running(NOVEMBER_2025, progress_token=token), event)
    params = task_progress(record, event)
    assert params is not None
    assert json.loads(CORE.params(params)) == {
        "progressToken": token,
        "progress": 2,
        "total": 5,
        "message": "chapter 2",
        "_meta": {"io.modelcontextprotocol/related-task": {"taskId": record.id}},
    }
    assert task_progress(after(record, TaskCompleted(1)), event) is None
    assert task_progress(running(), event) is None


@pytest.mark.parametrize("state", ["completed", "with isError", "failed", "cancelled"])
def test_core_refuses_to_cancel_a_task_that_has_ended(state: str) -> None:
    fault = refused_cancellation(STATES[state])
    assert NOVEMBER_2025.codes[fault.kind] == -32602
    assert task(STATES[state]).status in fault.message


# ---------------------------------------------------------------- extension


def extended(record: TaskRecord, result: Raw = t.ABSENT) -> JSON:
    return json.loads(EXT.result(ext_get_task_result(record, JULY_2026, result)))


def test_a_created_task_is_flat_and_has_nothing_but_its_state() -> None:
    for record in (created(), STATES["input_required"], STATES["completed"], STATES["failed"]):
        sent = json.loads(EXT.result(ext_create_task_result(record)))
        assert sent["resultType"] == "task"
        extra = sent.keys() - {"resultType", "_meta", "statusMessage"}
        assert extra == {
            "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs",
        }  # fmt: skip


@pytest.mark.spec("R1167", "R1171")
@pytest.mark.parametrize("state", ["working", "cancelled"])
def test_a_task_without_an_outcome_has_its_status_only(state: str) -> None:
    sent = extended(STATES[state])
    assert sent["status"] == state
    assert sent["resultType"] == "complete"
    assert not sent.keys() & {"result", "error", "inputRequests", "requestState"}


@pytest.mark.spec("R1169")
def test_all_input_requests_that_are_pending_are_sent() -> None:
    record = STATES["input_required"]
    sent = extended(record)["inputRequests"]
    assert {key: asked["method"] for key, asked in sent.items()} == {
        "a": "elicitation/create",
        "b": "elicitation/create",
        "s": "sampling/createMessage",
        "r": "roots/list",
    }
    left = after(record, responses("a", "b"))
    assert extended(left)["inputRequests"].keys() == {"s", "r"}
    asked = t.InputRequiredResult(input_requests=left.pending)
    assert input_requests_in(asked)["s"] == sample("sum")


@pytest.mark.spec("R1210", "R1211", "R1213", "R1158")
@pytest.mark.parametrize("state", ["completed", "with isError"])
def test_a_result_is_inlined_whether_it_is_an_error_or_not(state: str) -> None:
    record = STATES[state]
    given = replace(DONE, is_error=record.is_error or None)
    sent = extended(record, Raw(EXT.result(given)))
    assert sent["status"] == "completed"
    assert sent["result"] == json.loads(EXT.result(given))
    assert sent["result"]["resultType"] == "complete"
    assert "error" not in sent
    assert "related-task" not in json.dumps(sent)


@pytest.mark.spec("R1212")
def test_an_error_of_the_call_is_inlined() -> None:
    sent = extended(STATES["failed"])
    assert sent["status"] == "failed"
    assert sent["error"] == {"code": -32602, "message": "no such topic", "data": {"topic": "tea"}}
    assert sent["statusMessage"] == "no such topic"
    assert "result" not in sent
    assert extended(STATES["expired"])["error"]["code"] == -32603


@EVERY_STATE
def test_a_notification_has_what_tasks_get_returns(record: TaskRecord) -> None:
    result = result_of(record)
    sent = json.loads(EXT.params(ext_task_status(record, JULY_2026, result)))
    got = extended(record, result)
    assert {**sent, "resultType": "complete", "_meta": got["_meta"]} == got


# ---------------------------------------------------------------- both


@pytest.mark.parametrize("revision", GENERATIONS, ids=lambda revision: revision.date)
def test_a_task_is_the_same_in_both_generations_whichever_created_it(revision: Revision) -> None:
    record = after(created(revision), CancelRequested())
    core, ext = shown(get_task_result(record)), extended(record)
    del ext["resultType"], ext["_meta"]
    renamed = {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"}
    assert {renamed.get(key, key): value for key, value in core.items()} == ext


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_790_000_000.1234, "2026-09-21T14:13:20.123Z"),
        (253_402_300_799, "9999-12-31T23:59:59.000Z"),
    ],
)
def test_times_are_iso_8601_in_utc(seconds: float, said: str) -> None:
    assert timestamp(seconds) == said
