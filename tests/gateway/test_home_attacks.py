"""Attacks on homes: by what is in the store, by other gateways on it, and by other replicas."""

import asyncio
import time
from collections.abc import Callable

import msgspec
import pytest

from colonnade import Gateway, Host, Server
from colonnade.auth.seal import KeyRing
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.gateway import homes as module
from colonnade.gateway.homes import HomeRecord
from colonnade.host.servers.homes import HomeLost
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.protocol.link.events import NotificationReceived
from colonnade.replicas.remote_messages import describe_request, encode_remote
from colonnade.replicas.remote_request import BEGIN
from colonnade.replicas.replica import MESSAGE_VERSION, ReplicaMessage, draw_replica_name
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.sessions.shared_session import ENDED
from gateway.recorded import NEW, OLD, recorded, revision_of
from gateway.replicas import KEYS, Fleet, Notebook, replicas, said
from live import Records, live, until
from replicas.remote import CallerContext

OTHER_KEYS = [b"o" * 32]
RING = KeyRing(KEYS, audience="gateway")


class WatchedStore(MemoryStore):
    """A shared store that keeps all that was written to it and published on it."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.published: list[tuple[str, bytes]] = []
        self.written: list[tuple[str, bytes]] = []

    async def publish(self, principal: str, topic: str, message: bytes) -> None:
        self.published.append((topic, message))
        await super().publish(principal, topic, message)

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        self.written.append((key, value))
        await super().put(principal, key, value, ttl_s)

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        self.written.append((key, value))
        return await super().add(principal, key, value, ttl_s)

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        self.written.append((key, after or b""))
        return await super().swap(principal, key, before, after, ttl_s)


def home_key(fleet: Fleet) -> str:
    """What a request to the session at the first replica is for."""
    (home,) = fleet.homes(0)._own.values()
    return f"home {home.id} {home.number}"


# ---------------------------------------------------------------- messages


def forged_begin(fleet: Fleet, principal: str) -> bytes:
    """A request to call a tool at the home, as another replica would send it."""
    context = CallerContext(fleet.notebook.server, "add", {"note": "forged"}, principal=principal)
    begin = describe_request(context, "0" * 32, home_key(fleet), time.time() + 60.0, None)
    message = ReplicaMessage(
        MESSAGE_VERSION, draw_replica_name(), "request", BEGIN, 1, encode_remote(begin)
    )
    return msgspec.msgpack.encode(message)


@pytest.mark.parametrize(
    "disguise",
    [
        pytest.param(lambda data, topic: data, id="without keys"),
        pytest.param(
            lambda data, topic: KeyRing(OTHER_KEYS, audience="gateway").encrypt(data, topic),
            id="with other keys",
        ),
        pytest.param(
            lambda data, topic: KeyRing(KEYS, audience="gateway-dev").encrypt(data, topic),
            id="of a view",
        ),
        pytest.param(lambda data, topic: RING.encrypt(data, b"replicas gateway"), id="for all"),
    ],
)
def test_a_request_that_is_written_into_the_store_is_not_run(
    disguise: Callable[[bytes, bytes], bytes],
) -> None:
    @live
    async def exercise() -> None:
        notebook = Notebook()
        async with replicas(notebook) as fleet:
            assert await fleet.call("add", fleet.clients[0], note="x") == "1"
            topic = f"replica {fleet.replica(0).name}"
            data = disguise(forged_begin(fleet, "ada"), topic.encode())
            await fleet.store.publish(SERVER_PRINCIPAL, topic, data)
            assert await fleet.call("add", fleet.clients[1], note="y") == "2"
            assert notebook.effects == ["x", "y"]

    exercise()


@live
async def test_the_same_message_with_the_keys_is_run_so_that_this_shows_something() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        topic = f"replica {fleet.replica(0).name}"
        data = RING.encrypt(forged_begin(fleet, "ada"), topic.encode())
        await fleet.store.publish(SERVER_PRINCIPAL, topic, data)
        await until(lambda: notebook.effects == ["x", "forged"])


@live
async def test_a_request_of_another_principal_is_not_run_at_a_home() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        context = CallerContext(notebook.server, "add", {"note": "bob's"}, principal="bob")
        remote = fleet.cells[1].gateway._bridge._remote
        assert remote is not None
        response = await remote.run(context, fleet.replica(0).name, home_key(fleet))
        assert msgspec.json.decode(response or b"")["error"]["data"] == {"home": "moved"}
        assert notebook.effects == ["x"]


@live
async def test_messages_that_are_sent_again_have_no_effect() -> None:
    notebook, store = Notebook(), WatchedStore()
    async with replicas(notebook, store=store) as fleet:
        for number, client in enumerate(fleet.clients):
            await fleet.call("add", client, note=str(number))
        copies = list(store.published)
        for name in await store.names(SERVER_PRINCIPAL, "remote ", "", 100):
            await store.delete(SERVER_PRINCIPAL, name)
        for topic, message in copies:
            await store.publish(SERVER_PRINCIPAL, topic, message)
        assert await fleet.call("add", fleet.clients[1], note="last") == "4"
        assert notebook.effects == ["0", "1", "2", "last"]


@live
async def test_messages_that_are_cut_or_altered_on_the_way_are_ignored() -> None:
    notebook, store = Notebook(), WatchedStore()
    async with replicas(notebook, store=store) as fleet:
        for number, client in enumerate(fleet.clients):
            await fleet.call("add", client, note=str(number))
        for topic, message in list(store.published):
            for altered in (message[:-1], message[: len(message) // 2], message + b"\0", b""):
                await store.publish(SERVER_PRINCIPAL, topic, altered)
            flipped = bytearray(message)
            flipped[len(message) // 2] ^= 1
            await store.publish(SERVER_PRINCIPAL, topic, bytes(flipped))
        assert await fleet.call("add", fleet.clients[1], note="last") == "4"
        assert notebook.effects == ["0", "1", "2", "last"]


@live
async def test_nothing_of_a_call_is_readable_in_the_store() -> None:
    notebook, store = Notebook(), WatchedStore()

    def answer(params: t.ElicitRequestParams) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"value": "canary-form"})

    answers = InputCallbacks(on_elicit=answer)
    async with replicas(notebook, store=store, answers=answers, principal="canary-ada") as fleet:
        for client in fleet.clients:
            await fleet.call("add", client, note="canary-argument")
            assert await fleet.call("ask", client) == "canary-form"
            await client.list_tools()
        for cell in fleet.cells:
            assert cell.gateway._manifests is not None
            await cell.gateway._manifests.close()
    everything = store.published + store.written
    assert len(everything) > 20
    for name, data in everything:
        assert b"canary" not in data, name
        assert "canary" not in name
        assert b"inputSchema" not in data, name  # a manifest


# ---------------------------------------------------------------- entries


def other_release(fleet: Fleet, key: str) -> bytes:
    record = HomeRecord(2, fleet.replica(0).name, 1, "new")
    return RING.encrypt(encode_remote(record), key.encode())


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda fleet, key: b"junk", id="junk"),
        pytest.param(lambda fleet, key: b"", id="empty"),
        pytest.param(
            lambda fleet, key: encode_remote(HomeRecord(1, "", 0, "")), id="without the keys"
        ),
        pytest.param(
            lambda fleet, key: RING.encrypt(encode_remote(HomeRecord(1, "", 0, "")), b"home other"),
            id="of another caller",
        ),
        pytest.param(other_release, id="of a newer release"),
    ],
)
def test_an_entry_that_cannot_be_read_is_not_taken_over(value: Callable[..., bytes]) -> None:
    @live
    async def exercise() -> None:
        notebook = Notebook()
        async with replicas(notebook) as fleet:
            assert await fleet.call("add", fleet.clients[0], note="x") == "1"
            (home,) = fleet.homes(0)._own.values()
            key = f"home {home.id}"
            await fleet.store.put(SERVER_PRINCIPAL, key, value(fleet, key), 600.0)
            refused = await fleet.send("add", fleet.clients[1], note="y")
            assert refused.is_error
            assert "with other keys, or of another release" in said(refused)
            assert "nothing was started" in said(refused)
            assert notebook.effects == ["x"]
            assert sum(fleet.opened) == 1

    exercise()


@live
async def test_two_gateways_of_one_name_with_other_keys_do_not_use_each_other_s_processes() -> None:
    first, second = Notebook(), Notebook()
    async with replicas(first, count=1) as fleet:
        assert await fleet.call("add", note="first") == "1"
        making = recorded(
            second.server, upstream=OLD, downstream=NEW, store=fleet.store, keys=OTHER_KEYS
        )
        async with making as cell:
            client = await cell.connect(principal="ada")
            answer = await fleet.call("add", client, note="second")
            assert "with other keys" in answer
        assert first.effects == ["first"]
        assert second.effects == []
        assert await fleet.call("add", note="third") == "2"


@live
async def test_a_gateway_without_keys_has_its_own_processes() -> None:
    first, second = Notebook(), Notebook()
    async with replicas(first, count=1) as fleet:
        assert await fleet.call("add", note="first") == "1"
        making = recorded(second.server, upstream=OLD, downstream=NEW, store=fleet.store)
        async with making as cell:
            client = await cell.connect(principal="ada")
            assert await fleet.call("add", client, note="second") == "1"
        assert (first.effects, second.effects) == (["first"], ["second"])


class SlowSwaps(MemoryStore):
    """A store that says later that the entry of a home was changed."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.is_slow = False
        self.swapped = asyncio.Event()
        self.go = asyncio.Event()

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        swapped = await super().swap(principal, key, before, after, ttl_s)
        if self.is_slow and key.startswith("home "):
            self.is_slow = False
            self.swapped.set()
            await self.go.wait()
        return swapped


