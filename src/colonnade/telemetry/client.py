"""What is recorded of a client: the requests that it sends, those that it receives, its sessions.

A conversation is wrapped when it is opened, so a client without telemetry has nothing of it.

Rules: nothing that is recorded changes a request but the fields of the propagator in its `_meta`,
which replace those that are there. The rounds of an `input_required` call are one trace.
"""

import asyncio
import time
from asyncio import Future
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, RemoteError, TimedOut
from colonnade.ports import (
    ConnectionEvents,
    Conversation,
    InputResponder,
    OnMembers,
    OpenConversation,
    ProgressCallback,
    RequestContext,
)
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Network, RequestRecord
from colonnade.protocol.input_requests import RequestDeclaration
from colonnade.protocol.jsonrpc import Request, RequestId
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Peer
from colonnade.protocol.revision import Revision
from colonnade.telemetry import conventions as names
from colonnade.telemetry.metrics import MAX_SERIES
from colonnade.telemetry.recorder import Recorder
from colonnade.telemetry.server import fault_outcome, record_answered, record_notified
from colonnade.telemetry.spans import (
    DONE,
    Operation,
    OperationOutcome,
    SpanAttributes,
    argument_attributes,
    as_text,
    count_input_request,
    count_response,
    network_attributes,
    span_name,
    target_attributes,
    trace_fields,
    traceparent_of,
)

# Calls that wait for input, whose next round belongs to the trace of the first. A user answers
# within minutes; what is not answered is forgotten.
MAX_ROUNDS_KEPT = 1_000

P = TypeVar("P", t.RequestParams, t.NotificationParams)


class _ResultFields(Struct):
    """The members of a result that say what became of a call."""

    is_error: Any = msgspec.field(name="isError", default=None)
    request_state: Any = msgspec.field(name="requestState", default=None)


_fields = msgspec.json.Decoder(_ResultFields)


