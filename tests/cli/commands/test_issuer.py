"""`colonnade issuer`: what it prints, what it refuses, and how it ends."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cli.process import COMMAND, WAIT_S, command, environment


def test_it_says_that_it_is_for_development_and_what_to_paste(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    page = "http://localhost:6274"
    arguments = [*COMMAND, "issuer", "--port", "0", "--user", "ann", "--user", "bob"]
    arguments += ["--allow-origin", page]
    with subprocess.Popen(
        arguments, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment()
    ) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        url = first.split()[2].rstrip(",")
        assert first == f"issuer on {url}, users: ann, bob\n"
        assert second == f'auth=Protection("http://127.0.0.1:8000/mcp", Jwt("{url}"))\n'
        place = f"{url}/.well-known/oauth-authorization-server"
        with urllib.request.urlopen(place, timeout=WAIT_S) as found:
            assert json.load(found)["issuer"] == url
        # A client in a browser, if its origin is named.
        headers = {"Origin": page, "Access-Control-Request-Method": "POST"}
        for method, more in (("OPTIONS", headers), ("GET", {"Origin": page})):
            asked = urllib.request.Request(place, headers=more, method=method)
            with urllib.request.urlopen(asked, timeout=WAIT_S) as found:
                assert found.headers["Access-Control-Allow-Origin"] == page
        # Pages of others cannot register, exchange or sign in.
        for origin in ("https://evil.example", "null"):
            for path in ("/register", "/token", "/authorize"):
                asked = urllib.request.Request(url + path, b"{}", {"Origin": origin})
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(asked, timeout=WAIT_S)
                assert caught.value.code == 403
                caught.value.close()
        process.terminate()
        _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert told == (
        "colonnade: this login is for development, not for production: it asks for no password\n"
    )


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.0.7", "example.com", "127.0.0.1.nip.io"]
)
def test_it_binds_a_loopback_address_and_no_other(host: str, tmp_path: Path) -> None:
    done = command(tmp_path, "issuer", "--host", host, "--port", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{host} is not a loopback address" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--user", "a b"], "'a b' is not a user"),
        (["--ttl-s", "0"], "ttl_s is 0"),
        (["--port", "70000"], "70000"),
        (["--allow-origin", "not an origin"], "not an origin"),
    ],
)
def test_unusable_options_are_told(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = command(tmp_path, "issuer", "--port", "0", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
