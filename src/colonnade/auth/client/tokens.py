"""Tokens: asked for, renewed, given back; bound to a key where the server wants that (DPoP).

Rules: a client's secret, a code, an assertion and a refresh token go to the token endpoint of the
issuer that they belong to, and nowhere else: the endpoint travels with the issuer, checked. None
of them is ever in an error. A request is sent once more only to add a nonce (RFC 9449, 8).
"""

import base64
import hashlib
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final
from urllib.parse import quote, quote_plus, urlsplit

from msgspec import Struct

from colonnade.auth.client.discovery import Issuer
from colonnade.auth.client.registration import BASIC, NONE, POST, PRIVATE_KEY, Registered
from colonnade.auth.client.steps import (
    FORM,
    JSON,
    OK,
    Chance,
    Flow,
    Reply,
    fetch,
    object_in,
    refusal_in,
    text_in,
)
from colonnade.auth.jose import ES256, SigningKey, coded
from colonnade.auth.urls import shown
from colonnade.errors import AuthError, ConnectionLost
from colonnade.protocol.http.challenges import BEARER, DPOP

# A token in a header; servers allow 16 KiB of headers in all, and ours 64 KiB.
MAX_TOKEN_CHARACTERS = 32 * 1024
# For an assertion to arrive: a token endpoint answers at once, and clocks differ.
ASSERTION_S = 120
# Where an issuer does not say how long a token lasts, it is used until it is refused.
NO_END: Final = 0.0
# Of what is left of a token's life, so that none ends on its way; and no more than this.
EARLY_SHARE, EARLY_S = 0.1, 60.0
# A hundred years: more is no number of seconds.
MAX_LIFE_S = 3_155_760_000.0

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

Pairs = list[tuple[str, str]]


class GrantRefused(AuthError):
    """A token endpoint said no, and why: `invalid_grant`, `invalid_client`, `invalid_scope`."""

    def __init__(self, words: str, error: str) -> None:
        super().__init__(words)
        self.error = error


class Tokens(Struct, frozen=True, omit_defaults=True):
    """What one issuer gave us for one resource. `generation` tells one set from the next."""

    issuer: str
    resource: str
    client_id: str
    access_token: str
    generation: str
    token_type: str = BEARER
    refresh_token: str = ""
    issued_at: float = 0.0
    expires_at: float = NO_END
    # As they were asked for, and as they were given.
    requested: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    # The private key that they are bound to, where they are.
    key: str = ""
    # Whether they came of a refresh token, and not of a login.
    renewed: bool = False

    def __repr__(self) -> str:
        kind = "DPoP" if self.token_type == DPOP else "Bearer"
        return f"Tokens({kind} of {shown(self.issuer)} for {shown(self.resource)})"

    def lasts(self, now: float) -> bool:
        """Whether it can still be shown."""
        return self.expires_at == NO_END or now < self.expires_at

    def is_fresh(self, now: float) -> bool:
        """Whether nothing needs to be done about it yet."""
        if self.expires_at == NO_END:
            return True
        life = max(self.expires_at - self.issued_at, 0.0)
        return now < self.expires_at - min(life * EARLY_SHARE, EARLY_S)


class Holder(Struct, frozen=True):
    """A client as it shows that it is itself: registered, with a key of its own, bound or not."""

    client: Registered
    chance: Chance
    signer: SigningKey | None = None
    bound: SigningKey | None = None


def ask_token(
    issuer: Issuer, holder: Holder, pairs: Pairs, *, at: str = "", audience: str = ""
) -> Flow[dict[str, Any]]:
    """Ask a token endpoint; what it answers. Raises `GrantRefused`, `ConnectionLost`, `AuthError`.

    `at` and `audience` are for another party than the issuer: an identity provider.
    """
    url = at or issuer.token_endpoint
    if not url:
        raise AuthError(f"{shown(issuer.issuer)} names no token endpoint")
    more, body = client_proof(issuer, holder, pairs, audience or issuer.issuer)
    reply = yield from _posted(url, more, body, holder)
    nonce = reply.header("dpop-nonce")
    if nonce and holder.bound is not None and refusal_in(reply)[0] == "use_dpop_nonce":
        reply = yield from _posted(url, more, body, holder, nonce)
    return _answered(reply, url)


def _posted(
    url: str, more: Sequence[tuple[str, str]], body: bytes, holder: Holder, nonce: str = ""
) -> Flow[Reply]:
    headers = [("content-type", FORM), ("accept", JSON), *more]
    if holder.bound is not None:
        headers.append(("dpop", proof(holder.bound, holder.chance, "POST", url, nonce=nonce)))
    return (yield from fetch("POST", url, headers, body, secret=True))


def _answered(reply: Reply, url: str) -> dict[str, Any]:
    where = shown(url)
    if reply.status >= 500 or reply.status in (408, 425, 429):
        raise ConnectionLost(f"{where} answered with {reply.status}; try again later")
    if reply.status != OK:
        error, words = refusal_in(reply)
        if not error:
            raise AuthError(f"{where} answered with {reply.status}, which is no token and no error")
        told = f"{error}: {words}" if words else error
        raise GrantRefused(f"{where} gives no token ({told})", error)
    found = object_in(reply.body)
    if found is None:
        raise AuthError(f"{where} answered with something that is no JSON object")
    return found


def client_proof(
    issuer: Issuer, holder: Holder, pairs: Pairs, audience: str
) -> tuple[Sequence[tuple[str, str]], bytes]:
    """The headers and the body of a request that shows who asks."""
    client = holder.client
    headers: Pairs = []
    body = list(pairs)
    if client.method == PRIVATE_KEY:
        assert holder.signer is not None
        check_algorithm(issuer, holder.signer)
        # RFC 7523: the assertion says who asks, so that nothing else does.
        body += [
            ("client_assertion_type", ASSERTION_TYPE),
            ("client_assertion", assertion(holder.signer, holder.chance, client, audience)),
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
            f"{shown(issuer.issuer)} wants clients to authenticate by {client.method[:40]!r}, "
            "which we do not know"
        )
    return headers, form(body)


