"""Frames that are refused: every kind of malformed input has one defined answer.

Each stands in a table with the whole of it: the kind, the id that is echoed, and the call of ours
that it ends. What is inside params and results is tested beside `jsonrpc_text`.
"""

import contextlib
import gc
import json
import re
import sys
from collections.abc import Callable

import pytest

from colonnade.errors import Fault
from colonnade.protocol.jsonrpc import LEGIBLE_DEPTH, MAX_DEPTH, Request, decode
from colonnade.protocol.revision import Revision
from frames import (
    BAD,
    CALL,
    GOOD,
    INVALID,
    LONG,
    PARSE,
    TELL,
    WITH_ID,
    answer,
    cases,
    fault_of,
    plain,
)

NOT_JSON = {
    "nothing": b"",
    "whitespace alone": b" \r\n\t",
    "words": b"hello",
    "the beginning of a message": b'{"jsonrpc":"2.0","id":7,"method":"a"',
    "two messages": b'{"jsonrpc":"2.0","method":"a"}{"jsonrpc":"2.0","method":"a"}',
    "a number and more": b"7 x",
    "a string and more": b'"a"b',
    "a message and more": b'{"jsonrpc":"2.0","method":"a"}x',
    "a comma at the end": b'{"jsonrpc":"2.0","id":7,"method":"a",}',
    "a comma at the end of params": CALL % b'{"x":1,}',
    "single quotes": b"{'jsonrpc':'2.0','method':'a'}",
    "a comment": b'{"jsonrpc":"2.0",/**/"method":"a"}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"a"}',
    "another encoding": '{"jsonrpc":"2.0","method":"a"}'.encode("utf-16"),
    "a batch that does not end": b'[{"jsonrpc":"2.0","method":"a"}',
    "a batch and more": b"[1]2",
    "a Python literal": CALL % b'{"x":True}',
    "a hexadecimal number": CALL % b'{"x":0x10}',
    "a leading zero": CALL % b'{"x":01}',
    "a number without an end": CALL % b'{"x":1.}',
    "a plus": CALL % b'{"x":+1}',
    "an unknown escape": CALL % b'{"x":"\\q"}',
    "a short escape": CALL % b'{"x":"\\u12"}',
    "a line break in a string": CALL % b'{"x":"a\nb"}',
    "a line break in the method": b'{"jsonrpc":"2.0","id":7,"method":"a\nb"}',
    "a line break in the id": WITH_ID % b'"a\nb"',
    "a line break in a name": CALL % b'{"a\nb":1}',
    "a carriage return in a string": CALL % b'{"x":"a\rb"}',
    "a tab in a string": CALL % b'{"x":"a\tb"}',
    "a null character in a string": CALL % b'{"x":"a\0b"}',
    "NaN in params": CALL % b'{"x":NaN}',
    "Infinity in params": CALL % b'{"x":Infinity}',
    "-Infinity in params": CALL % b'{"x":-Infinity}',
    "NaN in a result": GOOD % b'{"x":NaN}',
    "NaN as an id": WITH_ID % b"NaN",
    "Infinity as a code": BAD % b'{"code":Infinity,"message":"m"}',
    "NaN in an unknown member": b'{"jsonrpc":"2.0","method":"a","x":NaN}',
    "NaN in a batch": b"[NaN]",
    "a lone surrogate in params": CALL % b'{"x":"\\ud800"}',
    "a lone low surrogate": CALL % b'{"x":"\\udc00 and more text"}',
    "surrogates the wrong way round": CALL % b'{"x":"\\udc00\\ud800"}',
    "half a pair before another escape": CALL % b'{"x":"\\ud83d\\u0041"}',
    "half a pair before a letter": CALL % b'{"x":"\\ud83dx and more text"}',
    "a lone surrogate in a name": CALL % b'{"\\ud800":1}',
    "a lone surrogate in the method": b'{"jsonrpc":"2.0","id":7,"method":"\\ud800"}',
    "a lone surrogate in the id": WITH_ID % b'"\\ud800"',
    "a lone surrogate in a result": GOOD % b'{"x":"\\ud800"}',
    "a lone surrogate in an unknown member": b'{"jsonrpc":"2.0","method":"a","x":"\\ud800"}',
}  # fmt: skip

