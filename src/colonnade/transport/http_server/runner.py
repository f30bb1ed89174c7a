"""Our own HTTP server: a bound port, what is served there, and how it ends.

    run(app, port=8000)                            # until SIGTERM, SIGHUP or SIGINT, then drained
    await serve(app, "127.0.0.1", 8000)            # the same in a loop that runs already
    async with listening(app, port=0) as runner:   # in a test: runner.url

Rules: nothing is served before the application has started. SIGTERM and SIGINT close the port at
once; connections that are open get a moment for one more request, and requests that run finish
until the deadline. If `serve` is cancelled, nothing of it is left.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from email.utils import formatdate
from typing import Any, ClassVar, Final

from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError, Refused
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.protocol.http.security import (
    HostPolicy,
    combine_headers,
    is_health_check_allowed,
    is_loopback_host,
    name_list,
)
from colonnade.protocol.negotiation import name_and_version
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.asgi_cycle import ServerState
from colonnade.transport.http_server.connection import DEFAULT_LIMITS, RunLimits, ServerConnection
from colonnade.transport.http_server.lifespan import LifespanRunner
from colonnade.transport.http_server.paced_tls import PacedProtocol
from colonnade.transport.http_server.request import App, Scope, Send
from colonnade.transport.http_server.settings import tls_context
from colonnade.transport.http_server.unread_responses import UnreadResponses
from colonnade.transport.signals import Signals, close

MAX_PORT = 65535


class AddressError(LocalProtocolError):
    """This address cannot be bound: it does not exist, is not of this machine, or is in use."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound, but does not listen yet. Raises `AddressError`."""
    if not isinstance(port, int) or not 0 <= port <= MAX_PORT:  # pyright: ignore[reportUnnecessaryIsInstance]
        words = f"{port!r} is no port; there are 1 to {MAX_PORT}, and 0 for any free one"
        raise AddressError(words)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise AddressError(f"{host!r} is no address to serve on: {why}") from None
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise AddressError(_why(error, host, port)) from None
    return bound


