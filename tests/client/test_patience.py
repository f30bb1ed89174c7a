"""Nobody hurries a person: a call does not run out of time while its own question is answered."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from live import live
from portico import Client, Context, Server, TimedOut, connect
from portico.protocol.revision import ALL, Asking
from portico.transport.http_run import Site

ASKING = [one.date for one in ALL if one.asking is Asking.BY_REQUEST and one.elicitation.modes]
# Short beside what a person takes here, long beside what a busy machine needs for a message.
TIMEOUT_S = 2.0


def desk() -> Server:
    server = Server("desk")

    @server.tool
    async def book(ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    @server.tool
    async def sleep() -> None:
        await asyncio.Event().wait()

    return server


@asynccontextmanager
async def clerk(way: str, revision: str, on_elicit: Any) -> AsyncGenerator[Client]:
    server = desk()
    options: dict[str, Any] = {"revision": revision, "timeout_s": TIMEOUT_S, "on_elicit": on_elicit}
    if way == "memory":
        async with connect(server, **options) as client:
            yield client
        return
    site = Site(server.asgi(), port=0)
    await site.start()
    try:
        async with connect(site.url, **options) as client:
            yield client
    finally:
        await site.stop(0.0)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["memory", "http"])
@pytest.mark.parametrize("revision", ASKING)
@live
async def test_a_person_may_take_longer_than_the_call(way: str, revision: str) -> None:
    async def think(params: Any) -> str:
        await asyncio.sleep(2 * TIMEOUT_S)
        return "12A"

    async with clerk(way, revision, think) as client:
        assert (await client.call_tool("book")).text == "12A"
        with pytest.raises(TimedOut):
            await client.call_tool("sleep")
