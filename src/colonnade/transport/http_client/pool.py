"""One connection over HTTP, and the answer that is read from it.

Rules: knows no message of the protocol. What a server says is read as fast as somebody takes it,
and what it can make us keep is bounded. A connection that said anything out of turn is not used
again.
"""

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Protocol, cast

import httptools

from colonnade.errors import CannotConnect, ColonnadeError, ConnectionLost, RemoteProtocolError
from colonnade.transport.http_client.connect import Origin, Routes, Target, written

# All headers of an answer, and whatever else is between two pieces of a body; servers allow 16 KiB
# in requests.
HEAD_BYTES = 64 * 1024
# What each header counts beside its own length, so that there are not many empty ones.
HEADER_BYTES = 32
# Beyond this a server waits until somebody has read.
UNREAD_BYTES = 256 * 1024
# An answer that has said all we want ends at once, or its connection does.
LINGER_S = 1.0


class Keeper(Protocol):
    """Who has the connections: the pool."""

    def forget(self, connection: "Connection") -> None:
        """A connection is gone."""
        ...

    def keep(self, connection: "Connection") -> None:
        """A connection is free."""
        ...


class Connection(asyncio.Protocol):
    """One connection of a pool, and the answer that is being read from it."""

    def __init__(self, pool: Keeper, origin: Origin) -> None:
        self.origin = origin
        self.transport: asyncio.Transport | None = None
        self.answer: Answer | None = None
        self.lost: ColonnadeError | None = None
        self.reusable = False
        self.used_at: float = 0.0
        self._pool = pool
        self._parser: httptools.HttpResponseParser | None = None
        self._head = 0
        self._between = 0
        self._by_length = False

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes of an answer; whoever speaks without being asked is not heard again."""
        parser = self._parser
        if parser is None:
            self.abort(RemoteProtocolError("the server spoke without being asked"))
            return
        self._between += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.abort(RemoteProtocolError("the server wants to speak something else than HTTP"))
        except httptools.HttpParserError as error:
            why = error.__context__ if isinstance(error.__context__, RemoteProtocolError) else None
            self.abort(why or RemoteProtocolError(f"the server's answer is no HTTP: {error}"))
        else:
            if self._between > HEAD_BYTES:
                self.abort(_too_large())

    def eof_received(self) -> bool | None:
        """The server says no more."""
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone; an answer without a length has ended with it, any other is cut."""
        # Not used any more: asyncio's raises AttributeError for `abort` after it closed by itself.
        self.transport = None
        self.reusable = False
        self._pool.forget(self)
        if self.lost is None:
            self.lost = ConnectionLost("the server closed the connection")
        answer, self.answer, self._parser = self.answer, None, None
        if answer is None:
            return
        if answer.begun and not self._by_length and exc is None:
            answer.finish()
        else:
            answer.fail(self.lost)

    # ------------------------------------------------------------ one exchange

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that the loop has not read yet, such as its end."""
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        return sock is not None and not _readable(sock.fileno())

    def send(self, request: bytes, answer: "Answer") -> None:
        """Write a request whole; what comes back is this answer."""
        if self.lost is not None or self.transport is None:
            answer.fail(self.lost or ConnectionLost("there is no connection"))
            return
        self.answer = answer
        self.reusable = False
        self._head = self._between = 0
        self._by_length = False
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(request)

    def abort(self, why: ColonnadeError) -> None:
        """Let it go at once."""
        self.reusable = False
        if self.lost is None:
            self.lost = why
        if self.transport is not None:
            self.transport.abort()
        answer, self.answer, self._parser = self.answer, None, None
        if answer is not None:
            answer.fail(self.lost)

    # ------------------------------------------------------------ the parser's words

    def on_message_begin(self) -> None:
        """An answer, or a provisional one before it; a second one was not asked for."""
        if self.answer is None:
            raise RemoteProtocolError("the server answered more than it was asked")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; what trails a body is not for us."""
        answer = self.answer
        if answer is None or answer.begun:
            return
        name = name.lower()
        if name == b"content-length" or (
            name == b"transfer-encoding" and value.lower().endswith(b"chunked")
        ):
            self._by_length = True
        self._head += len(name) + len(value) + HEADER_BYTES
        if self._head > HEAD_BYTES:
            raise _too_large()
        answer.add_header(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """All of them; what is only provisional is followed by others."""
        answer, parser = self.answer, self._parser
        if answer is None or parser is None:
            return
        status = parser.get_status_code()
        if status < 100:
            raise RemoteProtocolError(f"the server's answer is no HTTP: its status is {status}")
        if status < 200:
            answer.headers.clear()
            self._by_length = False
            return
        if status in (204, 304):
            self._by_length = True
        self._between = 0
        answer.begin(status)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        self._between = 0
        if self.answer is not None:
            self.answer.feed(data)

    def on_message_complete(self) -> None:
        """The answer is whole, and the connection free."""
        answer, parser = self.answer, self._parser
        if answer is None or parser is None or not answer.begun:
            return
        self.answer = self._parser = None
        self.reusable: bool = parser.should_keep_alive() and self.lost is None
        answer.finish()


def _readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):  # on Windows, where `select` takes any descriptor
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _too_large() -> RemoteProtocolError:
    return RemoteProtocolError(f"the server's headers are larger than {HEAD_BYTES} bytes")


