"""The door of a protected server: what `Protection` decides, for HTTP and with what it needs there.

Rules: made for HTTP alone; on a pipe nobody comes through a door. The network is used for what an
issuer publishes, through the guarded fetcher, and for nothing else.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from colonnade.auth.fetcher import Fetcher
from colonnade.auth.server.protection import (
    LEGACY_WELL_KNOWN,
    WELL_KNOWN,
    ProtectedRequest,
    Protection,
    ProtectionContext,
)
from colonnade.ports import Caller, Seal, Store
from colonnade.protocol.http.security import Headers
from colonnade.protocol.jsonrpc import Batch, Request

if TYPE_CHECKING:
    from colonnade.transport.http_client.pool import HttpPool

Needs = Callable[[Request], frozenset[str]]


class Door:
    """A guard for one application of a server, which is at `path`."""

    def __init__(
        self,
        protection: Protection,
        path: str,
        title: str,
        needs: Needs,
        store: Callable[[], Store],
        seal: Callable[[], Seal],
    ) -> None:
        self._protection = protection
        self._path = path.rstrip("/")
        self._title = title
        self._needs = needs
        self._store = store
        self._seal = seal
        self._pool: tuple[asyncio.AbstractEventLoop, HttpPool] | None = None

    def _fetcher(self) -> Fetcher:
        from colonnade.transport.http_client.pool import HttpPool

        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            self._pool = (loop, HttpPool())
        return Fetcher(self._pool[1].send)

    async def close(self) -> None:
        """Let go of connections to issuers."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] is asyncio.get_running_loop():
            await pool[1].close()

    def _metadata(self, root: str) -> str:
        """Where a client finds our document: below where we are mounted, which is all we see."""
        protection = self._protection
        if root:
            return protection.url(f"{root}{WELL_KNOWN}{self._path}")
        return protection.url(protection.metadata_paths()[0])

    async def admit(self, method: str, place: str, root: str, headers: Headers) -> Caller:
        """Who sent a request. Raises `Refusal`."""
        protection = self._protection
        url = protection.url(place) if place else protection.resource
        context = ProtectionContext(self._fetcher(), self._store(), self._seal())
        return await protection.authenticate(
            ProtectedRequest(method, url, headers, self._metadata(root)), context
        )

    def check(self, frame: Request | Batch, granted: frozenset[str], root: str) -> None:
        """Raise `Refusal` where a message needs more; of a batch everything at once (D26)."""
        items = frame.items if isinstance(frame, Batch) else [frame]
        needed = [self._needs(item) for item in items if isinstance(item, Request)]
        wanted = frozenset[str]().union(*needed)
        if not wanted <= granted:
            metadata = self._metadata(root)
            raise self._protection.insufficient_scope(wanted, metadata, granted=granted)

    async def document(self, path: str, root: str) -> bytes | None:
        """A document for clients that look for the way in."""
        known = {*self._protection.metadata_paths(), WELL_KNOWN + self._path}
        if path in known:
            return self._protection.metadata(self._title)
        tails = {place.removeprefix(WELL_KNOWN) for place in known}
        if path in {LEGACY_WELL_KNOWN + tail for tail in tails}:
            return await self._protection.legacy_metadata(self._fetcher())
        return None


# Tokens, proofs and passwords; and the id of a session, which is as good as one.
SECRET = frozenset(
    {
        "authorization",
        "cookie",
        "dpop",
        "mcp-session-id",
        "proxy-authorization",
        "x-api-key",
    }
)


class RequestHeaders(Mapping[str, str]):
    """Headers by name, in whichever case it is written."""

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._values = {
            name: value.decode("latin-1")
            for name, value in ((key.decode("latin-1").lower(), raw[key]) for key in raw)
            if name not in SECRET
        }

    def __getitem__(self, name: str) -> str:
        key = name.lower()
        if key in SECRET:
            words = f"{name} is withheld from handlers, as all credentials are; "
            raise KeyError(words + "ctx.principal and ctx.claims say who the caller is")
        return self._values[key]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"RequestHeaders({', '.join(self._values)})"
