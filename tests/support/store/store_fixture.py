"""Stores of each kind for tests, with a clock that tests set, each test in a loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from colonnade.ports import Store
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.redis import RedisStore
from colonnade.store.sqlite import SqliteStore
from store.redis_server import RedisServer

# Far more than anything here takes; a test that hangs says so.
PATIENCE_S = 60.0

StoreTest = Callable[[Store], Awaitable[None]]


class Clock:
    """A clock that stands still until a test sets `now`."""

    def __init__(self) -> None:
        self.now = 1_000_000.25

    def __call__(self) -> float:
        return self.now


class StoreFixture(Protocol):
    """Makes stores that share their content, and runs a test with one of them."""

    clock: Clock

    def make(self, limits: StoreLimits | None = None) -> Store: ...

    def run(self, body: StoreTest, limits: StoreLimits | None = None) -> None: ...


class _StoreFixture:
    def __init__(self) -> None:
        self.clock = Clock()

    def make(self, limits: StoreLimits | None = None) -> Store:
        raise NotImplementedError

    def run(self, body: StoreTest, limits: StoreLimits | None = None) -> None:
        async def whole() -> None:
            async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as ending:
                store = self.make(limits)
                ending.push_async_callback(store.close)
                await body(store)

        asyncio.run(whole())


class MemoryStoreFixture(_StoreFixture):
    def make(self, limits: StoreLimits | None = None) -> Store:
        return MemoryStore(clock=self.clock, limits=limits)


class SqliteStoreFixture(_StoreFixture):
    """Every store of one fixture is on the same file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "store.db"

    def make(self, limits: StoreLimits | None = None) -> SqliteStore:
        return SqliteStore(self.path, clock=self.clock, limits=limits)


# Redis has its own clock, which cannot be stopped: a second of a test takes as many seconds there, so
# that a machine that stalls changes nothing.
SCALE = 1000
# Time passes by what is left of each key, and of each member of the sorted sets whose scores are
# times; one millisecond more, since both ends of a span may be in the same one.
_PASS_TIME = """
local shift = tonumber(ARGV[2]) + 1
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then redis.call('PEXPIRE', key, string.format('%.0f', left - shift)) end
  if string.find(key, ':ends$') or string.find(key, ':marks$') then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for at = 1, #members, 2 do
      local score = tonumber(members[at + 1]) - shift
      if score > -math.huge and score < math.huge then
        redis.call('ZADD', key, string.format('%.0f', score), members[at])
      end
    end
  end
end
"""


class RedisClock(Clock):
    """The clock of a Redis server: what is added to `now` passes there at once."""

    def __init__(self, client: Any, prefix: str) -> None:
        super().__init__()
        self._client, self._prefix = client, prefix

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "now" and hasattr(self, "_client"):
            self._client.eval(_PASS_TIME, 0, self._prefix, (value - self.now) * 1000 * SCALE)
        super().__setattr__(name, value)


class SlowRedisStore(RedisStore):
    """A store whose time is that of `RedisClock`."""

    def _milliseconds(self, ttl_s: float) -> int:
        return super()._milliseconds(ttl_s * SCALE)


_PREFIXES = count()


class RedisStoreFixture(_StoreFixture):
    """Every store of one fixture has the same keys of a server, which others do not use."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__()
        self._server = server
        self._client = server.client()
        self._prefix = f"test{next(_PREFIXES)}"
        self.clock: Clock = RedisClock(self._client, self._prefix)

    def make(self, limits: StoreLimits | None = None) -> RedisStore:
        if limits is not None and limits.total_bytes < StoreLimits().total_bytes:
            used = self._client.info("memory")["used_memory"]
            self._client.config_set("maxmemory", used + limits.total_bytes)
        # Patient: a machine that stalls is no failure of the store.
        return SlowRedisStore(
            self._server.url, limits=limits, prefix=self._prefix, timeout_s=PATIENCE_S / 2
        )

    def close(self) -> None:
        self._client.config_set("maxmemory", 0)
        self._client.flushall()
        self._client.close()


def every_call(store: Store, principal: str, name: str) -> Sequence[Awaitable[object]]:
    """Each thing that the port offers, asked of one name."""

    async def listen() -> None:
        async with store.listen(principal, name):
            pass

    return (
        store.get(principal, name),
        store.put(principal, name, b"mine", None),
        store.add(principal, name, b"mine", None),
        store.delete(principal, name),
        store.swap(principal, name, None, b"mine", None),
        store.count(principal, name, 1, None),
        *((store.names(principal, name, "", 1),) if name else ()),  # an empty prefix is one
        store.append(principal, name, b"mine", None),
        store.read(principal, name, 0),
        store.drop(principal, name),
        store.publish(principal, name, b"mine"),
        listen(),
    )
