"""`--otel`, `--metrics`, and `opentelemetry-instrument`: a server is recorded without code."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade.sync import connect

SERVER = """
from colonnade import Server
server = Server("weather")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""
BIN = Path(sys.executable).parent
COLONNADE = [sys.executable, "-m", "colonnade"]
INSTRUMENT = [str(BIN / "opentelemetry-instrument")]
CONSOLE = {
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weather.py"
    path.write_text(SERVER, "utf-8")
    return path


@contextmanager
def running(*command: str, **env: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, and its URL."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        assert process.stderr is not None
        process.stderr.close()


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Stop it as a service manager does; what it wrote."""
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)


def exported(text: str) -> list[dict[str, Any]]:
    """The spans that the console exporter printed."""
    decoder, found, at = json.JSONDecoder(), list[dict[str, Any]](), text.find("{")
    while at >= 0:
        span, end = decoder.raw_decode(text, at)
        found.append(span)
        at = text.find("{", end)
    return found


@pytest.mark.parametrize("prefix", [[], INSTRUMENT], ids=["--otel", "opentelemetry-instrument"])
def test_serve_exports_spans_without_code(prefix: list[str], file: Path) -> None:
    option = [] if prefix else ["--otel"]
    command = [*prefix, *(COLONNADE if not prefix else [str(BIN / "colonnade")])]
    serve = [*command, "serve", str(file), "--port", "0", *option, "--access-log", "--log-json"]
    with running(*serve, **CONSOLE) as (process, url):
        with connect(url) as client:
            assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        out, log = ended(process)
    (span,) = [one for one in exported(out) if one["name"] == "tools/call add"]
    assert span["attributes"]["gen_ai.tool.name"] == "add"
    if not prefix:
        assert span["resource"]["attributes"]["service.name"] == "weather"
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (logged,) = [one["request"] for one in lines if one.get("request", {}).get("name") == "add"]
    assert f"0x{logged['trace']}" == span["context"]["trace_id"]
    assert f"0x{logged['span']}" == span["context"]["span_id"]


def test_metrics_are_served_beside_the_endpoint(file: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [*COLONNADE, "serve", str(file), "--port", "0", "--metrics", f"127.0.0.1:{port}"]
    with running(*serve) as (process, url):
        with connect(url) as client:
            client.call_tool("add", {"a": 1, "b": 2})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            text = response.read().decode()
        assert re.search(r'operation_duration_seconds_count\{.*gen_ai_tool_name="add"', text)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/mcp", "/metrics"))
        ended(process)


def test_a_server_on_stdio_can_have_metrics_too(file: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*COLONNADE, "run", str(file), "--metrics", f":{port}"]
    with connect(command) as client:
        client.call_tool("add", {"a": 1, "b": 2})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            assert b'network_transport="pipe"' in response.read()


@pytest.mark.parametrize(
    ("option", "env", "words"),
    [
        (["--otel"], {"OTEL_TRACES_EXPORTER": "none-such"}, "no OpenTelemetry exporter"),
        (["--metrics", "nonsense:99999"], {}, "is no address for metrics"),
    ],
)
def test_what_cannot_be_configured_is_said(
    option: list[str], env: dict[str, str], words: str, file: Path
) -> None:
    run = subprocess.run(
        [*COLONNADE, "serve", str(file), "--port", "0", *option],
        env={**os.environ, **CONSOLE, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert words in run.stderr