class Answer:
    """What a server answers: a status, headers, and a body that is read in pieces."""

    __slots__ = (
        "_closed",
        "_connection",
        "_error",
        "_over",
        "_patience",
        "_paused",
        "_pieces",
        "_pool",
        "_size",
        "_waiter",
        "headers",
        "status",
        "where",
    )

    def __init__(self, pool: Keeper, connection: Connection, where: str = "the server") -> None:
        self.where: str = where
        self.status: int = 0
        self.headers: dict[str, str] = {}
        self._pool = pool
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._over = False
        self._closed = False
        self._error: ColonnadeError | None = None
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._patience: asyncio.TimerHandle | None = None

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

    @property
    def media(self) -> str:
        """The type of its body, without parameters; empty where it says none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    # ------------------------------------------------------------ what the connection says

    def add_header(self, name: str, value: str) -> None:
        """One more header."""
        value = value.strip(" \t")
        before = self.headers.get(name)
        self.headers[name] = value if before is None else f"{before}, {value}"

    def begin(self, status: int) -> None:
        """All headers are there."""
        self.status = status
        self._wake()

    def feed(self, data: bytes) -> None:
        """A piece of the body."""
        if self._closed:
            return
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

    def fail(self, why: ColonnadeError) -> None:
        """There should have been more."""
        if not self._over:
            self._over, self._error = True, why
        self._wake()
        self._hurry()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ------------------------------------------------------------ who reads it

    async def started(self) -> None:
        """Wait for its headers. Raises why there are none; giving up closes the connection."""
        try:
            while not self.status and not self._over:
                await self._wait()
        except BaseException:
            self.close()
            raise
        if not self.status:
            self.close()
            lost = self._error or ConnectionLost("the server closed the connection")
            raise type(lost)(f"{self.where}: {lost}")

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
            raise type(self._error)(f"{self.where}: the answer was cut: {self._error}")
        return b""

    async def whole(self, limit: int) -> bytes:
        """The whole body. Raises `RemoteProtocolError` for more than a limit, at once if it can."""
        pieces: list[bytes] = []
        size = int(self.headers.get("content-length", "0"))
        if size <= limit:
            size = 0
            while data := await self.read():
                size += len(data)
                if size > limit:
                    break
                pieces.append(data)
        if size > limit:
            raise RemoteProtocolError(f"{self.where}: the answer is larger than {limit} bytes")
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
            if not transport.is_closing():
                transport.resume_reading()

    def close(self) -> None:
        """Read no more: a connection with an answer read to its end is kept, others are closed."""
        if self._closed:
            return
        self._closed = True
        self._pieces.clear()
        if self._over and self._error is None:
            self._release()
        else:
            self._connection.abort(ConnectionLost("nobody waits any more"))

    def linger(self) -> None:
        """Read no more of what ends by itself in a moment; its connection is kept if it does."""
        if self._over or self._closed:
            self.close()
            return
        self._closed = True
        self._pieces.clear()
        self._resume()
        self._patience = asyncio.get_running_loop().call_later(
            LINGER_S, self._connection.abort, ConnectionLost("nobody waits any more")
        )

    def _hurry(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _release(self) -> None:
        self._hurry()
        self._resume()
        self._pool.keep(self._connection)


# To find an address, to connect, to agree on keys: each network hop takes a second at worst.
CONNECT_S = 15.0
# Servers close what is idle after 5 to 60 seconds, and a request that meets that is lost.
IDLE_S = 4.0
# Kept for the next request, of one server.
IDLE_CONNECTIONS = 64
# Turns of the loop in which it lets go of what was closed: TLS, then the socket, then its reader.
CLOSING_TURNS = 16
# URLs whose parts are remembered; a client has one or two.
MAX_TARGETS = 256


class HttpPool:
    """Connections to servers, kept for the next request. Of one loop.

    `context` is for TLS; without one the certificates of the system are trusted, or those in the
    file that `SSL_CERT_FILE` names. `environ` is where proxies are looked up.
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
        self._routes = Routes()
        self._targets: dict[str, Target] = {}
        self._all: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._connecting: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"HttpPool({len(self._all)} connections, {self.idle} idle)"

    @property
    def idle(self) -> int:
        """How many connections wait for the next request."""
        return sum(map(len, self._idle.values()))

    async def send(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        address: str | None = None,
    ) -> Answer:
        """Send a request and wait for the headers of its answer.

        `address` is the one to connect to, whatever others the host has; TLS is with the host.
        Raises `CannotConnect`, `ConnectionLost` where it may have arrived, `RemoteProtocolError`
        for what is no HTTP, `LocalProtocolError` for what cannot be sent.
        """
        if self._closed:
            raise ConnectionLost("the client was closed")
        if address is None:
            target = self._targets.get(url) or self._target(url)
        else:
            target = Target(url, self._environ, address)
        request = written(method, target, headers, body)
        connection = self._take(target.origin) or await self._connect(target)
        answer = Answer(self, connection, target.authority)
        connection.send(request, answer)
        await answer.started()
        return answer

    def _target(self, url: str) -> Target:
        target = Target(url, self._environ)
        if len(self._targets) >= MAX_TARGETS:
            self._targets.clear()
        self._targets[url] = target
        return target

    # ------------------------------------------------------------ connections

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._all.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)
            self._tidy(connection.origin)

    def _take(self, origin: Origin) -> Connection | None:
        """One that was used before, and not too long ago."""
        idle = self._idle.get(origin)
        now = asyncio.get_running_loop().time()
        while idle:
            connection = idle.pop()
            fresh = connection.reusable and now - connection.used_at < self._idle_s
            if fresh and connection.is_quiet:
                return connection
            connection.abort(ConnectionLost("it was idle"))
        return None

    def keep(self, connection: Connection) -> None:
        """A connection is free."""
        transport = connection.transport
        idle = self._idle.setdefault(connection.origin, [])
        if (
            not connection.reusable
            or self._closed
            or len(idle) >= IDLE_CONNECTIONS
            or transport is None
            or transport.get_write_buffer_size()  # it was answered before it was read
        ):
            self._tidy(connection.origin)
            connection.abort(ConnectionLost("it is not needed"))
            return
        loop = asyncio.get_running_loop()
        connection.used_at = loop.time()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = loop.call_later(self._idle_s, self._sweep)

    def _sweep(self) -> None:
        """Let go of what nobody has used for long."""
        self._sweeping = None
        loop = asyncio.get_running_loop()
        latest = loop.time() - self._idle_s
        for origin, idle in list(self._idle.items()):
            while idle and idle[0].used_at <= latest:
                idle.pop(0).abort(ConnectionLost("it was idle"))
            self._tidy(origin)
        if self._idle:
            oldest = min(idle[0].used_at for idle in self._idle.values())
            self._sweeping = loop.call_at(oldest + self._idle_s, self._sweep)

    def _tidy(self, origin: Origin) -> None:
        if not self._idle.get(origin):
            self._idle.pop(origin, None)

    async def _connect(self, target: Target) -> Connection:
        limit = asyncio.timeout(self._connect_s)
        try:
            async with limit:
                self._connecting.add(limit)
                connection = await self._connected(target)
        except TimeoutError:
            if self._closed:
                raise ConnectionLost("the client was closed") from None
            words = f"did not answer within {self._connect_s:g} s"
        except ssl.SSLCertVerificationError as error:
            raise CannotConnect(
                f"the certificate of {target.authority} is not trusted: {error.verify_message}"
            ) from None
        except (OSError, UnicodeError) as error:
            words = f"cannot be reached: {_reason(error)}"
        else:
            # Not before: a loop may let go of what was given up without a word.
            if connection.lost is None:
                self._all.add(connection)
            if self._closed:
                connection.abort(ConnectionLost("the client was closed"))
            return connection
        finally:
            self._connecting.discard(limit)
        raise CannotConnect(f"{target.authority} {words}", server=target.authority)

    async def _connected(self, target: Target) -> Connection:
        scheme, _, port = target.origin

        def made() -> Connection:
            return Connection(self, target.origin)

        if target.proxy is not None:
            origin = (scheme, target.address, port)
            return await target.proxy.connect(origin, made, self._tls, self._routes, target.host)
        context = self._tls() if scheme == "https" else None
        _, connection = await self._routes.connect(made, target.address, port, context, target.host)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = usual_tls()
        return self._context

    async def close(self) -> None:
        """Close everything; whoever still waits or reads is told so."""
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(now)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in list(self._all):
            connection.abort(ConnectionLost("the client was closed"))
        self._idle.clear()
        for _ in range(CLOSING_TURNS):
            if not self._all:
                break
            await asyncio.sleep(0)


def usual_tls() -> ssl.SSLContext:
    """What is trusted where nobody says otherwise. Making it takes as long as a request."""
    context = ssl.create_default_context()  # which honours SSL_CERT_FILE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _reason(error: Exception) -> str:
    """Why there is no connection, in the words of the system: those of a loop show addresses."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'no reason given').lower().replace('_', ' ')}"
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
