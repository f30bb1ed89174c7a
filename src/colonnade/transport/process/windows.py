"""A child process on Windows: pipes of the event loop, and a job object for its descendants.

A job is ended as a whole, and Windows ends it when its last handle is closed: also when this
process is killed. There is no signal to ask for an exit: a child without a console gets none,
so the end of its input is all that it gets.

Rules: no batch file is started with arguments that Windows would run. `LoopProcess` runs on any
system, and is tested on others with a stand-in for the job; `WindowsJob` and the search for a
program have not been run on Windows.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from typing import Any, Protocol, cast

from colonnade.errors import CannotConnect, ConnectionLost
from colonnade.transport.process.command import Command, cannot_start, refuse_batch
from colonnade.transport.process.output import ProcessCallbacks
from colonnade.transport.process.sandbox import find_bubblewrap
from colonnade.transport.stdio import DRAIN_BYTES, MAX_UNREAD_BYTES

# How often the processes of a job are counted.
POLL_S = 0.02
# For the pipes of an exited process to end; descendants may hold them open.
REST_S = 0.1

_CREATE_NEW_PROCESS_GROUP, _CREATE_NO_WINDOW = 0x0000_0200, 0x0800_0000


class ProcessJob(Protocol):
    """A job object: a child and its descendants."""

    def add(self, process: Any) -> None: ...

    def terminate(self) -> None: ...

    @property
    def active(self) -> int: ...

    def close(self) -> None: ...


class TransportWriter:
    """The stdin of a child, over a transport of the event loop."""

    def __init__(self, reader: str, callbacks: ProcessCallbacks) -> None:
        self._reader = reader
        self._callbacks = callbacks
        self._written = 0
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._lost: str | None = None

    def open(self, transport: asyncio.WriteTransport) -> None:
        """Start writing to this transport."""
        transport.set_write_buffer_limits(high=DRAIN_BYTES, low=0)
        self._transport = transport

    @property
    def flushed(self) -> int:
        """How many bytes were written."""
        waits = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._written - waits

    def write(self, frame: bytes) -> None:
        """Write one line, or buffer it."""
        if self._lost is not None or self._transport is None:
            return
        self._written += len(frame) + 1
        if self._transport.get_write_buffer_size() + len(frame) > MAX_UNREAD_BYTES:
            self.lose(f"left {MAX_UNREAD_BYTES} bytes unread")
            return
        self._transport.write(frame + b"\n")

    async def drain(self) -> None:
        """Wait while much data is buffered. Raises `ConnectionLost`."""
        await self._room.wait()
        if self._lost is not None:
            raise ConnectionLost(self._lost)

    def pause(self) -> None:
        """Make `drain` wait."""
        self._room.clear()

    def resume(self) -> None:
        """Let `drain` return."""
        self._room.set()

    def lose(self, what: str) -> None:
        """The child does not read any more; `what` is what it did."""
        if self._lost is None:
            self.shut(f"{self._reader} {what}")
            self._callbacks.input_lost(what)

    def shut(self, why: str) -> None:
        """Stop writing."""
        if self._lost is None:
            self._lost = why
        self._room.set()
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()
        elif self._transport is not None:
            self._transport.close()


class LoopProcess(asyncio.SubprocessProtocol):
    """A child process of asyncio, in a job."""

    def __init__(self, command: Command, callbacks: ProcessCallbacks, job: ProcessJob) -> None:
        self.pid: int = 0
        self.over: bool = False
        self.status: int | None = None
        self.outlet: TransportWriter = TransportWriter(command.label, callbacks)
        self._callbacks = callbacks
        self._job = job
        self._transport: asyncio.SubprocessTransport | None = None
        self._exit = asyncio.Event()
        self._rest: asyncio.TimerHandle | None = None

    @classmethod
    async def start_in(
        cls,
        job: ProcessJob,
        command: Command,
        argv: tuple[str, ...],
        callbacks: ProcessCallbacks,
        flags: int = 0,
    ) -> "LoopProcess":
        """Start a command in a job. Raises `CannotConnect`; then the job is closed."""
        loop = asyncio.get_running_loop()
        try:
            transport, process = await loop.subprocess_exec(
                lambda: cls(command, callbacks, job),
                *argv,
                cwd=command.cwd,
                env=command.environment(),
                creationflags=flags,
            )
            # What it starts before this line is not in the job; that is some microseconds.
            job.add(transport.get_extra_info("subprocess"))
        except BaseException as error:
            job.close()
            if isinstance(error, OSError):
                raise cannot_start(command, error) from None
            if isinstance(error, NotImplementedError):
                raise CannotConnect(
                    "this loop cannot start processes; use asyncio.ProactorEventLoop"
                ) from None
            raise
        return process

    # ------------------------------------------------------------ callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        self.outlet.open(cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0)))
        self._output.pause_reading()

    @property
    def _output(self) -> asyncio.ReadTransport:
        assert self._transport is not None
        return cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It has written output."""
        (self._callbacks.output if fd == 1 else self._callbacks.errors)(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """One of its streams has ended."""
        if fd == 0:
            self.outlet.lose("the server closed its input")
        elif fd == 1:
            self._callbacks.output_ended()

    def pause_writing(self) -> None:
        """It reads too slowly."""
        self.outlet.pause()

    def resume_writing(self) -> None:
        """It has read."""
        self.outlet.resume()

    def process_exited(self) -> None:
        """It has exited; its last output may not have been read yet."""
        assert self._transport is not None
        self.over, self.status = True, self._transport.get_returncode()
        self._exit.set()
        self._rest = asyncio.get_running_loop().call_later(REST_S, self._on_exit)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has exited, and its streams have ended."""
        self._on_exit()

    def _on_exit(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None:
            rest.cancel()
            self._callbacks.exited()

    # ------------------------------------------------------------ the `Process` protocol

    def listen(self) -> None:
        """Begin to read its standard output."""
        self._output.resume_reading()

    def read_rest(self) -> None:
        """Nothing to do: asyncio has read everything."""

    def read_errors(self) -> None:
        """Nothing to do: asyncio has read everything."""

    async def wait(self, seconds: float) -> bool:
        """Wait for its exit; whether it has exited."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exit.wait()
        return self.over

    def close_input(self) -> None:
        """Close its standard input."""
        self.outlet.shut("the input was closed")

    def kill(self, *, force: bool) -> None:
        """Terminate the job, always by force."""
        self._job.terminate()

    async def clear(self, seconds: float) -> bool:
        """Wait for its descendants to exit; whether all have."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._job.active:
            if loop.time() >= until:
                return False
            await asyncio.sleep(POLL_S)
        return True

    async def release(self) -> None:
        """Close its pipes and the job, and wait until the loop has closed them."""
        self.let_go()
        await asyncio.sleep(0)  # the loop closes the pipes in its next iteration

    def let_go(self) -> None:
        """Close its pipes and the job, without waiting."""
        if self._transport is not None:
            self._transport.close()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._job.close()


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    _KILL_ON_JOB_CLOSE = 0x2000
    _EXTENDED_LIMITS, _ACCOUNTING = 9, 1

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
            ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class _Accounting(ctypes.Structure):
        _fields_ = (
            ("Times", wintypes.LARGE_INTEGER * 4),
            ("TotalPageFaultCount", wintypes.DWORD),
            ("TotalProcesses", wintypes.DWORD),
            ("ActiveProcesses", wintypes.DWORD),
            ("TotalTerminatedProcesses", wintypes.DWORD),
        )

    class WindowsJob:
        """A job object. Closing it ends whatever is in it."""

        def __init__(self) -> None:
            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self._kernel.CreateJobObjectW.restype = wintypes.HANDLE
            handle = self._kernel.CreateJobObjectW(None, None)
            if not handle:
                raise ctypes.WinError(ctypes.get_last_error())
            self._handle: wintypes.HANDLE | None = wintypes.HANDLE(handle)
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            self._kernel.SetInformationJobObject(
                self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )

        def add(self, process: Any) -> None:
            """Put a process into it."""
            handle = wintypes.HANDLE(int(process._handle))
            if not self._kernel.AssignProcessToJobObject(self._handle, handle):
                raise ctypes.WinError(ctypes.get_last_error())

        def terminate(self) -> None:
            """End all that is in it."""
            if self._handle is not None:
                self._kernel.TerminateJobObject(self._handle, 1)

        @property
        def active(self) -> int:
            """How many are in it."""
            counts = _Accounting()
            if self._handle is None or not self._kernel.QueryInformationJobObject(
                self._handle, _ACCOUNTING, ctypes.byref(counts), ctypes.sizeof(counts), None
            ):
                return 0
            return int(counts.ActiveProcesses)

        def close(self) -> None:
            """Let it go."""
            handle, self._handle = self._handle, None
            if handle is not None:
                self._kernel.CloseHandle(handle)

    class WindowsProcess(LoopProcess):
        """A child in a job of its own."""

        @classmethod
        async def start(cls, command: Command, callbacks: ProcessCallbacks) -> LoopProcess:
            """Start a command. Raises `CannotConnect`, and `Refused` for a batch file's words."""
            if command.sandbox is not None:
                await find_bubblewrap(command.name)  # raises: there is none for Windows
            environment = command.environment()
            word = os.path.join(command.cwd or "", command.argv[0])
            path = environment.get("PATH") or environment.get("Path")
            found = shutil.which(command.argv[0], path=path) or shutil.which(word)
            program = found or command.argv[0]
            refuse_batch(program, command.argv[1:])
            argv = (program, *command.argv[1:])
            flags = _CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW
            return await cls.start_in(WindowsJob(), command, argv, callbacks, flags)
