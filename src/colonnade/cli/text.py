"""Text for a terminal: in columns, of words that are made safe and cut to a width.

Rules: whatever a server wrote goes through `clean`, or what is made of it, before it is shown.
"""

from collections.abc import Sequence

from colonnade.client.text import ELLIPSIS, clean, cut, first_line, one_line, width

__all__ = ["ELLIPSIS", "clean", "columns", "cut", "first_line", "one_line", "width"]


def columns(rows: Sequence[Sequence[str]], *, indent: int = 2, most: int | None = None) -> str:
    """Rows in columns, two spaces apart, one a line; no line takes more than `most` places."""
    if not rows:
        return ""
    widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        padded = [cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        line = " " * indent + "  ".join(cell for cell in padded if cell).rstrip()
        lines.append(line if most is None else cut(line, most))
    return "".join(f"{line}\n" for line in lines)
