"""Pictures of what was measured, for the pages: bars, and a terminal. SVG, drawn by hand.

    scripts/bench chart             all of them
    scripts/bench chart start       docs/start.svg, from what scripts/bench start prints
    scripts/bench chart demo        docs/demo.svg, from what scripts/demo prints
    scripts/bench chart inspect     docs/inspect.svg, from what `portico inspect` shows at a terminal

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
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FONT = "font-family='ui-monospace, SFMono-Regular, Menlo, Consolas, monospace'"
OURS, THEIRS = "#2f6f4f", "#b7b2a8"
# Of the demo; the rest scrolls away on a small screen, too.
LINES = 44
# The terminal of `inspect`: so wide that its lines fit the picture.
PLACES = 96
INSPECTED = ("portico", "inspect", "weather.py")
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
    with contextlib.suppress(OSError):  # nobody has the other side open any more
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
            ours = found[1].startswith("portico")
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
