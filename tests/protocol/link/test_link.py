"""A conversation opens, serves and ends: what each side says, in every revision."""

from typing import Any

import pytest

from colonnade.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import Request, decode, split_params
from colonnade.protocol.link.events import (
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DuplexLink, sends
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import ALL, EVERY, Revision, Revisions
from protocol.input_requests import text
from protocol.links import (
    ABLE_CLIENT,
    ABLE_SERVER,
    INITIALIZED,
    LIBRARY,
    READER,
    call,
    client_of,
    decoded,
    deliver,
    earlier,
    envelope,
    initialize,
    line,
    only,
    open_both,
    opened,
    refusal,
    request,
    sent_messages,
    served,
    server_of,
    state,
)

HANDSHAKES = [revision for revision in ALL if revision.handshake]
MODERN = [revision for revision in ALL if not revision.handshake][-1]
DONE = text("done")


def welcome(date: str, id: Any = 1, **more: Any) -> bytes:
    """A server's answer to our first word, written by a stranger."""
    result = {
        "protocolVersion": date,
        "capabilities": {},
        "serverInfo": {"name": "s", "version": ""},
    }
    return line(id=id, result=result | more)


def opening(revision: Revision) -> DuplexLink:
    """A client that has said `initialize` and waits."""
    client = client_of(revision)
    client.initialize(0.0)
    return client


# ---------------------------------------------------------------- the handshake


@pytest.mark.spec("R0006", "R0007", "R0008", "R0013", "R0014")
def test_a_client_s_first_word_has_its_newest_version_its_capabilities_and_its_name(
    revision: Revision,
) -> None:
    client = DuplexLink(
        Side.CLIENT, Identity(READER, ABLE_CLIENT), Revisions([*earlier(revision), MODERN])
    )
    first = decoded(client.initialize(0.0).data)
    assert (first["method"], first["id"]) == ("initialize", 1)
    params = first["params"]
    assert params["protocolVersion"] == revision.date
    assert {"roots", "sampling"} <= params["capabilities"].keys()
    assert ("elicitation" in params["capabilities"]) is bool(revision.elicitation.modes)
    assert params["clientInfo"] == {"name": "reader", "version": "1.0"}


@pytest.mark.spec("R0009", "R0015")
def test_a_server_answers_with_the_same_version_its_capabilities_and_its_name(
    revision: Revision,
) -> None:
    server = server_of(revision, accepts=EVERY)
    events = server.receive(initialize(revision.date, "a"), 0.0)
    (answer,) = sent_messages(events)
    assert answer["id"] == "a"
    result = answer["result"]
    assert result["protocolVersion"] == revision.date
    assert {"logging", "prompts", "resources", "tools"} <= result["capabilities"].keys()
    assert result["serverInfo"] == {"name": "library", "version": "2.0"}
    assert isinstance(events[-1], PeerIdentified)
    assert events[-1].peer.revision is revision


@pytest.mark.spec("R0016", "R0017")
def test_a_version_that_a_server_does_not_speak_is_answered_with_its_newest_handshake(
    revision: Revision,
) -> None:
    for date in ("1999-01-01", MODERN.date, "", "x" * 10_000):
        server = server_of(revision, accepts=Revisions([*earlier(revision), MODERN]))
        (answer,) = sent_messages(server.receive(initialize(date), 0.0))
        assert answer["result"]["protocolVersion"] == revision.date


@pytest.mark.spec("R0002", "R0010")
def test_after_the_answer_a_client_says_initialized_and_both_are_open(revision: Revision) -> None:
    client, server = client_of(revision), server_of(revision)
    (answer,) = sends(server.receive(client.initialize(0.0).data, 0.0))
    assert (client.phase, server.phase) == (Phase.OPENING, Phase.OPENING)
    events = client.receive(answer, 0.0)
    assert sent_messages(events) == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert client.phase is Phase.OPEN
    assert [type(event) for event in events[1:]] == [PeerIdentified, RequestFinished]
    (told,) = server.receive(sends(events)[0], 0.0)
    assert isinstance(told, NotificationReceived)
    assert server.phase is Phase.OPEN
    assert client.peer is not None
    assert server.peer is not None
    assert (client.peer.info, server.peer.info) == (LIBRARY, READER)
    id, ping = client.ping(0.0)
    assert sent_messages(server.receive(ping, 0.0)) == [{"jsonrpc": "2.0", "id": id, "result": {}}]


@pytest.mark.spec("R0018", "R0025", "R0178")
def test_a_client_leaves_a_server_whose_version_it_cannot_speak(revision: Revision) -> None:
    for date in ("1999-01-01", "", MODERN.date):
        client = opening(revision)
        events = client.receive(welcome(date), 0.0)
        assert sends(events) == []  # no initialized
        assert client.phase is Phase.CLOSED
        (over,) = events
        assert isinstance(over, RequestFinished)
        assert "disconnecting" in str(over.outcome)
        with pytest.raises(LocalProtocolError, match="closed"):
            client.ping(0.0)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"protocolVersion": 7},
        {"protocolVersion": "2025-06-18"},
        {"protocolVersion": "2025-06-18", "capabilities": [], "serverInfo": {}},
    ],
)
def test_an_answer_to_initialize_that_cannot_be_read_ends_the_link(result: Any) -> None:
    for revision in HANDSHAKES:
        client = opening(revision)
        events = client.receive(line(id=1, result=result), 0.0)
        assert (client.phase, sends(events)) == (Phase.CLOSED, [])
        client = opening(revision)
        twice = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"a","protocolVersion":"b"}}'
        client.receive(twice, 0.0)
        assert client.phase is Phase.CLOSED


