"""Where a command writes and asks: standard output, standard error, and a person at a terminal.

Rules: standard output has what was asked for, and nothing else. What is only for people (the line
that shows progress, questions) is on standard error, and only where that is a terminal. Nothing is
styled for who is no terminal, or said NO_COLOR.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import IO, Final
from urllib.parse import urlsplit

from colonnade.cli.errors import FAILED, Trouble
from colonnade.text import clean, cut, one_line, width

# What a browser shows, and no other program is started by.
PAGES = ("http", "https")
# Where a person has no screen, a browser would take over the terminal that we ask in.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def browser(environ: Mapping[str, str] | None = None) -> list[str]:
    """The command that shows a page to this person; empty where there is none."""
    environ = os.environ if environ is None else environ
    named = environ.get("BROWSER", "").partition(os.pathsep)[0]
    with contextlib.suppress(ValueError):  # quotes that do not end
        words = shlex.split(named)
        if words and shutil.which(words[0]):
            return words
    if sys.platform == "darwin":
        return ["open"]
    if sys.platform == "win32":
        return ["rundll32", "url.dll,FileProtocolHandler"]
    program = shutil.which("xdg-open")
    has_screen = any(environ.get(name) for name in SCREENS)
    return [program] if program and has_screen else []


def can_open(url: str) -> bool:
    """Whether this is a page, and there is something to show it with."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url
    return plain and scheme.lower() in PAGES and bool(browser())


def open_page(url: str) -> None:
    """Show a page for which `can_open` is true. What becomes of it is between the two of them."""
    words = browser()
    command = [word.replace("%s", url) for word in words]
    if command == words:
        command.append(url)
    # Some return at once, others when the window is closed, and nobody waits for that.
    threading.Thread(target=_run, args=(command,), daemon=True, name="colonnade-browser").start()


def _run(command: list[str]) -> None:
    with contextlib.suppress(OSError):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )


class OutputClosed(BrokenPipeError):
    """The reader of standard output has closed it, as `head` does: the command ends quietly."""


@contextlib.contextmanager
def output() -> Generator[None, None, None]:
    """Write to standard output. Raises `OutputClosed`, or `Trouble` where it cannot be written."""
    try:
        yield
    except BrokenPipeError as error:
        discard_output()
        raise OutputClosed(*error.args) from None
    except OSError as error:
        discard_output()
        why = error.strerror or str(error)
        raise Trouble(f"standard output cannot be written: {why}", FAILED) from None


