"""Requests and responses of the proxy's endpoints: parameters, cookies, JSON, redirects, errors.

Rules: a parameter that is there twice is refused (RFC 6749, 3.1), one without a value counts as
absent. Nothing of a request is in a response but escaped or as JSON. Every response says whether it
may be cached; those with a token or a code may not.
"""

import base64
import binascii
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Network
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlsplit

import msgspec
from msgspec import Struct

from colonnade.auth.server.proxy.context import ProxySettings
from colonnade.auth.server.proxy.records import ProxyStorage, digest
from colonnade.auth.ssrf import blocked_reason, ip_literal
from colonnade.auth.urls import with_query
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    UNAUTHORIZED,
    UNAVAILABLE,
    UNSUPPORTED_MEDIA_TYPE,
)

SEE_OTHER: Final = 303
NO_CONTENT: Final = 204
# An authorization request has a dozen parameters; a redirect URI and a state are the long ones.
MAX_FIELDS: Final = 64
MAX_QUERY_CHARACTERS: Final = 16 * 1024
# Of what strangers may do in all, one of them may do one of so many shares.
SHARES: Final = 10
FORM: Final = "application/x-www-form-urlencoded"
# All that an endpoint reads. Others are ignored, whatever they contain (RFC 6749, 3.1): Microsoft
# describes errors with line breaks, and a login hint may have any letters.
PARAMETERS: Final = frozenset(
    {
        *("client_id", "client_secret", "redirect_uri", "response_type", "response_mode", "scope"),
        *("state", "code_challenge", "code_challenge_method", "dpop_jkt", "prompt", "request"),
        *("request_uri", "resource", "code", "error", "iss", "decision", "grant_type"),
        *("code_verifier", "refresh_token", "token"),
    }
)

Pairs = tuple[tuple[str, str], ...]

NO_STORE: Final[Pairs] = (("cache-control", "no-store"), ("pragma", "no-cache"))
# For endpoints that browser clients call (CORS): they use no cookies, so every page may call them.
ANY_ORIGIN: Final[Pairs] = (("access-control-allow-origin", "*"),)
PREFLIGHT: Final[Pairs] = (
    *ANY_ORIGIN,
    ("access-control-allow-methods", "GET, POST"),
    ("access-control-allow-headers", "authorization, content-type, dpop, mcp-protocol-version"),
    ("access-control-max-age", "600"),
)


class OAuthFailure(Exception):
    """An OAuth error: to the client as JSON, or by the redirect URI once that is verified."""

    def __init__(
        self, error: str, description: str, status: int = BAD_REQUEST, headers: Pairs = ()
    ) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


class PageFailure(Exception):
    """An error that only the user sees: where to send it is unknown, or not to be trusted."""

    def __init__(self, message: str, status: int = BAD_REQUEST) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Parameters(Struct, frozen=True):
    """The parameters of a request; `resources` are all that it names (RFC 8707)."""

    values: Mapping[str, str]
    resources: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """A parameter; empty if absent."""
        return self.values.get(name, "")


def parse_fields(text: str) -> Parameters:
    """Parse a query or a form. Raises `OAuthFailure`."""
    if len(text) > MAX_QUERY_CHARACTERS:
        raise OAuthFailure("invalid_request", "the request is too long")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise OAuthFailure("invalid_request", "the parameters are malformed") from None
    values: dict[str, str] = {}
    resources: list[str] = []
    for name, value in pairs:
        if name in PARAMETERS and not (value.isascii() and value.isprintable()):
            raise OAuthFailure("invalid_request", "a parameter has invalid characters")
        if name == "resource":
            resources += [value] if value else []
        elif name in values:
            raise OAuthFailure("invalid_request", "a parameter is there twice")
        else:
            values[name] = value
    given = {name: value for name, value in values.items() if value}
    return Parameters(given, tuple(resources))


def parse_form(request: EndpointRequest) -> Parameters:
    """The form of a POST request. Raises `OAuthFailure`."""
    kind = request.headers.get(b"content-type", b"").decode("latin-1")
    if kind.partition(";")[0].strip().lower() != FORM:
        message = f"the body must be {FORM}"
        raise OAuthFailure("invalid_request", message, UNSUPPORTED_MEDIA_TYPE)
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError:
        raise OAuthFailure("invalid_request", "the form is malformed") from None
    return parse_fields(text)


