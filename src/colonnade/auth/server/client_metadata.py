"""What clients state of themselves: redirect URIs, names, client ID metadata documents.

For every authorization server of ours: the proxy, and the issuer for development.

Rules: a redirect URI is https, or http on a loopback host, or of a scheme that is allowed; it is
compared as a whole string, except for the port of a loopback URI (RFC 8252, 7.3). Everything that a
client states is bounded, and none of it is verified. No I/O.
"""

import re
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from colonnade.auth.jose import InvalidToken, decode_json_object
from colonnade.auth.server.oauth_forms import OAuthFailure
from colonnade.auth.ssrf import FetchedResponse, is_loopback_host
from colonnade.protocol.elicitation import UNSAFE_SCHEMES
from colonnade.protocol.http.security import OK
from colonnade.text import clean, cut

NONE: Final = "none"

MAX_REDIRECT_URIS: Final = 10
MAX_URI_CHARACTERS: Final = 2048
MAX_NAME_CHARACTERS: Final = 200
# Of all redirect URIs of one client together: what is stored of strangers.
MAX_URIS_CHARACTERS: Final = 4 * 1024
# The draft recommends 5 KB.
MAX_DOCUMENT_BYTES: Final = 16 * 1024

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
# Up to a whole domain name in reverse (RFC 8252, 7.1).
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,252}")
# RFC 3986, without the fragment; no character that browsers rewrite.
_URI = re.compile(r"[a-z][a-z0-9+.-]*:[A-Za-z0-9._~:/?\[\]@!$&'()*+,;=%-]+")
_LOOPBACK = re.compile(r"http://(127\.0\.0\.1|\[::1\]|localhost)(?::([0-9]{1,5}))?(/.*|\?.*)?")


class ClientMetadata(Struct, frozen=True):
    """What a client states: its redirect URIs, and a name for the user."""

    redirect_uris: tuple[str, ...]
    name: str = ""


def read_metadata(stated: dict[str, Any], schemes: frozenset[str] | None) -> ClientMetadata:
    """What a client states (RFC 7591, 2). Raises `OAuthFailure`.

    `schemes` are the private-use schemes of redirect URIs that are allowed; None for all that
    browsers do not run or read.
    """
    listed = stated.get("redirect_uris")
    if not isinstance(listed, list) or not 0 < len(cast("list[Any]", listed)) <= MAX_REDIRECT_URIS:
        message = f"redirect_uris has 1 to {MAX_REDIRECT_URIS} URIs"
        raise OAuthFailure("invalid_redirect_uri", message)
    uris = tuple(check_redirect_uri(one, schemes) for one in cast("list[Any]", listed))
    if sum(map(len, uris)) > MAX_URIS_CHARACTERS:
        raise OAuthFailure("invalid_redirect_uri", "the redirect URIs are too long")
    return ClientMetadata(uris, _client_name(stated))


def _client_name(stated: dict[str, Any]) -> str:
    """The name that a client states: one line of visible characters."""
    name = stated.get("client_name")
    if not isinstance(name, str):
        return ""
    return cut(clean(name[:MAX_NAME_CHARACTERS]), MAX_NAME_CHARACTERS).strip()


# ---------------------------------------------------------------- redirect URIs


def check_redirect_uri(uri: object, schemes: frozenset[str] | None) -> str:
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
    if _is_private_use(parts.scheme, schemes):
        return uri
    if parts.scheme == "https" and host:
        return uri
    if parts.scheme == "http" and is_loopback_host(host):
        return uri
    raise OAuthFailure(
        "invalid_redirect_uri", "a redirect URI must be https, or http on a loopback host"
    )


def _is_private_use(scheme: str, schemes: frozenset[str] | None) -> bool:
    if schemes is None:
        return scheme not in FORBIDDEN_SCHEMES | {"http", "https"}
    return scheme in schemes


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


# ---------------------------------------------------------------- metadata documents


def is_document_url(url: str, *, local: bool) -> bool:
    """Whether a client id is the URL of a document: https, with a path; `local` also allows http on
    a loopback host."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    secure = parts.scheme == "https" or (local and is_loopback_host(host))
    dots = any(part in (".", "..") for part in parts.path.split("/"))
    plain = _URI.fullmatch(url) is not None and len(url) <= MAX_URI_CHARACTERS
    return bool(host and secure and plain) and not (
        parts.path in ("", "/") or dots or "@" in parts.netloc
    )


def read_document(
    fetched: FetchedResponse, client_id: str, schemes: frozenset[str] | None
) -> ClientMetadata:
    """What the document of a client states. Raises `OAuthFailure` if it is invalid.

    It is fetched without following redirects: the URL is the identity of the client
    (draft-ietf-oauth-client-id-metadata-document, 4).
    """
    if fetched.status != OK or fetched.url != client_id:
        raise _unusable("it does not respond with a document")
    if fetched.media_type != "application/json" and not fetched.media_type.endswith("+json"):
        raise _unusable("it is not JSON")
    try:
        stated = decode_json_object(fetched.body)
    except InvalidToken:
        raise _unusable("it is not a JSON object") from None
    if stated.get("client_id") != client_id:
        raise _unusable("it is the document of another client")
    if "client_secret" in stated or stated.get("token_endpoint_auth_method", NONE) != NONE:
        raise _unusable("its client has a secret, or needs an authentication that is not supported")
    return read_metadata(stated, schemes)


def _unusable(description: str) -> OAuthFailure:
    return OAuthFailure("invalid_client", description)
