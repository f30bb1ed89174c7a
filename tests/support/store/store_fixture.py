"""Stores of each kind for tests, with a clock that tests set, each test in a loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from colonnade.ports import Store, Swap
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore

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
        store.swap_all(
            [Swap("", "other", None, b"1", None), Swap(principal, name, None, b"", 1.0)]
        ),
        store.count(principal, name, 1, None),
        *((store.names(principal, name, "", 1),) if name else ()),  # an empty prefix is one
        store.append(principal, name, b"mine", None),
        store.read(principal, name, 0),
        store.drop(principal, name),
        store.publish(principal, name, b"mine"),
        listen(),
    )
