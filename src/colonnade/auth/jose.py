"""JOSE: parse and verify JWTs (RFC 7515, 7519), JSON Web Keys (RFC 7517), private signing keys.

Rules: no I/O. The algorithm must be allowed *and* fit the key; key headers of a token (`jku`,
`x5u`, `jwk`, `x5c`) are ignored. Only public keys verify, so that a shared secret cannot be
confused with one. Each token has one encoding. A token is never in an error.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgspec
from msgspec import Struct

from colonnade.errors import InvalidArgument

# Tokens with hundreds of groups stay below 8 KiB; servers allow 16 KiB of headers in all.
MAX_TOKEN_CHARACTERS: Final = 16 * 1024
MAX_KEY_ID_CHARACTERS: Final = 256
# RFC 7518, 3.3; verification with a key above the maximum takes too long.
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_RSA_EXPONENT: Final = 2**32

# Key type, curve and hash bits of each algorithm.
_ALGORITHMS: Final[dict[str, tuple[str, str, int]]] = {
    "RS256": ("RSA", "", 256),
    "RS384": ("RSA", "", 384),
    "RS512": ("RSA", "", 512),
    "PS256": ("RSA", "", 256),
    "PS384": ("RSA", "", 384),
    "PS512": ("RSA", "", 512),
    "ES256": ("EC", "P-256", 256),
    "ES384": ("EC", "P-384", 384),
    "ES512": ("EC", "P-521", 512),
    "EdDSA": ("OKP", "Ed25519", 0),
}
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
_COORDINATE_BYTES = {"P-256": 32, "P-384": 48, "P-521": 66}
# RFC 7638: the members that a thumbprint is made of.
_THUMBPRINT_MEMBERS = {
    "RSA": ("e", "kty", "n"),
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
}

# Limits of a claim in the log.
MAX_QUOTED_CHARACTERS: Final = 100
MAX_QUOTED_ITEMS: Final = 4

_COMPACT_JWS = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")

# Escape of a surrogate, which may be unpaired.
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

Json = dict[str, Any]


class InvalidToken(Exception):
    """A token is invalid. The message may be sent to the client.

    `detail` is for the server log only: what was expected and what was found. Claims in it are
    untrusted, so they are passed through `quote_claim`.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


def quote_claim(value: object) -> str:
    """An untrusted claim for the log: ASCII, one line, short."""
    if isinstance(value, list):
        members = cast("list[object]", value)
        more = (
            [f"and {len(members) - MAX_QUOTED_ITEMS} more"]
            if len(members) > MAX_QUOTED_ITEMS
            else []
        )
        # A list in a list can be nested as deep as JSON is decoded: deeper than Python's recursion.
        return f"[{', '.join([*map(_quote_scalar, members[:MAX_QUOTED_ITEMS]), *more])}]"
    return _quote_scalar(value)


def _quote_scalar(value: object) -> str:
    if isinstance(value, str | int | float) or value is None:
        text = ascii(value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str) else value)
        return text[: 2 * MAX_QUOTED_CHARACTERS]
    return f"({type(value).__name__})"


class UnverifiedJwt(Struct, frozen=True):
    """A parsed JWT whose signature is not verified yet."""

    header: Json
    claims: Json
    text: bytes
    signature: bytes

    def __repr__(self) -> str:
        return "Signed(...)"

    @property
    def algorithm(self) -> str:
        """The `alg` header; empty if it is not a string."""
        found = self.header.get("alg")
        return found if isinstance(found, str) else ""

    @property
    def key_id(self) -> str:
        """The `kid` header; empty if missing. Raises `InvalidToken` if it is invalid."""
        found = self.header.get("kid", "")
        if not isinstance(found, str) or len(found) > MAX_KEY_ID_CHARACTERS:
            raise InvalidToken("the token has an invalid key id")
        return found


class JsonWebKey(Struct, frozen=True):
    """A public JSON Web Key (RFC 7517) for verification."""

    id: str
    type: str
    curve: str
    algorithm: str
    thumbprint: str
    public: Any
    # Of a key that signs for one of the issuers that share a key set; empty if it names none.
    issuer: str = ""

    def __repr__(self) -> str:
        return f"Key({self.id!r}, {self.type})"

    def fits(self, algorithm: str) -> bool:
        """Whether the key may be used with this algorithm."""
        wanted = _ALGORITHMS.get(algorithm)
        if wanted is None or (self.type, self.curve) != wanted[:2]:
            return False
        return self.algorithm in ("", algorithm)


def is_jwt(text: str) -> bool:
    """Whether a token has the form of a JWT; others are opaque."""
    return len(text) <= MAX_TOKEN_CHARACTERS and _COMPACT_JWS.fullmatch(text) is not None


