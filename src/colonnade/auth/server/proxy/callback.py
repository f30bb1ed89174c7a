"""The callback from the provider: state, code exchange, user, and the code for the client.

Rules: a state is accepted once, from the browser that it was made for. An approval that was
remembered counts only for the user who gave it: another user is asked again. The client gets a code
of ours; nothing of the provider's response goes to it.
"""

import contextlib
import hmac
import inspect
import logging
from collections.abc import Generator
from typing import Final

from colonnade.auth.jose import InvalidToken
from colonnade.auth.server.oauth_forms import (
    OAuthFailure,
    Parameters,
    RedirectFailure,
    client_redirect,
    parse_fields,
)
from colonnade.auth.server.proxy.authorize import (
    WINDOW_S,
    Approval,
    AuthorizationDetails,
    LoginState,
    approval_name,
    login_cookie,
    may_remember,
    read_session,
)
from colonnade.auth.server.proxy.consent import BACK, continue_page, show_consent
from colonnade.auth.server.proxy.context import CALLBACK, ProxyContext
from colonnade.auth.server.proxy.grants import create_grant, revoke_tokens
from colonnade.auth.server.proxy.provider import UpstreamRefused, UpstreamTokens, UpstreamUser
from colonnade.auth.server.proxy.records import digest
from colonnade.auth.server.proxy.registration import ProxyClient, find_client, keep_client
from colonnade.auth.server.proxy.responses import (
    PageFailure,
    read_cookie,
    set_cookie,
    source_of,
    unavailable,
)
from colonnade.auth.server.verifier import check_subject
from colonnade.errors import ChannelError, Refused
from colonnade.ports import EndpointRequest, EndpointResponse

log: logging.Logger = logging.getLogger("colonnade.auth")

# A user logs in with a few clients; a loop that logs in again and again must not fill the store.
MAX_LOGINS_OF_USER: Final = 100

_NOT_STARTED_HERE: Final = (
    "This login was not started in this browser, has expired, or is complete already. Start it"
    " again from the application."
)