@pytest.mark.spec("R0005")
def test_nothing_but_a_ping_is_served_before_initialize(revision: Revision) -> None:
    for accepts in (only(revision), EVERY):
        server = server_of(revision, accepts=accepts)
        before = state(server)
        assert sent_messages(server.receive(line(id=1, method="ping"), 0.0))[0]["result"] == {}
        for method in ("tools/list", "tools/call", "logging/setLevel", "made/up"):
            error = refusal(server.receive(line(id=1, method=method, params={}), 0.0))
            assert error["code"] == -32602
            assert "initialize" in error["message"]
            assert (t.PROTOCOL_VERSION_KEY in error["message"]) is (
                accepts is EVERY
            )  # both ways in
        assert state(server) == before
    client = client_of(revision)
    for method in ("ping", "tools/list"):
        with pytest.raises(LocalProtocolError, match="before the peer is known"):
            client.request(method, now=0.0)


@pytest.mark.spec("R0011")
def test_a_client_waits_for_the_answer_with_everything_but_a_ping(revision: Revision) -> None:
    client = opening(revision)
    before = state(client)
    for method in ("tools/list", "resources/list", "initialize"):
        with pytest.raises(LocalProtocolError):
            client.request(method, now=0.0)
    with pytest.raises(LocalProtocolError):
        client.notify("notifications/roots/list_changed")
    assert state(client) == before
    assert decoded(client.ping(0.0)[1])["method"] == "ping"


@pytest.mark.spec("R0012")
def test_a_server_waits_for_initialized_with_everything_but_pings_and_log_messages(
    revision: Revision,
) -> None:
    server = server_of(revision)
    server.receive(initialize(revision.date, can={"roots": {}, "sampling": {}}), 0.0)
    for method in ("roots/list", "sampling/createMessage"):
        with pytest.raises(LocalProtocolError, match="before the handshake is done"):
            server.request(method, now=0.0)
    with pytest.raises(LocalProtocolError, match="before the handshake is done"):
        server.notify("notifications/tools/list_changed")
    assert decoded(server.ping(0.0)[1])["method"] == "ping"
    message = t.LoggingMessageNotificationParams(level="error", data="x")
    assert decoded(server.notify("notifications/message", message))["params"]["data"] == "x"
    assert isinstance(
        server.receive(line(id=1, method="tools/list"), 0.0)[0], RequestReceived
    )  # D27
    server.receive(INITIALIZED, 0.0)
    assert decoded(server.request("roots/list", now=0.0)[1])["method"] == "roots/list"


@pytest.mark.spec("R0066")
def test_a_ping_is_answered_at_once_with_nothing_at_any_time(revision: Revision) -> None:
    empty = {"jsonrpc": "2.0", "id": "p", "result": {}}
    ping = line(id="p", method="ping")
    server = server_of(revision)
    assert sent_messages(server.receive(ping, 0.0)) == [empty]
    server.receive(initialize(revision.date), 0.0)
    assert sent_messages(server.receive(ping, 0.0)) == [empty]
    client = opening(revision)
    assert sent_messages(client.receive(ping, 0.0)) == [
        empty
    ]  # even before its own first word is answered
    for link in opened(revision):
        before = state(link)
        assert sent_messages(link.receive(ping, 0.0)) == [empty]
        assert state(link) == before