def check_algorithm(issuer: Issuer, signer: SigningKey) -> None:
    """Raise `AuthError` where an issuer would not read what a key signs."""
    if issuer.algorithms is not None and signer.algorithm not in issuer.algorithms:
        listed = ", ".join(issuer.algorithms[:10]) or "nothing"
        raise AuthError(
            f"{shown(issuer.issuer)} reads assertions signed with {listed}, and the key signs "
            f"with {signer.algorithm}; use another key"
        )


def assertion(signer: SigningKey, chance: Chance, client: Registered, audience: str) -> str:
    """A client's own word for who it is (RFC 7523), good once and soon over."""
    now = int(chance.now())
    claims = {
        "iss": client.client_id,
        "sub": client.client_id,
        "aud": audience,
        "jti": chance.secret(),
        "iat": now,
        "exp": now + ASSERTION_S,
    }
    return signer.sign({"typ": "JWT"}, claims)


def form(pairs: Sequence[tuple[str, str]]) -> bytes:
    """A body of `application/x-www-form-urlencoded`."""
    coded_pairs = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return "&".join(coded_pairs).encode()


# ---------------------------------------------------------------- answers


def read_tokens(
    found: dict[str, Any],
    issuer: Issuer,
    resource: str,
    holder: Holder,
    requested: Sequence[str],
    old: Tokens | None = None,
) -> Tokens:
    """The tokens in an answer. Raises `AuthError` for what could not be shown to anybody."""
    where = shown(issuer.token_endpoint)
    token = text_in(found, "access_token")
    if token is None or not _fits_header(token):
        raise AuthError(f"{where} answered without an access token that a header can carry")
    kind = (text_in(found, "token_type") or "").lower()
    if kind not in (BEARER, DPOP):
        raise AuthError(f"{where} gave a token of a type that we do not know")
    if (kind == DPOP) != (holder.bound is not None):
        wanted = "is not" if holder.bound is not None else "is"
        raise AuthError(f"{where} gave a token that {wanted} bound to a key, which is not as asked")
    now = holder.chance.now()
    scope = text_in(found, "scope")
    return Tokens(
        issuer=issuer.issuer,
        resource=resource,
        client_id=holder.client.client_id,
        access_token=token,
        generation=holder.chance.secret(),
        token_type=kind,
        refresh_token=text_in(found, "refresh_token") or (old.refresh_token if old else ""),
        issued_at=now,
        expires_at=_end(found.get("expires_in"), now),
        requested=tuple(requested),
        granted=tuple(scope.split()) if scope is not None else tuple(requested),
        key=holder.bound.pem() if holder.bound is not None else "",
        renewed=old is not None,
    )


def _fits_header(token: str) -> bool:
    fits = len(token) <= MAX_TOKEN_CHARACTERS and token.isascii() and token.isprintable()
    return fits and " " not in token


def _end(life: object, now: float) -> float:
    """When a token ends. Some issuers write the number as a text."""
    if isinstance(life, str) and life.isdecimal() and len(life) < 12:
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or not isfinite(life):
        return NO_END
    return now + min(max(float(life), 0.0), MAX_LIFE_S)


# ---------------------------------------------------------------- renewing


def refresh(issuer: Issuer, holder: Holder, old: Tokens) -> Flow[Tokens]:
    """New tokens for a refresh token, at the issuer that gave it. Raises as `ask_token` does."""
    assert old.issuer == issuer.issuer == holder.client.issuer, "of one issuer"
    pairs = [
        ("grant_type", "refresh_token"),
        ("refresh_token", old.refresh_token),
        ("resource", old.resource),
    ]
    found = yield from ask_token(issuer, holder, pairs)
    return read_tokens(found, issuer, old.resource, holder, old.requested, old)


def revoke(issuer: Issuer, holder: Holder, token: str) -> Flow[bool]:
    """Give a token back (RFC 7009); whether the issuer took it."""
    if not issuer.revocation_endpoint or not token:
        return False
    more, body = client_proof(issuer, holder, [("token", token)], issuer.issuer)
    headers = [("content-type", FORM), ("accept", JSON), *more]
    reply = yield from fetch("POST", issuer.revocation_endpoint, headers, body, secret=True)
    return reply.status == OK


# ---------------------------------------------------------------- DPoP


def proof(
    key: SigningKey, chance: Chance, method: str, url: str, *, nonce: str = "", token: str = ""
) -> str:
    """That we have the key, for one request (RFC 9449, 4.2): its method, its URL, its token."""
    claims: dict[str, Any] = {
        "jti": chance.secret(),
        "htm": method,
        "htu": _without_query(url),
        "iat": int(chance.now()),
    }
    if token:
        claims["ath"] = coded(hashlib.sha256(token.encode()).digest())
    if nonce:
        claims["nonce"] = nonce
    return key.sign({"typ": "dpop+jwt", "jwk": key.public_jwk}, claims)


def _without_query(url: str) -> str:
    return urlsplit(url)._replace(query="", fragment="").geturl()


def check_dpop(issuer: Issuer, algorithms: str | None) -> None:
    """Raise `AuthError` where nobody reads the proofs that we write."""
    for what, listed in (("the server", algorithms and algorithms.split()), ("it", issuer.dpop)):
        if listed is not None and ES256 not in listed:
            raise AuthError(
                f"tokens of {shown(issuer.issuer)} must be bound to a key, and {what} reads no "
                f"proof signed with {ES256}"
            )
