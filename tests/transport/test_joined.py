"""A client and a server in one loop: what is handed over as it is comes to the same as what is
written and read, and whoever need not wait leaves nothing behind."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from colonnade import Context, Server, ToolError
from colonnade.client.client import Client
from colonnade.errors import ColonnadeError, ConnectionLost, LocalProtocolError, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.link.in_flight import MAX_RUNNING
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import EVERY, NEWEST, Revision
from colonnade.transport.memory import End, pair, serve_end
from live import live

INFO = t.Implementation(name="c", version="1")


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else "here"


def zoo() -> Server:
    server = Server("zoo", version="1")

    @server.tool
    async def echo(value: Any) -> Any:
        return value

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def later(value: str) -> str:
        await asyncio.sleep(0)
        return value

    @server.tool
    async def fails(kind: str) -> str:
        raise ToolError("not today") if kind == "tool" else ValueError("a secret")

    @server.tool
    async def steps(ctx: Context, count: int) -> str:
        for step in range(count):
            await ctx.report_progress(step + 1, count, f"step {step}")
        return "done"

    return server


class Served:
    """A client of a server; whether what they say was overheard, and so had to be written."""

    def __init__(self, client: Client, near: End, far: End, said: list[bytes]) -> None:
        self.client = client
        self.near = near
        self.far = far
        self.said = said


@asynccontextmanager
async def served(
    server: Server, revision: Revision = NEWEST, *, overheard: bool = False, **who: Any
) -> AsyncGenerator[Served]:
    said: list[bytes] = []

    def hear(side: Side, frame: bytes) -> None:
        said.append(frame)

    near, far = pair(hear if overheard else None)
    client = Client(near.carry, info=INFO)
    await server.start()
    serve_end(far, server, **who)
    await client.open(revision)
    try:
        yield Served(client, near, far, said)
    finally:
        await client.close()
        await server.stop()


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("add", {"a": 1, "b": 2}),
    ("add", {"a": 1}),
    ("add", {}),
    ("add", {"a": "one"}),
    ("add", {"a": 1, "c": 3}),
    ("add", {"a": 10**30}),
    ("echo", {"value": None}),
    ("echo", {"value": {"content": [], "isError": True}}),
    ("echo", {"value": "ä, ß and \U0001f600"}),
    ("echo", {"value": 'quotes " and \\ and \n'}),
    ("echo", {"value": "long " * 2000}),
    ("echo", {"value": [{}] * 100}),
    ("echo", {"value": nested(80)}),
    ("echo", {"ä": 1}),
    ("later", {"value": "after a turn"}),
    ("fails", {"kind": "tool"}),
    ("steps", {"count": 3}),
    ("nobody", {"a": 1}),
    ("näme", {}),
    ("half \ud800", {"a": 1}),
)


async def outcomes(client: Client) -> list[Any]:
    """What comes of each call, twice in a row, with the progress that was heard."""
    found: list[Any] = []
    for name, arguments in CALLS + CALLS:
        heard: list[Any] = []

        def hear(*step: Any, heard: list[Any] = heard) -> None:
            heard.append(step)

        try:
            result = await client.call_tool(name, arguments, on_progress=hear)
            came: Any = (result.content, result.structured, result.is_error)
        except RemoteError as error:
            came = (error.code, str(error), error.data)
        except ColonnadeError as error:
            came = (type(error), str(error))
        await client.caught_up()
        found.append((name, came, heard))
    assert not client.conversation.link.snapshot().sent  # not even what could not be written
    return found


@pytest.mark.parametrize("revision", EVERY, ids=lambda one: one.date)
def test_what_is_handed_over_comes_to_the_same_as_what_is_written(revision: Revision) -> None:
    @live
    async def run() -> None:
        async with served(zoo(), revision) as one:
            handed = await outcomes(one.client)
        async with served(zoo(), revision, overheard=True) as other:
            written = await outcomes(other.client)
            assert len(other.said) > 2 * len(CALLS)
        assert handed == written
        steps = [heard for name, _, heard in handed if name == "steps"]
        assert [[step[0] for step in heard] for heard in steps] == [[1, 2, 3], [1, 2, 3]]

    run()


@live
async def test_who_need_not_wait_writes_nothing_and_is_nowhere_in_flight() -> None:
    async with served(zoo()) as one:
        await one.client.call_tool("add", {"a": 1})  # nobody rests before the first
        await asyncio.sleep(0)
        link = one.client.conversation.link
        before = link.snapshot().next_id
        written: list[bytes] = []

        def write(frame: bytes) -> None:
            written.append(frame)

        for end in (one.near, one.far):
            end.write = write
        for number in range(100):
            assert (await one.client.call_tool("add", {"a": number})).data == number + 1
        assert not written
        assert link.snapshot().next_id == before + 100  # and yet no id is used twice
        assert not link.snapshot().sent
        for end in (one.near, one.far):
            del end.write


@live
async def test_whoever_calls_while_another_is_still_read_is_answered_in_its_own_context() -> None:
    server = zoo()
    note: ContextVar[str] = ContextVar("note")
    clients: list[Client] = []

    @server.tool
    async def look() -> str:
        return note.get()

    @server.tool
    async def look_inside() -> str:
        note.set("inside")
        return (await clients[0].call_tool("look")).text  # is written, and read in a later turn

    async with served(server) as one:
        clients.append(one.client)

        async def caller(name: str, tool: str, turns: int) -> str:
            note.set(name)
            await one.client.call_tool("look")
            for _ in range(turns):
                await asyncio.sleep(0)
            return (await one.client.call_tool(tool)).text

        for turns in range(6):
            first, second = caller("one", "look_inside", 1), caller("two", "look", turns)
            assert await asyncio.gather(first, second) == ["inside", "two"]


@live
async def test_a_tool_may_call_its_own_server_through_the_client_that_called_it() -> None:
    server = zoo()
    clients: list[Client] = []

    @server.tool
    async def twice(n: int) -> int:
        if n == 0:
            return 1
        return 2 * (await clients[0].call_tool("twice", {"n": n - 1})).data

    async with served(server) as one:
        clients.append(one.client)
        for _ in range(2):
            assert (await one.client.call_tool("twice", {"n": 20})).data == 2**20
        assert not one.client.conversation.link.snapshot().sent


@live
async def test_a_call_that_ends_its_own_conversation_is_told_so_and_does_not_hang() -> None:
    server, ends = zoo(), []

    @server.tool
    async def leave() -> str:
        ends[0]._end("the line was cut")
        return "too late"

    async with served(server) as one:
        await one.client.call_tool("add", {"a": 1})
        await asyncio.sleep(0)
        ends.append(one.near)
        with pytest.raises(ConnectionLost, match="the line was cut during 'leave'"):
            await one.client.call_tool("leave")


@live
async def test_a_time_out_that_is_none_is_refused_though_nobody_would_have_to_wait() -> None:
    async with served(zoo()) as one:
        for seconds in (0.0, -1.0, float("inf"), float("nan")):
            with pytest.raises(LocalProtocolError, match="a number of seconds above 0"):
                await one.client.call_tool("add", {"a": 1}, timeout_s=seconds)
        assert (await one.client.call_tool("add", {"a": 1})).data == 2


@live
async def test_an_argument_that_is_no_number_is_refused_and_not_sent_as_nothing() -> None:
    async with served(zoo()) as one:
        for strange in (float("nan"), float("inf")):
            with pytest.raises(LocalProtocolError, match=r"at `a\.x`: JSON has no NaN"):
                await one.client.call_tool("echo", {"value": None, "a": {"x": strange}})


@live
async def test_one_request_more_than_may_run_is_refused_in_its_own_words() -> None:
    server, gate = zoo(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "done"

    async with served(server) as one:
        waiting = [asyncio.ensure_future(one.client.call_tool("wait")) for _ in range(MAX_RUNNING)]
        while len(one.client.conversation.link.snapshot().sent) < MAX_RUNNING:
            await asyncio.sleep(0)
        with pytest.raises(RemoteError, match="too many requests at once"):
            await one.client.call_tool("add", {"a": 1})
        gate.set()
        assert {(await call).data for call in waiting} == {"done"}


@live
async def test_a_call_that_says_more_of_its_sender_is_looked_at_once_more() -> None:
    server, seen = zoo(), []

    @server.middleware
    async def look(turn: Any, call: Any) -> Any:
        seen.append(turn.exchange.log_level)
        return await call(turn)

    async with served(server) as one:
        await one.client.call_tool("add", {"a": 1})
        await one.client.call_tool("add", {"a": 1})
        await one.client.set_log_level("debug")
        await one.client.call_tool("add", {"a": 1})
        await one.client.set_log_level("error")
        await one.client.call_tool("add", {"a": 1})
    assert seen[-4:] == [None, None, "debug", "error"]


@live
async def test_what_a_caller_may_do_now_is_looked_at_though_who_it_is_is_not() -> None:
    server, seen = zoo(), []

    @server.middleware
    async def look(turn: Any, call: Any) -> Any:
        exchange: Exchange = turn.exchange
        seen.append((exchange.principal, exchange.scopes))
        return await call(turn)

    async with served(server, principal="ada", scopes=["read"]) as one:
        await one.client.call_tool("add", {"a": 1})
        await one.client.call_tool("add", {"a": 1})
        served_link = one.far._reader.link  # type: ignore[union-attr]
        served_link.scopes = frozenset({"read", "write"})
        await one.client.call_tool("add", {"a": 1})
    assert seen[-2:] == [("ada", frozenset({"read"})), ("ada", frozenset({"read", "write"}))]


@live
async def test_whoever_looks_at_all_params_finds_them_written_as_they_would_have_been() -> None:
    server, seen = zoo(), []

    @server.middleware
    async def look(turn: Any, call: Any) -> Any:
        seen.append(bytes(turn.exchange.request.params))
        return await call(turn)

    for overheard in (False, True):
        async with served(server, overheard=overheard) as one:
            for name, arguments in CALLS[:2] * 2:
                await one.client.call_tool(name, arguments)
    half = len(seen) // 2
    assert half > 3
    assert seen[:half] == seen[half:]
