"""Giving up at any moment: one outcome, and nothing is left, whichever await it was.

Every operation is run again and again, and given up one turn of the loop later each time, until it
is done before that.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.shop import HERE, shop, site
from live import live_for
from portico import Client, connect
from portico.protocol.revision import ALL, NEWEST, Revision

Operation = Callable[[Client], Awaitable[Any]]
# More turns than any operation here takes in memory; over HTTP sockets take turns of their own.
MAX_TURNS = 400
BOTH = pytest.mark.parametrize("revision", [ALL[3], NEWEST], ids=lambda one: one.date)


async def listen(client: Client) -> None:
    async with client.listen(tools=True, resources=["shop://hat"]):
        pass


OPERATIONS: dict[str, Operation] = {
    "list_tools": lambda client: client.list_tools(),
    "call_tool": lambda client: client.call_tool("add", {"a": 1, "b": 2}),
    "call_tool with questions": lambda client: client.call_tool("ask"),
    "read_resource": lambda client: client.read_resource("shop://hat"),
    "list_resources": lambda client: client.list_resources(),
    "list_resource_templates": lambda client: client.list_resource_templates(),
    "list_prompts": lambda client: client.list_prompts(),
    "get_prompt": lambda client: client.get_prompt("haggle", {"price": "1"}),
    "complete": lambda client: client.complete("mood", prompt="haggle"),
    "ping": lambda client: client.ping(),
    "set_log_level": lambda client: client.set_log_level("error"),
    "roots_changed": lambda client: client.roots_changed([]),
    "listen": listen,
    "close": lambda client: client.close(),
}


def answer(asked: Any) -> str:
    return "red"


async def given_up(work: Awaitable[Any], turns: int) -> bool:
    """Give up after so many turns; whether it was done before."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    done = task.done()
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if done and isinstance(outcome, BaseException):
        raise outcome
    assert done or isinstance(outcome, asyncio.CancelledError) or task.done()
    return done


@asynccontextmanager
async def reachable(way: str) -> AsyncGenerator[Any]:
    if way == "memory":
        yield shop()
    else:
        async with site() as here:
            yield f"http://127.0.0.1:{here.port}/mcp"


async def _opened(target: Any, revision: Revision) -> Client:
    return await connect(target, revision=revision.date, on_elicit=answer, roots=[])


@pytest.mark.parametrize("way", ["memory", "http"])
@pytest.mark.parametrize("name", OPERATIONS)
@BOTH
@live_for(60)
async def test_an_operation_is_given_up_at_every_turn(
    revision: Revision, name: str, way: str
) -> None:
    if name == "set_log_level" and revision.handshake:
        return  # the shop has no log
    async with reachable(way) as target:
        client = await _opened(target, revision)
        try:
            for turns in range(MAX_TURNS):
                done = await given_up(OPERATIONS[name](client), turns)
                if name == "close":
                    await client.close()
                    client = await _opened(target, revision)
                if done:
                    break
            else:
                raise AssertionError(f"{name} takes more than {MAX_TURNS} turns")
            assert (await client.call_tool("add", {"a": 2, "b": 2}, returns=int)).data == 4
        finally:
            await client.close()


@pytest.mark.parametrize("way", ["memory", "http"])
@BOTH
@live_for(60)
async def test_connecting_is_given_up_at_every_turn(revision: Revision, way: str) -> None:
    async def connected(target: Any) -> None:
        client = await _opened(target, revision)
        await client.close()

    async with reachable(way) as target:
        for turns in range(MAX_TURNS):
            if await given_up(connected(target), turns):
                return
        raise AssertionError(f"connecting takes more than {MAX_TURNS} turns")


@BOTH
@live_for(60)
async def test_connecting_to_a_child_is_given_up_at_many_moments(revision: Revision) -> None:
    async def connected() -> None:
        client = await _opened(HERE, revision)
        await client.close()

    for turns in (1, 2, 3, 5, 8, 13, 21):
        await given_up(connected(), turns)
