"""A store of each kind, a clock that only we move, and a loop that ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from colonnade.ports import Store
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore

# Far more than anything here takes; a test that hangs says so.
PATIENCE_S = 60.0

Scene = Callable[[Store], Awaitable[None]]


class Clock:
    """Seconds since some day; they pass when we say so."""

    def __init__(self) -> None:
        self.now = 1_000_000.25

    def __call__(self) -> float:
        return self.now


class Stage(Protocol):
    """Where scenes are played: with one store, or where that makes sense with two that share."""

    clock: Clock

    def make(self, limits: StoreLimits | None = None) -> Store: ...

    def play(self, scene: Scene, limits: StoreLimits | None = None) -> None: ...


class _Stage:
    def __init__(self) -> None:
        self.clock = Clock()

    def make(self, limits: StoreLimits | None = None) -> Store:
        raise NotImplementedError

    def play(self, scene: Scene, limits: StoreLimits | None = None) -> None:
        async def whole() -> None:
            async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as ending:
                store = self.make(limits)
                ending.push_async_callback(store.close)
                await scene(store)

        asyncio.run(whole())


class MemoryStage(_Stage):
    def make(self, limits: StoreLimits | None = None) -> Store:
        return MemoryStore(clock=self.clock, limits=limits)


class SqliteStage(_Stage):
    """Every store of one stage is on the same file."""

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
        store.count(principal, name, 1, None),
        *((store.names(principal, name, "", 1),) if name else ()),  # an empty prefix is one
        store.append(principal, name, b"mine", None),
        store.read(principal, name, 0),
        store.drop(principal, name),
        store.publish(principal, name, b"mine"),
        listen(),
    )
