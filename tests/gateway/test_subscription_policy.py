"""The policy of a host holds for the resources that clients of a gateway follow."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colonnade import Client, Gateway, Host, Policy, Rule, Server, connect
from colonnade.client.subscriptions import ChangeStream
from colonnade.errors import RemoteError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, ServerEntry, Settings
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.pins.pins import Pins
from colonnade.host.policy.request import CallerFacts
from colonnade.host.runtime import CallerFilter
from colonnade.host.servers.listings import ListKind
from colonnade.ports import Caller
from colonnade.protocol import types as t
from colonnade.protocol.http.security import Headers
from colonnade.store.memory import MemoryStore
from gateway.served import by_header, served
from host.drifting import Drifting
from live import live

OLD, NEW = "2025-11-25", "2026-07-28"
CELLS = [(down, up) for down in (OLD, NEW) for up in (OLD, NEW)]
OPEN, SECRET, FOLDER = "notes://dir/open", "notes://dir/secret", "notes://dir"
HIDDEN = Policy([Rule("deny", resources=SECRET), Rule("allow")])


def notes() -> Server:
    server = Server("notes")

    @server.resource(OPEN)
    def shown() -> str:
        return "open"

    @server.resource(SECRET)
    def secret() -> str:
        return "secret"

    _ = shown, secret
    return server


def entries(server: Server, revision: str = OLD) -> dict[str, ServerEntry]:
    return {"n": entry_of("n", server, Settings(revision=revision))}


def count(gateway: Gateway) -> int:
    """How many subscriptions there are upstream."""
    return len(gateway._subscriptions)  # pyright: ignore[reportPrivateUsage]


def with_lists() -> Server:
    server = Server("lists")

    @server.tool
    def read() -> str:
        return "read"

    @server.prompt
    def ask() -> str:
        return "ask"

    _ = read, ask
    return server


def notice(host: Host, key: str, kind: ListKind) -> None:
    """As if a server of a host had sent `list_changed`."""
    hosted = host._runtime.generation.servers[key]  # pyright: ignore[reportPrivateUsage]
    hosted._on_change(key, (kind,), None)  # pyright: ignore[reportPrivateUsage]


async def refusal(client: Client, uri: str, server: str | None = None) -> RemoteError:
    meta: dict[str, Any] | None = {"dev.colonnade/server": server} if server else None
    with pytest.raises(RemoteError) as caught:
        await client.ask("resources/subscribe", t.SubscribeRequestParams(uri=uri, meta=meta))
    return caught.value


async def first_heard(changes: ChangeStream, server: Server, *uris: str) -> str | None:
    """The first change, of resources that the server updates in this order until one is heard."""
    change = asyncio.ensure_future(anext(changes))
    while not change.done():
        for uri in uris:
            server.updated(uri)
            await asyncio.sleep(0.005)
    return (await change).uri


def named(folder: Path) -> list[tuple[str, str, str]]:
    """The event, the method and the name in each line of an audit log that is about an item."""
    files = sorted(folder.glob("*.jsonl"))
    lines = [line for one in files for line in one.read_text().splitlines()]
    found = [json.loads(line) for line in lines]
    return [(one["event"], one["method"], one["name"]) for one in found if one.get("name")]


@live
async def test_a_hidden_resource_is_unknown_to_a_subscription_that_names_its_server() -> None:
    async with Host(entries(notes()), policy=HIDDEN) as host:
        gateway = Gateway(host)
        async with connect(gateway, revision=OLD) as client:
            plain = await refusal(client, SECRET)
            beside = await refusal(client, SECRET, "n")
            unknown = await refusal(client, "notes://dir/qzqzqz")
            assert count(gateway) == 0
    assert plain.code == beside.code == unknown.code == -32002
    assert plain.message == beside.message
    assert unknown.message == plain.message.replace("secret", "qzqzqz")


@pytest.mark.parametrize("upstream", [OLD, NEW])
def test_a_subscription_that_needs_an_approval_is_refused_without_an_approver(
    upstream: str,
) -> None:
    @live
    async def exercise() -> None:
        async with Host(entries(notes(), upstream), policy=Policy(default="ask")) as host:
            gateway = Gateway(host)
            async with connect(gateway, revision=OLD) as client:
                assert "needs an approval" in (await refusal(client, OPEN)).message
            async with (
                connect(gateway, revision=NEW) as client,
                client.listen(resources=[OPEN]) as changes,
            ):
                assert not changes.agreed.resource_subscriptions
                assert count(gateway) == 0

    exercise()


@live
async def test_subscriptions_are_in_the_audit_log(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    async with Host(entries(notes()), policy=HIDDEN, audit=AuditLog(folder)) as host:
        gateway = Gateway(host)
        async with connect(gateway, revision=OLD) as client:
            await refusal(client, SECRET, "n")
            await client.subscribe(OPEN)
    lines = named(folder)
    assert ("failed", "resources/subscribe", SECRET) in lines
    assert ("executed", "resources/subscribe", OPEN) in lines
    assert ("executed", "resources/subscribe", SECRET) not in lines


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
def test_a_follower_of_a_folder_hears_of_nothing_hidden_in_it(
    downstream: str, upstream: str
) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        async with (
            Host(entries(server, upstream), policy=HIDDEN) as host,
            connect(Gateway(host), revision=downstream) as client,
            client.listen(resources=[FOLDER]) as changes,
        ):
            for _ in range(3):
                assert await first_heard(changes, server, SECRET, OPEN) == OPEN

    exercise()


@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_updates_end_when_a_reload_hides_the_resource(downstream: str) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        async with (
            Host(entries(server), policy=Policy(default="allow")) as host,
            connect(Gateway(host), revision=downstream) as client,
            client.listen(resources=[SECRET, OPEN]) as changes,
        ):
            assert await first_heard(changes, server, SECRET) == SECRET
            host._own_policy = HIDDEN  # pyright: ignore[reportPrivateUsage]
            await host.reload(entries(server))
            for _ in range(2):  # what was on its way at the reload may come before
                await first_heard(changes, server, OPEN)
            for _ in range(3):
                assert await first_heard(changes, server, SECRET, OPEN) == OPEN

    exercise()


@live
async def test_a_session_that_subscribes_again_is_asked_about_by_the_rules_of_now() -> None:
    server = notes()
    async with (
        Host(entries(server), policy=Policy(default="allow")) as host,
        connect(Gateway(host), revision=OLD) as client,
    ):
        await client.subscribe(SECRET)
        host._own_policy = HIDDEN  # pyright: ignore[reportPrivateUsage]
        await host.reload(entries(server))
        assert (await refusal(client, SECRET)).code == -32002


@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_a_shared_subscription_sends_each_caller_what_it_may_see(downstream: str) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        policy = Policy([Rule("deny", principals="bob", resources=SECRET), Rule("allow")])
        async with Host(entries(server, NEW), policy=policy) as host:
            gateway = Gateway(host)
            async with (
                served(gateway, verify=by_header) as url,
                connect({"url": url, "headers": {"X-User": "ann"}}, revision=downstream) as ann,
                connect({"url": url, "headers": {"X-User": "bob"}}, revision=downstream) as bob,
                ann.listen(resources=[FOLDER]) as hers,
                bob.listen(resources=[FOLDER]) as his,
            ):
                assert count(gateway) == 1
                assert await first_heard(hers, server, SECRET) == SECRET
                assert await first_heard(his, server, SECRET, OPEN) == OPEN

    exercise()


async def of_a_team(headers: Headers) -> Caller:
    """A verifier whose callers have a claim."""
    return Caller("ann", claims={"team": headers.get(b"x-team", b"").decode()})


@pytest.mark.parametrize("upstream", [OLD, NEW])
def test_a_rule_about_claims_decides_who_follows_a_resource(upstream: str) -> None:
    @live
    async def exercise() -> None:
        server = notes()
        policy = Policy([Rule("allow", claims={"team": "notes"})], default="deny")
        async with Host(entries(server, upstream), policy=policy) as host:
            gateway = Gateway(host)
            async with (
                served(gateway, verify=of_a_team) as url,
                connect({"url": url, "headers": {"X-Team": "notes"}}, revision=NEW) as one,
                connect({"url": url, "headers": {"X-Team": "other"}}, revision=NEW) as other,
                other.listen(resources=[OPEN]) as nothing,
                one.listen(resources=[OPEN]) as changes,
            ):
                assert not nothing.agreed.resource_subscriptions
                assert changes.agreed.resource_subscriptions == [OPEN]
                assert await first_heard(changes, server, OPEN) == OPEN

    exercise()


@live
async def test_a_resource_whose_definition_has_changed_is_not_followed() -> None:
    server = Drifting()
    async with Host(entries(server), pins=Pins(MemoryStore())) as host:
        gateway = Gateway(host)
        async with connect(gateway, revision=OLD) as client:
            await client.list_resources()
            server.lists["resources"][0]["description"] = "Something else."
            server.announce()
            refused = await refusal(client, "notes://a", "n")
            assert "changed" in refused.message
            assert count(gateway) == 0


@live
async def test_a_folder_of_accepted_resources_is_followed() -> None:
    server = notes()
    async with (
        Host(entries(server), pins=Pins(MemoryStore())) as host,
        connect(Gateway(host), revision=NEW) as client,
        client.listen(resources=[FOLDER]) as changes,
    ):
        assert await first_heard(changes, server, OPEN) == OPEN


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_changed_lists_of_a_hidden_server_reach_no_client(revision: str) -> None:
    @live
    async def exercise() -> None:
        servers = {key: with_lists() for key in ("shown", "secret")}
        policy = Policy([Rule("deny", servers="secret"), Rule("allow")])
        async with (
            Host(servers, policy=policy) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            await client.list_tools()
            async with client.listen(tools=True, prompts=True) as changes:
                change = asyncio.ensure_future(anext(changes))
                while not change.done():
                    notice(host, "secret", "tools")
                    notice(host, "shown", "prompts")
                    await asyncio.sleep(0.005)
                assert (await change).kind == "prompts"

    exercise()


@live
async def test_changed_lists_of_a_hidden_server_are_not_reported_to_the_program() -> None:
    policy = Policy([Rule("deny", servers="secret"), Rule("allow")])
    async with Host({"shown": notes(), "secret": notes()}, policy=policy) as host:
        seen: list[tuple[str, ...]] = []
        every: list[tuple[str, ...]] = []
        host.watch(lambda changes: seen.append(changes.servers))
        host.watch(lambda changes: every.append(changes.servers), all_callers=True)
        for key in ("secret", "shown"):
            notice(host, key, "tools")
        while len(every) < 2:
            await asyncio.sleep(0)
        assert every == [("secret",), ("shown",)]
        assert seen == [("shown",)]


@live
async def test_a_hidden_server_that_is_removed_is_reported_to_no_program_and_no_client() -> None:
    entries = {key: entry_of(key, with_lists()) for key in ("shown", "secret", "other")}
    rules = Policy([Rule("deny", servers="secret"), Rule("allow")])
    config = Config(entries=entries, policy=rules)
    async with Host(config) as host:
        gateway, seen, heard = Gateway(host), list[tuple[str, ...]](), list[str]()
        gateway.watch_changes(lambda method, _: heard.append(method), "ann")
        facts = CallerFilter(host._runtime, CallerFacts("ann"))  # pyright: ignore[reportPrivateUsage]
        gateway.changes.note("ann", facts)
        await gateway.start()
        every: list[tuple[str, ...]] = []
        host.watch(lambda changes: seen.append(changes.servers))
        host.watch(lambda changes: every.append(changes.servers), all_callers=True)
        entries = {key: one for key, one in entries.items() if key != "secret"}
        config = replace(config, entries=entries)
        await host.reload(config)
        while not every:
            await asyncio.sleep(0)
        config = replace(config, entries={"shown": entries["shown"]})
        await host.reload(config)
        while "notifications/tools/list_changed" not in heard:
            await asyncio.sleep(0)
        assert every == [("secret",), ("other",)]
        assert seen == [("other",)]
        assert heard.count("notifications/tools/list_changed") == 1
        await gateway.stop()


@live
async def test_a_change_that_another_process_noticed_is_for_callers_that_see_all_servers() -> None:
    rules = [Rule("deny", servers="secret", principals="bob"), Rule("allow")]
    async with Host({"secret": notes()}, policy=Policy(rules)) as host:
        gateway = Gateway(host)
        heard: dict[str, list[str]] = {"ann": [], "bob": []}
        for who in heard:
            gateway.watch_changes(lambda method, _, who=who: heard[who].append(method), who)
            facts = CallerFilter(host._runtime, CallerFacts(who))  # pyright: ignore[reportPrivateUsage]
            gateway.changes.note(who, facts)
        await gateway.start()
        method = "notifications/tools/list_changed"
        gateway.changes.publish(method, t.NotificationParams(), None)  # as a replica delivers it
        while not heard["ann"]:
            await asyncio.sleep(0)
        assert heard == {"ann": [method], "bob": []}
        await gateway.stop()


@live
async def test_clients_are_told_of_other_rules_that_hide_all_servers_from_them() -> None:
    config = Config(entries={"n": entry_of("n", with_lists())}, policy=Policy(default="allow"))
    async with Host(config) as host, connect(Gateway(host), revision=NEW) as client:
        assert await client.list_tools()
        async with client.listen(tools=True) as changes:
            await host.reload(replace(config, policy=Policy(default="deny")))
            assert (await anext(changes)).kind == "tools"
        assert await client.list_tools(fresh=True) == []
