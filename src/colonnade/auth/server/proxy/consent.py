"""The consent page: which client, where to, which scopes; and the user's decision.

Rules: the page is shown before the provider is asked. It runs no script, loads nothing, and cannot
be framed. The form has the request in it, sealed for this browser and used once: without it, with
that of another browser, or from another origin, no decision is accepted. A decision, and a login
at the provider, lead on by a page and not by a redirect: browsers apply `form-action` to every
redirect after a form. A provider may redirect to hosts that are unknown here, and the policy of a
provider's own form does not know the redirect URI of a client.
"""

import secrets
from html import escape
from typing import Final

from msgspec import Struct

from colonnade.auth.jose import InvalidToken, base64url_decode
from colonnade.auth.server.client_metadata import is_local_redirect
from colonnade.auth.server.oauth_forms import OAuthFailure, RedirectFailure
from colonnade.auth.server.pages import PAGE_HEADERS, page
from colonnade.auth.server.proxy.authorize import (
    AuthorizationDetails,
    approval_name,
    check_request,
    count_login,
    find_approval,
    read_session,
    session_cookie,
    start_login,
)
from colonnade.auth.server.proxy.context import CONSENT, ProxyContext
from colonnade.auth.server.proxy.records import digest
from colonnade.auth.server.proxy.registration import ProxyClient, find_client
from colonnade.auth.server.proxy.responses import (
    PageFailure,
    host_of,
    parse_form,
    redirect,
    source_of,
)
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import BAD_REQUEST, FORBIDDEN, OK

APPROVE, DENY = "approve", "deny"
_ASKED_AGAIN: Final = "Several pages of this server were opened at once. Please decide once more."
BACK: Final = "Back to the application"
# A form is used once: its mark outlives it, by more than the clocks of replicas differ.
FORM_S: Final = 540.0
MARK_S: Final = 600.0


class ConsentRequest(Struct, frozen=True, array_like=True):
    """What the form has in it, sealed: the request, the browser that it was shown to, its id."""

    details: AuthorizationDetails
    session: str
    id: str
    expires_at: float


# ---------------------------------------------------------------- endpoints


