"""What can be wrong with a server at an address, each with its sentence and its remedy, in full.

Rules: real sockets on the loopback, real certificates; nobody's network is used.
"""

import datetime
import json
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certificates import HOUR, Authority
from colonnade import Server
from colonnade.cli.doctor.check import Check, ServerReport
from colonnade.cli.doctor.network import HostPort, dns_failure, tcp_failure, tls_failure
from colonnade.cli.doctor.report import run_doctor
from colonnade.cli.doctor.targets import doctor_targets
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from colonnade.transport.http_server.runner import HttpRunner
from live import live
from scripted_http_server import (
    AcceptedConnection,
    ConnectionHandler,
    chunk,
    events,
    http_response,
    scripted_http_server,
    stream,
)

SECRET = "Bearer s3cret-t0ken"
PAGE = http_response(200, b"<html>Welcome</html>", "text/html")


async def looked_at(url: str, **terms: Any) -> ServerReport:
    terms.setdefault("timeout_s", 5.0)
    (report,) = await run_doctor(
        doctor_targets(ConnectionOptions(url, **terms), Terminal()), Terminal()
    )
    return report


def failure(report: ServerReport) -> tuple[str, str, str, int]:
    found = report.failure
    assert found is not None, report
    return found.name, found.message, found.fix, found.code


def states(report: ServerReport) -> dict[str, str]:
    return {one.name: one.state for one in report.checks}


def row(report: ServerReport, name: str) -> Check:
    return next(one for one in report.checks if one.name == name)


def saying(*answers: bytes) -> ConnectionHandler:
    """A server that gives these answers to each connection, and the last one from then on."""

    async def handler(connection: AcceptedConnection) -> None:
        said = list(answers)
        while True:
            await connection.receive()
            await connection.send(said.pop(0) if len(said) > 1 else said[0])

    return handler


# ---------------------------------------------------------------- dns


@live
async def test_a_name_that_leads_nowhere() -> None:
    with pytest.raises(socket.gaierror) as found:
        socket.getaddrinfo("nowhere.invalid", 443)
    report = await looked_at("https://nowhere.invalid/mcp")
    assert report.failure == dns_failure("nowhere.invalid", found.value)
    assert states(report)["tcp"] == "skipped"
    assert row(report, "schema").message == "dns failed"


def test_a_host_that_is_none_and_a_name_server_that_is_silent_are_told_apart() -> None:
    none = dns_failure("exmaple.com", socket.gaierror(socket.EAI_NONAME, "…"))
    assert none.message == "there is no host exmaple.com"
    assert none.fix == "check the name; some hosts need a VPN"
    silent = dns_failure("example.com", socket.gaierror(socket.EAI_AGAIN, "…"))
    assert silent.message == "no DNS server responds for example.com"
    assert silent.fix == "check the network of this machine, or its VPN"
    assert (none.code, silent.code) == (4, 4)


@live
async def test_what_cannot_be_a_name() -> None:
    name, words, _, code = failure(await looked_at(f"https://{'a' * 64}.invalid/mcp"))
    assert (name, words, code) == ("dns", f"{'a' * 64}.invalid is not a host name", 4)


# ---------------------------------------------------------------- tcp


@live
async def test_a_port_that_nobody_listens_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert failure(await looked_at(f"http://127.0.0.1:{port}/mcp")) == (
            "tcp",
            f"connection refused: nothing listens on 127.0.0.1:{port}",
            "start the server, or fix the port of the URL",
            4,
        )


