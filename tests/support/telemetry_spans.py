"""Spans and metrics for tests: an SDK that exports into memory, and the rules of the conventions.

Rules: the SDK is the real one. Each recording has providers of its own; none is global.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from colonnade import Telemetry

CONVENTIONS: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent.parent / "telemetry" / "conventions.toml").read_text("utf-8")
)
MISTAKES = frozenset(CONVENTIONS["codes"]["callers_mistakes"])
OWN = frozenset({"colonnade.error.id"})


class Recording:
    """What is recorded: finished spans, and the points of metrics."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = Telemetry(
            tracer_provider=self.tracers, meter_provider=self.meters, **options
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def take(self) -> list[ReadableSpan]:
        """The spans of requests since the last time."""
        found = self.spans
        self._exporter.clear()
        return [span for span in found if not span.name.startswith("notifications/")]

    def named(self, name: str, kind: SpanKind | None = None) -> list[ReadableSpan]:
        return [s for s in self.spans if s.name == name and kind in (None, s.kind)]

    def one(self, name: str, kind: SpanKind | None = None) -> ReadableSpan:
        (found,) = self.named(name, kind)
        return found

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return {metric.name: list(metric.data.data_points) for metric in metrics}


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


class Situation:
    """What is known of a request, for the conditions of its attributes."""

    def __init__(
        self,
        *,
        transport: str,
        has_session: bool = False,
        is_notification: bool = False,
        reached_handler: bool = True,
        is_revision_known: bool = True,
        is_readable: bool = True,
    ) -> None:
        self.transport = transport
        self.has_session = has_session
        self.is_notification = is_notification
        self.reached_handler = reached_handler
        self.is_revision_known = is_revision_known
        self.is_readable = is_readable


URIS = ("resources/read", "resources/subscribe", "resources/unsubscribe")
# Whether an attribute must be there; None if it may.
CONDITIONS: dict[str, Callable[[ReadableSpan, Situation], bool | None]] = {
    "required": lambda _, __: True,
    "failed": lambda span, _: span.status.status_code is StatusCode.ERROR,
    "tool": lambda span, _: attributes(span)["mcp.method.name"] == "tools/call",
    "prompt": lambda span, _: attributes(span)["mcp.method.name"] == "prompts/get",
    "request": lambda _, now: not now.is_notification and now.is_readable,
    "uri": lambda span, now: (
        attributes(span)["mcp.method.name"] in URIS if now.reached_handler else None
    ),
    "code": lambda _, __: None,
    "revision": lambda _, now: True if now.is_revision_known else None,
    "session": lambda _, now: now.has_session,
    "transport": lambda _, now: bool(now.transport),
    "http": lambda _, now: now.transport == "tcp",
    "http_handler": lambda _, now: now.transport == "tcp" if now.reached_handler else None,
    "http_client": lambda _, now: now.transport == "tcp",
    "opt_in": lambda _, __: False,
}


def check(span: ReadableSpan, now: Situation) -> None:
    """Assert that a span is as the conventions say."""
    side = "server" if span.kind is SpanKind.SERVER else "client"
    rules: dict[str, str] = CONVENTIONS["spans"][side]
    given = attributes(span)
    assert given.keys() <= rules.keys() | OWN, (span.name, given)
    for name, condition in rules.items():
        wanted = CONDITIONS[condition](span, now)
        if wanted is not None:
            assert (name in given) is wanted, (side, span.name, name, dict(given))
    target = given.get("gen_ai.tool.name", given.get("gen_ai.prompt.name"))
    method = given["mcp.method.name"]
    assert span.name == (f"{method} {target}" if target is not None else method)
    if "gen_ai.operation.name" in given:
        assert given["gen_ai.operation.name"] == "execute_tool"
    code = given.get("rpc.response.status_code")
    if code is not None:
        failed = side == "client" or int(code) not in MISTAKES
        assert given.get("error.type") == (code if failed else None)
    if now.transport:
        assert given["network.transport"] == now.transport
    if now.transport == "tcp":
        assert (given["network.protocol.name"], given["network.protocol.version"]) == (
            "http",
            "1.1",
        )


def check_points(recording: Recording) -> None:
    """Assert that no metric has an attribute that the conventions do not give it."""
    allowed: dict[str, list[str]] = CONVENTIONS["metrics"]["attributes"]
    for name, points in recording.points().items():
        if name in allowed:
            for point in points:
                assert set(point.attributes) <= set(allowed[name]), (name, point.attributes)
                assert list(point.explicit_bounds) == CONVENTIONS["metrics"]["buckets"]
