"""A queue in memory, for tests: it delivers as it is told, also twice, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable

from colonnade.errors import ConnectionLost


class MemoryQueue:
    """Delivers to the workers of this process, each reference `copies` times."""

    def __init__(self, *, copies: int = 1) -> None:
        self.copies = copies
        self.submitted: list[tuple[str, str]] = []
        self.fails = False
        self.serving = 0
        # Deliveries that a worker has dealt with.
        self.finished = 0
        self._waiting: asyncio.Queue[str] = asyncio.Queue()

    async def submit(self, server: str, reference: str) -> None:
        if self.fails:
            raise ConnectionLost("no queue")
        self.submitted.append((server, reference))
        for _ in range(self.copies):
            self._waiting.put_nowait(reference)

    async def serve(
        self, server: str, run: Callable[[str], Awaitable[None]], max_running: int
    ) -> None:
        running: set[asyncio.Future[None]] = set()
        self.serving += 1
        try:
            while True:
                reference = await self._waiting.get()
                delivery = asyncio.ensure_future(run(reference))
                delivery.add_done_callback(self._on_finished)
                running.add(delivery)
                while len(running) >= max_running:
                    _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.serving -= 1
            if running:
                await asyncio.wait(running)

    def _on_finished(self, _: object) -> None:
        self.finished += 1

    async def close(self) -> None:
        pass
