"""What is offered: pages, changes that every client hears of, hiding, mounting, middleware."""

import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, LocalProtocolError, Refused, Server, ToolError
from colonnade.errors import Fault, FaultKind
from colonnade.middleware import log
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.revision import ChangeNotifications, Revision
from live import live
from server.raw_client import EVERYTHING, JSON, Client, Rejected, raw_client, text_content


def add_tools(server: Server, *names: str) -> None:
    for name in names:
        server.tool(name=name, tags={name[0]})(lambda: "x")


async def names(client: Client) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list"))["tools"]]


async def listening(client: Client, **wanted: object) -> None:
    """Hear of changes, in whichever way the revision tells them."""
    if client.revision.change_notifications is ChangeNotifications.LISTEN:
        client.send("subscriptions/listen", {"notifications": wanted})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))


TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"


# ---------------------------------------------------------------- pages


@pytest.mark.spec("R0162", "R0977")
@live
async def test_pages_are_stable_while_entries_come_and_go(revision: Revision) -> None:
    server = Server("s", page_size=2)
    add_tools(server, *"abcde")
    async with raw_client(server, revision) as client:
        first = await client.ask("tools/list")
        assert [tool["name"] for tool in first["tools"]] == ["a", "b"]
        server.tools.remove("a")
        server.tools.remove("c")
        add_tools(server, "f", "b")  # b is replaced, and keeps its place
        second = await client.ask("tools/list", {"cursor": first["nextCursor"]})
        assert [tool["name"] for tool in second["tools"]] == ["d", "e"]
        third = await client.ask("tools/list", {"cursor": second["nextCursor"]})
        assert [tool["name"] for tool in third["tools"]] == ["f"]
        assert "nextCursor" not in third
        assert await client.ask("tools/list") == await client.ask("tools/list")


@pytest.mark.spec("R0165")
@live
async def test_a_cursor_that_is_none_of_ours_is_refused(revision: Revision) -> None:
    server = Server("s")
    add_tools(server, "a")
    async with raw_client(server, revision) as client:
        for cursor in ("", "x", "é", "YWZ0ZXI6eA", "YWZ0ZXI6LTE", "A" * 65, "b3RoZXI6MQ"):
            with pytest.raises(Rejected, match="cursor") as caught:
                await client.ask("tools/list", {"cursor": cursor})
            assert caught.value.code == -32602


# ---------------------------------------------------------------- changes


@pytest.mark.spec("R0115", "R0128", "R0143", "R0960", "R0980")
@live
async def test_every_change_is_told_once_in_the_way_of_the_era(revision: Revision) -> None:
    server = Server("s")
    add_tools(server, "a")
    server.prompt(name="p")(lambda: "x")
    server.resource("r://a")(lambda: "x")
    async with raw_client(server, revision) as client:
        await listening(
            client, toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True
        )
        add_tools(server, "b", "c", "d")
        await client.until(lambda: client.notifications(TOOLS))
        server.prompts.remove("p")
        server.resource("r://{x}")(lambda x: x)
        await client.until(
            lambda: client.notifications(PROMPTS) and client.notifications(RESOURCES)
        )
        assert [len(client.notifications(method)) for method in (TOOLS, PROMPTS, RESOURCES)] == [
            1,
            1,
            1,
        ]
        assert await names(client) == [*"abcd"]


@live
async def test_who_did_not_ask_is_not_told_where_one_must_ask(revision: Revision) -> None:
    if revision.change_notifications is not ChangeNotifications.LISTEN:
        return
    server = Server("s")
    add_tools(server, "a")
    server.prompt(name="p")(lambda: "x")
    async with raw_client(server, revision) as client:
        await listening(client, promptsListChanged=True)
        add_tools(server, "b")
        server.prompts.remove("p")
        await client.until(lambda: client.notifications(PROMPTS))
        assert not client.notifications(TOOLS)


