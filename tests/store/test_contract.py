"""The contract of every store: one text, run against each of them.

Rules: only the port is used. What is true of one store alone stands in that store's own file.
"""

import asyncio
import math
from typing import Any

import pytest

from colonnade.errors import ConnectionLost, LocalProtocolError, Refused
from colonnade.ports import Store
from colonnade.store.limits import QUEUE_BYTES, QUEUE_MESSAGES, StoreLimits
from colonnade.store.memory import MemoryStore
from store.store_fixture import StoreFixture, every_call

ANY_BYTES = bytes(range(256)) * 3


# ---------------------------------------------------------------- the store


def test_a_store_says_whether_another_application_can_have_its_state(
    stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        assert store.is_shared is (not isinstance(store, MemoryStore))
        assert MemoryStore(is_shared=True).is_shared is True
        with pytest.raises(AttributeError):
            store.is_shared = True  # pyright: ignore[reportAttributeAccessIssue]

    stores.run(body)


# ---------------------------------------------------------------- entries


def test_what_was_put_is_there_byte_for_byte_until_it_is_replaced_or_deleted(
    stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        assert await store.get("ada", "k") is None
        await store.put("ada", "k", ANY_BYTES, None)
        assert await store.get("ada", "k") == ANY_BYTES
        await store.put("ada", "k", b"", None)
        assert await store.get("ada", "k") == b""
        await store.delete("ada", "k")
        assert await store.get("ada", "k") is None
        await store.delete("ada", "k")  # and once more is fine

    stores.run(body)


def test_add_puts_only_where_nothing_is(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        assert await store.add("ada", "k", b"first", None) is True
        assert await store.add("ada", "k", b"second", None) is False
        assert await store.get("ada", "k") == b"first"
        await store.put("ada", "put", b"", None)
        assert await store.add("ada", "put", b"x", None) is False  # empty is not absent
        await store.delete("ada", "k")
        assert await store.add("ada", "k", b"third", None) is True

    stores.run(body)


def test_of_many_who_add_at_once_exactly_one_succeeds(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for key in ("one", "two", "three"):
            claims = [store.add("ada", key, b"%d" % n, 60.0) for n in range(100)]
            won = await asyncio.gather(*claims)
            assert won.count(True) == 1
            assert await store.get("ada", key) == b"%d" % won.index(True)

    stores.run(body)


def test_an_entry_ends_when_its_time_has_passed_and_not_before(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.put("ada", "short", b"1", 10.0)
        await store.put("ada", "ever", b"2", None)
        stores.clock.now += 9.75
        assert await store.get("ada", "short") == b"1"
        assert await store.add("ada", "short", b"x", 5.0) is False
        stores.clock.now += 0.25
        assert await store.get("ada", "short") is None
        assert await store.add("ada", "short", b"new", 5.0) is True
        assert await store.get("ada", "short") == b"new"
        stores.clock.now += 1e9
        assert await store.get("ada", "short") is None
        assert await store.get("ada", "ever") == b"2"

    stores.run(body)


def test_the_last_put_decides_how_long_an_entry_lives(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.put("ada", "longer", b"1", 10.0)
        await store.put("ada", "longer", b"2", 100.0)
        await store.put("ada", "ever", b"1", 10.0)
        await store.put("ada", "ever", b"2", None)
        await store.put("ada", "shorter", b"1", 100.0)
        await store.put("ada", "shorter", b"2", 10.0)
        stores.clock.now += 50.0
        for n in range(30):  # others come and go meanwhile
            await store.put("bob", f"{n}", b"", 1.0)
        assert await store.get("ada", "longer") == b"2"
        assert await store.get("ada", "ever") == b"2"
        assert await store.get("ada", "shorter") is None

    stores.run(body)


@pytest.mark.parametrize("ttl_s", [0, 0.0, -1, -0.001, math.nan, math.inf, -math.inf])
def test_a_lifetime_that_is_none_is_refused(stores: StoreFixture, ttl_s: float) -> None:
    async def body(store: Store) -> None:
        for write in (store.put, store.add, store.append):
            with pytest.raises(LocalProtocolError, match="ttl_s"):
                await write("ada", "k", b"", ttl_s)
        for after in (b"", None):
            with pytest.raises(LocalProtocolError, match="ttl_s"):
                await store.swap("ada", "k", None, after, ttl_s)
        with pytest.raises(LocalProtocolError, match="ttl_s"):
            await store.count("ada", "k", 1, ttl_s)
        assert await store.get("ada", "k") is None
        assert await store.read("ada", "k", 0) == []

    stores.run(body)


def test_a_clock_of_whole_seconds_is_a_clock(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        stores.clock.now = 5
        await store.put("ada", "k", b"v", 7)
        assert await store.get("ada", "k") == b"v"
        stores.clock.now = 12
        assert await store.get("ada", "k") is None

    stores.run(body)


# ---------------------------------------------------------------- logs


def test_a_log_gives_its_entries_in_order_with_numbers_from_1(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        assert await store.read("ada", "log", 0) == []
        entries = [b"", ANY_BYTES, b"third"]
        numbers = [await store.append("ada", "log", entry, None) for entry in entries]
        assert numbers == [1, 2, 3]
        assert await store.read("ada", "log", 0) == list(enumerate(entries, 1))
        assert await store.read("ada", "log", 2) == [(3, b"third")]
        assert await store.read("ada", "log", 3) == []

    stores.run(body)


@pytest.mark.parametrize("after", [-1, -(10**30), 4, 2**63, 10**30])
def test_a_number_that_no_entry_has_is_no_error(stores: StoreFixture, after: int) -> None:
    async def body(store: Store) -> None:
        await store.append("ada", "log", b"1", None)
        expected = [(1, b"1")] if after < 0 else []
        assert await store.read("ada", "log", after) == expected
        assert await store.read("ada", "no log", after) == []

    stores.run(body)


def test_many_who_append_at_once_get_numbers_without_gap_or_repetition(
    stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        appended = [store.append("ada", "log", b"%d" % n, None) for n in range(200)]
        numbers = await asyncio.gather(*appended)
        assert sorted(numbers) == list(range(1, 201))
        read = dict(await store.read("ada", "log", 0))
        assert all(read[number] == b"%d" % n for n, number in enumerate(numbers))

    stores.run(body)


def test_a_log_lives_from_its_last_entry_and_then_begins_again(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.append("ada", "log", b"1", 10.0)
        stores.clock.now += 9.0
        assert await store.append("ada", "log", b"2", 10.0) == 2
        stores.clock.now += 9.0
        assert await store.read("ada", "log", 0) == [(1, b"1"), (2, b"2")]
        stores.clock.now += 1.0
        assert await store.read("ada", "log", 0) == []
        assert await store.append("ada", "log", b"new", 10.0) == 1
        assert await store.read("ada", "log", 0) == [(1, b"new")]

    stores.run(body)


def test_a_log_that_is_dropped_is_gone_and_only_it(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.append("ada", "log", b"1", None)
        await store.append("ada", "other", b"1", None)
        await store.put("ada", "log", b"an entry of the same name", None)
        await store.drop("ada", "log")
        await store.drop("ada", "never was")
        assert await store.read("ada", "log", 0) == []
        assert await store.read("ada", "other", 0) == [(1, b"1")]
        assert await store.get("ada", "log") == b"an entry of the same name"
        await store.append("ada", "log", b"again", None)
        await store.delete("ada", "log")
        assert await store.read("ada", "log", 0) == [(1, b"again")]

    stores.run(body)


def test_the_oldest_entries_of_a_full_log_make_room_and_the_numbers_show_it(
    stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        for n in range(1, 8):
            assert await store.append("ada", "log", b"%d" % n, None) == n
        assert await store.read("ada", "log", 0) == [(5, b"5"), (6, b"6"), (7, b"7")]
        assert await store.read("ada", "log", 5) == [(6, b"6"), (7, b"7")]

    stores.run(body, StoreLimits(log_entries=3))


def test_a_log_is_bounded_in_bytes_and_its_newest_entry_always_stays(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for size in (40, 30, 30):
            await store.append("ada", "log", b"x" * size, None)
        assert [n for n, _ in await store.read("ada", "log", 0)] == [1, 2, 3]
        await store.append("ada", "log", b"x" * 41, None)
        assert [n for n, _ in await store.read("ada", "log", 0)] == [3, 4]
        await store.append("ada", "log", b"x" * 500, None)
        assert [n for n, _ in await store.read("ada", "log", 0)] == [5]
        await store.append("ada", "log", b"x", None)
        assert [n for n, _ in await store.read("ada", "log", 0)] == [6]

    stores.run(body, StoreLimits(log_bytes=100))


# ---------------------------------------------------------------- topics


def test_a_message_reaches_all_who_listen_to_its_topic_in_order(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with (
            store.listen("ada", "t") as one,
            store.listen("ada", "t") as two,
            store.listen("ada", "u") as other,
        ):
            for n in range(5):
                await store.publish("ada", "t", b"%d" % n)
            await store.publish("ada", "u", ANY_BYTES)
            for heard in (one, two):
                assert [await anext(heard) for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
            assert await anext(other) == ANY_BYTES

    stores.run(body)


def test_who_publishes_is_told_if_nobody_listens_where_the_store_knows(
    stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        assert await store.publish("ada", "t", b"m") in (0, None)
        async with store.listen("ada", "t"), store.listen("ada", "t"):
            heard = await store.publish("ada", "t", b"m")
            assert heard is None or heard > 0
            assert await store.publish("ada", "u", b"m") in (0, None)

    stores.run(body)


def test_nothing_from_before_listening_is_heard(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.publish("ada", "t", b"early")
        async with store.listen("ada", "t"):
            # Published while somebody else listens, and not yet handed on.
            published = asyncio.gather(*(store.publish("ada", "t", b"old") for _ in range(20)))
            await published
            async with store.listen("ada", "t") as heard:
                await store.publish("ada", "t", b"now")
                assert await anext(heard) == b"now"

    stores.run(body)


def test_what_is_published_after_entering_waits_for_the_first_look(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "t") as heard:
            await asyncio.gather(*(store.publish("ada", "t", b"m") for _ in range(3)))
            assert [await anext(heard) for _ in range(3)] == [b"m"] * 3

    stores.run(body)


def test_a_listener_who_waits_is_woken(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "t") as heard, asyncio.TaskGroup() as group:
            waiting = group.create_task(_first(heard))
            await asyncio.sleep(0)
            await store.publish("ada", "t", b"news")
            assert await waiting == b"news"

    stores.run(body)


async def _first(heard: Any) -> bytes:
    return await anext(heard)


@pytest.mark.parametrize(
    ("message", "fits"),
    [(b"", QUEUE_MESSAGES), (b"x" * 2**20, QUEUE_BYTES // 2**20)],
    ids=["many", "large"],
)
def test_a_slow_listener_is_cut_and_told_so_and_nobody_else_is(
    stores: StoreFixture, message: bytes, fits: int
) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "t") as slow, store.listen("ada", "t") as quick:
            for _ in range(fits + 2):
                await store.publish("ada", "t", message)
                assert await anext(quick) == message
            with pytest.raises(ConnectionLost, match=f"too slowly: {fits} messages"):
                await anext(slow)
            with pytest.raises(ConnectionLost):
                await anext(slow)
            await store.publish("ada", "t", b"later")
            assert await anext(quick) == b"later"

    stores.run(body)


def test_a_message_larger_than_a_queue_is_heard_by_whoever_keeps_up(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "t") as heard:
            for _ in range(3):
                await store.publish("ada", "t", b"x" * (QUEUE_BYTES + 1))
                assert len(await anext(heard)) == QUEUE_BYTES + 1

    stores.run(body, StoreLimits(value_bytes=QUEUE_BYTES + 1))


def test_whoever_left_hears_no_more_and_makes_room_for_others(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for _ in range(5):
            async with store.listen("ada", "t") as heard, store.listen("ada", "u"):
                with pytest.raises(Refused, match="2 listen"):
                    async with store.listen("ada", "v"):
                        pass
                async with store.listen("bob", "t"):
                    pass
            await store.publish("ada", "t", b"m")
            with pytest.raises(StopAsyncIteration):
                await anext(heard)

    stores.run(body, StoreLimits(principal_listeners=2))


def test_closing_lets_a_listener_take_what_waits_and_then_ends_it(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "t") as heard, store.listen("ada", "u") as idle:
            waiting = asyncio.ensure_future(_all(idle))
            await store.publish("ada", "t", b"1")
            await store.publish("ada", "t", b"2")
            assert await anext(heard) == b"1"
            await store.close()
            assert await _all(heard) == [b"2"]
            assert await waiting == []

    stores.run(body)


async def _all(heard: Any) -> list[bytes]:
    return [message async for message in heard]


def test_a_closed_store_says_so_and_can_be_closed_again(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.put("ada", "k", b"v", None)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        for call in every_call(store, "ada", "k"):
            with pytest.raises(LocalProtocolError, match="closed"):
                await call

    stores.run(body)


def test_a_store_that_was_never_used_can_be_closed(stores: StoreFixture) -> None:
    async def body(store: Store) -> None: ...

    stores.run(body)
