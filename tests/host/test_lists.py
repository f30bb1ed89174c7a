"""The live catalogue: in parallel, bounded, kept, changed; and nobody's list breaks another's."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import ConnectionLost, Host, RemoteError, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.runtime import ListChanges
from colonnade.host.servers import listings
from colonnade.protocol import types as t
from colonnade.providers.tool_calls import is_safe
from host.supervised import HANDSHAKE, command, entry
from live import Records, live, until

HUNG = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def small(name: str = "small") -> Server:
    server = Server(name)

    @server.tool
    def one() -> str:
        return "one"

    _ = one
    return server


@pytest.mark.spec("R0982", "R0983")
@live
async def test_tools_of_two_servers_of_one_name_are_kept_apart_by_their_keys() -> None:
    first, second = Server("same"), Server("same")

    @first.tool(name="search")
    def search_first() -> str:
        return "first"

    @second.tool(name="search")
    def search_second() -> str:
        return "second"

    async with Host({"a": first, "b": second}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["a__search", "b__search"]
        assert (await host.call_tool("a__search")).text == "first"
        assert (await host.call_tool("b__search")).text == "second"
    _ = search_first, search_second


class Counted(Server):
    """A server that counts how often its tools are listed."""

    listed = 0

    async def respond(self, request: Any) -> bytes | None:
        self.listed += request.exchange.method.name == "tools/list"
        return await super().respond(request)


def counted() -> Counted:
    server = Counted("counted")

    @server.tool
    def one() -> str:
        return "one"

    _ = one
    return server


@live
async def test_a_hung_server_costs_whoever_looks_a_bounded_wait_and_then_none() -> None:
    loop = asyncio.get_running_loop()
    async with Host({"hung": HUNG, "good": small()}, wait_s=2.0) as host:
        assert [tool.name for tool in await host.list_tools()] == ["good__one"]
        (problem,) = host.problems
        assert problem.server == "hung"
        assert "are not available yet" in problem.message
        began = loop.time()
        for _ in range(20):
            assert len(await host.list_tools()) == 1
        assert loop.time() - began < 30  # and not twenty times the wait
        assert (await host.call_tool("good__one")).text == "one"


class Mute(Counted):
    """One that does not tell when they change."""

    async def respond(self, request: Any) -> bytes | None:
        found = await super().respond(request)
        return found and found.replace(b'"listChanged":true', b'"listChanged":false')


@pytest.mark.spec("R1006", "R1013")
@live
async def test_a_list_of_which_nobody_tells_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mute, telling = Mute("mute"), Counted("telling")
    for server in (mute, telling):
        server.tool(_nothing)
    async with Host({"mute": mute, "telling": telling}) as host:
        for _ in range(3):
            assert len(await host.list_tools()) == 2
        assert (mute.listed, telling.listed) == (1, 1)
        monkeypatch.setattr(listings, "UNNOTIFIED_S", 0.0)
        for _ in range(3):
            assert len(await host.list_tools()) == 2
        assert (mute.listed, telling.listed) == (4, 1)


@live
async def test_nothing_is_started_because_a_list_of_a_stopped_process_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = entry(command(), "odd", revision=HANDSHAKE, idle_s=0.01)
    async with Host({"odd": stopped}) as host:
        assert len(await host.list_tools()) == 3
        await until(lambda: host.status()[0].sessions == 0)
        monkeypatch.setattr(listings, "UNNOTIFIED_S", 0.0)
        assert len(await host.list_tools()) == 3
        assert host.status()[0].state == "idle"


class Meeting(Server):
    """Lists its tools when all the others are asked for theirs, too."""

    barrier: asyncio.Barrier

    async def respond(self, request: Any) -> bytes | None:
        if request.exchange.method.name == "tools/list":
            await self.barrier.wait()
        return await super().respond(request)


@live
async def test_all_servers_are_asked_at_once() -> None:
    servers = {key: Meeting(key) for key in "abc"}
    barrier = asyncio.Barrier(len(servers))
    for server in servers.values():
        server.barrier = barrier
        server.tool(_nothing)
    async with Host(servers) as host:
        assert [tool.server for tool in await host.list_tools()] == ["a", "b", "c"]


def _nothing() -> None: ...


@live
async def test_a_key_may_be_anything_and_names_are_good_all_the_same() -> None:
    keys = ["my server!", "a__b", "_", "工具", "x" * 100, "a", "", "\x1b[2J"]
    async with Host({key: small() for key in keys}) as host:
        tools = await host.list_tools()
        assert [tool.server for tool in tools] == keys
        assert all(is_safe(tool.name) and "__" in tool.name for tool in tools)
        assert len({tool.name for tool in tools}) == len(keys)
        for tool in tools:
            assert (await host.call_tool(tool.name)).text == "one"


@live
async def test_a_hung_server_becomes_a_problem_when_its_own_time_is_up() -> None:
    hung = entry_of("hung", HUNG, Settings(start_s=0.2, timeout_s=0.2))
    async with Host({"hung": hung, "good": small()}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["good__one"]
        assert "hung" in host.problems[0].message
        with pytest.raises(Exception, match="hung"):
            await host.call_tool("hung__anything")


@live
async def test_a_server_that_failed_is_not_asked_by_everybody_who_looks(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    code = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(1)"
    async with Host({"bad": [sys.executable, "-c", code], "good": small()}) as host:
        for _ in range(5):
            assert len(await host.list_tools()) == 1
        assert len(starts.read_text()) <= 2  # the way in is tried twice, for two revisions
        assert [problem.server for problem in host.problems] == ["bad"]


@live
async def test_a_server_that_comes_late_is_told_of_and_is_no_problem_any_more(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    file = tmp_path / "late.py"
    file.write_text(
        "import pathlib, time\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        "from colonnade import Server\nserver = Server('late')\n"
        "@server.tool\ndef two() -> str:\n    return 'two'\nserver.run()\n"
    )
    told: list[ListChanges] = []
    async with Host({"late": [sys.executable, str(file)], "good": small()}, wait_s=1.0) as host:
        host.watch(told.append)
        assert len(await host.list_tools()) == 1
        assert len(host.problems) == 1
        go.write_text("")
        await until(lambda: bool(told))
        assert told == [ListChanges(("tools",), ("late",))]
        assert len(await host.list_tools()) == 2
        assert host.problems == []


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_a_list_is_kept_until_its_server_says_that_it_has_changed(revision: str) -> None:
    @live
    async def exercise() -> None:
        server = counted()
        told: list[ListChanges] = []
        entry = entry_of("c", server, Settings(revision=revision))
        async with Host({"c": entry, "other": small()}) as host:
            host.watch(told.append)
            for _ in range(3):
                assert len(await host.list_tools()) == 2
            assert server.listed == 1
            await settled()

            @server.tool
            def two() -> str:
                return "two"

            _ = two
            await until(lambda: bool(told))
            assert [one[:2] for one in told] == [(("tools",), ("c",))]
            assert [tool.name for tool in await host.list_tools()] == [
                "c__one",
                "c__two",
                "other__one",
            ]
            assert server.listed == 2
            await host.list_tools(fresh=True)
            assert server.listed == 3
            assert len(told) == 1

    exercise()


async def settled() -> None:
    """Until a subscription that was just asked for has begun."""
    for _ in range(20):
        await asyncio.sleep(0)


@live
async def test_a_server_that_was_stopped_stays_listed_and_is_not_started_for_it() -> None:
    command = [
        sys.executable,
        "-m",
        "colonnade",
        "run",
        str(Path(__file__).resolve().parents[1] / "support/host/tiny.py"),
    ]
    entry = entry_of("c", command, Settings(idle_s=0.05))
    async with Host({"c": entry}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["c__tiny"]
        await until(lambda: host.status()[0].state == "idle")
        assert [tool.name for tool in await host.list_tools()] == ["c__tiny"]
        assert host.status()[0].state == "idle"
        assert (await host.call_tool("c__tiny")).text == "tiny"


@live
async def test_a_tool_that_is_new_is_found_though_nobody_told_of_it() -> None:
    server = small()
    async with Host({"s": entry_of("s", server, Settings(revision="2025-06-18"))}) as host:
        await host.list_tools()
        listing = host._runtime.generation.servers["s"].listings("").tools
        listing._fetched_at -= listings.REFETCH_S

        @server.tool
        def two() -> str:
            return "two"

        _ = two
        assert (await host.call_tool("s__two")).text == "two"


@live
async def test_names_that_a_model_makes_up_do_not_make_a_server_list_again_and_again() -> None:
    server = counted()
    async with Host({"c": server}) as host:
        for n in range(20):
            with pytest.raises(RemoteError, match="has no tool"):
                await host.call_tool(f"c__none{n}")
        assert server.listed == 1


def odd() -> Server:
    """What may be wrong with a list, all at once."""
    return Odd("odd")


class Odd(Server):
    async def respond(self, request: Any) -> bytes | None:
        if request.exchange.method.name != "tools/list":
            return await super().respond(request)
        names = [
            "",
            " ",
            "a b",
            "a\x00b",
            "a\x1b[2Jb",
            "\u202eevil",
            "工具",
            "x" * 5000,
            "ok",
            "ok",
        ]
        names += [f"tool{n}" for n in range(10_000)]
        said = "long " * 100_000
        tools = [t.Tool(name=name, input_schema={"type": "object"}) for name in names]
        tools.append(t.Tool(name="wordy", description=said, input_schema={"type": "object"}))
        return request.exchange.settle(t.ListToolsResult(tools=tools))


@live
async def test_what_is_odd_about_a_list_breaks_no_other_and_has_good_names() -> None:
    server = odd()

    @server.tool
    def any_tool() -> None: ...

    _ = any_tool
    async with Host({"odd": server, "good": small()}) as host:
        tools = await host.list_tools()
        assert len(tools) == 10_011
        assert tools[-1].name == "good__one"
        assert all(is_safe(tool.name) for tool in tools)
        assert len({tool.name for tool in tools}) == len(tools)
        assert next(tool for tool in tools if tool.original == "wordy").description
        (problem,) = host.problems
        assert (problem.server, "'ok' more than once" in problem.message) == ("odd", True)
        assert (await host.call_tool("good__one")).text == "one"


class Broken(Server):
    async def respond(self, request: Any) -> bytes | None:
        if request.exchange.method.name != "tools/list":
            return await super().respond(request)
        return b'{"jsonrpc":"2.0","id":%b,"result":{"tools":7}}' % (request.exchange.request.raw_id)


@live
async def test_a_tool_can_be_called_whose_server_cannot_list() -> None:
    server = Broken("broken")

    @server.tool
    def one() -> str:
        return "one"

    _ = one
    hidden = entry_of("h", server, Settings(hidden=("one",)))
    async with Host({"b": server, "h": hidden, "good": small()}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["good__one"]
        assert [problem.server for problem in host.problems] == ["b", "h"]
        assert (await host.call_tool("b__one")).text == "one"
        with pytest.raises(Exception, match="server 'h'"):
            await host.call_tool("h__one")


@live
async def test_two_servers_of_one_namespace_or_alias_are_a_problem_and_the_first_is_meant() -> None:
    first = entry_of("a", small(), Settings(aliases={"one": "one"}))
    second = entry_of("b", small(), Settings(namespace="a"))
    third = entry_of("c", small(), Settings(aliases={"one": "one"}))
    async with Host({"a": first, "b": second, "c": third}) as host:
        tools = await host.list_tools()
        assert [(tool.name, tool.server, tool.aliases) for tool in tools] == [
            ("a__one", "a", ("one",)),
            ("c__one", "c", ()),
        ]
        assert [problem.server for problem in host.problems] == ["b", "c"]


@live
async def test_a_server_that_dies_in_a_call_says_who_it_was_and_what_it_wrote_last() -> None:
    code = (
        "import os, sys\nfrom colonnade import Server\nserver = Server('s')\n"
        "@server.tool\ndef die() -> None:\n"
        "    print('out of memory', file=sys.stderr, flush=True)\n    os._exit(3)\nserver.run()\n"
    )
    with Records("colonnade.host"):
        async with Host({"frail": [sys.executable, "-c", code], "good": small()}) as host:
            with pytest.raises(ConnectionLost, match="frail") as caught:
                await host.call_tool("frail__die")
            assert "out of memory" in str(caught.value)
            assert (await host.call_tool("good__one")).text == "one"


@live
async def test_tools_are_found_by_words() -> None:
    server = Server("s")

    @server.tool
    def read_file(path: str) -> str:
        """Read a text file from disk."""
        return path

    @server.tool
    def send_mail(to: str) -> str:
        """Send a message to somebody."""
        return to

    _ = read_file, send_mail
    async with Host({"work": server, "other": small()}) as host:
        found = await host.search("open a file", limit=1)
        assert [tool.name for tool in found] == ["work__read_file"]
        assert [tool.name for tool in await host.search("mail")] == ["work__send_mail"]


@live
async def test_a_list_beyond_its_limit_is_a_problem_that_names_its_server_once() -> None:
    async with Host({"odd": entry(small(), max_list_bytes=10)}) as host:
        assert await host.list_tools() == []
        (problem,) = host.problems
        words = "server 'odd': tools/list has more than 10 bytes; to read it, raise"
        assert problem.message.startswith(words)
        assert host.failures["odd"].server == "odd"
