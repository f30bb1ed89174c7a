"""Finds tools by words, with an index that is made once for each list of tools that is looked at.

Rules: what is found is among what was given; a caller who is shown fewer tools finds fewer. The
loop does other work while an index is made or searched, and one is made at a time.
"""

import asyncio
from collections.abc import Sequence

from colonnade.host.offered import HostTool
from colonnade.host.search import MAX_TOTAL, Index
from colonnade.host.slices import in_slices

# Lists that differ, because callers are shown different tools; of each its index is kept.
MAX_KEPT = 8
# Bytes of the texts in all of them: two of the largest indexes, or eight of usual size.
MAX_KEPT_BYTES = 2 * MAX_TOTAL


class Looking:
    """The indexes of the lists that were looked at last."""

    def __init__(self) -> None:
        # By the identity of the tools, which are kept with it and so stay the only ones.
        self._kept: dict[tuple[int, ...], tuple[Sequence[HostTool], Index]] = {}
        self._making = asyncio.Lock()

    async def best(self, tools: Sequence[HostTool], words: str, limit: int) -> list[HostTool]:
        """Those of these tools that the words fit best, the best first."""
        key = tuple(map(id, tools))
        index = self._find(key)
        if index is None:
            async with self._making:
                index = self._find(key)  # it may have been made meanwhile
                if index is None:
                    index = await in_slices(Index.in_steps((one.server, one) for one in tools))
                    self._keep(key, tools, index)
        return [tools[at] for at in await in_slices(index.search(words, limit))]

    def _find(self, key: tuple[int, ...]) -> Index | None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept  # the last that was used is the last to go
        return kept[1]

    def _keep(self, key: tuple[int, ...], tools: Sequence[HostTool], index: Index) -> None:
        self._kept[key] = tuple(tools), index
        size = sum(kept.size for _, kept in self._kept.values())
        while len(self._kept) > MAX_KEPT or size > MAX_KEPT_BYTES:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            size -= oldest.size
