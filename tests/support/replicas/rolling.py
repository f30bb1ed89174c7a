"""Three processes on one store, of which one after another is restarted (SIGTERM) during calls.

    python tests/support/replicas/rolling.py [--restarts N] [--store URL] [--redis] [--at-once N]

This is `scripts/replicas rolling`. The calls are plain ones, in all revisions. The relay of
`replica_processes` requests no /ready; it sends a request to another process only if its connection is
refused. No call may fail.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from colonnade import connect
from replica_processes import REVISIONS, SSE, ReplicaProcesses
from store.redis_server import redis_server

# Calls before, between and after the restarts.
CALLS_BETWEEN = 500


async def roll(restarts: int, store: str, at_once: int, calls_between: int = CALLS_BETWEEN) -> int:
    """Restart processes in turn during plain calls of all revisions; the number of failed calls."""
    failed: Counter[str] = Counter()
    done, ending = 0, False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with ReplicaProcesses(store or str(path / "store.db"), path) as processes:
            relay = processes.relay

            async def call(revision: str) -> None:
                nonlocal done
                async with connect(relay.url + "/mcp", revision=revision) as client:
                    while not ending:
                        try:
                            result = await client.call_tool("add", {"a": 1, "b": 2}, returns=int)
                            assert result.data == 3
                        except Exception as error:
                            failed[f"{revision}: {type(error).__name__}: {error}"] += 1
                        done += 1

            async def more_calls() -> None:
                enough = done + calls_between
                while done < enough:
                    await asyncio.sleep(0.01)

            revisions = [one for one in REVISIONS if one != SSE]
            callers = [
                asyncio.create_task(call(revisions[number % len(revisions)]))
                for number in range(at_once)
            ]
            started = time.monotonic()
            await more_calls()
            for number in range(restarts):
                await processes.restart(number % processes.count)
                await more_calls()
            ending = True
            await asyncio.gather(*callers)
            took_s = time.monotonic() - started
    failures = failed + relay.failures
    print(
        f"{done} calls during {restarts} restarts in {took_s:.0f} s, {sum(failed.values())} failed; "
        f"{relay.refused} connections were refused, and their requests sent elsewhere"
    )
    for what, number in failures.most_common():
        print(f"{number:>9}  FAILED {what}")
    return sum(failures.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/replicas rolling")
    parser.add_argument("--restarts", type=int, default=9)
    parser.add_argument("--store", default="", help="a redis:// URL; by default an SQLite file")
    parser.add_argument("--redis", action="store_true", help="start a Redis server, and use it")
    parser.add_argument("--at-once", type=int, default=8, help="the number of clients")
    options = parser.parse_args()
    with ExitStack() as stack:
        store = options.store
        if options.redis:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = stack.enter_context(redis_server(folder)).url
        return 1 if asyncio.run(roll(options.restarts, store, options.at_once)) else 0


if __name__ == "__main__":
    sys.exit(main())
