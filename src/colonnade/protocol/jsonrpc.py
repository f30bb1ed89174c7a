"""JSON-RPC 2.0: bytes to messages and back. Requests, notifications, responses, errors, batches.

Rules: no I/O; a message is judged by its own bytes alone, never by its sender or the time. Whatever
arrives, this module raises `Fault` and nothing else, in linear time. `params` and `result` stay
raw: the code that needs them decodes them once, and first calls `refuse_duplicate_members`.
"""

import contextlib
from collections.abc import Container
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.json_checks import (
    DECODE_ERRORS,
    depth,
    duplicate_members,
    invalid_json,
    may_be_deep,
    outline,
)
from colonnade.protocol.json_checks import has_duplicate_members as has_duplicate_members
from colonnade.protocol.json_checks import refuse_duplicate_members as refuse_duplicate_members

# Real messages nest to about 12 levels; other JSON-RPC libraries start to fail near 100. The limit
# must not depend on Python's recursion limit, which differs by version and by the caller's stack.
MAX_DEPTH = 64
# Down to here the id of a refused message is still looked for, so that its caller need not wait;
# the recursion limit of every Python leaves room for this.
LEGIBLE_DEPTH = 256
# Beyond this a float no longer identifies one integer (D31).
MAX_EXACT = 2**53
# A UUID takes 38 bytes and a signed id of a proxy some 100; ids are kept while a request runs.
MAX_ID_BYTES = 512
# Batches multiply work: this many responses at most for one body.
MAX_BATCH = 100
# One line of stdio. Images and files travel in base64 inside one message.
MAX_LINE_BYTES = 64 * 1024 * 1024
# Encoded method names; all revisions together have some forty.
MAX_METHODS = 128
# From here on the encoder, whose buffer grows in steps, takes twice as long as joining bytes does.
LARGE_MEMBER = 64 * 1024
# Our own messages stay below 200; what they quote of a peer or a handler may be of any length.
MAX_MESSAGE_CHARS = 300

RequestId: TypeAlias = int | str

NOTHING = Raw(b"")
_QUOTE = b'"'
_BRACE, _CLOSING_BRACE, _BRACKET, _CR, _LF = b"{}[\r\n"


class SplitParams(Struct, frozen=True, gc=False, omit_defaults=True):
    """The members of params that route a request, split off in one pass."""

    meta: Raw = msgspec.field(name="_meta", default=NOTHING)
    name: Any = None
    uri: Any = None
    arguments: Raw = NOTHING
    task_id: Any = msgspec.field(name="taskId", default=None)


class Request(Struct, frozen=True, gc=False):
    """A request. `raw_id` is the id as written, to be echoed byte for byte.

    `split_params` is set if the params hold nothing but those members. Few handlers need more of
    them then, so they are not taken out of `frame`, the whole message, which ends with them; it is
    empty if the request was never encoded. Without `split_params` there is no `frame`, and they are
    in `raw_params`.
    """

    id: RequestId
    method: str
    raw_params: Raw = NOTHING
    raw_id: bytes = b""
    split_params: SplitParams | None = None
    frame: bytes = b""

    @property
    def params(self) -> Raw:
        """All params, as they were written."""
        if self.split_params is None:
            return self.raw_params
        if not self.frame:
            return Raw(_encode(self.split_params))
        return Raw(memoryview(self.frame)[-1 - _size(self.split_params) : -1])


class Notification(Struct, frozen=True, gc=False):
    """A notification, which never gets a response."""

    method: str
    params: Raw = NOTHING


class ResultResponse(Struct, frozen=True, gc=False):
    """The response to a request with a result, and its members if `decode_members` found them."""

    id: RequestId
    result: Raw
    members: dict[str, Raw] | None = None


class ErrorResponse(Struct, frozen=True, gc=False):
    """The response to a request with an error; `id` is None if the peer could not read it."""

    id: RequestId | None
    code: int
    message: str
    data: Raw = NOTHING


Frame: TypeAlias = Request | Notification | ResultResponse | ErrorResponse


class Batch(Struct, frozen=True):
    """Several messages in one body; one that could not be decoded is its fault instead."""

    items: tuple[Frame | Fault, ...]


# Longer integers are valid ids, too, and take the slow path.
_Id: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | str | UnsetType | None


class _Envelope(Struct, gc=False):
    jsonrpc: Literal["2.0"]
    id: _Id = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


