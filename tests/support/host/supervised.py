"""Servers that are kept for tests: entries for odd servers, calls of callers, what is left behind.

    async with supervised("legacy") as server:
        assert await server.call("who", caller="alice") != await server.call("who", caller="bob")

Rules: whatever a test does, no process that it started is left when `kept` ends.
"""

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Raw

from colonnade.errors import Fault
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.host.servers.supervisor import ServerSupervisor
from colonnade.ports import Session
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields
from colonnade.protocol.input_requests import InputRequest, InputRequestKind
from colonnade.protocol.jsonrpc import NOTHING, Request, SplitParams, encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import EVERY, NEWEST, InputRequests

SCRIPT = Path(__file__).with_name("odd_servers.py")
ASKS = frozenset({InputRequestKind.ELICIT, InputRequestKind.SAMPLE})
# The newest of those that keep a session: what input_kinds by request.
HANDSHAKE = EVERY.handshakes[0].date
assert EVERY.handshakes[0].input_requests is InputRequests.AS_REQUEST

OnAsk = Callable[[InputRequest], Any | Awaitable[Any]]


class Call(NonHttpRequestFields):
    """One call, and the way back to whoever made it: what they are asked and told is kept."""

    def __init__(self, method: str, params: t.RequestParams, caller: str, on_ask: OnAsk) -> None:
        able = t.ClientCapabilities(
            elicitation=t.ElicitationCapability(form={}, url={}), sampling=t.SamplingCapability()
        )
        raw = Raw(encode(params))
        self.exchange = Exchange(
            Request(1, method, raw, b"1"),
            SplitParams(meta=NOTHING),
            NEWEST.methods[method],
            Peer(NEWEST, able, None, "debug"),
            Encoder(NEWEST),
            caller,
        )
        self.fault: Fault | None = None
        self.asked: list[str] = []
        self.told: list[Any] = []
        self._on_ask = on_ask

    @property
    def session(self) -> Session | None:
        return None

    def post(self, frame: bytes) -> bool:
        self.told.append(json.loads(frame)["params"])
        return True

    async def send(self, frame: bytes) -> None:
        self.post(frame)

    async def ask(self, input_request: InputRequest) -> Raw:
        made = self._on_ask(input_request)
        if isinstance(input_request.params, t.ElicitRequestParams):
            self.asked.append(input_request.params.message)
        said = await made if isinstance(made, Awaitable) else made
        if isinstance(said, t.ProtocolType):
            return Raw(encode(said))
        return Raw(encode(t.ElicitResult(action="accept", content=said)))

    async def hang_up(self) -> None: ...


def no_input_expected(question: InputRequest) -> Any:
    raise AssertionError(f"asked {question}")


class SupervisedServer:
    """A server, and calls of its tools."""

    def __init__(self, supervisor: ServerSupervisor) -> None:
        self.supervisor = supervisor
        self.calls: list[Call] = []

    async def call(
        self,
        tool: str,
        caller: str = "",
        on_ask: OnAsk = no_input_expected,
        timeout_s: float | None = None,
        **arguments: Any,
    ) -> str:
        """The text of a tool's answer."""
        params = t.CallToolRequestParams(name=tool, arguments=Raw(encode(arguments)))
        turn = Call("tools/call", params, caller, on_ask)
        self.calls.append(turn)
        result = await self.supervisor.request(turn, "tools/call", params, timeout_s=timeout_s)
        assert isinstance(result, t.CallToolResult)
        return "".join(one.text for one in result.content if isinstance(one, t.TextContent))

    @property
    def pids(self) -> list[int]:
        return [
            session.child.pid for session in self.supervisor.sessions if session.child is not None
        ]

    @property
    def in_flight(self) -> int:
        return self.supervisor.status.in_flight


def command(kind: str = "legacy") -> list[str]:
    return [sys.executable, "-I", "-S", str(SCRIPT), kind]


def entry(target: Any, key: str = "odd", **settings: Any) -> ServerEntry:
    """An entry without a file. A function is what looks it up."""

    async def resolve() -> Any:
        if not inspect.iscoroutinefunction(target):
            return target
        looked_up: Any = await target()
        return looked_up

    return ServerEntry(key=key, resolve=resolve, fingerprint=key, settings=Settings(**settings))


@asynccontextmanager
async def supervised(
    kind: str = "legacy", *, target: Any = None, options: dict[str, Any] | None = None, **more: Any
) -> AsyncGenerator[SupervisedServer]:
    """A supervised server; `more` are its settings, `options` those of the supervisor."""
    if kind != "modern":
        more.setdefault("revision", HANDSHAKE)  # which saves a question, and the wait for it
    made = entry(command(kind) if target is None else target, **more)
    chosen: dict[str, Any] = {
        "input_kinds": ASKS,
        "random_fraction": lambda: 0.0,
        **(options or {}),
    }
    supervisor = ServerSupervisor(made, **chosen)
    try:
        yield SupervisedServer(supervisor)
    finally:
        await supervisor.close()
        assert not supervisor.sessions


def children() -> set[int]:
    """Every process that we have started and that is not waited for yet, zombies included."""
    own = os.getpid()
    found: set[int] = set()
    for task in Path(f"/proc/{own}/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has ended meanwhile
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def turns_of_loop(times: int = 3) -> None:
    for _ in range(times):
        await asyncio.sleep(0)
