"""The feature table: every row in order, and its Markdown.

Rules: nothing is run here. What a cell shows is for others to say: `command` by what was seen.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from colonnade.protocol.revision import ALL, Revision
from features.composition import COMPOSITION
from features.context import CONTEXT
from features.feature import Group, Row, Verdict
from features.http_errors import GATE
from features.http_streams import HTTP
from features.input_in_handlers import QUESTIONS
from features.input_requests import ASKING
from features.input_responses import ANSWERED
from features.lifecycle import LIFECYCLE, STDIO
from features.prompts import COMPLETIONS, PROMPTS
from features.resources import RESOURCES
from features.results import RESULTS
from features.tasks import TASKS
from features.tools import TOOLS

GROUPS: tuple[Group, ...] = (
    *(TOOLS, RESULTS, RESOURCES, PROMPTS, COMPLETIONS),
    *(CONTEXT, QUESTIONS, ASKING, ANSWERED, TASKS, COMPOSITION),
    *(LIFECYCLE, STDIO, HTTP, GATE),
)
ROWS: list[Row] = [row for group in GROUPS for row in group.rows]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "features.md"
BEGIN = "<!-- the table: scripts/features --write -->"
END = "<!-- the end of the table -->"

Cell: TypeAlias = Callable[[Row, Revision], str]


def promised(row: Row, revision: Revision) -> Verdict:
    """The expected verdict of a row in a revision."""
    return row.promised[ALL.index(revision)]


def name_of(row: Row, revision: Revision) -> str:
    """The name of a cell, as in the test ids."""
    return f"{row.group}: {row.name}-{revision.date}"


def render(cell: Cell = lambda row, revision: str(promised(row, revision))) -> str:
    """The table as Markdown; by default with the expected verdicts."""
    return "\n".join(_lines(cell))


def _lines(cell: Cell) -> Iterator[str]:
    dates = [revision.date for revision in ALL]
    for group in GROUPS:
        yield f"## {group.name}\n"
        yield f"| | {' | '.join(dates)} |"
        yield f"|---|{'---|' * len(dates)}"
        for row in group.rows:
            cells = [row.name, *(cell(row, revision) for revision in ALL)]
            yield "| " + " | ".join(one.replace("|", "\\|") for one in cells) + " |"
        yield ""


def written(page: str, table: str) -> str:
    """The page with this table in it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"
