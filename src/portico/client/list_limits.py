"""How much of one list a client reads, over all its pages.

Rules: what is read is counted page by page, so that a list without an end costs no more than its
limits. An error names the server, the method, the limit, and what raises it.
"""

from portico.errors import RemoteProtocolError

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
        self._what = f"server {server!r}: {method}" if server else method
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
            raise RemoteProtocolError(
                f"{self._what} gave the same nextCursor twice, so the list has no end; "
                "the server has to be corrected"
            )
        self._cursors.add(cursor)
        if len(self._cursors) >= MAX_PAGES:
            raise RemoteProtocolError(
                f"{self._what} has more than {MAX_PAGES} pages; the server has to send larger "
                f"ones, or read it page by page: client.ask({self._method!r}, …)"
            )

    def _beyond(self, most: str, setting: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"{self._what} has more than {most}; to read it all the same, raise {setting}, "
            "which connect takes, and a host in the settings of the server"
        )
