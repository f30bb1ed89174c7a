"""Who we are, as each revision is told of it."""

import json
from typing import Any

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import EVERY, Revision, Revisions
from protocol.links import ABLE_CLIENT, ABLE_SERVER, LIBRARY, READER, call, decoded, request

CLIENT = Identity(READER, ABLE_CLIENT)
SERVER = Identity(LIBRARY, ABLE_SERVER, "Ask first.")


def test_an_identity_belongs_to_one_side() -> None:
    assert (CLIENT.side, SERVER.side) == (Side.CLIENT, Side.SERVER)
    for side, other in ((Side.CLIENT, SERVER), (Side.SERVER, CLIENT)):
        with pytest.raises(LocalProtocolError, match="Capabilities"):
            DuplexLink(side, other)
    with pytest.raises(LocalProtocolError, match="only a server"):
        CLIENT.initialize_result(EVERY[0])
    with pytest.raises(LocalProtocolError, match="only a server"):
        CLIENT.discover_result(EVERY)
    with pytest.raises(LocalProtocolError, match="only a client sends initialize"):
        SERVER.initialize_params(EVERY[0])


@pytest.mark.parametrize(
    "made",
    [
        lambda: Identity(READER, t.ClientCapabilities(experimental={"a": {"b": object()}})),
        lambda: Identity(LIBRARY, ABLE_SERVER, "\ud800"),
        lambda: Identity(t.Implementation(name="\udfff", version="1"), ABLE_CLIENT),
    ],
)
def test_what_could_not_be_told_to_a_peer_is_refused_at_once(made: Any) -> None:
    with pytest.raises(LocalProtocolError, match="JSON"):
        made()


@pytest.mark.spec("R0926", "R1139")
def test_extensions_have_a_prefix_and_a_name() -> None:
    Identity(READER, t.ClientCapabilities(extensions={"com.example/ok": {}}))
    for name in ("tasks", "com.example/", "/x", "1a/x", "a b/c", ""):
        with pytest.raises(LocalProtocolError, match="is not an extension identifier"):
            Identity(READER, t.ClientCapabilities(extensions={name: {}}))


@pytest.mark.spec("R0950", "R1059")
def test_a_server_is_discovered_with_its_versions_its_capabilities_and_its_instructions(
    revision: Revision,
) -> None:
    for accepts in (EVERY, Revisions([revision])):
        for can in (ABLE_SERVER, t.ServerCapabilities()):
            server = DuplexLink(Side.SERVER, Identity(LIBRARY, can, "Ask first."), accepts)
            exchange = call(server, request(revision, "d", "server/discover"))
            answer = decoded(exchange.settle(server.identity.discover_result(server.accepts)))
            found = answer["result"]
            assert answer["id"] == "d"
            assert found["supportedVersions"] == [r.date for r in reversed(accepts)]
            assert found["instructions"] == "Ask first."
            assert found["capabilities"].keys() >= ({"tools"} if can is ABLE_SERVER else set())
            assert found["_meta"][t.SERVER_INFO_KEY] == {"name": "library", "version": "2.0"}


@pytest.mark.spec("R0763", "R0766", "R1137")
def test_both_sides_name_themselves_unless_told_not_to(revision: Revision) -> None:
    ask = CLIENT.encoder(revision).params(t.RequestParams())
    assert json.loads(ask)["_meta"][t.CLIENT_INFO_KEY] == {"name": "reader", "version": "1.0"}
    nameless = Identity(READER, ABLE_CLIENT, named=False).encoder(revision)
    assert t.CLIENT_INFO_KEY not in json.loads(nameless.params(t.RequestParams()))["_meta"]

    answer = SERVER.encoder(revision).result(t.EmptyResult())
    assert json.loads(answer)["_meta"][t.SERVER_INFO_KEY] == {"name": "library", "version": "2.0"}
    nameless = Identity(LIBRARY, ABLE_SERVER, named=False).encoder(revision)
    assert "_meta" not in json.loads(nameless.result(t.EmptyResult()))


def test_a_handshake_names_both_sides_whatever_they_wish(revision: Revision) -> None:
    if revision.handshake:
        shy = Identity(READER, ABLE_CLIENT, named=False)
        assert shy.initialize_params(revision).client_info == READER
        assert SERVER.initialize_result(revision).server_info == LIBRARY
