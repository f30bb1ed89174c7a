"""How well a tool is found among a thousand by people's words, and how long that takes.

scripts/bench search            the figures, and what was not found
"""

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.search_queries import ASKED, queries
from benchmarks.search_tools import Listed, corpus
from colonnade.host.agent.search import Index

LIMIT = 5


class Found(NamedTuple):
    """One query: the place of the tool that was meant, from 1, if it is among the first."""

    words: str
    meant: str
    place: int | None
    instead: str


def search(tools: Sequence[Listed], limit: int = LIMIT) -> list[Found]:
    """Ask all queries."""
    index = Index((one.server, one.tool) for one in tools)
    where = {(one.server, one.plain): at for at, one in enumerate(tools)}
    found: list[Found] = []
    for words, server, tool in queries():
        best, meant = index.best(words, limit), where[server, tool]
        first = tools[best[0]] if best else None
        instead = f"{first.server} {first.plain}" if first else "nothing"
        place = best.index(meant) + 1 if meant in best else None
        found.append(Found(words, f"{server} {tool}", place, instead))
    return found


def recall(found: Sequence[Found], at: int) -> float:
    """Which part of the queries found what was meant among so many."""
    return sum(one.place is not None and one.place <= at for one in found) / len(found)


def main() -> int:
    tools = corpus()
    found = search(tools)
    for one in found:
        if one.place is None:
            print(f"not found: {one.words!r} means {one.meant}; first was {one.instead}")
    began = time.perf_counter()
    index = Index((one.server, one.tool) for one in tools)
    built = time.perf_counter()
    for words, _, _ in queries():
        index.best(words)
    ended = time.perf_counter()
    first = len(queries(ASKED))
    print(f"{len(tools)} tools, {len(found)} queries")
    for what, some in (("all", found), ("first", found[:first]), ("later", found[first:])):
        at_1, at_most = recall(some, 1), recall(some, LIMIT)
        print(
            f"{what:6}{len(some):4} queries   recall at 1: {at_1:.3f}   at {LIMIT}: {at_most:.3f}"
        )
    print(
        f"index {(built - began) * 1e3:.0f} ms, a query {(ended - built) / len(found) * 1e3:.2f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
