"""Three processes on one store, of which one after another is killed (SIGKILL) during calls.

    python tests/support/replicas/kill.py [--kills N] [--store URL] [--redis] [--at-once N] [--seed N]

This is `scripts/replicas kill`. Each call has an effect of its own: a line in a ledger. Each is sent
once, through the relay of `replica_processes`, by clients of all revisions which stay in their
sessions. After each kill the process is started again on its port. At the end the ledger is compared
with what the clients were told:

- no effect is there twice;
- the effect of a call with a result is there;
- a call without a result ends within 5 s of a kill, in an error whose fields say whether it may have
  had an effect; if it had none, there is none;
- no client has opened a second session, and each session goes on.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade import connect
from colonnade.errors import ChannelError, ColonnadeError, RemoteError
from replica_processes import REVISIONS, SSE, ReplicaProcesses
from store.redis_server import redis_server

PROGRAM = Path(__file__).with_name("ledger_server.py")
LEDGER = "ledger"
# A call without a response ends within so many seconds of the kill.
ENDS_S = 5.0
# Far more than any call may take.
WAIT_S = 60.0
# The calls between two kills: at least one, and up to so many.
CALLS_BETWEEN = 60
# A connection to a process that was killed so long before may not be refused yet.
EARLIER_S = 1.0
# Clients that do nothing but resume streams.
RESUMED_AT_ONCE = 4
ELICITS = ("2025-06-18", "2025-11-25", "2026-07-28")
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

RESULT = "result"
NO_EFFECT = "error: no effect"
UNKNOWN = "error: effect unknown"
UNSAID = "error that says nothing of the effect"


@dataclass
class Call:
    """One call, which was sent once, and how it ended."""

    effect: str
    tool: str
    revision: str
    started: float
    ended: float = 0.0
    outcome: str = ""
    error: str = ""
    # The ports that it was sent to, and when.
    sent: list[tuple[float, int]] = field(default_factory=list)


def outcome_of(error: Exception) -> str:
    """What the fields of an error say about the effect of a call."""
    if isinstance(error, ChannelError):
        if error.not_sent:
            return NO_EFFECT
        return UNKNOWN if error.effect_unknown else UNSAID
    if isinstance(error, RemoteError) and isinstance(error.data, dict):
        data: dict[str, Any] = error.data
        if "effectUnknown" in data:
            return UNKNOWN if data["effectUnknown"] else NO_EFFECT
    return UNSAID


def tools_of(revision: str) -> tuple[str, ...]:
    """The tools that clients of a revision can call."""
    tools = ("plain", "stream")
    if revision in ELICITS:
        tools += ("once", "consent")
    return tools


class KillBattery:
    """Calls, kills, and the comparison of the ledger with what clients were told."""

    def __init__(self, processes: ReplicaProcesses, seed: int) -> None:
        self.processes = processes
        self.random = random.Random(seed)
        self.calls: list[Call] = []
        self.kills: list[tuple[float, int]] = []
        self._by_effect: dict[str, Call] = {}
        self._by_session: dict[str, Call] = {}
        processes.relay.on_sent = self._note_sent
        self.ended = 0
        self.ending = False
        self.sessions = 0
        self.problems: Counter[str] = Counter()

    # ------------------------------------------------------------ calls and kills

    def _note_sent(self, headers: dict[str, str], body: bytes, port: int) -> None:
        """Note where a call is, or the rest of its stream; a client has one call at a time."""
        session = headers.get("mcp-session-id", "")
        message: Any = json.loads(body) if body else {}
        if message.get("method") == "tools/call":
            call = self._by_effect[message["params"]["arguments"]["effect"]]
            self._by_session[session] = call
            call.sent.append((time.monotonic(), port))
        elif "last-event-id" in headers and session in self._by_session:
            self._by_session[session].sent.append((time.monotonic(), port))

    async def client(self, revision: str, number: int, tools: Sequence[str]) -> None:
        """Call one tool after the other in one session, until the end."""
        url = self.processes.relay.url + "/mcp"
        async with connect(url, revision=revision, on_elicit=lambda _: {"agreed": True}) as client:
            self.sessions += revision != "2026-07-28"
            while not self.ending:
                await self._call(client, revision, tools[len(self.calls) % len(tools)], number)
            for tool in tools:  # no process is killed now
                call = await self._call(client, revision, tool, number)
                if call.outcome != RESULT:
                    self.problems[f"{revision}: after the last kill: {call.error}"] += 1

    async def _call(self, client: Any, revision: str, tool: str, number: int) -> Call:
        effect = f"{revision}/{number}/{tool}/{len(self.calls)}"
        call = Call(effect, tool, revision, time.monotonic())
        self.calls.append(call)
        self._by_effect[effect] = call
        try:
            async with asyncio.timeout(WAIT_S):
                result = await client.call_tool(tool, {"effect": effect})
            call.outcome = RESULT if result.text == effect else UNSAID
            call.error = "" if call.outcome == RESULT else f"result {result.text[:200]!r}"
        except (ColonnadeError, TimeoutError) as error:
            call.outcome = outcome_of(error)
            call.error = f"{type(error).__name__}: {str(error)[:300]}"
        call.ended = time.monotonic()
        self.ended += 1
        return call

    async def run(self, kills: int, at_once: int) -> None:
        """Kill so many processes, one after the other, during calls."""
        revisions = [one for one in REVISIONS if one != SSE]
        named = [revisions[number % len(revisions)] for number in range(at_once)]
        work = [(one, tools_of(one)) for one in named]
        # These take long, and would hold up the others.
        work += [("2025-11-25", ("resumed",))] * RESUMED_AT_ONCE
        clients = [
            asyncio.create_task(self.client(revision, number, tools))
            for number, (revision, tools) in enumerate(work)
        ]
        await self._more_calls(at_once)
        for number in range(kills):
            await self._more_calls(self.random.randint(1, CALLS_BETWEEN))
            index = self.random.randrange(self.processes.count)
            self.kills.append((time.monotonic(), self.processes.relay.ports[index]))
            await self.processes.kill_and_start(index)
            if number % 10 == 9:
                print(f"{number + 1} kills, {len(self.calls)} calls", file=sys.stderr)
        await self._more_calls(at_once)
        self.ending = True
        for ended in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(ended, BaseException):
                self.problems[f"a client ended with {type(ended).__name__}: {ended}"] += 1

    async def _more_calls(self, count: int) -> None:
        enough = self.ended + count
        while self.ended < enough:
            await asyncio.sleep(0.005)

    # ------------------------------------------------------------ the comparison

    def compare(self, ledger: Iterable[str]) -> list[str]:
        """What is not as it must be: one line each, with how often."""
        effects = Counter(ledger)
        problems = Counter(self.problems)
        for effect, times in effects.items():
            if times > 1:
                problems[f"an effect {times} times: {effect}"] += 1
        for call in self.calls:
            kind = f"{call.tool} in {call.revision}"
            there = effects.pop(call.effect, 0)
            if call.outcome == RESULT and not there:
                problems[f"{kind}: a result, and its effect is not in the ledger"] += 1
            elif call.outcome == NO_EFFECT and there:
                problems[f"{kind}: an effect, and an error that there is none: {call.error}"] += 1
            elif call.outcome == UNSAID:
                problems[f"{kind}: {UNSAID}: {call.error}"] += 1
            since_s = self.since_kill(call)
            if call.outcome != RESULT and since_s > ENDS_S:
                problems[f"{kind}: {since_s:.2f} s from a kill to its end: {call.error}"] += 1
        for effect in effects:
            problems[f"an effect of no call: {effect}"] += 1
        opened = self.processes.relay.kinds["initialize"]
        if opened != self.sessions:
            problems[f"{opened} sessions were opened by {self.sessions} clients"] += 1
        return [f"{times}  {problem}" for problem, times in problems.most_common()]

    def since_kill(self, call: Call) -> float:
        """The seconds from the kill of a process that a call, or the rest of its stream, was sent
        to, to the end of the call; infinite if there was none."""
        kills = [
            at
            for at, port in self.kills
            if at < call.ended
            and any(port == to and sent - EARLIER_S <= at for sent, to in call.sent)
        ]
        return call.ended - max(kills, default=float("-inf"))

    def table(self) -> str:
        """The calls by tool and outcome."""
        outcomes = (RESULT, NO_EFFECT, UNKNOWN, UNSAID)
        lines = [f"{'':12}" + "".join(f"{one:>24}" for one in (*outcomes[:3], "last end"))]
        for tool in ("plain", "once", "consent", "stream", "resumed"):
            calls = [call for call in self.calls if call.tool == tool]
            counts = Counter(call.outcome for call in calls)
            failed = [self.since_kill(call) for call in calls if call.outcome != RESULT]
            last = f"{max(failed):.2f} s after a kill" if failed else ""
            numbers = "".join(f"{counts[one]:>24}" for one in outcomes[:3])
            lines.append(f"{tool:12}{numbers}{last:>24}")
        return "\n".join(lines)


async def kill(kills: int, store: str, at_once: int, seed: int) -> list[str]:
    """Kill processes during calls, print a table, and return what is not as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / LEDGER).touch()
        where = store or str(path / "store.db")
        async with ReplicaProcesses(where, path, program=PROGRAM) as processes:
            battery = KillBattery(processes, seed)
            started = time.monotonic()
            await battery.run(kills, at_once)
            took_s = time.monotonic() - started
        effects = (path / LEDGER).read_text().split()
    problems = battery.compare(effects)
    print(
        f"{kills} kills in {took_s:.0f} s, {len(battery.calls)} calls in {battery.sessions} sessions "
        f"and without one, {len(effects)} effects, seed {seed}"
    )
    print(battery.table())
    for problem in problems:
        print(f"FAILED {problem}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas kill")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--store", default="", help="a redis:// URL; by default an SQLite file")
    parser.add_argument("--redis", action="store_true", help="start a Redis server, and use it")
    parser.add_argument("--at-once", type=int, default=10, help="the number of clients")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    with ExitStack() as stack:
        store = options.store
        if options.redis:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = stack.enter_context(redis_server(folder, DURABLE)).url
        problems = asyncio.run(kill(options.kills, store, options.at_once, options.seed))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
