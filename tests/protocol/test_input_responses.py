"""Which answers fit their questions, and how questions go by error and by result."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Declined, Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import (
    MAX_INPUT_REQUESTS,
    AnyInputResponse,
    InputRequest,
    accepted_content,
    check_outgoing_response,
    check_response,
    checked_input_requests,
    decode_url_elicitations,
    elicitation_complete,
    retry_params,
    url_elicitation_required,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, InputRequests, Revision, error_code
from protocol.input_requests import BOOK, ROOTS, SEAT, sample, url_elicitation
from protocol.links import (
    ABLE_CLIENT,
    call,
    client_of,
    decoded,
    line,
    opened,
)

BY_ERROR = [revision for revision in ALL if revision.elicitation.url_required_error]


def client_can(**capabilities: Any) -> t.ClientCapabilities:
    return t.ClientCapabilities(**capabilities)


# ---------------------------------------------------------------- answers


@pytest.mark.spec("R0089")
def test_roots_are_files_whoever_says_them(revision: Revision) -> None:
    def roots(uri: str) -> t.ListRootsResult:
        return t.ListRootsResult(roots=[t.Root(uri="file:///ok"), t.Root(uri=uri)])

    for good in ("file:///home/ada", "FILE:///C:/x", "file://host/share"):
        check_response(ROOTS, roots(good))
        assert ROOTS.decode_response(encode(roots(good)), revision) == roots(good)
    for bad in ("https://example.com/", "/home/ada", "", "file:", "xfile:///a"):
        with pytest.raises(Fault, match="file://"):
            ROOTS.decode_response(encode(roots(bad)), revision)
        with pytest.raises(LocalProtocolError, match="file://"):
            check_outgoing_response(ROOTS, roots(bad))
    if revision.handshake:
        client, server = opened(revision)
        asked = server.request("roots/list", now=0.0)[1]
        exchange = call(client, asked)
        with pytest.raises(LocalProtocolError, match="file://"):
            exchange.settle(roots("https://example.com/"))
        assert not exchange.settled
        assert decoded(exchange.settle(roots("file:///a")))["result"]["roots"]
    else:
        shaper = client_of(revision).encoder(revision)
        asked = demand(input_requests={"a": ROOTS.as_input()})
        with pytest.raises(LocalProtocolError, match="file://"):
            retry_params(BOOK, asked, {"a": roots("https://example.com/")}, shaper)
        assert retry_params(BOOK, asked, {"a": roots("file:///a")}, shaper).input_responses


@pytest.mark.spec("R0366", "R0640")
def test_an_answer_that_does_not_fit_the_form_is_not_sent(revision: Revision) -> None:
    bad = t.ElicitResult(action="accept", content={"seat": "far too long"})
    good = t.ElicitResult(action="accept", content={"seat": "12A"})
    client, server = opened(revision)
    if revision.input_requests is InputRequests.AS_REQUEST:
        asked = server.request("elicitation/create", SEAT.params, now=0.0)[1]
        exchange = call(client, asked)
        with pytest.raises(LocalProtocolError, match="does not fit the form"):
            exchange.settle(bad)
        assert decoded(exchange.settle(good))["result"]["content"] == {"seat": "12A"}
    else:
        demand = t.InputRequiredResult(input_requests={"k": SEAT.as_input()})
        shaper = client.encoder(revision)
        with pytest.raises(LocalProtocolError, match="does not fit the form"):
            retry_params(BOOK, demand, {"k": bad}, shaper)
        again = retry_params(BOOK, demand, {"k": good}, shaper)
        assert json.loads(bytes((again.input_responses or {})["k"]))["content"] == {"seat": "12A"}


@pytest.mark.spec("R0366", "R0641")
def test_an_answer_that_does_not_fit_the_form_is_not_read(revision: Revision) -> None:
    good = b'{"action":"accept","content":{"seat":"12A"}}'
    assert SEAT.decode_response(good, revision) == t.ElicitResult(
        action="accept", content={"seat": "12A"}
    )
    for bad in (
        b'{"action":"accept","content":{"seat":"far too long"}}',
        b'{"action":"accept"}',
        b'{"action":"accept","content":{"seat":"12A","seat":"1A"}}',
        b'{"action":"accept","content":{"seat":"12A"},"action":"decline"}',
    ):
        with pytest.raises(Fault) as caught:
            SEAT.decode_response(bad, revision)
        assert caught.value.kind is FaultKind.INVALID_PARAMS


def test_an_answer_of_another_kind_is_refused() -> None:
    pairs: list[tuple[InputRequest, AnyInputResponse]] = [
        (SEAT, t.ListRootsResult(roots=[])),
        (ROOTS, t.ElicitResult(action="accept")),
        (sample("a"), t.ElicitResult(action="accept")),
    ]
    for question, answer in pairs:
        with pytest.raises(Fault, match="is answered with"):
            check_response(question, answer)


def test_a_consent_has_no_content(revision: Revision) -> None:
    smuggled = t.ElicitResult(action="accept", content={"password": "x"})
    with pytest.raises(LocalProtocolError, match="no content"):
        check_outgoing_response(url_elicitation(), smuggled)
    formal = InputRequest(
        replace(url_elicitation().params, requested_schema=t.ElicitSchema(properties={}))
    )
    for question in (url_elicitation(), formal):
        read_back = question.decode_response(encode(smuggled), revision)
        assert read_back == t.ElicitResult(action="accept")


def test_a_no_is_read_as_a_no(revision: Revision) -> None:
    for action in ("decline", "cancel"):
        answer = SEAT.decode_response(b'{"action":"%b"}' % action.encode(), revision)
        assert isinstance(answer, t.ElicitResult)
        assert (answer.action, answer.content) == (action, None)
        with pytest.raises(Declined) as raised:
            accepted_content(answer)
        assert raised.value.action == action
    assert accepted_content(t.ElicitResult(action="accept", content={"a": 1})) == {"a": 1}
    assert accepted_content(t.ElicitResult(action="accept")) == {}


def test_several_choices_come_back_as_a_list_where_they_were_asked_in_words(
    revision: Revision,
) -> None:
    items = t.EnumItems(type="string", enum=["a", "b", "c"])
    field = t.PrimitiveSchema(type="array", items=items, min_items=1)
    form = t.ElicitSchema(properties={"pick": field}, required=["pick"])
    question = InputRequest(t.ElicitRequestParams(message="m", requested_schema=form))
    typed = b'{"action":"accept","content":{"pick":"a, c"}}'
    picked = b'{"action":"accept","content":{"pick":["a","c"]}}'
    chosen = t.ElicitResult(action="accept", content={"pick": ["a", "c"]})
    assert question.decode_response(picked, revision) == chosen
    if revision.elicitation.multi_select:
        with pytest.raises(Fault, match="list of choices"):
            question.decode_response(typed, revision)
    else:
        assert question.decode_response(typed, revision) == chosen


# ---------------------------------------------------------------- asked by error


@pytest.mark.spec("R0609", "R0610", "R0611")
def test_an_error_asks_for_url_elicitations_with_their_ids_and_for_nothing_else(
    revision: Revision,
) -> None:
    peer = Peer(revision, ABLE_CLIENT)
    fault = url_elicitation_required(
        [url_elicitation(), url_elicitation("https://example.com/2", "e2")], peer
    )
    assert error_code(fault, revision) == -32042
    _, server = opened(revision)
    exchange = call(server, line(id=1, method="tools/call", params={"name": "n"}))
    error = decoded(exchange.fail(fault))["error"]
    assert error["code"] == -32042
    assert error["data"] == {
        "elicitations": [
            {
                "mode": "url",
                "message": "log in",
                "url": "https://example.com/in",
                "elicitationId": "e1",
            },
            {
                "mode": "url",
                "message": "log in",
                "url": "https://example.com/2",
                "elicitationId": "e2",
            },
        ]
    }
    for wrong in (
        [],
        [SEAT],
        [url_elicitation(), SEAT],
        [sample("a")],
        [url_elicitation(id=None)],
        [url_elicitation("nowhere")],
    ):
        with pytest.raises(LocalProtocolError):
            url_elicitation_required(wrong, peer)
    with pytest.raises(LocalProtocolError, match="has not declared"):
        url_elicitation_required([url_elicitation()], Peer(revision, client_can()))

    data = Raw(json.dumps(error["data"]).encode())
    questions = decode_url_elicitations(data, ABLE_CLIENT, peer)
    assert [question.digest() for question in questions] == [
        url_elicitation().digest(),
        url_elicitation("https://example.com/2").digest(),
    ]
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    anonymous = {"mode": "url", "message": "m", "url": "https://example.com/"}
    for wrong in (
        {},
        {"elicitations": []},
        {"elicitations": [form]},
        {"elicitations": [anonymous]},
    ):
        with pytest.raises(Fault):
            decode_url_elicitations(Raw(json.dumps(wrong).encode()), ABLE_CLIENT, peer)
    named = [anonymous | {"elicitationId": str(nth)} for nth in range(MAX_INPUT_REQUESTS + 1)]
    assert (
        len(
            decode_url_elicitations(
                Raw(json.dumps({"elicitations": named[1:]}).encode()), ABLE_CLIENT, peer
            )
        )
        == MAX_INPUT_REQUESTS
    )
    with pytest.raises(Fault, match=f"{MAX_INPUT_REQUESTS + 1} input requests at once"):
        decode_url_elicitations(
            Raw(json.dumps({"elicitations": named}).encode()), ABLE_CLIENT, peer
        )


@pytest.mark.spec("R0749")
def test_a_revision_without_that_error_never_sees_it(revision: Revision) -> None:
    with pytest.raises(LocalProtocolError, match="no URL elicitation error"):
        url_elicitation_required([url_elicitation()], Peer(revision, ABLE_CLIENT))
    fault = Fault(FaultKind.URL_ELICITATION_REQUIRED, "visit", {"elicitations": []})
    assert error_code(fault, revision) != -32042


@pytest.mark.spec("R0604")
def test_a_notice_of_completion_carries_the_id_of_its_question(revision: Revision) -> None:
    _, server = opened(revision)
    notice = server.notify(
        "notifications/elicitation/complete", elicitation_complete(url_elicitation(id="e7"))
    )
    assert decoded(notice)["params"] == {"elicitationId": "e7"}
    formal = InputRequest(replace(SEAT.params, elicitation_id="e1"))
    for wrong in (SEAT, ROOTS, url_elicitation(id=None), formal):
        with pytest.raises(LocalProtocolError, match="has an id"):
            elicitation_complete(wrong)
    with pytest.raises(Fault):
        decode_as(t.ElicitationCompleteNotificationParams, Raw(b"{}"))


# ---------------------------------------------------------------- asked by result


def demand(**more: Any) -> t.InputRequiredResult:
    return t.InputRequiredResult(result_type="input_required", **more)


@pytest.mark.spec("R0783", "R0804", "R0805", "R0806")
@pytest.mark.parametrize(
    "given", ["", " ", "{}", '{"round":1}', "ÄÖ 🙂", "a" * 10_000, "\\u0041", "null", '"']
)
def test_a_state_comes_back_exactly_as_it_was_given_and_only_if_it_was(
    revision: Revision, given: str
) -> None:
    """RQ-09: it is never read, so that it may be anything."""
    client, _ = opened(revision)
    shaper = client.encoder(revision)
    raw = Raw(json.dumps({"resultType": "input_required", "requestState": given}).encode())
    result = decode_as(t.InputRequiredResult, raw)
    again = retry_params(BOOK, result, {}, shaper)
    sent = decoded(client.request("tools/call", again, now=0.0)[1])["params"]
    assert sent["requestState"] == given
    assert "inputResponses" not in sent
    later = retry_params(again, demand(input_requests={}), {}, shaper)
    assert "requestState" not in decoded(client.request("tools/call", later, now=0.0)[1])["params"]


@pytest.mark.spec("R0802")
def test_a_request_is_not_sent_again_before_every_question_is_answered(revision: Revision) -> None:
    shaper = client_of(revision).encoder(revision)
    asked = demand(input_requests={"a": ROOTS.as_input(), "b": SEAT.as_input()})
    home = t.ListRootsResult(roots=[])
    seat = t.ElicitResult(action="decline")
    for wrong in ({}, {"a": home}, {"b": seat}, {"a": home, "b": seat, "c": home}):
        with pytest.raises(LocalProtocolError, match="respond to each input request"):
            retry_params(BOOK, asked, wrong, shaper)
    again = retry_params(BOOK, asked, {"a": home, "b": seat}, shaper)
    assert {key: json.loads(bytes(raw)) for key, raw in (again.input_responses or {}).items()} == {
        "a": {"roots": []},
        "b": {"action": "decline"},
    }


@pytest.mark.spec("R0808")
def test_answers_and_state_are_in_the_retry_and_in_no_other_request(revision: Revision) -> None:
    """RQ-09: what goes on beside it carries none."""
    client, _ = opened(revision)
    result = demand(input_requests={"a": ROOTS.as_input()}, request_state="s")
    again = retry_params(BOOK, result, {"a": t.ListRootsResult(roots=[])}, client.encoder(revision))
    lines = [
        client.request(method, params, now=0.0)[1]
        for method, params in (("tools/call", again), ("tools/call", BOOK), ("tools/list", None))
    ]
    assert ["requestState" in decoded(data)["params"] for data in lines] == [True, False, False]
    assert ["inputResponses" in decoded(data)["params"] for data in lines] == [True, False, False]


def test_a_client_checks_a_demand_like_any_question() -> None:
    revision = [r for r in ALL if r.input_requests is InputRequests.IN_RESULT][-1]
    good = demand(input_requests={"a": ROOTS.as_input(), "b": SEAT.as_input()})
    assert checked_input_requests(good, ABLE_CLIENT, revision).keys() == {"a", "b"}
    assert checked_input_requests(demand(request_state="s"), ABLE_CLIENT, revision) == {}
    with pytest.raises(Fault, match="did not declare"):
        checked_input_requests(good, client_can(roots=t.RootsCapability()), revision)
    many = {str(n): ROOTS.as_input() for n in range(MAX_INPUT_REQUESTS + 1)}
    with pytest.raises(Fault, match="input requests at once"):
        checked_input_requests(demand(input_requests=many), ABLE_CLIENT, revision)
    assert (
        len(
            checked_input_requests(
                demand(input_requests=dict(list(many.items())[1:])), ABLE_CLIENT, revision
            )
        )
        == MAX_INPUT_REQUESTS
    )
