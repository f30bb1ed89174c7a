"""The in-memory transport: a client and a server connected in one process, without a socket.

A message that one end writes is read by the other at once, if that has read everything before it
and is not reading now; else in a later iteration of the loop, in order, in the context in which it
was written.

Rules: everything happens in the event loop that runs both ends. There is no task: a queued message
is a callback of the loop. Closing either end closes both, after the messages that were written
before.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.ports import Caller, ConnectionEvents, ProgressCallback, Service
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import RequestId, plain_result
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import CALL, MAX_S, DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Callers, Identity
from colonnade.protocol.revision import Revision
from colonnade.protocol.types import RequestParams
from colonnade.transport.duplex import ClientDuplex, Duplex

if TYPE_CHECKING:  # most servers request no input
    from colonnade.protocol.input_requests import RequestDeclaration

# The queued messages of an end. Both ends read in every iteration of the loop, so only a handler
# that writes without a pause reaches this, and it would never stop.
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# Above this, senders of notifications wait for the other end to read.
DRAIN_BYTES = 1024 * 1024
# Messages that an end reads in one iteration of the loop, so that other tasks run, too.
FRAMES_A_TURN = 64
# Nested immediate reads, if a handler is itself the client of another in-memory server: each call
# is two reads, and takes a dozen frames of Python's stack.
MAX_NESTED = 16
# How long cancelled handlers may clean up.
CLEAN_UP_S = 5.0

# Called with every message as it is written, and the side that writes it.
OnFrame: TypeAlias = Callable[[Side, bytes], None]

M = TypeVar("M")


class FrameReceiver(Protocol):
    """Reads the messages of an end: a duplex."""

    def receive(self, frame: bytes) -> None: ...

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


class NestingDepth:
    """The number of nested immediate reads, in one loop."""

    def __init__(self) -> None:
        self.depth = 0


_depths: "WeakKeyDictionary[asyncio.AbstractEventLoop, NestingDepth]" = WeakKeyDictionary()


class End:
    """One end of a pair: the channel of the duplex that is passed to `join`."""

    def __init__(self, side: Side, on_frame: OnFrame | None = None) -> None:
        self.side = side
        self.other: End = self  # set by `connected_pair`
        self._on_frame = on_frame
        self._reader: FrameReceiver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._depth = NestingDepth()
        self._on_closed: Callable[[], None] | None = None
        # Messages to be read, each with the context in which it was written.
        self._received: deque[tuple[bytes, Context]] = deque()
        self._unread_bytes = 0
        self._read_handle: asyncio.Handle | None = None
        self._busy = False
        self._immediate_reads = 0
        self._drained = asyncio.Event()
        self._close_reason: str | None = None
        self._closed: str | None = None
        self._closed_event = asyncio.Event()

    def __repr__(self) -> str:
        return f"End({self.side.value}, {self._closed or 'open'})"

    def join(self, reader: FrameReceiver, on_closed: Callable[[], None] | None = None) -> None:
        """Pass messages to this reader; call `on_closed` when the end is closed."""
        if self._reader is not None:
            raise LocalProtocolError(f"this end has a reader already: {self!r}")
        self._reader, self._on_closed = reader, on_closed
        self._loop = asyncio.get_running_loop()
        self._depth = _depths.setdefault(self._loop, self._depth)
        self._schedule_read()

    def open_conversation(self, link: DuplexLink, events: ConnectionEvents) -> ClientDuplex:
        """Open a client's connection on this end."""
        conversation = MemoryConversation(link, self, events)
        self.join(conversation, events.on_closed)
        return conversation

    # ------------------------------------------------------------ out

    def write(self, frame: bytes) -> None:
        """Send one message: it is read now, or in a later iteration of the loop."""
        other = self.other
        if self._closed is not None or other._close_reason is not None:
            return
        if self._on_frame is not None:
            self._on_frame(self.side, frame)
        reader = other._reader
        if (
            reader is None
            or other._busy
            or other._received
            or other._immediate_reads >= FRAMES_A_TURN
            or other._depth.depth >= MAX_NESTED
        ):
            other._queue(frame)
        else:
            other.read_now(reader.receive, frame)

    async def drain(self) -> None:
        """Wait while the other end has much to read. Raises `ConnectionLost`."""
        while self.other._unread_bytes > DRAIN_BYTES and self._closed is None:
            self.other._drained.clear()
            await self.other._drained.wait()
        if self._closed is not None:
            raise ConnectionLost(self._closed)

    # ------------------------------------------------------------ in

    def _queue(self, frame: bytes) -> None:
        if self._unread_bytes + len(frame) > MAX_UNREAD_BYTES:
            self._schedule_close(f"the {self.side.value} left {MAX_UNREAD_BYTES} bytes unread")
            return
        self._received.append((frame, copy_context()))
        self._unread_bytes += len(frame)
        self._schedule_read()

    def direct_reader(self) -> FrameReceiver | None:
        """The reader of the other end, if a message could be passed to it now as an object: it
        would be read now, and is not recorded."""
        other = self.other
        if (
            self._on_frame is not None
            or self._closed is not None
            or other._close_reason is not None
            or other._busy
            or other._received
            or other._immediate_reads >= FRAMES_A_TURN
            or other._depth.depth >= MAX_NESTED
        ):
            return None
        return other._reader

    def read_now(self, read: Callable[[M], None], message: M) -> None:
        """Read a message that was just written."""
        depth = self._depth
        self._busy = True
        self._immediate_reads += 1
        depth.depth += 1
        try:
            read(message)
        except Exception as error:  # an error of the reader, not of the writer
            context = {"message": f"the {self.side.value} could not read", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            depth.depth -= 1
            self._busy = False
            if self._received or self._close_reason is not None:
                self._schedule_read()

    def _schedule_read(self) -> None:
        if self._read_handle is None and self._loop is not None:
            self._read_handle = self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_handle = None
        self._immediate_reads = 0
        self._busy = True
        try:
            for _ in range(min(FRAMES_A_TURN, len(self._received))):
                self._read_one()
        finally:  # the rest is read even if a callback of the duplex raises
            self._busy = False
            if self._received:
                self._schedule_read()
            elif self._close_reason is not None:
                self._close(self._close_reason)

    def _read_one(self) -> None:
        if not self._received or self._reader is None:
            return  # the previous message closed this end
        frame, context = self._received.popleft()
        self._unread_bytes -= len(frame)
        if self._unread_bytes <= DRAIN_BYTES:
            self._drained.set()
        context.run(self._reader.receive, frame)

    # ------------------------------------------------------------ closing

    async def close(self, why: str = "the connection was closed") -> None:
        """Close both ends and wait until their tasks have ended; may be called at any time, and
        more than once."""
        self._schedule_close(why)
        self._close(self._close_reason or why)  # the first reason is kept
        ends = (self, self.other)
        for end in ends:
            if end._reader is not None:
                await end._closed_event.wait()
        for end in ends:
            if end._reader is not None:
                await end._reader.ended(CLEAN_UP_S)

    def _schedule_close(self, why: str) -> None:
        """Close both ends once the queued messages are read."""
        for end in (self, self.other):
            if end._close_reason is None:
                end._close_reason = why
                end._schedule_read()

    def _close(self, why: str) -> None:
        if self._closed is not None:
            return
        self._closed = why
        self._received.clear()
        self._unread_bytes = 0
        self._drained.set()
        self.other._drained.set()
        self._closed_event.set()
        if self._read_handle is not None:
            self._read_handle.cancel()
            self._read_handle = None
        if self._on_closed is not None:
            self._on_closed()
        if self._reader is not None:
            self._reader.close(why)


class MemoryConversation(ClientDuplex):
    """A client's connection to a server in this process.

    A plain tool call is not encoded and decoded: it is opened at the server's link at once, and its
    result is passed back as it is. Everything else is sent in messages: notifications,
    cancellation, errors, input requests. Guarded by the row `memory` of `scripts/bench`: without
    this a call takes twice as long.
    """

    def __init__(self, link: DuplexLink, end: End, events: ConnectionEvents) -> None:
        super().__init__(link, end, events, loop_time)
        self._end = end

    def _send_request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        on_progress: ProgressCallback | None = None,
        probing: Revision | None = None,
        declared: "RequestDeclaration | None" = None,
    ) -> tuple[RequestId, "asyncio.Future[Raw]"]:
        server = self._end.direct_reader() if method == CALL and not self._input_ended else None
        if isinstance(server, MemoryDuplex):
            now = self._loop.time()
            max_s = MAX_S if timeout_s < MAX_S else timeout_s
            wanted = on_progress is not None
            exchange = self.link.call(server.link, params, now, timeout_s, max_s, wanted, declared)
            if exchange is not None:
                id = exchange.request.id
                if on_progress is not None:
                    self._progress_callbacks[id] = on_progress
                response = self._wait_for(id, now + timeout_s)
                self._end.other.read_now(server.start, exchange)
                return id, response
        return super()._send_request(method, params, timeout_s, on_progress, probing, declared)

    def take_result(self, id: RequestId, result: Raw) -> None:
        """Pass on the result of a call that was not sent in a message."""
        future = self._waiting.pop(id, None)
        if self.link.settle_call(id) and future is not None and not future.done():
            future.set_result(result)


