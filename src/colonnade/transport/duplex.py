"""One conversation over a channel that carries everything both ways: a pipe, or memory.

It drives a `DuplexLink`: what the link sends is written, each request that it receives is handled
in a task of its own, and each response that it waits for is a future.

Rules: one owner: everything here happens in the loop that runs it. No message is decoded or
judged here. A task never raises, and the end of the conversation waits for the tasks: but only for
so long, because a handler may refuse to stop.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Raw, Struct

from colonnade.errors import (
    NO_OUTPUT,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Output,
)
from colonnade.ports import Answer, Hearer, Progressing
from colonnade.protocol.exchange import LISTEN, Exchange, NonHttpRequestFields
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import NOT_INITIALIZED, Phase
from colonnade.protocol.link.link import MAX_S, TIMEOUT_S, DuplexLink
from colonnade.protocol.revision import Revision
from colonnade.protocol.subscriptions import is_covered
from colonnade.protocol.types import NotificationParams, RequestParams

# What is the same for every client, and has nothing of one caller in it.
BROADCASTS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    }
)
# What goes to those who subscribed to its `uri`.
BY_SUBSCRIPTION: Final = "notifications/resources/updated"

log: logging.Logger = logging.getLogger("colonnade.transport")


def news_for(
    link: DuplexLink, subscriptions: Set[str], method: str, params: NotificationParams
) -> bytes | None:
    """A change as a frame for this link; None where it is not for it."""
    if method == BY_SUBSCRIPTION:
        uri: str | None = getattr(params, "uri", None)
        if uri is None or not is_covered(uri, subscriptions):
            return None
    elif method not in BROADCASTS:
        log.error("%s was announced to every session, and has one recipient; not sent", method)
        return None
    try:
        return link.notify(method, params)
    except LocalProtocolError:  # not in this revision, not offered, or not yet
        return None


if TYPE_CHECKING:
    from colonnade.protocol.input_requests import InputRequest


# A person must find the window, read the question and decide.
ASK_S = 600.0
# An alarm may ring that much early, by the last digit of the time alone.
ROUNDING_S = 1e-6


class Channel(Protocol):
    """Bytes both ways, one message at a time."""

    def write(self, frame: bytes) -> None:
        """Write a message at once, or keep it until the other side reads."""
        ...

    async def drain(self) -> None:
        """Wait until the other side has read enough. Raises `ConnectionLost`."""
        ...


class Line(Channel, Protocol):
    """A channel that whoever speaks on it can end."""

    async def close(self, why: str = ...) -> None:
        """End it, and wait until nothing of it is left; at any time, and twice."""
        ...


class DuplexRequestContext(NonHttpRequestFields, Struct, eq=False, gc=False):
    """One exchange on a duplex conversation, with its way back."""

    exchange: Exchange
    duplex: "Duplex"
    fault: Fault | None = None

    @property
    def debug(self) -> bool:
        """Whether this caller is shown what crashed."""
        return self.duplex.debug

    @property
    def session(self) -> "Duplex | None":
        """The pipe, for those who opened it with a handshake."""
        return self.duplex if self.exchange.peer.revision.handshake else None

    async def send(self, frame: bytes) -> None:
        """Write a notification of this exchange."""
        self.duplex.channel.write(frame)
        await self.duplex.channel.drain()

    def post(self, frame: bytes) -> bool:
        """Whoever writes here may have to wait."""
        return False

    async def ask(self, question: "InputRequest") -> Raw:
        """Ask by request, and wait for as long as a person may need."""
        if self.duplex.link.phase is Phase.OPENING:
            raise ConnectionLost(NOT_INITIALIZED)
        return await self.duplex.request(question.kind.method, question.params, ASK_S)

    async def hang_up(self) -> None:
        """The channel carries everything else, too; it stays."""


class Duplex:
    """A link, the channel that it speaks through, and the tasks that answer."""

    def __init__(
        self,
        link: DuplexLink,
        channel: Channel,
        answer: Answer,
        *,
        told: Callable[[NotificationReceived], None] | None = None,
        opened: Callable[[PeerIdentified], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        debug: bool = False,
    ) -> None:
        self.link = link
        self.channel = channel
        self.debug: bool = debug
        self._answer = answer
        self._told = told
        self._opened = opened
        self._progressing: dict[RequestId, Progressing] = {}
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.subscriptions: set[str] = set()
        # The requests that are being answered, each by a task that enters and removes itself.
        self._tasks: dict[Exchange, asyncio.Task[Any]] = {}
        # Our own requests that wait for a response.
        self._waiting: dict[RequestId, asyncio.Future[Raw]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float = 0.0
        self._deaf: str = ""

    # ------------------------------------------------------------ in

    def receive(self, frame: bytes) -> None:
        """One message has arrived."""
        # The time is for progress, and that only for who waits for some.
        now = self._clock() if self._progressing else 0.0
        for event in self.link.receive(frame, now):
            if type(event) is RequestReceived:
                self._start(event.exchange)
            else:
                self._act(event)

    def receive_all(self, frames: Iterable[bytes | Fault]) -> None:
        """Messages that have arrived together, or what was none."""
        for frame in frames:
            if isinstance(frame, Fault):
                self.refuse(frame)
            else:
                self.receive(frame)

    def refuse(self, fault: Fault) -> None:
        """What arrived was no message at all."""
        for event in self.link.refuse(fault):
            self._act(event)

    def _act(self, event: LinkEvent) -> None:
        match event:  # the most frequent first
            case RequestFinished():
                self._settle(event.id, event.outcome)
            case Send():
                self.channel.write(event.data)
            case RequestReceived():
                self._start(event.exchange)
            case RequestCancelled():
                task = self._tasks.get(event.exchange)
                if task is not None:
                    log.debug(
                        "%s cancelled: %.200r", event.exchange.method.name, event.reason
                    )  # R0061
                    task.cancel()
            case NotificationReceived():
                if self._told is not None:
                    self._told(event)
            case ProgressReceived():
                progressed = self._progressing.get(event.id)
                if progressed is not None:
                    progressed(event.params)
            case PeerIdentified():
                if self._opened is not None:
                    self._opened(event)
            case MessageIgnored():
                log.debug("ignored: %s", event.why)

    def _start(self, exchange: Exchange) -> None:
        """Answer a request in a task of its own, in the current context. The loop holds the task
        until it has begun; then it is in `_tasks`.

        Where Python has eager tasks, it begins at once: most handlers never wait, and are done
        without another turn of the loop. A loop with a task factory decides for itself.
        """
        loop, work, name = self._loop, self._run(exchange), exchange.method.name
        if loop.get_task_factory() is not None:
            loop.create_task(work, name=name)
        elif sys.version_info >= (3, 12):
            asyncio.Task(work, loop=loop, name=name, eager_start=True)
        else:
            asyncio.Task(work, loop=loop, name=name)

    async def _run(self, exchange: Exchange) -> None:
        """Answer one request, in a task of its own."""
        if exchange.settled:  # it was cancelled before its task had begun
            return
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._tasks[exchange] = task
        request = DuplexRequestContext(exchange, self)
        held = self.link.pause_timeouts(self._clock()) if exchange.input_request is not None else ()
        if held:
            self._set_alarm()
        try:
            data = await self._answer(request)
        except ConnectionLost:
            data = None
        except (Exception, asyncio.CancelledError) as error:
            data = self._failed(exchange, error)
        finally:
            del self._tasks[exchange]
            if held:
                self.link.resume_timeouts(held, self._clock())
                self._set_alarm()
        if data is not None:
            self.channel.write(data)

    def _failed(self, exchange: Exchange, error: BaseException) -> bytes | None:
        if exchange.settled:  # its sender cancelled it, or the conversation has ended
            return None
        # A handler that cancels its own task is a failure like any other; the task then ends.
        log.error("the service raised %s", type(error).__name__, exc_info=error)
        return exchange.fail(Fault(FaultKind.INTERNAL, "the server failed; its log says why"))

    def _settle(self, id: RequestId, outcome: Raw | ColonnadeError) -> None:
        future = self._waiting.pop(id, None)
        if future is None or future.done():
            return
        if isinstance(outcome, ColonnadeError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    # ------------------------------------------------------------ out

    async def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float = TIMEOUT_S,
        *,
        progressed: Progressing | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
    ) -> Raw:
        """Ask the peer and wait for its raw answer; giving up tells it so.

        `progressed` hears how it is getting on. There are no `headers` here.
        """
        id, answer = self._begin(method, params, timeout_s, progressed, probing)
        try:
            return await answer
        finally:
            self._progressing.pop(id, None)
            self.give_up(id)
            if answer.done() and not answer.cancelled():
                answer.exception()  # the caller may have been cancelled meanwhile

    def begin(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Ask the peer: the id of the request, and its raw answer to come. The caller calls
        `give_up` in the end."""
        return self._begin(method, params, timeout_s)

    def _begin(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        progressed: Progressing | None = None,
        probing: Revision | None = None,
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request; `probing` is a revision that the peer may not speak."""
        if self._deaf:
            raise ConnectionLost(self._deaf)
        now = self._clock()
        id, data = self.link.request(
            method,
            params,
            now=now,
            timeout_s=timeout_s,
            max_s=max(MAX_S, timeout_s),
            progress=progressed is not None,
            revision=probing,
        )
        if progressed is not None:
            self._progressing[id] = progressed
        answer = self._wait_for(id, now + timeout_s)
        self.channel.write(data)
        return id, answer

    def give_up(self, id: RequestId) -> None:
        """Nobody waits for this answer any more: the peer is told, if it has not given it."""
        if self._waiting.pop(id, None) is not None:
            gone = self.link.cancel(id, "no longer wanted")
            if gone is not None:
                self.channel.write(gone)

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the conversation with a handshake. R0056: giving up closes it."""
        id = self.link.snapshot().next_id
        now = self._clock()
        data = self.link.initialize(now, timeout_s, revision).data
        answer = self._wait_for(id, now + timeout_s)
        self.channel.write(data)
        try:
            return await answer
        finally:
            if self._waiting.pop(id, None) is not None:
                self.close("the handshake was given up")

    def _wait_for(self, id: RequestId, until: float) -> asyncio.Future[Raw]:
        answer = self._waiting[id] = self._loop.create_future()
        # One alarm rings for all: it is set anew only where it would come too late for this one,
        # and where it comes too early it finds nothing to do.
        if self._alarm is None or until < self._alarm_at:
            self._set_alarm()
        return answer

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Tell the peer something."""
        self.channel.write(self.link.notify(method, params))
        await self.channel.drain()

    def news(self, method: str, params: NotificationParams) -> None:
        """Tell the peer of a change, where the revision tells without being asked."""
        frame = news_for(self.link, self.subscriptions, method, params)
        if frame is not None:
            self.channel.write(frame)

    def _set_alarm(self) -> None:
        deadline = self.link.next_deadline
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if deadline is not None:
            self._alarm_at = deadline
            delay = max(0.0, deadline - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        for event in self.link.tick(self._clock() + ROUNDING_S):
            self._act(event)
        self._set_alarm()

    # ------------------------------------------------------------ the end

    async def finish(self, why: str, timeout_s: float) -> None:
        """The peer says no more: what needs no further word of it may still be answered."""
        self._deaf = why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(why))
        await asyncio.sleep(0)  # what was read last may not have begun
        # A subscription waits for changes only, and would never be finished.
        calls = [task for exchange, task in self._tasks.items() if exchange.method.name != LISTEN]
        if calls:
            await asyncio.wait(calls, timeout=timeout_s)

    def close(
        self, why: str, more: str = "", *, server: str | None = None, output: Output = NO_OUTPUT
    ) -> None:
        """The channel is gone: tell everything that waits, stop everything that runs."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for event in self.link.close(why, more, server=server, output=output):
            self._act(event)
        for task in self._tasks.values():
            task.cancel()

    async def ended(self, timeout_s: float) -> None:
        """Wait for the last handler, if it ends in time."""
        if self._tasks:
            _, left = await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)
            if left:
                log.warning("%d handlers do not stop, and are left alone", len(left))


class Held(Duplex):
    """A conversation as a client holds it: what carries it ends with it."""

    def __init__(
        self,
        link: DuplexLink,
        line: Line,
        hearer: Hearer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(link, line, hearer.answer, told=hearer.told, clock=clock)
        self._line = line

    async def leave(self, why: str) -> None:
        """End it, and wait until nothing of it is left; at any time, and twice."""
        await self._line.close(why)
