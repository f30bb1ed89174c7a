"""OAuth credentials of a client: token storage in memory, in a store, or in an encrypted file.

Rules: with `keep=True` tokens are stored in one file that only the user may read, encrypted with a
key in the system keyring if there is one, otherwise in a file beside it. No file is created before
there is something to store.
"""

import asyncio
import contextlib
import os
import secrets
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from colonnade.auth.client.credentials import LogoutResult, ServerCredentials
from colonnade.auth.client.login import Auth
from colonnade.auth.client.storage import HeldLease, StoredLogin, TokenStorage, keyring_key
from colonnade.auth.seal import KEY_BYTES
from colonnade.errors import Refused
from colonnade.ports import HttpSend
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_client.pool import HttpPool

# The folder, if not the default one of the platform.
HOME_VARIABLE = "COLONNADE_HOME"
FILE, KEY_FILE = "credentials.db", "credentials.key"
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_key_lock = threading.Lock()


def credentials_factory(auth: Auth, url: str) -> Callable[[HttpSend], ServerCredentials]:
    """What makes the credentials for one server, over the connections of its way."""

    def create(send: HttpSend) -> ServerCredentials:
        return ServerCredentials(auth, url, send, storage_for(auth))

    return create


async def stored_login(auth: Auth, url: str) -> StoredLogin | None:
    """The stored login of a server, without any request."""
    pool = HttpPool()
    credentials = credentials_factory(auth, url)(pool.send)
    try:
        return await credentials.login()
    finally:
        await credentials.close()
        await pool.close()


async def log_out(auth: Auth, url: str) -> LogoutResult:
    """Revoke and delete the stored login of a server, and the client that was registered for it."""
    pool = HttpPool()
    credentials = credentials_factory(auth, url)(pool.send)
    try:
        return await credentials.log_out()
    finally:
        await credentials.close()
        await pool.close()


def storage_for(auth: Auth) -> TokenStorage:
    """The token storage of a login: its own store, the file on this machine, or memory."""
    if auth.keep:
        return FileTokenStorage(auth.principal)
    if auth.store is None:
        auth.store = MemoryStore()
    return TokenStorage(auth.store, auth.principal, auth.keys)


class FileTokenStorage(TokenStorage):
    """Token storage in a file on this machine. Neither it nor its key is created before something
    is stored, so that reading leaves no file behind."""

    def __init__(self, principal: str) -> None:
        self._folder = storage_folder()
        super().__init__(SqliteStore(self._folder / FILE), principal, own=True)

    async def load(self, name: str) -> bytes | None:
        """The record of a name; None without a file."""
        if not (self._folder / FILE).exists():
            return None
        await self._prepare()
        return await super().load(name)

    async def save(
        self, name: str, value: bytes, ttl_s: float | None = None, lease: HeldLease | None = None
    ) -> None:
        """Write a record."""
        await self._prepare()
        await super().save(name, value, ttl_s, lease)

    async def claim(self, name: str, owner: bytes) -> bool:
        """Take a lease if it is free."""
        await self._prepare()
        return await super().claim(name, owner)

    async def _prepare(self) -> None:
        if not self._keys:
            # A keyring may prompt the user, and a folder may be on a network.
            self._keys = (await asyncio.to_thread(machine_key, self._folder),)


def storage_folder() -> Path:
    """The folder of the stored credentials."""
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


def make_private_folder(folder: Path) -> None:
    """Make a folder that only the user can use, and each missing one above it: the umask must not
    let others replace what is in them. Raises `OSError`."""
    missing = [folder, *folder.parents]
    for one in reversed([each for each in missing if not each.exists()]):
        one.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only the user may read, in a folder that is private from then on; other
    processes see all of it or nothing. Raises `OSError`."""
    make_private_folder(path.parent)
    if sys.platform != "win32":
        path.parent.chmod(_FOLDER_MODE)
    made, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(data)
        os.chmod(name, _FILE_MODE)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def machine_key(folder: Path) -> bytes:
    """The encryption key of this machine: from the system keyring, or a file that only the user
    may read. Creates the folder, and makes it private. Raises `Refused`."""
    with _key_lock:
        try:
            make_private_folder(folder)
            if sys.platform != "win32" and folder.stat().st_mode & _OTHERS:
                folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise Refused(f"cannot store logins in {folder}: {error.strerror}") from None
        return keyring_key(str(folder)) or file_key(folder / KEY_FILE)


def file_key(path: Path) -> bytes:
    """The key in a file that only the user may read, which is created if it is not there. Raises
    `Refused`, `OSError`."""
    with contextlib.suppress(FileExistsError):
        # Atomic: another process may read it at the same time.
        made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            os.link(made, path)
        finally:
            made.unlink()
    if sys.platform != "win32" and path.stat().st_mode & _OTHERS:
        raise Refused(
            f"{path} is readable by other users", hint="chmod 600 it, or remove it and log in again"
        )
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise Refused(f"{path} is not a valid key", hint="remove it and log in again")
    return key
