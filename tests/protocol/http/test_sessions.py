"""Revisions with a handshake over HTTP: sessions, who governs, resuming, replies, batches."""

import json

import pytest
from msgspec import Raw

from colonnade.errors import (
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteProtocolError,
)
from colonnade.protocol import methods
from colonnade.protocol.http.rules import (
    ENDED,
    MAX_EVENT_ID_LENGTH,
    MAX_SESSION_ID_LENGTH,
    accept_post,
    admit,
    admit_batch,
    assigned_session,
    check_owner,
    headers_for_session,
    last_event_id,
    require_session,
    session_id,
    session_revision,
    status_of,
    status_of_batch,
    unknown_event,
    unknown_session,
    valid_session_id,
    version_header,
)
from colonnade.protocol.http.security import (
    Headers,
    HttpError,
    combine_headers,
)
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Notification,
    Request,
    ResultResponse,
    decode,
)
from colonnade.protocol.negotiation import PeerDetector, negotiate
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)
from posts import HANDSHAKES, MODERN_ONLY, answer, let_in, refusal, request, session

# ---------------------------------------------------------------- handshakes and sessions


@pytest.mark.parametrize("version", [None, *(revision.date for revision in ALL)])
def test_a_handshake_is_let_through_with_any_version_that_is_spoken(version: str | None) -> None:
    headers = {} if version is None else {b"mcp-protocol-version": version.encode()}
    assert admit(request("initialize", {}, None), headers, PeerDetector()) is None


@pytest.mark.spec("R0359")
@pytest.mark.parametrize("version", ["2030-01-01", "", "rubbish", "\x00", JULY_2026.date])
def test_a_version_header_that_is_not_spoken_is_a_bad_request(
    revision: Revision, version: str
) -> None:
    headers = {b"mcp-protocol-version": version.encode()}
    accepts = Revisions((revision,))
    for method in ("initialize", "tools/list"):
        known = None if method == "initialize" else session(revision)
        assert (
            answer(admit, request(method, {}, None), headers, PeerDetector(accepts), known)[0]
            == 400
        )
    assert answer(session_revision, headers, accepts, revision)[0] == 400
    assert answer(version_header, headers, accepts) == (400, -32022)


def test_a_second_handshake_in_a_session_is_refused() -> None:
    body = request("initialize", {}, None)
    assert answer(admit, body, {}, PeerDetector(), session(JUNE_2025)) == (400, -32600)
    assert admit(body, {}, PeerDetector()) is None


@pytest.mark.spec("R0931")
def test_a_modern_only_server_tells_a_handshake_which_versions_it_speaks() -> None:
    assert admit(request("initialize", {}, None), {}, PeerDetector(MODERN_ONLY)) is None
    fault = refusal(negotiate, NOVEMBER_2025.date, MODERN_ONLY)
    assert (status_of(fault, admitted=False), error_code(fault, None)) == (400, -32022)
    assert fault.data["supported"] == [JULY_2026.date]
    assert JULY_2026.date in fault.message


@pytest.mark.spec("R0287")
def test_an_ended_session_is_not_found_whatever_is_sent_to_it(revision: Revision) -> None:
    headers = {b"mcp-session-id": b"gone"}
    for method in ("tools/list", "ping", "initialize", "unknown"):
        fault = refusal(admit, request(method, {}, None), headers, PeerDetector(), ENDED)
        assert isinstance(fault, HttpError)
        assert status_of(fault, revision) == 404
    assert status_of(unknown_session(), revision) == 404


@pytest.mark.spec("R0286")
def test_a_request_without_the_session_that_it_needs_is_a_bad_request(revision: Revision) -> None:
    accepts = Revisions((revision,))
    assert answer(require_session, {}) == (400, -32600)
    assert answer(admit, request(meta=None), {}, PeerDetector(accepts))[0] == 400


def test_a_session_of_another_principal_looks_like_none() -> None:
    check_owner("ann", "ann")
    check_owner("", "")
    foreign, absent = refusal(check_owner, "bob", "ann"), refusal(check_owner, None, "ann")
    nobody = refusal(check_owner, None, "")
    assert {str(fault) for fault in (foreign, absent, nobody)} == {str(unknown_session())}
    assert {status_of(fault) for fault in (foreign, absent, nobody)} == {404}


