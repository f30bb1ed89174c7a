"""Three processes on one store, of which one after another is restarted (SIGTERM) during calls.

    python tests/support/replicas/rolling.py [--restarts N] [--store URL] [--redis] [--at-once N]
                                             [--other PATH | --from COMMIT | --next]

This is `scripts/replicas rolling`. The calls are plain ones, in all revisions. The relay of
`replica_processes` requests no /ready; it sends a request to another process only if its connection is
refused. No call may fail.

With another release the processes are first of that one. The first three restarts are the upgrade, the
next three the way back, and so on; between them there are conversations with every kind of message, which
go through both releases.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from colonnade import connect
from replica_processes import REVISIONS, SSE, ReplicaProcesses
from replicas.releases import ROOT, earlier_release, next_release
from store.redis_server import redis_server

# Calls before, between and after the restarts.
CALLS_BETWEEN = 500


class TwoReleases(ReplicaProcesses):
    """Processes that are of another release until they are restarted, and again after the next
    restart."""

    def __init__(self, store: str, folder: Path, other: Path | None) -> None:
        super().__init__(store, folder)
        self._folders = [other or ROOT, ROOT]
        self._starts: Counter[int] = Counter()

    async def _start(self, port: int) -> int:
        # Of the first ones the port is not known yet.
        folder = self._folders[self._starts[port] % 2 if port else 0]
        paths = [str(folder / "src"), *sys.path]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        port = await super()._start(port)
        self._starts[port] += 1
        return port


async def roll(
    restarts: int,
    store: str,
    at_once: int,
    calls_between: int = CALLS_BETWEEN,
    other: Path | None = None,
) -> int:
    """Restart processes in turn during plain calls of all revisions; the number of failures."""
    failed: Counter[str] = Counter()
    done, conversations, ending = 0, 0, False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with TwoReleases(store or str(path / "store.db"), path, other) as processes:
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

            async def converse() -> None:
                nonlocal conversations
                for revision in REVISIONS if other is not None else ():
                    try:
                        await processes.converse(revision)
                    except Exception as error:
                        failed[f"conversation of {revision}: {type(error).__name__}: {error}"] += 1
                    conversations += 1

            async def more_calls() -> None:
                enough = done + calls_between
                while done < enough:
                    await asyncio.sleep(0.01)
                await converse()

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
        f"{done} calls and {conversations} conversations during {restarts} restarts in {took_s:.0f} s, "
        f"{sum(failed.values())} failed; "
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
    release = parser.add_mutually_exclusive_group()
    release.add_argument(
        "--other", type=Path, help="another checkout, whose processes are upgraded"
    )
    release.add_argument("--from", dest="commit", help="the same of an earlier commit")
    release.add_argument(
        "--next", action="store_true", help="the same of a release that adds members to all records"
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        store, other = options.store, options.other
        if options.redis:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = stack.enter_context(redis_server(folder)).url
        if options.commit or options.next:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            other = (
                next_release(folder) if options.next else earlier_release(options.commit, folder)
            )
        rolling = roll(options.restarts, store, options.at_once, other=other)
        return 1 if asyncio.run(rolling) else 0


if __name__ == "__main__":
    sys.exit(main())
