"""A host of files: servers that are started when they are needed, and none before it is trusted."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from colonnade import Host
from colonnade.host.config.trust import Trust, TrustRequest
from live import Records

SERVER = """
import sys
from pathlib import Path

from colonnade import Server

Path(sys.argv[1]).write_text("started")
server = Server("marked")


@server.tool
def who() -> str:
    return sys.argv[1]


server.run()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "server.py").write_text(SERVER)
    write(folder, "mark")
    return folder


def write(folder: Path, mark: str) -> None:
    marked = {"command": sys.executable, "args": ["server.py", mark]}
    broken = {"command": 5}
    servers = {"mcpServers": {"marked": marked, "broken": broken}}
    (folder / ".mcp.json").write_text(json.dumps(servers))


def yes(_: TrustRequest) -> bool:
    return True


def tools(folder: Path, trust: Trust = None) -> tuple[list[str], list[str]]:
    """The tools that a host finds, and the servers with a problem."""

    async def done() -> tuple[list[str], list[str]]:
        async with Host.from_config(folder / ".mcp.json", trust=trust) as host:
            names = [tool.name for tool in await host.list_tools()]
            return names, [problem.server for problem in host.problems]

    return asyncio.run(done())


def test_a_changed_file_is_not_started_before_it_is_trusted_again(project: Path) -> None:
    assert tools(project) == ([], ["marked", "broken"])
    assert not (project / "mark").exists()

    assert tools(project, yes) == (["marked__who"], ["broken"])
    assert (project / "mark").exists()
    assert tools(project) == (["marked__who"], ["broken"])
    write(project, "other")
    assert tools(project) == ([], ["marked", "broken"])
    assert not (project / "other").exists()


def test_a_file_that_is_not_there_is_a_problem_of_the_host(tmp_path: Path) -> None:
    async def done() -> list[str]:
        async with Host.from_config(tmp_path / "mcp.json") as host:
            return [str(problem) for problem in host.problems]

    assert asyncio.run(done()) == [f"{tmp_path / 'mcp.json'}:1:1: file not found"]


def test_what_is_wrong_with_files_is_logged_once(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"

    async def done() -> list[str]:
        with Records("colonnade.host") as records:
            async with Host.from_config(file) as host:
                await host.reload()
                file.write_text(json.dumps({"mcpServers": {"broken": {"command": 5}}}))
                await host.reload()
                await host.reload()
            return records.lines

    missing, broken = asyncio.run(done())
    assert missing == f"WARNING {file}:1:1: file not found"
    assert broken.endswith("mcpServers.broken.command: expected a string")


def test_a_server_that_cannot_be_looked_up_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "x"\nenv = { A = { command = ["no-such-program"] } }\n'
    (tmp_path / "colonnade.toml").write_text(text)

    async def done() -> None:
        async with Host.from_config(tmp_path / "colonnade.toml") as host:
            assert await host.list_tools() == []
            (problem,) = host.problems
            assert "'no-such-program' cannot be started" in problem.message
            assert [status.crashes for status in host.status()] == [0]

    asyncio.run(done())