def set_min_ttl(one: socket.socket, ttl: int) -> bool:
    """Drop packets with a smaller TTL, and so all of a client, but of one that sends the largest;
    0 for none. False if the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        one.setsockopt(socket.IPPROTO_IP, IP_MINTTL, ttl)
        if one.family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, IPV6_MINHOPCOUNT, ttl)
    except OSError:
        return False
    return True


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """The connections in the backlog of a socket that does not block."""
    accepted: list[socket.socket] = []
    while True:
        try:
            accepted.append(listener.accept()[0])
        except ConnectionAbortedError:  # that client has disconnected
            continue
        except OSError:  # BlockingIOError: there are no more
            return accepted


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another port, or 0 for any free one"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not open to this user; choose another port, above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host!r} is no address of this machine; serve one that is, such as 127.0.0.1"
    return f"{host}:{port} cannot be served: {error.strerror}; choose another port or address"


# ---------------------------------------------------------------- runner


log: logging.Logger = logging.getLogger("colonnade.transport")

# How often the timeouts of connections are checked.
CHECK_S = 1.0
# After the drain, how long clients may still read their responses; less at the second signal.
FLUSH_S = 1.0
HURRIED_FLUSH_S = 0.2
# How often it is checked at shutdown whether connections are left.
CLOSING_CHECK_S = 0.01
# Options of Linux (ip(7), ipv6(7)): packets whose TTL, or hop limit, is less are dropped. A socket
# that listens checks the SYN that begins a handshake, and not the ACK that completes one; what is
# accepted from it has its options. Needs no privilege, as a packet filter would (Linux 6.18).
IP_MINTTL: Final = 21
IPV6_MINHOPCOUNT: Final = 73
MAX_TTL: Final = 255
# How long handshakes that have begun may take until the port is closed: several round trips in one
# data centre. A client that begins one meanwhile tries again a second later, and is refused then.
HANDSHAKE_S: Final = 0.02
# Iterations of the loop until asyncio has made a protocol for each connection that it accepted.
ACCEPTING_TURNS = 4
# Iterations of the loop until connections have read what the kernel has received: the next one asks
# for it, and calls them after those who wait for that iteration. One more where reads are futures.
READING_TURNS = 3
# After the second signal: four times what the application gives to handlers that do not stop
# (`ENDING_S`, twice for the drain and twice for the end), and two seconds for the lifespan.
HURRY_S = 6.0

# How long threads of handlers may still run at the end of the process.
THREADS_S = 1.0

# What the C library may keep of the memory that large messages leave, instead of giving it back to
# the system and asking for it again, page by page: a result of 1 MiB would take twice as long, and
# a read under asyncio's own loop, which has 256 KiB ready for each, some 18 µs longer.
KEPT_BYTES: Final = 8 * 1024 * 1024

# Objects that are made before the garbage collector looks for cycles among them. A request that
# waits has some fifty; with the 700 of Python, the collector runs several times while 32 of them
# wait, and finds nothing: 9 % of the time of a gateway.
YOUNG_OBJECTS: Final = 5000

HEALTH: Final = "/health"
READY: Final = "/ready"
PROBES: Final = frozenset({HEALTH, READY})

# How long the outcome of a check of the store is used, however often /ready is requested, and how
# long a check may take: less than the second after which Kubernetes gives up a probe by default.
STORE_CHECK_S = 1.0
STORE_TIMEOUT_S = 0.8
# The entry that the readiness check writes; it soon expires. Reading is not enough: a full store
# responds, but refuses writes.
STORE_KEY: Final = "ready"
STORE_KEY_TTL_S = 60.0


class StoreCheck:
    """Whether the shared store accepts writes. Checks with one write, at most once a second.
    `clock` is monotonic.

    Probes that arrive during a write wait for its result; a probe that is cancelled does not cancel
    the write.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float] = time.monotonic,
        timeout_s: float = STORE_TIMEOUT_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeout_s = timeout_s
        self._responds = True
        self.problem: str = ""
        self._checked_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def responds(self) -> bool:
        """Whether it responded at most a second ago."""
        if self._task is None and self._clock() - self._checked_at >= STORE_CHECK_S:
            self._task = asyncio.get_running_loop().create_task(self._write())
        if self._task is not None:
            await asyncio.wait({self._task})
        return self._responds

    async def _write(self) -> None:
        error: Exception | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._store.put(SERVER_PRINCIPAL, STORE_KEY, b"", STORE_KEY_TTL_S)
        except Exception as raised:  # also those that a store should not raise
            error = raised
        finally:
            self._task = None
        self._checked_at = self._clock()
        if error is not None and self._responds:
            why = str(error) or f"no response within {self._timeout_s:g} s"
            refuses = isinstance(error, Refused)
            self.problem = "the store refuses writes" if refuses else "the store does not respond"
            log.warning("not ready: %s (%s)", self.problem, why)
        elif error is None and not self._responds:
            log.warning("the store responds again")
        self._responds = error is None

    def cancel(self) -> None:
        """Cancel a pending write."""
        if self._task is not None:
            self._task.cancel()


class Shutdown:
    """How often the end was requested: the first time is graceful, the second immediate."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.graceful: asyncio.Future[None] = self._loop.create_future()
        self.immediate: asyncio.Future[None] = self._loop.create_future()

    def request(self) -> None:
        """Request it once more."""
        for requested in (self.graceful, self.immediate):
            if not requested.done():
                requested.set_result(None)
                return

    def request_threadsafe(self) -> None:
        """Request it once more, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self.request)


