"""`MemoryStore`: the default store, in the memory of one process.

Rules: no operation awaits, so each is atomic on its event loop. No operation scans all items:
expired ones are found by the second of their expiry, and removed a few at a time. For one event
loop; other threads use stores of their own.
"""

import asyncio
import hashlib
import heapq
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import ceil

from colonnade.errors import LocalProtocolError, Refused
from colonnade.store.limits import (
    OVERHEAD_BYTES,
    StoreLimits,
    TopicListener,
    Topics,
    check_names,
    check_ttl,
)

# Marks that expire within this many seconds are one set. Each look-up checks every set: some
# thirty for DPoP proofs, a few microseconds together.
BUCKET_S = 5
# Anything that must be remembered longer is an entry.
MAX_MARK_S = 600.0
# The longest digest that is in use.
MAX_MARK_BYTES = 64
_DIGEST_BYTES = 16


def check_mark(mark: bytes, ttl_s: float) -> None:
    """Raise `LocalProtocolError` for an invalid mark or lifetime."""
    check_ttl(ttl_s)
    if not isinstance(mark, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a mark is bytes, not {type(mark).__name__}; encode it first")
    if not 0 < len(mark) <= MAX_MARK_BYTES:
        raise LocalProtocolError(f"a mark has 1 to {MAX_MARK_BYTES} bytes; use a digest")
    if ttl_s > MAX_MARK_S:
        raise LocalProtocolError(f"ttl_s of a mark is at most {MAX_MARK_S:g}; use `add` for longer")


def mark_digest(principal: str, mark: bytes) -> bytes:
    """The digest by which a mark is remembered; different for each principal."""
    principal_key = hashlib.blake2b(principal.encode(), digest_size=_DIGEST_BYTES).digest()
    return hashlib.blake2b(mark, key=principal_key, digest_size=_DIGEST_BYTES).digest()


def check_mark_limits(limits: StoreLimits, of_principal: int, of_all: int) -> None:
    """Raise `Refused` if this is more than may be remembered."""
    if of_principal > limits.principal_marks:
        number, of = limits.principal_marks, "this principal has"
    elif of_all > limits.total_marks:
        number, of = limits.total_marks, "there are"
    else:
        return
    raise Refused(f"{of} {number} single-use marks that have not expired; try again later")


class _ExpiryBucket:
    """Marks that expire in the same few seconds."""

    __slots__ = ("counts", "marks")

    def __init__(self) -> None:
        self.marks: set[bytes] = set()
        self.counts: dict[str, int] = {}


class SingleUseMarks:
    """The single-use marks of all principals in this process."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._buckets: dict[int, _ExpiryBucket] = {}
        self._counts: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def use(self, principal: str, mark: bytes, now: float, ttl_s: float) -> bool:
        """Whether a mark is new; it is remembered from now on. Raises `Refused` for too many."""
        self._remove_expired(now)
        known = mark_digest(principal, mark)
        if any(known in bucket.marks for bucket in self._buckets.values()):
            return False
        count = self._counts.get(principal, 0) + 1
        check_mark_limits(self._limits, count, self._total + 1)
        bucket = self._buckets.setdefault(ceil((now + ttl_s) / BUCKET_S), _ExpiryBucket())
        bucket.marks.add(known)
        bucket.counts[principal] = bucket.counts.get(principal, 0) + 1
        self._counts[principal] = count
        self._total += 1
        return True

    def _remove_expired(self, now: float) -> None:
        over = [number for number in self._buckets if number * BUCKET_S <= now]
        for number in over:
            bucket = self._buckets.pop(number)
            self._total -= len(bucket.marks)
            for principal, count in bucket.counts.items():
                left = self._counts[principal] - count
                if left:
                    self._counts[principal] = left
                else:
                    del self._counts[principal]

    def clear(self) -> None:
        """Remove all marks."""
        self._buckets.clear()
        self._counts.clear()
        self._total = 0


# Expired items that one write removes: more than it can add, so that they do not accumulate.
EXPIRED_PER_WRITE = 16
# Obsolete seconds in the heap before it is rebuilt, beyond as many as there are current ones.
STALE_SECONDS = 64

_ENTRY, _LOG = "entry", "log"
_Address = tuple[str, str, str]  # principal, entry or log, name


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
    """How much one principal has stored."""

    entries: int = 0
    size: int = 0


class MemoryStore:
    """The default store. `clock` is monotonic, in seconds; by default that of the event loop."""

    def __init__(
        self, *, clock: Callable[[], float] | None = None, limits: StoreLimits | None = None
    ) -> None:
        self._clock = clock or _loop_time
        self._limits = limits or StoreLimits()
        self._items: dict[_Address, _Entry | _Log] = {}
        self._usage: dict[str, _Usage] = {}
        self._size = 0
        self._due: dict[int, set[_Address]] = {}
        self._second_heap: list[int] = []  # a heap with every key of `_due`, and obsolete ones
        self._marks = SingleUseMarks(self._limits)
        self._topics = Topics(self._limits.principal_listeners)
        self._closed = False

    # ------------------------------------------------------------ entries

    async def get(self, principal: str, key: str) -> bytes | None:
        self._enter(principal, key)
        found = self._find((principal, _ENTRY, key))
        return found.value if isinstance(found, _Entry) else None

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        self._check(principal, key, value, ttl_s)
        self._set((principal, _ENTRY, key), value, ttl_s)

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        self._check(principal, key, value, ttl_s)
        address = (principal, _ENTRY, key)
        if self._find(address) is not None:
            return False
        self._set(address, value, ttl_s)
        return True

    async def delete(self, principal: str, key: str) -> None:
        self._enter(principal, key)
        self._remove((principal, _ENTRY, key))

    def _set(self, address: _Address, value: bytes, ttl_s: float | None) -> None:
        cost = len(address[0]) + len(address[2]) + len(value) + OVERHEAD_BYTES
        self._make_room(address, cost)
        self._remove(address)
        self._keep(address, _Entry(value, cost, None), ttl_s)

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        self._enter(principal, "mark")
        check_mark(mark, ttl_s)
        return self._marks.use(principal, mark, self._clock(), ttl_s)

    # ------------------------------------------------------------ logs

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        self._check(principal, log, entry, ttl_s)
        address = (principal, _LOG, log)
        found = self._find(address)
        kept = (
            found if isinstance(found, _Log) else _Log(len(principal) + len(log) + OVERHEAD_BYTES)
        )
        dropped, size = self._entries_to_drop(kept, len(entry))
        cost = kept.cost + size - kept.size + (1 - dropped) * OVERHEAD_BYTES
        self._make_room(address, cost)
        self._remove(address)
        for _ in range(dropped):
            kept.entries.popleft()
        kept.entries.append(entry)
        kept.last += 1
        kept.size, kept.cost = size, cost
        self._keep(address, kept, ttl_s)
        return kept.last

    def _entries_to_drop(self, log: _Log, more: int) -> tuple[int, int]:
        """How many of the oldest entries to drop for this many bytes, and the new size."""
        size = log.size + more
        dropped = max(0, len(log.entries) + 1 - self._limits.log_entries)
        for number, entry in enumerate(log.entries):
            if number >= dropped and size <= self._limits.log_bytes:
                return number, size
            size -= len(entry)
        return len(log.entries), size

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        self._enter(principal, log)
        found = self._find((principal, _LOG, log))
        if not isinstance(found, _Log):
            return []
        gone = found.last - len(found.entries)
        start = max(min(after, found.last), gone)
        return list(enumerate(islice(found.entries, start - gone, None), start + 1))

    async def drop(self, principal: str, log: str) -> None:
        self._enter(principal, log)
        self._remove((principal, _LOG, log))

    # ------------------------------------------------------------ topics

    async def publish(self, principal: str, topic: str, message: bytes) -> None:
        self._check(principal, topic, message, None)
        for listener in self._topics.at(principal, topic):
            listener.offer(message)

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
        for listener in self._topics.all():
            listener.end()
        for table in (self._items, self._usage, self._due, self._second_heap):
            table.clear()
        self._marks.clear()
        self._size = 0

    # ------------------------------------------------------------ names, limits and expiry

    def _enter(self, principal: str, name: str) -> None:
        if self._closed:
            raise LocalProtocolError("this store is closed; make a new one")
        check_names(principal, name)

    def _check(self, principal: str, name: str, value: bytes, ttl_s: float | None) -> None:
        self._enter(principal, name)
        check_ttl(ttl_s)
        self._limits.check_value(value)

    def _find(self, address: _Address) -> _Entry | _Log | None:
        found = self._items.get(address)
        if found is None or found.expires_at is None or self._clock() < found.expires_at:
            return found
        self._remove(address)
        return None

    def _make_room(self, address: _Address, cost: int) -> None:
        """Raises `Refused` if an item of this cost does not fit in place of the present one."""
        self._remove_expired(EXPIRED_PER_WRITE)
        try:
            self._check_room(address, cost)
        except Refused:
            self._remove_expired(len(self._items))
            self._check_room(address, cost)

    def _check_room(self, address: _Address, cost: int) -> None:
        there = self._items.get(address)
        usage = self._usage.get(address[0]) or _Usage()
        more = cost - (there.cost if there else 0)
        self._limits.check_room(usage.entries + (there is None), usage.size + more)
        self._limits.check_total(self._size + more)

    def _keep(self, address: _Address, item: _Entry | _Log, ttl_s: float | None) -> None:
        self._items[address] = item
        usage = self._usage.setdefault(address[0], _Usage())
        usage.entries += 1
        usage.size += item.cost
        self._size += item.cost
        item.expires_at = None if ttl_s is None else self._clock() + ttl_s
        if item.expires_at is not None:
            second = int(item.expires_at) + 1
            if second not in self._due:
                self._due[second] = set()
                heapq.heappush(self._second_heap, second)
            self._due[second].add(address)

    def _remove(self, address: _Address) -> None:
        item = self._items.pop(address, None)
        if item is None:
            return
        usage = self._usage[address[0]]
        usage.entries -= 1
        usage.size -= item.cost
        if not usage.entries:
            del self._usage[address[0]]
        self._size -= item.cost
        if item.expires_at is not None:
            self._unschedule(int(item.expires_at) + 1, address)

    def _unschedule(self, second: int, address: _Address) -> None:
        addresses = self._due[second]
        addresses.discard(address)
        if addresses:
            return
        del self._due[second]
        if len(self._second_heap) > 2 * len(self._due) + STALE_SECONDS:
            self._second_heap = list(self._due)
            heapq.heapify(self._second_heap)

    def _remove_expired(self, most: int) -> None:
        """Remove items that expired before this second, at most so many."""
        now = self._clock()
        while self._second_heap and self._second_heap[0] <= now:
            addresses = self._due.get(self._second_heap[0])
            if addresses is None:
                heapq.heappop(self._second_heap)
            elif most > 0:
                most -= 1
                self._remove(addresses.pop())
            else:
                return


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
