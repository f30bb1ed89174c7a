"""Async `on_progress` and `on_log` callbacks: a call and `close` wait for them, for a limited time."""

import asyncio
import contextlib
from typing import Any

import pytest

from colonnade import Context, Host, Server, connect
from colonnade.client import input_callbacks as hearing_module
from colonnade.client.client import Client
from colonnade.errors import ColonnadeError
from colonnade.protocol.revision import ALL, Revision
from colonnade.sync import connect as connect_blocking
from live import Records, live

COUNT = 10


def counter() -> Server:
    server = Server("counter")

    @server.tool
    async def count(ctx: Context) -> str:
        for number in range(COUNT):
            await ctx.progress(number + 1, COUNT)
            await ctx.info(f"number {number}")
        return "done"

    @server.tool
    def ping() -> str:
        return "pong"

    return server


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_a_call_returns_after_its_async_callbacks_have_run(revision: Revision) -> None:
    progress, logged = list[float](), list[Any]()

    async def on_progress(value: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        progress.append(value)

    async def on_log(message: Any) -> None:
        await asyncio.sleep(0)
        logged.append(message.data)

    async with connect(counter(), revision=revision.date, on_log=on_log) as client:
        await client.call_tool("count", on_progress=on_progress)
        assert progress == list(range(1, COUNT + 1))
        assert logged == [f"number {number}" for number in range(COUNT)]


@live
async def test_close_waits_for_async_callbacks_that_are_behind() -> None:
    logged, said, gate = list[Any](), asyncio.Event(), asyncio.Event()
    server = Server("talker")

    @server.tool
    async def talk(ctx: Context) -> None:
        for number in range(COUNT):
            await ctx.info(f"number {number}")
        said.set()
        await asyncio.Event().wait()

    async def on_log(message: Any) -> None:
        await gate.wait()
        for _ in range(100):  # longer than closing takes without waiting
            await asyncio.sleep(0)
        logged.append(message.data)

    client = await connect(server, on_log=on_log)
    calling = asyncio.ensure_future(client.call_tool("talk"))
    await said.wait()
    calling.cancel()  # nothing but `close` waits for the callbacks
    await asyncio.wait([calling])
    gate.set()
    await client.close()
    assert logged == [f"number {number}" for number in range(COUNT)]


@live
async def test_a_callback_that_hangs_delays_one_call_for_a_limited_time_and_close_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hearing_module, "CATCH_UP_S", 0.01)

    async def on_log(message: Any) -> None:
        await asyncio.Event().wait()

    with Records("colonnade.client") as records:
        async with connect(counter(), on_log=on_log) as client:
            assert (await client.call_tool("count")).data == "done"
            monkeypatch.setattr(hearing_module, "CATCH_UP_S", 3600)
            # The next calls do not wait for the same callback again.
            assert (await client.call_tool("ping")).data == "pong"
            monkeypatch.setattr(hearing_module, "CATCH_UP_S", 0.01)
    assert [line.split(":")[0] for line in records.lines] == [
        "WARNING a callback is slow",
        "WARNING closed before every callback was called",
    ]


@live
async def test_a_callback_may_call_the_server_itself_from_a_task_of_its_own() -> None:
    answers = list[str]()

    async with connect(counter()) as plain:
        client: Client = plain

        async def on_progress(value: float, total: float | None, message: str | None) -> None:
            called = await asyncio.gather(client.call_tool("ping"), client.call_tool("ping"))
            answers.extend(result.text for result in called)

        with Records("colonnade.client") as records:
            await client.call_tool("count", on_progress=on_progress)
    assert answers == ["pong"] * 2 * COUNT
    assert records.lines == []


@live
async def test_a_callback_may_close_the_client() -> None:
    closed = asyncio.Event()
    client: Client

    async def on_progress(value: float, total: float | None, message: str | None) -> None:
        try:
            await client.close()
        finally:
            closed.set()

    client = await connect(counter())
    with Records("colonnade.client") as records:
        await asyncio.wait([asyncio.ensure_future(_failed(client, on_progress))])
        await closed.wait()
        await client.close()
    assert records.lines == []


async def _failed(client: Client, on_progress: Any) -> None:
    with contextlib.suppress(ColonnadeError):
        await client.call_tool("count", on_progress=on_progress)


def test_a_blocking_callback_may_call_the_server_itself() -> None:
    answers = list[str]()
    with connect_blocking(counter()) as client:

        def on_progress(value: float, total: float | None, message: str | None) -> None:
            answers.append(client.call_tool("ping").text)

        with Records("colonnade.client") as records:
            client.call_tool("count", on_progress=on_progress)
        assert answers == ["pong"] * COUNT
    assert records.lines == []


@live
async def test_a_call_of_a_host_returns_after_its_async_callbacks_have_run() -> None:
    progress, logged = list[float](), list[Any]()

    async def on_progress(value: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        progress.append(value)

    async def on_log(message: Any) -> None:
        await asyncio.sleep(0)
        logged.append(message.data)

    async with Host({"counter": counter()}) as host:
        await host.call_tool("counter__count", on_progress=on_progress, on_log=on_log)
        assert progress == list(range(1, COUNT + 1))
        assert logged == [f"number {number}" for number in range(COUNT)]
