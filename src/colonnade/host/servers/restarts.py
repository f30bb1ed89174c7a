"""Restart policy of a server: exponential backoff with jitter, and when to give up.

The first crash after the server ran well costs nothing: the next call starts it again. Each further
crash doubles the delay, of which a random fraction is taken, so that servers that crashed together
do not all restart together. Several processes of one server that end at the same time count as one
crash. After too many crashes within a period the server is given up, until it is restarted by hand
or the same period has passed; it then has one attempt.

Rules: `RestartPolicy` has no clock, no random numbers and starts nothing: the time and the random
fraction are arguments.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from colonnade.errors import NO_OUTPUT, CannotConnect, Output

# The delay after the second crash in a row, and the maximum: long enough for a port or a lock to
# become free, short enough for a waiting user.
FIRST_S = 0.5
LONGEST_S = 30.0
# A server that ran for this long works: the next crash is a new incident.
STEADY_S = 30.0

# Processes of one server that end within this time ended for the same reason.
INCIDENT_S = 5.0

Health: TypeAlias = Literal["healthy", "backing_off", "given_up"]


class Crash(Struct, frozen=True):
    """One unexpected end: when it was, what happened, and for which caller the server was running.

    `message` may be shown to every caller; `output` is what the server wrote, for `caller` alone,
    or for every caller if `caller` is None: the server had not been used yet.
    """

    at: float
    message: str
    output: Output = NO_OUTPUT
    caller: str | None = None

    def output_for(self, caller: str) -> Output:
        """What the server wrote, if this caller may see it."""
        return self.output if self.caller in (None, caller) else NO_OUTPUT


class RestartPolicy:
    """Decides when one server may be started again after it crashed."""

    def __init__(self, max_crashes: int, within_s: float) -> None:
        self._max_crashes = max_crashes
        self._within_s = within_s
        self._times: deque[float] = deque()
        self._in_a_row = 0
        self._not_before = 0.0
        # It was given up, and has not run well since.
        self._on_probation = False
        self._given_up = False
        self.total: int = 0
        self.last: Crash | None = None

    def crashed(self, crash: Crash, lived_s: float, fraction: float) -> None:
        """Record a crash of a process that ran for `lived_s`; `fraction` is a random number from 0
        up to 1."""
        now = crash.at
        self.total += 1
        before, self.last = self.last, crash
        if before is not None and now - before.at < min(lived_s, INCIDENT_S):
            return  # it was running when the other one ended: one incident
        if lived_s >= STEADY_S:
            self._in_a_row = 0
            self._on_probation = False
        self._in_a_row += 1
        self._times.append(now)
        self._forget(now)
        self._given_up = self._on_probation or len(self._times) >= self._max_crashes
        if self._given_up:
            self._on_probation = True
            self._not_before = now + self._within_s
        else:
            self._not_before = now + fraction * longest_wait(self._in_a_row)

    def reset(self) -> None:
        """Forget all crashes: the server was restarted by hand."""
        self._times.clear()
        self._in_a_row = 0
        self._not_before = 0.0
        self._on_probation = self._given_up = False

    def wait_s(self, now: float) -> float:
        """Seconds until it may be started; 0 if it may be started now."""
        return max(0.0, self._not_before - now)

    def health(self, now: float) -> Health:
        """What prevents a start now, if anything."""
        if not self.wait_s(now):
            return "healthy"
        return "given_up" if self._given_up else "backing_off"

    def refusal(self, now: float, caller: str) -> CannotConnect | None:
        """The error for a caller while the server may not be started; None if it may."""
        health = self.health(now)
        if health == "healthy" or self.last is None:
            return None
        recent = self.recent(now)
        times = "once" if recent == 1 else f"{recent} times"
        message = f"it failed {times} within {self._within_s:g} s"  # crashed, or did not start
        if health == "given_up":
            message += f" and is not started for {self.wait_s(now):.0f} s, or until it is restarted"
        else:
            message += f"; the next attempt is in {self.wait_s(now):.1f} s"
        return CannotConnect(
            f"{message}. Last: {self.last.message}", output=self.last.output_for(caller)
        )

    def recent(self, now: float) -> int:
        """The number of crashes within the period that counts."""
        self._forget(now)
        return len(self._times)

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] <= now - self._within_s:
            self._times.popleft()


def longest_wait(in_a_row: int) -> float:
    """The upper bound of the delay after this many crashes in a row."""
    if in_a_row <= 1:
        return 0.0
    return min(LONGEST_S, FIRST_S * 2.0 ** min(in_a_row - 2, 32))


# ---------------------------------------------------------------- waiting

T = TypeVar("T")


class SharedStart(Generic[T]):
    """One start, which several calls wait for."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        self._waiting = 0

    @property
    def is_cancelled(self) -> bool:
        """Whether it is being cancelled, so that no call may join it."""
        return self.task.cancelling() > 0

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for it, or has not seen its outcome yet."""
        return self._waiting > 0

    async def wait(self) -> None:
        """Wait until it is done. It is cancelled when the last waiter is."""
        self._waiting += 1
        try:
            await asyncio.wait([self.task])
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.task.cancel()
