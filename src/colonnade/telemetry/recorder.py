"""The recorder: the tracer, the meter and Prometheus, as far as they are configured.

Rules: nothing is recorded before an SDK is configured, or Prometheus was asked for; an SDK that is
configured later is found within a second. OpenTelemetry is not imported before the application does
that, or gives a provider.
"""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from math import inf
from time import monotonic
from typing import Any

from colonnade.errors import InvalidArgument
from colonnade.telemetry import conventions as names
from colonnade.telemetry.conventions import Metric
from colonnade.telemetry.metrics import Metrics, OtelMetrics
from colonnade.telemetry.prometheus import PrometheusMetrics
from colonnade.telemetry.spans import Operation, SpanAttributes, Spans

# To look for an SDK takes a microsecond, which is too much for each request.
LOOK_S = 1.0
# Variables that name the provider that the API loads.
PROVIDERS = frozenset({"OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"})
# The packages of the API: their providers record nothing.
API_PACKAGES = ("opentelemetry.trace", "opentelemetry.metrics")


def is_configured(provider: Any) -> bool:
    """Whether a provider is that of an SDK, and not one of the API."""
    return not type(provider).__module__.startswith(API_PACKAGES)


class Recorder:
    """Where operations are recorded. Raises `InvalidArgument` if a library is missing."""

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: Any = None,
        meter_provider: Any = None,
        prometheus: bool = False,
    ) -> None:
        self.content = content
        self.metrics: Metrics = Metrics()
        self.spans: Spans | None = None
        self.prometheus: PrometheusMetrics | None = None
        self._tracer_provider = tracer_provider
        self._meter_provider = meter_provider
        self._has_meter = False
        # Until this time nothing is recorded: one comparison for each request, and no call.
        self.idle_until: float = 0.0
        # When to look for a provider that may still be configured.
        self._next_look = 0.0
        self._active = prometheus
        self._on_active: list[Callable[[], None]] = []
        if prometheus:
            self.prometheus = PrometheusMetrics(self.metrics)
            self.metrics.sinks.append(self.prometheus)
        if find_spec("opentelemetry") is None:
            if not prometheus:
                raise InvalidArgument(
                    "telemetry= needs opentelemetry-api: pip install 'colonnade[otel]'",
                    argument="telemetry",
                )
            self._next_look = inf

    @property
    def active(self) -> bool:
        """Whether anything is recorded."""
        if monotonic() >= self._next_look:
            self.look()
        return self._active

    def when_active(self, callback: Callable[[], None]) -> None:
        """Call a function as soon as anything is recorded, which may be now."""
        self._on_active.append(callback)
        if self.active:
            self._activate()

    def _activate(self) -> None:
        waiting, self._on_active = self._on_active, []
        for callback in waiting:
            callback()

    def look(self) -> None:
        """Look for an SDK now."""
        self._next_look = monotonic() + LOOK_S
        if self._may_be_configured():
            self._find_providers()
        self.idle_until = 0.0 if self._active else self._next_look
        if self._active:
            self._activate()

    def _find_providers(self) -> None:
        from opentelemetry import metrics, trace

        if self.spans is None:
            tracers = self._tracer_provider or trace.get_tracer_provider()
            if is_configured(tracers):
                self.spans, self._active = Spans(tracers), True
        if not self._has_meter:
            meters = self._meter_provider or metrics.get_meter_provider()
            if is_configured(meters):
                self.metrics.sinks.append(OtelMetrics(self.metrics, meters))
                self._has_meter = self._active = True
        if self.spans is not None and self._has_meter:
            self._next_look = inf

    def _may_be_configured(self) -> bool:
        """Whether there can be an SDK: one was given, OpenTelemetry was imported, or it loads one
        when it is imported."""
        given = self._tracer_provider is not None or self._meter_provider is not None
        return given or "opentelemetry" in sys.modules or not PROVIDERS.isdisjoint(os.environ)

    def received(
        self, name: str, attributes: SpanAttributes, fields: dict[str, str]
    ) -> tuple[Operation, Any]:
        """A request that was received, with these fields of a propagator in its `_meta`: its
        operation, and the context for its handler."""
        span, context = None, None
        if self.spans is not None:
            span, context = self.spans.start_received(name, attributes, fields)
        metric = names.SERVER_OPERATION
        return Operation(self.metrics, metric, attributes, self.spans, span), context

    def sent(
        self, name: str, attributes: SpanAttributes, metric: Metric, earlier: str = ""
    ) -> tuple[Operation, dict[str, str]]:
        """A request that is sent: its operation, and the fields to send in its `_meta`."""
        span, fields = None, {}
        if self.spans is not None:
            span, fields = self.spans.start_sent(name, attributes, earlier)
        return Operation(self.metrics, metric, attributes, self.spans, span), fields
