"""Handlers that a program gave for news: called in the order in which the news came.

Rules: one that raises is logged, and is no reason to end a conversation. One that is `async` and
slow makes what comes later wait, up to bounds; beyond them news is dropped, and that is logged.
Waiting for callbacks has a limit too: one that hangs delays its caller once.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Any

log: logging.Logger = logging.getLogger("colonnade.client")

# News that waits for a slow handler; a server says as much in a second if it wants to.
MAX_WAITING = 1000
# All that waits, as it was sent: a log message may be as large as any message, 64 MiB.
MAX_WAITING_BYTES = 16 * 1024 * 1024
# For a handler that was stopped to clean up.
CLEAN_UP_S = 5.0
# How long a call, or `close`, waits for callbacks after the response has come: long enough for some
# that write to a disk or a database, short enough that one that hangs is noticed.
CATCH_UP_S = 10.0

# The callbacks that this code runs for, if it does. A call that a callback makes must not wait for
# that callback, also where it is made in another task or thread: the program's own code is in
# between, so that no argument can carry this.
_inside: ContextVar["Hearing | None"] = ContextVar("colonnade.client.callback_queue", default=None)


class Hearing:
    """Calls handlers one after the other, in a task only while one of them waits."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._dropped = 0
        # Whether waiting for what is at work now has taken too long already.
        self._late = False

    @property
    def behind(self) -> bool:
        """Whether callbacks are at work, or wait for their turn."""
        return self._task is not None

    def tell(self, handler: Callable[..., Any], *news: Any, size: int = 0) -> None:
        """Call a handler now, or after those that are still at work. `size` is how many bytes the
        server sent for this."""
        if self._closed:
            return
        if self._task is not None:
            self._keep(handler, news, size)
            return
        made = _called(handler, news)
        if made is not None:
            context = copy_context()
            context.run(_inside.set, self)
            work = self._work(made)
            self._task = asyncio.get_running_loop().create_task(work, context=context)

    def _keep(self, handler: Callable[..., Any], news: tuple[Any, ...], size: int) -> None:
        # What is too large for the limit by itself is kept while nothing else of size waits.
        fits = not self._bytes or self._bytes + size <= MAX_WAITING_BYTES or not size
        if len(self._waiting) < MAX_WAITING and fits:
            self._waiting.append((handler, news, size))
            self._bytes += size
            return
        if not self._dropped:
            log.warning("%r is too slow: news is dropped", handler)
        self._dropped += 1

    async def _work(self, made: Awaitable[Any] | None) -> None:
        try:
            while made is not None or self._waiting:
                if made is not None:
                    await _awaited(made)
                made = self._next()
        finally:
            self._task = None
            self._late = False

    def _next(self) -> Awaitable[Any] | None:
        if not self._waiting:
            return None
        handler, news, size = self._waiting.popleft()
        self._bytes -= size
        return _called(handler, news)

    async def caught_up(self) -> None:
        """Wait until every handler that was called so far is done, or nothing is heard any more.

        It returns after `CATCH_UP_S` in any case; then, until all have been called, at once.
        """
        task = self._task
        if task is None or self._late or _inside.get() is self:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((_reach, (reached,), 0))
        waited_for = [task, reached]
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(waited_for, timeout=CATCH_UP_S, return_when=first)
        reached.cancel()
        if not done:
            self._late = True
            words = "a callback is slow: not waited for after %g s; %d messages wait for it"
            log.warning(words, CATCH_UP_S, self._count())

    async def close(self) -> None:
        """Hear no more: what is at work is stopped."""
        left = 0 if self._closed or _inside.get() is self else self._count()
        if left:
            log.warning("closed before every callback was called: %d messages are dropped", left)
        self._closed = True
        self._waiting.clear()
        self._bytes = 0
        task = self._task
        if task is not None and task is not asyncio.current_task():
            await asyncio.sleep(0)  # what was called has begun
            task.cancel()
            await asyncio.wait([task], timeout=CLEAN_UP_S)

    def _count(self) -> int:
        return sum(handler is not _reach for handler, _, _ in self._waiting)


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