@contextmanager
def full() -> Generator[int]:
    """A port where somebody listens who takes no more connections, and says nothing."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(busy.getsockname())
        try:
            yield busy.getsockname()[1]
        finally:
            for one in waiting:
                one.close()


@live
async def test_a_host_that_says_nothing() -> None:
    with full() as port:
        assert failure(await looked_at(f"http://127.0.0.1:{port}/mcp", timeout_s=0.5)) == (
            "tcp",
            f"127.0.0.1:{port} did not respond within 0.5 s",
            "check the port; a firewall may drop it, or the machine is off",
            4,
        )


@live
async def test_a_host_that_no_way_leads_to() -> None:
    # The address of everybody: the system itself refuses to connect to it.
    name, words, fix, code = failure(await looked_at("http://255.255.255.255:80/mcp"))
    assert (name, code) == ("tcp", 4)
    assert words == "there is no route to 255.255.255.255:80: network is unreachable"
    assert fix == "check the network of this machine, or its VPN"


def test_any_other_trouble_is_told_in_the_words_of_the_system() -> None:
    error = OSError(13, "Permission denied")
    told = tcp_failure(HostPort("http", "::1", 80), error, 1)
    assert told.message == "[::1]:80 cannot be reached: permission denied"


@live
async def test_a_proxy_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        report = await looked_at("https://mcp.example/mcp")
        assert row(report, "dns").message == "the proxy 127.0.0.1 is an IP address"
        assert failure(report)[:2] == (
            "tcp",
            f"connection refused: nothing listens on 127.0.0.1:{port}",
        )
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1")
    assert failure(await looked_at("https://mcp.example/mcp")) == (
        "dns",
        "https_proxy is not the URL of an HTTP proxy; write http://host:port",
        "fix the environment variable, or unset it",
        2,
    )


# ---------------------------------------------------------------- tls


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


async def silent(connection: AcceptedConnection) -> None:
    await connection.receive()


TLS = {
    "expired": (
        "the certificate of 127.0.0.1 has expired",
        "the operator must renew it; or fix the clock of this machine",
    ),
    "another name": (
        "the certificate is not for 127.0.0.1 but for mcp.example",
        "use a name of the certificate, or get one for this name",
    ),
    "itself": (
        "127.0.0.1 has a self-signed certificate, which is not trusted here",
        "if it is yours, set SSL_CERT_FILE to the file of its certificate",
    ),
    "nobody knows": (
        "the issuer of the certificate of 127.0.0.1 is not trusted here",
        (
            "the operator must send the intermediate certificates; for an authority of your own, "
            "set SSL_CERT_FILE to its file"
        ),
    ),
}


@pytest.mark.parametrize("how", TLS)
@live
async def test_a_certificate_that_is_not_trusted(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    trusted, other = Authority(tmp_path), Authority(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    context = {
        "expired": lambda: trusted.serving("127.0.0.1", lasts=-HOUR),
        "another name": lambda: trusted.serving("mcp.example"),
        "itself": other.itself,
        "nobody knows": lambda: other.serving("127.0.0.1"),
    }[how]()
    async with scripted_http_server(silent, context=context) as server:
        report = await looked_at(server.url, headers=(f"Authorization: {SECRET}",))
        assert failure(report) == ("tls", *TLS[how], 4)
        assert server.received == []  # nothing was said to whom nobody trusts


@live
async def test_what_speaks_no_tls_is_not_asked_in_the_open(authority: Authority) -> None:
    async def deaf(connection: AcceptedConnection) -> None:
        await connection.reader.read(5)
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with scripted_http_server(deaf) as server:
        assert failure(await looked_at(server.url.replace("http:", "https:"))) == (
            "tls",
            f"127.0.0.1:{server.port} does not speak TLS",
            "use http:// if it is on this machine, else fix the port",
            4,
        )


@live
async def test_what_hangs_up_or_is_silent_when_it_hears_tls(authority: Authority) -> None:
    async def rude(connection: AcceptedConnection) -> None:
        connection.abort()

    async def mute(connection: AcceptedConnection) -> None:
        await connection.reader.read()  # what the client sends first in TLS, until it gives up

    async with scripted_http_server(rude) as server:
        assert failure(await looked_at(server.url.replace("http:", "https:")))[1] == (
            f"127.0.0.1:{server.port} closes the connection on TLS"
        )
    async with scripted_http_server(mute) as server:
        report = await looked_at(server.url.replace("http:", "https:"), timeout_s=2.0)
        assert (
            failure(report)[1]
            == f"127.0.0.1:{server.port} accepts connections, but does not respond to TLS"
        )


@live
async def test_an_address_that_should_say_https(authority: Authority) -> None:
    async with scripted_http_server(silent, context=authority.serving("127.0.0.1")) as server:
        report = await looked_at(server.url.replace("https:", "http:"))
        assert failure(report) == (
            "http",
            "the server uses TLS, and the URL is http",
            "use https://",
            4,
        )


def test_other_troubles_of_tls_have_their_words() -> None:
    place = HostPort("https", "mcp.example", 443)
    odd = ssl.SSLError(1, "[SSL: TLSV1_ALERT_PROTOCOL_VERSION] …")
    odd.reason = "TLSV1_ALERT_PROTOCOL_VERSION"
    told = tls_failure(place, odd)
    assert (
        told.message
        == "the TLS handshake with mcp.example:443 failed: tlsv1 alert protocol version"
    )
    assert told.fix == "it may be too old, or require a client certificate"
    early = ssl.SSLCertVerificationError(1, "…")
    early.verify_code, early.verify_message = 9, "certificate is not yet valid"
    assert tls_failure(place, early).message == "the certificate of mcp.example is not valid yet"
    early.verify_code, early.verify_message = 23, "certificate revoked"
    assert tls_failure(place, early).message == (
        "the certificate of mcp.example is not trusted: certificate revoked"
    )


@live
async def test_a_certificate_that_ends_soon_is_a_warning(authority: Authority) -> None:
    for lasts, state in ((HOUR, "warning"), (24 * 90 * HOUR, "ok")):
        context = authority.serving("127.0.0.1", lasts=lasts)
        async with scripted_http_server(saying(http_response(503)), context=context) as server:
            tls = row(await looked_at(server.url), "tls")
        ends = (datetime.datetime.now(datetime.UTC) + lasts).date().isoformat()
        assert (tls.state, tls.message) == (
            state,
            f"its certificate is trusted, and valid until {ends}",
        )
        assert tls.fix == ("the operator must renew it before that" if state == "warning" else "")


# ---------------------------------------------------------------- http

OFTEN = "fix the path of the URL; it is often /mcp"
ANSWERS: dict[str, tuple[bytes, str, str, int]] = {
    "nothing there": (http_response(404), "there is nothing at /here (404)", OFTEN, 5),
    "no POST": (http_response(405), "/here does not accept POST (405)", OFTEN, 5),
    "a web page": (PAGE, "/here is a web page (200 and text/html), not an MCP endpoint", OFTEN, 5),
    "ill": (
        http_response(503),
        "it responds with 503: server error, or overloaded",
        "try again later; see the log of the server",
        4,
    ),
    "busy": (
        http_response(429),
        "it responds with 429: server error, or overloaded",
        "try again later; see the log of the server",
        4,
    ),
    "moved away": (
        http_response(302, b"", "", "Location: https://other.example/mcp?key=1"),
        "it redirects to https://other.example/mcp (302), which is not followed",
        "use that URL, if you trust it",
        5,
    ),
    "moved nowhere": (
        http_response(301, b"", ""),
        "it responds with 301, without a Location header",
        "ask the operator for the URL",
        5,
    ),
    "something else": (
        http_response(200, b"pong", "text/plain"),
        "it responds with 200 and text/plain, which is not MCP",
        "check that this is the URL of the MCP endpoint",
        5,
    ),
}


@pytest.mark.parametrize("how", ANSWERS)
@live
async def test_an_answer_that_is_no_servers(how: str) -> None:
    answer, words, fix, code = ANSWERS[how]
    async with scripted_http_server(saying(answer)) as server:
        url = server.url.replace("/mcp", "/here")
        assert failure(await looked_at(url)) == ("http", words, fix, code)


@live
async def test_a_server_at_another_path_is_found_and_given_no_credential() -> None:
    site = HttpRunner(Server("here", version="1").asgi(), port=0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{site.port}/api"
        report = await looked_at(url, headers=(f"Authorization: {SECRET}",))
        assert failure(report) == (
            "http",
            "there is nothing at /api (404)",
            f"there is a server at http://127.0.0.1:{site.port}/mcp; use that URL",
            5,
        )
    finally:
        await site.stop()

    async with scripted_http_server(saying(http_response(404))) as server:
        await looked_at(server.url.replace("/mcp", "/api"), headers=(f"Authorization: {SECRET}",))
        elsewhere = [one for one in server.received if one.path != "/api"]
        assert elsewhere
        assert all("authorization" not in one.headers for one in elsewhere)


@live
async def test_a_redirect_gets_no_credential() -> None:
    async with scripted_http_server(saying(PAGE)) as other:
        moved = http_response(307, b"", "", f"Location: {other.url}")
        async with scripted_http_server(saying(moved)) as server:
            report = await looked_at(server.url, headers=(f"Authorization: {SECRET}",))
            assert failure(report)[1] == (
                f"it redirects to {other.url} (307), which is not followed"
            )
            assert server.received[0].headers["authorization"] == SECRET
        assert other.received == []


@live
async def test_what_speaks_no_http_or_nothing_at_all() -> None:
    async def chatty(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.send(b"220 mail.example ESMTP\r\n")
        await connection.wait_closed()

    async def shy(connection: AcceptedConnection) -> None:
        await connection.receive()

    async def slow(connection: AcceptedConnection) -> None:
        await connection.receive()
        await connection.wait_closed()

    async with scripted_http_server(chatty) as server:
        assert failure(await looked_at(server.url)) == (
            "http",
            "the port is not HTTP",
            "fix the port of the URL",
            5,
        )
    async with scripted_http_server(shy) as server:
        assert failure(await looked_at(server.url)) == (
            "http",
            "it accepts a request, and closes the connection without a response",
            "see the log of the server, and of proxies",
            4,
        )
    async with scripted_http_server(slow) as server:
        assert failure(await looked_at(server.url, timeout_s=2.0)) == (
            "http",
            "it accepts a request, but there is no response within 2 s",
            "see the log of the server; --timeout waits longer",
            4,
        )


# ---------------------------------------------------------------- all checks passed, nearly


@live
async def test_a_server_that_is_well_has_no_failure() -> None:
    server = Server("well", version="1")

    @server.tool
    def look(name: str) -> str:
        """Look."""
        return name

    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        report = await looked_at(f"http://127.0.0.1:{site.port}/mcp")
    finally:
        await site.stop()
    assert [(one.name, one.state, one.message) for one in report.checks] == [
        ("dns", "ok", "127.0.0.1 is an IP address"),
        ("tcp", "ok", f"127.0.0.1:{site.port} accepts connections"),
        ("tls", "skipped", "not needed on this machine"),
        ("http", "ok", "it responds with 200 and application/json"),
        ("metadata", "skipped", "no authentication required"),
        ("authorization", "skipped", "no authentication required"),
        (
            "revision",
            "ok",
            "well 1 uses 2026-07-28, and supports 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
        ("lists", "ok", "1 tool"),
        ("schema", "ok", "names and schemas are valid for all known clients and models"),
    ]


@live
async def test_a_server_of_the_first_revision_is_found_behind_its_refusals() -> None:
    async def old(connection: AcceptedConnection) -> None:
        request = await connection.receive()
        if request.method == "POST" and request.path == "/mcp":
            await connection.send(http_response(405))
            return
        if request.method == "GET":
            connection.server.stream = connection  # type: ignore[attr-defined]
            await connection.send(stream(), chunk(b"event: endpoint\ndata: /messages\n\n"))
            await connection.wait_closed()
            return
        message = request.message
        await connection.send(http_response(202))
        if "id" in message:
            result: dict[str, Any] = {
                "protocolVersion": "2024-11-05",
                "capabilities": {},
                "serverInfo": {"name": "old", "version": "1"},
            }
            data = events({"jsonrpc": "2.0", "id": message["id"], "result": result})
            told: AcceptedConnection = connection.server.stream  # type: ignore[attr-defined]
            await told.send(chunk(data))

    async with scripted_http_server(old) as server:
        report = await looked_at(server.url)
    assert row(report, "http").message == "it responds, after 405 to the first request"
    assert row(report, "revision").message == (
        "old 1 uses 2024-11-05 (with a handshake), and supports nothing newer"
    )
    assert (row(report, "lists").state, row(report, "lists").message) == (
        "warning",
        "it lists nothing",
    )


@live
async def test_a_server_that_no_revision_is_shared_with() -> None:
    refusal = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32022,
            "message": "no",
            "data": {"supported": ["2099-01-01"], "requested": "2026-07-28"},
        },
    }

    async def strange(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            body = json.dumps({**refusal, "id": request.message["id"]}).encode()
            await connection.send(http_response(400, body))

    async with scripted_http_server(strange) as server:
        name, words, fix, code = failure(await looked_at(server.url))
    assert (name, code) == ("revision", 5)
    assert "no revision in common: the server accepts ['2099-01-01']" in words
    assert fix == "report it to the author; --as REVISION tries an older one"
