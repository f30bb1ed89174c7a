"""A store in a file, queries of the file itself, and a worker that is kept busy."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore
from store.store_fixture import PATIENCE_S, Clock


def run_on_file(
    path: Path,
    body: Callable[[SqliteStore], Awaitable[None]],
    clock: Clock | None = None,
    limits: StoreLimits | None = None,
) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            store = SqliteStore(path, clock=clock or Clock(), limits=limits)
            try:
                await body(store)
            finally:
                await store.close()

    asyncio.run(whole())


def query(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Ask the file itself, when no store of this process has it open."""
    db = sqlite3.connect(path)
    try:
        found = db.execute(statement).fetchall()
        db.commit()
        return found
    finally:
        db.close()


class Held:
    """A worker that is stuck in a call until it is let go."""

    def __init__(self, store: SqliteStore) -> None:
        self._go = threading.Event()
        self._stuck = threading.Event()
        self._call = asyncio.ensure_future(store._call(self._wait))

    def _wait(self, file: object) -> None:
        self._stuck.set()
        assert self._go.wait(PATIENCE_S)

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self._stuck.wait, PATIENCE_S)

    async def __aexit__(self, *_: object) -> None:
        self._go.set()
        await self._call
