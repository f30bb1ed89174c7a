"""The event stream: any chunking gives the same events, nothing forges a field, all is bounded."""

import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.http.sse import (
    MAX_EVENT_BYTES,
    MAX_LABEL_BYTES,
    MAX_RETRY_MS,
    PIECE_BYTES,
    EventStreamParser,
    ServerSentEvent,
    comment,
    encode_event,
    priming_event,
)
from colonnade.protocol.jsonrpc import MAX_LINE_BYTES

MESSAGE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"\xc3\xbc"}}'


def read(
    stream: bytes, size: int = 0, max_event_bytes: int = MAX_EVENT_BYTES
) -> list[ServerSentEvent]:
    """All events of a stream that is fed in chunks of this size, or in one."""
    parser = EventStreamParser(max_event_bytes=max_event_bytes)
    return feed_all(parser, cut(stream, size or len(stream) or 1))


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def feed_all(parser: EventStreamParser, chunks: Iterable[bytes]) -> list[ServerSentEvent]:
    return [event for chunk in chunks for event in parser.feed(chunk)]


def reference(stream: bytes) -> tuple[list[ServerSentEvent], str, int | None]:
    """The standard's algorithm, read off its text: the whole stream at once, nothing bounded."""
    events: list[ServerSentEvent] = []
    data: list[bytes] = []
    name, last_id, last_retry = b"", "", None
    own_id: str | None = None
    own_retry: int | None = None
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if line == b"":
            last_id = last_id if own_id is None else own_id
            if data:
                kind = name.decode() or "message"
                events.append(ServerSentEvent(b"\n".join(data), kind, own_id, own_retry))
            data, name, own_id, own_retry = [], b"", None, None
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        match field:
            case b"data":
                data.append(value)
            case b"event":
                name = value
            case b"id" if b"\0" not in value:
                own_id = value.decode()
            case b"retry" if re.fullmatch(rb"[0-9]+", value):
                last_retry = own_retry = int(value)
            case _:
                pass
    return events, last_id, last_retry


# Pieces that meet at every edge of the format.
_FRAGMENTS = st.sampled_from(
    [
        *[b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b":", b" ", b"data", b"data:"],
        *[b"data: ", b"data:  x", b"event: endpoint", b"event:", b"id: 1", b"id", b"id: a\0b"],
        *[b"retry: 500", b"retry: 5x", b"retry:", b"retry", b": comment", b"unknown: x"],
        *[b"\xef\xbb\xbf", b"\xc3\xbc", b"\xf0\x9f\x8d\xb5", b"{}", b"DATA: x", b"data : x"],
    ]
)
_STREAMS = st.lists(_FRAGMENTS, max_size=30).map(b"".join)


@given(_STREAMS, st.data())
def test_any_chunking_gives_what_the_standard_gives(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    expected = reference(stream)
    for way in (chunks, [stream], cut(stream, 1)):
        parser = EventStreamParser()
        events = feed_all(parser, way)
        parser.end()
        assert (events, parser.last_event_id, parser.retry_ms) == expected


@given(st.binary(max_size=200), st.integers(1, 20), st.integers(0, 40))
def test_any_bytes_in_any_chunking_give_the_same_events_and_the_same_fault(
    stream: bytes, size: int, bound: int
) -> None:
    def outcome(chunks: list[bytes]) -> tuple[list[ServerSentEvent], str]:
        parser = EventStreamParser(max_event_bytes=bound)
        events: list[ServerSentEvent] = []
        try:
            for chunk in chunks:
                events += parser.feed(chunk)
            parser.end()
        except Fault as fault:
            return events, fault.message
        return events, ""

    assert outcome([stream]) == outcome(cut(stream, size)) == outcome(cut(stream, 1))


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7])
def test_each_line_end_works_in_any_chunking(line_end: bytes, size: int) -> None:
    stream = line_end.join(
        [b"event: endpoint", b"data: /post", b"", b"data: a", b"data: b", b"", b""]
    )
    assert read(stream, size) == [ServerSentEvent(b"/post", "endpoint"), ServerSentEvent(b"a\nb")]


