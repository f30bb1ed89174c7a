"""Waiting with others: for one start that many need, and for anything to change.

Rules: whoever gives up takes nothing from the others. Every wait for a change has an end.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Start(Generic[T]):
    """One start, for all who wait for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        self._waiting = 0

    @property
    def given_up(self) -> bool:
        """Whether nobody wants it any more, so that nobody may join it."""
        return self.task.cancelling() > 0

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it who has not seen yet what it came to."""
        return self._waiting > 0

    async def wait(self) -> None:
        """Until it has come to something. The last who gives up stops it."""
        self._waiting += 1
        try:
            await asyncio.wait([self.task])
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.task.cancel()


class Bell:
    """Rings when something has changed, for those who wait at that moment."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Something has changed: look again, in the order in which you came."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, until: float) -> bool:
        """Whether it rang before this time of the loop."""
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(rung)
        try:
            async with asyncio.timeout_at(until):
                await rung
        except TimeoutError:
            return False
        finally:
            if rung in self._waiters:
                self._waiters.remove(rung)
        return True
