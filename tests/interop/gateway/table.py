"""Official clients through a gateway to official servers, as a matrix: `scripts/interop gateway`.

    python tests/interop/gateway/table.py [--client NAME] [--server NAME]

NAME is a part of what the matrix prints.

Rules: one row for each client and revision, one column for each server, transport and revision. A
cell has the number of steps that went well, of those that were played; what a side does not have is
left out, with the reason below. One failure and the exit code is 1.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from colonnade.protocol.revision import Revision
from interop.gateway.counterparts import (
    UPSTREAMS,
    Upstream,
    client_ways,
    configured,
    play,
    play_stdio,
    served,
)
from interop.peers import DriverRun, Peer
from interop.table import Cell, counted

HEAD, WIDTH = 32, 18


@dataclass
class Pair:
    """One client at one server."""

    client: str
    server: str
    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])

    @property
    def word(self) -> str:
        """What the matrix says of it."""
        counts = Counter(cell.word for cell in self.cells.values())
        shown = f"{counts['ok']}/{len(self.cells) - counts['-']}"
        return f"{shown} FAILED" if counts["FAILED"] else shown


def absent(name: str, peer: Peer, era: Revision) -> str | None:
    """Why a client cannot play a step, if it cannot."""
    if name.startswith("url"):
        return peer.absent("elicit, url", era, "http")
    return None


def judge(run: DriverRun, peer: Peer, era: Revision, upstream: Upstream) -> dict[str, Cell]:
    """Every step of a run."""
    cells: dict[str, Cell] = {}
    for name in upstream.plan.checks:
        line = run.lines.get(name, {"failed": f"it was never played\n{run.errors}"})
        if why := absent(name, peer, era):
            cells[name] = Cell("-", why)
        elif "failed" in line:
            cells[name] = Cell("FAILED", line["failed"])
        else:
            try:
                upstream.plan.check(name, line["seen"], upstream.key, era, upstream.revision)
                cells[name] = Cell("ok")
            except Exception as error:  # what cannot be read has failed
                why = f"{type(error).__name__}: {error}\nseen: {line['seen']}"
                cells[name] = Cell("FAILED", why)
    left = run.driver_ended == 0 and "leave" in run.lines
    cells["leave"] = Cell("ok") if left else Cell("FAILED", f"the client failed\n{run.errors}")
    return cells


def show(pairs: Sequence[Pair]) -> list[Cell]:
    """Print the matrix and what it does not say; the cells."""
    servers = list(dict.fromkeys(pair.server for pair in pairs))
    found = {(pair.client, pair.server): pair.word for pair in pairs}
    print("\n" + " " * HEAD + "".join(f"{nth:<{WIDTH}}" for nth in range(1, len(servers) + 1)))
    for client in dict.fromkeys(pair.client for pair in pairs):
        words = (f"{found.get((client, server), ''):<{WIDTH}}" for server in servers)
        print(f"{client:<{HEAD}}" + "".join(words).rstrip())
    for nth, server in enumerate(servers, 1):
        print(f"{nth}: {server}")
    cells = [cell for pair in pairs for cell in pair.cells.values()]
    for reason in dict.fromkeys(cell.why for cell in cells if cell.word == "-"):
        print(f"- {reason}")
    for pair in pairs:
        for name, cell in pair.cells.items():
            if not cell.ok:
                print(f"\nFAILED: {name}, {pair.client}, {pair.server}\n{cell.why}")
    left_out = sum(cell.word == "-" for cell in cells)
    print(f"{len(pairs)} pairs: {counted(cells)}, {left_out} not applicable", flush=True)
    return cells


def named(peer: Peer, era: Revision) -> str:
    return f"{str(peer).strip()} {era.date}"


def run_http(ways: Sequence[tuple[Peer, Revision]], upstreams: Sequence[Upstream]) -> list[Pair]:
    """Every client at every server, through one gateway over HTTP."""
    pairs: list[Pair] = []
    ending = DriverRun()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        with (
            configured(upstreams, folder) as command,
            served(command, folder, ending) as address,
        ):
            for peer, era in ways:
                row: list[Pair] = []
                for upstream in upstreams:
                    run = play(peer, era, upstream, address)
                    cells = judge(run, peer, era, upstream)
                    row.append(Pair(named(peer, era), str(upstream), cells))
                print(
                    f"{named(peer, era):<{HEAD}}" + " ".join(pair.word for pair in row), flush=True
                )
                pairs += row
    ended = Cell("ok") if ending.server_ended == 0 else Cell("FAILED", ending.errors)
    pairs[-1].cells["the gateway ends"] = ended
    return pairs


def run_stdio(ways: Sequence[tuple[Peer, Revision]], upstreams: Sequence[Upstream]) -> list[Pair]:
    """The same with a gateway that each client starts."""
    pairs: list[Pair] = []
    for peer, era in ways:
        for upstream in upstreams:
            run = play_stdio(peer, era, upstream)
            cells = judge(run, peer, era, upstream)
            if run.server_ended != 0:
                cells["leave"] = Cell("FAILED", f"the gateway: {run.server_ended}\n{run.errors}")
            pairs.append(Pair(named(peer, era), str(upstream), cells))
    return pairs


def main(client: str = "", server: str = "") -> int:
    ways = [way for way in client_ways() if client.lower() in named(*way).lower()]
    upstreams = [one for one in UPSTREAMS if server.lower() in f"{one.key} {one}".lower()]
    if not ways or not upstreams:
        print("no client or no server has that name")
        return 1
    for skipped in (*(peer for peer, _ in ways), *(one.server for one in upstreams)):
        if skipped.missing:
            print(f"{skipped}: skipped, {skipped.missing}")
    ways = [way for way in ways if not way[0].missing]
    upstreams = [one for one in upstreams if not one.server.missing]
    cells = show(run_http(ways, upstreams))
    print("\nthe gateway on stdio:")
    cells += show(run_stdio(ways, list(dict.fromkeys((upstreams[0], upstreams[-1])))))
    print(f"\ngateway: {counted(cells)}")
    return 0 if all(cell.ok for cell in cells) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--client", default="")
    parser.add_argument("--server", default="")
    options = parser.parse_args()
    sys.exit(main(options.client, options.server))
