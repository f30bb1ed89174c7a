"""Credentials of a client for one server: access token in each request, refresh, login, step-up.

Drives the OAuth flows: executes their steps, and answers 401 and 403 responses with new tokens.

Rules: one refresh or login at a time, among all tasks and, by a lease in the token storage, among
all processes; a request with a valid access token never waits for it. A request is repeated only
after a 401 or 403, and only a few times. Tokens are sent to the server that they were issued for,
and nowhere else. No secret is in an error, a log or a `repr`.
"""

import asyncio
import contextlib
import inspect
import logging
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from colonnade.auth.client.discovery import DiscoveryResult, discover
from colonnade.auth.client.login import Auth, Login
from colonnade.auth.client.loopback import RedirectListener, open_browser
from colonnade.auth.client.steps import (
    DeleteRecord,
    Flow,
    FlowContext,
    FlowResponse,
    FlowStep,
    GetAssertion,
    LoadRecord,
    OpenAuthorizationPage,
    OpenRedirectListener,
    SaveRecord,
    SendRequest,
)
from colonnade.auth.client.storage import (
    HeldLease,
    LeaseLost,
    StoredLogin,
    TokenStorage,
    delete_client,
    delete_clients,
    delete_login,
    lease_key,
    load_login,
    save_login,
)
from colonnade.auth.client.tokens import (
    FORGOTTEN_CLIENT_ERRORS,
    ClientIdentity,
    GrantRefused,
    Tokens,
    check_dpop,
    dpop_proof,
    refresh,
    revoke,
)
from colonnade.auth.jose import SigningKey, generate_key, read_private_key
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.auth.urls import canonical_resource, display_url, origin, parse_url, require_page
from colonnade.errors import (
    AuthError,
    CannotConnect,
    CannotFetch,
    ChannelError,
    ColonnadeError,
    LoginRequired,
    ScopeRequired,
)
from colonnade.ports import HttpSend, RequestCredentials
from colonnade.protocol.http.challenges import DPOP, Challenges, read_challenges

# Errors of a token endpoint that end a grant: the refresh token or the client is no longer valid.
ENDED_GRANT_ERRORS = FORGOTTEN_CLIENT_ERRORS | {"invalid_grant", "invalid_scope"}


class RejectedRequest(Struct, frozen=True):
    """A request that was rejected by 401 or 403, with its challenges.

    `generation` names the tokens that were sent; `fresh` if they were obtained for this request.
    """

    challenges: Challenges
    generation: str = ""
    needs_scope: bool = False
    fresh: bool = False


class LogoutResult(Struct, frozen=True):
    """What a logout deleted: a login, which the issuer has revoked or not, and a registration."""

    logged_in: bool = False
    revoked: bool = False
    registered: bool = False


def authorize(
    auth: Auth, server: str, rejected: RejectedRequest, context: FlowContext
) -> Flow[StoredLogin]:
    """Obtain tokens after a rejection. Raises `AuthError`, `ChannelError`."""
    login = yield from load_login(server, auth.account)
    if login is not None and _is_newer(login, rejected, context):
        return login
    _check_retry(login, rejected, server)
    wanted = [auth.issuer] if auth.issuer else []
    if login is not None:
        wanted.append(login.discovery.issuer.issuer)
    discovery = yield from discover(server, rejected.challenges, wanted)
    auth.check(discovery)
    if login is not None and login.discovery.issuer.issuer != discovery.issuer.issuer:
        login = None  # the server has moved to another issuer; the old credentials are not used
    if login is not None and not rejected.needs_scope and not rejected.fresh:
        renewed = yield from _refreshed(auth, login, discovery, context)
        if renewed is not None:
            return renewed
    before = login.tokens.requested if login is not None else ()
    scopes = auth.scopes_for(before, rejected.challenges, discovery)
    bound = _dpop_key(auth, discovery, rejected.challenges)
    client, tokens = yield from auth.grant(discovery, context, bound, scopes)
    new = StoredLogin(discovery, client, tokens)
    yield from save_login(new, auth.account)
    return new


def renew(
    auth: Auth, server: str, generation: str, context: FlowContext
) -> Flow[StoredLogin | None]:
    """Refresh the tokens without a user; None if a login is needed."""
    login = yield from load_login(server, auth.account)
    if login is None or (
        login.tokens.generation != generation and login.tokens.is_fresh(context.now())
    ):
        return login
    auth.check(login.discovery)
    if auth.unattended:
        return (yield from _grant_again(auth, login, context))
    return (yield from _refreshed(auth, login, login.discovery, context))


