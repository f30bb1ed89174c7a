"""Replicas that are processes of their own, on one file: killed, stopped and continued."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.replicas.changes import SharedChanges
from colonnade.replicas.replica import Replica, ReplicaLost
from colonnade.store.sqlite import SqliteStore
from replicas import replica_process
from replicas.remote import CallerContext, RemoteReplica, outcome

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and SIGSTOP")

# Far more than anything here takes; a test that hangs says so.
PATIENCE_S = 60.0
# An error comes within 5 s of a death; the machine may be busy.
LOST_S = 8.0


TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"


class ReplicaProcess:
    """A replica in another process."""

    def __init__(self, child: asyncio.subprocess.Process, name: str) -> None:
        self.child = child
        self.name = name

    def tell(self, line: str) -> None:
        """Tell it to do something."""
        assert self.child.stdin is not None
        self.child.stdin.write(line.encode() + b"\n")

    async def line(self) -> str:
        """The next line that it prints."""
        assert self.child.stdout is not None
        return (await self.child.stdout.readline()).decode().strip()

    async def rest(self) -> list[str]:
        """All further lines, after its proper end."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        output, _ = await self.child.communicate()
        return output.decode().splitlines()

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        os.kill(self.child.pid, number)


@asynccontextmanager
async def replica_process_on(path: Path) -> AsyncGenerator[ReplicaProcess, None]:
    """Start a replica; killed, if it is still there, at the end."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(replica_process.__file__),
        str(path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        process = ReplicaProcess(child, "")
        process.name = (await process.line()).removeprefix("name ")
        yield process
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


def run(path: Path, body: Callable[[RemoteReplica], Awaitable[None]]) -> None:
    """Run a test as a replica of this process."""

    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S):
            store = SqliteStore(path)
            replica = Replica(store)
            own = RemoteReplica(replica, time.time)
            await replica.start()
            try:
                await body(own)
            finally:
                await own.remote.close()
                await replica.close()
                await store.close()

    asyncio.run(whole())


def test_replicas_in_two_processes_ask_each_other_and_notice_a_death(tmp_path: Path) -> None:
    async def body(own: RemoteReplica) -> None:
        heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

        async def on_line(sender: str, body: bytes) -> None:
            heard.put_nowait((sender, body))

        own.replica.handle("line", on_line)
        async with replica_process_on(tmp_path / "store.db") as other:
            assert await own.replica.is_alive(other.name)
            assert await own.replica.request(other.name, "double", b"ab", 10.0) == b"abab"
            other.tell("broadcast hello")
            assert await heard.get() == (other.name, b"hello")
            other.signal(signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(ReplicaLost, match="lapsed"):
                await own.replica.request(other.name, "double", b"ab", 30.0)
            assert time.monotonic() - began < LOST_S

    run(tmp_path / "store.db", body)


def test_a_request_at_another_process_brings_progress_and_an_elicitation_back(
    tmp_path: Path,
) -> None:
    async def answer(request: InputRequest) -> Raw:
        return Raw(b'{"action":"accept","content":{"value":"12A"}}')

    async def body(own: RemoteReplica) -> None:
        async with replica_process_on(tmp_path / "store.db") as other:
            context = CallerContext(own.server, "book", answer=answer)
            assert outcome(await own.remote.run(context, other.name, "")) == "booked 12A"
            context = CallerContext(own.server, "count", {"to": 5})
            assert outcome(await own.remote.run(context, other.name, "")) == "5"
            assert context.progress == [1, 2, 3, 4, 5]
            task = asyncio.ensure_future(
                own.remote.run(CallerContext(own.server, "hold"), other.name, "")
            )
            await asyncio.sleep(0)
            task.cancel()
            assert await other.rest() == ["effect 12A"]

    run(tmp_path / "store.db", body)


async def held(own: RemoteReplica, other: ReplicaProcess) -> "asyncio.Task[bytes | None]":
    """A call that runs at another process."""
    context = CallerContext(own.server, "hold", {"aloud": True})
    task = asyncio.ensure_future(own.remote.run(context, other.name, ""))
    while not context.progress:
        await asyncio.sleep(0.01)
    return task


async def lost(task: "asyncio.Task[bytes | None]") -> dict[str, Any]:
    """The error of a call whose runner died just now."""
    began = time.monotonic()
    error = outcome(await task)
    assert time.monotonic() - began < LOST_S
    return error


def test_a_runner_that_is_killed_leaves_an_error_that_says_that_the_effect_is_unknown(
    tmp_path: Path,
) -> None:
    async def body(own: RemoteReplica) -> None:
        async with replica_process_on(tmp_path / "store.db") as other:
            task = await held(own, other)
            other.signal(signal.SIGKILL)
            error = await lost(task)
            assert error["data"] == {"effectUnknown": True}

    run(tmp_path / "store.db", body)


def test_a_runner_that_is_killed_during_an_elicitation_leaves_such_an_error(tmp_path: Path) -> None:
    async def body(own: RemoteReplica) -> None:
        asked = asyncio.Event()

        async def answer(request: InputRequest) -> Raw:
            asked.set()
            return await asyncio.get_running_loop().create_future()

        async with replica_process_on(tmp_path / "store.db") as other:
            context = CallerContext(own.server, "book", answer=answer)
            task = asyncio.ensure_future(own.remote.run(context, other.name, ""))
            await asked.wait()
            other.signal(signal.SIGKILL)
            assert (await lost(task))["data"] == {"effectUnknown": True}

    run(tmp_path / "store.db", body)


def test_a_runner_that_was_killed_before_is_known_to_have_had_no_effect(tmp_path: Path) -> None:
    async def body(own: RemoteReplica) -> None:
        async with replica_process_on(tmp_path / "store.db") as other:
            other.signal(signal.SIGKILL)
            await other.child.wait()
            assert await own.replica.is_alive(other.name)  # by its lease
            context = CallerContext(own.server, "echo", {"text": "too late"})
            begun = asyncio.ensure_future(own.remote.run(context, other.name, ""))
            assert (await lost(begun))["data"] == {"effectUnknown": False}

    run(tmp_path / "store.db", body)


def test_a_runner_that_was_stopped_does_not_run_what_was_given_up(tmp_path: Path) -> None:
    async def body(own: RemoteReplica) -> None:
        async with replica_process_on(tmp_path / "store.db") as other:
            running = await held(own, other)
            other.signal(signal.SIGSTOP)
            context = CallerContext(own.server, "echo", {"text": "given up"})
            begun = asyncio.ensure_future(own.remote.run(context, other.name, ""))
            assert (await lost(begun))["data"] == {"effectUnknown": False}
            assert (await lost(running))["data"] == {"effectUnknown": True}
            while await own.replica.is_alive(other.name):
                await asyncio.sleep(0.1)
            other.signal(signal.SIGCONT)
            # It is a replica as before, as soon as it has renewed its lease.
            found: Any = None
            while not isinstance(found, str):
                context = CallerContext(own.server, "echo", {"text": "again"})
                found = outcome(await own.remote.run(context, other.name, ""))
                assert isinstance(found, str) or not found["data"]["effectUnknown"]
                await asyncio.sleep(0.1)
            assert found == "again for ada at 2025-11-25"
            assert await other.rest() == ["effect again"]

    run(tmp_path / "store.db", body)


def test_changes_and_tokens_are_shared_by_processes(tmp_path: Path) -> None:
    async def body(own: RemoteReplica) -> None:
        store = own.replica.store
        heard: asyncio.Queue[str] = asyncio.Queue()
        changes = SharedChanges(store, "shop", lambda method, _: heard.put_nowait(method))
        await changes.start()
        async with replica_process_on(tmp_path / "store.db") as other:
            other.tell(f"change {TOOLS}")
            assert await heard.get() == TOOLS
            changes.publish(PROMPTS, t.NotificationParams())
            assert await other.line() == f"changed {PROMPTS}"
            now = 1_000_000.0
            assert isinstance(store, SqliteStore)
            tokens = replica_process.shared_tokens(store, now)
            assert await tokens.take("ada") == 0.0
            other.tell(f"take {now}")
            assert await other.line() == "taken 90"  # and a lease of 10 here
            assert [await tokens.take("ada") for _ in range(10)] == [0.0] * 9 + [100.0]
        await changes.stop()

    run(tmp_path / "store.db", body)
