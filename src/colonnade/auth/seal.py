"""Encryption (AES-256-GCM) under a ring of keys: of `requestState`, and of values in a store.

The first key of the ring encrypts, every key decrypts, so that keys can be rotated while clients
still hold older states. Replicas that share a ring decrypt each other's. A state that is too large
to send to the client is stored, encrypted as well, and the client gets its name.

Rules: a state that cannot be decrypted is one error, whatever the cause; a key is never in a
message. Each encrypted state has one encoding: otherwise a single-use state would pass twice. The
library takes 85 ms to load, so it is loaded on first use.
"""

import base64
import binascii
import hashlib
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from colonnade.errors import Fault, FaultKind, Refused
from colonnade.ports import Seal, Store
from colonnade.protocol.input_rounds import RequestState, invalid_request_state

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
# Random: after 2^32 encryptions under one key two nonces collide with a probability of 2^-33.
# Rotate keys well before that; a million a day take eleven years.
NONCE_BYTES = 12
TAG_BYTES = 16
# Selects a key of the ring; reveals nothing about the key.
KEY_ID_BYTES = 4
# It is sent and returned with every round; what is larger is stored.
MAX_SEALED_CHARACTERS = 64 * 1024
# Room for some pictures in a sampling response, or a document.
MAX_STORED_BYTES = 1024 * 1024
# 128 bits, unguessable; but the name alone does not give access.
NAME_BYTES = 16
# A used state is remembered for this much longer: the clocks of replicas differ.
CLOCK_SKEW_S = 60.0

_VERSION = b"\x01"
_HEADER_BYTES = len(_VERSION) + KEY_ID_BYTES
_OVERHEAD_BYTES = _HEADER_BYTES + NONCE_BYTES + TAG_BYTES
MAX_SECRET_BYTES = MAX_SEALED_CHARACTERS // 4 * 3 - _OVERHEAD_BYTES
# A state that begins with this is the digest and name of a stored one; others are JSON.
_IN_STORE = b"in the store "
_DIGEST_BYTES = 32

log: logging.Logger = logging.getLogger("colonnade.server")


