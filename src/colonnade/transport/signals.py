"""SIGTERM and SIGINT as a request to shut down, beside the handlers that are already installed.

A server that is the whole process ends at SIGHUP as well, and logs it: a terminal that closes sends
it, and so does an administrator who expects the configuration to be read again. SIGHUP that is
ignored, as by nohup, stays ignored.

Rules: an earlier handler is still called. A signal without a handler, or one that is ignored, keeps
its meaning; so does a third one, if a blocked loop got two.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SHUTDOWN_SIGNALS = (signal.SIGTERM, signal.SIGINT)
HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # Windows has none
# The exit status that shells use for Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT


log: logging.Logger = logging.getLogger("colonnade.transport")


def handles_hangup() -> bool:
    """Whether SIGHUP exists and is not ignored."""
    return HANGUP is not None and signal.getsignal(HANGUP) != signal.SIG_IGN


def log_hangup() -> None:
    """Log that SIGHUP ends this process."""
    log.warning("SIGHUP: running calls may finish, then this process ends; nothing is reloaded")


class Signals:
    """Calls `on_signal` in the loop at each signal. `exclusive`: no earlier handler is called."""

    def __init__(self, on_signal: Callable[[], None], *, exclusive: bool = False) -> None:
        self._on_signal = on_signal
        self._exclusive = exclusive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}
        self.numbers: list[int] = []

    @property
    def interrupted(self) -> bool:
        """Whether the first signal was Ctrl-C."""
        return self.numbers[:1] == [signal.SIGINT]

    def listen(self) -> None:
        """Install the handlers; only the main thread can, in any other this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = asyncio.get_running_loop()
        numbers = SHUTDOWN_SIGNALS
        if self._exclusive and HANGUP is not None and handles_hangup():
            numbers = (*SHUTDOWN_SIGNALS, HANGUP)
        for number in numbers:
            before = signal.getsignal(number)
            if self._exclusive or callable(before):
                self._before[number] = before
                signal.signal(number, self._handle)

    def stop(self) -> None:
        """Restore the earlier handlers, unless another was installed after ours.

        That one may restore ours when it stops, so the earlier one is kept until then.
        """
        self._loop = None
        for number in list(self._before):
            current = signal.getsignal(number)
            if current == self._handle or (current == signal.SIG_DFL and len(self.numbers) > 1):
                signal.signal(number, self._earlier(number))
                del self._before[number]

    def _earlier(self, number: int) -> Any:
        """The handler before ours, without those of `Signals` that have stopped."""
        before = self._before[number]
        owner = getattr(before, "__self__", None)
        if isinstance(owner, Signals) and owner._loop is None and number in owner._before:
            return owner._earlier(number)
        return before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)
        before = self._before.get(number)
        if self._loop is None:  # stopped
            if callable(before):
                before(number, frame)
            return
        if self._exclusive and len(self.numbers) == 2:
            for each in self._before:
                signal.signal(each, signal.SIG_DFL)
        if not self._loop.is_closed():
            if number == HANGUP:
                self._loop.call_soon_threadsafe(log_hangup)
            self._loop.call_soon_threadsafe(self._on_signal)
        if not self._exclusive and callable(before):
            before(number, frame)


def close(runner: asyncio.Runner, *, interrupted: bool, wait_s: float) -> None:
    """Close a loop, or exit the process if that would block.

    A handler may ignore its cancellation, and a thread cannot be stopped at all.
    """
    code = INTERRUPTED if interrupted else 0
    if asyncio.all_tasks(runner.get_loop()):
        _exit(code)
    late = threading.Timer(wait_s, _exit, (code,))
    late.daemon = True
    late.start()
    runner.close()
    late.cancel()


def _exit(code: int) -> None:
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)
