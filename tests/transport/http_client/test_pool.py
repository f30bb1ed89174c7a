"""Our HTTP client's connections: kept, left, given up, never there; in both loops."""

import asyncio
import contextlib
import gc
import socket
import threading
import weakref
from typing import Any, cast

import pytest

from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.http_client import pool as http_answer
from colonnade.transport.http_client import pool as http_client
from colonnade.transport.http_client.pool import HttpPool
from live import live, until
from scripted_http_server import (
    LIMIT,
    OK,
    AcceptedConnection,
    answer_every_request,
    chunk,
    descriptors,
    either_loop,
    fetch,
    http_response,
    pooled,
    response_head,
    scripted_http_server,
)

# ---------------------------------------------------------------- what is sent


@either_loop
async def test_a_request_is_written_as_it_was_given() -> None:
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        url = f"{server.url}?a=1&b=%20#part"
        async with await pool.send("POST", url, [("X-One", "1"), ("x-two", "zwei \xfc")], b"body"):
            pass
        async with await pool.send("DELETE", server.url, []):
            pass
    posted, deleted = server.received
    assert posted.method == "POST"
    assert posted.path == "/mcp?a=1&b=%20"
    assert posted.body == b"body"
    assert posted.headers == {
        "host": f"127.0.0.1:{server.port}",
        "x-one": "1",
        "x-two": "zwei \xfc",
        "content-length": "4",
    }
    assert deleted.method == "DELETE"
    assert "content-length" not in deleted.headers


# ---------------------------------------------------------------- connections


@either_loop
async def test_a_connection_is_used_again_and_a_second_one_only_beside_it() -> None:
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        for _ in range(3):
            await fetch(pool, server.url)
        assert (server.connection_count, pool.idle) == (1, 1)
        await asyncio.gather(*(fetch(pool, server.url) for _ in range(4)))
        assert (server.connection_count, pool.idle) == (4, 4)


@either_loop
async def test_only_so_many_connections_are_kept() -> None:
    many = http_client.IDLE_CONNECTIONS + 3
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        answers = await asyncio.gather(*(pool.send("GET", server.url, []) for _ in range(many)))
        for answer in answers:
            assert await answer.read_all(LIMIT) == b"ok"
        for answer in answers:
            answer.close()
        assert pool.idle == http_client.IDLE_CONNECTIONS
        await until(lambda: server.open == http_client.IDLE_CONNECTIONS)


@either_loop
async def test_a_connection_that_was_idle_for_long_is_closed_and_not_used() -> None:
    async with scripted_http_server(answer_every_request) as server, pooled(idle_s=0.05) as pool:
        await fetch(pool, server.url)
        await until(lambda: pool.idle == 0 and server.open == 0)
        await fetch(pool, server.url)
        assert server.connection_count == 2


@live
async def test_a_connection_is_too_old_even_before_anybody_has_tidied_up() -> None:
    async with scripted_http_server(answer_every_request) as server, pooled(idle_s=3600) as pool:
        await fetch(pool, server.url)
        pool._idle_s = 0.0
        await fetch(pool, server.url)
        assert server.connection_count == 2


@either_loop
async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(OK)

    async with scripted_http_server(handler) as server, pooled() as pool:
        for _ in range(3):
            assert await fetch(pool, server.url) == (200, b"ok")
            await until(lambda: pool.idle == 0)
        assert server.connection_count == 3


@either_loop
async def test_a_connection_whose_end_the_loop_has_not_seen_yet_is_not_used_again() -> None:
    """As it is where a loop stands still between two requests."""
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.recv(65536)
                connection.sendall(OK)
                connection.close()
            closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with pooled() as pool:
            answer = await pool.send("GET", url, [])
            assert await answer.read_all(LIMIT) == b"ok"
            assert closed.wait(60)  # while the loop stands still
            answer.close()
            assert await fetch(pool, url) == (200, b"ok")
        thread.join(60)


