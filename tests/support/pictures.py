"""A picture of what a command prints, and what a picture says.

    python tests/support/pictures.py "scripts/demo" docs/demo.svg < what-it-printed

Rules: lines as they are printed, in their order; those that begin at the margin stand out.
"""

import re
import sys
from html import escape, unescape

WIDTH, MARGIN = 860, 16
FIRST, STEP = 28, 17
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
GROUND, TEXT, TITLE = "#1d2521", "#e6e6e0", "#9fd8b4"


def picture(command: str, printed: str) -> str:
    """The picture of a terminal in which a command was typed, and printed this."""
    lines = [f"$ {command}", *printed.strip().splitlines()]
    height = FIRST + STEP * len(lines)
    size = f"width='{WIDTH}' height='{height}'"
    made = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='{FONT}'>",
        f"<rect {size} rx='8' fill='{GROUND}'/>",
    ]
    for number, line in enumerate(lines):
        fill = TITLE if number and line and not line.startswith(" ") else TEXT
        place = f"x='{MARGIN}' y='{FIRST + STEP * number}' font-size='13' fill='{fill}'"
        made.append(f"<text {place} xml:space='preserve'>{escape(line)}</text>")
    return "\n".join([*made, "</svg>\n"])


def said(picture: str) -> list[str]:
    """The lines of a picture, with the command that was typed."""
    return [unescape(line) for line in re.findall(r"<text [^>]*>(.*?)</text>", picture)]


if __name__ == "__main__":
    command, path = sys.argv[1:]
    with open(path, "w", encoding="utf-8") as file:
        file.write(picture(command, sys.stdin.read()))
