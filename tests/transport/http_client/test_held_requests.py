"""Requests that wait to be written with others, on connections that are no more than what was
written: each is written once, or not at all."""

import asyncio
from typing import Any, cast

import pytest

from colonnade.errors import ConnectionLost
from colonnade.transport.http_client import pool as http_client
from colonnade.transport.http_client.pool import ClientConnection, ClientResponse, HttpPool
from live import live

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class WrittenTransport:
    """A transport of asyncio that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


class Connected:
    """A connection of a pool; `used` after a first request."""

    def __init__(self, pool: HttpPool, *, used: bool = True, has_input: bool = False) -> None:
        self.transport = WrittenTransport()
        self.pool = pool
        self.connection = ClientConnection(pool, ("http", "localhost", 80))
        self.connection.connection_made(cast("Any", self.transport))
        self.connection.has_input = lambda timeout_ms: has_input
        if used:
            self.connection.used_at = self.connection.loop.time()

    def send(self, request: bytes) -> ClientResponse:
        response = ClientResponse(self.pool, self.connection)
        self.connection.send(request, response)
        return response


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "TOGETHER", 0)


@live
async def test_requests_of_one_iteration_are_written_at_its_end() -> None:
    pool = HttpPool()
    connected = [Connected(pool) for _ in range(3)]
    for number, one in enumerate(connected):
        one.send(b"%d" % number)
    assert not any(one.transport.written for one in connected)
    await asyncio.sleep(0)
    assert [one.transport.written for one in connected] == [[b"0"], [b"1"], [b"2"]]


@live
async def test_what_tls_sends_after_its_handshake_is_not_taken_for_the_end_of_a_connection() -> (
    None
):
    """The session tickets of TLS 1.3 arrive when the first request is about to be written."""
    new = Connected(HttpPool(), used=False, has_input=True)
    response = new.send(b"first")
    await asyncio.sleep(0)
    assert new.transport.written == [b"first"]
    new.connection.data_received(OK)
    assert (await response.started()).status == 200


@live
async def test_a_request_whose_connection_ends_before_it_is_written_was_not_sent() -> None:
    pool = HttpPool()
    ended, other = Connected(pool, has_input=True), Connected(pool)
    response = ended.send(b"ended")
    other.send(b"other")
    with pytest.raises(ConnectionLost, match="before the request was sent") as lost:
        await response.started()
    assert lost.value.not_sent
    assert ended.transport.aborted
    assert not ended.transport.written
    assert other.transport.written == [b"other"]


@live
async def test_a_request_that_is_cancelled_before_it_is_written_is_not_written() -> None:
    pool = HttpPool()
    cancelled, other = Connected(pool), Connected(pool)
    cancelled.send(b"cancelled").close()
    other.send(b"other")
    await asyncio.sleep(0)
    assert cancelled.transport.aborted
    assert not cancelled.transport.written
    assert other.transport.written == [b"other"]


@live
async def test_a_request_is_not_written_on_a_connection_that_another_one_has_by_then() -> None:
    """A server that sends a response before its request is read: with uvloop it may be received
    first. What would come for the request later would be taken for the response of another."""
    connected = Connected(HttpPool())
    early = connected.send(b"early")
    connected.connection.data_received(OK)
    (await early.started()).close()
    connected.send(b"next")
    await asyncio.sleep(0)
    assert connected.transport.written == [b"next"]
