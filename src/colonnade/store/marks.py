"""Marks that count once for a short time, such as the ids of DPoP proofs: the memory of replays.

A client that signs every request uses one with each of them, thousands a second. So they are not
entries: each is a digest of 16 bytes, marks that expire within the same five seconds are one set,
and a set is forgotten as a whole. That takes some 110 bytes a mark, where an entry
takes 430.

Rules: no clock of its own, and nothing waits. A mark is remembered for at least as long as it was
asked for, and at most `SPAN_S` longer. A digest that two marks share would refuse one of them, and
never let one through twice.
"""

import hashlib
from math import ceil

from colonnade.errors import LocalProtocolError, Refused
from colonnade.store.limits import Limits, check_ttl

# The marks of so many seconds are one set. Each set is looked at for each mark: there are some
# thirty for proofs, a few microseconds together.
SPAN_S = 5
# Longer than anything that is single use for minutes; what lives longer is an entry.
MAX_MARK_S = 600.0
# The longest digest that is in use.
MAX_MARK_BYTES = 64
_DIGEST_BYTES = 16


def check_mark(mark: bytes, ttl_s: float) -> None:
    """Raise `LocalProtocolError` for what is no mark, or no lifetime of one."""
    check_ttl(ttl_s)
    if not isinstance(mark, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a mark is bytes, not {type(mark).__name__}; encode it first")
    if not 0 < len(mark) <= MAX_MARK_BYTES:
        raise LocalProtocolError(f"a mark has 1 to {MAX_MARK_BYTES} bytes; use a digest")
    if ttl_s > MAX_MARK_S:
        raise LocalProtocolError(f"a mark lives for {MAX_MARK_S:g} s at most; use `add` for longer")


def digest(principal: str, mark: bytes) -> bytes:
    """What a mark of a principal is remembered by. No two principals share one."""
    person = hashlib.blake2b(principal.encode(), digest_size=_DIGEST_BYTES).digest()
    return hashlib.blake2b(mark, key=person, digest_size=_DIGEST_BYTES).digest()


def check_marks(limits: Limits, of_principal: int, of_all: int) -> None:
    """Raise `Refused` where this many would be remembered."""
    if of_principal > limits.principal_marks:
        number, of = limits.principal_marks, "this principal has"
    elif of_all > limits.total_marks:
        number, of = limits.total_marks, "there are"
    else:
        return
    raise Refused(f"{of} {number} single-use marks that have not expired; try again later")


class _Span:
    """What expires in the same few seconds."""

    __slots__ = ("counts", "marks")

    def __init__(self) -> None:
        self.marks: set[bytes] = set()
        self.counts: dict[str, int] = {}


class Marks:
    """The marks of all principals, in this process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spans: dict[int, _Span] = {}
        self._counts: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def use(self, principal: str, mark: bytes, now: float, ttl_s: float) -> bool:
        """Whether a mark is new, which it then is no more. Raises `Refused` for too many."""
        self._forget(now)
        known = digest(principal, mark)
        if any(known in span.marks for span in self._spans.values()):
            return False
        count = self._counts.get(principal, 0) + 1
        check_marks(self._limits, count, self._total + 1)
        span = self._spans.setdefault(ceil((now + ttl_s) / SPAN_S), _Span())
        span.marks.add(known)
        span.counts[principal] = span.counts.get(principal, 0) + 1
        self._counts[principal] = count
        self._total += 1
        return True

    def _forget(self, now: float) -> None:
        over = [number for number in self._spans if number * SPAN_S <= now]
        for number in over:
            span = self._spans.pop(number)
            self._total -= len(span.marks)
            for principal, count in span.counts.items():
                left = self._counts[principal] - count
                if left:
                    self._counts[principal] = left
                else:
                    del self._counts[principal]

    def clear(self) -> None:
        """Forget all."""
        self._spans.clear()
        self._counts.clear()
        self._total = 0
