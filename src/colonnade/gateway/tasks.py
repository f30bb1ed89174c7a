"""Tasks of the servers of a gateway, for its clients: ids, the requests about a task, and the list.

A client never gets the id that a server gave to a task. It gets one of the gateway, which is
encrypted and has in it the server, the id there, the tool and the principal: every replica with the
same keys reads it, and nothing is kept for it. Tasks are relayed between a client and a server that
have the same generation of them; in all other cases a call waits for its task.

Rules: every request about a task, also one that a notification causes, goes through the handler of
the host. An id that is altered, unknown, or of another principal is refused with the same bytes.
What is kept for a list (2025-11-25) is kept under the principal that created the task.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import ColonnadeError, Fault
from colonnade.gateway.bridge import ForwardedInput, ForwardedRequest
from colonnade.gateway.pages import ListPages
from colonnade.gateway.task_followers import GatewayTaskFeed, TaskFollowers
from colonnade.host.host import Host
from colonnade.host.view import HostView
from colonnade.ports import RequestContext, Seal, Store, WatchedTask
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Request, SplitParams, encode, is_bare_call
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.protocol.tasks.record import short_digest, unknown_task

log: logging.Logger = logging.getLogger("colonnade.gateway")

# Ours have some 250 characters; the id of a server in them has at most 512.
MAX_TASK_ID_CHARACTERS = 4096
PRINCIPAL_BYTES = 16
# Tasks on one page of a list: each is a request to its server.
PAGE_SIZE = 50
# Tasks that are asked about at once, for one request of a client.
CONCURRENT_READS = 8
# What is kept for a list, of a task without a ttl.
RECORD_S = 7 * 24 * 3600.0

GET, UPDATE = "tasks/get", "tasks/update"
# Tells an id of a task from everything else that is encrypted with the same keys.
_TAG = "task"
_GENERATIONS = {"core": Tasks.CORE, "extension": Tasks.EXTENSION}


# ---------------------------------------------------------------- ids


class TaskAddress(NamedTuple):
    """What is in the id of a task."""

    tag: str
    principal: bytes
    server: str
    task_id: str
    tool: str
    generation: str


_address = msgspec.msgpack.Decoder(TaskAddress)


def _digest(principal: str) -> bytes:
    return hashlib.sha256(principal.encode()).digest()[:PRINCIPAL_BYTES]


class TaskIds:
    """Encrypts and decrypts the ids of tasks, each for one principal."""

    def __init__(self, seal: Callable[[], Seal]) -> None:
        self._seal = seal

    def seal(self, principal: str, handle: TaskHandle) -> str:
        """The id of a task for a principal."""
        words = [word for word, kind in _GENERATIONS.items() if kind is handle.generation]
        address = TaskAddress(
            _TAG, _digest(principal), handle.server, handle.task_id, handle.tool, words[0]
        )
        return self._seal().seal(msgspec.msgpack.encode(address))

    def open(self, principal: str, id: str, generation: Tasks) -> TaskHandle:
        """The task of an id, for a client that has this generation of tasks. Raises `Fault`, the
        same for everything that is not a task of this principal."""
        if len(id) > MAX_TASK_ID_CHARACTERS:
            raise unknown_task()
        try:
            address = _address.decode(self._seal().unseal(id))
        except (Fault, msgspec.MsgspecError):
            raise unknown_task() from None
        if address.tag != _TAG or address.principal != _digest(principal):
            raise unknown_task()
        if _GENERATIONS.get(address.generation) is not generation:
            raise unknown_task()
        return TaskHandle(address.server, address.task_id, address.tool, generation)


# ---------------------------------------------------------------- requests


class _TaskParams(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")


class ForwardedTask:
    """The tasks of the caller of one request, as the host sees them: those that it can be handed,
    or the one that the request is about."""

    def __init__(
        self,
        generation: Tasks,
        on_created: "OnCreated",
        target: TaskHandle | None = None,
        task_id: str = "",
    ) -> None:
        self.generation: Tasks = generation
        self.target: TaskHandle | None = target
        self.task_id: str = task_id
        self._on_created = on_created

    async def created(
        self, handle: TaskHandle, task: WatchedTask, contain: Callable[[str], str] | None
    ) -> str:
        """The id for the caller of the task that its call has become."""
        return await self._on_created(handle, task, contain)


OnCreated = Callable[[TaskHandle, WatchedTask, Callable[[str], str] | None], Awaitable[str]]


async def _never_created(*_: object) -> str:
    raise AssertionError("a request about a task creates none")


class GatewayTasks:
    """The tasks of the clients of a gateway.

    `declared` are the capabilities of the gateway, `name` is its name, which tells its records from
    those of other gateways in the same store.
    """

    def __init__(
        self,
        host: Host | HostView,
        seal: Callable[[], Seal],
        store: Callable[[], Store],
        pages: ListPages,
        declared: Callable[[], t.ServerCapabilities],
        name: str,
    ) -> None:
        self._host = host
        self._ids = TaskIds(seal)
        self._store = store
        self._pages = pages
        self._declared = declared
        self._prefix = f"gateway/tasks/{short_digest(name)}/"
        self.followers: TaskFollowers = TaskFollowers(host, self.read)

    async def close(self) -> None:
        """Notify of no task any more."""
        await self.followers.close()

    # ------------------------------------------------------------ calls

    def relay_for(self, request: RequestContext) -> ForwardedTask | None:
        """What hands the task back that a call may become; None for a client that has no tasks, or
        does not ask for one where the client decides that."""
        exchange = request.exchange
        if exchange.method.params is not t.CallToolRequestParams:
            return None
        generation = exchange.peer.revision.tasks
        if generation is Tasks.EXTENSION:
            if t.TASKS_EXTENSION_ID not in exchange.peer.extensions:  # R1151
                return None
        elif generation is not Tasks.CORE or not self._asks_for_task(exchange):
            return None

        async def created(
            handle: TaskHandle, task: WatchedTask, contain: Callable[[str], str] | None
        ) -> str:
            id = self._ids.seal(exchange.principal, handle)
            if generation is Tasks.CORE:
                if request.callers is not Callers.ANONYMOUS:
                    await self._record(exchange.principal, id)
                self.followers.follow(request, id, task, contain)
            return id

        return ForwardedTask(generation, created)

    def _asks_for_task(self, exchange: Exchange) -> bool:
        if is_bare_call(exchange.request, exchange.params) or self._declared().tasks is None:
            return False  # R0521: without the capability it is ignored
        return decode_as(t.CallToolRequestParams, exchange.request.params).task is not None

    # ------------------------------------------------------------ requests about a task

    async def handle(self, request: RequestContext) -> t.ProtocolType:
        """A request about one task. Raises `Fault` for an id that is not one of this principal, and
        what the handler of the host raises."""
        exchange = request.exchange
        id = decode_as(_TaskParams, exchange.request.params).task_id
        generation = exchange.peer.revision.tasks
        target = self._ids.open(exchange.principal, id, generation)
        if exchange.method.name == UPDATE:
            exchange = await self._with_asked_responses(request, id)
        tasks = ForwardedTask(generation, _never_created, target, id)
        relay = ForwardedInput(in_results=False, tasks=tasks)
        try:
            result = await self._host.handler(ForwardedRequest(request, exchange, relay))
        finally:
            request.exchange.origin = exchange.origin
        if isinstance(result, t.GetTaskResult) and result.status in _ENDED:
            self.followers.forget(exchange.principal, id)
        return result

    async def _with_asked_responses(self, request: RequestContext, id: str) -> Exchange:
        """A `tasks/update` with the responses to input requests that the client may see now: what
        a policy denies, or a person has not agreed to, is not answered either."""
        exchange = request.exchange
        given = decode_as(t.ExtUpdateTaskRequestParams, exchange.request.params)
        if not given.input_responses:
            return exchange
        state = await self.read(request, id)
        shown = state.input_requests if isinstance(state, t.ExtGetTaskResult) else None
        asked = {key: one for key, one in given.input_responses.items() if key in (shown or {})}
        params = Raw(encode(t.ExtUpdateTaskRequestParams(task_id=id, input_responses=asked)))
        before = exchange.request
        own = Request(before.id, before.method, params, before.raw_id)
        return replace(exchange, request=own, deliver=None)

    async def read(self, request: RequestContext, id: str) -> t.ProtocolType:
        """The state of a task, as `tasks/get` of the same caller would return it."""
        exchange = request.exchange
        method = exchange.peer.revision.method(GET, {t.TASKS_EXTENSION_ID})
        assert method is not None
        own = Exchange(
            Request(0, GET, Raw(encode({"taskId": id})), b"0"),
            SplitParams(exchange.params.meta, None, None),
            method,
            exchange.peer,
            exchange.encoder,
            exchange.principal,
            scopes=exchange.scopes,
        )
        return await self.handle(ForwardedRequest(request, own, None))

    async def _read_all(
        self, request: RequestContext, ids: Sequence[str]
    ) -> list[t.ProtocolType | None]:
        """The states of tasks; None for those that are unknown or cannot be read."""
        semaphore = asyncio.Semaphore(CONCURRENT_READS)

        async def read(id: str) -> t.ProtocolType | None:
            async with semaphore:
                try:
                    return await self.read(request, id)
                except ColonnadeError as error:
                    log.info("a task of %r is left out: %s", request.principal, error)
                    return None

        return list(await asyncio.gather(*map(read, ids)))

    # ------------------------------------------------------------ tasks/list

    async def _record(self, principal: str, id: str) -> None:
        key = f"{self._prefix}{int(time.time() * 1000):014d}-{short_digest(id)}"
        await self._store().put(principal, key, id.encode(), RECORD_S)

    async def list(self, request: RequestContext) -> t.ProtocolType:
        """`tasks/list`: the tasks that this principal has created, of all servers, oldest first.
        Not declared to callers that are not distinguished, of whom nothing is recorded (R0580)."""
        exchange = request.exchange
        position = self._pages.take_cursor(request)
        principal, store = exchange.principal, self._store()
        after = position.last if position is not None else ""
        names = await store.names(principal, self._prefix, after, PAGE_SIZE + 1)
        more, names = len(names) > PAGE_SIZE, names[:PAGE_SIZE]
        values = [await store.get(principal, name) for name in names]
        ids = [value.decode() if value is not None else "" for value in values]
        states = await self._read_all(request, ids)
        tasks = [_task(state) for state in states if isinstance(state, t.GetTaskResult)]
        cursor = self._pages.cursor(request, names[-1]) if more else None
        return t.ListTasksResult(tasks=tasks, next_cursor=cursor)

    # ------------------------------------------------------------ subscriptions/listen

    async def listen(self, request: RequestContext, ids: Sequence[str]) -> GatewayTaskFeed:
        """Follow tasks for a `subscriptions/listen`, as far as there is room. Those that are
        unknown, of another principal, or not followed by their servers are left out of
        `feed.agreed`."""
        exchange = request.exchange
        feed = self.followers.feed(request)
        room = feed.reserve(list(dict.fromkeys(ids)))
        try:
            states = await self._read_all(request, room)
            targets: dict[str, TaskHandle] = {}
            for id, state in zip(room, states, strict=True):
                if state is not None:
                    targets[id] = self._ids.open(
                        exchange.principal, id, exchange.peer.revision.tasks
                    )
            await feed.open(targets)
        except BaseException:
            feed.close()
            raise
        return feed


_ENDED = ("completed", "failed", "cancelled")


def _task(state: t.GetTaskResult) -> t.Task:
    return t.Task(
        task_id=state.task_id,
        status=state.status,
        created_at=state.created_at,
        last_updated_at=state.last_updated_at,
        ttl=state.ttl,
        poll_interval=state.poll_interval,
        status_message=state.status_message,
    )
