"""A tool call in all four cells: a client of a revision with or without a handshake, and a server
of either."""

import pytest

from colonnade import Gateway, Host, Server, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from live import live

OLD, NEW = "2025-11-25", "2026-07-28"


def adder() -> Server:
    server = Server("adder")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    _ = add
    return server


@pytest.mark.parametrize("upstream", [OLD, NEW])
@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_a_tool_is_called_in_every_cell(downstream: str, upstream: str) -> None:
    @live
    async def exercise() -> None:
        entry = entry_of("s", adder(), Settings(revision=upstream))
        async with Host({"s": entry}) as host:
            async with connect(Gateway(host), revision=downstream) as client:
                assert [tool.name for tool in await client.list_tools()] == ["s__add"]
                result = await client.call_tool("s__add", {"a": 1, "b": 2})
                # An older server wraps what is no object, in its schema as well: it stays so.
                wrapped = (downstream, upstream) == (NEW, OLD)
                assert result.data == ({"result": 3} if wrapped else 3)
                assert client.peer.revision.date == downstream
            assert host.status()[0].revision == upstream

    exercise()