@pytest.mark.spec("R0284")
def test_session_ids_are_visible_ascii(revision: Revision) -> None:
    visible = "".join(map(chr, range(0x21, 0x7F)))
    for good in (visible, "a", "~" * MAX_SESSION_ID_LENGTH):
        assert valid_session_id(good)
        assert session_id({b"mcp-session-id": good.encode()}) == good
        assert require_session({b"mcp-session-id": good.encode()}) == good
        assert assigned_session(good) == good
        assert ("Mcp-Session-Id", good) in headers_for_session(revision, good)
    others = [chr(code) for code in range(0x120) if not 0x21 <= code <= 0x7E]
    for bad in ("", "~" * (MAX_SESSION_ID_LENGTH + 1), *(f"a{other}b" for other in others)):
        assert not valid_session_id(bad)
        assert answer(session_id, {b"mcp-session-id": bad.encode()}) == (400, -32600)
        with pytest.raises(RemoteProtocolError):
            assigned_session(bad)
        with pytest.raises(LocalProtocolError):
            headers_for_session(revision, bad)


def test_no_session_id_is_no_session() -> None:
    assert session_id({}) is None
    assert assigned_session(None) is None
    twice = combine_headers([(b"mcp-session-id", b"a"), (b"mcp-session-id", b"b")])
    assert answer(session_id, twice) == (400, -32600)


# ---------------------------------------------------------------- which revision governs


@pytest.mark.spec("R0358")
def test_without_header_and_session_it_is_the_revision_that_had_no_header(
    revision: Revision,
) -> None:
    assert session_revision({}, Revisions((MARCH_2025, revision))).revision is MARCH_2025
    assert session_revision({}, EVERY).revision is MARCH_2025
    assert answer(session_revision, {}, Revisions((revision,)))[0] == 400


@pytest.mark.parametrize("accepts", [HANDSHAKES, EVERY], ids=["handshakes", "every"])
def test_the_session_governs_and_another_header_is_only_a_warning(accepts: Revisions) -> None:
    for agreed in HANDSHAKES:
        assert session_revision({}, accepts, agreed).revision is agreed
        for named in HANDSHAKES:
            ruling = session_revision(
                {b"mcp-protocol-version": named.date.encode()}, accepts, agreed
            )
            assert ruling.revision is agreed
            assert bool(ruling.warning) == (named is not agreed)
            admission = let_in(
                request("tools/list", {}, None),
                {b"mcp-protocol-version": named.date.encode()},
                PeerDetector(accepts),
                session(agreed),
            )
            assert admission.peer.revision is agreed
            assert admission.warning == ruling.warning


def test_without_a_session_the_header_decides(revision: Revision) -> None:
    headers = {b"mcp-protocol-version": b" %b " % revision.date.encode()}
    accepts = Revisions((revision,))
    assert session_revision(headers, accepts).revision is revision
    assert version_header(headers, accepts) is revision
    assert version_header({}, EVERY) is None


def test_a_modern_header_without_an_envelope_is_malformed_in_a_session_too() -> None:
    headers = {b"mcp-protocol-version": JULY_2026.date.encode()}
    body = request("tools/list", {}, None)
    assert answer(admit, body, headers, PeerDetector(), session(NOVEMBER_2025)) == (400, -32602)


def test_a_legacy_request_needs_no_routing_headers(revision: Revision) -> None:
    if not revision.handshake:
        assert answer(admit, request(), signed(revision), PeerDetector()) == (400, -32020)
        return
    admission = let_in(request(meta=None), signed(revision), PeerDetector(), session(revision))
    assert admission.method is methods.CALL_TOOL


def signed(revision: Revision) -> Headers:
    return {b"mcp-protocol-version": revision.date.encode()}


# ---------------------------------------------------------------- resuming


def test_an_event_id_is_read_where_streams_can_be_resumed(revision: Revision) -> None:
    headers = {b"last-event-id": b"stream-1/7"}
    assert last_event_id(headers, revision) == ("stream-1/7" if revision.http.resumable else None)
    assert last_event_id({}, revision) is None
    assert last_event_id({b"last-event-id": b"x" * MAX_EVENT_ID_LENGTH}, NOVEMBER_2025)


@pytest.mark.parametrize(
    "bad", [b"\x00", b"a\nb", b"\x7f", "ü".encode(), b"x" * (MAX_EVENT_ID_LENGTH + 1)]
)
def test_an_event_id_that_cannot_be_ours_is_as_good_as_unknown(bad: bytes) -> None:
    fault = refusal(last_event_id, {b"last-event-id": bad}, NOVEMBER_2025)
    assert status_of(fault) == status_of(unknown_event()) == 400
    assert str(fault) == str(unknown_event())
    assert last_event_id({b"last-event-id": bad}, JULY_2026) is None


# ---------------------------------------------------------------- what is no request

