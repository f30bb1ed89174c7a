"""How the input requests of a server cross a gateway, and what a client carries between two rounds.

Elicitation, sampling and roots are requests of the server in some revisions, and a part of an
`input_required` result in others. `input_path` says what a gateway does with them, from the
revisions of both sides.

Rules: pure: no I/O, no clock, no tasks, no encryption. The state of a server is never given to a
client as it is, and what a client sends as a state is never given to a server: both are wrapped in
a state of the gateway, which belongs to one principal, one request and one server. Every refusal of
a state is the same.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.input_requests import InputRequest, decode_url_elicitations
from colonnade.protocol.input_rounds import invalid_request_state
from colonnade.protocol.jsonrpc import NOTHING, Request, SplitParams, encode, is_bare_call
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import EVERY, InputRequests, Revision

# Rounds of one request, as our servers and clients have them.
MAX_ROUNDS = 10
# Of the URLs that are named in an error for a client that cannot open them.
MAX_NAMED_URLS = 3
MAX_URL_CHARACTERS = 2000


# ---------------------------------------------------------------- the path


class InputPath(Enum):
    """What a gateway does with an input request."""

    # The result of the server goes to the client, with a state of the gateway around that of the
    # server; the next round of the client goes to the server.
    RELAY = "relay"
    # The call of the server goes on while the client is asked in a result: it is held until the
    # next round brings the response.
    HELD = "held"
    # The gateway sends the client the requests that are in the result of the server, and sends the
    # next round to the server itself.
    LOOP = "loop"
    # The request of the server is sent to the client.
    PASS_THROUGH = "pass through"


# By how input requests are sent to the client, and by the server.
PATHS: Mapping[tuple[InputRequests, InputRequests], InputPath] = {
    (InputRequests.IN_RESULT, InputRequests.IN_RESULT): InputPath.RELAY,
    (InputRequests.IN_RESULT, InputRequests.AS_REQUEST): InputPath.HELD,
    (InputRequests.AS_REQUEST, InputRequests.IN_RESULT): InputPath.LOOP,
    (InputRequests.AS_REQUEST, InputRequests.AS_REQUEST): InputPath.PASS_THROUGH,
}


def input_path(client: Revision, server: Revision) -> InputPath:
    """How input requests of a server of one revision reach a client of another."""
    return PATHS[client.input_requests, server.input_requests]


# ---------------------------------------------------------------- the state


class GatewayState(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the gateway must know in the next round; encrypted, it is the `requestState` of the
    client.

    - `relay`: the state of a server, its key, what it requests, and the input responses of the
      gateway itself; `under_review` are the input requests whose responses a person sees before the
      server gets them.
    - `held`: a call that waits, and the replica that it waits at.
    - `url`: the input requests that stand for URL elicitations of an error; the call is repeated.
    """

    kind: Literal["relay", "held", "url"]
    principal: str
    method: str
    subject: str
    expires_at: float
    round: int
    server: str = ""
    state: str | None = None
    answered: dict[str, Raw] = {}
    under_review: dict[str, t.AnyInputRequest] = {}
    replica: str = ""
    call: str = ""
    asked: tuple[str, ...] = ()


def open_state(
    secret: bytes, *, principal: str, method: str, subject: str, now: float
) -> GatewayState:
    """The state of a next round, compared with all that it is bound to. Raises `Fault`, always the
    same one."""
    try:
        state = decode_as(GatewayState, secret)
    except Fault:
        raise invalid_request_state() from None
    if (state.principal, state.method, state.subject) != (principal, method, subject):
        raise invalid_request_state()
    if now >= state.expires_at or not 0 < state.round <= MAX_ROUNDS:
        raise invalid_request_state()
    return state


# ---------------------------------------------------------------- rounds in params


class GivenRound(NamedTuple):
    """What a request says of the round before it."""

    responses: dict[str, Raw] | None = None
    state: str | None = None


FIRST_ROUND = GivenRound()


