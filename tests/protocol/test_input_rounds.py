"""Questions over rounds: one handler in every revision, and no answer for another question.

The handlers here are generators that yield questions and are sent answers; `Table` runs the very
same one where questions go by request and where they go by result.
"""

import json
from typing import Any

import pytest
from msgspec import Raw

from colonnade.errors import Declined, Fault, LocalProtocolError, RemoteError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.input_requests import (
    MAX_INPUT_REQUESTS,
    AnyInputResponse,
    InputRequest,
    accepted_content,
)
from colonnade.protocol.input_rounds import (
    MAX_KEY_CHARACTERS,
    MAX_ROUNDS,
    InputRounds,
    RequestState,
    open_request_state,
)
from colonnade.protocol.link.link import sends
from colonnade.protocol.methods import (
    CALL_TOOL,
    COMPLETE,
    DISCOVER,
    GET_PROMPT,
    LIST_TOOLS,
    READ_RESOURCE,
    Method,
    Side,
)
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, InputRequests, Revision, error_code
from protocol.input_requests import (
    BOOK,
    ROOTS,
    SEAT,
    Asked,
    Seal,
    Table,
    elicit,
    reply,
    sample,
    text,
    text_of,
    texts,
)
from protocol.links import (
    ABLE_CLIENT,
    JSON,
    call,
    client_of,
    open_both,
    opened,
    sent_messages,
    served,
)

ASKING_BY_REQUEST = [
    revision for revision in ALL if revision.input_requests is InputRequests.AS_REQUEST
]
ASKING_BY_RESULT = [
    revision for revision in ALL if revision.input_requests is InputRequests.IN_RESULT
]
ELICITING = [revision for revision in ALL if revision.elicitation.modes]
BOTH_ELICITING = pytest.mark.parametrize("revision", ELICITING, ids=lambda r: r.date)
BY_REQUEST = pytest.mark.parametrize("revision", ASKING_BY_REQUEST, ids=lambda r: r.date)
BY_RESULT = pytest.mark.parametrize("revision", ASKING_BY_RESULT, ids=lambda r: r.date)


def two_at_once_then_one(exchange: Exchange) -> Asked:
    """Two input requests in one round, one more that needs their answers: no word of how they travel."""
    both = yield [sample("colour"), ROOTS]
    (last,) = yield [sample(f"now {text_of(both[0])}")]
    return text(*map(text_of, both), text_of(last))


def table(
    revision: Revision, handler: Any, answering: Any = reply, can: Any = ABLE_CLIENT
) -> Table:
    client, server = opened(revision, can)
    return Table(client, server, handler, answering)


# ---------------------------------------------------------------- one code path


def test_one_handler_gets_the_same_answers_in_every_revision(revision: Revision) -> None:
    conversation = table(revision, two_at_once_then_one)
    assert texts(conversation.call("tools/call", BOOK)) == "<colour> file:///home <now <colour>>"


def test_a_handler_runs_once_by_request_and_once_a_round_by_result(revision: Revision) -> None:
    conversation = table(revision, two_at_once_then_one)
    conversation.call("tools/call", BOOK)
    asked = [
        line["method"]
        for side, line in conversation.lines
        if side is Side.SERVER and "method" in line
    ]
    demands = [
        line["result"]["inputRequests"]
        for side, line in conversation.lines
        if side is Side.SERVER and line.get("result", {}).get("resultType") == "input_required"
    ]
    if revision.input_requests is InputRequests.AS_REQUEST:
        assert asked == ["sampling/createMessage", "roots/list", "sampling/createMessage"]
        assert (conversation.runs, demands) == (1, [])
    else:
        assert [[q["method"] for q in round.values()] for round in demands] == [
            ["sampling/createMessage", "roots/list"],
            ["sampling/createMessage"],
        ]
        assert (conversation.runs, asked) == (3, [])


@pytest.mark.spec("R0781", "R0836", "R0858")
def test_where_a_server_sends_no_requests_its_questions_go_by_result(revision: Revision) -> None:
    conversation = table(revision, two_at_once_then_one)
    conversation.call("tools/call", BOOK)
    from_server = [line for side, line in conversation.lines if side is Side.SERVER]
    assert not any("method" in line and "id" in line for line in from_server)
    rounds = [line["result"].get("inputRequests", {}) for line in from_server]
    assert [[asked["method"] for asked in each.values()] for each in rounds] == [
        ["sampling/createMessage", "roots/list"],
        ["sampling/createMessage"],
        [],
    ]
    for question in (ROOTS, sample("colour"), SEAT):
        assert question.kind.method not in revision.methods
        with pytest.raises(LocalProtocolError):
            conversation.server.request(question.kind.method, question.params, now=0.0)


