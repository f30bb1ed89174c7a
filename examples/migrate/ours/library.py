"""The small library of the migration pages, written for Colonnade from the start.

Run it with `python library.py` (stdio) or `colonnade serve library.py` (HTTP).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from colonnade import Ask, Context, Depends, Image, Message, Server, ToolError, ToolReturn

PIXEL = b"\x89PNG\r\n\x1a\n"


@dataclass
class Book:
    title: str
    pages: int
    lent_to: str | None = None


@asynccontextmanager
async def opened() -> AsyncGenerator[str]:
    yield "ground floor"


server = Server("library", version="1.0", instructions="Books, and who has them.", lifespan=opened)
fines = Server("fines")
books = {"Emma": Book("Emma", 474), "Ivanhoe": Book("Ivanhoe", 519)}


def get_books() -> dict[str, Book]:
    return books


Shelves = Annotated[dict[str, Book], Depends(get_books)]


@server.tool(read_only=True, tags={"public"})
def find(title: str, shelves: Shelves) -> Book:
    """Find a book.

    Args:
        title: Its title, or how the title begins.
    """
    found = [book for name, book in shelves.items() if name.startswith(title)]
    if not found:
        raise ToolError(f"There is no {title!r}.")
    return found[0]


@server.tool(timeout_s=20)
async def lend(title: str, reader: Annotated[str, Meta(min_length=2)], ctx: Context) -> str:
    """Lend a book to a reader."""
    await ctx.info(f"{reader} wants {title}")
    await ctx.progress(1, 2, "looking for it")
    if books[title].lent_to:
        raise ToolError(f"{books[title].lent_to} has it.")
    books[title].lent_to = reader
    await ctx.progress(2, 2, "stamped")
    return f"{reader} has {title}, from the {ctx.state}"


@server.tool(name="sort_by")
def sort(by: Literal["title", "pages"] = "title") -> list[str]:
    """Every title, in order."""
    return sorted(books, key=lambda title: getattr(books[title], by))


@server.tool
def cover(title: str) -> Image:
    """The cover of a book."""
    return Image(PIXEL, format="png")


@server.tool
def summary() -> ToolReturn:
    """What there is, in words and as data."""
    return ToolReturn(f"{len(books)} books", data={"books": len(books)})


@server.tool
async def renew(title: str, weeks: Annotated[int, Ask("For how many weeks?")]) -> str:
    """Keep a book for longer."""
    return f"{title}: {weeks} more weeks"


@server.resource("library://books", mime_type="application/json")
def all_books() -> str:
    """Every title."""
    return ", ".join(books)


@server.resource("library://books/{title}")
def one_book(title: str) -> str:
    """How long a book is."""
    return f"{title} has {books[title].pages} pages"


@server.resource("library://scans/{+path}")
def scan(path: str) -> str:
    """A scanned page, somewhere below the folder of its book."""
    return f"scan of {path}"


@server.prompt
def review(title: str, tone: str = "kind") -> list[Message]:
    """Ask for a review."""
    return [Message(f"Review {title}, and be {tone}."), Message("With pleasure.", "assistant")]


@fines.tool
def owed(reader: str, days: int) -> float:
    """What a reader owes."""
    return days * 0.5


server.mount(fines, namespace="fines")

if __name__ == "__main__":
    server.run()
