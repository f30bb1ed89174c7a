"""A zoo of misbehaving HTTP servers: each ends in the error that is meant for it, and in time."""

import asyncio
import gzip
import json
from typing import Any, NamedTuple

import pytest

from client.misbehaving_http_server import (
    PATIENT_S,
    Responder,
    as_json,
    conversation_of,
    misbehaving_server,
    opening,
    outcome,
    result,
    tool_result,
)
from colonnade.client.client import Client
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    ScopeRequired,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision, Revisions
from colonnade.transport.http_client import endpoint as http_endpoint
from colonnade.transport.http_client.conversation import HttpConversation
from colonnade.transport.http_client.pool import HttpPool
from live import live
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    chunk,
    events,
    http_response,
    response_head,
    scripted_http_server,
    stream,
)

# The last revision with sessions and streams that can be taken up again, and the one without.
TWO = [NOVEMBER_2025, JULY_2026]
both = pytest.mark.parametrize("revision", TWO, ids=lambda one: one.date)
# For what never answers: short, since it is waited for.
SOON_S = 0.2


class Animal(NamedTuple):
    """What a server does, and what its client must make of that."""

    does: Responder
    error: type[ColonnadeError]
    words: str
    timeout_s: float = PATIENT_S
    status: int | None = None


MISBEHAVING: dict[str, Animal] = {}


def animal(
    error: type[ColonnadeError], words: str, timeout_s: float = PATIENT_S, status: int | None = None
) -> Any:
    """Put a server into the zoo, under the name of its function."""

    def caged(does: Responder) -> Responder:
        name = getattr(does, "__name__", "").replace("_", " ")
        MISBEHAVING[name] = Animal(does, error, words, timeout_s, status)
        return does

    return caged


# ---------------------------------------------------------------- silence


