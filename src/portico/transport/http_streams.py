"""One stream of a session: what is sent on it, in order, and kept for a reader who comes back.

A stream outlives its connections. Whoever is connected reads it, one at a time; whoever lost the
connection names the last event that arrived, and gets exactly what came after it.

Rules: a message is put on one stream and stays there. What is kept is bounded; what is unread
makes its sender wait while somebody reads, and is dropped, oldest first, while nobody does.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from portico.protocol.sse import prime, write
from portico.transport.http_visit import Visit

# Above this, whoever reports on the way waits for the reader.
QUEUE_BYTES = 256 * 1024


class Stream:
    """A numbered sequence of messages with at most one reader."""

    def __init__(
        self, name: str, *, streamable: bool, resumable: bool, primed: bool, retry_ms: int
    ) -> None:
        self.name = name
        self.streamable = streamable
        self.resumable = resumable
        self.size = 0
        self.over = False
        self.streaming = False
        self.for_news = False
        self.left_at = 0.0
        self.pending = 0
        self.boxed = 0
        self.on_caught_up: Callable[[], None] | None = None
        self._primed = primed
        self._retry_ms = retry_ms
        self._entries: deque[tuple[int, bytes]] = deque()
        self._last = 0
        self._seen = 0
        self._reader: Visit | None = None
        self._parting = False
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    # ------------------------------------------------------------ what is put on it

    def put(self, frame: bytes) -> None:
        """A message before the answer: from here on this is a stream of events."""
        self.streaming = True
        self._add(frame)

    def answer(self, frame: bytes) -> None:
        """An answer; alone, it needs no stream."""
        self._add(frame)

    def commit(self) -> None:
        """Become a stream of events before there is one: somebody has waited long enough."""
        self.streaming = True
        self._wake()

    def finish(self) -> None:
        """Nothing more comes."""
        self.over = True
        self._wake()
        self._make_room()

    def part(self) -> None:
        """Let the reader go; it comes back for the rest."""
        if self.resumable and self._primed and not self.over:
            self.streaming = True
            self._parting = True
            self._wake()

    def _add(self, frame: bytes) -> None:
        if self.over:
            return
        self._last += 1
        self._entries.append((self._last, frame))
        self.size += len(frame)
        self._wake()

    def trim(self, limit: int) -> None:
        """Forget the oldest messages beyond this many bytes; never the last, nor what is unread
        by somebody who reads."""
        while self.size > limit and len(self._entries) > 1:
            if self._reader is not None and self._entries[0][0] > self._seen:
                return
            self.size -= len(self._entries.popleft()[1])

    async def drained(self) -> None:
        """Wait while a reader has much to read."""
        while self._reader is not None and not self.over and self.unread > QUEUE_BYTES:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    @property
    def unread(self) -> int:
        """The bytes that the reader has not been given."""
        return sum(len(frame) for number, frame in self._entries if number > self._seen)

    # ------------------------------------------------------------ who reads it

    @property
    def read(self) -> bool:
        """Whether somebody reads it now."""
        return self._reader is not None

    def has(self, number: int) -> bool:
        """Whether everything after this event is still kept."""
        oldest = self._entries[0][0] if self._entries else self._last + 1
        return oldest - 1 <= number <= self._last

    def frames(self) -> list[bytes]:
        """What was put on it."""
        return [frame for _, frame in self._entries]

    async def decided(self) -> None:
        """Wait until it is over, or has become a stream of events."""
        while not self.over and not self.streaming:
            await self._wait()

    async def serve(self, visit: Visit, after: int = 0) -> None:
        """Write everything after an event to a visit, until the end or until it is left."""
        if self._reader is not None:
            # Whoever comes back has lost the connection that we still believe in.
            self._reader.leave("the stream was taken up on another connection")
        self._reader = visit
        self._seen = after
        self._parting = self._parting and after == 0
        try:
            first = prime(f"{self.name}-0", self._retry_ms) if self._primed and not after else b""
            await visit.open(first)
            while not self._parting:
                chunk = self._next()
                if chunk:
                    await visit.write(chunk)
                    self._make_room()
                elif self.over:
                    await visit.end()
                    return
                else:
                    if self.on_caught_up is not None:
                        self.on_caught_up()
                    if not self._entries or self._entries[-1][0] <= self._seen:
                        await self._wait()
            self._parting = False
            await visit.end(self._next() + prime(f"{self.name}-{self._seen}", self._retry_ms))
        finally:
            if self._reader is visit:
                self._reader = None
                self.left_at = asyncio.get_running_loop().time()
                self._make_room()

    def _next(self) -> bytes:
        unread = [entry for entry in self._entries if entry[0] > self._seen]
        if not unread:
            return b""
        self._seen = unread[-1][0]
        if not self.resumable:
            return b"".join([write(frame) for _, frame in unread])
        return b"".join([write(frame, id=f"{self.name}-{number}") for number, frame in unread])

    # ------------------------------------------------------------ waiting

    async def _wait(self) -> None:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