def test_a_carriage_return_completes_its_event_without_waiting_for_the_next_byte() -> None:
    parser = EventStreamParser()
    assert parser.feed(b"data: x\r\n\r") == [ServerSentEvent(b"x")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: y\r\r") == [ServerSentEvent(b"y")]
    assert parser.feed(b"\ndata: z\n\n") == [ServerSentEvent(b"z")]


def test_other_characters_that_end_lines_elsewhere_do_not_end_one_here() -> None:
    data = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b".encode()
    assert read(b"data: " + data + b"\n\n") == [ServerSentEvent(data)]


def test_one_byte_order_mark_is_skipped_at_the_start_and_only_there() -> None:
    bom = b"\xef\xbb\xbf"
    for size in (0, 1, 2):
        assert read(bom + b"data: x\n\n", size) == [ServerSentEvent(b"x")]
        assert read(bom + bom + b"data: x\n\n", size) == []
        assert read(b"data: x\n\n" + bom + b"data: y\n\n", size) == [ServerSentEvent(b"x")]
        assert read(bom[:2] + b"data: x\n\ndata: y\n\n", size) == [ServerSentEvent(b"y")]


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"data: x", b"x"),
        (b"data:x", b"x"),
        (b"data:  x", b" x"),
        (b"data: x:y", b"x:y"),
        (b"data:\tx", b"\tx"),
        (b"data", b""),
        (b"data:", b""),
        (b"data\ndata", b"\n"),
        (b"data: a\ndata: b\ndata:c", b"a\nb\nc"),
        (b": comment\ndata: x\n:", b"x"),
        (b"data: x\nDATA: y\ndata : z\n data: w\nfoo", b"x"),
    ],
)
def test_fields_are_read_as_the_standard_says(block: bytes, data: bytes) -> None:
    assert read(block + b"\n\n") == [ServerSentEvent(data)]


def test_a_block_without_a_data_line_is_no_event_and_leaves_no_name_behind() -> None:
    assert read(b"event: lost\n\ndata: x\n\n") == [ServerSentEvent(b"x")]
    assert read(b"\n\n: only a comment\n\n") == []


def test_an_empty_event_name_means_message() -> None:
    assert read(b"event: a\nevent:\ndata: x\n\n") == [ServerSentEvent(b"x", "message")]


def test_a_priming_event_is_an_event_with_an_id_and_empty_data() -> None:
    parser = EventStreamParser()
    assert parser.feed(b"id: s1-0\nretry: 500\ndata:\n\n") == [
        ServerSentEvent(b"", "message", "s1-0", 500)
    ]
    assert (parser.last_event_id, parser.retry_ms) == ("s1-0", 500)


def test_an_id_and_a_retry_without_data_are_no_event_but_the_parser_knows_them() -> None:
    parser = EventStreamParser()
    assert parser.feed(b"id: s1-0\n") == []
    assert parser.last_event_id == ""
    assert parser.feed(b"\nretry: 500\n\n") == []
    assert (parser.last_event_id, parser.retry_ms) == ("s1-0", 500)


def test_the_last_id_outlives_events_that_have_none_and_an_empty_one_clears_it() -> None:
    parser = EventStreamParser(last_event_id="old")
    assert parser.last_event_id == "old"
    assert parser.feed(b"id: 1\ndata: a\n\ndata: b\n\n") == [
        ServerSentEvent(b"a", id="1"),
        ServerSentEvent(b"b"),
    ]
    assert parser.last_event_id == "1"
    assert parser.feed(b"id\ndata: c\n\n") == [ServerSentEvent(b"c", id="")]
    assert parser.last_event_id == ""


def test_an_id_with_a_nul_is_ignored() -> None:
    parser = EventStreamParser()
    assert parser.feed(b"id: 1\nid: 2\0\ndata: a\n\n") == [ServerSentEvent(b"a", id="1")]
    assert parser.last_event_id == "1"


@pytest.mark.parametrize(
    ("written", "retry_ms"),
    [
        (b"0", 0),
        (b"500", 500),
        (b"000500", 500),
        (b"999999999999999", MAX_RETRY_MS),
        (b"1000000000000000", MAX_RETRY_MS),
        (b"0" * 9000 + b"7", 7),
        (b"9" * 9000, MAX_RETRY_MS),
        (b"", None),
        (b"-1", None),
        (b"+1", None),
        (b"1.5", None),
        (b"1e3", None),
        (b" 5", None),
        (b"5 ", None),
        (b"1_000", None),
        ("٥".encode(), None),
    ],
)
def test_retry_is_ascii_digits_or_nothing_and_has_a_largest_value(
    written: bytes, retry_ms: int | None
) -> None:
    parser = EventStreamParser()
    assert parser.feed(b"retry: " + written + b"\ndata: x\n\n") == [
        ServerSentEvent(b"x", retry_ms=retry_ms)
    ]
    assert parser.retry_ms == retry_ms


