"""Sessions as records: what is kept, what two releases do to each other, and how changes meet."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from colonnade.protocol.link.events import LinkSnapshot
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.methods import Side
from colonnade.protocol.types import LoggingLevel
from colonnade.transport.http_server.sessions.record import (
    RECORD_VERSION,
    LoggedEvents,
    SessionRecord,
    decode_events,
    decode_record,
    encode_events,
    encode_record,
    merge,
    store_principal,
)

LINK = LinkSnapshot(
    side=Side.SERVER,
    phase=Phase.OPENING,
    revision="2025-11-25",
    capabilities=msgspec.Raw(b'{"roots":{}}'),
    informed=True,
    info=None,
    log_level=None,
    next_id=1,
    sent=(),
)
RECORD = SessionRecord(principal="ada", link=LINK, created_at=1.0)


def changed(
    record: SessionRecord = RECORD,
    *uris: str,
    phase: Phase = Phase.OPENING,
    level: LoggingLevel | None = None,
) -> SessionRecord:
    link = replace(record.link, phase=phase, log_level=level)
    return replace(record, link=link, subscriptions=frozenset(uris))


def test_a_record_is_read_as_it_was_written() -> None:
    record = changed(RECORD, "file:///a", phase=Phase.OPEN, level="error")
    again = decode_record(encode_record(record))
    assert again is not None
    assert encode_record(again) == encode_record(record)
    assert (again.is_open, again.log_level) == (True, "error")


def test_members_of_a_newer_release_are_kept() -> None:
    members = json.loads(encode_record(RECORD)) | {"tenant": "x"}
    members["link"]["proxy"] = [1]
    newer = json.dumps(members).encode()
    record = decode_record(newer)
    assert record is not None
    written = json.loads(encode_record(changed(record, phase=Phase.OPEN), newer))
    assert (written["tenant"], written["link"]["proxy"]) == ("x", [1])
    assert written["link"]["phase"] == "initialized"


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[", b"\xff", encode_record(replace(RECORD, version=RECORD_VERSION + 1))],
)
def test_a_record_that_cannot_be_read_is_no_session(data: bytes) -> None:
    assert decode_record(data) is None


@pytest.mark.parametrize("data", [b"", b"{}", encode_events([[], False, False, None, [], 2])])
def test_an_entry_of_a_stream_that_cannot_be_read_is_none(data: bytes) -> None:
    assert decode_events(data) is None
    assert decode_events(encode_events([[], True, False, None, [], 1, "new"])) == LoggedEvents(
        [], True
    )


def test_changes_of_two_processes_are_both_kept() -> None:
    base = changed(RECORD, "a", "b", level="info")
    stored = changed(RECORD, "a", "b", "c", level="info", phase=Phase.OPEN)
    own = changed(RECORD, "b", "d", level="debug")
    merged = merge(stored, base, own)
    assert merged.subscriptions == {"b", "c", "d"}
    assert (merged.log_level, merged.is_open) == ("debug", True)
    assert merge(base, base, changed(base, "a", "b", phase=Phase.OPEN, level="info")).is_open
    assert merge(stored, base, base) == stored


def test_callers_without_a_name_share_no_quota() -> None:
    assert store_principal("ada") == "ada"
    assert store_principal("") not in ("", "ada")


def test_logged_events_are_read_as_they_were_written() -> None:
    events = LoggedEvents([(1, b"x"), (2, b"y")], True, False, frozenset({"a"}))
    assert decode_events(encode_events(events)) == events
    assert decode_events(encode_events(LoggedEvents([]))) == LoggedEvents([])
