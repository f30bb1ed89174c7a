"""A replica that does not reach the store: bytes of one direction are swallowed, under load."""

import asyncio
import time
from pathlib import Path

from replica_faults.fault_server import TASK_LEASE_S
from replica_faults.load import Effect, FaultLoad, check_calls, check_tasks, read_ledger
from replica_faults.processes import FaultProcesses, Partition
from replica_faults.report import Report
from replica_faults.stop import RECORD_S
from store.redis_server import redis_server

# How soon all is well after a partition, without a restart.
RECOVERY_S = 10.0
# A call of the store takes 2 s at most, and its caller is told of the lost lease then.
CALL_S = 2.0
KINDS = (Partition.REQUESTS, Partition.REPLIES, Partition.LATE)


async def partition_replicas(
    folder: Path,
    *,
    kinds: tuple[Partition, ...] = KINDS,
    everyone: tuple[bool, ...] = (False, True),
    partition_s: float = 10.0,
    calls: int = 60,
) -> Report:
    """Cut one process off, then all of them; in each direction."""
    report = Report("partition")
    cuts: list[tuple[int, float, float]] = []
    with redis_server(folder / "redis") as redis:
        async with FaultProcesses(redis.port, folder) as processes:
            async with FaultLoad(processes) as load:
                rounds = [(kind, whole) for whole in everyone for kind in kinds]
                for number, (kind, whole) in enumerate(rounds):
                    await load.calls(calls)
                    which = range(3) if whole else [number % 3]
                    began = time.time()
                    held = sum(processes.store_relays[one].held_bytes for one in which)
                    for one in which:
                        processes.store_relays[one].begin(kind)
                    await asyncio.sleep(partition_s)
                    for one in which:
                        processes.store_relays[one].end()
                        cuts.append((processes.processes[one].pid, began, time.time()))
                    held = sum(processes.store_relays[one].held_bytes for one in which) - held
                    took_s = await recovery_s(processes, load)
                    report.say(
                        f"{kind.value}, {'all replicas' if whole else 'one replica'}, "
                        f"{partition_s:g} s, {held} bytes: well after {took_s:.1f} s"
                    )
                    if took_s > RECOVERY_S:
                        report.problems.append(f"not well {took_s:.1f} s after the partition")
            ended = await load.finish_tasks()
        effects = read_ledger(processes.ledger)

    def late(effect: Effect) -> bool:
        return any(
            effect.process == pid and began + TASK_LEASE_S + CALL_S < effect.at < end
            for pid, began, end in cuts
        )

    problems, unrecorded = check_tasks(
        ended, effects, [(began - RECORD_S, end + CALL_S) for _, began, end in cuts], late
    )
    report.problems += check_calls(load.log, effects) + problems
    report.say_load(load.log, effects)
    report.say(f"{len(ended)} tasks ended; {unrecorded} effects happened without a record")
    return report


async def recovery_s(processes: FaultProcesses, load: FaultLoad) -> float:
    """How long it takes until a conversation in every revision goes through every process, and
    calls for homes and single use succeed."""
    began = time.monotonic()
    while time.monotonic() - began < 3 * RECOVERY_S:
        if await load.is_well():
            break
        await asyncio.sleep(0.1)
    return time.monotonic() - began
