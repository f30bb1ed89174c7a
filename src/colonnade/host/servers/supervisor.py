"""Keeps one server of a host: started when it is needed, watched, started again, stopped, drained.

    supervised = Supervised(entry)
    async with supervised.use(turn) as sitting:
        result = await sitting.ask("tools/call", params)

A server has seats: one for everybody where each request stands for itself; else one for each
caller, or a few that are handed on, or one for all who are then asked nothing, as its settings say.

Rules: every wait ends. Nothing is started before somebody needs it, and what fails again and again
is left alone for a while (`crashes`). Whoever gives up waiting for a start stops it only for
nobody else. One server knows nothing of another.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from colonnade.client.client import Client
from colonnade.client.connect import PING_S, Surroundings, accepted, own_name, way_to
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
from colonnade.host.config.settings import Entry
from colonnade.host.servers.restarts import Bell, Crash, Crashes, Start
from colonnade.host.servers.session import Asking, Seat, Sitting, by_wire, hush
from colonnade.host.servers.status import State, Status, Stderr
from colonnade.ports import Turn
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequestKind

if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.client.login import Auth

# Of standard error, in an error.
QUOTED_LINES = 5

# What went wrong before the server was tried, or by nobody's fault: it has not crashed.
NO_CRASH = (AuthError, LocalProtocolError, Refused)


class Opener:
    """How the seats of one server are opened. `auth` says who we are at an address, where the
    entry does not."""

    def __init__(
        self,
        entry: Entry,
        asks: Collection[InputRequestKind],
        asking: Asking,
        auth: "Callable[[str], Auth | None] | None" = None,
        ping_s: float | None = PING_S,
        info: t.Implementation | None = None,
    ) -> None:
        settings = entry.settings
        shared = settings.sharing == "shared"
        allowed = {
            InputRequestKind.ELICIT: settings.elicitation,
            InputRequestKind.SAMPLE: settings.sampling,
        }
        self.asks: frozenset[InputRequestKind] = frozenset(
            kind for kind in asks if allowed.get(kind) and not shared
        )
        self._roots = () if shared else settings.roots
        self._entry = entry
        self._asking = asking
        self._auth = auth
        self._ping_s = ping_s
        self._info = info

    async def open(self, seat: Seat) -> None:
        """Open a seat. Raises one of `NO_CRASH`, or `CannotConnect` with what the server wrote."""
        seconds = self._entry.settings.start_s
        try:
            async with asyncio.timeout(seconds):
                client = self._furnished(seat, await self._target())
                await client.open()
        except TimeoutError:
            late = TimedOut(f"it did not start within {seconds:g} s")
            raise self._failed(seat, late) from None
        except NO_CRASH as error:
            error.with_server(self._entry.key)
            raise
        except ColonnadeError as error:
            raise self._failed(seat, error) from error
        if seat.over:
            raise self._failed(seat, seat.why)

    async def _target(self) -> object:
        try:
            return await self._entry.resolve()
        except ColonnadeError:
            raise
        except Exception as error:
            words = f"what its configuration refers to is not there: {error}"
            raise LocalProtocolError(words) from error

    def _furnished(self, seat: Seat, target: object) -> Client:
        settings = self._entry.settings
        url = address_of(target)
        around = Surroundings(
            name=self._entry.key,
            auth=self._auth(url) if url and self._auth and not names_us(target) else None,
            on_stderr=seat.hear if is_command(target) else None,
        )
        return seat.furnish(
            way_to(target, around),
            asks=self.asks,
            asking=self._asking,
            roots=self._roots,
            info=self._info or own_name(),
            accepts=accepted(settings.revision),
            timeout_s=settings.timeout_s,
            open_s=settings.start_s,
            ping_s=self._ping_s,
            max_list_bytes=settings.max_list_bytes,
            max_list_items=settings.max_list_items,
        )

    def _failed(self, seat: Seat, error: ColonnadeError) -> CannotConnect:
        output = error.output if isinstance(error, ChannelError) else NO_OUTPUT
        output = output or Output(stderr=seat.last_lines(QUOTED_LINES))
        failed = CannotConnect(error.sentence, server=error.server, output=output)
        return failed.with_server(self._entry.key)


# ---------------------------------------------------------------- targets


def is_command(target: object) -> bool:
    """Whether a target is started here, so that it has a standard error."""
    if isinstance(target, Mapping):
        return "command" in target
    if isinstance(target, str | os.PathLike):
        return not address_of(cast("str | os.PathLike[str]", target))
    return isinstance(target, list | tuple)


def address_of(target: object) -> str:
    """The URL of a target that has one."""
    found: object = target
    if isinstance(target, Mapping):
        found = cast("Mapping[str, object]", target).get("url")
    is_url = isinstance(found, str) and found.lower().startswith(("http://", "https://"))
    return found if is_url and isinstance(found, str) else ""


def names_us(target: object) -> bool:
    """Whether an entry says itself who we are."""
    if not isinstance(target, Mapping):
        return False
    headers = cast("Mapping[str, object]", target).get("headers")
    if not isinstance(headers, Mapping):
        return False
    return any(name.lower() == "authorization" for name in cast("Mapping[str, object]", headers))


if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.client.login import Auth

log: logging.Logger = logging.getLogger("colonnade.host")

T = TypeVar("T")

# For calls in flight when a server is taken out of a configuration: half of what one may take.
DRAIN_S = 30.0
# A child is gone after five seconds and a half, a handler that does not stop is left after as many.
CLOSE_S = 15.0
# For a sign of a process that did not answer a call in time.
PROBE_S = 5.0
# Of standard error, for people.
SHOWN_LINES = 20
# A timer may ring that much early, by the last digit of the time alone.
ROUNDING_S = 1e-3


class Supervised:
    """One server of a host, in one generation of its configuration.

    `asks` is what the host can answer when the server asks, and `asking` puts a question to
    whoever made the calls that it may be about; the settings may allow less, and nothing else is
    offered to the server. `auth` says who we are at an address, where the entry does not, and
    `info` what the server is told of this program.
    `on_open` is told of every seat that was opened: what the server offers may be another now.
    `on_change` is told when the state may have changed. `clock` and `dice` (a random number below
    1) decide when it is started again.
    """

    def __init__(
        self,
        entry: Entry,
        *,
        asks: Collection[InputRequestKind] = (),
        asking: Asking = by_wire,
        auth: "Callable[[str], Auth | None] | None" = None,
        info: t.Implementation | None = None,
        on_open: Callable[["Supervised", Seat], None] | None = None,
        on_change: Callable[["Supervised"], None] | None = None,
        ping_s: float | None = PING_S,
        clock: Callable[[], float] = time.monotonic,
        dice: Callable[[], float] = random.random,
    ) -> None:
        settings = entry.settings
        self.entry: Entry = entry
        self._settings = settings
        self._opener = Opener(entry, asks, asking, auth, ping_s, info)
        self._on_open = on_open
        self._on_change = on_change
        self._clock = clock
        self._dice = dice
        self._crashes = Crashes(settings.max_crashes, settings.crashes_s)
        self._stderr = Stderr()
        self._seats: list[Seat] = []
        # By who waits for it: everybody (None) until it is known that each needs one.
        self._starts: dict[str | None, Start[Seat]] = {}
        # What is being started, closed, and asked whether it is there.
        self._opening: set[asyncio.Task[Seat]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[None]] = set()
        self._bell = Bell()
        # Calls that wait for a seat.
        self._arriving = 0
        self._handshake: bool | None = None
        self._revision: str | None = None
        self._last_error: str | None = None
        self._draining = False
        self._closed: str | None = None
        self._state: State = "idle"
        self._since = time.time()

    def __repr__(self) -> str:
        return f"Supervised({self.key!r}, {self.state})"

    @property
    def key(self) -> str:
        """What the server is called."""
        return self.entry.key

    @property
    def draining(self) -> bool:
        """Whether it takes no new calls any more: another generation does."""
        return self._draining or self._closed is not None

    @property
    def seats(self) -> tuple[Seat, ...]:
        """What is open now."""
        return tuple(self._seats)

    # ------------------------------------------------------------ calls

    @asynccontextmanager
    async def use(self, turn: Turn) -> AsyncGenerator[Sitting]:
        """A seat for one call, started if there is none. Raises `CannotConnect` at once where it
        may not be started now, and what a start that failed came to."""
        sitting = await self._sit(turn)
        error: BaseException | None = None
        try:
            yield sitting
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._leave(sitting, error)
            await sitting.end()

    async def ask(
        self,
        turn: Turn,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> t.ProtocolType:
        """The result of a request for a call; asked once more of a fresh start where the server
        has ended meanwhile and that does no harm."""

        def ask(sitting: Sitting) -> Awaitable[t.ProtocolType]:
            return sitting.ask(method, params, timeout_s=timeout_s, on_progress=on_progress)

        return await self._twice(turn, ask, lambda error: may_repeat(method, error))

    async def look(self, turn: Turn, work: Callable[[Sitting], Awaitable[T]]) -> T:
        """What some work with a seat comes to that only looks, such as reading a list: done once
        more where the server has ended meanwhile. Its errors may be shown to every caller."""
        try:
            return await self._twice(turn, work, lambda error: error.status is None)
        except ChannelError as error:
            last = self._crashes.last
            if not isinstance(error, CannotConnect) or (last and last.caller is not None):
                hush(error)
            raise

    async def _twice(
        self,
        turn: Turn,
        work: Callable[[Sitting], Awaitable[T]],
        harmless: Callable[[ConnectionLost], bool],
    ) -> T:
        try:
            async with self.use(turn) as sitting:
                return await work(sitting)
        except ConnectionLost as error:
            if self.draining or not harmless(error):
                raise
        async with self.use(turn) as sitting:
            return await work(sitting)

    async def _sit(self, turn: Turn) -> Sitting:
        if self.draining:
            why = "its configuration has changed; ask again" if self._draining else self._closed
            raise CannotConnect(why).with_server(self.key)
        caller = turn.exchange.principal
        seat = self._free(caller)
        if seat is None:
            self._arriving += 1
            try:
                seat = await self._seated(caller)
            finally:
                self._arriving -= 1
                self._bell.ring()
        if not seat.common:
            seat.caller = caller
        return seat.sit(turn)

    def _leave(self, sitting: Sitting, error: BaseException | None) -> None:
        seat = sitting.seat
        seat.leave(sitting, asyncio.get_running_loop().time())
        if error is not None:
            self._note(seat, error)
        if not seat.sittings and seat in self._seats:
            pooled = self._settings.sharing == "pooled" and not seat.common
            if seat.retired or (pooled and seat.unsettled):
                self._dispose(seat, "it is not needed any more")
            elif isinstance(error, TimedOut) and seat.child is not None and not seat.suspected:
                self._track(self._suspect(seat), self._looking)
        self._bell.ring()

    def _note(self, seat: Seat, error: BaseException) -> None:
        if isinstance(error, ChannelError) and seat.mixed:
            hush(error)
        if isinstance(error, ChannelError | asyncio.CancelledError):
            seat.unsettled = True
        if isinstance(error, ChannelError | AuthError):
            self._last_error = str(error)
        if isinstance(error, AuthError):  # what was looked up may be another by now
            seat.retired = True

    # ------------------------------------------------------------ seats

    def _free(self, caller: str) -> Seat | None:
        """A seat that is open and that this caller may have."""
        pooled = self._settings.sharing == "pooled"
        idle: Seat | None = None
        for seat in self._seats:
            if seat.retired or seat.over:
                continue
            if seat.common or (seat.caller == caller and (seat.sittings or not pooled)):
                return seat
            if pooled and not seat.sittings:
                idle = seat
        return idle

    async def _seated(self, caller: str) -> Seat:
        until = asyncio.get_running_loop().time() + self._settings.timeout_s
        while True:
            if self._closed is not None:
                raise ConnectionLost(self._closed).with_server(self.key)
            seat = self._free(caller)
            if seat is not None:
                return seat
            start = self._starts.get(self._together(caller))
            if start is None or start.given_up:
                refusal = self._crashes.refusal(self._clock(), caller)
                if refusal is not None:
                    raise refusal.with_server(self.key)
                if not self._has_room():
                    await self._change(until)
                    continue
                start = self._begin(caller)
            await start.wait()
            self._check_start(start)

    def _together(self, caller: str) -> str | None:
        """Who waits for the same start: everybody, unless each needs a seat of their own."""
        apart = self._handshake is True and self._settings.sharing != "shared"
        return caller if apart else None

    def _check_start(self, start: Start[Seat]) -> None:
        if start.task.cancelled():
            raise ConnectionLost(self._closed or "the start was given up").with_server(self.key)
        error = start.task.exception()
        if isinstance(error, CannotConnect):
            raise error.copy() from error  # each their own
        if error is not None:
            raise error

    def _has_room(self) -> bool:
        """Whether one more may be started; the one that nobody has used longest makes room."""
        taken = len(self._seats) + len(self._opening) + len(self._ending)
        if taken < max(1, self._settings.max_seats):
            return True
        idle = [seat for seat in self._seats if seat.idle]
        if idle and not self._ending:
            oldest = min(idle, key=lambda seat: seat.idle_since)
            self._dispose(oldest, "its place is needed for another caller")
        return False

    async def _change(self, until: float) -> None:
        """Wait for a seat to become free."""
        if not await self._bell.wait(until):
            words = f"all {self._settings.max_seats} seats are taken by calls of others"
            hint = "try again later, or raise its max_seats"
            raise CannotConnect(words, hint=hint).with_server(self.key)

    # ------------------------------------------------------------ starting

    def _begin(self, caller: str) -> Start[Seat]:
        together = self._together(caller)
        seat = Seat(self._ended, self._stderr)
        start = seat.start = self._starts[together] = Start(self._open(seat, caller))

        def done(task: "asyncio.Task[Seat]") -> None:
            self._opening.discard(task)
            if self._starts.get(together) is start:
                del self._starts[together]
            if not task.cancelled():
                task.exception()  # whoever waited has gone, perhaps
            self._changed()

        start.task.add_done_callback(done)
        self._opening.add(start.task)
        self._changed()
        return start

    async def _open(self, seat: Seat, caller: str) -> Seat:
        try:
            await self._opener.open(seat)
            if self._closed is not None:
                raise ConnectionLost(self._closed).with_server(self.key)
        except BaseException as error:
            if isinstance(error, NO_CRASH):
                self._last_error = str(error)
            elif isinstance(error, CannotConnect):
                self._crashed(Crash(self._clock(), error.sentence, error.output), 0.0)
            self._dispose(seat, "it did not start")
            raise
        self._opened(seat, caller)
        return seat

    def _opened(self, seat: Seat, caller: str) -> None:
        revision = seat.client.peer.revision
        seat.quiet = self._settings.sharing == "shared"
        seat.common = seat.quiet or not revision.handshake
        seat.caller = None if seat.common else caller
        seat.opened_at = self._clock()
        seat.idle_since = asyncio.get_running_loop().time()
        self._handshake = revision.handshake
        self._revision = revision.date
        self._last_error = None
        self._seats.append(seat)
        if self._settings.idle_s is not None and seat.stoppable:
            self._look_after(seat, self._settings.idle_s)
        if self._on_open is not None:
            self._on_open(self, seat)

    # ------------------------------------------------------------ ends

    def _ended(self, seat: Seat) -> None:
        """A conversation has ended, and nobody here has ended it."""
        if seat not in self._seats or not seat.over:
            return
        now = self._clock()
        lost = seat.why.with_server(self.key)
        log.warning("%s", lost)
        # What it wrote may be about anything that it was asked.
        output = NO_OUTPUT if seat.mixed else lost.output
        crash = Crash(now, lost.sentence, output, seat.served)
        self._crashed(crash, now - seat.opened_at)
        self._dispose(seat, "it has ended")

    async def _suspect(self, seat: Seat) -> None:
        """See whether a process that did not answer in time is there at all; where it is not, and
        nobody waits for it, nobody shall wait behind it either."""
        seat.suspected = True
        try:
            async with asyncio.timeout(PROBE_S):
                await seat.client.ping()
        except (ChannelError, TimeoutError):
            if seat in self._seats and not seat.sittings:
                what = f"server {self.key!r} answered neither a call nor a ping"
                log.warning("%s; it is ended", what)
                self._crashed(Crash(self._clock(), what), self._clock() - seat.opened_at)
                self._dispose(seat, "it answered neither a call nor a ping")
        except ColonnadeError as error:  # it is there, and said so
            log.debug("server %r: %s", self.key, error)
        finally:
            seat.suspected = False

    def _crashed(self, crash: Crash, lived_s: float) -> None:
        self._last_error = f"{crash.words}{crash.output}"
        self._crashes.crashed(crash, lived_s, self._dice())

    def _look_after(self, seat: Seat, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        seat.timer = loop.call_later(seconds, self._look, seat)

    def _look(self, seat: Seat) -> None:
        """Stop what nobody has used for long; one timer a seat, set again where it was used."""
        idle_s = self._settings.idle_s
        if seat not in self._seats or idle_s is None:
            return
        left_s = seat.idle_since + idle_s - asyncio.get_running_loop().time()
        if not seat.idle:
            self._look_after(seat, idle_s)
        elif left_s > ROUNDING_S:
            self._look_after(seat, left_s)
        else:
            self._dispose(seat, "nobody has used it for a while")

    def _dispose(self, seat: Seat, why: str) -> None:
        """Close a seat, in a task of its own."""
        if seat in self._seats:
            self._seats.remove(seat)
        if seat.timer is not None:
            seat.timer.cancel()
        if seat.furnished:
            self._track(seat.client.close(why), self._ending)
        self._changed()

    def _track(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
        def done(task: "asyncio.Task[None]") -> None:
            among.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("server %r was not looked after", self.key, exc_info=error)
            self._changed()

        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(done)

    def restart(self) -> None:
        """Start it anew for the next call, whatever it did before; calls in flight finish."""
        self._crashes.forgive()
        for seat in self.seats:
            seat.retired = True
            if not seat.sittings:
                self._dispose(seat, "it is restarted")
        self._changed()

    async def drain(self, timeout_s: float = DRAIN_S) -> None:
        """Take no new calls, let those in flight finish, and close. Those that take longer fail."""
        self._draining = True
        self._changed()
        until = asyncio.get_running_loop().time() + timeout_s
        while self._arriving or any(seat.sittings for seat in self._seats):
            if not await self._bell.wait(until):
                break
        await self.close("its configuration has changed, and this was not done in time")

    async def close(self, why: str = "the host was closed") -> None:
        """End it at once, whoever waits; at any time, and twice. It is over within seconds."""
        self._closed = self._closed or why
        self._bell.ring()
        for task in self._opening:
            task.cancel()
        for seat in self.seats:
            self._dispose(seat, self._closed)
        until = asyncio.get_running_loop().time() + CLOSE_S
        # A start that is stopped has something to close, too.
        while left := [*self._opening, *self._ending, *self._looking]:
            seconds = until - asyncio.get_running_loop().time()
            if seconds <= 0:
                log.warning("server %r does not end, and is left alone", self.key)
                break
            await asyncio.wait(left, timeout=seconds)
            await asyncio.sleep(0)  # what follows on their end
        self._changed()

    # ------------------------------------------------------------ for people

    @property
    def state(self) -> State:
        """What it is doing."""
        if self._closed is not None:
            return "stopped"
        if self._seats:
            return "ready"
        if self._starts:
            return "starting"
        health = self._crashes.health(self._clock())
        return "idle" if health == "well" else health

    @property
    def status(self) -> Status:
        """How it is, for people."""
        self._settle_state()
        pids = [seat.child.pid for seat in self._seats if seat.child is not None]
        return Status(
            key=self.key,
            state=self._state,
            since=self._since,
            revision=self._revision,
            pid=pids[0] if pids else None,
            seats=len(self._seats),
            in_flight=sum(len(seat.sittings) for seat in self._seats),
            crashes=self._crashes.total,
            last_error=self._last_error,
            stderr=self._stderr.last(SHOWN_LINES),
        )

    def _changed(self) -> None:
        self._bell.ring()
        self._settle_state()
        if self._on_change is not None:
            self._on_change(self)

    def _settle_state(self) -> None:
        state = self.state
        if state != self._state:
            self._state, self._since = state, time.time()
