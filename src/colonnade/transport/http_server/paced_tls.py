"""Writes responses over TLS in pieces, so that unread bytes wait here and count.

The TLS transport of an event loop passes a whole write to the socket's transport before it looks at
its own size: 44 MiB wait there, `get_write_buffer_size` is 0, and `pause_writing` is not called.
Written in pieces, it pauses once the socket's transport is full, and the rest waits here.

Rules: nothing is written while the TLS transport is paused. The order of writes is kept. `close`
writes the rest first. Connections without TLS do not use this module.
"""

import asyncio
from collections import deque
from typing import Any, Final, cast

# One TLS record. The last pieces, which the socket's transport holds uncounted, are small with it.
PIECE_BYTES: Final = 16 * 1024
# The limits of asyncio's plain transports.
HIGH_BYTES: Final = 64 * 1024
LOW_BYTES: Final = 16 * 1024


class PacedTransport(asyncio.Transport):
    """The TLS transport as a connection sees it: unread bytes count, and pause the writer."""

    __slots__ = ("_closing", "_connection", "_full", "_paused", "_pieces", "_size", "_tls")

    def __init__(self, tls: asyncio.Transport, connection: asyncio.Protocol) -> None:
        super().__init__()
        self._tls = tls
        # None after the connection has ended: each refers to the other.
        self._connection: asyncio.Protocol | None = connection
        self._pieces = deque[memoryview]()
        self._size = 0
        # Whether the TLS transport waits, and whether the connection was told to.
        self._full = self._paused = self._closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the TLS transport says."""
        return self._tls.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """The bytes that wait here and in the TLS transport."""
        return self._size + (0 if self._connection is None else self._tls.get_write_buffer_size())

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called, or the client has closed."""
        return self._closing or self._tls.is_closing()

    def pause_reading(self) -> None:
        """Read nothing for now."""
        self._tls.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._tls.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write this, after all that waits; pause the connection if too much waits then."""
        if self._closing or not data or self._connection is None:
            return
        self._pieces.append(memoryview(data))
        self._size += len(data)
        self._write_pieces()
        if not self._paused and self.get_write_buffer_size() > HIGH_BYTES:
            self._paused = True
            self._connection.pause_writing()

    def close(self) -> None:
        """Close once all that waits is written."""
        self._closing = True
        self._close_if_written()

    def abort(self) -> None:
        """Close at once, and drop what waits."""
        self._closing = True
        self._drop()
        self._tls.abort()

    def tls_paused(self) -> None:
        """The socket's transport is full."""
        self._full = True

    def tls_resumed(self) -> None:
        """The client has read: write more."""
        self._full = False
        self._write_pieces()
        self._close_if_written()
        if self._paused and self._connection is not None and self._size <= LOW_BYTES:
            self._paused = False
            self._connection.resume_writing()

    def lost(self) -> None:
        """The connection has ended."""
        self._drop()
        self._closing, self._connection = True, None

    def _write_pieces(self) -> None:
        pieces = self._pieces
        while pieces and not self._full:
            first = pieces[0]
            if len(first) > PIECE_BYTES:
                pieces[0] = first[PIECE_BYTES:]
                first = first[:PIECE_BYTES]
            else:
                pieces.popleft()
            self._size -= len(first)
            self._tls.write(first)

    def _close_if_written(self) -> None:
        # A second `close` breaks the TLS transport of asyncio.
        if self._closing and not self._pieces and not self._full and not self._tls.is_closing():
            self._tls.close()

    def _drop(self) -> None:
        self._pieces.clear()
        self._size = 0


class PacedProtocol(asyncio.Protocol):
    """Between the TLS transport and a connection, which gets a `PacedTransport` for it."""

    __slots__ = ("_connection", "_paced")

    def __init__(self, connection: asyncio.Protocol) -> None:
        self._connection = connection
        self._paced: PacedTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection a paced transport."""
        # uvloop has classes of its own.
        tls = cast("asyncio.Transport", transport)
        self._paced = PacedTransport(tls, self._connection)
        # Any byte that the socket's transport does not take pauses, at once if the end of the
        # handshake waits.
        tls.set_write_buffer_limits(high=1, low=0)
        self._connection.connection_made(self._paced)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what waits."""
        self._paced.lost()
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sent."""
        self._connection.data_received(data)

    def pause_writing(self) -> None:
        """Write nothing more for now."""
        self._paced.tls_paused()

    def resume_writing(self) -> None:
        """Write what waits."""
        self._paced.tls_resumed()
