"""Server information, dependencies, middleware, mounts, `list_changed`, lists."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from colonnade import Context, Depends, Extension, Icon, Server
from colonnade.errors import Fault, FaultKind
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.revision import ChangeNotifications, Revision
from colonnade.testing import connect
from features.feature import JSON, WORKS, Group, Verdict, fallback, refusal, refused, tried
from server.raw_client import Client, Rejected, raw_client, text_content

COMPOSITION = Group("Server, capabilities, lists and pagination")
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"


async def names(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]


async def introduced(server: Server, revision: Revision) -> tuple[JSON, JSON]:
    """The result of the handshake or `server/discover`, and `serverInfo`."""
    async with raw_client(server, revision) as client:
        if revision.handshake:
            first = client.received[0]["result"]
            return first, first["serverInfo"]
        first = await client.ask("server/discover")
        return first, first["_meta"]["io.modelcontextprotocol/serverInfo"]


# ---------------------------------------------------------------- the server


@COMPOSITION.feature("server name, version and instructions", WORKS)
async def identity(revision: Revision) -> Verdict:
    server = Server("weather", version="2.1", instructions="Ask for a city.")
    first, info = await introduced(server, revision)
    assert first["instructions"] == "Ask for a city."
    assert (info["name"], info["version"]) == ("weather", "2.1")
    return WORKS


@COMPOSITION.feature(
    "server title, description, website URL and icons",
    *2 * [fallback("name and version only")],
    fallback("name, version, title"),
    *2 * [WORKS],
)
async def introduction(revision: Revision) -> Verdict:
    server = Server(
        "weather",
        title="Weather",
        description="All the weather",
        website_url="https://example.com",
        icons=[Icon(src="https://example.com/i.png")],
    )
    _, info = await introduced(server, revision)
    if info.keys() == {"name", "version"}:
        return fallback("name and version only")
    assert info["title"] == "Weather"
    if info.keys() == {"name", "version", "title"}:
        return fallback("name, version, title")
    assert info["description"] == "All the weather"
    assert info["websiteUrl"] == "https://example.com"
    assert info["icons"] == [{"src": "https://example.com/i.png"}]
    return WORKS


@COMPOSITION.feature("capabilities that are not declared", refused(-32601))
async def undeclared(revision: Revision) -> Verdict:
    server = Server("s")
    server.tool(name="a")(lambda: "x")
    first, _ = await introduced(server, revision)
    assert first["capabilities"] == {"tools": {"listChanged": True}}
    async with raw_client(server, revision) as client:
        seen = {
            await refusal(client.ask(method))
            for method in ("prompts/list", "resources/list", "resources/templates/list")
        }
        seen.add(await refusal(client.ask("prompts/get", {"name": "x"})))
        seen.add(await refusal(client.ask("resources/read", {"uri": "a://b"})))
    (verdict,) = seen
    return verdict


@COMPOSITION.feature("lifespan: startup once, state for handlers, shutdown", WORKS)
async def lifespan(revision: Revision) -> Verdict:
    did: list[str] = []

    @asynccontextmanager
    async def open_db(server: Server) -> AsyncGenerator[str]:
        did.append("enter")
        yield "the database"
        did.append("leave")

    server = Server("s", lifespan=open_db)

    @server.tool
    async def show(ctx: Context) -> str:
        return str(ctx.state)

    async with raw_client(server, revision) as client:
        assert await client.text("show") == "the database"
        assert await client.text("show") == "the database"
        assert did == ["enter"]
    assert did == ["enter", "leave"]
    return WORKS


# ---------------------------------------------------------------- dependencies and middleware


@COMPOSITION.feature("dependency injection, with clean-up after each call", WORKS)
async def dependencies(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    async def connection() -> AsyncGenerator[str]:
        did.append("open")
        yield "connection"
        did.append("close")

    def user(db: Annotated[str, Depends(connection)]) -> Generator[str]:
        did.append("log in")
        yield f"ann of {db}"
        did.append("log out")

    @server.tool
    async def show(
        who: Annotated[str, Depends(user)], db: Annotated[str, Depends(connection)]
    ) -> str:
        did.append("run")
        return f"{who}, {db}"

    async with raw_client(server, revision) as client:
        tool = (await client.ask("tools/list"))["tools"][0]
        assert tool["inputSchema"].get("properties", {}) == {}
        for _ in range(2):
            assert await client.text("show") == "ann of connection, connection"
    assert did == ["open", "log in", "run", "log out", "close"] * 2
    return WORKS


@COMPOSITION.feature('dependency of the server (`scope="server"`)', WORKS)
async def server_scope(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    async def pool() -> AsyncGenerator[str]:
        did.append("open")
        yield "pool"
        did.append("close")

    @server.tool
    async def show(pool: Annotated[str, Depends(pool, scope="server")]) -> str:
        return pool

    async with raw_client(server, revision) as client:
        for _ in range(3):
            assert await client.text("show") == "pool"
        assert did == ["open"]
    assert did == ["open", "close"]
    return WORKS


@COMPOSITION.feature("override of a dependency", WORKS)
async def overridden(revision: Revision) -> Verdict:
    server = Server("s")

    def get_db() -> str:
        return "real"

    @server.tool
    async def show(db: Annotated[str, Depends(get_db)]) -> str:
        return db

    async with raw_client(server, revision) as client:
        with server.overrides({get_db: lambda: "fake"}):
            assert await client.text("show") == "fake"
        assert await client.text("show") == "real"
    return WORKS


@COMPOSITION.feature("middleware around every request (`@server.middleware`)", WORKS)
async def layer(revision: Revision) -> Verdict:
    server, seen = Server("s"), list[str]()
    server.tool(name="a")(lambda: "x")
    server.prompt(name="p")(lambda: "x")

    @server.middleware
    async def guard(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        seen.append(request.method)
        if request.method == "prompts/list":
            raise Fault(FaultKind.INVALID_REQUEST, "not today")
        result = await call_next(request)
        if isinstance(result, t.CallToolResult):
            return t.CallToolResult(content=[*result.content, t.TextContent(text="!")])
        return result

    async with raw_client(server, revision) as client:
        assert text_content(await client.call("a")) == "x!"
        assert await refusal(client.ask("prompts/list"), "not today") == refused(-32600)
    assert seen == ["tools/call", "prompts/list"]
    return WORKS


@COMPOSITION.feature('mounted server (`mount(other, namespace="maps")`)', WORKS)
async def mounted(revision: Revision) -> Verdict:
    maps, server = Server("maps"), Server("s")
    server.tool(name="own")(lambda: "own")
    maps.tool(name="route")(lambda: "route")
    maps.prompt(name="plan")(lambda: "plan")
    maps.resource("maps://{x}")(lambda x: f"map {x}")
    server.mount(maps, namespace="maps")
    async with raw_client(server, revision) as client:
        assert await names(client) == ["own", "maps_route"]
        assert await client.text("maps_route") == "route"
        assert (await client.ask("prompts/get", {"name": "maps_plan"}))["messages"]
        assert (await client.read("maps://a"))[0]["text"] == "map a"
        await listen(client, toolsListChanged=True)
        maps.tool(name="later")(lambda: "later")
        await client.until(lambda: client.notifications(TOOLS))
        assert await client.text("maps_later") == "later"
    return WORKS


# ---------------------------------------------------------------- list_changed


async def listen(client: Client, **wanted: Any) -> None:
    """Subscribe to `list_changed`, as the revision does it."""
    if client.revision.change_notifications is ChangeNotifications.LISTEN:
        client.send("subscriptions/listen", {"notifications": wanted})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))


@COMPOSITION.feature("`list_changed` when tools, resources or prompts are added or removed", WORKS)
async def changes(revision: Revision) -> Verdict:
    server = Server("s")
    server.tool(name="a")(lambda: "x")
    server.prompt(name="p")(lambda: "x")
    server.resource("r://a")(lambda: "x")
    async with raw_client(server, revision) as client:
        await listen(
            client, toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True
        )
        server.tool(name="b")(lambda: "b")
        server.tool(name="c")(lambda: "c")
        server.prompts.remove("p")
        server.resource("r://{x}")(lambda x: x)
        for method in (TOOLS, PROMPTS, RESOURCES):
            await client.until(lambda method=method: client.notifications(method))
        assert [len(client.notifications(method)) for method in (TOOLS, PROMPTS, RESOURCES)] == [
            1,
            1,
            1,
        ]
        assert await names(client) == ["a", "b", "c"]
        assert await client.text("b") == "b"
    return WORKS


@COMPOSITION.feature(
    "first prompt, added while clients are connected", *4 * [refused(-32601)], WORKS
)
async def first_of_its_kind(revision: Revision) -> Verdict:
    server = Server("s")
    server.tool(name="a")(lambda: "x")
    async with raw_client(server, revision) as client:
        server.prompt(name="p")(lambda: "x")
        found = await tried(client.ask("prompts/list"))
    if isinstance(found, Rejected):
        assert client.notifications(PROMPTS) == []  # not declared in the handshake, so not sent
        async with raw_client(server, revision) as later:
            assert (await later.ask("prompts/list"))["prompts"] == [{"name": "p"}]
        return refused(found.code)
    assert found["prompts"] == [{"name": "p"}]
    return WORKS


@COMPOSITION.feature('the same, with `declares=["prompts"]`', WORKS)
async def declared_before(revision: Revision) -> Verdict:
    server = Server("s", declares=["prompts"])
    server.tool(name="a")(lambda: "x")
    async with raw_client(server, revision) as client:
        assert (await client.ask("prompts/list"))["prompts"] == []
        await listen(client, promptsListChanged=True)
        server.prompt(name="p")(lambda: "x")
        await client.until(lambda: client.notifications(PROMPTS))
        assert (await client.ask("prompts/list"))["prompts"] == [{"name": "p"}]
    return WORKS


@COMPOSITION.feature(
    "`list_changed` without a subscription", *4 * [WORKS], fallback("to subscribers only")
)
async def unasked(revision: Revision) -> Verdict:
    server = Server("s")
    server.tool(name="a")(lambda: "x")
    async with raw_client(server, revision) as client:
        server.tool(name="b")(lambda: "x")
        if revision.change_notifications is ChangeNotifications.SESSION:
            await client.until(lambda: client.notifications(TOOLS))
            return WORKS
        assert await names(client) == ["a", "b"]
        assert client.notifications(TOOLS) == []
    return fallback("to subscribers only")


@COMPOSITION.feature("disable and enable by name or tag", WORKS)
async def hidden(revision: Revision) -> Verdict:
    server = Server("s")
    for name, tags in (("a1", {"a"}), ("a2", {"a"}), ("b1", {"b"}), ("c1", {"c"})):
        server.tool(name=name, tags=tags)(lambda: "x")
    server.prompt(name="p", tags={"a"})(lambda: "x")
    async with raw_client(server, revision) as client:
        await listen(client, toolsListChanged=True)
        server.disable("b1", tags={"a"})
        await client.until(lambda: client.notifications(TOOLS))
        assert await names(client) == ["c1"]
        assert (await client.ask("prompts/list"))["prompts"] == []
        for name in ("a1", "b1"):
            assert await refusal(client.call(name), f"no tool '{name}'") == refused(-32602)
        server.enable("b1", tags={"a"})
        assert await names(client) == ["a1", "a2", "b1", "c1"]
        assert await client.text("b1") == "x"
    return WORKS


# ---------------------------------------------------------------- lists


def many(**options: Any) -> Server:
    server = Server("s", **options)
    for name in ("e", "b", "d", "a", "c"):
        server.tool(name=name)(lambda: "x")
    return server


@COMPOSITION.feature("pagination, with cursors that stay valid when entries change", WORKS)
async def pages(revision: Revision) -> Verdict:
    server = many(page_size=2)
    async with raw_client(server, revision) as client:
        first = await client.ask("tools/list")
        assert [tool["name"] for tool in first["tools"]] == ["e", "b"]
        server.tools.remove("e")
        server.tools.remove("d")
        server.tool(name="f")(lambda: "x")
        second = await client.ask("tools/list", {"cursor": first["nextCursor"]})
        assert [tool["name"] for tool in second["tools"]] == ["a", "c"]
        third = await client.ask("tools/list", {"cursor": second["nextCursor"]})
        assert [tool["name"] for tool in third["tools"]] == ["f"]
        assert "nextCursor" not in third
    return WORKS


@COMPOSITION.feature("invalid cursor", refused(-32602))
async def bad_cursor(revision: Revision) -> Verdict:
    async with raw_client(many(page_size=2), revision) as client:
        seen = {
            await refusal(client.ask("tools/list", {"cursor": cursor}), "cursor")
            for cursor in ("x", "", "YWZ0ZXI6LTE", "A" * 100)
        }
    (verdict,) = seen
    return verdict


@COMPOSITION.feature("stable order: that of registration", WORKS)
async def order(revision: Revision) -> Verdict:
    server = many()
    async with raw_client(server, revision) as one, raw_client(server, revision) as two:
        assert await names(one) == await names(two) == ["e", "b", "d", "a", "c"]
        await one.call("a")
        assert await names(one) == ["e", "b", "d", "a", "c"]
    return WORKS


@COMPOSITION.feature(
    "caching of lists (`ttlMs`, `cacheScope`)",
    *4 * [fallback("omitted")],
    WORKS,
)
async def kept(revision: Revision) -> Verdict:
    server = many(ttl_s=60, cache_scope="public")
    server.prompt(name="p")(lambda: "x")
    server.resource("r://a")(lambda: "x")
    async with raw_client(server, revision) as client:
        lists = [await client.ask(f"{kind}/list") for kind in ("tools", "prompts", "resources")]
    if not any("ttlMs" in one or "cacheScope" in one for one in lists):
        return fallback("omitted")
    assert [(one["ttlMs"], one["cacheScope"]) for one in lists] == [(60_000, "public")] * 3
    return WORKS


# ---------------------------------------------------------------- extensions

SEARCH = "com.example/search"


def searched() -> Server:
    search = Extension(SEARCH, {"languages": ["en"]})

    @search.method("search/query")
    async def query(words: str, ctx: Context) -> dict[str, str]:
        await ctx.notify("search/found", {"n": 1}, extension=SEARCH)
        return {"words": words}

    return Server("library", extensions=[search])


@COMPOSITION.feature("extension with settings and methods (`Extension`)", WORKS)
async def extension(revision: Revision) -> Verdict:
    first, _ = await introduced(searched(), revision)
    assert first["capabilities"]["extensions"] == {SEARCH: {"languages": ["en"]}}
    async with connect(searched(), revision.date, extensions={SEARCH: {}}) as client:
        found = await client.request("search/query", {"words": "tea"}, extension=SEARCH)
    assert found == {"words": "tea"}
    return WORKS


@COMPOSITION.feature("notification of an extension (`ctx.notify`)", WORKS)
async def extension_notification(revision: Revision) -> Verdict:
    heard: list[JSON] = []
    async with connect(searched(), revision.date, extensions={SEARCH: {}}) as client:
        client.add_notification_handler("search/found", heard.append, extension=SEARCH)
        await client.request("search/query", {"words": "tea"}, extension=SEARCH)
    assert heard == [{"n": 1}]
    return WORKS


@COMPOSITION.feature("method of an extension that the client did not declare", refused(-32021))
async def extension_undeclared(revision: Revision) -> Verdict:
    async with raw_client(searched(), revision) as client:
        return await refusal(client.ask("search/query", {"words": "tea"}), "com.example/search")
