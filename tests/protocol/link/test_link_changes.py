"""A side that changes while it speaks, and callers who may not have all of it."""

import math
from typing import Any

import pytest

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.link.events import RequestReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import EVERY, JULY_2026, Revision
from colonnade.protocol.subscriptions import Subscription
from protocol.links import (
    ABLE_SERVER,
    INITIALIZED,
    LIBRARY,
    call,
    decoded,
    initialize,
    only,
    refusal,
    request,
    sent_messages,
    served,
)

NOTHING = Identity(LIBRARY, t.ServerCapabilities())
TOOLS = Identity(LIBRARY, t.ServerCapabilities(tools=t.ToolsCapability(list_changed=True)))
LOGS = Identity(LIBRARY, t.ServerCapabilities(logging={}))


class Growing:
    """A server that has nothing to offer at first."""

    def __init__(self, revision: Revision | None = None) -> None:
        self.now = NOTHING
        accepts = only(revision) if revision is not None else EVERY
        self.link = DuplexLink(Side.SERVER, NOTHING, accepts, current=lambda: self.now)

    def open(self, revision: Revision) -> None:
        if revision.handshake:
            self.link.receive(initialize(revision.date), 0.0)
            self.link.receive(INITIALIZED, 0.0)


# ---------------------------------------------------------------- what is offered by now


def test_what_a_handshake_agreed_on_holds_and_other_requests_find_what_is_there(
    revision: Revision,
) -> None:
    server = Growing(revision)
    server.open(revision)
    assert refusal(server.link.receive(request(revision, 1, "tools/list"), 0.0))["code"] == -32601
    server.now = TOOLS
    events = server.link.receive(request(revision, 2, "tools/list"), 0.0)
    if revision.handshake:
        assert refusal(events)["code"] == -32601
        with pytest.raises(LocalProtocolError):  # and it is not told of what it cannot see
            server.link.notify("notifications/tools/list_changed")
    else:
        assert isinstance(events[0], RequestReceived)
        assert refusal(server.link.receive(request(revision, 3, "prompts/list"), 0.0))


def test_a_handshake_says_what_is_offered_when_it_is_done(revision: Revision) -> None:
    if not revision.handshake:
        return
    server = Growing(revision)
    server.now = TOOLS
    (answer,) = sent_messages(server.link.receive(initialize(revision.date), 0.0))
    assert answer["result"]["capabilities"] == {"tools": {"listChanged": True}}
    server.link.receive(INITIALIZED, 0.0)
    assert call(server.link, request(revision, 1, "tools/list")).logs is False
    assert server.link.notify("notifications/tools/list_changed")


def test_whether_a_session_is_logged_to_is_agreed_on_too(revision: Revision) -> None:
    if not revision.handshake:
        return
    server = Growing(revision)
    server.now = Identity(LIBRARY, ABLE_SERVER)
    server.open(revision)
    assert call(server.link, request(revision, 1, "tools/list")).logs is True


def test_on_one_pipe_each_is_judged_in_its_own_way(revision: Revision) -> None:
    if not revision.handshake:
        return
    server = Growing()
    server.open(revision)
    server.now = TOOLS
    assert refusal(server.link.receive(request(revision, 1, "tools/list"), 0.0))["code"] == -32601
    assert call(server.link, request(JULY_2026, 2, "tools/list")).method.name == "tools/list"


def test_without_a_current_identity_the_first_one_holds() -> None:
    link = DuplexLink(Side.SERVER, LOGS, only(JULY_2026))
    assert refusal(link.receive(request(JULY_2026, 1, "tools/list"), 0.0))["code"] == -32601


# ---------------------------------------------------------------- what a caller may have


@pytest.mark.parametrize("scopes", [None, frozenset(), frozenset({"a", "b"})])
def test_what_the_credentials_of_a_request_allow_comes_with_it(
    scopes: frozenset[str] | None, revision: Revision
) -> None:
    server = served(revision)
    assert call(server, request(revision, 1, "tools/list")).scopes is None
    server.scopes = scopes
    assert call(server, request(revision, 2, "tools/list")).scopes == scopes


def test_a_subscription_tells_only_of_what_its_caller_may_hear_of() -> None:
    asked = {"resourceSubscriptions": ["a://x", "a://secret", "b:"], "toolsListChanged": True}
    offered = t.SubscriptionFilter(tools_list_changed=True, resource_subscriptions=[])
    listen = request(JULY_2026, 1, "subscriptions/listen", {"notifications": asked})
    subscription = Subscription(
        call(served(JULY_2026), listen), offered, lambda uri: "secret" not in uri
    )
    agreed = decoded(subscription.acknowledge())["params"]["notifications"]
    assert agreed == {"toolsListChanged": True, "resourceSubscriptions": ["a://x", "b:"]}
    method = "notifications/resources/updated"
    for uri, wanted in (
        ("a://x", True),
        ("a://secret", False),
        ("b://secret", False),
        ("b://y", True),
        ("c://y", False),
    ):
        params = t.ResourceUpdatedNotificationParams(uri=uri)
        assert (subscription.notification(method, params) is not None) is wanted
    assert not subscription.wants(method, None)


def test_where_no_resources_are_pushed_there_is_nothing_to_leave_out() -> None:
    asked = {"resourceSubscriptions": ["a://x"]}
    listen = request(JULY_2026, 1, "subscriptions/listen", {"notifications": asked})
    offered = t.SubscriptionFilter()
    subscription = Subscription(call(served(JULY_2026), listen), offered, lambda uri: False)
    assert subscription.agreed == t.SubscriptionFilter()


# ---------------------------------------------------------------- data that cannot be sent


@pytest.mark.parametrize("data", [math.nan, [math.inf], {"a": -math.inf}, object(), "\ud800"])
def test_a_fault_with_data_that_json_cannot_hold_is_refused_and_the_request_stays_open(
    data: Any, revision: Revision
) -> None:
    exchange = call(served(revision), request(revision, 1, "tools/list"))
    with pytest.raises(LocalProtocolError):
        exchange.fail(Fault(FaultKind.INTERNAL, "x", data))
    assert not exchange.settled
    answer = decoded(exchange.fail(Fault(FaultKind.INTERNAL, "x", {"a": [None, 1.5]})))
    assert answer["error"]["data"] == {"a": [None, 1.5]}
    assert exchange.fail(Fault(FaultKind.INTERNAL, "x", data)) is None
