"""The wish to end, as a process hears it: SIGTERM and SIGINT, heard without taking them away.

Rules: whoever heard a signal before hears it still. A signal that nobody heard, or that is
ignored, means what it always meant.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

WISHES = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """Calls `heard` in the loop at each signal to end. `alone`: nobody else is to hear it."""

    def __init__(self, heard: Callable[[], None], *, alone: bool = False) -> None:
        self._heard = heard
        self._alone = alone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}

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
        """Listen no longer; who listened before is put back, unless somebody came after us."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._hear:
                signal.signal(number, before)
        self._before.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heard)
        before = self._before.get(number)
        if not self._alone and callable(before):
            before(number, frame)
