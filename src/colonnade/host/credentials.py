"""Credentials of the callers of a host for its servers, and the pages where callers connect them.

    upstream = UpstreamCredentials(
        "https://gateway.example.com/connect", identify=current_user, store=store, keys=keys
    )
    host = Host({"github": {"url": "https://…/mcp", "credentials": "login"}}, upstream=upstream)

`upstream` is an ASGI application too: it serves the connect page and the redirect URI, below its
URL.

Rules: a login belongs to the principal that began it. A link alone opens nothing: the page asks
`identify` who has opened it, looks for the link among those of that principal, and goes on only
after that principal has confirmed; the response of the issuer is treated the same. Nothing that a
caller presented to this host is sent to a server. No page shows a secret, and none is logged.
"""

import asyncio
import inspect
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from html import escape
from typing import Final, TypeAlias

from msgspec import Struct

from colonnade.auth.client.credentials import ServerCredentials
from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.login import Auth, check_redirect
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.storage import (
    TokenStorage,
    client_key,
    decode_record,
    encode_record,
)
from colonnade.auth.client.tokens import FORGOTTEN_CLIENT_ERRORS, GrantRefused
from colonnade.auth.client.upstream import (
    LINK_S,
    MAX_LINKS,
    RESPONSE_S,
    ConnectLink,
    ConnectRequired,
    PendingLogin,
    PrincipalLogin,
    PrincipalStorage,
    UpstreamClient,
    begin_login,
    connected_record,
    exchange_auth,
    failure_record,
    finish_login,
    host_client,
    id_jag_auth,
    link_record,
    response_record,
    secret_digest,
)
from colonnade.auth.presented import PresentedTokens
from colonnade.auth.seal import KEY_BYTES, KeyRing
from colonnade.auth.server.oauth_forms import OAuthFailure, parse_fields
from colonnade.auth.server.pages import PAGE_HEADERS, page
from colonnade.auth.server.proxy.consent import check_form_origin, continue_page, error_page
from colonnade.auth.server.proxy.responses import PageFailure, parse_form
from colonnade.auth.urls import display_url, origin
from colonnade.client.auth import credentials_factory
from colonnade.errors import (
    AuthError,
    ChannelError,
    Fault,
    InvalidArgument,
    LocalProtocolError,
    LoginRequired,
    Refused,
    RemoteError,
)
from colonnade.host.config.settings import CredentialsMode
from colonnade.host.input_requests import RoutedInputRequest
from colonnade.ports import (
    SERVER_PRINCIPAL,
    EndpointRequest,
    EndpointResponse,
    RequestContext,
    Store,
)
from colonnade.protocol import types as t
from colonnade.protocol.http.security import (
    FORBIDDEN,
    OK,
    UNAUTHORIZED,
    UNAVAILABLE,
    combine_headers,
)
from colonnade.protocol.input_requests import is_supported
from colonnade.store.memory import MemoryStore
from colonnade.text import clean
from colonnade.transport.http_client.pool import HttpPool
from colonnade.transport.http_server.authentication import send_endpoint_response
from colonnade.transport.http_server.request import Receive, Scope, Send

log: logging.Logger = logging.getLogger("colonnade.auth")

CALLBACK: Final = "callback"
LINK_COUNT: Final = "connect links"
# How long it is known that there was a login: longer than a call waits for one.
CONNECTED_S: Final = 3600.0
# How long a call waits for its caller on the connect page.
CONNECT_S: Final = 300.0
# How often the store is checked for a login that may end in another process.
POLL_S: Final = 0.25
# 256 bits.
SECRET_BYTES: Final = 32
# A form has one field.
MAX_BODY_BYTES: Final = 16 * 1024
MAX_CLIENT_NAME: Final = 80

NOT_YOURS: Final = (
    "This link was made for another account, was used before, or has expired. Call the tool again"
    " to get a new one."
)