@animal(TimedOut, r"127\.0\.0\.1:\d+: no answer to tools/call within 0\.2 s", SOON_S)
async def half_open(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.wait_closed()


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def one_byte_at_a_time(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    for byte in as_json(result(request)):
        await connection.send(bytes([byte]))
        await asyncio.sleep(0.05)


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def headers_and_no_body(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        response_head(200, "Content-Type: application/json", "Content-Length: 100")
    )
    await connection.wait_closed()


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def an_endless_stream_of_comments(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream())
    while True:
        await connection.send(chunk(b": still here\n\n"))
        await asyncio.sleep(0.001)


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def an_endless_stream_of_notifications(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream())
    notification = {"jsonrpc": "2.0", "method": "notifications/message"}
    notification |= {"params": {"level": "info", "data": "still here"}}
    while True:
        await connection.send(chunk(events(notification)))
        await asyncio.sleep(0.001)


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def an_endless_line(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream())
    while True:
        await connection.send(chunk(b"data: and so on"))
        await asyncio.sleep(0.001)


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def an_endless_stream_for_another(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream())
    while True:
        await connection.send(chunk(events({"jsonrpc": "2.0", "id": 999, "result": {}})))
        await asyncio.sleep(0.001)


@animal(TimedOut, "no answer to tools/call", SOON_S)
async def progress_of_another_call(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream())
    number = 0
    while True:
        number += 1
        params = {"progressToken": 999, "progress": number}
        notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await connection.send(chunk(events(notification)))
        await asyncio.sleep(0.001)


# ---------------------------------------------------------------- what is cut


@animal(
    ConnectionLost, "the response was cut off: .*, during 't'; whether it had an effect is unknown"
)
async def a_body_that_is_cut(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(as_json(result(request))[:-5])
    connection.abort()


@animal(ConnectionLost, "the server closed the connection, during 't'; whether it had an effect")
async def a_connection_that_is_closed_at_once(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    connection.abort()


@animal(ConnectionLost, "the stream ended without a response, during 't'; whether it had an")
async def a_stream_that_ends(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream(), chunk(b": hello\n\n"), b"0\r\n\r\n")


@animal(ConnectionLost, "the stream ended without a response.*was cut.*closed the connection")
async def a_stream_that_is_cut_in_an_event(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream(), chunk(events(result(request))[:-10]))
    connection.abort()


@animal(ConnectionLost, "the stream ended without a response")
async def an_event_without_its_end(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream(), chunk(events(result(request))[:-1]), b"0\r\n\r\n")


# ---------------------------------------------------------------- what is no answer


@animal(RemoteProtocolError, r"127\.0\.0\.1:\d+: the body is not a response to tools/call")
async def truncated_json(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, json.dumps(result(request)).encode()[:-5]))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def an_empty_body(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def nested_without_end(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def no_text_at_all(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, b"\xff\xfe\0\0"))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def a_different_id(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(as_json(result(request) | {"id": 999}))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def an_id_of_another_type(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(as_json(result(request) | {"id": str(request.message["id"])}))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def our_own_request(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, request.body))


@animal(RemoteProtocolError, "the body is not a response to tools/call")
async def a_batch_that_nobody_asked_for(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(as_json([result(request)]))


@animal(ConnectionLost, "the stream ended without a response")
async def a_different_id_in_a_stream(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream(), chunk(events(result(request) | {"id": 999})), b"0\r\n\r\n")


@animal(ConnectionLost, "the stream ended without a response")
async def events_of_another_name(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream(), chunk(b"event: pong\n" + events(result(request))), b"0\r\n\r\n")


@animal(ConnectionLost, "the stream ended without a response")
async def truncated_json_in_a_stream(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream(), chunk(events(b'{"jsonrpc":"2.0","id":')), b"0\r\n\r\n")


@animal(RemoteProtocolError, "the reply has both a result and an error|exactly one|both")
async def a_result_and_an_error(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(as_json(result(request) | {"error": {"code": 1, "message": "no"}}))


@animal(RemoteProtocolError, "an event id of the stream has 2000 bytes; the most is 1024")
async def an_event_id_without_end(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream(), chunk(b"id: " + b"x" * 2000 + b"\n"))
    await connection.wait_closed()


@animal(
    RemoteProtocolError,
    r"with 200 and text/plain, which is not MCP; is http://.*/mcp the endpoint\?",
)
async def the_wrong_type(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, json.dumps(result(request)).encode(), "text/plain"))


@animal(RemoteProtocolError, "with 200 and no type, which is not MCP")
async def no_type(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(200, json.dumps(result(request)).encode(), ""))


@animal(
    RemoteProtocolError,
    "and text/html, which is a web page and not MCP.* It begins: '<!doctype html>",
)
async def a_page(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    page = b"<!doctype html><title>Welcome</title>" + b"x" * 10_000
    await connection.send(http_response(200, page, "text/html; charset=utf-8"))


@animal(RemoteProtocolError, "answered tools/call with 202, and a request needs a response")
async def only_a_receipt(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(202, b"", ""))


@animal(RemoteProtocolError, "with 204 and no type, which is not MCP", status=204)
async def no_content(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(response_head(204))


@animal(RemoteProtocolError, "compressed its response, which was not accepted: gzip")
async def packed(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    assert request.headers["accept-encoding"] == "identity"
    body = gzip.compress(json.dumps(result(request)).encode())
    await connection.send(http_response(200, body, "application/json", "Content-Encoding: gzip"))


@animal(RemoteProtocolError, "compressed its response, which was not accepted: br")
async def a_packed_stream(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream("Content-Encoding: br"), chunk(b"\x8b\x02"))
    await connection.wait_closed()


@animal(RemoteProtocolError, "the response is larger than 67108864 bytes")
async def a_body_beyond_the_limit(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        response_head(200, "Content-Type: application/json", f"Content-Length: {10**12}")
    )
    await connection.wait_closed()


@animal(RemoteProtocolError, "the response is larger than 67108864 bytes")
async def a_body_beyond_the_limit_in_pieces(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(
        response_head(200, "Content-Type: application/json", "Transfer-Encoding: chunked")
    )
    while True:
        await connection.send(chunk(b" " * 1_000_000))


@animal(RemoteProtocolError, "the server's response is not HTTP")
async def no_http(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(b"\x15\x03\x01\0\x02\x02\x46")


@animal(RemoteProtocolError, "headers are larger than 65536 bytes")
async def headers_without_end(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await connection.send(b"X-Y: z\r\n" * 1000)


def deep(request: ReceivedRequest) -> bytes:
    """A reply with ten thousand levels."""
    inside = b'{"x":' * 10_000 + b"1" + b"}" * 10_000
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.message["id"], inside)


@animal(RemoteProtocolError, "nested deeper than 64 levels")
async def a_reply_that_is_too_deep(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(http_response(200, deep(request)))


@animal(RemoteProtocolError, "nested deeper than 64 levels")
async def an_event_that_is_too_deep_on_a_stream_that_stays(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(stream() + chunk(events(deep(request))))
    await connection.wait_closed()


@animal(RemoteProtocolError, "not JSON")
async def an_event_with_nan_on_a_stream_that_stays(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    reply = b'{"jsonrpc":"2.0","id":%d,"result":{"x":NaN}}' % request.message["id"]
    await connection.send(stream() + chunk(events(reply)))
    await connection.wait_closed()


# ---------------------------------------------------------------- moved


@animal(
    RemoteProtocolError,
    r"redirects to http://elsewhere\.test, which is another server",
    status=None,
)
async def moved_to_another_server(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        http_response(307, b"", "", "Location: http://elsewhere.test/mcp?key=s3cret")
    )


@animal(RemoteProtocolError, "redirects to https://127.*, which is another server")
async def moved_to_another_scheme(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    host = request.headers["host"]
    await connection.send(http_response(308, b"", "", f"Location: https://{host}/mcp"))


@animal(RemoteProtocolError, "sent a reference that is not a URL")
async def moved_to_nowhere(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(307, b"", "", "Location: http://[::1"))


@animal(
    RemoteProtocolError, "with 302: it has moved to '/login', which is not followed", status=302
)
async def moved_to_a_page(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(302, b"", "", "Location: /login?state=s3cret"))


@animal(RemoteProtocolError, "with 307: it has moved to '/mcp', which is not followed", status=307)
async def moved_in_a_circle(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(307, b"", "", "Location: /mcp"))


@animal(RemoteProtocolError, "with 307: it has moved to 'nowhere'", status=307)
async def moved_without_a_word(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(307))


# ---------------------------------------------------------------- refused


@animal(LoginRequired, "answered tools/call with 401: authentication required", status=401)
async def unauthorized(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(401, b"", "", 'WWW-Authenticate: Bearer realm="x"'))


@animal(LoginRequired, "with 401", status=401)
async def unauthorized_with_an_error(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    error = {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": 1, "message": "no"}}
    await connection.send(as_json(error, 401))


@animal(LoginRequired, "with 401", status=401)
async def unauthorized_with_half_a_page(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(response_head(401, "Content-Length: 100"), b"<html>")
    connection.abort()


@animal(CannotConnect, "with 407: the proxy requires other credentials", status=407)
async def behind_a_proxy(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(407, b"who?", "text/html"))


@animal(AuthError, "with 403: permission denied", status=403)
async def forbidden(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(403, b"no", "text/plain"))


@animal(ScopeRequired, "with 403: insufficient_scope: it needs the scope write", status=403)
async def too_small_a_scope(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    line = 'WWW-Authenticate: Bearer error="insufficient_scope", scope="write"'
    await connection.send(http_response(403, b"", "", line))


@animal(ConnectionLost, "with 429; try again in 7 s", status=429)
async def too_many_requests(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(429, b"", "", "Retry-After: 7"))


@animal(ConnectionLost, "with 503; try again later", status=503)
async def unavailable(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        http_response(503, b"<html>", "text/html", "Retry-After: Fri, 31 Dec 1999")
    )


@animal(ConnectionLost, "with 500; try again later", status=500)
async def broken(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        http_response(500, gzip.compress(b"x"), "text/html", "Content-Encoding: gzip")
    )


@animal(ConnectionLost, "with 502; try again later", status=502)
async def behind_a_broken_gateway(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(response_head(502, "Transfer-Encoding: chunked"), chunk(b"x" * 2_000_000))
    await connection.wait_closed()


@animal(RemoteError, r"who are you\? \(-32600\)", status=400)
async def an_error_without_an_id(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    error = {"code": -32600, "message": "who are you?", "data": {"a": 1}}
    await connection.send(as_json({"jsonrpc": "2.0", "error": error}, 400))


@animal(RemoteError, r"who are you\? \(-32600\)", status=400)
async def an_error_with_no_id_at_all(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    error = {"code": -32600, "message": "who are you?"}
    await connection.send(as_json({"jsonrpc": "2.0", "id": None, "error": error}, 400))


@animal(RemoteError, r"slow down \(429\)", status=429)
async def an_error_with_a_status(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    error = {"code": 429, "message": "slow down"}
    message = {"jsonrpc": "2.0", "id": request.message["id"], "error": error}
    await connection.send(as_json(message, 429))


@animal(RemoteError, r"no such tool \(-32602\)", status=200)
async def an_error_like_any_other(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    error = {"code": -32602, "message": "no such tool"}
    await connection.send(as_json({"jsonrpc": "2.0", "id": request.message["id"], "error": error}))


@animal(
    RemoteProtocolError, r"with 400 and text/plain, which is not MCP.*'Bad Request'", status=400
)
async def a_plain_refusal(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(http_response(400, b"Bad Request", "text/plain"))


# ---------------------------------------------------------------- the cages


@pytest.mark.parametrize("name", list(MISBEHAVING))
@both
@live
async def test_each_server_of_the_zoo_ends_in_its_error(revision: Revision, name: str) -> None:
    one = MISBEHAVING[name]
    async with misbehaving_server(revision, one.does) as (client, server):
        began = asyncio.get_running_loop().time()
        error = await outcome(client.call_tool("t", timeout_s=one.timeout_s))
        took = asyncio.get_running_loop().time() - began
        assert isinstance(error, one.error), error
        with pytest.raises(one.error, match=one.words):
            raise error
        assert "s3cret" not in str(error)
        assert one.status is None or error.status == one.status
        assert took < one.timeout_s + 60
        assert len(server.posts("tools/call")) <= 1 + http_endpoint.MAX_REDIRECTS
        held = conversation_of(client)
        assert held is not None
        assert held._calls == {}
        assert len(held.link._outgoing) == 0


def test_the_zoo_is_large_enough() -> None:
    assert len(MISBEHAVING) >= 14


@both
@live
async def test_a_client_goes_on_after_each_of_them(revision: Revision) -> None:
    """Whatever one call met, the next one is answered."""
    left = [one for one in MISBEHAVING.values() if one.timeout_s == PATIENT_S]

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        number = request.message["params"]["arguments"]["number"]
        await (left[number].does if number >= 0 else tool_result)(connection, request)

    async with misbehaving_server(revision, handler) as (client, _):
        for number, one in enumerate(left):
            if "67108864" in one.words:
                continue
            error = await outcome(client.call_tool("t", {"number": number}))
            assert isinstance(error, one.error)
            assert (await client.call_tool("t", {"number": -1})).text == "done"


# ---------------------------------------------------------------- harmless ones


async def answers_twice_in_a_body(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(as_json(result(request)) * 2)


async def answers_twice_in_a_stream(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    second = result(request, {"content": [], "isError": True, "resultType": "complete"})
    await connection.send(stream(), chunk(events(result(request), second)), b"0\r\n\r\n")


async def does_not_end_its_stream(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(stream(), chunk(events(result(request))))
    await connection.wait_closed()


async def says_unknown_things_first(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    unknown = [
        {"jsonrpc": "2.0", "method": "notifications/unheard_of", "params": {"a": 1}},
        {"jsonrpc": "2.0", "id": 77, "result": {}},
        {"jsonrpc": "2.0", "error": {"code": 1, "message": "about what?"}},
        b"no json",
        b"",
        b"\xff\xfe",
        b"[]",
    ]
    said = b"\xef\xbb\xbf:\n\nevent: ping\ndata: {}\n\n" + events(*unknown) + b"retry: x\n\n"
    await connection.send(stream(), chunk(said))
    for byte in events(result(request)):
        await connection.send(chunk(bytes([byte])))
    await connection.send(b"0\r\n\r\n")


async def closes_after_each_answer(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    await connection.send(as_json(result(request), 200, "Connection: close"))
    await connection.wait_closed()


async def speaks_the_older_http(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    body = json.dumps(result(request)).encode()
    await connection.send(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + body)
    connection.writer.close()
    await connection.wait_closed()


async def writes_its_type_in_its_own_way(
    connection: AcceptedConnection, request: ReceivedRequest
) -> None:
    body = json.dumps(result(request), indent=4).encode()
    await connection.send(http_response(200, body, "Application/JSON ; charset=UTF-8"))


async def says_that_it_is_working(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    await connection.send(
        response_head(102), response_head(103, "Link: </style.css>"), as_json(result(request))
    )


HARMLESS = (
    answers_twice_in_a_body,
    answers_twice_in_a_stream,
    does_not_end_its_stream,
    says_unknown_things_first,
    closes_after_each_answer,
    speaks_the_older_http,
    writes_its_type_in_its_own_way,
    says_that_it_is_working,
)


@pytest.mark.parametrize("does", HARMLESS, ids=lambda one: one.__name__)
@both
@live
async def test_a_server_that_is_only_strange_is_understood(
    revision: Revision, does: Responder
) -> None:
    async with misbehaving_server(revision, does) as (client, _):
        for _ in range(2):
            answer = await client.call_tool("t")
            assert (answer.text, answer.is_error) == ("done", False)


@both
@live
async def test_a_server_may_have_moved_inside_its_origin(revision: Revision) -> None:
    """As those do that want a slash at the end; the next message goes there at once."""

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            if request.path == "/mcp":
                await connection.send(http_response(307, b"", "", "Location: /deeper/mcp"))
            elif request.path == "/deeper/mcp":
                await connection.send(http_response(308, b"", "", "Location: mcp/"))
            elif not request.body:
                await connection.send(http_response(405))
            elif "id" not in request.message:
                await connection.send(response_head(202, "Content-Length: 0"))
            elif request.message["method"] == "tools/call":
                await tool_result(connection, request)
            else:
                await connection.send(as_json(result(request, opening(revision))))

    async with scripted_http_server(handler) as server:
        pool = HttpPool(environ={})
        client = Client(
            lambda link, hearer: HttpConversation(
                link, hearer, pool, server.url, headers=[("Authorization", "Bearer s3cret")]
            ),
            info=t.Implementation(name="c", version="1"),
            accepts=Revisions([revision]),
        )
        await client.open(revision)
        assert (await client.call_tool("t")).text == "done"
        assert [one.path for one in server.received].count("/mcp") == 1
        assert all(one.headers["authorization"] == "Bearer s3cret" for one in server.received)
        held = conversation_of(client)
        assert held is not None
        assert held.url.endswith("/deeper/mcp/")
        await client.close()
        await pool.close()
