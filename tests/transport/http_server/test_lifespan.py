"""When an application starts and ends: by its lifespan, around another one, or mounted without."""

import asyncio
import json
import signal
from typing import Any

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.request import App, Receive, Scope, Send
from http_client import BOTH, META
from http_service import FakeService
from live import Records, live

DISCOVER = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
).encode()
LISTEN = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"_meta": META, "notifications": {"toolsListChanged": True}},
    }
).encode()
HEADERS = [
    (b"host", b"127.0.0.1:8000"),
    (b"content-type", b"application/json"),
    (b"accept", BOTH.encode()),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"server/discover"),
]


class Span:
    """A web server's side of a lifespan."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.outbox: asyncio.Queue[Any] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def say(self, word: str) -> dict[str, Any]:
        if self._task is None:
            scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
            self._task = asyncio.create_task(self._run(scope))
        self.inbox.put_nowait({"type": f"lifespan.{word}"})
        async with asyncio.timeout(60):
            return await self.outbox.get()

    async def _run(self, scope: Scope) -> None:
        try:
            await self._app(scope, self.inbox.get, self.outbox.put)
        except Exception as error:
            self.outbox.put_nowait({"type": "raised", "message": repr(error)})

    async def ended(self) -> None:
        assert self._task is not None
        await self._task


async def request(app: App, path: str = "/mcp", root_path: str = "") -> tuple[int, bytes]:
    """One POST, as a web server would hand it over."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": DISCOVER, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": root_path,
        "query_string": b"",
        "headers": HEADERS,
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])


class Theirs:
    """An application around ours: it notes when it enters and leaves."""

    def __init__(self, *, fail: str = "", silent: bool = False) -> None:
        self.notes: list[str] = []
        self.fail = fail
        self.silent = silent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.notes.append(scope["type"])
        if scope["type"] != "lifespan":
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"theirs"})
            return
        if self.silent:
            raise RuntimeError("there is no lifespan here")
        await receive()
        if self.fail == "startup":
            await send({"type": "lifespan.startup.failed", "message": "no database"})
            return
        self.notes.append("entered")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.notes.append("left")
        await send({"type": "lifespan.shutdown.complete"})


# ---------------------------------------------------------------- by itself


