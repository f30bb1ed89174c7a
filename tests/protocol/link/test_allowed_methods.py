"""What each side may send: the revision's methods, as far as they were offered."""

import pytest

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import MethodRules, params_for
from colonnade.protocol.methods import Method, Side, declares
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Identity, Peer
from colonnade.protocol.revision import ALL, Revision
from protocol.links import ABLE_CLIENT, ABLE_SERVER, LIBRARY, READER

CAN = {Side.CLIENT: ABLE_CLIENT, Side.SERVER: ABLE_SERVER}
NOTHING = {Side.CLIENT: t.ClientCapabilities(), Side.SERVER: t.ServerCapabilities()}
INFO = {Side.CLIENT: READER, Side.SERVER: LIBRARY}
EVERY_ROW = {
    row.name: row
    for revision in ALL
    for table in (revision.methods, *revision.extensions.values())
    for row in table.values()
}


def terms(side: Side, can: object = None) -> MethodRules:
    capabilities = CAN[side] if can is None else can
    assert isinstance(capabilities, t.ClientCapabilities | t.ServerCapabilities)
    return MethodRules(Identity(INFO[side], capabilities))


def rows(revision: Revision, side: Side) -> list[Method]:
    """All that a side may send in a revision, extensions included."""
    tables = (revision.methods, *revision.extensions.values())
    return [row for table in tables for row in table.values() if side in row.senders]


@pytest.mark.spec("R0019", "R0353")
def test_a_method_of_another_revision_is_neither_sent_nor_served(revision: Revision) -> None:
    for side in Side:
        mine = {row.name for row in rows(revision, side)}
        theirs = {row.name for row in rows(revision, side.other)}
        peer = Peer(revision, CAN[side.other])
        for name, row in EVERY_ROW.items():
            if name not in theirs:
                with pytest.raises(Fault) as caught:
                    terms(side).receivable(name, peer)
                assert caught.value.kind is FaultKind.METHOD_NOT_FOUND
            if name not in mine:
                with pytest.raises(LocalProtocolError, match="sends in"):
                    terms(side).sendable(
                        name, peer, notification=row.is_notification, informed=True
                    )


def test_what_both_offer_is_sent_and_served_in_every_revision(revision: Revision) -> None:
    for side in Side:
        peer = Peer(revision, CAN[side.other])
        for row in rows(revision, side.other):
            assert terms(side).receivable(row.name, peer) == row
        for row in rows(revision, side):
            if row.name != HANDSHAKE_METHOD:
                sent = terms(side).sendable(
                    row.name, peer, notification=row.is_notification, informed=True
                )
                assert sent == row
                with pytest.raises(LocalProtocolError, match="is no"):
                    terms(side).sendable(
                        row.name, peer, notification=not row.is_notification, informed=True
                    )


@pytest.mark.spec("R0020", "R0026", "R0125", "R0296", "R0354")
def test_what_was_not_declared_is_neither_sent_nor_served(revision: Revision) -> None:
    for side in Side:
        for row in rows(revision, side):
            if row.needs is None or row.name not in revision.methods:
                continue
            own = row.needed_of(side) is side
            peer = Peer(revision, CAN[side.other] if own else NOTHING[side.other])
            mine = terms(side, NOTHING[side] if own else None)
            with pytest.raises(LocalProtocolError, match="has not declared it"):
                mine.sendable(row.name, peer, notification=row.is_notification, informed=True)
            if not own:  # and the other side, which did not offer it, does not serve it
                receiver = terms(side.other, NOTHING[side.other])
                with pytest.raises(Fault) as caught:
                    receiver.receivable(row.name, Peer(revision, CAN[side]))
                assert caught.value.kind is FaultKind.METHOD_NOT_FOUND


