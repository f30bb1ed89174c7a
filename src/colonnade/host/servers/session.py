"""A seat: one open client on one process or session of a server, and whoever has calls on it.

What the server asks, logs and reports goes to the call that it is about. Where a question comes by
result that is known; where it comes by request it is one of the calls on this seat, and those are
all of one caller.

Rules: nothing of one caller reaches another: what may have been written for one (a log, the last
lines of a child) is given to nobody else. No seat is opened or chosen here, and none is counted.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw

from colonnade.client.callback_queue import Hearing
from colonnade.client.client import Client
from colonnade.client.input_callbacks import Answers
from colonnade.client.request import LOG_MESSAGE, OnProgress
from colonnade.client.results import show_crash
from colonnade.client.transports import ChildWay, MemoryWay, OneWay, Way
from colonnade.errors import (
    NO_OUTPUT,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Declined,
    Fault,
    FaultKind,
    RemoteError,
)
from colonnade.host.servers.restarts import Start
from colonnade.host.servers.status import Stderr
from colonnade.ports import Carry, Turn
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import AnyInputResponse, InputRequest, InputRequestKind
from colonnade.protocol.link.events import NotificationReceived

if TYPE_CHECKING:
    from colonnade.transport.process.child import Child

# For the last reports of a call to be delivered before its result is.
LAST_REPORTS_S = 1.0

# Puts a question to whoever made these calls, of which it is about one; the raw answer.
Asking: TypeAlias = Callable[[tuple[Turn, ...], InputRequest], Awaitable[Raw]]


def hush(error: ChannelError) -> None:
    """Take out of an error what the server wrote, which may be about another caller: also with
    what it was raised from, which may hold the same."""
    error.output = NO_OUTPUT
    error.__cause__ = error.__context__ = None


async def by_wire(turns: tuple[Turn, ...], question: InputRequest) -> Raw:
    """Ask on the way back of the call that came last."""
    return await turns[-1].wire.ask(question)


class Once:
    """A way that is gone once: whoever opened a seat on it decides whether there is another."""

    repeats: bool = False

    def __init__(self, way: Way) -> None:
        self.name: str = way.name
        self.key: Hashable | None = way.key
        self.restarts: bool = way.restarts
        self.mirrors: bool = way.mirrors
        self.greets: bool = way.greets
        self.older: Way | None = way.older
        self._way = way

    async def reach(self, timeout_s: float) -> Carry:
        """As the way does."""
        return await self._way.reach(timeout_s)

    async def close(self) -> None:
        """As the way does."""
        await self._way.close()


class Questions(Answers):
    """What one server asks on one seat, put to whoever has a call on it. Roots are the host's."""

    def __init__(
        self,
        sittings: Callable[[], Collection["Sitting"]],
        asks: Collection[InputRequestKind],
        asking: Asking,
        roots: Collection[str],
    ) -> None:
        super().__init__(
            on_elicit=_declared if InputRequestKind.ELICIT in asks else None,
            on_sample=_declared if InputRequestKind.SAMPLE in asks else None,
            roots=tuple(roots) or None,
        )
        self._sittings = sittings
        self._asking = asking

    async def to(self, question: InputRequest) -> AnyInputResponse:
        """The answer of whoever has calls here now."""
        return await self.of(question, tuple(self._sittings()))

    async def of(self, question: InputRequest, sittings: tuple["Sitting", ...]) -> AnyInputResponse:
        """The answer of whoever made these calls, for as long as one of them goes on."""
        if question.kind is InputRequestKind.ROOTS:
            return await super().to(question)
        if not sittings:
            words = "nobody has asked anything of this server that a question could be about"
            raise Fault(FaultKind.INVALID_REQUEST, words)
        if question.kind is InputRequestKind.SAMPLE:
            self._count()
        turns = tuple(sitting.turn for sitting in sittings)
        asked = asyncio.ensure_future(self._asking(turns, question))
        asked.add_done_callback(_seen)
        for sitting in sittings:
            sitting.asked.append(asked)
        try:
            raw = await asked
            return question.decode_response(raw, turns[-1].exchange.peer.revision)
        except Fault as fault:
            words = "whoever was asked gave an answer that does not fit"
            raise Fault(FaultKind.INTERNAL, words) from fault
        except asyncio.CancelledError:
            asked.cancel()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Fault(FaultKind.INTERNAL, "the call that this is about was given up") from None
        except RemoteError as error:
            if error.code == turns[-1].exchange.peer.revision.codes[FaultKind.USER_REJECTED]:
                raise Declined("the user said no") from None
            raise Fault(FaultKind.INTERNAL, "whoever was asked could not answer") from error
        except ChannelError as error:
            raise Fault(FaultKind.INTERNAL, "whoever was asked has gone") from error
        finally:
            for sitting in sittings:
                if asked in sitting.asked:
                    sitting.asked.remove(asked)


