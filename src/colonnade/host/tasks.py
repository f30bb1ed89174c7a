"""Tasks of a host: those that its calls have become, kept in a store, so that they are found again
after a restart.

    for task in await host.tasks():
        print(task.server, task.tool, task.caller, task.status, task.message)

Rules: a record holds a handle and what was last known, never arguments or results. It is written
before the call goes on, and deleted when the program has got the outcome. Input requests of a task
go to `on_input_request`, as those of a call do (R1217).
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.client.request import OnProgress
from colonnade.client.results import ToolResult
from colonnade.client.subscriptions import retry_delay_s
from colonnade.client.tasks.task import MAX_AWAY_S, ClientTask
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    RemoteError,
    TaskEnded,
)
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.tasks.client import TaskHandle, TaskState

log: logging.Logger = logging.getLogger("colonnade.host")

# The keys of the records in a store, which may have other entries.
PREFIX = "host/tasks/"
# Of a handle, in a key; and what is shown of it.
KEY_CHARACTERS = 32
ID_CHARACTERS = 8
# A task that was not asked about for so long is forgotten.
RECORD_S = 30 * 24 * 3600.0
# Records that are read at once, and tasks that are asked about at once.
PAGE = 500
CONCURRENT_POLLS = 8

T = TypeVar("T")


class HostTaskRecord(Struct, frozen=True, omit_defaults=True):
    """What is kept of a task: how to find it, and what was last known."""

    handle: str
    server: str
    tool: str
    caller: str
    created_at: float
    status: t.TaskStatus = "working"
    message: str | None = None

    @property
    def key(self) -> str:
        """The key of the record in a store; it sorts by the time of creation."""
        digest = hashlib.sha256(self.handle.encode()).hexdigest()[:KEY_CHARACTERS]
        return f"{PREFIX}{int(self.created_at * 1000):014d}-{digest}"

    @property
    def id(self) -> str:
        """A short name for people."""
        return self.key.rpartition("-")[2][:ID_CHARACTERS]


_decoder = msgspec.json.Decoder(HostTaskRecord)


class HostTaskRecords:
    """The records of a host in its store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, record: HostTaskRecord) -> None:
        """Write a record."""
        await self._store.put(SERVER_PRINCIPAL, record.key, encode(record), RECORD_S)

    async def delete(self, record: HostTaskRecord) -> None:
        """Delete a record."""
        await self._store.delete(SERVER_PRINCIPAL, record.key)

    async def find(self, server: str, handle: str) -> HostTaskRecord | None:
        """The record of the task that a handle of a server stands for, whatever tool it names."""
        task_id = TaskHandle.decode(handle).task_id
        for one in await self.list():
            if one.server == server and TaskHandle.decode(one.handle).task_id == task_id:
                return one
        return None

    async def list(self, caller: str | None = None) -> list[HostTaskRecord]:
        """All records, the oldest first; those of one caller, if it is given."""
        found: list[HostTaskRecord] = []
        after = ""
        while True:
            names = await self._store.names(SERVER_PRINCIPAL, PREFIX, after, PAGE)
            for name in names:
                value = await self._store.get(SERVER_PRINCIPAL, name)
                record = _decoded(value) if value is not None else None
                if record is not None and caller in (None, record.caller):
                    found.append(record)
            if len(names) < PAGE:
                return found
            after = names[-1]


def _decoded(value: bytes) -> HostTaskRecord | None:
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        log.warning("an entry of the store is no record of a task; it is skipped")
        return None


def new_record(task: ClientTask, server: str, tool: str, caller: str) -> HostTaskRecord | None:
    """The record of a task that a call has become; None without a task."""
    if task.handle is None:
        return None
    return HostTaskRecord(
        handle=task.handle,
        server=server,
        tool=tool,
        caller=caller,
        created_at=time.time(),
        status=task.status or "working",
        message=task.message,
    )


# ---------------------------------------------------------------- one task


class TaskOwner(Protocol):
    """What a task needs of its host."""

    def open_task(
        self, task: "HostTask", method: str = ""
    ) -> AbstractAsyncContextManager[ClientTask]:
        """The task in a session of its server; `method` is that of a request that is recorded."""
        ...

    def wait_for_task(self, task: "HostTask") -> Awaitable[ToolResult[Any]]:
        """Its outcome, through the middleware of the host."""
        ...

    async def contain_state(self, task: "HostTask", state: TaskState) -> TaskState:
        """A state of the task, without hidden text."""
        ...


