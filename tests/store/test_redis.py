"""What is true of the Redis store alone: its keys, its connections, its failures.

Rules: a real server. A test that stops, kills or configures a server has its own.
"""

import asyncio
import logging
import math
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ConnectionLost,
    InvalidArgument,
    Refused,
    TimedOut,
)
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store import redis as redis_store
from colonnade.store.limits import OVERHEAD_BYTES, WAITING_CALLS, StoreLimits
from colonnade.store.redis import RedisStore
from colonnade.store.redis_checks import ServerChecks
from colonnade.store.redis_url import parse_redis_url
from store.redis_server import RedisServer, free_port, redis_server
from store.store_fixture import PATIENCE_S, RedisStoreFixture

RedisTest = Callable[[RedisStore], Awaitable[None]]


def run(store: RedisStore, body: RedisTest) -> None:
    """Run a test with a store that is made outside of the event loop."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            try:
                await body(store)
            finally:
                await store.close()

    asyncio.run(whole())


def keys_of(client: Any) -> set[str]:
    return {key.decode() for key in client.keys("*")}


# ---------------------------------------------------------------- keys


def test_no_key_has_the_name_of_a_principal_and_all_of_one_have_one_hash_tag(
    server: RedisServer,
) -> None:
    client = server.client()

    async def body(store: RedisStore) -> None:
        for principal in ("ada@example.com", ""):
            await store.put(principal, "k", b"v", None)
            await store.append(principal, "log", b"1", 60.0)
            await store.use_once(principal, b"m", 60.0)
        keys = keys_of(client)
        assert not any("ada" in key for key in keys)
        assert all(key.startswith("colonnade:{") for key in keys)
        assert len({key.split("}")[0] for key in keys}) == 2
        assert len(keys) == 2 * len(("e:k", "l:log", "names", "ends", "costs", "marks"))

    try:
        run(RedisStore(server.url), body)
    finally:
        client.flushall()
        client.close()


def test_nothing_is_left_of_a_principal_whose_state_was_deleted(server: RedisServer) -> None:
    client = server.client()

    async def body(store: RedisStore) -> None:
        await store.put("ada", "k", b"v", None)
        await store.count("ada", "n", 1, 60.0)
        await store.append("ada", "log", b"1", None)
        await store.delete("ada", "k")
        await store.swap("ada", "n", b"1", None, None)
        await store.drop("ada", "log")
        assert keys_of(client) == set()

    run(RedisStore(server.url), body)
    client.close()


def test_all_keys_of_a_principal_that_never_returns_expire(server: RedisServer) -> None:
    stores = RedisStoreFixture(server)
    client = server.client()

    async def body(store: Any) -> None:
        await store.append("ada", "log", b"1", 30.0)
        await store.put("ada", "k", b"v", 10.0)
        await store.use_once("ada", b"m", 60.0)
        assert all(client.pttl(key) > 0 for key in keys_of(client))
        await store.put("ada", "ever", b"v", None)
        await store.delete("ada", "ever")
        await store.put("ada", "k", b"v", 20.0)
        assert all(client.pttl(key) > 0 for key in keys_of(client))
        stores.clock.now += 200.0
        assert keys_of(client) == set()

    stores.run(body)
    stores.close()
    client.close()


def test_what_is_held_is_counted_exactly_whatever_expires_and_is_replaced(
    server: RedisServer,
) -> None:
    stores = RedisStoreFixture(server)
    client = server.client()

    async def body(store: Any) -> None:
        held: dict[bytes, int] = {}
        for n in range(300):
            await store.put("ada", f"{n % 40}", b"x" * (n % 90), 5.0 + n % 11)
            await store.append("ada", f"log {n % 7}", b"y" * n, 3.0 + n % 5)
            if n % 9 == 0:
                await store.delete("ada", f"{n % 30}")
                await store.drop("ada", f"log {n % 3}")
                await store.count("ada", f"n{n % 4}", n, 4.0)
                stores.clock.now += 1.0
            costs = next(iter(client.keys("*:costs")))
            held = {name: int(cost) for name, cost in client.hgetall(costs).items()}
            assert held.pop(b"") == sum(held.values())
            assert len(held) == client.zcard(costs.replace(b":costs", b":ends"))
        living = await store.names("ada", "", "", 1000)
        for name in living:
            value = await store.get("ada", name)
            assert held[b"e" + name.encode()] == 3 + len(name) + len(value) + OVERHEAD_BYTES

    stores.run(body, StoreLimits(log_entries=5))
    stores.close()
    client.close()


def test_two_prefixes_are_two_stores(server: RedisServer) -> None:
    async def body(store: RedisStore) -> None:
        other = RedisStore(server.url, prefix="other")
        try:
            await other.put("ada", "k", b"other", 60.0)
            await store.put("ada", "k", b"mine", 60.0)
            assert await other.get("ada", "k") == b"other"
            async with store.listen("ada", "t") as heard:
                await other.publish("ada", "t", b"other")
                await store.publish("ada", "t", b"mine")
                assert await anext(heard) == b"mine"
        finally:
            await other.close()

    run(RedisStore(server.url, prefix="one"), body)


def test_an_entry_expires_by_the_clock_of_the_server(server: RedisServer) -> None:
    async def body(store: RedisStore) -> None:
        await store.put("ada", "k", b"v", 0.05)
        await store.use_once("ada", b"m", 0.05)
        while await store.get("ada", "k") is not None:
            pass
        assert await store.names("ada", "", "", 10) == []
        while not await store.use_once("ada", b"m", 0.05):
            pass

    run(RedisStore(server.url, prefix="clock"), body)


# ---------------------------------------------------------------- calls


def test_calls_of_one_iteration_leave_in_one_write_and_are_executed_in_order(
    server: RedisServer,
) -> None:
    client = server.client()

    async def body(store: RedisStore) -> None:
        await store.get("ada", "k")
        before = client.info("stats")["total_reads_processed"]
        await asyncio.gather(*(store.put("ada", "k", b"%d" % n, 60.0) for n in range(100)))
        after = client.info("stats")["total_reads_processed"]
        assert after - before < 10  # the reads of `client` are among them
        assert await store.get("ada", "k") == b"99"

    run(RedisStore(server.url, prefix="order"), body)
    client.close()


def test_a_caller_that_is_cancelled_never_moves_the_reply_of_another(server: RedisServer) -> None:
    async def body(store: RedisStore) -> None:
        for n in range(200):
            await store.put("ada", f"{n}", b"value %d" % n, 60.0)
        for turn in range(40):
            calls = [asyncio.ensure_future(store.get("ada", f"{n}")) for n in range(200)]
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            for n in range(turn % 3, 200, 3):
                calls[n].cancel()
            replies = await asyncio.gather(*calls, return_exceptions=True)
            for n, reply in enumerate(replies):
                assert reply == b"value %d" % n or isinstance(reply, asyncio.CancelledError)
            assert not all(isinstance(reply, BaseException) for reply in replies)

    run(RedisStore(server.url, prefix="cancel"), body)


def test_scripts_that_a_server_has_forgotten_are_sent_again(server: RedisServer) -> None:
    client = server.client()

    async def body(store: RedisStore) -> None:
        for n in range(3):
            client.script_flush()
            calls = [store.count("ada", "n", 1, 60.0), store.get("ada", "k")]
            assert await asyncio.gather(*calls) == [n + 1, None]

    run(RedisStore(server.url, prefix="scripts"), body)
    client.close()


def test_so_many_calls_may_wait_and_no_more(server: RedisServer) -> None:
    async def body(store: RedisStore) -> None:
        calls = [store.get("ada", "k") for _ in range(WAITING_CALLS + 10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        refused = [one for one in outcomes if isinstance(one, Refused)]
        assert len(refused) == 10
        assert f"{WAITING_CALLS} calls wait" in str(refused[0])
        assert await store.get("ada", "k") is None

    run(RedisStore(server.url, timeout_s=PATIENCE_S), body)


def test_a_store_belongs_to_one_event_loop(server: RedisServer) -> None:
    async def in_another(store: RedisStore) -> None:
        with pytest.raises(InvalidArgument, match="another event loop"):
            await store.get("ada", "k")

    async def body(store: RedisStore) -> None:
        await store.get("ada", "k")
        await asyncio.to_thread(lambda: asyncio.run(in_another(store)))

    run(RedisStore(server.url), body)


# ---------------------------------------------------------------- failures


def test_a_server_that_is_not_there_is_an_error_that_says_so_and_soon_at_once() -> None:
    async def body(store: RedisStore) -> None:
        with pytest.raises(CannotConnect, match=r"redis://127.0.0.1:\d+ cannot be reached"):
            await store.get("ada", "k")
        # From now on calls do not wait: neither for the next attempt nor for their timeout.
        store._outage.next_at = math.inf
        store._timeout_s = 2 * PATIENCE_S
        for call in (store.put("ada", "k", b"", None), store.names("ada", "", "", 1)):
            with pytest.raises(CannotConnect, match="cannot be reached"):
                await call
        with pytest.raises(CannotConnect, match="cannot be reached"):
            async with store.listen("ada", "t"):
                pass

    run(RedisStore(f"redis://127.0.0.1:{free_port()}", timeout_s=1.0), body)


def test_only_the_first_call_waits_for_a_server_that_accepts_connections_and_responds_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FIRST_DELAY_S", "LONGEST_DELAY_S"):  # before the next attempt to connect
        monkeypatch.setattr(redis_store, name, 2 * PATIENCE_S)

    async def body(store: RedisStore) -> None:
        with pytest.raises(CannotConnect):
            await store.get("ada", "k")
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(20):
            with pytest.raises(CannotConnect, match="cannot be reached"):
                await store.get("ada", "k")
        assert loop.time() - began < 5.0  # 20 timeouts would be 10 s

    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(RedisStore(f"redis://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.5), body)


def test_calls_wait_for_a_server_that_starts_in_time(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)

    async def body(store: RedisStore) -> None:
        calls = [asyncio.ensure_future(store.count("ada", "n", 1, None)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        assert sorted(await asyncio.gather(*calls)) == [1, 2, 3, 4, 5]

    try:
        run(RedisStore(server.url, timeout_s=PATIENCE_S), body)
    finally:
        server.stop()


def test_a_server_that_does_not_respond_is_an_error_after_the_timeout(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:

        async def body(store: RedisStore) -> None:
            await store.put("ada", "k", b"v", None)
            async with store.listen("ada", "t") as heard:
                with server.busy(2.5), pytest.raises(TimedOut, match="not respond within 1 s"):
                    await store.put("ada", "k", b"w", None)
                while True:
                    try:
                        assert await store.get("ada", "k") in (b"v", b"w")
                        break
                    except ChannelError:
                        await asyncio.sleep(0.01)
                await store.publish("ada", "t", b"still there")
                assert await anext(heard) == b"still there"

        run(RedisStore(server.url, timeout_s=1.0), body)


def test_a_server_that_dies_fails_what_is_in_flight_and_cuts_every_listener(
    tmp_path: Path,
) -> None:
    with redis_server(tmp_path) as server:

        async def body(store: RedisStore) -> None:
            async with store.listen("ada", "t") as one, store.listen("bob", "t") as two:
                assert await store.get("ada", "n") is None
                with server.busy(PATIENCE_S):  # so that the calls are in flight
                    count = [store.count("ada", "n", 1, None) for _ in range(9)]
                    calls = [asyncio.ensure_future(one) for one in count]
                    await asyncio.sleep(0.05)
                    await asyncio.to_thread(server.kill)
                    outcomes = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(one) for one in outcomes} == {ConnectionLost}
                for heard in (one, two):
                    with pytest.raises(ConnectionLost, match="listen again"):
                        await anext(heard)
            server.start()
            assert await store.count("ada", "n", 1, None) == 1  # nothing was sent twice
            async with store.listen("ada", "t") as heard:
                await store.publish("ada", "t", b"again")
                assert await anext(heard) == b"again"

        run(RedisStore(server.url, timeout_s=PATIENCE_S), body)


def test_any_reconnection_of_the_subscription_cuts_every_listener(server: RedisServer) -> None:
    client = server.client()

    async def body(store: RedisStore) -> None:
        async with store.listen("ada", "t") as heard:
            client.client_kill_filter(_type="pubsub")
            with pytest.raises(ConnectionLost):
                await anext(heard)
        assert await store.get("ada", "k") is None  # on another connection
        async with store.listen("ada", "t") as heard:
            await store.publish("ada", "t", b"m")
            assert await anext(heard) == b"m"

    run(RedisStore(server.url), body)
    client.close()


def test_a_connection_that_was_closed_while_idle_is_replaced_without_an_error(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.store.redis.IDLE_S", 0.0)
    client = server.client()

    async def body(store: RedisStore) -> None:
        for n in range(3):
            assert await store.count("ada", "n", 1, 60.0) == n + 1
            client.client_kill_filter(_type="normal", skipme=True)

    run(RedisStore(server.url, prefix="idle"), body)
    client.close()


def test_a_silent_subscription_is_asked_whether_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colonnade.store.redis.SILENCE_S", 0.05)
    with redis_server(tmp_path) as server:

        async def body(store: RedisStore) -> None:
            async with store.listen("ada", "t") as heard:
                await asyncio.sleep(0.3)  # some rounds of PING, and the listener is still there
                await store.publish("ada", "t", b"m")
                assert await anext(heard) == b"m"
                with server.busy(4.0), pytest.raises(ConnectionLost):
                    await anext(heard)

        run(RedisStore(server.url, timeout_s=1.0), body)


def test_a_listener_that_is_cancelled_leaves_the_others_their_connection(
    server: RedisServer,
) -> None:
    async def wait(store: RedisStore) -> None:
        async with store.listen("ada", "t") as heard:
            await anext(heard)

    async def body(store: RedisStore) -> None:
        async with store.listen("ada", "t") as heard:
            for turns in range(12):
                tasks = [asyncio.ensure_future(wait(store)) for _ in range(10)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await store.publish("ada", "t", b"m")
            assert await anext(heard) == b"m"

    run(RedisStore(server.url, timeout_s=PATIENCE_S), body)


def test_a_full_server_refuses_and_a_delete_makes_room(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        client = server.client()

        async def body(store: RedisStore) -> None:
            await store.count("ada", "n", 1, None)
            # Much more than the buffers of a connection, which the server frees when it likes.
            large = [f"large {number}" for number in range(10)]
            for key in large:
                await store.put(SERVER_PRINCIPAL, key, b"x" * 500_000, None)
            client.config_set("maxmemory", client.info("memory")["used_memory"] - 2_000_000)
            for call in (
                store.put("ada", "k", b"v", None),
                store.count("ada", "n", 1, None),
                store.append("ada", "log", b"", None),
                store.use_once("ada", b"m", 60.0),
            ):
                with pytest.raises(Refused, match=r"^the store is full; try again later$") as full:
                    await call
                assert full.value.reason == "store_full"
            assert await store.get("ada", "n") == b"1"
            assert await store.names("ada", "", "", 10) == ["n"]
            for key in large:
                await store.delete(SERVER_PRINCIPAL, key)
            assert await store.count("ada", "n", 1, None) == 2

        run(RedisStore(server.url), body)
        client.close()


def test_an_entry_of_another_type_is_damaged_and_the_server_responds(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        client = server.client()

        async def body(store: RedisStore) -> None:
            await store.put("ada", "k", b"v", None)
            [key] = [one for one in client.keys("*") if one.endswith(b":e:k")]
            client.delete(key)
            client.rpush(key, "a list")
            assert await store.get("ada", "k") == b""
            await store.put("ada", "k", b"again", None)
            assert await store.get("ada", "k") == b"again"

        run(RedisStore(server.url), body)
        client.close()


def test_an_operator_reads_once_a_minute_that_a_server_is_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    checks = ServerChecks("redis://h:1", now=lambda: now)
    for second in range(0, 90, 10):
        now = float(second)
        checks.note_full()
    assert [one.getMessage() for one in caplog.records] == [
        "the store redis://h:1 is full and has refused 1 writes; raise its maxmemory",
        "the store redis://h:1 is full and has refused 6 writes; raise its maxmemory",
    ]


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(3600.0, "3600 s ahead of"), (-3600.0, "3600 s behind"), (20.0, "")]
)
def test_a_clock_that_differs_from_that_of_the_server_is_reported(
    ahead_s: float, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path) as server:

        async def body(store: RedisStore) -> None:
            store._checks.clock = lambda: int(time.time()) + ahead_s
            await store.get("ada", "k")
            await store.get("ada", "k")

        run(RedisStore(server.url), body)
    found = [one.getMessage() for one in caplog.records if "the clock" in one.getMessage()]
    assert len(found) == bool(words)
    assert all(words in one and "more than 60 s" in one for one in found)


def test_a_server_that_may_drop_keys_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, ["--maxmemory-policy", "allkeys-lru"]) as server:

        async def body(store: RedisStore) -> None:
            await store.get("ada", "k")
            await store.get("ada", "k")

        with caplog.at_level(logging.WARNING, "colonnade.store"):
            run(RedisStore(server.url), body)
        (record,) = caplog.records
        assert "allkeys-lru" in record.getMessage()
        assert "noeviction" in record.getMessage()


# ---------------------------------------------------------------- credentials

SECRET = "s3cret-Päss"


def test_a_password_is_used_from_the_url_or_a_function_and_is_in_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, ["--requirepass", SECRET]) as server:
        place = f"127.0.0.1:{server.port}"

        async def works(store: RedisStore) -> None:
            await store.put("ada", "k", b"v", None)
            async with store.listen("ada", "t") as heard:
                await store.publish("ada", "t", b"m")
                assert await anext(heard) == b"m"

        async def fails(store: RedisStore) -> None:
            with pytest.raises(CannotConnect) as failure:
                await store.get("ada", "k")
            shown = repr(failure.value) + str(failure.value) + repr(store) + str(vars(store))
            assert SECRET not in shown
            assert "wrong" not in shown
            assert place in shown
            with pytest.raises(CannotConnect):
                async with store.listen("ada", "t"):
                    pass

        def raises() -> tuple[str, str]:
            raise ValueError(SECRET)

        with caplog.at_level(logging.DEBUG):
            run(RedisStore(f"redis://:s3cret-P%C3%A4ss@{place}"), works)
            run(RedisStore(f"redis://default:s3cret-P%C3%A4ss@{place}"), works)
            run(RedisStore(server.url, credentials=lambda: ("", SECRET)), works)
            run(RedisStore(server.url, credentials=lambda: ("default", SECRET)), works)
            run(RedisStore(f"redis://:wrong@{place}"), fails)
            run(RedisStore(server.url, credentials=lambda: ("ada", "wrong")), fails)
            run(RedisStore(server.url, credentials=raises), fails)
            run(RedisStore(server.url), fails_without)
        assert SECRET not in caplog.text
        assert "wrong" not in caplog.text


def test_a_user_needs_its_own_keys_and_channels_and_no_dangerous_command(tmp_path: Path) -> None:
    rights = "on >word ~colonnade:* &colonnade:* +@read +@write +@scripting +@pubsub +@connection"
    with redis_server(tmp_path) as server:
        client = server.client()
        client.execute_command("ACL SETUSER", "press", *rights.split(), "+time", "-@dangerous")
        client.close()

        async def body(store: RedisStore) -> None:
            assert await store.add("ada", "k", b"v", 60.0)
            assert await store.get("ada", "k") == b"v"
            assert await store.count("ada", "n", 1, None) == 1
            assert await store.names("ada", "", "", 10) == ["k", "n"]
            assert await store.use_once("ada", b"m", 60.0)
            assert await store.append("ada", "log", b"1", 60.0) == 1
            assert await store.read("ada", "log", 0) == [(1, b"1")]
            await store.delete("ada", "k")
            async with store.listen("ada", "t") as heard:
                await store.publish("ada", "t", b"m")
                assert await anext(heard) == b"m"

        async def other(store: RedisStore) -> None:
            with pytest.raises(ConnectionLost, match="NoPermissionError"):
                await store.put("ada", "k", b"", None)

        url = f"redis://press:word@127.0.0.1:{server.port}"
        run(RedisStore(url), body)
        run(RedisStore(url, prefix="other"), other)


async def fails_without(store: RedisStore) -> None:
    with pytest.raises(CannotConnect):
        await store.get("ada", "k")


# ---------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h", "redis://h:6379"),
        ("redis://u:p@h:1/2", "redis://h:1/2"),
        ("rediss://:p@[::1]:1?ca=/a", "rediss://[::1]:1"),
        ("redis+sentinel://u:p@a,b:1/svc/3", "redis+sentinel://a:26379,b:1/svc/3"),
        ("rediss+sentinel://a/svc", "rediss+sentinel://a:26379/svc"),
    ],
)
def test_a_url_is_shown_without_credentials_and_options(url: str, shown: str) -> None:
    parsed = parse_redis_url(url)
    assert str(parsed) == shown
    assert "'p'" not in repr(parsed)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://pässword@h", "begins with redis://"),
        ("pässword", "begins with redis://"),
        ("redis://", "no host"),
        ("redis://:pässword@h:port", "port or database"),
        ("redis://:pässword@[h", "port or database"),
        ("redis://:pässword@h/x", "port or database"),
        ("redis://:pässword@h/-1", "database"),
        ("redis://:pässword@h/1/2", "database"),
        ("redis://:pässword@h#x", "database"),
        ("redis://:pässword@h?password=x", "unknown option"),
        ("redis://:pässword@h?ca=x", "rediss://"),
        ("redis+sentinel://:pässword@h", "no service"),
    ],
)
def test_a_url_that_is_none_is_refused_without_showing_it(url: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as refusal:
        parse_redis_url(url)
    assert "pässword" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "redis://a,b"}, "cluster=True"),
        ({"url": "redis://a/1", "cluster": True}, "databases"),
        ({"url": "redis+sentinel://a/s", "cluster": True}, "sentinels"),
        ({"url": "redis://a", "timeout_s": 0.0}, "timeout_s"),
        ({"url": "redis://a", "timeout_s": float("nan")}, "timeout_s"),
        ({"url": "redis://a", "prefix": ""}, "prefix"),
        ({"url": "redis://a", "prefix": "a{b}"}, "prefix"),
    ],
)
def test_what_no_store_can_be_made_of_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        RedisStore(**arguments)


def test_without_redis_py_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["redis"] = None
import colonnade
try:
    import colonnade.store.redis
except ImportError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'colonnade[redis]'" in said.stdout
