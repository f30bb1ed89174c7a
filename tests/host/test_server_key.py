"""Where a name of the catalogue leads, and why a server could not be listed, for whoever asks.

Rules: servers in this process; nothing is started to find out whose a name is.
"""

import asyncio

from colonnade import Host, Server
from colonnade.errors import CannotConnect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings


def notes() -> Server:
    server = Server("notes")

    @server.tool
    def write(name: str) -> str:
        return name

    return server


def test_a_name_leads_to_its_server_and_nobody_is_asked() -> None:
    settings = Settings(namespace="jotter", aliases={"jot": "write"})
    host = Host(
        {"mine": entry_of("mine", notes(), settings), "an odd one": notes(), "git": ["nowhere"]}
    )
    assert host.prefixes[0] == "jotter"
    assert host.server_of("jotter__write") == "mine"
    assert host.server_of("jotter__nothing") == "mine"
    assert host.server_of("jot") == "mine"
    assert host.server_of(f"{host.prefixes[1]}__write") == "an odd one"
    assert host.server_of("git__log") == "git"
    assert host.server_of("write") is None
    assert host.server_of("mine__write") is None
    assert {status.state for status in host.status()} == {"idle"}


def test_a_server_that_could_not_be_listed_has_an_error() -> None:
    async def looked() -> None:
        async with Host({"mine": notes(), "git": ["no-such-program-here"]}) as host:
            assert host.failures == {}
            assert [tool.name for tool in await host.list_tools()] == ["mine__write"]
            assert list(host.failures) == ["git"]
            assert isinstance(host.failures["git"], CannotConnect)

    asyncio.run(looked())
