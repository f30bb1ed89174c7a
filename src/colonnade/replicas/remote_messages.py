"""The messages of a request that runs at another replica, and the caller's state of it.

    caller                            runner
      begin ------------------------->  takes the id in the store, and runs the handler
      <----------------------- started
      <---- notification, input request  numbered from 1, as often as the handler sends them
      input response ---------------->
      check -- every second --------->
      <--------- the last number sent
      cancel ------------------------>
      <--------------------------- end  the encoded response

Begin, check, input response and end have responses of their own, and are sent again if there is
none. So a loss is noticed: that of a numbered message by the next one or by a check.

Rules: pure. Every message has a version, first. Sizes and numbers are bounded here, since a release
with a bug may run beside this one.
"""

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from colonnade.errors import EFFECT_UNKNOWN, Fault, FaultKind, RemoteError
from colonnade.ports import Caller, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.input_requests import InputRequest, InputRequestParams
from colonnade.protocol.jsonrpc import NOTHING, Request, encode, parse_id, split_params
from colonnade.protocol.negotiation import Callers, Identity, Peer
from colonnade.protocol.revision import EVERY

# Of what is carried; the messages of replicas have a version of their own.
REMOTE_VERSION = 1

# An id is 128 random bits in hexadecimal digits.
ID_CHARACTERS = 32
# A key names what the request is for at the runner: a server and a caller.
MAX_KEY_CHARACTERS = 2048
# Requests that one check names; a caller with more sends several.
MAX_CHECKED = 256
# Input requests of one request that wait for responses at the same time.
MAX_OPEN_INPUTS = 50
# The runner sends so many messages, and bytes, ahead of what the caller has delivered.
WINDOW_MESSAGES = 64
WINDOW_BYTES = 256 * 1024
# Checks without a response, one a second, before the runner is given up.
MAX_FAILED_CHECKS = 3

RemoteId: TypeAlias = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{{ID_CHARACTERS}}}\Z")]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]


class PeerSnapshot(Struct, frozen=True, omit_defaults=True):
    """A client, for another process: in JSON, since capabilities hold raw JSON."""

    revision: str
    capabilities: t.ClientCapabilities = t.ClientCapabilities()
    info: "t.Implementation | None" = None
    log_level: "t.LoggingLevel | None" = None


class RemoteBegin(Struct, frozen=True, array_like=True):
    """Run a request. Times are in seconds since 1970.

    A runner that reads it after `start_until` does not start; `deadline` ends the run. `scopes` is
    None if the caller's credentials are not checked.
    """

    version: int
    id: RemoteId
    key: Annotated[str, Meta(max_length=MAX_KEY_CHARACTERS)]
    method: str
    raw_id: bytes
    params: bytes
    peer: bytes
    principal: str
    callers: str
    scopes: list[str] | None
    claims: bytes
    logs: bool
    start_until: float
    deadline: float | None


class RemoteStarted(Struct, frozen=True, array_like=True):
    """The response to begin: empty if the request runs, else why it certainly does not."""

    version: int
    refusal: str


class RunnerMessage(Struct, frozen=True, array_like=True):
    """A message of the runner beside the response, numbered from 1.

    `input` is the number of an input request: of `input_request`, and of the one to withdraw.
    """

    version: int
    id: RemoteId
    number: _Number
    form: Literal["notification", "input_request", "withdrawal", "hang_up"]
    input: _Number
    body: bytes


class RemoteInputResponse(Struct, frozen=True, array_like=True):
    """The response to an input request: the raw result, or an error.

    An error without a code is one without a response, such as a lost connection; it has a message.
    """

    version: int
    id: RemoteId
    input: _Number
    result: bytes
    code: int | None
    message: str
    data: bytes


class RemoteCancel(Struct, frozen=True, array_like=True):
    """The caller does not wait for a request any more."""

    version: int
    id: RemoteId


class CheckedRequest(Struct, frozen=True, array_like=True):
    """A request that the caller waits for, and the last message of it that it has delivered."""

    id: RemoteId
    delivered: _Number


class RemoteCheck(Struct, frozen=True, array_like=True):
    """Requests that the caller waits for."""

    version: int
    requests: Annotated[list[CheckedRequest], Meta(max_length=MAX_CHECKED)]


class RemoteChecked(Struct, frozen=True, array_like=True):
    """The number of the last message that was sent, for each request; None for one that does not
    run here, or does not any more."""

    version: int
    sent: Annotated[list[int | None], Meta(max_length=MAX_CHECKED)]


