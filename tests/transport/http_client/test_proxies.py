"""Proxies: which one the environment names, and how our client passes through a real one."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from certificates import Authority
from colonnade.errors import CannotConnect, LocalProtocolError
from colonnade.transport.http_client.connect import MAX_REPLY_BYTES, Proxy, proxy_for
from colonnade.transport.http_client.pool import HttpPool
from live import until
from scripted_http_server import (
    AcceptedConnection,
    ScriptedHttpServer,
    either_loop,
    http_response,
    scripted_http_server,
)

# A name that leads nowhere but through a proxy that knows it.
NAME = "server.test"
TUNNEL = b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n"


# ---------------------------------------------------------------- which one


@pytest.mark.parametrize(
    ("scheme", "environ", "found"),
    [
        ("https", {}, None),
        ("https", {"HTTPS_PROXY": "http://a:1"}, "a:1"),
        ("https", {"HTTPS_PROXY": "a:1"}, "a:1"),
        ("https", {"HTTPS_PROXY": "http://a"}, "a:80"),
        ("https", {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"}, "b:2"),
        ("https", {"HTTPS_PROXY": "", "ALL_PROXY": "http://c:3"}, "c:3"),
        ("https", {"HTTP_PROXY": "http://a:1"}, None),
        ("http", {"HTTP_PROXY": "http://a:1"}, "a:1"),
        ("http", {"HTTPS_PROXY": "http://a:1"}, None),
        ("http", {"all_proxy": "http://c:3"}, "c:3"),
        ("http", {"http_proxy": "http://a:1", "ALL_PROXY": "http://c:3"}, "a:1"),
        # In the child of a web server, the first of these is a header of a stranger's request.
        ("http", {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, None),
        ("http", {"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "a:1"),
    ],
)
def test_the_environment_names_the_proxy(
    scheme: str, environ: dict[str, str], found: str | None
) -> None:
    proxy = proxy_for(scheme, "example.com", 443, environ)
    assert (None if proxy is None else f"{proxy.host}:{proxy.port}") == found


@pytest.mark.parametrize(
    ("host", "direct"),
    [
        ("localhost", True),
        ("app.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("127.evil.example", False),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
    ],
)
def test_this_machine_is_never_asked_for_through_a_proxy(host: str, direct: bool) -> None:
    assert (proxy_for("http", host, 80, {"http_proxy": "http://a:1"}) is None) is direct


@pytest.mark.parametrize(
    ("listed", "host", "direct"),
    [
        ("example.com", "example.com", True),
        ("example.com", "api.example.com", True),
        ("example.com", "badexample.com", False),
        ("example.com", "example.com.evil", False),
        (".example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        ("EXAMPLE.com", "example.com", True),
        ("example.com", "example.com.", True),
        ("a, b ,example.com", "example.com", True),
        ("a b example.com", "example.com", True),
        ("*", "anything.at.all", True),
        ("", "example.com", False),
        (" , ,", "example.com", False),
        ("example.com:443", "example.com", True),
        ("example.com:444", "example.com", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:1", "10.1.2.3", False),
        ("fd00::1", "fd00::1", True),
        ("fd00::2", "fd00::1", False),
        ("[fd00::1]", "fd00::1", True),
        ("[fd00::1]:443", "fd00::1", True),
        ("[fd00::1]:1", "fd00::1", False),
        ("fd00::/8", "fd00::1", True),
        ("example.com/24", "example.com", False),
    ],
)
def test_no_proxy_lists_who_is_reached_directly(listed: str, host: str, direct: bool) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        environ = {"https_proxy": "http://a:1", name: listed}
        assert (proxy_for("https", host, 443, environ) is None) is direct


@pytest.mark.parametrize(
    "url",
    [
        "socks5://ann:s3cret@a:1",
        "https://ann:s3cret@a:1",
        "http://ann:s3cret@",
        "http://ann:s3cret@a:0",
        "http://ann:s3cret@a:port",
        "http://ann:s3cr/et@a:1",
        "http://[ann:s3cret",
    ],
)
def test_a_proxy_that_is_none_is_named_by_its_variable_alone(url: str) -> None:
    with pytest.raises(
        LocalProtocolError, match=r"^HTTPS_PROXY is not the URL of an HTTP proxy"
    ) as raised:
        proxy_for("https", "example.com", 443, {"HTTPS_PROXY": url})
    assert "s3c" not in str(raised.value)
    assert "s3c" not in repr(raised.value.__cause__)


def test_the_password_of_a_proxy_is_decoded_and_shown_nowhere() -> None:
    proxy = Proxy("http://ann:p%40ss@host:1")
    assert proxy.headers == [
        ("proxy-authorization", "Basic " + base64.b64encode(b"ann:p@ss").decode())
    ]
    assert repr(proxy) == "Proxy(host:1)"


# ---------------------------------------------------------------- through it


@asynccontextmanager
async def relaying(port: int) -> AsyncGenerator[ScriptedHttpServer]:
    """A proxy that knows one server, at a port of this machine."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def handler(connection: AcceptedConnection) -> None:
        request = await connection.receive()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            if request.method == "CONNECT":
                await connection.send(TUNNEL)
                both = (pump(connection.reader, writer), pump(reader, connection.writer))
                await asyncio.gather(*both)
                return
            while True:
                path = request.path.removeprefix(f"http://{NAME}")
                lines = [f"{request.method} {path} HTTP/1.1"]
                lines += [
                    f"{n}: {v}" for n, v in request.headers.items() if not n.startswith("proxy-")
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + request.body)
                await connection.send(await reader.readuntil(b"ok"))
                request = await connection.receive()
        finally:
            writer.transport.abort()

    async with scripted_http_server(handler) as server:
        yield server


