"""Calls of tools that can run as tasks: which calls become one, and its creation.

Rules: arguments are validated and declared input requests are settled before there is a task. A
client gets a task id when the task is durable, and never before. What is refused has kept nothing.
"""

import asyncio
import logging
import secrets
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import CannotConnect, ChannelError, Fault, FaultKind
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.exchange import check_task_support
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import require_extension
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.lifecycle import apply
from colonnade.protocol.tasks.record import RANDOM_BYTES, TaskRecord, make_task_id, new_task
from colonnade.protocol.tasks.results import create_task_result, ext_create_task_result
from colonnade.server.context.context import Context
from colonnade.server.tasks.options import TaskOptions
from colonnade.server.tasks.runner import RunOrigin, TaskRunner
from colonnade.server.tasks.storage import TaskStorage, store_lost
from colonnade.server.tasks.tool import TaskTool

log: logging.Logger = logging.getLogger("colonnade.tasks")

# Callers whose free places are remembered; then all are counted again.
MAX_COUNTED = 10_000
# Task ids whose random bytes are read at once.
IDS_AT_ONCE = 256

Answered = dict[str, tuple[InputRequest, Raw]]


class CallerPlaces:
    """The places of one caller: how many are free without counting again, and how many were taken
    for tasks that the store does not have yet."""

    __slots__ = ("free", "lock", "released", "taken")

    def __init__(self) -> None:
        self.free: int = 0
        self.taken: int = 0
        self.lock: asyncio.Lock = asyncio.Lock()
        self.released: asyncio.Event = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether no call uses it."""
        return not self.taken and not self.lock.locked()

    def take(self) -> bool:
        """Take a place without counting, if one is free."""
        if not self.free:
            return False
        self.free -= 1
        self.taken += 1
        return True

    def release(self) -> None:
        """The store has the task now, or will not have it."""
        self.taken -= 1
        self.released.set()

    async def settled(self) -> None:
        """Wait until the store has every task that a place was taken for."""
        while self.taken:
            self.released.clear()
            await self.released.wait()


class TaskQuota:
    """How many more tasks each caller may have (R0584).

    Tasks are counted in the store, and half of the free places are then given away without
    counting again, so that several processes with one store stay near the limit.
    """

    def __init__(self, storage: TaskStorage, options: TaskOptions) -> None:
        self._storage = storage
        self._options = options
        self._callers: dict[str, CallerPlaces] = {}

    async def take_place(self, principal: str) -> CallerPlaces:
        """Take one place, for a task; `release` it when the store has the task. Raises `Fault` if
        there is none."""
        places = self._callers.get(principal)
        if places is None:
            if len(self._callers) >= MAX_COUNTED:
                self._callers = {name: one for name, one in self._callers.items() if not one.idle}
            places = self._callers[principal] = CallerPlaces()
        if not places.take():
            async with places.lock:
                if not places.take():
                    await places.settled()
                    places.free = await self._count(principal)
                    places.take()
        return places

    async def _count(self, principal: str) -> int:
        """Count the tasks of a caller; the places to give away. Raises `Fault` if there is none."""
        unfinished, kept = self._options.max_unfinished, self._options.max_kept
        free = unfinished - await self._storage.count_unfinished(principal, unfinished)
        if free <= 0:
            words = f"{unfinished} tasks of this caller have not ended; wait, or cancel some"
            raise Fault(FaultKind.TOO_MANY, words)
        left = kept - await self._storage.count_kept(principal, kept)
        if left <= 0:
            words = f"{kept} tasks of this caller are kept; try again when some have expired"
            raise Fault(FaultKind.TOO_MANY, words)
        return (min(free, left) + 1) // 2


class RandomBytes:
    """Random bytes of the system for task ids, read for many at once: each read is a system call,
    after which the event loop may have to wait for threads."""

    def __init__(self) -> None:
        self._left = b""

    def take(self) -> bytes:
        """Those of one id; no byte is returned twice."""
        if not self._left:
            self._left = secrets.token_bytes(RANDOM_BYTES * IDS_AT_ONCE)
        taken, self._left = self._left[:RANDOM_BYTES], self._left[RANDOM_BYTES:]
        return taken


class TaskCalls:
    """Handles the calls of tools that can run as tasks."""

    def __init__(self, storage: TaskStorage, runner: TaskRunner, options: TaskOptions) -> None:
        self._storage = storage
        self._runner = runner
        self._options = options
        self._quota = TaskQuota(storage, options)
        self._random = RandomBytes()

    def start(self) -> None:
        """Count the tasks of callers anew, in this event loop. It may be that of a forked process,
        whose ids are others."""
        self._quota = TaskQuota(self._storage, self._options)
        self._random = RandomBytes()

    async def run(
        self, tool: TaskTool, request: RequestContext, params: t.CallToolRequestParams
    ) -> "tuple[t.ProtocolType, TaskRecord | None]":
        """The result of a call: that of the tool, or of the creation of a task, with its record.

        Raises `Fault`.
        """
        if not becomes_task(tool, request, params):
            return await tool.bound.run(request, params), None
        arguments = tool.bound.check_arguments(request, params)
        core = request.exchange.peer.revision.tasks is Tasks.CORE
        if isinstance(arguments, t.CallToolResult):
            if core:  # R0543: the result of an accepted call would be a task
                raise Fault(FaultKind.INVALID_PARAMS, _text(arguments))
            return arguments, None
        if not core and tool.bound.requests_inputs:  # R1161
            return await self._run_with_inputs(tool, request, params, arguments)
        record = await self._create(tool, request, params, {})
        result = create_task_result(record) if core else ext_create_task_result(record)
        return result, record

    async def _run_with_inputs(
        self,
        tool: TaskTool,
        request: RequestContext,
        params: t.CallToolRequestParams,
        arguments: dict[str, Any],
    ) -> "tuple[t.ProtocolType, TaskRecord | None]":
        """The same after the declared input requests are settled; there may be no task yet."""
        created: list[TaskRecord] = []

        async def proceed(context: Context) -> t.ProtocolType:
            created.append(await self._create(tool, request, params, context.rounds.answered))
            return ext_create_task_result(created[0])

        result = await tool.bound.settle_inputs(request, params, arguments, proceed)
        return result, created[0] if created else None

    async def _create(
        self,
        tool: TaskTool,
        request: RequestContext,
        params: t.CallToolRequestParams,
        answered: Answered,
    ) -> TaskRecord:
        exchange = request.exchange
        arguments = bytes(params.arguments).strip()
        arguments = b"{}" if arguments in (b"", b"null") else arguments
        if len(arguments) > self._options.max_argument_bytes:
            most = self._options.max_argument_bytes
            words = f"{params.name}: the arguments of a task have {most} bytes at most"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        try:
            places = await self._quota.take_place(exchange.principal)
        except ChannelError as error:
            raise store_lost() from error
        try:
            record = self._new_record(tool, request, params, answered, Raw(arguments))
            stored = await self._storage.create(record)
            words = "task %s of %s was created by principal %r"
            log.info(words, record.id, record.tool, record.principal)
            origin = RunOrigin(exchange.peer.log_level, request.debug)
            await self._runner.run_created(stored, origin)
            return stored.record
        except CannotConnect as error:  # nothing was sent
            raise store_lost() from error
        except ChannelError as error:
            words = "the store did not respond; whether the task was created is unknown"
            raise Fault(FaultKind.INTERNAL, words, {"effectUnknown": True}) from error
        finally:
            places.release()

    def _new_record(
        self,
        tool: TaskTool,
        request: RequestContext,
        params: t.CallToolRequestParams,
        answered: Answered,
        arguments: Raw,
    ) -> TaskRecord:
        """The record of a new task, with the lease of this worker if it is run here at once."""
        exchange = request.exchange
        now = self._storage.clock()
        core = exchange.peer.revision.tasks is Tasks.CORE
        record = new_task(
            id=make_task_id(now, self._random.take()),
            principal=exchange.principal,
            tool=params.name,
            arguments=arguments,
            peer=exchange.peer,
            limits=tool.limits,
            now=now,
            scopes=exchange.scopes,
            progress_token=exchange.progress_token if core else None,
            requested_ttl_ms=params.task.ttl if core and params.task is not None else None,
        )
        if answered:
            record = replace(
                record,
                digests={key: asked.digest() for key, (asked, _) in answered.items()},
                responses={key: Raw(bytes(raw)) for key, (_, raw) in answered.items()},
            )
        if self._runner.takes_created:
            record = apply(record, self._runner.lease(), now).record
        return record


def becomes_task(tool: TaskTool, request: RequestContext, params: t.CallToolRequestParams) -> bool:
    """Whether a call becomes a task. Raises `Fault` if the tool runs in no other way."""
    exchange = request.exchange
    peer, required = exchange.peer, tool.support == "required"
    if peer.revision.tasks is Tasks.CORE:
        check_task_support(exchange, tool.support)
        return params.task is not None
    if peer.revision.tasks is Tasks.EXTENSION:
        if required:
            require_extension(t.TASKS_EXTENSION_ID, peer, params.name)  # R1154
        return t.TASKS_EXTENSION_ID in peer.extensions
    if required:
        words = f"{params.name} runs as a task only, and {peer.revision.date} has no tasks"
        raise Fault(FaultKind.INVALID_REQUEST, words)
    return False


def _text(result: t.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, t.TextContent))
