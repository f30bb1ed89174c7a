"""A link as plain data: another process goes on with it."""

import msgspec
import pytest

from colonnade.errors import LocalProtocolError
from colonnade.protocol.link.events import LinkSnapshot, RequestFinished
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.revision import ALL, Revision
from protocol.links import client_of, decoded, line, only, opened, server_of

HANDSHAKES = [revision for revision in ALL if revision.handshake]
MODERN = [revision for revision in ALL if not revision.handshake][-1]


def test_another_process_goes_on_from_the_record(revision: Revision) -> None:
    client, server = opened(revision)
    id, _ = client.request("tools/list", now=0.0, timeout_s=9.0, progress=True)
    server.receive(line(id=0, method="logging/setLevel", params={"level": "alert"}), 0.0)
    for link in (client, server):
        plain = msgspec.json.encode(link.snapshot())
        record = msgspec.json.decode(plain, type=LinkSnapshot)
        again = DuplexLink.restore(record, link.identity, link.accepts, "ada")
        assert msgspec.json.encode(again.snapshot()) == plain
        assert (again.phase, again.principal) == (link.phase, "ada")
        assert (again.peer is None) is (link.peer is None)
        if again.peer is not None and link.peer is not None:
            assert (again.peer.info, again.peer.log_level) == (link.peer.info, link.peer.log_level)
    if server.peer is not None:
        assert server.snapshot().log_level == "alert"
        assert server.snapshot().info is not None
    record = msgspec.json.decode(msgspec.json.encode(client.snapshot()), type=LinkSnapshot)
    elsewhere = DuplexLink.restore(record, client.identity, client.accepts)
    assert elsewhere.next_deadline == 9.0
    assert elsewhere.request("tools/list", now=0.0)[0] == client._outgoing.next_id
    (over,) = elsewhere.receive(line(id=id, result={}), 0.0)
    assert isinstance(over, RequestFinished)


def test_a_record_keeps_what_is_not_known_of_a_server() -> None:
    client = client_of(MODERN)
    client.adopt(MODERN)
    again = DuplexLink.restore(client.snapshot(), client.identity, client.accepts)
    assert decoded(again.request("prompts/list", now=0.0)[1])["method"] == "prompts/list"


def test_a_record_of_a_revision_that_is_no_longer_spoken_is_refused() -> None:
    _, server = opened(HANDSHAKES[0])
    with pytest.raises(LocalProtocolError, match="is no longer accepted"):
        DuplexLink.restore(server.snapshot(), server.identity, only(HANDSHAKES[1]))


def test_a_new_link_has_a_record_too(revision: Revision) -> None:
    server = server_of(revision)
    again = DuplexLink.restore(server.snapshot(), server.identity, server.accepts)
    assert (again.phase, again.peer) == (Phase.NEW, None)


@pytest.mark.parametrize("revision", HANDSHAKES, ids=lambda r: r.date)
def test_a_link_takes_over_what_the_peer_has_told_another_process(revision: Revision) -> None:
    client, server = client_of(revision), server_of(revision)
    server.receive(client.initialize(0.0).data, 0.0)
    copy = DuplexLink.restore(server.snapshot(), server.identity, server.accepts)
    copy.receive(line(id=1, method="tools/list"), 0.0)
    server.receive(line(method="notifications/initialized"), 0.0)
    server.receive(line(id=0, method="logging/setLevel", params={"level": "alert"}), 0.0)
    for _ in range(2):
        copy.update(server.snapshot())
        assert msgspec.json.encode(copy.snapshot()) == msgspec.json.encode(server.snapshot())
    (running,) = copy._incoming
    assert running.peer.log_level == "alert"
    new = server_of(revision)
    new.update(new.snapshot())
    assert (new.phase, new.peer) == (Phase.NEW, None)


def test_requests_name_the_process_that_sent_them() -> None:
    _, server = opened(HANDSHAKES[-1])
    server.send_as("abc")
    id, data = server.request("ping", now=0.0, progress=True)
    message = decoded(data)
    assert (id, message["id"], message["params"]["_meta"]["progressToken"]) == ("abc.1",) * 3
    (over,) = server.receive(line(id="abc.1", result={}), 0.0)
    assert isinstance(over, RequestFinished)
