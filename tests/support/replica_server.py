"""A server for tests of replicas, as a program over HTTP.

    python replica_server.py STORE FOLDER SHUTDOWN_DELAY_S PORT

Prints its URL. STORE is the path of an SQLite file, or a `redis://` URL. A call of `wait` that is
cancelled leaves a file with its name in FOLDER.
"""

import asyncio
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade import Context, RunLimits, Server
from colonnade.ports import Store
from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.request import Limits

LIMITS = StoreLimits(total_bytes=2**33, principal_bytes=2**33, principal_entries=10_000_000)


def open_store(url: str) -> Store:
    if url.startswith("redis"):
        redis: Any = importlib.import_module("colonnade.store.redis")
        return redis.RedisStore(url, limits=LIMITS)
    return SqliteStore(url, limits=LIMITS)


@dataclass
class Color:
    name: str


def make_server(store: str, folder: Path) -> Server:
    server = Server("replicas", store=open_store(store), keys=[b"k" * 32], logging=True)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(to: int, ctx: Context) -> int:
        for step in range(to):
            await ctx.progress(step + 1, to)
        return to

    @server.tool
    async def long(ctx: Context) -> str:
        """Close the stream of the call, which the client resumes."""
        await ctx.progress(1, 2)
        await ctx.hang_up()
        await asyncio.sleep(0.01)
        await ctx.progress(2, 2)
        return "the end"

    @server.tool
    async def paint(ctx: Context) -> str:
        color = await ctx.elicit("Which color?", Color)
        return color.name

    @server.tool
    async def wait(name: str, ctx: Context) -> str:
        try:
            await ctx.progress(1)
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            (folder / name).touch()
            raise
        return name

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.debug("a debug message")
        return "logged"

    @server.tool
    def touch(uri: str) -> None:
        server.updated(uri)

    @server.resource("file:///{name}")
    def file(name: str) -> str:
        return name

    return server


if __name__ == "__main__":
    server = make_server(sys.argv[1], Path(sys.argv[2]))
    # A client that is told to reconnect waits for retry_ms.
    limits = Limits(max_sessions=1_000_000, max_concurrent_requests=100_000, retry_ms=10)
    run_limits = RunLimits(shutdown_delay_s=float(sys.argv[3]))
    server.run("http", port=int(sys.argv[4]), limits=limits, run_limits=run_limits)
