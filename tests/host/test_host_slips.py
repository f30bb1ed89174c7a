"""What a program writes that a host cannot mean: refused in words that say what to write."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from live import live
from portico import Host, LocalProtocolError, Server
from portico.host.own import entry_of
from portico.host.running import RunOptions
from portico.host.settings import Settings

HELLO = """
from portico import Server

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
    async def play() -> None:
        options: Any = {name: 1}
        async with Host({"hello": hello()}) as host:
            with pytest.raises(TypeError, match=re.escape(words)):
                await host.run(lambda messages, tools: "done", "Hello.", **options)

    play()


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
        ({"onli": ["a"]}, "server 'w': there is no 'onli' in an entry; did you mean 'only'?"),
        ({"timeout": 3}, "there is no 'timeout' in an entry; did you mean 'timeout_s'?"),
        ({"zzz": 3}, "there is no 'zzz' in an entry; there are type, command, args, "),
        ({"login": {}}, "Host(auth=…)"),
        ({"only": "a"}, "server 'w': only: this should be a list of texts"),
        ({"timeout_s": None}, "timeout_s: this should be a number of seconds above 0"),
        ({"max_seats": 0}, "max_seats: this should be a whole number above 0"),
        ({"revision": "2020-01-01"}, "revision: there is no such revision; there are "),
        ({"aliases": {"a": 1}}, "aliases.a: this should be a text"),
    ],
)
def test_what_an_entry_cannot_say_is_refused_by_name(more: dict[str, Any], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=re.escape(words)):
        Host({"w": {"command": "portico", **more}})
