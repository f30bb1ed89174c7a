"""Whether a change is news for who follows some resources."""

from collections.abc import Iterator, Set
from typing import Any

import pytest

from portico.protocol import types as t
from portico.transport.news import news_for, within


class OpenLink:
    """A link on which every notification may be sent: only `news_for` is left to decide."""

    def notify(self, method: str, params: t.NotificationParams) -> bytes:
        return method.encode()


def told(method: str, params: t.NotificationParams, *subscriptions: str) -> bool:
    link: Any = OpenLink()
    return news_for(link, set(subscriptions), method, params) is not None


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
def test_that_a_list_changed_is_told_to_every_session(kind: str) -> None:
    assert told(f"notifications/{kind}/list_changed", t.NotificationParams())


def test_an_update_goes_to_those_alone_who_subscribed_to_its_resource() -> None:
    params = t.ResourceUpdatedNotificationParams(uri="a://b/c")
    assert told("notifications/resources/updated", params, "a://b")
    assert not told("notifications/resources/updated", params, "a://other")
    assert not told("notifications/resources/updated", params)
    # Without a URI it is about no resource that a session could have subscribed to.
    assert not told("notifications/resources/updated", t.NotificationParams(), "a://b")


@pytest.mark.parametrize(
    "method",
    [
        "notifications/tasks/status",
        "notifications/tasks",
        "notifications/elicitation/complete",
        "notifications/progress",
        "notifications/message",
        "notifications/roots/list_changed",
        "notifications/of/tomorrow",
    ],
)
def test_what_concerns_one_caller_is_never_told_to_every_session(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not told(method, t.NotificationParams(), "a://b")
    assert f"{method} was announced to every session" in caplog.text


class Counted(Set[str]):
    """A set that counts how often something is looked up in it."""

    def __init__(self, *members: str) -> None:
        self._members = frozenset(members)
        self.looks = 0

    def __contains__(self, one: Any) -> bool:
        self.looks += 1
        return one in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@pytest.mark.parametrize("deeper", ["", "/x" * 500], ids=["a short address", "a deep one"])
def test_what_is_below_a_resource_is_news_of_it(deeper: str) -> None:
    own = {"a://b", "a://folder/"}
    for uri in ("a://b/c", "a://b/", "a://folder/c", "a://folder/c/d"):
        assert within(uri + deeper, own), uri
    for uri in ("a://bc", "a://folders", "a:/b", "b://b"):
        assert not within(uri + deeper, own), uri
    assert within("a://b", own)
    assert within("a://folder/", own)
    assert not within("a://folder", own)
    assert not within(deeper, set())


def test_an_address_of_a_million_slashes_is_not_cut_at_each_of_them() -> None:
    own = Counted("a://b", "a://c")
    assert not within("a://" + "/" * 20_000, own)
    assert own.looks < 200
    assert within("a://b" + "/" * 1_000_000, own)
