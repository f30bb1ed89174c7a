"""The peer's requests that this side is answering, and the batches that they came in.

The answers to a batch go out together: each waits here until the last one is there.

Rules: no I/O. An id means one running request, and an answer reaches the batch of its own
request alone. All that a peer can make us keep is bounded.
"""

from collections.abc import Iterator

from portico.errors import Fault, FaultKind
from portico.protocol.exchange import Exchange
from portico.protocol.jsonrpc import RequestId, encode_batch

# Requests of one peer that are worked on at once; more are answered with an error.
MAX_RUNNING = 1_000
# Batches that wait for their last answer. One may hold a hundred answers, whose size its sender
# chooses; nobody needs more than a few at once.
MAX_BATCHES = 16


# What runs under an id that nothing runs under.
_NOBODY: "tuple[None, None]" = (None, None)


class Box:
    """One batch: the answers that are ready, how many are not, and which ids were used."""

    def __init__(self) -> None:
        self.open = 0
        self.frames: list[bytes] = []
        self.ids: set[RequestId] = set()

    def take(self) -> bytes | None:
        """The whole answer, as soon as nothing is open; None before, or if nothing was asked."""
        return encode_batch(self.frames) if self.frames and not self.open else None


class Incoming:
    """The peer's requests in work."""

    def __init__(self) -> None:
        self._running: dict[RequestId | None, tuple[Exchange, Box | None]] = {}
        self._waiting: set[Box] = set()
        self._current: Box | None = None

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Exchange]:
        return iter([exchange for exchange, _ in self._running.values()])

    @property
    def in_batch(self) -> bool:
        """Whether what is being received stands in a batch."""
        return self._current is not None

    def get(self, id: RequestId | None) -> Exchange | None:
        """The request that runs under this id."""
        found = self._running.get(id)
        return found[0] if found is not None else None

    def uses(self, id: RequestId) -> bool:
        """Whether an answer under this id would be taken for that of another request."""
        return id in self._running or (self._current is not None and id in self._current.ids)

    def claim(self, id: RequestId) -> bool:
        """A request with this id was read; for the rest of its batch the id is taken. False where
        it is in use."""
        if self._current is None:
            return id not in self._running
        if self.uses(id):
            return False
        self._current.ids.add(id)
        return True

    def open(self, exchange: Exchange) -> None:
        """Begin to work on a request. Raises `Fault` where there are too many.

        A batch too many is read all the same: what answers us or cancels something needs no
        room, and each request learns under its own id that it must wait.
        """
        running, box = self._running, self._current
        if len(running) >= MAX_RUNNING:
            raise Fault(FaultKind.INTERNAL, "too many requests at once; try again later")
        if box is not None:
            if len(self._waiting) >= MAX_BATCHES:
                raise Fault(FaultKind.INTERNAL, "too many batches at once; try again later")
            box.open += 1
        running[exchange.request.id] = (exchange, box)

    def close(self, exchange: Exchange, data: bytes | None) -> bytes | None:
        """A request is over: what to send, which is nothing yet inside an unfinished batch.

        One that was given up before is not in here any more, though its id may be again.
        """
        id = exchange.request.id
        running, box = self._running.get(id, _NOBODY)
        if running is not exchange:
            return None
        del self._running[id]
        if box is None:
            return data
        box.open -= 1
        if data is not None:
            box.frames.append(data)
        return self._finished(box) if box is not self._current else None

    def answer(self, data: bytes) -> bytes | None:
        """An answer that is ready at once: what to send now."""
        if self._current is None:
            return data
        self._current.frames.append(data)
        return None

    def begin_batch(self) -> Box:
        """What comes now stands in one batch."""
        self._current = Box()
        return self._current

    def end_batch(self, box: Box) -> bytes | None:
        """The batch was read: its answer, if that is complete already."""
        self._current = None
        self._waiting.add(box)
        return self._finished(box)

    def _finished(self, box: Box) -> bytes | None:
        if not box.open:
            self._waiting.discard(box)
        return box.take()

    def clear(self) -> list[Exchange]:
        """Forget all of them, and say which they were."""
        exchanges = list(self)
        self._running.clear()
        self._waiting.clear()
        return exchanges
