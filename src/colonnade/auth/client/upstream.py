"""Logins of many principals for the servers of one host: who has none, connect links, their flow.

A server that requires a login is connected in three steps: a call raises `ConnectRequired`; a link
to a page of the host is made for its principal; the principal opens it, confirms, and is redirected
to the issuer of the server and back. Each step may be in another process.

Rules: no I/O. Every record is in the storage of one principal: a link, or an authorization
response, that another principal opens is not found there. Records are encrypted, single-use and
short-lived, and named by the digest of their secret.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from colonnade.auth.client.authorization_code import (
    AuthorizationRequest,
    authorization_url,
    choose_scopes,
    redeem_response,
)
from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.login import (
    CLIENT_NAME,
    Auth,
    AuthOptions,
    EnterpriseLogin,
    TokenExchange,
)
from colonnade.auth.client.machine_grants import Assertion, IdentityType
from colonnade.auth.client.registration import (
    ClientSettings,
    RegisteredClient,
    configured_client,
    register,
)
from colonnade.auth.client.steps import Flow, FlowContext
from colonnade.auth.client.storage import StoredLogin, load_client, save_client
from colonnade.auth.client.tokens import ClientIdentity, Tokens
from colonnade.auth.jose import SigningKey, generate_key, read_private_key
from colonnade.auth.urls import display_url, require_page
from colonnade.errors import InvalidArgument, LoginRequired
from colonnade.ports import Store
from colonnade.protocol.http.challenges import Challenges

# How long a link can be opened, and an authorization response can arrive: a user has to find the
# window, a password, and a second factor.
LINK_S: Final = 600.0
RESPONSE_S: Final = 600.0
# Links for one principal within `LINK_S`: a few servers, and a model that calls again and again.
MAX_LINKS: Final = 100


class UpstreamClient(Struct, frozen=True, kw_only=True):
    """The OAuth client of a host at the issuer of one of its servers.

    For `login` all of it is optional: without a `client_id` (and its `issuer`) the host registers
    itself. For `exchange` and `id-jag` `issuer` and `client_id` are required, and for `id-jag` also
    the token endpoint of the identity provider (`idp_token_endpoint`) and the client there;
    `identity_type` is what callers present. `networks` are private ranges in which an issuer may
    be.
    """

    issuer: str = ""
    client_id: str = ""
    client_secret: str = ""
    client_metadata_url: str = ""
    client_name: str = CLIENT_NAME
    scopes: Sequence[str] = ()
    idp_token_endpoint: str = ""
    idp_client_id: str = ""
    idp_client_secret: str = ""
    identity_type: IdentityType = "access_token"
    networks: Sequence[str] = ()
    dpop: bool = False

    def __repr__(self) -> str:
        return f"UpstreamClient({self.client_id or self.client_metadata_url or 'registered'!r})"

    @property
    def settings(self) -> ClientSettings:
        """The client as registration has it. Raises `LocalProtocolError` for invalid settings."""
        made = ClientSettings(
            self.client_id,
            self.client_secret,
            self.issuer,
            self.client_metadata_url,
            self.client_name,
        )
        made.check()
        return made


class PrincipalStorage(Struct, frozen=True):
    """Where the tokens of one principal are: the store, and the keys that encrypt them."""

    store: Store
    keys: Sequence[bytes]
    principal: str

    def __repr__(self) -> str:
        return f"PrincipalStorage({type(self.store).__name__})"


# ---------------------------------------------------------------- credentials of a principal


class ConnectRequired(LoginRequired):
    """A principal has no valid login for a server: `key` is the server, and the rest is what the
    login has to be for."""

    def __init__(
        self, key: str, discovery: DiscoveryResult, scopes: Sequence[str], *, bound: bool
    ) -> None:
        super().__init__(
            f"server {key!r} requires a login of the caller at "
            f"{display_url(discovery.issuer.issuer)}",
            server=key,
        )
        self.key = key
        self.discovery = discovery
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.bound = bound


def _options(client: UpstreamClient, storage: PrincipalStorage) -> AuthOptions:
    """The options of a client that keeps the tokens of one principal."""
    return AuthOptions(
        scopes=client.scopes,
        store=storage.store,
        keys=storage.keys,
        principal=storage.principal,
        networks=client.networks,
        dpop=client.dpop,
    )


# Called with a client that its issuer does not know any more.
OnClientRefused: TypeAlias = Callable[[DiscoveryResult, RegisteredClient], None]


class PrincipalLogin(Auth):
    """The login of one principal for one server, made on the connect page of the host."""

    unattended: bool = False

    def __init__(
        self,
        key: str,
        client: UpstreamClient,
        storage: PrincipalStorage,
        on_client_refused: OnClientRefused,
    ) -> None:
        super().__init__(issuer=client.issuer, **_options(client, storage))
        self._key = key
        self._settings = client.settings
        self._on_client_refused = on_client_refused

    @property
    def account(self) -> str:
        """The client; never that of a token exchange, whose tokens cannot be refreshed."""
        return f"login {self._settings.client_id or self._settings.metadata_url}"

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
        """Raises `ConnectRequired`: there is no user at this end of the connection."""
        raise ConnectRequired(self._key, discovery, scopes, bound=dpop_key is not None)

    def client_refused(self, discovery: DiscoveryResult, client: RegisteredClient) -> None:
        """Have the host register again."""
        self._on_client_refused(discovery, client)


def exchange_auth(
    client: UpstreamClient, storage: PrincipalStorage, subject: Assertion
) -> TokenExchange:
    """Token exchange for one principal. Raises `LocalProtocolError` for missing settings."""
    return TokenExchange(
        issuer=client.issuer,
        client_id=client.client_id,
        client_secret=client.client_secret,
        subject=subject,
        **_options(client, storage),
    )


def id_jag_auth(
    client: UpstreamClient, storage: PrincipalStorage, subject: Assertion
) -> EnterpriseLogin:
    """Identity assertion for one principal. Raises `LocalProtocolError` for missing settings."""
    if not client.idp_token_endpoint:
        raise InvalidArgument("id-jag needs idp_token_endpoint=, of the identity provider")
    return EnterpriseLogin(
        issuer=client.issuer,
        client_id=client.client_id,
        client_secret=client.client_secret,
        idp_token_endpoint=client.idp_token_endpoint,
        idp_client_id=client.idp_client_id,
        idp_client_secret=client.idp_client_secret,
        identity=subject,
        identity_type=client.identity_type,
        **_options(client, storage),
    )


# ---------------------------------------------------------------- connecting


class ConnectLink(Struct, frozen=True):
    """What a connect link is for: its principal, the server, and the login that it needs.

    `asked_by` is the client that the principal used, as it calls itself.
    """

    principal: str
    key: str
    discovery: DiscoveryResult
    scopes: tuple[str, ...] = ()
    bound: bool = False
    asked_by: str = ""


class PendingLogin(Struct, frozen=True):
    """A login between the redirect to the issuer and its response."""

    link: ConnectLink
    # The digest of the secret of the link, for the call that waits for it.
    link_id: str
    client: RegisteredClient
    request: AuthorizationRequest
    redirect_uri: str
    # The private key that tokens are to be bound to (PEM), if any.
    dpop_key: str = ""

    def __repr__(self) -> str:
        return f"PendingLogin({self.link.key!r})"


def secret_digest(secret: str) -> str:
    """The digest of a secret, by which its record is named."""
    return hashlib.sha256(secret.encode()).hexdigest()


def link_record(link_id: str) -> str:
    """The name of the record of a link."""
    return f"connect link {link_id}"


def response_record(state: str) -> str:
    """The name of the record that an authorization response with this `state` belongs to."""
    return f"connect state {secret_digest(state)}"


def failure_record(link_id: str) -> str:
    """The name of the record that says why the login of a link has failed."""
    return f"connect failure {link_id}"


def connected_record(server: str) -> str:
    """The name of the record with the link of the last login for a server."""
    return f"connected {secret_digest(server)}"


def host_client(
    settings: ClientSettings, link: ConnectLink, redirect_uri: str, context: FlowContext
) -> Flow[RegisteredClient]:
    """The client of the host, registered if needed: one for all principals."""
    issuer = link.discovery.issuer
    client = configured_client(settings, issuer)
    if client is not None:
        return client
    kept = yield from load_client(link.discovery, context.now())
    if kept is not None and kept.redirect_uri == redirect_uri:
        return kept
    client = yield from register(settings, issuer, redirect_uri)
    yield from save_client(link.discovery.server, client)
    return client


def begin_login(
    link: ConnectLink,
    link_id: str,
    client: RegisteredClient,
    redirect_uri: str,
    context: FlowContext,
) -> tuple[str, PendingLogin]:
    """Where to send the user, and the record for the response. Raises `AuthError`."""
    key = generate_key() if link.bound else None
    identity = ClientIdentity(client, context, None, key)
    url, request = authorization_url(link.discovery, identity, redirect_uri, link.scopes)
    pem = key.pem() if key is not None else ""
    require_page(url)
    return url, PendingLogin(link, link_id, client, request, redirect_uri, pem)


def finish_login(pending: PendingLogin, query: str, context: FlowContext) -> Flow[StoredLogin]:
    """The login of an authorization response. Raises `AuthError`, `LoginRequired`."""
    key = read_private_key(pending.dpop_key) if pending.dpop_key else None
    identity = ClientIdentity(pending.client, context, None, key)
    link = pending.link
    tokens = yield from redeem_response(
        query, pending.request, link.discovery, identity, pending.redirect_uri, link.scopes
    )
    return StoredLogin(link.discovery, pending.client, tokens)
