"""The proxy's records in the store: sealed, each for its own name, changed by compare and swap.

Rules: a name in the store is a digest, so that it reveals no code, no state and no client. A record
that cannot be decrypted or decoded counts as missing. The records of two issuers on one store are
apart. Each record has the time of its expiry by the clock of the proxy, beside that of the store.
"""

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from colonnade.auth.jose import base64url_encode
from colonnade.errors import Fault
from colonnade.ports import SERVER_PRINCIPAL, Seal, Store

log: logging.Logger = logging.getLogger("colonnade.auth")

T = TypeVar("T", bound="ProxyRecord")
R = TypeVar("R", bound=Struct)

# The clocks of replicas differ: an entry is kept for this much longer than its record is valid.
CLOCK_SKEW_S: Final = 60.0


class ProxyRecord(Struct, frozen=True, kw_only=True):
    """Base of the records: the Unix time at which it expires. No record shows what it holds."""

    expires_at: float

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class StoredRecord(Struct, Generic[T], frozen=True):
    """A record as it was found: its value, and the sealed bytes that a change compares."""

    value: T
    raw: bytes


class ProxyStorage:
    """The records of one issuer, at the time of one request."""

    def __init__(self, store: Store, seal: Seal, issuer: str, now: float) -> None:
        self._store = store
        self._seal = seal
        self._space = hashlib.sha256(issuer.encode()).hexdigest()[:16]
        self._now = now

    # ------------------------------------------------------------ records

    async def load(self, kind: str, name: str, type: type[T]) -> StoredRecord[T] | None:
        """A record that has not expired; None if there is none."""
        found = await self.load_raw(kind, name, type)
        if found is None or found.value is None or found.value.expires_at <= self._now:
            return None
        return StoredRecord(found.value, found.raw)

    async def load_raw(self, kind: str, name: str, type: type[T]) -> "UncheckedRecord[T] | None":
        """What is stored under a name; its value is None if it cannot be decrypted."""
        key = self.key(kind, name)
        raw = await self._store.get(SERVER_PRINCIPAL, key)
        if raw is None:
            return None
        try:
            value = msgspec.json.decode(self._seal.decrypt(raw, key.encode()), type=type)
        except (Fault, msgspec.DecodeError, UnicodeDecodeError):
            log.warning("a stored %s cannot be decrypted with these keys", kind)
            return UncheckedRecord(None, raw)
        return UncheckedRecord(value, raw)

    async def add(self, kind: str, name: str, value: ProxyRecord) -> bool:
        """Store a new record; False if there is one. Raises what the store raises."""
        return await self.swap(kind, name, None, value)

    async def swap(
        self, kind: str, name: str, before: bytes | None, after: ProxyRecord | None
    ) -> bool:
        """Replace what was loaded, or delete it; False, and no change, if it has changed since."""
        key = self.key(kind, name)
        if after is None:
            return await self._store.swap(SERVER_PRINCIPAL, key, before, None, None)
        sealed = self._seal.encrypt(msgspec.json.encode(after), key.encode())
        return await self._store.swap(
            SERVER_PRINCIPAL, key, before, sealed, self._ttl(after.expires_at)
        )

    async def delete(self, kind: str, name: str) -> None:
        """Delete a record, whatever it is."""
        await self._store.delete(SERVER_PRINCIPAL, self.key(kind, name))

    # ------------------------------------------------------------ counts and leases

    async def count(self, what: str, window_s: float) -> int:
        """Count an event, and return how many there were in the current window of time."""
        key = self._counter(what, window_s)
        return await self._store.count(SERVER_PRINCIPAL, key, 1, 2 * window_s)

    async def counted(self, what: str, window_s: float) -> int:
        """Number of events counted in the current time window."""
        counter = await self._store.get(SERVER_PRINCIPAL, self._counter(what, window_s))
        return int(counter or 0)

    async def use_once(self, what: str, name: str, ttl_s: float) -> bool:
        """Whether this is the first use of a name, in every replica."""
        mark = hashlib.sha256(self.key(what, name).encode()).digest()
        return await self._store.use_once(SERVER_PRINCIPAL, mark, ttl_s)

    async def mark(self, what: str, name: str, ttl_s: float) -> None:
        """Remember a name for a time."""
        await self._store.put(SERVER_PRINCIPAL, self.key(what, name), b"", ttl_s)

    async def is_marked(self, what: str, name: str) -> bool:
        """Whether a name is remembered."""
        return await self._store.get(SERVER_PRINCIPAL, self.key(what, name)) is not None

    async def claim(self, what: str, name: str, owner: bytes, ttl_s: float) -> bool:
        """Take a lease; False if it is taken."""
        return await self._store.add(SERVER_PRINCIPAL, self.key(what, name), owner, ttl_s)

    async def release(self, what: str, name: str, owner: bytes) -> None:
        """Return a lease, unless it has expired and is taken by another; tell those that wait."""
        key = self.key(what, name)
        if await self._store.swap(SERVER_PRINCIPAL, key, owner, None, None):
            await self._store.publish(SERVER_PRINCIPAL, key, b"")

    def released(self, what: str, name: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The messages of a lease that is returned, from entering the context."""
        return self._store.listen(SERVER_PRINCIPAL, self.key(what, name))

    # ------------------------------------------------------------ members of a set

    async def add_member(self, kind: str, owner: str, name: str, expires_at: float) -> None:
        """Add a name to a set."""
        key = f"{self.key(kind, owner)} {name}"
        await self._store.put(SERVER_PRINCIPAL, key, b"", self._ttl(expires_at))

    async def remove_member(self, kind: str, owner: str, name: str) -> None:
        """Remove a name from a set."""
        await self._store.delete(SERVER_PRINCIPAL, f"{self.key(kind, owner)} {name}")

    async def members(self, kind: str, owner: str, limit: int) -> list[str]:
        """The names in a set."""
        prefix = f"{self.key(kind, owner)} "
        found = await self._store.names(SERVER_PRINCIPAL, prefix, "", limit)
        return [name.removeprefix(prefix) for name in found]

    @property
    def has_random_key(self) -> bool:
        """Whether no keys were given: what others have stored cannot be decrypted."""
        return self._seal.private

    # ------------------------------------------------------------ values that clients hold

    def seal_token(self, kind: str, value: Struct) -> str:
        """A token that only this issuer can make and read."""
        place = f"{self._prefix} {kind}".encode()
        return base64url_encode(self._seal.encrypt(msgspec.json.encode(value), place))

    def unseal_token(self, kind: str, token: bytes, type: type[R]) -> R | None:
        """The value of such a token; None for any other bytes."""
        place = f"{self._prefix} {kind}".encode()
        try:
            return msgspec.json.decode(self._seal.decrypt(token, place), type=type)
        except (Fault, msgspec.DecodeError, UnicodeDecodeError):
            return None

    # ------------------------------------------------------------ names

    @property
    def _prefix(self) -> str:
        return f"oauth proxy {self._space}"

    def key(self, kind: str, name: str) -> str:
        """The name in the store."""
        return f"{self._prefix} {kind} {digest(name)}"

    def _counter(self, what: str, window_s: float) -> str:
        return f"{self._prefix} count {what} {int(self._now // window_s)}"

    def _ttl(self, expires_at: float) -> float:
        return max(expires_at - self._now, 0.0) + CLOCK_SKEW_S


class UncheckedRecord(Struct, Generic[T], frozen=True):
    """What is stored under a name; `value` is None if it cannot be read."""

    value: T | None
    raw: bytes


def digest(*parts: str) -> str:
    """A digest of strings, as a name in the store, or to compare secrets."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
