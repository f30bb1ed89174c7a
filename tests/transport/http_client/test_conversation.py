"""A client's conversation over HTTP: messages, opening, sessions; a scripted server."""

import asyncio

import pytest

from client.misbehaving_http_server import (
    PATIENT_S,
    SESSION,
    as_json,
    conversation_of,
    misbehaving_server,
    opening,
    outcome,
    result,
)
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.probe import Era, judge
from colonnade.errors import (
    ColonnadeError,
    LocalProtocolError,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.revision import (
    JULY_2026,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2025,
    Revision,
    Revisions,
)
from colonnade.transport.http_client import conversation as http_conversation
from colonnade.transport.http_client.conversation import SessionEnded
from live import Records, live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    answer_every_request,
    chunk,
    events,
    http_response,
    scripted_http_server,
    stream,
)

# The last revision with sessions and streams that can be taken up again, and the one without.
TWO = [NOVEMBER_2025, JULY_2026]
both = pytest.mark.parametrize("revision", TWO, ids=lambda one: one.date)
SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]
each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda one: one.date)
# For what never answers: short, since it is waited for.
SOON_S = 0.2
ASK_ROOTS = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}


class Rooted(InputCallbacks):
    """A client that tells when its roots change."""

    @property
    def capabilities(self) -> t.ClientCapabilities:
        return t.ClientCapabilities(roots=t.RootsCapability(list_changed=True))


# ---------------------------------------------------------------- messages


@pytest.mark.spec("R0245", "R0246", "R0848", "R0253", "R0855")
@live
async def test_each_message_is_a_post_and_both_kinds_of_answer_are_read(
    revision: Revision,
) -> None:
    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message["params"]["name"] == "plain":
            await connection.send(as_json(result(request)))
            return
        await connection.send(stream())
        if revision.handshake:
            await connection.send(chunk(events(ASK_ROOTS)))
            await answered.wait()
        await connection.send(chunk(events(result(request))), b"0\r\n\r\n")

    async def hear_answer(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(202, b"", ""))
        answered.set()

    answered = asyncio.Event()
    special = {"answer": hear_answer}
    async with misbehaving_server(
        revision, handler, answers=Rooted(roots=["/tmp"]), overrides=special
    ) as (
        client,
        server,
    ):
        assert (await client.call_tool("plain")).text == "done"
        assert (await client.call_tool("streamed")).text == "done"
        if revision.handshake:
            await client.conversation.notify("notifications/roots/list_changed")
    posts = [one for one in server.received if one.method == "POST"]
    assert {one.method for one in server.received} <= {"POST", "GET", "DELETE"}
    assert all(one.path == "/mcp" for one in server.received)
    assert all(isinstance(one.message, dict) for one in posts)
    assert all(one.headers["content-type"] == "application/json" for one in posts)
    accepted = {"application/json, text/event-stream"}
    assert {one.headers["accept"] for one in posts} == accepted
    assert all(not one.body for one in server.received if one.method != "POST")
    wanted = ["tools/call", "tools/call"]
    if revision.handshake:
        wanted = ["initialize", "notifications/initialized", *wanted, None]
        wanted.append("notifications/roots/list_changed")
        answer = next(one.message for one in posts if "method" not in one.message)
        assert answer["id"] == "q"
        assert answer["result"]["roots"][0]["uri"] == "file:///tmp"
    else:
        wanted = ["server/discover", *wanted]
    assert [one.message.get("method") for one in posts] == wanted


@pytest.mark.spec("R0894", "R0895")
@live
async def test_the_routing_headers_of_a_call_repeat_what_its_body_says(revision: Revision) -> None:
    async with misbehaving_server(revision) as (client, server):
        await client.call_tool("first")
        await client.call_tool("second")
    calls = [one for one in server.received if one.message["method"] == "tools/call"]
    assert [one.headers["mcp-method"] for one in calls] == ["tools/call"] * 2
    assert [one.headers["mcp-name"] for one in calls] == ["first", "second"]
    assert [one.message["params"]["name"] for one in calls] == ["first", "second"]


