"""Warnings for the operator of a Redis server: it is full, it may drop entries, or its clock
differs.

Rules: the log has the address of the server; errors for callers, who may be remote, do not. No
check raises: a server that forbids a command is not checked.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

log: logging.Logger = logging.getLogger("colonnade.store")

# Minimum time between two log lines about a full server.
LOG_FULL_S = 60.0
# Replicas exchange times of day through the store (when a request may start, when a state expires)
# and tolerate a difference of 60 s. A difference of more than half of that is logged.
MAX_CLOCK_DIFFERENCE_S = 30.0
CHECKS: Sequence[tuple[str, ...]] = (("INFO", "memory"), ("TIME",))


class ServerChecks(Struct):
    """The checks of one server. `clock` is the time of the day, `now` a monotonic clock."""

    name: str
    clock: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    is_checked: bool = False
    refused: int = 0
    logged_at: float = float("-inf")

    def check(self, replies: Sequence[Any]) -> None:
        """Log warnings, once, for the replies to `CHECKS`."""
        self.is_checked = True
        memory, server_time = replies
        facts = memory.decode() if isinstance(memory, bytes) else ""
        policy = facts.partition("maxmemory_policy:")[2].partition("\r")[0]
        if policy not in ("", "noeviction"):
            log.warning(
                "the store %s has the policy %s and may drop entries that are in use; set "
                "maxmemory-policy to noeviction",
                *(self.name, policy),
            )
        if isinstance(server_time, Exception):
            return
        difference_s = self.clock() - int(server_time[0])
        if abs(difference_s) > MAX_CLOCK_DIFFERENCE_S:
            log.warning(
                "the clock of this machine is %.0f s %s the clock of the store %s; replicas whose "
                "clocks differ by more than %g s refuse each other's forms and requests: "
                "synchronize the clocks",
                abs(difference_s),
                "ahead of" if difference_s > 0 else "behind",
                self.name,
                2 * MAX_CLOCK_DIFFERENCE_S,
            )

    def note_full(self) -> None:
        """Log, once a minute, that the server has refused a write because its memory is full."""
        self.refused += 1
        now = self.now()
        if now - self.logged_at >= LOG_FULL_S:
            log.warning(
                "the store %s is full and has refused %d writes; raise its maxmemory",
                *(self.name, self.refused),
            )
            self.logged_at, self.refused = now, 0
