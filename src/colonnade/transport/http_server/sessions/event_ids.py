"""Event ids of a session's streams: the name of the stream, and the number of the event on it;
delete with 2025-11-25.

    5f3a9c01-8.n-0                   in one process; `n`: the stream is for notifications
    5f3a9c0177c1b0ee-k2v…-7.3132-4   in replicas: tag of the copy, replica, count; ids; number

A client sends the id of the last event that it has received. All else about the stream may be gone
by then: it was not resumed for long, or its process has ended and its log has expired. So the name
says which requests the stream was for. Each of them gets an error that says that it may have had an
effect, and a client of notifications gets a new stream. Without that, a client could only be
refused, and some clients then wait for ever.

Rules: plain data, no I/O. Clients can write what they like into an event id; it is checked, and
what it names is used in the session of its sender alone. In replicas the tag is bound to the
session, so that an id of another one is as unknown as it is in one process.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import DecodeError

from colonnade.errors import EFFECT_UNKNOWN, FaultKind
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.jsonrpc import encode

# Ids of requests in the name of a stream, which is in each of its event ids: some SDKs use UUIDs,
# and the largest event id that is accepted has 1,024 characters.
MAX_MARK_BYTES = 200
# The end of the name of a stream for notifications, and of one whose ids are too long for a name.
NOTIFICATIONS_MARK = ".n"
LONG_MARK = ".0"
# Of a number: no stream has as many events.
MAX_DIGITS = 15
GONE = "the events of this stream are not kept any more"
GONE_STATUS = 410
UNKNOWN = {"effectUnknown": True}

_decode_ids = msgspec.json.Decoder(list[int | str]).decode


def bound_tag(session: str, salt: str, replica: str) -> str:
    """The tag of the copy of a session in a replica."""
    check = blake2b(f"{session} {salt} {replica}".encode(), digest_size=4).hexdigest()
    return f"{salt}{check}-{replica}"


def is_of(name: str, session: str) -> bool:
    """Whether a copy of this session may have named a stream so."""
    tag, _, _ = name.rpartition("-")
    salt, _, replica = tag.partition("-")
    return tag == bound_tag(session, salt[:-8], replica)


def mark_of(raw_ids: Sequence[bytes]) -> str:
    """The end of the name of a stream: the ids of its requests, as they were written."""
    text = b",".join(raw_ids)
    return f".{text.hex()}" if len(text) <= MAX_MARK_BYTES else LONG_MARK


def ids_of(name: str) -> list[bytes] | None:
    """The ids of the requests of a stream; None if it is for notifications. Raises 400 for a name
    that no stream has, and 410 if the ids were too long for a name."""
    mark = name.rpartition(".")[2]
    if name.endswith(NOTIFICATIONS_MARK):
        return None
    if name.endswith(LONG_MARK):
        words = f"{GONE}; {EFFECT_UNKNOWN}"
        raise HttpError(GONE_STATUS, words, kind=FaultKind.INTERNAL, data=UNKNOWN)
    if "." not in name or len(mark) > 2 * MAX_MARK_BYTES:
        raise rules.unknown_event()
    try:
        return [encode(id) for id in _decode_ids(b"[" + bytes.fromhex(mark) + b"]")]
    except (ValueError, DecodeError):
        raise rules.unknown_event() from None


def split_event_id(event_id: str) -> tuple[str, int]:
    """The name of a stream, and the number of an event on it. Raises 400."""
    name, _, number = event_id.rpartition("-")
    if not number.isdecimal() or len(number) > MAX_DIGITS:
        raise rules.unknown_event()
    return name, int(number)
