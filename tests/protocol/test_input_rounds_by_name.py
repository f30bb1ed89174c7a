"""Questions that their author named: the name travels, the answer belongs to the question."""

import pytest
from msgspec import Raw

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import AnyInputResponse, InputRequest
from colonnade.protocol.input_rounds import (
    MAX_KEY_CHARACTERS,
    InputRounds,
    RequestState,
    open_request_state,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import CALL_TOOL
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, InputRequests, Revision
from protocol.input_requests import ROOTS, Seal, sample
from protocol.links import ABLE_CLIENT

BY_RESULT = pytest.mark.parametrize(
    "revision",
    [revision for revision in ALL if revision.input_requests is InputRequests.IN_RESULT],
    ids=lambda revision: revision.date,
)


class Rounds:
    """One call, round after round: what was asked last is answered, the rest is remembered."""

    def __init__(self, revision: Revision) -> None:
        self.peer = Peer(revision, ABLE_CLIENT)
        self.memory: RequestState | None = None

    def begin(self, responses: dict[str, Raw] | None = None) -> InputRounds:
        return InputRounds(self.peer, CALL_TOOL, self.memory, responses)

    def end(self, interview: InputRounds) -> list[str]:
        """The keys of the open questions, which the next round knows of."""
        seal = Seal()
        result = interview.result(seal.seal, principal="p", subject="s", expires_at=9.0)
        about = {"principal": "p", "method": CALL_TOOL.name, "subject": "s"}
        assert result.request_state is not None
        self.memory = open_request_state(result.request_state, seal.open, **about, now=0.0)
        return list(result.input_requests or {})


def written(words: str) -> Raw:
    content = t.TextContent(text=words)
    return Raw(encode(t.CreateMessageResult(role="assistant", content=content, model="m")))


def text(answer: AnyInputResponse | None) -> str:
    assert isinstance(answer, t.CreateMessageResult)
    assert isinstance(answer.content, t.TextContent)
    return answer.content.text


@BY_RESULT
def test_a_name_is_the_key_on_the_wire_and_finds_the_answer(revision: Revision) -> None:
    rounds = Rounds(revision)
    first = rounds.begin()
    assert first.ask(sample("delete a?"), "sure") == ("sure", None)
    key, _ = first.ask(ROOTS)
    assert rounds.end(first) == ["sure", key]
    second = rounds.begin({"sure": written("yes")})
    assert text(second.ask(sample("delete a?"), "sure")[1]) == "yes"
    assert second.unused == frozenset()
    assert second.ask(ROOTS)[1] is None
    rounds.end(second)  # the answer is recorded, and is there in every later round
    assert text(rounds.begin().ask(sample("delete a?"), "sure")[1]) == "yes"


@BY_RESULT
def test_the_answer_to_a_name_that_means_another_question_is_dropped(revision: Revision) -> None:
    rounds = Rounds(revision)
    first = rounds.begin()
    first.ask(sample("delete a?"), "sure")
    rounds.end(first)
    second = rounds.begin({"sure": written("yes")})
    assert second.ask(sample("delete b?"), "sure")[1] is None
    assert second.unused == {"sure"}
    rounds.end(second)
    # Nor does it come back where the question was not answered again.
    third = rounds.begin()
    assert third.ask(sample("delete b?"), "sure")[1] is None
    rounds.end(third)
    fourth = rounds.begin({"sure": written("no")})
    assert text(fourth.ask(sample("delete b?"), "sure")[1]) == "no"


@BY_RESULT
def test_a_question_without_a_name_takes_no_answer_of_a_named_one(revision: Revision) -> None:
    question = sample("delete a?")
    own = InputRounds(Peer(revision, ABLE_CLIENT), CALL_TOOL).ask(question)[0]
    rounds = Rounds(revision)
    first = rounds.begin()
    first.ask(sample("something else"), own)  # an author who wants to be clever
    rounds.end(first)
    second = rounds.begin({own: written("yes")})
    assert second.ask(question) == (own, None)
    rounds.end(second)
    third = rounds.begin({own: written("really")})
    assert text(third.ask(question)[1]) == "really"


@BY_RESULT
def test_one_name_for_two_questions_is_counted_on(revision: Revision) -> None:
    interview = Rounds(revision).begin()
    keys = [interview.ask(sample(words), "name")[0] for words in ("a", "b", "a")]
    assert keys == ["name", "name-2", "name-3"]


def test_a_name_is_short_and_not_empty(revision: Revision) -> None:
    interview = InputRounds(Peer(revision, ABLE_CLIENT), CALL_TOOL)
    for name in ("", "x" * (MAX_KEY_CHARACTERS + 1)):
        with pytest.raises(LocalProtocolError, match="1 to 128 characters"):
            interview.ask(ROOTS, name)
    assert interview.pending == {}


@BY_RESULT
def test_names_cost_nothing_where_there_are_none(revision: Revision) -> None:
    rounds = Rounds(revision)
    interview = rounds.begin()
    interview.ask(InputRequest(t.ListRootsRequestParams()))
    rounds.end(interview)
    assert rounds.memory is not None
    assert b"named" not in encode(rounds.memory)
