"""Supervisor of one server: starts it when it is needed, watches, restarts, stops and drains it.

    supervisor = ServerSupervisor(entry)
    async with supervisor.acquire(turn) as call:
        result = await call.request("tools/call", params)

A server has sessions: one for all callers if each request is independent; otherwise one for each
caller, or a pool of them, or one shared session without input requests, as its settings say.

Rules: every wait ends. Nothing is started before a call needs it. Only a caller that crashes the
server again and again is refused for a while (`CrashCounts`). A call that is cancelled
while it waits for a start cancels the start only if no other call waits for it. One server knows
nothing of another.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Mapping,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from colonnade.client.client import Client
from colonnade.client.connect import (
    PING_S,
    ConnectContext,
    accepted_revisions,
    library_info,
    transport_for,
)
from colonnade.client.connection import may_repeat
from colonnade.client.request import OnProgress
from colonnade.errors import (
    NO_OUTPUT,
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    LocalProtocolError,
    Output,
    Refused,
    TimedOut,
)
from colonnade.host.config.settings import MAX_SESSIONS, ServerEntry
from colonnade.host.servers.callers import CallerKey, CallerKeys, SamplingRates, SessionIndex
from colonnade.host.servers.restarts import Crash, CrashCounts, SharedStart
from colonnade.host.servers.session import (
    HostedSession,
    Isolation,
    OnTask,
    SessionCall,
    SessionEvent,
    SessionState,
    State,
    Status,
    StderrBuffer,
    reads_list,
    remove_output,
)
from colonnade.host.servers.session_input import ReviewRoots, SendInputRequest, send_to_latest_call
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities, InputRequestKind
from colonnade.protocol.revision import Revision, Revisions
from colonnade.protocol.schema.error_messages import truncate
from colonnade.transport.process.sandbox import Sandbox

if TYPE_CHECKING:  # most servers need no authorization
    from colonnade.auth.client.login import Auth
    from colonnade.host.credentials import UpstreamCredentials
    from colonnade.host.servers.homes import HomeElsewhere, SessionHomes
    from colonnade.protocol.forwarded import ResultOrigin
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.host")

T = TypeVar("T")

# Called with the session that a request is about to be sent on; what is returned is awaited.
BeforeSend: TypeAlias = Callable[[SessionCall], Awaitable[None] | None]

# Lines of stderr in an error.
QUOTED_LINES = 5
# For calls in flight when a server is removed from the configuration: half of a call's time limit.
DRAIN_S = 30.0
# A child process ends within 5.5 s, and a handler that does not stop is left after as long.
CLOSE_S = 15.0
# For the ping of a process that did not answer a call in time.
PROBE_S = 5.0
# Lines of stderr in a status.
SHOWN_LINES = 20
# A timer may fire this much early, by rounding.
ROUNDING_S = 1e-3
# Sessions of a server with a URL, if its settings say nothing else.
MAX_CONNECTIONS = 1000
# The caller of a list that all callers share is the host itself, whichever call reads the list.
LISTS = "lists"

# Errors before the server was tried, or that are not its fault: these do not count as crashes.
NOT_A_CRASH = (AuthError, LocalProtocolError, Refused)


# ---------------------------------------------------------------- opening a session


class SessionOpener:
    """Opens the sessions of one server. `auth` gives the credentials for a URL if the entry has
    none, and `upstream` those of callers, if its settings say so."""

    def __init__(
        self,
        entry: ServerEntry,
        send_input_request: SendInputRequest,
        auth: "Callable[[str], Auth | None] | None" = None,
        ping_s: float | None = PING_S,
        info: t.Implementation | None = None,
        telemetry: "bool | Telemetry" = False,
        upstream: "UpstreamCredentials | None" = None,
        review_roots: ReviewRoots | None = None,
        may_reconnect: bool = True,
        contain: Callable[[Any], Any] | None = None,
        homes: "SessionHomes | None" = None,
    ) -> None:
        settings = entry.settings
        self.homes = homes
        # Whether requests are independent of each other, once it is known.
        self._is_stateless = False
        self._review_roots = review_roots
        self._may_reconnect = may_reconnect
        self._contain = contain
        self._roots = () if settings.sharing == "shared" else settings.roots
        self._rates = SamplingRates()
        self._entry = entry
        self._send_input_request = send_input_request
        self._auth = auth
        self._ping_s = ping_s
        self._info = info
        self._telemetry: bool | Telemetry = telemetry
        self._upstream = upstream

    async def open(self, session: HostedSession, caller: CallerKey) -> None:
        """Open a session for a caller. Raises one of `NOT_A_CRASH`, or `CannotConnect` with the
        server's output."""
        seconds = self._entry.settings.start_s
        try:
            async with asyncio.timeout(seconds):
                target = await self._target()
                found = await self._find_home(session, target, caller)
                client = self._create_client(session, target, caller, found)
                await client.open()
        except TimeoutError:
            late = TimedOut(f"it did not start within {seconds:g} s")
            raise self._failed(session, late) from None
        except NOT_A_CRASH as error:
            error.with_server(self._entry.key)
            raise
        except ColonnadeError as error:
            raise self._failed(session, error) from error
        if session.is_lost:
            raise self._failed(session, session.lost_error)
        self._is_stateless = not session.client.peer.revision.handshake
        if session.home is not None and self._is_stateless:
            await session.home.release(is_stateless=True)
            session.home = None

    async def _find_home(
        self, session: HostedSession, target: object, caller: CallerKey
    ) -> "HomeElsewhere | None":
        """Where the session is, if another replica has it; else this one is its home, or it needs
        none: a server with a URL has a session of each replica, and a connection that is not known
        by an id reaches this replica only."""
        if (
            self.homes is None
            or self._is_stateless
            or self._entry.settings.sharing != "caller"
            or url_of(target)
            or not isinstance(caller.session, str | None)
        ):
            return None
        from colonnade.host.servers.homes import HomeElsewhere

        found = await self.homes.find(self._entry.key, caller)
        if isinstance(found, HomeElsewhere):
            session.is_elsewhere = True
            return found
        session.home = found
        return None

    async def _target(self) -> object:
        try:
            return await self._entry.resolve()
        except ColonnadeError:
            raise
        except Exception as error:
            message = f"a reference in its configuration cannot be resolved: {error}"
            raise LocalProtocolError(message) from error

    def _credentials(self, target: object, caller: str) -> "Auth | None":
        """The credentials for a target. Raises `LoginRequired` if the caller can have none."""
        url, settings = url_of(target), self._entry.settings
        if not settings.is_per_caller:
            return self._auth(url) if url and self._auth and not has_authorization(target) else None
        if self._upstream is None:
            message = f"credentials = {settings.credentials!r} needs Host(upstream=…)"
            raise LocalProtocolError(message)
        if not url or has_authorization(target):
            message = "with credentials of callers, it has a url and no Authorization header"
            raise LocalProtocolError(message)
        return self._upstream.auth_for(self._entry.key, settings.credentials, caller)

    def _create_client(
        self,
        session: HostedSession,
        target: object,
        caller: CallerKey,
        elsewhere: "HomeElsewhere | None" = None,
    ) -> Client:
        settings = self._entry.settings
        surroundings = ConnectContext(
            name=self._entry.key,
            auth=self._credentials(target, caller.principal),
            on_stderr=session.stderr_received if is_command(target) else None,
            sandbox=sandbox_for(self._entry, target),
        )
        transport, accepts = None, accepted_revisions(settings.revision)
        if elsewhere is not None:
            transport, accepts = elsewhere.transport, Revisions([elsewhere.revision])
        return session.create_client(
            transport or transport_for(target, surroundings),
            input=caller.input,
            send_input_request=self._send_input_request,
            roots=self._roots,
            rates=self._rates,
            review_roots=self._review_roots,
            may_reconnect=self._may_reconnect,
            contain=self._contain,
            info=self._info or library_info(),
            accepts=accepts,
            timeout_s=settings.timeout_s,
            open_s=settings.start_s,
            ping_s=self._ping_s,
            max_list_bytes=settings.max_list_bytes,
            max_list_items=settings.max_list_items,
            telemetry=self._telemetry,
        )

    def _failed(self, session: HostedSession, error: ColonnadeError) -> CannotConnect:
        output = error.output if isinstance(error, ChannelError) else NO_OUTPUT
        output = output or Output(stderr=session.last_lines(QUOTED_LINES))
        failed = CannotConnect(error.sentence, server=error.server, output=output)
        return failed.with_server(self._entry.key)


