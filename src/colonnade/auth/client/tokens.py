"""Token endpoint: access tokens, refresh tokens, revocation, client authentication, DPoP proofs.

Rules: a client secret, a code, an assertion and a refresh token are sent to the token endpoint of
the issuer that they belong to, and nowhere else. None of them is ever in an error. A request is
repeated only to add a nonce (RFC 9449, 8).
"""

import base64
import hashlib
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlsplit

from msgspec import Struct

from colonnade.auth.client.discovery import AuthorizationServer
from colonnade.auth.client.registration import BASIC, NONE, POST, PRIVATE_KEY, RegisteredClient
from colonnade.auth.client.steps import (
    FORM,
    JSON,
    OK,
    Flow,
    FlowContext,
    FlowResponse,
    json_object,
    oauth_error,
    send_request,
    string_member,
)
from colonnade.auth.jose import ES256, SigningKey, base64url_encode
from colonnade.auth.urls import display_url
from colonnade.errors import AuthError, ConnectionLost
from colonnade.protocol.http.challenges import BEARER, DPOP

# Servers allow 16 KiB of headers in all, and those of Colonnade 64 KiB.
MAX_TOKEN_CHARACTERS = 32 * 1024
# Enough for an assertion to arrive, and for clocks that differ.
ASSERTION_TTL_S = 120
# A token without `expires_in` is used until the server rejects it.
NO_EXPIRY: Final = 0.0
# A token is refreshed this share of its lifetime before it expires, and this long at most.
REFRESH_SHARE, MAX_REFRESH_AHEAD_S = 0.1, 60.0
# A hundred years.
MAX_LIFETIME_S = 3_155_760_000.0

# The issuer does not know a client that was registered before.
FORGOTTEN_CLIENT_ERRORS: Final = frozenset({"invalid_client", "unauthorized_client"})
# Of a token request; an issuer may quote them when it refuses.
_SECRET_FIELDS: Final = frozenset(
    {"assertion", "code", "code_verifier", "refresh_token", "subject_token"}
)
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Pairs = list[tuple[str, str]]


