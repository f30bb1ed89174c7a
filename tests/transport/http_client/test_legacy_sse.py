"""HTTP with SSE as our client speaks it, against a scripted server: the stream, and POSTs beside."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.scripted_server import ALL_OF_IT, INFO
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import (
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    LocalProtocolError,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import EVERY, NOVEMBER_2024, Revision, Revisions
from colonnade.transport.http_client import legacy_sse as http_sse_client
from colonnade.transport.http_client.legacy_sse import SseStream
from colonnade.transport.http_client.pool import HttpPool
from live import Records, live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    ScriptedHttpServer,
    chunk,
    descriptors,
    events,
    http_response,
    scripted_http_server,
    stream,
)

TOLD = b"event: endpoint\ndata: /messages?session_id=s3cret\n\n"
SOON_S = 0.2
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
Taking = Callable[["Older", AcceptedConnection, ReceivedRequest], Awaitable[None]]


class Older:
    """A server of the first kind: one stream, and what is posted."""

    def __init__(
        self, revision: Revision = NOVEMBER_2024, take: Taking | None = None, first: bytes = TOLD
    ) -> None:
        self.revision = revision
        self.take = take
        self.first = first
        self.streams: list[AcceptedConnection] = []

    async def serve(self, connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            if request.method == "GET":
                self.streams.append(connection)
                await connection.send(stream(), chunk(self.first))
                await connection.wait_closed()
                return
            method = request.message.get("method")
            if self.take is not None and method not in ("initialize", "notifications/initialized"):
                await self.take(self, connection, request)
                continue
            await connection.send(http_response(202, b"Accepted", "text/plain"))
            if "id" in request.message and method is not None:
                await self.answer(request)

    async def answer(self, request: ReceivedRequest, result: dict[str, Any] | None = None) -> None:
        opened = {"protocolVersion": self.revision.date, "serverInfo": INFO}
        opened |= {"capabilities": ALL_OF_IT}
        said = result or (opened if request.message["method"] == "initialize" else DONE)
        await self.say({"jsonrpc": "2.0", "id": request.message["id"], "result": said})

    async def say(self, *messages: Any) -> None:
        said = b"".join(b"event: message\n" + events(one) for one in messages)
        await self.streams[-1].send(chunk(said))


@asynccontextmanager
async def older(
    server: Older | None = None, *, open: bool = True, answers: InputCallbacks | None = None
) -> AsyncGenerator[tuple[Client, ScriptedHttpServer, Older]]:
    """A client on the stream of such a server; nothing is left when it is over."""
    server = server or Older()
    pool = HttpPool(environ={})
    async with scripted_http_server(server.serve) as http_server:
        before = descriptors()
        try:
            line = await SseStream.open(
                pool,
                http_server.url.replace("/mcp", "/sse"),
                headers=[("Authorization", "Bearer x")],
            )
            client = Client(
                line.open_conversation,
                answers,
                info=t.Implementation(name="c", version="1"),
                accepts=Revisions([server.revision]),
            )
            try:
                if open:
                    await client.open(server.revision)
                yield client, http_server, server
            finally:
                await client.close()
        finally:
            await pool.close()
        assert line._tasks == set()
        await until(lambda: http_server.open == 0)
        await until(lambda: descriptors() <= before)


# ---------------------------------------------------------------- all is well


@pytest.mark.parametrize("revision", EVERY.handshakes, ids=lambda one: one.date)
@live
async def test_messages_are_posted_where_the_server_said_and_answers_come_on_the_stream(
    revision: Revision,
) -> None:
    async with older(Older(revision)) as (client, server, _):
        assert client.revision == revision.date
        assert (await client.call_tool("t")).text == "done"
        answers = await asyncio.gather(*(client.call_tool("t") for _ in range(20)))
        assert {one.text for one in answers} == {"done"}
    get, *posts = server.received
    assert (get.method, get.path) == ("GET", "/sse")
    assert get.headers["accept"] == "text/event-stream"
    assert {(one.method, one.path) for one in posts} == {("POST", "/messages?session_id=s3cret")}
    assert {one.headers["content-type"] for one in posts} == {"application/json"}
    assert {one.headers["authorization"] for one in server.received} == {"Bearer x"}
    methods = [one.message["method"] for one in posts]
    assert methods == ["initialize", "notifications/initialized", *["tools/call"] * 21]
    version = revision.date if revision.http.version_header else None
    assert {one.headers.get("mcp-protocol-version") for one in posts[1:]} == {version}


WAYS = {
    "a path": b"/messages",
    "a relative one": b"messages",
    "a whole URL": b"http://%b/messages",
    "a query alone": b"?x=messages",
}


@pytest.mark.parametrize("way", list(WAYS))
@live
async def test_where_to_post_may_be_said_in_every_way(way: str) -> None:
    class Here(Older):
        async def serve(self, connection: AcceptedConnection) -> None:
            host = f"127.0.0.1:{hand_port()}".encode()
            place = WAYS[way] % host if b"%b" in WAYS[way] else WAYS[way]
            self.first = b": hello\n\nevent: endpoint\ndata: " + place + b"\n\n"
            await super().serve(connection)

    ports: list[int] = []

    def hand_port() -> int:
        return ports[0]

    server = Here()
    pool = HttpPool(environ={})
    async with scripted_http_server(server.serve) as http_server:
        ports.append(http_server.port)
        line = await SseStream.open(pool, http_server.url)
        client = Client(line.open_conversation, info=t.Implementation(name="c", version="1"))
        await client.open(NOVEMBER_2024)
        assert (await client.call_tool("t")).text == "done"
        await client.close()
        await pool.close()
    wanted = "/mcp?x=messages" if way == "a query alone" else "/messages"
    assert {one.path for one in http_server.received if one.method == "POST"} == {wanted}


@live
async def test_what_came_with_the_first_event_is_heard_too() -> None:
    log = {"jsonrpc": "2.0", "method": "notifications/message"}
    log |= {"params": {"level": "info", "data": "early"}}
    server = Older(first=TOLD + events(log))
    async with older(server, open=False) as (client, _, _):
        said: list[Any] = []
        client._on_log = lambda params: said.append(params.data)
        await client.open(NOVEMBER_2024)
        assert (await client.call_tool("t")).text == "done"


@live
async def test_questions_and_their_answers_use_the_same_stream() -> None:
    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(202))
        if request.message.get("method") == "tools/call":
            asked.append(request)
            await server.say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        elif request.message.get("id") == "q":
            uri = request.message["result"]["roots"][0]["uri"]
            await server.answer(asked[0], {"content": [{"type": "text", "text": uri}]})

    asked: list[ReceivedRequest] = []
    async with older(Older(take=take), answers=InputCallbacks(roots=["/tmp"])) as (client, _, _):
        assert (await client.call_tool("t")).text == "file:///tmp"


@live
async def test_a_server_that_answers_a_post_only_when_it_is_done_may_ask_before_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sse_client, "ORDER_S", SOON_S)
    answered = asyncio.Event()

    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message.get("method") == "tools/call":
            await server.say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            await answered.wait()
            await server.answer(request)
        else:
            answered.set()
        await connection.send(http_response(202))

    async with older(Older(take=take), answers=InputCallbacks(roots=["/tmp"])) as (client, _, _):
        assert (await client.call_tool("t")).text == "done"


@live
async def test_giving_up_is_told_and_a_time_out_too() -> None:
    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(202))

    async with older(Older(take=take)) as (client, http_server, _):
        calling = asyncio.create_task(client.call_tool("t"))
        await until(lambda: bool(http_server.posts("tools/call")))
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await until(lambda: len(http_server.posts("notifications/cancelled")) == 1)
        with pytest.raises(TimedOut, match="no answer to tools/call within"):
            await client.call_tool("t", timeout_s=SOON_S)
        await until(lambda: len(http_server.posts("notifications/cancelled")) == 2)
        asked = [one["id"] for one in http_server.posts("tools/call")]
        told = [one["params"]["requestId"] for one in http_server.posts("notifications/cancelled")]
        assert told == asked


# ---------------------------------------------------------------- no such stream


async def opened(handler: Any, **options: Any) -> BaseException | None:
    """What comes of opening a stream at a server that does this."""
    pool = HttpPool(environ={})
    async with scripted_http_server(handler) as server:
        try:
            line = await SseStream.open(pool, server.url, **options)
        except ColonnadeError as error:
            await until(lambda: server.open == 0 or pool.idle > 0)
            return error
        finally:
            await pool.close()
        await line.close()
    return None


def saying(*data: bytes) -> Any:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(*data)
        if data and b"Content-Length" not in data[0]:
            await connection.reader.read()

    return handler


def pointing(place: bytes) -> Any:
    return saying(stream(), chunk(b"event: endpoint\ndata: " + place + b"\n\n"))


NONE: dict[str, tuple[Any, type[ColonnadeError], str]] = {
    "no stream": (saying(http_response(405)), RemoteProtocolError, "answered GET with 405"),
    "a page": (
        saying(http_response(200, b"<p>", "text/html")),
        RemoteProtocolError,
        "200 and text/html",
    ),
    "a login": (saying(http_response(401)), LoginRequired, "authentication required"),
    "busy": (saying(http_response(503)), ConnectionLost, "answered GET with 503; try again later"),
    "moved": (
        saying(http_response(307, b"", "", "Location: http://elsewhere.test/")),
        RemoteProtocolError,
        "redirects to http://elsewhere.test, which is another server",
    ),
    "packed": (
        saying(stream("Content-Encoding: gzip")),
        RemoteProtocolError,
        "compressed its response, which was not accepted",
    ),
    "ended": (
        saying(stream(), chunk(b": x\n\n"), b"0\r\n\r\n"),
        ConnectionLost,
        "the stream ended before its endpoint event",
    ),
    "cut": (saying(stream()[:30]), TimedOut, "sent no endpoint event within 0.2 s"),
    "silent": (saying(stream()), TimedOut, "sent no endpoint event within 0.2 s"),
    "other events": (
        saying(stream(), chunk(b"event: message\ndata: {}\n\ndata: /messages\n\n")),
        TimedOut,
        "sent no endpoint event within 0.2 s",
    ),
    "elsewhere": (
        pointing(b"http://elsewhere.test/messages"),
        RemoteProtocolError,
        "redirects to http://elsewhere.test, which is another server",
    ),
    "elsewhere by a trick": (
        pointing(b"//elsewhere.test/messages"),
        RemoteProtocolError,
        "redirects to http://elsewhere.test",
    ),
    "another port": (pointing(b"http://127.0.0.1:1/"), RemoteProtocolError, "another server"),
    "another scheme": (pointing(b"ftp://127.0.0.1/"), RemoteProtocolError, "not a URL"),
    "a file": (pointing(b"file:///etc/passwd"), RemoteProtocolError, "not a URL"),
    "a password": (pointing(b"http://a:b@127.0.0.1/"), RemoteProtocolError, "not a URL"),
    "a broken URL": (pointing(b"http://[::1"), RemoteProtocolError, "not a URL"),
    "a line break": (pointing(b"/a\ndata: b"), RemoteProtocolError, "not a URL"),
    "no text": (pointing(b"/\xff"), RemoteProtocolError, "not UTF-8"),
}


@pytest.mark.parametrize("name", list(NONE))
@live
async def test_what_is_no_such_stream_is_said_so(name: str) -> None:
    handler, kind, words = NONE[name]
    error = await opened(handler, timeout_s=SOON_S if kind is TimedOut else 60)
    assert isinstance(error, kind), error
    assert words in str(error)


@live
async def test_a_server_that_is_not_there_is_said_so() -> None:
    pool = HttpPool(environ={})
    with pytest.raises(CannotConnect):
        await SseStream.open(pool, "http://127.0.0.1:1/sse")
    with pytest.raises(LocalProtocolError):
        await SseStream.open(pool, "127.0.0.1/sse")
    await pool.close()


@live
async def test_a_stream_has_one_conversation() -> None:
    server = Older()
    async with older(server) as (client, _, _):
        line: Any = client.conversation
        with pytest.raises(LocalProtocolError, match="already has a conversation"):
            line._closable.open_conversation(client.conversation.link, client)


# ---------------------------------------------------------------- what goes wrong


REFUSALS: dict[str, tuple[bytes, type[ColonnadeError], str]] = {
    "gone": (http_response(404), RemoteProtocolError, "answered a message with 404"),
    "who": (http_response(401), LoginRequired, "answered a message with 401"),
    "busy": (http_response(503), ConnectionLost, "answered a message with 503"),
    "an error": (
        http_response(400, b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"what?"}}'),
        RemoteError,
        "what? (-32600)",
    ),
    "cut": (b"", ConnectionLost, "the server closed the connection"),
    "moved": (
        http_response(302, b"", "", "Location: /x"),
        RemoteProtocolError,
        "it has moved to '/x'",
    ),
}


@pytest.mark.parametrize("name", list(REFUSALS))
@live
async def test_a_post_that_is_refused_ends_its_call_and_no_other(name: str) -> None:
    said, kind, words = REFUSALS[name]

    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message.get("params", {}).get("name") != "bad":
            await connection.send(http_response(202))
            if request.message.get("params", {}).get("name") == "good":
                await server.answer(request)
        elif said:
            await connection.send(said)
        else:
            connection.abort()

    async with older(Older(take=take)) as (client, _, server):
        waiting = asyncio.create_task(client.call_tool("slow"))
        with pytest.raises(kind) as raised:
            await client.call_tool("bad")
        assert words in str(raised.value)
        assert "s3cret" not in str(raised.value)
        assert (await client.call_tool("good")).text == "done"
        assert not waiting.done()
        await server.say({"jsonrpc": "2.0", "id": 3, "result": DONE})
        waiting.cancel()
        await asyncio.wait([waiting])


@live
async def test_a_notice_that_is_refused_is_logged() -> None:
    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(
            http_response(400 if "id" not in request.message else 202, b"no", "text/plain")
        )

    with Records("colonnade.transport") as records:
        async with older(Older(take=take)) as (client, _, _):
            with pytest.raises(TimedOut):
                await client.call_tool("t", timeout_s=SOON_S)
            await until(lambda: bool(records.lines))
    assert "did not accept a message: 127.0.0.1" in records.lines[0]


@live
async def test_an_opening_that_is_refused_ends_it() -> None:
    class Refusing(Older):
        async def serve(self, connection: AcceptedConnection) -> None:
            request = await connection.receive()
            if request.method == "GET":
                await connection.send(stream(), chunk(TOLD))
                await connection.wait_closed()
            await connection.send(http_response(403))

    async with older(Refusing(), open=False) as (client, _, _):
        with pytest.raises(ColonnadeError, match="answered a message with 403"):
            await client.open(NOVEMBER_2024)
        assert client.conversation.link.phase is Phase.CLOSED


ENDINGS = {
    "ended": b"0\r\n\r\n",
    "cut": b"",
    "broken": b"no chunk",
    "unbounded": chunk(b"id: " + b"x" * 2000 + b"\n"),
}


@pytest.mark.parametrize("name", list(ENDINGS))
@live
async def test_where_the_stream_ends_all_ends_at_once(name: str) -> None:
    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(202))
        if len(http_server.posts("tools/call")) == 3:
            line = server.streams[-1]
            await line.send(ENDINGS[name]) if ENDINGS[name] else line.abort()

    async with older(Older(take=take)) as (client, http_server, _):
        began = asyncio.get_running_loop().time()
        calls = await asyncio.gather(
            *(client.call_tool("t") for _ in range(3)), return_exceptions=True
        )
        assert asyncio.get_running_loop().time() - began < 5
        for error in calls:
            assert isinstance(error, ConnectionLost)
            assert "during 't'; whether it had an effect is unknown" in str(error)
        with pytest.raises(ConnectionLost):
            await client.call_tool("t")
        assert client.conversation.link.phase is Phase.CLOSED


@live
async def test_leaving_closes_the_stream_and_ends_whoever_waits() -> None:
    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.wait_closed()

    async with older(Older(take=take)) as (client, http_server, server):
        calls = [asyncio.create_task(client.call_tool("t")) for _ in range(3)]
        await until(lambda: bool(http_server.posts("tools/call")))
        await asyncio.gather(client.close(), client.close())
        for call in calls:
            with pytest.raises(ConnectionLost, match="the client was closed during 't'"):
                await call
        await until(lambda: http_server.open == 0)
        assert len(server.streams) == 1


@live
async def test_a_stream_that_nobody_carries_on_can_be_closed() -> None:
    server = Older()
    pool = HttpPool(environ={})
    async with scripted_http_server(server.serve) as http_server:
        line = await SseStream.open(pool, http_server.url)
        await line.close()
        await line.close()
        await until(lambda: http_server.open == 0)
        await pool.close()


@live
async def test_giving_up_while_a_stream_is_opened_leaves_nothing() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(stream())
        await connection.wait_closed()

    pool = HttpPool(environ={})
    async with scripted_http_server(handler) as server:
        opening = asyncio.create_task(SseStream.open(pool, server.url))
        await server.wait_for_requests(1)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled()
        await until(lambda: server.open == 0)
        await pool.close()


@live
async def test_what_a_server_does_not_take_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sse_client, "MAX_UNSENT_BYTES", 10_000)
    monkeypatch.setattr(http_sse_client, "DRAIN_BYTES", 1_000)

    async def take(server: Older, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.wait_closed()

    async with older(Older(take=take)) as (client, _, _):
        calls = [
            asyncio.create_task(client.call_tool("t", {"text": "x" * 1000})) for _ in range(20)
        ]
        done, _ = await asyncio.wait(calls, timeout=60)
        assert len(done) == 20
        words = {str(call.exception()) for call in done}
        assert any("does not accept messages" in one for one in words), words
