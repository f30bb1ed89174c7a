"""Requests in flight: our own with their timeouts, and those of the peer with their batches.

Ids count up and are never reused, which every revision requires or allows; if several processes
send requests to one peer, ids begin with the name of the process. The progress token of a request
is its id, so tokens are unique among active requests.

Rules: no clock: times are arguments. No response ever settles another request.
"""

from collections.abc import Iterator
from math import inf, isfinite

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import RequestId, encode, encode_batch, encode_notification

# Our requests in flight. A peer that stops responding must not fill our memory.
MAX_SENT = 10_000
# While a user answers an input request of the peer, the timeouts of the requests that it may be
# about are paused, for this long at most.
MAX_PAUSED_S = 600.0
# From here on a duration is shown in whole seconds.
WHOLE_SECONDS_FROM_S = 10.0


class OutgoingRequest(Struct, gc=False):
    """One request of ours in flight: its timeout and its latest progress.

    `limit` is the latest `deadline` that progress can extend to. Without a deadline it stays open
    until one side ends it, as an acknowledged subscription does.
    """

    id: RequestId
    method: str
    sent_at: float
    deadline: float | None
    limit: float
    timeout_s: float
    wants_progress: bool = False
    last_progress: t.Number | None = None
    name: str | None = None
    max_pause_s: float = MAX_PAUSED_S
    # How many input requests pause its timeout, and since when.
    pauses: int = 0
    paused_at: float = 0.0

    @property
    def label(self) -> str:
        """Its name in an error message: the tool or prompt that it is about, or its method."""
        return self.method if self.name is None else repr(self.name)

    @property
    def ends_at(self) -> float | None:
        """When its timeout expires; None if it stays open."""
        if self.deadline is None:
            return None
        return self.deadline + (self.max_pause_s if self.pauses else 0.0)

    @property
    def timeout_text(self) -> str:
        """Its timeout in seconds, with extensions, for a message."""
        seconds = (self.limit if self.deadline is None else self.deadline) - self.sent_at
        if abs(seconds - self.timeout_s) < 0.001:
            return f"{self.timeout_s:g}"
        return (
            f"{seconds:.0f}"
            if seconds >= WHOLE_SECONDS_FROM_S
            else f"{max(round(seconds, 1), 0.1):g}"
        )

    def paused_s(self, now: float) -> float:
        """How long its timeout has been paused by now."""
        return min(now - self.paused_at, self.max_pause_s) if self.pauses else 0.0

    def cancellation(self, reason: str | None) -> bytes:
        """The `notifications/cancelled` for it."""
        params = t.CancelledNotificationParams(request_id=self.id, reason=reason)
        return encode_notification("notifications/cancelled", encode(params))


