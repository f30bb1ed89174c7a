"""Requests that wait to be written with others, on connections that are no more than what was
written: each is written once, or not at all."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from colonnade.errors import ConnectionLost
from colonnade.transport.http_client import pool as http_client
from colonnade.transport.http_client.connect import RequestTarget
from colonnade.transport.http_client.pool import ClientConnection, ClientResponse, HttpPool
from live import live

URL = "http://localhost:80/"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class WrittenTransport:
    """A transport of asyncio that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data.rpartition(b"\r\n")[2])  # the body of the request

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


class Connected:
    """An idle connection of a pool; `has_ended` is what the system knows and the loop does not."""

    def __init__(self, pool: HttpPool, *, has_ended: bool = False) -> None:
        self.transport = WrittenTransport()
        self.connection = ClientConnection(pool, ("http", "localhost", 80))
        self.connection.connection_made(cast("Any", self.transport))
        self.connection.has_input = lambda timeout_ms: has_ended
        self.connection.reusable = True
        pool.keep(self.connection)


def send(pool: HttpPool, body: bytes) -> Coroutine[Any, Any, ClientResponse]:
    """Send a request, and begin to wait for its response."""
    response = pool.send("POST", URL, [], body)
    response.send(None)
    return response


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "TOGETHER", -10)  # these connections are not counted


@live
async def test_requests_of_one_iteration_are_written_at_its_end() -> None:
    pool = HttpPool()
    connected = [Connected(pool) for _ in range(3)]
    waiting = [send(pool, b"%d" % number) for number in range(3)]
    assert not any(one.transport.written for one in connected)
    await asyncio.sleep(0)
    assert [one.transport.written for one in connected] == [[b"2"], [b"1"], [b"0"]]
    for one in waiting:
        one.close()


@live
async def test_a_request_whose_connection_has_ended_is_written_on_another_one() -> None:
    pool = HttpPool()
    other, ended = Connected(pool), Connected(pool, has_ended=True)
    waiting = send(pool, b"once")
    await asyncio.sleep(0)
    assert ended.transport.aborted
    assert not ended.transport.written
    assert other.transport.written == [b"once"]
    other.connection.data_received(OK)
    with pytest.raises(StopIteration) as returned:
        waiting.send(None)
    assert returned.value.value.status == 200


@live
async def test_requests_whose_connections_have_all_ended_are_written_on_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if they had not waited for others. A notification or an input response is not retried."""
    pool = HttpPool()
    ended = [Connected(pool, has_ended=True) for _ in range(3)]
    new: list[Connected] = []

    async def connect(_: RequestTarget) -> ClientConnection:
        new.append(Connected(pool))
        return new[-1].connection

    monkeypatch.setattr(pool, "_connect", connect)
    waiting = [send(pool, b"%d" % number) for number in range(2)]
    await asyncio.sleep(0)
    assert all(one.transport.aborted and not one.transport.written for one in ended)
    for number, one in enumerate(waiting):
        one.send(None)
        assert new[number].transport.written == [b"%d" % number]
        new[number].connection.data_received(OK)
        with pytest.raises(StopIteration) as returned:
            one.send(None)
        assert returned.value.value.status == 200


@live
async def test_a_pool_that_is_closed_opens_no_new_connection_for_a_request_that_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = HttpPool()
    _ = Connected(pool, has_ended=True)

    async def connect(_: RequestTarget) -> ClientConnection:
        raise AssertionError("the pool is closed")

    monkeypatch.setattr(pool, "_connect", connect)
    waiting = send(pool, b"late")
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(ConnectionLost, match="client was closed before the request was") as lost:
        waiting.send(None)
    assert lost.value.not_sent


@live
async def test_a_request_of_a_pool_that_is_closed_before_it_is_written_was_not_sent() -> None:
    pool = HttpPool()
    connected = Connected(pool)
    waiting = send(pool, b"late")
    connected.connection.abort(ConnectionLost("the client was closed"))
    await pool.close()
    await asyncio.sleep(0)
    with pytest.raises(ConnectionLost, match="client was closed before the request was") as lost:
        waiting.send(None)
    assert lost.value.not_sent
    assert not connected.transport.written


@live
async def test_a_request_that_is_cancelled_before_it_is_written_is_not_written() -> None:
    pool = HttpPool()
    other, cancelled = Connected(pool), Connected(pool)
    first, second = send(pool, b"cancelled"), send(pool, b"other")
    with pytest.raises(asyncio.CancelledError):
        first.throw(asyncio.CancelledError())
    await asyncio.sleep(0)
    assert cancelled.transport.aborted
    assert not cancelled.transport.written
    assert other.transport.written == [b"other"]
    second.close()


@live
async def test_what_comes_before_a_request_is_written_is_no_response_to_it() -> None:
    """With uvloop it may be received first. What would come for the request later would be taken
    for the response of another."""
    pool = HttpPool()
    other, early = Connected(pool), Connected(pool)
    waiting = send(pool, b"once")
    early.connection.data_received(OK)
    assert early.transport.aborted
    await asyncio.sleep(0)
    assert not early.transport.written
    assert other.transport.written == [b"once"]
    waiting.close()
