"""Where an HTTP request goes, and how it is written.

Rules: no I/O. What would break the frame of a request is refused, and no error repeats a URL or a
header: both may hold a password.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, cast
from urllib.parse import SplitResult, urlsplit

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_proxies import Proxy, proxy_for

Origin = tuple[str, str, int]
PORTS: Final = {"http": 80, "https": 443}

# What headers may be (RFC 9110, 5.1 and 5.5), with separators that no part of one may have, so that
# none can forge another.
_LINES = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+\x01[\t\x20-\x7e\x80-\xff]*\n)*")
# A second one of these would make it another request to somebody in between.
_FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"}
)


class Target:
    """Where a request goes: an origin, and what is asked of it.

    `address` is where the host was found by whoever asks, and the only place to connect to;
    connections to it are shared with no request that would look for itself.
    """

    __slots__ = ("address", "authority", "host", "origin", "path", "proxy")

    def __init__(
        self, url: str, environ: Mapping[str, str] | None = None, address: str | None = None
    ) -> None:
        parts = _split(url)
        host = cast("str", parts.hostname)
        port = parts.port or PORTS[parts.scheme]
        self.host: str = host
        self.address: str = address or host
        # No host has a space in it.
        known_as = host if address is None else f"{host} at {address}"
        self.origin: Origin = (parts.scheme, known_as, port)
        shown = f"[{host}]" if ":" in host else host
        self.authority: str = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
        self.path: str = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.proxy: Proxy | None = proxy_for(parts.scheme, host, port, environ)
        if address is not None and parts.scheme == "http":
            self.proxy = None  # which would look for the host itself


def _split(url: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise LocalProtocolError("a URL has only visible ASCII characters; encode the others")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise LocalProtocolError("this is no URL: its host or its port cannot be read") from None
    if parts.username is not None:
        raise LocalProtocolError("a URL must not hold a password; send it in a header")
    if parts.scheme not in PORTS or not host or port == 0:
        raise LocalProtocolError("a server's URL looks like https://example.com/mcp")
    return parts


def written(method: str, target: Target, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """A request as it is written. Raises `LocalProtocolError` for what would break its frame."""
    path, pairs = target.path, list(headers)
    if target.proxy is not None and target.origin[0] == "http":
        path = f"http://{target.authority}{path}"
        pairs += target.proxy.headers
    text = "".join([f"{name}\x01{value}\n" for name, value in pairs])
    if not _LINES.fullmatch(text) or not _FRAMING.isdisjoint([n.lower() for n, _ in pairs]):
        raise LocalProtocolError(
            "a header has characters that none can carry, or is one that the client writes itself "
            "(host, content-length, connection); leave it out"
        )
    text = text.replace("\x01", ": ").replace("\n", "\r\n")
    length = f"content-length: {len(body)}\r\n" if body or method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: {target.authority}\r\n{text}{length}\r\n"
    return head.encode("latin-1") + body
