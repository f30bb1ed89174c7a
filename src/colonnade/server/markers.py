"""What tells a parameter that we fill from one that the caller sends.

Rules: no more than the marks themselves. What fills them is loaded by whoever uses one, so that a
server of plain functions never pays for questions.
"""

from colonnade.errors import ConnectionLost


class Mark:
    """Marks a parameter: with a question, or with what provides its value."""


class Situation:
    """A type that marks a parameter by itself: `Context` and `BlockingContext`, and no others."""


SITUATIONS = frozenset({"Context", "BlockingContext"})


class CallerLost(ConnectionLost):
    """It is our caller who has gone, and not somebody whom the handler talks to."""
