"""What an issuer says about itself: its metadata (RFC 8414, OpenID Connect Discovery), kept.

Rules: a document counts only where it names the issuer that it was asked about.
"""

import logging
from typing import Any, Final
from urllib.parse import urlsplit

from colonnade.auth.addresses import is_this_machine
from colonnade.auth.fetching import Fetcher
from colonnade.auth.jwt import BadToken, read_object
from colonnade.auth.places import issuer_places, same_issuer
from colonnade.auth.turnstile import Turnstile
from colonnade.errors import CannotFetch, ChannelError, LocalProtocolError

log: logging.Logger = logging.getLogger("colonnade.auth")

FRESH_S: Final = 3600.0
RETRY_S: Final = 5.0
OK = 200


def checked_url(url: str, what: str) -> str:
    """A URL that somebody configured. Raises `LocalProtocolError` for one that is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
        parts = urlsplit("")
    plain = url.isascii() and url.isprintable() and set(url).isdisjoint(' "<>\\^`{|}#@')
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_this_machine(host))
    if not host or not plain or not secure or port == 0:
        raise LocalProtocolError(
            f"{what} {url[:200]!r} is no URL to use here: it begins with https:// (http:// only "
            "for this machine), and has no fragment and no password"
        )
    return url


class Document:
    """An issuer's metadata, fetched when it is first needed."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._found: dict[str, Any] = {}
        self._raw = b""
        self._found_at: float | None = None
        self._asked_at: float | None = None
        self._turnstile = Turnstile()

    async def read(self, now: float, fetcher: Fetcher) -> dict[str, Any]:
        """What it says. Raises `ChannelError` where there is none."""
        if self._is_due(now):
            async with self._turnstile():
                if self._is_due(now):
                    await self._look(now, fetcher)
                    self._asked_at = now
        if self._found_at is None:
            raise ChannelError(f"{self._issuer} has no metadata that names it as the issuer")
        return self._found

    def _is_due(self, now: float) -> bool:
        if self._found_at is not None and now - self._found_at < FRESH_S:
            return False
        return self._asked_at is None or now - self._asked_at >= RETRY_S

    async def copy(self, now: float, fetcher: Fetcher) -> bytes:
        """The document as it was published. Raises `ChannelError` where there is none."""
        await self.read(now, fetcher)
        return self._raw

    async def endpoint(self, name: str, now: float, fetcher: Fetcher) -> str:
        """One of the URLs in it. Raises `ChannelError` where it has none."""
        found = (await self.read(now, fetcher)).get(name)
        if not isinstance(found, str):
            raise ChannelError(f"the metadata of {self._issuer} has no {name}; configure it")
        return found

    async def _look(self, now: float, fetcher: Fetcher) -> None:
        for url in issuer_places(self._issuer):
            try:
                fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
                if fetched.status != OK:
                    continue
                found = read_object(fetched.body)
            except CannotFetch as error:
                log.warning("the metadata of an issuer cannot be read: %s: %s", error, error.why)
                continue
            except BadToken:
                continue
            if same_issuer(found.get("issuer"), self._issuer):  # D42
                self._found, self._raw, self._found_at = found, fetched.body, now
                return
            log.warning("%s describes another issuer than %s, and is not used", url, self._issuer)
