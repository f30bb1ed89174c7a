"""Questions to the other side: elicit, sample, roots. What may be asked of whom, what fits.

A question is the same whether it goes by request or by result; `interview` asks it one way or
the other. Both sides use these rules: who asks before it asks and when the answer arrives, who
is asked when the question arrives and before it answers.

Rules: pure. What a peer sent is refused with a `Fault`, what our own code does wrong with a
`LocalProtocolError`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Declined, Fault, FaultKind, LocalProtocolError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.elicitation import check_content, check_form, is_url, split_selections
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Peer, missing_capability
from colonnade.protocol.revision import InputRequests, Revision

# More questions than anyone answers at once.
MAX_INPUT_REQUESTS = 50
# 128 bits: nobody finds two questions that share an answer.
DIGEST_CHARACTERS = 32

InputRequestParams = t.ElicitRequestParams | t.CreateMessageRequestParams | t.ListRootsRequestParams
AnyInputResponse = t.ElicitResult | t.CreateMessageResult | t.ListRootsResult


class InputRequestKind(Enum):
    """What is asked for; the value is the capability that it takes."""

    ELICIT = "elicitation"
    SAMPLE = "sampling"
    ROOTS = "roots"

    @property
    def method(self) -> str:
        """The method that asks for it."""
        return _METHODS[self]


_METHODS = {
    InputRequestKind.ELICIT: "elicitation/create",
    InputRequestKind.SAMPLE: "sampling/createMessage",
    InputRequestKind.ROOTS: "roots/list",
}
_ASKING = frozenset(_METHODS.values())
_ANSWERS: dict[InputRequestKind, type[AnyInputResponse]] = {
    InputRequestKind.ELICIT: t.ElicitResult,
    InputRequestKind.SAMPLE: t.CreateMessageResult,
    InputRequestKind.ROOTS: t.ListRootsResult,
}


class InputRequest(Struct, frozen=True):
    """One question, free of how it will travel."""

    params: InputRequestParams

    @property
    def kind(self) -> InputRequestKind:
        """What is asked for."""
        if isinstance(self.params, t.ElicitRequestParams):
            return InputRequestKind.ELICIT
        return (
            InputRequestKind.SAMPLE
            if isinstance(self.params, t.CreateMessageRequestParams)
            else InputRequestKind.ROOTS
        )

    @property
    def is_url(self) -> bool:
        """Whether the user is sent somewhere, rather than shown a form."""
        return isinstance(self.params, t.ElicitRequestParams) and self.params.mode == "url"

    def digest(self) -> str:
        """What makes this question this question: its kind, its words, its form."""
        asked = self.params
        if isinstance(asked, t.ElicitRequestParams):
            asked = replace(asked, elicitation_id=None, task=None)  # made anew on every run
        elif isinstance(asked, t.CreateMessageRequestParams):
            asked = replace(asked, task=None)
        encode(asked)  # says what cannot be written
        text = msgspec.json.encode(replace(asked, meta=None), order="sorted")
        return hashlib.sha256(self.kind.name.encode() + text).hexdigest()[:DIGEST_CHARACTERS]

    def as_input(self) -> t.AnyInputRequest:
        """The question as it stands in an `input_required` result."""
        params = self.params
        if isinstance(params, t.ElicitRequestParams):
            return t.ElicitRequest(params=params)
        if isinstance(params, t.CreateMessageRequestParams):
            return t.CreateMessageRequest(params=params)
        # Not left out, although it may be: some clients, the Go SDK's among them, read it.
        return t.ListRootsRequest(params=t.ListRootsRequestParams())

    def decode_response(self, raw: Raw | bytes, revision: Revision) -> AnyInputResponse:
        """The answer, checked against the question. Raises `Fault` where it does not fit."""
        answer = decode_as(_ANSWERS[self.kind], raw)
        if isinstance(answer, t.ElicitResult):
            answer = self._mended(answer, revision)
        elif isinstance(answer, t.CreateMessageResult):
            check_blocks(answer.content, revision)
        check_response(self, answer)
        return answer

    def _mended(self, answer: t.ElicitResult, revision: Revision) -> t.ElicitResult:
        """What was typed for choices is a list again; what comes with a mere consent is left."""
        form = cast("t.ElicitRequestParams", self.params).requested_schema
        if self.is_url or form is None:
            return replace(answer, content=None)
        if answer.action != "accept":
            return answer
        content = answer.content or {}
        if not revision.elicitation.multi_select:
            content = split_selections(form, content)
        return replace(answer, content=content)


def received_input_request(
    row: Method,
    params: Raw,
    declared: t.ClientCapabilities | t.ServerCapabilities,
    revision: Revision,
) -> InputRequest | None:
    """The question that a request puts to us; None where it is another kind. Raises `Fault`."""
    if row.name not in _ASKING or not isinstance(declared, t.ClientCapabilities):
        return None
    question = InputRequest(cast("InputRequestParams", decode_as(row.params, params)))
    check_received(question, declared, revision)
    return question


# ---------------------------------------------------------------- may it be asked?


def needed_capability(question: InputRequest) -> dict[str, Any]:
    """The capabilities that a peer must have declared to be asked this."""
    params = question.params
    if isinstance(params, t.ElicitRequestParams):
        return {"elicitation": {"url": {}} if question.is_url else {"form": {}}}
    if isinstance(params, t.CreateMessageRequestParams):
        inside: dict[str, Any] = {}
        if _with_tools(params):
            inside["tools"] = {}
        if _with_context(params):
            inside["context"] = {}
        return {"sampling": inside}
    return {"roots": {}}


def is_supported(
    question: InputRequest, capabilities: t.ClientCapabilities, revision: Revision
) -> bool:
    """Whether a client with these capabilities may be asked this, at this revision."""
    params = question.params
    if isinstance(params, t.ElicitRequestParams):
        mode = "url" if question.is_url else "form"
        offered = capabilities.elicitation
        if offered is None or mode not in revision.elicitation.modes:
            return False
        return offered.may_open_url if mode == "url" else offered.may_show_form
    if isinstance(params, t.CreateMessageRequestParams):
        return _can_sample(params, capabilities.sampling, revision)
    return capabilities.roots is not None


def _can_sample(
    params: t.CreateMessageRequestParams,
    offered: t.SamplingCapability | None,
    revision: Revision,
) -> bool:
    if offered is None:
        return False
    knows_tools = "tool_use" in revision.sampling.blocks
    # Before tools could be declared, they could not be sent: the shape leaves them out, and a
    # model that was promised tools would answer without them. So they are refused there, too.
    if _with_tools(params) and (not knows_tools or offered.tools is None):
        return False
    # R0647, R0669: the capability came together with tools; before, the client alone decided.
    return not (_with_context(params) and knows_tools and offered.context is None)


def _with_tools(params: t.CreateMessageRequestParams) -> bool:
    if params.tools is not None or params.tool_choice is not None:
        return True
    blocks = (block for message in params.messages for block in _blocks(message.content))
    return any(isinstance(block, t.ToolUseContent | t.ToolResultContent) for block in blocks)


def _with_context(params: t.CreateMessageRequestParams) -> bool:
    return params.include_context in ("thisServer", "allServers")


def unsupported_input_request(question: InputRequest, peer: Peer, row: Method) -> Exception:
    """What a handler gets for a question that this peer cannot answer (D10)."""
    what = {
        InputRequestKind.ELICIT: "a user who can be asked",
        InputRequestKind.SAMPLE: "a model that can be asked",
        InputRequestKind.ROOTS: "roots",
    }[question.kind]
    if question.is_url:
        what = "a user who can be sent to a web page"
    if "tools" in needed_capability(question).get("sampling", {}):
        what = "a model that can call tools"
    words = f"this needs {what}, and the client offers none"
    if peer.revision.input_requests is InputRequests.AS_REQUEST and row.name == "tools/call":
        return ToolError(words)
    return missing_capability(words, **needed_capability(question))


def check_sendable(question: InputRequest, peer: Peer) -> None:
    """Raise `LocalProtocolError` for a question that may not be put to this peer."""
    capabilities = peer.capabilities
    if not isinstance(capabilities, t.ClientCapabilities):
        raise LocalProtocolError("only a server asks, and only a client answers")
    check_outgoing(question, peer.revision)
    if not is_supported(question, capabilities, peer.revision):
        raise LocalProtocolError(
            f"{question.kind.method} needs {_paths(question)}, "
            f"and the client has not declared it in {peer.revision.date}"
        )


def check_outgoing(question: InputRequest, revision: Revision) -> None:
    """Raise `LocalProtocolError` for a question of ours that breaks the rules."""
    try:
        _check_question(question, revision)
    except Fault as fault:
        raise LocalProtocolError(fault.message) from fault


def check_received(
    question: InputRequest, declared: t.ClientCapabilities, revision: Revision
) -> None:
    """A client's check of what it was asked: only what it declared, and by the rules."""
    wanted = without_context(question)
    if not is_supported(wanted, declared, revision):
        words = f"{question.kind.method} asks for what this client did not declare"
        raise Fault(FaultKind.INVALID_PARAMS, f"{words}: {_paths(wanted)}")
    if isinstance(question.params, t.CreateMessageRequestParams):
        for message in question.params.messages:
            check_blocks(message.content, revision)
    _check_question(question, revision)


