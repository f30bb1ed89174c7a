"""Input rounds: the input requests of one request, over as many `input_required` rounds as needed.

A handler requests input in the same way in every revision; `InputRounds` knows which responses are
already there. If input requests are carried in the result, the handler runs again from the top
on the retry and finds earlier responses under a digest of the input request and its occurrence,
never its position: no response ever reaches another input request. An author may name one instead;
its response still belongs to that very input request, and is dropped if the name comes to mean
another one.

Rules: no I/O, no clock, no encryption: what goes into `requestState` is defined here, how it is
protected is a port. What arrives is untrusted until it was opened and compared.
"""

import hashlib
from collections.abc import Callable, Mapping
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

# An input request that changes from run to run never meets its response; this ends that.
MAX_ROUNDS = 10
# The name that an author gives an input request; it travels there and back.
MAX_KEY_CHARACTERS = 128


# ---------------------------------------------------------------- requestState


class RequestState(Struct, frozen=True, omit_defaults=True):
    """What a server must know on the retry; encrypted, it is the `requestState`.

    R0795: which principal, for which request, until when. The responses so far travel along, so
    that any replica can continue. It is not single-use: that needs a store. `named` has the digest
    of each input request that its author named; all others have it in their key. `traceparent` is
    that of the span of the first round, if there is one.
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
    traceparent: str = ""


_OUTSIDE = frozenset({"_meta", "inputResponses", "requestState", "task"})


def subject_of(params: Raw) -> str:
    """A digest of the params of a request, without the members that change on a retry."""
    members = decode_as(dict[str, Any], params)
    about = {name: value for name, value in members.items() if name not in _OUTSIDE}
    return hashlib.sha256(msgspec.json.encode(about, order="sorted")).hexdigest()


def invalid_request_state() -> Fault:
    """The one refusal of a `requestState`: probing never learns what is wrong with it."""
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
    """Decrypt a `requestState` and compare all that it is bound to. Raises `Fault`.

    `unseal` raises `Fault` for what it did not seal itself. All refusals have the same message.
    """
    try:
        opened = decode_as(RequestState, unseal(state))
    except Fault:
        raise invalid_request_state() from None
    bound = (opened.principal, opened.method, opened.subject)
    if bound != (principal, method, subject) or now >= opened.expires_at:
        raise invalid_request_state()
    return opened


# ---------------------------------------------------------------- the rounds


class InputRounds:
    """The input requests of one request: those with a response, and those that are pending."""

    def __init__(
        self,
        peer: Peer,
        method: Method,
        state: RequestState | None = None,
        responses: dict[str, Raw] | None = None,
        *,
        saved: Mapping[str, Raw] | None = None,
    ) -> None:
        self._peer = peer
        self._method = method
        self._round = state.round if state else 0
        self._responses = dict(state.answers) if state else {}
        self._saved = dict(state.kept) if state else dict(saved or {})
        self._named = dict(state.named) if state else {}
        self.traceparent: str = state.traceparent if state else ""
        # R0811: responses that the last round did not request are ignored.
        asked = state.asked if state else ()
        self._responses |= {key: raw for key, raw in (responses or {}).items() if key in asked}
        # Without a state nothing says what was requested; only a name that the author gave does.
        self._unbound = dict(responses or {}) if state is None else {}
        self._unused = set(self._responses)
        self._occurrences: dict[str, int] = {}
        self._keys: set[str] = set()
        self.pending: dict[str, InputRequest] = {}
        # Those that were requested in this run and have a response already.
        self._answered: dict[str, InputRequest] = {}

    def ask(
        self, request: InputRequest, key: str | None = None
    ) -> tuple[str, AnyInputResponse | None]:
        """Return the key of an input request, and its response if that is already there.

        Without a response it is pending: send it, or end the exchange with `result`. `key` is a
        name to use on the wire; a response under it counts even if a client lost the state. Raises
        what the handler must see if the client does not support it, or the response does not fit.
        """
        capabilities = self._check(request)
        name, key = key, self._key(request, key)
        raw = self._responses.get(key)
        if raw is not None:
            self._unused.discard(key)
            self._answered[key] = request
            return key, request.decode_response(raw, self._peer.revision)
        if not is_supported(request, capabilities, self._peer.revision):
            raise unsupported_input_request(request, self._peer, self._method)
        if key == name and key in self._unbound:
            raw = self._responses[key] = self._unbound.pop(key)
            self._answered[key] = request
            return key, request.decode_response(raw, self._peer.revision)
        if len(self.pending) >= MAX_INPUT_REQUESTS:
            raise LocalProtocolError(f"more than {MAX_INPUT_REQUESTS} input requests in one round")
        self.pending[key] = request
        return key, None

    def _key(self, request: InputRequest, name: str | None) -> str:
        """The key of this input request; a response to another one is removed from under it."""
        digest = request.digest()
        if name is not None and not 0 < len(name) <= MAX_KEY_CHARACTERS:
            raise LocalProtocolError(f"a key has 1 to {MAX_KEY_CHARACTERS} characters")
        stem = name or f"{request.kind.name.lower()}-{digest}"
        occurrence = self._occurrences[stem] = self._occurrences.get(stem, 0) + 1
        key = name if name and occurrence == 1 else f"{stem}-{occurrence}"
        if key in self._keys:  # R0788: as with one name `a` twice, and another `a-2`
            raise LocalProtocolError(f"two input requests have the key {key!r}; use another name")
        self._keys.add(key)
        meant = digest if name else None
        if self._named.get(key) != meant:
            # The name meant another input request last time, whose response does not fit this one.
            self._responses.pop(key, None)
            self._named.pop(key, None)
        if meant is not None:
            self._named[key] = meant
        return key

    def _check(self, request: InputRequest) -> t.ClientCapabilities:
        peer = self._peer
        if (
            peer.revision.input_requests is InputRequests.IN_RESULT
            and not self._method.may_require_input
        ):  # R0785
            raise LocalProtocolError(f"{self._method.name} may not request input in this revision")
        if not isinstance(peer.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("only a server sends input requests, and only to a client")
        check_outgoing(request, peer.revision)
        return peer.capabilities

    def receive_response(self, key: str, raw: Raw) -> AnyInputResponse:
        """Decode the response to an input request that was sent. Raises `Fault` if it does not
        fit."""
        return self._take(key).decode_response(raw, self._peer.revision)

    def receive_error(self, key: str, error: RemoteError) -> Exception:
        """The error for a handler whose input request got an error response."""
        self._take(key)
        said_no = error.code == self._peer.revision.codes[FaultKind.USER_REJECTED]
        return Declined("the user declined the request") if said_no else error

    def _take(self, key: str) -> InputRequest:
        request = self.pending.pop(key, None)
        if request is None:
            raise LocalProtocolError(f"{key} is not a pending input request")
        return request

    def kept(self, key: str) -> Raw | None:
        """The value that `keep` recorded under this key in an earlier round."""
        return self._saved.get(key)

    def keep(self, key: str, value: bytes) -> None:
        """Record the JSON result of a side effect, so that it need not happen again."""
        self._saved[key] = Raw(value)

    @property
    def answered(self) -> dict[str, tuple[InputRequest, Raw]]:
        """The input requests of this run that have a response, by key, for a task that goes on
        with them."""
        return {key: (request, self._responses[key]) for key, request in self._answered.items()}

    @property
    def unused(self) -> frozenset[str]:
        """Keys of responses that were not requested this time: the input request changed from run
        to run."""
        return frozenset(self._unused)

    def result(
        self,
        seal: Callable[[bytes], str],
        *,
        principal: str,
        subject: str,
        expires_at: float,
    ) -> t.InputRequiredResult:
        """End this round: the pending input requests, and the state for the next one."""
        secret = self.request_state(principal=principal, subject=subject, expires_at=expires_at)
        return self.input_required(seal(secret))

    def request_state(self, *, principal: str, subject: str, expires_at: float) -> bytes:
        """The state for the next round, not encrypted. Raises if there can be no next round."""
        if self._peer.revision.input_requests is not InputRequests.IN_RESULT:
            raise LocalProtocolError(
                f"send the input requests one by one in {self._peer.revision.date}"
            )
        if not self.pending:
            raise LocalProtocolError("there is no pending input request")
        if self._round >= MAX_ROUNDS:
            raise Fault(
                FaultKind.INTERNAL,
                f"requested input {MAX_ROUNDS} times and still not done; an input request must not "
                "change from one run to the next",
            )
        state = RequestState(
            principal=principal,
            method=self._method.name,
            subject=subject,
            expires_at=expires_at,
            round=self._round + 1,
            asked=tuple(self.pending),
            answers=self._responses,
            kept=self._saved,
            named=self._named,
            traceparent=self.traceparent,
        )
        return encode(state)

    def input_required(self, state: str) -> t.InputRequiredResult:
        """The result with the pending input requests, and the encrypted state."""
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={key: request.as_input() for key, request in self.pending.items()},
            request_state=state,
        )
