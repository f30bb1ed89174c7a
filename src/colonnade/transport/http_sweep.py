"""The one timer that looks after all visits: who has gone, who is too slow, who needs a comment.

Most visits are answered before it looks even once, and cost a place in a set. Those that stay are
given a watcher for their client's going, and are looked at once a second.

Rules: all times of all visits are kept here. Every wait of a visit has an end.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from colonnade.transport.http_visit import CLIENT_GONE, Stay, Visit

# How often new visits are looked at: what is answered within one or two turns needs no watcher.
TURN_S = 0.05
# What stays is looked at in longer steps: ten thousand idle streams cost some milliseconds each.
STEP_S = 1.0
# A body may begin slowly; from then on it must keep a least speed.
BODY_GRACE_S = 5.0
# A turn that comes this late was not late by itself: a handler held everybody up.
HELD_S = 3.0

log: logging.Logger = logging.getLogger("colonnade.transport")


class Sweep:
    """Every visit that is not over, and whatever else is due now and then."""

    def __init__(self) -> None:
        self.count: int = 0
        self._fresh: set[Visit] = set()
        self._staying: set[Visit] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chores: list[Callable[[float], bool]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = False
        self._next_step = 0.0
        self._due = 0.0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Visit]:
        return iter([*self._fresh, *self._staying])

    def add(self, visit: Visit) -> None:
        """Look after a visit from now on."""
        self.count += 1
        self._fresh.add(visit)
        if not self._hurried:
            self._set_timer(TURN_S)

    def remove(self, visit: Visit) -> None:
        """A visit is over."""
        self.count -= 1
        self._fresh.discard(visit)
        if visit.stay is not None:
            self._staying.discard(visit)
            if visit.watcher is not None:
                visit.watcher.cancel()
            elif visit.line is not None and visit.line.visit is visit:
                visit.line.visit = None

    def chore(self, due: Callable[[float], bool]) -> None:
        """Call this with the time every second, as long as it says that it has more to do."""
        self._chores.append(due)

    def stop(self) -> None:
        """The loop ends; the next visit begins anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hurried = None, False

    # ------------------------------------------------------------ the timer

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hurried = delay_s == TURN_S
        loop = asyncio.get_running_loop()
        self._due = loop.time() + delay_s
        self._timer = loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        held_s = now - self._due
        if held_s > HELD_S:
            log.warning(
                "something held the loop for %.1f s, and every client with it; a tool that blocks "
                "is written as def, not async def",
                held_s,
            )
        for visit in list(self._fresh):
            if visit.stay is not None:
                self._fresh.discard(visit)
                self._staying.add(visit)
                self._look_at(visit, visit.stay, now)
            else:
                visit.stay = Stay(now)
        busy = True
        if now >= self._next_step:
            self._next_step = now + STEP_S
            for visit in list(self._staying):
                if visit.stay is not None:
                    self._look_at(visit, visit.stay, now)
            busy = sum(chore(now) for chore in self._chores) > 0
        self._timer, self._hurried = None, False
        if self._fresh:
            self._set_timer(TURN_S)
        elif self._staying or busy:
            self._set_timer(STEP_S)

    def _look_at(self, visit: Visit, stay: Stay, now: float) -> None:
        """What is due for a visit that stays."""
        limits = visit.limits
        if stay.writes != visit.writes:
            stay.writes, stay.alive_at = visit.writes, now
        silence = now - stay.alive_at
        if visit.ended or visit.gone:
            return
        if visit.until and now >= visit.until:  # RS-07
            visit.leave("the token has expired; come back with a new one", told=True)
        elif visit.reading:
            age = now - stay.since
            least = limits.body_bytes_per_s * (age - BODY_GRACE_S)
            if age > limits.body_s or visit.received < least:
                visit.leave("the body did not arrive in time", told=True)
        elif visit.writing:
            if silence > limits.write_s:
                visit.leave("the client does not read")
        else:
            if visit.line is not None:
                visit.line.visit = visit
                if visit.line.lost:
                    visit.leave(CLIENT_GONE)
            elif visit.watcher is None:
                visit.watcher = asyncio.get_running_loop().create_task(visit.watch())
            if silence > limits.keep_alive_s and visit.answers.events:
                stay.alive_at = now
                self._keep_alive(visit)

    def _keep_alive(self, visit: Visit) -> None:
        if visit.way is not None and not visit.streaming:
            visit.way.commit()
            return
        task = asyncio.get_running_loop().create_task(visit.keep_alive())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
