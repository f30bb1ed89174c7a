"""Tasks of a client and a server of this library together, in both generations, in memory and over
HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import Client, Context, Server, TaskEnded, connect
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from live import live

BOTH = pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
WAYS = pytest.mark.parametrize("way", ["memory", "http"])


def press(store: SqliteStore | None = None) -> Server:
    """A server whose tools run as tasks."""
    server = Server("press", store=store) if store is not None else Server("press")
    server.state = asyncio.Event()

    @server.tool(task=True)
    async def book(topic: str, ctx: Context) -> str:
        await ctx.progress(1, 2, "chapter 1")
        return f"a book about {topic}"

    @server.tool(task="required")
    async def ask(ctx: Context) -> str:
        return f"{await ctx.elicit('How many pages?', int)} pages"

    @server.tool(task="required")
    async def steady(ctx: Context) -> str:
        await ctx.progress(1, 2, "chapter 1")
        await ctx.state.wait()
        return "done"

    @server.tool(task="required")
    async def wait(ctx: Context) -> str:
        await ctx.state.wait()
        return "waited"

    return server


@asynccontextmanager
async def served(way: str, revision: Revision, **options: Any) -> AsyncGenerator[Client]:
    server = press()
    async with (
        reachable(server, way) as target,
        connect(target, revision=revision.date, **options) as client,
    ):
        yield client


@asynccontextmanager
async def reachable(server: Server, way: str) -> AsyncGenerator[Any]:
    if way == "memory":
        yield server
        return
    site = HttpRunner(HttpApp(server), port=0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/mcp"
    finally:
        await site.stop(0.0)


@BOTH
@WAYS
@live
async def test_a_call_of_a_tool_that_is_a_task_returns_its_result(
    way: str, revision: Revision
) -> None:
    async with served(way, revision) as client:
        assert (await client.call_tool("book", {"topic": "tea"})).data == "a book about tea"
        task = await client.start_task("book", {"topic": "tea"})
        assert task.handle is not None
        assert (await task.result(returns=str)).data == "a book about tea"
        assert (await client.resume_task(task.handle).result()).data == "a book about tea"


@BOTH
@WAYS
@live
async def test_input_requests_of_a_task_reach_the_callback(way: str, revision: Revision) -> None:
    shown: list[str] = []

    def on_elicit(params: Any) -> Any:
        shown.append(params.message)
        return 20

    async with served(way, revision, on_elicit=on_elicit) as client:
        assert (await client.call_tool("ask")).data == "20 pages"
        assert shown == ["How many pages?"]


@BOTH
@WAYS
@live
async def test_progress_of_a_task_reaches_the_callback(way: str, revision: Revision) -> None:
    said: list[Any] = []
    server = press()

    def on_progress(*one: Any) -> None:
        said.append(one)
        server.state.set()

    async with (
        reachable(server, way) as target,
        connect(target, revision=revision.date) as client,
    ):
        assert (await client.call_tool("steady", on_progress=on_progress)).data == "done"
    total = 2 if revision is NOVEMBER_2025 else None
    assert said == [(1, total, "chapter 1")]


@BOTH
@WAYS
@live
async def test_a_cancelled_call_cancels_its_task(way: str, revision: Revision) -> None:
    async with served(way, revision) as client:
        task = await client.start_task("wait")
        assert task.handle is not None
        await task.cancel()
        with pytest.raises(TaskEnded, match="was cancelled"):
            await task.result()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.call_tool("wait")


@pytest.mark.spec("R1166")
@BOTH
@live
async def test_a_task_is_resumed_at_a_server_that_was_restarted(
    revision: Revision, tmp_path: Any
) -> None:
    """With a store on disk, and at the same address."""
    path = tmp_path / "press.db"
    site = HttpRunner(HttpApp(press(SqliteStore(path))), port=0)
    await site.start()
    url = f"http://127.0.0.1:{site.port}/mcp"
    async with connect(url, revision=revision.date) as client:
        handle = (await client.start_task("wait")).handle
    assert handle is not None
    port = site.port
    await site.stop(0.0)
    server = press(SqliteStore(path))
    server.state.set()
    site = HttpRunner(HttpApp(server), port=port)
    await site.start()
    try:
        async with connect(url, revision=revision.date) as client:
            assert (await client.resume_task(handle).result()).data == "waited"
    finally:
        await site.stop(0.0)
