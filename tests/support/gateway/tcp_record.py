"""A TCP relay that keeps every byte which is sent to a server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def recorded_port(port: int, sent: list[bytes]) -> AsyncGenerator[int]:
    """A port that leads to another one; what clients send there is added to `sent`."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: list[bytes] | None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if keep is not None:
                    keep.append(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, forth, sent), pump(back, writer, None))
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
