"""Questions over rounds: one handler in every revision, and no answer for another question.

The handlers here are generators that yield questions and are sent answers; `Table` runs the very
same one where questions go by request and where they go by result.
"""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from protocol.dialogue import (
    ABLE_CLIENT,
    JSON,
    STATE_LIVES_S,
    Asked,
    Seal,
    Table,
    call,
    client_of,
    heard,
    meet,
    opened,
    request,
    said,
    served,
    server_of,
)

from portico.errors import (
    Declined,
    Fault,
    FaultKind,
    LocalProtocolError,
    PorticoError,
    RemoteError,
    ToolError,
)
from portico.protocol import types as t
from portico.protocol.exchange import Exchange
from portico.protocol.interview import MAX_ROUNDS, Interview, Memory, recall, subject_of
from portico.protocol.link import sends
from portico.protocol.methods import (
    CALL_TOOL,
    COMPLETE,
    DISCOVER,
    GET_PROMPT,
    LIST_TOOLS,
    READ_RESOURCE,
    Method,
    Side,
)
from portico.protocol.negotiation import Peer
from portico.protocol.questions import MAX_QUESTIONS, AnyAnswer, Question, accepted
from portico.protocol.revision import ALL, Asking, Revision

ASKING_BY_REQUEST = [revision for revision in ALL if revision.asking is Asking.BY_REQUEST]
ASKING_BY_RESULT = [revision for revision in ALL if revision.asking is Asking.BY_RESULT]
ELICITING = [revision for revision in ALL if revision.elicitation.modes]
BOTH_ELICITING = pytest.mark.parametrize("revision", ELICITING, ids=lambda r: r.date)
BY_REQUEST = pytest.mark.parametrize("revision", ASKING_BY_REQUEST, ids=lambda r: r.date)
BY_RESULT = pytest.mark.parametrize("revision", ASKING_BY_RESULT, ids=lambda r: r.date)


def sample(words: str) -> Question:
    text = t.SamplingMessage(role="user", content=t.TextContent(text=words))
    return Question(t.CreateMessageRequestParams(messages=[text], max_tokens=9))


def elicit(words: str) -> Question:
    form = t.ElicitSchema(
        properties={"seat": t.PrimitiveSchema(type="string", max_length=3)}, required=["seat"]
    )
    return Question(t.ElicitRequestParams(message=words, requested_schema=form))


ROOTS = Question(t.ListRootsRequestParams())
SEAT = elicit("Which seat?")
BOOK = t.CallToolRequestParams(name="book", arguments=Raw(b'{"flight":"DY 620"}'))


def text_of(answer: AnyAnswer | Any) -> str:
    if isinstance(answer, t.CreateMessageResult):
        assert isinstance(answer.content, t.TextContent)
        return answer.content.text
    if isinstance(answer, t.ListRootsResult):
        return answer.roots[0].uri
    return str(accepted(answer)["seat"])


def reply(question: Question) -> AnyAnswer:
    """A client that repeats what it was asked, so that mixed-up answers would show."""
    params = question.params
    if isinstance(params, t.CreateMessageRequestParams):
        block = params.messages[0].content
        assert isinstance(block, t.TextContent)
        said_back = t.TextContent(text=f"<{block.text}>")
        return t.CreateMessageResult(role="assistant", content=said_back, model="m")
    if isinstance(params, t.ElicitRequestParams):
        return t.ElicitResult(action="accept", content={"seat": params.message[-2:]})
    return t.ListRootsResult(roots=[t.Root(uri="file:///home")])


def text(*words: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=" ".join(words))])


def texts(outcome: t.Noun | PorticoError) -> str:
    assert isinstance(outcome, t.CallToolResult), outcome
    (block,) = outcome.content
    assert isinstance(block, t.TextContent)
    return block.text


