"""One `subscriptions/listen` at work: news goes out as it happens, until one side ends it.

Rules: news that waits is bounded: a slow listener is told once that a list changed, however often
it did, and one that falls too far behind is ended.
"""

import asyncio

from portico.ports import Turn
from portico.protocol import types as t
from portico.protocol.exchange import Subscription
from portico.server.catalogue import Catalogue

# News of different resources that may wait for a slow listener.
MAX_WAITING = 256


class Listener:
    """A subscription, and the news that waits for it."""

    def __init__(self, subscription: Subscription, turn: Turn, catalogue: Catalogue) -> None:
        self._subscription = subscription
        self._turn = turn
        self._catalogue = catalogue
        self._waiting: dict[tuple[str, str | None], t.NotificationParams] = {}
        self._wake = asyncio.Event()
        self._overrun = False

    async def run(self) -> t.Noun:
        """Acknowledge, then pass news on. Ends by being cancelled, or by ending it."""
        unwatch = self._catalogue.watch(self._hear)
        try:
            first = self._subscription.acknowledge()
            if first is not None:
                await self._turn.wire.send(first)
            while not self._overrun:
                await self._wake.wait()
                self._wake.clear()
                waiting, self._waiting = self._waiting, {}
                for (method, _), params in waiting.items():
                    frame = self._subscription.news(method, params)
                    if frame is not None:
                        await self._turn.wire.send(frame)
        finally:
            unwatch()
        return self._subscription.result()

    def _hear(self, method: str, params: t.NotificationParams) -> None:
        uri = getattr(params, "uri", None)
        if not self._subscription.wants(method, uri):
            return
        self._waiting[method, uri] = params  # the same news twice is one
        self._overrun = len(self._waiting) > MAX_WAITING
        self._wake.set()
