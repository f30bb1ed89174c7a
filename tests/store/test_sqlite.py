"""What is true of the store in a file alone: what the file is, and who is kept waiting by it."""

import asyncio
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ConnectionLost,
    LocalProtocolError,
    Refused,
    TimedOut,
)
from colonnade.store import limits
from colonnade.store import sqlite_schema as sqlite_file
from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore
from store.files import Held, query, run_on_file
from store.store_fixture import Clock

# ---------------------------------------------------------------- the file


def test_a_store_touches_nothing_before_its_first_call(tmp_path: Path) -> None:
    before = threading.active_count()
    SqliteStore(tmp_path / "store.db")
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == before


def test_what_was_stored_outlives_the_store(tmp_path: Path) -> None:
    clock = Clock()

    async def first(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", 100.0)
        await store.append("ada", "log", b"1", None)

    async def second(store: SqliteStore) -> None:
        assert await store.get("ada", "k") == b"v"
        assert await store.append("ada", "log", b"2", None) == 2
        clock.now += 100.0
        assert await store.get("ada", "k") is None

    run_on_file(tmp_path / "store.db", first, clock)
    run_on_file(tmp_path / "store.db", second, clock)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_nobody_but_the_owner_can_open_the_file_or_its_companions(
    tmp_path: Path, mask: int
) -> None:
    async def body(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

    before = os.umask(mask)
    try:
        run_on_file(tmp_path / "store.db", body)
    finally:
        os.umask(before)


def test_a_file_that_others_could_open_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(0o666)
    path.chmod(0o666)

    async def body(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}

    run_on_file(path, body)


def test_a_link_or_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "folder").mkdir()

    async def body(store: SqliteStore) -> None:
        with pytest.raises(CannotConnect, match="not a regular file"):
            await store.put("ada", "k", b"v", None)

    run_on_file(tmp_path / "link", body)
    run_on_file(tmp_path / "folder", body)
    assert not victim.exists()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(LocalProtocolError, match="MemoryStore"):
        SqliteStore(path)


def test_a_missing_folder_is_said_and_the_next_call_tries_again(tmp_path: Path) -> None:
    path = tmp_path / "later" / "store.db"

    async def body(store: SqliteStore) -> None:
        with pytest.raises(CannotConnect, match="cannot be opened: No such file"):
            await store.get("ada", "k")
        path.parent.mkdir()
        await store.put("ada", "k", b"v", None)
        assert await store.get("ada", "k") == b"v"

    run_on_file(path, body)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (
            ["PRAGMA user_version = 99"],
            "has version 99, and this Colonnade supports 2; install a newer",
        ),
        (["PRAGMA application_id = 7"], "database of another program"),
        (["PRAGMA application_id = 0"], "database of another program"),
    ],
)
def test_a_file_of_another_version_or_program_is_refused_and_left_alone(
    tmp_path: Path, statements: list[str], words: str
) -> None:
    path = tmp_path / "store.db"

    async def made(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)

    async def body(store: SqliteStore) -> None:
        with pytest.raises(CannotConnect, match=words):
            await store.put("ada", "k", b"other", None)

    run_on_file(path, made)
    for statement in statements:
        query(path, statement)
    before = path.read_bytes()
    run_on_file(path, body)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letters.txt"
    path.write_bytes(b"Dear Ada, " * 1000)

    async def body(store: SqliteStore) -> None:
        with pytest.raises(CannotConnect, match="not a database"):
            await store.put("ada", "k", b"v", None)

    run_on_file(path, body)
    assert path.read_bytes() == b"Dear Ada, " * 1000


def test_the_file_says_whose_and_which_version_it_is_and_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    async def body(store: SqliteStore) -> None:
        found = [
            (await store._call(lambda file, word=word: file._one(f"PRAGMA {word}")))[0]
            for word in ("journal_mode", "synchronous", "user_version", "application_id")
        ]
        assert found == ["wal", 2, 2, int.from_bytes(b"PORT", "big")]

    run_on_file(tmp_path / "store.db", body)