def two_at_once_then_one(exchange: Exchange) -> Asked:
    """Two questions in one round, one more that needs their answers: no word of how they travel."""
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
    talk = table(revision, two_at_once_then_one)
    assert texts(talk.call("tools/call", BOOK)) == "<colour> file:///home <now <colour>>"


def test_a_handler_runs_once_by_request_and_once_a_round_by_result(revision: Revision) -> None:
    talk = table(revision, two_at_once_then_one)
    talk.call("tools/call", BOOK)
    asked = [
        said["method"] for side, said in talk.lines if side is Side.SERVER and "method" in said
    ]
    demands = [
        said["result"]["inputRequests"]
        for side, said in talk.lines
        if side is Side.SERVER and said.get("result", {}).get("resultType") == "input_required"
    ]
    if revision.asking is Asking.BY_REQUEST:
        assert asked == ["sampling/createMessage", "roots/list", "sampling/createMessage"]
        assert (talk.runs, demands) == (1, [])
    else:
        assert [[q["method"] for q in round.values()] for round in demands] == [
            ["sampling/createMessage", "roots/list"],
            ["sampling/createMessage"],
        ]
        assert (talk.runs, asked) == (3, [])


@pytest.mark.spec("R0781", "R0836", "R0858")
def test_where_a_server_sends_no_requests_its_questions_go_by_result(revision: Revision) -> None:
    talk = table(revision, two_at_once_then_one)
    talk.call("tools/call", BOOK)
    from_server = [said for side, said in talk.lines if side is Side.SERVER]
    assert not any("method" in said and "id" in said for said in from_server)
    for question in (ROOTS, sample("colour"), SEAT):
        with pytest.raises(LocalProtocolError):
            talk.server.request(question.kind.method, question.params, now=0.0)


@pytest.mark.spec("R0737", "R0782", "R0760", "R0807", "R0979")
def test_each_round_is_a_request_of_its_own_with_all_that_a_request_must_say(
    revision: Revision,
) -> None:
    talk = table(revision, two_at_once_then_one)
    talk.call("tools/call", BOOK)
    rounds = [said for side, said in talk.lines if side is Side.CLIENT]
    assert len({said["id"] for said in rounds}) == len(rounds) == 3
    for said in rounds:
        meta = said["params"]["_meta"]
        assert meta[t.PROTOCOL_VERSION_KEY] == revision.date
        assert meta[t.CLIENT_CAPABILITIES_KEY]["sampling"] == {"tools": {}, "context": {}}
        assert said["params"]["arguments"] == {"flight": "DY 620"}


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
    revision: Revision, method: str, params: t.InputResponseRequestParams, last: t.Noun
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

    def counting(question: Question) -> AnyAnswer:
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
    interview = Interview(peer_of(ASKING_BY_REQUEST[-1]), CALL_TOOL)
    (first, _), (second, _) = interview.ask(sample("a")), interview.ask(sample("b"))
    shape = '{"role":"assistant","model":"m","content":{"type":"text","text":"%s"}}'
    assert text_of(interview.answered(second, Raw((shape % "B").encode()))) == "B"
    assert text_of(interview.answered(first, Raw((shape % "A").encode()))) == "A"
    assert not interview.pending
    with pytest.raises(LocalProtocolError, match="not an open question"):
        interview.answered(first, Raw(b"{}"))


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
    return text("seat", str(accepted(answer)["seat"]))


@pytest.mark.spec("R0938")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_who_says_no_gives_no_value(revision: Revision, action: t.ElicitAction) -> None:
    talk = table(revision, asking_and_reading, lambda q: t.ElicitResult(action=action))
    outcome = talk.call("tools/call", BOOK)
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

    talk = table(revision, handler, lambda q: RemoteError(-1, "rejected"))
    assert texts(talk.call("tools/call", BOOK)) == "no colour"


