"""One `subscriptions/listen` at work: news goes out as it happens, until one side ends it.

Rules: news that waits is bounded: a slow listener is told once that a list changed, however often
it did, and one that falls too far behind is ended.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from colonnade.protocol import types as t

Watcher: TypeAlias = Callable[[str, t.NotificationParams], None]


class News:
    """The changes of one server."""

    def __init__(self) -> None:
        # By a number each, so that thousands come and go without a search.
        self._watchers: dict[int, Watcher] = {}
        self._numbers = count()
        self._waiting: dict[tuple[str, str | None], t.NotificationParams] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # Told at once, in whichever thread: other servers that pass it on.
        self.followers: list[Watcher] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on news is told in this loop."""
        self._loop = loop

    def stop(self) -> None:
        """Nobody is served any more."""
        self._loop = None
        self._waiting.clear()

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Be told of every change until the returned function is called."""
        number = next(self._numbers)
        self._watchers[number] = watcher

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    def announce(self, method: str, params: t.NotificationParams) -> None:
        """Tell everybody who watches, in the next turn of the loop."""
        for follower in self.followers:
            follower(method, params)
        loop = self._loop
        if loop is None:
            return  # nobody is there yet; who comes will see it as it is
        if _running() is loop:
            self._queue(method, params)
        else:
            loop.call_soon_threadsafe(self._queue, method, params)

    def _queue(self, method: str, params: t.NotificationParams) -> None:
        first = not self._waiting
        self._waiting[method, getattr(params, "uri", None)] = params
        if first:
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (method, _), params in waiting.items():
            for watcher in tuple(self._watchers.values()):
                watcher(method, params)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