def test_a_client_hears_the_log_of_a_server_that_has_not_answered_yet() -> None:
    message = line(method="notifications/message", params={"level": "info", "data": "starting"})
    for revision in HANDSHAKES:
        (told,) = opening(revision).receive(message, 0.0)
        assert isinstance(told, NotificationReceived)
        (dropped,) = client_of(revision).receive(message, 0.0)
        assert isinstance(dropped, MessageIgnored)


def test_a_server_that_asks_before_it_has_answered_is_told_so() -> None:
    for revision in HANDSHAKES:
        client = opening(revision)
        before = state(client)
        error = refusal(client.receive(line(id=1, method="roots/list"), 0.0))
        assert error["code"] == -32600
        assert state(client) == before
        assert client.receive(welcome(revision.date), 0.0)
        assert client.phase is Phase.OPEN


def test_an_initialize_that_is_refused_may_be_tried_again() -> None:
    for revision in HANDSHAKES:
        client = opening(revision)
        (over,) = client.receive(line(id=1, error={"code": -32602, "message": "no"}), 0.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, RemoteError)
        assert (client.phase, client.peer) == (Phase.NEW, None)
        assert decoded(client.initialize(1.0).data)["id"] == 2
        (over,) = client.receive(b'{"jsonrpc":"2.0","id":2,"result":7}', 1.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, Fault)
        assert client.phase is Phase.NEW


@pytest.mark.spec("R0027")
def test_initialize_can_time_out(revision: Revision) -> None:
    client = client_of(revision)
    client.initialize(0.0, timeout_s=3)
    assert (client.next_deadline, client.tick(2.9)) == (3.0, [])
    (over,) = client.tick(3.0)  # and no cancellation
    assert isinstance(over, RequestFinished)
    assert isinstance(over.outcome, TimedOut)
    assert client.phase is Phase.NEW
    late = client.receive(welcome(revision.date), 4.0)
    assert [type(event) for event in late] == [MessageIgnored]
    assert (client.phase, client.peer) == (Phase.NEW, None)


def test_a_second_initialize_is_refused_and_the_session_kept() -> None:
    for revision in HANDSHAKES:
        server = served(revision, {"roots": {}})
        before = state(server)
        for date in (revision.date, "1999-01-01"):
            answer = sent_messages(server.receive(initialize(date, 5), 0.0))[0]
            assert (answer["id"], answer["error"]["code"]) == (5, -32600)
            assert state(server) == before
        assert isinstance(server.receive(line(id=6, method="tools/list"), 0.0)[0], RequestReceived)


def test_a_refusal_says_why_so_that_http_can_choose_a_status() -> None:
    server = server_of(MODERN)
    (sent,) = server.receive(initialize("2025-06-18", 1), 0.0)
    assert isinstance(sent, Send)
    assert sent.fault is not None
    assert sent.fault.kind is FaultKind.VERSION_UNSUPPORTED
    call(server, request(MODERN, 1, "tools/list"))
    sent, _ = server.receive(request(MODERN, 1, "tools/list"), 0.0)
    assert isinstance(sent, Send)
    assert sent.fault is not None
    assert sent.fault.kind is FaultKind.INVALID_REQUEST
    (sent,) = served(HANDSHAKES[0]).receive(line(id=1, method="ping"), 0.0)
    assert isinstance(sent, Send)
    assert sent.fault is None


@pytest.mark.spec("R0931")
def test_a_server_without_handshakes_names_its_versions_to_who_tries_one(
    revision: Revision,
) -> None:
    server = server_of(revision)
    before = state(server)
    answer = sent_messages(server.receive(initialize("2025-06-18", 1), 0.0))[0]
    assert (answer["id"], answer["error"]["code"]) == (1, -32022)
    assert answer["error"]["data"] == {"supported": [revision.date], "requested": "2025-06-18"}
    assert revision.date in answer["error"]["message"]
    assert state(server) == before
    assert refusal(server.receive(line(id=2, method="ping"), 0.0))["code"] == -32602


