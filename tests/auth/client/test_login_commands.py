"""`colonnade login`, `whoami` and `logout`, the other commands after a login, and the examples.

Each is a process; a person is a thread that opens the page which was shown.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from auth.client.test_login import Browser, serving
from auth.issuer import Issuer, issuing
from cli.process import COMMAND, environment
from colonnade import Login
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import LoadRecord, SaveRecord
from colonnade.auth.client.storage import client_key, save_client
from colonnade.client.auth import storage_for
from live import live_for

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# Some processes one after the other, on a busy machine.
TEST_S = 600.0


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


class Shell:
    """Runs commands that share a home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.browser = Browser()

    async def run(self, *words: str, **env: str) -> tuple[int | None, str, str]:
        """The exit code, standard output and standard error; a page that is shown is opened."""
        pipe = asyncio.subprocess.PIPE
        given = environment(COLONNADE_HOME=str(self.home), BROWSER="true", **env)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=given
        )
        assert process.stdout is not None
        assert process.stderr is not None
        told = ""
        while line := await process.stderr.readline():
            told += line.decode()
            if line.startswith(b"http"):
                self.browser(line.decode().strip())
        return await process.wait(), (await process.stdout.read()).decode(), told

    async def colonnade(self, *words: str, **env: str) -> tuple[int | None, str, str]:
        return await self.run(*COMMAND, *words, **env)


@live_for(TEST_S)
async def test_a_login_is_for_every_command_until_it_is_given_back(
    issuer: Issuer, tmp_path: Path
) -> None:
    shell = Shell(tmp_path / "home")
    async with serving(issuer) as url:
        code, out, told = await shell.colonnade("ls", url)
        assert (code, out) == (3, "")
        assert f"log in: colonnade login {url}" in told
        assert "--header-env Authorization=VARIABLE, where VARIABLE is 'Bearer …'" in told
        assert (await shell.colonnade("whoami", url))[0] == 3

        code, out, told = await shell.colonnade("login", url, "--no-browser")
        assert (code, out) == (0, f"logged in to {url}, by {issuer.url}\n")
        assert "to log in, open this page" in told

        code, out, told = await shell.colonnade("call", url, "whoami")
        assert (code, told) == (0, "")
        assert out.strip().endswith("ann")

        code, out, told = await shell.colonnade("whoami", url, "--json")
        assert (code, told) == (0, "")
        facts = json.loads(out)
        assert (facts["server"], facts["issuer"]) == (url, issuer.url)
        assert "eyJ" not in out  # how a token begins

        code, out, told = await shell.colonnade("logout", url)
        assert (code, out, told) == (0, f"logged out of {url}\n", "")
        assert (await shell.colonnade("ls", url))[0] == 3
        assert (await shell.colonnade("logout", url))[0] == 3
    assert len(shell.browser.opened) == 1
    assert issuer.count("revoked") == 2


@live_for(TEST_S)
async def test_logout_deletes_a_registration_that_led_to_no_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a server that has forgotten the client: its page leads nowhere, and no login is stored."""
    shell = Shell(tmp_path / "home")
    monkeypatch.setenv("COLONNADE_HOME", str(shell.home))
    server, issuer = "https://notes.example/mcp", "https://notes.example"
    storage = storage_for(Login(keep=True))
    flow = save_client(server, RegisteredClient(issuer, "forgotten", dynamic=True))
    outcome = None
    with contextlib.suppress(StopIteration):
        while True:
            step = flow.send(outcome)
            outcome = None
            if isinstance(step, SaveRecord):
                await storage.save(step.name, step.value)
            elif isinstance(step, LoadRecord):
                outcome = await storage.load(step.name)
    code, out, told = await shell.colonnade("logout", server)
    assert (code, told) == (0, "")
    assert out == f"not logged in to {server}; deleted the client registration\n"
    assert await storage.load(client_key(server, issuer)) is None
    await storage.close()
    assert (await shell.colonnade("logout", server))[0] == 3


@live_for(TEST_S)
async def test_what_is_typed_wrongly_is_told(issuer: Issuer, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    for words in (("login", "server.py"), ("whoami", "--", "uvx", "x"), ("logout", "server.py")):
        code, _, told = await shell.colonnade(*words)
        assert code == 2
        assert "is for URLs" in told
    for more in (("--client-id", "a"), ("--client-secret-env", "NOT_THERE")):
        code, _, told = await shell.colonnade("login", "https://example.com/mcp", *more)
        assert code == 2
        assert "issuer" in told or "NOT_THERE" in told
    assert not shell.home.exists()


@live_for(TEST_S)
async def test_the_example_person_client_logs_in_and_is_remembered(
    issuer: Issuer, tmp_path: Path
) -> None:
    shell = Shell(tmp_path / "home")
    async with serving(issuer) as url:
        for _ in range(2):
            code, out, _ = await shell.run(
                sys.executable, "-W", "error", str(EXAMPLES / "person_client.py"), url
            )
            assert code == 0
            assert "has whoami" in out
    assert len(shell.browser.opened) == 1


@live_for(TEST_S)
async def test_the_example_machine_client_logs_in_by_itself(issuer: Issuer, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    env = {"ISSUER": issuer.url, "CLIENT_ID": "robot", "CLIENT_SECRET": "robot-secret"}
    async with serving(issuer) as url:
        code, out, told = await shell.run(
            sys.executable, "-W", "error", str(EXAMPLES / "machine_client.py"), url, **env
        )
    assert (code, told) == (0, "")
    assert "has whoami" in out
    assert not shell.home.exists()
