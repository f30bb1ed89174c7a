"""Kills the processes that run tasks, again and again, and checks what became of the tasks.

    python tests/support/server/kill_tasks.py [--redis] [--workers] [--queue docket]
        [TASKS [KILLS [LEASE_S]]]                                            # scripts/kill

Two processes on one SQLite file, or on one Redis server, run the tasks. One of them is killed
(SIGKILL) and started again, until there were enough kills; then the rest is waited for. Every task
that was acknowledged must end once, with the values of its effects as they were recorded, and go on
within the lease and a second. With `--workers` they are processes of `colonnade work`, and a third
one serves clients and runs none. With `--queue docket` tasks are delivered by pydocket, again after
the time of the lease if a worker has died.

Rules: a request that got no response may have had an effect or none; it is not repeated, except for
`tasks/get`. Every wait ends.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from http_client import Caller
from server.task_works import settings
from server.tasks import DECLARED, TERMINAL
from store.redis_server import redis_server

PROGRAM = Path(__file__).with_name("task_works.py")
META = {"io.modelcontextprotocol/clientCapabilities": DECLARED}
START_S = 60.0
END_S = 300.0
STEPS = 10
# Of a busy machine, beyond the lease and the second that are promised.
SLACK_S = 1.0

JSON = dict[str, Any]


class Effect(NamedTuple):
    """One line of the file of effects."""

    name: str
    number: int
    process: int
    at: float
    value: str


class Worker:
    """One process that runs tasks and serves; or does one of the two, with a command."""

    def __init__(
        self, folder: Path, lease_s: float, store: str = "", *command: str, queue: str = ""
    ) -> None:
        self.folder = folder
        self.command = command
        self.queue = queue
        self.store = store or str(folder / "tasks.db")
        self.lease_s = lease_s
        self.process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.killed_at: dict[int, float] = {}

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self, *dies: str) -> None:
        effects = self.folder / "effects"
        if self.command:
            await self._start_command(effects)
            return
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", PROGRAM, self.store, effects, str(self.lease_s)),
            *dies,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            url = (await self.process.stdout.readline()).decode().strip()
        self.port = int(url.split(":")[2].split("/")[0])

    async def _start_command(self, effects: Path) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "colonnade", *self.command, str(PROGRAM)),
            env=os.environ | settings(self.store, effects, self.lease_s, self.queue),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        works = self.command[0] == "work"
        async with asyncio.timeout(START_S):
            if works:
                while b"runs its tasks" not in (line := await self.process.stderr.readline()):
                    assert line
                return
            url = (await self.process.stdout.readline()).decode().split()[-1]
        self.port = int(url.split(":")[2].split("/")[0])

    async def kill(self) -> None:
        assert self.process is not None
        self.killed_at[self.pid] = time.time()
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        async with asyncio.timeout(START_S):
            return await self.process.wait()

    async def ask(self, method: str, params: JSON) -> JSON | None:
        """The result of a request; None if there was no response."""
        name = params.get("taskId") or params.get("name")
        try:
            async with Caller(self.port) as caller:
                response = await caller.modern(method, params, meta=META, mcp_name=name)
        except (OSError, EOFError, IndexError, ValueError, TimeoutError):
            return None
        message: JSON = response.json
        assert "error" not in message, message
        return message["result"]


class Works:
    """Two workers on one store, and what was asked of them, or of a process that only serves."""

    def __init__(
        self, folder: Path, lease_s: float, store: str = "", *, apart: bool = False, queue: str = ""
    ) -> None:
        self.folder = folder
        self.lease_s = lease_s
        command = ("work",) if apart else ()
        self.workers = [Worker(folder, lease_s, store, *command, queue=queue) for _ in range(2)]
        self.servers = self.workers
        if apart:
            serve = ("serve", "--port", "0", "--no-task-runner")
            self.servers = [Worker(folder, lease_s, store, *serve, queue=queue)]
        # The acknowledged tasks: name to id.
        self.made: dict[str, str] = {}

    async def __aenter__(self) -> "Works":
        for worker in self._all():
            await worker.start()
        return self

    def _all(self) -> list[Worker]:
        return list(dict.fromkeys([*self.servers, *self.workers]))

    async def __aexit__(self, *_: object) -> None:
        for worker in self._all():
            if worker.process is not None and worker.process.returncode is None:
                worker.process.kill()
                await worker.process.wait()

    async def create(self, worker: Worker, tool: str, name: str, **arguments: Any) -> str | None:
        params = {"name": tool, "arguments": {"name": name, **arguments}}
        created = await worker.ask("tools/call", params)
        if created is None:
            return None
        assert created["resultType"] == "task", created
        self.made[name] = created["taskId"]
        return created["taskId"]

    async def get(self, id: str, worker: Worker | None = None) -> JSON:
        """The state of a task, from any process that is alive."""
        async with asyncio.timeout(END_S):
            while True:
                for one in [worker] if worker is not None else self.servers:
                    state = await one.ask("tasks/get", {"taskId": id})
                    if state is not None:
                        return state
                await asyncio.sleep(0.05)

    async def reached(self, id: str, *statuses: str) -> JSON:
        async with asyncio.timeout(END_S):
            while (state := await self.get(id))["status"] not in statuses:
                await asyncio.sleep(0.05)
        return state

    def effects(self) -> dict[str, list[Effect]]:
        """What was done, by name."""
        found: dict[str, list[Effect]] = defaultdict(list)
        path = self.folder / "effects"
        for line in path.read_text().splitlines() if path.exists() else ():
            name, number, process, at, value = line.split()
            found[name].append(Effect(name, int(number), int(process), float(at), value))
        return found

    def check(self, name: str, state: JSON, count: int) -> None:
        """A task has ended as it must: with one value for each effect, of those that happened."""
        assert state["status"] == "completed", (name, state)
        values = state["result"]["structuredContent"]
        done = self.effects()[name]
        assert len(values) == count, (name, values)
        for number, value in enumerate(values):
            happened = [one.value for one in done if one.number == number]
            assert value in happened, (name, number, value, happened)

    def pauses(self) -> list[float]:
        """How long each task stood still after the last kill that hit it: the next process may be
        killed, too, before it does anything."""
        kills = sorted(at for one in self.workers for at in one.killed_at.values())
        found: list[float] = []
        for done in self.effects().values():
            for before, after in pairwise(done):
                between = [at for at in kills if before.at <= at <= after.at]
                if between and after.process != before.process:
                    found.append(after.at - between[-1])
        return found


async def battery(
    folder: Path,
    tasks: int,
    kills: int,
    lease_s: float,
    *,
    timed: bool = True,
    store: str = "",
    apart: bool = False,
    queue: str = "",
) -> list[str]:
    """Kill processes while they run tasks; what is to be told of it. Raises `AssertionError`; with
    `timed` also if a task stood still for too long."""
    chance = random.Random(1)
    async with Works(folder, lease_s, store, apart=apart, queue=queue) as works:
        left = [f"t{number}" for number in range(tasks)]
        for nth in range(kills):
            share = left[: -(-len(left) // (kills - nth))]
            left = left[len(share) :]
            pending = [
                asyncio.ensure_future(
                    works.create(chance.choice(works.servers), "steps", name, count=STEPS)
                )
                for name in share
            ]
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            worker = chance.choice(works.workers)
            await worker.kill()
            await asyncio.gather(*pending)
            await worker.start()
        ended = {
            name: await works.reached(id, *TERMINAL) for name, id in sorted(works.made.items())
        }
        for name, state in ended.items():
            works.check(name, state, STEPS)
            again = [await works.get(works.made[name], server) for server in works.servers]
            assert again == [state] * len(again), (name, state, again)  # ended once, and for ever
        pauses = works.pauses()
        repeated = sum(
            len(done) - len({one.number for one in done}) for done in works.effects().values()
        )
        # A queue looks for what it has to deliver again four times in that time, or a little less.
        longest_s = (lease_s * (1.35 if queue else 1.0)) + 1.0 + SLACK_S
        assert not timed or max(pauses, default=0.0) <= longest_s, max(pauses)
        return [
            f"{len(ended)} of {tasks} tasks were acknowledged, and ended once",
            f"{kills} kills; {len(pauses)} times a task went on in another process",
            f"longest pause {max(pauses, default=0.0):.2f} s, lease {lease_s:g} s",
            f"{repeated} effects had happened and were not recorded yet when the process died",
        ]


async def main(
    tasks: int = 200,
    kills: int = 60,
    lease_s: float = 2.0,
    *,
    on_redis: bool = False,
    apart: bool = False,
    queued: bool = False,
) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = ""
        if on_redis or queued:
            durable = ["--appendonly", "yes", "--appendfsync", "always"]
            url = stack.enter_context(redis_server(folder / "redis", durable)).url
        store, queue = url if on_redis else "", url if queued else ""
        began = time.monotonic()
        for line in await battery(
            folder, tasks, kills, lease_s, store=store, apart=apart or queued, queue=queue
        ):
            print(line)
        print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/kill")
    parser.add_argument("--redis", action="store_true", help="the store is a Redis server")
    parser.add_argument("--workers", action="store_true", help="kill processes of colonnade work")
    parser.add_argument("--queue", choices=["docket"], help="tasks are delivered by a queue")
    parser.add_argument("tasks", type=int, nargs="?", default=200)
    parser.add_argument("kills", type=int, nargs="?", default=60)
    parser.add_argument("lease_s", type=float, nargs="?", default=2.0)
    given = parser.parse_args()
    asyncio.run(
        main(
            given.tasks,
            given.kills,
            given.lease_s,
            on_redis=given.redis,
            apart=given.workers,
            queued=given.queue is not None,
        )
    )
