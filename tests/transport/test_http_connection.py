"""One connection of our own server without a socket: states, events of ASGI, what is written when."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any, cast

import pytest

from colonnade.transport.http_server import connection as http_connection
from colonnade.transport.http_server.asgi_cycle import (
    HELD_BYTES,
    LARGE_BODY,
    RESPONDING,
    TOGETHER,
    RequestCycle,
    Responding,
    ServerState,
)
from colonnade.transport.http_server.connection import (
    DEFAULT_LIMITS,
    READ_BYTES,
    READING,
    Reading,
    RunLimits,
    ServerConnection,
)
from colonnade.transport.http_server.request import (
    App,
    DirectConnection,
    Message,
    Receive,
    Scope,
    Send,
)
from live import Records, live

POST = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
GET = b"GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSE = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
EXPECT = POST.replace(b"\r\n\r\nbody", b"\r\nExpect: 100-Continue\r\n\r\n")
UPGRADE = GET.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
SIZED: Message = START | {"headers": [(b"content-length", b"2")]}


def body(data: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


class Transport(asyncio.Transport):
    """Remembers what is done to it; as one of a loop does, it tells of its end a turn later."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("::1", 8000, 0, 0), "peername": ("::1", 9, 0, 0)})
        self.written: list[bytes] = []
        self.closing = self.aborted = self.paused = False
        self.connection: ServerConnection | None = None

    def write(self, data: Any) -> None:
        assert not self.closing, "written to a connection that is closed"
        self.written.append(bytes(data))

    def close(self) -> None:
        if not self.closing and self.connection is not None:
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
        self.closing = True

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0


# For the type checker: our application takes the shorter ways of a cycle by this protocol alone.
shorter_ways: Callable[[RequestCycle], DirectConnection] = lambda cycle: cycle  # noqa: E731


class Wire:
    """One connection, its transport, and what the application does."""

    def __init__(
        self, app: App, state: ServerState | None = None, limits: RunLimits = DEFAULT_LIMITS
    ) -> None:
        self.state = state or ServerState(app, {"from": "the lifespan"})
        self.connections: set[ServerConnection] = set()
        self.connection = ServerConnection(self.state, limits, self.connections)
        self.transport = self.connection.transport = Transport()
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)

    @property
    def written(self) -> bytes:
        return b"".join(self.transport.written)

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            if not self.transport.closing:
                self.connection.data_received(piece)

    async def settled(self) -> None:
        """Wait until nothing runs, and for what was to be written soon."""
        while self.state.running:
            await asyncio.wait(self.state.running.values())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def gone(self) -> None:
        """The client goes."""
        self.transport.abort()
        await asyncio.sleep(0)
        await self.settled()


def doing(*messages: Message, read: bool = False) -> App:
    """An application that sends these."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if read:
            await receive()
        for message in messages:
            await send(message)

    return app


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    """What our own application does: the whole body, and a whole response."""
    cycle: RequestCycle = scope["colonnade.connection"]
    said = cycle.whole_body(receive)
    while said is None:
        event = await receive()
        assert event["type"] == "http.request"
        said = event["body"] if not event["more_body"] else None
    if not cycle.respond(send, 200, b'"%b"' % said[:9], None):
        await send(SIZED)
        await send(body(b"ok"))


async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
    cycle: RequestCycle = scope["colonnade.connection"]
    assert cycle.start_stream(send, [(b"content-type", b"text/event-stream")], b"one")
    assert cycle.write_chunk(send, b"two")
    assert cycle.write_chunk(send, b"", last=True)


async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def stuck_in_a_stream(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["colonnade.connection"].start_stream(send, [], b"one")
    await stuck(scope, receive, send)


# ---------------------------------------------------------------- states


class Steps:
    """Which state followed which."""

    def __init__(self) -> None:
        self.reading: set[tuple[Reading, Reading]] = set()
        self.responding: set[tuple[Responding, Responding]] = set()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Watches every connection and every cycle of a test."""
    seen = Steps()
    for kind, name in ((ServerConnection, "reading"), (RequestCycle, "responding")):
        slot, found = vars(kind)[name], getattr(seen, name)

        def get(self: Any, slot: Any = slot) -> Any:
            return slot.__get__(self)

        def put(self: Any, value: Any, slot: Any = slot, found: set[Any] = found) -> None:
            try:
                before = slot.__get__(self)
            except AttributeError:
                before = value
            if before is not value:
                found.add((before, value))
            slot.__set__(self, value)

        monkeypatch.setattr(kind, name, property(get, put))
    return seen