def _grant_again(auth: Auth, login: StoredLogin, context: FlowContext) -> Flow[StoredLogin]:
    """Repeat the grant of a program, which has no refresh token."""
    bound = read_private_key(login.tokens.key) if login.tokens.key else None
    discovery, scopes = login.discovery, login.tokens.requested
    client, tokens = yield from auth.grant(discovery, context, bound, scopes)
    new = StoredLogin(discovery, client, tokens)
    yield from save_login(new, auth.account)
    return new


def _refreshed(
    auth: Auth, login: StoredLogin, discovery: DiscoveryResult, context: FlowContext
) -> Flow[StoredLogin | None]:
    """The login with tokens from the refresh token; None if that is not possible."""
    if not login.tokens.refresh_token or not login.client.is_valid(context.now()):
        return None
    bound = read_private_key(login.tokens.key) if login.tokens.key else None
    identity = ClientIdentity(login.client, context, auth.signer, bound)
    try:
        tokens = yield from refresh(discovery.issuer, identity, login.tokens)
    except GrantRefused as refused:
        if refused.error not in ENDED_GRANT_ERRORS:
            raise
        if refused.error in FORGOTTEN_CLIENT_ERRORS:
            auth.client_refused(discovery, login.client)
        yield from delete_login(login)
        if refused.error in FORGOTTEN_CLIENT_ERRORS and login.client.dynamic:
            # A login with it would end at a page of the issuer, which leads nowhere.
            yield from delete_client(login.discovery.server, login.client)
        return None
    new = StoredLogin(discovery, login.client, tokens)
    yield from save_login(new, auth.account)
    return new


def revoke_login(auth: Auth, login: StoredLogin, context: FlowContext) -> Flow[bool]:
    """Delete a login and revoke its tokens; whether the issuer revoked them. The login is deleted
    even if the issuer does not respond."""
    yield from delete_login(login)
    if login.client.dynamic:
        yield from delete_client(login.discovery.server, login.client)
    bound = read_private_key(login.tokens.key) if login.tokens.key else None
    identity = ClientIdentity(login.client, context, auth.signer, bound)
    try:
        taken = yield from revoke(login.discovery.issuer, identity, login.tokens.refresh_token)
        other = yield from revoke(login.discovery.issuer, identity, login.tokens.access_token)
    except ChannelError:
        return False
    return other and (taken or not login.tokens.refresh_token)


def _is_newer(login: StoredLogin, rejected: RejectedRequest, context: FlowContext) -> bool:
    """Whether the stored tokens are others than the rejected ones, and may be accepted."""
    tokens = login.tokens
    if tokens.generation == rejected.generation or not tokens.is_valid(context.now()):
        return False
    needed = rejected.challenges.scopes or ()
    return not rejected.needs_scope or set(needed) <= set(tokens.requested)


def _check_retry(login: StoredLogin | None, rejected: RejectedRequest, server: str) -> None:
    """Raise if another grant would return the same rights."""
    if rejected.needs_scope:
        needed = rejected.challenges.scopes or ()
        asked = login.tokens.requested if login is not None else ()
        if not set(needed) - set(asked):
            named = " ".join(needed)[:200] or "more"
            raise ScopeRequired(
                f"{display_url(server)} requires the scope {named!r}, which was requested but is "
                "not sufficient; the account may not have this permission"
            )
    elif rejected.fresh and (login is None or not login.tokens.renewed):
        raise LoginRequired(
            f"{display_url(server)} rejects a token that its own issuer has just issued"
            f"{_reason(rejected.challenges)}; "
            "the server or its authorization server is misconfigured"
        )


def _reason(challenges: Challenges) -> str:
    return f" ({challenges.reason})" if challenges.reason else ""


def _dpop_key(auth: Auth, discovery: DiscoveryResult, challenges: Challenges) -> SigningKey | None:
    """A new key to bind tokens to, if the server or the program requires DPoP."""
    if not (auth.dpop or discovery.dpop_required or challenges.wants_dpop):
        return None
    asked = challenges.get(DPOP)
    check_dpop(discovery.issuer, asked.parameters.get("algs") if asked is not None else None)
    return generate_key()


log: logging.Logger = logging.getLogger("colonnade.auth")

# Logins that one request may cause: a login, a step-up, and a second step-up.
MAX_LOGINS = 3
# DPoP nonces for one request: a server changes them now and then, not with every response.
MAX_NONCES = 2
# How often the storage is checked for the login of another process.
POLL_S = 0.1
# How long to wait for another process, which may be waiting for its user.
OTHER_PROCESS_TIMEOUT_S = 600.0
# After a refresh that failed while the old token is still valid.
RETRY_PAUSE_S = 5.0
# 384 bits, 64 characters: a PKCE verifier has 43 at least.
SECRET_BYTES: Final = 48

