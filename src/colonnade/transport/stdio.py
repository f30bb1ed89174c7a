"""The stdio transport of a server: messages as lines over two file descriptors.

Reading and writing happen in the event loop itself, not in a thread for each line: a descriptor
that the loop cannot poll (a plain file, or Windows) gets one reader thread for its whole life.

Rules: only messages reach standard output: `print` is redirected to standard error first. The data
that the client does not read is bounded; beyond that the channel is closed. The process ends within
a second of the end of its input, whatever still runs.
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

from msgspec.structs import replace

from colonnade.errors import ConnectionLost, Fault
from colonnade.ports import Service
from colonnade.protocol.exchange import PIPE
from colonnade.protocol.jsonrpc import LineSplitter
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Callers, Identity
from colonnade.transport.duplex import Duplex
from colonnade.transport.signals import HANGUP, close, handles_hangup, log_hangup

# The capacity of a pipe. With much more, each read would map and unmap memory.
READ_BYTES = 64 * 1024
# A client that reads nothing while this much is written is treated as gone.
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# Above this, senders of notifications wait for the client to read.
DRAIN_BYTES = 1024 * 1024
# If so many messages were read at once, so many responses are written at once: a write for each
# takes a third of the time of a request. Not more, so that the client can start on the first.
WRITE_GROUP = 4
# A longer message is written at once.
MAX_GROUPED_BYTES = 16 * 1024
# Chunks that a reader thread may be ahead of the loop.
CHUNKS_AHEAD = 4
# Timeouts after the end of the input: for calls to finish, for cancelled calls to clean up, for the
# client to read the last responses, and for threads. Together they are less than a second.
FINISH_S = 0.4
CLEAN_UP_S = 0.3
FLUSH_S = 0.15
THREADS_S = 0.1


class LineWriter:
    """Writes lines to a non-blocking descriptor, now or as soon as there is room.

    `reader` is the name of the reading side in errors.
    """

    def __init__(self, writing: int, reader: str = "the other side") -> None:
        self.flushed: int = 0
        self._output = writing
        self._reader = reader
        self._unread = bytearray()
        self._drained: asyncio.Event | None = None
        self._failure: str | None = None
        # Lines that are written together, while many requests are handled at once.
        self._group: list[bytes] | None = None

    def write(self, frame: bytes) -> None:
        """Write one line, now if there is room."""
        if self._group is not None:
            self._group.append(frame)
            if len(self._group) < WRITE_GROUP and len(frame) <= MAX_GROUPED_BYTES:
                return
            frame = b"\n".join(self._group)
            self._group.clear()
        self._write(frame)

    def start_group(self) -> None:
        """Write lines in groups from now on, until `end_group`."""
        if self._group is None:
            self._group = []

    def end_group(self) -> None:
        """Write the rest of the group, and each line by itself again."""
        rest, self._group = self._group, None
        if rest:
            self._write(b"\n".join(rest))

    def _write(self, frame: bytes) -> None:
        if self._failure is not None:
            return
        line = frame + b"\n"
        if self._unread:
            self._buffer(line)
            return
        try:
            written = os.write(self._output, line)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._fail(f"stopped reading ({error.strerror})")
            return
        if written < len(line) and self._buffer(line[written:]):
            asyncio.get_running_loop().add_writer(self._output, self._flush)

    def _buffer(self, data: bytes) -> bool:
        if len(self._unread) + len(data) > MAX_UNREAD_BYTES:
            self._fail(f"left {MAX_UNREAD_BYTES} bytes unread")
            return False
        self._unread += data
        if self._drained is None:
            self._drained = asyncio.Event()
        return True

    def _flush(self) -> None:
        try:
            written = os.write(self._output, self._unread)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"stopped reading ({error.strerror})")
            return
        self.flushed += written
        del self._unread[:written]
        if not self._unread:
            asyncio.get_running_loop().remove_writer(self._output)
            self._set_drained()

    def _set_drained(self) -> None:
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    def _fail(self, what: str) -> None:
        self.stop_writing(f"{self._reader} {what}")
        self.on_write_failed(what)

    def stop_writing(self, why: str) -> None:
        """Stop writing; buffered data is dropped."""
        self._failure = why
        if self._unread:
            asyncio.get_running_loop().remove_writer(self._output)
            self._unread.clear()
        self._set_drained()

    def on_write_failed(self, what: str) -> None:
        """Called if a write failed; `what` is what the reader did."""

    async def drain(self) -> None:
        """Wait while much data is buffered. Raises `ConnectionLost`."""
        while len(self._unread) > DRAIN_BYTES and self._drained is not None:
            await self._drained.wait()
        if self._failure is not None:
            raise ConnectionLost(self._failure)

    async def flush(self, timeout_s: float) -> None:
        """Wait until the buffered data is written, or for the timeout."""
        self.end_group()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._unread and self._drained is not None:
                    await self._drained.wait()
        if self._unread:
            self._fail("did not read the rest")


class Pipe(LineWriter):
    """A channel of lines over two descriptors."""

    def __init__(self, reading: int, writing: int) -> None:
        super().__init__(writing)
        self._input = reading
        self._done: asyncio.Future[None] | None = None

    def on_write_failed(self, what: str) -> None:
        """Stop reading from a client that does not read."""
        self.finish()

    @contextlib.contextmanager
    def non_blocking(self) -> Generator[None]:
        """Make both descriptors non-blocking while the context is open."""
        with self._non_blocking(self._output), self._non_blocking(self._input):
            yield

    def finish(self) -> None:
        """Stop reading."""
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def read(self, receive: Callable[[list[bytes | Fault]], None]) -> None:
        """Pass all lines to `receive`, those of one read together, until the end of the input."""
        lines = LineSplitter()
        loop = asyncio.get_running_loop()
        done = self._done = loop.create_future()

        def on_data(chunk: bytes) -> None:
            if done.done():
                return
            found = lines.feed(chunk)
            if len(found) < WRITE_GROUP:
                receive(found)
                return
            self.start_group()
            try:
                receive(found)
            finally:
                loop.call_soon(self.end_group)  # after the first step of each task

        if _is_pollable(self._input):
            await self._read_in_loop(on_data, done)
        else:
            self._read_in_thread(on_data)
            await done

    async def _read_in_loop(
        self, on_data: Callable[[bytes], None], done: asyncio.Future[None]
    ) -> None:
        loop = asyncio.get_running_loop()

        def on_readable() -> None:
            try:
                chunk = os.read(self._input, READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            if chunk:
                on_data(chunk)
            else:
                self.finish()

        loop.add_reader(self._input, on_readable)
        try:
            await done
        finally:
            loop.remove_reader(self._input)

    def _read_in_thread(self, on_data: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        ahead = threading.Semaphore(CHUNKS_AHEAD)

        def deliver(chunk: bytes) -> None:
            ahead.release()
            on_data(chunk)

        def read() -> None:
            with contextlib.suppress(OSError, RuntimeError):  # the descriptor or loop was closed
                while chunk := os.read(self._input, READ_BYTES):
                    ahead.acquire()
                    loop.call_soon_threadsafe(deliver, chunk)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.finish)

        threading.Thread(target=read, name="colonnade-stdin", daemon=True).start()

    @contextlib.contextmanager
    def _non_blocking(self, descriptor: int) -> Generator[None]:
        """Make a descriptor non-blocking for a while. A terminal is not changed: it is shared with
        other processes."""
        if not _is_pollable(descriptor) or not os.get_blocking(descriptor):
            yield
            return
        os.set_blocking(descriptor, False)
        try:
            yield
        finally:
            os.set_blocking(descriptor, True)


def _is_pollable(descriptor: int) -> bool:
    """Whether the loop can poll it: a pipe or a socket, except on Windows."""
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextlib.contextmanager
def redirect_standard_streams() -> Generator[tuple[int, int]]:
    """Reserve standard input and output for messages: the descriptors to read and to write.

    The originals are duplicated; from then on standard output, also of C code and of child
    processes, is standard error, and standard input is empty. Output that was buffered before goes
    to standard error, too.
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