class ClientRecorder:
    """Records the conversations of clients."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # The traceparent of the first round of calls that wait for input, by their request state.
        self._rounds: OrderedDict[str, str] = OrderedDict()
        # Names that a server has accepted. A model may make up any number of others.
        self._accepted: set[tuple[str, str]] = set()

    def instrument(self, open_conversation: OpenConversation) -> OpenConversation:
        """The same conversation, recorded."""

        def opened(link: DuplexLink, events: ConnectionEvents) -> Conversation:
            recorded = RecordedConversation(self, open_conversation, link, events)
            # A type checker takes no property for a method.
            return cast("Conversation", recorded)

        return opened

    def first_round(self, params: t.RequestParams) -> str:
        """The traceparent of the first round of the call that these params continue."""
        state = params.request_state if isinstance(params, t.InputResponseRequestParams) else None
        return self._rounds.pop(state, "") if state is not None else ""

    def keep_round(self, state: str, traceparent: str) -> None:
        """Keep the trace of a call that waits for input."""
        self._rounds[state] = traceparent
        while len(self._rounds) > MAX_ROUNDS_KEPT:
            self._rounds.popitem(last=False)

    def accepted_name(self, method: str, name: str, outcome: OperationOutcome) -> str:
        """The name of a tool or prompt for metrics: one that the server does not have is none."""
        if outcome.code is None and not outcome.error:
            if len(self._accepted) < MAX_SERIES:
                self._accepted.add((method, name))
            return name
        return name if (method, name) in self._accepted else names.OTHER


class ConversationRequest(Protocol):
    """`Conversation.request`."""

    def __call__(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float,
        *,
        on_progress: ProgressCallback | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
        declared: RequestDeclaration | None = None,
        owner: InputResponder | None = None,
        on_members: OnMembers | None = None,
    ) -> Coroutine[Any, Any, Raw]: ...


class RecordedConversation:
    """A conversation whose requests and session are recorded."""

    def __init__(
        self,
        recorder: ClientRecorder,
        open_conversation: OpenConversation,
        link: DuplexLink,
        events: ConnectionEvents,
    ) -> None:
        self._client = recorder
        self._recorder = recorder.recorder
        self._began: float | None = None
        self._open: dict[RequestId, Operation] = {}
        self.link: DuplexLink = link
        self._inner = open_conversation(link, RecordedEvents(self, events))
        link.on_answered = self._answered

    @property
    def network(self) -> Network:
        """That of the conversation."""
        return self._inner.network

    # ------------------------------------------------------------ requests

    @property
    def request(self) -> "ConversationRequest":
        """Sends a request and waits for its raw result."""
        # The function itself, and none around it, for a request that is not recorded: passing on
        # its arguments would cost more than the comparison.
        idle = time.monotonic() < self._recorder.idle_until
        return self._inner.request if idle else self._request

    async def _request(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float,
        *,
        on_progress: ProgressCallback | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
        declared: RequestDeclaration | None = None,
        owner: InputResponder | None = None,
        on_members: OnMembers | None = None,
    ) -> Raw:
        if not self._recorder.active:
            return await self._inner.request(
                method,
                params,
                timeout_s,
                on_progress=on_progress,
                headers=headers,
                probing=probing,
                declared=declared,
                owner=owner,
                on_members=on_members,
            )
        earlier = self._client.first_round(params)
        operation, sent = self._begin(method, params, probing, earlier)
        spans, span = self._recorder.spans, operation.span
        token = spans.attach_span(span) if spans is not None and span is not None else None
        outcome, extra = OperationOutcome(names.CANCELLED), dict[str, str | int]()
        try:
            raw = await self._inner.request(
                method,
                sent,
                timeout_s,
                on_progress=on_progress,
                headers=headers,
                probing=probing,
                declared=declared,
                owner=owner,
                on_members=on_members,
            )
            outcome = self._finished(params, raw, span, earlier)
            if self._recorder.content and method == "tools/call" and not outcome.error:
                extra[names.RESULT] = as_text(bytes(raw))
            return raw
        except Exception as error:
            outcome = error_outcome(error)
            raise
        finally:
            if spans is not None and token is not None:
                spans.detach(token)
            self._end(operation, method, params, outcome, extra)

    def _begin(
        self,
        method: str,
        params: t.RequestParams,
        probing: Revision | None = None,
        earlier: str = "",
    ) -> tuple[Operation, t.RequestParams]:
        name, uri = getattr(params, "name", None), getattr(params, "uri", None)
        target = name if isinstance(name, str) and method in _NAMED else ""
        attributes = self._attributes(method, probing)
        attributes |= target_attributes(method, target, uri, content=self._recorder.content)
        if self._recorder.content:
            given = getattr(params, "arguments", None)
            raw = given if isinstance(given, Raw) else msgspec.json.encode(given or {})
            attributes |= argument_attributes(method, raw)
        if isinstance(params, t.InputResponseRequestParams):
            for raw in (params.input_responses or {}).values():
                count_response(self._recorder.metrics, "client", raw)
        operation, fields = self._recorder.sent(
            span_name(method, target), attributes, names.CLIENT_OPERATION, earlier
        )
        return operation, with_fields(params, fields)

    def _attributes(self, method: str, probing: Revision | None = None) -> SpanAttributes:
        attributes: SpanAttributes = {names.METHOD: method}
        attributes[names.REQUEST_ID] = str(self.link.next_id)
        peer = self.link.peer
        revision = probing or (peer.revision if peer is not None else None)
        if revision is not None:
            attributes[names.REVISION] = revision.date
        network = self.network
        attributes |= network_attributes(network)
        if network.address:
            attributes[names.SERVER_ADDRESS] = network.address
            if network.port is not None:
                attributes[names.SERVER_PORT] = network.port
        return attributes

    def _finished(
        self, params: t.RequestParams, raw: Raw, span: Any, earlier: str
    ) -> OperationOutcome:
        if not isinstance(params, t.InputResponseRequestParams):
            return DONE
        try:
            found = _fields.decode(raw)
        except msgspec.DecodeError:
            return DONE
        if isinstance(found.request_state, str) and span is not None:
            self._client.keep_round(found.request_state, earlier or traceparent_of(span))
        return OperationOutcome(names.TOOL_ERROR) if found.is_error is True else DONE

    def _end(
        self,
        operation: Operation,
        method: str,
        params: t.RequestParams,
        outcome: OperationOutcome,
        extra: SpanAttributes,
    ) -> None:
        if method in _NAMED:
            given = str(getattr(params, "name", ""))
            operation.rename(_NAMED[method], self._client.accepted_name(method, given, outcome))
        operation.end(outcome, extra)

    def start_request(
        self, method: str, params: t.RequestParams, timeout_s: float
    ) -> tuple[RequestId, Future[Raw]]:
        """Send a request that stays open; its span ends with it."""
        if not self._recorder.active:
            return self._inner.start_request(method, params, timeout_s)
        operation, sent = self._begin(method, params)
        try:
            id, future = self._inner.start_request(method, sent, timeout_s)
        except Exception as error:
            operation.end(error_outcome(error))
            raise
        self._open[id] = operation
        future.add_done_callback(partial(self._end_open, id))
        return id, future

    def _end_open(self, id: RequestId, future: "Future[Raw]") -> None:
        operation = self._open.pop(id, None)
        if operation is not None:
            error = None if future.cancelled() else future.exception()
            operation.end(error_outcome(error) if isinstance(error, Exception) else DONE)

    def cancel_request(self, id: RequestId) -> None:
        """Cancel a request that stays open: its span ends, without an error."""
        self._inner.cancel_request(id)
        operation = self._open.pop(id, None)
        if operation is not None:
            operation.end(DONE)

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the connection with a handshake; the session is recorded from then on."""
        if not self._recorder.active:
            return await self._inner.initialize(revision, timeout_s)
        operation, fields = self._recorder.sent(
            HANDSHAKE_METHOD, self._attributes(HANDSHAKE_METHOD, revision), names.CLIENT_OPERATION
        )
        self.link.opening_meta = dict(fields) or None
        outcome = OperationOutcome(names.CANCELLED)
        try:
            raw = await self._inner.initialize(revision, timeout_s)
            outcome = DONE
            self._began = time.perf_counter()
            return raw
        except Exception as error:
            outcome = error_outcome(error)
            raise
        finally:
            operation.end(outcome)

    async def notify(self, method: str, params: t.NotificationParams | None = None) -> None:
        """Send a notification."""
        if not self._recorder.active:
            await self._inner.notify(method, params)
            return
        attributes = self._attributes(method)
        del attributes[names.REQUEST_ID]
        operation, fields = self._recorder.sent(method, attributes, names.CLIENT_OPERATION)
        outcome = OperationOutcome(names.CANCELLED)
        try:
            sent = with_fields(params or t.NotificationParams(), fields) if fields else params
            await self._inner.notify(method, sent)
            outcome = DONE
        except Exception as error:
            outcome = error_outcome(error)
            raise
        finally:
            operation.end(outcome)

    async def aclose(self, why: str) -> None:
        """Close the conversation."""
        await self._inner.aclose(why)
        self.session_ended()

    def session_ended(self) -> None:
        """Record the session, if there was one."""
        began, self._began = self._began, None
        if began is None:
            return
        attributes: SpanAttributes = {}
        network, peer = self.network, self.link.peer
        if peer is not None:
            attributes[names.REVISION] = peer.revision.date
        if network.protocol:
            attributes[names.PROTOCOL] = network.protocol
        if network.address:
            attributes[names.SERVER_ADDRESS] = network.address
            attributes[names.SERVER_PORT] = network.port or 0
        took_s = time.perf_counter() - began
        self._recorder.metrics.record(names.CLIENT_SESSION, took_s, attributes)

    # ------------------------------------------------------------ requests of the server

    def _answered(self, request: Request | None, peer: Peer | None, fault: Fault | None) -> None:
        """Record a request of the server that the protocol answered: `ping`."""
        if self._recorder.active:
            outcome = DONE
            if fault is not None:
                outcome = fault_outcome(fault, peer.revision if peer else None)
            network = replace(self.network, address="", port=None)
            record_answered(self._recorder, network, request, peer, outcome, _no_target)

    def notified(self, notification: NotificationReceived) -> None:
        """Record a notification of the server."""
        if self._recorder.active:
            record_notified(self._recorder, notification, self.link.peer)

    def handle(
        self,
        request: RequestContext,
        answer: Callable[[RequestContext], Awaitable[bytes | None]],
    ) -> Awaitable[bytes | None]:
        """Respond to a request of the server."""
        return self._handle(request, answer) if self._recorder.active else answer(request)

    async def _handle(
        self,
        request: RequestContext,
        answer: Callable[[RequestContext], Awaitable[bytes | None]],
    ) -> bytes | None:
        exchange = request.exchange
        exchange.record = RequestRecord()
        attributes: SpanAttributes = {names.METHOD: exchange.method.name}
        attributes[names.REQUEST_ID] = str(exchange.request.id)
        attributes[names.REVISION] = exchange.peer.revision.date
        attributes |= network_attributes(self.network)
        operation, context = self._recorder.received(
            exchange.method.name, attributes, trace_fields(exchange.params.meta)
        )
        spans = self._recorder.spans
        token = spans.attach(context) if spans is not None else None
        outcome = OperationOutcome(event="abandoned")
        try:
            data = await answer(request)
            outcome = DONE
            if request.fault is not None:
                outcome = fault_outcome(request.fault, exchange.peer.revision)
            return data
        except asyncio.CancelledError:
            outcome = OperationOutcome(event=names.CANCELLED)
            raise
        finally:
            if spans is not None:
                spans.detach(token)
            operation.end(outcome)
            self._count(request, outcome)

    def _count(self, request: RequestContext, outcome: OperationOutcome) -> None:
        asked = request.exchange.input_request
        if asked is None:
            return
        answered = "result"
        if outcome.event:
            answered = "cancel"
        elif request.fault is not None:
            answered = "decline" if request.fault.kind is FaultKind.USER_REJECTED else "error"
        count_input_request(self._recorder.metrics, "client", asked.kind.value, answered)


