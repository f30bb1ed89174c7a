"""`colonnade serve --workers`: several processes on one port."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.process import META, WAIT_S, Process, call, command, written

JSON = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
DECLARED = {**META, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}

SERVER = """
import asyncio, os, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated
from colonnade import Ask, Context, Server
from colonnade.store.sqlite import SqliteStore


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


@asynccontextmanager
async def lifespan(server: Server):
    say("entered", os.getpid())
    yield
    say("left", os.getpid())


server = Server("press", version="1.0", lifespan=lifespan, store=SqliteStore("press.db"))


@server.tool
def where() -> int:
    return os.getpid()


@server.tool(inline=True)
def block(file: str) -> int:
    say("blocking", os.getpid())
    parent = os.getppid()
    while not Path(file).exists() and os.getppid() == parent:  # killed by a test that failed
        time.sleep(0.01)
    return os.getpid()


@server.tool
async def hold(file: str) -> int:
    say("holding", os.getpid())
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return os.getpid()


@server.tool
def copies(number: Annotated[int, Ask("How many?")]) -> tuple[int, int]:
    return number, os.getpid()
"""
TASK = """

@server.tool(task=True)
async def book(topic: str) -> str:
    return f"{topic} by {os.getpid()}"
"""
IN_MEMORY = SERVER.replace(', store=SqliteStore("press.db")', "")
SERVE = ("serve", "server.py", "--port", "0", "--workers", "2")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a socket cannot be inherited")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=SERVER)


def structured(answer: JSON) -> Any:
    return answer["result"]["structuredContent"]


def older(process: Process, message: JSON) -> Any:
    """What a tool returns to a client of 2025-11-25."""
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=WAIT_S)
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
    }
    connection.request("POST", "/mcp", json.dumps(message), headers)
    try:
        return structured(json.loads(connection.getresponse().read()))
    finally:
        connection.close()


def pids(process: Process) -> list[int]:
    """The workers, in the order of their start."""
    return [int(process.err.until("entered").split()[1]) for _ in range(2)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended stays until its parent, or that of the machine, has asked for it.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def ask(process: Process, method: str, **params: Any) -> JSON:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {**params, "_meta": DECLARED},
    }
    return process.post(message)[1]["result"]


# ---------------------------------------------------------------- what they serve


def test_one_line_says_where_and_every_worker_answers_there(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        line = process.up()
        assert line == f"press 1.0 on http://127.0.0.1:{process.port}/mcp"
        workers = set(pids(process))
        assert len(workers) == 2
        assert process.process.pid not in workers
        connection = process.begin(call("block", file=str(folder / "go")))
        blocked = int(process.err.until("blocking").split()[1])
        [other] = workers - {blocked}
        assert structured(process.post(call("where"))[1]) == other
        (folder / "go").touch()
        assert structured(json.loads(connection.getresponse().read())) == blocked
        connection.close()
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert process.out.rest() == [line]
        assert sorted(process.err.rest()[-2:]) == sorted(f"left {pid}" for pid in workers)


def test_a_worker_goes_on_with_the_request_state_that_another_encrypted(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        workers = set(pids(process))
        connection = process.begin(call("block", file=str(folder / "go")))
        blocked = int(process.err.until("blocking").split()[1])
        asked = ask(process, "tools/call", name="copies", arguments={})
        assert asked["resultType"] == "input_required"
        (folder / "go").touch()
        connection.getresponse().read()
        connection.close()
        # Now the other one is blocked.
        [asking] = workers - {blocked}
        held: list[Any] = []
        while True:
            held.append(process.begin(call("block", file=str(folder / "again"))))
            if int(process.err.until("blocking").split()[1]) == asking:
                break
            (folder / "again").touch()
            released = held.pop()
            released.getresponse().read()
            released.close()
            (folder / "again").unlink()
        [(key, form)] = asked["inputRequests"].items()
        [field] = form["params"]["requestedSchema"]["properties"]
        answered = ask(
            process,
            "tools/call",
            name="copies",
            arguments={},
            requestState=asked["requestState"],
            inputResponses={key: {"action": "accept", "content": {field: 3}}},
        )
        (folder / "again").touch()
        assert answered["structuredContent"] == [3, blocked]
        for one in held:
            one.getresponse().read()
            one.close()


def test_tasks_are_the_same_in_all_workers(tmp_path: Path) -> None:
    written(tmp_path, server=SERVER + TASK)
    with Process(tmp_path, *SERVE) as process:
        process.up()
        for number in range(20):
            id = ask(process, "tools/call", name="book", arguments={"topic": f"t{number}"})[
                "taskId"
            ]
            while ask(process, "tasks/get", taskId=id)["status"] != "completed":
                time.sleep(0.01)
            result = ask(process, "tasks/get", taskId=id)["result"]
            assert result["content"][0]["text"].startswith(f"t{number} by ")


def test_stateless_needs_no_store_and_serves_older_clients(tmp_path: Path) -> None:
    written(tmp_path, server=IN_MEMORY)
    with Process(tmp_path, *SERVE, "--stateless") as process:
        process.up()
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "where"}}
        seen = {older(process, message)["result"] for _ in range(20)}
        assert seen <= set(pids(process))


# ---------------------------------------------------------------- workers that die


def test_a_worker_that_dies_is_started_again(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        one, two = pids(process)
        os.kill(one, signal.SIGKILL)
        said = process.err.until("ended")
        assert said == (
            f"colonnade: worker process {one} ended with signal 9; another one is started"
        )
        third = int(process.err.until("entered").split()[1])
        assert third not in (one, two)
        until(lambda: structured(process.post(call("where"))[1]) in (two, third))
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert len(process.out.rest()) == 1


def test_workers_that_die_again_and_again_end_the_command(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        one, two = pids(process)
        for _ in range(4):
            os.kill(one, signal.SIGKILL)
            one = int(process.err.until("entered").split()[1])
        os.kill(one, signal.SIGKILL)
        assert process.end() == 1
        assert process.err.rest()[-2:] == [
            f"left {two}",
            "colonnade: a worker process ended 5 times in a row within 10 s of its start, the last time with signal 9; its messages are above",
        ]
        assert not is_alive(two)


def test_workers_end_with_their_parent(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        workers = pids(process)
        process.process.kill()
        process.err.until("left")
        process.err.until("left")
        until(lambda: not any(map(is_alive, workers)))


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)],
    ids=["SIGTERM", "Ctrl-C", "SIGHUP"],
)
def test_a_signal_lets_calls_finish(folder: Path, number: signal.Signals, code: int) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("hold", file=str(folder / "go")))
        holding = int(process.err.until("holding").split()[1])
        process.signal(number)
        process.err.until("left")  # the other one
        (folder / "go").touch()
        assert structured(json.loads(connection.getresponse().read())) == holding
        connection.close()
        assert process.end() == code


def test_a_second_ctrl_c_does_not_wait(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("hold", file="never"))
        process.err.until("holding")
        process.signal(signal.SIGINT)
        process.err.until("left")
        process.signal(signal.SIGINT)
        assert process.end() == 130
        connection.close()


def test_a_third_ctrl_c_ends_even_a_worker_whose_loop_is_stuck(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("block", file="never"))
        stuck = int(process.err.until("blocking").split()[1])
        for _ in range(int(WAIT_S / 0.05)):
            process.signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.process.wait(0.05)
                break
        connection.close()
        # The last signal may arrive while the interpreter ends, without its handler.
        assert process.end() in (130, -signal.SIGINT)
        assert not is_alive(stuck)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("server", "arguments", "words"),
    [
        (IN_MEMORY, (), "press has its state in memory (MemoryStore)"),
        (IN_MEMORY, (), "; or use --stateless\n"),
        (IN_MEMORY + TASK, ("--stateless",), "and --workers needs a store that several processes"),
        (SERVER, ("--reload",), "--reload restarts one process, and --workers starts several"),
        (SERVER, ("--workers", "0"), "--workers: '0' is not a number from 1"),
        (SERVER, ("--host", "0.0.0.0"), "the allowed Host headers must be given"),
    ],
)
def test_what_cannot_be_is_said_once(
    tmp_path: Path, server: str, arguments: tuple[str, ...], words: str
) -> None:
    written(tmp_path, server=server)
    done = command(tmp_path, *SERVE, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("colonnade:") == done.stderr.count("\n") == 1


def test_an_error_in_the_file_is_said_once(tmp_path: Path) -> None:
    written(tmp_path, server="raise ValueError('no key')\n")
    done = command(tmp_path, *SERVE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("server.py could not be loaded: ValueError: no key") == 1


def test_a_port_that_is_in_use_is_said_before_anything_is_started(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = command(folder, "serve", "server.py", "--workers", "2", "--port", port)
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert done.returncode == 4


def test_the_environment_can_give_the_number(folder: Path) -> None:
    with Process(folder, "serve", "server.py", "--port", "0", COLONNADE_WORKERS="2") as process:
        process.up()
        assert len(set(pids(process))) == 2