@BY_REQUEST
def test_a_client_that_fails_to_answer_is_reported_as_it_failed(revision: Revision) -> None:
    def handler(exchange: Exchange) -> Asked:
        try:
            yield [sample("colour")]
        except RemoteError as error:
            return text(error.message)
        raise AssertionError

    talk = table(revision, handler, lambda q: RemoteError(-32603, "no model"))
    assert texts(talk.call("tools/call", BOOK)) == "no model"


def unable(revision: Revision, row: Method = CALL_TOOL) -> Interview:
    return Interview(Peer(revision, t.ClientCapabilities()), row)


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
    revision: Revision, question: Question, needed: JSON
) -> None:
    server = served(revision)

    def handler(exchange: Exchange) -> Asked:
        yield [question]
        raise AssertionError

    client = client_of(revision, t.ClientCapabilities())
    meet(client, server)
    talk = Table(client, server, handler, reply)
    outcome = talk.call("tools/call", BOOK)
    assert isinstance(outcome, RemoteError)
    assert outcome.code == -32021
    assert outcome.data == {"requiredCapabilities": needed}
    assert not any("inputRequests" in json.dumps(said) for _, said in talk.lines)


@BY_REQUEST
def test_in_a_session_a_tool_says_in_words_what_it_could_not_ask(revision: Revision) -> None:
    for question in (SEAT, sample("a"), ROOTS):
        with pytest.raises(ToolError, match="pass the value as an argument"):
            unable(revision).ask(question)
        with pytest.raises(Fault, match="pass the value as an argument") as caught:
            unable(revision, GET_PROMPT).ask(question)
        assert caught.value.kind is FaultKind.INTERNAL


def test_a_handler_may_do_without_an_answer_that_it_cannot_have(revision: Revision) -> None:
    def handler(exchange: Exchange) -> Asked:
        try:
            yield [ROOTS]
        except (ToolError, Fault):
            return text("at home")
        raise AssertionError

    talk = table(revision, handler, can=t.ClientCapabilities())
    assert texts(talk.call("tools/call", BOOK)) == "at home"


# ---------------------------------------------------------------- what may ask at all


def peer_of(revision: Revision, can: t.ClientCapabilities = ABLE_CLIENT) -> Peer:
    return Peer(revision, can)


@pytest.mark.spec("R0785")
def test_only_calls_prompts_and_reads_may_ask(revision: Revision) -> None:
    for row in (CALL_TOOL, GET_PROMPT, READ_RESOURCE):
        key, _ = Interview(peer_of(revision), row).ask(ROOTS)
        assert key
    for row in (LIST_TOOLS, COMPLETE, DISCOVER):
        with pytest.raises(LocalProtocolError, match="may not ask"):
            Interview(peer_of(revision), row).ask(ROOTS)


def test_only_a_client_can_be_asked() -> None:
    for revision in ALL:
        interview = Interview(Peer(revision, t.ServerCapabilities()), CALL_TOOL)
        with pytest.raises(LocalProtocolError, match="only a client answers"):
            interview.ask(ROOTS)


def test_a_question_that_breaks_the_rules_is_a_bug_of_the_handler(revision: Revision) -> None:
    uses = t.ToolUseContent(id="1", name="n", input={})
    params = t.CreateMessageRequestParams(
        messages=[t.SamplingMessage(role="assistant", content=uses)], max_tokens=1
    )
    interview = Interview(peer_of(revision), CALL_TOOL)
    with pytest.raises(LocalProtocolError, match="append their results"):
        interview.ask(Question(params))
    assert not interview.pending


def test_a_round_has_a_bound() -> None:
    interview = Interview(peer_of(ALL[0]), CALL_TOOL)
    for _ in range(MAX_QUESTIONS):
        interview.ask(ROOTS)
    with pytest.raises(LocalProtocolError, match="in one round"):
        interview.ask(ROOTS)


