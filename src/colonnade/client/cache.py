"""Answers that a server said may be kept: for so long, and for whom.

Rules: only the very same request is answered from here, and only to the principal who asked, unless
the server said that the answer is anybody's. Nothing is fetched here, and nothing fetched before
somebody needs it. What is kept is bounded, and is bytes: nobody can change it for the next one.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.subscriptions import is_covered

# All answers of one server, and one of them. A list of a thousand tools takes a megabyte.
MAX_BYTES = 16 * 1024 * 1024
MAX_ENTRY_BYTES = 4 * 1024 * 1024
# A day: what is fresh for longer than that is asked for once a day.
MAX_TTL_S = 24 * 3600.0

# Who may be answered with it, None for everybody; the method; the params as they were written.
Key: TypeAlias = tuple[str | None, str, bytes]


class Kept(Struct, frozen=True):
    """One answer, until when it is fresh, and the resource that it is about, if it is."""

    raw: bytes
    until: float
    uri: str | None


class Cache:
    """What one server answered. It may be shared by clients of different principals."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[Key, Kept] = {}
        self._bytes = 0
        # How often something was said to be stale: an answer asked for before that is not kept.
        self.changes: int = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, principal: str, method: str, params: t.RequestParams, now: float) -> Raw | None:
        """The answer to this very request, while it is fresh (R1008, R1013)."""
        asked = _asked(params)
        for whose in (principal, None):
            key = (whose, method, asked)
            kept = self._kept.get(key)
            if kept is not None and now < kept.until:
                return Raw(kept.raw)
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
        """Keep an answer, as long and for whom it says itself."""
        ttl_s = min((hints.ttl_ms or 0) / 1000, MAX_TTL_S)
        if ttl_s <= 0 or len(raw) > min(MAX_ENTRY_BYTES, self._max_bytes):  # R1006, R1009, R1010
            return
        whose = None if hints.cache_scope == "public" else principal  # R1020
        key = (whose, method, _asked(params))
        self._drop(key)
        self._kept[key] = Kept(bytes(raw), now + ttl_s, getattr(params, "uri", None))
        self._bytes += len(raw)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def forget(self, methods: Iterable[str]) -> int:
        """These answers are stale, whoever got them and whichever page they are; how many."""
        self.changes += 1
        stale = frozenset(methods)
        keys = [key for key in self._kept if key[1] in stale]
        for key in keys:
            self._drop(key)
        return len(keys)

    def forget_resource(self, uri: str) -> None:
        """A resource has changed, and so has all that it is part of."""
        self.changes += 1
        for key, kept in list(self._kept.items()):
            if kept.uri is not None and is_covered(uri, {kept.uri}):
                self._drop(key)

    def clear(self) -> None:
        """Nothing is known to be fresh any more."""
        self.changes += 1
        self._kept.clear()
        self._bytes = 0

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= len(kept.raw)


def _asked(params: t.RequestParams) -> bytes:
    """What makes a request this request: its params, less what says who sends it (R1002)."""
    return encode(replace(params, meta=None))


# Of one list, as it was sent. A thousand tools take a megabyte; as objects a list takes up to
# twenty times as much.
MAX_LIST_BYTES = 16 * 1024 * 1024
# Tools, prompts, resources or templates in one list: what is shown to models is some dozens, and a
# host handles each in its loop.
MAX_LIST_ITEMS = 50_000
# Servers send 20 to 1000 items in a page.
MAX_PAGES = 1000


class ListBudget:
    """What may still be read of one list."""

    def __init__(self, server: str, method: str, max_bytes: int, max_items: int) -> None:
        self._server = server
        self._method = method
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._bytes = 0
        self._items = 0
        # Together no larger than the list.
        self._cursors: set[str] = set()

    def add_page(self, size: int) -> None:
        """One more page, of so many bytes, that is not decoded yet."""
        self._bytes += size
        if self._bytes > self._max_bytes:
            raise self._beyond(f"{self._max_bytes} bytes", "max_list_bytes")

    def add_items(self, count: int) -> None:
        """What is in it."""
        self._items += count
        if self._items > self._max_items:
            raise self._beyond(f"{self._max_items} items", "max_list_items")

    def add_cursor(self, cursor: str) -> None:
        """There is another page."""
        if cursor in self._cursors:
            words = "gave the same nextCursor twice, so the list has no end"
            raise self._wrong(words, "the server has to be corrected")
        self._cursors.add(cursor)
        if len(self._cursors) >= MAX_PAGES:
            by_page = f"read it page by page: client.ask({self._method!r}, …)"
            hint = f"the server has to send larger ones, or {by_page}"
            raise self._wrong(f"has more than {MAX_PAGES} pages", hint)

    def _beyond(self, most: str, setting: str) -> RemoteProtocolError:
        hint = f"to read it all the same, raise {setting}, which connect takes, and a host in the "
        return self._wrong(f"has more than {most}", f"{hint}settings of the server")

    def _wrong(self, words: str, hint: str) -> RemoteProtocolError:
        error = RemoteProtocolError(f"{self._method} {words}", hint=hint)
        return error.with_server(self._server) if self._server else error
