"""Our own server over real sockets: its limits on connections, its drain, its signals."""

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import LocalProtocolError, Refused
from colonnade.protocol.http.security import HostPolicy
from colonnade.transport.http_server import runner
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.asgi_cycle import TOGETHER
from colonnade.transport.http_server.request import Receive, Scope, Send
from colonnade.transport.http_server.runner import (
    HEALTH,
    MAX_TTL,
    READY,
    STORE_CHECK_S,
    STORE_KEY,
    HttpRunner,
    RunLimits,
    StoreCheck,
    accept_all,
    listening,
    set_min_ttl,
)
from http_client import BOTH, META, Caller, Wire, written
from http_service import FakeService, Marks
from live import Records, live, served_app, until
from replicas.shared_store import SharedStore
from scripted_http_server import either_loop

LISTEN = {"notifications": {"toolsListChanged": True}}
DISCOVER = (
    b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":'
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)
CALL_WAIT = DISCOVER.replace(b"server/discover", b"tools/call").replace(
    b'{"_meta"', b'{"name":"wait","arguments":{},"_meta"'
)


def discover(port: int) -> bytes:
    return written("POST", "/mcp", _head(port, "server/discover"), DISCOVER)


def call_wait(port: int) -> bytes:
    return written("POST", "/mcp", _head(port, "tools/call") | {"mcp-name": "wait"}, CALL_WAIT)


def _head(port: int, method: str) -> dict[str, str | None]:
    return {
        "host": f"127.0.0.1:{port}",
        "content-type": "application/json",
        "accept": BOTH,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }


# ---------------------------------------------------------------- where it is


@live
async def test_a_free_port_is_taken_and_known() -> None:
    async with listening(HttpApp(FakeService()), port=0) as site:
        assert site.port > 0
        assert site.url == f"http://127.0.0.1:{site.port}/mcp"


@pytest.mark.spec("R0046")
@live
async def test_without_a_word_only_this_machine_is_served() -> None:
    site = HttpRunner(HttpApp(FakeService()))
    assert site.host == "127.0.0.1"


@live
async def test_an_address_that_others_reach_needs_names() -> None:
    site = HttpRunner(HttpApp(FakeService()), "0.0.0.0", 0)
    with pytest.raises(LocalProtocolError, match="hosts="):
        await site.start()


@live
async def test_with_names_it_is_reached_by_them_and_those_of_loopback_alone() -> None:
    settings: dict[str, Any] = {"host": "0.0.0.0", "port": 0, "hosts": ["mcp.example.com"]}
    async with listening(HttpApp(FakeService()), **settings) as site:
        hosts = ((b"mcp.example.com", 200), (b"localhost:8080", 200), (b"10.0.0.1:8000", 403))
        for host, status in hosts:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(discover(site.port).replace(b"127.0.0.1:%d" % site.port, host))
            assert int((await reader.readline()).split()[1]) == status
            writer.transport.abort()


@live
async def test_an_application_with_names_of_its_own_needs_none_with_the_address() -> None:
    app = HttpApp(FakeService(), hosts=["mcp.example.com"])
    async with listening(app, host="0.0.0.0", port=0) as site:
        for host, status in ((b"mcp.example.com", 200), (b"10.0.0.1:8000", 403)):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(discover(site.port).replace(b"127.0.0.1:%d" % site.port, host))
            assert int((await reader.readline()).split()[1]) == status
            writer.transport.abort()


@live
async def test_names_that_would_not_count_are_refused() -> None:
    given: list[dict[str, Any]] = [
        {"hosts": ["mcp.example.com"]},
        {"origins": ["https://app.example.com"]},
    ]
    for own in given:
        for settings in given:
            site = HttpRunner(HttpApp(FakeService(), **own), port=0, **settings)
            with pytest.raises(LocalProtocolError, match=r"of its own.*server\.asgi"):
                await site.start()


@live
async def test_an_application_that_has_only_origins_still_needs_names_where_others_reach_it() -> (
    None
):
    site = HttpRunner(HttpApp(FakeService(), origins=["https://app.example.com"]), "0.0.0.0", 0)
    with pytest.raises(LocalProtocolError, match="hosts="):
        await site.start()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("guarded", [True, False])
