"""An issuer for tests: signing keys, JWTs good and bad, and the server that publishes the keys.

Rules: nothing of the package is used to sign, so that what it verifies was made by other code.
"""

import base64
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    ScriptedHttpServer,
    http_response,
    scripted_http_server,
)

_HASHES = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
_CURVES = {"ES256": (ec.SECP256R1, 32), "ES384": (ec.SECP384R1, 48), "ES512": (ec.SECP521R1, 66)}
_NAMES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}

Json = dict[str, Any]


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def packed(value: Any) -> str:
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def _number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class SigningKey:
    """A private key for one algorithm, and its public half."""

    def __init__(self, algorithm: str = "ES256", id: str = "one", bits: int = 2048) -> None:
        self.algorithm = algorithm
        self.id = id
        self.key: Any
        if algorithm == "EdDSA":
            self.key = ed25519.Ed25519PrivateKey.generate()
        elif algorithm in _CURVES:
            self.key = ec.generate_private_key(_CURVES[algorithm][0]())
        else:
            self.key = rsa.generate_private_key(65537, bits)

    @property
    def jwk(self) -> Json:
        public = self.key.public_key()
        found: Json = {"kid": self.id, "use": "sig"} if self.id else {}
        if self.algorithm == "EdDSA":
            return found | {"kty": "OKP", "crv": "Ed25519", "x": b64(public.public_bytes_raw())}
        numbers = public.public_numbers()
        if self.algorithm in _CURVES:
            size = _CURVES[self.algorithm][1]
            x, y = b64(numbers.x.to_bytes(size, "big")), b64(numbers.y.to_bytes(size, "big"))
            return found | {"kty": "EC", "crv": _NAMES[self.algorithm], "x": x, "y": y}
        return found | {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}

    @property
    def thumbprint(self) -> str:
        members = {k: v for k, v in self.jwk.items() if k in ("kty", "crv", "x", "y", "n", "e")}
        text = json.dumps(members, separators=(",", ":"), sort_keys=True)
        return b64(hashlib.sha256(text.encode()).digest())

    def signature(self, text: bytes) -> bytes:
        if self.algorithm == "EdDSA":
            return self.key.sign(text)
        digest = _HASHES[self.algorithm[2:]]()
        if self.algorithm in _CURVES:
            size = _CURVES[self.algorithm][1]
            r, s = decode_dss_signature(self.key.sign(text, ec.ECDSA(digest)))
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        if self.algorithm.startswith("PS"):
            return self.key.sign(
                text, padding.PSS(padding.MGF1(digest), digest.digest_size), digest
            )
        return self.key.sign(text, padding.PKCS1v15(), digest)

    def sign(self, claims: Any, **header: Any) -> str:
        """A JWT; a member of the header that is None is left out."""
        said = {"alg": self.algorithm, "typ": "at+jwt", "kid": self.id, **header}
        head = {name: value for name, value in said.items() if value is not None}
        text = f"{packed(head)}.{packed(claims)}"
        return f"{text}.{b64(self.signature(text.encode()))}"


class Issuer:
    """An issuer on loopback: publishes metadata and keys, and introspects tokens."""

    def __init__(self, server: ScriptedHttpServer, path: str = "") -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}{path}"
        self.signing_keys = [SigningKey()]
        self.extra_keys: list[Any] = []
        self.documents: dict[str, Any] = {}
        self.metadata: Json = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "introspection_endpoint": f"{self.url}/introspect",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.place = f"/.well-known/oauth-authorization-server{path}"
        self.down = False
        # The introspection result of each opaque token.
        self.introspection_results: dict[str, Json] = {}
        self.secret = ""

    @property
    def requested_paths(self) -> list[str]:
        """The paths that were asked for."""
        return [request.path for request in self.server.received]

    def claims(self, audience: Any, **more: Any) -> Json:
        """Those of a good token; one that is None is left out."""
        now = int(time.time())
        said = {
            "iss": self.url,
            "aud": audience,
            "sub": "ann",
            "iat": now,
            "exp": now + 300,
            "scope": "notes:read",
            **more,
        }
        return {name: value for name, value in said.items() if value is not None}

    def answer(self, request: ReceivedRequest) -> bytes:
        if self.down:
            return http_response(503)
        if request.path == self.place:
            return http_response(200, json.dumps(self.metadata).encode())
        if request.path == urlsplit(self.metadata["jwks_uri"]).path:
            keys = [*self.extra_keys, *(key.jwk for key in self.signing_keys)]
            return http_response(200, json.dumps({"keys": keys}).encode())
        if request.path == "/introspect":
            self.secret = request.headers.get("authorization", "")
            (token,) = parse_qs(request.body.decode())["token"]
            found = self.introspection_results.get(token, {"active": False})
            return http_response(200, json.dumps(found).encode())
        if request.path in self.documents:
            return http_response(200, json.dumps(self.documents[request.path]).encode())
        return http_response(404)


@asynccontextmanager
async def issuing(
    path: str = "", prepare: Callable[[Issuer], None] | None = None
) -> AsyncGenerator[Issuer]:
    """An issuer for as long as this is entered."""
    found: list[Issuer] = []

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.send(found[0].answer(await connection.receive()))

    async with scripted_http_server(handler) as server:
        found.append(Issuer(server, path))
        if prepare is not None:
            prepare(found[0])
        yield found[0]
