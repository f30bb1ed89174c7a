"""Pictures of what was measured, for the pages: bars, and a terminal. SVG, drawn by hand.

    scripts/bench chart             all of them, but that of the suite
    scripts/bench chart start       docs/start.svg, from what scripts/bench start prints
    scripts/bench chart demo        docs/demo.svg, from what scripts/demo prints
    scripts/bench chart inspect     docs/inspect.svg, from what `colonnade inspect` shows at a terminal
    scripts/bench --record          docs/benchmark.svg, from what the suite has measured

Rules: nothing is drawn that a run has not printed.
"""

import contextlib
import fcntl
import os
import platform
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from collections.abc import Mapping
from html import escape
from pathlib import Path

from benchmarks.figures import Figure, shown

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FONT = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"
OURS, THEIRS = "#2f6f4f", "#b7b2a8"
# What docs/benchmark.svg shows of the suite.
CHARTED = (
    "http-async",
    "http-sync",
    "session-async",
    "http-stream",
    "stdio-16",
    "stdio-1",
    "memory",
    "client-1",
    "client-16",
    "list-1000",
    "start",
    "resident",
    "gateway-new-new",
    "gateway-old-old",
    "gateway-1m",
)
# Of the demo; the rest scrolls away on a small screen, too.
LINES = 44
# The terminal of `inspect`: so wide that its lines fit the picture.
PLACES = 96
INSPECTED = ("colonnade", "inspect", "weather.py")
# What each style of a terminal looks like on the picture.
PLAIN = "fill='#e6e6e0'"
STYLES = {
    "0": PLAIN,
    "1": "fill='#9fd8b4' font-weight='bold'",
    "2": "fill='#93a39a'",
    "1;36": "fill='#8fd3e8' font-weight='bold'",
    "1;33": "fill='#f0c674' font-weight='bold'",
}
STYLED = re.compile(r"\x1b\[([\d;]*)m")


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


# A heading, and a bar for each row under it: its name, its length, what it says, whether it is ours.
# Of small print, beside each other in the picture.
FOOT_CHARACTERS = 100
Group = tuple[str, list[tuple[str, float, str, bool]]]


def groups(title: str, drawn_of: list[Group], foot: list[str]) -> str:
    """Several charts of bars under each other, the longest bar of each as long as the others'."""
    below = [piece for line in foot for piece in textwrap.wrap(line, FOOT_CHARACTERS)]
    height = 48 + sum(34 + 20 * len(rows) for _, rows in drawn_of) + 16 * len(below)
    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='720' height='{height}' {FONT}>",
        f"<rect width='720' height='{height}' fill='#fdfcf9'/>",
        f"<text x='16' y='26' font-size='15' fill='#222'>{escape(title)}</text>",
    ]
    y = 40
    for heading, rows in drawn_of:
        most = max((length for _, length, _, _ in rows), default=1.0)
        y += 16
        drawn.append(f"<text x='16' y='{y}' font-size='13' fill='#222'>{escape(heading)}</text>")
        y += 6
        for name, length, said, ours in rows:
            width = max(1, round(300 * length / most))
            colour = OURS if ours else THEIRS
            drawn += [
                f"<text x='28' y='{y + 13}' font-size='12' fill='#444'>{escape(name)}</text>",
                f"<rect x='215' y='{y + 1}' width='{width}' height='15' fill='{colour}'/>",
                f"<text x='{223 + width}' y='{y + 13}' font-size='12' fill='#222'>{escape(said)}</text>",
            ]
            y += 20
        y += 12
    for line in below:
        y += 14
        drawn.append(f"<text x='16' y='{y}' font-size='11' fill='#777'>{escape(line)}</text>")
    return "\n".join([*drawn, "</svg>", ""])


def benchmark(figures: Mapping[str, Figure], foot: list[str]) -> str:
    """The figures of the suite that have a chart: everybody's better quarter."""
    drawn_of: list[Group] = []
    for name in CHARTED:
        if (figure := figures.get(name)) is None or figure.ours not in figure.samples:
            continue
        rows = [
            (one, figure.quarter(one), _said(figure, one), one == figure.ours)
            for one in figure.samples
        ]
        less = ", less is better" if figure.better == "less" else ""
        drawn_of.append((f"{figure.title} ({figure.unit}{less})", rows))
    return groups("Colonnade, its peers, and the limit of Python", drawn_of, foot)


