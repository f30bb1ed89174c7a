"""One HTTP request of the ASGI application: its body, its response, and its timeouts.

`IncomingRequest` is served in the task that the web server made for it, and reads no clock;
`RequestReaper` checks all requests that last longer than a moment, and ends those that exceed a
limit.

Rules: knows ASGI and no JSON-RPC. The reason for which a request was aborted is kept, and a
cancellation of our own never leaves the application.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from colonnade.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
)
from colonnade.protocol.exchange import Network
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    MAX_BODY_BYTES,
    UNAVAILABLE,
    AcceptedTypes,
    Headers,
    HttpError,
    check_size,
    declared_size,
)
from colonnade.protocol.http.sse import comment

log: logging.Logger = logging.getLogger("colonnade.transport")

# A body above the limit is read to its end up to so many times the limit: its sender then reads the
# 413 instead of a connection that was reset.
DISCARDED_BODIES = 4
# A Content-Length of so many digits is checked before the body is read; others while it is.
LONG_LENGTH_DIGITS = 7
# A smaller body takes no more memory than the request around it, and is not counted: with 25,000
# concurrent requests these are 100 MiB.
SMALL_BODY_BYTES = 4 * 1024

REQUEST_TIMEOUT: Final = 408

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Pairs: TypeAlias = list[tuple[bytes, bytes]]

JSON_HEADER = (b"content-type", b"application/json")
CLOSE_HEADER = (b"connection", b"close")
EVENT_HEADERS: Pairs = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # R0860
]
_KEEP_ALIVE = comment()
NO_CLAIMS: Final[Mapping[str, Any]] = {}
JSON_ALONE: Final = AcceptedTypes(json=True, events=False)


# ---------------------------------------------------------------- limits


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of an HTTP server on what clients may use: sizes in bytes, times in seconds.

    Those of connections (headers, idle connections, unread responses) are `RunLimits`: an
    application that is mounted elsewhere cannot see them.
    """

    # Files are sent in base64 inside one message; larger ones belong behind a link.
    max_body_bytes: int = MAX_BODY_BYTES
    # Timeout for a whole body, and the least of it that must arrive each second.
    body_timeout_s: float = 30.0
    min_body_bytes_per_s: int = 1024
    # Incomplete bodies of all requests together.
    max_buffered_body_bytes: int = 256 * 1024 * 1024
    # Bodies of all requests that are being handled, and of those of one principal. In memory a call
    # takes two to three times its body.
    max_running_body_bytes: int = 128 * 1024 * 1024
    max_running_body_bytes_per_principal: int = 32 * 1024 * 1024
    # A client that reads nothing for so long is disconnected.
    write_timeout_s: float = 30.0
    # Proxies close connections that are silent for 30 to 60 seconds.
    keep_alive_interval_s: float = 25.0
    # Requests and streams that are served at once; more get 503 with Retry-After.
    max_concurrent_requests: int = 25_000
    max_concurrent_requests_per_principal: int = 1_024
    # A session is small, but is kept until it was idle for so long, or reaches its maximum age.
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 100
    session_idle_timeout_s: float = 30 * 60.0
    max_session_age_s: float = 24 * 3600.0
    # Streams of one session that are open at once, read or with a running call: a client needs one,
    # and one for each call.
    max_streams_per_session: int = 64
    # Streams of one session that are kept for a client that reconnects.
    max_resumable_streams_per_session: int = 64
    # Events that are kept for clients that reconnect: of one stream, of one session, of all.
    max_resumable_bytes_per_stream: int = 1024 * 1024
    max_resumable_bytes_per_session: int = 4 * 1024 * 1024
    max_resumable_bytes: int = 256 * 1024 * 1024
    # How long an ended stream can be resumed, and the `retry` that its client is sent.
    resume_window_s: float = 5 * 60.0
    retry_ms: int = 1000
    # How long a message of a session waits for an unavailable store, or for a replica that has lost
    # its connection to the store, before it is refused: longer than Redis takes to restart, and
    # shorter than the
    # 30 s after which clients and balancers give up. Some clients end a session after one 503.
    store_wait_s: float = 20.0
    # For running calls at shutdown.
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)