def without_context(question: InputRequest) -> InputRequest:
    """The same question without `includeContext`. The schema says that a client may ignore it, so
    a client that is asked for a context that it did not declare answers without one (D43)."""
    params = question.params
    if isinstance(params, t.CreateMessageRequestParams) and _with_context(params):
        return InputRequest(replace(params, include_context=None))
    return question


def _paths(question: InputRequest) -> str:
    ((name, inside),) = needed_capability(question).items()
    return ", ".join(f"{name}.{member}" for member in inside) or name


def _check_question(question: InputRequest, revision: Revision) -> None:
    """Raise `Fault` for a question that breaks the rules, whoever wrote it."""
    params = question.params
    if isinstance(params, t.CreateMessageRequestParams):
        check_messages(params.messages)
    elif isinstance(params, t.ElicitRequestParams):
        if question.is_url or params.requested_schema is None:
            _check_url(params, revision)
        else:
            check_form(params.requested_schema)


def _check_url(params: t.ElicitRequestParams, revision: Revision) -> None:
    if not is_url(params.url or ""):
        raise Fault(FaultKind.INVALID_PARAMS, "url must be an absolute URL with a host")
    if revision.elicitation.url_required_error and params.elicitation_id is None:  # R0600
        raise Fault(FaultKind.INVALID_PARAMS, "an elicitation by URL needs its elicitationId")


