"""A caller that crashes a server again and again: it is refused, and nobody else is."""

import asyncio
import os
import signal
from typing import Any

import pytest

from colonnade.errors import CannotConnect, ConnectionLost
from host.supervised import SupervisedServer, supervised
from live import Records, live, until

WORST: dict[str, Any] = {"options": {"random_fraction": lambda: 0.99}}


async def crash(server: SupervisedServer, caller: str, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionLost):
            await server.call("die", caller)


@pytest.mark.parametrize(
    ("kind", "sharing"),
    [("legacy", "caller"), ("legacy", "pooled"), ("legacy", "shared"), ("modern", "caller")],
)
@live
async def test_a_caller_that_crashes_a_server_is_refused_and_no_other(
    kind: str, sharing: str
) -> None:
    async with supervised(kind, sharing=sharing, max_crashes=2, **WORST) as server:
        with Records("colonnade.host") as records:
            await crash(server, "eve", 2)
            await until(lambda: server.supervisor.status.crashes == 2)
        for caller in ("ann", "bob"):
            assert await server.call("who", caller)
        with pytest.raises(CannotConnect, match="it failed 2 times within 300 s for this caller"):
            await server.call("who", "eve")
        assert ["refused to 'eve'" in line for line in records.lines].count(True) == 1
        status = server.supervisor.status
        assert (status.state, status.crashes, status.callers_given_up) == ("ready", 2, 1)
        server.supervisor.restart()
        assert await server.call("who", "eve")
        assert server.supervisor.status.callers_given_up == 0


@pytest.mark.parametrize("kind", ["legacy", "modern"])
@live
async def test_whoever_was_in_flight_once_is_not_refused_for_the_crashes_of_another(
    kind: str,
) -> None:
    async with supervised(kind, sharing="shared", max_crashes=2, **WORST) as server:
        for victim in ("ann", "bob", "cat"):
            lost = asyncio.create_task(server.call("hang", victim))
            await until(lambda: server.in_flight == 1)
            await crash(server, "eve", 1)
            with pytest.raises(ConnectionLost):
                await lost
        for victim in ("ann", "bob", "cat", "dan"):
            assert await server.call("who", victim)
        with pytest.raises(CannotConnect, match="for this caller"):
            await server.call("who", "eve")


@live
async def test_a_server_that_does_not_start_is_given_up_for_all_after_several_callers() -> None:
    async with supervised("refusing", max_crashes=3) as server:
        for caller in ("ann", "ann", "bob"):
            with pytest.raises(CannotConnect, match="No module named 'git'"):
                await server.call("who", caller)
        with pytest.raises(CannotConnect, match="No module named 'git'"):  # two are not several
            await server.call("who", "cat")
        with pytest.raises(CannotConnect, match=r"it failed 4 times .* for several callers"):
            await server.call("who", "dan")
        status = server.supervisor.status
        assert (status.state, status.crashes, status.callers_given_up) == ("given_up", 4, 0)


@live
async def test_a_call_waits_while_the_next_start_does() -> None:
    async with supervised(sharing="shared", max_crashes=1) as server:
        for _ in range(2):
            calls = (server.call("hang", one) for one in ("ann", "bob"))
            lost = asyncio.gather(*calls, return_exceptions=True)
            await until(lambda: server.in_flight == 2)
            os.kill(server.pids[0], signal.SIGKILL)
            assert [type(one) for one in await lost] == [ConnectionLost] * 2
        assert await server.call("who", "ann")
        assert server.supervisor.status.crashes == 2
