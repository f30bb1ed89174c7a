"""What a child says, cut into lines and judged: no process, no loop.

Rules: whatever is written, what is kept of it is bounded, and every message goes on.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import Fault
from colonnade.protocol.jsonrpc import MAX_LINE_BYTES
from colonnade.transport.process.output import (
    ERROR_LINE_BYTES,
    NOISE_BYTES,
    NOISE_CHARS,
    NOISE_KEPT,
    NOISE_LINES,
    TAIL_BYTES,
    TAIL_LINES,
    LineCallbacks,
    StderrTail,
    StdoutFilter,
    plain,
    redact,
)

MESSAGE = b'{"jsonrpc":"2.0","id":1,"result":{}}'


class FilterRecorder:
    """A sieve, and all that came through it."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.received: list[bytes] = []
        self.refused: list[Fault] = []
        self.spoilt: list[str] = []
        self.littered: list[str] = []
        hears = LineCallbacks(
            self.received.append,
            self.refused.append,
            lambda what, more: self.spoilt.append(what + more),
            self.littered.append,
        )
        self.sieve = StdoutFilter(hears, max_line_bytes)


@pytest.mark.parametrize(
    "line",
    [
        b"Listening on stdio",
        b"[info] a log line",
        b'[debug] sends {"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"level":"info","message":"a log in JSON"}',
        b"{'jsonrpc': 'a dict of Python', \"jsonrpc\": 1}",
        b'{"jsonrpc":"2.0","id":1,"res[info] a log line in the middle',
        b"\x1b[32m" + MESSAGE,
        b"42",
        b'"jsonrpc"',
        b"null",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_message_is_kept_back_and_what_is_goes_on(line: bytes) -> None:
    recorder = FilterRecorder()
    recorder.sieve.feed(MESSAGE + b"\n" + line + b"\r\n\n" + MESSAGE + b"\n")
    assert recorder.received == [MESSAGE, MESSAGE]
    assert (recorder.sieve.messages, recorder.sieve.noise_lines) == (2, 1)
    assert len(recorder.littered) == 1
    assert not recorder.spoilt
    assert not recorder.refused


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"1.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1}',
        b'[{"jsonrpc":"2.0","method":"a"}]',
        b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
        '{"jsonrpc":"2.0","method":"grüß"}'.encode(),
    ],
)
def test_whether_a_message_is_a_good_one_is_for_others_to_say(line: bytes) -> None:
    recorder = FilterRecorder()
    recorder.sieve.feed(line + b"\n")
    assert recorder.received == [line]


