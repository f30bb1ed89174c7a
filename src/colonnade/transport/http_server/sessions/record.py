"""A session as a record in a shared store, from which any process can continue it; delete with
2025-11-25.

Rules: plain data, no I/O. A record has no secrets. What a newer version of this package added to a
record is kept when an older one writes it: two releases run side by side during an update.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol.json_checks import DECODE_ERRORS
from colonnade.protocol.link.events import LinkSnapshot
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.types import LoggingLevel

log: logging.Logger = logging.getLogger("colonnade.transport")

# Increased when older releases must not read a record; members may be added without that.
RECORD_VERSION: Final = 1
# Of the entries in the logs of streams, likewise.
EVENTS_VERSION: Final = 1
# Of the store: not the name of a caller, and not without limits as `SERVER_PRINCIPAL` is.
ANONYMOUS_SESSIONS: Final = f"{SERVER_PRINCIPAL} sessions"


class SessionRecord(Struct, frozen=True, kw_only=True):
    """A session: its principal, its link, the subscribed URIs, the Unix time of `initialize`, and
    the replica with the newest stream for notifications, empty if there was none.

    `number` counts the changes: a record with a greater one is newer. `renewed_at` is the Unix time
    of the last write, which began its lifetime again.
    """

    version: int = RECORD_VERSION
    number: int = 0
    principal: str
    link: LinkSnapshot
    subscriptions: frozenset[str] = frozenset()
    created_at: float
    listener: str = ""
    renewed_at: float = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the client has sent `notifications/initialized`."""
        return self.link.phase is Phase.OPEN

    @property
    def log_level(self) -> LoggingLevel | None:
        """The log level that the client has set."""
        return self.link.log_level


def store_principal(principal: str) -> str:
    """The principal of the store under which the sessions of a caller are kept. Those of callers
    without a name have a quota of their own: too many of them take no room from other state."""
    return principal or ANONYMOUS_SESSIONS


def record_key(id: str) -> str:
    """The entry with the record of a session."""
    return f"session {id}"


def stream_key(id: str, stream: str) -> str:
    """The log with the events of a stream of a session."""
    return f"stream {id} {stream}"


def encode_record(record: SessionRecord, before: bytes = b"{}") -> bytes:
    """Encode a record in place of an older one; unknown members of it and of its link are kept."""
    earlier, own = _members(before), _members(msgspec.json.encode(record))
    link = _members(bytes(earlier.get("link", b"{}"))) | _members(bytes(own["link"]))
    return msgspec.json.encode(earlier | own | {"link": link})


def _members(data: bytes) -> dict[str, Raw]:
    return msgspec.json.decode(data, type=dict[str, Raw])


def decode_record(data: bytes) -> SessionRecord | None:
    """Decode a record; None for one that only a newer release can read."""
    try:
        record = msgspec.json.decode(data, type=SessionRecord)
    except DECODE_ERRORS as error:
        log.warning("the record of a session cannot be read: %s", error)
        return None
    return record if record.version <= RECORD_VERSION else None


def merge(stored: SessionRecord, base: SessionRecord, own: SessionRecord) -> SessionRecord:
    """The stored record with what has changed from `base` to `own`, and with all that other
    processes have changed in it since `base`."""
    link = replace(
        stored.link,
        phase=Phase.OPEN if own.is_open else stored.link.phase,
        log_level=own.log_level if own.log_level != base.log_level else stored.log_level,
    )
    added = own.subscriptions - base.subscriptions
    removed = base.subscriptions - own.subscriptions
    return replace(stored, link=link, subscriptions=(stored.subscriptions | added) - removed)


class LoggedEvents(Struct, frozen=True, array_like=True):
    """An entry in the log of a stream: numbered messages that were sent together, and what a client
    needs to resume there.

    `is_last`: the stream has ended with them. `scopes` are those that it was opened with,
    `requests` the ids of the requests that have no response yet, as they were written.
    """

    events: list[tuple[int, bytes]]
    is_last: bool = False
    for_notifications: bool = False
    scopes: frozenset[str] | None = None
    requests: list[bytes] = []
    version: int = EVENTS_VERSION


encode_events: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_events_decoder = msgspec.msgpack.Decoder(LoggedEvents)


def decode_events(data: bytes) -> LoggedEvents | None:
    """Decode an entry of a stream's log; None for one that only a newer release can read."""
    try:
        events = _events_decoder.decode(data)
    except DECODE_ERRORS as error:
        log.warning("the log of a stream cannot be read: %s", error)
        return None
    return events if events.version <= EVENTS_VERSION else None
