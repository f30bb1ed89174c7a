"""Tasks: those of 2025-11-25, and those of the later tasks extension.

The two share their names on the wire and little else, so each has its own structs; those of the
extension (`io.modelcontextprotocol/tasks`) are called `Ext...`. One nests the task in the result,
the other is the result; one counts `ttl`, the other `ttlMs`; cancelling returns the task in one and
an acknowledgement in the other.

Rules: as in `base`. The fields of a task are repeated wherever a task is part of a result or a
notification: structs cannot inherit from two that both have fields.
"""

from typing import Any, ClassVar, Literal

from msgspec import Raw, field

from colonnade.protocol.types.base import (
    ABSENT,
    NotificationParams,
    PaginatedResult,
    ProtocolType,
    RequestParams,
    Result,
    RevisionRange,
)
from colonnade.protocol.types.client import AnyInputRequest
from colonnade.protocol.types.lifecycle import ErrorObject

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]

_CORE = RevisionRange(since="2025-11-25", until="2025-11-25")
_EXTENSION = RevisionRange(since="2026-07-28")


def _no_limit() -> None:
    """The ttl of a task that was sent without one, as `mcp` up to 1.30 does instead of null (D70).

    Values of a default factory are written; so ours always is, as the schemas require.
    """


# --- tasks of 2025-11-25 ---


class Task(ProtocolType, kw_only=True):
    """A `ttl` of `None` is sent as null: the task is kept without a limit."""

    available: ClassVar[RevisionRange] = _CORE

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None = field(default_factory=_no_limit)
    poll_interval: int | None = None
    status_message: str | None = None


class CreateTaskResult(Result, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task: Task


class GetTaskRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task_id: str


class GetTaskPayloadRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task_id: str


class CancelTaskRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task_id: str


class GetTaskResult(Result, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None = field(default_factory=_no_limit)
    poll_interval: int | None = None
    status_message: str | None = None


class CancelTaskResult(GetTaskResult, kw_only=True):
    """The current state of the task."""


class GetTaskPayloadResult(Result, kw_only=True):
    """The result of the request that became the task: decode it as the result of that request."""

    available: ClassVar[RevisionRange] = _CORE


class ListTasksResult(PaginatedResult, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    tasks: list[Task]


class TaskStatusNotificationParams(NotificationParams, kw_only=True):
    available: ClassVar[RevisionRange] = _CORE

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None = field(default_factory=_no_limit)
    poll_interval: int | None = None
    status_message: str | None = None


# --- tasks of the extension ---


class TasksExtensionCapability(ProtocolType, kw_only=True):
    """No settings yet: `{}` declares the extension."""

    available: ClassVar[RevisionRange] = _EXTENSION


class ExtTask(ProtocolType, kw_only=True):
    """A `ttl_ms` of `None` is sent as null: the task is kept without a limit."""

    available: ClassVar[RevisionRange] = _EXTENSION

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = field(default_factory=_no_limit)
    poll_interval_ms: int | None = None
    status_message: str | None = None


def _check(
    status: TaskStatus,
    questions: dict[str, AnyInputRequest] | None,
    result: Raw,
    error: ErrorObject | None,
) -> None:
    """Raise `ValueError` unless the task has the member that its status requires."""
    if status == "input_required" and questions is None:
        raise ValueError("a task of status `input_required` needs `inputRequests`")
    if status == "completed" and not bytes(result):
        raise ValueError("a task of status `completed` needs `result`")
    if status == "failed" and error is None:
        raise ValueError("a task of status `failed` needs `error`")


class ExtDetailedTask(ExtTask, kw_only=True):
    """A task with the member that its status requires: input requests, a result, or an error.

    The result stays raw: only the sender of the request knows its type.
    """

    input_requests: dict[str, AnyInputRequest] | None = None
    result: Raw = ABSENT
    error: ErrorObject | None = None

    def __post_init__(self) -> None:
        _check(self.status, self.input_requests, self.result, self.error)


class ExtCreateTaskResult(Result, kw_only=True):
    """Takes the place of the result of a request: `result_type` is `task`, and the task is flat."""

    available: ClassVar[RevisionRange] = _EXTENSION

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = field(default_factory=_no_limit)
    poll_interval_ms: int | None = None
    status_message: str | None = None


class ExtGetTaskRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = _EXTENSION

    task_id: str


class ExtUpdateTaskRequestParams(RequestParams, kw_only=True):
    """Responses to the input requests of the task, raw: only the server knows the type of each."""

    available: ClassVar[RevisionRange] = _EXTENSION

    task_id: str
    input_responses: dict[str, Raw]


class ExtCancelTaskRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = _EXTENSION

    task_id: str


class ExtGetTaskResult(ExtCreateTaskResult, kw_only=True):
    """The current state of the task."""

    input_requests: dict[str, AnyInputRequest] | None = None
    result: Raw = ABSENT
    error: ErrorObject | None = None

    def __post_init__(self) -> None:
        _check(self.status, self.input_requests, self.result, self.error)


class ExtUpdateTaskResult(Result, kw_only=True):
    """An acknowledgement; the task may show the effect of the responses only later."""

    available: ClassVar[RevisionRange] = _EXTENSION


class ExtCancelTaskResult(Result, kw_only=True):
    """An acknowledgement; the task may still end in another way."""

    available: ClassVar[RevisionRange] = _EXTENSION


class ExtTaskStatusNotificationParams(ExtDetailedTask, kw_only=True):
    """What `tasks/get` would have returned at this moment."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")