class _SplitEnvelope(Struct, gc=False):
    """The same with params that are split at once."""

    jsonrpc: Literal["2.0"]
    id: _Id = UNSET
    method: str | UnsetType = UNSET
    params: SplitParams | UnsetType = UNSET
    result: Raw = NOTHING
    error: Raw = NOTHING


class _MembersEnvelope(Struct, gc=False):
    """A response with a result whose members are split at once."""

    jsonrpc: Literal["2.0"]
    id: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    result: dict[str, Raw]


class _Error(Struct):
    code: int | float
    message: str
    data: Raw = NOTHING


_split_envelope = msgspec.json.Decoder(_SplitEnvelope)
_members = msgspec.json.Decoder(dict[str, Raw])
_members_envelope = msgspec.json.Decoder(_MembersEnvelope)
_error = msgspec.json.Decoder(_Error)
_head = msgspec.json.Decoder(SplitParams)
_raw = msgspec.json.Decoder(Raw)
_text = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_encode, _encode_into = _encoder.encode, _encoder.encode_into

# A nested object takes five bytes, `{"":` and `}`; so a body up to here without an array is not too
# deep.
_SHALLOW = 5 * MAX_DEPTH + 1
# With arrays: opening an object takes four bytes, and an array three less; so this is for the
# length and three more for each array.
_OPENED = 4 * MAX_DEPTH

# The lengths of what surrounds the values, without optional whitespace.
_REQUEST_FRAME = len(b'{"jsonrpc":"2.0","id":,"method":"","params":}')
_REPLY_START = b'{"jsonrpc":"2.0","id":'
_ID_AT = len(_REPLY_START)
_REPLY_FRAME = len(b'{"jsonrpc":"2.0","id":,"result":}')
_NAME, _URI, _TASK_ID = len(b',"name":""'), len(b',"uri":""'), len(b',"taskId":""')
_META, _ARGUMENTS = len(b',"_meta":'), len(b',"arguments":')
_MEMBER, _VERSION = len(b',"":'), len(b'"jsonrpc":"2.0",')
_BARE_FRAME = len(b'{"jsonrpc":"2.0"}')
_ID, _METHOD = len(b',"id":'), len(b',"method":""')
_PARAMS, _RESULT, _ERROR = len(b',"params":'), len(b',"result":'), len(b',"error":')


def decode(body: bytes) -> Frame | Batch:
    """Decode one body. Raises `Fault`, with the id to respond to if one could be read.

    This is the hot path, guarded by `benchmarks/core.py`: a request in the common compact form is
    recognised by its length. Nothing but these four members, each in its shortest spelling, fits
    into that, and nothing into params but what was split off there: none is duplicated, and
    `raw_id` is what was written. Of the four only params can end with a brace, and so they are the
    last.
    """
    size = len(body)
    if (
        size > _SHALLOW
        or (_BRACKET in body and size + 3 * body.count(b"[") > _OPENED)
        or not body.isascii()
    ):
        _check_text(body)
    try:
        envelope = _split_envelope.decode(body)
    except DECODE_ERRORS:
        if body.lstrip()[:1] == b"[":
            return _decode_batch(body)
        return _decode_single(body)
    id, method, split = envelope.id, envelope.method, envelope.params
    if type(id) is int:
        raw_id = b"%d" % id
        if type(method) is str and split is not UNSET:
            if (
                size == _REQUEST_FRAME + len(raw_id) + len(method) + _size(split)
                and body[-2] == _CLOSING_BRACE
            ):
                return Request(id, method, NOTHING, raw_id, split, body)
        elif envelope.result and method is UNSET:
            # The same for a reply, whose result may be anywhere in it, and is an object.
            result = envelope.result
            if size == _REPLY_FRAME + len(raw_id) + len(result) and memoryview(result)[0] == _BRACE:
                return ResultResponse(id, result)
    return _decode_single(body)


