"""A host of files: the servers of other programs' configurations, and what changes in them."""

import json
import sys
from pathlib import Path

import pytest

from colonnade import Host
from colonnade.errors import LocalProtocolError
from live import live

HERE = Path(__file__).resolve().parents[2] / "support/host"


def entry(*arguments: str) -> dict[str, object]:
    file = str(HERE / "secretive.py")
    return {"command": sys.executable, "args": [file, *arguments], "env": {"CANARY": "x"}}


def written(file: Path, **servers: object) -> Path:
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


@live
async def test_the_servers_of_a_file_are_one_catalogue(tmp_path: Path) -> None:
    file = written(tmp_path / "claude_desktop_config.json", one=entry("one"), two=entry("two"))
    async with Host.from_config(file) as host:
        names = [tool.name for tool in await host.list_tools()]
        assert names == ["one__give", "one__ask", "two__give", "two__ask"]
        assert (await host.call_tool("two__give")).text == "x"
        assert host.problems == []


@live
async def test_a_wrong_server_in_a_file_is_a_problem_with_its_place(tmp_path: Path) -> None:
    file = written(tmp_path / "claude_desktop_config.json", one=entry("one"), two={"args": []})
    async with Host.from_config(str(file)) as host:
        assert [tool.server for tool in await host.list_tools()] == ["one", "one"]
        (problem,) = host.problems
        assert problem.server == "two"
        assert problem.place is not None
        assert problem.place.file == str(file)


@live
async def test_a_file_is_read_again_and_what_is_the_same_goes_on(tmp_path: Path) -> None:
    file = written(tmp_path / "claude_desktop_config.json", one=entry("one"), two=entry("two"))
    async with Host.from_config([file]) as host:
        await host.list_tools()
        pids = {one.key: one.pid for one in host.status()}
        written(file, one=entry("one"), three=entry("three"))
        await host.reload()
        assert host.servers == ("one", "three")
        assert len(await host.list_tools()) == 4
        assert host.status()[0].pid == pids["one"]
        file.write_text('{"mcpServers": {,}}')
        await host.reload()
        assert host.servers == ("one", "three")
        (problem,) = host.problems
        assert problem.server == ""
        assert (await host.call_tool("one__give")).text == "x"
        assert host.status()[0].pid == pids["one"]
        written(file, one=entry("one"))
        await host.reload()
        assert host.servers == ("one",)
        assert host.problems == []


@live
async def test_a_server_that_goes_on_is_found_where_it_stands_now(tmp_path: Path) -> None:
    file = written(tmp_path / "claude_desktop_config.json", one={"command": "no-such-command"})
    async with Host.from_config(file) as host:
        await host.list_tools()
        file.write_text("\n\n" + file.read_text())
        await host.reload()
        (problem,) = host.problems
        assert "no-such-command" in problem.message
        assert problem.place is not None
        assert problem.place.line == 3


@live
async def test_a_file_that_stays_broken_stops_nothing_however_often_it_is_read(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "claude_desktop_config.json", one=entry("one"))
    async with Host.from_config(file) as host:
        file.write_text("{")
        for _ in range(3):
            await host.reload()
            assert host.servers == ("one",)
            assert len(host.problems) == 1
        written(file, two=entry("two"))
        await host.reload()
        assert host.servers == ("two",)


@live
async def test_a_file_that_was_never_there_does_not_excuse_one_that_went_away(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "mcp.json"
    file = written(tmp_path / "claude_desktop_config.json", one=entry("one"))
    async with Host.from_config([missing, file]) as host:
        assert (host.servers, len(host.problems)) == (("one",), 1)
        file.unlink()
        await host.reload()
        assert (host.servers, len(host.problems)) == (("one",), 2)


@live
async def test_a_project_file_starts_nothing_until_somebody_trusts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    file = written(tmp_path / ".mcp.json", one=entry("one"))
    async with Host.from_config(file) as host:
        assert await host.list_tools() == []
        assert "not trusted" in host.problems[0].message
    async with Host.from_config(file, trust=True) as host:
        assert len(await host.list_tools()) == 2


@live
async def test_a_host_without_files_has_nothing_to_read_again() -> None:
    async with Host({}) as host:
        with pytest.raises(LocalProtocolError, match="no files"):
            await host.reload()
