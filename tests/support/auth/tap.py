"""A TCP relay in front of one port that records what is sent to it, for each connection.

Rules: bytes are passed on as they are, in both directions.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

READ_BYTES = 65536


class Tap:
    """The relay: `sent` has the bytes of each connection, in the order in which they were opened."""

    def __init__(self) -> None:
        self.port = 0
        self.target = 0
        self.sent: list[bytearray] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        record = bytearray()
        self.sent.append(record)
        try:
            there, on = await asyncio.open_connection("127.0.0.1", self.target)
            back = asyncio.ensure_future(_pump(there, writer, bytearray()))
            await _pump(reader, on, record)
            await back
        finally:
            writer.close()
            self._tasks.discard(task)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            record += data
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def tapped() -> AsyncGenerator[Tap]:
    """A relay on a free port; set its `target` before it is used."""
    tap = Tap()
    server = await asyncio.start_server(tap.accept, "127.0.0.1", 0)
    tap.port = server.sockets[0].getsockname()[1]
    try:
        yield tap
    finally:
        server.close()
        await tap.close()
