"""MCP in a FastAPI application, in one line: `/mcp` is the server, all else is FastAPI.

    uvicorn --app-dir examples fastapi_app:app         any ASGI server will do
    python examples/fastapi_app.py [PORT]              with Colonnade's own

Or mount the server in the application: `api.mount("/", server.asgi())` as its last route. Mounted
applications have no lifespan, so the first request starts the server.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from colonnade import Server, ToolError


class Book(BaseModel):
    title: str
    pages: int


books = {"emma": Book(title="Emma", pages=474)}


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncGenerator[None]:
    print("the API has started", file=sys.stderr)
    yield
    print("the API has ended", file=sys.stderr)


api = FastAPI(lifespan=lifespan)
server = Server("books", version="1.0")


@api.get("/books/{key}")
def read(key: str) -> Book:
    """For people and programs."""
    if key not in books:
        raise HTTPException(404, f"no book {key!r}")
    return books[key]


@server.tool(read_only=True)
def look_up(key: str) -> Book:
    """For models: the same book."""
    if key not in books:
        raise ToolError(f"No book {key!r}; there are {', '.join(books)}.")
    return books[key]


@server.tool
def add(book: Book) -> str:
    """Add a book; its key."""
    key = book.title.lower().replace(" ", "-")
    books[key] = book
    return key


app = server.asgi(path="/mcp", around=api)

if __name__ == "__main__":
    server.run(
        "http",
        path="/mcp",
        around=api,
        port=int(sys.argv[1]) if sys.argv[1:] else 8000,
        started=lambda site: print(f"books 1.0 on {site.url}", flush=True),
    )