class RemoteFault(Struct, frozen=True, array_like=True):
    """The fault of a response that is an error, for the transport of the caller. `status` is 0
    unless the fault has one of its own."""

    kind: str
    message: str
    status: int
    headers: list[tuple[str, str]]

    @classmethod
    def of(cls, fault: Fault) -> "RemoteFault":
        """The fault as it is sent."""
        if isinstance(fault, HttpError):
            return cls(fault.kind.name, fault.message, fault.status, list(fault.headers))
        return cls(fault.kind.name, fault.message, 0, [])

    def fault(self) -> Fault:
        """The fault as it was raised, without its data, which the response has."""
        kind: FaultKind = _FAULT_KINDS.get(self.kind, FaultKind.INTERNAL)
        if not self.status:
            return Fault(kind, self.message)
        return HttpError(self.status, self.message, kind=kind, headers=tuple(self.headers))


class RemoteEnd(Struct, frozen=True, array_like=True):
    """The request has ended: its encoded response, empty if there is none."""

    version: int
    id: RemoteId
    sent: _Number
    response: bytes
    fault: RemoteFault | None


_FAULT_KINDS = {kind.name: kind for kind in FaultKind.members()}
_CALLERS = {callers.name: callers for callers in Callers.members()}

M = TypeVar("M", bound=Struct)

encode_remote: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


def decode_remote(type: type[M], body: bytes) -> M | None:
    """A message of another replica; None if it cannot be read, or is of a newer version."""
    try:
        message = msgspec.msgpack.decode(body, type=type)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return message if getattr(message, "version", 0) == REMOTE_VERSION else None


# ---------------------------------------------------------------- requests and input requests


def describe_request(
    context: RequestContext, id: str, key: str, start_until: float, deadline: float | None
) -> RemoteBegin:
    """The request of a caller, for another process: no headers, and no token."""
    exchange, peer = context.exchange, context.exchange.peer
    assert isinstance(peer.capabilities, t.ClientCapabilities)
    snapshot = PeerSnapshot(peer.revision.date, peer.capabilities, peer.info, peer.log_level)
    return RemoteBegin(
        REMOTE_VERSION,
        id,
        key,
        exchange.method.name,
        exchange.request.raw_id,
        bytes(exchange.request.params),
        encode(snapshot),
        exchange.principal,
        context.callers.name,
        None if exchange.scopes is None else sorted(exchange.scopes),
        encode(dict(context.claims)),
        exchange.logs,
        start_until,
        deadline,
    )


def restore_exchange(begin: RemoteBegin, identity: Identity) -> Exchange:
    """The request as the runner handles it. Raises `Fault` for what this release cannot handle."""
    try:
        snapshot = msgspec.json.decode(begin.peer, type=PeerSnapshot)
        request_id = parse_id(begin.raw_id)
        caller = Caller(begin.principal)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Fault(FaultKind.INTERNAL, "the request of another replica is malformed") from None
    revision = EVERY.get(snapshot.revision)
    if revision is None:
        words = f"this replica does not know the revision {snapshot.revision[:20]!r}"
        raise Fault(FaultKind.INTERNAL, words)
    peer = Peer(revision, snapshot.capabilities, snapshot.info, snapshot.log_level)
    method = revision.method(begin.method, peer.extensions) or identity.extension_method(
        begin.method, revision
    )
    if method is None or method.load_result is None:
        raise Fault(FaultKind.METHOD_NOT_FOUND, f"this replica has no {begin.method[:80]!r}")
    params = Raw(begin.params) if begin.params else NOTHING
    return Exchange(
        Request(request_id, begin.method, params, begin.raw_id),
        split_params(params),
        method,
        peer,
        identity.encoder(revision),
        caller.principal,
        logs=begin.logs and identity.logs,
        scopes=None if begin.scopes is None else frozenset(begin.scopes),
    )


def callers_named(name: str) -> Callers:
    """The callers of this name; those of an unknown one cannot be distinguished."""
    return _CALLERS.get(name, Callers.ANONYMOUS)


def encode_input_request(request: InputRequest) -> bytes:
    """An input request in JSON, with the task that its metadata names."""
    if isinstance(request.params, t.ListRootsRequestParams):
        return encode(t.ListRootsRequest(params=request.params))
    return encode(request.as_input())


