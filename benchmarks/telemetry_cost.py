"""CPU time of a call with telemetry and no SDK, against the same call without telemetry.

    python benchmarks/telemetry_cost.py

Both are measured in turns in one process, and each pair gives a ratio: the median of the ratios is
printed. In memory both sides are in this process; over HTTP, client and server as well.
"""

import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from typing import Any

import opentelemetry.trace

from colonnade import Server, connect
from colonnade.transport.http_server.runner import listening

WARM_UP = 300


def make_server(*, telemetry: bool) -> Server:
    """A server with one tool."""
    server = Server("cost", telemetry=telemetry)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def call(client: Any, count: int) -> float:
    """CPU microseconds of a call."""
    began = time.process_time()
    for _ in range(count):
        await client.call_tool("add", {"a": 1, "b": 2})
    return (time.process_time() - began) / count * 1e6


async def compare(name: str, clients: tuple[Any, Any], count: int, rounds: int) -> None:
    """Measure both in turns, and print the ratio."""
    for client in clients:
        await call(client, WARM_UP)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(await call(clients[which], count))
    ratio = statistics.median(b / a for a, b in zip(*found, strict=True))
    off, idle = map(statistics.median, found)
    print(f"{name}: {off:.1f} µs without, {idle:.1f} µs with telemetry; ratio {ratio:.4f}")


async def main() -> None:
    """Measure in memory, with telemetry at the server and on both sides, and over HTTP."""
    assert opentelemetry.trace, "imported, but no SDK is configured"
    async with AsyncExitStack() as stack:
        off = await stack.enter_async_context(connect(make_server(telemetry=False)))
        server = await stack.enter_async_context(connect(make_server(telemetry=True)))
        await compare("memory, server", (off, server), 300, 300)
    async with AsyncExitStack() as stack:
        off = await stack.enter_async_context(connect(make_server(telemetry=False)))
        idle = connect(make_server(telemetry=True), telemetry=True)
        both = await stack.enter_async_context(idle)
        await compare("memory, server and client", (off, both), 300, 300)
    async with AsyncExitStack() as stack:
        clients: list[Any] = []
        for telemetry in (False, True):
            app = make_server(telemetry=telemetry).asgi()
            runner = await stack.enter_async_context(listening(app, port=0))
            client = connect(runner.url, telemetry=telemetry)
            clients.append(await stack.enter_async_context(client))
        await compare("HTTP, server and client", (clients[0], clients[1]), 150, 150)


if __name__ == "__main__":
    asyncio.run(main())
