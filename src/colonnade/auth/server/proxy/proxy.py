"""`OAuthProxy`: the authorization server of a server, in front of a provider with one fixed client.

    Protection("https://notes.example.com/mcp", OAuthProxy(github(client_id, client_secret)))

Clients register here, users approve each client here and log in at the provider, and clients get
tokens of ours, for this server alone. See `docs/authorization-proxy.md`.

Rules: all state is in the server's store, sealed with the server's keys, so that replicas that
share both are one authorization server. A token of the provider never leaves the store but to the
provider.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from colonnade.auth.jose import UnverifiedJwt
from colonnade.auth.server.proxy import access_tokens
from colonnade.auth.server.proxy.authorize import RedirectFailure
from colonnade.auth.server.proxy.callback import callback
from colonnade.auth.server.proxy.consent import (
    BACK,
    authorize,
    continue_page,
    decide,
    error_page,
    return_page,
)
from colonnade.auth.server.proxy.context import (
    AUTHORIZE,
    CALLBACK,
    CONSENT,
    DAY_S,
    INTROSPECT,
    JWKS,
    REGISTER,
    REVOKE,
    TOKEN,
    Allow,
    ProxyContext,
    ProxySettings,
)
from colonnade.auth.server.proxy.metadata import (
    document_paths,
    metadata_document,
    respond_document,
    respond_jwks,
)
from colonnade.auth.server.proxy.provider import Provider
from colonnade.auth.server.proxy.records import ProxyStorage
from colonnade.auth.server.proxy.registration import (
    check_redirect_schemes,
    is_local_redirect,
    register,
)
from colonnade.auth.server.proxy.responses import (
    OAuthFailure,
    PageFailure,
    error_response,
    preflight,
    redirect,
    unavailable,
)
from colonnade.auth.server.proxy.signing_keys import SigningKeys
from colonnade.auth.server.proxy.token import introspect, revoke, token
from colonnade.auth.server.verifier import ProtectionContext, VerifiedToken, check_url
from colonnade.auth.ssrf import Fetcher
from colonnade.auth.urls import origin
from colonnade.errors import ChannelError, InvalidArgument, InvalidArgumentType, Refused
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import UNAVAILABLE

log: logging.Logger = logging.getLogger("colonnade.auth")

MAX_ACCESS_TOKEN_S: Final = 3600.0
MIN_ACCESS_TOKEN_S: Final = 30.0

Endpoint = Callable[[ProxyContext, EndpointRequest], Awaitable[EndpointResponse]]

_PAGES: Final[dict[str, tuple[str, Endpoint]]] = {
    AUTHORIZE: ("GET", authorize),
    CONSENT: ("POST", decide),
    CALLBACK: ("GET", callback),
}
_CALLS: Final[dict[str, tuple[str, Endpoint]]] = {
    TOKEN: ("POST", token),
    REGISTER: ("POST", register),
    REVOKE: ("POST", revoke),
    INTROSPECT: ("POST", introspect),
}


class OAuthProxy:
    """An authorization server for one server, whose users log in at `provider`.

    `scopes` can be granted, beside those that the server requires for every request. `allow(user)`
    says whether a user may log in: True, False, or the scopes that this user may grant; it may be
    `async`. Without it every user of the provider may.

    `issuer` is the URL of the authorization server if it is not the origin of the server.
    `redirect_schemes` are private-use schemes (`cursor`) that clients may redirect to, beside https
    and loopback. `introspection` are a name and a secret for the introspection endpoint, which
    there is only with them. Times are in seconds: of an access token, of a login that is not used
    and of any login, of a remembered approval, between checks of a provider's token that does not
    expire, and between new signing keys. Raises `LocalProtocolError` for invalid settings.
    """

    # A grant that has ended is noticed after this long by every replica.
    cache_ttl_s: float = 10.0

    def __init__(
        self,
        provider: Provider,
        *,
        scopes: Iterable[str] = (),
        allow: Allow | None = None,
        issuer: str | None = None,
        redirect_schemes: Iterable[str] = (),
        registration: bool = True,
        client_documents: bool = True,
        introspection: tuple[str, str] | None = None,
        access_token_s: float = 15 * 60.0,
        login_idle_s: float = 30 * DAY_S,
        login_max_s: float = 365 * DAY_S,
        approval_s: float = 30 * DAY_S,
        upstream_check_s: float = 3600.0,
        key_rotation_s: float = 30 * DAY_S,
        max_registrations_per_hour: int = 500,
        max_logins_per_10_min: int = 10_000,
    ) -> None:
        if isinstance(provider, type) or not hasattr(provider, "authorization_url"):
            # Without its value, which may be a secret.
            raise InvalidArgumentType(
                "the first argument of OAuthProxy is a provider: write "
                f"OAuthProxy(github(client_id, client_secret)), not {type(provider).__name__}",
                argument="provider",
            )
        if not MIN_ACCESS_TOKEN_S <= access_token_s <= MAX_ACCESS_TOKEN_S:
            raise InvalidArgument(
                f"access_token_s is {access_token_s:g}; give {MIN_ACCESS_TOKEN_S:g} to "
                f"{MAX_ACCESS_TOKEN_S:g} seconds",
                argument="access_token_s",
            )
        times = (login_idle_s, login_max_s, approval_s, upstream_check_s)
        if not all(one > 0 for one in times) or key_rotation_s < 2 * DAY_S:
            raise InvalidArgument(
                "times are seconds above 0, and key_rotation_s is two days at least"
            )
        if isinstance(scopes, str) or isinstance(redirect_schemes, str):
            raise InvalidArgument("scopes= and redirect_schemes= are lists of strings")
        schemes = frozenset(redirect_schemes)
        if problem := check_redirect_schemes(schemes):
            raise InvalidArgument(problem, argument="redirect_schemes")
        if introspection is not None and not all(introspection):
            raise InvalidArgument(
                "introspection= is a name and a secret, both not empty", argument="introspection"
            )
        if issuer and "?" in issuer:  # RFC 8414, 2
            raise InvalidArgument("issuer= has no query", argument="issuer")
        self._given_issuer = check_url(issuer, "issuer=").rstrip("/") if issuer else None
        self._provider = provider
        self._keys = SigningKeys(key_rotation_s)
        self._settings: ProxySettings | None = None
        self._documents: dict[str, str] = {}
        self._scopes = tuple(scopes)
        self._template = ProxySettings(
            issuer="",
            resource="",
            title="",
            scopes=(),
            default_scopes=(),
            access_token_s=access_token_s,
            login_idle_s=login_idle_s,
            login_max_s=login_max_s,
            approval_s=approval_s,
            upstream_check_s=upstream_check_s,
            redirect_schemes=schemes,
            registration=registration,
            client_documents=client_documents,
            max_registrations_per_hour=max_registrations_per_hour,
            max_logins_per_10_min=max_logins_per_10_min,
            introspection=introspection,
            allow=allow,
        )

    def __repr__(self) -> str:
        return f"OAuthProxy({self._provider.name!r})"

    # ------------------------------------------------------------ as a verifier

    def bind(self, resource: str, scopes: Sequence[str]) -> None:
        """Issue tokens for this resource, which requires these scopes."""
        if self._settings is not None and self._settings.resource != resource:
            raise InvalidArgument(
                f"this OAuthProxy belongs to {self._settings.resource}; make another for {resource}"
            )
        issuer = self._given_issuer or origin(resource)
        self._settings = msgspec.structs.replace(
            self._template,
            issuer=issuer,
            resource=resource,
            title=urlsplit(resource).netloc,
            scopes=tuple(dict.fromkeys([*scopes, *self._scopes])),
            default_scopes=tuple(scopes),
        )
        self._documents = document_paths(self._settings)

    @property
    def settings(self) -> ProxySettings:
        """The settings. Raises `LocalProtocolError` before it is passed to a `Protection`."""
        if self._settings is None:
            raise InvalidArgument("pass this OAuthProxy to a Protection first")
        return self._settings

    @property
    def issuer(self) -> str:
        """The issuer URL of its tokens."""
        return self.settings.issuer

    @property
    def callback_url(self) -> str:
        """The redirect URI to register at the provider."""
        return self.settings.url(CALLBACK)

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Whether the claim `iss` names this issuer; the signature is checked later."""
        return signed is not None and signed.claims.get("iss") == self.issuer

    async def verify_issued(
        self, token: str, signed: UnverifiedJwt | None, now: float, context: ProtectionContext
    ) -> VerifiedToken:
        """Verify a token, its grant, and the login at the provider."""
        return await access_tokens.verify(self._context(now, context), token, signed)

    async def metadata(self, now: float, fetcher: Fetcher) -> bytes | None:
        """The metadata document."""
        return msgspec.json.encode(metadata_document(self.settings))

    # ------------------------------------------------------------ endpoints

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        """The HTTP methods of the endpoint at a path; empty if there is none."""
        name = self._endpoint(path)
        if name in _PAGES:
            return (_PAGES[name][0],)
        if name in _CALLS:
            return (_CALLS[name][0], "OPTIONS")
        return ("GET", "HEAD", "OPTIONS") if name else ()

    def _endpoint(self, path: str) -> str:
        """The name of the endpoint at a path, with or without the path of the issuer: a proxy
        server in front may remove that."""
        if path in self._documents:
            return path
        prefix = urlsplit(self.issuer).path
        name = path.removeprefix(prefix)
        if name == INTROSPECT and self.settings.introspection is None:
            return ""
        return name if name in _PAGES or name in _CALLS or name == JWKS else ""

    async def respond(
        self, request: EndpointRequest, now: float, context: ProtectionContext
    ) -> EndpointResponse:
        """The response of the endpoint at the path of a request."""
        name = self._endpoint(request.path)
        if request.method == "OPTIONS":
            return preflight()
        if name in self._documents:
            return respond_document(self.settings, self._documents[name])
        inner = self._context(now, context)
        if name in _PAGES:
            return await self._respond_page(_PAGES[name][1], inner, request)
        if name == JWKS:
            return await respond_jwks(inner)
        return await self._respond_call(_CALLS[name][1], inner, request)

    async def _respond_page(
        self, endpoint: Endpoint, context: ProxyContext, request: EndpointRequest
    ) -> EndpointResponse:
        try:
            return await endpoint(context, request)
        except RedirectFailure as failure:
            if not failure.approved and not is_local_redirect(failure.uri):
                return return_page(failure, self.issuer)
            url = failure.url(self.issuer)
            # After a form, also one of the provider, a page: see `consent`.
            return redirect(url) if endpoint is authorize else continue_page(url, BACK)
        except PageFailure as failure:
            return error_page(failure)
        except (ChannelError, Refused) as error:
            log.error("a login cannot continue: %s", error)
            return error_page(PageFailure("The server is busy. Try again later.", UNAVAILABLE))

    async def _respond_call(
        self, endpoint: Endpoint, context: ProxyContext, request: EndpointRequest
    ) -> EndpointResponse:
        try:
            return await endpoint(context, request)
        except OAuthFailure as failure:
            return error_response(failure)
        except (ChannelError, Refused) as error:
            log.error("a token request cannot be answered: %s", error)
            return error_response(unavailable("try again later"))

    def _context(self, now: float, context: ProtectionContext) -> ProxyContext:
        settings = self.settings
        storage = ProxyStorage(context.store, context.seal, settings.issuer, now)
        return ProxyContext(settings, self._provider, storage, self._keys, context.fetcher, now)
