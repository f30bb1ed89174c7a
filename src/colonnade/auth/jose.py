"""Signed tokens as strangers write them (JWS and JWT, RFC 7515 and 7519): read, and verified.

Rules: no I/O. The algorithm is one that we allow *and* that the key is for; what a token says of
keys (`jku`, `x5u`, `jwk`, `x5c`) is never looked at. Only public keys verify here, so no secret can
be confused with one. One token has one spelling. A token never stands in an error.
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

# Identity providers with hundreds of groups in a token stay under 8 KiB; servers allow 16 in all.
MAX_TOKEN_CHARACTERS: Final = 16 * 1024
MAX_KEY_ID_CHARACTERS: Final = 256
# RFC 7518, 3.3; and above this a signature takes longer to check than a request to answer.
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_RSA_EXPONENT: Final = 2**32

# What each algorithm needs of a key: its type, its curve, the bits of its hash.
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
_THUMB_MEMBERS = {
    "RSA": ("e", "kty", "n"),
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
}

# Of a claim in the log: so many characters, and so many members of a list.
MAX_QUOTED_CHARACTERS: Final = 100
MAX_QUOTED: Final = 4

_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")

# Half of a character beyond the first 65,536, as JSON may escape it.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")

Json = dict[str, Any]


class BadToken(Exception):
    """A token is not to be trusted. The words may be told to its sender.

    `detail` is for the operator's log alone: what was expected and what was found. Of a token whose
    signature was not verified a stranger wrote what was found, so it comes through `quoted`.
    """

    def __init__(self, words: str, detail: str = "") -> None:
        super().__init__(words)
        self.detail = detail


def quoted(value: object) -> str:
    """A claim for the log: in ASCII, on one line, and short: its sender chose it."""
    if isinstance(value, list):
        members = cast("list[object]", value)
        more = [f"and {len(members) - MAX_QUOTED} more"] if len(members) > MAX_QUOTED else []
        return f"[{', '.join([*map(quoted, members[:MAX_QUOTED]), *more])}]"
    if isinstance(value, str | int | float) or value is None:
        text = ascii(value[:MAX_QUOTED_CHARACTERS] if isinstance(value, str) else value)
        return text[: 2 * MAX_QUOTED_CHARACTERS]
    return f"({type(value).__name__})"


class Signed(Struct, frozen=True):
    """A token as it is written, not trusted yet."""

    header: Json
    claims: Json
    text: bytes
    signature: bytes

    def __repr__(self) -> str:
        return "Signed(...)"

    @property
    def algorithm(self) -> str:
        """What it says it is signed with."""
        found = self.header.get("alg")
        return found if isinstance(found, str) else ""

    @property
    def key_id(self) -> str:
        """Which key it says signed it; empty where it does not."""
        found = self.header.get("kid", "")
        if not isinstance(found, str) or len(found) > MAX_KEY_ID_CHARACTERS:
            raise BadToken("the token names no key")
        return found


class Key(Struct, frozen=True):
    """A public key that somebody published, and what it may be used for."""

    id: str
    type: str
    curve: str
    algorithm: str
    thumbprint: str
    public: Any

    def __repr__(self) -> str:
        return f"Key({self.id!r}, {self.type})"

    def fits(self, algorithm: str) -> bool:
        """Whether it is a key for this algorithm."""
        wanted = _ALGORITHMS.get(algorithm)
        if wanted is None or (self.type, self.curve) != wanted[:2]:
            return False
        return self.algorithm in ("", algorithm)


def is_compact(text: str) -> bool:
    """Whether a token has the form of a JWT; others mean something to their issuer alone."""
    return len(text) <= MAX_TOKEN_CHARACTERS and _COMPACT.fullmatch(text) is not None


def parse(text: str) -> Signed:
    """A token's parts. Raises `BadToken`."""
    # Before anything is decoded: what is too large costs nothing.
    found = _COMPACT.fullmatch(text) if len(text) <= MAX_TOKEN_CHARACTERS else None
    if found is None:
        raise BadToken("the token is malformed")
    header, claims = read_object(uncoded(found[1])), read_object(uncoded(found[2]))
    if "crit" in header:  # we know no extension, so none that is critical (RFC 7515, 4.1.11)
        raise BadToken("the token has critical extensions that are not known here")
    text_signed = text[: found.end(2)].encode()
    return Signed(header, claims, text_signed, uncoded(found[3]))


def read_object(data: bytes) -> Json:
    """A JSON object that says each member once. Raises `BadToken`."""
    try:
        text = data.decode()
        found: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        if _HALF.search(text):  # which may be half a character: no text, and no bytes for it
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BadToken("the token is malformed") from None
    if not isinstance(found, dict):
        raise BadToken("the token is malformed")
    return cast("Json", found)