def _said(figure: Figure, entrant: str) -> str:
    said = shown(figure.quarter(entrant), up=figure.better == "less")
    ratio = figure.ratio(entrant) if entrant != figure.ours else None
    if ratio is None:
        return said
    if figure.better == "less":
        return f"{said}   (ours {shown(ratio.quarter, up=True)} of it)"
    return f"{said}   (ours {shown(ratio.quarter)}×)"


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


def painted(command: str, shown: str) -> str:
    """A terminal, with what a command has shown there, in its colours."""
    lines = [f"$ {command}", *shown.splitlines()]
    height = 24 + 17 * len(lines)
    drawn = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='800' height='{height}' {FONT}>",
        f"<rect width='800' height='{height}' rx='8' fill='#1d2521'/>",
    ]
    for index, line in enumerate(lines):
        # Text and style take turns; the first text has the plain one.
        pieces = STYLED.split(line)
        styles = ["0", *pieces[1::2]]
        spans = [
            f"<tspan {STYLES.get(style, PLAIN)}>{escape(text)}</tspan>"
            for style, text in zip(styles, pieces[::2], strict=True)
            if text
        ]
        drawn.append(
            f"<text x='16' y='{28 + 17 * index}' font-size='13' xml:space='preserve'>"
            f"{''.join(spans)}</text>"
        )
    return "\n".join([*drawn, "</svg>", ""])


def at_terminal(*command: str) -> str:
    """What a command shows at a terminal of its own, in the folder of the examples."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 60, PLACES, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    path = f"{Path(sys.executable).parent}:{env.get('PATH', '')}"
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=side,
        stderr=side,
        cwd=ROOT / "examples",
        env={**env, "TERM": "xterm", "PATH": path},
    )
    os.close(side)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while data := os.read(main, 65536):
            shown += data
    os.close(main)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return shown.decode().replace("\r\n", "\n")


def start_rows(printed: str) -> list[tuple[str, float, str, bool]]:
    """The best times and the peaks of `scripts/bench start`."""
    rows: list[tuple[str, float, str, bool]] = []
    era = ""
    for line in printed.splitlines():
        if found := re.match(r"(\d{4}-\d\d-\d\d)\s+best", line):
            era = found[1]
        elif found := re.match(r"  (\S.*?)\s+(\d+) ms\s+\d+ ms\s+([\d.]+) MiB", line):
            ours = found[1].startswith("colonnade")
            said = f"{found[2]} ms, {found[3]} MiB"
            rows.append((f"{found[1]}, {era}", float(found[2]), said, ours))
    return rows


def draw_start() -> int:
    started = subprocess.run(
        [ROOT / "scripts" / "bench", "start"], capture_output=True, text=True, check=False
    )
    print(started.stdout)
    machine = f"{platform.system()}, Python {platform.python_version()}, two cores; one run"
    title = "From exec to the first answer of a server with one tool, on stdio"
    rows = start_rows(started.stdout)
    (DOCS / "start.svg").write_text(bars(title, rows, f"best of 15 rounds in turns; {machine}"))
    return started.returncode


def draw_demo() -> int:
    demo = subprocess.run([ROOT / "scripts" / "demo"], capture_output=True, text=True, check=True)
    (DOCS / "demo.svg").write_text(terminal("scripts/demo", demo.stdout.splitlines()[1:][:LINES]))
    return 0


def draw_inspect() -> int:
    shown = at_terminal(*INSPECTED)
    (DOCS / "inspect.svg").write_text(painted(" ".join(INSPECTED), shown))
    return 0


PICTURES = {"start": draw_start, "demo": draw_demo, "inspect": draw_inspect}


def main() -> int:
    named = sys.argv[1:] or list(PICTURES)
    unknown = [name for name in named if name not in PICTURES]
    if unknown:
        raise SystemExit(f"no picture {unknown[0]!r}; there is: {' '.join(PICTURES)}")
    return max(PICTURES[name]() for name in named)


if __name__ == "__main__":
    sys.exit(main())
