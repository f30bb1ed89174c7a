"""Rows in which gateways are measured: calls through one, beside the same calls without it.

Every gateway has the first core for itself; the load and the server behind it share the other, with
and without a gateway. So "direct" is what that one core does, and a gateway can only take away from
it. One server for all of them, which is ours; the load is the same but for the name of the tool.

Rules: a gateway that cannot carry a row is named with the reason, and the row goes on without it.
"""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.load_http import Load
from benchmarks.peers import (
    FASTMCP,
    LOAD_CORE,
    MCP_PROXY,
    RUST_PROXY,
    SERVERS,
    START_S,
    Missing,
    Stage,
)
from benchmarks.rows import CONNECTIONS, MIB, Lane, Opening, Sample, Settings, cpu_s, in_turns
from benchmarks.wire import MODERN, SESSIONS, Ask, call

DIRECT = "direct"
SHARED, DEFAULT = f"{FASTMCP.name} shared client", f"{FASTMCP.name} default"
RUST, PYPI = "mcp-proxy (Rust)", "mcp-proxy (PyPI)"
ENTRANTS = (DIRECT, "colonnade", SHARED, DEFAULT, RUST, PYPI)
# What gateways put before the names of tools, if they do.
PREFIX = "bench__"
# As in the row of servers with results of 1 MiB.
LARGE_CONNECTIONS = 8

Make = Callable[[str], Ask]


def _add(prefix: str) -> Ask:
    return call(f"{prefix}add", "7", a=3, b=4)


def _blob(prefix: str) -> Ask:
    return call(f"{prefix}blob", "x" * MIB)


@dataclass(frozen=True)
class Passage:
    """A row: the revisions of the client and of the server, what is asked, and how many at once."""

    client: str
    server: str
    make: Make
    connections: int
    # Times are of one call, and less is better; otherwise calls a second are counted.
    timed: bool = False

    @property
    def title(self) -> str:
        """What the row is."""
        what = "1 MiB result" if self.make is _blob else "call"
        many = f"{self.connections} in flight" if self.connections > 1 else "one at a time"
        return f"gateway, client {self.client}, server {self.server}, {what}, {many}"


_NEW, _OLD = MODERN, SESSIONS
GATEWAY: dict[str, Passage] = {
    "gateway-new-new": Passage(_NEW, _NEW, _add, CONNECTIONS),
    "gateway-new-old": Passage(_NEW, _OLD, _add, CONNECTIONS),
    "gateway-old-new": Passage(_OLD, _NEW, _add, CONNECTIONS),
    "gateway-old-old": Passage(_OLD, _OLD, _add, CONNECTIONS),
    "gateway-1m": Passage(_NEW, _NEW, _blob, LARGE_CONNECTIONS, timed=True),
    "gateway-1m-old": Passage(_OLD, _OLD, _blob, LARGE_CONNECTIONS, timed=True),
    "gateway-latency": Passage(_NEW, _NEW, _add, 1, timed=True),
    "gateway-1m-latency": Passage(_NEW, _NEW, _blob, 1, timed=True),
}


def gateway_row(name: str, passage: Passage, settings: Settings) -> list[Figure]:
    """Calls through gateways, and without one."""
    unit, better = ("µs a call", "less") if passage.timed else ("calls/s", "more")
    figure = Figure(name, passage.title, unit, better)
    figure.notes.append(
        "each gateway alone on a core; load and server share the other, with and without a gateway;"
        " CPU µs are the gateway's (direct: the server's)"
    )
    with Stage(settings.stage.log, LOAD_CORE) as upstreams:
        # In two minutes those alone that there are bars for.
        entrants = ENTRANTS[:4] if settings.quick else ENTRANTS
        openings = {one: _opening(one, passage, settings, upstreams) for one in entrants}
        return [in_turns(figure, openings, settings)]


def _opening(entrant: str, passage: Passage, settings: Settings, upstreams: Stage) -> Opening:
    def open(stack: contextlib.ExitStack) -> Lane:
        url = upstreams.http("upstream", "http", passage.server)
        era, stage = passage.client, settings.stage
        if entrant == DIRECT:
            era, stage = passage.server, upstreams
            key, prefix = ("upstream", "http", passage.server), ""
        else:
            key, prefix = _command(entrant, passage, url)
            stack.callback(stage.end, *key)
            url = stage.http(*key)
            _wait_for(url, stage.process(*key))
        connections = passage.connections
        load = Load(url, passage.make(prefix), era=era, connections=connections)
        stack.enter_context(load)
        return _measured(load, stage.process(*key).pid, timed=passage.timed)

    return open


def _command(entrant: str, passage: Passage, url: str) -> tuple[tuple[str, ...], str]:
    """How a gateway is started, and what it puts before the names of tools."""
    way = "http" if passage.client == MODERN else "session"
    if entrant == "colonnade":
        return ("gateway", url), PREFIX
    if entrant in (SHARED, DEFAULT):
        kind = "shared" if entrant == SHARED else "default"
        return ("fastmcp proxy", kind, way, passage.server, url), ""
    if entrant == RUST:
        return ("other proxy", "rust", str(peers.built(RUST_PROXY) / "bin" / "mcp-proxy"), url), (
            PREFIX
        )
    if MODERN in (passage.client, passage.server):
        raise Missing("it has no revision 2026-07-28")
    # It serves a command over HTTP, or a URL on stdio: so the same server is on stdio here.
    python = str(peers.installed(MCP_PROXY.package, MCP_PROXY.version) / "bin" / "python")
    upstream = (sys.executable, str(SERVERS / "gateway_upstream.py"), "stdio", passage.server)
    pinned = ("taskset", "--cpu-list", str(LOAD_CORE)) if peers.pinned() else ()
    command = ("/usr/bin/env", *pinned, *upstream)
    return ("other proxy", "pypi", python, *command), ""


def _measured(load: Load, pid: int, *, timed: bool) -> Lane:
    """Rounds of a load, and what each call took of the gateway's core."""

    def lane(seconds: float) -> Sample:
        before, own = cpu_s(pid), time.process_time()
        rate = load.round(seconds)
        own = time.process_time() - own
        taken = cpu_s(pid) - before
        value = 1e6 / rate if timed else rate
        return Sample(value, taken / load.calls * 1e6, own / load.calls * 1e6)

    return lane


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until something listens there: some say where before they do. Raises `Missing` if it
    ends instead, which the crate does in front of a server without a handshake."""
    parts, deadline = urlsplit(url), time.monotonic() + START_S
    while True:
        try:
            address = (parts.hostname or "127.0.0.1", parts.port or 80)
            socket.create_connection(address, timeout=START_S).close()
        except OSError as error:
            if process.poll() is not None:
                message = f"it ended with {process.returncode} instead of connecting to the server"
                raise Missing(message) from None
            if time.monotonic() > deadline:
                raise Missing(f"nothing listens at {url}: {error}") from None
            time.sleep(0.05)
        else:
            return


def gateway_rows() -> dict[str, Callable[[Settings], list[Figure]]]:
    """All rows of gateways, by name."""
    return {name: partial(gateway_row, name, passage) for name, passage in GATEWAY.items()}
