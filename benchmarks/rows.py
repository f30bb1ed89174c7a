"""What is measured: one row after another, each with its entrants in turns.

Rules: a row never judges; `bars` does. An entrant that cannot be measured is named with the reason,
and the row goes on without it.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.load_http import Load
from benchmarks.load_stdio import StdioLoad
from benchmarks.peers import NAMES, OWN, Missing, Stage
from benchmarks.wire import MODERN, SESSIONS, Ask, Wrong, call, lists

CONNECTIONS = 32
KIB = 1024
MIB = 1024 * KIB
# Before the first round: caches, compilers that work while a program runs, learnt answers.
WARM_S, QUICK_WARM_S = 0.3, 0.1


@dataclass(frozen=True)
class Sample:
    """One round: the number, and the microseconds of its core that a call took of the server (or
    of the entrant), and of the load; 0 where the system does not say."""

    value: float
    cpu_us: float = 0.0
    load_us: float = 0.0


# Measures for so many seconds.
Lane = Callable[[float], Sample]
# Starts an entrant for a row; what must be closed again goes on the stack.
Opening = Callable[[contextlib.ExitStack], Lane]


@dataclass
class Settings:
    """How long, how often, and of whom."""

    stage: Stage
    rounds: int
    seconds: float
    quick: bool = False
    entrants: tuple[str, ...] = NAMES
    failures: list[str] = field(default_factory=list[str])


def in_turns(figure: Figure, openings: Mapping[str, Opening], settings: Settings) -> Figure:
    """Measure several, a round of each after the other."""
    with contextlib.ExitStack() as stack:
        lanes: dict[str, Lane] = {}
        for name, opening in openings.items():
            try:
                lane = opening(stack)
                lane(QUICK_WARM_S if settings.quick else WARM_S)
                lanes[name] = lane
            except (Missing, Wrong, OSError) as error:
                leave_out(figure, name, error, settings)
        for _ in range(settings.rounds):
            for name in list(lanes):
                try:
                    sample = lanes[name](settings.seconds)
                except (Wrong, OSError) as error:
                    del lanes[name]
                    figure.samples.pop(name, None)
                    leave_out(figure, name, error, settings)
                else:
                    figure.samples.setdefault(name, []).append(sample.value)
                    if sample.cpu_us:
                        figure.cpu.setdefault(name, []).append(sample.cpu_us)
                    if sample.load_us:
                        figure.load.setdefault(name, []).append(sample.load_us)
    return figure


def leave_out(figure: Figure, name: str, error: Exception, settings: Settings) -> None:
    """Remember why an entrant is not in a figure; wrong answers fail the run."""
    figure.missing[name] = str(error)
    if not isinstance(error, Missing):
        settings.failures.append(f"{figure.name}, {name}: {error}")


def counted(load: Load | StdioLoad, pid: int) -> Lane:
    """Rounds of a load, and what each call took of the server's core."""

    def lane(seconds: float) -> Sample:
        before, own = cpu_s(pid), time.process_time()
        rate = load.round(seconds)
        own = time.process_time() - own
        taken = cpu_s(pid) - before
        return Sample(rate, taken / load.calls * 1e6, own / load.calls * 1e6)

    return lane


def cpu_s(pid: int) -> float:
    """How long the threads of a process ran so far; 0 where the system does not say."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        return 0.0


# ---------------------------------------------------------------- HTTP and stdio

ADD = call("add", "7", a=3, b=4)
ADD_SYNC = call("add_sync", "7", a=3, b=4)
LONG = call("length", str(64 * KIB), text="y" * 64 * KIB)
BLOB = call("blob", "x" * MIB)
STEPS = call("steps", "done", notices=10)


@dataclass(frozen=True)
class Way:
    """How a row over HTTP differs from the first: what is asked, and how the servers are set up."""

    title: str
    ask: Ask
    # How a server is started that has ways of its own; ours and the limit have none.
    way: str = "http"
    era: str = MODERN
    connections: int = CONNECTIONS
    tools: int = 0
    limit: bool = True


HTTP: dict[str, Way] = {
    "http-async": Way("HTTP 2026-07-28, async tool", ADD),
    "http-sync": Way("HTTP 2026-07-28, sync tool in a thread", ADD_SYNC),
    "http-64k": Way("HTTP 2026-07-28, 64 KiB argument", LONG),
    "http-1m": Way("HTTP 2026-07-28, 1 MiB result", BLOB, connections=8),
    "http-stream": Way("HTTP 2026-07-28, ten progress notices", STEPS, "http-stream", limit=False),
    "session-async": Way("HTTP 2025-11-25 session, async tool", ADD, "session", SESSIONS),
    "session-sync": Way("HTTP 2025-11-25 session, sync tool", ADD_SYNC, "session", SESSIONS),
    "session-64k": Way("HTTP 2025-11-25 session, 64 KiB argument", LONG, "session", SESSIONS),
    "session-1m": Way("HTTP 2025-11-25 session, 1 MiB result", BLOB, "session", SESSIONS, 8),
    "session-stream": Way(
        "HTTP 2025-11-25 session, ten progress notices",
        STEPS,
        "session-stream",
        SESSIONS,
        limit=False,
    ),
    "list-10": Way("tools/list, 10 tools", Ask("tools/list", {}, lists(10)), tools=10, limit=False),
    "list-1000": Way(
        "tools/list, 1,000 tools",
        Ask("tools/list", {}, lists(1000)),
        tools=1000,
        limit=False,
        connections=4,
    ),
}


def http_row(name: str, way: Way, settings: Settings) -> list[Figure]:
    """Calls a second over HTTP."""

    def opening(entrant: str) -> Opening:
        def open(stack: contextlib.ExitStack) -> Lane:
            own = "http" if entrant in OWN else way.way
            arguments = (own, str(way.tools)) if way.tools else (own,)
            url = settings.stage.http(entrant, *arguments)
            load = stack.enter_context(Load(url, way.ask, era=way.era, connections=way.connections))
            return counted(load, settings.stage.process(entrant, *arguments).pid)

        return open

    figure = Figure(name, f"{way.title}, {way.connections} connections", "calls/s", "more")
    chosen = [one for one in settings.entrants if one != "limit" or way.limit]
    return [in_turns(figure, {one: opening(one) for one in chosen}, settings)]


STDIO = {"stdio-16": ("stdio, pipelined (16)", 16), "stdio-1": ("stdio, one at a time", 1)}


def stdio_row(name: str, settings: Settings) -> list[Figure]:
    """Calls a second over pipes."""
    title, window = STDIO[name]

    def opening(entrant: str) -> Opening:
        def open(stack: contextlib.ExitStack) -> Lane:
            process = settings.stage.process(entrant, "stdio")
            stack.callback(settings.stage.end, entrant, "stdio")
            return counted(StdioLoad(process, ADD, window), process.pid)

        return open

    figure = Figure(name, title, "calls/s", "more")
    return [in_turns(figure, {one: opening(one) for one in settings.entrants}, settings)]


def ceiling_row(settings: Settings) -> list[Figure]:
    """What the load itself can do, against the least that can answer; the limit is far below."""
    settings = replace(settings, entrants=("echo", "limit"))
    http = http_row("http-async", HTTP["http-async"], settings)[0]
    stdio = stdio_row("stdio-16", settings)[0]
    http.name, http.title = "ceiling-http", "what the load can do, HTTP, 32 connections"
    stdio.name, stdio.title = "ceiling-stdio", "what the load can do, stdio, pipelined (16)"
    http.ours = stdio.ours = "limit"
    return [http, stdio]
