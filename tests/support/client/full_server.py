"""A server with one of everything that a client can ask for, in this process, at an address, or as
a child; and clients of it that have a handler for everything.

Rules: whatever it does takes some turns of the loop, so that there is time to give up in between.
`python bench.py 2026-07-28` serves it on standard streams.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

from colonnade import Context, Extension, Server, connect
from colonnade.client.connect import PendingClient
from colonnade.protocol.revision import Revision
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner

HERE = os.path.abspath(__file__)
ROOT = "file:///bench"
RESOURCE = "bench://vice"
EXTENSION = "com.example/bench"


def full_server(date: str) -> Server:
    """It speaks one revision alone, so that others have to find out which."""
    extension = Extension(EXTENSION)
    server = Server("bench", page_size=2, logging=True, revisions=[date], extensions=[extension])

    @extension.method("bench/measure")
    async def measure(length: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"length": length}

    @server.tool(task=True)
    async def glue(ctx: Context) -> str:
        await asyncio.sleep(0)
        return "glued"

    @server.tool
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for step in range(1, to + 1):
            await ctx.progress(step, to)
            await ctx.log("warning", step)
        return "counted"

    @server.tool
    async def ask_roots(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    @server.tool
    async def ask_colour(ctx: Context) -> str:
        return await ctx.elicit("Which colour?", str)

    @server.tool
    async def touch() -> str:
        server.updated(RESOURCE)
        return "touched"

    for name in ("vice", "saw", "plane"):
        server.resource(f"bench://{name}", name=name)(lambda: "a thing")
        server.resource(f"bench://{name}/{{part}}", name=f"{name} part")(lambda part: part)

    @server.prompt
    def sharpen(angle: str, stone: Literal["coarse", "fine"] = "fine") -> str:
        return f"{angle} degrees on the {stone} stone"

    @server.prompt
    def oil() -> str:
        return "a drop"

    @server.prompt
    def sweep() -> str:
        return "the floor"

    return server


@asynccontextmanager
async def reachable(transport: str, revision: Revision) -> AsyncGenerator[Any]:
    """What to connect to, for as long as this is entered."""
    if transport == "memory":
        yield full_server(revision.date)
    elif transport == "child":
        yield [sys.executable, HERE, revision.date]
    else:
        site = HttpRunner(HttpApp(full_server(revision.date)), port=0)
        await site.start()
        try:
            where = f"http://127.0.0.1:{site.port}"
            older = {"type": "sse", "url": f"{where}/sse"}
            yield older if transport == "sse" else f"{where}/mcp"
        finally:
            await site.stop(0.0)


def joining(target: Any, revision: Revision | None) -> PendingClient:
    """A client that is about to be, with a handler for everything; without a revision it has to
    find out."""
    return connect(
        target,
        revision=revision and revision.date,
        on_elicit=_colour,
        on_log=_ignored,
        on_progress=_ignored,
        roots=_roots,
        extensions={EXTENSION: {}},
        env={"PYTHONPATH": os.pathsep.join(sys.path)} if isinstance(target, list) else None,
    )


async def _colour(asked: Any) -> str:
    await asyncio.sleep(0)
    return "red"


async def _roots() -> list[str]:
    await asyncio.sleep(0)
    return [ROOT]


async def _ignored(*news: Any) -> None:
    await asyncio.sleep(0)


if __name__ == "__main__":
    full_server(sys.argv[1]).run()