def is_command(target: object) -> bool:
    """Whether a target is a command, so that it has a stderr."""
    if isinstance(target, Mapping):
        return "command" in target
    if isinstance(target, str | os.PathLike):
        return not url_of(cast("str | os.PathLike[str]", target))
    return isinstance(target, list | tuple)


def sandbox_for(entry: ServerEntry, target: object) -> Sandbox | None:
    """The sandbox of a resolved target: a default may say one for a server with a URL, too."""
    return (entry.settings.sandbox or None) if is_command(target) else None


def url_of(target: object) -> str:
    """The URL of a target; empty if it has none."""
    found: object = target
    if isinstance(target, Mapping):
        found = cast("Mapping[str, object]", target).get("url")
    is_url = isinstance(found, str) and found.lower().startswith(("http://", "https://"))
    return found if is_url and isinstance(found, str) else ""


def has_authorization(target: object) -> bool:
    """Whether a target has an Authorization header of its own."""
    if not isinstance(target, Mapping):
        return False
    headers = cast("Mapping[str, object]", target).get("headers")
    if not isinstance(headers, Mapping):
        return False
    return any(name.lower() == "authorization" for name in cast("Mapping[str, object]", headers))


# ---------------------------------------------------------------- supervisor


class ChangeCondition:
    """A condition variable without a lock, whose `wait` has a deadline."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def notify_all(self) -> None:
        """Wake all waiters, in the order in which they began to wait."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, deadline: float) -> bool:
        """Wait until notified; False at this time of the event loop."""
        notified: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(notified)
        try:
            async with asyncio.timeout_at(deadline):
                await notified
        except TimeoutError:
            return False
        finally:
            if notified in self._waiters:
                self._waiters.remove(notified)
        return True


