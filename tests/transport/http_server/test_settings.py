"""How a server over HTTP is set: what was given, else the environment, else the default; TLS; the
lines of its log."""

import asyncio
import logging
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from certificates import Authority
from colonnade import HttpRequest, Server
from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.connection import RunLimits
from colonnade.transport.http_server.runner import HttpRunner, listening
from colonnade.transport.http_server.settings import (
    ENV_PREFIX,
    prepare_log,
    read_limits,
    tls_context,
    with_environment,
)
from http_client import Caller
from http_service import FakeService
from live import live
from scripted_http_server import either_loop

# ---------------------------------------------------------------- the environment


def test_what_is_given_is_stronger_than_the_environment() -> None:
    environ = {f"{ENV_PREFIX}PORT": "9000", f"{ENV_PREFIX}HOST": "127.0.0.2", "PORT": "1"}
    assert with_environment({"port": 8001}, environ) == {"port": 8001, "host": "127.0.0.2"}
    assert with_environment({}, {}) == {}


def test_every_setting_has_a_variable_that_is_read_as_what_it_is() -> None:
    environ = {
        "HOST": "0.0.0.0",
        "PORT": "0",
        "PATH": "/x",
        "ALLOW_HOST": "a.example, b.example",
        "ALLOW_ORIGIN": "https://a.example https://b.example",
        "TRUSTED_PROXY": "10.0.0.0/8 192.0.2.1",
        "STATELESS": "1",
        "ACCESS_LOG": "true",
        "LOG_LEVEL": "INFO",
        "LOG_JSON": "0",
        "SSL_CERTFILE": "c.pem",
        "SSL_KEYFILE": "k.pem",
        "LIMIT": "max_body_bytes=10,keep_alive_timeout_s=5",
    }
    assert with_environment({}, {ENV_PREFIX + name: value for name, value in environ.items()}) == {
        "host": "0.0.0.0",
        "port": 0,
        "path": "/x",
        "hosts": ("a.example", "b.example"),
        "origins": ("https://a.example", "https://b.example"),
        "trusted_proxies": ("10.0.0.0/8", "192.0.2.1"),
        "stateless": True,
        "access_log": True,
        "log_level": "info",
        "log_json": False,
        "ssl_certfile": "c.pem",
        "ssl_keyfile": "k.pem",
        "limit": ("max_body_bytes=10", "keep_alive_timeout_s=5"),
    }


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PORT", "x", "is not a port"),
        ("PORT", "70000", "is not a port"),
        ("STATELESS", "maybe", "neither 1 nor 0"),
        ("LOG_LEVEL", "loud", "use one of debug, info"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"^{ENV_PREFIX}{name}: .*{words}"):
        with_environment({}, {ENV_PREFIX + name: value})


# ---------------------------------------------------------------- limits