@pytest.mark.spec("R0788")
def test_keys_are_unique_among_the_questions_of_a_request(revision: Revision) -> None:
    interview = Interview(peer_of(revision), CALL_TOOL)
    questions = [ROOTS, ROOTS, SEAT, elicit("Which seat? "), sample("a"), sample("b"), sample("a")]
    keys = [interview.ask(question)[0] for question in questions]
    assert len(set(keys)) == len(keys) == len(interview.pending)


# ---------------------------------------------------------------- what a stranger sends back


class Server:
    """A server of ours and a stranger's lines; the handler asks two questions in one round."""

    def __init__(self, revision: Revision, principal: str = "ada") -> None:
        self.revision = revision
        self.seal = Seal()
        self.now = 0.0
        self.principal = principal
        self.ran = 0

    def post(self, params: JSON, method: str = "tools/call", can: JSON | None = None) -> JSON:
        """One request to a server that has never heard of any other, and its answer."""
        can = can if can is not None else {"roots": {}, "elicitation": {}}
        server = server_of(self.revision)
        server.principal = self.principal
        exchange = call(server, request(self.revision, 1, method, params, can))
        try:
            return said(self._handle(exchange))
        except Fault as fault:
            return said(exchange.fail(fault))

    def _handle(self, exchange: Exchange) -> bytes | None:
        params = exchange.request.params
        given = msgspec.json.decode(params, type=t.InputResponseRequestParams)
        subject = subject_of(params)
        memory = None
        if given.request_state is not None:
            memory = recall(
                given.request_state,
                self.seal.open,
                principal=exchange.principal,
                method=exchange.row.name,
                subject=subject,
                now=self.now,
            )
        interview = Interview(exchange.peer, exchange.row, memory, given.input_responses)
        self.ran += 1
        answers = [interview.ask(question)[1] for question in (SEAT, ROOTS)]
        if interview.pending:
            return exchange.settle(
                interview.result(
                    self.seal.seal,
                    principal=exchange.principal,
                    subject=subject,
                    expires_at=self.now + STATE_LIVES_S,
                )
            )
        return exchange.settle(text(*map(text_of, answers), f"unused {len(interview.unused)}"))


CALL: JSON = {"name": "book", "arguments": {"flight": "DY 620", "extras": [1, 2.5, None]}}
GOOD_SEAT = {"action": "accept", "content": {"seat": "12A"}}
GOOD_ROOTS = {"roots": [{"uri": "file:///home"}]}


def first_round(server: Server) -> tuple[str, str, str]:
    """The state and the keys of both questions."""
    result = server.post(CALL)["result"]
    assert result["resultType"] == "input_required"
    seat, roots = result["inputRequests"]
    return result["requestState"], seat, roots


def again(state: str, answers: JSON, call: JSON = CALL) -> JSON:
    return call | {"requestState": state, "inputResponses": answers}


@pytest.mark.spec("R0800")
def test_any_replica_goes_on_from_what_the_retry_says_and_none_waits_for_it(
    revision: Revision,
) -> None:
    server = Server(revision)  # each post is met by a link that is new
    state, seat, roots = first_round(server)
    result = server.post(again(state, {roots: GOOD_ROOTS, seat: GOOD_SEAT}))["result"]
    assert result["content"][0]["text"] == "12A file:///home unused 0"
    first_round(server)  # and whoever never came back has left nothing behind
    link = server_of(revision)
    exchange = call(link, request(revision, 1, "tools/call", CALL, {"roots": {}}))
    interview = Interview(exchange.peer, exchange.row)
    interview.ask(ROOTS)
    exchange.settle(interview.result(str, principal="", subject="s", expires_at=1.0))
    assert len(link._incoming) == len(link._flight) == 0


@pytest.mark.spec("R0812")
def test_missing_answers_are_asked_for_again_and_only_they(revision: Revision) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    for given in ({}, {seat: GOOD_SEAT}):
        result = server.post(again(state, given))["result"]
        assert result["resultType"] == "input_required"
        assert result["inputRequests"].keys() == {seat, roots} - given.keys()
        state = result["requestState"]
    result = server.post(again(state, {roots: GOOD_ROOTS}))["result"]
    assert result["content"][0]["text"] == "12A file:///home unused 0"