@live
async def test_who_opens_a_server_to_others_and_asks_nobody_who_they_are_is_warned(
    host: str, guarded: bool
) -> None:
    """CVE-2026-32211."""

    async def verify(headers: object) -> str:
        return "ann"

    app = HttpApp(FakeService(), verify=verify) if guarded else HttpApp(FakeService())
    with Records("colonnade.transport") as records:
        async with listening(app, host=host, port=0, hosts=["mcp.example.com"]):
            pass
    warned = [line for line in records.lines if "may use this server" in line]
    assert len(warned) == (host == "0.0.0.0" and not guarded)


@live
async def test_a_port_in_use_is_said_so() -> None:
    async with served_app() as s:
        with pytest.raises(LocalProtocolError, match="choose another port"):
            await HttpRunner(HttpApp(FakeService()), port=s.site.port).start()


@live
async def test_a_host_that_is_none_is_said_so() -> None:
    with pytest.raises(LocalProtocolError, match="no address"):
        await HttpRunner(HttpApp(FakeService()), "no.such.host.invalid").start()


@live
async def test_a_service_that_cannot_start_is_not_served() -> None:
    service = FakeService()
    service.fail_start = True
    with pytest.raises(LocalProtocolError, match="the database is away"):
        await HttpRunner(HttpApp(service), port=0).start()


# ---------------------------------------------------------------- health


@live
async def test_health_and_readiness_are_told_to_whoever_asks() -> None:
    async with served_app() as s:
        for path in (HEALTH, READY):
            answer = await s.caller.request("GET", path=path, host="10.0.0.1")
            assert (answer.status, answer.body) == (200, b"ok")
        s.app.draining = True
        assert (await s.caller.request("GET", path=HEALTH)).status == 200
        assert (await s.caller.request("GET", path=READY)).status == 503


