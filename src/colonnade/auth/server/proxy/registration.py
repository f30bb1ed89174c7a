"""The clients of the proxy: dynamic registration (RFC 7591), and client ID metadata documents.

Rules: a redirect URI is https, or http on a loopback host, or of a scheme that is configured; it is
compared as a whole string, except for the port of a loopback URI (RFC 8252, 7.3). Documents
are fetched by the SSRF-safe fetcher, and cached as HTTP says. Everything that a client states is
bounded, and is shown as its own claim: none of it is verified.
"""

import hmac
import re
import secrets
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from colonnade.auth.jose import InvalidToken, decode_json_object
from colonnade.auth.server.proxy.context import DAY_S, ProxyContext, ProxySettings
from colonnade.auth.server.proxy.records import ProxyRecord, StoredRecord, digest
from colonnade.auth.server.proxy.responses import (
    OAuthFailure,
    PageFailure,
    Parameters,
    basic_credentials,
    check_quota,
    invalid_client,
    json_response,
)
from colonnade.auth.ssrf import FetchedResponse, is_loopback_host
from colonnade.errors import CannotFetch
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.elicitation import UNSAFE_SCHEMES
from colonnade.protocol.http.security import FORBIDDEN, OK, UNAVAILABLE
from colonnade.text import clean, cut

CREATED: Final = 201
NONE, BASIC, POST = "none", "client_secret_basic", "client_secret_post"
METHODS: Final = (NONE, BASIC, POST)

MAX_REDIRECT_URIS: Final = 10
MAX_URI_CHARACTERS: Final = 2048
MAX_NAME_CHARACTERS: Final = 200
# Of all redirect URIs of one client together: what is stored of strangers.
MAX_URIS_CHARACTERS: Final = 4 * 1024
# A registration that no user has used to log in; and one, after its last login or refresh.
UNUSED_S: Final = DAY_S
USED_S: Final = 400 * DAY_S
# A registration is stored again, for longer, at most this often.
TOUCH_S: Final = DAY_S
HOUR_S: Final = 3600.0

# The draft recommends 5 KB.
MAX_DOCUMENT_BYTES: Final = 16 * 1024
# Without a lifetime of its own; and the longest that is believed: a client that is taken over is
# then known by its new document.
DOCUMENT_S: Final = 300.0
MAX_DOCUMENT_S: Final = DAY_S
# Documents that are cached in an hour; others are fetched each time.
MAX_DOCUMENTS_PER_HOUR: Final = 200
# Documents that are fetched in ten minutes, in all and from one host: a stranger names the URL, and
# must not make this server send many requests to another, or wait for many.
FETCHES_S: Final = 600.0
MAX_FETCHES: Final = 3000
MAX_FETCHES_PER_HOST: Final = 300

# Schemes that no redirect may have, even if they are configured: browsers run or read them.
FORBIDDEN_SCHEMES: Final = frozenset(
    {
        *UNSAFE_SCHEMES,
        *("chrome", "feed", "filesystem", "ftp", "intent", "jar", "mailto", "mhtml", "res", "sms"),
        *("tel", "view-source", "ws", "wss"),
    }
)
# Parameters of an authorization response.
_RESPONSE = frozenset({"code", "state", "iss", "error", "error_description", "error_uri"})
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,39}")
# RFC 3986, without the fragment; no character that browsers rewrite.
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
_LOOPBACK = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost)(?::([0-9]{1,5}))?(/.*|\?.*)?")
_MAX_AGE = re.compile(r"(?:^|[ ,])max-age *= *\"?([0-9]{1,10})")


class ProxyClient(ProxyRecord, frozen=True, kw_only=True, omit_defaults=True):
    """A client of the proxy; `document` if it is known by its metadata document."""

    client_id: str
    redirect_uris: tuple[str, ...]
    name: str = ""
    method: str = NONE
    secret_digest: str = ""
    document: bool = False
    used: bool = False

    @property
    def host(self) -> str:
        """The host of the metadata document, which is verified; empty without one."""
        return urlsplit(self.client_id).netloc if self.document else ""

    def redirect_for(self, uri: str) -> str | None:
        """The redirect URI of a request, if it is registered; None if it is not."""
        return uri if any(same_redirect(one, uri) for one in self.redirect_uris) else None