CHUNKS = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
CASES: list[tuple[App, list[bytes]]] = [
    (answering, [POST, POST, POST]),
    (answering, [POST[:9], POST[9:-2], POST[-2:], GET, CHUNKS, UPGRADE]),
    (answering, [POST + POST]),
    (answering, [b"\x16\x03\x01"]),
    (answering, [POST, b"\r\n", b"rubbish"]),
    (answering, [EXPECT, b"body", b"GET / HTTP/1.0\r\n\r\n"]),
    (answering, [GET.replace(b"GET", b"HEAD")]),
    (answering, [CLOSE, GET]),
    (answering, [CHUNKS.replace(b"4", b"zz")]),
    (streaming, [POST, GET]),
    (doing(SIZED, body(b"ok")), [POST, GET]),
    (doing(SIZED, body(b"too long")), [POST]),
    (doing(START, body(b"ok")), [POST, GET]),
    (doing(START, body(b"ok", more=True)), [POST]),
    (doing(SIZED), [POST]),
    (doing(), [POST]),
    (doing(body()), [POST]),
    (stuck, [POST[:-1]]),
    (stuck, [GET]),
    (stuck, [GET, GET]),
    (stuck, [POST.replace(b"\r\nContent-Length: 4", b"\r\nTransfer-Encoding: chunked"), b"zz"]),
    (stuck_in_a_stream, [POST]),
    (stuck_in_a_stream, [CHUNKS[:-9], b"zz"]),
]


def test_every_step_is_in_the_tables_and_every_step_of_the_tables_is_taken(steps: Steps) -> None:
    @live
    async def run() -> None:
        with Records("colonnade.transport"):
            for app, pieces in CASES:
                line = Wire(app)
                for piece in pieces:
                    line.feed(piece)
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                await line.gone()
                assert line.connection.reading is Reading.STOPPED
                assert not line.connections
                assert not line.state.running

    run()
    assert steps.reading == {(one, two) for one, after in READING.items() for two in after}
    assert steps.responding == {(one, two) for one, after in RESPONDING.items() for two in after}


# ---------------------------------------------------------------- what an application may send


async def sent(app: App, *pieces: bytes) -> tuple[Wire, list[str]]:
    with Records("colonnade.transport") as records:
        line = Wire(app)
        line.feed(*pieces)
        await line.settled()
    return line, records.lines


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([body(b"early")], "came instead of 'http.response.start'"),
        ([SIZED, SIZED], "came instead of 'http.response.body'"),
        ([SIZED, body(b"ok"), body(b"more")], "came after the response was complete"),
        ([SIZED, body(b"long")], "not as long as its content-length"),
        ([SIZED, body(b"o")], "not as long as its content-length"),
        ([START | {"headers": [(b"a b", b"c")]}], "not the name of a header"),
        ([START | {"headers": [(b"", b"c")]}], "not the name of a header"),
        ([START | {"headers": [(b"a", b"b\r\nc: d")]}], "a value that no header can have"),
        ([START | {"headers": [(b"a", b"b\x00")]}], "a value that no header can have"),
    ],
)
@live
async def test_what_is_no_response_is_raised_where_it_is_sent(
    messages: list[Message], words: str
) -> None:
    raised: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await doing(*messages)(scope, receive, send)
        except RuntimeError as error:
            raised.append(str(error))
            raise

    line, logged = await sent(app, GET)
    assert words in raised[0]
    assert logged == ["ERROR the application raised RuntimeError"]
    assert b"\r\nc: d" not in line.written
    complete = "complete" in words
    assert line.transport.closing is not complete
    assert line.written.startswith(b"HTTP/1.1 200 OK" if SIZED in messages else b"HTTP/1.1 500 ")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], b"Internal Server Error"),
        ([SIZED], b"content-length: 2\r\n\r\n"),
        ([START, body(b"a", more=True)], b"1\r\na\r\n"),
    ],
)
@live
async def test_a_response_that_is_left_undone_ends_the_connection(
    messages: list[Message], words: bytes
) -> None:
    line, logged = await sent(doing(*messages), GET)
    assert logged == ["ERROR the application returned before its response was complete"]
    assert line.written.endswith(words)
    assert line.transport.closing


