"""The head of a request that comes again on its connection, and is compared instead of parsed.

Who calls a second time sends the same bytes again, but for the length of the body. What they mean
was worked out when they came first: by the parser, under all limits, and it is taken from there.

Rules: does no I/O, and parses nothing but that one number. What is not exactly as it was before, or
comes in pieces, is none of ours: the parser reads it.
"""

from typing import Any

from colonnade.transport.http_server.request import Pairs

# More digits than any body that is read has; the parser says what is wrong with them.
LENGTH_DIGITS = 12
# What a token and some headers take. A longer head is parsed each time: to keep its bytes, beside
# what they mean, would double the memory of a silent connection, of which strangers open thousands.
KNOWN_BYTES = 4 * 1024

_LENGTH = b"content-length"
_LENGTH_LINE = b"\r\n" + _LENGTH + b":"
_END = b"\r\n\r\n"
# Who sends one of these wants more than to be answered.
_SPECIAL = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
# What a scope has of the request line and of the connection. All but `asgi` are values that nobody
# can change; of that one, as of the headers, each request has its own.
_KEPT = (
    "type",
    "asgi",
    "http_version",
    "server",
    "client",
    "scheme",
    "root_path",
    "method",
    "path",
    "raw_path",
    "query_string",
)


class KnownHead:
    """A head that was parsed: its bytes around the length, and what they mean."""

    __slots__ = ("_after", "_before", "_headers", "_place", "_scope")

    def __init__(
        self, before: bytes, after: bytes, scope: dict[str, Any], headers: Pairs, place: int
    ) -> None:
        self._before = before
        self._after = after
        self._scope = scope
        self._headers = headers
        self._place = place

    def body_at(self, data: bytes) -> int:
        """Where the body begins, if this is one whole request with this head; else 0."""
        if not data.startswith(self._before):
            return 0
        at = len(self._before)
        end = data.find(b"\r", at, at + LENGTH_DIGITS)
        if end < 0 or not data.startswith(self._after, end):
            return 0
        start = end + len(self._after)
        return start if data[at:end] == b"%d" % (len(data) - start) else 0

    def scope(self, size: int) -> dict[str, Any]:
        """A scope as the parser would have made it, for a body of this size; without the state."""
        headers = self._headers.copy()
        headers[self._place] = (_LENGTH, b"%d" % size)
        scope = self._scope.copy()
        scope["asgi"] = scope["asgi"].copy()
        scope["headers"] = headers
        return scope


def learn(data: bytes, size: int, scope: dict[str, Any], limit: int) -> KnownHead | None:
    """The head of a request that came in one piece, and was parsed; None for one that is special.

    `size` is that of its body, `limit` what the head may have.
    """
    end = data.find(_END) + len(_END)
    headers: Pairs = scope["headers"]
    names = [name for name, _ in headers]
    if (
        len(data) - end != size
        or end + LENGTH_DIGITS > min(limit, KNOWN_BYTES)
        or scope["method"] != "POST"
        or scope["http_version"] != "1.1"
        or names.count(_LENGTH) != 1
        or not _SPECIAL.isdisjoint(names)
    ):
        return None
    place = names.index(_LENGTH)
    length = headers[place][1]
    at = data[:end].lower().find(_LENGTH_LINE)
    at = data.find(length, at + len(_LENGTH_LINE), end) if at > 0 else -1
    if at < 0 or length != b"%d" % size or data[at + len(length) : at + len(length) + 1] != b"\r":
        return None
    kept = {key: scope[key] for key in _KEPT}
    kept["asgi"] = kept["asgi"].copy()
    return KnownHead(data[:at], data[at + len(length) : end], kept, headers.copy(), place)
