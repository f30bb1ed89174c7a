"""Change notifications of a server as one stream, via `subscriptions/listen` or the session.

In revisions with `subscriptions/listen`, each stream is a subscription; in older ones, it filters
the notifications of the session. `ChangeSubscription` keeps it going.

Rules: equal changes that were not consumed yet are merged. The buffer is bounded: a consumer that
is too slow gets an error and must read everything again. After a gap, everything that may have
changed counts as changed.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Raw

from colonnade.client.connection import ManagedConnection
from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost, LocalProtocolError
from colonnade.ports import Conversation
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import LISTEN
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import ACKNOWLEDGED
from colonnade.protocol.subscriptions import is_covered

log: logging.Logger = logging.getLogger("colonnade.client")

# Changes that were not consumed yet: there are three lists, so the rest are resources.
MAX_PENDING = 1000
# Of their URIs together: one below a subscribed resource may be long.
MAX_PENDING_CHARS = 1024 * 1024

Kind: TypeAlias = Literal["tools", "prompts", "resources", "resource", "task"]

UPDATED = "notifications/resources/updated"
TASK_CHANGED = "notifications/tasks"
LISTS: dict[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Change(NamedTuple):
    """What changed: a list (`tools`, `prompts`, `resources`), or the `resource` at `uri`; for
    gateways also the `task` of which `uri` is the id."""

    kind: Kind
    uri: str | None = None


class ChangeStream:
    """A stream of changes: `async for change in changes`.

    If the connection is lost, or the server ends the subscription, the client listens again if
    possible, and then everything counts as changed. Raises `ConnectionLost` if the connection
    cannot be opened again, or if changes were not consumed for too long. The iteration ends if the
    server has ended the subscription and the client cannot listen again, or if the server keeps
    ending new subscriptions shortly after they begin.
    """

    def __init__(self, wanted: t.SubscriptionFilter) -> None:
        self.wanted = wanted
        self.uris: frozenset[str] = frozenset(wanted.resource_subscriptions or ())
        # What the server agreed to send.
        self.agreed: t.SubscriptionFilter = wanted
        self._pending: dict[Change, None] = {}
        self._chars = 0
        self._wake = asyncio.Event()
        self._acknowledged = asyncio.Event()
        # Set while the session of the notifications is lost.
        self.session_lost: asyncio.Event = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None

    def __aiter__(self) -> "ChangeStream":
        return self

    async def __anext__(self) -> Change:
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        change = next(iter(self._pending))
        del self._pending[change]
        self._chars -= len(change.uri or "")
        return change

    def wants(self, change: Change) -> bool:
        """Whether the filter includes this change."""
        wanted = self.wanted
        match change.kind:
            case "tools":
                return bool(wanted.tools_list_changed)
            case "prompts":
                return bool(wanted.prompts_list_changed)
            case "resources":
                return bool(wanted.resources_list_changed)
            case "resource":
                return change.uri is not None and is_covered(change.uri, self.uris)
            case "task":
                return change.uri in (wanted.task_ids or ())

    def receive(self, notification: NotificationReceived) -> None:
        """Add the change of a notification, if the filter includes it. Raises `Fault`."""
        change = change_from(notification)
        if change is not None and self.wants(change):
            self.put(change)

    def put(self, change: Change) -> None:
        """Add a change to the buffer."""
        if change in self._pending:
            return
        self._chars += len(change.uri or "")
        if len(self._pending) >= MAX_PENDING or self._chars > MAX_PENDING_CHARS:
            self._pending.clear()
            self._chars = 0
            self.end(ConnectionLost("changes were missed: the consumer is too slow; listen again"))
            return
        self._pending[change] = None
        self._wake.set()

    def acknowledge(self, agreed: t.SubscriptionFilter) -> None:
        """The server has acknowledged the subscription: no change is missed from now on."""
        self.agreed = agreed
        if self.not_agreed:  # R0820
            log.info("the server does not send changes of %s", ", ".join(self.not_agreed))
        self._acknowledged.set()

    @property
    def not_agreed(self) -> list[str]:
        """What was requested and the server did not agree to send."""
        agreed = self.agreed
        granted = {
            "tools": agreed.tools_list_changed,
            "prompts": agreed.prompts_list_changed,
            "resource_list": agreed.resources_list_changed,
        }
        wanted = {
            "tools": self.wanted.tools_list_changed,
            "prompts": self.wanted.prompts_list_changed,
            "resource_list": self.wanted.resources_list_changed,
        }
        lists = [name for name in wanted if wanted[name] and not granted[name]]
        return lists + sorted(self.uris.difference(agreed.resource_subscriptions or ()))

    async def wait_acknowledged(self) -> None:
        """Wait for the acknowledgement, or the end of the stream."""
        await self._acknowledged.wait()

    def reset(self) -> None:
        """Wait for another acknowledgement: the subscription is made again."""
        self._acknowledged.clear()

    def wake(self) -> None:
        """Wake up `wait_acknowledged`."""
        self._acknowledged.set()

    def mark_all_changed(self) -> None:
        """After a gap: add a change for everything in the filter."""
        kinds: tuple[Kind, ...] = ("tools", "prompts", "resources")
        lists = [Change(kind) for kind in kinds]
        tasks = [Change("task", id) for id in self.wanted.task_ids or ()]
        for change in [*lists, *tasks, *(Change("resource", uri) for uri in sorted(self.uris))]:
            if self.wants(change):
                self.put(change)

    def end(self, error: BaseException | None = None) -> None:
        """End the stream."""
        if not self._ended:
            self._ended, self._error = True, error
        self._wake.set()
        self._acknowledged.set()


class ChangeStreams:
    """The change streams of one client."""

    def __init__(self, invalidate: Callable[[], None] = lambda: None) -> None:
        self._invalidate = invalidate
        self._subscribed: dict[RequestId, ChangeStream] = {}
        self._in_session: set[ChangeStream] = set()
        # Resources of `Client.subscribe`, without a stream.
        self.manual: set[str] = set()

    def add(self, stream: ChangeStream, subscription: RequestId | None = None) -> None:
        """Add a stream: for the notifications of a subscription, or of the session."""
        if subscription is not None:
            self._subscribed[subscription] = stream
        else:
            self._in_session.add(stream)

    def discard(self, stream: ChangeStream, subscription: RequestId | None = None) -> None:
        """Remove a stream."""
        if subscription is not None:
            self._subscribed.pop(subscription, None)
        self._in_session.discard(stream)

    def dispatch(self, notification: NotificationReceived) -> None:
        """Pass a notification to the streams. Raises `Fault` for invalid params."""
        if notification.subscription is not None:
            stream = self._subscribed.get(notification.subscription)
            streams: Iterable[ChangeStream] = () if stream is None else (stream,)
        else:
            streams = tuple(self._in_session)
        if notification.method.name == ACKNOWLEDGED:
            params = decode_as(t.SubscriptionsAcknowledgedNotificationParams, notification.params)
            for stream in streams:
                stream.acknowledge(params.notifications)
            return
        for stream in streams:
            stream.receive(notification)

    def mark_gap(self, stream: ChangeStream) -> None:
        """Notifications of a stream were missed: cached results may be stale."""
        self._invalidate()
        stream.mark_all_changed()

    @property
    def subscribed_uris(self) -> set[str]:
        """The resources to subscribe to in the session."""
        return self.manual.union(*(stream.uris for stream in self._in_session))

    def on_session_lost(self) -> None:
        """The session is lost, and may be restored."""
        for stream in tuple(self._in_session):
            stream.session_lost.set()

    def on_session_restored(self) -> None:
        """There is a new session: the streams of the last one have missed notifications."""
        for stream in tuple(self._in_session):
            stream.session_lost.clear()
        self.mark_session_gap()

    def mark_session_gap(self) -> None:
        """The streams of the session have missed notifications."""
        for stream in tuple(self._in_session):
            stream.mark_all_changed()

    def end(self, error: ConnectionLost, *, subscribed: bool = True) -> None:
        """End the streams of the session, and with `subscribed` all others too."""
        for stream in (*(self._subscribed.values() if subscribed else ()), *self._in_session):
            stream.end(error)


def change_from(notification: NotificationReceived) -> Change | None:
    """The change of a notification; None if it is about something else. Raises `Fault`."""
    if notification.method.name == UPDATED:
        params = decode_as(t.ResourceUpdatedNotificationParams, notification.params)
        return Change("resource", params.uri)
    if notification.method.name == TASK_CHANGED:
        state = decode_as(t.ExtTaskStatusNotificationParams, notification.params)
        return Change("task", state.task_id)
    kind = LISTS.get(notification.method.name)
    return Change(kind) if kind is not None else None


SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"

# Delay before a retry: the first, and the maximum.
RETRY_S = 0.5
MAX_RETRY_S = 30.0
# The end of a subscription that lasted this long is not counted as a failure.
STABLE_S = 60.0
# About three minutes in all: the update of a server takes less.
MAX_TRIES = 10
# Timeout for `resources/unsubscribe` when a stream is closed.
UNSUBSCRIBE_S = 2.0


def retry_delay_s(tries: int) -> float:
    """The delay before the next retry: exponential, with jitter."""
    return min(RETRY_S * 2.0**tries, MAX_RETRY_S) * (0.5 + random.random() / 2)


class ChangeSubscription:
    """Keeps one change stream subscribed, also over reconnects."""

    def __init__(
        self,
        connection: ManagedConnection,
        change_streams: ChangeStreams,
        stream: ChangeStream,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._change_streams = change_streams
        self._stream = stream
        self._timeout_s = timeout_s
        self._current: tuple[Conversation, RequestId, asyncio.Future[Raw]] | None = None

    # ------------------------------------------------------------ on subscriptions

    @asynccontextmanager
    async def subscribed(self) -> AsyncGenerator[None]:
        """Subscribe with `subscriptions/listen` while this is entered."""
        watch: asyncio.Task[None] | None = None
        try:
            error = await self._subscribe()
            if error is not None:
                raise error
            watch = asyncio.get_running_loop().create_task(self._watch_subscription())
            yield
        finally:
            _cancel(watch)  # cancel everything before the first await, which may be cancelled too
            self._cancel_subscription()
            await _wait_for(watch)

    async def _subscribe(self) -> BaseException | None:
        """Subscribe and wait for the acknowledgement; the error if it failed."""
        params = t.SubscriptionsListenRequestParams(notifications=self._stream.wanted)
        conversation = await self._connection.ensure_open(LISTEN)
        self._cancel_subscription()
        self._stream.reset()
        id: RequestId = conversation.link.snapshot().next_id
        # Before the request is sent: a server in this process may respond at once.
        self._change_streams.add(self._stream, id)
        try:
            id, answer = conversation.start_request(LISTEN, params, self._timeout_s)
        except BaseException:
            self._change_streams.discard(self._stream, id)
            raise
        self._current = conversation, id, answer
        answer.add_done_callback(lambda _: self._stream.wake())
        await self._stream.wait_acknowledged()
        return _error_of(answer) if answer.done() else None

    def _cancel_subscription(self) -> None:
        if self._current is None:
            return
        conversation, id, answer = self._current
        self._current = None
        self._change_streams.discard(self._stream, id)
        conversation.cancel_request(id)
        if answer.done():
            _error_of(answer)  # retrieve the exception, or asyncio logs it
        answer.cancel()

    async def _watch_subscription(self) -> None:
        loop = asyncio.get_running_loop()
        tries = 0
        while self._current is not None:
            since = loop.time()
            answer = self._current[2]
            await asyncio.wait([answer])
            error = _error_of(answer)
            tries = 0 if loop.time() - since >= STABLE_S else tries + 1
            # Without an error, the server has ended the subscription. A replica does so when it
            # shuts down, and other replicas still serve.
            while (error is not None or answer is self._current[2]) and self._should_retry(
                error, tries
            ):
                await asyncio.sleep(retry_delay_s(tries))
                try:
                    error = await self._subscribe()
                except LocalProtocolError:
                    message = "the server has changed to another revision; listen again"
                    self._stream.end(ConnectionLost(message))
                    return
                except ColonnadeError as failed:
                    error = failed
                tries += 1
            if error is not None or answer is self._current[2]:
                self._stream.end(error)
                return
            self._change_streams.mark_gap(self._stream)

    def _should_retry(self, error: BaseException | None, tries: int) -> bool:
        can_reconnect = self._connection.transport.can_reconnect and not self._connection.closed
        is_temporary = error is None or isinstance(error, ChannelError)
        return can_reconnect and is_temporary and tries <= MAX_TRIES

    # ------------------------------------------------------------ in the session

    @asynccontextmanager
    async def in_session(self) -> AsyncGenerator[None]:
        """Filter the notifications of the session while this is entered."""
        watch: asyncio.Task[None] | None = None
        self._change_streams.add(self._stream)
        subscribed: list[str] = []
        try:
            for uri in self._stream.wanted.resource_subscriptions or ():
                params = t.SubscribeRequestParams(uri=uri)
                await self._connection.request(SUBSCRIBE, params, self._timeout_s)
                subscribed.append(uri)
            if self._connection.transport.can_reconnect:
                watch = asyncio.get_running_loop().create_task(self._watch_session())
            yield
        finally:
            _cancel(watch)
            self._change_streams.discard(self._stream)
            await _wait_for(watch)
            if not self._connection.ended:
                await self._unsubscribe(subscribed)

    async def _unsubscribe(self, uris: list[str]) -> None:
        with contextlib.suppress(ColonnadeError):  # the session has ended
            for uri in uris:
                if uri not in self._change_streams.subscribed_uris:
                    params = t.UnsubscribeRequestParams(uri=uri)
                    seconds = min(UNSUBSCRIBE_S, self._timeout_s)
                    # Only in this session: the next one does not subscribe to it.
                    await self._connection.conversation.request(UNSUBSCRIBE, params, seconds)

    async def _watch_session(self) -> None:
        """Reconnect if the session is lost and no request does so."""
        tries = 0
        while True:
            await self._stream.session_lost.wait()
            error: ColonnadeError = ConnectionLost("the session ended")
            while self._stream.session_lost.is_set():
                if not self._should_retry(error, tries):
                    self._stream.end(error)
                    return
                await asyncio.sleep(retry_delay_s(tries))
                tries += 1
                try:
                    await self._connection.ensure_open(LISTEN)
                except ColonnadeError as failed:
                    error = failed
                else:
                    tries = 0
                    self._stream.session_lost.clear()


def _error_of(answer: "asyncio.Future[Raw]") -> BaseException | None:
    return ConnectionLost("the connection ended") if answer.cancelled() else answer.exception()


def _cancel(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()


async def _wait_for(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        await asyncio.wait([task])