T = TypeVar("T")


class ServerCredentials:
    """The credentials of one client for one server."""

    def __init__(
        self,
        auth: Auth,
        server: str,
        send: HttpSend,
        storage: TokenStorage,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        parts = parse_url(server, "the server's URL")
        self._auth = auth
        self._server = canonical_resource(server)
        self._origin = origin(server)
        self._storage = storage
        self._context = FlowContext(clock, lambda: secrets.token_urlsafe(SECRET_BYTES))
        here = is_loopback_host(parts.hostname or "")
        self._fetcher = Fetcher(send, loopback=here, networks=auth.networks)
        self._login: StoredLogin | None = None
        self._key: SigningKey | None = None
        self._loaded = False
        self._work: asyncio.Task[StoredLogin | None] | None = None
        self._quiet_until = 0.0
        # The last failure: generation, needs_scope, error, and until when it is not tried again.
        self._failed: tuple[str, bool, ColonnadeError, float] | None = None
        # The DPoP nonce of the server; those of its issuer are local to a flow.
        self._nonce = ""

    def __repr__(self) -> str:
        return f"Credentials({display_url(self._server)})"

    # ------------------------------------------------------------ headers of a request

    def cached(self, method: str, url: str) -> RequestCredentials | None:
        """The same as `obtain`, if there is nothing to wait for; otherwise None."""
        login = self._login
        if login is not None and login.tokens.is_fresh(self._context.now()):
            return self._shown(login, method, url)
        return self._shown(None, method, url) if login is None and self._loaded else None

    async def obtain(self, method: str, url: str) -> RequestCredentials:
        """The headers for a request; none before the first challenge of the server."""
        return self._shown(await self._current(), method, url)

    def _shown(self, login: StoredLogin | None, method: str, url: str) -> RequestCredentials:
        if login is None or origin(url) != self._origin:
            return RequestCredentials("", ())
        tokens = login.tokens
        if tokens.token_type != DPOP:
            return RequestCredentials(
                tokens.generation, (("authorization", f"Bearer {tokens.access_token}"),)
            )
        key, token = self._bound(tokens), tokens.access_token
        signed = dpop_proof(key, self._context, method, url, nonce=self._nonce, token=token)
        lines = (("authorization", f"DPoP {token}"), ("dpop", signed))
        return RequestCredentials(tokens.generation, lines, nonce=self._nonce)

    def _bound(self, tokens: Tokens) -> SigningKey:
        if self._key is None:
            self._key = read_private_key(tokens.key)
        return self._key

    async def _current(self) -> StoredLogin | None:
        """The current login, refreshed if it is about to expire."""
        if not self._loaded:
            self._set_login(await self._drive(load_login(self._server, self._auth.account)))
            self._loaded = True
        login, now = self._login, self._context.now()
        if login is None or login.tokens.is_fresh(now):
            return login
        if login.tokens.is_valid(now):
            # Refresh in the background: the old token is valid until then.
            if self._work is None and now >= self._quiet_until:
                self._begin(self._renew(login.tokens.generation))
            return login
        if self._work is None:
            self._begin(self._renew(login.tokens.generation))
        await self._joined()
        latest = self._login
        return (
            latest if latest is not None and latest.tokens.is_valid(self._context.now()) else None
        )

    def _set_login(self, login: StoredLogin | None) -> None:
        self._login = login
        self._key = None

    async def login(self) -> StoredLogin | None:
        """The login in the storage, without a refresh."""
        return await self._drive(load_login(self._server, self._auth.account))

    async def log_out(self) -> "LogoutResult":
        """Revoke and delete the stored login, and delete the clients that were registered for it:
        the next login registers another one."""
        login = await self.login()
        registered = await self._drive(delete_clients(self._server))
        if login is None:
            return LogoutResult(registered=registered)
        revoked = await self._drive(revoke_login(self._auth, login, self._context))
        return LogoutResult(logged_in=True, revoked=revoked, registered=registered)

    # ------------------------------------------------------------ rejected requests (401, 403)

    async def handle_rejection(
        self,
        sent_before: Sequence[RequestCredentials],
        status: int,
        lines: Sequence[str],
        nonce: str,
    ) -> bool:
        """Whether to repeat a request that was rejected (401, 403); `sent_before` are the
        credentials of all attempts so far. Raises `AuthError` if a repetition would not help,
        `ChannelError` if a server does not respond."""
        last = sent_before[-1]
        challenges = read_challenges(lines)
        bound = challenges.get(DPOP)
        if status == 401 and bound is not None and bound.error == "use_dpop_nonce" and last.headers:
            nonces = sum(one.generation == last.generation for one in sent_before)
            self._nonce = nonce
            return bool(nonce) and nonce != last.nonce and nonces <= MAX_NONCES
        asked = [one for one in challenges.token_challenges if one.error == "insufficient_scope"]
        if status == 403 and not asked:
            return False
        generations = list(dict.fromkeys(one.generation for one in sent_before))
        if len(generations) > MAX_LOGINS:
            kind = ScopeRequired if status == 403 else LoginRequired
            reason = _reason(challenges)
            message = (
                f"{display_url(self._server)} still rejects the request after {MAX_LOGINS} logins"
            )
            raise _with_status(kind(f"{message}{reason}; giving up"), status)
        fresh = len(generations) > 1
        rejected = RejectedRequest(challenges, last.generation, status == 403, fresh)
        await self._renewed_for(rejected, status)
        return True

    async def _renewed_for(self, rejected: RejectedRequest, status: int) -> None:
        """Obtain other tokens than those that were rejected."""
        try:
            if self._work is not None:
                await self._joined()
                if self._generation not in ("", rejected.generation) and not rejected.needs_scope:
                    return
            if self._work is None:
                self._check_failed(rejected)
                self._begin(self._authorize(rejected))
            await self._joined()
        except AuthError as error:
            if self._work is None:
                until = self._context.now() + RETRY_PAUSE_S
                self._failed = (rejected.generation, rejected.needs_scope, error, until)
            raise _with_status(error, status) from None

    def _check_failed(self, rejected: RejectedRequest) -> None:
        """Raise the error of the same rejection a moment ago: a thousand requests that are
        rejected at once must not open a thousand login pages in turn."""
        if self._failed is None or self._context.now() >= self._failed[3]:
            self._failed = None
        elif self._failed[:2] == (rejected.generation, rejected.needs_scope):
            raise self._failed[2].copy()

    @property
    def _generation(self) -> str:
        return self._login.tokens.generation if self._login is not None else ""

    def set_nonce(self, nonce: str) -> None:
        """Store the server's nonce for the next DPoP proof."""
        self._nonce = nonce

    # ------------------------------------------------------------ one flow at a time

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[StoredLogin | None] = asyncio.get_running_loop().create_task(work)
        self._work = task
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[StoredLogin | None]") -> None:
        self._work = None
        if task.cancelled():
            return
        error, login = task.exception(), self._login
        now = self._context.now()
        if (
            error is None
            and task.result() is None
            and login is not None
            and login.tokens.is_valid(now)
        ):
            self._quiet_until = login.tokens.expires_at  # no refresh possible, but still valid
        elif error is None:
            self._set_login(task.result())
        else:
            self._quiet_until = self._context.now() + RETRY_PAUSE_S
            log.debug("%s: no new token: %s", display_url(self._server), error)

    async def _joined(self) -> None:
        """Wait for the flow, which has a task of its own: a cancelled waiter does not stop it."""
        task = self._work
        if task is None:
            return
        await asyncio.wait([task])
        if task.cancelled():
            raise CannotConnect("the client was closed during the login")
        error = task.exception()
        if isinstance(error, ColonnadeError):
            raise error.copy()
        if error is not None:
            raise error

    async def _renew(self, generation: str) -> StoredLogin | None:
        def is_done(login: StoredLogin | None) -> bool:
            return login is not None and login.tokens.generation != generation

        flow = renew(self._auth, self._server, generation, self._context)
        return await self._alone(flow, is_done)

    async def _authorize(self, rejected: RejectedRequest) -> StoredLogin | None:
        def is_done(login: StoredLogin | None) -> bool:
            newer = login is not None and login.tokens.generation != rejected.generation
            return newer and not rejected.needs_scope

        flow = authorize(self._auth, self._server, rejected, self._context)
        return await self._alone(flow, is_done)

    async def _alone(self, flow: Flow[T], is_done: Callable[[StoredLogin | None], bool]) -> Any:
        """Run a flow while holding the lease, or wait for the result of another process."""
        name = lease_key(self._server, self._auth.account)
        latest = asyncio.get_running_loop().time() + OTHER_PROCESS_TIMEOUT_S
        try:
            while asyncio.get_running_loop().time() < latest:
                lost: LeaseLost | None = None
                async with self._storage.lease(name) as lease:
                    if lease is not None:
                        try:
                            return await self._drive(flow, lease)
                        except LeaseLost as error:
                            lost = error
                login = await self._drive(load_login(self._server, self._auth.account))
                if is_done(login):
                    return login
                if lost is not None:
                    raise lost
                await asyncio.sleep(POLL_S)
            raise LoginRequired("timed out waiting for the login of another process; try again")
        finally:
            flow.close()

    async def close(self) -> None:
        """Cancel a running flow, and close the storage."""
        task = self._work
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._storage.close()

    # ------------------------------------------------------------ steps of a flow

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow that needs no browser, with this token storage."""
        return await self._drive(flow)

    async def replace_login(self, login: StoredLogin) -> None:
        """Store a login that was obtained elsewhere; a refresh of the old one ends first."""
        await self._alone(save_login(login, self._auth.account), lambda _: False)

    @property
    def context(self) -> FlowContext:
        """The clock and the source of secrets of flows."""
        return self._context

    async def _drive(self, flow: Flow[T], lease: HeldLease | None = None) -> T:
        page = BrowserLogin(self._auth)
        try:
            step = next(flow)
            while True:
                try:
                    outcome = await self._do(step, page, lease)
                except ColonnadeError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as ended:
            return ended.value
        finally:
            await page.close()

    async def _do(self, step: FlowStep, page: "BrowserLogin", lease: HeldLease | None) -> Any:
        match step:
            case SendRequest():
                return await self._fetch(step)
            case LoadRecord():
                return await self._storage.load(step.name)
            case SaveRecord():
                return await self._storage.save(step.name, step.value, lease=lease)
            case DeleteRecord():
                return await self._storage.erase(step.name, lease)
            case OpenRedirectListener():
                return await page.open_listener(step.previous)
            case OpenAuthorizationPage():
                return await page.open_page(step.url, step.state)
            case GetAssertion():
                return await _call(step.function)

    async def _fetch(self, step: SendRequest) -> FlowResponse:
        try:
            fetched = await self._fetcher.fetch(step.method, step.url, step.headers, step.body)
        except CannotFetch as error:
            raise CannotConnect(f"{error}: {error.why}") from None
        return FlowResponse(fetched.status, tuple(fetched.headers.items()), fetched.body)


class BrowserLogin:
    """The browser part of one login: the authorization page, and the redirect back."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._loopback: RedirectListener | None = None

    async def open_listener(self, previous: str) -> str:
        """The redirect URI of this login."""
        auth = self._login()
        if auth.on_redirect is not None:
            return auth.redirect_uri
        if self._loopback is None:
            self._loopback = RedirectListener()
            return await self._loopback.open(previous, required=bool(auth.redirect_uri))
        return previous

    async def open_page(self, url: str, state: str) -> str:
        """Send the user to the authorization page; the query of the redirect."""
        auth = self._login()
        try:
            require_page(url)
        except AuthError as error:  # R1333: for security monitoring
            log.warning("rejected the authorization page %r: %s", display_url(url), error)
            raise
        if auth.on_redirect is not None:
            back = await _call(auth.on_redirect, url)
            if not isinstance(back, str):
                raise LoginRequired("the login was not completed: on_redirect returned no URL")
            return back.partition("#")[0].partition("?")[2] or back
        assert self._loopback is not None
        waiting = asyncio.ensure_future(self._loopback.wait(state, auth.login_s))
        try:
            await asyncio.sleep(0)  # so that it waits before the browser is redirected
            (auth.on_show or _print_login_url)(url)
            if auth.browser:
                await open_browser(url)
            return await waiting
        finally:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError, ColonnadeError):
                await waiting

    def _login(self) -> Login:
        auth = self._auth
        if not isinstance(auth, Login):
            raise LoginRequired("a user has to log in, which this kind of auth= does not support")
        return auth

    async def close(self) -> None:
        """Close the redirect listener."""
        if self._loopback is not None:
            await self._loopback.close()


def _print_login_url(url: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr may be closed
        sys.stderr.write(f"colonnade: to log in, open this page:\n{url}\n")
        sys.stderr.flush()


async def _call(what: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the program, in a thread if it is not a coroutine function."""
    if inspect.iscoroutinefunction(what):
        return await what(*arguments)
    value = await asyncio.to_thread(what, *arguments)
    return await value if inspect.isawaitable(value) else value


def _with_status(error: AuthError, status: int) -> AuthError:
    error.status = status
    return error
