"""What a type checker makes of a context and of its blocking twin, and that it is so when run.

Rules: every method stands here once in each of the two; each value is also looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from colonnade import Ask, BlockingContext, Context, Root, Roots, Sample, Sampled, Server
from colonnade.ports import Session
from colonnade.protocol.revision import Revision
from colonnade.protocol.types import (
    ClientCapabilities,
    ElicitSchema,
    ElicitValue,
    Implementation,
    PrimitiveSchema,
    ReadResourceResult,
)
from live import live
from server.raw_client import JSON, raw_client


@dataclass
class Seat:
    row: int
    window: bool = False


FORM = ElicitSchema(properties={"name": PrimitiveSchema(type="string")})


def five() -> int:
    return 5


async def six() -> int:
    return 6


async def awaited(ctx: Context) -> str:
    assert_type(ctx.principal, str)
    assert_type(ctx.client, Implementation | None)
    assert_type(ctx.capabilities, ClientCapabilities)
    assert_type(ctx.revision, str)
    assert_type(ctx.session, Session | None)
    assert_type(ctx.state, Any)
    assert_type(await ctx.progress(1, 2, "half"), None)
    assert_type(await ctx.log("info", {"a": 1}, "mine"), None)
    for say in (ctx.debug, ctx.info, ctx.notice, ctx.warning):
        assert_type(await say("words"), None)
    for say in (ctx.error, ctx.critical, ctx.alert, ctx.emergency):
        assert_type(await say("words", "logger"), None)
    text = await ctx.read("notes://a")
    assert_type(text, ReadResourceResult)
    once, later = await ctx.once("five", five), await ctx.once("six", six)
    assert_type(once, int)
    assert_type(later, int)
    assert (text.contents[0].text, once, later) == ("a note", 5, 6)
    assert_type(await ctx.hang_up(), None)
    assert_type(await ctx.elicitation_complete("id"), None)
    return "done"


async def asks(ctx: Context) -> str:
    seat = await ctx.elicit("Which seat?", Seat)
    assert_type(seat, Seat)
    number = await ctx.elicit("How many?", int, key="n")
    assert_type(number, int)
    colour: Any = await ctx.elicit("Which colour?", Literal["red", "blue"])
    form = await ctx.elicit_form("Who?", FORM)
    assert_type(form, dict[str, ElicitValue])
    sampled = await ctx.sample("Write.", max_tokens=10, system="s", temperature=0.1, stop=["x"])
    assert_type(sampled, Sampled)
    assert_type(sampled.text, str)
    roots = await ctx.roots()
    assert_type(roots, list[Root])
    both = await ctx.ask(Ask("Which seat?", Seat), Ask("How many?", int))
    assert_type(both, tuple[Seat, int])
    three = await ctx.ask(Ask("How many?", int), Roots(), Sample("Write."))
    assert_type(three, tuple[int, list[Root], Any])
    assert_type(await ctx.ask(Roots()), tuple[list[Root]])
    return _looked_at(seat, number, colour, form, sampled, roots, both[0])


def waits(ctx: BlockingContext) -> str:
    assert_type(ctx.principal, str)
    assert_type(ctx.client, Implementation | None)
    assert_type(ctx.capabilities, ClientCapabilities)
    assert_type(ctx.revision, str)
    assert_type(ctx.session, Session | None)
    assert_type(ctx.state, Any)
    assert_type(ctx.progress(1, 2, "half"), None)
    assert_type(ctx.log("info", {"a": 1}, "mine"), None)
    for say in (ctx.debug, ctx.info, ctx.notice, ctx.warning):
        assert_type(say("words"), None)
    for say in (ctx.error, ctx.critical, ctx.alert, ctx.emergency):
        assert_type(say("words", "logger"), None)
    text = ctx.read("notes://a")
    assert_type(text, ReadResourceResult)
    once = ctx.once("five", five)
    assert_type(once, int)
    assert (text.contents[0].text, once) == ("a note", 5)
    assert_type(ctx.hang_up(), None)
    assert_type(ctx.elicitation_complete("id"), None)
    return "done"


def asks_and_waits(ctx: BlockingContext) -> str:
    seat = ctx.elicit("Which seat?", Seat)
    assert_type(seat, Seat)
    number = ctx.elicit("How many?", int, key="n")
    assert_type(number, int)
    colour: Any = ctx.elicit("Which colour?", Literal["red", "blue"])
    form = ctx.elicit_form("Who?", FORM)
    assert_type(form, dict[str, ElicitValue])
    sampled = ctx.sample("Write.", max_tokens=10, system="s", temperature=0.1, stop=["x"])
    assert_type(sampled, Sampled)
    roots = ctx.roots()
    assert_type(roots, list[Root])
    both = ctx.ask(Ask("Which seat?", Seat), Ask("How many?", int))
    assert_type(both, tuple[Seat, int])
    three = ctx.ask(Ask("How many?", int), Roots(), Sample("Write."))
    assert_type(three, tuple[int, list[Root], Any])
    assert_type(ctx.ask(Roots()), tuple[list[Root]])
    return _looked_at(seat, number, colour, form, sampled, roots, both[0])


async def types_of_visits(ctx: Context, blocking: BlockingContext) -> None:
    assert_type(await ctx.elicit_url("Go there.", "https://example.com", by_error=True), None)
    assert_type(blocking.elicit_url("Go there.", "https://example.com", id="x"), None)


def _looked_at(
    seat: Seat,
    number: int,
    colour: str,
    form: dict[str, ElicitValue],
    sampled: Sampled,
    roots: list[Root],
    other: Seat,
) -> str:
    assert isinstance(seat, Seat)
    assert isinstance(other, Seat)
    assert (seat.row, number, colour, form) == (7, 3, "blue", {"name": "Ada"})
    assert (sampled.text, roots[0].uri) == ("Written.", "file:///a")
    return "done"


def _answer(method: str, params: JSON) -> JSON:
    if method == "roots/list":
        return {"roots": [{"uri": "file:///a"}]}
    if method == "sampling/createMessage":
        content = {"type": "text", "text": "Written."}
        return {"role": "assistant", "content": content, "model": "m"}
    answers: JSON = {"row": 7, "window": True, "name": "Ada", "value": 3}
    asked = params["requestedSchema"]["properties"]
    if "value" in asked and asked["value"]["type"] == "string":
        answers["value"] = "blue"
    return {"action": "accept", "content": {name: answers[name] for name in asked}}


@live
async def test_a_context_gives_what_its_types_say(revision: Revision) -> None:
    server = Server("contexts")
    server.resource("notes://a")(lambda: "a note")
    tools: list[Callable[..., Any]] = [awaited, waits]
    if "elicitation/create" in revision.methods or not revision.handshake:
        tools += [asks, asks_and_waits]
    for tool in tools:
        server.tool(tool)
    async with raw_client(server, revision, answer=_answer) as client:
        for tool in tools:
            assert await client.text(tool.__name__) == "done", tool
