"""Rows that ask what much of something costs: idle streams, tools, sessions and subscriptions.

Ours alone: the bars are numbers, and what is shown is that a call costs the same beside 10 as beside
10,000 of them.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.figures import Figure
from benchmarks.load_http import Load
from benchmarks.rows import ADD, Lane, Opening, Settings, counted, cpu_s, in_turns, leave_out
from benchmarks.streams import Streams, room
from benchmarks.wire import FIRST_ID, INITIALIZE, MODERN, SESSIONS, Ask, Wrong, call, read_answer

STREAMS = 9_500
SIZES, QUICK_SIZES = (10, 100, 1_000, 10_000), (10, 1_000)
# The number only makes it a server of its own; its tools do not matter.
LISTENED = ("http", "1")
GROW = call("grow", "")


def listen_row(settings: Settings) -> list[Figure]:
    """What an idle stream takes, and how long it is until all of them are told of a change."""
    count = min(STREAMS, room())
    memory = Figure("listen-memory", f"{count:,} idle listen streams, each", "KiB", "less")
    fan_out = Figure("listen-fan-out", f"one change told to {count:,} of them", "ms", "less")
    if count < STREAMS:
        memory.notes.append(f"not {STREAMS:,}: no more files may be open at once (ulimit -Hn)")
    try:
        url = settings.stage.http("colonnade", *LISTENED)
        pid = settings.stage.process("colonnade", *LISTENED).pid
        with contextlib.ExitStack() as stack:
            few = Streams(url, 100)  # what is imported and made for the first of them is not theirs
            few.close()
            with Load(url, ADD, connections=1) as load:
                load.round(0.1)
            before = resident_kib(pid)
            streams = Streams(url, count)
            stack.callback(streams.close)
            memory.samples["colonnade"] = [(resident_kib(pid) - before) / count]
            memory.notes.append(f"idle, all of them take {idle_ms(pid):.0f} ms of a second")
            caller = Caller(url)
            stack.callback(caller.close)
            for _ in range(settings.rounds + 1):
                took = streams.all_told(caller.ask()) * 1000
                caller.answered()
                fan_out.samples.setdefault("colonnade", []).append(took)
            del fan_out.samples["colonnade"][0]  # everything is made for the first time
    except (Wrong, OSError) as error:
        leave_out(memory, "colonnade", error, settings)
    finally:
        settings.stage.end("colonnade", *LISTENED)
    return [memory, fan_out]


class Caller:
    """One connection that changes the tools, and waits for the answer afterwards."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._load = Load(url, GROW, connections=0)
        self._before, self._after = self._load.request(GROW, MODERN, None)
        self._sock = socket.create_connection((parts.hostname, parts.port or 80), timeout=60)
        self._number = FIRST_ID

    def ask(self) -> float:
        """Send the call; when that was."""
        self._number += 1
        data = self._before + b"%d" % self._number + self._after
        begun = time.perf_counter()
        self._sock.sendall(data)
        return begun

    def answered(self) -> None:
        """Wait for the answer."""
        kept = bytearray()
        while (answer := read_answer(kept)) is None:
            kept += self._sock.recv(65536)
        if answer.status != 200 or "result" not in answer.frames[-1]:
            raise Wrong(f"tools/call grow: {answer.status} {answer.body[:200]!r}")

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()
        self._load.close()


def resident_kib(pid: int) -> int:
    """What a process has in memory now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


# ---------------------------------------------------------------- cost against size


def sizes_row(settings: Settings) -> list[Figure]:
    """Calls a second beside so many tools, sessions and subscriptions."""
    kinds: dict[str, Callable[[int], Opening]] = {
        "tools": lambda size: _beside_tools(settings, size),
        "sessions": lambda size: _beside_sessions(settings, size),
        "subscriptions": lambda size: _beside_subscriptions(settings, size),
    }
    sizes = QUICK_SIZES if settings.quick else SIZES
    figures: list[Figure] = []
    for kind, opening in kinds.items():
        figure = Figure(f"size-{kind}", f"a call beside so many {kind}", "calls/s", "more")
        figure.ours = f"{sizes[-1]:,}"
        openings = {f"{size:,}": opening(size) for size in sizes}
        figures.append(in_turns(figure, openings, settings))
    return figures


def idle_ms(pid: int) -> float:
    """What a process takes of a second without requests."""
    before = cpu_s(pid)
    time.sleep(1.0)
    return (cpu_s(pid) - before) * 1000


def _served(settings: Settings, stack: contextlib.ExitStack, *key: str) -> tuple[str, int]:
    url = settings.stage.http("colonnade", *key)
    stack.callback(settings.stage.end, "colonnade", *key)
    return url, settings.stage.process("colonnade", *key).pid


def _beside_tools(settings: Settings, size: int) -> Opening:
    def open(stack: contextlib.ExitStack) -> Lane:
        url, pid = _served(settings, stack, "http", str(size))
        return counted(stack.enter_context(Load(url, ADD)), pid)

    return open


def _beside_sessions(settings: Settings, size: int) -> Opening:
    opening = Ask("initialize", INITIALIZE, lambda _: None)

    def open(stack: contextlib.ExitStack) -> Lane:
        url, pid = _served(settings, stack, "http", "1", "sessions", str(size))
        load = stack.enter_context(Load(url, ADD, era=SESSIONS))
        beside = size - len(load.lines)
        if beside > 0:
            with Load(url, opening, era=SESSIONS, session=False, connections=1) as more:
                more.round(0.0, least=beside)
        return counted(load, pid)

    return open


def _beside_subscriptions(settings: Settings, size: int) -> Opening:
    def open(stack: contextlib.ExitStack) -> Lane:
        url, pid = _served(settings, stack, "http", "1", "subscriptions", str(size))
        if size > room():
            raise Wrong("no more files may be open at once (ulimit -Hn)")
        streams = Streams(url, size)
        stack.callback(streams.close)
        return counted(stack.enter_context(Load(url, ADD)), pid)

    return open