@pytest.mark.parametrize(
    ("messages", "request_", "head", "rest"),
    [
        ([SIZED, body(b"ok")], GET, b"content-length: 2", b"ok"),
        ([START, body(b"ok")], GET, b"transfer-encoding: chunked", b"2\r\nok\r\n0\r\n\r\n"),
        ([START, body()], GET, b"transfer-encoding: chunked", b"0\r\n\r\n"),
        ([SIZED, body(b"ok")], GET.replace(b"GET", b"HEAD"), b"content-length: 2", b""),
        ([START, body(b"ok")], GET.replace(b"GET", b"HEAD"), b"", b""),
        ([START | {"status": 204}, body()], GET, b"", b""),
        ([START | {"status": 799}, body()], GET, b"transfer-encoding: chunked", b"0\r\n\r\n"),
        (
            [START | {"headers": [(b"Transfer-Encoding", b"chunked")]}, body(b"ok")],
            GET,
            b"transfer-encoding: chunked",
            b"2\r\nok\r\n0\r\n\r\n",
        ),
        (
            [
                SIZED | {"headers": [(b"Content-Length", b"2"), (b"Connection", b"a, Close")]},
                body(b"ok"),
            ],
            GET,
            b"content-length: 2\r\nconnection: a, Close",
            b"ok",
        ),
    ],
)
@live
async def test_a_response_has_the_headers_and_the_body_that_http_wants(
    messages: list[Message], request_: bytes, head: bytes, rest: bytes
) -> None:
    line, logged = await sent(doing(*messages), request_)
    assert not logged
    lines, _, after = line.written.partition(b"\r\n\r\n")
    status, _, headers = lines.partition(b"\r\n")
    assert status.split()[1] == b"%d" % messages[0]["status"]
    assert (headers, after) == (head, rest)
    assert line.transport.closing is (b"Close" in head)


@live
async def test_a_response_to_a_client_that_wants_no_more_says_so_and_closes() -> None:
    for app in (doing(SIZED, body(b"ok")), answering):
        for request in (CLOSE, GET.replace(b"1.1", b"1.0")):
            line, _ = await sent(app, request)
            assert line.written.count(b"connection: close\r\n") == 1
            assert line.transport.closing


@live
async def test_a_body_that_was_not_asked_for_is_not_waited_for() -> None:
    """RFC 9110, 10.1.1: whether the client sends it after the response cannot be known."""
    for app in (doing(SIZED, body(b"ok")), refusing):
        line, _ = await sent(app, EXPECT)
        assert b"100 Continue" not in line.written
        assert b"connection: close\r\n" in line.written
        assert line.transport.closing
        line, _ = await sent(app, EXPECT + b"body")  # it came all the same
        assert not line.transport.closing


async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["colonnade.connection"].respond(send, 401, b"", None)


# ---------------------------------------------------------------- what an application receives


@live
async def test_a_body_is_received_as_it_comes_and_then_the_end_of_the_client() -> None:
    events: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        events.append(await receive())
        events.append(await receive())
        events.append(await receive())

    line = Wire(app)
    line.feed(POST[:-3])
    await asyncio.sleep(0)
    line.feed(POST[-3:])
    await asyncio.sleep(0)
    await line.gone()
    assert events[:2] == [
        {"type": "http.request", "body": b"b", "more_body": True},
        {"type": "http.request", "body": b"ody", "more_body": False},
    ]
    assert events[2] == {"type": "http.disconnect"}


