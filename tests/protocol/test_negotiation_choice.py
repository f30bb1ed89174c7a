"""Settling on a revision: what a server answers, what a client makes of it, what a probe proves."""

from typing import Any

import pytest
from msgspec import Raw

from colonnade.client.probe import Era, Verdict, judge
from colonnade.errors import Fault, FaultKind, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import ErrorResponse, ResultResponse, encode
from colonnade.protocol.negotiation import (
    Peer,
    agree,
    choose,
    missing_capability,
    missing_meta,
    negotiate,
    require_extension,
    shared_extensions,
    unsupported_version,
)
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)

LEGACY_ONLY = Revisions(ALL[:-1])
MODERN_ONLY = Revisions(ALL[-1:])
MODERN = JULY_2026.date
UNKNOWN = "2031-01-01"


def peer_of(revision: Revision) -> Peer:
    return Peer(revision, t.ClientCapabilities())


# ---------------------------------------------------------------- the answer to initialize


@pytest.mark.spec("R0015")
def test_a_version_that_the_server_speaks_is_the_one_that_is_spoken(revision: Revision) -> None:
    assert negotiate(revision.date, EVERY) is revision
    assert negotiate(revision.date, Revisions((revision,))) is revision


@pytest.mark.spec("R0016", "R0017", "R0025")
def test_any_other_version_is_answered_with_the_newest_that_has_a_handshake(
    revision: Revision,
) -> None:  # D9
    for asked in (MODERN, UNKNOWN, "1900-01-01", "", "x" * 10_000):
        assert negotiate(asked, EVERY) is NOVEMBER_2025
        assert negotiate(asked, Revisions((revision, JULY_2026))) is revision
    others = Revisions(other for other in ALL if other is not revision)
    assert negotiate(revision.date, others) is others.handshakes[0]


@pytest.mark.spec("R0931")
def test_a_server_without_handshakes_tells_initialize_what_it_speaks(revision: Revision) -> None:
    accepts = Revisions((revision,))
    for asked in ("2025-11-25", "2024-11-05", revision.date, UNKNOWN):
        with pytest.raises(Fault) as caught:
            negotiate(asked, accepts)
        assert error_code(caught.value, None) == -32022
        assert caught.value.data == {"supported": [revision.date], "requested": asked}
        assert revision.date in caught.value.message


@pytest.mark.spec("R0018", "R0025", "R0178")
def test_a_client_stays_only_for_a_version_that_it_speaks(revision: Revision) -> None:  # D34
    assert agree(revision.date, EVERY) is revision
    others = Revisions(other for other in ALL if other is not revision)
    for answered in (revision.date, MODERN, UNKNOWN, ""):
        with pytest.raises(RemoteProtocolError, match="disconnecting"):
            agree(answered, others)


def test_a_client_says_what_it_could_have_spoken_and_not_all_of_what_it_heard() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        agree("9" * 10_000, LEGACY_ONLY)
    assert "2025-11-25, 2025-06-18" in str(caught.value)
    assert len(str(caught.value)) < 300


# ---------------------------------------------------------------- a choice from a list


@pytest.mark.spec("R0923")
def test_the_newest_that_both_speak_is_chosen_whatever_the_order(revision: Revision) -> None:
    assert choose([revision.date, "2025-11-25"], EVERY) is revision
    assert choose(["2025-11-25", UNKNOWN, revision.date], EVERY) is revision
    assert choose(iter([revision.date]), MODERN_ONLY) is revision


def test_a_choice_may_fall_on_a_revision_with_a_handshake() -> None:  # D11
    assert choose(["2025-11-25", "2024-11-05"], EVERY) is NOVEMBER_2025
    assert choose([MODERN, "2024-11-05"], LEGACY_ONLY) is ALL[0]


@pytest.mark.spec("R0923")
def test_without_a_revision_in_common_the_user_is_told_both_lists(revision: Revision) -> None:
    for theirs in ([], [UNKNOWN], [f"x{n}" * 1000 for n in range(500)]):
        with pytest.raises(RemoteProtocolError, match="no revision in common") as caught:
            choose(theirs, Revisions((revision,)))
        assert revision.date in str(caught.value)
        assert len(str(caught.value)) < 2000
    with pytest.raises(RemoteProtocolError, match=UNKNOWN):
        choose([UNKNOWN], EVERY)


# ---------------------------------------------------------------- what a probe proves


def failure(code: int, data: Any = None) -> ErrorResponse:
    return ErrorResponse(1, code, "words", Raw(encode(data)) if data is not None else Raw(b""))


DISCOVERED = {"supportedVersions": [MODERN, "2025-11-25"], "capabilities": {}}
SUPPORTED = {"supported": [MODERN], "requested": UNKNOWN}


def test_a_discovery_is_the_word_of_a_modern_server() -> None:
    verdict = judge(ResultResponse(1, Raw(encode(DISCOVERED))))
    assert verdict == Verdict(Era.MODERN, (MODERN, "2025-11-25"))


