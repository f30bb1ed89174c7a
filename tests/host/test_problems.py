"""What is told of a server that does not work: once, in words that are right, and then mended."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import CannotConnect, ConnectionLost, Host, LocalProtocolError, RemoteError, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from host.supervised import HANDSHAKE, command, entry
from live import live, until

HUNG = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def dying(starts: Path) -> list[str]:
    """A command that counts its starts, and ends at once."""
    code = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit('the disk is full')"
    return [sys.executable, "-I", "-S", "-c", code]


def small() -> Server:
    server = Server("small")

    @server.tool
    def one() -> str:
        return "one"

    _ = one
    return server


async def look(host: Host) -> None:
    await host.list_tools()
    await host.list_prompts()
    await host.list_resources()
    await host.list_resource_templates()


@live
async def test_a_dead_server_is_started_by_one_look_and_told_of_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    dead = entry_of("dead", dying(starts), Settings(revision="2025-11-25"))
    async with Host({"dead": dead}) as host:
        await look(host)
        assert starts.read_text() == "x"
        (problem,) = host.problems
        assert problem.message.count("the disk is full") == 1
        await host.list_prompts(fresh=True)
        assert starts.read_text() == "xx"
        (problem,) = host.problems
        assert problem.message.count("the disk is full") == 1


@live
async def test_a_server_that_hangs_at_all_its_lists_is_told_of_once() -> None:
    async with Host({"hung": HUNG}, wait_s=0.05) as host:
        await host.list_tools()
        assert "tools of server 'hung' are not available yet" in host.problems[0].message
        await look(host)
        words = "server 'hung' has not answered yet; list it again later"
        assert [problem.message for problem in host.problems] == [words]


@live
async def test_what_is_wrong_with_names_is_told_of_once_beside_what_else_is() -> None:
    server = small()
    twice = Twice("twice")
    twice.tool(name="nothing")(_nothing)
    odd = entry_of("odd", twice, Settings(namespace="no such"))
    async with Host({"odd": odd, "good": server}) as host:
        await look(host)
        of_names, more = host.problems
        assert "namespace 'no such'" in of_names.message
        assert more.message.startswith("server 'odd' lists 'nothing' more than once")


class Twice(Server):
    """Lists everything twice."""

    async def respond(self, request: Any) -> bytes | None:
        found = await super().respond(request)
        if found and request.exchange.method.name == "tools/list":
            reply = json.loads(found)
            reply["result"]["tools"] *= 2
            return json.dumps(reply).encode()
        return found


def _nothing() -> None: ...


@live
async def test_a_command_that_is_not_there_has_not_ended() -> None:
    missing = entry_of("missing", ["no-such-command-anywhere"])
    async with Host({"missing": missing}) as host:
        words = ""
        for _ in range(8):
            with pytest.raises(CannotConnect) as caught:
                await host.call_tool("missing__one")
            words = str(caught.value)
        assert "it failed" in words
        assert "ended" not in words


@live
async def test_a_server_that_is_restarted_is_looked_at_again_at_once(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    async def resolve() -> Any:
        return command() if mended.exists() else dying(tmp_path / "starts")

    async with Host({"odd": entry(resolve, "odd", revision=HANDSHAKE)}) as host:
        assert await host.list_tools() == []
        mended.touch()
        host.restart("odd")
        assert "the disk is full" not in str(host.problems)
        assert len(await host.list_tools()) == 3
        with pytest.raises(LocalProtocolError, match="there is no server 'od'; did you mean 'odd'"):
            host.restart("od")


@live
async def test_a_host_that_is_closed_says_so_to_whoever_asks() -> None:
    host = Host({"one": small()})
    assert len(await host.list_tools()) == 1
    await host.close()
    for asked in (
        host.list_tools(),
        host.list_prompts(fresh=True),
        host.call_tool("one__one"),
        host.read_resource("a:b"),
        host.search("one"),
    ):
        with pytest.raises(LocalProtocolError, match="this host is closed"):
            await asked


@live
async def test_a_call_that_waits_for_a_list_when_the_host_is_closed_has_not_timed_out() -> None:
    host = Host({"hung": HUNG})
    call = asyncio.create_task(host.call_tool("hung__one"))
    await until(lambda: host.status()[0].state == "starting")
    await host.close()
    with pytest.raises(ConnectionLost, match=r"server 'hung' .* closed"):
        await call


def test_a_host_that_is_taken_to_another_loop_says_so_at_once() -> None:
    host = Host({"one": small()})

    async def use() -> None:
        await host.list_tools()

    with asyncio.Runner() as first:
        first.run(use())
        with asyncio.Runner() as second, pytest.raises(LocalProtocolError, match="another event"):
            second.run(use())
        first.run(host.close())


@live
async def test_what_is_wrong_with_an_entry_names_its_server() -> None:
    entries = {
        "web": entry({"url": "http://user:secret@127.0.0.1/"}, "web"),
        "odd": entry({"url": "ftp://127.0.0.1/"}, "odd"),
    }
    async with Host(entries) as host:
        for key in entries:
            with pytest.raises(LocalProtocolError, match=f"server '{key}'") as caught:
                await host.call_tool(f"{key}__one")
            assert "secret" not in str(caught.value)


@live
async def test_among_a_thousand_servers_an_error_is_still_a_sentence() -> None:
    servers = {f"server-{number}": small() for number in range(1000)}
    async with Host(servers) as host:
        with pytest.raises(RemoteError, match="and 980 others") as caught:
            await host.call_tool("何")
        assert len(str(caught.value)) < 600
        with pytest.raises(RemoteError, match="and 980 others"):
            await host.read_resource("a:b", server="何")


@live
async def test_what_several_callers_saw_before_it_was_fixed_is_told_no_more(
    tmp_path: Path,
) -> None:
    mended = tmp_path / "mended"

    async def resolve() -> Any:
        return command() if mended.exists() else dying(tmp_path / "starts")

    async with Host({"odd": entry(resolve, "odd", revision=HANDSHAKE)}) as host:
        alice, bob = host.caller("alice"), host.caller("bob")
        for caller in (alice, bob):
            assert await caller.list_tools() == []
        mended.touch()
        for caller in (alice, bob):
            assert len(await caller.list_tools(fresh=True)) == 3
        assert host.problems == []
