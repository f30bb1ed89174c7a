"""A server that asks back: how often it may, for how long, and that people have time (RQ-11).

Time is the test's own.
"""

import asyncio
from collections.abc import Callable

import pytest

from client.scripted_server import scripted_server
from client.test_client import round_of
from colonnade import Context, RemoteProtocolError, Server, TimedOut
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.request import MAX_ROUNDS
from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, InputRequests, Revision
from colonnade.testing import Clock, connect, played
from live import live

BY_RESULT = [one for one in ALL if one.input_requests is InputRequests.IN_RESULT]

pytestmark = pytest.mark.parametrize("revision", BY_RESULT, ids=lambda one: one.date)


def curious(questions: int, takes_s: float) -> Server:
    """Asks so many questions, one a round, and takes so long in each."""
    server = Server("curious")

    @server.tool
    async def ask(ctx: Context) -> str:
        await asyncio.sleep(takes_s)
        for number in range(questions):
            await ctx.elicit("Sure?", bool, key=f"q{number}")
        return "done"

    return server


def after(seconds: float, asked: list[str]) -> Callable[[object], object]:
    async def answer(params: object) -> bool:
        asked.append("asked")
        await asyncio.sleep(seconds)
        return True

    return answer


@live
async def test_rq_11_a_server_that_only_asks_back_is_given_up(revision: Revision) -> None:
    """After ten rounds, each of which was put to who answers; no answer serves twice, and nobody
    is asked what is not sent any more."""
    times: list[str] = []

    def word(asked: t.CreateMessageRequestParams) -> str:
        times.append("asked")
        return f"word {len(times)}"

    answers = InputCallbacks(on_sample=word)
    replies = {"tools/call": lambda params: round_of(1, "s")}
    async with scripted_server(revision, replies, answers=answers) as (client, server):
        with pytest.raises(RemoteProtocolError, match="input_required 11 times"):
            await client.call_tool("ask")
        calls = server.requests("tools/call")
    assert len(times) == MAX_ROUNDS == 10
    assert len(calls) == MAX_ROUNDS + 1
    given = [one["params"].get("inputResponses", {}) for one in calls]
    said = [one["q1"]["content"]["text"] for one in given[1:]]
    assert said == [f"word {number}" for number in range(1, len(calls))]


@live
async def test_rq_11_as_many_rounds_as_a_server_of_ours_may_have_are_enough(
    revision: Revision,
) -> None:
    asked: list[str] = []
    async with connect(curious(10, 0), revision.date, on_elicit=after(0, asked)) as client:
        assert (await client.call_tool("ask")).text == "done"
    assert len(asked) == 10
    async with connect(curious(11, 0), revision.date, on_elicit=after(0, asked)) as client:
        with pytest.raises(RemoteError, match="requested input 10 times"):
            await client.call_tool("ask")


@played
async def test_rq_11_all_rounds_together_end_after_ten_minutes(revision: Revision) -> None:
    """Each is within its own time, and the call would go on for a quarter of an hour."""
    clock, asked = Clock(), list[str]()
    server = curious(9, takes_s=100)
    async with connect(server, revision.date, clock=clock, on_elicit=after(0, asked)) as client:
        asking = asyncio.ensure_future(client.call_tool("ask", timeout_s=120))
        await clock.advance(599)
        assert not asking.done()
        await clock.advance(2)
        with pytest.raises(TimedOut, match="within 600 s, over all its rounds"):
            await asking
        assert len(asked) == 5
        longer = asyncio.ensure_future(client.call_tool("ask", timeout_s=2000))
        await clock.advance(1100)
        assert (await longer).text == "done"


@played
async def test_rq_11_people_have_ten_minutes_of_their_own(revision: Revision) -> None:
    clock, asked = Clock(), list[str]()
    server = curious(4, takes_s=100)
    async with connect(server, revision.date, clock=clock, on_elicit=after(140, asked)) as client:
        asking = asyncio.ensure_future(client.call_tool("ask", timeout_s=120))
        await clock.advance(5 * 100 + 4 * 140 - 1)
        assert not asking.done()
        await clock.advance(2)
        assert (await asking).text == "done"
    slow = after(250, asked)
    async with connect(curious(4, takes_s=1), revision.date, clock=clock, on_elicit=slow) as client:
        asking = asyncio.ensure_future(client.call_tool("ask"))
        await clock.advance(603)
        with pytest.raises(TimedOut, match="the input requests of tools/call got no response"):
            await asking
