"""The status of a server of a host: its state, its last error, the last lines of its stderr.

Rules: everything here is bounded, and control characters are removed. It may hold what a server
wrote for one caller: it is for the operator of the host, and is never shown to a caller.
"""

from collections import deque
from typing import Literal, TypeAlias

from msgspec import Struct

from colonnade.transport.process.output import plain

# Of stderr: the reason why a program ended is in its last lines.
STDERR_LINES = 100
STDERR_CHARACTERS = 500

State: TypeAlias = Literal["idle", "starting", "ready", "backing_off", "given_up", "stopped"]


class Status(Struct, frozen=True, kw_only=True):
    """The status of a server. `since` is when the state began (Unix time); `pid` is its first
    process, for stdio; `seats` is the number of open sessions; `stderr` is what it wrote last."""

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


class StderrBuffer:
    """A ring buffer of the last lines of stderr."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)

    def append(self, line: str) -> None:
        """Add a line."""
        for clean in plain(line.encode()):
            self._lines.append(clean[:STDERR_CHARACTERS])

    def last(self, most: int = STDERR_LINES) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)[-most:]
