"""Frames in: each kind is read as what it is, and its id is kept byte for byte.

What is refused stands in `test_jsonrpc_refusals`, what goes out in `test_jsonrpc_out`.
"""

import json
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.jsonrpc import (
    MAX_BATCH,
    MAX_ID_BYTES,
    NOTHING,
    Batch,
    ErrorResponse,
    Notification,
    Request,
    ResultResponse,
    SplitParams,
    decode,
    decode_members,
    encode,
    encode_batch,
    encode_error,
    encode_request,
    encode_result,
    is_bare_call,
    parse_id,
    split_params,
)
from colonnade.protocol.revision import Revision
from frames import CALL, GOOD, INVALID, LONG, PARSE, WITH_ID, answer, fault_of, plain

# ---------------------------------------------------------------- the four kinds of frames

FRAMES = [
    (b'{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x":1}}', ("request", 7, "a/b", b'{"x":1}', b"7")),
    (b'{"jsonrpc":"2.0","id":"7","method":"a/b","params":{}}', ("request", "7", "a/b", b"{}", b'"7"')),
    (b'{"jsonrpc":"2.0","id":7,"method":"a/b"}', ("request", 7, "a/b", b"", b"7")),
    (b'{"jsonrpc":"2.0","id":7,"method":""}', ("request", 7, "", b"", b"7")),
    (b'{"params":{},"method":"a","id":7,"jsonrpc":"2.0"}', ("request", 7, "a", b"{}", b"7")),
    (b'{"jsonrpc":"2.0","method":"a/b"}', ("notification", "a/b", b"")),
    (b'{"jsonrpc":"2.0","method":"a/b","params":{"x":[1]}}', ("notification", "a/b", b'{"x":[1]}')),
    (b'{"jsonrpc":"2.0","id":7,"result":{}}', ("reply", 7, b"{}")),
    (b'{"jsonrpc":"2.0","id":"7","result":{"x":[]}}', ("reply", "7", b'{"x":[]}')),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}', ("failure", 7, -1, "m", b"")),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m","data":[1]}}', ("failure", 7, -1, "m", b"[1]")),
    # An integral float is an integer (D31).
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":-1.0,"message":"m"}}', ("failure", 7, -1, "m", b"")),
    # D2: no id, or null, where the other side could not read it.
    (b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}', ("failure", None, -1, "m", b"")),
    (b'{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}', ("failure", None, -1, "m", b"")),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), FRAMES)
def test_a_message_is_the_same_if_the_members_of_results_are_wanted(
    body: bytes, expected: tuple[object, ...]
) -> None:
    assert plain(decode_members(body)) == expected


def test_the_members_of_a_result_are_found_while_its_response_is_decoded() -> None:
    result = b'{"content":[ {} ],"_meta":{},"x":1.0}'
    parts = b'"jsonrpc":"2.0"', b'"id":12', b'"result":' + result
    for order in permutations(parts):
        body = b"{%b}" % b",".join(order)
        found = decode_members(body)
        assert decode(body) == replace(found, members=None)
        assert isinstance(found, ResultResponse)
        assert (found.id, bytes(found.result)) == (12, result)
        assert found.members is not None
        named = [(name, bytes(value)) for name, value in found.members.items()]
        assert named == [("content", b"[ {} ]"), ("_meta", b"{}"), ("x", b"1.0")]


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{"x":1,"x":2}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"x": 1}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"\\u0061":1}}',
        '{"jsonrpc":"2.0","id":7,"result":{"ü":1}}'.encode(),
        b'{"jsonrpc":"2.0","id":7,"result":{"x":1},"y":{}}',
        b'{"jsonrpc":"2.0","id":"7","result":{"x":1}}',
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
    ],
)
def test_members_are_not_found_in_any_but_the_compact_form(body: bytes) -> None:
    found = decode_members(body)
    assert isinstance(found, ResultResponse)
    assert found.members is None
    assert found == decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{"x":1},"result":{"y":1}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"x":1},"error":{}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"x":' + b"[" * 70 + b"]" * 70 + b"}}",
        b'{"jsonrpc":"2.0","id":7,"result":{"x":1}',
        b'{"jsonrpc":"2.0","id":7,"result":[1]}',
    ],
)
def test_what_is_no_response_is_refused_also_if_its_members_are_wanted(body: bytes) -> None:
    with pytest.raises(Fault) as caught:
        decode_members(body)
    assert str(caught.value) == str(fault_of(body))


