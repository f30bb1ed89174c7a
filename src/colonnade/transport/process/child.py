"""The stdio client transport: an MCP server as a child process.

    child = await start_child(["uvx", "mcp-server-git"], name="git", env={"GIT_DIR": "…"})
    client = Client(child.open_conversation, info=…)

However the child ends, there is one error: its name, what it did, and the last lines that it wrote.
`shutdown_steps` decides how it is shut down; `posix` and `windows` start, read and kill processes.

Rules: everything runs in the event loop that started it. There is no task while it runs, and one
while it is shut down. No process is left after `close`, nor after its own exit.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from colonnade.errors import NO_OUTPUT, ConnectionLost, Fault, LocalProtocolError, Output
from colonnade.ports import ConnectionEvents
from colonnade.protocol.exchange import PIPE
from colonnade.protocol.jsonrpc import MAX_LINE_BYTES
from colonnade.protocol.link.link import DuplexLink
from colonnade.text import clean
from colonnade.transport.duplex import ClientDuplex
from colonnade.transport.process.command import Command
from colonnade.transport.process.output import (
    LineCallbacks,
    ProcessCallbacks,
    StderrTail,
    StdoutFilter,
    redact,
)
from colonnade.transport.process.sandbox import GivenSandbox

# A server that exits at the end of its input takes less than a second; one that cleans up gets as
# much again after SIGTERM. Together below five seconds.
GRACE_S = 2.0
# Descendants had their time while the child had its own.
STRAGGLERS_S = 0.5
# A killed process ends at once, unless the kernel waits for a disk or a network.
KILLED_S = 0.5


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Close its standard input."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the child to exit; its outcome is whether it has."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Clear:
    """Wait for its descendants to exit; its outcome is whether all have."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Kill:
    """Send it and its descendants SIGTERM, or SIGKILL by force."""

    force: bool


Step: TypeAlias = CloseInput | Wait | Clear | Kill
Steps: TypeAlias = Generator[Step, bool, None]


def shutdown_steps(grace_s: float = GRACE_S) -> Steps:
    """The steps of a shutdown; the outcome of each wait is sent to the generator."""
    terminated = False
    yield CloseInput()  # R0021, R0839
    if not (yield Wait(grace_s)):  # R0840
        terminated = True
        yield Kill(force=False)  # R0022
        if not (yield Wait(grace_s)):
            yield Kill(force=True)  # R0023, R0841
            yield Wait(KILLED_S)
    if (yield Clear(0.0)):
        return
    if not terminated:  # a second SIGTERM means "at once" to many programs
        yield Kill(force=False)
    if not (yield Clear(STRAGGLERS_S)):
        yield Kill(force=True)
        yield Clear(KILLED_S)


def forced_shutdown_steps() -> Steps:
    """The same for a loop that is about to be closed."""
    yield Kill(force=True)
    yield CloseInput()
    yield Wait(KILLED_S)
    if not (yield Clear(0.0)):
        yield Kill(force=True)


def describe_status(status: int | None) -> str:
    """How a process ended, for messages."""
    if status is None:
        return "ended with an unknown status: another part of this program waited for it"
    if status >= 0:
        return f"exited with {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


if sys.platform == "win32":
    from colonnade.transport.process.windows import WindowsProcess as OurProcess
else:
    from colonnade.transport.process.posix import PosixProcess as OurProcess

log: logging.Logger = logging.getLogger("colonnade.transport")
# One line when a child starts and one when it has ended: what was run on this machine.
process_log: logging.Logger = logging.getLogger("colonnade.processes")

# A process that dies closes its streams a moment before its exit status is known.
EXIT_S = 0.5
# A server that leaves a megabyte unread for so long does not read any more: as long as a call.
STALL_S = 60.0
# For cancelled handlers to clean up.
CLEAN_UP_S = 5.0
# For a program that exited with 0 without a message.
UNSERVED = "; a server goes on until its input ends: does it call run()?"