NOT_UTF8 = {
    "in params": CALL % b'{"x":"\xff"}',
    "in a result": GOOD % b'{"x":"\xff"}',
    "in the method": b'{"jsonrpc":"2.0","id":7,"method":"\xff"}',
    "in the id": WITH_ID % b'"\xff"',
    "in a name": CALL % b'{"\xff":1}',
    "in an unknown member": b'{"jsonrpc":"2.0","method":"a","x":"\xff"}',
    "in an unknown name": b'{"jsonrpc":"2.0","method":"a","\xff":1}',
    "in a batch": b'[{"jsonrpc":"2.0","method":"\xff"}]',
    "cut off": CALL % b'{"x":"\xc3"}',
    "a surrogate": CALL % b'{"x":"\xed\xa0\x80"}',
    "an overlong quote": CALL % b'{"x":"\xc0\xa2"}',
    "beyond Unicode": CALL % b'{"x":"\xf4\x90\x80\x80"}',
}


def waited_for(body: bytes) -> int | None:
    """Our call whose reply this began to be."""
    return 7 if body.startswith((GOOD[: GOOD.index(b"%b")], BAD[: BAD.index(b"%b")])) else None


@pytest.mark.spec("R0001", "R0030")
@cases(NOT_JSON)
def test_what_is_not_json_is_a_parse_error_without_an_id(case: bytes, revision: Revision) -> None:
    fault = fault_of(case)
    assert (fault.kind, fault.raw_id, fault.settles) == (PARSE, b"", waited_for(case))
    answered = answer(fault, revision)
    assert answered["error"]["code"] == -32700
    assert answered.get("id", "none") == (None if revision.error_id_required else "none")


@pytest.mark.parametrize(
    "params",
    [
        b'{"x":"\\ud800"}',
        b'{"x":"\\uDBFF and more text, which another reader would have to read"}',
        b'{"x":"\\\\\\ud83d\\n"}',
        b'{"x":"\\ud83d\\u0041"}',
        b'{"x":"\\ud83d\\ud83d\\ude00"}',
        b'{"x":"\\ud83d\\ude00","\\uD9ab":1}',
    ],
)
def test_half_a_surrogate_pair_is_called_that(params: bytes) -> None:
    for body in (CALL % params, b"[%b]" % (CALL % params)):
        message = fault_of(body).message
        said = re.fullmatch(
            r"not JSON: (\\u\w{4}) \(byte (\d+)\) is a lone surrogate; "
            "write both halves of the pair or neither",
            message,
        )
        assert said is not None, message
        where = int(said[2])
        assert body[where : where + 6].decode() == said[1]


@pytest.mark.parametrize("end", [b"", b"\\", b"\\u", b"\\ud", b"\\ude", b"\\ude0", b"\\ude00"])
def test_what_ends_within_a_pair_is_cut_short(end: bytes) -> None:
    assert "truncated" in fault_of(b'{"jsonrpc":"2.0","x":"\\ud83d' + end).message
    assert "truncated" in fault_of(b'{"jsonrpc":"2.0","x":"\\\\ud83d').message


@pytest.mark.spec("R0243")
@cases(NOT_UTF8)
def test_what_is_not_utf8_is_a_parse_error_that_says_where(case: bytes, revision: Revision) -> None:
    fault = fault_of(case)
    assert (fault.kind, fault.raw_id, fault.settles) == (PARSE, b"", waited_for(case))
    assert "UTF-8" in fault.message
    assert answer(fault, revision)["error"]["code"] == -32700


