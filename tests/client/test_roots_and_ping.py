"""What a client looks after while nobody asks anything: whether the server is there, whether its own
roots are."""

import asyncio
import os
from pathlib import Path

import pytest

from client.scripted_server import JSON, Refusal, ScriptedTransport, connected_client
from colonnade import connect
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.roots import ClientRoots, to_root
from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import ALL, Revision
from colonnade.testing import Clock, every_revision
from live import Records, live, until


def of(date: str) -> Revision:
    return next(one for one in ALL if one.date == date)


# ---------------------------------------------------------------- pings


@pytest.mark.spec("R0068", "R0069", "R0071")
@every_revision(until="2025-11-25")
async def test_a_server_that_is_quiet_is_asked_from_time_to_time_and_no_other(
    revision: str,
) -> None:
    clock = Clock()
    listed: JSON = {"tools": []}
    transport = ScriptedTransport(of(revision), {"tools/list": lambda params: listed})
    with clock:
        async with connected_client(transport, ping_s=60.0) as client:
            await clock.advance(59)
            assert transport.server.requests("ping") == []
            await client.list_tools()
            await clock.advance(59)
            assert transport.server.requests("ping") == [], "it was heard of a moment ago"
            await clock.advance(2)
            assert len(transport.server.requests("ping")) == 1
            await clock.advance(600)
            assert len(transport.server.requests("ping")) == 11


@every_revision(until="2025-11-25")
async def test_nobody_is_asked_while_something_else_is_going_on(revision: str) -> None:
    clock = Clock()
    transport = ScriptedTransport(of(revision), {"tools/call": lambda params: None})
    with clock:
        async with connected_client(transport, ping_s=60.0, timeout_s=500.0) as client:
            calling = asyncio.ensure_future(client.call_tool("slow"))
            await clock.advance(400)
            assert transport.server.requests("ping") == []
            calling.cancel()


@pytest.mark.spec("R0070", "R0072", "R0074")
@every_revision(until="2025-11-25")
async def test_a_ping_that_is_not_answered_in_time_is_a_lost_connection_and_is_logged(
    revision: str,
) -> None:
    clock = Clock()
    transport = ScriptedTransport(of(revision), {"ping": lambda params: None})
    with clock:
        async with connected_client(transport, ping_s=60.0, timeout_s=5.0) as client:
            with Records("colonnade.client") as log:
                await clock.advance(64)
                assert client.conversation.link.phase is Phase.OPEN
                await clock.advance(2)
                assert client.conversation.link.phase is Phase.CLOSED
            (line,) = log.lines
            assert line.startswith(
                "WARNING server 'scripted' did not respond to a ping: no answer to ping"
            )
            transport.replies = {"tools/list": lambda params: {"tools": []}}
            assert await client.list_tools() == []
            assert len(transport.servers) == 2
            await clock.advance(61)
            assert len(transport.server.requests("ping")) == 1, "the next one is looked after, too"


@every_revision(until="2025-11-25")
async def test_a_ping_that_is_refused_was_answered(revision: str) -> None:
    clock = Clock()

    def refused(params: JSON) -> JSON:
        raise Refusal(-32601, "there is no ping here")

    transport = ScriptedTransport(of(revision), {"ping": refused})
    with clock:
        async with connected_client(transport, ping_s=60.0, timeout_s=5.0) as client:
            with Records("colonnade.client") as log:
                await clock.advance(200)
            assert client.conversation.link.phase is Phase.OPEN
            assert len(transport.servers) == 1
            assert not any(line.startswith("WARNING") for line in log.lines)


@every_revision(since="2026-07-28")
async def test_where_each_request_stands_for_itself_nobody_is_asked(revision: str) -> None:
    clock, transport = Clock(), ScriptedTransport(of(revision))
    with clock:
        async with connected_client(transport, ping_s=60.0):
            await clock.advance(24 * 3600)
            assert len(transport.server.received) == 1


