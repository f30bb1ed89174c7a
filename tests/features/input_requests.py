"""Elicitation, sampling and roots, in each revision."""

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from colonnade import Ask, BlockingContext, Context, Declined, Server
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from features.feature import JSON, WORKS, Group, Verdict, failure, fallback, refused, tried
from server.raw_client import (
    EVERYTHING,
    Client,
    Rejected,
    accept,
    decline,
    raw_client,
    text_content,
)

ASKING = Group("Elicitation, sampling and roots")
FAILED = fallback("`isError` result")


class Meal(Enum):
    WITH_MEAT = "meat"
    NO_MEAT = "veg"


@dataclass
class Seat:
    row: int
    side: Literal["window", "aisle"] = "aisle"
    upgrade: bool = True


def unasked(result: JSON) -> Verdict | None:
    """The verdict for a revision without elicitation; None for any other."""
    if "elicitation" not in text_content(result):
        return None
    assert result["isError"] is True, result
    assert "which the client does not support" in text_content(result)
    return FAILED


async def cannot_ask(asking: Awaitable[JSON]) -> Verdict | None:
    """The same for a call."""
    return unasked(await asking)


# ---------------------------------------------------------------- forms


def booking() -> Server:
    server = Server("s")

    @server.tool
    async def book(ctx: Context) -> str:
        seat = await ctx.elicit("Which seat?", Seat)
        assert isinstance(seat, Seat)
        return f"{seat.row} {seat.side} {seat.upgrade}"

    @server.tool
    def book_in_a_thread(ctx: BlockingContext) -> str:
        seat = ctx.elicit("Which seat?", Seat)
        return f"{seat.row} {seat.side} {seat.upgrade}"

    return server


def form_of(client: Client) -> JSON:
    """The last form that the client received."""
    method, params = client.asked[-1]
    assert method == "elicitation/create"
    return params["requestedSchema"]


@ASKING.feature("elicitation: a form from a type (`ctx.elicit`)", *2 * [FAILED], *3 * [WORKS])
async def form(revision: Revision) -> Verdict:
    async with raw_client(booking(), revision, answer=accept(row=12, side="window")) as client:
        for tool in ("book", "book_in_a_thread"):
            lost = await cannot_ask(client.call(tool))
            if lost is not None:
                assert client.asked == []
                return lost
            assert await client.text(tool) == "12 window True"
        shown = form_of(client)
    assert shown["required"] == ["row"]
    assert shown["properties"]["row"]["type"] == "integer"
    assert shown["properties"]["side"]["enum"] == ["window", "aisle"]
    return WORKS


@ASKING.feature(
    "elicitation: defaults in a form",
    *2 * [FAILED],
    fallback("sent for booleans, applied to all"),
    *2 * [WORKS],
)
async def defaults(revision: Revision) -> Verdict:
    async with raw_client(booking(), revision, answer=accept(row=3)) as client:
        lost = await cannot_ask(client.call("book"))
        if lost is not None:
            return lost
        assert await client.text("book") == "3 aisle True"
        fields = form_of(client)["properties"]
    assert fields["upgrade"]["default"] is True
    if "default" not in fields["side"]:
        return fallback("sent for booleans, applied to all")
    assert fields["side"]["default"] == "aisle"
    return WORKS


async def answered(type: Any, value: Any, client: Client, server: Server) -> str | Verdict:
    """Elicit one value of a type; the text of the result."""

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("Which?", type))

    client.answer = accept(value=value)
    lost = await cannot_ask(client.call("ask"))
    return lost or await client.text("ask")


@ASKING.feature(
    "elicitation: choices with titles", *2 * [FAILED], fallback("as `enumNames`"), *2 * [WORKS]
)
async def titled(revision: Revision) -> Verdict:
    server = booking()
    async with raw_client(server, revision) as client:
        found = await answered(Meal, "veg", client, server)
        if isinstance(found, Verdict):
            return found
        assert "NO_MEAT" in found
        field = form_of(client)["properties"]["value"]
    if "oneOf" not in field:
        assert field["enum"] == ["meat", "veg"]
        assert field["enumNames"] == ["With meat", "No meat"]
        return fallback("as `enumNames`")
    assert field["oneOf"][1] == {"const": "veg", "title": "No meat"}
    return WORKS


@ASKING.feature(
    "elicitation: multiple choice", *2 * [FAILED], fallback("as comma-separated text"), *2 * [WORKS]
)
async def multi_select(revision: Revision) -> Verdict:
    server = booking()
    value: Any = ["a", "c"] if revision.elicitation.multi_select else "a, c"
    async with raw_client(server, revision) as client:
        found = await answered(list[Literal["a", "b", "c"]], value, client, server)
        if isinstance(found, Verdict):
            return found
        assert found == "['a', 'c']"
        field = form_of(client)["properties"]["value"]
    if field["type"] == "string":
        assert "separated by commas: a, b, c" in field["description"]
        return fallback("as comma-separated text")
    assert (field["type"], field["items"]["enum"]) == ("array", ["a", "b", "c"])
    return WORKS


