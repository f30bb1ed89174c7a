"""Our HTTP client over TLS, with certificates that are made here, in both loops."""

import asyncio
from pathlib import Path

import pytest

from certificates import Authority
from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.http_client.pool import HttpPool
from live import until
from scripted_http_server import (
    AcceptedConnection,
    chunk,
    either_loop,
    http_response,
    response_head,
    scripted_http_server,
)

LIMIT = 64 * 1024 * 1024


async def answering(connection: AcceptedConnection) -> None:
    while True:
        await connection.receive()
        await connection.send(http_response(200, b"ok"))


async def fetch(pool: HttpPool, url: str) -> bytes:
    async with await pool.send("POST", url, [], b"{}") as answer:
        return await answer.read_all(LIMIT)


@either_loop
async def test_a_server_with_a_trusted_certificate_is_spoken_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with scripted_http_server(answering, context=authority.serving("127.0.0.1")) as server:
        assert server.url.startswith("https://")
        for _ in range(3):
            assert await fetch(pool, server.url) == b"ok"
        assert (server.connection_count, pool.idle) == (1, 1)
        await pool.close()
        await until(lambda: server.open == 0)
    assert repr(pool) == "HttpPool(0 connections, 0 idle)"


@either_loop
async def test_a_file_of_certificates_can_be_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    async with scripted_http_server(answering, context=authority.serving("127.0.0.1")) as server:
        pool = HttpPool(environ={})
        with pytest.raises(CannotConnect):
            await fetch(pool, server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        pool = HttpPool(environ={})
        assert await fetch(pool, server.url) == b"ok"
        await pool.close()


@either_loop
async def test_a_certificate_that_nobody_trusts_ends_it_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    pool = HttpPool(environ={})
    async with scripted_http_server(
        answering, context=Authority(tmp_path).serving("127.0.0.1")
    ) as server:
        words = r"the certificate of 127\.0\.0\.1:\d+ is not trusted: \w+"
        with pytest.raises(CannotConnect, match=words) as raised:
            await fetch(pool, server.url)
        assert raised.value.not_sent
        assert server.received == []
    await pool.close()


@either_loop
async def test_a_certificate_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with scripted_http_server(answering, context=authority.serving("other.test")) as server:
        with pytest.raises(CannotConnect, match=r"is not trusted: .*not valid for '127"):
            await fetch(pool, server.url)
        assert server.received == []
    await pool.close()


@either_loop
async def test_a_server_without_tls_is_said_to_have_none() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.reader.read(1)
        await connection.send(http_response(400, b"plain HTTP only"))

    pool = HttpPool(environ={})
    async with scripted_http_server(handler) as server:
        words = "TLS failed: wrong version number; this port does not speak TLS: use http://"
        with pytest.raises(CannotConnect, match=words):
            await fetch(pool, server.url.replace("http:", "https:"))
    await pool.close()


@either_loop
async def test_a_server_that_does_not_agree_on_keys_is_waited_for_only_so_long() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.reader.read()

    pool = HttpPool(connect_s=0.1, environ={})
    async with scripted_http_server(handler) as server:
        with pytest.raises(CannotConnect, match=r"did not answer within 0\.1 s"):
            await fetch(pool, server.url.replace("http:", "https:"))
        await until(lambda: server.connection_count == 1 and server.open == 0)
    await pool.close()


@either_loop
async def test_giving_up_closes_the_connection_under_tls_too(tmp_path: Path) -> None:
    async def handler(connection: AcceptedConnection) -> None:
        request = await connection.receive()
        if request.path == "/begun":
            await connection.send(response_head(200, "Transfer-Encoding: chunked"), chunk(b"x"))
        await connection.wait_closed()

    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with scripted_http_server(handler, context=authority.serving("127.0.0.1")) as server:
        for number, path in enumerate(("/silent", "/begun")):
            calling = asyncio.create_task(fetch(pool, server.url.replace("/mcp", path)))
            await server.wait_for_requests(number + 1)
            calling.cancel()
            await asyncio.wait([calling])
            await until(lambda: server.open == 0)
            assert pool._all == set()
    await pool.close()


@either_loop
async def test_a_large_answer_arrives_whole_under_tls_and_a_cut_one_does_not(
    tmp_path: Path,
) -> None:
    body = bytes(range(256)) * 20_000

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            answer = http_response(200, body)
            await connection.send(answer if request.path == "/whole" else answer[:-1])
            if request.path == "/cut":
                return

    authority = Authority(tmp_path)
    pool = HttpPool(context=authority.trusting(), environ={})
    async with scripted_http_server(handler, context=authority.serving("127.0.0.1")) as server:
        url = server.url.removesuffix("/mcp")
        assert await fetch(pool, f"{url}/whole") == body
        assert await fetch(pool, f"{url}/whole") == body
        with pytest.raises(ConnectionLost, match="the response was cut off"):
            await fetch(pool, f"{url}/cut")
        assert server.connection_count == 1
    await pool.close()
