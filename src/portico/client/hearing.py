"""Handlers that a program gave for news: called in the order in which the news came.

Rules: one that raises is logged, and is no reason to end a conversation. One that is `async` and
slow makes what comes later wait, up to a bound; beyond that news is dropped, and that is logged.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

log: logging.Logger = logging.getLogger("portico.client")

# News that waits for a slow handler; a server says as much in a second if it wants to.
MAX_WAITING = 1000
# For a handler that was stopped to clean up.
CLEAN_UP_S = 5.0


class Hearing:
    """Calls handlers one after the other, in a task only while one of them waits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._dropped = 0

    def tell(self, handler: Callable[..., Any], *news: Any) -> None:
        """Call a handler now, or after those that are still at work."""
        if self._closed:
            return
        if self._task is not None:
            self._keep(handler, news)
            return
        made = _called(handler, news)
        if made is not None:
            self._task = asyncio.get_running_loop().create_task(self._work(made))

    def _keep(self, handler: Callable[..., Any], news: tuple[Any, ...]) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append((handler, news))
            return
        if not self._dropped:
            log.warning("%r is too slow: news is dropped", handler)
        self._dropped += 1

    async def _work(self, made: Awaitable[Any] | None) -> None:
        try:
            while made is not None or self._waiting:
                if made is not None:
                    await _awaited(made)
                made = _called(*self._waiting.popleft()) if self._waiting else None
        finally:
            self._task = None

    async def caught_up(self) -> None:
        """Wait until every handler that was called so far is done, or nothing is heard any more."""
        task = self._task
        if task is not None and task is not asyncio.current_task():
            reached = asyncio.get_running_loop().create_future()
            self._keep(_reach, (reached,))
            await asyncio.wait([task, reached], return_when=asyncio.FIRST_COMPLETED)
            reached.cancel()

    async def close(self) -> None:
        """Hear no more: what is at work is stopped."""
        self._closed = True
        self._waiting.clear()
        task = self._task
        if task is not None and task is not asyncio.current_task():
            await asyncio.sleep(0)  # what was called has begun
            task.cancel()
            await asyncio.wait([task], timeout=CLEAN_UP_S)


def _reach(mark: "asyncio.Future[None]") -> None:
    if not mark.done():
        mark.set_result(None)


def _called(handler: Callable[..., Any], news: tuple[Any, ...]) -> Awaitable[Any] | None:
    """Call a handler; what is still to be waited for, if it waits."""
    try:
        made = handler(*news)
    except Exception as error:
        _complain(error)
        return None
    return made if inspect.isawaitable(made) else None


async def _awaited(made: Awaitable[Any]) -> None:
    try:
        await made
    except Exception as error:
        _complain(error)


def _complain(error: Exception) -> None:
    log.error("a handler of news raised %s", type(error).__name__, exc_info=error)
