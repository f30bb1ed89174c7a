"""Who listens to what, and what waits for each of them.

Rules: a publisher never waits. A listener that falls behind is cut and told so, never skipped in
silence: after a gap it must know that it missed something.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from colonnade.errors import ConnectionLost, Refused

# What may wait for one listener. A message that is larger alone is taken when nothing else waits.
QUEUE_MESSAGES = 256
QUEUE_BYTES = 256 * 1024


class Listening(AsyncIterator[bytes]):
    """The messages of one listener. Belongs to the loop of whoever listens."""

    def __init__(self) -> None:
        self.since = 0  # where messages have numbers, the last one before this began
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._over = False
        self._lost: str | None = None

    def offer(self, message: bytes) -> None:
        """Put a message where the listener finds it; cut the listener that lets too many wait."""
        if self._over:
            return
        waits = len(self._messages)
        if waits >= QUEUE_MESSAGES or (waits and self._bytes + len(message) > QUEUE_BYTES):
            words = f"listened too slowly: {waits} messages ({self._bytes} bytes) were waiting"
            self.cut(words)
        else:
            self._messages.append(message)
            self._bytes += len(message)
            self._news.set()

    def post(self, act: Callable[..., None], *arguments: str | bytes) -> None:
        """Do one of these from another thread."""
        with suppress(RuntimeError):  # the loop was closed, and nobody listens any more
            self._loop.call_soon_threadsafe(act, *arguments)

    def end(self) -> None:
        """No more will come; what waits can still be taken."""
        self._over = True
        self._news.set()

    def cut(self, why: str) -> None:
        """End with an error, at once: what waits is let go."""
        if not self._over:
            self._lost = why
            self._messages.clear()
            self.end()

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._lost is not None:
                raise ConnectionLost(f"{self._lost}; look anew, and listen again")
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message


class Topics:
    """All who listen, by principal and topic."""

    def __init__(self, per_principal: int) -> None:
        self._per_principal = per_principal
        self._listeners: dict[tuple[str, str], set[Listening]] = {}
        self._numbers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def join(self, principal: str, topic: str, listening: Listening) -> None:
        """Raises `Refused` where too many of a principal listen already."""
        number = self._numbers.get(principal, 0)
        if number >= self._per_principal:
            raise Refused(f"{number} listen for this principal, which is all that may")
        self._numbers[principal] = number + 1
        self._listeners.setdefault((principal, topic), set()).add(listening)

    def leave(self, principal: str, topic: str, listening: Listening) -> None:
        """Nothing where it is not here."""
        here = self._listeners.get((principal, topic))
        if here is None or listening not in here:
            return
        here.remove(listening)
        if not here:
            del self._listeners[principal, topic]
        self._numbers[principal] -= 1
        if not self._numbers[principal]:
            del self._numbers[principal]

    def at(self, principal: str, topic: str) -> tuple[Listening, ...]:
        """Those who listen to this now."""
        return tuple(self._listeners.get((principal, topic), ()))

    def everyone(self) -> tuple[Listening, ...]:
        return tuple(one for here in self._listeners.values() for one in here)
