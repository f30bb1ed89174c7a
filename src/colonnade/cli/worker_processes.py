"""`colonnade serve --workers`: one process that binds the port, and several that accept on it.

The parent never runs the file. It binds the socket, starts the workers with it, starts another one
for each that ends, and ends them all. Parent and worker have a pair of sockets: the worker gets a
key there, writes a line when it serves, and reads the end of the parent.

Rules: an error of the file is reported by the first worker alone, before others are started. A
signal gets to the workers through the parent: the first lets calls finish, the second does not, the
third kills. No worker outlives its parent for longer than its calls take.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Generator
from typing import Final

from colonnade.cli.errors import FAILED, INTERRUPTED, UNREACHABLE, CliError, Reporter
from colonnade.cli.loader import WORKER_ENV
from colonnade.transport.signals import (
    HANGUP,
    SHUTDOWN_SIGNALS,
    handles_hangup,
    log_hangup,
)

KEY_BYTES: Final = 32
# A worker that ends so soon after its start was hardly of use. So many in a row are no coincidence.
QUICK_S = 10.0
MAX_QUICK_ENDS = 5
# Before a worker is started again: doubled each time that it ends quickly.
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0
# After the second signal, before workers are killed: they take six seconds at most by themselves.
KILL_S = 8.0
MAX_LINE_BYTES = 64 * 1024


# ---------------------------------------------------------------- in a worker


class InheritedWorker:
    """What a worker process has from its parent."""

    def __init__(self, listener: socket.socket, control: socket.socket) -> None:
        self.listener = listener
        self._control = control
        for one in (listener, control):
            one.set_inheritable(False)  # by what the file starts
        self.key: bytes = control.recv(KEY_BYTES, socket.MSG_WAITALL)

    def on_served(self, line: str, end: Callable[[], None]) -> None:
        """It serves: say so, and end with the parent."""
        self._control.sendall(f"{line}\n".encode())
        self._control.setblocking(False)
        loop = asyncio.get_running_loop()

        def on_readable() -> None:  # the parent writes no more: it has ended
            loop.remove_reader(self._control)
            end()

        loop.add_reader(self._control, on_readable)


@contextlib.contextmanager
def inherited_worker() -> Generator[InheritedWorker]:
    """What the parent has left for this process; once."""
    descriptors = os.environ.pop(WORKER_ENV).split()
    listening, control = (socket.socket(fileno=int(one)) for one in descriptors)
    with listening, control:
        yield InheritedWorker(listening, control)


# ---------------------------------------------------------------- in the parent


class WorkerProcess:
    """One worker process, and the parent's side of its pair of sockets."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self.started_at: float = asyncio.get_running_loop().time()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def line(self) -> str:
        """The line that it writes when it serves; empty if it ends before."""
        loop, data = asyncio.get_running_loop(), b""
        with contextlib.suppress(ConnectionError):
            while not data.endswith(b"\n") and len(data) < MAX_LINE_BYTES:
                if not (more := await loop.sock_recv(self._control, 4096)):
                    return ""
                data += more
        return data.decode().rstrip("\n")

    async def wait(self) -> int:
        """Its exit status; negative for a signal."""
        code = await self._process.wait()
        self._control.close()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