@pytest.mark.spec("R0266", "R0352", "R0356")
@each_session
@live
async def test_every_request_names_the_session_and_the_revision_that_was_agreed_on(
    revision: Revision,
) -> None:
    """D7: what was agreed on, whatever was asked for."""

    async def agree(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        assert request.message["params"]["protocolVersion"] == NOVEMBER_2025.date
        said = result(request, opening(revision))
        await connection.send(as_json(said, 200, f"MCP-SESSION-ID: {SESSION}"))

    async with misbehaving_server(NOVEMBER_2025, opened=False, overrides={"initialize": agree}) as (
        client,
        server,
    ):
        client._connection._accepts = Revisions(SESSIONS)
        await client.open()
        assert client.revision == revision.date
        await client.call_tool("t")
    first, *others = server.received
    assert {"mcp-session-id", "mcp-protocol-version"}.isdisjoint(first.headers)
    assert {one.method for one in others} == {"POST", "GET", "DELETE"}
    assert {one.headers["mcp-session-id"] for one in others} == {SESSION}
    version = revision.date if revision.http.version_header else None
    assert {one.headers.get("mcp-protocol-version") for one in others} == {version}
    streams = [one.headers["accept"] for one in others if one.method == "GET"]
    assert set(streams) == {"text/event-stream"}


@pytest.mark.spec("R0496")
@live
async def test_a_session_id_is_told_to_nobody_but_its_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "s3cret-session"
    caplog.set_level("DEBUG")

    async def assign(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = result(request, opening(NOVEMBER_2025))
        await connection.send(as_json(said, 200, f"Mcp-Session-Id: {secret}"))

    plays = [
        http_response(307, b"", "", "Location: OTHER"),
        http_response(401),
        http_response(404),
        http_response(500),
        http_response(200, b"<html>", "text/html"),
        b"no http\r\n\r\n",
    ]

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = plays[len(server.posts("tools/call")) - 1]
        await connection.send(said.replace(b"OTHER", other.url.encode()))

    async with (
        scripted_http_server(answer_every_request) as other,
        misbehaving_server(NOVEMBER_2025, handler, overrides={"initialize": assign}) as (
            client,
            server,
        ),
    ):
        shown = [repr(client), repr(client.conversation)]
        for _ in plays:
            error = await outcome(client.call_tool("t"))
            shown += [repr(error), str(error), repr(error.__cause__), repr(error.__context__)]
        with pytest.raises(LocalProtocolError) as raised:
            await client.conversation.request("tools/call", t.RequestParams(), 1)
        shown.append(str(raised.value))
        assert len(server.posts("tools/call")) == len(plays)
        # The redirect to another server was not followed, so the id was not sent there.
        assert other.connection_count == 0
    assert secret not in " ".join(shown) + caplog.text


@live
async def test_headers_of_the_caller_go_with_every_request_and_ours_are_not_theirs_to_write() -> (
    None
):
    given = {"Authorization": "Bearer x", "User-Agent": "mine"}
    async with misbehaving_server(NOVEMBER_2025, headers=given) as (client, server):
        await client.call_tool("t")
    assert {one.headers["authorization"] for one in server.received} == {"Bearer x"}
    assert {one.headers["user-agent"] for one in server.received} == {"mine"}
    assert {one.headers["accept-encoding"] for one in server.received} == {"identity"}
    for name in ("Accept", "Mcp-Session-Id", "MCP-Protocol-Version", "mcp-param-x"):
        async with misbehaving_server(NOVEMBER_2025, opened=False, headers={name: "x"}) as (
            client,
            _,
        ):
            error = await outcome(client.open(NOVEMBER_2025))
            assert isinstance(error, LocalProtocolError)
            assert f"{name.lower()} is set for each message" in str(error)
    async with misbehaving_server(NOVEMBER_2025, opened=False, headers={"X": "a\r\nb: c"}) as (
        client,
        server,
    ):
        assert isinstance(await outcome(client.open(NOVEMBER_2025)), LocalProtocolError)
        assert server.connection_count == 0


@live
async def test_a_name_that_no_header_can_carry_is_refused_and_leaves_nothing() -> None:
    async with misbehaving_server(JULY_2026) as (client, server):
        before = len(server.received)
        with pytest.raises(LocalProtocolError):
            await client.conversation.request("tools/call", t.RequestParams(), 1)
        held = conversation_of(client)
        assert held is not None
        assert (held._calls, len(held.link._outgoing)) == ({}, 0)
        assert len(server.received) == before


@live
async def test_a_server_that_must_not_ask_is_not_answered() -> None:
    """D29: where questions go by result, an answer by POST would be refused."""

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(ASK_ROOTS, result(request))), b"0\r\n\r\n")

    async with misbehaving_server(JULY_2026, handler, answers=InputCallbacks(roots=["/"])) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
        assert (await client.call_tool("t")).text == "done"
    assert all("method" in one.message for one in server.received)


