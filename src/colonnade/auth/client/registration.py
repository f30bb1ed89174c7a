"""OAuth client registration: pre-registered, client ID metadata document, or dynamic (RFC 7591).

Rules: credentials of one issuer are never sent to another (R: authorization server binding). A
pre-registered client that does not fit the issuer is an error, never a reason to fall back to
another kind of registration.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.client.discovery import AuthorizationServer
from colonnade.auth.client.steps import (
    JSON,
    Flow,
    oauth_error,
    require_json_object,
    send_request,
    string_member,
)
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import display_url, require_https, same_issuer
from colonnade.errors import (
    AuthError,
    ConnectionLost,
    InvalidArgument,
    LoginRequired,
)

NONE: Final = "none"
BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
PRIVATE_KEY: Final = "private_key_jwt"

# Authentication methods for dynamic registration, in order of preference.
_AUTH_METHODS = (NONE, BASIC, POST)
CREATED = (200, 201)


class RegisteredClient(Struct, frozen=True, omit_defaults=True):
    """A client registered at one issuer. `expires_at` is the expiry of its secret; 0 for never."""

    issuer: str
    client_id: str
    client_secret: str = ""
    method: str = ""
    redirect_uri: str = ""
    expires_at: float = 0.0
    # Whether it was registered dynamically, and may be registered again.
    dynamic: bool = False

    def __repr__(self) -> str:
        return f"RegisteredClient({self.client_id!r} at {display_url(self.issuer)})"

    def is_valid(self, now: float) -> bool:
        """Whether its secret has not expired."""
        return not self.expires_at or now < self.expires_at


class ClientSettings(Struct, frozen=True):
    """The client that a program configured; `metadata_url` is a client ID metadata document."""

    client_id: str = ""
    client_secret: str = ""
    issuer: str = ""
    metadata_url: str = ""
    name: str = "colonnade"

    def __repr__(self) -> str:
        return f"ClientSettings({self.client_id or self.metadata_url or self.name!r})"

    def check(self) -> None:
        """Raise `LocalProtocolError` for invalid settings."""
        if (self.client_secret and not self.client_id) or (self.client_id and not self.issuer):
            raise InvalidArgument(
                "a pre-registered client belongs to one issuer: pass client_id= and issuer=; "
                "otherwise a server could name any issuer and have the client secret sent there"
            )
        if self.metadata_url:
            check_metadata_url(self.metadata_url)
        if self.issuer:
            try:
                require_https(self.issuer, "issuer=")
            except AuthError as error:
                raise InvalidArgument(str(error)) from None


def check_metadata_url(url: str) -> None:
    """CL-12: https, with a path. Raises `LocalProtocolError`."""
    parts = urlsplit(url)
    path = parts.path
    dots = any(part in (".", "..") for part in path.split("/"))
    if parts.scheme != "https" or not parts.hostname or path in ("", "/") or dots:
        raise InvalidArgument("client_metadata_url= must be an https URL with a path")
    if "#" in url or parts.username is not None:
        raise InvalidArgument("client_metadata_url= must have no fragment and no user name")


def check_issuer(settings: ClientSettings, issuer: AuthorizationServer) -> None:
    """Raise `AuthError` if the configured client belongs to another issuer (CL-15)."""
    if settings.issuer and not same_issuer(settings.issuer, issuer.issuer):
        raise AuthError(
            f"this client belongs to the issuer {display_url(settings.issuer)}, but the server now "
            f"names {display_url(issuer.issuer)}; nothing was sent there. If the server has moved, "
            "register a client with the new issuer"
        )


def configured_client(
    settings: ClientSettings, issuer: AuthorizationServer
) -> RegisteredClient | None:
    """The client that needs no registration (CL-13): pre-registered, or by metadata document."""
    check_issuer(settings, issuer)
    if settings.client_id:
        secret = settings.client_secret
        method = choose_auth_method(bool(secret), issuer)
        return RegisteredClient(issuer.issuer, settings.client_id, secret, method)
    if settings.metadata_url and issuer.supports_metadata_documents:
        return RegisteredClient(issuer.issuer, settings.metadata_url, method=NONE)
    return None


def choose_auth_method(secret: bool, issuer: AuthorizationServer) -> str:
    """The client authentication method. RFC 8414: the default is `client_secret_basic`."""
    if not secret:
        return NONE
    offered = issuer.auth_methods or (BASIC,)
    return next((one for one in (BASIC, POST) if one in offered), BASIC)


def register(
    settings: ClientSettings, issuer: AuthorizationServer, redirect_uri: str
) -> Flow[RegisteredClient]:
    """Register a client dynamically (RFC 7591, CL-14). Raises `AuthError` if it is refused."""
    if not issuer.registration_endpoint:
        raise LoginRequired(
            f"{display_url(issuer.issuer)} does not support dynamic client registration: register "
            "a client there, and pass its client_id= and issuer= "
            "(colonnade login --client-id ID --issuer URL)"
        )
    offered = issuer.auth_methods
    methods: Sequence[str] = (
        _AUTH_METHODS if offered is None else [m for m in _AUTH_METHODS if m in offered]
    )
    local = is_loopback_host(urlsplit(redirect_uri).hostname or "")
    wanted = {
        "client_name": settings.name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": methods[0] if methods else NONE,
        "application_type": "native" if local else "web",
    }
    response = yield from send_request(
        "POST",
        issuer.registration_endpoint,
        (("content-type", JSON), ("accept", JSON)),
        msgspec.json.encode(wanted),
    )
    where = display_url(issuer.registration_endpoint)
    if response.status >= 500 or response.status == 429:
        raise ConnectionLost(f"{where} responded with {response.status}; try again later")
    if response.status not in CREATED:
        error, description = oauth_error(response)
        reason = ": ".join(one for one in (error, description) if one) or "no reason given"
        raise AuthError(
            f"{where} refused the registration ({response.status}, {reason}); register a client "
            "by hand, and pass its client_id= and issuer="
        )
    found = require_json_object(response.body, f"the response of {where}")
    client_id = string_member(found, "client_id")
    if client_id is None:
        raise AuthError(f"the registration response of {where} has no client_id")
    secret = string_member(found, "client_secret") or ""
    method = string_member(found, "token_endpoint_auth_method")
    ends = found.get("client_secret_expires_at")
    return RegisteredClient(
        issuer.issuer,
        client_id,
        secret if method != NONE else "",
        method or choose_auth_method(bool(secret), issuer),
        redirect_uri,
        float(ends) if isinstance(ends, int | float) and secret else 0.0,
        dynamic=True,
    )
