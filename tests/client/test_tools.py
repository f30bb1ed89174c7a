"""What a client knows of tools from their lists: what they give is checked, what is mirrored is sent
along, and what cannot be is left out."""

import asyncio
import json
from typing import Any

import pytest

from client.scripted_server import (
    ALL_OF_IT,
    JSON,
    Refusal,
    Replies,
    ScriptedServer,
    ScriptedTransport,
    connected_client,
    scripted_server,
)
from client.shop import site
from colonnade import Host, Server, connect
from colonnade.client import client as client_module
from colonnade.errors import ChannelError, RemoteError, RemoteProtocolError, ToolError
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import ALL, NEWEST, OutputRoot, Revision
from colonnade.transport.memory import connected_pair
from live import Records, live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    http_response,
    scripted_http_server,
)

KEPT: JSON = {"ttlMs": 0, "cacheScope": "private"}
WITH_OUTPUT = pytest.mark.parametrize(
    "revision",
    [one for one in ALL if one.output_root is not OutputRoot.NONE],
    ids=lambda one: one.date,
)
OUTPUT: JSON = {
    "type": "object",
    "properties": {"degrees": {"type": "integer"}},
    "required": ["degrees"],
}


def listed(*tools: JSON) -> JSON:
    return KEPT | {"tools": list(tools)}


def tool(name: str, properties: JSON | None = None, output: JSON | None = None) -> JSON:
    made: JSON = {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}}
    return made | ({"outputSchema": output} if output is not None else {})


def gave(**more: Any) -> JSON:
    return {"content": [{"type": "text", "text": "seven"}], **more}


# ---------------------------------------------------------------- what they give


@pytest.mark.spec("R0378")
@WITH_OUTPUT
@live
async def test_structured_content_is_checked_against_what_the_list_promised(
    revision: Revision,
) -> None:
    answers: list[JSON] = [
        gave(structuredContent={"degrees": 7}),
        gave(structuredContent={"degrees": "seven"}),
        gave(),
        gave(isError=True),
    ]
    replies = {
        "tools/list": lambda params: listed(tool("forecast", output=OUTPUT)),
        "tools/call": lambda params: answers.pop(0),
    }
    async with scripted_server(revision, replies) as (client, _):
        await client.list_tools()
        assert (await client.call_tool("forecast")).data == {"degrees": 7}
        wrong = await client.call_tool("forecast")
        assert wrong.text == "seven"
        with pytest.raises(
            RemoteProtocolError, match=r"forecast returned data outside its output.*degrees"
        ):
            _ = wrong.data
        nothing = await client.call_tool("forecast")
        assert nothing.text == "seven"
        with pytest.raises(RemoteProtocolError, match="returned no structured content"):
            _ = nothing.data
        failed = await client.call_tool("forecast")
        with pytest.raises(ToolError, match="seven"):
            _ = failed.data


STRING: JSON = {"type": "string"}
WRAPPED_STRING: JSON = {"type": "object", "properties": {"result": STRING}, "required": ["result"]}


@WITH_OUTPUT
@pytest.mark.parametrize("output", [STRING, WRAPPED_STRING], ids=["bare", "wrapped"])
@live
async def test_a_string_without_the_schema_that_was_listed_before_is_its_text(
    revision: Revision, output: JSON
) -> None:
    replies = {
        "tools/list": lambda params: listed(tool("forecast", output=output)),
        "tools/call": lambda params: gave(),
    }
    async with scripted_server(revision, replies) as (client, _):
        await client.list_tools()
        assert (await client.call_tool("forecast")).data == "seven"


@WITH_OUTPUT
@live
async def test_a_value_is_checked_whether_or_not_the_tools_were_listed_before(
    revision: Revision,
) -> None:
    """This used to be a test that without a list nothing is checked."""
    replies = {
        "tools/list": lambda params: listed(tool("forecast", output=OUTPUT)),
        "tools/call": lambda params: gave(structuredContent={"degrees": "seven"}),
    }
    async with scripted_server(revision, replies) as (client, server):
        both = await asyncio.gather(*(client.call_tool("forecast") for _ in range(2)))
        for wrong in (*both, await client.call_tool("forecast")):
            with pytest.raises(
                RemoteProtocolError, match=r"forecast returned data outside its output"
            ):
                _ = wrong.data
        assert len(server.requests("tools/list")) == 1


