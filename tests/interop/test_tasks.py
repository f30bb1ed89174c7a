"""Tasks with the official Python SDK 1.x: its client at our server, and our client at its server.

One run plays all scenarios on one connection; each test looks at one of them. The other
implementations of tasks are played by `scripts/interop tasks`.

Rules: real processes, pipes and sockets; the SDK is the one that people install.
"""

from collections.abc import Mapping

import pytest

from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025
from interop.table import Cell
from interop.tasks.counterparts import BOTH, CHECKS, CLIENTS, FASTMCP_4, MCP_1, RUST
from interop.tasks.servers import MCP_1_SERVER, SERVER_CHECKS, SERVERS
from interop.tasks.table import client_cells, main, server_cells, show

TRANSPORT = pytest.mark.parametrize("transport", BOTH)


@TRANSPORT
def test_a_client_of_the_official_sdk_creates_polls_answers_and_cancels_tasks(
    transport: str,
) -> None:
    cells = client_cells(MCP_1, NOVEMBER_2025, transport)
    assert failed(cells) == {}
    left_out = {name for name, cell in cells.items() if cell.word == "-"}
    # `call` and `resumed` are not in the SDK; our server lists no tasks over HTTP without
    # authentication.
    assert left_out == {"call", "resumed"} | ({"list"} if transport == "http" else set())


@TRANSPORT
def test_our_client_creates_polls_answers_and_cancels_tasks_of_the_official_sdk(
    transport: str,
) -> None:
    cells = server_cells(MCP_1_SERVER, NOVEMBER_2025, transport)
    assert failed(cells) == {}
    # The SDK shows a task to the session that created it, and to no other.
    assert [name for name, cell in cells.items() if cell.word == "-"] == ["resumed"]


def failed(cells: Mapping[str, Cell]) -> dict[str, str]:
    return {name: cell.why for name, cell in cells.items() if not cell.ok}


def test_each_implementation_of_tasks_is_pinned() -> None:
    assert [str(client) for client in CLIENTS] == [
        "Python mcp 1.30.0",
        "TypeScript sdk 1.32.2",
        "TypeScript ext-tasks 0.2.2",
        "TypeScript ext-tasks 0.2.2",
        "FastMCP tasks 4.1.2",
        "Rust rmcp 3.8.0",
    ]
    assert [str(server) for server in SERVERS] == [
        "Python mcp 1.30.0",
        "TypeScript sdk 1.32.2",
        "FastMCP tasks 4.1.2",
        "Rust rmcp 3.8.0",
    ]


def test_what_an_implementation_cannot_do_is_left_out_with_the_reason() -> None:
    assert FASTMCP_4.absent("plain", JULY_2026, "http") == (
        "FastMCP tasks 4.1.2: it always declares the extension"
    )
    assert MCP_1.absent("list", NOVEMBER_2025, "stdio") is None
    assert RUST.absent("list", JULY_2026, "stdio") == "2026-07-28 has no tasks/list"
    assert MCP_1_SERVER.absent("resumed", "stdio") == "a server on stdio ends with its client"
    assert CHECKS.keys() - SERVER_CHECKS.keys() == {"unknown", "plain", "list"}


def test_a_failure_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    cells = show(
        "one", {("2026-07-28", "http"): {"result": Cell("FAILED", "no"), "end": Cell("ok")}}
    )
    assert [cell.ok for cell in cells] == [False, True]
    printed = capsys.readouterr().out
    assert "FAILED: result, one, 2026-07-28 http\nno" in printed
    assert "one: 1 ok, 1 failed" in printed
    assert main("cobol") == 1
