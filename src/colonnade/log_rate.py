"""Limits how often a log message appears that callers can cause at will.

    more = self._log_rate.admit(reason)
    if more is not None:
        log.warning("a session was refused: %s%s", reason, more)

Rules: no I/O. The first message of a kind is logged at once. After that, one message a minute is
logged, with the number of messages left out.
"""

import time
from collections.abc import Callable

INTERVAL_S = 60.0
# Maximum kinds of messages that are counted; callers may be able to cause any number of kinds.
MAX_KINDS = 64


class LogRate:
    """Counts messages by kind, and decides which ones are logged. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each kind: the earliest time of the next line, and the number of messages left out.
        self._kinds: dict[str, tuple[float, int]] = {}

    def admit(self, kind: str = "") -> str | None:
        """The text to append to this message, with the count of messages left out; None if this
        message is not logged."""
        now = self._clock()
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._kinds = {one: known for one, known in self._kinds.items() if known[0] > now}
            if len(self._kinds) >= MAX_KINDS:
                kind = ""
        until, left_out = self._kinds.get(kind, (now, 0))
        if now < until:
            self._kinds[kind] = until, left_out + 1
            return None
        self._kinds[kind] = now + INTERVAL_S, 0
        return f" ({left_out} more like it since it was last logged)" if left_out else ""
