"""The limits of a store (names, sizes, counts), and the queues of its topic listeners.

Rules: limits are checked before anything is changed. A refusal names the limit, and never contains
a value or a whole name.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

from colonnade.errors import (
    ConnectionLost,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
)
from colonnade.ports import SERVER_PRINCIPAL, Swap

# Enough for the issuer, subject and client id of a token together, and for most resource URIs. For
# longer names, callers use a digest.
MAX_NAME_BYTES = 2048
# The approximate cost of a key or an entry beside its own bytes; without it a million empty ones
# would cost nothing.
OVERHEAD_BYTES = 256

# Names that are listed at once: a page of names of the greatest length has 2 MB.
MAX_LISTED_NAMES = 1000
# Calls that may wait for a store: as many as a few principals may have in flight.
WAITING_CALLS = 4096
# Beyond them, changes of entries that may exist: they renew or release what has begun, as the lease
# of a task. Beyond these, those of the server's own entries, as the leases of replicas.
RESERVED_CALLS = 1024
# Counters have the range that the integers of databases have.
MAX_COUNT = 2**63 - 1

_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The capacity of a store. Anonymous callers are one principal: raise the limits for them."""

    # A hundred sessions with their streams, and thousands of handles and single-use states.
    principal_entries: int = 10_000
    # The event logs of some sixty streams, all full.
    principal_bytes: int = 64 * 1024 * 1024
    # One for each call that a principal may have in flight.
    principal_listeners: int = 1024
    # Of all principals together: affordable for a small machine.
    total_bytes: int = 256 * 1024 * 1024
    # A request of 4 MiB and its result.
    value_bytes: int = 8 * 1024 * 1024
    # What a client can miss of one stream and still receive on resumption.
    log_entries: int = 1024
    log_bytes: int = 1024 * 1024
    # Proofs of possession live for some 70 seconds: 7,000 requests a second of one principal,
    # more than one machine can serve. In memory each takes some 110 bytes.
    principal_marks: int = 500_000
    total_marks: int = 1_000_000

    def check_value(self, value: bytes) -> None:
        """Raise `Refused` for a value that is too large, `TypeError` if it is not bytes."""
        check_bytes(value)
        if len(value) > self.value_bytes:
            raise Refused(f"a value of {len(value)} bytes is too large; {self.value_bytes} at most")

    def check_room(self, entries: int, size: int) -> None:
        """Raise `Refused` if this is more than one principal may store.

        Not for `SERVER_PRINCIPAL`: its state is of all callers, and only `total_bytes` limits it.
        """
        if entries > self.principal_entries:
            raise self.too_many_entries()
        if size > self.principal_bytes:
            raise self.too_many_bytes()

    def too_many_entries(self) -> Refused:
        return _no_room(self.principal_entries, "entries")

    def too_many_bytes(self) -> Refused:
        return _no_room(self.principal_bytes, "bytes")

    def check_total(self, size: int) -> None:
        """Raise `Refused` if this is more than the store may hold."""
        if size > self.total_bytes:
            raise store_full(f" ({self.total_bytes} bytes); raise its limit total_bytes")


def _no_room(held: int, unit: str) -> Refused:
    message = f"this principal would store more than {held} {unit}"
    return Refused(f"{message}; delete some, or use a shorter ttl_s")


def store_full(more: str = "; try again later") -> Refused:
    """The refusal of a store that has no room for any caller. Remote callers may read this message,
    so it does not name the store's address."""
    return Refused(f"the store is full{more}", reason="store_full")


def check_waiting(waiting: int, reserved: int) -> None:
    """Raise `Refused` for one more call if so many wait; `reserved` is of `reserved_calls`."""
    if waiting >= WAITING_CALLS + reserved:
        raise Refused(f"{waiting} calls wait for the store; try again later", reason="store_full")


def reserved_calls(principal: str, *, is_new: bool = False) -> int:
    """How many calls more may wait for a change of an entry: what thousands of clients do in one
    moment must not end leases."""
    if is_new:
        return 0
    return RESERVED_CALLS * (2 if principal == SERVER_PRINCIPAL else 1)


def reserved_for(swaps: Sequence[Swap]) -> int:
    """`reserved_calls` for several changes at once."""
    reserved = (reserved_calls(swap.principal, is_new=swap.before is None) for swap in swaps)
    return min(reserved, default=0)


def check_bytes(value: bytes) -> None:
    """Raise `TypeError` for a value that is not bytes."""
    if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentType(
            f"a store holds bytes, not {type(value).__name__}; encode it first"
        )


def check_names(principal: str, name: str) -> None:
    """Raise `Refused` for a name that not every store supports."""
    _check_name("principal", principal)
    _check_name("name", name)
    if not name:
        raise Refused("the name of an entry must not be empty")