def basic_credentials(request: EndpointRequest) -> tuple[str, str] | None:
    """Client id and secret of the Authorization header (RFC 6749, 2.3.1); None without one.

    Raises `OAuthFailure` for any other credentials.
    """
    given = request.headers.get(b"authorization")
    if given is None:
        return None
    scheme, _, encoded = given.decode("latin-1").partition(" ")
    try:
        pair = base64.b64decode(encoded.strip(), validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        pair = ""
    name, colon, secret = pair.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise invalid_client()
    return unquote_plus(name), unquote_plus(secret)


def invalid_client(description: str = "client authentication failed") -> OAuthFailure:
    """401 `invalid_client` (RFC 6749, 5.2)."""
    challenge = (("www-authenticate", 'Basic realm="token"'),)
    return OAuthFailure("invalid_client", description, UNAUTHORIZED, challenge)


def unavailable(description: str) -> OAuthFailure:
    """503: what is needed does not respond, or there is too much of it."""
    retry = (("retry-after", "5"),)
    return OAuthFailure("temporarily_unavailable", description, UNAVAILABLE, retry)


async def check_quota(
    storage: ProxyStorage, what: str, window_s: float, most: int, client: str
) -> None:
    """Count an event that a stranger causes. Raises `OAuthFailure` (503) if there were too many: in
    all, or from the network of one client, so that one stranger does not use up what others need.

    Of an address that is not public only the whole is counted: it may be that of a proxy server.
    """
    source = _network(client)
    if source and await storage.count(f"{what} {digest(source)}", window_s) > most // SHARES + 1:
        raise unavailable(f"too many {what} from one address; try again later")
    if await storage.count(what, window_s) > most:
        raise unavailable(f"too many {what}; try again later")


def _network(client: str) -> str:
    """The network of a public address, that one subscriber has; empty for any other address."""
    address = ip_literal(client)
    if address is None or blocked_reason(address):
        return ""
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((int(address), 56), strict=False))


# ---------------------------------------------------------------- cookies


def read_cookie(request: EndpointRequest, name: str) -> str:
    """The value of a cookie; empty if it is absent, or there with two values."""
    found: set[str] = set()
    # Several Cookie headers are joined by commas, which no value of ours contains.
    for part in request.headers.get(b"cookie", b"").decode("latin-1").replace(",", ";").split(";"):
        given, _, value = part.strip().partition("=")
        if given == name:
            found.add(value)
    return found.pop() if len(found) == 1 else ""


def set_cookie(
    settings: ProxySettings, purpose: str, value: str, max_age_s: float
) -> tuple[str, str]:
    """The header that sets a cookie. On http, which is for development, without `Secure`."""
    secure = "" if settings.is_local else " Secure;"
    name = settings.cookie_name(purpose)
    return (
        "set-cookie",
        f"{name}={value}; Path=/; Max-Age={int(max_age_s)};{secure} HttpOnly; SameSite=Lax",
    )


# ---------------------------------------------------------------- responses


def json_response(status: int, value: Any, headers: Pairs = NO_STORE) -> EndpointResponse:
    """A JSON response that pages of every origin may read."""
    kind = ("content-type", "application/json")
    return EndpointResponse(status, (kind, *headers, *ANY_ORIGIN), msgspec.json.encode(value))


def error_response(failure: OAuthFailure) -> EndpointResponse:
    """The error response of an endpoint that a client calls (RFC 6749, 5.2)."""
    body = {"error": failure.error, "error_description": failure.description}
    return json_response(failure.status, body, (*NO_STORE, *failure.headers))


def redirect(url: str, *cookies: tuple[str, str]) -> EndpointResponse:
    """A redirect of the browser: 303, so that no form is sent again (RFC 9700, 4.12)."""
    headers = (("location", url), *NO_STORE, ("referrer-policy", "no-referrer"), *cookies)
    return EndpointResponse(SEE_OTHER, headers)


def preflight() -> EndpointResponse:
    """The response to a CORS preflight."""
    return EndpointResponse(NO_CONTENT, PREFLIGHT)


def client_redirect(uri: str, issuer: str, state: str, **parameters: str) -> str:
    """An authorization response: the redirect URI with parameters, `state` and `iss` (RFC 9207)."""
    pairs = list(parameters.items())
    if state:
        pairs.append(("state", state))
    pairs.append(("iss", issuer))
    # RFC 6749, 3.1.2: the query of a redirect URI is kept.
    return with_query(uri, pairs)


def host_of(url: str) -> str:
    """The host and port of a URL, for a page; the scheme if that is a private-use one, after which
    anything may stand."""
    parts = urlsplit(url)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"
