"""What telemetry costs that is not used: no import, no record, no middleware, the same coroutine."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from colonnade import InvalidArgument, InvalidArgumentType, Server, Telemetry, connect
from colonnade.telemetry.recorder import Recorder
from live import live
from telemetry_spans import Recording

IMPORTS = """
import sys
import colonnade.server.server, colonnade.client.connect, colonnade.host.host
import colonnade.transport.http_server.runner, colonnade.transport.stdio, colonnade.middleware
server = colonnade.server.server.Server("x")
print(sorted(n for n in sys.modules if n.startswith(("colonnade.telemetry", "opentelemetry", "prometheus"))))
"""


def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_prometheus_is_not_imported_for_opentelemetry_nor_the_other_way_round() -> None:
    code = (
        "import sys; from colonnade import Server, Telemetry; Server('x', telemetry={}); "
        "print('prometheus_client' in sys.modules, 'opentelemetry.trace' in sys.modules)"
    )
    for given, loaded in (("True", "False False\n"), ("Telemetry(metrics=':0')", "True False\n")):
        run = subprocess.run(
            [sys.executable, "-c", code.format(given)], capture_output=True, text=True
        )
        assert (run.returncode, run.stdout) == (0, loaded), run.stderr


@live
async def test_without_an_sdk_a_request_is_answered_as_without_telemetry() -> None:
    server = Server("idle", telemetry=Telemetry())
    seen: list[Any] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.middleware
    async def look(request: Any, call_next: Any) -> Any:
        seen.append(request.exchange.record)
        return await call_next(request)

    async with connect(server, telemetry=Telemetry()) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    assert seen == [None] * len(seen)
    assert seen


@live
async def test_an_sdk_that_is_configured_later_is_found() -> None:
    recording = Recording()
    telemetry = Telemetry()
    server = Server("late", telemetry=telemetry)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with connect(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        telemetry.recorder._tracer_provider = recording.tracers
        telemetry.recorder.look()
        await client.call_tool("add", {"a": 1, "b": 2})
    assert len(recording.named("tools/call add")) == 1


def test_a_recorder_looks_once_a_second_until_both_providers_are_there() -> None:
    recorder = Recorder()
    assert not recorder.active
    recorder._tracer_provider = TracerProvider(shutdown_on_exit=False)
    assert not recorder.active  # it has looked less than a second ago
    recorder._next_look = 0.0
    assert recorder.active
    called: list[int] = []
    recorder.when_active(lambda: called.append(1))
    assert called == [1]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InvalidArgument, match=r"colonnade\[metrics\]"):
        Telemetry(metrics=":0")
    monkeypatch.setattr("colonnade.telemetry.recorder.find_spec", lambda _: None)
    with pytest.raises(InvalidArgument, match=r"colonnade\[otel\]"):
        Telemetry()


def test_other_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgumentType, match="telemetry= takes True"):
        Server("x", telemetry="yes")  # pyright: ignore[reportArgumentType]
    server = Server("x", telemetry=True)
    with pytest.raises(InvalidArgument, match="already"):
        server.add_telemetry()
