"""Who we are to an authorization server: registered before, by a document, or now.

Rules: what one issuer has given is never shown to another one (R: authorization server binding).
A client that was registered by hand is an error where it does not fit, never a reason to try
something else in silence.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.client.discovery import Issuer
from colonnade.auth.client.steps import JSON, Flow, fetch, member, refusal_in, text_in
from colonnade.auth.ssrf import is_this_machine
from colonnade.auth.urls import same_issuer, secure, shown
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

# What a registration of ours may be told to use, in the order in which we like it.
_METHODS = (NONE, BASIC, POST)
CREATED = (200, 201)


class Registered(Struct, frozen=True, omit_defaults=True):
    """A client as one issuer knows it. `expires_at` is when its secret ends; 0 for never."""

    issuer: str
    client_id: str
    client_secret: str = ""
    method: str = ""
    redirect_uri: str = ""
    expires_at: float = 0.0
    # Whether we registered it ourselves, and may do so again.
    dynamic: bool = False

    def __repr__(self) -> str:
        return f"Registered({self.client_id!r} at {shown(self.issuer)})"

    def lasts(self, now: float) -> bool:
        """Whether it can still be used."""
        return not self.expires_at or now < self.expires_at


class Given(Struct, frozen=True):
    """What a program says of the client that it is."""

    client_id: str = ""
    client_secret: str = ""
    issuer: str = ""
    document: str = ""
    name: str = "colonnade"

    def __repr__(self) -> str:
        return f"Given({self.client_id or self.document or self.name!r})"

    def check(self) -> None:
        """Raise `LocalProtocolError` for what cannot be right."""
        if (self.client_secret and not self.client_id) or (self.client_id and not self.issuer):
            raise InvalidArgument(
                "a client that was registered beforehand is one of one issuer: pass client_id= and "
                "issuer=, or whichever server you connect to could have its secret sent anywhere",
                argument="issuer",
            )
        if self.document:
            check_document_url(self.document)
        if self.issuer:
            try:
                secure(self.issuer, "issuer=")
            except AuthError as error:
                raise InvalidArgument(str(error)) from None


def check_document_url(url: str) -> None:
    """CL-12: https, with a path. Raises `LocalProtocolError`."""
    parts = urlsplit(url)
    path = parts.path
    dots = any(part in (".", "..") for part in path.split("/"))
    if parts.scheme != "https" or not parts.hostname or path in ("", "/") or dots:
        raise InvalidArgument("a client metadata document is an https URL with a path")
    if "#" in url or parts.username is not None:
        raise InvalidArgument("the URL of a client metadata document has no fragment or name")


def insist(given: Given, issuer: Issuer) -> None:
    """Raise `AuthError` where a client is not this issuer's (CL-15)."""
    if given.issuer and not same_issuer(given.issuer, issuer.issuer):
        raise AuthError(
            f"this client belongs to the issuer {shown(given.issuer)}, and the server now names "
            f"{shown(issuer.issuer)}; nothing was sent there. If the server has moved, register a "
            "client with the new issuer"
        )


def known_client(given: Given, issuer: Issuer) -> Registered | None:
    """The client that needs no registration here (CL-13): given, or a document."""
    insist(given, issuer)
    if given.client_id:
        secret = given.client_secret
        method = method_for(bool(secret), issuer)
        return Registered(issuer.issuer, given.client_id, secret, method)
    if given.document and issuer.takes_documents:
        return Registered(issuer.issuer, given.document, method=NONE)
    return None


def method_for(secret: bool, issuer: Issuer) -> str:
    """How a client shows that it is itself. RFC 8414: without a word, by basic."""
    if not secret:
        return NONE
    offered = issuer.methods or (BASIC,)
    return next((one for one in (BASIC, POST) if one in offered), BASIC)


def register(given: Given, issuer: Issuer, redirect_uri: str) -> Flow[Registered]:
    """Register a client now (RFC 7591, CL-14). Raises `AuthError` where that is refused."""
    if not issuer.registration_endpoint:
        raise LoginRequired(
            f"{shown(issuer.issuer)} knows no client that it was not told of before: register one "
            "there, and pass its client_id= and issuer= "
            "(colonnade login --client-id ID --issuer URL)"
        )
    offered = issuer.methods
    methods: Sequence[str] = _METHODS if offered is None else [m for m in _METHODS if m in offered]
    local = is_this_machine(urlsplit(redirect_uri).hostname or "")
    wanted = {
        "client_name": given.name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": methods[0] if methods else NONE,
        "application_type": "native" if local else "web",
    }
    reply = yield from fetch(
        "POST",
        issuer.registration_endpoint,
        (("content-type", JSON), ("accept", JSON)),
        msgspec.json.encode(wanted),
        secret=True,
    )
    where = shown(issuer.registration_endpoint)
    if reply.status >= 500 or reply.status == 429:
        raise ConnectionLost(f"{where} answered with {reply.status}; try again later")
    if reply.status not in CREATED:
        error, words = refusal_in(reply)
        told = ": ".join(one for one in (error, words) if one) or "without a reason"
        raise AuthError(
            f"{where} does not register us ({reply.status}, {told}); register a client by hand, "
            "and pass its client_id= and issuer="
        )
    found = member(reply.body, f"what {where} answered")
    client_id = text_in(found, "client_id")
    if client_id is None:
        raise AuthError(f"{where} registered us without a client_id")
    secret = text_in(found, "client_secret") or ""
    method = text_in(found, "token_endpoint_auth_method")
    ends = found.get("client_secret_expires_at")
    return Registered(
        issuer.issuer,
        client_id,
        secret if method != NONE else "",
        method or method_for(bool(secret), issuer),
        redirect_uri,
        float(ends) if isinstance(ends, int | float) and secret else 0.0,
        dynamic=True,
    )
