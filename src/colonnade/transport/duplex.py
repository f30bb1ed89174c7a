"""A connection over a channel that carries messages both ways: a pipe, or memory.

It drives a `DuplexLink`: what the link sends is written, each request that it receives is handled
in a task of its own, and each response that it waits for is a future.

Rules: everything happens in one event loop. No message is decoded or validated here. A task never
raises, and closing waits for the tasks, but with a timeout, because a handler may ignore its
cancellation.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Raw, Struct

from colonnade.errors import (
    NO_OUTPUT,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Output,
)
from colonnade.ports import ConnectionEvents, ProgressCallback, Responder, ServerTelemetry
from colonnade.protocol.exchange import (
    LISTEN,
    NO_NETWORK,
    Exchange,
    Network,
    NonHttpRequestFields,
)
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import NOT_INITIALIZED, Phase
from colonnade.protocol.link.link import MAX_S, TIMEOUT_S, DuplexLink
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import Revision
from colonnade.protocol.types import NotificationParams, RequestParams

# Change notifications that are the same for every client.
BROADCASTS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    }
)
# Sent to the clients that have subscribed to its `uri`.
BY_SUBSCRIPTION: Final = "notifications/resources/updated"

log: logging.Logger = logging.getLogger("colonnade.transport")


def encode_change(
    link: DuplexLink, subscriptions: Set[str], method: str, params: NotificationParams
) -> bytes | None:
    """Encode a change notification for one client; None if it is not sent to this client."""
    if method == BY_SUBSCRIPTION:
        # Loaded on use: most servers have no subscriptions.
        from colonnade.protocol.subscriptions import is_covered

        uri: str | None = getattr(params, "uri", None)
        if uri is None or not is_covered(uri, subscriptions):
            return None
    elif method not in BROADCASTS:
        log.error("%s was sent to every session but belongs to one client; not sent", method)
        return None
    try:
        return link.notify(method, params)
    except LocalProtocolError:  # not in this revision, not a declared capability, or too early
        return None


if TYPE_CHECKING:
    from colonnade.ports import InputResponder, OnMembers
    from colonnade.protocol.input_requests import InputRequest, RequestDeclaration


# For an input request: a user must find the window, read the request and decide.
INPUT_TIMEOUT_S = 600.0
# A timer may fire that much early, by rounding alone.
ROUNDING_S = 1e-6


class Channel(Protocol):
    """Bytes both ways, one message at a time."""

    def write(self, frame: bytes) -> None:
        """Write a message at once, or keep it until the other side reads."""
        ...

    async def drain(self) -> None:
        """Wait until the other side has read enough. Raises `ConnectionLost`."""
        ...


class ClosableChannel(Channel, Protocol):
    """A channel that its user can close."""

    async def close(self, why: str = ...) -> None:
        """Close it and wait until its tasks have ended; may be called at any time, and more than
        once."""
        ...


class DuplexRequestContext(NonHttpRequestFields, Struct, eq=False, gc=False):
    """The context of one request on a duplex connection."""

    exchange: Exchange
    duplex: "Duplex"
    fault: Fault | None = None

    @property
    def debug(self) -> bool:
        """Whether the caller is sent the exception of a handler that failed."""
        return self.duplex.debug

    @property
    def callers(self) -> Callers:
        """As the transport of the connection says."""
        return self.duplex.link.identity.callers

    @property
    def network(self) -> Network:
        """That of the connection."""
        return self.duplex.network

    @property
    def next_id(self) -> int:
        """That of the connection."""
        return self.duplex.link.next_id

    @property
    def session(self) -> "Duplex | None":
        """The connection, if it was opened with a handshake."""
        return self.duplex if self.exchange.peer.revision.handshake else None

    async def send(self, frame: bytes) -> None:
        """Write a notification that belongs to this request."""
        self.duplex.channel.write(frame)
        await self.duplex.channel.drain()

    def post(self, frame: bytes) -> bool:
        """False: a write may have to wait for the peer."""
        return False

    async def ask(self, input_request: "InputRequest") -> Raw:
        """Send an input request, and wait for as long as a user may need."""
        if self.duplex.link.phase is Phase.OPENING:
            raise ConnectionLost(NOT_INITIALIZED)
        return await self.duplex.request(
            input_request.kind.method, input_request.params, INPUT_TIMEOUT_S
        )

    async def hang_up(self) -> None:
        """Does nothing: the channel carries all other requests, too."""


class Duplex:
    """A link, the channel that it uses, and the tasks that handle its requests."""

    # As a `Session`: its client is connected to it.
    id: str = ""

    def __init__(
        self,
        link: DuplexLink,
        channel: Channel,
        respond: Responder,
        *,
        on_notification: Callable[[NotificationReceived], None] | None = None,
        on_peer_identified: Callable[[PeerIdentified], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        debug: bool = False,
        network: Network = NO_NETWORK,
        telemetry: ServerTelemetry | None = None,
    ) -> None:
        self.link = link
        self.channel = channel
        self.network: Network = network
        self._telemetry = telemetry
        self._session_ended: Callable[[], None] | None = None
        if telemetry is not None:
            link.on_answered = partial(telemetry.answered, network)
        self.debug: bool = debug
        self._respond = respond
        self._on_notification = on_notification
        self._on_peer_identified = on_peer_identified
        self._progress_callbacks: dict[RequestId, ProgressCallback] = {}
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.subscriptions: set[str] = set()
        # The requests that are being handled, each by a task that adds and removes itself.
        self._tasks: dict[Exchange, asyncio.Task[Any]] = {}
        # Our own requests that wait for a response.
        self._waiting: dict[RequestId, asyncio.Future[Raw]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float = 0.0
        self._input_ended: str = ""

    # ------------------------------------------------------------ in

    def receive(self, frame: bytes) -> None:
        """Handle one message."""
        # The time is needed for progress notifications only.
        now = self._clock() if self._progress_callbacks else 0.0
        for event in self.link.receive(frame, now):
            if type(event) is RequestReceived:
                self._start(event.exchange)
            else:
                self._handle_event(event)

    def receive_all(self, frames: Iterable[bytes | Fault]) -> None:
        """Handle messages that have arrived together; a `Fault` is one that could not be read."""
        for frame in frames:
            if isinstance(frame, Fault):
                self.refuse(frame)
            else:
                self.receive(frame)

    def refuse(self, fault: Fault) -> None:
        """Respond to input that is not a message."""
        for event in self.link.refuse(fault):
            self._handle_event(event)

    def _handle_event(self, event: LinkEvent) -> None:
        match event:  # the most frequent first
            case RequestFinished():
                self._settle(event.id, event.outcome)
            case Send():
                self.channel.write(event.data)
            case RequestReceived():
                self._start(event.exchange)
            case RequestCancelled():
                task = self._tasks.get(event.exchange)
                if task is not None:
                    log.debug(
                        "%s cancelled: %.200r", event.exchange.method.name, event.reason
                    )  # R0061
                    task.cancel()
            case NotificationReceived():
                if self._on_notification is not None:
                    self._on_notification(event)
            case ProgressReceived():
                on_progress = self._progress_callbacks.get(event.id)
                if on_progress is not None:
                    on_progress(event.params)
            case PeerIdentified():
                if self._telemetry is not None and self._session_ended is None:
                    revision = event.peer.revision
                    self._session_ended = self._telemetry.session_opened(revision, self.network)
                if self._on_peer_identified is not None:
                    self._on_peer_identified(event)
            case MessageIgnored():
                log.debug("ignored: %s", event.why)

    def _start(self, exchange: Exchange) -> None:
        """Handle a request in a task of its own, in the current context. The loop holds the task
        until it has started; then it is in `_tasks`.

        With eager tasks (Python 3.12) it starts at once: most handlers never wait, and finish
        without another iteration of the loop. A task factory of the loop takes precedence.
        """
        loop, work, name = self._loop, self._run(exchange), exchange.method.name
        if loop.get_task_factory() is not None:
            loop.create_task(work, name=name)
        elif sys.version_info >= (3, 12):
            asyncio.Task(work, loop=loop, name=name, eager_start=True)
        else:
            asyncio.Task(work, loop=loop, name=name)

    async def _run(self, exchange: Exchange) -> None:
        """Handle one request and write its response."""
        if exchange.settled:  # it was cancelled before its task had started
            return
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._tasks[exchange] = task
        paused: tuple[RequestId, ...] = ()
        if exchange.input_request is not None:
            paused = self.link.pause_timeouts(self._clock())
            if paused:
                self._set_timer()
        try:
            data = await self._respond(DuplexRequestContext(exchange, self))
        except ConnectionLost:
            data = None
        except (Exception, asyncio.CancelledError) as error:
            data = self._encode_failure(exchange, error)
        finally:
            del self._tasks[exchange]
            if paused:
                self.link.resume_timeouts(paused, self._clock())
                self._set_timer()
        if data is not None:
            self._write_response(exchange, data)

    def _write_response(self, exchange: Exchange, data: bytes) -> None:
        self.channel.write(data)

    def _encode_failure(self, exchange: Exchange, error: BaseException) -> bytes | None:
        if exchange.settled:  # the peer cancelled it, or the connection has ended
            return None
        # A handler that cancels its own task is a failure like any other; the task then ends.
        log.error("the service raised %s", type(error).__name__, exc_info=error)
        return exchange.fail(Fault(FaultKind.INTERNAL, "the server failed; its log says why"))

    def _settle(self, id: RequestId, outcome: Raw | ColonnadeError) -> None:
        future = self._waiting.pop(id, None)
        if future is None or future.done():
            return
        if isinstance(outcome, ColonnadeError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    # ------------------------------------------------------------ out

    async def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float = TIMEOUT_S,
        *,
        on_progress: ProgressCallback | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
        declared: "RequestDeclaration | None" = None,
        owner: "InputResponder | None" = None,
        on_members: "OnMembers | None" = None,
    ) -> Raw:
        """Send a request and wait for its raw result; cancelling the call cancels the request.

        Progress notifications are passed to `on_progress`. `headers`, `owner` and `on_members` are
        for HTTP, and ignored: one channel carries all requests, and a message is not known to be
        the response to one of them before it is decoded.
        """
        id, response = self._send_request(method, params, timeout_s, on_progress, probing, declared)
        try:
            result = await response
        except BaseException:
            self._progress_callbacks.pop(id, None)
            self.cancel_request(id)
            if response.done() and not response.cancelled():
                response.exception()  # the caller may have been cancelled meanwhile
            del response  # it refers to the exception, which refers to this frame
            raise
        self._progress_callbacks.pop(id, None)
        return result

    def start_request(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request: its id, and the future of its raw result. The caller must call
        `cancel_request` in the end."""
        return self._send_request(method, params, timeout_s)

    def _send_request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        on_progress: ProgressCallback | None = None,
        probing: Revision | None = None,
        declared: "RequestDeclaration | None" = None,
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request; `probing` is a revision that the peer may not support."""
        if self._input_ended:
            raise ConnectionLost(self._input_ended)
        now = self._clock()
        id, data = self.link.request(
            method,
            params,
            now=now,
            timeout_s=timeout_s,
            max_s=MAX_S if timeout_s < MAX_S else timeout_s,
            progress=on_progress is not None,
            revision=probing,
            declared=declared,
        )
        if on_progress is not None:
            self._progress_callbacks[id] = on_progress
        response = self._wait_for(id, now + timeout_s)
        self.channel.write(data)
        return id, response

    def cancel_request(self, id: RequestId) -> None:
        """Cancel a request; the peer is notified unless it has responded."""
        if self._waiting.pop(id, None) is not None:
            notification = self.link.cancel(id, "no longer wanted")
            if notification is not None:
                self.channel.write(notification)

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the connection with a handshake. R0056: cancelling it closes the connection."""
        id = self.link.next_id
        now = self._clock()
        data = self.link.initialize(now, timeout_s, revision).data
        response = self._wait_for(id, now + timeout_s)
        self.channel.write(data)
        try:
            return await response
        finally:
            if self._waiting.pop(id, None) is not None:
                self.close("the handshake was cancelled")

    def _wait_for(self, id: RequestId, until: float) -> asyncio.Future[Raw]:
        response = self._waiting[id] = self._loop.create_future()
        # One timer for all requests: it is set again only if it would fire too late for this one;
        # if it fires too early, there is nothing to do.
        if self._timer is None or until < self._timer_at:
            self._set_timer()
        return response

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Send a notification to the peer."""
        self.channel.write(self.link.notify(method, params))
        await self.channel.drain()

    def notify_change(self, method: str, params: NotificationParams) -> None:
        """Send a change notification, in revisions that send them without a subscription."""
        frame = encode_change(self.link, self.subscriptions, method, params)
        if frame is not None:
            self.channel.write(frame)

    def post_notification(self, frame: bytes, subject: str, scopes: frozenset[str]) -> None:
        """Write an encoded notification, unless the peer does not read at all."""
        if not self._input_ended:
            self.channel.write(frame)

    async def request_input(self, input_request: "InputRequest", scopes: frozenset[str]) -> Raw:
        """Not used: all requests share the channel, and there is no stream beside them."""
        raise ConnectionLost("a pipe has no stream beside its requests")

    def _set_timer(self) -> None:
        deadline = self.link.next_deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer_at = deadline
            delay = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        for event in self.link.tick(self._clock() + ROUNDING_S):
            self._handle_event(event)
        self._set_timer()

    # ------------------------------------------------------------ closing

    async def finish(self, why: str, timeout_s: float) -> None:
        """Let running requests finish after the end of the input, as far as they need no response
        of the peer."""
        self._input_ended = why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(why))
        await asyncio.sleep(0)  # the task of the last request may not have started
        # A subscription only waits for changes, and would never finish.
        calls = [task for exchange, task in self._tasks.items() if exchange.method.name != LISTEN]
        if calls:
            await asyncio.wait(calls, timeout=timeout_s)

    def close(
        self, why: str, more: str = "", *, server: str | None = None, output: Output = NO_OUTPUT
    ) -> None:
        """Fail the requests that wait for a response, and cancel the handlers that run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for event in self.link.close(why, more, server=server, output=output):
            self._handle_event(event)
        if self._session_ended is not None:
            self._session_ended()
            self._session_ended = None
        self.subscriptions.clear()
        for task in self._tasks.values():
            task.cancel()

    async def ended(self, timeout_s: float) -> None:
        """Wait until the last handler has ended, or for the timeout."""
        if self._tasks:
            _, running = await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)
            if running:
                log.warning("%d handlers ignored their cancellation and still run", len(running))


class ClientDuplex(Duplex):
    """A client's duplex connection: closing it closes its channel."""

    def __init__(
        self,
        link: DuplexLink,
        channel: ClosableChannel,
        events: ConnectionEvents,
        clock: Callable[[], float] = time.monotonic,
        network: Network = NO_NETWORK,
    ) -> None:
        super().__init__(
            link,
            channel,
            events.handle_request,
            on_notification=events.on_notification,
            clock=clock,
            network=network,
        )
        self._closable = channel

    async def aclose(self, why: str) -> None:
        """Close the channel and wait until its tasks have ended; may be called at any time, and
        more than once."""
        await self._closable.close(why)
