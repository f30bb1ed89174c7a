"""One session of the Streamable HTTP transport (`Mcp-Session-Id`); delete with 2025-11-25.

A session is a `DuplexLink` and its event streams. Each POST with a request has a stream of its own:
the notifications, requests and responses of its handler go there and nowhere else. Notifications
that belong to no request go to the stream of a GET. A request is handled to its end even if its
client disconnects, which can resume the stream with `Last-Event-ID`.

Rules: each message is on one stream. Every running request gets a response, whatever ends the
session.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import EFFECT_UNKNOWN, ColonnadeError, ConnectionLost, Fault, FaultKind
from colonnade.ports import Service
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, Network, RequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import FORBIDDEN, NOT_FOUND, Headers, HttpError
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    ResultResponse,
    SplitParams,
    encode_error,
)
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
)
from colonnade.protocol.link.events import Send as Sending
from colonnade.protocol.link.handshake import NOT_INITIALIZED, Phase
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import error_code
from colonnade.transport.duplex import BROADCASTS, BY_SUBSCRIPTION, encode_change
from colonnade.transport.http_server.request import (
    IncomingRequest,
    Limits,
    Pairs,
    malformed,
    overload,
    unexpected,
)
from colonnade.transport.http_server.sessions.event_ids import (
    GONE,
    NOTIFICATIONS_MARK,
    UNKNOWN,
    ids_of,
    mark_of,
    split_event_id,
)
from colonnade.transport.http_server.sessions.streams import (
    QUEUE_BYTES,
    STREAM_BYTES,
    ResumableBytes,
    Stream,
    SubscribedUris,
    subscribed_budget,
)

log: logging.Logger = logging.getLogger("colonnade.transport")

# For a user to find the window, read the request and decide.
INPUT_TIMEOUT_S = 600.0
# Notifications without a reader: the last of each method and URI is kept, and this many of them.
MAX_BACKLOG = 256


class PendingNotification(NamedTuple):
    """An encoded notification, the resource that it is about, and the scopes that it needs."""

    frame: bytes
    uri: str | None
    scopes: frozenset[str]


class SessionResources:
    """What all sessions of one application share.

    `shrink` is called when all of them together keep too much.
    """

    # The clock of the loop; to ask for the loop itself is a system call before Python 3.12.
    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, service: Service, limits: Limits, shrink: Callable[[], None]) -> None:
        self.service = service
        self.limits = limits
        self.shrink = shrink
        self.ledger: ResumableBytes = ResumableBytes()
        self.tasks: set[asyncio.Task[None]] = set()
        self.waiting_sessions: set[HttpSession] = set()
        self.subscribed: ByteBudget = subscribed_budget()
        # The bodies of all requests that are being handled, in sessions and without one.
        self.bodies: ByteBudget = ByteBudget(
            limits.max_running_body_bytes, limits.max_running_body_bytes_per_principal
        )
        # Calls that still run after their client has disconnected, the oldest first.
        self.disconnected: dict[PostResponse, None] = {}

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task that belongs to a session, not to a connection."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def check_load(self) -> None:
        """Raise 503 if too much runs in all sessions together."""
        if len(self.tasks) >= self.limits.max_concurrent_requests:
            raise overload("too many requests at once; try again later")

    def hold_body(self, incoming: IncomingRequest, size: int) -> None:
        """Count a body while its request is handled. Raises 503 if there are too many.

        Calls whose client has disconnected are then cancelled, the oldest first, so that a request
        that is sent again finds room.
        """
        if self.bodies.reserve(incoming.principal, size):
            incoming.counted_body_bytes = size
            return
        self._evict_disconnected(incoming.principal, size)
        raise overload("too many large requests at once; try again later")

    def _evict_disconnected(self, principal: str, size: int) -> None:
        """Cancel calls whose client has disconnected: those of this principal, unless the limit on
        all together is reached."""
        missing = self.bodies.used + size - self.bodies.total
        of_all = missing > 0
        if not of_all:
            missing = size
        for response in list(self.disconnected):
            if missing <= 0:
                break
            if of_all or response.incoming.principal == principal:
                missing -= response.counted_body_bytes
                response.evict()


class SessionRequestContext(RequestFields):
    """The context of one request in a session, with the response to its POST.

    `task` handles it, if that is not the task of its POST; `begun` is whether that task has run its
    first step.
    """

    __slots__ = ("begun", "exchange", "fault", "response", "session", "task")

    def __init__(
        self, exchange: Exchange, session: "HttpSession", response: "PostResponse"
    ) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self.session: HttpSession = session
        self.response: PostResponse = response
        self.task: asyncio.Task[None] | None = None
        self.begun: bool = False

    def stop(self) -> None:
        """Cancel it; its exchange is settled."""
        if self.task is None:
            self.response.incoming.cancel()
        elif self.begun:  # else it sees that itself; a task that never began cleans up nothing
            self.task.cancel()

    @property
    def network(self) -> Network:
        """The connection of its POST, and the session."""
        return self.response.incoming.network_in(self.session.id)

    @property
    def next_id(self) -> int:
        """That of the session."""
        return self.session.link.next_id

    @property
    def headers(self) -> Headers:
        """The headers of its POST."""
        return self.response.incoming.headers

    @property
    def claims(self) -> Mapping[str, Any]:
        """The claims of the token of its POST."""
        return self.response.incoming.claims

    async def send(self, frame: bytes) -> None:
        """Send a notification of this request; it is left out if the client accepts no stream."""
        if self.response.incoming.accept.events:
            stream = self.response.stream()
            self.session.put(stream, frame)
            await stream.wait_for_reader()

    def post(self, frame: bytes) -> bool:
        """False: a notification in a session may have to wait for the reader."""
        return False

    async def ask(self, input_request: InputRequest) -> Raw:
        """Send a request to the client on the stream of this request, and wait for its response."""
        return await self.session.ask(input_request, self.response.stream())

    async def hang_up(self) -> None:
        """Close the connection if the client can resume the stream (R0487)."""
        if self.response.incoming.accept.events:
            self.response.stream().disconnect_client()


class PostResponse:
    """The response to one POST: one JSON body, or an event stream from the first event on.

    Most responses need no stream: it is opened for the first event, and so is the task that writes
    it to the connection.
    """

    __slots__ = ("_frame", "_session", "counted_body_bytes", "incoming", "opened", "task")

    def __init__(
        self, session: "HttpSession", incoming: IncomingRequest, frame: Request | Batch
    ) -> None:
        self._frame = frame
        self.incoming: IncomingRequest = incoming
        self.opened: Stream | None = None
        self.task: asyncio.Task[None] | None = None
        # The size of its body after the client has disconnected, if it is counted.
        self.counted_body_bytes: int = 0
        self._session = session

    def stream(self) -> Stream:
        """Its stream, which is opened if there is none."""
        stream = self.opened
        if stream is None:
            items = self._frame.items if isinstance(self._frame, Batch) else (self._frame,)
            mark = mark_of([one.raw_id for one in items if isinstance(one, Request)])
            stream = self._session.open_stream(self.incoming.accept.events, mark)
            self.opened = stream
            stream.awaited = True
            stream.on_start = self._start
            stream.scopes = self.incoming.scopes
            if self.incoming.abort_reason:
                self._detach(stream)
        return stream

    def on_silence(self) -> None:
        """The client has waited long for a first event: start the stream."""
        self.stream().start()

    def _start(self) -> None:
        if self.opened is not None and self.opened.awaited:
            self.task = self._session.spawn(self._run(self.opened))

    async def _run(self, stream: Stream) -> None:
        with contextlib.suppress(asyncio.CancelledError, ConnectionLost):
            await stream.serve(self.incoming)

    def on_disconnect(self) -> None:
        """The client has disconnected: keep the stream, so that it can be resumed."""
        if self.incoming.counted_body_bytes:
            # The requests of a batch are handled even when its POST is over.
            self.counted_body_bytes, self.incoming.counted_body_bytes = (
                self.incoming.counted_body_bytes,
                0,
            )
            self._session.shared.disconnected[self] = None
        stream = self.opened
        if stream is not None:
            if stream.batch_size:  # whose responses are written by its POST, or not at all
                self.incoming.cancel()
                return
            self._stop(stream)
            self._detach(stream)
        self.incoming.drop_connection()

    def evict(self) -> None:
        """Cancel calls whose client has disconnected: other requests need the memory."""
        self._session.shared.disconnected.pop(self, None)
        self._session.stop(self, "the client disconnected, and the server needed the memory")

    def release_body(self) -> None:
        """Its requests are handled; its body counts no more."""
        size, self.counted_body_bytes = self.counted_body_bytes, 0
        if size:
            shared = self._session.shared
            shared.disconnected.pop(self, None)
            shared.bodies.release(self.incoming.principal, size)

    def _detach(self, stream: Stream) -> None:
        stream.request_over()
        self._session.release(stream)

    def _stop(self, stream: Stream) -> None:
        """Stop writing to the connection."""
        if self.task is not None:
            self.task.cancel()
            stream.detach(self.incoming)

    def end(self) -> None:
        """The POST is over. Break the reference cycles, which would wait for the garbage
        collector."""
        self.incoming.disconnect_handler = None
        stream = self.opened
        if self.counted_body_bytes and (stream is None or not stream.pending):
            self.release_body()
        if stream is not None:
            self._stop(stream)
            stream.on_start = None
            self._detach(stream)


class HttpSession:
    """One client that has opened a session with `initialize`."""

    # There are thousands of them, each with more attributes than a class can share the names of.
    __slots__ = (
        "__weakref__",
        "_backlog",
        "_ids",
        "_ledger",
        "_limits",
        "_listeners",
        "_numbers",
        "_resumable",
        "_running",
        "_service",
        "_streams",
        "_tag",
        "_unwatch",
        "_waiting",
        "_warned",
        "created",
        "id",
        "link",
        "on_ended",
        "shared",
        "subscriptions",
        "used",
    )

    def __init__(self, id: str, link: DuplexLink, shared: SessionResources) -> None:
        self.id: str = id
        self.link: DuplexLink = link
        self.subscriptions: SubscribedUris = SubscribedUris(shared.subscribed, link.principal)
        self.created: float = shared.clock()
        self.used: float = self.created
        self.shared: SessionResources = shared
        self._limits = shared.limits
        self._service = shared.service
        # Event ids of one session mean nothing in another.
        self._tag = secrets.token_hex(4)
        self._numbers = 0
        self._warned = False
        # Those that are read, or whose call still runs; and those that are kept for a client that
        # reconnects, in the order in which they lost their reader.
        self._streams: dict[str, Stream] = {}
        self._resumable: dict[str, Stream] = {}
        self._ledger = ResumableBytes(shared.ledger)
        self._listeners: list[Stream] = []
        self._backlog: dict[tuple[str, str | None], PendingNotification] = {}
        self._running: dict[Exchange, SessionRequestContext] = {}
        self._ids: dict[RequestId, Exchange] = {}
        self._waiting: dict[RequestId, tuple[asyncio.Future[Raw], Stream]] = {}
        self._unwatch = self._service.watch_changes(self._notify, self.link.principal)
        # Called when it ends, if it is recorded.
        self.on_ended: Callable[[], None] | None = None

    @property
    def peer(self) -> Peer:
        """The client, which is known from `initialize` on."""
        peer = self.link.peer
        assert peer is not None
        return peer

    @property
    def busy(self) -> bool:
        """Whether a request runs in it, or a client is connected."""
        return bool(self._running) or any(stream.is_read for stream in self._streams.values())

    @property
    def size(self) -> int:
        """The bytes that are kept for its streams."""
        return self._ledger.size

    @property
    def is_changed(self) -> bool:
        """Whether the client has changed something that must be saved before its response."""
        return False

    async def save(self) -> None:
        """Save what the client has changed."""

    # ------------------------------------------------------------ incoming messages

    def post(
        self, incoming: IncomingRequest, frame: Request | Batch, parts: SplitParams | None = None
    ) -> Coroutine[None, None, None]:
        """Handle a request or a batch; `parts` as in `DuplexLink.take`. Raises `Fault`."""
        if isinstance(frame, Batch):
            return self._post_batch(incoming, frame)
        if frame.id in self._ids:  # D3
            raise malformed("this id is in use by a running request; send another one")
        if len(self._streams) >= self._limits.max_streams_per_session:
            self._check_streams()
        self.link.scopes = incoming.scopes  # of this very request, not of the one that opened it
        response = PostResponse(self, incoming, frame)
        events = self.link.take(frame, self.used, parts)
        if (
            len(events) == 1
            and isinstance(call := events[0], RequestReceived)
            and parts is not None
        ):
            return self._handle_here(call.exchange, response)
        return self._respond_all(events, frame, response)

    async def _post_batch(self, incoming: IncomingRequest, batch: Batch) -> None:
        self.shared.check_load()
        if len(self._streams) >= self._limits.max_streams_per_session:
            self._check_streams()
        self.link.scopes = incoming.scopes
        response = PostResponse(self, incoming, batch)
        await self._respond_all(self.link.take(batch, self.used), batch, response)

    async def _respond_all(
        self, events: list[LinkEvent], frame: Request | Batch, response: PostResponse
    ) -> None:
        """Respond to a batch, or to what is answered or refused at once."""
        try:
            stream = response.stream()
            status = rules.OK
            if isinstance(frame, Batch):
                response.incoming.disconnect_handler = response
                status = rules.status_of_batch(frame)
                stream.batch_size = len(frame.items)
                stream.batch_ids = [one.raw_id for one in frame.items if isinstance(one, Request)]
            self._handle_events(events, response)
            if stream.pending:
                await stream.wait_finished()
            await self._deliver(response, stream, status)
        finally:
            response.end()

    async def _deliver(
        self, response: PostResponse, stream: Stream, status: int = rules.OK
    ) -> None:
        """All responses are on the stream: end it, or send them as one JSON body."""
        stream.finish()
        if response.task is not None:
            await asyncio.wait({response.task})
        elif not response.incoming.abort_reason:
            await respond_at_once(response.incoming, stream.frames(), status)

    def note(self, warning: str) -> None:
        """Log a tolerated mistake of the client, once for each session."""
        if warning and not self._warned:
            self._warned = True
            log.warning("%s", warning)

    async def take(self, frame: Notification | ResultResponse | ErrorResponse) -> None:
        """Take a notification or a response. Raises `Fault`."""
        self.take_here(frame)

    def take_here(self, frame: Notification | ResultResponse | ErrorResponse) -> None:
        """Take a notification or a response that is for this process."""
        self._handle_events(self.link.take(frame, self.shared.clock()), None)

    def _handle_events(self, events: list[LinkEvent], response: PostResponse | None) -> None:
        own = response.stream() if response is not None else None
        stream = own
        for event in events:
            match event:
                case RequestReceived():
                    assert response is not None
                    self._call(event.exchange, response)
                case Sending():
                    if stream is not None:
                        stream.put_response(event.data)
                    stream = own
                case RequestCancelled():
                    log.debug(
                        "%s cancelled: %.200r", event.exchange.method.name, event.reason
                    )  # R0061
                    # What may be sent next is the rest of the batch that it was in.
                    stream = self._cancel(event.exchange) or own
                case RequestFinished():
                    stream = self._settle(event) or own
                case NotificationReceived():
                    self._service.on_notification(replace(event, owner=self.id), self.link.peer)
                case MessageIgnored():
                    log.debug("ignored: %s", event.why)
                case _:
                    pass

    # ------------------------------------------------------------ requests of the client

    async def _handle_here(self, exchange: Exchange, response: PostResponse) -> None:
        """Handle a request in the task of its POST, whether or not its client stays connected."""
        incoming = response.incoming
        request = SessionRequestContext(exchange, self, response)
        incoming.disconnect_handler = response
        self._add_running(request)
        cancelled: asyncio.CancelledError | None = None
        try:
            try:
                data = await self._service.respond(request)
                if self.is_changed:
                    await self.save()
            except asyncio.CancelledError as error:
                if incoming.cancelled:
                    exchange.abandon()
                    if not incoming.absorb_cancellation():
                        raise
                    data = None
                else:  # a handler cancelled its own task: it gets a response, and is cancelled
                    cancelled = error
                    data = _failed(exchange, error)
            except Exception as error:
                data = _failed(exchange, error)
            finally:
                self._remove_running(exchange)
            stream = response.opened
            if stream is not None:
                if data is not None:
                    stream.put_response(data)
                await self._deliver(response, stream)
            elif not incoming.abort_reason:
                if data is None or not incoming.accept.json:
                    frames = [data] if data is not None else []
                    await respond_at_once(incoming, frames, rules.OK)
                elif not incoming.try_respond(rules.OK, data):
                    await incoming.respond(rules.OK, data)
            if cancelled is not None:
                raise cancelled
        finally:
            response.end()

    def _call(self, exchange: Exchange, response: PostResponse) -> None:
        """Handle one request of a batch, concurrently with the others."""
        response.stream().pending += 1
        request = SessionRequestContext(exchange, self, response)
        request.task = self.shared.spawn(self._handle_beside(request))
        self._add_running(request)

    async def _handle_beside(self, request: SessionRequestContext) -> None:
        data: bytes | None = None
        exchange, stream = request.exchange, request.response.stream()
        request.begun = True
        try:
            if not exchange.settled:  # else it was cancelled by its own batch
                data = await self._service.respond(request)
                if self.is_changed:
                    await self.save()
        except (Exception, asyncio.CancelledError) as error:
            data = _failed(exchange, error)
        finally:
            self._remove_running(exchange)
            if data is not None:
                stream.put_response(data)
            stream.pending -= 1
            if not stream.pending:
                stream.finish()
                request.response.release_body()

    def _add_running(self, request: SessionRequestContext) -> None:
        exchange = request.exchange
        self._running[exchange] = request
        self._ids[exchange.request.id] = exchange

    def _remove_running(self, exchange: Exchange) -> None:
        del self._running[exchange]
        if self._ids.get(exchange.request.id) is exchange:
            del self._ids[exchange.request.id]

    def _cancel(self, exchange: Exchange) -> Stream | None:
        """Cancel a call; returns the stream if that completes the batch."""
        found = self._running.get(exchange)
        if found is None:
            return None
        self._ids.pop(exchange.request.id, None)
        found.stop()
        stream = found.response.opened
        return stream if stream is not None and stream.batch_size and stream.pending == 1 else None

    # ------------------------------------------------------------ requests to the client

    async def ask(self, input_request: InputRequest, stream: Stream) -> Raw:
        """Send a request to the client on a stream, and wait for its result."""
        if not stream.streamable:
            words = "this client accepts no event stream, so no request can be sent to it"
            raise ConnectionLost(words)
        if stream.is_finished:
            raise ConnectionLost("the client has disconnected and cannot resume the stream")
        if self.link.phase is Phase.OPENING:
            raise ConnectionLost(NOT_INITIALIZED)
        id, data = self.link.request(
            input_request.kind.method,
            input_request.params,
            now=self.shared.clock(),
            timeout_s=INPUT_TIMEOUT_S,
            max_s=INPUT_TIMEOUT_S,
        )
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (future, stream)
        stream.open_requests += 1
        self.shared.waiting_sessions.add(self)
        self.put(stream, data)
        try:
            return await future
        finally:
            stream.open_requests -= 1
            pending = self._waiting.pop(id, None)
            if not self._waiting:
                self.shared.waiting_sessions.discard(self)
            if pending is not None:
                notification = self.link.cancel(id, "no longer needed")
                if notification is not None:
                    self.put(stream, notification)

    async def request_input(self, input_request: InputRequest, scopes: frozenset[str]) -> Raw:
        """Send a request to the client on its newest GET stream, and wait for its result."""
        for stream in reversed(self._listeners):
            if stream.scopes is None or scopes <= stream.scopes:
                return await self.ask(input_request, stream)
        raise ConnectionLost("the client reads no stream beside its requests")

    def _settle(self, event: RequestFinished) -> Stream | None:
        found = self._waiting.pop(event.id, None)
        if found is None:
            return None
        future, stream = found
        if not future.done():
            if isinstance(event.outcome, ColonnadeError):
                future.set_exception(event.outcome)
            else:
                future.set_result(event.outcome)
        return stream

    # ------------------------------------------------------------ streams

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task that belongs to this session, and to no connection."""
        return self.shared.spawn(work)

    def _check_streams(self) -> None:
        """Raise 503 if too many are open."""
        if len(self._streams) >= self._limits.max_streams_per_session:
            raise overload("too many streams in this session; close some")

    def open_stream(self, streamable: bool, mark: str) -> Stream:
        """Open a new stream of this session; its name ends in `mark` (`mark_of`)."""
        self._numbers += 1
        stream = self._make_stream(f"{self._tag}-{self._numbers}{mark}", streamable)
        self._streams[stream.name] = stream
        return stream

    def _make_stream(self, name: str, streamable: bool) -> Stream:
        http = self.peer.revision.http
        return Stream(
            name,
            self._ledger,
            streamable=streamable,
            resumable=http.resumable,
            primed=http.prime_and_poll,
            retry_ms=self._limits.retry_ms,
        )

    def put(self, stream: Stream, frame: bytes) -> None:
        """Put a message on a stream, within the limits on what is kept."""
        stream.put(frame)
        stream.trim(self._limits.max_resumable_bytes_per_stream)
        if self.shared.ledger.size > self._limits.max_resumable_bytes:
            self.shared.shrink()

    def release(self, stream: Stream) -> None:
        """A stream has no reader: keep it if it can be resumed, else forget it."""
        if stream.has_reader:
            return
        if not stream.can_resume:
            self._forget(stream)
        elif (stream.is_finished or stream.for_notifications) and self._streams.pop(
            stream.name, None
        ) is not None:
            self._resumable[stream.name] = stream
            self._ledger.add(STREAM_BYTES)
            self.shrink(self._limits.max_resumable_bytes_per_session)

    def _forget(self, stream: Stream) -> None:
        if self._resumable.pop(stream.name, None) is not None:
            self._ledger.add(-STREAM_BYTES)
        else:
            self._streams.pop(stream.name, None)
        stream.forget()  # what is still put on it is dropped
        if not stream.open_requests:
            return
        for future, asked_on in self._waiting.values():
            if asked_on is stream and not future.done():
                future.set_exception(
                    ConnectionLost("the client has disconnected and cannot resume the stream")
                )

    def shrink(self, limit: int, now: float | None = None) -> None:
        """Forget streams without a reader: the oldest beyond a size or a count, and those older
        than `resume_window_s`. Visits no more of them than it forgets, and one."""
        limits = self._limits
        while self._resumable:
            stream = next(iter(self._resumable.values()))
            old = now is not None and now - stream.detached_at > limits.resume_window_s
            if (
                not old
                and len(self._resumable) <= limits.max_resumable_streams_per_session
                and self.size <= limit
            ):
                return
            self._forget(stream)

    async def listen(self, incoming: IncomingRequest, after: str | None) -> None:
        """A GET: a new stream for notifications, or the rest of one with `Last-Event-ID`. Raises
        `HttpError`."""
        if after is None:
            await self._serve_stream(incoming, self._open_listener(incoming), 0)
        else:
            await self._serve_stream(incoming, *self._find(after, incoming))

    def _open_listener(self, incoming: IncomingRequest) -> Stream:
        """Open a stream for notifications. Raises 503 if too many are open."""
        self._check_streams()
        stream = self.open_stream(True, NOTIFICATIONS_MARK)
        stream.for_notifications = True
        stream.on_caught_up = self._flush_backlog
        stream.scopes = incoming.scopes
        stream.start()
        return stream

    async def _serve_stream(self, incoming: IncomingRequest, stream: Stream, number: int) -> None:
        """Write a stream after this event to the response of a GET, until one of them ends."""
        if stream.for_notifications:
            if stream in self._listeners:
                self._listeners.remove(stream)
            self._listeners.append(stream)
        try:
            await stream.serve(incoming, number)
        finally:
            if not stream.is_read and stream in self._listeners:
                self._listeners.remove(stream)
            self.release(stream)

    def _find(self, event_id: str, incoming: IncomingRequest) -> tuple[Stream, int]:
        """The stream of an event, and its number there. Raises 400 for an event that was never
        sent."""
        name, number = split_event_id(event_id)
        stream = self._resumable.get(name) or self._streams.get(name)
        if stream is None:
            return self._replace_stream(name, number, incoming), number
        if not stream.has_started or number > stream.newest:
            raise rules.unknown_event()
        check_scopes(stream.scopes, incoming.scopes)
        if name in self._resumable:
            self._check_streams()
            self._streams[name] = self._resumable.pop(name)
            self._ledger.add(-STREAM_BYTES)
        if stream.for_notifications and not stream.has_all_after(number):
            self._announce_all(stream)
        return stream, number

    def _replace_stream(self, name: str, number: int, incoming: IncomingRequest) -> Stream:
        """The messages sent in place of a stream that is gone. Raises 400 for a stream that never
        existed."""
        tag, _, rest = name.rpartition("-")
        count = rest.partition(".")[0]
        if tag != self._tag or not count.isdecimal() or not 0 < int(count) <= self._numbers:
            raise rules.unknown_event()
        ids = ids_of(name)
        if ids is None:
            stream = self._open_listener(incoming)
            self._announce_all(stream)
            return stream
        stream = Stream(name, self._ledger, streamable=True, resumable=False)
        stream.continue_after(number)
        for raw_id in ids:
            stream.put_response(self.lost_response(raw_id, GONE))
        stream.finish()
        return stream

    def lost_response(self, raw_id: bytes, why: str) -> bytes:
        """The response to a request whose real response is gone."""
        fault = _without_outcome(why)
        code = error_code(fault, self.peer.revision)
        return encode_error(raw_id, code, fault.message, fault.data)

    # ------------------------------------------------------------ notifications

    def _notify(self, method: str, params: t.NotificationParams) -> None:
        frame = encode_change(self.link, self.subscriptions, method, params)
        if frame is None:
            return
        uri: str | None = getattr(params, "uri", None)
        self._put_on_backlog((method, uri), PendingNotification(frame, uri, frozenset()))

    def _announce_all(self, stream: Stream) -> None:
        """On a stream whose client may have missed changes, announce the lists and each subscribed
        resource as changed."""
        changes: list[tuple[str, t.NotificationParams]] = [
            (method, t.NotificationParams()) for method in sorted(BROADCASTS)
        ]
        changes += [
            (BY_SUBSCRIPTION, t.ResourceUpdatedNotificationParams(uri=uri))
            for uri in sorted(self.subscriptions)
        ]
        for method, params in changes:
            frame = encode_change(self.link, self.subscriptions, method, params)
            uri: str | None = getattr(params, "uri", None)
            if frame is None:
                continue
            if self._may_receive(stream, PendingNotification(frame, uri, frozenset())):
                self.put(stream, frame)

    def post_notification(self, frame: bytes, subject: str, scopes: frozenset[str]) -> None:
        """Put an encoded notification on a stream for notifications, now or when there is one."""
        self._put_on_backlog(("", subject), PendingNotification(frame, None, scopes))

    def _put_on_backlog(self, kind: tuple[str, str | None], pending: PendingNotification) -> None:
        self._backlog[kind] = pending
        self._flush_backlog()
        if len(self._backlog) > MAX_BACKLOG:  # full of what no current reader may receive
            del self._backlog[kind]

    def _flush_backlog(self) -> None:
        """Put the backlog on the newest stream for notifications whose reader may receive it and
        keeps up."""
        if not self._backlog:
            return
        offered: set[frozenset[str] | None] = set()
        for stream in reversed(self._listeners):
            if stream.scopes in offered:
                continue
            for kind, pending in list(self._backlog.items()):
                if stream.unread > QUEUE_BYTES:
                    break
                if self._may_receive(stream, pending):
                    del self._backlog[kind]
                    self.put(stream, pending.frame)
            else:  # others with the same scopes may receive nothing else
                offered.add(stream.scopes)

    def _may_receive(self, stream: Stream, pending: PendingNotification) -> bool:
        """Whether the scopes of a stream's reader allow a notification; those of the subscriber may
        have been others."""
        if stream.scopes is not None and not pending.scopes <= stream.scopes:
            return False
        return pending.uri is None or self._service.may_subscribe(pending.uri, stream.scopes)

    # ------------------------------------------------------------ timeouts and shutdown

    def tick(self, now: float) -> None:
        """End requests to the client that have timed out."""
        self._handle_events(self.link.tick(now), None)

    def drain(self) -> None:
        """Disconnect clients that only wait for notifications (R0493)."""
        for stream in self._listeners:
            if not stream.disconnect_client():
                stream.finish()

    def close(self, why: str) -> None:
        """Respond to what runs, and end every stream."""
        self._unwatch()
        for exchange, request in list(self._running.items()):
            self._stop_call(exchange, request, why)
        self._handle_events(self.link.close(why), None)
        for stream in [*self._streams.values(), *self._resumable.values()]:
            self._forget(stream)
        self.subscriptions.clear()
        if self.on_ended is not None:
            self.on_ended()

    def stop(self, response: PostResponse, why: str) -> None:
        """Cancel the calls of one POST, and respond with an error."""
        for exchange, request in list(self._running.items()):
            if request.response is response:
                self._stop_call(exchange, request, why)

    def _stop_call(self, exchange: Exchange, request: SessionRequestContext, why: str) -> None:
        data = exchange.fail(_without_outcome(why))
        if data is not None:
            request.response.stream().put_response(data)
        request.stop()