def discard_output() -> None:
    """What is still in the buffer of standard output at the end of the process goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


# How often the line of progress is drawn anew; a tool may report thousands of times a second.
DRAW_S = 0.05
# The bar itself, without the words beside it.
BAR_PLACES = 20
# Where nobody says how wide a terminal is.
USUAL_PLACES = 80
# A line that somebody types; a terminal hands over no more than this at once.
MAX_TYPED_BYTES = 64 * 1024

BOLD: Final = "\033[1m"
DIM: Final = "\033[2m"
ACCENT: Final = "\033[1;36m"
ALARM: Final = "\033[1;33m"
GOOD: Final = "\033[32m"
BAD: Final = "\033[1;31m"
PLAIN: Final = "\033[0m"


class Screen:
    """Both outputs, and the terminal behind them, if there is one."""

    def __init__(self) -> None:
        self.is_terminal: bool = _is_terminal(sys.stdout)
        self.is_watched: bool = _is_terminal(sys.stderr)
        # Whether there is somebody who could answer a question.
        self.can_ask: bool = self.is_watched and _is_terminal(sys.stdin)
        self._styled = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._drawn = 0
        self._drawn_at = 0.0
        self._typed = b""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    # ------------------------------------------------------------ standard output

    @property
    def places(self) -> int | None:
        """How wide a line may be; None where nobody looks."""
        return shutil.get_terminal_size((USUAL_PLACES, 24)).columns if self.is_terminal else None

    def heading(self, text: str) -> str:
        """Text that stands out, on a terminal."""
        return self._painted(BOLD, text)

    def accent(self, text: str) -> str:
        """A name that stands out, on a terminal."""
        return self._painted(ACCENT, text)

    def quiet(self, text: str) -> str:
        """What steps back, on a terminal."""
        return self._painted(DIM, text)

    def alarm(self, text: str) -> str:
        """A warning, on a terminal."""
        return self._painted(ALARM, text)

    def good(self, text: str) -> str:
        """What is as it should be, on a terminal."""
        return self._painted(GOOD, text)

    def bad(self, text: str) -> str:
        """What is not, on a terminal."""
        return self._painted(BAD, text)

    def _painted(self, style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if self.is_terminal and self._styled else text

    def write(self, text: str) -> None:
        """Text of our own making."""
        self.clear()
        with output():
            sys.stdout.write(text)
            sys.stdout.flush()

    def show(self, text: str, *, ended: bool = True) -> None:
        """Text that somebody else wrote: as it is, but on a terminal without what acts on it.

        `ended` adds the last line break where it is missing; on a terminal it is always added.
        """
        if self.is_terminal:
            text, ended = clean(text, lines=True), True
        self.write(text + "\n" if ended and not text.endswith("\n") else text)

    def write_bytes(self, data: bytes) -> None:
        """Bytes, as they are."""
        self.clear()
        with output():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    # ------------------------------------------------------------ standard error

    def note(self, text: str) -> None:
        """A remark beside the output."""
        self.clear()
        with contextlib.suppress(OSError, ValueError):  # nobody listens
            sys.stderr.write(text)
            sys.stderr.flush()

    def emphasis(self, text: str) -> str:
        """Text that stands out on standard error."""
        return f"{BOLD}{text}{PLAIN}" if self.is_watched and self._styled else text

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Draw how far it is, on one line that is drawn anew."""
        now = asyncio.get_running_loop().time()
        is_last = total is not None and done >= total
        if not self.is_watched or (now - self._drawn_at < DRAW_S and not is_last and self._drawn):
            return
        self._drawn_at = now
        places = shutil.get_terminal_size((USUAL_PLACES, 24)).columns - 1
        line = cut(bar(done, total, message), places)
        self.note("")
        self._drawn = len(line) + sum(not one.isascii() for one in line)  # some are wider
        self._raw(f"\r{line}")

    def clear(self) -> None:
        """Take the line of progress away."""
        if self._drawn:
            blank, self._drawn = " " * self._drawn, 0
            self._raw(f"\r{blank}\r")

    def _raw(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

    # ------------------------------------------------------------ a person

    async def ask(self, words: str) -> str | None:
        """What somebody typed after these words; None where they ended their input instead."""
        self.note(words)
        line = await self._line()
        if line is None:
            self.note("\n")
            self._typed = b""
        return line

    def forget_typed(self) -> None:
        """What was read of a line that has no end yet is dropped."""
        self._typed = b""

    async def next_line(self) -> str | None:
        """The next line of standard input; None at its end. What stands there counts without a
        line break, too. Raises `Trouble` for a line that is too long."""
        line = await self._line()
        if line is None and len(self._typed) > MAX_TYPED_BYTES:
            raise Trouble(f"a line of the input has more than {MAX_TYPED_BYTES >> 10} KiB")
        if line is None and self._typed:
            line, self._typed = self._typed.decode("utf-8", "replace").strip(), b""
        return line

    async def _line(self) -> str | None:
        while b"\n" not in self._typed:
            data = await _typed_bytes(sys.stdin.fileno())
            if not data or len(self._typed) > MAX_TYPED_BYTES:
                return None
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


def bar(done: float, total: float | None, message: str | None) -> str:
    """How far it is, in one line."""
    words = one_line(message)
    if total is None or total <= 0:
        return f"{done:g}  {words}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    full = round(share * BAR_PLACES)
    drawn = "#" * full + "." * (BAR_PLACES - full)
    return f"[{drawn}] {share:4.0%}  {words or f'{done:g} of {total:g}'}"


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


async def _typed_bytes(fd: int) -> bytes:
    """What is typed next. Never in a thread that the end of the process would wait for."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        try:
            data = os.read(fd, MAX_TYPED_BYTES)
        except OSError:  # the terminal is gone
            data = b""
        loop.call_soon_threadsafe(_settle, typed, data)

    try:
        loop.add_reader(fd, take)
    except (NotImplementedError, PermissionError):  # a console of Windows; a file
        threading.Thread(target=take, daemon=True, name="colonnade-typed").start()
        return await typed
    try:
        return await typed
    finally:
        loop.remove_reader(fd)


def _settle(typed: "asyncio.Future[bytes]", data: bytes) -> None:
    if not typed.done():
        typed.set_result(data)


def columns(rows: Sequence[Sequence[str]], *, indent: int = 2, most: int | None = None) -> str:
    """Rows in columns, two spaces apart, one a line; no line takes more than `most` places."""
    if not rows:
        return ""
    widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        padded = [cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        line = " " * indent + "  ".join(cell for cell in padded if cell).rstrip()
        lines.append(line if most is None else cut(line, most))
    return "".join(f"{line}\n" for line in lines)
