"""One duplex conversation: the handshake, what is in flight both ways, and how each ends.

A pipe is one link, and so is a session over HTTP. Frames go in, events and frames come out. What
is enveloped is judged by itself, so one pipe may carry both ways of opening.

Rules: no I/O, no clock, no tasks. The table says which steps exist; what is not in it is refused
and changes nothing. Whatever the peer sends, only events come out.
"""

from collections.abc import Iterable

from msgspec import Raw
from msgspec.structs import replace

from portico.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    PorticoError,
    RemoteError,
    TimedOut,
)
from portico.protocol import types as t
from portico.protocol.events import (
    TABLE,
    Answered,
    Call,
    Cancelled,
    Dropped,
    Event,
    Identity,
    Opened,
    Phase,
    Progressed,
    Record,
    Send,
    Told,
)
from portico.protocol.exchange import LISTEN, Exchange
from portico.protocol.flight import Flight, Sent
from portico.protocol.jsonrpc import (
    Batch,
    Failure,
    Frame,
    Notification,
    Reply,
    Request,
    RequestId,
    decode,
    encode,
    encode_batch,
    encode_failure,
    encode_notification,
    encode_reply,
    encode_request,
    head,
)
from portico.protocol.methods import Method, Side, declares
from portico.protocol.negotiation import (
    HANDSHAKE_METHOD,
    Peer,
    Recogniser,
    agree,
    negotiate,
)
from portico.protocol.reading import read
from portico.protocol.revision import EVERY, Pushing, Revision, Revisions, number
from portico.protocol.shape import Shaper

# Requests of one peer that are worked on at once; more are answered with an error.
MAX_INCOMING = 1_000
# R0237: every request has a time-out; these hold where the caller names none.
TIMEOUT_S = 60.0
MAX_S = 600.0


class _Box:
    """The answers to one batch, until the last of them is there."""

    def __init__(self) -> None:
        self.open = 0
        self.frames: list[bytes] = []


