"""Changed roots of a client are notified in its own sessions with servers of handshake revisions."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from colonnade import Context, Gateway, Host, RemoteError, Server, connect
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL
from gateway.recorded import NEW, OLD, Cell, RecordedWire, recorded
from gateway.served import served
from live import live, until

HERE = Path(__file__).parent
CHANGED = "notifications/roots/list_changed"
HANDSHAKES = [revision.date for revision in ALL if revision.handshake]


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = where
    return server


def offering(*folders: Path) -> InputCallbacks:
    return InputCallbacks(roots=[str(one) for one in folders])


def changes(wire: RecordedWire) -> int:
    return len(wire.said(Side.CLIENT, CHANGED))


async def asked_outside_of_a_call(cell: Cell, number: int = -1) -> list[str]:
    """The roots that a server gets while there is no call."""
    duplex: Any = cell.ends[number]._reader
    raw = await duplex.request("roots/list", t.ListRootsRequestParams(), 30.0)
    return [root["uri"] for root in msgspec.json.decode(raw)["roots"]]


@pytest.mark.parametrize("upstream", HANDSHAKES)
@pytest.mark.parametrize("downstream", HANDSHAKES)
@live
async def test_changed_roots_are_notified_and_read_outside_of_calls(
    downstream: str, upstream: str
) -> None:
    async with recorded(asking(), upstream=upstream, downstream=downstream, roots="caller") as cell:
        client = await cell.connect(offering(HERE))
        assert HERE.as_uri() in (await client.call_tool("s__where")).text
        assert await asked_outside_of_a_call(cell) == [HERE.as_uri()]
        (declared,) = cell.server_wire.said(Side.CLIENT, "initialize")
        assert declared["capabilities"]["roots"] == {"listChanged": True}
        await client.roots_changed([str(HERE.parent)])
        await until(lambda: changes(cell.server_wire) == 1)
        assert await asked_outside_of_a_call(cell) == [HERE.parent.as_uri()]
        cell.check()


@live
async def test_only_the_sessions_of_that_client_are_notified() -> None:
    async with recorded(asking(), upstream=OLD, downstream=OLD, roots="caller") as cell:
        first = await cell.connect(offering(HERE))
        second = await cell.connect(offering(HERE.parent))
        for client in (first, second):
            await client.call_tool("s__where")
        assert len(cell.back) == 2
        await first.roots_changed([str(HERE.parents[1])])
        await until(lambda: changes(cell.back[0]) == 1)
        assert await asked_outside_of_a_call(cell, 0) == [HERE.parents[1].as_uri()]
        assert await asked_outside_of_a_call(cell, 1) == [HERE.parent.as_uri()]
        assert changes(cell.back[1]) == 0
        cell.check()


@pytest.mark.parametrize(("upstream", "roots"), [(OLD, ()), (OLD, (str(HERE),)), (NEW, "caller")])
@live
async def test_a_server_that_may_not_know_the_roots_is_not_notified(
    upstream: str, roots: Any
) -> None:
    async with recorded(asking(), upstream=upstream, downstream=OLD, roots=roots) as cell:
        client = await cell.connect(offering(HERE))
        await client.call_tool("s__where")
        await client.roots_changed([str(HERE.parent)])
        await client.call_tool("s__where")
        assert changes(cell.client_wire) == 1
        assert changes(cell.server_wire) == 0
        cell.check()


@live
async def test_a_client_that_does_not_notify_of_changes_is_not_declared_to() -> None:
    async with recorded(asking(), upstream=OLD, downstream=NEW, roots="caller") as cell:
        client = await cell.connect(offering(HERE))
        assert HERE.as_uri() in (await client.call_tool("s__where")).text
        (declared,) = cell.server_wire.said(Side.CLIENT, "initialize")
        assert declared["capabilities"]["roots"] == {}


@live
async def test_a_policy_that_denies_roots_denies_them_after_a_change() -> None:
    policy = Policy([Rule("deny", requests="roots")], default="allow")
    async with recorded(
        asking(), upstream=OLD, downstream=OLD, roots="caller", policy=policy
    ) as cell:
        client = await cell.connect(offering(HERE))
        await client.call_tool("s__where")
        await client.roots_changed([str(HERE.parent)])
        await until(lambda: changes(cell.server_wire) == 1)
        assert await asked_outside_of_a_call(cell) == []
        assert cell.client_wire.said(Side.SERVER, "roots/list") == []


@live
async def test_changed_roots_are_notified_over_http() -> None:
    seen: list[str] = []

    class Watching(Server):
        def on_notification(self, notification: Any, peer: Any) -> None:
            seen.append(notification.method.name)

    server = Watching("asking")

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = where
    async with served(server) as target:
        entry = entry_of("s", target, Settings(revision=OLD, roots="caller"))
        async with (
            Host({"s": entry}) as host,
            served(Gateway(host)) as url,
            connect(url, revision=OLD, roots=[str(HERE)]) as client,
        ):
            await client.call_tool("s__where")
            await client.roots_changed([str(HERE.parent)])
            await until(lambda: CHANGED in seen)
            assert HERE.parent.as_uri() in (await client.call_tool("s__where")).text


@live
async def test_a_policy_that_denies_the_roots_of_one_caller_denies_them_after_a_change() -> None:
    policy = Policy([Rule("deny", requests="roots", principals="ada")], default="allow")
    async with recorded(
        asking(), upstream=OLD, downstream=OLD, roots="caller", policy=policy
    ) as cell:
        for number, (name, shown) in enumerate((("ada", []), ("bob", [HERE.parent.as_uri()]))):
            client = await cell.connect(offering(HERE), principal=name)
            await client.call_tool("s__where")
            await client.roots_changed([str(HERE.parent)])
            await until(lambda number=number: changes(cell.back[number]) == 1)
            assert await asked_outside_of_a_call(cell, number) == shown


@live
async def test_a_policy_that_denies_the_roots_of_one_caller_denies_configured_ones() -> None:
    """Also if the server asks while there is no call."""
    policy = Policy([Rule("deny", requests="roots", principals="ada")], default="allow")
    async with recorded(
        asking(), upstream=OLD, downstream=OLD, roots=(str(HERE),), policy=policy
    ) as cell:
        client = await cell.connect(principal="ada")
        assert (await client.call_tool("s__where")).is_error
        with pytest.raises(RemoteError):
            await asked_outside_of_a_call(cell, 0)
        client = await cell.connect(principal="bob")
        await client.call_tool("s__where")
        assert await asked_outside_of_a_call(cell, 1) == [HERE.as_uri()]
