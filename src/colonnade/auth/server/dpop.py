"""DPoP proofs of possession (RFC 9449) as a resource server verifies them, and its nonces.

Rules: a proof is for one request (method, URL, access token), is a minute old at most, and is
accepted once, by all replicas that share a store. A nonce is sealed time, so that replicas that
share keys accept each other's without shared state.
"""

import hashlib
import struct
from typing import Any, Final
from urllib.parse import urlsplit

from colonnade.auth.jose import (
    ALGORITHMS,
    InvalidToken,
    base64url_encode,
    parse_jwk,
    parse_jwt,
    verify_signature,
)
from colonnade.auth.urls import DEFAULT_PORTS
from colonnade.errors import Fault
from colonnade.ports import Seal, Store

# RFC 9449, 11.1: seconds, not minutes; clocks of clients are worse than those of servers.
MAX_PROOF_AGE_S: Final = 60.0
# Clocks of replicas that share a store differ; a used proof is remembered for this much longer.
CLOCK_SKEW_S: Final = 10.0
# Long enough that a client needs a new nonce now and then, not with each request.
NONCE_TTL_S: Final = 300.0
MAX_PROOF_CHARACTERS: Final = 4096
MAX_ID_CHARACTERS: Final = 256
PROOF_TYPE: Final = "dpop+jwt"
_TIME = struct.Struct(">d")
_PURPOSE: Final = b"a nonce for DPoP "


class InvalidProof(InvalidToken):
    """The DPoP proof is invalid."""


class NonceRequired(InvalidProof):
    """The proof has no nonce of this server, or an expired one."""


class DpopProof:
    """One DPoP proof, verified for one request except for replay and nonce."""

    def __init__(self, text: str, method: str, url: str, token: str | None, now: float) -> None:
        """Parse and verify; `token` is None at a token endpoint. Raises `InvalidProof` if it is not
        valid for this request."""
        if len(text) > MAX_PROOF_CHARACTERS:
            raise InvalidProof("the proof is too long")
        try:
            signed = parse_jwt(text)
            jwk = signed.header.get("jwk")
            key = parse_jwk(jwk)
            if signed.header.get("typ") != PROOF_TYPE or key is None:
                raise InvalidProof("the proof is malformed, or has no public key")
            verify_signature(signed, key, ALGORITHMS)
        except InvalidProof:
            raise
        except InvalidToken:
            raise InvalidProof("the proof is malformed, or not signed by its key") from None
        claims = signed.claims
        self.thumbprint: str = key.thumbprint
        self.id: str = _string(claims.get("jti"))
        self.nonce: str = _string(claims.get("nonce", "none"))
        htu = _string(claims.get("htu"))
        if claims.get("htm") != method or _normalize_url(htu) != _normalize_url(url):
            raise InvalidProof("the proof is for another request")
        at = claims.get("iat")
        # Compared, never subtracted: JSON has integers that do not fit a float.
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise InvalidProof("the proof is malformed")
        if not now - MAX_PROOF_AGE_S <= at <= now + MAX_PROOF_AGE_S:
            raise InvalidProof("the proof has expired, or its iat is in the future")
        self.at: float = at
        if token is None:  # RFC 9449, 4.2: only proofs with an access token name one
            return
        if claims.get("ath") != base64url_encode(hashlib.sha256(token.encode()).digest()):
            raise InvalidProof("the proof is for another token")

    async def use(self, principal: str, store: Store, now: float) -> None:
        """Mark it as used. Raises `InvalidProof` if it was used before, here or at another replica.

        Raises the error of the store if the store fails.
        """
        digest = hashlib.sha256(f"{self.thumbprint} {self.id}".encode()).digest()
        # As long as it could be accepted, which is longer if the clock of the client is ahead.
        ttl_s = self.at + MAX_PROOF_AGE_S - now + CLOCK_SKEW_S
        if not await store.use_once(principal, b"dpop " + digest, ttl_s):
            raise InvalidProof("the proof was used before")


class DpopNonces:
    """Stateless DPoP nonces: the time, sealed with the keys that replicas share."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def make(self, now: float) -> str:
        """A new nonce, valid for `NONCE_TTL_S`."""
        return self._seal.seal(_PURPOSE + _TIME.pack(now))

    def check(self, nonce: str, now: float) -> None:
        """Raises `NonceRequired` for a nonce of another server, or an expired one."""
        try:
            made = self._seal.unseal(nonce)
        except Fault:
            raise NonceRequired("the proof needs a nonce") from None
        start, stamp = made[: len(_PURPOSE)], made[len(_PURPOSE) :]
        if start != _PURPOSE or len(stamp) != _TIME.size:
            raise NonceRequired("the proof needs a nonce")
        if not 0 <= now - _TIME.unpack(stamp)[0] <= NONCE_TTL_S:
            raise NonceRequired("the proof needs a new nonce")


def _string(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 8 * MAX_ID_CHARACTERS:
        raise InvalidProof("the proof is malformed")
    return value


def _normalize_url(url: str) -> tuple[str, str, int | None, str]:
    """A URL for comparison (RFC 9449, 4.3): no query or fragment, default port, lower-case host."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        raise InvalidProof("the proof is for another request") from None
    return scheme, parts.hostname or "", port or DEFAULT_PORTS.get(scheme), parts.path or "/"
