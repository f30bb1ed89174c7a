"""The end of a child: its steps as plain data, and real ends from every side.

Rules: afterwards no process of it lives, whoever ended it: us, itself, or whoever killed us.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from colonnade.client.client import Client
from colonnade.errors import ConnectionLost
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.transport.process.child import (
    GRACE_S,
    KILLED_S,
    STRAGGLERS_S,
    Child,
    Clear,
    CloseInput,
    Kill,
    Step,
    Steps,
    Wait,
    describe_status,
    forced_shutdown_steps,
    shutdown_steps,
    start_child,
)
from colonnade.transport.process.posix import PosixProcess, Watchdog, entry_of
from transport.child_processes import (
    SHORT_S,
    WAIT_S,
    ChildConversation,
    alive,
    child_conversation,
    misbehaving_server,
    nothing_left,
    on_asyncio,
    on_both_loops,
    until,
    wait_until,
)

# ---------------------------------------------------------------- the steps


def walk(steps: Steps, outcomes: Iterable[bool]) -> list[Step]:
    """Every step, where waits come to these outcomes."""
    came_to, taken = iter(outcomes), list[Step]()
    step = next(steps)
    while True:
        taken.append(step)
        try:
            step = steps.send(next(came_to) if isinstance(step, Wait | Clear) else True)
        except StopIteration:
            return taken


FORCE, ASK = Kill(force=True), Kill(force=False)


@pytest.mark.parametrize(
    ("outcomes", "steps"),
    [
        ([True, True], [CloseInput(), Wait(2), Clear(0)]),
        (
            [True, False, True],
            [CloseInput(), Wait(2), Clear(0), ASK, Clear(STRAGGLERS_S)],
        ),
        (
            [True, False, False, True],
            [CloseInput(), Wait(2), Clear(0), ASK, Clear(STRAGGLERS_S), FORCE, Clear(KILLED_S)],
        ),
        ([False, True, True], [CloseInput(), Wait(2), ASK, Wait(2), Clear(0)]),
        (
            [False, True, False, False, True],
            [
                *(CloseInput(), Wait(2), ASK, Wait(2), Clear(0)),
                *(Clear(STRAGGLERS_S), FORCE, Clear(KILLED_S)),
            ],
        ),
        (
            [False, False, True, True],
            [CloseInput(), Wait(2), ASK, Wait(2), FORCE, Wait(KILLED_S), Clear(0)],
        ),
    ],
)
def test_a_child_is_asked_before_it_is_forced_and_asked_only_once(
    outcomes: list[bool], steps: list[Step]
) -> None:
    assert walk(shutdown_steps(), outcomes) == steps


def test_an_end_takes_less_than_six_seconds_even_where_nothing_helps() -> None:
    taken = walk(shutdown_steps(), [False] * 9)
    assert sum(step.seconds for step in taken if isinstance(step, Wait | Clear)) < 6
    assert GRACE_S == 2


def test_a_loop_that_ends_has_no_time_to_ask() -> None:
    assert walk(forced_shutdown_steps(), [True, True]) == [
        FORCE,
        CloseInput(),
        Wait(KILLED_S),
        Clear(0),
    ]
    assert walk(forced_shutdown_steps(), [False, False])[-1] == FORCE


def test_an_end_has_words() -> None:
    assert describe_status(0) == "exited with 0"
    assert describe_status(3) == "exited with 3"
    assert describe_status(-9) == "was killed by SIGKILL"
    assert describe_status(-60) == "was killed by signal 60"
    assert describe_status(None).startswith("ended")


# ---------------------------------------------------------------- we end it


@on_both_loops
async def test_the_end_of_its_input_is_enough_for_a_good_one() -> None:
    async with child_conversation("serves", grace_s=WAIT_S) as conversation:
        await conversation.call()
        await conversation.child.close()
        assert conversation.child._process.status == 0


@pytest.mark.spec("R0021", "R0022", "R0023", "R0028", "R0839", "R0840", "R0841")
@pytest.mark.parametrize(
    ("mode", "grace_s", "status"),
    [("serves", WAIT_S, 0), ("heeds_sigterm", 2.0, 0), ("ignores_the_end", SHORT_S, -9)],
)
@on_asyncio
async def test_a_client_closes_the_input_waits_asks_and_kills_in_every_revision(
    revision: Revision, mode: str, grace_s: float, status: int
) -> None:
    heard: list[str] = []
    with nothing_left():
        child = await start_child(misbehaving_server(mode), grace_s=grace_s, on_stderr=heard.append)
        client = Client(child.open_conversation, info=t.Implementation(name="c", version="1"))
        await client.open(revision)
        await client.close()
        assert alive(child.pid) == set()
        assert child._process.status == status
        assert ("SIGTERM came" in heard) == (mode == "heeds_sigterm")


@on_both_loops
async def test_one_that_waits_for_sigterm_hears_it_once_and_may_clean_up() -> None:
    async with child_conversation("heeds_sigterm", grace_s=WAIT_S) as conversation:
        await conversation.call()
        process = conversation.child._process
        process.close_input()
        assert not await process.wait(SHORT_S)
        process.kill(force=False)
        assert await process.wait(WAIT_S)
        await until(lambda: conversation.child.lost is not None)
        assert process.status == 0
        assert conversation.stderr_lines == ["ready", "SIGTERM came"]


@pytest.mark.parametrize("mode", ["ignores_the_end", "stops_itself", "never_reads"])
@on_asyncio
async def test_one_that_will_not_end_is_killed(mode: str) -> None:
    async with child_conversation(mode) as conversation:
        calling = asyncio.ensure_future(conversation.call())
        if mode == "ignores_the_end":
            assert await calling == "fine"
        elif mode == "stops_itself":
            await until(lambda: state(conversation.child.pid) == "T")
        else:
            await conversation.ready()
        await conversation.child.close("enough")
        assert conversation.child._process.status in (-9, -15)
        if mode != "ignores_the_end":
            with pytest.raises(ConnectionLost, match="enough during 'git_log'"):
                await calling


def state(pid: int) -> str:
    """What a process does, in the letter of ps: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.parametrize("mode", ["forks", "forks_a_daemon"])
