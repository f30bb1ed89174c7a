"""Which sessions a notification is sent to."""

from typing import Any

import pytest

from colonnade.protocol import types as t
from colonnade.transport.duplex import encode_change


class OpenLink:
    """A link on which every notification may be sent: only `news_for` is left to decide."""

    def notify(self, method: str, params: t.NotificationParams) -> bytes:
        return method.encode()


def told(method: str, params: t.NotificationParams, *subscriptions: str) -> bool:
    link: Any = OpenLink()
    return encode_change(link, set(subscriptions), method, params) is not None


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
    assert f"{method} was sent to every session" in caplog.text