class GrantRefused(AuthError):
    """A token endpoint refused; `error` is `invalid_grant`, `invalid_client`, `invalid_scope`."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


class Tokens(Struct, frozen=True, omit_defaults=True):
    """The tokens of one issuer for one resource. Each new set has another `generation`."""

    issuer: str
    resource: str
    client_id: str
    access_token: str
    generation: str
    token_type: str = BEARER
    refresh_token: str = ""
    issued_at: float = 0.0
    expires_at: float = NO_EXPIRY
    # Scopes.
    requested: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    # The private key that they are bound to (PEM), if any.
    key: str = ""
    # Whether they were obtained by a refresh token, not by a login.
    renewed: bool = False

    def __repr__(self) -> str:
        kind = "DPoP" if self.token_type == DPOP else "Bearer"
        return f"Tokens({kind} from {display_url(self.issuer)} for {display_url(self.resource)})"

    def is_valid(self, now: float) -> bool:
        """Whether the access token has not expired."""
        return self.expires_at == NO_EXPIRY or now < self.expires_at

    def is_fresh(self, now: float) -> bool:
        """Whether the access token need not be refreshed yet."""
        if self.expires_at == NO_EXPIRY:
            return True
        life = max(self.expires_at - self.issued_at, 0.0)
        return now < self.expires_at - min(life * REFRESH_SHARE, MAX_REFRESH_AHEAD_S)


class ClientIdentity(Struct, frozen=True):
    """A registered client with its keys: `signer` for assertions, `dpop_key` for DPoP proofs."""

    client: RegisteredClient
    context: FlowContext
    signer: SigningKey | None = None
    dpop_key: SigningKey | None = None


def request_token(
    issuer: AuthorizationServer,
    identity: ClientIdentity,
    pairs: Pairs,
    *,
    at: str = "",
    audience: str = "",
) -> Flow[dict[str, Any]]:
    """Send a token request; the decoded response.

    `at` is another token endpoint, of an identity provider, and `audience` its client assertion
    audience. Raises `GrantRefused`, `ConnectionLost`, `AuthError`.
    """
    url = at or issuer.token_endpoint
    if not url:
        raise AuthError(f"{display_url(issuer.issuer)} has no token endpoint")
    more, body = authenticate_client(issuer, identity, pairs, audience or issuer.issuer)
    response = yield from _post(url, more, body, identity)
    nonce = response.header("dpop-nonce")
    if nonce and identity.dpop_key is not None and oauth_error(response)[0] == "use_dpop_nonce":
        response = yield from _post(url, more, body, identity, nonce)
    sent = [value for name, value in pairs if name in _SECRET_FIELDS]
    return _token_response(response, url, [*sent, identity.client.client_secret])


def _post(
    url: str,
    more: Sequence[tuple[str, str]],
    body: bytes,
    identity: ClientIdentity,
    nonce: str = "",
) -> Flow[FlowResponse]:
    headers = [("content-type", FORM), ("accept", JSON), *more]
    if identity.dpop_key is not None:
        headers.append(
            ("dpop", dpop_proof(identity.dpop_key, identity.context, "POST", url, nonce=nonce))
        )
    return (yield from send_request("POST", url, headers, body))


def _token_response(response: FlowResponse, url: str, secrets: Sequence[str]) -> dict[str, Any]:
    where = display_url(url)
    if response.status >= 500 or response.status in (408, 425, 429):
        raise ConnectionLost(f"{where} responded with {response.status}; try again later")
    if response.status != OK:
        error, description = oauth_error(response, secrets)
        if not error:
            raise AuthError(f"{where} responded with {response.status}, without an OAuth error")
        reason = f"{error}: {description}" if description else error
        raise GrantRefused(f"{where} refused the token request ({reason})", error)
    found = json_object(response.body)
    if found is None:
        raise AuthError(f"the response of {where} is not a JSON object")
    return found


def authenticate_client(
    issuer: AuthorizationServer, identity: ClientIdentity, pairs: Pairs, audience: str
) -> tuple[Sequence[tuple[str, str]], bytes]:
    """The headers and the body of a request with client authentication."""
    client = identity.client
    headers: Pairs = []
    body = list(pairs)
    if client.method == PRIVATE_KEY:
        assert identity.signer is not None
        check_algorithm(issuer, identity.signer)
        # RFC 7523: the assertion identifies the client; no client_id beside it.
        body += [
            ("client_assertion_type", ASSERTION_TYPE),
            (
                "client_assertion",
                client_assertion(identity.signer, identity.context, client, audience),
            ),
        ]
    elif client.method == BASIC and client.client_secret:
        # RFC 6749, 2.3.1: both halves are form-encoded first.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        headers = [("authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]
    elif client.method == POST and client.client_secret:
        body += [("client_id", client.client_id), ("client_secret", client.client_secret)]
    elif client.method == NONE or not client.client_secret:
        body += [("client_id", client.client_id)]
    else:
        raise AuthError(
            f"{display_url(issuer.issuer)} requires the client authentication method "
            f"{client.method[:40]!r}, which is not supported"
        )
    return headers, encode_form(body)


def check_algorithm(issuer: AuthorizationServer, signer: SigningKey) -> None:
    """Raise `AuthError` if the issuer does not accept the signature algorithm of a key."""
    if issuer.signing_algorithms is not None and signer.algorithm not in issuer.signing_algorithms:
        listed = ", ".join(issuer.signing_algorithms[:10]) or "no algorithm"
        raise AuthError(
            f"{display_url(issuer.issuer)} accepts assertions signed with {listed}, but the key "
            f"signs with {signer.algorithm}; use another key"
        )


def client_assertion(
    signer: SigningKey, context: FlowContext, client: RegisteredClient, audience: str
) -> str:
    """A signed client assertion (RFC 7523), single-use and short-lived."""
    now = int(context.now())
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": audience,
        "jti": context.new_secret(),
        "iat": now,
        "exp": now + ASSERTION_TTL_S,
    }
    return signer.sign({"typ": "JWT"}, claims)


def encode_form(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Encode a body of `application/x-www-form-urlencoded`."""
    coded_pairs = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return "&".join(coded_pairs).encode()


# ---------------------------------------------------------------- responses


