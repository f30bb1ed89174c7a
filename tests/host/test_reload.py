"""Another configuration while calls are under way: none is lost, none sees two generations."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import Host, LocalProtocolError, RemoteError, RequestContext, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.runtime import ListChanges
from live import live, live_for, until


class Gate:
    """Where a call waits until it is let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()


def generation(number: int, gate: Gate | None = None) -> Server:
    """A server of one generation, each of whose tools says which it is."""
    server = Server(f"generation {number}")

    @server.tool
    async def which(turns: int = 0) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return number

    @server.tool(name=f"only_{number}")
    def only() -> int:
        return number

    @server.tool
    async def wait() -> int:
        assert gate is not None
        gate.reached.set()
        await gate.opened.wait()
        return number

    @server.resource(f"number://{number}")
    def resource() -> str:
        return str(number)

    _ = which, only, wait, resource
    return server


@live_for(600)
async def test_no_call_is_lost_and_none_is_on_a_mixed_generation() -> None:
    """Calls of two servers that change together, in flight while both are exchanged again and
    again. Each call finds a tool that only its own generation has."""
    now = 1
    pairs = {n: (generation(n), generation(n)) for n in range(1, 31)}
    async with Host({"a": pairs[1][0], "b": pairs[1][1]}) as host:
        done: list[tuple[int, int, int]] = []
        is_over = False

        async def caller(name: str) -> None:
            turns = 0
            while not is_over:
                turns = (turns + 1) % 7
                before = now
                found = (await host.call_tool(f"{name}__which", {"turns": turns})).data
                done.append((before, found, now))

        callers = [asyncio.create_task(caller(name)) for name in "abab" * 5]
        for number in range(2, 31):
            count = len(done)
            await until(lambda count=count: len(done) > count + 20)
            now = number
            await host.reload({"a": pairs[number][0], "b": pairs[number][1]})
            with pytest.raises(RemoteError):
                await host.call_tool(f"a__only_{number - 1}")
            assert (await host.call_tool(f"a__only_{number}")).data == number
        is_over = True
        await asyncio.gather(*callers)  # none has raised
        assert len(done) > 500
        assert all(before <= found <= after for before, found, after in done)


TELLING = """
import sys
from colonnade import Server

server = Server("generation")


@server.tool
def which() -> str:
    return sys.argv[1]


server.run()
"""


@live_for(600)
async def test_processes_are_exchanged_under_calls_and_no_call_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "telling.py"
    file.write_text(TELLING)
    done: list[tuple[int, int, int]] = []
    now, is_over = 1, False

    def servers(number: int) -> dict[str, list[str]]:
        return {key: [sys.executable, str(file), str(number)] for key in "ab"}

    async with Host(servers(1)) as host:

        async def caller(key: str) -> None:
            while not is_over:
                before = now
                found = int((await host.call_tool(f"{key}__which")).text)
                done.append((before, found, now))

        callers = [asyncio.create_task(caller(key)) for key in "ab" * 4]
        for number in (2, 3, 4):
            count = len(done)
            async with asyncio.timeout(30):
                while len(done) < count + 20:
                    await asyncio.sleep(0.005)
            now = number
            await host.reload(servers(number))
        assert (await host.call_tool("b__which")).text == "4"
        is_over = True
        await asyncio.gather(*callers)  # none has raised
    assert {found for _, found, _ in done} == {1, 2, 3, 4}
    assert all(before <= found <= after for before, found, after in done)


@live
async def test_a_call_under_way_finishes_where_it_began() -> None:
    gate = Gate()
    old, new = generation(1, gate), generation(2)
    async with Host({"a": old}) as host:
        waiting = asyncio.create_task(host.call_tool("a__wait"))
        await gate.reached.wait()
        first = host._runtime.generation.servers["a"]
        await host.reload({"a": new})
        assert (await host.call_tool("a__which")).data == 2
        assert first.supervisor.state == "ready"
        gate.opened.set()
        assert (await waiting).data == 1
        await until(lambda: first.supervisor.state == "stopped")


class Slow(Server):
    """Lists its tools when it is let to."""

    gate: Gate

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.exchange.method.name == "tools/list":
            self.gate.reached.set()
            await self.gate.opened.wait()
        return await super().respond(request)


@live
async def test_a_call_that_still_looks_for_its_tool_finishes_where_it_began() -> None:
    slow = Slow("slow")
    slow.gate = Gate()

    @slow.tool
    def which() -> int:
        return 1

    _ = which
    async with Host({"a": slow}) as host:
        call = asyncio.create_task(host.call_tool("a__which"))
        await slow.gate.reached.wait()
        await host.reload({"a": generation(2)})
        assert (await host.call_tool("a__which")).data == 2
        slow.gate.opened.set()
        assert (await call).data == 1


@live
async def test_what_has_not_changed_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        "import os\nfrom colonnade import Server\nserver = Server('s')\n"
        "@server.tool\ndef pid() -> int:\n    return os.getpid()\nserver.run()\n"
    )
    command = [sys.executable, str(file)]
    kept, other = generation(1), generation(2)
    async with Host({"same": command, "kept": kept, "other": other}) as host:
        pid = (await host.call_tool("same__pid")).data
        await host.list_tools()
        await host.reload({"new": generation(3), "kept": kept, "same": list(command)})
        assert (await host.call_tool("same__pid")).data == pid
        assert host.servers == ("new", "kept", "same")
        await host.reload({"same": [*command, "-x"]})
        assert (await host.call_tool("same__pid")).data != pid
        with pytest.raises(RemoteError, match="no tool 'kept__which'"):
            await host.call_tool("kept__which")


@live
async def test_settings_that_changed_make_another_server() -> None:
    server = generation(1)
    async with Host({"a": server}) as host:
        assert (await host.list_tools())[0].original == "which"
        await host.reload({"a": entry_of("a", server, Settings(hidden=("which",)))})
        assert "which" not in [tool.original for tool in await host.list_tools()]


@live
async def test_watchers_are_told_of_a_reload_once() -> None:
    told: list[ListChanges] = []
    kept = generation(1)
    async with Host({"a": kept, "b": generation(2)}) as host:
        end = host.watch(told.append)
        await host.reload({"a": kept, "c": generation(3)})
        assert [(set(one.kinds) >= {"tools"}, one.servers) for one in told] == [(True, ("b", "c"))]
        await host.reload({"a": kept, "c": host._runtime.generation.servers["c"].entry})
        assert len(told) == 1  # nothing has changed
        end()
        await host.reload({})
        assert len(told) == 1
        assert await host.list_tools() == []


@live
async def test_a_host_that_is_closed_ends_what_is_under_way_and_what_was_leaving() -> None:
    gates = [Gate(), Gate()]
    host = Host({"a": generation(1, gates[0])})
    calls = [asyncio.create_task(host.call_tool("a__wait"))]
    await gates[0].reached.wait()
    await host.reload({"a": generation(2, gates[1])})
    calls.append(asyncio.create_task(host.call_tool("a__wait")))
    await gates[1].reached.wait()
    await host.close()
    await host.close()
    ends: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, Exception) and "closed" in str(end) for end in ends), ends
    with pytest.raises(Exception, match="this host is closed"):
        await host.call_tool("a__which")
    with pytest.raises(LocalProtocolError, match="closed"):
        await host.reload({})
