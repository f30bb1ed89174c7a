"""Our client at servers on the official Python SDK: both eras, on stdio and over HTTP, and over the
older HTTP+SSE.

One run makes all checks on one connection; each test looks at one of them. The other servers that
we did not write are visited by `scripts/interop servers`.

Rules: real processes, pipes and sockets; the SDKs are those that people install.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from colonnade import Server, connect
from colonnade.client.client import Client
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, OutputRoot, Revision
from interop import servers_table
from interop.reference_servers import PLANS
from interop.server_checks import CHECKS, absent, plan
from interop.server_runs import ServerRun, made_up, run_plan
from interop.third_party_servers import (
    FASTMCP,
    FIRST,
    LIBRARIES,
    MCP_1,
    MCP_2,
    PUBLISHED,
    TYPESCRIPT,
    ThirdPartyServer,
    combinations,
    reached,
)

EVERY_COMBINATION = pytest.mark.parametrize(
    ("era", "transport"),
    [
        pytest.param(era, transport, id=f"{era.date}-{transport}")
        for era, transport in combinations(MCP_2)
        if era in (JULY_2026, NOVEMBER_2025) and transport in ("stdio", "http", "sse")
    ],
)


@cache
def run_of(era: Revision, transport: str) -> ServerRun:
    """One run, for all the tests that look at it."""
    return asyncio.run(run_plan(MCP_2, transport, era, plan))


@pytest.mark.parametrize("name", CHECKS)
@EVERY_COMBINATION
def test_our_client_sees_what_it_should(name: str, era: Revision, transport: str) -> None:
    run = run_of(era, transport)
    if absent(name, MCP_2, era, transport):
        assert name not in run.seen
        return
    assert name in run.seen, run.failures
    assert name not in run.failures, run.failures[name]


@EVERY_COMBINATION
def test_every_tool_is_called_and_nothing_fails(era: Revision, transport: str) -> None:
    run = run_of(era, transport)
    assert run.failures == {}
    assert run.spoken == era.date
    assert run.listed == {"tools": 21, "resources": 2, "templates": 1, "prompts": 2}


def test_only_what_the_sdk_does_not_have_is_left_out() -> None:
    assert run_of(JULY_2026, "stdio").left_out == {}
    assert run_of(JULY_2026, "http").left_out == {}
    for transport in ("stdio", "http", "sse"):
        assert list(run_of(NOVEMBER_2025, transport).left_out) == ["news of a resource"]


# ---------------------------------------------------------------- plain values

ours = Server("ours")


@ours.tool
def add(a: int, b: int) -> int:
    return a + b


@ours.tool
def greet(name: str) -> str:
    return f"Hello, {name}"


@ours.tool
def numbers() -> list[int]:
    return [1, 2, 3]


@asynccontextmanager
async def client_of(
    server: ThirdPartyServer | None, era: Revision, folder: Path
) -> AsyncGenerator[Client]:
    if server is None:
        async with connect(ours, revision=era.date) as client:
            yield client
        return
    with reached(server, "stdio", folder) as target:
        async with connect(target, revision=era.date) as client:
            yield client


@pytest.mark.parametrize(
    ("server", "era"),
    [
        pytest.param(server, era, id=f"{server or 'ours'}-{era.date}")
        for server in (None, MCP_2, MCP_1, FASTMCP)
        for era in ALL
        if era.output_root is not OutputRoot.NONE and (server is None or era in server.speaks)
    ],
)
def test_the_data_of_a_scalar_tool_is_the_plain_value(
    server: ThirdPartyServer | None, era: Revision, tmp_path: Path
) -> None:
    async def values() -> list[object]:
        async with client_of(server, era, tmp_path) as client:
            calls = (("add", {"a": 2, "b": 3}), ("greet", {"name": "Ada"}), ("numbers", {}))
            return [(await client.call_tool(name, given)).data for name, given in calls]

    found = asyncio.run(values())
    assert found == [5, "Hello, Ada", [1, 2, 3]]
    assert [type(one) for one in found] == [int, str, list]


# ---------------------------------------------------------------- the runs themselves


def test_what_fails_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    async def wrong() -> None:
        raise AssertionError("not so")

    async def right() -> str:
        return "so"

    run = ServerRun(MCP_2, "stdio", JULY_2026, tmp_path)
    assert asyncio.run(run.attempt("wrong", wrong())) is None
    assert asyncio.run(run.attempt("right", right())) == "so"
    assert run.calls == 2
    assert run.failures == {"wrong": "AssertionError: not so"}


def test_a_server_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    none = ThirdPartyServer(
        "none", "mcp", MCP_2.version, (JULY_2026,), ("http",), "no_such_program.py"
    )
    run = asyncio.run(run_plan(none, "http", JULY_2026, plan))
    assert "the server did not start" in run.failures["the visit"]
    assert run.calls == 0


def test_one_failure_is_the_exit_code_of_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine, bad = (ServerRun(MCP_2, "stdio", JULY_2026, tmp_path) for _ in range(2))
    bad.failures["add"] = "no"
    assert servers_table.report([fine]) == 0
    assert servers_table.report([fine, bad]) == 1
    assert "FAILED: add, Python mcp 2.3.0, stdio, 2026-07-28\nno" in capsys.readouterr().out
    assert servers_table.report([]) == 1


def test_arguments_are_made_of_a_schema() -> None:
    properties = {
        "name": {"type": "string"},
        "kind": {"enum": ["a", "b"]},
        "count": {"type": "integer", "minimum": 3},
        "many": {"type": "array", "items": {"type": "object", "properties": {}}},
        "left": {"type": "string"},
    }
    made = made_up({"properties": properties, "required": ["name", "kind", "count", "many"]})
    assert made == {"name": "text", "kind": "a", "count": 3, "many": [{}]}


def test_each_server_is_pinned_and_has_a_plan() -> None:
    versions = ["2.3.0", "1.30.0", "4.1.2", "2.4.0", "1.8.0", "3.8.0", "2.1.0"]
    assert [server.version for server in LIBRARIES] == versions
    assert [one.version for one in FIRST] == ["1.0.0", "1.2.0", "1.4.1", "1.6.0", "1.8.1"]
    assert TYPESCRIPT.speaks == tuple(reversed(ALL))
    assert list(PLANS) == [server.name for server in PUBLISHED]
