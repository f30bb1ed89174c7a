"""Three processes on one Redis server, each of which reaches it through a relay of its own."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Self

from relay import RelayedProcesses, is_ready

PROGRAM = Path(__file__).with_name("fault_server.py")
# How often /ready is requested.
PROBE_S = 0.1
# A process that is stopped accepts connections, and responds to nothing.
READY_TIMEOUT_S = 0.5


class Partition(Enum):
    """What a relay does with the bytes that it gets."""

    NONE = "none"
    # They are lost; so the connections that they were sent on end with the partition.
    REQUESTS = "requests are swallowed"
    REPLIES = "replies are swallowed"
    # They arrive when it ends, as those of a network that sends again.
    LATE = "requests arrive late"


class StoreRelay:
    """A relay on loopback, in front of one port; in a partition connections stay open."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._partition = Partition.NONE
        self._ended = asyncio.Event()
        self._lossy: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        # Bytes that were swallowed or late.
        self.held_bytes = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=256)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def begin(self, partition: Partition) -> None:
        """Let nothing pass in one direction."""
        self._partition, self._ended = partition, asyncio.Event()

    def end(self) -> None:
        """Let everything pass again."""
        self._partition = Partition.NONE
        self._ended.set()
        for task in self._lossy:
            task.cancel()
        self._lossy = set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._lossy.discard)
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            return
        lost, late = Partition.REQUESTS, Partition.LATE
        forth = asyncio.create_task(self._pass(reader, far_writer, (lost, late), own))
        back = asyncio.create_task(self._pass(far_reader, writer, (Partition.REPLIES,), own))
        try:
            # The reader of requests may end first: late ones are still written.
            await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
            if self._partition is late:
                await asyncio.wait({forth})
        finally:
            for task in (forth, back):
                task.cancel()
            await asyncio.wait({forth, back})
            far_writer.close()
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        held: tuple[Partition, ...],
        whole: asyncio.Task[Any],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._partition in held:
                    self.held_bytes += len(data)
                    if self._partition is not Partition.LATE:
                        self._lossy.add(whole)
                        continue
                    await self._ended.wait()
                writer.write(data)
                await writer.drain()


class FaultProcesses(RelayedProcesses):
    """Three processes of `fault_server`, and a relay in front of the store for each."""

    def __init__(self, redis_port: int, folder: Path, **environment: str) -> None:
        self.log_path = folder / "server.log"
        environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        super().__init__(PROGRAM, environment=environment, log=self.log_path.open("ab"))
        self.folder = folder
        self.ledger = folder / "ledger"
        self.store_relays = [StoreRelay(redis_port) for _ in range(self.count)]
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.ledger.touch()
        for relay in self.store_relays:
            await relay.start()
        await super().__aenter__()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.wait([self._watching])
        for relay in self.store_relays:
            relay.end()
        for process in self.processes:
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
        await super().__aexit__()
        for relay in self.store_relays:
            await relay.stop()
        assert self.log is not None
        self.log.close()

    @property
    def ports(self) -> list[int]:
        return self.relay.ports

    def arguments_of_next(self) -> Sequence[str]:
        store = self.store_relays[len(self.processes)]
        return (f"redis://127.0.0.1:{store.port}", str(self.ledger))

    async def _watch(self) -> None:
        """Request /ready of each process again and again, as a balancer does."""
        while True:
            for port in self.ports:
                ready = False
                with contextlib.suppress(TimeoutError, OSError):
                    async with asyncio.timeout(READY_TIMEOUT_S):
                        ready = await is_ready(port)
                (self.relay.not_ready.discard if ready else self.relay.not_ready.add)(port)
            await asyncio.sleep(PROBE_S)

    async def wait_ready(self, timeout_s: float) -> float:
        """Wait until all processes are ready; how long that took. Raises `TimeoutError`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(timeout_s):
            for port in self.ports:
                while True:
                    with contextlib.suppress(TimeoutError, OSError):
                        async with asyncio.timeout(READY_TIMEOUT_S * 4):
                            if await is_ready(port):
                                break
                    await asyncio.sleep(0.05)
        return loop.time() - began
