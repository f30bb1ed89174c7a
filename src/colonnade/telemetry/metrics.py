"""Metrics: histograms, counters and gauges, recorded once and passed on to every exporter.

Rules: the number of series is bounded, whatever callers send: an attribute has a value of a table,
of the registry or of the configuration, and beyond the limit there is one series more for each
metric. No principal, session, URI or argument is an attribute of a metric.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from colonnade import __version__
from colonnade.telemetry.conventions import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    OBSERVED_COUNTERS,
    OTHER,
    Metric,
)

# A series is one set of attributes of one metric, as the limit of OpenTelemetry's SDK counts them,
# which is the same for each metric.
MAX_SERIES = 2_000

Attributes: TypeAlias = Mapping[str, str | int]
# What a gauge has now: the value for each set of attributes.
Observed: TypeAlias = Iterable[tuple[float, Attributes]]


class MetricSink(Protocol):
    """Where recorded values go: OpenTelemetry, or Prometheus."""

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to a histogram."""
        ...

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""
        ...


class Metrics:
    """The metrics of a process."""

    def __init__(self, limit: int = MAX_SERIES) -> None:
        self.sinks: list[MetricSink] = []
        # One series of each metric is kept for what is beyond the limit.
        self._limit = limit - len((*HISTOGRAMS, *COUNTERS))
        self._series: set[tuple[str, tuple[tuple[str, str | int], ...]]] = set()
        self._gauges: dict[str, list[Callable[[], Observed]]] = {}

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to a histogram."""
        bounded = self._bounded(metric, attributes)
        for sink in self.sinks:
            sink.record(metric, value, bounded)

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""
        bounded = self._bounded(metric, attributes)
        for sink in self.sinks:
            sink.count(metric, bounded)

    def _bounded(self, metric: Metric, attributes: Attributes) -> Attributes:
        series = (metric.name, tuple(attributes.items()))
        if series not in self._series:
            if len(self._series) >= self._limit:
                return {metric.attributes[0]: OTHER}
            self._series.add(series)
        return attributes

    def add_gauge(self, metric: Metric, read: Callable[[], Observed]) -> Callable[[], None]:
        """Read values whenever metrics are collected, until the returned function is called."""
        readers = self._gauges.setdefault(metric.name, [])
        readers.append(read)

        def remove() -> None:
            if read in readers:
                readers.remove(read)

        return remove

    def observe(self, metric: Metric) -> Observed:
        """The values of a gauge; those of the same attributes are added up."""
        found: dict[tuple[tuple[str, str | int], ...], float] = {}
        for read in list(self._gauges.get(metric.name, ())):
            for value, attributes in read():
                key = tuple(attributes.items())
                found[key] = found.get(key, 0.0) + value
        return [(value, dict(key)) for key, value in found.items()]


class OtelMetrics:
    """Records into the instruments of an OpenTelemetry meter."""

    def __init__(self, metrics: Metrics, meter_provider: Any) -> None:
        from opentelemetry.metrics import Observation

        meter = meter_provider.get_meter("colonnade", __version__)
        self._histograms = {
            one.name: meter.create_histogram(
                one.name,
                unit=one.unit,
                description=one.description,
                explicit_bucket_boundaries_advisory=BUCKETS,
            )
            for one in HISTOGRAMS
        }
        self._counters = {
            one.name: meter.create_counter(one.name, unit=one.unit, description=one.description)
            for one in COUNTERS
        }

        def reader(metric: Metric) -> Callable[[Any], Iterable[Observation]]:
            def read(_: Any) -> Iterable[Observation]:
                return [Observation(value, dict(some)) for value, some in metrics.observe(metric)]

            return read

        for one in GAUGES:
            meter.create_observable_up_down_counter(
                one.name, [reader(one)], unit=one.unit, description=one.description
            )
        for one in OBSERVED_COUNTERS:
            meter.create_observable_counter(
                one.name, [reader(one)], unit=one.unit, description=one.description
            )

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to a histogram."""
        self._histograms[metric.name].record(value, attributes)

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""
        self._counters[metric.name].add(1, attributes)