class CountingStore(SharedStore):
    """A store that counts reads, and whose reads can be made to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_full = False
        self.waits: asyncio.Event | None = None

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        if key == STORE_KEY:
            self.writes += 1
            if self.waits is not None:
                await self.waits.wait()
            if self.is_full:
                raise Refused("the store is full")
        await super().put(principal, key, value, ttl_s)


@live
async def test_a_server_without_its_store_is_not_ready_and_is_alive() -> None:
    store = CountingStore()
    service = FakeService()
    service.shared_store = store
    now = 0.0
    with Records("colonnade.transport") as records:
        async with listening(HttpApp(service), port=0) as site, Caller(site.port) as caller:
            site._store_check = StoreCheck(store, clock=lambda: now)

            async def ready() -> tuple[int, bytes]:
                answer = await caller.request("GET", path=READY)
                return answer.status, answer.body

            assert await ready() == (200, b"ok")
            store.leave()
            assert await ready() == (200, b"ok")  # as of less than a second ago
            now += STORE_CHECK_S
            away = (503, b"not ready: the store does not respond")
            assert [await ready(), await ready()] == [away, away]
            assert (await caller.request("GET", path=HEALTH)).status == 200
            store.away = False
            assert await ready() == away
            now += STORE_CHECK_S
            assert await ready() == (200, b"ok")
            assert store.writes == 3
    assert [line for line in records.lines if "store" in line and "keys" not in line] == [
        "WARNING not ready: the store does not respond (the store is away)",
        "WARNING the store responds again",
    ]


@live
async def test_a_server_whose_store_refuses_writes_is_not_ready() -> None:
    store = CountingStore()
    service = FakeService()
    service.shared_store = store
    async with listening(HttpApp(service), port=0) as site, Caller(site.port) as caller:
        store.is_full = True
        answer = await caller.request("GET", path=READY)
        assert (answer.status, answer.body) == (503, b"not ready: the store refuses writes")


@live
async def test_probes_that_arrive_together_share_one_write_to_the_store() -> None:
    store = CountingStore()
    store.waits = asyncio.Event()
    check = StoreCheck(store, timeout_s=60.0)
    given_up, *probes = [asyncio.create_task(check.responds()) for _ in range(4)]
    await until(lambda: store.writes == 1)
    given_up.cancel()
    await asyncio.wait({given_up})
    store.waits.set()
    assert await asyncio.gather(*probes) == [True] * 3
    assert store.writes == 1


@live
async def test_a_store_that_takes_too_long_does_not_respond() -> None:
    store = CountingStore()
    store.waits = asyncio.Event()
    with Records("colonnade.transport") as records:
        assert not await StoreCheck(store, timeout_s=0.0).responds()
    assert records.lines == [
        "WARNING not ready: the store does not respond (no response within 0 s)"
    ]


@live
async def test_a_write_to_the_store_ends_with_the_server() -> None:
    store = CountingStore()
    store.waits = asyncio.Event()
    check = StoreCheck(store, timeout_s=60.0)
    probe = asyncio.create_task(check.responds())
    await until(lambda: store.writes == 1)
    check.cancel()
    assert await probe


@live
async def test_health_is_told_to_an_address_or_an_admitted_name_and_to_no_other_host() -> None:
    """A load balancer asks by address, or as HTTP/1.0 does without a host; a page that has rebound
    its own name to this machine asks by that name."""
    async with served_app() as s:
        own = f"127.0.0.1:{s.site.port}"
        told = (own, "10.0.0.1:8000", "[fd00::1]:8000", "localhost:9", "127.0.0.1", None)
        for path in (HEALTH, READY):
            for host in told:
                assert (await s.caller.request("GET", path=path, host=host)).status == 200, host
            for host in (
                "evil.example",
                f"evil.example:{s.site.port}",
                "127.0.0.1.evil.example",
                "localhost.evil.example",
                "a b",
                "",
                "127.0.0.1:*",
            ):
                answer = await s.caller.request("GET", path=path, host=host)
                assert answer.status == 403, host
                assert answer.body != b"ok"
            for origin in ("https://evil.example", "null"):
                answer = await s.caller.request("GET", path=path, origin=origin)
                assert answer.status == 403
            answer = await s.caller.request("GET", path=path, origin=f"http://{own}")
            assert answer.status == 200
    named = HostPolicy.of("mcp.example.com")
    async with served_app(policy=named) as s:
        for host in ("mcp.example.com", "10.0.0.1"):
            assert (await s.caller.request("GET", path=HEALTH, host=host)).status == 200


@live
async def test_an_application_around_has_its_own_health() -> None:
    async def theirs(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("no lifespan")
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b"theirs"})

    async with served_app(around=theirs) as s:
        assert (await s.caller.request("GET", path=HEALTH)).body == b"theirs"
        assert (await s.caller.call("echo")).status == 200


class Signed(HttpApp):
    """Somebody's layer around our application: it signs every answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def signed(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-signed", b"yes")]
            await send(message)

        await super().__call__(scope, receive, signed if scope["type"] == "http" else send)


@live
async def test_middleware_around_the_application_sees_every_response() -> None:
    async with listening(Signed(FakeService()), port=0) as site, Caller(site.port) as caller:
        answer = await caller.call("echo")
        assert (answer.status, answer.headers["x-signed"]) == (200, "yes")


# ---------------------------------------------------------------- limits on connections


@live
async def test_a_silent_connection_is_closed() -> None:
    async with served_app(run=RunLimits(header_timeout_s=0.01)) as s:
        wire = await s.caller.wire()
        assert await wire.closed()


@live
async def test_headers_that_dribble_are_cut() -> None:
    async with served_app(run=RunLimits(header_timeout_s=0.01)) as s:
        wire = await s.caller.wire()
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\n")
        assert (await wire.head()).status == 408
        assert await wire.closed()


@live
async def test_a_connection_between_two_requests_is_not_taken_for_a_silent_one() -> None:
    async with served_app(run=RunLimits(header_timeout_s=5, keep_alive_timeout_s=20)) as s:
        wire = await s.caller.wire()
        await wire.send(discover(s.site.port))
        await (await wire.head()).read()
        (connection,) = s.site._connections
        now = asyncio.get_running_loop().time()
        for round in range(3):
            await wire.send(discover(s.site.port))
            await (await wire.head()).read()
            connection.check(now + 100 * round)
            connection.check(now + 100 * round + 19)
            assert not connection.transport.is_closing()
        connection.check(now + 300)
        assert await wire.closed()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"x: " + b"y" * 15_000 + b"\r\n", 200),
        (b"x: " + b"y" * 17_000 + b"\r\n", 431),
        (b"x: y\r\n" * 90, 200),
        (b"x: y\r\n" * 110, 431),
    ],
)
@live
async def test_headers_have_a_size_and_a_number(more: bytes, status: int) -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(discover(s.site.port).replace(b"\r\n", b"\r\n" + more, 1))
        assert (await wire.head()).status == status