class HostTask:
    """A task of one server of a host.

    `server` is the key of the server, `tool` the qualified name of the tool, and `caller` the user
    that it runs for. `status` and `message` are those that were last known.
    """

    def __init__(
        self,
        owner: TaskOwner,
        records: HostTaskRecords,
        record: HostTaskRecord,
        *,
        result: ToolResult[Any] | None = None,
        immediate_response: str | None = None,
        on_progress: OnProgress | None = None,
        is_confirmed: bool = True,
    ) -> None:
        self.on_progress = on_progress
        # Whether its tool is known from a record or from the program, not from the handle alone.
        self.is_confirmed: bool = is_confirmed
        self._owner = owner
        self._records = records
        self._record = record
        self._result = result
        # The text for a model until there is a result, if the server sent one.
        self.immediate_response = immediate_response

    def __repr__(self) -> str:
        return f"HostTask({self.tool!r}, {self.status}, caller={self.caller!r})"

    @property
    def id(self) -> str:
        """A short name for people, such as `4f2a91c0`."""
        return self._record.id

    @property
    def handle(self) -> str | None:
        """The task as one string; None if the call was no task."""
        return self._record.handle or None

    @property
    def server(self) -> str:
        """The key of its server."""
        return self._record.server

    @property
    def tool(self) -> str:
        """The qualified name of its tool."""
        return self._record.tool

    @property
    def caller(self) -> str:
        """The user that it runs for."""
        return self._record.caller

    @property
    def created_at(self) -> float:
        """When the call became a task (Unix time)."""
        return self._record.created_at

    @property
    def status(self) -> t.TaskStatus:
        """The status that was last known."""
        return self._record.status

    @property
    def message(self) -> str | None:
        """The state that the server last returned."""
        return self._record.message

    @property
    def done(self) -> bool:
        """Whether the task has ended, as far as is known."""
        return self.status in ("completed", "failed", "cancelled")

    # ------------------------------------------------------------ requests

    async def refresh(self) -> t.TaskStatus:
        """Ask its server for the present status, and return it. Raises `TaskEnded` if the server
        does not know the task any more; its record is deleted then."""
        if self.handle is not None:
            async with self._forgotten_if_ended(), self._owner.open_task(self) as task:
                state = await task.refresh()
                if state is not None:
                    await self.observe(await self._owner.contain_state(self, state))
        return self.status

    async def __aiter__(self) -> AsyncIterator[TaskState]:
        """Its states, from the present one to the last."""
        if self.handle is None:
            return
        async with self._forgotten_if_ended(), self._owner.open_task(self) as task:
            async for received in task:
                state = await self._owner.contain_state(self, received)
                await self.observe(state)
                yield state

    @overload
    async def result(self, *, returns: type[T]) -> ToolResult[T]: ...
    @overload
    async def result(self, *, returns: Any = None) -> ToolResult[Any]: ...
    async def result(self, *, returns: Any = None) -> ToolResult[Any]:
        """Wait for the result, which is that of `host.call_tool`, also while the server is started
        again. Its record is deleted then. Raises as `ClientTask.result` does."""
        if self._result is None:
            self._result = await self._owner.wait_for_task(self)
        return self._result if returns is None else self._result.returning(returns)

    async def respond(self) -> bool:
        """Respond to the input requests that it waits for now; False if there are none."""
        if self.handle is None:
            return False
        async with self._forgotten_if_ended(), self._owner.open_task(self) as task:
            return await task.respond()

    async def cancel(self) -> None:
        """Cancel the task, and delete its record."""
        if self.handle is not None:
            async with (
                self._forgotten_if_ended(),
                self._owner.open_task(self, "tasks/cancel") as task,
            ):
                await task.cancel()
            await self.forget()

    async def outcome(self) -> tuple[t.CallToolResult, str]:
        """Wait for the protocol's result, and the name of the tool at its server."""
        away_since: float | None = None
        tries = 0
        while True:
            try:
                async with self._forgotten_if_ended(), self._owner.open_task(self) as task:
                    result = await task.outcome()
            except ChannelError:
                now = asyncio.get_running_loop().time()
                away_since = now if away_since is None else away_since
                if now - away_since > MAX_AWAY_S:
                    raise
                await asyncio.sleep(retry_delay_s(tries))
                tries += 1
            except RemoteError:
                await self.forget()
                raise
            else:
                self._record = replace(self._record, status=task.status or "completed")
                await self.forget()
                return result, task.tool

    # ------------------------------------------------------------ the record

    async def confirm(self) -> None:
        """Take the tool from the record of the task, if there is one: the holder of a handle can
        write another name into it."""
        if self.is_confirmed or self.handle is None:
            return
        found = await self._records.find(self.server, self.handle)
        if found is not None:
            is_own = found.caller == self.caller
            self._record = found if is_own else replace(self._record, tool=found.tool)
            self.is_confirmed = True

    async def observe(self, state: TaskState) -> None:
        """Keep a state that was received."""
        changed = replace(self._record, status=state.status, message=state.message)
        if changed != self._record:
            self._record = changed
            await self._records.put(changed)

    async def forget(self) -> None:
        """Delete the record: the task goes on, and is no longer in `host.tasks()`."""
        await self._records.delete(self._record)

    @asynccontextmanager
    async def _forgotten_if_ended(self) -> AsyncGenerator[None]:
        try:
            yield
        except TaskEnded:
            await self.forget()
            raise


async def refresh_all(tasks: list[HostTask]) -> list[HostTask]:
    """Ask for the status of tasks, several at once; those that their servers know, or that cannot
    be asked about now."""
    semaphore = asyncio.Semaphore(CONCURRENT_POLLS)

    async def refresh(task: HostTask) -> HostTask | None:
        if task.done:
            return task
        async with semaphore:
            try:
                await task.refresh()
            except TaskEnded as ended:
                log.info("a task of %s is forgotten: %s", task.server, ended)
                return None
            except ColonnadeError as error:
                log.warning("the status of a task of %s is not known: %s", task.server, error)
            return task

    found = await asyncio.gather(*map(refresh, tasks))
    return [task for task in found if task is not None]