def check_listing(principal: str, prefix: str, after: str, limit: int) -> None:
    """Raise `Refused` for a name that no entry can have, `LocalProtocolError` for an invalid
    limit."""
    _check_name("principal", principal)
    _check_name("prefix", prefix)
    _check_name("name", after)
    if not 1 <= limit <= MAX_LISTED_NAMES:
        words = f"limit is {limit}; list 1 to {MAX_LISTED_NAMES} names at once"
        raise InvalidArgument(words, argument="limit")


def add_to_counter(value: bytes | None, by: int) -> int:
    """The new number of a counter with this value.

    Raises `LocalProtocolError` if the value is not a number, `Refused` if the new one has more than
    64 bits.
    """
    check_increment(by)
    try:
        number = 0 if value is None else int(value)
    except ValueError:
        number = None
    if number is None or value not in (None, b"%d" % number):  # `int` also reads "+1" and " 1_000"
        raise not_a_counter()
    number += by
    if not -MAX_COUNT <= number <= MAX_COUNT:
        raise counter_out_of_range()
    return number


def check_increment(by: int) -> None:
    """Raise `TypeError` if a counter cannot count by it, `Refused` if it leaves any range."""
    if not isinstance(by, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgumentType(f"a counter counts by an int, not by {type(by).__name__}")
    if not -2 * MAX_COUNT <= by <= 2 * MAX_COUNT:
        raise counter_out_of_range()


def not_a_counter() -> InvalidArgument:
    return InvalidArgument("this entry is not a counter; count under another key")


def counter_out_of_range() -> Refused:
    return Refused("the counter would leave its range of 64 bits; delete it, or count less")


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
    message = f"the {what} {shown} is longer than {MAX_NAME_BYTES} bytes; use a digest of it"
    return Refused(message)


def _display_name(name: str) -> str:
    return ascii(name[:_SHOWN_CHARACTERS])


def check_ttl(ttl_s: float | None) -> None:
    """Raise `LocalProtocolError` for an invalid lifetime."""
    if ttl_s is not None and not (isfinite(ttl_s) and ttl_s > 0):
        raise InvalidArgument(
            f"ttl_s is {ttl_s}; give seconds above 0, or None for ever", argument="ttl_s"
        )


# The queue of one listener: a few requests of the greatest size that clients may send, since they
# arrive together and are then passed on to another process, and half of what Redis keeps for one.
# A message above the limit is accepted if the queue is empty.
QUEUE_MESSAGES = 1024
QUEUE_BYTES = 16 * 1024 * 1024


class TopicListener(AsyncIterator[bytes]):
    """The message queue of one listener. Belongs to the event loop of the listener."""

    def __init__(self) -> None:
        self.since = 0  # the number of the last message before it was added, if there are numbers
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._ended = False
        self._lost: str | None = None

    def offer(self, message: bytes) -> bool:
        """Queue a message; fail the listener if the queue is full. Returns False if the message was
        not queued."""
        if self._ended:
            return False
        waits = len(self._messages)
        if waits >= QUEUE_MESSAGES or (waits and self._bytes + len(message) > QUEUE_BYTES):
            reason = f"listened too slowly: {waits} messages ({self._bytes} bytes) were waiting"
            self.cut(reason)
            return False
        self._messages.append(message)
        self._bytes += len(message)
        self._wake.set()
        return True

    def post(self, method: Callable[..., object], *arguments: str | bytes) -> None:
        """Call a method of the listener from another thread."""
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(method, *arguments)

    def end(self) -> None:
        """End the queue; queued messages can still be consumed."""
        self._ended = True
        self._wake.set()

    def cut(self, why: str) -> None:
        """End with an error at once; queued messages are dropped."""
        if not self._ended:
            self._lost = why
            self._messages.clear()
            self.end()

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._lost is not None:
                raise ConnectionLost(f"{self._lost}; read the current state and listen again")
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
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

    def join(self, principal: str, topic: str, listening: TopicListener) -> None:
        """Add a listener. Raises `Refused` if the principal has too many."""
        number = self._numbers.get(principal, 0)
        if number >= self._per_principal:
            raise Refused(f"this principal has {number} listeners, which is the limit")
        self._numbers[principal] = number + 1
        self._listeners.setdefault((principal, topic), set()).add(listening)

    def leave(self, principal: str, topic: str, listening: TopicListener) -> None:
        """Remove a listener; does nothing if there is no such one."""
        listeners = self._listeners.get((principal, topic))
        if listeners is None or listening not in listeners:
            return
        listeners.remove(listening)
        if not listeners:
            del self._listeners[principal, topic]
        self._numbers[principal] -= 1
        if not self._numbers[principal]:
            del self._numbers[principal]

    def at(self, principal: str, topic: str) -> tuple[TopicListener, ...]:
        """The listeners of a topic."""
        return tuple(self._listeners.get((principal, topic), ()))

    def everyone(self) -> tuple[TopicListener, ...]:
        return tuple(one for listeners in self._listeners.values() for one in listeners)
