"""Our own HTTP server: uvicorn's protocol under limits that no application could keep.

    await serve(app, "127.0.0.1", 8000)          # until SIGTERM or SIGINT, then drained
    async with listening(app, port=0) as site:   # in a test: site.url

uvicorn puts no limit on the time or the size of headers, keeps silent connections open, keeps
answers that nobody reads, and never tells a pipelined request that its client has gone. An
application that is mounted elsewhere lives with that; here each has an end.

Rules: the only file that imports uvicorn. Nothing is served before the service has started; a
signal to end refuses new work at once and lets what runs finish until the deadline.
"""

import asyncio
import contextlib
import logging
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from email.utils import formatdate
from typing import Any, Final, cast

import httptools
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from portico.errors import LocalProtocolError
from portico.protocol.httprules_gate import HostPolicy
from portico.transport.http_server import HttpApp
from portico.transport.http_visit import (
    CLIENT_GONE,
    CLOSE_HEADER,
    LINE_KEY,
    Pairs,
    Receive,
    Scope,
    Send,
    Visit,
)
from portico.transport.signals import Signals

log = logging.getLogger("portico.transport")

# How often connections are looked at.
STEP_S = 1.0
# After the drain, what is still written may leave for so long.
FLUSH_S = 1.0
# An unread answer must shrink by so much to count as read.
PROGRESS_BYTES = 1024

HEALTH: Final = "/health"
READY: Final = "/ready"


class RunLimits(Struct, frozen=True, kw_only=True):
    """What a stranger may take of our own server: sizes in bytes, times in seconds."""

    # Proxies allow 8 KiB of headers, browsers send 2; tokens and mirrored arguments need some.
    head_bytes: int = 16 * 1024
    head_count: int = 100
    # From the first byte, or from the connection, to the end of the headers.
    head_s: float = 10.0
    # Between two requests on one connection.
    idle_s: float = 60.0
    # An answer of which nothing is taken for so long is dropped, and the connection with it.
    unread_s: float = 30.0
    # 20,000 streams and as many callers as a machine can answer.
    connections: int = 30_000


DEFAULT_LIMITS: Final = RunLimits()


# No request is ever put here, and an empty one for each connection takes 700 bytes.
_NO_PIPELINE: deque[Any] = deque(maxlen=0)


class _Cut(Exception):
    """Stops the parser in the middle of what must not be read."""


