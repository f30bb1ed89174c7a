"""A server directly and through a gateway of the same revision: what a client gets differs only in
names, the `_meta` of the hop and ids, byte for byte."""

import random
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from colonnade import Client, Gateway, Host, connect
from colonnade.protocol import types as t
from gateway.odd_results import (
    odd_list,
    odd_prompt_result,
    odd_read_result,
    odd_tool_result,
)
from gateway.raw_server import REVISIONS, RawServer, members, raw_request
from live import live

OLD = "2025-11-25"
# Of each method, in each revision.
RESULTS = 100
ITEMS = 60

METHODS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
# By method: how a result is made, and the params directly and through the gateway.
REQUESTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "tools/call": (
        odd_tool_result,
        {"name": "odd", "arguments": Raw(b"{}")},
        {"name": "s__odd", "arguments": Raw(b"{}")},
    ),
    "prompts/get": (odd_prompt_result, {"name": "odd"}, {"name": "s__odd"}),
    "resources/read": (odd_read_result, {"uri": "odd://one"}, {"uri": "odd://one"}),
}
_items = msgspec.json.Decoder(list[Raw])


class Pair:
    """A client that is connected to a server, and one that is connected to a gateway in front of
    it."""

    def __init__(self, server: RawServer, direct: Client, through: Client) -> None:
        self.server = server
        self.direct = direct
        self.through = through


async def connected(
    stack: AsyncExitStack, downstream: str, upstream: str | None = None, **options: Any
) -> Pair:
    server, upstream = RawServer(), upstream or downstream
    host = await stack.enter_async_context(Host({"s": server.entry(upstream)}, **options))
    direct = await stack.enter_async_context(connect(server, revision=upstream))
    through = await stack.enter_async_context(connect(Gateway(host), revision=downstream))
    return Pair(server, direct, through)


def without_hop(found: dict[str, bytes]) -> dict[str, bytes]:
    """The members of a result, with those of `_meta` that do not belong to the hop."""
    raw = found.pop("_meta", b"{}")
    meta = members(Raw(raw))
    meta.pop(t.SERVER_INFO_KEY, None)
    return found | {f"_meta {name}": value for name, value in meta.items()}


def items(raw: Raw, member: str) -> list[dict[str, bytes]]:
    """The items of a list: the members of each, as they were written and in their order."""
    return [members(one) for one in _items.decode(members(raw)[member])]


def renamed(found: list[dict[str, bytes]], method: str) -> list[dict[str, bytes]]:
    """Items with the names that they have in a gateway."""
    if method not in ("tools/list", "prompts/list"):
        return found
    return [one | {"name": b'"s__' + one["name"][1:]} for one in found]


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_odd_results_are_the_same_through_a_gateway(revision: str, method: str) -> None:
    make, direct_params, params = REQUESTS[method]
    chance = random.Random(f"{revision} {method}")
    async with AsyncExitStack() as stack:
        pair = await connected(stack, revision)
        for _ in range(RESULTS):
            pair.server.result = make(chance, revision)
            expected = await raw_request(pair.direct, method, **direct_params)
            found = await raw_request(pair.through, method, **params)
            assert without_hop(members(found)) == without_hop(members(expected)), bytes(expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_odd_items_of_lists_are_the_same_through_a_gateway(
    revision: str, method: str
) -> None:
    chance = random.Random(f"{revision} {method}")
    async with AsyncExitStack() as stack:
        pair = await connected(stack, revision)
        member = METHODS[method]
        pair.server.lists[method] = odd_list(chance, method, member, revision, ITEMS)
        expected = items(await raw_request(pair.direct, method), member)
        found = items(await raw_request(pair.through, method), member)
        assert len(found) == ITEMS
        assert found == renamed(expected, method)
        assert [list(one) for one in found] == [list(one) for one in expected]  # in their order
