"""Link: one duplex connection without I/O. Handshake, requests in flight both ways, timeouts.

A stdio pipe is one link, and so is a session over HTTP. Messages go in, events and messages come
out. Requests with an envelope are judged on their own, so one pipe may carry both kinds of
initialization.

Rules: no I/O, no clock, no tasks. Whatever the peer sends, only events come out; what is refused
changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

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
from colonnade.protocol.revision import (
    EVERY,
    ChangeNotifications,
    Revision,
    Revisions,
    Tasks,
    error_code,
)

if TYPE_CHECKING:
    from colonnade.protocol.input_requests import InputRequest, RequestDeclaration

# R0237: every request has a timeout; these are the defaults.
TIMEOUT_S = 60.0
MAX_S = 600.0

# Looking up members of an enumeration has a cost, and these are used for every request.
OPEN, CLOSED = Phase.OPEN, Phase.CLOSED

CALL = "tools/call"
PING = "ping"
DISCOVER = "server/discover"
SET_LEVEL = "logging/setLevel"
# Methods that need no handler.
ANSWERED_HERE = frozenset({PING, SET_LEVEL})
INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
# Notifications that belong to a request are sent by the object that tracks it.
NOT_BY_HAND = {
    INITIALIZED: "DuplexLink.initialize",
    CANCELLED: "DuplexLink.cancel",
    PROGRESS: "Exchange.progress",
    ACKNOWLEDGED: "Subscription.acknowledge",
}
# R0835: with subscriptions, all other notifications of a server name their subscription, except
# for those of extensions, which belong to a request.
UNTAGGED = frozenset({"notifications/message"})


class SendContext(Struct, frozen=True):
    """What is looked up once for each method that is sent to one peer."""

    peer: Peer
    definition: Method
    encoder: Encoder


# The method, and the input capabilities that its requests declare if they are not our own.
SendKey: TypeAlias = "str | tuple[str, RequestDeclaration]"
OnAnswered: TypeAlias = Callable[[Request | None, Peer | None, Fault | None], None]


class DuplexLink:
    """One connection, as one side sees it.

    `current` returns our present identity, if that changes while the link is open: a handshake
    fixes it, and requests with an envelope get the present one each time.
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
        # The scopes of the credentials of the next request; None if they are not checked.
        self.scopes: frozenset[str] | None = None
        self._current = current
        self._handshake = Handshake(side, accepts)
        self._method_rules = MethodRules(identity, current)
        self._peer_detector = PeerDetector(accepts)
        self._outgoing = OutgoingRequests()
        self._incoming = IncomingRequests()
        self._closed = self._incoming.close
        self._encoders: dict[Revision, Encoder] = {}
        # Those of requests that declare other input capabilities than this side does.
        self._declaring_encoders: dict[tuple[Revision, RequestDeclaration], Encoder] = {}
        self._send_contexts: dict[SendKey, SendContext] = {}
        self._logs = identity.logs
        # The client in this process that called last, by the context in which it sends.
        self._known_caller: tuple[SendContext, Peer, Encoder] | None = None
        # Called with each request that gets its response here, and with the fault if that is an
        # error; without a request for what could not be read.
        self.on_answered: OnAnswered | None = None
        # The `_meta` of our own `initialize`.
        self.opening_meta: dict[str, Any] | None = None

    @property
    def phase(self) -> Phase:
        """The state of the handshake; it stays new with envelopes."""
        return self._handshake.phase

    @property
    def peer(self) -> Peer | None:
        """The peer of the handshake, or the one that was adopted."""
        return self._handshake.peer

    @property
    def next_id(self) -> int:
        """The id of the next request that is sent."""
        return self._outgoing.next_id

    # ------------------------------------------------------------ receiving

    def receive(self, data: bytes, now: float) -> list[LinkEvent]:
        """Receive one message as bytes. Nothing is ever raised for what a peer sent."""
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
        """Receive one decoded message.

        `parts` are the split params of a request that is known to come from the peer of this link:
        HTTP detects it by its headers, too.
        """
        if self._handshake.phase is CLOSED:
            return [MessageIgnored("a message after the link was closed")]
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
        """Handle bytes that are not a valid message. A malformed response ends the request it is
        for."""
        if self.phase is CLOSED:
            return [MessageIgnored(fault.message)]
        call = self._outgoing.settle(fault.settles)
        if call is not None:
            return self._answered(call, fault)
        if fault.expects_no_response:
            return [MessageIgnored(fault.message)]
        # D3: an error under the id of a running request would be taken for its response.
        taken = fault.raw_id and self._incoming.uses(parse_id(fault.raw_id))
        self._report(None, None, fault)
        return self._fault(fault, b"" if taken else fault.raw_id)

    def _fault(
        self, fault: Fault, raw_id: bytes, revision: Revision | None = None
    ) -> list[LinkEvent]:
        """Send an error response, if this side sends any and there is a request to respond to."""
        session = self._handshake.session
        if self.side is Side.CLIENT and (session is None or not raw_id):
            return [MessageIgnored(fault.message)]
        spoken = session.revision if session is not None else None
        null_id = spoken is not None and spoken.error_id_required  # D2
        code = error_code(fault, revision or spoken)
        data = encode_error(raw_id, code, fault.message, fault.data, null_id=null_id)
        return _send_events(self._incoming.answer(data), fault)

    def _report(self, request: Request | None, peer: Peer | None, fault: Fault | None) -> None:
        if self.on_answered is not None:
            self.on_answered(request, peer, fault)

    def _receive_batch(self, batch: Batch, now: float) -> list[LinkEvent]:
        try:
            if self.peer is None or not self.peer.revision.batches:
                raise Fault(
                    FaultKind.INVALID_REQUEST, "batches are not supported; send messages one by one"
                )
            pending = self._incoming.begin_batch()
        except Fault as fault:
            return self._fault(fault, b"")
        events: list[LinkEvent] = []
        for item in batch.items:
            if isinstance(item, Fault):
                events += self.refuse(item)
            else:
                events += self._receive_frame(item, now)
        return events + _send_events(self._incoming.end_batch(pending))

    # ------------------------------------------------------------ requests of the peer

    def _receive_request(self, request: Request, known: SplitParams | None) -> list[LinkEvent]:
        if not self._incoming.claim(request.id):
            # D3: the first request goes on, so no error may carry its id.
            fault = Fault(FaultKind.INVALID_REQUEST, "this id is in use by a running request")
            self._report(request, self._handshake.peer, fault)
            return [*self._fault(fault, b""), MessageIgnored("a request with an id that is in use")]
        peer = self._handshake.peer if known is not None else None
        try:
            parts = known or request.split_params or split_params(request.params)
            if peer is None:
                peer = self._peer_detector.detect_repeated(parts.meta) or self._detect_peer(
                    request, parts.meta
                )
                if peer is None:
                    return self._initialize(request)
            return self._serve(request, parts, peer)
        except Fault as fault:
            self._report(request, peer, fault)
            return self._fault(fault, request.raw_id, peer.revision if peer else None)

    def _detect_peer(self, request: Request, meta: Raw) -> Peer | None:
        if self._serving:
            known = self._handshake.peer
            if known is None and request.method == PING and self.accepts.handshakes:
                known = Peer(self.accepts.handshakes[0], t.ClientCapabilities())  # D27
            return self._peer_detector.detect(request, meta, None, known)
        session = self._handshake.session
        if session is None:  # R0779: such a server sends no requests, and gets no responses
            raise Fault(FaultKind.METHOD_NOT_FOUND, "this client accepts no requests from a server")
        if self.phase is not Phase.OPEN and request.method != PING:
            raise Fault(FaultKind.INVALID_REQUEST, "initialize has no response yet")
        return session

    def _serve(self, request: Request, parts: SplitParams, peer: Peer) -> list[LinkEvent]:
        incoming, revision = self._incoming, peer.revision
        definition = self._method_rules.receivable(request.method, peer)
        if definition.load_result is None:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"{definition.name} is a notification")
        if incoming.batch is not None and not revision.batches:
            raise Fault(FaultKind.INVALID_REQUEST, "a request with an envelope inside a batch")
        encoder = self._encoders.get(revision)
        exchange = Exchange(
            request,
            parts,
            definition,
            peer,
            encoder if encoder is not None else self.encoder(revision),
            self.principal,
            None if self._serving else self._input_request(definition, request, peer),
            self._closed,
            self._logs,
            self.scopes,
        )
        if parts.meta and revision.handshake:
            exchange.check_token()
        if definition.name in ANSWERED_HERE:
            if definition.name == SET_LEVEL:
                self._set_level(request, peer)
            done = exchange.encoder.result(t.EmptyResult())
            self._report(request, peer, None)
            return _send_events(incoming.answer(encode_result(request.raw_id, done)))
        incoming.open(exchange)
        return [RequestReceived(exchange)]

    def _input_request(
        self, definition: Method, request: Request, peer: Peer
    ) -> "InputRequest | None":
        from colonnade.protocol.input_requests import (
            received_input_request,  # on use: few servers send input requests
        )

        return received_input_request(
            definition, request.params, self.identity.capabilities, peer.revision
        )

    def _initialize(self, request: Request) -> list[LinkEvent]:
        if self._incoming.batch is not None:
            raise Fault(FaultKind.INVALID_REQUEST, "initialize inside a batch")  # D26, R0236
        params = decode_as(t.InitializeRequestParams, request.params)
        revision = self._handshake.answer(params)
        if self._current is not None:
            self.identity = self._current()
            self._method_rules = MethodRules(self.identity, self._current)
            self._logs = self.identity.logs
        body = self.encoder(revision).result(self.identity.initialize_result(revision))
        peer = self._handshake.opened(params, revision)
        self._report(request, peer, None)
        return [Send(encode_result(request.raw_id, body)), PeerIdentified(peer)]

    def _set_level(self, request: Request, peer: Peer) -> None:
        """Set the log level of the session, and of the requests that run in it."""
        level = decode_as(t.SetLevelRequestParams, request.params).level
        self._use_level(peer, level)

    def _use_level(self, peer: Peer, level: t.LoggingLevel) -> None:
        now = self._handshake.set_level(peer, level)
        for exchange in self._incoming:
            if exchange.peer is peer:
                exchange.peer = now

    # ------------------------------------------------------------ notifications of the peer

    def _receive_notification(self, frame: Notification, now: float) -> list[LinkEvent]:
        meta = split_params(frame.params).meta
        if frame.method == CANCELLED:
            return self._receive_cancelled(frame)
        peer = self.peer
        if peer is None and frame.method in ALLOWED_EARLY:
            peer = self._handshake.session
        if peer is None:
            return [MessageIgnored(f"{frame.method[:80]} before the peer is known")]
        definition = self._method_rules.receivable(frame.method, peer)
        if not definition.is_notification:
            return [MessageIgnored(f"{definition.name} without an id")]
        if definition.name == PROGRESS:
            return self._receive_progress(definition, frame, now, peer.revision)
        if definition.name == INITIALIZED and not self._handshake.advance(INITIALIZED):
            return [MessageIgnored(f"unexpected {INITIALIZED}")]
        if (
            peer.revision.change_notifications is ChangeNotifications.LISTEN
            and definition.name not in UNTAGGED
            and definition.name not in self.identity.extension_methods
        ):
            return self._receive_tagged(definition, frame, meta)
        return [NotificationReceived(definition, frame.params)]

    def _receive_progress(
        self, definition: Method, frame: Notification, now: float, revision: Revision
    ) -> list[LinkEvent]:
        params = decode_as(t.ProgressNotificationParams, frame.params)
        call = self._outgoing.by_progress_token(params.progress_token)
        if call is None:
            of_task = t.RELATED_TASK_KEY in (params.meta or {})
            if of_task and revision.tasks is Tasks.CORE and not self._serving:
                # R0498, D68: the token of a request that became a task is used until its end.
                return [NotificationReceived(definition, frame.params)]
            return [MessageIgnored("progress for an unknown request")]
        if not self._outgoing.progress(call, params.progress, now):
            return [MessageIgnored(f"progress of {call.method} that did not increase")]
        return [ProgressReceived(call.id, params)]

    def _receive_tagged(
        self, definition: Method, frame: Notification, meta: Raw
    ) -> list[LinkEvent]:
        subscription = decode_as(t.NotificationMeta, meta).subscription_id
        call = self._outgoing.get(subscription)
        if call is None or call.method != LISTEN:
            return [MessageIgnored(f"{definition.name} for an unknown subscription")]
        if definition.name == ACKNOWLEDGED:
            self._outgoing.keep_open(call)
        return [NotificationReceived(definition, frame.params, subscription)]

    def _receive_cancelled(self, frame: Notification) -> list[LinkEvent]:
        params = decode_as(t.CancelledNotificationParams, frame.params)
        exchange = self._incoming.get(params.request_id)
        if exchange is not None:
            rest = exchange.abandon()
            return [RequestCancelled(exchange, params.reason), *_send_events(rest)]
        call = self._outgoing.get(params.request_id)
        if call is not None and call.method == LISTEN:
            # D1: the server ended a subscription; a result may follow and is ignored.
            self._outgoing.settle(call.id)
            return [RequestFinished(call.id, call.method, Raw(b"{}"))]
        return [MessageIgnored("a cancellation of an unknown or finished request")]

    # ------------------------------------------------------------ responses to our requests

    def _receive_outcome(self, frame: ResultResponse | ErrorResponse) -> list[LinkEvent]:
        call = self._outgoing.settle(frame.id)
        if isinstance(frame, ResultResponse):
            return (
                self._answered(call, frame.result)
                if call
                else [MessageIgnored("a response to an unknown request")]
            )
        if call is None:
            about = f"{frame.code}, {frame.message[:200]}"
            return [MessageIgnored(f"an error response to an unknown request: {about}")]
        try:
            data = decode_as(object, frame.data) if frame.data else None
        except Fault:  # the request ends all the same
            data = None
        return self._answered(call, RemoteError(frame.code, frame.message, data))

    def _answered(self, call: OutgoingRequest, outcome: Raw | ColonnadeError) -> list[LinkEvent]:
        finished = RequestFinished(call.id, call.method, outcome)
        if call.method != HANDSHAKE_METHOD:
            return [finished]
        if isinstance(outcome, ColonnadeError):
            self._handshake.step("refused")
            return [finished]
        try:
            peer = self._handshake.agree(decode_as(t.InitializeResult, outcome))
        except ColonnadeError as error:
            return [RequestFinished(call.id, call.method, error), *self.close()]  # D34
        return [Send(encode_notification(INITIALIZED, b"")), PeerIdentified(peer), finished]

    # ------------------------------------------------------------ sending

    def encoder(self, revision: Revision) -> Encoder:
        """The encoder for a revision, created once."""
        encoder = self._encoders.get(revision)
        if encoder is None:
            encoder = self._encoders[revision] = self.identity.encoder(revision)
        return encoder

    def _declaring_encoder(self, revision: Revision, declared: "RequestDeclaration") -> Encoder:
        """The encoder of requests that declare these input capabilities, created once."""
        encoder = self._declaring_encoders.get((revision, declared))
        if encoder is None:
            identity, own = self.identity, self.identity.capabilities
            assert isinstance(own, t.ClientCapabilities)
            if declared.input is not None:
                identity = replace(identity, capabilities=declared.input.declared_in(own))
            encoder = identity.encoder(revision, declared.log_level)
            self._declaring_encoders[revision, declared] = encoder
        return encoder

    def initialize(
        self, now: float, timeout_s: float = TIMEOUT_S, revision: Revision | None = None
    ) -> Send:
        """Begin the handshake, with our newest revision that has one or with a chosen one."""
        revision = self._handshake.begin(revision)
        params = self.identity.initialize_params(revision)
        if self.opening_meta is not None:
            params = replace(params, meta=self.opening_meta)
        body = self.encoder(revision).params(params)
        id = self._outgoing.open(HANDSHAKE_METHOD, now, timeout_s, timeout_s, False).id
        self._handshake.step("initialize")
        return Send(encode_request(encode(id), HANDSHAKE_METHOD, body))

    def adopt(self, peer: Peer | Revision) -> None:
        """Use this server without a handshake: each request will carry an envelope.

        With a revision alone, the capabilities of the server are unknown and not checked;
        `server/discover` returns them.
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
        declared: "RequestDeclaration | None" = None,
    ) -> tuple[RequestId, bytes]:
        """The id and the bytes of a new request.

        `revision` is for a probe, before the peer is known; `declared` are the input capabilities
        of this request, in revisions where each request declares them, if they are not our own.
        Raises `LocalProtocolError` for what may not be sent now, to this peer, at this revision;
        nothing is in flight then.
        """
        handshake = self._handshake
        context = self._send_contexts.get(method if declared is None else (method, declared))
        if context is None or context.peer is not handshake.peer or handshake.phase is not OPEN:
            context = self._send_context(method, revision, params, declared)
        definition = context.definition
        value: Any = params if type(params) is definition.params else params_for(definition, params)
        if value.meta and t.PROGRESS_TOKEN_KEY in value.meta:
            # R0076: two callers could choose the same token
            raise LocalProtocolError("pass progress=True; the link chooses the token")
        if self._serving:
            _check_input_request(value, context.peer)
        id = self._outgoing.id_of_next()
        body = context.encoder.params(value, id if progress else None)
        name = getattr(params, "name", None)
        self._outgoing.open(method, now, timeout_s, max_s, progress, name, id)
        raw_id = b"%d" % id if isinstance(id, int) else encode(id)
        return id, encode_request(raw_id, method, body)

    def call(
        self,
        server: "DuplexLink",
        params: t.RequestParams,
        now: float,
        timeout_s: float,
        max_s: float,
        progress: bool,
        declared: "RequestDeclaration | None" = None,
    ) -> Exchange | None:
        """Open a tool call at the link of a server in this process, without messages: the exchange
        is that which `server` would open for the request that `request` encodes.

        None if the call must be sent, since it is not plain, or something would be refused.
        """
        handshake = self._handshake
        context = self._send_contexts.get(CALL if declared is None else (CALL, declared))
        incoming, known = server._incoming, server._known_caller
        id = self._outgoing.next_id
        if (
            context is None
            or context.peer is not handshake.peer
            or handshake.phase is not OPEN
            or server._handshake.phase is CLOSED
        ):
            return None
        parts = context.encoder.split_call(params, id if progress else None)
        if parts is None:
            return None
        request = Request(id, CALL, NOTHING, b"%d" % id, parts)
        try:
            if known is None or known[0] is not context:
                # Requests that are sent in one context have the same envelope. Those of a session
                # have none, and are refused here.
                peer = server._peer_detector.detect(request, parts.meta)
                assert peer is not None  # which is for `initialize` alone
                known = server._known_caller = context, peer, server.encoder(peer.revision)
            _, peer, encoder = known
            definition = server._method_rules.receivable(CALL, peer)
        except Fault:
            return None
        exchange = Exchange(
            request,
            parts,
            definition,
            peer,
            encoder,
            server.principal,
            None,
            server._closed,
            server._logs,
            server.scopes,
        )
        self._outgoing.open(CALL, now, timeout_s, max_s, progress, parts.name)
        if incoming.open_alone(exchange):
            return exchange
        self._outgoing.settle(id)
        return None

    def settle_call(self, id: RequestId) -> bool:
        """End a request that has its result, other than `initialize`; False if it is over."""
        return self._outgoing.settle(id) is not None

    def _send_context(
        self,
        method: str,
        probed: Revision | None,
        params: t.RequestParams | None,
        declared: "RequestDeclaration | None",
    ) -> SendContext:
        """The context in which a request may be sent now; it holds while its peer is ours."""
        peer = self._handshake.peer_for(method, probed)
        informed = self._handshake.knows(peer)
        extension: str | None = getattr(params, "extension", None)
        definition = self._method_rules.sendable(
            method, peer, notification=False, informed=informed, extension=extension
        )
        encoder = (
            self.encoder(peer.revision)
            if declared is None
            else self._declaring_encoder(peer.revision, declared)
        )
        context = SendContext(peer, definition, encoder)
        if peer is self._handshake.peer:
            self._send_contexts[method if declared is None else (method, declared)] = context
        return context

    def ping(self, now: float, timeout_s: float = TIMEOUT_S) -> tuple[RequestId, bytes]:
        """Ping the peer; `server/discover` if the revision has no ping (D23)."""
        there = self.peer is None or PING in self.peer.revision.methods
        return self.request(PING if there else DISCOVER, now=now, timeout_s=timeout_s)

    def notify(self, method: str, params: t.NotificationParams | None = None) -> bytes:
        """The bytes of a notification. Raises `LocalProtocolError` if it may not be sent."""
        if method in NOT_BY_HAND:
            raise LocalProtocolError(f"{method} is sent by {NOT_BY_HAND[method]}")
        peer = self._handshake.peer_for(method, None)
        informed = self._handshake.knows(peer)
        definition = self._method_rules.sendable(method, peer, notification=True, informed=informed)
        body = self.encoder(peer.revision).params(params_for(definition, params))
        return encode_notification(method, body)

    def cancel(self, id: RequestId, reason: str | None = None) -> bytes | None:
        """Cancel one of our requests; None if it is over already. Never `initialize`."""
        call = self._outgoing.get(id)
        if call is None:
            return None
        if call.method == HANDSHAKE_METHOD:  # R0056
            raise LocalProtocolError("initialize cannot be cancelled; close the link")
        data = call.cancellation(reason)
        self._outgoing.settle(id)
        return data

    # ------------------------------------------------------------ timeouts and close

    @property
    def next_deadline(self) -> float | None:
        """When `tick` is due; None if there is no timeout."""
        return self._outgoing.next_deadline

    def ends_at(self, id: RequestId) -> float | None:
        """When the timeout of one of our requests expires, as of now; None without one."""
        call = self._outgoing.get(id)
        return call.ends_at if call is not None else None

    def pause_timeouts(self, now: float, about: RequestId | None = None) -> tuple[RequestId, ...]:
        """Pause timeouts while an input request of the peer is handled: that of the request it
        is `about`, or of all in flight if that is unknown. Returns the argument of
        `resume_timeouts`."""
        return self._outgoing.pause_timeouts(now, about)

    def resume_timeouts(self, held: tuple[RequestId, ...], now: float) -> None:
        """Resume the timeouts: the input request is handled, or cancelled."""
        self._outgoing.resume_timeouts(held, now)

    def tick(self, now: float) -> list[LinkEvent]:
        """End the requests whose timeout expired, and cancel them at the peer."""
        events: list[LinkEvent] = []
        for call in self._outgoing.overdue(now):
            self._outgoing.settle(call.id)
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
        """Close: all requests end, and nothing is ever sent again.

        `more` is appended to the message of each error; `server` is the name in `why`, and `output`
        the last output of its process.
        """
        if self.phase is CLOSED:
            return []
        self._handshake.step("close")
        events: list[LinkEvent] = []
        for call in self._outgoing.calls:
            self._outgoing.settle(call.id)
            words = f"{why} during {call.label}{more}"
            lost = ConnectionLost(words, server=server, output=output)
            events.append(RequestFinished(call.id, call.method, lost))
        for exchange in self._incoming.clear():
            exchange.abandon()
            events.append(RequestCancelled(exchange, why))
        return events

    # ------------------------------------------------------------ snapshots

    def snapshot(self) -> LinkSnapshot:
        """All that another process needs to continue; running exchanges stay where they run."""
        peer = self.peer
        return LinkSnapshot(
            side=self.side,
            phase=self.phase,
            revision=peer.revision.date if peer else None,
            capabilities=Raw(encode(peer.capabilities)) if peer else Raw(b"{}"),
            informed=self._handshake.informed,
            info=peer.info if peer else None,
            log_level=peer.log_level if peer else None,
            next_id=self._outgoing.next_id,
            sent=self._outgoing.calls,
        )

    @classmethod
    def restore(
        cls,
        record: LinkSnapshot,
        identity: Identity,
        accepts: Revisions = EVERY,
        principal: str = "",
    ) -> "DuplexLink":
        """A link from its snapshot. Raises `LocalProtocolError` if its revision is no longer
        accepted."""
        link = cls(record.side, identity, accepts, principal)
        link._outgoing = OutgoingRequests(record.next_id, record.sent)
        link._handshake.phase = record.phase
        if record.revision is not None:
            revision = accepts.get(record.revision)
            if revision is None:
                raise LocalProtocolError(f"{record.revision} is no longer accepted")
            theirs = t.ClientCapabilities if record.side is Side.SERVER else t.ServerCapabilities
            capabilities = decode_as(theirs, record.capabilities)
            link._handshake.peer = Peer(revision, capabilities, record.info, record.log_level)
            link._handshake.informed = record.informed
        return link

    def update(self, record: LinkSnapshot) -> None:
        """Take over what the peer sent to another process since: that it is initialized, and its
        log level."""
        if record.phase is OPEN:
            self._handshake.advance(INITIALIZED)
        peer = self._handshake.peer
        if peer is not None and record.log_level is not None and record.log_level != peer.log_level:
            self._use_level(peer, record.log_level)

    def send_as(self, sender: str) -> None:
        """Begin the ids of our requests with the name of this process: others send requests to the
        same peer, and a response to one may reach any of them."""
        self._outgoing.sender = sender


def _send_events(data: bytes | None, fault: Fault | None = None) -> list[LinkEvent]:
    return [Send(data, fault)] if data is not None else []


def sends(events: Iterable[LinkEvent]) -> list[bytes]:
    """The bytes of the `Send` events, in order."""
    return [event.data for event in events if isinstance(event, Send)]


def _check_input_request(value: t.ProtocolType, peer: Peer) -> None:
    """Raise `LocalProtocolError` for an input request that this client does not support."""
    from colonnade.protocol.input_requests import InputRequest, InputRequestParams, check_sendable

    if isinstance(value, InputRequestParams):
        check_sendable(InputRequest(value), peer)
