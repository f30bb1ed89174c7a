"""Messages as lines over two file descriptors: a server's own standard streams.

Reading and writing happen in the loop itself, with no thread for each line: a descriptor that the
loop cannot watch (a plain file, or Windows) gets one reader thread for its whole life.

Rules: nothing but messages reaches standard output: it is taken away from everybody else first.
What the other side does not read is bounded, and then the channel ends. The end of the input is
the end of the process, within a second, whatever still runs.
"""

import asyncio
import contextlib
import io
import logging
import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Generator
from typing import cast

from colonnade.errors import ConnectionLost, Fault
from colonnade.ports import Service
from colonnade.protocol.jsonrpc import LineSplitter
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.transport.duplex import Duplex
from colonnade.transport.signals import close

# What a pipe holds. For much more, each read would have the system map memory, and unmap it.
READ_BYTES = 64 * 1024
# A peer that reads nothing while we write this much is not coming back.
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# Above this, whoever sends notices waits for the other side to read.
DRAIN_BYTES = 1024 * 1024
# Where so many messages have come at once, so many answers leave at once: to write each by itself
# takes a third of its time. Not more, so that the other side goes on meanwhile.
TOGETHER = 4
# What is longer than this waits for nothing.
SHORT_BYTES = 16 * 1024
# Chunks that a reader thread may be ahead of the loop.
CHUNKS_AHEAD = 4
# After the end of the input: for calls to finish, for those that were stopped to clean up, for the
# other side to read the last answers, and for threads. Together they stay below a second.
FINISH_S = 0.4
CLEAN_UP_S = 0.3
FLUSH_S = 0.15
THREADS_S = 0.1


