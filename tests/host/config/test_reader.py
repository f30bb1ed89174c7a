"""Files of servers become entries, and what is wrong with one of them stays with it."""

import asyncio
from pathlib import Path
from typing import Any

from colonnade.host.config.reader import read_config

FILE = """{
  "mcpServers": {
    "git": {"command": "uvx", "args": ["mcp-server-git", "${REPOSITORY:-.}"]},
    "bad": {"command": 5}
  }
}
"""


def resolved(entry: Any) -> dict[str, Any]:
    return asyncio.run(entry.resolve())


def test_one_wrong_server_harms_no_other(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(FILE)
    config = read_config(file, env={"REPOSITORY": "here"}, folder=tmp_path)
    assert list(config.entries) == ["git"]
    assert resolved(config.entries["git"]) == {
        "command": "uvx",
        "args": ["mcp-server-git", "here"],
        "cwd": str(tmp_path),
    }
    (problem,) = config.problems
    assert str(problem) == f"{file}:4:13: mcpServers.bad.command: expected a string"


def test_a_server_that_is_switched_off_misses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "colonnade.toml"
    file.write_text('[servers.a]\ncommand = "${env:NOBODY_SET_THIS}"\nenabled = false\n')
    config = read_config(file, env={})
    assert not config.problems
    assert not config.entries["a"].settings.enabled


def test_nothing_of_a_file_acts_on_the_terminal_of_who_prints_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        '{"mcpServers": {"\\u001b[2J": {"command": "\\u001b[2J", "\\u202e": 1}, "b\\r": 5}}'
    )
    config = read_config(file)
    (entry,) = config.entries.values()
    assert entry.shown == "'\\x1b[2J'"
    for told in (*config.problems, *config.warnings):
        assert str(told).isprintable()
