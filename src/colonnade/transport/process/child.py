"""A child process that speaks on its standard streams, as the channel of a client.

    child = await start_child(["uvx", "mcp-server-git"], name="git", env={"GIT_DIR": "…"})
    client = Client(child.carry, info=…)

Whatever the child does, it becomes one end with one sentence: who it was, what it did, and the
last lines that it wrote. How it is ended is decided in `child_ending`; how a process is started,
heard and killed is `child_process`, or `child_windows`.

Rules: one owner: everything here happens in the loop that started it. There is no task while it
lives, and one while it ends. Nothing is left of it after `close`, nor after its own end.
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
from colonnade.ports import Hearer
from colonnade.protocol.jsonrpc import MAX_LINE_BYTES
from colonnade.protocol.link.link import Link
from colonnade.transport.duplex import Held
from colonnade.transport.process.command import Command
from colonnade.transport.process.output import Ears, Hears, Sieve, Tail, blotted

# A server that honours the end of its input takes less than a second; one that cleans up gets as
# much again after it was told to end. Together below five seconds.
GRACE_S = 2.0
# What a child left behind had its time while the child had its own.
STRAGGLERS_S = 0.5
# A process that is killed is gone at once, unless the kernel itself waits for a disk or a network.
KILLED_S = 0.5


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Close its standard input."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the child so long; say whether it is gone."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Clear:
    """Wait for all that it started; say whether nothing is left."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Kill:
    """Tell it, and all that it started, to end; by force it is not asked."""

    force: bool


Step: TypeAlias = CloseInput | Wait | Clear | Kill
Steps: TypeAlias = Generator[Step, bool, None]


def ending_steps(grace_s: float = GRACE_S) -> Steps:
    """Say what to do next; be told what a wait came to."""
    asked = False
    yield CloseInput()  # R0021, R0839
    if not (yield Wait(grace_s)):  # R0840
        asked = True
        yield Kill(force=False)  # R0022
        if not (yield Wait(grace_s)):
            yield Kill(force=True)  # R0023, R0841
            yield Wait(KILLED_S)
    if (yield Clear(0.0)):
        return
    if not asked:  # to be told twice means "at once" to many a program
        yield Kill(force=False)
    if not (yield Clear(STRAGGLERS_S)):
        yield Kill(force=True)
        yield Clear(KILLED_S)


def hurried_steps() -> Steps:
    """The same for a loop that is about to end."""
    yield Kill(force=True)
    yield CloseInput()
    yield Wait(KILLED_S)
    if not (yield Clear(0.0)):
        yield Kill(force=True)