@pytest.mark.spec("R0001", "R0030")
@pytest.mark.parametrize(("body", "expected"), FRAMES)
def test_each_kind_of_message_is_read_as_what_it_is(
    body: bytes, expected: tuple[object, ...], revision: Revision
) -> None:
    assert plain(decode(body)) == expected


@pytest.mark.parametrize(("body", "expected"), FRAMES)
def test_whitespace_escapes_and_unknown_members_change_nothing(
    body: bytes, expected: tuple[object, ...]
) -> None:
    spaced = (
        body.replace(b'"jsonrpc":', b' \r\n\t"jsonrpc" : ').replace(b',"', b'\n, "', 1) + b" \n"
    )
    assert plain(decode(spaced)) == expected
    assert plain(decode(body.replace(b'"jsonrpc"', b'"js\\u006fnrpc"'))) == expected
    assert plain(decode(body.replace(b'"2.0"', b'"2\\u002e0"'))) == expected
    assert plain(decode(body.replace(b"{", b'{"later":{"x":[null,"\\""]},', 1))) == expected
    assert plain(decode(body.replace(b"{", b'{"la\\"ter":1,', 1))) == expected


def test_an_unknown_member_just_as_long_as_an_id_does_not_make_a_request() -> None:
    body = b'{"jsonrpc":"2.0","method":"a","params":{},"x":1}'
    assert plain(decode(body)) == ("notification", "a", b"{}")


def test_an_unknown_member_just_as_long_as_params_does_not_pass_for_them() -> None:
    body = b'{"jsonrpc":"2.0","id":7,"method":"a","abcd":{}}'
    assert plain(decode(body)) == ("request", 7, "a", b"", b"7")


@pytest.mark.spec("R0243")
def test_text_outside_of_ascii_is_read_and_written_as_utf8(revision: Revision) -> None:
    body = encode_request('"ключ"'.encode(), "größe/計", encode({"имя": "🙂"}))
    assert body.decode("utf-8")
    assert plain(decode(body)) == (
        "request", "ключ", "größe/計", '{"имя":"🙂"}'.encode(), '"ключ"'.encode()
    )  # fmt: skip


# ---------------------------------------------------------------- ids

IDS: list[tuple[bytes, int | str]] = [
    (b"7", 7),
    (b'"7"', "7"),
    (b"0", 0),
    (b"-0", 0),
    (b"-7", -7),
    (b"1.0", 1),
    (b"-1.0", -1),
    (b"1e2", 100),
    (b"1E+2", 100),
    (b"1.5e1", 15),
    (b"9007199254740992.0", 2**53),
    (b"9223372036854775807", 2**63 - 1),
    (b"9223372036854775808", 2**63),
    (b"-9223372036854775809", -(2**63) - 1),
    (b"9" * MAX_ID_BYTES, int("9" * MAX_ID_BYTES)),
    (b'""', ""),
    (b'" 7 "', " 7 "),
    (b'"\\u0041"', "A"),
    (b'"\\u001F"', "\x1f"),
    (b'"\\u001f"', "\x1f"),
    (b'"a\\/b\\n"', "a/b\n"),
    (b'"\\""', '"'),
    ('"ключ"'.encode(), "ключ"),
    (b'"\\ud83d\\ude42"', "🙂"),
    (b'"%b"' % (b"x" * (MAX_ID_BYTES - 2)), "x" * (MAX_ID_BYTES - 2)),
]


@pytest.mark.spec("R0031", "R0034", "R0456")
@pytest.mark.parametrize(("raw", "id"), IDS)
def test_an_id_is_a_string_or_an_integer_and_is_echoed_byte_for_byte(
    raw: bytes, id: int | str, revision: Revision
) -> None:
    for body in (
        WITH_ID % raw,
        b" " + WITH_ID % raw,
        b'{"jsonrpc":"2.0","id":%b,"method":"a"}' % raw,
    ):
        request = decode(body)
        assert isinstance(request, Request)
        assert (type(request.id), request.id, request.raw_id) == (type(id), id, raw)
    assert encode_result(request.raw_id, b"{}") == b'{"jsonrpc":"2.0","id":%b,"result":{}}' % raw
    failure = encode_error(request.raw_id, -32603, "m", null_id=revision.error_id_required)
    assert failure == b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32603,"message":"m"}}' % raw
    for body in (encode_result(raw, b"{}"), failure):
        reply = decode(body)
        assert isinstance(reply, ResultResponse | ErrorResponse)
        assert (type(reply.id), reply.id) == (type(id), id)


def test_the_id_7_is_not_the_id_of_a_string() -> None:
    assert parse_id(b"7") != parse_id(b'"7"')