# body: the id that the answer echoes, and the call of ours that ends.
INVALID_MESSAGES: dict[str, tuple[bytes, bytes, int | str | None]] = {
    "a number": (b"7", b"", None),
    "a fraction": (b" 1.5 ", b"", None),
    "a string": (b'"{}"', b"", None),
    "true": (b"true", b"", None),
    "null": (b"null", b"", None),
    "an empty object": (b"{}", b"", None),
    "jsonrpc missing": (b'{"id":7,"method":"a"}', b"7", None),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":7,"method":"a","params":{}}', b"7", None),
    "jsonrpc too long": (b'{"jsonrpc":"2.0 ","id":7,"method":"a"}', b"7", None),
    "jsonrpc a number": (b'{"jsonrpc":2.0,"id":"x\\u0041","method":"a"}', b'"x\\u0041"', None),
    "jsonrpc null": (b'{"jsonrpc":null,"id":7.0,"method":"a"}', b"7.0", None),
    "jsonrpc an array": (b'{"jsonrpc":["2.0"],"method":"a"}', b"", None),
    "jsonrpc in capitals": (b'{"JSONRPC":"2.0","id":7,"method":"a"}', b"7", None),
    "jsonrpc 1.0 on a reply": (b'{"jsonrpc":"1.0","id":7,"result":{}}', b"", 7),
    "jsonrpc missing and an id that is none": (b'{"id":true,"method":"a"}', b"", None),
    "jsonrpc missing and an endless id": (b'{"id":%b,"method":"a"}' % LONG, b"", None),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":7,"method":5}', b"7", None),
    "a method that is null": (b'{"jsonrpc":"2.0","id":7,"method":null}', b"7", None),
    "a method that is true": (b'{"jsonrpc":"2.0","id":7,"method":true}', b"7", None),
    "a method that is an array": (b'{"jsonrpc":"2.0","id":7,"method":["a"]}', b"7", None),
    "a method that is an object": (b'{"jsonrpc":"2.0","id":7,"method":{}}', b"7", None),
    "a method that is no string, to nobody": (b'{"jsonrpc":"2.0","method":5}', b"", None),
    "params that are an array": (CALL % b"[1]", b"7", None),
    "params that are an array of objects": (CALL % b'[{"params":{}}]', b"7", None),
    "params that are an empty array": (CALL % b"[]", b"7", None),
    "params that are null": (CALL % b"null", b"7", None),
    "params that are a string": (CALL % b'"{}"', b"7", None),
    "params that are a number": (CALL % b"1", b"7", None),
    "params that are false": (CALL % b"false", b"7", None),
    "params that are an array, elsewhere": (b'{"params":[{}],"jsonrpc":"2.0","id":7,"method":"a"}', b"7", None),
    "params that are an array, to nobody": (TELL % b"[]", b"", None),
    "params that are null, to nobody": (TELL % b"null", b"", None),
    "params that are an array, with spaces": (b" " + CALL % b"[ ]", b"7", None),
    "a method and a result": (b'{"jsonrpc":"2.0","id":7,"method":"a","result":{}}', b"7", None),
    "a method and an error": (b'{"jsonrpc":"2.0","id":7,"method":"a","params":{},"error":{}}', b"7", None),
    "a method and a result, to nobody": (b'{"jsonrpc":"2.0","method":"a","result":{}}', b"", None),
    "a result that is null": (GOOD % b"null", b"", 7),
    "a result that is an array": (GOOD % b"[]", b"", 7),
    "a result that is a string": (GOOD % b'"x"', b"", 7),
    "a result that is a number": (b" " + GOOD % b"1", b"", 7),
    "a result without an id": (b'{"jsonrpc":"2.0","result":{}}', b"", None),
    "a result for null": (b'{"jsonrpc":"2.0","id":null,"result":{}}', b"", None),
    "a result for true": (b'{"jsonrpc":"2.0","id":true,"result":{}}', b"", None),
    "an error for true": (b'{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":"m"}}', b"", None),
    "an error that is null": (BAD % b"null", b"", 7),
    "an error that is an array": (BAD % b"[1]", b"", 7),
    "an error that is a string": (BAD % b'"no"', b"", 7),
    "an error for an endless id": (b'{"jsonrpc":"2.0","id":%b,"error":{}}' % LONG, b"", None),
}  # fmt: skip


