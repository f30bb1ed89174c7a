"""`requestState` as nobody but us can write or read it: AES-256-GCM under a ring of keys.

The first key of the ring seals, every key opens, so that keys can be changed while clients still
hold what the old one sealed. Replicas that share a ring open each other's. What is too large to
travel waits in a store, sealed all the same, and its name travels.

Rules: what does not open is one refusal, whatever the reason; a key never reaches a message. One
sealed text has one spelling: otherwise the same state would pass twice for two. The library
behind it takes 85 ms to load, so it is loaded when something is first sealed, or opened that looks
like ours.
"""

import base64
import binascii
import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from colonnade.errors import Fault, FaultKind, InvalidArgument, Refused
from colonnade.ports import Seal, Store
from colonnade.protocol.input_rounds import RequestState, invalid_request_state

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
# Drawn at random for each seal: after 2^32 seals under one key two of them are the same with a
# chance of one in 2^33. Change keys well before that; a million seals a day take eleven years.
NONCE_BYTES = 12
TAG_BYTES = 16
# Tells which key of the ring to use; says nothing about the key itself.
KEY_ID_BYTES = 4
# Answers travel along in it, there and back in every round; more belongs into a store.
MAX_SEALED_CHARACTERS = 64 * 1024
# And that is more than any person answers: some pictures that a model was shown, or a document.
MAX_STORED_BYTES = 1024 * 1024
# 128 bits: not guessed, though to know a name is not enough to get what it names.
NAME_BYTES = 16
# A mark of what was used outlives it by this much: the clocks of replicas differ.
CLOCK_SKEW_S = 60.0

_VERSION = b"\x01"
_HEAD_BYTES = len(_VERSION) + KEY_ID_BYTES
_WRAPPING_BYTES = _HEAD_BYTES + NONCE_BYTES + TAG_BYTES
MAX_SECRET_BYTES = MAX_SEALED_CHARACTERS // 4 * 3 - _WRAPPING_BYTES
# What begins like this is no memory, which is JSON, but the name and the digest of one.
_NAMED = b"in the store "
_DIGEST_BYTES = 32

log: logging.Logger = logging.getLogger("colonnade.server")


def load() -> "type[AESGCM]":
    """The cipher. The first time takes a tenth of a second: not for a loop that others wait for."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM


class KeyRing:
    """Seals and opens. Without keys it makes one that lives as long as the process.

    `audience` is whom the sealed is for: servers that share keys and not their audience do not
    open each other's.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, audience: str = "") -> None:
        if any(len(key) != KEY_BYTES for key in keys):
            raise InvalidArgument(
                f"a key has {KEY_BYTES} bytes; make one with secrets.token_bytes", argument="keys"
            )
        # Whether nobody else can open what this seals: other replicas, or this one after a restart.
        self.private: bool = not keys
        ring = list(keys) or [secrets.token_bytes(KEY_BYTES)]
        self._keys = {_key_id(key): key for key in reversed(ring)}
        self._first = _key_id(ring[0])
        self._audience = audience.encode()
        self._warned = False

    def seal(self, secret: bytes) -> str:
        """Text that only this ring opens. Raises `Fault` for more than may travel."""
        if len(secret) > MAX_SECRET_BYTES:
            words = f"{len(secret)} bytes of answers and kept results are too much to travel"
            raise Fault(FaultKind.INTERNAL, f"{words}; at most {MAX_SECRET_BYTES} may")
        nonce = secrets.token_bytes(NONCE_BYTES)
        head = _VERSION + self._first
        sealed = self._cipher(self._first).encrypt(nonce, secret, head + self._audience)
        return _written(head + nonce + sealed)

    def unseal(self, text: str) -> bytes:
        """What was sealed. Raises `Fault` for anything else."""
        data = _read(text)
        head, nonce = data[:_HEAD_BYTES], data[_HEAD_BYTES : _HEAD_BYTES + NONCE_BYTES]
        if head[: len(_VERSION)] != _VERSION or len(data) < _WRAPPING_BYTES:
            _refuse()
        if head[len(_VERSION) :] not in self._keys:
            self._warn()
            _refuse()
        cipher = self._cipher(head[len(_VERSION) :])
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(nonce, data[len(head + nonce) :], head + self._audience)
        except InvalidTag:
            _refuse()

    def _warn(self) -> None:
        """Once, and only where it happens: most servers are one process that never asks."""
        if self.private and not self._warned:
            self._warned = True
            log.warning(
                "a requestState came back that another process sealed, and was refused: replicas, "
                "and a server that is restarted, need the same Server(keys=[...])"
            )

    def _cipher(self, key_id: bytes) -> "AESGCM":
        return load()(self._keys[key_id])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ring of keys is not copied or pickled; give its keys to another")


