"""Tasks that are created in this process, without a transport, and inserts into the store alone.

Three ways, so many at once each: the handler of a tool that runs as a task, for a call that was
decoded; whole requests, from bytes to bytes; and `SqliteStore.add` with an entry of the same size.
Rules: a server and a file of its own for each round.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from msgspec import Raw

from benchmarks.peers import ROOT
from benchmarks.rows import Lane, Opening, Sample
from benchmarks.servers.task_server import RECORD, make_server
from benchmarks.wire import FIRST_ID, MODERN, Ask, Wrong, body
from colonnade import Server
from colonnade.errors import ConnectionLost, Fault
from colonnade.protocol import jsonrpc
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields
from colonnade.protocol.http.rules import admit
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import PeerDetector
from colonnade.protocol.revision import EVERY, JULY_2026

AT_ONCE = 100
DETECTOR = PeerDetector(EVERY)
ENCODER = Encoder(JULY_2026, t.Implementation(name="bench", version="1.0"))

# Does one thing, of which many are under way at once.
Work = Callable[[], Awaitable[object]]


class DirectRequest(NonHttpRequestFields):
    """A request that came by no transport."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.fault: Fault | None = None

    @property
    def session(self) -> None:
        """None."""
        return None

    async def send(self, frame: bytes) -> None:
        """Does nothing."""

    def post(self, frame: bytes) -> bool:
        """Does nothing."""
        return False

    async def ask(self, input_request: InputRequest) -> Raw:
        """Never used."""
        raise ConnectionLost("there is no client")

    async def hang_up(self) -> None:
        """Does nothing."""


class Requests:
    """Requests of one kind, decoded from their bytes."""

    def __init__(self, ask: Ask) -> None:
        self._before, self._after = body(ask, MODERN)
        self._numbers = count(FIRST_ID)
        self._headers = {
            b"mcp-protocol-version": MODERN.encode(),
            b"mcp-method": ask.method.encode(),
            b"mcp-name": (ask.name or "").encode(),
        }

    def next(self) -> DirectRequest:
        """One more."""
        frame = b"%b%d%b" % (self._before, next(self._numbers), self._after)
        request = jsonrpc.decode(frame)
        assert isinstance(request, jsonrpc.Request)
        admitted = admit(request, self._headers, DETECTOR)
        assert admitted is not None
        exchange = Exchange(request, admitted.params, admitted.method, admitted.peer, ENCODER)
        return DirectRequest(exchange)


def in_process(work: Callable[[Server], Work]) -> Opening:
    """How often a second something is done with a server in this process, so many at once."""

    def open(stack: contextlib.ExitStack) -> Lane:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ROOT / ".venv")))
        numbers = count()

        def lane(seconds: float) -> Sample:
            own = folder / str(next(numbers))
            own.mkdir()
            return asyncio.run(_measure(make_server(str(own)), work, seconds))

        return lane

    return open


async def _measure(server: Server, work: Callable[[Server], Work], seconds: float) -> Sample:
    await server.start()
    one, done = work(server), 0
    await one()  # creates the file
    begun, cpu = time.perf_counter(), time.process_time()

    async def repeat() -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            await one()
            done += 1

    await asyncio.gather(*(repeat() for _ in range(AT_ONCE)))
    taken = time.perf_counter() - begun
    cpu_us = (time.process_time() - cpu) / done * 1e6
    await server.stop()
    await server.store.close()
    return Sample(done / taken, cpu_us)


def store_inserts(server: Server) -> Work:
    """Entries as large as a new task, into the store alone."""
    store, numbers = server.store, count()

    async def insert() -> None:
        await store.add("", f"insert/{next(numbers):012}", RECORD, 3600.0)

    return insert


def creations(server: Server) -> Work:
    """Creation alone: from a call that was decoded to its result."""
    entry = server._registry.tools.get("job")
    assert entry is not None
    declared = {
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {t.TASKS_EXTENSION_ID: {}}}
    }
    ask = Ask("tools/call", {"name": "job", "arguments": {}, "_meta": declared}, lambda _: None)
    exchange = Requests(ask).next().exchange
    run, params = entry.run, t.CallToolRequestParams(name="job", arguments=Raw(b"{}"))

    async def create() -> None:
        result = await run(DirectRequest(exchange), params)
        if type(result) is not t.ExtCreateTaskResult:
            raise Wrong(f"no task: {result}")

    return create


def whole_requests(ask: Ask) -> Callable[[Server], Work]:
    """Requests from bytes to bytes."""

    def work(server: Server) -> Work:
        requests = Requests(ask)

        async def request() -> None:
            answer = await server.respond(requests.next())
            if answer is None or b'"result"' not in answer or b'"isError":true' in answer:
                raise Wrong(f"{ask.name}: {answer!r}")

        return request

    return work
