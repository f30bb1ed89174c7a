"""The SQLite store: one file for all processes of a machine; acknowledged writes are on disk.

Rules: the event loop never waits for the disk: one worker thread owns the file, runs the calls in
order, and commits waiting calls in one transaction, so that they share the cost of the disk.
Between calls it polls for messages of other processes. Only that thread uses the file and the table
of listeners; only the event loop uses the queues of the listeners.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from colonnade.errors import ChannelError, ColonnadeError, InvalidArgument
from colonnade.ports import Swap
from colonnade.store.limits import (
    StoreLimits,
    TopicListener,
    Topics,
    check_bytes,
    check_listing,
    check_names,
    check_ttl,
    check_waiting,
    reserved_calls,
    reserved_for,
)
from colonnade.store.memory import check_mark, mark_digest
from colonnade.store.sqlite_schema import ENTRY, LOG, FileSwap, StoreFile

# The poll interval for messages of other processes, while there are listeners.
POLL_S = 0.05
# Calls that share one commit: enough to hide the disk, few enough that the first returns soon.
BATCH_CALLS = 256

_LAST_NUMBER = 2**63 - 1  # SQLite counts no further


@dataclass(frozen=True, slots=True)
class _Call:
    work: Callable[[StoreFile], object]
    writes: bool
    future: "asyncio.Future[Any]"
    now: float


@dataclass(frozen=True, slots=True)
class _RemoveListener:
    callback: Callable[[], None]


class SqliteStore:
    """A persistent store. `clock` is the time of day in seconds, the same for all processes.

    The file is opened or created by the first call; after a failure, the next call tries again. A
    call that is cancelled may still be executed. Create the store after a fork, not before.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        limits: StoreLimits | None = None,
    ) -> None:
        self._path = os.fspath(path)
        if not self._path or self._path == ":memory:":
            raise InvalidArgument("SqliteStore needs a file; use MemoryStore for memory")
        self._clock = clock
        self._limits = limits or StoreLimits()
        # Calls of the current iteration of each event loop: they are handed over together, since
        # a worker that begins with the first one would wait for the loop after each statement.
        self._collected: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        self._queue: queue.SimpleQueue[list[_Call] | _RemoveListener | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._process = 0
        self._ended: asyncio.Future[None] | None = None
        # Used by the worker only.
        self._file: StoreFile | None = None
        self._topics = Topics(self._limits.principal_listeners)
        self._seen = 0

    # Processes without access to the file cannot publish on this store.
    is_file: bool = True

    @property
    def is_shared(self) -> bool:
        return True

    # ------------------------------------------------------------ entries

    async def get(self, principal: str, key: str) -> bytes | None:
        owner, name = _encode_names(principal, key)
        now = self._clock()
        return await self._call(lambda file: file.get(owner, name, now))

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        owner, name = _encode_names(principal, key)
        now, end = self._span(value, ttl_s)
        reserved = reserved_calls(principal)
        await self._call(
            lambda file: file.put(owner, name, value, now, end), writes=True, reserved=reserved
        )

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        check_bytes(value)
        return await self.swap(principal, key, None, value, ttl_s)

    async def delete(self, principal: str, key: str) -> None:
        owner, name = _encode_names(principal, key)
        reserved = reserved_calls(principal)
        await self._call(
            lambda file: file.remove(owner, ENTRY, name), writes=True, reserved=reserved
        )

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        return await self.swap_all((Swap(principal, key, before, after, ttl_s),))

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        now = self._clock()
        encoded = [self._encode_swap(swap, now) for swap in swaps]
        reserved = reserved_for(swaps)
        return await self._call(
            lambda file: file.swap_all(encoded, now), writes=True, reserved=reserved
        )

    def _encode_swap(self, swap: Swap, now: float) -> FileSwap:
        owner, name = _encode_names(swap.principal, swap.key)
        if swap.before is not None:
            check_bytes(swap.before)
        check_ttl(swap.ttl_s)
        if swap.after is not None:
            self._limits.check_value(swap.after)
        end = None if swap.ttl_s is None else float(now + swap.ttl_s)
        return owner, name, swap.before, swap.after, end

    async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
        owner, name = _encode_names(principal, key)
        now, end = self._span(b"", ttl_s)
        return await self._call(lambda file: file.count(owner, name, by, now, end), writes=True)

    async def names(self, principal: str, prefix: str, after: str, limit: int) -> list[str]:
        check_listing(principal, prefix, after, limit)
        owner, first, last = principal.encode(), prefix.encode(), after.encode()
        now = self._clock()
        return await self._call(lambda file: file.names(owner, first, last, limit, now))

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        check_names(principal, "mark")
        check_mark(mark, ttl_s)
        # The principal as a digest of fixed size: there may be a million rows.
        owner, known = mark_digest(principal, b"principal"), mark_digest(principal, mark)
        now = self._clock()
        end = float(now + ttl_s)
        return await self._call(lambda file: file.use_once(owner, known, now, end), writes=True)

    # ------------------------------------------------------------ logs

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        owner, name = _encode_names(principal, log)
        now, end = self._span(entry, ttl_s)
        return await self._call(lambda file: file.append(owner, name, entry, now, end), writes=True)

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        owner, name = _encode_names(principal, log)
        now = self._clock()
        known = max(0, min(after, _LAST_NUMBER))
        return await self._call(lambda file: file.read(owner, name, known, now))

    async def drop(self, principal: str, log: str) -> None:
        owner, name = _encode_names(principal, log)
        await self._call(lambda file: file.remove(owner, LOG, name), writes=True)

    # ------------------------------------------------------------ topics

    async def publish(self, principal: str, topic: str, message: bytes) -> None:
        owner, name = _encode_names(principal, topic)
        now, _ = self._span(message, None)
        await self._call(lambda file: file.publish(owner, name, message, now), writes=True)

    @asynccontextmanager
    async def listen(
        self, principal: str, topic: str
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        _encode_names(principal, topic)
        listener = TopicListener()
        try:
            await self._call(partial(self._join, principal, topic, listener))
            yield listener
        finally:
            listener.end()
            # Also if the wait above was cancelled: the worker may have added the listener.
            leave = partial(self._topics.leave, principal, topic, listener)
            self._hand_over(asyncio.get_running_loop())
            self._queue.put(_RemoveListener(leave))

    async def close(self) -> None:
        """Finish the waiting calls, end the listeners, and close the file."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            if self._thread is None or self._process != os.getpid():
                self._ended.set_result(None)
            for loop in list(self._collected):
                self._hand_over(loop)
            self._queue.put(None)
        await asyncio.shield(self._ended)
        if self._thread is not None and self._process == os.getpid():
            self._thread.join()

    # ------------------------------------------------------------ from the event loop to the worker

    def _span(self, value: bytes, ttl_s: float | None) -> tuple[float, float | None]:
        """Now, and when the value expires."""
        check_ttl(ttl_s)
        self._limits.check_value(value)
        now = self._clock()
        return now, None if ttl_s is None else float(now + ttl_s)

    async def _call(
        self, work: Callable[[StoreFile], Any], *, writes: bool = False, reserved: int = 0
    ) -> Any:
        if self._ended is not None:
            raise InvalidArgument("this store is closed; make a new one")
        check_waiting(self._waiting, reserved)
        self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        call = _Call(work, writes, future, self._clock())
        collected = self._collected.get(loop)
        if collected is None:
            self._collected[loop] = [call]
            loop.call_soon(self._hand_over, loop)
        else:
            collected.append(call)
        self._waiting += 1
        try:
            return await future
        finally:
            self._waiting -= 1

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._collected.pop(loop, None)
        if calls:
            self._queue.put(calls)

    def _start(self) -> None:
        if self._thread is None:
            self._process = os.getpid()
            # A daemon thread: a store that was not closed must not keep the process from exiting.
            self._thread = threading.Thread(target=self._work, name="colonnade-store", daemon=True)
            self._thread.start()
        elif self._process != os.getpid():
            raise InvalidArgument("this store was used before a fork; make one after it")

    # ------------------------------------------------------------ in the worker

    def _work(self) -> None:
        ending = False
        while not ending:
            calls, ending = self._take_batch()
            self._run_batch([call for call in calls if not call.future.cancelled()])
            if self._topics:
                self._relay()
        for listener in self._topics.everyone():
            listener.post(listener.end)
        self._close_file()
        ended = self._ended
        if ended is not None:
            _settle([(ended, None)])

    def _take_batch(self) -> tuple[list[_Call], bool]:
        """The waiting calls, at most a batch, and whether the store is closed after them."""
        calls: list[_Call] = []
        try:
            item = self._queue.get(timeout=POLL_S if self._topics else None)
            while item is not None:
                if isinstance(item, _RemoveListener):
                    item.callback()
                else:
                    calls += item
                if len(calls) >= BATCH_CALLS:
                    return calls, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return calls, False
        return calls, True

    def _run_batch(self, calls: list[_Call]) -> None:
        """Run a batch in one transaction; no call returns before it is on disk."""
        if not calls:
            return
        done: list[tuple[_Call, object]] = []
        try:
            file = self._opened()
            writes = [call.now for call in calls if call.writes]
            with file.transaction(writes=bool(writes)):
                if writes:
                    file.sweep(min(writes))
                done.extend((call, _outcome(call, file)) for call in calls)
        except Exception as error:
            self._close_file()
            done = [(call, _copy_error(error)) for call in calls]
        _settle([(call.future, outcome) for call, outcome in done])

    def _opened(self) -> StoreFile:
        if self._file is None:
            self._file = StoreFile(self._path, self._limits)
        return self._file

    def _close_file(self) -> None:
        """Close the file; the next call opens it again."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(ChannelError):  # it is closed in any case
                file.close()

    def _join(self, principal: str, topic: str, listener: TopicListener, file: StoreFile) -> None:
        newest = file.newest()
        if not self._topics:
            self._seen = newest
        listener.since = newest
        self._topics.join(principal, topic, listener)

    def _relay(self) -> None:
        """Pass on the messages that were published since the last poll."""
        try:
            file = self._opened()
            with file.transaction(writes=False):
                newest = file.newest()
                if newest == self._seen:
                    return
                whole = file.oldest() <= self._seen + 1
                for number, owner, name in file.topics_after(self._seen) if whole else ():
                    listeners = self._topics.at(owner.decode(), name.decode())
                    if listeners:
                        message = file.message(number, owner, name)
                        for listener in listeners:
                            if listener.since < number:
                                listener.post(listener.offer, message)
                self._seen = newest
        except Exception as error:
            self._close_file()
            self._fail_listeners(f"the store failed while listening: {error}")
        else:
            if not whole:
                self._fail_listeners("messages were removed before they were read")

    def _fail_listeners(self, why: str) -> None:
        for listener in self._topics.everyone():
            listener.post(listener.cut, why)


def _encode_names(principal: str, name: str) -> tuple[bytes, bytes]:
    check_names(principal, name)
    return principal.encode(), name.encode()


def _outcome(call: _Call, file: StoreFile) -> object:
    """The result of a call, or its own refusal; an error of the file fails the whole batch."""
    try:
        return call.work(file)
    except ColonnadeError as refusal:
        return refusal


def _copy_error(error: Exception) -> Exception:
    """A copy of the error for each caller, since a traceback belongs to one."""
    return type(error)(*error.args) if isinstance(error, ColonnadeError) else error


def _settle(outcomes: "list[tuple[asyncio.Future[Any], object]]") -> None:
    """Pass results and errors to the event loops of the callers, waking each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for future, outcome in outcomes:
        loops.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, own in loops.items():
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(_set_outcomes, own)


def _set_outcomes(outcomes: "list[tuple[asyncio.Future[Any], object]]") -> None:
    for future, outcome in outcomes:
        if not future.done():
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
