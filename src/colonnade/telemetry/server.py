"""What is recorded of a server: requests in handlers, those that the protocol answers or refuses,
sessions, and the requests that a server sends to its clients.

Rules: without a tracer, a meter or Prometheus nothing but one comparison is done for a request.
Nothing that is recorded changes a response.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import ref

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import AuthError, Fault, FaultKind, RemoteError, TimedOut
from colonnade.ports import Handler, RequestContext, Responder, WrappedRequest
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, Network, RequestRecord
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import Request, split_params
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import EVERY, InputRequests, Revision, error_code
from colonnade.telemetry import conventions as names
from colonnade.telemetry.metrics import Attributes
from colonnade.telemetry.recorder import Recorder
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

# Whether the registry has a tool (`tools/call`) or prompt (`prompts/get`) of this name.
IsKnown = Callable[[str, str], bool]

METHODS: Final = frozenset(name for revision in EVERY for name in revision.methods)

# Why a request was refused, by the kind of the fault and by the HTTP status.
REASONS: Final[Mapping[FaultKind, str]] = {
    FaultKind.PARSE: "parse_error",
    FaultKind.INVALID_REQUEST: "invalid_request",
    FaultKind.METHOD_NOT_FOUND: "method_not_found",
    FaultKind.INVALID_PARAMS: "invalid_params",
    FaultKind.INTERNAL: "internal",
    FaultKind.RESOURCE_MISSING: "not_found",
    FaultKind.HEADER_MISMATCH: "header_mismatch",
    FaultKind.CAPABILITY_MISSING: "capability_missing",
    FaultKind.EXTENSION_MISSING: "extension_missing",
    FaultKind.VERSION_UNSUPPORTED: "version_unsupported",
    FaultKind.TOO_MANY: "too_many",
}
STATUS_REASONS: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "timeout",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    429: "too_many",
    503: "overloaded",
}


# Kinds that say less than the status.
_BY_STATUS: Final = (FaultKind.INVALID_REQUEST, FaultKind.INTERNAL)


def reason_of(refusal: Fault | AuthError, status: int | None = None) -> str:
    """Why a request was refused, in one word of a fixed list."""
    if isinstance(refusal, AuthError):
        return STATUS_REASONS.get(status or 0, names.OTHER)
    if isinstance(refusal, HttpError) and refusal.kind in _BY_STATUS:
        return STATUS_REASONS.get(refusal.status, names.OTHER)
    return REASONS.get(refusal.kind, names.OTHER)


class _InputResponses(Struct):
    input_responses: dict[str, Raw] | None = msgspec.field(name="inputResponses", default=None)


_responses = msgspec.json.Decoder(_InputResponses)


class ServerRecorder:
    """Records one server: `ServerTelemetry` for its transports, and the middleware for its
    handlers."""

    def __init__(self, recorder: Recorder, is_known: IsKnown) -> None:
        self.recorder = recorder
        self._metrics = recorder.metrics
        self._is_known = is_known
        self._in_flight = 0
        self._sessions = 0
        # Telemetry that a process shares outlives a server, and must not keep it.
        weak = ref(self)

        def in_flight() -> int:
            found = weak()
            return found._in_flight if found is not None else 0

        def sessions() -> int:
            found = weak()
            return found._sessions if found is not None else 0

        recorder.metrics.add_gauge(names.IN_FLIGHT, _alone(in_flight))
        recorder.metrics.add_gauge(names.SESSIONS, _alone(sessions))

    # ------------------------------------------------------------ requests in handlers

    async def respond(self, request: RequestContext, answer: Responder) -> bytes | None:
        """Answer a request, and record it."""
        if not self.recorder.active:
            return await answer(request)
        exchange = request.exchange
        record = exchange.record = RequestRecord()
        operation, context = self._begin(exchange, request.network)
        spans = self.recorder.spans
        if operation.span is not None:
            record.traceparent = traceparent_of(operation.span)
        token = spans.attach(context) if spans is not None else None
        self._in_flight += 1
        outcome = OperationOutcome(event="abandoned")
        try:
            data = await answer(request)
            outcome = self._outcome(request, record)
            return data
        except asyncio.CancelledError:
            outcome = OperationOutcome(event=names.CANCELLED)
            raise
        finally:
            self._in_flight -= 1
            if spans is not None:
                spans.detach(token)
                if record.earlier_traceparent and operation.span is not None:
                    spans.link(operation.span, record.earlier_traceparent)
            if record.failure is not None and operation.span is not None:
                operation.span.add_event("exception", {"exception.type": record.failure[0]})
            operation.end(outcome, self._extra(record))

    def _begin(self, exchange: Exchange, network: Network) -> tuple[Operation, Any]:
        params, method = exchange.params, exchange.method.name
        target = self._target(method, params.name)
        attributes: SpanAttributes = {names.METHOD: method}
        content = self.recorder.content
        attributes |= target_attributes(method, target, params.uri, content=content)
        attributes[names.REQUEST_ID] = str(exchange.request.id)
        attributes[names.REVISION] = exchange.peer.revision.date
        attributes |= network_attributes(network)
        if network.address:
            attributes[names.CLIENT_ADDRESS] = network.address
            if network.port is not None:
                attributes[names.CLIENT_PORT] = network.port
        if content:
            attributes |= argument_attributes(method, params.arguments)
        self._count_responses(exchange)
        name = span_name(method, target)
        return self.recorder.received(name, attributes, trace_fields(params.meta))

    def _target(self, method: str, name: object) -> str:
        """The tool or prompt of a request, if the registry has it."""
        if method not in ("tools/call", "prompts/get"):
            return ""
        known = isinstance(name, str) and self._is_known(method, name)
        return str(name) if known else names.OTHER

    def _count_responses(self, exchange: Exchange) -> None:
        """Count the input responses that a retry has."""
        if (
            exchange.peer.revision.input_requests is not InputRequests.IN_RESULT
            or not exchange.method.may_require_input
            or exchange.request.split_params is not None  # nothing but name, arguments and meta
        ):
            return
        try:
            found = _responses.decode(exchange.request.params).input_responses
        except msgspec.DecodeError:
            return
        for raw in (found or {}).values():
            count_response(self._metrics, "server", raw)

    def _outcome(self, request: RequestContext, record: RequestRecord) -> OperationOutcome:
        fault = request.fault
        if record.refused:
            self._metrics.count(names.REFUSED, {names.REASON: record.refused})
        elif isinstance(fault, HttpError):
            self._metrics.count(names.REFUSED, {names.REASON: reason_of(fault)})
        if fault is not None:
            return fault_outcome(fault, request.exchange.peer.revision)
        result = record.result
        if isinstance(result, t.CallToolResult) and result.is_error:
            return OperationOutcome(names.TOOL_ERROR)
        return DONE

    def _extra(self, record: RequestRecord) -> SpanAttributes:
        extra: SpanAttributes = {}
        if record.failure is not None:
            extra[names.ERROR_ID] = record.failure[1]
        result = record.result
        if self.recorder.content and isinstance(result, t.CallToolResult) and not result.is_error:
            extra[names.RESULT] = as_text(msgspec.json.encode(result))
        return extra

    # ------------------------------------------------------------ the middleware

    def middleware(self, request: RequestContext, call_next: Handler) -> Awaitable[t.ProtocolType]:
        """Note the result of a request that is recorded, and record what it asks of its caller."""
        record = request.exchange.record
        return call_next(request) if record is None else self._observe(request, record, call_next)

    async def _observe(
        self, request: RequestContext, record: RequestRecord, call_next: Handler
    ) -> t.ProtocolType:
        if request.exchange.peer.revision.input_requests is InputRequests.AS_REQUEST:
            request = RecordedRequest(request, self._ask)
        result = record.result = await call_next(request)
        return result

    async def _ask(self, request: RequestContext, input_request: InputRequest) -> Raw:
        """Send an input request to the client, and record it."""
        kind = input_request.kind
        attributes: SpanAttributes = {names.METHOD: kind.method}
        if request.next_id is not None:
            attributes[names.REQUEST_ID] = str(request.next_id)
        attributes[names.REVISION] = request.exchange.peer.revision.date
        attributes |= network_attributes(request.network)
        operation, fields = self.recorder.sent(kind.method, attributes, names.CLIENT_OPERATION)
        if fields:
            params = input_request.params
            meta = (params.meta or {}) | fields
            input_request = InputRequest(msgspec.structs.replace(params, meta=meta))
        spans, span = self.recorder.spans, operation.span
        token = spans.attach_span(span) if spans is not None and span is not None else None
        outcome, answered = OperationOutcome(names.CANCELLED), "error"
        try:
            raw = await request.ask(input_request)
            outcome = DONE
            count_response(self._metrics, "server", raw)
            return raw
        except RemoteError as error:
            outcome = OperationOutcome(str(error.code), error.code, error.message)
            refused = request.exchange.peer.revision.codes[FaultKind.USER_REJECTED]
            answered = "decline" if error.code == refused else "error"
            raise
        except TimedOut:
            outcome, answered = OperationOutcome(names.TIMEOUT), names.TIMEOUT
            raise
        except Exception as error:
            outcome = OperationOutcome(type(error).__name__)
            raise
        finally:
            if spans is not None and token is not None:
                spans.detach(token)
            if outcome is not DONE:
                count_input_request(self._metrics, "server", kind.value, answered)
            operation.end(outcome)

    # ------------------------------------------------------------ outside of handlers

    def answered(
        self, network: Network, request: Request | None, peer: Peer | None, fault: Fault | None
    ) -> None:
        """Record a request that no handler got."""
        if not self.recorder.active:
            return
        if fault is not None:
            self._metrics.count(names.REFUSED, {names.REASON: reason_of(fault)})
        outcome = DONE if fault is None else fault_outcome(fault, peer.revision if peer else None)
        record_answered(self.recorder, network, request, peer, outcome, self._target)

    def notified(self, notification: NotificationReceived, peer: Peer | None) -> None:
        """Record a notification of a client."""
        if self.recorder.active:
            record_notified(self.recorder, notification, peer)

    def refused(self, refusal: Fault | AuthError, status: int) -> None:
        """Count an HTTP request that was refused."""
        self._metrics.count(names.REFUSED, {names.REASON: reason_of(refusal, status)})

    def session_opened(self, revision: Revision, network: Network) -> Callable[[], None]:
        """Record a session, from now until the returned function is called."""
        began = time.perf_counter()
        attributes: dict[str, str | int] = {names.REVISION: revision.date}
        if network.protocol:
            attributes[names.PROTOCOL] = network.protocol
        self._sessions += 1

        def ended() -> None:
            self._sessions -= 1
            took_s = time.perf_counter() - began
            self._metrics.record(names.SERVER_SESSION, took_s, attributes)

        return ended

    def add_gauge(self, name: str, read: Callable[[], int]) -> Callable[[], None]:
        """Read a number whenever metrics are collected, until the returned function is called."""
        metric = next(one for one in names.GAUGES if one.name == f"colonnade.{name}")
        return self._metrics.add_gauge(metric, _alone(read))


def _alone(read: Callable[[], int]) -> Callable[[], list[tuple[float, Attributes]]]:
    """A gauge without attributes."""
    return lambda: [(read(), {})]


def fault_outcome(fault: Fault, revision: Revision | None) -> OperationOutcome:
    """The outcome of a request at its receiver: a mistake of the caller is no error."""
    code = error_code(fault, revision)
    error = "" if code in names.CALLER_MISTAKES else str(code)
    return OperationOutcome(error, code, fault.message)


def record_answered(
    recorder: Recorder,
    network: Network,
    request: Request | None,
    peer: Peer | None,
    outcome: OperationOutcome,
    target_of: Callable[[str, object], str],
) -> None:
    """Record a request that the protocol answered itself."""
    method, target = names.OTHER, ""
    attributes: SpanAttributes = {}
    fields: dict[str, str] = {}
    if request is not None:
        if request.method in METHODS:
            method = request.method
        attributes[names.REQUEST_ID] = str(request.id)
        try:
            params = request.split_params or split_params(request.params)
            target, fields = target_of(method, params.name), trace_fields(params.meta)
        except Fault:
            target = target_of(method, None)
    attributes[names.METHOD] = method
    attributes |= target_attributes(method, target, None, content=False)
    if peer is not None:
        attributes[names.REVISION] = peer.revision.date
    attributes |= network_attributes(network)
    operation, _ = recorder.received(span_name(method, target), attributes, fields)
    operation.end(outcome)


def record_notified(
    recorder: Recorder, notification: NotificationReceived, peer: Peer | None
) -> None:
    """Record a notification that was received."""
    method = notification.method.name
    attributes: SpanAttributes = {names.METHOD: method}
    if peer is not None:
        attributes[names.REVISION] = peer.revision.date
    try:
        fields = trace_fields(split_params(notification.params).meta)
    except Fault:
        fields = {}
    operation, _ = recorder.received(method, attributes, fields)
    operation.end(DONE)


class RecordedRequest(WrappedRequest):
    """A request whose input requests are recorded."""

    def __init__(
        self,
        request: RequestContext,
        ask: Callable[[RequestContext, InputRequest], Awaitable[Raw]],
    ) -> None:
        super().__init__(request)
        self._ask = ask

    async def ask(self, input_request: InputRequest) -> Raw:
        return await self._ask(self._request, input_request)
