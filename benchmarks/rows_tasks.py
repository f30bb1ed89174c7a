"""Rows about tasks: their creation on SQLite, and a poll against a plain call.

Creation is compared with group-committed inserts into the same kind of file: those of a tool that
does nothing else, over HTTP as the tasks are, and those of the store alone, without a server. The
latter are compared with creation in one process, too: without HTTP, and without JSON-RPC.
"""

import contextlib
import json
from collections.abc import Callable

from benchmarks.figures import Figure
from benchmarks.load_http import Load, post
from benchmarks.rows import ADD, Lane, Opening, Sample, Settings, counted, in_turns
from benchmarks.tasks_in_process import (
    AT_ONCE,
    creations,
    in_process,
    store_inserts,
    whole_requests,
)
from benchmarks.wire import FIRST_ID, MODERN, Ask, Wrong, call

SERVER = "tasks"
EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}}}
WHOLE = "whole requests"
CALL, INSERT, STORE, STORED = "plain call", "inserts", "store alone", "poll, from the store"


def _is_task(result: "dict[str, object]") -> str | None:
    return None if result.get("resultType") == "task" else f"no task: {str(result)[:200]}"


def _is_working(result: "dict[str, object]") -> str | None:
    return None if result.get("status") == "working" else f"not working: {str(result)[:200]}"


CREATE = Ask("tools/call", {"name": "job", "arguments": {}, "_meta": DECLARED}, _is_task)
INSERTED = call("insert", "inserted")


def tasks_row(settings: Settings) -> list[Figure]:
    """Tasks that are created in a second, and how long a poll takes."""
    title = f"tasks created on SQLite, HTTP, {AT_ONCE} at once"
    creation = Figure("task-create", title, "tasks/s", "more")
    creation.notes.append(f"{STORE}: SqliteStore.add of the same size, without HTTP")
    openings: dict[str, Opening] = {
        "colonnade": _rate(settings, CREATE),
        INSERT: _rate(settings, INSERTED),
        STORE: in_process(store_inserts),
    }
    in_turns(creation, openings, settings)
    title = f"tasks created on SQLite, in process, {AT_ONCE} at once"
    direct = Figure("task-create-direct", title, "tasks/s", "more")
    direct.notes.append(f"{WHOLE}, and {INSERT}, which are those of a tool: from bytes to bytes")
    direct_openings: dict[str, Opening] = {
        "colonnade": in_process(creations),
        STORE: in_process(store_inserts),
        WHOLE: in_process(whole_requests(CREATE)),
        INSERT: in_process(whole_requests(INSERTED)),
    }
    in_turns(direct, direct_openings, settings)
    poll = Figure("task-poll", "a poll of a task, HTTP, 32 connections", "µs", "less", ours="poll")
    # The first task runs here, the second does not.
    polls: dict[str, Opening] = {
        "poll": _each(settings, lambda: _poll(settings, running=True)),
        CALL: _each(settings, lambda: ADD),
        STORED: _each(settings, lambda: _poll(settings, running=False)),
    }
    settings.stage.end(SERVER, "http")
    in_turns(poll, polls, settings)
    settings.stage.end(SERVER, "http")
    return [creation, direct, poll]


def _rate(settings: Settings, ask: Ask) -> Opening:
    """Calls a second, so many at once."""

    def open(stack: contextlib.ExitStack) -> Lane:
        url = settings.stage.http(SERVER, "http")
        load = stack.enter_context(Load(url, ask, connections=AT_ONCE))
        return counted(load, settings.stage.process(SERVER, "http").pid)

    return open


def _each(settings: Settings, ask: Callable[[], Ask]) -> Opening:
    """Microseconds of a call, of those on all connections together."""

    def open(stack: contextlib.ExitStack) -> Lane:
        url = settings.stage.http(SERVER, "http")
        load = stack.enter_context(Load(url, ask()))
        rounds = counted(load, settings.stage.process(SERVER, "http").pid)

        def lane(seconds: float) -> Sample:
            sample = rounds(seconds)
            return Sample(1e6 / sample.value, sample.cpu_us, sample.load_us)

        return lane

    return open


def _poll(settings: Settings, *, running: bool) -> Ask:
    """`tasks/get` of a new task; the first of a server is the one that runs."""
    id = _created(settings.stage.http(SERVER, "http"))
    if not running:
        id = _created(settings.stage.http(SERVER, "http"))
    return Ask("tasks/get", {"taskId": id, "_meta": DECLARED}, _is_working)


def _created(url: str) -> str:
    with Load(url, CREATE, connections=0) as load:
        before, after = load.request(CREATE, MODERN, None)
        answer = post(load.address, before + b"%d" % FIRST_ID + after)
    if answer.status != 200:
        raise Wrong(f"a task was not created: {answer.status} {answer.body[:200]!r}")
    return json.loads(answer.body)["result"]["taskId"]
