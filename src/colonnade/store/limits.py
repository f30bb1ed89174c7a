"""Limits of a store per principal and in all, checks of names, and the queues of listeners.

Rules: a check raises before anything is changed, names the limit, and never repeats a value or a
complete name.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from colonnade.errors import ConnectionLost, LocalProtocolError, Refused

# Issuer, subject and client id of a token fit together, and most resource URLs. For longer names
# the caller uses a digest.
MAX_NAME_BYTES = 2048
# Roughly what an entry costs beside its own bytes; otherwise a million empty ones would be free.
OVERHEAD_BYTES = 256

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits of a store. All anonymous callers are one principal: raise its limits if needed."""

    # A hundred sessions with their streams, and thousands of handles and single-use states.
    principal_entries: int = 10_000
    # The event logs of some sixty streams, all full.
    principal_bytes: int = 64 * 1024 * 1024
    # One for each request that a principal may have in flight.
    principal_listeners: int = 1024
    # All principals together: what a small machine can afford.
    total_bytes: int = 256 * 1024 * 1024
    # A request of 4 MiB and its result.
    value_bytes: int = 8 * 1024 * 1024
    # What a client can miss of one stream and still be sent on resumption.
    log_entries: int = 1024
    log_bytes: int = 1024 * 1024
    # DPoP proofs are remembered for some 70 seconds: 7,000 requests a second of one principal,
    # more than one machine can serve. Each takes some 110 bytes of memory.
    principal_marks: int = 500_000
    total_marks: int = 1_000_000

    def check_value(self, value: bytes) -> None:
        """Raise `Refused` for a value that is too large, `TypeError` for what is not bytes."""
        if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a store takes bytes, not {type(value).__name__}; encode it first")
        if len(value) > self.value_bytes:
            raise Refused(f"the value has {len(value)} bytes; the maximum is {self.value_bytes}")

    def check_room(self, entries: int, size: int) -> None:
        """Raise `Refused` if this is more than one principal may have."""
        if entries > self.principal_entries:
            held, unit = self.principal_entries, "entries"
        elif size > self.principal_bytes:
            held, unit = self.principal_bytes, "bytes"
        else:
            return
        words = f"this principal would have more than {held} {unit} in the store"
        raise Refused(f"{words}; delete some, or use a shorter ttl_s")

    def check_total(self, size: int) -> None:
        """Raise `Refused` if this is more than the store may hold."""
        if size > self.total_bytes:
            raise Refused(
                f"the store is full ({self.total_bytes} bytes); raise its limit total_bytes"
            )


def check_names(principal: str, name: str) -> None:
    """Raise `Refused` for a name that is empty, too long, not Unicode, or contains NUL."""
    _check_name("principal", principal)
    _check_name("name", name)
    if not name:
        raise Refused("the name is empty")


def _check_name(what: str, name: str) -> None:
    if len(name) > MAX_NAME_BYTES:
        raise _too_long(what, name)
    if not name.isascii():
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise Refused(f"the {what} {_display_name(name)} is not valid Unicode") from None
        if size > MAX_NAME_BYTES:
            raise _too_long(what, name)
    if "\0" in name:
        raise Refused(f"the {what} {_display_name(name)} contains NUL")


def _too_long(what: str, name: str) -> Refused:
    words = f"the {what} {_display_name(name)} is longer than {MAX_NAME_BYTES} bytes"
    return Refused(f"{words}; use a digest of it")


def _display_name(name: str) -> str:
    return ascii(name[:_SHOWN_CHARACTERS])


def check_ttl(ttl_s: float | None) -> None:
    """Raise `LocalProtocolError` for an invalid lifetime."""
    if ttl_s is not None and not (isfinite(ttl_s) and ttl_s > 0):
        raise LocalProtocolError(f"ttl_s is {ttl_s}; it must be positive, or None for no expiry")


# The queue of one listener. A larger message is accepted if the queue is empty.
QUEUE_MESSAGES = 256
QUEUE_BYTES = 256 * 1024


class TopicListener(AsyncIterator[bytes]):
    """The message queue of one listener, on the event loop that created it."""

    def __init__(self) -> None:
        self.since = 0  # the number of the last message before it was added, if they have one
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._available = asyncio.Event()
        self._ended = False
        self._error: str | None = None

    def offer(self, message: bytes) -> None:
        """Add a message to the queue; a listener whose queue is full fails."""
        if self._ended:
            return
        waiting = len(self._messages)
        if waiting >= QUEUE_MESSAGES or (waiting and self._bytes + len(message) > QUEUE_BYTES):
            words = f"the listener is too slow: {waiting} messages ({self._bytes} bytes) waiting"
            self.fail(words)
        else:
            self._messages.append(message)
            self._bytes += len(message)
            self._available.set()

    def post(self, act: Callable[..., None], *arguments: str | bytes) -> None:
        """Call one of these methods from another thread."""
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(act, *arguments)

    def end(self) -> None:
        """End the iteration after the messages that are queued."""
        self._ended = True
        self._available.set()

    def fail(self, why: str) -> None:
        """End with an error at once; queued messages are dropped."""
        if not self._ended:
            self._error = why
            self._messages.clear()
            self.end()

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._error is not None:
                raise ConnectionLost(f"{self._error}; read the current state, and listen again")
            if self._ended:
                raise StopAsyncIteration
            self._available.clear()
            await self._available.wait()
        message = self._messages.popleft()
        self._bytes -= len(message)
        return message


class Topics:
    """All listeners, by principal and topic."""

    def __init__(self, per_principal: int) -> None:
        self._per_principal = per_principal
        self._listeners: dict[tuple[str, str], set[TopicListener]] = {}
        self._numbers: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def join(self, principal: str, topic: str, listener: TopicListener) -> None:
        """Add a listener. Raises `Refused` if the principal has too many."""
        number = self._numbers.get(principal, 0)
        if number >= self._per_principal:
            raise Refused(f"this principal has {number} listeners, the maximum")
        self._numbers[principal] = number + 1
        self._listeners.setdefault((principal, topic), set()).add(listener)

    def leave(self, principal: str, topic: str, listener: TopicListener) -> None:
        """Remove a listener, if it is here."""
        here = self._listeners.get((principal, topic))
        if here is None or listener not in here:
            return
        here.remove(listener)
        if not here:
            del self._listeners[principal, topic]
        self._numbers[principal] -= 1
        if not self._numbers[principal]:
            del self._numbers[principal]

    def at(self, principal: str, topic: str) -> tuple[TopicListener, ...]:
        """The listeners of a topic."""
        return tuple(self._listeners.get((principal, topic), ()))

    def all(self) -> tuple[TopicListener, ...]:
        return tuple(one for here in self._listeners.values() for one in here)
