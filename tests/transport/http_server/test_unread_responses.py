"""Responses that clients do not read: how much of them a server keeps, and for whom."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from certificates import Authority
from colonnade import Server
from colonnade.ports import Caller as Principal
from colonnade.protocol.http.security import Headers
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.connection import RunLimits
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.http_server.unread_responses import UnreadResponses
from http_client import META, Response, Wire, written
from live import Records, live, until
from scripted_http_server import either_loop

MIB = 1024 * 1024
# More than the kernel keeps for a connection that is not read; a response has it twice, as text and as
# structured content.
LARGE = 8 * MIB

# ---------------------------------------------------------------- the count, without sockets


class SlowClient:
    """A connection whose client has this much left to read."""

    def __init__(self, size: int, principal: str = "") -> None:
        self.size = size
        self.principal = principal
        self.is_cut = False
        self.transport = cast("asyncio.Transport", self)

    def get_write_buffer_size(self) -> int:
        return self.size

    def cut(self) -> None:
        self.is_cut = True


def counted(*clients: SlowClient, total: int = 100, per_principal: int = 50) -> UnreadResponses:
    unread = UnreadResponses(total, per_principal)
    for client in clients:
        unread.add(client)
    return unread


def test_clients_that_leave_too_much_unread_are_cut_the_largest_first() -> None:
    small, large, last = SlowClient(20), SlowClient(60), SlowClient(30)
    unread = counted(small, large, last)
    assert [one.is_cut for one in (small, large, last)] == [False, True, False]
    assert unread.used == 50


def test_the_oldest_of_equal_connections_is_cut() -> None:
    clients = [SlowClient(30) for _ in range(5)]
    unread = counted(*clients)
    assert [one.is_cut for one in clients] == [True, True, False, False, False]
    assert unread.used == 90


def test_a_principal_that_leaves_too_much_unread_loses_its_own_connections_only() -> None:
    ada = SlowClient(45, "ada")
    bobs = [SlowClient(20, "bob") for _ in range(3)]
    unread = counted(ada, *bobs)
    assert not ada.is_cut
    assert [one.is_cut for one in bobs] == [True, False, False]
    assert unread.used == 85


def test_the_principal_with_the_most_unread_bytes_is_cut_if_all_leave_too_much() -> None:
    ada, bobs = SlowClient(40, "ada"), [SlowClient(15, "bob") for _ in range(3)]
    counted(ada, *bobs, SlowClient(20), total=100, per_principal=50)
    assert not ada.is_cut
    assert [one.is_cut for one in bobs] == [True, False, False]


def test_one_response_alone_may_be_as_large_as_it_is() -> None:
    ada, anonymous = SlowClient(90, "ada"), SlowClient(1000)
    assert counted(ada).used == 90
    assert counted(anonymous).used == 1000
    assert not ada.is_cut
    assert not anonymous.is_cut


def test_what_was_read_since_does_not_count() -> None:
    first, second = SlowClient(80), SlowClient(60)
    unread = counted(first)
    first.size = 10
    unread.add(second)
    assert not first.is_cut
    assert not second.is_cut
    assert unread.used == 70


def test_a_client_that_has_caught_up_does_not_count() -> None:
    first, second = SlowClient(40, "ada"), SlowClient(40, "ada")
    unread = counted(first)
    unread.discard(first)
    unread.discard(first)
    unread.add(second)
    assert not second.is_cut
    unread.discard(second)
    assert unread.used == 0


# ---------------------------------------------------------------- sockets


async def by_header(headers: Headers) -> Principal:
    return Principal(headers.get(b"x-user", b"").decode())


class LargeServer:
    """A server of large results, what ran there, and clients that read as they like."""

    def __init__(self, site: HttpRunner, ran: list[int]) -> None:
        self.site = site
        self.ran = ran
        self.wires: list[Wire] = []

    async def connect(self, tls: ssl.SSLContext | None = None) -> Wire:
        """A connection whose client takes little from the kernel."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.site.port))
        name = None if tls is None else "127.0.0.1"
        streams = asyncio.open_connection(sock=client, limit=4096, ssl=tls, server_hostname=name)
        self.wires.append(Wire(*await streams))
        return self.wires[-1]

    async def ask(self, wire: Wire, size: int, user: str = "") -> None:
        params = {"name": "large", "arguments": {"size": size}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.site.port}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "large",
            "x-user": user,
        }
        await wire.send(written("POST", "/mcp", headers, json.dumps(message).encode()))

    @property
    def unread(self) -> int:
        """What the transports of all connections keep."""
        return sum(one.transport.get_write_buffer_size() for one in self.site._connections)


@asynccontextmanager
async def large_server(
    *,
    verify: Any = None,
    total: int = 40 * MIB,
    per_principal: int = 40 * MIB,
    stall_s: float = 30.0,
    certificate: str | None = None,
) -> AsyncGenerator[LargeServer]:
    server, ran = Server("large"), list[int]()

    @server.tool
    async def large(size: int) -> str:
        ran.append(size)
        return "x" * size

    _ = large
    limits = RunLimits(
        max_unread_bytes=total,
        max_unread_bytes_per_principal=per_principal,
        write_stall_timeout_s=stall_s,
    )
    app = HttpApp(server, verify=verify)
    site = HttpRunner(app, port=0, run_limits=limits, ssl_certfile=certificate)
    await site.start()
    made = LargeServer(site, ran)
    try:
        yield made
    finally:
        for wire in made.wires:
            wire.abort()
        await site.stop(0.0)


async def is_whole(response: Response, size: int) -> bool:
    return len(await response.read()) > size