@live
async def test_the_service_lives_as_long_as_the_lifespan() -> None:
    service = FakeService()
    app = HttpApp(service)
    span = Span(app)
    assert await span.say("startup") == {"type": "lifespan.startup.complete"}
    assert (service.starts, service.stops) == (1, 0)
    assert (await request(app))[0] == 200
    assert await span.say("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert (service.starts, service.stops) == (1, 1)
    await span.ended()


@live
async def test_a_service_that_cannot_start_says_so_in_the_lifespan() -> None:
    service = FakeService()
    service.fail_start = True
    span = Span(HttpApp(service))
    with Records("colonnade.transport") as records:
        answer = await span.say("startup")
    assert answer == {"type": "lifespan.startup.failed", "message": "the database is away"}
    assert len(records.lines) == 1
    await span.ended()


@live
async def test_a_service_that_cannot_stop_says_so_in_the_lifespan() -> None:
    class Stuck(FakeService):
        async def stop(self) -> None:
            raise LocalProtocolError("the database does not let go")

    span = Span(HttpApp(Stuck()))
    await span.say("startup")
    with Records("colonnade.transport"):
        answer = await span.say("shutdown")
    assert answer["type"] == "lifespan.shutdown.failed"
    assert "let go" in answer["message"]
    await span.ended()


@live
async def test_what_theirs_raises_while_it_lives_is_theirs_to_explain() -> None:
    async def theirs(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise RuntimeError("theirs")

    service, before = FakeService(), signal.getsignal(signal.SIGINT)
    span = Span(HttpApp(service, around=theirs))
    assert await span.say("startup") == {"type": "raised", "message": "RuntimeError('theirs')"}
    await span.ended()
    assert (service.starts, service.stops) == (1, 1)
    assert signal.getsignal(signal.SIGINT) == before


@live
async def test_a_path_begins_with_a_slash() -> None:
    with pytest.raises(LocalProtocolError, match="slash"):
        HttpApp(FakeService(), path="mcp")


# ---------------------------------------------------------------- mounted, without one


def test_mounted_without_a_lifespan_the_first_request_starts_it_and_the_loop_leaves_it() -> None:
    service = FakeService()

    async def serve() -> None:
        app = HttpApp(service)
        answers = await asyncio.gather(*(request(app) for _ in range(5)))
        assert [status for status, _ in answers] == [200] * 5
        assert (service.starts, service.stops) == (1, 0)

    asyncio.run(serve())
    assert (service.starts, service.stops) == (1, 1)


def test_a_service_that_could_not_start_is_tried_again_by_the_next_request() -> None:
    service = FakeService()

    async def serve() -> None:
        app = HttpApp(service)
        service.fail_start = True
        with Records("colonnade.transport"):
            status, body = await request(app)
        assert status == 503
        assert b"could not be started" in body
        assert b"database" not in body
        service.fail_start = False
        assert (await request(app))[0] == 200

    asyncio.run(serve())
    assert (service.starts, service.stops) == (2, 1)


def test_one_application_can_live_in_one_loop_after_another() -> None:
    service = FakeService()
    app = HttpApp(service)

    async def serve() -> None:
        assert (await request(app))[0] == 200

    asyncio.run(serve())
    asyncio.run(serve())
    assert (service.starts, service.stops) == (2, 2)


@live
async def test_mounted_it_is_left_while_a_stream_still_holds_the_loop() -> None:
    service = FakeService()
    app = HttpApp(service)
    ends: list[tuple[int, bool]] = []
    asked = asyncio.Event()

    async def receive() -> Any:
        if asked.is_set():
            await asyncio.Event().wait()
        asked.set()
        return {"type": "http.request", "body": LISTEN, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            ends.append((service.stops, message.get("more_body", False)))
            if len(ends) == 1:
                app._begin_shutdown()

    headers = [*HEADERS[:-1], (b"mcp-method", b"subscriptions/listen")]
    scope: Scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}
    await app(scope, receive, send)
    # The last word is said before the service is left, and the end of the stream after it.
    assert ends[-2:] == [(0, True), (1, False)]
    assert app.reaper.count == 0


@live
async def test_a_mounted_application_is_found_below_its_root() -> None:
    app = HttpApp(FakeService())
    span = Span(app)
    await span.say("startup")
    assert (await request(app, "/api/mcp", "/api"))[0] == 200
    assert (await request(app, "/mcp", "/api"))[0] == 200
    assert (await request(app, "/api/other", "/api"))[0] == 404
    bare = HttpApp(FakeService(), path="/")
    span_bare = Span(bare)
    await span_bare.say("startup")
    assert (await request(bare, "/mcp", "/mcp"))[0] == 200
    assert (await request(bare, "/mcp/", "/mcp"))[0] == 200
    for each in (span, span_bare):
        await each.say("shutdown")
        await each.ended()


# ---------------------------------------------------------------- around another one


@live
async def test_around_another_application_both_enter_and_both_leave() -> None:
    service, theirs = FakeService(), Theirs()
    app = HttpApp(service, around=theirs)
    span = Span(app)
    assert await span.say("startup") == {"type": "lifespan.startup.complete"}
    assert theirs.notes == ["lifespan", "entered"]
    assert service.starts == 1
    assert await span.say("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert theirs.notes == ["lifespan", "entered", "left"]
    assert service.stops == 1
    await span.ended()


@live
async def test_other_paths_are_theirs_and_ours_are_ours() -> None:
    theirs = Theirs()
    app = HttpApp(FakeService(), around=theirs)
    span = Span(app)
    await span.say("startup")
    assert await request(app, "/") == (418, b"theirs")
    assert (await request(app, "/mcp"))[0] == 200
    assert theirs.notes.count("http") == 1
    await span.say("shutdown")
    await span.ended()


@live
async def test_an_application_without_a_lifespan_does_not_keep_ours_from_starting() -> None:
    service = FakeService()
    span = Span(HttpApp(service, around=Theirs(silent=True)))
    assert await span.say("startup") == {"type": "lifespan.startup.complete"}
    assert await span.say("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert (service.starts, service.stops) == (1, 1)
    await span.ended()


@live
async def test_where_theirs_cannot_start_ours_is_left() -> None:
    service = FakeService()
    span = Span(HttpApp(service, around=Theirs(fail="startup")))
    answer = await span.say("startup")
    assert answer == {"type": "lifespan.startup.failed", "message": "no database"}
    assert (service.starts, service.stops) == (1, 1)
    await span.ended()


@live
async def test_a_socket_that_is_not_spoken_is_closed_or_theirs() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope: Scope = {"type": "websocket", "path": "/mcp", "headers": HEADERS}
    await HttpApp(FakeService())(scope, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]
    theirs = Theirs()
    await HttpApp(FakeService(), around=theirs)(scope, receive, send)
    assert theirs.notes == ["websocket"]
