"""Messages through a file: who hears what, what is kept for others, and who learns of a gap."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from colonnade.errors import ConnectionLost
from colonnade.store import sqlite_schema as sqlite_file
from colonnade.store.sqlite import SqliteStore
from store.files import Held, query, run_on_file
from store.store_fixture import Clock


def test_whoever_stops_while_entering_does_not_go_on_listening(tmp_path: Path) -> None:
    async def listen(store: SqliteStore) -> None:
        async with store.listen("ada", "t"):
            raise AssertionError("it was never entered")

    async def body(store: SqliteStore) -> None:
        async with Held(store):
            listening = asyncio.ensure_future(listen(store))
            await asyncio.sleep(0)
            listening.cancel()
            await asyncio.wait([listening])
        await store.get("ada", "k")
        assert not store._topics

    run_on_file(tmp_path / "store.db", body)


def test_what_was_published_just_before_listening_is_for_those_who_listened_already(
    tmp_path: Path,
) -> None:
    async def body(store: SqliteStore) -> None:
        async with AsyncExitStack() as listening:
            early = await listening.enter_async_context(store.listen("ada", "t"))
            async with Held(store):  # so that both are in one commit
                published = asyncio.ensure_future(store.publish("ada", "t", b"before"))
                await asyncio.sleep(0)
                entering = asyncio.ensure_future(
                    listening.enter_async_context(store.listen("ada", "t"))
                )
                await asyncio.sleep(0)
            late = await entering
            await published
            await store.publish("ada", "t", b"after")
            assert [await anext(early), await anext(early)] == [b"before", b"after"]
            assert await anext(late) == b"after"

    run_on_file(tmp_path / "store.db", body)


def test_two_stores_on_one_file_hear_each_other(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def body(store: SqliteStore) -> None:
        other = SqliteStore(path, clock=Clock())
        try:
            async with store.listen("ada", "t") as here, other.listen("ada", "t") as there:
                await store.publish("ada", "t", b"1")
                assert [await anext(here), await anext(there)] == [b"1", b"1"]
                await other.publish("ada", "t", b"2")
                assert [await anext(here), await anext(there)] == [b"2", b"2"]
        finally:
            await other.close()

    run_on_file(path, body)


def test_messages_are_kept_for_others_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "MAX_STORED_MESSAGES", 10)
    path = tmp_path / "store.db"

    async def body(store: SqliteStore) -> None:
        await asyncio.gather(*(store.publish("ada", "t", b"%d" % n) for n in range(50)))

    async def large(store: SqliteStore) -> None:
        monkeypatch.setattr(sqlite_file, "MAX_STORED_MESSAGE_BYTES", 10_000)
        for _ in range(5):
            await store.publish("ada", "t", b"x" * 4000)

    run_on_file(path, body)
    assert query(path, "SELECT count(*), max(id) FROM messages") == [(10, 50)]
    run_on_file(path, large)
    assert query(path, "SELECT count(*), max(id) FROM messages") == [(3, 55)]


def test_a_process_that_was_stopped_for_too_long_learns_that_it_missed_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "MAX_STORED_MESSAGES", 10)
    path = tmp_path / "store.db"

    async def body(store: SqliteStore) -> None:
        other = SqliteStore(path, clock=Clock())
        try:
            async with store.listen("ada", "t") as heard:
                async with Held(store):
                    await asyncio.gather(*(other.publish("ada", "u", b"") for _ in range(9)))
                    await other.publish("ada", "t", b"in time")
                assert await anext(heard) == b"in time"
                async with Held(store):
                    await asyncio.gather(*(other.publish("ada", "u", b"") for _ in range(11)))
                with pytest.raises(ConnectionLost, match="removed before they were read"):
                    await anext(heard)
            async with store.listen("ada", "t") as heard:
                await other.publish("ada", "t", b"again")
                assert await anext(heard) == b"again"
        finally:
            await other.close()

    run_on_file(path, body)


def test_who_listens_learns_that_the_file_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: object) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    async def body(store: SqliteStore) -> None:
        async with store.listen("ada", "t") as heard:
            with monkeypatch.context() as broken:
                broken.setattr(sqlite_file.StoreFile, "newest", fails)
                with pytest.raises(ConnectionLost, match="disk I/O error"):
                    await anext(heard)
        async with store.listen("ada", "t") as heard:
            await store.publish("ada", "t", b"well again")
            assert await anext(heard) == b"well again"

    run_on_file(tmp_path / "store.db", body)