def parse_jwt(text: str) -> UnverifiedJwt:
    """Parse a JWT without verification. Raises `InvalidToken`."""
    # The size is checked before anything is decoded.
    match = _COMPACT_JWS.fullmatch(text) if len(text) <= MAX_TOKEN_CHARACTERS else None
    if match is None:
        raise InvalidToken("the token is malformed")
    header, claims = (
        decode_json_object(base64url_decode(match[1])),
        decode_json_object(base64url_decode(match[2])),
    )
    if "crit" in header:  # no extension is supported (RFC 7515, 4.1.11)
        raise InvalidToken("the token has unsupported critical extensions")
    text_signed = text[: match.end(2)].encode()
    return UnverifiedJwt(header, claims, text_signed, base64url_decode(match[3]))


def decode_json_object(data: bytes) -> Json:
    """Decode a JSON object without duplicate members. Raises `InvalidToken`."""
    try:
        text = data.decode()
        value: object = json.loads(
            text, object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant
        )
        if _SURROGATE_ESCAPE.search(text):  # an unpaired surrogate cannot be encoded
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidToken("the token is malformed") from None
    if not isinstance(value, dict):
        raise InvalidToken("the token is malformed")
    return cast("Json", value)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate member")
    return found


def _reject_constant(text: str) -> float:
    raise ValueError(f"{text} is not valid JSON")


def base64url_encode(data: bytes) -> str:
    """Base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def base64url_decode(text: str) -> bytes:
    """Decode canonical base64url without padding. Raises `InvalidToken`."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidToken("the token is malformed") from None
    if base64url_encode(data) != text:
        raise InvalidToken("the token is malformed")
    return data


def check_algorithms(names: Iterable[str]) -> tuple[str, ...]:
    """The configured algorithms, checked. Raises `LocalProtocolError`."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    if not wanted or not _ALGORITHMS.keys() >= set(wanted):
        raise InvalidArgument(f"algorithms={list(wanted)}: supported are {', '.join(_ALGORITHMS)}")
    return wanted


# ---------------------------------------------------------------- keys


def parse_jwk(jwk: object) -> JsonWebKey | None:
    """Parse a public JWK (RFC 7517); None if it is unsupported, or not for verification."""
    if not isinstance(jwk, dict):
        return None
    members = cast("Json", jwk)
    uses = members.get("key_ops")
    if members.get("use", "sig") != "sig" or (isinstance(uses, list) and "verify" not in uses):
        return None
    id, algorithm = members.get("kid", ""), members.get("alg", "")
    issuer = members.get("issuer", "")
    if not all(isinstance(one, str) for one in (id, algorithm, issuer)):
        return None
    try:
        public, curve = _public_key(members)
        thumb = thumbprint(members)
    except (InvalidToken, ValueError, KeyError, TypeError, AttributeError):
        return None
    return JsonWebKey(id, str(members["kty"]), curve, algorithm, thumb, public, issuer)


def _public_key(jwk: Json) -> tuple[Any, str]:
    """The public key and its curve. Raises if it is invalid."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if jwk.keys() & {"d", "k", "p", "q"}:
        raise ValueError("a private key was published")
    kind = jwk["kty"]
    if kind == "RSA":
        n, e = _integer(jwk["n"]), _integer(jwk["e"])
        if not MIN_RSA_BITS <= n.bit_length() <= MAX_RSA_BITS or not 3 <= e < MAX_RSA_EXPONENT:
            raise ValueError("unsupported RSA key size")
        return rsa.RSAPublicNumbers(e, n).public_key(), ""
    curve = jwk["crv"]
    if kind == "EC":
        curves = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
        x, y = base64url_decode(jwk["x"]), base64url_decode(jwk["y"])
        if {len(x), len(y)} != {_COORDINATE_BYTES[curve]}:
            raise ValueError("the coordinates do not fit the curve")
        numbers = ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), curves[curve]()
        )
        return numbers.public_key(), curve
    if kind == "OKP" and curve == "Ed25519":
        return ed25519.Ed25519PublicKey.from_public_bytes(base64url_decode(jwk["x"])), curve
    raise ValueError("unsupported key type")


def _integer(text: str) -> int:
    if len(text) > MAX_RSA_BITS:
        raise ValueError("the integer is too large")
    return int.from_bytes(base64url_decode(text), "big")