async def answering(connection: AcceptedConnection) -> None:
    while True:
        await connection.receive()
        await connection.send(http_response(200, b"ok"))


async def fetch(pool: HttpPool, url: str) -> bytes:
    async with await pool.send("POST", url, [("authorization", "Bearer t")], b"{}") as answer:
        return await answer.read_all(1000)


@either_loop
async def test_https_goes_through_a_tunnel_that_sees_none_of_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        scripted_http_server(answering, context=authority.serving(NAME)) as server,
        relaying(server.port) as proxy,
    ):
        environ = {"HTTPS_PROXY": f"http://ann:s3cret@127.0.0.1:{proxy.port}"}
        pool = HttpPool(context=authority.trusting(), environ=environ)
        for _ in range(3):
            assert await fetch(pool, f"https://{NAME}/mcp") == b"ok"
        (connect,) = proxy.received
        assert (connect.method, connect.path) == ("CONNECT", f"{NAME}:443")
        assert connect.headers == {
            "host": f"{NAME}:443",
            "proxy-authorization": "Basic " + base64.b64encode(b"ann:s3cret").decode(),
        }
        assert [one.path for one in server.received] == ["/mcp"] * 3
        assert server.received[0].headers["host"] == NAME
        assert "proxy-authorization" not in server.received[0].headers
        assert (server.connection_count, pool.idle) == (1, 1)
        await pool.close()
        await until(lambda: proxy.open == 0)


@either_loop
async def test_a_certificate_is_checked_through_a_tunnel_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        scripted_http_server(answering, context=authority.serving("other.test")) as server,
        relaying(server.port) as proxy,
    ):
        pool = HttpPool(
            context=authority.trusting(), environ={"https_proxy": f"127.0.0.1:{proxy.port}"}
        )
        with pytest.raises(CannotConnect, match=f"the certificate of {NAME} is not trusted"):
            await fetch(pool, f"https://{NAME}/mcp")
        assert server.received == []
        await until(lambda: proxy.open == 0)
        await pool.close()


