"""A rate limit that replicas share: together they stay within it, with and without the store."""

import asyncio
from typing import Any

import pytest

from colonnade import Server
from colonnade.middleware import by_server, rate_limit
from colonnade.ports import Store
from colonnade.protocol.types import CallToolResult
from colonnade.replicas import shared_tokens as module
from colonnade.replicas.replica import count_replicas
from colonnade.replicas.shared_tokens import SharedTokens, WindowTokens
from colonnade.store.sqlite import SqliteStore
from replicas.remote import CallerContext
from replicas.shared_store import ReplicaFixture, SharedStore, run_replicas


class CountingStore(SharedStore):
    """A store that counts the operations on counters."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = 0

    async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
        self.counts += 1
        await asyncio.sleep(0)  # as a store elsewhere does
        return await super().count(principal, key, by, ttl_s)


def tokens(store: Store, clock: Any, *, per_s: float = 10.0, burst: int = 100) -> SharedTokens:
    return SharedTokens(store, "", per_s, burst, clock, 1000)


async def admitted(limits: list[SharedTokens], calls: int, key: str = "ada") -> int:
    """How many of so many calls pass, in turn at each replica, ten at a time."""
    passed = 0
    for start in range(0, calls, 10):
        waits = await asyncio.gather(
            *(limits[number % len(limits)].take(key) for number in range(start, start + 10))
        )
        passed += waits.count(0.0)
    return passed


def at(now: float) -> Any:
    """A clock that stands at a time, as a list with one number."""
    time = [now]
    return time, lambda: time[0]


def test_tokens_of_a_lease_are_those_that_the_limit_leaves() -> None:
    for total, expected, exhausted in (
        (10, 10, False),
        (90, 10, False),
        (100, 10, True),
        (105, 5, True),
        (110, 0, True),
        (500, 0, True),
    ):
        window = WindowTokens(1)
        window.add(10, total, 100)
        assert (window.tokens, window.exhausted) == (expected, exhausted)
    window = WindowTokens(1, tokens=1)
    assert (window.take(), window.take()) == (True, False)


def test_three_replicas_together_stay_within_the_limit() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        time, clock = at(1000.0)
        store = CountingStore()
        limits = [tokens(store, clock) for _ in range(3)]
        assert await admitted(limits, 600) == 100
        assert store.counts <= 10 + 3  # a tenth at a time, and each learns once that it is over
        assert [await limit.take("ada") for limit in limits] == [10.0] * 3
        assert await limits[0].take("grace") == 0.0  # another caller
        time[0] += 9.5
        assert await admitted(limits, 30) == 0
        time[0] += 0.5
        assert await admitted(limits, 600) == 100
        time[0] += 100.0
        assert await admitted(limits, 600) == 100

    run_replicas(body)


def test_unequal_load_leaves_at_most_a_lease_with_each_other_replica() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        _, clock = at(1000.0)
        store = SharedStore()
        limits = [tokens(store, clock) for _ in range(3)]
        assert await limits[1].take("ada") == 0.0
        assert await limits[2].take("ada") == 0.0
        passed = await admitted(limits[:1], 200)
        assert 100 - 2 * 10 <= passed <= 100 - 2

    run_replicas(body)


def test_small_limits_are_exact() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        time, clock = at(1000.0)
        store = SharedStore()
        limits = [tokens(store, clock, per_s=0.1, burst=1) for _ in range(3)]
        assert await admitted(limits, 30) == 1
        time[0] += 10.0
        assert await admitted(limits, 30) == 1

    run_replicas(body)


def test_without_the_store_each_replica_gives_its_share(caplog: pytest.LogCaptureFixture) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        for _ in range(4):
            await replicas.started()
        assert await count_replicas(replicas.store) == 4
        time, clock = at(1000.0)
        limits = [tokens(replicas.store, clock) for _ in range(4)]
        assert await admitted(limits, 800) == 100
        replicas.store.leave()
        time[0] += 10.0
        assert await admitted(limits, 800) == 100
        time[0] += 10.0
        assert await admitted(limits[:1], 800) == 25
        replicas.store.away = False
        time[0] += 10.0
        assert await admitted(limits[:1], 800) == 100

    run_replicas(body)
    assert "this replica alone" in caplog.text


def test_a_store_that_does_not_respond_delays_one_call_and_not_each() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        class Silent(SharedStore):
            async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
                return await asyncio.get_running_loop().create_future()

        time, clock = at(1000.0)
        limit = tokens(Silent(), clock)
        waiting = [asyncio.ensure_future(limit.take("ada")) for _ in range(5)]
        await replicas.settle()
        assert not any(one.done() for one in waiting)
        await replicas.clock.advance(module.STORE_TIMEOUT_S)
        assert [one.result() for one in waiting] == [0.0] * 5
        assert await limit.take("grace") == 0.0
        assert time == [1000.0]

    run_replicas(body)


def test_callers_are_bounded_and_a_cancelled_call_leaves_the_others_alone() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        _, clock = at(1000.0)
        limit = SharedTokens(CountingStore(), "", 10.0, 100, clock, 3)
        for number in range(10):
            assert await limit.take(f"caller {number}") == 0.0
        first = asyncio.ensure_future(limit.take("ada"))
        second = asyncio.ensure_future(limit.take("ada"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 0.0

    run_replicas(body)


def test_limits_of_different_names_count_apart() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        _, clock = at(1000.0)
        store = SharedStore()
        for name, key in (("a", "b c"), ("a b", "c"), ("", "a b c")):
            limit = SharedTokens(store, name, 1.0, 1, clock, 10)
            assert await limit.take(key) == 0.0

    run_replicas(body)


def test_the_middleware_of_three_servers_on_one_file_admits_what_one_would(tmp_path: Any) -> None:
    async def body() -> None:
        _, clock = at(1000.0)
        stores = [SqliteStore(tmp_path / "store.db") for _ in range(3)]
        servers: list[Server] = []
        for store in stores:
            limit = rate_limit(5, burst=20, at_once=8, each=by_server, store=store, clock=clock)
            server = Server("limited", middleware=[limit])

            @server.tool
            def hi() -> str:
                return "hi"

            assert hi is not None
            servers.append(server)
        refused = 0
        for number in range(60):
            server = servers[number % 3]
            response = await server.respond(CallerContext(server, "hi"))
            assert response is not None
            refused += b"too many calls; at most 5 a second" in response
        assert refused == 40
        for store in stores:
            await store.close()

    asyncio.run(body())


def test_a_limit_without_a_rate_needs_no_store() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        server = Server("s", middleware=[rate_limit(at_once=1, store=replicas.store)])

        @server.tool
        def hi() -> CallToolResult:
            return CallToolResult(content=[])

        assert hi is not None
        response = await server.respond(CallerContext(server, "hi"))
        assert response is not None
        assert b"too many" not in response
        assert not await replicas.store.names("\x01server", "limit ", "", 10)

    run_replicas(body)