@pytest.mark.spec("R0737", "R0782", "R0760", "R0807", "R0979")
def test_each_round_is_a_request_of_its_own_with_all_that_a_request_must_say(
    revision: Revision,
) -> None:
    conversation = table(revision, two_at_once_then_one)
    conversation.call("tools/call", BOOK)
    rounds = [line for side, line in conversation.lines if side is Side.CLIENT]
    assert len({line["id"] for line in rounds}) == len(rounds) == 3
    for line in rounds:
        meta = line["params"]["_meta"]
        assert meta[t.PROTOCOL_VERSION_KEY] == revision.date
        assert meta[t.CLIENT_CAPABILITIES_KEY]["sampling"] == {"tools": {}, "context": {}}
        assert line["params"]["arguments"] == {"flight": "DY 620"}


@pytest.mark.parametrize(
    ("method", "params", "last"),
    [
        ("tools/call", BOOK, text("done")),
        ("prompts/get", t.GetPromptRequestParams(name="p"), t.GetPromptResult(messages=[])),
        (
            "resources/read",
            t.ReadResourceRequestParams(uri="file:///a"),
            t.ReadResourceResult(contents=[]),
        ),
    ],
    ids=["tool", "prompt", "resource"],
)
def test_tools_prompts_and_resources_ask_alike(
    revision: Revision, method: str, params: t.InputResponseRequestParams, last: t.ProtocolType
) -> None:
    def handler(exchange: Exchange) -> Asked:
        (answer,) = yield [ROOTS]
        assert text_of(answer) == "file:///home"
        return last

    outcome = table(revision, handler).call(method, params)
    assert type(outcome) is type(last), outcome


@BOTH_ELICITING
def test_the_same_question_twice_is_two_questions(revision: Revision) -> None:
    count = iter(range(10))

    def counting(question: InputRequest) -> AnyInputResponse:
        return t.ElicitResult(action="accept", content={"seat": str(next(count))})

    def handler(exchange: Exchange) -> Asked:
        first, second = yield [SEAT, SEAT]
        (third,) = yield [SEAT]
        return text(text_of(first), text_of(second), text_of(third))

    assert texts(table(revision, handler, counting).call("tools/call", BOOK)) == "0 1 2"


@BOTH_ELICITING
def test_answers_are_found_whatever_order_a_handler_asks_in(revision: Revision) -> None:
    """A handler that asks the other way round on its next run still gets each its own."""
    runs = iter(range(10))

    def handler(exchange: Exchange) -> Asked:
        a, b = elicit("seat 1a"), elicit("seat 2b")
        if next(runs) % 2:
            second, first = yield [b, a]
        else:
            first, second = yield [a, b]
        return text(text_of(first), text_of(second))

    assert texts(table(revision, handler).call("tools/call", BOOK)) == "1a 2b"


def test_answers_by_request_may_come_in_any_order() -> None:
    interview = InputRounds(peer_of(ASKING_BY_REQUEST[-1]), CALL_TOOL)
    (first, _), (second, _) = interview.ask(sample("a")), interview.ask(sample("b"))
    shape = '{"role":"assistant","model":"m","content":{"type":"text","text":"%s"}}'
    assert text_of(interview.receive_response(second, Raw((shape % "B").encode()))) == "B"
    assert text_of(interview.receive_response(first, Raw((shape % "A").encode()))) == "A"
    assert not interview.pending
    with pytest.raises(LocalProtocolError, match="not a pending input request"):
        interview.receive_response(first, Raw(b"{}"))


def test_a_question_may_have_a_name_on_the_wire(revision: Revision) -> None:
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    keys = [interview.ask(sample(words), "colour")[0] for words in ("a", "b", "a")]
    assert keys == ["colour", "colour-2", "colour-3"]
    for wrong in ("", "x" * (MAX_KEY_CHARACTERS + 1)):
        with pytest.raises(LocalProtocolError, match="a key has"):
            interview.ask(ROOTS, wrong)
    with pytest.raises(LocalProtocolError, match="two input requests have the key 'colour-2'"):
        interview.ask(ROOTS, "colour-2")
    unnamed, _ = interview.ask(ROOTS)
    with pytest.raises(LocalProtocolError, match="two input requests"):
        interview.ask(ROOTS, unnamed)


