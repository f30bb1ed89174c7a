"""Conversations through three processes on one store, each request to the next of them.

    python tests/support/replica_processes.py [--conversations N] [--store STORE] [--at-once N]

This is `scripts/replicas`. A relay gives each HTTP request to the next process, over a connection of
its own. The client is Colonnade's, in each of the five revisions and over HTTP+SSE. What was sent is
counted by kind of message, and so is each failure: a response with an error status, or a conversation
that did not end as it should.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from colonnade import connect
from relay import RelayedProcesses
from store.redis_server import redis_server

PROGRAM = Path(__file__).with_name("replica_server.py")
WAIT_S = 30.0
SSE = "HTTP+SSE"
# Conversations between two lines about the progress.
PROGRESS_EVERY = 1_000
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", SSE)


class ReplicaProcesses(RelayedProcesses):
    """The processes of replica_server.py, and conversations with them."""

    def __init__(
        self,
        store: str,
        folder: Path,
        count: int = 3,
        shutdown_delay_s: float = 0.0,
        program: Path = PROGRAM,
    ) -> None:
        super().__init__(
            program,
            *(store, str(folder), str(shutdown_delay_s)),
            count=count,
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.folder = folder
        self._names = 0

    async def converse(self, revision: str) -> None:
        """One conversation with every kind of message that a revision has. Raises
        `AssertionError` and errors of the client."""
        self._names += 1
        name = f"{revision.replace('+', '-')}-{self._names}"
        async with asyncio.timeout(WAIT_S):
            await self._converse(revision, name)

    async def _converse(self, revision: str, name: str) -> None:
        target: Any = self.relay.url + "/mcp"
        options: dict[str, Any] = {"revision": revision}
        if revision == SSE:
            target, options = {"type": "sse", "url": self.relay.url + "/sse"}, {}
        logged: list[object] = []
        reports: list[float] = []
        elicits = revision not in ("2024-11-05", "2025-03-26", SSE)
        async with connect(
            target,
            on_elicit=lambda request: {"name": name},
            on_log=lambda message: logged.append(message),
            **options,
        ) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3
            counted = await client.call_tool(
                "count", {"to": 3}, on_progress=lambda done, *_: reports.append(done)
            )
            assert not counted.is_error
            assert reports == [1, 2, 3]
            if elicits:
                painted = await client.call_tool("paint")
                assert painted.text == name, painted
            assert (await client.call_tool("long")).text == "the end"
            await client.set_log_level("debug")
            while not logged:  # the other processes are told, which takes a moment
                await client.call_tool("log")
            await self._be_cancelled(client, name)
            uri = f"file:///{name}"
            async with client.listen(resources=[uri]) as changes:
                await client.call_tool("touch", {"uri": uri})
                async for change in changes:
                    assert change.uri == uri
                    break
            assert len(await client.list_tools(fresh=True)) == 7

    async def _be_cancelled(self, client: Any, name: str) -> None:
        begun = asyncio.Event()
        call = asyncio.create_task(
            client.call_tool("wait", {"name": name}, on_progress=lambda *_: begun.set())
        )
        await begun.wait()
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        while not (self.folder / name).exists():
            await asyncio.sleep(0.01)
        (self.folder / name).unlink()


def _line_of(error: BaseException | None) -> str | None:
    """The line of a conversation that failed."""
    while error is not None:
        for place in reversed(traceback.extract_tb(error.__traceback__)):
            if place.name == "_converse":
                return place.line
        error = error.__cause__ or error.__context__
    return None


def print_progress(done: int, conversations: int, took_s: float, failed: Counter[str]) -> None:
    """Print how many there were, how many failed, and when the last is expected to end."""
    left_s = took_s / done * (conversations - done)
    end = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
    print(
        f"{done} of {conversations} conversations in {took_s:.0f} s, {sum(failed.values())} failed, "
        f"end expected at {end}",
        file=sys.stderr,
        flush=True,
    )


async def run(conversations: int, store: str, at_once: int) -> int:
    failed: Counter[str] = Counter()
    done = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        async with ReplicaProcesses(store or str(path / "store.db"), path) as processes:
            started = time.monotonic()
            numbers = iter(range(conversations))

            async def work() -> None:
                nonlocal done
                for number in numbers:
                    revision = REVISIONS[number % len(REVISIONS)]
                    try:
                        await processes.converse(revision)
                    except Exception as error:
                        line = _line_of(error)
                        what = f"{type(error).__name__}: {str(error)[:160]}"
                        failed[f"{revision}: {what}, in: {line}"] += 1
                        now = time.strftime("%H:%M:%S")
                        print(f"{now} {revision}: {what}, in: {line}", file=sys.stderr, flush=True)
                    done += 1
                    if done % PROGRESS_EVERY == 0:
                        print_progress(done, conversations, time.monotonic() - started, failed)

            await asyncio.gather(*(work() for _ in range(at_once)))
            took_s = time.monotonic() - started
            relay = processes.relay
            print(f"{done} conversations in {took_s:.0f} s, {sum(failed.values())} failed")
            print(f"{sum(relay.kinds.values())} requests, by process:", *relay.by_port.values())
            for kind, number in relay.kinds.most_common():
                print(f"{number:>9}  {kind}")
            for what, number in (failed + relay.failures).most_common():
                print(f"{number:>9}  FAILED {what}")
    return 1 if failed or relay.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conversations", type=int, default=2_000)
    parser.add_argument(
        "--store",
        default="",
        help="a redis:// URL, or redis for a server of its own; default SQLite",
    )
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        store: str = options.store
        if store == "redis":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = stack.enter_context(redis_server(folder)).url
        # The relay and all clients are one process: with the loop of asyncio it would be the slowest.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(options.conversations, store, options.at_once))


if __name__ == "__main__":
    sys.exit(main())
