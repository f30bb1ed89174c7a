"""Signatures of ours: a key, and the compact text (JWS, RFC 7515) that it signs.

Rules: a private key never stands in an error or a `repr`. The library behind it takes long to
load, so it is loaded when something is first signed.
"""

import hashlib
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from colonnade.auth.jwt import coded
from colonnade.errors import LocalProtocolError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

ES256: Final = "ES256"
# RFC 7518: less is not a key.
MIN_RSA_BITS = 2048

# Curve: algorithm, bytes of a coordinate, its name in a JWK.
_CURVES = {
    "secp256r1": (ES256, 32, "P-256"),
    "secp384r1": ("ES384", 48, "P-384"),
    "secp521r1": ("ES512", 66, "P-521"),
}


class SigningKey:
    """A private key that signs. Made with `generate`, or from a PEM text with `read_key`."""

    def __init__(
        self,
        key: "EllipticCurvePrivateKey | RSAPrivateKey | Ed25519PrivateKey",
        algorithm: str = "",
        key_id: str = "",
    ) -> None:
        self._key: Any = key
        self.key_id: str = key_id
        self.algorithm: str = _algorithm(key, algorithm)

    def __repr__(self) -> str:
        return f"SigningKey({self.algorithm})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not copied or pickled")

    def sign(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """The claims, signed, as compact text."""
        head = {"alg": self.algorithm, **({"kid": self.key_id} if self.key_id else {}), **header}
        text = f"{coded(msgspec.json.encode(head))}.{coded(msgspec.json.encode(claims))}"
        return f"{text}.{coded(self._signature(text.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        if self.algorithm == "EdDSA":
            return self._key.sign(data)
        digest = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
        hashed = digest[self.algorithm[2:]]()
        if self.algorithm.startswith("ES"):
            size = next(one[1] for one in _CURVES.values() if one[0] == self.algorithm)
            r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashed)))
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        if self.algorithm.startswith("PS"):
            salted = padding.PSS(padding.MGF1(hashed), hashed.digest_size)
            return self._key.sign(data, salted, hashed)
        return self._key.sign(data, padding.PKCS1v15(), hashed)

    @property
    def public_jwk(self) -> dict[str, str]:
        """The public half, for an elliptic curve: what a proof shows."""
        numbers = self._key.public_key().public_numbers()
        _, size, name = _CURVES[self._key.curve.name]
        x, y = numbers.x.to_bytes(size, "big"), numbers.y.to_bytes(size, "big")
        return {"kty": "EC", "crv": name, "x": coded(x), "y": coded(y)}

    @property
    def thumbprint(self) -> str:
        """What a token that is bound to this key names (RFC 7638)."""
        jwk = self.public_jwk
        ordered = {name: jwk[name] for name in ("crv", "kty", "x", "y")}
        return coded(hashlib.sha256(msgspec.json.encode(ordered)).digest())

    def pem(self) -> str:
        """The private half, to be kept where secrets are."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def generate() -> SigningKey:
    """A new key for ES256, which every DPoP server knows."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return SigningKey(ec.generate_private_key(ec.SECP256R1()))


def read_key(pem: str | bytes, algorithm: str = "", key_id: str = "") -> SigningKey:
    """The key that a PEM text holds. Raises `LocalProtocolError`, which never has any of it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = pem.encode() if isinstance(pem, str) else pem
    try:
        key: Any = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise LocalProtocolError(
            "the private key cannot be read; it is a PEM text without a password, as "
            "openssl genpkey writes it"
        ) from None
    return SigningKey(key, algorithm, key_id)


def _algorithm(key: object, wanted: str) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        fits: tuple[str, ...] = (_CURVES[key.curve.name][0],)
    elif isinstance(key, rsa.RSAPrivateKey) and key.key_size >= MIN_RSA_BITS:
        fits = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        fits = ("EdDSA",)
    else:
        raise LocalProtocolError(
            f"such a key does not sign here; use P-256, Ed25519, or RSA of {MIN_RSA_BITS} bits"
        )
    if wanted and wanted not in fits:
        raise LocalProtocolError(f"this key signs with {', '.join(fits)}, and not {wanted[:20]}")
    return wanted or fits[0]
