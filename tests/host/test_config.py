"""Files of servers become entries, and what is wrong with one of them stays with it."""

import asyncio
from pathlib import Path
from typing import Any

from portico.host.config import read_config

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
    assert str(problem) == f"{file}:4:13: mcpServers.bad.command: this should be a text"