# ---------------------------------------------------------------- redirect URIs


def check_redirect_uri(uri: object, settings: ProxySettings) -> str:
    """A redirect URI that may be registered. Raises `OAuthFailure` for any other."""
    problem = OAuthFailure("invalid_redirect_uri", "a redirect URI is invalid")
    if not isinstance(uri, str) or len(uri) > MAX_URI_CHARACTERS or not _URI.fullmatch(uri):
        raise problem
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise problem from None
    if parts.netloc.endswith(":") or port == 0 or "@" in parts.netloc or uri.endswith("?"):
        raise problem
    if not _RESPONSE.isdisjoint(name for name, _ in parse_qsl(parts.query, True)):
        # A second `code` or `iss` would be injected into each response.
        raise problem
    if parts.scheme in settings.redirect_schemes:
        return uri
    if parts.scheme == "https" and host:
        return uri
    if parts.scheme == "http" and is_loopback_host(host):
        return uri
    raise OAuthFailure(
        "invalid_redirect_uri", "a redirect URI must be https, or http on a loopback host"
    )


def same_redirect(registered: str, uri: str) -> bool:
    """Whether a redirect URI is the registered one: the same string, but for a loopback port."""
    if registered == uri:
        return True
    one, other = _LOOPBACK.fullmatch(registered), _LOOPBACK.fullmatch(uri)
    if one is None or other is None or len(uri) > MAX_URI_CHARACTERS or not _URI.fullmatch(uri):
        return False
    if other[2] is not None and not 0 < int(other[2]) < 65536:
        return False
    return (one[1], one[3]) == (other[1], other[3])


def is_local_redirect(uri: str) -> bool:
    """Whether a redirect stays on the user's machine: a loopback host, or a private-use scheme. Any
    program there can receive it (RFC 8252, 8.6)."""
    parts = urlsplit(uri)
    return parts.scheme != "https" or is_loopback_host(parts.hostname or "")


def check_redirect_schemes(schemes: frozenset[str]) -> str:
    """What is wrong with configured schemes; empty if nothing is."""
    for scheme in schemes:
        if not _SCHEME.fullmatch(scheme) or scheme in FORBIDDEN_SCHEMES | {"http", "https"}:
            return f"redirect_schemes: {scheme!r} cannot be allowed; write 'cursor' or 'vscode'"
    return ""


# ---------------------------------------------------------------- dynamic registration


