"""Requests about the tasks of one server, in the generation of tasks that its revision has.

2025-11-25 has tasks in its core: a call asks for a task, and `tasks/result` returns what becomes of
it. 2026-07-28 has them as an extension: the server decides, `tasks/get` has the result, and states
may arrive on a subscription.

Rules: one request each, and no state of a task, which `ClientTask` has. Imported on use.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Raw

from colonnade.client.connection import Headers, ManagedConnection
from colonnade.client.input_callbacks import CallbackQueue, InputCallbacks
from colonnade.client.subscriptions import ChangeStream, ChangeStreams, ChangeSubscription
from colonnade.client.transports import ClientTransport
from colonnade.errors import ColonnadeError, Fault, RemoteProtocolError
from colonnade.ports import ProgressCallback
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import convert_to, decode_as, decode_unchecked
from colonnade.protocol.exchange import decode_result
from colonnade.protocol.input_requests import (
    InputCapabilities,
    InputRequest,
    checked_input_requests,
)
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskState, state_of, update_task_params
from colonnade.protocol.tasks.record import short_digest

log: logging.Logger = logging.getLogger("colonnade.client")

# For `tasks/cancel` when a call is cancelled: the caller waits that long at most.
CANCEL_S = 2.0
# Tasks of one client that listen at once: each needs a connection over HTTP. The others poll.
MAX_LISTENING = 8
# Tasks whose progress is kept before they are followed.
MAX_EARLY = 32

CALL = "tools/call"
GET = "tasks/get"
RESULT = "tasks/result"
UPDATE = "tasks/update"
CANCEL = "tasks/cancel"
TASK_STATUS = "notifications/tasks"


def endpoint_of(transport: ClientTransport) -> str:
    """The server of a transport as handles name it: the same in another process, and without
    credentials, which a query may have."""
    key: object = transport.key
    if isinstance(key, str):
        url = urlsplit(key)
        place = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
        return f"{place}?{short_digest(url.query)}" if url.query else place
    if isinstance(key, tuple):  # a command: its words, its folder and its environment
        return f"stdio:{transport.name}:{short_digest(repr(cast('tuple[object, ...]', key)[:2]))}"
    return f"name:{transport.name}"


# ---------------------------------------------------------------- requests about tasks


TaskProgress: TypeAlias = Callable[[t.ProgressNotificationParams], None]


class TaskRequests:
    """Sends the requests about the tasks of one client, in the generation of its server."""

    def __init__(
        self,
        connection: ManagedConnection,
        streams: ChangeStreams,
        callbacks: InputCallbacks,
        queue: CallbackQueue,
        peer: Callable[[], Peer],
        label: Callable[[], str],
    ) -> None:
        self.connection = connection
        self.callbacks = callbacks
        self.queue = queue
        self.endpoint: str = endpoint_of(connection.transport)
        self._streams = streams
        self._peer = peer
        self._label = label
        self._listening = 0
        # Called with the progress of tasks, by their ids.
        self._on_progress: dict[str, TaskProgress] = {}
        # The latest progress of tasks that are not followed, or not yet: it may arrive right after
        # the response with the id of its task.
        self._early: dict[str, t.ProgressNotificationParams] = {}
        # Called when the server sends a status of a task, by its id.
        self._on_status: dict[str, Callable[[], None]] = {}
        # Calls that were cancelled before the id of their task was known.
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def label(self) -> str:
        """The server, in errors."""
        return self._label()

    @property
    def server(self) -> str | None:
        """The name of the server that errors have: the one that it was given, if any."""
        return self.connection.transport.name or None

    def invalid(self, words: str) -> RemoteProtocolError:
        """The error for what the server must not send."""
        return RemoteProtocolError(f"{self.label}: {words}", server=self.server)

    @property
    def peer(self) -> Peer:
        """The server and its revision, which may change with a reconnect."""
        return self._peer()

    @property
    def generation(self) -> Tasks:
        """The generation of tasks of the server's revision."""
        return self.peer.revision.tasks

    @property
    def can_wait(self) -> bool:
        """Whether a server that is away can come back."""
        connection = self.connection
        return connection.transport.can_reconnect and not connection.closed

    # ------------------------------------------------------------ requests

    async def get(self, task_id: str, timeout_s: float) -> TaskState:
        """`tasks/get`."""
        if self.generation is Tasks.CORE:
            params: t.RequestParams = t.GetTaskRequestParams(task_id=task_id)
            kind: type[t.GetTaskResult | t.ExtGetTaskResult] = t.GetTaskResult
        else:
            params, kind = t.ExtGetTaskRequestParams(task_id=task_id), t.ExtGetTaskResult
        raw = await self.connection.request(GET, params, timeout_s)
        try:
            state = state_of(decode_unchecked(kind, raw))  # D69
        except Fault as fault:
            raise self.invalid(fault.message) from None
        if state.task_id != task_id:
            raise self.invalid("tasks/get returned the state of another task")
        return state

    async def fetch(self, task_id: str, timeout_s: float) -> Raw:
        """`tasks/result`, which returns when the task has ended."""
        params = t.GetTaskPayloadRequestParams(task_id=task_id)
        return await self.connection.request(RESULT, params, timeout_s)

    async def update(
        self,
        task_id: str,
        requests: Mapping[str, t.AnyInputRequest],
        responses: Mapping[str, Any],
        timeout_s: float,
    ) -> None:
        """`tasks/update`."""
        encoder = self.connection.conversation.link.encoder(self.peer.revision)
        params = update_task_params(task_id, requests, responses, encoder)
        await self.connection.request(UPDATE, params, timeout_s)

    async def cancel(self, task_id: str, timeout_s: float) -> None:
        """`tasks/cancel`."""
        if self.generation is Tasks.CORE:
            params: t.RequestParams = t.CancelTaskRequestParams(task_id=task_id)
        else:
            params = t.ExtCancelTaskRequestParams(task_id=task_id)
        await self.connection.request(CANCEL, params, timeout_s)

    async def cancel_quietly(self, task_id: str) -> None:
        """`tasks/cancel`, for a task that is no longer wanted: an error is only logged."""
        try:
            async with asyncio.timeout(CANCEL_S):
                await self.cancel(task_id, CANCEL_S)
        except (ColonnadeError, TimeoutError) as error:
            log.info("%s: a task was not cancelled: %s", self.label, error)

    # ------------------------------------------------------------ calls that are tasks

    async def create(
        self,
        params: t.CallToolRequestParams,
        timeout_s: float,
        on_progress: ProgressCallback | None,
        headers: Headers,
    ) -> "t.CallToolResult | t.CreateTaskResult":
        """Call a tool as a task, in the revision whose core has tasks. The server may run it at
        once instead (R0521)."""
        task_params = t.CallToolRequestParams(
            name=params.name,
            arguments=params.arguments,
            meta=params.meta,
            task=params.task or t.TaskMetadata(),
        )
        work = self.connection.request(CALL, task_params, timeout_s, on_progress, headers)
        pending = asyncio.get_running_loop().create_task(work)
        try:
            raw = await asyncio.shield(pending)
        except asyncio.CancelledError:
            # R0668: not by `notifications/cancelled`; the id of the task comes with the response.
            abandoned = asyncio.get_running_loop().create_task(self._abandon(pending))
            self._abandoned.add(abandoned)
            abandoned.add_done_callback(self._abandoned.discard)
            await asyncio.wait([abandoned], timeout=CANCEL_S)
            raise
        return self._created(raw)

    def _created(self, raw: Raw) -> "t.CallToolResult | t.CreateTaskResult":
        with contextlib.suppress(Fault):
            return decode_unchecked(t.CreateTaskResult, raw)
        return self.decode(raw)

    async def _abandon(self, pending: "asyncio.Task[Raw]") -> None:
        with contextlib.suppress(ColonnadeError):
            created = self._created(await pending)
            if isinstance(created, t.CreateTaskResult):
                await self.cancel_quietly(created.task.task_id)

    # ------------------------------------------------------------ results and input requests

    def decode(self, raw: Raw) -> t.CallToolResult:
        """The result of the call that became a task. Raises `RemoteProtocolError`."""
        peer = self.peer
        try:
            return cast("t.CallToolResult", decode_result(peer.revision.methods[CALL], raw, peer))
        except Fault as fault:
            raise self.invalid(fault.message) from None

    def check(
        self, requests: dict[str, t.AnyInputRequest], declared: InputCapabilities | None = None
    ) -> dict[str, InputRequest]:
        """Input requests of a task, each checked as any other is (R1217); `declared` are the input
        capabilities of its call, None for those of the client. Raises `RemoteProtocolError` for one
        that is not supported."""
        result = t.InputRequiredResult(input_requests=requests)
        capabilities = self.callbacks.capabilities
        if declared is not None:
            capabilities = declared.declared_in(capabilities)
        try:
            return checked_input_requests(result, capabilities, self.peer.revision)
        except Fault as fault:
            words = "a task requires input that this client does not support"
            raise self.invalid(f"{words}: {fault.message}") from None

    # ------------------------------------------------------------ progress

    def watch_progress(self, task_id: str, on_progress: "TaskProgress") -> None:
        """Call a function with the progress notifications of a task, until `unwatch_progress`."""
        self._on_progress[task_id] = on_progress
        early = self._early.pop(task_id, None)
        if early is not None:
            on_progress(early)

    def unwatch_progress(self, task_id: str) -> None:
        """Ignore the progress notifications of a task."""
        self._on_progress.pop(task_id, None)

    def on_progress(self, notification: NotificationReceived) -> None:
        """Pass on a progress notification that names its task. Raises `Fault`."""
        params = decode_as(t.ProgressNotificationParams, notification.params)
        related = convert_to(t.RequestMeta, params.meta or {}).related_task
        if related is None:
            return
        watcher = self._on_progress.get(related.task_id)
        if watcher is not None:
            watcher(params)
            return
        self._early.pop(related.task_id, None)
        while len(self._early) >= MAX_EARLY:
            del self._early[next(iter(self._early))]
        self._early[related.task_id] = params

    def watch(
        self, task_id: str, on_status: Callable[[], None], on_progress: "TaskProgress"
    ) -> Callable[[], None]:
        """Call these with what the session sends about a task, until the returned function is
        called."""
        self._on_status[task_id] = on_status
        self.watch_progress(task_id, on_progress)

        def unwatch() -> None:
            self._on_status.pop(task_id, None)
            self.unwatch_progress(task_id)

        return unwatch

    def on_status(self, notification: NotificationReceived) -> None:
        """Pass on that a status of a task was sent. Raises `Fault`."""
        params = decode_as(t.TaskStatusNotificationParams, notification.params)
        watcher = self._on_status.get(params.task_id)
        if watcher is not None:
            watcher()

    # ------------------------------------------------------------ subscriptions

    async def listen(self, stream: "TaskStream", timeout_s: float) -> None:
        """Receive the states of a task, until the server ends that. Does nothing if it does not
        offer it."""
        if self._listening >= MAX_LISTENING or t.TASKS_EXTENSION_ID not in self.peer.extensions:
            return
        self._listening += 1
        try:
            subscription = ChangeSubscription(self.connection, self._streams, stream, timeout_s)
            async with subscription.subscribed():
                if not stream.is_agreed:
                    return
                stream.connected()
                async for _ in stream:  # states are passed on as they arrive
                    pass
        except ColonnadeError as error:
            log.debug("%s: the states of a task are polled: %s", self.label, error)
        finally:
            self._listening -= 1
            stream.disconnected()


class TaskStream(ChangeStream):
    """A subscription to the states of one task."""

    def __init__(
        self,
        task_id: str,
        observe: Callable[[TaskState], object],
        connected: Callable[[bool], None],
    ) -> None:
        super().__init__(t.SubscriptionFilter(task_ids=[task_id]))
        self._task_id = task_id
        self._observe = observe
        self._on_connected = connected

    @property
    def is_agreed(self) -> bool:
        """Whether the server sends the states of this task."""
        return self._task_id in (self.agreed.task_ids or ())

    @property
    def not_agreed(self) -> list[str]:
        """Empty: without notifications the task is polled."""
        return []

    def receive(self, notification: NotificationReceived) -> None:
        """Pass on a state of the task."""
        if notification.method.name == TASK_STATUS:
            params = decode_as(t.ExtTaskStatusNotificationParams, notification.params)
            if params.task_id == self._task_id:
                self._observe(state_of(params))

    def connected(self) -> None:
        """No state is missed from now on."""
        self._on_connected(True)

    def disconnected(self) -> None:
        """No state arrives any more."""
        self._on_connected(False)

    def mark_all_changed(self) -> None:
        """After a gap, states may have been missed: what was missed is polled."""
        self._on_connected(self.is_agreed)
