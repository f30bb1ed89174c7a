"""When the reader of a body of a known length is woken: at its end, or for many small pieces."""

import asyncio
from typing import Any, cast

from colonnade.transport.http_client.pool import (
    MAX_PIECES,
    UNREAD_BYTES,
    ClientConnection,
    ClientResponse,
    HttpPool,
)
from live import live


class PausedTransport:
    """A transport of asyncio that counts how often reading was paused."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause_reading(self) -> None:
        self.pauses += 1

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


def receive_head(length: int) -> tuple[PausedTransport, ClientConnection, ClientResponse]:
    """A response whose headers have arrived."""
    pool, transport = HttpPool(), PausedTransport()
    connection = ClientConnection(pool, ("http", "localhost", 80))
    connection.connection_made(cast("Any", transport))
    response = ClientResponse(pool, connection)
    connection.send(b"", response)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
    assert response.begun
    return transport, connection, response


@live
async def test_a_body_that_arrives_in_parts_does_not_pause_before_its_reader_runs() -> None:
    transport, connection, response = receive_head(2 * UNREAD_BYTES)
    connection.data_received(b"a" * (UNREAD_BYTES + 1))
    connection.data_received(b"b" * (UNREAD_BYTES - 1))
    assert transport.pauses == 0
    body = await response.read_all(4 * UNREAD_BYTES)
    assert body == b"a" * (UNREAD_BYTES + 1) + b"b" * (UNREAD_BYTES - 1)


@live
async def test_a_reader_of_a_whole_body_is_woken_for_many_small_pieces() -> None:
    """Each takes memory beside its bytes."""
    _, connection, response = receive_head(2 * MAX_PIECES)
    reader = asyncio.create_task(response.read_all(UNREAD_BYTES))
    await asyncio.sleep(0)
    for _ in range(MAX_PIECES - 1):
        connection.data_received(b"a")
    await asyncio.sleep(0)
    assert response._size == MAX_PIECES - 1
    connection.data_received(b"a")
    await asyncio.sleep(0)
    assert response._size == 0
    connection.data_received(b"a" * MAX_PIECES)
    assert await reader == b"a" * (2 * MAX_PIECES)


@live
async def test_a_reader_of_pieces_is_woken_by_each_also_if_the_length_is_known() -> None:
    """Such as one of an event stream."""
    _, connection, response = receive_head(6)
    connection.data_received(b"ab")  # before there is a reader
    assert await response.read() == b"ab"
    reader = asyncio.create_task(response.read())
    await asyncio.sleep(0)
    connection.data_received(b"cd")
    assert await reader == b"cd"
    connection.data_received(b"ef")
    assert await response.read() == b"ef"
    assert await response.read() == b""
