"""A picture of how a form crosses a gateway between each two generations, from recorded wires.

    PYTHONPATH=tests:tests/support .venv/bin/python -m gateway.cell_pictures docs/gateway-cells.svg

Rules: the arrows are the frames of real conversations, in their order, from the call on.
"""

import asyncio
import sys
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from colonnade import Context, Server
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.protocol.methods import Side
from gateway.recorded import NEW, OLD, Cell, RecordedWire, recorded

# The client and the server of each cell, and what the gateway does.
CELLS = {
    (NEW, NEW): "relayed",
    (NEW, OLD): "the call is held",
    (OLD, NEW): "asked in a loop",
    (OLD, OLD): "passed through",
}
PANEL, HEAD, STEP = 430, 74, 26
COLUMNS = (70, 215, 360)
FONT = "ui-sans-serif, system-ui, sans-serif"
INK, LINE, ARROW, TITLE = "#24312b", "#b9c4bd", "#2f7d54", "#1d2521"


class Arrow(NamedTuple):
    """One frame: the columns that it goes between, and its name."""

    start: int
    end: int
    label: str


async def frames_of(downstream: str, upstream: str) -> list[Arrow]:
    """The frames of one call that elicits, on both wires."""
    server = Server("desk")

    @server.tool
    async def book(ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    async with recorded(server, upstream=upstream, downstream=downstream) as cell:
        client = await cell.connect(InputCallbacks(on_elicit=lambda _: "12A"))
        await client.list_tools()
        begins = len(cell.client_wire.frames)
        result = await client.call_tool("s__book")
        assert result.text == "12A"
        cell.check()
        return arrows(cell, begins)


def arrows(cell: Cell, begins: int) -> list[Arrow]:
    first = cell.client_wire.places[begins]
    found: list[tuple[int, Arrow]] = []
    for wire, client_column in ((cell.client_wire, 0), (cell.server_wire, 1)):
        names = requests_of(wire)
        for place, (side, frame) in zip(wire.places, wire.frames, strict=True):
            if place >= first:
                columns = (client_column, client_column + 1)
                start, end = columns if side is Side.CLIENT else columns[::-1]
                found.append((place, Arrow(start, end, label(side, frame, names))))
    return [arrow for _, arrow in sorted(found)]


def requests_of(wire: RecordedWire) -> dict[tuple[Side, Any], str]:
    """The methods of the requests of each side, by id."""
    return {
        (side, frame["id"]): frame["method"]
        for side, frame in wire.frames
        if "method" in frame and "id" in frame
    }


def label(side: Side, frame: Any, names: dict[tuple[Side, Any], str]) -> str:
    if "method" in frame:
        retry = " (inputResponses)" if "inputResponses" in frame.get("params", {}) else ""
        return f"{frame['method']}{retry}"
    result = frame["result"]
    if result.get("resultType") == "input_required":
        return "input_required"
    other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
    return "result" if names[other, frame["id"]] == "tools/call" else "response"


async def picture() -> str:
    """The picture of all four cells."""
    made = {cell: await frames_of(*cell) for cell in CELLS}
    height = HEAD + STEP * (max(map(len, made.values())) + 1)
    parts: list[str] = []
    for number, ((downstream, upstream), found) in enumerate(made.items()):
        x, y = PANEL * (number % 2), height * (number // 2)
        words = f"client {downstream}, server {upstream}: {CELLS[downstream, upstream]}"
        parts.append(f"<g transform='translate({x},{y})'>")
        parts.append(text(16, 24, words, TITLE, "start", 13, "600"))
        for column, name in zip(COLUMNS, ("client", "gateway", "server"), strict=True):
            parts.append(text(column, 50, name, INK, "middle", 12))
            bottom = HEAD - 6 + STEP * len(found)
            parts.append(
                f"<line x1='{column}' y1='58' x2='{column}' y2='{bottom}' stroke='{LINE}'/>"
            )
        for row, arrow in enumerate(found):
            parts += drawn(arrow, HEAD + 12 + STEP * row)
        parts.append("</g>")
    size = f"width='{2 * PANEL}' height='{2 * height}'"
    box = "markerWidth='7' markerHeight='7' refX='7' refY='3.5' orient='auto'"
    head = f"<path d='M0,0 L7,3.5 L0,7 z' fill='{ARROW}'/>"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='{FONT}'>",
            f"<defs><marker id='a' {box}>{head}</marker></defs>",
            f"<rect {size} rx='8' fill='#f7f9f7'/>",
            *parts,
            "</svg>\n",
        ]
    )


def drawn(arrow: Arrow, y: int) -> list[str]:
    start, end = COLUMNS[arrow.start], COLUMNS[arrow.end]
    line = f"<line x1='{start}' y1='{y}' x2='{end}' y2='{y}' stroke='{ARROW}'"
    return [
        f"{line} stroke-width='1.4' marker-end='url(#a)'/>",
        text((start + end) // 2, y - 5, arrow.label, INK, "middle", 10),
    ]


def text(x: int, y: int, words: str, fill: str, anchor: str, size: int, weight: str = "400") -> str:
    place = f"x='{x}' y='{y}' font-size='{size}' font-weight='{weight}'"
    return f"<text {place} fill='{fill}' text-anchor='{anchor}'>{escape(words)}</text>"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(asyncio.run(picture()), "utf-8")
