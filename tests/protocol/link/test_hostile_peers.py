"""Every message in every phase has its decided answer; nothing raises; refusals change nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.jsonrpc import MAX_BATCH
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.in_flight import MAX_BATCHES
from colonnade.protocol.link.link import DuplexLink, sends
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, EVERY, Revision
from protocol.input_requests import text
from protocol.links import (
    INITIALIZED,
    JSON,
    call,
    client_of,
    decoded,
    initialize,
    line,
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


@pytest.mark.spec("R0036", "R0037")
def test_an_error_is_sent_with_an_integer_code_and_without_a_result(revision: Revision) -> None:
    _, server = opened(revision)
    refused = [
        request(revision, 7, "no/such/method"),
        request(revision, 7, "logging/setLevel", {"level": "loud"}),
        line(id=7, method=1),
        b"[]",
        b"{",
    ]
    for frame in refused:
        (answer,) = sent_messages(server.receive(frame, 0.0))
        assert answer.keys() - {"id"} == {"jsonrpc", "error"}
        assert type(answer["error"]["code"]) is int
    exchange = call(server, request(revision, 8, "tools/call", {"name": "t"}))
    answer = decoded(exchange.fail(Fault(FaultKind.INTERNAL, "it failed")))
    assert answer.keys() == {"jsonrpc", "id", "error"}
    assert type(answer["error"]["code"]) is int


def outcome(events: list[LinkEvent]) -> str:
    """What came of a message, in a word for each event."""
    words: list[str] = []
    for event in events:
        match event:
            case Send(data):
                message = json.loads(data)
                words.append(_answer(message) if isinstance(message, dict) else "array")
            case MessageIgnored():
                words.append("ignored")
            case _:
                words.append(type(event).__name__.lower())
    return " ".join(words)


def _answer(message: JSON) -> str:
    if "error" in message:
        bare = "" if message.get("id") is not None else " to nobody"
        return f"{message['error']['code']}{bare}"
    return "result" if "result" in message else "notice"


# ---------------------------------------------------------------- every message, every phase

MESSAGES = {
    "initialize": initialize("2025-06-18", 50),
    "initialized": INITIALIZED,
    "ping": line(id=51, method="ping"),
    "known request": line(id=52, method="tools/list"),
    "unknown request": line(id=53, method="made/up"),
    "request to a client": line(id=54, method="roots/list"),
    "notification as request": line(id=55, method="notifications/cancelled"),
    "request as notification": line(method="tools/list"),
    "enveloped request": request(MODERN, 56, "tools/list"),
    "enveloped, but unknown": request(MODERN, 57, "made/up"),
    "enveloped ping": request(MODERN, 58, "ping"),
    "enveloped initialize": request(MODERN, 59, "initialize"),
    "envelope forgotten": line(id=60, method="server/discover"),
    "unknown notification": line(method="notifications/made_up"),
    "news of roots": line(method="notifications/roots/list_changed"),
    "news of tools": line(method="notifications/tools/list_changed"),
    "log message": line(method="notifications/message", params={"level": "info", "data": 1}),
    "cancelled": line(method="notifications/cancelled", params={"requestId": 99}),
    "progress": line(method="notifications/progress", params={"progressToken": 9, "progress": 1}),
    "stray reply": line(id=99, result={}),
    "stray error": line(id=99, error={"code": 1, "message": "m"}),
    "error of nobody": line(error={"code": 1, "message": "m"}),
    "malformed request": line(id=61, method="tools/list", params=[]),
    "malformed notification": line(method="notifications/initialized", params=[]),
    "malformed reply": line(id=99, result=7),
    "neither": line(id=99),
    "rubbish": b"{",
    "batch": b'[{"jsonrpc":"2.0","id":62,"method":"ping"}]',
    "empty batch": b"[]",
}

SERVER_NEW = {
    "initialize": "result peeridentified",
    "initialized": "ignored",
    "ping": "result",
    "known request": "-32602",
    "unknown request": "-32602",
    "request to a client": "-32602",
    "notification as request": "-32602",
    "request as notification": "ignored",
    "enveloped request": "requestreceived",
    "enveloped, but unknown": "-32601",
    "enveloped ping": "-32601",
    "enveloped initialize": "-32601",
    "envelope forgotten": "-32602",
    "unknown notification": "ignored",
    "news of roots": "ignored",
    "news of tools": "ignored",
    "log message": "ignored",
    "cancelled": "ignored",
    "progress": "ignored",
    "stray reply": "ignored",
    "stray error": "ignored",
    "error of nobody": "ignored",
    "malformed request": "-32600",
    "malformed notification": "ignored",
    "malformed reply": "ignored",
    "neither": "-32600",
    "rubbish": "-32700 to nobody",
    "batch": "-32600 to nobody",
    "empty batch": "-32600 to nobody",
}
SERVER_OPENING = SERVER_NEW | {
    "initialize": "-32600",
    "initialized": "notificationreceived",
    "known request": "requestreceived",
    "unknown request": "-32601",
    "request to a client": "-32601",
    "notification as request": "-32601",
    "news of roots": "notificationreceived",
}
SERVER_OPEN = SERVER_OPENING | {"initialized": "ignored"}
CLIENT_NEW = dict.fromkeys(MESSAGES, "ignored")
CLIENT_OPENING = CLIENT_NEW | {
    "initialize": "-32600",
    "ping": "result",
    "known request": "-32600",
    "unknown request": "-32600",
    "request to a client": "-32600",
    "notification as request": "-32600",
    "enveloped request": "-32600",
    "enveloped, but unknown": "-32600",
    "enveloped ping": "result",
    "enveloped initialize": "-32600",
    "envelope forgotten": "-32600",
    "log message": "notificationreceived",
    "malformed request": "-32600",
    "neither": "-32600",
}
CLIENT_OPEN = CLIENT_OPENING | {
    "initialize": "-32601",
    "known request": "-32601",
    "unknown request": "-32601",
    "request to a client": "requestreceived",
    "notification as request": "-32601",
    "enveloped request": "-32601",
    "enveloped, but unknown": "-32601",
    "enveloped initialize": "-32601",
    "envelope forgotten": "-32601",
    "news of tools": "notificationreceived",
}
# A server that needs no handshake asks nothing, and is not answered; its news needs a tag.
CLIENT_ADOPTED = CLIENT_NEW | {"log message": "notificationreceived"}
CLOSED = dict.fromkeys(MESSAGES, "ignored")


def a_server(revision: Revision, phase: Phase) -> DuplexLink:
    server = server_of(revision, accepts=EVERY)
    if phase in (Phase.OPENING, Phase.OPEN):
        server.receive(initialize(revision.date, 0), 0.0)
    if phase is Phase.OPEN:
        server.receive(INITIALIZED, 0.0)
    if phase is Phase.CLOSED:
        server.close()
    return server


def a_client(revision: Revision, phase: Phase) -> DuplexLink:
    if phase is Phase.OPEN:
        return opened(revision)[0]
    client = client_of(revision)
    if phase is Phase.OPENING:
        client.initialize(0.0)
    if phase is Phase.CLOSED:
        client.close()
    return client


def table(side: Side, revision: Revision, phase: Phase) -> dict[str, str]:
    """What is decided, the few differences between revisions included."""
    if phase is Phase.CLOSED:
        return CLOSED
    if side is Side.SERVER:
        found = {
            Phase.NEW: SERVER_NEW,
            Phase.OPENING: SERVER_OPENING,
            Phase.OPEN: SERVER_OPEN,
        }[phase]
    elif not revision.handshake:
        found = CLIENT_ADOPTED if phase is Phase.OPEN else CLIENT_NEW
    else:
        found = {Phase.NEW: CLIENT_NEW, Phase.OPENING: CLIENT_OPENING, Phase.OPEN: CLIENT_OPEN}[
            phase
        ]
    known = phase is Phase.OPEN or (phase is Phase.OPENING and side is Side.SERVER)
    if revision.batches and known:
        found = found | {"batch": "array"}
    return found


CASES = [
    pytest.param(side, revision, phase, id=f"{side.value} {phase.name.lower()} {revision.date}")
    for side in Side
    for revision in ALL
    for phase in Phase
    if revision.handshake or phase in (Phase.NEW, Phase.OPEN)
    if not (side is Side.SERVER and not revision.handshake and phase is Phase.OPEN)
]


@pytest.mark.parametrize(("side", "revision", "phase"), CASES)
def test_every_message_in_every_phase_has_its_decided_answer(
    side: Side, revision: Revision, phase: Phase
) -> None:
    made = a_server if side is Side.SERVER else a_client
    found = {
        name: outcome(made(revision, phase).receive(body, 0.0)) for name, body in MESSAGES.items()
    }
    assert found == table(side, revision, phase)


@pytest.mark.parametrize(("side", "revision", "phase"), CASES)
def test_what_is_refused_or_dropped_changes_nothing(
    side: Side, revision: Revision, phase: Phase
) -> None:
    link = (a_server if side is Side.SERVER else a_client)(revision, phase)
    before = state(link)
    expected = table(side, revision, phase)
    for name, body in MESSAGES.items():
        if (
            expected[name].split()[0]
            in (
                "requestreceived",
                "notificationreceived",
            )
            or "peeridentified" in expected[name]
        ):
            continue
        link.receive(body, 0.0)
        assert state(link) == before, name


def test_errors_to_nobody_have_the_id_that_the_revision_wants() -> None:
    """D2: null in the older sessions, none in the newer and before there is one."""
    for revision in ALL:
        server = served(revision)
        null = revision.handshake and revision.error_id_required
        for body in (b"{", b"[]", b"7", b"\xff", line(id=1.5, method="ping")):
            (error,) = sent_messages(server.receive(body, 0.0))
            assert ("id" in error) is null
            assert error.get("id") is None
        (error,) = sent_messages(server_of(revision).receive(b"{", 0.0))
        assert "id" not in error


@pytest.mark.spec("R0233")
def test_a_notification_is_never_answered(revision: Revision) -> None:
    bodies = [
        line(method=m) for m in ("made/up", "tools/list", "ping", "initialize", "", "x" * 999)
    ]
    bodies += [
        line(method="notifications/cancelled", params=params)
        for params in ({}, [], 7, {"requestId": []})
    ]
    bodies += [
        b'{"jsonrpc":"2.0","method":"a","params":{"x":1,"x":2}}',
        b'{"jsonrpc":"2.0","method":"a","method":"b"}',
        b'{"jsonrpc":"1.0","method":"a"}',
        b'{"method":"a"}',
        b'{"jsonrpc":"2.0","method":"a","result":{}}',
        line(method="notifications/progress", params={"progressToken": [], "progress": 1}),
        line(method="notifications/initialized", params="x"),
        line(method="logging/setLevel", params={"level": "debug"}),
        line(method="notifications/tools/list_changed", params={"_meta": 7}),
    ]
    for link in (*opened(revision), served(revision), server_of(revision), client_of(revision)):
        for body in bodies:
            assert sends(link.receive(body, 0.0)) == [], body


def test_a_reply_is_never_answered(revision: Revision) -> None:
    bodies = [
        line(id=id, **outcome)
        for id in (1, "1", None, 1.5, [], True)
        for outcome in (
            {"result": {}},
            {"result": 7},
            {"error": {"code": 1, "message": "m"}},
            {"error": 7},
            {"result": {}, "error": {"code": 1, "message": "m"}},
        )
    ]
    for link in (*opened(revision), served(revision), server_of(revision), client_of(revision)):
        for body in bodies:
            events = link.receive(body, 0.0)
            assert [type(event) for event in events] == [MessageIgnored], body


def test_an_overlong_line_is_told_to_a_client_and_to_no_server() -> None:
    fault = Fault(FaultKind.PARSE, "a line of more than 9 bytes")
    for revision in ALL:
        client, server = opened(revision)
        assert refusal(served(revision).refuse(fault))["code"] == -32700
        assert [type(event) for event in client.refuse(fault)] == [MessageIgnored]
        assert refusal(server.refuse(fault))["message"].startswith("a line of more")


# ---------------------------------------------------------------- batches

BATCHING = [revision for revision in ALL if revision.batches]


def batch(*items: Any) -> bytes:
    return (
        b"["
        + b",".join(i if isinstance(i, bytes) else json.dumps(i).encode() for i in items)
        + b"]"
    )


def one(id: Any, method: str = "tools/call", **params: Any) -> bytes:
    return line(id=id, method=method, params={"name": "n"} | params)


@pytest.mark.spec("R0234")
def test_a_batch_is_received_and_answered_as_one(revision: Revision) -> None:
    server = served(revision)
    events = server.receive(
        batch(
            one(1), line(id=2, method="ping"), one(3), line(id=4, method="made/up"), INITIALIZED, 7
        ),
        0.0,
    )
    calls = [event.exchange for event in events if isinstance(event, RequestReceived)]
    assert sends(events) == []
    assert calls[1].settle(DONE) is None
    answer = decoded(calls[0].settle(DONE))
    assert {item.get("id") for item in answer} == {1, 2, 3, 4, None}
    by_id = {item.get("id"): item for item in answer}
    assert by_id[2]["result"] == {}
    assert by_id[4]["error"]["code"] == -32601
    assert by_id[None]["error"]["code"] == -32600

    client, server = opened(revision)
    id, _ = client.request("tools/list", now=0.0)
    events = client.receive(
        batch(line(id=5, method="ping"), line(id=id, result={"tools": []}), line(id=99, result={})),
        0.0,
    )
    assert [type(event) for event in events] == [RequestFinished, MessageIgnored, Send]
    assert decoded(sends(events)[0]) == [{"jsonrpc": "2.0", "id": 5, "result": {}}]


@pytest.mark.spec("R0234")
def test_a_batch_of_notifications_and_replies_is_answered_with_nothing(revision: Revision) -> None:
    server = served(revision)
    notification = line(method="notifications/roots/list_changed")
    events = server.receive(batch(notification, notification, line(id=9, result={})), 0.0)
    assert [type(event) for event in events] == [
        NotificationReceived,
        NotificationReceived,
        MessageIgnored,
    ]


@pytest.mark.spec("R0236")
def test_an_initialize_inside_a_batch_is_refused_alone(revision: Revision) -> None:
    server = served(revision)
    before = server.phase, server.peer
    events = server.receive(batch(initialize(revision.date, 1), line(id=2, method="ping")), 0.0)
    (answer,) = sent_messages(events)
    assert {item["id"]: item.get("error", {}).get("code") for item in answer} == {
        1: -32600,
        2: None,
    }
    assert (server.phase, server.peer) == before
    (answer,) = sent_messages(server.receive(batch(line(id=1, method="initialize")), 0.0))
    assert answer[0]["error"]["code"] == -32600  # whatever else is wrong with it
    fresh = server_of(revision)
    (error,) = sent_messages(fresh.receive(batch(initialize(revision.date, 1)), 0.0))
    assert error["error"]["code"] == -32600
    assert fresh.phase is Phase.NEW


def test_a_batch_that_nobody_may_send_is_refused_as_a_whole(revision: Revision) -> None:
    server = served(revision)
    before = state(server)
    for body in [b"[]"] if revision.batches else [b"[]", batch(one(1)), batch(INITIALIZED)]:
        (error,) = sent_messages(server.receive(body, 0.0))
        assert error["error"]["code"] == -32600
        assert error.get("id") is None
        assert state(server) == before


def test_a_cancelled_call_is_missing_from_the_answer_to_its_batch() -> None:
    for revision in BATCHING:
        server = served(revision)
        first, second = (
            event.exchange
            for event in server.receive(batch(one(1), one(2)), 0.0)
            if isinstance(event, RequestReceived)
        )
        assert first.settle(DONE) is None
        gone = line(method="notifications/cancelled", params={"requestId": 2})
        cancelled, sent = server.receive(gone, 0.0)
        assert isinstance(cancelled, RequestCancelled)
        assert cancelled.exchange is second
        assert isinstance(sent, Send)
        assert [item["id"] for item in decoded(sent.data)] == [1]


def test_a_call_and_its_cancellation_in_one_batch_leave_nothing() -> None:
    for revision in BATCHING:
        server = served(revision)
        before = state(server)
        gone = line(method="notifications/cancelled", params={"requestId": 1})
        events = server.receive(batch(one(1), gone), 0.0)
        assert [type(event) for event in events] == [RequestReceived, RequestCancelled]
        assert state(server) == before


def test_an_id_is_good_for_one_request_of_a_batch() -> None:
    for revision in BATCHING:
        server = served(revision)
        events = server.receive(batch(line(id=1, method="ping"), line(id=1, method="ping")), 0.0)
        (answer,) = sent_messages(events)
        assert [item.get("id") for item in answer] == [1, None]
        assert answer[1]["error"]["code"] == -32600


def test_an_enveloped_request_has_no_place_in_a_batch() -> None:
    for revision in BATCHING:
        server = served(revision, accepts=EVERY)
        (answer,) = sent_messages(server.receive(batch(request(MODERN, 1, "tools/list")), 0.0))
        assert (answer[0]["id"], answer[0]["error"]["code"]) == (1, -32600)


def test_batches_are_bounded_in_size_and_in_number() -> None:
    for revision in BATCHING:
        server = served(revision)
        many = batch(*(line(id=n, method="ping") for n in range(MAX_BATCH + 1)))
        assert refusal(server.receive(many, 0.0))["code"] == -32600
        for n in range(MAX_BATCHES):
            server.receive(batch(one(n), line(id=f"p{n}", method="ping")), 0.0)
        before = state(server)
        ((answer,),) = sent_messages(server.receive(batch(one("more")), 0.0))
        assert (answer["id"], answer["error"]["code"]) == ("more", -32603)
        assert state(server) == before
        assert call(server, one("alone"))


def test_a_batch_too_many_still_answers_us_and_cancels() -> None:
    for revision in BATCHING:
        server = served(revision, can={"roots": {}})
        for n in range(MAX_BATCHES):
            server.receive(batch(one(n)), 0.0)
        id, _ = server.request("roots/list", now=0.0)
        answered, cancelled, refused = server.receive(
            batch(
                one("more"),
                line(id=id, result={"roots": []}),
                line(method="notifications/cancelled", params={"requestId": 0}),
            ),
            0.0,
        )
        assert isinstance(answered, RequestFinished)
        assert answered.id == id
        assert isinstance(cancelled, RequestCancelled)
        assert isinstance(refused, Send)
        assert [one["id"] for one in decoded(refused.data)] == ["more"]


# ---------------------------------------------------------------- anything at all

ids = st.one_of(st.integers(0, 4), st.sampled_from(["1", "x", None, 1.5, True, []]))
methods = st.sampled_from(
    [*sorted({name for revision in ALL for name in revision.methods}), "made/up", "", 7]
)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
params = st.one_of(
    values,
    st.fixed_dictionaries(
        {},
        optional={
            "requestId": ids,
            "progressToken": ids,
            "progress": st.one_of(st.integers(-1, 3), values),
            "protocolVersion": st.sampled_from([r.date for r in ALL] + ["x"]),
            "capabilities": values,
            "clientInfo": st.just({"name": "n", "version": "v"}),
            "level": st.sampled_from(["info", "loud"]),
            "name": st.text(max_size=3),
            "messages": values,
            "_meta": st.one_of(
                values, st.just(json.loads(request(MODERN, 1, "x"))["params"]["_meta"])
            ),
        },
    ),
)
frames = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"]),
            "id": ids,
            "method": methods,
            "params": params,
            "result": values,
            "error": st.one_of(values, st.just({"code": 1, "message": "m"})),
        },
    ),
    values,
)
bodies = st.one_of(
    frames.map(
        lambda frame: json.dumps(
            {"jsonrpc": "2.0"} | frame if isinstance(frame, dict) else frame
        ).encode()
    ),
    st.lists(frames, max_size=3).map(lambda items: json.dumps(items).encode()),
    st.binary(max_size=20),
)


@given(st.sampled_from(ALL), st.sampled_from(Side), st.lists(bodies, max_size=8))
def test_whatever_a_stranger_sends_only_events_come_out(
    revision: Revision, side: Side, sent: list[bytes]
) -> None:
    client, server = opened(revision)
    link = client if side is Side.CLIENT else server
    if link is client:
        client.request("tools/list", now=0.0)
    for body in sent:
        before = state(link)
        events = link.receive(body, 1.0)
        told = {type(event) for event in events} - {MessageIgnored}
        for data in sends(events):
            assert json.loads(data)
            assert b"\n" not in data
        refused = all("error" in each for each in sent_messages(events) if isinstance(each, dict))
        if (
            told <= {Send}
            and refused
            and not any(isinstance(e, list) for e in sent_messages(events))
        ):
            assert state(link) == before
    assert all(
        isinstance(event, RequestFinished | RequestCancelled | PeerIdentified)
        for event in link.close()
    )