def check_numbers(limits: Struct) -> None:
    """Refuse limits that are not numbers from 0: they would fail at the first request, or never
    apply. Raises `InvalidArgument` and `InvalidArgumentType`."""
    for name, default in zip(limits.__struct_fields__, limits.__struct_defaults__, strict=True):
        value, whole = getattr(limits, name), isinstance(default, int)
        kind = "a whole number" if whole else "a number"
        words = f"{type(limits).__name__}: {name} is {value!r}; give {kind} from 0"
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise InvalidArgumentType(words, argument=name)
        if not value >= 0:  # which NaN is not, either
            raise InvalidArgument(words, argument=name)


DEFAULT_LIMITS: Final = Limits()


# ---------------------------------------------------------------- one request


class DirectConnection(Protocol):
    """A connection of Colonnade's own server. It reports a disconnect to its request at once, and
    writes a whole response without the steps of ASGI."""

    incoming: "IncomingRequest | None"
    loop: asyncio.AbstractEventLoop

    @property
    def lost(self) -> bool:
        """Whether the client has disconnected."""
        ...

    def whole_body(self, receive: Receive) -> bytes | None:
        """The body, if all of it has arrived; None if it must be awaited."""
        ...

    def belongs_to(self, principal: str) -> None:
        """The principal that receives the response; empty for an anonymous client."""
        ...

    def respond(self, send: Send, status: int, body: bytes, more: Pairs | None) -> bool:
        """Write a whole response, of JSON if it has a body; False if it must go through `send`."""
        ...

    def start_stream(self, send: Send, headers: Pairs, first: bytes) -> bool:
        """Start a streamed response; False if it must go through `send`."""
        ...

    def write_chunk(self, send: Send, data: bytes, *, last: bool = False) -> bool:
        """Write one more chunk of it; False if it must go through `send`."""
        ...

    def drop(self, send: Send) -> None:
        """Close the connection without the rest, if this response is still on it."""
        ...


class DisconnectHandler(Protocol):
    """Takes over a request that is still handled after its client has disconnected (R0487)."""

    def on_disconnect(self) -> None:
        """The client has disconnected; called instead of a cancellation."""
        ...

    def on_silence(self) -> None:
        """Nothing was sent for `keep_alive_interval_s`, and no stream has started; called instead
        of a keep-alive comment."""
        ...


CLIENT_DISCONNECTED: Final = "the client has disconnected"
# Where the scope of a request has the connection.
CONNECTION_KEY: Final = "colonnade.connection"


class BufferedBodies:
    """How many bytes of incomplete bodies are held at the moment, of all requests together."""

    def __init__(self) -> None:
        self.size = 0


class ClientDisconnected(Exception):
    """The client of this request has disconnected."""


class HttpRequestState(Enum):
    """How far a request is. `TRANSITIONS` says what follows what."""

    RECEIVED = "its headers are here, and no response has started"
    READING_BODY = "its body is awaited"
    RESPONDING = "a whole response is being written"
    DELEGATED = "another ASGI application writes the response"
    STREAMING = "a stream is open, and nothing is being written"
    WRITING = "a stream is open, and a write waits for the client"
    HELD = "the last event was sent; the stream is kept open until the shutdown is over"
    ENDED = "the response is complete, or the client disconnected before it began"


# The members as globals: one lookup instead of two for each request.
RECEIVED, READING_BODY = HttpRequestState.RECEIVED, HttpRequestState.READING_BODY
RESPONDING, DELEGATED = HttpRequestState.RESPONDING, HttpRequestState.DELEGATED
STREAMING, WRITING = HttpRequestState.STREAMING, HttpRequestState.WRITING
HELD, ENDED = HttpRequestState.HELD, HttpRequestState.ENDED

# Not looked up while a request is served: the tests check every transition against it.
TRANSITIONS: Final[Mapping[HttpRequestState, frozenset[HttpRequestState]]] = {
    RECEIVED: frozenset({READING_BODY, RESPONDING, DELEGATED, STREAMING}),
    READING_BODY: frozenset({RECEIVED, RESPONDING, ENDED}),
    RESPONDING: frozenset({ENDED}),
    DELEGATED: frozenset({ENDED}),
    STREAMING: frozenset({WRITING, HELD, ENDED}),
    WRITING: frozenset({STREAMING, HELD, ENDED}),
    HELD: frozenset({ENDED}),
    ENDED: frozenset(),
}


