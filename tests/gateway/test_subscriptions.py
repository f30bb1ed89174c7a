"""Resources that clients follow through a gateway, and log levels that they want from servers."""

import asyncio
from typing import Any

import pytest

from colonnade import (
    Client,
    Context,
    Gateway,
    Handler,
    Host,
    Refused,
    RemoteError,
    RequestContext,
    Server,
    connect,
)
from colonnade.client.connect import PendingClient
from colonnade.client.subscriptions import ChangeStream
from colonnade.errors import ColonnadeError
from colonnade.gateway import subscriptions
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from gateway.raw_server import REVISIONS
from gateway.served import by_header, served
from live import live, until

OLD, NEW = "2025-11-25", "2026-07-28"
CELLS = [(down, up) for down in (OLD, NEW) for up in (OLD, NEW)]


def notes() -> Server:
    server = Server("notes")

    @server.resource("notes://a")
    def a() -> str:
        return "a"

    @server.resource("notes://b/{name}")
    def b(name: str) -> str:
        return name

    @server.resource("notes://c/d")
    def d() -> str:
        return "d"

    _ = a, b, d
    return server


def count(gateway: Gateway) -> int:
    """How many subscriptions there are upstream."""
    return len(gateway._subscriptions)  # pyright: ignore[reportPrivateUsage]


async def heard(changes: ChangeStream, server: Server, uri: str, *earlier: str) -> str | None:
    """The next change, of a resource that the server updates again and again until it is heard.
    Changes of `earlier` resources, which were updated so before, may still arrive."""
    while True:
        change = asyncio.ensure_future(anext(changes))
        while not change.done():
            server.updated(uri)
            await asyncio.sleep(0.005)
        found = (await change).uri
        if found not in earlier:
            return found


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
def test_an_updated_resource_is_heard_of_in_every_cell(downstream: str, upstream: str) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        entry = entry_of("n", server, Settings(revision=upstream))
        async with Host({"n": entry}) as host:
            gateway = Gateway(host)
            async with connect(gateway, revision=downstream) as client:
                async with client.listen(resources=["notes://a", "notes://b/x"]) as changes:
                    assert await heard(changes, server, "notes://a") == "notes://a"
                    assert await heard(changes, server, "notes://b/x", "notes://a") == "notes://b/x"
                    assert count(gateway) >= 1
                await until(lambda: count(gateway) == 0)
                assert (await client.read_resource("notes://a")).contents

    exercise()


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
def test_a_folder_is_followed_with_all_below_it(downstream: str, upstream: str) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        entry = entry_of("n", server, Settings(revision=upstream))
        async with (
            Host({"n": entry}) as host,
            connect(Gateway(host), revision=downstream) as client,
            client.listen(resources=["notes://c"]) as changes,
        ):
            assert await heard(changes, server, "notes://c/d") == "notes://c/d"

    exercise()


@live
async def test_an_acknowledgement_names_only_what_a_server_follows() -> None:
    async with (
        Host({"n": notes()}) as host,
        connect(Gateway(host), revision=NEW) as client,
        client.listen(resources=["notes://a", "notes://none"]) as changes,
    ):
        assert changes.agreed.resource_subscriptions == ["notes://a"]


@pytest.mark.parametrize("upstream", [OLD, NEW])
def test_an_older_client_is_told_that_there_is_no_such_resource(upstream: str) -> None:
    @live
    async def exercise() -> None:
        entry = entry_of("n", notes(), Settings(revision=upstream))
        async with Host({"n": entry}) as host:
            gateway = Gateway(host)
            async with connect(gateway, revision=OLD) as client:
                with pytest.raises(RemoteError) as caught:
                    await client.subscribe("notes://none")
                assert caught.value.code == -32002
                await client.subscribe("notes://a")
                await client.subscribe("notes://a")  # harmless
                assert count(gateway) == 1
                await client.unsubscribe("notes://a")
                await until(lambda: count(gateway) == 0)

    exercise()


@live
async def test_followers_of_one_resource_share_one_subscription_to_a_server_for_all() -> None:
    server = notes()
    async with Host({"n": server}) as host:
        gateway = Gateway(host)
        async with (
            served(gateway, verify=by_header) as url,
            connect({"url": url, "headers": {"X-User": "ann"}}, revision=NEW) as ann,
            connect({"url": url, "headers": {"X-User": "bob"}}, revision=OLD) as bob,
        ):
            async with (
                ann.listen(resources=["notes://a"]) as one,
                bob.listen(resources=["notes://a"]) as two,
            ):
                assert count(gateway) == 1
                assert await heard(one, server, "notes://a") == "notes://a"
                assert await heard(two, server, "notes://a") == "notes://a"
            await until(lambda: count(gateway) == 0)


