"""The contract of every store, fourth part: compare and swap, counters, and names in order.

Rules: only the port is used, but for what is said of one store by its name.
"""

import asyncio
import random
import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colonnade.errors import ChannelError, ConnectionLost, InvalidArgument, Refused
from colonnade.ports import SERVER_PRINCIPAL, Caller, Store, Swap
from colonnade.store.limits import MAX_COUNT, MAX_LISTED_NAMES, MAX_NAME_BYTES, StoreLimits
from colonnade.store.memory import CHUNK_NAMES, MemoryStore, SortedNames
from colonnade.store.sqlite import SqliteStore
from store.files import query, run_on_file
from store.store_fixture import Clock, StoreFixture

ROOMY = StoreLimits(principal_entries=10**6, principal_bytes=10**9, total_bytes=10**9)


async def listed(store: Store, principal: str, prefix: str, limit: int) -> list[str]:
    """All names with a prefix, page after page."""
    found: list[str] = []
    while True:
        page = await store.names(principal, prefix, found[-1] if found else "", limit)
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return found


# ---------------------------------------------------------------- swap


def test_a_value_is_swapped_only_if_it_is_the_one_before(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        assert await store.swap("ada", "k", b"1", b"2", None) is False
        assert await store.swap("ada", "k", b"", b"2", None) is False  # absent is not empty
        assert await store.swap("ada", "k", None, b"1", None) is True
        assert await store.swap("ada", "k", None, b"2", None) is False
        assert await store.swap("ada", "k", b"2", b"3", None) is False
        assert await store.swap("ada", "k", b"", b"3", None) is False
        assert await store.get("ada", "k") == b"1"
        assert await store.swap("ada", "k", b"1", b"", None) is True
        assert await store.swap("ada", "k", None, b"2", None) is False  # empty is not absent
        assert await store.swap("ada", "k", b"", b"2", None) is True
        assert await store.get("ada", "k") == b"2"

    stores.run(scene)


def test_a_swap_to_nothing_deletes_and_one_from_nothing_to_nothing_tells(
    stores: StoreFixture,
) -> None:
    async def scene(store: Store) -> None:
        assert await store.swap("ada", "k", None, None, None) is True
        await store.put("ada", "k", b"1", None)
        assert await store.swap("ada", "k", None, None, None) is False
        assert await store.swap("ada", "k", b"2", None, None) is False
        assert await store.get("ada", "k") == b"1"
        assert await store.swap("ada", "k", b"1", None, 60.0) is True
        assert await store.get("ada", "k") is None
        assert await store.names("ada", "", "", 10) == []
        assert await store.swap("ada", "k", b"1", None, None) is False

    stores.run(scene)


def test_what_expired_is_nothing_to_a_swap(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        await store.put("ada", "k", b"1", 10.0)
        stores.clock.now += 9.75
        assert await store.swap("ada", "k", None, b"2", None) is False
        stores.clock.now += 0.25
        assert await store.swap("ada", "k", b"1", b"2", None) is False
        assert await store.swap("ada", "k", b"1", None, None) is False
        assert await store.swap("ada", "k", None, b"2", 5.0) is True
        assert await store.get("ada", "k") == b"2"
        stores.clock.now += 5.0
        assert await store.swap("ada", "k", None, None, None) is True

    stores.run(scene)


def test_a_swap_decides_how_long_the_entry_lives_and_one_that_fails_does_not(
    stores: StoreFixture,
) -> None:
    async def scene(store: Store) -> None:
        for key in ("renewed", "ever", "failed"):
            await store.put("ada", key, b"1", 10.0)
        assert await store.swap("ada", "renewed", b"1", b"1", 100.0) is True
        assert await store.swap("ada", "ever", b"1", b"2", None) is True
        assert await store.swap("ada", "failed", b"2", b"1", 100.0) is False
        stores.clock.now += 50.0
        assert await store.get("ada", "renewed") == b"1"
        assert await store.get("ada", "ever") == b"2"
        assert await store.get("ada", "failed") is None
        stores.clock.now += 1e9
        assert await store.names("ada", "", "", 10) == ["ever"]

    stores.run(scene)


def test_several_swaps_take_place_together_or_not_at_all(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        await store.put("ada", "b", b"1", None)
        await store.put(SERVER_PRINCIPAL, "c", b"1", None)
        swaps = [
            Swap("ada", "a", None, b"new", 10.0),
            Swap("ada", "b", b"1", b"2", None),
            Swap(SERVER_PRINCIPAL, "c", b"1", None, None),
        ]
        for number, other in ((0, b"0"), (1, b"0"), (1, None), (2, b"0"), (2, None)):
            wrong = [*swaps]
            wrong[number] = swaps[number]._replace(before=other)
            assert await store.swap_all(wrong) is False
            assert await store.names("ada", "", "", 10) == ["b"]
            assert await store.get("ada", "b") == b"1"
            assert await store.get(SERVER_PRINCIPAL, "c") == b"1"
        assert await store.swap_all(swaps) is True
        assert await store.get("ada", "a") == b"new"
        assert await store.get("ada", "b") == b"2"
        assert await store.get(SERVER_PRINCIPAL, "c") is None
        assert await store.swap_all(swaps) is False
        stores.clock.now += 10.0
        assert await store.names("ada", "", "", 10) == ["b"]
        assert await store.swap_all([]) is True

    stores.run(scene)


def test_several_swaps_of_which_one_has_no_room_are_all_refused(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        await store.put("ada", "old", b"1", None)
        more = [Swap("ada", f"new {n}", None, b"", None) for n in range(2)]
        with pytest.raises(Refused, match="more than 2 entries"):
            await store.swap_all([Swap("bob", "his", None, b"1", None), *more])
        assert await store.names("bob", "", "", 10) == []
        assert await store.names("ada", "", "", 10) == ["old"]
        # What is deleted by the same call makes room.
        assert await store.swap_all([*more, Swap("ada", "old", b"1", None, None)]) is True
        assert await store.names("ada", "", "", 10) == ["new 0", "new 1"]
        with pytest.raises(Refused, match="more than 2 entries"):
            await store.add("ada", "one more", b"", None)

    stores.run(scene, StoreLimits(principal_entries=2))


def test_of_many_swaps_of_one_value_at_once_exactly_one_succeeds(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        value = None
        for turn in range(3):
            values = [b"%d %d" % (turn, n) for n in range(100)]
            swaps = [store.swap("ada", "k", value, after, 60.0) for after in values]
            won = await asyncio.gather(*swaps)
            assert won.count(True) == 1
            value = values[won.index(True)]
            assert await store.get("ada", "k") == value
        assert (
            await asyncio.gather(*(store.swap("ada", "k", value, None, None) for _ in range(9)))
        ).count(True) == 1

    stores.run(scene)


def test_a_swap_that_is_refused_for_want_of_room_changes_nothing(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        calls = [store.swap("ada", f"{n}", None, b"%d" % n, None) for n in range(9)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        kept = [f"{n}" for n, outcome in enumerate(outcomes) if outcome is True]
        refused = [outcome for outcome in outcomes if outcome is not True]
        assert len(kept) == 5
        assert all(isinstance(one, Refused) for one in refused)
        assert await store.names("ada", "", "", 100) == kept
        for key in kept:
            assert await store.get("ada", key) == key.encode()
            with pytest.raises(Refused, match="more than 5000 bytes"):
                await store.swap("ada", key, key.encode(), b"x" * 5000, None)
            assert await store.get("ada", key) == key.encode()

    stores.run(scene, StoreLimits(principal_entries=5, principal_bytes=5000))


# ---------------------------------------------------------------- counters


def test_a_counter_counts_from_nothing_up_and_down(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        assert await store.count("ada", "n", 1, None) == 1
        assert await store.count("ada", "n", 41, None) == 42
        assert await store.get("ada", "n") == b"42"
        assert await store.count("ada", "n", -50, None) == -8
        assert await store.get("ada", "n") == b"-8"
        assert await store.count("ada", "n", 0, None) == -8
        assert await store.count("ada", "n", 8, None) == 0
        assert await store.get("ada", "n") == b"0"  # which is still an entry
        assert await store.names("ada", "", "", 10) == ["n"]
        await store.delete("ada", "n")
        assert await store.count("ada", "n", -3, None) == -3
        assert await store.swap("ada", "n", b"-3", b"7", None) is True
        assert await store.count("ada", "n", 1, None) == 8
        assert await store.count("bob", "n", 1, None) == 1

    stores.run(scene)


def test_many_who_count_at_once_are_all_counted(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        counted = await asyncio.gather(*(store.count("ada", "n", 1, 60.0) for _ in range(200)))
        assert sorted(counted) == list(range(1, 201))

    stores.run(scene)


def test_a_counter_lives_from_its_first_count_and_then_begins_again(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        await store.count("ada", "n", 1, 10.0)
        await store.count("ada", "ever", 1, None)
        stores.clock.now += 9.0
        assert await store.count("ada", "n", 1, 10.0) == 2
        assert await store.count("ada", "n", 1, None) == 3
        assert await store.count("ada", "ever", 1, 1.0) == 2
        stores.clock.now += 1.0
        assert await store.get("ada", "n") is None
        assert await store.count("ada", "n", 1, 5.0) == 1
        stores.clock.now += 4.75
        assert await store.count("ada", "n", 1, 5.0) == 2
        stores.clock.now += 1e9
        assert await store.names("ada", "", "", 10) == ["ever"]
        assert await store.count("ada", "ever", 1, None) == 3

    stores.run(scene)


@pytest.mark.parametrize(
    "value", [b"", b"x", b"+1", b" 1", b"1_0", b"01", b"-0", b"1.0", b"1" * 9000]
)
def test_what_is_no_number_is_not_counted(stores: StoreFixture, value: bytes) -> None:
    async def scene(store: Store) -> None:
        await store.put("ada", "k", value, None)
        with pytest.raises(InvalidArgument, match="not a counter"):
            await store.count("ada", "k", 1, None)
        assert await store.get("ada", "k") == value

    stores.run(scene)


@pytest.mark.parametrize("by", [1.5, "1", None])
def test_a_counter_counts_by_whole_numbers(stores: StoreFixture, by: Any) -> None:
    async def scene(store: Store) -> None:
        with pytest.raises(TypeError, match="counts by an int"):
            await store.count("ada", "n", by, None)
        assert await store.get("ada", "n") is None

    stores.run(scene)


def test_a_counter_has_a_range_of_64_bits(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        assert await store.count("ada", "n", MAX_COUNT, None) == MAX_COUNT
        for by in (1, 10**30, -2 * MAX_COUNT - 1, -(10**5000)):
            with pytest.raises(Refused, match="64 bits"):
                await store.count("ada", "n", by, None)
        assert await store.count("ada", "n", -2 * MAX_COUNT, None) == -MAX_COUNT

    stores.run(scene)


def test_a_count_that_is_refused_for_want_of_room_changes_nothing(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        await store.count("ada", "n", 9, None)
        with pytest.raises(Refused, match="more than 261 bytes"):
            await store.count("ada", "n", 1, None)  # a second digit
        assert await store.get("ada", "n") == b"9"
        assert await store.count("ada", "n", -1, None) == 8

    stores.run(scene, StoreLimits(principal_bytes=3 + 1 + 1 + 256))


# ---------------------------------------------------------------- names


def test_names_are_listed_in_order_by_prefix_and_after(stores: StoreFixture) -> None:
    names = ["a", "a/", "a/1", "a/10", "a/2", "a0", "b/1", "é", "\ufffd", "\U0001f511"]

    async def scene(store: Store) -> None:
        for name in reversed(names):
            await store.put("ada", name, b"", None)
        await store.append("ada", "a/log", b"", None)  # a log is no entry
        await store.put("bob", "a/3", b"", None)
        assert await store.names("ada", "", "", 100) == names
        assert await store.names("ada", "a/", "", 100) == ["a/", "a/1", "a/10", "a/2"]
        assert await store.names("ada", "a/", "", 2) == ["a/", "a/1"]
        assert await store.names("ada", "a/", "a/1", 2) == ["a/10", "a/2"]
        assert await store.names("ada", "a/", "a/11", 2) == ["a/2"]  # which need not be there
        assert await store.names("ada", "a/", "a/2", 2) == []
        assert await store.names("ada", "a/", "b", 2) == []
        assert await store.names("ada", "b", "a", 2) == ["b/1"]
        assert await store.names("ada", "c", "", 2) == []
        assert await store.names("ada", "\U0001f511", "", 2) == ["\U0001f511"]
        assert await store.names("ada", "\ufffd", "", 2) == ["\ufffd"]
        assert await store.names("eve", "", "", 2) == []

    stores.run(scene)


def test_what_expired_is_not_listed_and_takes_no_place_in_a_page(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        for n in range(40):
            await store.put("ada", f"{n:02}", b"", 10.0 if n % 4 else None)
        stores.clock.now += 10.0
        living = [f"{n:02}" for n in range(0, 40, 4)]
        assert await store.names("ada", "", "", 5) == living[:5]
        assert await listed(store, "ada", "", 5) == living
        await store.add("ada", "39", b"", None)
        assert await store.names("ada", "3", "36", 5) == ["39"]

    stores.run(scene)


@pytest.mark.parametrize("limit", [0, -1, MAX_LISTED_NAMES + 1, 10**30])
def test_a_page_of_names_is_bounded(stores: StoreFixture, limit: int) -> None:
    async def scene(store: Store) -> None:
        with pytest.raises(InvalidArgument, match=r"limit is .*; list 1 to 1000"):
            await store.names("ada", "", "", limit)
        assert await store.names("ada", "", "", MAX_LISTED_NAMES) == []

    stores.run(scene)


@pytest.mark.parametrize("name", ["a\0", "\ud800", "x" * (MAX_NAME_BYTES + 1)])
def test_a_page_of_names_begins_after_a_name(stores: StoreFixture, name: str) -> None:
    async def scene(store: Store) -> None:
        with pytest.raises(Refused, match="the name"):
            await store.names("ada", "", name, 1)
        assert await store.names("ada", "", "x" * MAX_NAME_BYTES, 1) == []
        await store.put("ada", "y" * MAX_NAME_BYTES, b"", None)
        assert await store.names("ada", "y" * MAX_NAME_BYTES, "x", 1) == ["y" * MAX_NAME_BYTES]

    stores.run(scene)


def test_10_000_names_are_each_listed_once_while_others_come_and_go(stores: StoreFixture) -> None:
    dice = random.Random(11)
    staying = {f"task/{n:06}" for n in range(0, 30_000, 3)}

    async def scene(store: Store) -> None:
        order = sorted(staying)
        dice.shuffle(order)
        for at in range(0, len(order), 2000):
            await asyncio.gather(
                *(store.swap("ada", name, None, b"", None) for name in order[at : at + 2000])
            )
        others: set[str] = set()
        found: list[str] = []
        page: list[str] = []
        while not found or len(page) == 500:
            page = await store.names("ada", "task/", found[-1] if found else "", 500)
            found += page
            changes: list[Any] = []
            for _ in range(100):
                name = f"task/{dice.randrange(10_000) * 3 + dice.choice([1, 2]):06}"
                if name in others:
                    changes.append(store.delete("ada", name))
                    others.remove(name)
                else:
                    changes.append(store.add("ada", name, b"", dice.choice([None, 0.5])))
                    others.add(name)
            await asyncio.gather(*changes)
            stores.clock.now += 0.25
        assert found == sorted(found)
        assert len(set(found)) == len(found)
        assert staying <= set(found)
        assert len(staying) == 10_000

    stores.run(scene, ROOMY)


# ---------------------------------------------------------------- against a model

KEYS = st.sampled_from(["a", "a/1", "a/2", "a/é", "b", "ab"])
VALUES = st.sampled_from([b"", b"1", b"2", b"10", b"-3", b"x"])
LIFETIMES = st.sampled_from([None, 0.5, 1.0, 4.0])
STEPS = st.one_of(
    st.tuples(st.just("swap"), KEYS, st.none() | VALUES, st.none() | VALUES, LIFETIMES),
    st.tuples(st.just("swap now"), KEYS, st.none() | VALUES, LIFETIMES),
    st.tuples(st.just("count"), KEYS, st.integers(-20, 20), LIFETIMES),
    st.tuples(
        st.just("names"),
        st.sampled_from(["", "a", "a/", "b", "c"]),
        st.just("") | KEYS,
        st.integers(1, 4),
    ),
    st.tuples(st.just("put"), KEYS, VALUES, LIFETIMES),
    st.tuples(st.just("add"), KEYS, VALUES, LIFETIMES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("wait"), st.sampled_from([0.25, 0.5, 1.0, 3.0])),
)


PRINCIPALS = count()  # the file stays from one example to the next


class Model:
    """What the port says, as a dict of values and their ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[bytes, float | None]] = {}

    def get(self, key: str) -> bytes | None:
        value, end = self._entries.get(key, (None, None))
        return value if end is None or self._clock() < end else None

    def put(self, key: str, value: bytes, ttl_s: float | None) -> None:
        self._entries[key] = value, None if ttl_s is None else self._clock() + ttl_s

    def add(self, key: str, value: bytes, ttl_s: float | None) -> bool:
        return self.swap(key, None, value, ttl_s)

    def delete(self, key: str) -> None:
        self._entries.pop(key, None)

    def swap(
        self, key: str, before: bytes | None, after: bytes | None, ttl_s: float | None
    ) -> bool:
        if self.get(key) != before:
            return False
        if after is None:
            self.delete(key)
        else:
            self.put(key, after, ttl_s)
        return True

    def count(self, key: str, by: int, ttl_s: float | None) -> int | None:
        before = self.get(key)
        if before in (b"", b"x"):
            return None
        number = int(before or 0) + by
        if before is None:
            self.put(key, b"%d" % number, ttl_s)
        else:
            self._entries[key] = b"%d" % number, self._entries[key][1]
        return number

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        there = sorted(key for key in self._entries if self.get(key) is not None)
        return [key for key in there if key.startswith(prefix) and key > after][:limit]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=30))
def test_a_store_does_what_a_dict_with_expiry_does(
    stores: StoreFixture, steps: list[tuple[Any, ...]]
) -> None:
    async def scene(store: Store) -> None:
        who, model = f"{next(PRINCIPALS)}", Model(stores.clock)
        for verb, *arguments in steps:
            if verb == "wait":
                stores.clock.now += arguments[0]
                continue
            if verb == "swap now":  # from what is there, so that it succeeds
                verb, arguments = "swap", [arguments[0], model.get(arguments[0]), *arguments[1:]]
            expected = getattr(model, verb)(*arguments)
            call = getattr(store, verb)(who, *arguments)
            if verb == "count" and expected is None:
                with pytest.raises(InvalidArgument):
                    await call
            else:
                assert await call == expected
        for key in await store.names(who, "", "", 1000):
            assert await store.get(who, key) == model.get(key) is not None
        assert await store.names(who, "", "", 1000) == model.names("", "", 1000)

    stores.run(scene)


# ---------------------------------------------------------------- the server's own state


def test_the_servers_own_principal_is_held_by_every_store_and_by_no_caller(
    stores: StoreFixture,
) -> None:
    with pytest.raises(InvalidArgument, match="the server's own principal"):
        Caller(SERVER_PRINCIPAL)
    assert not SERVER_PRINCIPAL.isprintable()  # as every subject of a token is

    async def scene(store: Store) -> None:
        await store.add(SERVER_PRINCIPAL, "k", b"own", None)
        for other in ("", "server", SERVER_PRINCIPAL[0], f"{SERVER_PRINCIPAL} "):
            assert await store.get(other, "k") is None
            assert await store.names(other, "", "", 10) == []
        assert await store.names(SERVER_PRINCIPAL, "", "", 10) == ["k"]

    stores.run(scene)


def test_the_servers_own_state_is_bounded_by_the_whole_store_alone(stores: StoreFixture) -> None:
    async def scene(store: Store) -> None:
        for n in range(10):
            assert await store.add(SERVER_PRINCIPAL, f"{n}", b"x" * 10_000, None)
        await store.put("ada", "k", b"", None)
        with pytest.raises(Refused, match="more than 1 entries"):
            await store.put("ada", "l", b"", None)
        with pytest.raises(Refused, match="the store is full"):
            await store.add(SERVER_PRINCIPAL, "large", b"x" * 1_000_000, None)
        assert await store.get(SERVER_PRINCIPAL, "large") is None

    limits = StoreLimits(principal_entries=1, principal_bytes=1000, total_bytes=1_000_000)
    stores.run(scene, limits)


# ---------------------------------------------------------------- in memory


def test_sorted_names_are_what_a_sorted_list_is() -> None:
    dice = random.Random(5)
    names, expected = SortedNames(), set[str]()
    for step in range(40_000):
        name = f"{dice.randrange(20_000):05}"
        if name in expected and (step > 20_000 or dice.random() < 0.3):
            names.remove(name)
            expected.remove(name)
        elif name not in expected and step <= 20_000:
            names.add(name)
            expected.add(name)
        if step % 1000 == 0:
            start = f"{dice.randrange(20_000):05}"
            assert list(names.starting_at(start)) == sorted(n for n in expected if n >= start)
    assert len(expected) > CHUNK_NAMES
    for name in list(expected):
        names.remove(name)
    assert list(names.starting_at("")) == names._chunks == []


def test_nothing_is_left_of_names_that_expired_and_were_listed() -> None:
    async def scene() -> None:
        clock = Clock()
        store = MemoryStore(clock=clock)
        for n in range(100):
            await store.put("ada", f"{n}", b"", 1.0)
        clock.now += 1.0
        assert await store.names("ada", "", "", 1) == []
        assert not store._things
        assert not store._usage
        assert not store._due
        assert store._size == 0

    asyncio.run(scene())


def test_10_000_waiting_tasks_fit_into_memory() -> None:
    """Each with a record, a journal and an entry in an index: a third of what they may take."""

    async def scene() -> None:
        clock = Clock()
        store = MemoryStore(clock=clock, limits=ROOMY)
        tracemalloc.start()
        try:
            for n in range(10_000):
                clock.now += 0.25
                name = f"{n:020}{n:012x}"
                await store.add("ada", f"task/{name}", name.encode() * 10, 3600.0)
                await store.add("ada", f"journal/{name}", name.encode() * 5, 3600.0)
                await store.add(SERVER_PRINCIPAL, f"open/{name}", name.encode(), 3600.0)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(await listed(store, "ada", "task/", 1000)) == 10_000
        assert held < 17 * 1024 * 1024, held

    asyncio.run(scene())


# ---------------------------------------------------------------- in a file


def test_names_are_found_by_an_index_and_need_no_sorting(tmp_path: Path) -> None:
    seen: list[str] = []

    async def scene(store: SqliteStore) -> None:
        await store.put("ada", "k", b"", None)
        await store._call(lambda file: file._db.set_trace_callback(seen.append))
        await store.names("ada", "k", "", 10)

    run_on_file(tmp_path / "store.db", scene)
    (sql,) = [statement for statement in seen if "ORDER BY name" in statement]
    (plan,) = query(tmp_path / "store.db", f"EXPLAIN QUERY PLAN {sql}")
    assert str(plan[-1]).startswith("SEARCH things USING INDEX")
    assert str(plan[-1]).endswith("(principal=? AND kind=? AND name>? AND name<?)")


Work = Callable[[SqliteStore], Any]


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.swap("ada", "k", b"12", b"13", None),
        lambda store: store.swap("ada", "k", b"12", None, None),
        lambda store: store.count("ada", "k", 1, None),
    ],
    ids=["swap", "delete", "count"],
)
def test_what_was_damaged_on_disk_is_neither_swapped_nor_counted(
    tmp_path: Path, work: Work
) -> None:
    path = tmp_path / "store.db"

    async def written(store: SqliteStore) -> None:
        await store.put("ada", "k", b"12", None)

    async def changed(store: SqliteStore) -> None:
        with pytest.raises(ChannelError, match="damaged"):
            await work(store)
        with pytest.raises(ChannelError, match="damaged"):
            await store.get("ada", "k")
        assert await store.swap("ada", "k", None, b"new", None) is False

    run_on_file(path, written)
    query(path, "UPDATE things SET value = x'000000003133'")
    run_on_file(path, changed)


def test_a_name_that_was_damaged_on_disk_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def written(store: SqliteStore) -> None:
        await store.put("ada", "k", b"", None)

    async def read(store: SqliteStore) -> None:
        with pytest.raises(ConnectionLost, match="damaged"):
            await store.names("ada", "", "", 10)

    run_on_file(path, written)
    query(path, "UPDATE things SET name = x'6bc3'")
    run_on_file(path, read)


def test_two_stores_on_one_file_see_each_others_swaps(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def scene(store: SqliteStore) -> None:
        other = SqliteStore(path, clock=Clock())
        try:
            for n in range(20):
                one, two = (store, other) if n % 2 else (other, store)
                before = b"%d" % n if n else None
                won = await asyncio.gather(
                    one.swap("ada", "k", before, b"%d" % (n + 1), 60.0),
                    two.swap("ada", "k", before, b"%d" % (n + 1), 60.0),
                )
                assert sorted(won) == [False, True]
                assert await one.get("ada", "k") == await two.get("ada", "k") == b"%d" % (n + 1)
        finally:
            await other.close()

    run_on_file(path, scene)
