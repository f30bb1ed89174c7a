"""Input requests through a gateway over HTTP, and to servers at URLs and in processes."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Gateway, Host, Server, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from colonnade.transport.http_server.runner import HttpRunner
from gateway.recorded import NEW, OLD
from live import live_for

REVISIONS = [NEW, OLD]
SCRIPT = """
from colonnade import Context, Server

server = Server("asking")


@server.tool
async def book(who: str, ctx: Context) -> str:
    return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"


@server.tool
async def think(ctx: Context) -> str:
    return (await ctx.sample("Think.")).text


@server.tool
async def pay(ctx: Context) -> str:
    await ctx.elicit_url("Enter your card.", "https://pay.example.com/card", id="card-7")
    return "paid"


server.run()
"""


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:
    site = HttpRunner(app, port=0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/mcp"
    finally:
        await site.stop(0.0)


@asynccontextmanager
async def target(kind: str, folder: Path) -> AsyncGenerator[Any]:
    """What a host connects to: a process, or a URL."""
    file = folder / "asking.py"
    file.write_text(SCRIPT)
    if kind == "process":
        yield [sys.executable, str(file)]
        return
    names: dict[str, Any] = {}
    exec(compile(SCRIPT.replace("server.run()", ""), str(file), "exec"), names)
    async with served(names["server"].asgi()) as url:
        yield url


def elicit(params: t.ElicitRequestParams) -> Any:
    return True if params.mode == "url" else f"for {params.message.split()[-1]}"


@pytest.mark.parametrize("kind", ["url", "process"])
@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
@live_for(600)
async def test_input_requests_cross_over_http(
    downstream: str, upstream: str, kind: str, tmp_path: Path
) -> None:
    async with target(kind, tmp_path) as found:
        entry = entry_of("s", found, Settings(revision=upstream, sampling=True))
        gateway = Gateway(Host({"s": entry}))
        async with served(gateway.asgi()) as url:
            async with connect(
                url, revision=downstream, on_elicit=elicit, on_sample=lambda _: "a thought"
            ) as client:
                names = ["ada", "bob", "eve"]
                booked = await asyncio.gather(
                    *(client.call_tool("s__book", {"who": who}) for who in names)
                )
                assert [one.text for one in booked] == [f"{who}: for {who}?" for who in names]
                assert (await client.call_tool("s__think")).text == "a thought"
                assert (await client.call_tool("s__pay")).text == "paid"
            assert gateway._bridge.held.count == 0


@live_for(600)
async def test_a_client_that_closes_its_request_cancels_the_call_of_the_server() -> None:
    server, began, ended = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    _ = wait
    async with served(server.asgi()) as upstream:
        gateway = Gateway(Host({"s": entry_of("s", upstream, Settings(revision=OLD))}))
        async with (
            served(gateway.asgi()) as url,
            connect(url, revision=NEW, on_elicit=elicit) as client,
        ):
            call = asyncio.create_task(client.call_tool("s__wait"))
            await began.wait()
            call.cancel()
            await ended.wait()
            await asyncio.wait([call])
