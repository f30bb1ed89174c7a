"""One conversation over a channel that carries everything both ways: a pipe, or memory.

It runs a `Link`: what the link wants sent is written, what it wants answered is answered in a
task of its own, all in one group, and what it waits for is a future.

Rules: one owner: everything here happens in the loop that runs it. No message is decoded or
judged here. A task in the group never raises.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import Raw

from portico.errors import ConnectionLost, Fault, LocalProtocolError, PorticoError
from portico.ports import Answer
from portico.protocol.events import (
    Answered,
    Call,
    Cancelled,
    Dropped,
    Event,
    Opened,
    Progressed,
    Send,
    Told,
)
from portico.protocol.exchange import Exchange
from portico.protocol.jsonrpc import RequestId
from portico.protocol.link import Link
from portico.protocol.questions import Question
from portico.protocol.revision import Pushing
from portico.protocol.types import (
    NotificationParams,
    RequestParams,
    ResourceUpdatedNotificationParams,
)

log = logging.getLogger("portico.transport")


class Channel(Protocol):
    """Bytes both ways, one message at a time."""

    def write(self, frame: bytes) -> None:
        """Write a message at once, or keep it until the other side reads."""
        ...

    async def drain(self) -> None:
        """Wait until the other side has read enough. Raises `ConnectionLost`."""
        ...


class DuplexTurn:
    """One exchange on a duplex conversation, with its way back."""

    __slots__ = ("_duplex", "exchange", "fault")

    def __init__(self, exchange: Exchange, duplex: "Duplex") -> None:
        self.exchange = exchange
        self.fault: Fault | None = None
        self._duplex = duplex

    @property
    def wire(self) -> "DuplexTurn":
        """Everything shares one channel, so the way back is the turn itself."""
        return self

    @property
    def session(self) -> "Duplex | None":
        """The pipe, for those who opened it with a handshake."""
        return self._duplex if self.exchange.peer.revision.handshake else None

    async def send(self, frame: bytes) -> None:
        """Write a notification of this exchange."""
        self._duplex.channel.write(frame)
        await self._duplex.channel.drain()

    async def ask(self, question: Question) -> Raw:
        """Ask by request, and wait."""
        return await self._duplex.request(question.kind.method, question.params)

    async def hang_up(self) -> None:
        """The channel carries everything else, too; it stays."""


class Duplex:
    """A link, the channel that it speaks through, and the tasks that answer."""

    def __init__(
        self,
        link: Link,
        channel: Channel,
        answer: Answer,
        group: asyncio.TaskGroup,
        *,
        told: Callable[[Told], None] | None = None,
        opened: Callable[[Opened], None] | None = None,
        progressed: Callable[[Progressed], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.link = link
        self.channel = channel
        self._answer = answer
        self._group = group
        self._told = told
        self._opened = opened
        self._progressed = progressed
        self._clock = clock
        self.subscriptions: set[str] = set()
        self._tasks: dict[Exchange, asyncio.Task[None]] = {}
        self._waiting: dict[RequestId, asyncio.Future[Raw]] = {}
        self._alarm: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ in

    def receive(self, frame: bytes) -> None:
        """One message has arrived."""
        for event in self.link.receive(frame, self._clock()):
            self._act(event)

    def refuse(self, fault: Fault) -> None:
        """What arrived was no message at all."""
        for event in self.link.refuse(fault):
            self._act(event)

    def _act(self, event: Event) -> None:
        match event:
            case Send():
                self.channel.write(event.data)
            case Call():
                turn = DuplexTurn(event.exchange, self)
                task = self._group.create_task(self._run(turn))
                self._tasks[event.exchange] = task
            case Cancelled():
                task = self._tasks.get(event.exchange)
                if task is not None:
                    task.cancel()
            case Answered():
                self._settle(event)
            case Told():
                if self._told is not None:
                    self._told(event)
            case Progressed():
                if self._progressed is not None:
                    self._progressed(event)
            case Opened():
                if self._opened is not None:
                    self._opened(event)
            case Dropped():
                log.debug("ignored: %s", event.why)

    async def _run(self, turn: DuplexTurn) -> None:
        try:
            data = await self._answer(turn)
            if data is not None:
                self.channel.write(data)
        except asyncio.CancelledError:
            data = turn.exchange.abandon()  # the rest of its batch may be ready now
            if data is not None:
                self.channel.write(data)
        except ConnectionLost:
            pass
        finally:
            self._tasks.pop(turn.exchange, None)

    def _settle(self, event: Answered) -> None:
        future = self._waiting.pop(event.id, None)
        if future is None or future.done():
            return
        if isinstance(event.outcome, PorticoError):
            future.set_exception(event.outcome)
        else:
            future.set_result(event.outcome)

    # ------------------------------------------------------------ out

    async def request(self, method: str, params: RequestParams) -> Raw:
        """Ask the peer and wait for its raw answer; giving up tells it so."""
        id, data = self.link.request(method, params, now=self._clock())
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        self._set_alarm()
        self.channel.write(data)
        try:
            return await future
        finally:
            if self._waiting.pop(id, None) is not None:
                gone = self.link.cancel(id, "no longer wanted")
                if gone is not None:
                    self.channel.write(gone)

    def news(self, method: str, params: NotificationParams) -> None:
        """Tell the peer of a change, where the revision tells without being asked."""
        peer = self.link.peer
        if peer is None or peer.revision.pushing is not Pushing.SESSION:
            return
        if isinstance(params, ResourceUpdatedNotificationParams) and not self._follows(params.uri):
            return
        with contextlib.suppress(LocalProtocolError):  # not ready, or not declared
            self.channel.write(self.link.notify(method, params))

    def _follows(self, uri: str) -> bool:
        return any(
            uri == own or uri.startswith(f"{own.rstrip('/')}/") for own in self.subscriptions
        )

    def _set_alarm(self) -> None:
        deadline = self.link.next_deadline
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if deadline is not None:
            delay = max(0.0, deadline - self._clock())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        for event in self.link.tick(self._clock()):
            self._act(event)
        self._set_alarm()

    def close(self, why: str) -> None:
        """The channel is gone: tell everything that waits, stop everything that runs."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for event in self.link.close(why):
            self._act(event)
        for task in self._tasks.values():
            task.cancel()