class Connection(HttpToolsProtocol):
    """One connection, with an end to everything that could last."""

    # In slots: with them, uvicorn's own would no longer share one table of names, at 1.5 KiB each.
    __slots__ = (
        "_chunk_bytes",
        "_deaf",
        "_head_bytes",
        "_idle",
        "_in_head",
        "_limits",
        "_quiet_since",
        "_refusal",
        "_unread",
        "lost",
        "visit",
    )

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], limits: RunLimits
    ) -> None:
        super().__init__(config, state, app_state)
        self._limits = limits
        # Whether headers are awaited, or a next request; since when, as far as `check` has seen.
        self._in_head = True
        self._idle = False
        self._quiet_since = 0.0
        self._head_bytes = 0
        self._chunk_bytes = 0
        self._deaf = False
        self._refusal = 400
        self._unread = (0.0, 0)
        self.visit: Visit | None = None
        self.lost = False
        self.pipeline = _NO_PIPELINE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has come; the time for headers runs."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody has gone; whoever answers them hears of it now."""
        super().connection_lost(exc)
        self.lost = True
        if self.visit is not None:
            self.visit.leave(CLIENT_GONE)
            self.visit = None
        if self.scope is not None:  # type: ignore[redundant-expr]
            self.scope.pop(LINE_KEY, None)  # type: ignore[typeddict-item]

    def data_received(self, data: bytes) -> None:
        """Some bytes: headers within their limit, a body, or more than was asked for."""
        if self._deaf or self.parser is None:
            return
        self._chunk_bytes = len(data)
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
            if self._in_head and self._head_bytes > self._limits.head_bytes:
                self._refuse(431)
        except httptools.HttpParserUpgrade:
            self._deafen()
        except httptools.HttpParserError:
            if self._answering and not self.cycle.more_body:
                self._deafen()  # it comes after a whole request, which is still answered
            elif not self._deaf:
                self._refuse(self._refusal)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def on_message_begin(self) -> None:
        """A request begins; one that comes before the last was answered is not read."""
        if self._answering:
            # Its disconnect would be told to the newer one. A client that gets no answer
            # sends the request again, on another connection.
            self._deafen()
            raise _Cut
        super().on_message_begin()
        self.scope[LINE_KEY] = self  # type: ignore[typeddict-unknown-key]
        self._in_head, self._idle, self._quiet_since = True, False, 0.0
        self._head_bytes = self._chunk_bytes

    def on_headers_complete(self) -> None:
        """All headers are there."""
        limits = self._limits
        large = self._head_bytes > limits.head_bytes and (
            sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            > limits.head_bytes
        )
        if large or len(self.headers) > limits.head_count:
            self._refusal = 431
            raise _Cut
        self._in_head = False
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """It was answered; `check` ends the connection if nothing more comes, without a timer."""
        self._idle, self._quiet_since = True, 0.0
        self.flow.resume_reading()

    def answer(self, send: Send, status: int, headers: Pairs, body: bytes) -> bool:
        """Write a whole answer in one piece, which by `send` takes two writes and much looking.

        Only where `send` is the server's own: whoever wraps it wants to see what passes.
        """
        cycle = self.cycle
        if (
            getattr(send, "__self__", None) is not cycle
            or cycle.response_started
            or self.flow.write_paused
            or cycle.scope["method"] == "HEAD"
        ):
            return False
        if cycle.disconnected:
            return True
        lines = [STATUS_LINE[status]]
        for name, value in [*cycle.default_headers, *headers]:
            lines += (name, b": ", value, b"\r\n")
        if CLOSE_HEADER in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"\r\n", body)
        self.transport.write(b"".join(lines))
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def drop(self, send: Send) -> None:
        """End the connection without another word, if this answer is still on it."""
        if getattr(send, "__self__", None) is self.cycle and not self.cycle.disconnected:
            self.cycle.disconnected = True
            self.transport.abort()

    def _deafen(self) -> None:
        """Read no more; what is being answered is the last."""
        self._deaf = True
        if self.cycle is not None:  # type: ignore[redundant-expr]
            self.cycle.keep_alive = False

    def _refuse(self, status: int) -> None:
        """Answer what cannot be read, unless an answer is under way, and hang up."""
        self._deafen()
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        head = b"content-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head)
        self.transport.close()

    def check(self, now: float) -> None:
        """End what has lasted too long."""
        limits = self._limits
        if (self._in_head or self._idle) and not self._deaf:
            if not self._quiet_since:
                self._quiet_since = now
            elif self._in_head and now - self._quiet_since > limits.head_s:
                self._refuse(408)
                return
            elif self._idle and now - self._quiet_since > limits.idle_s:
                self.transport.close()
        unread = self.transport.get_write_buffer_size()
        since, size = self._unread
        if not unread:
            self._unread = (0.0, 0)
        elif not since or unread <= size - PROGRESS_BYTES:
            self._unread = (now, unread)
        elif now - since > limits.unread_s:
            self.transport.abort()
        else:
            self._unread = (since, max(size, unread))

    def _unsupported_upgrade_warning(self) -> None:
        """Nobody can write into our log by asking for what we do not have."""


