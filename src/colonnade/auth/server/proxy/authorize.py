"""The authorization endpoint: checks of the request, remembered approvals, the way to the provider.

Rules: an error goes to the redirect URI only after client and redirect URI are verified; before
that, to a page for the user. The provider is asked only after the user has approved this client,
with this redirect URI and these scopes, in this browser. State for the provider is stored after the
approval, is used once, and is bound to the browser by a cookie that is set with the redirect.
"""

import secrets
from typing import Final

from msgspec import Struct

from colonnade.auth.client.authorization_code import code_challenge
from colonnade.auth.server.client_metadata import is_local_redirect
from colonnade.auth.server.oauth_forms import (
    OAuthFailure,
    Parameters,
    RedirectFailure,
    check_challenge,
    is_digest,
    parse_fields,
)
from colonnade.auth.server.proxy.context import CALLBACK, ProxyContext
from colonnade.auth.server.proxy.provider import UpstreamRefused
from colonnade.auth.server.proxy.records import ProxyRecord, digest
from colonnade.auth.server.proxy.registration import ProxyClient, find_client
from colonnade.auth.server.proxy.responses import (
    PageFailure,
    check_quota,
    read_cookie,
    set_cookie,
    source_of,
    unavailable,
)
from colonnade.auth.server.verifier import normalize_resource
from colonnade.errors import ChannelError
from colonnade.ports import EndpointRequest

# A user has to find a password, and a second factor in another room.
LOGIN_S: Final = 600.0
WINDOW_S: Final = 600.0
# A browser is recognized for this long after it was last seen.
SESSION_S: Final = 400 * 24 * 3600.0
MAX_STATE_CHARACTERS: Final = 2048
MAX_SCOPES: Final = 100
SESSION: Final = "session"
LOGIN: Final = "login"


class AuthorizationDetails(Struct, frozen=True, kw_only=True):
    """A verified authorization request."""

    client_id: str
    redirect_uri: str
    state: str
    challenge: str
    scopes: tuple[str, ...]
    # The key that the code is bound to (RFC 9449, 10); empty for none.
    dpop_key: str = ""


class LoginState(ProxyRecord, frozen=True, kw_only=True):
    """A login at the provider that is under way. `browser` is the digest of its cookie.

    `approved_for` is the user whose earlier approval was used; empty if the page was shown.
    """

    details: AuthorizationDetails
    session: str
    browser: str
    verifier: str
    nonce: str
    approved_for: str = ""


class Approval(ProxyRecord, frozen=True, kw_only=True):
    """A user's approval of one client, with one redirect URI and scopes, in one browser."""

    subject: str


class VerifiedRequest(Struct, frozen=True):
    """A verified request, its client, and the parameters that only concern this moment."""

    details: AuthorizationDetails
    client: ProxyClient
    prompt: frozenset[str]


async def check_request(context: ProxyContext, request: EndpointRequest) -> VerifiedRequest:
    """Verify an authorization request. Raises `PageFailure`, and then `RedirectFailure`."""
    try:
        fields = parse_fields(request.query)
    except OAuthFailure as failure:
        raise PageFailure(f"The request is invalid: {failure.description}.") from None
    client = await find_client(context, fields.get("client_id"), source_of(request))
    uri = client.redirect_for(fields.get("redirect_uri"))
    if uri is None:
        # R0338: never to a URI that is not registered.
        raise PageFailure(
            "The redirect URI of the request is not one that the application has registered."
        )
    state = fields.get("state")
    try:
        if len(state) > MAX_STATE_CHARACTERS:
            state = ""
            raise OAuthFailure("invalid_request", "the state is too long")
        challenge = _check_parameters(context, fields)
        scopes = choose_scopes(context, fields.get("scope"))
    except OAuthFailure as failure:
        raise RedirectFailure(uri, state, failure, approved=False) from None
    details = AuthorizationDetails(
        client_id=client.client_id,
        redirect_uri=uri,
        state=state,
        challenge=challenge,
        scopes=scopes,
        dpop_key=fields.get("dpop_jkt"),
    )
    return VerifiedRequest(details, client, frozenset(fields.get("prompt").split()))


def _check_parameters(context: ProxyContext, fields: Parameters) -> str:
    """The PKCE challenge of a request whose parameters are right. Raises `OAuthFailure`."""
    for name, error in (
        ("request", "request_not_supported"),
        ("request_uri", "request_uri_not_supported"),
    ):
        if fields.get(name):
            raise OAuthFailure(error, f"the parameter {name} is not supported")
    if fields.get("response_type") != "code":
        raise OAuthFailure("unsupported_response_type", "response_type must be code")
    if fields.get("response_mode") not in ("", "query"):
        raise OAuthFailure("invalid_request", "response_mode must be query")
    challenge = check_challenge(fields)
    if fields.get("dpop_jkt") and not is_digest(fields.get("dpop_jkt")):
        raise OAuthFailure("invalid_request", "dpop_jkt is not a thumbprint")
    check_resources(context, fields)
    return challenge


