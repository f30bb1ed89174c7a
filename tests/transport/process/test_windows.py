"""The child of Windows by the loop's own means, run here with a stand-in for the job.

Rules: what is Windows' own (`Job`, and how a program is found) is not run by any test; what stands
in for it kills one group of processes, as a job kills all.
"""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

import pytest

from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.process import windows as child_windows
from colonnade.transport.process.child import Child
from colonnade.transport.process.command import Command
from colonnade.transport.process.output import ProcessCallbacks
from colonnade.transport.process.posix import members
from colonnade.transport.process.windows import LoopProcess
from transport.child_processes import ChildConversation, misbehaving_server, on_asyncio, until

BADLY = {
    "exits_with_1": r"exited with 1 during 'git_log'; .*ModuleNotFoundError",
    "dies_by_a_signal": r"was killed by SIGSEGV during 'git_log'",
    "closes_its_output": r"closed its output during 'git_log'",
    "forks_and_exits": r"exited with 5 during 'git_log'",
}


class GroupForJob:
    """The group of a process, as if it were a job."""

    def __init__(self) -> None:
        self.group = 0
        self.closed = 0

    def add(self, process: "subprocess.Popen[bytes]") -> None:
        self.group = process.pid

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)

    @property
    def active(self) -> int:
        return len(list(members(self.group)))

    def close(self) -> None:
        self.closed += 1


async def started(mode: str, job: GroupForJob, **options: Any) -> ChildConversation:
    async def starter(command: Command, ears: ProcessCallbacks) -> LoopProcess:
        loop = asyncio.get_running_loop()
        execute = loop.subprocess_exec

        # A group of its own, as a job is one.
        def in_a_session(*args: Any, creationflags: int = 0, **more: Any) -> Any:
            return execute(*args, start_new_session=True, **more)

        vars(loop)["subprocess_exec"] = in_a_session
        try:
            return await LoopProcess.start_in(job, command, command.argv, ears)
        finally:
            del vars(loop)["subprocess_exec"]

    command = options.pop("command", None) or Command.of(misbehaving_server(mode), name="git")
    child = Child(command, grace_s=0.3, **options)
    await child.start(starter)
    return ChildConversation(child, [])


@pytest.mark.parametrize("mode", ["serves", "floods_its_errors", "ignores_the_end", "forks"])
@on_asyncio
async def test_a_conversation_and_its_end(mode: str) -> None:
    job = GroupForJob()
    conversation = await started(mode, job)
    assert await conversation.call()
    assert await conversation.call()
    await conversation.child.close()
    await conversation.child.close()
    assert job.active == 0
    assert job.closed


@pytest.mark.parametrize("mode", BADLY)
@on_asyncio
async def test_what_it_did_is_reported(mode: str) -> None:
    job = GroupForJob()
    conversation = await started(mode, job)
    with pytest.raises(ConnectionLost, match=BADLY[mode]):
        await conversation.call()
    await conversation.child.close()
    assert job.active == 0


@on_asyncio
async def test_what_is_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_windows, "MAX_UNREAD_BYTES", 200_000)
    conversation = await started("never_reads", GroupForJob())
    calling = asyncio.ensure_future(conversation.call())
    while conversation.child.lost is None:
        conversation.child.write(b"{}" * 1000)
        await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match=r"server 'git' \(pid \d+\) left 200000 bytes unread"):
        await calling
    await conversation.child.close()


@on_asyncio
async def test_whoever_drains_waits_until_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_windows, "DRAIN_BYTES", 100_000)
    conversation = await started("says_nothing", GroupForJob())
    for _ in range(10):
        for _ in range(300):
            conversation.child.write(b'{"jsonrpc":"2.0","method":"%s"}' % (b"x" * 1000))
        await conversation.child.drain()
    await until(lambda: conversation.child._process.outlet.flushed > 3_000_000)
    await conversation.child.close()


@on_asyncio
async def test_a_command_that_does_not_start_says_why() -> None:
    job = GroupForJob()
    with pytest.raises(CannotConnect, match="there is no command 'no-such-command'"):
        await started("", job, command=Command.of(["no-such-command"]))
    assert job.closed == 1