@pytest.mark.parametrize(
    "unfinished",
    [b"data: x", b"data: x\n", b"id: 9\n", b"event: a\n", b"data: x\nid: 9", b"\xef", b"dat"],
)
def test_what_the_end_cuts_short_is_dropped_and_said(unfinished: bytes) -> None:
    parser = EventStreamParser()
    assert parser.feed(unfinished) == []
    assert parser.end() is True
    assert parser.last_event_id == ""


@pytest.mark.parametrize(
    "whole", [b"", b"\xef\xbb\xbf", b"data: x\n\n", b"data: x\r\n\r", b": x\n"]
)
def test_an_end_between_events_cuts_nothing(whole: bytes) -> None:
    parser = EventStreamParser()
    parser.feed(whole)
    assert parser.end() is False
    assert parser.end() is False


def test_an_ended_parser_takes_no_more_bytes() -> None:
    parser = EventStreamParser()
    parser.end()
    with pytest.raises(LocalProtocolError, match="new parser"):
        parser.feed(b"data: x\n\n")


def test_data_that_is_not_utf8_is_handed_on_unchanged_and_refused_as_text() -> None:
    [event, after] = read(b"data: a\xffb\n\ndata: \xc3\xbc\n\n")
    assert event.data == b"a\xffb"
    with pytest.raises(Fault, match="not UTF-8") as caught:
        event.text()
    assert caught.value.kind is FaultKind.PARSE
    assert after.text() == "ü"


@pytest.mark.parametrize("field", [b"id", b"event"])
@pytest.mark.parametrize(
    "value", [b"a\xff", b"\xc3", b"\xed\xa0\x80", b"x" * (MAX_LABEL_BYTES + 1)]
)
def test_an_id_or_event_name_that_is_not_utf8_or_too_long_is_a_fault(
    field: bytes, value: bytes
) -> None:
    parser = EventStreamParser(last_event_id="before")
    with pytest.raises(Fault) as caught:
        parser.feed(field + b": " + value + b"\ndata: x\n\n")
    assert caught.value.kind is FaultKind.PARSE
    assert parser.last_event_id == "before"


def test_an_id_and_event_name_of_the_longest_length_are_read() -> None:
    longest = b"x" * MAX_LABEL_BYTES
    [event] = read(b"id: " + longest + b"\nevent: " + longest + b"\ndata: 1\n\n")
    assert event.id == event.event == longest.decode()


def test_what_is_neither_read_nor_kept_need_not_be_utf8() -> None:
    assert read(b": \xff\nfoo\xff: \xff\ndata: x\n\n") == [ServerSentEvent(b"x")]


@pytest.mark.parametrize("size", [0, 1, 5])
def test_an_event_of_just_the_bound_passes_and_one_byte_more_is_a_fault(size: int) -> None:
    assert read(b"data: 12345678\n\n", size, max_event_bytes=8) == [ServerSentEvent(b"12345678")]
    assert read(b"data:1234\ndata: 567\n\n", size, max_event_bytes=8) == [
        ServerSentEvent(b"1234\n567")
    ]
    for stream in (b"data: 123456789\n\n", b"data:123456789\n\n", b"data:1234\ndata: 5678\n\n"):
        with pytest.raises(Fault, match="max_event_bytes") as caught:
            read(stream, size, max_event_bytes=8)
        assert caught.value.kind is FaultKind.PARSE


def test_empty_data_lines_count_towards_the_bound() -> None:
    assert read(b"data\n" * 9 + b"\n", max_event_bytes=8) == [ServerSentEvent(b"\n" * 8)]
    with pytest.raises(Fault, match="more than 8 bytes"):
        read(b"data\n" * 10, max_event_bytes=8)


@pytest.mark.parametrize("line", [b": 3456789012345", b"foo: 6789012345", b"234567890123456"])
def test_a_line_over_the_bound_is_a_fault_whatever_it_says_and_before_it_ends(line: bytes) -> None:
    for stream in (line, line + b"\n"):
        with pytest.raises(Fault, match="a line of the event stream is longer than 14 bytes"):
            read(stream, max_event_bytes=8)
        assert read(stream[1:], max_event_bytes=8) == []


