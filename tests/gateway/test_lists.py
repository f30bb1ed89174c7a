"""Lists of a gateway: names, pages, cache hints, mirrored headers, and changes for those who see
them."""

import asyncio
import logging
import sys
from typing import Annotated, Any

import pytest
from msgspec import Meta
from msgspec.structs import replace

from colonnade import (
    Client,
    Context,
    Gateway,
    Handler,
    Host,
    Policy,
    RemoteError,
    RequestContext,
    Rule,
    Server,
    connect,
)
from colonnade.errors import InvalidArgument, LocalProtocolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.servers.naming import MIN_NAME_LIMIT, qualified_name
from colonnade.protocol import types as t
from colonnade.store.memory import MemoryStore
from gateway.raw_server import REVISIONS
from gateway.served import by_header, served
from http_client import Caller
from live import live, until

OLD, NEW = "2025-11-25", "2026-07-28"
KEY = b"k" * 32


def many(name: str, count: int, **options: Any) -> Server:
    server = Server(name, **options)
    for number in range(count):

        def one() -> str:
            return "1"

        server.tool(name=f"tool_{number:03}")(one)
        server.prompt(name=f"prompt_{number:03}")(one)
        server.resource(f"{name}://{number:03}")(one)

        def of(key: str) -> str:
            return key

        server.resource(f"{name}://{number:03}/{{key}}")(of)
    return server


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("limit", [MIN_NAME_LIMIT, 45, 64])
@pytest.mark.parametrize(
    ("namespace", "name"),
    [("s", "t"), ("s" * 32, "t" * 64), ("s" * 22, "t" * 21), ("é", "notes.read"), ("", "")],
)
def test_a_name_is_never_longer_than_its_limit(namespace: str, name: str, limit: int) -> None:
    qualified = qualified_name(namespace, name, limit)
    assert len(qualified) <= limit
    first, _, second = qualified.partition("__")
    assert first
    assert second


def test_two_long_names_differ_within_the_limit() -> None:
    names = {qualified_name("s" * 40 + end, "t" * 40 + end, 45) for end in "abc"}
    assert len(names) == 3


@live
async def test_a_long_name_has_room_for_the_prefix_of_a_client_and_is_called_by_it() -> None:
    server = Server("s")

    @server.tool(name="a_tool_with_a_very_long_name_that_says_everything")
    def long() -> str:
        return "called"

    _ = long
    async with Host({"a-server-with-a-long-name": server}) as host:
        gateway = Gateway(host)
        async with connect(gateway) as client:
            (tool,) = await client.list_tools()
            assert len(tool.name) <= 45
            assert (await client.call_tool(tool.name)).text == "called"
        with pytest.raises(LocalProtocolError, match="in use"):
            host.limit_names(64)


@pytest.mark.parametrize("limit", [MIN_NAME_LIMIT - 1, 65])
def test_a_name_limit_that_names_cannot_have_is_refused(limit: int) -> None:
    with pytest.raises(InvalidArgument, match="40 to 64"):
        Gateway(Host({}), name_limit=limit)


def test_a_page_has_at_least_one_item() -> None:
    with pytest.raises(InvalidArgument, match="page_size"):
        Gateway(Host({}), page_size=0)


# ---------------------------------------------------------------- pages


