"""A server whose tools run as tasks, for the clients of other implementations.

    .venv/bin/python tests/interop/tasks/our_server.py [PORT]     # no port: any; it is printed
    .venv/bin/python tests/interop/tasks/our_server.py stdio

Rules: written with the public decorators alone; nothing looks at the revision of its caller.
"""

import asyncio
import sys

from colonnade import Context, Server, ToolError
from colonnade.transport.http_server.runner import HttpRunner

# Long enough to be seen at work by a client that polls at once.
CHAPTER_S = 0.2

server = Server("press", version="1.0")


@server.tool(task=True)
async def book(topic: str, ctx: Context) -> str:
    """Write a book."""
    await ctx.progress(1, 2, "chapter 1")
    await asyncio.sleep(CHAPTER_S)
    return f"a book about {topic}"


@server.tool(task="required")
async def order(title: str, ctx: Context) -> str:
    """Order printed copies."""
    copies = await ctx.elicit(f"How many copies of {title}?", int)
    return f"{copies} copies of {title}"


@server.tool(task=True)
async def forever() -> str:
    """Write until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


@server.tool(task=True)
async def misprint() -> str:
    """Fail."""
    raise ToolError("out of paper")


def announce(runner: HttpRunner) -> None:
    print(runner.url, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run()
    else:
        server.run("http", port=int(sys.argv[1]) if sys.argv[1:] else 0, started=announce)
