"""The servers and clients that are measured: how each is installed, started, and ended.

Every one of them runs on the first core, in a process of its own; whoever measures is on the
second. What is started stays until the end of the suite, and is idle while others are measured.

Rules: ends only what it started. An environment is made by `scripts/_peers`, once.
"""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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
    """Somebody who cannot be measured here, and why; the others can."""


@dataclass(frozen=True)
class Peer:
    """Somebody else's library in one version, and its program among the servers."""

    name: str
    package: str
    version: str
    program: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


MCP = Peer("mcp", "mcp", "2.3.0", "mcp_server.py")
FASTMCP = Peer("FastMCP", "fastmcp", "4.1.2", "fastmcp_server.py")
PEERS: tuple[Peer, ...] = (MCP, FASTMCP)
NAMES: tuple[str, ...] = ("limit", "portico", *(peer.name for peer in PEERS))


@cache
def installed(*wanted: str) -> Path:
    """The folder of a package; it is installed on first use. Raises `Missing` where it cannot be."""
    command = [str(ROOT / "scripts" / "_peers"), *wanted]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise Missing(f"scripts/_peers {' '.join(wanted)} failed (above)")
    return Path(run.stdout.strip())


def command(name: str, *arguments: str) -> list[str]:
    """How somebody's server is started."""
    if name in ("portico", "limit"):
        program = "portico_server.py" if name == "portico" else "limit.py"
        return [sys.executable, str(SERVERS / program), *arguments]
    peer = next(peer for peer in PEERS if peer.name == name)
    python = str(installed(peer.package, peer.version, "fast") / "bin" / "python")
    return [python, str(SERVERS / peer.program), *arguments]


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started in here stays on one core; where there is one only, on that."""
    if not pinned():
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned() -> bool:
    """Whether there are two cores, and processes can be put on one."""
    return hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) >= 2


class Stage:
    """Servers that run, by how they were started."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._running: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], str]] = {}

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error: object) -> None:
        for key in list(self._running):
            self.end(*key)

    def http(self, name: str, *arguments: str) -> str:
        """Where somebody's server listens; it is started on first use."""
        key = (name, *arguments)
        if key not in self._running:
            process = start(command(name, *arguments), self._log)
            self._running[key] = process, ""
            self._running[key] = process, _address(process)
        return self._running[key][1]

    def process(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Somebody's server on stdio, or its process; it is started on first use."""
        key = (name, *arguments)
        if key not in self._running:
            self._running[key] = start(command(name, *arguments), self._log), ""
        return self._running[key][0]

    def end(self, *key: str) -> None:
        """End one of them."""
        if key in self._running:
            stop(self._running.pop(key)[0])


def start(
    command: Sequence[str], log: "IO[bytes] | None" = None, core: int = SERVER_CORE
) -> "subprocess.Popen[bytes]":
    """Start a process on a core."""
    pipe = subprocess.PIPE
    with on_core(core):
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


def _address(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_S
    said = b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        piece = os.read(process.stdout.fileno(), 4096)
        said += piece
        if found := re.search(rb"(http://[\w.:]+/\w*)\s", said):
            return found[1].decode()
        if not piece:
            break
    raise Missing(f"it did not start: {said.decode(errors='replace')[-300:]!r}")