@pytest.mark.spec("R0001", "R0030", "R0456")
@cases(INVALID_MESSAGES)
def test_what_is_no_message_is_an_invalid_request_with_the_id_that_could_be_read(
    case: tuple[bytes, bytes, int | str | None], revision: Revision
) -> None:
    body, raw_id, settles = case
    fault = fault_of(body)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, raw_id, settles)
    answered = answer(fault, revision)
    assert answered["error"]["code"] == -32600
    if raw_id:
        assert answered["id"] == json.loads(raw_id)


NEITHER = b'{"jsonrpc":"2.0","id":"x"}'
BOTH = b'{"jsonrpc":"2.0","id":"x","result":{},"error":{"code":1,"message":"m"}}'


@pytest.mark.spec("R0001", "R0030", "R0035", "R0454")
@pytest.mark.parametrize("body", [NEITHER, b" " + NEITHER, b'{"jsonrpc":"2.0","id":"x","data":{}}'])
def test_a_reply_with_neither_result_nor_error_ends_its_call_as_a_fault(
    body: bytes, revision: Revision
) -> None:
    fault = fault_of(body)
    # It may have been meant as a request, too, and then its sender is told.
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b'"x"', "x")


@pytest.mark.spec("R0001", "R0030", "R0036")
@pytest.mark.parametrize("body", [BOTH, b" " + BOTH, BOTH.replace(b"{}", b"null")])
def test_a_reply_with_both_result_and_error_ends_its_call_and_is_not_answered(
    body: bytes, revision: Revision
) -> None:
    fault = fault_of(body)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b"", "x")


@pytest.mark.spec("R0037")
@pytest.mark.parametrize(
    "code", [b'"-1"', b"1.5", b"true", b"null", b"[1]", b"1e400", b"1e300", b"-1e16", LONG]
)
def test_an_error_whose_code_is_no_integer_ends_its_call_as_a_fault(
    code: bytes, revision: Revision
) -> None:
    fault = fault_of(BAD % b'{"code":%b,"message":"m"}' % code)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b"", 7)


@pytest.mark.spec("R0232", "R0457")
@pytest.mark.parametrize(
    "error", [b'{"code":1}', b'{"message":"m"}', b'{"code":1,"message":5}', b"{}"]
)
def test_an_error_without_code_and_message_ends_its_call_as_a_fault(
    error: bytes, revision: Revision
) -> None:
    fault = fault_of(BAD % error)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b"", 7)


# ---------------------------------------------------------------- the same member twice