def check_scopes(needed: frozenset[str] | None, granted: frozenset[str] | None) -> None:
    """Raise 403 if a stream was opened with scopes that a client who resumes it does not have: its
    events may need them."""
    if granted is not None and needed is not None and not needed <= granted:
        words = "this stream was opened with more scopes than the token has now; open a new one"
        raise HttpError(FORBIDDEN, words)


def _without_outcome(why: str) -> Fault:
    """The error for a request that was interrupted, or whose response is gone."""
    return Fault(FaultKind.INTERNAL, f"{why}; {EFFECT_UNKNOWN}", UNKNOWN)


def _failed(exchange: Exchange, error: BaseException) -> bytes | None:
    """The response if the service raised; None for a request that was cancelled by its client, or
    by the end of the session."""
    if exchange.settled:
        return None
    if isinstance(error, ConnectionLost):
        return exchange.abandon()
    return exchange.fail(unexpected(error))


async def respond_at_once(
    incoming: IncomingRequest, frames: list[bytes], status: int, more: Pairs | None = None
) -> None:
    """Respond with one JSON body if the client accepts it, else with one event; with neither for a
    request that was cancelled."""
    if frames and incoming.accept.json:
        await incoming.respond(status, frames[0], more)
    elif frames:
        await incoming.start_stream(encode_event(frames[0]), more)
        await incoming.end_stream()
    elif status != rules.OK:
        await incoming.respond(status, b"")
    elif incoming.accept.events:
        await incoming.end_stream()
    else:
        await incoming.respond(NOT_FOUND, b"")
