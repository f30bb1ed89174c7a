"""The row of a start: a server of one tool on stdio, from `exec` to its first answer, and its memory.

Each is started anew in every round, in turns, and its first message is a `tools/call` of 2026-07-28.
The limit is a bare loop in bare Python that answers the same. Ours is installed as a user has it,
not as a clone.
"""

import tempfile
from pathlib import Path

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.peers import PEERS, SERVERS, TOOLCHAINS, TYPESCRIPT, Missing
from benchmarks.rows import Settings, leave_out
from benchmarks.start import ERAS, PROGRAMS, environment, start

# Beside one of them a server in a compiled language starts in no time.
FEWEST_ROUNDS = 3


def command(name: str, folder: Path) -> list[str]:
    """How an entrant's server of one tool is started."""
    ours = str(peers.installed("colonnade", "clone") / "bin" / "python")
    if name == "limit":
        return [ours, str(SERVERS / "limit.py"), "stdio"]
    if name == TYPESCRIPT.name or name in [peer.name for peer in TOOLCHAINS]:
        return peers.command(name, "one")
    program = folder / f"one_{name}.py"  # a name of its own, or it would hide the library
    program.write_text(PROGRAMS[name])
    peer = next((peer for peer in PEERS if peer.name == name), None)
    # Without what uvicorn runs faster on: a server on stdio has no use for it.
    python = (
        ours if peer is None else peers.installed(peer.package, peer.version) / "bin" / "python"
    )
    return [str(python), str(program)]


def start_row(settings: Settings) -> list[Figure]:
    """Milliseconds and mebibytes of a start."""
    times = Figure("start", "start to first answer, stdio, one tool", "ms", "less")
    memory = Figure("resident", "peak memory of it", "MiB", "less")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        env = environment(folder)
        commands: dict[str, list[str]] = {}
        for name in settings.entrants:
            try:
                commands[name] = command(name, folder)
                start(commands[name], ERAS[1], env)  # which compiles
            except (Missing, AssertionError, ValueError, OSError) as error:
                commands.pop(name, None)
                leave_out(times, name, error, settings)
        for _ in range(max(FEWEST_ROUNDS, settings.rounds)):
            for name, line in commands.items():
                one = start(line, ERAS[1], env)
                times.samples.setdefault(name, []).append(one.seconds * 1000)
                memory.samples.setdefault(name, []).append(one.kib / 1024)
    times.notes.append("the limit is a bare loop on stdin in Python with msgspec")
    return [times, memory]
