"""Mistakes around a configuration and one's own tools, each with the sentence that it gets.

Rules: real processes and real files.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.process import WEATHER, command, written

PYTHON = sys.executable
CRASH = """
from colonnade import Server

server = Server("x")


@server.tool
def go() -> int:
    "Go."
    return 1 // 0
"""


def configured(folder: Path, **servers: Any) -> Path:
    """A folder with a configuration that nobody has to trust."""
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = command(
        folder, "config", "trust", "mcp.json", "--yes", COLONNADE_HOME=str(folder / "home")
    )
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path, *typed: str) -> str:
    """What is said beside the output."""
    return command(folder, *typed, COLONNADE_HOME=str(folder / "home")).stderr


@pytest.mark.parametrize(
    "typed",
    [
        ["ls", "nothere.json"],
        ["ls", "nothere.toml", "--server", "notes"],
        ["inspect", "nothere.JSON"],
        ["call", "nothere.json", "notes__write"],
        ["chat", "nothere.json", "--model", "any", "--url", "http://127.0.0.1:9/v1"],
        ["run", "nothere.json"],
        ["add", "nothere.json", "--to", "cursor"],
        ["login", "nothere.json"],
    ],
    ids=" ".join,
)
def test_a_configuration_that_is_not_there_is_no_module(tmp_path: Path, typed: list[str]) -> None:
    (tmp_path / "mcp.json").write_text("{}")
    written(tmp_path, nothere="")
    done = command(tmp_path, *typed)
    words = f"colonnade: there is no file {typed[1]}; did you mean mcp.json?\n"
    assert (done.returncode, done.stderr) == (2, words)


def test_a_doctor_knows_that_a_configuration_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{}")
    done = command(tmp_path, "doctor", "mpc.json")
    assert "FAILED   file           there is no file mpc.json\n" in done.stdout
    assert "-> did you mean mcp.json?\n" in done.stdout


def test_a_command_with_its_arguments_in_it_is_told_where_they_belong(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER)
    configured(tmp_path, odd={"command": f"{PYTHON} ./server.py --token t0ps3cr3t"})
    words = "command is the program alone; the rest goes into args"
    said = told(tmp_path, "ls", "mcp.json")
    assert said == f"colonnade: cannot start server 'odd': {words}\n"
    done = command(tmp_path, "doctor", "mcp.json", COLONNADE_HOME=str(tmp_path / "home"))
    assert words in " ".join(done.stdout.split())


def test_a_command_whose_first_word_is_no_program_is_missing_as_it_stands(tmp_path: Path) -> None:
    configured(tmp_path, odd={"command": "no-such-program-here run"})
    assert "there is no command 'no-such-program-here run'; install it" in told(
        tmp_path, "ls", "mcp.json"
    )


def test_a_file_that_nobody_trusts_is_said_once_for_all_of_its_servers(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    servers = {key: {"command": "any"} for key in ("one", "two", "three")}
    file.write_text(json.dumps({"mcpServers": servers}))
    hint = f"review the file, then run colonnade config trust {file}"
    assert told(tmp_path, "ls", "mcp.json") == (
        f"colonnade: {file} is not trusted, so its servers are not used; {hint}\n"
    )
    for name in ("other__read", "read"):  # of no server in the file
        assert told(tmp_path, "call", "mcp.json", name) == told(tmp_path, "ls", "mcp.json")
    done = command(tmp_path, "doctor", "mcp.json", COLONNADE_HOME=str(tmp_path / "home"))
    assert done.stdout.startswith("one, two, three\n")
    assert done.stdout.count("FAILED") == 1
    assert done.stdout.endswith("\n1 failed\n")


@pytest.mark.parametrize("typed", [["crash.py", "go"], ["mcp.json", "x__go"]], ids=" ".join)
def test_a_crash_in_a_tool_is_found_in_the_log_of_its_server(
    tmp_path: Path, typed: list[str]
) -> None:
    written(tmp_path, crash=CRASH)
    run = ["-m", "colonnade", "run", "crash.py"]
    configured(tmp_path, x={"command": PYTHON, "args": run})
    first, *_, error, last = told(tmp_path, "call", *typed).splitlines()
    assert re.fullmatch(r"colonnade: server \S+ \(pid \d+\) logged:", first)
    assert re.match("    ZeroDivisionError: (integer )?division", error)
    assert re.fullmatch(rf"colonnade: {typed[1]} returned an error: go failed \(id \w+\)", last)
    said = told(tmp_path, "call", *typed, "--debug")
    assert re.search(r"^\S+ stderr: ZeroDivisionError: (integer )?division", said, re.MULTILINE)


def test_a_file_of_ones_own_is_looked_at_with_ls(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER)
    typed = ["add", "server.py", "--to", "claude-code", "--name", "weather", "--write"]
    said = told(tmp_path, *typed, "--file", "mcp.json")
    assert said.endswith("mcp.json; colonnade ls mcp.json shows it\n")
    # The place of the client itself, however it is named.
    said = told(tmp_path, *typed, "--file", ".mcp.json")
    assert said.endswith("mcp.json; start claude again; /mcp shows it\n")


def test_a_server_file_without_a_command_is_told_how_to_run_it(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER)
    done = command(tmp_path, "server.py")
    words = "colonnade: there is no command server.py; to run a server: colonnade run server.py\n"
    assert (done.returncode, done.stderr) == (2, words)


def test_reading_from_a_server_without_resources_says_so(tmp_path: Path) -> None:
    written(tmp_path, server=CRASH)
    words = "colonnade: there is no resource a://b; this server has no resources\n"
    done = command(tmp_path, "read", "server.py", "a://b")
    assert (done.returncode, done.stderr) == (2, words)


def test_a_suggestion_names_two_names_that_are_as_near(tmp_path: Path) -> None:
    both = CRASH + "\n\n@server.tool\ndef forecast() -> int: ...\n"
    written(tmp_path, server=both + "\n\n@server.tool\ndef forecasts() -> int: ...\n")
    done = command(tmp_path, "call", "server.py", "forecas")
    words = "colonnade: there is no tool forecas; did you mean forecast or forecasts?\n"
    assert (done.returncode, done.stderr) == (2, words)


def test_defaults_stand_in_help_without_parentheses(tmp_path: Path) -> None:
    help_text = command(tmp_path, "issuer", "--help").stdout
    assert "[default: 9000]" in help_text
    assert "[default: 3600]" in help_text
