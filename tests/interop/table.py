"""Every official client against the everything-server, as tables: `scripts/interop clients`, and
against three processes of it, each request to the next of them: `scripts/interop replicas`.

    python tests/interop/table.py [--replicas STORE] [LANGUAGE]

Rules: one table for each SDK; one that cannot be built on this machine is skipped, with the reason.
A cell is `ok`, `-` where the SDK or the revision has no such thing (the reason is below the
table), or `FAILED`; one failure and the exit code is 1.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from colonnade.protocol.revision import ALL, Revision
from interop.peers import (
    GO,
    JAVA,
    MCP_1,
    MCP_2,
    RUST,
    TRANSPORTS,
    TYPESCRIPT,
    DriverRun,
    Peer,
    lacking,
    run_driver,
)
from interop.scenarios import CHECKS

PEERS = (MCP_2, MCP_1, TYPESCRIPT, GO, RUST, JAVA)
ERAS = tuple(era for era in reversed(ALL) if any(era in peer.eras for peer in PEERS))
HEAD, WIDTH = 18, 12


@dataclass(frozen=True)
class Cell:
    """How one scenario went, and why where it did not go well."""

    word: str
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.word != "FAILED"


def cell(run: DriverRun, scenario: str, peer: Peer, era: Revision, transport: str) -> Cell:
    """Judge one scenario of a run."""
    if why := peer.absent(scenario, era, transport):
        return Cell("-", why)
    line = run.lines.get(scenario)
    if line is None:
        return Cell("FAILED", f"it was never played\n{run.errors}")
    if "failed" in line:
        return Cell("FAILED", line["failed"])
    try:
        CHECKS[scenario](line["seen"], era)
    except Exception as error:  # whatever a driver printed, a check that cannot read it has failed
        return Cell("FAILED", f"{type(error).__name__}: {error}\nseen: {line['seen']}")
    return Cell("ok")


def ending(run: DriverRun) -> Cell:
    """Judge how a run ended."""
    if (run.errors, run.driver_ended, run.server_ended) == ("", 0, 0):
        return Cell("ok")
    ends = f"the driver ended with {run.driver_ended}, the server with {run.server_ended}"
    return Cell("FAILED", f"{ends}\n{run.errors}")


def column(
    peer: Peer, era: Revision, transport: str, replicas_store: str | None
) -> dict[str, Cell]:
    """Every scenario of one client, and the end of the run."""
    run = run_driver(peer, era, transport, replicas_store)
    cells = {scenario: cell(run, scenario, peer, era, transport) for scenario in CHECKS}
    why = peer.absent("quiet end", era, transport)
    return {**cells, "quiet end": Cell("-", why) if why else ending(run)}


def heading(words: Sequence[tuple[str, ...]]) -> str:
    """The last of each group of words, over all the columns that share the group."""
    runs = [(group[-1], len(list(same))) for group, same in groupby(words)]
    return " " * HEAD + "".join(f"{word:<{WIDTH * count}}" for word, count in runs)


def table(peer: Peer, replicas_store: str | None = None) -> list[Cell]:
    """Print what became of every scenario of one client; the cells."""
    transports = TRANSPORTS if replicas_store is None else ("http", "sse")
    ways = [(peer, era, transport) for era, transport in product(ERAS, transports)]
    columns = {way[1:]: column(*way, replicas_store) for way in ways if not lacking(*way)}
    names = [(str(peer), era.date, transport) for era, transport in columns]
    print(f"\n{peer}")
    for depth in (2, 3):
        print(heading([name[:depth] for name in names]))
    for row in [*CHECKS, "quiet end"]:
        words = (f"{cells[row].word:<{WIDTH}}" for cells in columns.values())
        print(f"{row:<{HEAD}}" + "".join(words).rstrip())
    cells = [cell for cells in columns.values() for cell in cells.values()]
    reasons = [lacking(*way) for way in ways] + [cell.why for cell in cells if cell.word == "-"]
    for reason in dict.fromkeys(filter(None, reasons)):
        print(f"- {reason}")
    for name, cells_of_it in zip(names, columns.values(), strict=True):
        for row, cell in cells_of_it.items():
            if not cell.ok:
                print(f"\nFAILED: {row}, {', '.join(name)}\n{cell.why}")
    for era, group in groupby(columns.items(), key=lambda item: item[0][0]):
        of_it = [cell for _, cells in group for cell in cells.values()]
        print(f"{peer}, {era.date}: {counted(of_it)}")
    sys.stdout.flush()
    return cells


def counted(cells: Sequence[Cell]) -> str:
    """How many went well, and how many did not."""
    failed = sum(not cell.ok for cell in cells)
    return f"{sum(cell.word == 'ok' for cell in cells)} ok, {failed} failed"


def main(language: str = "", replicas_store: str | None = None) -> int:
    chosen = [peer for peer in PEERS if language.lower() in ("", peer.language.lower())]
    if not chosen:
        print(f"no client is written in {language}")
        return 1
    cells: list[Cell] = []
    for peer in chosen:
        if why := peer.missing:
            print(f"\n{peer}: skipped, {why}")
        else:
            cells += table(peer, replicas_store)
    print(f"\n{counted(cells)}")
    return 0 if all(cell.ok for cell in cells) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("language", nargs="?", default="")
    parser.add_argument("--replicas", metavar="STORE", help="path, redis://…, or redis")
    options = parser.parse_args()
    sys.exit(main(options.language, options.replicas))
