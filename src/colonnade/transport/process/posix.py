"""A child process where there are sessions, signals and pipes: Linux, macOS and their kin.

The child leads a session and a group of its own, so that all of it can be told to end at once.
Where there is a /proc, what left the group is still known: by its mark in the environment (see
`child_command`), and by its parents, which are followed from the child before its input is closed
and again before every signal. A process is named by its number and the time of its start, and
signalled through a descriptor, so that a number that was given out anew is never hit.

What remains: a process that left the group, dropped its environment, and whose parent ended before
it was looked at (as a daemon does that forks twice, or where the child itself crashed) belongs to
init, and nothing says whose it was. Only a subreaper would know, which is a setting of a whole
process: of ours it would hand us the orphans of every library in it, and nothing runs in the child
before its program does. If we are killed, only the group and the mark are left to go by.

There is also a keeper: a shell of a hundred kilobytes that waits for the end of a pipe which only
we hold open. If we are killed, it kills what is left of the child; otherwise it hears goodbye.

Rules: no thread, no signal handler, and nothing that blocks the loop: exits are seen by a
descriptor. Nothing runs between fork and exec. Whoever else has children here keeps them: nobody
waits for a process that is not ours.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from colonnade.errors import LocalProtocolError
from colonnade.transport.process.command import MARK, Command, cannot_start
from colonnade.transport.process.output import Ears
from colonnade.transport.stdio import READ_BYTES, Outlet

log: logging.Logger = logging.getLogger("colonnade.transport")

# How often a process is looked at where no descriptor tells of its end.
LOOK_S = 0.05
# The same for what a child left behind, which nobody tells of: soon at first, and then less often.
FIRST_LOOK_S, LAST_LOOK_S = 0.005, 0.1
# What is still in a pipe when its writer has ended. None holds more, but others may write on.
LAST_BYTES = 2 * 1024 * 1024
# Before a kill all are stopped, so that none forks meanwhile; what is new then is stopped as well.
# So often, since each round finds only what was forked between a look and a stop.
STOP_ROUNDS = 4
# A keeper that was told goodbye has one line to read.
GOODBYE_S = 1.0

# The group of the child comes in a line, goodbye in another. Without goodbye the child has a second
# to see for itself that its input has ended; what forks meanwhile is met in the next round. The
# mark is an argument here: in this shell's own environment it would kill itself.
KEEPER = """
trap '' HUP INT TERM
read -r group || group=
read -r goodbye && exit 0
sleep 1
for round in 1 2 3; do
  [ -n "$group" ] && kill -KILL -- "-$group"
  for file in $(grep -lsF -- "$1" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}"
  done
done
"""
SHELL = "/bin/sh"


class Exit:
    """The end of a process of ours, awaited without a thread. It is reaped, and nobody else is."""

    def __init__(self, popen: "subprocess.Popen[bytes]", told: Callable[[], None]) -> None:
        self.over: bool = False
        self.status: int | None = None
        self._popen = popen
        self._told = told
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor = descriptor_of(popen.pid)
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._look)
        else:
            self._look_again()

    def _look(self) -> None:
        try:
            pid, status = os.waitpid(self._popen.pid, os.WNOHANG)
        except ChildProcessError:  # somebody here waits for all processes
            self._end(None)
            return
        if pid:
            self._end(os.waitstatus_to_exitcode(status))
        else:
            self._look_again()

    def _look_again(self) -> None:
        self.stop()
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def _end(self, status: int | None) -> None:
        self.stop()
        self.over, self.status = True, status
        self._popen.returncode = 0 if status is None else status  # which is its word for "reaped"
        self._event.set()
        self._told()

    async def wait(self, seconds: float) -> bool:
        """Wait so long; whether it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return self.over

    def stop(self) -> None:
        """Look no more."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def descriptor_of(pid: int) -> int | None:
    """What can be read once a process has ended; None where the system has no such thing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an older one, or one that forbids it
            return os.pidfd_open(pid)
    return None


class Keeper:
    """Ends a child when we are not there to do it."""

    def __init__(self, mark: str, outer: str) -> None:
        self._popen = subprocess.Popen(
            [SHELL, "-c", KEEPER, "colonnade-keeper", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), **({MARK: outer} if outer else {})},
            start_new_session=True,
        )
        assert self._popen.stdin is not None
        self._pipe = self._popen.stdin

    def tell(self, line: bytes) -> None:
        """One short line, which a pipe always has room for."""
        with contextlib.suppress(OSError):  # somebody killed it, and it keeps nothing any more
            self._pipe.write(line + b"\n")

    async def dismiss(self) -> None:
        """Say goodbye, and wait until it is gone."""
        self.tell(b"")
        exit = Exit(self._popen, lambda: None)
        try:
            await exit.wait(GOODBYE_S)
        finally:
            exit.stop()
            self.drop()

    def drop(self) -> None:
        """Be rid of it at once, where it is still there."""
        if self._popen.returncode is None:
            self._popen.kill()
            self._popen.wait()
        self.close()

    def close(self) -> None:
        """Let go of the pipe."""
        self._pipe.close()