class Link:
    """A conversation as one side sees it."""

    def __init__(self, side: Side, identity: Identity, accepts: Revisions = EVERY) -> None:
        self.side = side
        self.identity = identity
        self.accepts = accepts
        self.phase = Phase.NEW
        self.peer: Peer | None = None
        self._recogniser = Recogniser(accepts)
        self._flight = Flight()
        self._incoming: dict[RequestId, Exchange] = {}
        self._boxes: dict[int, _Box] = {}
        self._box: int | None = None
        self._shapers: dict[Revision, Shaper] = {}
        self._extensions = frozenset(identity.capabilities.extensions or ())

    # ------------------------------------------------------------ what comes in

    def receive(self, data: bytes, now: float) -> list[Event]:
        """One message as it was read. Nothing is ever raised for what a peer sent."""
        if self.phase is Phase.CLOSED:
            return [Dropped("a message after the end")]
        try:
            frame = decode(data)
        except Fault as fault:
            return self._refused(fault)
        if isinstance(frame, Batch):
            return self._receive_batch(frame, now)
        return self._receive_frame(frame, now)

    def _receive_frame(self, frame: Frame, now: float) -> list[Event]:
        try:
            if isinstance(frame, Request):
                return self._receive_request(frame)
            if isinstance(frame, Notification):
                return self._receive_notification(frame, now)
            return self._receive_outcome(frame)
        except Fault as fault:
            if isinstance(frame, Request):
                return self._fault(fault, frame.raw_id)
            return [Dropped(f"{fault.message}")]

    def _refused(self, fault: Fault) -> list[Event]:
        """A frame that is none. A malformed reply ends the call that waits for it."""
        call = self._flight.settle(fault.settles)
        if call is not None:
            return [Answered(call.id, call.method, fault)]
        return self._fault(fault, fault.raw_id)

    def _fault(self, fault: Fault, raw_id: bytes) -> list[Event]:
        """Tell the peer, if this is a side that answers and there is somebody to tell."""
        revision = self.peer.revision if self.peer is not None else None
        if self.side is Side.CLIENT and (revision is None or not raw_id or not revision.handshake):
            return [Dropped(fault.message)]
        null_id = revision is not None and revision.error_id_required  # D2
        code = number(fault, revision)
        data = encode_failure(raw_id, code, fault.message, fault.data, null_id=null_id)
        return self._answer(data)

    def _answer(self, data: bytes) -> list[Event]:
        """An answer that is ready at once; inside a batch it waits for the others."""
        if self._box is not None:
            self._boxes[self._box].frames.append(data)
            return []
        return [Send(data)]

    def _receive_batch(self, batch: Batch, now: float) -> list[Event]:
        if self.peer is None or not self.peer.revision.batches:
            fault = Fault(FaultKind.INVALID_REQUEST, "a batch; send messages one by one")
            return self._fault(fault, b"")
        number_ = max(self._boxes, default=0) + 1
        box = self._boxes[number_] = _Box()
        self._box = number_
        events: list[Event] = []
        for item in batch.items:
            if isinstance(item, Fault):
                events += self._refused(item)
            elif isinstance(item, Request) and item.method == HANDSHAKE_METHOD:
                fault = Fault(FaultKind.INVALID_REQUEST, "initialize inside a batch")  # D26
                events += self._fault(fault, item.raw_id)
            else:
                events += self._receive_frame(item, now)
        self._box = None
        if not box.open:
            data = self._close_box(number_)
            events += [Send(data)] if data is not None else []
        return events

    def _close_box(self, number_: int) -> bytes | None:
        frames = self._boxes.pop(number_).frames
        return encode_batch(frames) if frames else None

    # ------------------------------------------------------------ requests to us

    def _receive_request(self, request: Request) -> list[Event]:
        parts = head(request.params)
        if request.id in self._incoming:
            # D3: the first call goes on untouched, so its id must not be answered.
            fault = Fault(FaultKind.INVALID_REQUEST, "this id is in use by a running request")
            return [*self._fault(fault, b""), Dropped("a request with an id that is in use")]
        peer = self._recognise(request, parts.meta)
        if peer is None:
            return self._initialize(request)
        row = self.row_of(request.method, peer, self.side.other)
        if row.result is None:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"{request.method} is a notification")
        exchange = Exchange(request, parts, row, peer, self.shaper(peer.revision))
        if request.method == "ping":
            return self._answer_now(exchange, t.EmptyResult())
        if request.method == "logging/setLevel":
            return self._set_level(exchange, peer)
        if len(self._incoming) >= MAX_INCOMING:
            raise Fault(FaultKind.INTERNAL, "too many requests at once; try again later")
        self._incoming[request.id] = exchange
        if self._box is not None:
            exchange.batch = self._box
            self._boxes[self._box].open += 1
        return [Call(exchange)]

    def _recognise(self, request: Request, meta: Raw) -> Peer | None:
        if self.side is Side.CLIENT:
            # A server never opens; it speaks as the session does, and not at all without one.
            if self.peer is None or not self.peer.revision.handshake:
                raise Fault(FaultKind.METHOD_NOT_FOUND, "servers do not send requests")
            return self.peer
        known = self.peer
        if known is None and request.method == "ping" and self.accepts.handshakes:
            known = Peer(self.accepts.handshakes[0], t.ClientCapabilities())  # D27
        return self._recogniser.recognise(request, meta, None, known)

    def row_of(self, method: str, peer: Peer, sender: Side) -> Method:
        """The row of a method that `sender` may send now. Raises `Fault` where it may not."""
        row = peer.revision.method(method, self._extensions & peer.extensions)
        if row is None or sender not in row.senders:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"there is no {method[:80]} here")
        needed = row.needs if row.needed_of(sender) is self.side else None
        if needed is not None and not declares(self.identity.capabilities, needed):
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"{method} is not offered here")
        return row

    def _initialize(self, request: Request) -> list[Event]:
        if self.phase is not Phase.NEW:
            raise Fault(FaultKind.INVALID_REQUEST, "initialize was already done")  # D27
        params = read(t.InitializeRequestParams, request.params)
        revision = negotiate(params.protocol_version, self.accepts)
        self._step("initialize")
        self.peer = Peer(revision, params.capabilities, params.client_info)
        mine = self.identity
        if not isinstance(mine.capabilities, t.ServerCapabilities):
            raise LocalProtocolError("a server's link needs ServerCapabilities")
        result = t.InitializeResult(
            protocol_version=revision.date,
            capabilities=mine.capabilities,
            server_info=mine.info,
            instructions=mine.instructions,
        )
        body = self.shaper(revision).result(result)
        return [Send(encode_reply(request.raw_id, body)), Opened(self.peer)]

    def _set_level(self, exchange: Exchange, peer: Peer) -> list[Event]:
        level = read(t.SetLevelRequestParams, exchange.request.params).level
        self.peer = replace(peer, log_level=level)
        return self._answer_now(exchange, t.EmptyResult())

    def _answer_now(self, exchange: Exchange, result: t.Noun) -> list[Event]:
        data = exchange.settle(result)
        return self._answer(data) if data is not None else []

    # ------------------------------------------------------------ notifications to us

    def _receive_notification(self, frame: Notification, now: float) -> list[Event]:
        if frame.method == "notifications/cancelled":
            return self._receive_cancelled(frame)
        if frame.method == "notifications/initialized":
            if self.side is Side.SERVER and "initialized" in TABLE[self.side][self.phase]:
                self._step("initialized")
                return []
            return [Dropped("notifications/initialized out of turn")]
        peer = self.peer
        if peer is None:
            return [Dropped(f"{frame.method[:80]} before the peer is known")]
        row = self.row_of(frame.method, peer, self.side.other)
        if row.result is not None:
            return [Dropped(f"{row.name} without an id")]
        if frame.method == "notifications/progress":
            params = read(t.ProgressNotificationParams, frame.params)
            call = self._flight.progress(params, now)
            return [Progressed(call.id, params)] if call else [Dropped("progress of no call")]
        return self._tell(row, frame, peer)

    def _tell(self, row: Method, frame: Notification, peer: Peer) -> list[Event]:
        subscription = None
        meta = head(frame.params).meta
        if peer.revision.pushing is Pushing.LISTEN and meta:
            subscription = read(t.NotificationMeta, meta).subscription_id
            call = self._flight.get(subscription)
            if subscription is not None and (call is None or call.method != LISTEN):
                return [Dropped(f"{row.name} of no subscription")]
        return [Told(row, frame.params, subscription)]

    def _receive_cancelled(self, frame: Notification) -> list[Event]:
        params = read(t.CancelledNotificationParams, frame.params)
        if params.request_id is None:
            return [Dropped("a cancellation of nothing")]
        exchange = self._incoming.pop(params.request_id, None)
        if exchange is not None:
            exchange.abandon()
            events: list[Event] = [Cancelled(exchange, params.reason)]
            data = self._deliver(exchange, None)
            return [*events, Send(data)] if data is not None else events
        call = self._flight.get(params.request_id)
        if call is not None and call.method == LISTEN and self.side is Side.CLIENT:
            # D1: the server ended a subscription; the result that may follow is a stray.
            self._flight.settle(call.id)
            return [Answered(call.id, call.method, Raw(b"{}"))]
        return [Dropped("a cancellation of an unknown or finished request")]

    # ------------------------------------------------------------ outcomes of our requests

    def _receive_outcome(self, frame: Reply | Failure) -> list[Event]:
        call = self._flight.settle(frame.id)
        if call is None:
            return [Dropped("a reply to no request of ours")]
        if isinstance(frame, Failure):
            data = read(object, frame.data) if frame.data else None
            error = RemoteError(frame.code, frame.message, data)
            return self._answered(call, error)
        return self._answered(call, frame.result)

    def _answered(self, call: Sent, outcome: Raw | PorticoError) -> list[Event]:
        if call.method != HANDSHAKE_METHOD:
            return [Answered(call.id, call.method, outcome)]
        if isinstance(outcome, PorticoError):
            self._step("refused")
            return [Answered(call.id, call.method, outcome)]
        try:
            result = read(t.InitializeResult, outcome)
            revision = agree(result.protocol_version, self.accepts)
        except PorticoError as error:
            return [Answered(call.id, call.method, error), *self.close()]  # D34
        self._step("agreed")
        self.peer = Peer(revision, result.capabilities, result.server_info)
        told = encode_notification("notifications/initialized", b"")
        return [
            Send(told),
            Opened(self.peer),
            Answered(call.id, call.method, outcome),
        ]

    # ------------------------------------------------------------ what goes out

    def shaper(self, revision: Revision) -> Shaper:
        """The writer for a revision, made once."""
        shaper = self._shapers.get(revision)
        if shaper is None:
            mine = self.identity.capabilities
            envelope = None
            if isinstance(mine, t.ClientCapabilities):
                envelope = t.Envelope(
                    version=revision.date, capabilities=mine, client_info=self.identity.info
                )
            info = self.identity.info if self.side is Side.SERVER else None
            shaper = self._shapers[revision] = Shaper(revision, info, envelope)
        return shaper

    def initialize(self, now: float, timeout_s: float = TIMEOUT_S) -> Send:
        """Begin the handshake with our newest revision that has one."""
        if "initialize" not in TABLE[self.side][self.phase] or self.side is Side.SERVER:
            raise LocalProtocolError("initialize is the first word of a client, once")
        mine = self.identity
        if not self.accepts.handshakes or not isinstance(mine.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("a handshake needs a client and a revision that has one")
        revision = self.accepts.handshakes[0]
        row = revision.methods[HANDSHAKE_METHOD]
        call = self._flight.open(row, now, timeout_s, timeout_s, False)
        self._step("initialize")
        params = t.InitializeRequestParams(
            protocol_version=revision.date, capabilities=mine.capabilities, client_info=mine.info
        )
        body = self.shaper(revision).params(params)
        return Send(encode_request(encode(call.id), HANDSHAKE_METHOD, body))

    def adopt(self, peer: Peer) -> None:
        """Speak with this server without a handshake: each request will say it all."""
        if peer.revision.handshake or peer.revision not in self.accepts:
            raise LocalProtocolError(f"{peer.revision.date} cannot be adopted here")
        self._step("adopt")
        self.peer = peer

    def request(
        self,
        method: str,
        params: t.RequestParams | None = None,
        *,
        now: float,
        timeout_s: float = TIMEOUT_S,
        max_s: float = MAX_S,
        progress: bool = False,
        revision: Revision | None = None,
    ) -> tuple[RequestId, bytes]:
        """The id and the bytes of a new request.

        `revision` is for a probe, before the peer is known. Raises `LocalProtocolError` for
        what may not be sent now, to this peer, at this revision.
        """
        peer = self._peer_for(method, revision)
        row = self._sendable(method, peer, notification=False)
        call = self._flight.open(row, now, timeout_s, max_s, progress)
        noun = params if params is not None else t.RequestParams()
        body = self.shaper(peer.revision).params(noun, call.id if progress else None)
        return call.id, encode_request(encode(call.id), method, body)

    def _peer_for(self, method: str, revision: Revision | None) -> Peer:
        if self.phase is Phase.CLOSED:
            raise LocalProtocolError("the link is closed")
        if self.peer is not None:
            if self.phase is not Phase.OPEN and method not in ("ping", "notifications/message"):
                raise LocalProtocolError(f"{method} before initialized")
            return self.peer
        if revision is None or revision.handshake or revision not in self.accepts:
            raise LocalProtocolError(f"{method} before the peer is known; initialize or adopt")
        return Peer(revision, t.ServerCapabilities())

    def _sendable(self, method: str, peer: Peer, *, notification: bool) -> Method:
        row = peer.revision.method(method, self._extensions & peer.extensions)
        if row is None or self.side not in row.senders or row.is_notification is not notification:
            kind = "notification" if notification else "request"
            raise LocalProtocolError(
                f"{method} is no {kind} that a {self.side.value} sends in {peer.revision.date}"
            )
        if row.needs is not None and method != HANDSHAKE_METHOD and self.peer is not None:
            theirs = row.needed_of(self.side) is not self.side
            if not declares(peer.capabilities if theirs else self.identity.capabilities, row.needs):
                whose = "the peer" if theirs else "this side"
                raise LocalProtocolError(
                    f"{method} needs {row.needs}, and {whose} has not declared it"
                )
        return row

    def notify(self, method: str, params: t.NotificationParams | None = None) -> bytes:
        """The bytes of a notification. Raises `LocalProtocolError` where it may not be sent."""
        peer = self._peer_for(method, None)
        self._sendable(method, peer, notification=True)
        noun = params if params is not None else t.NotificationParams()
        return encode_notification(method, self.shaper(peer.revision).params(noun))

    def settle(self, exchange: Exchange, result: t.Noun, wrap: bool | None = None) -> bytes | None:
        """Answer a call; None where it was cancelled, or where its batch is not complete."""
        data = exchange.settle(result, wrap)
        return self._deliver(exchange, data) if self._forget(exchange) else None

    def fail(self, exchange: Exchange, fault: Fault) -> bytes | None:
        """Answer a call with an error, as `settle`."""
        data = exchange.fail(fault)
        return self._deliver(exchange, data) if self._forget(exchange) else None

    def _forget(self, exchange: Exchange) -> bool:
        return self._incoming.pop(exchange.request.id, None) is exchange

    def _deliver(self, exchange: Exchange, data: bytes | None) -> bytes | None:
        if exchange.batch is None:
            return data
        box = self._boxes[exchange.batch]
        box.open -= 1
        if data is not None:
            box.frames.append(data)
        return None if box.open or exchange.batch == self._box else self._close_box(exchange.batch)

    def cancel(self, id: RequestId, reason: str | None = None) -> bytes | None:
        """Give up one of our requests; None where it is over already. Never `initialize`."""
        call = self._flight.get(id)
        if call is None:
            return None
        if call.method == HANDSHAKE_METHOD:
            raise LocalProtocolError("initialize cannot be cancelled; close the link")
        self._flight.settle(id)
        return self._cancellation(call, reason)

    def _cancellation(self, call: Sent, reason: str | None) -> bytes:
        params = t.CancelledNotificationParams(request_id=call.id, reason=reason)
        return encode_notification("notifications/cancelled", encode(params))

    # ------------------------------------------------------------ time and end

    @property
    def next_deadline(self) -> float | None:
        """When `tick` is due; None where nothing waits."""
        return self._flight.next_deadline

    def tick(self, now: float) -> list[Event]:
        """End what has waited too long, and tell the peer that nobody waits any more."""
        events: list[Event] = []
        for call in self._flight.overdue(now):
            self._flight.settle(call.id)
            error = TimedOut(f"no answer to {call.method} within {call.timeout_s:g} s")
            events.append(Answered(call.id, call.method, error))
            if call.method == HANDSHAKE_METHOD:
                self._step("refused")
            else:
                events.append(Send(self._cancellation(call, "timed out")))
        return events

    def close(self, why: str = "the link was closed") -> list[Event]:
        """The end: everything that waits is told, and nothing is ever sent again."""
        if self.phase is Phase.CLOSED:
            return []
        self._step("close")
        events: list[Event] = []
        for call in self._flight.calls:
            self._flight.settle(call.id)
            lost = ConnectionLost(f"{why} while {call.method} was running")
            events.append(Answered(call.id, call.method, lost))
        for exchange in self._incoming.values():
            exchange.abandon()
            events.append(Cancelled(exchange, why))
        self._incoming.clear()
        self._boxes.clear()
        return events

    def _step(self, step: str) -> None:
        after = TABLE[self.side][self.phase].get(step)
        if after is None:
            raise LocalProtocolError(f"{step} does not follow: {self.phase.value}")
        self.phase = after

    # ------------------------------------------------------------ as plain data

    def record(self) -> Record:
        """All that another process needs to go on; running exchanges stay where they run."""
        peer = self.peer
        return Record(
            side=self.side,
            phase=self.phase,
            revision=peer.revision.date if peer else None,
            capabilities=Raw(encode(peer.capabilities)) if peer else Raw(b"{}"),
            info=peer.info if peer else None,
            log_level=peer.log_level if peer else None,
            next_id=self._flight.next_id,
            sent=self._flight.calls,
        )

    @classmethod
    def restore(cls, record: Record, identity: Identity, accepts: Revisions = EVERY) -> "Link":
        """A link from its record."""
        link = cls(record.side, identity, accepts)
        link.phase = record.phase
        link._flight = Flight(record.next_id, record.sent)
        revision = accepts.get(record.revision) if record.revision is not None else None
        if revision is not None:
            theirs = t.ClientCapabilities if record.side is Side.SERVER else t.ServerCapabilities
            capabilities = read(theirs, record.capabilities)
            link.peer = Peer(revision, capabilities, record.info, record.log_level)
        return link


def sends(events: Iterable[Event]) -> list[bytes]:
    """The bytes among events, in order."""
    return [event.data for event in events if isinstance(event, Send)]
