"""The HTTP client's connection pool: HTTP/1.1 connections, and the responses read from them.

Rules: knows no JSON-RPC. A response is read as fast as its reader takes it, and what is buffered is
bounded. A connection that sent anything out of turn is not used again.
"""

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Protocol, cast

import httptools
from msgspec import Struct, field

from colonnade.errors import CannotConnect, ColonnadeError, ConnectionLost, RemoteProtocolError
from colonnade.transport.http_client.connect import (
    HappyEyeballs,
    HeaderLines,
    Origin,
    RequestTarget,
    encode_request,
)

# All headers of a response, and whatever else is between two chunks of a body; servers allow 16 KiB
# in requests.
HEAD_BYTES = 64 * 1024
# Added to the length of each header, so that there are not many empty ones.
HEADER_BYTES = 32
# With more unread bytes, reading from the server pauses.
UNREAD_BYTES = 256 * 1024
# The same for a body that is read as a whole: its reader waits for so much of it, or for so many
# pieces, each of which takes memory beside its bytes.
WHOLE_BYTES = 4 * 1024 * 1024
MAX_PIECES = 64
# A longer head is parsed each time, and so is one with another status.
KNOWN_BYTES = 1024
KNOWN_STATUS = 200
# More digits than the length of any accepted body; the parser rejects them.
LENGTH_DIGITS = 12
# After so many heads in a row that were unlike the one before, no more are compared.
MISSES = 8
# From so many requests in flight on, requests are written together at the end of an iteration of
# the loop: a server that waits for many is woken once. A larger one is written at once.
TOGETHER = 8
HELD_BYTES = 64 * 1024
# Values of `Content-Type` whose media type is known.
MAX_MEDIA_TYPES = 100
# How long a response whose rest is not needed may take to end, before its connection is closed.
LINGER_S = 1.0


class ConnectionPool(Protocol):
    """What a connection needs of its pool."""

    def forget(self, connection: "ClientConnection") -> None:
        """A connection was closed."""
        ...

    def keep(self, connection: "ClientConnection") -> None:
        """A connection is free: keep it for the next request."""
        ...


