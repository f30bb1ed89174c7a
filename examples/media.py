"""Content of tool results: images, audio, files, resource links, several blocks.

Run it with `python examples/media.py` (stdio) or `colonnade serve examples/media.py` (HTTP).
"""

import io
import math
import struct
import wave
import zlib

from colonnade import Audio, File, Image, Link, Server, ToolReturn

server = Server("studio", version="1.0", instructions="Draws, sounds and writes.")

SALES = {"mon": 3, "tue": 5, "wed": 2, "thu": 8, "fri": 6}


def png(rows: list[bytes]) -> bytes:
    """Grey pixels as a picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


class Chart:
    """An object with a rich display, like a figure in a notebook, is an image."""

    def __init__(self, values: list[int]) -> None:
        self.values = values

    def _repr_png_(self) -> bytes:
        top = max(self.values)
        return png(
            [bytes(0 if v >= level else 255 for v in self.values) for level in range(top, 0, -1)]
        )


@server.tool
def chart() -> Chart:
    """Draw the week's sales."""
    return Chart(list(SALES.values()))


@server.tool
def swatch(grey: int = 128) -> Image:
    """Show one grey."""
    return Image(png([bytes([grey]) * 8] * 8), format="png")


@server.tool
def tone(hertz: int = 440, milliseconds: int = 50) -> Audio:
    """Sound a note."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        waves = (math.sin(2 * math.pi * hertz * n / 8000) for n in range(8 * milliseconds))
        file.writeframes(b"".join(struct.pack("<h", int(20000 * height)) for height in waves))
    return Audio(made.getvalue(), format="wav")


@server.tool
def report() -> list[str | Chart | File | Link]:
    """The week as text, an image, a table and a link."""
    table = "\n".join(f"{day},{count}" for day, count in SALES.items())
    return [
        f"{sum(SALES.values())} sold this week.",
        Chart(list(SALES.values())),
        File(table, uri="sales://week.csv", mime_type="text/csv"),
        Link("sales://thu", title="The best day"),
    ]


@server.resource("sales://{day}")
def day(day: str) -> dict[str, int] | None:
    """What was sold on one day."""
    return {day: SALES[day]} if day in SALES else None


@server.tool
def best() -> ToolReturn:
    """The best day: words for the model, data for programs, a note for the client alone."""
    name = max(SALES, key=lambda day: SALES[day])
    return ToolReturn(
        f"The best day was {name}.", data={"day": name}, meta={"example.com/shown": True}
    )


if __name__ == "__main__":
    server.run()
