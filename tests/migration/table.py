"""The tables of the migration pages, read from the pages and applied to a file.

A row has the old spelling and the new one as code; `…` is whatever stands there, and stays. Rows are
applied one after the other, to the whole file, those of imports last: there the names become the new
ones, and those that nothing uses any more are left out.

Rules: a page has one table under a heading, and what is not code in a cell (`nothing`) is nothing.
White space does not count, nor does a comma before a bracket that closes.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

HOLE = "…"
OPEN, CLOSE = "([{", ")]}"
ROW = re.compile(r"^\| *(`[^|]+`|nothing) *\| *(`[^|]+`|nothing) *\|", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One old spelling, and the new one."""

    old: str
    new: str

    @property
    def name(self) -> str:
        """The name that the old spelling is about, if it begins with one."""
        return _leading(self.old)

    @property
    def imports(self) -> bool:
        """Whether it is about an import."""
        return self.old.startswith("from ")

    @cached_property
    def _literals(self) -> list[re.Pattern[str]]:
        return [_loose(part) for part in self.old.split(HOLE)]

    def applied(self, text: str, rows: "list[Row]") -> tuple[str, int]:
        """The text with every old spelling replaced, and how many there were."""
        at = count = 0
        while found := self._literals[0].search(text, at):
            filled = self._filled(text, found.end())
            if filled is None:
                at = found.end()
                continue
            holes, end = filled
            if self.imports and holes:
                holes[-1] = _imported(holes[-1], rows, text[: found.start()] + text[end:])
            new = "".join(part for pair in _zipped(self.new, holes) for part in pair)
            text = text[: found.start()] + new + text[end:]
            at = found.start() + len(new)
            count += 1
        return text, count

    def _filled(self, text: str, at: int) -> tuple[list[str], int] | None:
        holes: list[str] = []
        for literal in self._literals[1:]:
            if not literal.pattern:  # a hole at the end goes on to the end of the line
                end = _reach(text, at, re.compile(r"\n|\Z"))
            else:
                end = _reach(text, at, literal)
            if end is None:
                return None
            holes.append(text[at:end].strip())
            found = literal.match(text, end)
            at = found.end() if found is not None else end
        return holes, at


def _zipped(new: str, holes: list[str]) -> list[tuple[str, str]]:
    parts = new.split(HOLE)
    return list(zip(parts, [*holes[: len(parts) - 1], ""], strict=True))


def _loose(literal: str) -> re.Pattern[str]:
    """A literal whose white space may be another."""
    words = re.findall(r"\w+|[^\w\s]", literal)
    pieces = [rf"\b{word}\b" if word[0].isalnum() else re.escape(word) for word in words]
    for number, word in enumerate(words):
        if word in CLOSE:
            pieces[number] = r",?\s*" + pieces[number]
    return re.compile(r"\s*".join(pieces))


def _reach(text: str, at: int, end: re.Pattern[str]) -> int | None:
    """Where, outside of all brackets and strings that are opened on the way, something is."""
    depth, quote = 0, ""
    for place in range(at, len(text) + 1):
        if not depth and not quote and end.match(text, place):
            return place
        letter = text[place : place + 1]
        if quote:
            quote = "" if letter == quote else quote
        elif letter and letter in "\"'":
            quote = letter
        elif letter and letter in OPEN:
            depth += 1
        elif letter and letter in CLOSE:
            depth -= 1
        if depth < 0:
            return None
    return None


def _leading(code: str) -> str:
    found = re.match(r"[A-Za-z_]\w*", code)
    return found[0] if found else ""


def _imported(names: str, rows: list[Row], around: str) -> str:
    """The names of an import, as the rows have them: each once, and those that are used."""
    replaced = {row.name: _leading(row.new) for row in rows if not row.imports}
    asked = re.findall(r"\w+", names)
    found = dict.fromkeys(replaced.get(name, name) for name in asked)
    return ", ".join(name for name in found if name and re.search(rf"\b{name}\b", around))


def rows(page: Path, heading: str) -> list[Row]:
    """The rows of the first table under a heading."""
    _, found, rest = page.read_text("utf-8").partition(f"\n## {heading}\n")
    assert found, f"{page.name} has no heading {heading!r}"
    section = re.split(r"\n## ", rest)[0]
    return [Row(_code(old), _code(new)) for old, new in ROW.findall(section)]


def _code(cell: str) -> str:
    return cell.strip().strip("`") if "`" in cell else ""


def moved(text: str, table: list[Row]) -> tuple[str, list[Row]]:
    """A file as the table says, and the rows that were of no use."""
    idle: list[Row] = []
    for row in sorted(table, key=lambda row: row.imports):
        text, count = row.applied(text, table)
        if not count:
            idle.append(row)
    return text, idle