class Outlet:
    """Lines into a descriptor that does not block: written now, or once they are read.

    `whom` is who should read them, as errors say it.
    """

    def __init__(self, writing: int, whom: str = "the other side") -> None:
        self.flushed: int = 0
        self._writing = writing
        self._whom = whom
        self._unread = bytearray()
        self._drained: asyncio.Event | None = None
        self._lost: str | None = None
        # What leaves together, while much is being answered.
        self._gathered: list[bytes] | None = None

    def write(self, frame: bytes) -> None:
        """Write one line, now if the other side can take it."""
        if self._gathered is not None:
            self._gathered.append(frame)
            if len(self._gathered) < TOGETHER and len(frame) <= SHORT_BYTES:
                return
            frame = b"\n".join(self._gathered)
            self._gathered.clear()
        self._write(frame)

    def gather(self) -> None:
        """What is written from now on leaves in groups, until `release`."""
        if self._gathered is None:
            self._gathered = []

    def release(self) -> None:
        """Write what was gathered, and each line by itself again."""
        rest, self._gathered = self._gathered, None
        if rest:
            self._write(b"\n".join(rest))

    def _write(self, frame: bytes) -> None:
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
            self._lose(f"stopped reading ({error.strerror})")
            return
        if written < len(line) and self._keep(line[written:]):
            asyncio.get_running_loop().add_writer(self._writing, self._flush)

    def _keep(self, data: bytes) -> bool:
        if len(self._unread) + len(data) > MAX_UNREAD_BYTES:
            self._lose(f"left {MAX_UNREAD_BYTES} bytes unread")
            return False
        self._unread += data
        if self._drained is None:
            self._drained = asyncio.Event()
        return True

    def _flush(self) -> None:
        try:
            written = os.write(self._writing, self._unread)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"stopped reading ({error.strerror})")
            return
        self.flushed += written
        del self._unread[:written]
        if not self._unread:
            asyncio.get_running_loop().remove_writer(self._writing)
            self._release()

    def _release(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _lose(self, what: str) -> None:
        self.shut(f"{self._whom} {what}")
        self.lost(what)

    def shut(self, why: str) -> None:
        """Write no more; what is unread is forgotten."""
        self._lost = why
        if self._unread:
            asyncio.get_running_loop().remove_writer(self._writing)
            self._unread.clear()
        self._release()

    def lost(self, what: str) -> None:
        """Nobody reads any more, which is found out by writing: what the reader did."""

    async def drain(self) -> None:
        """Wait while much is unread."""
        while len(self._unread) > DRAIN_BYTES and self._drained is not None:
            await self._drained.wait()
        if self._lost is not None:
            raise ConnectionLost(self._lost)

    async def flush(self, timeout_s: float) -> None:
        """Give the other side a last chance to read."""
        self.release()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unread and self._drained is not None:
                    await self._drained.wait()
        if self._unread:
            self._lose("did not read the rest")


class Pipe(Outlet):
    """A channel of lines over two descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        super().__init__(writing)
        self._reading = reading
        self._done: asyncio.Future[None] | None = None

    def lost(self, what: str) -> None:
        """Who does not read is not read either."""
        self.finish()

    @contextlib.contextmanager
    def opened(self) -> Generator[None]:
        """Ours from here on, to its end."""
        with self._unblocked(self._writing), self._unblocked(self._reading):
            yield

    def finish(self) -> None:
        """Read no more."""
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def read(self, receive: Callable[[list[bytes | Fault]], None]) -> None:
        """Hand all lines to `receive`, as they came together, until the other side is done."""
        lines = LineSplitter()
        loop = asyncio.get_running_loop()
        done = self._done = loop.create_future()

        def take(chunk: bytes) -> None:
            if done.done():
                return
            found = lines.feed(chunk)
            if len(found) < TOGETHER:
                receive(found)
                return
            self.gather()
            try:
                receive(found)
            finally:
                loop.call_soon(self.release)  # after the first step of each task

        if _watchable(self._reading):
            await self._watch(take, done)
        else:
            self._read_in_thread(take)
            await done

    async def _watch(self, take: Callable[[bytes], None], done: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()

        def ready() -> None:
            try:
                chunk = os.read(self._reading, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                take(chunk)
            else:
                self.finish()

        loop.add_reader(self._reading, ready)
        try:
            await done
        finally:
            loop.remove_reader(self._reading)

    def _read_in_thread(self, take: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        ahead = threading.Semaphore(CHUNKS_AHEAD)

        def taken(chunk: bytes) -> None:
            ahead.release()
            take(chunk)

        def work() -> None:
            with contextlib.suppress(OSError, RuntimeError):  # closed under us: the loop is over
                while chunk := os.read(self._reading, READ_BYTES):
                    ahead.acquire()
                    loop.call_soon_threadsafe(taken, chunk)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.finish)

        threading.Thread(target=work, name="colonnade-stdin", daemon=True).start()

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
    to standard error, and what reads standard input finds it empty. What was printed before, and
    is still in a buffer, goes there, too.
    """
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        os.dup2(2 if _is_open(2) else nothing, 1)
        _flush_prints()
        yield reading, writing
    finally:
        _flush_prints()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        for descriptor in (reading, writing, nothing):
            os.close(descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _flush_prints() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
        sys.stdout.flush()
        cast("io.TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)  # it is a log now


class SparingHandler(logging.Handler):
    """Logs to standard error as far as somebody reads it, where nobody set logging up otherwise.

    A client may ignore what we log (R0483), and a pipe that is full must not stop the server.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; what finds no room is dropped."""
        if logging.getLogger().handlers:
            return
        with contextlib.suppress(OSError, ValueError):
            data = f"{self.format(record)}\n".encode(errors="backslashreplace")
            while data and select.select([], [2], [], 0)[1]:
                data = data[os.write(2, data[: select.PIPE_BUF]) :]


@contextlib.contextmanager
def _logging_sparingly() -> Generator[None]:
    logger = logging.getLogger("colonnade")
    if not _is_open(2) or not _watchable(2) or logger.hasHandlers():
        yield
        return
    handler = SparingHandler(logging.WARNING)
    if logging.lastResort is not None:  # it stands in for that one, so it looks the same
        handler.setFormatter(logging.lastResort.formatter)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def serve_lines(pipe: Pipe, service: Service) -> None:
    """Serve one client over a pipe until its input ends; then what still runs is stopped."""
    link = DuplexLink(
        Side.SERVER, service.identity, service.accepts, current=lambda: service.identity
    )

    def told(event: NotificationReceived) -> None:
        service.told(event, link.peer)

    duplex = Duplex(link, pipe, service.answer, told=told)
    unwatch = service.watch(duplex.news)
    with pipe.opened():
        try:
            await pipe.read(duplex.receive_all)
            await duplex.finish("the input ended", FINISH_S)
        finally:
            unwatch()
            duplex.close("the input ended")
            await duplex.ended(CLEAN_UP_S)
            await pipe.flush(FLUSH_S)


async def serve_stdio(
    service: Service,
    *,
    streams: tuple[int, int] | None = None,
    started: Callable[[int], None] | None = None,
) -> None:
    """Serve one client on this process's standard streams, until it closes our input.

    SIGTERM ends it, too, if it is the main thread's loop that serves. `streams` are those of
    `own_streams`, if they were taken before; `started` is told what is read once it is served.
    """
    with contextlib.nullcontext(streams) if streams else own_streams() as (reading, writing):
        pipe = Pipe(reading, writing)
        await service.start()
        try:
            if started is not None:
                started(reading)
            with _ending_by_signal(service, pipe), _logging_sparingly():
                await serve_lines(pipe, service)
        finally:
            await service.stop()


@contextlib.contextmanager
def _ending_by_signal(service: Service, pipe: Pipe) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def end() -> None:
        service.drain()
        pipe.finish()

    try:
        loop.add_signal_handler(signal.SIGTERM, end)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def run_stdio(
    service: Service,
    *,
    streams: tuple[int, int] | None = None,
    started: Callable[[int], None] | None = None,
) -> bool:
    """`serve_stdio` in a loop of its own; afterwards no handler keeps the process.

    A person who started it at a terminal is told what it waits for, unless `started` does
    otherwise. Gives whether Ctrl-C ended it.
    """
    interrupted = False

    def tell(reading: int) -> None:
        explain(service, reading, 'server.run("http")')

    with asyncio.Runner() as runner:
        try:
            runner.run(serve_stdio(service, streams=streams, started=started or tell))
        except KeyboardInterrupt:
            interrupted = True
        close(runner, interrupted=interrupted, wait_s=THREADS_S)
    return interrupted


def explain(service: Service, reading: int, instead: str) -> None:
    """Tell a person at a terminal what is waited for, and what to type instead."""
    if os.isatty(reading):
        from colonnade.protocol.negotiation import name_and_version

        info = service.identity.info
        sys.stderr.write(
            f"{name_and_version(info)} waits here for the messages of an MCP client, which "
            f"starts it itself; for HTTP, use {instead}; Ctrl-C ends it\n"
        )
        sys.stderr.flush()
