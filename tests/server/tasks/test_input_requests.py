"""Input requests of tasks of 2025-11-25 whose clients do not call `tasks/result`, over HTTP."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import Context, Server, connect
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.server.tasks import input_requests
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller, Response
from live import live
from server.tasks import RELATED

WAIT_S = 30.0
ELICITATION = {"elicitation": {"form": {}}}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has no time to call `tasks/result`."""
    monkeypatch.setattr(input_requests, "UNCLAIMED_S", 0.0)


@asynccontextmanager
async def served() -> AsyncGenerator[HttpRunner]:
    server = Server("press")

    @server.tool(task="required")
    async def ask(ctx: Context) -> str:
        return f"{await ctx.elicit('How many pages?', int)} pages"

    runner = HttpRunner(server.asgi(), port=0)
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop(0.0)


async def start(caller: Caller) -> str:
    await caller.initialize(NOVEMBER_2025.date, ELICITATION)
    response = await caller.ask("tools/call", {"name": "ask", "arguments": {}, "task": {}})
    return response.json["result"]["task"]["taskId"]


async def received(stream: Response, method: str) -> dict[str, Any]:
    """The next message with this method."""
    async with asyncio.timeout(WAIT_S):
        while (message := await stream.message()).get("method") != method:
            pass
    return message


async def respond(caller: Caller, request: dict[str, Any]) -> None:
    result = {"action": "accept", "content": {"value": 7}}
    sent = await caller.post({"jsonrpc": "2.0", "id": request["id"], "result": result})
    assert sent.status == 202


@pytest.mark.spec("R0529")
@live
async def test_an_input_request_is_sent_on_the_get_stream_and_names_its_task() -> None:
    async with served() as runner, Caller(runner.port) as caller:
        await caller.initialize(NOVEMBER_2025.date, ELICITATION)
        _, stream = await caller.get()
        call = {"name": "ask", "arguments": {}, "task": {}}
        created = (await caller.ask("tools/call", call)).json["result"]["task"]
        request = await received(stream, "elicitation/create")
        assert request["params"]["_meta"][RELATED] == {"taskId": created["taskId"]}
        await respond(caller, request)
        ended = await caller.ask("tasks/result", {"taskId": created["taskId"]})
        assert ended.json["result"]["content"][0]["text"] == "7 pages"


@live
async def test_an_input_request_is_sent_when_a_client_polls_that_reads_a_stream_by_then() -> None:
    async with served() as runner, Caller(runner.port) as caller:
        id = await start(caller)
        while (await caller.ask("tasks/get", {"taskId": id})).json["result"]["status"] == "working":
            pass
        _, stream = await caller.get()
        await caller.ask("tasks/get", {"taskId": id})
        await respond(caller, await received(stream, "elicitation/create"))
        ended = await caller.ask("tasks/result", {"taskId": id})
        assert ended.json["result"]["content"][0]["text"] == "7 pages"


@live
async def test_an_input_request_is_cancelled_on_the_get_stream_if_tasks_result_carries_it() -> None:
    async with served() as runner, Caller(runner.port) as caller:
        await caller.initialize(NOVEMBER_2025.date, ELICITATION)
        _, stream = await caller.get()
        call = {"name": "ask", "arguments": {}, "task": {}}
        id = (await caller.ask("tools/call", call)).json["result"]["task"]["taskId"]
        first = await received(stream, "elicitation/create")
        _, held = await caller.asking("tasks/result", {"taskId": id})
        second = await received(held, "elicitation/create")
        withdrawn = await received(stream, "notifications/cancelled")
        assert withdrawn["params"]["requestId"] == first["id"]
        await respond(caller, second)
        while "result" not in (message := await held.message()):
            pass
        assert message["result"]["content"][0]["text"] == "7 pages"


@pytest.mark.spec("R0529")
@live
async def test_a_client_responds_to_an_input_request_of_a_task_on_its_get_stream() -> None:
    """It does not wait for the result, and has sent no `tasks/result`."""
    asked = asyncio.Event()

    def on_elicit(_: object) -> int:
        asked.set()
        return 7

    async with served() as runner:
        url = f"http://127.0.0.1:{runner.port}/mcp"
        async with connect(url, revision=NOVEMBER_2025.date, on_elicit=on_elicit) as client:
            task = await client.start_task("ask")
            async with asyncio.timeout(WAIT_S):
                await asked.wait()
            assert (await task.result()).text == "7 pages"
