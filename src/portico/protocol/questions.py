"""Questions to the other side: elicit, sample, roots. Asked by request or by result.

A handler asks the same way in every revision; an `Interview` knows which answers are already
there. Where questions go by result the handler runs again from the top on the retry, and finds
its past answers under a digest of the question and its occurrence, never its position: no answer
ever reaches another question.

Rules: no I/O, no clock, no sealing: what goes into `requestState` is defined here, how it is
protected is a port. What arrives is an attacker's until it was opened and compared.
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.errors import Fault, FaultKind, LocalProtocolError, ToolError
from portico.protocol import types as t
from portico.protocol.forms import as_asked, check_content, is_url
from portico.protocol.jsonrpc import encode
from portico.protocol.methods import Method
from portico.protocol.negotiation import Peer, incapable
from portico.protocol.reading import read
from portico.protocol.revision import Asking, Revision

# A question whose words change from run to run never meets its answer; this ends that.
MAX_ROUNDS = 10
# More questions than anyone answers at once.
MAX_QUESTIONS = 50

Params = t.ElicitRequestParams | t.CreateMessageRequestParams | t.ListRootsRequestParams
AnyAnswer = t.ElicitResult | t.CreateMessageResult | t.ListRootsResult


class Kind(Enum):
    """What is asked for; the value is the capability that it takes."""

    ELICIT = "elicitation"
    SAMPLE = "sampling"
    ROOTS = "roots"

    @property
    def method(self) -> str:
        """The method that asks for it."""
        return _METHODS[self]


_METHODS = {
    Kind.ELICIT: "elicitation/create",
    Kind.SAMPLE: "sampling/createMessage",
    Kind.ROOTS: "roots/list",
}
_ANSWERS: dict[Kind, type[AnyAnswer]] = {
    Kind.ELICIT: t.ElicitResult,
    Kind.SAMPLE: t.CreateMessageResult,
    Kind.ROOTS: t.ListRootsResult,
}


class Question(Struct, frozen=True):
    """One question, free of how it will travel."""

    params: Params

    @property
    def kind(self) -> Kind:
        """What is asked for."""
        if isinstance(self.params, t.ElicitRequestParams):
            return Kind.ELICIT
        return Kind.SAMPLE if isinstance(self.params, t.CreateMessageRequestParams) else Kind.ROOTS

    @property
    def is_url(self) -> bool:
        """Whether the user is sent somewhere, rather than shown a form."""
        return isinstance(self.params, t.ElicitRequestParams) and self.params.mode == "url"

    def digest(self) -> str:
        """What makes this question this question: its kind, its words, its form."""
        asked = self.params
        if isinstance(asked, t.ElicitRequestParams):
            asked = replace(asked, elicitation_id=None)  # made anew on every run
        text = self.kind.name.encode() + encode(replace(asked, meta=None))
        return hashlib.sha256(text).hexdigest()[:16]

    def as_input(self) -> t.InputRequest:
        """The question as it stands in an `input_required` result."""
        params = self.params
        if isinstance(params, t.ElicitRequestParams):
            return t.ElicitRequest(params=params)
        if isinstance(params, t.CreateMessageRequestParams):
            return t.CreateMessageRequest(params=params)
        return t.ListRootsRequest()

    def read_answer(self, raw: Raw | bytes) -> AnyAnswer:
        """The answer, checked against the question. Raises `Fault` where it does not fit."""
        answer = read(_ANSWERS[self.kind], raw)
        params = self.params
        if isinstance(answer, t.ElicitResult) and isinstance(params, t.ElicitRequestParams):
            form = params.requested_schema
            if answer.action == "accept" and form is not None:
                content = as_asked(form, answer.content or {})
                answer = replace(answer, content=content)
        check_answer(self, answer)
        return answer


# ---------------------------------------------------------------- may it be asked?


def needed_capability(question: Question) -> dict[str, Any]:
    """The capabilities that a peer must have declared to be asked this."""
    params = question.params
    if isinstance(params, t.ElicitRequestParams):
        return {"elicitation": {"url": {}} if question.is_url else {"form": {}}}
    if isinstance(params, t.CreateMessageRequestParams):
        inside: dict[str, Any] = {}
        if params.tools is not None or params.tool_choice is not None:
            inside["tools"] = {}
        if params.include_context in ("thisServer", "allServers"):
            inside["context"] = {}
        return {"sampling": inside}
    return {"roots": {}}


def can_answer(question: Question, capabilities: t.ClientCapabilities, revision: Revision) -> bool:
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
    # Before tools could be declared, they could not be sent: the shape leaves them out, and a
    # model that was promised tools would answer without them. So they are refused there, too.
    if params.tools is not None or params.tool_choice is not None:
        return offered.tools is not None
    if params.include_context in ("thisServer", "allServers") and revision.sampling.arrays:
        return offered.context is not None
    return True


def unanswerable(question: Question, peer: Peer, row: Method) -> Exception:
    """What a handler gets for a question that this peer cannot answer (D10)."""
    what = {
        Kind.ELICIT: "a user who can be asked",
        Kind.SAMPLE: "a model that can be asked",
        Kind.ROOTS: "roots",
    }[question.kind]
    words = f"this needs {what}, and the client offers none; pass the value as an argument instead"
    if peer.revision.asking is Asking.BY_RESULT:
        return incapable(words, **needed_capability(question))
    if row.name == "tools/call":
        return ToolError(words)
    return Fault(FaultKind.INTERNAL, words)


def check_question(question: Question) -> None:
    """Raise `Fault` for a question that breaks the rules, whoever wrote it."""
    params = question.params
    if isinstance(params, t.CreateMessageRequestParams):
        check_messages(params.messages)
    elif (
        isinstance(params, t.ElicitRequestParams)
        and question.is_url
        and not is_url(params.url or "")
    ):
        raise Fault(FaultKind.INVALID_PARAMS, "url must be an absolute URL with a host")


def check_received(question: Question, declared: t.ClientCapabilities, revision: Revision) -> None:
    """A client's check of what it was asked: only what it declared, and by the rules."""
    if not can_answer(question, declared, revision):
        raise Fault(
            FaultKind.INVALID_PARAMS,
            f"{question.kind.method} asks for what this client did not declare: "
            + ", ".join(_paths(needed_capability(question))),
        )
    check_question(question)


