"""What comes back with a retry: every answer and every state is a stranger's until it is checked."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.input_rounds import (
    InputRounds,
    RequestState,
    invalid_request_state,
    open_request_state,
    subject_of,
)
from colonnade.protocol.revision import ALL, InputRequests, Revision
from protocol.input_requests import ROOTS, SEAT, STATE_LIVES_S, Seal, text, text_of
from protocol.links import JSON, call, decoded, request, served, server_of

BY_RESULT = pytest.mark.parametrize(
    "revision",
    [revision for revision in ALL if revision.input_requests is InputRequests.IN_RESULT],
    ids=lambda revision: revision.date,
)


# ---------------------------------------------------------------- what a stranger sends back


class Server:
    """A server of ours and a stranger's lines; the handler asks two input requests in one round."""

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
            return decoded(self._handle(exchange))
        except Fault as fault:
            return decoded(exchange.fail(fault))

    def _handle(self, exchange: Exchange) -> bytes | None:
        params = exchange.request.params
        given = msgspec.json.decode(params, type=t.InputResponseRequestParams)
        subject = subject_of(params)
        memory = None
        if given.request_state is not None:
            memory = open_request_state(
                given.request_state,
                self.seal.open,
                principal=exchange.principal,
                method=exchange.method.name,
                subject=subject,
                now=self.now,
            )
        interview = InputRounds(exchange.peer, exchange.method, memory, given.input_responses)
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


# Whatever is wrong with a state: who tries one out must not learn what.
ONE_REFUSAL = str(invalid_request_state())

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
    """RQ-10: who never comes back costs nothing."""
    server = Server(revision)  # each post is met by a link that is new
    state, seat, roots = first_round(server)
    result = server.post(again(state, {roots: GOOD_ROOTS, seat: GOOD_SEAT}))["result"]
    assert result["content"][0]["text"] == "12A file:///home unused 0"
    first_round(server)  # and whoever never came back has left nothing behind
    link = server_of(revision)
    exchange = call(link, request(revision, 1, "tools/call", CALL, {"roots": {}}))
    interview = InputRounds(exchange.peer, exchange.method)
    interview.ask(ROOTS)
    exchange.settle(interview.result(str, principal="", subject="s", expires_at=1.0))
    assert len(link._incoming) == len(link._outgoing) == 0


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
    """RQ-10."""
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
    """RQ-10: held against the form that was asked with."""
    if revision.input_requests is InputRequests.AS_REQUEST:
        link = served(revision, can={"elicitation": {}})
        exchange = call(link, request(revision, 1, "tools/call", CALL))
        interview = InputRounds(exchange.peer, exchange.method)
        key, _ = interview.ask(SEAT)
        with pytest.raises(Fault) as caught:
            interview.receive_response(key, Raw(json.dumps(bad).encode()))
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
        decode_as(t.CallToolRequestParams, exchange.request.params)
    assert caught.value.kind is FaultKind.INVALID_PARAMS


@BY_RESULT
def test_only_what_this_request_declares_is_asked(revision: Revision) -> None:
    """RQ-02: what another request of the same client declared, a moment before, does not count."""
    link = server_of(revision)
    for number, can in enumerate([{"elicitation": {}, "roots": {}}, {"roots": {}}, {}]):
        exchange = call(link, request(revision, number, "tools/call", CALL, can))
        interview = InputRounds(exchange.peer, exchange.method)
        for question, name in ((SEAT, "elicitation"), (ROOTS, "roots")):
            if name in can:
                assert interview.ask(question)[1] is None
                continue
            with pytest.raises(Fault) as caught:
                interview.ask(question)
            assert caught.value.kind is FaultKind.CAPABILITY_MISSING


# ---------------------------------------------------------------- requestState


def refused(answer: JSON, words: str) -> None:
    assert answer["error"]["code"] == -32602
    assert words in answer["error"]["message"]


@pytest.mark.spec("R0791", "R0795", "R0808")
def test_a_state_is_refused_unless_it_is_ours_for_this_caller_request_and_time(
    revision: Revision,
) -> None:
    """RQ-04."""
    server = Server(revision)
    state, seat, roots = first_round(server)
    answers = {seat: GOOD_SEAT, roots: GOOD_ROOTS}
    ran = server.ran

    refused(server.post(again("sealed-9", answers)), ONE_REFUSAL)
    refused(server.post(again("", answers)), ONE_REFUSAL)
    server.principal = "eve"
    refused(server.post(again(state, answers)), ONE_REFUSAL)
    server.principal = "ada"
    other = {"name": "book", "arguments": {"flight": "DY 621", "extras": [1, 2.5, None]}}
    refused(server.post(again(state, answers, other)), ONE_REFUSAL)
    refused(server.post(again(state, answers, CALL | {"name": "cancel"})), ONE_REFUSAL)
    refused(server.post(again(state, answers), "prompts/get"), ONE_REFUSAL)
    server.now = STATE_LIVES_S
    refused(server.post(again(state, answers)), ONE_REFUSAL)
    assert server.ran == ran  # no handler saw any of them

    server.now = STATE_LIVES_S - 0.1
    assert "content" in server.post(again(state, answers))["result"]


@pytest.mark.spec("R0791")
@pytest.mark.parametrize(
    "memory",
    [b"", b"{}", b"[]", b"\xff", b'{"principal":"ada"}', b'{"round":"many"}', b"null"],
)
def test_a_state_that_opens_to_rubbish_is_refused(memory: bytes) -> None:
    """RQ-07."""
    with pytest.raises(Fault) as caught:
        open_request_state(
            "s", lambda _: memory, principal="ada", method="tools/call", subject="x", now=0.0
        )
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert caught.value.message == ONE_REFUSAL


@pytest.mark.spec("R0795")
def test_the_state_holds_caller_method_arguments_expiry_and_the_answers_so_far(
    revision: Revision,
) -> None:
    server = Server(revision)
    state, seat, roots = first_round(server)
    server.post(again(state, {seat: GOOD_SEAT}))
    memory = msgspec.json.decode(server.seal.open("sealed-1"), type=RequestState)
    assert (memory.principal, memory.method) == ("ada", "tools/call")
    assert memory.subject == subject_of(Raw(json.dumps(CALL).encode()))
    assert (memory.expires_at, memory.round) == (STATE_LIVES_S, 2)
    assert memory.asked == (roots,)
    assert {key: json.loads(bytes(raw)) for key, raw in memory.answers.items()} == {seat: GOOD_SEAT}


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


@pytest.mark.spec("R0811")
def test_an_answer_under_a_given_name_counts_where_a_client_lost_the_state(
    revision: Revision,
) -> None:
    """Only a name that the author gave says what was asked; a digest is ours alone."""

    def interview(can: JSON) -> InputRounds:
        link = server_of(revision)
        exchange = call(link, request(revision, 1, "tools/call", CALL, can))
        given = {"seat": Raw(json.dumps(GOOD_SEAT).encode()), "other": Raw(b"7")}
        return InputRounds(exchange.peer, exchange.method, None, given)

    able = interview({"elicitation": {}, "roots": {}})
    key, answer = able.ask(SEAT, "seat")
    assert (key, text_of(answer)) == ("seat", "12A")
    assert able.ask(SEAT, "seat")[1] is None  # the next of that name is another question
    assert able.ask(SEAT)[1] is None
    with pytest.raises(Fault) as caught:
        able.ask(ROOTS, "other")
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    with pytest.raises(Fault) as caught:
        interview({}).ask(SEAT, "seat")
    assert caught.value.kind is FaultKind.CAPABILITY_MISSING
