"""Requests that are passed on for somebody else: who is asked, what is logged, what is kept."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from client.scripted_server import JSON, ScriptedTransport, connected_client
from client.test_url_elicitation import BY_ERROR, Shop
from colonnade import Context, Server, connect
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import ConnectionLost, Declined, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.revision import LogControl, Revision
from colonnade.protocol.types import LOG_LEVEL_KEY
from live import live

PAY = t.CallToolRequestParams(name="pay")


class Called(Exception):
    """Somebody was asked who should not have been."""


def never(params: Any) -> Any:
    raise Called


def texts(result: t.ProtocolType) -> str:
    assert isinstance(result, t.CallToolResult)
    return "".join(one.text for one in result.content if isinstance(one, t.TextContent))


@live
async def test_any_request_gives_the_type_of_its_result() -> None:
    server = Server("shop", instructions="Pay.")

    @server.tool
    def pay(amount: int) -> int:
        return amount

    @server.prompt
    def haggle() -> str:
        return "Offer less."

    async with connect(server) as client:
        called = await client.ask(
            "tools/call", t.CallToolRequestParams(name="pay", arguments=Raw(b'{"amount":3}'))
        )
        assert texts(called) == "3"
        prompts = await client.ask("prompts/list", t.PaginatedRequestParams())
        assert isinstance(prompts, t.ListPromptsResult)
        assert [prompt.name for prompt in prompts.prompts] == ["haggle"]
        with pytest.raises(RemoteError):
            await client.ask("tools/call", t.CallToolRequestParams(name="steal"))


@live
async def test_each_call_has_its_own_answers_to_what_comes_by_result() -> None:
    server = Server("shop")

    @server.tool
    async def pay(ctx: Context) -> str:
        return await ctx.elicit("Who are you?", str)

    async with connect(server, on_elicit=never) as client:

        async def call(name: str) -> str:
            answers = InputCallbacks(on_elicit=lambda asked: name)
            return texts(await client.ask("tools/call", PAY, answers=answers))

        names = [f"caller {number}" for number in range(20)]
        assert await asyncio.gather(*map(call, names)) == names
        with pytest.raises(Called):
            await client.ask("tools/call", PAY)


@live
async def test_what_a_client_did_not_declare_is_not_asked_of_anybody() -> None:
    server = Server("shop")

    @server.tool
    async def pay(ctx: Context) -> str:
        return await ctx.elicit("Who are you?", str)

    async with connect(server) as client:
        with pytest.raises(RemoteError, match="which the client does not support"):
            await client.ask("tools/call", PAY, answers=InputCallbacks(on_elicit=never))


@BY_ERROR
@live
async def test_a_page_is_visited_by_whoever_made_the_call(revision: Revision) -> None:
    shop, seen = Shop("a"), list[str]()

    def visit(asked: t.ElicitRequestParams) -> bool:
        seen.append(asked.url or "")
        shop.wants.clear()
        return True

    transport = ScriptedTransport(revision, {"tools/call": shop.call})
    async with connected_client(transport, answers=InputCallbacks(on_elicit=never)) as client:
        theirs = InputCallbacks(on_elicit=visit)
        assert texts(await client.ask("tools/call", PAY, answers=theirs)) == "done"
        shop.wants.append("b")
        with pytest.raises(Declined):
            await client.ask("tools/call", PAY, answers=InputCallbacks(on_elicit=lambda _: False))
    assert seen == ["https://example.com/connect/a"]


@live
async def test_a_request_for_somebody_else_says_what_they_want_logged_and_nothing_else(
    revision: Revision,
) -> None:
    def call(params: JSON) -> JSON:
        return {"content": [{"type": "text", "text": "done"}]}

    transport = ScriptedTransport(
        revision, {"tools/call": call, "logging/setLevel": lambda params: {}}
    )
    async with connected_client(transport, on_log=lambda said: None) as client:
        await client.ask("tools/call", PAY)
        await client.ask("tools/call", PAY, answers=InputCallbacks())
        await client.ask("tools/call", PAY, answers=InputCallbacks(), log_level="debug")
    levels = [
        one["params"].get("_meta", {}).get(LOG_LEVEL_KEY)
        for one in transport.server.requests("tools/call")
    ]
    by_request = revision.log_control is LogControl.PER_REQUEST
    assert levels == (["info", None, "debug"] if by_request else [None] * 3)


@live
async def test_whoever_closes_a_client_says_why() -> None:
    server = Server("shop")
    begun = asyncio.Event()

    @server.tool
    async def pay() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    client = await connect(server)
    call = asyncio.ensure_future(client.ask("tools/call", PAY))
    await begun.wait()
    await client.close("the shop has closed")
    with pytest.raises(ConnectionLost, match="the shop has closed during 'pay'"):
        await call
