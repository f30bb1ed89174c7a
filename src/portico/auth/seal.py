"""`requestState` as nobody but us can write or read it: AES-256-GCM under a ring of keys.

The first key of the ring seals, every key opens, so that keys can be changed while clients still
hold what the old one sealed. Replicas that share a ring open each other's.

Rules: what does not open is one refusal, whatever the reason; a key never reaches a message. One
sealed text has one spelling: otherwise the same state would pass twice for two. The library
behind it takes 85 ms to load, so it is loaded when something is first sealed, or opened that looks
like ours.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from portico.errors import Fault, FaultKind
from portico.ports import Store
from portico.protocol.interview import Memory

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
# A mark of what was used outlives it by this much: the clocks of replicas differ.
CLOCK_SKEW_S = 60.0

_VERSION = b"\x01"
_HEAD_BYTES = len(_VERSION) + KEY_ID_BYTES
_WRAPPING_BYTES = _HEAD_BYTES + NONCE_BYTES + TAG_BYTES
MAX_SECRET_BYTES = MAX_SEALED_CHARACTERS // 4 * 3 - _WRAPPING_BYTES


class KeyRing:
    """Seals and opens. Without keys it makes one that lives as long as the process.

    `audience` is whom the sealed is for: servers that share keys and not their audience do not
    open each other's.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, audience: str = "") -> None:
        if any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a key has {KEY_BYTES} bytes; make one with secrets.token_bytes")
        # Whether nobody else can open what this seals: other replicas, or this one after a restart.
        self.private = not keys
        ring = list(keys) or [secrets.token_bytes(KEY_BYTES)]
        self._keys = {_key_id(key): key for key in reversed(ring)}
        self._first = _key_id(ring[0])
        self._audience = audience.encode()

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
        known = head[: len(_VERSION)] == _VERSION and head[len(_VERSION) :] in self._keys
        if not known or len(data) < _WRAPPING_BYTES:
            _refuse()
        cipher = self._cipher(head[len(_VERSION) :])
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(nonce, data[len(head + nonce) :], head + self._audience)
        except InvalidTag:
            _refuse()

    def _cipher(self, key_id: bytes) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._keys[key_id])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ring of keys is not copied or pickled; give its keys to another")


class SingleUse:
    """Lets each `requestState` pass once, in all replicas that share the store (R0796).

    For flows that must not run twice. What was let pass is spent, also if the call then fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def spend(self, state: str, memory: Memory, *, now: float) -> None:
        """Take the state for this call, after `recall` gave its memory. Raises `Fault` if it was
        taken before; where the store cannot say, its error: then the call must not go on."""
        key = f"spent requestState {hashlib.sha256(state.encode()).hexdigest()}"
        ttl_s = max(memory.expires_at - now, 0.0) + CLOCK_SKEW_S
        if not await self._store.add(memory.principal, key, b"", ttl_s):
            _refuse()


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"portico key id" + key).digest()[:KEY_ID_BYTES]


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
    words = "requestState is not one that this server gave for this; call again without it"
    raise Fault(FaultKind.INVALID_PARAMS, words) from None