def check_resources(context: ProxyContext, fields: Parameters) -> None:
    """Raise `OAuthFailure` if tokens for another resource are requested (RFC 8707)."""
    ours = normalize_resource(context.settings.resource)
    for resource in fields.resources:
        if normalize_resource(resource).rstrip("/") != ours:
            raise OAuthFailure("invalid_target", "tokens are issued for this server only")


def choose_scopes(context: ProxyContext, asked: str) -> tuple[str, ...]:
    """The scopes to grant: those of the request that can be granted (RFC 6749, 3.3). Raises
    `OAuthFailure` for too many."""
    settings = context.settings
    words = dict.fromkeys(asked.split(" "))
    if len(words) > MAX_SCOPES:
        raise OAuthFailure("invalid_scope", "too many scopes")
    wanted = [word for word in words if word in settings.scopes]
    return tuple(sorted(wanted or settings.default_scopes))


# ---------------------------------------------------------------- the browser


def read_session(context: ProxyContext, request: EndpointRequest) -> str:
    """The session of a browser; empty if it has none."""
    value = read_cookie(request, context.settings.cookie_name(SESSION))
    return value if is_digest(value) else ""  # of the same form: 32 random bytes


def session_cookie(context: ProxyContext, session: str) -> tuple[str, str]:
    """The header that makes a browser recognizable. It is no proof of an approval."""
    return set_cookie(context.settings, SESSION, session, SESSION_S)


def approval_name(context: ProxyContext, session: str, details: AuthorizationDetails) -> str:
    """The name of the approval of one client in one browser."""
    return digest(
        digest(session),
        details.client_id,
        details.redirect_uri,
        *details.scopes,
        "",
        context.provider.issuer,
        *context.provider.scopes,
    )


def may_remember(client: ProxyClient, redirect_uri: str) -> bool:
    """Whether an approval holds for later requests. Every program on the user's machine can take
    the name of a client with a public document, and listen on a loopback port or for a private-use
    scheme (RFC 8252, 8.6)."""
    return not (client.document and is_local_redirect(redirect_uri))


async def find_approval(context: ProxyContext, session: str, verified: VerifiedRequest) -> str:
    """The user who approved this request in this browser before; empty if there is none."""
    details = verified.details
    if not session or not may_remember(verified.client, details.redirect_uri):
        return ""
    name = approval_name(context, session, details)
    found = await context.storage.load("approval", name, Approval)
    return found.value.subject if found is not None else ""


# ---------------------------------------------------------------- the way to the provider


async def count_login(
    context: ProxyContext, details: AuthorizationDetails, request: EndpointRequest
) -> None:
    """Count a login, before anything is stored for it. Raises `RedirectFailure` for too many."""
    most = context.settings.max_logins_per_10_min
    try:
        await check_quota(context.storage, "logins", WINDOW_S, most, source_of(request))
    except OAuthFailure as failure:
        raise RedirectFailure(details.redirect_uri, details.state, failure) from None


async def start_login(
    context: ProxyContext, details: AuthorizationDetails, session: str, approved_for: str = ""
) -> tuple[str, tuple[str, str]]:
    """Store the state of a login, after the user's approval; the URL of the provider's page, and
    the cookie that binds the state to this browser.

    Raises `RedirectFailure` if the provider does not respond.
    """
    try:
        state, browser = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        verifier, nonce = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        try:
            url = await context.provider.authorization_url(
                context.fetcher,
                context.now,
                redirect_uri=context.settings.url(CALLBACK),
                state=state,
                code_challenge=code_challenge(verifier),
                nonce=nonce,
            )
        except ChannelError:
            raise unavailable("the identity provider does not respond") from None
        except UpstreamRefused:
            raise OAuthFailure("server_error", "the identity provider refused") from None
    except OAuthFailure as failure:
        raise RedirectFailure(details.redirect_uri, details.state, failure) from None
    login = LoginState(
        details=details,
        session=digest(session),
        browser=digest(browser),
        verifier=verifier,
        nonce=nonce,
        approved_for=approved_for,
        expires_at=context.now + LOGIN_S,
    )
    await context.storage.add("state", state, login)
    return url, set_cookie(context.settings, login_cookie(state), browser, LOGIN_S)


def login_cookie(state: str) -> str:
    """The purpose of the cookie of one login; several can be under way in one browser."""
    return f"{LOGIN}-{digest(state)[:12]}"