@WITH_OUTPUT
@live
async def test_a_host_checks_a_value_whether_or_not_the_tools_were_listed_before(
    revision: Revision,
) -> None:
    replies = {
        "tools/list": lambda params: listed(tool("forecast", output=OUTPUT)),
        "tools/call": lambda params: gave(structuredContent={"degrees": "seven"}),
    }
    near, far = connected_pair()
    server = ScriptedServer(far, revision, replies, ALL_OF_IT)
    far.join(server)

    async def resolve() -> object:
        return near

    settings = Settings(revision=revision.date)
    entry = ServerEntry(key="w", resolve=resolve, fingerprint="w", settings=settings)
    async with Host({"w": entry}) as host:
        wrong = await host.call_tool("w__forecast")
        with pytest.raises(RemoteProtocolError, match=r"forecast returned data outside its output"):
            _ = wrong.data
        assert len(server.requests("tools/list")) == 1


@pytest.mark.parametrize("said", [{}, {"isError": True, "structuredContent": {"why": 1}}])
@WITH_OUTPUT
@live
async def test_tools_are_not_listed_for_a_result_that_has_nothing_to_check(
    revision: Revision, said: JSON
) -> None:
    replies = {"tools/call": lambda params: gave(**said)}
    async with scripted_server(revision, replies) as (client, server):
        await client.call_tool("forecast")
        assert server.requests("tools/list") == []


