"""The library `keyring` itself, with a backend that needs no desktop: it keeps the key of logins.

Rules: in an environment of its own that `scripts/_peers` makes; each command is a process.
"""

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from auth.client.test_login import serving
from auth.client.test_login_commands import Shell
from auth.issuer import Issuer, issuing
from interop.peers import INSTALL_S, ROOT
from live import live_for

pytestmark = pytest.mark.slow

KEYRING = "25.7.0"
BACKEND = "keyrings.alt.file.PlaintextKeyring"
# Where the library finds nothing that works, as on a server.
NOTHING = "keyring.backends.fail.Keyring"
TEST_S = 600.0


@pytest.fixture(scope="module")
def python() -> str:
    make = [str(ROOT / "scripts" / "_peers"), "keyring", KEYRING, "colonnade"]
    made = subprocess.run(make, stdout=subprocess.PIPE, text=True, timeout=INSTALL_S)
    assert made.returncode == 0, "keyring could not be installed; see above"
    return str(Path(made.stdout.strip()) / "bin" / "python")


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


class Desk(Shell):
    """Commands of an environment with a keyring, which share a home and what the ring keeps."""

    def __init__(self, python: str, folder: Path, backend: str) -> None:
        super().__init__(folder / "home")
        self.python = python
        self.ring = folder / "data" / "python_keyring" / "keyring_pass.cfg"
        self.surroundings = {
            "PYTHON_KEYRING_BACKEND": backend,
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    async def colonnade(self, *words: str, **env: str) -> tuple[int | None, str, str]:
        given = {**self.surroundings, **env}
        return await self.run(self.python, "-m", "colonnade", *words, **given)

    def files(self) -> set[str]:
        return {file.name.partition("-")[0] for file in self.home.iterdir()}


@live_for(TEST_S)
async def test_a_login_is_kept_under_a_key_that_only_the_keyring_has(
    issuer: Issuer, python: str, tmp_path: Path
) -> None:
    desk = Desk(python, tmp_path, BACKEND)
    async with serving(issuer) as url:
        code, _, told = await desk.colonnade("login", url, "--no-browser")
        assert code == 0, told
        assert desk.files() == {"credentials.db"}
        ring = desk.ring.read_text("utf-8")
        assert "[colonnade]" in ring
        code, out, told = await desk.colonnade("call", url, "whoami")
        assert (code, told) == (0, "")
        assert out.strip().endswith("ann")
        assert desk.ring.read_text("utf-8") == ring  # made once
        desk.ring.unlink()  # another machine, to which the file was carried
        code, out, told = await desk.colonnade("call", url, "whoami")
        assert (code, out) == (3, "")
        assert "cannot be decrypted with this key" in told
    assert len(desk.browser.opened) == 1


@live_for(TEST_S)
async def test_where_no_backend_works_the_key_is_in_a_file(
    issuer: Issuer, python: str, tmp_path: Path
) -> None:
    desk = Desk(python, tmp_path, NOTHING)
    async with serving(issuer) as url:
        code, _, told = await desk.colonnade("login", url, "--no-browser")
        assert code == 0, told
        assert desk.files() == {"credentials.db", "credentials.key"}
        code, out, _ = await desk.colonnade("whoami", url, "--json")
        assert (code, json.loads(out)["server"]) == (0, url)
    assert not desk.ring.exists()