def hire(command: Command) -> Keeper | None:
    """A keeper for a command that is about to start; without a shell there is none."""
    try:
        return Keeper(command.word, os.environ.get(MARK, ""))
    except OSError as error:
        log.debug("nobody ends %s if this process is killed: %s", command.whom, error)
        return None


class _Input(Outlet):
    """The standard input of a child."""

    def __init__(self, writing: int, whom: str, ears: Ears) -> None:
        super().__init__(writing, whom)
        self._ears = ears

    def lost(self, what: str) -> None:
        self._ears.input_lost(what)


class PosixProcess:
    """One child: its streams, its exit, and all that it started."""

    def __init__(
        self,
        command: Command,
        ears: Ears,
        popen: "subprocess.Popen[bytes]",
        keeper: Keeper | None,
    ) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.pid: int = popen.pid
        self._word = command.word.encode()
        self._ears = ears
        self._streams = {"input": popen.stdin, "output": popen.stdout, "errors": popen.stderr}
        for stream in self._streams.values():
            os.set_blocking(stream.fileno(), False)
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        whom = f"{command.whom} (pid {popen.pid})"
        self.outlet: Outlet = _Input(popen.stdin.fileno(), whom, ears)
        self._exit = Exit(popen, self._exited)
        # All that descends from it, and itself: their numbers, and when each began.
        itself = row_of(self.pid)
        self._kin: dict[int, int] = {} if itself is None else {self.pid: itself.start}
        self._loop.add_reader(popen.stderr.fileno(), self._read_errors)
        _held.add(self)

    @classmethod
    async def start(cls, command: Command, ears: Ears) -> "PosixProcess":
        """Start a command. Raises `CannotConnect`. There is no moment in which to be cancelled."""
        keeper = hire(command)  # first, so that there is no child without one
        try:
            popen = subprocess.Popen(
                command.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=command.cwd,
                env=command.environment(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if keeper is not None:
                keeper.drop()
            if isinstance(error, OSError):
                raise cannot_start(command, error) from None
            raise LocalProtocolError(f"cannot start {command.whom}: {error}") from None
        if keeper is not None:
            keeper.tell(b"%d" % popen.pid)
        return cls(command, ears, popen, keeper)

    # ------------------------------------------------------------ what it says

    def listen(self) -> None:
        """Begin to read its standard output."""
        self._loop.add_reader(self._streams["output"].fileno(), self._read_output)

    def _read_output(self) -> None:
        if self._read("output", self._ears.output) == b"":
            self._close("output")
            self._ears.output_ended()

    def _read_errors(self) -> None:
        if self._read("errors", self._ears.errors) == b"":
            self._close("errors")

    def _read(self, name: str, hear: Callable[[bytes], None]) -> bytes | None:
        """What can be read now; None where that is nothing, and empty at the end."""
        stream = self._streams.get(name)
        if stream is None:
            return b""
        try:
            chunk = os.read(stream.fileno(), READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        if chunk:
            hear(chunk)
        return chunk

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._loop.remove_reader(stream.fileno())
            stream.close()

    def read_rest(self) -> None:
        """What it said before it ended; those who share its streams may go on for ever."""
        self._read_all("output", self._ears.output)
        self.read_errors()

    def read_errors(self) -> None:
        """What it has written to its standard error by now."""
        self._read_all("errors", self._ears.errors)

    def _read_all(self, name: str, hear: Callable[[bytes], None]) -> None:
        left = LAST_BYTES
        while left > 0 and (chunk := self._read(name, hear)):
            left -= len(chunk)

    # ------------------------------------------------------------ its end

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._exit.over

    @property
    def status(self) -> int | None:
        """What it exited with; a signal is negative."""
        return self._exit.status

    def _exited(self) -> None:
        self._ears.exited()

    async def wait(self, seconds: float) -> bool:
        """Wait so long for its end; whether it has come."""
        return await self._exit.wait(seconds)

    def close_input(self) -> None:
        """It is told nothing more."""
        self.outlet.shut("the input was closed")
        stream = self._streams.pop("input", None)
        if stream is not None:
            self._find_kin()  # while it lives: afterwards its children are those of init
            stream.close()

    def kill(self, *, force: bool) -> None:
        """Signal the group, and each that left it. What is stopped is woken up to hear it."""
        strays = self._strays()
        if force:
            for _ in range(STOP_ROUNDS if strays else 0):
                self._signal_all(strays, signal.SIGSTOP)
                before, strays = strays, self._strays()
                if strays.keys() <= before.keys():
                    break
            self._signal_all(strays, signal.SIGKILL)
        else:
            self._signal_all(strays, signal.SIGTERM)
            self._signal_all(strays, signal.SIGCONT)

    def _signal_all(self, strays: dict[int, int], number: signal.Signals) -> None:
        _signal(os.killpg, self.pid, number)
        for pid, start in strays.items():
            _signal_one(pid, start, number)

    def _strays(self) -> dict[int, int]:
        """All that descends from it, or has its mark, and left its group."""
        rows = self._find_kin(marked(self._word))
        return {pid: start for pid, start in self._kin.items() if rows[pid].group != self.pid}

    def _find_kin(self, more: Iterable[int] = ()) -> "dict[int, Row]":
        """Look for all that descends from it, and from `more`, while their parents live."""
        rows = processes()
        known = self._kin.items()
        kin = {pid: at for pid, at in known if pid in rows and rows[pid].start == at}
        kin |= {pid: rows[pid].start for pid in more if pid in rows}
        children: dict[int, list[int]] = {}
        for pid, row in rows.items():
            children.setdefault(row.parent, []).append(pid)
        waiting = [pid for pid in kin if pid in children]
        while waiting:
            parent = waiting.pop()
            # The list is not of one moment. A parent that is still the same was so in between.
            row = row_of(parent)
            if row is None or row.start != kin[parent]:
                continue
            for pid in children[parent]:
                if pid not in kin:
                    kin[pid] = rows[pid].start
                    if pid in children:
                        waiting.append(pid)
        self._kin = kin
        return rows

    async def clear(self, seconds: float) -> bool:
        """Wait so long for all that it started; whether nothing is left of it."""
        until, pause = self._loop.time() + seconds, FIRST_LOOK_S
        while self._is_left():
            rest = until - self._loop.time()
            if rest <= 0:
                return False
            await asyncio.sleep(min(pause, rest))
            pause = min(2 * pause, LAST_LOOK_S)
        return True

    def _is_left(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            pass
        else:
            if not os.path.isdir("/proc/self") or any(members(self.pid)):
                return True
        return any(map(self._lives, self._kin)) or any(True for _ in marked(self._word))

    def _lives(self, pid: int) -> bool:
        row = row_of(pid)
        return row is not None and row.start == self._kin[pid] and not row.dead and pid != self.pid

    async def release(self) -> None:
        """Let go of everything that is held for it."""
        self.let_go()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.dismiss()

    def let_go(self) -> None:
        """All of that which can be done at once."""
        self.close_input()
        self._close("output")
        self._close("errors")
        self._exit.stop()

    def forget(self) -> None:
        """In a fork of this process: what a child waits for the end of must end without us."""
        for stream in self._streams.values():
            stream.close()
        if self._keeper is not None:
            self._keeper.close()


def marked(word: bytes) -> Iterator[int]:
    """The processes that carry this word in their environment and live; only /proc knows."""
    for pid, entry in _entries("environ"):
        if word in entry:
            yield pid


def members(group: int) -> Iterator[int]:
    """The living processes of a group; who is dead and not yet reaped is not in the way."""
    for pid, row in processes().items():
        if row.group == group and not row.dead:
            yield pid


class Row(NamedTuple):
    """One process: its parent, its group, when it began, and whether it is dead and not reaped."""

    parent: int
    group: int
    start: int
    dead: bool


def processes() -> dict[int, Row]:
    """All processes by their numbers; empty where there is no /proc."""
    return {pid: _row(entry) for pid, entry in _entries("stat")}


def row_of(pid: int) -> Row | None:
    """One of them; None where it is gone, or there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return _row(file.read())
    except OSError:
        return None


def _row(entry: bytes) -> Row:
    # The name before the last bracket may have anything in it.
    fields = entry.rpartition(b")")[2].split()
    return Row(int(fields[1]), int(fields[2]), int(fields[19]), fields[0] in (b"Z", b"X"))


def _signal(send: Callable[[int, int], None], whom: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        try:
            send(whom, number)
        except PermissionError:  # it became another user, or (on macOS) is dead already
            log.debug("process %d may not be sent %s", whom, signal.Signals(number).name)


def _signal_one(pid: int, start: int, number: int) -> None:
    """Signal a process if it is still the one that began then."""
    descriptor = descriptor_of(pid)
    try:
        row = row_of(pid)  # after the descriptor: if it is the same now, that is whose it is
        if row is None or row.start != start:
            return
        if descriptor is None or sys.platform != "linux":
            _signal(os.kill, pid, number)
        else:
            _signal(signal.pidfd_send_signal, descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _entries(name: str) -> Iterator[tuple[int, bytes]]:
    try:
        pids = [int(one) for one in os.listdir("/proc") if one.isdigit()]
    except OSError:
        return
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            yield pid, file.read()


# A fork of this process (multiprocessing, where it forks) has our ends of every pipe. As long as
# it lives no child would see the end of its input, and no keeper that we are gone.
_held: weakref.WeakSet[PosixProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for process in list(_held):
        with contextlib.suppress(OSError):
            process.forget()


os.register_at_fork(after_in_child=_forget_all)
