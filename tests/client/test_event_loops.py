"""A client in the wrong event loop, or in none: an error that says what to do, and no hang."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from client.shop import HERE, shop, site
from colonnade import Client, Host, connect
from colonnade.client.request import WRONG_LOOP
from colonnade.errors import LocalProtocolError
from live import live

Deed = Callable[[Client], Awaitable[Any]]


async def listen(client: Client) -> None:
    async with client.listen(tools=True):
        pass


DEEDS: dict[str, Deed] = {
    "a call": lambda client: client.call_tool("add", {"a": 1, "b": 2}),
    "a list": lambda client: client.list_tools(),
    "news": listen,
    "the end": lambda client: client.close(),
}


async def elsewhere(client: Client, deed: Deed) -> None:
    """Do it in another loop, in a thread of its own, while this one runs."""

    def run() -> None:
        async def do() -> None:
            await deed(client)

        with pytest.raises(LocalProtocolError) as caught:
            asyncio.run(do())
        assert str(caught.value) == WRONG_LOOP

    await asyncio.to_thread(run)


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
@live
async def test_a_client_in_another_thread_says_what_to_do(deed: Deed) -> None:
    async with site() as here:
        for target in (shop(), HERE, f"http://127.0.0.1:{here.port}/mcp"):
            async with connect(target) as client:
                await elsewhere(client, deed)
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_a_client_in_a_later_loop_says_what_to_do(deed: Deed) -> None:
    with asyncio.Runner() as first:

        async def opened() -> Client:
            return await connect(shop())

        client = first.run(opened())

        async def do() -> None:
            await deed(client)

        with asyncio.Runner() as second, pytest.raises(LocalProtocolError) as caught:
            second.run(do())
        assert str(caught.value) == WRONG_LOOP
        first.run(client.close())


def driven(work: Any) -> None:
    """Begin a coroutine as trio would: with no event loop of asyncio."""
    try:
        work.send(None)
    finally:
        work.close()


def test_without_a_loop_of_asyncio_it_is_said_what_to_do() -> None:
    async def enter() -> None:
        async with connect(shop()):
            raise AssertionError("it cannot work")

    async def wait() -> None:
        await connect(shop())

    async def host() -> None:
        await Host({"shop": shop()}).list_tools()

    for work in (enter(), wait(), host()):
        with pytest.raises(LocalProtocolError, match=r"under trio .*colonnade\.sync\.connect"):
            driven(work)
