"""Our client at servers of other implementations whose tools run as tasks.

Rules: one connection for all checks, and a second one for the handle of a task. Every wait ends. A
check that fails does not end the run.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from colonnade import connect
from colonnade.client.client import Client
from colonnade.errors import RemoteError, RemoteProtocolError, TaskEnded
from colonnade.protocol import types as t
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from interop.peers import counterpart
from interop.tasks.counterparts import BOTH, HERE
from interop.third_party_servers import ThirdPartyServer, node, reached

CHECK_S = 30.0


@dataclass(frozen=True)
class TaskServer(ThirdPartyServer):
    """A server of another implementation whose tools run as tasks, and what it cannot do."""

    cannot: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    note: str = ""

    @property
    def eras(self) -> tuple[Revision, ...]:
        return self.speaks

    def absent(self, check: str, transport: str) -> str | None:
        """Why a check is left out, if it is."""
        if check == "resumed" and transport == "stdio":
            return "a server on stdio ends with its client"
        why = self.cannot.get(check)
        return why and f"{self}: {why}"

    def command(self, transport: str, folder: Path) -> list[str]:
        if self.program is None:
            return [*counterpart(self.package, self.version), "tasks-server", transport]
        script = str(HERE / self.program)
        if self.program.endswith(".mjs"):
            return [node(), script, str(self.home), transport]
        return [str(self.home / "bin" / "python"), script, transport]


MCP_1_SERVER = TaskServer(
    "Python mcp",
    "mcp",
    "1.30.0",
    (NOVEMBER_2025,),
    BOTH,
    "server_mcp_1.py",
    cannot={"resumed": "it shows a task to the session that created it, and to no other"},
    note="it leaves a ttl of null out, and the results of cancelled and failed tasks (D70, D72)",
)
TYPESCRIPT_1_SERVER = TaskServer(
    "TypeScript sdk",
    "@modelcontextprotocol/sdk",
    "1.32.2",
    (NOVEMBER_2025,),
    BOTH,
    "server_typescript_1.mjs",
    cannot={"resumed": "it shows a task to the session that created it, and to no other"},
)
FASTMCP_4_SERVER = TaskServer(
    "FastMCP tasks",
    "fastmcp-tasks",
    "4.1.2",
    (JULY_2026,),
    BOTH,
    "server_fastmcp_4.py",
    note="a tool asks by its result, and is run again: ctx.elicit is refused in a task",
)
RUST_SERVER = TaskServer("Rust rmcp", "interop-rust", "3.8.0", (JULY_2026,), BOTH)
SERVERS = (MCP_1_SERVER, TYPESCRIPT_1_SERVER, FASTMCP_4_SERVER, RUST_SERVER)


@dataclass
class TaskVisit:
    """Our client at one server."""

    target: str | list[str]
    era: Revision
    asked: list[str] = field(default_factory=list[str])
    client: Client = field(init=False)

    def elicited(self, request: t.ElicitRequestParams) -> int:
        self.asked.append(request.message)
        return 3

    async def created(self) -> None:
        task = await self.client.start_task("book", {"topic": "tea"})
        assert task.handle is not None, "it made no task"
        assert task.status == "working"

    async def result(self) -> None:
        task = await self.client.start_task("book", {"topic": "tea"})
        states = [state.status async for state in task]
        result = await task.result()
        assert states[-1] == "completed", states
        assert (result.text, result.is_error) == ("a book about tea", False)

    async def call(self) -> None:
        result = await self.client.call_tool("order", {"title": "Tea"})
        assert (result.text, result.is_error) == ("3 copies of Tea", False)

    async def input(self) -> None:
        self.asked.clear()
        task = await self.client.start_task("order", {"title": "Tea"})
        states = [state.status async for state in task]
        assert (await task.result()).text == "3 copies of Tea"
        if self.era is JULY_2026:  # else the request arrives on `tasks/result`, between two polls
            assert "input_required" in states, states
        assert self.asked == ["How many copies of Tea?"], "each input request is shown once"

    async def cancelled(self) -> None:
        task = await self.client.start_task("forever")
        await task.cancel()
        with pytest.raises(TaskEnded) as ended:
            await task.result()
        assert ended.value.reason == "cancelled"

    async def error(self) -> None:
        result = await (await self.client.start_task("misprint")).result()
        assert (result.text, result.is_error) == ("out of paper", True)

    async def failed(self) -> None:
        task = await self.client.start_task("fire")
        try:
            said = (await task.result()).text
        except (RemoteError, RemoteProtocolError) as error:  # `mcp` 1.x has no result (D72)
            said = str(error)
        assert "the press burns" in said
        assert task.status == "failed"

    async def resumed(self) -> None:
        task = await self.client.start_task("book", {"topic": "tea"})
        assert task.handle is not None
        async with connect(self.target, revision=self.era.date) as other:
            assert (await other.resume_task(task.handle).result()).text == "a book about tea"


SERVER_CHECKS: Mapping[str, Callable[[TaskVisit], Awaitable[None]]] = {
    "created": TaskVisit.created,
    "result": TaskVisit.result,
    "call": TaskVisit.call,
    "input": TaskVisit.input,
    "cancelled": TaskVisit.cancelled,
    "error": TaskVisit.error,
    "failed": TaskVisit.failed,
    "resumed": TaskVisit.resumed,
}


@cache
def run_server(server: TaskServer, era: Revision, transport: str) -> dict[str, str]:
    """Make every check once; why each that failed did. With "", none could be made."""
    return asyncio.run(_visited(server, era, transport))


async def _visited(server: TaskServer, era: Revision, transport: str) -> dict[str, str]:
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            with reached(server, transport, Path(folder)) as target:
                visit = TaskVisit(target, era)
                async with connect(
                    target, revision=era.date, on_elicit=visit.elicited, timeout_s=CHECK_S
                ) as client:
                    visit.client = client
                    for name, check in SERVER_CHECKS.items():
                        if server.absent(name, transport):
                            continue
                        try:
                            await asyncio.wait_for(check(visit), CHECK_S)
                        except Exception as error:  # the others are still made
                            failures[name] = f"{type(error).__name__}: {error}"
        except Exception as error:  # it was not reached, or not left
            failures.setdefault("", f"{type(error).__name__}: {error}")
    return failures
