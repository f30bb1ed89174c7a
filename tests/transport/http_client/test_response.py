"""What our HTTP client makes of answers, good and bad: scripted servers, in both loops."""

import asyncio

import pytest

from colonnade.errors import CannotConnect, ConnectionLost, RemoteProtocolError
from colonnade.transport.http_client import pool as http_answer
from live import live, until
from scripted_http_server import (
    LIMIT,
    AcceptedConnection,
    answer_every_request,
    chunk,
    either_loop,
    fetch,
    http_response,
    pooled,
    response_head,
    scripted_http_server,
)

# ---------------------------------------------------------------- what comes back


@either_loop
async def test_an_answer_has_a_status_headers_and_a_body() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(
            http_response(404, b"no", "Text/Plain; charset=x", "X-A: 1", "x-a:  2 ", "X-Z: \xfc")
        )

    async with scripted_http_server(handler) as server, pooled() as pool:
        answer = await pool.send("GET", server.url, [])
        async with answer:
            assert answer.status == 404
            assert repr(answer) == "ClientResponse(404)"
            assert answer.media == "text/plain"
            assert (answer.header("x-a"), answer.header("x-z")) == ("1, 2", "ü")
            assert answer.header("x-none") is None
            assert await answer.read() == b"no"
            assert await answer.read() == b""


SAID: dict[str, tuple[bytes, int, bytes]] = {
    "with a length": (http_response(200, b"abc"), 200, b"abc"),
    "in chunks": (
        response_head(200, "Transfer-Encoding: chunked")
        + chunk(b"ab")
        + chunk(b"c")
        + b"0\r\n\r\n",
        200,
        b"abc",
    ),
    "in chunks with words beside them": (
        response_head(200, "transfer-encoding: Chunked")
        + b"3;x=y\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n",
        200,
        b"abc",
    ),
    "after it went on": (
        response_head(100)
        + response_head(103, "Link: x", "Content-Length: 7")
        + http_response(200, b"abc"),
        200,
        b"abc",
    ),
    "without a body": (response_head(204), 204, b""),
    "without a body, though it has a length": (response_head(304, "Content-Length: 7"), 304, b""),
    "with an empty body": (http_response(200), 200, b""),
    "without a reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
}


@pytest.mark.parametrize("said", list(SAID.values()), ids=list(SAID))
@either_loop
async def test_every_kind_of_body_is_read_and_its_connection_is_kept(
    said: tuple[bytes, int, bytes],
) -> None:
    data, status, body = said

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(data)

    async with scripted_http_server(handler) as server, pooled() as pool:
        for _ in range(3):
            assert await fetch(pool, server.url) == (status, body)
        assert server.connection_count == 1
        assert pool.idle == 1


# Responses on one connection, and what is read of each: those that begin as the one before are not
# parsed.
ALIKE: dict[str, tuple[bytes, ...]] = {
    "of the same length": (b"abc", b"def", b"ghi"),
    "of other lengths": (b"abc", b"", b"a" * 1000, b"b" * 1001, b"c"),
    "large": (b"abc", b"x" * 3_000_000, b"def", b"y" * 3_000_000, b"z" * 300_000),
}


@pytest.mark.parametrize("bodies", list(ALIKE.values()), ids=list(ALIKE))
@pytest.mark.parametrize("length", ["content-length", "Content-Length", "CONTENT-LENGTH"])
@either_loop
async def test_responses_that_begin_alike_are_read_each_with_its_own_body(
    bodies: tuple[bytes, ...], length: str
) -> None:
    async def handler(connection: AcceptedConnection) -> None:
        for body in bodies:
            await connection.receive()
            head = response_head(200, "X-A: 1", f"{length}: {len(body)}", "X-B: 2")
            await connection.send(head + body)

    async with scripted_http_server(handler) as server, pooled() as pool:
        for body in bodies:
            async with await pool.send("GET", server.url, []) as answer:
                assert answer.status == 200
                found = {"x-a": "1", "content-length": str(len(body)), "x-b": "2"}
                assert answer.headers == found
                answer.headers["x-a"] = "of this response alone"
                assert await answer.read_all(LIMIT) == body
        assert server.connection_count == 1


