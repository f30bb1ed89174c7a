"""Streams that end before their time: taken up again, polled, given up; a scripted server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.misbehaving_http_server import (
    PATIENT_S,
    SESSION,
    misbehaving_server,
    opening,
    outcome,
    result,
    tool_result,
)
from colonnade.errors import CannotConnect, ConnectionLost, RemoteProtocolError, TimedOut
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import (
    JULY_2026,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    Revision,
)
from colonnade.transport.http_client import resumption as http_resuming
from colonnade.transport.http_client.pool import ClientResponse
from colonnade.transport.http_client.resumption import (
    LONGEST_S,
    MAX_FAILURES,
    MAX_RETRY_S,
    MIN_RETRY_S,
    RETRY_S,
    StreamResumption,
    resumed_parser,
)
from live import live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    chunk,
    events,
    http_response,
    response_head,
    stream,
)

SESSIONS = [NOVEMBER_2024, MARCH_2025, JUNE_2025, NOVEMBER_2025]
each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda one: one.date)
END = b"0\r\n\r\n"
LOG = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "on"},
}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long where the server has not said when."""
    monkeypatch.setattr(http_resuming, "RETRY_S", 0.01)


def is_news(request: ReceivedRequest) -> bool:
    """Whether a GET asks for what belongs to no request: ids of such events begin with `news`."""
    after = request.headers.get("last-event-id")
    return after is None or after.startswith("news")


def resumes(client_heard: list[ReceivedRequest]) -> list[str]:
    """The events after which streams were asked for again."""
    gets = [one for one in client_heard if one.method == "GET" and not is_news(one)]
    return [one.headers["last-event-id"] for one in gets]


