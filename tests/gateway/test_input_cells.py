"""Elicitation, sampling and roots cross a gateway between clients and servers of any revision."""

from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from gateway.recorded import NEW, OLD, Cell, recorded
from live import live

URL = "https://pay.example.com/card"
CELLS = [(down, up) for down in (NEW, OLD) for up in (NEW, OLD)]


def asking() -> Server:
    """A server that requests everything that a server can request."""
    server = Server("asking")
    paid: set[str] = set()

    @server.tool
    async def book(who: str, ctx: Context) -> str:
        return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Enter your card.", URL, id="card-7")
        await ctx.elicitation_complete("card-7")
        return "paid"

    @server.tool
    async def pay_first(ctx: Context) -> str:
        if "card" not in paid:
            paid.add("card")
            await ctx.elicit_url("Enter your card.", URL, id="card-7", by_error=True)
        return "paid"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    @server.tool
    async def use(ctx: Context) -> str:
        tool = t.Tool(name="look", input_schema={"type": "object"})
        choice = t.ToolChoice(mode="required")
        made = await ctx.sample("Look it up.", tools=[tool], tool_choice=choice)
        return type(made.result.content).__name__

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = book, pay, pay_first, think, use, where
    return server


class User:
    """What a user answers, and what it was asked."""

    def __init__(self) -> None:
        self.forms: list[str] = []
        self.urls: list[str | None] = []
        self.samples: list[t.CreateMessageRequestParams] = []

    def elicit(self, params: t.ElicitRequestParams) -> Any:
        if params.mode == "url":
            self.urls.append(params.url)
            return True
        self.forms.append(params.message)
        return "12A"

    def sample(self, params: t.CreateMessageRequestParams) -> Any:
        self.samples.append(params)
        if params.tools is None:
            return "a thought"
        content = [t.ToolUseContent(id="1", name="look", input={})]
        return t.CreateMessageResult(role="assistant", content=content, model="m")

    def callbacks(self) -> InputCallbacks:
        return InputCallbacks(
            on_elicit=self.elicit, on_sample=self.sample, sample_tools=True, roots=["/srv"]
        )


SETTINGS: dict[str, Any] = {"sampling": True, "roots": "caller"}


async def called(cell: Cell, client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(f"s__{tool}", arguments)
    assert not result.is_error, result.text
    cell.check()
    return result.text


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
@live
async def test_a_form_crosses(downstream: str, upstream: str) -> None:
    user = User()
    async with recorded(asking(), upstream=upstream, downstream=downstream, **SETTINGS) as cell:
        client = await cell.connect(user.callbacks())
        assert await called(cell, client, "book", who="Ada") == "Ada: 12A"
        assert user.forms == ["Which seat for Ada?"]
        by_request = bool(cell.client_wire.said(Side.SERVER, "elicitation/create"))
        assert by_request == (downstream == OLD)
        by_request = bool(cell.server_wire.said(Side.SERVER, "elicitation/create"))
        assert by_request == (upstream == OLD)
