"""One HTTP request and its response, as an ASGI application has them, and how they are written.

`RequestCycle` is one request with its response, `ConnectionWriter` the writing half of the
connection that it came on, `ServerState` what all connections of one server share.

Rules: parses nothing. What is written on one connection is written once and in its order; after a
response is complete or dropped, nothing more of it is written.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

from colonnade.log_rate import LogRate
from colonnade.transport.http_server.request import (
    CLIENT_DISCONNECTED,
    CLOSE_HEADER,
    App,
    IncomingRequest,
    Message,
    Pairs,
    Receive,
    Send,
)
from colonnade.transport.http_server.unread_responses import UnreadResponses

log: logging.Logger = logging.getLogger("colonnade.transport")

# From so many concurrent requests on, responses are written together at the end of an iteration of
# the loop: a client that waits for many is woken once (decisions/0013: a sixth of the cost).
TOGETHER = 8
# More than this is written before the iteration ends, so that a slow reader is noticed.
HELD_BYTES = 256 * 1024
# From here on a second write costs less than a copy.
LARGE_BODY = 64 * 1024

_WITHOUT_BODY = (204, 304)
_FAILED = 500
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_A_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CLOSE = b"connection: close\r\n"
_EMPTY = b"%bcontent-length: 0\r\n%b\r\n"
_JSON = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
_TEXT = b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n%b\r\n%b"


class Responding(Enum):
    """How far a response has come."""

    PENDING = "it has not begun"
    SIZED = "it has begun, and the size of its body is known"
    CHUNKED = "it has begun, and its body is in chunks"
    SENT = "all of it was written"
    DROPPED = "the rest of it is not written: the client has disconnected, or is disconnected"


# The members by themselves: before Python 3.12 a look-up in the class takes ten times as long.
PENDING, SIZED, CHUNKED, SENT, DROPPED = Responding

# Which state follows which; a test checks the code against it.
RESPONDING: Final[dict[Responding, frozenset[Responding]]] = {
    PENDING: frozenset({SIZED, CHUNKED, SENT, DROPPED}),
    SIZED: frozenset({SENT, DROPPED}),
    CHUNKED: frozenset({SENT, DROPPED}),
    SENT: frozenset(),
    DROPPED: frozenset(),
}


class ServerState:
    """What all connections of one server share: the application, and what runs."""

    def __init__(
        self, app: App, lifespan_state: dict[str, Any], unread: UnreadResponses | None = None
    ) -> None:
        self.app = app
        self.unread: UnreadResponses = unread or UnreadResponses()
        self.cut_rate: LogRate = LogRate()
        # Each request has a copy of it, as ASGI requires.
        self.lifespan_state = lifespan_state
        # Whether each response is the last on its connection, and says so.
        self.closes_connections = False
        self.running: dict[RequestCycle, asyncio.Task[None]] = {}
        # Connections with something to write at the end of this iteration of the loop.
        self.held: list[ConnectionWriter] = []
        self._date = b""
        self._starts: dict[int, bytes] = {}

    def set_date(self, date: str) -> None:
        """Use this as the `Date` of responses from now on."""
        self._date = b"date: %b\r\n" % date.encode()
        self._starts.clear()

    def start_of(self, status: int) -> bytes:
        """The first lines of a response: its status, and the headers that all of them have."""
        found = self._starts.get(status)
        if found is None:
            found = self._starts[status] = status_line(status) + self._date
        return found

    def hold(self, connection: "ConnectionWriter") -> None:
        """Flush a connection at the end of this iteration of the loop."""
        if not self.held:
            connection.loop.call_soon(self._flush)
        self.held.append(connection)

    def _flush(self) -> None:
        held, self.held = self.held, []
        for connection in held:
            connection.flush()


class ConnectionWriter(asyncio.Protocol):
    """The writing half of a connection."""

    # In slots, since there may be thousands.
    __slots__ = (
        "_held",
        "_held_bytes",
        "_writable",
        "loop",
        "lost",
        "principal",
        "quiet_since",
        "read_paused",
        "state",
        "transport",
        "write_paused",
    )

    def __init__(self, state: ServerState) -> None:
        self.state: ServerState = state
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self.lost: bool = False
        # The principal that receives the response, if the application authenticates clients.
        self.principal: str = ""
        # Since when headers, or a next request, are awaited; 0 if they are not.
        self.quiet_since: float = 0.0
        self.read_paused: bool = False
        self.write_paused: bool = False
        self._writable: asyncio.Event | None = None
        # What is written at the end of this iteration of the loop.
        self._held: list[bytes] | None = None
        self._held_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Write nothing more."""
        self.lost = True
        self._held = None
        self.resume_writing()
        self.state.unread.lost(self)

    def pause_writing(self) -> None:
        """The client does not read as fast as is written."""
        self.write_paused = True
        self.state.unread.add(self)

    def resume_writing(self) -> None:
        """The client has read, or has disconnected."""
        if self.write_paused:
            self.write_paused = False
            self.state.unread.discard(self)
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Wait until the client has read, or has disconnected."""
        if self._writable is None:
            self._writable = asyncio.Event()
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        """Write this now, after what was to be written soon."""
        if self._held is not None:
            self.flush()
        self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Write this at the end of this iteration of the loop, together with what else there is."""
        if self._held is None:
            self._held, self._held_bytes = [data], len(data)
            self.state.hold(self)
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was to be written soon."""
        held, self._held = self._held, None
        if held is not None:
            self.transport.write(held[0] if len(held) == 1 else b"".join(held))

    def close(self) -> None:
        """Close the connection, after what was written."""
        self.flush()
        self.transport.close()

    def cut(self) -> None:
        """Close the connection at once: its client reads too slowly."""
        more = self.state.cut_rate.admit()
        if more is not None:
            words = "%r was closed: unread responses exceed max_unread_bytes%s"
            log.warning(words, self, more)
        # Abort later: the transport may be in the middle of a write.
        self.loop.call_soon(self.transport.abort)

    def refuse(self, status: int) -> None:
        """Respond without a request, and close the connection."""
        self.write(_EMPTY % (status_line(status), _CLOSE))
        self.close()

    def resume_reading(self) -> None:
        """Resume reading, after the data that was read has been taken."""
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()


class RequestCycle:
    """One request and its response: `receive` and `send` of ASGI, and the shortcuts of
    `DirectConnection` for our own application.

    The shortcuts are not used if `receive` or `send` are wrapped: the wrapper must see everything.
    """

    __slots__ = (
        "_arrived",
        "_body",
        "_connection",
        "_remaining",
        "expects_continue",
        "incoming",
        "is_head",
        "keep_alive",
        "loop",
        "more_body",
        "responding",
        "scope",
    )

    def __init__(
        self,
        connection: ConnectionWriter,
        scope: dict[str, Any],
        keep_alive: bool,
        is_head: bool = False,
        expects_continue: bool = False,
        body: bytes | None = None,
    ) -> None:
        self._connection = connection
        self.loop: asyncio.AbstractEventLoop = connection.loop
        # Until the application has it.
        self.scope: dict[str, Any] | None = scope
        self.keep_alive: bool = keep_alive
        self.is_head: bool = is_head
        self.expects_continue: bool = expects_continue
        # The part of the body that was received and not taken; None once all of it was taken.
        self._body: bytes | bytearray | None = body or b""
        self.more_body: bool = body is None
        self._arrived: asyncio.Event | None = None
        self.responding: Responding = PENDING
        # What is missing of a body whose size is known.
        self._remaining = 0
        # Notified at once if the client disconnects.
        self.incoming: IncomingRequest | None = None

    async def run(self, app: App) -> None:
        """Let the application respond; if it does not, respond with 500 or close the connection."""
        scope, self.scope = self.scope, None
        assert scope is not None
        try:
            if self._connection.state.unread.closing:
                await self._connection.state.unread.closed()
            await app(scope, self.receive, self.send)
            if self.responding is not SENT and self.responding is not DROPPED:
                log.error("the application returned before its response was complete")
        except BaseException as error:
            log.error("the application raised %s", type(error).__name__, exc_info=error)
        self._connection.state.running.pop(self, None)
        if self.responding is not SENT:
            self._fail()

    def _fail(self) -> None:
        if self.responding is PENDING:
            self.keep_alive = False
            start, words = self._connection.state.start_of(_FAILED), b"Internal Server Error"
            body = b"" if self.is_head else words
            self._connection.write(_TEXT % (start, len(words), _CLOSE, body))
            self._complete()
        elif self.responding is not DROPPED:
            self.responding = DROPPED
            self._connection.close()

    # ------------------------------------------------------------ the request

    def feed_data(self, data: bytes) -> int:
        """Some of the body; gives how much of it waits for the application."""
        if self.is_over:
            return 0
        before = self._body
        if not before:
            self._body = data
        elif isinstance(before, bytearray):
            before += data
        else:
            self._body = bytearray().join((before, data))
        self._wake()
        return len(self._body or b"")

    def feed_eof(self) -> None:
        """The body is complete."""
        self.more_body = False
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    async def receive(self) -> Message:
        """The next event of the request, as ASGI has it."""
        if self.expects_continue:
            self.expects_continue = False
            if not self.is_over:
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not self.is_over:
            if self._body or (self._body is not None and not self.more_body):
                return {"type": "http.request", "body": self._take(), "more_body": self.more_body}
            if self._arrived is None:
                self._arrived = asyncio.Event()
            await self._arrived.wait()
        return {"type": "http.disconnect"}

    def whole_body(self, receive: Receive) -> bytes | None:
        """The body, if all of it has arrived; None if it must be awaited."""
        if (
            self.more_body
            or self.expects_continue
            or self.responding is not PENDING
            or getattr(receive, "__self__", None) is not self
        ):
            return None
        return self._take()

    def _take(self) -> bytes:
        body = self._body or b""
        self._body = b"" if self.more_body else None
        if self._connection.read_paused:
            self._connection.resume_reading()
        return body if isinstance(body, bytes) else bytes(body)

    # ------------------------------------------------------------ the response

    @property
    def is_over(self) -> bool:
        """Whether nothing more is written of the response."""
        return self.responding is SENT or self.responding is DROPPED

    async def send(self, message: Message) -> None:
        """An event of the response, as ASGI has it; of one that was dropped nothing is written.

        Raises `RuntimeError` for an event that does not follow, and for what is no HTTP.
        """
        while self._connection.write_paused and not self.is_over:
            await self._connection.drain()
        kind = message["type"]
        if self.responding is DROPPED:
            return
        if self.responding is SENT:
            raise RuntimeError(f"{kind!r} came after the response was complete")
        expected = "http.response.start" if self.responding is PENDING else "http.response.body"
        if kind != expected:
            raise RuntimeError(f"{kind!r} came instead of {expected!r}")
        if self.responding is PENDING:
            self._start(message["status"], message.get("headers", ()))
        else:
            self._continue(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = [self._connection.state.start_of(status)]
        size, chunked, closes = None, False, False
        for raw_name, value in headers:
            name = raw_name.lower()
            if not _HEADER_NAME.fullmatch(name):
                raise RuntimeError(f"{name[:80]!r} is not the name of a header")
            if _NOT_IN_A_VALUE.search(value):
                raise RuntimeError(f"{name[:80]!r} has a value that no header can have")
            if name == b"content-length":
                size = int(value)
            elif name == b"transfer-encoding":
                chunked = value.lower() == b"chunked"
            elif name == b"connection":
                closes = closes or b"close" in value.lower().replace(b" ", b"").split(b",")
            lines.append(b"%b: %b\r\n" % (name, value))
        self._settle_connection(closes=closes)
        if not self.keep_alive and not closes:
            lines.append(_CLOSE)
        if size is None and not chunked and not self.is_head and status not in _WITHOUT_BODY:
            chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._remaining = size or 0
        self.responding = CHUNKED if chunked else SIZED
        self._connection.write(b"".join(lines))

    def _continue(self, body: bytes, *, more: bool) -> None:
        if self.is_head:
            body = b""
        elif self.responding is CHUNKED:
            body = _chunk(body, last=not more)
        else:
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining and not more):
                raise RuntimeError("the body of the response is not as long as its content-length")
        if body:
            self._connection.write(body)
        if not more:
            self._complete()

    def _settle_connection(self, *, closes: bool) -> None:
        """Close the connection after this response if the application wants that, or if the
        client was not asked to send its body: what it sends next is unknown (RFC 9110, 10.1.1)."""
        if closes or (self.expects_continue and self.more_body):
            self.keep_alive = False
        self.expects_continue = False

    def _complete(self) -> None:
        """Start the keep-alive timeout, or close the connection."""
        connection = self._connection
        self.responding = SENT
        connection.quiet_since = 0.0
        if self._arrived is not None:
            self._wake()
        if not self.keep_alive:
            connection.close()
        elif connection.read_paused:
            connection.resume_reading()

    def _takes(self, send: Send) -> bool:
        """Whether what would be sent by this `send` may be written now."""
        return (
            getattr(send, "__self__", None) is self
            and not self._connection.write_paused
            and not self.is_head
        )

    def respond(self, send: Send, status: int, body: bytes, more: Pairs | None) -> bool:
        """Write a whole response, of JSON if it has a body; False if it must go through `send`."""
        if self.responding is not PENDING or not self._takes(send):
            return False
        connection, state = self._connection, self._connection.state
        lines, closes = b"", False
        if more:
            lines, closes = header_lines(more), CLOSE_HEADER in more
        if closes or self.expects_continue:
            self._settle_connection(closes=closes)
        if not self.keep_alive and not closes:
            lines += _CLOSE
        start = state.start_of(status)
        if not body:
            connection.write(_EMPTY % (start, lines))
        elif len(body) > LARGE_BODY:
            connection.write(_JSON % (start, len(body), lines, b""))
            connection.write(body)
        elif self.keep_alive and (state.held or len(state.running) >= TOGETHER):
            connection.write_soon(_JSON % (start, len(body), lines, body))
        else:
            connection.write(_JSON % (start, len(body), lines, body))
        self._complete()
        return True

    def start_stream(self, send: Send, headers: Pairs, first: bytes) -> bool:
        """Start a streamed response; False if it must go through `send`."""
        if (
            self.responding is not PENDING
            or not self._takes(send)
            or not self.keep_alive
            or self.expects_continue
            or CLOSE_HEADER in headers
        ):
            return False
        start = self._connection.state.start_of(200)
        head = b"%b%btransfer-encoding: chunked\r\n\r\n" % (start, header_lines(headers))
        self.responding = CHUNKED
        self._connection.write_soon(head + _chunk(first))
        return True

    def write_chunk(self, send: Send, data: bytes, *, last: bool = False) -> bool:
        """Write one more chunk of it; False if it must go through `send`."""
        if self.responding is not CHUNKED or not self._takes(send):
            return False
        self._connection.write_soon(_chunk(data, last=last))
        if last:
            self._complete()
        return True

    # ------------------------------------------------------------ the client

    def belongs_to(self, principal: str) -> None:
        """Set the principal of this response, for its limit of unread bytes."""
        self._connection.principal = principal

    @property
    def lost(self) -> bool:
        """Whether the connection is lost."""
        return self._connection.lost

    def drop(self, send: Send) -> None:
        """End the connection as it is, if this response is still on it."""
        if not self.is_over and getattr(send, "__self__", None) is self:
            self.responding = DROPPED
            self._connection.transport.abort()

    def disconnect(self) -> None:
        """The client has disconnected, or is disconnected."""
        if not self.is_over:
            self.responding = DROPPED
        self._wake()
        incoming, self.incoming = self.incoming, None
        if incoming is not None:
            incoming.abort(CLIENT_DISCONNECTED)


def status_line(status: int) -> bytes:
    """The first line of a response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


def header_lines(headers: Pairs) -> bytes:
    """Headers as they are written."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def _chunk(data: bytes, *, last: bool = False) -> bytes:
    framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
    return framed + b"0\r\n\r\n" if last else framed
