"""Bytes to frames: what is accepted is what any JSON reader would read, and what is not is told.

Rules: the second opinion is Python's own `json`, which shares no code with what is judged.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

from colonnade.client.probe import judge
from colonnade.errors import Fault
from colonnade.protocol.jsonrpc import (
    MAX_DEPTH,
    MAX_ID_BYTES,
    Batch,
    ErrorResponse,
    Frame,
    LineSplitter,
    Notification,
    Request,
    ResultResponse,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    split_params,
)
from colonnade.protocol.negotiation import choose
from colonnade.protocol.revision import EVERY
from fuzz.corpus import EVERY_MESSAGE, JSON
from fuzz.mutate import mutate
from fuzz.target import Case, check_answer, check_fault, check_sent, held, ours

# Small enough that mutated lines are longer now and then.
MAX_LINE = 700
ONE_STREAM_IN = 8
_NO_BREAKS = bytes.maketrans(b"\r\n", b"  ")

Decode = Callable[[bytes], Frame | Batch]


class Frames:
    """`jsonrpc.decode`, `head`, `Lines`, and the writers for whatever was read."""

    name = "frames"

    def __init__(self, decode: Decode = decode) -> None:
        self._decode = decode

    def draw(self, rng: Random, most: int) -> Case:
        body = mutate(rng, rng.choice(EVERY_MESSAGE), EVERY_MESSAGE)
        return Case("" if rng.randrange(ONE_STREAM_IN) else str(rng.getrandbits(30)), (body,))

    def check(self, case: Case) -> list[str]:
        (body,) = case.parts
        if case.where:
            check_lines(body, Random(int(case.where)))
        second = second_opinion(body)
        try:
            frame = self._decode(body)
        except Fault as fault:
            check_fault(fault)
            held(
                not _is_plain_request(second, body), f"a good request was refused: {fault.message}"
            )
            _check_settles(fault, second, body)
            return [f"fault: {fault.kind.name}"]
        if isinstance(frame, Batch):
            held(isinstance(second, list), "a batch that is no array")
            held(len(second) == len(frame.items), "a batch of another length")
            for item, other in zip(frame.items, second, strict=True):
                if isinstance(item, Fault):
                    check_fault(item)
                    _check_settles(item, other, b"")
                else:
                    check_frame(item, other)
            return ["batch"]
        check_frame(frame, second)
        return [type(frame).__name__.lower()]


# ---------------------------------------------------------------- a second opinion


class Members(dict[str, JSON]):
    """An object, and whether a member was there twice."""

    twice = False


class NoJson:
    """What cannot be read at all."""


NO_JSON = NoJson()


def _pairs(pairs: list[tuple[str, JSON]]) -> Members:
    members = Members(pairs)
    members.twice = len(members) != len(pairs)
    return members


def _refuse_constant(text: str) -> JSON:
    raise ValueError(f"{text} is not JSON")


def _number(text: str) -> JSON:
    return int(text) if len(text) < 4000 else float(text)


_reader = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_refuse_constant, parse_int=_number
)


def second_opinion(body: bytes) -> JSON:
    try:
        return _reader.decode(body.decode())
    except (ValueError, RecursionError):
        return NO_JSON


def _is_plain_request(value: JSON, body: bytes) -> bool:
    """Whether this is a request beyond doubt: refusing it would be wrong."""
    if not isinstance(value, Members) or value.twice or value.get("jsonrpc") != "2.0":
        return False
    # Half a surrogate pair is no text; and what came twice deep inside is not in the value.
    if b"\\ud" in body.lower() or body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        return False
    id, method, params = value.get("id"), value.get("method"), value.get("params", {})
    if isinstance(id, bool) or not isinstance(id, int | str) or len(str(id)) > MAX_ID_BYTES // 6:
        return False
    if not isinstance(method, str) or not isinstance(params, dict):
        return False
    return "result" not in value and "error" not in value


def _same_id(id: int | str | None, other: JSON) -> bool:
    """`7` is not `"7"`, and `true` is neither; `7.0` is `7`."""
    if isinstance(id, str) or id is None or isinstance(other, bool):
        return type(id) is type(other) and id == other
    return isinstance(other, int | float) and id == other


_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)', re.DOTALL)


def ids_in_text(body: bytes) -> list[JSON]:
    """Every id that stands in a text, whether or not that can be read as a whole."""
    return [id for raw in _ID.findall(body) if (id := second_opinion(raw)) is not NO_JSON]


def _check_settles(fault: Fault, other: JSON, body: bytes) -> None:
    if fault.settles is None:
        return
    if other is NO_JSON:  # whose reply it began to be is read from the ends of it
        named = any(_same_id(fault.settles, id) for id in ids_in_text(body))
        held(named, "a fault settles a call that the text does not name")
    else:
        members = cast("dict[str, JSON]", other if isinstance(other, dict) else {})
        held("id" in members, "a fault settles a call that the message does not name")
        held(_same_id(fault.settles, members["id"]), "a fault settles another call")
        held("method" not in members, "a request settles a call")


def check_frame(frame: Frame, other: JSON) -> None:
    """It says what the bytes say, and can be said again."""
    held(other is not NO_JSON, "bytes that are no JSON were accepted")
    held(isinstance(other, Members), "a frame that is no object")
    held(not other.twice, "a frame with two members of one name")
    held(other.get("jsonrpc") == "2.0", "a frame of another protocol")
    if not isinstance(frame, Notification):
        held(_same_id(frame.id, other.get("id")), "the id was read as another one")
    elif "id" in other:
        held(False, "an id was lost")
    if isinstance(frame, Request | Notification):
        held(frame.method == other.get("method"), "the method was read as another one")
        check_raw(frame.params, other.get("params"))
        early = frame.split_params if isinstance(frame, Request) else None
        try:
            held(early in (None, split_params(frame.params)), "params were split in two ways")
        except Fault as fault:
            held(early is None, "params were split that cannot be")
            check_fault(fault)
    elif isinstance(frame, ResultResponse):
        check_raw(frame.result, other.get("result"))
    if isinstance(frame, ResultResponse | ErrorResponse):
        _check_verdict(frame)
    again = check_sent(_written(frame))
    held(_comparable(again) == _comparable(frame), "a frame says something else when sent on")


def _check_verdict(frame: ResultResponse | ErrorResponse) -> None:
    """Taken for the answer to a probe, it proves something, and what it proves can be used."""
    verdicts = [judge(frame, status) for status in (None, 400, 404, 503)]
    for supported in {verdict.supported for verdict in verdicts} - {()}:
        ours(partial(choose, supported, EVERY))


def check_raw(raw: bytes | Any, other: JSON) -> None:
    if not raw:
        held(other is None, "a member was lost")
        return
    held(second_opinion(bytes(raw)) == other, "a raw member is not what stands in the bytes")


def _written(frame: Frame) -> bytes:
    if isinstance(frame, Request):
        return encode_request(frame.raw_id, frame.method, bytes(frame.params))
    if isinstance(frame, Notification):
        return encode_notification(frame.method, bytes(frame.params))
    raw_id = b"" if frame.id is None else json.dumps(frame.id).encode()
    if isinstance(frame, ResultResponse):
        return encode_result(raw_id, bytes(frame.result))
    data = encode_error(raw_id, frame.code, frame.message)
    check_answer(data)
    return data


def _comparable(frame: Frame | Batch) -> tuple[object, ...]:
    """A frame as values: what a failure says is shortened when it is sent, its id is not."""
    match frame:
        case Request():
            params = bytes(frame.params).translate(_NO_BREAKS)
            return "request", frame.id, type(frame.id), frame.method, params
        case Notification():
            return "notification", frame.method, bytes(frame.params).translate(_NO_BREAKS)
        case ResultResponse():
            result = bytes(frame.result).translate(_NO_BREAKS)
            return "reply", frame.id, type(frame.id), result
        case ErrorResponse():
            return "failure", frame.id, type(frame.id), frame.code
        case Batch():
            return ("batch",)


# ---------------------------------------------------------------- lines


def check_lines(body: bytes, rng: Random) -> None:
    """Any chunking gives the same lines, which are those that stand in the bytes."""
    data = body + b"\n\r\n" + body[: len(body) // 2] + b"\n"
    whole = _lines([data])
    held(whole == _lines(chunks(data, rng)), "another chunking gave other lines")
    expected: list[bytes] = []
    for line in data.split(b"\n")[:-1]:
        if len(line) > MAX_LINE:
            expected.append(b"fault")
        elif stripped := line.strip(b"\r \t"):
            expected.append(stripped)
    held(whole == expected, "the lines are not those of the stream")


def _lines(pieces: list[bytes]) -> list[bytes]:
    lines = LineSplitter(MAX_LINE)
    found = [line for piece in pieces for line in lines.feed(piece)]
    return [b"fault" if isinstance(line, Fault) else line for line in found]


def chunks(data: bytes, rng: Random) -> list[bytes]:
    """The data in pieces of chance: some empty, some of one byte."""
    if len(data) < 200 and not rng.randrange(4):
        return [data[n : n + 1] for n in range(len(data))]
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randint(1, 12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