class NonBlockingHandler(logging.Handler):
    """Logs to standard error without blocking, if logging is not configured otherwise.

    A client may ignore the server's standard error (R0483), and a full pipe must not stop the
    server.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; what does not fit into the pipe is dropped."""
        if logging.getLogger().handlers:
            return
        with contextlib.suppress(OSError, ValueError):
            data = f"{self.format(record)}\n".encode(errors="backslashreplace")
            while data and select.select([], [2], [], 0)[1]:
                data = data[os.write(2, data[: select.PIPE_BUF]) :]


@contextlib.contextmanager
def _non_blocking_logging() -> Generator[None]:
    logger = logging.getLogger("colonnade")
    if not _is_open(2) or not _is_pollable(2) or logger.hasHandlers():
        yield
        return
    handler = NonBlockingHandler(logging.WARNING)
    if logging.lastResort is not None:  # replaces that handler, so the format is the same
        handler.setFormatter(logging.lastResort.formatter)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def serve_pipe(pipe: Pipe, service: Service) -> None:
    """Serve one client over a pipe until the end of its input; then cancel what still runs."""

    def identity() -> Identity:
        return service.identity.for_callers(Callers.SINGLE)

    link = DuplexLink(Side.SERVER, identity(), service.accepts, current=identity)

    def on_notification(event: NotificationReceived) -> None:
        service.on_notification(replace(event, owner=duplex), link.peer)

    duplex = Duplex(
        link,
        pipe,
        service.respond,
        on_notification=on_notification,
        network=PIPE,
        telemetry=service.telemetry,
    )
    unwatch = service.watch_changes(duplex.notify_change, link.principal)
    with pipe.non_blocking():
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
    on_started: Callable[[int], None] | None = None,
) -> None:
    """Serve one client on this process's standard streams, until it closes standard input.

    SIGTERM and SIGHUP also end it, if the loop runs in the main thread. `streams` are those of
    `redirect_standard_streams`, if it was entered before; `on_started` is called with the input
    descriptor once the server has started.
    """
    with (
        contextlib.nullcontext(streams) if streams else redirect_standard_streams() as (
            reading,
            writing,
        )
    ):
        pipe = Pipe(reading, writing)
        await service.start()
        try:
            if on_started is not None:
                on_started(reading)
            with _stop_on_signals(service, pipe), _non_blocking_logging():
                await serve_pipe(pipe, service)
        finally:
            await service.stop()


