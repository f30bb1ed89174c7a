"""A subscription: acknowledged first, then only what was asked for, then its end."""

from typing import Any

import pytest

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.events import MessageIgnored, NotificationReceived, RequestFinished
from colonnade.protocol.revision import ALL, ChangeNotifications, Revision
from colonnade.protocol.subscriptions import (
    MAX_LISTEN_BYTES,
    MAX_SUBSCRIPTIONS,
    MAX_URI_CHARACTERS,
    Subscription,
)
from protocol.links import JSON, call, decoded, line, opened, request, served

LISTENING = [
    revision for revision in ALL if revision.change_notifications is ChangeNotifications.LISTEN
][-1]
ALL_OFFERED = t.SubscriptionFilter(
    tools_list_changed=True,
    prompts_list_changed=True,
    resources_list_changed=True,
    resource_subscriptions=[],
    task_ids=[],
)
LISTS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
UPDATED = "notifications/resources/updated"
TASKS = {"extensions": {t.TASKS_EXTENSION_ID: {}}}
EVERYTHING = dict.fromkeys(LISTS, True) | {"resourceSubscriptions": ["file:///a"]}


def listening(
    asked: JSON,
    offered: t.SubscriptionFilter = ALL_OFFERED,
    id: Any = 1,
    can: JSON | None = None,
    acknowledged: bool = True,
    revision: Revision = LISTENING,
) -> Subscription:
    listen = request(revision, id, "subscriptions/listen", {"notifications": asked}, can)
    subscription = Subscription(call(served(revision), listen), offered)
    if acknowledged:
        assert subscription.acknowledge() is not None
    return subscription


def updated(uri: str) -> t.ResourceUpdatedNotificationParams:
    return t.ResourceUpdatedNotificationParams(uri=uri)


def news_of(subscription: Subscription) -> dict[str, bytes | None]:
    """What comes through of every kind of news."""
    plain = t.NotificationParams()
    found = {name: subscription.notification(method, plain) for name, method in LISTS.items()}
    return found | {
        "resourceSubscriptions": subscription.notification(UPDATED, updated("file:///a"))
    }


@pytest.mark.spec("R0768", "R1117")
@pytest.mark.parametrize("id", [7, "7", "a b", 0])
def test_all_that_a_subscription_says_carries_the_id_of_its_request(
    revision: Revision, id: Any
) -> None:
    subscription = listening(EVERYTHING, id=id, acknowledged=False, revision=revision)
    assert subscription.id == id
    frames = [subscription.acknowledge(), *news_of(subscription).values(), *subscription.end("bye")]
    for frame in frames:
        message = decoded(frame)
        inside = message.get("params") or message["result"]
        tag = inside["_meta"][t.SUBSCRIPTION_ID_KEY]
        assert (tag, type(tag)) == (id, type(id))


@pytest.mark.spec("R0817", "R1140", "R1144")
@pytest.mark.parametrize("field", [*LISTS, "resourceSubscriptions"])
@pytest.mark.parametrize("wanted", [None, False, True], ids=["absent", "false", "true"])
def test_only_what_was_asked_for_is_sent(
    revision: Revision, field: str, wanted: bool | None
) -> None:
    others = {name: value for name, value in EVERYTHING.items() if name != field}
    value = wanted if field in LISTS else (["file:///a"] if wanted else [])
    asked = others if wanted is None else others | {field: value}
    heard = {
        name
        for name, frame in news_of(listening(asked, revision=revision)).items()
        if frame is not None
    }
    assert heard == (set(EVERYTHING) if wanted else set(others))
    alone = {} if wanted is None else {field: value}
    heard = {
        name
        for name, frame in news_of(listening(alone, revision=revision)).items()
        if frame is not None
    }
    assert heard == ({field} if wanted else set())


def test_a_subscription_looks_up_an_address_of_many_slashes_a_few_times_only() -> None:
    class Uri(str):
        """A URI that counts how often it is cut."""

        cuts = 0

        def __getitem__(self, part: Any) -> str:
            Uri.cuts += 1
            return super().__getitem__(part)

    subscription = listening({"resourceSubscriptions": ["file:///a"]})
    assert subscription.notification(UPDATED, updated(Uri("file:///b" + "/" * 1000))) is None
    assert Uri.cuts < 200
    assert subscription.notification(UPDATED, updated("file:///a" + "/" * 1000)) is not None