@on_both_loops
async def test_what_it_started_ends_with_it(mode: str) -> None:
    async with child_conversation(mode) as conversation:
        grandchild = int(await conversation.call())
        assert grandchild in alive(conversation.child.pid, conversation.mark)
        await conversation.child.close()
        assert alive(conversation.child.pid, conversation.mark) == set()


@on_asyncio
async def test_what_it_started_ends_with_it_also_where_it_ends_by_itself() -> None:
    async with child_conversation("forks_a_daemon") as conversation:
        grandchild = int(await conversation.call())
        os.kill(conversation.child.pid, signal.SIGKILL)
        await until(lambda: grandchild not in alive(conversation.child.pid, conversation.mark))
        assert "was killed by SIGKILL" in str(conversation.child.lost)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
@pytest.mark.parametrize("mode", ["spawns_apart", "spawns_apart_and_ignores_the_end"])
@on_both_loops
async def test_what_has_a_session_and_an_empty_environment_of_its_own_ends_with_it(
    mode: str,
) -> None:
    async with child_conversation(mode) as conversation:
        pids = {int(one) for one in (await conversation.call()).split()}
        watched = {pid: os.pidfd_open(pid) for pid in pids}
        try:
            assert len(pids) == (3 if mode == "spawns_apart" else 2)
            assert not pids & alive(
                conversation.child.pid, conversation.mark
            )  # by which it was not known
            await conversation.child.close()
            # They were killed before it was closed; how soon they are gone the system says.
            await until(lambda: all(has_ended(end) for end in watched.values()))
        finally:
            for descriptor in watched.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                os.close(descriptor)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
@on_asyncio
async def test_a_number_that_another_process_has_by_now_is_not_signalled() -> None:
    """Its start is compared: numbers of processes are used again."""
    async with child_conversation("serves") as conversation:
        await conversation.call()
        process = conversation.child._process
        assert isinstance(process, PosixProcess)
        unknown = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        try:
            row = entry_of(unknown.pid)
            assert row is not None
            process._descendants[unknown.pid] = row.start - 1  # as one of ours had it before
            process.kill(force=True)
            assert unknown.pid not in process._descendants
            assert unknown.poll() is None
        finally:
            unknown.communicate(b"\n")
        assert unknown.returncode == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
@on_asyncio
async def test_other_children_of_this_process_are_left_alone() -> None:
    others = [
        subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            env={},
            start_new_session=apart,
        )
        for apart in (False, True)
    ]
    try:
        for mode in ("serves", "spawns_apart_and_ignores_the_end"):
            async with child_conversation(mode) as conversation:
                await conversation.call()
        assert [one.poll() for one in others] == [None, None]
    finally:
        for one in others:
            one.communicate(b"\n")
    assert [one.returncode for one in others] == [0, 0]


# ---------------------------------------------------------------- from anywhere, at any time


@on_both_loops
async def test_closing_works_from_any_task_in_any_order_and_twice() -> None:
    async with child_conversation("ignores_the_end") as conversation:
        calling = asyncio.ensure_future(conversation.call())
        await asyncio.gather(*(conversation.child.close(f"number {n}") for n in range(5)))
        await conversation.child.close("late")
        assert str(conversation.child.lost) == "number 0"
        with pytest.raises(ConnectionLost, match="number 0 during 'git_log'"):
            await calling
        assert conversation.client.ended == 1


