"""Clients that call replicas during a fault, and the comparison of their log with the ledger.

Rules: a call has an id of its own and is never repeated with it, except what is single-use, which is
sent to all replicas at once. Every wait ends.
"""

import asyncio
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from colonnade import connect
from colonnade.auth.client.steps import FlowContext
from colonnade.auth.client.tokens import dpop_proof
from colonnade.auth.jose import generate_key
from colonnade.errors import ColonnadeError
from http_client import Caller
from replica_faults.fault_server import PROOF_TOKEN, PROOF_URL
from replica_faults.processes import FaultProcesses
from server.tasks import DECLARED, TERMINAL

REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
CALL_TIMEOUT_S = 4.0
# A request of the raw client: above the 5 s after which a request at another replica fails.
RAW_TIMEOUT_S = 8.0
TASK_TIMEOUT_S = 60.0
STEPS = 20
# So that each replica runs some tasks at any time.
TASK_CLIENTS = 5
HOMES = 6
META = {"io.modelcontextprotocol/clientCapabilities": DECLARED}
NETWORK_ERRORS = (OSError, EOFError, TimeoutError, IndexError, ValueError)

SUM: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}

JSON = dict[str, Any]


class Effect(NamedTuple):
    """A line of the ledger."""

    kind: str
    id: str
    detail: str
    process: int
    at: float


def read_ledger(path: Path) -> list[Effect]:
    """All effects, in the order in which they happened."""
    found: list[Effect] = []
    for line in path.read_text().splitlines():
        kind, id, detail, process, at = line.split()
        found.append(Effect(kind, id, detail, int(process), float(at)))
    return found


@dataclass
class LoadLog:
    """What clients have seen."""

    # Calls with a result, and those whose error says that they had no effect: by kind and id.
    succeeded: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    had_no_effect: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    counts: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    # The acknowledged tasks: name to id.
    tasks: dict[str, str] = field(default_factory=dict[str, str])
    # When calls succeeded, and the longest time that a failed call took.
    success_times: list[float] = field(default_factory=list[float])
    longest_failure_s: float = 0.0

    def ok(self, kind: str, id: str) -> None:
        self.succeeded[kind, id] = time.time()
        self.success_times.append(time.monotonic())
        self.counts[kind] += 1

    def failed(self, kind: str, id: str, words: str, took_s: float, *, had_no_effect: bool) -> None:
        self.errors[f"{kind}: {words}"] += 1
        self.longest_failure_s = max(self.longest_failure_s, took_s)
        if had_no_effect:
            self.had_no_effect.add((kind, id))

    def longest_gap_s(self, start: float, end: float) -> float:
        """The longest time in which no call of any client succeeded."""
        times = [start, *(at for at in self.success_times if start <= at <= end), end]
        return max(later - earlier for earlier, later in pairwise(times))


