"""What is true of the store in memory alone: what it does not keep, and what it does not look at."""

import asyncio
import random

from colonnade.store.limits import StoreLimits
from colonnade.store.memory import STALE_SECONDS, SWEEP_AT_ONCE, MemoryStore
from store.store_fixture import Clock

ROOMY = StoreLimits(principal_entries=10**6, principal_bytes=10**9, total_bytes=10**9)


def test_a_write_clears_a_few_expired_things_away_and_never_looks_through_all() -> None:
    async def body() -> None:
        clock = Clock()
        store = MemoryStore(clock=clock, limits=ROOMY)
        for n in range(5000):
            await store.put("ada", f"{n}", b"", 10.0 + n % 50)
        await store.put("bob", "k", b"", None)
        clock.now += 100.0
        for left in range(5000, 0, -SWEEP_AT_ONCE):
            assert len(store._things) == left + 1
            await store.put("bob", "k", b"", None)
        assert store._usage.keys() == {"bob"}
        assert not store._due

    asyncio.run(body())


def test_nothing_is_left_of_what_came_and_went() -> None:
    async def body() -> None:
        clock, dice = Clock(), random.Random(7)
        store = MemoryStore(clock=clock, limits=ROOMY)
        for n in range(20_000):
            clock.now += 0.5
            name = f"{n % 10}"
            ttl_s = dice.choice([None, 1.0, 86_400.0 * dice.random() + 1])
            await dice.choice([store.put, store.add, store.append])("ada", name, b"v", ttl_s)
            await dice.choice([store.delete, store.drop])("ada", name)
            assert len(store._seconds) <= 2 * len(store._due) + STALE_SECONDS + 1
            assert sum(map(len, store._due.values())) <= len(store._things) <= 20
        for n in range(10):
            await store.delete("ada", f"{n}")
            await store.drop("ada", f"{n}")
        assert not store._things
        assert not store._usage
        assert not store._due
        assert store._size == 0

    asyncio.run(body())


def test_who_listened_leaves_nothing_behind() -> None:
    async def body() -> None:
        store = MemoryStore()
        for n in range(100):
            async with store.listen(f"p{n}", f"t{n}"):
                assert store._topics
        assert not store._topics
        assert not store._topics._numbers

    asyncio.run(body())
