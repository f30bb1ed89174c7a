"""Pages of the lists of a gateway: the lists of all servers as one, cut at `page_size`.

A cursor is sealed, and has all that is needed to go on: it is read by every replica that has the
same keys, and nothing is kept for it. It names the last item of its page, so that what is added or
removed before it does not matter; if that item is gone, the page goes on at its place.

Rules: a cursor of another list, or of another principal, is invalid, like any other bytes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind
from colonnade.ports import RequestContext, Seal
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.jsonrpc import Request

# Ours have about 300 characters, and the name of an item at most a few thousand.
MAX_CURSOR_CHARACTERS = 16 * 1024

# By method: the field of the result, and the field that names an item.
LISTS: dict[str, tuple[str, str]] = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resource_templates", "uri_template"),
}


class PagePosition(NamedTuple):
    """Where a page begins: after the item of this name, or at this index if it is gone."""

    method: str
    principal: str
    last: str
    number: int


_position = msgspec.msgpack.Decoder(PagePosition)


class ListPages:
    """Cuts lists into pages; `seal` encrypts cursors."""

    def __init__(self, page_size: int, seal: Callable[[], Seal]) -> None:
        self._page_size = page_size
        self._seal = seal

    def take_cursor(self, request: RequestContext) -> PagePosition | None:
        """The position that a request asks for; None for the first page. The request has no cursor
        afterwards: the servers are listed as a whole. Raises `Fault`."""
        exchange = request.exchange
        cursor = decode_as(t.PaginatedRequestParams, exchange.request.params).cursor
        if cursor is None:
            return None
        position = self._open(cursor)
        if position is None or position[:2] != (exchange.method.name, exchange.principal):
            raise Fault(FaultKind.INVALID_PARAMS, "invalid cursor; list again without one")
        before = exchange.request
        exchange.request = Request(before.id, before.method, raw_id=before.raw_id)
        return position

    def cursor(self, request: RequestContext, last: str, number: int = 0) -> str:
        """The cursor of the page after the item of this name."""
        exchange = request.exchange
        following = PagePosition(exchange.method.name, exchange.principal, last, number)
        return self._seal().seal(msgspec.msgpack.encode(following))

    def _open(self, cursor: str) -> PagePosition | None:
        if len(cursor) > MAX_CURSOR_CHARACTERS:
            return None
        try:
            return _position.decode(self._seal().unseal(cursor))
        except (Fault, msgspec.MsgspecError):
            return None

    def cut(
        self, request: RequestContext, position: PagePosition | None, result: t.ProtocolType
    ) -> t.ProtocolType:
        """The page of a whole list that begins at a position."""
        method = request.exchange.method.name
        field, key = LISTS[method]
        items: list[Any] = getattr(result, field, [])
        start = 0 if position is None else _start(items, key, position)
        end = start + self._page_size
        if start == 0 and end >= len(items):
            return result
        cursor = None
        if end < len(items):
            cursor = self.cursor(request, getattr(items[end - 1], key), end)
        return replace(result, next_cursor=cursor, **{field: items[start:end]})


def _start(items: list[Any], key: str, position: PagePosition) -> int:
    at = position.number - 1  # where it was
    if 0 <= at < len(items) and getattr(items[at], key) == position.last:
        return position.number
    found = (n for n, item in enumerate(items) if getattr(item, key) == position.last)
    return next(found, min(max(at, 0), len(items)) - 1) + 1
