"""What may be asked of whom, and which answers fit: the rules of both sides."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as, encode_any
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.input_requests import (
    InputRequest,
    InputRequestKind,
    check_blocks,
    check_messages,
    check_outgoing_response,
    check_received,
    check_response,
    check_sendable,
    checked_input_requests,
    elicitation_complete,
    input_requests_in,
    is_supported,
    needed_capability,
    unsupported_input_request,
    without_context,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import CALL_TOOL, GET_PROMPT
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, InputRequests, Revision, error_code
from protocol.input_requests import (
    ROOTS,
    SEAT,
    elicit,
    result,
    sample,
    sampling,
    sampling_message,
    url_elicitation,
    use,
)
from protocol.links import (
    ABLE_CLIENT,
    JSON,
    call,
    line,
    opened,
    refusal,
    state,
)

BY_ERROR = [revision for revision in ALL if revision.elicitation.url_required_error]


def client_can(**capabilities: Any) -> t.ClientCapabilities:
    return t.ClientCapabilities(**capabilities)


def asks(revision: Revision, method: str, params: JSON) -> bytes:
    """A server's question, written by a stranger."""
    assert revision.handshake
    return line(id=5, method=method, params=params)


TEXT = {"type": "text", "text": "hi"}
TOOL = t.Tool(name="n", input_schema={"type": "object"})


# ---------------------------------------------------------------- what a question is


def test_a_question_knows_its_kind_and_its_method() -> None:
    kinds = [
        (q.kind, q.kind.method, q.is_url) for q in (SEAT, url_elicitation(), sample("a"), ROOTS)
    ]
    assert kinds == [
        (InputRequestKind.ELICIT, "elicitation/create", False),
        (InputRequestKind.ELICIT, "elicitation/create", True),
        (InputRequestKind.SAMPLE, "sampling/createMessage", False),
        (InputRequestKind.ROOTS, "roots/list", False),
    ]


def test_a_digest_tells_questions_apart_by_what_they_ask_and_by_nothing_else() -> None:
    distinct = [
        SEAT,
        elicit("Which seat"),
        url_elicitation(),
        url_elicitation("https://example.com/out"),
        ROOTS,
    ]
    distinct += [sample("a"), sample("b"), sampling(temperature=0.5)]
    digests = [question.digest() for question in distinct]
    assert len(set(digests)) == len(distinct)
    assert {len(digest) for digest in digests} == {32}
    again = [
        url_elicitation(id="e2"),
        InputRequest(replace(url_elicitation().params, meta={"a": 1}, task=t.TaskMetadata(ttl=1))),
    ]
    assert {question.digest() for question in again} == {url_elicitation().digest()}
    tasked = InputRequest(replace(sample("a").params, task=t.TaskMetadata(), meta={"x": 1}))
    assert tasked.digest() == sample("a").digest()


def test_a_digest_does_not_depend_on_the_order_of_a_form_s_fields() -> None:
    def form(*names: str) -> InputRequest:
        fields = {name: t.PrimitiveSchema(type="string") for name in names}
        schema = t.ElicitSchema(properties=fields)
        return InputRequest(t.ElicitRequestParams(message="m", requested_schema=schema))

    assert form("a", "b").digest() == form("b", "a").digest()


def test_a_question_that_cannot_be_written_is_refused_here() -> None:
    with pytest.raises(LocalProtocolError, match="JSON"):
        sampling(metadata={"a": object()}).digest()


@pytest.mark.spec("R0789")
def test_a_demand_holds_elicitations_samplings_and_roots_and_nothing_else(
    revision: Revision,
) -> None:
    inputs = {
        str(n): q.as_input() for n, q in enumerate((SEAT, url_elicitation(), sample("a"), ROOTS))
    }
    demand = t.InputRequiredResult(result_type="input_required", input_requests=inputs)
    wire = json.loads(Encoder(revision).result(demand))["inputRequests"]
    assert [asked["method"] for asked in wire.values()] == [
        "elicitation/create",
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    ]
    questions = input_requests_in(decode_as(t.InputRequiredResult, Raw(encode(demand))))
    assert [question.kind for question in questions.values()] == [
        InputRequestKind.ELICIT,
        InputRequestKind.ELICIT,
        InputRequestKind.SAMPLE,
        InputRequestKind.ROOTS,
    ]
    assert questions["3"] == ROOTS
    for method in ("tools/call", "ping", "", 7):
        strange = {"inputRequests": {"k": {"method": method, "params": {}}}}
        with pytest.raises(Fault):
            decode_as(t.InputRequiredResult, Raw(json.dumps(strange).encode()))