class Depot:
    """Takes a `requestState` of any size: what may not travel waits in the store (section 6)."""

    def __init__(self, seal: Callable[[], Seal], store: Callable[[], Store]) -> None:
        self._seal = seal
        self._store = store

    async def deposit(self, secret: bytes, principal: str, ttl_s: float) -> str:
        """The text to give to a client of this principal. Raises `Fault` for far too much."""
        seal = self._seal().seal
        if len(secret) <= MAX_SECRET_BYTES:
            return seal(secret)
        size = f"{len(secret)} bytes of answers and kept results"
        if len(secret) > MAX_STORED_BYTES:
            words = f"{size} are too much to remember; at most {MAX_STORED_BYTES} are"
            raise Fault(FaultKind.INTERNAL, words)
        name = secrets.token_urlsafe(NAME_BYTES)
        starts = range(0, len(secret), MAX_SECRET_BYTES)
        parts = [seal(secret[start : start + MAX_SECRET_BYTES]) for start in starts]
        try:
            value = "\n".join(parts).encode()
            await self._store().put(principal, _place(name), value, ttl_s + CLOCK_SKEW_S)
        except Refused as full:
            log.warning("no room for a requestState of %d bytes: %s", len(secret), full)
            words = f"{size} are too much to travel, and there is no room to keep them now"
            raise Fault(FaultKind.INTERNAL, f"{words}; try again later") from full
        return seal(_NAMED + hashlib.sha256(secret).digest() + name.encode())

    async def collect(self, text: str, principal: str) -> bytes:
        """What was deposited. Raises `Fault` for anything else, and for what is gone."""
        unseal = self._seal().unseal
        secret = unseal(text)
        if not secret.startswith(_NAMED):
            return secret
        digest, name = _split(secret[len(_NAMED) :])
        value = await self._store().get(principal, _place(name))
        if value is None:
            _refuse()
        found = b"".join(unseal(part) for part in value.decode().split("\n"))
        # Whoever can write to the store can still not give one caller's answers to another.
        if hashlib.sha256(found).digest() != digest:
            _refuse()
        return found


def _place(name: str) -> str:
    return f"requestState {name}"


def _split(reference: bytes) -> tuple[bytes, str]:
    return reference[:_DIGEST_BYTES], reference[_DIGEST_BYTES:].decode()


class SingleUse:
    """Lets each `requestState` pass once, in all replicas that share the store (R0796).

    For flows that must not run twice. What was let pass is spent, also if the call then fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def spend(self, state: str, memory: RequestState, *, now: float) -> None:
        """Take the state for this call, after `recall` gave its memory. Raises `Fault` if it was
        taken before; where the store cannot say, its error: then the call must not go on."""
        key = f"spent requestState {hashlib.sha256(state.encode()).hexdigest()}"
        ttl_s = max(memory.expires_at - now, 0.0) + CLOCK_SKEW_S
        if not await self._store.add(memory.principal, key, b"", ttl_s):
            _refuse()


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"colonnade key id" + key).digest()[:KEY_ID_BYTES]


def _written(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read(text: str) -> bytes:
    """The bytes that are written like this, and in no other way. Raises `Fault`."""
    if len(text) > MAX_SEALED_CHARACTERS:
        _refuse()
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        _refuse()
    # The decoder skips what it does not know, and does not look at the last bits.
    if _written(data) != text:
        _refuse()
    return data


def _refuse() -> NoReturn:
    raise invalid_request_state() from None
