"""Changes as one stream, where they come in the session and where they come on subscriptions."""

import asyncio
from typing import Any

import pytest

from client.scripted_server import JSON, Refusal, scripted_server
from colonnade import Server
from colonnade.client import subscriptions as listening_module
from colonnade.client.subscriptions import Change, ChangeStream
from colonnade.errors import ConnectionLost, RemoteError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, ChangeNotifications, Revision
from colonnade.testing import Clock, connect, every_revision
from live import live, until


def notes() -> Server:
    server = Server("notes")

    @server.tool
    def one() -> None: ...

    @server.tool
    def two() -> None: ...

    @server.prompt
    def prompt() -> str:
        return ""

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    server.resource("notes://index")(lambda: "index")
    return server


async def next_of(changes: ChangeStream) -> Change:
    async with asyncio.timeout(60):
        return await anext(changes)


@live
async def test_changes_are_told_in_every_revision(revision: Revision) -> None:
    server = notes()
    async with (
        connect(server, revision.date) as client,
        client.listen(tools=True, prompts=True, resource_list=True, resources=["notes://a"]) as all,
    ):
        server.disable("two")
        assert await next_of(all) == Change("tools")
        server.disable("prompt")
        assert await next_of(all) == Change("prompts")
        server.disable("notes://index")
        assert await next_of(all) == Change("resources")
        server.updated("notes://a")
        assert await next_of(all) == Change("resource", "notes://a")
        server.updated("notes://a/part")  # a part is news of the whole
        assert await next_of(all) == Change("resource", "notes://a/part")


@live
async def test_only_what_was_asked_for_is_told(revision: Revision) -> None:
    server = notes()
    async with (
        connect(server, revision.date) as client,
        client.listen(prompts=True, resources=["notes://a"]) as mine,
        client.listen(tools=True, resources=["notes://b"]) as other,
    ):
        server.disable("two")
        server.updated("notes://a")
        server.updated("notes://b")
        assert await next_of(mine) == Change("resource", "notes://a")
        found = {await next_of(other), await next_of(other)}
        assert found == {Change("tools"), Change("resource", "notes://b")}
        server.disable("prompt")
        assert await next_of(mine) == Change("prompts")


@live
async def test_the_same_change_twice_is_one_until_somebody_looks(revision: Revision) -> None:
    server = notes()
    async with (
        connect(server, revision.date) as client,
        client.listen(tools=True, resources=["notes://a"]) as changes,
    ):
        for _ in range(5):
            server.disable("two")
            await asyncio.sleep(0)
            server.enable("two")
            await asyncio.sleep(0)
        server.updated("notes://a")
        await until(lambda: bool(client.record.said("server", "notifications/resources/updated")))
        await client.ping()  # what was said before has arrived
        assert await next_of(changes) == Change("tools")
        assert await next_of(changes) == Change("resource", "notes://a")


@live
async def test_who_leaves_is_told_no_more_and_the_server_learns_so(revision: Revision) -> None:
    server = notes()
    async with connect(server, revision.date) as client:
        async with client.listen(resources=["notes://a"]):
            async with client.listen(resources=["notes://a", "notes://b"]):
                pass
            if revision.change_notifications is ChangeNotifications.SESSION:
                left = client.record.said("client", "resources/unsubscribe")
                assert [one["params"]["uri"] for one in left] == ["notes://b"]
        said = [one["method"] for one in client.record.said("client") if "method" in one]
    if revision.change_notifications is ChangeNotifications.SESSION:
        assert said[-1] == "resources/unsubscribe"
        assert said.count("resources/unsubscribe") == 2
    else:
        assert said.count("notifications/cancelled") == said.count("subscriptions/listen") == 2


@live
async def test_a_lost_connection_is_an_error_after_what_was_told_before(
    revision: Revision,
) -> None:
    server = notes()
    async with (
        connect(server, revision.date) as client,
        client.listen(tools=True) as changes,
    ):
        server.disable("two")
        assert await next_of(changes) == Change("tools")
        server.enable("two")
        await until(lambda: _told(client.record.said("server")) == 2)
        await client.ping()
        await client.close()
        assert await next_of(changes) == Change("tools")
        with pytest.raises(ConnectionLost):
            await next_of(changes)


def _told(messages: list[Any]) -> int:
    return sum(one.get("method") == "notifications/tools/list_changed" for one in messages)