def decode_members(body: bytes) -> Frame | Batch:
    """`decode`, for a response whose result is passed on: its members are found in the same pass,
    so that a large one is read once.

    Only in the common compact form, which is recognised as in `decode`: what is written otherwise,
    or twice, takes more bytes than the members that were found.
    """
    size = len(body)
    if (
        size > _SHALLOW
        or (_BRACKET in body and size + 3 * body.count(b"[") > _OPENED)
        or not body.isascii()
    ):
        _check_text(body)
    try:
        envelope = _members_envelope.decode(body)
    except DECODE_ERRORS:
        return decode(body)
    id, members = envelope.id, envelope.result
    id_size = len(b"%d" % id)
    # With two braces, less the comma that the first member has not.
    size = 1 + _MEMBER * len(members) + sum(map(len, members)) + sum(map(len, members.values()))
    if not members or len(body) != _REPLY_FRAME + id_size + size:
        return decode(body)
    # Where the result begins, in whichever order the three members are.
    if body.startswith(_REPLY_START) and body.startswith(b',"result":', _ID_AT + id_size):
        at = _ID_AT + id_size + _RESULT  # as nearly all have them
    else:
        at = 1
        while not body.startswith(b'"result":', at):
            at += _VERSION if body.startswith(b'"jsonrpc"', at) else _ID + id_size
        at += _RESULT - 1
    return ResultResponse(id, Raw(memoryview(body)[at : at + size]), members)


def _size(split: SplitParams) -> int:
    """The length of params that hold nothing but this, in its shortest spelling."""
    size = 1  # two braces, less the comma that the first member has not
    name, meta, arguments = split.name, split.meta, split.arguments
    if type(name) is str:
        size += _NAME + len(name)
    if meta:
        size += _META + len(meta)
    if arguments:
        size += _ARGUMENTS + len(arguments)
    uri, task_id = split.uri, split.task_id
    if uri is not None and type(uri) is str:
        size += _URI + len(uri)
    if task_id is not None and type(task_id) is str:
        size += _TASK_ID + len(task_id)
    return size if size > 1 else 2


def _check_text(body: bytes) -> None:
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            words = f"not UTF-8 (byte {error.start}); encode messages as UTF-8"
            raise _undecodable(body, Fault(FaultKind.PARSE, words)) from None
    if may_be_deep(body, MAX_DEPTH):
        deep = depth(body)
        if deep > MAX_DEPTH:
            raise _too_deep(body, deep)


@cache
def _envelope() -> "msgspec.json.Decoder[_Envelope]":
    """Created on use: most messages are recognised by `decode`."""
    return msgspec.json.Decoder(_Envelope)