def decode_input_request(body: bytes) -> InputRequest | None:
    """The input request of a runner; None if it cannot be read."""
    try:
        found = msgspec.json.decode(body, type=t.AnyInputRequest)
    except (msgspec.MsgspecError, RecursionError):
        return None
    params: InputRequestParams = found.params or t.ListRootsRequestParams()
    return InputRequest(params)


def input_error(id: str, input: int, error: Exception) -> RemoteInputResponse:
    """The response to an input request that failed."""
    if isinstance(error, RemoteError):
        data = b"" if error.data is None else encode_finite(error.data)
        return RemoteInputResponse(REMOTE_VERSION, id, input, b"", error.code, error.message, data)
    message = str(error) or type(error).__name__
    return RemoteInputResponse(REMOTE_VERSION, id, input, b"", None, message, b"")


# ---------------------------------------------------------------- the caller's state


class RemotePhase(Enum):
    """How far a request is, as its caller knows it."""

    STARTING = "begin was sent"
    RUNNING = "the runner has started it"
    ENDED = "it has an outcome"


class RemoteFailure(Struct, frozen=True):
    """A request has no outcome. `effect_unknown` is whether it may have had an effect."""

    reason: str
    effect_unknown: bool

    def fault(self) -> Fault:
        """The error for the caller. `data` says for programs what the message says for people."""
        effect = EFFECT_UNKNOWN if self.effect_unknown else "it was not started; try again"
        data: dict[str, Any] = {"effectUnknown": self.effect_unknown}
        return Fault(FaultKind.INTERNAL, f"{self.reason}; {effect}", data)


class RemoteCall:
    """The caller's state of one request: messages and checks in, what to do out.

    Methods return a failure if the request has no outcome any more, and None else.
    """

    def __init__(self, id: str, runner: str) -> None:
        self.id = id
        self.runner = runner
        self.phase: RemotePhase = RemotePhase.STARTING
        self.received: int = 0
        self.delivered = 0
        self._failed_checks = 0
        self._open_inputs: set[int] = set()

    def on_started(self) -> None:
        """The runner has acknowledged begin."""
        if self.phase is RemotePhase.STARTING:
            self.phase = RemotePhase.RUNNING

    def accepts(self, message: RunnerMessage) -> bool | RemoteFailure:
        """Whether to deliver a message of the runner: False for one that came before."""
        if self.phase is RemotePhase.ENDED or message.number <= self.received:
            return False
        if message.number != self.received + 1:
            return self._fail("messages of the replica that runs the request were lost")
        self.on_started()  # the acknowledgement may be lost, or late
        self.received = message.number
        if message.form == "input_request":
            if len(self._open_inputs) >= MAX_OPEN_INPUTS:
                return self._fail(
                    f"the request has more than {MAX_OPEN_INPUTS} open input requests"
                )
            self._open_inputs.add(message.input)
        return True

    def on_input_settled(self, input: int) -> None:
        """An input request has its response, or was withdrawn."""
        self._open_inputs.discard(input)

    def on_end(self) -> bool:
        """The response has come; False for one that came before."""
        if self.phase is RemotePhase.ENDED:
            return False
        self.phase = RemotePhase.ENDED
        return True

    def on_check(self, sent: int | None) -> RemoteFailure | None:
        """The runner has responded to a check."""
        self._failed_checks = 0
        if self.phase is not RemotePhase.RUNNING:
            return None
        if sent is None:
            return self._fail("the replica that ran the request does not know it any more")
        if sent > self.received:
            return self._fail("messages of the replica that runs the request were lost")
        return None

    def on_failed_check(self, alive: bool) -> RemoteFailure | None:
        """The runner has not responded to a check; `alive` is whether it has a lease."""
        self._failed_checks += 1
        if self.phase is not RemotePhase.RUNNING:
            return None
        if not alive:
            return self._fail("the replica that ran the request has ended")
        if self._failed_checks >= MAX_FAILED_CHECKS:
            return self._fail("the replica that ran the request does not respond")
        return None

    def on_refused(self, reason: str) -> RemoteFailure:
        """The request was certainly not started."""
        return self._fail(reason, effect_unknown=False)

    def on_unacknowledged(self, reason: str, *, given_up: bool) -> RemoteFailure:
        """Begin has no response; `given_up` is whether the id was taken from the runner, which can
        not start it then."""
        return self._fail(reason, effect_unknown=not given_up)

    def _fail(self, reason: str, *, effect_unknown: bool = True) -> RemoteFailure:
        self.phase = RemotePhase.ENDED
        return RemoteFailure(reason, effect_unknown)