# Who has opened a page, by its own session (a cookie, for example): the principal as the protection
# of the host knows it. A response (a redirect to a login page) is sent instead; None is refused.
Identity: TypeAlias = str | EndpointResponse | None
Identify: TypeAlias = Callable[[EndpointRequest], Identity | Awaitable[Identity]]
# Called with the key of a server and the principal that has connected its account there.
OnConnected: TypeAlias = Callable[[str, str], None]


class _Opened(Struct, frozen=True):
    """A page that a principal has opened."""

    principal: str
    request: EndpointRequest


class UpstreamCredentials:
    """The credentials of each caller of a host, for servers whose setting `credentials` is `login`,
    `exchange` or `id-jag`.

    - `url` is where this application is served, for `login`, and `identify` says who has opened one
      of its pages.
    - `store` and `keys` keep logins, encrypted, for all processes that share them; without a store
      they are lost with the process.
    - `clients` are the OAuth clients of this host, by the key of the server.
    - `presented` has the tokens of callers, for `exchange` and `id-jag`: pass the same one to
      `Protection`.
    """

    def __init__(
        self,
        url: str = "",
        *,
        identify: Identify | None = None,
        store: Store | None = None,
        keys: Sequence[bytes] = (),
        clients: Mapping[str, UpstreamClient] | None = None,
        presented: PresentedTokens | None = None,
        connect_s: float = CONNECT_S,
    ) -> None:
        if store is not None and not keys:
            raise InvalidArgument(
                "logins in a store are encrypted: pass keys=[secrets.token_bytes(32)] and keep them"
            )
        if bool(url) is not (identify is not None):
            raise InvalidArgument("url= and identify= belong together: pass both, or neither")
        if url:
            check_redirect(url, anywhere=True)
        if any(len(key) != KEY_BYTES for key in keys):
            raise InvalidArgument(f"each of keys= has {KEY_BYTES} bytes", argument="keys")
        for client in (clients or {}).values():
            client.settings.check()
        self._url = url.rstrip("/")
        self._identify = identify
        self._store = store if store is not None else MemoryStore()
        self._keys = tuple(keys) or (secrets.token_bytes(KEY_BYTES),)
        self._clients = dict(clients or {})
        self._presented = presented
        self._connect_s = connect_s
        self._watchers: dict[object, OnConnected] = {}
        # Clients that were registered, and that their issuers do not know any more, by id.
        self._refused_clients: dict[str, tuple[DiscoveryResult, RegisteredClient]] = {}

    def __repr__(self) -> str:
        return f"UpstreamCredentials({self._url!r})"

    def watch(self, callback: OnConnected) -> Callable[[], None]:
        """Call a callback with every login on a page of this process, until the returned function
        is called."""
        mark = object()
        self._watchers[mark] = callback

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    # ------------------------------------------------------------ credentials

    def auth_for(self, key: str, mode: CredentialsMode, principal: str) -> Auth:
        """The credentials of a principal for a server. Raises `LocalProtocolError` if the mode is
        not configured, `LoginRequired` for a caller without a name."""
        if not principal or principal == SERVER_PRINCIPAL:
            raise LoginRequired("its credentials are those of a caller, and this one has no name")
        client = self._clients.get(key, UpstreamClient())
        storage = self._storage_of(principal)
        if mode == "login":
            if not self._url:
                raise LocalProtocolError(
                    "credentials = 'login' needs UpstreamCredentials(url, identify=…)"
                )
            return PrincipalLogin(key, client, storage, self._client_refused)
        presented = self._presented
        if presented is None or not client.client_id:
            raise LocalProtocolError(
                f"credentials = {mode!r} needs UpstreamCredentials(presented=…, "
                f"clients={{{key!r}: UpstreamClient(issuer=…, client_id=…)}})"
            )

        async def subject() -> str:
            return presented.subject_of(principal)

        make = exchange_auth if mode == "exchange" else id_jag_auth
        return make(client, storage, subject)

    def _storage_of(self, principal: str) -> PrincipalStorage:
        return PrincipalStorage(self._store, self._keys, principal)

    def _records(self, principal: str) -> TokenStorage:
        return TokenStorage(self._store, principal, self._keys)

    # ------------------------------------------------------------ a call without a login

    async def connect(
        self, request: RequestContext, required: LoginRequired, *, may_ask: bool = True
    ) -> None:
        """Let the caller of a request connect: by URL elicitation, if its client can do that.

        Returns once the login is there. Raises `LoginRequired`, with the URL of the connect page if
        the caller was not asked, and `required` itself if it is about something else.
        """
        if not isinstance(required, ConnectRequired):
            raise required
        exchange = request.exchange
        info = exchange.peer.info
        asked_by = clean(info.title or info.name)[:MAX_CLIENT_NAME] if info is not None else ""
        last_login = await self._last_login(exchange.principal, required)
        url, link_id = await self._create_link(exchange.principal, required, asked_by)
        params = t.ElicitRequestParams(
            message=f"Connect your account to {required.key!r} to go on.",
            mode="url",
            url=url,
            elicitation_id=link_id,
        )
        asked = RoutedInputRequest(params, required.key, (request,))
        capabilities = exchange.peer.capabilities
        if (
            not may_ask
            or not isinstance(capabilities, t.ClientCapabilities)
            or not exchange.method.may_require_input
            or not is_supported(asked, capabilities, exchange.peer.revision)
        ):
            raise _required(required, f"open {url} in a browser, then try again")
        try:
            result = asked.decode_response(await request.ask(asked), exchange.peer.revision)
        except (Fault, RemoteError):
            raise _required(required, f"open {url} in a browser, then try again") from None
        if not isinstance(result, t.ElicitResult) or result.action != "accept":
            raise _required(required, "the user did not want to connect")
        await self._wait_for_login(exchange.principal, link_id, last_login, required)

    async def _wait_for_login(
        self, principal: str, link_id: str, last_login: bytes | None, required: ConnectRequired
    ) -> None:
        """Wait until the principal has connected: by this link, or by that of another call."""
        records = self._records(principal)
        try:
            async with asyncio.timeout(self._connect_s):
                while await self._last_login(principal, required) in (None, last_login):
                    failure = await records.load(failure_record(link_id))
                    if failure is not None:
                        raise _required(required, f"the login failed: {failure.decode()}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            hint = "connect on the page that was opened, then try again"
            raise _required(required, hint) from None

    async def _last_login(self, principal: str, required: ConnectRequired) -> bytes | None:
        """What changes with each login of a principal for a server."""
        return await self._records(principal).load(connected_record(required.discovery.server))

    async def link_url(self, principal: str, required: LoginRequired) -> str:
        """The URL of a connect page for a principal. Raises `required` if it is about something
        else."""
        if not isinstance(required, ConnectRequired):
            raise required
        return (await self._create_link(principal, required))[0]

    async def _create_link(
        self, principal: str, required: ConnectRequired, asked_by: str = ""
    ) -> tuple[str, str]:
        """The URL of a connect page for a principal, and its id. The URL is no credential: it opens
        nothing for another principal."""
        if await self._store.count(principal, LINK_COUNT, 1, LINK_S) > MAX_LINKS:
            raise _required(
                required, "too many links were made: open one of them, or try again later"
            )
        secret = secrets.token_urlsafe(SECRET_BYTES)
        link = ConnectLink(
            principal,
            required.key,
            required.discovery,
            required.scopes,
            required.bound,
            asked_by,
        )
        link_id = secret_digest(secret)
        await self._forget_clients()
        await self._records(principal).save(link_record(link_id), encode_record(link), LINK_S)
        return f"{self._url}/{secret}", link_id

    # ------------------------------------------------------------ pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the pages, as an ASGI application."""
        if scope["type"] != "http":
            return
        body = b""
        more = scope["method"] == "POST"
        while more and len(body) <= MAX_BODY_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        client = scope.get("client")
        request = EndpointRequest(
            scope["method"],
            scope["path"],
            scope.get("query_string", b"").decode("latin-1"),
            combine_headers(list(scope["headers"])),
            body[:MAX_BODY_BYTES],
            str(client[0]) if client else "",
        )
        await send_endpoint_response(await self.respond(request), send)

    async def respond(self, request: EndpointRequest) -> EndpointResponse:
        """The response to a request for one of the pages: the last part of its path says which."""
        name = request.path.rpartition("/")[2]
        try:
            opened = await self._identified(request)
            if isinstance(opened, EndpointResponse):
                return opened
            if name == CALLBACK and request.method == "GET":
                return await self._finish(opened)
            if request.method == "GET":
                return await self._show(opened, secret_digest(name))
            if request.method == "POST":
                return await self._begin(opened, secret_digest(name))
            raise PageFailure("This page is opened by a link.", 405)
        except PageFailure as failure:
            return error_page(failure)
        except AuthError as error:
            return error_page(PageFailure(f"The login failed: {error}."))
        except (ChannelError, Refused, Fault) as error:
            log.error("a login cannot continue: %s", error)
            return error_page(PageFailure("The server is busy. Try again later.", UNAVAILABLE))

    async def _identified(self, request: EndpointRequest) -> _Opened | EndpointResponse:
        """Who has opened a page. Raises `PageFailure` if that is unknown."""
        if self._identify is None:
            raise PageFailure("There are no connect pages here.", 404)
        found = self._identify(request)
        identity = await found if inspect.isawaitable(found) else found
        if isinstance(identity, EndpointResponse):
            return identity
        if not isinstance(identity, str) or identity in ("", SERVER_PRINCIPAL):
            raise PageFailure("Log in to this site first, then open the link again.", UNAUTHORIZED)
        return _Opened(identity, request)

    async def _show(self, opened: _Opened, link_id: str) -> EndpointResponse:
        """The connect page. It changes nothing, so a link that is fetched in advance stays good."""
        data = await self._records(opened.principal).load(link_record(link_id))
        link = self._checked(decode_record(ConnectLink, data), opened)
        rows = [
            ("Your account here", link.principal),
            ("Connects to", link.key),
            ("At", display_url(link.discovery.server)),
            ("You will log in at", display_url(link.discovery.issuer.issuer)),
            ("Permissions", " ".join(link.scopes) or "basic access"),
        ]
        if link.asked_by:
            rows.append(("Asked by the application", link.asked_by))
        listed = "".join(
            f"<dt>{term}</dt><dd><bdi>{escape(value)}</bdi></dd>" for term, value in rows
        )
        sealed = escape(self._form_ring(opened.principal, link_id).seal(b"connect"), quote=True)
        content = (
            f"<dl>{listed}</dl>"
            '<p class="warning">Continue only if you have just asked for this yourself.</p>'
            f'<form method="post"><input type="hidden" name="form" value="{sealed}">'
            '<div class="buttons"><button class="approve">Connect</button></div></form>'
        )
        return EndpointResponse(OK, PAGE_HEADERS, page("Connect your account?", content))

    def _checked(self, link: ConnectLink | None, opened: _Opened) -> ConnectLink:
        # It was found in the storage of this principal; that it says so, too, is a second lock.
        if link is None or link.principal != opened.principal:
            raise PageFailure(NOT_YOURS, FORBIDDEN)
        return link

    async def _begin(self, opened: _Opened, link_id: str) -> EndpointResponse:
        """The principal has confirmed: redirect to the issuer of the server."""
        self._check_form(opened, link_id)
        records = self._records(opened.principal)
        # Taken before anything is sent: a link causes one registration at most.
        data = await records.take(link_record(link_id))
        link = self._checked(decode_record(ConnectLink, data), opened)
        redirect_uri = f"{self._url}/{CALLBACK}"
        settings = self._clients.get(link.key, UpstreamClient()).settings
        async with self._recorded_failures(records, link_id):
            # One registration for all principals.
            async with _Flows(self._login_auth(SERVER_PRINCIPAL, link), link) as flows:
                context = flows.context
                client = await flows.run(host_client(settings, link, redirect_uri, context))
            try:
                url, pending = begin_login(link, link_id, client, redirect_uri, context)
            except AuthError as error:  # R1333: for security monitoring
                log.warning("rejected the authorization page of %r: %s", link.key, error)
                raise
            name = response_record(pending.request.state)
            await records.save(name, encode_record(pending), RESPONSE_S)
        return continue_page(url, f"Continue to {display_url(link.discovery.issuer.issuer)}")

    def _check_form(self, opened: _Opened, link_id: str) -> None:
        """Raise `PageFailure` for a form that another page has sent, or another principal got."""
        check_form_origin(opened.request, origin(self._url))
        try:
            sealed = parse_form(opened.request).get("form")
            self._form_ring(opened.principal, link_id).unseal(sealed)
        except (OAuthFailure, Fault):
            raise PageFailure("Open the link again, and confirm there.", FORBIDDEN) from None

    def _form_ring(self, principal: str, link_id: str) -> KeyRing:
        return KeyRing(self._keys, audience=f"connect form\0{principal}\0{link_id}")

    async def _finish(self, opened: _Opened) -> EndpointResponse:
        """The authorization response, at our redirect URI: store the login of this principal."""
        query = opened.request.query
        try:
            state = parse_fields(query).get("state")
        except OAuthFailure as failure:
            raise PageFailure(f"The response is invalid: {failure.description}.") from None
        records = self._records(opened.principal)
        pending = decode_record(PendingLogin, await records.take(response_record(state)))
        link = self._checked(pending.link if pending is not None else None, opened)
        assert pending is not None
        async with (
            self._recorded_failures(records, pending.link_id),
            _Flows(self._login_auth(opened.principal, link), link) as flows,
        ):
            try:
                login = await flows.run(finish_login(pending, query, flows.context))
            except GrantRefused as refused:
                if refused.error in FORGOTTEN_CLIENT_ERRORS:
                    self._client_refused(link.discovery, pending.client)
                raise
            await flows.replace_login(login)
        name = connected_record(link.discovery.server)
        await records.save(name, pending.link_id.encode(), CONNECTED_S)
        for callback in list(self._watchers.values()):
            callback(link.key, opened.principal)
        content = f"<p>{escape(link.key)} is connected. You may close this window.</p>"
        return EndpointResponse(OK, PAGE_HEADERS, page("Connected", content))

    @asynccontextmanager
    async def _recorded_failures(self, records: TokenStorage, link_id: str) -> AsyncGenerator[None]:
        """Record an error, for the call that waits for the login of a link."""
        try:
            yield
        except (AuthError, ChannelError) as error:
            with suppress(ChannelError, Refused):  # then the call waits until its timeout
                await records.save(failure_record(link_id), str(error).encode(), LINK_S)
            raise

    def _client_refused(self, discovery: DiscoveryResult, client: RegisteredClient) -> None:
        self._refused_clients[client.client_id] = (discovery, client)

    async def _forget_clients(self) -> None:
        """Delete clients that their issuers do not know any more, so that the next login registers
        again."""
        while self._refused_clients:
            discovery, client = next(iter(self._refused_clients.values()))
            name = client_key(discovery.server, client.issuer)
            records = self._records(SERVER_PRINCIPAL)
            kept = decode_record(RegisteredClient, await records.load(name))
            if kept is not None and kept.client_id == client.client_id:
                await records.erase(name)
            self._refused_clients.pop(client.client_id, None)

    def _login_auth(self, principal: str, link: ConnectLink) -> PrincipalLogin:
        client = self._clients.get(link.key, UpstreamClient())
        storage = self._storage_of(principal)
        return PrincipalLogin(link.key, client, storage, self._client_refused)


class _Flows:
    """Runs flows for the server of a link, over connections that are closed afterwards."""

    def __init__(self, auth: Auth, link: ConnectLink) -> None:
        self._auth = auth
        self._server = link.discovery.server

    async def __aenter__(self) -> ServerCredentials:
        self._pool = HttpPool()
        self._credentials = credentials_factory(self._auth, self._server)(self._pool.send)
        return self._credentials

    async def __aexit__(self, *_: object) -> None:
        await self._credentials.close()
        await self._pool.close()


def _required(required: ConnectRequired, hint: str) -> LoginRequired:
    return LoginRequired(required.summary, server=required.key, hint=hint)
