"""The files that one run of a process writes: chained lines, parts, errors, and heads in a store.

Rules: a file is written by one process, only at its end, and by whole lines: what is left of a
line that could not be written is removed. Lines that could not be written are counted, and the
chain goes on from the last one that was. Nothing raises; `flush` returns the error.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from colonnade.errors import ColonnadeError
from colonnade.host.policy.audit.lines import (
    CLOSED,
    DROPPED,
    FORMAT,
    HEAD_PREFIX,
    MAX_NAME,
    MAX_PREVIOUS,
    FileName,
    LineChain,
    PreviousRun,
    StoredHead,
    file_time,
    members,
)
from colonnade.host.policy.audit.verify import last_lines
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.audit")

# A file of a run; the next one goes on with its chain. A reader of one takes about a second.
MAX_FILE_BYTES = 64 * 1024 * 1024
# How often the last line is named in the store: as much as can be cut off unnoticed.
HEADS_S = 10.0
# Ten years: as long as a folder has files (`MAX_FILES`). A run whose last line has expired would
# look forged.
HEADS_TTL_S = 3650 * 86_400.0
HEADS_PAGE = 1000
# How often to look whether the file is still there.
CHECK_S = 1.0

FOLDER_MODE, FILE_MODE = 0o700, 0o600
OTHERS_WRITE = 0o022
_CREATE = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()[:MAX_NAME]


def sync_and_close(descriptor: int) -> None:
    """Wait until a file is on the disk, and close this descriptor of it. Raises `OSError`."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AuditFile:
    """The file that a run writes: chained lines, the next part, and what could not be written.

    Not thread-safe. Nothing raises: `flush` returns the error.
    """

    def __init__(
        self,
        folder: str,
        max_bytes: int,
        clock: Callable[[], int],
        describe: Callable[[], dict[str, Any]],
        *,
        is_durable: bool,
    ) -> None:
        self._folder = folder
        self._is_durable = is_durable
        self._max_bytes = max_bytes
        self._clock = clock
        self._describe = describe
        # Events that were lost, and of those the ones that a waiting line says.
        self.dropped: int = 0
        self._said = 0
        # All that were ever lost.
        self.lost: int = 0
        self._is_reported = False
        self._begin()

    def _begin(self) -> None:
        """Begin a run: nothing is written yet."""
        self._process = os.getpid()
        self.chain: LineChain = LineChain(secrets.token_hex(8))
        self._part = 0
        self._began = ""
        self._descriptor: int | None = None
        self._size = 0
        self._checked_at = 0.0
        self._open_error = OSError(errno.EBADF, "its file is not open")
        # The last line that is written, and the number of the last one that is on the disk.
        self._written = (0, "")
        self.synced: int = 0
        # Lines without their newlines, and how many of them are no events.
        self._waiting: list[bytes] = []
        self._notes = 0
        # Bytes until the next part, with the waiting lines; none without an open file.
        self._left = 0
        self._previous: list[PreviousRun] | None = None

    def prepare(self) -> bool:
        """Begin another run if this is another process, which has a copy of the waiting lines and
        of the open file of its parent; whether it is."""
        if self._process == os.getpid():
            return False
        self._close_part()
        self.dropped = self._said = 0
        self._begin()
        return True

    def write(self, events: Iterable[tuple[int, bytes]]) -> OSError | None:
        """Write events, each with its time, as lines; returns why some of them are lost."""
        failure: OSError | None = None
        for time_ns, body in events:
            if self._left <= 0:
                failure = self._flush() or failure
                self._next_part(time_ns)
            if self.dropped > self._said:
                self._say_dropped(time_ns)
            line = self.chain.line(body, time_ns)
            self._waiting.append(line)
            self._left -= len(line) + 1
        return self._flush() or failure

    def _say_dropped(self, time_ns: int) -> None:
        if self.dropped > self._said and self._descriptor is not None:
            count, self._said = self.dropped - self._said, self.dropped
            self._add_note(members({"event": DROPPED, "count": count}), time_ns)

    def _add_note(self, body: bytes, time_ns: int) -> None:
        """Add a line that is no event, so that it is not counted if it is lost."""
        self._notes += 1
        line = self.chain.line(body, time_ns)
        self._waiting.append(line)
        self._left -= len(line) + 1

    def _flush(self) -> OSError | None:
        """Write the waiting lines; returns why they are lost."""
        if not self._waiting:
            return None
        data = b"\n".join(self._waiting) + b"\n"
        try:
            if self._descriptor is None:
                raise self._open_error  # the lines that wait have no head before them
            self._check(self._descriptor)
            _write(self._descriptor, data)
        except OSError as error:
            self._restore()
            self._lose(error)
            return error
        self._size += len(data)
        self._written = (self.chain.seq, self.chain.digest)
        self._waiting.clear()
        self._notes = 0
        if self._said:
            self.dropped -= self._said
            self._said = 0
        if self._is_reported:
            self._is_reported = False
            log.warning("the audit log in %s is written again", self._folder)
        return None

    def _lose(self, error: OSError) -> None:
        """Forget the waiting lines, count their events, and go on from the last written line."""
        self.count_lost(len(self._waiting) - self._notes)
        self._said = self._notes = 0
        self._waiting.clear()
        self._left = 0 if self._descriptor is None else self._max_bytes - self._size
        self.chain.seq, self.chain.digest = self._written
        if not self._is_reported:
            self._is_reported = True
            log.error(
                "the audit log in %s cannot be written: %s; events are lost until it can be",
                self._folder,
                error.strerror or error,
            )

    def count_lost(self, events: int) -> None:
        """Count events that are not written; the next line says so."""
        self.dropped += events
        self.lost += events

    def _check(self, descriptor: int) -> None:
        """Raise `OSError` if the file was removed: what is written to it would be lost."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        if os.fstat(descriptor).st_nlink == 0:
            self._close_part()
            raise OSError(errno.ENOENT, "its file was removed")

    def _restore(self) -> None:
        """Remove a part of a line that was written; if that fails, go on in another file."""
        if self._descriptor is None:
            return
        try:
            if os.fstat(self._descriptor).st_size > self._size:
                os.ftruncate(self._descriptor, self._size)
        except OSError:
            self._close_part()

    # ------------------------------------------------------------ parts

    def check_folder(self) -> OSError | None:
        """Make the folder, if it is not there; returns why no file can be made in it. The first
        file of a run is not opened for this: a process that is forked later has its own."""
        try:
            os.makedirs(self._folder, FOLDER_MODE, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                return None
        except OSError as error:
            return error

    def _next_part(self, time_ns: int) -> None:
        """Open the next file of this run. If that fails, the next lines are lost."""
        self._end_part()
        try:
            self._open(time_ns)
        except OSError as error:
            self._open_error = error

    def _open(self, time_ns: int) -> None:
        os.makedirs(self._folder, FOLDER_MODE, exist_ok=True)
        if self._part == 0 and os.name == "posix" and is_open_to_others(os.stat(self._folder)):
            log.warning("other users can write to the folder of the audit log, %s", self._folder)
        if self._previous is None:
            self._previous = last_lines(self._folder)[:MAX_PREVIOUS]
        self._began = self._began or file_time(time_ns)
        part = self._part + 1
        name = str(FileName(self._began, self.chain.run, part))
        path = os.path.join(self._folder, name)
        descriptor = os.open(path, _CREATE, FILE_MODE)
        chain = LineChain(self.chain.run, *self._written)
        head = chain.line(members(self._head(part)), time_ns) + b"\n"
        try:
            _write(descriptor, head)
            if self._is_durable:
                _sync_folder(self._folder)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        self.chain, self._part = chain, part
        self._written = (chain.seq, chain.digest)
        self._descriptor, self._size = descriptor, len(head)
        self._left = self._max_bytes - self._size
        self._checked_at = time.monotonic()

    def _head(self, part: int) -> dict[str, Any]:
        from colonnade import __version__

        head: dict[str, Any] = {
            "event": "opened" if part == 1 else "continued",
            "format": FORMAT,
            "part": part,
            "host": host_name(),
            "process": self._process,
            "version": __version__,
            **self._describe(),
        }
        if part == 1:
            head["previous"] = self._previous
        return head

    def _end_part(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # it is written; only the disk may lack it
                os.fsync(self._descriptor)
            self._close_part()

    def _close_part(self) -> None:
        descriptor, self._descriptor, self._left = self._descriptor, None, 0
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def duplicate(self) -> int:
        """Another descriptor of the open file. Raises `OSError`."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, "its file is not open")
        return os.dup(self._descriptor)

    def close(self) -> StoredHead | None:
        """Write the last line, and end the run; returns what was written last."""
        if self._process != os.getpid() or self._descriptor is None:
            return None
        self._say_dropped(self._clock())
        self._add_note(members({"event": CLOSED}), self._clock())
        self._flush()
        last = self.last_written
        self._end_part()
        self._begin()
        return last

    @property
    def last_written(self) -> StoredHead | None:
        """The last line that is written; None before there is one."""
        seq, digest = self._written
        if not seq:
            return None
        time = file_time(self._clock())
        return StoredHead(self.chain.run, seq, digest, host_name(), self._folder, time)


