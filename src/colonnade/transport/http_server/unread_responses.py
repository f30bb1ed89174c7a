"""Limits responses that clients do not read: with too many unread bytes, connections are closed.

A response is handed to the transport of its connection, which keeps what the client does not read.
250 clients that request 4 MiB each and read nothing took 2 GiB of memory until the write timeout.
So a connection counts here from the moment when its client falls behind (`pause_writing`: 64 KiB
wait) until the client has caught up.

Rules: clients that keep up cost nothing here. The only unread response of a principal is never cut
by the limit of that principal, however large it is: a client may read one response slowly, but not
many at a time.
"""

import asyncio
from typing import Final, Protocol

# The same limit as for incomplete request bodies; a quarter of it for one principal.
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_BYTES_PER_PRINCIPAL: Final = 64 * 1024 * 1024
# Iterations of the event loop after which a closed connection has released its memory.
CLOSING_TURNS: Final = 8


class UnreadConnection(Protocol):
    """A connection whose client has fallen behind."""

    principal: str
    transport: asyncio.Transport

    def cut(self) -> None:
        """Close the connection at once and drop its unread bytes."""
        ...


class UnreadResponses:
    """The connections of a server whose clients have fallen behind, with their unread bytes.

    Anonymous callers share the principal "", to which only the total limit applies.
    """

    def __init__(
        self, total: int = MAX_BYTES, per_principal: int = MAX_BYTES_PER_PRINCIPAL
    ) -> None:
        self.total = total
        self.per_principal = per_principal
        self.used: int = 0
        # Connections that were cut and have not released their memory yet.
        self.closing: set[UnreadConnection] = set()
        self._turn = asyncio.Lock()
        self._by_principal: dict[str, int] = {}
        # By connection, oldest first: the principal, and the unread bytes at the last count.
        self._connections: dict[UnreadConnection, tuple[str, int]] = {}

    def add(self, connection: UnreadConnection) -> None:
        """Note that a client has fallen behind. Above a limit, cut connections of this principal,
        or of the principal with the most unread bytes, the largest first."""
        self.discard(connection)
        principal = connection.principal
        self._count(connection, principal, connection.transport.get_write_buffer_size())
        if self.used <= self.total and not self._has_too_much(principal):
            return
        self._look_again()
        while self._has_too_much(principal) and len(self._of(principal)) > 1:
            self._cut_largest(principal)
        while self.used > self.total and len(self._connections) > 1:
            self._cut_largest(max(self._by_principal, key=self._by_principal.__getitem__))

    def discard(self, connection: UnreadConnection) -> None:
        """The client has caught up."""
        principal, size = self._connections.pop(connection, ("", 0))
        self._change(principal, -size)

    def lost(self, connection: UnreadConnection) -> None:
        """The connection has ended."""
        self.discard(connection)
        self.closing.discard(connection)

    async def closed(self) -> None:
        """Wait until cut connections have released their memory. Waiting requests go on one after
        the other, since hundreds may be served in one iteration of the event loop."""
        async with self._turn:
            for _ in range(CLOSING_TURNS):
                if not self.closing:
                    return
                await asyncio.sleep(0)

    def _count(self, connection: UnreadConnection, principal: str, size: int) -> None:
        self._connections[connection] = principal, size
        self._change(principal, size)

    def _change(self, principal: str, size: int) -> None:
        self.used += size
        own = self._by_principal.get(principal, 0) + size
        if own:
            self._by_principal[principal] = own
        else:
            self._by_principal.pop(principal, None)

    def _has_too_much(self, principal: str) -> bool:
        return bool(principal) and self._by_principal.get(principal, 0) > self.per_principal

    def _of(self, principal: str) -> dict[UnreadConnection, int]:
        """The connections of a principal, with the unread bytes of each."""
        return {
            connection: size
            for connection, (owner, size) in self._connections.items()
            if owner == principal
        }

    def _look_again(self) -> None:
        """Count the unread bytes now: clients that fell behind may have read since."""
        for connection, (principal, size) in list(self._connections.items()):
            self._change(principal, -size)
            self._count(connection, principal, connection.transport.get_write_buffer_size())

    def _cut_largest(self, principal: str) -> None:
        """Cut the connection of a principal with the most unread bytes."""
        sizes = self._of(principal)
        largest = max(sizes, key=sizes.__getitem__)
        self.discard(largest)
        self.closing.add(largest)
        largest.cut()
