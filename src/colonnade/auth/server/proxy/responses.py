"""HTTP of the proxy's endpoints: credentials, cookies, quotas, JSON, redirects, errors.

Rules: nothing of a request is in a response but escaped or as JSON. Every response says whether it
may be cached; those with a token or a code may not.
"""

import base64
import binascii
import logging
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import unquote_plus, urlsplit

import msgspec

from colonnade.auth.server.oauth_forms import (
    FORM,
    OAuthFailure,
    Pairs,
    Parameters,
    error_body,
    parse_body,
)
from colonnade.auth.server.pages import NO_STORE
from colonnade.auth.server.proxy.context import ProxySettings
from colonnade.auth.server.proxy.records import ProxyStorage, digest
from colonnade.auth.ssrf import blocked_reason
from colonnade.ports import EndpointRequest, EndpointResponse
from colonnade.protocol.http.client_address import parse_address
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    UNAUTHORIZED,
    UNAVAILABLE,
    UNSUPPORTED_MEDIA_TYPE,
)

log: logging.Logger = logging.getLogger("colonnade.auth")

SEE_OTHER: Final = 303
NO_CONTENT: Final = 204
# (prefix length, percent): the share of each quota for strangers that one network may use. The
# networks are that of one subscriber (/32, /64), of a company (/24, /48), and the smallest that a
# provider gets or rents out (/16, /29). So many addresses in one network cannot use up a quota.
SHARES: Final = {4: ((16, 40), (24, 20), (32, 10)), 6: ((29, 40), (48, 20), (64, 10))}
_UNKNOWN_CLIENTS = (
    "they came from an address that is not public: if that is a proxy server, name it in "
    "trusted_proxies, so that its clients are counted separately"
)
# For endpoints that browser clients call (CORS): they use no cookies, so every page may call them.
ANY_ORIGIN: Final[Pairs] = (("access-control-allow-origin", "*"),)
PREFLIGHT: Final[Pairs] = (
    *ANY_ORIGIN,
    ("access-control-allow-methods", "GET, POST"),
    ("access-control-allow-headers", "authorization, content-type, dpop, mcp-protocol-version"),
    ("access-control-max-age", "600"),
)


class PageFailure(Exception):
    """An error that only the user sees: where to send it is unknown, or not to be trusted."""

    def __init__(self, message: str, status: int = BAD_REQUEST) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def parse_form(request: EndpointRequest) -> Parameters:
    """The form of a POST request. Raises `OAuthFailure`."""
    kind = request.headers.get(b"content-type", b"").decode("latin-1")
    if kind.partition(";")[0].strip().lower() != FORM:
        message = f"the body must be {FORM}"
        raise OAuthFailure("invalid_request", message, UNSUPPORTED_MEDIA_TYPE)
    return parse_body(request.body)


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


def source_of(request: EndpointRequest) -> str:
    """The address that quotas count a request for. Empty if the address is not public: it may be a
    proxy server with many clients behind it."""
    address = parse_address(request.client)
    if address is None or (blocked_reason(address) and not request.proxies_known):
        return ""
    return request.client


async def check_quota(
    storage: ProxyStorage, what: str, window_s: float, most: int, source: str
) -> None:
    """Count an event that a stranger causes. Raises `OAuthFailure` (503) if there were too many, in
    total or from one of the networks of the address. Without an address only the total is counted.

    A refused event is not counted: counting it would use up the share of the surrounding networks,
    and create counters in the store for any number of addresses. If many events arrive at the same
    time, those above a limit are counted only in the narrowest network, so that the shares of the
    others stay free.
    """
    limits = [(what, most)]
    for network, percent in _networks(source):
        limits.append((f"{what} {digest(network)}", most * percent // 100 + 1))
    for name, limit in limits:
        if await storage.counted(name, window_s) >= limit:
            network = "" if name == what else " from one network"
            raise unavailable(f"too many {what}{network}; try again later")
    for name, limit in reversed(limits):
        counted = await storage.count(name, window_s)
        if counted > limit:  # with others at the same time
            raise unavailable(f"too many {what}; try again later")
        if counted == limit and name == what:
            hint = "" if source else f"; {_UNKNOWN_CLIENTS}"
            log.warning("no more %s: there were %d in %g s%s", what, most, window_s, hint)


def _networks(source: str) -> list[tuple[str, int]]:
    """The networks of an address, the widest first, and their percentages."""
    address = parse_address(source)
    if address is None:
        return []
    return [
        (str(ip_network((address, length), strict=False)), percent)
        for length, percent in SHARES[address.version]
    ]


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
    return json_response(failure.status, error_body(failure), (*NO_STORE, *failure.headers))


def redirect(url: str, *cookies: tuple[str, str]) -> EndpointResponse:
    """A redirect of the browser: 303, so that no form is sent again (RFC 9700, 4.12)."""
    headers = (("location", url), *NO_STORE, ("referrer-policy", "no-referrer"), *cookies)
    return EndpointResponse(SEE_OTHER, headers)


def preflight() -> EndpointResponse:
    """The response to a CORS preflight."""
    return EndpointResponse(NO_CONTENT, PREFLIGHT)


def host_of(url: str) -> str:
    """The host and port of a URL, for a page; the scheme if that is a private-use one, after which
    anything may stand."""
    parts = urlsplit(url)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"