def is_open_to_others(seen: os.stat_result) -> bool:
    """Whether another user, but the administrator, can remove files of a folder."""
    return seen.st_uid not in (0, os.getuid()) or bool(seen.st_mode & OTHERS_WRITE)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it. Raises `OSError`; a part may be written then."""
    while data:
        written = os.write(descriptor, data)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[written:]


def _sync_folder(folder: str) -> None:
    """Put the name of a new file on the disk, too."""
    if os.name == "posix":
        sync_and_close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


# ---------------------------------------------------------------- heads


CloseStore: TypeAlias = Callable[[], Awaitable[None]]
# Returns the store of the heads, and how to close it, if it is closed with the log.
OpenStore: TypeAlias = Callable[[], tuple[Store, CloseStore | None]]

_head_decoder = msgspec.json.Decoder(StoredHead)


class HeadKeeper:
    """Names the last line of a run in a store, from time to time and at its end."""

    def __init__(self, open_store: OpenStore, file: AuditFile) -> None:
        self._open_store = open_store
        self._opened: tuple[Store, CloseStore | None] | None = None
        self._file = file
        self._task: asyncio.Task[None] | None = None
        self._kept = ""
        self._is_reported = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, if it has not begun."""
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())

    def forget(self) -> None:
        """Forget the task: it is one of the process that this one was forked from."""
        self._task = self._opened = None

    async def _run(self) -> None:
        while True:
            await self._keep(self._file.last_written)
            await asyncio.sleep(HEADS_S)

    async def _keep(self, head: StoredHead | None) -> None:
        if head is None or head.digest == self._kept:
            return
        try:
            if self._opened is None:
                self._opened = self._open_store()
            key, value = f"{HEAD_PREFIX}{head.run}", encode(head)
            await self._opened[0].put(SERVER_PRINCIPAL, key, value, HEADS_TTL_S)
        except ColonnadeError as error:
            if not self._is_reported:
                self._is_reported = True
                log.error("the last line of the audit log is not in the store: %s", error)
            return
        self._kept, self._is_reported = head.digest, False

    async def close(self, last: StoredHead | None) -> None:
        """Name the last line of a run that has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._keep(last)
        opened, self._opened = self._opened, None
        if opened is not None and opened[1] is not None:
            await opened[1]()


async def stored_heads(store: Store) -> list[StoredHead]:
    """The last lines of all runs that a store knows. Raises `Refused`, `ChannelError`."""
    found: list[StoredHead] = []
    after = ""
    while True:
        names = await store.names(SERVER_PRINCIPAL, HEAD_PREFIX, after, HEADS_PAGE)
        for name in names:
            value = await store.get(SERVER_PRINCIPAL, name)
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                if value is not None:
                    found.append(_head_decoder.decode(value))
        if len(names) < HEADS_PAGE:
            return found
        after = names[-1]
