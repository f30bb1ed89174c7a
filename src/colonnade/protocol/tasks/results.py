"""Tasks on the wire: results and notifications of both generations, from one record.

The core of 2025-11-25 nests a task in the result that creates it, says `failed` for a tool result
with `isError`, and returns the result by `tasks/result`. The extension has the task flat, says
`completed`, and puts the result into `tasks/get`. A task that was created in one generation can be
read in the other (D56).

Rules: no I/O. Functions of the extension are called `ext_...`, as its types are.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.revision import Revision
from colonnade.protocol.tasks.lifecycle import ProgressReported
from colonnade.protocol.tasks.record import TaskRecord, encode_cursor


# The times of tasks that are polled again and again.
@lru_cache(maxsize=1024)
def timestamp(seconds: float) -> str:
    """A time as ISO 8601, with milliseconds, in UTC (R0536, R0537)."""
    second, rest = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_whole_second(second)}.{rest // 1000:03}Z"


# Those of tasks that are created in the same second.
@lru_cache(maxsize=1024)
def _whole_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().removesuffix("+00:00")


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else ceil(seconds * 1000)


# ---------------------------------------------------------------- tasks of 2025-11-25


def _core_members(record: TaskRecord) -> dict[str, Any]:
    return {
        "task_id": record.id,
        "status": "failed" if record.is_error else record.status,
        "created_at": timestamp(record.created_at),
        "last_updated_at": timestamp(record.updated_at),
        "ttl": _milliseconds(record.ttl_s),  # R0539
        "poll_interval": _milliseconds(record.poll_interval_s),
        "status_message": record.message,
    }


def task(record: TaskRecord) -> "t.Task":
    """The task as part of a result."""
    return t.Task(**_core_members(record))


def create_task_result(record: TaskRecord, immediate: str | None = None) -> "t.CreateTaskResult":
    """The result of the call that became the task; `immediate` is text for the model until then."""
    meta = None if immediate is None else {t.MODEL_IMMEDIATE_RESPONSE_KEY: immediate}
    return t.CreateTaskResult(task=task(record), meta=meta)


def get_task_result(record: TaskRecord) -> "t.GetTaskResult":
    """The result of `tasks/get`; without related-task metadata, since it has the id (R0552)."""
    return t.GetTaskResult(**_core_members(record))


def cancel_task_result(record: TaskRecord) -> "t.CancelTaskResult":
    """The result of `tasks/cancel`, for the record after it (R0561)."""
    return t.CancelTaskResult(**_core_members(record))


def list_tasks_result(records: Iterable[TaskRecord], more: bool) -> "t.ListTasksResult":
    """One page of `tasks/list`; `more` is whether there are tasks after it (R0557)."""
    tasks = [task(record) for record in records]
    cursor = encode_cursor(tasks[-1].task_id) if more and tasks else None
    return t.ListTasksResult(tasks=tasks, next_cursor=cursor)


def task_status(record: TaskRecord) -> "t.TaskStatusNotificationParams":
    """The params of `notifications/tasks/status`, without related-task metadata (R0555)."""
    return t.TaskStatusNotificationParams(**_core_members(record))


M = TypeVar("M", bound="t.RequestParams | t.NotificationParams | t.Result")


def related(message: M, task_id: str) -> M:
    """Params or a result with the metadata that names its task, whatever they named before
    (R0548, R0567)."""
    meta: dict[str, Any] = message.meta or {}
    return replace(message, meta=meta | {t.RELATED_TASK_KEY: {"taskId": task_id}})


def related_input_requests(record: TaskRecord) -> dict[str, InputRequest]:
    """The pending input requests as requests of their own, which name their task (R0533)."""
    return {
        key: InputRequest(related(asked.params or t.ListRootsRequestParams(), record.id))
        for key, asked in record.pending.items()
    }


def task_progress(
    record: TaskRecord, event: ProgressReported
) -> "t.ProgressNotificationParams | None":
    """The progress notification for an event that was applied; None without a token, and at the
    end (R0499, R0500)."""
    if record.progress_token is None or record.ended:
        return None
    params = t.ProgressNotificationParams(
        progress_token=record.progress_token,
        progress=event.progress,
        total=event.total,
        message=event.message,
    )
    return related(params, record.id)


def task_payload(record: TaskRecord, result: "t.CallToolResult | None") -> "t.CallToolResult":
    """The result of `tasks/result` for an ended task: exactly that of the call, with its metadata.

    Raises the JSON-RPC error that the call ended with (R0575), or one that says that it was
    cancelled (D50). Raises `LocalProtocolError` for a task that has not ended: it is waited for.
    """
    if not record.ended:
        raise LocalProtocolError("tasks/result is answered when the task has ended")
    if record.error is not None:
        raise record.error.error()
    if record.status == "cancelled":
        data = {"status": record.status}
        raise Fault(FaultKind.INTERNAL, record.message or "the task was cancelled", data)
    if result is None:
        raise lost_result()
    return related(result, record.id)


def lost_result() -> Fault:
    """The error for a completed task whose result is gone, which no store should do."""
    return Fault(FaultKind.INTERNAL, "the result of the task is no longer there")


def refused_cancellation(record: TaskRecord) -> Fault:
    """The refusal of core to cancel an ended task (R0560, R0570)."""
    words = f"the task is {_core_members(record)['status']} already and cannot be cancelled"
    return Fault(FaultKind.INVALID_PARAMS, words)


# ---------------------------------------------------------------- tasks of the extension


def _ext_members(record: TaskRecord) -> dict[str, Any]:
    return {
        "task_id": record.id,
        "status": record.status,  # R1210, R1211: a result with isError is completed
        "created_at": timestamp(record.created_at),
        "last_updated_at": timestamp(record.updated_at),
        "ttl_ms": _milliseconds(record.ttl_s),
        "poll_interval_ms": _milliseconds(record.poll_interval_s),
        "status_message": record.message,
    }


def _ext_details(record: TaskRecord, revision: Revision, result: Raw) -> dict[str, Any]:
    """The member that the status requires (R1168 to R1172). Raises `Fault` without its result."""
    match record.status:
        case "input_required":
            return {"input_requests": record.pending}  # R1169: all of them
        case "completed":
            if not bytes(result):
                raise lost_result()
            return {"result": result}
        case "failed":
            return {"error": record.error and record.error.as_object(revision)}
        case _:
            return {}


def ext_create_task_result(record: TaskRecord) -> "t.ExtCreateTaskResult":
    """The result that takes the place of that of the call; never with what the task results in."""
    return t.ExtCreateTaskResult(**_ext_members(record))


def ext_get_task_result(
    record: TaskRecord, revision: Revision, result: Raw = t.ABSENT
) -> "t.ExtGetTaskResult":
    """The result of `tasks/get`. `result` is that of the call, encoded for this revision (D55)."""
    members = _ext_members(record)
    if record.status != "working":
        members.update(_ext_details(record, revision, result))
    return t.ExtGetTaskResult(**members)


def ext_task_status(
    record: TaskRecord, revision: Revision, result: Raw = t.ABSENT
) -> "t.ExtTaskStatusNotificationParams":
    """The params of `notifications/tasks`: what `tasks/get` returns at this moment."""
    details = _ext_details(record, revision, result)
    return t.ExtTaskStatusNotificationParams(**_ext_members(record), **details)
