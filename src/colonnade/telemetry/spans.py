"""Spans: one for each request and notification, on both sides, by OpenTelemetry's conventions.

An `Operation` is one request while it is recorded: its span, if there is a tracer, and what is
recorded in the histogram of its side at the end. So spans and metrics have the same attributes.

Rules: no argument and no result is recorded unless it is asked for. The text of an exception never
is, only its class. Names are those of the registry.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from colonnade import __version__
from colonnade.protocol.exchange import Network
from colonnade.protocol.revision import EVERY
from colonnade.telemetry import conventions as names
from colonnade.telemetry.conventions import Metric
from colonnade.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.trace import Span

# Of arguments and results, if they are recorded: as much as exporters accept of one attribute.
MAX_CONTENT_CHARACTERS = 16 * 1024
# Of a name or a URI that comes from a peer.
MAX_NAME_CHARACTERS = 256
MAX_PROMPT_VARIABLES = 32

# The error codes that metrics distinguish: the codes of the revisions, and two of the official SDKs
# (connection closed, request timed out). A server may invent any number of other codes, and each
# would be a series of 17 lines.
KNOWN_CODES = frozenset({-32000, -32001, -32002}.union(*(one.codes.values() for one in EVERY)))

SpanAttributes = dict[str, str | int]


class OperationOutcome(Struct, frozen=True):
    """How a request ended. `error` is its `error.type`, empty without an error; `code` and
    `message` are those of the JSON-RPC error; `event` is the name of a span event."""

    error: str = ""
    code: int | None = None
    message: str = ""
    event: str = ""


DONE = OperationOutcome()


class Spans:
    """Starts spans with one tracer."""

    def __init__(self, tracer_provider: Any) -> None:
        from opentelemetry import context, propagate, trace

        self._trace = trace
        self._context = context
        self._propagate = propagate
        self._tracer = tracer_provider.get_tracer("colonnade", __version__)
        self._kinds = {"client": trace.SpanKind.CLIENT, "server": trace.SpanKind.SERVER}
        self._error = trace.StatusCode.ERROR

    def start_sent(
        self, name: str, attributes: SpanAttributes, earlier: str = ""
    ) -> "tuple[Span, dict[str, str]]":
        """Start the span of a request that is sent; returns the fields to send in its `_meta`.

        `earlier` is the traceparent of the first `input_required` round of the same call: a link,
        and the parent if there is no other.
        """
        parent, links = None, []
        if earlier:
            found = self._extract({"traceparent": earlier})
            links = self._links(found)
            if not self._trace.get_current_span().get_span_context().is_valid:
                parent = found
        kind = self._kinds["client"]
        span = self._tracer.start_span(name, parent, kind, attributes, links)
        fields: dict[str, str] = {}
        self._propagate.inject(fields, self._trace.set_span_in_context(span))
        return span, fields

    def start_received(
        self, name: str, attributes: SpanAttributes, fields: Mapping[str, str]
    ) -> "tuple[Span, Any]":
        """Start the span of a request that was received with these fields in its `_meta`; returns
        the context for its handler.

        Their context is the parent, and that of the transport, such as a span of the web
        framework, a link.
        """
        ambient = self._trace.get_current_span().get_span_context()
        parent, links = None, []
        if fields:
            parent = self._extract(fields)
            remote = self._trace.get_current_span(parent).get_span_context()
            if not remote.is_valid:
                parent = self._trace.set_span_in_context(self._trace.get_current_span(), parent)
            elif ambient.is_valid and ambient.span_id != remote.span_id:
                links = [self._trace.Link(ambient)]
        span = self._tracer.start_span(name, parent, self._kinds["server"], attributes, links)
        return span, self._trace.set_span_in_context(span, parent)

    def _extract(self, fields: Mapping[str, str]) -> Any:
        # Into an empty context: what the transport has is no part of the message.
        return self._propagate.extract(fields, self._context.Context())

    def _links(self, context: Any) -> list[Any]:
        found = self._trace.get_current_span(context).get_span_context()
        return [self._trace.Link(found)] if found.is_valid else []

    def link(self, span: "Span", traceparent: str) -> None:
        """Add a link to another span."""
        for one in self._links(self._extract({"traceparent": traceparent})):
            span.add_link(one.context)

    def attach(self, context: Any) -> object:
        """Make a context the current one; returns the token for `detach`."""
        return self._context.attach(context)

    def attach_span(self, span: "Span") -> object:
        """Make a span the current one."""
        return self._context.attach(self._trace.set_span_in_context(span))

    def detach(self, token: Any) -> None:
        """Go back to the context before."""
        self._context.detach(token)

    def fail(self, span: "Span", message: str) -> None:
        """Set the status of a span to an error."""
        span.set_status(self._error, message or None)


def traceparent_of(span: "Span") -> str:
    """The W3C traceparent of a span."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


