"""Where credentials live: a store of one principal, sealed where it outlives this process.

A lease says who is renewing or logging in now, in all processes that share the store: it is no
lock, nobody who has a good token waits for it, and it ends by itself where its holder has died.

Rules: nothing that is kept can be read or moved without the key: each value is sealed for its own
name. What does not open is as good as nothing. No value is ever in a log or an error.
"""

import asyncio
import base64
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from colonnade.auth.client.discovery import Found
from colonnade.auth.client.registration import Registered
from colonnade.auth.client.steps import Erase, Flow, Load, Save
from colonnade.auth.client.tokens import Tokens
from colonnade.auth.seal import KEY_BYTES, KeyRing
from colonnade.errors import ColonnadeError, Fault, Refused
from colonnade.ports import Store

T = TypeVar("T")


class Held(Struct, frozen=True):
    """What we hold for one server: where its tokens come from, who we are there, the tokens."""

    found: Found
    client: Registered
    tokens: Tokens

    @property
    def is_whole(self) -> bool:
        """Whether all of it is of one issuer; what is not is never used (CL-15)."""
        issuer = self.found.issuer.issuer
        return bool(issuer) and issuer == self.client.issuer == self.tokens.issuer


class Pointer(Struct, frozen=True):
    """Which login is the one in use: of which issuer, as which client."""

    issuer: str
    client_id: str


def pointer_name(server: str, account: str) -> str:
    """Where it says which login of a server is in use."""
    return _name("login", server, account)


def held_name(server: str, issuer: str, client_id: str) -> str:
    """Where the login of one client at one issuer for one server is."""
    return _name("tokens", server, issuer, client_id)


def client_name(server: str, issuer: str) -> str:
    """Where the client is that we registered with an issuer."""
    return _name("client", server, issuer)


def lease_name(server: str, account: str) -> str:
    """Where it says who is logging in, or renewing, now."""
    return _name("lease", server, account)


def _name(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"oauth {kind} {digest}"


def packed(value: Struct) -> bytes:
    """A record as it is kept."""
    return msgspec.json.encode(value)


def unpacked(kind: type[T], data: object) -> T | None:
    """A record that was kept; None for nothing, and for what is none."""
    if not isinstance(data, bytes):
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def recall(server: str, account: str) -> Flow[Held | None]:
    """The login of a server that is in use."""
    pointer = unpacked(Pointer, (yield Load(pointer_name(server, account))))
    if pointer is None:
        return None
    name = held_name(server, pointer.issuer, pointer.client_id)
    held = unpacked(Held, (yield Load(name)))
    if held is None or not held.is_whole or held.found.issuer.issuer != pointer.issuer:
        return None
    return held if held.found.server == server else None


def remember(held: Held, account: str) -> Flow[None]:
    """This is the login in use from now on."""
    server, issuer, client_id = held.found.server, held.client.issuer, held.client.client_id
    yield Save(held_name(server, issuer, client_id), packed(held))
    yield Save(pointer_name(server, account), packed(Pointer(issuer, client_id)))


def forget(held: Held) -> Flow[None]:
    """Keep this login no more, if it is still the one that is kept (CL-31)."""
    name = held_name(held.found.server, held.client.issuer, held.client.client_id)
    kept = unpacked(Held, (yield Load(name)))
    if kept is not None and kept.tokens.generation == held.tokens.generation:
        yield Erase(name)


log: logging.Logger = logging.getLogger("colonnade.auth")

SERVICE: Final = "colonnade"


def keyring_key(account: str) -> bytes | None:
    """The key that the keyring has for this account, made where it has none; None without one."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        return None
    ring: Any = keyring
    try:
        text = ring.get_password(SERVICE, account)
        if text is None:
            text = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            ring.set_password(SERVICE, account, text)
            text = ring.get_password(SERVICE, account)
        key = base64.b64decode(text or "", validate=True)
    except Exception as error:  # every backend has errors of its own
        log.debug("the keyring of this system does not work here: %s", type(error).__name__)
        return None
    return key if len(key) == KEY_BYTES else None


def keyring_password(service: str, name: str) -> str:
    """What somebody has put into the keyring. Raises `Refused`, which says what to do."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        words = "the keyring of this system is not reachable from here"
        raise Refused(f"{words}; pip install keyring") from None
    ring: Any = keyring
    try:
        found = ring.get_password(service, name)
    except Exception as error:  # every backend has errors of its own
        words = f"the keyring of this system does not work here ({type(error).__name__})"
        raise Refused(f"{words}; use ${{env:NAME}} or ${{file:path}} instead") from None
    if found is None:
        words = f"the keyring has nothing for {service!r} {name!r}"
        raise Refused(f"{words}; put it there: keyring set {service} {name}")
    return str(found)


# A process that died while it renewed keeps the others waiting for this long.
LEASE_S = 20.0
# How often its holder says that it is still at it.
BEAT_S = 5.0


class Vault:
    """What one principal keeps. Without keys nothing is sealed: for a store in memory."""

    def __init__(
        self, store: Store, principal: str = "", keys: Sequence[bytes] = (), *, own: bool = False
    ) -> None:
        self._store = store
        self._principal = principal
        self._keys = tuple(keys)
        # Whether the store is nobody else's, and ends with this.
        self._own = own

    def __repr__(self) -> str:
        return f"Vault({type(self._store).__name__})"

    async def load(self, name: str) -> bytes | None:
        """What is kept under a name. Raises what the store raises."""
        value = await self._store.get(self._principal, name)
        if value is None or not self._keys:
            return value
        try:
            return self._ring(name).unseal(value.decode("ascii", "replace"))
        except Fault:
            log.warning("something kept of a login does not open with this key; log in again")
            return None

    async def save(self, name: str, value: bytes) -> None:
        """Keep this under a name."""
        kept = self._ring(name).seal(value).encode() if self._keys else value
        await self._store.put(self._principal, name, kept, None)

    async def erase(self, name: str) -> None:
        """Keep nothing under a name."""
        await self._store.delete(self._principal, name)

    async def close(self) -> None:
        """Let the store go, where it is ours."""
        if self._own:
            await self._store.close()

    def _ring(self, name: str) -> KeyRing:
        return KeyRing(self._keys, audience=f"{self._principal}\0{name}")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[bool, None]:
        """Whether it is ours to do what this name stands for, for as long as this is entered."""
        owner = secrets.token_bytes(16)
        if not await self.claim(name, owner):
            yield False
            return
        beating = asyncio.get_running_loop().create_task(self._beat(name, owner))
        try:
            yield True
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError, ColonnadeError):
                await beating
            with contextlib.suppress(ColonnadeError):  # then it ends by itself
                if await self._store.get(self._principal, name) == owner:
                    await self._store.delete(self._principal, name)

    async def claim(self, name: str, owner: bytes) -> bool:
        """Take a lease where nobody has it."""
        return await self._store.add(self._principal, name, owner, LEASE_S)

    async def _beat(self, name: str, owner: bytes) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if await self._store.get(self._principal, name) != owner:
                return  # we were away for too long, and it is somebody else's
            await self._store.put(self._principal, name, owner, LEASE_S)
