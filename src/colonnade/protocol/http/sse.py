"""Server-sent events (text/event-stream): bytes to events, events to bytes.

Rules: no I/O, no clock, no reconnecting. The same bytes give the same events and the same fault
however they are chunked, in linear time and bounded memory. Data is passed on byte for byte and
never repaired.

What to know of the format, which is the WHATWG standard's:

- A block with a `data` line, even an empty one, is an event; so MCP's priming event (an id and
  empty data) arrives as a `ServerSentEvent` whose data is `b""`. A block without one is not an
  event, yet its id and its retry count: `EventStreamParser.last_event_id` and
  `EventStreamParser.retry_ms` always hold the latest.
- An event that is cut short by the end of the stream is dropped, and its id with it.
- Apart from the limits below, this differs in one point. The standard replaces bytes that are not
  UTF-8 by U+FFFD; that would change a message or name another event. Data stays as it came, and
  is refused when it is decoded (R0243), which loses one message and not the stream; an id or
  event name is refused here.
"""

from typing import NoReturn

from msgspec import Struct

from colonnade.errors import Fault, FaultKind, InvalidArgument, LocalProtocolError

# One event carries one message: as much as a line of stdio may hold, since files travel in base64.
MAX_EVENT_BYTES = 64 * 1024 * 1024
# An id comes back in a `Last-Event-ID` header, and proxies allow some 8 KiB for all headers.
MAX_LABEL_BYTES = 1024
# 30,000 years in milliseconds: no real retry is longer, and sums with it stay exact in a float.
MAX_RETRY_MS = 10**15 - 1
# A chunk of blank lines makes a list of 8 times its size; larger chunks are split.
PIECE_BYTES = 256 * 1024

DEFAULT_EVENT = "message"

_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"
_DATA = b"data: "


class ServerSentEvent(Struct, frozen=True):
    """One event. `id` and `retry_ms` are those of its own block, not those still in effect from
    before.

    `data` has its lines joined by LF and is not checked for UTF-8; `text()` checks.
    """

    data: bytes
    event: str = DEFAULT_EVENT
    id: str | None = None
    retry_ms: int | None = None

    def text(self) -> str:
        """The data as a string, for events that are not JSON; raises `Fault` if it is not UTF-8."""
        return _decode(self.data, "data")


