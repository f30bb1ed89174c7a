"""Rows in which a client is measured: on a server in memory, and against servers over HTTP.

A client runs in a process of its own and makes rounds as it is told. In memory it shares the core
with its server, over HTTP it has the other one.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.peers import FASTMCP, LOAD_CORE, MCP, SERVER_CORE, TYPESCRIPT, Missing
from benchmarks.rows import Lane, Opening, Sample, Settings, cpu_s, in_turns
from benchmarks.wire import Wrong

DRIVERS = Path(__file__).resolve().parent / "drivers"
# Beyond the time of a round; what takes longer hangs.
PATIENCE_S = 60.0
FLIGHTS = (1, 16, 256)
# Who talks to whom: ours and the official one to each other, and the rest to their own.
PAIRS = (
    ("colonnade", "colonnade"),
    ("colonnade", "mcp"),
    ("mcp", "colonnade"),
    ("mcp", "mcp"),
    ("FastMCP", "FastMCP"),
    ("TypeScript", "TypeScript"),
)


class Driver:
    """A client as a process."""

    def __init__(self, name: str, target: str, core: int, log: IO[bytes]) -> None:
        self.process = peers.start(_command(name, target), log, core)
        self.revision = str(self._line(PATIENCE_S)["revision"])

    def close(self) -> None:
        """End it."""
        peers.stop(self.process)

    def lane(self, flight: int) -> Lane:
        """Rounds with so many calls under way."""

        def lane(seconds: float) -> Sample:
            before = cpu_s(self.process.pid)
            assert self.process.stdin is not None
            asked = {"seconds": seconds, "flight": flight}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            made = self._line(seconds + PATIENCE_S)
            taken = cpu_s(self.process.pid) - before
            return Sample(made["calls"] / made["seconds"], taken / made["calls"] * 1e6)

        return lane

    def _line(self, timeout: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not peers.readable(self.process.stdout, timeout):
            raise Wrong(f"the client said nothing within {timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Wrong("the client has ended; one of its answers may have been wrong")
        return json.loads(line)


def _command(name: str, target: str) -> list[str]:
    if name == "colonnade":
        return [sys.executable, str(DRIVERS / "colonnade_client.py"), target]
    if name == TYPESCRIPT.name:
        homes = peers.installed(*peers.TYPESCRIPT_CLIENT), peers.installed(*peers.NODE_ADAPTER)
        script = str(DRIVERS / "typescript_client.mjs")
        return [peers.node(), script, str(homes[0]), str(homes[1]), target]
    peer = MCP if name == MCP.name else FASTMCP
    return [peers.python(peer), str(DRIVERS / f"{name.lower()}_client.py"), target]


def memory_row(settings: Settings) -> list[Figure]:
    """Calls a second where client and server are one process, one call at a time."""

    def opening(entrant: str) -> Opening:
        def open(stack: contextlib.ExitStack) -> Lane:
            driver = Driver(entrant, "memory", SERVER_CORE, settings.stage.log)
            stack.callback(driver.close)
            return driver.lane(1)

        return open

    figure = Figure("memory", "in memory, one at a time", "calls/s", "more")
    entrants = ("colonnade", MCP.name, FASTMCP.name, TYPESCRIPT.name)
    return [in_turns(figure, {one: opening(one) for one in entrants}, settings)]


def client_row(settings: Settings) -> list[Figure]:
    """Calls a second of a client and a server over HTTP, and how they agree."""
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        drivers: dict[str, Driver | Exception] = {}
        for client, server in PAIRS:
            name = f"{client} to {server}"
            try:
                url = settings.stage.http(server, "http")
                driver = Driver(client, url, LOAD_CORE, settings.stage.log)
            except (Missing, Wrong, OSError, subprocess.SubprocessError) as error:
                drivers[name] = error
            else:
                stack.callback(driver.close)
                drivers[name] = driver
        for flight in FLIGHTS:
            title = "client and server, HTTP, " + (
                f"{flight} in flight" if flight > 1 else "one at a time"
            )
            figure = Figure(
                f"client-{flight}", title, "calls/s", "more", ours="colonnade to colonnade"
            )
            openings = {name: _opened(driver, flight) for name, driver in drivers.items()}
            figures.append(in_turns(figure, openings, settings))
    eras = {name: one.revision for name, one in drivers.items() if isinstance(one, Driver)}
    figures[0].notes.append("agreed on: " + ", ".join(f"{one} {era}" for one, era in eras.items()))
    figures[0].notes.append("CPU µs are the client's here")
    return figures


def _opened(driver: Driver | Exception, flight: int) -> Opening:
    def open(stack: contextlib.ExitStack) -> Lane:
        if isinstance(driver, Exception):
            raise driver
        return driver.lane(flight)

    return open