def _paths(capability: dict[str, Any]) -> list[str]:
    ((name, inside),) = capability.items()
    return [f"{name}.{member}" for member in inside] or [name]


def check_answer(question: Question, answer: AnyAnswer) -> None:
    """Raise `Fault` for an answer that does not fit its question, before it is sent or used."""
    params = question.params
    if isinstance(answer, t.ElicitResult) and isinstance(params, t.ElicitRequestParams):
        form = params.requested_schema
        if answer.action == "accept" and form is not None and not question.is_url:
            check_content(form, answer.content or {})
    elif isinstance(answer, t.ListRootsResult):
        for root in answer.roots:
            if not root.uri.startswith("file://"):
                raise Fault(FaultKind.INVALID_PARAMS, "a root must be a file:// URI")


def check_messages(messages: Sequence[t.SamplingMessage]) -> None:
    """Every use of a tool is answered by the next message, which holds nothing else."""
    open_uses: set[str] = set()
    for message in messages:
        content = message.content
        blocks = content if isinstance(content, list) else [content]
        results = [block for block in blocks if isinstance(block, t.ToolResultContent)]
        if results and len(results) != len(blocks):
            raise _bad_messages("tool results stand beside other content; send them alone")
        if {result.tool_use_id for result in results} != open_uses:
            raise _bad_messages("each tool use needs its result in the very next message")
        if results and message.role != "user":
            raise _bad_messages("tool results belong into a user message")
        open_uses = {block.id for block in blocks if isinstance(block, t.ToolUseContent)}
        if open_uses and message.role != "assistant":
            raise _bad_messages("tool uses belong into an assistant message")
    if open_uses:
        raise _bad_messages("the last message uses tools; append their results")


