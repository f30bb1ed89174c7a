"""SIGSTOP of a replica for longer than its lease, under load, and SIGCONT."""

import asyncio
import signal
import time
from pathlib import Path

from replica_faults.fault_server import TASK_LEASE_S
from replica_faults.load import Effect, FaultLoad, check_calls, check_tasks, read_ledger
from replica_faults.processes import FaultProcesses
from replica_faults.report import Report
from store.redis_server import redis_server

# Calls of a client time out first, and its balancer needs a moment to notice.
LONGEST_GAP_S = 6.0
# How long an effect takes to be recorded, on a busy machine.
RECORD_S = 0.5


async def stop_replicas(
    folder: Path, *, rounds: int = 6, stopped_s: float = 8.0, calls: int = 60
) -> Report:
    """Stop one process after another; what was found."""
    report = Report("stop")
    with redis_server(folder / "redis") as redis:
        async with FaultProcesses(redis.port, folder) as processes:
            stops: list[tuple[int, float, float]] = []
            gaps: list[float] = []
            async with FaultLoad(processes) as load:
                for number in range(rounds):
                    await load.calls(calls)
                    process = processes.processes[number % processes.count]
                    began, from_s = time.time(), time.monotonic()
                    process.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(stopped_s)
                    process.send_signal(signal.SIGCONT)
                    stops.append((process.pid, began, time.time()))
                    gaps.append(load.log.longest_gap_s(from_s, time.monotonic()))
                    await processes.wait_ready(10.0)
                    await load.calls(calls)
            ended = await load.finish_tasks()
        effects = read_ledger(processes.ledger)

    def late(effect: Effect) -> bool:
        """Whether it was done by a process that was continued, in a task that another one took."""
        for pid, began, continued in stops:
            if effect.process == pid and continued <= effect.at < continued + TASK_LEASE_S:
                name = effect.id.partition("/")[0]
                others = [
                    one
                    for one in effects
                    if one.kind == "step"
                    and one.id.partition("/")[0] == name
                    and one.process != pid
                    and began + TASK_LEASE_S <= one.at <= effect.at
                ]
                before = [
                    one
                    for one in effects
                    if one.process == pid and one.at < began and one.id.startswith(f"{name}/")
                ]
                if others and before:
                    return True
        return False

    problems, unrecorded = check_tasks(
        ended, effects, [(began - RECORD_S, began + RECORD_S) for _, began, _ in stops], late
    )
    report.problems += check_calls(load.log, effects) + problems
    report.say(f"{rounds} times SIGSTOP for {stopped_s:g} s, lease 5 s; tasks {TASK_LEASE_S:g} s")
    report.say_load(load.log, effects)
    report.say(f"{len(ended)} tasks ended; {unrecorded} effects were not recorded before a stop")
    report.say(f"longest time without a successful call of any client: {max(gaps):.1f} s")
    if max(gaps) > LONGEST_GAP_S:
        report.problems.append(f"no call succeeded for {max(gaps):.1f} s")
    return report