# ---------------------------------------------------------------- who can answer


@pytest.mark.parametrize(
    "revision", [one for one in ALL if "url" in one.elicitation.modes], ids=lambda one: one.date
)
def test_a_declared_elicitation_always_has_a_mode(revision: Revision) -> None:
    modes = {
        "{}": ["form"],
        '{"form":{}}': ["form"],
        '{"url":{}}': ["url"],
        '{"form":{},"url":{}}': ["form", "url"],
    }
    for declared, expected in modes.items():
        can = client_can(elicitation=decode_as(t.ElicitationCapability, Raw(declared.encode())))
        found = [
            mode
            for mode, question in (("form", SEAT), ("url", url_elicitation()))
            if is_supported(question, can, revision)
        ]
        assert found == expected


def test_elicitation_needs_a_revision_that_has_it(revision: Revision) -> None:
    assert is_supported(SEAT, ABLE_CLIENT, revision) is ("form" in revision.elicitation.modes)
    assert is_supported(url_elicitation(), ABLE_CLIENT, revision) is (
        "url" in revision.elicitation.modes
    )
    assert not is_supported(SEAT, client_can(), revision)
    assert is_supported(ROOTS, ABLE_CLIENT, revision)
    assert not is_supported(ROOTS, client_can(), revision)
    assert not is_supported(sample("a"), client_can(), revision)


@pytest.mark.spec("R0594")
def test_a_mode_that_the_client_did_not_declare_is_never_sent(revision: Revision) -> None:
    """RQ-02, mode by mode."""
    for declared, question in (
        (t.ElicitationCapability(form={}), url_elicitation()),
        (t.ElicitationCapability(), url_elicitation()),
        (t.ElicitationCapability(url={}), SEAT),
    ):
        _, server = opened(revision, client_can(elicitation=declared))
        before = state(server)
        with pytest.raises(LocalProtocolError):
            server.request("elicitation/create", question.params, now=0.0)
        assert state(server) == before
        with pytest.raises(LocalProtocolError, match="has not declared"):
            check_sendable(question, Peer(revision, client_can(elicitation=declared)))


TOOLED = [
    sampling(tools=[TOOL]),
    sampling(tool_choice=t.ToolChoice(mode="none")),
    sampling(sampling_message("assistant", use("1")), sampling_message("user", result("1"))),
]


@pytest.mark.spec("R0645", "R0646")
def test_tools_go_only_to_a_model_whose_client_declared_them(revision: Revision) -> None:
    """RQ-02, for a model that is given tools."""
    able = client_can(sampling=t.SamplingCapability(tools={}))
    unable = client_can(sampling=t.SamplingCapability())
    for question in TOOLED:
        assert is_supported(question, able, revision)
        assert not is_supported(question, unable, revision)
        assert needed_capability(question) == {"sampling": {"tools": {}}}
        _, server = opened(revision, unable)
        with pytest.raises(LocalProtocolError):
            server.request("sampling/createMessage", question.params, now=0.0)
        assert len(server._outgoing) == 0
        check_received(question, able, revision)
        with pytest.raises(Fault):
            check_received(question, unable, revision)


def test_tools_are_refused_where_a_revision_has_none(revision: Revision) -> None:
    knows = "tool_use" in revision.sampling.blocks
    assert [is_supported(question, ABLE_CLIENT, revision) for question in TOOLED] == [knows] * 3