TWICE: dict[str, tuple[bytes, bytes, int | str | None]] = {
    "the method": (b'{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}', b"7", None),
    "the method, the same both times": (b'{"jsonrpc":"2.0","id":7,"method":"a","method":"a"}', b"7", None),
    "the method, before params": (b'{"method":"b","jsonrpc":"2.0","id":7,"method":"a","params":{}}', b"7", None),
    "params": (b'{"jsonrpc":"2.0","id":7,"method":"a","params":{},"params":{"x":1}}', b"7", None),
    "params, the first no object": (b'{"jsonrpc":"2.0","id":7,"method":"a","params":[],"params":{}}', b"7", None),
    "params of a notification": (b'{"jsonrpc":"2.0","method":"a","params":{},"params":{}}', b"", None),
    "jsonrpc": (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"a","params":{}}', b"7", None),
    "jsonrpc, the first wrong": (b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":7,"method":"a","params":{}}', b"7", None),
    "an unknown member": (b'{"jsonrpc":"2.0","id":7,"method":"a","params":{},"x":1,"x":2}', b"7", None),
    "an unknown member with a quote": (b'{"jsonrpc":"2.0","id":7,"method":"a","\\"":1,"\\u0022":2}', b"7", None),
    # Two ids are none: whichever we chose, an answer might reach the wrong call.
    "the id": (b'{"jsonrpc":"2.0","id":7,"id":8,"method":"a","params":{}}', b"", None),
    "the id, the same both times": (b'{"jsonrpc":"2.0","id":7,"id":7,"method":"a","params":{}}', b"", None),
    "the id of a reply": (b'{"jsonrpc":"2.0","id":7,"id":8,"result":{}}', b"", None),
    "a result": (b'{"jsonrpc":"2.0","id":7,"result":{},"result":{"x":1}}', b"", 7),
    "an error": (b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"},"error":{"code":2,"message":"m"}}', b"", 7),
    "the code of an error": (BAD % b'{"code":1,"code":2,"message":"m"}', b"", 7),
    "the message of an error": (BAD % b'{"code":1,"message":"m","message":"n"}', b"", 7),
    "data of an error": (BAD % b'{"code":1,"message":"m","data":1,"data":2}', b"", 7),
}  # fmt: skip


@cases(TWICE)
@pytest.mark.parametrize("spelling", ["plainly", "with spaces", "with escapes"])
def test_a_member_that_is_there_twice_is_refused_however_it_is_written(
    case: tuple[bytes, bytes, int | str | None], spelling: str
) -> None:
    body, raw_id, settles = case
    if spelling == "with spaces":
        body = body.replace(b",", b"\n, ").replace(b":", b" : ")
    if spelling == "with escapes":
        for name in (b"method", b"params", b"id", b"jsonrpc", b"result", b"error", b"code"):
            body = body.replace(b'"%b"' % name, b'"\\u%04x%b"' % (name[0], name[1:]), 1)
    fault = fault_of(body)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, raw_id, settles)


def test_a_member_twice_inside_params_or_a_result_is_left_to_whoever_reads_them() -> None:
    inside = b'{"x":1,"x":2}'
    for body in (CALL % inside, b" " + CALL % inside):
        assert plain(decode(body)) == ("request", 7, "a", inside, b"7")
    for body in (GOOD % inside, b" " + GOOD % inside):
        assert plain(decode(body)) == ("reply", 7, inside)


# ---------------------------------------------------------------- who is told

UNHEARD = {
    "a notification with a list of params": TELL % b"[]",
    "a notification with an outcome": b'{"jsonrpc":"2.0","method":"a","result":{}}',
    "a notification of another protocol": b'{"jsonrpc":"1.0","method":"a"}',
    "a notification with params twice": b'{"jsonrpc":"2.0","method":"a","params":{},"params":{}}',
    "a reply that is null": GOOD % b"null",
    "a reply of another protocol": b'{"jsonrpc":"1.0","id":7,"result":{}}',
    "a reply with both": BOTH,
    "a reply for nobody": b'{"jsonrpc":"2.0","result":{}}',
    "a reply for two": b'{"jsonrpc":"2.0","id":7,"id":8,"result":{}}',
    "an error for true": b'{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":"m"}}',
    "an error without a code": BAD % b"{}",
}
HEARD = {
    "a request with a list of params": CALL % b"[]",
    "a request with an id that is none": WITH_ID % b"true",
    "a request with null for an id": WITH_ID % b"null",
    "a request of two ids": b'{"jsonrpc":"2.0","id":7,"id":8,"method":"a"}',
    "a request of another protocol": b'{"jsonrpc":"1.0","id":true,"method":"a"}',
    "a method that is no string": b'{"jsonrpc":"2.0","method":5}',
    "neither a call nor a reply": NEITHER,
    "an empty object": b"{}",
    "a number": b"7",
    "no JSON": b"x",
}


@pytest.mark.spec("R0233")
@cases(UNHEARD)
def test_a_bad_notification_or_reply_is_never_answered(case: bytes, revision: Revision) -> None:
    fault = fault_of(case)
    assert (fault.expects_no_response, fault.raw_id) == (True, b"")


@cases(HEARD)
def test_anything_else_that_is_bad_is_answered(case: bytes) -> None:
    assert not fault_of(case).expects_no_response


# ---------------------------------------------------------------- how deep


def nested(levels: int) -> bytes:
    """An object with this many levels, objects and arrays in turn."""
    openings = [b'{"x":' if level % 2 == 0 else b"[" for level in range(levels)]
    closings = [b"}" if level % 2 == 0 else b"]" for level in reversed(range(levels))]
    return b"".join([*openings, b"1", *closings])


PLACES = {
    "in params": CALL,
    "in params of a notification": TELL,
    "in a result": GOOD,
    "in an unknown member": b'{"jsonrpc":"2.0","id":7,"method":"a","x":%b}',
    "in data of an error": BAD % b'{"code":1,"message":"m","data":%b}',
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_nesting_is_bounded_at_64_levels_wherever_it_is(place: bytes) -> None:
    around = 2 if b"message" in place else 1
    decode(place % nested(MAX_DEPTH - around))
    decode(place % (b'{"x":' * (MAX_DEPTH - around) + b"1" + b"}" * (MAX_DEPTH - around)))
    fault = fault_of(place % nested(MAX_DEPTH - around + 1))
    assert (fault.kind, str(MAX_DEPTH) in fault.message) == (INVALID, True)


@pytest.mark.parametrize(
    "inside", [b'{"":' * 63 + b"{}" + b"}" * 63, b'{"":' * 64 + b"{}" + b"}" * 64]
)
def test_the_shortest_text_of_64_levels_is_read_and_of_65_is_not(inside: bytes) -> None:
    read = inside.count(b"{") <= MAX_DEPTH
    fault = fault_of(inside)
    assert ("nested" in fault.message) is not read


def test_who_sent_or_waits_for_what_is_too_deep_is_still_told() -> None:
    deep = nested(LEGIBLE_DEPTH - 1)
    for body, raw_id, settles in (
        (CALL % deep, b"7", None),
        (GOOD % deep, b"", 7),
        (TELL % deep, b"", None),
        (b'{"id":7,"id":8,"x":%b}' % deep, b"", None),
        (b'{"id":7,"x":%b' % deep, b"", None),
        (b"[%b]" % nested(LEGIBLE_DEPTH - 2), b"", None),
        (CALL % nested(LEGIBLE_DEPTH), b"7", None),
        (GOOD % nested(LEGIBLE_DEPTH), b"", 7),
        (GOOD % nested(LEGIBLE_DEPTH)[:-1], b"", 7),
        (TELL % nested(LEGIBLE_DEPTH), b"", None),
    ):
        fault = fault_of(body)
        assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, raw_id, settles)


BOMBS = {
    "arrays": b"[" * 10_000,
    "arrays that end": b"[" * 10_000 + b"]" * 10_000,
    "a notification": TELL % nested(10_000),
    "in a batch": b"[%b]" % (CALL % nested(10_000)),
    "an id": WITH_ID % (b"[" * 10_000 + b"]" * 10_000),
    "a hundred thousand": b'{"x":' * 100_000,
    "a million": b"[" * 1_000_000,
}


@cases(BOMBS)
def test_nesting_of_ten_thousand_is_an_invalid_request_whatever_python_would_bear(
    case: bytes,
) -> None:
    fault = fault_of(case)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, b"", None)