@live
async def test_an_answer_that_does_not_arrive_is_logged_and_ends_nothing() -> None:
    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(ASK_ROOTS)))
        await refused.wait()
        await connection.send(chunk(events(result(request))), b"0\r\n\r\n")

    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(400, b"no", "text/plain"))
        refused.set()

    refused = asyncio.Event()
    special = {"answer": refuse}
    with Records("colonnade.transport") as records:
        async with misbehaving_server(
            NOVEMBER_2025, handler, answers=InputCallbacks(roots=["/"]), overrides=special
        ) as (
            client,
            _,
        ):
            assert (await client.call_tool("t")).text == "done"
            await until(lambda: bool(records.lines))
    (line,) = records.lines
    assert line.startswith("WARNING a response did not arrive: 127.0.0.1:")
    assert "answered the response to roots/list with 400" in line


@live
async def test_an_answer_is_sent_again_if_it_may_not_have_arrived() -> None:
    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(ASK_ROOTS)))
        await accepted.wait()
        await connection.send(chunk(events(result(request))), b"0\r\n\r\n")

    async def hear_answer(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        answers.append(request.body)
        match len(answers):
            case 1:
                connection.abort()
            case 2:
                await connection.send(http_response(503, b"", "text/plain"))
            case _:
                await connection.send(http_response(202, b""))
                accepted.set()

    accepted = asyncio.Event()
    answers: list[bytes] = []
    async with misbehaving_server(
        NOVEMBER_2025,
        handler,
        answers=InputCallbacks(roots=["/"]),
        overrides={"answer": hear_answer},
    ) as (client, _):
        assert (await client.call_tool("t")).text == "done"
    assert answers == [answers[0]] * 3


@live
async def test_a_flood_of_pings_is_answered_as_far_as_it_does_no_harm() -> None:
    pongs = 0

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        pings = [{"jsonrpc": "2.0", "id": f"p{n}", "method": "ping"} for n in range(2000)]
        await connection.send(stream(), chunk(events(*pings, result(request))), b"0\r\n\r\n")

    async def hear_answer(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        nonlocal pongs
        pongs += request.message["result"] == {}
        await connection.send(http_response(202, b"", ""))

    with Records("colonnade.transport") as records:
        async with misbehaving_server(
            NOVEMBER_2025, handler, overrides={"answer": hear_answer}
        ) as (
            client,
            server,
        ):
            assert (await client.call_tool("t")).text == "done"
            await until(lambda: pongs == http_conversation.MAX_BEST_EFFORT_POSTS)
        assert server.connection_count <= http_conversation.MAX_BEST_EFFORT_POSTS + 5
    (line,) = records.lines  # once: or whoever asks could fill a log
    assert "sends too many requests at once" in line


@live
async def test_a_question_that_is_taken_back_is_not_answered() -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def roots() -> list[str]:
        asked.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()
        return []

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(ASK_ROOTS)))
        await asked.wait()
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        await connection.send(chunk(events(gone | {"params": {"requestId": "q"}})))
        await stopped.wait()
        await connection.send(chunk(events(result(request))), b"0\r\n\r\n")

    async with misbehaving_server(NOVEMBER_2025, handler, answers=InputCallbacks(roots=roots)) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert all("method" in one.message for one in server.received if one.body)


