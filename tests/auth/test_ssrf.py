"""The guarded fetcher when it fetches: names, bounds, redirects, and errors that tell nothing."""

import asyncio
import ipaddress
from pathlib import Path

import pytest

from auth.connects import connects, dns
from certificates import Authority
from colonnade.auth.ssrf import MAX_REDIRECTS, Fetcher, blocked_reason, parse_networks
from colonnade.errors import CannotFetch, LocalProtocolError
from live import live
from scripted_http_server import (
    OK,
    AcceptedConnection,
    answer_every_request,
    either_loop,
    http_response,
    pooled,
    response_head,
    scripted_http_server,
)


async def why(fetcher: Fetcher, url: str, method: str = "GET") -> str:
    with pytest.raises(CannotFetch) as caught:
        await fetcher.fetch(method, url)
    return caught.value.why


@either_loop
async def test_a_document_on_this_machine_is_fetched_where_that_was_asked_for() -> None:
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        fetched = await Fetcher(pool.send, loopback=True).fetch("GET", server.url)
        assert (fetched.status, fetched.media_type, fetched.body) == (200, "text/plain", b"ok")
        assert fetched.url == server.url
        assert "is not a public address" in await why(
            Fetcher(pool.send), f"https://{server.url[7:]}"
        )


@live
async def test_what_is_sent_arrives_with_its_headers_and_any_status_is_an_answer() -> None:
    async def handler(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(http_response(400, b'{"error":"invalid_grant"}'))

    async with scripted_http_server(handler) as server, pooled() as pool:
        fetcher = Fetcher(pool.send, loopback=True)
        fetched = await fetcher.fetch("POST", server.url, [("accept", "application/json")], b"a=b")
    assert (fetched.status, fetched.media_type) == (400, "application/json")
    assert server.received[0].body == b"a=b"
    assert server.received[0].headers["accept"] == "application/json"
    assert "invalid_grant" not in repr(fetched)


@live
async def test_tls_is_with_the_name_and_the_connection_with_the_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SF-04."""
    authority = Authority(tmp_path)
    dns(monkeypatch, lambda name: ["127.0.0.1"])
    serving = authority.serving("issuer.example")
    async with (
        scripted_http_server(answer_every_request, context=serving) as server,
        pooled(context=authority.trusting()) as pool,
    ):
        fetcher = Fetcher(pool.send, networks=["127.0.0.0/8"])
        url = f"https://issuer.example:{server.port}/keys"
        with connects() as seen:
            assert (await fetcher.fetch("GET", url)).body == b"ok"
            assert (await fetcher.fetch("GET", url)).body == b"ok"
        assert seen == ["127.0.0.1"]  # kept for the next one, to the same address
        assert server.received[0].headers["host"] == f"issuer.example:{server.port}"
        assert "not trusted" in await why(fetcher, f"https://other.example:{server.port}/keys")


@live
async def test_the_next_address_is_tried_where_nobody_is_at_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns(monkeypatch, lambda name: ["::1", "127.0.0.1"])
    async with scripted_http_server(answer_every_request) as server, pooled() as pool:
        url = f"http://localhost:{server.port}/"
        assert (await Fetcher(pool.send, loopback=True).fetch("GET", url)).status == 200


@live
async def test_localhost_that_leads_elsewhere_is_not_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dns(monkeypatch, lambda name: ["127.0.0.1", "10.0.0.1"])
    async with pooled() as pool:
        with connects() as seen:
            fetcher = Fetcher(pool.send, loopback=True)
            assert "is not a loopback address" in await why(fetcher, "http://localhost:1/")
        assert seen == []


@pytest.mark.spec("R0724")
@live
async def test_redirects_within_the_origin_are_followed_so_often_and_what_is_sent_never() -> None:
    """CL-11, SF-05."""

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            left = int((await connection.receive()).path.removeprefix("/"))
            await connection.send(
                OK if not left else http_response(302, b"", "", f"Location: /{left - 1}")
            )

    async with scripted_http_server(handler) as server, pooled() as pool:
        fetcher = Fetcher(pool.send, loopback=True)
        home = f"http://127.0.0.1:{server.port}"
        fetched = await fetcher.fetch("GET", f"{home}/{MAX_REDIRECTS}")
        assert fetched.url == f"{home}/0"
        assert "redirects more than" in await why(fetcher, f"{home}/{MAX_REDIRECTS + 1}")
        before = len(server.received)
        assert "a redirect" in await why(fetcher, f"{home}/1", "POST")
        assert len(server.received) == before + 1


@pytest.mark.spec("R1295")
@live
async def test_a_redirect_to_plain_http_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SF-05: no downgrade, also where http is allowed."""

    async def handler(connection: AcceptedConnection) -> None:
        place = f"http://127.0.0.1:{connection.server.port}/"
        await connection.receive()
        await connection.send(http_response(301, b"", "", f"Location: {place}"))

    authority = Authority(tmp_path)
    serving, trusting = authority.serving("127.0.0.1"), authority.trusting()
    async with (
        scripted_http_server(handler, context=serving) as server,
        pooled(context=trusting) as pool,
    ):
        fetcher = Fetcher(pool.send, loopback=True)
        assert "another origin" in await why(fetcher, f"https://127.0.0.1:{server.port}/")
    assert len(server.received) == 1


@live
async def test_a_body_beyond_its_limit_is_not_read_and_a_silent_server_not_waited_for() -> None:
    """CL-11."""

    async def handler(connection: AcceptedConnection) -> None:
        if (await connection.receive()).path == "/silent":
            await connection.wait_closed()
        await connection.send(
            response_head(200, "Transfer-Encoding: chunked"), b"3e8\r\n" + b"x" * 1000
        )
        await connection.wait_closed()

    async with scripted_http_server(handler) as server, pooled() as pool:
        home = f"http://127.0.0.1:{server.port}"
        small = Fetcher(pool.send, loopback=True, max_bytes=999)
        assert "larger than 999" in await why(small, f"{home}/large")
        short = Fetcher(pool.send, loopback=True, total_s=0.2)
        assert "took longer" in await why(short, f"{home}/silent")


@live
async def test_every_failure_has_the_same_words_and_the_cause_is_apart() -> None:
    """SF-06: who reads the words learns nothing about our network."""

    async def silent(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.wait_closed()

    async with (
        scripted_http_server(silent) as server,
        scripted_http_server(_no_http) as strange,
        pooled() as pool,
    ):
        words: set[str] = set()
        causes: set[str] = set()
        closed = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = closed.sockets[0].getsockname()[1]
        closed.close()
        await closed.wait_closed()
        for place, total_s in ((server.port, 0.2), (strange.port, 10.0), (port, 10.0)):
            fetcher = Fetcher(pool.send, loopback=True, total_s=total_s)
            with pytest.raises(CannotFetch) as caught:
                await fetcher.fetch("GET", f"http://127.0.0.1:{place}/secret?token=x")
            words.add(str(caught.value))
            causes.add(caught.value.why)
        with pytest.raises(CannotFetch) as caught:
            await Fetcher(pool.send).fetch("GET", "http://127.0.0.1/")
        words.add(str(caught.value))
    assert words == {"http://127.0.0.1 cannot be fetched"}
    assert len(causes) == 3


async def _no_http(connection: AcceptedConnection) -> None:
    await connection.receive()
    await connection.send(b"220 mail.example ESMTP\r\n")
    await connection.wait_closed()


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://ann:secret@127.0.0.1:1/", "a user name or password"),
        ("http://@127.0.0.1:1/", "a user name or password"),
        ("http://127.1:1/", "neither a DNS name nor an IP address"),
        ("http://0177.0.0.1:1/", "neither a DNS name nor an IP address"),
        ("http://0x7f000001:1/", "neither a DNS name nor an IP address"),
        ("http://2130706433:1/", "neither a DNS name nor an IP address"),
        ("http://localhost.:1/", "neither a DNS name nor an IP address"),
        ("http://public.example/", "not https"),
        ("ftp://127.0.0.1/", "not https"),
        ("http://127.0.0.1:0/", "port is invalid"),
        ("http://127.0.0.1\\@public.example/", "invalid characters"),
        ("http://127.0.0.1/" + "a" * 3000, "too long"),
    ],
)
@live
async def test_a_url_is_refused_by_what_it_says_before_anybody_is_asked(
    url: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SF-03: also where this machine may be reached, and each by its own check."""
    asked = dns(monkeypatch, lambda name: ["127.0.0.1"])
    async with pooled() as pool:
        with connects() as seen:
            assert cause in await why(Fetcher(pool.send, loopback=True), url)
    assert (seen, asked) == ([], [])


@live
async def test_a_url_that_is_none_is_not_repeated() -> None:
    async with pooled() as pool:
        with pytest.raises(CannotFetch, match=r"^this URL cannot be fetched$"):
            await Fetcher(pool.send).fetch("GET", "https://se\tcret%/x")
        with pytest.raises(CannotFetch, match=r"^this URL cannot be fetched$"):
            await Fetcher(pool.send).fetch("GET", "https://[x/")


@live
async def test_a_proxy_of_the_environment_is_told_the_address_and_never_looks_for_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SF-07."""

    async def proxy(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(response_head(403))

    asked = dns(monkeypatch, lambda name: ["93.184.216.34"])
    async with scripted_http_server(proxy) as server:
        environ = {"https_proxy": f"http://127.0.0.1:{server.port}"}
        async with pooled(environ=environ) as pool:
            with connects() as seen:
                cause = await why(Fetcher(pool.send), "https://issuer.example/keys")
    assert "the proxy answered '403'" in cause
    assert server.received[0].method == "CONNECT"
    assert server.received[0].path == "93.184.216.34:443"
    assert seen == ["127.0.0.1"]
    assert asked == ["issuer.example"]


@pytest.mark.parametrize("address", ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.128.0.0"])
def test_a_public_address_is_for_everybody(address: str) -> None:
    assert blocked_reason(ipaddress.ip_address(address)) == ""


@pytest.mark.parametrize("address", ["2606:4700::1111", "2001:4860:4860::8888", "2a00::1"])
def test_a_public_address_of_the_newer_kind_is_for_everybody(address: str) -> None:
    assert blocked_reason(ipaddress.ip_address(address)) == ""


def test_networks_that_are_none_are_refused_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="is a list"):
        parse_networks("10.0.0.0/8")
    with pytest.raises(LocalProtocolError, match="such as"):
        parse_networks(["10.0.0.1/8"])
