"""Nothing is left behind: a thousand ends and starts, and ten thousand calls."""

import asyncio
import gc
import os
import signal
import time

import pytest
from msgspec import Raw

from colonnade import Server
from colonnade.errors import ConnectionLost
from colonnade.host.servers.supervisor import ServerSupervisor
from colonnade.protocol import types as t
from host.supervised import (
    HANDSHAKE,
    Call,
    SupervisedServer,
    children,
    descriptors,
    entry,
    supervised,
)
from live import live, live_for, until

SERVERS, CYCLES = 10, 100
# A shell is started in a millisecond, and there are a thousand of them. It answers a handshake,
# starts a child of its own that would outlive it, and waits for a call that it never answers.
SHELL = (
    "sleep 1000 & "
    "read -r line; id=${line#*'\"id\":'}; id=${id%%[,\\}]*}; "
    'printf \'{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":'
    '{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}\\n\' "$id" '
    + HANDSHAKE
    + "; while read -r line; do :; done"
)
CALL = t.CallToolRequestParams(name="hang")


def turn(caller: str = "") -> Call:
    return Call("tools/call", CALL, caller, lambda _: None)


def orphans(word: str) -> list[int]:
    """Processes of anybody that carry a mark in their environment."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if word.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


async def cycle(server: SupervisedServer) -> float:
    """Start it, kill it in the middle of a call, and see that call fail: how long that took."""
    async with server.supervisor.acquire(turn()) as call:
        child = call.session.child
        assert child is not None
        asked = asyncio.ensure_future(call.request("tools/call", CALL))
        await asyncio.sleep(0)
        began = time.monotonic()
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost, match="was killed by SIGKILL during 'hang'"):
            await asked
        return time.monotonic() - began


@pytest.mark.slow
@live_for(600)
async def test_a_thousand_ends_and_starts_leave_no_process_and_no_descriptor() -> None:
    mark = f"COLONNADE_CYCLES={os.getpid()}"
    name, value = mark.split("=")
    target = {"command": "sh", "args": ["-c", SHELL], "env": {name: value}}
    settings = {"revision": HANDSHAKE, "max_crashes": 10**6}
    servers = [
        SupervisedServer(
            ServerSupervisor(entry(target, f"s{number}", **settings), random_fraction=lambda: 0.0)
        )
        for number in range(SERVERS)
    ]
    gc.collect()
    before, tasks = descriptors(), len(asyncio.all_tasks())
    assert children() == set()
    began = time.monotonic()

    async def cycles(server: SupervisedServer) -> list[float]:
        return [await cycle(server) for _ in range(CYCLES)]

    took = [one for some in await asyncio.gather(*map(cycles, servers)) for one in some]
    seconds = time.monotonic() - began
    assert sum(server.supervisor.status.crashes for server in servers) == SERVERS * CYCLES
    await asyncio.gather(*(server.supervisor.close() for server in servers))
    await asyncio.sleep(0)
    gc.collect()
    took.sort()
    print(
        f"\n{len(took)} cycles over {SERVERS} servers in {seconds:.1f} s; a call in a killed server "
        f"failed after {took[len(took) // 2] * 1000:.1f} ms (median), {took[-1] * 1000:.0f} ms (most)"
    )
    assert children() == set()
    assert orphans(mark) == []
    assert descriptors() == before
    assert len(asyncio.all_tasks()) == tasks


@live
async def test_ten_thousand_uses_leave_as_many_tasks_as_there_were() -> None:
    server = Server("calm")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with supervised("modern", target=server) as host:
        await host.call("add", a=1, b=2)
        host.calls.clear()
        gc.collect()
        tasks, fds = len(asyncio.all_tasks()), descriptors()
        for number in range(10_000):
            async with host.supervisor.acquire(turn(f"caller {number % 50}")):
                pass
        params = t.CallToolRequestParams(name="add", arguments=Raw(b'{"a":1,"b":2}'))
        for _ in range(200):
            await host.supervisor.request(turn(), "tools/call", params)
        assert len(asyncio.all_tasks()) == tasks
        assert descriptors() == fds
        assert host.supervisor.status.in_flight == 0


@live
async def test_ten_thousand_uses_of_a_child_leave_one_timer() -> None:
    async with supervised() as host:
        await host.call("who")
        loop = asyncio.get_running_loop()
        before = len(vars(loop)["_scheduled"])
        for _ in range(10_000):
            async with host.supervisor.acquire(turn()):
                pass
        assert len(vars(loop)["_scheduled"]) <= before
        assert len(host.pids) == 1


@live
async def test_callers_who_come_and_go_leave_no_more_processes_than_there_may_be() -> None:
    async with supervised(target=["sh", "-c", SHELL], max_sessions=3) as host:
        most = 0
        for number in range(20):
            async with host.supervisor.acquire(turn(f"caller {number}")):
                most = max(most, len(children()))
        assert most <= 2 * 3  # each has one beside it that ends it should we be killed
        assert len(host.pids) <= 3
    await until(lambda: children() == set())
