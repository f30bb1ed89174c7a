"""Programs log in, with nobody at hand: by a secret, a key, an assertion of somebody who vouches.

Rules: whoever has credentials says whose they are, by issuer; they are shown to that issuer alone.
Nothing else is tried where one way is refused.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from colonnade.auth.client.discovery import Found, Issuer
from colonnade.auth.client.registration import (
    BASIC,
    NONE,
    POST,
    PRIVATE_KEY,
    Registered,
    method_for,
)
from colonnade.auth.client.steps import Flow, Obtain, text_in
from colonnade.auth.client.tokens import Holder, Tokens, ask_token, read_tokens
from colonnade.auth.urls import secure, shown
from colonnade.errors import AuthError

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
SAML2: Final = "urn:ietf:params:oauth:token-type:saml2"

# A text, or what gives one when it is needed: assertions end soon.
Assertion = str | Callable[[], Any]


class Provider(Struct, frozen=True):
    """The identity provider of an enterprise, and what we are to it."""

    token_endpoint: str
    client: Registered
    subject: Assertion
    subject_type: str = ID_TOKEN

    def __repr__(self) -> str:
        return f"Provider({shown(self.token_endpoint)})"


def machine_client(
    issuer: Issuer, client_id: str, secret: str, *, key: bool = False, method: str = ""
) -> Registered:
    """A client that was registered beforehand, as this issuer lets it authenticate."""
    if key:
        chosen = PRIVATE_KEY
        if issuer.methods is not None and PRIVATE_KEY not in issuer.methods:
            raise AuthError(f"{shown(issuer.issuer)} does not take {PRIVATE_KEY}; use a secret")
    else:
        chosen = method or method_for(bool(secret), issuer)
        if secret and issuer.methods is not None and not {BASIC, POST} & {*issuer.methods}:
            raise AuthError(f"{shown(issuer.issuer)} takes no secret; use a private key")
    return Registered(issuer.issuer, client_id, secret if not key else "", chosen)


def own_token(found: Found, holder: Holder, scopes: Sequence[str]) -> Flow[Tokens]:
    """A token for the client itself (OAuth 2.1, 4.2)."""
    if holder.client.method == NONE:
        raise AuthError("a client without a secret or a key has nothing to log in with")
    pairs = [("grant_type", "client_credentials"), *_about(found, scopes)]
    answer = yield from ask_token(found.issuer, holder, pairs)
    return _read(answer, found, holder, scopes)


def assertion_token(
    found: Found, holder: Holder, assertion: str, scopes: Sequence[str]
) -> Flow[Tokens]:
    """A token for somebody's word for us (RFC 7523, 2.1)."""
    pairs = [("grant_type", JWT_BEARER), ("assertion", assertion), *_about(found, scopes)]
    answer = yield from ask_token(found.issuer, holder, pairs)
    return _read(answer, found, holder, scopes)


def enterprise_token(
    found: Found, holder: Holder, provider: Provider, scopes: Sequence[str]
) -> Flow[Tokens]:
    """A token by way of an identity provider: its word for the user (ID-JAG), then a token."""
    secure(provider.token_endpoint, "the token endpoint of the identity provider")
    subject = yield from text_of(provider.subject, "the identity assertion")
    pairs = [
        ("grant_type", TOKEN_EXCHANGE),
        ("requested_token_type", ID_JAG),
        ("audience", found.issuer.issuer),
        ("resource", found.resource),
        ("subject_token", subject),
        ("subject_token_type", provider.subject_type),
    ]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    asking = Holder(provider.client, holder.chance, holder.signer)
    answer = yield from ask_token(found.issuer, asking, pairs, at=provider.token_endpoint)
    if answer.get("issued_token_type") != ID_JAG:
        raise AuthError(f"{shown(provider.token_endpoint)} gave something else than an ID-JAG")
    grant = text_in(answer, "access_token")
    if grant is None:
        raise AuthError(f"{shown(provider.token_endpoint)} answered without a grant")
    return (yield from assertion_token(found, holder, grant, scopes))


def text_of(assertion: Assertion, what: str) -> Flow[str]:
    """An assertion as text, asked of the program where it gives them one by one."""
    text: object = assertion
    if callable(assertion):
        text = yield Obtain(assertion)
    if not isinstance(text, str) or not text:
        raise AuthError(f"{what} is no text, or is empty")
    return text


def _about(found: Found, scopes: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [("resource", found.resource)]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    return pairs


def _read(answer: dict[str, Any], found: Found, holder: Holder, scopes: Sequence[str]) -> Tokens:
    # OAuth 2.1, 4.2.3: a program can ask again, and keeps no refresh token.
    answer.pop("refresh_token", None)
    return read_tokens(answer, found.issuer, found.resource, holder, scopes)
