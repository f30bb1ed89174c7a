"""What others on this machine can read of our processes: never a token, a key, or a secret.

Rules: real processes, with logins that are kept and in use, read as the system shows them in
/proc: the environment and the arguments of each, and of all that it started.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

from auth.client.test_login import Browser, notes, serving
from auth.client.test_login_commands import Shell
from auth.issuer import Issuer, issuing
from auth.two_logins import robot
from cli.process import COMMAND, environment
from colonnade import Login, Protection, Server
from colonnade.auth.client.storage import StoredLogin
from colonnade.client.auth import stored_login
from live import live_for

pytestmark = pytest.mark.slow

TEST_S = 600.0
ROBOT, SHOP = "robot-secret", "shop-secret"
# Tokens are bound to a key, so that there is a key to look for, too.
PROTECTION_OPTIONS = {"dpop": "required"}


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


def surroundings(**more: str) -> dict[str, str]:
    """Those of a command, with the package as this process has it: a copy of it, perhaps."""
    return environment(**more, PYTHONPATH=os.environ.get("PYTHONPATH", ""))


def family(pid: int) -> list[int]:
    """A process and all that it started, and what those did."""
    found = [pid]
    for each in found:
        for tasks in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, tasks.read_text().split())
    return found


def shown(pid: int) -> str:
    """All that the system shows of a process to its user."""
    words = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
    return b"\0".join(words).replace(b"\0", b"\n").decode("utf-8", "replace")


def secrets_of(held: StoredLogin | None, home: Path) -> set[str]:
    """Whatever of a login nobody else may have, and the key that all is sealed with."""
    assert held is not None
    tokens = held.tokens
    assert tokens.key
    key = (home / "credentials.key").read_bytes()
    lines = [line for line in tokens.key.splitlines() if "-----" not in line]
    found = {tokens.access_token, tokens.refresh_token, held.client.client_secret, *lines}
    found |= {key.hex(), base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()}
    return {one for one in found if one}


def leaks(pids: Iterable[int], secrets: set[str]) -> list[tuple[int, str]]:
    return [(pid, one) for pid in pids for one in secrets if one in shown(pid)]


@live_for(TEST_S)
async def test_nothing_of_a_login_is_in_the_environment_or_the_arguments_of_a_process(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("COLONNADE_HOME", str(home))
    pipe = asyncio.subprocess.PIPE
    script = str(Path(__file__).resolve().parents[2] / "support/auth/two_logins.py")
    given = surroundings(COLONNADE_HOME=str(home), ROBOT_SECRET=ROBOT)
    async with serving(issuer, protection_options=PROTECTION_OPTIONS) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, url, issuer.url, stdin=pipe, stdout=pipe, env=given
        )
        try:
            assert process.stdout is not None
            page = (await process.stdout.readline()).decode().strip()
            Browser()(page)
            words = (await process.stdout.readline()).decode().split()
            assert words[:3] == ["ready", "ann", "robot"]
            ours, *children = family(process.pid)
            assert len(children) >= 2  # the server that it started, and who looks after that
            person = secrets_of(await stored_login(Login(keep=True), url), home)
            program = secrets_of(await stored_login(robot(issuer.url, ROBOT), url), home)
            assert ROBOT in program
            assert leaks(children, person | program) == []
            # The program was given the secret there by whoever started it, and nothing else.
            assert leaks([ours], (person | program) - {ROBOT}) == []
            assert leaks([ours], {ROBOT, page}) == [(ours, ROBOT)]  # so that it would be seen
        finally:
            process.kill()
            await process.wait()


OPENER = """#!{python}
import json, os, sys, urllib.request
with open({seen!r}, "w") as file:
    json.dump([dict(os.environ), sys.argv], file)
urllib.request.urlopen(sys.argv[1], timeout=60).read()
"""


@live_for(TEST_S)
async def test_a_browser_learns_where_to_go_and_nothing_else(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, seen, opener = tmp_path / "home", tmp_path / "seen.json", tmp_path / "opener"
    monkeypatch.setenv("COLONNADE_HOME", str(home))
    opener.write_text(OPENER.format(python=sys.executable, seen=str(seen)))
    opener.chmod(0o700)
    async with serving(issuer, protection_options=PROTECTION_OPTIONS) as url:
        words = ("--client-id", "shop", "--issuer", issuer.url, "--client-secret-env", "SHOP")
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "login",
            url,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            env=surroundings(COLONNADE_HOME=str(home), BROWSER=f"{opener} %s", SHOP=SHOP),
        )
        assert await process.wait() == 0
        secrets = secrets_of(await stored_login(Login(keep=True), url), home)
        assert SHOP in secrets
        environ, arguments = json.loads(seen.read_text())
        assert arguments[1].startswith(f"{issuer.url}/authorize?")
        assert "SHOP" not in environ
        shown_to_browser = json.dumps([environ, arguments])
        assert [one for one in secrets if one in shown_to_browser] == []


@live_for(TEST_S)
async def test_a_command_that_uses_a_login_shows_nothing_of_it(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("COLONNADE_HOME", str(home))
    shell = Shell(home)
    called, go_on = asyncio.Event(), asyncio.Event()

    def slow(auth: Protection) -> Server:
        server = notes(auth)

        @server.tool
        async def linger() -> str:
            called.set()
            await go_on.wait()
            return "done"

        return server

    async with serving(issuer, protection_options=PROTECTION_OPTIONS, make=slow) as url:
        assert (await shell.colonnade("login", url, "--no-browser"))[0] == 0
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "call",
            url,
            "linger",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=surroundings(COLONNADE_HOME=str(home)),
        )
        await called.wait()
        secrets = secrets_of(await stored_login(Login(keep=True), url), home)
        assert leaks(family(process.pid), secrets) == []
        go_on.set()
        out, _ = await process.communicate()
        assert (process.returncode, out.strip()) == (0, b"done")