class HttpRunner:
    """A bound port, and what is served there. `bound` is a socket that was bound before, such as by
    a parent process."""

    def __init__(
        self,
        app: HttpApp,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        run_limits: RunLimits = DEFAULT_LIMITS,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        bound: socket.socket | None = None,
    ) -> None:
        self.app = app
        self._bound = bound
        self._tls = tls_context(ssl_certfile, ssl_keyfile)
        app.handles_signals = False
        self.host = host
        self.port: int = port
        if not isinstance(run_limits, RunLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                "run_limits= takes RunLimits(...); Limits(...) are limits=", argument="run_limits"
            )
        self.limits = run_limits
        self.is_ready: bool = False
        self._hosts = name_list("hosts", hosts)
        self._origins = name_list("origins", origins)
        app.on_other_path = self._serve_other_path
        self._span = LifespanRunner(app)
        limits = run_limits
        unread = UnreadResponses(limits.max_unread_bytes, limits.max_unread_bytes_per_principal)
        self._state = ServerState(app, self._span.state, unread)
        store = app.service.shared_store
        self._store_check = None if store is None else StoreCheck(store)
        self._connections: set[ServerConnection] = set()
        self.shutdown: Shutdown | None = None
        self._drains = False
        self._server: asyncio.Server | None = None
        # The same socket once more, since asyncio closes its own with connections in the backlog.
        self._backlog: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self.port}{self.app.path}"

    # ------------------------------------------------------------ start

    async def start(self) -> None:
        """Bind, start the application, accept connections.

        Raises `AddressError` if the address cannot be bound, `LocalProtocolError` if other machines
        can reach it and no names (`hosts`) are given, or if the application has names of its own
        and others are given here, and what the application raised.
        """
        bound = self._bound or bind(self.host, self.port)
        loop = asyncio.get_running_loop()
        try:
            self.port = int(bound.getsockname()[1])
            self._name()
            if not self.app.is_guarded and not is_loopback_host(self.host):
                log.warning(
                    "listening on %s:%d without authentication: every client that reaches it may "
                    "use this server; give it auth=, or put a proxy that authenticates before it",
                    self.host,
                    self.port,
                )
            # glibc learns from the first block of this size that it gets back; no page is used.
            bytes(KEPT_BYTES)
            await self._span.enter()
            self._backlog = bound.dup()
            self._backlog.setblocking(False)
            self._server = await loop.create_server(
                self._connect, sock=bound, backlog=2048, ssl=self._tls
            )
        except BaseException:
            bound.close()
            self._close_listener()
            await self._span.exit()
            raise
        self._check(loop)
        self.is_ready = True
        log.info("serving %s on %s (process %d)", self._named, self.url, os.getpid())

    def _name(self) -> None:
        """Set the host names of the application, unless they were set before."""
        app, named, pages = self.app, self._hosts, self._origins
        if app.has_policy and (named or pages):
            raise InvalidArgument(
                "the application has hosts or origins of its own, and those given with the address "
                "would not count; say them all in server.asgi(…)",
                argument="hosts",
            )
        if not app.has_names:
            app.use_policy(HostPolicy.for_bind(self.host, self.port, hosts=named, origins=pages))

    def _connect(self) -> asyncio.Protocol:
        connection = ServerConnection(self._state, self.limits, self._connections)
        return connection if self._tls is None else PacedProtocol(connection)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._state.set_date(formatdate(usegmt=True))
        for connection in list(self._connections):
            connection.check(now)
        self._timer = loop.call_later(CHECK_S, self._check, loop)

    # ------------------------------------------------------------ requests

    def _serve_other_path(self, scope: Scope, send: Send) -> Awaitable[None] | None:
        """Serve health checks, and refuse the paths of another application while shutting down."""
        path = scope["path"]
        if path in PROBES and self._answers_probes(scope):
            if not is_health_check_allowed(combine_headers(scope["headers"]), self.app.policy):
                return _send_text(
                    send, 403, b"this Host or Origin is not admitted; add it to hosts"
                )
            if path == HEALTH:
                return _send_text(send, 200, b"ok", closing=self.app.draining)
            return self._send_ready(send)
        if self.app.draining and self.app.has_around:
            return _send_text(send, 503, b"this server is shutting down", closing=True)
        return None

    async def _send_ready(self, send: Send) -> None:
        check = self._store_check
        words = b"ok"
        if not self.is_ready or self.app.draining:
            words = b"not ready"
        elif check is not None and not await check.responds():
            words = f"not ready: {check.problem}".encode()
        status = 200 if words == b"ok" else 503
        await _send_text(send, status, words, closing=self.app.draining)

    @property
    def _named(self) -> str:
        return " ".join(name_and_version(self.app.service.identity.info).split())

    def _answers_probes(self, scope: Scope) -> bool:
        """Whether /health and /ready are ours: the program may have routes of its own there."""
        return not self.app.has_routes_of_others and self.app.route_for(scope) is None

    # ------------------------------------------------------------ end

    def end(self) -> None:
        """Request the end of `serve`, from any thread, as a signal does: again is immediate."""
        if self.shutdown is not None:
            self.shutdown.request_threadsafe()

    async def stop(self, drain_s: float | None = None) -> None:
        """Close the port, serve what is under way, let requests finish until the deadline, end the
        lifespan.

        A client whose connection is refused tries another process. Connections that are open may
        send one request for a moment (`last_request_timeout_s`), and what comes later gets 503.
        Raises what the application raised when its lifespan ended.
        """
        if self._server is None:
            return
        began = asyncio.get_running_loop().time()
        self.is_ready = False
        delay_s = self.limits.shutdown_delay_s if drain_s is None and not self._drains else 0.0
        if delay_s:
            log.info("stopping %s in %g s; /ready says so", self._named, delay_s)
            await asyncio.sleep(delay_s)
        if not self._drains:  # the second signal does not wait for what the first one began
            self._drains = True
            log.info("stopping %s; %d requests are running", self._named, len(self.app.reaper))
            await self._drain(self.app.limits.drain_timeout_s if drain_s is None else drain_s)
        self.app.draining = True
        self._close_listener()
        failure: Exception | None = None
        try:
            await self._span.exit()
        except Exception as error:
            failure = error
        await self._flush(FLUSH_S if drain_s != 0 else HURRIED_FLUSH_S)
        self.abort()
        took_s = asyncio.get_running_loop().time() - began
        log.info("stopped %s after %.1f s", self._named, took_s)
        if failure is not None:
            raise failure

    async def _drain(self, drain_s: float) -> None:
        """Serve the connections that there are, each up to its next response, then let requests
        finish until the deadline."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_s
        self._state.closes_connections = True
        for connection in list(self._connections):
            connection.end_keep_alive()
        await self._accept_backlog(min(HANDSHAKE_S, drain_s))
        closes_at = min(loop.time() + self.limits.last_request_timeout_s, deadline)
        while self._awaits_requests() and loop.time() < closes_at:
            await asyncio.sleep(CLOSING_CHECK_S)
        await _turn(READING_TURNS)
        self._shut_connections()
        # Nothing more is received. The tasks of the last requests begin before `draining`, with
        # which they would be refused, and `drain` does not wait for one that has not begun.
        await _turn(1)
        self.app.draining = True
        await self.app.drain(max(0.0, deadline - loop.time()))

    async def _accept_backlog(self, handshake_s: float) -> None:
        """Close the port. Clients in its backlog are connected already, and would lose what they
        have sent: no new handshake begins, those that have begun are completed, and what is in
        the backlog then is all that there will be."""
        loop = asyncio.get_running_loop()
        backlog = self._backlog
        accepted: list[socket.socket] = []
        if self._server is not None and backlog is not None:
            self._server.close()
            # With other processes on the socket the backlog is theirs, too, and stays.
            if self._bound is None and set_min_ttl(backlog, MAX_TTL):
                await asyncio.sleep(handshake_s)
            accepted = accept_all(backlog)
        self._close_listener()
        for one in accepted:
            set_min_ttl(one, 0)
        connecting = [
            loop.create_task(loop.connect_accepted_socket(self._connect, one, ssl=self._tls))
            for one in accepted
        ]
        await _turn(ACCEPTING_TURNS)
        for task in connecting:
            task.add_done_callback(_ignore_failure)

    def _awaits_requests(self) -> bool:
        """Whether a request may be under way on a connection. With TLS a connection is not known
        before its handshake."""
        return self._tls is not None or any(one.awaits_request for one in self._connections)

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._backlog is not None:
            self._backlog.close()

    def abort(self) -> None:
        """Close everything, now."""
        self._close_listener()
        self._server = None
        self._span.abort()
        for connection in list(self._connections):
            connection.transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        if self._store_check is not None:
            self._store_check.cancel()

    def _shut_connections(self) -> None:
        for connection in list(self._connections):
            connection.shutdown()

    async def _flush(self, timeout_s: float) -> None:
        """Let clients read what was written."""
        self._shut_connections()
        if self._state.running:
            await asyncio.wait(list(self._state.running.values()), timeout=timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(CLOSING_CHECK_S)


async def _turn(iterations: int) -> None:
    """Let the loop run so often."""
    for _ in range(iterations):
        await asyncio.sleep(0)


def _ignore_failure(connecting: "asyncio.Task[Any]") -> None:
    """Take the error of a client that has disconnected, which is no error here."""
    if not connecting.cancelled():
        connecting.exception()


# A scraper needs one connection.
LISTENER_LIMITS: Final = RunLimits(max_connections=64)


class AppListener:
    """A plain ASGI application on an address of its own, while it is entered: no lifespan, no
    drain. `make_app` gets the host and the port that was bound.

    An address that another listener of this process serves is left to that one. Raises
    `AddressError` if it cannot be bound.
    """

    # The addresses that are served, but for those with port 0.
    _served: ClassVar[set[tuple[str, int]]] = set()

    def __init__(self, make_app: Callable[[str, int], App], address: tuple[str, int]) -> None:
        self._make_app = make_app
        self._address = address
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connections: set[ServerConnection] = set()
        self.port: int = 0

    async def __aenter__(self) -> "AppListener":
        if self._address in self._served:
            return self
        host, port = self._address
        bound = bind(host, port)
        self.port = int(bound.getsockname()[1])
        loop = asyncio.get_running_loop()
        try:
            state = ServerState(self._make_app(host, self.port), {})
            self._server = await loop.create_server(
                lambda: ServerConnection(state, LISTENER_LIMITS, self._connections), sock=bound
            )
        except BaseException:
            bound.close()
            raise
        if port:
            self._served.add(self._address)
        self._check(loop, state)
        log.info("serving metrics on %s:%d", host, self.port)
        return self

    def _check(self, loop: asyncio.AbstractEventLoop, state: ServerState) -> None:
        state.set_date(formatdate(usegmt=True))
        for connection in list(self._connections):
            connection.check(loop.time())
        self._timer = loop.call_later(CHECK_S, self._check, loop, state)

    async def __aexit__(self, *_: object) -> None:
        if self._server is None:
            return
        self._served.discard(self._address)
        self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections):
            connection.transport.abort()


@contextlib.asynccontextmanager
async def listening(app: HttpApp, **settings: Any) -> AsyncGenerator[HttpRunner]:
    """Serve for as long as this is entered; `port=0` takes a free port, which is `runner.port`."""
    runner = HttpRunner(app, **settings)
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()


def announce(runner: HttpRunner) -> None:
    """Print one line: what is served, and where."""
    print_line(announcement(runner))


def announcement(runner: HttpRunner) -> str:
    """What is served, and where, in one line."""
    info = runner.app.service.identity.info
    return " ".join(f"{name_and_version(info)} on {runner.url}".split())


def print_line(line: str) -> None:
    """Print a line on standard output, if it is open, in any encoding."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stdout is closed
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(f"{line}\n".encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


async def serve(
    app: HttpApp,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    run_limits: RunLimits = DEFAULT_LIMITS,
    ssl_certfile: str | None = None,
    ssl_keyfile: str | None = None,
    bound: socket.socket | None = None,
    started: Callable[[HttpRunner], None] | None = None,
) -> bool:
    """Serve until SIGTERM, SIGHUP, SIGINT or `runner.end()`, drain, and return. A second signal
    ends at once.

    `started` is called once the port is bound and the application runs. Returns whether Ctrl-C
    ended it. Cancelled, it ends as by a second signal.
    """
    runner = HttpRunner(
        app,
        host,
        port,
        hosts=hosts,
        origins=origins,
        run_limits=run_limits,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        bound=bound,
    )
    shutdown = runner.shutdown = Shutdown()
    loop = asyncio.get_running_loop()
    signals = Signals(shutdown.request, exclusive=True)
    signals.listen()
    step = loop.create_task(runner.start())
    try:
        if await _done(step, shutdown.graceful):
            if started is not None:
                started(runner)
            await shutdown.graceful
            step = loop.create_task(runner.stop())
            await _done(step, shutdown.immediate)
    finally:
        try:
            await _hurry(runner, step)
        finally:
            signals.stop()
    return signals.interrupted


async def _done(step: "asyncio.Task[None]", requested: "asyncio.Future[None]") -> bool:
    """Whether a step was done before it was requested not to wait for it."""
    await asyncio.wait({step, requested}, return_when=asyncio.FIRST_COMPLETED)
    if step.done():
        step.result()
    return step.done()


async def _hurry(runner: HttpRunner, step: "asyncio.Task[None]") -> None:
    """End what has not ended yet."""
    try:
        async with asyncio.timeout(HURRY_S):
            if not step.done():
                step.cancel()
                await asyncio.wait({step})
            await runner.stop(0.0)
    except TimeoutError:
        log.warning("what is served did not end within %g s, and is left", HURRY_S)
    finally:
        runner.abort()


def run(
    app: HttpApp,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    started: Callable[[HttpRunner], None] = announce,
    **settings: Any,
) -> bool:
    """`serve` in a loop of its own, uvloop's if it is installed.

    Once it serves, one line on standard output says where, unless `started` does otherwise.
    Returns whether Ctrl-C ended it.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner, _seldom_collected():
        try:
            interrupted = runner.run(serve(app, host, port, started=started, **settings))
        except KeyboardInterrupt:  # before `serve` handled it
            interrupted = True
        close(runner, interrupted=interrupted, wait_s=THREADS_S)
    return interrupted


@contextlib.contextmanager
def _seldom_collected() -> Generator[None]:
    """Let the garbage collector run less often, unless the program has done so itself."""
    before = gc.get_threshold()
    if not 0 < before[0] < YOUNG_OBJECTS:
        yield
        return
    gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of uvloop's event loop; None, for that of asyncio, if there is none."""
    try:
        import uvloop
    except ImportError:  # Windows and PyPy have none
        return None
    return uvloop.new_event_loop


async def _send_text(send: Send, status: int, body: bytes, *, closing: bool = False) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    if closing:
        headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
