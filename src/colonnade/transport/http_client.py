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
import os
import socket
import ssl
from collections.abc import Iterable, Mapping

from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.http_answer import Answer, Connection
from colonnade.transport.http_request import Origin, Target, written
from colonnade.transport.http_routes import Routes

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
