"""What starting costs: a server of one tool on stdio, from `exec` to its first answers.

The same server twice, of colonnade and of `mcp` 2.3.0 (each installed in an environment of its own,
which scripts/_peers makes), each started anew in every round, in turns:

    2025-11-25   until `initialize` and then a `tools/call` are answered
    2026-07-28   until a `tools/call` is answered; it is the first message

Time is that of the clock, as a client would wait; memory is the peak of the process (VmHWM, Linux
alone) when the answer is there. Both find their modules compiled: one round goes before the first.

    scripts/bench start [ROUNDS]

Ends with 1 where colonnade's best takes more than a quarter of the time, or half of the memory.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import SERVER_CORE, Missing, installed, on_core

PEER = ("mcp", "2.3.0")

# What `scripts/bench start` promises, against the peer.
MOST_TIME = 1 / 4
MOST_MEMORY = 1 / 2
# A busy machine disturbs a round, not all of them; fewer say nothing about a 75th percentile.
ROUNDS = 15

TOOL = '''
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
'''
QUIET = TOOL.replace("run()", "run(show_banner=False)")
PROGRAMS = {
    "colonnade": f"from colonnade import Server\n\nserver = Server('one')\n\n\n@server.tool{TOOL}",
    "mcp": f"from mcp.server import MCPServer\n\nserver = MCPServer('one')\n\n\n@server.tool(){TOOL}",
    "FastMCP": f"from fastmcp import FastMCP\n\nserver = FastMCP('one')\n\n\n@server.tool{QUIET}",
}

CLIENT = {"name": "bench", "version": "1"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALL: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}
ERAS = ("2025-11-25", "2026-07-28")


@dataclass(frozen=True)
class Start:
    """One start: how long until the answer, and the most memory until then."""

    seconds: float
    kib: int


def request(id: int, method: str, params: Mapping[str, Any]) -> bytes:
    frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(frame).encode() + b"\n"


def ask(process: subprocess.Popen[bytes], line: bytes) -> Any:
    """Write a request and wait for its answer."""
    writing, reading = pipes(process)
    writing.write(line)
    writing.flush()
    return json.loads(reading.readline())


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


def start(command: list[str], era: str, env: dict[str, str]) -> Start:
    """Start a server, ask it, look at it, and end it."""
    begun = time.perf_counter()
    pipe = subprocess.PIPE
    with on_core(SERVER_CORE):
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=env
        )
    with process:
        try:
            if era == "2025-11-25":
                ask(process, request(1, "initialize", INITIALIZE))
                said = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
                answer = ask(process, said + request(2, "tools/call", CALL))
            else:
                answer = ask(process, request(1, "tools/call", {**CALL, "_meta": ENVELOPE}))
            seconds = time.perf_counter() - begun
            kib = peak_kib(process.pid)
            assert answer["result"]["content"] == [{"type": "text", "text": "3"}], answer
        finally:
            pipes(process)[0].close()  # which ends either of them
    return Start(seconds, kib)


def peak_kib(pid: int) -> int:
    """The most memory that a process has had; 0 where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def commands(folder: Path) -> dict[str, list[str]]:
    """How each server is started."""
    ours, theirs = folder / "ours.py", folder / "theirs.py"
    ours.write_text(PROGRAMS["colonnade"])
    theirs.write_text(PROGRAMS["mcp"])
    try:
        homes = installed("colonnade", "clone"), installed(*PEER)
    except Missing as missing:
        sys.exit(str(missing))
    return {
        "colonnade": [str(homes[0] / "bin" / "python"), str(ours)],
        " ".join(PEER): [str(homes[1] / "bin" / "python"), str(theirs)],
    }


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the caller's Python; both keep their compiled modules in one fresh place."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def p75(numbers: list[float]) -> float:
    return statistics.quantiles(numbers, n=4)[2]


def report(era: str, runs: dict[str, list[Start]]) -> bool:
    """Print what was measured of one era; whether the promise is kept."""
    print(f"{era:<20} {'best':>9} {'p75':>9} {'peak':>9}")
    best: list[float] = []
    high: list[float] = []
    peak: list[float] = []
    for name, starts in runs.items():
        times = [one.seconds for one in starts]
        best.append(min(times))
        high.append(p75(times))
        peak.append(max(one.kib for one in starts))
        shown = f"{best[-1] * 1000:>6.0f} ms {high[-1] * 1000:>6.0f} ms {peak[-1] / 1024:>5.1f} MiB"
        print(f"  {name:<18} {shown}")
    ratios = [ours / theirs if theirs else 0.0 for ours, theirs in (best, high, peak)]
    print(f"  {'ratio':<18} " + " ".join(f"{ratio:>9.3f}" for ratio in ratios))
    return ratios[0] <= MOST_TIME and ratios[2] <= MOST_MEMORY


def main(rounds: int) -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        servers, env = commands(folder), environment(folder)
        for command in servers.values():
            start(command, ERAS[0], env)  # which compiles
        runs: dict[str, dict[str, list[Start]]] = {
            era: {name: [] for name in servers} for era in ERAS
        }
        for _ in range(rounds):
            for era in ERAS:
                for name, command in servers.items():
                    runs[era][name].append(start(command, era, env))
    kept = [report(era, runs[era]) for era in ERAS]
    words = f"at most {MOST_TIME:.2f} of the time (best) and {MOST_MEMORY:.2f} of the memory"
    print(f"{rounds} rounds; {words}: {'kept' if all(kept) else 'MISSED'}")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(max(2, int(sys.argv[1])) if sys.argv[1:] else ROUNDS))
