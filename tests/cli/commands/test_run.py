"""`colonnade run`: a file on standard input and output."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.process import (
    COMMAND,
    HUNG_UP,
    WAIT_S,
    WEATHER,
    Process,
    call,
    command,
    environment,
    written,
)

NOISY = (
    'import os, sys\nprint("printed", flush=True)\nos.write(1, b"below\\n")\n'
    + WEATHER
    + """
print("kept")
if __name__ == "__main__":
    raise SystemExit("it ran as a script")
"""
)
WAITS = (
    WEATHER
    + """
import asyncio, sys


@server.tool
async def stubborn() -> str:
    print("waiting", file=sys.stderr, flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@server.tool
async def threaded() -> str:
    import time

    print("waiting", file=sys.stderr, flush=True)
    return await asyncio.to_thread(time.sleep, 3600)


@server.tool
def fails() -> str:
    raise KeyError("the reason")
"""
)
LOADED = """
import sys
from colonnade import Server

server = Server("loaded")


@server.tool
async def loaded() -> list[str]:
    return sorted(sys.modules)


if __name__ == "__main__":
    server.run()
"""


def text(answer: dict[str, object]) -> str:
    return answer["result"]["content"][0]["text"]  # type: ignore[index]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=WAITS)


# ---------------------------------------------------------------- the wire


def test_a_file_is_served_until_its_input_ends(folder: Path) -> None:
    with Process(folder, "run", "server.py") as process:
        assert text(process.ask(call("add", a=2, b=3))) == "5"
        process.input.close()
        assert process.end() == 0
        assert (len(process.out.rest()), process.err.rest()) == (1, [])


def test_nothing_that_a_file_prints_while_it_is_loaded_reaches_the_wire(tmp_path: Path) -> None:
    written(tmp_path, server=NOISY)
    with Process(tmp_path, "run", "server.py") as process:
        assert text(process.ask(call("add", a=2, b=3))) == "5"
        process.input.close()
        assert process.end() == 0
        assert len(process.out.rest()) == 1
        assert process.err.rest() == ["printed", "below", "kept"]


def test_without_an_open_input_there_is_nothing_to_serve(folder: Path) -> None:
    line = f"exec {sys.executable} -m colonnade run server.py <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "colonnade: stdin or stdout is closed, and an MCP server needs both\n"


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
@pytest.mark.parametrize("tool", ["add", "stubborn"])
def test_a_signal_ends_it_quietly(
    folder: Path, number: signal.Signals, code: int, tool: str
) -> None:
    with Process(folder, "run", "server.py") as process:
        process.ask(call("add", a=2, b=3))
        said: list[str] = []
        if tool == "stubborn":
            process.say(call("stubborn", id=2))
            process.err.until("waiting")
            said = [
                "waiting",
                "WARNING colonnade.transport: 1 handlers ignored their cancellation and still run",
            ]
        process.signal(number)
        assert process.end() == code
        assert process.err.rest() == said


def test_a_hangup_ends_it_and_says_so(folder: Path) -> None:
    with Process(folder, "run", "server.py") as process:
        process.ask(call("add", a=2, b=3))
        process.signal(signal.SIGHUP)
        assert process.end() == 0
        assert process.err.rest() == [HUNG_UP]


def test_a_hangup_that_is_ignored_stays_so(folder: Path) -> None:
    start = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *COMMAND]  # as nohup does
    with Process(folder, "run", "server.py", start=start) as process:
        process.ask(call("add", a=2, b=3))
        process.signal(signal.SIGHUP)
        process.ask(call("add", id=2, a=2, b=3))
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert process.err.rest() == []


def test_a_thread_that_a_handler_left_does_not_keep_the_process(folder: Path) -> None:
    with Process(folder, "run", "server.py") as process:
        process.say(call("threaded"))
        process.err.until("waiting")
        process.input.close()
        assert process.end() == 0


def test_ctrl_c_while_the_file_is_loaded_ends_it_quietly(tmp_path: Path) -> None:
    written(tmp_path, server='import sys, time\nprint("loading", flush=True)\ntime.sleep(3600)\n')
    with Process(tmp_path, "run", "server.py") as process:
        process.err.until("loading")
        process.signal(signal.SIGINT)
        assert process.end() == 130
        assert process.err.rest() == ["loading"]


# ---------------------------------------------------------------- a person at a terminal


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        ([*COMMAND, "run", "server.py"], "colonnade serve server.py"),
        ([sys.executable, "script.py"], 'server.run("http")'),
    ],
    ids=["colonnade run", "server.run()"],
)
def test_at_a_terminal_it_says_what_it_waits_for(
    folder: Path, arguments: list[str], instead: str
) -> None:
    written(folder, script=WEATHER + "\n\nserver.run()\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    os.close(theirs)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "weather 1.0 is waiting for an MCP client on standard input; clients start it "
            f"themselves; for HTTP, use {instead}; Ctrl-C stops it\n"
        )
        os.write(ours, json.dumps(call("add", a=2, b=3)).encode() + b"\n")
        assert process.stdout is not None
        assert '"5"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == (130 if arguments[1] == "-m" else 0)
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


@pytest.mark.parametrize("more", [{}, {"NO_COLOR": "1"}], ids=["", "NO_COLOR"])
def test_nothing_has_a_colour_even_at_a_terminal(folder: Path, more: dict[str, str]) -> None:
    written(folder, broken="def broken(:\n")
    for arguments in (["run", "broken.py"], ["run", "--help"], ["run", "sever.py"]):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="xterm-256color", **more),
        )
        os.close(theirs)
        said = b""
        try:
            while chunk := os.read(ours, 10_000):
                said += chunk
        except OSError:  # the other end of a terminal has gone
            pass
        process.wait(WAIT_S)
        os.close(ours)
        assert b"server.py" in said or b"broken.py" in said
        assert b"\x1b" not in said


# ---------------------------------------------------------------- what is told and logged


def test_why_a_tool_failed_is_told_only_with_debug(folder: Path) -> None:
    for options, told in (([], False), (["--debug"], True)):
        with Process(folder, "run", "server.py", *options) as process:
            answer = text(process.ask(call("fails")))
            assert answer.startswith("fails failed (id ")
            assert ("the reason" in answer) is told
            process.err.until("fails failed (id ")


def test_the_log_is_json_on_request(folder: Path) -> None:
    with Process(folder, "run", "server.py", "--log-json") as process:
        answer = text(process.ask(call("fails")))
        process.input.close()
        assert process.end() == 0
        (line,) = map(json.loads, process.err.rest())
        assert line["level"] == "error"
        assert line["logger"] == "colonnade.server"
        assert line["message"].startswith(answer)
        assert line["error"].endswith("KeyError: 'the reason'")


def test_an_error_is_a_line_of_the_log_too(folder: Path) -> None:
    written(folder, fails="raise ValueError('no')\n")
    done = command(folder, "run", "fails.py", "--log-json")
    assert done.returncode == 1
    (line,) = map(json.loads, done.stderr.splitlines())
    assert line["message"] == "fails.py could not be loaded: ValueError: no"
    assert line["error"].endswith("ValueError: no\n")


def test_the_log_settings_are_read_from_the_environment_too(folder: Path) -> None:
    with Process(folder, "run", "server.py", COLONNADE_LOG_JSON="1") as process:
        answer = text(process.ask(call("fails")))
        process.input.close()
        assert process.end() == 0
        (line,) = map(json.loads, process.err.rest())
        assert line["message"].startswith(answer)
    with Process(folder, "run", "server.py", COLONNADE_LOG_LEVEL="critical") as process:
        assert text(process.ask(call("fails"))).startswith("fails failed (id ")
        process.input.close()
        assert process.end() == 0
        assert process.err.rest() == []


def test_an_option_of_the_log_overrides_the_environment(folder: Path) -> None:
    level = ("--log-level", "error")
    with Process(folder, "run", "server.py", *level, COLONNADE_LOG_LEVEL="critical") as process:
        process.ask(call("fails"))
        process.err.until("fails failed (id ")
    done = command(folder, "run", "server.py", COLONNADE_LOG_LEVEL="loud")
    assert done.returncode == 2
    assert done.stderr.startswith("colonnade: COLONNADE_LOG_LEVEL: 'loud' is not a log level")


@pytest.mark.parametrize("level", [(), ("--log-level", "info")], ids=["default", "with a level"])
def test_the_traceback_of_a_crash_has_only_the_frames_of_the_user(
    folder: Path, level: tuple[str, ...]
) -> None:
    with Process(folder, "run", "server.py", *level) as process:
        process.ask(call("fails"))
        process.input.close()
        assert process.end() == 0
        lines = process.err.rest()
    frames = [line for line in lines if line.startswith("  File ")]
    assert frames == [f'  File "{folder}/server.py", line 34, in fails']
    assert lines[-1] == "KeyError: 'the reason'"
    with Process(folder, "run", "server.py", "--debug") as process:
        process.ask(call("fails"))
        process.err.until("/colonnade/")


# ---------------------------------------------------------------- what it costs


def test_it_loads_what_the_script_itself_would_and_the_parser(tmp_path: Path) -> None:
    written(tmp_path, server=LOADED)
    # New processes both: the fork server of the tests has loaded more.
    script, run = (
        subprocess.run(
            [*start, "server.py"],
            cwd=tmp_path,
            input=json.dumps(call("loaded")) + "\n",
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env=environment(),
        )
        for start in ([sys.executable], [*COMMAND, "run"])
    )
    plain, ours = (
        set(json.loads(one.stdout)["result"]["structuredContent"]) for one in (script, run)
    )
    more = {name for name in ours - plain if not name.startswith(("click", "colonnade.cli"))}
    # `python -m` loads runpy; gettext is the parser's, and gc is for what the command itself loads.
    parser = {"gettext", "runpy", "pkgutil", "importlib.util", "importlib._abc"}
    assert more <= {*parser, "gc", "server"}
