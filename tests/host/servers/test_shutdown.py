"""Ends: a server that dies, hangs, idles, is drained or closed; who learns of it, and who not."""

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

import pytest

from colonnade.errors import CannotConnect, ConnectionLost, TimedOut
from colonnade.host.servers import supervisor
from colonnade.host.servers.session import SessionState
from colonnade.host.servers.supervisor import ServerSupervisor
from colonnade.protocol import types as t
from host.supervised import HANDSHAKE, Call, children, command, supervised, turns_of_loop
from live import Records, live, until


class Clock:
    """A time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------- one that dies


@live
async def test_a_server_that_is_killed_in_a_call_fails_that_call_at_once_and_no_other() -> None:
    async with supervised(key="one") as one, supervised(key="two") as two:
        await asyncio.gather(one.call("who", "alice"), one.call("who", "bob"), two.call("who"))
        others = [
            asyncio.create_task(one.call("wait", "bob")),
            asyncio.create_task(two.call("wait")),
        ]
        victim = asyncio.create_task(one.call("hang", "alice"))
        await until(lambda: one.in_flight == 2 and two.in_flight == 1)
        (session,) = [session for session in one.supervisor.sessions if session.caller == "alice"]
        assert session.child is not None
        os.kill(session.child.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost) as caught:
            await victim
        words = str(caught.value)
        assert words == (
            f"server 'one' (pid {session.child.pid}) was killed by SIGKILL during 'hang'; "
            "whether it had an effect is unknown"
        )
        assert not any(other.done() for other in others)
        await asyncio.gather(one.call("go", "bob"), two.call("go"))
        assert all(await asyncio.gather(*others))
        assert int(await one.call("who", "alice")) in one.pids


@live
async def test_an_end_is_noticed_at_once_and_not_at_the_next_call() -> None:
    changes: list[str] = []

    def changed(supervisor: ServerSupervisor) -> None:
        changes.append(supervisor.state)

    async with supervised(options={"on_change": changed}) as server:
        pid = int(await server.call("who"))
        os.kill(pid, signal.SIGKILL)
        with Records("colonnade.host") as records:
            await until(lambda: changes[-1] == "idle")
            assert any("was killed by SIGKILL" in line for line in records.lines)
        status = server.supervisor.status
        assert (status.sessions, status.crashes) == (0, 1)
        assert "was killed by SIGKILL" in (status.last_error or "")
        assert int(await server.call("who")) != pid


@live
async def test_what_only_looks_is_asked_again_of_a_fresh_start() -> None:
    async with supervised() as server:
        pid = int(await server.call("who"))
        params = t.PaginatedRequestParams()
        turn = Call("tools/list", params, "", lambda _: None)
        os.kill(pid, signal.SIGKILL)  # nobody has noticed yet
        found = await server.supervisor.request(turn, "tools/list", params)
        assert isinstance(found, t.ListToolsResult)
        os.kill(server.pids[0], signal.SIGKILL)
        listed = await server.supervisor.run_read_only(turn, lambda call: call.client.list_tools())
        assert [tool.name for tool in listed] == [tool.name for tool in found.tools]
        assert server.supervisor.status.crashes == 2


@live
async def test_a_server_that_ends_again_and_again_is_given_up_until_it_is_restarted() -> None:
    clock = Clock()
    async with supervised("refusing", max_crashes=3, options={"clock": clock}) as server:
        for _ in range(3):
            with pytest.raises(CannotConnect, match="No module named"):
                await server.call("who")
        with pytest.raises(CannotConnect) as caught:
            await server.call("who")
        assert str(caught.value).startswith(
            "server 'odd': it failed 3 times within 300 s for this caller and is not tried for 300 s, "
            "or until it is restarted. Last: "
        )
        assert "No module named 'git'" in str(caught.value)
        status = server.supervisor.status
        assert (status.state, status.crashes) == ("given_up", 3)
        server.supervisor.restart()
        assert server.supervisor.status.state == "idle"
        with pytest.raises(CannotConnect, match="exited with 1"):
            await server.call("who")


@live
async def test_a_server_that_is_backing_off_is_refused_at_once_and_tried_again_later() -> None:
    clock, kinds = Clock(), iter(["refusing", "refusing", "legacy"])

    async def look_up() -> Any:
        return command(next(kinds))

    options = {"clock": clock, "random_fraction": lambda: 0.5}
    async with supervised(target=look_up, options=options) as server:
        for _ in range(2):
            with pytest.raises(CannotConnect, match="No module named"):
                await server.call("who")
        assert server.supervisor.status.state == "backing_off"
        with pytest.raises(CannotConnect, match=r"failed 2 times .* the next attempt is in 0\.2 s"):
            await server.call("who")
        clock.now += 0.3
        assert await server.call("who")
        assert server.supervisor.status.last_error is None


# ---------------------------------------------------------------- one that hangs


@live
async def test_a_server_that_hangs_delays_nobody() -> None:
    async with supervised(key="hung") as hung, supervised(key="well") as well:
        await asyncio.gather(hung.call("who"), well.call("who"))
        stuck = asyncio.create_task(hung.call("freeze"))
        await until(lambda: hung.in_flight == 1)
        for _ in range(100):
            await well.call("who")
        with pytest.raises(TimedOut, match="hung"):
            await hung.call("who", timeout_s=0.1)
        assert not stuck.done()
        assert int(await hung.call("who", "another caller")) in hung.pids
        stuck.cancel()
        await asyncio.wait([stuck])


@pytest.mark.parametrize("kind", ["legacy", "modern"])
@live
async def test_a_process_that_answers_neither_a_call_nor_a_ping_is_ended(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PROBE_S", 0.1)
    async with supervised(kind) as server:
        pid = int(await server.call("who"))
        with pytest.raises(TimedOut):
            await server.call("freeze", timeout_s=0.1)
        await until(lambda: not server.supervisor.sessions)
        assert int(await server.call("who")) != pid
        assert server.supervisor.status.crashes == 1


@live
async def test_a_process_that_only_took_too_long_is_left_alone() -> None:
    async with supervised() as server:
        pid = int(await server.call("who"))
        with pytest.raises(TimedOut):
            await server.call("hang", timeout_s=0.1)
        (session,) = server.supervisor.sessions
        await until(lambda: session.state is SessionState.UNSETTLED)
        assert int(await server.call("who")) == pid
        assert server.supervisor.status.crashes == 0


@live
async def test_a_process_that_others_wait_for_is_not_ended_for_one_who_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PROBE_S", 0.05)
    async with supervised("modern") as server:
        pid = await server.call("who")
        waiting = asyncio.create_task(server.call("wait", "alice"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        os.kill(int(pid), signal.SIGSTOP)
        with pytest.raises(TimedOut):
            await server.call("who", "bob", timeout_s=0.1)
        os.kill(int(pid), signal.SIGCONT)
        await server.call("go", "bob")
        assert await waiting == pid


@live
async def test_a_server_that_never_starts_delays_nobody() -> None:
    async with supervised("silent", key="hung") as hung, supervised(key="well") as well:
        stuck = asyncio.create_task(hung.call("who"))
        await until(lambda: bool(children()))
        await well.call("who")
        assert not stuck.done()
        stuck.cancel()
        await asyncio.wait([stuck])


@live
async def test_a_server_that_answers_no_ping_is_ended_and_started_again() -> None:
    async with supervised(options={"ping_s": 0.05}, timeout_s=1.5) as server:
        pid = int(await server.call("who"))
        os.kill(pid, signal.SIGSTOP)
        with Records("colonnade.client", "colonnade.host") as records:
            await until(lambda: not server.supervisor.sessions)
        assert any("did not respond to a ping" in line for line in records.lines)
        assert int(await server.call("who")) != pid


# ---------------------------------------------------------------- one that nobody uses


@live
async def test_a_server_that_nobody_uses_is_stopped_and_started_again_for_the_next_call() -> None:
    opened: list[object] = []
    options = {"on_open": lambda _, session: opened.append(session)}
    async with supervised(idle_s=0.2, options=options) as server:
        pid = int(await server.call("who"))
        await until(lambda: not server.supervisor.sessions)
        await until(lambda: children() == set())
        status = server.supervisor.status
        assert (status.state, status.crashes, status.last_error) == ("idle", 0, None)
        assert int(await server.call("who")) != pid
        assert len(opened) == 2


@live
async def test_a_call_in_flight_is_no_idleness() -> None:
    async with supervised(idle_s=0.05) as server:
        waiting = asyncio.create_task(server.call("wait"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        (session,) = server.supervisor.sessions
        timer = session.timer
        await until(lambda: session.timer is not timer)  # it rang, and was set again
        assert not waiting.done()
        pid = await server.call("go")
        assert await waiting == pid


# ---------------------------------------------------------------- one that is taken away


@live
async def test_draining_lets_calls_finish_and_takes_no_new_ones() -> None:
    async with supervised() as server:
        waiting = asyncio.create_task(server.call("wait"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        going = server.supervisor.acquire(Call("tools/call", t.RequestParams(), "", lambda _: None))
        async with going as call:
            draining = asyncio.create_task(server.supervisor.drain())
            await turns_of_loop()
            with pytest.raises(CannotConnect, match="its configuration has changed; try again"):
                await server.call("who")
            assert server.supervisor.draining
            assert not draining.done()
            await call.request("tools/call", t.CallToolRequestParams(name="go"))
            assert await waiting
            await turns_of_loop()
            assert not draining.done()
        await draining
        assert server.supervisor.status.state == "stopped"
        assert children() == set()


@live
async def test_who_waits_for_a_start_is_not_lost_by_a_drain() -> None:
    ready = asyncio.Event()

    async def look_up() -> Any:
        await ready.wait()
        return command()

    async with supervised(target=look_up) as server:
        call = asyncio.create_task(server.call("who"))
        await turns_of_loop()
        draining = asyncio.create_task(server.supervisor.drain())
        await turns_of_loop()
        ready.set()
        assert int(await call)
        await draining


@live
async def test_a_call_that_outlasts_a_drain_fails_with_the_reason() -> None:
    async with supervised() as server:
        hanging = asyncio.create_task(server.call("hang"))
        await until(lambda: server.in_flight == 1)
        await server.supervisor.drain(0.05)
        words = "server 'odd': its configuration has changed, and this was not done in time during"
        with pytest.raises(ConnectionLost, match=words):
            await hanging
        assert children() == set()


@live
async def test_a_restart_lets_calls_finish_and_starts_anew_for_the_next() -> None:
    async with supervised() as server:
        pid = await server.call("who")
        waiting = asyncio.create_task(server.call("wait"))
        await until(lambda: "waiting" in server.supervisor.status.stderr)
        (session,) = server.supervisor.sessions
        server.supervisor.restart()
        assert await server.call("who") != pid
        with contextlib.suppress(ConnectionLost):  # its own answer is nobody's, and may be cut off
            await session.client.call_tool("go")
        assert await waiting == pid
        await until(lambda: len(server.pids) == 1)


@live
async def test_closing_ends_many_sessions_at_the_same_time() -> None:
    argv = ["sh", "-c", SHELL_SERVER + "; trap '' TERM; while :; do sleep 1; done"]
    async with supervised(target=argv) as server:
        for caller in "abcdefgh":
            async with server.supervisor.acquire(
                Call("tools/call", t.RequestParams(), caller, lambda _: None)
            ):
                pass
        assert len(server.pids) == 8
        began = time.monotonic()
        await server.supervisor.close()
        assert time.monotonic() - began < 30.0  # each of them takes more than four
        assert children() == set()


# Answers a handshake, and needs no interpreter to be loaded.
SHELL_SERVER = (
    "read -r line; id=${line#*'\"id\":'}; id=${id%%[,\\}]*}; "
    'printf \'{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":'
    '{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}\\n\' "$id" ' + HANDSHAKE
)
