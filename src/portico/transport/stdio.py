"""Messages as lines over two file descriptors: a server's own standard streams.

Reading and writing happen in the loop itself, with no thread for each line: a descriptor that the
loop cannot watch (a plain file, or Windows) gets one reader thread for its whole life.

Rules: nothing but messages reaches standard output: it is taken away from everybody else first.
What the other side does not read is bounded, and then the channel ends.
"""

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Generator

from portico.errors import ConnectionLost, Fault
from portico.ports import Service
from portico.protocol.events import Told
from portico.protocol.jsonrpc import Lines
from portico.protocol.link import Link
from portico.protocol.methods import Side
from portico.transport.duplex import Duplex

READ_BYTES = 256 * 1024
# A peer that reads nothing while we write this much is not coming back.
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# Above this, whoever sends notices waits for the other side to read.
DRAIN_BYTES = 1024 * 1024


class Pipe:
    """A channel of lines over two descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._unread = bytearray()
        self._drained: asyncio.Event | None = None
        self._lost: str | None = None
        self._set_blocking: list[tuple[int, bool]] = []

    # ------------------------------------------------------------ out

    def write(self, frame: bytes) -> None:
        """Write one line, now if the other side can take it."""
        if self._lost is not None:
            return
        line = frame + b"\n"
        if self._unread:
            self._keep(line)
            return
        try:
            written = os.write(self._writing, line)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._lose(f"the other side stopped reading ({error.strerror})")
            return
        if written < len(line):
            self._keep(line[written:])
            asyncio.get_running_loop().add_writer(self._writing, self._flush)

    def _keep(self, data: bytes) -> None:
        if len(self._unread) + len(data) > MAX_UNREAD_BYTES:
            self._lose(f"the other side left {MAX_UNREAD_BYTES} bytes unread")
            return
        self._unread += data
        if self._drained is None:
            self._drained = asyncio.Event()

    def _flush(self) -> None:
        try:
            written = os.write(self._writing, self._unread)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"the other side stopped reading ({error.strerror})")
            return
        del self._unread[:written]
        if not self._unread:
            asyncio.get_running_loop().remove_writer(self._writing)
            self._release()

    def _release(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _lose(self, why: str) -> None:
        self._lost = why
        if self._unread:
            asyncio.get_running_loop().remove_writer(self._writing)
            self._unread.clear()
        self._release()

    async def drain(self) -> None:
        """Wait while much is unread."""
        while len(self._unread) > DRAIN_BYTES and self._drained is not None:
            await self._drained.wait()
        if self._lost is not None:
            raise ConnectionLost(self._lost)

    async def flush(self, timeout_s: float) -> None:
        """Give the other side a last chance to read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unread and self._drained is not None:
                    await self._drained.wait()

    # ------------------------------------------------------------ in

    async def read(self, receive: Callable[[bytes], None], refuse: Callable[[Fault], None]) -> None:
        """Hand every line to `receive` until the other side is done."""
        lines = Lines()

        def take(chunk: bytes) -> None:
            for line in lines.feed(chunk):
                if isinstance(line, Fault):
                    refuse(line)
                else:
                    receive(line)

        with self._unblocked(self._writing):
            if _watchable(self._reading):
                with self._unblocked(self._reading):
                    await self._watch(take)
            else:
                await self._read_in_thread(take)

    async def _watch(self, take: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def ready() -> None:
            try:
                chunk = os.read(self._reading, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                take(chunk)
            elif not done.done():
                done.set_result(None)

        loop.add_reader(self._reading, ready)
        try:
            await done
        finally:
            loop.remove_reader(self._reading)

    async def _read_in_thread(self, take: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(None)

        def work() -> None:
            with contextlib.suppress(OSError, RuntimeError):  # closed under us: the loop is over
                while chunk := os.read(self._reading, READ_BYTES):
                    loop.call_soon_threadsafe(take, chunk)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

        threading.Thread(target=work, name="portico-stdin", daemon=True).start()
        await done

    @contextlib.contextmanager
    def _unblocked(self, descriptor: int) -> Generator[None]:
        """Non-blocking for as long as it is ours. A terminal is left alone: others share it."""
        if not _watchable(descriptor) or not os.get_blocking(descriptor):
            yield
            return
        os.set_blocking(descriptor, False)
        try:
            yield
        finally:
            os.set_blocking(descriptor, True)


def _watchable(descriptor: int) -> bool:
    """Whether the loop can watch it: pipes and sockets, where there is an epoll or its like."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextlib.contextmanager
def own_streams() -> Generator[tuple[int, int]]:
    """Standard input and output for messages alone.

    The real ones move to new descriptors; what prints from then on, in Python or below it, goes
    to standard error, and what reads standard input finds it empty.
    """
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield reading, writing
    finally:
        sys.stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)


async def serve_lines(pipe: Pipe, link: Link, service: Service) -> None:
    """Run a server's link over a pipe until its input ends; then what still runs is cancelled."""

    def told(event: Told) -> None:
        service.told(event, link.peer)

    async with asyncio.TaskGroup() as group:
        duplex = Duplex(link, pipe, service.answer, group, told=told)
        unwatch = service.watch(duplex.news)
        try:
            await pipe.read(duplex.receive, duplex.refuse)
        finally:
            unwatch()
            duplex.close("the input ended")
    await pipe.flush(timeout_s=1.0)


async def serve_stdio(service: Service) -> None:
    """Serve one client on this process's standard streams, until it closes our input."""
    with own_streams() as (reading, writing):
        link = Link(Side.SERVER, service.identity, service.accepts)
        await serve_lines(Pipe(reading, writing), link, service)
