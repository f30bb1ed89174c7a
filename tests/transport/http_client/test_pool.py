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
    Visitor,
    answering,
    by_hand,
    chunk,
    descriptors,
    either_loop,
    fetch,
    head,
    pooled,
    whole,
)

# ---------------------------------------------------------------- what is sent


@either_loop
async def test_a_request_is_written_as_it_was_given() -> None:
    async with by_hand(answering) as hand, pooled() as pool:
        url = f"{hand.url}?a=1&b=%20#part"
        async with await pool.send("POST", url, [("X-One", "1"), ("x-two", "zwei \xfc")], b"body"):
            pass
        async with await pool.send("DELETE", hand.url, []):
            pass
    posted, deleted = hand.heard
    assert posted.method == "POST"
    assert posted.path == "/mcp?a=1&b=%20"
    assert posted.body == b"body"
    assert posted.headers == {
        "host": f"127.0.0.1:{hand.port}",
        "x-one": "1",
        "x-two": "zwei \xfc",
        "content-length": "4",
    }
    assert deleted.method == "DELETE"
    assert "content-length" not in deleted.headers


# ---------------------------------------------------------------- connections


@either_loop
async def test_a_connection_is_used_again_and_a_second_one_only_beside_it() -> None:
    async with by_hand(answering) as hand, pooled() as pool:
        for _ in range(3):
            await fetch(pool, hand.url)
        assert (hand.visits, pool.idle) == (1, 1)
        await asyncio.gather(*(fetch(pool, hand.url) for _ in range(4)))
        assert (hand.visits, pool.idle) == (4, 4)


@either_loop
async def test_only_so_many_connections_are_kept() -> None:
    many = http_client.IDLE_CONNECTIONS + 3
    async with by_hand(answering) as hand, pooled() as pool:
        answers = await asyncio.gather(*(pool.send("GET", hand.url, []) for _ in range(many)))
        for answer in answers:
            assert await answer.read_all(LIMIT) == b"ok"
        for answer in answers:
            answer.close()
        assert pool.idle == http_client.IDLE_CONNECTIONS
        await until(lambda: hand.open == http_client.IDLE_CONNECTIONS)


@either_loop
async def test_a_connection_that_was_idle_for_long_is_closed_and_not_used() -> None:
    async with by_hand(answering) as hand, pooled(idle_s=0.05) as pool:
        await fetch(pool, hand.url)
        await until(lambda: pool.idle == 0 and hand.open == 0)
        await fetch(pool, hand.url)
        assert hand.visits == 2


@live
async def test_a_connection_is_too_old_even_before_anybody_has_tidied_up() -> None:
    async with by_hand(answering) as hand, pooled(idle_s=3600) as pool:
        await fetch(pool, hand.url)
        pool._idle_s = 0.0
        await fetch(pool, hand.url)
        assert hand.visits == 2


@either_loop
async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(OK)

    async with by_hand(play) as hand, pooled() as pool:
        for _ in range(3):
            assert await fetch(pool, hand.url) == (200, b"ok")
            await until(lambda: pool.idle == 0)
        assert hand.visits == 3


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
async def test_a_server_may_say_that_it_closes() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(whole(200, b"ok", "text/plain", "Connection: close"))
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (200, b"ok")
        assert await fetch(pool, hand.url) == (200, b"ok")
        assert (hand.visits, pool.idle) == (2, 0)


@either_loop
async def test_an_offer_to_speak_something_else_is_only_an_offer() -> None:
    async def play(visitor: Visitor) -> None:
        while True:
            await visitor.hears()
            await visitor.say(whole(200, b"ok", "", "Connection: Upgrade", "Upgrade: h2c"))

    async with by_hand(play) as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (200, b"ok")
        assert await fetch(pool, hand.url) == (200, b"ok")


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

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        if late:
            await visitor.say(OK)
            await spoken.wait()
            await visitor.say(surplus)
        else:
            await visitor.say(OK, surplus)
        await visitor.gone()

    async with by_hand(play) as hand, pooled(idle_s=3600) as pool:
        assert await fetch(pool, hand.url) == (200, b"ok")
        spoken.set()
        await until(lambda: hand.open == 0)
        assert hand.left.is_set()
        assert pool.idle == 0


@either_loop
async def test_a_connection_with_a_request_that_was_not_read_is_not_used_again() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", visitor.writer.transport).pause_reading()
        await visitor.say(whole(413, b"too much"))
        await asyncio.sleep(3600)

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("POST", hand.url, [], b"x" * 50_000_000) as answer:
            assert answer.status == 413
            assert await answer.read_all(LIMIT) == b"too much"
        assert pool.idle == 0