NO_IDS = [
    b"true", b"false", b"1.5", b"-0.5", b"1e-1", b"[]", b"[7]", b"{}", b'{"id":7}', b"1e400",
    b"9007199254740994.0", b"1e300", LONG, b"-" + LONG, b"9" * (MAX_ID_BYTES + 1),
    b'"%b"' % (b"x" * (MAX_ID_BYTES - 1)),
]  # fmt: skip


@pytest.mark.spec("R0031")
@pytest.mark.parametrize("raw", NO_IDS)
def test_any_other_id_is_refused_and_not_echoed(raw: bytes, revision: Revision) -> None:
    for body in (WITH_ID % raw, b" " + WITH_ID % raw, encode_result(raw, b"{}")):
        fault = fault_of(body)
        assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b"", None)
        assert "id" in fault.message
    with pytest.raises(Fault):
        parse_id(raw)


@pytest.mark.spec("R0032")
def test_an_id_that_is_null_is_refused_and_does_not_make_a_notification(revision: Revision) -> None:
    for body in (WITH_ID % b"null", b'{"jsonrpc":"2.0","id":null,"method":"a"}'):
        fault = fault_of(body)
        assert (fault.kind, fault.raw_id) == (INVALID, b"")
        assert answer(fault, revision)["error"]["code"] == -32600


# ---------------------------------------------------------------- batches


@pytest.mark.spec("R0234")
def test_a_batch_is_received_with_each_of_its_frames_in_order(revision: Revision) -> None:
    assert revision.batches
    bodies = [body for body, _ in FRAMES]
    expected = tuple(expected for _, expected in FRAMES)
    assert plain(decode(encode_batch(bodies))) == expected
    assert plain(decode(b" [ " + b" , ".join(bodies) + b" ]\n")) == expected


def test_an_empty_batch_is_an_invalid_request() -> None:
    for body in (b"[]", b" [ ] "):
        fault = fault_of(body)
        assert (fault.kind, fault.raw_id) == (INVALID, b"")


def test_a_batch_of_rubbish_is_a_fault_for_each_item_and_the_good_ones_are_kept() -> None:
    good = b'{"jsonrpc":"2.0","id":8,"method":"a"}'
    body = b'[1,"x",null,[],[%b],{},%b,%b,{"jsonrpc":"2.0","id":true,"method":"a"}]' % (
        good, CALL % b"[]", good
    )  # fmt: skip
    none = ("fault", INVALID, b"", None)
    assert plain(decode(body)) == (
        none, none, none, none, none, none,
        ("fault", INVALID, b"7", None), ("request", 8, "a", b"", b"8"), none,
    )  # fmt: skip


def test_a_batch_inside_a_batch_is_a_fault() -> None:
    assert plain(decode(b"[[[]]]")) == (("fault", INVALID, b"", None),)


def test_a_batch_may_be_this_large_and_no_larger() -> None:
    item = b'{"jsonrpc":"2.0","method":"a"}'
    largest = decode(encode_batch([item] * MAX_BATCH))
    assert isinstance(largest, Batch)
    assert len(largest.items) == MAX_BATCH
    for body in (encode_batch([item] * (MAX_BATCH + 1)), b"[" + b"1," * 1_000_000 + b"1]"):
        fault = fault_of(body)
        assert (fault.kind, fault.raw_id, str(MAX_BATCH) in fault.message) == (INVALID, b"", True)


# ---------------------------------------------------------------- any bytes at all


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_frame_or_a_fault(body: bytes) -> None:
    try:
        assert decode(body)
    except Fault as fault:
        kind = fault.kind
    else:
        kind = PARSE
    assert kind in (PARSE, INVALID)


VALUES = {
    "jsonrpc": [b'"2.0"', b'"2.0"', b'"2.0"', b'"2\\u002e0"', b'"1.0"', b"2"],
    "id": [b"7", b"-0", b'"x"', b'"\\u0041"', b"1.0", b"1.5", b"true", b"null", b"9" * 20],
    "method": [b'"a"', b'"a\\u0062"', '"é"'.encode(), b'""', b"5"],
    "params": [b"{}", b'{"a":"b}"}', b'{"params":{}}', b"[{}]", b"null", b'"}"'],
    "result": [b"{}", b'{"id":1}', b"1"],
    "error": [b'{"code":1,"message":"m"}', b'{"code":1.5,"message":"m"}', b"{}"],
    "x": [b"1", b"{}"],
    'y"': [b'"id"', b"[]"],
}