def read_tokens(
    response: dict[str, Any],
    issuer: AuthorizationServer,
    resource: str,
    identity: ClientIdentity,
    requested: Sequence[str],
    old: Tokens | None = None,
) -> Tokens:
    """The tokens of a token response. Raises `AuthError` for unusable ones."""
    where = display_url(issuer.token_endpoint)
    token = string_member(response, "access_token")
    if token is None or not fits_header(token):
        raise AuthError(f"the response of {where} has no access token that fits a header")
    kind = (string_member(response, "token_type") or "").lower()
    if kind not in (BEARER, DPOP):
        raise AuthError(f"{where} issued a token of an unsupported token_type")
    if (kind == DPOP) != (identity.dpop_key is not None):
        wanted = "is not" if identity.dpop_key is not None else "is"
        raise AuthError(f"{where} issued a token that {wanted} bound to a key, against the request")
    now = identity.context.now()
    scope = string_member(response, "scope")
    return Tokens(
        issuer=issuer.issuer,
        resource=resource,
        client_id=identity.client.client_id,
        access_token=token,
        generation=identity.context.new_secret(),
        token_type=kind,
        refresh_token=string_member(response, "refresh_token")
        or (old.refresh_token if old else ""),
        issued_at=now,
        expires_at=expiry_time(response.get("expires_in"), now),
        requested=tuple(requested),
        granted=tuple(scope.split()) if scope is not None else tuple(requested),
        key=identity.dpop_key.pem() if identity.dpop_key is not None else "",
        renewed=old is not None,
    )


def fits_header(token: str) -> bool:
    """Whether a token can be sent in a header."""
    fits = len(token) <= MAX_TOKEN_CHARACTERS and token.isascii() and token.isprintable()
    return fits and " " not in token


def expiry_time(life: object, now: float) -> float:
    """When a token expires that lives for `expires_in`, which some issuers send as a string."""
    if isinstance(life, str) and life.isdecimal() and len(life) < 12:
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or not isfinite(life):
        return NO_EXPIRY
    return now + min(max(float(life), 0.0), MAX_LIFETIME_S)


# ---------------------------------------------------------------- refresh and revocation


def refresh(issuer: AuthorizationServer, identity: ClientIdentity, old: Tokens) -> Flow[Tokens]:
    """New tokens for a refresh token, at its issuer. Raises as `request_token` does."""
    assert old.issuer == issuer.issuer == identity.client.issuer, "of one issuer"
    pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", old.refresh_token),
        ("resource", old.resource),
    ]
    found = yield from request_token(issuer, identity, pairs)
    return read_tokens(found, issuer, old.resource, identity, old.requested, old)


def revoke(issuer: AuthorizationServer, identity: ClientIdentity, token: str) -> Flow[bool]:
    """Revoke a token (RFC 7009); whether the issuer accepted that."""
    if not issuer.revocation_endpoint or not token:
        return False
    more, body = authenticate_client(issuer, identity, [("token", token)], issuer.issuer)
    headers = [("content-type", FORM), ("accept", JSON), *more]
    response = yield from send_request("POST", issuer.revocation_endpoint, headers, body)
    return response.status == OK


# ---------------------------------------------------------------- DPoP


def dpop_proof(
    key: SigningKey,
    context: FlowContext,
    method: str,
    url: str,
    *,
    nonce: str = "",
    token: str = "",
) -> str:
    """A DPoP proof for one request (RFC 9449, 4.2): its method, URL and access token."""
    claims: dict[str, Any] = {
        "jti": context.new_secret(),
        "htm": method,
        "htu": _without_query(url),
        "iat": int(context.now()),
    }
    if token:
        claims["ath"] = base64url_encode(hashlib.sha256(token.encode()).digest())
    if nonce:
        claims["nonce"] = nonce
    return key.sign({"typ": "dpop+jwt", "jwk": key.public_jwk}, claims)


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="", fragment="").geturl()


def check_dpop(issuer: AuthorizationServer, algorithms: str | None) -> None:
    """Raise `AuthError` if the server or its issuer does not accept ES256 proofs."""
    for what, listed in (
        ("the server", algorithms and algorithms.split()),
        ("it", issuer.dpop_algorithms),
    ):
        if listed is not None and ES256 not in listed:
            raise AuthError(
                f"tokens of {display_url(issuer.issuer)} must be bound to a key, but {what} does "
                f"not accept DPoP proofs signed with {ES256}"
            )