@cache
def _items() -> "msgspec.json.Decoder[Struct]":
    """The decoder of a batch: the rest of a longer one is skipped, and one more than allowed is
    enough to know. Created on use: few peers send any."""
    fields = [(f"item{n}", Raw, NOTHING) for n in range(MAX_BATCH + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("Items", fields, array_like=True))


def _decode_batch(body: bytes) -> Batch:
    try:
        items = [item for item in msgspec.structs.astuple(_items().decode(body)) if item]
    except DECODE_ERRORS as error:
        raise invalid_json(body, error) from None
    if not items:
        raise Fault(FaultKind.INVALID_REQUEST, "an empty batch; do not send one")
    if len(items) > MAX_BATCH:
        raise Fault(FaultKind.INVALID_REQUEST, f"a batch of more than {MAX_BATCH}; split it")
    return Batch(tuple(_decode_item(bytes(item)) for item in items))


def _decode_item(body: bytes) -> Frame | Fault:
    try:
        return _decode_single(body)
    except Fault as fault:
        return fault


def _decode_single(body: bytes) -> Frame:
    """Decode any body that is not a batch."""
    try:
        envelope = _envelope().decode(body)
    except DECODE_ERRORS:
        return _decode_slowly(body)
    return _classify(body, envelope)


def _classify(body: bytes, envelope: _Envelope) -> Frame:
    """Recognise any other kind of message by its length, in the same way."""
    id, method = envelope.id, envelope.method or None
    params, result, error = envelope.params, envelope.result, envelope.error
    raw_id = b""
    if isinstance(id, int):
        raw_id = b"%d" % id
    elif isinstance(id, str):
        raw_id = b'"%b"' % id.encode()
    size = (
        _BARE_FRAME
        + (_ID + len(raw_id) if raw_id else 0)
        + (_METHOD + len(method) if method else 0)
        + (_PARAMS + len(params) if params else 0)
        + (_RESULT + len(result) if result else 0)
        + (_ERROR + len(error) if error else 0)
    )
    if len(body) != size:
        return _decode_slowly(body)
    return _frame(method, raw_id, params, result, error)


def _decode_slowly(body: bytes) -> Frame:
    """The slow path: whitespace, unknown members, rare ids, and everything invalid."""
    members = _split(body)
    raw_id, twice = _sole_id(body, members)
    if twice:
        raise _refuse(members, raw_id, "a message has the same member twice; send each once")
    if _string(members, "jsonrpc") != "2.0":
        raise _refuse(members, raw_id, 'jsonrpc must be "2.0"')
    method = _string(members, "method")
    if method is None and "method" in members:
        fault = _refuse(members, raw_id, "a method must be a string")
        fault.expects_no_response = False  # not a notification either, so its sender gets the error
        raise fault
    params, result, error = (members.get(name, NOTHING) for name in ("params", "result", "error"))
    return _frame(method, raw_id, params, result, error)


def _split(body: bytes) -> dict[str, Raw]:
    try:
        return _members.decode(body)
    except msgspec.ValidationError:
        words = "a message must be an object"
    except DECODE_ERRORS as error:
        raise _undecodable(body, invalid_json(body, error)) from None
    try:
        _raw.decode(body)
    except DECODE_ERRORS as error:
        raise invalid_json(body, error) from None
    raise Fault(FaultKind.INVALID_REQUEST, words)


def _string(members: dict[str, Raw], name: str) -> str | None:
    raw = members.get(name, NOTHING)
    return _text.decode(raw) if raw and bytes(raw)[:1] == _QUOTE else None


def _frame(method: str | None, raw_id: bytes, params: Raw, result: Raw, error: Raw) -> Frame:
    """Build the message that these members make; all ways of decoding meet here."""
    if method is None:
        return _response(raw_id, result, error)
    if result or error:
        raise _refuse(("method",), raw_id, "a message has a method, or a result or error, not both")
    if params and memoryview(params)[0] != _BRACE:
        raise _refuse(("method",), raw_id, "params must be an object")
    if not raw_id:
        return Notification(method, params)
    return Request(parse_id(raw_id), method, params, raw_id)


def _response(raw_id: bytes, result: Raw, error: Raw) -> ResultResponse | ErrorResponse:
    if not result and not error:
        raise _refuse((), raw_id, "a message needs a method, a result or an error")
    if result and error:
        raise _refuse(("result",), raw_id, "a response has a result or an error, not both")
    if result:
        if memoryview(result)[0] != _BRACE:
            raise _refuse(("result",), raw_id, "a result must be an object")
        return ResultResponse(_own_id(raw_id), result)
    try:
        read = _error.decode(error)
    except DECODE_ERRORS:
        raise _refuse(("error",), raw_id, "an error has an integer code and a message") from None
    if not _integral(read.code):
        raise _refuse(("error",), raw_id, "an error has an integer code")
    if duplicate_members(bytes(error), _members.decode(error)):
        raise _refuse(("error",), raw_id, "an error has the same member twice; send each once")
    # D2: `id: null` and no id mean the same, an error about something that could not be read.
    id = _own_id(raw_id) if raw_id and raw_id != b"null" else None
    return ErrorResponse(id, int(read.code), read.message, read.data)


def _own_id(raw_id: bytes) -> RequestId:
    """The id of a request of ours, as a response repeats it."""
    try:
        return parse_id(raw_id)
    except Fault as fault:
        fault.expects_no_response = True
        raise


def parse_id(raw: bytes) -> RequestId:
    """Decode an id: a string or an integer; `7` and `"7"` differ, `7.0` is `7`. Raises `Fault` for
    anything else."""
    if raw.isdigit() and len(raw) < 16:
        return int(raw)
    if len(raw) > MAX_ID_BYTES:
        raise Fault(FaultKind.INVALID_REQUEST, f"an id longer than {MAX_ID_BYTES} bytes")
    try:
        value = _any.decode(raw)
    except DECODE_ERRORS:
        value = None
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and _integral(value):
        return int(value)
    raise Fault(FaultKind.INVALID_REQUEST, "an id must be a string or an integer")


def _integral(number: int | float) -> bool:
    return isinstance(number, int) or (number.is_integer() and abs(number) <= MAX_EXACT)


def split_params(params: Raw) -> SplitParams:
    """Split params once. Raises `Fault` if they cannot be decoded or have a duplicate member.

    If there is nothing but these members (recognised by the length again), `_meta` and `arguments`
    are not checked for duplicates inside: the code that decodes them calls
    `refuse_duplicate_members` then.
    """
    if not params:
        return SplitParams()
    try:
        split = _head.decode(params)
    except DECODE_ERRORS as error:
        raise Fault(FaultKind.INVALID_PARAMS, f"params cannot be decoded: {error}") from None
    if _size(split) != len(params):
        refuse_duplicate_members(params)
    return split


def is_plainly_valid(body: bytes) -> bool:
    """Whether `decode` would find nothing wrong with these arguments, or with this result: it is
    ASCII, shallow and JSON. False if that is not known."""
    if not body.isascii():
        return False
    if len(body) + 3 * body.count(b"[") > _OPENED - 8 and may_be_deep(body, MAX_DEPTH - 2):
        return False
    try:
        _raw.decode(body)
    except DECODE_ERRORS:
        return False
    return True


def plain_result(response: bytes, raw_id: bytes) -> Raw | None:
    """The result in a response of ours to this request, as `decode` would find it; None for an
    error, and for a response that must be decoded."""
    at = _ID_AT + len(raw_id)
    if not (response.startswith(b',"result":', at) and response.startswith(b'{"jsonrpc":')):
        return None
    result = response[at + _RESULT : -1]
    return Raw(result) if is_plainly_valid(result) else None


def is_bare_call(request: Request, split: SplitParams) -> bool:
    """Whether params hold a name and arguments, perhaps a `_meta`, and nothing else."""
    if type(split.name) is not str or not split.arguments:
        return False
    if split.uri is not None or split.task_id is not None:
        return False
    return split is request.split_params or len(request.params) == _size(split)


# ---------------------------------------------------------------- invalid messages


def _refuse(members: Container[str], raw_id: bytes, message: str) -> Fault:
    """The fault for an invalid message, with the request it responds to, or our request that it
    settles.

    A response never gets an error: the id in it is one of ours, and may be one of theirs as well.
    Nor does a notification (R0233).
    """
    called = "method" in members
    reply = not called and ("result" in members or "error" in members)
    try:
        id = parse_id(raw_id)
    except Fault:
        expects_no_response = reply or (called and not raw_id and "id" not in members)
        return Fault(FaultKind.INVALID_REQUEST, message, expects_no_response=expects_no_response)
    if called:
        return Fault(FaultKind.INVALID_REQUEST, message, raw_id=raw_id)
    raw_id = b"" if reply else raw_id
    return Fault(
        FaultKind.INVALID_REQUEST, message, raw_id=raw_id, settles=id, expects_no_response=reply
    )


def _sole_id(body: bytes, members: dict[str, Raw]) -> tuple[bytes, bool]:
    """The id as it is written, and whether any member is duplicated; two ids count as none."""
    twice = duplicate_members(body, members)
    return b"" if "id" in twice else bytes(members.get("id", NOTHING)), bool(twice)


def _too_deep(body: bytes, deep: int) -> Fault:
    message = f"nested deeper than {MAX_DEPTH} levels; flatten it"
    if deep <= LEGIBLE_DEPTH:
        try:
            members = _members.decode(body)
            raw_id, _ = _sole_id(body, members)
        except DECODE_ERRORS:
            pass
        else:
            return _refuse(members, raw_id, message)
    names, raw_id = outline(body)
    if raw_id and names & {"method", "result", "error"}:
        return _refuse(names, raw_id, message)
    return Fault(FaultKind.INVALID_REQUEST, message)


def _undecodable(body: bytes, fault: Fault) -> Fault:
    """For a body that is not JSON: if it began as a response, the request that waits for it ends.

    The id of a request is not taken from such a body: JSON-RPC wants `null` in a parse error.
    """
    names, raw_id = outline(body)
    if raw_id and "method" not in names and names & {"result", "error"}:
        with contextlib.suppress(Fault):
            fault.settles = parse_id(raw_id)
    return fault


# ---------------------------------------------------------------- encoding


def encode(value: object) -> bytes:
    """Encode any JSON value. Raises `LocalProtocolError`."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"cannot be encoded as JSON: {error}") from error


def encode_large(value: object) -> bytes:
    """The same for a value that is known to be large, such as a text of many megabytes.

    Without memory for it, `Encoder.encode` of msgspec 0.22 ends the process with a segmentation
    fault. `encode_into` raises `MemoryError`; it makes one more copy, which costs 5 % of the time
    at 1 MiB.
    """
    encoded = bytearray()
    try:
        _encode_into(value, encoded)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"cannot be encoded as JSON: {error}") from error
    return bytes(encoded)


# Empty params are left out.
_REQUEST = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}'
_BARE_REQUEST = b'{"jsonrpc":"2.0","id":%b,"method":%b%b}'


def encode_request(raw_id: bytes, method: str, params: bytes) -> bytes:
    """Encode a request; `params` is already encoded, empty for none."""
    frame = _REQUEST if params else _BARE_REQUEST
    return line(frame % (raw_id, _written(method), params))


def encode_notification(method: str, params: bytes) -> bytes:
    """Encode a notification; `params` is already encoded, empty for none."""
    tail = b',"params":%b}' % params if params else b"}"
    return line(b'{"jsonrpc":"2.0","method":%b%b' % (_written(method), tail))


@lru_cache(MAX_METHODS)
def _written(method: str) -> bytes:
    return encode(method)


def encode_result(raw_id: bytes, result: bytes) -> bytes:
    """Encode the result response for this id, echoed as it was written."""
    return line(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (raw_id, result))


def encode_members(raw_id: bytes, members: dict[str, Any], size: int | None = None) -> bytes:
    """The same for a result that is given by its members, without a copy of it in between: each is
    raw, or an object. None of them is larger than `size`, if that is known."""
    if size is None:
        size = max(map(len, members.values()), default=0)
    if size <= LARGE_MEMBER:
        return line(_encode({"jsonrpc": "2.0", "id": Raw(raw_id), "result": members}))
    parts: list[bytes | Raw] = [b'{"jsonrpc":"2.0","id":%b,"result":' % raw_id]
    before = b"{"
    for name, value in members.items():
        parts += b"%b%b:" % (before, encode(name)), value if type(value) is Raw else encode(value)
        before = b","
    parts.append(b"}}")
    return line(b"".join(parts))


def encode_error(
    raw_id: bytes, code: int, message: str, data: object = None, *, null_id: bool = False
) -> bytes:
    """Encode an error response. Without an id there is none, or `null` if the revision requires it
    (D2)."""
    error = {"code": code, "message": _sentence(message)}
    body = encode(error if data is None else error | {"data": data})
    if raw_id or null_id:
        return line(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (raw_id or b"null", body))
    return line(b'{"jsonrpc":"2.0","error":%b}' % body)


def encode_batch(frames: list[bytes]) -> bytes:
    """Join encoded messages into one array."""
    return b"[%b]" % b",".join(frames)


_NO_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def line(frame: bytes) -> bytes:
    """R0040: raw JSON that is passed on may have line breaks outside of strings; they become
    spaces."""
    return frame if _LF not in frame and _CR not in frame else frame.translate(_NO_BREAKS)


def _sentence(message: str) -> str:
    """R0179: one line of bounded length, which can be encoded whatever is in it."""
    words = " ".join(message[: 4 * MAX_MESSAGE_CHARS].split())
    if len(words) > MAX_MESSAGE_CHARS:
        words = words[: MAX_MESSAGE_CHARS - 1] + "…"
    return words.encode(errors="replace").decode()


class LineSplitter:
    """Splits a byte stream into lines, one message each, however it is chunked.

    An overlong line is reported once, as a fault, and skipped to its end; the next one is good
    again. Empty lines and a carriage return before the newline are accepted.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._kept = bytearray()
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes | Fault]:
        """The lines that this chunk completes."""
        found: list[bytes | Fault] = []
        *ends, rest = chunk.split(b"\n")
        if not self._size and len(chunk) <= self._max:  # nothing was left over
            found += [line for end in ends if (line := end.strip(b"\r \t"))]
            if rest:
                self._keep(rest, found)
            return found
        for end in ends:
            self._keep(end, found)
            line = bytes(self._kept).strip(b"\r \t")
            if line:
                found.append(line)
            self._kept.clear()
            self._size = 0
        self._keep(rest, found)
        return found

    def _keep(self, part: bytes, found: list[bytes | Fault]) -> None:
        before, self._size = self._size, self._size + len(part)
        if self._size <= self._max:
            self._kept += part
            return
        self._kept.clear()
        if before <= self._max:
            words = f"a line of more than {self._max} bytes; send less, or raise the limit"
            found.append(Fault(FaultKind.PARSE, words))
