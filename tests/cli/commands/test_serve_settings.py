"""What an operator sets of `colonnade serve`: by options, by variables, and in which order."""

import http.client
import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from cli.process import WAIT_S, WEATHER, Process, call, command, written
from colonnade.cli.commands.serve import ServeSettings
from colonnade.transport.http_server.settings import ENV_PREFIX, read_limits

pytestmark = pytest.mark.slow
SERVE = ("serve", "server.py", "--port", "0")
COMPOSED = """
from colonnade import HttpRequest, Server

server = Server("composed", version="2.0")


@server.route("/version")
async def version(request: HttpRequest) -> str:
    return "2.0"


async def pages(scope, receive, send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"pages"})


app = server.asgi(path="/tools", around=pages)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=WEATHER)


def get(process: Process, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_variable_sets_what_no_option_sets(folder: Path) -> None:
    variables: dict[str, Any] = {f"{ENV_PREFIX}PORT": "0", f"{ENV_PREFIX}PATH": "/tools"}
    with Process(folder, "serve", "server.py", **variables) as process:
        assert process.up() == f"weather 1.0 on http://127.0.0.1:{process.port}/tools"
    with Process(folder, "serve", "server.py", "--path", "/mine", **variables) as process:
        assert process.up() == f"weather 1.0 on http://127.0.0.1:{process.port}/mine"


def test_a_server_that_runs_itself_reads_the_same_variables(tmp_path: Path) -> None:
    folder = written(tmp_path, server=WEATHER + '\n\nserver.run("http", path="/mine")\n')
    variables: dict[str, Any] = {f"{ENV_PREFIX}PORT": "0", f"{ENV_PREFIX}PATH": "/tools"}
    with Process(folder, "server.py", start=[sys.executable], **variables) as process:
        assert process.up() == f"weather 1.0 on http://127.0.0.1:{process.port}/mine"
    done = command(folder, "serve", "server.py", **{f"{ENV_PREFIX}PORT": "x"})
    assert done.returncode == 2
    assert f"{ENV_PREFIX}PORT: x is not a port" in done.stderr


def test_start_stop_and_each_request_are_lines_of_the_log_on_request(folder: Path) -> None:
    with Process(folder, *SERVE, "--log-level", "info", "--access-log") as process:
        process.up()
        assert " INFO colonnade.transport: serving weather 1.0 on http" in process.err.next()
        assert process.post(call("add", a=2, b=3))[0] == 200
        assert " INFO colonnade.requests: tools/call 'add' (2026-07-28): ok, " in process.err.next()
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        *_, last = process.err.rest()
        assert " INFO colonnade.transport: stopped weather 1.0 after " in last


def test_the_access_log_is_json_beside_the_rest(folder: Path) -> None:
    with Process(folder, *SERVE, "--log-json", "--access-log") as process:
        process.up()
        assert process.post(call("add", a=2, b=3))[0] == 200
        line = json.loads(process.err.next())
        assert line["request"]["method"] == "tools/call"
        assert line["request"]["name"] == "add"
        assert line["request"]["outcome"] == "ok"


def test_a_limit_is_set_by_its_name(folder: Path) -> None:
    with Process(folder, *SERVE, "--limit", "max_body_bytes=100") as process:
        process.up()
        assert process.post(call("add", a=2, b=3))[0] == 413


def test_the_limit_of_the_help_is_one(folder: Path) -> None:
    shown = " ".join(command(folder, "serve", "--help").stdout.split())
    limit = shown.partition("Set a limit, such as ")[2].partition(". ")[0]
    name, _, value = limit.partition("=")
    assert getattr(read_limits([limit])[0], name) == int(value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--limit", "body_byte=1"], "did you mean max_body_bytes?"),
        (["--limit", "max_body_bytes=much"], "give a whole number"),
        (["--log-level", "loud"], "is not a log level"),
        (["--ssl-certfile", "none.pem"], "TLS cannot be served with none.pem"),
        (["--ssl-keyfile", "none.pem"], "ssl_keyfile is given without ssl_certfile"),
        (["--ssl-certfile", "server.py"], "has no certificate in PEM format"),
    ],
)
def test_a_setting_that_cannot_be_meant_ends_it_in_one_sentence(
    folder: Path, options: list[str], words: str
) -> None:
    done = command(folder, *SERVE, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("colonnade: ")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_tls_is_served_with_a_certificate(folder: Path) -> None:
    authority = Authority(folder)
    authority.serving("127.0.0.1")
    with Process(folder, *SERVE, "--ssl-certfile", "server.pem") as process:
        assert process.up() == f"weather 1.0 on https://127.0.0.1:{process.port}/mcp"
        context = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", process.port, timeout=WAIT_S, context=context
        )
        connection.request("GET", "/ready")
        assert connection.getresponse().status == 200
        connection.close()


def test_what_asgi_made_around_another_application_is_served_by_its_name(tmp_path: Path) -> None:
    written(tmp_path, server=COMPOSED)
    with Process(tmp_path, "serve", "server.py:app", "--port", "0") as process:
        assert process.up() == f"composed 2.0 on http://127.0.0.1:{process.port}/tools"
        assert get(process, "/version") == (200, "2.0")
        assert get(process, "/anything") == (200, "pages")
        process.signal(signal.SIGTERM)
        assert process.end() == 0
    done = command(
        tmp_path,
        *("serve", "server.py:app", "--path", "/x", "--limit", "max_body_bytes=1"),
        *("--trusted-proxy", "10.0.0.0/8"),
    )
    assert done.returncode == 2
    assert (
        "leave out --path, --trusted-proxy, --limit, and pass it to server.asgi(…) in the file"
        in done.stderr
    )
    done = command(tmp_path, "serve", "server.py", "--trusted-proxy", "10.0.0.1/8")
    assert (done.returncode, "such as '10.0.0.0/8'" in done.stderr) == (2, True)
    done = command(tmp_path, "serve", "server.py:pages")
    assert "wrap it: app = server.asgi(around=pages)" in done.stderr


def test_routes_and_probes_of_a_plain_server_are_served(tmp_path: Path) -> None:
    written(tmp_path, server=COMPOSED.partition("async def pages")[0])
    with Process(tmp_path, *SERVE, "--stateless") as process:
        process.up()
        assert get(process, "/version") == (200, "2.0")
        assert get(process, "/health") == get(process, "/ready") == (200, "ok")
        assert get(process, "/mcp")[0] == 405  # which without --stateless is a stream


def test_a_process_that_begins_again_is_started_with_the_same_options() -> None:
    given = {
        "port": 5,
        "path": "/x",
        "hosts": ("a", "b"),
        "origins": ("https://a",),
        "stateless": True,
        "limit": ("max_body_bytes=9",),
        "ssl_certfile": "c.pem",
        "access_log": True,
        "log_level": "info",
    }
    said = "--path /x --allow-host a --allow-host b --allow-origin https://a --stateless"
    more = "--limit max_body_bytes=9 --ssl-certfile c.pem --access-log"
    assert ServeSettings(given).arguments() == f"{said} {more}".split()