async def authorize(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The authorization endpoint. Raises `PageFailure`, `RedirectFailure`."""
    verified = await check_request(context, request)
    session = read_session(context, request)
    approved_for = await find_approval(context, session, verified)
    if "none" in verified.prompt:
        # The provider cannot be asked without the user, either.
        failure = OAuthFailure("interaction_required", "the user has to log in")
        uri, state = verified.details.redirect_uri, verified.details.state
        raise RedirectFailure(uri, state, failure, approved=bool(approved_for))
    if approved_for and "consent" not in verified.prompt:
        await count_login(context, verified.details, request)
        url, cookie = await start_login(context, verified.details, session, approved_for)
        return redirect(url, cookie)
    return show_consent(context, verified.details, verified.client, session)


def show_consent(
    context: ProxyContext,
    details: AuthorizationDetails,
    client: ProxyClient,
    session: str,
    notice: str = "",
) -> EndpointResponse:
    """The consent page, for one browser. Nothing is stored."""
    session = session or secrets.token_urlsafe(32)
    asked = ConsentRequest(
        details, digest(session), secrets.token_urlsafe(16), context.now + FORM_S
    )
    sealed = context.storage.seal_token("consent", asked)
    body = _consent_html(context, details, client, sealed, notice)
    return EndpointResponse(OK, (*PAGE_HEADERS, session_cookie(context, session)), body)


async def decide(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The user's decision. Raises `PageFailure`, `RedirectFailure`."""
    check_form_origin(request, context.settings.origin)
    try:
        fields = parse_form(request)
    except OAuthFailure as failure:
        raise PageFailure(f"The form is invalid: {failure.description}.") from None
    session = read_session(context, request)
    asked = _unseal(context, fields.get("request"))
    if asked is None or not session:
        raise PageFailure(
            "This form was not made for this browser, or cookies are blocked. Start the login"
            " again from the application.",
            FORBIDDEN,
        )
    if context.now >= asked.expires_at:
        raise PageFailure("The form has expired. Start the login again from the application.")
    decision = fields.get("decision")
    if decision not in (APPROVE, DENY):
        raise PageFailure("The form has no decision.")
    details = asked.details
    await count_login(context, details, request)
    # The registration may have changed, or expired, since the page was shown.
    client = await find_client(context, details.client_id, source_of(request))
    if client.redirect_for(details.redirect_uri) is None:
        raise PageFailure("The application has changed its redirect URIs. Start the login again.")
    if asked.session != digest(session):
        # Of two pages that a browser without a cookie loads at once, each sets one, and the second
        # replaces the first. The user is asked again: the form may also be of another browser.
        return show_consent(context, details, client, session, _ASKED_AGAIN)
    if not await context.storage.use_once("consent", asked.id, MARK_S):
        raise PageFailure("The form was used before. Start the login again from the application.")
    if decision == DENY:
        # Also what was approved before in this browser.
        await context.storage.delete("approval", approval_name(context, session, details))
        failure = OAuthFailure("access_denied", "the user denied the request")
        url = RedirectFailure(details.redirect_uri, details.state, failure).url(
            context.settings.issuer
        )
        return continue_page(url, BACK)
    url, cookie = await start_login(context, details, session)
    return continue_page(url, f"Continue to {context.provider.name}", cookie)


def check_form_origin(request: EndpointRequest, own_origin: str) -> None:
    """Raise `PageFailure` for a form that a page of another origin has sent."""
    origin = request.headers.get(b"origin", b"").decode("latin-1")
    site = request.headers.get(b"sec-fetch-site", b"same-origin")
    if (origin and origin != own_origin) or site != b"same-origin":
        raise PageFailure("The form was sent by another page.", FORBIDDEN)


def _unseal(context: ProxyContext, sealed: str) -> ConsentRequest | None:
    try:
        data = base64url_decode(sealed)
    except InvalidToken:
        return None
    return context.storage.unseal_token("consent", data, ConsentRequest)


# ---------------------------------------------------------------- pages


def error_page(failure: PageFailure) -> EndpointResponse:
    """A page with an error for the user."""
    body = page("The login cannot continue", f"<p>{escape(failure.message)}</p>")
    return EndpointResponse(failure.status, PAGE_HEADERS, body)


def return_page(failure: RedirectFailure, issuer: str) -> EndpointResponse:
    """A page with an error, and a link to a redirect URI that the user has not approved (R0340)."""
    target = escape(failure.url(issuer), quote=True)
    host = escape(host_of(failure.uri))
    content = (
        f"<p>The request of the application is invalid: {escape(failure.failure.description)}.</p>"
        f'<p><a href="{target}">Back to the application at {host}</a></p>'
    )
    return EndpointResponse(BAD_REQUEST, PAGE_HEADERS, page("The login cannot continue", content))


def continue_page(url: str, words: str, *cookies: tuple[str, str]) -> EndpointResponse:
    """A page that goes on to a verified URL at once."""
    target = escape(url, quote=True)
    head = f'<meta http-equiv="refresh" content="0;url={target}">'
    content = f'<p><a href="{target}">{escape(words)}</a></p>'
    if not url.startswith(("https://", "http://")):
        # A program of the user's computer opens, and the page stays.
        content += "<p>If the application has opened, you can close this page.</p>"
    return EndpointResponse(OK, (*PAGE_HEADERS, *cookies), page("One moment", content, head=head))


def _consent_html(
    context: ProxyContext,
    details: AuthorizationDetails,
    client: ProxyClient,
    sealed: str,
    notice: str,
) -> bytes:
    provider, title = context.provider, context.settings.title
    name = client.name or client.host or "An application without a name"
    rows = [("Application", f"<bdi>{escape(name)}</bdi>")]
    if client.host:
        rows.append(("Published by", f"<code>{escape(client.host)}</code>"))
    host = host_of(details.redirect_uri)
    rows += [
        ("Sends you back to", f"<strong>{escape(host)}</strong>"),
        ("Redirect URI", f"<code>{escape(details.redirect_uri)}</code>"),
        ("Permissions on this server", _words(details.scopes) or "basic access"),
        (
            f"Permissions that this server gets at {escape(provider.name)}",
            _words(provider.scopes) or "your identity",
        ),
    ]
    listed = "".join(f"<dt>{term}</dt><dd>{value}</dd>" for term, value in rows)
    warnings = [notice] if notice else []
    if is_local_redirect(details.redirect_uri):
        warnings.append(
            "The application runs on this computer. Any program on it can use this name: continue"
            " only if you have just started the login yourself."
        )
    if not client.host:
        warnings.append("The name is what the application says of itself; it is not verified.")
    boxes = "".join(f'<p class="warning">{escape(one)}</p>' for one in warnings)
    action = escape(context.settings.url(CONSENT), quote=True)
    content = (
        f"<p><bdi>{escape(name)}</bdi> asks for access to <strong>{escape(title)}</strong>"
        f" as you. You will log in with {escape(provider.name)}.</p><dl>{listed}</dl>{boxes}"
        f'<form method="post" action="{action}">'
        f'<input type="hidden" name="request" value="{escape(sealed, quote=True)}">'
        '<div class="buttons">'
        f'<button class="approve" name="decision" value="{APPROVE}">Allow</button>'
        f'<button name="decision" value="{DENY}">Deny</button></div></form>'
    )
    return page(f"Allow access to {title}?", content)


def _words(scopes: tuple[str, ...]) -> str:
    return ", ".join(f"<code>{escape(scope)}</code>" for scope in scopes)
