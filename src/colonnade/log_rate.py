"""How often a message is logged that callers can cause as often as they like.

    more = self._log_rate.admit(reason)
    if more is not None:
        log.warning("a session was refused: %s%s", reason, more)

Rules: no I/O. The first message of its kind is logged at once, and then one a minute, which says
how many were left out.
"""

import time
from collections.abc import Callable

INTERVAL_S = 60.0
# Kinds that are told apart; a caller may be able to cause any number of them.
MAX_KINDS = 64


class LogRate:
    """Counts messages by their kind, and says which of them are logged. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # For each kind: until when it is not logged again, and how often it was left out.
        self._kinds: dict[str, tuple[float, int]] = {}

    def admit(self, kind: str = "") -> str | None:
        """The end of the message that is logged now, with the count of those that were left out;
        None if it is not logged."""
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