@either_loop
async def test_a_request_that_waits_with_others_is_written_on_a_new_connection_if_its_own_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, whatever it does: nothing of it was sent before."""
    monkeypatch.setattr(http_client, "TOGETHER", 1)
    may_close, closed = threading.Event(), threading.Event()
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            for _ in range(2):
                connection.recv(65536)
                connection.sendall(OK)
            may_close.wait(60)
        closed.set()
        connection, _ = listener.accept()
        with connection:
            received.append(connection.recv(65536))
            connection.sendall(OK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        async with pooled() as pool:
            assert await fetch(pool, url) == (200, b"ok")
            assert await fetch(pool, url) == (200, b"ok")  # written at the end of an iteration
            response = pool.send("POST", url, [], b"once")
            may_close.set()
            assert closed.wait(60)  # while the loop stands still
            async with await response as answer:
                assert await answer.read_all(LIMIT) == b"ok"
        thread.join(60)
        assert [one.count(b"once") for one in received] == [1]


@either_loop
async def test_a_large_request_is_written_at_once_and_those_that_wait_are_written_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "TOGETHER", 1)
    bodies = [b"x" * size for size in (1, http_client.HELD_BYTES, 2)]
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        await asyncio.gather(*(fetch(pool, server.url) for _ in bodies))
        responses = await asyncio.gather(*(pool.send("POST", server.url, [], b) for b in bodies))
        for response in responses:
            assert await response.read_all(LIMIT) == b"ok"
            response.close()
        assert sorted(one.body for one in server.received if one.body) == sorted(bodies)
        assert pool.idle == len(bodies)


@either_loop
async def test_a_server_may_say_that_it_closes() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(http_response(200, b"ok", "text/plain", "Connection: close"))
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        assert await fetch(pool, server.url) == (200, b"ok")
        assert await fetch(pool, server.url) == (200, b"ok")
        assert (server.connection_count, pool.idle) == (2, 0)


@either_loop
async def test_an_offer_to_speak_something_else_is_only_an_offer() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(
                http_response(200, b"ok", "", "Connection: Upgrade", "Upgrade: h2c")
            )

    async with scripted_http_server(handler) as server, pooled() as pool:
        assert await fetch(pool, server.url) == (200, b"ok")
        assert await fetch(pool, server.url) == (200, b"ok")


SURPLUS = {
    "another answer": OK,
    "half an answer": OK[:20],
    "words": b"and one more thing",
}


@pytest.mark.parametrize("surplus", list(SURPLUS.values()), ids=list(SURPLUS))
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@either_loop
async def test_a_server_that_says_more_than_it_was_asked_is_not_heard_again(
    surplus: bytes, late: bool
) -> None:
    """Who could slip an answer in would answer the next request for the server."""
    spoken = asyncio.Event()

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        if late:
            await connection.send(OK)
            await spoken.wait()
            await connection.send(surplus)
        else:
            await connection.send(OK, surplus)
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled(idle_s=3600) as pool:
        assert await fetch(pool, server.url) == (200, b"ok")
        spoken.set()
        await until(lambda: server.open == 0)
        assert server.client_closed.is_set()
        assert pool.idle == 0


@either_loop
async def test_a_connection_with_a_request_that_was_not_read_is_not_used_again() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", connection.writer.transport).pause_reading()
        await connection.send(http_response(413, b"too much"))
        await asyncio.sleep(3600)

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("POST", server.url, [], b"x" * 50_000_000) as answer:
            assert answer.status == 413
            assert await answer.read_all(LIMIT) == b"too much"
        assert pool.idle == 0


@either_loop
async def test_an_answer_that_is_left_before_its_end_may_end_by_itself() -> None:
    ending = asyncio.Event()

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(
                response_head(200, "Transfer-Encoding: chunked"), chunk(b"all there is")
            )
            await ending.wait()
            await connection.send(chunk(b"bye"), b"0\r\n\r\n")

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []) as answer:
            assert await answer.read() == b"all there is"
            answer.linger()
            answer.linger()
        assert pool.idle == 0
        ending.set()
        await until(lambda: pool.idle == 1)
        await fetch(pool, server.url)
        assert server.connection_count == 1


@either_loop
async def test_an_answer_that_does_not_end_is_closed_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_answer, "LINGER_S", 0.05)

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        answer = await pool.send("GET", server.url, [])
        answer.linger()
        await until(server.client_closed.is_set)


# ---------------------------------------------------------------- giving up


@either_loop
async def test_giving_up_before_the_headers_closes_the_connection_at_once() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        sending = asyncio.create_task(pool.send("POST", server.url, [], b"{}"))
        await server.wait_for_requests(1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await until(server.client_closed.is_set)
        assert pool._all == set()
        assert server.open == 0


@either_loop
async def test_giving_up_in_the_middle_closes_the_connection_at_once() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        reading = asyncio.create_task(fetch(pool, server.url))
        await server.wait_for_requests(1)
        await until(lambda: bool(pool._all))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(server.client_closed.is_set)
        assert pool._all == set()


@either_loop
async def test_leaving_an_answer_unread_closes_its_connection_at_once() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(200, "Content-Length: 9"), b"x")
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        async with await pool.send("GET", server.url, []):
            pass
        await until(server.client_closed.is_set)
        assert pool.idle == 0


@either_loop
async def test_nothing_is_remembered_of_what_was_given_up() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.wait_closed()

    kept: list[weakref.ref[Any]] = []
    sending: asyncio.Task[Any] | None = None
    async with scripted_http_server(handler) as server, pooled() as pool:
        for number in range(20):
            sending = asyncio.create_task(pool.send("GET", server.url, []))
            await server.wait_for_requests(number + 1)
            kept += [weakref.ref(one) for one in pool._all]
            sending.cancel()
            await asyncio.wait([sending])
        await until(lambda: server.open == 0)
        assert pool._all == set()
        sending = None
        gc.collect()
        assert [one() for one in kept if one() is not None] == []


@either_loop
async def test_closing_the_pool_ends_whoever_waits_reads_or_connects() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        request = await connection.receive()
        if request.method == "GET":
            await connection.send(response_head(200, "Content-Length: 9"), b"x")
        await connection.wait_closed()

    def deaf() -> socket.socket:
        made = socket.create_server(("127.0.0.1", 0), backlog=0)
        made.setblocking(False)
        return made

    pool = HttpPool(environ={})
    with deaf() as full:
        filler = [socket.socket() for _ in range(4)]
        for one in filler:  # so that nobody else gets in
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        connecting = asyncio.create_task(
            pool.send("GET", f"http://127.0.0.1:{full.getsockname()[1]}/", [])
        )
        async with scripted_http_server(handler) as server:
            waiting = asyncio.create_task(pool.send("POST", server.url, []))
            answer = await pool.send("GET", server.url, [])
            assert await answer.read() == b"x"
            reading = asyncio.create_task(answer.read())
            await server.wait_for_requests(2)
            await until(lambda: bool(pool._connecting))
            await asyncio.gather(pool.close(), pool.close())
            for task in (connecting, waiting, reading):
                with pytest.raises(ConnectionLost, match="the client was closed"):
                    await task
            await until(lambda: server.open == 0)
        for one in filler:
            one.close()
    with pytest.raises(ConnectionLost, match="the client was closed"):
        await pool.send("GET", "http://127.0.0.1:1/", [])
    await pool.close()


@either_loop
async def test_a_pool_that_is_closed_while_a_connection_is_made_uses_it_no_more() -> None:
    async with scripted_http_server(answer_every_request) as server:
        pool = HttpPool(environ={})
        sending = asyncio.create_task(pool.send("GET", server.url, []))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ConnectionLost):
            await sending
        await until(lambda: pool._all == set() and len(asyncio.all_tasks()) == 1)
        assert server.received == []


# ---------------------------------------------------------------- nobody there


@either_loop
async def test_a_server_that_is_not_there_is_named_and_nothing_was_heard() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with pooled() as pool:
        words = f"127.0.0.1:{port} cannot be reached: Connection refused; is the server running"
        with pytest.raises(CannotConnect, match=words) as raised:
            await pool.send("GET", f"http://127.0.0.1:{port}/?key=s3cret", [])
        assert raised.value.not_sent
        assert "s3cret" not in str(raised.value)


@either_loop
async def test_a_name_that_nobody_has_is_said_so() -> None:
    async with pooled() as pool:
        with pytest.raises(CannotConnect, match=r"nobody\.invalid cannot be reached"):
            await pool.send("GET", "http://nobody.invalid/", [])


@live
async def test_a_server_that_lets_nobody_in_is_waited_for_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        filler = [socket.socket() for _ in range(4)]
        for one in filler:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        async with pooled(connect_s=0.1) as pool:
            with pytest.raises(CannotConnect, match=r"did not answer within 0\.1 s"):
                await pool.send("GET", f"http://127.0.0.1:{port}/", [])
        for one in filler:
            one.close()


@either_loop
async def test_a_server_may_have_an_address_of_the_newer_kind() -> None:
    async with scripted_http_server(answer_every_request, host="::1") as server, pooled() as pool:
        assert await fetch(pool, server.url) == (200, b"ok")
        assert server.received[0].headers["host"] == f"[::1]:{server.port}"


@either_loop
async def test_no_descriptor_is_left() -> None:
    async def some(many: int) -> None:
        async with scripted_http_server(answer_every_request) as server:
            async with pooled() as pool:
                await asyncio.gather(*(fetch(pool, server.url) for _ in range(many)))
            await until(lambda: server.open == 0)

    await some(1)  # whatever a loop opens once for itself
    before = descriptors()
    await some(30)
    await until(lambda: descriptors() <= before)


@live
async def test_only_so_many_urls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_TARGETS", 3)
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        for number in range(10):
            await fetch(pool, f"{server.url}/{number}")
        assert len(pool._targets) <= 3
        assert [request.path for request in server.received] == [f"/mcp/{n}" for n in range(10)]
