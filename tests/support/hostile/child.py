"""The target in a process of its own, and how its pipes are written and read.

Rules: every wait has an end; a child that is left is killed, by its own handle.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

from hostile.items import MODERN, Era
from http_client import opening

TARGET = Path(__file__).with_name("target.py")
WAIT_S = 60.0
READ_BYTES = 1 << 20


class Child:
    """A process that serves, on its pipes or on a port."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._unread = b""
        self._next = 1000

    @property
    def _in(self) -> int:
        return cast("IO[bytes]", self.process.stdin).fileno()

    @property
    def _out(self) -> int:
        return cast("IO[bytes]", self.process.stdout).fileno()

    def write(self, data: bytes) -> None:
        """Write all of it; raises `TimeoutError` for a child that does not read."""
        view = memoryview(data)
        while view:
            _, ready, _ = select.select([], [self._in], [], WAIT_S)
            if not ready:
                raise TimeoutError("the child does not read")
            view = view[os.write(self._in, view[:READ_BYTES]) :]

    def line(self) -> bytes:
        """The next line; raises `TimeoutError` for silence, `EOFError` at the end."""
        parts = [self._unread]
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([self._out], [], [], WAIT_S)
            if not ready:
                raise TimeoutError("the child says nothing")
            part = os.read(self._out, READ_BYTES)
            if not part:
                raise EOFError
            parts.append(part)
        line, _, self._unread = b"".join(parts).partition(b"\n")
        return line

    def message(self) -> Any:
        return json.loads(self.line())

    # ------------------------------------------------------------ the protocol, on pipes

    def open(self, era: Era) -> None:
        if not era.modern:
            self.write(json.dumps(opening(era.date)).encode() + b"\n")
            assert self.message()["result"]["protocolVersion"] == era.date
            self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def ask(self, era: Era, tool: str, **arguments: Any) -> int:
        """Call a tool; the id of the call."""
        self._next += 1
        frame = era.frame(tool=tool.encode()).replace(b'"id":1', b'"id":%d' % self._next, 1)
        said = json.dumps(arguments).encode()
        self.write(frame.replace(b'{"value":1}', said, 1) + b"\n")
        return self._next

    def call(self, era: Era, tool: str, **arguments: Any) -> Any:
        """Call a tool; its answer, which must be the next line."""
        id = self.ask(era, tool, **arguments)
        answer = self.message()
        assert answer["id"] == id, answer
        return answer

    def text(self, era: Era, tool: str, **arguments: Any) -> str:
        return self.call(era, tool, **arguments)["result"]["content"][0]["text"]

    # ------------------------------------------------------------ what it takes

    def census(self, era: Era = MODERN) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.text(era, "census"))
        return found | {"memory": self.memory()}

    def memory(self) -> int:
        """What it holds of this machine's memory, in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Close its input; it must end by itself, and well."""
        cast("IO[bytes]", self.process.stdin).close()
        assert self.process.wait(WAIT_S) == 0


@contextmanager
def child(
    mode: str = "stdio",
    *,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    wrapped: tuple[str, ...] = (),
) -> Generator[Child]:
    """The target in a process of its own, for as long as this is entered."""
    paths = os.pathsep.join(
        [str(TARGET.parents[1]), str(TARGET.parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    process = subprocess.Popen(
        [*wrapped, sys.executable, str(TARGET), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"PYTHONPATH": paths},
    )
    try:
        yield Child(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
