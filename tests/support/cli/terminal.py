"""The command at a terminal: what it shows there, what is typed, how it ends.

Rules: every wait is for something that is shown, and has an end.
"""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from pathlib import Path

from cli.process import COMMAND, WAIT_S, environment

WIDE = (24, 100)
END_OF_INPUT = "\x04"
INTERRUPT = "\x03"


class PseudoTerminal:
    """A command whose three streams are a terminal, or all but its output."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        size: tuple[int, int] = WIDE,
        piped: bool = False,
        start: list[str] = COMMAND,
        **more: str,
    ) -> None:
        env = environment(TERM="xterm", **more)
        if "NO_COLOR" not in more:
            env.pop("NO_COLOR", None)  # whoever runs the tests may have said it
        self._main, side = pty.openpty()
        fcntl.ioctl(
            side, termios.TIOCSWINSZ, b"".join(n.to_bytes(2, "little") for n in (*size, 0, 0))
        )
        self.process = subprocess.Popen(
            [*start, *arguments],
            cwd=folder,
            stdin=side,
            stdout=subprocess.PIPE if piped else side,
            stderr=side,
            env=env,
            start_new_session=True,
            # So that what is typed as an interrupt is one.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(side)
        self.shown = ""
        self._seen = 0

    def __enter__(self) -> "PseudoTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._main)

    def until(self, words: str) -> str:
        """What is shown next, up to and with these words."""
        end = time.monotonic() + WAIT_S
        while (at := self.shown.find(words, self._seen)) < 0:
            assert self._read(end), f"no {words!r} in {self.shown!r}"
        before, self._seen = self._seen, at + len(words)
        return self.shown[before : self._seen]

    def answer(self, question: str, typed: str) -> str:
        """Wait for a question, and type a line."""
        shown = self.until(question)
        self.type(typed + "\n")
        return shown

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # nobody has the other side open any more
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return bool(data)

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was shown."""
        end = time.monotonic() + WAIT_S
        while self._read(end):
            pass
        return self.process.wait(WAIT_S), self.shown

    def output(self) -> str:
        """What it wrote to its output, where that is no terminal."""
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()
