"""How much one call may tell its caller beside the answer: a burst at once, then so many a second.

A tool that reports every row of a table would flood its client (R0085, R0157). What is too much is
left out, never waited for.

Rules: the time comes in as an argument; nothing here sends anything.
"""

# A long job reports each step of a hundred at once; a person reads ten lines a second at best.
BURST = 200
PER_S = 50.0


class Ration:
    """A bucket of messages that fills again. `missed` counts what was left out."""

    __slots__ = ("_left", "_since", "missed")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._since = 0.0
        self.missed: int = 0

    def take(self, now: float) -> bool:
        """Whether one more may be sent now."""
        self._left = min(BURST, self._left + (now - self._since) * PER_S)
        self._since = now
        if self._left < 1:
            self.missed += 1
            return False
        self._left -= 1
        return True
