"""The application on a web server that knows nothing of it: what it still keeps, over sockets."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from http_client import Caller
from http_service import FakeService
from live import Records, live, until
from portico.transport.http_server import HttpApp
from portico.transport.http_visit import App, Limits, Receive, Scope, Send

LISTEN = {"notifications": {"toolsListChanged": True}}


class Mounted:
    """Somebody else's application, which hands `/api` to ours and has a lifespan of its own."""

    def __init__(self, inner: App) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["path"].startswith("/api/"):
            await self._inner(dict(scope) | {"root_path": "/api"}, receive, send)
        else:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": b"theirs"})


@asynccontextmanager
async def elsewhere(
    service: FakeService, **settings: Any
) -> AsyncGenerator[tuple[HttpApp, Caller]]:
    """Our application below another one, on uvicorn as it is."""
    app = HttpApp(service, **settings)
    config = uvicorn.Config(Mounted(app), port=0, log_config=None, ws="none")  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    await until(lambda: server.started)
    (listener,) = server.servers
    async with Caller(listener.sockets[0].getsockname()[1], "/api/mcp") as caller:
        try:
            yield app, caller
        finally:
            server.should_exit = True
            await serving
            if app._keeper.task is not None:  # the loop would do this at its end
                app._keeper.task.cancel()
                await asyncio.wait({app._keeper.task})


@live
async def test_it_is_found_below_its_root_and_the_rest_is_theirs() -> None:
    service = FakeService()
    async with elsewhere(service) as (_, caller):
        assert (await caller.call("echo", say="hi")).text == "hi"
        assert (await caller.request("GET", path="/")).body == b"theirs"
        assert (await caller.request("GET", path="/api/health")).status == 404
        assert (await caller.modern("tools/list", host="evil.example")).status == 403
    assert (service.starts, service.stops) == (1, 1)


@live
async def test_a_client_that_goes_cancels_its_call_there_too() -> None:
    service = FakeService()
    async with elsewhere(service) as (app, caller):
        with Records("uvicorn.error") as records:
            calling = asyncio.create_task(caller.call("wait"))
            await service.marks.reached("wait begun")
            caller.wires[-1].abort()
            await service.marks.reached("wait cancelled")
            await until(lambda: len(app.sweep) == 0)
        calling.cancel()
        assert not [line for line in records.lines if line.startswith("ERROR")]


@live
async def test_a_call_that_stays_for_a_while_is_answered_and_not_watched_any_more() -> None:
    service = FakeService()
    async with elsewhere(service) as (app, caller):
        calling = asyncio.create_task(caller.call("wait"))
        await service.marks.reached("wait begun")
        await until(lambda: any(visit.watcher is not None for visit in app.sweep))
        service.go.mark("wait")
        assert (await calling).text == "waited"
        await until(lambda: len(app.sweep) == 0)


@live
async def test_streams_sessions_and_the_first_transport_work_there() -> None:
    service = FakeService()
    async with elsewhere(service, limits=Limits(keep_alive_s=0.01)) as (app, caller):
        wire, stream = await caller.stream("subscriptions/listen", LISTEN)
        await stream.message()
        assert await stream._chunk() == b":\n\n"
        wire.abort()
        await service.marks.reached("listen cancelled")
        await caller.initialize("2025-11-25")
        assert (await caller.ask("tools/list")).status == 200
        assert (await caller.request("DELETE")).status == 200
        caller.session = None
        wire, stream = await caller.begin("GET", path="/api/sse", accept="text/event-stream")
        endpoint = (await stream.event()).text()
        assert endpoint.startswith("/api/messages?session_id=")
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        assert (await caller.request("POST", ping, path=endpoint)).status == 202
        assert (await stream.message())["id"] == 1
        wire.abort()
        await until(lambda: len(app.sweep) == 0)


@live
async def test_another_server_cannot_be_made_to_wait_for_ever_by_a_body() -> None:
    service = FakeService()
    async with elsewhere(service, limits=Limits(body_s=0.01)) as (app, caller):
        wire = await caller.wire()
        head = f"POST /api/mcp HTTP/1.1\r\nHost: localhost:{caller.port}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        await wire.send(head.encode())
        assert (await wire.head()).status == 408
        await until(lambda: len(app.sweep) == 0)