@BY_RESULT
def test_a_name_that_comes_to_mean_another_question_brings_no_answer_along(
    revision: Revision,
) -> None:
    def round(
        memory: RequestState | None, responses: dict[str, Raw], *asked: Any
    ) -> tuple[Any, ...]:
        interview = InputRounds(peer_of(revision), CALL_TOOL, memory, responses)
        found = [interview.ask(question, name) for question, name in asked]
        if not interview.pending:
            return interview, found, None
        sealed: list[bytes] = []
        interview.result(
            lambda raw: sealed.append(raw) or "s", principal="p", subject="s", expires_at=9.0
        )
        return interview, found, decode_as(RequestState, sealed[0])

    yes = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yes"}}
    responses = {"sure": Raw(json.dumps(yes).encode())}
    _, _, memory = round(None, {}, (sample("delete a?"), "sure"))
    _, same, _ = round(memory, responses, (sample("delete a?"), "sure"))
    assert text_of(same[0][1]) == "yes"
    interview, other, later = round(memory, responses, (sample("delete b?"), "sure"))
    assert other == [("sure", None)]
    assert interview.unused == {"sure"}
    assert later.answers == {}
    _, unnamed, _ = round(memory, responses, (sample("delete a?"), None))
    assert unnamed[0][1] is None


# ---------------------------------------------------------------- no, and nobody


def asking_kindly(exchange: Exchange) -> Asked:
    try:
        (answer,) = yield [SEAT]
    except Declined as no:
        return text("declined:", str(no))
    return text("seat", text_of(answer))


def asking_and_reading(exchange: Exchange) -> Asked:
    """A handler that takes what it is given as an answer."""
    (answer,) = yield [SEAT]
    assert isinstance(answer, t.ElicitResult)
    return text("seat", str(accepted_content(answer)["seat"]))


@pytest.mark.spec("R0938")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_who_says_no_gives_no_value(revision: Revision, action: t.ElicitAction) -> None:
    conversation = table(revision, asking_and_reading, lambda q: t.ElicitResult(action=action))
    outcome = conversation.call("tools/call", BOOK)
    assert isinstance(outcome, t.CallToolResult)
    assert outcome.is_error is True
    assert "user" in texts(outcome)


@BY_REQUEST
def test_a_refusal_by_error_is_the_user_s_no(revision: Revision) -> None:
    def handler(exchange: Exchange) -> Asked:
        try:
            yield [sample("colour")]
        except Declined:
            return text("no colour")
        raise AssertionError

    conversation = table(revision, handler, lambda q: RemoteError(-1, "rejected"))
    assert texts(conversation.call("tools/call", BOOK)) == "no colour"


@BY_REQUEST
def test_a_client_that_fails_to_answer_is_reported_as_it_failed(revision: Revision) -> None:
    def handler(exchange: Exchange) -> Asked:
        try:
            yield [sample("colour")]
        except RemoteError as error:
            return text(error.message)
        raise AssertionError

    conversation = table(revision, handler, lambda q: RemoteError(-32603, "no model"))
    assert texts(conversation.call("tools/call", BOOK)) == "no model"


def unable(revision: Revision, row: Method = CALL_TOOL) -> InputRounds:
    return InputRounds(Peer(revision, t.ClientCapabilities()), row)


@pytest.mark.spec("R0764", "R0765", "R0798", "R0799")
@pytest.mark.parametrize(
    ("question", "needed"),
    [
        (SEAT, {"elicitation": {"form": {}}}),
        (sample("a"), {"sampling": {}}),
        (ROOTS, {"roots": {}}),
    ],
    ids=["elicit", "sample", "roots"],
)
def test_a_question_that_nobody_declared_ends_the_request_and_names_what_is_missing(
    revision: Revision, question: InputRequest, needed: JSON
) -> None:
    """RQ-02."""
    server = served(revision)

    def handler(exchange: Exchange) -> Asked:
        yield [question]
        raise AssertionError

    client = client_of(revision, t.ClientCapabilities())
    open_both(client, server)
    conversation = Table(client, server, handler, reply)
    outcome = conversation.call("tools/call", BOOK)
    assert isinstance(outcome, RemoteError)
    assert outcome.code == -32021
    assert outcome.data == {"requiredCapabilities": needed}
    assert not any("inputRequests" in json.dumps(line) for _, line in conversation.lines)


