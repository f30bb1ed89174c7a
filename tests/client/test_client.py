"""A client in every revision: lists, calls, rounds of questions, time-outs, giving up."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, assert_type, cast

import pytest

import colonnade
from client.scripted_server import JSON, Refusal, ScriptedServer, scripted_server
from colonnade import Context, Sample, Server, ToolError
from colonnade.client import cache as list_limits
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.results import ToolResult
from colonnade.errors import (
    ConnectionLost,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import SET_LEVEL
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, InputRequests, LogControl, Revision, Revisions
from colonnade.testing import Clock, connect, every_revision
from colonnade.transport.memory import connected_pair
from live import live, until
from official import available
from official_lines import complaints
from script_runner import Message

INFO = t.Implementation(name="c", version="1")
NOT_KEPT = {"ttlMs": 0, "cacheScope": "private"}
BY_RESULT = [one for one in ALL if one.input_requests is InputRequests.IN_RESULT]


@dataclass
class Forecast:
    city: str
    degrees: int


def weather() -> Server:
    server = Server("weather", version="1.2", instructions="Ask for one city.", page_size=2)

    @server.tool
    def forecast(city: str) -> Forecast:
        return Forecast(city, 7)

    @server.tool
    def double(number: int) -> int:
        return 2 * number

    @server.tool
    def fail() -> str:
        raise ToolError("No city 'Olso'. Did you mean 'Oslo'?")

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for step in range(1, to + 1):
            await ctx.progress(step, to, f"step {step}")
        return "counted"

    @server.tool
    async def chat(ctx: Context) -> str:
        await ctx.debug("low")
        await ctx.info({"middle": 1})
        await ctx.error("high", logger="chat")
        return "chatted"

    @server.resource("city://{name}", mime_type="text/plain")
    def city(name: str) -> str:
        return f"about {name}"

    for name in ("a", "b", "c"):
        server.resource(f"list://{name}", name=name)(lambda: "listed")

    @server.prompt
    def review(code: str, style: str = "kind") -> str:
        return f"Review {code}, be {style}"

    @server.completion(review, "style")
    def styles(prefix: str) -> list[str]:
        return [one for one in ("kind", "kurt", "strict") if one.startswith(prefix)]

    return server


# ---------------------------------------------------------------- opening


@live
async def test_opening_tells_who_the_server_is_and_what_it_offers(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        assert client.revision == revision.date
        assert client.server is not None
        assert (client.server.name, client.server.version) == ("weather", "1.2")
        assert client.instructions == "Ask for one city."
        assert client.capabilities.tools is not None
        first = client.record.said("client")[0]["method"]
        assert first == ("initialize" if revision.handshake else "server/discover")


@live
async def test_a_server_that_refuses_to_open_is_an_error_that_says_so(revision: Revision) -> None:
    def no(params: JSON) -> JSON:
        raise Refusal(-32000, "not today")

    with pytest.raises(RemoteError, match="not today"):
        async with scripted_server(revision, {"initialize": no, "server/discover": no}):
            pass


@live
async def test_a_server_that_speaks_another_revision_is_not_spoken_with(
    revision: Revision,
) -> None:
    def other(params: JSON) -> JSON:
        kept = {"ttlMs": 0, "cacheScope": "private", "capabilities": {}}
        info = {"serverInfo": {"name": "old", "version": "1"}}
        return kept | info | {"protocolVersion": "1999-01-01", "supportedVersions": ["1999-01-01"]}

    with pytest.raises(RemoteProtocolError, match="1999-01-01"):
        async with scripted_server(revision, {"initialize": other, "server/discover": other}):
            pass


@pytest.mark.spec("R0056")
@live
async def test_giving_up_while_opening_closes_and_never_cancels(revision: Revision) -> None:
    said: list[str] = []
    near, far = connected_pair(lambda side, frame: said.append(json.loads(frame)["method"]))
    far.join(ScriptedServer(far, revision, {"initialize": lambda params: None}, {}))
    client = Client(near.open_conversation, info=INFO, accepts=Revisions([revision]))
    opening = asyncio.ensure_future(client.open(revision))
    await until(lambda: bool(said))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert client.conversation.link.phase is Phase.CLOSED
    await client.close()
    assert said == ["initialize"]


# ---------------------------------------------------------------- capabilities


@pytest.mark.spec("R0087", "R0100", "R0364")
@live
async def test_exactly_what_there_is_a_handler_for_is_advertised(revision: Revision) -> None:
    given: list[tuple[InputCallbacks, set[str]]] = [
        (InputCallbacks(), set()),
        (InputCallbacks(on_sample=lambda asked: "words"), {"sampling"}),
        (InputCallbacks(roots=[]), {"roots"}),
        (InputCallbacks(on_elicit=lambda asked: {}), {"elicitation"}),
        (
            InputCallbacks(on_elicit=lambda asked: {}, on_sample=lambda asked: "", roots=()),
            {"elicitation", "sampling", "roots"},
        ),
    ]
    for answers, names in given:
        async with scripted_server(revision, answers=answers) as (_, server):
            first = server.received[0]["params"]
            if revision.handshake:
                said = first["capabilities"]
            else:
                said = first["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        known = names if revision.elicitation.modes else names - {"elicitation"}
        assert set(said) == known
        if "elicitation" in known:
            both = {mode: {} for mode in sorted(revision.elicitation.modes)}
            assert said["elicitation"] == (both if "url" in both else {})


def declared(frame: JSON) -> JSON:
    """The capabilities that a client declared in its first request."""
    params = frame["params"]
    key = "io.modelcontextprotocol/clientCapabilities"
    return params["capabilities"] if "capabilities" in params else params["_meta"][key]


@pytest.mark.spec("R0593")
@live
async def test_a_client_that_declares_elicitation_answers_in_each_mode_that_it_declares(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def form(ctx: Context) -> str:
        return await ctx.elicit("Which colour?", str)

    @server.tool
    async def url(ctx: Context) -> str:
        await ctx.elicit_url("Pay here.", "https://pay.example/7")
        return "paid"

    def said(asked: t.ElicitRequestParams) -> Any:
        return True if asked.mode == "url" else "blue"

    async with connect(server, revision.date, on_elicit=said) as client:
        modes = declared(client.record.said("client")[0])["elicitation"]
        assert set(modes) == {"form", "url"}
        assert (await client.call_tool("form")).text == "blue"
        assert (await client.call_tool("url")).text == "paid"
    async with connect(server, revision.date) as client:
        assert "elicitation" not in declared(client.record.said("client")[0])


@pytest.mark.parametrize(
    "revision", [one for one in ALL if one.handshake], ids=lambda one: one.date
)
@live
async def test_what_was_not_agreed_on_is_refused_before_it_is_sent(revision: Revision) -> None:
    async with scripted_server(revision, capabilities={"tools": {}}) as (client, server):
        before = len(server.received)
        with pytest.raises(LocalProtocolError, match="needs prompts"):
            await client.list_prompts()
        with pytest.raises(LocalProtocolError, match="needs resources"):
            await client.read_resource("a://b")
        assert len(server.received) == before


@pytest.mark.parametrize("revision", BY_RESULT, ids=lambda one: one.date)
@live
async def test_where_nothing_is_agreed_on_what_came_later_is_found(revision: Revision) -> None:
    server = Server("s")
    async with connect(server, revision.date) as client:
        assert client.capabilities.tools is None
        with pytest.raises(RemoteError) as caught:
            await client.list_tools()
        assert caught.value.code == -32601

        @server.tool
        def late() -> None: ...

        assert [tool.name for tool in await client.list_tools()] == ["late"]
        await client.ping()
        assert client.capabilities.tools is not None


# ---------------------------------------------------------------- lists


@pytest.mark.spec("R0124", "R0163")
@live
async def test_lists_have_all_pages(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        tools = [tool.name for tool in await client.list_tools()]
        assert tools == ["forecast", "double", "fail", "count", "chat"]
        assert len(client.record.said("client", "tools/list")) == 3
        assert [one.name for one in await client.list_resources()] == ["a", "b", "c"]
        assert [one.name for one in await client.list_resource_templates()] == ["city"]
        assert [one.name for one in await client.list_prompts()] == ["review"]


@pytest.mark.spec("R0161")
@pytest.mark.parametrize("sizes", [(3, 1, 0, 5, 2), (1, 4, 4), (0, 0, 2)])
@live
async def test_pages_may_have_any_size_and_only_a_missing_cursor_ends_a_list(
    revision: Revision, sizes: tuple[int, ...]
) -> None:
    names = [f"t{n}" for n in range(sum(sizes))]

    def page(params: JSON) -> JSON:
        number = int(params.get("cursor") or 0)
        start = sum(sizes[:number])
        tools = [
            {"name": name, "inputSchema": {"type": "object"}}
            for name in names[start : start + sizes[number]]
        ]
        more = {"nextCursor": str(number + 1)} if number + 1 < len(sizes) else {}
        return {"ttlMs": 0, "cacheScope": "private", "tools": tools} | more

    async with scripted_server(revision, {"tools/list": page}) as (client, server):
        assert [tool.name for tool in await client.list_tools()] == names
        assert len(server.requests("tools/list")) == len(sizes)


@pytest.mark.spec("R0164", "R1039")
@live
async def test_an_empty_cursor_continues_and_comes_back_as_it_was(revision: Revision) -> None:
    pages: dict[Any, JSON] = {
        None: {"prompts": [{"name": "a"}], "nextCursor": ""},
        "": {"prompts": [], "nextCursor": " null "},
        " null ": {"prompts": [{"name": "b"}]},
    }
    kept = {"ttlMs": 0, "cacheScope": "private"}
    replies = {"prompts/list": lambda params: kept | pages[params.get("cursor")]}
    async with scripted_server(revision, replies) as (client, server):
        assert [one.name for one in await client.list_prompts()] == ["a", "b"]
        cursors = [one["params"].get("cursor") for one in server.requests("prompts/list")[1:]]
        assert cursors == ["", " null "]


@live
async def test_a_list_without_an_end_is_given_up(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_limits, "MAX_PAGES", 20)

    def page(params: JSON) -> JSON:
        return NOT_KEPT | {"tools": [], "nextCursor": params.get("cursor", "") + "x"}

    async with scripted_server(revision, {"tools/list": page}) as (client, server):
        with pytest.raises(RemoteProtocolError, match="tools/list has more than 20 pages"):
            await client.list_tools()
        assert len(server.requests("tools/list")) == 20


@live
async def test_a_list_whose_cursor_repeats_is_not_read_any_further(revision: Revision) -> None:
    following = {None: "b", "b": "c", "c": "b"}

    def page(params: JSON) -> JSON:
        return NOT_KEPT | {"prompts": [], "nextCursor": following[params.get("cursor")]}

    async with scripted_server(revision, {"prompts/list": page}) as (client, server):
        with pytest.raises(RemoteProtocolError, match="prompts/list gave the same nextCursor"):
            await client.list_prompts()
        assert len(server.requests("prompts/list")) == 3


@live
async def test_a_list_of_more_bytes_than_its_limit_is_not_read_to_its_end(
    revision: Revision,
) -> None:
    megabyte = "x" * 1024 * 1024

    def page(params: JSON) -> JSON:
        at = int(params.get("cursor", "0"))
        more = {"nextCursor": str(at + 1)} if at < 40 else {}
        found = {"uri": f"a:{at}", "name": "a", "description": megabyte}
        return NOT_KEPT | {"resources": [found]} | more

    async with scripted_server(revision, {"resources/list": page}) as (client, server):
        with pytest.raises(RemoteProtocolError) as raised:
            await client.list_resources()
        assert len(server.requests("resources/list")) == 16
    words = str(raised.value)
    assert "server 'scripted': resources/list has more than 16777216 bytes" in words
    assert "raise max_list_bytes (an argument of connect" in words


@live
async def test_a_list_of_more_items_than_its_limit_is_not_read_to_its_end(
    revision: Revision,
) -> None:
    def page(params: JSON) -> JSON:
        at = int(params.get("cursor", "0"))
        more = {"nextCursor": str(at + 1)} if at < 10 else {}
        found = [{"uriTemplate": f"a:{at}:{nth}", "name": "a"} for nth in range(10_000)]
        return NOT_KEPT | {"resourceTemplates": found} | more

    async with scripted_server(revision, {"resources/templates/list": page}) as (client, server):
        words = "resources/templates/list has more than 50000 items.* raise max_list_items"
        with pytest.raises(RemoteProtocolError, match=words):
            await client.list_resource_templates()
        assert len(server.requests("resources/templates/list")) == 6


@live
async def test_the_limits_of_a_list_can_be_changed_and_count_what_was_kept(
    revision: Revision,
) -> None:
    def page(params: JSON) -> JSON:
        kept = {"ttlMs": 60_000, "cacheScope": "private"}
        more = {"nextCursor": "b"} if "cursor" not in params else {}
        return kept | {"prompts": [{"name": "x" * 1000}]} | more

    replies = {"prompts/list": page}
    async with scripted_server(revision, replies, max_list_bytes=2500, max_list_items=2) as (
        client,
        _,
    ):
        assert len(await client.list_prompts()) == 2
        assert len(await client.list_prompts()) == 2
    async with scripted_server(revision, replies, max_list_bytes=2000) as (client, _):
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match="more than 2000 bytes"):
                await client.list_prompts()
    async with scripted_server(revision, replies, max_list_items=1) as (client, _):
        with pytest.raises(RemoteProtocolError, match="more than 1 items"):
            await client.list_prompts()


@pytest.mark.parametrize("name", ["max_list_bytes", "max_list_items"])
def test_a_limit_of_a_list_is_a_number_above_0(name: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"{name} is a whole number above 0"):
        colonnade.connect(["x"], **cast("Any", {name: 0}))


# ---------------------------------------------------------------- calls


@live
async def test_a_call_gives_data_words_and_content(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        result = await client.call_tool("forecast", {"city": "Oslo"}, returns=Forecast)
        assert_type(result, ToolResult[Forecast])
        assert result.data == Forecast("Oslo", 7)
        assert result.text == '{"city":"Oslo","degrees":7}'
        assert not result.is_error
        assert [block.type for block in result.content] == ["text"]
        double = await client.call_tool("double", {"number": 21}, returns=int)
        assert double.data == 42


@live
async def test_the_error_of_a_tool_is_a_value_and_reading_its_data_raises(
    revision: Revision,
) -> None:
    async with connect(weather(), revision.date) as client:
        result = await client.call_tool("fail")
        assert result.is_error
        assert result.text == "No city 'Olso'. Did you mean 'Oslo'?"
        with pytest.raises(ToolError, match="Did you mean 'Oslo'"):
            _ = result.data


@live
async def test_an_error_of_the_protocol_is_raised(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        with pytest.raises(RemoteError, match="there is no tool 'fly'") as caught:
            await client.call_tool("fly")
        assert caught.value.code == -32602


@live
async def test_resources_prompts_and_completions(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        read = await client.read_resource("city://oslo")
        assert [one.text for one in read.contents] == ["about oslo"]
        prompt = await client.get_prompt("review", {"code": "x = 1"})
        (message,) = prompt.messages
        assert message.content == t.TextContent(text="Review x = 1, be kind")
        found = await client.complete("style", "k", prompt="review", context={"code": "x"})
        assert found.values == ["kind", "kurt"]
        assert (await client.complete("name", "o", template="city://{name}")).values == []
        with pytest.raises(LocalProtocolError, match=r"prompt='name' or template='uri'"):
            await client.complete("style")


@pytest.mark.spec("R0748", "R0970")
@pytest.mark.parametrize("code", [-32602, -32002])
@live
async def test_a_resource_that_is_missing_is_known_by_the_old_code_and_the_new(
    revision: Revision, code: int
) -> None:
    def missing(params: JSON) -> JSON:
        raise Refusal(code, "Resource not found")

    async with scripted_server(revision, {"resources/read": missing}) as (client, _):
        with pytest.raises(
            RemoteError, match="scripted has no resource 'a://b': Resource"
        ) as caught:
            await client.read_resource("a://b")
        assert caught.value.code == code


@pytest.mark.spec("R0953", "R1138", "R1148")
@live
async def test_what_a_server_calls_itself_changes_nothing_but_what_is_shown(
    revision: Revision,
) -> None:
    said: list[list[JSON]] = []
    for name in ("scripted", "Trusted Official Server"):
        key = "io.modelcontextprotocol/serverInfo"
        meta = {key: {"name": name, "version": "9"}}
        kept = {"ttlMs": 0, "cacheScope": "private", "_meta": meta}
        found = {"supportedVersions": [revision.date], "capabilities": {"tools": {}}}
        replies = {
            "server/discover": lambda params, kept=kept, found=found: kept | found,
            "tools/list": lambda params, kept=kept: kept | {"tools": []},
            "subscriptions/listen": lambda params, meta=meta: {"_meta": meta},
        }
        async with scripted_server(revision, replies) as (client, server):
            assert client.server is not None
            assert client.server.name == name
            await client.list_tools()
            async with client.listen(tools=True) as changes:
                assert [change async for change in changes] == []
            said.append(list(server.received))
    assert said[0] == said[1]


@live
async def test_a_resource_is_followed_where_there_are_sessions(revision: Revision) -> None:
    server = weather()
    async with connect(server, revision.date) as client:
        if not revision.handshake:
            with pytest.raises(LocalProtocolError, match="resources/subscribe is not a request"):
                await client.subscribe("city://oslo")
            return
        await client.subscribe("city://oslo")
        server.updated("city://oslo")
        told = "notifications/resources/updated"
        await until(lambda: bool(client.record.said("server", told)))
        await client.unsubscribe("city://oslo")
        server.updated("city://oslo")
        await client.ping()
        assert len(client.record.said("server", told)) == 1


@live
async def test_a_ping_says_that_somebody_is_there(revision: Revision) -> None:
    async with connect(weather(), revision.date) as client:
        await client.ping()
        said = client.record.said("client")[-1]["method"]
        assert said == ("ping" if "ping" in revision.methods else "server/discover")  # D23


# ---------------------------------------------------------------- progress and log


@live
async def test_progress_is_reported_in_its_order(revision: Revision) -> None:
    heard: list[tuple[Any, ...]] = []
    async with connect(weather(), revision.date) as client:
        result = await client.call_tool(
            "count", {"to": 3}, on_progress=lambda *progress: heard.append(progress)
        )
        assert result.text == "counted"
    knows_words = revision.knows(*t.field_ranges(t.ProgressNotificationParams)["message"])
    words = [f"step {step}" if knows_words else None for step in (1, 2, 3)]
    assert heard == [(1, 3, words[0]), (2, 3, words[1]), (3, 3, words[2])]


@live
async def test_progress_that_is_wanted_of_every_call_goes_to_the_client_s_handler(
    revision: Revision,
) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        heard.append(progress)

    async with connect(weather(), revision.date, on_progress=hear) as client:
        await client.call_tool("count", {"to": 3})
        # At once: this used to poll until it was true, and did not see that the call came first.
        assert heard == [1, 2, 3]


@live
async def test_what_is_logged_is_heard_at_the_level_that_was_set(revision: Revision) -> None:
    heard: list[tuple[str, Any, str | None]] = []

    def hear(said: t.LoggingMessageNotificationParams) -> None:
        heard.append((said.level, said.data, said.logger))

    async with connect(weather(), revision.date, on_log=hear) as client:
        await client.call_tool("chat")
        assert heard == [("info", {"middle": 1}, None), ("error", "high", "chat")]
        heard.clear()
        await client.set_log_level("error")
        await client.call_tool("chat")
        assert heard == [("error", "high", "chat")]
        levels = [one["params"]["level"] for one in client.record.said("client", SET_LEVEL)]
        by_method = revision.log_control is LogControl.BY_METHOD
        assert levels == (["info", "error"] if by_method else [])


@live
async def test_nothing_is_logged_to_who_did_not_ask_where_each_request_asks(
    revision: Revision,
) -> None:
    async with connect(weather(), revision.date) as client:
        await client.call_tool("chat")
        said = client.record.said("server", "notifications/message")
        assert bool(said) is (revision.log_control is LogControl.BY_METHOD)


@every_revision
async def test_progress_begins_the_time_out_anew_but_not_for_ever(revision: str) -> None:
    server, clock = Server("s"), Clock()

    @server.tool
    async def work(hours: float, ctx: Context) -> str:
        for step in range(round(hours * 120)):
            await asyncio.sleep(30)
            await ctx.progress(step)
        return "done"

    async with connect(server, revision, clock=clock) as client:
        working = asyncio.ensure_future(client.call_tool("work", {"hours": 0.1}))
        await clock.advance(400)
        assert (await working).text == "done"
        working = asyncio.ensure_future(client.call_tool("work", {"hours": 1}))
        await clock.advance(700)
        with pytest.raises(TimedOut, match="within 600 s"):
            await working


# ---------------------------------------------------------------- rounds of questions


def round_of(number: int, state: str | None) -> JSON:
    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": f"word {number}"}}]}
    question = {"method": "sampling/createMessage", "params": asked | {"maxTokens": 5}}
    demand: JSON = {"resultType": "input_required", "inputRequests": {f"q{number}": question}}
    return demand | ({"requestState": state} if state is not None else {})


@pytest.mark.spec("R0802", "R0804", "R0805", "R0806", "R0807", "R0808")
@live
async def test_rounds_go_on_to_the_end_with_the_state_exactly_as_it_was_given(
    revision: Revision,
) -> None:
    """RQ-09, with an id of its own for each round."""
    states = iter(["  not {json} \\u0000 ", None, ""])
    left = 3

    def call(params: JSON) -> JSON:
        nonlocal left
        if left:
            left -= 1
            return round_of(left, next(states))
        return {"content": [{"type": "text", "text": "done"}]}

    answers = InputCallbacks(on_sample=lambda asked: "a word", model="parrot")
    async with scripted_server(revision, {"tools/call": call}, answers=answers) as (client, server):
        result = await client.call_tool("ask", {"x": 1})
        assert result.text == "done"
        calls = server.requests("tools/call")
    assert len({one["id"] for one in calls}) == 4
    sent = [one["params"].get("requestState", "none") for one in calls]
    assert sent == ["none", "  not {json} \\u0000 ", "none", ""]
    assert [list(one["params"].get("inputResponses", {})) for one in calls] == [
        [],
        ["q2"],
        ["q1"],
        ["q0"],
    ]
    assert calls[1]["params"]["inputResponses"]["q2"]["content"]["text"] == "a word"
    assert all(one["params"]["arguments"] == {"x": 1} for one in calls)


@pytest.mark.parametrize("revision", BY_RESULT, ids=lambda one: one.date)
@live
async def test_what_was_not_declared_is_not_answered(revision: Revision) -> None:
    replies = {"tools/call": lambda params: round_of(1, "s")}
    async with scripted_server(revision, replies) as (client, server):
        with pytest.raises(RemoteProtocolError, match="did not declare"):
            await client.call_tool("ask")
        assert len(server.requests("tools/call")) == 1


@live
async def test_several_questions_are_answered_whichever_way_they_come(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        one, two = await ctx.ask(Sample("a"), Sample("b"))
        three = await ctx.sample(f"{one.text}{two.text}")
        return three.text

    def model(asked: t.CreateMessageRequestParams) -> str:
        content = asked.messages[-1].content
        assert isinstance(content, t.TextContent)
        return f"<{content.text}>"

    async with connect(server, revision.date, on_sample=model) as client:
        assert (await client.call_tool("ask")).text == "<<a><b>>"


# ---------------------------------------------------------------- every message


@live
async def test_every_message_fits_the_closed_schema_of_its_revision(revision: Revision) -> None:
    server = weather()

    @server.tool
    async def everything(ctx: Context) -> str:
        await ctx.sample("a word")
        await ctx.roots()
        if revision.elicitation.modes:
            await ctx.elicit("Who?", str)
        return "asked"

    async with connect(
        server,
        revision.date,
        answers={"word": "a", "Who": "Ann"} if revision.elicitation.modes else ["a"],
        roots=["file:///a"],
        on_log=lambda said: None,
    ) as client:
        await client.list_tools()
        await client.list_resources()
        await client.list_resource_templates()
        await client.list_prompts()
        await client.read_resource("city://oslo")
        await client.get_prompt("review", {"code": "x"})
        await client.complete("style", "k", prompt="review", context={"code": "x"})
        await client.call_tool("count", {"to": 2})
        await client.call_tool("chat")
        await client.set_log_level("error")
        await client.ping()
        assert (await client.call_tool("everything")).text == "asked"
        async with client.listen(tools=True, resources=["city://oslo"]) as changes:
            server.updated("city://oslo")
            await anext(changes)
    methods: dict[tuple[str, Any], str] = {}
    for by, message in client.record:
        if "method" in message and "id" in message:
            methods[by, message["id"]] = message["method"]
        answers = methods.get(("server" if by == "client" else "client", message.get("id")))
        if available():
            said = Message(
                Side(by), message, revision, answers if "method" not in message else None
            )
            assert not complaints(said), message
    assert len(methods) > 15


# ---------------------------------------------------------------- giving up


@live
async def test_a_call_that_nobody_waits_for_any_more_is_cancelled_at_the_server(
    revision: Revision,
) -> None:
    server, began, stopped = Server("s"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with connect(server, revision.date) as client:
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await began.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await stopped.wait()
        (call,) = client.record.said("client", "tools/call")
        (cancelled,) = client.record.said("client", "notifications/cancelled")
        assert cancelled["params"]["requestId"] == call["id"]


@live
async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(revision: Revision) -> None:
    replies = {"tools/call": lambda params: None}
    async with scripted_server(revision, replies) as (client, server):
        with pytest.raises(TimedOut, match=r"no answer to tools/call within 0\.02 s"):
            await client.call_tool("wait", timeout_s=0.02)
        cancelled = await server.wait_for("notifications/cancelled")
        (call,) = server.requests("tools/call")
        assert cancelled["params"]["requestId"] == call["id"]


@live
async def test_an_answer_that_does_not_fit_is_the_server_s_mistake(revision: Revision) -> None:
    replies = {"tools/list": lambda params: {"tools": "many"}}
    async with scripted_server(revision, replies) as (client, _):
        with pytest.raises(RemoteProtocolError, match="tools"):
            await client.list_tools()


@live
async def test_closing_ends_what_waits_and_can_be_done_twice(revision: Revision) -> None:
    async with scripted_server(revision, {"tools/call": lambda params: None}) as (client, server):
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await server.wait_for("tools/call")
        await asyncio.gather(client.close(), client.close())
        with pytest.raises(ConnectionLost, match="the client was closed"):
            await calling
        with pytest.raises(ConnectionLost, match="the client was closed before"):
            await client.ping()


@live
async def test_a_call_on_a_closed_client_was_not_sent(revision: Revision) -> None:
    async with scripted_server(revision, {"tools/call": lambda params: None}) as (client, server):
        calling = asyncio.ensure_future(client.call_tool("wait"))
        await server.wait_for("tools/call")
        await client.close()
        with pytest.raises(ConnectionLost) as sent:
            await calling
        assert (sent.value.not_sent, sent.value.effect_unknown) == (False, True)
        with pytest.raises(ConnectionLost, match="the client was closed before") as unsent:
            await client.call_tool("wait")
        assert (unsent.value.not_sent, unsent.value.effect_unknown) == (True, False)
        assert "had an effect" not in str(unsent.value)


@live
async def test_before_it_is_open_a_client_says_so() -> None:
    near, _ = connected_pair()
    client = Client(near.open_conversation, info=INFO)
    with pytest.raises(LocalProtocolError, match="not open yet"):
        await client.list_tools()
