"""A server directly and through a gateway of the same revision: what a client gets differs only in
names, the `_meta` of the hop and ids, byte for byte."""

import json
import random
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

import official
from colonnade import (
    Client,
    Context,
    Gateway,
    Handler,
    Host,
    RequestContext,
    Server,
    ToolError,
    connect,
)
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.containment import MAX_TEXT
from colonnade.host.policy.rules.rules import Policy
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.store.memory import MemoryStore
from colonnade.transport.memory import connected_pair, serve_end
from gateway.odd_results import NEW, odd_list, odd_prompt_result, odd_read_result, odd_tool_result
from gateway.raw_server import REVISIONS, RawServer, members, raw_request
from gateway.recorded import INFO, RecordedWire, recorded, server_started
from gateway.served import served
from live import live
from official_lines import complaints
from script_runner import Message

OLD = "2025-11-25"
# Of each method, in each revision.
RESULTS = 100
ITEMS = 60

METHODS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
# By method: how a result is made, and the params directly and through the gateway.
REQUESTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "tools/call": (
        odd_tool_result,
        {"name": "odd", "arguments": Raw(b"{}")},
        {"name": "s__odd", "arguments": Raw(b"{}")},
    ),
    "prompts/get": (odd_prompt_result, {"name": "odd"}, {"name": "s__odd"}),
    "resources/read": (odd_read_result, {"uri": "odd://one"}, {"uri": "odd://one"}),
}
_items = msgspec.json.Decoder(list[Raw])


class Pair:
    """A client that is connected to a server, and one that is connected to a gateway in front of
    it."""

    def __init__(self, server: RawServer, direct: Client, through: Client) -> None:
        self.server = server
        self.direct = direct
        self.through = through


async def connected(
    stack: AsyncExitStack, downstream: str, upstream: str | None = None, **options: Any
) -> Pair:
    server, upstream = RawServer(), upstream or downstream
    host = await stack.enter_async_context(Host({"s": server.entry(upstream)}, **options))
    direct = await stack.enter_async_context(connect(server, revision=upstream))
    through = await stack.enter_async_context(connect(Gateway(host), revision=downstream))
    return Pair(server, direct, through)


def without_hop(found: dict[str, bytes]) -> dict[str, bytes]:
    """The members of a result, with those of `_meta` that do not belong to the hop."""
    raw = found.pop("_meta", b"{}")
    meta = members(Raw(raw))
    meta.pop(t.SERVER_INFO_KEY, None)
    return found | {f"_meta {name}": value for name, value in meta.items()}


def items(raw: Raw, member: str) -> list[dict[str, bytes]]:
    """The items of a list: the members of each, as they were written and in their order."""
    return [members(one) for one in _items.decode(members(raw)[member])]


def renamed(found: list[dict[str, bytes]], method: str) -> list[dict[str, bytes]]:
    """Items with the names that they have in a gateway."""
    if method not in ("tools/list", "prompts/list"):
        return found
    return [one | {"name": b'"s__' + one["name"][1:]} for one in found]


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_odd_results_are_the_same_through_a_gateway(revision: str, method: str) -> None:
    make, direct_params, params = REQUESTS[method]
    chance = random.Random(f"{revision} {method}")
    async with AsyncExitStack() as stack:
        pair = await connected(stack, revision)
        for _ in range(RESULTS):
            pair.server.result = make(chance, revision)
            expected = await raw_request(pair.direct, method, **direct_params)
            found = await raw_request(pair.through, method, **params)
            assert without_hop(members(found)) == without_hop(members(expected)), bytes(expected)


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_odd_results_of_a_server_at_a_url_are_the_same_through_a_gateway(
    revision: str,
) -> None:
    """The members of most of them are found when the response is decoded."""
    server, chance = RawServer(), random.Random(f"{revision} url")
    async with (
        served(server) as url,
        Host({"s": entry_of("s", url, Settings(revision=revision))}) as host,
        connect(url, revision=revision) as direct,
        connect(Gateway(host), revision=revision) as through,
    ):
        for method, (make, direct_params, params) in REQUESTS.items():
            for _ in range(RESULTS):
                server.result = make(chance, revision)
                expected = await raw_request(direct, method, **direct_params)
                found = await raw_request(through, method, **params)
                assert without_hop(members(found)) == without_hop(members(expected))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_odd_items_of_lists_are_the_same_through_a_gateway(
    revision: str, method: str
) -> None:
    chance = random.Random(f"{revision} {method}")
    async with AsyncExitStack() as stack:
        pair = await connected(stack, revision)
        member = METHODS[method]
        pair.server.lists[method] = odd_list(chance, method, member, revision, ITEMS)
        expected = items(await raw_request(pair.direct, method), member)
        found = items(await raw_request(pair.through, method), member)
        assert len(found) == ITEMS
        assert found == renamed(expected, method)
        assert [list(one) for one in found] == [list(one) for one in expected]  # in their order