@pytest.mark.parametrize("ping_s", [0, -1, float("inf")])
def test_an_interval_is_a_number_of_seconds(ping_s: float) -> None:
    with pytest.raises(LocalProtocolError, match="ping_s is a number of seconds above 0"):
        connect(["x"], ping_s=ping_s)


# ---------------------------------------------------------------- roots

ROOTS_CHANGED = "notifications/roots/list_changed"


@pytest.mark.spec("R0088")
@every_revision(until="2025-11-25")
async def test_changed_roots_are_announced(revision: str, tmp_path: Path) -> None:
    transport = ScriptedTransport(of(revision))
    async with connected_client(transport, answers=InputCallbacks(roots=[])) as client:
        (greeting,) = transport.server.requests("initialize")
        assert greeting["params"]["capabilities"]["roots"] == {"listChanged": True}
        await client.roots_changed([tmp_path])
        await transport.server.wait_for(ROOTS_CHANGED)
        transport.server.send({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
        await until(lambda: any("result" in one for one in transport.server.received))
        (answer,) = [one for one in transport.server.received if "result" in one]
        assert [one["uri"] for one in answer["result"]["roots"]] == [tmp_path.as_uri()]
        await client.roots_changed()
        await transport.server.wait_for(ROOTS_CHANGED, 2)


@live
async def test_where_that_is_no_change_it_is_not_told(revision: Revision) -> None:
    transport = ScriptedTransport(revision)
    async with connected_client(transport, answers=InputCallbacks(roots=[])) as client:
        await client.roots_changed([])
        await client.ping()
        assert (transport.server.requests(ROOTS_CHANGED) != []) is (
            ROOTS_CHANGED in revision.methods
        )
    async with connected_client(ScriptedTransport(revision)) as client:
        with pytest.raises(LocalProtocolError, match="connect with roots="):
            await client.roots_changed([])


@pytest.mark.spec("R0092")
@every_revision
async def test_roots_that_cannot_be_reached_are_not_told_of_and_are_looked_for(
    revision: str, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    clock, transport = Clock(), ScriptedTransport(of(revision))
    roots = ClientRoots([here, str(there), "file:///elsewhere"])
    with Records("colonnade.client") as log:
        assert [root.uri for root in await roots.reachable()] == [
            here.as_uri(),
            "file:///elsewhere",
        ]
    assert log.lines == [f"WARNING the root {there.as_uri()} is not accessible, and not listed"]
    there.mkdir()
    assert len(await roots.reachable()) == 3
    with clock:
        async with connected_client(
            transport, answers=InputCallbacks(roots=[here, there])
        ) as client:
            await clock.advance(61)
            await client.ping()
            assert transport.server.requests(ROOTS_CHANGED) == []
            os.rmdir(there)
            told = ROOTS_CHANGED in of(revision).methods
            for _ in range(100):  # in which a thread looks
                await clock.advance(30)
                if transport.server.requests(ROOTS_CHANGED) or not told:
                    break
            assert len(transport.server.requests(ROOTS_CHANGED)) == told


@pytest.mark.spec("R0092")
@every_revision
async def test_a_root_that_climbs_out_or_is_no_file_is_refused_at_once(
    revision: str, tmp_path: Path
) -> None:
    assert to_root(tmp_path / "a" / ".." / "b").uri == (tmp_path / "b").as_uri()
    for uri in (
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a\\..\\b",
        "file://",
        "file:///a%00b",
    ):
        with pytest.raises(LocalProtocolError, match=r"contains|is not a root"):
            InputCallbacks(roots=[uri])
    with pytest.raises(LocalProtocolError, match="is not a root"):
        InputCallbacks(roots=[t.Root(uri="https://example.com/")])
    transport = ScriptedTransport(of(revision))
    async with connected_client(transport, answers=InputCallbacks(roots=[])) as client:
        with pytest.raises(LocalProtocolError, match="contains"):
            await client.roots_changed(["file:///a/../b"])
