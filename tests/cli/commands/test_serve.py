"""`colonnade serve`: a file over HTTP."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.process import HUNG_UP, WAIT_S, WEATHER, Process, call, environment, written

SERVER = (
    """
import asyncio, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from colonnade import Server


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


@asynccontextmanager
async def lifespan(server: Server):
    say("entered")
    yield
    say("left")

"""
    + WEATHER.replace('"1.0"', '"1.0", lifespan=lifespan')
    + """

@server.tool
async def hold(file: str) -> str:
    say("holding")
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return "let go"


@server.tool
async def stubborn() -> str:
    say("holding")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@server.tool
async def threaded() -> str:
    say("holding")
    return await asyncio.to_thread(time.sleep, 3600)


@server.tool(inline=True)
def stuck() -> str:
    say("holding")
    time.sleep(3600)
    return "never"


@server.tool
def fails() -> str:
    raise KeyError("the reason")
"""
)
HANGS = """
import asyncio, sys
from contextlib import asynccontextmanager
from colonnade import Server


@asynccontextmanager
async def lifespan(server: Server):
    print("starting", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    yield


server = Server("weather", lifespan=lifespan)
"""
SERVE = ("serve", "server.py", "--port", "0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=SERVER)


def is_served(process: Process) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=WAIT_S)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def until_not_served(process: Process) -> None:
    end = time.monotonic() + WAIT_S
    while is_served(process):
        assert time.monotonic() < end


# ---------------------------------------------------------------- the line


def test_one_line_says_what_is_served_and_where_and_nothing_else_is_said(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER)
    with Process(tmp_path, *SERVE) as process:
        line = process.up()
        assert line == f"weather 1.0 on http://127.0.0.1:{process.port}/mcp"
        assert process.port > 0
        status, answer = process.post(call("add", a=2, b=3))
        assert (status, answer["result"]["content"][0]["text"]) == (200, "5")
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert (process.out.rest(), process.err.rest()) == ([line], [])


def test_a_script_that_serves_itself_says_the_same(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER + '\n\nserver.run("http", port=0)\n')
    process = subprocess.Popen(
        [sys.executable, "server.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("weather 1.0 on http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        process.kill()
        process.communicate()


def test_a_name_of_several_lines_is_still_one_line(tmp_path: Path) -> None:
    written(tmp_path, server='from colonnade import Server\n\nserver = Server("a\\nb ü")\n')
    with Process(tmp_path, *SERVE, PYTHONIOENCODING="ascii") as process:
        assert process.up().startswith("a b \\xfc on http://")


def test_who_does_not_read_the_line_does_not_end_it(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        assert process.process.stdout is not None
        process.signal(signal.SIGTERM)
        assert process.end() == 0


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGTERM, 0, []), (signal.SIGINT, 130, []), (signal.SIGHUP, 0, [HUNG_UP])],
    ids=["SIGTERM", "Ctrl-C", "SIGHUP"],
)
def test_a_signal_lets_calls_finish(
    folder: Path, number: signal.Signals, code: int, said: list[str]
) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("hold", file=str(folder / "go")))
        process.err.until("holding")
        process.signal(number)
        until_not_served(process)
        (folder / "go").touch()
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["result"]["content"][0]["text"] == "let go"
        assert process.end() == code
        found = [
            line[line.find("WARNING") :] if HUNG_UP in line else line for line in process.err.rest()
        ]
        assert found == ["entered", "holding", *said, "left"]


@pytest.mark.parametrize("tool", ["hold", "stubborn", "threaded"])
def test_a_second_ctrl_c_does_not_wait(folder: Path, tool: str) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("hold", file="no") if tool == "hold" else call(tool))
        process.err.until("holding")
        process.signal(signal.SIGINT)
        until_not_served(process)
        process.signal(signal.SIGINT)
        assert process.end() == 130
        connection.close()
        assert process.err.rest() == ["entered", "holding", "left"]


def test_ctrl_c_ends_even_a_loop_that_is_stuck(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("stuck"))
        process.err.until("holding")
        for _ in range(int(WAIT_S / 0.05)):
            process.signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(0.05)
                break
        assert process.end() == -signal.SIGINT  # which a shell calls 130
        connection.close()
        assert process.err.rest() == ["entered", "holding"]


def test_ctrl_c_does_not_wait_for_a_lifespan_that_does_not_start(tmp_path: Path) -> None:
    written(tmp_path, server=HANGS)
    with Process(tmp_path, *SERVE) as process:
        process.err.until("starting")
        process.signal(signal.SIGINT)
        assert process.end() == 130
        assert (process.out.rest(), process.err.rest()) == ([], ["starting"])


# ---------------------------------------------------------------- who may call


def test_names_and_origins_are_let_in_as_they_are_given(folder: Path) -> None:
    more = ("--host", "0.0.0.0", "--allow-host", "a.example", "--allow-host", "b.example:*")
    with Process(folder, *SERVE, *more, "--allow-origin", "https://app.example") as process:
        assert process.up().startswith("weather 1.0 on http://0.0.0.0:")
        for headers, status in (
            ({"host": "a.example"}, 200),
            ({"host": "b.example:77"}, 200),
            ({"host": "c.example"}, 403),
            ({"host": f"127.0.0.1:{process.port}"}, 200),
            ({"host": "10.0.0.1:8000"}, 403),
            ({"host": "a.example", "origin": "https://app.example"}, 200),
            ({"host": "a.example", "origin": "https://other.example"}, 403),
        ):
            assert process.post(call("add", a=2, b=3), **headers)[0] == status, headers


def test_the_path_is_the_one_that_is_given(folder: Path) -> None:
    with Process(folder, *SERVE, "--path", "/weather/") as process:
        assert process.up().endswith("/weather")
        assert process.post(call("add", a=2, b=3))[0] == 404


# ---------------------------------------------------------------- what is told and logged


def test_why_a_tool_failed_is_told_only_with_debug(folder: Path) -> None:
    for options, told in (([], False), (["--debug"], True)):
        with Process(folder, *SERVE, *options) as process:
            process.up()
            _, answer = process.post(call("fails"))
            words = answer["result"]["content"][0]["text"]
            assert ("the reason" in words) is told


def test_the_log_is_json_on_request(tmp_path: Path) -> None:
    text = SERVER.replace('say("entered")', "").replace('say("left")', "")
    written(tmp_path, server="import logging\nlogging.basicConfig()\n" + text)
    with Process(tmp_path, *SERVE, "--log-json") as process:
        process.up()
        process.post(call("fails"))
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        (line,) = map(json.loads, process.err.rest())
        assert (line["level"], line["logger"]) == ("error", "colonnade.server")
        assert "the reason" in line["error"]


def test_a_log_line_has_the_time_and_the_level_unless_the_file_sets_up_logging(
    tmp_path: Path,
) -> None:
    crashes = WEATHER + "\n\n@server.tool\ndef fails() -> str:\n    raise KeyError('why')\n"
    own = "\nimport logging\nlogging.basicConfig(format='MINE %(message)s')\n"
    written(tmp_path, server=crashes, other=crashes + own)
    with Process(tmp_path, "serve", "server.py", "--port", "0") as process:
        process.up()
        process.post(call("fails"))
        line = process.err.until("fails failed (id ")
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ERROR colonnade\.server: fails ", line)
    with Process(tmp_path, "serve", "other.py", "--port", "0") as process:
        process.up()
        process.post(call("fails"))
        assert process.err.until("fails failed (id ").startswith("MINE fails failed")