@live
async def test_odd_items_are_the_same_in_pages_and_from_a_manifest() -> None:
    chance, store = random.Random(1), MemoryStore()
    server = RawServer()
    server.lists["tools/list"] = odd_list(chance, "tools/list", "tools", NEW, 5)
    async with connect(server, revision=NEW) as direct:
        expected = renamed(items(await raw_request(direct, "tools/list"), "tools"), "tools/list")
    for sessions in (1, 0):  # the second gateway asks no server
        async with Host({"s": server.entry(NEW)}) as host:
            gateway = Gateway(host, store=store, page_size=2, keys=[b"k" * 32])
            async with connect(gateway, revision=NEW) as client:
                found: list[dict[str, bytes]] = []
                cursor: str | None = None
                while True:
                    page = await raw_request(client, "tools/list", cursor=cursor)
                    found += items(page, "tools")
                    cursor = msgspec.json.decode(page).get("nextCursor")
                    if cursor is None:
                        break
                assert found == expected
                assert host.status()[0].sessions == sessions


@live
async def test_how_a_tool_runs_as_a_task_is_left_out_and_nothing_else() -> None:
    async with AsyncExitStack() as stack:
        pair = await connected(stack, OLD)
        tool = b'{"vendor":1.0,"name":"odd","execution":{"taskSupport":"optional"},"inputSchema":'
        pair.server.lists["tools/list"] = b'{"tools":[' + tool + b'{"type":"object"}}]}'
        (found,) = items(await raw_request(pair.through, "tools/list"), "tools")
        assert list(found) == ["vendor", "name", "inputSchema"]
        assert found["vendor"] == b"1.0"


# ---------------------------------------------------------------- a whole conversation


def everything() -> Server:
    server = Server("everything", page_size=100)

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.progress(1, 2, "half")
        await ctx.debug({"adding": [a, b]})
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("not today")

    @server.prompt
    def greet(who: str) -> str:
        return f"hello {who}"

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.completion(greet, "who")
    def names(typed: str) -> list[str]:
        return [f"{typed}!"]

    _ = add, fail, note, names
    return server


async def converse(client: Client, prefix: str) -> None:
    await client.set_log_level("debug")
    await client.list_tools()
    await client.call_tool(f"{prefix}add", {"a": 1, "b": 2})
    await client.call_tool(f"{prefix}fail")
    await client.list_prompts()
    await client.get_prompt(f"{prefix}greet", {"who": "Ada"})
    await client.complete("who", "A", prompt=f"{prefix}greet")
    await client.list_resources()
    await client.list_resource_templates()
    await client.read_resource("notes://a")
    await client.wait_for_callbacks()


