"""The states of a hosted session: every event from every state, by the table."""

import pytest

from colonnade.host.servers.session import (
    TRANSITIONS,
    HostedSession,
    SessionEvent,
    SessionState,
    StderrBuffer,
)

OPENED, MISSING = SessionEvent.OPENED, SessionEvent.RESPONSE_MISSING
STARTED, ENDED = SessionEvent.PROBE_STARTED, SessionEvent.PROBE_ENDED
RETIRE, CLOSE = SessionEvent.RETIRE, SessionEvent.CLOSE


def after(*events: SessionEvent) -> HostedSession:
    session = HostedSession(lambda _: None, StderrBuffer())
    for event in events:
        session.on(event)
    return session


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((), SessionState.STARTING),
        ((OPENED,), SessionState.READY),
        ((OPENED, MISSING), SessionState.UNSETTLED),
        ((OPENED, MISSING, MISSING), SessionState.UNSETTLED),
        ((OPENED, MISSING, STARTED), SessionState.PROBING),
        ((OPENED, MISSING, STARTED, MISSING), SessionState.PROBING),
        ((OPENED, MISSING, STARTED, ENDED), SessionState.UNSETTLED),
        ((OPENED, MISSING, STARTED, RETIRE, ENDED), SessionState.RETIRED),
        ((OPENED, RETIRE, MISSING), SessionState.RETIRED),
        ((OPENED, MISSING, STARTED, CLOSE, ENDED), SessionState.CLOSED),
        ((CLOSE,), SessionState.CLOSED),
    ],
)
def test_events_lead_to_a_state(events: tuple[SessionEvent, ...], state: SessionState) -> None:
    session = after(*events)
    assert session.state is state
    assert session.is_unsettled is (state in (SessionState.UNSETTLED, SessionState.PROBING))


def test_every_state_has_a_row_and_can_be_closed() -> None:
    assert TRANSITIONS.keys() == set(SessionState)
    assert all(row[CLOSE] is SessionState.CLOSED for row in TRANSITIONS.values())


def test_nothing_leaves_the_closed_state_or_takes_a_retired_session_back() -> None:
    assert set(TRANSITIONS[SessionState.CLOSED].values()) == {SessionState.CLOSED}
    left = set(TRANSITIONS[SessionState.RETIRED].values())
    assert left == {SessionState.RETIRED, SessionState.CLOSED}


@pytest.mark.parametrize("events", [(STARTED,), (OPENED, STARTED), (OPENED, OPENED)])
def test_an_event_that_the_table_does_not_have_is_an_error(
    events: tuple[SessionEvent, ...],
) -> None:
    with pytest.raises(KeyError):
        after(*events)
