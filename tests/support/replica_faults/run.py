"""Faults injected into three replicas on one Redis server, under load: `scripts/replicas faults`.

    python tests/support/replica_faults/run.py [stop|partition|store-away|redis-kill|refresh] …

Without a name all of them run, which takes some minutes. Prints what was found; exits with status 1
if there is a violation.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from replica_faults.partition import partition_replicas
from replica_faults.redis_kill import kill_redis
from replica_faults.refresh import refresh_once
from replica_faults.report import Report
from replica_faults.stop import stop_replicas
from replica_faults.store_away import store_away

FAULTS: dict[str, Callable[[Path], Awaitable[Report]]] = {
    "stop": stop_replicas,
    "partition": partition_replicas,
    "store-away": store_away,
    "redis-kill": kill_redis,
    "refresh": refresh_once,
}


async def run(names: list[str]) -> int:
    violations = 0
    for name in names or list(FAULTS):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = await FAULTS[name](Path(folder))
            if report.problems:
                log = Path(folder, "server.log")
                sys.stderr.write(log.read_text()[-4000:] if log.exists() else "")
        report.say(f"{time.monotonic() - began:.0f} s")
        report.print()
        violations += len(report.problems)
    return 1 if violations else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas faults")
    parser.add_argument("faults", nargs="*", choices=[[], *FAULTS], metavar="FAULT")
    return asyncio.run(run(parser.parse_args().faults))


if __name__ == "__main__":
    sys.exit(main())
