"""One duplex conversation: the handshake, what is in flight both ways, and how each ends.

A pipe is one link, and so is a session over HTTP. Frames go in, events and frames come out. What
is enveloped is judged by itself, so one pipe may carry both ways of opening.

Rules: no I/O, no clock, no tasks. Whatever the peer sends, only events come out; what is refused
changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw, Struct

from colonnade.errors import (
    NO_OUTPUT,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Output,
    RemoteError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import LISTEN, Exchange
from colonnade.protocol.jsonrpc import (
    NOTHING,
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    Request,
    RequestId,
    ResultResponse,
    SplitParams,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse_id,
    split_params,
)
from colonnade.protocol.link.events import (
    LinkEvent,
    LinkSnapshot,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import (
    ALLOWED_EARLY,
    Handshake,
    MethodRules,
    Phase,
    params_for,
)
from colonnade.protocol.link.in_flight import IncomingRequests, OutgoingRequest, OutgoingRequests
from colonnade.protocol.methods import Method, Side
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Identity, Peer, PeerDetector
from colonnade.protocol.revision import EVERY, ChangeNotifications, Revision, Revisions, error_code

if TYPE_CHECKING:
    from colonnade.protocol.input_requests import InputRequest

# R0237: every request has a time-out; these hold where the caller names none.
TIMEOUT_S = 60.0
MAX_S = 600.0

# Members of an enumeration are looked up at some cost, and these for every request.
OPEN, CLOSED = Phase.OPEN, Phase.CLOSED

PING = "ping"
DISCOVER = "server/discover"
SET_LEVEL = "logging/setLevel"
# What needs no handler.
ANSWERED_HERE = frozenset({PING, SET_LEVEL})
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
# What belongs to a request is written by whoever keeps account of it.
NOT_BY_HAND = {
    INITIALIZED: "Link.initialize",
    CANCELLED: "Link.cancel",
    PROGRESS: "Exchange.progress",
    ACKNOWLEDGED: "Subscription.acknowledge",
}
# R0835: all other news of a server that pushes on subscriptions names its subscription.
UNTAGGED = frozenset({"notifications/message"})


class SendContext(Struct, frozen=True):
    """What is found out once for each method that is asked of one peer."""

    peer: Peer
    row: Method
    shaper: Encoder


class Link:
    """A conversation as one side sees it.

    `current` is who we are by now, where that changes while we speak: a handshake says it as it is
    then, and that holds; who opens with none finds what is there at each request.
    """

    def __init__(
        self,
        side: Side,
        identity: Identity,
        accepts: Revisions = EVERY,
        principal: str = "",
        current: Callable[[], Identity] | None = None,
    ) -> None:
        if identity.side is not side:
            raise LocalProtocolError(f"a {side.value} needs {side.value.title()}Capabilities")
        self.side = side
        self._serving = side is Side.SERVER
        self.identity: Identity = identity
        self.accepts = accepts
        self.principal = principal
        # What the credentials of the next request allow; None where nobody looks at any.
        self.scopes: frozenset[str] | None = None
        self._current = current
        self._handshake = Handshake(side, accepts)
        self._terms = MethodRules(identity, current)
        self._recogniser = PeerDetector(accepts)
        self._flight = OutgoingRequests()
        self._incoming = IncomingRequests()
        self._closed = self._incoming.close
        self._shapers: dict[Revision, Encoder] = {}
        self._agreed: dict[str, SendContext] = {}
        self._logs = identity.logs

    @property
    def phase(self) -> Phase:
        """How far the handshake is; it stays new where requests are enveloped."""
        return self._handshake.phase

    @property
    def peer(self) -> Peer | None:
        """Whom the handshake found, or who was adopted."""
        return self._handshake.peer

    # ------------------------------------------------------------ what comes in

    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        """One message as it was read. Nothing is ever raised for what a peer sent."""
        try:
            frame = decode(data)
        except Fault as fault:
            return self.refuse(fault)
        if self._handshake.phase is not CLOSED:  # the most frequent first
            if type(frame) is Request:
                return self._receive_request(frame, None)
            if type(frame) is ResultResponse:
                return self._receive_outcome(frame)
        return self.take(frame, now)

    def take(
        self, frame: Frame | Batch, now: float, parts: SplitParams | None = None
    ) -> list[LinkEvent]:
        """One message that was decoded already.

        `parts` are the params of a request, split, where somebody has seen that it comes from
        the peer of this link: HTTP recognises it by its headers, too.
        """
        if self._handshake.phase is CLOSED:
            return [MessageIgnored("a message after the end")]
        if type(frame) is Request:
            return self._receive_request(frame, parts)
        if isinstance(frame, Batch):
            return self._receive_batch(frame, now)
        return self._receive_frame(frame, now, parts)

    def _receive_frame(
        self, frame: Frame, now: float, parts: SplitParams | None = None
    ) -> list[LinkEvent]:
        if isinstance(frame, Request):
            return self._receive_request(frame, parts)
        try:
            if isinstance(frame, Notification):
                return self._receive_notification(frame, now)
            return self._receive_outcome(frame)
        except Fault as fault:  # R0233: never answered
            return [MessageIgnored(fault.message)]

    def refuse(self, fault: Fault) -> list[LinkEvent]:
        """What arrived is no message. A malformed reply ends the call that waits for it."""
        if self.phase is CLOSED:
            return [MessageIgnored(fault.message)]
        call = self._flight.settle(fault.settles)
        if call is not None:
            return self._answered(call, fault)
        if fault.expects_no_response:
            return [MessageIgnored(fault.message)]
        # D3: an error under the id of a running request would be taken for that one's answer.
        taken = fault.raw_id and self._incoming.uses(parse_id(fault.raw_id))
        return self._fault(fault, b"" if taken else fault.raw_id)

    def _fault(
        self, fault: Fault, raw_id: bytes, revision: Revision | None = None
    ) -> list[LinkEvent]:
        """Tell the peer, if this is a side that answers and there is somebody to tell."""
        session = self._handshake.session
        if self.side is Side.CLIENT and (session is None or not raw_id):
            return [MessageIgnored(fault.message)]
        spoken = session.revision if session is not None else None
        null_id = spoken is not None and spoken.error_id_required  # D2
        code = error_code(fault, revision or spoken)
        data = encode_error(raw_id, code, fault.message, fault.data, null_id=null_id)
        return _sending(self._incoming.answer(data), fault)

    def _receive_batch(self, batch: Batch, now: float) -> list[LinkEvent]:
        try:
            if self.peer is None or not self.peer.revision.batches:
                raise Fault(FaultKind.INVALID_REQUEST, "a batch; send messages one by one")
            box = self._incoming.begin_batch()
        except Fault as fault:
            return self._fault(fault, b"")
        events: list[LinkEvent] = []
        for item in batch.items:
            if isinstance(item, Fault):
                events += self.refuse(item)
            else:
                events += self._receive_frame(item, now)
        return events + _sending(self._incoming.end_batch(box))

    # ------------------------------------------------------------ requests to us

    def _receive_request(self, request: Request, known: SplitParams | None) -> list[LinkEvent]:
        if not self._incoming.claim(request.id):
            # D3: the first call goes on untouched, so its id must not be answered.
            fault = Fault(FaultKind.INVALID_REQUEST, "this id is in use by a running request")
            return [*self._fault(fault, b""), MessageIgnored("a request with an id that is in use")]
        peer = self._handshake.peer if known is not None else None
        try:
            parts = known or request.split_params or split_params(request.params)
            if peer is None:
                peer = self._recogniser.detect_repeated(parts.meta) or self._recognise(
                    request, parts.meta
                )
                if peer is None:
                    return self._initialize(request)
            return self._serve(request, parts, peer)
        except Fault as fault:
            return self._fault(fault, request.raw_id, peer.revision if peer else None)

    def take_again(self, request: Request, peer: Peer) -> Exchange | None:
        """A request whose `_meta` says what that of an earlier one said, word for word: it comes
        from this peer. None where it has to be looked at once more, or must be refused."""
        incoming, parts = self._incoming, request.split_params
        if parts is None or self._handshake.phase is CLOSED or incoming.uses(request.id):
            return None
        try:
            exchange = Exchange(
                request,
                parts,
                self._terms.receivable(request.method, peer),
                peer,
                self._shapers[peer.revision],
                self.principal,
                None,
                self._closed,
                self._logs,
                self.scopes,
            )
            incoming.open(exchange)
        except Fault:
            return None
        return exchange

    def _recognise(self, request: Request, meta: Raw) -> Peer | None:
        if self._serving:
            known = self._handshake.peer
            if known is None and request.method == PING and self.accepts.handshakes:
                known = Peer(self.accepts.handshakes[0], t.ClientCapabilities())  # D27
            return self._recogniser.detect(request, meta, None, known)
        session = self._handshake.session
        if session is None:  # R0779: such a server sends no requests, and gets no answers
            raise Fault(FaultKind.METHOD_NOT_FOUND, "servers do not send requests here")
        if self.phase is not Phase.OPEN and request.method != PING:
            raise Fault(FaultKind.INVALID_REQUEST, "initialize is not answered yet")
        return session

    def _serve(self, request: Request, parts: SplitParams, peer: Peer) -> list[LinkEvent]:
        incoming, revision = self._incoming, peer.revision
        row = self._terms.receivable(request.method, peer)
        if row.load_result is None:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"{row.name} is a notification")
        if incoming.batch is not None and not revision.batches:
            raise Fault(FaultKind.INVALID_REQUEST, "an enveloped request inside a batch")
        shaper = self._shapers.get(revision)
        exchange = Exchange(
            request,
            parts,
            row,
            peer,
            shaper if shaper is not None else self.encoder(revision),
            self.principal,
            None if self._serving else self._question(row, request, peer),
            self._closed,
            self._logs,
            self.scopes,
        )
        if parts.meta and revision.handshake:
            exchange.check_token()
        if row.name in ANSWERED_HERE:
            if row.name == SET_LEVEL:
                self._set_level(request, peer)
            done = exchange.encoder.result(t.EmptyResult())
            return _sending(incoming.answer(encode_result(request.raw_id, done)))
        incoming.open(exchange)
        return [RequestReceived(exchange)]

    def _question(self, row: Method, request: Request, peer: Peer) -> "InputRequest | None":
        from colonnade.protocol.input_requests import (
            received_input_request,  # on use: few servers ask
        )

        return received_input_request(
            row, request.params, self.identity.capabilities, peer.revision
        )

    def _initialize(self, request: Request) -> list[LinkEvent]:
        if self._incoming.batch is not None:
            raise Fault(FaultKind.INVALID_REQUEST, "initialize inside a batch")  # D26, R0236
        params = decode_as(t.InitializeRequestParams, request.params)
        revision = self._handshake.answer(params)
        if self._current is not None:
            self.identity = self._current()
            self._terms = MethodRules(self.identity, self._current)
            self._logs = self.identity.logs
        body = self.encoder(revision).result(self.identity.initialize_result(revision))
        peer = self._handshake.opened(params, revision)
        return [Send(encode_result(request.raw_id, body)), PeerIdentified(peer)]

    def _set_level(self, request: Request, peer: Peer) -> None:
        """A level for the session, and for what already runs in it."""
        level = decode_as(t.SetLevelRequestParams, request.params).level
        now = self._handshake.set_level(peer, level)
        for exchange in self._incoming:
            if exchange.peer is peer:
                exchange.peer = now

    # ------------------------------------------------------------ notifications to us

    def _receive_notification(self, frame: Notification, now: float) -> list[LinkEvent]:
        meta = split_params(frame.params).meta
        if frame.method == CANCELLED:
            return self._receive_cancelled(frame)
        peer = self.peer
        if peer is None and frame.method in ALLOWED_EARLY:
            peer = self._handshake.session
        if peer is None:
            return [MessageIgnored(f"{frame.method[:80]} before the peer is known")]
        row = self._terms.receivable(frame.method, peer)
        if not row.is_notification:
            return [MessageIgnored(f"{row.name} without an id")]
        if row.name == PROGRESS:
            return self._receive_progress(frame, now)
        if row.name == INITIALIZED and not self._handshake.advance(INITIALIZED):
            return [MessageIgnored(f"{INITIALIZED} out of turn")]
        if (
            peer.revision.change_notifications is ChangeNotifications.LISTEN
            and row.name not in UNTAGGED
        ):
            return self._receive_news(row, frame, meta)
        return [NotificationReceived(row, frame.params)]

    def _receive_progress(self, frame: Notification, now: float) -> list[LinkEvent]:
        params = decode_as(t.ProgressNotificationParams, frame.params)
        call = self._flight.by_progress_token(params.progress_token)
        if call is None:
            return [MessageIgnored("progress of no call")]
        if not self._flight.progress(call, params.progress, now):
            return [MessageIgnored(f"progress of {call.method} that did not go up")]
        return [ProgressReceived(call.id, params)]

    def _receive_news(self, row: Method, frame: Notification, meta: Raw) -> list[LinkEvent]:
        subscription = decode_as(t.NotificationMeta, meta).subscription_id
        call = self._flight.get(subscription)
        if call is None or call.method != LISTEN:
            return [MessageIgnored(f"{row.name} of no subscription")]
        if row.name == ACKNOWLEDGED:
            self._flight.keep_open(call)
        return [NotificationReceived(row, frame.params, subscription)]

    def _receive_cancelled(self, frame: Notification) -> list[LinkEvent]:
        params = decode_as(t.CancelledNotificationParams, frame.params)
        exchange = self._incoming.get(params.request_id)
        if exchange is not None:
            rest = exchange.abandon()
            return [RequestCancelled(exchange, params.reason), *_sending(rest)]
        call = self._flight.get(params.request_id)
        if call is not None and call.method == LISTEN:
            # D1: the server ended a subscription; the result that may follow is a stray.
            self._flight.settle(call.id)
            return [RequestFinished(call.id, call.method, Raw(b"{}"))]
        return [MessageIgnored("a cancellation of an unknown or finished request")]

    # ------------------------------------------------------------ outcomes of our requests

    def _receive_outcome(self, frame: ResultResponse | ErrorResponse) -> list[LinkEvent]:
        call = self._flight.settle(frame.id)
        if isinstance(frame, ResultResponse):
            return self._answered(call, frame.result) if call else [MessageIgnored("a stray reply")]
        if call is None:
            about = f"{frame.code}, {frame.message[:200]}"
            return [MessageIgnored(f"an error that answers no request of ours: {about}")]
        try:
            data = decode_as(object, frame.data) if frame.data else None
        except Fault:  # the call ends all the same
            data = None
        return self._answered(call, RemoteError(frame.code, frame.message, data))

    def _answered(self, call: OutgoingRequest, outcome: Raw | ColonnadeError) -> list[LinkEvent]:
        over = RequestFinished(call.id, call.method, outcome)
        if call.method != HANDSHAKE_METHOD:
            return [over]
        if isinstance(outcome, ColonnadeError):
            self._handshake.step("refused")
            return [over]
        try:
            peer = self._handshake.agree(decode_as(t.InitializeResult, outcome))
        except ColonnadeError as error:
            return [RequestFinished(call.id, call.method, error), *self.close()]  # D34
        return [Send(encode_notification(INITIALIZED, b"")), PeerIdentified(peer), over]

    # ------------------------------------------------------------ what goes out

    def encoder(self, revision: Revision) -> Encoder:
        """The writer for a revision, made once."""
        shaper = self._shapers.get(revision)
        if shaper is None:
            shaper = self._shapers[revision] = self.identity.encoder(revision)
        return shaper

    def initialize(
        self, now: float, timeout_s: float = TIMEOUT_S, revision: Revision | None = None
    ) -> Send:
        """Begin the handshake, with our newest revision that has one or with a chosen one."""
        revision = self._handshake.begin(revision)
        body = self.encoder(revision).params(self.identity.initialize_params(revision))
        id = self._flight.reserve(HANDSHAKE_METHOD, timeout_s, timeout_s)
        self._flight.open(id, HANDSHAKE_METHOD, now, timeout_s, timeout_s, False)
        self._handshake.step("initialize")
        return Send(encode_request(encode(id), HANDSHAKE_METHOD, body))

    def adopt(self, peer: Peer | Revision) -> None:
        """Speak with this server without a handshake: each request will say it all.

        With a revision alone, nothing is known of what the server offers, and nothing is refused
        for it; `server/discover` tells.
        """
        self._handshake.adopt(peer)

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
        what may not be sent now, to this peer, at this revision; nothing is in flight then.
        """
        made, _ = self.draft(method, params, timeout_s, max_s, progress, revision)
        self.expect(made, params, now, timeout_s, max_s, progress)
        return made.id, encode_request(made.raw_id, method, made.params)

    def draft(
        self,
        method: str,
        params: t.RequestParams | None,
        timeout_s: float,
        max_s: float,
        progress: bool,
        revision: Revision | None,
    ) -> tuple[Request, SendContext]:
        """The same before it is written, and before anybody waits for an answer: `expect` is for
        those who do. With it come the terms on which it is sent."""
        handshake, terms = self._handshake, self._agreed.get(method)
        if terms is None or terms.peer is not handshake.peer or handshake.phase is not OPEN:
            terms = self._agree(method, revision)
        row = terms.row
        noun: Any = params if type(params) is row.params else params_for(row, params)
        if noun.meta and t.PROGRESS_TOKEN_KEY in noun.meta:
            # R0076: two callers could choose the same
            raise LocalProtocolError("ask for progress=True; the token is ours to choose")
        if self._serving:
            _check_asking(noun, terms.peer)
        id, body = self._flight.next_id, NOTHING
        token = id if progress else None
        head = terms.shaper.call(noun, token)
        if head is None:
            body = Raw(terms.shaper.params(noun, token))
        self._flight.reserve(method, timeout_s, max_s)
        return Request(id, method, body, b"%d" % id, head), terms

    def expect(
        self,
        made: Request,
        params: t.RequestParams | None,
        now: float,
        timeout_s: float,
        max_s: float,
        progress: bool,
    ) -> None:
        """Wait for the answer to a request that was drafted with these."""
        name = getattr(params, "name", None)
        self._flight.open(cast("int", made.id), made.method, now, timeout_s, max_s, progress, name)

    def _agree(self, method: str, probed: Revision | None) -> SendContext:
        """On what terms a request may be sent now; they hold for as long as its peer is ours."""
        peer = self._handshake.peer_for(method, probed)
        informed = self._handshake.knows(peer)
        row = self._terms.sendable(method, peer, notification=False, informed=informed)
        terms = SendContext(peer, row, self.encoder(peer.revision))
        if peer is self._handshake.peer:
            self._agreed[method] = terms
        return terms

    def ping(self, now: float, timeout_s: float = TIMEOUT_S) -> tuple[RequestId, bytes]:
        """Ask whether somebody is there; where there is no ping, discovery says so too (D23)."""
        there = self.peer is None or PING in self.peer.revision.methods
        return self.request(PING if there else DISCOVER, now=now, timeout_s=timeout_s)

    def notify(self, method: str, params: t.NotificationParams | None = None) -> bytes:
        """The bytes of a notification. Raises `LocalProtocolError` where it may not be sent."""
        if method in NOT_BY_HAND:
            raise LocalProtocolError(f"{method} is written by {NOT_BY_HAND[method]}")
        peer = self._handshake.peer_for(method, None)
        informed = self._handshake.knows(peer)
        row = self._terms.sendable(method, peer, notification=True, informed=informed)
        body = self.encoder(peer.revision).params(params_for(row, params))
        return encode_notification(method, body)

    def cancel(self, id: RequestId, reason: str | None = None) -> bytes | None:
        """Give up one of our requests; None where it is over already. Never `initialize`."""
        call = self._flight.get(id)
        if call is None:
            return None
        if call.method == HANDSHAKE_METHOD:  # R0056
            raise LocalProtocolError("initialize cannot be cancelled; close the link")
        data = call.cancellation(reason)
        self._flight.settle(id)
        return data

    # ------------------------------------------------------------ time and end

    @property
    def next_deadline(self) -> float | None:
        """When `tick` is due; None where nothing waits."""
        return self._flight.next_deadline

    def ends_at(self, id: RequestId) -> float | None:
        """When the time of one of our calls runs out, as things are; None for no such time."""
        call = self._flight.get(id)
        return call.ends_at if call is not None else None

    def pause_timeouts(self, now: float, about: RequestId | None = None) -> tuple[int, ...]:
        """A question of the peer is being answered: the call that it is `about` does not run out of
        time, nor where that is unknown any that waits by now. Gives what `release` takes."""
        return self._flight.pause_timeouts(now, about)

    def resume_timeouts(self, held: tuple[int, ...], now: float) -> None:
        """It was answered, or given up."""
        self._flight.resume_timeouts(held, now)

    def tick(self, now: float) -> list[LinkEvent]:
        """End what has waited too long, and tell the peer that nobody waits any more."""
        events: list[LinkEvent] = []
        for call in self._flight.overdue(now):
            self._flight.settle(call.id)
            error = TimedOut(f"no answer to {call.method} within {call.timeout_text} s")
            events += self._answered(call, error)
            if call.method != HANDSHAKE_METHOD:
                events.append(Send(call.cancellation("timed out")))
        return events

    def close(
        self,
        why: str = "the link was closed",
        more: str = "",
        *,
        server: str | None = None,
        output: Output = NO_OUTPUT,
    ) -> list[LinkEvent]:
        """The end: everything that waits is told, and nothing is ever sent again.

        `more` is what else there is to say, after the name of the call; `server` is the one that
        `why` names, and `output` what its process wrote last.
        """
        if self.phase is CLOSED:
            return []
        self._handshake.step("close")
        events: list[LinkEvent] = []
        for call in self._flight.calls:
            self._flight.settle(call.id)
            words = f"{why} during {call.label}{more}"
            lost = ConnectionLost(words, server=server, output=output)
            events.append(RequestFinished(call.id, call.method, lost))
        for exchange in self._incoming.clear():
            exchange.abandon()
            events.append(RequestCancelled(exchange, why))
        return events

    # ------------------------------------------------------------ as plain data

    def snapshot(self) -> LinkSnapshot:
        """All that another process needs to go on; running exchanges stay where they run."""
        peer = self.peer
        return LinkSnapshot(
            side=self.side,
            phase=self.phase,
            revision=peer.revision.date if peer else None,
            capabilities=Raw(encode(peer.capabilities)) if peer else Raw(b"{}"),
            informed=self._handshake.informed,
            info=peer.info if peer else None,
            log_level=peer.log_level if peer else None,
            next_id=self._flight.next_id,
            sent=self._flight.calls,
        )

    @classmethod
    def restore(
        cls,
        record: LinkSnapshot,
        identity: Identity,
        accepts: Revisions = EVERY,
        principal: str = "",
    ) -> "Link":
        """A link from its record. Raises `LocalProtocolError` where we no longer speak so."""
        link = cls(record.side, identity, accepts, principal)
        link._flight = OutgoingRequests(record.next_id, record.sent)
        link._handshake.phase = record.phase
        if record.revision is not None:
            revision = accepts.get(record.revision)
            if revision is None:
                raise LocalProtocolError(f"{record.revision} is not spoken here any more")
            theirs = t.ClientCapabilities if record.side is Side.SERVER else t.ServerCapabilities
            capabilities = decode_as(theirs, record.capabilities)
            link._handshake.peer = Peer(revision, capabilities, record.info, record.log_level)
            link._handshake.informed = record.informed
        return link


def _sending(data: bytes | None, fault: Fault | None = None) -> list[LinkEvent]:
    return [Send(data, fault)] if data is not None else []


def sends(events: Iterable[LinkEvent]) -> list[bytes]:
    """The bytes among events, in order."""
    return [event.data for event in events if isinstance(event, Send)]


def _check_asking(noun: t.ProtocolType, peer: Peer) -> None:
    """Raise `LocalProtocolError` for a question that this client cannot be asked."""
    from colonnade.protocol.input_requests import InputRequest, InputRequestParams, check_sendable

    if isinstance(noun, InputRequestParams):
        check_sendable(InputRequest(noun), peer)
