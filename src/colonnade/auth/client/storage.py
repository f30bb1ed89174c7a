"""Token storage: stored logins and clients of one principal, encrypted if the store is durable.

A lease lets one process at a time refresh or log in, among all that share the store. It is not a
lock: requests with a valid token do not wait for it, and it expires if its process has died. What
the holder saves is saved only if it holds the lease in that moment: a process that was suspended
for longer cannot replace what another one has saved meanwhile.

Rules: a stored value cannot be read, or moved to another name, without the key: each value is
sealed for its own name. A value that cannot be decrypted counts as missing. No value is ever in a
log or an error.
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

from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import DeleteRecord, Flow, LoadRecord, SaveRecord
from colonnade.auth.client.tokens import Tokens
from colonnade.auth.seal import KEY_BYTES, KeyRing
from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost, Fault, Refused
from colonnade.ports import Store, Swap

T = TypeVar("T")

# A server has one issuer, and moves to another now and then.
MAX_ISSUERS: Final = 16


class StoredLogin(Struct, frozen=True):
    """A login for one server: its authorization server, the registered client, the tokens."""

    discovery: DiscoveryResult
    client: RegisteredClient
    tokens: Tokens

    @property
    def is_consistent(self) -> bool:
        """Whether all parts belong to one issuer; otherwise it is never used (CL-15)."""
        issuer = self.discovery.issuer.issuer
        return bool(issuer) and issuer == self.client.issuer == self.tokens.issuer


class CurrentLogin(Struct, frozen=True):
    """Which stored login of a server is in use: its issuer and its client id."""

    issuer: str
    client_id: str


class RegisteredIssuers(Struct, frozen=True):
    """The issuers at which clients were registered dynamically for one server."""

    issuers: tuple[str, ...] = ()


def current_login_key(server: str, account: str) -> str:
    """The key of the `CurrentLogin` of a server."""
    return _key("login", server, account)


def login_key(server: str, issuer: str, client_id: str) -> str:
    """The key of the `StoredLogin` of one client at one issuer for one server."""
    return _key("tokens", server, issuer, client_id)


def client_key(server: str, issuer: str) -> str:
    """The key of the client that was registered dynamically at an issuer."""
    return _key("client", server, issuer)


def issuers_key(server: str) -> str:
    """The key of the issuers at which clients were registered for a server."""
    return _key("issuers", server)


def lease_key(server: str, account: str) -> str:
    """The key of the lease of the process that is logging in or refreshing."""
    return _key("lease", server, account)


def _key(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"oauth {kind} {digest}"


def encode_record(value: Struct) -> bytes:
    """Encode a record for storage."""
    return msgspec.json.encode(value)


def decode_record(kind: type[T], data: object) -> T | None:
    """Decode a stored record; None if it is missing or invalid."""
    if not isinstance(data, bytes):
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None


def load_login(server: str, account: str) -> Flow[StoredLogin | None]:
    """The current login of a server."""
    pointer = decode_record(CurrentLogin, (yield LoadRecord(current_login_key(server, account))))
    if pointer is None:
        return None
    name = login_key(server, pointer.issuer, pointer.client_id)
    login = decode_record(StoredLogin, (yield LoadRecord(name)))
    if login is None or not login.is_consistent or login.discovery.issuer.issuer != pointer.issuer:
        return None
    return login if login.discovery.server == server else None


def save_login(login: StoredLogin, account: str) -> Flow[None]:
    """Store a login, and make it the current one."""
    server, issuer, client_id = login.discovery.server, login.client.issuer, login.client.client_id
    yield SaveRecord(login_key(server, issuer, client_id), encode_record(login))
    yield SaveRecord(
        current_login_key(server, account), encode_record(CurrentLogin(issuer, client_id))
    )


def load_client(discovery: DiscoveryResult, now: float) -> Flow[RegisteredClient | None]:
    """The client that was registered dynamically at an issuer for a server, if it is valid."""
    issuer = discovery.issuer.issuer
    name = client_key(discovery.server, issuer)
    kept = decode_record(RegisteredClient, (yield LoadRecord(name)))
    if kept is None or kept.issuer != issuer or not kept.is_valid(now):
        return None
    return kept


def save_client(server: str, client: RegisteredClient) -> Flow[None]:
    """Store a client that was registered dynamically."""
    yield SaveRecord(client_key(server, client.issuer), encode_record(client))
    known = decode_record(RegisteredIssuers, (yield LoadRecord(issuers_key(server))))
    before = known.issuers if known is not None else ()
    issuers = tuple(dict.fromkeys([*before, client.issuer]))[-MAX_ISSUERS:]
    if issuers != before:
        yield SaveRecord(issuers_key(server), encode_record(RegisteredIssuers(issuers)))


def delete_client(server: str, client: RegisteredClient) -> Flow[None]:
    """Delete a client that its issuer has forgotten, unless it was registered again meanwhile."""
    name = client_key(server, client.issuer)
    kept = decode_record(RegisteredClient, (yield LoadRecord(name)))
    if kept is not None and kept.client_id == client.client_id:
        yield DeleteRecord(name)


def delete_clients(server: str) -> Flow[bool]:
    """Delete all clients that were registered dynamically for a server; whether there were any."""
    name = issuers_key(server)
    known = decode_record(RegisteredIssuers, (yield LoadRecord(name)))
    if known is None:
        return False
    for issuer in known.issuers:
        yield DeleteRecord(client_key(server, issuer))
    yield DeleteRecord(name)
    return True


def delete_login(login: StoredLogin) -> Flow[None]:
    """Delete a login unless it was replaced by a newer one meanwhile (CL-31)."""
    name = login_key(login.discovery.server, login.client.issuer, login.client.client_id)
    kept = decode_record(StoredLogin, (yield LoadRecord(name)))
    if kept is not None and kept.tokens.generation == login.tokens.generation:
        yield DeleteRecord(name)


log: logging.Logger = logging.getLogger("colonnade.auth")

# A process that died during a refresh keeps the others waiting for this long.
LEASE_S = 20.0
# How often its holder extends it.
LEASE_RENEWAL_S = 5.0
# Only holders of the lease change a login, so one attempt to save it is nearly always enough.
MAX_SAVE_ATTEMPTS = 5


class HeldLease(Struct, frozen=True):
    """A lease that was taken: its name, and the random value that marks this holder."""

    name: str
    owner: bytes


class LeaseLost(ConnectionLost):
    """A lease expired before what it was for was saved."""

    not_sent: bool = True


class TokenStorage:
    """The records of one principal in a store. Without keys (memory store) nothing is encrypted."""

    def __init__(
        self, store: Store, principal: str = "", keys: Sequence[bytes] = (), *, own: bool = False
    ) -> None:
        self._store = store
        self._principal = principal
        self._keys = tuple(keys)
        # Whether the store belongs to this object, and is closed with it.
        self._own = own

    def __repr__(self) -> str:
        return f"TokenStorage({type(self._store).__name__})"

    async def load(self, name: str) -> bytes | None:
        """The record of a name, or None. Raises what the store raises."""
        return self._opened(name, await self._store.get(self._principal, name))

    def _opened(self, name: str, value: bytes | None) -> bytes | None:
        if value is None or not self._keys:
            return value
        try:
            return self._ring(name).unseal(value.decode("ascii", "replace"))
        except Fault:
            log.warning("a stored login cannot be decrypted with this key; log in again")
            return None

    async def save(
        self, name: str, value: bytes, ttl_s: float | None = None, lease: HeldLease | None = None
    ) -> None:
        """Write a record, which expires after `ttl_s`. Raises `LeaseLost` if a lease is given that
        is not held any more."""
        kept = self._ring(name).seal(value).encode() if self._keys else value
        if lease is None:
            await self._store.put(self._principal, name, kept, ttl_s)
        else:
            await self._replace(name, kept, lease)

    async def take(self, name: str) -> bytes | None:
        """The record of a name, which is deleted; None for all but one of those that take it."""
        stored = await self._store.get(self._principal, name)
        value = self._opened(name, stored)
        if value is None or not await self._store.swap(self._principal, name, stored, None, None):
            return None
        return value

    async def erase(self, name: str, lease: HeldLease | None = None) -> None:
        """Delete a record. Raises `LeaseLost` as `save` does."""
        if lease is None:
            await self._store.delete(self._principal, name)
        else:
            await self._replace(name, None, lease)

    async def _replace(self, name: str, after: bytes | None, lease: HeldLease) -> None:
        """Replace a record as the holder of a lease, in one step with a check of the lease."""
        principal = self._principal
        held = Swap(principal, lease.name, lease.owner, lease.owner, LEASE_S)
        for _ in range(MAX_SAVE_ATTEMPTS):
            before = await self._store.get(principal, name)
            if await self._store.swap_all((held, Swap(principal, name, before, after, None))):
                return
        raise LeaseLost("another process has taken over the refresh or login; try again")

    async def close(self) -> None:
        """Close the store if it belongs to this object."""
        if self._own:
            await self._store.close()

    def _ring(self, name: str) -> KeyRing:
        return KeyRing(self._keys, audience=f"{self._principal}\0{name}")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[HeldLease | None, None]:
        """The lease, which is extended until the context is left; None if it is not free."""
        owner = secrets.token_bytes(16)
        if not await self.claim(name, owner):
            yield None
            return
        beating = asyncio.get_running_loop().create_task(self._beat(name, owner))
        try:
            yield HeldLease(name, owner)
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError, ColonnadeError):
                await beating
            with contextlib.suppress(ColonnadeError):  # then it expires
                await self._store.swap(self._principal, name, owner, None, None)

    async def claim(self, name: str, owner: bytes) -> bool:
        """Take a lease if it is free."""
        return await self._store.add(self._principal, name, owner, LEASE_S)

    async def _beat(self, name: str, owner: bytes) -> None:
        while True:
            await asyncio.sleep(LEASE_RENEWAL_S)
            with contextlib.suppress(ChannelError):  # the next time may be in time
                if not await self._store.swap(self._principal, name, owner, owner, LEASE_S):
                    return  # it expired, and another process has it


# ---------------------------------------------------------------- keyring


log: logging.Logger = logging.getLogger("colonnade.auth")

SERVICE: Final = "colonnade"


def keyring_key(account: str) -> bytes | None:
    """The encryption key of an account, created on first use; None without a keyring."""
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
        log.debug("the system keyring is not available: %s", type(error).__name__)
        return None
    return key if len(key) == KEY_BYTES else None


def keyring_password(service: str, name: str) -> str:
    """A password that the user stored in the keyring. Raises `Refused` with what to do."""
    try:
        import keyring  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    except ImportError:
        message = "the library for the system keyring is not installed"
        raise Refused(f"{message}; pip install keyring") from None
    ring: Any = keyring
    try:
        found = ring.get_password(service, name)
    except Exception as error:  # every backend has errors of its own
        message = f"the system keyring is not available ({type(error).__name__})"
        raise Refused(f"{message}; use ${{env:NAME}} or ${{file:path}} instead") from None
    if found is None:
        message = f"the system keyring has no entry {service!r} {name!r}"
        raise Refused(f"{message}; add it: keyring set {service} {name}")
    return str(found)
