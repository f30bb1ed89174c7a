"""One stream of a session: what is sent on it, in order, and kept for a reader who comes back.

A stream outlives its connections. Whoever is connected reads it, one at a time; whoever lost the
connection names the last event that arrived, and gets exactly what came after it.

Rules: a message is put on one stream and stays there. What is kept is bounded; what is unread
makes its sender wait while somebody reads, and is dropped, oldest first, while nobody does.
"""

import asyncio
from collections.abc import Callable
from itertools import islice

from colonnade.protocol.byte_budget import ByteBudget
from colonnade.protocol.http.sse import encode_event, priming_event
from colonnade.protocol.subscriptions import STRING_BYTES
from colonnade.transport.http_server.request import Visit, overload

# Above this, whoever reports on the way waits for the reader.
QUEUE_BYTES = 256 * 1024
# What a stream takes that is kept with nothing on it.
STREAM_BYTES = 1024


class Ledger:
    """How many bytes the streams of one session keep, and by `all_sessions` those of all."""

    def __init__(self, all_sessions: "Ledger | None" = None) -> None:
        self.size: int = 0
        self._all_sessions = all_sessions

    def add(self, size: int) -> None:
        """So many more, or fewer."""
        self.size += size
        if self._all_sessions is not None:
            self._all_sessions.size += size


class Stream:
    """A numbered sequence of messages with at most one reader.

    `streamable`: its client takes events. `resumable`: a lost reader may come back. `primed`: a
    reader gets an event to come back to at once, and may be let go.
    """

    # What most streams never change are defaults of the class: every request in a session has one.
    size: int = 0
    unread: int = 0
    over: bool = False
    streaming: bool = False
    for_news: bool = False
    # Whether the request that it belongs to still has a connection.
    awaited: bool = False
    left_at: float = 0.0
    # How many calls still run that answer on it, and how many answers of a batch are ready.
    pending: int = 0
    boxed: int = 0
    # Requests of ours on it that wait for an answer.
    asked: int = 0
    # What the credentials allowed that it was opened with; None where none are looked at.
    scopes: frozenset[str] | None = None
    on_caught_up: Callable[[], None] | None = None
    on_streaming: Callable[[], None] | None = None
    _last = 0
    _seen = 0
    _reader: Visit | None = None
    _served = False
    _parting = False
    _news: "asyncio.Future[None] | None" = None
    _end: "asyncio.Future[None] | None" = None
    _room: "asyncio.Future[None] | None" = None

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        *,
        streamable: bool,
        resumable: bool = True,
        primed: bool = False,
        retry_ms: int = 0,
    ) -> None:
        self.name = name
        self.streamable = streamable
        self.resumable = resumable
        self._ledger: Ledger | None = ledger
        self._primed = primed
        self._retry_ms = retry_ms
        self._entries: list[tuple[int, bytes]] = []

    # ------------------------------------------------------------ what is put on it

    def put(self, frame: bytes) -> None:
        """A message before the answer: from here on this is a stream of events."""
        self.commit()
        self.answer(frame)

    def answer(self, frame: bytes) -> None:
        """An answer; alone, it needs no stream."""
        if self.over:
            return
        self._last += 1
        self._entries.append((self._last, frame))
        self._grow(len(frame))
        self.unread += len(frame)
        self._wake()

    def commit(self) -> None:
        """Become a stream of events: there is one, or somebody has waited long enough."""
        if not self.streaming and not self.over:
            self.streaming = True
            if self.on_streaming is not None:
                self.on_streaming()

    def finish(self) -> None:
        """Nothing more comes."""
        self.over = True
        self._wake()
        self._make_room()
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def finished(self) -> None:
        """Wait until nothing more comes."""
        if not self.over:
            self._end = asyncio.get_running_loop().create_future()
            await self._end

    def part(self) -> bool:
        """Let the reader go, to come back for the rest; False where it knows no way back."""
        if not self._primed or self.over:
            return False
        if self._reader is not None or not self._served:
            self._parting = True
            self.commit()
            self._wake()
        return True

    def trim(self, limit: int) -> None:
        """Forget the oldest messages beyond this many bytes; never the last, nor what somebody
        who is there has still to read."""
        while self.size > limit and len(self._entries) > 1:
            number, frame = self._entries[0]
            if number > self._seen:
                if self.attended:
                    return
                self._seen = number
                self.unread -= len(frame)
            del self._entries[0]
            self._grow(-len(frame))

    def forget(self) -> None:
        """It ends, and nothing is kept of it but what is being read."""
        self.finish()
        if self._ledger is not None:
            self._ledger.add(-self.size)
            self._ledger = None

    def _grow(self, size: int) -> None:
        self.size += size
        if self._ledger is not None:
            self._ledger.add(size)

    async def drained(self) -> None:
        """Wait while somebody has much to read."""
        while self.attended and not self.over and self.unread > QUEUE_BYTES:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    # ------------------------------------------------------------ who reads it

    @property
    def read(self) -> bool:
        """Whether somebody reads it now."""
        return self._reader is not None

    @property
    def attended(self) -> bool:
        """Whether somebody reads it, or is about to."""
        return self._reader is not None or self.awaited

    def leave(self) -> None:
        """The request that it belongs to has no connection any more."""
        self.awaited = False
        self._make_room()

    @property
    def fetchable(self) -> bool:
        """Whether somebody knows of it, and may come back for the rest."""
        return self._served and self.resumable

    def has(self, number: int) -> bool:
        """Whether everything after this event is still kept."""
        return self._last - len(self._entries) <= number <= self._last

    def frames(self) -> list[bytes]:
        """What was put on it."""
        return [frame for _, frame in self._entries]

    async def serve(self, visit: Visit, after: int = 0) -> None:
        """Write everything after an event to a visit, until the end or until it is left."""
        if self._reader is not None:
            # Whoever comes back has lost the connection that we still believe in.
            self._reader.leave("the stream was taken up on another connection")
        self._reader = visit
        self._rewind(after)
        first = b"" if self._served else self._prime()
        self._served = True
        try:
            await visit.open(first)
            while not self._parting:
                if self.unread:
                    await visit.write(self._take())
                    self._make_room()
                elif self.over:
                    await visit.end()
                    return
                else:
                    if self.on_caught_up is not None:
                        self.on_caught_up()
                    if not self.unread:
                        await self._wait()
            # R0489; without an id: each is said once (R0278), and the reader knows the last one.
            await visit.end(self._take() + encode_event(b"", retry_ms=self._retry_ms))
        finally:
            self.let_go(visit)

    def let_go(self, visit: Visit) -> None:
        """This reader reads no more."""
        if self._reader is visit:
            self._reader = None
            self._parting = False
            self.left_at = asyncio.get_running_loop().time()
            self._make_room()

    def _rewind(self, after: int) -> None:
        self._seen = after
        self.unread = sum(len(frame) for number, frame in self._entries if number > after)

    def _take(self) -> bytes:
        """What is unread, as events; from here on it counts as read."""
        count = self._last - self._seen
        newest = list(islice(reversed(self._entries), count))
        newest.reverse()
        self._seen = self._last
        self.unread = 0
        if not self.resumable:
            return b"".join([encode_event(frame) for _, frame in newest])
        return b"".join(
            [encode_event(frame, id=f"{self.name}-{number}") for number, frame in newest]
        )

    def _prime(self) -> bytes:
        """R0486: an event to come back to."""
        return priming_event(f"{self.name}-0", self._retry_ms) if self._primed else b""

    # ------------------------------------------------------------ waiting

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None