@pytest.mark.parametrize(
    "result", [{}, {"supportedVersions": 1}, {"tools": []}, {"protocolVersion": "2025-11-25"}]
)
def test_a_result_that_is_no_discovery_is_from_an_older_server(result: dict[str, Any]) -> None:
    assert judge(ResultResponse(1, Raw(encode(result)))).era is Era.LEGACY
    assert judge(ResultResponse(1, Raw(b"\xff"))).era is Era.LEGACY


@pytest.mark.spec("R0917")
@pytest.mark.parametrize("status", [None, 400, 404, 403, 500])
def test_a_recognised_modern_error_proves_a_modern_server_whatever_its_status(
    status: int | None,
) -> None:  # D12
    assert judge(failure(-32022, SUPPORTED), status) == Verdict(Era.MODERN, (MODERN,))
    assert judge(failure(-32021, {"requiredCapabilities": {}}), status).era is Era.MODERN
    assert judge(failure(-32020), status).era is Era.MODERN


@pytest.mark.parametrize(
    "spoiled",
    [
        failure(-32022),
        failure(-32022, {"supported": "all"}),
        failure(-32022, {"requested": "x"}),
        failure(-32022, [1]),
        failure(-32021),
        failure(-32021, {}),
        failure(-32021, {"requiredCapabilities": ["sampling"]}),
        ErrorResponse(1, -32021, "words", Raw(b"\xff")),
        ErrorResponse(1, -32022, "words", Raw(b"{")),
    ],
)
def test_a_modern_number_without_its_data_proves_nothing(spoiled: ErrorResponse) -> None:
    assert judge(spoiled).era is Era.LEGACY
    assert judge(spoiled, 400).era is Era.LEGACY


@pytest.mark.spec("R0845", "R0746", "R0917")
@pytest.mark.parametrize("status", [None, 400, 404, 405, 406, 415])
def test_any_other_error_and_silence_are_from_an_older_server(status: int | None) -> None:
    for code in (*range(-32019, -31999), -32600, -32601, -32602, -32603, -32700, -32042, -1, 0, 7):
        assert judge(failure(code, {"supported": [MODERN]}), status).era is Era.LEGACY, code
    assert judge(None, status).era is Era.LEGACY


def test_a_missing_method_under_404_is_modern_unless_it_was_the_probe() -> None:  # D12
    missing = failure(-32601)
    assert judge(missing, 404, "tools/list").era is Era.MODERN
    assert judge(missing, 404).era is Era.LEGACY
    assert judge(missing, 200, "tools/list").era is Era.LEGACY
    assert judge(missing, None, "tools/list").era is Era.LEGACY


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429, 500, 502, 503, 504])
def test_some_answers_are_about_the_way_and_decide_nothing(status: int) -> None:  # D13
    assert judge(None, status).era is Era.UNDECIDED
    assert judge(failure(-32601), status).era is Era.UNDECIDED


# ---------------------------------------------------------------- extensions and capabilities


@pytest.mark.spec("R0927")
def test_an_extension_counts_only_where_both_sides_declared_it(revision: Revision) -> None:
    theirs = t.ClientCapabilities(extensions={"com.example/a": {}, "com.example/b": {}})
    peer = Peer(revision, theirs)
    assert shared_extensions(["com.example/b", "com.example/c"], peer) == {"com.example/b"}
    # Falling back: what one side alone declared adds nothing to the core protocol.
    assert shared_extensions(["com.example/a"], peer_of(revision)) == frozenset()
    assert revision.method("tasks/get", shared_extensions([t.TASKS_EXTENSION_ID], peer)) is None
    # Or refusing, with an error that names it.
    require_extension("com.example/a", peer)
    with pytest.raises(Fault) as caught:
        require_extension("com.example/c", peer)
    assert error_code(caught.value, revision) == -32021
    assert caught.value.data == {"requiredCapabilities": {"extensions": {"com.example/c": {}}}}


def test_extensions_are_heard_from_peers_of_every_revision(revision: Revision) -> None:  # D33
    peer = Peer(revision, t.ServerCapabilities(extensions={"com.example/a": {}}))
    assert shared_extensions(["com.example/a"], peer) == {"com.example/a"}


def test_a_missing_capability_is_listed_as_an_object() -> None:
    fault = missing_capability("words", elicitation={"url": {}}, sampling={})
    assert fault.kind is FaultKind.CAPABILITY_MISSING
    assert fault.data == {"requiredCapabilities": {"elicitation": {"url": {}}, "sampling": {}}}


def test_faults_about_versions_list_the_newest_first() -> None:  # D11
    for fault in (unsupported_version(UNKNOWN, EVERY), missing_meta(t.PROTOCOL_VERSION_KEY, EVERY)):
        assert fault.data["supported"] == [revision.date for revision in reversed(ALL)]
