"""Authentication of HTTP requests by the server's `Protection`, and the headers that handlers see.

Rules: for HTTP only; on stdio there is no authentication. The network is used only for documents
of issuers, through the SSRF-safe fetcher.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from colonnade.auth.server.protection import (
    LEGACY_WELL_KNOWN,
    WELL_KNOWN,
    ProtectedRequest,
    Protection,
)
from colonnade.auth.server.verifier import ProtectionContext
from colonnade.auth.ssrf import Fetcher
from colonnade.ports import Caller, EndpointRequest, EndpointResponse, Seal, Store
from colonnade.protocol.http.security import Headers
from colonnade.protocol.jsonrpc import Batch, Request

if TYPE_CHECKING:
    from colonnade.transport.http_client.pool import HttpPool

RequiredScopes = Callable[[Request], frozenset[str]]


class ProtectionGuard:
    """Applies `Protection` to the HTTP application of a server at `path`."""

    def __init__(
        self,
        protection: Protection,
        path: str,
        title: str,
        required_scopes: RequiredScopes,
        store: Callable[[], Store],
        seal: Callable[[], Seal],
    ) -> None:
        self._protection = protection
        self._path = path.rstrip("/")
        self._title = title
        self._required_scopes = required_scopes
        self._store = store
        self._seal = seal
        self._pool: tuple[asyncio.AbstractEventLoop, HttpPool] | None = None

    def _fetcher(self) -> Fetcher:
        from colonnade.transport.http_client.pool import HttpPool

        loop = asyncio.get_running_loop()
        if self._pool is None or self._pool[0] is not loop:
            self._pool = (loop, HttpPool())
        return Fetcher(self._pool[1].send)

    async def start(self) -> None:
        """Check the state of the authorization server. Raises `ChannelError`."""
        await self._protection.start(self._context())

    async def close(self) -> None:
        """Close connections to issuers."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] is asyncio.get_running_loop():
            await pool[1].close()

    def _metadata(self, root: str) -> str:
        """The URL of the protected resource metadata, below the ASGI root path."""
        protection = self._protection
        if root:
            return protection.url(f"{root}{WELL_KNOWN}{self._path}")
        return protection.url(protection.metadata_paths()[0])

    async def authenticate(self, method: str, place: str, root: str, headers: Headers) -> Caller:
        """Authenticate a request. Raises `HttpError`."""
        protection = self._protection
        url = protection.url(place) if place else protection.resource
        context = self._context()
        return await protection.authenticate(
            ProtectedRequest(method, url, headers, self._metadata(root)), context
        )

    def _context(self) -> ProtectionContext:
        return ProtectionContext(self._fetcher(), self._store(), self._seal())

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        """The HTTP methods of the authorization server's endpoint at a path; empty without one."""
        return self._protection.endpoint_methods(path)

    async def respond(self, request: EndpointRequest) -> EndpointResponse:
        """The response of that endpoint."""
        return await self._protection.respond(request, self._context())

    def check(self, frame: Request | Batch, granted: frozenset[str], root: str) -> None:
        """Raise `HttpError` if a message needs more scopes; a batch needs those of all (D26)."""
        items = frame.items if isinstance(frame, Batch) else [frame]
        needed = [self._required_scopes(item) for item in items if isinstance(item, Request)]
        wanted = frozenset[str]().union(*needed)
        if not wanted <= granted:
            metadata = self._metadata(root)
            raise self._protection.insufficient_scope(wanted, metadata, granted=granted)

    async def metadata(self, path: str, root: str) -> bytes | None:
        """A metadata document for clients that begin authorization; None for other paths."""
        known = {*self._protection.metadata_paths(), WELL_KNOWN + self._path}
        if path in known:
            return self._protection.metadata(self._title)
        tails = {place.removeprefix(WELL_KNOWN) for place in known}
        if path in {LEGACY_WELL_KNOWN + tail for tail in tails}:
            return await self._protection.legacy_metadata(self._fetcher())
        return None


# Headers with credentials; the session id is one, too.
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
    """Headers by case-insensitive name, without credentials."""

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._values = {
            name: value.decode("latin-1")
            for name, value in ((key.decode("latin-1").lower(), raw[key]) for key in raw)
            if name not in SECRET
        }

    def __getitem__(self, name: str) -> str:
        key = name.lower()
        if key in SECRET:
            message = f"{name} is withheld from handlers, like all credentials; "
            raise KeyError(message + "use ctx.principal and ctx.claims to identify the caller")
        return self._values[key]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"RequestHeaders({', '.join(self._values)})"
