"""`colonnade config`: what is typed, what is written, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.process import command
from cli.terminal import PseudoTerminal

SERVERS = '{"mcpServers": {\n  "git": {"command": "uvx", "args": ["mcp-server-git\\u001b[2J"]}\n}}'


def home(tmp_path: Path) -> dict[str, str]:
    return {"COLONNADE_HOME": str(tmp_path / "kept"), "HOME": str(tmp_path / "home")}


def test_check_says_one_line_a_problem_for_scripts(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {\n  "a": {"command": 5},\n  "b": {"command": "x", "z": 1}\n}}')
    done = command(tmp_path, "config", "check", "mcp.json", **home(tmp_path))
    assert done.returncode == 1
    assert done.stdout == (
        f"{file}:2:9: mcpServers.a.command: expected a string\n"
        f"{file}:3:25: mcpServers.b.z: unknown key, ignored (warning)\n"
    )
    assert done.stderr == ""
    file.write_text('{"mcpServers": {"b": {"command": "x"}}}')
    done = command(tmp_path, "config", "check", "mcp.json", **home(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_check_gives_json_for_programs(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {}}}')
    done = command(tmp_path, "config", "check", "mcp.json", "--json", **home(tmp_path))
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "problems": [
            {
                "server": "a",
                "message": "a command or a url is missing",
                "file": str(tmp_path / "mcp.json"),
                "line": 1,
                "column": 17,
                "key": "mcpServers.a",
            }
        ],
        "warnings": [],
    }


def test_explain_shows_a_file_and_explain_alone_all_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.claude.json").write_text('{"mcpServers": {"mine": {"command": "run"}}}')
    (tmp_path / ".mcp.json").write_text(SERVERS)
    done = command(tmp_path, "config", "explain", ".mcp.json", **home(tmp_path))
    assert done.returncode == 0
    assert "(not used: its file is not trusted)" in done.stdout
    assert (
        "args = 'mcp-server-git\\x1b[2J'\n      .mcp.json:2 (Claude Code, project)" in done.stdout
    )
    done = command(tmp_path, "config", "explain", "--json", **home(tmp_path))
    (group,) = json.loads(done.stdout)
    assert group["program"] == "Claude Code"
    assert [(one["server"], one["state"]) for one in group["servers"]] == [
        ("mine", "used"),
        ("git", "untrusted"),
    ]
    assert command(tmp_path, "config", "explain", "gone.json", **home(tmp_path)).returncode == 1


@pytest.mark.spec("R1306", "R1307", "R1308", "R1311")
def test_a_person_sees_what_a_file_wants_and_says_so(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(SERVERS)

    def trust() -> PseudoTerminal:
        given: Any = home(tmp_path)
        return PseudoTerminal(tmp_path, "config", "trust", ".mcp.json", **given)

    with trust() as at:
        shown = at.answer("Trust it? [y/N]", "n")
        assert "is not trusted yet" in shown
        assert "This is dangerous" in shown
        assert "it runs code on this machine, with your permissions" in shown
        assert "starts: uvx 'mcp-server-git\\x1b[2J'" in shown
        assert at.end()[0] == 1
    with trust() as at:
        at.answer("Trust it? [y/N]", "y")
        code, rest = at.end()
        assert (code, "is trusted until it changes" in rest) == (0, True)
    (tmp_path / ".mcp.json").write_text(SERVERS + " ")
    with trust() as at:
        at.until("has changed since it was trusted")


def test_a_yes_that_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(SERVERS)
    given: Any = home(tmp_path)
    with PseudoTerminal(tmp_path, "config", "trust", ".mcp.json", **given) as at:
        at.type("y\n")
        at.until("y\n")  # its echo: the terminal has it
        at.answer("Trust it? [y/N]", "n")
        code, shown = at.end()
    assert (code, "is trusted until it changes" in shown) == (1, False)


def test_a_script_says_yes_and_forgets(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(SERVERS)

    def trust(*flags: str) -> tuple[int, str]:
        done = command(tmp_path, "config", "trust", ".mcp.json", *flags, **home(tmp_path))
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()[-1]

    assert trust() == (
        1,
        "colonnade: there is no terminal to ask in; review the file, then use --yes",
    )
    assert trust("--yes") == (0, "colonnade: .mcp.json is trusted until it changes")
    assert trust() == (0, "colonnade: .mcp.json is already trusted")
    done = command(tmp_path, "config", "explain", ".mcp.json", **home(tmp_path))
    assert "not trusted" not in done.stdout
    assert trust("--forget") == (0, "colonnade: .mcp.json is no longer trusted")
    assert trust("--forget") == (0, "colonnade: .mcp.json was not trusted")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = command(tmp_path, "config", "check", **home(tmp_path))
    words = "colonnade: missing argument FILE; for example: colonnade config check .mcp.json\n"
    assert (done.returncode, done.stderr) == (2, words)
