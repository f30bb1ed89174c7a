"""Servers that people install, and ours, in one host: one catalogue, and a broken one hurts nobody.

One run lists all and makes all calls; each test looks at a part of it. The reference servers of npm
are in a host together in `scripts/interop servers`.

Rules: real processes, pipes and sockets; the servers are those that people install.
"""

import asyncio
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from colonnade.host.servers.naming import qualified_name
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025
from interop import servers_table
from interop.many_servers import (
    BROKEN,
    EXAMPLES,
    Call,
    HostedServer,
    HostRun,
    hosted_targets,
    run_host,
    unlisted,
)
from interop.third_party_servers import GIT, MCP_1, MCP_2, TIME

SAFE = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
HOSTED = (
    HostedServer("time", TIME),
    HostedServer("git", GIT),
    HostedServer("sdk", MCP_2, "http"),
    HostedServer("sdk 1.x", MCP_1, "http"),
)
OURS = {name: EXAMPLES / f"{name}.py" for name in ("weather", "notes", "prompts")}
OLDER_ADD = qualified_name("sdk 1.x", "add")
NOON = {"source_timezone": "Etc/UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
SEARCH = "what time is it in another timezone"


@cache
def published_run() -> HostRun:
    """One run, for all the tests that look at it."""
    with TemporaryDirectory() as name, hosted_targets(HOSTED, Path(name).resolve()) as targets:
        calls = [
            Call("weather__forecast", {"city": "Oslo", "days": 1}, "Oslo"),
            Call("notes__write", {"name": "new", "text": "Hello"}, "notes://new"),
            Call("time__convert_time", NOON, "21:00"),
            Call("git__git_diff_unstaged", {"repo_path": str(Path(name, "git"))}, "+third"),
            Call("sdk__add", {"a": 2, "b": 3}, "5"),
            Call(OLDER_ADD, {"a": 3, "b": 4}, "7"),
        ]
        return asyncio.run(run_host({**OURS, **BROKEN, **targets}, calls, SEARCH))


def test_one_catalogue_has_the_tools_of_all() -> None:
    ours = {"weather": 4, "notes": 1, "prompts": 0}
    theirs = {"time": 2, "git": 12, "sdk": 21, "sdk 1.x": 21}
    assert published_run().listed == {**ours, **dict.fromkeys(BROKEN, 0), **theirs}


def test_every_name_is_one_that_models_may_call() -> None:
    names = [tool.name for tool in published_run().tools]
    assert all(map(SAFE.match, names))
    assert len(names) == len(set(names))
    assert {tool.name for tool in published_run().tools if tool.server == "time"} == {
        "time__get_current_time",
        "time__convert_time",
    }


def test_each_server_is_called_by_its_name_in_the_catalogue() -> None:
    assert published_run().failures == {}
    assert len(published_run().answers) == 6


def test_broken_servers_are_reported_and_nobody_else_is() -> None:
    problems = published_run().problems
    assert problems.keys() == BROKEN.keys()
    assert "it has no licence" in problems["ends"]
    assert "colonnade-has-no-such-program" in problems["absent"]
    assert "127.0.0.1" in problems["nowhere"]
    assert unlisted(published_run()) == {}


def test_a_call_of_a_broken_server_says_what_is_wrong() -> None:
    assert published_run().refusals.keys() == BROKEN.keys()
    assert "it has no licence" in published_run().refusals["ends"]


def test_each_server_speaks_its_own_revision() -> None:
    revisions = published_run().revisions
    for key in (*OURS, "time", "git", "sdk"):
        assert revisions[key] == JULY_2026.date, key
    assert revisions["sdk 1.x"] == NOVEMBER_2025.date
    for key in BROKEN:
        assert revisions[key] is None


def test_prompts_resources_and_instructions_are_of_all_servers_too() -> None:
    assert published_run().prompts["prompts__review"] == "prompts"
    assert {"prompts", "sdk", "sdk 1.x"} == set(published_run().prompts.values())
    assert ("notes", "notes://") in published_run().resources
    # Both servers on the SDK have this address; it is not rewritten.
    assert {key for key, uri in published_run().resources if uri == "test://text"} == {
        "sdk",
        "sdk 1.x",
    }
    assert published_run().instructions["weather"].startswith("Forecasts")
    assert {"notes", "sdk"} <= published_run().instructions.keys()


def test_a_tool_is_found_by_words() -> None:
    assert "time__get_current_time" in published_run().found[:2]


@pytest.mark.parametrize("name", ["git__git_status", OLDER_ADD])
def test_models_are_told_the_names_of_the_catalogue(name: str) -> None:
    (tool,) = [tool for tool in published_run().tools if tool.name == name]
    assert tool.to_openai()["function"]["name"] == tool.to_anthropic()["name"] == name


def test_one_failure_in_the_host_is_the_exit_code_of_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fine, bad = HostRun(["git"]), HostRun(["git"], failures={"git__add": "no"})
    assert servers_table.report_host(fine) == 0
    assert servers_table.report_host(bad) == 1
    assert "FAILED: git__add, in one host\nno" in capsys.readouterr().out


def test_a_broken_server_that_nobody_reports_is_a_failure() -> None:
    assert unlisted(HostRun(["ends"])) == {"ends": "it is broken, and not reported"}
    assert unlisted(HostRun(["git"], problems={"git": "why"})) == {"git": "why"}