def round_of(request: Request, params: SplitParams) -> GivenRound:
    """The input responses and the state in the params of a request. Raises `Fault`."""
    if is_bare_call(request, params) or not request.params:
        return FIRST_ROUND
    given = decode_as(t.InputResponseRequestParams, request.params)
    return GivenRound(given.input_responses, given.request_state)


_members = msgspec.json.Decoder(dict[str, Raw])
_ROUND_MEMBERS = ("inputResponses", "requestState")


def exchange_with_round(exchange: Exchange, given: GivenRound) -> Exchange:
    """The same request with these input responses and this state instead of those that it has, for
    the next hop. What it says of the round before is never passed on as it is."""
    members = _members.decode(exchange.request.params) if exchange.request.params else {}
    for name in _ROUND_MEMBERS:
        members.pop(name, None)
    if given.responses:
        members["inputResponses"] = Raw(encode(given.responses))
    if given.state is not None:
        members["requestState"] = Raw(encode(given.state))
    params = Raw(encode(members)) if members else NOTHING
    before = exchange.request
    request = Request(before.id, before.method, params, before.raw_id)
    return replace(exchange, request=request, deliver=None)


def with_params(request: t.AnyInputRequest) -> t.AnyInputRequest:
    """An input request for a client. `params` of `roots/list` are sent although they are optional:
    some clients, the Go SDK's among them, read them."""
    if isinstance(request, t.ListRootsRequest) and request.params is None:
        return replace(request, params=t.ListRootsRequestParams())
    return request


# ---------------------------------------------------------------- errors that require input

# The revisions whose servers require URL elicitations with an error; the code is the same in all.
_URL_ERRORS = tuple(one for one in EVERY if one.elicitation.url_required_error)
URL_ERROR_CODES = frozenset(one.codes[FaultKind.URL_ELICITATION_REQUIRED] for one in _URL_ERRORS)
CAPABILITY_CODES = frozenset(
    one.codes[FaultKind.CAPABILITY_MISSING]
    for one in EVERY
    if one.input_requests is InputRequests.IN_RESULT
)


def required_urls(error: RemoteError) -> list[InputRequest]:
    """The URL elicitations that a server requires with an error; none for any other error."""
    if error.code not in URL_ERROR_CODES or error.data is None:
        return []
    able = t.ClientCapabilities(elicitation=t.ElicitationCapability(form={}, url={}))
    try:
        return decode_url_elicitations(Raw(encode(error.data)), able, Peer(_URL_ERRORS[0], able))
    except Fault:
        return []


def can_open_urls(peer: Peer) -> bool:
    """Whether a client can be sent URL elicitations."""
    declared = peer.capabilities
    elicitation = declared.elicitation if isinstance(declared, t.ClientCapabilities) else None
    modes = peer.revision.elicitation.modes
    return elicitation is not None and elicitation.may_open_url and "url" in modes


def url_round(requests: list[InputRequest]) -> dict[str, t.AnyInputRequest]:
    """The input requests of a result that stand for the URL elicitations of an error."""
    found: dict[str, t.AnyInputRequest] = {}
    for number, request in enumerate(requests, 1):
        params = cast("t.ElicitRequestParams", request.params)
        found[f"url-{number}"] = t.ElicitRequest(params=replace(params, elicitation_id=None))
    return found


def words_for_urls(requests: list[InputRequest]) -> str:
    """The message for a client that cannot open URLs, for the model and the user (D10)."""
    urls = [cast("t.ElicitRequestParams", one.params).url or "" for one in requests]
    named = ", ".join(url[:MAX_URL_CHARACTERS] for url in urls[:MAX_NAMED_URLS])
    return f"this needs URL elicitation, which the client does not support; open {named} and retry"


def required_capabilities(error: RemoteError) -> dict[str, Any] | None:
    """The client capabilities that a server says it requires; None for any other error."""
    data: object = error.data
    if error.code not in CAPABILITY_CODES or not isinstance(data, dict):
        return None
    required: object = cast("dict[str, object]", data).get("requiredCapabilities")
    return cast("dict[str, Any]", required) if isinstance(required, dict) else None
