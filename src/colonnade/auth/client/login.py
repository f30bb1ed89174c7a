"""OAuth logins of a client: `Login` for users, `ClientCredentials` and others for programs.

    connect(url, auth=Login())
    connect(url, auth=ClientCredentials(issuer=..., client_id=..., client_secret=...))

Each is a value that can be used for many connections, which share its token storage. How it
obtains a token is a flow (see `steps`).

Rules: a constructor only checks its arguments. No secret is in a `repr`. Credentials without an
issuer are not accepted: a server could name any issuer, and have them sent there.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypedDict, Unpack
from urllib.parse import urlsplit

from colonnade.auth.client.authorization_code import (
    AuthorizationRefused,
    choose_scopes,
    log_in,
)
from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.machine_grants import (
    IDENTITY_TYPES,
    Assertion,
    IdentityProvider,
    IdentityType,
    assertion_text,
    client_credentials_grant,
    id_jag_grant,
    jwt_bearer_grant,
    preregistered_client,
    token_exchange_grant,
)
from colonnade.auth.client.registration import (
    BASIC,
    NONE,
    POST,
    ClientSettings,
    RegisteredClient,
    check_issuer,
    configured_client,
    register,
)
from colonnade.auth.client.steps import (
    Flow,
    FlowContext,
    LoginTimedOut,
    OpenRedirectListener,
)
from colonnade.auth.client.storage import delete_client, load_client, save_client
from colonnade.auth.client.tokens import (
    FORGOTTEN_CLIENT_ERRORS,
    ClientIdentity,
    GrantRefused,
    Tokens,
)
from colonnade.auth.jose import SigningKey, read_private_key
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import require_https
from colonnade.errors import AuthError, InvalidArgument, InvalidArgumentType
from colonnade.ports import Store
from colonnade.protocol.http.challenges import Challenges

# A user has to find a password, and a second factor in another room.
LOGIN_TIMEOUT_S: Final = 300.0
CLIENT_NAME: Final = "colonnade"

# Redirects the user to the authorization URL, and returns the URL of the callback.
OnRedirect: TypeAlias = Callable[[str], Any]
# Shows the user the URL of the login page.
OnShow: TypeAlias = Callable[[str], None]


class AuthOptions(TypedDict, total=False):
    """Options of every authentication class.

    `scopes` are requested beside those that the server requires. `keep=True` stores tokens in an
    encrypted file on this machine, `store` and `keys` in a store of yours; `principal` separates
    your users there. `networks` are private ranges in which an issuer may be. With `dpop=True`
    tokens are bound to a key, even if the server does not require that.
    """

    scopes: Sequence[str]
    store: Store | None
    keys: Sequence[bytes]
    keep: bool
    principal: str
    networks: Sequence[str]
    dpop: bool


class Auth:
    """Base of the authentication classes; use one of the others."""

    def __init__(
        self,
        *,
        issuer: str = "",
        scopes: Sequence[str] = (),
        store: Store | None = None,
        keys: Sequence[bytes] = (),
        keep: bool = False,
        principal: str = "",
        networks: Sequence[str] = (),
        dpop: bool = False,
    ) -> None:
        if isinstance(scopes, str):
            raise InvalidArgumentType(
                "scopes is a list of strings, such as ['files:read']", argument="scopes"
            )
        if any(not one or not one.isascii() or set(one) & set(' "\\') for one in scopes):
            raise InvalidArgument(
                "a scope is a word without spaces, quotes or backslashes", argument="scopes"
            )
        if store is not None and not keys:
            raise InvalidArgument(
                "tokens in a store are encrypted: pass keys=[secrets.token_bytes(32)] and keep "
                "them, or keep=True for a file with a key of its own"
            )
        if store is not None and keep:
            raise InvalidArgument("pass either keep=True or store=, not both")
        self.issuer: str = issuer
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.store: Store | None = store
        self.keys: tuple[bytes, ...] = tuple(keys)
        self.keep: bool = keep
        self.principal: str = principal
        self.networks: tuple[str, ...] = tuple(networks)
        self.dpop: bool = dpop

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer or 'any issuer'})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an object that may hold a secret cannot be copied or pickled")

    # Whether it obtains tokens without a user.
    unattended: bool = True

    @property
    def account(self) -> str:
        """The client id; stored credentials of another client are not used."""
        return ""

    @property
    def signer(self) -> SigningKey | None:
        """The private key for client assertions, if there is one."""
        return None

    def scopes_for(
        self, before: Sequence[str], challenges: Challenges, discovery: DiscoveryResult
    ) -> tuple[str, ...]:
        """The scopes to request, without `offline_access`, which is for users."""
        wanted = choose_scopes(self.scopes, before, challenges, discovery)
        return tuple(one for one in wanted if one != "offline_access")

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Obtain tokens from the discovered issuer."""
        raise NotImplementedError

    def client_refused(self, discovery: DiscoveryResult, client: RegisteredClient) -> None:
        """The issuer does not know a client any more that a stored login was made with."""

    def check(self, discovery: DiscoveryResult) -> None:
        """Raise `AuthError` if the credentials belong to another issuer."""
        check_issuer(ClientSettings(issuer=self.issuer), discovery.issuer)