class Resumable:
    """A call's stream in parts: the first answers the POST, each other one a GET."""

    def __init__(self, *parts: bytes | Callable[[Any], bytes]) -> None:
        self.parts = list(parts)
        self.asked: ReceivedRequest | None = None
        self.times: list[float] = []

    async def post(self, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        self.asked = request
        await self._next(connection)

    async def get(self, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if is_news(request):
            await connection.send(http_response(405))
        else:
            await self._next(connection)

    async def _next(self, connection: AcceptedConnection) -> None:
        self.times.append(asyncio.get_running_loop().time())
        part = self.parts.pop(0)
        assert self.asked is not None
        said: bytes = part(result(self.asked)) if callable(part) else part
        await connection.send(said)
        if not said.endswith(END) and b"Content-Length" not in said:
            connection.writer.close()

    @property
    def special(self) -> dict[str, Any]:
        return {"GET": self.get}


def finished(answer: Any) -> bytes:
    """A stream that has the answer."""
    return stream() + chunk(events(answer, id="last")) + END


# ---------------------------------------------------------------- taken up again


@pytest.mark.spec("R0279", "R0495")
@live
async def test_a_stream_that_breaks_is_taken_up_after_its_last_event(
    revision: Revision, soon: None
) -> None:
    cut = stream() + chunk(events(LOG, id="a-1") + events(LOG, id="a-2") + b"id: a-3\ndata: {")
    ended = stream() + chunk(events(LOG, id="a-3")) + END
    parts = Resumable(cut, ended, finished)
    async with misbehaving_server(revision, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert resumes(server.received) == ["a-2", "a-3"]
    assert len(server.posts("tools/call")) == 1
    again = [one for one in server.received if one.method == "GET" and not is_news(one)]
    assert {one.headers["mcp-session-id"] for one in again} == {SESSION}
    assert {one.headers["accept"] for one in again} == {"text/event-stream"}


@live
async def test_in_the_first_revision_a_stream_is_taken_up_where_the_server_sends_event_ids(
    soon: None,
) -> None:
    """Event ids and GET belong to Streamable HTTP, whichever revision is spoken over it."""
    parts = Resumable(stream() + chunk(events(LOG, id="a-1")) + END, finished)
    async with misbehaving_server(NOVEMBER_2024, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert resumes(server.received) == ["a-1"]


@pytest.mark.spec("R0488", "R0490")
@live
async def test_a_server_that_hangs_up_is_polled_as_it_asked() -> None:
    """NOVEMBER_2025: an id, when to come back, and the connection is closed."""
    assert NOVEMBER_2025.http.prime_and_poll
    primed = stream() + chunk(b"id: p-1\nretry: 150\ndata:\n\n") + END
    still = stream() + chunk(b"id: p-2\ndata:\n\n") + END
    parts = Resumable(primed, still, finished)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert resumes(server.received) == ["p-1", "p-2"]
    first, second, third = parts.times
    assert second - first >= 0.15
    assert third - second >= 0.15


@live
async def test_a_server_may_be_polled_more_often_than_it_may_fail() -> None:
    polls = MAX_FAILURES + 2
    primed = stream() + chunk(b"id: p-1\nretry: 1\ndata:\n\n") + END
    parts = Resumable(*[primed] * polls, finished)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert len(resumes(server.received)) == polls


@live
async def test_polling_ends_with_the_time_out_of_the_call() -> None:
    primed = stream() + chunk(b"id: p-1\nretry: 10\ndata:\n\n") + END
    parts = Resumable(*[primed] * 1000)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert isinstance(await outcome(client.call_tool("t", timeout_s=0.3)), TimedOut)
        await until(lambda: bool(server.posts("notifications/cancelled")))


@pytest.mark.spec("R0490")
@live
async def test_a_server_that_says_retry_0_is_not_asked_again_without_a_pause() -> None:
    """Each connection has an event, so that no stream of them counts as an empty one."""
    polls = 5
    busy = [stream() + chunk(b"retry: 0\n" + events(LOG, id=f"p-{nth}")) + END for nth in range(5)]
    parts = Resumable(*busy, finished)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert len(resumes(server.received)) == polls
    # A clock of the loop and a timer of it may differ by its resolution.
    assert parts.times[-1] - parts.times[0] >= polls * (MIN_RETRY_S - 0.01)


@pytest.mark.spec("R0490")
@live
async def test_a_call_whose_stream_says_to_wait_for_years_fails_at_once() -> None:
    """It is never asked for before the time that the server said, and nobody waits for it."""
    parts = Resumable(stream() + chunk(b"id: p-1\nretry: 999999999999\ndata:\n\n") + END)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t", timeout_s=PATIENT_S))
        assert type(error) is ConnectionLost
        assert "the server's retry field is 999999999999 ms" in str(error)
        assert f"the most is {LONGEST_S * 1000:.0f}" in str(error)
    assert resumes(server.received) == []


@pytest.mark.spec("R0490")
@live
async def test_a_notification_that_is_to_be_asked_for_in_years_ends_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "colonnade.transport")
    notifications = News(
        stream() + chunk(b"id: news-1\nretry: 999999999999\ndata:\n\n") + END, stream()
    )
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        _,
    ):
        await until(lambda: "the server's retry field is 999999999999 ms" in caplog.text)
        assert (await client.call_tool("t")).text == "done"
    assert notifications.after == [None]


@live
async def test_a_wait_that_the_server_asked_for_ends_with_the_time_out_too() -> None:
    parts = Resumable(stream() + chunk(b"id: p-1\nretry: 3600000\ndata:\n\n") + END)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert isinstance(await outcome(client.call_tool("t", timeout_s=0.2)), TimedOut)
    assert resumes(server.received) == []


@live
async def test_what_stands_in_the_way_is_tried_again(soon: None) -> None:
    begun = stream() + chunk(events(LOG, id="a-1")) + END
    busy = [http_response(503), http_response(429), http_response(502), response_head(200)[:20]]
    parts = Resumable(begun, *busy, finished)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        assert (await client.call_tool("t")).text == "done"
    assert resumes(server.received) == ["a-1"] * 5


@pytest.mark.parametrize("status", [400, 404, 405, 401, 200])
@live
async def test_a_server_that_will_not_go_on_ends_the_call_at_once(status: int) -> None:
    """D28: 400 for an event that it does not know. The call may have had an effect (D19)."""
    begun = stream() + chunk(b"retry: 0\n" + events(LOG, id="a-1")) + END
    parts = Resumable(begun, http_response(status, b"", "text/plain"))
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert type(error) is ConnectionLost
        assert (error.status, error.not_sent) == (None, False)
        words = "the stream ended without a response, and cannot be resumed: 127"
        assert words in str(error)
        assert "whether it had an effect is unknown" in str(error)
    assert resumes(server.received) == ["a-1"]
    assert len(server.posts("tools/call")) == 1


@live
async def test_a_server_that_is_gone_is_given_up_after_some_tries(
    soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_resuming, "MAX_RETRY_S", 0.02)
    begun = stream() + chunk(events(LOG, id="a-1")) + END
    parts = Resumable(begun, *[http_response(503)] * 100)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
        assert "cannot be resumed: 127.0.0.1" in str(error)
    assert resumes(server.received) == ["a-1"] * MAX_FAILURES


@live
async def test_a_stream_without_ids_cannot_be_taken_up() -> None:
    parts = Resumable(stream() + chunk(events(LOG)) + END)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
    assert resumes(server.received) == []


@live
async def test_where_streams_cannot_be_taken_up_nobody_tries() -> None:
    parts = Resumable(stream() + chunk(events(LOG, id="a-1")) + END)
    async with misbehaving_server(JULY_2026, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
        assert "whether it had an effect is unknown" in str(error)
    assert {one.method for one in server.received} == {"POST"}


@live
async def test_an_event_id_that_no_header_can_carry_is_not_sent_back() -> None:
    parts = Resumable(stream() + chunk("id: ü\nretry: 0\ndata:\n\n".encode()) + END)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
        assert "the server's event id cannot be sent back" in str(error)
    assert resumes(server.received) == []


@live
async def test_giving_up_while_a_stream_is_being_taken_up_leaves_nothing() -> None:
    parts = Resumable(stream() + chunk(b"id: p-1\nretry: 60000\ndata:\n\n") + END)
    async with misbehaving_server(NOVEMBER_2025, parts.post, overrides=parts.special) as (
        client,
        server,
    ):
        calling = asyncio.create_task(client.call_tool("t"))
        await until(lambda: bool(parts.times))
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await until(lambda: bool(server.posts("notifications/cancelled")))


# ---------------------------------------------------------------- news


class News:
    """The stream that belongs to no request, one connection after the other."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.after: list[str | None] = []
        self.hold = asyncio.Event()

    async def get(self, connection: AcceptedConnection, request: ReceivedRequest) -> None:
        self.after.append(request.headers.get("last-event-id"))
        part = self.parts.pop(0) if self.parts else stream()
        await connection.send(part)
        if not self.parts and part.startswith(b"HTTP/1.1 200"):
            await connection.wait_closed()
        elif not part.endswith(END) and b"Content-Length" not in part:
            connection.writer.close()


@live
async def test_a_notification_has_a_stream_of_its_own_that_stands_when_a_client_is_open() -> None:
    notifications = News()
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        server,
    ):
        names = [one.message["method"] if one.body else one.method for one in server.received]
        assert names == ["initialize", "notifications/initialized", "GET"]
        assert server.received[-1].headers["accept"] == "text/event-stream"
        assert (await client.call_tool("t")).text == "done"
    assert notifications.after == [None]


@pytest.mark.parametrize("status", [405, 404, 400, 200, 500, 401])
@live
async def test_a_server_without_notifications_is_spoken_to_all_the_same(status: int) -> None:
    async def get(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(status, b"no", "text/plain"))

    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": get}) as (client, server):
        # Also after a 404: before there was a stream it means that there is none. This test used to
        # expect that the session was lost; servers that only take POST answer GET so.
        assert (await client.call_tool("t")).text == "done"
        assert len([one for one in server.received if one.method == "GET"]) == 1
        assert "DELETE" not in {one.method for one in server.received}
    assert [one.method for one in server.received][
        -1
    ] == "DELETE"  # the session was there to the end


@live
async def test_a_server_without_notifications_that_was_busy_at_first_is_spoken_to_all_the_same(
    soon: None,
) -> None:
    notifications = News(http_response(503), http_response(404))
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        server,
    ):
        await until(lambda: notifications.after == [None, None])
        assert (await client.call_tool("t")).text == "done"
    assert [one.method for one in server.received][-1] == "DELETE"


@live
async def test_a_404_to_a_post_still_means_that_the_session_is_lost() -> None:
    async def get(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(404))

    async def post(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(404))

    async with misbehaving_server(NOVEMBER_2025, post, overrides={"GET": get}) as (client, _):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
        assert "the session has ended" in str(error)


@live
async def test_a_server_that_is_silent_about_notifications_is_not_waited_for_long() -> None:
    async def get(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.wait_closed()

    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": get}) as (client, _):
        assert (await client.call_tool("t")).text == "done"


@each_session
@live
async def test_a_notification_goes_on_where_its_stream_broke(
    revision: Revision, soon: None
) -> None:
    first = stream() + chunk(events(CHANGED, id="news-1")) + END
    second = stream() + chunk(events(CHANGED, id="news-2") + b"data: {cut")
    notifications = News(first, second, stream() + chunk(events(CHANGED)))
    async with (
        misbehaving_server(revision, overrides={"GET": notifications.get}) as (client, _),
        client.listen(tools=True) as changes,
    ):
        await asyncio.wait_for(anext(changes), 60)
        await until(lambda: len(notifications.after) == 3)
    assert notifications.after == [None, "news-1", "news-2"]


@live
async def test_a_place_that_the_server_has_forgotten_is_not_asked_for_again(soon: None) -> None:
    """D28: from now on, then."""
    first = stream() + chunk(events(CHANGED, id="news-1")) + END
    notifications = News(first, http_response(400), stream())
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        _,
    ):
        await until(lambda: len(notifications.after) == 3)
        assert (await client.call_tool("t")).text == "done"
    assert notifications.after == [None, "news-1", None]


@live
async def test_who_listens_learns_that_something_may_have_been_missed(soon: None) -> None:
    """It was told while nobody heard, and by a server that cannot say it again."""
    forgotten = stream() + chunk(events(LOG, id="news-1")) + END
    for parts in ((stream() + END,), (forgotten, http_response(400), http_response(503))):
        notifications = News(*parts, stream())
        async with (
            misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (client, _),
            client.listen(tools=True, resources=["a://b"]) as changes,
        ):
            request = [await asyncio.wait_for(anext(changes), 60) for _ in range(2)]
            assert [change.kind for change in request] == ["tools", "resource"]
        assert notifications.after[-1] is None


@live
async def test_a_place_that_was_forgotten_by_a_busy_server_is_come_back_to(soon: None) -> None:
    first = stream() + chunk(events(CHANGED, id="news-1")) + END
    notifications = News(
        first, http_response(400), http_response(503), http_response(503), stream()
    )
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        _,
    ):
        await until(lambda: len(notifications.after) == 5)
        assert (await client.call_tool("t")).text == "done"
    assert notifications.after == [None, "news-1", None, None, None]


@live
async def test_a_notification_is_never_given_up_for_what_only_stands_in_the_way(
    soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_resuming, "MAX_RETRY_S", 0.01)
    busy = [http_response(503)] * (2 * MAX_FAILURES)
    notifications = News(stream() + END, *busy, stream() + chunk(events(CHANGED)))
    async with (
        misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (client, _),
        client.listen(tools=True) as changes,
    ):
        assert (await asyncio.wait_for(anext(changes), 60)).kind == "tools"


@live
async def test_a_session_that_was_forgotten_ends_the_conversation(soon: None) -> None:
    """Nobody would hear news any more, so whoever listens must learn that."""
    notifications = News(stream() + END, http_response(404))
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        server,
    ):
        with pytest.raises(ConnectionLost):
            async with client.listen(tools=True) as changes:
                await asyncio.wait_for(anext(changes), 60)
        assert client.conversation.link.phase is Phase.CLOSED
        with pytest.raises(ConnectionLost):
            await client.call_tool("t")
    assert "DELETE" not in {one.method for one in server.received}


@live
async def test_a_stream_that_breaks_its_bounds_ends_notifications_and_nothing_else() -> None:
    notifications = News(stream() + chunk(b"id: " + b"x" * 5000 + b"\n\n"), stream())
    async with misbehaving_server(NOVEMBER_2025, overrides={"GET": notifications.get}) as (
        client,
        _,
    ):
        assert (await client.call_tool("t")).text == "done"
        assert notifications.after == [None]


# ---------------------------------------------------------------- when


def test_how_long_to_wait_is_what_the_server_said_else_longer_each_time() -> None:
    coming = StreamResumption()
    assert coming._pause(1234) == 1.234
    assert coming._pause(0) == MIN_RETRY_S
    assert coming._pause(int(LONGEST_S * 1000)) == LONGEST_S
    with pytest.raises(ConnectionLost, match="retry field is"):
        coming._pause(int(LONGEST_S * 1000) + 1)
    waits: list[float] = []
    for silent in range(40):
        coming._silent = silent
        assert coming._pause(100_000) == 100
        assert MIN_RETRY_S <= coming._pause(0) <= RETRY_S
        waits.append(coming._pause(None))
        longest = min(RETRY_S * 2**silent, MAX_RETRY_S)
        assert longest / 2 <= waits[-1] <= longest
    coming._silent = 10
    assert coming._pause(0) == RETRY_S
    assert len({coming._pause(None) for _ in range(5)}) > 1
    coming.on_event()
    assert coming._pause(0) == MIN_RETRY_S


@pytest.mark.parametrize(
    ("error", "status", "tries"),
    [
        (CannotConnect("x"), None, MAX_FAILURES),
        (ConnectionLost("x"), None, MAX_FAILURES),
        (ConnectionLost("x"), 503, MAX_FAILURES),
        (ConnectionLost("x"), 404, 1),
        (RemoteProtocolError("x"), 405, 1),
        (RemoteProtocolError("x"), None, 1),
    ],
)
@live
async def test_only_what_may_pass_is_tried_again(
    error: Any, status: int | None, tries: int, soon: None
) -> None:
    tried = 0
    error.status = status

    async def fetch() -> ClientResponse:
        nonlocal tried
        tried += 1
        raise error

    parser = EventStreamParser()
    parser.retry_ms = 0
    with pytest.raises(type(error)):
        await StreamResumption().reconnect(fetch, parser)
    assert tried == tries


def test_the_next_reader_of_a_stream_knows_where_it_is_and_when_to_come_back() -> None:
    before = EventStreamParser()
    before.feed(b"retry: 7\nid: x\ndata:\n\nid: lost\ndata: ")
    before.end()
    after = resumed_parser(before)
    assert (after.last_event_id, after.retry_ms) == ("x", 7)
    assert after.feed(b"data: y\n\n")[0].data == b"y"


@live
async def test_a_handshake_may_be_answered_on_a_stream_that_breaks(soon: None) -> None:
    """Nothing was agreed on by then, so that it cannot be taken up: the opening has failed."""

    async def begin(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        line = f"Mcp-Session-Id: {SESSION}"
        await connection.send(stream(line) + chunk(events(LOG, id="a-1")) + END)

    async def well(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        said = result(request, opening(NOVEMBER_2025))
        await connection.send(stream(f"Mcp-Session-Id: {SESSION}") + chunk(events(said)) + END)

    async with misbehaving_server(NOVEMBER_2025, opened=False, overrides={"initialize": begin}) as (
        client,
        _,
    ):
        error = await outcome(client.open(NOVEMBER_2025))
        assert isinstance(error, CannotConnect)
    async with misbehaving_server(NOVEMBER_2025, tool_result, overrides={"initialize": well}) as (
        client,
        server,
    ):
        assert (await client.call_tool("t", timeout_s=PATIENT_S)).text == "done"
        assert server.received[1].headers["mcp-session-id"] == SESSION