@pytest.mark.spec("R0811")
def test_answers_that_nobody_asked_for_are_ignored(revision: Revision) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    extra = {"made-up": {"action": "accept"}, f"{seat[:-1]}2": GOOD_SEAT, "": None, "x": 7}
    result = server.post(again(state, extra | {seat: GOOD_SEAT, roots: GOOD_ROOTS}))["result"]
    assert result["content"][0]["text"] == "12A file:///home unused 0"
    without_state = CALL | {"inputResponses": {seat: GOOD_SEAT, roots: GOOD_ROOTS}}
    assert server.post(without_state)["result"]["resultType"] == "input_required"


@pytest.mark.spec("R0641", "R0809", "R0810")
@pytest.mark.parametrize(
    "bad",
    [
        {"action": "accept", "content": {"seat": "far too long"}},
        {"action": "accept", "content": {"seat": 12}},
        {"action": "accept", "content": {}},
        {"action": "accept"},
        {"action": "accept", "content": {"seat": "12A", "row": 12}},
        {"action": "perhaps", "content": {"seat": "12A"}},
        {"action": "accept", "content": [1]},
        {"content": {"seat": "12A"}},
        {"roots": []},
        {},
        [],
        None,
        7,
        "12A",
    ],
    ids=json.dumps,
)
def test_a_wrong_answer_is_an_error_and_never_reaches_the_handler(
    revision: Revision, bad: Any
) -> None:
    if revision.asking is Asking.BY_REQUEST:
        link = served(revision, can={"elicitation": {}})
        exchange = call(link, request(revision, 1, "tools/call", CALL))
        interview = Interview(exchange.peer, exchange.row)
        key, _ = interview.ask(SEAT)
        with pytest.raises(Fault) as caught:
            interview.answered(key, Raw(json.dumps(bad).encode()))
        assert caught.value.kind is FaultKind.INVALID_PARAMS
        return
    server = Server(revision)
    state, seat, roots = first_round(server)
    error = server.post(again(state, {seat: bad, roots: GOOD_ROOTS}))["error"]
    assert error["code"] == -32602


@pytest.mark.spec("R0809", "R0810")
@pytest.mark.parametrize("bad", [[], "answers", 7, {"k": 1, "requestState": 7}], ids=json.dumps)
def test_answers_that_are_no_object_are_an_error(revision: Revision, bad: Any) -> None:
    server = Server(revision)
    state, _, _ = first_round(server)
    params = again(state, bad) if not isinstance(bad, dict) else CALL | bad
    link = server_of(revision)
    exchange = call(link, request(revision, 1, "tools/call", params))
    with pytest.raises(Fault) as caught:
        from portico.protocol.reading import read

        read(t.CallToolRequestParams, exchange.request.params)
    assert caught.value.kind is FaultKind.INVALID_PARAMS


# ---------------------------------------------------------------- requestState


def refused(answer: JSON, words: str) -> None:
    assert answer["error"]["code"] == -32602
    assert words in answer["error"]["message"]


@pytest.mark.spec("R0791", "R0795", "R0808")
def test_a_state_is_refused_unless_it_is_ours_for_this_caller_request_and_time(
    revision: Revision,
) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    answers = {seat: GOOD_SEAT, roots: GOOD_ROOTS}
    ran = server.ran

    refused(server.post(again("sealed-9", answers)), "not sealed here")
    refused(server.post(again("", answers)), "not sealed here")
    server.principal = "eve"
    refused(server.post(again(state, answers)), "another request")
    server.principal = "ada"
    other = {"name": "book", "arguments": {"flight": "DY 621", "extras": [1, 2.5, None]}}
    refused(server.post(again(state, answers, other)), "another request")
    refused(server.post(again(state, answers, CALL | {"name": "cancel"})), "another request")
    prompt = {"name": "book", "arguments": {"flight": "DY 620"}}
    refused(server.post(again(state, answers, prompt), "prompts/get"), "another request")
    server.now = STATE_LIVES_S
    refused(server.post(again(state, answers)), "expired")
    assert server.ran == ran  # no handler saw any of them

    server.now = STATE_LIVES_S - 0.1
    assert "content" in server.post(again(state, answers))["result"]