class FirstWorkerEnded(Exception):
    """The first worker ended before it served, and has reported why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code: int = code


class WorkerPool:
    """The workers of one port: as many as there are to be, until they are ended."""

    def __init__(
        self, command: list[str], count: int, listener: socket.socket, reporter: Reporter
    ) -> None:
        self._command = command
        self._count = count
        self._listener = listener
        self._reporter = reporter
        # The same for all, so that each decrypts the request state of the others.
        self._key = secrets.token_bytes(KEY_BYTES)
        self._workers: set[WorkerProcess] = set()
        self._signals: list[signal.Signals] = []
        self._stopping = asyncio.Event()
        self._serves = asyncio.Event()
        self._serving = 0
        # The highest exit status of a worker that was signalled to end.
        self.code: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self._signals[:1] == [signal.SIGINT]

    async def run(self) -> None:
        """Serve until SIGTERM, SIGHUP or Ctrl-C. Raises `CliError` and `FirstWorkerEnded`."""
        loop = asyncio.get_running_loop()
        for number in SHUTDOWN_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        if HANGUP is not None and handles_hangup():
            loop.add_signal_handler(HANGUP, self._on_signal, HANGUP)
        keepers = [loop.create_task(self._keep())]
        serves = loop.create_task(self._serves.wait())
        try:
            await asyncio.wait({serves, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            if self._serves.is_set():
                keepers += [loop.create_task(self._keep()) for _ in range(1, self._count)]
            await asyncio.wait(keepers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            serves.cancel()
            self._stop()
            await asyncio.wait(keepers)
        for keeper in keepers:
            keeper.result()

    async def _keep(self) -> None:
        """Have one worker, and start another one when it ends."""
        quick, served = 0, False
        while not self._stopping.is_set():
            worker = await self._start()
            line = await worker.line()
            if line and not served:
                served = True
                self._on_worker_served(line)
            code = await worker.wait()
            self._workers.discard(worker)
            if self._stopping.is_set():
                self.code = max(self.code, code)
                return
            if not self._serves.is_set():
                raise FirstWorkerEnded(code)
            lived_s = asyncio.get_running_loop().time() - worker.started_at
            quick = quick + 1 if lived_s < QUICK_S else 0
            status = f"signal {-code}" if code < 0 else f"exit status {code}"
            if quick >= MAX_QUICK_ENDS:
                words = (
                    f"a worker process ended {quick} times in a row within {QUICK_S:g} s of its "
                    f"start, the last time with {status}"
                )
                raise CliError(words, FAILED, hint="its messages are above")
            self._reporter.info(
                f"worker process {worker.pid} ended with {status}; another one is started"
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(FIRST_DELAY_S * 2**quick, MAX_DELAY_S)):
                    await self._stopping.wait()

    async def _start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            descriptors = (self._listener.fileno(), theirs.fileno())
            environment = os.environ | {WORKER_ENV: " ".join(map(str, descriptors))}
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                process_group=0,  # a terminal sends Ctrl-C to all processes of its group
            )
        ours.send(self._key)
        worker = WorkerProcess(process, ours)
        self._workers.add(worker)
        if self._stopping.is_set():
            worker.signal(signal.SIGTERM)
        return worker

    def _on_worker_served(self, line: str) -> None:
        from colonnade.transport.http_server.runner import print_line

        self._serves.set()
        self._serving += 1
        if self._serving == self._count:
            print_line(line)

    # ------------------------------------------------------------ end

    def _on_signal(self, number: signal.Signals) -> None:
        if number == HANGUP:
            log_hangup()
        self._signals.append(number)
        self._stop()

    def _stop(self) -> None:
        """End the workers; each time with less patience."""
        self._listener.close()
        self._stopping.set()
        if len(self._signals) == 2:
            loop = asyncio.get_running_loop()
            loop.call_later(KILL_S, self._signal, signal.SIGKILL)
        self._signal(signal.SIGKILL if len(self._signals) > 2 else signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(number)


def serve_with_workers(
    command: list[str], count: int, host: str, port: int, reporter: Reporter
) -> int:
    """Serve with so many processes of a command, to which the port is added; return the exit code.

    Raises `CliError`.
    """
    if sys.platform == "win32":
        raise CliError(
            "--workers is not available on Windows, where a process cannot inherit a socket",
            hint="run several processes on several ports, behind a reverse proxy",
        )
    from colonnade.transport.http_server.runner import AddressError, bind

    try:
        listener = bind(host, port)
    except AddressError as error:
        raise CliError(str(error), UNREACHABLE) from None

    async def serve() -> int:
        at = command.index("--")
        with_port = [*command[:at], "--port", str(listener.getsockname()[1]), *command[at:]]
        pool = WorkerPool(with_port, count, listener, reporter)
        try:
            await pool.run()
        except FirstWorkerEnded as ended:
            return ended.code if ended.code > 0 else FAILED
        return INTERRUPTED if pool.interrupted else pool.code

    with listener:
        return asyncio.run(serve())