def test_a_server_that_says_nothing_but_rubbish_is_none() -> None:
    long = b"x" * 10_000
    for data, many in ((b"y\n", NOISE_LINES), (long + b"\n", NOISE_BYTES // len(long) + 1)):
        recorder = FilterRecorder()
        for _ in range(many - 1):
            recorder.sieve.feed(data)
        assert not recorder.spoilt
        recorder.sieve.feed(data)
        assert recorder.spoilt == ["wrote no message; is it an MCP server on stdio?"]
        assert len(recorder.sieve.kept) == NOISE_KEPT
        assert max(map(len, recorder.sieve.kept)) <= NOISE_CHARS


def test_a_server_that_speaks_may_litter() -> None:
    recorder = FilterRecorder()
    recorder.sieve.feed(MESSAGE + b"\n" + b"y\n" * 10 * NOISE_LINES + MESSAGE + b"\n")
    assert len(recorder.received) == 2
    assert not recorder.spoilt


def test_a_line_that_is_too_long_spoils_it_whatever_it_was() -> None:
    recorder = FilterRecorder(100)
    recorder.sieve.feed(b'{"jsonrpc":"2.0","id":1,"result":{"a":"')
    for _ in range(10):
        recorder.sieve.feed(b"x" * 50)
    assert recorder.spoilt == ["wrote a line of more than 100 bytes"]
    assert not recorder.received


def test_at_the_end_half_a_line_is_rubbish_and_a_whole_one_a_message() -> None:
    recorder = FilterRecorder()
    recorder.sieve.feed(MESSAGE[:-5])
    recorder.sieve.finish()
    assert recorder.littered == [f"half a line: {MESSAGE[:-5].decode()}"]
    recorder = FilterRecorder()
    recorder.sieve.feed(MESSAGE)
    recorder.sieve.finish()
    recorder.sieve.finish()
    assert recorder.received == [MESSAGE]


def test_what_is_not_utf8_reaches_whom_it_concerns() -> None:
    recorder = FilterRecorder()
    for line in (
        b'{"jsonrpc":"2.0","id":7,"result":{"a":"\xe9"}}',
        b'{"jsonrpc":"2.0","id":8,"error":{"code":1,"message":"\xe9"}}',
        b'{"jsonrpc":"2.0","id":"\xe9","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"notifications/\xe9"}',
        b'{"jsonrpc":"3.0\xe9"}',
    ):
        recorder.sieve.feed(line + b"\n")
    assert not recorder.received
    assert [(one.settles, one.expects_no_response, one.raw_id) for one in recorder.refused] == [
        (7, True, b""),
        (8, True, b""),
        (None, False, '"�"'.encode()),
    ]
    assert recorder.sieve.noise_lines == 5


def test_a_broken_reply_reaches_the_call_that_waits_for_it() -> None:
    recorder = FilterRecorder()
    for line in (
        b'{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":8,"result":{"a":"cut',
        b'{"jsonrpc":"2.0","id":9,"result":{"a":"\xe9","b":NaN}}',
        b'{"jsonrpc":"2.0","id":10,"method":"a","params":{"a":NaN}}',
        b'{"jsonrpc" is the protocol, "id":11,"result":{}}',
    ):
        recorder.sieve.feed(line + b"\n")
    assert not recorder.received
    assert [one.settles for one in recorder.refused] == [7, 8, 9]
    assert recorder.sieve.noise_lines == 5


@given(
    st.lists(st.sampled_from([MESSAGE, b"y", b"", b"{", b"\xff", b"[info]"]), max_size=30),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_however_it_is_chunked_every_message_goes_on(lines: list[bytes], sizes: list[int]) -> None:
    recorder, data, at, turn = FilterRecorder(), b"".join(line + b"\n" for line in lines), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        recorder.sieve.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert len(recorder.received) == lines.count(MESSAGE)
    assert recorder.sieve.noise_lines == len([line for line in lines if line not in (MESSAGE, b"")])


# ---------------------------------------------------------------- standard error


@given(st.lists(st.binary(max_size=3000), max_size=20))
def test_what_is_kept_of_standard_error_is_its_end_and_bounded(chunks: list[bytes]) -> None:
    tail = StderrTail()
    for chunk in chunks:
        tail.feed(chunk)
    assert len(tail._kept) <= TAIL_BYTES
    assert b"".join(chunks).endswith(tail._kept)
    lines = tail.lines()
    assert len(lines) <= TAIL_LINES
    assert not {chr(code) for code in (*range(9), 10, 13, 27)} & set("".join(lines))


def test_the_last_lines_are_whole_ones() -> None:
    tail = StderrTail()
    for number in range(10_000):
        tail.feed(b"line %d\n" % number)
    assert tail.lines() == [f"line {number}" for number in range(9980, 10_000)]
    tail = StderrTail()
    tail.feed(b"a" * 3000 + b"\n" + b"b" * 3000)
    assert tail.lines() == ["b" * 3000]
    tail.feed(b"b" * 3000)
    assert tail.lines() == ["b" * TAIL_BYTES]


def test_every_line_is_heard_once_and_long_ones_in_pieces() -> None:
    heard: list[str] = []
    tail = StderrTail(heard.append)
    for chunk in (b"a", b"b\nc\r\n", b"\nd\xff\n", b"x" * ERROR_LINE_BYTES, b"y\nend"):
        tail.feed(chunk)
    assert heard == ["ab", "c", "", "d�", "x" * ERROR_LINE_BYTES, "y"]
    tail.finish()
    tail.finish()
    assert heard[-1] == "end"
    assert len(heard) == 7


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"\x1b[31mred\x1b[0m\n\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", ["red", "xy"]),
        (b"10%\r20%\r\n\n  \nok\x08\x00!", ["10%", "20%", "ok!"]),
        (b"\x9b31m\xc2\x9bx\x1b", ["�31mx"]),
    ],
)
def test_nothing_that_a_terminal_would_obey_is_shown(data: bytes, lines: list[str]) -> None:
    assert plain(data) == lines


def test_secrets_are_blotted_out_the_longest_first() -> None:
    lines = ["key abc and abcdef", "postgres://me:pw@host/db and mail me@host"]
    assert redact(lines, ["abc", "abcdef"]) == [
        "key [redacted] and [redacted]",
        "postgres://[redacted]@host/db and mail me@host",
    ]