def reading(pairs: list[tuple[str, bytes]]) -> str:
    """What a message with these members is, worked out the plain way."""
    members = dict(pairs)
    present = set(members)
    if len(present) < len(pairs) or json.loads(members.get("jsonrpc", b"0")) != "2.0":
        return "fault"
    id = json.loads(members.get("id", b"null"))
    id_is_good = isinstance(id, str) or (
        isinstance(id, int | float) and id in (7, 0, 1.0, 10**20 - 1) and id is not True
    )
    if "method" in present:
        good = members["method"] != b"5" and not present & {"result", "error"}
        good = good and members.get("params", b"{")[:1] == b"{"
        if "id" not in present:
            return "notification" if good else "fault"
        return "request" if good and id_is_good else "fault"
    if present & {"result", "error"} == {"result"}:
        return "reply" if members["result"] != b"1" and id_is_good else "fault"
    if present & {"result", "error"} == {"error"}:
        good = members["error"] == VALUES["error"][0] and (id_is_good or id is None)
        return "failure" if good else "fault"
    return "fault"


@st.composite
def messages(draw: st.DrawFn) -> tuple[list[tuple[str, bytes]], bytes]:
    """Members in any order, perhaps twice, and the text of them, spaced and escaped at will."""
    names = draw(
        st.lists(st.sampled_from([*VALUES, "jsonrpc", "id", "method", "params"]), max_size=7)
    )
    names += [] if draw(st.integers(0, 3)) == 0 else ["jsonrpc"] * ("jsonrpc" not in names)
    pairs = [(name, draw(st.sampled_from(VALUES[name]))) for name in names]
    spaces = st.sampled_from([b"", b" ", b"\n"]) if draw(st.booleans()) else st.just(b"")
    parts: list[bytes] = []
    for name, value in pairs:
        quoted = json.dumps(name).encode()
        if draw(st.integers(0, 9)) == 0:
            quoted = b'"\\u%04x%b' % (ord(name[0]), quoted[2:])
        parts.append(
            draw(spaces) + quoted + draw(spaces) + b":" + draw(spaces) + value + draw(spaces)
        )
    return pairs, draw(spaces) + b"{" + b",".join(parts) + b"}" + draw(spaces)


@given(messages())
def test_a_message_is_read_as_its_members_say_whatever_their_order_and_spelling(
    message: tuple[list[tuple[str, bytes]], bytes],
) -> None:
    pairs, body = message
    expected = reading(pairs)
    if expected == "fault":
        assert fault_of(body).kind is INVALID
        return
    frame = decode(body)
    assert plain(frame)[0] == expected
    members = dict(pairs)
    if isinstance(frame, Request):
        assert frame.raw_id == members["id"]
    if isinstance(frame, Request | Notification):
        assert frame.method == json.loads(members["method"])
        assert bytes(frame.params) == members.get("params", b"")
    if isinstance(frame, ResultResponse):
        assert bytes(frame.result) == members["result"]


# ---------------------------------------------------------------- where a request goes


def test_the_head_of_params_is_split_off_and_the_rest_stays_raw() -> None:
    params = b'{"_meta":{"a":1},"name":"n","arguments":{"x":2}}'
    split = split_params(Raw(params))
    assert (bytes(split.meta), split.name, split.uri) == (b'{"a":1}', "n", None)
    assert bytes(split.arguments) == b'{"x":2}'
    assert split_params(Raw(b'{"uri":"file:///a","other":[1]}')).uri == "file:///a"
    assert split_params(Raw(b'{"name":5}')).name == 5
    assert split_params(Raw(b'{"_meta":{},"name":5,"arguments":{}}')).name == 5
    assert split_params(NOTHING) == SplitParams()
    assert split_params(Raw(b"{}")) == SplitParams()


@pytest.mark.parametrize(
    "params",
    [
        b'{"name":"n","name":"m"}',
        b'{"name":"n","arguments":{},"arguments":{}}',
        b'{"n\\u0061me":"n","name":"n"}',
        b'{"_meta":{},"_meta":{},"name":"n","arguments":{}}',
        b'{"uri":"a","uri":"b"}',
        b'{"taskId":"a","taskId":"b"}',
        b'{"name":1,"name":"n","arguments":{}}',
        b'{"_meta":{},"uri":1,"uri":2,"name":"n"}',
        b'{"_meta":{},"name":"n","x":1,"x":22}',
        b'{"name":{"a":1,"a":2}}',
        b'{ "arguments":{"a":1,"a":2}}',
        b'{"x":{"a":1,"a":2},"y":"z"}',
        b'{"x":1,"x":2}',
    ],
)
def test_a_member_of_params_that_is_there_twice_is_refused(params: bytes) -> None:
    with pytest.raises(Fault) as caught:
        split_params(Raw(params))
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert request(CALL % params).split_params is None


