"""Everything that HTTP can be sent wrong, one by one, at a live server: each has an answer, or its
connection is closed; none is a 5xx, none runs a tool that it should not, and the next is served.
"""

import asyncio
import socket
import struct

import pytest

from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.runner import RunLimits
from hostile.items import ERAS, MODERN, SESSION, Era
from hostile.malformed_http import BODY, ODD, Odd, chunked, request
from hostile.sender import HostileSender, call, hostile_sender, name_header
from http_client import Wire, written
from live import live, live_for

# How long a wait for a server that gives up on us may take on a busy machine.
PATIENCE_S = 60.0


@pytest.mark.parametrize("odd", ODD, ids=str)
@live
async def test_what_is_wrong_with_a_request_is_said_and_the_next_is_served(odd: Odd) -> None:
    async with hostile_sender(MODERN) as attack:
        wire = await attack.caller.wire()
        status: int | None = None
        try:
            await wire.send(odd.data.replace(b"PORT", b"%d" % attack.port))
            answer = await wire.head()
            if odd.name != "HEAD":
                await answer.read()
                attack.look(answer.body)
            status = answer.status
        except (ConnectionError, asyncio.IncompleteReadError):
            assert None in odd.right
        assert status in odd.right
        assert attack.calls == (status == 200)
        await attack.is_served()


# ---------------------------------------------------------------- slow, and half


async def answered_late(attack: HostileSender, data: bytes) -> tuple[Wire, int]:
    wire = await attack.caller.wire()
    await wire.send(data)
    async with asyncio.timeout(PATIENCE_S):
        line = await wire.reader.readline()
    return wire, int(line.split()[1])


@live
async def test_headers_that_do_not_end_are_cut() -> None:
    async with hostile_sender(MODERN, run=RunLimits(header_timeout_s=0.05)) as attack:
        beginnings = (b"P", b"POST /mcp HTTP/1.1\r\n", request()[:100])
        for wire, status in await asyncio.gather(*(answered_late(attack, b) for b in beginnings)):
            assert status == 408
            assert await wire.closed()
        await attack.is_served()


@live
async def test_a_body_that_does_not_come_is_cut() -> None:
    whole = request().replace(b"PORT", b"%d")
    async with hostile_sender(MODERN, limits=Limits(body_timeout_s=0.05)) as attack:
        endless = chunked(b"f" * 16 + b"\r\nx").replace(b"PORT", b"%d")
        for data in (whole[:-1], whole[: -len(BODY)], endless):
            wire, status = await answered_late(attack, data % attack.port)
            assert status == 408
            assert await wire.closed()
        assert attack.calls == 0
        await attack.is_served()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
@live
async def test_who_stops_sending_after_a_whole_request_gets_its_answer(era: Era) -> None:
    async with hostile_sender(era) as attack:
        wire = await attack.caller.wire()
        await wire.send(written("POST", "/mcp", attack.head(), era.frame()))
        wire.writer.write_eof()
        answer = await wire.head()
        await answer.read()
        assert answer.text == "1"
        assert await wire.closed()
        await attack.is_served()


@live
async def test_who_stops_sending_before_the_end_is_let_go() -> None:
    async with hostile_sender(MODERN) as attack:
        data = request().replace(b"PORT", b"%d" % attack.port)
        for cut in (0, 1, 50, data.index(b"\r\n\r\n") + 4, len(data) - 1):
            wire = await attack.caller.wire()
            await wire.send(data[:cut])
            wire.writer.write_eof()
            assert await wire.closed()
        assert attack.calls == 0
        await attack.is_served()


def reset(wire: Wire) -> None:
    """End a connection with a RST, not a FIN."""
    found = wire.writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.abort()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
@live
async def test_a_reset_at_any_byte_of_a_request_harms_nobody(era: Era) -> None:
    async with hostile_sender(era) as attack:
        data = written("POST", "/mcp", attack.head(), era.frame())
        for cut in range(0, len(data) + 1, 5):
            wire = await attack.caller.wire()
            await wire.send(data[:cut])
            reset(wire)
        await attack.is_served()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
@live
async def test_a_reset_at_any_byte_of_an_answer_harms_nobody(era: Era) -> None:
    async with hostile_sender(era) as attack:
        head = attack.head() | {"mcp-name": name_header(era, "huge")}
        data = written("POST", "/mcp", head, call(era, "huge", size=500_000))
        for cut in (0, 1, 9, 100, 300, 1000, 10_000, 65_536, 400_000):
            wire = await attack.caller.wire()
            await wire.send(data)
            await wire.reader.readexactly(cut)
            reset(wire)
        await attack.is_served()


# ---------------------------------------------------------------- many on one connection


@live
async def test_of_pipelined_requests_the_first_is_answered_and_the_rest_is_not_run() -> None:
    async with hostile_sender(MODERN) as attack:
        wire = await attack.caller.wire()
        await wire.send(request().replace(b"PORT", b"%d" % attack.port) * 50)
        answer = await wire.head()
        await answer.read()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await wire.closed()
        assert attack.calls == 1
        await attack.is_served()


async def keep_alive(era: Era, count: int) -> None:
    async with hostile_sender(era) as attack:
        wire = await attack.is_served()
        bad = b'{"jsonrpc":"2.0","id":1,"method":5}'
        for turn in range(count):
            _, answer = await attack.post(bad if turn % 2 else era.frame(), wire)
            assert answer.status == (400 if turn % 2 else 200)
        await attack.is_served(wire)


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
@live
async def test_one_connection_carries_good_and_bad_requests_by_turns(era: Era) -> None:
    await keep_alive(era, 500)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.date)
@live_for(None)  # each request has a safety net of its own
async def test_one_connection_carries_ten_thousand_requests(era: Era) -> None:
    await keep_alive(era, 10_000)


@live
async def test_sessions_are_not_guessed_and_not_made_by_strangers() -> None:
    async with hostile_sender(SESSION) as attack:
        own = attack.caller.session
        assert own is not None
        for name in ("a", own[:-1], own.upper(), own + "x", "../" + own, "0" * 10_000, "é"):
            _, answer = await attack.post(SESSION.frame(), mcp_session_id=name)
            assert answer.status in (400, 404), name
        assert attack.calls == 0
        await attack.is_served()
