"""Event streams: any chunking gives the same events, and they are those of the standard.

Rules: the second opinion is a plain reading of the WHATWG standard, line by line, of the whole
stream at once.
"""

import re
from random import Random
from typing import NamedTuple

from colonnade.errors import Fault
from colonnade.protocol.http import sse
from fuzz.corpus import EVERY_MESSAGE
from fuzz.corpus_wire import STREAM_TOKENS, STREAMS
from fuzz.frames import chunks
from fuzz.mutate import MAX_CHANGES, MAX_INPUT_BYTES, change_bytes
from fuzz.target import Case, check_fault, held

# Small, so that events break it now and then.
MAX_EVENT = 400


class Heard(NamedTuple):
    """All that comes of a stream."""

    events: tuple[sse.ServerSentEvent, ...]
    last_event_id: str
    retry_ms: int | None
    fault: str | None
    cut: bool | None


class Streams:
    """`sse.Parser` under any chunking, and `sse.write` for whatever was read."""

    name = "streams"

    def __init__(self, parser: type[sse.EventStreamParser] = sse.EventStreamParser) -> None:
        self._parser = parser

    def draw(self, rng: Random, most: int) -> Case:
        stream = rng.choice(STREAMS)
        if not rng.randrange(4):
            stream += rng.choice(STREAMS)
        for _ in range(rng.randint(1, 2 * MAX_CHANGES)):
            stream = change_bytes(rng, stream, EVERY_MESSAGE, STREAM_TOKENS)
        return Case(str(rng.getrandbits(30)), (stream[:MAX_INPUT_BYTES],))

    def check(self, case: Case) -> list[str]:
        (stream,) = case.parts
        whole = self._read([stream])
        cut = self._read(chunks(stream, Random(int(case.where))))
        held(whole == cut, f"another chunking gave another stream: {whole} and {cut}")
        if whole.fault is None:
            held(whole.events == expected(stream), "the events are not those of the standard")
        for event in whole.events:
            held(len(event.data) <= MAX_EVENT, "an event that is too long")
            self._check_rewritten(event)
        return ["fault" if whole.fault else f"{min(len(whole.events), 5)} events"]

    def _read(self, pieces: list[bytes]) -> Heard:
        parser = self._parser(max_event_bytes=MAX_EVENT)
        events: list[sse.ServerSentEvent] = []
        words: str | None = None
        cut: bool | None = None
        try:
            for piece in pieces:
                events += parser.feed(piece)
            cut = parser.end()
        except Fault as fault:
            check_fault(fault)
            held(parser.fault is fault, "a fault that the parser forgot")
            words = fault.message
        return Heard(tuple(events), parser.last_event_id, parser.retry_ms, words, cut)

    def _check_rewritten(self, event: sse.ServerSentEvent) -> None:
        """Data cannot forge a field: written again, it is one event with the same data."""
        again = self._parser().feed(sse.encode_event(event.data, id="1"))
        plain = event.data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        held(
            again == [sse.ServerSentEvent(plain, id="1")],
            "an event says something else when sent on",
        )


_LINE = re.compile(rb"\r\n|\n|\r")


def expected(stream: bytes) -> tuple[sse.ServerSentEvent, ...]:
    """The events of a stream as the standard has them; what its end cuts short is none."""
    lines = _LINE.split(stream.removeprefix(b"\xef\xbb\xbf"))
    events: list[sse.ServerSentEvent] = []
    data: list[bytes] = []
    name, id, retry = "", None, None
    for line in lines[:-1]:
        if not line:
            if data:
                events.append(sse.ServerSentEvent(b"\n".join(data), name or "message", id, retry))
            data, name, id, retry = [], "", None, None
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode()
        elif field == b"id" and b"\0" not in value:
            id = value.decode()
        elif field == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = min(int(value[-4000:]), sse.MAX_RETRY_MS)
    return tuple(events)
