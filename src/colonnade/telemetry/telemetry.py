"""`Telemetry`: OpenTelemetry and Prometheus for servers, clients and hosts.

    server = Server("weather", telemetry=True)     # spans and metrics, if an SDK is configured
    connect(url, telemetry=True); Host(..., telemetry=True)
    Server("weather", telemetry=Telemetry(metrics="127.0.0.1:9464"))     # Prometheus

Rules: imported only if telemetry was asked for. Configuring an SDK is left to the application, or
to `opentelemetry-instrument`; only the command does it, for `--otel`.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.protocol.http.security import HostPolicy
from colonnade.telemetry import conventions as names
from colonnade.telemetry.client import ClientRecorder
from colonnade.telemetry.metrics import Observed
from colonnade.telemetry.prometheus import MetricsApp, split_address
from colonnade.telemetry.recorder import Recorder, is_configured
from colonnade.telemetry.server import IsKnown, ServerRecorder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Telemetry:
    """Spans and metrics by OpenTelemetry's conventions for MCP, and Prometheus.

    - `metrics` is the address of `/metrics` for Prometheus, such as `127.0.0.1:9464`; it is served
      while the server or the host runs. `hosts` are the allowed `Host` headers beyond loopback.
    - `content` is whether spans have arguments and results, which may be secret.
    - `tracer_provider` and `meter_provider` are those of an SDK, by default the global ones.

    One object may be given to any number of servers, clients and hosts.
    """

    def __init__(
        self,
        *,
        metrics: str | None = None,
        hosts: Iterable[str] = (),
        content: bool = False,
        tracer_provider: Any = None,
        meter_provider: Any = None,
    ) -> None:
        self.metrics_address: tuple[str, int] | None = None
        if metrics is not None:
            self.metrics_address = split_address(metrics)
        self._hosts = (hosts,) if isinstance(hosts, str) else tuple(hosts)
        self.recorder: Recorder = Recorder(
            content=content,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            prometheus=metrics is not None,
        )
        self.client: ClientRecorder = ClientRecorder(self.recorder)

    def __repr__(self) -> str:
        address = self.metrics_address
        where = f"metrics={address[0]}:{address[1]}" if address is not None else ""
        return f"Telemetry({where})"

    def server(self, is_known: IsKnown) -> ServerRecorder:
        """What records one server; `is_known` is whether its registry has a name."""
        return ServerRecorder(self.recorder, is_known)

    def watch_host(
        self, read: Callable[[], Iterable[tuple[str, str, int]]], states: Iterable[str]
    ) -> Callable[[], None]:
        """Show the servers of a host, each with its state and its crashes, until the returned
        function is called."""
        every = tuple(states)

        def state() -> Observed:
            for server, now, _ in read():
                for one in every:
                    yield float(one == now), {names.SERVER: server, names.STATE: one}

        def crashes() -> Observed:
            for server, _, count in read():
                yield float(count), {names.SERVER: server}

        metrics = self.recorder.metrics
        removers = [
            metrics.add_gauge(names.HOST_STATE, state),
            metrics.add_gauge(names.HOST_CRASHES, crashes),
        ]

        def remove() -> None:
            for one in removers:
                one()

        return remove

    def metrics_app(self, host: str, port: int) -> MetricsApp:
        """`/metrics` as an ASGI application, for the address where it is served. Raises
        `LocalProtocolError` if other machines can reach it, and no names are given."""
        prometheus = self.recorder.prometheus
        if prometheus is None:
            raise InvalidArgument("these metrics have no address: Telemetry(metrics=...)")
        return MetricsApp(prometheus.expose, HostPolicy.for_bind(host, port, hosts=self._hosts))


def as_telemetry(given: object) -> Telemetry | None:
    """The argument `telemetry=`: True, False, or a `Telemetry`. Raises `InvalidArgumentType`."""
    if isinstance(given, Telemetry):
        return given
    if given is True:
        return default_telemetry()
    if given is False or given is None:
        return None
    raise InvalidArgumentType(
        f"telemetry= takes True or Telemetry(...), not {type(given).__name__}",
        argument="telemetry",
    )


@cache
def default_telemetry() -> Telemetry:
    """That of `telemetry=True`: all servers, clients and hosts of a process share it."""
    return Telemetry()


# ---------------------------------------------------------------- the SDK


def is_sdk_configured() -> bool:
    """Whether an SDK is configured in this process, as `opentelemetry-instrument` does. Imports
    nothing if it is not."""
    if "opentelemetry.sdk" not in sys.modules and "opentelemetry.trace" not in sys.modules:
        return False
    from opentelemetry import metrics, trace

    return is_configured(trace.get_tracer_provider()) or is_configured(metrics.get_meter_provider())


def configure_sdk(service_name: str, environ: Mapping[str, str] | None = None) -> None:
    """Configure OpenTelemetry's SDK with the exporters of `OTEL_TRACES_EXPORTER` and
    `OTEL_METRICS_EXPORTER`, by default OTLP; does nothing if one is configured. The name of the
    service is that of `OTEL_SERVICE_NAME`, else `service_name`.

    Raises `InvalidArgument` if the SDK or an exporter is not installed.
    """
    if is_sdk_configured():
        return
    environ = os.environ if environ is None else environ
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import (
            MetricReader,
            PeriodicExportingMetricReader,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InvalidArgument(
            "--otel needs OpenTelemetry's SDK and an exporter: "
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp",
            argument="telemetry",
        ) from None
    is_named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if is_named else {"service.name": service_name})
    tracers = TracerProvider(resource=resource)
    for found in _exporters("traces", environ):
        tracers.add_span_processor(BatchSpanProcessor(found.load()()))
    readers: list[MetricReader] = []
    for found in _exporters("metrics", environ):
        made: Any = found.load()()
        is_reader = isinstance(made, MetricReader)
        readers.append(made if is_reader else PeriodicExportingMetricReader(made))
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(MeterProvider(readers, resource=resource))


def _exporters(signal: str, environ: Mapping[str, str]) -> "list[EntryPoint]":
    """The exporters of a signal, by the names that OpenTelemetry's packages register."""
    from importlib.metadata import entry_points

    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    otlp = "otlp_proto_http" if protocol.startswith("http") else "otlp_proto_grpc"
    given = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp")
    result: list[EntryPoint] = []
    for name in (one.strip() for one in given.split(",")):
        if name in ("", "none"):
            continue
        group = f"opentelemetry_{signal}_exporter"
        wanted = (otlp, "otlp_proto_http", "otlp_proto_grpc") if name == "otlp" else (name,)
        found = [one for key in wanted for one in entry_points(group=group, name=key)]
        if not found:
            raise InvalidArgument(
                f"there is no OpenTelemetry exporter {name!r} for {signal}: "
                "pip install opentelemetry-exporter-otlp, or set "
                f"OTEL_{signal.upper()}_EXPORTER=none",
                argument="telemetry",
            )
        result.append(found[0])
    return result