def test_what_was_damaged_on_disk_is_an_error_and_never_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def written(store: SqliteStore) -> None:
        await store.put("ada", "k", b"the value that is damaged", None)
        await store.append("ada", "log", b"the entry that is damaged", None)
        await store.put("ada", "well", b"another", None)

    async def read(store: SqliteStore) -> None:
        with pytest.raises(ChannelError, match="damaged"):
            await store.get("ada", "k")
        with pytest.raises(ChannelError, match="damaged"):
            await store.read("ada", "log", 0)
        assert await store.get("ada", "well") == b"another"
        await store.put("ada", "k", b"restored", None)
        assert await store.get("ada", "k") == b"restored"

    run_on_file(path, written)
    content = bytearray(path.read_bytes())
    for word in (b"the value", b"the entry"):
        content[content.index(word) + 5] ^= 0x10
    path.write_bytes(content)
    run_on_file(path, read)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE things SET principal = CAST('eve' AS BLOB)",
        "UPDATE things SET name = CAST('k' AS BLOB), principal = CAST('eve' AS BLOB)",
        "UPDATE things SET expires_at = 1e12",
        "UPDATE records SET number = number + 1",
    ],
)
def test_a_row_that_went_astray_on_disk_reaches_nobody(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "store.db"

    async def written(store: SqliteStore) -> None:
        await store.put("ada", "k", b"secret", 60.0)
        await store.append("ada", "log", b"secret", 60.0)

    async def read(store: SqliteStore) -> None:
        damaged = 0
        for principal in ("ada", "eve"):
            for call in (store.get(principal, "k"), store.read(principal, "log", 0)):
                try:
                    assert await call in (None, []) or principal == "ada"
                except ChannelError:
                    damaged += 1
        assert damaged

    run_on_file(path, written)
    query(path, damage)
    run_on_file(path, read)


def test_what_expired_is_swept_from_the_file_by_later_writes(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", Clock()

    async def body(store: SqliteStore) -> None:
        await asyncio.gather(*(store.put("ada", f"{n}", b"", 10.0) for n in range(50)))
        await asyncio.gather(*(store.append("bob", f"{n}", b"", 10.0) for n in range(50)))
        await store.publish("ada", "t", b"old news")
        clock.now += 60.0
        await store.put("eve", "k", b"", None)

    run_on_file(path, body, clock)
    assert query(path, "SELECT principal, entries FROM holdings") == [(b"eve", 1)]
    for table, rows in (("things", 1), ("records", 0), ("messages", 0)):
        assert query(path, f"SELECT count(*) FROM {table}") == [(rows,)]


# ---------------------------------------------------------------- the worker


def test_the_loop_goes_on_while_another_process_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def body(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.put("ada", "k", b"later", None))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not waiting.done()
        other.execute("COMMIT")
        other.close()
        await waiting
        assert await store.get("ada", "k") == b"later"

    run_on_file(path, body)


def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "store.db"

    async def body(store: SqliteStore) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.put("ada", "k", b"v", None))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        await waiting
        assert await store.get("ada", "k") == b"v"

    run_on_file(path, body)


def test_waiting_for_another_process_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)

    async def body(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimedOut, match=r"another process held .* for 0\.05 s"):
            await store.put("ada", "k", b"later", None)
        assert await store.get("ada", "k") == b"v"  # who only reads does not wait
        other.execute("COMMIT")
        other.close()
        await store.put("ada", "k", b"later", None)

    run_on_file(path, body)


def test_one_thread_has_the_file_and_closing_ends_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def body(store: SqliteStore) -> None:
        await asyncio.gather(*(store.put("ada", f"{n}", b"", None) for n in range(50)))
        (worker,) = set(threading.enumerate()) - before
        assert worker.name == "colonnade-store"

    for _ in range(3):
        run_on_file(tmp_path / "store.db", body)
        assert set(threading.enumerate()) == before


def test_stores_that_were_closed_leave_no_descriptor_open(tmp_path: Path) -> None:
    descriptors = Path("/dev/fd")

    async def body(store: SqliteStore) -> None:
        await store.put("ada", "k", b"v", None)

    run_on_file(tmp_path / "store.db", body)
    before = len(list(descriptors.iterdir()))
    for _ in range(10):
        run_on_file(tmp_path / "store.db", body)
    assert len(list(descriptors.iterdir())) == before


def test_closing_finishes_what_was_called_before(tmp_path: Path) -> None:
    async def body(store: SqliteStore) -> None:
        calls = [asyncio.ensure_future(store.append("ada", "log", b"", None)) for _ in range(600)]
        await asyncio.sleep(0)
        await store.close()
        assert sorted(await asyncio.gather(*calls)) == list(range(1, 601))

    run_on_file(tmp_path / "store.db", body)


def test_a_call_that_is_refused_does_no_harm_to_those_it_shares_a_commit_with(
    tmp_path: Path,
) -> None:
    async def body(store: SqliteStore) -> None:
        async with Held(store):
            calls = [asyncio.ensure_future(store.put("ada", f"{n}", b"", None)) for n in range(5)]
            calls.append(asyncio.ensure_future(store.put("bob", "k", b"", None)))
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 3 + [Refused] * 2 + [
            type(None)
        ]
        for n in range(3):
            assert await store.get("ada", f"{n}") == b""
        assert await store.get("ada", "3") is None
        assert await store.get("bob", "k") == b""

    run_on_file(tmp_path / "store.db", body, limits=StoreLimits(principal_entries=3))


def test_a_failing_disk_fails_every_call_it_concerns_and_the_next_ones_work(tmp_path: Path) -> None:
    async def body(store: SqliteStore) -> None:
        await store.put("ada", "before", b"v", None)
        await store._call(lambda file: file._do("PRAGMA max_page_count = 1"))
        async with Held(store):
            calls = [
                asyncio.ensure_future(store.put("ada", "large", b"x" * 100_000, None)),
                asyncio.ensure_future(store.put("ada", "small", b"x", None)),
            ]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 2
        assert outcomes[0] is not outcomes[1]
        assert "full" in str(outcomes[0])
        assert await store.get("ada", "small") is None
        await store.put("ada", "large", b"x" * 100_000, None)
        assert await store.get("ada", "before") == b"v"

    run_on_file(tmp_path / "store.db", body)


def test_calls_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_CALLS", 5)

    async def body(store: SqliteStore) -> None:
        async with Held(store):
            calls = [asyncio.ensure_future(store.get("ada", "k")) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(Refused, match="5 calls wait"):
                await store.get("ada", "k")
        await asyncio.gather(*calls)
        assert await store.get("ada", "k") is None

    run_on_file(tmp_path / "store.db", body)


def test_a_call_that_was_cancelled_before_its_turn_does_not_happen(tmp_path: Path) -> None:
    async def body(store: SqliteStore) -> None:
        async with Held(store):
            call = asyncio.ensure_future(store.put("ada", "k", b"v", None))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        assert await store.get("ada", "k") is None
        assert store._waiting == 0

    run_on_file(tmp_path / "store.db", body)
