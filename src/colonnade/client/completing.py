"""Completion while somebody types: not asked for every letter, and not twice for the same one.

Rules: a newer word makes an older one uninteresting, which is said rather than made up. What was
answered is kept for a moment, and only so much of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from colonnade.protocol import types as t

# Between two letters of somebody who types: shorter pauses are not worth a question.
PAUSE_S = 0.15
# For as long as somebody goes back and forth in one word.
KEPT_S = 30.0
MAX_KEPT = 100
# Of one answer that is kept: a hundred values, which are the most, take a tenth of it.
MAX_KEPT_CHARS = 64 * 1024

Ask: TypeAlias = Callable[[str], Awaitable[t.Completion]]


class Completer:
    """Completes one argument: `await completer("par")`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._newest: object = None
        self._kept: dict[str, tuple[float, t.Completion]] = {}

    async def __call__(self, value: str) -> t.Completion | None:
        """What this may become; None where something newer was asked for meanwhile."""
        mine = self._newest = object()
        loop = asyncio.get_running_loop()
        kept = self._kept.get(value)
        if kept is not None and loop.time() < kept[0]:
            return kept[1]
        await asyncio.sleep(PAUSE_S)
        if self._newest is not mine:
            return None
        found = await self._ask(value)
        self._kept.pop(value, None)
        while len(self._kept) >= MAX_KEPT:
            self._kept.pop(next(iter(self._kept)))
        if sum(map(len, found.values)) <= MAX_KEPT_CHARS:
            self._kept[value] = (loop.time() + KEPT_S, found)
        return found if self._newest is mine else None