def load_cipher() -> "type[AESGCM]":
    """Import the cipher. The first time takes a tenth of a second, too long for an event loop."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM


class KeyRing:
    """Encrypts and decrypts. Without keys a new one is made, for the lifetime of the process.

    Servers that share keys but not the `audience` cannot decrypt each other's states.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, audience: str = "") -> None:
        if any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a key has {KEY_BYTES} bytes; make one with secrets.token_bytes")
        # Whether other replicas, or this server after a restart, cannot decrypt the states.
        self.private: bool = not keys
        ring = list(keys) or [secrets.token_bytes(KEY_BYTES)]
        self._keys = {_key_id(key): key for key in reversed(ring)}
        self._first = _key_id(ring[0])
        self._audience = audience.encode()
        self._warned = False

    def seal(self, secret: bytes) -> str:
        """Encrypt. Raises `Fault` for more than `MAX_SECRET_BYTES`."""
        if len(secret) > MAX_SECRET_BYTES:
            message = f"the request state has {len(secret)} bytes"
            raise Fault(FaultKind.INTERNAL, f"{message}; the maximum is {MAX_SECRET_BYTES}")
        return _encode(self.encrypt(secret))

    def unseal(self, text: str) -> bytes:
        """Decrypt. Raises `Fault` for anything that this ring did not encrypt."""
        return self.decrypt(_decode(text))

    def encrypt(self, secret: bytes, place: bytes = b"") -> bytes:
        """Encrypt a value of any size for one place of a store: it can be decrypted there only."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        head = _VERSION + self._first
        sealed = self._cipher(self._first).encrypt(nonce, secret, head + self._audience + place)
        return head + nonce + sealed

    def decrypt(self, data: bytes, place: bytes = b"") -> bytes:
        """Decrypt a value. Raises `Fault` for anything that this ring did not encrypt for the
        place."""
        head, nonce = data[:_HEADER_BYTES], data[_HEADER_BYTES : _HEADER_BYTES + NONCE_BYTES]
        if head[: len(_VERSION)] != _VERSION or len(data) < _OVERHEAD_BYTES:
            _refuse()
        if head[len(_VERSION) :] not in self._keys:
            self._warn()
            _refuse()
        cipher = self._cipher(head[len(_VERSION) :])
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(nonce, data[len(head + nonce) :], head + self._audience + place)
        except InvalidTag:
            _refuse()

    def _warn(self) -> None:
        """Warn once, when it happens: a server of one process does not need shared keys."""
        if self.private and not self._warned:
            self._warned = True
            log.warning(
                "rejected a requestState that another process encrypted: replicas, and a server "
                "that is restarted, need the same Server(keys=[...])"
            )

    def _cipher(self, key_id: bytes) -> "AESGCM":
        return load_cipher()(self._keys[key_id])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KeyRing cannot be copied or pickled; create another with the same keys")


class RequestStateStorage:
    """Encrypts a `requestState` of any size: a large one is put into the store (section 6)."""

    def __init__(self, seal: Callable[[], Seal], store: Callable[[], Store]) -> None:
        self._seal = seal
        self._store = store

    async def save(self, secret: bytes, principal: str, ttl_s: float) -> str:
        """The string to send to a client of this principal. Raises `Fault` if it is too large."""
        seal = self._seal().seal
        if len(secret) <= MAX_SECRET_BYTES:
            return seal(secret)
        size = f"the request state has {len(secret)} bytes"
        if len(secret) > MAX_STORED_BYTES:
            raise Fault(FaultKind.INTERNAL, f"{size}; the maximum is {MAX_STORED_BYTES}")
        name = secrets.token_urlsafe(NAME_BYTES)
        starts = range(0, len(secret), MAX_SECRET_BYTES)
        parts = [seal(secret[start : start + MAX_SECRET_BYTES]) for start in starts]
        try:
            value = "\n".join(parts).encode()
            await self._store().put(principal, _store_key(name), value, ttl_s + CLOCK_SKEW_S)
        except Refused as full:
            log.warning(
                "the store has no room for a requestState of %d bytes: %s", len(secret), full
            )
            message = f"{size}, and the store has no room for it"
            raise Fault(FaultKind.INTERNAL, f"{message}; try again later") from full
        return seal(_IN_STORE + hashlib.sha256(secret).digest() + name.encode())

    async def load(self, text: str, principal: str) -> bytes:
        """The saved state. Raises `Fault` for anything else, and if it has expired."""
        unseal = self._seal().unseal
        secret = unseal(text)
        if not secret.startswith(_IN_STORE):
            return secret
        digest, name = _split_reference(secret[len(_IN_STORE) :])
        value = await self._store().get(principal, _store_key(name))
        if value is None:
            _refuse()
        found = b"".join(unseal(part) for part in value.decode().split("\n"))
        # Write access to the store does not allow to swap the states of two callers.
        if hashlib.sha256(found).digest() != digest:
            _refuse()
        return found


def _store_key(name: str) -> str:
    return f"requestState {name}"


def _split_reference(reference: bytes) -> tuple[bytes, str]:
    return reference[:_DIGEST_BYTES], reference[_DIGEST_BYTES:].decode()


class SingleUse:
    """Accepts each `requestState` once, in all replicas that share the store (R0796).

    For flows that must not run twice. An accepted state is used up even if the call then fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def spend(self, state: str, memory: RequestState, *, now: float) -> None:
        """Use the state for this call, after its memory was decoded. Raises `Fault` if it was used
        before, and the error of the store if that fails: then the call must not continue."""
        key = f"spent requestState {hashlib.sha256(state.encode()).hexdigest()}"
        ttl_s = max(memory.expires_at - now, 0.0) + CLOCK_SKEW_S
        if not await self._store.add(memory.principal, key, b"", ttl_s):
            _refuse()


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"colonnade key id" + key).digest()[:KEY_ID_BYTES]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    """Decode canonical base64url. Raises `Fault`."""
    if len(text) > MAX_SEALED_CHARACTERS:
        _refuse()
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        _refuse()
    # The decoder skips unknown characters, and ignores the last bits.
    if _encode(data) != text:
        _refuse()
    return data


def _refuse() -> NoReturn:
    raise invalid_request_state() from None
