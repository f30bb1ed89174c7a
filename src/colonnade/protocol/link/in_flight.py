"""The requests that this side has sent and not yet seen answered.

Ids count up and are never used again, which is what every revision wants or allows. A request's
progress token is its id, so tokens are unique among active requests.

Rules: no clock: times come in. No answer to one call ever settles another.
"""

from collections.abc import Iterator
from math import inf, isfinite

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import RequestId, encode, encode_batch, encode_notification

# Calls that wait at once. A peer that stops answering must not make us remember for ever.
MAX_SENT = 10_000
# While a person answers a question of the peer, no call runs out of time that the question may be
# about; but even they are gone after so long.
MAX_PAUSED_S = 600.0
# From here on nobody counts tenths of a second.
WHOLE_SECONDS_FROM_S = 10.0


class OutgoingRequest(Struct, gc=False):
    """One request on its way: when to give up, and what was last heard of it.

    `limit` is the latest `deadline` that progress can bring about. Without a deadline it stays
    open until one side ends it, as a subscription does that was acknowledged.
    """

    id: int
    method: str
    sent_at: float
    deadline: float | None
    limit: float
    timeout_s: float
    wants_progress: bool = False
    last_progress: t.Number | None = None
    name: str | None = None
    max_pause_s: float = MAX_PAUSED_S
    # Questions that hold it, and since when the first of them does.
    pauses: int = 0
    paused_at: float = 0.0

    @property
    def label(self) -> str:
        """What it is called, in an error: the tool or prompt that it is about, or its method."""
        return self.method if self.name is None else repr(self.name)

    @property
    def ends_at(self) -> float | None:
        """When its time has run out; None for what stays open."""
        if self.deadline is None:
            return None
        return self.deadline + (self.max_pause_s if self.pauses else 0.0)

    @property
    def timeout_text(self) -> str:
        """How many seconds it is waited for, all in all, for people."""
        seconds = (self.limit if self.deadline is None else self.deadline) - self.sent_at
        if abs(seconds - self.timeout_s) < 0.001:
            return f"{self.timeout_s:g}"
        return (
            f"{seconds:.0f}"
            if seconds >= WHOLE_SECONDS_FROM_S
            else f"{max(round(seconds, 1), 0.1):g}"
        )

    def paused_s(self, now: float) -> float:
        """For how long its time has stood still by now."""
        return min(now - self.paused_at, self.max_pause_s) if self.pauses else 0.0

    def cancellation(self, reason: str | None) -> bytes:
        """The notice that nobody waits for it any more."""
        params = t.CancelledNotificationParams(request_id=self.id, reason=reason)
        return encode_notification("notifications/cancelled", encode(params))


