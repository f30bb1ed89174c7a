"""How much of one list a client reads, over all its pages.

Rules: what is read is counted page by page, so that a list without an end costs no more than its
limits. An error names the server, the method, the limit, and what raises it.
"""

from colonnade.errors import RemoteProtocolError

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
        return error.about(self._server) if self._server else error