def thumbprint(jwk: Json) -> str:
    """The JWK thumbprint (RFC 7638)."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return base64url_encode(hashlib.sha256(text.encode()).digest())


# ---------------------------------------------------------------- signatures


def verify_signature(signed: UnverifiedJwt, key: JsonWebKey, allowed: Iterable[str]) -> None:
    """Raise `InvalidToken` unless this key signed it, with an allowed algorithm."""
    from cryptography.exceptions import InvalidSignature

    algorithm, allowed = signed.algorithm, tuple(allowed)
    if algorithm not in allowed or not key.fits(algorithm):
        detail = f"alg {quote_claim(signed.header.get('alg'))}, allowed {' '.join(allowed)}"
        raise InvalidToken("the signature algorithm of the token is not allowed", detail)
    try:
        _verify_with(signed, key, algorithm)
    except (InvalidSignature, ValueError):
        detail = f"alg {algorithm}, kid {quote_claim(signed.header.get('kid'))}"
        raise InvalidToken("the signature of the token is invalid", detail) from None


def _verify_with(signed: UnverifiedJwt, key: JsonWebKey, algorithm: str) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    signature, text = signed.signature, signed.text
    kind, curve, bits = _ALGORITHMS[algorithm]
    if kind == "OKP":
        key.public.verify(signature, text)
        return
    digest = {256: hashes.SHA256, 384: hashes.SHA384, 512: hashes.SHA512}[bits]()
    if kind == "EC":
        size = _COORDINATE_BYTES[curve]
        if len(signature) != 2 * size:
            raise ValueError("the signature does not fit the curve")
        r, s = int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big")
        key.public.verify(encode_dss_signature(r, s), text, ec.ECDSA(digest))
    elif algorithm.startswith("PS"):
        salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
        key.public.verify(signature, text, salted, digest)
    else:
        key.public.verify(signature, text, padding.PKCS1v15(), digest)


if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

ES256: Final = "ES256"

# Curve: algorithm, bytes of a coordinate, its name in a JWK.
_CURVES = {
    "secp256r1": (ES256, 32, "P-256"),
    "secp384r1": ("ES384", 48, "P-384"),
    "secp521r1": ("ES512", 66, "P-521"),
}


class SigningKey:
    """A private key for signatures, from `generate_key` or `read_private_key` (PEM)."""

    def __init__(
        self,
        key: "EllipticCurvePrivateKey | RSAPrivateKey | Ed25519PrivateKey",
        algorithm: str = "",
        key_id: str = "",
    ) -> None:
        self._key: Any = key
        self.key_id: str = key_id
        self.algorithm: str = _choose_algorithm(key, algorithm)

    def __repr__(self) -> str:
        return f"SigningKey({self.algorithm})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be copied or pickled")

    def sign(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        """A signed JWT in compact serialization."""
        head = {"alg": self.algorithm, **({"kid": self.key_id} if self.key_id else {}), **header}
        parts = (base64url_encode(msgspec.json.encode(one)) for one in (head, claims))
        text = ".".join(parts)
        return f"{text}.{base64url_encode(self._signature(text.encode()))}"

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
        """The public key as a JWK (elliptic curves only), for DPoP proofs."""
        numbers = self._key.public_key().public_numbers()
        _, size, name = _CURVES[self._key.curve.name]
        x, y = numbers.x.to_bytes(size, "big"), numbers.y.to_bytes(size, "big")
        return {"kty": "EC", "crv": name, "x": base64url_encode(x), "y": base64url_encode(y)}

    @property
    def thumbprint(self) -> str:
        """The JWK thumbprint (RFC 7638)."""
        jwk = self.public_jwk
        ordered = {name: jwk[name] for name in ("crv", "kty", "x", "y")}
        return base64url_encode(hashlib.sha256(msgspec.json.encode(ordered)).digest())

    def pem(self) -> str:
        """The private key as PEM."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def generate_key() -> SigningKey:
    """A new ES256 key, which every DPoP server supports."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return SigningKey(ec.generate_private_key(ec.SECP256R1()))


def read_private_key(pem: str | bytes, algorithm: str = "", key_id: str = "") -> SigningKey:
    """Read a private key from PEM. Raises `LocalProtocolError`, without any part of the key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = pem.encode() if isinstance(pem, str) else pem
    try:
        key: Any = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidArgument(
            "the private key cannot be read; it must be PEM without a password, as "
            "openssl genpkey writes it"
        ) from None
    return SigningKey(key, algorithm, key_id)


def _choose_algorithm(key: object, wanted: str) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES:
        fits: tuple[str, ...] = (_CURVES[key.curve.name][0],)
    elif isinstance(key, rsa.RSAPrivateKey) and key.key_size >= MIN_RSA_BITS:
        fits = ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        fits = ("EdDSA",)
    else:
        raise InvalidArgument(
            f"unsupported private key; use P-256, Ed25519, or RSA of {MIN_RSA_BITS} bits"
        )
    if wanted and wanted not in fits:
        raise InvalidArgument(f"this key signs with {', '.join(fits)}, not {wanted[:20]}")
    return wanted or fits[0]