class ClientConnection(asyncio.Protocol):
    """One connection of a pool, and the response that is being read from it."""

    def __init__(self, pool: ConnectionPool, origin: Origin) -> None:
        self.origin = origin
        # Kept, since to get the running loop takes a system call in some versions of Python.
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.response: ClientResponse | None = None
        self.lost: ColonnadeError | None = None
        self.reusable = False
        self.used_at: float = 0.0
        self._pool = pool
        self._parser: httptools.HttpResponseParser | None = None
        self._head = 0
        self._between = 0
        self._by_length = False
        # What is missing of a body that has a length: the parser, which copies, need not see it.
        self._missing = 0
        # How the last response began, and how many in a row began otherwise.
        self._known: KnownResponse | None = None
        self._misses = 0
        # Whether there is something to read, such as the end of the connection; known once it is
        # connected.
        self.has_input: Callable[[int], object] = _closed

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.has_input = _readiness(sock.fileno())

    def data_received(self, data: bytes) -> None:
        """Parse bytes of a response; data without a request closes the connection."""
        response, parser = self.response, self._parser
        if response is None:
            self.abort(RemoteProtocolError("the server sent data without a request"))
            return
        if self._missing:
            self._receive_body(data)
            return
        begins = parser is None
        if parser is None:
            known = self._known
            if known is not None:
                body = known.read(data)
                if body is not None:
                    self._receive_known(response, known, body)
                    return
            parser = self._parser = httptools.HttpResponseParser(self)
        self._between += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.abort(
                RemoteProtocolError("the server wants to switch to another protocol than HTTP")
            )
        except httptools.HttpParserError as error:
            why = error.__context__ if isinstance(error.__context__, RemoteProtocolError) else None
            self.abort(why or RemoteProtocolError(f"the server's response is not HTTP: {error}"))
        else:
            if self._between > HEAD_BYTES:
                self.abort(_too_large())
            elif begins and self.reusable and self._misses < MISSES:
                self._known = learn(data, response.status, response.headers)
                self._misses += 1

    def _receive_known(
        self, response: "ClientResponse", known: "KnownResponse", body: bytes
    ) -> None:
        """Receive a response that begins as the last one did, as if the parser had read it."""
        self._misses = 0
        headers = known.headers.copy()
        headers["content-length"] = str(len(body))
        self.response = None
        self.reusable = self.lost is None
        response.complete(known.status, headers, body)

    def _receive_body(self, data: bytes) -> None:
        """Take more of a body that has a length."""
        more = len(data) - self._missing
        self.on_body(data if more <= 0 else data[:-more])
        if not self._missing:
            self.on_message_complete()
        if more > 0:
            self.abort(_too_many())

    def eof_received(self) -> bool | None:
        """The server sends no more."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection was closed: a response without a length ends with it, any other fails."""
        # Not used any more: asyncio's transport raises AttributeError for `abort` after its own
        # close.
        self.transport = None
        self.has_input = _closed
        self.reusable = False
        self._pool.forget(self)
        if self.lost is None:
            self.lost = ConnectionLost("the server closed the connection")
        response, self.response, self._parser = self.response, None, None
        if response is None:
            return
        if response.begun and not self._by_length and exc is None:
            response.finish()
        else:
            response.fail(self.lost)

    # ------------------------------------------------------------ one request

    def send(self, request: bytes, response: "ClientResponse") -> None:
        """Write a request; what comes back goes to this response."""
        if self.lost is not None or self.transport is None:
            response.fail(self.lost or ConnectionLost("there is no connection"))
            return
        self.response = response
        self.reusable = False
        self._head = self._between = self._missing = 0
        self._by_length = False
        self._parser = None  # until a response comes that is not known
        self.transport.write(request)

    def abort(self, why: ColonnadeError) -> None:
        """Close it at once."""
        self.reusable = False
        if self.lost is None:
            self.lost = why
        if self.transport is not None:
            self.transport.abort()
        response, self.response, self._parser = self.response, None, None
        if response is not None:
            response.fail(self.lost)

    # ------------------------------------------------------------ callbacks of httptools

    def on_message_begin(self) -> None:
        """A response begins, or an informational one (1xx) before it."""
        if self.response is None:
            raise _too_many()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are ignored."""
        response = self.response
        if response is None or response.begun:
            return
        name = name.lower()
        if name == b"content-length" or (
            name == b"transfer-encoding" and value.lower().endswith(b"chunked")
        ):
            self._by_length = True
        self._head += len(name) + len(value) + HEADER_BYTES
        if self._head > HEAD_BYTES:
            raise _too_large()
        response.add_header(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """All headers are there; after an informational response (1xx) others follow."""
        response, parser = self.response, self._parser
        if response is None or parser is None:
            return
        status = parser.get_status_code()
        if status < 100:
            raise RemoteProtocolError(f"the server's response is not HTTP: its status is {status}")
        if status < 200:
            response.headers.clear()
            self._by_length = False
            return
        if status in (204, 304):
            self._by_length = True
        elif "transfer-encoding" not in response.headers:
            length = response.headers.get("content-length", "")
            self._missing = int(length) if length.isdecimal() else 0
        self._between = 0
        response.begin(status, self._missing)

    def on_body(self, data: bytes) -> None:
        """A chunk of the body."""
        self._between = 0
        if self._missing:
            self._missing -= len(data)
        if self.response is not None:
            self.response.feed(data)

    def on_message_complete(self) -> None:
        """The response is complete."""
        response, parser = self.response, self._parser
        if response is None or parser is None or not response.begun:
            return
        self.response = self._parser = None
        self.reusable: bool = parser.should_keep_alive() and self.lost is None
        response.finish()


# ---------------------------------------------------------------- heads that come again

_LENGTH_LINE = b"\r\ncontent-length: "  # as nearly all servers write it, in any case
_END = b"\r\n\r\n"
# With one of these, a response is more than its head and its body, or the last on its connection.
_SPECIAL = frozenset({"connection", "keep-alive", "trailer", "transfer-encoding", "upgrade"})


class KnownResponse:
    """A head that was parsed, under all limits: its bytes around the length of the body, and what
    they mean. A response that does not begin exactly so, or comes in pieces, is for the parser.

    The same as `KnownHead` of the server: a head changes once a second, with its date.
    """

    __slots__ = ("_after", "_before", "headers", "status")

    def __init__(self, before: bytes, after: bytes, status: int, headers: dict[str, str]) -> None:
        self._before = before
        self._after = after
        self.status: int = status
        self.headers: dict[str, str] = headers

    def read(self, data: bytes) -> bytes | None:
        """The body, if this is one whole response with this head; else None."""
        if not data.startswith(self._before):
            return None
        at = len(self._before)
        end = data.find(b"\r", at, at + LENGTH_DIGITS)
        if end < 0 or not data.startswith(self._after, end):
            return None
        length, body = data[at:end], data[end + len(self._after) :]
        return body if length == b"%d" % len(body) else None


def learn(data: bytes, status: int, headers: dict[str, str]) -> KnownResponse | None:
    """The head of a response that came in one piece, and was parsed; None for one that is
    special."""
    end = data.find(_END) + len(_END)
    length = b"%d" % (len(data) - end)
    at = data[:end].lower().find(_LENGTH_LINE) + len(_LENGTH_LINE)
    if (
        status != KNOWN_STATUS
        or end > KNOWN_BYTES
        or not data.startswith(b"HTTP/1.1 200 ")
        or not _SPECIAL.isdisjoint(headers)
        or at < len(_LENGTH_LINE)
        or data[at : at + len(length) + 1] != length + b"\r"
    ):
        return None
    return KnownResponse(data[:at], data[at + len(length) : end], status, headers.copy())


def _readiness(descriptor: int) -> Callable[[int], object]:
    """A function of a timeout in milliseconds, whose result is true if there is something to
    read."""
    if not hasattr(select, "poll"):  # on Windows, where `select` takes any descriptor
        return lambda timeout_ms: select.select([descriptor], [], [], timeout_ms / 1000)[0]
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


def _closed(timeout_ms: int) -> bool:
    return True


def _too_many() -> RemoteProtocolError:
    return RemoteProtocolError("the server sent more than one response")


def _too_large() -> RemoteProtocolError:
    return RemoteProtocolError(f"the server's headers are larger than {HEAD_BYTES} bytes")


@lru_cache(MAX_MEDIA_TYPES)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


class ClientResponse(Struct, eq=False, weakref=True):
    """The response of a server: status, headers, and a body that is read in chunks."""

    _pool: ConnectionPool
    connection: ClientConnection
    where: str = "the server"
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    _pieces: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0
    # With fewer unread bytes a reader of the whole body is not woken before its end.
    _soon_bytes: int = 0
    _over: bool = False
    _closed: bool = False
    _error: ColonnadeError | None = None
    _paused: bool = False
    _waiter: asyncio.Future[None] | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    # Sends the request on a new connection, if it was not sent on this one.
    send_anew: "Callable[[], Coroutine[Any, Any, ClientResponse]] | None" = None

    def __repr__(self) -> str:
        return f"ClientResponse({self.status or 'none yet'})"

    async def __aenter__(self) -> "ClientResponse":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether nothing more of it is wanted."""
        return self._closed

    @property
    def begun(self) -> bool:
        """Whether its headers have arrived."""
        return bool(self.status)

    def header(self, name: str) -> str | None:
        """A header by its name in lower case; one that was sent twice is joined by commas."""
        return self.headers.get(name)

    @property
    def media(self) -> str:
        """The media type, without parameters; empty if there is none."""
        return _media_type(self.headers.get("content-type", ""))

    # ------------------------------------------------------------ called by the connection

    def add_header(self, name: str, value: str) -> None:
        """Add a header."""
        value = value.strip(" \t")
        before = self.headers.get(name)
        self.headers[name] = value if before is None else f"{before}, {value}"

    def complete(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """All of it has come at once."""
        self.status, self.headers = status, headers
        self._over = True
        if self._closed:
            self._release()
        elif body:
            self._pieces.append(body)
            self._size = len(body)
        self._wake()

    def begin(self, status: int, length: int = 0) -> None:
        """All headers are there; `length` is that of the body, 0 if it is not known. A body of
        a known length is nearly always read as a whole, so its reader is woken at its end."""
        self.status = status
        if length < WHOLE_BYTES:
            self._soon_bytes = length + 1
        self._wake()

    def feed(self, data: bytes) -> None:
        """A chunk of the body."""
        if self._closed:
            return
        self._pieces.append(data)
        self._size += len(data)
        if not self._is_enough:
            return
        transport = self.connection.transport
        if self._size > UNREAD_BYTES and not self._paused and transport is not None:
            self._paused = True
            transport.pause_reading()
        self._wake()

    @property
    def _is_enough(self) -> bool:
        """Whether the reader is to be woken for what is unread."""
        pieces = len(self._pieces)
        return pieces >= MAX_PIECES or (pieces > 0 and self._size >= self._soon_bytes)

    def finish(self) -> None:
        """The body is complete."""
        self._over = True
        self._wake()
        if self._closed:
            self._release()

    def fail(self, why: ColonnadeError) -> None:
        """The response was cut off."""
        if not self._over:
            self._over, self._error = True, why
        self._wake()
        self._cancel_linger()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ reading

    async def started(self) -> "ClientResponse":
        """Wait for its headers, and return it, or the one from a new connection. Raises the reason
        if there are none; a cancellation closes the connection."""
        try:
            while not self.status and not self._over:
                # As `_wait`, without a coroutine of its own: each request waits here.
                self._waiter = self.connection.loop.create_future()
                await self._waiter
            self._waiter = None
        except BaseException:
            self.close()
            raise
        if not self.status:
            self.close()
            if self.send_anew is not None:
                return await self.send_anew()
            lost = self._error or ConnectionLost("the server closed the connection")
            error = type(lost)(f"{self.where}: {lost}")
            if isinstance(error, ConnectionLost) and isinstance(lost, ConnectionLost):
                error.not_sent = lost.not_sent
            raise error
        return self

    async def read(self) -> bytes:
        """The next bytes of the body; empty at the end. Raises `ConnectionLost` if it was cut
        off."""
        self._soon_bytes = 0
        return await self._next()

    async def _next(self) -> bytes:
        """What has been received, if it is enough to wake the reader."""
        while not self._over and not self._is_enough:
            self._resume()
            await self._wait()
        if self._pieces:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            return data
        if self._error is not None:
            raise type(self._error)(f"{self.where}: the response was cut off: {self._error}")
        return b""

    @property
    def whole(self) -> bytes | None:
        """The body, if it has come with the headers, in one piece; else None."""
        if self._over and len(self._pieces) == 1 and self._error is None:
            return self._pieces[0]
        return None

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises `RemoteProtocolError` if it is larger than a limit, before it is
        read if possible."""
        pieces: list[bytes] = []
        size = int(self.headers.get("content-length", "0"))
        if size <= limit:
            size = 0
            self._soon_bytes = min(WHOLE_BYTES, limit)
            while data := await self._next():
                size += len(data)
                if size > limit:
                    break
                pieces.append(data)
        if size > limit:
            raise RemoteProtocolError(f"{self.where}: the response is larger than {limit} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _resume(self) -> None:
        transport = self.connection.transport
        if self._paused and transport is not None:
            self._paused = False
            if not transport.is_closing():
                transport.resume_reading()

    def close(self) -> None:
        """Stop reading: the connection is kept if the response was read to its end, else closed."""
        if self._closed:
            return
        self._closed = True
        self._pieces.clear()
        if self._over and self._error is None:
            self._release()
        else:
            self.connection.abort(ConnectionLost("the response was closed"))

    def linger(self) -> None:
        """Discard the rest, which ends in a moment; the connection is kept if it does."""
        if self._over or self._closed:
            self.close()
            return
        self._closed = True
        self._pieces.clear()
        self._resume()
        self._linger_timer = asyncio.get_running_loop().call_later(
            LINGER_S, self.connection.abort, ConnectionLost("the response was closed")
        )

    def _cancel_linger(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _release(self) -> None:
        if self._linger_timer is not None:
            self._cancel_linger()
        if self._paused:
            self._resume()
        self._pool.keep(self.connection)


# For DNS, TCP and TLS together: each network hop takes a second at worst.
CONNECT_S = 15.0
# Servers close idle connections after 5 to 60 seconds, and a request sent at that moment is lost.
IDLE_S = 4.0
# Idle connections to one server.
IDLE_CONNECTIONS = 64
# Iterations of the loop until what was closed is released: TLS, then the socket, then its reader.
CLOSING_TURNS = 16
# Parsed URLs that are cached; a client has one or two.
MAX_TARGETS = 256


class HttpPool:
    """A pool of HTTP/1.1 connections, for one event loop.

    `context` is for TLS; without one the certificates of the system are trusted, or those in the
    file of `SSL_CERT_FILE`. `environ` has the variables of proxies.
    """

    def __init__(
        self,
        *,
        connect_s: float = CONNECT_S,
        idle_s: float = IDLE_S,
        context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._context = context
        self._environ = environ
        self._routes = HappyEyeballs()
        self._targets: dict[str, RequestTarget] = {}
        self._all: set[ClientConnection] = set()
        self._idle: dict[Origin, list[ClientConnection]] = {}
        self._connecting: set[asyncio.Timeout] = set()
        self._reaper_timer: asyncio.TimerHandle | None = None
        self._closed = False
        # Requests that are written at the end of this iteration of the loop.
        self._held: list[tuple[ClientConnection, RequestTarget, bytes, ClientResponse]] = []

    def __repr__(self) -> str:
        return f"HttpPool({len(self._all)} connections, {self.idle} idle)"

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return sum(map(len, self._idle.values()))

    def send(
        self,
        method: str,
        url: str,
        headers: HeaderLines | Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        address: str | None = None,
    ) -> Coroutine[Any, Any, ClientResponse]:
        """Send a request and wait for the headers of its response.

        `address` is the one to connect to, whatever others the host has; TLS is with the host.
        Raises `CannotConnect`, `ConnectionLost` if the request may have arrived,
        `RemoteProtocolError` if the response is not HTTP, `InvalidArgument` for a URL or a header
        that cannot be sent.
        """
        if self._closed:
            raise ConnectionLost("the client was closed")
        if address is None:
            target = self._targets.get(url) or self._target(url)
        else:
            target = RequestTarget(url, self._environ, address)
        request = encode_request(method, target, headers, body)
        waits = self._waits_for_others(target.origin, request)
        connection = self._take(target.origin, is_checked=not waits)
        if connection is None:
            return self._send_new(target, request)
        response = ClientResponse(self, connection, target.authority)
        if waits:
            if not self._held:
                connection.loop.call_soon(self._write_held)
            self._held.append((connection, target, request, response))
        else:
            connection.send(request, response)
        return response.started()

    async def _send_new(self, target: RequestTarget, request: bytes) -> ClientResponse:
        """Send a request on a new connection."""
        if self._closed:  # since it was to be written on another one
            lost = ConnectionLost("the client was closed before the request was sent")
            lost.not_sent = True
            raise lost
        connection = await self._connect(target)
        response = ClientResponse(self, connection, target.authority)
        connection.send(request, response)
        return await response.started()

    def _target(self, url: str) -> RequestTarget:
        target = RequestTarget(url, self._environ)
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        self._targets[url] = target
        return target

    # ------------------------------------------------------------ connections

    def _waits_for_others(self, origin: Origin, request: bytes) -> bool:
        """Whether a request is written at the end of this iteration of the loop, with others: there
        are many in flight."""
        if len(request) > HELD_BYTES:
            return False
        in_flight = len(self._all) - len(self._idle.get(origin, ())) + 1
        return bool(self._held) or in_flight >= TOGETHER

    def _write_held(self) -> None:
        """Write the requests that wait: on another connection, or a new one, if that of one has
        ended, since nothing of it has been sent."""
        held, self._held = self._held, []
        for connection, target, request, response in held:
            if response.is_closed:
                continue
            if connection.lost is not None or connection.has_input(0):
                who = "client was closed" if self._closed else "server closed the connection"
                lost = ConnectionLost(f"the {who} before the request was sent")
                lost.not_sent = True
                connection.abort(lost)
                other = self._take(connection.origin)
                if other is None:
                    if not self._closed:
                        response.send_anew = partial(self._send_new, target, request)
                    response.fail(lost)
                    continue
                response.connection = connection = other
            connection.send(request, response)

    def forget(self, connection: ClientConnection) -> None:
        """A connection was closed."""
        self._all.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)
            self._forget_empty(connection.origin)

    def _take(self, origin: Origin, *, is_checked: bool = True) -> ClientConnection | None:
        """An idle connection that is still usable: one that is written to at once is checked for
        having ended."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            idle_s = connection.loop.time() - connection.used_at
            fresh = connection.reusable and idle_s < self._idle_s
            if fresh and not (is_checked and connection.has_input(0)):
                return connection
            connection.abort(ConnectionLost("it was idle"))
        return None

    def keep(self, connection: ClientConnection) -> None:
        """A connection is free: keep it for the next request."""
        transport = connection.transport
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = []
        if (
            not connection.reusable
            or self._closed
            or len(idle) >= IDLE_CONNECTIONS
            or transport is None
            or transport.get_write_buffer_size()  # it responded before it read all of the request
        ):
            self._forget_empty(connection.origin)
            connection.abort(ConnectionLost("it is not needed"))
            return
        loop = connection.loop
        connection.used_at = loop.time()
        idle.append(connection)
        if self._reaper_timer is None:
            self._reaper_timer = loop.call_later(self._idle_s, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that were idle for too long."""
        self._reaper_timer = None
        loop = asyncio.get_running_loop()
        latest = loop.time() - self._idle_s
        for origin, idle in list(self._idle.items()):
            while idle and idle[0].used_at <= latest:
                idle.pop(0).abort(ConnectionLost("it was idle"))
            self._forget_empty(origin)
        if self._idle:
            oldest = min(idle[0].used_at for idle in self._idle.values())
            self._reaper_timer = loop.call_at(oldest + self._idle_s, self._close_idle)

    def _forget_empty(self, origin: Origin) -> None:
        if not self._idle.get(origin):
            self._idle.pop(origin, None)

    async def _connect(self, target: RequestTarget) -> ClientConnection:
        limit = asyncio.timeout(self._connect_s)
        hint = ""
        try:
            async with limit:
                self._connecting.add(limit)
                connection = await self._connected(target)
        except TimeoutError:
            if self._closed:
                raise ConnectionLost("the client was closed") from None
            problem = f"did not answer within {self._connect_s:g} s"
        except ssl.SSLCertVerificationError as error:
            raise CannotConnect(
                f"the certificate of {target.authority} is not trusted: {error.verify_message}"
            ) from None
        except (OSError, UnicodeError) as error:
            problem = f"cannot be reached: {_reason(error)}"
            hint = _hint(error) if target.proxy is None else ""
        else:
            # Not before: a loop may drop what was given up without calling `connection_lost`.
            if connection.lost is None:
                self._all.add(connection)
            if self._closed:
                connection.abort(ConnectionLost("the client was closed"))
            return connection
        finally:
            self._connecting.discard(limit)
        raise CannotConnect(f"{target.authority} {problem}", server=target.authority, hint=hint)

    async def _connected(self, target: RequestTarget) -> ClientConnection:
        scheme, _, port = target.origin

        def make() -> ClientConnection:
            return ClientConnection(self, target.origin)

        if target.proxy is not None:
            origin = (scheme, target.address, port)
            return await target.proxy.connect(origin, make, self._tls, self._routes, target.host)
        context = self._tls() if scheme == "https" else None
        _, connection = await self._routes.connect(make, target.address, port, context, target.host)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = default_tls()
        return self._context

    async def close(self) -> None:
        """Close all connections; waiting requests and readers get `ConnectionLost`."""
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(now)
        if self._reaper_timer is not None:
            self._reaper_timer.cancel()
            self._reaper_timer = None
        for connection in list(self._all):
            connection.abort(ConnectionLost("the client was closed"))
        self._idle.clear()
        for _ in range(CLOSING_TURNS):
            if not self._all:
                break
            await asyncio.sleep(0)


def default_tls() -> ssl.SSLContext:
    """The default TLS context. To make it takes as long as a request."""
    context = ssl.create_default_context()  # which honours SSL_CERT_FILE
    context.set_alpn_protocols(["http/1.1"])
    return context


# What OpenSSL says of a response in plain text.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")


def _hint(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "this port does not speak TLS: use http:// if the server is on this machine"
    return "is the server running?" if isinstance(error, ConnectionRefusedError) else ""


def _reason(error: Exception) -> str:
    """Why there is no connection, as the system says it: messages of a loop show addresses."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