@pytest.mark.spec("R0090")
def test_a_client_without_roots_does_not_know_the_method(revision: Revision) -> None:
    with pytest.raises(Fault) as caught:
        terms(Side.CLIENT, t.ClientCapabilities()).receivable(
            "roots/list", Peer(revision, ABLE_SERVER)
        )
    assert revision.codes[caught.value.kind] == -32601


def test_of_a_peer_that_said_nothing_yet_nothing_is_held_against_it(revision: Revision) -> None:
    peer = Peer(revision, t.ServerCapabilities())
    own = terms(Side.CLIENT)
    for row in rows(revision, Side.CLIENT):
        if row.name != HANDSHAKE_METHOD:
            for _ in range(2):  # what was found once is found again
                sent = own.sendable(
                    row.name, peer, notification=row.is_notification, informed=False
                )
                assert sent == row
            other = not row.is_notification
            with pytest.raises(LocalProtocolError, match="is no"):
                own.sendable(row.name, peer, notification=other, informed=False)
    if "notifications/roots/list_changed" in revision.methods:  # our own silence still counts
        with pytest.raises(LocalProtocolError, match="this side"):
            terms(Side.CLIENT, t.ClientCapabilities()).sendable(
                "notifications/roots/list_changed", peer, notification=True, informed=False
            )


def test_what_a_sender_did_not_say_of_itself_is_heard_all_the_same(revision: Revision) -> None:
    for side in Side:
        silent = Peer(revision, NOTHING[side.other])
        for row in rows(revision, side.other):
            if (
                row.needs
                and row.needed_of(side.other) is side.other
                and row.name in revision.methods
            ):
                assert terms(side).receivable(row.name, silent) == row


@pytest.mark.spec("R0927", "R1207")
def test_an_extension_that_one_side_lacks_is_refused_by_name_or_unknown() -> None:
    for revision in (r for r in ALL if r.extensions):
        for identifier, table in revision.extensions.items():
            for row in table.values():
                if Side.CLIENT not in row.senders:
                    continue
                without = Peer(revision, t.ClientCapabilities())
                with pytest.raises(Fault) as caught:
                    terms(Side.SERVER).receivable(row.name, without)
                assert revision.codes[caught.value.kind] == -32021
                assert caught.value.data == {
                    "requiredCapabilities": {"extensions": {identifier: {}}}
                }
                with pytest.raises(Fault) as caught:
                    terms(Side.SERVER, t.ServerCapabilities()).receivable(
                        row.name, Peer(revision, ABLE_CLIENT)
                    )
                assert revision.codes[caught.value.kind] == -32601
                for mine, theirs in (
                    (terms(Side.CLIENT, t.ClientCapabilities()), ABLE_SERVER),
                    (terms(Side.CLIENT), t.ServerCapabilities()),
                ):
                    with pytest.raises(LocalProtocolError):
                        mine.sendable(
                            row.name, Peer(revision, theirs), notification=False, informed=True
                        )


def test_initialize_is_never_sent_as_any_request(revision: Revision) -> None:
    with pytest.raises(LocalProtocolError):
        terms(Side.CLIENT).sendable(
            HANDSHAKE_METHOD, Peer(revision, ABLE_SERVER), notification=False, informed=True
        )


def test_params_are_those_that_the_method_takes() -> None:
    for row in EVERY_ROW.values():
        with pytest.raises(LocalProtocolError, match="takes"):
            params_for(row, t.Annotations())
    call, listing = EVERY_ROW["tools/call"], EVERY_ROW["tools/list"]
    given = t.CallToolRequestParams(name="n")
    assert params_for(call, given) is given
    assert params_for(listing, None) == t.PaginatedRequestParams()
    with pytest.raises(LocalProtocolError, match="needs CallToolRequestParams"):
        params_for(call, None)


def test_the_able_sides_of_these_tests_declare_all_that_any_method_needs() -> None:
    needs = [row.needs for row in EVERY_ROW.values() if row.needs]
    assert all(declares(ABLE_CLIENT, path) or declares(ABLE_SERVER, path) for path in needs)
