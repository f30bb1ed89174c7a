"""Notifications of tasks: those of a server, passed on to the client that may see the task.

A notification of a server only says that a task has changed. The gateway reads the task as the
client would, through the handler of the host, and sends what it read: so nothing is sent that a
policy hides, or that another principal owns.

Rules: what is followed is counted and bounded, for each principal. Notifications are optional in
both generations of tasks, so what does not fit is left out, and polled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ReferenceType, ref

from colonnade.errors import ColonnadeError, Fault
from colonnade.host.host import Host
from colonnade.host.resource_updates import ResourceUpdates
from colonnade.host.view import HostView
from colonnade.ports import RequestContext, Session, WatchedTask, WrappedRequest
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, Network, NonHttpRequestFields
from colonnade.protocol.jsonrpc import NOTHING, Request, SplitParams, encode_notification
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.protocol.tasks.record import TERMINAL
from colonnade.protocol.tasks.results import related
from colonnade.server.notifications import Listener

if TYPE_CHECKING:
    from colonnade.protocol.http.security import Headers
    from colonnade.protocol.input_requests import InputRequest

log: logging.Logger = logging.getLogger("colonnade.gateway")

# As many as resources: callers without a name are together one principal.
MAX_TASKS_PER_PRINCIPAL = 256
MAX_TASKS = 4096
EXT_STATUS = "notifications/tasks"
CORE_STATUS = "notifications/tasks/status"
PROGRESS = "notifications/progress"

# The state of a task, as `tasks/get` of the caller of a request would return it.
ReadTask = Callable[[RequestContext, str], Awaitable[t.ProtocolType]]


class TaskRoom:
    """Counts the tasks that are followed."""

    def __init__(self) -> None:
        self._by_principal: dict[str, int] = {}
        self._total = 0

    def reserve(self, principal: str, count: int) -> int:
        """Count so many tasks more, or as many as there is room for. Returns how many."""
        own = self._by_principal.get(principal, 0)
        found = max(min(count, MAX_TASKS_PER_PRINCIPAL - own, MAX_TASKS - self._total), 0)
        if found:
            self._by_principal[principal] = own + found
            self._total += found
        return found

    def release(self, principal: str, count: int) -> None:
        """Count so many tasks less."""
        left = self._by_principal.get(principal, 0) - count
        self._total -= count
        if left > 0:
            self._by_principal[principal] = left
        else:
            self._by_principal.pop(principal, None)


# ---------------------------------------------------------------- sessions


class SessionRequest(NonHttpRequestFields):
    """A request of the gateway itself, for the session of a client: it reads a task again."""

    def __init__(self, caller: "SessionCaller", session: Session) -> None:
        self.exchange: Exchange = caller.exchange
        self.fault: Fault | None = None
        self._caller = caller
        self._session = session

    @property
    def claims(self) -> Mapping[str, Any]:
        """Those of the request that created the task."""
        return self._caller.claims

    @property
    def headers(self) -> "Headers":
        """Those of the request that created the task."""
        return self._caller.headers

    @property
    def callers(self) -> Callers:
        """Those of the request that created the task."""
        return self._caller.callers

    @property
    def network(self) -> Network:
        """That of the request that created the task."""
        return self._caller.network

    @property
    def session(self) -> Session:
        """The session of the client."""
        return self._session

    async def send(self, frame: bytes) -> None:
        """Nothing: no client waits for it."""

    def post(self, frame: bytes) -> bool:
        """Nothing: no client waits for it."""
        return True

    async def ask(self, input_request: "InputRequest") -> Any:
        """Not used: reading a task asks nothing."""
        raise AssertionError("a task is only read")

    async def hang_up(self) -> None:
        """Nothing: there is no connection."""


class SessionCaller:
    """Who created a task in a session, without the request, which has ended."""

    def __init__(self, request: RequestContext) -> None:
        before = request.exchange
        self.exchange: Exchange = Exchange(
            Request(0, before.method.name, NOTHING, b"0"),
            SplitParams(),
            before.method,
            before.peer,
            before.encoder,
            before.principal,
            scopes=before.scopes,
        )
        self.token: t.ProgressToken | None = before.progress_token
        self.claims: Mapping[str, Any] = request.claims
        self.headers: Headers = request.headers
        self.callers: Callers = request.callers
        self.network: Network = request.network


class FollowedSessionTask:
    """A task of 2025-11-25, and the session that created it."""

    def __init__(self, caller: SessionCaller, session: Session, id: str) -> None:
        self.caller = caller
        self.id = id
        self.session: ReferenceType[Session] = ref(session)
        self.unwatch: Callable[[], None] = lambda: None
        self.progress: float | None = None
        # Whether the rules have changed since it was read: until it is again, nothing is sent.
        self.is_in_doubt: bool = False
        # Whether it is being read, and whether it has changed since.
        self.is_read: bool = False
        self.has_changed: bool = False


class TaskFollowers:
    """The tasks that clients of a gateway are notified of."""

    def __init__(self, host: Host | HostView, read: ReadTask) -> None:
        self._host = host
        self._read = read
        self._room = TaskRoom()
        self._in_sessions: dict[tuple[str, str], FollowedSessionTask] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._feeds: set[GatewayTaskFeed] = set()

    def __len__(self) -> int:
        return len(self._in_sessions) + sum(len(feed.tasks) for feed in self._feeds)

    def follow(
        self,
        request: RequestContext,
        id: str,
        task: WatchedTask,
        contain: Callable[[str], str] | None,
    ) -> None:
        """Notify the session of a request of the task that its call has become, until that has
        ended."""
        session, principal = request.session, request.exchange.principal
        if session is None:
            return
        while not self._room.reserve(principal, 1):
            oldest = next((one for one in self._in_sessions if one[0] == principal), None)
            if oldest is None:
                return
            self.forget(*oldest)
        followed = FollowedSessionTask(SessionCaller(request), session, id)
        self._in_sessions[principal, id] = followed

        def on_progress(params: t.ProgressNotificationParams) -> None:
            self._send_progress(followed, params, contain)

        followed.unwatch = task.watch(lambda: self._changed(followed), on_progress)

    def forget(self, principal: str, id: str) -> None:
        """The task has ended, or its session."""
        followed = self._in_sessions.pop((principal, id), None)
        if followed is not None:
            followed.unwatch()
            self._room.release(principal, 1)

    def _send_progress(
        self,
        followed: FollowedSessionTask,
        params: t.ProgressNotificationParams,
        contain: Callable[[str], str] | None,
    ) -> None:
        """Send progress after the response to the call: with the token of the call, as long as the
        task lasts (R0498, R0548)."""
        session, caller = followed.session(), followed.caller
        is_next = followed.progress is None or params.progress > followed.progress
        if session is None or caller.token is None or not is_next or followed.is_in_doubt:
            return
        followed.progress = params.progress
        message = params.message
        if message is not None and contain is not None:
            message = contain(message)
        own = t.ProgressNotificationParams(
            progress_token=caller.token,
            progress=params.progress,
            total=params.total,
            message=message,
        )
        body = caller.exchange.encoder.params(related(own, followed.id))
        frame = encode_notification(PROGRESS, body)
        session.post_notification(frame, f"progress {followed.id}", frozenset())

    def rules_changed(self) -> None:
        """Read each task again: what its caller may not see any more is not followed."""
        for followed in list(self._in_sessions.values()):
            followed.is_in_doubt = True
            self._changed(followed)

    def _changed(self, followed: FollowedSessionTask) -> None:
        followed.has_changed = True
        if not followed.is_read:
            followed.is_read = True
            self._spawn(self._reading, self._send_states(followed))

    async def _send_states(self, followed: FollowedSessionTask) -> None:
        principal = followed.caller.exchange.principal
        try:
            while followed.has_changed:
                followed.has_changed = False
                session = followed.session()
                if session is None:
                    self.forget(principal, followed.id)
                    return
                request = SessionRequest(followed.caller, session)
                state = await self._read(request, followed.id)
                followed.is_in_doubt = followed.has_changed and followed.is_in_doubt
                if isinstance(state, t.GetTaskResult):
                    self._send_state(followed, session, state)
        except ColonnadeError as error:
            log.info("a task of %r is not followed any more: %s", principal, error)
            self.forget(principal, followed.id)
        finally:
            followed.is_read = False

    def _send_state(
        self, followed: FollowedSessionTask, session: Session, state: t.GetTaskResult
    ) -> None:
        params = t.TaskStatusNotificationParams(
            task_id=state.task_id,
            status=state.status,
            created_at=state.created_at,
            last_updated_at=state.last_updated_at,
            ttl=state.ttl,
            poll_interval=state.poll_interval,
            status_message=state.status_message,
        )
        frame = encode_notification(CORE_STATUS, followed.caller.exchange.encoder.params(params))
        session.post_notification(frame, f"status {followed.id}", frozenset())

    # ------------------------------------------------------------ subscriptions/listen

    def feed(self, request: RequestContext) -> "GatewayTaskFeed":
        """What follows the tasks of a `subscriptions/listen`."""
        feed = GatewayTaskFeed(self._host, self._read, request, self._room, self._feed_closed)
        self._feeds.add(feed)
        return feed

    def _feed_closed(self, feed: "GatewayTaskFeed", left: list[Coroutine[Any, Any, None]]) -> None:
        self._feeds.discard(feed)
        for one in left:
            self._spawn(self._closing, one)

    def _spawn(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def close(self) -> None:
        """Follow nothing any more."""
        for principal, id in list(self._in_sessions):
            self.forget(principal, id)
        for feed in list(self._feeds):
            feed.close()
        for task in self._reading:
            task.cancel()
        left = self._reading | self._closing
        if left:
            await asyncio.wait(left)


# ---------------------------------------------------------------- subscriptions

# Called with a feed that is closed, and what is left to do.
OnFeedClosed: TypeAlias = "Callable[[GatewayTaskFeed, list[Coroutine[Any, Any, None]]], None]"


class GatewayTaskFeed:
    """The tasks of one `subscriptions/listen`: one subscription at each of their servers."""

    def __init__(
        self,
        host: Host | HostView,
        read: ReadTask,
        request: RequestContext,
        room: TaskRoom,
        on_close: "OnFeedClosed",
    ) -> None:
        self._host = host
        self._read = read
        self._request = WrappedRequest(request)
        self._principal = request.exchange.principal
        self._room = room
        self._on_close = on_close
        self._reserved = 0
        self._updates: list[ResourceUpdates] = []
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        # The ids of the client that it is notified of.
        self.tasks: list[str] = []

    def reserve(self, ids: Sequence[str]) -> Sequence[str]:
        """Those of these tasks that there is room for."""
        self._reserved = self._room.reserve(self._principal, len(ids))
        return ids[: self._reserved]

    async def open(self, targets: Mapping[str, TaskHandle]) -> None:
        """Follow tasks, by the ids of the client."""
        by_server: dict[str, dict[str, str]] = {}
        for id, handle in targets.items():
            by_server.setdefault(handle.server, {})[handle.task_id] = id
        for server, own in by_server.items():

            def on_change(task_id: str, own: Mapping[str, str] = own) -> None:
                self._changed[own[task_id]] = None
                self._wake.set()

            updates = self._host.task_updates(server, frozenset(own), self._principal, on_change)
            try:
                agreed = await updates.start()
            except ColonnadeError as error:
                log.info("server %r: tasks are not followed: %s", server, error)
                continue
            self._updates.append(updates)
            self.tasks += [id for task_id, id in own.items() if task_id in agreed]

    def start(self, listener: Listener) -> None:
        """Send changes to a listener from now on."""
        self._sender = asyncio.get_running_loop().create_task(self._send(listener))

    async def _send(self, listener: Listener) -> None:
        await listener.acknowledged.wait()
        ended: set[str] = set()
        while len(ended) < len(self.tasks):
            self._wake.clear()
            while self._changed:
                id = next(iter(self._changed))
                del self._changed[id]
                state = await self._state(id)
                if state is not None:
                    listener.on_change(EXT_STATUS, state)
                if state is None or state.status in TERMINAL:
                    ended.add(id)
            await self._wake.wait()

    async def _state(self, id: str) -> t.ExtTaskStatusNotificationParams | None:
        """The state of a task for a notification; None if it is not known any more."""
        try:
            found = await self._read(self._request, id)
        except ColonnadeError as error:
            log.info("a task of %r is not followed any more: %s", self._principal, error)
            return None
        if not isinstance(found, t.ExtGetTaskResult):
            return None
        return t.ExtTaskStatusNotificationParams(
            task_id=found.task_id,
            status=found.status,
            created_at=found.created_at,
            last_updated_at=found.last_updated_at,
            ttl_ms=found.ttl_ms,
            poll_interval_ms=found.poll_interval_ms,
            status_message=found.status_message,
            input_requests=found.input_requests,
            result=found.result,
            error=found.error,
        )

    def close(self) -> None:
        """Follow nothing any more. It does not wait, since the request may have been cancelled:
        those who close the followers do."""
        self._room.release(self._principal, self._reserved)
        self._reserved = 0
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None  # a cancelled task would keep this feed in memory
        self._on_close(self, [one.close() for one in self._updates])
        self._updates = []