def _seen(asked: "asyncio.Future[Raw]") -> None:
    """Whoever waited for this may have gone when it failed."""
    if not asked.cancelled():
        asked.exception()


def _declared(params: Any) -> Any:
    """Says that something can be asked; what is asked goes to the calls on the seat."""
    raise LookupError("a question of a seat is put to its calls")


class SeatClient(Client):
    """A client that says at once when its conversation ends, and whom a log is for."""

    def __init__(self, way: Way, answers: Answers, seat: "Seat", **options: Any) -> None:
        super().__init__(way, answers, **options)
        self._seat = seat

    @property
    def over(self) -> bool:
        """Whether there is no conversation now."""
        return self._speaker.over

    def told(self, told: NotificationReceived) -> None:
        """A log is for the calls that are made at this moment, or for nobody."""
        if told.method.name != LOG_MESSAGE:
            super().told(told)
            return
        self._speaker.note()
        with contextlib.suppress(Fault):  # R0233: never answered
            self._seat.logged(decode_as(t.LoggingMessageNotificationParams, told.params))

    def gone(self) -> None:
        """The conversation has ended."""
        super().gone()
        self._seat.gone()


class Sitting:
    """One call's use of a seat, from when it was given one until it is done."""

    def __init__(self, seat: "Seat", turn: Turn) -> None:
        self.seat: Seat = seat
        self.turn: Turn = turn
        # What its caller is being asked.
        self.asked: list[asyncio.Future[Raw]] = []
        self._hearing: Hearing | None = None

    @property
    def client(self) -> Client:
        """The client, for what is not asked on somebody's behalf, such as lists."""
        return self.seat.client

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> t.ProtocolType:
        """The result of a request for this call: whatever the server asks goes to its caller.

        All that was reported before the result is delivered before it, within reason.
        """
        exchange = self.turn.exchange
        try:
            result = await self.client.ask(
                method,
                params,
                timeout_s=timeout_s,
                on_progress=None if on_progress is None else self._reporting(on_progress),
                answers=self,
                principal=exchange.principal,
                log_level=exchange.log_level,
            )
        except ChannelError as error:
            self.seat.unsettled = True
            if self.seat.mixed:
                hush(error)
            raise
        except asyncio.CancelledError:
            self.seat.unsettled = True
            raise
        if self._hearing is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_REPORTS_S):
                    await self._hearing.caught_up()
        if isinstance(result, t.CallToolResult) and result.is_error:
            show_crash(self.seat.child, result)
        return result

    def tell(self, handler: Callable[..., Any], *news: Any, size: int) -> None:
        """Call a handler of this call's, after those before; nobody else's wait for it. `size` is
        how many bytes the server sent for this."""
        if self._hearing is None:
            self._hearing = Hearing()
        self._hearing.tell(handler, *news, size=size)

    def _reporting(self, on_progress: OnProgress) -> OnProgress:
        def report(progress: float, total: float | None, message: str | None) -> None:
            self.tell(on_progress, progress, total, message, size=len(message or ""))

        return report

    async def deliver(self, frame: bytes) -> None:
        """Send a notification to whoever made the call; one who has gone misses nothing."""
        if not self.turn.wire.post(frame):
            with contextlib.suppress(ColonnadeError):
                await self.turn.wire.send(frame)

    async def to(self, question: InputRequest) -> AnyInputResponse:
        """The caller's answer to what its own call came to."""
        return await self.seat.questions.of(question, (self,))

    async def to_all(self, questions: Mapping[str, InputRequest]) -> dict[str, AnyInputResponse]:
        """The caller's answers, one after the other: there is one user."""
        return {key: await self.to(question) for key, question in questions.items()}

    async def end(self) -> None:
        """Nothing more is asked or reported for it."""
        if self._hearing is not None:
            await self._hearing.close()


