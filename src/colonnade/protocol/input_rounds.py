"""The questions of one request, over as many rounds as they take.

A handler asks the same way in every revision; an `InputRounds` knows which answers are already
there. Where questions go by result the handler runs again from the top on the retry, and finds
its past answers under a digest of the question and its occurrence, never its position: no answer
ever reaches another question. An author may name a question instead; its answer still belongs to
that very question, and is dropped where the name comes to mean another one.

Rules: no I/O, no clock, no sealing: what goes into `requestState` is defined here, how it is
protected is a port. What arrives is an attacker's until it was opened and compared.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import Declined, Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import (
    MAX_INPUT_REQUESTS,
    AnyInputResponse,
    InputRequest,
    check_outgoing,
    is_supported,
    unsupported_input_request,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import InputRequests

# A question whose words change from run to run never meets its answer; this ends that.
MAX_ROUNDS = 10
# The name that an author gives a question; it travels there and back.
MAX_KEY_CHARACTERS = 128


# ---------------------------------------------------------------- what requestState holds


class RequestState(Struct, frozen=True, omit_defaults=True):
    """What a server must know on the retry; sealed, it is the `requestState`.

    R0795: who asked, for what, until when. The answers so far travel along, so that any replica
    can go on. It is not single-use: that needs a store. `named` has the digest of each question
    that its author named; all others have it in their key.
    """

    principal: str
    method: str
    subject: str
    expires_at: float
    round: int
    asked: tuple[str, ...]
    answers: dict[str, Raw]
    kept: dict[str, Raw]
    named: dict[str, str] = {}


_OUTSIDE = frozenset({"_meta", "inputResponses", "requestState", "task"})


def subject_of(params: Raw) -> str:
    """A digest of what a request is about: its params, without what changes on a retry."""
    members = decode_as(dict[str, Any], params)
    about = {name: value for name, value in members.items() if name not in _OUTSIDE}
    return hashlib.sha256(msgspec.json.encode(about, order="sorted")).hexdigest()


def invalid_request_state() -> Fault:
    """The one refusal of a `requestState`: whoever tries one out never learns what is wrong."""
    words = "requestState was not given for this request, or has expired; call again without it"
    return Fault(FaultKind.INVALID_PARAMS, words)


def open_request_state(
    state: str,
    unseal: Callable[[str], bytes],
    *,
    principal: str,
    method: str,
    subject: str,
    now: float,
) -> RequestState:
    """Open a `requestState` and compare all that it is bound to. Raises `Fault`.

    `unseal` raises `Fault` for what it did not seal itself. All refusals are the same words.
    """
    try:
        memory = decode_as(RequestState, unseal(state))
    except Fault:
        raise invalid_request_state() from None
    bound = (memory.principal, memory.method, memory.subject)
    if bound != (principal, method, subject) or now >= memory.expires_at:
        raise invalid_request_state()
    return memory


# ---------------------------------------------------------------- the rounds


class InputRounds:
    """The questions of one request: those that have answers, and those that are still open."""

    def __init__(
        self,
        peer: Peer,
        row: Method,
        memory: RequestState | None = None,
        responses: dict[str, Raw] | None = None,
    ) -> None:
        self._peer = peer
        self._row = row
        self._round = memory.round if memory else 0
        self._answers = dict(memory.answers) if memory else {}
        self._kept = dict(memory.kept) if memory else {}
        self._named = dict(memory.named) if memory else {}
        # R0811: what nobody asked for in the last round is left alone.
        asked = memory.asked if memory else ()
        self._answers |= {key: raw for key, raw in (responses or {}).items() if key in asked}
        # Without a state nothing says what was asked; only a name that the author gave does.
        self._ahead = dict(responses or {}) if memory is None else {}
        self._unused = set(self._answers)
        self._occurrences: dict[str, int] = {}
        self._keys: set[str] = set()
        self.pending: dict[str, InputRequest] = {}

    def ask(
        self, question: InputRequest, key: str | None = None
    ) -> tuple[str, AnyInputResponse | None]:
        """The key of a question, and its answer if that is already there.

        Without one it is pending: send it, or end the exchange with `result`. `key` is a name to
        use on the wire; an answer under it counts even where a client lost the state. Raises
        what the handler must see where this peer cannot be asked, or the answer does not fit.
        """
        capabilities = self._check(question)
        name, key = key, self._key(question, key)
        raw = self._answers.get(key)
        if raw is not None:
            self._unused.discard(key)
            return key, question.decode_response(raw, self._peer.revision)
        if not is_supported(question, capabilities, self._peer.revision):
            raise unsupported_input_request(question, self._peer, self._row)
        if key == name and key in self._ahead:
            raw = self._answers[key] = self._ahead.pop(key)
            return key, question.decode_response(raw, self._peer.revision)
        if len(self.pending) >= MAX_INPUT_REQUESTS:
            raise LocalProtocolError(f"more than {MAX_INPUT_REQUESTS} questions in one round")
        self.pending[key] = question
        return key, None

    def _key(self, question: InputRequest, name: str | None) -> str:
        """The key of this question, with no answer under it but its own."""
        digest = question.digest()
        if name is not None and not 0 < len(name) <= MAX_KEY_CHARACTERS:
            raise LocalProtocolError(f"a key has 1 to {MAX_KEY_CHARACTERS} characters")
        stem = name or f"{question.kind.name.lower()}-{digest}"
        nth = self._occurrences[stem] = self._occurrences.get(stem, 0) + 1
        key = name if name and nth == 1 else f"{stem}-{nth}"
        if key in self._keys:  # R0788: as where one name is `a` twice, and another is `a-2`
            raise LocalProtocolError(f"two questions have the key {key!r}; name them otherwise")
        self._keys.add(key)
        meant = digest if name else None
        if self._named.get(key) != meant:
            # The name meant another question last time, whose answer is none to this one.
            self._answers.pop(key, None)
            self._named.pop(key, None)
        if meant is not None:
            self._named[key] = meant
        return key

    def _check(self, question: InputRequest) -> t.ClientCapabilities:
        peer = self._peer
        if (
            peer.revision.input_requests is InputRequests.IN_RESULT
            and not self._row.may_require_input
        ):  # R0785
            raise LocalProtocolError(f"{self._row.name} may not ask anything in this revision")
        if not isinstance(peer.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("only a server asks, and only a client answers")
        check_outgoing(question, peer.revision)
        return peer.capabilities

    def receive_response(self, key: str, raw: Raw) -> AnyInputResponse:
        """The answer to a question that went by request. Raises `Fault` where it does not fit."""
        return self._take(key).decode_response(raw, self._peer.revision)

    def receive_error(self, key: str, error: RemoteError) -> Exception:
        """What a handler gets where a question that went by request was answered by an error."""
        self._take(key)
        said_no = error.code == self._peer.revision.codes[FaultKind.USER_REJECTED]
        return Declined("the user declined to answer") if said_no else error

    def _take(self, key: str) -> InputRequest:
        question = self.pending.pop(key, None)
        if question is None:
            raise LocalProtocolError(f"{key} is not an open question")
        return question

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
        secret = self.request_state(principal=principal, subject=subject, expires_at=expires_at)
        return self.input_required(seal(secret))

    def request_state(self, *, principal: str, subject: str, expires_at: float) -> bytes:
        """All that the next round must know, unsealed. Raises where there can be no next one."""
        if self._peer.revision.input_requests is not InputRequests.IN_RESULT:
            raise LocalProtocolError(f"send the questions one by one in {self._peer.revision.date}")
        if not self.pending:
            raise LocalProtocolError("there is nothing to ask")
        if self._round >= MAX_ROUNDS:
            raise Fault(
                FaultKind.INTERNAL,
                f"asked {MAX_ROUNDS} times and still not done; a question must not change "
                "from one run to the next",
            )
        memory = RequestState(
            principal=principal,
            method=self._row.name,
            subject=subject,
            expires_at=expires_at,
            round=self._round + 1,
            asked=tuple(self.pending),
            answers=self._answers,
            kept=self._kept,
            named=self._named,
        )
        return encode(memory)

    def input_required(self, state: str) -> t.InputRequiredResult:
        """The open questions, with what `remember` gave, sealed."""
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={key: question.as_input() for key, question in self.pending.items()},
            request_state=state,
        )
