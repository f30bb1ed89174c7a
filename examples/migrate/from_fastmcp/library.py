"""A small library on FastMCP 4.1.2: what most servers use of it. docs/migrate-fastmcp.md moves it.

Run it with `python library.py` where FastMCP is installed.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from pydantic import BaseModel, Field

PIXEL = b"\x89PNG\r\n\x1a\n"


class Book(BaseModel):
    title: str
    pages: int
    lent_to: str | None = None


@asynccontextmanager
async def opened(server: Any) -> AsyncGenerator[dict[str, Any]]:
    yield {"desk": "ground floor"}


mcp = FastMCP("library", version="1.0", instructions="Books, and who has them.", lifespan=opened)
fines = FastMCP("fines")
books = {
    title: Book(title=title, pages=pages) for title, pages in (("Emma", 474), ("Ivanhoe", 519))
}


def get_books() -> dict[str, Book]:
    return books


@mcp.tool(annotations={"readOnlyHint": True}, tags={"public"})
def find(title: str, shelves: dict[str, Book] = Depends(get_books)) -> Book:  # noqa: B008
    """Find a book.

    Args:
        title: Its title, or how the title begins.
    """
    found = [book for name, book in shelves.items() if name.startswith(title)]
    if not found:
        raise ToolError(f"There is no {title!r}.")
    return found[0]


@mcp.tool(timeout=20)
async def lend(title: str, reader: Annotated[str, Field(min_length=2)], ctx: Context) -> str:
    """Lend a book to a reader."""
    await ctx.info(f"{reader} wants {title}")
    await ctx.report_progress(1, 2, "looking for it")
    if books[title].lent_to:
        raise ToolError(f"{books[title].lent_to} has it.")
    books[title].lent_to = reader
    await ctx.report_progress(2, 2, "stamped")
    return f"{reader} has {title}, from the {ctx.lifespan_context['desk']}"


@mcp.tool("sort_by")
def sort(by: Literal["title", "pages"] = "title") -> list[str]:
    """Every title, in order."""
    return [book.title for book in sorted(books.values(), key=lambda book: getattr(book, by))]


@mcp.tool
def cover(title: str) -> Image:
    """The cover of a book."""
    return Image(data=PIXEL, format="png")


@mcp.tool
def summary() -> ToolResult:
    """What there is, in words and as data."""
    return ToolResult(content=f"{len(books)} books", structured_content={"books": len(books)})


@mcp.tool
async def renew(title: str, ctx: Context) -> str:
    """Keep a book for longer."""
    weeks = (await ctx.elicit("For how many weeks?", response_type=int)).data
    return f"{title}: {weeks} more weeks"


@mcp.resource("library://books", mime_type="application/json")
def all_books() -> str:
    """Every title."""
    return ", ".join(books)


@mcp.resource("library://books/{title}")
def one_book(title: str) -> str:
    """How long a book is."""
    return f"{title} has {books[title].pages} pages"


@mcp.resource("library://scans/{path*}")
def scan(path: str) -> str:
    """A scanned page, somewhere below the folder of its book."""
    return f"scan of {path}"


@mcp.prompt
def review(title: str, tone: str = "kind") -> list[Message]:
    """Ask for a review."""
    return [Message(f"Review {title}, and be {tone}."), Message("With pleasure.", role="assistant")]


@fines.tool
def owed(reader: str, days: int) -> float:
    """What a reader owes."""
    return days * 0.5


mcp.mount(fines, namespace="fines")

if __name__ == "__main__":
    mcp.run(transport="stdio", show_banner=False)
