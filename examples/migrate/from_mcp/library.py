"""A small library on the official SDK, mcp 2.3.0: what most servers use of it. docs/migrate-mcp.md
moves it.

Run it with `python library.py` where the SDK is installed.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import (
    AssistantMessage,
    Context,
    Elicit,
    Image,
    MCPServer,
    Message,
    Resolve,
    UserMessage,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

PIXEL = b"\x89PNG\r\n\x1a\n"


class Book(BaseModel):
    title: str
    pages: int
    lent_to: str | None = None


class Longer(BaseModel):
    value: int


@asynccontextmanager
async def opened(server: Any) -> AsyncGenerator[dict[str, Any]]:
    yield {"desk": "ground floor"}


mcp = MCPServer("library", version="1.0", instructions="Books, and who has them.", lifespan=opened)
books = {
    title: Book(title=title, pages=pages) for title, pages in (("Emma", 474), ("Ivanhoe", 519))
}


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def find(title: str) -> Book:
    """Find a book.

    Args:
        title: Its title, or how the title begins.
    """
    found = [book for name, book in books.items() if name.startswith(title)]
    if not found:
        raise ToolError(f"There is no {title!r}.")
    return found[0]


@mcp.tool()
async def lend(title: str, reader: Annotated[str, Field(min_length=2)], ctx: Context) -> str:
    """Lend a book to a reader."""
    await ctx.info(f"{reader} wants {title}")
    await ctx.report_progress(1, 2, "looking for it")
    if books[title].lent_to:
        raise ToolError(f"{books[title].lent_to} has it.")
    books[title].lent_to = reader
    await ctx.report_progress(2, 2, "stamped")
    return f"{reader} has {title}, from the {ctx.request_context.lifespan_context['desk']}"


@mcp.tool("sort_by")
def sort(by: Literal["title", "pages"] = "title") -> list[str]:
    """Every title, in order."""
    return [book.title for book in sorted(books.values(), key=lambda book: getattr(book, by))]


@mcp.tool()
def cover(title: str) -> Image:
    """The cover of a book."""
    return Image(data=PIXEL, format="png")


@mcp.tool()
def summary() -> CallToolResult:
    """What there is, in words and as data."""
    return CallToolResult(
        content=[TextContent(type="text", text=f"{len(books)} books")],
        structured_content={"books": len(books)},
    )


def longer(title: str) -> Elicit[Longer]:
    return Elicit("For how many weeks?", Longer)


@mcp.tool()
async def renew(title: str, weeks: Annotated[Longer, Resolve(longer)]) -> str:
    """Keep a book for longer."""
    return f"{title}: {weeks.value} more weeks"


@mcp.resource("library://books", mime_type="application/json")
def all_books() -> str:
    """Every title."""
    return ", ".join(books)


@mcp.resource("library://books/{title}")
def one_book(title: str) -> str:
    """How long a book is."""
    return f"{title} has {books[title].pages} pages"


@mcp.resource("library://scans/{+path}")
def scan(path: str) -> str:
    """A scanned page, somewhere below the folder of its book."""
    return f"scan of {path}"


@mcp.prompt()
def review(title: str, tone: str = "kind") -> list[Message]:
    """Ask for a review."""
    return [UserMessage(f"Review {title}, and be {tone}."), AssistantMessage("With pleasure.")]


if __name__ == "__main__":
    mcp.run(transport="stdio")
