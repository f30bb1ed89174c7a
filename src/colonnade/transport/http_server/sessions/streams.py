"""A resumable event stream (SSE) of a session: its events, and those kept for `Last-Event-ID`.

A stream outlives its connections. One client at a time reads it; a client that lost its connection
names the last event that it received, and gets exactly what came after it.

Rules: a message is put on one stream and stays there. What is kept is bounded. While there is a
reader, unread events make their sender wait; without one they are dropped, oldest first.
"""

import asyncio
from collections.abc import Callable, Sequence

from colonnade.protocol.http.sse import encode_event, priming_event
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.subscriptions import STRING_BYTES
from colonnade.transport.http_server.request import IncomingRequest, overload

# With more unread bytes, a handler that sends notifications waits for the reader.
QUEUE_BYTES = 256 * 1024
# The memory of a stream that is kept without events.
STREAM_BYTES = 1024
# The memory of an event besides its message: most are small, and are kept for minutes.
EVENT_BYTES = 144


class ResumableBytes:
    """Counts the bytes that the streams of one session keep, and in `all_sessions` those of all."""

    def __init__(self, all_sessions: "ResumableBytes | None" = None) -> None:
        self.size: int = 0
        self._all_sessions = all_sessions

    def add(self, size: int) -> None:
        """Count so many more, or fewer."""
        self.size += size
        if self._all_sessions is not None:
            self._all_sessions.size += size