# What all sessions together, and those of one principal, keep of the URIs that they follow: two
# hundred thousand short ones.
SUBSCRIBED_BYTES = 64 * 1024 * 1024
SUBSCRIBED_BYTES_PER_PRINCIPAL = 16 * 1024 * 1024


class SubscribedUris(set[str]):
    """The URIs that one session follows."""

    def __init__(self, budget: ByteBudget, principal: str) -> None:
        super().__init__()
        self._budget = budget
        self._principal = principal

    def add(self, uri: str) -> None:
        """Follow one more. Raises `Refusal` (503) where all sessions follow too much."""
        if uri in self:
            return
        if not self._budget.reserve(self._principal, _size(uri)):
            raise overload("too many resources are followed at once; unsubscribe from some")
        super().add(uri)

    def discard(self, uri: object) -> None:
        """Follow it no more."""
        if isinstance(uri, str) and uri in self:
            super().discard(uri)
            self._budget.release(self._principal, _size(uri))

    def clear(self) -> None:
        """Follow nothing any more."""
        size = sum(map(_size, self))
        if size:
            super().clear()
            self._budget.release(self._principal, size)


def _size(uri: str) -> int:
    return len(uri) + STRING_BYTES


def subscribed_budget() -> ByteBudget:
    """What all sessions of one kind together may keep."""
    return ByteBudget(SUBSCRIBED_BYTES, SUBSCRIBED_BYTES_PER_PRINCIPAL)
