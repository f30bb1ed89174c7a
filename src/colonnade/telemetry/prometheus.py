"""Metrics for Prometheus: the same values under the names of OpenTelemetry's exporter.

Rules: served on an address of its own, never on that of the MCP endpoint. A registry of its own:
what the application registers elsewhere is not shown. An attribute that a value does not have is an
empty label, which to Prometheus is none.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from colonnade.errors import InvalidArgument
from colonnade.protocol.http.security import HostPolicy, combine_headers, is_health_check_allowed
from colonnade.telemetry.conventions import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    OBSERVED_COUNTERS,
    Metric,
    label,
)
from colonnade.telemetry.metrics import Attributes, Metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

PATH = "/metrics"
DEFAULT_PORT = 9464
MAX_PORT = 65535


class PrometheusMetrics:
    """Records into a registry of prometheus_client."""

    def __init__(self, metrics: Metrics) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise InvalidArgument(
                "metrics= needs prometheus-client: pip install 'colonnade[metrics]'",
                argument="metrics",
            ) from None
        self._library = prometheus_client
        self._metrics = metrics
        self._registry = prometheus_client.CollectorRegistry()
        self._histograms = {
            one.name: prometheus_client.Histogram(
                one.prometheus_name,
                one.description,
                _labels(one),
                buckets=BUCKETS,
                registry=self._registry,
            )
            for one in HISTOGRAMS
        }
        self._counters = {
            one.name: prometheus_client.Counter(
                one.prometheus_name, one.description, _labels(one), registry=self._registry
            )
            for one in COUNTERS
        }
        self._registry.register(cast("Any", self))

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Add a value to a histogram."""
        self._histograms[metric.name].labels(*_values(metric, attributes)).observe(value)

    def count(self, metric: Metric, attributes: Attributes) -> None:
        """Add one to a counter."""
        self._counters[metric.name].labels(*_values(metric, attributes)).inc()

    def collect(self) -> "Iterable[Family]":
        """The gauges, read now: prometheus_client calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for one in (*GAUGES, *OBSERVED_COUNTERS):
            kind = GaugeMetricFamily if one in GAUGES else CounterMetricFamily
            family = kind(one.prometheus_name, one.description, labels=_labels(one))
            for value, attributes in self._metrics.observe(one):
                family.add_metric(_values(one, attributes), value)
            yield family

    def expose(self) -> tuple[str, bytes]:
        """The content type and the text of a scrape."""
        return self._library.CONTENT_TYPE_LATEST, self._library.generate_latest(self._registry)


def _labels(metric: Metric) -> list[str]:
    return [label(one) for one in metric.attributes]


def _values(metric: Metric, attributes: Attributes) -> list[str]:
    return [str(attributes.get(one, "")) for one in metric.attributes]


# ---------------------------------------------------------------- the endpoint


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class MetricsApp:
    """`/metrics` as an ASGI application, for one address. `policy` are the allowed `Host`
    headers: a web page must not read the metrics of a machine by rebinding its own name."""

    def __init__(self, expose: Callable[[], tuple[str, bytes]], policy: HostPolicy) -> None:
        self._expose = expose
        self._policy = policy

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Any]], send: Send
    ) -> None:
        """Serve one request."""
        kind, body = "text/plain; charset=utf-8", b""
        if not is_health_check_allowed(combine_headers(scope["headers"]), self._policy):
            status, body = 403, b"this Host is not allowed; add it to hosts\n"
        elif scope["path"] != PATH:
            status, body = 404, b"not found; the metrics are at /metrics\n"
        elif scope["method"] not in ("GET", "HEAD"):
            status, body = 405, b"only GET is allowed\n"
        else:
            status = 200
            kind, body = self._expose()
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        shown = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": shown})


def split_address(text: str) -> tuple[str, int]:
    """The host and port of `127.0.0.1:9464`, `:9464`, `9464` or `127.0.0.1`. Raises
    `InvalidArgument`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or (host and ":" in host and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if int(port) > MAX_PORT or any(one in host for one in " /@"):
        raise InvalidArgument(
            f"{text!r} is no address for metrics; write 127.0.0.1:{DEFAULT_PORT}",
            argument="metrics",
        )
    return host or "127.0.0.1", int(port)
