"""Clients that leave a live server in every rude way there is: nothing of them may stay."""

import asyncio
import gc
import json
import os
import socket
import struct
from pathlib import Path

import pytest

from colonnade.protocol.exchange import Exchange
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.revision import JUNE_2025, MARCH_2025, NOVEMBER_2025
from colonnade.transport.http_server.connection import ServerConnection
from colonnade.transport.http_server.request import IncomingRequest, Limits
from colonnade.transport.http_server.sessions import registry
from colonnade.transport.http_server.sessions.session import HttpSession
from colonnade.transport.http_server.sessions.streams import Stream
from http_client import BOTH, Caller, Wire, opening, written
from http_service import ABLE, REPORT, waiting
from live import ServedApp, live_for, served_app, until

# Eleven thousand clients, on a busy machine.
TEST_S = 1800.0
SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]


def _counted() -> dict[str, int]:
    """How many of everything that a client can leave behind there are."""
    gc.collect()
    kinds = (
        IncomingRequest,
        HttpSession,
        Stream,
        DuplexLink,
        Exchange,
        ServerConnection,
        asyncio.Task,
    )
    found = [type(thing) for thing in gc.get_objects() if isinstance(thing, kinds)]
    return {kind.__name__: found.count(kind) for kind in set(found)}


def _memory() -> int:
    """What this process holds of the machine's memory, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _reset(wire: Wire) -> None:
    """End a connection with a RST, not a FIN."""
    found = wire.writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.abort()


def _head(caller: Caller) -> dict[str, str | None]:
    return {
        "host": f"127.0.0.1:{caller.port}",
        "accept": BOTH,
        "content-type": "application/json",
        "mcp-session-id": caller.session,
    }


HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le"
LARGE = {"name": "large", "arguments": {"size": 300_000}}
LISTEN = {"notifications": {"toolsListChanged": True}}


async def _leave(caller: Caller, way: int) -> None:
    """Leave a session, or never quite begin one, in one of many ways."""
    match way:
        case 0:  # well, and then once more
            assert (await caller.request("DELETE")).status == 200
            assert (await caller.request("DELETE")).status == 404
        case 1:  # with a stream open
            await caller.get()
        case 2:  # with a stream that is read no more, and a RST
            wire, _ = await caller.get()
            wire.writer.write_eof()
            _reset(wire)
        case 3:  # in the middle of a stream of progress
            await caller.asking("tools/call", REPORT)
        case 4:  # without an answer to a question
            _, stream = await caller.asking("tools/call", {"name": "roots"})
            await stream.message()
        case 5:  # in the middle of the headers
            await (await caller.wire()).send(HALF)
        case 6:  # in the middle of a body, with a RST
            wire = await caller.wire()
            await wire.send(written("POST", "/mcp", _head(caller), b"x" * 5000)[:-3000])
            _reset(wire)
        case 7:  # without reading an answer that fills every buffer
            wire, _ = await caller.asking("tools/call", LARGE)
            _reset(wire)
        case 8:  # during a call
            asking = asyncio.ensure_future(caller.asking("tools/call", waiting()))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
        case 9:  # with a stream, which ends
            _, stream = await caller.get()
            await caller.request("DELETE")
            await stream.rest()
        case 10:  # from the first revision's stream
            caller.session = None
            _, stream = await caller.begin("GET", path="/sse", accept="text/event-stream")
            await stream.event()
        case 11:  # from there, in the middle of a call
            caller.session = None
            _, stream = await caller.begin("GET", path="/sse", accept="text/event-stream")
            path = (await stream.event()).data.decode()
            body = json.dumps(opening("2024-11-05")).encode()
            assert (await caller.request("POST", body, path)).status == 202
        case 12:  # with a batch that still runs
            frame = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": waiting()}
            wire, _ = await caller.wire(), await caller.ask("ping")
            await wire.send(written("POST", "/mcp", _head(caller), json.dumps([frame]).encode()))
            _reset(wire)
        case 13:  # by asking for what is not there
            assert (await caller.get(last_event_id="1-2-3"))[1].status == 400
        case 14:  # with a modern stream
            caller.session = caller.revision = None
            _, stream = await caller.stream("subscriptions/listen", LISTEN)
            await stream.message()
        case 15:  # with a modern call
            caller.session = caller.revision = None
            wire, _ = await caller.stream("tools/call", REPORT)
            _reset(wire)
        case _:
            await caller.ask("tools/list")


WAYS = 17


async def _be_rude(s: ServedApp, turn: int) -> None:
    async with Caller(s.site.port) as caller:
        if turn % 5 == 0:  # a handshake that nobody goes on with
            assert (await caller.post(opening("2025-11-25", ABLE))).status == 200
        await caller.initialize(SESSIONS[turn % 3].date, ABLE)
        await _leave(caller, turn % WAYS)


@live_for(TEST_S)
async def test_every_rude_way_to_leave_leaves_nothing_behind() -> None:
    async with served_app() as s:
        for turn in range(3 * WAYS):  # each way in each revision that has sessions
            await _be_rude(s, turn)
        for session in s.sessions:
            s.sessions.end(session, "the test is over")
        session = None
        await s.wait_until_idle()
        await until(lambda: not s.site._connections)
        assert not s.sessions.shared.tasks
        assert s.service.watchers == 0
        assert (await s.caller.call("echo")).status == 200


@pytest.mark.slow
@live_for(TEST_S)
async def test_ten_thousand_rude_clients_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine a hundred clients at once take longer for their second request.
    monkeypatch.setattr(registry, "SECOND_REQUEST_S", TEST_S)
    async with served_app(limits=Limits(max_sessions=500)) as s:
        before: dict[str, int] = {}
        descriptors = memory = 0
        for thousand in range(11):
            for hundred in range(10):
                await asyncio.gather(*(_be_rude(s, 100 * hundred + n) for n in range(100)))
            for session in s.sessions:
                s.sessions.end(session, "the test is over")
            session = None
            await s.wait_until_idle()
            await until(lambda: not s.site._connections)
            for notes in (s.service.turns, s.service.principals, s.service.heard):
                notes.clear()
            if thousand == 0:  # the first thousand warm up
                before, descriptors = _counted(), len(os.listdir("/dev/fd"))
                memory = _memory()
        after = _counted()
        # Ten thousand came; a leak would be of their order. A few may still be on their way out.
        few = 100
        assert {kind: n for kind, n in after.items() if n > before.get(kind, 0) + few} == {}
        assert len(os.listdir("/dev/fd")) <= descriptors + few
        assert _memory() < memory + 32 * 1024 * 1024  # three KiB for each who came, ours and theirs
        assert s.sessions.shared.ledger.size == 0
        assert not s.sessions.shared.tasks
        assert s.service.watchers == 0