@pytest.mark.parametrize("revision", HANDSHAKES, ids=lambda one: one.date)
def test_a_request_that_a_shell_has_recognised_is_served_as_the_sessions_own(
    revision: Revision,
) -> None:
    """A shell that knows the peer by its session hands over what it has split already."""
    server = served(revision, {"roots": {}})
    frame = decode(line(id=5, method="tools/list", params={"cursor": "x"}))
    assert isinstance(frame, Request)
    (event,) = server.take(frame, 0.0, split_params(frame.params))
    assert isinstance(event, RequestReceived)
    assert event.exchange.peer is server.peer
    (refused, _) = server.take(frame, 0.0, split_params(frame.params))
    assert isinstance(refused, Send)  # its id is in use
    server.close()
    assert server.take(frame, 0.0) == [MessageIgnored("a message after the link was closed")]


# ---------------------------------------------------------------- enveloped requests


@pytest.mark.spec("R0751")
def test_an_enveloped_request_is_judged_by_itself_alone(revision: Revision) -> None:
    for server in (server_of(revision), served(HANDSHAKES[0], {"roots": {}}, accepts=EVERY)):
        before = server.peer
        first = call(server, request(revision, 1, "tools/list", can={"roots": {}}))
        second = call(server, request(revision, 2, "tools/list"))
        assert first.peer.offers("roots")
        assert not second.peer.offers("roots")
        assert {first.peer.revision, second.peer.revision} == {revision}
        assert server.peer is before


@pytest.mark.spec("R0760", "R0761")
def test_a_request_without_what_it_must_say_is_refused(revision: Revision) -> None:
    whole = envelope(revision)
    for accepts in (only(revision), EVERY):
        for missing in (t.PROTOCOL_VERSION_KEY, t.CLIENT_CAPABILITIES_KEY):
            meta = {name: value for name, value in whole.items() if name != missing}
            server = server_of(revision, accepts=accepts)
            before = state(server)
            body = line(id=1, method="tools/list", params={"_meta": meta})
            answer = sent_messages(server.receive(body, 0.0))[0]
            assert (answer["id"], answer["error"]["code"]) == (1, -32602)
            assert state(server) == before
    client, _ = opened(revision)
    for method, params in (("tools/list", None), ("tools/call", t.CallToolRequestParams(name="n"))):
        meta = decoded(client.request(method, params, now=0.0)[1])["params"]["_meta"]
        assert meta[t.PROTOCOL_VERSION_KEY] == revision.date
        assert meta[t.CLIENT_CAPABILITIES_KEY]["roots"] == {}


@pytest.mark.spec("R0922")
def test_an_unknown_version_in_an_envelope_is_answered_with_those_we_speak(
    revision: Revision,
) -> None:
    for accepts in (only(revision), EVERY):
        for version in ("1900-01-01", *(r.date for r in HANDSHAKES)):
            server = server_of(revision, accepts=accepts)
            meta = envelope(revision) | {t.PROTOCOL_VERSION_KEY: version}
            body = line(id=1, method="tools/list", params={"_meta": meta})
            error = refusal(server.receive(body, 0.0))
            assert error["code"] == -32022
            assert error["data"] == {"supported": accepts.dates, "requested": version}


@pytest.mark.spec("R0767")
def test_who_a_peer_says_it_is_changes_nothing(revision: Revision) -> None:
    answers: set[bytes | None] = set()
    for name in ("reader", "library", "", "evil"):
        info = {"name": name, "version": "1"}
        body = request(revision, 1, "tools/call", {"name": "n"}, **{t.CLIENT_INFO_KEY: info})
        answers.add(call(server_of(revision), body).settle(DONE))
    assert len(answers) == 1
    lines: set[bytes] = set()
    for name in ("library", "reader", "evil"):
        client = client_of(revision)
        client.adopt(Peer(revision, ABLE_SERVER, t.Implementation(name=name, version="1")))
        lines.add(client.request("tools/list", now=0.0)[1])
    assert len(lines) == 1


def test_errors_are_numbered_for_whom_they_answer_and_not_for_the_session() -> None:
    """One pipe, a session of the first revision, and an enveloped request beside it."""
    server = served(HANDSHAKES[0], accepts=EVERY)
    enveloped = refusal(server.receive(request(MODERN, 1, "tasks/get", {"taskId": "t"}), 0.0))
    assert enveloped["code"] == -32021
    assert refusal(server.receive(line(id=2, method="tasks/get"), 0.0))["code"] == -32601


