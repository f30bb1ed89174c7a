"""The Redis store over TLS, with sentinels, and on a cluster.

Rules: real servers of one test or one module; a failover and a move of slots are real, too.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from colonnade.errors import CannotConnect, ChannelError
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store.redis import RedisStore
from store.redis_server import RedisServer, free_port, redis_server
from store.store_fixture import PATIENCE_S
from store.test_redis import RedisTest, run


async def everything(store: RedisStore, mark: bytes = b"m") -> None:
    """Each kind of call, of several principals, so of several slots."""
    who = [f"p{n}" for n in range(20)] + ["", SERVER_PRINCIPAL]
    assert all(await asyncio.gather(*(store.add(p, "k", p.encode(), 60.0) for p in who)))
    for p in who:
        assert await store.get(p, "k") == p.encode()
        assert await store.swap(p, "k", p.encode(), b"after", None) is True
        assert await store.count(p, "n", 2, None) == 2
        assert await store.names(p, "", "", 10) == ["k", "n"]
        assert await store.use_once(p, mark, 60.0) is True
        assert await store.append(p, "log", b"1", None) == 1
        assert await store.read(p, "log", 0) == [(1, b"1")]
        async with store.listen(p, "t") as heard:
            await store.publish(p, "t", p.encode())
            assert await anext(heard) == p.encode()
        await store.drop(p, "log")
        await store.delete(p, "k")
        await store.delete(p, "n")


# ---------------------------------------------------------------- TLS


def test_tls_verifies_the_server_and_its_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    authority, stranger = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    authority.serving("127.0.0.1")
    own = str(tmp_path / "a" / "server.pem")  # with its key
    port = free_port()
    options = ["--tls-port", f"{port}", "--port", "0", "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", own, "--tls-key-file", own, "--tls-ca-cert-file", own]
    server = RedisServer(tmp_path / "redis", *options, port=port)

    async def fails(store: RedisStore) -> None:
        with pytest.raises(CannotConnect, match="cannot be reached"):
            await store.get("ada", "k")

    server.start()
    try:
        place = f"rediss://127.0.0.1:{server.port}"
        run(RedisStore(f"{place}?ca={authority.file}"), everything)
        run(RedisStore(f"{place}?ca={stranger.file}", timeout_s=0.5), fails)
        run(RedisStore(place, timeout_s=0.5), fails)  # not known to the system
        other = f"rediss://localhost:{server.port}?ca={authority.file}"
        run(RedisStore(other, timeout_s=0.5), fails)
    finally:
        server.stop()


# ---------------------------------------------------------------- sentinels


def test_sentinels_name_the_primary_also_after_a_failover(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(redis_server(tmp_path / "first"))
        follow = ["--replicaof", "127.0.0.1", f"{first.port}"]
        second = stack.enter_context(redis_server(tmp_path / "second", follow))
        sentinel = RedisServer(tmp_path / "sentinel", is_sentinel=True)
        sentinel.start()
        stack.callback(sentinel.stop)
        guard = sentinel.client()
        stack.callback(guard.close)
        guard.execute_command("SENTINEL MONITOR", "press", "127.0.0.1", first.port, 1)
        guard.execute_command("SENTINEL SET", "press", "down-after-milliseconds", 1000)
        guard.execute_command("SENTINEL SET", "press", "failover-timeout", 3000)
        leader, follower = first.client(), second.client()
        stack.callback(leader.close)
        stack.callback(follower.close)
        _wait_for(lambda: follower.info("replication")["master_link_status"] == "up")
        _wait_for(lambda: guard.execute_command("SENTINEL REPLICAS", "press"))

        async def body(store: RedisStore) -> None:
            await everything(store)
            await store.put("ada", "k", b"v", None)
            async with store.listen("ada", "t") as heard:
                await asyncio.to_thread(_wait_for, lambda: follower.dbsize() == leader.dbsize())
                await asyncio.to_thread(first.kill)
                with pytest.raises(ChannelError):
                    await anext(heard)
            while True:
                try:
                    await store.put("ada", "k", b"w", None)
                    break
                except ChannelError:
                    await asyncio.sleep(0.05)
            assert follower.info("replication")["role"] == "master"
            await everything(store, b"another mark")

        run(RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/press"), body)


def test_a_service_that_no_sentinel_knows_is_an_error(tmp_path: Path) -> None:
    sentinel = RedisServer(tmp_path, is_sentinel=True)
    sentinel.start()

    async def body(store: RedisStore) -> None:
        with pytest.raises(CannotConnect, match="press"):
            await store.get("ada", "k")

    try:
        place = f"redis+sentinel://127.0.0.1:{sentinel.port}/press"
        run(RedisStore(place, timeout_s=0.5), body)
    finally:
        sentinel.stop()


# ---------------------------------------------------------------- cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[RedisServer], None, None]:
    """Three primaries that share the slots."""
    with ExitStack() as stack:
        options = ["--cluster-enabled", "yes", "--cluster-port"]
        buses = [str(free_port()) for _ in range(3)]
        nodes = [
            stack.enter_context(redis_server(tmp_path_factory.mktemp("node"), [*options, bus]))
            for bus in buses
        ]
        clients = [stack.enter_context(node.client()) for node in nodes]
        for client, first, last in zip(
            clients, (0, 5461, 10923), (5460, 10922, 16383), strict=True
        ):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port, buses[0])
        _wait_for(lambda: all(_is_whole(client) for client in clients))
        yield nodes


def _is_whole(client: Any) -> bool:
    known = client.execute_command("CLUSTER INFO")
    return known["cluster_state"] == "ok" and known["cluster_known_nodes"] == "3"


def _on_cluster(nodes: list[RedisServer], body: RedisTest) -> None:
    places = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    run(RedisStore(f"redis://{places}", cluster=True, timeout_s=PATIENCE_S / 4), body)


def test_every_call_works_on_a_cluster(cluster: list[RedisServer]) -> None:
    _on_cluster(cluster, everything)


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    async def body(store: RedisStore) -> None:
        for _ in range(2):
            with pytest.raises(CannotConnect, match="cannot be reached"):
                await store.get("ada", "k")
            with pytest.raises(CannotConnect, match="cannot be reached"):
                async with store.listen("ada", "t"):
                    pass

    url = f"redis://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    run(RedisStore(url, cluster=True, timeout_s=0.3), body)


def test_one_server_is_no_cluster(server: RedisServer) -> None:
    async def body(store: RedisStore) -> None:
        with pytest.raises(CannotConnect, match="cannot be reached"):
            await store.get("ada", "k")

    run(RedisStore(server.url, cluster=True, timeout_s=0.3), body)


def test_a_node_that_dies_fails_calls_until_it_is_back_and_then_none(
    cluster: list[RedisServer],
) -> None:
    async def body(store: RedisStore) -> None:
        principals = [f"p{n}" for n in range(20)]
        await asyncio.gather(*(store.get(p, "k") for p in principals))
        await asyncio.to_thread(cluster[2].kill)
        gets = [store.get(p, "k") for p in principals]
        outcomes = await asyncio.gather(*gets, return_exceptions=True)
        assert any(isinstance(one, ChannelError) for one in outcomes)
        assert all(one is None or isinstance(one, ChannelError) for one in outcomes)
        await asyncio.to_thread(cluster[2].start)
        while True:
            gets = [store.get(p, "k") for p in principals]
            if await asyncio.gather(*gets, return_exceptions=True) == [None] * len(principals):
                break
            await asyncio.sleep(0.05)

    _on_cluster(cluster, body)


def test_one_node_of_a_cluster_is_enough_to_find_the_others(cluster: list[RedisServer]) -> None:
    _on_cluster(cluster[:1], lambda store: everything(store, b"another mark"))


def test_a_slot_that_moves_is_followed_and_nothing_is_done_twice(
    cluster: list[RedisServer],
) -> None:
    async def body(store: RedisStore) -> None:
        principals = [f"p{n}" for n in range(30)]
        for p in principals:
            await store.count(p, "n", 1, None)
        await asyncio.to_thread(_move_a_slot, cluster)
        counts = await asyncio.gather(*(store.count(p, "n", 1, None) for p in principals))
        assert counts == [2] * len(principals)
        for p in principals:
            await store.delete(p, "n")

    _on_cluster(cluster, body)


def _move_a_slot(nodes: list[RedisServer]) -> None:
    """Move a slot that is in use from the first node to the second."""
    with nodes[0].client() as source, nodes[1].client() as target:
        slot = source.execute_command("CLUSTER KEYSLOT", source.keys("*")[0])
        ids = [client.execute_command("CLUSTER MYID").decode() for client in (source, target)]
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        while keys := source.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
            move = ("MIGRATE", "127.0.0.1", nodes[1].port, "", 0, 5000, "KEYS", *keys)
            source.execute_command(*move)
        for client in (target, source):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])


def test_a_caller_that_is_cancelled_moves_no_reply_on_a_cluster(
    cluster: list[RedisServer],
) -> None:
    async def body(store: RedisStore) -> None:
        names = [(f"p{n % 9}", f"{n}") for n in range(100)]
        for principal, key in names:
            await store.put(principal, key, key.encode(), 60.0)
        for turn in range(20):
            calls = [asyncio.ensure_future(store.get(*name)) for name in names]
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            for n in range(turn % 3, 100, 3):
                calls[n].cancel()
            replies = await asyncio.gather(*calls, return_exceptions=True)
            for (_, key), reply in zip(names, replies, strict=True):
                assert reply == key.encode() or isinstance(reply, asyncio.CancelledError)

    _on_cluster(cluster, body)


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
