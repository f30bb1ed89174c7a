"""A child process on POSIX: process group, pidfd, descendants in /proc, and a watchdog.

The child leads a session and a process group of its own, so that the whole group can be signalled.
If there is a /proc, descendants that left the group are found too: by a mark in their environment
(see `command`), and by their parents, which are followed from the child before its input is closed
and again before every signal. A process is identified by its pid and its start time, and signalled
through a pidfd, so that a reused pid is never hit.

Not found is a process that left the group, dropped its environment, and whose parent ended before
the search (a daemon that forks twice, or after a crash of the child): it belongs to init. Only a
subreaper would know it, which is a setting of a whole process: ours would inherit the orphans of
every library in it, and nothing runs in the child before its program. If this process is killed,
only the group and the mark are left.

The watchdog is a shell that waits for the end of a pipe which only this process holds open. If this
process is killed, it kills what is left of the child; otherwise it is dismissed. It takes 1.6 MiB,
most of which all shells share, and is `colonnade-guard` in `ps` and `top`.

Rules: no thread, no signal handler, and nothing that blocks the loop: exits are seen by a
descriptor. Nothing runs between fork and exec. No process of another part of the program is waited
for.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from colonnade.errors import CannotConnect, LocalProtocolError
from colonnade.transport.process.command import MARK, Command, cannot_start
from colonnade.transport.process.output import ProcessCallbacks
from colonnade.transport.process.sandbox import SIGNALLED, find_bubblewrap, sandboxed_command
from colonnade.transport.stdio import READ_BYTES, LineWriter

log: logging.Logger = logging.getLogger("colonnade.transport")

# How often a process is polled without a pidfd.
POLL_S = 0.05
# The same for its descendants, which have none: soon at first, and then less often.
FIRST_POLL_S, LAST_POLL_S = 0.005, 0.1
# Read from a pipe after its writer has exited. No pipe holds more, but others may write on.
LAST_BYTES = 2 * 1024 * 1024
# Before a kill all are stopped, so that none forks meanwhile; what is new then is stopped as well.
# So often, since each round finds only what was forked between a look and a stop.
STOP_ROUNDS = 4
# A watchdog that is dismissed has one line to read.
DISMISS_S = 1.0

# The first line is the group of the child, a second one dismisses it. Without that the child has a
# second to exit at the end of its input; what forks meanwhile is killed in the next round. The mark
# is an argument here: in this shell's own environment it would kill itself.
WATCHDOG_SCRIPT = """
trap '' HUP INT TERM
{ printf %s colonnade-guard > /proc/$$/comm; } 2>/dev/null
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
# The script is passed in the environment, and its purpose as an argument: `ps` shows arguments.
SCRIPT_ENV = "COLONNADE_GUARD_SCRIPT"


