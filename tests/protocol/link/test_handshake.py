"""The states of a conversation, step by step, for both sides."""

import pytest

from colonnade.errors import Fault, FaultKind, LocalProtocolError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import TABLE, Handshake, Phase
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Peer, defined_in
from colonnade.protocol.revision import ALL, EVERY, Revision, Revisions
from protocol.links import ABLE_CLIENT, ABLE_SERVER, LIBRARY, READER, earlier, only

STEPS = {step for phases in TABLE.values() for steps in phases.values() for step in steps}
HANDSHAKES = [revision for revision in ALL if revision.handshake]
ENVELOPED = [revision for revision in ALL if not revision.handshake]


def greeting(date: str) -> t.InitializeRequestParams:
    return t.InitializeRequestParams(
        protocol_version=date, capabilities=ABLE_CLIENT, client_info=READER
    )


def welcome(date: str) -> t.InitializeResult:
    return t.InitializeResult(protocol_version=date, capabilities=ABLE_SERVER, server_info=LIBRARY)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("side", Side)
def test_only_the_steps_of_the_table_exist(side: Side, phase: Phase) -> None:
    for step in STEPS:
        handshake = Handshake(side, EVERY)
        handshake.phase = phase
        leads_to = TABLE[side][phase].get(step)
        assert handshake.may(step) is (leads_to is not None)
        if leads_to is None:
            with pytest.raises(LocalProtocolError, match="is not possible now"):
                handshake.step(step)
            assert handshake.advance(step) is False
            assert handshake.phase is phase
        else:
            assert handshake.advance(step) is True
            assert handshake.phase is leads_to


def test_nothing_follows_the_end() -> None:
    assert [TABLE[side][Phase.CLOSED] for side in Side] == [{}, {}]
    assert all("close" in TABLE[side][phase] for side in Side for phase in list(Phase)[:3])


@pytest.mark.spec("R0013", "R0014")
def test_a_client_asks_for_the_newest_handshake_that_it_accepts(revision: Revision) -> None:
    known = earlier(revision)
    for accepts in (only(revision), Revisions(known), Revisions([*known, *ENVELOPED])):
        assert Handshake(Side.CLIENT, accepts).begin(None) is revision


def test_a_client_without_a_handshake_cannot_begin_one() -> None:
    with pytest.raises(LocalProtocolError, match=r"call adopt\(\)"):
        Handshake(Side.CLIENT, Revisions(ENVELOPED)).begin(None)
    with pytest.raises(LocalProtocolError, match="sent by a client"):
        Handshake(Side.SERVER, EVERY).begin(None)
    again = Handshake(Side.CLIENT, EVERY)
    again.step("initialize")
    with pytest.raises(LocalProtocolError, match="once"):
        again.begin(None)


def test_a_client_may_ask_for_an_older_handshake_that_a_server_named() -> None:
    """D11: a version of the server's own list."""
    for revision in HANDSHAKES:
        assert Handshake(Side.CLIENT, EVERY).begin(revision) is revision
        others = Handshake(Side.CLIENT, Revisions([r for r in ALL if r is not revision]))
        with pytest.raises(LocalProtocolError, match="cannot be requested"):
            others.begin(revision)
    with pytest.raises(LocalProtocolError, match="cannot be requested"):
        Handshake(Side.CLIENT, EVERY).begin(ENVELOPED[-1])


@pytest.mark.spec("R0015", "R0016", "R0017")
def test_a_server_answers_as_asked_or_with_its_newest_handshake(revision: Revision) -> None:
    known = Revisions(earlier(revision))
    for other in known:
        assert Handshake(Side.SERVER, known).answer(greeting(other.date)) is other
    for date in ("1999-01-01", "", ENVELOPED[0].date, "latest"):
        assert Handshake(Side.SERVER, known).answer(greeting(date)) is revision
        assert Handshake(Side.SERVER, only(revision)).answer(greeting(date)) is revision


def test_a_second_greeting_is_refused_and_changes_nothing() -> None:
    handshake = Handshake(Side.SERVER, EVERY)
    revision = handshake.answer(greeting(HANDSHAKES[0].date))
    peer = handshake.opened(greeting(HANDSHAKES[0].date), revision)
    for phase in (Phase.OPENING, Phase.OPEN):
        handshake.phase = phase
        with pytest.raises(Fault) as caught:
            handshake.answer(greeting(HANDSHAKES[1].date))
        assert caught.value.kind is FaultKind.INVALID_REQUEST
        assert (handshake.phase, handshake.peer) == (phase, peer)