def _bad_messages(words: str) -> Fault:
    return Fault(FaultKind.INVALID_PARAMS, f"messages: {words}")


# ---------------------------------------------------------------- asked by error


def url_required(questions: Sequence[Question]) -> Fault:
    """The error that asks for visits to addresses first, where a revision asks that way."""
    if not questions or not all(question.is_url for question in questions):
        raise LocalProtocolError("only URL elicitations, at least one, can be asked by error")
    asked = [cast("t.ElicitRequestParams", question.params) for question in questions]
    if any(params.elicitation_id is None for params in asked):
        raise LocalProtocolError("each URL elicitation needs an elicitation_id here")
    data = t.URLElicitationRequiredData(
        elicitations=[replace(params, meta=None) for params in asked]
    )
    return Fault(FaultKind.URL_ELICITATION_REQUIRED, "visit the given addresses, then retry", data)


def read_url_required(data: Raw) -> list[Question]:
    """The questions in such an error. Raises `Fault` where one is no URL elicitation."""
    questions = [
        Question(params) for params in read(t.URLElicitationRequiredData, data).elicitations
    ]
    for question in questions:
        params = question.params
        if not isinstance(params, t.ElicitRequestParams) or params.elicitation_id is None:
            raise Fault(FaultKind.INVALID_PARAMS, "an elicitation without its elicitationId")
        if not question.is_url:
            raise Fault(FaultKind.INVALID_PARAMS, "only URL elicitations can be asked by error")
        check_question(question)
    return questions


# ---------------------------------------------------------------- what requestState holds


class Memory(Struct, frozen=True):
    """What a server must know on the retry; sealed, it is the `requestState`.

    R0795: who asked, for what, until when. The answers so far travel along, so that any replica
    can go on. It is not single-use: that needs a store.
    """

    principal: str
    method: str
    subject: str
    expires_at: float
    round: int
    asked: tuple[str, ...]
    answers: dict[str, Raw]
    kept: dict[str, Raw]


_OUTSIDE = frozenset({"_meta", "inputResponses", "requestState", "task"})


def subject_of(params: Raw) -> str:
    """A digest of what a request is about: its params, without what changes on a retry."""
    members = read(dict[str, Any], params)
    about = {name: value for name, value in members.items() if name not in _OUTSIDE}
    text = msgspec.json.encode(about, order="sorted")
    return hashlib.sha256(text).hexdigest()


def recall(
    state: str,
    unseal: Callable[[str], bytes],
    *,
    principal: str,
    method: str,
    subject: str,
    now: float,
) -> Memory:
    """Open a `requestState` and compare all that it is bound to. Raises `Fault`.

    `unseal` raises `Fault` for what it did not seal itself.
    """
    memory = read(Memory, unseal(state))
    bound = (memory.principal, memory.method, memory.subject)
    if bound != (principal, method, subject):
        raise Fault(FaultKind.INVALID_PARAMS, "requestState belongs to another request")
    if now >= memory.expires_at:
        raise Fault(FaultKind.INVALID_PARAMS, "requestState has expired; call again without it")
    return memory