@live
async def test_after_the_response_an_application_is_told_of_the_end() -> None:
    events: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            assert (await receive())["type"] == "http.request"
            events.append(await receive())

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await doing(SIZED, body(b"ok"))(scope, receive, send)
        await watching

    line, _ = await sent(app, POST)
    assert events == [{"type": "http.disconnect"}]
    assert not line.transport.closing


@live
async def test_a_large_body_is_read_as_fast_as_it_is_taken() -> None:
    taken: list[int] = []
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        while True:
            event = await receive()
            taken.append(len(event["body"]))
            if not event["more_body"]:
                break
        await doing(SIZED, body(b"ok"))(scope, receive, send)

    line, size = Wire(app), 3 * READ_BYTES
    line.feed(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    piece, left = b"x" * 1000, size
    while not line.transport.paused:
        line.feed(piece)
        left -= len(piece)
    assert READ_BYTES < size - left <= READ_BYTES + len(piece)
    go.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken == [size - left]
    assert not line.transport.paused
    line.feed(b"x" * left)
    await line.settled()
    assert sum(taken) == size
    assert b"200 OK" in line.written


@live
async def test_a_body_that_is_not_taken_does_not_stop_the_connection() -> None:
    line = Wire(doing(SIZED, body(b"ok")))
    line.feed(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (READ_BYTES + 1))
    line.feed(b"x" * (READ_BYTES + 1))
    assert line.transport.paused
    await line.settled()
    assert not line.transport.paused
    line.feed(GET)
    await line.settled()
    assert line.written.count(b"200 OK") == 2


@live
async def test_the_rest_of_a_body_after_its_response_is_read_and_not_kept() -> None:
    line = Wire(doing(SIZED, body(b"ok")))
    line.feed(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
    await line.settled()
    for _ in range(10):
        line.feed(b"x" * 100_000)
    assert not line.transport.paused
    line.feed(GET)
    await line.settled()
    assert line.written.count(b"200 OK") == 2


# ---------------------------------------------------------------- what is written, and when


@live
async def test_a_writer_waits_for_a_slow_reader_and_no_longer_than_it_is_there() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: RequestCycle = scope["colonnade.connection"]
        assert not cycle.respond(send, 200, b"{}", None)
        assert not cycle.start_stream(send, [], b"")
        await doing(SIZED, body(b"o", more=True), body(b"k"))(scope, receive, send)

    for goes in (False, True):
        line = Wire(app)
        line.connection.pause_writing()
        line.feed(GET)
        await asyncio.sleep(0.01)
        assert line.written == b""
        if goes:
            await line.gone()
            assert line.written == b""
        else:
            line.connection.resume_writing()
            await line.settled()
            assert line.written.endswith(b"\r\n\r\nok")


@live
async def test_what_is_written_soon_is_written_once_and_never_overtaken() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: RequestCycle = scope["colonnade.connection"]
        assert cycle.start_stream(send, [], b"one")
        assert cycle.write_chunk(send, b"two")
        if scope["path"] == "/slowly":
            await send(body(b"three", more=True))
        assert cycle.write_chunk(send, b"four", last=True)

    for path, writes in ((b"/", 1), (b"/slowly", 3)):
        line = Wire(app)
        line.feed(GET.replace(b"/mcp", path))
        await line.settled()
        assert len(line.transport.written) == writes
        three = b"5\r\nthree\r\n" if writes > 1 else b""
        end = b"3\r\none\r\n3\r\ntwo\r\n" + three + b"4\r\nfour\r\n0\r\n\r\n"
        assert line.written.endswith(b"\r\n\r\n" + end)


@live
async def test_more_than_a_reader_can_take_is_not_held() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cycle: RequestCycle = scope["colonnade.connection"]
        assert cycle.start_stream(send, [], b"")
        while not line.written:
            assert cycle.write_chunk(send, b"x" * 10_000)
        assert HELD_BYTES < len(line.written) < HELD_BYTES + 20_000
        assert cycle.write_chunk(send, b"", last=True)

    line = Wire(app)
    line.feed(GET)
    await line.settled()
    assert line.written.endswith(b"\r\n0\r\n\r\n")


@live
async def test_responses_of_many_at_once_are_written_in_one_turn_of_the_loop() -> None:
    state = ServerState(answering, {})
    for count in (TOGETHER - 1, TOGETHER + 3):
        lines = [Wire(answering, state) for _ in range(count)]
        for line in lines:
            line.feed(POST)
        turns: list[int] = []
        while not all(line.written for line in lines):
            await asyncio.sleep(0)
            turns.append(sum(bool(line.written) for line in lines))
        assert turns[-2:] == ([count] if count < TOGETHER else [0, count])
        assert all(line.written.endswith(b'"body"') for line in lines)


@live
async def test_a_client_that_goes_takes_no_response_of_another_with_it() -> None:
    state = ServerState(answering, {})
    lines = [Wire(answering, state) for _ in range(TOGETHER)]
    for line in lines:
        line.feed(POST)
    while not state.held:
        await asyncio.sleep(0)
    lines[0].connection.connection_lost(None)
    lines[0].transport.closing = True
    await asyncio.sleep(0)
    assert [bool(line.written) for line in lines] == [False] + [True] * (TOGETHER - 1)


@live
async def test_a_request_for_the_head_alone_gets_that_alone() -> None:
    line, _ = await sent(answering, GET.replace(b"GET", b"HEAD"))
    assert line.written == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
    line, _ = await sent(doing(), GET.replace(b"GET", b"HEAD"))
    assert line.written.startswith(b"HTTP/1.1 500 ")
    assert line.written.endswith(b"\r\n\r\n")


@live
async def test_a_large_response_is_not_copied() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["colonnade.connection"].respond(send, 200, b"x" * (LARGE_BODY + 1), None)

    line, _ = await sent(app, GET)
    assert [len(part) for part in line.transport.written][1:] == [LARGE_BODY + 1]


@live
async def test_a_server_that_ends_closes_what_is_idle_and_what_is_answered() -> None:
    idle, busy = Wire(answering), Wire(stuck)
    idle.feed(POST)
    busy.feed(POST)
    await idle.settled()
    await asyncio.sleep(0)
    for line in (idle, busy):
        line.connection.shutdown()
    assert (idle.transport.closing, busy.transport.closing) == (True, False)
    await busy.gone()


@live
async def test_an_error_of_our_own_while_reading_is_in_the_log_and_ends_the_connection() -> None:
    class Broken(Transport):
        def pause_reading(self) -> None:
            raise ValueError("not now")

    with Records("colonnade.transport") as records:
        wire = Wire(stuck)
        wire.transport = wire.connection.transport = Broken()
        wire.transport.connection = wire.connection
        wire.feed(b"POST / HTTP/1.1\r\nContent-Length: 999999\r\n\r\n" + b"x" * (READ_BYTES + 1))
        assert records.lines == ["ERROR a request could not be read"]
        assert wire.written.startswith(b"HTTP/1.1 400 ")
        await wire.gone()


# ---------------------------------------------------------------- tasks that begin at once


class EagerLoop:
    """A loop that begins a task where it is made, as that of an application may."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def create_task(self, work: Coroutine[Any, Any, None]) -> Any:
        try:
            waits: Awaitable[None] = cast("Awaitable[None]", work.send(None))
        except StopIteration:
            done = self.loop.create_future()
            done.set_result(None)
            return done
        return asyncio.ensure_future(_rest(work, waits))


async def _rest(work: Coroutine[Any, Any, None], waits: Any) -> None:
    while True:
        while not waits.done():
            await asyncio.sleep(0)
        try:
            waits = work.send(None)
        except StopIteration:
            return


@live
async def test_a_request_that_is_answered_at_once_leaves_nothing_and_teaches_nothing() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(list(scope["headers"]))
        scope["headers"].append((b"x-added", b"by the application"))
        assert scope["colonnade.connection"].respond(send, 200, b"{}", None)

    line = Wire(app)
    line.connection.loop = cast("asyncio.AbstractEventLoop", EagerLoop())
    for _ in range(4):
        line.feed(POST.replace(b"4", b"0").replace(b"body", b""))
    assert len(seen) == 4
    assert all(headers == seen[0] for headers in seen)
    assert not line.state.running
    assert line.connection._known is None


@live
async def test_a_request_that_is_begun_at_once_is_given_its_body() -> None:
    line = Wire(answering)
    line.connection.loop = cast("asyncio.AbstractEventLoop", EagerLoop())
    for _ in range(3):
        line.feed(POST)
        await line.settled()
    assert line.written.count(b'"body"') == 3


# ---------------------------------------------------------------- addresses


@live
async def test_a_request_has_the_addresses_of_its_connection_and_the_state_of_the_lifespan() -> (
    None
):
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await answering(scope, receive, send)

    line, _ = await sent(app, POST, POST)
    (scope,) = scopes
    assert (scope["server"], scope["client"]) == (("::1", 8000), ("::1", 9))
    assert (scope["scheme"], scope["root_path"], scope["http_version"]) == ("http", "", "1.1")
    assert scope["state"] == {"from": "the lifespan"}
    assert scope["state"] is not line.state.lifespan_state
    assert "[::1]" not in repr(line.connection)
    assert "STOPPED" in repr(line.connection)  # for the second request came before the response
    assert http_connection.read_url(b"/a%20b?c=%20") == ("/a b", b"/a%20b", b"c=%20")


# ---------------------------------------------------------------- whatever comes

HEADS = (
    POST,
    GET,
    CLOSE,
    CHUNKS,
    EXPECT + b"body",
    UPGRADE,
    UPGRADE.replace(b"GET", b"POST").replace(b"Upgrade\r\n", b"Upgrade\r\nContent-Length: 4\r\n")
    + b"body",
    GET.replace(b"1.1", b"1.0"),
    GET.replace(b"/mcp", b"http://x/mcp?a=%20b"),
    POST.replace(b"Host", b"hOST").replace(b"Content-Length: 4", b"content-length:4 "),
)
PIECES = (b"\r\n", b"\r\n\r\n", b"0", b"9", b":", b" ", b"\x00", b"\xff", b"chunked", b"%", b"//")


def mutated(random: Random) -> bytes:
    """A request, or two, in which something was changed."""
    data = bytearray(random.choice(HEADS))
    if random.random() < 0.2:
        data += random.choice(HEADS)
    for _ in range(random.choice((0, 1, 1, 1, 2, 5))):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at:at] = random.choice(PIECES)
            case 1:
                del data[at : at + random.randrange(1, 9)]
            case 2:
                data[at : at + 1] = bytes([random.randrange(256)])
            case _:
                there = random.randrange(len(data) + 1)
                data[at:at] = data[there : there + random.randrange(1, 40)]
    return bytes(data)


async def taken(before: list[bytes], pieces: list[bytes]) -> tuple[list[Any], bytes, bool]:
    """What an application sees of some bytes after others, and what is written."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        facts = {name: value for name, value in scope.items() if name != "colonnade.connection"}
        seen.append(facts | {"headers": list(scope["headers"])})
        await answering(scope, receive, send)

    wire = Wire(app)
    for data in before:
        wire.feed(data)
        await wire.settled()
    seen.clear()
    wire.transport.written.clear()
    wire.feed(*pieces)
    await asyncio.sleep(0)
    closing = wire.transport.closing
    await wire.gone()
    return seen, wire.written, closing


@live
async def test_whatever_comes_is_read_alike_after_others_and_in_pieces() -> None:
    random = Random(17)
    answered = refused = 0
    for _ in range(1500):
        data = mutated(random)
        cuts = sorted(random.randrange(len(data) + 1) for _ in range(3))
        pieces = [data[a:b] for a, b in pairwise([0, *cuts, len(data)]) if b > a]
        alone = await taken([], [data])
        assert await taken([POST] * 3, [data]) == alone, data
        assert await taken([], pieces) == alone, (data, pieces)
        answered += bool(alone[0])
        refused += b"HTTP/1.1 4" in alone[1]
    assert answered > 300
    assert refused > 300
