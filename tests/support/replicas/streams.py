"""Three processes on one store, and clients that resume streams, which must get what was on them.

    python tests/support/replicas/streams.py [quiet|ends|follow] [--redis] [--sdk ours|mcp-1.30.0|mcp-2.3.0]
                                             [--times N] [--era DATE] [--seed N]

This is `scripts/replicas streams`:

- `quiet`: no process ends. Each call sends events; its client reads some, closes the connection and
  resumes the stream with `Last-Event-ID` at the next process, until it has the response. None may be
  refused, and each event comes once, in order.
- `ends`: one process after the other is killed (SIGKILL) or ended (SIGTERM) during calls whose streams
  are resumed elsewhere. Each call has an effect in a ledger. An error says whether its call may have
  had an effect; none hangs, none says that a call with an effect may be sent again.
- `follow`: a client follows a resource and the list of tools. The process that has its stream is killed
  or ended, and both change elsewhere at once: the client must be notified of both after the change.

Clients are Colonnade's, or the official SDK in an environment of its own (`scripts/_peers`).
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from colonnade import connect
from http_client import Caller
from replica_processes import ReplicaProcesses
from replicas.kill import DURABLE, LEDGER
from store.redis_server import redis_server

PROGRAM = Path(__file__).with_name("ledger_server.py")
CLIENT = Path(__file__).with_name("stream_client.py")
ROOT = Path(__file__).resolve().parents[3]
ERA = "2025-11-25"
# Calls at once, of each client.
AT_ONCE = 6
# For a client to be notified, which then has lost no change: far more than a reconnect takes.
NOTIFIED_S = 30.0
UPDATED = "notifications/resources/updated"
TOOLS_CHANGED = "notifications/tools/list_changed"
URI = "file:///followed"
EVENTS = 12


# ---------------------------------------------------------------- without faults


async def quiet(processes: ReplicaProcesses, times: int, choose: random.Random) -> Counter[str]:
    """Resume so many streams; what is not as it must be."""
    problems: Counter[str] = Counter()
    port = int(processes.relay.url.rpartition(":")[2])
    resumed = 0

    async def one_call(caller: Caller, id: int) -> None:
        nonlocal resumed
        params = {
            "name": "events",
            "arguments": {"effect": f"quiet/{id}"},
            "_meta": {"progressToken": id},
        }
        wire, response = await caller.asking("tools/call", params, id=id)
        after: str | None = None
        seen: list[float] = []
        while True:
            ends = choose.randint(1, 3)
            try:
                for _ in range(ends):
                    event = await response.event()
                    after = event.id or after
                    if not event.data:
                        continue
                    message: Any = json.loads(event.data)
                    if message.get("id") == id:
                        if "result" not in message:
                            problems[f"an error: {message['error']}"] += 1
                        elif seen != [float(number + 1) for number in range(EVENTS)]:
                            problems[f"events {seen}"] += 1
                        return
                    seen.append(float(message["params"]["progress"]))
            except EOFError:
                pass
            wire.abort()
            wire, response = await caller.get(last_event_id=after)
            resumed += 1
            if response.status != 200:
                await response.read()
                problems[f"resumption: {response.status} {response.body[:200]!r}"] += 1
                return

    async def work(number: int) -> None:
        async with Caller(port) as caller:
            await caller.initialize(ERA)
            id = number * 1_000_000
            while resumed < times:
                id += 1
                await one_call(caller, id)

    await asyncio.gather(*(work(number) for number in range(AT_ONCE)))
    print(f"{resumed} streams were resumed without a fault")
    return problems


# ---------------------------------------------------------------- clients


class SdkClient:
    """A process of stream_client.py, and the lines that it has printed."""

    def __init__(self, python: str, spec: dict[str, Any]) -> None:
        self._python = python
        self._spec = spec
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self._new = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "SdkClient":
        environment = {**os.environ}
        if self._python == sys.executable:
            environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        else:
            environment.pop("PYTHONPATH", None)
        self._process = await asyncio.create_subprocess_exec(
            *(self._python, str(CLIENT), json.dumps(self._spec)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.lines.append((time.monotonic(), json.loads(line)))
            self._new.set()

    async def until(self, found: Any, timeout_s: float) -> bool:
        """Wait for a line that is as `found` says; whether there was one."""
        try:
            async with asyncio.timeout(timeout_s):
                while not any(found(at, line) for at, line in self.lines):
                    self._new.clear()
                    await self._new.wait()
        except TimeoutError:
            return False
        return True

    async def finish(self) -> None:
        """End its input, and wait for its last lines."""
        assert self._process.stdin is not None
        assert self._reading is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(2 * NOTIFIED_S):
                await self._reading
        except TimeoutError:
            self.lines.append((time.monotonic(), {"error": "the client did not end", "effect": ""}))

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()


async def end_and_start(processes: ReplicaProcesses, index: int, how: signal.Signals) -> None:
    """End a process, and start another one on its port."""
    if how is signal.SIGKILL:
        await processes.kill_and_start(index)
    else:
        await processes.restart(index)


# ---------------------------------------------------------------- kills and ends during calls


async def ends(
    processes: ReplicaProcesses, times: int, choose: random.Random, python: str, era: str
) -> Counter[str]:
    """End so many processes during calls; what is not as it must be."""
    problems: Counter[str] = Counter()
    spec = {
        "http": processes.relay.url + "/mcp",
        "era": era,
        "calls": [f"ends/{number}" for number in range(AT_ONCE)],
        "tools": ["resumed", "events"],
    }
    async with SdkClient(python, spec) as client:
        await client.until(lambda _, line: "effect" in line, NOTIFIED_S)
        for number in range(times):
            await asyncio.sleep(choose.uniform(0.3, 1.5))
            how = choose.choice([signal.SIGKILL, signal.SIGTERM])
            await end_and_start(processes, number % processes.count, how)
        await client.finish()
    ledger = Counter((processes.folder / LEDGER).read_text().split())
    outcomes: Counter[str] = Counter()
    for _, line in client.lines:
        if "effect" not in line:
            continue
        there = ledger[line["effect"]]
        if there > 1:
            problems[f"an effect {there} times"] += 1
        if "text" in line:
            outcomes["result"] += 1
            if line["text"] != line["effect"] or not there:
                problems[f"a result {line['text'][:200]!r}, and {there} effects"] += 1
            continue
        said = line["said"]
        if line.get("crashed"):
            outcomes["session ended by the client"] += 1
            continue
        outcomes["hung" if line.get("hung") else f"error, effect {said}"] += 1
        if said is None or (said == "none" and there):
            problems[f"{there} effects, and the error says {said}: {line['error']}"] += 1
    print(f"{times} ends, {sum(outcomes.values())} calls: {dict(outcomes)}")
    return problems


# ---------------------------------------------------------------- changes


async def follow(
    processes: ReplicaProcesses, times: int, choose: random.Random, python: str, era: str
) -> Counter[str]:
    """End the process of a client's stream so many times, while what it follows changes; what is
    not as it must be."""
    problems: Counter[str] = Counter()
    relay = processes.relay
    opened: list[int] = []

    def note(headers: dict[str, str], body: bytes, port: int) -> None:
        is_get = not body and "text/event-stream" in headers.get("accept", "")
        if is_get or b'"subscriptions/listen"' in body:
            opened.append(port)

    relay.on_sent = note
    for number in range(times):
        opened.clear()
        spec = {"http": relay.url + "/mcp", "era": era, "follows": URI}
        how = choose.choice([signal.SIGKILL, signal.SIGTERM])
        async with SdkClient(python, spec) as client:
            if not await client.until(lambda _, line: "listens" in line, NOTIFIED_S):
                problems["the client did not listen"] += 1
                continue
            async with asyncio.timeout(NOTIFIED_S):
                while not opened:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # the stream is there, and the others have been told
            holder = relay.ports.index(opened[-1])
            ending = asyncio.create_task(end_and_start(processes, holder, how))
            await asyncio.sleep(choose.uniform(0.0, 0.3))
            other = relay.ports[(holder + 1) % processes.count]
            async with connect(f"http://127.0.0.1:{other}/mcp", revision="2026-07-28") as caller:
                # The notification of a client may arrive before the call has ended.
                changed_at = time.monotonic()
                await caller.call_tool("touch", {"uri": URI, "tool": f"tool-{number}"})
            await ending
            for method in (UPDATED, TOOLS_CHANGED):

                def is_told(
                    at: float, line: dict[str, Any], method: str = method, after: float = changed_at
                ) -> bool:
                    return line.get("changed") == method and at > after

                if not await client.until(is_told, NOTIFIED_S):
                    lines = [line for _, line in client.lines]
                    problems[f"{how.name}: {method} was lost; the client got {lines}"] += 1
            await client.finish()
    print(f"{times} ends of the process with the stream")
    return problems


# ---------------------------------------------------------------- the command


def python_of(sdk: str) -> str:
    """The Python of an SDK's environment."""
    if sdk == "ours":
        return sys.executable
    name, _, version = sdk.partition("-")
    command = [ROOT / "scripts" / "_peers", name, version]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return str(Path(found.stdout.strip()) / "bin" / "python")


