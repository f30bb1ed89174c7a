"""Results of servers pass through a gateway: unchanged between equal revisions, and encoded for the
revision of the client between others."""

import random
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade import Gateway, Handler, Host, Middleware, RequestContext, Server, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from colonnade.protocol.forwarded import RelayedToolResult
from gateway.raw_server import REVISIONS, RawServer, members, raw_call
from gateway.served import served
from live import Records, live

OLD, NEW = "2025-11-25", "2026-07-28"
TEXT = '{"type":"text","text":"one"}'


def odd_value(chance: random.Random, depth: int = 0) -> str:
    """A JSON value as no Python encoder would write it."""
    kinds = ["number", "huge", "string", "null", "array", "object"]
    match chance.choice(kinds if depth < 3 else kinds[:4]):
        case "number":
            return chance.choice(["0", "-0", "1.0", "1e3", "-2.50", "9007199254740993", "true"])
        case "huge":
            return str(chance.randrange(10**30)) + chance.choice(["", ".5", "e5"])
        case "string":
            return chance.choice(['"a"', '"\\u0061"', '"\\/"', '"é😀"', '""', '"\\u2028"'])
        case "null":
            return "null"
        case "array":
            items = [odd_value(chance, depth + 1) for _ in range(chance.randrange(3))]
            return "[" + chance.choice([",", " , "]).join(items) + "]"
        case _:
            names = [f'"k{n}": ' for n in range(chance.randrange(3))]
            return "{" + ",".join(name + odd_value(chance, depth + 1) for name in names) + "}"


def odd_result(chance: random.Random, revision: str) -> bytes:
    """A valid result of a tool with vendor members, unknown blocks and odd values."""
    blocks = [
        TEXT,
        '{"type":"text","text":"two","vendor":' + odd_value(chance) + "}",
        '{"type":"text","text":"three","annotations":{"priority":1.0,"x":'
        + odd_value(chance)
        + "}}",
        '{"type":"hologram","data":' + odd_value(chance) + "}",
        '{"type":"resource","resource":{"uri":"a:b","text":"","vendor":' + odd_value(chance) + "}}",
    ]
    chosen = chance.sample(blocks, chance.randrange(1, len(blocks)))
    found = ['"content":[' + ",".join(chosen) + "]"]
    if chance.random() < 0.7:
        structured = odd_value(chance) if revision == NEW else '{"value":' + odd_value(chance) + "}"
        found.append('"structuredContent": ' + structured)
    if chance.random() < 0.5:
        found.append('"com.example/vendor":' + odd_value(chance))
    if chance.random() < 0.5:
        found.append('"_meta":{"com.example/trace": ' + odd_value(chance) + "}")
    if chance.random() < 0.5:
        found.append('"isError":' + chance.choice(["true", "false"]))
    if revision == NEW:
        found.append('"resultType":"complete"')
    chance.shuffle(found)
    return ("{" + ",".join(found) + "}").encode()


def without_hop(found: dict[str, bytes]) -> dict[str, bytes]:
    """The members of a result, with those of `_meta` that do not belong to the hop."""
    raw = found.pop("_meta", b"{}")
    meta = members(Raw(raw))
    meta.pop(t.SERVER_INFO_KEY, None)
    return found | {f"_meta {name}": value for name, value in meta.items()}


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_hundred_odd_results_arrive_as_they_were_written(revision: str) -> None:
    @live
    async def exercise() -> None:
        chance, server = random.Random(revision), RawServer()
        async with (
            Host({"s": server.entry(revision)}) as host,
            connect(server, revision=revision) as direct,
            connect(Gateway(host), revision=revision) as client,
        ):
            for _ in range(100):
                server.result = odd_result(chance, revision)
                expected = without_hop(members(await raw_call(direct, "odd")))
                found = without_hop(members(await raw_call(client, "s__odd")))
                assert found == expected, server.result

    exercise()


HUGE = [b"1" * 5_000_000, b"1" * 4301, b"1e999"]


