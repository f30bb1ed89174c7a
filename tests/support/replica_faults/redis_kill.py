"""kill -9 of a Redis server with `appendfsync always`, again and again, under load."""

import time
from pathlib import Path

from http_client import Caller
from replica_faults.load import FaultLoad, check_calls, check_tasks, read_ledger
from replica_faults.partition import CALL_S, RECOVERY_S, recovery_s
from replica_faults.processes import FaultProcesses
from replica_faults.report import Report
from replica_faults.stop import RECORD_S
from store.redis_server import redis_server

DURABLE = ["--appendonly", "yes", "--appendfsync", "always"]
SESSIONS = 20


async def kill_redis(folder: Path, *, kills: int = 10, calls: int = 60) -> Report:
    """Kill the server and start it again on its port and folder; what was lost."""
    report = Report("redis-kill")
    longest_s, sessions = 0.0, 0
    faults: list[tuple[float, float]] = []
    with redis_server(folder / "redis", DURABLE) as redis:
        async with FaultProcesses(redis.port, folder) as processes:
            async with FaultLoad(processes) as load:
                for number in range(kills):
                    await load.calls(calls)
                    opened = await _open_sessions(processes, number)
                    at = time.time()
                    redis.kill()
                    began = time.monotonic()
                    redis.start()
                    down_s = time.monotonic() - began
                    faults.append((at - RECORD_S, time.time() + CALL_S))
                    took_s = await recovery_s(processes, load)
                    longest_s = max(longest_s, took_s + down_s)
                    if took_s > RECOVERY_S:
                        report.problems.append(f"not well {took_s:.1f} s after the restart")
                    sessions += len(opened)
                    report.problems += await _lost_sessions(processes, opened)
            ended = await load.finish_tasks()
        effects = read_ledger(processes.ledger)
    problems, unrecorded = check_tasks(ended, effects, faults)
    report.problems += check_calls(load.log, effects) + problems
    report.say(f"{kills} times kill -9 of Redis with appendfsync always; well after at most")
    report.lines[-1] += f" {longest_s:.1f} s; all {sessions} acknowledged sessions were looked for"
    report.say_load(load.log, effects)
    report.say(f"{len(ended)} acknowledged tasks; {unrecorded} effects happened without a record")
    return report


async def _open_sessions(processes: FaultProcesses, number: int) -> list[tuple[str, int]]:
    """Sessions that were just acknowledged, each with a process that has no copy of it."""
    found: list[tuple[str, int]] = []
    ports = processes.ports
    for index in range(SESSIONS):
        port = ports[(number + index) % len(ports)]
        async with Caller(port) as caller:
            await caller.initialize("2025-11-25")
            assert caller.session is not None
            found.append((caller.session, ports[(number + index + 1) % len(ports)]))
    return found


async def _lost_sessions(processes: FaultProcesses, opened: list[tuple[str, int]]) -> list[str]:
    lost: list[str] = []
    for session, port in opened:
        async with Caller(port) as caller:
            caller.session, caller.revision = session, "2025-11-25"
            response = await caller.ask("ping")
            if response.status != 200:
                lost.append(f"a session was lost: {response.status}")
    return lost