NOTE = Notification("notifications/initialized")
REPLY = ResultResponse(1, Raw(b"{}"))
FAILURE = ErrorResponse(1, -1, "no")


@pytest.mark.spec("R0249")
@pytest.mark.parametrize("frame", [NOTE, REPLY, FAILURE], ids=["notification", "reply", "failure"])
def test_a_notification_or_a_reply_is_accepted_in_a_session(
    revision: Revision, frame: Notification | ResultResponse | ErrorResponse
) -> None:
    assert accept_post(frame, revision) == 202


@pytest.mark.spec("R0250")
def test_a_notification_or_a_reply_that_cannot_be_accepted_gets_an_error_status(
    revision: Revision,
) -> None:
    for problem in (
        refusal(require_session, {}),
        unknown_session(),
        refusal(session_revision, {b"mcp-protocol-version": b"x"}, EVERY, revision),
        refusal(decode, b'{"jsonrpc":"2.0","id":1,"result":1}'),
    ):
        assert 400 <= status_of(problem, revision, admitted=False) < 500


@pytest.mark.spec("R0852")
def test_a_notification_is_accepted_by_post(revision: Revision) -> None:
    assert accept_post(NOTE, revision) == 202
    assert accept_post(Notification("notifications/cancelled"), revision) == 202


@pytest.mark.spec("R0853")
def test_a_notification_that_cannot_be_accepted_gets_an_error_status(revision: Revision) -> None:
    accepts = Revisions((revision,))
    assert answer(session_revision, {}, accepts) == (400, -32020)
    assert answer(session_revision, {b"mcp-protocol-version": b"x"}, accepts) == (400, -32022)
    assert answer(decode, b'{"jsonrpc":"2.0","method":1}') == (400, -32600)


@pytest.mark.spec("R0850", "R0851")
@pytest.mark.parametrize("frame", [REPLY, FAILURE], ids=["reply", "failure"])
def test_a_reply_is_not_accepted_where_the_server_asks_by_result(
    revision: Revision, frame: ResultResponse | ErrorResponse
) -> None:
    assert answer(accept_post, frame, revision, revision=revision) == (400, -32600)


# ---------------------------------------------------------------- batches


def batch(*frames: object) -> Batch:
    found = decode(json.dumps(frames).encode())
    assert isinstance(found, Batch)
    return found


ASK = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
OPEN = {"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": {}}
TELL = {"jsonrpc": "2.0", "method": "notifications/initialized"}
TOLD = {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.mark.spec("R0234", "R0248", "R0249")
@pytest.mark.parametrize(
    ("frames", "status"),
    [
        ([ASK], 200),
        ([ASK, TELL, TOLD], 200),
        ([ASK, 1], 200),
        ([TELL], 202),
        ([TELL, TOLD], 202),
        ([1, 2], 400),
        ([TELL, 1], 400),
    ],
)
def test_a_batch_is_answered_by_what_is_in_it(frames: list[object], status: int) -> None:
    whole = batch(*frames)
    assert admit_batch(whole, MARCH_2025) == whole
    assert status_of_batch(admit_batch(whole, MARCH_2025)) == status


@pytest.mark.spec("R0248")
def test_where_there_are_batches_a_single_frame_is_still_a_post() -> None:
    for frame in (NOTE, REPLY, FAILURE):
        assert accept_post(frame, MARCH_2025) == 202
    admission = let_in(request(meta=None), {}, PeerDetector(), session(MARCH_2025))
    assert (admission.method, admission.peer.revision) == (methods.CALL_TOOL, MARCH_2025)


@pytest.mark.spec("R0236")
def test_a_handshake_in_a_batch_is_refused_and_the_rest_is_not() -> None:
    first, second = admit_batch(batch(OPEN, ASK), MARCH_2025).items
    assert isinstance(first, Fault)
    assert (first.kind, first.raw_id) == (FaultKind.INVALID_REQUEST, b'"i"')
    assert isinstance(second, Request)
    assert status_of_batch(admit_batch(batch(OPEN), MARCH_2025)) == 400


@pytest.mark.spec("R0355", "R0850")
def test_where_there_are_no_batches_one_is_a_bad_request(revision: Revision) -> None:
    assert answer(admit_batch, batch(ASK), revision, revision=revision) == (400, -32600)
    assert answer(admit_batch, batch(TELL), revision, revision=revision) == (400, -32600)


def test_a_batch_outside_a_session_or_an_empty_one_is_a_bad_request() -> None:
    assert answer(admit_batch, batch(ASK), None) == (400, -32600)
    assert answer(decode, b"[]") == (400, -32600)
