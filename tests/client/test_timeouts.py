"""Nobody hurries a person: a call does not run out of time while its own question is answered."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.misbehaving_http_server import misbehaving_server, outcome
from client.scripted_server import scripted_server
from colonnade import Client, Context, Server, TimedOut, connect
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.protocol.revision import ALL, NOVEMBER_2025, InputRequests
from colonnade.transport.http_server.runner import HttpRunner
from live import live, until
from scripted_http_server import AcceptedConnection, ReceivedRequest, chunk, events, stream

ASKING = [
    one.date
    for one in ALL
    if one.input_requests is InputRequests.AS_REQUEST and one.elicitation.modes
]
# Short beside what a person takes here, long beside what a busy machine needs for a message.
TIMEOUT_S = 2.0
# For what is never answered; long enough for a question to come.
SOON_S = 1.0
FORM = {"type": "object", "properties": {"seat": {"type": "string"}}}
QUESTION = {"message": "Which seat?", "requestedSchema": FORM}
ASKED = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": QUESTION}


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
    site = HttpRunner(server.asgi(), port=0)
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


class Slow(InputCallbacks):
    """Somebody who was asked, and never says anything."""

    def __init__(self) -> None:
        super().__init__(on_elicit=self._think)
        self.asked = asyncio.Event()

    async def _think(self, params: Any) -> str:
        self.asked.set()
        await asyncio.Event().wait()
        return ""


@pytest.mark.parametrize("given_up", [True, False])
@live
async def test_over_http_a_question_holds_only_the_call_on_whose_stream_it_came(
    given_up: bool,
) -> None:
    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message["params"]["name"] == "asks":
            await connection.send(stream(), chunk(events(ASKED)))
        await connection.wait_closed()

    answers = Slow()
    async with misbehaving_server(NOVEMBER_2025, handler, answers=answers) as (client, _):
        asks = asyncio.create_task(client.call_tool("asks", timeout_s=SOON_S))
        await answers.asked.wait()
        if given_up:
            asks.cancel()
        error = await outcome(client.call_tool("beside", timeout_s=2 * SOON_S))
        assert isinstance(error, TimedOut)
        assert asks.done() is given_up
        asks.cancel()
        await asyncio.wait([asks])


@live
async def test_on_a_pipe_a_question_does_not_hold_what_is_called_after_it() -> None:
    answers = Slow()
    never = {"tools/call": lambda params: None}
    async with scripted_server(NOVEMBER_2025, never, answers=answers) as (client, server):
        asks = asyncio.create_task(client.call_tool("asks", timeout_s=SOON_S))
        await server.wait_for("tools/call")
        server.send(ASKED)
        await answers.asked.wait()
        error = await outcome(client.call_tool("later", timeout_s=2 * SOON_S))
        assert isinstance(error, TimedOut)
        assert "within 2 s" in str(error)
        assert not asks.done()
        asks.cancel()
        await asyncio.wait([asks])


@live
async def test_nobody_is_pinged_while_they_wait_for_a_person() -> None:
    """Who asks one thing at a time reads nothing else before that is answered."""
    answers, pong = Slow(), {"ping": lambda params: {}}
    async with scripted_server(NOVEMBER_2025, pong, answers=answers, ping_s=0.05) as (
        client,
        server,
    ):
        server.send(ASKED)
        await answers.asked.wait()
        asked = len(server.requests("ping"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * SOON_S):
                await until(lambda: len(server.requests("ping")) > asked)
        assert client.revision == NOVEMBER_2025.date