OTHERWISE: dict[str, tuple[bytes, int, bytes]] = {
    "another status": (http_response(404, b"no"), 404, b"no"),
    "another header": (http_response(200, b"abc", "text/html"), 200, b"abc"),
    "in chunks": (response_head(200, "transfer-encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n", 200, b"x"),
    "after it went on": (response_head(100) + http_response(200, b"ok"), 200, b"ok"),
    "without a body": (response_head(204), 204, b""),
    "the last on its connection": (http_response(200, b"ok", "", "connection: close"), 200, b"ok"),
}  # fmt: skip


@pytest.mark.parametrize("other", list(OTHERWISE.values()), ids=list(OTHERWISE))
@either_loop
async def test_a_response_that_begins_otherwise_is_parsed(other: tuple[bytes, int, bytes]) -> None:
    usual = http_response(200, b"usual", "text/plain")
    is_last = b"connection: close" in other[0]
    script = [(usual, 200, b"usual")] * 2 + [other] * 2 + [(usual, 200, b"usual")] * 2
    said = iter(script)

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(next(said)[0])

    async with scripted_http_server(handler) as server, pooled() as pool:
        for _, expected, text in script:
            assert await fetch(pool, server.url) == (expected, text)
        assert server.connection_count == (3 if is_last else 1)


@either_loop
async def test_heads_that_are_always_new_are_not_compared_for_ever() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        number = 0
        while True:
            await connection.receive()
            await connection.send(http_response(200, b"ok", "text/plain", f"X-Id: {number}"))
            number += 1

    async with scripted_http_server(handler) as server, pooled() as pool:
        for number in range(http_answer.MISSES + 2):
            async with await pool.send("GET", server.url, []) as answer:
                assert answer.header("x-id") == str(number)
                assert await answer.read_all(LIMIT) == b"ok"


@pytest.mark.parametrize("size", [2, 300_000])
@either_loop
async def test_more_than_one_response_closes_the_connection(size: int) -> None:
    body = b"x" * size

    async def handler(connection: AcceptedConnection) -> None:
        for _ in range(2):
            await connection.receive()
            await connection.send(http_response(200, body))
        await connection.receive()
        head, rest = http_response(200, body)[:-1], http_response(200, body)[-1:]
        await connection.send(head)
        await connection.send(rest + http_response(200, b"again"))
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        for _ in range(3):
            assert await fetch(pool, server.url) == (200, body)
        await until(lambda: pool.idle == 0 or server.client_closed.is_set())
        await server.client_closed.wait()


@pytest.mark.parametrize("said", list(SAID.values()), ids=list(SAID))
@live
async def test_an_answer_may_come_byte_by_byte(said: tuple[bytes, int, bytes]) -> None:
    data, status, body = said

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        for byte in data:
            await connection.send(bytes([byte]))
            await asyncio.sleep(0)

    async with scripted_http_server(handler) as server, pooled() as pool:
        assert await fetch(pool, server.url) == (status, body)


@either_loop
async def test_what_trails_a_body_is_no_header() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(200, "Transfer-Encoding: chunked") + chunk(b"x"))
        await connection.send(b"0\r\nX-Late: 1\r\n\r\n")

    async with scripted_http_server(handler) as server, pooled() as pool:
        answer = await pool.send("GET", server.url, [])
        async with answer:
            assert await answer.read_all(LIMIT) == b"x"
            assert answer.header("x-late") is None


@either_loop
async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(b"HTTP/1.0 200 OK\r\n\r\nabc")

    async with scripted_http_server(handler) as server, pooled() as pool:
        assert await fetch(pool, server.url) == (200, b"abc")
        assert pool.idle == 0


@either_loop
async def test_an_answer_may_begin_with_more_than_all_headers_may_hold() -> None:
    body = b"x" * (4 * http_answer.HEAD_BYTES)

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(http_response(200, body))

    async with scripted_http_server(handler) as server, pooled() as pool:
        assert await fetch(pool, server.url) == (200, body)


@either_loop
async def test_a_request_may_be_large() -> None:
    body = b"x" * 8_000_000
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        async with await pool.send("POST", server.url, [], body) as answer:
            assert answer.status == 200
        assert server.received[0].body == body


# ---------------------------------------------------------------- what goes wrong


CUT = {
    "in the length": response_head(200, "Content-Length: 9") + b"abc",
    "in a chunk": response_head(200, "Transfer-Encoding: chunked") + b"9\r\nabc",
    "between chunks": response_head(200, "Transfer-Encoding: chunked") + chunk(b"abc"),
}


@pytest.mark.parametrize("said", list(CUT.values()), ids=list(CUT))
@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
@either_loop
async def test_a_body_that_is_cut_is_not_taken_for_a_whole_one(said: bytes, rude: bool) -> None:
    read = asyncio.Event()

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(said)
        await read.wait()
        if rude:
            connection.abort()

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            assert await answer.read() == b"abc"
            read.set()
            with pytest.raises(
                ConnectionLost, match=r"127.0.0.1:\d+: the response was cut off: the server"
            ):
                await answer.read()
        assert pool.idle == 0


NO_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "another version": b"HTTP/2 200 OK\r\n\r\n",
    "a page without a head": b"<html></html>\r\n\r\n",
    "a status that is none": b"HTTP/1.1 007 Bond\r\n\r\n",
    "two digits": b"HTTP/1.1 99 X\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    "two lengths": response_head(200, "Content-Length: 1", "Content-Length: 2"),
    "a length and chunks": response_head(200, "Transfer-Encoding: chunked", "Content-Length: 2"),
    "a length below nothing": response_head(200, "Content-Length: -1"),
    "another protocol from here on": response_head(
        101, "Upgrade: websocket", "Connection: upgrade"
    ),
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("said", list(NO_HTTP.values()), ids=list(NO_HTTP))
@either_loop
async def test_what_is_no_http_is_said_so_at_once(said: bytes) -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(said)
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        with pytest.raises(RemoteProtocolError, match=r"127.0.0.1:\d+: the server"):
            await pool.send("GET", server.url, [])
        await until(server.client_closed.is_set)