@live
async def test_an_answer_that_comes_on_the_stream_of_another_call_is_heard_at_once() -> None:
    waiting: list[ReceivedRequest] = []

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message["params"]["name"] == "first":
            waiting.append(request)
            await connection.wait_closed()
            return
        both = chunk(events(result(waiting[0]), result(request)))
        await connection.send(stream(), both, b"0\r\n\r\n")

    async with misbehaving_server(NOVEMBER_2025, handler) as (client, _):
        first = asyncio.create_task(client.call_tool("first"))
        await until(lambda: bool(waiting))
        assert (await client.call_tool("second")).text == "done"
        assert (await asyncio.wait_for(first, 60)).text == "done"


@both
@live
async def test_progress_begins_the_time_out_anew_up_to_a_bound(revision: Revision) -> None:
    going = asyncio.Event()

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream())
        for number in (1, 2):
            token = request.message["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": number}
            report = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await connection.send(chunk(events(report)))
            await going.wait()
        await connection.send(chunk(events(result(request))), b"0\r\n\r\n")

    ends: list[float | None] = []

    def reported(progress: float, total: float | None, message: str | None) -> None:
        held = conversation_of(client)
        assert held is not None
        (call,) = held._calls.values()
        ends.append(call.deadline)
        if progress == 1:
            known = held.link._outgoing.get(call.id)
            assert known is not None
            known.limit = asyncio.get_running_loop().time() + 100  # ten minutes later, say
        going.set()

    async with misbehaving_server(revision, handler) as (client, _):
        began = asyncio.get_running_loop().time()
        answer = await client.call_tool("t", timeout_s=200, on_progress=reported)
        assert answer.text == "done"
        assert ends[0] is not None
        assert ends[0] > began + 200
        assert ends[1] is not None
        assert ends[1] < began + 199


# ---------------------------------------------------------------- opening