@pytest.mark.spec("R0647", "R0669", "R0670", "R1058")
def test_context_is_asked_for_only_where_it_was_declared(revision: Revision) -> None:
    plain = client_can(sampling=t.SamplingCapability())
    able = client_can(sampling=t.SamplingCapability(context={}))
    for value in ("thisServer", "allServers"):
        question = sampling(include_context=value)
        assert is_supported(question, able, revision)
        assert not is_supported(question, plain, revision)
        assert needed_capability(question) == {"sampling": {"context": {}}}
        with pytest.raises(LocalProtocolError, match=r"sampling\.context"):
            check_sendable(question, Peer(revision, plain))
    assert is_supported(sampling(include_context="none"), plain, revision)
    assert "includeContext" not in json.loads(Encoder(revision).params(sampling().params))


def test_before_context_could_be_declared_it_could_be_asked_for(revision: Revision) -> None:
    plain = client_can(sampling=t.SamplingCapability())
    question = sampling(include_context="thisServer")
    declarable = "tool_use" in revision.sampling.blocks
    assert is_supported(question, plain, revision) is not declarable


def test_a_client_that_declared_no_context_is_asked_without_one(revision: Revision) -> None:
    """The schema: the client MAY ignore `includeContext`."""
    plain = client_can(sampling=t.SamplingCapability())
    for value in ("thisServer", "allServers"):
        asked = sampling(include_context=value)
        check_received(asked, plain, revision)
        assert is_supported(without_context(asked), plain, revision)
        with pytest.raises(Fault, match=r"did not declare: sampling$"):
            check_received(asked, client_can(), revision)
    assert without_context(SEAT) is SEAT


def test_roots_are_asked_for_with_params_since_some_clients_read_them() -> None:
    assert json.loads(encode_any(ROOTS.as_input())) == {"method": "roots/list", "params": {}}


def test_what_a_peer_cannot_answer_is_told_as_its_revision_wants_it(revision: Revision) -> None:
    peer = Peer(revision, client_can())
    assert "URL elicitation" in str(unsupported_input_request(url_elicitation(), peer, CALL_TOOL))
    assert "needs elicitation" in str(unsupported_input_request(SEAT, peer, CALL_TOOL))
    assert needed_capability(url_elicitation()) == {"elicitation": {"url": {}}}
    assert needed_capability(SEAT) == {"elicitation": {"form": {}}}
    for question in (SEAT, url_elicitation(), sample("a"), ROOTS):
        error = unsupported_input_request(question, peer, CALL_TOOL)
        if revision.input_requests is InputRequests.IN_RESULT:
            assert isinstance(error, Fault)
            assert error.kind is FaultKind.CAPABILITY_MISSING
            assert error.data == {"requiredCapabilities": needed_capability(question)}
        else:
            assert isinstance(error, ToolError)
            prompt = unsupported_input_request(question, peer, GET_PROMPT)
            assert isinstance(prompt, Fault)
            assert (prompt.kind, prompt.message) == (FaultKind.CAPABILITY_MISSING, str(error))
            assert error_code(prompt, revision) == -32603  # as "internal error": it has no own code
            assert prompt.data == {"requiredCapabilities": needed_capability(question)}


def test_a_server_is_never_asked(revision: Revision) -> None:
    with pytest.raises(LocalProtocolError, match="only to a client"):
        check_sendable(ROOTS, Peer(revision, t.ServerCapabilities()))
    with pytest.raises(LocalProtocolError, match="needs roots, and the client"):
        check_sendable(ROOTS, Peer(revision, client_can()))


# ---------------------------------------------------------------- a client is asked


def answer_to(revision: Revision, can: t.ClientCapabilities, method: str, params: JSON) -> JSON:
    """The error that a client of ours answers a stranger's question with."""
    client, _ = opened(revision, can)
    before = state(client)
    error = refusal(client.receive(asks(revision, method, params), 0.0))
    assert state(client) == before
    return error


