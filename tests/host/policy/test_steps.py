"""The steps of a request in the audit log."""

import asyncio
from typing import Any, cast

import pytest

from colonnade.errors import ColonnadeError, ConnectionLost, RemoteError
from colonnade.host.policy.request import AuditSink, Decision, PolicyRequest
from colonnade.host.policy.steps import RequestSteps


class Sink:
    """An audit log that keeps the names of events, and why there was no answer."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def proposed(self, request: PolicyRequest) -> str:
        self.events.append(("proposed",))
        return "1"

    def asked(self, call: str, request: PolicyRequest, decision: Decision) -> None:
        self.events.append(("asked",))

    def unanswered(self, call: str, request: PolicyRequest, ended: str, why: str) -> None:
        self.events.append(("unanswered", ended, why))


@pytest.mark.parametrize(
    ("error", "ended", "why"),
    [
        (ConnectionLost("token=secret was lost"), "failed", "it ended with ConnectionLost"),
        (RemoteError(-32603, "secret"), "failed", "it ended with RemoteError"),
        (asyncio.CancelledError(), "cancelled", "the call was cancelled"),
    ],
)
def test_whatever_ends_the_wait_for_a_person_is_recorded_without_its_words(
    error: ColonnadeError | asyncio.CancelledError, ended: str, why: str
) -> None:
    sink, anything = Sink(), cast("Any", None)
    steps = RequestSteps(cast("AuditSink", sink), anything)
    with pytest.raises(type(error)), steps.asking(anything):
        raise error
    assert sink.events == [("proposed",), ("asked",), ("unanswered", ended, why)]