@pytest.mark.spec("R0791")
@pytest.mark.parametrize(
    "memory",
    [b"", b"{}", b"[]", b"\xff", b'{"principal":"ada"}', b'{"round":"many"}', b"null"],
)
def test_a_state_that_opens_to_rubbish_is_refused(memory: bytes) -> None:
    with pytest.raises(Fault) as caught:
        recall("s", lambda _: memory, principal="ada", method="tools/call", subject="x", now=0.0)
    assert caught.value.kind is FaultKind.INVALID_PARAMS


@pytest.mark.spec("R0795")
def test_the_state_holds_caller_method_arguments_expiry_and_the_answers_so_far(
    revision: Revision,
) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    server.post(again(state, {seat: GOOD_SEAT}))
    memory = msgspec.json.decode(server.seal.open("sealed-1"), type=Memory)
    assert (memory.principal, memory.method) == ("ada", "tools/call")
    assert memory.subject == subject_of(Raw(json.dumps(CALL).encode()))
    assert (memory.expires_at, memory.round) == (STATE_LIVES_S, 2)
    assert memory.asked == (roots,)
    assert {key: json.loads(raw) for key, raw in memory.answers.items()} == {seat: GOOD_SEAT}


def test_the_subject_is_what_was_asked_for_and_not_how_it_was_written() -> None:
    plain = subject_of(Raw(b'{"name":"n","arguments":{"a":1,"b":[2]}}'))
    same = [
        b'{"arguments":{"b":[2],"a":1},"name":"n"}',
        b'{"name":"n","arguments":{"a":1,"b":[ 2 ]},"_meta":{"progressToken":7}}',
        b'{"name":"n","arguments":{"a":1,"b":[2]},"requestState":"s","inputResponses":{"k":{}}}',
        b'{"name":"n","arguments":{"a":1,"b":[2]},"task":{"ttl":1}}',
        b'{"n\\u0061me":"n","arguments":{"a":1,"b":[2]}}',
    ]
    assert [subject_of(Raw(params)) for params in same] == [plain] * len(same)
    others = [
        b'{"name":"m","arguments":{"a":1,"b":[2]}}',
        b'{"name":"n","arguments":{"a":2,"b":[2]}}',
        b'{"name":"n","arguments":{"a":1,"b":[2],"c":null}}',
        b'{"name":"n"}',
        b"",
    ]
    assert len({subject_of(Raw(params)) for params in others} | {plain}) == len(others) + 1
    for params in (b'{"name":"n","name":"m"}', b"[]", b'{"a":1' + b"0" * 5000 + b"}"):
        with pytest.raises(Fault):
            subject_of(Raw(params))


@BY_RESULT
def test_an_earlier_answer_is_not_changed_by_a_later_round(revision: Revision) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    state = server.post(again(state, {seat: GOOD_SEAT}))["result"]["requestState"]
    late = {"action": "accept", "content": {"seat": "1A"}}
    result = server.post(again(state, {seat: late, roots: GOOD_ROOTS}))["result"]
    assert result["content"][0]["text"] == "12A file:///home unused 0"


@BY_RESULT
def test_an_answer_that_is_there_counts_though_the_capability_is_not_declared_again(
    revision: Revision,
) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    answers = {seat: GOOD_SEAT, roots: GOOD_ROOTS}
    assert "content" in server.post(again(state, answers), can={})["result"]


