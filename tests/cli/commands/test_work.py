"""`colonnade work`: a process that runs tasks, beside one that serves and runs none."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cli.process import META, WAIT_S, WEATHER, Process, command, written

JSON = dict[str, Any]
EXTENSION = "io.modelcontextprotocol/tasks"
CAPABILITIES = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
DECLARED = {**META, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
TERMINAL = ("completed", "failed", "cancelled")

PRESS = """
import asyncio, os, sys, time
from contextlib import asynccontextmanager
from pathlib import Path
from colonnade import Context, Server, TaskOptions
from colonnade.store.sqlite import SqliteStore


@asynccontextmanager
async def lifespan(server: Server):
    print("entered", file=sys.stderr, flush=True)
    yield
    print("left", file=sys.stderr, flush=True)


server = Server("press", version="1.0", lifespan=lifespan, store=SqliteStore("press.db"))


@server.tool(task=True)
async def where() -> tuple[int, float]:
    return os.getpid(), time.time()


@server.tool(task=True)
async def hold(file: str) -> str:
    print("holding", os.getpid(), file=sys.stderr, flush=True)
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return f"let go by {os.getpid()}"


@server.tool(task=True)
async def order(ctx: Context) -> str:
    return f"{await ctx.elicit('How many?', int)} by {os.getpid()}"
"""
FRONT = ("serve", "server.py", "--port", "0", "--no-task-runner")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=PRESS)


class Front(Process):
    """A process that serves and runs no tasks."""

    def request(self, method: str, **params: Any) -> JSON:
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**params, "_meta": DECLARED},
        }
        _, answer = self.post(message)
        return answer["result"]

    def create(self, tool: str, **arguments: Any) -> str:
        created = self.request("tools/call", name=tool, arguments=arguments)
        assert created["resultType"] == "task", created
        return created["taskId"]

    def reached(self, id: str, *statuses: str) -> JSON:
        end = time.monotonic() + WAIT_S
        while (state := self.request("tasks/get", taskId=id))["status"] not in statuses:
            assert time.monotonic() < end, state
        return state

    def result(self, id: str) -> Any:
        state = self.reached(id, *TERMINAL)
        assert state["status"] == "completed", state
        result = state["result"]
        return result.get("structuredContent", result["content"][0]["text"])


def working(process: Process) -> Process:
    process.err.until("runs its tasks")
    return process


def test_a_worker_runs_what_a_process_without_a_task_runner_creates_within_a_second(
    folder: Path,
) -> None:
    with Front(folder, *FRONT) as front, Process(folder, "work", "server.py") as worker:
        front.up()
        working(worker)
        delays: list[float] = []
        for _ in range(5):
            began = time.time()
            pid, at = front.result(front.create("where"))
            assert pid == worker.process.pid
            delays.append(at - began)
        print(f"a task began after {[f'{delay * 1000:.0f} ms' for delay in delays]}")
        assert min(delays) < 1.0


def test_a_task_waits_for_the_first_worker(folder: Path) -> None:
    with Front(folder, *FRONT) as front:
        front.up()
        id = front.create("where")
        assert front.request("tasks/get", taskId=id)["status"] == "working"
        with Process(folder, "work", "server.py") as worker:
            assert front.result(id)[0] == worker.process.pid


def test_one_line_says_what_it_does_and_sigterm_gives_the_tasks_back(folder: Path) -> None:
    with (
        Front(folder, *FRONT) as front,
        Process(folder, "work", "server.py", "--max-running", "3") as one,
    ):
        front.up()
        line = one.err.until("runs its tasks")
        assert line == (
            "colonnade: press 1.0 runs its tasks, 3 at once; SIGTERM and Ctrl-C give them back"
        )
        id = front.create("hold", file=str(folder / "go"))
        one.err.until("holding")
        with working(Process(folder, "work", "server.py")) as two:
            one.signal(signal.SIGTERM)
            assert one.end() == 0
            two.err.until("holding")  # at once, not when a lease lapses
            (folder / "go").touch()
            text = front.result(id)
            assert text == f"let go by {two.process.pid}"
        assert one.out.rest() == []
        assert one.err.rest() == ["entered", line, f"holding {one.process.pid}", "left"]


def test_ctrl_c_ends_it_with_130(folder: Path) -> None:
    with working(Process(folder, "work", "server.py")) as worker:
        worker.signal(signal.SIGINT)
        assert worker.end() == 130
        assert worker.err.rest()[-1] == "left"


def test_a_response_and_a_cancellation_get_to_the_worker(folder: Path) -> None:
    with Front(folder, *FRONT) as front, Process(folder, "work", "server.py") as worker:
        front.up()
        working(worker)
        id = front.create("order")
        [key] = front.reached(id, "input_required")["inputRequests"]
        response = {"action": "accept", "content": {"value": 3}}
        front.request("tasks/update", taskId=id, inputResponses={key: response})
        assert front.result(id) == f"3 by {worker.process.pid}"
        held = front.create("hold", file="never")
        worker.err.until("holding")
        front.request("tasks/cancel", taskId=held)
        assert front.request("tasks/get", taskId=held)["status"] == "cancelled"
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_worker_runs_tasks_although_the_file_says_that_servers_run_none(tmp_path: Path) -> None:
    server = PRESS.replace("store=", "tasks=TaskOptions(max_running=0), store=")
    written(tmp_path, server=server)
    front = Front(tmp_path, "serve", "server.py", "--port", "0")
    with front, working(Process(tmp_path, "work", "server.py")) as worker:
        front.up()
        assert front.result(front.create("where"))[0] == worker.process.pid


def test_the_log_is_json_if_it_is_to_be(folder: Path) -> None:
    arguments = ("work", "server.py", "--log-json", "--log-level", "info")
    with Process(folder, *arguments) as worker:
        said = json.loads(worker.err.until("runs its tasks"))
        assert said["level"] == "info"
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0


def test_a_server_without_tasks_is_refused(tmp_path: Path) -> None:
    written(tmp_path, server=WEATHER)
    done = command(tmp_path, "work", "server.py")
    assert done.returncode == 2
    assert done.stderr == (
        "colonnade: weather has no tool that runs as a task, and so there is nothing to run; "
        "write @server.tool(task=True) above a function, or use colonnade serve\n"
    )


@pytest.mark.parametrize("arguments", [("work", "server.py"), FRONT])
def test_a_store_in_memory_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    written(tmp_path, server=PRESS.replace('store=SqliteStore("press.db")', "debug=False"))
    done = command(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("colonnade: press has its state in memory (MemoryStore)")
    assert 'Server(…, store=SqliteStore("server.db"))' in done.stderr


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_a_number_of_tasks_that_is_none_is_refused(folder: Path, number: str) -> None:
    done = command(folder, "work", "server.py", "--max-running", number)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--max-running: '{number}' is not a number from 1" in done.stderr


def test_the_environment_can_say_that_a_process_runs_no_tasks(folder: Path) -> None:
    front = Front(folder, "serve", "server.py", "--port", "0", COLONNADE_NO_TASK_RUNNER="1")
    with front:
        front.up()
        id = front.create("where")
        with Process(folder, "work", "server.py") as worker:
            assert front.result(id)[0] == worker.process.pid
