"""The keys that sign access tokens: ES256, made on first use, sealed in the store, rotated.

A new key is published a day before it signs, and an old one until the last token that it signed has
expired, so that verifiers with a cached key set always know the key of a valid token.

Rules: a private key is in memory and, sealed, in the store; nowhere else. Replicas that find
different keys agree by compare and swap.
"""

import secrets
from typing import Any, Final

from msgspec import Struct

from colonnade.auth.jose import SigningKey, generate_key, read_private_key
from colonnade.auth.server.proxy.records import ProxyRecord, ProxyStorage
from colonnade.auth.server.verifier import LoopLock
from colonnade.errors import ChannelError

# How long before its first signature a key is published.
PUBLISHED_AHEAD_S: Final = 24 * 3600.0
# How long after its last signature: the longest lifetime of an access token, and more.
PUBLISHED_AFTER_S: Final = 2 * 3600.0
# Keys in memory are compared with the store this often.
RELOAD_S: Final = 60.0
# And for an unknown key id, this often at most.
UNKNOWN_KEY_RELOAD_S: Final = 5.0
# Keys are replaced long before the store forgets them.
KEPT_S: Final = 10 * 365 * 24 * 3600.0
# Replicas that make keys at the same time.
ATTEMPTS: Final = 8


class SigningKeyRecord(Struct, frozen=True):
    """One private key, and the time from which it signs."""

    id: str
    pem: str
    signs_from: float

    def __repr__(self) -> str:
        return f"SigningKeyRecord({self.id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]


class SigningKeyRecords(ProxyRecord, frozen=True, kw_only=True):
    """All keys, oldest first."""

    keys: tuple[SigningKeyRecord, ...]


class SigningKeys:
    """The keys of one issuer, in memory for a minute."""

    def __init__(self, rotation_s: float) -> None:
        self._rotation_s = rotation_s
        self._records: tuple[SigningKeyRecord, ...] = ()
        self._loaded_at: float | None = None
        self._parsed: dict[str, SigningKey] = {}
        self._lock = LoopLock()

    def __repr__(self) -> str:
        return f"SigningKeys({len(self._records)})"

    async def current(self, storage: ProxyStorage, now: float) -> SigningKey:
        """The key to sign with now."""
        await self._refresh(storage, now, RELOAD_S)
        return self._key(_signing(self._records, now))

    async def find(self, key_id: str, storage: ProxyStorage, now: float) -> SigningKey | None:
        """The published key of an id; None if there is none."""
        await self._refresh(storage, now, RELOAD_S)
        if key_id not in self._parsed_ids():
            await self._refresh(storage, now, UNKNOWN_KEY_RELOAD_S)
        found = next((one for one in self._records if one.id == key_id), None)
        return self._key(found) if found is not None else None

    async def jwks(self, storage: ProxyStorage, now: float) -> list[dict[str, Any]]:
        """The public keys as a JSON Web Key Set has them."""
        await self._refresh(storage, now, RELOAD_S)
        return [
            {**self._key(one).public_jwk, "kid": one.id, "use": "sig", "alg": "ES256"}
            for one in self._records
        ]

    def _parsed_ids(self) -> set[str]:
        return {one.id for one in self._records}

    def _key(self, record: SigningKeyRecord) -> SigningKey:
        key = self._parsed.get(record.id)
        if key is None:
            key = self._parsed[record.id] = read_private_key(record.pem, key_id=record.id)
        return key

    async def _refresh(self, storage: ProxyStorage, now: float, max_age_s: float) -> None:
        if self._is_fresh(now, max_age_s):
            return
        async with self._lock():
            if not self._is_fresh(now, max_age_s):
                self._records = await self._load(storage, now)
                self._loaded_at = now
                known = self._parsed_ids()
                self._parsed = {id: key for id, key in self._parsed.items() if id in known}

    def _is_fresh(self, now: float, max_age_s: float) -> bool:
        return self._loaded_at is not None and 0 <= now - self._loaded_at < max_age_s

    async def _load(self, storage: ProxyStorage, now: float) -> tuple[SigningKeyRecord, ...]:
        """The stored keys, after the rotation that is due."""
        for _ in range(ATTEMPTS):
            found = await storage.load_raw("keys", "", SigningKeyRecords)
            before = found.value.keys if found is not None and found.value is not None else ()
            after = rotate(before, now, self._rotation_s)
            if after == before:
                return before
            record = SigningKeyRecords(keys=after, expires_at=now + KEPT_S)
            if await storage.swap("keys", "", found.raw if found is not None else None, record):
                return after
        raise ChannelError("the signing keys in the store keep changing")


def rotate(
    keys: tuple[SigningKeyRecord, ...], now: float, rotation_s: float
) -> tuple[SigningKeyRecord, ...]:
    """The keys after what is due: a first one, the next one, and without those of the past."""
    kept = list(keys)
    if not kept:
        kept.append(_new_key(now))
    # One whose successor has signed for so long that no token of it is valid any more.
    while len(kept) > 1 and kept[1].signs_from + PUBLISHED_AFTER_S <= now:
        del kept[0]
    last = kept[-1]
    if last.signs_from <= now and last.signs_from + rotation_s - PUBLISHED_AHEAD_S <= now:
        due = max(last.signs_from + rotation_s, now + PUBLISHED_AHEAD_S)
        kept.append(_new_key(due))
    return tuple(kept)


def _signing(keys: tuple[SigningKeyRecord, ...], now: float) -> SigningKeyRecord:
    """The latest key whose time has come; the first one if the clock was set back."""
    return next((one for one in reversed(keys) if one.signs_from <= now), keys[0])


def _new_key(signs_from: float) -> SigningKeyRecord:
    return SigningKeyRecord(secrets.token_hex(8), generate_key().pem(), signs_from)
