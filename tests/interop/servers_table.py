"""Our client at every server that we did not write, as a table: `scripts/interop servers`.

At the end the published ones are in one host together, beside an example of ours and some that are
broken.

Rules: one line for each server, transport and revision, with what was listed, how many calls were
made and how many failed; what was left out is named, with the reason. One failure, and the exit
code is 1.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from interop import first_sdk_checks, server_checks
from interop.many_servers import BROKEN, HostRun, run_published
from interop.reference_servers import plan_of
from interop.server_runs import ServerRun, run_plan
from interop.third_party_servers import FIRST, LIBRARIES, PUBLISHED, ThirdPartyServer, combinations

HEADS = ("server", "version", "over", "revision", "listed", "calls", "failed")
WIDTHS = (20, 12, 11, 12, 18, 7, 6)


class LogCollector(logging.Handler):
    """What our client warned of during one visit."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def row(cells: tuple[object, ...]) -> str:
    return "".join(f"{cell!s:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def shown(run: ServerRun) -> str:
    """The line of a visit."""
    short = {"tools": "t", "resources": "r", "templates": "rt", "prompts": "p"}
    listed = " ".join(f"{count}{short[what]}" for what, count in run.listed.items())
    server = run.server
    head = (server.name, server.version, run.transport, run.spoken)
    return row((*head, listed, run.calls, len(run.failures) or "."))


async def run_all(chosen: Sequence[ThirdPartyServer]) -> list[ServerRun]:
    """Visit these, one after the other, and print a line for each."""
    done: list[ServerRun] = []
    for server in chosen:
        if why := server.missing:
            print(f"{server}: skipped, {why}", flush=True)
            continue
        if server in FIRST:
            plan = first_sdk_checks.plan
        else:
            plan = server_checks.plan if server in LIBRARIES else plan_of(server)
        for revision, transport in combinations(server):
            heard = LogCollector()
            logging.getLogger().addHandler(heard)
            run = await run_plan(server, transport, revision, plan)
            logging.getLogger().removeHandler(heard)
            for nth, line in enumerate(heard.lines):
                run.failures[f"warning {nth + 1}"] = line
            done.append(run)
            print(shown(run), flush=True)
    return done


def report(done: list[ServerRun]) -> int:
    """Print what the lines above do not say; the exit code."""
    print("listed: t tools, r resources, rt templates of resources, p prompts")
    reasons: dict[str, list[str]] = {}
    for run in done:
        for what, why in run.left_out.items():
            reasons.setdefault(f"{what}: {why}", []).append(str(run))
    for reason, where in reasons.items():
        print(f"left out in {len(where)} visits ({where[0]}{', …' if where[1:] else ''}): {reason}")
    for run in done:
        for what, why in run.failures.items():
            print(f"\nFAILED: {what}, {run}\n{why}")
    calls, failed = sum(run.calls for run in done), sum(len(run.failures) for run in done)
    print(f"{len(done)} visits, {calls} calls, {failed} failed")
    return 1 if failed or not done else 0


def report_host(run: HostRun) -> int:
    """Print what became of all of them in one host; the exit code."""
    print("\nin one host, called at once:")
    for key, count in run.listed.items():
        failed = [name for name in run.failures if name.partition("__")[0] == key]
        calls = sum(name.partition("__")[0] == key for name in run.answers)
        revision = run.revisions.get(key) or "-"
        print(row((key, "", "", revision, f"{count}t", calls, len(failed) or ".")))
    for key in BROKEN:
        print(f"broken, and reported: {run.problems.get(key, '-').splitlines()[0]}")
    for what, why in run.failures.items():
        print(f"\nFAILED: {what}, in one host\n{why}")
    print(f"{len(run.keys)} servers, {len(run.tools)} tools, {len(run.failures)} failed")
    return 1 if run.failures else 0


def main(name: str = "") -> int:
    every = (*LIBRARIES, *FIRST, *PUBLISHED)
    chosen = [one for one in every if name.lower() in ("", *str(one).lower().split())]
    if not chosen:
        print(f"there is no server named {name}")
        return 1
    print(row(HEADS), flush=True)
    done = asyncio.run(run_all(chosen))
    failed = 0 if all(one.missing for one in chosen) else report(done)
    if name:
        return failed
    with tempfile.TemporaryDirectory() as folder:
        return max(failed, report_host(run_published(Path(folder).resolve())))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
