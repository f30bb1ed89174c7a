"""A store that does not respond for a minute: what goes on and what is refused, by kind of message.

The table is compared with that of docs/replicas.md.
"""

import asyncio
import os
import re
import secrets
import signal
import time
from collections.abc import Awaitable
from pathlib import Path

from http_client import Caller, Response
from replica_faults.load import META, NETWORK_ERRORS, SUM
from replica_faults.partition import RECOVERY_S
from replica_faults.processes import FaultProcesses
from replica_faults.redis_kill import DURABLE
from replica_faults.report import Report
from store.redis_server import RedisServer, redis_server

DOCS = Path(__file__).resolve().parents[3] / "docs" / "replicas.md"
SECTION = "## If the store is not reachable"
# Calls of the store fail after two seconds; then at once.
NOTICED_S = 3.0
# How long a table takes at least. On a busy machine it is more, and copies of sessions are used for
# 60 s after the first failure: what is seen later is not compared.
TABLE_S = 25.0
COPIES_S = 60.0
DATE = "2025-11-25"


class Probe:
    """Clients of one replica, opened before the outage, and one message of each kind."""

    def __init__(self, processes: FaultProcesses) -> None:
        self._ports = processes.ports
        self._known = ""
        self._elsewhere = ""
        self._event = ""
        self._task = ""
        self._state: dict[str, object] = {}

    async def prepare(self) -> None:
        here, other = self._ports[:2]
        async with Caller(here) as caller:
            await caller.initialize(DATE)
            self._known = caller.session or ""
            wire, stream = await caller.asking("tools/call", _call("slow", id="first"))
            self._event = (await stream.event()).id or ""
            wire.abort()
            created = await caller.modern(
                "tools/call", _call("steps", name=secrets.token_hex(4), count=1), meta=META
            )
            self._task = created.json["result"]["taskId"]
            await self._draw_state(caller)
        async with Caller(other) as caller:
            await caller.initialize(DATE)
            self._elsewhere = caller.session or ""

    async def _draw_state(self, caller: Caller) -> None:
        asked = await caller.modern("tools/call", _call("confirm", id="once"), meta=META)
        result = asked.json["result"]
        answer = {"action": "accept", "content": {"value": "yes"}}
        self._state = {
            "inputResponses": dict.fromkeys(result["inputRequests"], answer),
            "requestState": result["requestState"],
        }

    async def table(self) -> dict[str, str]:
        """What each kind of message gets."""
        here = self._ports[0]
        found: dict[str, str] = {}
        async with Caller(here) as caller:
            modern = caller.modern
            found["plain call of 2026-07-28"] = await _seen(modern("tools/call", SUM))
            found["call that becomes a task"] = await _seen(
                modern("tools/call", _call("steps", name="t", count=1), meta=META)
            )
            found["`tasks/get`"] = await _seen(
                modern("tasks/get", {"taskId": self._task}, meta=META, mcp_name=self._task)
            )
            found["retry of a `single_use` tool"] = await _seen(
                modern("tools/call", {**_call("confirm", id="once"), **self._state}, meta=META)
            )
            found["tool that uses the store itself"] = await _seen(
                modern("tools/call", _call("redeem", code=secrets.token_hex(8)))
            )
        async with Caller(here) as caller:
            caller.revision = None
            found["`initialize`"] = await _seen(caller.initialize(DATE))
        async with self._session(self._known) as caller:
            found["call in a session with a copy"] = await _seen(caller.ask("tools/call", SUM))
            found["`resources/subscribe` there"] = await _seen(
                caller.ask("resources/subscribe", {"uri": "file:///a"})
            )
            found["GET for notifications"] = await _seen_head(caller)
            found["GET with `Last-Event-ID` of this replica"] = await _seen_head(
                caller, last_event_id=self._event
            )
            response = {"jsonrpc": "2.0", "id": f"{'a' * 16}.1", "result": {}}
            found["response for another replica"] = await _seen(caller.post(response))
            found["DELETE"] = await _seen(caller.request("DELETE"))
        async with self._session(self._elsewhere) as caller:
            found["call in a session of other replicas"] = await _seen(
                caller.ask("tools/call", SUM)
            )
        async with Caller(here) as caller:
            found["`/health`"] = await _seen(caller.request("GET", path="/health"))
            found["`/ready`"] = await _seen(caller.request("GET", path="/ready"))
        return found

    def _session(self, id: str) -> Caller:
        caller = Caller(self._ports[0])
        caller.session, caller.revision = id, DATE
        return caller