@pytest.mark.spec("R0622")
def test_a_mode_that_was_not_declared_is_answered_with_invalid_params(revision: Revision) -> None:
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    url = {"message": "m", "mode": "url", "url": "https://example.com/", "elicitationId": "e"}
    for declared, params in (
        (t.ElicitationCapability(form={}), url),
        (t.ElicitationCapability(), url),
        (t.ElicitationCapability(url={}), form),
    ):
        error = answer_to(revision, client_can(elicitation=declared), "elicitation/create", params)
        assert error["code"] == -32602
        assert "did not declare" in error["message"]


@pytest.mark.spec("R0654", "R0655")
def test_unbalanced_tools_are_answered_with_invalid_params(revision: Revision) -> None:
    uses = {
        "role": "assistant",
        "content": {"type": "tool_use", "id": "1", "name": "n", "input": {}},
    }
    done = {"type": "tool_result", "toolUseId": "1", "content": []}
    for messages in (
        [uses],
        [uses, {"role": "user", "content": TEXT}],
        [uses, {"role": "user", "content": [done, TEXT]}],
        [uses, {"role": "user", "content": [TEXT, done]}],
    ):
        params = {"messages": messages, "maxTokens": 1}
        error = answer_to(revision, ABLE_CLIENT, "sampling/createMessage", params)
        assert error["code"] == -32602


@pytest.mark.spec("R0648", "R0691")
def test_a_client_refuses_tool_results_beside_other_content_or_of_no_tool_use(
    revision: Revision,
) -> None:
    uses = {
        "role": "assistant",
        "content": {"type": "tool_use", "id": "1", "name": "n", "input": {}},
    }
    done = {"type": "tool_result", "toolUseId": "1", "content": []}
    for content, words in (
        ([done, TEXT], "tool results beside other content"),
        ([done | {"toolUseId": "2"}], "each tool use needs its result"),
    ):
        params = {"messages": [uses, {"role": "user", "content": content}], "maxTokens": 1}
        if revision.input_requests is InputRequests.AS_REQUEST:
            error = answer_to(revision, ABLE_CLIENT, "sampling/createMessage", params)
            assert error["code"] == -32602
            assert words in error["message"]
            continue
        asked = {"q": {"method": "sampling/createMessage", "params": params}}
        result = {"resultType": "input_required", "inputRequests": asked}
        demand = decode_as(t.InputRequiredResult, Raw(json.dumps(result).encode()))
        with pytest.raises(Fault, match=words):
            checked_input_requests(demand, ABLE_CLIENT, revision)


@pytest.mark.spec("R0672", "R0673")
def test_tools_that_were_not_declared_are_an_error(revision: Revision) -> None:
    plain = client_can(sampling=t.SamplingCapability())
    for extra in ({"tools": []}, {"toolChoice": {}}, {"tools": [], "toolChoice": {"mode": "none"}}):
        params = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 1} | extra
        question = InputRequest(
            decode_as(t.CreateMessageRequestParams, Raw(json.dumps(params).encode()))
        )
        with pytest.raises(Fault, match=r"sampling\.tools") as caught:
            check_received(question, plain, revision)
        assert error_code(caught.value, revision) == -32602
        if revision.handshake:
            error = answer_to(revision, plain, "sampling/createMessage", params)
            assert error["code"] == -32602


@pytest.mark.spec("R0601")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "/in",
        "https://",
        "https:///in",
        "mailto:a@b",
        "https://exa mple.com/",
        "https://example.com/\n",
        "https://example.com/\x00",
        "https://example.com:99999/",
        "https://[::1/",
        "https://good.com\\@evil.com/",
        "javascript://example.com/%0aalert(1)",
        "https://example.com/" + "a" * 9000,
    ],
)
def test_a_url_that_is_none_is_neither_sent_nor_accepted(revision: Revision, url: str) -> None:
    question = url_elicitation(url)
    peer = Peer(revision, ABLE_CLIENT)
    with pytest.raises(LocalProtocolError, match="absolute URL"):
        check_sendable(question, peer)
    with pytest.raises(Fault, match="absolute URL"):
        check_received(question, ABLE_CLIENT, revision)
    check_sendable(url_elicitation("https://example.com:8443/a?b=c#d"), peer)
    check_received(url_elicitation("http://localhost/"), ABLE_CLIENT, revision)


