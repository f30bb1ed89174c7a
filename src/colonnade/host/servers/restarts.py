"""When a server that ended may be started again: how long to wait, and when to give it up.

The first end after a time that went well costs nothing: it is started again for the next call.
Each further one doubles the wait, of which a random part is taken, so that many servers that fell
together do not all come back together. Several processes of one server that end at the same time
count once. Too many in a while, and it is given up: until somebody
says so, or until as long a while has passed, after which it has one try to prove itself.

Rules: no clock, no dice, nothing is started: the time and a random number are arguments.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from colonnade.errors import NO_OUTPUT, CannotConnect, Output

# After the second end in a row, and at the most: long enough for a port or a lock to become free,
# short enough that a person who waits does not look for another way.
FIRST_S = 0.5
LONGEST_S = 30.0
# A server that ran for so long has worked: what ended it is something new.
STEADY_S = 30.0

# Processes of one server that end within so short a time were ended by the same thing.
INCIDENT_S = 5.0

Health: TypeAlias = Literal["well", "backing_off", "given_up"]


class Crash(Struct, frozen=True):
    """One end that nobody wanted: when, what it was, and whose it was if it was serving somebody.

    `words` may be told to anybody; `output` is what the server itself wrote, for `caller` alone,
    or for everybody where nobody was served yet (then it is None).
    """

    at: float
    words: str
    output: Output = NO_OUTPUT
    caller: str | None = None

    def output_for(self, caller: str) -> Output:
        """What the server wrote, as far as this caller may see it."""
        return self.output if self.caller in (None, caller) else NO_OUTPUT


class Crashes:
    """The ends of one server, as far as they decide when it is started next."""

    def __init__(self, most: int, within_s: float) -> None:
        self._most = most
        self._within_s = within_s
        self._times: deque[float] = deque()
        self._in_a_row = 0
        self._not_before = 0.0
        # It was given up, and has not proved itself since.
        self._on_probation = False
        self._given_up = False
        self.total: int = 0
        self.last: Crash | None = None

    def crashed(self, crash: Crash, lived_s: float, fraction: float) -> None:
        """It ended after so long; `fraction` is a random number from 0 up to 1."""
        now = crash.at
        self.total += 1
        before, self.last = self.last, crash
        if before is not None and now - before.at < min(lived_s, INCIDENT_S):
            return  # it ran when the other one ended: what ended both of them is one thing
        if lived_s >= STEADY_S:
            self._in_a_row = 0
            self._on_probation = False
        self._in_a_row += 1
        self._times.append(now)
        self._forget(now)
        self._given_up = self._on_probation or len(self._times) >= self._most
        if self._given_up:
            self._on_probation = True
            self._not_before = now + self._within_s
        else:
            self._not_before = now + fraction * longest_wait(self._in_a_row)

    def forgive(self) -> None:
        """Somebody wants it to be tried again: nothing of before counts."""
        self._times.clear()
        self._in_a_row = 0
        self._not_before = 0.0
        self._on_probation = self._given_up = False

    def wait_s(self, now: float) -> float:
        """How long it may not be started; 0 where it may be now."""
        return max(0.0, self._not_before - now)

    def health(self, now: float) -> Health:
        """What keeps it from being started now, if anything."""
        if not self.wait_s(now):
            return "well"
        return "given_up" if self._given_up else "backing_off"

    def refusal(self, now: float, caller: str) -> CannotConnect | None:
        """Why it is not started now, and when it is, for this caller; None where it may be."""
        health = self.health(now)
        if health == "well" or self.last is None:
            return None
        recent = self.recent(now)
        times = "once" if recent == 1 else f"{recent} times"
        words = f"it failed {times} within {self._within_s:g} s"  # ended, or never was there
        if health == "given_up":
            words += f" and is left alone for {self.wait_s(now):.0f} s, or until it is restarted"
        else:
            words += f"; it is tried again in {self.wait_s(now):.1f} s"
        return CannotConnect(
            f"{words}. Last: {self.last.words}", output=self.last.output_for(caller)
        )

    def recent(self, now: float) -> int:
        """How often it ended in the while that counts."""
        self._forget(now)
        return len(self._times)

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] <= now - self._within_s:
            self._times.popleft()


def longest_wait(in_a_row: int) -> float:
    """What a wait is taken from after so many ends in a row."""
    if in_a_row <= 1:
        return 0.0
    return min(LONGEST_S, FIRST_S * 2.0 ** min(in_a_row - 2, 32))


T = TypeVar("T")


class Start(Generic[T]):
    """One start, for all who wait for it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.task: asyncio.Task[T] = asyncio.get_running_loop().create_task(work)
        self._waiting = 0

    @property
    def given_up(self) -> bool:
        """Whether nobody wants it any more, so that nobody may join it."""
        return self.task.cancelling() > 0

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it who has not seen yet what it came to."""
        return self._waiting > 0

    async def wait(self) -> None:
        """Until it has come to something. The last who gives up stops it."""
        self._waiting += 1
        try:
            await asyncio.wait([self.task])
        finally:
            self._waiting -= 1
            if not self._waiting:
                self.task.cancel()


class Bell:
    """Rings when something has changed, for those who wait at that moment."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Something has changed: look again, in the order in which you came."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, until: float) -> bool:
        """Whether it rang before this time of the loop."""
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(rung)
        try:
            async with asyncio.timeout_at(until):
                await rung
        except TimeoutError:
            return False
        finally:
            if rung in self._waiters:
                self._waiters.remove(rung)
        return True
