"""Our HTTP client over TLS, with certificates that are made here, in both loops."""

import asyncio
from pathlib import Path

import pytest

from certificates import Authority
from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.http_client.pool import HttpPool
from live import until
from scripted_http_server import Visitor, by_hand, chunk, either_loop, head, whole

LIMIT = 64 * 1024 * 1024


async def answering(visitor: Visitor) -> None:
    while True:
        await visitor.hears()
        await visitor.say(whole(200, b"ok"))


async def fetch(pool: HttpPool, url: str) -> bytes:
    async with await pool.send("POST", url, [], b"{}") as answer:
        return await answer.read_all(LIMIT)


@either_loop
async def test_a_server_with_a_trusted_certificate_is_spoken_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with by_hand(answering, context=authority.serving("127.0.0.1")) as hand:
        assert hand.url.startswith("https://")
        for _ in range(3):
            assert await fetch(pool, hand.url) == b"ok"
        assert (hand.visits, pool.idle) == (1, 1)
        await pool.close()
        await until(lambda: hand.open == 0)
    assert repr(pool) == "HttpPool(0 connections, 0 idle)"


@either_loop
async def test_a_file_of_certificates_can_be_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    async with by_hand(answering, context=authority.serving("127.0.0.1")) as hand:
        pool = HttpPool(environ={})
        with pytest.raises(CannotConnect):
            await fetch(pool, hand.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        pool = HttpPool(environ={})
        assert await fetch(pool, hand.url) == b"ok"
        await pool.close()


@either_loop
async def test_a_certificate_that_nobody_trusts_ends_it_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    pool = HttpPool(environ={})
    async with by_hand(answering, context=Authority(tmp_path).serving("127.0.0.1")) as hand:
        words = r"the certificate of 127\.0\.0\.1:\d+ is not trusted: \w+"
        with pytest.raises(CannotConnect, match=words) as raised:
            await fetch(pool, hand.url)
        assert raised.value.not_sent
        assert hand.heard == []
    await pool.close()


@either_loop
async def test_a_certificate_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with by_hand(answering, context=authority.serving("other.test")) as hand:
        with pytest.raises(CannotConnect, match=r"is not trusted: .*not valid for '127"):
            await fetch(pool, hand.url)
        assert hand.heard == []
    await pool.close()


@either_loop
async def test_a_server_without_tls_is_said_to_have_none() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.reader.read(1)
        await visitor.say(whole(400, b"plain HTTP only"))

    pool = HttpPool(environ={})
    async with by_hand(play) as hand:
        words = "TLS failed: wrong version number; this port does not speak TLS: use http://"
        with pytest.raises(CannotConnect, match=words):
            await fetch(pool, hand.url.replace("http:", "https:"))
    await pool.close()


@either_loop
async def test_a_server_that_does_not_agree_on_keys_is_waited_for_only_so_long() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.reader.read()

    pool = HttpPool(connect_s=0.1, environ={})
    async with by_hand(play) as hand:
        with pytest.raises(CannotConnect, match=r"did not answer within 0\.1 s"):
            await fetch(pool, hand.url.replace("http:", "https:"))
        await until(lambda: hand.visits == 1 and hand.open == 0)
    await pool.close()


@either_loop
async def test_giving_up_closes_the_connection_under_tls_too(tmp_path: Path) -> None:
    async def play(visitor: Visitor) -> None:
        heard = await visitor.hears()
        if heard.path == "/begun":
            await visitor.say(head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await visitor.gone()

    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with by_hand(play, context=authority.serving("127.0.0.1")) as hand:
        for number, path in enumerate(("/silent", "/begun")):
            calling = asyncio.create_task(fetch(pool, hand.url.replace("/mcp", path)))
            await hand.hears(number + 1)
            calling.cancel()
            await asyncio.wait([calling])
            await until(lambda: hand.open == 0)
            assert pool._all == set()
    await pool.close()


@either_loop
async def test_a_large_answer_arrives_whole_under_tls_and_a_cut_one_does_not(
    tmp_path: Path,
) -> None:
    body = bytes(range(256)) * 20_000

    async def play(visitor: Visitor) -> None:
        while True:
            heard = await visitor.hears()
            answer = whole(200, body)
            await visitor.say(answer if heard.path == "/whole" else answer[:-1])
            if heard.path == "/cut":
                return

    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with by_hand(play, context=authority.serving("127.0.0.1")) as hand:
        url = hand.url.removesuffix("/mcp")
        assert await fetch(pool, f"{url}/whole") == body
        assert await fetch(pool, f"{url}/whole") == body
        with pytest.raises(ConnectionLost, match="the response was cut off"):
            await fetch(pool, f"{url}/cut")
        assert hand.visits == 1
    await pool.close()
