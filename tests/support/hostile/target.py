"""The server that is thrown at: small tools, and some that are as bad as tools get.

    python target.py http       prints its port, serves until it is ended
    python target.py stdio      serves standard input and output

Rules: no limit is loosened here; what a stranger meets is what our users run.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from colonnade import Context, Server

NEVER_S = 0.2
BLOCK_S = 2.0


@dataclass
class Confirmed:
    """What a person says to `confirm`."""

    go_on: bool = True


class Rude(BaseException):
    """Nobody's `except Exception` catches it."""


KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (
        *(BaseException, Rude, KeyboardInterrupt, SystemExit, MemoryError, RecursionError),
        *(asyncio.CancelledError, StopIteration, StopAsyncIteration, TimeoutError),
    )
}


def endless() -> None:
    endless()


def fail(kind: str) -> str:
    if kind == "RecursionError":
        endless()  # the real one, with a thousand frames
    raise KINDS[kind]("a secret of the author")


def make() -> Server:
    server = Server("target", version="1.0")
    _add_good(server)
    _add_bad(server)
    _add_failing(server)
    return server


def _add_good(server: Server) -> None:
    go = asyncio.Event()

    @server.tool
    async def echo(value: Any = None) -> str:
        return json.dumps(value)

    @server.tool
    async def count(n: int) -> int:
        return n

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1, 1)
        return "reported"

    @server.tool
    async def confirm(text: str, ctx: Context) -> str:
        """Waits for a person, with its arguments in memory."""
        await ctx.elicit(f"{len(text)} characters; go on?", Confirmed)
        return "confirmed"

    @server.tool
    async def wait() -> str:
        await go.wait()
        return "waited"

    @server.tool
    async def release() -> str:
        go.set()
        return "released"

    @server.tool
    def in_a_thread() -> str:
        return "done"

    @server.tool
    async def census() -> dict[str, int]:
        """How much there is in this process of what a client could leave behind."""
        gc.collect()
        return {
            "tasks": len(asyncio.all_tasks()),
            "descriptors": len(os.listdir("/dev/fd")),
            "threads": threading.active_count(),
            "objects": len(gc.get_objects()),
        }


def _add_bad(server: Server) -> None:
    @server.tool
    async def block() -> str:
        """Holds the whole loop."""
        time.sleep(BLOCK_S)
        return "unblocked"

    @server.tool(timeout_s=NEVER_S)
    async def never() -> str:
        await asyncio.Event().wait()
        return "never"

    @server.tool(timeout_s=NEVER_S)
    async def stubborn() -> str:
        """Does not stop when it is told to; not at once."""
        for _ in range(3):
            try:
                await asyncio.sleep(0.1)
                await asyncio.sleep(0.2)
            except asyncio.CancelledError:
                continue
        return "late"

    @server.tool(timeout_s=NEVER_S)
    def stuck() -> str:
        """A thread that nobody can end."""
        time.sleep(3600)
        return "never"

    @server.tool
    async def huge(size: int) -> str:
        return "x" * size

    @server.resource("huge://{size}")
    async def huge_resource(size: int) -> bytes:
        return b"x" * size

    @server.prompt
    async def huge_prompt(size: int) -> str:
        return "x" * size

    @server.tool
    async def deep() -> Any:
        value: Any = 1
        for _ in range(100_000):
            value = [value]
        return value

    @server.tool
    async def circle() -> Any:
        value: list[Any] = []
        value.append(value)
        return value

    @server.tool
    async def no_json() -> Any:
        return {"not": object(), "finite": float("nan"), "half": "\ud800"}


def _add_failing(server: Server) -> None:
    @server.tool
    async def fails(kind: str) -> str:
        return fail(kind)

    @server.tool
    def fails_in_a_thread(kind: str) -> str:
        return fail(kind)

    @server.tool(inline=True)
    def fails_inline(kind: str) -> str:
        return fail(kind)

    @server.tool
    async def fails_with_a_context(kind: str, ctx: Context) -> str:
        return fail(kind)

    @server.resource("fails://{kind}")
    async def fails_as_a_resource(kind: str) -> str:
        return fail(kind)

    @server.prompt
    async def fails_as_a_prompt(kind: str) -> str:
        return fail(kind)

    @server.completion(fails_as_a_prompt, "kind")
    async def fails_to_complete(kind: str) -> list[str]:
        return [fail(kind)]


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        make().run()
    else:
        make().run("http", port=0, started=lambda site: print(site.port, flush=True))