class EventStreamParser:
    """Parses one stream. Use one for each connection, and pass the old `last_event_id` to resume.

    >>> EventStreamParser().feed(b'id: 7\\ndata: {"jsonrpc":"2.0"}\\n\\n')
    [ServerSentEvent(data=b'{"jsonrpc":"2.0"}', event='message', id='7', retry_ms=None)]

    `last_event_id` is what to send when reconnecting, "" for nothing; `retry_ms` is how long to
    wait before, None until the server sends it.
    """

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES, last_event_id: str = "") -> None:
        self.last_event_id: str = last_event_id
        self.retry_ms: int | None = None
        self.fault: Fault | None = None
        self._max_event = max_event_bytes
        self._max_line = max_event_bytes + len(_DATA)
        self._ended = False
        self._head: bytes | None = b""  # may become a byte order mark
        self._after_cr = False
        self._partial = bytearray()  # an incomplete line; searched once, when it arrives
        self._data: bytes | bytearray | None = None
        self._name = ""
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that this chunk completes. Raises `Fault` on a stream that exceeds a limit.

        Events before the fault are returned first; then `fault` is set, and every later call raises
        it. Nothing after it is parsed.
        """
        self._check_fault()
        if self._ended:
            raise LocalProtocolError(
                "this event stream has ended; create a new parser for the next connection"
            )
        if self._head is not None:
            chunk = self._without_bom(self._head + chunk)
        events: list[ServerSentEvent] = []
        try:
            if len(chunk) <= PIECE_BYTES:
                self._take(chunk, events)
            else:
                for start in range(0, len(chunk), PIECE_BYTES):
                    self._take(chunk[start : start + PIECE_BYTES], events)
        except Fault as fault:
            self.fault = fault
            self._drop()
            if not events:
                raise
        return events

    def end(self) -> bool:
        """End the stream: was something cut short, and so dropped? Raises `fault`, if any."""
        self._check_fault()
        pending = (self._partial, self._head, self._name, self._id is not None)
        cut = self._data is not None or any(pending)
        self._ended = True
        self._drop()
        return cut

    def _check_fault(self) -> None:
        if self.fault is not None:
            raise self.fault.with_traceback(None)

    def _without_bom(self, head: bytes) -> bytes:
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)

    def _take(self, piece: bytes, events: list[ServerSentEvent]) -> None:
        if not piece:
            return
        if self._after_cr:
            self._after_cr = False
            if piece[0] == _LF:
                piece = piece[1:]
                if not piece:
                    return
        lines = piece.splitlines()  # of bytes: at CR, LF and CR LF only
        last = piece[-1]
        # A CR ends its line now; waiting to see an LF would hold the event back.
        self._after_cr = last == _CR
        rest = b"" if last in (_LF, _CR) else lines.pop()
        if lines and self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial.clear()
        longest = self._max_line
        for line in lines:
            if not line:
                if (event := self._dispatch()) is not None:
                    events.append(event)
            elif len(line) > longest:
                self._refuse_line()
            elif self._data is None and line.startswith(_DATA):  # nearly every line
                self._data = line[len(_DATA) :]
            else:
                self._field(line)
        self._partial += rest
        if len(self._partial) > longest:
            self._refuse_line()

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._name = _label(value, "event name")
        elif name == b"id":
            if b"\0" not in value:
                self._id = _label(value, "event id")
        elif name == b"retry" and value.isdigit():
            digits = value.lstrip(b"0")
            too_long = len(digits) > len(str(MAX_RETRY_MS))
            self.retry_ms = self._retry = MAX_RETRY_MS if too_long else int(digits or b"0")

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            # One growing buffer: a list would cost 50 bytes for each line of two.
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._max_event:
            raise Fault(
                FaultKind.PARSE,
                f"an event of the stream has more than {self._max_event} bytes of data; "
                "send less in one message or raise max_event_bytes",
            )

    def _dispatch(self) -> ServerSentEvent | None:
        data, name, id_, retry_ms = self._data, self._name, self._id, self._retry
        self._data, self._name, self._id, self._retry = None, "", None, None
        if id_ is not None:
            self.last_event_id = id_
        if data is None:
            return None
        return ServerSentEvent(bytes(data), name or DEFAULT_EVENT, id_, retry_ms)

    def _refuse_line(self) -> NoReturn:
        raise Fault(
            FaultKind.PARSE,
            f"a line of the event stream is longer than {self._max_line} bytes; "
            "send less in one message or raise max_event_bytes",
        )

    def _drop(self) -> None:
        self._head = None
        self._partial.clear()
        self._data, self._name, self._id, self._retry = None, "", None, None


def encode_event(
    data: bytes,
    *,
    event: str | None = None,
    id: str | None = None,
    retry_ms: int | None = None,
) -> bytes:
    """Encode one event. `data` is UTF-8; a line break in it makes one more data line.

    The receiver gets LF for every CR, LF and CR LF in the data: in JSON they are whitespace between
    tokens. Raises `LocalProtocolError` for an event name or id that is not 1 to 1024 visible ASCII
    characters, so that neither can forge a field and an id survives the way back in a header.
    """
    if _LF in data or _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if event is None and id is None and retry_ms is None:
        return b"data: %b\n\n" % data
    head = b""
    if id is not None:
        head += b"id: %b\n" % _written(id, "event id")
    if event is not None:
        head += b"event: %b\n" % _written(event, "event name")
    if retry_ms is not None:
        if not 0 <= retry_ms <= MAX_RETRY_MS:
            raise InvalidArgument(
                f"retry_ms is {retry_ms}; give milliseconds from 0 to {MAX_RETRY_MS}",
                argument="retry_ms",
            )
        head += b"retry: %d\n" % retry_ms
    return b"%bdata: %b\n\n" % (head, data)


def priming_event(id: str, retry_ms: int | None = None) -> bytes:
    """An id with empty data: from here on the client can reconnect and lose nothing (R0486)."""
    return encode_event(b"", id=id, retry_ms=retry_ms)


def comment(text: str = "") -> bytes:
    """A comment, which parsers skip: send one as a keep-alive on a quiet stream.

    It ends with a blank line, for parsers and proxies that pass on whole blocks only.
    """
    if "\n" in text or "\r" in text:
        raise InvalidArgument(
            f"the comment {_shown(text)} has a line break; write one comment for each line"
        )
    return b": %b\n\n" % text.encode(errors="replace") if text else b":\n\n"


def _label(value: bytes, what: str) -> str:
    if len(value) > MAX_LABEL_BYTES:
        raise Fault(
            FaultKind.PARSE,
            f"an {what} of the stream has {len(value)} bytes; the most is {MAX_LABEL_BYTES}",
        )
    return _decode(value, what)


def _decode(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault(
            FaultKind.PARSE, f"{what} of the event stream is not UTF-8; send it as UTF-8"
        ) from None


def _written(label: str, what: str) -> bytes:
    fits = 0 < len(label) <= MAX_LABEL_BYTES
    if not (fits and label.isascii() and label.isprintable() and " " not in label):
        raise InvalidArgument(
            f"the {what} {_shown(label)} cannot be sent; "
            f"use 1 to {MAX_LABEL_BYTES} visible ASCII characters without spaces"
        )
    return label.encode()


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "...")
