"""The contract of every store, third part: marks that count once, and how many there may be.

Rules: only the port is used, but for what is said of one store by its name.
"""

import asyncio
import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import LocalProtocolError, Refused
from colonnade.ports import Store
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import BUCKET_S, MAX_MARK_BYTES, MAX_MARK_S, SingleUseMarks
from colonnade.store.sqlite import SqliteStore
from store.files import query
from store.store_fixture import Clock, StoreFixture


def test_a_mark_is_new_once_for_each_principal(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for principal in ("ada", "bob", "", "adab"):
            assert await store.use_once(principal, b"m", 60.0) is True
            assert await store.use_once(principal, b"m", 60.0) is False
            assert await store.use_once(principal, b"bm", 60.0) is True
        assert await store.get("ada", "m") is None  # and it is no entry

    stores.run(body)


def test_of_many_who_use_a_mark_at_once_exactly_one_succeeds(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for mark in (b"one", b"two"):
            uses = [store.use_once("ada", mark, 60.0) for _ in range(100)]
            assert (await asyncio.gather(*uses)).count(True) == 1

    stores.run(body)


@pytest.mark.parametrize("ttl_s", [0.5, 1, 7.25, 60.0, MAX_MARK_S])
def test_a_mark_lives_for_its_time_and_only_some_seconds_longer(
    stores: StoreFixture, ttl_s: float
) -> None:
    async def body(store: Store) -> None:
        for part in range(10):  # wherever in its span it begins
            mark = b"%d" % part
            began = stores.clock.now
            assert await store.use_once("ada", mark, ttl_s) is True
            stores.clock.now = began + ttl_s - 0.25
            assert await store.use_once("ada", mark, ttl_s) is False
            stores.clock.now = began + ttl_s + BUCKET_S
            assert await store.use_once("ada", mark, ttl_s) is True
            stores.clock.now += 0.7

    stores.run(body)


def test_a_principal_has_so_many_marks(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for number in range(10):
            assert await store.use_once("ada", b"%d" % number, 60.0) is True
        with pytest.raises(Refused, match="this principal has 10 single-use marks"):
            await store.use_once("ada", b"more", 60.0)
        assert await store.use_once("ada", b"3", 60.0) is False  # which is still known
        assert await store.use_once("bob", b"more", 60.0) is True
        await store.put("ada", "k", b"v", None)  # entries have their own room
        stores.clock.now += 60.0 + BUCKET_S
        assert await store.use_once("ada", b"more", 60.0) is True

    stores.run(body, StoreLimits(principal_marks=10, principal_entries=1))


def test_all_principals_together_have_so_many_marks(embedded_stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for number in range(10):
            assert await store.use_once("ada", b"%d" % number, 60.0) is True
        for number in range(5):
            assert await store.use_once("bob", b"%d" % number, 20.0) is True
        with pytest.raises(Refused, match="there are 15 single-use marks"):
            await store.use_once("eve", b"more", 60.0)
        embedded_stores.clock.now += 20.0 + BUCKET_S
        assert await store.use_once("eve", b"more", 60.0) is True
        assert await store.use_once("bob", b"0", 60.0) is True

    embedded_stores.run(body, StoreLimits(total_marks=15))


@pytest.mark.parametrize("mark", [b"", b"x" * (MAX_MARK_BYTES + 1)])
def test_what_is_no_mark_is_refused(stores: StoreFixture, mark: bytes) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(LocalProtocolError, match="use a digest"):
            await store.use_once("ada", mark, 60.0)
        assert await store.use_once("ada", b"x" * MAX_MARK_BYTES, 60.0) is True

    stores.run(body)


@pytest.mark.parametrize("ttl_s", [0, -1.0, math.nan, math.inf, MAX_MARK_S + 1])
def test_a_lifetime_that_no_mark_has_is_refused(stores: StoreFixture, ttl_s: float) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(LocalProtocolError, match=r"ttl_s|at most"):
            await store.use_once("ada", b"m", ttl_s)

    stores.run(body)


@pytest.mark.parametrize("mark", ["text", None, 7])
def test_a_mark_is_bytes(stores: StoreFixture, mark: Any) -> None:
    async def body(store: Store) -> None:
        with pytest.raises(TypeError, match="bytes"):
            await store.use_once("ada", mark, 60.0)

    stores.run(body)


def test_a_principal_that_no_store_can_hold_is_refused(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for principal in ("\ud800", "a\0b", "x" * 3000):
            with pytest.raises(Refused, match="principal"):
                await store.use_once(principal, b"m", 60.0)

    stores.run(body)


def test_a_closed_store_says_so(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.use_once("ada", b"m", 60.0)
        await store.close()
        with pytest.raises(LocalProtocolError, match="closed"):
            await store.use_once("ada", b"m", 60.0)

    stores.run(body)


# ---------------------------------------------------------------- in memory


def test_nothing_is_left_of_marks_that_expired_and_each_takes_little_room() -> None:
    clock = Clock()
    marks = SingleUseMarks(StoreLimits())
    tracemalloc.start()
    try:
        for number in range(50_000):
            clock.now += 0.001
            assert marks.use(f"p{number % 7}", number.to_bytes(32, "big"), clock.now, 70.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / 50_000 < 200
    clock.now += 70.0 + BUCKET_S
    assert marks.use("last", b"m", clock.now, 70.0)
    assert len(marks) == 1
    assert marks._counts == {"last": 1}
    assert len(marks._spans) == 1


# ---------------------------------------------------------------- in a file


def test_marks_that_expired_leave_the_file_and_so_do_their_owners(tmp_path: Path) -> None:
    clock = Clock()

    async def body() -> None:
        store = SqliteStore(tmp_path / "store.db", clock=clock)
        for number in range(700):
            await store.use_once(f"p{number % 7}", b"%d" % number, 60.0)
        clock.now += 62.0
        for _ in range(2):  # which sweeps some each time
            await store.put("ada", "k", b"v", None)
        await store.use_once("last", b"m", 60.0)
        await store.close()

    asyncio.run(body())
    assert query(tmp_path / "store.db", "SELECT count(*) FROM marks") == [(1,)]
    counts = query(tmp_path / "store.db", "SELECT marks FROM mark_owners ORDER BY id")
    assert counts == [(1,), (1,)]


def test_a_file_of_the_first_version_is_brought_up_to_this_one(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def body() -> None:
        store = SqliteStore(path)
        await store.put("ada", "k", b"v", None)
        await store.close()
        for statement in ("DROP TABLE marks", "DROP TABLE mark_owners", "PRAGMA user_version = 1"):
            query(path, statement)
        store = SqliteStore(path)
        assert await store.use_once("ada", b"m", 60.0) is True
        assert await store.get("ada", "k") == b"v"
        await store.close()

    asyncio.run(body())