@live
async def test_a_change_made_in_a_thread_is_told_too(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def grow() -> str:
        add_tools(server, "new")
        return threading.current_thread().name

    async with raw_client(server, revision) as client:
        await listening(client, toolsListChanged=True)
        assert (await client.text("grow")).startswith("colonnade")
        await client.until(lambda: client.notifications(TOOLS))
        assert await names(client) == ["grow", "new"]


@pytest.mark.spec("R1141", "R1142")
@live
async def test_a_subscription_is_acknowledged_before_any_notification_on_it(
    revision: Revision,
) -> None:
    server = Server("s")
    add_tools(server, "a")
    async with raw_client(server, revision) as client:
        id = client.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.until(lambda: bool(client.received))
        add_tools(server, "b")
        await client.until(lambda: client.notifications(TOOLS))
        first, second = client.received
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == id
    assert second["method"] == TOOLS


@pytest.mark.spec("R0809")
@live
async def test_draining_ends_what_waits_for_notifications_with_its_result(
    revision: Revision,
) -> None:
    if revision.change_notifications is not ChangeNotifications.LISTEN:
        return
    server = Server("s")
    add_tools(server, "a")
    async with raw_client(server, revision) as client:
        id = client.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))
        server.drain()
        result = await client.outcome(id)
        assert result["_meta"]["io.modelcontextprotocol/subscriptionId"] == id
        (cancelled,) = client.notifications("notifications/cancelled")
        assert cancelled["requestId"] == id


@live
async def test_a_listener_that_falls_too_far_behind_is_ended(revision: Revision) -> None:
    if revision.change_notifications is not ChangeNotifications.LISTEN:
        return
    server = Server("s")
    server.resource("r://{x}")(lambda x: x)
    async with raw_client(server, revision) as client:
        uris = {"resourceSubscriptions": ["r://a"]}
        id = client.send("subscriptions/listen", {"notifications": uris})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))
        for n in range(300):
            server.updated(f"r://a/{n}")
        await client.outcome(id)
        (cancelled,) = client.notifications("notifications/cancelled")
        assert "list everything again" in cancelled["reason"]


@live
async def test_what_a_server_does_not_have_is_left_out_of_the_acknowledgement(
    revision: Revision,
) -> None:
    if revision.change_notifications is not ChangeNotifications.LISTEN:
        return
    server = Server("s")
    add_tools(server, "a")
    async with raw_client(server, revision) as client:
        await listening(
            client, toolsListChanged=True, promptsListChanged=True, resourceSubscriptions=["r://a"]
        )
        (agreed,) = client.notifications("notifications/subscriptions/acknowledged")
        assert agreed["notifications"] == {"toolsListChanged": True}


# ---------------------------------------------------------------- hiding


@live
async def test_what_is_hidden_is_neither_listed_nor_called(revision: Revision) -> None:
    server = Server("s")
    add_tools(server, "a1", "a2", "b1")
    server.prompt(name="p", tags={"a"})(lambda: "x")
    async with raw_client(server, revision) as client:
        await listening(client, toolsListChanged=True)
        server.disable("b1", tags={"a"})
        await client.until(lambda: client.notifications(TOOLS))
        assert await names(client) == []
        assert (await client.ask("prompts/list"))["prompts"] == []
        with pytest.raises(Rejected, match="no tool 'b1'"):
            await client.call("b1")
        server.enable(tags={"a"})
        assert await names(client) == ["a1", "a2"]
        server.enable("b1")
        assert await client.text("b1") == "x"
    with pytest.raises(LocalProtocolError, match="no tool, resource or prompt 'nope'"):
        server.disable("nope")


@live
async def test_scopes_keep_out_who_was_verified_without_them(revision: Revision) -> None:
    server = Server("s")
    server.tool(name="open")(lambda: "x")
    server.tool(name="shut", scopes={"admin"})(lambda: "x")
    async with raw_client(server, revision) as client:
        assert await client.text("shut") == "x"  # where nobody is verified nobody has scopes
    async with raw_client(server, revision, principal="ann") as client:
        assert await client.text("open") == "x"
        with pytest.raises(Rejected, match="needs the scope admin"):
            await client.call("shut")


# ---------------------------------------------------------------- mounting


