"""What a run says: tables, JSON, the machine's facts, and each ratio beside a recorded one.

Rules: pure but for the facts of the machine; nothing is rounded in our favour.
"""

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.bars import Verdict
from benchmarks.figures import Figure, Ratio, shown


def table(figure: Figure) -> str:
    """One figure: everybody's best and better quarter, and ours against each."""
    lines = [f"{figure.title}   ({figure.unit}, {rounds(figure)})"]
    times = f"{figure.ours} is … {'of' if figure.better == 'less' else 'times'} it"
    lines.append(f"  {'':<20} {'best':>11} {'p75':>11} {'CPU µs':>8} {'load µs':>8}   {times}")
    for name in figure.samples:
        row = f"  {name:<20} {shown(figure.best(name)):>11} {shown(figure.quarter(name)):>11}"
        taken = figure.cpu.get(name)
        loaded = figure.load.get(name)
        row += f" {shown(min(taken), up=True) if taken else '':>8}"
        row += f" {shown(min(loaded), up=True) if loaded else '':>8}"
        if name != figure.ours and (ratio := figure.ratio(name)) is not None:
            row += f"   {said(ratio, up=figure.better == 'less')}"
            if taken and figure.ours in figure.cpu:
                row += f"   by CPU {shown(min(taken) / min(figure.cpu[figure.ours]))}"
        lines.append(row.rstrip())
    lines += [f"  {name:<20} not measured: {why}" for name, why in figure.missing.items()]
    lines += [f"  {note}" for note in figure.notes]
    return "\n".join(lines)


def markdown(figures: Iterable[Figure]) -> str:
    """The best rounds as a table for a page: a row for each figure, a column for each entrant."""
    measured = [figure for figure in figures if figure.samples]
    names = list(dict.fromkeys(name for figure in measured for name in figure.samples))
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for figure in measured:
        up = figure.better == "less"
        cells = [
            shown(figure.best(name), up=up) if name in figure.samples else "–" for name in names
        ]
        lines.append(f"| {figure.title}, {figure.unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rounds(figure: Figure) -> str:
    """How many rounds there were."""
    most = max((len(samples) for samples in figure.samples.values()), default=0)
    return f"{most} rounds in turns" if most > 1 else "one round"


def said(ratio: Ratio, *, up: bool) -> str:
    """A ratio with its spread."""
    best, quarter = shown(ratio.best, up=up), shown(ratio.quarter, up=up)
    spread = f"{shown(ratio.least, up=up)} to {shown(ratio.most, up=up)}"
    return f"best {best}, p75 {quarter}   (rounds: {spread})"


def verdicts(found: Iterable[Verdict]) -> str:
    """Every bar: what was reached, what must be, and whether it is."""
    lines = [str(one) for one in found]
    missed = sum(not one.passes for one in found)
    lines.append(f"  {len(lines) - missed} bars reached, {missed} missed")
    return "\n".join(["must show (the worse of best and p75)", *lines])


def compared(figures: Mapping[str, Figure], recorded: Mapping[str, Any]) -> str:
    """Each ratio of now beside the recorded one, and by how much it has changed."""
    lines = [f"  {'':<52} {'against':<20} {'recorded':>9} {'now':>9} {'change':>8}"]
    for figure in figures.values():
        old: Mapping[str, Any] = recorded.get(figure.name, {}).get("ratios", {})
        for name in figure.samples:
            ratio = figure.ratio(name)
            if name == figure.ours or ratio is None:
                continue
            row = f"  {figure.title:<52} {name:<20}"
            now = shown(ratio.quarter, up=figure.better == "less")
            if name in old:
                before = float(old[name]["p75"])
                row += f" {shown(before):>9} {now:>9} {change(before, ratio.quarter, figure)}"
            else:
                row += f" {'–':>9} {now:>9}"
            lines.append(row)
    return "\n".join(["ratios of the better quarters, and the recorded ones", *lines])


# A change of the better quarter that is more than the machine's own restlessness.
MUCH = 0.15


def change(before: float, now: float, figure: Figure) -> str:
    """By how many per cent a ratio has changed; a loss that is more than noise is marked."""
    by = now / before - 1
    lost = -by if figure.better == "more" else by
    return f"{by * 100:>+7.0f}%" + ("  LOST" if lost > MUCH else "")


def facts(versions: Mapping[str, str]) -> dict[str, Any]:
    """The machine, and what ran on it."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "versions": {
            **{name: version(name) for name in ("msgspec", "uvicorn", "uvloop", "httptools")},
            **versions,
        },
    }


def told(facts: Mapping[str, Any]) -> str:
    """The facts in two lines."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores; {facts['system']}; {facts['python']}\n{versions}"
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
