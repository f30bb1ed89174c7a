"""The table of return types in docs/servers.md: each cell is what a client gets."""

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from colonnade import Image, Server, ToolReturn
from colonnade.protocol.revision import Revision
from features.feature import JSON, tool_of
from live import live
from server.raw_client import raw_client

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "servers.md"


class Level(Enum):
    LOW = "low"


@dataclass
class Forecast:
    degrees: int


# By the words that begin a row: the annotations of it, each with a value.
ROWS: dict[str, list[tuple[Any, Any]]] = {
    "`str`": [(str, "a"), (str | None, "a")],
    "`Literal": [
        (Literal["low"], "low"),
        (Level, Level.LOW),
        (Annotated[str, Meta(pattern="a")], "a"),
    ],
    "`int`": [(int, 1), (bool, True), (list[int], [1])],
    "a dataclass": [(Forecast, Forecast(3)), (dict[str, int], {"a": 1})],
    "`Image`": [(Image, Image(b"i")), (bytes, b"b"), (list[Image], [Image(b"i")])],
    "`ToolReturn`": [(ToolReturn, ToolReturn("words", data={"a": 1}))],
    "`None`": [(Any, "a")],
}


def table() -> Iterator[tuple[str, list[str]]]:
    """The rows of the table: the annotations, and a cell for each group of revisions."""
    section = PAGE.read_text("utf-8").partition("### Return types")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for row in rows[2:]:
        first, *cells = re.split(r"(?<!\\)\|", row.strip("|"))
        yield first.strip(), [cell.strip() for cell in cells]


def cell(tool: JSON, result: JSON) -> str:
    """What the table says of such a result."""
    kinds = {block["type"] for block in result["content"]}
    has_schema, value = "outputSchema" in tool, result.get("structuredContent")
    if value is None:
        return "text" if kinds == {"text"} else "content blocks"
    if not has_schema:
        return "content and structured content"
    if isinstance(value, dict):
        return 'both, as `{"result": …}`' if list(value) == ["result"] else "both"
    return "both, bare"


def group(revision: Revision) -> int:
    return {"2024-11-05": 0, "2025-03-26": 0, "2026-07-28": 2}.get(revision.date, 1)


def returning(annotation: Any, value: Any) -> Callable[[], Awaitable[Any]]:
    """A function with this return annotation that returns this value."""

    async def give() -> Any:
        return value

    give.__annotations__ = {"return": annotation}
    return give


def test_every_row_of_the_table_is_tested() -> None:
    rows = [first for first, _ in table()]
    assert len(rows) == len(ROWS)
    assert all(row.startswith(words) for row, words in zip(rows, ROWS, strict=True))


@pytest.mark.parametrize("words", ROWS)
@live
async def test_a_return_type_becomes_what_the_table_says(words: str, revision: Revision) -> None:
    (cells,) = (cells for first, cells in table() if first.startswith(words))
    expected = cells[group(revision)]
    for annotation, value in ROWS[words]:
        server = Server("s")
        server.tool(returning(annotation, value))
        async with raw_client(server, revision) as client:
            found = cell(await tool_of(client, "give"), await client.call("give"))
        assert (annotation, found) == (annotation, expected)
