"""Proof of possession (DPoP, RFC 9449): that whoever shows a token also has the key it is bound to.

Rules: a proof is for one request: its method, its URL, its token, this minute, and never twice.
The key in a proof proves nothing by itself; the token names it. A bound token without a proof is
worth nothing.
"""

import hashlib
import struct
from typing import Any, Final
from urllib.parse import urlsplit

from colonnade.auth.jwt import ALGORITHMS, BadToken, coded, parse, read_key, verify
from colonnade.errors import Fault
from colonnade.ports import Seal, Store

# RFC 9449, 11.1: seconds, not minutes; clocks of clients are worse than those of servers.
PROOF_S: Final = 60.0
# Replicas that share a store have clocks that differ; a proof is remembered for so much longer.
CLOCKS_S: Final = 10.0
# A nonce is taken for so long, so that a client needs a new one now and then, not each time.
NONCE_S: Final = 300.0
MAX_PROOF_CHARACTERS: Final = 4096
MAX_ID_CHARACTERS: Final = 256
PROOF_TYPE: Final = "dpop+jwt"
_TIME = struct.Struct(">d")
_PURPOSE: Final = b"a nonce for DPoP "
PORTS: Final = {"http": 80, "https": 443}


class BadProof(BadToken):
    """The proof is not to be trusted."""


class NonceWanted(BadProof):
    """The proof needs a nonce of ours, which it does not have."""


class Proof:
    """One proof, as far as it is right by itself."""

    def __init__(self, text: str, method: str, url: str, token: str, now: float) -> None:
        """Raises `BadProof` for one that is not for this request."""
        if len(text) > MAX_PROOF_CHARACTERS:
            raise BadProof("the proof is too long")
        try:
            signed = parse(text)
            jwk = signed.header.get("jwk")
            key = read_key(jwk)
            if signed.header.get("typ") != PROOF_TYPE or key is None:
                raise BadProof("the proof is malformed, or shows no public key")
            verify(signed, key, ALGORITHMS)
        except BadProof:
            raise
        except BadToken:
            raise BadProof("the proof is malformed, or not signed by its key") from None
        claims = signed.claims
        self.thumbprint: str = key.thumbprint
        self.id: str = _text(claims.get("jti"))
        self.nonce: str = _text(claims.get("nonce", "none"))
        if claims.get("htm") != method or _normal(_text(claims.get("htu"))) != _normal(url):
            raise BadProof("the proof is for another request")
        at = claims.get("iat")
        # Compared, never subtracted: there are numbers in JSON that no float can hold.
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise BadProof("the proof is malformed")
        if not now - PROOF_S <= at <= now + PROOF_S:
            raise BadProof("the proof is not of this minute")
        self.at: float = at
        if claims.get("ath") != coded(hashlib.sha256(token.encode()).digest()):
            raise BadProof("the proof is for another token")

    async def use(self, principal: str, store: Store, now: float) -> None:
        """Use it up. Raises `BadProof` where it was used before, here or at another replica.

        Raises what a store raises where that cannot be known.
        """
        digest = hashlib.sha256(f"{self.thumbprint} {self.id}".encode()).digest()
        # For as long as it could be accepted, which is longer where its sender's clock is ahead.
        ttl_s = self.at + PROOF_S - now + CLOCKS_S
        if not await store.use_once(principal, b"dpop " + digest, ttl_s):
            raise BadProof("the proof was used before")


class Nonces:
    """Nonces that need no memory: the time, sealed with the keys that replicas share."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def make(self, now: float) -> str:
        """A nonce for the next minutes."""
        return self._seal.seal(_PURPOSE + _TIME.pack(now))

    def check(self, nonce: str, now: float) -> None:
        """Raises `NonceWanted` for one that is not ours, or old."""
        try:
            made = self._seal.unseal(nonce)
        except Fault:
            raise NonceWanted("the proof needs a nonce") from None
        start, stamp = made[: len(_PURPOSE)], made[len(_PURPOSE) :]
        if start != _PURPOSE or len(stamp) != _TIME.size:
            raise NonceWanted("the proof needs a nonce")
        if not 0 <= now - _TIME.unpack(stamp)[0] <= NONCE_S:
            raise NonceWanted("the proof needs a new nonce")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 8 * MAX_ID_CHARACTERS:
        raise BadProof("the proof is malformed")
    return value


def _normal(url: str) -> tuple[str, str, int | None, str]:
    """A URL for comparison (RFC 9449, 4.3): without query and fragment, ports and case alike."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        raise BadProof("the proof is for another request") from None
    return scheme, parts.hostname or "", port or PORTS.get(scheme), parts.path or "/"