DEEP = nested(10_000)
# Text that cannot be read as a whole: the id that the answer echoes, and the call of ours that ends.
ENDS: dict[str, tuple[bytes, bytes, int | str | None]] = {
    "a request": (CALL % DEEP, b"7", None),
    "a result": (GOOD % DEEP, b"", 7),
    "an error": (BAD % DEEP, b"", 7),
    "the id last": (b'{"result":%b,"jsonrpc":"2.0","id":7}' % DEEP, b"", 7),
    "the id last, with spaces": (b' { "result" : %b , "id" : "a" } ' % DEEP, b"", "a"),
    "a request with the id last": (b'{"params":%b,"method":"a","id":7}' % DEEP, b"7", None),
    "the id first of all": (b'{"id":"7","result":%b,"jsonrpc":"2.0"}' % DEEP, b"", "7"),
    "an escape in the id": (rb'{"id":"a\"]}","result":%b}' % DEEP, b"", 'a"]}'),
    "two ids": (b'{"id":7,"result":%b,"id":7}' % DEEP, b"", None),
    "no id": (b'{"jsonrpc":"2.0","result":%b}' % DEEP, b"", None),
    "an id in the middle": (b'{"result":%b,"id":7,"x":{}}' % DEEP, b"", None),
    "an id inside": (b'{"result":{"id":7,"x":%b}}' % DEEP, b"", None),
    "an id that is none": (b'{"id":null,"result":%b}' % DEEP, b"", None),
    "an id that is too long": (b'{"id":"%b","result":%b}' % (b"a" * 600, DEEP), b"", None),
    "an id that is no number of JSON": (b'{"id":07,"result":%b}' % DEEP, b"", None),
    "an id that is cut off": (
        b'{"x":"%b","id":12345,"result":%b}' % (b"x" * 1008, DEEP),
        b"",
        None,
    ),
    "neither a request nor a reply": (b'{"id":7,"x":%b}' % DEEP, b"", None),
}


