"""URLs of authorization: which may be used at all, which belong together, where documents are.

Rules: pure. https everywhere, plain http on this machine alone. Identifiers are compared as they
are written, character by character: nothing is normalised before a comparison that decides whom
we trust, but for the slash at the end of an issuer. No error repeats a query.
"""

from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from colonnade.auth.ssrf import is_this_machine
from colonnade.errors import AuthError

RESOURCE_DOCUMENT: Final = "oauth-protected-resource"
ISSUER_DOCUMENT: Final = "oauth-authorization-server"
OPENID_DOCUMENT: Final = "openid-configuration"

# More is no address of anything; and it ends in an error, a log, a window.
MAX_URL_CHARACTERS = 2048
SHOWN_CHARACTERS = 200
PORTS: Final = {"http": 80, "https": 443}


def parts_of(url: str, what: str) -> SplitResult:
    """The parts of an absolute http(s) URL. Raises `AuthError` for anything else."""
    if len(url) > MAX_URL_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        raise AuthError(f"{what} is no URL")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise AuthError(f"{what} is no URL: its host or its port cannot be read") from None
    if parts.scheme not in PORTS or not host or port == 0 or "\\" in url:
        raise AuthError(f"{what} is no https URL")
    if parts.username is not None or parts.password is not None:
        raise AuthError(f"{what} must not hold a name or a password")
    return parts


def secure(url: str, what: str) -> str:
    """The URL, where it may be used (CL-08). Raises `AuthError` for any other one."""
    parts = parts_of(url, what)
    if parts.scheme != "https" and not is_this_machine(parts.hostname or ""):
        raise AuthError(f"{what} is not https: {shown(url)}; only this machine may go without")
    return url


def shown(url: str) -> str:
    """A URL for people: without its query, and not too long."""
    return url.partition("?")[0].partition("#")[0][:SHOWN_CHARACTERS]


def origin(url: str) -> str:
    """Scheme, host and port as a browser writes them; a URL that was checked before."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    usual = port is None or port == PORTS.get(parts.scheme.lower())
    return f"{parts.scheme.lower()}://{host}" + ("" if usual else f":{port}")


def canonical(server: str) -> str:
    """A server's own URL as a resource (RFC 8707): no fragment, lower case where it is the same."""
    parts = urlsplit(server)
    path = parts.path if parts.path != "/" else ""
    return origin(server) + path + (f"?{parts.query}" if parts.query else "")


def covers(resource: str, server: str) -> bool:
    """Whether a resource is this server, or stands above it on the same origin (CL-03)."""
    mine, theirs = urlsplit(server), urlsplit(resource)
    if theirs.fragment or "#" in resource or origin(resource) != origin(server):
        return False
    if theirs.query:
        return theirs.query == mine.query and theirs.path == mine.path
    above = theirs.path.rstrip("/")
    # A parent that is left again by dots would stand above what it is not.
    if any(part in (".", "..") for part in _decoded(above).split("/")):
        return False
    return (
        mine.path == theirs.path
        or mine.path.rstrip("/") == above
        or not above
        or (mine.path.startswith(above + "/"))
    )


def _decoded(path: str) -> str:
    return path.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/")


def resource_places(server: str) -> list[str]:
    """Where a server's own document is, in order: with its path, then at the root (CL-02)."""
    base, path = origin(server), urlsplit(server).path.rstrip("/")
    root = f"{base}/.well-known/{RESOURCE_DOCUMENT}"
    return [root + path, root] if path else [root]


def issuer_places(issuer: str) -> list[str]:
    """Where an issuer's document is, in order: its own, then that of OpenID (CL-04)."""
    base, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    known = f"{base}/.well-known/"
    if not path:
        return [known + ISSUER_DOCUMENT, known + OPENID_DOCUMENT]
    return [
        f"{known}{ISSUER_DOCUMENT}{path}",
        f"{known}{OPENID_DOCUMENT}{path}",
        f"{base}{path}/.well-known/{OPENID_DOCUMENT}",
        f"{base}{path}/.well-known/{ISSUER_DOCUMENT}",  # D42: where many providers have it
    ]


def same_issuer(one: object, other: object) -> bool:
    """Whether two names are of one issuer (D42): as they are written, but for one slash at the
    end. Both spellings have the same documents (RFC 8414, 3.1), so that no other can be meant."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    return one == other or one + "/" == other or one == other + "/"


def with_query(url: str, pairs: list[tuple[str, str]]) -> str:
    """A URL with more in its query; what was there stays (RFC 6749, 3.1)."""
    more = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
    return f"{url}{'&' if urlsplit(url).query else '?'}{more}"
