"""A server that is a file of its own, a server in this process, and a server at an address.

Rules: what it offers is the same on every way; `python shop.py` serves it on standard streams.
"""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from colonnade import Context, Server
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner

HERE = os.path.abspath(__file__)


def shop() -> Server:
    server = Server("shop", version="3", instructions="Ask for one thing.", page_size=2)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def where() -> dict[str, str]:
        return {"cwd": os.getcwd(), "word": os.environ.get("SHOP_WORD", "")}

    @server.tool
    def die(status: int = 3) -> str:
        print("the till is empty", file=sys.stderr, flush=True)
        os._exit(status)

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which colour?", str)

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for step in range(1, to + 1):
            await ctx.progress(step, to)
        return "counted"

    @server.resource("shop://{name}")
    def thing(name: str) -> str:
        return f"a {name}"

    @server.prompt
    def haggle(price: str, mood: Literal["kind", "hard"] = "kind") -> str:
        return f"Offer less than {price}, be {mood}"

    return server


@asynccontextmanager
async def site(server: Server | None = None) -> AsyncGenerator[HttpRunner]:
    """The shop at an address, for as long as this is entered."""
    site = HttpRunner(HttpApp(server or shop()), port=0)
    await site.start()
    try:
        yield site
    finally:
        await site.stop(0.0)


if __name__ == "__main__":
    shop().run()
