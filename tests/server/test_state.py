"""What a server remembers from one round of questions to the next, however much it is."""

from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.auth.seal import MAX_SECRET_BYTES, MAX_STORED_BYTES
from colonnade.protocol.input_rounds import invalid_request_state
from colonnade.protocol.revision import JULY_2026, InputRequests, Revision
from colonnade.store.memory import MemoryStore
from live import live
from server.raw_client import JSON, Rejected, accept, raw_client, text_content

PAGE = "p" * (2 * MAX_SECRET_BYTES)
ANSWERS = {"action": "accept", "content": {"value": 7}}


def reading(page: str = PAGE, **settings: Any) -> Server:
    """A server whose tool keeps a whole page between its questions."""
    server = Server("library", version="1", **settings)

    @server.tool
    async def read(ctx: Context) -> str:
        kept = await ctx.once("page", lambda: page)
        first = await ctx.elicit("Which line?", int, key="line")
        second = await ctx.elicit("Which word?", int, key="word")
        return f"{len(kept)} {first} {second}"

    @server.tool(single_use=True)
    async def once(ctx: Context) -> str:
        kept = await ctx.once("page", lambda: page)
        return f"{len(kept)} {await ctx.elicit('Which line?', int, key='line')}"

    return server


@live
async def test_much_is_remembered_between_questions(revision: Revision) -> None:
    async with raw_client(reading(), revision, answer=accept(value=7)) as client:
        result = await client.call("read")
        if revision.elicitation.modes:
            assert text_content(result) == f"{len(PAGE)} 7 7"
        if revision.input_requests is InputRequests.IN_RESULT:
            assert client.rounds == 2


async def first_round(server: Server, tool: str = "read", principal: str = "ada") -> JSON:
    async with raw_client(server, JULY_2026, principal=principal) as client:
        result = await client.outcome(client.send("tools/call", {"name": tool}))
    assert result["resultType"] == "input_required"
    return {
        "name": tool,
        "requestState": result["requestState"],
        "inputResponses": {"line": ANSWERS},
    }


@live
async def test_only_a_name_travels_and_any_replica_with_the_same_store_goes_on() -> None:
    shared: JSON = {"keys": [b"k" * 32], "store": MemoryStore()}
    again = await first_round(reading(**shared))
    assert len(again["requestState"]) < 200
    async with raw_client(reading(**shared), JULY_2026, principal="ada") as client:
        result = await client.outcome(client.send("tools/call", again))
        assert list(result["inputRequests"]) == ["word"]
    async with raw_client(reading(keys=[b"k" * 32]), JULY_2026, principal="ada") as client:
        with pytest.raises(Rejected, match=invalid_request_state().message):
            await client.outcome(client.send("tools/call", again))


@live
async def test_it_is_nothing_to_another_principal_and_to_another_server() -> None:
    shared: JSON = {"keys": [b"k" * 32], "store": MemoryStore()}
    server = reading(**shared)
    again = await first_round(server)
    for principal in ("eve", ""):
        async with raw_client(server, JULY_2026, principal=principal) as client:
            with pytest.raises(Rejected, match=invalid_request_state().message):
                await client.outcome(client.send("tools/call", again))
    other = Server("archive", version="1", **shared)
    other.tool(name="read")(_asks)
    async with raw_client(other, JULY_2026, principal="ada") as client:
        with pytest.raises(Rejected, match=invalid_request_state().message):
            await client.outcome(client.send("tools/call", again))


async def _asks(ctx: Context) -> int:
    return await ctx.elicit("Which line?", int, key="line")


@live
async def test_servers_that_share_keys_and_not_their_name_do_not_open_each_others() -> None:
    servers = [Server(name, version="1", keys=[b"k" * 32]) for name in ("bank", "shop", "bank")]
    for server in servers:
        server.tool(name="read")(_asks)
    bank, shop, replica = servers
    again = await first_round(bank)
    async with raw_client(shop, JULY_2026, principal="ada") as client:
        with pytest.raises(Rejected, match=invalid_request_state().message):
            await client.outcome(client.send("tools/call", again))
    async with raw_client(replica, JULY_2026, principal="ada") as client:
        assert text_content(await client.outcome(client.send("tools/call", again))) == "7"


@live
async def test_a_large_one_can_be_for_single_use_too() -> None:
    server = reading()
    again = await first_round(server, "once")
    async with raw_client(server, JULY_2026, principal="ada") as client:
        assert (
            text_content(await client.outcome(client.send("tools/call", again))) == f"{len(PAGE)} 7"
        )
        with pytest.raises(Rejected, match=invalid_request_state().message):
            await client.outcome(client.send("tools/call", again))


@live
async def test_far_too_much_ends_the_call_in_words_and_the_next_one_is_served() -> None:
    server = reading("p" * (MAX_STORED_BYTES + 1))
    server.tool(name="hi")(lambda: "hi")
    async with raw_client(server, JULY_2026) as client:
        with pytest.raises(Rejected, match="the request state has") as caught:
            await client.call("read")
        assert caught.value.code == -32603
        assert await client.text("hi") == "hi"