@BY_REQUEST
def test_in_a_session_a_tool_says_in_words_what_it_could_not_ask(revision: Revision) -> None:
    for question in (SEAT, sample("a"), ROOTS):
        with pytest.raises(ToolError, match="which the client does not support"):
            unable(revision).ask(question)
        with pytest.raises(Fault, match="which the client does not support") as caught:
            unable(revision, GET_PROMPT).ask(question)
        assert error_code(caught.value, revision) == -32603


def test_a_handler_may_do_without_an_answer_that_it_cannot_have(revision: Revision) -> None:
    def handler(exchange: Exchange) -> Asked:
        try:
            yield [ROOTS]
        except (ToolError, Fault):
            return text("at home")
        raise AssertionError

    conversation = table(revision, handler, can=t.ClientCapabilities())
    assert texts(conversation.call("tools/call", BOOK)) == "at home"


# ---------------------------------------------------------------- what may ask at all


def peer_of(revision: Revision, can: t.ClientCapabilities = ABLE_CLIENT) -> Peer:
    return Peer(revision, can)


@pytest.mark.spec("R0785")
def test_only_calls_prompts_and_reads_may_ask(revision: Revision) -> None:
    """RQ-01."""
    for row in (CALL_TOOL, GET_PROMPT, READ_RESOURCE):
        key, _ = InputRounds(peer_of(revision), row).ask(ROOTS)
        assert key
    for row in (LIST_TOOLS, COMPLETE, DISCOVER):
        with pytest.raises(LocalProtocolError, match="may not request input"):
            InputRounds(peer_of(revision), row).ask(ROOTS)


@BY_REQUEST
def test_in_a_session_any_request_may_ask(revision: Revision) -> None:
    for row in (LIST_TOOLS, COMPLETE, CALL_TOOL):
        key, _ = InputRounds(peer_of(revision), row).ask(ROOTS)
        assert key


@BY_REQUEST
def test_a_question_that_was_refused_is_no_longer_open(revision: Revision) -> None:
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    key, _ = interview.ask(ROOTS)
    assert isinstance(interview.receive_error(key, RemoteError(-1, "no")), Declined)
    assert not interview.pending
    with pytest.raises(LocalProtocolError, match="not a pending input request"):
        interview.receive_error(key, RemoteError(-1, "no"))


def test_only_a_client_can_be_asked() -> None:
    for revision in ALL:
        interview = InputRounds(Peer(revision, t.ServerCapabilities()), CALL_TOOL)
        with pytest.raises(LocalProtocolError, match="only to a client"):
            interview.ask(ROOTS)


def test_a_question_that_breaks_the_rules_is_a_bug_of_the_handler(revision: Revision) -> None:
    uses = t.ToolUseContent(id="1", name="n", input={})
    params = t.CreateMessageRequestParams(
        messages=[t.SamplingMessage(role="assistant", content=uses)], max_tokens=1
    )
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    with pytest.raises(LocalProtocolError, match="append their results"):
        interview.ask(InputRequest(params))
    assert not interview.pending


def test_a_round_has_a_bound() -> None:
    interview = InputRounds(peer_of(ALL[0]), CALL_TOOL)
    for _ in range(MAX_INPUT_REQUESTS):
        interview.ask(ROOTS)
    with pytest.raises(LocalProtocolError, match="in one round"):
        interview.ask(ROOTS)


@pytest.mark.spec("R0788")
def test_keys_are_unique_among_the_questions_of_a_request(revision: Revision) -> None:
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    questions = [ROOTS, ROOTS, SEAT, elicit("Which seat? "), sample("a"), sample("b"), sample("a")]
    keys = [interview.ask(question)[0] for question in questions]
    assert len(set(keys)) == len(keys) == len(interview.pending)
    for taken in keys:  # a name of the handler's own does not take a key, either
        with pytest.raises(LocalProtocolError, match="two input requests"):
            interview.ask(SEAT, taken)


@BY_RESULT
def test_a_question_that_changes_from_run_to_run_ends_after_some_rounds(revision: Revision) -> None:
    runs = iter(range(100))

    def handler(exchange: Exchange) -> Asked:
        yield [sample(f"the time is {next(runs)}")]
        raise AssertionError

    conversation = table(revision, handler)
    outcome = conversation.call("tools/call", BOOK)
    assert isinstance(outcome, RemoteError)
    assert (outcome.code, conversation.runs) == (-32603, MAX_ROUNDS + 1)
    assert "must not change" in outcome.message