async def callback(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The redirect endpoint for the provider. Raises `PageFailure`, `RedirectFailure`."""
    try:
        fields = parse_fields(request.query)
    except OAuthFailure as failure:
        raise PageFailure(f"The response is invalid: {failure.description}.") from None
    state = fields.get("state")
    login = await take_state(context, request, state)
    details = login.details
    session = read_session(context, request)
    try:
        client = await find_client(context, details.client_id, source_of(request))
        tokens = await _exchange_code(context, fields, login)
        user, code = UpstreamUser(""), ""
        try:
            user = await _identify(context, tokens)
            scopes = await allowed_scopes(context, user, details.scopes)
            if login.approved_for and login.approved_for != user.subject:
                return await _ask_again(context, details, client, session)
            code = await _create_code(context, details, scopes, user, tokens)
        finally:
            if not code:  # no grant holds them
                await revoke_tokens(context, tokens, user.subject)
    except OAuthFailure as failure:
        raise RedirectFailure(details.redirect_uri, details.state, failure) from None
    try:
        await remember(context, login, client, session, user)
        await keep_client(context, details.client_id)
    except (ChannelError, Refused) as error:
        log.warning("an approval is not remembered: %s", error)  # the login is complete
    url = client_redirect(details.redirect_uri, context.settings.issuer, details.state, code=code)
    forget = set_cookie(context.settings, login_cookie(state), "", 0)
    return continue_page(url, BACK, forget)


async def take_state(context: ProxyContext, request: EndpointRequest, state: str) -> LoginState:
    """The login of a state, which is used by this. Raises `PageFailure`."""
    found = await context.storage.load("state", state, LoginState) if state else None
    if found is None:
        raise PageFailure(_NOT_STARTED_HERE)
    browser = read_cookie(request, context.settings.cookie_name(login_cookie(state)))
    # Before it is used up: otherwise another browser could end the login of this one.
    if not hmac.compare_digest(digest(browser), found.value.browser):
        raise PageFailure(_NOT_STARTED_HERE)
    if not await context.storage.swap("state", state, found.raw, None):
        raise PageFailure(_NOT_STARTED_HERE)
    return found.value


@contextlib.contextmanager
def _provider_errors(context: ProxyContext) -> Generator[None]:
    """Errors of the provider as OAuth errors for the client."""
    provider = context.provider
    try:
        yield
    except UpstreamRefused as refused:
        log.warning("%s refused a login: %s", provider.name, refused.error or "no reason given")
        raise OAuthFailure("access_denied", "the identity provider refused the login") from None
    except InvalidToken as error:
        log.warning("%s returned an unusable user: %s", provider.name, error)
        raise OAuthFailure("server_error", "the identity provider named no user") from None
    except ChannelError as error:
        log.warning("%s does not respond: %s", provider.name, error)
        raise unavailable("the identity provider does not respond; try again later") from None


async def _exchange_code(
    context: ProxyContext, fields: Parameters, login: LoginState
) -> UpstreamTokens:
    """The tokens for the code of the provider's response. Raises `OAuthFailure`."""
    provider, fetcher, now = context.provider, context.fetcher, context.now
    with _provider_errors(context):
        try:
            await provider.check_response(fetcher, now, fields.get("iss"))
        except UpstreamRefused as refused:  # the response of another provider (mix-up)
            log.warning("a response is not used: %s", refused)
            message = "the response is from another identity provider"
            raise OAuthFailure("server_error", message) from None
    if fields.get("error"):
        denied = fields.get("error") == "access_denied"
        error = "access_denied" if denied else "server_error"
        raise OAuthFailure(error, "the identity provider refused the login")
    if not fields.get("code"):
        raise OAuthFailure("server_error", "the identity provider sent no code")
    with _provider_errors(context):
        return await provider.exchange_code(
            fetcher,
            now,
            code=fields.get("code"),
            redirect_uri=context.settings.url(CALLBACK),
            code_verifier=login.verifier,
            nonce=login.nonce,
        )


async def _identify(context: ProxyContext, tokens: UpstreamTokens) -> UpstreamUser:
    """The user of the tokens. Raises `OAuthFailure`."""
    with _provider_errors(context):
        user = await context.provider.identify(context.fetcher, context.now, tokens)
        check_subject(user.subject)
    return user


async def _create_code(
    context: ProxyContext,
    details: AuthorizationDetails,
    scopes: tuple[str, ...],
    user: UpstreamUser,
    tokens: UpstreamTokens,
) -> str:
    """A code for the client. Raises `OAuthFailure`, also if the store does not respond: the client
    waits for a response, and its user can try again."""
    try:
        count = await context.storage.count(f"logins of {digest(user.subject)}", WINDOW_S)
        if count > MAX_LOGINS_OF_USER:
            raise unavailable("too many logins of one user; try again later")
        return await create_grant(
            context,
            client_id=details.client_id,
            redirect_uri=details.redirect_uri,
            challenge=details.challenge,
            dpop_key=details.dpop_key,
            scopes=scopes,
            user=user,
            tokens=tokens,
        )
    except (ChannelError, Refused) as error:
        log.error("a login cannot be stored: %s", error)
        raise unavailable("the login cannot be stored; try again later") from None


async def allowed_scopes(
    context: ProxyContext, user: UpstreamUser, scopes: tuple[str, ...]
) -> tuple[str, ...]:
    """The scopes that a user may grant. Raises `OAuthFailure` if the user may not log in."""
    allow = context.settings.allow
    if allow is None:
        return scopes
    found = allow(user)
    answer = await found if inspect.isawaitable(found) else found
    if answer is False:
        raise OAuthFailure("access_denied", "this user may not use this server")
    if answer is True:
        return scopes
    granted = frozenset(answer)
    return tuple(scope for scope in scopes if scope in granted)


async def _ask_again(
    context: ProxyContext, details: AuthorizationDetails, client: ProxyClient, session: str
) -> EndpointResponse:
    """The consent page: the approval in this browser was given by another user."""
    await context.storage.delete("approval", approval_name(context, session, details))
    notice = "You have logged in as another user than the last time, who has to be asked as well."
    return show_consent(context, details, client, session, notice)


async def remember(
    context: ProxyContext,
    login: LoginState,
    client: ProxyClient,
    session: str,
    user: UpstreamUser,
) -> None:
    """Remember the user's approval, in the browser where it was given."""
    if digest(session) != login.session or not may_remember(client, login.details.redirect_uri):
        return
    name = approval_name(context, session, login.details)
    found = await context.storage.load_raw("approval", name, Approval)
    approval = Approval(subject=user.subject, expires_at=context.now + context.settings.approval_s)
    # If it fails, another tab has stored the same.
    await context.storage.swap("approval", name, found.raw if found is not None else None, approval)
