"""What a child says: messages on its standard output, anything else on its standard error.

Rules: no I/O. Everything kept is bounded, whatever is written. What is no message ends nothing
while there are messages, too; and what is on standard error is never a sign of failure (R0483).
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

# Of standard error, for an error to quote: what ended a program is in its last lines.
TAIL_BYTES = 4 * 1024
TAIL_LINES = 20
# A line for whoever listens to standard error; a longer one comes in pieces.
ERROR_LINE_BYTES = 8 * 1024
# What is kept of lines that are no messages: so many, and so much of each.
RUBBISH_KEPT = 5
RUBBISH_CHARS = 200
# A package manager may talk for a while before the server does. What says this much and no message
# is no server.
RUBBISH_LINES = 1000
RUBBISH_BYTES = 1024 * 1024

BLOT = "[redacted]"

_raw = msgspec.json.Decoder(Raw)
_MESSAGE, _OPENING = b'"jsonrpc"', (b"{", b"[")
# What a terminal would obey: colours, titles, moves. Possessive, so that it takes linear time.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]?|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|.)?")
_IN_ADDRESS = re.compile(r"(://)[^\s/?#@]{1,512}@")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def plain(data: bytes) -> list[str]:
    """Lines for people: text, without what a terminal would obey, and none of them empty.

    What would not be seen is shown as its escape.
    """
    text = data.decode(errors="replace").replace("\r", "\n")
    lines = _ESCAPES.sub("", text).split("\n")
    shown = (visible(_CONTROLS.sub("", line)).rstrip() for line in lines)
    return [line for line in shown if line]


class Tail:
    """The end of an endless stream. `heard` hears every line of it."""

    def __init__(self, heard: Callable[[str], None] | None = None) -> None:
        self._heard = heard
        self._kept = b""
        self._cut = False
        self._line = b""

    def feed(self, chunk: bytes) -> None:
        """It goes on."""
        kept = self._kept + chunk[-TAIL_BYTES:]
        self._cut = self._cut or len(self._kept) + len(chunk) > TAIL_BYTES
        self._kept = kept[-TAIL_BYTES:]
        if self._heard is not None:
            *lines, self._line = (self._line + chunk).split(b"\n")
            for line in lines:
                self._heard(line.decode(errors="replace").rstrip("\r"))
            while len(self._line) >= ERROR_LINE_BYTES:
                self._heard(self._line[:ERROR_LINE_BYTES].decode(errors="replace"))
                self._line = self._line[ERROR_LINE_BYTES:]

    def finish(self) -> None:
        """It has ended; a line without its end is one, too."""
        if self._heard is not None and self._line:
            self._heard(self._line.decode(errors="replace"))
        self._line = b""

    def lines(self) -> list[str]:
        """The last lines, for people."""
        return self._plain()[-TAIL_LINES:]

    def since(self, words: str) -> list[str]:
        """The lines from the one with these words on; the last ones where that is not kept."""
        lines = self._plain()
        first = next((at for at, line in enumerate(lines) if words in line), None)
        return lines[-TAIL_LINES:] if first is None else lines[first:]

    def _plain(self) -> list[str]:
        kept = self._kept
        if self._cut and b"\n" in kept[:-1]:
            kept = kept[kept.index(b"\n") + 1 :]  # what is left of the first one says little
        return plain(kept)


class Ears(NamedTuple):
    """Who hears what a process says on its streams, and how it ends."""

    output: Callable[[bytes], None]
    output_ended: Callable[[], None]
    errors: Callable[[bytes], None]
    input_lost: Callable[[str], None]
    exited: Callable[[], None]


class Hears(NamedTuple):
    """Who hears of each line of standard output. `spoilt` is told what the server did, to go on
    after its name, and what to make of it."""

    receive: Callable[[bytes], None]
    refuse: Callable[[Fault], None]
    spoilt: Callable[[str, str], None]
    littered: Callable[[str], None]


class Sieve:
    """Lines of standard output: messages go on, the rest is counted and a little of it kept."""

    def __init__(self, hears: Hears, max_line_bytes: int) -> None:
        self._hears = hears
        self._max = max_line_bytes
        self._lines = LineSplitter(max_line_bytes)
        self._rubbish_bytes = 0
        self.messages: int = 0
        self.rubbish: int = 0
        self.kept: deque[str] = deque(maxlen=RUBBISH_KEPT)

    def feed(self, chunk: bytes) -> None:
        """It goes on."""
        for line in self._lines.feed(chunk):
            self._judge(line)

    def finish(self) -> None:
        """It has ended. Half a line is rubbish; but a whole message may lack only its newline."""
        for line in self._lines.feed(b"\n"):
            self._judge(line, "half a line: ")

    def _judge(self, line: bytes | Fault, introduction: str = "") -> None:
        if isinstance(line, Fault):
            # Whose answer it would have been nobody knows, so that nobody may wait for it.
            self._hears.spoilt(f"wrote a line of more than {self._max} bytes", "")
        elif not is_message(line):
            self._drop(line, introduction)
            if line[:1] == b"{" and _MESSAGE in line:  # a message that is broken: NaN, or cut off
                self._decoded(line)
        elif line.isascii() or is_utf8(line):
            self.messages += 1
            self._hears.receive(line)
        else:
            self._misspelt(line)

    def _drop(self, line: bytes, introduction: str = "") -> None:
        self.rubbish += 1
        self._rubbish_bytes += len(line)
        said = introduction + " ".join(plain(line[: 4 * RUBBISH_CHARS]))[:RUBBISH_CHARS]
        self.kept.append(said)
        self._hears.littered(said)
        if not self.messages and (
            self.rubbish >= RUBBISH_LINES or self._rubbish_bytes >= RUBBISH_BYTES
        ):
            self._hears.spoilt("wrote no message", "; is it an MCP server on stdio?")

    def _decoded(self, line: bytes) -> Frame | Batch | None:
        """The message in a line. Of one that cannot be read, the call that waits for it is told."""
        try:
            return decode(line)
        except Fault as fault:
            if fault.settles is not None:
                self._hears.refuse(fault)
            return None

    def _misspelt(self, line: bytes) -> None:
        """A message that is not UTF-8 cannot be read, but whom it concerns often can."""
        frame = self._decoded(line.decode(errors="replace").encode())
        words = "a message that is not UTF-8; encode messages as UTF-8"
        if isinstance(frame, ResultResponse | ErrorResponse) and frame.id is not None:
            self._hears.refuse(
                Fault(FaultKind.PARSE, words, settles=frame.id, expects_no_response=True)
            )
        elif isinstance(frame, Request):
            self._hears.refuse(Fault(FaultKind.PARSE, words, raw_id=frame.raw_id))
        self._drop(line)


def is_message(line: bytes) -> bool:
    """Whether it is JSON, and of the kind that messages are; what it says is not looked at."""
    if line[:1] not in _OPENING or _MESSAGE not in line:
        return False
    try:
        _raw.decode(line)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        return True  # whoever reads it says so
    return True


def is_utf8(line: bytes) -> bool:
    """Whether it is text."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def blotted(lines: Iterable[str], secrets: Iterable[str]) -> list[str]:
    """The lines without any of these secrets, and without the password of any address."""
    found: list[str] = []
    longest_first = sorted(secrets, key=len, reverse=True)
    for line in lines:
        for secret in longest_first:
            line = line.replace(secret, BLOT)
        found.append(_IN_ADDRESS.sub(rf"\1{BLOT}@", line))
    return found
