"""What a store takes from one principal and from all: names, sizes, numbers.

Rules: no store of its own; every refusal comes before anything is changed, says the limit, and
never repeats a value or the whole of a name.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from colonnade.errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
)

# Issuer, subject and client id of a token fit together; a resource's address mostly does. Longer
# ones are the caller's to digest.
MAX_NAME_BYTES = 2048
# What a key or an entry costs beside its own bytes, roughly; without it a million empty ones
# would be free.
OVERHEAD_BYTES = 256

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class StoreLimits:
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
            raise InvalidArgumentType(
                f"a store holds bytes, not {type(value).__name__}; encode it first"
            )
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
            raise Refused(f"the {what} {_display_name(name)} is not Unicode text") from None
        if size > MAX_NAME_BYTES:
            raise _too_long(what, name)
    if "\0" in name:
        raise Refused(f"the {what} {_display_name(name)} has a NUL in it")


def _too_long(what: str, name: str) -> Refused:
    shown = _display_name(name)
    words = f"the {what} {shown} is longer than {MAX_NAME_BYTES} bytes; use a digest of it"
    return Refused(words)


def _display_name(name: str) -> str:
    return ascii(name[:_SHOWN_CHARACTERS])


def check_ttl(ttl_s: float | None) -> None:
    """Raise `LocalProtocolError` for a lifetime that is none."""
    if ttl_s is not None and not (isfinite(ttl_s) and ttl_s > 0):
        raise InvalidArgument(
            f"ttl_s is {ttl_s}; give seconds above 0, or None for ever", argument="ttl_s"
        )


# What may wait for one listener. A message that is larger alone is taken when nothing else waits.
QUEUE_MESSAGES = 256
QUEUE_BYTES = 256 * 1024


class TopicListener(AsyncIterator[bytes]):
    """The messages of one listener. Belongs to the loop of whoever listens."""

    def __init__(self) -> None:
        self.since = 0  # where messages have numbers, the last one before this began
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._over = False
        self._lost: str | None = None

    def offer(self, message: bytes) -> None:
        """Put a message where the listener finds it; cut the listener that lets too many wait."""
        if self._over:
            return
        waits = len(self._messages)
        if waits >= QUEUE_MESSAGES or (waits and self._bytes + len(message) > QUEUE_BYTES):
            words = f"listened too slowly: {waits} messages ({self._bytes} bytes) were waiting"
            self.cut(words)
        else:
            self._messages.append(message)
            self._bytes += len(message)
            self._news.set()

    def post(self, act: Callable[..., None], *arguments: str | bytes) -> None:
        """Do one of these from another thread."""
        with suppress(RuntimeError):  # the loop was closed, and nobody listens any more
            self._loop.call_soon_threadsafe(act, *arguments)

    def end(self) -> None:
        """No more will come; what waits can still be taken."""
        self._over = True
        self._news.set()

    def cut(self, why: str) -> None:
        """End with an error, at once: what waits is let go."""
        if not self._over:
            self._lost = why
            self._messages.clear()
            self.end()

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._lost is not None:
                raise ConnectionLost(f"{self._lost}; look anew, and listen again")
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message


class Topics:
    """All who listen, by principal and topic."""

    def __init__(self, per_principal: int) -> None:
        self._per_principal = per_principal
        self._listeners: dict[tuple[str, str], set[TopicListener]] = {}
        self._numbers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def join(self, principal: str, topic: str, listening: TopicListener) -> None:
        """Raises `Refused` where too many of a principal listen already."""
        number = self._numbers.get(principal, 0)
        if number >= self._per_principal:
            raise Refused(f"{number} listen for this principal, which is all that may")
        self._numbers[principal] = number + 1
        self._listeners.setdefault((principal, topic), set()).add(listening)

    def leave(self, principal: str, topic: str, listening: TopicListener) -> None:
        """Nothing where it is not here."""
        here = self._listeners.get((principal, topic))
        if here is None or listening not in here:
            return
        here.remove(listening)
        if not here:
            del self._listeners[principal, topic]
        self._numbers[principal] -= 1
        if not self._numbers[principal]:
            del self._numbers[principal]

    def at(self, principal: str, topic: str) -> tuple[TopicListener, ...]:
        """Those who listen to this now."""
        return tuple(self._listeners.get((principal, topic), ()))

    def everyone(self) -> tuple[TopicListener, ...]:
        return tuple(one for here in self._listeners.values() for one in here)
