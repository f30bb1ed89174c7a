"""Grants without a user: client credentials, JWT bearer (RFC 7523), token exchange (RFC 8693),
and ID-JAG by token exchange.

Rules: credentials are configured together with their issuer, and sent to that issuer alone. There
is no fallback from one grant to another. A token that was given for another one is never the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from colonnade.auth.client.discovery import AuthorizationServer, DiscoveryResult
from colonnade.auth.client.registration import (
    BASIC,
    NONE,
    POST,
    PRIVATE_KEY,
    RegisteredClient,
    choose_auth_method,
)
from colonnade.auth.client.steps import Flow, GetAssertion, string_member
from colonnade.auth.client.tokens import ClientIdentity, Tokens, read_tokens, request_token
from colonnade.auth.urls import display_url, require_https
from colonnade.errors import AuthError

TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
SAML2: Final = "urn:ietf:params:oauth:token-type:saml2"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
# Both are a JWT access token in the responses of issuers (RFC 8693, 3).
_ISSUED = (ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt")

# A string, or a function that returns one when it is needed: assertions expire soon.
Assertion = str | Callable[[], Any]
# What an identity assertion is. ID-JAG names ID tokens and SAML assertions; some identity providers
# accept access tokens of their own, too.
IdentityType: TypeAlias = Literal["id_token", "saml2", "access_token"]
IDENTITY_TYPES: Final[dict[IdentityType, str]] = {
    "id_token": ID_TOKEN,
    "saml2": SAML2,
    "access_token": ACCESS_TOKEN,
}


class IdentityProvider(Struct, frozen=True):
    """The identity provider of an enterprise, and the client that is registered there."""

    token_endpoint: str
    client: RegisteredClient
    subject: Assertion
    subject_type: str = ID_TOKEN

    def __repr__(self) -> str:
        return f"IdentityProvider({display_url(self.token_endpoint)})"


def preregistered_client(
    issuer: AuthorizationServer, client_id: str, secret: str, *, key: bool = False, method: str = ""
) -> RegisteredClient:
    """A pre-registered client with an authentication method that the issuer supports."""
    if key:
        chosen = PRIVATE_KEY
        if issuer.auth_methods is not None and PRIVATE_KEY not in issuer.auth_methods:
            raise AuthError(
                f"{display_url(issuer.issuer)} does not support {PRIVATE_KEY}; use a secret"
            )
    else:
        chosen = method or choose_auth_method(bool(secret), issuer)
        if (
            secret
            and issuer.auth_methods is not None
            and not {BASIC, POST} & {*issuer.auth_methods}
        ):
            raise AuthError(
                f"{display_url(issuer.issuer)} does not support client secrets; use a private key"
            )
    return RegisteredClient(issuer.issuer, client_id, secret if not key else "", chosen)


def client_credentials_grant(
    discovery: DiscoveryResult, identity: ClientIdentity, scopes: Sequence[str]
) -> Flow[Tokens]:
    """Client credentials grant (OAuth 2.1, 4.2)."""
    if identity.client.method == NONE:
        raise AuthError("the client credentials grant needs a client secret or a private key")
    pairs = [("grant_type", "client_credentials"), *_resource_and_scope(discovery, scopes)]
    answer = yield from request_token(discovery.issuer, identity, pairs)
    return _read_without_refresh(answer, discovery, identity, scopes)


def jwt_bearer_grant(
    discovery: DiscoveryResult, identity: ClientIdentity, assertion: str, scopes: Sequence[str]
) -> Flow[Tokens]:
    """JWT bearer grant (RFC 7523, 2.1): an access token for an assertion."""
    pairs = [
        ("grant_type", JWT_BEARER),
        ("assertion", assertion),
        *_resource_and_scope(discovery, scopes),
    ]
    answer = yield from request_token(discovery.issuer, identity, pairs)
    return _read_without_refresh(answer, discovery, identity, scopes)


def id_jag_grant(
    discovery: DiscoveryResult,
    identity: ClientIdentity,
    provider: IdentityProvider,
    scopes: Sequence[str],
) -> Flow[Tokens]:
    """Token exchange at the identity provider for an ID-JAG, then the JWT bearer grant."""
    require_https(provider.token_endpoint, "the token endpoint of the identity provider")
    subject = yield from assertion_text(provider.subject, "the identity assertion")
    pairs = [
        ("grant_type", TOKEN_EXCHANGE),
        ("requested_token_type", ID_JAG),
        ("audience", discovery.issuer.issuer),
        ("resource", discovery.resource),
        ("subject_token", subject),
        ("subject_token_type", provider.subject_type),
    ]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    asking = ClientIdentity(provider.client, identity.context, identity.signer)
    answer = yield from request_token(discovery.issuer, asking, pairs, at=provider.token_endpoint)
    if answer.get("issued_token_type") != ID_JAG:
        raise AuthError(
            f"{display_url(provider.token_endpoint)} issued something else than an ID-JAG"
        )
    # RFC 8693, 2.2.1: an ID-JAG is no access token (R1243).
    if (string_member(answer, "token_type") or "").upper() != "N_A":
        raise AuthError(f"{display_url(provider.token_endpoint)} named a token_type other than N_A")
    grant = string_member(answer, "access_token")
    if grant is None:
        raise AuthError(f"{display_url(provider.token_endpoint)} responded without a grant")
    tokens = yield from jwt_bearer_grant(discovery, identity, grant, scopes)
    _refuse_same(tokens, subject, discovery)
    return tokens


def token_exchange_grant(
    discovery: DiscoveryResult, identity: ClientIdentity, subject: Assertion, scopes: Sequence[str]
) -> Flow[Tokens]:
    """Token exchange (RFC 8693, 2): an access token for the server, for one of the caller."""
    presented = yield from assertion_text(subject, "the token to exchange")
    pairs = [
        ("grant_type", TOKEN_EXCHANGE),
        ("requested_token_type", ACCESS_TOKEN),
        ("subject_token", presented),
        ("subject_token_type", ACCESS_TOKEN),
        *_resource_and_scope(discovery, scopes),
    ]
    answer = yield from request_token(discovery.issuer, identity, pairs)
    if answer.get("issued_token_type") not in _ISSUED:
        where = display_url(discovery.issuer.token_endpoint)
        raise AuthError(f"{where} issued something else than an access token")
    tokens = _read_without_refresh(answer, discovery, identity, scopes)
    _refuse_same(tokens, presented, discovery)
    return tokens


def _refuse_same(tokens: Tokens, subject: str, discovery: DiscoveryResult) -> None:
    """Raise if an issuer returned the token that it was to exchange: it would be passed on."""
    if tokens.access_token == subject:
        raise AuthError(
            f"{display_url(discovery.issuer.issuer)} returned the token of the caller instead of "
            "another one; it is not passed on"
        )


def assertion_text(assertion: Assertion, what: str) -> Flow[str]:
    """The assertion as a string, from the program's function if it is one."""
    text: object = assertion
    if callable(assertion):
        text = yield GetAssertion(assertion)
    if not isinstance(text, str) or not text:
        raise AuthError(f"{what} must be a non-empty string")
    return text


def _resource_and_scope(discovery: DiscoveryResult, scopes: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [("resource", discovery.resource)]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    return pairs


def _read_without_refresh(
    answer: dict[str, Any],
    discovery: DiscoveryResult,
    identity: ClientIdentity,
    scopes: Sequence[str],
) -> Tokens:
    # OAuth 2.1, 4.2.3: the grant can be repeated, so no refresh token is stored.
    answer.pop("refresh_token", None)
    return read_tokens(answer, discovery.issuer, discovery.resource, identity, scopes)
