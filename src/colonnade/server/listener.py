"""One `subscriptions/listen` stream of a server."""

import asyncio

from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.subscriptions import Subscription
from colonnade.server.notifications import News

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