def frames(wire: RecordedWire) -> list[tuple[Side, Any]]:
    """What was said after the handshake, without names, the `_meta` of the hop and ids."""
    opened = ("initialize", "server/discover")
    first = {f["id"] for _, f in wire.frames if f.get("method") in opened}
    found: list[tuple[Side, Any]] = []
    for side, frame in wire.frames:
        if frame.get("id") in first:
            continue
        text = json.dumps(frame).replace("s__", "")
        frame = json.loads(text)
        for place in ("params", "result"):
            meta = frame.get(place, {}).get("_meta", {})
            meta.pop(t.SERVER_INFO_KEY, None)
            if not meta:
                frame.get(place, {}).pop("_meta", None)
        found.append((side, frame))
    return found


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_a_recorded_conversation_is_the_same_through_a_gateway(revision: str) -> None:
    async with recorded(everything(), upstream=revision, downstream=revision) as cell:
        through = await cell.connect(on_log=lambda _: None, on_progress=lambda *_: None)
        await converse(through, "s__")
        server, wire = everything(), RecordedWire(cell.downstream)
        near, far = connected_pair(wire.add)
        serve_end(far, server)
        async with server_started(server):
            direct = Client(
                near.open_conversation,
                None,
                info=INFO,
                tasks=False,
                on_log=lambda _: None,
                on_progress=lambda *_: None,
            )
            await direct.open(cell.downstream)
            await converse(direct, "")
            await direct.close()
        assert frames(cell.client_wire) == frames(wire)
        cell.check()
        wire.check()


# ---------------------------------------------------------------- middleware and policies

ODD_TOOLS = (
    b'{"tools":['
    b'{"name":"a","inputSchema":{"type":"object"},"vendor":1e2},'
    b'{"name":"b","inputSchema":{"type":"object"},"vendor":1e2},'
    b'{"name":"c","inputSchema":{"type":"object"},"x":{"y":1,"y":2}},'
    b'{"name":"d","inputSchema":{"type":"object"},"vendor":1},'
    b'{"name":"d","inputSchema":{"type":"object"},"vendor":2}]}'
)


async def listed(stack: AsyncExitStack, tools: bytes, **options: Any) -> dict[str, bytes]:
    """The tools of a gateway as they were written, by name."""
    pair = await connected(stack, OLD, **options)
    pair.server.lists["tools/list"] = tools
    raw = members(await raw_request(pair.through, "tools/list"))["tools"]
    return {msgspec.json.decode(one)["name"]: bytes(one) for one in _items.decode(raw)}