@pytest.mark.parametrize(
    "params",
    [
        b"{}",
        b'{"_meta":{"a":1}}',
        b'{"name":"n"}',
        b'{"uri":"file:///a","_meta":{}}',
        b'{"taskId":"t","_meta":{}}',
        b'{"arguments":{"x":"}"},"name":"n","_meta":{"a":{"a":1,"a":2}}}',
        b'{"name":"n","arguments":[1]}',
    ],
)
def test_params_of_nothing_else_are_split_with_the_frame(params: bytes) -> None:
    found = request(CALL % params)
    assert found.split_params == split_params(Raw(params))
    assert (bytes(found.params), found.raw_id) == (params, b"7")
    for odd in (b" " + CALL, CALL.replace(b"7", b'"7"'), CALL.replace(b"}", b',"x":"}"}')):
        found = request(odd % params)
        assert (bytes(found.params), found.split_params) == (params, None)


@pytest.mark.parametrize(
    "params",
    [
        b'{"name":"n" }',
        b'{"name":"\\u0061"}',
        '{"name":"é"}'.encode(),
        b'{"name":null}',
        b'{"name":7}',
        b'{"name":1e400}',
        b'{"uri":["u"]}',
        b'{"taskId":7}',
        b'{"taskId":null}',
        b'{"taskId":"t","inputResponses":{}}',
        b'{"n\\u0061me":"n"}',
        b'{"cursor":"n"}',
        b'{"name":"n","cursor":""}',
    ],
)
def test_params_of_anything_else_are_left_whole(params: bytes) -> None:
    found = request(CALL % params)
    assert (bytes(found.params), found.split_params) == (params, None)


def request(body: bytes) -> Request:
    frame = decode(body)
    assert isinstance(frame, Request)
    return frame


def test_what_is_inside_meta_and_arguments_is_left_to_whoever_reads_them() -> None:
    split = split_params(Raw(b'{"_meta":{"a":1,"a":2},"name":"n","arguments":{"x":1,"x":2}}'))
    assert bytes(split.arguments) == b'{"x":1,"x":2}'
    assert split_params(Raw(b'{"name":"n","arguments":{"x":1,"x":2}}')).name == "n"
    assert split_params(Raw(b'{"uri":"u","_meta":{"a":1,"a":2}}')).uri == "u"


@pytest.mark.parametrize("params", [b'{"name":1e400}', b'{"uri":%b}' % LONG, b"[]"])
def test_params_that_cannot_be_read_are_refused(params: bytes) -> None:
    with pytest.raises(Fault) as caught:
        split_params(Raw(params))
    assert caught.value.kind is FaultKind.INVALID_PARAMS


def test_an_integer_of_five_thousand_digits_is_kept_as_it_is_until_somebody_reads_it() -> None:
    inside = b'{"x":%b}' % LONG
    assert plain(decode(CALL % inside)) == ("request", 7, "a", inside, b"7")
    assert plain(decode(b" " + CALL % inside)) == ("request", 7, "a", inside, b"7")
    assert plain(decode(GOOD % inside)) == ("reply", 7, inside)


@pytest.mark.parametrize(
    ("params", "bare"),
    [
        (b'{"name":"a","arguments":{"b":1}}', True),
        (b'{"_meta":{"x":1},"name":"a","arguments":{}}', True),
        (b'{"arguments":{},"name":"a"}', True),
        (b'{"name":"a"}', False),
        (b'{"arguments":{}}', False),
        (b'{"name":"a","arguments":{},"requestState":"s"}', False),
        (b'{"name":"a","arguments":{},"task":{}}', False),
        (b'{"name":"a", "arguments":{}}', False),
        (b'{"name":"\\u0061","arguments":{}}', False),
        (b'{"name":7,"arguments":{}}', False),
        (b'{"name":"a","arguments":{},"uri":"u"}', False),
        (b'{"name":"a","arguments":{},"taskId":"t"}', False),
    ],
)
def test_a_call_of_nothing_but_a_name_and_arguments_is_known_by_its_length(
    params: bytes, bare: bool
) -> None:
    raw = Raw(params)
    assert is_bare_call(Request(7, "a", raw), split_params(raw)) is bare
    found = request(CALL % params)
    assert is_bare_call(found, found.split_params or split_params(raw)) is bare
