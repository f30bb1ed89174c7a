"""Starts: when they are needed, once for many, bounded, and what a failed one says to whom."""

import asyncio
import os
from typing import Any

import pytest

from colonnade.errors import (
    CannotConnect,
    ConnectionLost,
    LocalProtocolError,
    LoginRequired,
    Refused,
)
from colonnade.host.servers.supervisor import ServerSupervisor
from host.supervised import HANDSHAKE, children, command, entry, supervised, turns_of_loop
from live import live, until

DATE = HANDSHAKE


@live
async def test_nothing_is_started_before_somebody_needs_it() -> None:
    async with supervised() as server:
        assert server.supervisor.status.state == "idle"
        assert children() == set()
        pid = int(await server.call("who"))
        status = server.supervisor.status
        assert (status.state, status.pid, status.sessions) == ("ready", pid, 1)
        assert status.revision == DATE
        assert int(await server.call("who")) == pid
    assert server.supervisor.status.state == "stopped"
    assert children() == set()


@pytest.mark.parametrize("kind", ["legacy", "modern"])
@live
async def test_many_who_come_at_once_wait_for_one_start(kind: str) -> None:
    looked_up: list[int] = []

    async def look_up() -> Any:
        looked_up.append(1)
        return command(kind)

    async with supervised(kind, target=look_up) as server:
        pids = await asyncio.gather(*(server.call("who") for _ in range(20)))
        assert len(set(pids)) == 1
        assert len(looked_up) == 1


@live
async def test_whoever_gives_up_stops_a_start_for_nobody_else() -> None:
    ready = asyncio.Event()

    async def look_up() -> Any:
        await ready.wait()
        return command()

    async with supervised(target=look_up) as server:
        calls = [asyncio.create_task(server.call("who")) for _ in range(3)]
        await turns_of_loop()
        assert server.supervisor.status.state == "starting"
        calls[0].cancel()
        await turns_of_loop()
        ready.set()
        assert await calls[1] == await calls[2]
        assert server.supervisor.status.crashes == 0


@live
async def test_the_last_who_gives_up_stops_the_start_and_its_process() -> None:
    async with supervised("silent") as server:
        calls = [asyncio.create_task(server.call("who")) for _ in range(2)]
        await until(lambda: bool(children()))
        calls[0].cancel()
        await turns_of_loop()
        assert server.supervisor.status.state == "starting"
        calls[1].cancel()
        await asyncio.wait(calls)
        await until(lambda: children() == set())
        assert server.supervisor.status.state == "idle"
        assert server.supervisor.status.crashes == 0


@live
async def test_who_comes_after_a_start_was_given_up_gets_another_one() -> None:
    kinds = iter(["silent", "legacy"])

    async def look_up() -> Any:
        return command(next(kinds))

    async with supervised(target=look_up) as server:
        first = asyncio.create_task(server.call("who"))
        await until(lambda: bool(children()))
        first.cancel()
        await asyncio.wait([first])
        assert int(await server.call("who")) > 0


@live
async def test_a_start_ends_in_time_and_says_what_the_server_wrote_to_all_who_waited() -> None:
    async with supervised("silent", start_s=4.0) as server:
        results = await asyncio.gather(
            *(server.call("who") for _ in range(3)), return_exceptions=True
        )
        words = "server 'odd': it did not start within 4 s; its last lines: loading a large model"
        assert [(type(one), str(one)) for one in results] == [(CannotConnect, words)] * 3
        assert len({id(one) for one in results}) == 3
        assert server.supervisor.status.crashes == 1
        assert server.supervisor.status.last_error == words
        assert server.supervisor.status.stderr == ("loading a large model",)


@live
async def test_a_server_that_exits_is_quoted() -> None:
    async with supervised("refusing") as server:
        with pytest.raises(CannotConnect, match="No module named 'git'") as caught:
            await server.call("who")
        assert "odd" in str(caught.value)
        assert server.supervisor.status.crashes == 1


@live
async def test_a_failure_names_its_server_however_short_its_key() -> None:
    async with supervised("refusing", key="e") as server:
        with pytest.raises(CannotConnect, match=r"^server 'e'"):
            await server.call("who")


@live
async def test_a_command_that_is_not_there_is_a_failed_start() -> None:
    async with supervised(target=["no-such-program-anywhere"]) as server:
        with pytest.raises(CannotConnect, match="no-such-program-anywhere"):
            await server.call("who")
        assert server.supervisor.status.crashes == 1


@pytest.mark.parametrize(
    "error",
    [LoginRequired("log in"), LocalProtocolError("no such key"), Refused("it would run more")],
    ids=lambda error: type(error).__name__,
)
@live
async def test_what_is_not_the_servers_fault_is_no_crash(error: Exception) -> None:
    async def look_up() -> Any:
        raise error

    async with supervised(target=look_up) as server:
        for _ in range(10):
            with pytest.raises(type(error), match=str(error)):
                await server.call("who")
        status = server.supervisor.status
        assert (status.state, status.crashes, status.last_error) == ("idle", 0, str(error))


@live
async def test_a_reference_that_cannot_be_looked_up_names_the_server() -> None:
    async def look_up() -> Any:
        raise KeyError("TOKEN")

    async with supervised(target=look_up) as server:
        with pytest.raises(LocalProtocolError, match=r"server 'odd'.*'TOKEN'"):
            await server.call("who")


@live
async def test_a_target_that_is_none_is_refused_with_what_to_write() -> None:
    async with supervised(target="uvx mcp-server-git") as server:
        with pytest.raises(LocalProtocolError, match="a command is a list"):
            await server.call("who")
        assert server.supervisor.status.crashes == 0


@live
async def test_secrets_are_looked_up_for_every_start() -> None:
    tokens = iter(["first", "second"])

    async def look_up() -> Any:
        argv = command()
        return {"command": argv[0], "args": argv[1:], "env": {"TOKEN": next(tokens)}}

    async with supervised(target=look_up) as server:
        assert await server.call("env", name="TOKEN") == "first"
        with pytest.raises(ConnectionLost):
            await server.call("die")
        assert await server.call("env", name="TOKEN") == "second"


@live
async def test_a_lookup_that_hangs_ends_with_the_start() -> None:
    async def look_up() -> Any:
        await asyncio.Event().wait()

    async with supervised(target=look_up, start_s=0.05) as server:
        with pytest.raises(CannotConnect, match=r"did not start within 0\.05 s"):
            await server.call("who")


@live
async def test_closing_ends_a_start_and_tells_who_waits() -> None:
    async with supervised("silent") as server:
        call = asyncio.create_task(server.call("who"))
        await until(lambda: bool(children()))
        await server.supervisor.close()
        with pytest.raises(ConnectionLost, match="the host was closed"):
            await call
        assert children() == set()
        with pytest.raises(CannotConnect, match="the host was closed"):
            await server.call("who")


@live
async def test_a_child_gets_nothing_of_our_environment() -> None:
    os.environ["CANARY_OF_HOST"] = "seen"
    try:
        async with supervised() as server:
            assert await server.call("env", name="CANARY_OF_HOST") == ""
    finally:
        del os.environ["CANARY_OF_HOST"]


def test_a_server_can_be_looked_at_without_a_loop() -> None:
    supervisor = ServerSupervisor(entry(command()))
    assert repr(supervisor) == "ServerSupervisor('odd', idle)"
    assert supervisor.status.state == "idle"
