"""What is told of a server that does not work: once, in words that are right, and then mended."""

import sys
from pathlib import Path

import pytest

from live import live
from portico import CannotConnect, Host
from portico.host.own import entry_of
from portico.host.settings import Settings

HUNG = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def dying(starts: Path) -> list[str]:
    """A command that counts its starts, and ends at once."""
    code = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit('the disk is full')"
    return [sys.executable, "-I", "-S", "-c", code]


async def look(host: Host) -> None:
    await host.list_tools()
    await host.list_prompts()
    await host.list_resources()
    await host.list_resource_templates()


@live
async def test_a_dead_server_is_started_by_one_look_and_told_of_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    dead = entry_of("dead", dying(starts), Settings(revision="2025-11-25"))
    async with Host({"dead": dead}) as host:
        await look(host)
        assert starts.read_text() == "x"
        (problem,) = host.problems
        assert problem.words.count("the disk is full") == 1
        await host.list_prompts(fresh=True)
        assert starts.read_text() == "xx"
        (problem,) = host.problems
        assert problem.words.count("the disk is full") == 1


@live
async def test_a_server_that_hangs_at_all_its_lists_is_told_of_once() -> None:
    async with Host({"hung": HUNG}, wait_s=0.05) as host:
        await host.list_tools()
        assert "tools of server 'hung' have not come yet" in host.problems[0].words
        await look(host)
        words = "server 'hung' has not answered yet; look again later"
        assert [problem.words for problem in host.problems] == [words]


@live
async def test_a_command_that_is_not_there_has_not_ended() -> None:
    missing = entry_of("missing", ["no-such-command-anywhere"])
    async with Host({"missing": missing}) as host:
        words = ""
        for _ in range(8):
            with pytest.raises(CannotConnect) as caught:
                await host.call_tool("missing__one")
            words = str(caught.value)
        assert "it failed" in words
        assert "ended" not in words
