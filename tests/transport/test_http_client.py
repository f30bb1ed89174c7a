"""Our HTTP client against servers that are written by hand, over real sockets, in both loops."""

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from http_hand import Visitor, by_hand, chunk, descriptors, either_loop, head, whole
from live import live, until
from portico.errors import (
    CannotConnect,
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
)
from portico.transport import http_answer, http_client
from portico.transport.http_client import HttpPool
from portico.transport.http_request import Target, written

LIMIT = 64 * 1024 * 1024
OK = whole(200, b"ok", "text/plain")


@contextlib.asynccontextmanager
async def pooled(**options: Any) -> AsyncGenerator[HttpPool]:
    """A pool that leaves nothing behind."""
    options.setdefault("environ", {})
    pool = HttpPool(**options)
    try:
        yield pool
    finally:
        await pool.close()
    assert repr(pool) == "HttpPool(0 connections, 0 idle)"


async def fetch(pool: HttpPool, url: str, **options: Any) -> tuple[int, bytes]:
    async with await pool.send("GET", url, [], **options) as answer:
        return answer.status, await answer.whole(LIMIT)


async def answering(visitor: Visitor) -> None:
    while True:
        await visitor.hears()
        await visitor.say(OK)


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


@pytest.mark.parametrize(
    "header",
    [
        ("x", "a\r\nb: c"),
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        ("x", "a\x7fb"),
        ("x\r\ny", "a"),
        ("x: y", "a"),
        ("x y", "a"),
        ("", "a"),
        ("x:", "a"),
        ("ü", "a"),
        ("x", "€"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("HOST", "elsewhere"),
        ("Connection", "close"),
        ("Expect", "100-continue"),
    ],
)
def test_what_would_break_the_frame_of_a_request_is_refused(header: tuple[str, str]) -> None:
    target = Target("http://127.0.0.1/mcp", {})
    with pytest.raises(LocalProtocolError, match="a header has") as raised:
        written("POST", target, [("fine", "yes"), header], b"")
    assert "elsewhere" not in str(raised.value)
    assert written("POST", target, [("fine", "yes"), ("hostess", "a\tb")], b"").endswith(b"\r\n")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp",
        "ftp://example.com/x",
        "//example.com/x",
        "http://",
        "http:///x",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:s3cret/",
        "http://[::1/",
        "http://ann:s3cret@example.com/",
        "http://ann:s3cret",
        "http://example.com/a b",
        "http://example.com/a\r\nx: y",
        "http://example.com/\tx",
        "http://exämple.com/",
        "http://example.com/\x7f",
        "stdio:server",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        Target(url, {})
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "authority", "path", "origin"),
    [
        ("http://Example.COM", "example.com", "/", ("http", "example.com", 80)),
        ("https://example.com:443/a?b", "example.com", "/a?b", ("https", "example.com", 443)),
        ("http://example.com:443/", "example.com:443", "/", ("http", "example.com", 443)),
        ("http://[::1]:8000/x#y", "[::1]:8000", "/x", ("http", "::1", 8000)),
    ],
)
def test_a_url_is_an_origin_and_a_path(
    url: str, authority: str, path: str, origin: tuple[str, str, int]
) -> None:
    target = Target(url, {})
    assert (target.authority, target.path, target.origin) == (authority, path, origin)


# ---------------------------------------------------------------- what comes back


@either_loop
async def test_an_answer_has_a_status_headers_and_a_body() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(
            whole(404, b"no", "Text/Plain; charset=x", "X-A: 1", "x-a:  2 ", "X-Z: \xfc")
        )

    async with by_hand(play) as hand, pooled() as pool:
        answer = await pool.send("GET", hand.url, [])
        async with answer:
            assert answer.status == 404
            assert repr(answer) == "Answer(404)"
            assert answer.media == "text/plain"
            assert (answer.header("x-a"), answer.header("x-z")) == ("1, 2", "ü")
            assert answer.header("x-none") is None
            assert await answer.read() == b"no"
            assert await answer.read() == b""


SAID: dict[str, tuple[bytes, int, bytes]] = {
    "with a length": (whole(200, b"abc"), 200, b"abc"),
    "in chunks": (
        head(200, "Transfer-Encoding: chunked") + chunk(b"ab") + chunk(b"c") + b"0\r\n\r\n",
        200,
        b"abc",
    ),
    "in chunks with words beside them": (
        head(200, "transfer-encoding: Chunked") + b"3;x=y\r\nabc\r\n0\r\nX-Late: 1\r\n\r\n",
        200,
        b"abc",
    ),
    "after it went on": (
        head(100) + head(103, "Link: x", "Content-Length: 7") + whole(200, b"abc"),
        200,
        b"abc",
    ),
    "without a body": (head(204), 204, b""),
    "without a body, though it has a length": (head(304, "Content-Length: 7"), 304, b""),
    "with an empty body": (whole(200), 200, b""),
    "without a reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
}