@BY_RESULT
def test_an_answer_never_reaches_a_question_with_other_words(revision: Revision) -> None:
    words = iter(["delete a?", "delete b?", "delete b?"])

    def handler(exchange: Exchange) -> Asked:
        (answer,) = yield [sample(next(words))]
        return text(text_of(answer))

    conversation = table(revision, handler)
    assert texts(conversation.call("tools/call", BOOK)) == "<delete b?>"
    assert len(conversation.unused) == 1


def test_a_side_effect_is_kept_for_the_next_round(revision: Revision) -> None:
    first = InputRounds(peer_of(revision), CALL_TOOL)
    assert first.kept("order") is None
    first.keep("order", b'{"number":7}')
    assert first.kept("order") == Raw(b'{"number":7}')
    if revision.input_requests is InputRequests.IN_RESULT:
        first.ask(ROOTS)
        seal = Seal()
        result = first.result(seal.seal, principal="p", subject="s", expires_at=9.0)
        assert result.request_state is not None
        memory = open_request_state(
            result.request_state,
            seal.open,
            principal="p",
            method="tools/call",
            subject="s",
            now=0.0,
        )
        assert InputRounds(peer_of(revision), CALL_TOOL, memory).kept("order") == Raw(
            b'{"number":7}'
        )


@BY_REQUEST
def test_a_round_does_not_end_by_result_where_questions_go_by_request(revision: Revision) -> None:
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    interview.ask(ROOTS)
    with pytest.raises(LocalProtocolError, match="one by one"):
        interview.result(str, principal="p", subject="s", expires_at=9.0)


@BY_RESULT
def test_a_round_without_questions_has_no_end_by_result(revision: Revision) -> None:
    """RQ-01: what asks for input holds a question, and its state."""
    interview = InputRounds(peer_of(revision), CALL_TOOL)
    with pytest.raises(LocalProtocolError, match="no pending input request"):
        interview.result(str, principal="p", subject="s", expires_at=9.0)


def test_a_consent_to_a_url_elicitation_comes_back_on_replay_and_says_nothing_of_its_end() -> None:
    """D25: what is recorded is that the user agreed, so whether they are done is asked elsewhere."""
    visit = InputRequest(
        t.ElicitRequestParams(
            message="log in", mode="url", url="https://example.com/in", elicitation_id="e1"
        )
    )
    for revision in (r for r in ALL if "url" in r.elicitation.modes):
        asked: list[AnyInputResponse] = []

        def handler(exchange: Exchange, asked: list[AnyInputResponse] = asked) -> Asked:
            (consent,) = yield [visit]
            asked.append(consent)
            return text("consented")

        conversation = table(revision, handler, lambda q: t.ElicitResult(action="accept"))
        assert texts(conversation.call("tools/call", BOOK)) == "consented"
        assert asked == [t.ElicitResult(action="accept")]


def test_nothing_of_a_round_is_answered_twice() -> None:
    """The frames of a call by result: one demand and one result, each for its own id."""
    revision = ASKING_BY_RESULT[-1]
    client, server = opened(revision)
    exchange = call(server, client.request("tools/call", BOOK, now=0.0)[1])
    interview = InputRounds(exchange.peer, exchange.method)
    interview.ask(ROOTS)
    demand = exchange.settle(interview.result(str, principal="", subject="s", expires_at=1.0))
    assert demand is not None
    assert exchange.settle(text("late")) is None
    assert sent_messages(client.receive(demand, 0.0)) == []
    assert sends(client.receive(demand, 0.0)) == []


# ---------------------------------------------------------------- a task that goes on


@BY_RESULT
def test_a_task_goes_on_with_the_responses_of_the_rounds_before_it(revision: Revision) -> None:
    peer = Peer(revision, ABLE_CLIENT)
    first = InputRounds(peer, CALL_TOOL)
    assert first.answered == {}
    _, response = first.ask(SEAT, "seat")
    assert response is None
    assert first.answered == {}
    raw = Raw(b'{"action":"decline"}')
    again = InputRounds(peer, CALL_TOOL, responses={"seat": raw})
    for _ in range(2):  # found, and found again
        again.ask(SEAT, "seat")
        assert again.answered["seat"] == (SEAT, raw)


def test_effects_of_earlier_runs_are_there_without_a_state(revision: Revision) -> None:
    rounds = InputRounds(Peer(revision, ABLE_CLIENT), CALL_TOOL, saved={"paid": Raw(b"1")})
    assert rounds.kept("paid") == Raw(b"1")
    assert rounds.kept("other") is None
