"""`requestState` as nobody but us can write or read it: AES-256-GCM under a ring of keys.

The first key of the ring seals, every key opens, so that keys can be changed while clients still
hold what the old one sealed. Replicas that share a ring open each other's.

Rules: what does not open is one refusal, whatever the reason; a key never reaches a message. The
library behind it takes 85 ms to load, so it is loaded when something is first sealed or opened.
"""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Sequence

from portico.errors import Fault, FaultKind

KEY_BYTES = 32
NONCE_BYTES = 12
# Tells which key of the ring to use; says nothing about the key itself.
KEY_ID_BYTES = 4
# Answers travel along in it; more belongs into a store.
MAX_SEALED_CHARACTERS = 256 * 1024

_VERSION = b"\x01"


class KeyRing:
    """Seals and opens. Without keys it makes one that lives as long as the process."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        ring = list(keys) or [secrets.token_bytes(KEY_BYTES)]
        if any(len(key) != KEY_BYTES for key in ring):
            raise ValueError(f"a key has {KEY_BYTES} bytes; make one with secrets.token_bytes")
        self._keys = {_key_id(key): key for key in reversed(ring)}
        self._first = _key_id(ring[0])

    def seal(self, secret: bytes) -> str:
        """Text that only this ring opens."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(NONCE_BYTES)
        head = _VERSION + self._first
        sealed = AESGCM(self._keys[self._first]).encrypt(nonce, secret, head)
        return base64.urlsafe_b64encode(head + nonce + sealed).decode().rstrip("=")

    def unseal(self, text: str) -> bytes:
        """What was sealed. Raises `Fault` for anything else."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            if len(text) > MAX_SEALED_CHARACTERS:
                raise ValueError
            data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
            head, rest = data[: 1 + KEY_ID_BYTES], data[1 + KEY_ID_BYTES :]
            key = self._keys[head[1:]]
            return AESGCM(key).decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], head)
        except (ValueError, KeyError, binascii.Error, InvalidTag):
            words = "requestState is not one that this server gave; call again without it"
            raise Fault(FaultKind.INVALID_PARAMS, words) from None


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"portico key id" + key).digest()[:KEY_ID_BYTES]