class ProcessExit:
    """The exit of a child process, awaited without a thread. Only this process is reaped."""

    def __init__(self, popen: "subprocess.Popen[bytes]", on_exit: Callable[[], None]) -> None:
        self.over: bool = False
        self.status: int | None = None
        self._popen = popen
        self._on_exit = on_exit
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor = descriptor_of(popen.pid)
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._poll)
        else:
            self._poll_later()

    def _poll(self) -> None:
        try:
            pid, status = os.waitpid(self._popen.pid, os.WNOHANG)
        except ChildProcessError:  # another part of the program waits for all processes
            self._end(None)
            return
        if pid:
            self._end(os.waitstatus_to_exitcode(status))
        else:
            self._poll_later()

    def _poll_later(self) -> None:
        self.stop()
        self._timer = self._loop.call_later(POLL_S, self._poll)

    def _end(self, status: int | None) -> None:
        self.stop()
        self.over, self.status = True, status
        self._popen.returncode = 0 if status is None else status  # which marks it as reaped
        self._event.set()
        self._on_exit()

    async def wait(self, seconds: float) -> bool:
        """Wait; returns whether it has exited."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        return self.over

    def stop(self) -> None:
        """Stop polling."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def descriptor_of(pid: int) -> int | None:
    """A pidfd, which is readable once a process has exited; None if the system has none."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an older one, or one that forbids it
            return os.pidfd_open(pid)
    return None


class Watchdog:
    """A process that kills a child if this process is killed."""

    def __init__(self, mark: str, outer: str) -> None:
        self._popen = subprocess.Popen(
            [SHELL, "-c", f'eval "${SCRIPT_ENV}"', f"colonnade-guard of {os.getpid()}", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                SCRIPT_ENV: WATCHDOG_SCRIPT,
                **({MARK: outer} if outer else {}),
            },
            start_new_session=True,
        )
        assert self._popen.stdin is not None
        self._pipe = self._popen.stdin

    def write(self, line: bytes) -> None:
        """Write one short line, for which a pipe always has room."""
        with contextlib.suppress(OSError):  # it was killed
            self._pipe.write(line + b"\n")

    async def dismiss(self) -> None:
        """Let it exit without a kill, and wait for that."""
        self.write(b"")
        exit = ProcessExit(self._popen, lambda: None)
        try:
            await exit.wait(DISMISS_S)
        finally:
            exit.stop()
            self.drop()

    def drop(self) -> None:
        """Kill it, if it still runs."""
        if self._popen.returncode is None:
            self._popen.kill()
            self._popen.wait()
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()


def start_watchdog(command: Command) -> Watchdog | None:
    """Start the watchdog of a command that is about to start; None without a shell."""
    try:
        return Watchdog(command.mark, os.environ.get(MARK, ""))
    except OSError as error:
        log.debug(
            "%s has no watchdog, and survives if this process is killed: %s", command.label, error
        )
        return None


def command_line(command: Command, bubblewrap: str) -> Sequence[str]:
    """The command line that is started: that of a command, or of its sandbox. Raises `OSError` and
    `CannotConnect`."""
    if command.sandbox is None:
        return command.argv
    return sandboxed_command(
        bubblewrap,
        command.sandbox,
        command.argv,
        name=command.name,
        cwd=command.cwd,
        env=command.environment(),
    )


class _Input(LineWriter):
    """The standard input of a child."""

    def __init__(self, writing: int, reader: str, callbacks: ProcessCallbacks) -> None:
        super().__init__(writing, reader)
        self._callbacks = callbacks

    def on_write_failed(self, what: str) -> None:
        self._callbacks.input_lost(what)


class PosixProcess:
    """One child process: its streams, its exit and its descendants."""

    def __init__(
        self,
        command: Command,
        callbacks: ProcessCallbacks,
        popen: "subprocess.Popen[bytes]",
        watchdog: Watchdog | None,
    ) -> None:
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self.pid: int = popen.pid
        self._mark = command.mark.encode()
        self._is_sandboxed = command.sandbox is not None
        self._callbacks = callbacks
        self._streams = {"input": popen.stdin, "output": popen.stdout, "errors": popen.stderr}
        for stream in self._streams.values():
            os.set_blocking(stream.fileno(), False)
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        reader = f"{command.label} (pid {popen.pid})"
        self.outlet: LineWriter = _Input(popen.stdin.fileno(), reader, callbacks)
        self._exit = ProcessExit(popen, self._exited)
        # Its descendants, and itself: their pids, and when each started.
        itself = entry_of(self.pid)
        self._descendants: dict[int, int] = {} if itself is None else {self.pid: itself.start}
        self._loop.add_reader(popen.stderr.fileno(), self._read_errors)
        _held.add(self)

    @classmethod
    async def start(cls, command: Command, callbacks: ProcessCallbacks) -> "PosixProcess":
        """Start a command. Raises `CannotConnect`. Nothing is awaited after its start, so it is not
        cancelled."""
        bubblewrap = await find_bubblewrap(command.name) if command.sandbox is not None else ""
        watchdog = start_watchdog(command)  # first, so that no child is without one
        try:
            popen = subprocess.Popen(
                command_line(command, bubblewrap),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=command.cwd,
                env=command.environment(),
                start_new_session=True,
            )
        except (OSError, ValueError, CannotConnect) as error:
            if watchdog is not None:
                watchdog.drop()
            if isinstance(error, CannotConnect):
                raise
            if isinstance(error, OSError):
                raise cannot_start(command, error) from None
            raise LocalProtocolError(f"cannot start {command.label}: {error}") from None
        if watchdog is not None:
            watchdog.write(b"%d" % popen.pid)
        return cls(command, callbacks, popen, watchdog)

    # ------------------------------------------------------------ its output

    def listen(self) -> None:
        """Begin to read its standard output."""
        self._loop.add_reader(self._streams["output"].fileno(), self._read_output)

    def _read_output(self) -> None:
        if self._read("output", self._callbacks.output) == b"":
            self._close("output")
            self._callbacks.output_ended()

    def _read_errors(self) -> None:
        if self._read("errors", self._callbacks.errors) == b"":
            self._close("errors")

    def _read(self, name: str, on_data: Callable[[bytes], None]) -> bytes | None:
        """Read what is there; None if there is nothing, and empty at the end."""
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
            on_data(chunk)
        return chunk

    def _close(self, name: str) -> None:
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._loop.remove_reader(stream.fileno())
            stream.close()

    def read_rest(self) -> None:
        """Read its last output; descendants that share its streams may write on for ever."""
        self._read_all("output", self._callbacks.output)
        self.read_errors()

    def read_errors(self) -> None:
        """Read what it has written to stderr."""
        self._read_all("errors", self._callbacks.errors)

    def _read_all(self, name: str, on_data: Callable[[bytes], None]) -> None:
        left = LAST_BYTES
        while left > 0 and (chunk := self._read(name, on_data)):
            left -= len(chunk)

    # ------------------------------------------------------------ exit and kill

    @property
    def over(self) -> bool:
        """Whether it has exited."""
        return self._exit.over

    @property
    def status(self) -> int | None:
        """Its exit status; negative for a signal."""
        status = self._exit.status
        is_signal = self._is_sandboxed and status is not None and status > SIGNALLED
        return SIGNALLED - status if is_signal and status is not None else status

    def _exited(self) -> None:
        self._callbacks.exited()

    async def wait(self, seconds: float) -> bool:
        """Wait for its exit; returns whether it has exited."""
        return await self._exit.wait(seconds)

    def close_input(self) -> None:
        """Close its stdin."""
        self.outlet.stop_writing("the input was closed")
        stream = self._streams.pop("input", None)
        if stream is not None:
            self._find_descendants()  # while it lives: afterwards its children belong to init
            stream.close()

    def kill(self, *, force: bool) -> None:
        """Signal the group, and descendants that left it. Stopped processes are continued."""
        strays = self._find_strays()
        if self._is_sandboxed and not force:
            # Not bubblewrap itself, with which everything in the sandbox is killed. The first
            # process of a namespace, which is bubblewrap too, ignores the signal.
            for number in (signal.SIGTERM, signal.SIGCONT):
                for pid, start in self._descendants.items():
                    if pid != self.pid:
                        _signal_one(pid, start, number)
        elif force:
            for _ in range(STOP_ROUNDS if strays else 0):
                self._signal_all(strays, signal.SIGSTOP)
                before, strays = strays, self._find_strays()
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

    def _find_strays(self) -> dict[int, int]:
        """Processes that descend from it, or have its mark, and left its group."""
        rows = self._find_descendants(marked(self._mark))
        return {
            pid: start for pid, start in self._descendants.items() if rows[pid].group != self.pid
        }

    def _find_descendants(self, more: Iterable[int] = ()) -> "dict[int, ProcessEntry]":
        """Find its descendants, and those of `more`, while their parents live."""
        rows = processes()
        known = self._descendants.items()
        descendants = {pid: at for pid, at in known if pid in rows and rows[pid].start == at}
        descendants |= {pid: rows[pid].start for pid in more if pid in rows}
        children: dict[int, list[int]] = {}
        for pid, row in rows.items():
            children.setdefault(row.parent, []).append(pid)
        waiting = [pid for pid in descendants if pid in children]
        while waiting:
            parent = waiting.pop()
            # The list is not a snapshot. A parent that is still the same was so in between.
            row = entry_of(parent)
            if row is None or row.start != descendants[parent]:
                continue
            for pid in children[parent]:
                if pid not in descendants:
                    descendants[pid] = rows[pid].start
                    if pid in children:
                        waiting.append(pid)
        self._descendants = descendants
        return rows

    async def clear(self, seconds: float) -> bool:
        """Wait for its descendants; returns whether none is left."""
        until, pause = self._loop.time() + seconds, FIRST_POLL_S
        while self._is_left():
            rest = until - self._loop.time()
            if rest <= 0:
                return False
            await asyncio.sleep(min(pause, rest))
            pause = min(2 * pause, LAST_POLL_S)
        return True

    def _is_left(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            pass
        else:
            if not os.path.isdir("/proc/self") or any(members(self.pid)):
                return True
        return any(map(self._lives, self._descendants)) or any(True for _ in marked(self._mark))

    def _lives(self, pid: int) -> bool:
        row = entry_of(pid)
        return (
            row is not None
            and row.start == self._descendants[pid]
            and not row.dead
            and pid != self.pid
        )

    async def release(self) -> None:
        """Close everything that belongs to it."""
        self.let_go()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            await watchdog.dismiss()

    def let_go(self) -> None:
        """The same, without what must be awaited."""
        self.close_input()
        self._close("output")
        self._close("errors")
        self._exit.stop()

    def forget(self) -> None:
        """In a fork of this process: close the pipes whose end the child waits for."""
        for stream in self._streams.values():
            stream.close()
        if self._watchdog is not None:
            self._watchdog.close()


def marked(mark: bytes) -> Iterator[int]:
    """The running processes with this token in their environment, from /proc."""
    for pid, entry in _entries("environ"):
        if mark in entry:
            yield pid


def members(group: int) -> Iterator[int]:
    """The running processes of a group, without zombies."""
    for pid, row in processes().items():
        if row.group == group and not row.dead:
            yield pid


class ProcessEntry(NamedTuple):
    """One process: its parent, its group, its start time, and whether it is a zombie."""

    parent: int
    group: int
    start: int
    dead: bool


def processes() -> dict[int, ProcessEntry]:
    """All processes by pid; empty without /proc."""
    return {pid: _parse_stat(entry) for pid, entry in _entries("stat")}


def entry_of(pid: int) -> ProcessEntry | None:
    """One process; None if it has ended, or without /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return _parse_stat(file.read())
    except OSError:
        return None


def _parse_stat(entry: bytes) -> ProcessEntry:
    # The name before the last bracket may have anything in it.
    fields = entry.rpartition(b")")[2].split()
    return ProcessEntry(int(fields[1]), int(fields[2]), int(fields[19]), fields[0] in (b"Z", b"X"))


def _signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        try:
            send(target, number)
        except PermissionError:  # it changed its user, or (on macOS) is dead
            log.debug("process %d may not be sent %s", target, signal.Signals(number).name)


def _signal_one(pid: int, start: int, number: int) -> None:
    """Signal a process if its start time is still the same."""
    descriptor = descriptor_of(pid)
    try:
        row = entry_of(pid)  # after the pidfd: if it is the same now, the pidfd is its
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


# A fork of this process (multiprocessing) has our ends of every pipe. As long as it lives no child
# would see the end of its input, and no watchdog the end of this process.
_held: weakref.WeakSet[PosixProcess] = weakref.WeakSet()


def _forget_all() -> None:
    for process in list(_held):
        with contextlib.suppress(OSError):
            process.forget()


os.register_at_fork(after_in_child=_forget_all)