class ChildInput(Protocol):
    """The standard input of a child."""

    @property
    def flushed(self) -> int:
        """How many buffered bytes were written."""
        ...

    def write(self, frame: bytes) -> None: ...

    async def drain(self) -> None: ...


class Process(Protocol):
    """A process on any system; see `posix` and `windows`."""

    @property
    def pid(self) -> int: ...
    @property
    def over(self) -> bool: ...
    @property
    def status(self) -> int | None: ...
    @property
    def outlet(self) -> ChildInput: ...

    def listen(self) -> None: ...
    def read_rest(self) -> None: ...
    def read_errors(self) -> None: ...
    async def wait(self, seconds: float) -> bool: ...
    def close_input(self) -> None: ...
    def kill(self, *, force: bool) -> None: ...
    async def clear(self, seconds: float) -> bool: ...
    async def release(self) -> None: ...
    def let_go(self) -> None: ...


Starter: TypeAlias = Callable[[Command, ProcessCallbacks], Awaitable[Process]]


class ChildReceiver(Protocol):
    """Receives the messages of a child: a duplex."""

    def receive(self, frame: bytes) -> None: ...

    def refuse(self, fault: Fault) -> None: ...

    def close(
        self,
        why: str,
        more: str = "",
        *,
        server: str | None = None,
        output: Output = NO_OUTPUT,
    ) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


