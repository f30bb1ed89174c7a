"""How a server of a host is, for people: what it is doing, what went wrong, what it wrote last.

Rules: what is kept is bounded, and has nothing in it that a terminal would obey. It may hold what
one caller's calls made a server write: it is for whoever runs the host, and for no caller.
"""

from collections import deque
from typing import Literal, TypeAlias

from msgspec import Struct

from colonnade.transport.process.output import plain

# Of standard error: what ended a program is in its last lines.
STDERR_LINES = 100
STDERR_CHARACTERS = 500

State: TypeAlias = Literal["idle", "starting", "ready", "backing_off", "given_up", "stopped"]


class Status(Struct, frozen=True, kw_only=True):
    """How a server is at this moment. `since` is when the state began, by the time of day; `pid`
    is the first process of it, where there is one; `stderr` is what it wrote last."""

    key: str
    state: State
    since: float
    revision: str | None = None
    pid: int | None = None
    seats: int = 0
    in_flight: int = 0
    crashes: int = 0
    last_error: str | None = None
    stderr: tuple[str, ...] = ()


class Stderr:
    """The last lines that processes wrote for people."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)

    def hear(self, line: str) -> None:
        """One more."""
        for clean in plain(line.encode()):
            self._lines.append(clean[:STDERR_CHARACTERS])

    def last(self, most: int = STDERR_LINES) -> tuple[str, ...]:
        """The last of them, oldest first."""
        return tuple(self._lines)[-most:]
