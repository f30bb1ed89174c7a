"""The wish to end, as a process hears it: SIGTERM and SIGINT, heard without taking them away.

Rules: whoever heard a signal before hears it still. A signal that nobody heard, or that is
ignored, means what it always meant; so does a third one, if a loop that is stuck heard two.
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

WISHES = (signal.SIGTERM, signal.SIGINT)
# What a shell calls an end by Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT


class Signals:
    """Calls `heard` in the loop at each signal to end. `alone`: nobody else is to hear it."""

    def __init__(self, heard: Callable[[], None], *, alone: bool = False) -> None:
        self._heard = heard
        self._alone = alone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}
        self.numbers: list[int] = []

    @property
    def interrupted(self) -> bool:
        """Whether it began with Ctrl-C."""
        return self.numbers[:1] == [signal.SIGINT]

    def listen(self) -> None:
        """Begin to listen; only the main thread can, in any other this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = asyncio.get_running_loop()
        for number in WISHES:
            before = signal.getsignal(number)
            if self._alone or callable(before):
                self._before[number] = before
                signal.signal(number, self._hear)

    def stop(self) -> None:
        """Listen no longer; the handler of before is put back, unless another was set after ours.

        That one may put ours back when it stops, so what was before ours is still known then.
        """
        self._loop = None
        for number in list(self._before):
            current = signal.getsignal(number)
            if current == self._hear or (current == signal.SIG_DFL and len(self.numbers) > 1):
                signal.signal(number, self._earlier(number))
                del self._before[number]

    def _earlier(self, number: int) -> Any:
        """The handler before ours, without those of listeners that have stopped."""
        before = self._before[number]
        owner = getattr(before, "__self__", None)
        if isinstance(owner, Signals) and owner._loop is None and number in owner._before:
            return owner._earlier(number)
        return before

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)
        before = self._before.get(number)
        if self._loop is None:  # stopped
            if callable(before):
                before(number, frame)
            return
        if self._alone and len(self.numbers) == 2:
            for each in self._before:
                signal.signal(each, signal.SIG_DFL)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heard)
        if not self._alone and callable(before):
            before(number, frame)


def close(runner: asyncio.Runner, *, interrupted: bool, wait_s: float) -> None:
    """Close a loop, or end the process where that would wait for ever.

    A handler may refuse to stop, and a thread that it left behind cannot be stopped at all.
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
