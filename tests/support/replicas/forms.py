"""Outages of Redis while forms are open at three processes.

    python tests/support/replicas/forms.py [--sdk ours|mcp-1.30.0|mcp-2.3.0] [--outages N] [--seed N]

This is `scripts/replicas forms`. In each outage Redis is killed (SIGKILL) while calls in one session
wait for the answer of a user, and started again after a moment. Some forms are answered while it is
away, the others in the second after it is back, each by a POST to the next process. Every call must
have its result, with its effect in the ledger once; no session may end.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from replica_processes import ReplicaProcesses
from replicas.kill import DURABLE, LEDGER
from store.redis_server import RedisServer, redis_server

PROGRAM = Path(__file__).with_name("ledger_server.py")
CLIENT = Path(__file__).with_name("form_client.py")
ROOT = Path(__file__).resolve().parents[3]
# Forms of one outage: a third are answered while Redis is away, the others right after it. The
# official client 1.x handles one request of the server after the other: each has a session of its own.
FORMS = 6
SESSIONS = {"mcp-1.30.0": 3}
# Longer than the client waits for a call.
PATIENCE_S = 90.0


class FormClient:
    """A process of form_client.py, and what it has said of each call."""

    def __init__(self, python: str, url: str) -> None:
        self._python = python
        self._url = url
        self.asked: set[str] = set()
        self.ended: dict[str, dict[str, Any]] = {}
        self.crashes: list[str] = []
        self._new = asyncio.Event()

    async def __aenter__(self) -> "FormClient":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        if self._python != sys.executable:
            del environment["PYTHONPATH"]
        self._process = await asyncio.create_subprocess_exec(
            *(self._python, str(CLIENT), self._url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._reading
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.readline():
            line: dict[str, Any] = json.loads(data)
            if "asked" in line:
                self.asked.add(line["asked"])
            elif "effect" in line:
                self.ended[line["effect"]] = line
            else:
                self.crashes.append(line["crash"])
            self._new.set()

    def tell(self, **line: str) -> None:
        """Let it call, or answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def until(self, found: Any) -> bool:
        """Wait until this is so; whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not found():
                    self._new.clear()
                    await self._new.wait()
        return found()


async def one_outage(
    forms: list[tuple[str, FormClient]], redis: RedisServer, choose: random.Random
) -> str:
    """Open forms, kill Redis, answer; what went wrong."""
    for effect, client in forms:
        client.tell(call=effect)
    for effect, client in forms:
        if not await client.until(lambda client=client, effect=effect: effect in client.asked):
            return "a form was not opened"
    redis.kill()
    await asyncio.sleep(choose.uniform(0.1, 4.0))
    away = len(forms) // 3
    for effect, client in forms[:away]:
        client.tell(answer=effect)
    await asyncio.sleep(choose.uniform(0.0, 0.5))
    await asyncio.to_thread(redis.start)
    for effect, client in forms[away:]:
        client.tell(answer=effect)
        await asyncio.sleep(choose.uniform(0.0, 0.3))
    for effect, client in forms:
        if not await client.until(lambda client=client, effect=effect: effect in client.ended):
            return "not all calls have ended"
    return ""


async def run(sdk: str, outages: int, seed: int) -> Counter[str]:
    choose = random.Random(seed)
    problems: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, redis_server(Path(folder), DURABLE) as redis:
        path = Path(folder, "server")
        path.mkdir()
        (path / LEDGER).touch()
        calls: list[tuple[str, FormClient]] = []
        longest_s, done = 0.0, 0
        async with AsyncExitStack() as stack:
            processes = await stack.enter_async_context(
                ReplicaProcesses(redis.url, path, program=PROGRAM)
            )
            python, url = python_of(sdk), processes.relay.url + "/mcp"
            clients = [
                await stack.enter_async_context(FormClient(python, url))
                for _ in range(SESSIONS.get(sdk, 1))
            ]
            count = FORMS if len(clients) == 1 else len(clients)
            for outage in range(outages):
                forms = [
                    (f"outage-{outage}/{number}", clients[number % len(clients)])
                    for number in range(count)
                ]
                calls += forms
                began = time.monotonic()
                problem = await one_outage(forms, redis, choose)
                done += 1
                longest_s = max(longest_s, time.monotonic() - began)
                if problem:
                    problems[problem] += 1
                    if count != FORMS:  # a session is blocked by the call that hangs
                        break
        ledger = Counter((path / LEDGER).read_text().split())
    results = 0
    for effect, client in calls:
        line = client.ended.get(effect, {"error": "the client said nothing of it", "said": None})
        there = ledger[effect]
        if line.get("text") == effect and there == 1:
            results += 1
            continue
        kind = "hung" if line.get("hung") else str(line.get("error", line.get("text")))
        wrong = "WRONG ADVICE, " if line.get("said") == "none" and there else ""
        problems[f"{wrong}{there} effects, and the call: {kind[:160]}"] += 1
    for client in clients:
        for crash in client.crashes:
            problems[f"the session ended: {crash[:160]}"] += 1
    print(
        f"{sdk}, seed {seed}: {done} outages, {len(calls)} forms, "
        f"{results} results, "
        f"{sum(problems.values())} problems; the longest outage with its calls took {longest_s:.1f} s"
    )
    return problems


def python_of(sdk: str) -> str:
    """The Python of an SDK's environment."""
    if sdk == "ours":
        return sys.executable
    name, _, version = sdk.partition("-")
    command = [ROOT / "scripts" / "_peers", name, version]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return str(Path(found.stdout.strip()) / "bin" / "python")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas forms")
    parser.add_argument("--sdk", default="ours", help="ours, mcp-1.30.0 or mcp-2.3.0")
    parser.add_argument("--outages", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    problems = asyncio.run(run(options.sdk, options.outages, options.seed))
    for problem, count in problems.most_common():
        print(f"{count:>6}  FAILED {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
