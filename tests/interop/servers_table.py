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
from interop.many_servers import BROKEN, Stay, published_stay
from interop.reference_servers import plan_of
from interop.server_runs import Visit, visited
from interop.third_party_servers import FIRST, LIBRARIES, PUBLISHED, Stranger, ways

HEADS = ("server", "version", "over", "revision", "listed", "calls", "failed")
WIDTHS = (20, 12, 11, 12, 18, 7, 6)


class Heard(logging.Handler):
    """What our client warned of during one visit."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def row(cells: tuple[object, ...]) -> str:
    return "".join(f"{cell!s:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def shown(visit: Visit) -> str:
    """The line of a visit."""
    short = {"tools": "t", "resources": "r", "templates": "rt", "prompts": "p"}
    listed = " ".join(f"{count}{short[what]}" for what, count in visit.listed.items())
    stranger = visit.stranger
    head = (stranger.name, stranger.version, visit.transport, visit.spoken)
    return row((*head, listed, visit.calls, len(visit.failures) or "."))


async def visits(chosen: Sequence[Stranger]) -> list[Visit]:
    """Visit these, one after the other, and print a line for each."""
    done: list[Visit] = []
    for stranger in chosen:
        if why := stranger.missing:
            print(f"{stranger}: skipped, {why}", flush=True)
            continue
        if stranger in FIRST:
            plan = first_sdk_checks.plan
        else:
            plan = server_checks.plan if stranger in LIBRARIES else plan_of(stranger)
        for revision, transport in ways(stranger):
            heard = Heard()
            logging.getLogger().addHandler(heard)
            visit = await visited(stranger, transport, revision, plan)
            logging.getLogger().removeHandler(heard)
            for nth, line in enumerate(heard.lines):
                visit.failures[f"warning {nth + 1}"] = line
            done.append(visit)
            print(shown(visit), flush=True)
    return done


def told(done: list[Visit]) -> int:
    """Print what the lines above do not say; the exit code."""
    print("listed: t tools, r resources, rt templates of resources, p prompts")
    reasons: dict[str, list[str]] = {}
    for visit in done:
        for what, why in visit.left_out.items():
            reasons.setdefault(f"{what}: {why}", []).append(str(visit))
    for reason, where in reasons.items():
        print(f"left out in {len(where)} visits ({where[0]}{', …' if where[1:] else ''}): {reason}")
    for visit in done:
        for what, why in visit.failures.items():
            print(f"\nFAILED: {what}, {visit}\n{why}")
    calls, failed = sum(visit.calls for visit in done), sum(len(visit.failures) for visit in done)
    print(f"{len(done)} visits, {calls} calls, {failed} failed")
    return 1 if failed or not done else 0


def told_of(stay: Stay) -> int:
    """Print what became of all of them in one host; the exit code."""
    print("\nin one host, called at once:")
    for key, count in stay.listed.items():
        failed = [name for name in stay.failures if name.partition("__")[0] == key]
        calls = sum(name.partition("__")[0] == key for name in stay.answers)
        revision = stay.revisions.get(key) or "-"
        print(row((key, "", "", revision, f"{count}t", calls, len(failed) or ".")))
    for key in BROKEN:
        print(f"broken, and reported: {stay.problems.get(key, '-').splitlines()[0]}")
    for what, why in stay.failures.items():
        print(f"\nFAILED: {what}, in one host\n{why}")
    print(f"{len(stay.keys)} servers, {len(stay.tools)} tools, {len(stay.failures)} failed")
    return 1 if stay.failures else 0


def main(name: str = "") -> int:
    every = (*LIBRARIES, *FIRST, *PUBLISHED)
    chosen = [one for one in every if name.lower() in ("", *str(one).lower().split())]
    if not chosen:
        print(f"there is no server named {name}")
        return 1
    print(row(HEADS), flush=True)
    done = asyncio.run(visits(chosen))
    failed = 0 if all(one.missing for one in chosen) else told(done)
    if name:
        return failed
    with tempfile.TemporaryDirectory() as folder:
        return max(failed, told_of(published_stay(Path(folder).resolve())))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
