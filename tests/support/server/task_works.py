"""A server whose tools run as tasks, for tests that kill it: as a program, over HTTP.

python task_works.py DATABASE EFFECTS LEASE_S [created|answered]     # prints its URL

DATABASE is a file, or the URL of a Redis server. With `created` or `answered` it kills itself as soon as
that is on disk, before it says so; of a file only. As a file of the command its settings are variables
of the environment.

Every effect is a line of the file EFFECTS, written when it happens: name, number, process id, time
and a value of its own.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from colonnade import Context, Server, TaskOptions
from colonnade.ports import Store, Swap
from colonnade.server.tasks.docket import DocketQueue
from colonnade.store.limits import StoreLimits
from colonnade.store.redis import RedisStore
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.runner import HttpRunner

STEP_S = 0.02


class DyingStore(SqliteStore):
    """A store whose process is killed right after a task was created, or was answered."""

    dies: str = ""

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        done = await super().swap_all(swaps)
        before, after = swaps[0].before, swaps[0].after
        answered = b'"responses":' in (after or b"") and b'"responses":' not in (before or b"")
        if self.dies == ("created" if before is None else "answered" if answered else "-"):
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def make_store(database: str, dies: str) -> Store:
    limits = StoreLimits(principal_entries=100_000)
    if "://" in database:
        return RedisStore(database, limits=limits)
    store = DyingStore(database, limits=limits)
    store.dies = dies
    return store


def works(database: str, effects: Path, lease_s: float, dies: str = "", queue: str = "") -> Server:
    options = TaskOptions(
        lease_s=lease_s,
        hold_s=0.2,
        max_unfinished=10_000,
        max_kept=10_000,
        max_attempts=1000,
        requests_per_s=None,
        queue=DocketQueue(queue, redelivery_s=lease_s) if queue else None,
    )
    server = Server("works", store=make_store(database, dies), tasks=options)

    def effect(name: str, number: int) -> str:
        value = os.urandom(8).hex()
        line = f"{name} {number} {os.getpid()} {time.time()} {value}\n"
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
        return value

    @server.tool(task=True)
    async def steps(name: str, count: int, ctx: Context) -> list[str]:
        """Do so many things, each once."""
        done: list[str] = []
        for number in range(count):
            done.append(await ctx.once(str(number), lambda n=number: effect(name, n)))
            await asyncio.sleep(STEP_S)
        return done

    @server.tool(task=True)
    async def confirm(name: str, ctx: Context) -> list[str]:
        """Do something before and after a question."""
        before = await ctx.once("before", lambda: effect(name, 0))
        answer = await ctx.elicit(f"Go on with {name}?", str)
        return [before, answer, await ctx.once("after", lambda: effect(name, 1))]

    return server


def announce(site: HttpRunner) -> None:
    print(site.url, flush=True)


# For the command, which takes no arguments of the file: `colonnade work task_works.py`.
DATABASE, EFFECTS, LEASE_S, QUEUE = VARIABLES = (
    "WORKS_DATABASE",
    "WORKS_EFFECTS",
    "WORKS_LEASE_S",
    "WORKS_QUEUE",
)


def settings(database: str, effects: Path, lease_s: float, queue: str) -> dict[str, str]:
    """The environment of the command."""
    values = (database, str(effects), str(lease_s), queue)
    return dict(zip(VARIABLES, values, strict=True))


if DATABASE in os.environ:
    given = os.environ
    server = works(given[DATABASE], Path(given[EFFECTS]), float(given[LEASE_S]), queue=given[QUEUE])


if __name__ == "__main__":
    database, effects, lease_s, *dies = sys.argv[1:]
    server = works(database, Path(effects), float(lease_s), *dies)
    server.run("http", port=0, started=announce)
