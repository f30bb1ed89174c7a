"""Tokens of a rate limit that replicas share: taken from a counter of the store, some at a time.

Time is divided into windows, in which all replicas together give as many tokens as the limit
allows. A replica takes a tenth of them at once, so that few calls wait for the store; what it does
not use of them is lost with the window. Without the store each replica gives its share.

Rules: a call that is refused costs no operation of the store. The replicas of a limit count in the
same windows: their clocks must not differ by much of one.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from math import floor

from msgspec import Struct

from colonnade.errors import ColonnadeError
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.replicas.replica import count_replicas

log: logging.Logger = logging.getLogger("colonnade.replicas")

# The part of a window's tokens that a replica takes at once.
LEASES_PER_WINDOW = 10
# How long the store may take; then it is not asked again for a while.
STORE_TIMEOUT_S = 0.5
AWAY_S = 5.0
# How often the number of replicas is read, for the share of each without the store.
COUNT_REPLICAS_S = 30.0
# Of a name and a key: 128 bits, so that no two have the same counter.
DIGEST_BYTES = 16


class WindowTokens(Struct):
    """The tokens that one replica has for one caller in one window.

    `exhausted` is set when there are no more to take from the store.
    """

    window: int
    tokens: int = 0
    exhausted: bool = False

    def take(self) -> bool:
        """Take one token, if there is one here."""
        if not self.tokens:
            return False
        self.tokens -= 1
        return True

    def add(self, lease: int, total: int, limit: int) -> None:
        """Add a lease, after which the counter of the window is `total`."""
        self.tokens += max(0, min(lease, lease - (total - limit)))
        self.exhausted = total >= limit


class SharedTokens:
    """The tokens of one limit. `clock` is the time of the day.

    `name` distinguishes the limits that share a store.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        per_s: float,
        burst: int,
        clock: Callable[[], float],
        places: int,
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._places = places
        self._burst = burst
        self._window_s = burst / per_s
        self._lease = max(1, burst // LEASES_PER_WINDOW)
        # By caller, the least recently used first.
        self._known: OrderedDict[str, WindowTokens] = OrderedDict()
        self._taking: dict[str, asyncio.Future[None]] = {}
        self._away_until = float("-inf")
        self._replicas = 1
        self._count_at = float("-inf")

    async def take(self, key: str) -> float:
        """Take one token of a caller; returns 0, or how long until there may be one."""
        while True:
            now = self._clock()
            window = floor(now / self._window_s)
            known = self._find(key, window)
            if known.take():
                return 0.0
            taking = self._taking.get(key)
            if taking is not None:
                await asyncio.shield(taking)
                continue
            if known.exhausted:
                return (window + 1) * self._window_s - now
            await self._take_lease(key, known)

    def _find(self, key: str, window: int) -> WindowTokens:
        known = self._known.get(key)
        if known is None or known.window != window:
            known = self._known[key] = WindowTokens(window)
        self._known.move_to_end(key)
        if len(self._known) > self._places:
            self._known.popitem(last=False)
        return known

    async def _take_lease(self, key: str, known: WindowTokens) -> None:
        """Take tokens from the store, or the share of this replica without it; one call at a time
        for each caller."""
        done = self._taking[key] = asyncio.get_running_loop().create_future()
        try:
            if self._clock() < self._away_until:
                self._take_share(known)
                return
            try:
                async with asyncio.timeout(STORE_TIMEOUT_S):
                    await self._take_shared(key, known)
            except (ColonnadeError, TimeoutError) as error:
                self._away_until = self._clock() + AWAY_S
                log.warning("rate limits are those of this replica alone, since %r", error)
                self._take_share(known)
        finally:
            del self._taking[key]
            done.set_result(None)

    async def _take_shared(self, key: str, known: WindowTokens) -> None:
        now = self._clock()
        if now >= self._count_at:
            self._count_at = now + COUNT_REPLICAS_S
            self._replicas = await count_replicas(self._store)
        name = f"{len(self._name)} {self._name} {key}".encode()
        digest = hashlib.blake2b(name, digest_size=DIGEST_BYTES).hexdigest()
        counter = f"limit {digest} {known.window}"
        # Twice as long as the window: replicas whose clocks differ still find it.
        ttl_s = 2 * self._window_s
        total = await self._store.count(SERVER_PRINCIPAL, counter, self._lease, ttl_s)
        known.add(self._lease, total, self._burst)

    def _take_share(self, known: WindowTokens) -> None:
        """The tokens of this replica for the rest of the window: its share, once."""
        known.tokens += max(1, self._burst // self._replicas)
        known.exhausted = True