class Login(Auth):
    """A user logs in through a browser (authorization code grant with PKCE).

    Without arguments a client is registered dynamically if the issuer supports that. `client_id`
    (and `client_secret`) with its `issuer` is a pre-registered client; `client_metadata_url` is a
    client ID metadata document. `scopes` are requested beside those that the server requires.
    `keep=True` stores the login in an encrypted file on this machine; otherwise it lasts as long
    as this object.

    `on_redirect(url)` is for web applications: it redirects the user to the authorization URL, and
    returns the URL of the callback, which begins with `redirect_uri`. Without it the page is opened
    in a browser (not with `browser=False`), `on_show(url)` shows the URL to the user, and a
    loopback listener waits for the redirect.
    """

    unattended: bool = False

    def __init__(
        self,
        *,
        client_id: str = "",
        client_secret: str = "",
        issuer: str = "",
        client_metadata_url: str = "",
        client_name: str = CLIENT_NAME,
        redirect_uri: str = "",
        browser: bool = True,
        on_redirect: OnRedirect | None = None,
        on_show: OnShow | None = None,
        login_s: float = LOGIN_TIMEOUT_S,
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=issuer, **options)
        self._settings = ClientSettings(
            client_id, client_secret, issuer, client_metadata_url, client_name
        )
        self._settings.check()
        if redirect_uri:
            check_redirect(redirect_uri, on_redirect is not None)
        elif on_redirect is not None:
            raise InvalidArgument("on_redirect= needs redirect_uri=, the URL of the callback")
        self.redirect_uri: str = redirect_uri
        self.browser: bool = browser
        self.on_redirect: OnRedirect | None = on_redirect
        self.on_show: OnShow | None = on_show
        self.login_s: float = login_s

    @property
    def account(self) -> str:
        """The client id or the URL of the client metadata, if one was given."""
        return self._settings.client_id or self._settings.metadata_url

    def scopes_for(
        self, before: Sequence[str], challenges: Challenges, discovery: DiscoveryResult
    ) -> tuple[str, ...]:
        """With `offline_access` if the issuer supports it, so that the login lasts."""
        return choose_scopes(self.scopes, before, challenges, discovery)

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Register a client if needed, and let the user log in."""
        client = configured_client(self._settings, discovery.issuer)
        if client is not None:
            uri = yield OpenRedirectListener(self.redirect_uri)
            return client, (
                yield from log_in(
                    discovery, ClientIdentity(client, context, None, dpop_key), uri, scopes
                )
            )
        kept = yield from load_client(discovery, context.now())
        uri = yield OpenRedirectListener(
            self.redirect_uri or (kept.redirect_uri if kept is not None else "")
        )
        for attempt in range(2):
            client = kept if kept is not None and kept.redirect_uri == uri else None
            fresh = client is None
            if client is None:
                client = yield from register(self._settings, discovery.issuer, uri)
                yield from save_client(discovery.server, client)
            identity = ClientIdentity(client, context, None, dpop_key)
            try:
                return client, (yield from log_in(discovery, identity, uri, scopes))
            except (GrantRefused, AuthorizationRefused) as refused:
                if fresh or attempt or refused.error not in FORGOTTEN_CLIENT_ERRORS:
                    raise
                kept = None
                yield from delete_client(discovery.server, client)
            except LoginTimedOut:
                # An issuer that no longer knows a client shows a page that leads nowhere (RFC 6749,
                # 4.1.2.1), so the next login is with another one.
                if not fresh:
                    yield from delete_client(discovery.server, client)
                raise
        raise AssertionError("the second attempt is with a fresh client")


class ClientCredentials(Auth):
    """Client credentials grant: with a client secret, or with a private key (PEM), which is better.

    The client is pre-registered at the issuer. `method` is `client_secret_basic` or
    `client_secret_post` if the metadata of the issuer does not name the supported ones.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        private_key: str | bytes = "",
        algorithm: str = "",
        key_id: str = "",
        method: str = "",
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_require_issuer(issuer), **options)
        if bool(client_secret) is bool(private_key):
            raise InvalidArgument("pass either client_secret= or private_key= (PEM)")
        if method not in ("", BASIC, POST):
            raise InvalidArgument(f"method must be {BASIC} or {POST}")
        self._client_id = client_id
        self._secret = client_secret
        self._method = method
        self._key: SigningKey | None = None
        self._pem: tuple[str | bytes, str, str] | None = None
        if private_key:
            self._pem = (private_key, algorithm, key_id)
            self._key = read_private_key(*self._pem)

    @property
    def account(self) -> str:
        """The client id at the issuer."""
        return self._client_id

    @property
    def signer(self) -> SigningKey | None:
        """The private key, if there is one."""
        return self._key

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Client credentials grant."""
        by_key = self._key is not None
        client = preregistered_client(
            discovery.issuer, self._client_id, self._secret, key=by_key, method=self._method
        )
        identity = ClientIdentity(client, context, self._key, dpop_key)
        return client, (yield from client_credentials_grant(discovery, identity, scopes))


class EnterpriseLogin(Auth):
    """A user of an enterprise, by an identity assertion of its identity provider (ID-JAG).

    `identity` is the ID token of the single sign-on, or a function that returns it; with
    `identity_type="saml2"` the SAML assertion, with `"access_token"` an access token. `issuer`,
    `client_id` and `client_secret` are the authorization server of the MCP server and the client
    there.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        idp_token_endpoint: str,
        idp_client_id: str,
        idp_client_secret: str = "",
        identity: Assertion,
        identity_type: IdentityType = "id_token",
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_require_issuer(issuer), **options)
        _check_https(idp_token_endpoint, "idp_token_endpoint=")
        self._client_id = client_id
        self._secret = client_secret
        # Client authentication at the identity provider: in the body, as the specification shows.
        method = POST if idp_client_secret else NONE
        known = RegisteredClient(idp_token_endpoint, idp_client_id, idp_client_secret, method)
        if identity_type not in IDENTITY_TYPES:
            raise InvalidArgument(
                f"identity_type= is one of {', '.join(IDENTITY_TYPES)}", argument="identity_type"
            )
        kind = IDENTITY_TYPES[identity_type]
        self._provider = IdentityProvider(idp_token_endpoint, known, identity, kind)

    @property
    def account(self) -> str:
        """The client id at the issuer of the server."""
        return self._client_id

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """An ID-JAG from the identity provider, then an access token for it."""
        client = preregistered_client(discovery.issuer, self._client_id, self._secret)
        identity = ClientIdentity(client, context, None, dpop_key)
        return client, (yield from id_jag_grant(discovery, identity, self._provider, scopes))