def _call(tool: str, **arguments: object) -> dict[str, object]:
    return {"name": tool, "arguments": arguments}


async def _seen(asked: Awaitable[Response]) -> str:
    try:
        async with asyncio.timeout(10.0):
            response = await asked
    except NETWORK_ERRORS as error:
        return f"no response: {type(error).__name__}"
    return _describe(response)


async def _seen_head(caller: Caller, **headers: str) -> str:
    try:
        async with asyncio.timeout(10.0):
            wire, response = await caller.get(**headers)
            if response.status != 200:
                await response.read()
            wire.abort()
    except NETWORK_ERRORS as error:
        return f"no response: {type(error).__name__}"
    return _describe(response)


def _describe(response: Response) -> str:
    if response.status == 503:
        retry = "with" if "retry-after" in response.headers else "without"
        return f"503 {retry} `Retry-After`"
    if response.status >= 400:
        return str(response.status)
    message = response.json if response.body.startswith(b"{") else {}
    if "error" in message:
        return f"error {message['error']['code']}"
    if message.get("result", {}).get("isError"):
        return "`isError`"
    return "goes on"


def documented() -> dict[str, str]:
    """The table of the documentation."""
    text = DOCS.read_text().partition(SECTION)[2].partition("\n## ")[0]
    table = text.partition("|---|---|\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE))


async def store_away(
    folder: Path, *, away_s: float = 60.0, ways: tuple[str, ...] = ("SIGSTOP", "SIGKILL")
) -> Report:
    """Stop Redis, then kill it; what happens to each kind of message meanwhile."""
    report = Report("store-away")
    expected = documented()
    with redis_server(folder / "redis", DURABLE) as redis:
        # The table has what a message gets in the end; how long it waits for that is not compared.
        async with FaultProcesses(redis.port, folder, STORE_WAIT_S="1") as processes:
            for way in ways:
                probe = Probe(processes)
                await probe.prepare()
                began = time.monotonic()
                _leave(redis, way)
                # The first calls wait for their timeout, and tell the replica.
                await probe.table()
                await asyncio.sleep(max(NOTICED_S - (time.monotonic() - began), 0.0))
                from_s = time.monotonic()
                tables = [await probe.table()]
                table_s = max(2 * (time.monotonic() - from_s), TABLE_S)
                left_s = away_s - table_s - (time.monotonic() - began)
                if left_s > 0:
                    await asyncio.sleep(left_s)
                    late = await probe.table()
                    if time.monotonic() - began < COPIES_S:
                        tables.append(late)
                    await asyncio.sleep(max(away_s - (time.monotonic() - began), 0.0))
                _come_back(redis, way)
                untried = expected.keys() - tables[0].keys()
                report.problems += [f"{name}: documented, and not tried" for name in untried]
                for table in tables:
                    for name, what in table.items():
                        if expected.get(name) != what:
                            words = f"{name}: {what}, documented: {expected.get(name)}"
                            report.problems.append(f"{way}: {words}")
                took_s = await processes.wait_ready(3 * RECOVERY_S)
                gone_s = time.monotonic() - began - took_s
                report.say(f"{way}, away for {gone_s:.0f} s; ready {took_s:.1f} s after its return")
                if took_s > RECOVERY_S:
                    report.problems.append(f"not ready {took_s:.1f} s after the store was back")
                for name, what in tables[-1].items():
                    report.say(f"  {name:<45} {what}")
    return report


def _leave(redis: RedisServer, way: str) -> None:
    if way == "SIGSTOP":
        os.kill(redis.pid, signal.SIGSTOP)
    else:
        redis.kill()


def _come_back(redis: RedisServer, way: str) -> None:
    if way == "SIGSTOP":
        os.kill(redis.pid, signal.SIGCONT)
    else:
        redis.start()
