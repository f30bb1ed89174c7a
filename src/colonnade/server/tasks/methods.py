"""The methods of tasks, of both generations: `tasks/get`, `update`, `cancel`, `result`, `list`.

Rules: a task exists for its owner alone; for others it is unknown, byte for byte (R0577). A caller
needs the scopes of the tool for everything that it does with a task. Results are encoded for the
revision that reads them.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Raw

from colonnade.errors import (
    Fault,
    FaultKind,
)
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as, decode_unchecked
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.lifecycle import (
    CancelRequested,
    InputReceived,
    TaskEvent,
)
from colonnade.protocol.tasks.record import (
    TaskRecord,
    decode_cursor,
    unknown_task,
)
from colonnade.protocol.tasks.results import (
    cancel_task_result,
    ext_get_task_result,
    get_task_result,
    list_tasks_result,
    refused_cancellation,
    task_payload,
)
from colonnade.server.registry import ToolEntry, check_scopes, granted_scopes
from colonnade.server.tasks.input_requests import CHECK_S, InputSender, UnclaimedInput
from colonnade.server.tasks.runner import TaskRunner
from colonnade.server.tasks.storage import ChangeWaiter, TaskStorage

log: logging.Logger = logging.getLogger("colonnade.tasks")

# Tasks on one page of `tasks/list`: each is an entry of the store that is read.
PAGE_SIZE = 50


class TaskMethods:
    """The handlers of the methods of tasks."""

    def __init__(
        self,
        storage: TaskStorage,
        runner: TaskRunner,
        tools: Callable[[str], ToolEntry | None],
        follow: Callable[[RequestContext, TaskRecord], None],
    ) -> None:
        self._storage = storage
        self._runner = runner
        self._tools = tools
        self._follow = follow
        self.unclaimed: UnclaimedInput = UnclaimedInput(storage, self.take)

    # ------------------------------------------------------------ one task

    async def _find(self, request: RequestContext, id: str) -> TaskRecord:
        """The task of this caller. Raises `Fault`, and `HttpError` (403) if it lacks scopes."""
        exchange = request.exchange
        record = (await self._storage.find(exchange.principal, id)).record
        return self._checked(request, record)

    def _checked(self, request: RequestContext, record: TaskRecord) -> TaskRecord:
        entry = self._tools(record.tool)
        if entry is not None:
            check_scopes(entry, request)
        self._runner.offer(record)
        return record

    async def get(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/get`."""
        exchange = request.exchange
        if exchange.peer.revision.tasks is Tasks.CORE:
            record = await self._find(request, _task_id(request))
            self._follow(request, record)
            return get_task_result(record)
        found = await self._storage.glance(exchange.principal, _task_id(request))
        if found is None:
            raise unknown_task()
        record = self._checked(request, found.record)
        result = await self.encoded_result(request, record) if record.result_of else t.ABSENT
        return ext_get_task_result(record, exchange.peer.revision, result)

    async def encoded_result(self, request: RequestContext, record: TaskRecord) -> Raw:
        """The result of a completed task, for the revision of this caller; absent for others."""
        result = await self._result_of(request, record)
        if result is None:
            return t.ABSENT
        log.debug("the result of task %s was read by principal %r", record.id, record.principal)
        return Raw(request.exchange.encoder.result(result))

    async def _result_of(
        self, request: RequestContext, record: TaskRecord
    ) -> t.CallToolResult | None:
        raw = await self._storage.result(record)
        if raw is None:
            return None
        entry = self._tools(record.tool)
        wrap = entry.wraps if entry is not None else None
        result = decode_unchecked(t.CallToolResult, raw)
        encoder = request.exchange.encoder
        downgraded = encoder.downgrade(result, wrap=wrap)
        assert isinstance(downgraded, t.CallToolResult)
        return downgraded

    async def update(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/update`: take responses to input requests, all or none of them (D52)."""
        exchange = request.exchange
        params = decode_as(t.ExtUpdateTaskRequestParams, exchange.request.params)
        record = await self._find(request, params.task_id)
        await self.take(record, InputReceived(params.input_responses, exchange.peer.revision))
        return t.ExtUpdateTaskResult()

    async def take(self, record: TaskRecord, event: TaskEvent) -> None:
        """Apply a response, and go on with the task if it was unwound."""
        change = await self._storage.change(record.principal, record.id, event)
        if change is None:
            raise unknown_task()
        await self._runner.resume(change.task.record)  # also if the response was taken before

    async def cancel(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/cancel`: the record is cancelled at once, the handler soon after (R0561)."""
        record = await self._find(request, _task_id(request))
        change = await self._storage.change(record.principal, record.id, CancelRequested())
        if change is None:
            raise unknown_task()
        after = change.task.record
        if change.applied:
            await self._runner.finished(after)
        if request.exchange.peer.revision.tasks is not Tasks.CORE:
            return t.ExtCancelTaskResult()
        if not change.applied:
            raise refused_cancellation(after)
        return cancel_task_result(after)

    # ------------------------------------------------------------ tasks/result

    async def result(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/result`: wait for the end of the task, and carry its input requests meanwhile
        (R0546)."""
        id = _task_id(request)
        record = await self._find(request, id)
        self._follow(request, record)
        sender = InputSender(request.ask, request.exchange.peer.revision, self.take)
        try:
            with self.unclaimed.claimed(id), ChangeWaiter(self._storage.changes, id) as changed:
                while not (record := await self._find(request, id)).ended:
                    sender.update(record)
                    await changed.wait(CHECK_S)
        finally:
            await sender.close()
        return task_payload(record, await self._result_of(request, record))

    # ------------------------------------------------------------ tasks/list

    async def list(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/list`: the tasks of this caller, oldest first."""
        exchange = request.exchange
        if request.callers is Callers.ANONYMOUS:  # R0580: not declared to them, either
            raise Fault(FaultKind.METHOD_NOT_FOUND, "this server does not list tasks")
        cursor = decode_as(t.PaginatedRequestParams, exchange.request.params).cursor
        after = decode_cursor(cursor) if cursor is not None else ""
        ids = await self._storage.ids(exchange.principal, after, PAGE_SIZE + 1)
        more, ids = len(ids) > PAGE_SIZE, ids[:PAGE_SIZE]
        found = await asyncio.gather(*(self._storage.read(exchange.principal, id) for id in ids))
        granted = granted_scopes(request)
        records = [one.record for one in found if one is not None]
        shown = [record for record in records if self._may_see(record, granted)]
        if more and not shown:  # none of this page: the cursor is the last one all the same
            from colonnade.protocol.tasks.record import encode_cursor

            return t.ListTasksResult(tasks=[], next_cursor=encode_cursor(ids[-1]))
        return list_tasks_result(shown, more)

    def _may_see(self, record: TaskRecord, granted: frozenset[str] | None) -> bool:
        entry = self._tools(record.tool)
        return entry is None or granted is None or entry.scopes <= granted

    async def visible(self, request: RequestContext, ids: "list[str]") -> "list[str]":
        """Those of the ids that are tasks of this caller, which it may see."""
        granted = granted_scopes(request)
        seen: list[str] = []
        for id in dict.fromkeys(ids):
            found = await self._storage.read(request.exchange.principal, id)
            if found is not None and self._may_see(found.record, granted):
                seen.append(id)
        return seen


def _task_id(request: RequestContext) -> str:
    """The `taskId` of params, which alone says which task is meant (R0550, R0551)."""
    exchange = request.exchange
    split = exchange.params
    if (
        split is exchange.request.split_params
        and type(split.task_id) is str
        and exchange.peer.revision.tasks is Tasks.EXTENSION
    ):
        # A poll: there is nothing else, and `_meta` was decoded when the client was recognised.
        return split.task_id
    params = decode_as(exchange.method.params, exchange.request.params)
    return str(getattr(params, "task_id"))  # noqa: B009
