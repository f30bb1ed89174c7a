"""Commands that `colonnade gateway` starts: in a sandbox, logged, and authorized if dangerous."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.process import Process, command
from cli.terminal import PseudoTerminal
from colonnade import ColonnadeError, connect
from live import live
from transport.bubblewrap import need_bubblewrap

# The standard library alone: nothing else is there in a sandbox.
SERVER = """
import json, os, sys

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "files", "version": "1"}
        result = {"protocolVersion": version, "serverInfo": info, "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        result = {"tools": [{"name": "read", "inputSchema": schema}]}
    elif asked["method"] == "tools/call":
        try:
            text, wrong = open(asked["params"]["arguments"]["path"]).read(), False
        except OSError as error:
            text, wrong = type(error).__name__, True
        result = {"content": [{"type": "text", "text": text}], "isError": wrong}
    else:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SECRET = "canary-in-an-argument"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/server.py").write_text(SERVER)
    (tmp_path / "project/notes.txt").write_text("notes")
    (tmp_path / "key").write_text("secret")
    return tmp_path


def configure(folder: Path, entry: str = "", gateway: str = "") -> dict[str, Any]:
    """A file with one server, trusted; and the environment for it."""
    home: dict[str, Any] = {"COLONNADE_HOME": str(folder / "kept"), "HOME": str(folder)}
    if "PYTHONPATH" in os.environ:  # a copy of the package, with a check taken out
        home["PYTHONPATH"] = os.environ["PYTHONPATH"]
    (folder / "colonnade.toml").write_text(
        f"""
[servers.files]
command = "{sys.executable}"
args = ["-I", "-S", "server.py", "--token", "{SECRET}"]
cwd = "project"
revision = "2025-11-25"
{entry}
[gateway]
{gateway}
"""
    )
    done = command(folder, "config", "trust", "colonnade.toml", "--yes", **home)
    assert done.returncode == 0, done.stderr
    return home


def read_both(url: str, folder: Path) -> tuple[str, str]:
    """What a client reads of the working folder, and of a key beside it."""
    found: list[str] = []

    @live
    async def exercise() -> None:
        async with connect(url) as client:
            for path in (folder / "project/notes.txt", folder / "key"):
                try:
                    result = await client.call_tool("files__read", {"path": str(path)})
                    found.append(result.text)
                except ColonnadeError as error:
                    found.append(str(error))

    exercise()
    return found[0], found[1]


@pytest.mark.spec("R1334", "R1335")
@pytest.mark.parametrize(
    ("entry", "gateway", "options", "is_open"),
    [
        ("", "", [], True),
        ("", "", ["--sandbox", "strict"], False),
        ("", 'sandbox = "workspace"', [], False),
        ('sandbox = "strict"', "", [], False),
        ("sandbox = false", 'sandbox = "strict"', ["--sandbox", "strict"], True),
    ],
)
def test_a_command_of_a_gateway_sees_few_files_in_its_sandbox(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    entry: str,
    gateway: str,
    options: list[str],
    is_open: bool,
) -> None:
    need_bubblewrap(monkeypatch)
    home = configure(folder, entry, gateway)
    with Process(folder, "gateway", "colonnade.toml", "--port", "0", *options, **home) as process:
        url = process.out.next().rpartition(" ")[2]
        notes, key = read_both(url, folder)
        assert notes == "notes"
        assert (key == "secret") is is_open
        assert is_open or "FileNotFoundError" in key


@pytest.mark.parametrize(
    ("entry", "gateway", "options"),
    [
        ("", "", ["--sandbox", "strict"]),
        ("", 'sandbox = "workspace"', []),
        ('sandbox = "strict"', "", ["--stdio"]),
    ],
)
def test_a_gateway_that_cannot_make_its_sandboxes_does_not_start(
    folder: Path, entry: str, gateway: str, options: list[str]
) -> None:
    home = configure(folder, entry, gateway)
    (folder / "empty").mkdir()
    words = ("gateway", "colonnade.toml", *([] if options == ["--stdio"] else ["--port", "0"]))
    done = command(folder, *words, *options, **home, PATH=str(folder / "empty"))
    assert (done.returncode, done.stdout) == (4, "")
    said = " ".join(done.stderr.split())
    assert "server 'files'" in said
    assert "bubblewrap (bwrap) is not installed" in said
    assert "install bubblewrap (apt install bubblewrap" in said


def test_a_gateway_without_sandboxes_needs_no_bubblewrap(folder: Path) -> None:
    home = configure(folder, "sandbox = false", 'sandbox = "strict"')
    (folder / "empty").mkdir()
    home["PATH"] = str(folder / "empty")
    with Process(folder, "gateway", "colonnade.toml", "--port", "0", **home) as process:
        assert process.out.next().startswith("gateway on ")


@pytest.mark.spec("R1336")
def test_a_gateway_logs_which_command_it_starts_and_its_end_without_arguments(
    folder: Path,
) -> None:
    home = configure(folder)
    with Process(folder, "gateway", "colonnade.toml", "--port", "0", **home) as process:
        url = process.out.next().rpartition(" ")[2]
        read_both(url, folder)
        started = process.err.next()
        assert "server 'files' (pid " in started
        assert started.endswith(f"started {Path(sys.executable).name} without a sandbox")
        assert SECRET not in started
        process.process.terminate()
        assert process.process.wait() is not None
        ended = process.err.next()
        assert "server 'files' (pid " in ended
        assert ended.endswith("exited with 0")


@pytest.mark.parametrize("name", ["ls", "inspect", "doctor"])
def test_no_command_starts_a_server_without_its_sandbox(folder: Path, name: str) -> None:
    """Where there is no bubblewrap, a server that is to have a sandbox is not started."""
    home = configure(folder, 'sandbox = "strict"')
    (folder / "empty").mkdir()
    done = command(folder, name, "colonnade.toml", **home, PATH=str(folder / "empty"))
    assert done.returncode != 0
    assert "bubblewrap (bwrap) is not installed" in " ".join((done.stdout + done.stderr).split())


DANGEROUS = """
[servers.shell]
command = "/bin/sh"
args = ["-c", "exec sudo rm -rf /srv/x"]
"""


@pytest.mark.spec("R1337")
def test_a_dangerous_command_is_not_served_without_authorization(folder: Path) -> None:
    home = configure(folder, DANGEROUS)
    with Process(folder, "gateway", "colonnade.toml", "--port", "0", **home) as process:
        refused = process.err.next()
        assert "server 'shell' is not served: its command raises privileges (sudo)" in refused
        assert "review it, then use --allow-command shell" in refused
        assert process.out.next().startswith("gateway on ")
    arguments = ("gateway", "colonnade.toml", "--port", "0", "--allow-command", "shell")
    with Process(folder, *arguments, **home) as process:
        assert process.out.next().startswith("gateway on ")
        process.process.terminate()
        process.process.wait()
        assert process.process.stderr is not None
        assert "is not served" not in process.process.stderr.read()


def test_a_gateway_of_dangerous_commands_alone_does_not_start(folder: Path) -> None:
    home = configure(folder)
    (folder / "colonnade.toml").write_text(DANGEROUS)
    assert command(folder, "config", "trust", "colonnade.toml", "--yes", **home).returncode == 0
    done = command(folder, "gateway", "colonnade.toml", "--port", "0", **home)
    assert done.returncode == 2
    assert "server 'shell' is not served" in done.stderr


@pytest.mark.spec("R1337")
def test_a_dangerous_command_is_asked_about_until_it_is_authorized_or_changes(
    folder: Path,
) -> None:
    home = configure(folder, DANGEROUS)
    arguments = ("gateway", "colonnade.toml", "--port", "0")
    with PseudoTerminal(folder, *arguments, **home) as terminal:
        terminal.type("y\n")
        terminal.until("y\n")  # its echo; it was typed before the question, and is no answer
        shown = terminal.answer("[y/N] ", "n")
        assert "starts: /bin/sh -c 'exec sudo rm -rf /srv/x'" in shown
        assert "! raises privileges (sudo)" in shown
        terminal.until("is not served")
    with PseudoTerminal(folder, *arguments, **home) as terminal:
        terminal.answer("[y/N] ", "y")
        assert "is not served" not in terminal.until("gateway on ")
    with PseudoTerminal(folder, *arguments, **home) as terminal:
        assert "[y/N]" not in terminal.until("gateway on ")
    home = configure(folder, DANGEROUS.replace("/srv/x", "/srv/y"))
    with PseudoTerminal(folder, *arguments, **home) as terminal:
        assert "/srv/y" in terminal.answer("[y/N] ", "n")
        terminal.until("is not served")
