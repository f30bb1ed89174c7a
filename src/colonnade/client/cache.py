"""The client's cache of results that the server declared cacheable, and the limits of lists.

Rules: a cached result is used only for an identical request of the same principal, unless the
server declared it public. Nothing is fetched in advance. The cache is bounded, and holds bytes, so
that a caller cannot change a result of another one.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.subscriptions import is_covered

# Of all results of one server, and of one. A list of a thousand tools takes a megabyte.
MAX_BYTES = 16 * 1024 * 1024
MAX_ENTRY_BYTES = 4 * 1024 * 1024
# A day: a longer `ttlMs` is shortened to it.
MAX_TTL_S = 24 * 3600.0

T = TypeVar("T")

# The principal, None for a public result; the method; the encoded params.
Key: TypeAlias = tuple[str | None, str, bytes]


class CacheEntry(Struct, frozen=True):
    """One result, until when it is fresh, and the URI of the resource if it is one."""

    raw: bytes
    until: float
    uri: str | None


class CacheHints(NamedTuple):
    """The cache hints of a list: of all of its pages. `ttl_ms` is None if a page has none."""

    ttl_ms: int | None = None
    scope: t.CacheScope = "private"

    def merged(self, other: "CacheHints") -> "CacheHints":
        """Those of both lists together: the shorter time, and public only if both are."""
        ttl_ms = None
        if self.ttl_ms is not None and other.ttl_ms is not None:
            ttl_ms = min(self.ttl_ms, other.ttl_ms)
        return CacheHints(ttl_ms, "public" if self.scope == other.scope == "public" else "private")


NO_HINTS = CacheHints()


class HintedList(list[T]):
    """The items of a list, with the cache hints of its pages."""

    hints: CacheHints = NO_HINTS


def cache_hints(items: object) -> CacheHints:
    """The cache hints of a list; none if it has none."""
    return items.hints if isinstance(items, HintedList) else NO_HINTS


class Cache:
    """The cached results of one server. May be shared by clients of different principals."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[Key, CacheEntry] = {}
        self._bytes = 0
        # Number of invalidations: a result that was requested before the last one is not cached.
        self.changes: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, principal: str, method: str, params: t.RequestParams, now: float) -> Raw | None:
        """The result of an identical request, while it is fresh (R1008, R1013)."""
        encoded_params = _encode_params(params)
        for scope in (principal, None):
            key = (scope, method, encoded_params)
            entry = self._entries.get(key)
            if entry is not None and now < entry.until:
                return Raw(entry.raw)
            self._drop(key)
        return None

    def put(
        self,
        principal: str,
        method: str,
        params: t.RequestParams,
        raw: Raw,
        hints: t.CacheableResult,
        now: float,
    ) -> None:
        """Cache a result, for the time and the scope that it declares."""
        ttl_s = min((hints.ttl_ms or 0) / 1000, MAX_TTL_S)
        if ttl_s <= 0 or len(raw) > min(MAX_ENTRY_BYTES, self._max_bytes):  # R1006, R1009, R1010
            return
        scope = None if hints.cache_scope == "public" else principal  # R1020
        key = (scope, method, _encode_params(params))
        self._drop(key)
        self._entries[key] = CacheEntry(bytes(raw), now + ttl_s, getattr(params, "uri", None))
        self._bytes += len(raw)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def invalidate(self, methods: Iterable[str]) -> int:
        """Drop the results of these methods, of all principals and pages; returns how many."""
        self.changes += 1
        stale = frozenset(methods)
        keys = [key for key in self._entries if key[1] in stale]
        for key in keys:
            self._drop(key)
        return len(keys)

    def invalidate_resource(self, uri: str) -> None:
        """Drop the results of a resource and of those that contain it."""
        self.changes += 1
        for key, entry in list(self._entries.items()):
            if entry.uri is not None and is_covered(uri, {entry.uri}):
                self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        self.changes += 1
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry.raw)


def _encode_params(params: t.RequestParams) -> bytes:
    """The params as part of the key, without `_meta` (R1002)."""
    return encode(replace(params, meta=None))


# Of one list, as sent. A thousand tools take a megabyte; as objects a list takes up to twenty times
# as much.
MAX_LIST_BYTES = 16 * 1024 * 1024
# Tools, prompts, resources or templates in one list: models are shown some dozens, and a host
# handles each in its loop.
MAX_LIST_ITEMS = 50_000
# Servers send 20 to 1000 items in a page.
MAX_PAGES = 1000


class ListBudget:
    """The limits of one list that is read page by page; each page is added to `pages`, as it was
    sent."""

    def __init__(
        self,
        server: str,
        method: str,
        max_bytes: int,
        max_items: int,
        pages: list[Raw] | None = None,
    ) -> None:
        self._pages = pages
        self._server = server
        self._method = method
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._bytes = 0
        self._items = 0
        # Bounded, since together they are smaller than the list.
        self._cursors: set[str] = set()

    def add_page(self, page: Raw) -> None:
        """Count the bytes of a page, before it is decoded."""
        self._bytes += len(page)
        if self._bytes > self._max_bytes:
            raise self._too_large(f"{self._max_bytes} bytes", "max_list_bytes")
        if self._pages is not None:
            self._pages.append(page)

    def add_items(self, count: int) -> None:
        """Count the items of a page."""
        self._items += count
        if self._items > self._max_items:
            raise self._too_large(f"{self._max_items} items", "max_list_items")

    def add_cursor(self, cursor: str) -> None:
        """Count the cursor of the next page."""
        if cursor in self._cursors:
            message = "gave the same nextCursor twice, so the list has no end"
            raise self._error(message, "fix the server")
        self._cursors.add(cursor)
        if len(self._cursors) >= MAX_PAGES:
            by_page = f"read it page by page: client.ask({self._method!r}, …)"
            hint = f"make the server send larger pages, or {by_page}"
            raise self._error(f"has more than {MAX_PAGES} pages", hint)

    def _too_large(self, most: str, setting: str) -> RemoteProtocolError:
        hint = f"to read it, raise {setting} (an argument of connect, and of a host in the settings"
        return self._error(f"has more than {most}", f"{hint} of the server)")

    def _error(self, message: str, hint: str) -> RemoteProtocolError:
        error = RemoteProtocolError(f"{self._method} {message}", hint=hint)
        return error.with_server(self._server) if self._server else error