@either_loop
async def test_http_is_asked_of_the_proxy_by_its_whole_url() -> None:
    async with scripted_http_server(answering) as server, relaying(server.port) as proxy:
        pool = HttpPool(environ={"http_proxy": f"http://ann:s3cret@127.0.0.1:{proxy.port}"})
        for _ in range(3):
            assert await fetch(pool, f"http://{NAME}/mcp?a=b") == b"ok"
        first = proxy.received[0]
        assert first.path == f"http://{NAME}/mcp?a=b"
        assert first.headers["host"] == NAME
        assert first.headers["proxy-authorization"].startswith("Basic ")
        assert server.received[0].path == "/mcp?a=b"
        assert proxy.connection_count == 1
        await pool.close()
        await until(lambda: proxy.open == 0)


@either_loop
async def test_who_is_listed_is_reached_directly() -> None:
    async with scripted_http_server(answering) as server:
        environ = {"ALL_PROXY": "http://127.0.0.1:1", "NO_PROXY": "*"}
        pool = HttpPool(environ=environ)
        assert await fetch(pool, server.url) == b"ok"
        await pool.close()


REFUSALS = {
    "wants a password": (
        http_response(407, b"who?"),
        r"the proxy requires other credentials \(407\)",
    ),
    "forbids it": (http_response(403, b"no"), "the proxy answered '403'"),
    "cannot": (b"HTTP/1.1 502\r\n\r\n", "the proxy answered '502'"),
    "says nothing sensible": (b"what\r\n\r\n", "the proxy answered 'nothing'"),
    "answers in another way": (b"SSH-2.0 200 OK\r\n\r\n", "the proxy answered '200'"),
    "says too much": (b"x" * (MAX_REPLY_BYTES + 1), "the proxy does not speak HTTP"),
    "hangs up": (b"", "the proxy closed the connection"),
}


@pytest.mark.parametrize("refusal", list(REFUSALS.values()), ids=list(REFUSALS))
@either_loop
async def test_a_proxy_that_does_not_let_us_through_is_said_so(refusal: tuple[bytes, str]) -> None:
    said, words = refusal

    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(said)
        if said:
            await connection.wait_closed()

    async with scripted_http_server(handler) as proxy:
        pool = HttpPool(environ={"HTTPS_PROXY": f"http://ann:s3cret@127.0.0.1:{proxy.port}"})
        with pytest.raises(CannotConnect, match=f"{NAME} cannot be reached: {words}") as raised:
            await fetch(pool, f"https://{NAME}/mcp")
        shown = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
        assert "s3cret" not in shown
        assert base64.b64encode(b"ann:s3cret").decode() not in shown
        await until(lambda: proxy.open == 0)
        await pool.close()


@either_loop
async def test_a_proxy_that_is_silent_is_waited_for_only_so_long() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.wait_closed()

    async with scripted_http_server(handler) as proxy:
        pool = HttpPool(connect_s=0.1, environ={"HTTPS_PROXY": f"127.0.0.1:{proxy.port}"})
        with pytest.raises(CannotConnect, match=r"did not answer within 0\.1 s"):
            await fetch(pool, f"https://{NAME}/mcp")
        await until(lambda: proxy.open == 0)
        await pool.close()


@either_loop
async def test_giving_up_on_the_way_through_a_proxy_leaves_nothing(tmp_path: Path) -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(TUNNEL)
        await connection.reader.readexactly(1)
        waiting.set()
        await connection.reader.read()

    waiting = asyncio.Event()
    async with scripted_http_server(handler) as proxy:
        pool = HttpPool(environ={"HTTPS_PROXY": f"127.0.0.1:{proxy.port}"})
        calling = asyncio.create_task(fetch(pool, f"https://{NAME}/mcp"))
        await waiting.wait()
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await until(lambda: proxy.open == 0)
        await pool.close()


@either_loop
async def test_a_proxy_that_is_not_there_is_said_so() -> None:
    pool = HttpPool(environ={"ALL_PROXY": "http://ann:s3cret@127.0.0.1:1"})
    for url in (f"https://{NAME}/mcp", f"http://{NAME}/mcp"):
        with pytest.raises(CannotConnect, match=f"{NAME} cannot be reached") as raised:
            await fetch(pool, url)
        assert "s3cret" not in repr(raised.value)
    await pool.close()
