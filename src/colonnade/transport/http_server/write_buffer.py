"""What leaves a connection of our own server: together with others, or when there is room.

Rules: knows no request. Nothing is written twice, or out of its order on one connection.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from colonnade.transport.http_server.request import Pairs

# More than this is written before the turn ends, so that a slow reader is noticed.
OUTBOX_BYTES = 256 * 1024
# The headers that an answer has for its body.
OF_JSON = b"content-type: application/json\r\ncontent-length: %d\r\n"
OF_NOTHING = b"content-length: 0\r\n"


class Bell:
    """What uvicorn uses of an `asyncio.Event`, in a tenth of the memory while nobody waits."""

    __slots__ = ("_rung", "_waiters")

    def __init__(self, *, rung: bool = False) -> None:
        self._rung = rung
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        """Whether nobody has to wait."""
        return self._rung

    def set(self) -> None:
        """Let all go on who wait."""
        self._rung = True
        if self._waiters is not None:
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Whoever comes now waits."""
        self._rung = False

    async def wait(self) -> bool:
        """Wait until it rings."""
        if not self._rung:
            waiter = asyncio.get_running_loop().create_future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            await waiter
        return True


class Flow(FlowControl):
    """uvicorn's, with a bell for an event."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused: bool = False
        self.write_paused: bool = False
        self._is_writable_event: Any = Bell(rung=True)


class Outbox:
    """Answers of one turn of the loop, which leave together at its end.

    Whoever waits for many of them is woken once and not for each, which is worth more than the
    system calls. Where few are being answered each leaves at once.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}
        self._size = 0
        # How answers begin, by their status, as long as the date is the same.
        self._openings: dict[int, bytes] = {}
        self._dated: Pairs = []

    def opening(self, status: int, headers: Pairs) -> bytes:
        """The first lines of an answer: its status, and the headers that all of them have now."""
        if headers is not self._dated:
            self._openings.clear()
            self._dated = headers
        found = self._openings.get(status)
        if found is None:
            found = self._openings[status] = STATUS_LINE[status] + lines_of(headers)
        return found

    def put(
        self, transport: asyncio.Transport, data: bytes, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Write this at the end of the turn."""
        if not self._waiting:
            loop.call_soon(self.flush)
        self._waiting.setdefault(transport, []).append(data)
        self._size += len(data)
        if self._size > OUTBOX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all of it now: something else is to be written after it."""
        waiting, self._waiting, self._size = self._waiting, {}, 0
        for transport, parts in waiting.items():
            _write(transport, parts[0] if len(parts) == 1 else b"".join(parts))


def lines_of(headers: Pairs) -> bytes:
    """Headers as they are written."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def _write(transport: asyncio.Transport, data: bytes) -> None:
    try:
        transport.write(data)
    except RuntimeError:  # uvloop's, where a client has gone in this turn; the others get theirs
        return