class Child:
    """One child process, from its start to the end of its descendants. See `start_child`."""

    def __init__(
        self,
        command: Command,
        *,
        on_stderr: Callable[[str], None] | None = None,
        grace_s: float = GRACE_S,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._command = command
        self._grace_s = grace_s
        self._on_stderr = on_stderr
        self._stderr_tail = StderrTail(self._on_stderr_line if on_stderr is not None else None)
        callbacks = LineCallbacks(self._receive, self._refuse, self._fail, self._log_noise)
        self._stdout_filter = StdoutFilter(callbacks, max_line_bytes)
        self._started: Process | None = None
        self._reader: ChildReceiver | None = None
        self._on_closed: Callable[[], None] | None = None
        self._exit_timer: asyncio.TimerHandle | None = None
        self._close_reason: str | None = None
        self._close_details = ""
        # If it exited by itself, or had to be killed: the name in `_why`, its last output, what it
        # did, and its exit status.
        self._failed_server: str | None = None
        self._last_output = NO_OUTPUT
        self.failure: str | None = None
        self.exit_status: int | None = None
        self._ended = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def start(self, starter: Starter = OurProcess.start) -> None:
        """Start it. Raises `CannotConnect`."""
        callbacks = ProcessCallbacks(
            output=self._output,
            output_ended=self._output_ended,
            errors=self._stderr_tail.feed,
            input_lost=self._suspect,
            exited=self._exited,
        )
        self._started = await starter(self._command, callbacks)
        self._log_start()

    def _log_start(self) -> None:
        """R1336: the program alone; its arguments may be secret."""
        sandbox = self._command.sandbox
        process_log.info(
            "%s started %s %s",
            self.label,
            clean(os.path.basename(self._command.argv[0])),
            f"in a sandbox: {clean(sandbox.describe())}" if sandbox else "without a sandbox",
        )

    def __repr__(self) -> str:
        return f"Child({self.label}, {self._close_reason or 'alive'})"

    @property
    def _process(self) -> Process:
        assert self._started is not None
        return self._started

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def label(self) -> str:
        """Its name in an error."""
        return f"{self._command.label} (pid {self.pid})"

    @property
    def lost(self) -> ConnectionLost | None:
        """Why the connection has ended; None while it has not."""
        if self._close_reason is None:
            return None
        words = self._close_reason + self._close_details
        return ConnectionLost(words, server=self._failed_server, output=self._last_output)

    @property
    def noise_lines(self) -> int:
        """How many lines of its standard output were not messages."""
        return self._stdout_filter.noise_lines

    @property
    def printed(self) -> list[str]:
        """The last of those lines, with its secrets redacted."""
        return redact(self._stdout_filter.kept, self._command.secrets())

    @property
    def output(self) -> Output:
        """Its last lines beside messages, with its secrets redacted."""
        secrets = self._command.secrets()
        if errors := self._stderr_tail.lines():
            return Output(stderr=tuple(redact(errors, secrets)))
        return Output(stdout=tuple(redact(self._stdout_filter.kept, secrets)))

    def lines_since(self, text: str) -> list[str]:
        """The lines of its standard error from the one with this text on, with its secrets
        redacted; the last ones if there are many."""
        if not self._process.over:
            self._process.read_errors()
        return redact(self._stderr_tail.since(text), self._command.secrets())

    # ------------------------------------------------------------ the connection

    def open_conversation(self, link: DuplexLink, events: ConnectionEvents) -> ClientDuplex:
        """Open a client's connection to the child."""
        conversation = ClientDuplex(link, self, events, network=PIPE)
        self.join(conversation, events.on_closed)
        return conversation

    def join(self, reader: ChildReceiver, on_closed: Callable[[], None] | None = None) -> None:
        """Pass its messages to this reader; call `on_closed` at the end of the connection."""
        if self._reader is not None:
            raise LocalProtocolError(f"{self.label} is already in use")
        self._reader, self._on_closed = reader, on_closed
        loop = asyncio.get_running_loop()
        if self._close_reason is not None:
            loop.call_soon(self._notify_closed)
        elif self._process.over:
            loop.call_soon(self._exited)
        else:
            self._process.listen()

    def write(self, frame: bytes) -> None:
        """Write one line, or buffer it."""
        if self._close_reason is None:
            self._process.outlet.write(frame)

    async def drain(self) -> None:
        """Wait while much data is buffered. Raises `ConnectionLost`, also if it never reads."""
        outlet = self._process.outlet
        while self._close_reason is None:
            before = outlet.flushed
            try:
                async with asyncio.timeout(STALL_S):
                    await outlet.drain()
                    return
            except TimeoutError:
                if outlet.flushed == before:
                    self._fail(f"read nothing for {STALL_S:g} s", "; it is ended")
            except ConnectionLost:
                await self._ended.wait()  # the reason is known in a moment
        lost = self.lost
        assert lost is not None
        raise lost

    # ------------------------------------------------------------ its output

    def _output(self, chunk: bytes) -> None:
        if self._close_reason is None:  # else it is only read so that it does not block
            self._stdout_filter.feed(chunk)

    def _receive(self, frame: bytes) -> None:
        if self._close_reason is None and self._reader is not None:
            try:
                self._reader.receive(frame)
            except Exception as error:  # the next message is handled all the same
                loop = asyncio.get_running_loop()
                loop.call_exception_handler(
                    {
                        "message": f"a message of {self.label} could not be handled",
                        "exception": error,
                    }
                )

    def _refuse(self, fault: Fault) -> None:
        if self._close_reason is None and self._reader is not None:
            self._reader.refuse(fault)

    def _log_noise(self, line: str) -> None:
        words = "%s writes to its standard output what is not a message: %r"
        level = logging.WARNING if self._stdout_filter.noise_lines == 1 else logging.DEBUG
        if log.isEnabledFor(level):
            (shown,) = redact([line], self._command.secrets())
            log.log(level, words, self.label, shown)

    def _on_stderr_line(self, line: str) -> None:
        assert self._on_stderr is not None
        (shown,) = redact([line], self._command.secrets())
        try:
            self._on_stderr(shown)
        except Exception as error:  # it must be read further all the same
            log.error("on_stderr raised %s", type(error).__name__, exc_info=error)

    # ------------------------------------------------------------ shutdown

    def _output_ended(self) -> None:
        self._finish_output()
        self._suspect("closed its output", "; it did not exit, and is ended")

    def _finish_output(self) -> None:
        if self._close_reason is None:
            self._stdout_filter.finish()

    def _suspect(self, what: str, more: str = "") -> None:
        """The connection is unusable; wait a moment whether the process exits."""
        if self._close_reason is None and self._exit_timer is None:
            loop = asyncio.get_running_loop()
            self._exit_timer = loop.call_later(EXIT_S, self._fail, what, more)

    def _exited(self) -> None:
        if self._close_reason is not None or self._reader is None:
            return  # it was closed, or has no reader yet
        self._process.read_rest()
        self._finish_output()
        self._stderr_tail.finish()
        silent = "" if self._stdout_filter.messages else "; it had sent no message"
        if silent and self._process.status == 0 and not self.output:
            silent += UNSERVED
        self.exit_status = self._process.status
        self._fail(describe_status(self.exit_status), silent)

    def _fail(self, what: str, more: str = "") -> None:
        """Shut it down for what it did; the error has its name and its last output."""
        if self._close_reason is None:
            self._failed_server, self._last_output = self._command.name, self.output
            self.failure = f"{what}{more}"
            self._end(f"{self.label} {what}", more)

    def _end(self, why: str, more: str = "") -> None:
        if self._close_reason is not None:
            return  # the first reason counts
        self._close_reason, self._close_details = why, more
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        self._ended.set()
        self._ending = asyncio.get_running_loop().create_task(self._finish())
        self._notify_closed()

    def _notify_closed(self) -> None:
        if self._on_closed is not None:
            self._on_closed()
        if self._reader is not None and self._close_reason is not None:
            self._reader.close(
                self._close_reason,
                self._close_details,
                server=self._failed_server,
                output=self._last_output,
            )

    async def close(self, why: str = "the connection was closed") -> None:
        """Shut down the process and its descendants, and wait for that; may be called twice.

        A cancellation does not stop the shutdown.
        """
        self._end(why)
        assert self._ending is not None
        await asyncio.shield(self._ending)
        if self._reader is not None:
            await self._reader.ended(CLEAN_UP_S)

    async def _finish(self) -> None:
        process = self._process
        try:
            try:
                await self._follow(shutdown_steps(self._grace_s))
            except (
                asyncio.CancelledError
            ):  # the loop is about to be closed, and must not wait for long
                await self._follow(forced_shutdown_steps())
            if not process.over:
                log.warning("%s cannot be killed", self.label)
            else:
                process_log.info("%s %s", self.label, describe_status(process.status))
            await process.release()
        except asyncio.CancelledError:
            process.kill(force=True)
        finally:
            process.let_go()

    async def _follow(self, steps: Steps) -> None:
        outcome = False
        try:
            step = next(steps)
            while True:
                outcome = await self._apply(step)
                step = steps.send(outcome)
        except StopIteration:
            return

    async def _apply(self, step: Step) -> bool:
        match step:
            case CloseInput():
                self._process.close_input()
            case Wait():
                return await self._process.wait(step.seconds)
            case Clear():
                return await self._process.clear(step.seconds)
            case Kill():
                self._process.kill(force=step.force)
        return True


async def start_child(
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    on_stderr: Callable[[str], None] | None = None,
    grace_s: float = GRACE_S,
    max_line_bytes: int = MAX_LINE_BYTES,
    sandbox: GivenSandbox = None,
) -> Child:
    """Start a server. Raises `CannotConnect`, `InvalidArgument` for what is not a command, and
    `Refused` for one that would run more than itself.

    `name` is its name in errors. `env` is added to the few variables that every child gets.
    `on_stderr` is called with every line of its standard error, with its secrets redacted.
    `grace_s` is the time that it has to exit, after the end of its input and after SIGTERM.
    `sandbox` is what it may do (see `sandbox`); it is not started if there can be no sandbox.
    """
    command = Command.of(argv, name=name, cwd=cwd, env=env, sandbox=sandbox)
    child = Child(command, on_stderr=on_stderr, grace_s=grace_s, max_line_bytes=max_line_bytes)
    await child.start()
    return child