def test_a_quiet_stream_of_comments_never_reaches_the_bound() -> None:
    assert read(b": ping\n" * 1000 + b"data: x\n\n", max_event_bytes=8) == [ServerSentEvent(b"x")]


def test_events_before_a_fault_are_returned_and_then_the_fault_is_raised_for_good() -> None:
    parser = EventStreamParser(max_event_bytes=8)
    stream = b"id: 1\ndata: a\n\nid: 2\ndata: 123456789\n\ndata: b\n\n"
    assert parser.feed(stream) == [ServerSentEvent(b"a", id="1")]
    assert parser.fault is not None
    for again in (lambda: parser.feed(b"data: c\n\n"), lambda: parser.feed(b""), parser.end):
        with pytest.raises(Fault, match="longer than") as caught:
            again()
        assert caught.value is parser.fault
    assert parser.last_event_id == "1"


def test_a_chunk_larger_than_a_piece_reads_like_small_ones() -> None:
    stream = b"\r\n".join([b"data: " + b"x" * n for n in range(PIECE_BYTES - 40, PIECE_BYTES)][:4])
    stream += b"\r\n\r\n" + b"data: y\r\n\r\n" * 1000
    assert read(stream) == read(stream, 4096) == reference(stream)[0]
    # The cut between two pieces falls between CR and LF.
    padding = b"data: " + b"x" * (PIECE_BYTES - 8) + b"\r"
    assert len(padding) == PIECE_BYTES - 1
    assert len(read(b"\n" + padding + b"\n\r\ndata: z\r\n\r\n")) == 2


class Work:
    """How many bytes were searched, copied or appended."""

    def __init__(self) -> None:
        self.bytes = 0


class CountedChunk(bytes):
    """A chunk that counts what is done to all of it."""

    work: Work

    def splitlines(self, keepends: bool = False) -> list[bytes]:
        self.work.bytes += len(self)
        return super().splitlines(keepends)