@pytest.mark.spec("R0779", "R0834", "R0836", "R0851")
def test_where_only_clients_ask_a_server_cannot_and_a_client_does_not_answer(
    revision: Revision,
) -> None:
    client, server = opened(revision)
    server.receive(request(revision, 1, "tools/list", can={"roots": {}, "sampling": {}}), 0.0)
    for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create"):
        with pytest.raises(LocalProtocolError):
            server.request(method, now=0.0)
    before = state(client)
    for method in ("ping", "roots/list", "sampling/createMessage", "made/up", "initialize"):
        events = client.receive(line(id=7, method=method, params={}), 0.0)
        assert [type(event) for event in events] == [MessageIgnored]
    for rubbish in (b"{", b'{"jsonrpc":"2.0","id":7,"method":3}', b"[]", b'{"id":7}'):
        assert sends(client.receive(rubbish, 0.0)) == []
    assert state(client) == before


def test_a_server_that_is_only_known_by_its_revision_may_be_asked_anything() -> None:
    client = client_of(MODERN)
    client.adopt(MODERN)
    for method in ("tools/list", "prompts/list", "resources/list"):
        assert decoded(client.request(method, now=0.0)[1])["method"] == method
    client.adopt(Peer(MODERN, t.ServerCapabilities(tools=t.ToolsCapability())))
    client.request("tools/list", now=0.0)
    with pytest.raises(LocalProtocolError, match="needs prompts"):
        client.request("prompts/list", now=0.0)


def test_what_may_be_asked_is_found_out_anew_for_another_server_and_at_the_end() -> None:
    tools = t.ServerCapabilities(tools=t.ToolsCapability())
    client = client_of(MODERN)
    for _ in range(2):
        client.adopt(Peer(MODERN, tools))
        for _ in range(2):
            client.request("tools/list", now=0.0)
        client.adopt(Peer(MODERN, t.ServerCapabilities()))
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match="needs tools"):
                client.request("tools/list", now=0.0)
    client.adopt(MODERN)
    for _ in range(2):
        client.request("tools/list", now=0.0)
    client.close()
    with pytest.raises(LocalProtocolError, match="the link is closed"):
        client.request("tools/list", now=0.0)


def test_a_probe_goes_out_before_anything_is_known() -> None:
    client = client_of(MODERN, accepts=EVERY)
    id, data = client.request("server/discover", now=0.0, revision=MODERN)
    assert decoded(data)["params"]["_meta"][t.PROTOCOL_VERSION_KEY] == MODERN.date
    (over,) = client.receive(line(id=id, error={"code": -32601, "message": "no"}), 0.0)
    assert isinstance(over, RequestFinished)
    assert (client.phase, client.peer) == (Phase.NEW, None)
    assert decoded(client.initialize(0.0).data)["method"] == "initialize"


def test_a_ping_where_there_is_none_is_a_discovery(revision: Revision) -> None:
    """D23."""
    client, _ = opened(revision)
    expected = "ping" if revision.handshake else "server/discover"
    assert decoded(client.ping(0.0)[1])["method"] == expected


# ---------------------------------------------------------------- capabilities


@pytest.mark.spec("R0026", "R0354")
def test_what_a_server_did_not_offer_is_an_unknown_method_there(revision: Revision) -> None:
    server = served(revision, can=None)
    bare = DuplexLink(Side.SERVER, Identity(LIBRARY, t.ServerCapabilities()), only(revision))
    bare.receive(initialize(revision.date), 0.0)
    for method in ("tools/list", "prompts/list", "resources/list", "logging/setLevel"):
        assert refusal(bare.receive(line(id=1, method=method, params={}), 0.0))["code"] == -32601
    assert isinstance(server.receive(line(id=1, method="tools/list"), 0.0)[0], RequestReceived)
    client, _ = opened(revision, server_can=t.ServerCapabilities())
    with pytest.raises(LocalProtocolError, match="has not declared it"):
        client.request("tools/list", now=0.0)


@pytest.mark.spec("R0155")
def test_a_level_that_is_none_is_refused_and_changes_nothing(revision: Revision) -> None:
    server = served(revision)
    running = call(server, line(id=1, method="tools/call", params={"name": "n"}))
    set_level = {"id": 2, "method": "logging/setLevel"}
    assert sent_messages(server.receive(line(**set_level, params={"level": "error"}), 0.0)) == [
        {"jsonrpc": "2.0", "id": 2, "result": {}}
    ]
    assert running.wants("error")  # it counts for what already runs
    assert not running.wants("warning")
    before = state(server)
    for level in ("loud", "", None, 7, "ERROR"):
        answer = sent_messages(server.receive(line(**set_level, params={"level": level}), 0.0))[0]
        assert (answer["id"], answer["error"]["code"]) == (2, -32602)
    assert refusal(server.receive(line(**set_level), 0.0))["code"] == -32602
    assert state(server) == before