@live
async def test_headers_without_an_end_are_cut_at_their_size() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nA: ")
        sent = 0
        with pytest.raises(OSError):  # noqa: PT012
            while sent < 60_000_000:
                await wire.send(b"a" * 10_000)
                sent += 10_000
        assert sent < 60_000_000
        assert (await s.caller.call("echo")).status == 200


@live
async def test_a_large_body_is_not_taken_for_large_headers() -> None:
    async with served_app() as s:
        assert (await s.caller.call("echo", say="x" * 1_000_000)).status == 200


@live
async def test_a_pipelined_request_is_not_read_and_the_first_is_answered_last() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(call_wait(s.site.port) + discover(s.site.port))
        await s.service.marks.reached("wait begun")
        await wire.send(discover(s.site.port))
        s.service.go.mark("wait")
        answer = await wire.head()
        await answer.read()
        assert answer.text == "waited"
        assert answer.headers["connection"] == "close"
        assert await wire.closed()
        assert len(s.service.turns) == 1


@live
async def test_the_answers_of_many_at_once_leave_together_and_are_each_their_own() -> None:
    async with served_app() as s:
        wires = [await s.caller.wire() for _ in range(3 * TOGETHER)]
        for wire in wires:
            await wire.send(call_wait(s.site.port))
        await until(lambda: len(s.service.turns) == len(wires))
        s.service.go.mark("wait")
        for wire in wires:
            answer = await wire.head()
            await answer.read()
            assert answer.text == "waited"
            await wire.send(discover(s.site.port))  # the connection is kept
            assert (await wire.head()).status == 200


@live
async def test_rubbish_after_a_request_does_not_keep_it_from_its_answer() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(call_wait(s.site.port) + b"\x16\x03\x01")
        await s.service.marks.reached("wait begun")
        await wire.send(b"\x00" * 100)
        s.service.go.mark("wait")
        answer = await wire.head()
        await answer.read()
        assert answer.text == "waited"
        assert await wire.closed()


@live
async def test_a_pipelining_client_that_goes_cancels_its_call() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(call_wait(s.site.port) + discover(s.site.port))
        await s.service.marks.reached("wait begun")
        wire.abort()
        await s.service.marks.reached("wait cancelled")
        await s.wait_until_idle()


@live
async def test_an_answer_that_nobody_reads_is_dropped_with_its_connection() -> None:
    async with served_app(run=RunLimits(write_stall_timeout_s=0.01)) as s:
        wire = await s.caller.wire()
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        body = CALL_WAIT.replace(b'"wait","arguments":{}', b'"large","arguments":{"size":20000000}')
        head = _head(s.site.port, "tools/call") | {"mcp-name": "large"}
        await wire.send(written("POST", "/mcp", head, body))
        await until(lambda: len(s.service.turns) == 1 and not s.site._connections)
        assert (await s.caller.call("echo")).status == 200


class SlowTransport:
    """A transport whose reader takes what a test says it takes."""

    def __init__(self) -> None:
        self.unread = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([900_000 - 30_000 * second for second in range(30)], False),
        ([900_000] * 12, True),
        ([900_000 - 10 * second for second in range(12)], True),
        ([900_000, 800_000, 0, *[900_000] * 9], False),
        ([500_000, *[900_000] * 11], True),
    ],
    ids=["reads", "does not", "dribbles", "read all between", "gets more and reads nothing"],
)
@live
async def test_a_reader_is_cut_only_if_it_does_not_read(sizes: list[int], cut: bool) -> None:
    async with served_app(run=RunLimits(write_stall_timeout_s=10)) as s:
        calling = asyncio.create_task(s.caller.call("wait"))
        await s.service.marks.reached("wait begun")
        (connection,) = s.site._connections
        real, slow = connection.transport, SlowTransport()
        connection.transport = slow  # type: ignore[assignment]
        for second, slow.unread in enumerate(sizes):
            connection.check(1000.0 + second)
        connection.transport = real
        assert slow.aborted is cut
        s.service.go.mark("wait")
        assert (await calling).status == 200


