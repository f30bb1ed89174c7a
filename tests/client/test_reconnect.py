"""Conversations that end and are begun anew: what is said again, what is not, what is restored."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from client.scripted_server import JSON, Refusal, ScriptedTransport, connected_client
from client.shop import site
from colonnade import Server, connect
from colonnade.client import subscriptions as following
from colonnade.errors import CannotConnect, ConnectionLost, RemoteError, RemoteProtocolError
from colonnade.protocol.revision import ALL, NEWEST, ChangeNotifications, LogControl, Revision
from live import live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    http_response,
    scripted_http_server,
)

HANDSHAKES = pytest.mark.parametrize(
    "revision", [one for one in ALL if one.http.sessions], ids=lambda one: one.date
)
KEPT: JSON = {"ttlMs": 0, "cacheScope": "private"}


def counting() -> tuple[Server, list[int]]:
    server, calls = Server("counting"), list[int]()

    @server.tool
    def once() -> int:
        calls.append(1)
        return len(calls)

    return server, calls


# ---------------------------------------------------------------- sessions


@pytest.mark.spec("R0288")
@HANDSHAKES
@live
async def test_a_session_that_the_server_forgot_is_opened_anew_and_nothing_is_done_twice(
    revision: Revision,
) -> None:
    server, calls = counting()
    async with site(server) as here:
        url = f"http://127.0.0.1:{here.port}/mcp"
        async with connect(url, revision=revision.date) as client:
            first = client.conversation
            assert (await client.call_tool("once", returns=int)).data == 1
            sessions: Any = vars(here.app)["_sessions"]
            for session in list(sessions):
                sessions.end(session, "it was forgotten")
            assert (await client.call_tool("once", returns=int)).data == 2
            assert calls == [1, 1]
            assert client.conversation is not first
            assert len(await client.list_tools()) == 1


@pytest.mark.spec("R0289")
@live
async def test_a_session_is_left_when_the_client_is_closed(revision: Revision) -> None:
    async with site() as here:
        sessions: Any = vars(here.app)["_sessions"]
        async with connect(f"http://127.0.0.1:{here.port}/mcp", revision=revision.date):
            assert len(list(sessions)) == 1
        assert list(sessions) == []


# ---------------------------------------------------------------- a conversation that ended


@live
async def test_what_only_looks_is_asked_again_where_its_answer_was_lost(
    revision: Revision,
) -> None:
    transport = ScriptedTransport(revision)

    def drop(params: JSON) -> JSON | None:
        if len(transport.servers) == 1:
            transport.drop()
            return None
        return KEPT | {"tools": [], "contents": [], "messages": [], "completion": {"values": []}}

    names = ("tools/list", "resources/read", "prompts/get", "completion/complete")
    transport.replies = dict.fromkeys(names, drop)
    async with connected_client(transport) as client:
        assert await client.list_tools() == []
        assert len(transport.servers) == 2
        first, second = (server.requests("tools/list")[0]["id"] for server in transport.servers)
        assert isinstance(first, int)
        assert isinstance(second, int)
    for ask in ("read_resource", "get_prompt"):
        transport.servers.clear()
        async with connected_client(transport) as client:
            await getattr(client, ask)("a://b")
            assert len(transport.servers) == 2


@live
async def test_what_may_have_had_an_effect_is_not_called_again(revision: Revision) -> None:
    transport = ScriptedTransport(revision)

    def drop(params: JSON) -> JSON | None:
        transport.drop("an unknown option; its last words: unknown")
        return None

    transport.replies = {"tools/call": drop}
    async with connected_client(transport) as client:
        words = r"server 'scripted': an unknown option.*; whether it had an effect is unknown$"
        with pytest.raises(ConnectionLost, match=words):
            await client.call_tool("pay")
        assert len(transport.servers) == 1
        await client.ping()  # which begins anew
        assert len(transport.servers) == 2
        assert transport.server.requests("tools/call") == []


@live
async def test_who_waits_meanwhile_gets_the_one_that_was_begun(revision: Revision) -> None:
    transport = ScriptedTransport(revision, {"tools/list": lambda params: KEPT | {"tools": []}})
    async with connected_client(transport) as client:
        await transport.server.end.close("gone")
        await asyncio.gather(*[client.list_tools() for _ in range(10)])
        assert len(transport.servers) == 2


@live
async def test_a_server_that_is_not_there_any_more_is_an_error_and_may_come_back(
    revision: Revision,
) -> None:
    transport = ScriptedTransport(revision, {"tools/list": lambda params: KEPT | {"tools": []}})
    async with connected_client(transport) as client:
        await transport.server.end.close("gone")
        transport.open_error = CannotConnect("nobody answers the door")
        for _ in range(2):
            with pytest.raises(CannotConnect, match="nobody answers the door"):
                await client.list_tools()
        transport.open_error = None
        assert await client.list_tools() == []


@live
async def test_closing_while_it_is_begun_anew_ends_that(revision: Revision) -> None:
    transport = ScriptedTransport(revision)
    async with connected_client(transport) as client:
        await transport.server.end.close("gone")
        transport.replies = {
            "initialize": lambda params: None,
            "server/discover": lambda params: None,
        }
        calling = asyncio.ensure_future(client.list_tools())
        await until(lambda: len(transport.servers) == 2 and bool(transport.server.received))
        await client.close()
        with pytest.raises(ConnectionLost):
            await calling


@live
async def test_what_was_said_for_the_whole_conversation_is_said_again(revision: Revision) -> None:
    ok = {"logging/setLevel": lambda params: {}, "resources/subscribe": lambda params: {}}
    transport = ScriptedTransport(revision, ok)
    async with connected_client(transport) as client:
        await client.set_log_level("error")
        if revision.change_notifications is ChangeNotifications.SESSION:
            await client.subscribe("a://b")
        await transport.server.end.close("gone")
        await client.ping()
        if revision.log_control is LogControl.BY_METHOD:
            (level,) = transport.server.requests("logging/setLevel")
            assert level["params"]["level"] == "error"
            (follow,) = transport.server.requests("resources/subscribe")
            assert follow["params"]["uri"] == "a://b"
        else:
            last = transport.server.received[-1]["params"]["_meta"]
            assert last["io.modelcontextprotocol/logLevel"] == "error"


@HANDSHAKES
@live
async def test_what_cannot_be_restored_is_done_without(revision: Revision) -> None:
    transport = ScriptedTransport(revision, {"resources/subscribe": lambda params: {}})
    async with connected_client(transport) as client:
        await client.subscribe("a://b")
        await transport.server.end.close("gone")

        def refuse(params: JSON) -> JSON:
            raise Refusal(-32602, "there is no such thing any more")

        transport.replies = {"resources/subscribe": refuse}
        await client.ping()
        assert len(transport.servers) == 2


# ---------------------------------------------------------------- a child


DYING = """
import json, os, sys
marker = sys.argv[1]
for line in sys.stdin:
    heard = json.loads(line)
    method = heard.get("method")
    if method == "initialize":
        info = {"name": "d", "version": "1"}
        said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        if not os.path.exists(marker):
            open(marker, "w").close()
            sys.exit(9)
        said = {"tools": []}
    elif "id" not in heard:
        continue
    else:
        said = {}
    print(json.dumps({"jsonrpc": "2.0", "id": heard["id"], "result": said}), flush=True)
