"""What a program writes that a host cannot mean: refused in words that say what to write."""

import re
from typing import Any

import pytest

from live import live
from portico import Host, Server
from portico.host.running import RunOptions


def hello() -> Server:
    server = Server("hello")

    @server.tool
    def greet() -> str:
        return "Good day."

    @server.tool
    def leave() -> str:
        return "Good night."

    _ = greet, leave
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