@pytest.mark.spec("R0817", "R1140", "R1144")
def test_a_notification_of_other_resources_and_of_other_kinds_is_not_sent(
    revision: Revision,
) -> None:
    subscription = listening(
        {"resourceSubscriptions": ["file:///a", "file:///d/", "x:y"]}, revision=revision
    )
    for uri in ("file:///a", "file:///a/b", "file:///a/b/c", "file:///d/", "file:///d/e", "x:y"):
        assert decoded(subscription.notification(UPDATED, updated(uri)))["params"]["uri"] == uri
    for uri in ("file:///ab", "file:///", "file:///d", "file:///b", "x:y:z", "x:", "", "FILE:///a"):
        assert subscription.notification(UPDATED, updated(uri)) is None
    for method in (
        "notifications/message",
        "notifications/progress",
        "notifications/tasks",
        UPDATED,
    ):
        assert subscription.notification(method, t.NotificationParams()) is None


@pytest.mark.spec("R0818", "R1141", "R1142")
def test_the_acknowledgement_is_the_first_thing_that_a_subscription_says(
    revision: Revision,
) -> None:
    subscription = listening(EVERYTHING, acknowledged=False, revision=revision)
    assert set(news_of(subscription).values()) == {None}
    first = decoded(subscription.acknowledge())
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert subscription.acknowledge() is None
    assert None not in news_of(subscription).values()

    hasty = listening(EVERYTHING, acknowledged=False, revision=revision)
    methods = [decoded(frame).get("method") for frame in hasty.end()]
    assert methods == [
        "notifications/subscriptions/acknowledged",
        "notifications/cancelled",
        None,
    ]


def test_a_notification_keeps_what_it_says_besides() -> None:
    subscription = listening(EVERYTHING)
    notification = subscription.notification(
        LISTS["toolsListChanged"], t.NotificationParams(meta={"a/b": 1})
    )
    assert decoded(notification)["params"]["_meta"] == {"a/b": 1, t.SUBSCRIPTION_ID_KEY: 1}


def test_what_is_not_offered_is_left_out_of_the_agreement() -> None:
    offered = t.SubscriptionFilter(tools_list_changed=True)
    subscription = listening(EVERYTHING, offered, acknowledged=False)
    agreed = decoded(subscription.acknowledge())["params"]["notifications"]
    assert agreed == {"toolsListChanged": True}
    nothing = listening(EVERYTHING, t.SubscriptionFilter(), acknowledged=False)
    assert decoded(nothing.acknowledge())["params"]["notifications"] == {}  # D22
    assert set(news_of(nothing).values()) == {None}
    everything = listening(EVERYTHING, acknowledged=False)
    assert decoded(everything.acknowledge())["params"]["notifications"] == EVERYTHING


@pytest.mark.spec("R0771", "R0776", "R0823", "R0824")
def test_a_server_ends_a_subscription_by_cancelled_and_then_by_a_result(revision: Revision) -> None:
    server = served(revision)
    listen = request(revision, "s", "subscriptions/listen", {"notifications": EVERYTHING})
    subscription = Subscription(call(server, listen), ALL_OFFERED)
    subscription.acknowledge()
    cancelled, result = map(decoded, subscription.end("shutting down"))
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == "s"
    assert cancelled["params"]["reason"] == "shutting down"
    assert (result["id"], result["result"]["resultType"]) == ("s", "complete")
    assert subscription.end() == []
    assert set(news_of(subscription).values()) == {None}
    assert len(server._incoming) == 0  # and the id is free again
    assert call(server, listen)


@pytest.mark.spec("R0838", "R0862")
def test_a_subscription_that_its_client_ended_says_nothing_more(revision: Revision) -> None:
    server = served(revision)
    listen = request(revision, 1, "subscriptions/listen", {"notifications": EVERYTHING})
    subscription = Subscription(call(server, listen), ALL_OFFERED)
    server.receive(line(method="notifications/cancelled", params={"requestId": 1}), 0.0)
    assert subscription.acknowledge() is None
    assert set(news_of(subscription).values()) == {None}
    assert subscription.end() == []


