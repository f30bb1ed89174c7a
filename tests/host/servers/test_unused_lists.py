"""Lists of callers that are gone are dropped, and those of the others are kept."""

import asyncio
import gc
from typing import Any

from colonnade import Host, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.router import LocalRequestContext, local_exchange
from colonnade.host.servers.callers import CallerKeys
from colonnade.host.servers.generation import LISTS_IDLE_S, HostedServer
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities, InputRequestKind
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST
from colonnade.testing import Clock
from live import live_for

OLD = "2025-11-25"


def counted() -> tuple[Server, list[str]]:
    server, calls = Server("s"), list[str]()

    @server.tool
    def one() -> str:
        calls.append("one")
        return "1"

    _ = one
    return server, calls


def hosted(host: Host) -> HostedServer:
    return host._runtime.generation.servers["s"]


def test_clients_that_are_gone_are_not_kept() -> None:
    keys = CallerKeys(frozenset(InputRequestKind), Settings())
    elicits = t.ClientCapabilities(elicitation=t.ElicitationCapability(form={}))

    def declared(capabilities: t.ClientCapabilities) -> InputCapabilities:
        exchange = local_exchange(
            "tools/list", t.PaginatedRequestParams(), Peer(NEWEST, capabilities)
        )
        asks: Any = None
        request = LocalRequestContext(exchange, asks)
        assert len(keys._known) == 0
        return keys.key_of(request).input

    for _ in range(10):
        assert declared(elicits).form
        gc.collect()
        assert not declared(t.ClientCapabilities()).form
        gc.collect()


@live_for(None)
async def test_lists_of_callers_without_a_session_are_dropped_when_they_are_not_used() -> None:
    server, _ = counted()
    entry = entry_of("s", server, Settings(revision=OLD, idle_s=60.0, max_sessions=1000))
    with Clock() as clock:
        async with Host({"s": entry}) as host:
            for number in range(50):
                assert len(await host.caller(f"user{number}").list_tools()) == 1
            assert len(hosted(host)._listings) == 50
            host.restart("s")  # their sessions end
            for _ in range(3):
                await clock.advance(LISTS_IDLE_S)
                assert len(await host.caller("user7").list_tools()) == 1
            assert list(hosted(host)._listings) == ["user7"]
            # The next time it is read again.
            assert len(await host.caller("user3").list_tools()) == 1
            host.restart("s")
            await clock.advance(3 * LISTS_IDLE_S)
            assert hosted(host)._listings == {}
            assert hosted(host)._lists_timer is None


@live_for(None)
async def test_lists_of_a_caller_with_a_session_are_kept() -> None:
    server, calls = counted()
    entry = entry_of("s", server, Settings(revision=OLD, idle_s=None))
    with Clock() as clock:
        async with Host({"s": entry}) as host:
            await host.caller("ada").list_tools()
            await host.caller("ada").call_tool("s__one")
            await clock.advance(5 * LISTS_IDLE_S)
            assert list(hosted(host)._listings) == ["ada"]
            assert calls == ["one"]
            await asyncio.sleep(0)


@live_for(None)
async def test_lists_for_all_callers_are_kept() -> None:
    server, _ = counted()
    with Clock() as clock:
        async with Host({"s": server}) as host:
            await host.caller("ada").list_tools()
            await clock.advance(5 * LISTS_IDLE_S)
            assert list(hosted(host)._listings) == [None]
