"""The resources that one session over HTTP follows, within what all sessions together may keep.

Rules: a set of URIs, and nothing else. What is added is counted, what is discarded is given back;
the end of a session clears its set.
"""

from colonnade.protocol.budget import Budget
from colonnade.protocol.exchange_subscription import STRING_BYTES
from colonnade.transport.http_visit import overload

# What all sessions together, and those of one principal, keep of the URIs that they follow: two
# hundred thousand short ones.
SUBSCRIBED_BYTES = 64 * 1024 * 1024
SUBSCRIBED_BYTES_PER_PRINCIPAL = 16 * 1024 * 1024


class SubscribedUris(set[str]):
    """The URIs that one session follows."""

    def __init__(self, budget: Budget, principal: str) -> None:
        super().__init__()
        self._budget = budget
        self._principal = principal

    def add(self, uri: str) -> None:
        """Follow one more. Raises `Refusal` (503) where all sessions follow too much."""
        if uri in self:
            return
        if not self._budget.take(self._principal, _size(uri)):
            raise overload("too many resources are followed at once; unsubscribe from some")
        super().add(uri)

    def discard(self, uri: object) -> None:
        """Follow it no more."""
        if isinstance(uri, str) and uri in self:
            super().discard(uri)
            self._budget.give(self._principal, _size(uri))

    def clear(self) -> None:
        """Follow nothing any more."""
        size = sum(map(_size, self))
        if size:
            super().clear()
            self._budget.give(self._principal, size)


def _size(uri: str) -> int:
    return len(uri) + STRING_BYTES


def subscribed_budget() -> Budget:
    """What all sessions of one kind together may keep."""
    return Budget(SUBSCRIBED_BYTES, SUBSCRIBED_BYTES_PER_PRINCIPAL)
