"""Equal lists of several callers are in memory once, and lists that differ in anything are not."""

import gc
import json
from typing import Any

import pytest

from colonnade import Host
from colonnade.host.servers.generation import HostedServer
from colonnade.protocol.jsonrpc import encode
from colonnade.transport.memory import End
from gateway.hostile_server import HostileServer
from live import live

OLD = "2025-11-25"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: dict[str, Any] = {
    "name": "act",
    "description": "Acts.",
    "inputSchema": SCHEMA,
    "outputSchema": SCHEMA,
}
HIDDEN = {"name": "secret", "inputSchema": SCHEMA}


class ListingServer(HostileServer):
    """A server whose lists are those of the connection: the first connection has the first."""

    def __init__(self, *lists: list[dict[str, Any]], **settings: Any) -> None:
        super().__init__(lambda message, server: None, OLD, **settings)
        self.lists = lists

    def receive(self, message: dict[str, Any], end: End) -> None:
        if message.get("method") == "tools/list":
            self._current = end
            self.respond(message, {"tools": self.lists[self.connections.index(end)]})
        elif message.get("method") in ("resources/list", "prompts/list"):
            self._current = end
            own = self.connections.index(end)
            kind = message["method"].partition("/")[0]
            self.respond(message, {kind: [{"uri": "a:b", "name": f"{len(self.lists[own])}"}]})
        else:
            super().receive(message, end)


def hosted(host: Host) -> HostedServer:
    return host._runtime.generation.servers["s"]


async def listed(server: ListingServer, host: Host) -> list[Any]:
    """The content of the lists of tools of all callers, each of whom has another connection."""
    for number in range(len(server.lists)):
        await host.caller(f"p{number}").list_tools()
    own = [hosted(host).listings(f"p{number}") for number in range(len(server.lists))]
    assert all(one.tools.content is not None for one in own)
    return own


@live
async def test_equal_lists_are_in_memory_once_with_their_schemas() -> None:
    server = ListingServer([TOOL], [TOOL], [TOOL])
    async with Host({"s": server.entry()}) as host:
        own = await listed(server, host)
        first, second, third = (one.tools.content for one in own)
        assert first is not second
        assert first.items is second.items is third.items
        assert first.hosted is second.hosted is third.hosted
        assert first.raw is second.raw
        assert first.names is second.names
        assert own[0]._schemas is own[1]._schemas
        clients = [one.client for one in hosted(host).supervisor.sessions]
        assert len({id(client._tools.inputs) for client in clients}) == 1
        assert len({id(client._tools.outputs) for client in clients}) == 1
        assert clients[2]._tools.inputs["act"] == SCHEMA
        assert len(hosted(host)._kept) == 1
        # The first is read again, and the others go on with what they have.
        server.lists[0].append(HIDDEN)
        assert len(await host.caller("p0").list_tools(fresh=True)) == 2
        assert len(await host.caller("p1").list_tools()) == 1
        assert clients[0]._tools.inputs.keys() == {"act", "secret"}
        assert clients[1]._tools.inputs.keys() == {"act"}
        for one in (own, clients):
            one.clear()
        hosted(host).forget_lists()
        del first, second, third
        gc.collect()
        assert len(hosted(host)._kept) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([TOOL], [TOOL | {"name": "other"}]),
        ([TOOL], [TOOL | {"description": "Acts "}]),
        ([TOOL], [TOOL | {"outputSchema": {"type": "object"}}]),
        ([TOOL], [TOOL | {"unknown": "member"}]),  # passed on as it was written
        ([TOOL], [TOOL | {"_meta": {"a.b/c": 1}}]),
        ([TOOL, TOOL | {"name": "b"}], [TOOL | {"name": "b"}, TOOL]),
        ([TOOL], [TOOL, TOOL | {"description": "Another."}]),  # which is a problem
        ([TOOL, HIDDEN], [TOOL, HIDDEN | {"outputSchema": SCHEMA}]),
    ],
    ids=json.dumps,
)
@live
async def test_lists_that_differ_in_anything_are_not_shared(first: Any, second: Any) -> None:
    server = ListingServer(first, second, hidden=("secret",))
    async with Host({"s": server.entry()}) as host:
        one, other = await listed(server, host)
        assert one.tools.content.items is not other.tools.content.items
        assert one._schemas is not other._schemas
        for number, tools in enumerate((first, second)):
            (shown, *_) = await host.caller(f"p{number}").list_tools()
            assert json.loads(encode(shown))["name"] == "s__" + tools[0]["name"]
            assert shown.description == tools[0]["description"]


@live
async def test_lists_of_uris_are_shared_as_well() -> None:
    server = ListingServer([TOOL], [TOOL], [TOOL, HIDDEN])
    async with Host({"s": server.entry()}) as host:
        await listed(server, host)
        for number in range(3):
            await host.caller(f"p{number}").list_resources()
        own = [hosted(host).listings(f"p{number}").resources.content for number in range(3)]
        first, second, third = (one.items if one is not None else {} for one in own)
        assert first is second
        assert third is not first
        assert third["a:b"].name == "2"
