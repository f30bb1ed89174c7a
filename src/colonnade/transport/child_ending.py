"""How a child is ended, as plain steps; and how its end is told.

Rules: nothing is done here and nothing waited for. Whoever takes the steps says back what each
wait came to. There is always a last step, and it is never more than a few seconds away.
"""

import signal
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeAlias

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
