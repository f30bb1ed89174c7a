"""The terminal: stdout, stderr, colours, the progress line, prompts, and the web browser.

Rules: stdout has the output of the command, and nothing else. What is for people only (the progress
line, prompts) goes to stderr, and only if that is a terminal. Nothing is coloured if there is no
terminal, or with NO_COLOR.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import IO, Final
from urllib.parse import urlsplit

from colonnade.cli.errors import CliError, output
from colonnade.text import clean, cut, one_line, width

# URL schemes that are opened in a browser; any other could start another program.
URL_SCHEMES = ("http", "https")
# Without a display, a text browser would take over the terminal that we prompt in.
DISPLAY_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY")


def browser(environ: Mapping[str, str] | None = None) -> list[str]:
    """The command that opens a URL; empty if there is none."""
    environ = os.environ if environ is None else environ
    command = environ.get("BROWSER", "").partition(os.pathsep)[0]
    with contextlib.suppress(ValueError):  # an unclosed quote
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    if sys.platform == "darwin":
        return ["open"]
    if sys.platform == "win32":
        return ["rundll32", "url.dll,FileProtocolHandler"]
    program = shutil.which("xdg-open")
    has_screen = any(environ.get(name) for name in DISPLAY_VARIABLES)
    return [program] if program and has_screen else []


def can_open(url: str) -> bool:
    """Whether this is a web page, and there is a browser to open it in."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url
    return plain and scheme.lower() in URL_SCHEMES and bool(browser())


def open_url(url: str) -> None:
    """Open a URL for which `can_open` is true. Errors of the browser are ignored."""
    words = browser()
    command = [word.replace("%s", url) for word in words]
    if command == words:
        command.append(url)
    # Some browsers return at once, others when the window is closed; do not wait for that.
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


# How often the progress line is drawn; a tool may send thousands of notifications a second.
DRAW_S = 0.05
# The width of the progress bar, without the message beside it.
BAR_WIDTH = 20
# The width of a terminal that does not report it.
DEFAULT_WIDTH = 80
# The longest line that is read; a terminal passes on no more than this at once.
MAX_TYPED_BYTES = 64 * 1024

BOLD: Final = "\033[1m"
DIM: Final = "\033[2m"
ACCENT: Final = "\033[1;36m"
WARNING: Final = "\033[1;33m"
SUCCESS: Final = "\033[32m"
FAILURE: Final = "\033[1;31m"
RESET: Final = "\033[0m"


class Terminal:
    """Stdout and stderr, and the terminal behind them, if there is one."""

    def __init__(self) -> None:
        self.is_terminal: bool = _is_terminal(sys.stdout)
        self.is_watched: bool = _is_terminal(sys.stderr)
        # Whether a user can be prompted.
        self.can_ask: bool = self.is_watched and _is_terminal(sys.stdin)
        self._styled = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._drawn = 0
        self._drawn_at = 0.0
        self._typed = b""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                with contextlib.suppress(ValueError, OSError):
                    stream.reconfigure(errors="backslashreplace")

    # ------------------------------------------------------------ stdout

    @property
    def width(self) -> int | None:
        """The width of stdout; None if it is not a terminal."""
        return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if self.is_terminal else None

    def heading(self, text: str) -> str:
        """Style a heading."""
        return self._style(BOLD, text)

    def accent(self, text: str) -> str:
        """Style a name."""
        return self._style(ACCENT, text)

    def dim(self, text: str) -> str:
        """Style text of less importance."""
        return self._style(DIM, text)

    def warning(self, text: str) -> str:
        """Style a warning."""
        return self._style(WARNING, text)

    def success(self, text: str) -> str:
        """Style a success."""
        return self._style(SUCCESS, text)

    def failure(self, text: str) -> str:
        """Style a failure."""
        return self._style(FAILURE, text)

    def _style(self, style: str, text: str) -> str:
        return f"{style}{text}{RESET}" if self.is_terminal and self._styled else text

    def write(self, text: str) -> None:
        """Write text of our own."""
        self.clear()
        with output():
            sys.stdout.write(text)
            sys.stdout.flush()

    def show(self, text: str, *, ended: bool = True) -> None:
        """Write text from a server: unchanged, but on a terminal without control characters.

        `ended` adds a final line break if it is missing; on a terminal it is always added.
        """
        if self.is_terminal:
            text, ended = clean(text, lines=True), True
        self.write(text + "\n" if ended and not text.endswith("\n") else text)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes, unchanged."""
        self.clear()
        with output():
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    # ------------------------------------------------------------ stderr

    def note(self, text: str) -> None:
        """Write a message to stderr."""
        self.clear()
        with contextlib.suppress(OSError, ValueError):  # it is closed
            sys.stderr.write(text)
            sys.stderr.flush()

    def emphasis(self, text: str) -> str:
        """Style emphasized text on stderr."""
        return f"{BOLD}{text}{RESET}" if self.is_watched and self._styled else text

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Draw the progress line."""
        now = asyncio.get_running_loop().time()
        is_last = total is not None and done >= total
        if not self.is_watched or (now - self._drawn_at < DRAW_S and not is_last and self._drawn):
            return
        self._drawn_at = now
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns - 1
        line = cut(bar(done, total, message), width)
        self.note("")
        self._drawn = len(line) + sum(not one.isascii() for one in line)  # some are wider
        self._raw(f"\r{line}")

    def clear(self) -> None:
        """Erase the progress line."""
        if self._drawn:
            blank, self._drawn = " " * self._drawn, 0
            self._raw(f"\r{blank}\r")

    def _raw(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

    # ------------------------------------------------------------ prompts

    async def ask(self, prompt: str) -> str | None:
        """Prompt for a line; None at the end of input."""
        self.note(prompt)
        line = await self._line()
        if line is None:
            self.note("\n")
            self._typed = b""
        return line

    def confirm(self, prompt: str) -> bool:
        """Ask a yes-or-no question, and wait for the answer. What was typed before the question was
        shown is dropped: it approves nothing. Call it outside of an event loop."""
        self.drop_typed()
        self.note(prompt)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def forget_typed(self) -> None:
        """Drop the part of a line that was read so far."""
        self._typed = b""

    def drop_typed(self) -> None:
        """Drop all that was typed so far: it is no answer to what is shown next."""
        self._typed = b""
        if _is_terminal(sys.stdin):
            with contextlib.suppress(ImportError, OSError, ValueError):
                import termios  # on use: Windows has none

                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    async def next_line(self) -> str | None:
        """The next line of stdin, with or without a line break; None at the end. Raises `CliError`
        for a line that is too long."""
        line = await self._line()
        if line is None and len(self._typed) > MAX_TYPED_BYTES:
            raise CliError(f"a line of stdin is longer than {MAX_TYPED_BYTES >> 10} KiB")
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
    """Format progress as one line."""
    label = one_line(message)
    if total is None or total <= 0:
        return f"{done:g}  {label}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    full = round(share * BAR_WIDTH)
    drawn = "#" * full + "." * (BAR_WIDTH - full)
    return f"[{drawn}] {share:4.0%}  {label or f'{done:g} of {total:g}'}"


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


async def _typed_bytes(fd: int) -> bytes:
    """Read what is typed next, never in a thread that would keep the process alive."""
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
    """Format rows as columns, two spaces apart; no line is wider than `most`."""
    if not rows:
        return ""
    widths = [max(width(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        padded = [cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)]
        line = " " * indent + "  ".join(cell for cell in padded if cell).rstrip()
        lines.append(line if most is None else cut(line, most))
    return "".join(f"{line}\n" for line in lines)