@pytest.mark.parametrize("said", list(SAID.values()), ids=list(SAID))
@either_loop
async def test_every_kind_of_body_is_read_and_its_connection_is_kept(
    said: tuple[bytes, int, bytes],
) -> None:
    data, status, body = said

    async def play(visitor: Visitor) -> None:
        while True:
            await visitor.hears()
            await visitor.say(data)

    async with by_hand(play) as hand, pooled() as pool:
        for _ in range(3):
            assert await fetch(pool, hand.url) == (status, body)
        assert hand.visits == 1
        assert pool.idle == 1


@pytest.mark.parametrize("said", list(SAID.values()), ids=list(SAID))
@live
async def test_an_answer_may_come_byte_by_byte(said: tuple[bytes, int, bytes]) -> None:
    data, status, body = said

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        for byte in data:
            await visitor.say(bytes([byte]))
            await asyncio.sleep(0)

    async with by_hand(play) as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (status, body)


@either_loop
async def test_what_trails_a_body_is_no_header() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(head(200, "Transfer-Encoding: chunked") + chunk(b"x"))
        await visitor.say(b"0\r\nX-Late: 1\r\n\r\n")

    async with by_hand(play) as hand, pooled() as pool:
        answer = await pool.send("GET", hand.url, [])
        async with answer:
            assert await answer.whole(LIMIT) == b"x"
            assert answer.header("x-late") is None


@either_loop
async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(b"HTTP/1.0 200 OK\r\n\r\nabc")

    async with by_hand(play) as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (200, b"abc")
        assert pool.idle == 0


@either_loop
async def test_an_answer_may_begin_with_more_than_all_headers_may_hold() -> None:
    body = b"x" * (4 * http_answer.HEAD_BYTES)

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(whole(200, body))

    async with by_hand(play) as hand, pooled() as pool:
        assert await fetch(pool, hand.url) == (200, body)


@either_loop
async def test_a_request_may_be_large() -> None:
    body = b"x" * 8_000_000
    async with by_hand(answering) as hand, pooled() as pool:
        async with await pool.send("POST", hand.url, [], body) as answer:
            assert answer.status == 200
        assert hand.heard[0].body == body


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
            assert await answer.whole(LIMIT) == b"ok"
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

    async with by_hand(play) as hand, pooled() as pool:
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
            assert await answer.whole(LIMIT) == b"too much"
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


# ---------------------------------------------------------------- what goes wrong


CUT = {
    "in the length": head(200, "Content-Length: 9") + b"abc",
    "in a chunk": head(200, "Transfer-Encoding: chunked") + b"9\r\nabc",
    "between chunks": head(200, "Transfer-Encoding: chunked") + chunk(b"abc"),
}


@pytest.mark.parametrize("said", list(CUT.values()), ids=list(CUT))
@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
@either_loop
async def test_a_body_that_is_cut_is_not_taken_for_a_whole_one(said: bytes, rude: bool) -> None:
    read = asyncio.Event()

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(said)
        await read.wait()
        if rude:
            visitor.abort()

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []) as answer:
            assert await answer.read() == b"abc"
            read.set()
            with pytest.raises(
                ConnectionLost, match=r"127.0.0.1:\d+: the answer was cut: the server"
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
    "two lengths": head(200, "Content-Length: 1", "Content-Length: 2"),
    "a length and chunks": head(200, "Transfer-Encoding: chunked", "Content-Length: 2"),
    "a length below nothing": head(200, "Content-Length: -1"),
    "another protocol from here on": head(101, "Upgrade: websocket", "Connection: upgrade"),
    "zeros": b"\0" * 100,
}


@pytest.mark.parametrize("said", list(NO_HTTP.values()), ids=list(NO_HTTP))
@either_loop
async def test_what_is_no_http_is_said_so_at_once(said: bytes) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(said)
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        with pytest.raises(RemoteProtocolError, match=r"127.0.0.1:\d+: the server"):
            await pool.send("GET", hand.url, [])
        await until(hand.left.is_set)


