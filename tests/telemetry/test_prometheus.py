"""Metrics for Prometheus: on an address of their own, under known names, with a bounded number of series."""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from colonnade import (
    CannotConnect,
    Host,
    InvalidArgument,
    LocalProtocolError,
    Server,
    Telemetry,
    connect,
)
from colonnade.middleware import rate_limit
from colonnade.telemetry import conventions
from colonnade.telemetry.conventions import (
    CLIENT_OPERATION,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    METHOD,
    OBSERVED_COUNTERS,
    SERVER_OPERATION,
    Metric,
)
from colonnade.telemetry.metrics import MAX_SERIES, Metrics
from colonnade.telemetry.prometheus import PrometheusMetrics, split_address
from colonnade.telemetry.spans import Operation, OperationOutcome
from colonnade.transport.http_server.runner import AppListener, listening
from colonnade.transport.memory import connected_pair, serve_end
from http_client import META, Caller
from live import live, until

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "colonnade.json"


def families(telemetry: Telemetry) -> dict[str, Any]:
    prometheus = telemetry.recorder.prometheus
    assert prometheus is not None
    kind, text = prometheus.expose()
    assert kind.startswith("text/plain")
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def samples(telemetry: Telemetry, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples of a name, by the labels that are not empty."""
    return {
        tuple(sorted((key, value) for key, value in one.labels.items() if value)): one.value
        for family in families(telemetry).values()
        for one in family.samples
        if one.name == name
    }


def weather(telemetry: Telemetry) -> Server:
    server = Server("weather", telemetry=telemetry)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@live
async def test_a_scrape_has_the_durations_under_the_names_of_opentelemetrys_exporter() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    async with connect(weather(telemetry), telemetry=telemetry) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    counts = samples(telemetry, "mcp_server_operation_duration_seconds_count")
    labels = (
        ("gen_ai_operation_name", "execute_tool"),
        ("gen_ai_tool_name", "add"),
        ("mcp_method_name", "tools/call"),
        ("mcp_protocol_version", "2026-07-28"),
    )
    assert counts[labels] == 1
    assert samples(telemetry, "mcp_client_operation_duration_seconds_count")[labels] == 1
    bounds = {
        one.labels["le"]
        for one in families(telemetry)["mcp_server_operation_duration_seconds"].samples
        if one.name.endswith("_bucket")
    }
    assert sorted(map(float, bounds))[:-1] == list(conventions.BUCKETS)


@live
async def test_metrics_are_on_an_address_of_their_own_and_never_on_the_endpoints() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    server = weather(telemetry)
    async with (
        listening(server.asgi(), port=0) as runner,
        AppListener(telemetry.metrics_app, ("127.0.0.1", 0)) as listener,
        Caller(runner.port) as endpoint,
        Caller(listener.port) as scraper,
    ):
        await endpoint.call("add", a=1, b=2)
        assert (await endpoint.request("GET", path="/metrics")).status == 404
        scraped = await scraper.request("GET", path="/metrics")
        assert scraped.status == 200
        assert scraped.headers["content-type"].startswith("text/plain")
        found = {one.name for one in text_string_to_metric_families(scraped.body.decode())}
        assert "mcp_server_operation_duration_seconds" in found
        wire, empty = await scraper.begin("HEAD", path="/metrics")
        assert empty.status == 200
        wire.close()
        assert (await scraper.request("GET", path="/mcp")).status == 404
        assert (await scraper.request("POST", b"{}", path="/metrics")).status == 405
        for host in ("evil.example", "evil.example:9464"):
            assert (await scraper.request("GET", path="/metrics", host=host)).status == 403
        page = await scraper.request("GET", path="/metrics", origin="https://evil.example")
        assert page.status == 403


@live
async def test_they_are_served_while_the_server_runs() -> None:
    free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = free.sockets[0].getsockname()[1]
    free.close()
    await free.wait_closed()
    telemetry = Telemetry(metrics=f"127.0.0.1:{port}")
    server = weather(telemetry)
    async with connect(server) as client, Caller(port) as scraper:
        await client.call_tool("add", {"a": 1, "b": 2})
        assert b'gen_ai_tool_name="add"' in (await scraper.request("GET", path="/metrics")).body
        # Another server with the same telemetry leaves the address to the first.
        async with connect(weather(telemetry)) as other:
            await other.call_tool("add", {"a": 1, "b": 2})
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)


def test_an_address_that_other_machines_reach_needs_the_names_of_the_host() -> None:
    with pytest.raises(LocalProtocolError, match="hosts"):
        Telemetry(metrics="0.0.0.0:9464").metrics_app("0.0.0.0", 9464)
    Telemetry(metrics="0.0.0.0:9464", hosts=["metrics.example"]).metrics_app("0.0.0.0", 9464)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("localhost", ("localhost", 9464)),
        ("[::1]:9000", ("::1", 9000)),
        ("::1", ("::1", 9464)),
    ],
)
def test_an_address_may_leave_out_host_or_port(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["http://127.0.0.1:9464", "127.0.0.1:70000", "a b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"127\.0\.0\.1:9464"):
        split_address(text)


# ---------------------------------------------------------------- cardinality


class Answers:
    """Counts the responses at one end of a pair in memory."""

    def __init__(self) -> None:
        self.count = 0

    def receive(self, frame: bytes) -> None:
        self.count += 1

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


def series(telemetry: Telemetry) -> int:
    """Sets of labels, over all metrics."""
    found: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for family in families(telemetry).values():
        for one in family.samples:
            labels = {key: value for key, value in one.labels.items() if key != "le"}
            found.add((family.name, tuple(sorted(labels.items()))))
    return len(found)


@pytest.mark.slow
@live
async def test_a_hundred_thousand_made_up_names_leave_few_series() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    server = weather(telemetry)
    await server.start()
    near, far = connected_pair()
    answers = Answers()
    near.join(answers)
    serve_end(far, server)
    meta = json.dumps(META)
    # A third each: tools, prompts, methods; with resources and their URIs among them.
    forms = [
        '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"made-up-%d","_meta":%s}}',
        '{"jsonrpc":"2.0","id":%d,"method":"prompts/get","params":{"name":"made-up-%d","_meta":%s}}',
        '{"jsonrpc":"2.0","id":%d,"method":"made/up/%d","params":{"_meta":%s}}',
        '{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":"a://%d","_meta":%s}}',
    ]
    wanted = 100_000
    for number in range(wanted):
        near.write((forms[number % 4] % (number, number, meta)).encode())
        if number % 1000 == 0:
            await asyncio.sleep(0)
    await until(lambda: answers.count == wanted)
    await near.close()
    await server.stop()
    assert series(telemetry) < 30
    text = str(families(telemetry))
    assert "made-up" not in text
    assert "a://" not in text


@pytest.mark.parametrize("metric", [CLIENT_OPERATION, SERVER_OPERATION])
def test_error_codes_that_a_peer_makes_up_are_one_series(metric: Metric) -> None:
    metrics = Metrics()
    prometheus = PrometheusMetrics(metrics)
    metrics.sinks.append(prometheus)
    for code in (*range(-32_099, -31_999), *range(-43_000, -40_000), -32_602, -32_602):
        Operation(metrics, metric, {METHOD: "tools/call"}).end(OperationOutcome(str(code), code))
    found = {
        one.labels["rpc_response_status_code"]: one.value
        for family in text_string_to_metric_families(prometheus.expose()[1].decode())
        for one in family.samples
        if one.name.endswith("_count")
    }
    assert found["-32602"] == 2
    assert found["_OTHER"] > 3_000
    assert len(found) < 20


def test_beyond_the_limit_there_is_one_series_more_for_each_metric() -> None:
    assert MAX_SERIES == 2_000
    limit = 60
    metrics = Metrics(limit)
    prometheus = PrometheusMetrics(metrics)
    metrics.sinks.append(prometheus)
    recorded = (*HISTOGRAMS, *COUNTERS)
    for number in range(limit * 2):
        for metric in recorded:
            given = {metric.attributes[0]: f"value-{number}"}
            if metric in HISTOGRAMS:
                metrics.record(metric, 0.1, given)
            else:
                metrics.count(metric, given)
    found: set[tuple[str, str]] = set()
    for family in text_string_to_metric_families(prometheus.expose()[1].decode()):
        for one in family.samples:
            if one.name.endswith(("_count", "_total")):
                found.add((one.name, str([v for k, v in one.labels.items() if v and k != "le"])))
    assert len(found) == limit
    assert sum("_OTHER" in labels for _, labels in found) == len(recorded)


@live
async def test_no_label_names_a_caller_a_session_or_an_argument() -> None:
    names = {name for metric in (*HISTOGRAMS, *COUNTERS, *GAUGES) for name in metric.attributes}
    assert not {one for one in names if any(word in one for word in ("session.id", "uri", "arg"))}


# ---------------------------------------------------------------- refused requests, gauges, hosts


@live
async def test_refused_requests_are_counted_by_reason() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    server = weather(telemetry)
    server.add_middleware(rate_limit(1, burst=1))
    app = server.asgi(verify=_verify)
    async with listening(app, port=0) as runner, Caller(runner.port) as caller:
        allowed: dict[str, Any] = {"authorization": "Bearer good"}
        await caller.request("POST", b"{}")  # no token
        await caller.request("POST", b"{}", host="evil.example")
        await caller.request("POST", b"no json", **allowed)
        await caller.request("PUT", b"", **allowed)
        await caller.modern("made/up", {}, **allowed)
        call = {"name": "add", "arguments": {"a": 1, "b": 2}}
        for _ in range(2):
            await caller.modern("tools/call", call, **allowed)
        await caller.request("GET", mcp_session_id="none", **allowed)
    found = {
        key[0][1]: value for key, value in samples(telemetry, "colonnade_refused_total").items()
    }
    assert found == {
        "unauthorized": 1,
        "forbidden": 1,
        "parse_error": 1,
        "method_not_allowed": 1,
        "method_not_found": 1,
        "rate_limit": 1,
        "not_found": 1,
    }


async def _verify(headers: Any) -> str:
    from colonnade import LoginRequired

    if headers.get(b"authorization") != b"Bearer good":
        raise LoginRequired("no")
    return "ann"


@live
async def test_sessions_streams_and_requests_in_flight_are_gauges() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    server = weather(telemetry)

    @server.tool
    async def wait() -> int:
        await asyncio.Event().wait()
        return 0

    def gauges() -> tuple[float, float, float]:
        names = ("requests_in_flight", "sessions", "streams")
        one, two, three = (samples(telemetry, f"colonnade_{name}")[()] for name in names)
        return one, two, three

    async with listening(server.asgi(), port=0) as runner, Caller(runner.port) as caller:
        assert gauges() == (0, 0, 0)
        await caller.initialize("2025-11-25")
        assert gauges() == (0, 1, 0)
        wire, response = await caller.get()
        assert response.status == 200
        assert gauges() == (0, 1, 1)
        calling = asyncio.create_task(caller.ask("tools/call", {"name": "wait"}))
        await until(lambda: gauges()[0] == 1)
        calling.cancel()
        wire.abort()
        await caller.request("DELETE")
        await until(lambda: gauges() == (0, 0, 0))
    assert samples(telemetry, "mcp_server_session_duration_seconds_count") == {
        (("mcp_protocol_version", "2025-11-25"), ("network_protocol_name", "http")): 1
    }


@live
async def test_a_host_shows_the_state_of_its_servers() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:0")
    host = Host({"one": weather(telemetry), "two": ["/none"]}, telemetry=telemetry)
    async with host:
        await host.call_tool("one__add", {"a": 1, "b": 2})
        with pytest.raises(CannotConnect):
            await host.call_tool("two__x", {})
        states = samples(telemetry, "colonnade_host_server_state")
        current = {dict(key)["server"]: dict(key)["state"] for key, on in states.items() if on}
        assert current["one"] == "ready"
        assert samples(telemetry, "colonnade_host_server_crashes_total")[(("server", "two"),)] >= 1
    assert samples(telemetry, "colonnade_host_server_state") == {}


# ---------------------------------------------------------------- the dashboard


def queries(found: Any) -> Iterable[str]:
    """Every expression in a dashboard."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(found, list):
        for one in found:
            yield from queries(one)


def test_every_metric_and_label_that_the_dashboard_queries_exists() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    exposed: set[str] = set()
    labels: set[str] = {"le", "job", "instance"}
    for metric in (*HISTOGRAMS, *COUNTERS, *GAUGES, *OBSERVED_COUNTERS):
        labels |= {conventions.label(one) for one in metric.attributes}
        name = metric.prometheus_name
        if metric in HISTOGRAMS:
            exposed |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
        else:
            exposed.add(f"{name}_total" if metric in (*COUNTERS, *OBSERVED_COUNTERS) else name)
    found = list(queries(dashboard))
    assert len(found) >= 8
    used = {
        one for text in found for one in re.findall(r"\b(?:mcp|colonnade)_\w+(?=[{\[\s)])", text)
    }
    used -= labels
    assert used <= exposed
    assert {metric.prometheus_name for metric in (*COUNTERS, *GAUGES)} <= {
        one.removesuffix("_total") for one in used
    }
    grouped = {
        one.strip()
        for text in found
        for names in re.findall(r"by ?\(([^)]*)\)", text)
        for one in names.split(",")
    }
    assert grouped <= labels
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["type"] in ("timeseries", "stat", "table", "row")
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