@on_asyncio
async def test_whoever_gives_up_waiting_for_the_end_does_not_stop_it() -> None:
    async with child_conversation("ignores_the_end") as conversation:
        await conversation.ready()
        closing = asyncio.ensure_future(conversation.child.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: not alive(conversation.child.pid, conversation.mark))


@on_both_loops
async def test_a_child_that_nobody_listened_to_is_closed_as_well() -> None:
    with nothing_left():
        child = await start_child(misbehaving_server("serves"))
        await child.close()
        assert alive(child.pid) == set()


@on_asyncio
async def test_a_child_that_died_leaves_nothing_though_nobody_closes_it() -> None:
    with nothing_left():
        child = await start_child(misbehaving_server("exits_with_1"))
        ChildConversation(child, [])
        await until(lambda: child._ending is not None and child._ending.done())


@pytest.mark.parametrize("closing", [False, True])
def test_a_loop_that_ends_in_the_middle_of_an_end_kills_at_once(closing: bool) -> None:
    children: list[Child] = []

    async def main() -> None:
        child = await start_child(misbehaving_server("ignores_the_end"), grace_s=2 * WAIT_S)
        children.append(child)
        conversation = ChildConversation(child, [])
        assert await conversation.call() == "fine"
        task = asyncio.ensure_future(child.close())
        await asyncio.sleep(0)
        if closing:
            task.cancel()

    with nothing_left():
        began = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - began < WAIT_S
        assert alive(children[0].pid) == set()


# ---------------------------------------------------------------- a fork of us


@on_asyncio
async def test_a_fork_of_this_process_keeps_no_child_waiting_for_the_end_of_its_input() -> None:
    async with child_conversation("serves", grace_s=WAIT_S) as conversation:
        await conversation.call()
        reading, writing = os.pipe()
        fork = os.fork()
        if fork == 0:  # pragma: no cover - as multiprocessing does, where it forks
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        began = time.monotonic()
        await conversation.child.close()
        took = time.monotonic() - began
        os.close(writing)
        os.close(reading)
        os.waitpid(fork, 0)
        assert took < WAIT_S / 2
        assert conversation.child._process.status == 0


# ---------------------------------------------------------------- we are killed

PARENT = """
import asyncio, os, sys
sys.path[:0] = {paths!r}
from transport.child_processes import ChildConversation, misbehaving_server
from colonnade.transport.process.child import start_child

async def main():
    child = await start_child(misbehaving_server({mode!r}))
    conversation = ChildConversation(child, [])
    said = await conversation.call()
    if {forks!r}:
        if os.fork() == 0:
            os.close(1)
            while True:
                os.read(0, 1) or os._exit(0)
    print(child.pid, conversation.mark.decode(), said, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("mode", "forks"),
    [
        ("ignores_the_end", False),
        ("ignores_the_end", True),
        ("forks", False),
        ("forks_a_daemon", False),
    ],
)
def test_a_parent_that_is_killed_takes_its_children_and_theirs_with_it(
    mode: str, forks: bool
) -> None:
    paths = [str(Path(__file__).parent.parent.parent), *sys.path]
    script = PARENT.format(paths=paths, mode=mode, forks=forks)
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pid, word, _ = parent.stdout.readline().decode().split(" ", 2)
        group, mark = int(pid), word.encode()
        assert len(alive(group, mark)) == (1 if mode == "ignores_the_end" else 2)
        parent.kill()
        parent.wait()
        try:
            wait_until(lambda: not alive(group, mark))
            wait_until(lambda: not keepers(mark))
        finally:
            for left in alive(group, mark):
                os.kill(left, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/PID/comm")
def test_the_guard_of_a_child_says_in_ps_what_it_is() -> None:
    guard = Watchdog("a-mark-of-nobody", "")
    try:
        folder = Path(f"/proc/{guard._popen.pid}")
        wait_until(lambda: (folder / "comm").read_text() == "colonnade-guard\n")
        shell, option, script, title, mark = (folder / "cmdline").read_text().split("\0")[:-1]
        assert (shell, option, mark) == ("/bin/sh", "-c", "a-mark-of-nobody")
        assert (script, title) == (
            'eval "$COLONNADE_GUARD_SCRIPT"',
            f"colonnade-guard of {os.getpid()}",
        )
    finally:
        guard.drop()


def has_ended(descriptor: int) -> bool:
    """Whether the process of a descriptor has ended; one that is dead and not reaped has."""
    return bool(select.select([descriptor], [], [], 0)[0])


def keepers(word: bytes) -> list[str]:
    """The processes that have a mark as an argument."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
