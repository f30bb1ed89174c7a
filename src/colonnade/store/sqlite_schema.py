"""The SQLite file of a store: its creation, its schema, and every statement.

Rules: blocking, for one thread, without an event loop. All methods but `close` are called inside a
`transaction`, and refuse before they change anything but expired rows. Each value is stored with a
checksum over itself and its key: data that was damaged on disk is an error, never returned, and
never that of another principal. A listing of names reads no values, and does not check them.
"""

import os
import sqlite3
import stat
import threading
import time
import zlib
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

from colonnade.errors import CannotConnect, ChannelError, ConnectionLost, Refused, TimedOut
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store.limits import OVERHEAD_BYTES, StoreLimits, add_to_counter
from colonnade.store.memory import check_mark_limits

# How long a write waits for other processes. A write takes milliseconds.
BUSY_TIMEOUT_S = 5.0
# Messages are kept for other processes, which poll every 50 ms; a process that was stopped for
# longer than this, or for more messages, gets an error that it missed some.
MAX_STORED_MESSAGES = 4096
MAX_STORED_MESSAGE_BYTES = 64 * 1024 * 1024
MESSAGE_TTL_S = 30.0
# Expired rows that are removed with each commit: more than a commit can add.
SWEEP_AT_ONCE = 512
# The size of a mark in the file, with its index.
MARK_BYTES = 128

ENTRY, LOG = 0, 1

# Principal, name, the value before, the value after, and when that expires.
FileSwap = tuple[bytes, bytes, bytes | None, bytes | None, float | None]

_SERVER = SERVER_PRINCIPAL.encode()

_APPLICATION = 0x504F5254  # "PORT": distinguishes our files from other programs' databases
# One element a version, each a step from the one before. Never change one that was released.
_VERSIONS: Sequence[str] = (
    """
    CREATE TABLE things (
        id INTEGER PRIMARY KEY, principal BLOB NOT NULL, kind INTEGER NOT NULL,
        name BLOB NOT NULL, value BLOB NOT NULL, size INTEGER NOT NULL, cost INTEGER NOT NULL,
        expires_at REAL, UNIQUE (principal, kind, name));
    CREATE INDEX due ON things (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE records (
        thing INTEGER NOT NULL, number INTEGER NOT NULL, entry BLOB NOT NULL,
        PRIMARY KEY (thing, number));
    CREATE TABLE holdings (
        principal BLOB PRIMARY KEY, entries INTEGER NOT NULL, size INTEGER NOT NULL
        ) WITHOUT ROWID;
    -- AUTOINCREMENT: a number that was used is never used again, so that a gap can be seen.
    CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, principal BLOB NOT NULL, topic BLOB NOT NULL,
        message BLOB NOT NULL, sent_at REAL NOT NULL, ends INTEGER NOT NULL);
    """,
    """
    -- Digests of 16 bytes, in whole seconds: a row and its index take some 70 bytes.
    CREATE TABLE marks (
        digest BLOB PRIMARY KEY, owner INTEGER NOT NULL, expires_at INTEGER NOT NULL
        ) WITHOUT ROWID;
    CREATE INDEX marks_due ON marks (expires_at);
    -- How many each principal has. All together are those of the empty digest.
    CREATE TABLE mark_owners (
        id INTEGER PRIMARY KEY, principal BLOB NOT NULL UNIQUE, marks INTEGER NOT NULL);
    INSERT INTO mark_owners VALUES (0, x'', 0);
    """,
)

# Closing any handle of a file drops this process's locks on it, SQLite's too: the one that creates
# the file is closed before any other store of this process can have opened it.
_creating = threading.Lock()


