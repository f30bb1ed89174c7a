"""Passports for the servers of a client: where credentials are kept, and what they are sealed with.

Rules: what is kept on this machine is in one file that nobody else may read, sealed with a key that
is in the keyring of the system where there is one, else in a file beside it. Nothing is made before
somebody needs it.
"""

import asyncio
import contextlib
import os
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from colonnade.auth.client.credentials import Passport
from colonnade.auth.client.login import Auth
from colonnade.auth.client.storage import Held, Vault, keyring_key
from colonnade.auth.seal import KEY_BYTES
from colonnade.errors import Refused
from colonnade.ports import HttpSend
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_client.pool import HttpPool

# Where it is kept, if not in the usual place of the system.
HOME_VARIABLE = "COLONNADE_HOME"
FILE, KEY_FILE = "credentials.db", "credentials.key"
_OWN_FOLDER, _OWN_FILE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_making = threading.Lock()


def issuing(auth: Auth, url: str) -> Callable[[HttpSend], Passport]:
    """What makes the passport for one server, over the connections of its way."""

    def made(send: HttpSend) -> Passport:
        return Passport(auth, url, send, vault_of(auth))

    return made


async def kept_login(auth: Auth, url: str) -> Held | None:
    """The login that is kept for a server; nothing is asked of anybody."""
    pool = HttpPool()
    passport = issuing(auth, url)(pool.send)
    try:
        return await passport.held()
    finally:
        await passport.close()
        await pool.close()


async def log_out(auth: Auth, url: str) -> bool | None:
    """Give back what is kept for a server, and forget it: whether its issuer took it back, None
    where nothing was kept."""
    pool = HttpPool()
    passport = issuing(auth, url)(pool.send)
    try:
        return await passport.log_out()
    finally:
        await passport.close()
        await pool.close()


def vault_of(auth: Auth) -> Vault:
    """Where this login is kept: its own store, the file of this machine, or memory."""
    if auth.keep:
        return FileVault(auth.principal)
    if auth.store is None:
        auth.store = MemoryStore()
    return Vault(auth.store, auth.principal, auth.keys)


class FileVault(Vault):
    """The file of this machine. Neither it nor its key is made before there is something to keep,
    so that looking leaves nothing behind."""

    def __init__(self, principal: str) -> None:
        self._folder = home()
        super().__init__(SqliteStore(self._folder / FILE), principal, own=True)

    async def load(self, name: str) -> bytes | None:
        """What is kept under a name; without a file, nothing."""
        if not (self._folder / FILE).exists():
            return None
        await self._prepare()
        return await super().load(name)

    async def save(self, name: str, value: bytes) -> None:
        """Keep this under a name."""
        await self._prepare()
        await super().save(name, value)

    async def claim(self, name: str, owner: bytes) -> bool:
        """Take a lease, in a file that is ours alone."""
        await self._prepare()
        return await super().claim(name, owner)

    async def _prepare(self) -> None:
        if not self._keys:
            # A keyring may ask a person, and a folder may be far away.
            self._keys = (await asyncio.to_thread(machine_key, self._folder),)


def home() -> Path:
    """The folder of what we keep."""
    given = os.environ.get(HOME_VARIABLE)
    if given:
        folder = Path(given)
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "colonnade"
    elif sys.platform == "darwin":
        folder = Path.home() / "Library/Application Support/colonnade"
    else:
        folder = (
            Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "colonnade"
        )
    return folder


def machine_key(folder: Path) -> bytes:
    """The key of this machine: from the system's keyring, or a file that only we may read. Makes
    the folder where there is none, and nobody else's. Raises `Refused`."""
    with _making:
        try:
            folder.mkdir(mode=_OWN_FOLDER, parents=True, exist_ok=True)
            if sys.platform != "win32" and folder.stat().st_mode & _OTHERS:
                folder.chmod(_OWN_FOLDER)
        except OSError as error:
            raise Refused(f"logins cannot be kept in {folder}: {error.strerror}") from None
        return keyring_key(str(folder)) or _file_key(folder / KEY_FILE)


def _file_key(path: Path) -> bytes:
    with contextlib.suppress(FileExistsError):
        # Whole or not at all: another process may look for it at this moment.
        made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_FILE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            os.link(made, path)
        finally:
            made.unlink()
    if sys.platform != "win32" and path.stat().st_mode & _OTHERS:
        hint = "chmod 600 it, or remove it and log in again"
        raise Refused(f"{path} can be read by others", hint=hint)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise Refused(f"{path} is no key", hint="remove it and log in again")
    return key
