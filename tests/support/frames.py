"""Frames for the tests: templates to fill in, and frames and faults as values that compare.

Rules: no rule of the protocol is decided here.
"""

import json
from typing import Any

import pytest

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    Request,
    ResultResponse,
    decode,
    encode_error,
)
from colonnade.protocol.revision import Revision, error_code

PARSE, INVALID = FaultKind.PARSE, FaultKind.INVALID_REQUEST

# One digit more than Python turns into an integer is 4,301.
LONG = b"7" * 5000

CALL = b'{"jsonrpc":"2.0","id":7,"method":"a","params":%b}'
TELL = b'{"jsonrpc":"2.0","method":"a","params":%b}'
GOOD = b'{"jsonrpc":"2.0","id":7,"result":%b}'
BAD = b'{"jsonrpc":"2.0","id":7,"error":%b}'
WITH_ID = b'{"jsonrpc":"2.0","id":%b,"method":"a","params":{}}'


def cases(table: dict[str, Any]) -> pytest.MarkDecorator:
    """One run for each row of a table, named by its key; the test takes it as `case`."""
    return pytest.mark.parametrize("case", table.values(), ids=table)


def fault_of(body: bytes) -> Fault:
    """The fault that these bytes are."""
    with pytest.raises(Fault) as caught:
        decode(body)
    return caught.value


def answer(fault: Fault, revision: Revision) -> dict[str, Any]:
    """The error that a peer of this revision is sent for a fault (D2)."""
    code = error_code(fault, revision)
    null_id = revision.error_id_required
    return json.loads(encode_error(fault.raw_id, code, fault.message, fault.data, null_id=null_id))


def plain(frame: Frame | Fault | Batch) -> tuple[object, ...]:
    """A frame as values that compare: raw members become their bytes."""
    match frame:
        case Request():
            return "request", frame.id, frame.method, bytes(frame.params), frame.raw_id
        case Notification():
            return "notification", frame.method, bytes(frame.params)
        case ResultResponse():
            return "reply", frame.id, bytes(frame.result)
        case ErrorResponse():
            return "failure", frame.id, frame.code, frame.message, bytes(frame.data)
        case Fault():
            return "fault", frame.kind, frame.raw_id, frame.settles
        case Batch():
            return tuple(plain(item) for item in frame.items)
