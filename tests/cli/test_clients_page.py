"""The page on clients shows what the commands on it say, from the first to the last.

    pytest tests/cli/test_clients_page.py --rewrite-transcripts

writes what they say below them; what was written is then read by a person.

Rules: the commands run in the order of the page, in one folder with one home.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from cli.process import WEATHER, command, written

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "clients.md"
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {
    "have.json": '{"mcpServers": {"weather": {"command": "other"}}}\n',
    "broken.json": '{\n  "mcpServers": {\n    "git": {"command": "uvx"},\n  }\n}\n',
}


def said(typed: str, folder: Path, tools: Path) -> str:
    home = folder.parent
    done = command(
        folder,
        *shlex.split(typed)[1:],
        HOME=str(home),
        XDG_CONFIG_HOME=str(home / ".config"),
        CLAUDE_CONFIG_DIR="",
        CODEX_HOME="",
        API_KEY="s3cret",
        PATH=str(tools),
    )
    script = os.path.join(os.path.dirname(sys.executable), "colonnade")
    text = done.stdout + done.stderr
    text = text.replace(script, "/home/you/.venv/bin/colonnade").replace(str(home), "/home/you")
    return text.replace("/home/you/Library/Application Support", "/home/you/.config")


def test_the_page_on_clients_shows_what_is_said(tmp_path: Path, rewrite_transcripts: bool) -> None:
    folder, tools = tmp_path / "weather", tmp_path / "tools"
    for one in (folder, tools, tmp_path / ".config" / "Claude", tmp_path / ".config/Code/User"):
        one.mkdir(parents=True)
    written(folder, server=WEATHER)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (tools / "uvx").write_text("#!/bin/sh\n")
    (tools / "uvx").chmod(0o755)

    def done(block: "re.Match[str]") -> str:
        lines = [line for line in block[1].splitlines() if line.startswith("$ ")]
        texts = [f"{line}\n{said(line[2:], folder, tools)}" for line in lines]
        return "```\n" + "\n".join(texts) + "```"

    page = PAGE.read_text("utf-8")
    assert len(BLOCK.findall(page)) > 10
    new = BLOCK.sub(done, page)
    if rewrite_transcripts:
        PAGE.write_text(new, "utf-8")
    assert new == PAGE.read_text("utf-8")
    assert "s3cret" not in new


@pytest.mark.parametrize("name", FILES)
def test_what_is_left_alone_is_left_alone(tmp_path: Path, name: str) -> None:
    written(tmp_path, server=WEATHER)
    (tmp_path / name).write_text(FILES[name])
    done = command(
        tmp_path, "add", "server.py", "--to", "claude-desktop", "--name", "weather", "--write",
        "--file", name,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert (tmp_path / name).read_text() == FILES[name]
