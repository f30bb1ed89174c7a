"""Clients and servers that we did not write, on both sides of a gateway that is a real process.

One gateway has all servers, each in a view of its own: they have the same URIs. A client connects to
the endpoint of a view, or starts the gateway itself, on stdio.

Rules: nothing of an SDK is imported here. All processes are ended before a run is handed back.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from interop import peers, third_party_servers
from interop.gateway.everything import EVERYTHING_PLAN
from interop.gateway.steps import EQUIVALENT, Plan
from interop.peers import ROOT, STOP_S, DriverRun, Peer, drive
from interop.third_party_servers import ThirdPartyServer, reached

COLONNADE = str(ROOT / ".venv" / "bin" / "colonnade")
OUR_CLIENT = str(Path(__file__).resolve().parent / "client_ours.py")
BOTH = (JULY_2026, NOVEMBER_2025)


# ---------------------------------------------------------------- clients


class OurClient(Peer):
    """Our client, in a process of its own."""

    def driver(self, spec: dict[str, Any]) -> list[str]:
        """The command that plays the steps."""
        return [sys.executable, "-W", "error", OUR_CLIENT, json.dumps(spec)]


OURS = OurClient("Colonnade", "", "", BOTH)
TYPESCRIPT_1 = Peer("TypeScript", "@modelcontextprotocol/sdk", "1.32.2", (NOVEMBER_2025,))
CLIENTS = (
    OURS,
    peers.MCP_2,
    peers.MCP_1,
    peers.TYPESCRIPT,
    TYPESCRIPT_1,
    peers.GO,
    peers.RUST,
)


def client_ways() -> list[tuple[Peer, Revision]]:
    """Each client in each of the two revisions that it speaks."""
    return [(peer, era) for peer in CLIENTS for era in BOTH if era in peer.eras]


# ---------------------------------------------------------------- servers


@dataclass(frozen=True)
class Upstream:
    """A server behind the gateway: by which transport, and in which revision."""

    key: str
    server: ThirdPartyServer
    transport: str
    revision: Revision
    plan: Plan = field(default=EQUIVALENT, hash=False)

    def __str__(self) -> str:
        return f"{self.server} {self.transport} {self.revision.date}"


def _upstreams() -> list[Upstream]:
    found: list[Upstream] = []
    named = {
        "mcp2": third_party_servers.MCP_2,
        "mcp1": third_party_servers.MCP_1,
        "ts": third_party_servers.TYPESCRIPT,
        "go": third_party_servers.GO,
        "rust": third_party_servers.RUST,
    }
    for name, server in named.items():
        ways = [(JULY_2026, "http"), (JULY_2026, "stdio"), (NOVEMBER_2025, "stdio")]
        if JULY_2026 not in server.speaks:
            ways = [(NOVEMBER_2025, "http"), (NOVEMBER_2025, "stdio")]
        for revision, transport in ways:
            key = f"{name}-{transport}" if revision is JULY_2026 else f"{name}-{transport}-old"
            found.append(Upstream(key, server, transport, revision))
    everything = third_party_servers.EVERYTHING
    for transport in ("http", "stdio"):
        key = f"all-{transport}"  # short: names of a gateway have at most 45 characters
        found.append(Upstream(key, everything, transport, NOVEMBER_2025, EVERYTHING_PLAN))
    return found


UPSTREAMS = _upstreams()


# ---------------------------------------------------------------- the gateway


def configuration(targets: Mapping[Upstream, str | Sequence[str]]) -> str:
    """`colonnade.toml` with these servers: each is what starts it, or its address."""
    lines: list[str] = []
    for one, target in targets.items():
        lines.append(f"[servers.{one.key}]")
        if isinstance(target, str):
            lines.append(f"url = {json.dumps(target)}")
        else:
            command, *arguments = target
            lines.append(f"command = {json.dumps(command)}")
            lines.append(f"args = {json.dumps(arguments)}")
        lines.append('sampling = true\nroots = "caller"')
        if one.revision is not one.server.speaks[0]:
            lines.append(f'revision = "{one.revision.date}"')
        lines.append(f"\n[gateway.views.{one.key}]\nservers = [{json.dumps(one.key)}]\n")
    return "\n".join(lines)


@contextlib.contextmanager
def configured(upstreams: Sequence[Upstream], folder: Path) -> Generator[list[str]]:
    """The command of a gateway to these servers, which are started where they have addresses.
    Nothing of the user's own configuration is read or written."""
    kinds = ("CONFIG", "STATE", "CACHE", "DATA")
    own = [f"XDG_{kind}_HOME={folder / kind}" for kind in kinds]
    program = ["env", f"HOME={folder}", *own, COLONNADE]
    with contextlib.ExitStack() as stack:
        targets = {
            one: stack.enter_context(reached(one.server, one.transport, folder))
            for one in upstreams
        }
        file = folder / "colonnade.toml"
        file.write_text(configuration(targets), "utf-8")
        trust = [*program, "config", "trust", "--yes", str(file)]
        subprocess.run(trust, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield [*program, "gateway", str(file)]


@contextlib.contextmanager
def served(command: Sequence[str], folder: Path, run: DriverRun) -> Generator[str]:
    """A gateway over HTTP; its address. Told to end, it has to by itself."""
    with (
        (folder / "gateway.log").open("w+") as log,
        subprocess.Popen(
            [*command, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield third_party_servers.address(process.stdout, log)
        finally:
            process.terminate()
            try:
                run.server_ended = process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        log.seek(0)
        run.errors = log.read()


def play(peer: Peer, era: Revision, upstream: Upstream, address: str) -> DriverRun:
    """The steps of one client at one server, through a gateway that runs at this address."""
    run = DriverRun()
    spec: dict[str, Any] = {
        "era": era.date,
        "http": f"{address}/mcp/{upstream.key}",
        "steps": upstream.plan.steps(upstream.key),
        "leave_out": [],
    }
    with tempfile.TemporaryFile("w+") as log:
        drive(peer.driver(spec), run, log)
        log.seek(0)
        run.errors = log.read()
    return run


def play_stdio(peer: Peer, era: Revision, upstream: Upstream) -> DriverRun:
    """The same with a gateway that the client starts."""
    run = DriverRun()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile("w+") as log:
        folder = Path(name).resolve()
        with configured([upstream], folder) as command:
            ended = folder / "ended"
            child = peers.recorded([*command, "--stdio", "--view", upstream.key], ended)
            spec: dict[str, Any] = {
                "era": era.date,
                "stdio": child,
                "steps": upstream.plan.steps(upstream.key),
                "leave_out": [],
            }
            drive(peer.driver(spec), run, log)
            run.server_ended = int(ended.read_text()) if ended.exists() else None
        log.seek(0)
        run.errors = log.read()
    return run
