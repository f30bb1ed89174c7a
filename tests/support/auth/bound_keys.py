"""Proofs of a key (RFC 9449) as the issuer of the tests judges them, and the nonces that it wants.

Rules: nothing of the package verifies here, so that what it signs is read by somebody else.
"""

import base64
import hashlib
import json
import secrets
import time
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

# How old a proof may be, and how far ahead: clocks of one machine do not differ.
PROOF_S = 60


class BadProof(Exception):
    """What is no proof, in a word; `nonce` where only that was missing."""

    def __init__(self, words: str, nonce: str = "") -> None:
        super().__init__(words)
        self.nonce = nonce


class Proofs:
    """Those that came in so far, and the nonce that the next one must have, if any."""

    def __init__(self) -> None:
        self.nonce = ""
        self.seen: set[str] = set()
        self.keys: set[str] = set()

    def renew_nonce(self) -> None:
        """From now on another nonce is wanted, and the last one is worth nothing."""
        self.nonce = secrets.token_urlsafe(12)

    def check(self, text: str, url: str) -> str:
        """The thumbprint of the key that signed a proof for one POST to us."""
        head, claims, key = _read(text)
        if head.get("typ") != "dpop+jwt" or head.get("alg") != "ES256" or "d" in head["jwk"]:
            raise BadProof("the header")
        if (claims.get("htm"), claims.get("htu")) != ("POST", url):
            raise BadProof("the place")
        if abs(time.time() - claims["iat"]) > PROOF_S:
            raise BadProof("the time")
        if self.nonce and claims.get("nonce") != self.nonce:
            raise BadProof("the nonce", self.nonce)
        if claims["jti"] in self.seen:
            raise BadProof("used before")
        self.seen.add(claims["jti"])
        self.keys.add(key)
        return key


def _read(text: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    try:
        first, second, third = text.split(".")
        head, claims = json.loads(_plain(first)), json.loads(_plain(second))
        jwk, signature = head["jwk"], _plain(third)
        x, y = (int.from_bytes(_plain(jwk[name]), "big") for name in ("x", "y"))
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
        r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
        signed = f"{first}.{second}".encode()
        public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    except (ValueError, KeyError, TypeError, InvalidSignature) as error:
        raise BadProof(f"no proof: {error!r}") from None
    members = {name: jwk[name] for name in ("crv", "kty", "x", "y")}
    canonical = json.dumps(members, separators=(",", ":"), sort_keys=True)
    digest = hashlib.sha256(canonical.encode()).digest()
    return head, claims, base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _plain(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
