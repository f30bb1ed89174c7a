"""The login: issuer, server and client, each a process of its own; the browser only follows."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cli.process import COMMAND, WAIT_S
from store.redis_server import free_port

LOGIN = Path(__file__).resolve().parent.parent.parent / "examples" / "login.py"
# Opens the page that it is given, and follows its redirects.
BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()"


@contextmanager
def started(*command: str, **env: str) -> Generator[str]:
    """A process that says where it is in its first line."""
    pipe, more = subprocess.PIPE, {**os.environ, **env}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=more) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)


def test_a_newcomer_has_a_login_in_three_commands(tmp_path: Path) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER, "utf-8")
    port = free_port()
    resource = f"http://127.0.0.1:{port}/mcp"
    users = ("--user", "bob", "--user", "ann")
    with started(*COMMAND, "issuer", "--auto", "--port", "0", *users) as line:
        assert line.startswith("issuer on http://127.0.0.1:")
        assert line.endswith(", users: bob, ann")
        issuer = line.split()[2].rstrip(",")
        env = {"ISSUER": issuer, "RESOURCE": resource}
        with started(sys.executable, str(LOGIN), str(port), **env) as said:
            assert said == f"login 1.0 on {resource}"
            client = subprocess.run(
                [sys.executable, "-W", "error", str(LOGIN), resource],
                env={**os.environ, **env, "BROWSER": f"{sys.executable} {browser} %s"},
                capture_output=True,
                text=True,
                timeout=WAIT_S,
            )
    assert client.returncode == 0, client.stderr
    assert client.stdout == f"logged in as {issuer}#bob\n"