@live
async def test_a_mounted_server_is_offered_as_it_is_at_every_moment(revision: Revision) -> None:
    maps, server = Server("maps"), Server("s")
    add_tools(maps, "route")
    add_tools(server, "own")
    maps.prompt(name="plan")(lambda: "p")
    maps.resource("maps://{x}")(lambda x: f"map {x}")

    @maps.tool
    async def ask(ctx: Context) -> str:
        return f"{len(await ctx.roots())} {ctx.state}"

    server.mount(maps, namespace="maps")

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": []}

    async with raw_client(server, revision, can=EVERYTHING, answer=answer) as client:
        assert await names(client) == ["own", "maps_route", "maps_ask"]
        assert await client.text("maps_route") == "x"
        assert await client.text("maps_ask") == "0 None"
        assert (await client.read("maps://a"))[0]["text"] == "map a"
        assert (await client.ask("prompts/get", {"name": "maps_plan"}))["messages"]
        await listening(client, toolsListChanged=True, resourceSubscriptions=["maps://a"])
        if revision.change_notifications is ChangeNotifications.SESSION:
            await client.ask("resources/subscribe", {"uri": "maps://a"})
        add_tools(maps, "later")
        maps.disable("route")
        maps.updated("maps://a")
        await client.until(lambda: client.notifications(TOOLS))
        await client.until(lambda: client.notifications("notifications/resources/updated"))
        assert await names(client) == ["own", "maps_ask", "maps_later"]
        maps.tools.remove("later")
        maps.enable("route")
        assert await names(client) == ["own", "maps_route", "maps_ask"]


def test_what_cannot_be_mounted_is_refused() -> None:
    server, other = Server("s"), Server("o")
    add_tools(server, "a")
    add_tools(other, "a")
    with pytest.raises(LocalProtocolError, match="'a' is already registered"):
        server.mount(other)
    with pytest.raises(LocalProtocolError, match="in itself"):
        server.mount(server)
    server.mount(other, namespace="o")
    with pytest.raises(LocalProtocolError, match="in itself"):
        other.mount(server)


def test_what_is_hidden_in_the_outer_server_stays_hidden_whatever_the_inner_does() -> None:
    server, other = Server("s"), Server("o")
    add_tools(other, "a")
    server.mount(other, "o")
    server.disable("o_a")
    other.disable("a")
    other.enable("a")
    assert server.tools.shown == []
    server.enable("o_a")
    other.disable("a")
    assert server.tools.shown == []
    other.enable("a")
    assert server.tools.shown == ["o_a"]


def test_a_mounted_server_never_takes_the_place_of_what_the_outer_one_offers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, other = Server("s"), Server("o")
    server.mount(other, "o")
    add_tools(server, "o_a")
    own = server.tools["o_a"]
    add_tools(other, "a", "b")
    assert "'o_a' is already registered" in caplog.text
    assert server.tools["o_a"] is own
    other.tools.remove("a")
    assert server.tools["o_a"] is own
    add_tools(server, "o_b")  # the later one counts, and is the outer server's now
    later = server.tools["o_b"]
    other.tools.remove("b")
    assert server.tools["o_b"] is later
    add_tools(other, "c")
    server.tools.remove("o_c")
    other.disable("c")
    other.tools.remove("c")
    assert server.tools.names == ["o_a", "o_b"]


# ---------------------------------------------------------------- layers


def noting(
    seen: list[str], name: str
) -> Callable[[RequestContext, Handler], Awaitable[t.ProtocolType]]:
    async def layer(request: RequestContext, inner: Handler) -> t.ProtocolType:
        seen.append(f"{name} {request.exchange.method.name}")
        return await inner(request)

    return layer


@live
async def test_middleware_is_around_every_handler_the_first_outermost(revision: Revision) -> None:
    server, other, seen = Server("s"), Server("o"), list[str]()
    add_tools(server, "a")
    add_tools(other, "b")
    server.mount(other, "o")
    server.add_middleware(noting(seen, "one"))
    server.add_middleware(noting(seen, "two"))
    other.add_middleware(noting(seen, "inner"))

    @server.middleware
    async def guard(request: RequestContext, inner: Handler) -> t.ProtocolType:
        if request.exchange.method.name == "prompts/list":
            raise Fault(FaultKind.INVALID_REQUEST, "not today")
        result = await inner(request)
        if isinstance(result, t.CallToolResult) and result.is_error is None:
            return t.CallToolResult(content=[*result.content, t.TextContent(text="!")])
        return result

    server.prompt(name="p")(lambda: "x")
    async with raw_client(server, revision) as client:
        assert text_content(await client.call("a")) == "x!"
        assert text_content(await client.call("o_b")) == "x!"
        with pytest.raises(Rejected, match="not today"):
            await client.ask("prompts/list")
    assert seen[:2] == ["one tools/call", "two tools/call"]
    assert "inner tools/call" in seen