# ---------------------------------------------------------------- does it fit?


def check_response(question: InputRequest, answer: AnyInputResponse) -> None:
    """Raise `Fault` for an answer that does not fit its question, before it is sent or used."""
    params = question.params
    if not isinstance(answer, _ANSWERS[question.kind]):
        words = f"{question.kind.method} is answered with {_ANSWERS[question.kind].__name__}"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    if isinstance(answer, t.ElicitResult) and isinstance(params, t.ElicitRequestParams):
        form = params.requested_schema
        if question.is_url and answer.content is not None:
            raise Fault(FaultKind.INVALID_PARAMS, "a consent to visit a URL has no content")
        if answer.action == "accept" and form is not None and not question.is_url:
            check_content(form, answer.content or {})
    elif isinstance(answer, t.ListRootsResult):
        for root in answer.roots:
            if not root.uri.lower().startswith("file://"):  # R0089
                raise Fault(FaultKind.INVALID_PARAMS, "a root must be a file:// URI")


def check_outgoing_response(question: InputRequest, answer: AnyInputResponse) -> None:
    """Raise `LocalProtocolError` for an answer of ours that does not fit (R0640)."""
    try:
        check_response(question, answer)
    except Fault as fault:
        raise LocalProtocolError(fault.message) from fault


def accepted_content(answer: t.ElicitResult) -> dict[str, t.ElicitValue]:
    """What the user filled in; nothing for a visit. Raises `Declined`, never makes up a value."""
    if answer.action == "accept":
        return answer.content or {}
    went = "declined to answer" if answer.action == "decline" else "went away without an answer"
    raise Declined(f"the user {went}")


Content = t.SamplingMessageContentBlock | list[t.SamplingMessageContentBlock]


def _blocks(content: Content) -> list[t.SamplingMessageContentBlock]:
    return content if isinstance(content, list) else [content]


def check_blocks(content: Content, revision: Revision) -> None:
    """Raise `Fault` for content that a message to or from a model cannot have here (R0104)."""
    if isinstance(content, list) and not revision.sampling.arrays:
        raise _bad_messages("a message holds one block; send one message for each")
    for block in _blocks(content):
        if block.type not in revision.sampling.blocks:
            raise _bad_messages(f"there are no blocks of type {block.type[:40]!r} here")


