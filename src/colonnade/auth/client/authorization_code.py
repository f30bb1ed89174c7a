"""Authorization code grant with PKCE (OAuth 2.1, 4.1): a user logs in through the browser.

Rules: PKCE with S256 always. The authorization response is checked in this order: `state` (is it
the response to this request), `iss` (is it from this issuer), then its content. Nothing of a
response that fails a check is shown or used.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl

from msgspec import Struct

from colonnade.auth.client.discovery import S256, AuthorizationServer, DiscoveryResult
from colonnade.auth.client.steps import Flow, FlowContext, OpenAuthorizationPage, printable_text
from colonnade.auth.client.tokens import ClientIdentity, Tokens, read_tokens, request_token
from colonnade.auth.jose import base64url_encode
from colonnade.auth.urls import display_url, require_https, with_query
from colonnade.errors import AuthError, LoginRequired
from colonnade.protocol.http.challenges import Challenges

OFFLINE_ACCESS = "offline_access"
# The parameters of an authorization response are short, and there are seven at most.
MAX_RESPONSE_CHARACTERS = 16 * 1024
MAX_RESPONSE_PARAMETERS = 32
# PKCE: 43 to 128 characters (RFC 7636, 4.1).
MIN_VERIFIER, MAX_VERIFIER = 43, 128


class AuthorizationRequest(Struct, frozen=True):
    """One authorization request and the issuer that it was sent to (CL-23)."""

    issuer: str
    iss_in_response: bool
    legacy: bool
    state: str
    verifier: str

    def __repr__(self) -> str:
        return f"AuthorizationRequest({display_url(self.issuer)})"


class AuthorizationRefused(LoginRequired):
    """An authorization response with an error: `access_denied`, `unauthorized_client`."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


def check_pkce(issuer: AuthorizationServer) -> None:
    """CL-21: refuse an authorization server that does not announce PKCE with S256."""
    if issuer.legacy and issuer.pkce is None:
        return  # 2025-03-26 does not require the announcement; PKCE is used all the same
    if issuer.pkce is None or S256 not in issuer.pkce:
        raise AuthError(
            f"{display_url(issuer.issuer)} does not announce PKCE with S256 "
            "(code_challenge_methods_supported), so the login is refused"
        )


def choose_scopes(
    given: Sequence[str], before: Sequence[str], challenges: Challenges, discovery: DiscoveryResult
) -> tuple[str, ...]:
    """The scopes to request: those of the challenge, else of the metadata, with those requested
    before (CL-10, CL-30), and `offline_access` if the issuer supports it (CL-29)."""
    asked: Iterable[str] | None = challenges.scopes
    if asked is None and not given and not before:
        asked = discovery.scopes
    wanted = dict.fromkeys([*given, *before, *(asked or ())])
    wanted.pop(OFFLINE_ACCESS, None)
    if OFFLINE_ACCESS in (discovery.issuer.scopes or ()):
        wanted[OFFLINE_ACCESS] = None
    return tuple(wanted)


def log_in(
    discovery: DiscoveryResult, identity: ClientIdentity, redirect_uri: str, scopes: Sequence[str]
) -> Flow[Tokens]:
    """Send the user to the issuer, and exchange the authorization code for tokens."""
    url, request = authorization_url(discovery, identity, redirect_uri, scopes)
    query: str = yield OpenAuthorizationPage(url, request.state)
    return (yield from redeem_response(query, request, discovery, identity, redirect_uri, scopes))


