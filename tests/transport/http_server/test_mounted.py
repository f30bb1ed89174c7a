"""The application on a web server that knows nothing of it: what it still keeps, over sockets."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.request import App, Limits, Receive, Scope, Send
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.signals import Signals
from http_client import Caller
from http_service import FakeService
from live import Records, live, until

LISTEN = {"notifications": {"toolsListChanged": True}}


class Mounted:
    """Somebody else's application, which hands `/api` to ours and has a lifespan of its own."""

    def __init__(self, inner: App | None) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["path"].startswith("/api/") and self._inner is not None:
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
            if app._on_demand.task is not None:  # the loop would do this at its end
                app._on_demand.task.cancel()
                await asyncio.wait({app._on_demand.task})


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
            await until(lambda: len(app.reaper) == 0)
        calling.cancel()
        assert not [line for line in records.lines if line.startswith("ERROR")]


@live
async def test_a_call_that_stays_for_a_while_is_answered_and_not_watched_any_more() -> None:
    service = FakeService()
    async with elsewhere(service) as (app, caller):
        calling = asyncio.create_task(caller.call("wait"))
        await service.marks.reached("wait begun")
        await until(lambda: any(incoming.watcher is not None for incoming in app.reaper))
        service.go.mark("wait")
        assert (await calling).text == "waited"
        await until(lambda: len(app.reaper) == 0)


@live
async def test_streams_sessions_and_the_first_transport_work_there() -> None:
    service = FakeService()
    async with elsewhere(service, limits=Limits(keep_alive_interval_s=0.01)) as (app, caller):
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
        await until(lambda: len(app.reaper) == 0)


@live
async def test_another_server_cannot_be_made_to_wait_for_ever_by_a_body() -> None:
    service = FakeService()
    async with elsewhere(service, limits=Limits(body_timeout_s=0.01)) as (app, caller):
        wire = await caller.wire()
        head = f"POST /api/mcp HTTP/1.1\r\nHost: localhost:{caller.port}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        await wire.send(head.encode())
        assert (await wire.head()).status == 408
        await until(lambda: len(app.reaper) == 0)


# ---------------------------------------------------------------- the wish to end

PROGRAM = """
import asyncio, sys
sys.path[:0] = [{tests!r}, {here!r}]
import uvicorn
from http_service import FakeService
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.http_server.app import HttpApp
from test_mounted import Mounted

class Service(FakeService):
    async def stop(self):
        print("left", flush=True)

app = HttpApp(Service(), {around})
server = uvicorn.Server(uvicorn.Config({served}, port=0, log_config=None, ws="none"))

async def main():
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await serving

asyncio.run(main())
"""


@live
async def test_around_another_application_only_paths_below_ours_are_taken_from_it() -> None:
    app = HttpApp(FakeService(), around=Mounted(None))
    site = HttpRunner(app, port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            for method, path in (("GET", "/sse"), ("POST", "/messages"), ("POST", "/mcpx")):
                _, answer = await caller.begin(method, path=path, accept="text/event-stream")
                assert (answer.status, await answer.read()) == (418, b"theirs")
            wire, stream = await caller.begin("GET", path="/mcp/sse", accept="text/event-stream")
            first = await stream.event()
            assert first.event == "endpoint"
            assert first.text().startswith("/mcp/messages?session_id=")
            wire.close()
    finally:
        await site.stop(0.0)


class Program:
    """A web server in a process of its own, with our application in it."""

    def __init__(self, served: str, around: str = "") -> None:
        here = Path(__file__).resolve().parent
        code = PROGRAM.format(
            tests=str(here.parents[1] / "support"), here=str(here), served=served, around=around
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize(
    ("served", "around", "path"),
    [
        ("Mounted(app)", "", "/api/mcp"),
        ("app", "around=Mounted(None)", "/mcp"),
        ("app", "", "/mcp"),
    ],
    ids=["mounted", "around another", "by itself"],
)
@live
async def test_a_signal_ends_open_streams_and_leaves_the_service(
    served: str, around: str, path: str
) -> None:
    with Program(served, around) as program:
        async with Caller(program.port, path) as caller:
            _, listening = await caller.stream("subscriptions/listen", LISTEN)
            await listening.message()
            await caller.initialize("2025-11-25")
            _, notification = await caller.get()
            program.process.send_signal(signal.SIGTERM)
            last = (await listening.rest())[-1]
            assert b'"resultType":"complete"' in last.data
            assert all(not event.data for event in await notification.rest())
            assert program.process.stdout is not None
            assert await asyncio.to_thread(program.process.stdout.read) == "left\n"
            await asyncio.to_thread(program.process.wait)


def test_whoever_heard_a_signal_before_hears_it_still_and_is_put_back() -> None:
    heard: list[str] = []

    def before(*_: object) -> None:
        heard.append("before")

    async def listen() -> None:
        done = asyncio.Event()
        signals = Signals(done.set)
        signals.listen()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await done.wait()
        signals.stop()
        assert signal.getsignal(signal.SIGTERM) is before

    own = signal.signal(signal.SIGTERM, before)
    try:
        asyncio.run(listen())
    finally:
        signal.signal(signal.SIGTERM, own)
    assert heard == ["before"]


def test_two_that_stop_in_the_order_in_which_they_began_leave_the_handler_of_before() -> None:
    """As two applications in one process do. A listener that has stopped must not keep Ctrl-C."""
    heard: list[str] = []

    def before(*_: object) -> None:
        heard.append("before")

    async def listen() -> None:
        first, second = Signals(lambda: None), Signals(lambda: heard.append("second"))
        first.listen()
        second.listen()
        first.stop()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        assert heard == ["before", "second"]
        second.stop()
        assert signal.getsignal(signal.SIGTERM) is before

    own = signal.signal(signal.SIGTERM, before)
    try:
        asyncio.run(listen())
    finally:
        signal.signal(signal.SIGTERM, own)


def test_who_came_after_us_stays() -> None:
    async def listen() -> None:
        signals = Signals(lambda: None, exclusive=True)
        signals.listen()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.stop()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN

    own = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(listen())
    finally:
        signal.signal(signal.SIGTERM, own)


def test_a_signal_that_nobody_heard_or_that_is_ignored_is_left_alone() -> None:
    async def listen() -> None:
        signals = Signals(lambda: None)
        signals.listen()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signals.stop()

    own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        asyncio.run(listen())
    finally:
        signal.signal(signal.SIGTERM, own)


def test_outside_of_the_main_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def listen() -> None:
        Signals(lambda: None, exclusive=True).listen()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