@contextlib.contextmanager
def _stop_on_signals(service: Service, pipe: Pipe) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        service.drain()
        pipe.finish()

    def hang_up() -> None:
        log_hangup()
        stop()

    handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: stop}
    if HANGUP is not None and handles_hangup():
        handlers[HANGUP] = hang_up
    try:
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread
        yield
        return
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def run_stdio(
    service: Service,
    *,
    streams: tuple[int, int] | None = None,
    on_started: Callable[[int], None] | None = None,
) -> bool:
    """Run `serve_stdio` in a new event loop; afterwards no handler keeps the process alive.

    Started at a terminal, it prints a hint, unless `on_started` is given. Returns whether Ctrl-C
    ended it.
    """
    interrupted = False

    def print_hint(reading: int) -> None:
        print_terminal_hint(service, reading, 'server.run("http")')

    with asyncio.Runner() as runner:
        try:
            runner.run(serve_stdio(service, streams=streams, on_started=on_started or print_hint))
        except KeyboardInterrupt:
            interrupted = True
        close(runner, interrupted=interrupted, wait_s=THREADS_S)
    return interrupted


def print_terminal_hint(service: Service, reading: int, instead: str) -> None:
    """Print what the server waits for, and what to use instead, if its input is a terminal."""
    if os.isatty(reading):
        from colonnade.protocol.negotiation import name_and_version

        info = service.identity.info
        sys.stderr.write(
            f"{name_and_version(info)} is waiting for an MCP client on standard input; clients "
            f"start it themselves; for HTTP, use {instead}; Ctrl-C stops it\n"
        )
        sys.stderr.flush()