@pytest.mark.spec("R1197", "R1206")
def test_a_notification_of_tasks_needs_the_extension() -> None:
    asked = {"taskIds": ["t1", "t2"], "toolsListChanged": True}
    with pytest.raises(Fault) as caught:
        listening(asked)
    assert LISTENING.codes[caught.value.kind] == -32021
    assert caught.value.data == {"requiredCapabilities": {"extensions": {t.TASKS_EXTENSION_ID: {}}}}


@pytest.mark.spec("R1144")
def test_a_notification_of_tasks_is_of_those_that_were_agreed_to() -> None:
    def status(id: str) -> t.ExtTaskStatusNotificationParams:
        return t.ExtTaskStatusNotificationParams(
            task_id=id, status="working", created_at="x", last_updated_at="y", ttl_ms=None
        )

    asked = {"taskIds": ["t1"]}
    subscription = listening(asked, can=TASKS)
    notification = decoded(subscription.notification("notifications/tasks", status("t1")))["params"]
    assert (notification["taskId"], notification["_meta"][t.SUBSCRIPTION_ID_KEY]) == ("t1", 1)
    assert subscription.notification("notifications/tasks", status("t2")) is None
    assert listening({}, can=TASKS).notification("notifications/tasks", status("t1")) is None
    unable = listening(asked, t.SubscriptionFilter(), can=TASKS)
    assert unable.notification("notifications/tasks", status("t1")) is None


@pytest.mark.spec("R1216")
def test_tasks_of_others_are_left_out_of_the_acknowledgement() -> None:
    status = t.ExtTaskStatusNotificationParams(
        task_id="t2", status="working", created_at="x", last_updated_at="y", ttl_ms=None
    )
    subscription = listening({"taskIds": ["t1", "t2"]}, can=TASKS)
    subscription.keep_tasks(["t1"])
    assert subscription.agreed.task_ids == ["t1"]
    assert subscription.notification("notifications/tasks", status) is None


def test_resources_that_no_server_has_are_left_out_of_the_acknowledgement() -> None:
    subscription = listening({"resourceSubscriptions": ["a://1", "a://2"]})
    subscription.keep_resources(["a://1"])
    assert subscription.agreed.resource_subscriptions == ["a://1"]
    for uri, is_sent in (("a://1", True), ("a://2", False)):
        params = t.ResourceUpdatedNotificationParams(uri=uri)
        sent = subscription.notification("notifications/resources/updated", params)
        assert (sent is not None) is is_sent


def test_a_filter_that_cannot_be_read_is_a_fault() -> None:
    for params in ({}, {"notifications": []}, {"notifications": {"toolsListChanged": "yes"}}):
        listen = request(LISTENING, 1, "subscriptions/listen", params)
        exchange = call(served(LISTENING), listen)
        with pytest.raises(Fault):
            Subscription(exchange, ALL_OFFERED)


def asked_for(count: int, length: int = 20, name: str = "resourceSubscriptions") -> JSON:
    """A filter with this many entries of this length."""
    return {name: [f"{n:x}".ljust(length, "/") for n in range(count)]}


def test_a_filter_of_the_largest_size_is_agreed_to() -> None:
    subscription = listening(asked_for(MAX_SUBSCRIPTIONS))
    assert len(subscription.agreed.resource_subscriptions or ()) == MAX_SUBSCRIPTIONS
    assert subscription.held_bytes < MAX_LISTEN_BYTES
    listening(asked_for(1, MAX_URI_CHARACTERS))
    listening(asked_for(MAX_SUBSCRIPTIONS, name="taskIds"), can=TASKS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (asked_for(MAX_SUBSCRIPTIONS + 1), f"more than {MAX_SUBSCRIPTIONS} entries"),
        (asked_for(MAX_SUBSCRIPTIONS + 1, name="taskIds"), f"more than {MAX_SUBSCRIPTIONS}"),
        (asked_for(1, MAX_URI_CHARACTERS + 1), f"more than {MAX_URI_CHARACTERS} characters"),
        (asked_for(MAX_SUBSCRIPTIONS, 300), f"params of more than {MAX_LISTEN_BYTES} bytes"),
    ],
)
def test_a_filter_with_too_much_in_it_is_refused_with_the_limit(asked: JSON, words: str) -> None:
    with pytest.raises(Fault, match=words) as refused:
        listening(asked, can=TASKS)
    assert refused.value.kind is FaultKind.INVALID_PARAMS


