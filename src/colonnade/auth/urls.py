"""URLs of OAuth: https rules, resource identifiers (RFC 8707), well-known metadata locations.

Rules: pure. https only, except for loopback hosts. Issuers and resources are compared without
normalization, except for one slash at the end of an issuer. No error contains a query.
"""

import re
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from colonnade.auth.ssrf import is_loopback_host
from colonnade.errors import AuthError

RESOURCE_DOCUMENT: Final = "oauth-protected-resource"
ISSUER_DOCUMENT: Final = "oauth-authorization-server"
OPENID_DOCUMENT: Final = "openid-configuration"

# A shell would interpret the other characters; in a URL they are percent-encoded (R1331).
_PAGE_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._~:/?&=%@!*+,\[\]-]*")
# Longer URLs are rejected: they end up in errors, logs and terminals.
MAX_URL_CHARACTERS = 2048
MAX_DISPLAYED_CHARACTERS = 200
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def parse_url(url: str, what: str) -> SplitResult:
    """Parse an absolute http(s) URL. Raises `AuthError` for anything else."""
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        raise AuthError(f"{what} is not a URL")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise AuthError(f"{what} is not a URL: its host or port is invalid") from None
    if parts.scheme not in DEFAULT_PORTS or not host or port == 0 or "\\" in url:
        raise AuthError(f"{what} is not an https URL")
    if parts.username is not None or parts.password is not None:
        raise AuthError(f"{what} must not contain a user name or password")
    return parts


def require_https(url: str, what: str) -> str:
    """The URL, if it is https or a loopback host (CL-08). Raises `AuthError` otherwise."""
    parts = parse_url(url, what)
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        raise AuthError(f"{what} is not https: {display_url(url)}; http is for loopback hosts only")
    return url


def require_page(url: str) -> str:
    """The URL of an authorization page that a user may be sent to (CL-09). Raises `AuthError`."""
    require_https(url.partition("?")[0], "the authorization page")
    if not _PAGE_CHARACTERS.fullmatch(url):
        raise AuthError(
            "the authorization page has characters in its URL that a shell would interpret; they "
            "must be percent-encoded"
        )
    return url


def display_url(url: str) -> str:
    """A URL for errors and logs: without query and fragment, and not too long."""
    return url.partition("?")[0].partition("#")[0][:MAX_DISPLAYED_CHARACTERS]


def origin(url: str) -> str:
    """The origin of a checked URL as a browser writes it: scheme, host, port if not default."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    is_default = port is None or port == DEFAULT_PORTS.get(parts.scheme.lower())
    return f"{parts.scheme.lower()}://{host}" + ("" if is_default else f":{port}")


def canonical_resource(server: str) -> str:
    """The URL of a server as a resource (RFC 8707): no fragment, scheme and host in lower case."""
    parts = urlsplit(server)
    path = parts.path if parts.path != "/" else ""
    return origin(server) + path + (f"?{parts.query}" if parts.query else "")


def covers(resource: str, server: str) -> bool:
    """Whether a resource is this server, or a parent path of it on the same origin (CL-03)."""
    mine, theirs = urlsplit(server), urlsplit(resource)
    if theirs.fragment or "#" in resource or origin(resource) != origin(server):
        return False
    if theirs.query:
        return theirs.query == mine.query and theirs.path == mine.path
    above = theirs.path.rstrip("/")
    # `/a/../b` is not below `/a`.
    if any(part in (".", "..") for part in _decode_dots(above).split("/")):
        return False
    return (
        mine.path == theirs.path
        or mine.path.rstrip("/") == above
        or not above
        or (mine.path.startswith(above + "/"))
    )


def _decode_dots(path: str) -> str:
    return path.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/")


def resource_metadata_urls(server: str) -> list[str]:
    """Locations of protected resource metadata, in order: with the path, then the root (CL-02)."""
    base, path = origin(server), urlsplit(server).path.rstrip("/")
    root = f"{base}/.well-known/{RESOURCE_DOCUMENT}"
    return [root + path, root] if path else [root]


def issuer_metadata_urls(issuer: str) -> list[str]:
    """Locations of issuer metadata, in order: RFC 8414, then OpenID Connect Discovery (CL-04)."""
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    known = f"{base}/.well-known/"
    if not path:
        return [known + ISSUER_DOCUMENT, known + OPENID_DOCUMENT]
    return [
        f"{known}{ISSUER_DOCUMENT}{path}",
        f"{known}{OPENID_DOCUMENT}{path}",
        f"{base}{path}/.well-known/{OPENID_DOCUMENT}",
        f"{base}{path}/.well-known/{ISSUER_DOCUMENT}",  # D42: many providers publish it here
    ]


def same_issuer(one: object, other: object) -> bool:
    """Whether two identifiers name one issuer (D42): equal, except for one slash at the end. Both
    spellings have the same metadata locations (RFC 8414, 3.1), so they are one issuer."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    return one == other or one + "/" == other or one == other + "/"


def with_query(url: str, pairs: list[tuple[str, str]]) -> str:
    """The URL with parameters added to its query (RFC 6749, 3.1)."""
    more = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return f"{url}{'&' if urlsplit(url).query else '?'}{more}"
