"""The requirement index: one row for each MUST and SHOULD of the specification, read from *.tsv.

Rules: standard library only, for `scripts/trace` runs without an environment. The rows hold our
own few words, never a sentence of the specification.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
OFFICIAL = ROOT.parent / "shared" / "spec" / "requirements.tsv"
# What the texts of extensions demand beside the official list, with ids of its own.
EXTENSIONS = OFFICIAL.with_name("requirements-extensions.tsv")
# The extensions of that list that are indexed: those that are built.
INDEXED_EXTENSIONS = ("tasks",)

COLUMNS = ("id", "level", "revisions", "page", "words", "status", "reason")
LEVELS = ("MUST", "MUST NOT", "SHOULD", "SHOULD NOT")
STATUSES = ("tested", "not-ours", "deliberate", "open")

# Constant of colonnade.protocol.revision -> date, oldest first. Written here once more because
# the tool must run where msgspec is not installed; a test compares the two.
REVISIONS = {
    "NOVEMBER_2024": "2024-11-05",
    "MARCH_2025": "2025-03-26",
    "JUNE_2025": "2025-06-18",
    "NOVEMBER_2025": "2025-11-25",
    "JULY_2026": "2026-07-28",
}
DATES = tuple(REVISIONS.values())

# Pages that carry no date. The extensions are negotiated by what the newest revision has for
# them; good practice has no date at all.
GROUPS = {
    "ext-auth": (REVISIONS["JULY_2026"],),
    "ext-tasks": (REVISIONS["JULY_2026"],),
    "best-practices": DATES,
}

# Of every (id, level, revisions, page) of the official list that has one of the four levels, so
# that a clone without the list still knows whether its index is whole. `scripts/trace --digest`
# prints the present one when the official list was changed on purpose.
OFFICIAL_DIGEST = "443d8aaf34e852bd"

# The most words that still are "a few"; longer ones are a sentence copied or on its way to be.
MOST_WORDS = 14


@dataclass(frozen=True, slots=True)
class Row:
    """One rule: where it stands, what it says in our words, and what we did about it."""

    id: str
    level: str
    revisions: str
    page: str
    words: str
    status: str
    reason: str
    file: str

    @property
    def groups(self) -> tuple[str, ...]:
        """The names in the revisions column: dates, or one of GROUPS."""
        return tuple(self.revisions.split(","))

    @property
    def dates(self) -> tuple[str, ...]:
        """The revisions that a test of this rule must run in, oldest first."""
        wanted = {date for group in self.groups for date in GROUPS.get(group, (group,))}
        return tuple(date for date in DATES if date in wanted)

    @property
    def of_extension(self) -> bool:
        """Whether the rule is in the list of the extensions, and not in the official one."""
        return not self.id.startswith("R")

    @property
    def printed(self) -> tuple[str, str, str, str]:
        """What the official list says of this rule, without its text."""
        return (self.id, self.level, self.revisions, self.page)


@dataclass(frozen=True, slots=True)
class Official:
    """One line of the official list, as far as we use it."""

    id: str
    level: str
    revisions: str
    page: str
    section: str
    text: str

    @property
    def printed(self) -> tuple[str, str, str, str]:
        return (self.id, self.level, self.revisions, self.page)


class BadIndex(ValueError):
    """A line of the index that cannot be read as a row."""


def _lines(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Plain tab-separated lines, quotes meaning nothing."""
    head, *rest = path.read_text(encoding="utf-8").splitlines()
    names = head.split("\t")
    if absent := [name for name in columns if name not in names]:
        raise BadIndex(f"{path.name}:1: no column {', '.join(absent)}")
    for number, line in enumerate(rest, start=2):
        cells = line.split("\t")
        if len(cells) != len(names):
            raise BadIndex(
                f"{path.name}:{number}: {len(cells)} columns, the header has {len(names)}; "
                "separate with one tab and keep the last cell, empty or not"
            )
        yield number, dict(zip(names, cells, strict=True))


def read_index(folder: Path = FOLDER) -> list[Row]:
    """Every row of every *.tsv in the folder. Raises BadIndex for a line that is no row."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.tsv")):
        for number, cells in _lines(path, COLUMNS):
            if tuple(cells) != COLUMNS:
                raise BadIndex(f"{path.name}:1: columns must be {' '.join(COLUMNS)}")
            rows.append(Row(**cells, file=f"{path.name}:{number}"))
    return rows


def read_official(path: Path = OFFICIAL) -> dict[str, Official] | None:
    """The official list by id, levels that we do not index included; None where it is absent."""
    if not path.is_file():
        return None
    wanted = ("id", "level", "revisions", "page", "section", "text")
    return {
        cells["id"]: Official(**{name: cells[name] for name in wanted})
        for _, cells in _lines(path, wanted)
    }


def read_extensions(path: Path = EXTENSIONS) -> dict[str, str] | None:
    """The rules of the indexed extensions: id -> level; None where the list is absent."""
    if not path.is_file():
        return None
    return {
        cells["id"]: cells["level"]
        for _, cells in _lines(path, ("id", "level", "extension"))
        if cells["extension"] in INDEXED_EXTENSIONS and cells["level"] in LEVELS
    }


def digest(rows: Iterable[Row | Official]) -> str:
    """One short text for all that the official list says of these rows, whatever their order."""
    lines = sorted("\t".join(row.printed) for row in rows if row.level in LEVELS)
    return sha256("\n".join(lines).encode()).hexdigest()[:16]