class OutgoingRequests:
    """Our own requests in flight."""

    def __init__(self, next_id: int = 1, sent: tuple[OutgoingRequest, ...] = ()) -> None:
        self.next_id: int = next_id
        self._sent: dict[RequestId | None, OutgoingRequest] = {
            call.id: replace(call, pauses=0) for call in sent
        }

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def calls(self) -> tuple[OutgoingRequest, ...]:
        """Those that still wait, oldest first; copies, so that nobody else moves a deadline."""
        return tuple(replace(call) for call in self._sent.values())

    def reserve(self, method: str, timeout_s: float, max_s: float) -> int:
        """The id of a new request, which no other will have."""
        if not (0 < timeout_s <= max_s < inf or (isfinite(timeout_s) and 0 < max_s < timeout_s)):
            # R0237: a call that may wait for ever is one that nobody ends.
            raise LocalProtocolError(f"{method}: a time-out is a number of seconds above 0")
        if len(self._sent) >= MAX_SENT:
            raise LocalProtocolError(f"more than {MAX_SENT} requests wait for an answer")
        self.next_id += 1
        return self.next_id - 1

    def open(
        self,
        id: int,
        method: str,
        now: float,
        timeout_s: float,
        max_s: float,
        wants_progress: bool,
        name: str | None = None,
    ) -> OutgoingRequest:
        """A new request under an id that was reserved. `name` is what it is about, for people."""
        least = timeout_s if timeout_s < max_s else max_s
        until, limit = now + least, now + max_s
        call = OutgoingRequest(id, method, now, until, limit, timeout_s, wants_progress, None, name)
        self._sent[id] = call
        return call

    def get(self, id: RequestId | None) -> OutgoingRequest | None:
        """The request that waits under this id; `7` is not `"7"`."""
        return self._sent.get(id)

    def settle(self, id: RequestId | None) -> OutgoingRequest | None:
        """Take a request out: it is answered, cancelled or timed out."""
        return self._sent.pop(id, None)

    def keep_open(self, call: OutgoingRequest) -> None:
        """From here on it may take as long as it likes."""
        call.deadline = None

    def by_progress_token(self, token: t.ProgressToken) -> OutgoingRequest | None:
        """The request that wants its progress reported under this token."""
        call = self.get(token)
        return call if call is not None and call.wants_progress else None

    def progress(self, call: OutgoingRequest, progress: t.Number, now: float) -> bool:
        """Take note of progress; false where it did not go up (D32).

        Progress begins the time-out anew, but never beyond the limit (R0241).
        """
        if call.last_progress is not None and progress <= call.last_progress:
            return False
        call.last_progress = progress
        if call.deadline is not None:
            call.deadline = min(now - call.paused_s(now) + call.timeout_s, call.limit)
        return True

    def pause_timeouts(self, now: float, about: RequestId | None = None) -> tuple[int, ...]:
        """The peer has asked us something: the time stands still for the call that it is about, or
        where nobody knows for all that wait by now; which they are. What is sent later waits for
        something else."""
        known = self.get(about)
        held = tuple(self._sent.values()) if about is None else (known,) if known else ()
        for call in held:
            call.pauses += 1
            if call.pauses == 1:
                call.paused_at = now
        return tuple(call.id for call in held)

    def resume_timeouts(self, held: tuple[int, ...], now: float) -> None:
        """It was answered; the time goes on where it stood still."""
        for call in filter(None, map(self.get, held)):
            held_s = call.paused_s(now)
            call.pauses -= 1
            if call.pauses:
                continue
            call.max_pause_s -= held_s
            call.limit += held_s
            if call.deadline is not None:
                call.deadline += held_s

    def overdue(self, now: float) -> list[OutgoingRequest]:
        """Those whose time has run out."""
        ends = ((call, call.ends_at) for call in self._sent.values())
        return [call for call, end in ends if end is not None and end <= now]

    @property
    def next_deadline(self) -> float | None:
        """When to look again; None where nothing waits for a time."""
        ends = [end for call in self._sent.values() if (end := call.ends_at) is not None]
        return min(ends, default=None)


# Requests of one peer that are worked on at once; more are answered with an error.
MAX_RUNNING = 1_000
# Batches that wait for their last answer. One may hold a hundred answers, whose size its sender
# chooses; nobody needs more than a few at once.
MAX_BATCHES = 16


class PendingBatch:
    """One batch: the answers that are ready, how many are not, and which ids were used."""

    def __init__(self) -> None:
        self.open = 0
        self.frames: list[bytes] = []
        self.ids: set[RequestId] = set()

    def take(self) -> bytes | None:
        """The whole answer, as soon as nothing is open; None before, or if nothing was asked."""
        return encode_batch(self.frames) if self.frames and not self.open else None


class IncomingRequests:
    """The peer's requests in work."""

    def __init__(self) -> None:
        # The batch in which what is being received stands.
        self.batch: PendingBatch | None = None
        self._running: dict[RequestId | None, Exchange] = {}
        # The batches of those that came in one.
        self._boxes: dict[Exchange, PendingBatch] = {}
        self._waiting: set[PendingBatch] = set()

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

    def begin_batch(self) -> PendingBatch:
        """What comes now stands in one batch."""
        self.batch = PendingBatch()
        return self.batch

    def end_batch(self, box: PendingBatch) -> bytes | None:
        """The batch was read: its answer, if that is complete already."""
        self.batch = None
        self._waiting.add(box)
        return self._finished(box)

    def _finished(self, box: PendingBatch) -> bytes | None:
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