@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize("number", HUGE, ids=["5 million digits", "4301 digits", "1e999"])
def test_a_number_that_python_cannot_hold_is_an_error_of_its_server(
    number: bytes, revision: str
) -> None:
    async def read(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.CallToolResult):
            _ = result.structured_content
        return result

    @live
    async def exercise() -> None:
        server = RawServer()
        block = TEXT.encode()
        kind = b',"resultType":"complete"' if revision == NEW else b""
        server.result = b'{"content":[%b],"structuredContent":{"a":%b}%b}' % (block, number, kind)
        async with Host({"s": server.entry(revision)}) as host:
            host.add_middleware(read)
            async with connect(Gateway(host), revision=revision) as client:
                with Records("colonnade.gateway", "colonnade.server") as records:
                    result = await client.call_tool("s__odd")
                assert result.is_error
                assert "server 's'" in result.text
                assert "cannot be read" in result.text
                assert not any(line.startswith("ERROR") for line in records.lines)

    exercise()


@pytest.mark.parametrize("revision", REVISIONS)
def test_odd_results_are_the_same_through_a_middleware_that_reads_them(revision: str) -> None:
    async def read(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.CallToolResult):
            _ = result.structured_content, result.content
        return result

    @live
    async def exercise() -> None:
        chance, server = random.Random(revision), RawServer()
        async with (
            Host({"s": server.entry(revision)}, middleware=[read]) as host,
            connect(server, revision=revision) as direct,
            connect(Gateway(host), revision=revision) as client,
        ):
            for _ in range(20):
                server.result = odd_result(chance, revision)
                expected = without_hop(members(await raw_call(direct, "odd")))
                assert without_hop(members(await raw_call(client, "s__odd"))) == expected

    exercise()


@live
async def test_what_a_middleware_has_seen_is_what_the_client_decodes() -> None:
    """Of two members with one name the last was seen, so the first is not sent."""
    seen: list[Any] = []

    async def read(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.CallToolResult):
            seen.append(result.structured_content)
        return result

    server = RawServer()
    server.result = (
        b'{"resultType":"complete","content":[{"type":"text","text":"bad","text":"good"}],'
        b'"structuredContent":{"a":"bad","a":"good"}}'
    )
    async with (
        Host({"s": server.entry(NEW)}, middleware=[read]) as host,
        connect(Gateway(host), revision=NEW) as client,
    ):
        raw = await raw_call(client, "s__odd")
    assert seen == [{"a": "good"}]
    assert b"good" in bytes(raw)
    assert b"bad" not in members(raw)["content"]


