"""What a program writes that a host cannot mean: refused in words that say what to write."""

import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from colonnade import Handler, Host, LocalProtocolError, RequestContext, Server
from colonnade.host.agent.loop import RunOptions
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol.types import ProtocolType
from live import live

HELLO = """
from colonnade import Server

server = Server("hello")


@server.tool
def greet() -> str:
    return "Good day."


@server.tool
def leave() -> str:
    return "Good night."


server.run()
"""


def hello() -> Server:
    server = Server("hello")

    @server.tool
    def greet() -> str:
        return "Good day."

    _ = greet
    return server


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tool", "no option 'tool'; did you mean 'tools'?"),
        ("max_round", "no option 'max_round'; did you mean 'max_rounds'?"),
        ("speed", "no option 'speed'; there are tools, max_rounds, "),
    ],
)
def test_an_option_of_run_that_is_none_is_refused_with_the_one_that_is_near(
    name: str, words: str
) -> None:
    @live
    async def exercise() -> None:
        options: Any = {name: 1}
        async with Host({"hello": hello()}) as host:
            with pytest.raises(TypeError, match=re.escape(words)):
                await host.run(lambda messages, tools: "done", "Hello.", **options)

    exercise()


def test_help_shows_every_option_of_run() -> None:
    words = Host.run.__doc__ or ""
    assert [name for name in RunOptions.__annotations__ if f"`{name}`" not in words] == []


@live
async def test_an_entry_of_a_program_may_say_the_settings_that_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "hello.py"
    file.write_text(HELLO)
    entry = {
        "command": sys.executable,
        "args": [str(file)],
        "only": ["gre*"],
        "aliases": {"hi": "greet"},
        "revision": "2025-06-18",
        "idle_s": None,
        "namespace": None,
    }
    async with Host({"w": entry}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["w__greet"]
        assert (await host.call_tool("hi")).text == "Good day."
        assert [one.revision for one in host.status()] == ["2025-06-18"]


def test_settings_of_an_entry_are_those_of_our_own_file() -> None:
    entry = entry_of("w", {"url": "https://a.example/mcp", "idle_s": False, "roots": [Path("in")]})
    assert entry.settings == Settings(idle_s=None, roots=(os.path.join(os.getcwd(), "in"),))
    other = entry_of("w", {"url": "https://a.example/mcp", "idle_s": 5})
    assert other.settings == Settings(idle_s=5.0)
    assert other.fingerprint != entry.fingerprint


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"onli": ["a"]}, "server 'w': unknown key 'onli'; did you mean 'only'?"),
        ({"timeout": 3}, "unknown key 'timeout'; did you mean 'timeout_s'?"),
        ({"zzz": 3}, "unknown key 'zzz'; known keys: type, command, args, "),
        ({"login": {}}, "Host(auth=…)"),
        ({"only": "a"}, "server 'w': only: expected a list of strings"),
        ({"timeout_s": None}, "timeout_s: expected a number of seconds above 0"),
        ({"max_sessions": 0}, "max_sessions: expected a whole number above 0"),
        ({"revision": "2020-01-01"}, "revision: unknown revision; known revisions: "),
        ({"aliases": {"a": 1}}, "aliases.a: expected a string"),
        ({"aliases": ["a"]}, "aliases: expected an object with string values"),
        ({"roots": ["a", 1]}, "roots[1]: expected a string"),
        ({"namespace": "a\0b"}, "namespace: a NUL character is not allowed"),
        ({"enabled": 1}, "enabled: expected true or false"),
        ({"sharing": "all"}, "sharing: expected one of"),
        ({"credentials": "mine"}, "credentials: expected one of"),
        ({"credentials": "login"}, "credentials of callers are for a server with a url"),
        ({"max_crashes": 1.5}, "max_crashes: expected a whole number above 0"),
    ],
)
def test_what_an_entry_cannot_say_is_refused_by_name(more: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape(words)):
        Host({"w": {"command": "colonnade", **more}})


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("mcp.json", "use Host.from_config(…)"),
        (Path("mcp.json"), "use Host.from_config(…)"),
        (["a.json", "b.json"], "use Host.from_config(…)"),
        (None, "takes a dict of servers by key; not a NoneType"),
        ({"mcpServers": {"a": {"command": "colonnade"}}}, "pass its value"),
        ({"servers": {"a": {"command": "colonnade"}}}, "Host(config['servers'])"),
    ],
)
def test_what_is_for_from_config_is_sent_there(servers: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape(words)):
        Host(servers)


def test_a_server_may_be_called_servers() -> None:
    assert Host({"servers": {"command": "colonnade"}, "mcpServers": hello()}).servers


async def forgetful(request: RequestContext, handler: Handler) -> ProtocolType:
    await handler(request)
    return cast("ProtocolType", None)


def hasty(request: RequestContext, handler: Handler) -> Any:
    return None


async def honest(request: RequestContext, handler: Handler) -> ProtocolType:
    return await handler(request)


@pytest.mark.parametrize("middleware", [forgetful, hasty])
def test_a_middleware_that_returns_no_result_is_named(middleware: Any) -> None:
    @live
    async def exercise() -> None:
        async with Host({"hello": hello()}, middleware=[honest, middleware]) as host:
            with pytest.raises(
                LocalProtocolError, match=f"the middleware {middleware.__name__} returned no result"
            ):
                await host.list_tools()
            with pytest.raises(
                LocalProtocolError, match=f"the middleware {middleware.__name__} returned no result"
            ):
                await host.call_tool("hello__greet")

    exercise()


@live
async def test_a_closed_host_lists_nothing() -> None:
    host = Host({"hello": hello()}, middleware=[honest])
    assert [tool.name for tool in await host.list_tools()] == ["hello__greet"]
    await host.close()
    with pytest.raises(LocalProtocolError, match="this host is closed"):
        await host.list_tools()


def test_a_host_shows_its_servers() -> None:
    assert repr(Host({"hello": hello(), "git": ["uvx", "git"]})) == "<Host of 'hello', 'git'>"
    assert repr(Host({})) == "<Host of no servers>"