class ServerSupervisor:
    """One server of a host, in one generation of its configuration.

    - `input_kinds` are the input requests that the host lets through, and `send_input_request`
      sends one to the caller of the calls that it may belong to. The settings may allow fewer, and
      only those that a caller declared are declared to the server for its calls. `review_roots` is
      called before `roots/list` is answered.
    - `may_reconnect` is whether a session may be opened again below a call, as HTTP allows; without
      it such a call gets another session. `contain` changes the data of log messages.
    - `auth` gives the credentials for a URL if the entry has none, `upstream` those of callers.
    - `info` is the client info that the server is sent.
    - `telemetry` records the requests to the server.
    - `homes` say which of several replicas has the session of a caller; None without replicas.
    - `on_open` is called with every session that was opened: the server's lists may have changed.
    - `on_change` is called when the state may have changed.
    - `clock` and `random_fraction` (a random number below 1) decide when it is started again.
    """

    def __init__(
        self,
        entry: ServerEntry,
        *,
        input_kinds: Collection[InputRequestKind] = (),
        send_input_request: SendInputRequest = send_to_latest_call,
        review_roots: ReviewRoots | None = None,
        may_reconnect: bool = True,
        contain: Callable[[Any], Any] | None = None,
        auth: "Callable[[str], Auth | None] | None" = None,
        info: t.Implementation | None = None,
        telemetry: "bool | Telemetry" = False,
        upstream: "UpstreamCredentials | None" = None,
        homes: "SessionHomes | None" = None,
        on_open: Callable[["ServerSupervisor", HostedSession], None] | None = None,
        on_change: Callable[["ServerSupervisor"], None] | None = None,
        ping_s: float | None = PING_S,
        clock: Callable[[], float] = time.monotonic,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        settings = entry.settings
        self.entry: ServerEntry = entry
        self._settings = settings
        self._opener = SessionOpener(
            entry,
            send_input_request,
            auth,
            ping_s,
            info,
            telemetry,
            upstream,
            review_roots,
            may_reconnect,
            contain,
            homes,
        )
        self._callers = CallerKeys(frozenset(input_kinds), settings)
        self._on_open = on_open
        self._on_change = on_change
        self._clock = clock
        self._random_fraction = random_fraction
        # A failure with the credentials of one caller does not stop other callers.
        self._crashes = CrashCounts(
            settings.max_crashes, settings.crashes_s, for_all=not settings.is_per_caller
        )
        self._stderr = StderrBuffer()
        self._sessions: SessionIndex[HostedSession] = SessionIndex()
        # By the caller that waits; None for all callers, until it is known that each needs its own.
        self._starts: dict[CallerKey | None, SharedStart[HostedSession]] = {}
        # Tasks that open, close, and ping or notify sessions.
        self._opening: set[asyncio.Task[HostedSession]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._probing: set[asyncio.Task[None]] = set()
        self._changes = ChangeCondition()
        # The number of calls that wait for a session, and of those of each caller that wait for
        # room for one.
        self._waiting = 0
        self._room_waiters: dict[CallerKey, int] = {}
        self._handshake: bool | None = None
        self._is_url = False
        self._revision: Revision | None = None
        self._last_error: str | None = None
        self._draining = False
        self._closed: str | None = None
        self._state: State = "idle"
        self._since = time.time()

    def __repr__(self) -> str:
        return f"ServerSupervisor({self.key!r}, {self.state})"

    @property
    def key(self) -> str:
        """The key of the server in the configuration."""
        return self.entry.key

    @property
    def draining(self) -> bool:
        """Whether it takes no new calls: the next generation does."""
        return self._draining or self._closed is not None

    def input_target(self, request: RequestContext) -> tuple[Revision | None, InputCapabilities]:
        """The revision of the server, None before it is known, and the input requests that it may
        send to the caller of a request."""
        return self._revision, self._callers.asked_of(request)

    @property
    def sessions(self) -> tuple[HostedSession, ...]:
        """The open sessions."""
        return tuple(self._sessions)

    # ------------------------------------------------------------ calls

    @asynccontextmanager
    async def acquire(self, request: RequestContext) -> AsyncGenerator[SessionCall]:
        """A session for one call, opened if there is none. Raises `CannotConnect` at once while the
        server may not be started, and the error of a start that failed."""
        call = await self._acquire(request)
        error: BaseException | None = None
        try:
            yield call
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._release(call, error)
            error = None  # it refers to this frame
            await call.end()

    async def request(
        self,
        context: RequestContext,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        wants_task: bool = False,
        on_task: OnTask | None = None,
        before_send: BeforeSend | None = None,
        origin: "ResultOrigin | None" = None,
    ) -> t.ProtocolType:
        """Send a request for a call and return the result, as `SessionCall.request`. Sent once more
        to a new session if the connection was lost and repeating the request is safe.
        `before_send` is called with each session that it is about to be sent on, and may raise."""

        is_again = False
        while True:
            call: SessionCall | None = None
            error: BaseException | None = None
            try:
                call = self._acquire_open(context) or await self._acquire(context)
                if before_send is not None and (pending := before_send(call)) is not None:
                    await pending
                return await call.request(
                    method,
                    params,
                    timeout_s=timeout_s,
                    on_progress=on_progress,
                    wants_task=wants_task,
                    on_task=on_task,
                    origin=origin,
                )
            except ConnectionLost as lost:
                error = lost
                if is_again or self.draining or not may_repeat(method, lost):
                    raise
            except BaseException as caught:
                error = caught
                raise
            finally:
                if call is not None:
                    self._release(call, error)
                    error = None  # it refers to this frame
                    if call.has_callbacks:
                        await call.end()
            is_again = True

    async def run_read_only(
        self, request: RequestContext, work: Callable[[SessionCall], Awaitable[T]]
    ) -> T:
        """Do some work that changes nothing, such as reading a list; done once more if the
        connection was lost. Its errors may be shown to every caller."""
        try:
            try:
                return await self._run(request, work)
            except ConnectionLost as error:
                if self.draining or error.status is not None:
                    raise
            return await self._run(request, work)
        except ChannelError as error:
            # The output in this `CannotConnect` is for every caller, since a shared list is read.
            if not isinstance(error, CannotConnect):
                remove_output(error)
            raise

    async def _run(self, request: RequestContext, work: Callable[[SessionCall], Awaitable[T]]) -> T:
        """Do some work with a session, as `acquire` gives one."""
        async with self.acquire(request) as call:
            return await work(call)

    def _acquire_open(self, request: RequestContext) -> SessionCall | None:
        """What `_acquire` returns, for most calls: the caller has a session."""
        if self.draining:
            return None
        caller, lists = self._callers.key_of(request), reads_list(request)
        common = None if self._crashes.by_caller else self._sessions.common()
        session = common or self._available(caller, lists)
        if session is None or session.home is not None:
            return None
        if not session.is_shared:
            session.caller = caller.principal
        return session.add_call(request, caller, lists=lists)

    async def _acquire(self, request: RequestContext) -> SessionCall:
        if self.draining:
            why = "its configuration has changed; try again" if self._draining else self._closed
            raise CannotConnect(why).with_server(self.key)
        caller = self._callers.key_of(request)
        lists = reads_list(request)
        session = self._available(caller, lists)
        if session is None:
            self._waiting += 1
            try:
                session = await self._wait_for_session(caller, lists)
            finally:
                self._waiting -= 1
                self._changes.notify_all()
        if not session.is_shared:
            session.caller = caller.principal
        call = session.add_call(request, caller, lists=lists)
        if session.home is not None:
            await self._check_home(call, lists=lists)
        return call

    async def _check_home(self, call: SessionCall, *, lists: bool) -> None:
        """Make sure that this replica may use its session of the caller."""
        session = call.session
        try:
            assert session.home is not None
            await session.home.check(lists=lists)
            if not session.accepts_calls:
                raise self.home_lost()
        except BaseException as error:
            session.remove_call(call, session.loop.time())
            self._changes.notify_all()
            if isinstance(error, ChannelError):
                error.with_server(self.key)
            raise

    def home_lost(self, session: HostedSession | None = None) -> ConnectionLost:
        """The error for a request to a session that is elsewhere now; the session is closed."""
        from colonnade.host.servers.homes import HomeLost

        if session is not None and session in self._sessions:
            self._close_session(session, "another replica has taken it over")
        lost = HomeLost("its session is at another replica now")
        lost.not_sent = True
        return lost.with_server(self.key)

    @asynccontextmanager
    async def carry(
        self, session: HostedSession, request: RequestContext
    ) -> AsyncGenerator[SessionCall]:
        """A call on this very session, for a request that another replica has sent here. Raises
        `HomeLost` and `StateLost`."""
        lists, key = reads_list(request), session.key
        if not session.accepts_calls or key is None or self.draining:
            raise self.home_lost()
        call = session.add_call(request, key, lists=lists)
        await self._check_home(call, lists=lists)
        error: BaseException | None = None
        try:
            yield call
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._release(call, error)
            error = None  # it refers to this frame
            await call.end()

    def _release(self, call: SessionCall, error: BaseException | None) -> None:
        session = call.session
        session.remove_call(call, session.loop.time())
        if error is not None:
            self._record_error(session, error)
        if not session.calls and session in self._sessions:
            pooled = self._settings.sharing == "pooled" and not session.is_shared
            if session.state is SessionState.RETIRED or (pooled and session.is_unsettled):
                self._close_session(session, "it is not needed any more")
            elif (
                isinstance(error, TimedOut)
                and session.child is not None
                and session.state is SessionState.UNSETTLED
            ):
                session.on(SessionEvent.PROBE_STARTED)
                self._track(self._probe(session), self._probing)
        self._changes.notify_all()

    def _record_error(self, session: HostedSession, error: BaseException) -> None:
        if isinstance(error, ChannelError) and session.served_several:
            remove_output(error)
        if isinstance(error, ChannelError | asyncio.CancelledError):
            session.on(SessionEvent.RESPONSE_MISSING)
        if isinstance(error, ChannelError | AuthError):
            self._last_error = str(error)
        if isinstance(error, ConnectionLost) and session.is_pinned:
            session.on(SessionEvent.RETIRE)  # what it is retried on is another server, perhaps
        if isinstance(error, AuthError):  # the next session resolves its credentials again
            session.on(SessionEvent.RETIRE)
        if self._opener.homes is not None:
            from colonnade.host.servers.homes import HomeLost

            if isinstance(error, HomeLost):  # the next one is opened where the home is then
                session.on(SessionEvent.RETIRE)

    # ------------------------------------------------------------ sessions

    def _available(self, caller: CallerKey, lists: bool) -> HostedSession | None:
        """An open session that this caller may use. `lists` is whether the request reads a list.
        Raises `CannotConnect` if this caller has crashed shared sessions too often."""
        sessions = self._sessions
        common = sessions.common()
        if self._crashes.by_caller and (common or self._settings.sharing == "pooled"):
            counted, shown_to = self._counted(caller, lists)
            refusal = self._crashes.own_refusal(self._clock(), counted, shown_to)
            if refusal is not None:
                raise refusal.with_server(self.key)
        if common is not None:
            return common
        own = self._session_key(caller)
        session = sessions.of(own)
        if self._settings.sharing == "pooled":
            if session is None or not session.calls:
                session = sessions.idle(None if lists else own.input)
        elif session is None:
            if lists:
                session = sessions.for_list(own.principal)
            elif self._opener.homes is None:  # the home of a session is that of one caller
                session = sessions.unclaimed(own)
        if session is not None and not lists:
            sessions.give(session, own)
        return session

    def use_homes(self, homes: "SessionHomes | None") -> None:
        """Use the homes of several replicas from now on; None for none."""
        self._opener.homes = homes

    async def _wait_for_session(self, caller: CallerKey, lists: bool) -> HostedSession:
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_s
        while True:
            if self._closed is not None:
                raise ConnectionLost(self._closed).with_server(self.key)
            session = self._available(caller, lists)
            if session is not None:
                return session
            start = self._starts.get(self._start_key(caller))
            if start is None or start.is_cancelled:
                counted, shown_to = self._counted(caller, lists)
                refusal = self._crashes.refusal(self._clock(), counted, shown_to)
                if refusal is not None:
                    raise refusal.with_server(self.key)
                if pause_s := self._crashes.pause_s(self._clock()):
                    await self._wait_for_pause(pause_s, deadline)
                    continue
                if not self._has_room(caller):
                    await self._wait_for_room(caller, deadline)
                    continue
                start = self._start(caller, counted)
            await start.wait()
            self._check_start(start)

    def _counted(self, caller: CallerKey, lists: bool) -> tuple[Hashable, CallerKey | None]:
        """The caller that crashes of a request are counted for, and the caller that may see the
        server's output (None: every caller). Sessions of one client count as one caller, whichever
        input requests they declare."""
        counted = CallerKey(caller.principal, caller.session)
        if not lists:
            return counted, counted
        settings = self._settings
        is_own = settings.is_per_caller or (
            settings.sharing == "caller" and self._handshake is not False
        )
        return (counted if is_own else LISTS), None

    async def _wait_for_pause(self, seconds: float, deadline: float) -> None:
        now = asyncio.get_running_loop().time()
        if now >= deadline:
            message = "it has crashed several times, and was not started again in time"
            raise CannotConnect(message).with_server(self.key)
        await self._changes.wait(min(now + seconds, deadline))

    def _start_key(self, caller: CallerKey) -> CallerKey | None:
        """Which start a caller waits for: one for all (None), unless each needs its own session."""
        needs_own = self._handshake is True and self._settings.sharing != "shared"
        return self._session_key(caller) if needs_own or self._settings.is_per_caller else None

    def _session_key(self, caller: CallerKey) -> CallerKey:
        """The key of the sessions of a caller: of all its clients, if each request declares its
        capabilities."""
        return caller if self._handshake is True else CallerKey(caller.principal)

    def _check_start(self, start: SharedStart[HostedSession]) -> None:
        if start.task.cancelled():
            raise ConnectionLost(self._closed or "the start was cancelled").with_server(self.key)
        error = start.task.exception()
        if isinstance(error, CannotConnect):
            raise error.copy() from error  # a copy for each waiter
        if error is not None:
            raise error

    def _has_room(self, caller: CallerKey) -> bool:
        """Whether one more session may be opened; the one that is idle longest is closed for it, at
        the same time as those for other callers that wait."""
        taken = len(self._sessions) + len(self._opening) + len(self._closing)
        if taken < self._max_sessions:
            return True
        idle = [session for session in self._sessions if session.is_idle]
        waiting = len(self._room_waiters.keys() | {caller})
        if idle and len(self._closing) < waiting:
            oldest = min(idle, key=lambda session: session.idle_since)
            self._close_session(oldest, "another caller needs a session")
        return False

    @property
    def _max_sessions(self) -> int:
        """The most sessions at once; a connection takes far less than a process."""
        given = self._settings.max_sessions
        return MAX_CONNECTIONS if given == MAX_SESSIONS and self._is_url else max(1, given)

    async def _wait_for_room(self, caller: CallerKey, deadline: float) -> None:
        waiters = self._room_waiters
        waiters[caller] = waiters.get(caller, 0) + 1
        try:
            has_changed = await self._changes.wait(deadline)
        finally:
            waiters[caller] -= 1
            if not waiters[caller]:
                del waiters[caller]
        if not has_changed:
            message = f"all {self._max_sessions} sessions are in use by other calls"
            hint = "try again later, or raise its max_sessions"
            raise CannotConnect(message, hint=hint).with_server(self.key)

    # ------------------------------------------------------------ starting

    def _start(self, caller: CallerKey, counted: Hashable) -> SharedStart[HostedSession]:
        key = self._start_key(caller)
        session = HostedSession(self._connection_lost, self._stderr)
        session.opened_for = counted
        start = session.start = self._starts[key] = SharedStart(self._open(session, caller))

        def done(task: "asyncio.Task[HostedSession]") -> None:
            self._opening.discard(task)
            if self._starts.get(key) is start:
                del self._starts[key]
            if not task.cancelled():
                task.exception()  # its waiters may have been cancelled
            self._state_changed()

        start.task.add_done_callback(done)
        self._opening.add(start.task)
        self._state_changed()
        return start

    async def _open(self, session: HostedSession, caller: CallerKey) -> HostedSession:
        try:
            await self._opener.open(session, caller)
            if self._closed is not None:
                raise ConnectionLost(self._closed).with_server(self.key)
        except BaseException as error:
            if isinstance(error, NOT_A_CRASH):
                self._last_error = str(error)
            elif isinstance(error, CannotConnect):
                crash = Crash(self._clock(), error.sentence, error.output)
                self._last_error = f"{crash.message}{crash.output}"
                if self._crashes.start_failed(crash, session.opened_for, self._random_fraction()):
                    self._log_given_up(session.opened_for)
            self._close_session(session, "it did not start")
            raise
        self._opened(session, caller)
        return session

    def _opened(self, session: HostedSession, caller: CallerKey) -> None:
        revision = session.client.peer.revision
        self._crashes.started()
        session.on(SessionEvent.OPENED)
        if self._settings.sharing == "shared":
            session.isolation = Isolation.SHARED
        elif not revision.handshake and not self._settings.is_per_caller:
            session.isolation = Isolation.STATELESS
        self._handshake = revision.handshake
        self._is_url = session.has_url
        session.key = None if session.is_shared else self._session_key(caller)
        session.caller = None if session.is_shared else caller.principal
        session.opened_at = self._clock()
        session.idle_since = session.loop.time()
        self._revision = revision
        self._last_error = None
        self._sessions.add(session)
        if session.home is not None:
            from colonnade.host.servers.homes import OpenedSession

            carry, close = partial(self.carry, session), partial(self.home_lost, session)
            session.home.opened(OpenedSession(session, carry, close))
        if self._settings.idle_s is not None and session.can_stop:
            self._schedule_idle_check(session, self._settings.idle_s)
        if self._on_open is not None:
            self._on_open(self, session)

    def roots_changed(self, session: object) -> None:
        """Notify the server in the sessions that belong to this session of a client."""
        for one in self._sessions:
            if one.key is not None and one.key.session == session and one.roots_changed():
                self._track(one.send_roots_changed(), self._probing)

    # ------------------------------------------------------------ crashes and idle sessions

    def _connection_lost(self, session: HostedSession) -> None:
        """A connection has ended that was not closed here."""
        if session not in self._sessions or not session.is_lost:
            return
        now = self._clock()
        lost = session.lost_error.with_server(self.key)
        log.warning("%s", lost)
        # With several callers, the output may be about any of them.
        output = NO_OUTPUT if session.served_several else lost.output
        crash = Crash(now, lost.sentence, output, session.only_caller)
        self._record_crash(crash, session)
        self._close_session(session, "it has ended")

    async def _probe(self, session: HostedSession) -> None:
        """Ping a process that did not answer a call in time. If it does not answer that either and
        has no call, close it, so that no later call waits for it."""
        try:
            async with asyncio.timeout(PROBE_S):
                await session.client.ping()
        except (ChannelError, TimeoutError):
            if session in self._sessions and not session.calls:
                what = f"server {self.key!r} answered neither a call nor a ping"
                log.warning("%s; it is stopped", what)
                self._record_crash(Crash(self._clock(), what), session)
                self._close_session(session, "it answered neither a call nor a ping")
        except ColonnadeError as error:  # an error response: it is alive
            log.debug("server %r: %s", self.key, error)
        finally:
            session.on(SessionEvent.PROBE_ENDED)

    def _record_crash(self, crash: Crash, session: HostedSession) -> None:
        self._last_error = f"{crash.message}{crash.output}"
        lived_s, suspects = crash.at - session.opened_at, session.suspects
        given_up = self._crashes.crashed(crash, lived_s, suspects, self._random_fraction())
        if given_up is not None:
            self._log_given_up(given_up)

    def _log_given_up(self, caller: Hashable) -> None:
        who = repr(truncate(caller.principal)) if isinstance(caller, CallerKey) else caller
        seconds = self._settings.crashes_s
        log.warning("server %r failed too often: refused to %s for %g s", self.key, who, seconds)

    def _schedule_idle_check(self, session: HostedSession, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        session.timer = loop.call_later(seconds, self._check_idle, session)

    def _check_idle(self, session: HostedSession) -> None:
        """Close a session that was idle for `idle_s`. One timer for each session, which is set
        again if the session was used."""
        idle_s = self._settings.idle_s
        if session not in self._sessions or idle_s is None:
            return
        left_s = session.idle_since + idle_s - asyncio.get_running_loop().time()
        if not session.is_idle:
            self._schedule_idle_check(session, idle_s)
        elif left_s > ROUNDING_S:
            self._schedule_idle_check(session, left_s)
        else:
            self._close_session(session, "it was idle for a while")

    def _close_session(self, session: HostedSession, why: str) -> None:
        """Close a session, in a task of its own."""
        session.on(SessionEvent.CLOSE)
        if session in self._sessions:
            self._sessions.remove(session)
        if session.timer is not None:
            session.timer.cancel()
        if session.home is not None:
            self._track(self._leave_home(session, why), self._closing)
        elif session.has_client:
            self._track(session.client.close(why), self._closing)
        self._state_changed()

    async def _leave_home(self, session: HostedSession, why: str) -> None:
        """Close a session, then let another replica open one for its caller."""
        assert session.home is not None
        try:
            if session.has_client:
                await session.client.close(why)
        finally:
            await session.home.release()

    def _track(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        def done(task: "asyncio.Task[None]") -> None:
            tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("server %r: a background task failed", self.key, exc_info=error)
            self._state_changed()

        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(done)

    # ------------------------------------------------------------ restart, drain, close

    def restart(self) -> None:
        """Start it again for the next call, whatever happened before; calls in flight finish."""
        self._crashes.reset()
        for session in self.sessions:
            session.on(SessionEvent.RETIRE)
            if not session.calls:
                self._close_session(session, "it is restarted")
        self._state_changed()

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Take no new calls, wait for those in flight, and close. Calls that take longer fail."""
        self._draining = True
        self._state_changed()
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._waiting or any(session.calls for session in self._sessions):
            if not await self._changes.wait(deadline):
                break
        await self.close("its configuration has changed, and this was not done in time")

    async def close(self, why: str = "the host was closed") -> None:
        """Close all sessions at once, within `CLOSE_S`. Calls in flight fail. May be called at any
        time, and twice."""
        self._closed = self._closed or why
        self._changes.notify_all()
        for task in self._opening:
            task.cancel()
        for session in self.sessions:
            self._close_session(session, self._closed)
        deadline = asyncio.get_running_loop().time() + CLOSE_S
        # A start that is cancelled has something to close as well.
        while left := [*self._opening, *self._closing, *self._probing]:
            seconds = deadline - asyncio.get_running_loop().time()
            if seconds <= 0:
                log.warning("server %r did not stop in time and is abandoned", self.key)
                break
            await asyncio.wait(left, timeout=seconds)
            await asyncio.sleep(0)  # for their done callbacks
        self._state_changed()

    # ------------------------------------------------------------ status

    @property
    def state(self) -> State:
        """Its state."""
        if self._closed is not None:
            return "stopped"
        if self._sessions:
            return "ready"
        if self._starts:
            return "starting"
        health = self._crashes.health(self._clock())
        return "idle" if health == "healthy" else health

    @property
    def status(self) -> Status:
        """Its status, for the operator."""
        self._update_state()
        pids = [session.child.pid for session in self._sessions if session.child is not None]
        return Status(
            key=self.key,
            state=self._state,
            since=self._since,
            revision=self._revision.date if self._revision is not None else None,
            pid=pids[0] if pids else None,
            sessions=len(self._sessions),
            in_flight=sum(len(session.calls) for session in self._sessions),
            crashes=self._crashes.total,
            callers_given_up=self._crashes.given_up(self._clock()),
            last_error=self._last_error,
            stderr=self._stderr.last(SHOWN_LINES),
        )

    def _state_changed(self) -> None:
        self._changes.notify_all()
        self._update_state()
        if self._on_change is not None:
            self._on_change(self)

    def _update_state(self) -> None:
        state = self.state
        if state != self._state:
            self._state, self._since = state, time.time()
