"""Metadata of an authorization server (RFC 8414), fetched and cached by a resource server.

Rules: a document is used only if it names the configured issuer. It is fetched when it is first
needed, by one request at a time, and again when it is older than `FRESH_S`.
"""

import asyncio
import logging
from typing import Any, Final
from urllib.parse import urlsplit

from colonnade.auth.fetcher import Fetcher
from colonnade.auth.jose import InvalidToken, decode_json_object
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import issuer_metadata_urls, same_issuer
from colonnade.errors import CannotFetch, ChannelError, InvalidArgument

log: logging.Logger = logging.getLogger("colonnade.auth")

FRESH_S: Final = 3600.0
RETRY_S: Final = 5.0
OK: Final = 200


class LoopLock:
    """An `asyncio.Lock` of the running event loop: `async with lock():`."""

    def __init__(self) -> None:
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __call__(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]


def check_url(url: str, what: str) -> str:
    """A configured URL. Raises `LocalProtocolError` if it is invalid or not https."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and set(url).isdisjoint(' "<>\\^`{|}#@')
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    if not host or not plain or not secure or port == 0:
        raise InvalidArgument(
            f"{what} {url[:200]!r} is not a valid URL: it must begin with https:// (http:// only "
            "for a loopback host), and have no fragment and no password"
        )
    return url


class IssuerMetadata:
    """The metadata document of one issuer, fetched on first use and cached."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._found: dict[str, Any] = {}
        self._raw = b""
        self._found_at: float | None = None
        self._asked_at: float | None = None
        self._lock = LoopLock()

    async def read(self, now: float, fetcher: Fetcher) -> dict[str, Any]:
        """The decoded document. Raises `ChannelError` if it is not available."""
        if self._is_due(now):
            async with self._lock():
                if self._is_due(now):
                    await self._fetch(now, fetcher)
                    self._asked_at = now
        if self._found_at is None:
            raise ChannelError(f"{self._issuer} publishes no metadata with itself as the issuer")
        return self._found

    def _is_due(self, now: float) -> bool:
        if self._found_at is not None and now - self._found_at < FRESH_S:
            return False
        return self._asked_at is None or now - self._asked_at >= RETRY_S

    async def raw(self, now: float, fetcher: Fetcher) -> bytes:
        """The document as it was published. Raises `ChannelError` if it is not available."""
        await self.read(now, fetcher)
        return self._raw

    async def endpoint(self, name: str, now: float, fetcher: Fetcher) -> str:
        """An endpoint URL of the document. Raises `ChannelError` if it names none."""
        found = (await self.read(now, fetcher)).get(name)
        if not isinstance(found, str):
            raise ChannelError(f"the metadata of {self._issuer} has no {name}; configure it")
        return found

    async def _fetch(self, now: float, fetcher: Fetcher) -> None:
        for url in issuer_metadata_urls(self._issuer):
            try:
                fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
                if fetched.status != OK:
                    continue
                found = decode_json_object(fetched.body)
            except CannotFetch as error:
                log.warning("cannot fetch the metadata of an issuer: %s: %s", error, error.why)
                continue
            except InvalidToken:
                continue
            if same_issuer(found.get("issuer"), self._issuer):  # D42
                self._found, self._raw, self._found_at = found, fetched.body, now
                return
            log.warning("%s is the metadata of another issuer than %s; ignored", url, self._issuer)
