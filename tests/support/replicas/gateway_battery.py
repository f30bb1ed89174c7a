"""Three processes of one gateway on one Redis server, with a stateful server behind them, and faults.

    python tests/support/replicas/gateway_battery.py [--rounds N] [--seed N] [PHASE …]

This is `scripts/replicas gateway`. Each request goes to the next process. The server is a child process
for each caller, of a handshake revision; each of its effects is a line in a ledger, with the call that
it is of. Clients of handshake revisions have a session each, those of 2026-07-28 are one caller. The
phases, each under load:

    rounds   the rounds of held calls reach three processes
    home     the process with a child is killed (SIGKILL) during calls
    holder   the process that holds a call is killed while its client is asked
    stop     the process with a child is stopped (SIGSTOP) for longer than its lease, and continued
    redis    Redis is stopped, then killed and started again
    term     each process in turn is ended (SIGTERM) and started again

At the end the ledger is compared with what clients were told: no effect twice, none that was
acknowledged missing, every other call ended in an error that says whether it may have had an effect, no
call ran into its timeout, no client lost its state without being told, and no caller had two children at
once.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade import connect
from colonnade.errors import ChannelError, ColonnadeError, RemoteError, TimedOut
from colonnade.protocol import types as t
from gateway.rounds import Rounds, answered
from relay import RelayedProcesses
from store.redis_server import RedisServer, redis_server

HERE = Path(__file__).parent
PHASES = ("rounds", "home", "holder", "stop", "redis", "term")
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-11-25")
NEWEST = "2026-07-28"
# Far more than any call may take: one that takes longer hangs.
TIMEOUT_S = 40.0
# What every client says in a form.
FORM: dict[str, Any] = {"value": "yes"}
WAIT_S = 60.0
STOPPED_S = 8.0
AWAY_S = 8.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")

RESULT, NO_EFFECT, UNKNOWN, UNSAID, HUNG = (
    "result",
    "no effect",
    "effect unknown",
    "says nothing of the effect",
    "no end",
)
NOT_STARTED = ("not started", "nothing was started")
MAYBE = "whether it had an effect is unknown"

CONFIG = """
[servers.child]
command = {python}
args = [{program}, {ledger}]
revision = "2025-11-25"

[gateway]
store = "${{env:REDIS_URL}}"
keys = ["${{env:GATEWAY_KEY}}"]
"""


@dataclass
class Call:
    effect: str
    caller: str
    phase: str
    started: float
    ended: float = 0.0
    outcome: str = ""
    said: str = ""
    ports: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Effect:
    effect: str
    process: int
    at: float


def read_ledger(path: Path) -> list[Effect]:
    found = [line.split() for line in path.read_text().splitlines()]
    return [Effect(effect, int(process), float(at)) for effect, process, at in found]


def outcome_of(said: str) -> str:
    """What the words of an error say about the effect of a call."""
    if MAYBE in said or "effect is unknown" in said:
        return UNKNOWN
    return NO_EFFECT if any(words in said for words in NOT_STARTED) else UNSAID


def outcome_of_exception(error: Exception) -> str:
    if isinstance(error, TimeoutError | TimedOut):
        return HUNG
    if isinstance(error, ChannelError):
        if error.not_sent:
            return NO_EFFECT
        if error.effect_unknown:
            return UNKNOWN
    if isinstance(error, RemoteError) and isinstance(error.data, dict):
        data: dict[str, Any] = error.data
        if "effectUnknown" in data:
            return UNKNOWN if data["effectUnknown"] else NO_EFFECT
    return outcome_of(str(error))


def parent_of(process: int) -> int:
    """The parent of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) if stat[0] not in "ZX" else 0
    return 0