class Interview:
    """The questions of one request: those that have answers, and those that are still open."""

    def __init__(
        self,
        peer: Peer,
        row: Method,
        memory: Memory | None = None,
        responses: dict[str, Raw] | None = None,
    ) -> None:
        self._peer = peer
        self._row = row
        self._round = memory.round if memory else 0
        self._answers = dict(memory.answers) if memory else {}
        self._kept = dict(memory.kept) if memory else {}
        # R0807: what nobody asked for in the last round is left alone.
        asked = memory.asked if memory else ()
        self._answers |= {key: raw for key, raw in (responses or {}).items() if key in asked}
        self._unused = set(self._answers)
        self._occurrences: dict[str, int] = {}
        self.pending: dict[str, Question] = {}

    def ask(self, question: Question) -> tuple[str, AnyAnswer | None]:
        """The key of a question, and its answer if that is already there.

        Without one it is pending: send it, or end the exchange with `result`. Raises what the
        handler must see where this peer cannot be asked, or the answer does not fit.
        """
        self._check(question)
        digest = question.digest()
        nth = self._occurrences[digest] = self._occurrences.get(digest, 0) + 1
        key = f"{question.kind.name.lower()}-{digest}-{nth}"
        raw = self._answers.get(key)
        if raw is not None:
            self._unused.discard(key)
            return key, question.read_answer(raw)
        if len(self.pending) >= MAX_QUESTIONS:
            raise LocalProtocolError(f"more than {MAX_QUESTIONS} questions in one round")
        self.pending[key] = question
        return key, None

    def _check(self, question: Question) -> None:
        peer = self._peer
        capabilities = peer.capabilities
        if peer.revision.asking is Asking.BY_RESULT and not self._row.may_ask:
            raise LocalProtocolError(f"{self._row.name} may not ask anything in this revision")
        if not isinstance(capabilities, t.ClientCapabilities):
            raise LocalProtocolError("only a server asks, and only a client answers")
        if not can_answer(question, capabilities, peer.revision):
            raise unanswerable(question, peer, self._row)
        try:
            check_question(question)
        except Fault as fault:
            raise LocalProtocolError(fault.message) from fault

    def answered(self, key: str, raw: Raw) -> AnyAnswer:
        """The answer to a question that went by request."""
        return self.pending.pop(key).read_answer(raw)

    def kept(self, key: str) -> Raw | None:
        """What `keep` recorded under this key in an earlier round."""
        return self._kept.get(key)

    def keep(self, key: str, value: bytes) -> None:
        """Record the JSON of a side effect's result, so that it need not happen again."""
        self._kept[key] = Raw(value)

    @property
    def unused(self) -> frozenset[str]:
        """Answers that nobody asked for this time: a question that changes from run to run."""
        return frozenset(self._unused)

    def result(
        self,
        seal: Callable[[bytes], str],
        *,
        principal: str,
        subject: str,
        expires_at: float,
    ) -> t.InputRequiredResult:
        """End this round: the open questions, and all that the next one must know."""
        if not self.pending:
            raise LocalProtocolError("there is nothing to ask")
        if self._round >= MAX_ROUNDS:
            raise Fault(
                FaultKind.INTERNAL,
                f"asked {MAX_ROUNDS} times and still not done; a question must not change "
                "from one run to the next",
            )
        memory = Memory(
            principal=principal,
            method=self._row.name,
            subject=subject,
            expires_at=expires_at,
            round=self._round + 1,
            asked=tuple(self.pending),
            answers=self._answers,
            kept=self._kept,
        )
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={key: question.as_input() for key, question in self.pending.items()},
            request_state=seal(encode(memory)),
        )


# ---------------------------------------------------------------- the client's side


def questions_of(result: t.InputRequiredResult) -> dict[str, Question]:
    """What a server wants to know before it goes on. Raises `Fault` for an empty demand."""
    if result.input_requests is None and result.request_state is None:
        raise Fault(FaultKind.INVALID_PARAMS, "input_required without questions and without state")
    asked = result.input_requests or {}
    return {key: Question(_params_of(request)) for key, request in asked.items()}


def _params_of(request: t.InputRequest) -> Params:
    return request.params or t.ListRootsRequestParams()


P = TypeVar("P", bound=t.InputResponseRequestParams)


def retry(params: P, result: t.InputRequiredResult, answers: dict[str, bytes]) -> P:
    """The params of the next try: the answers, and the state exactly as it was given, or none.

    The answers are encoded already, shaped for this server.
    """
    raw = {key: Raw(answer) for key, answer in answers.items()}
    return replace(params, input_responses=raw or None, request_state=result.request_state)