@live
async def test_each_caller_follows_in_its_own_session_of_an_older_server() -> None:
    server = notes()
    entry = entry_of("n", server, Settings(revision=OLD))
    async with Host({"n": entry}) as host:
        gateway = Gateway(host)
        async with (
            served(gateway, verify=by_header) as url,
            connect({"url": url, "headers": {"X-User": "ann"}}, revision=OLD) as ann,
            connect({"url": url, "headers": {"X-User": "bob"}}, revision=NEW) as bob,
            ann.listen(resources=["notes://a"]) as one,
            bob.listen(resources=["notes://a"]) as two,
        ):
            assert count(gateway) == 2
            assert await heard(one, server, "notes://a") == "notes://a"
            assert await heard(two, server, "notes://a") == "notes://a"


@pytest.mark.parametrize("revision", [OLD, "2024-11-05"])
def test_a_session_that_ends_follows_nothing_any_more(revision: str) -> None:
    @live
    async def exercise() -> None:
        async with Host({"n": notes()}) as host:
            gateway = Gateway(host)
            async with served(gateway) as url:
                client: Client
                async with connect(url, revision=revision) as client:
                    await client.subscribe("notes://a")
                    assert count(gateway) == 1
                await until(lambda: count(gateway) == 0)

    exercise()


def test_too_many_followed_resources_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_FOLLOWED", 2)

    @live
    async def exercise() -> None:
        async with Host({"n": notes()}) as host:
            gateway = Gateway(host)
            async with connect(gateway, revision=OLD) as client:
                await client.subscribe("notes://b/1")
                await client.subscribe("notes://b/2")
                with pytest.raises(RemoteError, match="too many resources"):
                    await client.subscribe("notes://b/3")
                await client.unsubscribe("notes://b/1")
                await client.subscribe("notes://b/3")
                with pytest.raises(RemoteError, match="8192 characters"):
                    await client.subscribe("notes://b/" + "x" * 9000)

    exercise()