def _once(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member is there twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def coded(data: bytes) -> str:
    """Base64 for URLs without padding, as JOSE writes it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def uncoded(text: str) -> bytes:
    """What was coded, in its one spelling. Raises `BadToken`."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise BadToken("the token is malformed") from None
    if coded(data) != text:
        raise BadToken("the token is malformed")
    return data


def checked_algorithms(names: Iterable[str]) -> tuple[str, ...]:
    """An allow-list from what somebody configured. Raises `LocalProtocolError`."""
    wanted = (names,) if isinstance(names, str) else tuple(names)
    strangers = sorted(set(wanted) - _ALGORITHMS.keys())
    if strangers or not wanted:
        raise InvalidArgument(
            f"algorithms={list(wanted)}: tokens are verified with a public key and one of "
            f"{', '.join(_ALGORITHMS)}",
            argument="algorithms",
        )
    return wanted


# ---------------------------------------------------------------- keys


def read_key(jwk: object) -> Key | None:
    """A published key (JWK, RFC 7517); None for one that is not for verifying, or not known."""
    if not isinstance(jwk, dict):
        return None
    found = cast("Json", jwk)
    uses = found.get("key_ops")
    if found.get("use", "sig") != "sig" or (isinstance(uses, list) and "verify" not in uses):
        return None
    id, algorithm = found.get("kid", ""), found.get("alg", "")
    if not isinstance(id, str) or not isinstance(algorithm, str):
        return None
    try:
        public, curve = _public(found)
        thumb = thumbprint(found)
    except (BadToken, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Key(id, str(found["kty"]), curve, algorithm, thumb, public)


def _public(jwk: Json) -> tuple[Any, str]:
    """The key itself and its curve. Raises for what is none."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if jwk.keys() & {"d", "k", "p", "q"}:
        raise ValueError("a secret that somebody published is no key any more")
    kind = jwk["kty"]
    if kind == "RSA":
        n, e = _number(jwk["n"]), _number(jwk["e"])
        if not MIN_RSA_BITS <= n.bit_length() <= MAX_RSA_BITS or not 3 <= e < MAX_RSA_EXPONENT:
            raise ValueError("a key of no useful size")
        return rsa.RSAPublicNumbers(e, n).public_key(), ""
    curve = jwk["crv"]
    if kind == "EC":
        curves = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
        x, y = uncoded(jwk["x"]), uncoded(jwk["y"])
        if {len(x), len(y)} != {_COORDINATE_BYTES[curve]}:
            raise ValueError("a point of another curve")
        numbers = ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), curves[curve]()
        )
        return numbers.public_key(), curve
    if kind == "OKP" and curve == "Ed25519":
        return ed25519.Ed25519PublicKey.from_public_bytes(uncoded(jwk["x"])), curve
    raise ValueError("a kind of key that is not known here")


def _number(text: str) -> int:
    if len(text) > MAX_RSA_BITS:
        raise ValueError("a number of no useful size")
    return int.from_bytes(uncoded(text), "big")


def thumbprint(jwk: Json) -> str:
    """The digest that names a key (RFC 7638)."""
    members = {name: jwk[name] for name in _THUMB_MEMBERS[jwk["kty"]]}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return coded(hashlib.sha256(text.encode()).digest())


# ---------------------------------------------------------------- signatures


def verify(signed: Signed, key: Key, allowed: Iterable[str]) -> None:
    """Raise `BadToken` unless this key signed it, with an algorithm that is allowed."""
    from cryptography.exceptions import InvalidSignature

    algorithm, allowed = signed.algorithm, tuple(allowed)
    if algorithm not in allowed or not key.fits(algorithm):
        detail = f"alg {quoted(signed.header.get('alg'))}, allowed {' '.join(allowed)}"
        raise BadToken("the token is signed in a way that is not allowed here", detail)
    try:
        _check(signed, key, algorithm)
    except (InvalidSignature, ValueError):
        detail = f"alg {algorithm}, kid {quoted(signed.header.get('kid'))}"
        raise BadToken("the token's signature is wrong", detail) from None


def _check(signed: Signed, key: Key, algorithm: str) -> None:
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
            raise ValueError("a signature of another curve")
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
# RFC 7518: less is not a key.

# Curve: algorithm, bytes of a coordinate, its name in a JWK.
_CURVES = {
    "secp256r1": (ES256, 32, "P-256"),
    "secp384r1": ("ES384", 48, "P-384"),
    "secp521r1": ("ES512", 66, "P-521"),
}


class SigningKey:
    """A private key that signs. Made with `generate`, or from PEM with `read_private_key`."""

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


def read_private_key(pem: str | bytes, algorithm: str = "", key_id: str = "") -> SigningKey:
    """The key that a PEM text holds. Raises `LocalProtocolError`, which never has any of it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = pem.encode() if isinstance(pem, str) else pem
    try:
        key: Any = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidArgument(
            "the private key cannot be read; it is a PEM text without a password, as "
            "openssl genpkey writes it",
            argument="private_key",
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
        raise InvalidArgument(
            f"such a key does not sign here; use P-256, Ed25519, or RSA of {MIN_RSA_BITS} bits",
            argument="private_key",
        )
    if wanted and wanted not in fits:
        raise InvalidArgument(f"this key signs with {', '.join(fits)}, and not {wanted[:20]}")
    return wanted or fits[0]