@either_loop
async def test_an_answer_that_is_left_before_its_end_may_end_by_itself() -> None:
    ending = asyncio.Event()

    async def play(visitor: Visitor) -> None:
        while True:
            await visitor.hears()
            await visitor.say(head(200, "Transfer-Encoding: chunked"), chunk(b"all there is"))
            await ending.wait()
            await visitor.say(chunk(b"bye"), b"0\r\n\r\n")

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []) as answer:
            assert await answer.read() == b"all there is"
            answer.linger()
            answer.linger()
        assert pool.idle == 0
        ending.set()
        await until(lambda: pool.idle == 1)
        await fetch(pool, hand.url)
        assert hand.visits == 1


@either_loop
async def test_an_answer_that_does_not_end_is_closed_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_answer, "LINGER_S", 0.05)

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        answer = await pool.send("GET", hand.url, [])
        answer.linger()
        await until(hand.left.is_set)


# ---------------------------------------------------------------- giving up


@either_loop
async def test_giving_up_before_the_headers_closes_the_connection_at_once() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        sending = asyncio.create_task(pool.send("POST", hand.url, [], b"{}"))
        await hand.hears(1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await until(hand.left.is_set)
        assert pool._all == set()
        assert hand.open == 0


@either_loop
async def test_giving_up_in_the_middle_closes_the_connection_at_once() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        reading = asyncio.create_task(fetch(pool, hand.url))
        await hand.hears(1)
        await until(lambda: bool(pool._all))
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await until(hand.left.is_set)
        assert pool._all == set()


@either_loop
async def test_leaving_an_answer_unread_closes_its_connection_at_once() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(head(200, "Content-Length: 9"), b"x")
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []):
            pass
        await until(hand.left.is_set)
        assert pool.idle == 0


@either_loop
async def test_nothing_is_remembered_of_what_was_given_up() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.gone()

    kept: list[weakref.ref[Any]] = []
    sending: asyncio.Task[Any] | None = None
    async with by_hand(play) as hand, pooled() as pool:
        for number in range(20):
            sending = asyncio.create_task(pool.send("GET", hand.url, []))
            await hand.hears(number + 1)
            kept += [weakref.ref(one) for one in pool._all]
            sending.cancel()
            await asyncio.wait([sending])
        await until(lambda: hand.open == 0)
        assert pool._all == set()
        sending = None
        gc.collect()
        assert [one() for one in kept if one() is not None] == []


@either_loop
async def test_closing_the_pool_ends_whoever_waits_reads_or_connects() -> None:
    async def play(visitor: Visitor) -> None:
        heard = await visitor.hears()
        if heard.method == "GET":
            await visitor.say(head(200, "Content-Length: 9"), b"x")
        await visitor.gone()

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
        async with by_hand(play) as hand:
            waiting = asyncio.create_task(pool.send("POST", hand.url, []))
            answer = await pool.send("GET", hand.url, [])
            assert await answer.read() == b"x"
            reading = asyncio.create_task(answer.read())
            await hand.hears(2)
            await until(lambda: bool(pool._connecting))
            await asyncio.gather(pool.close(), pool.close())
            for task in (connecting, waiting, reading):
                with pytest.raises(ConnectionLost, match="the client was closed"):
                    await task
            await until(lambda: hand.open == 0)
        for one in filler:
            one.close()
    with pytest.raises(ConnectionLost, match="the client was closed"):
        await pool.send("GET", "http://127.0.0.1:1/", [])
    await pool.close()


@either_loop
async def test_a_pool_that_is_closed_while_a_connection_is_made_uses_it_no_more() -> None:
    async with by_hand(answering) as hand:
        pool = HttpPool(environ={})
        sending = asyncio.create_task(pool.send("GET", hand.url, []))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ConnectionLost):
            await sending
        await until(lambda: pool._all == set() and len(asyncio.all_tasks()) == 1)
        assert hand.heard == []


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
    async with by_hand(answering, host="::1") as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (200, b"ok")
        assert hand.heard[0].headers["host"] == f"[::1]:{hand.port}"


@either_loop
async def test_no_descriptor_is_left() -> None:
    async def some(many: int) -> None:
        async with by_hand(answering) as hand:
            async with pooled() as pool:
                await asyncio.gather(*(fetch(pool, hand.url) for _ in range(many)))
            await until(lambda: hand.open == 0)

    await some(1)  # whatever a loop opens once for itself
    before = descriptors()
    await some(30)
    await until(lambda: descriptors() <= before)


@live
async def test_only_so_many_urls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_TARGETS", 3)
    async with by_hand(answering) as hand, pooled() as pool:
        for number in range(10):
            await fetch(pool, f"{hand.url}/{number}")
        assert len(pool._targets) <= 3
        assert [heard.path for heard in hand.heard] == [f"/mcp/{n}" for n in range(10)]
