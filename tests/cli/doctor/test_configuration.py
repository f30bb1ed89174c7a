"""What can be wrong with a configuration, and with each of its servers beside the others; what the
command prints of it, and how it ends.

Rules: real files, real children and real processes; no network.
"""

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.doctor.test_command import row
from cli.process import WEATHER, command
from cli.terminal import PseudoTerminal
from colonnade.cli.commands.config import trust_file
from colonnade.cli.doctor.check import Checks, ServerReport, ok
from colonnade.cli.doctor.report import run_doctor
from colonnade.cli.doctor.targets import DoctorTarget, doctor_targets
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from live import live_for

TEST_S = 600.0
PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    (tmp_path / "server.py").write_text(WEATHER)
    return tmp_path


def started(*args: str, **more: Any) -> dict[str, Any]:
    return {"command": PYTHON, "args": [*args], **more}


RUN = ("-m", "colonnade", "run", "server.py")


def written(name: str, **servers: Any) -> str:
    """A file of servers that nobody trusts yet."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(json.dumps({"mcpServers": servers}, indent=1))
    return name


def trusted(name: str, **servers: Any) -> str:
    """One that somebody trusts."""
    assert trust_file(written(name, **servers), yes=True) == 0
    return name


async def looked_at(file: str, **terms: Any) -> list[ServerReport]:
    return await run_doctor(
        doctor_targets(ConnectionOptions(file, **terms), Terminal()), Terminal()
    )


def failures(reports: list[ServerReport]) -> dict[str, tuple[str, str, str, int] | None]:
    return {
        one.server: None
        if one.failure is None
        else (one.failure.name, one.failure.message, one.failure.fix, one.failure.code)
        for one in reports
    }


@live_for(TEST_S)
async def test_one_broken_server_hinders_no_other(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        file = trusted(
            "mcp.json",
            well=started(*RUN),
            typo={"command": "no-such-program-here"},
            away={"type": "http", "url": f"http://127.0.0.1:{port}/mcp"},
            dies=started("-c", "raise SystemExit(3)"),
            wants=started("x.py", env={"KEY": "${NO_SUCH_ONE}"}),
        )
        reports = await looked_at(file)
    assert [one.server for one in reports] == ["well", "typo", "away", "dies", "wants"]
    assert failures(reports) == {
        "well": None,
        "typo": (
            "command",
            "there is no command no-such-program-here on PATH",
            "install it, or use its full path",
            4,
        ),
        "away": (
            "tcp",
            f"connection refused: nothing listens on 127.0.0.1:{port}",
            "start the server, or fix the port of the URL",
            4,
        ),
        "dies": (
            "process",
            "it exited with 3; it had sent no message",
            f"run it in a terminal: {PYTHON} -c 'raise SystemExit(3)'",
            4,
        ),
        "wants": (
            "variables",
            "mcp.json:32:5: mcpServers.wants.env.KEY: the environment variable NO_SUCH_ONE is not set",
            "set it, or write ${NO_SUCH_ONE:-default}",
            2,
        ),
    }
    assert row(reports[0], "file").message == "mcp.json:3:3: mcpServers.well is valid"
    assert row(reports[0], "variables").message == "all references are resolved"


@live_for(TEST_S)
async def test_a_file_that_does_not_parse_is_told_with_its_place(folder: Path) -> None:
    Path("mcp.json").write_text('{"mcpServers": {\n  "git": {"command" "uvx"}\n}}')
    (report,) = await looked_at("mcp.json")
    assert report.failure is not None
    assert (report.server, report.failure.name, report.failure.code) == ("mcp.json", "file", 2)
    assert report.failure.message.startswith("mcp.json:2:21: ")


@live_for(TEST_S)
async def test_a_file_without_servers(folder: Path) -> None:
    Path("mcp.json").write_text('{"mcpServers": {}}')
    (report,) = await looked_at("mcp.json")
    assert report.failure is not None
    assert report.failure.message == "mcp.json has no servers"


@live_for(TEST_S)
async def test_an_entry_that_is_none(folder: Path) -> None:
    reports = await looked_at(trusted("mcp.json", odd={"args": ["x"]}, well=started(*RUN)))
    assert [one.failure is None for one in reports] == [False, True]
    failure = reports[0].failure
    assert failure is not None
    assert (failure.name, failure.code) == ("file", 2)
    assert failure.message.startswith("mcp.json:3:3: mcpServers.odd: ")


@live_for(TEST_S)
async def test_a_file_of_a_project_is_not_started_before_it_is_trusted(folder: Path) -> None:
    file = written(".mcp.json", spy=started("-c", "open('touched', 'w')"))
    (report,) = await looked_at(file)
    assert report.failure is not None
    assert (report.failure.name, report.failure.message, report.failure.code) == (
        "trust",
        "the file is not trusted in its current content, so it is not used",
        2,
    )
    assert report.failure.fix == (
        f"review it, then run colonnade config trust {folder / '.mcp.json'}"
    )
    assert not (folder / "touched").exists()


def test_trust_is_asked_for_once_at_a_terminal_and_again_when_the_file_changes(
    folder: Path,
) -> None:
    file = written(".mcp.json", well=started(*RUN))
    home = str(folder / "home")
    with PseudoTerminal(folder, "doctor", file, COLONNADE_HOME=home) as terminal:
        shown = terminal.answer("Trust it? [y/N] ", "yes")
        code, rest = terminal.end()
    assert f"starts: {PYTHON} -m colonnade run server.py" in shown
    assert (code, "all checks passed" in rest) == (0, True)
    assert "you have just trusted it" in rest
    assert command(folder, "doctor", file, COLONNADE_HOME=home).returncode == 0
    written(".mcp.json", well=started(*RUN), more=started(*RUN))
    with PseudoTerminal(folder, "doctor", file, COLONNADE_HOME=home) as terminal:
        shown = terminal.answer("Trust it? [y/N] ", "")
        code, rest = terminal.end()
    assert "has changed since it was trusted" in shown
    assert code == 2
    assert "the file is not trusted" in rest


# ---------------------------------------------------------------- what is printed


def test_the_table_is_read_without_colours(folder: Path) -> None:
    file = trusted("mcp.json", well=started(*RUN), typo={"command": "no-such-program-here"})
    done = command(folder, "doctor", file)
    assert (done.returncode, done.stderr) == (4, "")
    assert done.stdout == (
        "well\n"
        "  ok       file           mcp.json:3:3: mcpServers.well is valid\n"
        "  ok       variables      all references are resolved\n"
        "  ok       command        found: this Python\n"
        "  ok       process        it runs, and its stdout has only messages\n"
        "  ok       revision       weather 1.0 uses 2026-07-28, and supports 2025-11-25, 2025-06-18, "
        "2025-03-26, 2024-11-05\n"
        "  ok       lists          1 tool\n"
        "  ok       schema         names and schemas are valid for all known clients and "
        "models\n"
        "\n"
        "typo\n"
        "  ok       file           mcp.json:12:3: mcpServers.typo is valid\n"
        "  ok       variables      all references are resolved\n"
        "  FAILED   command        there is no command no-such-program-here on PATH\n"
        "                          -> install it, or use its full path\n"
        "  skipped  others         process, revision, lists, schema\n"
        "\n"
        "1 of 2 servers work, 1 failed\n"
    )


def test_the_table_is_green_and_red_at_a_terminal_and_not_for_no_color(folder: Path) -> None:
    file = trusted("mcp.json", typo={"command": "no-such-program-here"})
    with PseudoTerminal(folder, "doctor", file) as terminal:
        _, shown = terminal.end()
    assert "[....................]   0%  waiting for typo: file" in shown  # while it is looked at
    assert "\033[32mok\033[0m" in shown
    assert "\033[1;31mFAILED\033[0m" in shown
    with PseudoTerminal(folder, "doctor", file, NO_COLOR="1") as terminal:
        _, shown = terminal.end()
    assert "\033[" not in shown
    assert "FAILED" in shown


def test_the_json_has_every_check(folder: Path) -> None:
    file = trusted("mcp.json", well=started(*RUN), typo={"command": "no-such-program-here"})
    done = command(folder, "doctor", file, "--json")
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert found["ok"] is False
    well, typo = found["servers"]
    assert (well["server"], well["ok"]) == ("well", True)
    assert typo == {
        "server": "typo",
        "target": "no-such-program-here",
        "ok": False,
        "checks": [
            {
                "check": "file",
                "state": "ok",
                "message": "mcp.json:12:3: mcpServers.typo is valid",
            },
            {"check": "variables", "state": "ok", "message": "all references are resolved"},
            {
                "check": "command",
                "state": "failed",
                "message": "there is no command no-such-program-here on PATH",
                "fix": "install it, or use its full path",
            },
            *(
                {"check": name, "state": "skipped", "message": "command failed"}
                for name in ("process", "revision", "lists", "schema")
            ),
        ],
    }


def test_one_server_of_a_file_is_looked_at_alone(folder: Path) -> None:
    file = trusted("mcp.json", well=started(*RUN), typo={"command": "no-such-program-here"})
    done = command(folder, "doctor", file, "--server", "well")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all checks passed")
    done = command(folder, "doctor", file, "--server", "wel")
    assert (done.returncode, done.stderr) == (
        2,
        "colonnade: there is no server wel in mcp.json; did you mean well?\n",
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--server", "x"),
            "--server is for configuration files; this target is a single server",
        ),
        (
            ("-H", "a: b"),
            "--header is for URLs; use --env for a server that is started as a process",
        ),
        (("--as", "1999-01-01"), "--as 1999-01-01: unknown revision; known revisions are "),
    ],
)
def test_what_is_typed_wrongly_is_no_illness(
    folder: Path, flags: tuple[str, ...], words: str
) -> None:
    done = command(folder, "doctor", "server.py", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"colonnade: {words}")


def test_no_secret_is_in_the_table(folder: Path) -> None:
    secret = "s3cret-t0ken"
    file = trusted(
        "mcp.json",
        dies=started("-c", "import os; raise SystemExit(os.environ['KEY'])", env={"KEY": secret}),
        away={"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": secret}},
    )
    for flags in ((), ("--json",), ("--debug",)):
        done = command(folder, "doctor", file, *flags)
        assert done.returncode == 4
        assert secret not in done.stdout + done.stderr


class Watched(Terminal):
    """A terminal that keeps the progress lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.drawn = asyncio.Event()

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self.lines.append(f"{done:g}/{total:g} {message}")
        self.drawn.set()


@live_for(TEST_S)
async def test_doctor_says_which_check_of_which_server_it_waits_for() -> None:
    responds = asyncio.Event()

    async def checks() -> Checks:
        yield ok("command", "found")
        await responds.wait()
        yield ok("connection", "connected")

    terminal = Watched()
    target = DoctorTarget("slow", "slow", ["command", "connection"], checks())
    running = asyncio.ensure_future(run_doctor([target], terminal))
    line = "0/1 waiting for slow: connection"
    while terminal.lines.count(line) < 2:  # also while nothing happens
        terminal.drawn.clear()
        await terminal.drawn.wait()
    assert terminal.lines[0] == "0/1 waiting for slow: command"
    responds.set()
    (report,) = await running
    assert [one.name for one in report.checks] == ["command", "connection"]
    assert terminal.lines[-1] == "1/1 "
