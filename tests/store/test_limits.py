"""The contract of every store, second part: whose is what, which names there are, and how much.

Rules: only the port is used.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from colonnade.errors import Refused
from colonnade.ports import SERVER_PRINCIPAL, Store, Swap
from colonnade.store import limits
from colonnade.store.limits import MAX_NAME_BYTES, OVERHEAD_BYTES, StoreLimits
from colonnade.store.memory import MemoryStore
from store.store_fixture import StoreFixture, every_call

# ---------------------------------------------------------------- principals and names


def test_what_belongs_to_one_principal_is_nothing_to_another(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.put("ada", "k", b"secret", None)
        await store.append("ada", "k", b"secret", None)
        for other in ("eve", "", "Ada", "ada ", "ad", "adaa"):
            async with store.listen(other, "k") as heard:
                assert await store.get(other, "k") is None
                assert await store.read(other, "k", 0) == []
                assert await store.names(other, "", "", 10) == []
                assert await store.swap(other, "k", b"secret", b"other", None) is False
                assert await store.count(other, "k", 1, None) == 1
                await store.delete(other, "k")
                await store.drop(other, "k")
                assert await store.add(other, "k", b"other", None) is True
                assert await store.append(other, "k", b"other", None) == 1
                await store.put(other, "k", b"other", None)
                await store.publish("ada", "k", b"secret")
                await store.publish(other, "k", b"own")
                assert await anext(heard) == b"own"
        assert await store.get("ada", "k") == b"secret"
        assert await store.read("ada", "k", 0) == [(1, b"secret")]

    stores.run(body)


# Pairs that a store would take for one another if it joined, cut, folded or expanded them.
HOSTILE = [
    *[(f"a{mark}b", "c") for mark in ":/|\\,;.-_ \t\n\r\x1e\x1f\x7f\u2028\u200b"],
    *[("a", f"b{mark}c") for mark in ":/|\\,;.-_ \t\n\r\x1e\x1f\x7f\u2028\u200b"],
    ("", "abc"),
    ("abc", "a"),
    ("é", "k"),
    ("e\u0301", "k"),
    ("ﬁ", "k"),
    ("fi", "k"),
    ("FI", "k"),
    ("ß", "k"),
    ("ss", "k"),
    ("\U0001f511", "k"),
    ("\ufeff", "k"),
    ("\ufffd", "k"),
    ("%", "k"),
    ("_", "k"),
    ("*", "k"),
    ("1", "k"),
    ("1.0", "k"),
    ("01", "k"),
    ("None", "k"),
    ("x'61'", "k"),
    ("'; DROP TABLE things; --", "' OR ''='"),
    ("../../etc/passwd", "../k"),
    ("__class__", "__dict__"),
    ("a" * MAX_NAME_BYTES, "b" * MAX_NAME_BYTES),
    ("é" * (MAX_NAME_BYTES // 2), "k"),
]


def test_hostile_names_are_all_told_apart(stores: StoreFixture) -> None:
    assert len(set(HOSTILE)) == len(HOSTILE)

    async def body(store: Store) -> None:
        for n, (principal, name) in enumerate(HOSTILE):
            assert await store.add(principal, name, b"%d" % n, None) is True
            assert await store.append(principal, name, b"%d" % n, None) == 1
        for principal in {principal for principal, _ in HOSTILE}:
            own = sorted(name for owner, name in HOSTILE if owner == principal)
            assert await store.names(principal, "", "", 100) == own
        for n, (principal, name) in enumerate(HOSTILE):
            assert await store.names(principal, name, "", 1) == [name]
            assert await store.get(principal, name) == b"%d" % n
            assert await store.read(principal, name, 0) == [(1, b"%d" % n)]
        async with AsyncExitStack() as listening:
            heard = [await listening.enter_async_context(store.listen(*place)) for place in HOSTILE]
            await asyncio.gather(
                *(store.publish(*place, repr(place).encode()) for place in HOSTILE)
            )
            for place, messages in zip(HOSTILE, heard, strict=True):
                assert await anext(messages) == repr(place).encode()
            await asyncio.gather(*(store.publish(*place, b"second") for place in HOSTILE))
            for messages in heard:
                assert await anext(messages) == b"second"

    stores.run(body)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        ("\ud800", "not Unicode"),
        ("x\udfffy", "not Unicode"),
        ("x" * (MAX_NAME_BYTES + 1), "longer than 2048 bytes; use a digest"),
        ("é" * (MAX_NAME_BYTES // 2) + "x", "longer than 2048 bytes; use a digest"),
        ("\ud800" * 10_000_000, "longer than 2048"),
    ],
    ids=["nul", "nul-alone", "surrogate", "low-surrogate", "long", "long-utf8", "huge"],
)
def test_a_name_that_no_store_can_hold_is_refused_in_words(
    stores: StoreFixture, name: str, words: str
) -> None:
    async def body(store: Store) -> None:
        for principal, key in (("ada", name), (name, "k")):
            for call in every_call(store, principal, key):
                with pytest.raises(Refused, match=words) as caught:
                    await call
                assert len(str(caught.value)) < 500
                str(caught.value).encode()

    stores.run(body)


def test_an_empty_name_is_refused_and_an_empty_principal_is_not(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for call in every_call(store, "ada", ""):
            with pytest.raises(Refused, match="must not be empty"):
                await call
        await store.put("", "k", b"everybody's", None)
        assert await store.get("", "k") == b"everybody's"

    stores.run(body)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("value", ["text", bytearray(b"x"), memoryview(b"x"), None, 7])
def test_only_bytes_are_stored(stores: StoreFixture, value: Any) -> None:
    async def body(store: Store) -> None:
        for write in (store.put, store.add, store.append):
            with pytest.raises(TypeError, match="bytes"):
                await write("ada", "k", value, None)
        with pytest.raises(TypeError, match="bytes"):
            await store.publish("ada", "k", value)
        if value is not None:
            for pair in ((value, b""), (b"", value), (None, value), (value, None)):
                with pytest.raises(TypeError, match="bytes"):
                    await store.swap("ada", "k", *pair, None)

    stores.run(body)


def test_a_value_may_be_as_large_as_the_limit_and_no_larger(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        async with store.listen("ada", "k"):
            for size in (99, 100):
                await store.put("ada", "k", b"x" * size, None)
                await store.append("ada", "k", b"x" * size, None)
                await store.publish("ada", "k", b"x" * size)
        for write in (store.put, store.add, store.append):
            with pytest.raises(Refused, match="101 bytes is too large"):
                await write("ada", "k", b"y" * 101, None)
        for before in (None, b"x" * 100):
            with pytest.raises(Refused, match="101 bytes is too large"):
                await store.swap("ada", "k", before, b"y" * 101, None)
        assert await store.swap("ada", "k", b"y" * 101, b"", None) is False
        with pytest.raises(Refused, match="101 bytes is too large"):
            await store.publish("ada", "k", b"y" * 101)
        assert await store.get("ada", "k") == b"x" * 100
        assert len(await store.read("ada", "k", 0)) == 2

    stores.run(body, StoreLimits(value_bytes=100))


def test_a_principal_holds_so_many_entries_and_no_more(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await store.put("ada", "a", b"", None)
        assert await store.add("ada", "b", b"", None)
        await store.append("ada", "log", b"", None)
        for write in (store.put, store.add):
            with pytest.raises(Refused, match="more than 3 entries"):
                await write("ada", "c", b"", None)
        with pytest.raises(Refused, match="more than 3 entries"):
            await store.append("ada", "another log", b"", None)
        with pytest.raises(Refused, match="more than 3 entries"):
            await store.swap("ada", "c", None, b"", None)
        with pytest.raises(Refused, match="more than 3 entries"):
            await store.count("ada", "c", 1, None)
        assert await store.get("ada", "c") is None
        assert await store.names("ada", "", "", 10) == ["a", "b"]
        assert await store.read("ada", "another log", 0) == []
        # What is there can be changed, others have room, and what goes makes room.
        await store.put("ada", "a", b"new", None)
        await store.append("ada", "log", b"more", None)
        assert await store.add("ada", "a", b"", None) is False
        assert await store.swap("ada", "a", b"new", b"newer", None) is True
        assert await store.swap("ada", "c", b"other", b"", None) is False  # whatever the room
        await store.put("bob", "c", b"", None)
        assert await store.swap("ada", "b", b"", None, None) is True
        await store.put("ada", "c", b"", None)
        with pytest.raises(Refused):
            await store.put("ada", "d", b"", None)
        await store.drop("ada", "log")
        await store.put("ada", "d", b"", None)

    stores.run(body, StoreLimits(principal_entries=3))


def test_a_principal_holds_so_many_bytes_and_no_more(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        half = b"x" * 5000
        await store.put("ada", "a", half, None)
        with pytest.raises(Refused, match="more than 10000 bytes"):
            await store.put("ada", "b", half, None)
        with pytest.raises(Refused, match="more than 10000 bytes"):
            await store.append("ada", "log", half, None)
        with pytest.raises(Refused, match="more than 10000 bytes"):
            await store.put("ada", "a", b"x" * 10_000, None)
        with pytest.raises(Refused, match="more than 10000 bytes"):
            await store.swap("ada", "a", half, b"x" * 10_000, None)
        assert await store.get("ada", "a") == half
        assert await store.append("ada", "log", b"x" * 4000, None) == 1
        with pytest.raises(Refused):
            await store.append("ada", "log", b"y" * 2000, None)
        assert await store.read("ada", "log", 0) == [(1, b"x" * 4000)]
        await store.put("bob", "b", half, None)
        await store.put("ada", "a", b"", None)
        assert await store.append("ada", "log", b"y" * 2000, None) == 2
        await store.delete("ada", "a")
        await store.drop("ada", "log")
        await store.put("ada", "b", b"x" * 9000, None)

    stores.run(body, StoreLimits(principal_bytes=10_000))


def test_empty_entries_are_not_free(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for n in range(3):
            await store.put("ada", f"{n}", b"", None)
        with pytest.raises(Refused, match="bytes"):
            await store.put("ada", "3", b"", None)
        await store.delete("ada", "0")
        await store.delete("ada", "1")
        await store.append("ada", "log", b"", None)
        with pytest.raises(Refused, match="bytes"):
            await store.append("ada", "log", b"", None)

    stores.run(body, StoreLimits(principal_bytes=4 * OVERHEAD_BYTES))


def test_what_expired_holds_no_room_for_longer_than_a_second(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await asyncio.gather(*(store.put("ada", f"{n}", b"", 10.0 + n % 7) for n in range(100)))
        with pytest.raises(Refused):
            await store.put("ada", "more", b"", None)
        stores.clock.now += 18.0
        await asyncio.gather(*(store.put("ada", f"new {n}", b"", None) for n in range(100)))
        with pytest.raises(Refused):
            await store.put("ada", "more", b"", None)

    stores.run(body, StoreLimits(principal_entries=100))


def test_all_that_expired_makes_room_at_once_where_room_is_needed(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        await asyncio.gather(*(store.put("ada", f"{n}", b"x" * 1000, 10.0) for n in range(70)))
        with pytest.raises(Refused):
            await store.put("ada", "large", b"x" * 90_000, None)
        stores.clock.now += 11.0
        await store.put("ada", "large", b"x" * 90_000, None)

    stores.run(body, StoreLimits(principal_bytes=100_000))


def test_all_principals_together_hold_so_much_and_no_more(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        value = b"x" * 100_000
        for n in range(7):
            await store.put(f"p{n}", "k", value, 10.0)
        with pytest.raises(Refused, match="the store is full"):
            await asyncio.gather(*(store.put(f"r{n}", "k", value, 10.0) for n in range(4)))
        assert await store.get("r3", "k") is None
        await store.delete("p0", "k")
        await store.put("late", "k", value, None)
        stores.clock.now += 11.0
        for n in range(6):  # all the others are over
            await store.put(f"q{n}", "k", value, None)

    stores.run(body, StoreLimits(total_bytes=1_000_000))


def test_a_log_costs_what_it_holds_now_and_not_what_it_held(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        for n in range(50):
            await store.append("ada", "log", b"x" * (900 + n), 5.0)
        await store.put("ada", "rest", b"y" * 3000, None)
        stores.clock.now += 7.0
        await store.put("ada", "rest", b"y" * 9000, None)

    stores.run(body, StoreLimits(principal_bytes=10_000, log_entries=4))


# ---------------------------------------------------------------- calls that wait


def test_leases_are_renewed_and_released_while_others_fill_the_queue(
    stores: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_CALLS", 8)
    monkeypatch.setattr(limits, "RESERVED_CALLS", 4)

    async def body(store: Store) -> None:
        for key in ("task 1", "task 2", "task 3"):
            await store.put("ada", key, b"1", 60.0)
        await store.put(SERVER_PRINCIPAL, "replica", b"1", 5.0)
        others = [store.append("ada", f"stream {n}", b"x", 60.0) for n in range(9)]
        renewed = [
            store.swap("ada", "task 1", b"1", b"2", 60.0),
            store.swap_all([Swap("ada", "task 2", b"1", b"2", 60.0)]),
            store.put(SERVER_PRINCIPAL, "replica", b"2", 5.0),
        ]
        new = [
            store.add("ada", "new", b"x", 60.0),
            store.swap_all([Swap("ada", "b", None, b"", 1.0)]),
        ]
        released = [store.delete("ada", "task 3"), store.delete(SERVER_PRINCIPAL, "replica")]
        calls: list[Any] = [*others, *renewed, *new, *released]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        has_queue = not isinstance(store, MemoryStore)
        assert [isinstance(one, Refused) for one in outcomes[:9]] == [False] * 8 + [has_queue]
        assert outcomes[9:12] == [True, True, None]
        assert [isinstance(one, Refused) for one in outcomes[12:14]] == [has_queue] * 2
        assert outcomes[14:] == [None, None]
        assert await store.get("ada", "task 3") is None

    stores.run(body)


def test_what_clients_change_leaves_places_for_the_leases_of_the_server(
    stores: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_CALLS", 8)
    monkeypatch.setattr(limits, "RESERVED_CALLS", 4)

    async def body(store: Store) -> None:
        await store.put("ada", "session", b"1", 60.0)
        calls: list[Any] = [store.swap("ada", "session", b"1", b"1", 60.0) for _ in range(20)]
        calls.append(store.put(SERVER_PRINCIPAL, "replica", b"2", 5.0))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        if not isinstance(store, MemoryStore):
            assert [isinstance(one, Refused) for one in outcomes[:20]] == [False] * 12 + [True] * 8
        assert outcomes[20] is None

    stores.run(body)