@live
async def test_who_falls_too_far_behind_is_told_to_look_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_module, "MAX_PENDING", 3)
    changes = ChangeStream(t.SubscriptionFilter())
    for number in range(4):
        changes.put(Change("resource", f"a://{number}"))
    with pytest.raises(ConnectionLost, match="changes were missed"):
        await next_of(changes)


@live
async def test_addresses_that_nobody_looked_at_are_bounded_in_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening_module, "MAX_PENDING_CHARS", 100)
    changes = ChangeStream(t.SubscriptionFilter())
    for number in range(10):
        changes.put(Change("resource", f"a://{number}" + "x" * 85))
        changes.put(Change("resource", f"a://{number}" + "x" * 85))  # which is the same
        assert (await next_of(changes)).kind == "resource"
    changes.put(Change("resource", "a://" + "x" * 60))
    changes.put(Change("resource", "b://" + "x" * 60))
    with pytest.raises(ConnectionLost, match="changes were missed"):
        await next_of(changes)


# ---------------------------------------------------------------- on subscriptions


SUBSCRIBED = pytest.mark.parametrize(
    "revision",
    [one for one in ALL if one.change_notifications is ChangeNotifications.LISTEN],
    ids=lambda one: one.date,
)
TAG = "io.modelcontextprotocol/subscriptionId"
TOOLS_CHANGED = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTEN = "subscriptions/listen"


def silence(params: JSON) -> None:
    """No answer yet."""


@SUBSCRIBED
@live
async def test_listening_begins_with_the_acknowledgement_which_says_what_will_be_told(
    revision: Revision,
) -> None:
    async with scripted_server(revision, {LISTEN: silence}) as (client, server):

        async def listened() -> tuple[bool | None, bool | None, Change]:
            async with client.listen(tools=True, prompts=True) as changes:
                agreed = changes.agreed
                return (
                    agreed.tools_list_changed,
                    agreed.prompts_list_changed,
                    await next_of(changes),
                )

        listening = asyncio.ensure_future(listened())
        id = (await server.wait_for(LISTEN))["id"]
        assert not listening.done()
        meta = {TAG: id}
        server.notify(ACKNOWLEDGED, {"notifications": {"toolsListChanged": True}, "_meta": meta})
        server.notify(TOOLS_CHANGED, {"_meta": {TAG: 999}})  # somebody else's
        server.notify("notifications/prompts/list_changed", {"_meta": meta})
        assert await listening == (True, None, Change("prompts"))


@SUBSCRIBED
@live
async def test_a_subscription_that_the_server_ends_ends_the_stream(revision: Revision) -> None:
    async with scripted_server(revision, {LISTEN: silence}) as (client, server):

        async def listened() -> list[Change]:
            async with client.listen(tools=True) as changes:
                return [change async for change in changes]

        listening = asyncio.ensure_future(listened())
        id = (await server.wait_for(LISTEN))["id"]
        server.notify(ACKNOWLEDGED, {"notifications": {}, "_meta": {TAG: id}})
        server.notify(TOOLS_CHANGED, {"_meta": {TAG: id}})
        end = {"resultType": "complete", "_meta": {TAG: id}}
        server.send({"jsonrpc": "2.0", "id": id, "result": end})
        assert await listening == [Change("tools")]
        assert not server.requests("notifications/cancelled")


@SUBSCRIBED
@live
async def test_a_subscription_that_is_refused_or_never_acknowledged_is_an_error(
    revision: Revision,
) -> None:
    def refuse(params: JSON) -> JSON:
        raise Refusal(-32603, "too many listen")

    async with scripted_server(revision, {LISTEN: refuse}) as (client, _):
        with pytest.raises(RemoteError, match="too many listen"):
            async with client.listen(tools=True):
                raise AssertionError("it was refused")
    async with scripted_server(revision, {LISTEN: silence}, timeout_s=0.5) as (client, server):
        with pytest.raises(TimedOut):
            async with client.listen(tools=True):
                raise AssertionError("nobody answered")
        assert await server.wait_for("notifications/cancelled")


@every_revision
async def test_listening_outlives_the_time_out_of_every_request(revision: str) -> None:
    server, clock = notes(), Clock()
    async with (
        connect(server, revision, clock=clock) as client,
        client.listen(tools=True) as changes,
    ):
        await clock.advance(24 * 3600)
        server.disable("two")
        assert await anext(changes) == Change("tools")
