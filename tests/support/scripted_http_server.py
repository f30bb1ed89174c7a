"""An HTTP server for tests of clients: a function of the test decides what each connection is sent.

    async with scripted_http_server(handler) as server:     # `handler` runs once per connection
        await pool.send("GET", server.url, [])

Rules: plain sockets on the loopback, no HTTP library. A handler that raises fails its test; one
whose client disconnects just ends. What a client left open when a test ends is a failure.
"""

import asyncio
import functools
import inspect
import json
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, ParamSpec

import pytest
import uvloop

from colonnade.transport.http_client.pool import HttpPool
from live import TEST_S, _watched, until

P = ParamSpec("P")
WAIT_S = 60.0
JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream"
LIMIT = 64 * 1024 * 1024


class ReceivedRequest(NamedTuple):
    """A request as it arrived; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body)


def response_head(status: int, *lines: str) -> bytes:
    """The status line and the headers of a response."""
    return "\r\n".join([f"HTTP/1.1 {status} Said", *lines, "", ""]).encode("latin-1")


def http_response(status: int, body: bytes = b"", kind: str = JSON_TYPE, *lines: str) -> bytes:
    """A response with a content length."""
    typed = [f"Content-Type: {kind}"] if kind else []
    return response_head(status, f"Content-Length: {len(body)}", *typed, *lines) + body


OK = http_response(200, b"ok", "text/plain")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class AcceptedConnection:
    """One connection, as the server sees it."""

    def __init__(
        self,
        server: "ScriptedHttpServer",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer

    async def receive(self) -> ReceivedRequest:
        """The next request, with its body. Raises `EOFError` if there is none."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.removesuffix("\r\n\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} came twice"
            headers[name.lower()] = value
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        heard = ReceivedRequest(method, path, headers, body)
        self.server.received.append(heard)
        return heard

    async def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection without sending anything more."""
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionError):
                assert await self.reader.read() == b""
        self.server.client_closed.set()

    def abort(self) -> None:
        self.writer.transport.abort()


ConnectionHandler = Callable[[AcceptedConnection], Awaitable[None]]


class ScriptedHttpServer:
    """The server: the requests it received, and how many connections there were and are."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.host = "127.0.0.1"
        self.port = 0
        self.received: list[ReceivedRequest] = []
        self.connection_count = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        # Set when `AcceptedConnection.wait_closed` has seen its client disconnect.
        self.client_closed = asyncio.Event()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/mcp"

    @property
    def open(self) -> int:
        """The number of connections that are still open."""
        return len(self.tasks)

    async def wait_for_requests(self, times: int) -> None:
        """Wait until this many requests have arrived."""
        await until(lambda: len(self.received) >= times)

    def posts(self, method: str) -> list[dict[str, Any]]:
        """The messages of one method that were posted so far."""
        messages = [one.message for one in self.received if one.method == "POST"]
        return [message for message in messages if message.get("method") == method]


@asynccontextmanager
async def scripted_http_server(
    handler: ConnectionHandler, *, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[ScriptedHttpServer]:
    """Serve for as long as this is entered."""
    scripted = ScriptedHttpServer("https" if context else "http")
    scripted.host = host

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        scripted.connection_count += 1
        scripted.tasks.add(task)
        try:
            await handler(AcceptedConnection(scripted, reader, writer))
            writer.close()
            await writer.wait_closed()
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass  # asyncio would complain of a cancelled task of its own
        except Exception as error:
            scripted.failures.append(error)
        finally:
            scripted.tasks.discard(task)
            _drop(writer.transport)

    server = await asyncio.start_server(serve, host, 0, ssl=context, limit=1024 * 1024)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        tasks = list(scripted.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
        await until(lambda: not any(map(_accepting, asyncio.all_tasks())))
    assert not scripted.failures, scripted.failures


def _drop(transport: asyncio.WriteTransport) -> None:
    """Let a connection go at once. One that has closed by itself, after it had sent what it held,
    is left alone: asyncio raises `AttributeError` where such a one is aborted."""
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.abort()


def _accepting(task: "asyncio.Task[Any]") -> bool:
    """Whether this is asyncio itself, which has not noticed yet that its client is gone."""
    return "_accept_connection2" in repr(task.get_coro())


@asynccontextmanager
async def pooled(**options: Any) -> AsyncGenerator[HttpPool]:
    """A pool that leaves nothing behind."""
    options.setdefault("environ", {})
    pool = HttpPool(**options)
    try:
        yield pool
    finally:
        await pool.close()
    assert repr(pool) == "HttpPool(0 connections, 0 idle)"


async def fetch(pool: HttpPool, url: str) -> tuple[int, bytes]:
    """The status and the body at a URL."""
    async with await pool.send("GET", url, []) as answer:
        return answer.status, await answer.read_all(LIMIT)


async def answer_every_request(visitor: AcceptedConnection) -> None:
    """Respond to every request with 200."""
    while True:
        await visitor.receive()
        await visitor.send(OK)


def either_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test twice: in a loop of asyncio's own, and in one of uvloop's."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        factory: Any = kwargs.pop("loop_factory")
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_watched(test(*args, **kwargs), TEST_S))

    factories = [None, uvloop.new_event_loop]
    _take(run, test)
    return pytest.mark.parametrize("loop_factory", factories, ids=["asyncio", "uvloop"])(run)


def _take(run: Any, test: Any) -> None:
    """Let pytest see one argument more than the test has."""
    signature = inspect.signature(test)
    more = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])
    del run.__wrapped__


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))


def events(*messages: Any, id: str | None = None, retry: int | None = None) -> bytes:
    """Messages as events of a stream; bytes are data as they are."""
    text = b""
    for message in messages:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        text += (f"id: {id}\n".encode() if id else b"") + b"data: " + data + b"\n\n"
    return (f"retry: {retry}\n\n".encode() if retry is not None else b"") + text


def stream(*lines: str) -> bytes:
    """The head of a stream of events."""
    return response_head(200, f"Content-Type: {EVENTS_TYPE}", "Transfer-Encoding: chunked", *lines)