@live
async def test_clients_that_read_nothing_take_no_more_memory_than_the_limit() -> None:
    async with large_server() as served:
        with Records("colonnade.transport") as records:
            for number in range(8):
                await served.ask(await served.connect(), LARGE)
                await until(lambda n=number: len(served.ran) == n + 1)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
            await until(lambda: 0 < served.unread <= 40 * MIB)
        assert [line for line in records.lines if "max_unread_bytes" in line] == records.lines
        assert len(records.lines) == 1


@live
async def test_requests_that_arrive_together_wait_until_cut_connections_are_closed() -> None:
    async with large_server() as served:
        wires = [await served.connect() for _ in range(12)]
        highest = 0

        async def look() -> None:
            nonlocal highest
            while True:
                highest = max(highest, served.unread)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await asyncio.gather(*(served.ask(wire, LARGE) for wire in wires))
        await until(lambda: len(served.ran) == len(wires))
        looking.cancel()
        # One response more than fits, for each that was written in the same iteration.
        assert highest < 40 * MIB + 3 * 2 * LARGE


@live
async def test_a_client_that_reads_slowly_gets_its_response_while_another_floods() -> None:
    async with large_server(verify=by_header, per_principal=20 * MIB) as served:
        slow = await served.connect()
        await served.ask(slow, LARGE, "ada")
        await until(lambda: served.unread > 0)
        for number in range(6):
            await served.ask(await served.connect(), LARGE, "bob")
            await until(lambda n=number: len(served.ran) == n + 2)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        await until(lambda: served.unread <= 40 * MIB)
        assert await is_whole(await slow.head(), LARGE)


@live
async def test_a_response_above_all_limits_is_sent_to_a_client_that_reads() -> None:
    async with large_server(verify=by_header, total=MIB, per_principal=MIB) as served:
        wire = await served.connect()
        await served.ask(wire, LARGE, "ada")
        assert await is_whole(await wire.head(), LARGE)


@live
async def test_the_next_request_waits_until_the_last_response_was_read() -> None:
    async with large_server() as served:
        wire = await served.connect()
        await served.ask(wire, LARGE)
        await until(lambda: served.unread > 0)
        await served.ask(wire, 7)
        await served.ask(await served.connect(), 8)
        await until(lambda: 8 in served.ran)  # which came later
        assert served.ran == [LARGE, 8]
        assert await is_whole(await wire.head(), LARGE)
        assert await is_whole(await wire.head(), 7)
        assert served.ran == [LARGE, 8, 7]


@pytest.mark.parametrize("ends", ["client", "server"])
def test_a_request_that_waits_ends_with_its_connection(ends: str) -> None:
    @live
    async def exercise() -> None:
        async with large_server() as served:
            wire = await served.connect()
            await served.ask(wire, LARGE)
            await until(lambda: served.unread > 0)
            await served.ask(wire, 7)
            (connection,) = served.site._connections
            await until(lambda: bool(connection._postponed))
            if ends == "client":
                wire.abort()
            else:
                connection.transport.abort()
            await until(lambda: not served.site._connections)
            assert served.ran == [LARGE]
            assert served.site._state.unread.used == 0

    exercise()


# ---------------------------------------------------------------- over TLS of the server itself


def certified(folder: Path) -> tuple[str, ssl.SSLContext]:
    """The certificate of a server, and what its clients trust."""
    authority = Authority(folder)
    authority.serving("127.0.0.1")
    return str(folder / "server.pem"), authority.trusting()


@either_loop
async def test_responses_over_tls_that_nobody_reads_count_too(tmp_path: Path) -> None:
    certificate, trusting = certified(tmp_path)
    async with large_server(certificate=certificate) as served:
        for number in range(8):
            await served.ask(await served.connect(trusting), LARGE)
            await until(lambda n=number: len(served.ran) == n + 1)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        await until(lambda: 0 < served.site._state.unread.used <= 40 * MIB)
        await until(lambda: len(served.site._connections) < 8)
        assert 0 < served.unread <= 40 * MIB


@either_loop
async def test_a_response_over_tls_that_nobody_reads_ends_with_its_connection(
    tmp_path: Path,
) -> None:
    certificate, trusting = certified(tmp_path)
    async with large_server(stall_s=0.01, certificate=certificate) as served:
        await served.ask(await served.connect(trusting), LARGE)
        await until(lambda: len(served.ran) == 1 and not served.site._connections)
        assert served.site._state.unread.used == 0


@either_loop
async def test_responses_over_tls_are_sent_to_a_client_that_reads(tmp_path: Path) -> None:
    certificate, trusting = certified(tmp_path)
    async with large_server(total=MIB, certificate=certificate) as served:
        wire = await served.connect(trusting)
        for size in (LARGE, 7, 3 * MIB):
            await served.ask(wire, size)
            response = await wire.head()
            body = json.loads(await response.read())
            assert body["result"]["content"][0]["text"] == "x" * size
        await until(lambda: served.site._state.unread.used == 0)


@either_loop
async def test_the_next_request_over_tls_waits_until_the_last_response_was_read(
    tmp_path: Path,
) -> None:
    certificate, trusting = certified(tmp_path)
    async with large_server(certificate=certificate) as served:
        wire = await served.connect(trusting)
        await served.ask(wire, LARGE)
        await until(lambda: served.unread > 0)
        await served.ask(wire, 7)
        await served.ask(await served.connect(trusting), 8)
        await until(lambda: 8 in served.ran)  # which came later
        assert served.ran == [LARGE, 8]
        assert await is_whole(await wire.head(), LARGE)
        assert await is_whole(await wire.head(), 7)
        assert served.ran == [LARGE, 8, 7]