@live
async def test_the_wrong_revision_ends_it() -> None:
    revision = NOVEMBER_2025

    async def wrong(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = opening(revision) | {"protocolVersion": "1999-12-31"}
        await connection.send(as_json(result(request, said), 200, "Mcp-Session-Id: s"))

    async with misbehaving_server(revision, opened=False, overrides={"initialize": wrong}) as (
        client,
        server,
    ):
        error = await outcome(client.open(revision))
        assert isinstance(error, RemoteProtocolError)
        assert "the server chose revision '1999-12-31', we accept 2025-11-25" in str(error)
        assert server.posts("notifications/initialized") == []


@live
async def test_a_revision_that_is_not_among_those_named_is_not_spoken() -> None:
    async def wrong(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = opening(JULY_2026) | {"supportedVersions": ["1999-12-31"]}
        await connection.send(as_json(result(request, said)))

    async with misbehaving_server(
        JULY_2026, opened=False, overrides={"server/discover": wrong}
    ) as (client, _):
        error = await outcome(client.open(JULY_2026))
        assert isinstance(error, RemoteProtocolError)
        assert "no revision in common" in str(error)


@pytest.mark.parametrize("id", ["sp ace", "ü", "x" * 5000, '"'], ids=["space", "ü", "long", "fine"])
@live
async def test_a_session_id_with_other_characters_is_not_sent_back(id: str) -> None:
    async def assigned(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = opening(NOVEMBER_2025)
        await connection.send(as_json(result(request, said), 200, f"Mcp-Session-Id: {id}"))

    async with misbehaving_server(
        NOVEMBER_2025, opened=False, overrides={"initialize": assigned}
    ) as (
        client,
        server,
    ):
        error = await outcome(client.open(NOVEMBER_2025))
        if id == '"':
            assert error is None
            assert server.received[-1].headers["mcp-session-id"] == id
            return
        assert isinstance(error, RemoteProtocolError)
        assert "Mcp-Session-Id is not visible ASCII" in str(error)
        assert id not in str(error)
        assert all("mcp-session-id" not in one.headers for one in server.received)


STATUSES = [400, 401, 403, 404, 405, 406, 407, 408, 415, 425, 429, 500, 502, 503, 504]
UNDECIDED = {401, 403, 407, 408, 425, 429, 500, 502, 503, 504}


@pytest.mark.parametrize("status", STATUSES)
@both
@live
async def test_the_status_of_a_refused_opening_can_be_learned(
    revision: Revision, status: int
) -> None:
    """D13: what was said about the way decides nothing about the server at its end."""

    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(status, b"no", "text/plain"))

    special = {"initialize" if revision.handshake else "server/discover": refuse}
    async with misbehaving_server(revision, opened=False, overrides=special) as (client, server):
        error = await outcome(client.open(revision))
        assert isinstance(error, ColonnadeError)
        assert error.status == status
        verdict = judge(None, error.status).era
        assert verdict is (Era.UNDECIDED if status in UNDECIDED else Era.LEGACY)
        assert len(server.received) == 1


# ---------------------------------------------------------------- sessions and notices


@pytest.mark.parametrize("body", [b"", b"error"], ids=["bare", "with an error"])
@live
async def test_a_session_that_the_server_has_forgotten_is_said_so(body: bytes) -> None:
    """The server has not heard what was sent, whatever else its answer says (R0288)."""

    async def invalidate(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        error = {"code": -32600, "message": "no such session"}
        said = {"jsonrpc": "2.0", "id": request.message["id"], "error": error}
        await connection.send(as_json(said, 404) if body else http_response(404))

    async with misbehaving_server(NOVEMBER_2025, invalidate) as (client, server):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, SessionEnded)
        assert (error.status, error.not_sent) == (404, True)
        assert "the session has ended" in str(error)
    assert [one.method for one in server.received if one.method == "DELETE"] == []


@live
async def test_where_there_are_no_sessions_404_is_an_answer_like_others() -> None:
    async def unknown(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        error = {"code": -32601, "message": "no such method"}
        await connection.send(
            as_json({"jsonrpc": "2.0", "id": request.message["id"], "error": error}, 404)
        )

    async with misbehaving_server(JULY_2026, unknown) as (client, _):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, RemoteError)
        assert (error.code, error.status) == (-32601, 404)


@pytest.mark.parametrize("way", ["bare", "with an error", "silent", "forgotten", "who"])
@live
async def test_a_notice_that_the_server_does_not_take_is_said_so(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if way == "silent":
            await connection.wait_closed()
        elif way == "with an error":
            error = {"code": -32600, "message": "what roots?"}
            await connection.send(as_json({"jsonrpc": "2.0", "error": error}, 400))
        else:
            await connection.send(http_response({"bare": 400, "forgotten": 404, "who": 401}[way]))

    monkeypatch.setattr(
        http_conversation, "POST_TIMEOUT_S", SOON_S if way == "silent" else PATIENT_S
    )
    answers = Rooted(roots=["/"])
    method = "notifications/roots/list_changed"
    special = {method: refuse}
    async with misbehaving_server(NOVEMBER_2025, answers=answers, overrides=special) as (
        client,
        server,
    ):
        error = await outcome(client.conversation.notify(method))
        kinds: dict[str, type[ColonnadeError]] = {
            "bare": RemoteProtocolError,
            "with an error": RemoteError,
            "silent": TimedOut,
            "forgotten": SessionEnded,
            "who": LoginRequired,
        }
        assert isinstance(error, kinds[way]), error
        assert way != "silent" or "accepted no notifications/roots/list_changed" in str(error)
        assert (await client.call_tool("t")).text == "done"
        assert len(server.posts(method)) == 1


@live
async def test_an_opening_whose_last_word_is_refused_stands_all_the_same() -> None:
    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(400))

    with Records("colonnade.transport"):
        async with misbehaving_server(
            NOVEMBER_2025, overrides={"notifications/initialized": refuse}
        ) as (
            client,
            _,
        ):
            assert (await client.call_tool("t")).text == "done"
