"""A server that asks, and a client that sends each round itself.

Rules: a test decides when the server asks and what is answered; nothing waits for time to pass.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from colonnade import Context, Server
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Declined
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode


class Desk:
    """A server that asks, and what happened in it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.go: dict[str, asyncio.Event] = {}
        self.server = Server("desk")
        self.server.tool(self.book)
        self.server.tool(self.trip)
        self.server.tool(self.pair)
        self.server.tool(self.stubborn)
        self.server.tool(self.many)
        self.server.tool(self.later)
        self.server.tool(self.large)
        self.server.tool(self.steps)
        self.server.tool(self.keep)

    async def book(self, who: str, ctx: Context) -> str:
        self.begun.append(who)
        try:
            seat = await ctx.elicit(f"Which seat for {who}?", str)
        except Declined as no:
            self.cancelled.append(f"{who} {no.action}")
            return f"{who}: {no.action}"
        self.ended.append(who)
        return f"{who}: {seat}"

    async def trip(self, ctx: Context) -> str:
        seat = await ctx.elicit("Which seat?", str)
        meal = await ctx.elicit(f"Which meal at {seat}?", str)
        return f"{seat}, {meal}"

    async def pair(self, ctx: Context) -> str:
        first, second = await asyncio.gather(ctx.elicit("One?", str), ctx.elicit("Two?", str))
        return f"{first} {second}"

    async def stubborn(self, ctx: Context) -> str:
        """Asks, and goes on for ever after it has got no response."""
        try:
            return await ctx.elicit("Well?", str)
        except Declined as no:
            self.cancelled.append(no.action)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append("notifications/cancelled")
            raise
        return ""

    async def many(self, times: int, ctx: Context) -> str:
        said: list[str] = []
        for number in range(times):
            try:
                said.append(await ctx.elicit(f"Number {number}?", str))
            except Declined as no:
                said.append(no.action)
        return " ".join(said)

    async def later(self, who: str, ctx: Context) -> str:
        """Asks when the test lets it."""
        self.begun.append(who)
        await self.go.setdefault(who, asyncio.Event()).wait()
        return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"

    async def large(self, size: int, ctx: Context) -> str:
        try:
            return await ctx.elicit("x" * size, str)
        except Declined as no:
            return no.action

    async def keep(self, note: str, ctx: Context) -> str:
        try:
            return await ctx.elicit("Keep it?", str)
        except Declined as no:
            return no.action

    async def steps(self, ctx: Context) -> str:
        await ctx.progress(1, 3, "before")
        seat = await ctx.elicit("Which seat?", str)
        await ctx.progress(2, 3, "after")
        return seat


def can_elicit() -> InputCallbacks:
    def unexpected(params: t.ElicitRequestParams) -> Any:
        raise AssertionError("a client that sends each round itself is not asked")

    return InputCallbacks(on_elicit=unexpected)


class Rounds:
    """A client that sends each round itself."""

    def __init__(self, client: Client, callbacks: InputCallbacks | None = None) -> None:
        self.client = client
        self._callbacks = callbacks or can_elicit()

    async def send(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        state: str | None = None,
        responses: dict[str, Any] | None = None,
        server: str = "s",
        **options: Any,
    ) -> Any:
        raw = {key: Raw(encode(value)) for key, value in (responses or {}).items()}
        params = t.CallToolRequestParams(
            name=f"{server}__{tool}",
            arguments=Raw(encode(arguments or {})),
            request_state=state,
            input_responses=raw or None,
        )
        return await self.client.ask(
            "tools/call", params, answers=self._callbacks, relay=True, **options
        )

    async def begin(self, tool: str, **arguments: Any) -> t.InputRequiredResult:
        result = await self.send(tool, arguments)
        assert isinstance(result, t.InputRequiredResult), result
        return result


def answered(result: t.InputRequiredResult, say: Callable[[str], Any]) -> dict[str, Any]:
    """A response to each input request of a result, by its message."""
    found: dict[str, Any] = {}
    for key, request in (result.input_requests or {}).items():
        assert isinstance(request, t.ElicitRequest)
        form = request.params.requested_schema
        assert form is not None
        response = say(request.params.message)
        if isinstance(response, str):
            (field,) = form.properties
            response = {"action": "accept", "content": {field: response}}
        found[key] = response
    return found


def text(result: Any) -> str:
    assert isinstance(result, t.CallToolResult), result
    (block,) = result.content
    assert isinstance(block, t.TextContent)
    return block.text