def described(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended, and who else waits for processes here knows how"
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

# A process that dies closes its streams a moment before it can be asked how it died.
EXIT_S = 0.5
# Who leaves a megabyte unread for so long does not read any more: as long as a call waits.
STALL_S = 60.0
# For handlers that were stopped to clean up.
CLEAN_UP_S = 5.0
# For a program that came to its end as if there were nothing to do.
UNSERVED = "; a server goes on until its input ends: does it call run()?"


class Intake(Protocol):
    """The standard input of a child."""

    @property
    def flushed(self) -> int:
        """How much of what had to wait was read."""
        ...

    def write(self, frame: bytes) -> None: ...

    async def drain(self) -> None: ...


class Process(Protocol):
    """A process, whatever the system. `child_process` and `child_windows` say more."""

    @property
    def pid(self) -> int: ...
    @property
    def over(self) -> bool: ...
    @property
    def status(self) -> int | None: ...
    @property
    def outlet(self) -> Intake: ...

    def listen(self) -> None: ...
    def read_rest(self) -> None: ...
    def read_errors(self) -> None: ...
    async def wait(self, seconds: float) -> bool: ...
    def close_input(self) -> None: ...
    def kill(self, *, force: bool) -> None: ...
    async def clear(self, seconds: float) -> bool: ...
    async def release(self) -> None: ...
    def let_go(self) -> None: ...


Starter: TypeAlias = Callable[[Command, Ears], Awaitable[Process]]


class Reader(Protocol):
    """Whoever reads what the child says: a duplex."""

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
    """One child, from its start to the end of all that it started. See `start_child`."""

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
        self._tail = Tail(self._hear_error if on_stderr is not None else None)
        hears = Hears(self._receive, self._refuse, self._fail, self._littered)
        self._sieve = Sieve(hears, max_line_bytes)
        self._started: Process | None = None
        self._reader: Reader | None = None
        self._leave: Callable[[], None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._why: str | None = None
        self._more = ""
        # Where it ended by itself, or had to be ended: the name in `_why`, what it had written by
        # then, what it did, and its exit status, if it has exited.
        self._blamed: str | None = None
        self._last_output = NO_OUTPUT
        self.failure: str | None = None
        self.exit_status: int | None = None
        self._told = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def start(self, starter: Starter = OurProcess.start) -> None:
        """Start it. Raises `CannotConnect`."""
        ears = Ears(
            output=self._output,
            output_ended=self._output_ended,
            errors=self._tail.feed,
            input_lost=self._suspect,
            exited=self._exited,
        )
        self._started = await starter(self._command, ears)

    def __repr__(self) -> str:
        return f"Child({self.whom}, {self._why or 'alive'})"

    @property
    def _process(self) -> Process:
        assert self._started is not None
        return self._started

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def whom(self) -> str:
        """Who it is, in an error."""
        return f"{self._command.whom} (pid {self.pid})"

    @property
    def lost(self) -> ConnectionLost | None:
        """Why there is no conversation any more; None while there is one."""
        if self._why is None:
            return None
        words = self._why + self._more
        return ConnectionLost(words, server=self._blamed, output=self._last_output)

    @property
    def rubbish(self) -> int:
        """How many lines of its standard output were no messages."""
        return self._sieve.rubbish

    @property
    def printed(self) -> list[str]:
        """The last of those lines, without the secrets that it was given."""
        return blotted(self._sieve.kept, self._command.secrets())

    @property
    def output(self) -> Output:
        """What it wrote beside messages, without the secrets that it was given."""
        secrets = self._command.secrets()
        if errors := self._tail.lines():
            return Output(stderr=tuple(blotted(errors, secrets)))
        return Output(stdout=tuple(blotted(self._sieve.kept, secrets)))

    def lines_since(self, words: str) -> list[str]:
        """What it wrote to its standard error from the line with these words on, without the
        secrets that it was given; of much, the last lines."""
        if not self._process.over:
            self._process.read_errors()
        return blotted(self._tail.since(words), self._command.secrets())

    # ------------------------------------------------------------ a conversation

    def carry(self, link: Link, hearer: Hearer) -> Held:
        """Carry a client's conversation."""
        held = Held(link, self, hearer)
        self.join(held, hearer.gone)
        return held

    def join(self, reader: Reader, leave: Callable[[], None] | None = None) -> None:
        """Hand what it says to this reader; at the end call `leave`."""
        if self._reader is not None:
            raise LocalProtocolError(f"{self.whom} is joined already")
        self._reader, self._leave = reader, leave
        loop = asyncio.get_running_loop()
        if self._why is not None:
            loop.call_soon(self._tell)
        elif self._process.over:
            loop.call_soon(self._exited)
        else:
            self._process.listen()

    def write(self, frame: bytes) -> None:
        """Write one line, now if it can take it."""
        if self._why is None:
            self._process.outlet.write(frame)

    async def drain(self) -> None:
        """Wait while much is unread. Raises `ConnectionLost`, also where it never reads."""
        outlet = self._process.outlet
        while self._why is None:
            before = outlet.flushed
            try:
                async with asyncio.timeout(STALL_S):
                    await outlet.drain()
                    return
            except TimeoutError:
                if outlet.flushed == before:
                    self._fail(f"read nothing for {STALL_S:g} s", "; it is ended")
            except ConnectionLost:
                await self._told.wait()  # how it came to that is known in a moment
        lost = self.lost
        assert lost is not None
        raise lost

    # ------------------------------------------------------------ what it says

    def _output(self, chunk: bytes) -> None:
        if self._why is None:  # or it is only read so that it can go on to its end
            self._sieve.feed(chunk)

    def _receive(self, frame: bytes) -> None:
        if self._why is None and self._reader is not None:
            try:
                self._reader.receive(frame)
            except Exception as error:  # the next message is not to blame
                loop = asyncio.get_running_loop()
                loop.call_exception_handler(
                    {"message": f"a message of {self.whom} was read badly", "exception": error}
                )

    def _refuse(self, fault: Fault) -> None:
        if self._why is None and self._reader is not None:
            self._reader.refuse(fault)

    def _littered(self, line: str) -> None:
        words = "%s writes to its standard output what is no message: %r"
        level = logging.WARNING if self._sieve.rubbish == 1 else logging.DEBUG
        if log.isEnabledFor(level):
            (said,) = blotted([line], self._command.secrets())
            log.log(level, words, self.whom, said)

    def _hear_error(self, line: str) -> None:
        assert self._on_stderr is not None
        (said,) = blotted([line], self._command.secrets())
        try:
            self._on_stderr(said)
        except Exception as error:  # it must go on being read all the same
            log.error("on_stderr raised %s", type(error).__name__, exc_info=error)

    # ------------------------------------------------------------ its end

    def _output_ended(self) -> None:
        self._finish_output()
        self._suspect("closed its output", "; it did not exit, and is ended")

    def _finish_output(self) -> None:
        if self._why is None:
            self._sieve.finish()

    def _suspect(self, what: str, more: str = "") -> None:
        """No conversation is possible any more; it may be that it is about to exit."""
        if self._why is None and self._alarm is None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(EXIT_S, self._fail, what, more)

    def _exited(self) -> None:
        if self._why is not None or self._reader is None:
            return  # it was ended, or nobody has asked yet
        self._process.read_rest()
        self._finish_output()
        self._tail.finish()
        silent = "" if self._sieve.messages else "; it had sent no message"
        if silent and self._process.status == 0 and not self.output:
            silent += UNSERVED
        self.exit_status = self._process.status
        self._fail(described(self.exit_status), silent)

    def _fail(self, what: str, more: str = "") -> None:
        """End it for what it did: it is named for that, and what it wrote last belongs to it."""
        if self._why is None:
            self._blamed, self._last_output = self._command.name, self.output
            self.failure = f"{what}{more}"
            self._end(f"{self.whom} {what}", more)

    def _end(self, why: str, more: str = "") -> None:
        if self._why is not None:
            return  # the first reason is the reason
        self._why, self._more = why, more
        if self._alarm is not None:
            self._alarm.cancel()
        self._told.set()
        self._ending = asyncio.get_running_loop().create_task(self._finish())
        self._tell()

    def _tell(self) -> None:
        if self._leave is not None:
            self._leave()
        if self._reader is not None and self._why is not None:
            self._reader.close(self._why, self._more, server=self._blamed, output=self._last_output)

    async def close(self, why: str = "the connection was closed") -> None:
        """End it and all that it started, and wait for that; at any time, and twice.

        Whoever gives up waiting does not stop it.
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
                await self._follow(ending_steps(self._grace_s))
            except asyncio.CancelledError:  # the loop is about to end, and must not wait for long
                await self._follow(hurried_steps())
            if not process.over:
                log.warning("%s cannot be killed, and is left alone", self.whom)
            await process.release()
        except asyncio.CancelledError:
            process.kill(force=True)
        finally:
            process.let_go()

    async def _follow(self, steps: Steps) -> None:
        came_to = False
        try:
            step = next(steps)
            while True:
                came_to = await self._take(step)
                step = steps.send(came_to)
        except StopIteration:
            return

    async def _take(self, step: Step) -> bool:
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
) -> Child:
    """Start a server. Raises `CannotConnect`, `LocalProtocolError` for what is no command, and
    `Refused` for one that would run more than itself.

    `name` is what errors call it. `env` is added to the few variables that every child gets.
    `on_stderr` hears every line that it logs, without the secrets that it was given. `grace_s` is
    what it has to end by itself, twice.
    """
    command = Command.of(argv, name=name, cwd=cwd, env=env)
    child = Child(command, on_stderr=on_stderr, grace_s=grace_s, max_line_bytes=max_line_bytes)
    await child.start()
    return child
