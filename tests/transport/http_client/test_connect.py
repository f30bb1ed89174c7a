"""The way to a host by its name: the first address that answers, and nothing left of the others."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from client.misbehaving_http_server import PATIENT_S
from colonnade.errors import CannotConnect
from colonnade.transport.http_client import connect as http_routes
from colonnade.transport.http_client.connect import MAX_ADDRESSES, HappyEyeballs, interleaved
from colonnade.transport.http_client.pool import HttpPool
from live import live, until
from scripted_http_server import descriptors, response_head, scripted_http_server

NAME = "somewhere.test"
# Far below what a pool waits for a connection, far above what a busy machine needs for one.
FAST_S = 60.0


@contextmanager
def dead() -> Generator[tuple[str, int]]:
    """An address that never answers: whoever listens there takes nobody more."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            early = stack.enter_context(socket.socket())
            early.setblocking(False)
            early.connect_ex(full.getsockname())
        yield full.getsockname()


def refusing() -> tuple[str, int]:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()


def leads_to(monkeypatch: pytest.MonkeyPatch, *places: tuple[str, int]) -> None:
    """Let the name have these addresses."""

    def resolved(host: object, *_: Any, **__: Any) -> list[Any]:
        assert host == NAME
        kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        return [(*kind, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@asynccontextmanager
async def pooled() -> AsyncGenerator[HttpPool]:
    before = descriptors()
    pool = HttpPool(environ={})
    try:
        yield pool
    finally:
        await pool.close()
    await until(lambda: descriptors() <= before)


async def answer(connection: Any) -> None:
    while True:
        await connection.receive()
        await connection.send(response_head(204, "Content-Length: 0"))


@live
async def test_an_address_that_says_nothing_costs_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    with dead() as nowhere:
        async with scripted_http_server(answer) as server:
            there = server.url.removeprefix("http://127.0.0.1:").partition("/")[0]
            for places in ((nowhere, nowhere), (nowhere, refusing(), nowhere)):
                leads_to(monkeypatch, *places, ("127.0.0.1", int(there)))
                async with pooled() as pool, asyncio.timeout(FAST_S):
                    found = await pool.send("GET", f"http://{NAME}/", ())
                    assert found.status == 204
                    found.close()


@live
async def test_where_nobody_answers_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, refusing(), refusing())
    async with pooled() as pool:
        with pytest.raises(CannotConnect, match=rf"{NAME} cannot be reached: Connection refused"):
            await pool.send("GET", f"http://{NAME}/", ())


@live
async def test_giving_up_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    connecting = http_routes._connect_socket

    async def noted(address: Any) -> Any:
        begun.set()
        return await connecting(address)

    monkeypatch.setattr(http_routes, "_connect_socket", noted)
    with dead() as nowhere:
        leads_to(monkeypatch, nowhere, nowhere, nowhere)
        async with pooled() as pool:
            sending = asyncio.create_task(pool.send("GET", f"http://{NAME}/", ()))
            async with asyncio.timeout(PATIENT_S):
                await begun.wait()
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()


@live
async def test_when_nobody_resolves_any_more_the_last_address_is_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As at the end of a process: its threads have ended, and a session is still to be left."""

    def ended(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cannot schedule new futures after shutdown")

    async with scripted_http_server(answer) as server:
        port = int(server.url.removeprefix("http://127.0.0.1:").partition("/")[0])
        leads_to(monkeypatch, ("127.0.0.1", port))
        routes = HappyEyeballs()
        for _ in range(2):
            transport, _ = await routes.connect(asyncio.Protocol, NAME, port)
            transport.close()
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", ended)
        with pytest.raises(OSError, match="about to end"):
            await HappyEyeballs().connect(asyncio.Protocol, NAME, port)


def test_families_take_turns_and_there_is_an_end_to_them() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    given = [(six, 1, 6, n) for n in range(3)] + [(four, 1, 6, n) for n in range(2)]
    assert [(family, to) for family, _, _, to in interleaved(given)] == [
        (six, 0),
        (four, 0),
        (six, 1),
        (four, 1),
        (six, 2),
    ]
    many = [(six, 1, 6, n) for n in range(100)]
    assert len(interleaved(many)) == MAX_ADDRESSES