class Seat:
    """One client of one server. `caller` is whose it is, None for everybody's.

    A seat that is `retired` is closed after the calls on it; `mixed` is one that has served
    several callers; `quiet` one whose logs nobody hears; `unsettled` one on which a call ended
    without an answer, so that the server may still be at it; `suspected` one that is asked whether
    it is there. One that `renews` outlives a conversation: its client begins another.
    """

    def __init__(self, ended: Callable[["Seat"], None], everybody: Stderr) -> None:
        self._ended = ended
        self._everybody = everybody
        self._stderr = Stderr()
        self._way: Way | None = None
        self._first: str | None = None
        self.start: Start[Seat] | None = None
        self.caller: str | None = None
        self.sittings: dict[Sitting, None] = {}
        self.retired: bool = False
        self.mixed: bool = False
        self.unsettled: bool = False
        self.suspected: bool = False
        self.renews: bool = False
        self.common: bool = False
        self.quiet: bool = False
        self.opened_at: float = 0.0
        self.idle_since: float = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def furnish(
        self,
        way: Way,
        *,
        asks: Collection[InputRequestKind],
        asking: Asking,
        roots: Collection[str],
        **options: Any,
    ) -> SeatClient:
        """Give it a client on a way."""
        self._way = way
        self.renews = way.repeats and way.mirrors
        self.questions: Questions = Questions(lambda: self.sittings, asks, asking, roots)
        taken = way if self.renews else Once(way)
        self.client: SeatClient = SeatClient(taken, self.questions, self, **options)
        return self.client

    @property
    def furnished(self) -> bool:
        """Whether there is anything to close."""
        return self._way is not None

    @property
    def stoppable(self) -> bool:
        """Whether it can be closed for a while: what is part of this program cannot."""
        return not isinstance(self._way, MemoryWay | OneWay)

    @property
    def served(self) -> str | None:
        """The only caller that it has had."""
        return None if self.mixed else self._first

    @property
    def idle(self) -> bool:
        """Whether nobody uses it, nor is about to."""
        return not self.sittings and not (self.start is not None and self.start.awaited)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The calls that are made on it now, oldest first."""
        return tuple(sitting.turn for sitting in self.sittings)

    @property
    def over(self) -> bool:
        """Whether its conversation has ended for good."""
        return not self.renews and self.client.over

    @property
    def child(self) -> "Child | None":
        """The process, where there is one."""
        return self._way.child if isinstance(self._way, ChildWay) else None

    @property
    def why(self) -> ConnectionLost:
        """Why it ended."""
        lost = self.child.lost if self.child is not None else None
        return lost or ConnectionLost("the connection ended")

    # ------------------------------------------------------------ who sits here

    def sit(self, turn: Turn) -> Sitting:
        """One call more."""
        caller = turn.exchange.principal
        if self._first is None:
            self._first = caller
        elif self._first != caller:
            self.mixed = True
        sitting = Sitting(self, turn)
        self.sittings[sitting] = None
        return sitting

    def leave(self, sitting: Sitting, now: float) -> None:
        """One call less: nobody is asked any more what only it was about."""
        self.sittings.pop(sitting, None)
        self.idle_since = now
        for asked in sitting.asked:
            if not any(asked in other.asked for other in self.sittings):
                asked.cancel()

    # ------------------------------------------------------------ what it says

    def hear(self, line: str) -> None:
        """A line of standard error."""
        self._stderr.hear(line)
        self._everybody.hear(line)

    def last_lines(self, most: int) -> tuple[str, ...]:
        """What was written on it last."""
        return self._stderr.last(most)

    def logged(self, said: t.LoggingMessageNotificationParams) -> None:
        """What the server logs is for its caller; where it has several, for nobody."""
        if self.quiet or self.mixed or not self.sittings:
            return
        sitting = next(reversed(self.sittings))
        frame = sitting.turn.exchange.log(said.level, said.data, said.logger)
        if frame is not None:
            sitting.tell(sitting.deliver, frame, size=len(frame))

    def gone(self) -> None:
        """Its conversation has ended; why is known in a moment."""
        asyncio.get_running_loop().call_soon(self._ended, self)
