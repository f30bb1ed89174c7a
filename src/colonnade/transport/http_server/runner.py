"""Our own HTTP server: a bound port, what is served there, and how it ends.

    run(app, port=8000)                          # until SIGTERM or SIGINT, then drained
    await serve(app, "127.0.0.1", 8000)          # the same in a loop that runs already
    async with listening(app, port=0) as site:   # in a test: site.url

Rules: the only file that imports uvicorn, with `http_connection` and `http_outbox`. Nothing is
served before the service has started; a signal to end refuses new work at once and lets what runs
finish until the deadline. Whoever cancels `serve` finds nothing of it left.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from email.utils import formatdate
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.protocol.http.security import (
    HostPolicy,
    gather,
    is_loopback_host,
    name_list,
    passes_probe,
)
from colonnade.protocol.negotiation import called
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.connection import DEFAULT_LIMITS, Connection, RunLimits
from colonnade.transport.http_server.lifespan import LifespanRunner
from colonnade.transport.http_server.listener import bind
from colonnade.transport.http_server.request import Receive, Scope, Send
from colonnade.transport.http_server.settings import tls_context
from colonnade.transport.http_server.write_buffer import Outbox
from colonnade.transport.signals import Signals, close

log: logging.Logger = logging.getLogger("colonnade.transport")

# How often connections are looked at.
STEP_S = 1.0
# After the drain, what is still written may leave for so long; less where nobody wants to wait.
FLUSH_S = 1.0
HURRIED_FLUSH_S = 0.2
# At the second wish to end: four times what the application gives to handlers that do not stop
# (`ENDING_S`, twice for the drain and twice for the end), and two seconds for the lifespan.
HURRY_S = 6.0

# When all is over: threads that handlers left behind may finish for so long.
THREADS_S = 1.0

# What the C library may keep of the memory that large messages leave, instead of giving it back to
# the system and asking for it again: page by page, that costs more than to write the message.
KEPT_BYTES: Final = 8 * 1024 * 1024

HEALTH: Final = "/health"
READY: Final = "/ready"


class Wishes:
    """How often the end was wished for: the first is to drain, the second does not wait."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = self._loop.create_future()
        self.second: asyncio.Future[None] = self._loop.create_future()

    def add(self) -> None:
        """One more."""
        for wish in (self.first, self.second):
            if not wish.done():
                wish.set_result(None)
                return

    def call(self) -> None:
        """One more, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is over, as was wished
            self._loop.call_soon_threadsafe(self.add)


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
        run_limits: RunLimits = DEFAULT_LIMITS,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        self.app = app
        self._tls = tls_context(ssl_certfile, ssl_keyfile)
        app.heeds_signals = False
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
        self._state = ServerState()
        self._outbox = Outbox()
        self._config = Config(
            self._serve,  # type: ignore[arg-type]
            lifespan="off",  # it is kept by a `Span`
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            interface="asgi3",
        )
        self.wishes: Wishes | None = None
        self._drains = False
        self._span = LifespanRunner(self._serve)
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self.port}{self.app.path}"

    # ------------------------------------------------------------ beginning

    async def start(self) -> None:
        """Bind, start the service, accept.

        Raises `AddressError` where the address cannot be had, `LocalProtocolError` where others
        can reach it and nobody said by which names (`hosts`), or where the application has names
        of its own and others are given here, and what the service raised.
        """
        bound = bind(self.host, self.port)
        loop = asyncio.get_running_loop()
        try:
            self.port = int(bound.getsockname()[1])
            self._name()
            if not self.app.is_guarded and not is_loopback_host(self.host):
                log.warning(
                    "everybody who reaches %s:%d may use this server, since nobody is asked who "
                    "they are: give it auth=, or let what stands before it ask",
                    self.host,
                    self.port,
                )
            self._config.load()
            await self._span.enter()
            self._server = await loop.create_server(
                self._connect, sock=bound, backlog=2048, ssl=self._tls
            )
        except BaseException:
            bound.close()
            await self._span.leave()
            raise
        self._step(loop)
        self.is_ready = True
        log.info("serving %s on %s (process %d)", self._named, self.url, os.getpid())

    def _name(self) -> None:
        """Say to the application by which names it is reached, unless it was told before."""
        app, named, pages = self.app, self._hosts, self._origins
        if app.has_policy and (named or pages):
            raise InvalidArgument(
                "the application has hosts or origins of its own, and those given with the address "
                "would not count; say them all in server.asgi(…)",
                argument="hosts",
            )
        if not app.has_names:
            app.use_policy(HostPolicy.for_bind(self.host, self.port, hosts=named, origins=pages))

    def _connect(self) -> Connection:
        return Connection(self._config, self._state, self._span.state, self.limits, self._outbox)

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

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope.get("path")
        if path in (HEALTH, READY) and scope["type"] == "http" and self._answers_probes(scope):
            if not passes_probe(gather(scope["headers"]), self.app.policy):
                return _say(send, 403, b"this Host or Origin is not admitted; add it to hosts")
            fine = path == HEALTH or (self.is_ready and not self.app.draining)
            words = b"ok" if fine else b"not ready"
            return _say(send, 200 if fine else 503, words, closing=self.app.draining)
        if self.app.draining and scope["type"] == "http" and self.app.has_around:
            # Another application's paths: what is ours is refused by our own.
            return _say(send, 503, b"this server is shutting down", closing=True)
        return self.app(scope, receive, send)

    @property
    def _named(self) -> str:
        return " ".join(called(self.app.service.identity.info).split())

    def _answers_probes(self, scope: Scope) -> bool:
        """Whether /health and /ready are ours: the program may have its own."""
        return not self.app.has_around and self.app.route_for(scope) is None

    # ------------------------------------------------------------ end

    def end(self) -> None:
        """Wish for the end, from any thread, as a signal does: again is at once."""
        if self.wishes is not None:
            self.wishes.call()

    async def stop(self, drain_s: float | None = None) -> None:
        """Refuse what is new, let what runs finish until the deadline, and leave the service.

        New connections are taken until then, and answered 503 with `Retry-After`: a balancer reads
        that of /ready, and a refused connection would look like a crash.
        Raises what the service raised when it was left.
        """
        if self._server is None:
            return
        began = asyncio.get_running_loop().time()
        self.is_ready = False
        delay_s = self.limits.shutdown_delay_s if drain_s is None and not self._drains else 0.0
        if delay_s:
            log.info("stopping %s in %g s; /ready says so", self._named, delay_s)
            await asyncio.sleep(delay_s)
        self.app.draining = True  # from here on no connection outlives its answer
        self._hang_up_idle()
        if not self._drains:  # a second wish does not wait for what the first one began
            self._drains = True
            log.info("stopping %s; %d requests are running", self._named, len(self.app.reaper))
            await self.app.drain(drain_s)
        self._close_listener()
        failure: Exception | None = None
        try:
            await self._span.leave()
        except Exception as error:
            failure = error
        await self._flush(FLUSH_S if drain_s != 0 else HURRIED_FLUSH_S)
        self.abort()
        took_s = asyncio.get_running_loop().time() - began
        log.info("stopped %s after %.1f s", self._named, took_s)
        if failure is not None:
            raise failure

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()

    def abort(self) -> None:
        """Leave nothing open, now."""
        self._close_listener()
        self._server = None
        self._span.abort()
        for connection in list(self._connections):
            connection.transport.abort()
        if self._timer is not None:
            self._timer.cancel()

    def _hang_up_idle(self) -> None:
        for connection in list(self._connections):
            connection.shutdown()

    async def _flush(self, timeout_s: float) -> None:
        """A last chance to read, then nothing is left open."""
        self._hang_up_idle()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def listening(app: HttpApp, **settings: Any) -> AsyncGenerator[Site]:
    """Serve for as long as this is entered; `port=0` takes any port, and `site.port` is it."""
    site = Site(app, **settings)
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


def announce(site: Site) -> None:
    """Say in one line what is served, and where."""
    info = site.app.service.identity.info
    line = " ".join(f"{called(info)} on {site.url}".split()) + "\n"
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody listens
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding))
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
    started: Callable[[Site], None] | None = None,
) -> bool:
    """Serve until SIGTERM, SIGINT or `site.end()`, drain, and return; a second one ends it at once.

    `started` is told once the port is bound and the service runs. Gives whether Ctrl-C ended it.
    Cancelled, it ends as at once as by a second signal.
    """
    site = Site(
        app,
        host,
        port,
        hosts=hosts,
        origins=origins,
        run_limits=run_limits,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
    )
    wishes = site.wishes = Wishes()
    loop = asyncio.get_running_loop()
    signals = Signals(wishes.add, alone=True)
    signals.listen()
    step = loop.create_task(site.start())
    try:
        if await _done(step, wishes.first):
            if started is not None:
                started(site)
            await wishes.first
            step = loop.create_task(site.stop())
            await _done(step, wishes.second)
    finally:
        try:
            await _hurry(site, step)
        finally:
            signals.stop()
    return signals.interrupted


async def _done(step: "asyncio.Task[None]", wish: "asyncio.Future[None]") -> bool:
    """Whether a step was done before the wish not to wait for it."""
    await asyncio.wait({step, wish}, return_when=asyncio.FIRST_COMPLETED)
    if step.done():
        step.result()
    return step.done()


async def _hurry(site: Site, step: "asyncio.Task[None]") -> None:
    """End whatever has not ended in its own time."""
    try:
        async with asyncio.timeout(HURRY_S):
            if not step.done():
                step.cancel()
                await asyncio.wait({step})
            await site.stop(0.0)
    except TimeoutError:
        log.warning("what is served did not end within %g s, and is left", HURRY_S)
    finally:
        site.abort()


def run(
    app: HttpApp,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    started: Callable[[Site], None] = announce,
    **settings: Any,
) -> bool:
    """`serve` in a loop of its own, the fastest there is. Gives whether Ctrl-C ended it.

    Once it is up one line on standard output says where, unless `started` does otherwise.
    """
    bytes(KEPT_BYTES)  # glibc learns from the first large block that it gets back; no page is used
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            interrupted = runner.run(serve(app, host, port, started=started, **settings))
        except KeyboardInterrupt:  # before anybody listened for it
            interrupted = True
        close(runner, interrupted=interrupted, wait_s=THREADS_S)
    return interrupted


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows and PyPy have none
        return None
    return uvloop.new_event_loop


async def _say(send: Send, status: int, body: bytes, *, closing: bool = False) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    if closing:
        headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
