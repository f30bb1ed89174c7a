"""The whole suite: every row, with its peers, its bars, its table, its JSON and its picture.

    scripts/bench                        all of it, about ten minutes
    scripts/bench --quick                all of it in two minutes, with shorter rounds
    scripts/bench --only http-async,stdio-16 --rounds 20
    scripts/bench --only gateway         all rows whose names begin with it
    scripts/bench --compare              the short one, each ratio beside the recorded one
    scripts/bench --record               all of it, and write benchmarks/recorded.json

Rules: a benchmark, not a test; it ends with 1 only where an answer was wrong or a bar was missed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import chart, peers, report
from benchmarks.bars import judge
from benchmarks.figures import Figure
from benchmarks.peers import LOAD_CORE, ROOT, Stage, on_core
from benchmarks.rows import HTTP, STDIO, Settings, ceiling_row, http_row, stdio_row
from benchmarks.rows_clients import client_row, memory_row
from benchmarks.rows_gateway import GATEWAY, gateway_rows
from benchmarks.rows_replicas import session_row, throughput_row
from benchmarks.rows_sizes import listen_row, sizes_row
from benchmarks.rows_start import start_row
from benchmarks.rows_tasks import tasks_row

RECORDED = ROOT / "benchmarks" / "recorded.json"
# A busy machine disturbs some rounds; the best of fewer than nine is not steady.
ROUNDS, SECONDS = 11, 0.3
QUICK_ROUNDS, QUICK_SECONDS = 5, 0.08
# A quick run begins nothing more after so long, and leaves those out that are not compared in bars.
QUICK_S = 90.0
QUICK_ENTRANTS = tuple(name for name in peers.NAMES if name not in (peers.GO.name, peers.RUST.name))

# Slow ones and those without a bar, which are run last.
LATE = (
    "list-1000",
    "ceiling",
    "session-sync",
    "session-64k",
    "session-1m",
    "session-stream",
    "sizes",
    "replicas-throughput",
    *GATEWAY,
)

Run = Callable[[Settings], list[Figure]]


def rows() -> dict[str, Run]:
    """Every row, by name, in the order in which they are run."""
    found: dict[str, Run] = {"ceiling": ceiling_row}
    for name, way in HTTP.items():
        found[name] = partial(http_row, name, way)
    for name in STDIO:
        found[name] = partial(stdio_row, name)
    found |= {"memory": memory_row, "client": client_row, "start": start_row}
    found |= {"listen": listen_row, "tasks": tasks_row, "sizes": sizes_row}
    found |= {"replicas-session": session_row, "replicas-throughput": throughput_row}
    found |= gateway_rows()
    return {name: found[name] for name in sorted(found, key=LATE.__contains__)}


def names(given: str, row: str) -> bool:
    """Whether a row is the given one, or one of those whose names begin with it: `gateway`."""
    return row == given or row.startswith(f"{given}-")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure Colonnade, its peers and the limit, in turns in one run.",
        epilog="for example: scripts/bench --only http-async,stdio-16 --rounds 20",
    )
    parser.add_argument("--quick", action="store_true", help="all rows in two minutes")
    parser.add_argument(
        "--compare", action="store_true", help="quick, each ratio beside the recorded one"
    )
    parser.add_argument("--record", action="store_true", help="write benchmarks/recorded.json")
    parser.add_argument("--only", default="", metavar="ROW,…", help=", ".join(rows()))
    parser.add_argument("--rounds", type=int, help=f"how many ({ROUNDS}; quick {QUICK_ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"of a round ({SECONDS})")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page as well")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")
    chosen = parser.parse_args(arguments)
    wanted = [name for name in chosen.only.split(",") if name]
    found = {name: [row for row in rows() if names(name, row)] for name in wanted}
    if unknown := sorted(name for name, meant in found.items() if not meant):
        parser.error(f"no row {', '.join(unknown)}; there are: {', '.join(rows())}")
    chosen.only = [row for meant in found.values() for row in meant]
    chosen.quick = chosen.quick or chosen.compare
    if chosen.record and (chosen.quick or chosen.only):
        parser.error("--record takes a whole run")
    return chosen


def measure(chosen: argparse.Namespace) -> tuple[dict[str, Figure], list[str]]:
    """Run the rows, and print each when it is done."""
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryFile() as log, Stage(log) as stage:
        settings = Settings(
            stage,
            chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS),
            chosen.seconds or (QUICK_SECONDS if chosen.quick else SECONDS),
            quick=chosen.quick,
            entrants=QUICK_ENTRANTS if chosen.quick else peers.NAMES,
        )
        begun = time.monotonic()
        for name, run in rows().items():
            if chosen.only and name not in chosen.only:
                continue
            if chosen.quick and time.monotonic() - begun > QUICK_S:
                print(f"{name}: left out, as two minutes are almost over\n")
                continue
            for figure in run(settings):
                figures[figure.name] = figure
                print(report.table(figure), end="\n\n", flush=True)
    return figures, settings.failures


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    begun = time.monotonic()
    peers.patient = not chosen.quick
    facts = report.facts({peer.name: peer.version for peer in (*peers.PEERS, *peers.PROXIES)})
    print(report.told(facts))
    if peers.pinned():
        print("servers on one core, the load on another\n")
    else:
        print("cannot be pinned: servers and load share what there is; ratios say little\n")
    if chosen.quick:
        print(f"quick: {', '.join(sorted(set(peers.NAMES) - set(QUICK_ENTRANTS)))} are left out\n")
    with on_core(LOAD_CORE):
        figures, failures = measure(chosen)
    found = judge(figures)
    print(report.verdicts(found))
    whole = {
        "machine": facts,
        "load average": os.getloadavg(),
        "figures": {name: one.to_json(rounds=bool(chosen.json)) for name, one in figures.items()},
        "bars": [one.to_json() for one in found],
    }
    if chosen.markdown:
        print(report.markdown(figures.values()), end="\n\n")
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(whole, indent=1) + "\n")
    if chosen.compare:
        recorded: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        print(report.compared(figures, recorded.get("figures", {})))
    if chosen.record:
        RECORDED.write_text(json.dumps(whole, indent=1) + "\n")
        rounds = max(len(one) for figure in figures.values() for one in figure.samples.values())
        how = f"the better quarter of {rounds} rounds in turns, one run"
        foot = [how, *report.told(facts).splitlines()]
        (chart.DOCS / "benchmark.svg").write_text(chart.benchmark(figures, foot))
    for failure in failures:
        print(f"WRONG: {failure}")
    print(f"{time.monotonic() - begun:.0f} s; load average {os.getloadavg()[0]:.1f}")
    return 1 if failures or not all(one.passes for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
