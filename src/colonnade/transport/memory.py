"""Two duplex conversations joined in one process: no process between them, and no socket.

What one end writes the other reads at once, where it has read all that came before and is not
reading now; else in a later turn of the loop, in order, in the context in which it was written.

Rules: one owner: everything here happens in the loop that runs both ends. There is no task: what is
on its way is a callback of the loop. Closing either end ends both, and what was written before
arrives before the end.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Protocol, TypeAlias
from weakref import WeakKeyDictionary

from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.ports import Hearer, Service
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.transport.duplex import Duplex, Held

# What may be on its way to an end. Both read in every turn of the loop, so only a handler that
# writes this much without a pause gets here, and it would never stop.
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# Above this, whoever sends notices waits for the other side to read.
DRAIN_BYTES = 1024 * 1024
# Messages that an end reads in one turn of the loop, so that other tasks have theirs.
FRAMES_A_TURN = 64
# Messages that are read at once inside of each other, where a handler is itself the client of
# another server in memory: each call is two, and takes a dozen frames of Python's stack.
MAX_NESTED = 16
# For handlers that were stopped to clean up.
CLEAN_UP_S = 5.0

# Hears every message as it is written: who says it, and what.
Listener: TypeAlias = Callable[[Side, bytes], None]


class FrameReceiver(Protocol):
    """Whoever reads at an end: a duplex."""

    def receive(self, frame: bytes) -> None: ...

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


class Nesting:
    """How deep messages are being read inside of each other, in one loop."""

    def __init__(self) -> None:
        self.depth = 0


_nestings: "WeakKeyDictionary[asyncio.AbstractEventLoop, Nesting]" = WeakKeyDictionary()


class End:
    """One end of a pair: the channel of one duplex. `join` says of which."""

    def __init__(self, side: Side, overhear: Listener | None = None) -> None:
        self.side = side
        self.other: End = self  # `pair` knows better
        self._overhear = overhear
        self._reader: FrameReceiver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nesting = Nesting()
        self._leave: Callable[[], None] | None = None
        # What is still to be read, each in the context of whoever wrote it.
        self._arrived: deque[tuple[bytes, Context]] = deque()
        self._unread = 0
        self._reading: asyncio.Handle | None = None
        self._busy = False
        self._at_once = 0
        self._room = asyncio.Event()
        self._ending: str | None = None
        self._over: str | None = None
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        return f"End({self.side.value}, {self._over or 'open'})"

    def join(self, reader: FrameReceiver, leave: Callable[[], None] | None = None) -> None:
        """Hand what arrives here to this reader; at the end call `leave`."""
        if self._reader is not None:
            raise LocalProtocolError(f"this end is joined already: {self!r}")
        self._reader, self._leave = reader, leave
        self._loop = asyncio.get_running_loop()
        self._nesting = _nestings.setdefault(self._loop, self._nesting)
        self._wake()

    def carry(self, link: DuplexLink, hearer: Hearer) -> Held:
        """Carry a client's conversation."""
        held = Held(link, self, hearer, loop_time)
        self.join(held, hearer.gone)
        return held

    # ------------------------------------------------------------ out

    def write(self, frame: bytes) -> None:
        """Send one message on its way: it arrives now, or in a later turn of the loop."""
        other = self.other
        if self._over is not None or other._ending is not None:
            return
        if self._overhear is not None:
            self._overhear(self.side, frame)
        reader = other._reader
        if (
            reader is None
            or other._busy
            or other._arrived
            or other._at_once >= FRAMES_A_TURN
            or other._nesting.depth >= MAX_NESTED
        ):
            other._keep(frame)
        else:
            other._read_now(reader, frame)

    async def drain(self) -> None:
        """Wait while the other side has much to read."""
        while self.other._unread > DRAIN_BYTES and self._over is None:
            self.other._room.clear()
            await self.other._room.wait()
        if self._over is not None:
            raise ConnectionLost(self._over)

    # ------------------------------------------------------------ in

    def _keep(self, frame: bytes) -> None:
        if self._unread + len(frame) > MAX_UNREAD_BYTES:
            self._hang_up(f"the {self.side.value} left {MAX_UNREAD_BYTES} bytes unread")
            return
        self._arrived.append((frame, copy_context()))
        self._unread += len(frame)
        self._wake()

    def _read_now(self, reader: FrameReceiver, frame: bytes) -> None:
        nesting = self._nesting
        self._busy = True
        self._at_once += 1
        nesting.depth += 1
        try:
            reader.receive(frame)
        except Exception as error:  # it is not the writer's
            told = {"message": f"the {self.side.value} could not read", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)
        finally:
            nesting.depth -= 1
            self._busy = False
            if self._arrived or self._ending is not None:
                self._wake()

    def _wake(self) -> None:
        if self._reading is None and self._loop is not None:
            self._reading = self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._reading = None
        self._at_once = 0
        self._busy = True
        try:
            for _ in range(min(FRAMES_A_TURN, len(self._arrived))):
                self._take()
        finally:  # whatever a callback of the duplex does, the rest arrives
            self._busy = False
            if self._arrived:
                self._wake()
            elif self._ending is not None:
                self._end(self._ending)

    def _take(self) -> None:
        if not self._arrived or self._reader is None:
            return  # the message before this one ended it
        frame, context = self._arrived.popleft()
        self._unread -= len(frame)
        if self._unread <= DRAIN_BYTES:
            self._room.set()
        context.run(self._reader.receive, frame)

    # ------------------------------------------------------------ the end

    async def close(self, why: str = "the connection was closed") -> None:
        """End both sides, and wait until nothing runs on either; at any time, and twice."""
        self._hang_up(why)
        self._end(self._ending or why)  # the first reason is the reason
        ends = (self, self.other)
        for end in ends:
            if end._reader is not None:
                await end._ended.wait()
        for end in ends:
            if end._reader is not None:
                await end._reader.ended(CLEAN_UP_S)

    def _hang_up(self, why: str) -> None:
        """The end is on its way to both, behind what is."""
        for end in (self, self.other):
            if end._ending is None:
                end._ending = why
                end._wake()

    def _end(self, why: str) -> None:
        if self._over is not None:
            return
        self._over = why
        self._arrived.clear()
        self._unread = 0
        self._room.set()
        self.other._room.set()
        self._ended.set()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._leave is not None:
            self._leave()
        if self._reader is not None:
            self._reader.close(why)


def pair(overhear: Listener | None = None) -> tuple[End, End]:
    """The two ends of a new conversation: the client's, then the server's."""
    near, far = End(Side.CLIENT, overhear), End(Side.SERVER, overhear)
    near.other, far.other = far, near
    return near, far


def serve_end(
    end: End,
    service: Service,
    *,
    principal: str = "",
    scopes: Iterable[str] | None = None,
    debug: bool = False,
) -> Duplex:
    """Serve whoever speaks at the other end, until one side closes. The service has started.

    `principal` is who speaks there, `scopes` what they may do, where somebody looks at that. With
    `debug` they are shown what crashed.
    """
    link = DuplexLink(
        Side.SERVER, service.identity, service.accepts, principal, lambda: service.identity
    )
    link.scopes = frozenset(scopes) if scopes is not None else None

    def told(event: NotificationReceived) -> None:
        service.told(event, link.peer)

    duplex = Duplex(link, end, service.answer, told=told, clock=loop_time, debug=debug)
    end.join(duplex, service.watch(duplex.news))
    return duplex


def loop_time() -> float:
    """The time by which this loop rings its alarms, which a test may have replaced."""
    return asyncio.get_running_loop().time()