def test_a_subscription_does_not_hold_the_params_of_its_request() -> None:
    listen = request(LISTENING, 7, "subscriptions/listen", {"notifications": EVERYTHING})
    exchange = call(served(LISTENING), listen)
    meta = bytes(exchange.params.meta)
    subscription = Subscription(exchange, ALL_OFFERED)
    assert not exchange.request.params
    assert (subscription.id, exchange.request.raw_id) == (7, b"7")
    assert bytes(exchange.params.meta) == meta


# ---------------------------------------------------------------- the client's side


def subscribed(revision: Revision = LISTENING) -> tuple[Any, Any, Subscription]:
    client, server = opened(revision)
    params = t.SubscriptionsListenRequestParams(
        notifications=t.SubscriptionFilter(tools_list_changed=True)
    )
    id, data = client.request("subscriptions/listen", params, now=0.0, timeout_s=5)
    subscription = Subscription(call(server, data), ALL_OFFERED)
    return client, id, subscription


@pytest.mark.spec("R0821", "R0835")
def test_a_client_finds_the_subscription_of_a_notification_by_its_id(revision: Revision) -> None:
    client, id, subscription = subscribed(revision)
    other, _ = client.request("tools/list", now=0.0)
    (told,) = client.receive(subscription.acknowledge() or b"", 0.0)
    assert isinstance(told, NotificationReceived)
    assert (told.subscription, told.method.name) == (
        id,
        "notifications/subscriptions/acknowledged",
    )
    changed = "notifications/tools/list_changed"
    (told,) = client.receive(subscription.notification(changed, t.NotificationParams()) or b"", 0.0)
    assert isinstance(told, NotificationReceived)
    assert told.subscription == id
    for tag in (other, str(id), 99, None):
        meta = {t.SUBSCRIPTION_ID_KEY: tag}
        stray = client.receive(line(method=changed, params={"_meta": meta}), 0.0)
        assert [type(event) for event in stray] == [MessageIgnored]
    for untagged in ({}, {"_meta": {}}, {"_meta": {t.SUBSCRIPTION_ID_KEY: [1]}}):
        stray = client.receive(line(method=changed, params=untagged), 0.0)
        assert [type(event) for event in stray] == [MessageIgnored]


def test_a_subscription_times_out_until_it_is_acknowledged_and_never_after() -> None:
    client, id, subscription = subscribed()
    assert client.next_deadline == 5.0
    client.receive(subscription.acknowledge() or b"", 1.0)
    assert (client.next_deadline, client.tick(1e9)) == (None, [])
    client, id, _ = subscribed()
    timed_out, cancelled = client.tick(5.0)
    assert isinstance(timed_out, RequestFinished)
    assert decoded(cancelled.data)["params"]["requestId"] == id


def test_whichever_end_comes_first_is_the_end() -> None:
    """D1: cancelled or the result; the other is ignored."""
    for order in ((0, 1), (1, 0)):
        client, id, subscription = subscribed()
        client.receive(subscription.acknowledge() or b"", 0.0)
        ends = subscription.end()
        first, second = (client.receive(ends[at], 0.0) for at in order)
        assert [(type(e), e.id) for e in first] == [(RequestFinished, id)]
        assert [type(e) for e in second] == [MessageIgnored]
        assert len(client._outgoing) == 0


@pytest.mark.spec("R0772", "R1050", "R1053")
def test_a_server_cancels_its_subscriptions_and_nothing_else(revision: Revision) -> None:
    client, server = opened(revision)
    id, data = client.request("tools/call", t.CallToolRequestParams(name="n"), now=0.0)
    call(server, data)
    assert server.cancel(id) is None  # it is not the server's to cancel

    with pytest.raises(LocalProtocolError, match=r"Link\.cancel"):
        server.notify("notifications/cancelled", t.CancelledNotificationParams(request_id=id))
    forged = line(method="notifications/cancelled", params={"requestId": id})
    assert [type(event) for event in client.receive(forged, 0.0)] == [MessageIgnored]
    assert client._outgoing.get(id) is not None