@live
async def test_a_resource_that_a_middleware_hides_is_not_followed() -> None:
    async def hide(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        if request.params.get("uri") == "notes://a":
            raise Refused("not for you")
        return await call_next(request)

    async with Host({"n": notes()}, middleware=[hide]) as host:
        gateway = Gateway(host)
        async with connect(gateway, revision=OLD) as client:
            with pytest.raises(RemoteError, match="not for you"):
                await client.subscribe("notes://a")
        async with (
            connect(gateway, revision=NEW) as client,
            client.listen(resources=["notes://a", "notes://b/1"]) as changes,
        ):
            assert changes.agreed.resource_subscriptions == ["notes://b/1"]
        assert count(gateway) == 0


@live
async def test_a_uri_that_two_servers_have_is_followed_at_the_one_that_is_named() -> None:
    async with (
        Host({"n": notes(), "m": notes()}) as host,
        connect(Gateway(host), revision=OLD) as client,
    ):
        with pytest.raises(ColonnadeError, match="several servers"):
            await client.subscribe("notes://a")
        meta = {"dev.colonnade/server": "m"}
        params = t.SubscribeRequestParams(uri="notes://a", meta=meta)
        await client.ask("resources/subscribe", params)
        read = t.ReadResourceRequestParams(uri="notes://a", meta=meta)
        result: Any = await client.ask("resources/read", read)
        assert result.contents[0].text == "a"


# ---------------------------------------------------------------- logs


def chatty() -> Server:
    server = Server("chatty")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.debug("fine")
        await ctx.info("usual")
        await ctx.error("bad")
        return "done"

    _ = work
    return server


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
def test_the_level_that_a_client_wants_is_the_level_that_it_gets(
    downstream: str, upstream: str
) -> None:
    @live
    async def exercise() -> None:
        heard: list[str] = []
        entry = entry_of("c", chatty(), Settings(revision=upstream))
        async with (
            Host({"c": entry}) as host,
            connect(
                Gateway(host), revision=downstream, on_log=lambda one: heard.append(one.level)
            ) as client,
        ):
            for level, expected in [
                ("debug", ["debug", "info", "error"]),
                ("error", ["error"]),
                ("info", ["info", "error"]),
            ]:
                await client.set_log_level(level)  # pyright: ignore[reportArgumentType]
                heard.clear()
                await client.call_tool("c__work")
                await client.wait_for_callbacks()
                assert heard == expected, level

    exercise()


@live
async def test_a_client_that_follows_a_resource_still_gets_the_logs_of_its_calls() -> None:
    server = chatty()

    @server.resource("notes://a")
    def a() -> str:
        return "a"

    _ = a
    heard: list[str] = []
    entry = entry_of("c", server, Settings(revision=OLD))
    async with (
        Host({"c": entry}) as host,
        connect(Gateway(host), revision=NEW, on_log=lambda one: heard.append(one.level)) as client,
        client.listen(resources=["notes://a"]),
    ):
        await client.call_tool("c__work")
        await client.wait_for_callbacks()
    assert heard == ["info", "error"]


@live
async def test_each_of_two_clients_gets_the_logs_of_its_own_calls() -> None:
    """Both are of one principal, and use one session of a server whose logs belong to requests."""
    server = Server("chatty")
    begun, go = asyncio.Event(), asyncio.Event()

    @server.tool
    async def talk(words: str, ctx: Context) -> str:
        await ctx.info(words)
        return words

    @server.tool
    async def wait() -> str:
        begun.set()
        await go.wait()
        return "done"

    _ = talk, wait
    heard: list[tuple[str, str]] = []
    entry = entry_of("c", server, Settings(revision=NEW))
    async with Host({"c": entry}) as host:
        gateway = Gateway(host)
        async with (
            connect(
                gateway, revision=OLD, on_log=lambda one: heard.append(("one", one.data))
            ) as one,
            connect(
                gateway, revision=OLD, on_log=lambda one: heard.append(("two", one.data))
            ) as two,
        ):
            await one.call_tool("c__talk", {"words": "hers"})
            await two.call_tool("c__talk", {"words": "his"})
            await one.wait_for_callbacks()
            await two.wait_for_callbacks()
            assert heard == [("one", "hers"), ("two", "his")]
            # While both have a call in flight nothing says whose it is.
            waiting = asyncio.create_task(two.call_tool("c__wait"))
            await begun.wait()
            await one.call_tool("c__talk", {"words": "hers"})
            go.set()
            await waiting
            await one.wait_for_callbacks()
            await two.wait_for_callbacks()
        assert heard == [("one", "hers"), ("two", "his")]


class TalkingServer:
    """A server whose log messages a test chooses, and a gateway to it for two clients."""

    def __init__(self, settings: Settings) -> None:
        server = Server("talking")
        self.waiting = asyncio.Event()
        self.heard: list[tuple[str, str]] = []
        server.tool(self.talk)
        server.tool(self.wait)
        self.entry = entry_of("c", server, settings)

    async def talk(self, words: str, ctx: Context) -> str:
        await ctx.info(words)
        return words

    async def wait(self) -> None:
        self.waiting.set()
        await asyncio.Event().wait()

    def client(self, gateway: Gateway, name: str) -> PendingClient:
        return connect(
            gateway, revision=OLD, on_log=lambda one: self.heard.append((name, one.data))
        )


@live
async def test_a_log_that_may_be_of_a_cancelled_call_of_another_client_is_dropped() -> None:
    talking = TalkingServer(Settings(revision=NEW))
    async with Host({"c": talking.entry}) as host:
        gateway = Gateway(host)
        async with talking.client(gateway, "one") as one, talking.client(gateway, "two") as two:
            waiting = asyncio.create_task(two.call_tool("c__wait"))
            await talking.waiting.wait()
            waiting.cancel()
            await asyncio.wait([waiting])
            await until(lambda: host.status()[0].in_flight == 0)
            await one.call_tool("c__talk", {"words": "hers"})
            await one.wait_for_callbacks()
    assert talking.heard == []


@live
async def test_a_log_of_a_session_with_a_handshake_is_for_its_only_client_or_for_none() -> None:
    """Such a server may log outside of requests."""
    talking = TalkingServer(Settings(revision=OLD, sharing="pooled", max_sessions=1))
    async with Host({"c": talking.entry}) as host:
        gateway = Gateway(host)
        async with talking.client(gateway, "one") as one, talking.client(gateway, "two") as two:
            await one.call_tool("c__talk", {"words": "hers"})
            await two.call_tool("c__talk", {"words": "his"})
            await one.wait_for_callbacks()
            await two.wait_for_callbacks()
    assert talking.heard == [("one", "hers")]