class StoreFile:
    """The open file."""

    def __init__(self, path: str, limits: StoreLimits) -> None:
        """Open or create it. Raises `CannotConnect`."""
        self._path = path
        self._limits = limits
        # The size of the file in this transaction, with what was added to it; None if not known.
        self._size: int | None = None
        with self._reached(CannotConnect, "cannot be opened"):
            with _creating:
                _create_private(path)
                self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            try:
                self._settle()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        with self._reached():
            self._db.close()

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[None, None, None]:
        """A transaction: rolled back on an error, on disk after the exit. Raises `ChannelError`."""
        self._size = None
        with self._reached():
            self._do("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield
                self._do("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._do("ROLLBACK")
                raise

    @contextmanager
    def _reached(
        self, kind: type[ChannelError] = ConnectionLost, verb: str = "failed"
    ) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_busy(error):
                message = f"another process held the store {self._path} for {BUSY_TIMEOUT_S:g} s"
                raise TimedOut(message) from error
            raise kind(f"the store {self._path} {verb}: {error}") from error
        except OSError as error:
            raise kind(f"the store {self._path} {verb}: {error.strerror}") from error

    def _do(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._db.execute(statement, values)

    def _one(self, statement: str, *values: object) -> Any:
        """The first row, or None."""
        return self._do(statement, *values).fetchone()

    # ------------------------------------------------------------ setup

    def _settle(self) -> None:
        self._use_wal()
        # On disk before it is acknowledged; the default of WAL mode loses it with the power.
        self._do("PRAGMA synchronous = FULL")
        self._do("PRAGMA trusted_schema = OFF")
        # In a transaction: another process may be creating the file.
        with self.transaction(writes=False):
            version = self._version()
        if version == len(_VERSIONS):
            return
        with self.transaction(writes=True):
            for version in range(self._version(), len(_VERSIONS)):
                for statement in _VERSIONS[version].split(";"):
                    self._do(statement)
            self._do(f"PRAGMA application_id = {_APPLICATION}")
            self._do(f"PRAGMA user_version = {len(_VERSIONS)}")

    def _use_wal(self) -> None:
        """Allow concurrent readers and a writer. SQLite does not wait here, so this retries."""
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                (mode,) = self._one("PRAGMA journal_mode = WAL")
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                if mode != "wal":
                    message = f"the store {self._path} cannot be shared; put it on a local disk"
                    raise CannotConnect(message)
                return

    def _version(self) -> int:
        (application,) = self._one("PRAGMA application_id")
        (version,) = self._one("PRAGMA user_version")
        if version > len(_VERSIONS) and application == _APPLICATION:
            raise CannotConnect(
                f"the store {self._path} has version {version}, and this Colonnade supports "
                f"{len(_VERSIONS)}; install a newer one"
            )
        empty = self._one("SELECT 1 FROM sqlite_master") is None
        if application != _APPLICATION and not (empty and version == 0):
            message = f"{self._path} is a database of another program; name another file"
            raise CannotConnect(message)
        return version

    # ------------------------------------------------------------ entries

    def get(self, principal: bytes, name: bytes, now: float) -> bytes | None:
        found = self._entry(principal, name, now)
        return None if found is None else found[0]

    def _entry(
        self, principal: bytes, name: bytes, now: float
    ) -> tuple[bytes, float | None] | None:
        """The value of an entry, and when it expires."""
        row = self._one(
            "SELECT value, expires_at FROM things WHERE principal = ? AND kind = ? AND name = ?"
            " AND (expires_at IS NULL OR expires_at > ?)",
            *(principal, ENTRY, name, now),
        )
        if row is None:
            return None
        return _check_checksum(row[0], principal, name, _encode_number(row[1])), row[1]

    def put(
        self, principal: bytes, name: bytes, value: bytes, now: float, expires_at: float | None
    ) -> None:
        """Insert or replace an entry. Raises `Refused` if there is no room."""
        there = self._thing(principal, ENTRY, name, now)
        self._put(there, principal, name, value, now, expires_at)

    def _put(
        self,
        there: tuple[int, int, int] | None,
        principal: bytes,
        name: bytes,
        value: bytes,
        now: float,
        expires_at: float | None,
    ) -> None:
        cost = _cost(principal, name, value)
        stamped = _add_checksum(value, principal, name, _encode_number(expires_at))
        self._keep(there, (principal, ENTRY, name), stamped, 0, cost, now, expires_at)

    def swap_all(self, swaps: Sequence[FileSwap], now: float) -> bool:
        """Whether all values were `before`, and are `after` now. Raises `Refused` if there is no
        room for one of them."""
        rows: list[tuple[int, int, int] | None] = []
        # Of each principal: how many entries more, and how many bytes.
        growth: dict[bytes, tuple[int, int]] = {}
        for principal, name, before, after, _ in swaps:
            row = self._thing(principal, ENTRY, name, now)
            # A value that is compared with none is not read.
            if (row is None) != (before is None):
                return False
            if before is not None and self.get(principal, name, now) != before:
                return False
            rows.append(row)
            entries, more = growth.get(principal, (0, 0))
            if row is not None:
                entries, more = entries - 1, more - row[2]
            if after is not None:
                entries, more = entries + 1, more + _cost(principal, name, after)
            growth[principal] = entries, more
        for principal, (entries, more) in growth.items():
            self._make_room(principal, entries, more, now)
        for row, (principal, name, _, after, expires_at) in zip(rows, swaps, strict=True):
            if after is not None:
                stamped = _add_checksum(after, principal, name, _encode_number(expires_at))
                cost = _cost(principal, name, after)
                self._write(row, (principal, ENTRY, name), stamped, 0, cost, expires_at)
            elif row is not None:
                self._remove(row[0], principal, row[2])
        return True

    def count(
        self, principal: bytes, name: bytes, by: int, now: float, expires_at: float | None
    ) -> int:
        """The new number of a counter. Raises `Refused` if there is no room."""
        there = self._thing(principal, ENTRY, name, now)
        found = self._entry(principal, name, now) if there else None
        value, end = found or (None, expires_at)
        number = add_to_counter(value, by)
        self._put(there, principal, name, b"%d" % number, now, end)
        return number

    def names(
        self, principal: bytes, prefix: bytes, after: bytes, limit: int, now: float
    ) -> list[str]:
        """The names of entries with this prefix that are greater than `after`, in order."""
        # The index of the UNIQUE constraint is in this order. UTF-8 has no byte FF, and names have
        # no NUL: these are the least bytes above `after`, and above all names with the prefix.
        rows = self._do(
            "SELECT name FROM things WHERE principal = ? AND kind = ? AND name >= ? AND name < ?"
            " AND (expires_at IS NULL OR expires_at > ?) ORDER BY name LIMIT ?",
            *(principal, ENTRY, max(prefix, after + b"\0"), prefix + b"\xff", now, limit),
        ).fetchall()
        try:
            return [name.decode() for (name,) in rows]
        except UnicodeDecodeError:
            raise _damaged() from None

    def remove(self, principal: bytes, kind: int, name: bytes) -> None:
        row = self._one(
            "SELECT id, cost FROM things WHERE principal = ? AND kind = ? AND name = ?",
            *(principal, kind, name),
        )
        if row is not None:
            self._remove(row[0], principal, row[1])

    # ------------------------------------------------------------ marks

    def use_once(self, principal: bytes, mark: bytes, now: float, expires_at: float) -> bool:
        """Whether a mark is new. Raises `Refused` if there are too many."""
        row = self._one("SELECT expires_at FROM marks WHERE digest = ?", mark)
        if row is not None:
            if row[0] > now:
                return False
            self._forget_marks("digest = ?", mark)
        try:
            self._check_marks(principal)
        except Refused:
            while self._forget_marks("expires_at <= ?", now):
                pass
            self._check_marks(principal)
        self._do(
            "INSERT INTO mark_owners (principal, marks) VALUES (?, 1)"
            " ON CONFLICT (principal) DO UPDATE SET marks = marks + 1",
            principal,
        )
        self._do("UPDATE mark_owners SET marks = marks + 1 WHERE id = 0")
        self._do(
            "INSERT INTO marks SELECT ?, id, ? FROM mark_owners WHERE principal = ?",
            *(mark, ceil(expires_at), principal),
        )
        return True

    def _check_marks(self, principal: bytes) -> None:
        held = self._one("SELECT marks FROM mark_owners WHERE principal = ?", principal)
        (total,) = self._one("SELECT marks FROM mark_owners WHERE id = 0")
        check_mark_limits(self._limits, (held[0] if held else 0) + 1, total + 1)
        self._check_total(MARK_BYTES)

    def _forget_marks(self, which: str, value: object) -> bool:
        """Remove some marks; whether there were any."""
        query = f"SELECT digest, owner FROM marks WHERE {which} LIMIT ?"
        rows = self._do(query, value, SWEEP_AT_ONCE).fetchall()
        if not rows:
            return False
        self._db.executemany("DELETE FROM marks WHERE digest = ?", [(one,) for one, _ in rows])
        counts = Counter(owner for _, owner in rows)
        self._db.executemany(
            "UPDATE mark_owners SET marks = marks - ? WHERE id = ?",
            [(len(rows), 0), *((count, owner) for owner, count in counts.items())],
        )
        self._db.executemany(
            "DELETE FROM mark_owners WHERE id = ? AND id != 0 AND marks <= 0",
            [(owner,) for owner in counts],
        )
        return True

    # ------------------------------------------------------------ logs

    def append(
        self, principal: bytes, name: bytes, entry: bytes, now: float, expires_at: float | None
    ) -> int:
        """The number of the entry. Raises `Refused` if there is no room."""
        there = self._thing(principal, LOG, name, now)
        id, size, cost = there or (-1, 0, len(principal) + len(name) + OVERHEAD_BYTES)
        first, last = self._one("SELECT min(number), max(number) FROM records WHERE thing = ?", id)
        number = (last or 0) + 1
        staying, left = self._making_room(id, number, size + len(entry))
        gone = staying - (first or 1)
        cost += left - size + (1 - gone) * OVERHEAD_BYTES
        id = self._keep(there, (principal, LOG, name), b"", left, cost, now, expires_at)
        self._do("DELETE FROM records WHERE thing = ? AND number < ?", id, staying)
        stamped = _add_checksum(entry, principal, name, _encode_number(number))
        self._do("INSERT INTO records VALUES (?, ?, ?)", id, number, stamped)
        return number

    def _making_room(self, id: int, number: int, size: int) -> tuple[int, int]:
        """The first entry that can be kept with the one of this number, and the size after that."""
        limits = self._limits
        for found, length in self._do(
            "SELECT number, length(entry) FROM records WHERE thing = ? ORDER BY number", id
        ):
            if number - found < limits.log_entries and size <= limits.log_bytes:
                return found, size
            size -= length - _CHECKSUM_BYTES
        return number, size

    def read(
        self, principal: bytes, name: bytes, after: int, now: float
    ) -> list[tuple[int, bytes]]:
        row = self._one(
            "SELECT id FROM things WHERE principal = ? AND kind = ? AND name = ?"
            " AND (expires_at IS NULL OR expires_at > ?)",
            *(principal, LOG, name, now),
        )
        rows = self._do(
            "SELECT number, entry FROM records WHERE thing = ? AND number > ? ORDER BY number",
            *(row[0] if row else -1, after),
        )
        return [
            (number, _check_checksum(e, principal, name, _encode_number(number)))
            for number, e in rows
        ]

    # ------------------------------------------------------------ entries and logs

    def _thing(
        self, principal: bytes, kind: int, name: bytes, now: float
    ) -> tuple[int, int, int] | None:
        """Id, size and cost of the row of this name; an expired one is removed."""
        row = self._one(
            "SELECT id, size, cost, expires_at FROM things"
            " WHERE principal = ? AND kind = ? AND name = ?",
            *(principal, kind, name),
        )
        if row is None or row[3] is None or row[3] > now:
            return row and row[:3]
        self._remove(row[0], principal, row[2])
        return None

    def _keep(
        self,
        there: tuple[int, int, int] | None,
        place: tuple[bytes, int, bytes],
        value: bytes,
        size: int,
        cost: int,
        now: float,
        expires_at: float | None,
    ) -> int:
        """Insert or replace a row; returns its id. Raises `Refused` if there is no room."""
        entries, more = (0, cost - there[2]) if there else (1, cost)
        self._make_room(place[0], entries, more, now)
        return self._write(there, place, value, size, cost, expires_at)

    def _write(
        self,
        there: tuple[int, int, int] | None,
        place: tuple[bytes, int, bytes],
        value: bytes,
        size: int,
        cost: int,
        expires_at: float | None,
    ) -> int:
        entries, more = (0, cost - there[2]) if there else (1, cost)
        self._charge(place[0], entries, more)
        if there:
            self._do(
                "UPDATE things SET value = ?, size = ?, cost = ?, expires_at = ? WHERE id = ?",
                *(value, size, cost, expires_at, there[0]),
            )
            return there[0]
        cursor = self._do(
            "INSERT INTO things (principal, kind, name, value, size, cost, expires_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(*place, value, size, cost, expires_at),
        )
        return cursor.lastrowid or 0

    def _make_room(self, principal: bytes, entries: int, more: int, now: float) -> None:
        try:
            self._check_room(principal, entries, more)
        except Refused:
            while self.sweep(now):
                pass
            self._check_room(principal, entries, more)

    def _check_room(self, principal: bytes, entries: int, more: int) -> None:
        if principal != _SERVER:
            held = self._one("SELECT entries, size FROM holdings WHERE principal = ?", principal)
            has, size = held or (0, 0)
            self._limits.check_room(has + entries, size + more)
        self._check_total(more)

    def _check_total(self, more: int) -> None:
        # Only this transaction writes: the pages are counted once, and again if they seem too many.
        size = self._size
        if size is None or size + more > self._limits.total_bytes:
            pages = self._one("PRAGMA page_count")[0] - self._one("PRAGMA freelist_count")[0]
            size = pages * self._one("PRAGMA page_size")[0]
            self._limits.check_total(size + more)
        self._size = size + max(more, 0)

    def _charge(self, principal: bytes, entries: int, size: int) -> None:
        if principal == _SERVER:  # which has no limit of its own
            return
        self._do(
            "INSERT INTO holdings VALUES (?, ?, ?) ON CONFLICT (principal) DO UPDATE"
            " SET entries = entries + excluded.entries, size = size + excluded.size",
            *(principal, entries, size),
        )
        if entries < 0:
            self._do("DELETE FROM holdings WHERE principal = ? AND entries <= 0", principal)

    def _remove(self, id: int, principal: bytes, cost: int) -> None:
        self._do("DELETE FROM records WHERE thing = ?", id)
        self._do("DELETE FROM things WHERE id = ?", id)
        self._charge(principal, -1, -cost)

    def sweep(self, now: float) -> bool:
        """Remove some expired rows; whether there were any."""
        rows = self._do(
            "SELECT id, principal, cost FROM things WHERE expires_at <= ? LIMIT ?",
            *(now, SWEEP_AT_ONCE),
        ).fetchall()
        for row in rows:
            self._remove(*row)
        self._forget_marks("expires_at <= ?", now)
        self._clear("sent_at <= ?", now - MESSAGE_TTL_S)
        return bool(rows)

    def _clear(self, old: str, bound: float) -> None:
        """Delete the oldest messages while they meet the condition."""
        oldest = "SELECT id FROM messages ORDER BY id LIMIT ?"
        statement = f"DELETE FROM messages WHERE id IN ({oldest}) AND {old}"
        while self._do(statement, SWEEP_AT_ONCE, bound).rowcount > 0:
            pass

    # ------------------------------------------------------------ messages

    def publish(self, principal: bytes, topic: bytes, message: bytes, now: float) -> None:
        """Store a message. Raises `Refused` if there is no room."""
        self._check_total(len(message))
        before = self._one("SELECT ends FROM messages ORDER BY id DESC LIMIT 1")
        ends = (before[0] if before else 0) + len(message) + OVERHEAD_BYTES
        number = self.newest() + 1
        self._do(
            "INSERT INTO messages (id, principal, topic, message, sent_at, ends)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            *(
                number,
                principal,
                topic,
                _add_checksum(message, principal, topic, _encode_number(number)),
            ),
            *(now, ends),
        )
        self._clear("id <= ?", number - MAX_STORED_MESSAGES)
        self._clear("ends <= ?", ends - MAX_STORED_MESSAGE_BYTES)

    def newest(self) -> int:
        """The number of the last message that was ever published."""
        row = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'messages'")
        return row[0] if row else 0

    def oldest(self) -> int:
        """The number of the first stored message, or of the next."""
        (found,) = self._one("SELECT min(id) FROM messages")
        return found if found is not None else self.newest() + 1

    def topics_after(self, number: int) -> list[tuple[int, bytes, bytes]]:
        """Number, principal and topic of all messages after this one, oldest first."""
        query = "SELECT id, principal, topic FROM messages WHERE id > ? ORDER BY id"
        return self._do(query, number).fetchall()

    def message(self, number: int, principal: bytes, topic: bytes) -> bytes:
        (found,) = self._one("SELECT message FROM messages WHERE id = ?", number)
        return _check_checksum(found, principal, topic, _encode_number(number))


def _cost(principal: bytes, name: bytes, value: bytes) -> int:
    return len(principal) + len(name) + len(value) + OVERHEAD_BYTES


def _is_busy(error: sqlite3.Error) -> bool:
    # Errors that the `sqlite3` module itself raises have no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


# ---------------------------------------------------------------- checksums

_CHECKSUM_BYTES = 4


def _encode_number(number: float | None) -> bytes:
    return repr(number).encode()


def _checksum(value: bytes, place: tuple[bytes, ...]) -> bytes:
    # Names have no NUL in them, so that no two places join to the same bytes.
    return zlib.crc32(value, zlib.crc32(b"\0".join(place))).to_bytes(_CHECKSUM_BYTES, "big")


def _add_checksum(value: bytes, *place: bytes) -> bytes:
    return _checksum(value, place) + value


def _check_checksum(stamped: bytes, *place: bytes) -> bytes:
    stamp, value = stamped[:_CHECKSUM_BYTES], stamped[_CHECKSUM_BYTES:]
    if _checksum(value, place) != stamp:
        raise _damaged()
    return value


def _damaged() -> ConnectionLost:
    return ConnectionLost("an entry of the store is damaged; restore it, or delete the entry")


# ---------------------------------------------------------------- the file itself


def _create_private(path: str) -> None:
    """Make the file accessible only to its owner. Raises `OSError`, `CannotConnect`."""
    try:
        # SQLite gives its `-wal` and `-shm` files the mode of this file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        for name in (path, f"{path}-wal", f"{path}-shm"):
            _make_private(name)


def _make_private(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise CannotConnect(f"{path} is not a regular file; name the file itself")
    if os.name == "posix" and mode & 0o077:
        os.chmod(path, 0o600)
