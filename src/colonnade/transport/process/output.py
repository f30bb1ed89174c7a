"""The output of a child: messages on stdout, which other lines are filtered from, and stderr.

Rules: no I/O. What is kept is bounded. Lines that are not messages are tolerated while there are
messages, too; output on stderr is never a sign of failure (R0483).
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec import Raw

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    LineSplitter,
    Request,
    ResultResponse,
    decode,
)
from colonnade.text import visible

# Of stderr, for an error to quote: the cause is in its last lines.
TAIL_BYTES = 4 * 1024
TAIL_LINES = 20
# Of a line for `on_stderr`; a longer one comes in pieces.
ERROR_LINE_BYTES = 8 * 1024
# Lines on stdout that are not messages: how many are kept, and how much of each.
NOISE_KEPT = 5
NOISE_CHARS = 200
# A package manager may print lines before the server starts. A program that prints this much and
# no message is not a server.
NOISE_LINES = 1000
NOISE_BYTES = 1024 * 1024

REDACTED = "[redacted]"

_raw = msgspec.json.Decoder(Raw)
_MESSAGE, _OPENING = b'"jsonrpc"', (b"{", b"[")
# Escape sequences of a terminal. Possessive, so that it takes linear time.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|.)?")
_URL_PASSWORD = re.compile(r"(://)[^\s/?#@]{1,512}@")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def plain(data: bytes) -> list[str]:
    """Lines for display: without escape sequences, and none of them empty.

    Invisible characters are shown as their escapes.
    """
    text = data.decode(errors="replace").replace("\r", "\n")
    lines = _ESCAPES.sub("", text).split("\n")
    shown = (visible(_CONTROLS.sub("", line)).rstrip() for line in lines)
    return [line for line in shown if line]


class StderrTail:
    """The last lines of stderr. `on_line` is called with every line."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._on_line = on_line
        self._kept = b""
        self._cut = False
        self._line = b""

    def feed(self, chunk: bytes) -> None:
        """Add output."""
        kept = self._kept + chunk[-TAIL_BYTES:]
        self._cut = self._cut or len(self._kept) + len(chunk) > TAIL_BYTES
        self._kept = kept[-TAIL_BYTES:]
        if self._on_line is not None:
            *lines, self._line = (self._line + chunk).split(b"\n")
            for line in lines:
                self._on_line(line.decode(errors="replace").rstrip("\r"))
            while len(self._line) >= ERROR_LINE_BYTES:
                self._on_line(self._line[:ERROR_LINE_BYTES].decode(errors="replace"))
                self._line = self._line[ERROR_LINE_BYTES:]

    def finish(self) -> None:
        """It has ended; a last line without a newline counts, too."""
        if self._on_line is not None and self._line:
            self._on_line(self._line.decode(errors="replace"))
        self._line = b""

    def lines(self) -> list[str]:
        """The last lines, for display."""
        return self._plain()[-TAIL_LINES:]

    def since(self, text: str) -> list[str]:
        """The lines from the one with this text on; the last ones if that is not kept."""
        lines = self._plain()
        first = next((at for at, line in enumerate(lines) if text in line), None)
        return lines[-TAIL_LINES:] if first is None else lines[first:]

    def _plain(self) -> list[str]:
        kept = self._kept
        if self._cut and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]  # without the rest of the line that was cut
        return plain(kept)


class ProcessCallbacks(NamedTuple):
    """Called with the output of a process, and at its exit."""

    output: Callable[[bytes], None]
    output_ended: Callable[[], None]
    errors: Callable[[bytes], None]
    input_lost: Callable[[str], None]
    exited: Callable[[], None]


class LineCallbacks(NamedTuple):
    """Called with each line of stdout. `fail` gets what the server did, to follow its name in a
    message, and a hint."""

    receive: Callable[[bytes], None]
    refuse: Callable[[Fault], None]
    fail: Callable[[str, str], None]
    noise: Callable[[str], None]


class StdoutFilter:
    """Lines of stdout: messages are passed on, the rest is counted and a little of it kept."""

    def __init__(self, callbacks: LineCallbacks, max_line_bytes: int) -> None:
        self._callbacks = callbacks
        self._max = max_line_bytes
        self._lines = LineSplitter(max_line_bytes)
        self._noise_bytes = 0
        self.messages: int = 0
        self.noise_lines: int = 0
        self.kept: deque[str] = deque(maxlen=NOISE_KEPT)

    def feed(self, chunk: bytes) -> None:
        """Add output."""
        for line in self._lines.feed(chunk):
            self._take_line(line)

    def finish(self) -> None:
        """It has ended. Half a line is noise, but a message may lack only its newline."""
        for line in self._lines.feed(b"\n"):
            self._take_line(line, "half a line: ")

    def _take_line(self, line: bytes | Fault, introduction: str = "") -> None:
        if isinstance(line, Fault):
            # It may have been any response, so every pending request must fail.
            self._callbacks.fail(f"wrote a line of more than {self._max} bytes", "")
        elif not is_message(line):
            self._drop(line, introduction)
            if line[:1] == b"{" and _MESSAGE in line:  # a message that is broken: NaN, or cut off
                self._decoded(line)
        elif line.isascii() or is_utf8(line):
            self.messages += 1
            self._callbacks.receive(line)
        else:
            self._take_non_utf8(line)

    def _drop(self, line: bytes, introduction: str = "") -> None:
        self.noise_lines += 1
        self._noise_bytes += len(line)
        shown = introduction + " ".join(plain(line[: 4 * NOISE_CHARS]))[:NOISE_CHARS]
        self.kept.append(shown)
        self._callbacks.noise(shown)
        if not self.messages and (
            self.noise_lines >= NOISE_LINES or self._noise_bytes >= NOISE_BYTES
        ):
            self._callbacks.fail("wrote no message", "; is it an MCP server on stdio?")

    def _decoded(self, line: bytes) -> Frame | Batch | None:
        """Decode a line; if that fails, the request that it responds to fails, if it is known."""
        try:
            return decode(line)
        except Fault as fault:
            if fault.settles is not None:
                self._callbacks.refuse(fault)
            return None

    def _take_non_utf8(self, line: bytes) -> None:
        """A message that is not UTF-8 is refused; its request id can often be read."""
        frame = self._decoded(line.decode(errors="replace").encode())
        words = "a message that is not UTF-8; encode messages as UTF-8"
        if isinstance(frame, ResultResponse | ErrorResponse) and frame.id is not None:
            self._callbacks.refuse(
                Fault(FaultKind.PARSE, words, settles=frame.id, expects_no_response=True)
            )
        elif isinstance(frame, Request):
            self._callbacks.refuse(Fault(FaultKind.PARSE, words, raw_id=frame.raw_id))
        self._drop(line)


def is_message(line: bytes) -> bool:
    """Whether a line is a JSON object or array with `jsonrpc` in it; it is not decoded."""
    if line[:1] not in _OPENING or _MESSAGE not in line:
        return False
    try:
        _raw.decode(line)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        return True  # the decoder reports it
    return True


def is_utf8(line: bytes) -> bool:
    """Whether a line is UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def redact(lines: Iterable[str], secrets: Iterable[str]) -> list[str]:
    """The lines with these secrets, and the passwords of URLs, replaced by `[redacted]`."""
    found: list[str] = []
    longest_first = sorted(secrets, key=len, reverse=True)
    for line in lines:
        for secret in longest_first:
            line = line.replace(secret, REDACTED)
        found.append(_URL_PASSWORD.sub(rf"\1{REDACTED}@", line))
    return found