@live
async def test_an_item_that_a_middleware_changes_is_encoded_and_the_others_pass() -> None:
    async def change(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if not isinstance(result, t.ListToolsResult):
            return result
        tools = [
            replace(tool, description="changed") if tool.name == "s__b" else tool
            for tool in result.tools
        ]
        return replace(result, tools=tools)

    async with AsyncExitStack() as stack:
        found = await listed(stack, ODD_TOOLS, middleware=[change])
    assert found["s__a"] == b'{"name":"s__a","inputSchema":{"type":"object"},"vendor":1e2}'
    assert b"changed" in found["s__b"]
    assert b"vendor" not in found["s__b"]
    # What two decoders could read differently is what the middleware has seen.
    assert found["s__c"] == b'{"name":"s__c","inputSchema":{"type":"object"}}'
    # Of two items with one name it is not known which of them was decoded.
    assert b"vendor" not in found["s__d"]


@live
async def test_what_no_middleware_has_looked_at_passes_with_its_duplicate_members() -> None:
    async with AsyncExitStack() as stack:
        found = await listed(stack, ODD_TOOLS)
    assert found["s__c"].endswith(b'"x":{"y":1,"y":2}}')


HIDDEN = (
    b'"vendor":"\\u202e"',
    b'"vendor":{"a":["\\u001b[31m"]}',
    b'"vendor":{"\\u200b":1}',
    '"vendor":"\u202e"'.encode(),
    b'"vendor":"\\r"',
    # A number that this program cannot hold: the rest is not looked at.
    b'"vendor":["\\u202e",1e999]',
)
SHOWN = (b'"vendor":"a\\n\\t\\"b\\u00e9"', '"vendor":"é😀"'.encode(), b'"vendor":1e2')


@pytest.mark.parametrize("vendor", [*HIDDEN, *SHOWN])
@live
async def test_hidden_text_does_not_pass_around_containment_in_members_that_no_type_has(
    vendor: bytes,
) -> None:
    tool = b'{"name":"odd","inputSchema":{"type":"object"},' + vendor + b"}"
    result = b'{"content":[{"type":"text","text":"one"}],' + vendor + b"}"
    async with AsyncExitStack() as stack:
        pair = await connected(stack, OLD, policy=Policy(default="allow"))
        pair.server.lists["tools/list"] = b'{"tools":[' + tool + b"]}"
        pair.server.result = result
        raw = members(await raw_request(pair.through, "tools/list"))["tools"]
        called = await raw_request(pair.through, "tools/call", **REQUESTS["tools/call"][2])
    is_shown = vendor in SHOWN
    assert (vendor in raw) == is_shown
    assert (b"vendor" in raw) == is_shown
    assert (vendor in bytes(called)) == is_shown
    assert (b"vendor" in bytes(called)) == is_shown
    assert b'"text":"one"' in bytes(called)


@live
async def test_hidden_text_passes_where_the_settings_say_that_it_is_not_contained() -> None:
    server = RawServer()
    tool = b'{"name":"odd","inputSchema":{"type":"object"},"vendor":"\\u202e"}'
    server.lists["tools/list"] = b'{"tools":[' + tool + b"]}"
    entry = entry_of("s", server, Settings(revision=OLD, contain="off"))
    async with (
        Host({"s": entry}, policy=Policy(default="allow")) as host,
        connect(Gateway(host), revision=OLD) as client,
    ):
        raw = members(await raw_request(client, "tools/list"))["tools"]
    assert b'"vendor":"\\u202e"' in raw


@live
async def test_a_list_that_was_read_before_there_were_rules_is_read_again() -> None:
    tool = b'{"name":"odd","description":"\\u202e","inputSchema":{"type":"object"},"vendor":1}'
    server = RawServer()
    server.lists["tools/list"] = b'{"tools":[' + tool + b"]}"
    entry = server.entry(OLD)
    async with Host({"s": entry}) as host, connect(Gateway(host), revision=OLD) as client:
        assert b'"vendor":1' in members(await raw_request(client, "tools/list"))["tools"]
        host._own_policy = Policy(default="allow")
        await host.reload({"s": entry})
        raw = members(await raw_request(client, "tools/list"))["tools"]
    assert b"vendor" not in raw
    assert b"\\u202e" not in raw.replace(b"\\\\u202e", b"")


@live
async def test_an_item_whose_text_is_contained_is_encoded() -> None:
    tool = b'{"name":"odd","description":"\\u202e","inputSchema":{"type":"object"},"vendor":1}'
    async with AsyncExitStack() as stack:
        found = await listed(stack, b'{"tools":[' + tool + b"]}", policy=Policy(default="allow"))
        long = tool.replace(b"\\u202e", b"x" * (MAX_TEXT + 1))
        cut = await listed(stack, b'{"tools":[' + long + b"]}", policy=Policy(default="allow"))
    assert b"vendor" not in found["s__odd"]
    assert b"\\u202e" not in found["s__odd"].replace(b"\\\\u202e", b"")
    assert b"vendor" not in cut["s__odd"]
    assert b"were cut" in cut["s__odd"]


# ---------------------------------------------------------------- other revisions

PAIRS = [(down, up) for down in REVISIONS for up in REVISIONS if down != up]


@pytest.mark.parametrize(("downstream", "upstream"), PAIRS)
@live
async def test_between_other_revisions_all_is_valid_in_that_of_the_client(
    downstream: str, upstream: str
) -> None:
    """Without the official schemas, only that it arrives is compared."""
    chance = random.Random(f"{downstream} {upstream}")
    async with AsyncExitStack() as stack:
        pair = await connected(stack, downstream, upstream)
        revision = pair.through.peer.revision

        def check(method: str, raw: Raw) -> None:
            frame = {"jsonrpc": "2.0", "id": 1, "result": msgspec.json.decode(raw)}
            if official.available():
                message = Message(Side.SERVER, frame, revision, method)
                assert complaints(message) == [], (method, frame)

        for method, member in METHODS.items():
            pair.server.lists[method] = odd_list(chance, method, member, upstream, 10)
            raw = await raw_request(pair.through, method)
            assert len(items(raw, member)) == 10
            check(method, raw)
        for method, (make, _, params) in REQUESTS.items():
            if method != "resources/read":
                params = params | {"name": "s__odd1"}
            else:
                params = {"uri": "odd://1"}
            for _ in range(5):
                pair.server.result = make(chance, upstream)
                check(method, await raw_request(pair.through, method, **params))