def authorization_url(
    discovery: DiscoveryResult, identity: ClientIdentity, redirect_uri: str, scopes: Sequence[str]
) -> tuple[str, AuthorizationRequest]:
    """Where to send the user, and the request that the response is checked against. Raises
    `AuthError` for an issuer that is not safe to use."""
    issuer = discovery.issuer
    check_pkce(issuer)
    page = require_https(issuer.authorization_endpoint, "the authorization endpoint")
    request = new_authorization_request(issuer, identity.context)
    pairs = [
        ("response_type", "code"),
        ("client_id", identity.client.client_id),
        ("redirect_uri", redirect_uri),
        ("code_challenge", code_challenge(request.verifier)),
        ("code_challenge_method", S256),
        ("state", request.state),
        ("resource", discovery.resource),
    ]
    if scopes:
        pairs.append(("scope", " ".join(scopes)))
    if OFFLINE_ACCESS in scopes:
        pairs.append(("prompt", "consent"))  # OpenID Connect Core, 11
    if identity.dpop_key is not None:
        pairs.append(("dpop_jkt", identity.dpop_key.thumbprint))  # RFC 9449, 10
    return with_query(page, pairs), request


def redeem_response(
    query: str,
    request: AuthorizationRequest,
    discovery: DiscoveryResult,
    identity: ClientIdentity,
    redirect_uri: str,
    scopes: Sequence[str],
) -> Flow[Tokens]:
    """Check an authorization response, and exchange its code for tokens."""
    issuer = discovery.issuer
    code = read_authorization_response(query, request)
    pairs = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", request.verifier),
        ("resource", discovery.resource),
    ]
    answer = yield from request_token(issuer, identity, pairs)
    return read_tokens(answer, issuer, discovery.resource, identity, scopes)


def new_authorization_request(
    issuer: AuthorizationServer, context: FlowContext
) -> AuthorizationRequest:
    """A request with a new `state` and a new PKCE verifier."""
    verifier = context.new_secret()
    assert MIN_VERIFIER <= len(verifier) <= MAX_VERIFIER, "CL-18"
    state = context.new_secret()
    return AuthorizationRequest(
        issuer.issuer, issuer.iss_in_response, issuer.legacy, state, verifier
    )


def code_challenge(verifier: str) -> str:
    """The `code_challenge` of a PKCE verifier (RFC 7636, 4.2)."""
    return base64url_encode(hashlib.sha256(verifier.encode()).digest())


def read_authorization_response(query: str, request: AuthorizationRequest) -> str:
    """The code of an authorization response. Raises `AuthError`, `AuthorizationRefused` for an
    error."""
    parts = _parse_query(query)
    state = parts.get("state", "")
    if not hmac.compare_digest(state.encode(), request.state.encode()):  # CL-20
        raise AuthError(
            "the authorization response has another state than the request; log in again"
        )
    _check_issuer(parts, request)
    error = printable_text(parts.get("error"))
    if error:
        description = printable_text(parts.get("error_description"))
        reason = f"{error}: {description}" if description else error
        message = f"{display_url(request.issuer)} refused the login ({reason})"
        raise AuthorizationRefused(message, error)
    code = parts.get("code", "")
    if not code:
        raise AuthError(f"the authorization response of {display_url(request.issuer)} has no code")
    return code


def _check_issuer(parts: dict[str, str], request: AuthorizationRequest) -> None:
    """RFC 9207, 2.4, in all its cases (CL-23 to CL-25): compared without normalization."""
    named = parts.get("iss")
    if named is None:
        if request.iss_in_response:
            raise AuthError(
                f"the authorization response has no iss, which {display_url(request.issuer)} "
                "always sends; it may be from another issuer, and is not used"
            )
        return
    same = (request.issuer, request.issuer + "/") if request.legacy else (request.issuer,)
    if named not in same:
        raise AuthError(
            f"the authorization response is from another issuer than "
            f"{display_url(request.issuer)}, and is not used"
        )


def _parse_query(query: str) -> dict[str, str]:
    if len(query) > MAX_RESPONSE_CHARACTERS:
        raise AuthError("the authorization response is too long")
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=MAX_RESPONSE_PARAMETERS
        )
    except ValueError:
        raise AuthError("the authorization response is malformed") from None
    if len({name for name, _ in pairs}) != len(pairs):  # RFC 6749, 3.1
        raise AuthError("the authorization response has a parameter twice")
    return dict(pairs)
