"""The settings of an `OAuthProxy`, and what its endpoints get with each request.

Rules: no I/O. URLs of endpoints come from the configured issuer, never from a header of a request.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from colonnade.auth.server.proxy.provider import Provider, UpstreamUser
from colonnade.auth.server.proxy.records import ProxyStorage, digest
from colonnade.auth.server.proxy.signing_keys import SigningKeys
from colonnade.auth.ssrf import Fetcher, is_loopback_host
from colonnade.auth.urls import origin

# Below the path of the issuer.
AUTHORIZE: Final = "/oauth/authorize"
CONSENT: Final = "/oauth/consent"
CALLBACK: Final = "/oauth/callback"
TOKEN: Final = "/oauth/token"
REGISTER: Final = "/oauth/register"
REVOKE: Final = "/oauth/revoke"
INTROSPECT: Final = "/oauth/introspect"
JWKS: Final = "/oauth/jwks"

# Whether a user may log in, and with which scopes: True for all that were requested.
Allow: TypeAlias = Callable[
    [UpstreamUser], "bool | Iterable[str] | Awaitable[bool | Iterable[str]]"
]

DAY_S: Final = 24 * 3600.0


class ProxySettings(Struct, frozen=True, kw_only=True):
    """The settings of one proxy, for one resource."""

    issuer: str
    resource: str
    # The name of the server on the consent page: its host.
    title: str
    # Scopes that can be granted, and those that are granted if a client names none.
    scopes: tuple[str, ...]
    default_scopes: tuple[str, ...]
    access_token_s: float
    login_idle_s: float
    login_max_s: float
    approval_s: float
    upstream_check_s: float
    redirect_schemes: frozenset[str]
    registration: bool
    client_documents: bool
    max_registrations_per_hour: int
    max_logins_per_10_min: int
    introspection: tuple[str, str] | None
    allow: Allow | None

    def __repr__(self) -> str:
        return f"ProxySettings({self.issuer!r})"  # without the secret for introspection

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("issuer", self.issuer)]

    @property
    def is_local(self) -> bool:
        """Whether it is served without TLS on a loopback host: for development."""
        return urlsplit(self.issuer).scheme == "http"

    @property
    def is_loopback(self) -> bool:
        """Whether it is on a loopback host."""
        return is_loopback_host(urlsplit(self.issuer).hostname or "")

    @property
    def origin(self) -> str:
        """The origin of its own pages."""
        return origin(self.issuer)

    def url(self, path: str) -> str:
        """The URL of an endpoint."""
        return self.issuer + path

    def cookie_name(self, purpose: str) -> str:
        """The name of a cookie. Two issuers on one host have different ones: a `__Host-` cookie has
        no path."""
        name = f"colonnade-{purpose}-{digest(self.issuer)[:8]}"
        return name if self.is_local else f"__Host-{name}"


class ProxyContext(Struct, frozen=True):
    """What an endpoint needs to handle one request."""

    settings: ProxySettings
    provider: Provider
    storage: ProxyStorage
    keys: SigningKeys
    fetcher: Fetcher
    now: float
