"""Our HTTP client: connections that are kept, answers that may be streams.

    pool = HttpPool()
    async with await pool.send("POST", url, headers, body) as answer:
        answer.status, answer.header("content-type"), await answer.read()

Rules: knows no message of the protocol. Leaving an answer early, or giving up before there is one,
closes its connection at once: that is how a server learns that nobody waits. Nothing is sent
twice, followed or remembered: no retries, no redirects, no cookies. What a server can make us keep
is bounded; whoever calls puts an end to waiting. Headers never stand in an error.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

import httptools

from portico.errors import CannotConnect, ConnectionLost, LocalProtocolError, RemoteProtocolError
from portico.transport.http_proxies import Proxy, proxy_for

# To find an address, to connect, to agree on keys: each network hop takes a second at worst.
CONNECT_S = 15.0
# Servers close what is idle after 5 to 60 seconds, and a request that meets that is lost.
IDLE_S = 4.0
# Kept for the next request, of one server.
IDLE_CONNECTIONS = 64
# All headers of an answer; servers allow 16 KiB in requests.
HEAD_BYTES = 64 * 1024
# Beyond this a server waits until somebody has read.
UNREAD_BYTES = 256 * 1024

Origin = tuple[str, str, int]
PORTS: Final = {"http": 80, "https": 443}


class Target:
    """Where a request goes: an origin, and what is asked of it."""

    __slots__ = ("authority", "origin", "path", "proxy")

    def __init__(self, url: str, environ: Mapping[str, str] | None = None) -> None:
        parts = _split(url)
        host = cast("str", parts.hostname)
        port = parts.port or PORTS[parts.scheme]
        self.origin: Origin = (parts.scheme, host, port)
        shown = f"[{host}]" if ":" in host else host
        self.authority: str = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
        self.path: str = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.proxy: Proxy | None = proxy_for(parts.scheme, host, port, environ)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise LocalProtocolError(f"this is no URL: {error}") from None
    if parts.scheme not in PORTS or not host or port == 0:
        raise LocalProtocolError("a server's URL looks like https://example.com/mcp")
    if parts.username is not None:
        raise LocalProtocolError("a URL must not hold a password; send it in a header")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise LocalProtocolError("a URL has only visible ASCII characters; encode the others")
    return parts


class Connection(asyncio.Protocol):
    """One connection, and the answer that is being read from it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self.lost: str | None = None
        self.reusable: bool = False
        self.used_at: float = 0.0
        self._parser: httptools.HttpResponseParser | None = None
        self._head = 0
        self._by_length = False

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer; whoever speaks without being asked is not heard again."""
        if self.answer is None or self._parser is None:
            self.abort("the server spoke without being asked")
            return
        if not self.answer.begun:
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self.abort(f"the server's headers are larger than {HEAD_BYTES} bytes")
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.abort(f"the server's answer is no HTTP: {error}")

    def eof_received(self) -> bool | None:
        """The server says no more."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; an answer without a length has ended with it, any other is cut."""
        self.reusable = False
        if self.lost is None:
            self.lost = "the server closed the connection"
        answer, self.answer = self.answer, None
        if answer is None:
            return
        if answer.begun and not self._by_length and exc is None:
            answer.finish()
        else:
            answer.fail(self.lost)

    # ------------------------------------------------------------ one exchange

    def send(self, request: bytes, answer: "Answer") -> None:
        """Write a request whole; what comes back is this answer."""
        assert self.transport is not None
        self.answer = answer
        self.reusable = False
        self._head = 0
        self._by_length = False
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(request)

    def abort(self, why: str) -> None:
        """Let it go at once."""
        if self.lost is None:
            self.lost = why
        if self.transport is not None:
            self.transport.abort()
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.fail(self.lost)

    # ------------------------------------------------------------ the parser's words

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        assert self.answer is not None
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._by_length = True
        self.answer.add_header(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """All of them; what is only provisional is followed by others."""
        assert self.answer is not None
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self.answer.headers.clear()
            self._by_length = False
            if status == 101:
                self.abort("the server wants to speak something else than HTTP")
            return
        if status in (204, 304):
            self._by_length = True
        self.answer.begin(status)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.answer is not None:
            self.answer.feed(data)

    def on_message_complete(self) -> None:
        """The answer is whole, and the connection free."""
        answer = self.answer
        if answer is None or not answer.begun:
            return
        assert self._parser is not None
        self.answer = None
        self.reusable = self._parser.should_keep_alive() and self.lost is None
        self._parser = None
        answer.finish()


class Answer:
    """What a server answers: a status, headers, and a body that is read in pieces."""

    def __init__(self, pool: "HttpPool", origin: Origin, connection: Connection) -> None:
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self._pool = pool
        self._origin = origin
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._closed = False
        self._error: str | None = None
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Answer({self.status or 'none yet'})"

    async def __aenter__(self) -> "Answer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def begun(self) -> bool:
        """Whether its headers are there."""
        return bool(self.status)

    def header(self, name: str) -> str | None:
        """A header by its name in lower case; one that was sent twice is joined by commas."""
        return self.headers.get(name)

    # ------------------------------------------------------------ what the connection says

    def add_header(self, name: str, value: str) -> None:
        """One more header."""
        before = self.headers.get(name)
        self.headers[name] = value if before is None else f"{before}, {value}"

    def begin(self, status: int) -> None:
        """All headers are there."""
        self.status = status
        self._wake()

    def feed(self, data: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(data)
        self._size += len(data)
        transport = self._connection.transport
        if self._size > UNREAD_BYTES and not self._paused and transport is not None:
            self._paused = True
            transport.pause_reading()
        self._wake()

    def finish(self) -> None:
        """There is no more."""
        self._over = True
        self._wake()
        if self._closed:
            self._release()

    def fail(self, why: str) -> None:
        """There should have been more."""
        if not self._over:
            self._over, self._error = True, why
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ who reads it

    async def started(self) -> None:
        """Wait for its headers. Raises `ConnectionLost`; giving up closes the connection."""
        try:
            while not self.begun and not self._over:
                await self._wait()
        except BaseException:
            self.close()
            raise
        if not self.begun:
            self.close()
            raise ConnectionLost(self._error or "the server closed the connection")

    async def read(self) -> bytes:
        """What has come since; nothing at the end. Raises `ConnectionLost` where it was cut."""
        while not self._pieces and not self._over:
            self._resume()
            await self._wait()
        if self._pieces:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            return data
        if self._error is not None:
            raise ConnectionLost(f"the answer was cut: {self._error}")
        return b""

    async def whole(self, limit: int) -> bytes:
        """The whole body. Raises `RemoteProtocolError` for more than a limit."""
        pieces: list[bytes] = []
        size = 0
        while data := await self.read():
            size += len(data)
            if size > limit:
                raise RemoteProtocolError(f"the server's answer is larger than {limit} bytes")
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _resume(self) -> None:
        transport = self._connection.transport
        if self._paused and transport is not None:
            self._paused = False
            transport.resume_reading()

    def close(self) -> None:
        """Read no more: a connection with an answer read to its end is kept, others are closed."""
        if self._closed:
            return
        self._closed = True
        if self._over and self._error is None:
            self._resume()
            self._release()
        else:
            self._connection.abort("nobody waits any more")

    def _release(self) -> None:
        self._pool.keep(self._origin, self._connection)


class HttpPool:
    """Connections to servers, kept for the next request. Of one loop."""

    def __init__(
        self,
        *,
        connect_s: float = CONNECT_S,
        context: ssl.SSLContext | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._connect_s = connect_s
        self._context = context
        self._environ = environ
        self._idle: dict[Origin, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._closed = False

    async def send(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes = b""
    ) -> Answer:
        """Send a request and wait for the headers of its answer.

        Raises `CannotConnect`, or `ConnectionLost` where it may have arrived.
        """
        if self._closed:
            raise ConnectionLost("the client was closed")
        target = Target(url, self._environ)
        request = _request(method, target, headers, body)
        connection = self._take(target.origin) or await self._connect(target)
        answer = Answer(self, target.origin, connection)
        self._busy.add(connection)
        connection.send(request, answer)
        try:
            await answer.started()
        except ConnectionLost as lost:
            raise ConnectionLost(f"{target.authority}: {lost}") from None
        return answer

    # ------------------------------------------------------------ connections

    def _take(self, origin: Origin) -> Connection | None:
        """One that was used before, and not too long ago."""
        idle = self._idle.get(origin)
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            if connection.reusable and now - connection.used_at < IDLE_S:
                return connection
            connection.abort("it was idle")
        return None

    def keep(self, origin: Origin, connection: Connection) -> None:
        """A connection is free."""
        self._busy.discard(connection)
        idle = self._idle.setdefault(origin, [])
        if not connection.reusable or self._closed or len(idle) >= IDLE_CONNECTIONS:
            connection.abort("it is not needed")
            return
        connection.used_at = asyncio.get_running_loop().time()
        idle.append(connection)

    async def _connect(self, target: Target) -> Connection:
        scheme, host, port = target.origin
        try:
            async with asyncio.timeout(self._connect_s):
                if target.proxy is not None:
                    return await target.proxy.connect(target.origin, Connection, self._tls)
                context = self._tls() if scheme == "https" else None
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(Connection, host, port, ssl=context)
                return connection
        except TimeoutError:
            words = f"{target.authority} did not answer within {self._connect_s:g} s"
        except ssl.SSLCertVerificationError as error:
            words = f"the certificate of {target.authority} is not trusted: {error.verify_message}"
        except (OSError, UnicodeError) as error:
            words = f"{target.authority} cannot be reached: {_reason(error)}"
        raise CannotConnect(words)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()  # which honours SSL_CERT_FILE
        return self._context

    async def close(self) -> None:
        """Close everything; whoever still reads is told so."""
        self._closed = True
        idle = [connection for group in self._idle.values() for connection in group]
        for connection in (*idle, *self._busy):
            connection.abort("the client was closed")
        self._idle.clear()
        self._busy.clear()
        await asyncio.sleep(0)  # in which the loop lets them go


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _request(method: str, target: Target, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """A request as it is written. Raises `LocalProtocolError` for what would break its frame."""
    path = target.path
    lines = [f"host: {target.authority}"]
    if target.proxy is not None and target.origin[0] == "http":
        path = f"http://{target.authority}{path}"
        lines += [f"{name}: {value}" for name, value in target.proxy.headers]
    lines += [f"{name}: {value}" for name, value in headers]
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines])
    if head.count("\r") != len(lines) or head.count("\n") != len(lines) or "\0" in head:
        raise LocalProtocolError("a header has a line break in it; leave it out")
    try:
        return head.encode("latin-1") + b"\r\n\r\n" + body
    except UnicodeEncodeError:
        raise LocalProtocolError("a header has characters that none can carry") from None