class TokenExchange(Auth):
    """An access token of another audience, which is exchanged at the issuer (RFC 8693).

    `subject` is the access token, or a function that returns it: the one that a caller presented to
    your server. It is sent to `issuer` alone.
    """

    def __init__(
        self,
        *,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        subject: Assertion,
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_require_issuer(issuer), **options)
        self._client_id = client_id
        self._secret = client_secret
        self._subject = subject

    @property
    def account(self) -> str:
        """The client id at the issuer."""
        return self._client_id

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Token exchange."""
        client = preregistered_client(discovery.issuer, self._client_id, self._secret)
        identity = ClientIdentity(client, context, None, dpop_key)
        return client, (yield from token_exchange_grant(discovery, identity, self._subject, scopes))


class WorkloadIdentity(Auth):
    """A workload with a JWT of its platform, which is exchanged for an access token (RFC 7523).

    `assertion` is the JWT, or a function that returns a new one: platforms rotate them.
    """

    def __init__(
        self,
        *,
        issuer: str,
        assertion: Assertion,
        client_id: str = "",
        client_secret: str = "",
        **options: Unpack[AuthOptions],
    ) -> None:
        super().__init__(issuer=_require_issuer(issuer), **options)
        self._client_id = client_id
        self._secret = client_secret
        self._assertion = assertion

    @property
    def account(self) -> str:
        """The client id, if there is one."""
        return self._client_id

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """JWT bearer grant with the assertion of the platform."""
        assertion = yield from assertion_text(self._assertion, "the assertion of the workload")
        client = preregistered_client(discovery.issuer, self._client_id, self._secret)
        identity = ClientIdentity(client, context, None, dpop_key)
        return client, (yield from jwt_bearer_grant(discovery, identity, assertion, scopes))


def check_redirect(uri: str, anywhere: bool) -> None:
    """CL-26: a loopback host, or https if a program serves it. Raises `LocalProtocolError`."""
    _check_https(uri, "redirect_uri=")
    parts = urlsplit(uri)
    if "#" in uri:
        raise InvalidArgument("redirect_uri= must have no fragment")
    if not anywhere and (parts.scheme != "http" or not is_loopback_host(parts.hostname or "")):
        raise InvalidArgument(
            "redirect_uri= must be a loopback URL (http://127.0.0.1:8123/callback), unless "
            "on_redirect= returns the URL of the callback"
        )


def _require_issuer(issuer: str) -> str:
    """CL-16: credentials without an issuer are refused. Raises `LocalProtocolError`."""
    if not issuer:
        raise InvalidArgument(
            "issuer= is the authorization server that these credentials belong to; without it, "
            "a server could name any issuer and have them sent there"
        )
    return _check_https(issuer, "issuer=")


def _check_https(url: str, what: str) -> str:
    try:
        return require_https(url, what)
    except AuthError as error:
        raise InvalidArgument(str(error)) from None
