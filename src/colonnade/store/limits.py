"""What a store takes from one principal and from all: names, sizes, numbers.

Rules: no store of its own; every refusal comes before anything is changed, says the limit, and
never repeats a value or the whole of a name.
"""

from dataclasses import dataclass
from math import isfinite

from colonnade.errors import LocalProtocolError, Refused

# Issuer, subject and client id of a token fit together; a resource's address mostly does. Longer
# ones are the caller's to digest.
MAX_NAME_BYTES = 2048
# What a key or an entry costs beside its own bytes, roughly; without it a million empty ones
# would be free.
OVERHEAD_BYTES = 256

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a store holds. Callers without a name are one principal: raise it for them."""

    # A hundred sessions with their streams, and thousands of handles and single-use answers.
    principal_entries: int = 10_000
    # The event logs of some sixty streams, all full.
    principal_bytes: int = 64 * 1024 * 1024
    # One for each call that a principal may have in flight.
    principal_listeners: int = 1024
    # All principals together: what a small machine can spare.
    total_bytes: int = 256 * 1024 * 1024
    # A request of 4 MiB, and what became of it.
    value_bytes: int = 8 * 1024 * 1024
    # What a client can miss of one stream and still be told.
    log_entries: int = 1024
    log_bytes: int = 1024 * 1024
    # Proofs of possession live for some 70 seconds: 7,000 requests a second of one principal,
    # which is more than one machine answers. In memory each takes some 110 bytes.
    principal_marks: int = 500_000
    total_marks: int = 1_000_000

    def check_value(self, value: bytes) -> None:
        """Raise `Refused` for a value that is too large, `TypeError` for what is not bytes."""
        if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a store holds bytes, not {type(value).__name__}; encode it first")
        if len(value) > self.value_bytes:
            raise Refused(f"{len(value)} bytes are too much; a store takes {self.value_bytes}")

    def check_room(self, entries: int, size: int) -> None:
        """Raise `Refused` where one principal would hold this much."""
        if entries > self.principal_entries:
            held, unit = self.principal_entries, "entries"
        elif size > self.principal_bytes:
            held, unit = self.principal_bytes, "bytes"
        else:
            return
        words = f"this principal would hold more than {held} {unit}"
        raise Refused(f"{words}; delete some, or give them a shorter ttl_s")

    def check_total(self, size: int) -> None:
        """Raise `Refused` where the store would hold this much."""
        if size > self.total_bytes:
            raise Refused(
                f"the store is full ({self.total_bytes} bytes); raise its limit total_bytes"
            )


def check_names(principal: str, name: str) -> None:
    """Raise `Refused` for a name that not every store can hold, and tell from every other."""
    _check_name("principal", principal)
    _check_name("name", name)
    if not name:
        raise Refused("an empty name; give the entry one")


def _check_name(what: str, name: str) -> None:
    if len(name) > MAX_NAME_BYTES:
        raise _too_long(what, name)
    if not name.isascii():
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise Refused(f"the {what} {_shown(name)} is not Unicode text") from None
        if size > MAX_NAME_BYTES:
            raise _too_long(what, name)
    if "\0" in name:
        raise Refused(f"the {what} {_shown(name)} has a NUL in it")


def _too_long(what: str, name: str) -> Refused:
    words = f"the {what} {_shown(name)} is longer than {MAX_NAME_BYTES} bytes; use a digest of it"
    return Refused(words)


def _shown(name: str) -> str:
    return ascii(name[:_SHOWN_CHARACTERS])


def check_ttl(ttl_s: float | None) -> None:
    """Raise `LocalProtocolError` for a lifetime that is none."""
    if ttl_s is not None and not (isfinite(ttl_s) and ttl_s > 0):
        raise LocalProtocolError(f"ttl_s is {ttl_s}; give seconds above 0, or None for ever")
