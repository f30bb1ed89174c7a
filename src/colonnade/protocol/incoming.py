"""The peer's requests that this side is answering, and the batches that they came in.

The answers to a batch go out together: each waits here until the last one is there.

Rules: no I/O. An id means one running request, and an answer reaches the batch of its own
request alone. All that a peer can make us keep is bounded.
"""

from collections.abc import Iterator

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import RequestId, encode_batch

# Requests of one peer that are worked on at once; more are answered with an error.
MAX_RUNNING = 1_000
# Batches that wait for their last answer. One may hold a hundred answers, whose size its sender
# chooses; nobody needs more than a few at once.
MAX_BATCHES = 16


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
        # The batch in which what is being received stands.
        self.batch: Box | None = None
        self._running: dict[RequestId | None, Exchange] = {}
        # The batches of those that came in one.
        self._boxes: dict[Exchange, Box] = {}
        self._waiting: set[Box] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Exchange]:
        return iter([*self._running.values()])

    def get(self, id: RequestId | None) -> Exchange | None:
        """The request that runs under this id."""
        return self._running.get(id)

    def uses(self, id: RequestId) -> bool:
        """Whether an answer under this id would be taken for that of another request."""
        return id in self._running or (self.batch is not None and id in self.batch.ids)

    def claim(self, id: RequestId) -> bool:
        """A request with this id was read; for the rest of its batch the id is taken. False where
        it is in use."""
        if self.batch is None:
            return id not in self._running
        if self.uses(id):
            return False
        self.batch.ids.add(id)
        return True

    def open(self, exchange: Exchange) -> None:
        """Begin to work on a request. Raises `Fault` where there are too many.

        A batch too many is read all the same: what answers us or cancels something needs no
        room, and each request learns under its own id that it must wait.
        """
        running, box = self._running, self.batch
        if len(running) >= MAX_RUNNING:
            raise Fault(FaultKind.INTERNAL, "too many requests at once; try again later")
        if box is not None:
            if len(self._waiting) >= MAX_BATCHES:
                raise Fault(FaultKind.INTERNAL, "too many batches at once; try again later")
            box.open += 1
            self._boxes[exchange] = box
        running[exchange.request.id] = exchange

    def close(self, exchange: Exchange, data: bytes | None) -> bytes | None:
        """A request is over: what to send, which is nothing yet inside an unfinished batch.

        One that was given up before is not in here any more, though its id may be again.
        """
        id, running = exchange.request.id, self._running
        if running.get(id) is not exchange:
            return None
        del running[id]
        if not self._boxes or exchange not in self._boxes:
            return data
        box = self._boxes.pop(exchange)
        box.open -= 1
        if data is not None:
            box.frames.append(data)
        return self._finished(box) if box is not self.batch else None

    def answer(self, data: bytes) -> bytes | None:
        """An answer that is ready at once: what to send now."""
        if self.batch is None:
            return data
        self.batch.frames.append(data)
        return None

    def begin_batch(self) -> Box:
        """What comes now stands in one batch."""
        self.batch = Box()
        return self.batch

    def end_batch(self, box: Box) -> bytes | None:
        """The batch was read: its answer, if that is complete already."""
        self.batch = None
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
        self._boxes.clear()
        self._waiting.clear()
        return exchanges