"""


@live
async def test_a_child_that_died_while_it_was_only_looked_at_is_started_again(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "died"
    argv = [sys.executable, "-I", "-c", DYING, str(marker)]
    async with connect(argv, revision="2025-06-18") as client:
        assert await client.list_tools() == []
        assert marker.exists()


# ---------------------------------------------------------------- another server at the same place


@live
async def test_a_modern_site_that_was_exchanged_for_an_older_one_is_spoken_to_as_such() -> None:
    modern = True

    def answer(request: ReceivedRequest) -> bytes:
        message = request.message
        method = message["method"]
        info = {"name": "s", "version": "1"}
        if "id" not in message:
            return http_response(202)
        if modern and method == "server/discover":
            said: JSON = KEPT | {"supportedVersions": [NEWEST.date], "capabilities": {"tools": {}}}
        elif not modern and method == "initialize":
            old = {"protocolVersion": ALL[3].date, "capabilities": {"tools": {}}}
            said = old | {"serverInfo": info}
        elif not modern and method == "tools/list" and "mcp-method" not in request.headers:
            said = {"tools": []}
        else:
            return http_response(400, b"no session", "text/plain")
        stamped = {"resultType": "complete"} | said if modern else said
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": stamped}
        return http_response(200, json.dumps(reply).encode())

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            await connection.send(
                answer(request) if request.method == "POST" else http_response(405)
            )

    async with scripted_http_server(handler) as server, connect(server.url) as client:
        assert client.revision == NEWEST.date
        modern = False
        assert await client.list_tools() == []
        assert client.revision == ALL[3].date


@pytest.mark.parametrize("status", [400, 404, 413])
@live
async def test_a_refusal_on_the_way_is_the_error_of_that_call_and_of_no_other(
    status: int,
) -> None:
    released = asyncio.Event()

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            message = request.message
            said: JSON = KEPT | {"supportedVersions": [NEWEST.date], "capabilities": {"tools": {}}}
            if message["method"] == "tools/call":
                if message["params"]["name"] == "refused":
                    await connection.send(http_response(status, b"blocked", "text/plain"))
                    continue
                await released.wait()
                said = {"content": []}
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": said}
            await connection.send(http_response(200, json.dumps(reply).encode()))

    async with scripted_http_server(handler) as server, connect(server.url) as client:
        other = asyncio.ensure_future(client.call_tool("slow"))
        await server.wait_for_requests(2)
        with pytest.raises(RemoteProtocolError, match=str(status)):
            await client.call_tool("refused")
        assert len(server.posts("tools/call")) == 2, "it is not sent again"
        released.set()
        assert (await other).content == []


@live
async def test_an_error_about_the_request_itself_is_no_reason_to_begin_anew() -> None:
    def refuse(params: JSON) -> JSON:
        raise Refusal(-32602, "no such page")

    transport = ScriptedTransport(NEWEST, {"tools/list": refuse})
    async with connected_client(transport) as client:
        with pytest.raises(RemoteError, match="no such page"):
            await client.list_tools()
        assert len(transport.servers) == 1


def test_pauses_grow_to_a_bound_and_are_never_the_same_for_all() -> None:
    pauses = [following.retry_delay_s(tries) for tries in range(20)]
    assert all(0 < pause <= following.MAX_RETRY_S for pause in pauses)
    assert min(pauses[-5:]) >= following.MAX_RETRY_S / 2
    assert len({following.retry_delay_s(10) for _ in range(20)}) > 1