class RequestTiming:
    """When a request was first seen by the reaper, and when it last made progress."""

    __slots__ = ("active_at", "since", "writes")

    def __init__(self, now: float) -> None:
        self.since: float = now
        self.active_at: float = now
        self.writes: int = 0


class IncomingRequest:
    """One HTTP request, from its headers to the last byte of its response.

    What most requests never change are defaults of the class: this is the hot path.
    """

    state: HttpRequestState = RECEIVED
    # Whether the service handles it in this very task, and not in one of its session.
    handled_here: bool = False
    received_bytes: int = 0
    writes: int = 0
    # Why it was aborted, whether a response with the reason is sent, and whether its task was
    # cancelled for that.
    abort_reason: str = ""
    abort_with_response: bool = False
    cancelled: bool = False
    principal: str = ""
    # The scopes of the credentials; None if none are checked.
    scopes: frozenset[str] | None = None
    # What else the verified credentials say of the principal.
    claims: Mapping[str, Any] = NO_CLAIMS
    # By the loop's clock: when the credentials expire, and when the response ends for that; 0 is
    # never.
    token_expires_at: float = 0.0
    ends_at: float = 0.0
    # Headers of every response to it, such as those of CORS.
    extra_headers: Pairs | None = None
    # The scope of the request; None for one that was refused at once.
    scope: Scope | None = None
    disconnect_handler: "DisconnectHandler | None" = None
    # Of the reaper: the task that waits for the disconnect.
    watcher: "asyncio.Task[None] | None" = None
    buffered_bodies: BufferedBodies | None = None
    # The size of its body, if that is counted while it is handled.
    counted_body_bytes: int = 0
    # The task that must end before a stream may, if there is one.
    before_stream_end: "Callable[[], asyncio.Task[None] | None] | None" = None
    _handled: "asyncio.Future[None] | None" = None
    _lock: asyncio.Lock | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
        limits: Limits,
        connection: DirectConnection | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self.headers = headers
        self.limits = limits
        # What the client takes, by its Accept header.
        self.accept = JSON_ALONE
        self.connection = connection
        # To ask for the loop is a system call before Python 3.12.
        loop = connection.loop if connection is not None else None
        self.task: asyncio.Task[Any] | None = asyncio.current_task(loop)
        # Set here and not in the class: an attribute that comes later makes every idle stream a
        # kilobyte larger.
        self.timing: RequestTiming | None = None

    def network_in(self, session_id: str) -> Network:
        """The connection of the client. An untrusted proxy server counts as the client."""
        scope = self.scope or {}
        address, port = scope.get("client") or ("", None)
        version = scope.get("http_version", "")
        return Network("tcp", "http", version, str(address)[:64], port, session_id)

    @property
    def has_started(self) -> bool:
        """Whether its response has started."""
        return self.state is not RECEIVED and self.state is not READING_BODY

    @property
    def has_ended(self) -> bool:
        """Whether its response is complete."""
        return self.state is ENDED

    @property
    def is_streaming(self) -> bool:
        """Whether its response is an open stream."""
        state = self.state
        return state is STREAMING or state is WRITING or state is HELD

    # ------------------------------------------------------------ the body

    async def body(self) -> bytes:
        """The whole body. Raises `HttpError` if it is too large, `ClientDisconnected` if it does
        not arrive."""
        if (
            len(self.headers.get(b"content-length", b"")) >= LONG_LENGTH_DIGITS
            or b"expect" in self.headers
        ):
            self._check_declared()  # before any of it is asked for
        connection = self.connection
        whole = connection.whole_body(self._receive) if connection is not None else None
        if whole is not None:
            if len(whole) > self.limits.max_body_bytes:
                check_size(len(whole), self.limits.max_body_bytes)
            return whole
        self.state = READING_BODY
        message = await self._receive()
        if message["type"] != "http.request" or message.get("more_body", False):
            return await self._remaining_body(message)
        self.state = RECEIVED
        body: bytes = message.get("body", b"")
        if len(body) > self.limits.max_body_bytes:
            check_size(len(body), self.limits.max_body_bytes)
        return body

    def _check_declared(self) -> None:
        declared, limit = declared_size(self.headers), self.limits.max_body_bytes
        if declared > limit * DISCARDED_BODIES:
            check_size(declared, limit)

    async def _remaining_body(self, message: Message) -> bytes:
        buffered = self.buffered_bodies or BufferedBodies()
        parts: list[bytes] = []
        try:
            while True:
                if message["type"] != "http.request":
                    self.state = ENDED
                    raise ClientDisconnected
                part: bytes = message.get("body", b"")
                more: bool = message.get("more_body", False)
                self._buffer(parts, part, buffered)
                if not more or self.received_bytes > self.limits.max_body_bytes * DISCARDED_BODIES:
                    break
                message = await self._receive()
        finally:
            buffered.size -= sum(map(len, parts))
        self.state = RECEIVED
        check_size(self.received_bytes, self.limits.max_body_bytes)
        return b"".join(parts)

    def _buffer(self, parts: list[bytes], part: bytes, buffered: BufferedBodies) -> None:
        """Add a part of a body; nothing is kept of a body that is too large."""
        self.received_bytes += len(part)
        if self.received_bytes > self.limits.max_body_bytes:
            buffered.size -= sum(map(len, parts))
            parts.clear()
        elif buffered.size + len(part) > self.limits.max_buffered_body_bytes:
            raise overload("too many large requests at once; try again later")
        else:
            buffered.size += len(part)
            parts.append(part)

    # ------------------------------------------------------------ the response

    async def respond(self, status: int, body: bytes, more: Pairs | None = None) -> None:
        """Write a whole response, of JSON if it has a body."""
        if self.try_respond(status, body, more):
            return
        length = (b"content-length", b"%d" % len(body))
        headers = [JSON_HEADER, length] if body else [length]
        headers += [*(more or ()), *(self.extra_headers or ())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
        self.state = ENDED

    def try_respond(self, status: int, body: bytes, more: Pairs | None = None) -> bool:
        """The same without waiting; False if it must be awaited."""
        if self.extra_headers:
            more = [*(more or ()), *self.extra_headers]
        self.state = RESPONDING
        connection = self.connection
        if connection is None or not connection.respond(self._send, status, body, more):
            return False
        self.state = ENDED
        return True

    async def start_stream(self, first: bytes = b"", more: Pairs | None = None) -> None:
        """Start a stream of events, unless one has started."""
        if self.has_started:
            return
        self.state = STREAMING
        headers = [*EVENT_HEADERS, *(more or ()), *(self.extra_headers or ())]
        if self.connection is not None and self.connection.start_stream(self._send, headers, first):
            self.writes += 1
            return
        self._lock = asyncio.Lock()
        async with self._lock:
            await self._put({"type": "http.response.start", "status": 200, "headers": headers})
            await self._put({"type": "http.response.body", "body": first, "more_body": True})

    async def write(self, chunk: bytes) -> None:
        """Write to the stream, which starts with it if none has. Raises `ConnectionLost` if the
        client has disconnected."""
        if self.try_write(chunk):
            return
        if self.abort_reason or self.state is ENDED:
            raise ConnectionLost(self.abort_reason or "the response is complete")
        if not self.has_started:
            await self.start_stream(chunk)
            return
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if not self.has_ended:  # while the lock was awaited
                await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end_stream(self, last: bytes = b"") -> None:
        """End the stream, after one more chunk if there is one."""
        await self.start_stream()
        connection = self._free_connection()
        if connection is not None and connection.write_chunk(self._send, last, last=True):
            self.state = ENDED
            return
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self.state is ENDED:
                return
            task = self.before_stream_end() if self.before_stream_end is not None else None
            if task is not None:
                if last:
                    await self._put({"type": "http.response.body", "body": last, "more_body": True})
                    last = b""
                await self._hold(task)
            await self._put({"type": "http.response.body", "body": last})
            self.state = ENDED

    async def _hold(self, task: "asyncio.Task[None]") -> None:
        """Keep the stream open, with nothing more to send, until a task has ended."""
        self.state = HELD
        if self._handled is not None and not self._handled.done():
            self._handled.set_result(None)
        await asyncio.wait({task}, timeout=self.limits.drain_timeout_s)

    def handled(self) -> "asyncio.Future[Any] | None":
        """Done when the request is no longer handled, even if its stream is held open."""
        if self.before_stream_end is None or self.task is None:
            return self.task
        if self._handled is None:
            handled = self._handled = asyncio.get_running_loop().create_future()
            if self.state is HELD:
                handled.set_result(None)
            self.task.add_done_callback(lambda _: handled.done() or handled.set_result(None))
        return self._handled

    def try_write(self, chunk: bytes) -> bool:
        """Write to the stream without waiting; False if the client has not kept up, or if that is
        unknown."""
        connection = self._free_connection()
        if connection is None or not connection.write_chunk(self._send, chunk):
            return False
        self.writes += 1
        return True

    def _free_connection(self) -> DirectConnection | None:
        """The connection, if it is one of our own server and no write waits for it."""
        return self.connection if self.state is STREAMING and not self.abort_reason else None

    async def _put(self, message: Message) -> None:
        if self.state is not HELD:
            self.state = WRITING
        await self._send(message)
        if self.state is not HELD:
            self.state = STREAMING
        self.writes += 1

    async def keep_alive(self) -> None:
        """Write a comment, so that proxies keep the connection open."""
        with contextlib.suppress(ConnectionLost, OSError):
            await self.write(_KEEP_ALIVE)

    # ------------------------------------------------------------ disconnects and cancellation

    def abort(self, reason: str, *, respond: bool = False) -> None:
        """Stop handling this request; `respond` if its client is connected and gets the reason."""
        if self.abort_reason or self.state is ENDED or self.state is HELD:
            return
        self.abort_reason = reason
        self.abort_with_response = respond
        if self.disconnect_handler is not None and not respond:
            self.disconnect_handler.on_disconnect()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the task that handles this request, and remember that we did."""
        if self.task is not None:
            self.cancelled = True
            self.task.cancel()

    def absorb_cancellation(self) -> bool:
        """Whether the cancellation that was just caught was ours alone; then it is taken back."""
        return self.cancelled and self.task is not None and self.task.uncancel() == 0

    def drop_connection(self) -> None:
        """Close the connection without the rest of the response, if it is one of our own server."""
        if self.connection is not None and self.state is not ENDED:
            self.connection.drop(self._send)

    async def watch(self) -> None:
        """Wait for the disconnect of the client, and abort the request then."""
        while self.state is not ENDED:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # It is also sent after the response is complete.
                self.abort(CLIENT_DISCONNECTED)
                return


def unexpected(error: BaseException) -> Fault:
    """The error for a service that raised what it must not; the traceback is in the log alone."""
    log.error("the service raised %s", type(error).__name__, exc_info=error)
    return Fault(FaultKind.INTERNAL, "the server failed; its log says why")


def overload(message: str) -> HttpError:
    """503, with Retry-After."""
    return HttpError(UNAVAILABLE, message, kind=FaultKind.INTERNAL, headers=(("Retry-After", "1"),))


def too_slow(message: str) -> HttpError:
    """408: the body did not arrive in time."""
    return HttpError(REQUEST_TIMEOUT, message, headers=(("Connection", "close"),))


def malformed(message: str) -> HttpError:
    """400: the request itself is wrong."""
    return HttpError(BAD_REQUEST, message)


# ---------------------------------------------------------------- timeouts and keep-alive

# How often new requests are checked: one that is answered within two checks needs no watcher.
NEW_REQUEST_INTERVAL_S = 0.05
# The others are checked in longer intervals: ten thousand idle streams cost some milliseconds each
# time.
CHECK_INTERVAL_S = 1.0
# A body may begin slowly; from then on it must keep `min_body_bytes_per_s`.
BODY_GRACE_S = 5.0
# A check that runs this late was delayed by a handler that blocked the event loop.
BLOCKED_LOOP_S = 3.0


class RequestReaper:
    """Applies timeouts to all running requests, keeps their streams alive and notices disconnects;
    calls whatever else is due periodically."""

    def __init__(self) -> None:
        self.count: int = 0
        self._new: set[IncomingRequest] = set()
        self._watched: set[IncomingRequest] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._periodic: list[Callable[[float], bool]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_short = False
        self._next_check = 0.0
        self._due = 0.0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[IncomingRequest]:
        return iter([*self._new, *self._watched])

    def add(self, incoming: IncomingRequest) -> None:
        """Watch a request from now on."""
        self.count += 1
        self._new.add(incoming)
        if not self._is_short:
            self._set_timer(NEW_REQUEST_INTERVAL_S)

    def remove(self, incoming: IncomingRequest) -> None:
        """A request is over."""
        self.count -= 1
        self._new.discard(incoming)
        if incoming.timing is not None:
            self._watched.discard(incoming)
            connection = incoming.connection
            if incoming.watcher is not None:
                incoming.watcher.cancel()
            elif connection is not None and connection.incoming is incoming:
                connection.incoming = None

    def call_periodically(self, due: Callable[[float], bool]) -> None:
        """Call a function with the time each second, as long as it returns that it has more to
        do."""
        self._periodic.append(due)

    def stop(self) -> None:
        """The loop ends; the next request starts the timer again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_short = None, False

    # ------------------------------------------------------------ the timer

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._is_short = delay_s == NEW_REQUEST_INTERVAL_S
        loop = asyncio.get_running_loop()
        self._due = loop.time() + delay_s
        self._timer = loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        late_s = now - self._due
        if late_s > BLOCKED_LOOP_S:
            log.warning(
                "the event loop was blocked for %.1f s, and all clients waited; write a tool that "
                "blocks as def, not async def",
                late_s,
            )
        for incoming in list(self._new):
            if incoming.timing is not None:
                self._new.discard(incoming)
                self._watched.add(incoming)
                self._check(incoming, incoming.timing, now)
            else:
                incoming.timing = RequestTiming(now)
        busy = True
        if now >= self._next_check:
            self._next_check = now + CHECK_INTERVAL_S
            for incoming in list(self._watched):
                if incoming.timing is not None:
                    self._check(incoming, incoming.timing, now)
            busy = sum(due(now) for due in self._periodic) > 0
        self._timer, self._is_short = None, False
        if self._new:
            self._set_timer(NEW_REQUEST_INTERVAL_S)
        elif self._watched or busy:
            self._set_timer(CHECK_INTERVAL_S)

    def _check(self, incoming: IncomingRequest, timing: RequestTiming, now: float) -> None:
        """Apply the limits that are due for a request."""
        limits, state = incoming.limits, incoming.state
        if timing.writes != incoming.writes:
            timing.writes, timing.active_at = incoming.writes, now
        silence_s = now - timing.active_at
        if state is ENDED or incoming.abort_reason:
            return
        if incoming.ends_at and now >= incoming.ends_at:  # RS-07
            incoming.abort("the token has expired; reconnect with a new one", respond=True)
        elif state is READING_BODY:
            age_s = now - timing.since
            least = limits.min_body_bytes_per_s * (age_s - BODY_GRACE_S)
            if age_s > limits.body_timeout_s or incoming.received_bytes < least:
                incoming.abort("the body did not arrive in time", respond=True)
        elif state is RESPONDING or state is WRITING:
            if silence_s > limits.write_timeout_s:
                incoming.abort("the client does not read")
        else:
            if incoming.connection is not None:
                incoming.connection.incoming = incoming
                if incoming.connection.lost:
                    incoming.abort(CLIENT_DISCONNECTED)
            elif incoming.watcher is None:
                incoming.watcher = asyncio.get_running_loop().create_task(incoming.watch())
            if silence_s > limits.keep_alive_interval_s and incoming.accept.events:
                timing.active_at = now
                self._keep_alive(incoming)

    def _keep_alive(self, incoming: IncomingRequest) -> None:
        if incoming.disconnect_handler is not None and not incoming.is_streaming:
            incoming.disconnect_handler.on_silence()
            return
        task = asyncio.get_running_loop().create_task(incoming.keep_alive())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