@either_loop
async def test_a_server_that_speaks_first_is_no_http_server() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.say(b"220 mail.example.com ESMTP\r\n")
        await visitor.reader.read()

    async with by_hand(play) as hand, pooled() as pool:
        with pytest.raises((RemoteProtocolError, ConnectionLost)):
            await pool.send("GET", hand.url, [])


@pytest.mark.parametrize("said", [b"", head(100), head(200)[:-2]], ids=["nothing", "100", "half"])
@pytest.mark.parametrize("rude", [False, True], ids=["closed", "reset"])
@either_loop
async def test_a_connection_that_is_closed_before_the_headers_is_lost(
    said: bytes, rude: bool
) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(said)
        if rude:
            visitor.abort()

    async with by_hand(play) as hand, pooled() as pool:
        with pytest.raises(ConnectionLost, match="the server closed the connection") as raised:
            await pool.send("GET", hand.url, [])
        assert not raised.value.unheard


@either_loop
async def test_a_connection_that_is_closed_as_soon_as_it_stands_is_lost() -> None:
    async def play(visitor: Visitor) -> None:
        visitor.abort()

    async with by_hand(play) as hand, pooled() as pool:
        for _ in range(20):
            with pytest.raises((ConnectionLost, CannotConnect)):
                await pool.send("GET", hand.url, [])


HUGE = {
    "one header": [b"X: " + b"y" * 1000] * 1 + [b"y" * 1000] * 1000,
    "many headers": [b"X-%d: y\r\n" % number for number in range(100_000)],
    "the same header": [b"X: y\r\n"] * 100_000,
    "provisional answers": [head(100)] * 10_000,
}


@pytest.mark.parametrize("lines", list(HUGE.values()), ids=list(HUGE))
@either_loop
async def test_headers_have_a_limit(lines: list[bytes]) -> None:
    first = b"" if lines[0] == head(100) else b"HTTP/1.1 200 OK\r\n"

    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(first, *lines)
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        with pytest.raises(RemoteProtocolError, match="headers are larger than 65536 bytes"):
            await pool.send("GET", hand.url, [])
        await until(hand.left.is_set)


@either_loop
async def test_what_stands_between_pieces_of_a_body_has_a_limit() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.hears()
        await visitor.say(head(200, "Transfer-Encoding: chunked"), b"1;")
        await visitor.say(*[b"x" * 1000] * 1000)
        await visitor.gone()

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []) as answer:
            with pytest.raises(RemoteProtocolError, match="headers are larger"):
                await answer.read()
        await until(hand.left.is_set)


@pytest.mark.parametrize("declared", [True, False])
@either_loop
async def test_a_body_that_is_wanted_whole_has_a_limit(declared: bool) -> None:
    said = 0

    async def play(visitor: Visitor) -> None:
        nonlocal said
        await visitor.hears()
        framed = "Content-Length: 1000000000" if declared else "Transfer-Encoding: chunked"
        await visitor.say(head(200, framed))
        while True:
            await visitor.say(b"x" * 1000 if declared else chunk(b"x" * 1000))
            said += 1000

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []) as answer:
            with pytest.raises(RemoteProtocolError, match="the answer is larger than 10000 bytes"):
                await answer.whole(10_000)
        await until(lambda: hand.open == 0)


@either_loop
async def test_a_server_waits_for_a_reader_that_is_slow() -> None:
    """What nobody reads stays with the server, but for a bound and what the system buffers."""
    said, most = 0, 200_000_000

    async def play(visitor: Visitor) -> None:
        nonlocal said
        await visitor.hears()
        await visitor.say(head(200, f"Content-Length: {most}"))
        while said < most:
            await visitor.say(b"x" * 100_000)
            said += 100_000

    async with by_hand(play) as hand, pooled() as pool:
        async with await pool.send("GET", hand.url, []) as answer:
            before = -1
            while before != said:  # until it does not get on any more
                before = said
                for _ in range(50):
                    await asyncio.sleep(0.002)
            assert said < most / 2
            assert answer._size <= http_answer.UNREAD_BYTES + 300_000
            size = 0
            while data := await answer.read():
                size += len(data)
            assert size == most
        assert pool.idle == 1
        assert hand.visits == 1


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
        words = f"127.0.0.1:{port} cannot be reached: Connection refused"
        with pytest.raises(CannotConnect, match=words) as raised:
            await pool.send("GET", f"http://127.0.0.1:{port}/?key=s3cret", [])
        assert raised.value.unheard
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