async def streams(
    what: str, store: str, times: int, seed: int, sdk: str = "ours", era: str = ERA
) -> Counter[str]:
    """One of the batteries; what is not as it must be."""
    choose = random.Random(seed)
    python = python_of(sdk)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / LEDGER).touch()
        async with ReplicaProcesses(
            store or str(path / "store.db"), path, program=PROGRAM
        ) as processes:
            started = time.monotonic()
            if what == "quiet":
                problems = await quiet(processes, times or 300, choose)
            elif what == "ends":
                problems = await ends(processes, times or 60, choose, python, era)
            else:
                problems = await follow(processes, times or 30, choose, python, era)
            took_s = time.monotonic() - started
    print(
        f"{what}, {sdk}, {era}, {'Redis' if store else 'SQLite'}, seed {seed}: {took_s:.0f} s, "
        f"{sum(problems.values())} problems"
    )
    for problem, count in problems.most_common():
        print(f"{count:>6}  FAILED {problem}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas streams")
    parser.add_argument("what", choices=("quiet", "ends", "follow"))
    parser.add_argument("--times", type=int, default=0, help="resumptions, or ends of processes")
    parser.add_argument("--redis", action="store_true", help="start a Redis server, and use it")
    parser.add_argument("--sdk", default="ours", help="ours, mcp-1.30.0 or mcp-2.3.0")
    parser.add_argument("--era", default=ERA, help="the revision of our client")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    with ExitStack() as stack:
        store = ""
        if options.redis:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = stack.enter_context(redis_server(folder, DURABLE)).url
        work = streams(options.what, store, options.times, options.seed, options.sdk, options.era)
        problems = asyncio.run(work)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
