"""Event ids of a session's streams: the name of the stream, and the number of the event on it;
delete with 2025-11-25.

    5f3a9c01-8.n-0                   in one process; `n`: the stream is for notifications
    5f3a9c0177c1b0ee-k2v…-7.3132-4   in replicas: tag of the copy, replica, count; ids; number

A client sends the id of the last event that it has received. By then, everything else about the
stream may be gone: the client came back late, or the process has ended and the log has expired. So
the name of a stream contains the ids of its requests. For each of these requests the client gets an
error (the request may have had an effect), and for a stream of notifications a new stream. Without
the name, the server could only refuse the client, and some clients then wait for ever.

Rules: plain data, no I/O. Clients can forge event ids. Ids are checked, and name streams and
requests only in the session of the sender. In replicas the tag is bound to the session, so an id of
another session is unknown, as in a single process.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec import DecodeError

from colonnade.errors import EFFECT_UNKNOWN, FaultKind
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.jsonrpc import encode

# Maximum bytes of request ids in the name of a stream. The name is in each event id, which has at
# most 1,024 characters; some SDKs use UUIDs as request ids.
MAX_MARK_BYTES = 200
# The name of a stream ends so if the stream is for notifications, or if the ids of its requests are
# too long.
NOTIFICATIONS_MARK = ".n"
LONG_MARK = ".0"
# Maximum digits of an event number; no stream has that many events.
MAX_DIGITS = 15
GONE = "the events of this stream are no longer available"
GONE_STATUS = 410
UNKNOWN = {"effectUnknown": True}

_decode_ids = msgspec.json.Decoder(list[int | str]).decode


def bound_tag(session: str, salt: str, replica: str) -> str:
    """The tag of the copy of a session in a replica."""
    check = blake2b(f"{session} {salt} {replica}".encode(), digest_size=4).hexdigest()
    return f"{salt}{check}-{replica}"


def is_of(name: str, session: str) -> bool:
    """Whether a copy of this session can have given this name to a stream."""
    tag, _, _ = name.rpartition("-")
    salt, _, replica = tag.partition("-")
    return tag == bound_tag(session, salt[:-8], replica)


def mark_of(raw_ids: Sequence[bytes]) -> str:
    """The end of the name of a stream: the ids of its requests, as the client wrote them."""
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
