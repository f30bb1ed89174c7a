"""The compatibility matrix and its neighbours: two links in memory, opened as the pages say."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

import official
from colonnade.errors import LocalProtocolError, RemoteError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.link.events import (
    MessageIgnored,
    NotificationReceived,
    Phase,
    ProgressReceived,
    RequestCancelled,
    RequestReceived,
)
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    NEWEST,
    NOVEMBER_2025,
    OutputRoot,
    Revision,
    Revisions,
)
from colonnade.protocol.subscriptions import Subscription
from pairs import ADD, CLIENT, SERVER, Pair

MODERN = Revisions(EVERY.enveloped)
LEGACY = Revisions(EVERY.handshakes)
DUAL = EVERY
CALL = t.CallToolRequestParams(name="add")


def alone(revision: Revision) -> Revisions:
    return Revisions((revision,))


# ---------------------------------------------------------------- the matrix of the versioning page


@pytest.mark.parametrize(
    ("client", "server", "spoken"),
    [
        pytest.param(MODERN, MODERN, NEWEST, id="modern-modern"),
        pytest.param(MODERN, DUAL, NEWEST, id="modern-dual"),
        pytest.param(DUAL, MODERN, NEWEST, id="dual-modern"),
        pytest.param(DUAL, DUAL, NEWEST, id="dual-dual"),
        pytest.param(DUAL, LEGACY, NOVEMBER_2025, id="dual-legacy"),
        pytest.param(LEGACY, DUAL, NOVEMBER_2025, id="legacy-dual"),
        pytest.param(LEGACY, LEGACY, NOVEMBER_2025, id="legacy-legacy"),
    ],
)
def test_a_pair_that_can_speak_does(client: Revisions, server: Revisions, spoken: Revision) -> None:
    pair = Pair(client, server)
    assert pair.open() is spoken
    assert [tool["name"] for tool in pair.ask("tools/list")["tools"]] == ["add"]
    methods = [said.get("method") for said in pair.said(Side.CLIENT)]
    assert ("initialize" in methods) == spoken.handshake


def test_a_modern_client_and_an_older_server_fail_with_words_to_act_on() -> None:
    pair = Pair(MODERN, LEGACY)
    with pytest.raises(RemoteProtocolError, match="no revision in common") as caught:
        pair.open()
    assert "2025-11-25" in str(caught.value)
    assert "2026-07-28" in str(caught.value)
    assert pair.client.peer is None


@pytest.mark.parametrize("client", [MODERN, DUAL], ids=["modern", "dual"])
@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": {"code": -32602, "message": "Invalid request parameters"}},
        {"error": {"code": -32000, "message": "Server not initialized"}},
        {"error": {"code": 7, "message": "?"}},
        {"result": {}},
        None,
    ],
)
def test_a_server_that_never_heard_of_discovery_is_an_older_one(
    client: Revisions, answer: dict[str, Any] | None
) -> None:
    pair = Pair(client, LEGACY)
    receive = pair.server.receive

    def old(data: bytes, now: float) -> Any:
        asked = json.loads(data)
        if asked.get("method") != "server/discover":
            return receive(data, now)
        if answer is not None:
            reply = {"jsonrpc": "2.0", "id": asked["id"]} | answer
            pair.send(Side.SERVER, json.dumps(reply).encode())
        return []

    pair.server.receive = old  # type: ignore[method-assign]
    if client is DUAL:
        assert pair.open() is NOVEMBER_2025
        assert pair.ask("tools/list")["tools"]
    else:
        with pytest.raises(RemoteProtocolError, match="older server"):
            pair.open()


@pytest.mark.spec("R0931")
def test_an_older_client_is_told_what_a_modern_server_speaks(revision: Revision) -> None:
    for older in LEGACY:
        pair = Pair(alone(older), alone(revision))
        with pytest.raises(RemoteError) as caught:
            pair.open()
        assert caught.value.code == -32022
        assert caught.value.data == {"supported": [revision.date], "requested": older.date}
        assert revision.date in caught.value.message
        assert pair.server.peer is None
        # And nothing else that it may say gets further.
        pair.send(Side.CLIENT, b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
        assert pair.said(Side.SERVER)[-1]["error"]["code"] == -32602


@pytest.mark.spec("R0923")
def test_a_client_whose_version_is_refused_chooses_from_the_list(revision: Revision) -> None:
    pair = Pair(DUAL, alone(revision))
    pair.client.adopt(revision)
    line = pair.client.request("tools/list", now=0.0)[1].replace(
        revision.date.encode(), b"2031-01-01", 1
    )
    pair.send(Side.CLIENT, line)
    error = pair.said(Side.SERVER)[-1]["error"]
    assert (error["code"], error["data"]["supported"]) == (-32022, [revision.date])
    assert pair.open() is revision
    assert pair.ask("tools/list")["tools"]


# ---------------------------------------------------------------- one revision with itself


@pytest.mark.spec("R0002", "R0737")
def test_each_revision_holds_a_whole_conversation(revision: Revision) -> None:
    pair = Pair(alone(revision), alone(revision))
    assert pair.open() is revision
    assert pair.client.phase is Phase.OPEN
    called = pair.ask("tools/call", CALL, progress=True)
    assert called["content"] == [{"type": "text", "text": "5"}]
    assert any(isinstance(event, ProgressReceived) for _, event in pair.events)
    # Given up in the middle: the server hears of it, and nothing more is said.
    pair.answer = lambda exchange: None  # type: ignore[method-assign]
    id, data = pair.client.request("tools/call", CALL, now=0.0)
    pair.send(Side.CLIENT, data)
    before = len(pair.said(Side.SERVER))
    pair.send(Side.CLIENT, pair.client.cancel(id))
    assert any(isinstance(event, RequestCancelled) for _, event in pair.events)
    assert len(pair.said(Side.SERVER)) == before


@pytest.mark.spec("R0737")
def test_versions_are_told_and_a_subscription_is_spoken_beside_calls(revision: Revision) -> None:
    pair = Pair(alone(revision), alone(revision))
    assert pair.open() is revision
    assert pair.ask("server/discover")["supportedVersions"] == [revision.date]
    unknown = pair.client.request("tools/list", now=0.0)[1]
    pair.send(Side.CLIENT, unknown.replace(revision.date.encode(), b"1999-01-01"))
    assert pair.said(Side.SERVER)[-1]["error"]["data"]["supported"] == [revision.date]

    wanted = t.SubscriptionFilter(tools_list_changed=True)
    asked = t.SubscriptionsListenRequestParams(notifications=wanted)
    id, data = pair.client.request("subscriptions/listen", asked, now=0.0)
    pair.send(Side.CLIENT, data)
    opened = [event for _, event in pair.events if isinstance(event, RequestReceived)][-1]
    subscription = Subscription(opened.exchange, wanted)
    notification = "notifications/tools/list_changed"
    pair.send(Side.SERVER, subscription.acknowledge())
    pair.send(Side.SERVER, subscription.notification(notification, t.NotificationParams()))
    assert pair.ask("tools/list")["tools"]
    told = [event for _, event in pair.events if isinstance(event, NotificationReceived)]
    assert [(event.method.name, event.subscription) for event in told] == [
        ("notifications/subscriptions/acknowledged", id),
        (notification, id),
    ]
    for last in subscription.end():
        pair.send(Side.SERVER, last)
    assert pair.outcome(id) is not None


@pytest.mark.spec("R0013", "R0014")
def test_a_client_offers_the_newest_version_that_it_speaks(revision: Revision) -> None:
    accepts = Revisions(
        older for older in ALL if older.handshake and revision.knows(older.date, None)
    )
    pair = Pair(accepts, EVERY)
    pair.open()
    assert pair.said(Side.CLIENT)[0]["params"]["protocolVersion"] == revision.date


@pytest.mark.spec("R0015", "R0016", "R0017")
def test_the_answer_on_the_wire_is_the_asked_version_or_the_newest(revision: Revision) -> None:
    pair = Pair(alone(revision), EVERY)
    assert pair.open() is revision
    assert pair.said(Side.SERVER)[0]["result"]["protocolVersion"] == revision.date
    pair = Pair(EVERY, Revisions((revision, JULY_2026)))
    hello = pair.client.initialize(0.0).data.replace(b"2025-11-25", b"1999-01-01")
    pair.send(Side.CLIENT, hello)
    assert pair.said(Side.SERVER)[0]["result"]["protocolVersion"] == revision.date


@pytest.mark.spec("R0018", "R0178")
def test_a_client_leaves_for_good_when_it_cannot_speak_the_answer(revision: Revision) -> None:
    others = Revisions(older for older in ALL if older.handshake and older is not revision)
    pair = Pair(others, alone(revision))
    with pytest.raises(RemoteProtocolError, match="disconnecting"):
        pair.open()
    assert pair.client.phase is Phase.CLOSED
    methods = [said["method"] for said in pair.said(Side.CLIENT)]
    assert methods == ["initialize"]
    with pytest.raises(LocalProtocolError):
        pair.client.request("tools/list", now=0.0)


LATER = {
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "annotations": "2025-03-26",
    "icons": "2025-11-25",
}


@pytest.mark.spec("R0019", "R0353")
def test_what_was_agreed_on_decides_what_is_said_and_what_is_heard(revision: Revision) -> None:
    pair = Pair(EVERY, alone(revision))
    assert pair.open() is revision
    (tool,) = pair.ask("tools/list")["tools"]
    known = {name for name, since in LATER.items() if revision.knows(since, None)}
    if revision.knows("2025-11-25", "2025-11-25"):
        known.add("execution")
    if not revision.knows("2025-03-26", None):
        known.add("description")  # where a title has no other place
    assert set(tool) == {"name", "inputSchema"} | known
    called = pair.ask("tools/call", CALL)
    assert ("structuredContent" in called) == (revision.output_root is not OutputRoot.NONE)
    if revision.output_root is OutputRoot.OBJECT:  # D17: the value follows its schema
        assert tool["outputSchema"]["properties"] == {"result": {"type": "integer"}}
        assert called["structuredContent"] == {"result": 5}
    # Methods of other revisions are neither sent nor served.
    strange = {name for other in ALL for name, row in other.methods.items() if row.result}
    for method in sorted(strange - set(revision.methods) - {"subscriptions/listen"}):
        with pytest.raises(LocalProtocolError):
            pair.client.request(method, now=0.0)
        pair.send(Side.CLIENT, b'{"jsonrpc":"2.0","id":"x","method":"%b"}' % method.encode())
        assert pair.said(Side.SERVER)[-1]["error"]["code"] in (-32601, -32602), method
    if official.available(revision.date):
        answers = [said["result"] for said in pair.said(Side.SERVER) if "result" in said]
        for name, value in zip(("ListToolsResult", "CallToolResult"), answers[1:], strict=True):
            assert official.problems(revision.date, name, value) == []


# ---------------------------------------------------------------- both ways on one pipe


def test_a_pipe_carries_both_eras_and_each_request_keeps_its_own() -> None:
    pair = Pair(LEGACY, EVERY)
    pair.open()
    running: list[Exchange] = []
    pair.answer = lambda exchange: running.append(exchange)  # type: ignore[method-assign]
    pair.send(Side.CLIENT, b'{"jsonrpc":"2.0","id":"old","method":"tools/list"}')
    modern = Pair(MODERN, EVERY)
    modern.client.adopt(JULY_2026)
    line = modern.client.request("tools/list", now=0.0)[1].replace(b'"id":1', b'"id":"new"')
    pair.send(Side.CLIENT, line)
    assert [exchange.peer.revision for exchange in running] == [NOVEMBER_2025, JULY_2026]
    # A cancellation carries no envelope: it belongs to the request that it names.
    for name, exchange in zip(("new", "old"), reversed(running), strict=True):
        pair.send(
            Side.CLIENT,
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%b"}}'
            % name.encode(),
        )
        assert exchange.settled
    cancelled = [event.exchange for _, event in pair.events if isinstance(event, RequestCancelled)]
    assert cancelled == list(reversed(running))


def test_a_notification_with_an_envelope_opens_nothing() -> None:
    pair = Pair(LEGACY, EVERY)
    told = {
        "jsonrpc": "2.0",
        "method": "notifications/roots/list_changed",
        "params": {"_meta": {t.PROTOCOL_VERSION_KEY: "2026-07-28", t.CLIENT_CAPABILITIES_KEY: {}}},
    }
    pair.send(Side.CLIENT, json.dumps(told).encode())
    assert pair.server.peer is None
    assert isinstance(pair.events[-1][1], MessageIgnored)
    pair.open()
    pair.send(Side.CLIENT, json.dumps(told).encode())
    assert isinstance(pair.events[-1][1], NotificationReceived)


# ---------------------------------------------------------------- names, capabilities, extensions


@pytest.mark.spec("R0767")
def test_who_somebody_says_to_be_changes_nothing(revision: Revision) -> None:
    def spoken(client: t.Implementation, server: t.Implementation) -> list[str]:
        pair = Pair(DUAL, DUAL, replace(CLIENT, info=client), replace(SERVER, info=server))
        pair.open()
        pair.ask("tools/list")
        pair.ask("tools/call", CALL)
        names = (client.name, server.name)
        texts = [data.decode() for _, data in pair.wire]
        for name in names:
            texts = [text.replace(name, "somebody") for text in texts]
        return texts

    plain = t.Implementation(name="somebody", version="1")
    first = spoken(plain, plain)
    assert revision.date in first[0]
    for name in ("admin", "claude-desktop", "2024-11-05-client", "root@localhost"):
        other = t.Implementation(name=name, version="1")
        assert spoken(other, plain) == first
        assert spoken(plain, other) == first


SPEAKS_TASKS = replace(
    SERVER,
    capabilities=t.ServerCapabilities(
        tools=t.ToolsCapability(), extensions={t.TASKS_EXTENSION_ID: {}}
    ),
)
ASKS_FOR_TASKS = replace(
    CLIENT, capabilities=t.ClientCapabilities(extensions={t.TASKS_EXTENSION_ID: {}})
)


@pytest.mark.spec("R0765", "R0927")
def test_a_method_of_an_extension_needs_the_word_of_both_sides(revision: Revision) -> None:
    accepts = alone(revision)

    def error(who: Any, offers: Any) -> dict[str, Any]:
        pair = Pair(accepts, accepts, who, offers)
        pair.client.adopt(revision)
        line = pair.client.request("tools/list", now=0.0)[1]
        body = line.replace(b"tools/list", b"tasks/get").replace(
            b'"params":{', b'"params":{"taskId":"t",'
        )
        pair.send(Side.CLIENT, body)
        said = pair.said(Side.SERVER)
        return said[-1]["error"] if said else {}

    # Declared by the server alone: refused, with the capability that is missing.
    missing = error(CLIENT, SPEAKS_TASKS)
    assert missing["code"] == -32021
    required = {"requiredCapabilities": {"extensions": {t.TASKS_EXTENSION_ID: {}}}}
    assert missing["data"] == required
    # By the client alone: the core protocol, which has no such method.
    assert error(ASKS_FOR_TASKS, SERVER)["code"] == -32601
    assert error(CLIENT, SERVER)["code"] == -32601
    # By both: it reaches the application.
    assert error(ASKS_FOR_TASKS, SPEAKS_TASKS) == {}


@pytest.mark.spec("R0927")
def test_a_client_does_not_use_an_extension_that_the_server_lacks(revision: Revision) -> None:
    for who, offers in ((ASKS_FOR_TASKS, SERVER), (CLIENT, SPEAKS_TASKS)):
        pair = Pair(alone(revision), alone(revision), who, offers)
        pair.client.adopt(Peer(revision, offers.capabilities, offers.info))
        with pytest.raises(LocalProtocolError):
            pair.client.request("tasks/get", t.ExtGetTaskRequestParams(task_id="t"), now=0.0)
        assert pair.ask("tools/list")["tools"][0]["name"] == ADD.name


TASK = t.ExtCreateTaskResult(
    task_id="t",
    status="working",
    created_at="2026-01-01T00:00:00Z",
    last_updated_at="2026-01-01T00:00:00Z",
    ttl_ms=None,
)


@pytest.mark.spec("R1151")
def test_a_task_is_only_for_a_request_that_declared_the_extension_itself(
    revision: Revision,
) -> None:
    pair = Pair(EVERY, EVERY, offers=SPEAKS_TASKS)
    running: list[Exchange] = []
    pair.answer = lambda exchange: running.append(exchange)  # type: ignore[method-assign]
    for who in (ASKS_FOR_TASKS, CLIENT):
        client = Pair(EVERY, EVERY, who).client
        client.adopt(revision)
        line = client.request("tools/call", CALL, now=0.0)[1]
        pair.send(Side.CLIENT, line.replace(b'"id":1', b'"id":%d' % (len(running) + 1)))
    declared, silent = running
    assert declared.settle(TASK) is not None
    with pytest.raises(LocalProtocolError):
        silent.settle(TASK)
    # It is still open, and can be answered with what its caller understands.
    assert silent.settle(t.CallToolResult(content=[])) is not None
