"""What goes through a host, and what stays at each hop: `_meta`, progress, logs, layers, models."""

import asyncio
import contextlib
from typing import Any

import pytest

from colonnade import (
    ColonnadeError,
    Context,
    Handler,
    Host,
    HostInputRequest,
    Refused,
    RequestContext,
    Server,
    TimedOut,
    connect,
)
from colonnade.errors import Fault
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.input_requests import InputRequestHandler
from colonnade.host.router import LocalRequestContext, local_exchange
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from host.wrapped_request import wrapping
from live import live

OLD, NEW = "2025-06-18", "2026-07-28"
TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
    "baggage": "user=ada",
}


class Recorded(Server):
    """A server that keeps the params of every call."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.params: list[dict[str, Any]] = []

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.exchange.method.name == "tools/call":
            self.params.append(decode_as(dict[str, Any], request.exchange.request.params))
        return await super().respond(request)


def recorded() -> Recorded:
    server = Recorded("recorded")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(0.5, 1.0, "half")
        await ctx.info("working")
        await ctx.progress(1.0, 1.0, "done")
        return "worked"

    @server.tool
    async def rest() -> None:
        await asyncio.Event().wait()

    @server.tool
    def number() -> int:
        return 5

    _ = work, rest, number
    return server


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_trace_context_passes_and_what_belongs_to_a_hop_is_made_anew(revision: str) -> None:
    @live
    async def exercise() -> None:
        server = recorded()
        heard: list[Any] = []
        async with Host({"s": entry_of("s", server, Settings(revision=revision))}) as host:
            mine = {
                **TRACE,
                "com.example/tag": {"a": [1]},
                "io.modelcontextprotocol/clientInfo": {"name": "forged", "version": "0"},
                "io.modelcontextprotocol/protocolVersion": "1999-01-01",
                "io.modelcontextprotocol/logLevel": "debug",
                "com.mcp.tools/x": 1,
                "progressToken": "forged",
            }
            result = await host.call_tool(
                "s__work", meta=mine, on_progress=lambda *change: heard.append(change)
            )
            assert result.text == "worked"
            assert not any("modelcontextprotocol" in key for key in result.meta)
        assert [change[2] for change in heard] == ["half", "done"]
        (params,) = server.params
        assert params["name"] == "work"
        meta = params["_meta"]
        assert {key: meta[key] for key in TRACE} == TRACE
        assert meta["com.example/tag"] == {"a": [1]}
        assert "com.mcp.tools/x" not in meta
        assert meta["progressToken"] != "forged"
        assert "forged" not in str(params)
        version = meta.get("io.modelcontextprotocol/protocolVersion")
        assert version == (revision if revision == NEW else None)
        assert "io.modelcontextprotocol/logLevel" not in meta

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_log_reaches_who_called_and_nobody_else(revision: str) -> None:
    @live
    async def exercise() -> None:
        async with Host({"s": entry_of("s", recorded(), Settings(revision=revision))}) as host:
            ada: list[Any] = []
            await host.call_tool("s__work", caller="ada", on_log=ada.append)
            assert [said.data for said in ada] == ["working"]

    exercise()


@live
async def test_a_call_ends_after_the_time_it_was_given_and_is_given_up_with_its_caller() -> None:
    async with Host({"s": recorded()}) as host:
        with pytest.raises(TimedOut, match="server 's'"):
            await host.call_tool("s__rest", timeout_s=0.05)
        call = asyncio.create_task(host.call_tool("s__rest"))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert host.status()[0].in_flight == 0


@live
async def test_middleware_is_around_everything_and_what_it_refuses_never_reaches_a_server() -> None:
    server = recorded()
    seen: list[tuple[str, Any, str]] = []

    async def audit(request: RequestContext, handler: Handler) -> t.ProtocolType:
        exchange = request.exchange
        seen.append((exchange.method.name, exchange.params.name, exchange.principal))
        return await handler(request)

    async def policy(request: RequestContext, handler: Handler) -> t.ProtocolType:
        if request.exchange.params.name == "s__rest":
            raise Refused("resting is not allowed")
        result = await handler(request)
        if isinstance(result, t.ListToolsResult):
            return t.ListToolsResult(tools=[one for one in result.tools if one.name != "s__rest"])
        return result

    async with Host({"s": server}, middleware=[audit]) as host:
        host.add_middleware(policy)
        assert [tool.original for tool in await host.list_tools()] == ["work", "number"]
        with pytest.raises(Refused, match="resting is not allowed"):
            await host.caller("ada").call_tool("s__rest")
        assert (await host.call_tool("s__number")).data == 5
        assert server.params[-1]["name"] == "number"
        assert len(server.params) == 1
    assert seen == [
        ("tools/list", None, ""),
        ("tools/call", "s__rest", "ada"),
        ("tools/call", "s__number", ""),
    ]


@live
async def test_middleware_may_change_the_description_of_a_tool() -> None:
    async def louder(request: RequestContext, handler: Handler) -> t.ProtocolType:
        result = await handler(request)
        if not isinstance(result, t.ListToolsResult):
            return result
        tools = [t.Tool(name=one.name, input_schema={}, description="!") for one in result.tools]
        return t.ListToolsResult(tools=tools)

    async with Host({"s": recorded()}, middleware=[louder]) as host:
        tools = await host.list_tools()
        assert [(one.description, one.server, one.original) for one in tools] == [
            ("!", "s", "work"),
            ("!", "s", "rest"),
            ("!", "s", "number"),
        ]


def stocked() -> Server:
    server = recorded()

    @server.prompt
    def greet() -> str:
        return "Hello."

    @server.resource("shelf://all")
    def everything() -> str:
        return "all"

    @server.resource("shelf://{row}")
    def row(row: str) -> str:
        return row

    _ = greet, everything, row
    return server


@pytest.mark.parametrize("revision", [OLD, "2025-11-25", NEW])
def test_middleware_that_wraps_a_turn_changes_nothing_that_a_program_sees(revision: str) -> None:
    @live
    async def exercise() -> None:
        for middleware in ([], [wrapping], [wrapping, wrapping]):
            entries = {
                key: entry_of(key, stocked(), Settings(revision=revision)) for key in ("a", "b")
            }
            async with Host(entries, middleware=middleware) as host:
                tools = await host.list_tools()
                assert [(one.name, one.server, one.original) for one in tools] == [
                    (f"{key}__{name}", key, name)
                    for key in ("a", "b")
                    for name in ("work", "rest", "number")
                ]
                assert [one.server for one in await host.list_prompts()] == ["a", "b"]
                assert [one.server for one in await host.list_resources()] == ["a", "b"]
                assert [one.server for one in await host.list_resource_templates()] == ["a", "b"]
                assert (await host.call_tool("a__number")).data == 5
                read = await host.read_resource("shelf://all", "b")
                assert read.contents
                with pytest.raises(TimedOut):
                    await host.call_tool("a__rest", timeout_s=0.05)

    exercise()


@live
async def test_what_a_cache_of_lists_answers_still_has_its_servers() -> None:
    kept: dict[str, t.ProtocolType] = {}

    async def cache(request: RequestContext, handler: Handler) -> t.ProtocolType:
        method = request.exchange.method.name
        if method not in kept:
            kept[method] = await handler(request)
        return kept[method]

    async with Host({"s": recorded()}, middleware=[cache]) as host:
        first = await host.list_tools()
        assert [one.server for one in first] == ["s", "s", "s"]
        assert await host.list_tools() == first


@live
async def test_models_are_told_of_all_tools_and_what_they_call_leads_back() -> None:
    odd = Server("odd")

    @odd.tool(name="a.b c")
    def add(x: int, y: int = 1) -> int:
        return x + y

    _ = add
    async with Host({"odd": odd, "s": recorded()}) as host:
        entry, *_ = await host.to_openai()
        function = {"name": entry["function"]["name"], "arguments": '{"x": 2, "y": 3}'}
        call = {"id": "1", "type": "function", "function": function}
        assert (await host.call_openai(call)).to_openai()["content"] == "5"
        (first, *_) = await host.to_anthropic()
        use = {"type": "tool_use", "id": "2", "name": first["name"], "input": {"x": 1, "y": 1}}
        result = (await host.call_anthropic(use)).to_anthropic()
        assert (result["tool_use_id"], result["content"][0]["text"]) == ("2", "2")
        wrong = {"type": "tool_use", "id": "3", "name": "s__nummber", "input": {}}
        told = await host.call_anthropic(wrong)
        assert told.is_error
        assert "s__number" in told.text
        bad = {"type": "tool_use", "id": "4", "name": first["name"], "input": {"x": "no"}}
        assert (await host.call_anthropic(bad)).is_error


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_value_is_plain_also_where_its_revision_wraps_it(revision: str) -> None:
    @live
    async def exercise() -> None:
        async with Host({"s": entry_of("s", recorded(), Settings(revision=revision))}) as host:
            assert (await host.call_tool("s__number", returns=int)).data == 5

    exercise()


class Front(Server):
    """A server whose requests a host answers: as little of a gateway as shows that it can be."""

    def __init__(self, host: Host) -> None:
        super().__init__("front")
        self.host = host
        self.tool(_nothing)
        self.prompt(_nothing)

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.exchange.method.name not in ("tools/list", "tools/call"):
            return await super().respond(request)
        return request.exchange.settle(await self.host.handler(request))


def _nothing() -> None: ...


@pytest.mark.parametrize("behind", [OLD, NEW])
@pytest.mark.parametrize("before", [OLD, NEW])
def test_a_stranger_who_connects_comes_through_the_same_handler(before: str, behind: str) -> None:
    @live
    async def exercise() -> None:
        server, heard, logged = recorded(), list[Any](), list[Any]()
        entry = entry_of("s", server, Settings(revision=behind))
        async with (
            Host({"s": entry}) as host,
            connect(Front(host), revision=before, on_log=logged.append) as client,
        ):
            assert [one.name for one in await client.list_tools()] == [
                "s__work",
                "s__rest",
                "s__number",
            ]
            result = await client.call_tool(
                "s__work", on_progress=lambda *change: heard.append(change[2])
            )
            assert result.text == "worked"
            await client.wait_for_callbacks()
            assert heard == ["half", "done"]
            info = result.meta.get("io.modelcontextprotocol/serverInfo", {"name": "front"})
            assert info["name"] == "front"
            assert (await client.call_tool("s__number")).text == "5"

    exercise()


@live
async def test_a_question_goes_back_the_way_the_call_came() -> None:
    server = Server("desk")

    @server.tool
    async def book(ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    _ = book
    asked: list[str] = []

    def on_elicit(params: t.ElicitRequestParams) -> str:
        asked.append(params.message)
        return "12A"

    def on_input_request(question: HostInputRequest) -> None:
        raise AssertionError("nobody here has called")

    for behind in (OLD, NEW):
        entry = entry_of("d", server, Settings(revision=behind))
        async with (
            Host({"d": entry}, on_input_request=on_input_request) as host,
            connect(Front(host), revision=OLD, on_elicit=on_elicit) as client,
            connect(Front(host), revision=OLD) as mute,
        ):
            assert (await client.call_tool("d__book")).text == "12A"
            with contextlib.suppress(ColonnadeError):
                assert (await mute.call_tool("d__book")).is_error
    assert asked == ["Which seat?", "Which seat?"]


@live
async def test_the_handler_refuses_what_is_no_request_to_a_catalogue() -> None:
    async with Host({"s": recorded()}) as host:
        desk = InputRequestHandler()
        other = LocalRequestContext(
            local_exchange("server/discover", t.RequestParams(), desk.peer), desk
        )
        with pytest.raises(Fault, match="method not found: server/discover"):
            await host.handler(other)
        cursor = t.PaginatedRequestParams(cursor="x")
        page = LocalRequestContext(local_exchange("tools/list", cursor, desk.peer), desk)
        with pytest.raises(Fault, match="cursor"):
            await host.handler(page)