async def register(context: ProxyContext, request: EndpointRequest) -> EndpointResponse:
    """The registration endpoint. Raises `OAuthFailure`."""
    if not context.settings.registration:
        raise OAuthFailure("access_denied", "this server does not register clients", FORBIDDEN)
    try:
        stated = decode_json_object(request.body)
    except InvalidToken:
        raise OAuthFailure("invalid_client_metadata", "the body is not a JSON object") from None
    method = stated.get("token_endpoint_auth_method", BASIC)
    if method not in METHODS:
        raise OAuthFailure(
            "invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(METHODS)}"
        )
    uris = _redirect_uris(stated, context.settings)
    _check_grants(stated)
    most = context.settings.max_registrations_per_hour
    await check_quota(context.storage, "registrations", HOUR_S, most, request.client)
    secret = "" if method == NONE else secrets.token_urlsafe(32)
    client = ProxyClient(
        client_id=secrets.token_urlsafe(24),
        redirect_uris=uris,
        name=client_name(stated),
        method=method,
        secret_digest=digest(secret) if secret else "",
        expires_at=context.now + UNUSED_S,
    )
    await context.storage.add("client", client.client_id, client)
    answer: dict[str, Any] = {
        "client_id": client.client_id,
        "client_id_issued_at": int(context.now),
        "client_name": client.name,
        "redirect_uris": uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    if secret:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    return json_response(CREATED, answer)


def _redirect_uris(stated: dict[str, Any], settings: ProxySettings) -> tuple[str, ...]:
    listed = stated.get("redirect_uris")
    if not isinstance(listed, list) or not 0 < len(cast("list[Any]", listed)) <= MAX_REDIRECT_URIS:
        message = f"redirect_uris has 1 to {MAX_REDIRECT_URIS} URIs"
        raise OAuthFailure("invalid_redirect_uri", message)
    uris = tuple(check_redirect_uri(one, settings) for one in cast("list[Any]", listed))
    if sum(map(len, uris)) > MAX_URIS_CHARACTERS:
        raise OAuthFailure("invalid_redirect_uri", "the redirect URIs are too long")
    return uris


def _check_grants(stated: dict[str, Any]) -> None:
    """Raise `OAuthFailure` for a client that could do nothing here (RFC 7591, 2)."""
    for name, needed in (("grant_types", "authorization_code"), ("response_types", "code")):
        listed = stated.get(name, [needed])
        if not isinstance(listed, list) or needed not in listed:
            raise OAuthFailure("invalid_client_metadata", f"{name} must include {needed}")


def client_name(stated: dict[str, Any]) -> str:
    """The name that a client states: one line of visible characters."""
    name = stated.get("client_name")
    if not isinstance(name, str):
        return ""
    return cut(clean(name[:MAX_NAME_CHARACTERS]), MAX_NAME_CHARACTERS).strip()


# ---------------------------------------------------------------- known clients


async def find_client(context: ProxyContext, client_id: str) -> ProxyClient:
    """The client of an authorization request. Raises `PageFailure` for an unknown one."""
    if not client_id:
        raise PageFailure("The request names no client.")
    if client_id.startswith(("https://", "http://")):
        if not context.settings.client_documents:
            raise PageFailure("This server does not accept client metadata documents.")
        return await _find_document(context, client_id)
    found = await load_client(context, client_id)
    if found is None:
        raise PageFailure(
            "The application is not registered here, or its registration has expired. Start the"
            " login again from the application; if that does not help, remove the server there and"
            " add it again."
        )
    return found.value


async def load_client(context: ProxyContext, client_id: str) -> StoredRecord[ProxyClient] | None:
    """A registered client; None if it is unknown."""
    return await context.storage.load("client", client_id, ProxyClient)


async def keep_client(context: ProxyContext, client_id: str) -> None:
    """Keep the registration of a client for longer: a user has logged in with it."""
    found = await load_client(context, client_id)
    if found is None or found.value.expires_at > context.now + USED_S - TOUCH_S:
        return
    later = msgspec.structs.replace(found.value, used=True, expires_at=context.now + USED_S)
    # One that fails was made by another login of the same client.
    await context.storage.swap("client", client_id, found.raw, later)


async def authenticate_client(
    context: ProxyContext, request: EndpointRequest, fields: Parameters
) -> str:
    """The client id of a token request. Raises `OAuthFailure` (401) if it is not proven.

    A client that is known by its document is public: it has no secret, and its codes are bound to
    its PKCE verifier.
    """
    basic = basic_credentials(request)
    if basic is not None and (
        fields.get("client_secret") or fields.get("client_id") not in ("", basic[0])
    ):
        raise OAuthFailure("invalid_request", "the client is authenticated twice")
    client_id, secret = basic or (fields.get("client_id"), fields.get("client_secret"))
    if not client_id:
        raise invalid_client("the request names no client")
    if client_id.startswith(("https://", "http://")):
        if secret:
            raise invalid_client()
        return client_id
    found = await load_client(context, client_id)
    if found is None:
        raise invalid_client("the client is unknown, or its registration has expired")
    expected = found.value.secret_digest
    if bool(secret) is not bool(expected):
        raise invalid_client()
    if expected and not hmac.compare_digest(digest(secret), expected):
        raise invalid_client()
    return client_id


# ---------------------------------------------------------------- metadata documents


async def _find_document(context: ProxyContext, client_id: str) -> ProxyClient:
    """The client of a metadata document, cached or fetched. Raises `PageFailure`."""
    check_document_url(client_id, local=context.settings.is_loopback)
    found = await context.storage.load_raw("document", client_id, ProxyClient)
    if found is not None and found.value is not None and found.value.expires_at > context.now:
        return found.value
    await _count_fetch(context, client_id)
    fetcher = context.fetcher.with_access(loopback=context.settings.is_loopback, networks=())
    try:
        fetched = await fetcher.fetch(
            "GET", client_id, [("accept", "application/json")], max_bytes=MAX_DOCUMENT_BYTES
        )
    except CannotFetch:
        message = "The metadata document of the application cannot be fetched. Try again later."
        raise PageFailure(message, UNAVAILABLE) from None
    fresh_s = fresh_seconds(fetched)
    client = read_document(fetched, client_id, context.settings, context.now + fresh_s)
    if fresh_s > 0:
        count = await context.storage.count("documents", HOUR_S)
        if count <= MAX_DOCUMENTS_PER_HOUR:
            before = found.raw if found is not None else None
            await context.storage.swap("document", client_id, before, client)
    return client


async def _count_fetch(context: ProxyContext, client_id: str) -> None:
    """Raise `PageFailure` if too many documents were fetched, in all or from this host."""
    count, host = context.storage.count, urlsplit(client_id).hostname or ""
    if (
        await count("fetches", FETCHES_S) > MAX_FETCHES
        or await count(f"fetches {digest(host)}", FETCHES_S) > MAX_FETCHES_PER_HOST
    ):
        raise PageFailure("Too many applications ask for a login. Try again later.", UNAVAILABLE)


def check_document_url(url: str, *, local: bool) -> None:
    """Raise `PageFailure` unless a client id is the URL of a document: https, with a path."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        host, parts = "", urlsplit("")
    secure = parts.scheme == "https" or (local and is_loopback_host(host))
    dots = any(part in (".", "..") for part in parts.path.split("/"))
    plain = _URI.fullmatch(url) is not None and len(url) <= MAX_URI_CHARACTERS
    if not (host and secure and plain) or parts.path in ("", "/") or dots or "@" in parts.netloc:
        raise PageFailure("The client id of the application is not the URL of a document.")


def read_document(
    fetched: FetchedResponse, client_id: str, settings: ProxySettings, expires_at: float
) -> ProxyClient:
    """The client that a document describes. Raises `PageFailure` if it is invalid."""
    problem = ""
    stated: dict[str, Any] = {}
    media_type = fetched.media_type
    if fetched.status != OK or fetched.url != client_id:
        problem = "it does not respond with a document"
    elif media_type != "application/json" and not media_type.endswith("+json"):
        problem = "it is not JSON"
    else:
        try:
            stated = decode_json_object(fetched.body)
        except InvalidToken:
            problem = "it is not a JSON object"
    if not problem and stated.get("client_id") != client_id:
        problem = "it is the document of another client"
    if not problem and (
        "client_secret" in stated or stated.get("token_endpoint_auth_method", NONE) != NONE
    ):
        problem = "its client has a secret, or needs an authentication that is not supported"
    uris: tuple[str, ...] = ()
    if not problem:
        try:
            uris = _redirect_uris(stated, settings)
        except OAuthFailure as failure:
            problem = failure.description
    if problem:
        raise PageFailure(f"The metadata document of the application cannot be used: {problem}.")
    return ProxyClient(
        client_id=client_id,
        redirect_uris=uris,
        name=client_name(stated),
        document=True,
        expires_at=expires_at,
    )


def fresh_seconds(fetched: FetchedResponse) -> float:
    """How long a response may be cached (RFC 9111): 0 for not at all."""
    control = fetched.headers.get("cache-control", "").lower()
    if any(word in control for word in ("no-store", "no-cache", "private")):
        return 0.0
    found = _MAX_AGE.search(control)
    if found is None:
        return DOCUMENT_S
    age = fetched.headers.get("age", "0").strip()
    elapsed = int(age) if age.isdigit() and len(age) <= 10 else 0
    return float(max(0, min(int(found[1]) - elapsed, int(MAX_DOCUMENT_S))))