class OutgoingRequests:
    """Our own requests in flight.

    `sender` is the name of this process in their ids, if other processes send requests, too.
    """

    sender: str = ""

    def __init__(self, next_id: int = 1, sent: tuple[OutgoingRequest, ...] = ()) -> None:
        self.next_id: int = next_id
        self._sent: dict[RequestId | None, OutgoingRequest] = {
            call.id: replace(call, pauses=0) for call in sent
        }

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def calls(self) -> tuple[OutgoingRequest, ...]:
        """Those in flight, oldest first; copies, so that no other code moves a deadline."""
        return tuple(replace(call) for call in self._sent.values())

    def open(
        self,
        method: str,
        now: float,
        timeout_s: float,
        max_s: float,
        wants_progress: bool,
        name: str | None = None,
        id: RequestId | None = None,
    ) -> OutgoingRequest:
        """Add a request under a new id, which is `id_of_next`. `name` is the tool or prompt that it
        is about. Raises `LocalProtocolError` if it may not be sent."""
        if not (0 < timeout_s <= max_s < inf or (isfinite(timeout_s) and 0 < max_s < timeout_s)):
            # R0237: a request without a timeout might never end.
            raise LocalProtocolError(f"{method}: a timeout is a number of seconds above 0")
        if len(self._sent) >= MAX_SENT:
            raise LocalProtocolError(f"more than {MAX_SENT} requests in flight")
        if id is None:
            id = self.id_of_next()
        self.next_id += 1
        least = timeout_s if timeout_s < max_s else max_s
        until, limit = now + least, now + max_s
        call = OutgoingRequest(id, method, now, until, limit, timeout_s, wants_progress, None, name)
        self._sent[id] = call
        return call

    def id_of_next(self) -> RequestId:
        """The id of the request that is opened next."""
        return f"{self.sender}.{self.next_id}" if self.sender else self.next_id

    def get(self, id: RequestId | None) -> OutgoingRequest | None:
        """The request with this id; `7` is not `"7"`."""
        return self._sent.get(id)

    def settle(self, id: RequestId | None) -> OutgoingRequest | None:
        """Remove a request that has its response, was cancelled or timed out."""
        return self._sent.pop(id, None)

    def keep_open(self, call: OutgoingRequest) -> None:
        """Remove the timeout of a request."""
        call.deadline = None

    def by_progress_token(self, token: t.ProgressToken) -> OutgoingRequest | None:
        """The request that wants progress under this token."""
        call = self.get(token)
        return call if call is not None and call.wants_progress else None

    def progress(self, call: OutgoingRequest, progress: t.Number, now: float) -> bool:
        """Record progress; False if it did not increase (D32).

        Progress restarts the timeout, but never beyond the limit (R0241).
        """
        if call.last_progress is not None and progress <= call.last_progress:
            return False
        call.last_progress = progress
        if call.deadline is not None:
            call.deadline = min(now - call.paused_s(now) + call.timeout_s, call.limit)
        return True

    def pause_timeouts(self, now: float, about: RequestId | None = None) -> tuple[RequestId, ...]:
        """Pause the timeout of the request that an input request is `about`, or of all in flight
        if that is unknown, and return their ids. Requests sent later are not affected."""
        known = self.get(about)
        held = tuple(self._sent.values()) if about is None else (known,) if known else ()
        for call in held:
            call.pauses += 1
            if call.pauses == 1:
                call.paused_at = now
        return tuple(call.id for call in held)

    def resume_timeouts(self, held: tuple[RequestId, ...], now: float) -> None:
        """Resume paused timeouts after the response to the input request."""
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
        """Those whose timeout has expired."""
        ends = ((call, call.ends_at) for call in self._sent.values())
        return [call for call, end in ends if end is not None and end <= now]

    @property
    def next_deadline(self) -> float | None:
        """When to check again; None if there is no timeout."""
        ends = [end for call in self._sent.values() if (end := call.ends_at) is not None]
        return min(ends, default=None)


# Concurrent requests of one peer; more get an error.
MAX_RUNNING = 1_000
# Batches that wait for their last response. One may hold a hundred responses, whose size its sender
# chooses; more than a few at once are not needed.
MAX_BATCHES = 16


class PendingBatch:
    """One batch: the responses that are ready, how many are missing, and which ids were used."""

    def __init__(self) -> None:
        self.open = 0
        self.frames: list[bytes] = []
        self.ids: set[RequestId] = set()

    def take(self) -> bytes | None:
        """The whole response as soon as none is missing; None before, or if there was no
        request."""
        return encode_batch(self.frames) if self.frames and not self.open else None