@live
async def test_a_home_that_is_released_while_it_is_renewed_leaves_no_entry() -> None:
    store = SlowSwaps()
    async with replicas(Notebook(), store=store) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        (home,) = fleet.homes(0)._own.values()
        store.is_slow = True
        renewing = asyncio.create_task(home.confirm())
        await store.swapped.wait()
        fleet.cells[0].host.restart("s")
        await asyncio.sleep(0)
        store.go.set()
        await renewing
        await home.released.wait()
        assert await store.get(SERVER_PRINCIPAL, f"home {home.id}") is None


@live
async def test_a_home_that_is_renewed_while_it_is_released_leaves_no_entry() -> None:
    store = SlowSwaps()
    async with replicas(Notebook(), store=store) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        (home,) = fleet.homes(0)._own.values()
        store.is_slow = True
        fleet.cells[0].host.restart("s")
        await store.swapped.wait()  # the entry is deleted, and the replica does not know it yet
        with pytest.raises(HomeLost):
            await home.confirm()
        store.go.set()
        await home.released.wait()
        assert await store.get(SERVER_PRINCIPAL, f"home {home.id}") is None


@live
async def test_a_home_whose_renewal_was_cut_off_leaves_no_entry() -> None:
    store = SlowSwaps()
    async with replicas(Notebook(), store=store) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        (home,) = fleet.homes(0)._own.values()
        store.is_slow = True
        renewing = asyncio.create_task(home.confirm())
        await store.swapped.wait()
        renewing.cancel()
        await asyncio.wait([renewing])
        fleet.cells[0].host.restart("s")
        await home.released.wait()
        assert await store.get(SERVER_PRINCIPAL, f"home {home.id}") is None