@live
async def test_connections_have_a_number() -> None:
    async with served_app(run=RunLimits(max_connections=2)) as s:
        first, second = await s.caller.wire(), await s.caller.wire()
        third = await s.caller.wire()
        assert await third.closed()
        await first.send(discover(s.site.port))
        assert (await first.head()).status == 200
        second.abort()


SMUGGLED = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad length": b"Content-Length: -5\r\n\r\n",
    "chunks last but not last": b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "a line that goes on": b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a bare line feed": b"X: a\nContent-Length: 0\r\n\r\n",
    "a control character": b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED)
@live
async def test_what_two_readers_could_read_differently_is_refused(rest: bytes) -> None:
    async with served_app() as s:
        with Records("colonnade.transport") as records:
            wire = await s.caller.wire()
            host = f"127.0.0.1:{s.site.port}".encode()
            head = b"POST /mcp HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\n" % host
            await wire.send(head + rest)
            answer = await wire.head()
            assert answer.status == 400
            assert await wire.closed()
        assert not s.service.turns
        assert not records.lines
        assert (await s.caller.call("echo")).status == 200


ODD = {
    "nonsense": b"\x16\x03\x01\x02\x00\x01\x00",
    "HTTP/0.9": b"GET /mcp\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "connect": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a long line": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
@live
async def test_what_is_no_request_is_refused_and_the_next_is_served(data: bytes) -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(data)
        answer = await wire.head()
        assert 400 <= answer.status < 500
        assert (await s.caller.call("echo")).status == 200


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
@live
async def test_an_upgrade_is_answered_as_if_it_was_not_asked_for(upgrade: str) -> None:
    async with served_app() as s:
        with Records("colonnade.transport") as records:
            wire, answer = await s.caller.begin("GET", upgrade=upgrade, connection="Upgrade")
            assert answer.status == 400  # a GET without a session
            assert await wire.closed()
        assert not records.lines


@live
async def test_who_asks_before_sending_a_body_is_told_to_go_on() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        head, body = discover(s.site.port).split(b"\r\n\r\n", 1)
        await wire.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert (await wire.head()).status == 100
        await wire.send(body)
        assert (await wire.head()).status == 200


@live
async def test_requests_cut_at_every_byte_leave_nothing_behind() -> None:
    async with served_app() as s:
        request = discover(s.site.port)
        for cut in range(0, len(request), 7):
            wire = await s.caller.wire()
            await wire.send(request[:cut])
            wire.abort()
        await s.wait_until_idle()
        await until(lambda: not s.site._connections)
        assert (await s.caller.call("echo")).status == 200


# ---------------------------------------------------------------- the drain


@live
async def test_a_drain_ends_streams_and_waits_for_calls() -> None:
    async with served_app() as s:
        _, listening_ = await s.caller.stream("subscriptions/listen", LISTEN)
        await listening_.message()
        await s.caller.initialize("2025-11-25")
        _, notification = await s.caller.get()
        modern = asyncio.create_task(
            s.caller.modern("tools/call", {"name": "wait", "arguments": {"name": "modern"}})
        )
        older = asyncio.create_task(
            s.caller.ask("tools/call", {"name": "wait", "arguments": {"name": "older"}})
        )
        await s.service.marks.reached("modern begun")
        await s.service.marks.reached("older begun")
        stopping = asyncio.create_task(s.site.stop(5.0))
        messages = [event.data for event in await listening_.rest()]
        assert b'"resultType":"complete"' in messages[-1]
        assert all(not event.data for event in await notification.rest())
        assert not stopping.done()
        s.service.go.mark("modern")
        s.service.go.mark("older")
        assert (await modern).text == "waited"
        assert (await older).text == "waited"
        await stopping
        assert s.service.stops == 1
        with pytest.raises(OSError):
            await s.caller.wire()


@live
async def test_new_work_on_an_open_connection_is_refused_while_draining() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        await wire.send(discover(s.site.port))
        await (await wire.head()).read()
        s.app.draining = True
        await wire.send(discover(s.site.port))
        answer = await wire.head()
        assert answer.status == 503
        assert answer.headers["connection"] == "close"
        assert await wire.closed()


@live
async def test_what_is_not_done_by_the_deadline_is_told_and_ended() -> None:
    async with served_app() as s:
        plain = asyncio.create_task(s.caller.call("wait"))
        await s.service.marks.reached("wait begun")
        params = {"name": "report", "arguments": {"wait": True}}
        _, stream = await s.caller.stream("tools/call", params, meta={"progressToken": "p"})
        await stream.message()
        await s.site.stop(0.01)
        answer = await plain
        assert (answer.status, answer.code) == (503, -32603)
        assert (await stream.message())["error"]["code"] == -32603
        await s.service.marks.reached("wait cancelled")


# Longer than any test: a connection is closed because of what the test does.
PATIENT = RunLimits(last_request_timeout_s=3600)


@either_loop
async def test_what_is_in_the_backlog_when_the_port_is_closed_is_served() -> None:
    async with served_app(run=PATIENT) as s:
        # The kernel accepts them, and the loop does not run before `stop`.
        early = [socket.create_connection(("127.0.0.1", s.site.port)) for _ in range(3)]
        early[0].sendall(discover(s.site.port))
        stopping = asyncio.create_task(s.site.stop(60.0))
        wires = [Wire(*await asyncio.open_connection(sock=one)) for one in early]
        with pytest.raises(ConnectionRefusedError):
            await s.caller.wire()
        for wire in wires[1:]:
            await wire.send(discover(s.site.port))
        for wire in wires:
            answer = await wire.head()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await wire.closed()
            wire.close()
        await stopping


@pytest.mark.skipif(sys.platform != "linux", reason="needs IP_MINTTL")
@either_loop
async def test_a_client_that_connects_after_the_last_one_was_accepted_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the instant before the port is closed; connected, it would lose what it has sent."""
    late: list[socket.socket] = []

    def accept_all_and_one_more(listener: socket.socket) -> list[socket.socket]:
        accepted = accept_all(listener)
        late.append(socket.socket())
        late[0].setblocking(False)
        late[0].connect_ex(listener.getsockname())
        return accepted

    async with served_app(run=PATIENT) as s:
        early = socket.create_connection(("127.0.0.1", s.site.port))
        early.sendall(discover(s.site.port))
        monkeypatch.setattr(runner, "accept_all", accept_all_and_one_more)
        await s.site.stop(60.0)
        wire = Wire(*await asyncio.open_connection(sock=early))
        assert (await wire.head()).status == 200
        wire.close()
        late[0].settimeout(60)
        with late[0], pytest.raises(ConnectionRefusedError):
            late[0].recv(1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs IP_MINTTL")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@either_loop
async def test_a_client_whose_handshake_is_completed_while_the_port_is_being_closed_is_served(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Over loopback none lasts until then; one with the largest TTL is as far, and is let through."""
    late: list[socket.socket] = []
    level, option = socket.IPPROTO_IP, socket.IP_TTL
    if ":" in host:
        level, option = socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS

    def set_and_connect(one: socket.socket, ttl: int) -> bool:
        is_set = set_min_ttl(one, ttl)
        if not late:
            late.append(socket.socket(one.family))
            late[0].setsockopt(level, option, MAX_TTL)
            late[0].connect(one.getsockname())
            late[0].setsockopt(level, option, 64)
        return is_set

    app = HttpApp(FakeService())
    async with listening(app, host=host, port=0, run_limits=PATIENT) as site:
        monkeypatch.setattr(runner, "set_min_ttl", set_and_connect)
        stopping = asyncio.create_task(site.stop(60.0))
        await until(lambda: bool(late))
        wire = Wire(*await asyncio.open_connection(sock=late[0]))
        head = _head(site.port, "server/discover") | {"host": f"localhost:{site.port}"}
        await wire.send(written("POST", "/mcp", head, DISCOVER))
        answer = await wire.head()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        wire.close()
        await stopping


@either_loop
async def test_an_open_connection_may_send_one_request_while_the_server_stops() -> None:
    async with served_app(run=PATIENT) as s:
        unused, *used = [await s.caller.wire() for _ in range(3)]
        for _ in range(3):  # as often as it takes until its head is known
            await used[0].send(discover(s.site.port))
            await (await used[0].head()).read()
        await used[1].send(call_wait(s.site.port))
        await s.service.marks.reached("wait begun")
        stopping = asyncio.create_task(s.site.stop(60.0))
        await until(lambda: s.site._state.closes_connections)
        await unused.send(discover(s.site.port))
        await used[0].send(discover(s.site.port))
        s.service.go.mark("wait")
        for wire in (unused, *used):
            answer = await wire.head()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await wire.closed()
        await stopping


# More turns of the loop than `stop` needs until it waits for time to pass.
TURNS = 12


@pytest.mark.parametrize("patience_s", [0, 3600])
@either_loop
async def test_a_request_is_served_in_whichever_turn_of_the_loop_it_is_read(
    patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HANDSHAKE_S", 0.0)  # a turn of the loop, and no time
    served = 0
    for turn in range(TURNS):
        async with served_app(run=RunLimits(last_request_timeout_s=patience_s)) as s:
            wire = await s.caller.wire()
            await until(lambda s=s: len(s.site._connections) == 1)
            (connection,) = s.site._connections
            stopping = asyncio.create_task(s.site.stop(60.0))
            for _ in range(1 + turn):  # in the first one `stop` begins
                await asyncio.sleep(0)
            if connection.awaits_request and not connection.transport.is_closing():
                connection.data_received(discover(s.site.port))
                answer = await wire.head()
                assert (answer.status, answer.headers["connection"]) == (200, "close"), turn
                served += 1
            assert await wire.closed()
            await stopping
    assert served == TURNS if patience_s else 0 < served < TURNS


@either_loop
async def test_a_request_that_has_arrived_when_the_time_for_it_is_over_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served_app(run=RunLimits(last_request_timeout_s=0)) as s:
        client = socket.create_connection(("127.0.0.1", s.site.port))
        await until(lambda: len(s.site._connections) == 1)
        awaits_requests = s.site._awaits_requests

        def arrives() -> bool:
            """The kernel has the request, and the loop has not read it."""
            client.sendall(discover(s.site.port))
            return awaits_requests()

        monkeypatch.setattr(s.site, "_awaits_requests", arrives)
        stopping = asyncio.create_task(s.site.stop(60.0))
        wire = Wire(*await asyncio.open_connection(sock=client))
        answer = await wire.head()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await wire.closed()
        wire.close()
        await stopping


@live
async def test_a_drain_waits_for_a_request_whose_credentials_are_being_verified() -> None:
    marks = Marks()

    async def verify(headers: object) -> str:
        marks.mark("asked")
        await marks.reached("verified")
        return "alice"

    async with served_app(verify=verify) as s:
        wire = await s.caller.wire()
        await wire.send(discover(s.site.port))
        await marks.reached("asked")
        draining = asyncio.create_task(s.app.drain(3600))
        await asyncio.sleep(0)
        assert not draining.done()
        marks.mark("verified")
        assert (await wire.head()).status == 200
        await draining


@either_loop
async def test_a_request_whose_credentials_are_not_verified_by_the_deadline_gets_503() -> None:
    marks = Marks()

    async def verify(headers: object) -> str:
        marks.mark("asked")
        await marks.reached("never")
        return "alice"

    async with served_app(verify=verify) as s:
        wire = await s.caller.wire()
        await wire.send(discover(s.site.port))
        await marks.reached("asked")
        await s.app.drain(0.0)
        answer = await wire.head()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["connection"] == "close"
        assert b"shutting down" in await answer.read()
        assert await wire.closed()


@either_loop
async def test_a_verifier_that_goes_on_after_the_deadline_admits_no_request() -> None:
    marks = Marks()

    async def verify(headers: object) -> str:
        marks.mark("asked")
        with contextlib.suppress(asyncio.CancelledError):
            await marks.reached("never")
        return "alice"

    async with served_app(verify=verify) as s:
        calling = asyncio.create_task(s.caller.call("echo"))
        await marks.reached("asked")
        await s.app.drain(0.0)
        assert (await calling).status == 503


@either_loop
async def test_a_connection_that_sends_nothing_while_the_server_stops_is_closed() -> None:
    async with served_app(run=RunLimits(last_request_timeout_s=0.05)) as s:
        idle, unused = [await s.caller.wire() for _ in range(2)]
        await idle.send(discover(s.site.port))
        await (await idle.head()).read()
        await s.site.stop(60.0)
        assert await idle.closed()
        assert await unused.closed()


@live
async def test_a_deadline_of_the_drain_that_is_sooner_counts() -> None:
    async with served_app(run=PATIENT) as s:
        idle = await s.caller.wire()
        await idle.send(discover(s.site.port))
        await (await idle.head()).read()
        await s.site.stop(0.05)
        assert await idle.closed()


# ---------------------------------------------------------------- a process of its own

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from http_service import FakeService
from colonnade.transport.http_server.runner import run
from colonnade.transport.http_server.connection import RunLimits
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.request import Limits

class Service(FakeService):
    async def stop(self):
        print("left", flush=True)

run(HttpApp(Service(), limits=Limits(drain_timeout_s={drain_s})), port=0,
    run_limits=RunLimits(last_request_timeout_s={last_request_s}),
    started=lambda site: print(site.port, flush=True))
print("returned", flush=True)
"""


class Child:
    """Our server in a process of its own."""

    def __init__(self, drain_s: float = 5.0, last_request_s: float = 1.0) -> None:
        tests = str(Path(__file__).resolve().parents[2] / "support")
        program = PROGRAM.format(tests=tests, drain_s=drain_s, last_request_s=last_request_s)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONWARNINGS": "error"},
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, connection: http.client.HTTPConnection, tool: str) -> None:
        body = CALL_WAIT.replace(b'"wait"', b'"%b"' % tool.encode())
        head = {k: v or "" for k, v in (_head(self.port, "tools/call")).items()}
        connection.request("POST", "/mcp", body, head | {"mcp-name": tool})

    def wait_until_refused(self) -> None:
        """Wait until a new connection is refused, as it is once a signal was handled."""
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                pass  # it was being opened while the listener was closed

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_soon_and_well(number: signal.Signals) -> None:
    with Child(drain_s=3600) as child:
        connection = child.connect()
        child.ask(connection, "echo")
        assert connection.getresponse().status == 200
        child.process.send_signal(number)
        assert child.end() == (0, "left\nreturned\n")
        connection.close()


def test_a_signal_lets_calls_finish_until_the_deadline() -> None:
    with Child(drain_s=0.5) as child:
        connection = child.connect()
        child.ask(connection, "wait")
        other = child.connect()
        child.ask(other, "echo")
        assert other.getresponse().status == 200  # so the first one is running, too
        child.process.send_signal(signal.SIGTERM)
        answer = connection.getresponse()
        assert answer.status == 503
        assert b"shutting down" in answer.read()
        assert child.end() == (0, "left\nreturned\n")
        connection.close()
        other.close()


def test_after_a_signal_new_connections_are_refused_and_what_runs_goes_on() -> None:
    with Child(drain_s=3600, last_request_s=3600) as child:
        connection = child.connect()
        child.ask(connection, "wait")
        other = child.connect()
        child.ask(other, "echo")
        other.getresponse().read()
        child.process.send_signal(signal.SIGTERM)
        child.wait_until_refused()
        child.ask(other, "echo")
        last = other.getresponse()
        assert (last.status, last.headers["connection"]) == (200, "close")
        child.process.send_signal(signal.SIGTERM)
        assert connection.getresponse().status == 503
        assert child.end() == (0, "left\nreturned\n")
        for one in (connection, other):
            one.close()


def test_a_second_signal_does_not_wait() -> None:
    with Child(drain_s=3600) as child:
        connection = child.connect()
        child.ask(connection, "wait")
        other = child.connect()
        child.ask(other, "echo")
        assert other.getresponse().status == 200
        child.process.send_signal(signal.SIGTERM)
        child.wait_until_refused()
        child.process.send_signal(signal.SIGTERM)
        assert connection.getresponse().status == 503
        assert child.end() == (0, "left\nreturned\n")
        connection.close()
        other.close()


def test_the_meta_of_these_tests_is_that_of_the_newest_revision() -> None:
    assert META["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
