"""10,000 tasks of one caller: each is listed once while others come, go and expire; and what is
left of them when all have expired."""

import asyncio
import random
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from sqlite3 import connect as open_sqlite
from typing import Any

import pytest

from colonnade import Server, TaskOptions
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.store.limits import StoreLimits
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import live
from server.raw_client import Client, Rejected
from server.tasks import client_of, get, start

TASKS = 10_000
AT_ONCE = 500
EXPIRING = CANCELLED = TASKS // 10
TTL_S = 60
ROOMY = StoreLimits(principal_entries=10 * TASKS)
OPTIONS = TaskOptions(
    max_unfinished=10 * TASKS, max_kept=10 * TASKS, max_running=1, requests_per_s=None
)
DAY_S = 24 * 3600.0


class Day:
    """The time of day, which stands still."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


def waiting(store: MemoryStore | SqliteStore, day: Day) -> Server:
    server = Server("s", store=store, tasks=OPTIONS)
    server.clock = day.time

    @server.tool(task=True)
    async def wait() -> str:
        await asyncio.Event().wait()
        return ""

    return server


async def create(client: Client, day: Day, count: int, task: Any = None) -> list[str]:
    made: list[str] = []
    for at in range(0, count, AT_ONCE):
        several = (
            start(client, "wait", task=task or {}) for _ in range(at, min(at + AT_ONCE, count))
        )
        made += [one["taskId"] for one in await asyncio.gather(*several)]
        day.now += 0.001
    return made


async def cancel(client: Client, ids: list[str]) -> None:
    await asyncio.gather(*(client.ask("tasks/cancel", {"taskId": id}) for id in ids))


async def names(store: MemoryStore | SqliteStore) -> list[str]:
    found = await store.names("", "", "", 1000)
    return found + await store.names(SERVER_PRINCIPAL, "", "", 1000)


async def size(store: MemoryStore | SqliteStore, path: Path) -> int:
    """What the store holds, in bytes. It removes some of what has expired with each write."""
    held = [-1]
    while len(held) < 5 or len(set(held[-5:])) > 1:
        await store.put("", "written", b"", None)
        await store.delete("", "written")
        held.append(store._size if isinstance(store, MemoryStore) else used_bytes(path))
    return held[-1]


def used_bytes(path: Path) -> int:
    with closing(open_sqlite(path)) as file:
        (pages,) = file.execute("PRAGMA page_count").fetchone()
        (free,) = file.execute("PRAGMA freelist_count").fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
        return (pages - free) * size


@pytest.mark.slow
@pytest.mark.spec("R0556", "R0559")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@live
async def test_each_of_10_000_tasks_is_listed_once_and_nothing_is_left_when_they_have_expired(
    kind: str, tmp_path: Path
) -> None:
    day, dice, path = Day(), random.Random(3), tmp_path / "tasks.db"
    store = MemoryStore(clock=day.time, limits=ROOMY)
    if kind == "sqlite":
        store = SqliteStore(path, clock=day.time, limits=ROOMY)
    before = await size(store, path)
    async with client_of(waiting(store, day), NOVEMBER_2025) as client:
        begun = time.perf_counter()
        staying = await create(client, day, TASKS // 2)
        expiring = await create(client, day, EXPIRING, {"ttl": TTL_S * 1000})
        staying += await create(client, day, TASKS // 2 - EXPIRING)
        created_s = time.perf_counter() - begun
        await cancel(client, expiring)  # a task that has ended is deleted when its ttl is over
        cancelled = dice.sample(staying[1:], CANCELLED)  # the first one runs
        to_cancel = iter(cancelled)

        found: list[str] = []
        pages_s: list[float] = []
        params: dict[str, str] = {}
        more: list[str] = []
        while True:
            begun = time.perf_counter()
            page = await client.ask("tasks/list", params)
            pages_s.append(time.perf_counter() - begun)
            found += [one["taskId"] for one in page["tasks"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
            if len(pages_s) == 60:  # between two pages, before those that expire were listed
                day.now += TTL_S + 1
            more += await create(client, day, 2)
            await cancel(client, list(islice(to_cancel, 5)))
        assert len(found) == len(set(found))
        # Each that can be read, also if it was cancelled meanwhile, and those that came.
        assert set(found) - set(more) == set(staying)
        assert len(more) > 300
        assert set(found) >= set(more[:-2])
        assert (await get(client, cancelled[0]))["status"] == "cancelled"
        with pytest.raises(Rejected):
            await get(client, expiring[0])
        pages_s.sort()
        print(f"{kind}: {TASKS} created in {created_s:.1f} s; {len(pages_s)} pages,", end=" ")
        print(f"p99 {pages_s[int(len(pages_s) * 0.99)] * 1000:.1f} ms")
        day.now += 3 * DAY_S
    after = await size(store, path)
    print(f"{before} bytes before, {after} after")
    assert await names(store) == []
    assert after <= before + (16 * 4096 if kind == "sqlite" else 0)
    if isinstance(store, SqliteStore):
        await store.close()