def check_messages(messages: Sequence[t.SamplingMessage]) -> None:
    """Every use of a tool is answered by the next message, which holds nothing else."""
    open_uses: list[str] = []
    for message in messages:
        blocks = _blocks(message.content)
        results = [block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)]
        if results and len(results) != len(blocks):  # R0648
            raise _bad_messages("tool results stand beside other content; send them alone")
        if sorted(results) != open_uses:  # R0649, R0691
            raise _bad_messages("each tool use needs its result in the very next message")
        if results and message.role != "user":
            raise _bad_messages("tool results belong into a user message")
        open_uses = sorted(block.id for block in blocks if isinstance(block, t.ToolUseContent))
        if open_uses and message.role != "assistant":
            raise _bad_messages("tool uses belong into an assistant message")
        if len(set(open_uses)) != len(open_uses):
            raise _bad_messages("two tool uses have the same id")
    if open_uses:
        raise _bad_messages("the last message uses tools; append their results")


def _bad_messages(words: str) -> Fault:
    return Fault(FaultKind.INVALID_PARAMS, f"messages: {words}")


# ---------------------------------------------------------------- asked by error


def url_elicitation_required(questions: Sequence[InputRequest], peer: Peer) -> Fault:
    """The error that asks for visits to addresses first, where a revision asks that way."""
    if not peer.revision.elicitation.url_required_error:
        raise LocalProtocolError(f"nothing is asked by error in {peer.revision.date}")
    if not questions or not all(question.is_url for question in questions):  # R0609, R0611
        raise LocalProtocolError("only URL elicitations, at least one, can be asked by error")
    for question in questions:
        check_sendable(question, peer)
    asked = [cast("t.ElicitRequestParams", question.params) for question in questions]
    data = t.URLElicitationRequiredData(
        elicitations=[replace(params, meta=None) for params in asked]
    )
    return Fault(FaultKind.URL_ELICITATION_REQUIRED, "visit the given addresses, then retry", data)


def decode_url_elicitations(
    data: Raw, declared: t.ClientCapabilities, peer: Peer
) -> list[InputRequest]:
    """The questions in such an error. Raises `Fault` where one is no URL elicitation."""
    params = decode_as(t.URLElicitationRequiredData, data).elicitations
    _check_count(len(params))
    questions = [InputRequest(asked) for asked in params]
    if not questions or not all(question.is_url for question in questions):
        raise Fault(FaultKind.INVALID_PARAMS, "only URL elicitations can be asked by error")
    for question in questions:
        check_received(question, declared, peer.revision)
    return questions


def elicitation_complete(question: InputRequest) -> t.ElicitationCompleteNotificationParams:
    """The notice that a visit is over, under the id that its question had (R0604)."""
    params = question.params
    id = params.elicitation_id if isinstance(params, t.ElicitRequestParams) else None
    if id is None or not question.is_url:
        raise LocalProtocolError("only an elicitation by URL that has an id is reported complete")
    return t.ElicitationCompleteNotificationParams(elicitation_id=id)


# ---------------------------------------------------------------- asked by result


def input_requests_in(result: t.InputRequiredResult) -> dict[str, InputRequest]:
    """The questions of a result, under their keys."""
    asked = result.input_requests or {}
    return {
        key: InputRequest(request.params or t.ListRootsRequestParams())
        for key, request in asked.items()
    }


def checked_input_requests(
    result: t.InputRequiredResult, declared: t.ClientCapabilities, revision: Revision
) -> dict[str, InputRequest]:
    """What a server wants to know before it goes on, checked like any question. Raises `Fault`."""
    questions = input_requests_in(result)
    _check_count(len(questions))
    for question in questions.values():
        check_received(question, declared, revision)
    return questions


def _check_count(questions: int) -> None:
    if questions > MAX_INPUT_REQUESTS:
        words = f"{questions} questions at once; {MAX_INPUT_REQUESTS} are the most"
        raise Fault(FaultKind.INVALID_PARAMS, words)


P = TypeVar("P", bound=t.InputResponseRequestParams)


def retry_params(
    params: P,
    result: t.InputRequiredResult,
    answers: Mapping[str, AnyInputResponse],
    shaper: Encoder,
) -> P:
    """The params of the next try: every answer, and the state exactly as it was given, or none.

    R0802: all questions are answered before the request is sent again.
    """
    asked = input_requests_in(result)
    if answers.keys() != asked.keys():
        wrong = sorted(answers.keys() ^ asked.keys())
        raise LocalProtocolError(f"answer each question, and no other; see {wrong[:5]}")
    raw: dict[str, Raw] = {}
    for key, answer in answers.items():
        fit = cast("AnyInputResponse", shaper.downgrade(answer))
        check_outgoing_response(asked[key], fit)
        raw[key] = Raw(encode(fit))
    return replace(params, input_responses=raw or None, request_state=result.request_state)