class Operation:
    """One request while it is recorded."""

    def __init__(
        self,
        metrics: Metrics,
        metric: Metric,
        attributes: SpanAttributes,
        spans: Spans | None = None,
        span: "Span | None" = None,
    ) -> None:
        self.span = span
        self._spans = spans
        self._metrics = metrics
        self._metric = metric
        self._attributes = attributes
        self._began = time.perf_counter()

    def rename(self, attribute: str, name: str) -> None:
        """Use another name in the metric; that of the span stays."""
        self._attributes = self._attributes | {attribute: name}

    def end(self, outcome: OperationOutcome, extra: SpanAttributes | None = None) -> None:
        """The request is over. `extra` are attributes of the span alone."""
        took_s = time.perf_counter() - self._began
        found: SpanAttributes = {}
        if outcome.error:
            found[names.ERROR] = outcome.error
        if outcome.code is not None:
            found[names.STATUS_CODE] = str(outcome.code)
        allowed = self._metric.attributes
        known = {name: self._attributes[name] for name in allowed if name in self._attributes}
        self._metrics.record(self._metric, took_s, known | _bounded(found, outcome.code))
        span, spans = self.span, self._spans
        if span is None or spans is None:
            return
        span.set_attributes(found | (extra or {}))
        if outcome.event:
            span.add_event(outcome.event)
        if outcome.error:
            spans.fail(span, outcome.message)
        span.end()


def _bounded(outcome: SpanAttributes, code: int | None) -> SpanAttributes:
    """The attributes of an outcome for a metric. All unknown error codes become one value."""
    if code is None or code in KNOWN_CODES:
        return outcome
    return dict.fromkeys(outcome, names.OTHER)


# ---------------------------------------------------------------- attributes


def span_name(method: str, target: str) -> str:
    """The name of a span: the method, and the tool or prompt."""
    return f"{method} {target}" if target else method


def network_attributes(network: Network) -> SpanAttributes:
    """The attributes of a connection, without addresses."""
    found: SpanAttributes = {}
    if network.transport:
        found[names.TRANSPORT] = network.transport
    if network.protocol:
        found[names.PROTOCOL] = network.protocol
        if network.version:
            found[names.PROTOCOL_VERSION] = network.version
    if network.session_id:
        found[names.SESSION] = network.session_id
    return found


def target_attributes(method: str, target: str, uri: object, *, content: bool) -> SpanAttributes:
    """The attributes of what a request is about: a tool, a prompt, or a resource."""
    if method == "tools/call":
        return {names.TOOL: target, names.OPERATION: names.EXECUTE_TOOL}
    if method == "prompts/get":
        return {names.PROMPT: target}
    if method in names.URI_METHODS and isinstance(uri, str):
        return {names.URI: uri[:MAX_NAME_CHARACTERS] if content else plain_uri(uri)}
    return {}


def plain_uri(uri: str) -> str:
    """A URI without the parts that hold arguments or secrets: user, query and fragment."""
    scheme, mark, rest = uri[: 4 * MAX_NAME_CHARACTERS].partition("://")
    path = (rest if mark else scheme).partition("?")[0].partition("#")[0]
    host, slash, tail = path.partition("/")
    path = host.rpartition("@")[2] + slash + tail
    return (f"{scheme}{mark}{path}" if mark else path)[:MAX_NAME_CHARACTERS]


def argument_attributes(method: str, raw: bytes | Raw) -> SpanAttributes:
    """The arguments of a tool, or the variables of a prompt."""
    if not raw:
        return {}
    if method == "tools/call":
        return {names.ARGUMENTS: as_text(bytes(raw))}
    if method != "prompts/get":
        return {}
    try:
        values = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {
        f"{names.PROMPT_VARIABLE}.{name[:MAX_NAME_CHARACTERS]}": str(value)[:MAX_CONTENT_CHARACTERS]
        for name, value in list(values.items())[:MAX_PROMPT_VARIABLES]
    }


def as_text(raw: bytes) -> str:
    """JSON as the value of an attribute."""
    return raw[: 4 * MAX_CONTENT_CHARACTERS].decode(errors="replace")[:MAX_CONTENT_CHARACTERS]


def trace_fields(meta: Raw) -> dict[str, str]:
    """The members of a `_meta` that may be those of a propagator: strings without a prefix."""
    if not meta:
        return {}
    try:
        found = msgspec.json.decode(meta, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return {
        name: value for name, value in found.items() if isinstance(value, str) and "/" not in name
    }


# ---------------------------------------------------------------- input requests


class _InputResponse(Struct):
    action: Any = None
    roots: Any = None


_response = msgspec.json.Decoder(_InputResponse)
_ACTIONS = ("accept", "decline", "cancel")


def count_response(metrics: Metrics, role: str, raw: bytes | Raw) -> None:
    """Count an input request by its response; the kind follows from the members of the response."""
    try:
        found = _response.decode(raw)
    except msgspec.DecodeError:
        return
    if found.action is not None:
        action = found.action if found.action in _ACTIONS else names.OTHER
        count_input_request(metrics, role, "elicitation", action)
    else:
        kind = "roots" if found.roots is not None else "sampling"
        count_input_request(metrics, role, kind, "result")


def count_input_request(metrics: Metrics, role: str, kind: str, outcome: str) -> None:
    """Count an input request."""
    metrics.count(
        names.INPUT_REQUESTS, {names.ROLE: role, names.KIND: kind, names.OUTCOME: outcome}
    )
