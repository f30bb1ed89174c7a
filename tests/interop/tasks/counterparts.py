"""Other implementations of tasks: as clients of our server, and as servers for our client.

Rules: each lives in an environment of its own that `scripts/_peers` makes; nothing of it is
imported here. What an implementation cannot do is left out with the reason, and printed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from interop.peers import DriverRun, drive, installed, missing_tool, recorded, served
from interop.third_party_servers import node

HERE = Path(__file__).resolve().parent
OUR_SERVER = [sys.executable, "-W", "error", str(HERE / "our_server.py")]
BOTH = ("stdio", "http")

# ---------------------------------------------------------------- what a client has to see

Seen = dict[str, Any]
Check = Callable[[Seen, Revision], None]


def _created(seen: Seen, era: Revision) -> None:
    ttl, poll = ("ttl", "pollInterval") if era is NOVEMBER_2025 else ("ttlMs", "pollIntervalMs")
    assert seen["status"] == "working"
    assert seen["taskId"]
    assert seen["createdAt"] <= seen["lastUpdatedAt"]
    assert seen[poll] == 1000
    # No ttl is no limit; clients that request one get it.
    assert seen.get(ttl) in (None, 60_000)


def _result(seen: Seen, era: Revision) -> None:
    assert seen["statuses"][-1] == "completed"
    assert set(seen["statuses"][:-1]) <= {"working"}
    assert (seen["text"], seen["isError"]) == ("a book about tea", False)
    _related(seen, era)


def _input(seen: Seen, era: Revision) -> None:
    assert seen["asked"] == ["How many copies of Tea?"], "each input request is shown once"
    assert (seen["text"], seen["isError"]) == ("3 copies of Tea", False)
    assert seen["statuses"][-1] == "completed"
    assert "input_required" in seen["statuses"]
    _related(seen, era)


def _call(seen: Seen, era: Revision) -> None:
    assert seen["asked"] == ["How many copies of Tea?"]
    assert (seen["text"], seen["isError"]) == ("3 copies of Tea", False)


def _cancelled(seen: Seen, era: Revision) -> None:
    assert seen["statuses"][-1] == "cancelled"
    assert set(seen["statuses"][:-1]) <= {"working", "cancelled"}


def _error(seen: Seen, era: Revision) -> None:
    # A result with `isError` is a failed task in the core, and a completed one in the extension.
    assert seen["statuses"][-1] == ("failed" if era is NOVEMBER_2025 else "completed")
    if "error" in seen:  # without the result: that is the message of the status
        assert seen["error"] == "out of paper"
        return
    assert (seen["text"], seen["isError"]) == ("out of paper", True)
    _related(seen, era)


def _unknown(seen: Seen, era: Revision) -> None:
    assert seen == {"code": -32602}


def _plain(seen: Seen, era: Revision) -> None:
    assert seen == {"code": -32601 if era is NOVEMBER_2025 else -32021}


def _list(seen: Seen, era: Revision) -> None:
    assert seen == {"found": True}


def _resumed(seen: Seen, era: Revision) -> None:
    assert seen["text"] == "a book about tea"


def _related(seen: Seen, era: Revision) -> None:
    """`related-task` is in the results of the core, and never in those of the extension."""
    if "related" in seen:
        expected = {"taskId": seen["taskId"]} if era is NOVEMBER_2025 else {}
        assert seen["related"] == expected


CHECKS: Mapping[str, Check] = {
    "created": _created,
    "result": _result,
    "input": _input,
    "call": _call,
    "cancelled": _cancelled,
    "error": _error,
    "unknown": _unknown,
    "plain": _plain,
    "list": _list,
    "resumed": _resumed,
}

# ---------------------------------------------------------------- their clients

LIST_HTTP = "our server lists no tasks over HTTP without authentication"
LIST_2026 = "2026-07-28 has no tasks/list"


@dataclass(frozen=True)
class TaskClient:
    """A client of another implementation that uses tasks, and what it cannot do."""

    name: str
    package: str
    version: str
    program: str
    eras: tuple[Revision, ...]
    transports: tuple[str, ...] = BOTH
    beside: tuple[str, ...] = ()
    # Scenarios that it cannot play, and why.
    cannot: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    # What it does in a way of its own, and is played all the same.
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def missing(self) -> str | None:
        return missing_tool(self.package)

    def absent(self, scenario: str, era: Revision, transport: str) -> str | None:
        """Why there is nothing to see of a scenario, if there is not."""
        if scenario == "list" and era is JULY_2026:
            return LIST_2026
        if scenario == "list" and transport == "http":
            return LIST_HTTP
        if scenario == "resumed" and transport == "stdio":
            return "a server on stdio ends with its client"
        why = self.cannot.get(scenario)
        return why and f"{self}: {why}"

    def driver(self, spec: str) -> list[str]:
        """The command that plays the scenarios."""
        home = installed(self.package, self.version, *self.beside)
        if self.package.startswith("interop-"):
            return [str(home / "server"), "tasks-client", spec]
        if self.program.endswith(".mjs"):
            return [node(), str(HERE / self.program), str(home), spec]
        return [str(home / "bin" / "python"), "-I", str(HERE / self.program), spec]


MCP_1 = TaskClient(
    "Python mcp",
    "mcp",
    "1.30.0",
    "client_mcp_1.py",
    (NOVEMBER_2025,),
    cannot={
        "resumed": "it has no handle of a task for another connection",
        "call": "its call_tool does not wait for a task",
    },
)
TYPESCRIPT_1 = TaskClient(
    "TypeScript sdk",
    "@modelcontextprotocol/sdk",
    "1.32.2",
    "client_typescript_1.mjs",
    (NOVEMBER_2025,),
    cannot={
        "resumed": "it has no handle of a task for another connection",
        "call": "its callTool refuses a tool that only runs as a task",
    },
)
FASTMCP_4 = TaskClient(
    "FastMCP tasks",
    "fastmcp-tasks",
    "4.1.2",
    "client_fastmcp_4.py",
    (JULY_2026,),
    cannot={"plain": "it always declares the extension"},
    note="it sends no Mcp-Name with the requests about a task (D71)",
)
EXT_TASKS_V1 = TaskClient(
    "TypeScript ext-tasks",
    "@modelcontextprotocol/ext-tasks",
    "0.2.2",
    "client_ext_tasks.mjs",
    (NOVEMBER_2025,),
    beside=("client",),
    cannot={
        "plain": "it asks for a task if a tool requires one",
        "call": "its callTool returns an execution, which the other scenarios wait for",
    },
    note="it sends tasks/result after the end of a task only: its host does while input is required",
)
EXT_TASKS_V2 = replace(
    EXT_TASKS_V1,
    eras=(JULY_2026,),
    transports=("http",),
    cannot={**EXT_TASKS_V1.cannot, "plain": "it always declares the extension"},
    note="it leaves the wire to its host, which posts here",
)
RUST = TaskClient(
    "Rust rmcp",
    "interop-rust",
    "3.8.0",
    "",
    (JULY_2026,),
    cannot={"call": "its call_tool does not wait for a task"},
    note="it takes an acknowledgement with `_meta` for the result of a tool, and reports an error",
)
CLIENTS = (MCP_1, TYPESCRIPT_1, EXT_TASKS_V1, EXT_TASKS_V2, FASTMCP_4, RUST)


@cache
def run_client(peer: TaskClient, era: Revision, transport: str) -> DriverRun:
    """Play every scenario that there is, once."""
    run = DriverRun()
    played = [name for name in CHECKS if not peer.absent(name, era, transport)]
    spec: dict[str, Any] = {"era": era.date, "scenarios": played}
    with tempfile.TemporaryDirectory() as folder:
        ended, errors = Path(folder) / "ended", Path(folder) / "errors"
        with errors.open("w") as log:
            if transport == "http":
                with served(run, log, OUR_SERVER) as url:
                    drive(peer.driver(json.dumps({**spec, "http": url})), run, log)
            else:
                command = recorded([*OUR_SERVER, "stdio"], ended)
                drive(peer.driver(json.dumps({**spec, "stdio": command})), run, log)
                run.server_ended = int(ended.read_text()) if ended.exists() else None
        run.errors = errors.read_text()
    return run
