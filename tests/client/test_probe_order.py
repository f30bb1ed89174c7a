"""What to try next to find a server's revision, and what each answer proves: no loop, no I/O."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec import Raw

from colonnade.client.probe import (
    Attempt,
    Discover,
    EraCache,
    Initialize,
    KnownServer,
    Negotiation,
    Opening,
    Outcome,
    ProbeOptions,
    negotiate,
)
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import ALL, EVERY, NEWEST, Revision, Revisions

HANDSHAKE = EVERY.handshakes[0]
MODERN = Revisions(EVERY.enveloped)
OLDER = Revisions(EVERY.handshakes)
CHILD, HTTP, PIPE = ProbeOptions(restarts=True), ProbeOptions(legacy_sse=True), ProbeOptions()


def discovered(*dates: str) -> Raw:
    kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return Raw(encode({**kept, "supportedVersions": list(dates), "capabilities": {}}))


def agreed(revision: Revision = HANDSHAKE) -> Raw:
    info = {"name": "s", "version": "1"}
    said = {"protocolVersion": revision.date, "capabilities": {}, "serverInfo": info}
    return Raw(encode(said))


def answered(kind: type[ColonnadeError], status: int | None = None) -> ColonnadeError:
    error = kind("what the transport says")
    error.status = status
    return error


def refused(code: int, data: Any = None, status: int | None = None) -> RemoteError:
    error = RemoteError(code, "no", data)
    error.status = status
    return error


def unsupported(*dates: str) -> RemoteError:
    return refused(-32022, {"supported": list(dates), "requested": NEWEST.date}, 400)


def play(finding: Negotiation, outcomes: Iterable[Outcome]) -> tuple[list[Attempt], Opening]:
    """What is tried against a server that answers so, and the opening that it ends with."""
    tried, found = _played(finding, outcomes)
    assert isinstance(found, Opening), found
    return tried, found


def attempts(
    finding: Negotiation, outcomes: Iterable[Outcome]
) -> tuple[list[Attempt], ColonnadeError]:
    """What is tried, and the error that it ends with."""
    tried, found = _played(finding, outcomes)
    assert isinstance(found, ColonnadeError), found
    return tried, found


def _played(
    finding: Negotiation, outcomes: Iterable[Outcome]
) -> tuple[list[Attempt], Opening | ColonnadeError]:
    tried = [next(finding)]
    for outcome in outcomes:
        try:
            tried.append(finding.send(outcome))
        except StopIteration as found:
            return tried, found.value
        except ColonnadeError as error:
            return tried, error
    raise AssertionError(f"it goes on: {tried[-1]}")


PROBE = Discover(NEWEST, patient=False)
GREETING = Initialize(HANDSHAKE)

# ---------------------------------------------------------------- modern servers


def test_a_server_that_names_our_newest_is_spoken_to_in_it() -> None:
    tried, opening = play(negotiate(EVERY, PIPE), [discovered("2099-01-01", NEWEST.date)])
    assert tried == [PROBE]
    assert (opening.revision, opening.legacy_sse) == (NEWEST, False)


def test_what_it_supports_is_checked_though_it_answered_discover() -> None:
    tried, error = attempts(negotiate(EVERY, PIPE), [discovered("2099-01-01")])
    assert tried == [PROBE]
    assert isinstance(error, RemoteProtocolError)
    assert "no revision in common" in str(error)


def test_a_modern_server_that_names_only_older_ones_is_greeted_in_the_newest_of_them() -> None:
    older = OLDER[1]
    outcomes = [discovered(OLDER[0].date, older.date), agreed(older)]
    tried, opening = play(negotiate(EVERY, PIPE), outcomes)
    assert tried == [PROBE, Initialize(older)]
    assert opening.revision is older


def test_an_unsupported_version_is_answered_with_one_that_was_named() -> None:
    tried, opening = play(negotiate(EVERY, HTTP), [unsupported(HANDSHAKE.date), agreed()])
    assert tried == [PROBE, GREETING]
    assert opening.revision is HANDSHAKE


def test_a_server_that_refuses_what_it_says_it_speaks_is_no_loop() -> None:
    tried, error = attempts(negotiate(EVERY, HTTP), [unsupported(NEWEST.date)] * 2)
    assert tried == [PROBE, Discover(NEWEST, patient=True)]
    assert "refuses" in str(error)


def test_a_server_that_refuses_its_own_revision_once_is_asked_again() -> None:
    gone = CannotConnect("gone")
    tried, error = attempts(negotiate(EVERY, HTTP), [unsupported(NEWEST.date), gone])
    assert tried == [PROBE, Discover(NEWEST, patient=True)]
    assert error is gone


@pytest.mark.parametrize("error", [refused(-32020, status=400), refused(-32021, None, 400)])
def test_a_modern_error_without_versions_is_never_fallen_back_from(error: RemoteError) -> None:
    if error.code == -32021:
        error = refused(-32021, {"requiredCapabilities": {"sampling": {}}}, 400)
    tried, raised = attempts(negotiate(EVERY, HTTP), [error])
    assert tried == [PROBE]
    assert raised is error


# ---------------------------------------------------------------- older servers

NOT_MODERN: list[Outcome] = [
    refused(-32601),
    refused(-32602, status=200),
    refused(-32601, status=404),
    refused(-32000, status=400),
    refused(-32022, {"no": "versions"}, 400),
    refused(-32021, "no object", 400),
    answered(RemoteProtocolError, 400),
    answered(RemoteProtocolError, 404),
    answered(RemoteProtocolError, 405),
    answered(RemoteProtocolError, 406),
    answered(RemoteProtocolError, 415),
    answered(RemoteProtocolError, 200),
    answered(TimedOut),
    Raw(b'{"tools": []}'),
]


@pytest.mark.parametrize(
    "outcome", NOT_MODERN, ids=lambda one: str(bytes(one)) if isinstance(one, Raw) else repr(one)
)
@pytest.mark.parametrize("means", [CHILD, HTTP, PIPE], ids=["child", "http", "pipe"])
def test_whatever_is_no_modern_answer_means_a_handshake(
    outcome: Outcome, means: ProbeOptions
) -> None:
    tried, opening = play(negotiate(EVERY, means), [outcome, agreed(OLDER[0])])
    assert tried == [PROBE, GREETING]
    assert opening.revision is OLDER[0]


def test_a_child_that_died_of_the_probe_is_greeted_after_it_and_others_are_not() -> None:
    died = answered(ConnectionLost)
    tried, _ = play(negotiate(EVERY, CHILD), [died, agreed()])
    assert tried == [PROBE, GREETING]
    for means in (HTTP, PIPE):
        tried, error = attempts(negotiate(EVERY, means), [died])
        assert tried == [PROBE]
        assert error is died


def test_a_server_that_was_silent_and_refuses_the_handshake_is_asked_once_more() -> None:
    outcomes = [answered(TimedOut), refused(-32601), discovered(NEWEST.date)]
    tried, opening = play(negotiate(EVERY, CHILD), outcomes)
    assert tried == [PROBE, GREETING, Discover(NEWEST, patient=True)]
    assert opening.revision is NEWEST
    no = refused(-32000)
    tried, error = attempts(negotiate(EVERY, CHILD), [answered(TimedOut), no, answered(TimedOut)])
    assert len(tried) == 3
    assert error is no


def test_a_child_that_was_silent_and_is_lost_by_the_handshake_is_greeted_once_more() -> None:
    silent, lost = answered(TimedOut), answered(ConnectionLost)
    tried, opening = play(negotiate(EVERY, CHILD), [silent, lost, agreed()])
    assert tried == [PROBE, GREETING, GREETING]
    assert opening.revision is HANDSHAKE
    assert opening.sure, "it does not survive a probe, and it survives a handshake"
    again = answered(ConnectionLost)
    tried, error = attempts(negotiate(EVERY, CHILD), [silent, lost, again])
    assert tried == [PROBE, GREETING, GREETING]
    assert error is again
    for means in (HTTP, PIPE):  # which cannot be started again
        tried, error = attempts(negotiate(EVERY, means), [silent, lost])
        assert tried == [PROBE, GREETING]
        assert error is lost
    # A child that was lost by the probe was started again already.
    assert attempts(negotiate(EVERY, CHILD), [answered(ConnectionLost), lost])[0] == [
        PROBE,
        GREETING,
    ]


def test_a_server_that_answered_and_refuses_the_handshake_is_not_asked_again() -> None:
    no = refused(-32000)
    tried, error = attempts(negotiate(EVERY, CHILD), [refused(-32601), no])
    assert tried == [PROBE, GREETING]
    assert error is no


# ---------------------------------------------------------------- nothing is decided

UNDECIDED: list[Callable[[], ColonnadeError]] = [
    lambda: answered(LoginRequired, 401),
    lambda: answered(LoginRequired),
    lambda: answered(AuthError, 403),
    lambda: answered(RemoteProtocolError, 407),
    lambda: answered(ConnectionLost, 408),
    lambda: answered(ConnectionLost, 425),
    lambda: answered(ConnectionLost, 429),
    lambda: answered(ConnectionLost, 500),
    lambda: answered(ConnectionLost, 503),
    lambda: refused(-32603, status=500),
    lambda: refused(-32000, status=403),
    lambda: answered(CannotConnect),
]


@pytest.mark.parametrize("outcome", UNDECIDED)
@pytest.mark.parametrize("means", [CHILD, HTTP, PIPE], ids=["child", "http", "pipe"])
def test_what_speaks_of_the_way_decides_nothing(
    outcome: Callable[[], ColonnadeError], means: ProbeOptions
) -> None:
    error = outcome()
    assert attempts(negotiate(EVERY, means), [error]) == ([PROBE], error)
    error = outcome()
    known = KnownServer(handshake=True)
    assert attempts(negotiate(EVERY, means, known), [error]) == ([GREETING], error)


# ---------------------------------------------------------------- the transport of the first


@pytest.mark.parametrize("status", [400, 404, 405, 406, 410, 422])
def test_a_server_that_knows_neither_post_is_tried_by_the_older_transport(status: int) -> None:
    no = answered(RemoteProtocolError, status)
    tried, opening = play(negotiate(EVERY, HTTP), [no, no, agreed(ALL[0])])
    assert tried == [PROBE, GREETING, Initialize(HANDSHAKE, legacy_sse=True)]
    assert (opening.revision, opening.legacy_sse) == (ALL[0], True)


def test_an_older_transport_that_wants_a_login_says_so() -> None:
    no, login = answered(RemoteProtocolError, 405), answered(LoginRequired, 401)
    tried, error = attempts(negotiate(EVERY, HTTP), [no, no, login])
    assert len(tried) == 3
    assert error is login


def test_where_that_does_not_help_the_first_error_is_the_one_to_know() -> None:
    no, nor = answered(RemoteProtocolError, 404), answered(RemoteProtocolError, 405)
    tried, error = attempts(negotiate(EVERY, HTTP), [no, no, nor])
    assert len(tried) == 3
    assert error is no


@pytest.mark.parametrize("error", [answered(RemoteProtocolError, 200), answered(TimedOut)])
def test_a_handshake_that_failed_otherwise_is_no_reason_for_it(error: ColonnadeError) -> None:
    tried, raised = attempts(negotiate(EVERY, HTTP), [answered(RemoteProtocolError, 404), error])
    assert tried == [PROBE, GREETING]
    assert raised is error


def test_a_modern_error_to_the_handshake_is_no_reason_for_it_either() -> None:
    error = unsupported(NEWEST.date)
    tried, raised = attempts(negotiate(OLDER, HTTP), [error])
    assert tried == [GREETING]
    assert raised is error


# ---------------------------------------------------------------- pinned and limited


@pytest.mark.parametrize("revision", EVERY.handshakes, ids=lambda one: one.date)
def test_who_is_limited_to_handshakes_begins_with_one(revision: Revision) -> None:
    tried, opening = play(negotiate(Revisions([revision]), HTTP), [agreed(revision)])
    assert tried == [Initialize(revision)]
    assert opening.revision is revision


def test_who_is_limited_to_modern_ones_asks_first_and_says_what_to_do() -> None:
    probe = Discover(NEWEST, patient=True)
    tried, opening = play(negotiate(MODERN, CHILD), [discovered(NEWEST.date)])
    assert tried == [probe]
    assert opening.revision is NEWEST
    for outcome in (refused(-32601), Raw(b'{"tools": []}')):
        tried, error = attempts(negotiate(MODERN, CHILD), [outcome])
        assert tried == [probe]
        assert isinstance(error, RemoteProtocolError)
        assert "connect without revision=" in str(error)
    other = refused(-32603)
    assert attempts(negotiate(MODERN, CHILD), [other]) == ([probe], other)


# ---------------------------------------------------------------- memory


def test_a_server_that_was_greeted_before_is_greeted_at_once() -> None:
    tried, opening = play(negotiate(EVERY, HTTP, KnownServer(handshake=True)), [agreed()])
    assert tried == [GREETING]
    assert not opening.legacy_sse
    known = KnownServer(handshake=True, legacy_sse=True)
    tried, opening = play(negotiate(EVERY, HTTP, known), [agreed(ALL[0])])
    assert tried == [Initialize(HANDSHAKE, legacy_sse=True)]
    assert opening.legacy_sse


def test_a_modern_one_is_asked_what_it_offers_which_is_the_same_question() -> None:
    tried, _ = play(negotiate(EVERY, HTTP, KnownServer(handshake=False)), [discovered(NEWEST.date)])
    assert tried == [PROBE]


@pytest.mark.parametrize(
    "wrong", [refused(-32022, None, 400), answered(RemoteProtocolError, 404), refused(-32601)]
)
def test_memory_that_proves_wrong_is_given_up(wrong: ColonnadeError) -> None:
    outcomes = [wrong, discovered(NEWEST.date)]
    tried, opening = play(negotiate(EVERY, HTTP, KnownServer(handshake=True)), outcomes)
    assert tried == [GREETING, PROBE]
    assert opening.revision is NEWEST
    older = KnownServer(handshake=True, legacy_sse=True)
    tried, opening = play(negotiate(EVERY, HTTP, older), [wrong, refused(-32601), agreed()])
    assert tried == [Initialize(HANDSHAKE, legacy_sse=True), PROBE, GREETING]
    assert not opening.legacy_sse


def test_silence_costs_one_wait_even_where_memory_was_wrong() -> None:
    silence = answered(TimedOut)
    assert attempts(negotiate(EVERY, PIPE, KnownServer(handshake=True)), [silence]) == (
        [GREETING],
        silence,
    )


@pytest.mark.parametrize("means", [CHILD, HTTP, PIPE], ids=["child", "http", "pipe"])
def test_silence_is_no_proof_and_is_asked_for_once_more(means: ProbeOptions) -> None:
    _, opening = play(negotiate(EVERY, means), [answered(TimedOut), agreed()])
    assert not opening.sure
    _, opening = play(negotiate(EVERY, means), [refused(-32601), agreed()])
    assert opening.sure
    doubtful = KnownServer(handshake=True, sure=False)
    tried, opening = play(negotiate(EVERY, means, doubtful), [discovered(NEWEST.date)])
    assert tried == [PROBE]
    assert opening.revision is NEWEST


def test_what_is_remembered_is_bounded_and_the_oldest_makes_room() -> None:
    memory = EraCache(most=3)
    for number in range(3):
        memory.put(number, KnownServer(handshake=True))
    memory.put(0, KnownServer(handshake=False))  # used again, so that 1 is the oldest
    memory.put(3, KnownServer(handshake=True))
    assert [memory.get(number) is not None for number in range(4)] == [True, False, True, True]
    assert memory.get(0) == KnownServer(handshake=False)


def test_what_has_no_name_is_not_remembered() -> None:
    memory = EraCache()
    memory.put(None, KnownServer(handshake=True))
    assert memory.get(None) is None