@pytest.mark.spec("R0600")
def test_a_url_elicitation_has_its_id_where_the_revision_has_ids(revision: Revision) -> None:
    question = url_elicitation(id=None)
    if revision.elicitation.url_required_error:
        with pytest.raises(LocalProtocolError, match="elicitationId"):
            check_sendable(question, Peer(revision, ABLE_CLIENT))
        with pytest.raises(Fault, match="elicitationId"):
            check_received(question, ABLE_CLIENT, revision)
    else:
        check_sendable(question, Peer(revision, ABLE_CLIENT))
    wire = json.loads(Encoder(revision).params(url_elicitation().params))
    assert wire.keys() - {"elicitationId"} == {"mode", "message", "url"}
    assert ("elicitationId" in wire) is revision.elicitation.url_required_error


@pytest.mark.spec("R0595")
def test_a_question_to_a_user_has_words(revision: Revision) -> None:
    form = {"requestedSchema": {"type": "object", "properties": {}}}
    url = {"mode": "url", "url": "https://example.com/", "elicitationId": "e"}
    for wordless in (form, url, form | {"message": 7}, url | {"message": None}):
        with pytest.raises(Fault):
            decode_as(t.ElicitRequestParams, Raw(json.dumps(wordless).encode()))
        if revision.handshake:
            error = answer_to(revision, ABLE_CLIENT, "elicitation/create", wordless)
            assert error["code"] == -32602
    assert json.loads(Encoder(revision).params(SEAT.params))["message"] == "Which seat?"
    sent = json.loads(Encoder(revision).params(url_elicitation().params))
    assert (sent["message"], sent["mode"]) == ("log in", "url")


@pytest.mark.spec("R0675")
def test_an_id_of_an_elicitation_is_any_string_and_comes_back_as_it_was(revision: Revision) -> None:
    for id in ("", " ", "e1", "ä🙂", "../../etc", "x" * 5000, "null"):
        url = {"mode": "url", "url": "https://example.com/", "elicitationId": id, "message": "m"}
        client, _ = opened(revision)
        exchange = call(client, asks(revision, "elicitation/create", url))
        assert exchange.input_request is not None
        assert elicitation_complete(exchange.input_request).elicitation_id == id


def test_a_form_that_nobody_could_fill_in_is_refused_on_both_sides(revision: Revision) -> None:
    form = t.ElicitSchema(properties={}, required=["seat"])
    question = InputRequest(t.ElicitRequestParams(message="m", requested_schema=form))
    if revision.elicitation.modes:
        with pytest.raises(LocalProtocolError, match="seat: required, but not a field"):
            check_sendable(question, Peer(revision, ABLE_CLIENT))
        with pytest.raises(Fault, match="seat: required, but not a field"):
            check_received(question, ABLE_CLIENT, revision)


# ---------------------------------------------------------------- messages for a model


@pytest.mark.spec("R0104")
def test_content_that_the_revision_does_not_have_is_refused_when_asked_and_when_answered(
    revision: Revision,
) -> None:
    audio = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    uses = {"type": "tool_use", "id": "1", "name": "n", "input": {}}
    facts = revision.sampling
    cases = [
        (TEXT, True),
        (image, True),
        (audio, "audio" in facts.blocks),
        ([TEXT, TEXT], facts.arrays),
        (uses, "tool_use" in facts.blocks),
        ({"type": "hologram"}, False),
        ({"type": "text"}, False),
        (7, False),
    ]
    for content, good in cases:
        answer = {"role": "assistant", "model": "m", "content": content}
        raw = Raw(json.dumps(answer).encode())
        if good:
            assert sample("a").decode_response(raw, revision)
        else:
            with pytest.raises(Fault):
                sample("a").decode_response(raw, revision)
        messages = [{"role": "user", "content": content}]
        asked = Raw(json.dumps({"messages": messages, "maxTokens": 1}).encode())
        if content is not uses:  # which needs its result besides
            assert received(asked, revision) is good, content
    for role in ("system", "", None):
        bad = {"messages": [{"role": role, "content": TEXT}], "maxTokens": 1}
        assert not received(Raw(json.dumps(bad).encode()), revision)
        answer = {"role": role, "model": "m", "content": TEXT}
        with pytest.raises(Fault):
            sample("a").decode_response(Raw(json.dumps(answer).encode()), revision)


