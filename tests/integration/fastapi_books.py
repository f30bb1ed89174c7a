"""A FastAPI application with an MCP server in it, in every way that there is, to be served.

    uvicorn --app-dir tests/integration fastapi_books:around

Rules: written as any author would; both lifespans say on standard output when they are entered and
left. Nothing here knows who serves it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from colonnade import Context, Server


class Book(BaseModel):
    title: str
    pages: int


@asynccontextmanager
async def theirs(api: FastAPI) -> AsyncGenerator[None]:
    print("api entered", flush=True)
    yield
    print("api left", flush=True)


@asynccontextmanager
async def ours(server: Server) -> AsyncGenerator[dict[str, Book]]:
    print("server entered", flush=True)
    yield {"emma": Book(title="Emma", pages=474)}
    print("server left", flush=True)


def make() -> tuple[FastAPI, Server]:
    """The two of them, not yet together."""
    api = FastAPI(lifespan=theirs)
    server = Server("books", version="1.0", lifespan=ours)

    async def hello() -> dict[str, str]:
        return {"hello": "you"}

    api.get("/hello")(hello)

    async def look_up(key: str, ctx: Context) -> Book:
        """Look a book up."""
        return ctx.state[key]

    server.tool(look_up)
    return api, server


def _around() -> Any:
    api, server = make()

    async def lost(path: str) -> str:
        """A page for whatever has none, as applications of one page have it."""
        return f"<html>{path}</html>"

    api.get("/{path:path}")(lost)
    return server.asgi(path="/mcp", around=api)


def _mounted() -> Any:
    api, server = make()
    api.mount("/", server.asgi())
    return api


def _at_path() -> Any:
    api, server = make()
    api.mount("/mcp", server.asgi())
    return api


around, mounted, at_path = _around(), _mounted(), _at_path()