@ASKING.feature(
    "elicitation: the user declines or cancels (`Declined`)", *2 * [FAILED], *3 * [WORKS]
)
async def declined(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def offer(ctx: Context) -> str:
        try:
            return str(await ctx.elicit("Anything else?", str))
        except Declined:
            return "nothing else"

    @server.tool
    async def insist(ctx: Context) -> str:
        return str(await ctx.elicit("Anything else?", str))

    async with raw_client(server, revision, answer=decline) as client:
        lost = await cannot_ask(client.call("offer"))
        if lost is not None:
            return lost
        assert await client.text("offer") == "nothing else"
        assert await client.failure("insist") == "the user declined the request"
        client.answer = lambda method, params: {"action": "cancel"}
        assert await client.text("offer") == "nothing else"
        assert "cancelled the request" in await client.failure("insist")
    return WORKS


@ASKING.feature("elicitation: content that does not match the form", *4 * [FAILED], refused(-32602))
async def unfit(revision: Revision) -> Verdict:
    async with raw_client(booking(), revision, answer=accept(row="many")) as client:
        can = bool(revision.elicitation.modes)
        mentions = "does not fit" if can else "elicitation"
        return await failure(client.call("book"), mentions)


@ASKING.feature(
    "elicitation: declared, with a default", *2 * [fallback("the default is used")], *3 * [WORKS]
)
async def with_default(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def book(flight: str, seat: Annotated[str, Ask("Seat on {flight}?")] = "any") -> str:
        return f"{flight} {seat}"

    async with raw_client(server, revision, answer=accept(value="12A")) as client:
        found = await client.text("book", {"flight": "DY1"})
        if found == "DY1 any":
            assert client.asked == []
            return fallback("the default is used")
        assert found == "DY1 12A"
        assert client.asked[0][1]["message"] == "Seat on DY1?"
    return WORKS


@ASKING.feature("elicitation: declared, for `T | None`", *2 * [fallback("`None`")], *3 * [WORKS])
async def optional(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def book(seat: Annotated[str | None, Ask("Seat?")]) -> str:
        return repr(seat)

    async with raw_client(server, revision, can={}) as client:
        assert await client.text("book") == "None"
    async with raw_client(server, revision, answer=decline) as client:
        assert await client.text("book") == "None"
        client.answer = accept(value="12A")
        found = await client.text("book")
    if found == "None":
        assert client.asked == []
        return fallback("`None`")
    assert found == "'12A'"
    return WORKS


# ---------------------------------------------------------------- URLs


def visiting() -> Server:
    server = Server("s")

    @server.tool
    async def log_in(ctx: Context, by_error: bool = False) -> str:
        await ctx.elicit_url("Log in", "https://example.com/in", id="e1", by_error=by_error)
        await ctx.elicitation_complete("e1")
        return "consented"

    return server


def agree(method: str, params: JSON) -> JSON:
    assert (params["mode"], params["url"]) == ("url", "https://example.com/in")
    return {"action": "accept"}


@ASKING.feature("elicitation: a URL (`ctx.elicit_url`)", *3 * [FAILED], *2 * [WORKS])
async def visit(revision: Revision) -> Verdict:
    async with raw_client(visiting(), revision, answer=agree) as client:
        lost = await cannot_ask(client.call("log_in"))
        if lost is not None:
            assert client.asked == []
            return lost
        assert await client.text("log_in") == "consented"
    return WORKS


@ASKING.feature(
    "elicitation: `notifications/elicitation/complete`",
    *3 * [FAILED],
    WORKS,
    fallback("the client retries"),
)
async def visited(revision: Revision) -> Verdict:
    async with raw_client(visiting(), revision, answer=agree) as client:
        lost = await cannot_ask(client.call("log_in"))
        if lost is not None:
            return lost
    over = client.notifications("notifications/elicitation/complete")
    if not over:
        assert client.rounds == 1
        assert "elicitationId" not in client.asked[0][1]
        return fallback("the client retries")
    assert over == [{"elicitationId": "e1"}]
    assert client.asked[0][1]["elicitationId"] == "e1"
    return WORKS


@ASKING.feature(
    "elicitation: a URL in an error (`by_error=True`)",
    *3 * [FAILED],
    WORKS,
    fallback("`input_required` result"),
)
async def by_error(revision: Revision) -> Verdict:
    async with raw_client(visiting(), revision, answer=agree) as client:
        found = await tried(client.call("log_in", {"by_error": True}))
    if isinstance(found, Rejected):
        (asked,) = found.data["elicitations"]
        assert (asked["mode"], asked["url"]) == ("url", "https://example.com/in")
        assert asked["elicitationId"] == "e1"
        assert found.code == -32042
        return WORKS
    lost = unasked(found)
    if lost is not None:
        return lost
    assert client.rounds == 1
    return fallback("`input_required` result")


# ---------------------------------------------------------------- sampling and roots


def model(method: str, params: JSON) -> JSON:
    """Respond with the number and the types of the messages."""
    assert method == "sampling/createMessage"
    text = f"{len(params['messages'])} messages, {params['maxTokens']} tokens"
    content = {"type": "text", "text": text}
    return {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}


async def sampled(
    server: Server, revision: Revision, can: JSON = EVERYTHING
) -> tuple[JSON, list[JSON]]:
    """The result of the tool `ask`, and the messages that the model received."""
    async with raw_client(server, revision, can=can, answer=model) as client:
        result = await client.call("ask")
    return result, client.asked[0][1]["messages"] if client.asked else []


@ASKING.feature("sampling (`ctx.sample`)", WORKS)
async def sample(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        said = await ctx.sample("Hi", max_tokens=7, system="Be kind", temperature=0.5, stop=["x"])
        return f"{said.text} {said.model} {said.stop_reason}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("ask") == "1 messages, 7 tokens m endTurn"
    _, params = client.asked[0]
    assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hi"}}]
    assert (params["systemPrompt"], params["temperature"]) == ("Be kind", 0.5)
    assert params["stopSequences"] == ["x"]
    return WORKS


@ASKING.feature("sampling: an image", WORKS)
async def sample_image(revision: Revision) -> Verdict:
    server = Server("s")
    picture = t.ImageContent(data="aQ==", mime_type="image/png")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample(t.SamplingMessage(role="user", content=picture))).text

    _, (message,) = await sampled(server, revision)
    assert message["content"] == {"type": "image", "data": "aQ==", "mimeType": "image/png"}
    return WORKS


@ASKING.feature("sampling: audio", fallback("as text"), *4 * [WORKS])
async def sample_audio(revision: Revision) -> Verdict:
    server = Server("s")
    sound = t.AudioContent(data="aQ==", mime_type="audio/wav")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample(t.SamplingMessage(role="user", content=sound))).text

    _, (message,) = await sampled(server, revision)
    if message["content"]["type"] == "text":
        assert "audio content" in message["content"]["text"]
        return fallback("as text")
    assert message["content"] == {"type": "audio", "data": "aQ==", "mimeType": "audio/wav"}
    return WORKS


@ASKING.feature(
    "sampling: a message of several content blocks",
    *3 * [fallback("as several messages")],
    *2 * [WORKS],
)
async def sample_several(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        blocks: Any = [t.TextContent(text="a"), t.TextContent(text="b")]
        return (await ctx.sample(t.SamplingMessage(role="user", content=blocks))).text

    _, messages = await sampled(server, revision)
    if len(messages) == 2:
        said = [(one["role"], one["content"]["text"]) for one in messages]
        assert said == [("user", "a"), ("user", "b")]
        return fallback("as several messages")
    assert [block["text"] for block in messages[0]["content"]] == ["a", "b"]
    return WORKS


@ASKING.feature("sampling: tools", *3 * [FAILED], *2 * [WORKS])
async def sample_with_tools(revision: Revision) -> Verdict:
    server = Server("s")
    tool = t.Tool(name="look", input_schema={"type": "object"})

    @server.tool
    async def ask(ctx: Context) -> str:
        choice = t.ToolChoice(mode="required")
        said = await ctx.sample("Look", tools=[tool], tool_choice=choice)
        return "".join(one.name for one in said.blocks if isinstance(one, t.ToolUseContent))

    def use(method: str, params: JSON) -> JSON:
        assert params["tools"][0]["name"] == "look"
        assert params["toolChoice"] == {"mode": "required"}
        used = [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]
        return {"role": "assistant", "content": used, "model": "m", "stopReason": "toolUse"}

    can = EVERYTHING | {"sampling": {"tools": {}}}
    async with raw_client(server, revision, can=can, answer=use) as client:
        result = await client.call("ask")
        if result.get("isError"):
            assert "this needs sampling" in text_content(result)
            assert client.asked == []
            return FAILED
    assert text_content(result) == "look"
    return WORKS


def folders(method: str, params: JSON) -> JSON:
    assert method == "roots/list"
    return {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}


def rooted(**options: Any) -> Server:
    server = Server("s")

    @server.tool(**options)
    async def show(ctx: Context, only: str = "") -> str:
        return " ".join(root.uri for root in await ctx.roots(key="roots"))

    return server


@ASKING.feature("roots (`ctx.roots`)", WORKS)
async def roots(revision: Revision) -> Verdict:
    async with raw_client(rooted(), revision, answer=folders) as client:
        assert await client.text("show") == "file:///a file:///b"
    return WORKS
