"""Frames out, and lines: what is written is read back, on one line, in bounded words."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.jsonrpc import (
    LARGE_MEMBER,
    MAX_MESSAGE_CHARS,
    LineSplitter,
    decode,
    encode,
    encode_batch,
    encode_error,
    encode_members,
    encode_notification,
    encode_request,
    encode_result,
)
from colonnade.protocol.revision import Revision
from frames import CALL, INVALID, PARSE, answer, fault_of, plain

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
ids = st.integers(-(10**30), 10**30) | st.text(max_size=60)


@pytest.mark.spec("R0001", "R0030", "R0034", "R0038", "R0454", "R0456")
@given(ids, st.text(), objects, st.integers(-(2**53), 2**53), st.none() | json_values)
def test_what_is_written_is_read_back(
    revision: Revision, id: int | str, method: str, content: dict[str, Any], code: int, data: object
) -> None:
    raw_id, inside = encode(id), encode(content)
    null_id = revision.error_id_required
    request = decode(encode_request(raw_id, method, inside))
    assert plain(request) == ("request", id, method, inside, raw_id)
    assert plain(decode(encode_request(raw_id, method, b""))) == (
        "request",
        id,
        method,
        b"",
        raw_id,
    )
    notification = encode_notification(method, inside)
    assert "id" not in json.loads(notification)
    assert plain(decode(notification)) == ("notification", method, inside)
    assert plain(decode(encode_notification(method, b""))) == ("notification", method, b"")
    assert plain(decode(encode_result(raw_id, inside))) == ("reply", id, inside)
    failure = decode(encode_error(raw_id, code, "m", data, null_id=null_id))
    assert plain(failure) == ("failure", id, code, "m", b"" if data is None else encode(data))
    batch = decode(encode_batch([notification, encode_result(raw_id, inside)]))
    assert plain(batch) == (("notification", method, inside), ("reply", id, inside))


def test_an_error_without_an_id_has_none_or_null_as_its_reader_wants_it() -> None:
    assert encode_error(b"", -1, "m") == b'{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}'
    assert encode_error(b"", -1, "m", null_id=True) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}'
    )
    assert json.loads(encode_error(b"7", -1, "m", False))["error"]["data"] is False


KINDS = [PARSE, INVALID, FaultKind.METHOD_NOT_FOUND, FaultKind.INVALID_PARAMS, FaultKind.INTERNAL]


@pytest.mark.spec("R0179", "R1075", "R1076", "R1077", "R1115", "R1120")
@pytest.mark.parametrize("kind", KINDS)
@given(st.text() | st.text(min_size=1).map(lambda text: text * MAX_MESSAGE_CHARS))
def test_the_message_of_an_error_is_one_line_of_bounded_length(
    revision: Revision, kind: FaultKind, words: str
) -> None:
    message = answer(Fault(kind, words), revision)["error"]["message"]
    assert len(message) <= MAX_MESSAGE_CHARS
    assert len(message.splitlines()) <= 1
    assert message == message.strip()


def test_a_short_message_is_left_alone_and_a_long_one_says_that_it_was_cut() -> None:
    def written(message: str) -> str:
        return json.loads(encode_error(b"1", -1, message))["error"]["message"]

    assert (
        written("no such tool: 'größe'; call tools/list")
        == "no such tool: 'größe'; call tools/list"
    )
    assert written("x" * MAX_MESSAGE_CHARS) == "x" * MAX_MESSAGE_CHARS
    assert written("x" * (MAX_MESSAGE_CHARS + 1)) == "x" * (MAX_MESSAGE_CHARS - 1) + "…"
    assert written("first\r\nsecond\u2028third\tfourth") == "first second third fourth"
    assert written("half a pair: \ud800") == "half a pair: ?"


@pytest.mark.spec("R0040")
def test_what_leaves_us_is_one_line_even_if_it_came_in_several(revision: Revision) -> None:
    pretty = Raw(b'{\r\n  "x": "a\\nb",\n  "y": [\r1]\n}')
    raw = bytes(pretty)
    frames = [
        encode_request(b"7", "a\nb", raw),
        encode_notification("a\r", raw),
        encode_result(b"7", raw),
        encode_result(b"7", encode({"structuredContent": pretty})),
        encode_result(b"7", b'{"x":\r1}'),
        encode_error(b"7", -1, "a\nb", pretty, null_id=revision.error_id_required),
        encode_error(b"", -1, "a\nb", pretty, null_id=revision.error_id_required),
    ]
    for frame in [*frames, encode_batch(frames)]:
        assert b"\n" not in frame
        assert b"\r" not in frame
        assert LineSplitter().feed(frame + b"\n") == [frame]
        json.loads(frame)
    assert json.loads(frames[2])["result"] == {"x": "a\nb", "y": [1]}


@pytest.mark.parametrize(
    "value", [object(), {1, object()}, "\ud800", {"x": b"\xff", "y": object()}]
)
def test_what_json_cannot_carry_is_the_callers_mistake(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        encode(value)


def test_a_value_that_holds_itself_is_the_callers_mistake() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(LocalProtocolError):
        encode(circle)


# ---------------------------------------------------------------- lines

lines_of_bytes = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(at)]


@pytest.mark.spec("R0040")
@given(st.lists(lines_of_bytes), lines_of_bytes, st.lists(st.integers(0, 1000)))
def test_a_stream_gives_the_same_lines_however_it_is_cut(
    revision: Revision, sent: list[bytes], unfinished: bytes, places: list[int]
) -> None:
    stream = b"".join(line + b"\n" for line in sent) + unfinished
    lines = LineSplitter()
    found = [line for chunk in cut(stream, places) for line in lines.feed(chunk)]
    assert found == [line.strip(b"\r \t") for line in sent if line.strip(b"\r \t")]


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 1000)))
def test_a_line_that_is_too_long_is_one_fault_and_the_next_one_is_good_again(
    sizes: list[int], places: list[int]
) -> None:
    stream = b"".join(b"x" * size + b"\n" for size in sizes)
    lines = LineSplitter(max_line_bytes=10)
    found = [line for chunk in cut(stream, places) for line in lines.feed(chunk)]
    assert len(found) == sum(1 for size in sizes if size)
    for size, line in zip([size for size in sizes if size], found, strict=True):
        if size <= 10:
            assert line == b"x" * size
        else:
            assert isinstance(line, Fault)
            assert line.kind is PARSE


@pytest.mark.parametrize("size", [1, LARGE_MEMBER + 1])
def test_a_result_by_its_members_is_one_line_of_the_same_bytes(size: int) -> None:
    text = b'[ "%b",\r\n1.0]' % (b"x" * size)
    members = {"_meta": {"a": 1}, 'ü"': Raw(text), "x": Raw(b"1e2")}
    found = encode_members(b"7", members)
    written = text.replace(b"\r\n", b"  ")
    head = '{"jsonrpc":"2.0","id":7,"result":{"_meta":{"a":1},"ü\\"":'.encode()
    assert found == head + written + b',"x":1e2}}'
    assert encode_members(b"7", {}) == b'{"jsonrpc":"2.0","id":7,"result":{}}'


def test_an_endless_line_is_not_kept() -> None:
    lines = LineSplitter(max_line_bytes=10)
    found = [line for _ in range(1000) for line in lines.feed(b"x" * 11)]
    assert len(found) == 1
    assert lines.feed(b"\n{}\n") == [b"{}"]


def test_a_line_break_inside_a_string_cuts_a_message_in_two_that_are_not_json() -> None:
    first, second = LineSplitter().feed(CALL % b'{"x":"a\nb"}' + b"\n")
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert [fault_of(first).kind, fault_of(second).kind] == [PARSE, PARSE]