def test_a_level_is_the_session_s_own_and_not_that_of_enveloped_requests() -> None:
    server = served(HANDSHAKES[-1], accepts=EVERY)
    enveloped = call(server, request(MODERN, 1, "tools/call", {"name": "n"}))
    server.receive(line(id=2, method="logging/setLevel", params={"level": "debug"}), 0.0)
    assert not enveloped.wants("emergency")


@pytest.mark.spec("R0038")
def test_no_notification_of_ours_has_an_id(revision: Revision) -> None:
    client, server = opened(revision)
    frames: list[bytes | None] = []
    if revision.handshake:
        frames.append(client.notify("notifications/roots/list_changed"))
        frames.append(server.notify("notifications/tools/list_changed"))
        message = t.LoggingMessageNotificationParams(level="error", data=1)
        frames.append(server.notify("notifications/message", message))
    id, data = client.request(
        "tools/call", t.CallToolRequestParams(name="n"), now=0.0, progress=True
    )
    exchange = call(server, data)
    frames += [exchange.progress(1), client.cancel(id)]
    for frame in frames:
        message = decoded(frame)
        assert "id" not in message
        assert message["method"].startswith("notifications/")


def test_what_belongs_to_a_request_is_not_written_by_hand(revision: Revision) -> None:
    for link in opened(revision):
        for method in (
            "notifications/cancelled",
            "notifications/progress",
            "notifications/initialized",
            "notifications/subscriptions/acknowledged",
        ):
            with pytest.raises(LocalProtocolError, match="is sent by"):
                link.notify(method)


# ---------------------------------------------------------------- the end


def test_after_the_end_nothing_is_sent_and_nothing_is_heard(revision: Revision) -> None:
    client, server = opened(revision)
    id, data = client.request("tools/call", t.CallToolRequestParams(name="n"), now=0.0)
    exchange = call(server, data)
    (cancelled,) = server.close("the pipe broke")
    assert isinstance(cancelled, RequestCancelled)
    assert (cancelled.exchange, cancelled.reason) == (exchange, "the pipe broke")
    assert exchange.settled
    assert exchange.settle(DONE) is None
    (over,) = client.close()
    assert isinstance(over, RequestFinished)
    assert over.id == id
    assert isinstance(over.outcome, ConnectionLost)
    for link in (client, server):
        assert link.close() == []
        assert [type(event) for event in link.receive(data, 0.0)] == [MessageIgnored]
        assert [type(e) for e in link.refuse(Fault(FaultKind.PARSE, "no"))] == [MessageIgnored]
        assert link.tick(1e9) == []
        with pytest.raises(LocalProtocolError, match="closed"):
            link.request("tools/list", now=0.0)
        with pytest.raises(LocalProtocolError, match="closed"):
            link.notify("notifications/tools/list_changed")
    with pytest.raises(LocalProtocolError):
        client.initialize(0.0)


def test_a_link_closes_in_the_middle_of_its_handshake() -> None:
    for revision in HANDSHAKES:
        client = opening(revision)
        (over,) = client.close()
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, ConnectionLost)
        assert client.phase is Phase.CLOSED


def test_a_call_says_who_its_principal_is(revision: Revision) -> None:
    link = DuplexLink(Side.SERVER, Identity(LIBRARY, ABLE_SERVER), only(revision), "ada")
    if revision.handshake:
        link.receive(initialize(revision.date), 0.0)
    assert call(link, request(revision, 1, "tools/list")).principal == "ada"


def test_two_sides_of_ours_understand_each_other_in_every_pair_of_revisions() -> None:
    """The compatibility matrix, as far as the core decides it."""
    for ours in ALL:
        for theirs in ALL:
            client, server = client_of(ours), server_of(theirs, accepts=Revisions([theirs]))
            if ours.handshake:
                deliver(client, server, from_client=[client.initialize(0.0).data])
                expected = {
                    True: Phase.OPEN,
                    False: Phase.NEW if not theirs.handshake else Phase.CLOSED,
                }
                assert client.phase is expected[ours is theirs], (ours.date, theirs.date)
            else:
                open_both(client, server)
                (answer,) = server.receive(client.request("tools/list", now=0.0)[1], 0.0)
                assert isinstance(answer, RequestReceived) is (ours is theirs), (
                    ours.date,
                    theirs.date,
                )