@live
async def test_the_message_of_middleware_reaches_the_caller(revision: Revision) -> None:
    server = Server("s")
    add_tools(server, "a")
    server.prompt(name="p")(lambda: "x")

    @server.middleware
    async def closed(request: RequestContext, inner: Handler) -> t.ProtocolType:
        if request.exchange.method.name in ("tools/call", "prompts/get"):
            raise ToolError("closed on Sundays")
        return await inner(request)

    async with raw_client(server, revision) as client:
        assert await client.failure("a") == "closed on Sundays"
        with pytest.raises(Rejected, match="closed on Sundays") as caught:
            await client.ask("prompts/get", {"name": "p"})
        assert caught.value.code == -32603


@live
async def test_middleware_that_raises_refused_is_no_crash_and_the_caller_reads_why(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    add_tools(server, "a")
    server.prompt(name="p")(lambda: "x")
    server.add_middleware(log())

    @server.middleware
    async def closed(request: RequestContext, inner: Handler) -> t.ProtocolType:
        if request.method in ("tools/call", "prompts/get"):
            raise Refused("not today")
        return await inner(request)

    caplog.set_level(logging.INFO, "colonnade")
    async with raw_client(server, revision) as client:
        assert await client.failure("a") == "not today"
        with pytest.raises(Rejected, match="not today") as caught:
            await client.ask("prompts/get", {"name": "p"})
        assert caught.value.code == -32603
    facts = [vars(one)["request"] for one in caplog.records if one.name == "colonnade.requests"]
    found = [(one["method"], one["outcome"], one.get("code")) for one in facts]
    assert ("tools/call", "refused", None) in found
    assert ("prompts/get", "refused", -32603) in found
    assert all(one.levelno < logging.WARNING for one in caplog.records)


# ---------------------------------------------------------------- what is said wrong


def test_a_keyword_that_is_none_is_refused_and_never_ignored(tmp_path: Path) -> None:
    server: Any = Server("s")  # as whoever has no type checker sees it
    wrong = {"scope": {"admin"}}
    for offer in (
        lambda: server.tool(**wrong),
        lambda: server.prompt(**wrong),
        lambda: server.resource("a://b", **wrong),
        lambda: server.files("a://", tmp_path, **wrong),
    ):
        with pytest.raises(LocalProtocolError, match="no keyword 'scope'; did you mean 'scopes'"):
            offer()
    with pytest.raises(LocalProtocolError, match="'zzz'; there are description, destructive"):
        server.tool(zzz=1)


@pytest.mark.spec("R1011")
def test_what_keeps_keeps_for_no_less_than_no_time() -> None:
    for ttl_s in (-1, -0.001, float("nan"), float("inf")):
        with pytest.raises(LocalProtocolError, match=r"ttl_s is .*; give seconds, 0 or more"):
            Server("s", ttl_s=ttl_s)
        with pytest.raises(LocalProtocolError, match="note: ttl_s is"):
            Server("s").resource("a://b", name="note", ttl_s=ttl_s)(lambda: "x")
    with pytest.raises(LocalProtocolError, match=r"ttl_s is -1; give seconds"):
        Server("s", ttl_s={"tools": -1})
    with pytest.raises(LocalProtocolError, match="no list 'tool'; did you mean 'tools'"):
        Server("s", ttl_s={"tool": 1})
    with pytest.raises(
        LocalProtocolError, match="no list 'x'; there are tools, prompts, resources"
    ):
        Server("s", ttl_s={"x": 1})
    scope: Any = "all"
    with pytest.raises(LocalProtocolError, match="'public' or 'private', not 'all'"):
        Server("s", cache_scope=scope)
    with pytest.raises(LocalProtocolError, match="'public' or 'private', not 'all'"):
        Server("s", ttl_s={}, cache_scope=scope)
