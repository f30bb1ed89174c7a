"""Rows about replicas on Redis: a session against one on the memory store, and several replicas.

A session of 2025-11-25 whose copy is in a replica needs no operation of the store: the commands that
Redis executes during the rounds are counted, and those that are not of a call are named. Throughput is
that of 1, 2 and 3 replicas which share two cores with the load and with Redis, so what counts is the
CPU time of a call, not the calls in a second.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.figures import Figure
from benchmarks.load_http import Load, RoundRobinLoad
from benchmarks.peers import LOAD_CORE, SERVER_CORE, Missing, Stage
from benchmarks.redis_server import CHECK, LEASE, CommandMonitor, RedisServer, redis_server
from benchmarks.rows import (
    ADD,
    CONNECTIONS,
    Lane,
    Opening,
    Sample,
    Settings,
    counted,
    cpu_s,
    in_turns,
)
from benchmarks.wire import SESSIONS

SERVER = "replica"
MEMORY, REDIS = "memory store", "Redis store"
REPLICAS = (1, 2, 3)
# A multiple of each number of replicas, so that every replica has as many connections as another.
LINES, LINES_PER_SESSION = 48, 6


def session_row(settings: Settings) -> list[Figure]:
    """Calls a second in sessions on Redis and on the memory store, and what Redis executes."""
    title = f"HTTP 2025-11-25 session, async tool, {CONNECTIONS} connections"
    rate = Figure("replicas-session", title, "calls/s", "more", ours=REDIS)
    operations = Figure(
        "replicas-operations", "store operations during these rounds", "operations", "less"
    )
    operations.ours = REDIS
    seen: Counter[str] = Counter()
    try:
        with redis_server() as redis, redis.monitor() as monitor:
            openings: dict[str, Opening] = {
                MEMORY: _session(settings, MEMORY, "memory"),
                REDIS: _counting(_session(settings, REDIS, redis.url), monitor, seen, operations),
            }
            in_turns(rate, openings, settings)
            settings.stage.end(SERVER, redis.url)
    except Missing as error:
        rate.missing[REDIS] = operations.missing[REDIS] = str(error)
        return [rate, operations]
    settings.stage.end(SERVER, "memory")
    named = ", ".join(f"{number} × {kind}" for kind, number in sorted(seen.items()))
    operations.notes.append(f"from the first round to the last: {named or 'no command'}")
    operations.notes.append(f"not of a call, and not counted: {LEASE}, {CHECK}")
    return [rate, by_cpu(rate, "replicas-session-cpu", title), operations]


def by_cpu(figure: Figure, name: str, title: str) -> Figure:
    """The same rounds as calls for each second of CPU time."""
    samples = {one: [1e6 / cost for cost in costs] for one, costs in figure.cpu.items()}
    return Figure(name, title, "calls/CPU s", "more", samples, ours=figure.ours)


def _session(settings: Settings, name: str, store: str) -> Opening:
    def open(stack: contextlib.ExitStack) -> Lane:
        url = settings.stage.http(SERVER, store)
        load = stack.enter_context(Load(url, ADD, era=SESSIONS))
        return counted(load, settings.stage.process(SERVER, store).pid)

    return open


def _counting(
    opening: Opening, monitor: CommandMonitor, seen: Counter[str], operations: Figure
) -> Opening:
    """Count what Redis executes from the end of one round to that of the next."""

    def open(stack: contextlib.ExitStack) -> Lane:
        lane = opening(stack)
        is_warm = False

        def round(seconds: float) -> Sample:
            nonlocal is_warm
            sample = lane(seconds)
            kinds = monitor.taken()
            if is_warm:  # before, the sessions were opened
                seen.update(kinds)
                others = sum(kinds.values()) - kinds[LEASE] - kinds[CHECK]
                operations.samples.setdefault(REDIS, []).append(others)
            is_warm = True
            return sample

        return round

    return open


# ---------------------------------------------------------------- several replicas


def throughput_row(settings: Settings) -> list[Figure]:
    """Calls a second, and for each second of CPU time, of 1, 2 and 3 replicas on one Redis."""
    title = f"sessions of 2025-11-25 at all replicas, {LINES} connections, two cores for all"
    rate = Figure("replicas-throughput", title, "calls/s", "more")
    rate.ours = _named(REPLICAS[-1])
    try:
        with redis_server() as redis, Stage(settings.stage.log, SERVER_CORE, LOAD_CORE) as stage:
            openings = {_named(count): _replicas(stage, redis, count) for count in REPLICAS}
            in_turns(rate, openings, settings)
    except Missing as error:
        rate.missing[rate.ours] = str(error)
        return [rate]
    rate.notes.append("CPU µs: of all replicas and of Redis together, for one call")
    return [rate, by_cpu(rate, "replicas-throughput-cpu", title)]


def _named(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"


def _replicas(stage: Stage, redis: RedisServer, count: int) -> Opening:
    """So many of the replicas, which are there for all rounds."""

    def open(stack: contextlib.ExitStack) -> Lane:
        urls = [stage.http(SERVER, redis.url, str(number)) for number in range(count)]
        pids = [stage.process(SERVER, redis.url, str(number)).pid for number in range(count)]
        load = stack.enter_context(
            RoundRobinLoad(urls, ADD, connections=LINES, connections_per_session=LINES_PER_SESSION)
        )
        return _together(load, [*pids, redis.pid])

    return open


def _together(load: Load, pids: Sequence[int]) -> Lane:
    def lane(seconds: float) -> Sample:
        before, own = sum(map(cpu_s, pids)), time.process_time()
        rate = load.round(seconds)
        own = time.process_time() - own
        taken = sum(map(cpu_s, pids)) - before
        return Sample(rate, taken / load.calls * 1e6, own / load.calls * 1e6)

    return lane