class MemoryDuplex(Duplex):
    """A server's connection to a client in this process."""

    channel: End

    def start(self, exchange: Exchange) -> None:
        """Handle a call that was not sent in a message."""
        self._start(exchange)

    def _write_response(self, exchange: Exchange, data: bytes) -> None:
        request, end = exchange.request, self.channel
        if request.split_params is not None and not request.frame:
            client = end.direct_reader()
            result = plain_result(data, request.raw_id)
            if result is not None and isinstance(client, MemoryConversation):
                client.take_result(request.id, result)
                return
        end.write(data)


def connected_pair(on_frame: OnFrame | None = None) -> tuple[End, End]:
    """The two ends of a new connection: the client's, then the server's."""
    near, far = End(Side.CLIENT, on_frame), End(Side.SERVER, on_frame)
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
    """Serve the client at the other end, until either end is closed. The service must be started.

    `principal` is the client's name, `scopes` are its scopes, None if they are not checked. With
    `debug`, the client is sent the exception of a handler that failed.
    """
    caller = Caller(principal)

    def identity() -> Identity:
        return service.identity.for_callers(Callers.SINGLE)

    link = DuplexLink(Side.SERVER, identity(), service.accepts, caller.principal, identity)
    link.scopes = frozenset(scopes) if scopes is not None else None

    def on_notification(event: NotificationReceived) -> None:
        service.on_notification(replace(event, owner=duplex), link.peer)

    duplex = MemoryDuplex(
        link,
        end,
        service.respond,
        on_notification=on_notification,
        clock=loop_time,
        debug=debug,
        telemetry=service.telemetry,
    )
    end.join(duplex, service.watch_changes(duplex.notify_change, link.principal))
    return duplex


def loop_time() -> float:
    """The time of the running loop's clock, which a test may have replaced."""
    return asyncio.get_running_loop().time()
