"""Finds tools by words, with an index that is made once for each list of tools that is looked at.

Rules: what is found is among what was given; a caller who is shown fewer tools finds fewer.
"""

from collections.abc import Sequence

from portico.host.offered import HostTool
from portico.host.search import Index

# Lists that differ, because callers are shown different tools; of each its index is kept.
MAX_KEPT = 8


class Looking:
    """The indexes of the lists that were looked at last."""

    def __init__(self) -> None:
        # By the identity of the tools, which are kept with it and so stay the only ones.
        self._kept: dict[tuple[int, ...], tuple[Sequence[HostTool], Index]] = {}

    def best(self, tools: Sequence[HostTool], words: str, limit: int) -> list[HostTool]:
        """Those of these tools that the words fit best, the best first."""
        key = tuple(map(id, tools))
        kept = self._kept.pop(key, None)
        if kept is None:
            kept = tuple(tools), Index((tool.server, tool) for tool in tools)
        self._kept[key] = kept
        while len(self._kept) > MAX_KEPT:
            self._kept.pop(next(iter(self._kept)))
        return [tools[at] for at in kept[1].best(words, limit)]