async def pages(client: Client, method: str) -> list[t.ProtocolType]:
    """All pages of a list, each as it was sent."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        params = t.PaginatedRequestParams(cursor=cursor)
        found.append(await client.ask(method, params))
        cursor = found[-1].next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_list_comes_in_pages_of_all_servers(revision: str) -> None:
    @live
    async def exercise() -> None:
        servers = {"a": many("a", 3), "b": many("b", 4)}
        async with (
            Host(servers) as host,
            connect(Gateway(host, page_size=3), revision=revision) as client,
        ):
            for method, field in [
                ("tools/list", "tools"),
                ("prompts/list", "prompts"),
                ("resources/list", "resources"),
                ("resources/templates/list", "resource_templates"),
            ]:
                found: list[list[Any]] = [
                    getattr(one, field) for one in await pages(client, method)
                ]
                assert [len(one) for one in found] == [3, 3, 1]
            assert [tool.name for tool in await client.list_tools()] == [
                *(f"a__tool_{n:03}" for n in range(3)),
                *(f"b__tool_{n:03}" for n in range(4)),
            ]

    exercise()


@live
async def test_a_cursor_is_read_by_every_replica_with_the_same_keys() -> None:
    servers = {"a": many("a", 4)}
    async with Host(servers) as host, Host(servers) as other:
        first = Gateway(host, page_size=2, keys=[KEY])
        second = Gateway(other, page_size=2, keys=[KEY])
        foreign = Gateway(host, page_size=2, keys=[b"x" * 32])
        async with connect(first) as one, connect(second) as two, connect(foreign) as three:
            page: Any = await one.ask("tools/list", t.PaginatedRequestParams())
            params = t.PaginatedRequestParams(cursor=page.next_cursor)
            rest: Any = await two.ask("tools/list", params)
            assert [tool.name for tool in rest.tools] == ["a__tool_002", "a__tool_003"]
            for client, method in [(three, "tools/list"), (two, "prompts/list")]:
                with pytest.raises(RemoteError, match="invalid cursor"):
                    await client.ask(method, params)
            for bad in ("", "x", "a" * 20_000, page.next_cursor[:-1]):
                with pytest.raises(RemoteError, match="invalid cursor"):
                    await one.ask("tools/list", t.PaginatedRequestParams(cursor=bad))


@live
async def test_a_cursor_of_one_principal_is_not_one_of_another() -> None:
    async with (
        Host({"a": many("a", 4)}) as host,
        served(Gateway(host, page_size=2), verify=by_header) as url,
        connect({"url": url, "headers": {"X-User": "ann"}}) as ann,
        connect({"url": url, "headers": {"X-User": "bob"}}) as bob,
    ):
        page: Any = await ann.ask("tools/list", t.PaginatedRequestParams())
        params = t.PaginatedRequestParams(cursor=page.next_cursor)
        second: Any = await ann.ask("tools/list", params)
        assert len(second.tools) == 2
        with pytest.raises(RemoteError, match="invalid cursor"):
            await bob.ask("tools/list", params)


@live
async def test_pages_go_on_after_the_last_item_when_the_list_changes() -> None:
    server = many("a", 6)
    async with Host({"a": server}) as host, connect(Gateway(host, page_size=2)) as client:
        first: Any = await client.ask("tools/list", t.PaginatedRequestParams())
        server.tools.remove("tool_000")
        await host.list_tools(fresh=True)
        params = t.PaginatedRequestParams(cursor=first.next_cursor)
        second: Any = await client.ask("tools/list", params)
        assert [tool.name for tool in second.tools] == ["a__tool_002", "a__tool_003"]
        server.tools.remove("tool_003")  # the last item of the page
        await host.list_tools(fresh=True)
        params = t.PaginatedRequestParams(cursor=second.next_cursor)
        third: Any = await client.ask("tools/list", params)
        assert {tool.name for tool in third.tools} <= {"a__tool_004", "a__tool_005"}


# ---------------------------------------------------------------- cache hints


def hinted(name: str, ttl_s: float | None, scope: t.CacheScope | None) -> Server:
    return many(name, 1, ttl_s=ttl_s, cache_scope=scope)


@pytest.mark.parametrize(
    ("one", "other", "ttl_ms", "scope"),
    [
        ((300.0, "public"), (60.0, "public"), 60_000, "public"),
        ((300.0, "public"), (60.0, "private"), 60_000, "private"),
        ((300.0, "public"), (None, None), 0, "private"),
    ],
)
def test_the_hints_of_a_list_are_those_of_its_parts(
    one: tuple[float, t.CacheScope],
    other: tuple[float | None, t.CacheScope | None],
    ttl_ms: int,
    scope: str,
) -> None:
    @live
    async def exercise() -> None:
        async with (
            Host({"a": hinted("a", *one), "b": hinted("b", *other)}) as host,
            connect(Gateway(host), revision=NEW) as client,
        ):
            page: Any = await client.ask("tools/list", t.PaginatedRequestParams())
            assert page.cache_scope == scope
            assert ttl_ms - 60_000 < page.ttl_ms <= ttl_ms

    exercise()


@live
async def test_a_list_of_an_older_server_may_change_at_any_time() -> None:
    old = entry_of("b", many("b", 1), Settings(revision=OLD))
    async with (
        Host({"a": hinted("a", 300.0, "public"), "b": old}) as host,
        connect(Gateway(host), revision=NEW) as client,
    ):
        page: Any = await client.ask("tools/list", t.PaginatedRequestParams())
        assert (page.ttl_ms, page.cache_scope) == (0, "private")


@live
async def test_a_list_that_a_middleware_may_filter_is_private() -> None:
    async def hide(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.ListToolsResult):
            return replace(result, tools=result.tools[1:])
        return result

    server = many("a", 2, ttl_s=300.0, cache_scope="public")
    async with (
        Host({"a": server}, middleware=[hide]) as host,
        connect(Gateway(host), revision=NEW) as client,
    ):
        page: Any = await client.ask("tools/list", t.PaginatedRequestParams())
        assert [tool.name for tool in page.tools] == ["a__tool_001"]
        assert page.cache_scope == "private"


# ---------------------------------------------------------------- mirrored headers


def mirrored() -> Server:
    server = Server("m")

    @server.tool
    def look(city: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "City"})]) -> str:
        return city

    _ = look
    return server


@pytest.mark.spec("R0902")
@live
async def test_mirrored_headers_are_checked_and_made_anew_for_the_server() -> None:
    async with (
        served(mirrored()) as upstream,
        Host({"m": upstream}) as host,
        served(Gateway(host)) as url,
    ):
        async with Caller(port_of(url)) as caller:
            # Before anything was listed, the tool is looked up for the check.
            missing = await caller.modern("tools/call", {**CALL, "arguments": {"city": "Oslo"}})
            assert missing.status == 400
            assert missing.json["error"]["code"] == -32020
            right = await caller.modern("tools/call", CALL, mcp_param_city="Oslo")
            assert right.json["result"]["content"][0]["text"] == "Oslo"
            wrong = await caller.modern("tools/call", CALL, mcp_param_city="Bergen")
            assert (wrong.status, wrong.json["error"]["code"]) == (400, -32020)
        async with connect(url, revision=NEW) as client:
            await client.list_tools()
            assert (await client.call_tool("m__look", {"city": "Tromsø"})).text == "Tromsø"
        async with connect(url, revision=OLD) as client:
            assert (await client.call_tool("m__look", {"city": "Oslo"})).text == "Oslo"
            with pytest.raises(RemoteError, match="no tool"):
                await client.call_tool("m__none")


@pytest.mark.spec("R0900")
@live
async def test_a_mirrored_header_that_no_tool_names_is_forwarded_and_changes_nothing() -> None:
    seen: list[dict[str, str]] = []
    server = Server("m", version="1")

    @server.tool
    def look(city: str, ctx: Context) -> str:
        seen.append({name: value for name, value in ctx.headers.items() if "param" in name})
        return city

    async with (
        served(server) as upstream,
        Host({"m": upstream}) as host,
        served(Gateway(host)) as url,
        Caller(port_of(url)) as caller,
    ):
        done = await caller.modern("tools/call", CALL, mcp_param_region="eu", mcp_param_city="Oslo")
        assert done.json["result"]["content"][0]["text"] == "Oslo"
        # In a revision without these headers they have no meaning, and are not passed on.
        async with connect(url, revision=OLD, headers={"X-Region": "eu"}) as client:
            await client.call_tool("m__look", {"city": "Oslo"})
    assert seen == [{"mcp-param-region": "eu", "mcp-param-city": "Oslo"}, {}]


@pytest.mark.spec("R0900")
@live
async def test_a_mirrored_header_that_a_tool_names_is_that_of_the_body() -> None:
    """A client cannot have the gateway send another value than the one that was checked."""
    async with (
        served(mirrored()) as upstream,
        Host({"m": upstream}) as host,
        served(Gateway(host)) as url,
        Caller(port_of(url)) as caller,
    ):
        done = await caller.modern("tools/call", CALL, mcp_param_city="Oslo", mcp_param_other="x")
        assert done.json["result"]["content"][0]["text"] == "Oslo"


@pytest.mark.spec("R0913")
@live
async def test_a_gateway_refuses_headers_that_differ_from_the_body_with_an_http_error() -> None:
    async with (
        served(mirrored()) as upstream,
        Host({"m": upstream}) as host,
        served(Gateway(host)) as url,
        Caller(port_of(url)) as caller,
    ):
        cases: list[dict[str, Any]] = [
            {"mcp_method": "tools/list"},
            {"mcp_name": "m__other"},
            {"mcp_param_city": "Bergen"},
            {"mcp_protocol_version": "2025-06-18"},
        ]
        for headers in cases:
            sent: dict[str, Any] = {"mcp_param_city": "Oslo", **headers}
            assert (await caller.modern("tools/call", CALL, **sent)).status == 400, headers


@pytest.mark.spec("R0914")
@live
async def test_a_rule_is_applied_to_the_body_whatever_the_headers_say() -> None:
    """No policy reads a mirrored header, so one that is not validated is never trusted."""
    policy = Policy([Rule("deny", tools="n__secret")], default="allow")
    server = Server("n", version="1")
    for name in ("open", "secret"):
        server.tool(name=name)(lambda: "done")
    async with (
        served(server) as upstream,
        Host({"n": upstream}, policy=policy) as host,
        served(Gateway(host)) as url,
        Caller(port_of(url)) as caller,
    ):
        body = {"name": "n__secret", "arguments": {}}
        assert (await caller.modern("tools/call", body, mcp_name="n__open")).status == 400
        await caller.initialize(OLD)
        denied = await caller.ask("tools/call", body, mcp_name="n__open", mcp_method="tools/call")
        assert b"done" not in denied.body, "a revision without these headers ignores them"
        body = {"name": "n__open", "arguments": {}}
        done = await caller.ask("tools/call", body, mcp_name="n__secret")
        assert done.json["result"]["content"][0]["text"] == "done"


CALL = {"name": "m__look", "arguments": {"city": "Oslo"}}


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


# ---------------------------------------------------------------- changes


@pytest.mark.parametrize("downstream", [OLD, NEW])
@pytest.mark.parametrize("upstream", [OLD, NEW])
def test_a_client_is_notified_when_a_list_of_a_server_changes(
    upstream: str, downstream: str
) -> None:
    @live
    async def exercise() -> None:
        server = many("a", 1)
        entry = entry_of("a", server, Settings(revision=upstream))
        async with (
            Host({"a": entry}) as host,
            connect(Gateway(host), revision=downstream) as client,
            client.listen(tools=True) as changes,
        ):
            assert len(await client.list_tools()) == 1
            await asyncio.sleep(0)

            def another() -> str:
                return "2"

            # The subscription of the host may still be on its way: change until it is heard.
            heard = asyncio.ensure_future(anext(aiter(changes)))
            number = 0
            while not heard.done():
                server.tool(name=f"another_{number}")(another)
                number += 1
                await asyncio.sleep(0.01)
            assert (await heard).kind == "tools"
            assert len(await client.list_tools(fresh=True)) > 1

    exercise()


@live
async def test_a_change_that_one_caller_sees_is_not_sent_to_another() -> None:
    """Sessions of an older server are of one caller each, and so are their lists."""
    server = many("a", 1)
    entry = entry_of("a", server, Settings(revision=OLD))
    async with Host({"a": entry}) as host:
        gateway = Gateway(host, store=MemoryStore())
        await gateway.start()
        heard: dict[str, list[str]] = {"ann": [], "bob": []}
        ends = [
            gateway.watch_changes(lambda method, _, who=who: heard[who].append(method), who)
            for who in heard
        ]
        await host.list_tools(caller="ann")
        # Of the session of one caller, as if its list alone had changed.
        hosted = host._runtime.generation.servers["a"]  # pyright: ignore[reportPrivateUsage]
        hosted._on_change("a", ("tools",), "ann")  # pyright: ignore[reportPrivateUsage]
        await until(lambda: bool(heard["ann"]))
        assert heard["bob"] == []
        hosted._on_change("a", ("tools",), None)  # pyright: ignore[reportPrivateUsage]
        await until(lambda: bool(heard["bob"]))
        for end in ends:
            end()
            end()  # harmless
        await gateway.stop()


@live
async def test_a_server_that_cannot_be_listed_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = Server("good")

    @good.tool
    def add(a: int, b: int) -> int:
        return a + b

    _ = add
    async with (
        Host({"bad": ["no-such-program-of-ours"], "good": good}) as host,
        connect(Gateway(host, views={"all": ["bad", "good"]}), revision=OLD) as client,
    ):
        for _ in range(3):
            tools = await client.list_tools(fresh=True)
            assert [tool.name for tool in tools] == ["good__add"]
    (record,) = [one for one in caplog.records if one.name == "colonnade.gateway"]
    assert "server 'bad' is left out of lists: cannot start server 'bad'" in record.getMessage()
    assert "no-such-program-of-ours" in record.getMessage()


DYING = "import sys; print('no database at db.internal', file=sys.stderr); sys.exit(3)"


@live
async def test_what_a_server_printed_that_does_not_start_is_logged_and_sent_to_no_remote_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Host({"bad": [sys.executable, "-c", DYING]}) as host:
        gateway = Gateway(host)
        async with served(gateway) as url, connect(url, revision=OLD) as client:
            assert await client.list_tools() == []
            for _ in range(2):
                result = await client.call_tool("bad__x")
                assert result.is_error
                assert "bad" in result.text
                assert "db.internal" not in result.text
            with pytest.raises(RemoteError) as error:
                await client.get_prompt("bad__x")
            assert "db.internal" not in str(error.value)
    records = [one for one in caplog.records if one.name == "colonnade.gateway"]
    said = [one for one in records if "no database at db.internal" in one.getMessage()]
    assert said
    assert {one.levelno for one in said} == {logging.WARNING}


@live
async def test_a_call_to_a_server_that_does_not_start_logs_what_it_printed_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Host({"bad": [sys.executable, "-c", DYING]}) as host:
        gateway = Gateway(host)
        async with served(gateway) as url, connect(url, revision=OLD) as client:
            for _ in range(3):
                assert (await client.call_tool("bad__x")).is_error
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    said = [one.getMessage() for one in warnings if "db.internal" in one.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("tools/call of '' failed: ")
