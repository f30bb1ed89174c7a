"""What a caller may use is what a caller may see: scopes on tools, resources, templates, prompts.

Rules: credentials are the test's own word, as a verifier would have said it; `None` is where
nobody looks at any.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.protocol import types as t
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live
from server.raw_client import JSON, Client, Rejected, raw_client

ADMIN = frozenset({"admin"})
NONE: frozenset[str] = frozenset()


def guarded(**settings: Any) -> Server:
    server = Server("s", version="1", **settings)
    server.tool(name="open")(lambda: "x")
    server.tool(name="shut", scopes={"admin"})(lambda: "x")
    server.resource("a://open")(lambda: "x")
    server.resource("a://shut", name="shut", scopes={"admin"}, cache_scope="public", ttl_s=5)(
        lambda: "x"
    )

    @server.resource("b://open/{word}")
    def opened(word: bool) -> str:
        return str(word)

    @server.resource("b://shut/{word}", scopes={"admin"})
    def shut(word: bool) -> str:
        return str(word)

    @server.prompt(name="open")
    def open_prompt(word: bool) -> str:
        return str(word)

    @server.prompt(name="shut", scopes={"admin"})
    def shut_prompt(word: bool) -> str:
        return str(word)

    @server.tool
    async def peek(ctx: Context) -> int:
        return len((await ctx.read("a://shut")).contents)

    return server


@asynccontextmanager
async def as_caller(
    server: Server, revision: Revision, scopes: frozenset[str] | None, principal: str = ""
) -> AsyncGenerator[Client]:
    async with raw_client(server, revision, principal=principal) as client:
        client.duplex.link.scopes = scopes
        yield client


LISTS = {
    "tools/list": ("tools", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}


async def listed(client: Client) -> set[str]:
    found: set[str] = set()
    for method, (member, name) in LISTS.items():
        result = await client.ask(method)
        found |= {f"{method} {one[name]}" for one in result[member]}
    return found


# ---------------------------------------------------------------- lists


@live
async def test_a_list_shows_what_the_caller_may_use_and_nothing_else(revision: Revision) -> None:
    server = guarded()
    async with as_caller(server, revision, None) as client:
        everything = await listed(client)
    assert sum("shut" in name for name in everything) == 4
    for scopes, principal in ((NONE, ""), (NONE, "ann"), (None, "ann"), (frozenset({"x"}), "ann")):
        async with as_caller(server, revision, scopes, principal) as client:
            seen = await listed(client)
            assert seen == {name for name in everything if "shut" not in name}
    async with as_caller(server, revision, ADMIN, "root") as client:
        assert await listed(client) == everything


@live
async def test_pages_are_cut_after_what_is_hidden_is_left_out() -> None:
    server = Server("s", version="1", page_size=2)
    for n in range(8):
        server.tool(name=f"t{n}", scopes={"admin"} if n % 2 else ())(lambda: "x")
    async with as_caller(server, JULY_2026, NONE, "ann") as client:
        seen: list[str] = []
        params: JSON = {}
        while True:
            result = await client.ask("tools/list", params)
            seen.append(" ".join(tool["name"] for tool in result["tools"]))
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
    assert seen == ["t0 t2", "t4 t6"]


# ---------------------------------------------------------------- who may keep a list


async def scope_of(client: Client, method: str, params: JSON | None = None) -> str:
    return (await client.ask(method, params))["cacheScope"]


@pytest.mark.spec("R1029")
@live
async def test_a_list_that_depends_on_the_caller_is_never_public() -> None:
    server = guarded(cache_scope="public", ttl_s=60)
    for scopes, principal in ((None, ""), (NONE, "ann"), (ADMIN, "root")):
        async with as_caller(server, JULY_2026, scopes, principal) as client:
            for method in LISTS:
                assert await scope_of(client, method) == "private"
    server.tools.remove("shut")
    async with as_caller(server, JULY_2026, ADMIN, "root") as client:
        assert await scope_of(client, "tools/list") == "public"
        assert await scope_of(client, "prompts/list") == "private"


@live
async def test_a_resource_that_needs_a_scope_is_never_public() -> None:
    server = guarded()
    async with as_caller(server, JULY_2026, ADMIN, "root") as client:
        result = await client.ask("resources/read", {"uri": "a://shut"})
        assert (result["cacheScope"], result["ttlMs"]) == ("private", 5000)
    server.resource("a://all", name="all", cache_scope="public", ttl_s=5)(lambda: "x")
    async with as_caller(server, JULY_2026, NONE, "ann") as client:
        assert await scope_of(client, "resources/read", {"uri": "a://all"}) == "public"


def paged() -> Server:
    server = Server("s", version="1", page_size=1, cache_scope="public")
    for name in "abc":
        server.tool(name=name)(lambda: "x")
    return server


@live
async def test_all_pages_of_a_list_have_one_scope_whatever_happens_between_them() -> None:
    server = paged()
    async with raw_client(server, JULY_2026) as client:
        first = await client.ask("tools/list")
        assert first["cacheScope"] == "public"
        second = await client.ask("tools/list", {"cursor": first["nextCursor"]})
        assert second["cacheScope"] == "public"
        # It begins for one caller, and stays theirs.
        server.tool(name="d", scopes={"admin"})(lambda: "x")
        private = await client.ask("tools/list")
        assert private["cacheScope"] == "private"
        server.tools.remove("d")
        rest = await client.ask("tools/list", {"cursor": private["nextCursor"]})
        assert rest["cacheScope"] == "private"
        assert await scope_of(client, "tools/list", {"cursor": rest["nextCursor"]}) == "private"
        # It was everybody's and is no longer: the rest of it would not be.
        server.tool(name="d", scopes={"admin"})(lambda: "x")
        with pytest.raises(Rejected, match="list again without one"):
            await client.ask("tools/list", {"cursor": second["nextCursor"]})


# ---------------------------------------------------------------- the way to it


@live
async def test_what_is_hidden_is_refused_on_every_way_to_it(revision: Revision) -> None:
    server = guarded()
    word = {"name": "word", "value": "t"}
    ways: list[tuple[str, JSON]] = [
        ("tools/call", {"name": "shut"}),
        ("resources/read", {"uri": "a://shut"}),
        ("resources/read", {"uri": "b://shut/true"}),
        ("prompts/get", {"name": "shut", "arguments": {"word": "true"}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "shut"}, "argument": word},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "b://shut/{word}"}, "argument": word},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "a://shut"}, "argument": word},
        ),
    ]
    if revision.handshake:
        followed = ("a://shut", "b://shut/true", "a:", "b://shut")
        ways += [("resources/subscribe", {"uri": uri}) for uri in followed]
    async with as_caller(server, revision, NONE, "ann") as client:
        for method, params in ways:
            with pytest.raises(Rejected, match="needs the scope admin"):
                await client.ask(method, params)
        with pytest.raises(Rejected, match="needs the scope admin"):
            await client.call("peek")  # not by way of a tool that may be used, either
    async with as_caller(server, revision, ADMIN, "root") as client:
        for method, params in ways:
            await client.ask(method, params)
        assert await client.text("peek") == "1"


@live
async def test_a_mistyped_name_is_not_corrected_to_one_that_is_hidden(revision: Revision) -> None:
    async with as_caller(guarded(), revision, NONE, "ann") as client:
        for method in ("tools/call", "prompts/get"):
            with pytest.raises(Rejected) as caught:
                await client.ask(method, {"name": "shutt"})
            assert "'shut'" not in caught.value.message
    async with as_caller(guarded(), revision, ADMIN, "root") as client:
        with pytest.raises(Rejected) as caught:
            await client.ask("tools/call", {"name": "shutt"})
        assert "'shut'" in caught.value.message


@live
async def test_a_notification_of_what_is_hidden_reaches_nobody_who_listens() -> None:
    server = guarded()
    wanted = {"resourceSubscriptions": ["a://shut", "a://open", "b://shut/true", "a:"]}
    async with as_caller(server, JULY_2026, NONE, "ann") as client:
        client.send("subscriptions/listen", {"notifications": wanted})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))
        (told,) = client.notifications("notifications/subscriptions/acknowledged")
        assert told["notifications"]["resourceSubscriptions"] == ["a://open", "a:"]
        for uri in ("a://shut", "b://shut/true", "a://open"):
            server.updated(uri)
        await client.until(lambda: client.notifications("notifications/resources/updated"))
        heard = [one["uri"] for one in client.notifications("notifications/resources/updated")]
        assert heard == ["a://open"]


# ---------------------------------------------------------------- over HTTP


async def anybody(headers: Headers) -> str:
    """A verifier that lets everybody in, also those of whom it knows nothing."""
    return headers.get(b"x-user", b"").decode()


@live
async def test_where_callers_are_verified_one_without_a_name_has_no_scopes_either() -> None:
    site = HttpRunner(guarded().asgi(verify=anybody), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            for user in (None, "ann"):
                answer = await caller.modern("tools/call", {"name": "shut"}, x_user=user)
                assert answer.status == 403
                assert "needs the scope admin" in answer.json["error"]["message"]
                tools = await caller.modern("tools/list", x_user=user)
                assert "shut" not in json.dumps(tools.json)
        async with Caller(site.port) as caller:
            await caller.initialize(NOVEMBER_2025.date)
            answer = await caller.ask("tools/call", {"name": "shut"})
            assert "needs the scope admin" in answer.json["error"]["message"]
    finally:
        await site.stop(0.0)
    site = HttpRunner(guarded().asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            assert (await caller.call("shut")).text == "x"
    finally:
        await site.stop(0.0)


@live
async def test_the_list_is_the_same_on_every_connection(revision: Revision) -> None:
    """R0957, R0964, R0975: neither the connection nor what else was asked on it changes a list."""
    server = guarded()
    seen: list[Any] = []
    for asked in range(3):
        async with as_caller(server, revision, NONE, "ann") as client:
            for _ in range(asked):
                await client.text("open")
                await client.ask("resources/read", {"uri": "a://open"})
            seen.append([await client.ask(method) for method in LISTS])
    assert all(one == seen[0] for one in seen)
    assert isinstance(server.tools["open"].definition, t.Tool)