@live
async def test_a_lease_that_is_deleted_while_its_replica_lives_lets_no_two_homes_live() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.store.delete(SERVER_PRINCIPAL, f"replica {fleet.replica(0).name}")
        fleet.replica(1)._leases.clear()
        assert "its state is gone" in await fleet.call("add", fleet.clients[1], note="y")
        assert await fleet.call("add", fleet.clients[1], note="z") == "1"
        # At its next renewal the first one notices, and ends its session.
        await until(lambda: not fleet.homes(0)._own)
        assert await fleet.call("add", fleet.clients[0], note="w") == "2"
        assert notebook.notes == {0: ["x"], 1: ["z", "w"]}


# ---------------------------------------------------------------- what a server sends


@live
async def test_changes_that_a_server_announces_in_a_storm_wait_in_bounded_memory() -> None:
    async with replicas(Notebook()) as fleet:
        for client in fleet.clients:
            await fleet.call("add", client, note="x")
        (home,) = fleet.homes(0)._own.values()
        method = revision_of(OLD).methods["notifications/resources/updated"]
        for number in range(2000):
            params = msgspec.Raw(msgspec.json.encode({"uri": f"notes://{number}"}))
            home.notified(NotificationReceived(method, params))
        assert len(home.changes) <= module.MAX_CHANGES
        assert len(fleet.homes(0)._tasks) <= 2
        await until(lambda: not home.changes)


@live
async def test_a_replica_that_has_ended_is_notified_no_more() -> None:
    async with replicas(Notebook()) as fleet:
        for client in fleet.clients:
            await fleet.call("add", client, note="x")
        (home,) = fleet.homes(0)._own.values()
        assert len(home.followers) == 2
        await fleet.kill(2)
        method = revision_of(OLD).methods["notifications/tools/list_changed"]
        home.notified(NotificationReceived(method, msgspec.Raw(b"{}")))
        await until(lambda: list(home.followers) == [fleet.replica(1).name])


@live
async def test_a_replica_without_a_session_reads_a_list_again_that_changed_at_the_home() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.clients[0].list_tools()
        await fleet.call("add", fleet.clients[0], note="x")
        manifests = fleet.cells[0].gateway._manifests
        assert manifests is not None
        await until(lambda: not manifests._tasks)
        await fleet.clients[2].list_tools(fresh=True)
        assert fleet.opened == [1, 0, 0]
        assert not fleet.homes(2)._connections  # it has the list of the manifest

        def added() -> str:
            return "new"

        notebook.server.tool(added)

        async def names() -> list[str]:
            return [tool.name for tool in await fleet.clients[2].list_tools(fresh=True)]

        while "s__added" not in await names():
            await asyncio.sleep(0.01)
        assert sum(fleet.opened) == 1


# ---------------------------------------------------------------- one replica


@live
async def test_a_gateway_is_one_replica_with_its_sessions() -> None:
    store = WatchedStore()
    with Records("colonnade.replicas") as records:
        apps = [Gateway(Host({"s": Server("s")}), store=store, keys=KEYS).asgi() for _ in range(2)]
        for app in apps:
            await app.start()
        assert len(await store.names(SERVER_PRINCIPAL, "replica ", "", 10)) == 2
        assert apps[0]._replica is not None
        await apps[0]._replica.broadcast(ENDED, b"canary")
        assert store.published
        assert not [data for _, data in store.published if b"canary" in data]
        await asyncio.sleep(0)
        for app in apps:
            await app.stop()
        assert await store.names(SERVER_PRINCIPAL, "replica ", "", 10) == []
    assert [line for line in records.lines if "unknown kind" in line] == []
