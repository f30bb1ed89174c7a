"""A `requestState` that is too large to travel: it waits in the store, and nobody else gets it."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from colonnade.auth.seal import (
    CLOCK_SKEW_S,
    KEY_BYTES,
    MAX_SECRET_BYTES,
    MAX_STORED_BYTES,
    KeyRing,
    RequestStateStorage,
)
from colonnade.errors import Fault, FaultKind
from colonnade.ports import Store
from colonnade.protocol.input_rounds import invalid_request_state
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore

KEY, OTHER = bytes(range(KEY_BYTES)), bytes(reversed(range(KEY_BYTES)))
SMALL = b'{"principal":"ada"}'
LARGE = b'{"answers":"' + os.urandom(MAX_SECRET_BYTES).hex().encode() + b'"}'
TTL_S = 600.0


def run_on_store(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 60))


def depot(store: Store, *keys: bytes, audience: str = "s") -> RequestStateStorage:
    ring = KeyRing(keys or [KEY], audience=audience)
    return RequestStateStorage(lambda: ring, lambda: store)


async def refused(one: RequestStateStorage, text: str, principal: str = "ada") -> None:
    with pytest.raises(Fault) as caught:
        await one.load(text, principal)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert caught.value.message == invalid_request_state().message


@pytest.mark.parametrize("size", [0, 1, MAX_SECRET_BYTES])
def test_what_may_travel_never_sees_the_store(size: int) -> None:
    async def body() -> None:
        def nowhere() -> Store:
            raise AssertionError("nobody needs the store")

        ring = KeyRing([KEY])
        one = RequestStateStorage(lambda: ring, nowhere)
        secret = b"x" * size
        assert await one.load(await one.save(secret, "ada", TTL_S), "ada") == secret

    run_on_store(body)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_may_not_travel_waits_and_its_name_is_short(kind: str, tmp_path: Path) -> None:
    async def body() -> None:
        shared = MemoryStore()
        stores: list[Store] = [shared, shared]
        if kind == "sqlite":
            stores = [SqliteStore(tmp_path / "store.db") for _ in range(2)]
        for secret in (LARGE, b"y" * (MAX_SECRET_BYTES + 1), b"z" * MAX_STORED_BYTES):
            text = await depot(stores[0]).save(secret, "ada", TTL_S)
            assert len(text) < 200
            # Any replica that shares keys and store goes on, however often.
            for _ in range(2):
                assert await depot(stores[1], OTHER, KEY).load(text, "ada") == secret
        for store in stores:
            await store.close()

    run_on_store(body)


def test_only_its_own_caller_server_and_ring_gets_it() -> None:
    async def body() -> None:
        store = MemoryStore()
        one = depot(store)
        text = await one.save(LARGE, "ada", TTL_S)
        for principal in ("eve", "", "Ada"):
            await refused(one, text, principal)
        await refused(depot(store, OTHER), text)
        await refused(depot(store, audience="other"), text)
        await refused(depot(MemoryStore()), text)
        await refused(one, text[:-1] + ("A" if text[-1] != "A" else "B"))
        assert await one.load(text, "ada") == LARGE

    run_on_store(body)


def test_it_is_forgotten_when_it_could_no_longer_be_opened() -> None:
    async def body() -> None:
        clock = [0.0]
        store = MemoryStore(clock=lambda: clock[0])
        one = depot(store)
        text = await one.save(LARGE, "ada", TTL_S)
        clock[0] = TTL_S + CLOCK_SKEW_S - 0.001
        assert await one.load(text, "ada") == LARGE
        clock[0] += 0.002
        await refused(one, text)

    run_on_store(body)


def test_the_store_holds_nothing_legible_and_nothing_that_can_be_exchanged() -> None:
    async def body() -> None:
        store = MemoryStore()
        one = depot(store)
        first = await one.save(LARGE, "ada", TTL_S)
        second = await one.save(LARGE[::-1], "ada", TTL_S)
        entries = store._things
        (place_a, a), (place_b, b) = entries.items()
        assert b"answers" not in a.value + b.value  # type: ignore[union-attr]
        assert LARGE[100:120] not in a.value  # type: ignore[union-attr]
        entries[place_a], entries[place_b] = b, a
        await refused(one, first)
        await refused(one, second)
        # The parts of one, in another order.
        parts = b.value.split(b"\n")  # type: ignore[union-attr]
        b.value = b"\n".join(reversed(parts))  # type: ignore[union-attr]
        await refused(one, first)
        b.value = b"rubbish"  # type: ignore[union-attr]
        await refused(one, first)

    run_on_store(body)


def test_far_too_much_and_a_full_store_are_said_in_words() -> None:
    async def body() -> None:
        with pytest.raises(Fault, match=f"the maximum is {MAX_STORED_BYTES}") as caught:
            await depot(MemoryStore()).save(b"x" * (MAX_STORED_BYTES + 1), "ada", TTL_S)
        assert caught.value.kind is FaultKind.INTERNAL
        full = MemoryStore(limits=StoreLimits(principal_bytes=1000))
        with pytest.raises(Fault, match="the store has no room for it") as caught:
            await depot(full).save(LARGE, "ada", TTL_S)
        assert caught.value.kind is FaultKind.INTERNAL
        assert not full._things

    run_on_store(body)


# ---------------------------------------------------------------- keys that nobody else has


def test_a_state_of_another_process_is_warned_of_once_where_the_key_is_our_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RQ-06: where it happens, since one process alone needs no warning."""
    ours, theirs = KeyRing(), KeyRing([KEY])
    with caplog.at_level(logging.WARNING, "colonnade.server"):
        for _ in range(3):
            with pytest.raises(Fault):
                ours.unseal(theirs.seal(SMALL))
    (record,) = caplog.records
    assert "Server(keys=[...])" in record.getMessage()
    assert "ada" not in record.getMessage()


def test_nothing_is_said_where_keys_were_given_or_what_came_is_rubbish(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given, own = KeyRing([KEY]), KeyRing()
    with caplog.at_level(logging.DEBUG, "colonnade.server"):
        for ring, text in (
            (given, KeyRing([OTHER]).seal(SMALL)),
            (own, "rubbish"),
            (own, ""),
            (own, own.seal(SMALL)[:-4] + "AAAA"),
        ):
            with pytest.raises(Fault):
                ring.unseal(text)
    assert not caplog.records