class CountedBuffer(bytearray):
    """A buffer that counts what is appended and what is copied out, or searched again."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.work = work

    def __iadd__(self, value: bytes) -> "CountedBuffer":  # type: ignore[override]
        self.work.bytes += len(value)
        super().__iadd__(value)
        return self

    def __add__(self, value: bytes) -> "CountedBuffer":  # type: ignore[override]
        self.work.bytes += len(self) + len(value)
        rebuilt = CountedBuffer(self.work)
        rebuilt.extend(self)
        rebuilt.extend(value)
        return rebuilt

    def __bytes__(self) -> bytes:
        self.work.bytes += len(self)
        return bytes(memoryview(self))

    def find(self, *args: object) -> int:  # type: ignore[override]
        self.work.bytes += len(self)
        return super().find(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stream", "size"),
    [
        (b"data: " + b"x" * (1 << 20) + b"\n\n", 1),
        (b"data: " + b"x" * (8 << 20) + b"\n\n", 16 * 1024),
        (b"data: y\r\n" * (1 << 16) + b"\r\n", 1),
        (b"data\n" * (1 << 16) + b"\n", 3),
    ],
    ids=["1 MiB by bytes", "8 MiB line by 16 KiB", "many short lines", "many empty lines"],
)
def test_no_chunking_makes_the_parser_do_more_than_linear_work(stream: bytes, size: int) -> None:
    work = Work()
    parser = EventStreamParser()
    parser._partial = CountedBuffer(work)
    events: list[ServerSentEvent] = []
    for at in range(0, len(stream), size):
        chunk = CountedChunk(stream[at : at + size])
        chunk.work = work
        events += parser.feed(chunk)
    assert events == reference(stream)[0]
    assert isinstance(parser._partial, CountedBuffer)
    assert len(stream) <= work.bytes <= 3 * len(stream)


def test_an_event_of_many_data_lines_grows_in_place() -> None:
    work = Work()
    parser = EventStreamParser()
    data = CountedBuffer(work)
    parser._data = data  # as after an empty first line
    assert feed_all(parser, [b"data: xy\n"] * 10_000) == []
    assert parser._data is data
    assert work.bytes == 3 * 10_000
    assert parser.feed(b"\n") == [ServerSentEvent(b"\nxy" * 10_000)]


def test_the_counting_itself_notices_a_buffer_that_is_rebuilt_for_each_chunk() -> None:
    rebuilt, searched = Work(), Work()
    buffer, again = CountedBuffer(rebuilt), CountedBuffer(searched)
    for _ in range(64):
        buffer = buffer + b"x"
        again += b"x"
        again.find(b"\n")
    assert buffer == again == b"x" * 64
    assert min(rebuilt.bytes, searched.bytes) > 30 * 64


def test_the_default_bound_holds_a_message_of_a_pipe() -> None:
    assert MAX_EVENT_BYTES >= MAX_LINE_BYTES


# ---- writing -------------------------------------------------------------------------------------


def test_an_event_is_written_as_one_block() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"") == b"data: \n\n"
    assert (
        encode_event(b"/post?s=1", event="endpoint", id="s1-7", retry_ms=500)
        == b"id: s1-7\nevent: endpoint\nretry: 500\ndata: /post?s=1\n\n"
    )


def test_a_priming_event_is_written_with_an_id_and_empty_data() -> None:
    assert read(priming_event("s1-0")) == [ServerSentEvent(b"", "message", "s1-0", None)]
    assert read(priming_event("s1-0", retry_ms=0)) == [ServerSentEvent(b"", "message", "s1-0", 0)]


@pytest.mark.parametrize("text", ["", "ping", "ü", "data: x", "\ud800"])
def test_a_comment_is_one_block_that_readers_skip(text: str) -> None:
    written = comment(text)
    assert written.startswith(b":")
    assert written.endswith(b"\n\n")
    assert read(written + b"data: x\n\n" + written) == [ServerSentEvent(b"x")]


def test_the_shortest_comment_is_a_colon() -> None:
    assert comment() == b":\n\n"
    assert comment("ping") == b": ping\n\n"


@given(st.binary(max_size=60), st.integers(1, 10))
def test_whatever_the_data_it_is_read_back_as_one_event_with_its_line_ends_as_lf(
    data: bytes, size: int
) -> None:
    expected = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for name, label in ((None, None), ("e", None), (None, "i")):
        written = encode_event(data, event=name, id=label)
        [event, after] = read(written + b"data: next\n\n", size)
        assert event == ServerSentEvent(expected, name or "message", label)
        assert after == ServerSentEvent(b"next")


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize(
    "forged", [b"id: 666", b"event: endpoint", b"retry: 1", b": x", b"", b"data: y"]
)
def test_nothing_in_the_data_forges_a_field_or_an_event(line_end: bytes, forged: bytes) -> None:
    data = line_end.join([b"x", forged, b"", b"data: second event", b"", b""])
    parser = EventStreamParser()
    events = parser.feed(encode_event(data))
    assert events == [ServerSentEvent(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))]
    assert (parser.last_event_id, parser.retry_ms) == ("", None)


@pytest.mark.parametrize(
    "label",
    ["", "a\nid: 666", "a\rb", "a\r\nb", "a\0b", "a b", " ", "ü", "\ud800", "\x7f", "x" * 1025],
)
def test_an_id_or_event_name_that_could_forge_or_not_come_back_is_refused(label: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"event id .* visible ASCII"):
        encode_event(b"{}", id=label)
    with pytest.raises(LocalProtocolError, match=r"event id .* visible ASCII"):
        priming_event(label)
    with pytest.raises(LocalProtocolError, match=r"event name .* visible ASCII"):
        encode_event(b"{}", event=label)


@pytest.mark.parametrize("retry_ms", [-1, MAX_RETRY_MS + 1])
def test_a_retry_that_no_reader_could_keep_is_refused(retry_ms: int) -> None:
    with pytest.raises(LocalProtocolError, match="retry_ms"):
        encode_event(b"{}", retry_ms=retry_ms)
    with pytest.raises(LocalProtocolError, match="retry_ms"):
        priming_event("1", retry_ms=retry_ms)


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "x" * 100 + "\r\ndata: y"])
def test_a_comment_with_a_line_break_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="line break"):
        comment(text)


@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=30),
    st.integers(0, MAX_RETRY_MS),
)
def test_ids_names_and_retries_are_read_back_as_written(label: str, retry_ms: int) -> None:
    written = encode_event(MESSAGE, event=label, id=label, retry_ms=retry_ms)
    assert read(written, 1) == [ServerSentEvent(MESSAGE, label, label, retry_ms)]