@WITH_OUTPUT
@live
async def test_a_server_that_does_not_list_its_tools_is_not_waited_for_long(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SCHEMAS_S", 0.01)
    replies: Replies = {
        "tools/list": lambda params: None,
        "tools/call": lambda params: gave(structuredContent={"degrees": 7}),
    }
    async with scripted_server(revision, replies) as (client, server):
        assert (await client.call_tool("forecast")).data == {"degrees": 7}
        assert (await client.call_tool("forecast")).data == {"degrees": 7}
        assert len(server.requests("tools/list")) == 1


@WITH_OUTPUT
@live
async def test_a_change_of_the_list_or_another_server_takes_back_what_it_promised(
    revision: Revision,
) -> None:
    transport = ScriptedTransport(revision)
    transport.replies = {
        "tools/list": lambda params: listed(tool("forecast", output=OUTPUT)),
        "tools/call": lambda params: gave(structuredContent={"degrees": "seven"}),
        "subscriptions/listen": lambda params: None,
    }
    async with connected_client(transport) as client:
        await client.list_tools()
        if revision.handshake:
            transport.server.notify("notifications/tools/list_changed")
        else:
            transport.drop()
            await until(lambda: client.conversation.link.phase is Phase.CLOSED)
        await client.ping()
        transport.server.replies = {
            **transport.replies,
            "tools/list": lambda params: listed(tool("forecast")),
        }
        assert (await client.call_tool("forecast")).data == {"degrees": "seven"}


BY_SDK: JSON = {
    "type": "object",
    "properties": {"result": {"type": "integer", "title": "Result"}},
    "required": ["result"],
}
UNTITLED: JSON = {**BY_SDK, "properties": {"result": {"type": "integer"}}}
MARKED: JSON = {**UNTITLED, "x-fastmcp-wrap-result": True}


@pytest.mark.parametrize("lists_first", [True, False])
@pytest.mark.parametrize(
    ("output", "meta", "needed", "bare"),
    [
        pytest.param({**BY_SDK, "title": "addOutput"}, {}, 5, 5, id="sdk"),
        pytest.param({**BY_SDK, "title": "Sum"}, {}, {"result": 5}, {"result": 5}, id="class"),
        pytest.param(MARKED, {}, 5, 5, id="marked"),
        pytest.param(None, {"fastmcp": {"wrap_result": True}}, 5, 5, id="marked itself"),
        pytest.param(UNTITLED, {}, 5, {"result": 5}, id="untitled"),
        pytest.param(None, {}, 5, {"result": 5}, id="no schema"),
        pytest.param({"type": "object"}, {}, {"result": 5}, {"result": 5}, id="any object"),
    ],
)
@WITH_OUTPUT
@live
async def test_a_wrapper_is_taken_off_where_it_is_one(
    revision: Revision, output: JSON | None, meta: JSON, needed: Any, bare: Any, lists_first: bool
) -> None:
    """Where any value may be a result, an object with a `result` in it is an object."""
    replies = {
        "tools/list": lambda params: listed(tool("add", output=output)),
        "tools/call": lambda params: gave(structuredContent={"result": 5}, _meta=meta),
    }
    async with scripted_server(revision, replies) as (client, server):
        if lists_first:
            await client.list_tools()
        any_value = revision.output_root is OutputRoot.ANY
        for _ in range(2):
            found = (await client.call_tool("add")).data
            assert found == (bare if any_value else needed)
        assert len(server.requests("tools/list")) == 1


@WITH_OUTPUT
@live
async def test_where_the_list_cannot_be_read_a_result_is_there_all_the_same(
    revision: Revision,
) -> None:
    def no(params: JSON) -> JSON:
        raise Refusal(-32603, "not today")

    replies = {"tools/list": no, "tools/call": lambda params: gave(structuredContent={"result": 5})}
    async with scripted_server(revision, replies) as (client, _):
        found = (await client.call_tool("add")).data
        assert found == ({"result": 5} if revision.output_root is OutputRoot.ANY else 5)


@WITH_OUTPUT
@live
async def test_a_list_that_a_notification_has_overtaken_promises_nothing(
    revision: Revision,
) -> None:
    """Somebody has changed it since: what it said of a tool is not held against the server."""
    transport = ScriptedTransport(revision)

    def late(params: JSON) -> JSON:
        if revision.handshake:
            transport.server.notify("notifications/tools/list_changed")
        else:
            meta = {"io.modelcontextprotocol/subscriptionId": 2}
            transport.server.notify("notifications/tools/list_changed", {"_meta": meta})
        return listed(tool("forecast", output=OUTPUT))

    def listen(params: JSON) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": 2}
        told = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        transport.server.notify("notifications/subscriptions/acknowledged", told)

    transport.replies = {
        "tools/list": late,
        "tools/call": lambda params: gave(structuredContent={"degrees": "seven"}),
        "subscriptions/listen": listen,
    }
    async with connected_client(transport) as client, client.listen(tools=True):
        (listed_tool,) = await client.list_tools()
        assert listed_tool.name == "forecast"
        assert (await client.call_tool("forecast")).data == {"degrees": "seven"}


@WITH_OUTPUT
@live
async def test_a_schema_that_cannot_be_used_is_said_once_and_checks_nothing(
    revision: Revision,
) -> None:
    broken = {"type": "object", "properties": {"a": {"$ref": "https://elsewhere/schema"}}}
    replies = {
        "tools/list": lambda params: listed(tool("forecast", output=broken)),
        "tools/call": lambda params: gave(structuredContent={"a": 1}),
    }
    async with scripted_server(revision, replies) as (client, _):
        with Records("colonnade.client") as log:
            assert len(await client.list_tools()) == 1
            for _ in range(2):
                assert (await client.call_tool("forecast")).data == {"a": 1}
        assert len(log.lines) == 1
        assert "the output of 'forecast' is not validated" in log.lines[0]


@live
async def test_what_our_own_servers_give_fits_in_every_revision(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def number() -> int:
        return 5

    @server.tool
    def numbers() -> list[int]:
        return [1, 2]

    async with connect(server, revision=revision.date) as client:
        await client.list_tools()
        assert (await client.call_tool("number", returns=int)).data == 5
        assert (await client.call_tool("numbers", returns=list[int])).data == [1, 2]


# ---------------------------------------------------------------- what is mirrored

REGION: JSON = {"region": {"type": "string", "x-mcp-header": "Region"}}
BAD: JSON = {"region": {"type": "number", "x-mcp-header": "Region"}}


class HttpRunner:
    """A modern server that wants what its tool says mirrored, and checks that it is."""

    def __init__(self, *tools: JSON) -> None:
        self.tools = list(tools)
        self.header: str | None = "mcp-param-region"
        self.heard: list[ReceivedRequest] = []

    async def handler(self, connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            self.heard.append(request)
            await connection.send(self.answer(request))

    def answer(self, request: ReceivedRequest) -> bytes:
        message = request.message
        method = message["method"]
        if method == "server/discover":
            said: JSON = KEPT | {"supportedVersions": [NEWEST.date], "capabilities": {"tools": {}}}
        elif method == "tools/list":
            said = listed(*self.tools)
        elif self.header is not None and self.header not in request.headers:
            error = {"code": -32020, "message": "Header mismatch"}
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            return http_response(400, json.dumps(reply).encode())
        else:
            said = gave()
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete"} | said}
        return http_response(200, json.dumps(reply).encode())

    def calls(self) -> list[ReceivedRequest]:
        return [one for one in self.heard if one.message["method"] == "tools/call"]


@pytest.mark.spec("R0887")
@live
async def test_arguments_that_the_list_wants_mirrored_are_sent_as_headers() -> None:
    here = HttpRunner(tool("query", REGION))
    async with scripted_http_server(here.handler) as server, connect(server.url) as client:
        await client.list_tools()
        assert (await client.call_tool("query", {"region": "Ålesund"})).text == "seven"
        here.header = None
        await client.call_tool("query", {"region": None})
        await client.call_tool("query", {})
    first, second, third = here.calls()
    assert first.headers["mcp-param-region"] == "=?base64?w4VsZXN1bmQ=?="
    assert "mcp-param-region" not in second.headers
    assert "mcp-param-region" not in third.headers


@pytest.mark.spec("R0899")
@live
async def test_a_mismatch_is_answered_by_one_look_at_the_list_and_one_more_try() -> None:
    here = HttpRunner(tool("query", REGION))
    async with scripted_http_server(here.handler) as server, connect(server.url) as client:
        assert (await client.call_tool("query", {"region": "eu"})).text == "seven"
        assert [one.message["method"] for one in here.heard[1:]] == [
            "tools/call",
            "tools/list",
            "tools/call",
        ]
        here.tools = [tool("query", {"region": {"type": "string", "x-mcp-header": "Area"}})]
        here.header = "mcp-param-area"
        assert (await client.call_tool("query", {"region": "eu"})).text == "seven"
        before = len(here.heard)
        here.header = "mcp-param-else"
        with pytest.raises(RemoteError, match="Header mismatch"):
            await client.call_tool("query", {"region": "eu"})
        assert len(here.heard) == before + 2, "where nothing changed it is not tried again"


@live
async def test_a_call_that_was_refused_certainly_had_no_effect() -> None:
    class Silent(HttpRunner):
        def answer(self, request: ReceivedRequest) -> bytes:
            listing = request.message["method"] == "tools/list"
            return http_response(503, b"") if listing else super().answer(request)

    async with scripted_http_server(Silent().handler) as server, connect(server.url) as client:
        with pytest.raises(ChannelError) as raised:
            await client.call_tool("query", {"region": "eu"})
        assert "503" in str(raised.value)
        assert "effect" not in str(raised.value), "the list was not read; the tool never ran"


@pytest.mark.spec("R0884", "R0885", "R0992", "R0993")
@live
async def test_a_tool_with_an_invalid_header_is_left_out_with_a_warning() -> None:
    here = HttpRunner(tool("good", REGION), tool("bad", BAD), tool("plain"))
    async with (
        scripted_http_server(here.handler) as server,
        connect(server.url, server_name="shop") as client,
    ):
        with Records("colonnade.client") as log:
            assert [one.name for one in await client.list_tools()] == ["good", "plain"]
        (line,) = log.lines
        assert line.startswith("WARNING server 'shop': the tool 'bad' is left out: x-mcp-header")


@pytest.mark.spec("R0876", "R0881")
@live
async def test_a_tool_whose_header_no_request_could_have_is_left_out() -> None:
    mirrored: JSON = {"type": "string", "x-mcp-header": "Region"}
    here = HttpRunner(
        tool("good", REGION),
        tool("no_token", {"region": {"type": "string", "x-mcp-header": "My Region"}}),
        tool("in_a_list", {"regions": {"type": "array", "items": mirrored}}),
    )
    async with scripted_http_server(here.handler) as server, connect(server.url) as client:
        assert [one.name for one in await client.list_tools()] == ["good"]


@live
async def test_where_there_are_no_headers_nothing_is_left_out(revision: Revision) -> None:
    replies = {"tools/list": lambda params: listed(tool("bad", BAD))}
    async with scripted_server(revision, replies) as (client, _):
        assert [one.name for one in await client.list_tools()] == ["bad"]


@pytest.mark.parametrize(
    "revision", [one for one in ALL if one.http.sessions], ids=lambda one: one.date
)
@live
async def test_older_revisions_have_no_such_headers_even_over_http(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def one() -> str:
        return "1"

    async with (
        site(server) as here,
        connect(f"http://127.0.0.1:{here.port}/mcp", revision=revision.date) as client,
    ):
        assert len(await client.list_tools()) == 1
        assert (await client.call_tool("one")).text == "1"


# ---------------------------------------------------------------- a tool that cannot be read


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_a_tool_that_cannot_be_read_is_left_out_with_a_word_and_the_others_stay(
    revision: Revision,
) -> None:
    bad: JSON = {"name": "bad", "inputSchema": "none"}
    replies = {"tools/list": lambda params: listed(tool("look"), bad, tool("see"))}
    with Records("colonnade.client") as request:
        async with scripted_server(revision, replies) as (client, _):
            assert [one.name for one in await client.list_tools()] == ["look", "see"]
        (said,) = request.lines
    assert "skipped an item of tools/list: Tool, at `inputSchema`: expected" in said


@live
async def test_of_many_tools_that_cannot_be_read_only_some_are_named() -> None:
    bad = [tool("look"), *({"name": f"bad{number}"} for number in range(100))]
    replies = {"tools/list": lambda params: listed(*bad)}
    with Records("colonnade.client") as request:
        async with scripted_server(NEWEST, replies) as (client, _):
            assert [one.name for one in await client.list_tools()] == ["look"]
    assert len(request.lines) == 11
    assert request.lines[-1].endswith("skipped 100 items of tools/list")
