"""A server that changes while it is served: what older clients were told, and what newer ones find.

Rules: what a handshake agreed on holds for its session; a request that says it all itself is
judged by what is there now.
"""

import asyncio
import json
import logging
import math
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from colonnade import Context, Depends, Server, ToolReturn
from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.stdio import Pipe, serve_pipe
from http_client import Caller
from live import live
from server.raw_client import JSON, Rejected, raw_client

FIRST: list[tuple[str, str]] = [
    ("tools/list", "tools"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
]


def grow(server: Server) -> None:
    server.tool(name="late")(lambda: "x")
    server.resource("a://late")(lambda: "x")

    @server.resource("b://{late}")
    def template(late: bool) -> str:
        return str(late)

    server.prompt(name="late")(lambda: "x")


# ---------------------------------------------------------------- the first of a kind


@live
async def test_what_came_later_is_there_for_whoever_judges_each_request(
    revision: Revision,
) -> None:
    server = Server("s", version="1")
    async with raw_client(server, revision) as client:
        for method, _ in FIRST:
            with pytest.raises(Rejected) as caught:
                await client.ask(method)
            assert caught.value.code == -32601
        grow(server)
        for method, member in FIRST:
            if revision.handshake:  # it was agreed that there is none
                with pytest.raises(Rejected) as caught:
                    await client.ask(method)
                assert caught.value.code == -32601
            else:
                assert len((await client.ask(method))[member]) == 1
        if not revision.handshake:
            found = (await client.ask("server/discover"))["capabilities"]
            assert {"tools", "resources", "prompts", "completions"} <= found.keys()
            assert await client.text("late") == "x"
    async with raw_client(server, revision) as client:  # and a new conversation finds it all
        for method, member in FIRST:
            assert len((await client.ask(method))[member]) == 1


@live
async def test_what_is_declared_is_there_from_the_start_and_its_first_is_told(
    revision: Revision,
) -> None:
    server = Server("s", version="1", declares=["tools", "resources", "prompts", "completions"])
    capabilities = server.identity.capabilities
    assert isinstance(capabilities, t.ServerCapabilities)
    assert capabilities.tools == t.ToolsCapability(list_changed=True)
    assert capabilities.completions == {}
    async with raw_client(server, revision) as client:
        for method, member in FIRST:
            assert (await client.ask(method))[member] == []
        with pytest.raises(Rejected, match="no tool"):
            await client.call("late")
        if not revision.handshake:
            wanted = {"toolsListChanged": True}
            client.send("subscriptions/listen", {"notifications": wanted})
            await client.until(
                lambda: client.notifications("notifications/subscriptions/acknowledged")
            )
        grow(server)
        await client.until(lambda: client.notifications("notifications/tools/list_changed"))
        for method, member in FIRST:
            assert len((await client.ask(method))[member]) == 1
        assert await client.text("late") == "x"


def test_only_a_kind_can_be_declared() -> None:
    with pytest.raises(LocalProtocolError, match=r"unknown kinds \['toolz'\]"):
        Server("s", declares=["toolz"])  # type: ignore[list-item]
    capabilities = Server("s", declares="tools").identity.capabilities  # type: ignore[arg-type]
    assert isinstance(capabilities, t.ServerCapabilities)
    assert capabilities.tools is not None


@live
async def test_the_author_is_told_once_that_connected_clients_do_not_see_it() -> None:
    def said() -> list[str]:
        return [text for text in lines if "declares" in text]

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("colonnade.server")
    logger.addHandler(handler)
    try:
        server = Server("s", version="1")
        server.tool(name="early")(lambda: "x")
        await server.start()
        server.tool(name="more")(lambda: "x")
        assert not said()
        server.prompt(name="first")(lambda: "x")
        server.prompt(name="second")(lambda: "x")
        await server.stop()
        (words,) = said()
        assert "Server(declares=['prompts'])" in words
        for quiet in (
            Server("s", version="1", declares=["prompts"]),
            Server("s", version="1", revisions=[JULY_2026.date]),
        ):
            await quiet.start()
            quiet.prompt(name="first")(lambda: "x")
            await quiet.stop()
        assert len(said()) == 1

        @asynccontextmanager
        async def plugins(server: Server) -> AsyncGenerator[None]:
            server.tool(name="plugin")(lambda: "x")
            yield

        loading = Server("s", version="1", lifespan=plugins)
        await loading.start()
        await loading.stop()
        assert len(said()) == 1
    finally:
        logger.removeHandler(handler)


@live
async def test_a_completion_that_is_added_later_is_declared_too() -> None:
    server = Server("s", version="1")
    outer = Server("outer", version="1")

    @server.prompt
    def pick(word: str) -> str:
        return word

    outer.mount(server, namespace="in")
    for one in (server, outer):
        before = one.identity.capabilities
        assert isinstance(before, t.ServerCapabilities)
        assert before.completions is None
    server.completion(pick, "word")(lambda prefix: ["a"])
    for one in (server, outer):
        after = one.identity.capabilities
        assert isinstance(after, t.ServerCapabilities)
        assert after.completions == {}
    params = {
        "ref": {"type": "ref/prompt", "name": "in_pick"},
        "argument": {"name": "word", "value": ""},
    }
    async with raw_client(outer, JULY_2026) as client:
        assert (await client.ask("completion/complete", params))["completion"]["values"] == ["a"]


@live
async def test_what_a_server_says_of_itself_can_change() -> None:
    server = Server("s", version="1", instructions="One.")
    assert server.identity is server.identity
    assert server.identity.instructions == "One."
    server.instructions = "Two."
    assert server.identity.instructions == "Two."


# ---------------------------------------------------------------- on real pipes and sockets


class Lines:
    """A client at the other end of two pipes."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = os.fdopen(reading, "rb", buffering=0)
        self._writing = os.fdopen(writing, "wb", buffering=0)
        self._reader = asyncio.StreamReader()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, self._reading)

    async def ask(self, message: JSON) -> JSON:
        self._writing.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(60):
            return json.loads(await self._reader.readline())

    def close(self) -> None:
        self._writing.close()
        self._transport.close()


def enveloped(method: str) -> JSON:
    meta = {
        "io.modelcontextprotocol/protocolVersion": JULY_2026.date,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta}}


@live
async def test_on_a_pipe_the_handshake_says_what_is_there_when_it_is_done() -> None:
    server = Server("s", version="1")
    await server.start()
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    serving = asyncio.ensure_future(serve_pipe(Pipe(our_in, our_out), server))
    client = Lines(their_in, their_out)
    await client.open()
    assert (await client.ask(enveloped("tools/list")))["error"]["code"] == -32601
    grow(server)
    assert len((await client.ask(enveloped("tools/list")))["result"]["tools"]) == 1
    params = {
        "protocolVersion": NOVEMBER_2025.date,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    opening = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": params}
    told = (await client.ask(opening))["result"]["capabilities"]
    assert told["tools"] == {"listChanged": True}
    listing = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
    assert len((await client.ask(listing))["result"]["tools"]) == 1
    client.close()
    await serving
    await server.stop()
    for descriptor in (our_in, our_out):
        os.close(descriptor)


@live
async def test_over_http_every_new_session_and_every_request_finds_what_is_there() -> None:
    server = Server("s", version="1")
    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as old, Caller(site.port) as new:
            before = await old.initialize(NOVEMBER_2025.date)
            assert "tools" not in before.json["result"]["capabilities"]
            grow(server)

            @server.tool
            async def loud(ctx: Context) -> str:
                await ctx.warning("fire")
                return "done"

            after = await new.initialize(NOVEMBER_2025.date)
            assert {"tools", "logging"} <= after.json["result"]["capabilities"].keys()
            assert len((await new.ask("tools/list")).json["result"]["tools"]) == 2
            assert (await old.ask("tools/list")).code == -32601
        async with Caller(site.port) as caller:
            found = await caller.modern("server/discover")
            assert {"tools", "logging"} <= found.json["result"]["capabilities"].keys()
            level = {"io.modelcontextprotocol/logLevel": "info"}
            wire, response = await caller.stream("tools/call", {"name": "loud"}, meta=level)
            said = await response.message()
            assert said["params"]["data"] == "fire"
            await response.message()
            wire.close()
    finally:
        await site.stop(0.0)


# ---------------------------------------------------------------- one server, served twice


@live
async def test_a_server_that_is_served_in_two_ways_is_left_by_the_last() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncGenerator[str]:
        events.append("enter")
        yield "state"
        events.append("leave")

    server = Server("s", version="1", lifespan=life)

    @server.tool
    def state(ctx: Context) -> str:
        return ctx.state

    sites = [HttpRunner(server.asgi(), port=0) for _ in range(2)]
    for site in sites:
        await site.start()
    assert events == ["enter"]
    await sites[0].stop(0.0)
    assert events == ["enter"]
    async with Caller(sites[1].port) as caller:
        assert (await caller.call("state")).text == "state"
    async with raw_client(server, JULY_2026) as client:
        assert await client.text("state") == "state"
    assert events == ["enter"]
    await sites[1].stop(0.0)
    assert events == ["enter", "leave"]
    await server.start()
    await server.stop()
    assert events == ["enter", "leave"] * 2


@live
async def test_a_mounted_server_is_left_when_all_that_it_is_mounted_in_are() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncGenerator[None]:
        events.append("enter")
        yield
        events.append("leave")

    inner = Server("inner", version="1", lifespan=life)
    outers = [Server(name, version="1") for name in ("one", "two")]
    for outer in outers:
        outer.mount(inner)
        await outer.start()
    await outers[0].stop()
    assert events == ["enter"]
    await outers[1].stop()
    assert events == ["enter", "leave"]


@live
async def test_a_server_with_a_lifespan_is_not_mounted_where_nobody_would_enter_it() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def life(server: Server) -> AsyncGenerator[None]:
        yield

    @asynccontextmanager
    async def mounting(server: Server) -> AsyncGenerator[None]:
        with pytest.raises(LocalProtocolError, match="mount it before"):
            server.mount(Server("early", lifespan=life))
        yield

    def shared() -> Generator[str]:
        yield "made"
        events.append("cleaned up")

    outer = Server("outer", version="1", lifespan=mounting)
    plain, lives, inside = Server("plain"), Server("lives", lifespan=life), Server("inside")
    inside.mount(lives)

    @plain.tool
    def use(it: Annotated[str, Depends(shared, scope="server")]) -> str:
        return it

    await outer.start()
    for one in (lives, inside):
        with pytest.raises(LocalProtocolError, match=r"has a lifespan.* mount it before"):
            outer.mount(one)
    outer.mount(plain)
    await lives.start()
    outer.mount(lives)  # which is entered already, and stays so for as long as it is needed
    await lives.stop()
    async with raw_client(outer, JULY_2026) as client:
        assert await client.text("use") == "made"
    await outer.stop()
    assert events == ["cleaned up"]


# ---------------------------------------------------------------- what clients tell


@live
async def test_changed_roots_are_taken_note_of_and_the_next_question_finds_them(
    revision: Revision,
) -> None:
    roots = ["file:///a"]
    server = Server("s", version="1")

    @server.tool
    async def folders(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in await ctx.roots())

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": [{"uri": uri} for uri in roots]}

    async with raw_client(server, revision, answer=answer) as client:
        assert await client.text("folders") == "file:///a"
        roots[:] = ["file:///b", "file:///c"]
        if revision.handshake:
            client.notify("notifications/roots/list_changed")
        assert await client.text("folders") == "file:///b file:///c"


# ---------------------------------------------------------------- what cannot be said


@pytest.mark.parametrize("data", [math.nan, {"a": [1, math.inf]}, object(), {"x": "\ud800"}])
@live
async def test_an_error_whose_data_json_cannot_hold_is_still_an_error(
    data: Any, revision: Revision
) -> None:
    async def strange(request: RequestContext, handler: Handler) -> t.ProtocolType:
        if request.exchange.params.name == "strange":
            raise Fault(FaultKind.INVALID_PARAMS, "no", data)
        return await handler(request)

    server = Server("s", version="1")
    server.add_middleware(strange)
    server.tool(name="hi")(lambda: "hi")
    async with raw_client(server, revision) as client:
        with pytest.raises(Rejected) as caught:
            await client.call("strange")
        assert caught.value.code == -32603
        assert caught.value.message.startswith("tools/call failed (id ")
        assert caught.value.data is None
        assert await client.text("hi") == "hi"


@pytest.mark.parametrize("data", [None, 0, "words", {"a": None, "b": 1.5}, [1, 2]])
@live
async def test_data_that_json_can_hold_goes_out_as_it_is(data: Any, revision: Revision) -> None:
    async def strange(request: RequestContext, handler: Handler) -> t.ProtocolType:
        raise Fault(FaultKind.INVALID_PARAMS, "no", data)

    server = Server("s", version="1")
    server.tool(name="hi")(lambda: "hi")
    server.add_middleware(strange)
    async with raw_client(server, revision) as client:
        with pytest.raises(Rejected) as caught:
            await client.call("hi")
        assert (caught.value.code, caught.value.data) == (-32602, data)


# ---------------------------------------------------------------- names in meta


@pytest.mark.spec("R0348")
def test_an_author_is_told_of_a_key_in_meta_that_breaks_the_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("s", version="1")
    with caplog.at_level(logging.WARNING, "colonnade.server"):
        server.tool(name="fine", meta={"example.com/a": 1, "plain": 2, "a.b/c-d_e": 3})(lambda: 1)
        assert not caplog.records
        server.tool(name="bad_tool", meta={"openai/toolInvocation/invoking": "…"})(lambda: 1)
        server.resource("a://a", name="bad_resource", meta={"_x": 1})(lambda: "x")
        server.prompt(name="bad_prompt", meta={"a..b/c": 1})(lambda: "x")
        for _ in range(3):
            ToolReturn("x", meta={"-": 1})
    said = [record.getMessage() for record in caplog.records]
    assert [words.partition(":")[0] for words in said] == [
        "bad_tool",
        "bad_resource",
        "bad_prompt",
        "ToolReturn",
    ]
    assert all("some clients refuse the key" in words for words in said)
    assert "'openai/toolInvocation/invoking'" in said[0]
