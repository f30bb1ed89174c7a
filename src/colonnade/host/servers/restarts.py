"""Restart policy of a server: exponential backoff with jitter, and when to give up.

The first crash after the server ran well costs nothing: the next call starts it again. Each further
crash doubles the delay, of which a random fraction is taken, so that servers that crashed together
do not all restart together. Several processes of one server that end at the same time count as one
crash. After too many crashes within a period the server is given up, until it is restarted by hand
or the same period has passed; it then has one attempt.

`CrashCounts` has one such policy for each caller, so that a caller that crashes the server is
refused alone. A process may have had calls of several callers when it crashed. Then all of these
callers are suspects, and the next crash leaves only callers that are suspects of both crashes:

    crash 1, in flight: ann, bob, eve      nobody is refused
    crash 2, in flight: cat, eve           eve is left: counted for eve
    crash 3, in flight: bob, eve           counted for eve again

Failed starts are counted for the caller that started the server, and for all callers together: the
server is given up for all if starts failed for several callers, with no successful start in
between.

Rules: no clock and no random numbers here, and nothing is started: the time and the random fraction
are arguments. One caller never makes the server refuse another, unless it fails at its start.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Hashable
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from colonnade.errors import NO_OUTPUT, CannotConnect, Output
from colonnade.host.servers.callers import CallerKey

# The delay after the second crash in a row, and the maximum: long enough for a port or a lock to
# become free, short enough for a waiting user.
FIRST_S = 0.5
LONGEST_S = 30.0
# A server that ran for this long works: the next crash is a new incident.
STEADY_S = 30.0

# Processes of one server that end within this time ended for the same reason.
INCIDENT_S = 5.0

# Maximum callers whose crashes are counted. The caller with the oldest crash is forgotten first,
# and so is every caller without a crash for twice the counted period.
MAX_COUNTED = 1000
# A server that does not start for this many principals in a row is refused to all callers.
SEVERAL = 3
# If no single caller can be blamed for two crashes in a row, the next start and its calls wait this
# long. So a server that crashes on its own is started once a second at most.
PAUSE_S = 1.0

Health: TypeAlias = Literal["healthy", "backing_off", "given_up"]


class Crash(Struct, frozen=True):
    """One unexpected end: when it was, what happened, and for which caller the server was running.

    `message` may be shown to every caller; `output` is what the server wrote, for `caller` alone,
    or for every caller if `caller` is None: the server had not been used yet.
    """

    at: float
    message: str
    output: Output = NO_OUTPUT
    caller: Hashable = None

    def output_for(self, caller: Hashable) -> Output:
        """The server's output that a caller may see; for the caller None, the output that all
        callers may see."""
        return self.output if self.caller in (None, caller) else NO_OUTPUT


class RestartPolicy:
    """Decides when one server may be started again after it crashed, for one caller or for all."""

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

    def refusal(self, now: float, shown_to: Hashable, callers: str) -> CannotConnect | None:
        """The error while the server may not be started; None if it may. `shown_to` is who may read
        what the server wrote, None for every caller; `callers` names the refused callers in the
        message."""
        health = self.health(now)
        if health == "healthy" or self.last is None:
            return None
        recent = self.recent(now)
        times = "once" if recent == 1 else f"{recent} times"
        # Crashed, or did not start.
        message = f"it failed {times} within {self._within_s:g} s for {callers}"
        if health == "given_up":
            message += f" and is not tried for {self.wait_s(now):.0f} s, or until it is restarted"
        else:
            message += f"; the next attempt is in {self.wait_s(now):.1f} s"
        return CannotConnect(
            f"{message}. Last: {self.last.message}", output=self.last.output_for(shown_to)
        )

    def is_over(self, now: float) -> bool:
        """Whether the last crash is so long ago that it no longer matters."""
        return self.last is None or now - self.last.at > 2 * self._within_s

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


class CrashCounts:
    """The crashes of one server, by caller, and its failed starts for all callers. `for_all` is
    whether a failed start may be the server's fault; not if the start uses a caller's
    credentials."""

    def __init__(self, max_crashes: int, within_s: float, *, for_all: bool = True) -> None:
        self._max_crashes = max_crashes
        self._within_s = within_s
        self._for_all = for_all
        self.total: int = 0
        # In the order of their last crash.
        self.by_caller: dict[Hashable, RestartPolicy] = {}
        # Since the last successful start: the failed starts, and up to `SEVERAL` callers of these
        # starts.
        self._starts = RestartPolicy(max_crashes, within_s)
        self._starters: set[Hashable] = set()
        # The suspects of the last crash of a process that several callers used.
        self._suspects: frozenset[Hashable] = frozenset()
        self._suspected_at = 0.0
        # Of crashes without a single suspect: the last one, and the earliest time of the next
        # start.
        self._blameless_at: float | None = None
        self._not_before = 0.0

    def start_failed(self, crash: Crash, caller: Hashable, fraction: float) -> bool:
        """Record a failed start for a caller. Returns whether the server is given up for that
        caller."""
        self.total += 1
        if self._for_all:
            self._starts.crashed(crash, 0.0, fraction)
            if len(self._starters) < SEVERAL:
                # A principal counts once, however many sessions it has.
                principal = caller.principal if isinstance(caller, CallerKey) else ""
                self._starters.add(principal or caller)
        return self._count(caller, crash, 0.0, fraction)

    def started(self) -> None:
        """Record a successful start: earlier failed starts were not the fault of the server."""
        if self._starters:
            self._starts.reset()
            self._starters.clear()

    def crashed(
        self, crash: Crash, lived_s: float, suspects: frozenset[Hashable], fraction: float
    ) -> Hashable:
        """Record the end of a process that ran for `lived_s`; `suspects` are the callers that may
        have caused it. Returns the caller that the server is given up for, None for none."""
        self.total += 1
        if suspects:
            is_recent = crash.at - self._suspected_at < self._within_s
            self._suspects = (is_recent and self._suspects & suspects) or suspects
            self._suspected_at = crash.at
            if len(self._suspects) == 1:
                (caller,) = self._suspects
                return caller if self._count(caller, crash, lived_s, fraction) else None
        if self._blameless_at is not None and crash.at - self._blameless_at < STEADY_S:
            self._not_before = crash.at + PAUSE_S
        self._blameless_at = crash.at
        return None

    def refusal(self, now: float, caller: Hashable, shown_to: Hashable) -> CannotConnect | None:
        """The error for a caller if the server may not be started for it; otherwise None."""
        if (refusal := self.own_refusal(now, caller, shown_to)) is not None:
            return refusal
        return self._starts.refusal(now, shown_to, "several callers") if self._is_broken else None

    def own_refusal(self, now: float, caller: Hashable, shown_to: Hashable) -> CannotConnect | None:
        """The error for a caller that is refused because of its own crashes; otherwise None."""
        policy = self.by_caller.get(caller)
        if policy is None:
            return None
        if policy.is_over(now):
            del self.by_caller[caller]
            return None
        return policy.refusal(now, shown_to, "this caller")

    def pause_s(self, now: float) -> float:
        """How long the next start waits after crashes without a single suspect."""
        return max(0.0, self._not_before - now)

    def health(self, now: float) -> Health:
        """The worst error that prevents a start now, for all callers or for any of them; None if
        nothing does."""
        found = {one.health(now) for one in self.by_caller.values()}
        if self._is_broken:
            found.add(self._starts.health(now))
        for worst in ("given_up", "backing_off"):
            if worst in found:
                return worst
        return "healthy"

    def given_up(self, now: float) -> int:
        """The number of callers that are refused because of their own crashes."""
        return sum(one.health(now) == "given_up" for one in self.by_caller.values())

    def reset(self) -> None:
        """Forget all crashes: the server was restarted by hand."""
        self.by_caller.clear()
        self._starts.reset()
        self._starters.clear()
        self._suspects = frozenset()
        self._blameless_at = None
        self._not_before = 0.0

    @property
    def _is_broken(self) -> bool:
        return len(self._starters) >= SEVERAL

    def _count(self, caller: Hashable, crash: Crash, lived_s: float, fraction: float) -> bool:
        now, policies = crash.at, self.by_caller
        found = policies.pop(caller, None)
        while policies:
            oldest = next(iter(policies))
            if len(policies) < MAX_COUNTED and not policies[oldest].is_over(now):
                break
            del policies[oldest]
        found = policies[caller] = found or RestartPolicy(self._max_crashes, self._within_s)
        found.crashed(crash, lived_s, fraction)
        return found.health(now) == "given_up"


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