@either_loop
async def test_a_server_that_speaks_first_is_no_http_server() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.send(b"220 mail.example.com ESMTP\r\n")
        await connection.reader.read()

    async with scripted_http_server(handler) as server, pooled() as pool:
        with pytest.raises((RemoteProtocolError, ConnectionLost)):
            await pool.send("GET", server.url, [])


@pytest.mark.parametrize(
    "said", [b"", response_head(100), response_head(200)[:-2]], ids=["nothing", "100", "half"]
)
@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
@either_loop
async def test_a_connection_that_is_closed_before_the_headers_is_lost(
    said: bytes, rude: bool
) -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(said)
        if rude:
            connection.abort()

    async with scripted_http_server(handler) as server, pooled() as pool:
        with pytest.raises(ConnectionLost, match="the server closed the connection") as raised:
            await pool.send("GET", server.url, [])
        assert not raised.value.not_sent


@either_loop
async def test_a_connection_that_is_closed_as_soon_as_it_stands_is_lost() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        connection.abort()

    async with scripted_http_server(handler) as server, pooled() as pool:
        for _ in range(20):
            with pytest.raises((ConnectionLost, CannotConnect)):
                await pool.send("GET", server.url, [])


@either_loop
async def test_a_server_that_stops_writing_while_it_reads_a_large_request_is_lost() -> None:
    """The transport closes by itself when the rest of the request is written: it is gone then, and
    cannot be aborted once more."""

    async def handler(connection: AcceptedConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        connection.writer.write_eof()
        await connection.reader.read()

    async with scripted_http_server(handler) as server, pooled() as pool:
        with pytest.raises(ConnectionLost, match="the server closed the connection"):
            await pool.send("POST", server.url, [], b"x" * 20_000_000)


HUGE = {
    "one header": [b"X: " + b"y" * 1000] * 1 + [b"y" * 1000] * 1000,
    "many headers": [b"X-%d: y\r\n" % number for number in range(100_000)],
    "the same header": [b"X: y\r\n"] * 100_000,
    "many small ones that end": [b"X-%d: y\r\n" % number for number in range(3000)] + [b"\r\n"],
    "provisional answers": [response_head(100)] * 10_000,
}


@pytest.mark.parametrize("lines", list(HUGE.values()), ids=list(HUGE))
@either_loop
async def test_headers_have_a_limit(lines: list[bytes]) -> None:
    first = b"" if lines[0] == response_head(100) else b"HTTP/1.1 200 OK\r\n"

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(first, *lines)
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        with pytest.raises(RemoteProtocolError, match="headers are larger than 65536 bytes"):
            await pool.send("GET", server.url, [])
        await until(server.client_closed.is_set)


@either_loop
async def test_what_stands_between_pieces_of_a_body_has_a_limit() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(200, "Transfer-Encoding: chunked"), b"1;")
        await connection.send(*[b"x" * 1000] * 1000)
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            with pytest.raises(RemoteProtocolError, match="headers are larger"):
                await answer.read()
        await until(server.client_closed.is_set)


@pytest.mark.parametrize("declared", [True, False])
@either_loop
async def test_a_body_that_is_wanted_whole_has_a_limit(declared: bool) -> None:
    said = 0

    async def handler(connection: AcceptedConnection) -> None:
        nonlocal said
        await connection.receive()
        framed = "Content-Length: 1000000000" if declared else "Transfer-Encoding: chunked"
        await connection.send(response_head(200, framed))
        while True:
            await connection.send(b"x" * 1000 if declared else chunk(b"x" * 1000))
            said += 1000

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            with pytest.raises(
                RemoteProtocolError, match="the response is larger than 10000 bytes"
            ):
                await answer.read_all(10_000)
        await until(lambda: server.open == 0)


@either_loop
async def test_a_server_that_says_all_and_goes_is_heard_to_the_end() -> None:
    """Its transport closes itself, later, when the last byte is sent."""
    size = 8_000_000

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        connection.writer.write(response_head(200, f"Content-Length: {size}") + b"x" * size)

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            assert len(await answer.read_all(size)) == size
        await until(lambda: server.open == 0)


@either_loop
async def test_a_server_waits_for_a_reader_that_is_slow() -> None:
    """What nobody reads stays with the server, but for a bound and what the system buffers."""
    said, most = 0, 200_000_000

    async def handler(connection: AcceptedConnection) -> None:
        nonlocal said
        await connection.receive()
        await connection.send(response_head(200, f"Content-Length: {most}"))
        while said < most:
            await connection.send(b"x" * 100_000)
            said += 100_000
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            await until(lambda: answer._size > http_answer.UNREAD_BYTES)
            for _ in range(5000):  # turns in which the loop would read all that is there
                await asyncio.sleep(0)
            assert said < most / 2
            assert answer._size <= http_answer.UNREAD_BYTES + 300_000
            size = 0
            while data := await answer.read():
                size += len(data)
            assert size == most
        assert pool.idle == 1
        assert server.connection_count == 1