class FaultLoad:
    """Clients of all kinds that call until the context is left."""

    def __init__(self, processes: FaultProcesses, at_once: int = 1) -> None:
        self._processes = processes
        self._at_once = at_once
        self.log = LoadLog()
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._key = generate_key()
        self._context = FlowContext(time.time, lambda: secrets.token_urlsafe(24))

    async def __aenter__(self) -> "FaultLoad":
        works: list[Callable[[], Any]] = [
            *(lambda revision=revision: self._session(revision) for revision in REVISIONS),
            *(self._visits, self._single_uses),
            *[self._task_calls] * TASK_CLIENTS,
        ]
        self._tasks = [asyncio.create_task(work()) for work in works for _ in range(self._at_once)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending.set()
        done = (await asyncio.wait(self._tasks, timeout=TASK_TIMEOUT_S))[0]
        for task in self._tasks:
            if task not in done:
                task.cancel()
        await asyncio.wait(self._tasks)
        for task in done:
            task.result()
        assert len(done) == len(self._tasks), "a client did not come to an end"

    async def calls(self, number: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more calls have succeeded."""
        enough = len(self.log.success_times) + number
        async with asyncio.timeout(timeout_s):
            while len(self.log.success_times) < enough:
                await asyncio.sleep(0.01)

    async def _pause(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._ending.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------ sessions

    async def _session(self, revision: str) -> None:
        """Calls in one session after another, through the relay."""
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                async with connect(
                    self._processes.relay.url + "/mcp",
                    revision=revision,
                    timeout_s=CALL_TIMEOUT_S,
                    on_elicit=lambda _: {"value": "blue"},
                ) as client:
                    await self._calls(client, revision)
            except ColonnadeError as error:
                took_s = time.monotonic() - began
                self.log.failed("session", "", _words(error), took_s, had_no_effect=False)
                await self._pause(0.2)

    async def _calls(self, client: Any, revision: str) -> None:
        tools = ["effect", "effect", "effect", "slow"]
        if revision != "2025-03-26":
            tools.append("paint")
        failures = 0
        for number in range(60):
            if self._ending.is_set() or failures >= 3:
                return
            tool, id = tools[number % len(tools)], secrets.token_hex(8)
            began = time.monotonic()
            try:
                result = await client.call_tool(tool, {"id": id})
            except ColonnadeError as error:
                took_s = time.monotonic() - began
                none = bool(getattr(error, "not_sent", False)) or error.status == 503
                self.log.failed(tool, id, _words(error), took_s, had_no_effect=none)
                failures += 1
                await self._pause(0.05)
            else:
                failures = 0
                if result.is_error:
                    took_s = time.monotonic() - began
                    self.log.failed(tool, id, result.text[:80], took_s, had_no_effect=False)
                else:
                    assert result.text == id, (result.text, id)
                    self.log.ok(tool, id)

    # ------------------------------------------------------------ raw requests

    async def ask(self, port: int, method: str, params: JSON) -> tuple[int, JSON]:
        """The status and the message of a response of 2026-07-28. Raises `NETWORK_ERRORS`."""
        name = params.get("taskId") or params.get("name")
        async with asyncio.timeout(RAW_TIMEOUT_S), Caller(port) as caller:
            response = await caller.modern(method, params, meta=META, mcp_name=name)
            return response.status, response.json

    def _relay_port(self) -> int:
        return int(self._processes.relay.url.rpartition(":")[2])

    async def _call(self, port: int, kind: str, id: str, params: JSON) -> JSON | None:
        """The result of a call, noted in the log; None if there was none."""
        began = time.monotonic()
        try:
            status, message = await self.ask(port, "tools/call", params)
        except NETWORK_ERRORS as error:
            took_s = time.monotonic() - began
            self.log.failed(kind, id, type(error).__name__, took_s, had_no_effect=False)
            return None
        took_s = time.monotonic() - began
        error = message.get("error")
        if error is not None:
            none = status == 503 or (error.get("data") or {}).get("effectUnknown") is False
            self.log.failed(
                kind, id, f"{status} {error['message'][:80]}", took_s, had_no_effect=none
            )
            return None
        return message["result"]

    async def _visits(self) -> None:
        """Calls for homes, which are at one replica each."""
        number = 0
        while not self._ending.is_set():
            number += 1
            id, home = secrets.token_hex(8), f"h{number % HOMES}"
            params = {"name": "visit", "arguments": {"home": home, "id": id}}
            result = await self._call(self._relay_port(), "visit", id, params)
            if result is None or result.get("isError"):
                await self._pause(0.05)
            else:
                self.log.ok("visit", id)
            await self._pause(0.01)

    async def _single_uses(self) -> None:
        """What may be used once, at all replicas at the same time."""
        while not self._ending.is_set():
            code = secrets.token_hex(8)
            await self._use("redeem", code, {"code": code}, {})
            text = dpop_proof(self._key, self._context, "POST", PROOF_URL, token=PROOF_TOKEN)
            await self._use("prove", text, {"proof": text}, {})
            id = secrets.token_hex(8)
            params = {"name": "confirm", "arguments": {"id": id}}
            asked = await self._call(self._relay_port(), "confirm begin", id, params)
            if asked is not None and asked.get("resultType") == "input_required":
                answer = {"action": "accept", "content": {"value": "yes"}}
                answers = dict.fromkeys(asked["inputRequests"], answer)
                state = {"inputResponses": answers, "requestState": asked["requestState"]}
                await self._use("confirm", id, {"id": id}, state)
            await self._pause(0.01)

    async def _use(self, kind: str, id: str, arguments: JSON, more: JSON) -> None:
        params = {"name": kind, "arguments": arguments, **more}
        found = await asyncio.gather(
            *(self._call(port, kind, id, params) for port in self._processes.ports)
        )
        granted = [
            result["content"][0]["text"]
            for result in found
            if result is not None and not result.get("isError")
        ]
        granted = [text for text in granted if text != "refused"]
        if len(granted) > 1:
            self.log.errors[f"VIOLATION: {kind} was used {len(granted)} times"] += 1
        for text in granted:
            self.log.ok(kind, text)

    # ------------------------------------------------------------ afterwards

    async def is_well(self) -> bool:
        """Whether every process opens sessions, serves those of the others, and does all that needs
        the store."""
        ports = self._processes.ports
        try:
            async with asyncio.timeout(RAW_TIMEOUT_S):
                for number, port in enumerate(ports):
                    if not await self._is_well(port, ports[(number + 1) % len(ports)]):
                        return False
        except (*NETWORK_ERRORS, ColonnadeError, AssertionError):
            return False
        return True

    async def _is_well(self, port: int, other: int) -> bool:
        async with Caller(port) as caller:
            await caller.initialize("2025-11-25")
            if caller.session is None:
                return False
            caller.port = other
            if (await caller.ask("tools/call", SUM)).status != 200:
                return False
            if (await caller.request("DELETE")).status != 200:
                return False
        code = secrets.token_hex(8)
        for tool, arguments in (("redeem", {"code": code}), ("visit", {"home": "w", "id": code})):
            _, message = await self.ask(port, "tools/call", {"name": tool, "arguments": arguments})
            if "result" not in message or message["result"].get("isError"):
                return False
        return True

    # ------------------------------------------------------------ tasks

    async def _task_calls(self) -> None:
        while not self._ending.is_set():
            name = secrets.token_hex(8)
            params = {"name": "steps", "arguments": {"name": name, "count": STEPS}}
            result = await self._call(self._relay_port(), "task", name, params)
            if result is not None and result.get("resultType") == "task":
                self.log.tasks[name] = result["taskId"]
                self.log.ok("task", name)
            await self._pause(0.2)

    async def finish_tasks(self) -> dict[str, JSON]:
        """Wait until all acknowledged tasks have ended; their states by name."""
        ended: dict[str, JSON] = {}
        until = time.monotonic() + TASK_TIMEOUT_S
        for number, (name, id) in enumerate(sorted(self.log.tasks.items())):
            port = self._processes.ports[number % len(self._processes.ports)]
            while name not in ended:
                try:
                    _, message = await self.ask(port, "tasks/get", {"taskId": id})
                except NETWORK_ERRORS as error:
                    message: JSON = {"error": {"message": repr(error)}}
                state = message.get("result", {})
                if state.get("status") in TERMINAL:
                    ended[name] = state
                elif time.monotonic() > until or message.get("error", {}).get("code") == -32602:
                    ended[name] = {"status": "not ended", "last": message, "id": id}
                else:
                    await asyncio.sleep(0.05)
        return ended


def _words(error: ColonnadeError) -> str:
    status = f"{error.status} " if error.status else ""
    text = str(error).partition(": ")[2] or str(error)
    return f"{type(error).__name__} {status}{text[:60]}"


# ---------------------------------------------------------------- comparison


def check_calls(log: LoadLog, effects: list[Effect]) -> list[str]:
    """Violations: an effect twice, one that was acknowledged and is not there, one whose error says
    that there is none, and two homes at a time."""
    problems = [words for words in log.errors if words.startswith("VIOLATION")]
    by_id: Counter[tuple[str, str]] = Counter((one.kind, one.id) for one in effects)
    for (kind, id), number in by_id.items():
        if kind != "step" and number > 1:
            problems.append(f"{kind} {id} had {number} effects")
    for kind, id in log.succeeded:
        if kind != "task" and by_id[kind, id] != 1:
            problems.append(f"{kind} {id} was acknowledged, and has {by_id[kind, id]} effects")
    for kind, id in log.had_no_effect - log.succeeded.keys():
        # One replica refused what another one granted.
        if by_id[kind, id] and kind not in ("redeem", "prove", "confirm"):
            problems.append(f"{kind} {id} had an effect, and its error says that it had none")
    terms: dict[str, list[str]] = defaultdict(list)
    for one in effects:
        if one.kind == "visit":
            home, _, term = one.detail.partition("/")
            if not terms[home] or terms[home][-1] != term:
                terms[home].append(term)
    for home, found in terms.items():
        if len(set(found)) != len(found):
            problems.append(f"{home} had two homes at a time: {found}")
    return problems


def check_tasks(
    ended: dict[str, JSON],
    effects: list[Effect],
    faults: list[tuple[float, float]],
    late: Callable[[Effect], bool] = lambda effect: False,
) -> tuple[list[str], int]:
    """Violations, and the number of effects that happened and were not recorded before a fault.

    A step happens once, unless the worker could not record the effect: it was stopped, or the store
    did not respond. That can be during one of `faults`, which are times, and for one step of a task
    each time. `late` says whether an effect is of a worker whose lease had lapsed.
    """
    problems: list[str] = []
    unrecorded = 0
    steps: dict[str, list[Effect]] = defaultdict(list)
    for one in effects:
        if one.kind == "step":
            steps[one.id].append(one)
            if late(one):
                problems.append(f"step {one.id} was done by a worker without a lease: {one}")
    for name, state in ended.items():
        if state["status"] != "completed" or state["result"].get("isError"):
            problems.append(f"task {name}: {state}")
            continue
        during: Counter[tuple[float, float]] = Counter()
        for number in range(STEPS):
            done = steps[f"{name}/{number}"]
            if not done:
                problems.append(f"step {name}/{number} was not done")
            for one in done[:-1]:  # the last one was recorded
                unrecorded += 1
                fault = next((two for two in reversed(faults) if two[0] <= one.at <= two[1]), None)
                if fault is None:
                    problems.append(f"step {name}/{number} was repeated without a fault: {done}")
                else:
                    during[fault] += 1
        if during and max(during.values()) > 1:
            problems.append(f"steps of the task {name} were repeated: {during}")
    return problems, unrecorded