def test_a_limit_is_set_by_its_name_whichever_of_the_two_has_it() -> None:
    app, run = read_limits(["max_body_bytes=1000", "drain_timeout_s=2.5", "max_connections=7"])
    assert (app.max_body_bytes, app.drain_timeout_s, run.max_connections) == (1000, 2.5, 7)
    assert run.header_timeout_s == RunLimits().header_timeout_s


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("body_byte=1", "did you mean max_body_bytes"),
        ("session_bytes=1", r"did you mean max_resumable_bytes_per_session\?"),
        ("maxconnection=1", r"did you mean max_connections\?"),
        ("kept_streams=1", "or max_resumable_streams_per_session"),
        ("zzz=1", "there are body_timeout_s, drain_timeout_s, "),
        ("max_body_bytes", "give a whole number from 0, such as max_body_bytes=4194304"),
        ("max_body_bytes=1.5", "a whole number"),
        ("drain_timeout_s=soon", "give a number from 0, such as drain_timeout_s=30"),
        ("drain_timeout_s=-1", "a number"),
        ("drain_timeout_s=nan", "a number"),
        ("drain_timeout_s=inf", "a number"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(word: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        read_limits([word])


# ---------------------------------------------------------------- TLS


def certified(authority: Authority, folder: Path) -> str:
    """A file with a certificate for this machine, and its key."""
    authority.serving("127.0.0.1")
    return str(folder / "server.pem")


@live
async def test_a_certificate_and_its_key_are_all_that_tls_needs(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = certified(authority, tmp_path)
    settings = {"port": 0, "ssl_certfile": file, "ssl_keyfile": file}
    async with listening(HttpApp(FakeService()), **settings) as site:
        assert site.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(authority.file))
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=trusted)
        writer.write(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.transport.abort()


@either_loop
async def test_a_tls_handshake_under_way_when_the_port_is_closed_is_completed(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    file = certified(authority, tmp_path)
    site = HttpRunner(HttpApp(FakeService()), port=0, ssl_certfile=file, ssl_keyfile=file)
    await site.start()
    # The kernel accepts it, and the loop does not run before `stop`.
    early = socket.create_connection(("127.0.0.1", site.port))
    stopping = asyncio.create_task(site.stop(60.0))
    trusted = ssl.create_default_context(cafile=str(authority.file))
    reader, writer = await asyncio.open_connection(
        sock=early, ssl=trusted, server_hostname="127.0.0.1"
    )
    writer.write(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in answer
    await stopping
    writer.transport.abort()


def test_files_that_are_no_certificate_are_refused_in_words(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = key = Path(certified(authority, tmp_path))
    (tmp_path / "text.pem").write_text("no certificate")
    locked = tmp_path / "locked.pem"
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"s3cret"),
        )
    )
    assert tls_context(None, None) is None
    for cert, secret, words in (
        (None, str(key), "needs a certificate"),
        (str(tmp_path / "none.pem"), str(key), "No such file"),
        (str(tmp_path / "text.pem"), str(key), "TLS cannot be served with"),
        (str(certificate), str(locked), "without a password"),
    ):
        with pytest.raises(LocalProtocolError, match=words):
            tls_context(cert, secret)


def test_what_is_wrong_with_the_files_of_tls_is_said_in_words(tmp_path: Path) -> None:
    both = Path(certified(Authority(tmp_path), tmp_path)).read_bytes()
    begin = both.index(b"-----BEGIN CERTIFICATE")
    end = both.index(b"-----END CERTIFICATE-----\n") + len(b"-----END CERTIFICATE-----\n")
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = certified(Authority(other_folder), other_folder)
    cert, key, text = (str(tmp_path / name) for name in ("c.pem", "k.pem", "t.pem"))
    Path(cert).write_bytes(both[begin:end])
    Path(key).write_bytes(both[:begin] + both[end:])
    Path(text).write_text("no PEM")
    assert tls_context(cert, key) is not None
    for certfile, keyfile, words in (
        (cert, None, f"{cert} has no key; give the file of its key as well"),
        (key, cert, "the files are swapped"),
        (key, None, f"{key} has no certificate in PEM"),
        (text, key, f"{text} has no certificate in PEM"),
        (cert, text, f"{text} has no key in PEM"),
        (cert, cert, f"{cert} has no key in PEM"),
        (cert, other, "the key does not belong to the certificate"),
    ):
        with pytest.raises(LocalProtocolError, match=re.escape(words)) as caught:
            tls_context(certfile, keyfile)
        assert "[SSL" not in str(caught.value)


# ---------------------------------------------------------------- the lines of the log


@live
async def test_the_log_has_a_line_for_the_start_and_for_the_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "colonnade.transport")
    site = HttpRunner(Server("weather", version="1.0").asgi(), port=0)
    await site.start()
    await site.stop()
    lines = [one.getMessage() for one in caplog.records if one.name == "colonnade.transport"]
    assert lines[0].startswith(f"serving weather 1.0 on http://127.0.0.1:{site.port}/mcp (process ")
    assert lines[1] == "stopping weather 1.0; 0 requests are running"
    assert lines[2].startswith("stopped weather 1.0 after ")
    assert len(lines) == 3


@live
async def test_ready_says_503_for_a_while_before_requests_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "colonnade.transport")
    site = HttpRunner(HttpApp(FakeService()), port=0, run_limits=RunLimits(shutdown_delay_s=30))
    await site.start()
    async with Caller(site.port) as caller:
        stopping = asyncio.get_running_loop().create_task(site.stop())
        while site.is_ready:
            await asyncio.sleep(0)
        answer = await caller.request("GET", path="/ready", accept="*/*")
        assert (answer.status, answer.body) == (503, b"not ready")
        assert (await caller.modern("tools/list")).status == 200
        stopping.cancel()
        await asyncio.wait({stopping})
        await site.stop(0.0)  # as a second signal does
    assert "/ready says so" in caplog.text


@live
async def test_the_access_log_has_one_record_for_each_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "colonnade.requests")
    server = Server("weather")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.route("/version")
    async def version(request: HttpRequest) -> str:
        return "1"

    app = server.asgi(access_log=True)
    assert server.asgi(access_log=True) is not app  # and there is still one record
    async with listening(app, port=0) as site, Caller(site.port) as caller:
        await caller.call("add", a=1, b=2)
        await caller.request("GET", path="/version")
        await caller.modern("tools/list", host="evil.example")
        await caller.request("GET", path="/health", accept="*/*")
    records: list[Any] = [one for one in caplog.records if one.name == "colonnade.requests"]
    assert [one.request.get("outcome", one.request.get("status")) for one in records] == [
        "ok",
        200,
        "refused",
    ]
    assert records[0].request["name"] == "add"
    assert records[0].getMessage().startswith("tools/call 'add' (2026-07-28): ok, ")
    assert records[1].getMessage().startswith("GET /version: 200, ")
    assert records[2].getMessage().startswith("refused with 403: Host 'evil.example'")


@pytest.mark.parametrize("level", ["loud", 20])
def test_a_log_level_that_is_none_is_refused_as_the_command_does(level: Any) -> None:
    with pytest.raises(
        LocalProtocolError, match=f"^'{level}' is not a log level; use one of debug, "
    ):
        Server("s").run("http", port=0, log_level=level)


def test_the_log_is_set_up_only_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    root, requests = logging.getLogger(), logging.getLogger("colonnade.requests")
    before, level, own = root.level, requests.level, list(root.handlers)
    told: list[int] = []
    try:
        prepare_log(None, access_log=False, json=None)
        assert root.level == before
        prepare_log("info", access_log=True, json=told.append)
        assert (told, root.level, requests.level) == ([logging.INFO], before, logging.INFO)
        prepare_log("error", access_log=True, json=None)
        assert (root.level, requests.level) == (logging.ERROR, logging.INFO)
    finally:
        root.setLevel(before)
        requests.setLevel(level)
        root.handlers[:] = own
