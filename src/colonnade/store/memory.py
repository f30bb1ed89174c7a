"""The in-memory store: not persistent, and not shared with other processes.

Rules: no operation awaits, so each is atomic on its event loop, and none scans all entries: expired
ones are indexed by the second of their expiry and removed a few at a time. For one event loop;
other threads use their own store.
"""

import asyncio
import hashlib
import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import ceil
from operator import itemgetter

from colonnade.errors import InvalidArgument, InvalidArgumentType, Refused
from colonnade.ports import SERVER_PRINCIPAL, Swap
from colonnade.store.limits import (
    OVERHEAD_BYTES,
    StoreLimits,
    TopicListener,
    Topics,
    add_to_counter,
    check_bytes,
    check_listing,
    check_names,
    check_ttl,
)

# Marks that expire within so many seconds are one set. Each mark is looked up in all sets, about
# thirty for proofs, which takes a few microseconds.
BUCKET_S = 5
# The maximum lifetime of a mark; what lives longer is an entry.
MAX_MARK_S = 600.0
# The longest digest that is in use.
MAX_MARK_BYTES = 64
_DIGEST_BYTES = 16


def check_mark(mark: bytes, ttl_s: float) -> None:
    """Raise `LocalProtocolError` for an invalid mark or lifetime."""
    check_ttl(ttl_s)
    if not isinstance(mark, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentType(f"a mark is bytes, not {type(mark).__name__}; encode it first")
    if not 0 < len(mark) <= MAX_MARK_BYTES:
        raise InvalidArgument(f"a mark has 1 to {MAX_MARK_BYTES} bytes; use a digest")
    if ttl_s > MAX_MARK_S:
        raise InvalidArgument(f"a mark lives for {MAX_MARK_S:g} s at most; use `add` for longer")


def mark_digest(principal: str, mark: bytes) -> bytes:
    """The digest that is stored for a mark; different for each principal."""
    principal_key = hashlib.blake2b(principal.encode(), digest_size=_DIGEST_BYTES).digest()
    return hashlib.blake2b(mark, key=principal_key, digest_size=_DIGEST_BYTES).digest()


def check_mark_limits(limits: StoreLimits, of_principal: int, of_all: int) -> None:
    """Raise `Refused` if these are more marks than allowed."""
    if of_principal > limits.principal_marks:
        number, of = limits.principal_marks, "this principal has"
    elif of_all > limits.total_marks:
        number, of = limits.total_marks, "there are"
    else:
        return
    raise Refused(f"{of} {number} single-use marks that have not expired; try again later")


class _ExpiryBucket:
    """The marks that expire within the same few seconds."""

    __slots__ = ("counts", "marks")

    def __init__(self) -> None:
        self.marks: set[bytes] = set()
        self.counts: dict[str, int] = {}


class SingleUseMarks:
    """The marks of all principals, in this process."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._spans: dict[int, _ExpiryBucket] = {}
        self._counts: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def use(self, principal: str, mark: bytes, now: float, ttl_s: float) -> bool:
        """Whether this is the first use of a mark. Raises `Refused` if there are too many."""
        self._forget(now)
        known = mark_digest(principal, mark)
        if any(known in span.marks for span in self._spans.values()):
            return False
        count = self._counts.get(principal, 0) + 1
        check_mark_limits(self._limits, count, self._total + 1)
        span = self._spans.setdefault(ceil((now + ttl_s) / BUCKET_S), _ExpiryBucket())
        span.marks.add(known)
        span.counts[principal] = span.counts.get(principal, 0) + 1
        self._counts[principal] = count
        self._total += 1
        return True

    def _forget(self, now: float) -> None:
        over = [number for number in self._spans if number * BUCKET_S <= now]
        for number in over:
            span = self._spans.pop(number)
            self._total -= len(span.marks)
            for principal, count in span.counts.items():
                left = self._counts[principal] - count
                if left:
                    self._counts[principal] = left
                else:
                    del self._counts[principal]

    def clear(self) -> None:
        """Remove all marks."""
        self._spans.clear()
        self._counts.clear()
        self._total = 0


# Names in one chunk, at most: to add one moves some kilobytes, and a million are 2,000 chunks.
CHUNK_NAMES = 1024


class SortedNames:
    """The names of one principal's entries in order, in chunks: a change moves one of them."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[list[str]] = []

    def add(self, name: str) -> None:
        """Add a name that is not there."""
        if not self._chunks:
            self._chunks.append([name])
            return
        at = self._chunk_of(name)
        chunk = self._chunks[at]
        insort(chunk, name)
        if len(chunk) > CHUNK_NAMES:
            self._chunks.insert(at + 1, chunk[CHUNK_NAMES // 2 :])
            del chunk[CHUNK_NAMES // 2 :]

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        at = self._chunk_of(name)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, name)]
        if not chunk:
            del self._chunks[at]

    def starting_at(self, name: str) -> Iterator[str]:
        """This name, if it is there, and all greater ones. Not valid after a change."""
        at = self._chunk_of(name)
        for number in range(at, len(self._chunks)):
            chunk = self._chunks[number]
            yield from islice(chunk, bisect_left(chunk, name) if number == at else 0, None)

    def _chunk_of(self, name: str) -> int:
        return max(bisect_right(self._chunks, name, key=itemgetter(0)) - 1, 0)


# Expired entries that one write removes: more than it can add, so that they never accumulate.
SWEEP_AT_ONCE = 16
# Unused seconds in the heap, beyond as many as there are used ones, before it is rebuilt.
STALE_SECONDS = 64

_ENTRY, _LOG = "entry", "log"
_Key = tuple[str, str, str]  # principal, entry or log, name


@dataclass(slots=True)
class _Entry:
    value: bytes
    cost: int
    expires_at: float | None


@dataclass(slots=True)
class _Log:
    cost: int
    expires_at: float | None = None
    last: int = 0
    size: int = 0
    entries: deque[bytes] = field(default_factory=deque[bytes])


@dataclass(slots=True)
class _Usage:
    """What one principal has stored."""

    entries: int = 0
    size: int = 0
    names: SortedNames = field(default_factory=SortedNames)


class MemoryStore:
    """The default store. `clock` is a monotonic clock, by default that of the event loop.

    Set `is_shared` if several applications of one event loop use it, such as in a test.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        limits: StoreLimits | None = None,
        is_shared: bool = False,
    ) -> None:
        self._is_shared = is_shared
        self._clock = clock or _loop_time
        self._limits = limits or StoreLimits()
        self._things: dict[_Key, _Entry | _Log] = {}
        self._usage: dict[str, _Usage] = {}
        self._size = 0
        self._due: dict[int, set[_Key]] = {}
        self._seconds: list[int] = []  # a heap with every key of `_due`, and some removed ones
        self._marks = SingleUseMarks(self._limits)
        self._topics = Topics(self._limits.principal_listeners)
        self._closed = False

    @property
    def is_shared(self) -> bool:
        return self._is_shared

    # ------------------------------------------------------------ entries

    async def get(self, principal: str, key: str) -> bytes | None:
        self._enter(principal, key)
        return self._value((principal, _ENTRY, key))

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        self._check(principal, key, value, ttl_s)
        self._set((principal, _ENTRY, key), value, self._expiry(ttl_s))

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        check_bytes(value)
        return await self.swap_all((Swap(principal, key, None, value, ttl_s),))

    async def delete(self, principal: str, key: str) -> None:
        self._enter(principal, key)
        self._remove((principal, _ENTRY, key))

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
        for principal, key, before, after, ttl_s in swaps:
            if before is not None:
                check_bytes(before)
            self._check(principal, key, b"" if after is None else after, ttl_s)
        keys: list[_Key] = [(swap.principal, _ENTRY, swap.key) for swap in swaps]
        if any(self._value(key) != swap.before for key, swap in zip(keys, swaps, strict=True)):
            return False
        costs = {
            key: 0 if swap.after is None else _cost(key, swap.after)
            for key, swap in zip(keys, swaps, strict=True)
        }
        self._make_room(costs)
        for key, swap in zip(keys, swaps, strict=True):
            self._remove(key)
            if swap.after is not None:
                entry = _Entry(swap.after, costs[key], self._expiry(swap.ttl_s))
                self._store_entry(key, entry)
        return True

    async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
        self._check(principal, key, b"", ttl_s)
        entry = (principal, _ENTRY, key)
        found = self._find(entry)
        number = add_to_counter(found.value if isinstance(found, _Entry) else None, by)
        expires_at = found.expires_at if found else self._expiry(ttl_s)
        self._set(entry, b"%d" % number, expires_at)
        return number

    async def names(self, principal: str, prefix: str, after: str, limit: int) -> list[str]:
        self._open()
        check_listing(principal, prefix, after, limit)
        usage = self._usage.get(principal)
        found: list[str] = []
        expired: list[_Key] = []
        now = self._clock()
        # The least text that is greater than `after`; no name has a NUL in it.
        for name in usage.names.starting_at(max(prefix, after + "\0")) if usage else ():
            if len(found) == limit or not name.startswith(prefix):
                break
            key = (principal, _ENTRY, name)
            end = self._things[key].expires_at
            if end is None or now < end:
                found.append(name)
            else:
                expired.append(key)
        for key in expired:  # so that the next listing does not meet them
            self._remove(key)
        return found

    def _value(self, key: _Key) -> bytes | None:
        found = self._find(key)
        return found.value if isinstance(found, _Entry) else None

    def _set(self, key: _Key, value: bytes, expires_at: float | None) -> None:
        cost = _cost(key, value)
        self._make_room({key: cost})
        self._remove(key)
        self._store_entry(key, _Entry(value, cost, expires_at))

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        self._enter(principal, "mark")
        check_mark(mark, ttl_s)
        return self._marks.use(principal, mark, self._clock(), ttl_s)

    # ------------------------------------------------------------ logs

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        self._check(principal, log, entry, ttl_s)
        key = (principal, _LOG, log)
        found = self._find(key)
        record = (
            found if isinstance(found, _Log) else _Log(len(principal) + len(log) + OVERHEAD_BYTES)
        )
        removed, size = self._count_to_remove(record, len(entry))
        cost = record.cost + size - record.size + (1 - removed) * OVERHEAD_BYTES
        self._make_room({key: cost})
        self._remove(key)
        for _ in range(removed):
            record.entries.popleft()
        record.entries.append(entry)
        record.last += 1
        record.size, record.cost = size, cost
        record.expires_at = self._expiry(ttl_s)
        self._store_entry(key, record)
        return record.last

    def _count_to_remove(self, log: _Log, more: int) -> tuple[int, int]:
        """How many of the oldest entries must be removed for this many bytes more, and the size
        after that."""
        size = log.size + more
        removed = max(0, len(log.entries) + 1 - self._limits.log_entries)
        for number, entry in enumerate(log.entries):
            if number >= removed and size <= self._limits.log_bytes:
                return number, size
            size -= len(entry)
        return len(log.entries), size

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        self._enter(principal, log)
        found = self._find((principal, _LOG, log))
        if not isinstance(found, _Log):
            return []
        first_missing = found.last - len(found.entries)
        start = max(min(after, found.last), first_missing)
        return list(enumerate(islice(found.entries, start - first_missing, None), start + 1))

    async def drop(self, principal: str, log: str) -> None:
        self._enter(principal, log)
        self._remove((principal, _LOG, log))

    # ------------------------------------------------------------ topics

    async def publish(self, principal: str, topic: str, message: bytes) -> int | None:
        self._check(principal, topic, message, None)
        return sum(listener.offer(message) for listener in self._topics.at(principal, topic))

    @asynccontextmanager
    async def listen(
        self, principal: str, topic: str
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        self._enter(principal, topic)
        listener = TopicListener()
        self._topics.join(principal, topic, listener)
        try:
            yield listener
        finally:
            listener.end()
            self._topics.leave(principal, topic, listener)

    async def close(self) -> None:
        self._closed = True
        for listener in self._topics.everyone():
            listener.end()
        for table in (self._things, self._usage, self._due, self._seconds):
            table.clear()
        self._marks.clear()
        self._size = 0

    # ------------------------------------------------------------ names, limits and expiry

    def _open(self) -> None:
        if self._closed:
            raise InvalidArgument("this store is closed; make a new one")

    def _enter(self, principal: str, name: str) -> None:
        self._open()
        check_names(principal, name)

    def _check(self, principal: str, name: str, value: bytes, ttl_s: float | None) -> None:
        self._enter(principal, name)
        check_ttl(ttl_s)
        self._limits.check_value(value)

    def _find(self, key: _Key) -> _Entry | _Log | None:
        found = self._things.get(key)
        if found is None or found.expires_at is None or self._clock() < found.expires_at:
            return found
        self._remove(key)
        return None

    def _make_room(self, costs: Mapping[_Key, int]) -> None:
        """Remove expired entries. Raises `Refused` if there is no room for these costs; 0 is that
        of an entry that is removed."""
        self._sweep(SWEEP_AT_ONCE)
        try:
            self._check_room(costs)
        except Refused:
            self._sweep(len(self._things))
            self._check_room(costs)

    def _check_room(self, costs: Mapping[_Key, int]) -> None:
        total = 0
        # Of each principal: how many entries more, and how many bytes.
        growth: dict[str, tuple[int, int]] = {}
        for key, cost in costs.items():
            existing = self._things.get(key)
            entries, more = growth.get(key[0], (0, 0))
            entries += (cost > 0) - (existing is not None)
            more += cost - (existing.cost if existing else 0)
            growth[key[0]] = entries, more
        for principal, (entries, more) in growth.items():
            usage = self._usage.get(principal) or _Usage()
            if principal != SERVER_PRINCIPAL:
                self._limits.check_room(usage.entries + entries, usage.size + more)
            total += more
        self._limits.check_total(self._size + total)

    def _expiry(self, ttl_s: float | None) -> float | None:
        return None if ttl_s is None else self._clock() + ttl_s

    def _store_entry(self, key: _Key, thing: _Entry | _Log) -> None:
        self._things[key] = thing
        usage = self._usage.get(key[0])
        if usage is None:
            usage = self._usage[key[0]] = _Usage()
        usage.entries += 1
        usage.size += thing.cost
        self._size += thing.cost
        if key[1] is _ENTRY:
            usage.names.add(key[2])
        if thing.expires_at is not None:
            second = int(thing.expires_at) + 1
            if second not in self._due:
                self._due[second] = set()
                heapq.heappush(self._seconds, second)
            self._due[second].add(key)

    def _remove(self, key: _Key) -> None:
        thing = self._things.pop(key, None)
        if thing is None:
            return
        usage = self._usage[key[0]]
        usage.entries -= 1
        usage.size -= thing.cost
        if key[1] is _ENTRY:
            usage.names.remove(key[2])
        if not usage.entries:
            del self._usage[key[0]]
        self._size -= thing.cost
        if thing.expires_at is not None:
            self._forget(int(thing.expires_at) + 1, key)

    def _forget(self, second: int, key: _Key) -> None:
        keys = self._due[second]
        keys.discard(key)
        if keys:
            return
        del self._due[second]
        if len(self._seconds) > 2 * len(self._due) + STALE_SECONDS:
            self._seconds = list(self._due)
            heapq.heapify(self._seconds)

    def _sweep(self, most: int) -> None:
        """Remove at most so many expired entries."""
        now = self._clock()
        while self._seconds and self._seconds[0] <= now:
            keys = self._due.get(self._seconds[0])
            if keys is None:
                heapq.heappop(self._seconds)
            elif most > 0:
                most -= 1
                self._remove(keys.pop())
            else:
                return


def _cost(key: _Key, value: bytes) -> int:
    return len(key[0]) + len(key[2]) + len(value) + OVERHEAD_BYTES


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
