"""Pictures of what was measured, for the pages: bars, and a terminal. SVG, drawn by hand.

    scripts/bench chart     run scripts/bench start and scripts/demo, and draw docs/start.svg and
                            docs/demo.svg from what they printed

Rules: nothing is drawn that a run has not printed.
"""

import platform
import re
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FONT = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"
OURS, THEIRS = "#2f6f4f", "#b7b2a8"
# Of the demo; the rest scrolls away on a small screen, too.
LINES = 44


def bars(title: str, rows: list[tuple[str, float, str, bool]], foot: str) -> str:
    """A bar for each row: its name, its length, what it says, and whether it is ours."""
    most = max(length for _, length, _, _ in rows)
    height = 64 + 30 * len(rows)
    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='720' height='{height}' {FONT}>",
        f"<rect width='720' height='{height}' fill='#fdfcf9'/>",
        f"<text x='16' y='26' font-size='15' fill='#222'>{escape(title)}</text>",
    ]
    for index, (name, length, said, ours) in enumerate(rows):
        y = 42 + 30 * index
        width = max(2, round(300 * length / most))
        colour = OURS if ours else THEIRS
        drawn += [
            f"<text x='16' y='{y + 15}' font-size='13' fill='#222'>{escape(name)}</text>",
            f"<rect x='250' y='{y}' width='{width}' height='20' fill='{colour}'/>",
            f"<text x='{258 + width}' y='{y + 15}' font-size='13' fill='#222'>{escape(said)}</text>",
        ]
    drawn.append(f"<text x='16' y='{height - 10}' font-size='11' fill='#777'>{escape(foot)}</text>")
    return "\n".join([*drawn, "</svg>", ""])


def terminal(command: str, lines: list[str]) -> str:
    """A terminal, with what a command has printed."""
    shown = [f"$ {command}", *lines]
    height = 24 + 17 * len(shown)
    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='860' height='{height}' {FONT}>",
        f"<rect width='860' height='{height}' rx='8' fill='#1d2521'/>",
    ]
    for index, line in enumerate(shown):
        heading = line and not line.startswith((" ", "$"))
        colour = "#9fd8b4" if heading else "#e6e6e0"
        drawn.append(
            f"<text x='16' y='{28 + 17 * index}' font-size='13' fill='{colour}' "
            f"xml:space='preserve'>{escape(line[:104])}</text>"
        )
    return "\n".join([*drawn, "</svg>", ""])


def start_rows(printed: str) -> list[tuple[str, float, str, bool]]:
    """The best times and the peaks of `scripts/bench start`."""
    rows: list[tuple[str, float, str, bool]] = []
    era = ""
    for line in printed.splitlines():
        if found := re.match(r"(\d{4}-\d\d-\d\d)\s+best", line):
            era = found[1]
        elif found := re.match(r"  (\S.*?)\s+(\d+) ms\s+\d+ ms\s+([\d.]+) MiB", line):
            ours = found[1].startswith("portico")
            said = f"{found[2]} ms, {found[3]} MiB"
            rows.append((f"{found[1]}, {era}", float(found[2]), said, ours))
    return rows


def main() -> int:
    started = subprocess.run(
        [ROOT / "scripts" / "bench", "start"], capture_output=True, text=True, check=False
    )
    print(started.stdout)
    machine = f"{platform.system()}, Python {platform.python_version()}, two cores; one run"
    title = "From exec to the first answer of a server with one tool, on stdio"
    rows = start_rows(started.stdout)
    (DOCS / "start.svg").write_text(bars(title, rows, f"best of 15 rounds in turns; {machine}"))
    demo = subprocess.run([ROOT / "scripts" / "demo"], capture_output=True, text=True, check=True)
    (DOCS / "demo.svg").write_text(terminal("scripts/demo", demo.stdout.splitlines()[1:][:LINES]))
    return started.returncode


if __name__ == "__main__":
    sys.exit(main())