def received(asked: Raw, revision: Revision) -> bool:
    """Whether a client accepts such a question."""
    try:
        question = InputRequest(decode_as(t.CreateMessageRequestParams, asked))
        check_received(question, ABLE_CLIENT, revision)
    except Fault as fault:
        return fault.kind is not FaultKind.INVALID_PARAMS
    return True


def test_a_message_of_an_unknown_kind_is_named_in_few_words() -> None:
    long = t.UnknownContent(whole=t.UnknownMembers({"type": "x" * 1000}))
    with pytest.raises(Fault) as caught:
        check_blocks(long, ALL[-1])
    assert len(caught.value.message) < 120


@pytest.mark.spec("R0651", "R0688")
@pytest.mark.parametrize("mode", ["none", "auto", "required", None])
def test_a_response_uses_no_tool_where_the_request_rules_that_out(mode: Any) -> None:
    choice = None if mode is None else t.ToolChoice(mode=mode)
    asked = sampling(tools=[TOOL], tool_choice=choice)
    contents: list[Any] = [use("1"), [t.TextContent(text="so"), use("1")]]
    for content in contents:
        said = t.CreateMessageResult(role="assistant", model="m", content=content)
        if mode != "none":
            check_outgoing_response(asked, said)
            continue
        with pytest.raises(LocalProtocolError, match="toolChoice is none"):
            check_outgoing_response(asked, said)
        with pytest.raises(Fault, match="toolChoice is none"):
            check_response(asked, said)
    text = t.CreateMessageResult(role="assistant", model="m", content=t.TextContent(text="so"))
    check_outgoing_response(asked, text)


@pytest.mark.spec("R0648", "R0649", "R0656", "R0691")
def test_every_use_of_a_tool_is_answered_at_once_alone_and_once(revision: Revision) -> None:
    hello, thanks = (
        sampling_message("user", t.TextContent(text="hi")),
        sampling_message("user", t.TextContent(text="t")),
    )
    uses = sampling_message("assistant", use("1"), t.TextContent(text="let me see"), use("2"))
    both = sampling_message("user", result("2"), result("1"))
    good = [
        [hello, uses, both],
        [hello, uses, both, thanks],
        [hello, sampling_message("assistant", use("1")), sampling_message("user", result("1"))],
        [
            hello,
            uses,
            both,
            sampling_message("assistant", use("3")),
            sampling_message("user", result("3")),
        ],
    ]
    for messages in good:
        check_messages(messages)
        check_sendable(sampling(*messages), Peer(revision, ABLE_CLIENT))
    text = t.TextContent(text="and")
    bad = [
        [hello, uses],
        [hello, uses, thanks],
        [hello, uses, thanks, both],
        [hello, uses, sampling_message("user", result("1"))],
        [hello, uses, sampling_message("user", result("1"), result("2"), result("3"))],
        [hello, uses, sampling_message("user", result("1"), result("1"))],
        [hello, uses, sampling_message("user", result("1"), result("1"), result("2"))],
        [hello, uses, sampling_message("user", result("1"), result("2"), text)],
        [hello, uses, sampling_message("assistant", result("1"), result("2"))],
        [sampling_message("user", result("9"))],
        [hello, uses, both, sampling_message("user", result("1"))],
        [sampling_message("user", use("1")), sampling_message("user", result("1"))],
        [
            sampling_message("assistant", use("1"), use("1")),
            sampling_message("user", result("1"), result("1")),
        ],
    ]
    for messages in bad:
        with pytest.raises(Fault) as caught:
            check_messages(messages)
        assert error_code(caught.value, revision) == -32602
        with pytest.raises(LocalProtocolError):
            check_sendable(sampling(*messages), Peer(revision, ABLE_CLIENT))