class Gateways(RelayedProcesses):
    """Three processes of a gateway behind the relay."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.ledger = folder / "ledger"
        self.ledger.touch()
        config = folder / "colonnade.toml"
        parts = {"python": sys.executable, "program": HERE / "gateway_child.py"}
        parts["ledger"] = self.ledger
        config.write_text(CONFIG.format(**{key: f'"{value}"' for key, value in parts.items()}))
        self.log_path = folder / "gateway.log"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "COLONNADE_HOME": str(folder / "home"),
            "REDIS_URL": redis.url,
            "GATEWAY_KEY": "ab" * 32,
        }
        trust = [sys.executable, "-m", "colonnade", "config", "trust", str(config), "--yes"]
        subprocess.run(trust, env=environment, check=True, capture_output=True)
        program = HERE / "gateway_process.py"
        log = self.log_path.open("ab")
        super().__init__(program, str(config), environment=environment, log=log)

    def with_child(self, process: int) -> int | None:
        """The process that has a child; None if there is none any more."""
        parent = parent_of(process)
        running = [one.pid for one in self.processes]
        return running.index(parent) if parent in running else None


class GatewayBattery:
    """Calls, faults, and the comparison."""

    def __init__(self, gateways: Gateways, redis: RedisServer, seed: int) -> None:
        self.gateways = gateways
        self.redis = redis
        self.random = random.Random(seed)
        self.phase = ""
        self.calls: list[Call] = []
        self.ended = 0
        self.ending = False
        self.problems: list[str] = []
        self.figures: list[str] = []
        self._by_effect: dict[str, Call] = {}
        gateways.relay.on_sent = self._note_sent
        # By caller: the child and the number of its last result.
        self._last: dict[str, tuple[int, int]] = {}
        self._told: set[str] = set()
        # Children that were replaced, and when.
        self.replaced: list[tuple[int, float]] = []

    def _note_sent(self, headers: dict[str, str], body: bytes, port: int) -> None:
        for effect, call in list(self._by_effect.items())[-50:]:
            if effect.encode() in body:
                call.ports.append(port)

    # ------------------------------------------------------------ load

    async def client(self, number: int, revision: str) -> None:
        """Call one tool after the other in one session, until the end."""
        url = self.gateways.relay.url + "/mcp"
        tools = ("plain", "steps", "ask")
        caller = f"{revision}/{number}"
        options: dict[str, Any] = {"on_elicit": lambda _: FORM, "timeout_s": TIMEOUT_S}
        while not self.ending:
            try:
                async with connect(url, revision=revision, **options) as client:
                    self._last.pop(caller, None)
                    while not self.ending:
                        tool = tools[len(self.calls) % len(tools)]
                        await self.call(client, caller, tool)
            except ColonnadeError as error:  # the session, not a call
                self.figures.append(f"{caller} connected again: {type(error).__name__}: {error}")

    async def call(self, client: Any, caller: str, tool: str) -> Call:
        effect = f"{caller}/{tool}/{len(self.calls)}"
        call = Call(effect, caller, self.phase, time.monotonic())
        self.calls.append(call)
        self._by_effect[effect] = call
        try:
            async with asyncio.timeout(WAIT_S):
                result = await client.call_tool(f"child__{tool}", {"effect": effect})
            call.said = result.text
            if result.is_error:
                call.outcome = outcome_of(result.text)
            else:
                call.outcome = RESULT
                self._check_state(call)
        except (ColonnadeError, TimeoutError) as error:
            call.outcome = outcome_of_exception(error)
            call.said = f"{type(error).__name__}: {str(error)[:300]}"
        if call.outcome != RESULT:
            self._told.add(caller)
        call.ended = time.monotonic()
        self.ended += 1
        return call

    def _check_state(self, call: Call) -> None:
        """A caller with a session has one child, unless it was told that there was an error."""
        if call.said == "declined":
            return
        _, process, number = call.said.split()
        if call.caller.startswith(NEWEST):
            return
        now, last = (int(process), int(number)), self._last.get(call.caller)
        self._last[call.caller] = now
        is_new = last is not None and (now[0] != last[0] or now[1] <= last[1])
        if is_new and call.caller not in self._told:
            self.problems.append(f"{call.caller}: another child, and no error: {last} {now}")
        self._told.discard(call.caller)

    async def more_calls(self, count: int) -> None:
        enough = self.ended + count
        while self.ended < enough:
            await asyncio.sleep(0.01)

    # ------------------------------------------------------------ phases

    async def run(self, phases: Sequence[str], rounds: int) -> None:
        revisions = [*HANDSHAKE, NEWEST, NEWEST]
        self.phase = "start"
        clients = [
            asyncio.create_task(self.client(number, revision))
            for number, revision in enumerate(revisions)
        ]
        await self.more_calls(20)
        for phase in phases:
            self.phase = phase
            began, calls = time.monotonic(), len(self.calls)
            print(f"{phase} …", file=sys.stderr, flush=True)
            await getattr(self, f"phase_{phase}")(rounds)
            await self.more_calls(20)
            counts = Counter(call.outcome for call in self.calls[calls:] if call.outcome)
            shown = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
            self.figures.append(f"{phase}: {time.monotonic() - began:.0f} s; {shown}")
        self.ending = True
        for ended in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(ended, BaseException):
                self.problems.append(f"a client ended with {type(ended).__name__}: {ended}")

    async def phase_rounds(self, rounds: int) -> None:
        wanted = 5 * rounds
        while True:
            await self.more_calls(10)
            found = [
                call
                for call in self.calls
                if call.outcome == RESULT
                and call.caller.startswith(NEWEST)
                and "/ask/" in call.effect
                and len(set(call.ports)) == 3
            ]
            if len(found) >= wanted:
                self.figures.append(f"{len(found)} held calls had their rounds at three processes")
                return

    def home(self) -> tuple[int, int]:
        """A process that has a child, and the child of the latest effect there."""
        for effect in reversed(read_ledger(self.gateways.ledger)):
            index = self.gateways.with_child(effect.process)
            if index is not None:
                return index, effect.process
        raise AssertionError("there is no child")

    async def phase_home(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.more_calls(self.random.randint(5, 30))
            index, _ = self.home()
            await self.gateways.kill_and_start(index)
        self.figures.append(f"{rounds} times SIGKILL of a home")

    async def phase_holder(self, rounds: int) -> None:
        url = self.gateways.relay.url + "/mcp"
        interrupted = 0
        for number in range(rounds):
            async with connect(url, revision=NEWEST, on_elicit=lambda _: {}) as client:
                sender = Rounds(client)
                call, first = await self._begin_held(sender, number)
                index = self.gateways.relay.ports.index(call.ports[-1])
                await self.gateways.kill_and_start(index)
                given = answered(first, lambda _: "yes")
                await self._send(sender, call, first.request_state, given)
                interrupted += call.outcome == UNKNOWN
        self.figures.append(f"{rounds} holders killed: {interrupted} calls said so")
        if interrupted < rounds:
            self.problems.append(f"{rounds - interrupted} held calls did not say that they ended")

    async def _begin_held(self, sender: Rounds, number: int) -> tuple[Call, t.InputRequiredResult]:
        """A call that waits for input; begun again if the state of the server is gone."""
        while True:
            call = Call(f"holder/{number}/{time.time_ns()}", "holder", self.phase, 0.0)
            self._by_effect[call.effect] = call
            self.calls.append(call)
            first = await self._send(sender, call)
            if isinstance(first, t.InputRequiredResult):
                return call, first

    async def _send(
        self, sender: Rounds, call: Call, state: str | None = None, given: Any = None
    ) -> Any:
        try:
            async with asyncio.timeout(WAIT_S):
                result = await sender.send(
                    "ask", {"effect": call.effect}, state, given, server="child"
                )
        except (ColonnadeError, TimeoutError) as error:
            call.outcome, call.said = outcome_of_exception(error), str(error)[:300]
            return None
        if isinstance(result, t.InputRequiredResult):
            return result
        call.said = result.content[0].text
        call.outcome = outcome_of(call.said) if result.is_error else RESULT
        return result

    async def phase_stop(self, rounds: int) -> None:
        ended = 0
        for _ in range(max(1, rounds // 2)):
            await self.more_calls(10)
            index, _ = self.home()
            process = self.gateways.processes[index]
            children = {
                one.process
                for one in read_ledger(self.gateways.ledger)
                if self.gateways.with_child(one.process) == index
            }
            port = self.gateways.relay.ports[index]
            process.send_signal(signal.SIGSTOP)
            # As a balancer that checks the health of processes; what is there already waits.
            self.gateways.relay.not_ready.add(port)
            late = asyncio.create_task(self._late(f"http://127.0.0.1:{port}/mcp"))
            await asyncio.sleep(STOPPED_S)
            process.send_signal(signal.SIGCONT)
            continued = time.time()
            self.gateways.relay.not_ready.discard(port)
            await late
            await self.more_calls(20)
            # A child whose caller has another one by now has ended, or does soon.
            current = {last[0] for last in self._last.values()}
            for child in children - current:
                for _ in range(200):
                    if not parent_of(child):
                        break
                    await asyncio.sleep(0.1)
                else:
                    if not self._is_used(child, continued):
                        self.problems.append(f"the child {child} of a stopped home goes on")
                ended += not parent_of(child)
        self.figures.append(f"SIGSTOP for {STOPPED_S:g} s: {ended} replaced children have ended")

    async def _late(self, url: str) -> None:
        """A call that the stopped process gets, and reads when it is continued."""
        with contextlib.suppress(ColonnadeError):  # the session; calls are counted
            # Without authentication the clients of 2026-07-28 are one caller: it may get their forms.
            async with connect(url, revision=NEWEST, on_elicit=lambda _: FORM) as client:
                await self.call(client, f"{NEWEST}/late", "plain")

    def _is_used(self, child: int, since: float) -> bool:
        return any(
            one.process == child and one.at > since for one in read_ledger(self.gateways.ledger)
        )

    async def phase_redis(self, rounds: int) -> None:
        os.kill(self.redis.pid, signal.SIGSTOP)
        await asyncio.sleep(AWAY_S)
        os.kill(self.redis.pid, signal.SIGCONT)
        await self.more_calls(20)
        self.redis.kill()
        await asyncio.sleep(AWAY_S)
        self.redis.start()
        self.figures.append(f"Redis away for {AWAY_S:g} s by SIGSTOP, and as long by SIGKILL")

    async def phase_term(self, rounds: int) -> None:
        for index in range(self.gateways.count):
            await self.more_calls(15)
            await self.gateways.restart(index)
        self.figures.append(f"{self.gateways.count} times SIGTERM")

    # ------------------------------------------------------------ the comparison

    def compare(self, ledger: list[Effect]) -> list[str]:
        problems = list(self.problems)
        effects = Counter(one.effect for one in ledger)
        problems += [f"{times} times: {effect}" for effect, times in effects.items() if times > 1]
        for call in self.calls:
            there = call.effect in effects
            if call.outcome == RESULT and not there and call.said != "declined":
                problems.append(f"a result, and no effect: {call.effect}: {call.said}")
            elif call.outcome == NO_EFFECT and there:
                problems.append(f"an effect, and an error that says no: {call.effect}: {call.said}")
            elif call.outcome in (UNSAID, HUNG, ""):
                where = f"{call.phase}: {call.outcome}: {call.effect} at {call.ports}"
                problems.append(f"{where}: there {there}: {call.said}")
        problems += split_homes(ledger)
        known = {call.effect for call in self.calls}
        problems += [f"an effect of no call: {effect}" for effect in effects.keys() - known]
        return problems


def split_homes(ledger: list[Effect]) -> list[str]:
    """Children of a caller that had an effect after another one of the same caller: two homes. All
    clients of 2026-07-28 are one caller."""
    problems: list[str] = []
    current: dict[str, int] = {}
    ended: set[tuple[str, int]] = set()
    for one in ledger:
        revision, number, *_ = one.effect.split("/")
        caller = NEWEST if revision in (NEWEST, "holder") else f"{revision}/{number}"
        last = current.get(caller)
        if last is not None and last != one.process:
            ended.add((caller, last))
        if (caller, one.process) in ended:
            problems.append(f"two homes of {caller}: {one.effect} in {one.process}")
        current[caller] = one.process
    return problems


async def run(phases: Sequence[str], rounds: int, seed: int) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with redis_server(folder / "redis", DURABLE) as redis:
            began = time.monotonic()
            async with Gateways(folder, redis) as gateways:
                battery = GatewayBattery(gateways, redis, seed)
                await battery.run(phases, rounds)
            took_s = time.monotonic() - began
        ledger = read_ledger(gateways.ledger)
        problems = battery.compare(ledger)
        if problems:
            sys.stderr.write(gateways.log_path.read_text()[-6000:])
    counts = Counter(call.outcome for call in battery.calls)
    print(f"{took_s:.0f} s, {len(battery.calls)} calls, {len(ledger)} effects, seed {seed}")
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()))
    children = {one.process for one in ledger}
    print(f"{len(children)} children had effects")
    slowest = max((call.ended - call.started for call in battery.calls if call.ended), default=0.0)
    print(f"the longest call took {slowest:.1f} s")
    for line in battery.figures:
        print(line)
    words = Counter(
        (call.phase, call.said) for call in battery.calls if call.outcome in (NO_EFFECT, UNKNOWN)
    )
    for (phase, said), number in words.most_common(40):
        print(f"{number:>6}  {phase}: {said[:150]}")
    for problem in problems[:30]:
        print(f"VIOLATION {problem[:300]}")
    print(f"gateway: {len(problems)} violations")
    return 1 if problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas gateway")
    parser.add_argument("phases", nargs="*", choices=[[], *PHASES], metavar="PHASE")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    return asyncio.run(run(options.phases or PHASES, options.rounds, options.seed))


if __name__ == "__main__":
    sys.exit(main())