class Site:
    """A bound port, and what is served there."""

    def __init__(
        self,
        app: HttpApp,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        limits: RunLimits = DEFAULT_LIMITS,
    ) -> None:
        self.app = app
        app.heeds_signals = False
        self.host = host
        self.port = port
        self.limits = limits
        self.is_ready = False
        self._hosts = tuple(hosts)
        self._origins = tuple(origins)
        self._state = ServerState()
        self._config = Config(
            self._serve,  # type: ignore[arg-type]
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            interface="asgi3",
        )
        self._lifespan: LifespanOn | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.app.path}"

    # ------------------------------------------------------------ beginning

    async def start(self) -> None:
        """Bind, start the service, accept. Raises `LocalProtocolError` where that cannot be.

        A server that others can reach needs to be told by which names (`hosts`).
        """
        bound = _bind(self.host, self.port)
        try:
            self.port = int(bound.getsockname()[1])
            self.app.use_policy(
                HostPolicy.for_bind(self.host, self.port, hosts=self._hosts, origins=self._origins)
            )
            self._config.load()
            lifespan = LifespanOn(self._config)
            await lifespan.startup()
            if lifespan.should_exit:
                raise LocalProtocolError("the server could not be started; its log says why")
            self._lifespan = lifespan
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connect, sock=bound, backlog=2048)
        except BaseException:
            bound.close()
            if self._lifespan is not None:
                await self._lifespan.shutdown()
            raise
        self._step(loop)
        self.is_ready = True

    def _connect(self) -> Connection:
        assert self._lifespan is not None
        return Connection(self._config, self._state, self._lifespan.state, self.limits)

    @property
    def _connections(self) -> "set[Connection]":
        return cast("set[Connection]", self._state.connections)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        for connection in list(self._connections):
            connection.check(now)
        self._timer = loop.call_later(STEP_S, self._step, loop)

    # ------------------------------------------------------------ serving

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if path in (HEALTH, READY) and scope["type"] == "http" and not self.app.has_around:
            fine = path == HEALTH or (self.is_ready and not self.app.draining)
            await _say(send, 200 if fine else 503, b"ok" if fine else b"not ready")
        else:
            await self.app(scope, receive, send)

    # ------------------------------------------------------------ end

    async def stop(self, drain_s: float | None = None) -> None:
        """Refuse what is new, let what runs finish until the deadline, and leave the service."""
        self.is_ready = False
        if self._server is not None:
            self._server.close()
        self.app.draining = True  # from here on no connection outlives its answer
        self._hang_up_idle()
        await self.app.drain(drain_s)
        if self._lifespan is not None:
            await self._lifespan.shutdown()
        await self._flush()
        if self._timer is not None:
            self._timer.cancel()

    def _hang_up_idle(self) -> None:
        for connection in list(self._connections):
            connection.shutdown()

    async def _flush(self) -> None:
        """A last chance to read, then nothing is left open."""
        self._hang_up_idle()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=FLUSH_S)
        deadline = asyncio.get_running_loop().time() + FLUSH_S
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.transport.abort()


@contextlib.asynccontextmanager
async def listening(app: HttpApp, **settings: Any) -> AsyncGenerator[Site]:
    """Serve for as long as this is entered; `port=0` takes any port, and `site.port` is it."""
    site = Site(app, **settings)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


async def serve(
    app: HttpApp,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    limits: RunLimits = DEFAULT_LIMITS,
    started: Callable[[Site], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, drain, and return; a second signal ends it at once.

    `started` is told once the port is bound and the service runs.
    """
    site = Site(app, host, port, hosts=hosts, origins=origins, limits=limits)
    loop = asyncio.get_running_loop()
    wishes: list[asyncio.Future[None]] = [loop.create_future(), loop.create_future()]

    def note() -> None:
        wish = next((wish for wish in wishes if not wish.done()), None)
        if wish is not None:
            wish.set_result(None)

    signals = Signals(note, alone=True)
    signals.listen()
    try:
        await site.start()
        if started is not None:
            started(site)
        await wishes[0]
        stopping = loop.create_task(site.stop())
        await asyncio.wait({stopping, wishes[1]}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            await asyncio.wait({stopping})
            await site.stop(0.0)
        else:
            stopping.result()
    finally:
        signals.stop()


def run(app: HttpApp, host: str = "127.0.0.1", port: int = 8000, **settings: Any) -> None:
    """`serve` in a loop of its own, the fastest there is."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(app, host, port, **settings))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows and PyPy have none
        return None
    return uvloop.new_event_loop


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `LocalProtocolError` where there can be none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise LocalProtocolError(f"{host!r} is no address to serve on: {error.strerror}") from None
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        words = f"{host}:{port} cannot be served: {error.strerror}; choose another port"
        raise LocalProtocolError(words) from None
    return bound


async def _say(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
