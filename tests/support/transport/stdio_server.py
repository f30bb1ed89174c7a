"""A server for the tests of stdio: run as a process, it does everything that a server must not.

Rules: nothing here is asserted; the tests look at what the process wrote and how it ended.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from colonnade import BlockingContext, Context, Server


@asynccontextmanager
async def lifespan(server: Server) -> AsyncGenerator[None]:
    print("printed in the lifespan", flush=True)
    yield
    print("lifespan left", file=sys.stderr, flush=True)


server = Server("stdio", version="1.0", lifespan=lifespan)


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def noisy() -> str:
    """Print in every way there is."""
    print("a stray print")
    print("and flushed", flush=True)
    os.write(1, b"below Python\n")
    subprocess.run(["echo", "from a child"], check=True)
    return "silent"


@server.tool
def greedy() -> str:
    """Read what is not for it."""
    return repr(sys.stdin.readline()) + repr(os.read(0, 10))


@server.tool
async def waits() -> str:
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    return "never"


@server.tool
async def stubborn() -> str:
    """Does not stop when it is told to."""
    print("waiting", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@server.tool
def stuck() -> str:
    """Blocks its thread for good."""
    print("waiting", file=sys.stderr, flush=True)
    time.sleep(3600)
    return "never"


@server.tool
async def ask(ctx: Context) -> str:
    return f"{len(await ctx.roots())} roots"


@server.tool
def ask_in_a_thread(ctx: BlockingContext) -> str:
    return f"{len(ctx.roots())} roots"


@server.tool
async def report(ctx: Context) -> str:
    for step in range(1, 4):
        await ctx.progress(step, 3)
    return "done"


@server.tool
async def large(size: int) -> str:
    return "x" * size


@server.tool
def grow() -> str:
    server.tool(name="grown")(lambda: "grown")
    return "grew"


print("printed before it runs")
if __name__ == "__main__":
    server.run()