def test_a_client_agrees_only_to_what_it_accepts(revision: Revision) -> None:
    handshake = Handshake(Side.CLIENT, only(revision) if revision.handshake else EVERY)
    handshake.step("initialize")
    for date in ("1999-01-01", ENVELOPED[0].date):
        with pytest.raises(RemoteProtocolError, match="disconnecting"):
            handshake.agree(welcome(date))
        assert (handshake.phase, handshake.peer) == (Phase.OPENING, None)
    date = revision.date if revision.handshake else HANDSHAKES[0].date
    peer = handshake.agree(welcome(date))
    offered = defined_in(peer.revision, ABLE_SERVER)
    assert (peer.revision.date, peer.info, peer.capabilities) == (date, LIBRARY, offered)
    assert t.TASKS_EXTENSION_ID not in peer.extensions  # T01
    assert handshake.phase is Phase.OPEN


def test_a_client_adopts_what_needs_no_handshake_and_nothing_else() -> None:
    modern = ENVELOPED[-1]
    for revision in HANDSHAKES:
        with pytest.raises(LocalProtocolError, match="cannot be adopted"):
            Handshake(Side.CLIENT, EVERY).adopt(Peer(revision, ABLE_SERVER))
    with pytest.raises(LocalProtocolError, match="cannot be adopted"):
        Handshake(Side.CLIENT, Revisions(HANDSHAKES)).adopt(modern)
    with pytest.raises(LocalProtocolError, match="is not possible now"):
        Handshake(Side.SERVER, EVERY).adopt(modern)

    handshake = Handshake(Side.CLIENT, EVERY)
    handshake.adopt(modern)
    assert handshake.peer is not None
    assert not handshake.knows(handshake.peer)
    handshake.adopt(Peer(modern, ABLE_SERVER))
    assert handshake.knows(handshake.peer)
    assert not handshake.knows(Peer(modern, ABLE_SERVER))


def test_a_client_in_a_session_stays_in_it() -> None:
    modern = ENVELOPED[-1]
    handshake = Handshake(Side.CLIENT, EVERY)
    handshake.step("initialize")
    with pytest.raises(LocalProtocolError, match="already"):
        handshake.adopt(modern)
    handshake.agree(welcome(HANDSHAKES[0].date))
    with pytest.raises(LocalProtocolError, match=HANDSHAKES[0].date):
        handshake.adopt(modern)


def test_a_session_is_a_handshake_that_is_done_or_that_a_client_began() -> None:
    client, server = Handshake(Side.CLIENT, EVERY), Handshake(Side.SERVER, EVERY)
    assert (client.session, server.session) == (None, None)
    client.step("initialize")
    assert client.session is not None
    assert client.session.revision is HANDSHAKES[-1]
    server.opened(greeting(HANDSHAKES[0].date), HANDSHAKES[0])
    assert server.session is server.peer is not None
    client.step("refused")
    assert client.session is None
    client.adopt(ENVELOPED[0])
    assert client.session is None


@pytest.mark.spec("R0011", "R0012")
def test_before_the_handshake_is_done_only_a_ping_or_a_log_message_goes_out(
    revision: Revision,
) -> None:
    client, server = Handshake(Side.CLIENT, only(revision)), Handshake(Side.SERVER, only(revision))
    client.step("initialize")
    server.opened(greeting(revision.date), revision)
    for handshake in (client, server):
        assert handshake.peer_for("ping", None).revision is revision
        for method in ("tools/list", "roots/list", "notifications/roots/list_changed"):
            with pytest.raises(LocalProtocolError, match="before the handshake is done"):
                handshake.peer_for(method, None)
    assert server.peer_for("notifications/message", None) is server.peer


def test_a_probe_needs_a_revision_that_is_accepted_and_has_no_handshake() -> None:
    modern = ENVELOPED[-1]
    handshake = Handshake(Side.CLIENT, EVERY)
    assert handshake.peer_for("server/discover", modern).revision is modern
    for probed in (None, HANDSHAKES[-1]):
        with pytest.raises(LocalProtocolError, match=r"call initialize\(\) or adopt\(\)"):
            handshake.peer_for("server/discover", probed)
    with pytest.raises(LocalProtocolError, match=r"call initialize\(\) or adopt\(\)"):
        Handshake(Side.CLIENT, Revisions(HANDSHAKES)).peer_for("server/discover", modern)
    handshake.adopt(modern)
    assert handshake.peer_for("tools/list", None) is handshake.peer
    handshake.step("close")
    with pytest.raises(LocalProtocolError, match="closed"):
        handshake.peer_for("ping", None)


def test_a_level_is_kept_with_the_peer() -> None:
    handshake = Handshake(Side.SERVER, EVERY)
    peer = handshake.opened(greeting(HANDSHAKES[0].date), HANDSHAKES[0])
    louder = handshake.set_level(peer, "debug")
    assert handshake.peer is louder
    assert (louder.log_level, louder.info) == ("debug", peer.info)
