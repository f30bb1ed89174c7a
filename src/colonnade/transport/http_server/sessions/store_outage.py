"""Whether the store of the sessions responds, and how messages wait during an outage; delete with
2025-11-25.

A message that can wait is not refused at once: some clients end their session when a POST gets 503.
After a minute without the store, messages no longer wait.

Rules: one failed operation begins an outage, and one successful operation ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from colonnade.errors import ChannelError

log: logging.Logger = logging.getLogger("colonnade.transport")

# During an outage, sessions with a copy in this process go on for this long, and messages wait.
WITHOUT_STORE_S = 60.0
# After a failure, the store is not tried again for this long.
RETRY_S = 1.0
# Messages that wait for the store at once; each holds a request and its body.
MAX_WAITING_MESSAGES = 256

T = TypeVar("T")


class StoreOutage:
    """The times of the store's failures, and the messages that wait for the store. `clock` is
    monotonic; a message waits for `wait_s` at most."""

    def __init__(self, clock: Callable[[], float], wait_s: float) -> None:
        self._clock = clock
        self._wait_s = wait_s
        # The first and the last failure since the store last responded.
        self._failed_at: float | None = None
        self._failed_last = float("-inf")
        self._responded = asyncio.Event()
        self._waiting = 0

    @property
    def is_recent(self) -> bool:
        """Whether the store has just failed: another call would wait for its timeout."""
        return self._failed_at is not None and self._clock() - self._failed_last < RETRY_S

    @property
    def is_long(self) -> bool:
        """Whether copies of sessions may be too old to be used."""
        failed_at = self._failed_at
        return failed_at is not None and self._clock() - failed_at > WITHOUT_STORE_S

    def was_within(self, seconds: float) -> bool:
        """Whether the store has failed within this time."""
        return self._clock() - self._failed_last < seconds

    def note(self, since: float) -> None:
        """Note that the store has been failing since then, although it may respond."""
        self._failed_at = self._failed_at or since

    async def tried(self, operation: Awaitable[T]) -> T:
        """Return the result of a store operation, and note whether the store responds."""
        try:
            result = await operation
        except ChannelError:
            self._failed_last = self._clock()
            self._responded.clear()
            if self._failed_at is None:
                self._failed_at = self._failed_last
                log.warning("the store of the sessions does not respond")
            raise
        self._failed_at = None
        self._responded.set()
        return result

    async def waited(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of work that uses the store. While the store does not respond and time
        is left, the work is repeated. Raises `ChannelError`."""
        give_up_at = self._clock() + self._wait_s
        while True:
            try:
                return await work()
            except ChannelError:
                left_s = give_up_at - self._clock()
                if left_s <= 0 or self.is_long or self._waiting >= MAX_WAITING_MESSAGES:
                    raise
            self._waiting += 1
            try:
                async with asyncio.timeout(min(RETRY_S, left_s)):
                    await self._responded.wait()
            except TimeoutError:
                pass  # try again anyway: no other operation may be using the store
            finally:
                self._waiting -= 1
