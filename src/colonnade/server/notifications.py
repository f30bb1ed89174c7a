"""One `subscriptions/listen` at work: news goes out as it happens, until one side ends it.

Rules: news that waits is bounded: a slow listener is told once that a list changed, however often
it did, and one that falls too far behind is ended.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.subscriptions import Subscription

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


# ---------------------------------------------------------------- listener


# News of different resources that may wait for a slow listener.
MAX_WAITING = 256


class Listener:
    """A subscription, and the news that waits for it."""

    def __init__(self, subscription: Subscription, request: RequestContext) -> None:
        self._subscription = subscription
        self._request = request
        self._waiting: dict[tuple[str, str | None], t.NotificationParams] = {}
        self._ended: str | None = None
        # Whether it was acknowledged and nothing is being told; and what is waited for then.
        self._idle: asyncio.Future[None] | None = None

    async def run(self, news: News) -> t.ProtocolType:
        """Acknowledge, then pass news on until one side ends it."""
        unwatch = news.watch(self._hear)
        try:
            await self._acknowledge()
            while self._ended is None:
                if not self._waiting:
                    self._idle = asyncio.get_running_loop().create_future()
                    try:
                        await self._idle
                    finally:
                        self._idle = None
                await self._pass_on()
            for frame in self._subscription.end(self._ended):
                await self._request.send(frame)
        finally:
            unwatch()
        return t.SubscriptionsListenResult()  # which was sent already

    async def _acknowledge(self) -> None:
        """In a method of its own: the frame names all resources, and is not held afterwards."""
        frame = self._subscription.acknowledge()
        if frame is not None:
            await self._request.send(frame)

    async def _pass_on(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (method, _), params in waiting.items():
            frame = self._subscription.notification(method, params)
            if frame is not None:
                await self._request.send(frame)

    def _hear(self, method: str, params: t.NotificationParams) -> None:
        uri = getattr(params, "uri", None)
        if not self._subscription.wants(method, uri):
            return
        if self._idle is not None and not self._waiting and not self._idle.done():
            # Most keep up, and there may be thousands: no task is woken for them.
            frame = self._subscription.notification(method, params)
            if frame is None or self._request.post(frame):
                return
        self._waiting[method, uri] = params  # the same news twice is one
        if len(self._waiting) > MAX_WAITING:
            self.end("too much news at once; listen again, and look at everything anew")
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def end(self, why: str) -> None:
        """End it from this side, after what is still to be told."""
        self._ended = self._ended or why
        self._wake()
