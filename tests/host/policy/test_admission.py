"""The consent to a call holds for the rounds of that very call."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.host.policy import admission as module
from colonnade.host.policy.admission import ConsentedRounds
from colonnade.host.policy.request import Consent
from host.policy.approvals.test_approvals import ASK, CALL
from host.policy.approvals.test_inbox import Time

BY_ANN = Consent(approval="1", by="ann")


def test_the_next_round_of_a_call_uses_its_consent_once() -> None:
    rounds = ConsentedRounds()
    rounds.keep(CALL, ASK, BY_ANN, "state 1")
    assert rounds.take(CALL, ASK, "state 1") is BY_ANN
    assert rounds.take(CALL, ASK, "state 1") is None


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "bob"},
        {"server": "mail"},
        {"identity": "5678"},
        {"method": "prompts/get"},
        {"name": "erase"},
        {"arguments": Raw(b'{"path": "/b"}')},
        {"meta": Raw(b'{"a": 1}')},
        {"definition_digest": "other"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_another_call_with_the_same_state_is_asked_about(other: dict[str, Any]) -> None:
    rounds = ConsentedRounds()
    rounds.keep(CALL, ASK, BY_ANN, "state 1")
    assert rounds.take(replace(CALL, **other), ASK, "state 1") is None
    assert rounds.take(CALL, ASK, "state 1") is BY_ANN


def test_another_state_another_policy_and_no_state_are_asked_about() -> None:
    rounds = ConsentedRounds()
    rounds.keep(CALL, ASK, BY_ANN, "state 1")
    rounds.keep(CALL, ASK, BY_ANN, None)
    rounds.keep(CALL, ASK, BY_ANN, "")
    assert rounds.take(CALL, ASK, "state 2") is None
    assert rounds.take(CALL, ASK, "") is None
    assert rounds.take(CALL, replace(ASK, policy_version="v2"), "state 1") is None


def test_a_consent_for_a_next_round_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    rounds = ConsentedRounds(time)
    rounds.keep(CALL, ASK, BY_ANN, "state 1")
    time.now += module.ROUNDS_S
    assert rounds.take(CALL, ASK, "state 1") is None
    monkeypatch.setattr(module, "MAX_ROUNDS", 1)
    rounds.keep(CALL, ASK, BY_ANN, "state 1")
    rounds.keep(CALL, ASK, BY_ANN, "state 2")
    assert rounds.take(CALL, ASK, "state 1") is None
    assert rounds.take(CALL, ASK, "state 2") is BY_ANN