@BY_RESULT
def test_a_question_that_changes_from_run_to_run_ends_after_some_rounds(revision: Revision) -> None:
    runs = iter(range(100))

    def handler(exchange: Exchange) -> Asked:
        yield [sample(f"the time is {next(runs)}")]
        raise AssertionError

    talk = table(revision, handler)
    outcome = talk.call("tools/call", BOOK)
    assert isinstance(outcome, RemoteError)
    assert (outcome.code, talk.runs) == (-32603, MAX_ROUNDS + 1)
    assert "must not change" in outcome.message


@BY_RESULT
def test_an_answer_never_reaches_a_question_with_other_words(revision: Revision) -> None:
    words = iter(["delete a?", "delete b?", "delete b?"])

    def handler(exchange: Exchange) -> Asked:
        (answer,) = yield [sample(next(words))]
        return text(text_of(answer))

    talk = table(revision, handler)
    assert texts(talk.call("tools/call", BOOK)) == "<delete b?>"
    assert len(talk.unused) == 1


def test_a_side_effect_is_kept_for_the_next_round(revision: Revision) -> None:
    first = Interview(peer_of(revision), CALL_TOOL)
    assert first.kept("order") is None
    first.keep("order", b'{"number":7}')
    assert first.kept("order") == Raw(b'{"number":7}')
    if revision.asking is Asking.BY_RESULT:
        first.ask(ROOTS)
        seal = Seal()
        result = first.result(seal.seal, principal="p", subject="s", expires_at=9.0)
        assert result.request_state is not None
        memory = recall(
            result.request_state,
            seal.open,
            principal="p",
            method="tools/call",
            subject="s",
            now=0.0,
        )
        assert Interview(peer_of(revision), CALL_TOOL, memory).kept("order") == Raw(b'{"number":7}')


@BY_REQUEST
def test_a_round_does_not_end_by_result_where_questions_go_by_request(revision: Revision) -> None:
    interview = Interview(peer_of(revision), CALL_TOOL)
    interview.ask(ROOTS)
    with pytest.raises(LocalProtocolError, match="one by one"):
        interview.result(str, principal="p", subject="s", expires_at=9.0)


@BY_RESULT
def test_a_round_without_questions_has_no_end_by_result(revision: Revision) -> None:
    interview = Interview(peer_of(revision), CALL_TOOL)
    with pytest.raises(LocalProtocolError, match="nothing to ask"):
        interview.result(str, principal="p", subject="s", expires_at=9.0)


def test_a_consent_to_a_visit_comes_back_on_replay_and_says_nothing_of_its_end() -> None:
    """D25: what is recorded is that the user agreed, so whether they are done is asked elsewhere."""
    visit = Question(
        t.ElicitRequestParams(
            message="log in", mode="url", url="https://example.com/in", elicitation_id="e1"
        )
    )
    for revision in (r for r in ALL if "url" in r.elicitation.modes):
        asked: list[AnyAnswer] = []

        def handler(exchange: Exchange, asked: list[AnyAnswer] = asked) -> Asked:
            (consent,) = yield [visit]
            asked.append(consent)
            return text("consented")

        talk = table(revision, handler, lambda q: t.ElicitResult(action="accept"))
        assert texts(talk.call("tools/call", BOOK)) == "consented"
        assert asked == [t.ElicitResult(action="accept")]


def test_nothing_of_a_round_is_answered_twice() -> None:
    """The frames of a call by result: one demand and one result, each for its own id."""
    (revision,) = ASKING_BY_RESULT
    client, server = opened(revision)
    exchange = call(server, client.request("tools/call", BOOK, now=0.0)[1])
    interview = Interview(exchange.peer, exchange.row)
    interview.ask(ROOTS)
    demand = exchange.settle(interview.result(str, principal="", subject="s", expires_at=1.0))
    assert demand is not None
    assert exchange.settle(text("late")) is None
    assert heard(client.receive(demand, 0.0)) == []
    assert sends(client.receive(demand, 0.0)) == []