class IncomingRequests:
    """The requests of the peer that are being handled."""

    def __init__(self) -> None:
        # The batch that is being received.
        self.batch: PendingBatch | None = None
        self._running: dict[RequestId | None, Exchange] = {}
        # The batches of requests that came in one.
        self._batch_of: dict[Exchange, PendingBatch] = {}
        self._waiting: set[PendingBatch] = set()

    def __len__(self) -> int:
        return len(self._running)

    def __iter__(self) -> Iterator[Exchange]:
        return iter([*self._running.values()])

    def get(self, id: RequestId | None) -> Exchange | None:
        """The request with this id."""
        return self._running.get(id)

    def uses(self, id: RequestId) -> bool:
        """Whether a response with this id could be taken for that of another request."""
        return id in self._running or (self.batch is not None and id in self.batch.ids)

    def claim(self, id: RequestId) -> bool:
        """Take the id of a decoded request, for the rest of its batch. False if it is in use."""
        if self.batch is None:
            return id not in self._running
        if self.uses(id):
            return False
        self.batch.ids.add(id)
        return True

    def open(self, exchange: Exchange) -> None:
        """Begin to handle a request. Raises `Fault` if there are too many.

        A batch too many is read all the same: responses and cancellations in it need no room, and
        each request gets an error under its own id.
        """
        running, batch = self._running, self.batch
        if len(running) >= MAX_RUNNING:
            raise Fault(FaultKind.INTERNAL, "too many requests at once; try again later")
        if batch is not None:
            if len(self._waiting) >= MAX_BATCHES:
                raise Fault(FaultKind.INTERNAL, "too many batches at once; try again later")
            batch.open += 1
            self._batch_of[exchange] = batch
        running[exchange.request.id] = exchange

    def open_alone(self, exchange: Exchange) -> bool:
        """Begin to handle a request that is in no batch; False if it would be refused."""
        id, running = exchange.request.id, self._running
        if len(running) >= MAX_RUNNING or id in running or self.batch is not None:
            return False
        running[id] = exchange
        return True

    def close(self, exchange: Exchange, data: bytes | None) -> bytes | None:
        """End a request: what to send, which is nothing yet inside an unfinished batch.

        One that was abandoned before is no longer in here, though its id may be in use again.
        """
        id, running = exchange.request.id, self._running
        if running.get(id) is not exchange:
            return None
        del running[id]
        if not self._batch_of or exchange not in self._batch_of:
            return data
        batch = self._batch_of.pop(exchange)
        batch.open -= 1
        if data is not None:
            batch.frames.append(data)
        return self._finished(batch) if batch is not self.batch else None

    def answer(self, data: bytes) -> bytes | None:
        """Add a response that is ready at once: what to send now."""
        if self.batch is None:
            return data
        self.batch.frames.append(data)
        return None

    def begin_batch(self) -> PendingBatch:
        """Begin a batch: what is received now belongs to it."""
        self.batch = PendingBatch()
        return self.batch

    def end_batch(self, batch: PendingBatch) -> bytes | None:
        """End a batch: its response, if that is complete already."""
        self.batch = None
        self._waiting.add(batch)
        return self._finished(batch)

    def _finished(self, batch: PendingBatch) -> bytes | None:
        if not batch.open:
            self._waiting.discard(batch)
        return batch.take()

    def clear(self) -> list[Exchange]:
        """Remove all requests and return them."""
        exchanges = list(self)
        self._running.clear()
        self._batch_of.clear()
        self._waiting.clear()
        return exchanges


# ---------------------------------------------------------------- byte budget


class ByteBudget:
    """Bytes that are held at the moment, in total and by principal.

    Anonymous callers are the principal "", for which only the total applies: they are many.
    """

    def __init__(self, total: int, per_principal: int) -> None:
        self.total = total
        self.per_principal = per_principal
        self.used: int = 0
        self._by_principal: dict[str, int] = {}

    def reserve(self, principal: str, size: int) -> bool:
        """Count these bytes as held; False, and nothing is counted, if they do not fit."""
        used = self.used + size
        if used > self.total:
            return False
        if principal:
            own = self._by_principal.get(principal, 0) + size
            if own > self.per_principal:
                return False
            self._by_principal[principal] = own
        self.used = used
        return True

    def release(self, principal: str, size: int) -> None:
        """Stop counting these bytes, which were reserved."""
        self.used -= size
        if principal:
            own = self._by_principal[principal] - size
            if own:
                self._by_principal[principal] = own
            else:
                del self._by_principal[principal]