class Stream:
    """A numbered sequence of messages with at most one reader.

    `streamable`: its client accepts events. `resumable`: a client may reconnect to it. `primed`:
    its first event is one to resume from, so that the server may close the connection.
    """

    # What most streams never change are defaults of the class: every request in a session has one.
    size: int = 0
    unread: int = 0
    is_finished: bool = False
    has_started: bool = False
    for_notifications: bool = False
    # Whether the POST that it belongs to still has a connection.
    awaited: bool = False
    detached_at: float = 0.0
    # How many running calls respond on it, how many messages its batch has, and the ids of the
    # requests among them, as they were written.
    pending: int = 0
    batch_size: int = 0
    batch_ids: Sequence[bytes] = ()
    # Requests to the client on it that wait for a response.
    open_requests: int = 0
    # The scopes that it was opened with; None if none are checked.
    scopes: frozenset[str] | None = None
    # Events of an earlier stream, which are sent first.
    replayed: bytes = b""
    on_caught_up: Callable[[], None] | None = None
    on_start: Callable[[], None] | None = None
    # Done when its log can be read in other processes; None for a stream without a log.
    _logged: "asyncio.Future[None] | None" = None
    _last = 0
    _seen = 0
    _reader: IncomingRequest | None = None
    _served = False
    _disconnecting = False
    _changed: "asyncio.Future[None] | None" = None
    _end: "asyncio.Future[None] | None" = None
    _room: "asyncio.Future[None] | None" = None

    def __init__(
        self,
        name: str,
        ledger: ResumableBytes,
        *,
        streamable: bool,
        resumable: bool = True,
        primed: bool = False,
        retry_ms: int = 0,
    ) -> None:
        self.name = name
        self.streamable = streamable
        self.resumable = resumable
        self._ledger: ResumableBytes | None = ledger
        self._primed = primed
        self._retry_ms = retry_ms
        self._entries: list[tuple[int, bytes]] = []

    # ------------------------------------------------------------ writing

    def put(self, frame: bytes) -> None:
        """Add a message before the response; from here on this is an event stream."""
        self.start()
        self.put_response(frame)

    def put_response(self, frame: bytes) -> None:
        """Add a response; alone, it needs no event stream."""
        if self.is_finished:
            return
        self._last += 1
        self._entries.append((self._last, frame))
        self._grow(len(frame) + EVENT_BYTES)
        if self._last > self._seen:
            self.unread += len(frame)
        self._wake()

    def put_numbered(self, number: int, frame: bytes) -> None:
        """Add a message with a given number. Events between the last number and this one are
        gone."""
        self._last = number - 1
        self.put_response(frame)

    def start(self) -> None:
        """Become an event stream: there is an event, or the client has waited long enough."""
        if not self.has_started and not self.is_finished:
            self.has_started = True
            if self.on_start is not None:
                self.on_start()

    def finish(self) -> None:
        """End it: no more events come."""
        self.is_finished = True
        self._wake()
        self._wake_writers()
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def wait_finished(self) -> None:
        """Wait for its end."""
        if not self.is_finished:
            self._end = asyncio.get_running_loop().create_future()
            await self._end

    def disconnect_client(self) -> bool:
        """Close the connection of the reader, which reconnects for the rest; False if it cannot."""
        if not self._primed or self.is_finished:
            return False
        if self._reader is not None or not self._served:
            self._disconnecting = True
            self.start()
            self._wake()
        return True

    def trim(self, limit: int) -> None:
        """Forget the oldest messages beyond this many bytes; never the last, nor what a connected
        reader has still to read."""
        while self.size > limit and len(self._entries) > 1:
            number, frame = self._entries[0]
            if number > self._seen:
                if self.has_reader:
                    return
                self._seen = number
                self.unread -= len(frame)
            del self._entries[0]
            self._grow(-len(frame) - EVENT_BYTES)

    def forget(self) -> None:
        """End it, and keep nothing of it but what is being read."""
        self.finish()
        if self._ledger is not None:
            self._ledger.add(-self.size)
            self._ledger = None

    def _grow(self, size: int) -> None:
        self.size += size
        if self._ledger is not None:
            self._ledger.add(size)

    async def wait_for_reader(self) -> None:
        """Wait while the reader has much to read."""
        while self.has_reader and not self.is_finished and self.unread > QUEUE_BYTES:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    # ------------------------------------------------------------ reading

    @property
    def is_read(self) -> bool:
        """Whether a client reads it now."""
        return self._reader is not None

    @property
    def has_reader(self) -> bool:
        """Whether a client reads it, or is about to."""
        return self._reader is not None or self.awaited

    def request_over(self) -> None:
        """The POST that it belongs to has no connection any more."""
        self.awaited = False
        self._wake_writers()

    @property
    def can_resume(self) -> bool:
        """Whether a client has read from it, and may reconnect for the rest."""
        return self._served and self.resumable

    @property
    def newest(self) -> int:
        """The number of the newest event that the client may have."""
        return self._last

    def has_all_after(self, number: int) -> bool:
        """Whether everything after this event is still kept."""
        return self._last - len(self._entries) <= number

    def frames(self) -> list[bytes]:
        """The messages on it."""
        return [frame for _, frame in self._entries]

    async def serve(self, incoming: IncomingRequest, after: int = 0) -> None:
        """Write everything after an event to a response, until the end or a disconnect."""
        self.abort_reader()
        self._reader = incoming
        self._rewind(after)
        first = b"" if self._served else self.replayed + self._prime()
        self._served = True
        try:
            if self._logged is not None:
                await asyncio.shield(self._logged)
            await incoming.start_stream(first)
            while not self._disconnecting:
                if self.unread:
                    await incoming.write(self._take())
                    self._wake_writers()
                elif self.is_finished:
                    await incoming.end_stream()
                    return
                else:
                    if self.on_caught_up is not None:
                        self.on_caught_up()
                    if not self.unread:
                        await self._wait()
            # R0489; without an id: each is sent once (R0278), and the client has the last one.
            await incoming.end_stream(self._take() + encode_event(b"", retry_ms=self._retry_ms))
        finally:
            self.detach(incoming)

    def abort_reader(self) -> None:
        """Close the connection that still seems to read it: its client has reconnected, so it has
        lost that one."""
        if self._reader is not None:
            self._reader.abort("the stream was resumed on another connection")

    def continue_after(self, number: int) -> None:
        """Continue a stream of another process, whose client has everything up to this event."""
        self._last = number
        self._served = self.has_started = True

    @property
    def last_number(self) -> int:
        """The number of the last message on it."""
        return self._last

    def detach(self, incoming: IncomingRequest) -> None:
        """This client reads it no more."""
        if self._reader is incoming:
            self._reader = None
            self._disconnecting = False
            self.detached_at = asyncio.get_running_loop().time()
            self._wake_writers()

    def _rewind(self, after: int) -> None:
        self._seen = after
        self.unread = sum(len(frame) for number, frame in self._entries if number > after)

    def _take(self) -> bytes:
        """The unread messages as events; from here on they count as read."""
        newest: list[tuple[int, bytes]] = []
        for entry in reversed(self._entries):
            if entry[0] <= self._seen:
                break
            newest.append(entry)
        newest.reverse()
        self._seen = max(self._seen, self._last)
        self.unread = 0
        if not self.resumable:
            return b"".join([encode_event(frame) for _, frame in newest])
        return b"".join(
            [encode_event(frame, id=f"{self.name}-{number}") for number, frame in newest]
        )

    def _prime(self) -> bytes:
        """R0486: an event to resume from."""
        return priming_event(f"{self.name}-0", self._retry_ms) if self._primed else b""

    # ------------------------------------------------------------ waiting

    async def _wait(self) -> None:
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _wake_writers(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None


# For the subscribed URIs of all sessions, and of those of one principal: two hundred thousand short
# ones.
SUBSCRIBED_BYTES = 64 * 1024 * 1024
SUBSCRIBED_BYTES_PER_PRINCIPAL = 16 * 1024 * 1024


class SubscribedUris(set[str]):
    """The URIs that one session has subscribed to.

    `max_bytes` limits what is added; None for no limit of its own.
    """

    max_bytes: int | None = None

    def __init__(self, budget: ByteBudget, principal: str) -> None:
        super().__init__()
        self._budget = budget
        self._principal = principal
        # How often it has changed.
        self.changes: int = 0
        self._size = 0

    def add(self, uri: str) -> None:
        """Subscribe to one more. Raises `HttpError` (503) if this session or all have too many."""
        if self.max_bytes is not None and self._size + _size(uri) > self.max_bytes:
            if uri in self:
                return
            raise overload("too many resource subscriptions; unsubscribe from some")
        self.restore(uri)

    def restore(self, uri: str) -> None:
        """Add one that was added elsewhere. Raises `HttpError` (503) if all sessions have too
        many."""
        if uri in self:
            return
        if not self._budget.reserve(self._principal, _size(uri)):
            raise overload("too many resource subscriptions; unsubscribe from some")
        super().add(uri)
        self.changes += 1
        self._size += _size(uri)

    def discard(self, uri: object) -> None:
        """Unsubscribe from one."""
        if isinstance(uri, str) and uri in self:
            super().discard(uri)
            self.changes += 1
            self._size -= _size(uri)
            self._budget.release(self._principal, _size(uri))

    def clear(self) -> None:
        """Unsubscribe from all."""
        size, self._size = self._size, 0
        if size:
            super().clear()
            self._budget.release(self._principal, size)


def _size(uri: str) -> int:
    return len(uri) + STRING_BYTES


def subscribed_budget() -> ByteBudget:
    """The budget for the subscribed URIs of all sessions of one kind."""
    return ByteBudget(SUBSCRIBED_BYTES, SUBSCRIBED_BYTES_PER_PRINCIPAL)