class RecordedEvents:
    """Passes on everything that a server sends, and records it."""

    def __init__(self, conversation: RecordedConversation, events: ConnectionEvents) -> None:
        self._conversation = conversation
        self._events = events

    def handle_request(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Respond to a request of the server."""
        return self._conversation.handle(request, self._events.handle_request)

    def on_notification(self, notification: NotificationReceived) -> None:
        """Handle a notification of the server."""
        self._conversation.notified(notification)
        self._events.on_notification(notification)

    def on_missed_notifications(self) -> None:
        """Notifications were lost."""
        self._events.on_missed_notifications()

    def on_closed(self) -> None:
        """The connection has ended."""
        self._conversation.session_ended()
        self._events.on_closed()


_NAMED = {"tools/call": names.TOOL, "prompts/get": names.PROMPT}


def _no_target(method: str, name: object) -> str:
    return ""


def error_outcome(error: Exception) -> OperationOutcome:
    """The outcome of a request at its sender: every error is one."""
    if isinstance(error, RemoteError):
        return OperationOutcome(str(error.code), error.code, error.message)
    if isinstance(error, TimedOut):
        return OperationOutcome(names.TIMEOUT)
    return OperationOutcome(type(error).__name__)


def with_fields(params: P, fields: dict[str, str]) -> P:
    """The params with the fields of the propagator, which replace those that are there."""
    if not fields:
        return params
    meta = {name: value for name, value in (params.meta or {}).items() if name not in TRACE_KEYS}
    return replace(params, meta=meta | fields)


TRACE_KEYS = frozenset({t.TRACEPARENT_KEY, t.TRACESTATE_KEY, t.BAGGAGE_KEY})