@live
async def test_what_a_middleware_changes_is_what_the_client_gets() -> None:
    async def change(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.CallToolResult):
            return replace(result, structured_content={"changed": True})
        return result

    server = RawServer()
    server.result = b'{"content":[{"type":"text","text":"one"}],"structuredContent":5,"vendor":1}'
    for revision in (OLD, NEW):
        async with (
            Host({"s": server.entry(NEW)}, middleware=[change]) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            found = members(await raw_call(client, "s__odd"))
            assert msgspec.json.decode(found["structuredContent"]) == {"changed": True}
            assert "vendor" not in found


SCHEMA: dict[str, Any] = {"type": "array", "items": {"type": "number"}}


@pytest.mark.parametrize("downstream", REVISIONS)
def test_a_value_that_is_no_object_follows_the_revision_of_the_client(downstream: str) -> None:
    @live
    async def exercise() -> None:
        server = RawServer(SCHEMA)
        value = b"[1.0, 123456789012345678901234567890]"
        server.result = b'{"content":[],"structuredContent":%b,"resultType":"complete"}' % value
        async with (
            Host({"s": server.entry(NEW)}) as host,
            connect(Gateway(host), revision=downstream) as client,
        ):
            (tool,) = await client.list_tools()
            found = members(await raw_call(client, "s__odd"))
        if downstream == NEW:
            assert found["structuredContent"] == value
            assert tool.output_schema == SCHEMA
        elif downstream in ("2025-06-18", OLD):
            assert found["structuredContent"] == b'{"result":%b}' % value
            assert tool.output_schema is not None
            assert tool.output_schema["properties"] == {"result": SCHEMA}
        else:
            assert "structuredContent" not in found
            assert tool.output_schema is None
            assert b"123456789012345678901234567890" in found["content"]

    exercise()


@pytest.mark.parametrize("downstream", REVISIONS)
@pytest.mark.parametrize("upstream", REVISIONS)
def test_an_unknown_block_is_passed_on_to_its_own_revision_only(
    upstream: str, downstream: str
) -> None:
    @live
    async def exercise() -> None:
        server = RawServer()
        server.result = b'{"content":[{"type":"hologram","data":1.0}],"vendor":1}'
        async with (
            Host({"s": server.entry(upstream)}) as host,
            connect(Gateway(host), revision=downstream) as client,
        ):
            found = members(await raw_call(client, "s__odd"))
        same = upstream == downstream
        assert (found["content"] == b'[{"type":"hologram","data":1.0}]') == same
        assert ("vendor" in found) == same
        assert b"hologram" in found["content"]

    exercise()


@live
async def test_structured_content_is_not_decoded_unless_it_is_read() -> None:
    kept: list[t.ProtocolType] = []

    async def keep(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        kept.append(await call_next(request))
        return kept[-1]

    server = RawServer()
    server.result = b'{"content":[],"structuredContent":[1, 2.50]}'
    async with (
        Host({"s": server.entry(NEW)}, middleware=[keep]) as host,
        connect(Gateway(host), revision=NEW) as client,
    ):
        _ = await raw_call(client, "s__odd")
    (result,) = [one for one in kept if isinstance(one, RelayedToolResult)]
    assert result.structured_content == [1, 2.5]
    assert isinstance(result.plain.structured_content, Raw)
    assert replace(result, is_error=True).structured_content == [1, 2.5]
    empty = replace(result, structured_content=t.ABSENT)
    assert empty.structured_content is msgspec.UNSET
    assert empty.plain.structured_content is msgspec.UNSET


async def pass_all(request: RequestContext, call_next: Handler) -> t.ProtocolType:
    return await call_next(request)


# What reads a result beside the client: a middleware, and the encoder for another revision.
READ = {
    "by the client alone": ([], NEW, NEW, False),
    "by the client alone, in a session": ([], OLD, OLD, False),
    "by a middleware": ([pass_all], NEW, NEW, True),
    "for an older client": ([], OLD, NEW, True),
    "for a newer client": ([], NEW, OLD, True),
}


@pytest.mark.parametrize("case", READ.values(), ids=READ)
@live
async def test_content_is_checked_only_if_something_beside_the_client_reads_it(
    case: tuple[list[Middleware], str, str, bool],
) -> None:
    middleware, downstream, upstream, is_read = case
    server = RawServer()
    block = b'[{"type":"text"}]'  # which has no text
    async with (
        served(server) as url,
        Host({"s": entry_of("s", url, Settings(revision=upstream))}, middleware=middleware) as host,
        connect(Gateway(host), revision=downstream) as client,
    ):
        server.result = b'{"content":%b}' % block
        found = members(await raw_call(client, "s__odd"))
        server.result = b'{"content":[{"type":"text","text":"good"}]}'
        good = members(await raw_call(client, "s__odd"))
    assert (found["content"] == block) == (not is_read)
    assert (found.get("isError") == b"true") == is_read
    assert (b"server 's'" in found["content"]) == is_read
    assert good["content"] == b'[{"type":"text","text":"good"}]'


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_resource_and_a_prompt_arrive_as_they_were_written(revision: str) -> None:
    @live
    async def exercise() -> None:
        server = RawServer()
        async with (
            Host({"s": server.entry(revision)}) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            server.result = b'{"contents":[{"uri":"odd://one","text":"1","vendor":1.0}],"x":2e1}'
            params: t.RequestParams = t.ReadResourceRequestParams(uri="odd://one")
            read = members(await client.conversation.request("resources/read", params, 30.0))
            assert read["contents"] == b'[{"uri":"odd://one","text":"1","vendor":1.0}]'
            assert read["x"] == b"2e1"
            assert (read.get("cacheScope") == b'"private"') == (revision == NEW)
            assert (read.get("ttlMs") == b"0") == (revision == NEW)
            server.result = b'{"messages":[],"description":"d","x":2e1}'
            params = t.GetPromptRequestParams(name="s__odd")
            got = members(await client.conversation.request("prompts/get", params, 30.0))
            assert (got["messages"], got["x"]) == (b"[]", b"2e1")

    exercise()


@live
async def test_a_result_says_that_it_comes_from_the_gateway() -> None:
    server = Server("inner")

    @server.tool
    def one() -> str:
        return "1"

    _ = one
    async with (
        Host({"s": server}) as host,
        connect(Gateway(host, name="outer"), revision=NEW) as client,
    ):
        meta = members(Raw(members(await raw_call(client, "s__one"))["_meta"]))
        assert msgspec.json.decode(meta[t.SERVER_INFO_KEY])["name"] == "outer"