@cases(ENDS)
def test_whom_a_text_concerns_is_read_from_its_ends(
    case: tuple[bytes, bytes, int | str | None],
) -> None:
    body, raw_id, settles = case
    fault = fault_of(body)
    assert (fault.kind, fault.raw_id, fault.settles) == (INVALID, raw_id, settles)


@pytest.mark.parametrize(
    "body",
    [
        GOOD % b'{"x":NaN}',
        GOOD % b'{"x":"cut sho',
        b'{"result":{"x":NaN},"jsonrpc":"2.0","id":7}',
        GOOD % b'{"x":"\xff"}',
    ],
)
def test_the_call_whose_reply_is_no_json_ends_with_that(body: bytes) -> None:
    fault = fault_of(body)
    assert (fault.kind, fault.raw_id, fault.settles) == (PARSE, b"", 7)
    bad_id = body.replace(b'"id":7', b'"id":1.5')
    assert fault_of(bad_id).settles is None


@pytest.mark.parametrize(
    "filler", [b'"' + b"[{" * 200 + b'"', b"[" + b"{}," * 200 + b"1]", b'"\\"[[' + b"[" * 99 + b'"']
)
def test_brackets_in_strings_and_side_by_side_do_not_count(filler: bytes) -> None:
    assert isinstance(decode(CALL % b'{"x":%b}' % filler), Request)


def test_brackets_without_an_object_around_them_are_not_json_rather_than_deep() -> None:
    assert fault_of(b"{" * 100).kind is PARSE


def events(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls, in Python and in C. Those that a collection of
    garbage calls, which comes when it likes, are none of them."""
    seen = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal seen
        seen += 1

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


GROWING: dict[str, Callable[[int], bytes]] = {
    "nesting": lambda size: b"[" * size,
    "a string that does not end": lambda size: b'{"x":"' + b'\\"' * size + b"{" * 65,
    "many strings": lambda size: b'{"x":[' + b'"[",' * size + b"1]}",
    "spaces": lambda size: b" " * size + b"[1" + b" " * size,
    "digits": lambda size: CALL % b'{"x":%b}' % (b"7" * size),
    "a long id": lambda size: WITH_ID % (b"7" * size),
    "a member twice": lambda size: b'{"jsonrpc":"2.0","method":"a","method":"%b"}' % (b"\\u0022" * size),
    "a batch": lambda size: b"[" + b"1," * size + b"1]",
}  # fmt: skip


@cases(GROWING)
def test_the_work_for_one_bad_input_does_not_grow_with_its_size(
    case: Callable[[int], bytes],
) -> None:
    def work(body: bytes) -> Callable[[], None]:
        def read() -> None:
            with contextlib.suppress(Fault):
                decode(body)

        return read

    small, large = case(2_000), case(1_000_000)
    work(small)()
    assert events(work(large)) <= events(work(small)) + 2
