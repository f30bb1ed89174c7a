"""Input requests: elicitation, sampling and roots; which may be sent, and which responses fit.

An input request is the same whether it is a request of its own or carried in an `input_required`
result; `input_rounds` handles both. Both sides use these rules: a server before it sends one and
when the response arrives, a client when one arrives and before it responds.

Rules: pure. What a peer sent is refused with a `Fault`, what the calling code does wrong with a
`LocalProtocolError`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar, cast

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

# More than a user answers at once.
MAX_INPUT_REQUESTS = 50
# 128 bits: no two input requests with the same digest can be found.
DIGEST_CHARACTERS = 32

InputRequestParams = t.ElicitRequestParams | t.CreateMessageRequestParams | t.ListRootsRequestParams
AnyInputResponse = t.ElicitResult | t.CreateMessageResult | t.ListRootsResult


class InputRequestKind(Enum):
    """The kind of an input request; the value is the capability that it needs."""

    ELICIT = "elicitation"
    SAMPLE = "sampling"
    ROOTS = "roots"

    @property
    def method(self) -> str:
        """The method of the request."""
        return _METHODS[self]


_METHODS = {
    InputRequestKind.ELICIT: "elicitation/create",
    InputRequestKind.SAMPLE: "sampling/createMessage",
    InputRequestKind.ROOTS: "roots/list",
}
_INPUT_METHODS = frozenset(_METHODS.values())
_RESPONSE_TYPES: dict[InputRequestKind, type[AnyInputResponse]] = {
    InputRequestKind.ELICIT: t.ElicitResult,
    InputRequestKind.SAMPLE: t.CreateMessageResult,
    InputRequestKind.ROOTS: t.ListRootsResult,
}


class InputRequest(Struct, frozen=True):
    """One input request, independent of how it is sent."""

    params: InputRequestParams

    @property
    def kind(self) -> InputRequestKind:
        """Elicitation, sampling or roots."""
        if isinstance(self.params, t.ElicitRequestParams):
            return InputRequestKind.ELICIT
        return (
            InputRequestKind.SAMPLE
            if isinstance(self.params, t.CreateMessageRequestParams)
            else InputRequestKind.ROOTS
        )

    @property
    def is_url(self) -> bool:
        """Whether it is a URL elicitation."""
        return isinstance(self.params, t.ElicitRequestParams) and self.params.mode == "url"

    def digest(self) -> str:
        """A digest of the kind, the message and the form, which identifies this input request."""
        asked = self.params
        if isinstance(asked, t.ElicitRequestParams):
            asked = replace(asked, elicitation_id=None, task=None)  # made anew on every run
        elif isinstance(asked, t.CreateMessageRequestParams):
            asked = replace(asked, task=None)
        encode(asked)  # raises for what JSON cannot hold
        text = msgspec.json.encode(replace(asked, meta=None), order="sorted")
        return hashlib.sha256(self.kind.name.encode() + text).hexdigest()[:DIGEST_CHARACTERS]

    def as_input(self) -> t.AnyInputRequest:
        """The request as it stands in an `input_required` result."""
        params = self.params
        if isinstance(params, t.ElicitRequestParams):
            return t.ElicitRequest(params=params)
        if isinstance(params, t.CreateMessageRequestParams):
            return t.CreateMessageRequest(params=params)
        # Sent although it is optional: some clients, the Go SDK's among them, read it.
        return t.ListRootsRequest(params=t.ListRootsRequestParams())

    def decode_response(self, raw: Raw | bytes, revision: Revision) -> AnyInputResponse:
        """Decode the response and check it against the request. Raises `Fault` if it does not
        fit."""
        response = decode_as(_RESPONSE_TYPES[self.kind], raw)
        if isinstance(response, t.ElicitResult):
            response = self._normalized(response, revision)
        elif isinstance(response, t.CreateMessageResult):
            check_blocks(response.content, revision)
        check_response(self, response)
        return response

    def _normalized(self, response: t.ElicitResult, revision: Revision) -> t.ElicitResult:
        """Split selections that came as a string; drop content beside a URL elicitation."""
        form = cast("t.ElicitRequestParams", self.params).requested_schema
        if self.is_url or form is None:
            return replace(response, content=None)
        if response.action != "accept":
            return response
        content = response.content or {}
        if not revision.elicitation.multi_select:
            content = split_selections(form, content)
        return replace(response, content=content)


def received_input_request(
    method: Method,
    params: Raw,
    declared: t.ClientCapabilities | t.ServerCapabilities,
    revision: Revision,
) -> InputRequest | None:
    """The input request that a request is; None for any other method. Raises `Fault`."""
    if method.name not in _INPUT_METHODS or not isinstance(declared, t.ClientCapabilities):
        return None
    request = InputRequest(cast("InputRequestParams", decode_as(method.params, params)))
    check_received(request, declared, revision)
    return request


# ---------------------------------------------------------------- capabilities


class InputCapabilities(NamedTuple):
    """The input requests that a client can answer, as a value: what it declares of elicitation,
    sampling and roots. `roots_changed` is whether it notifies of changed roots."""

    form: bool = False
    url: bool = False
    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    roots: bool = False
    roots_changed: bool = False

    @classmethod
    def of(cls, peer: Peer) -> "InputCapabilities":
        """Those that a client declared, as far as its revision has them."""
        declared = peer.capabilities
        if not isinstance(declared, t.ClientCapabilities):
            return NO_INPUT
        modes, elicitation = peer.revision.elicitation.modes, declared.elicitation
        sampling, has_tools = declared.sampling, "tool_use" in peer.revision.sampling.blocks
        return cls(
            form=elicitation is not None and elicitation.may_show_form and "form" in modes,
            url=elicitation is not None and elicitation.may_open_url and "url" in modes,
            sampling=sampling is not None,
            sampling_tools=sampling is not None and has_tools and sampling.tools is not None,
            sampling_context=sampling is not None and has_tools and sampling.context is not None,
            roots=declared.roots is not None,
            roots_changed=declared.roots is not None and bool(declared.roots.list_changed),
        )

    def limited_to(self, allowed: "InputCapabilities") -> "InputCapabilities":
        """Those that are in both."""
        return InputCapabilities(*(a and b for a, b in zip(self, allowed, strict=True)))

    def declared_in(self, capabilities: t.ClientCapabilities) -> t.ClientCapabilities:
        """The same capabilities of a client, with these for input requests."""
        elicitation = sampling = None
        if self.form or self.url:
            elicitation = t.ElicitationCapability(
                form={} if self.form else None, url={} if self.url else None
            )
        if self.sampling:
            sampling = t.SamplingCapability(
                tools={} if self.sampling_tools else None,
                context={} if self.sampling_context else None,
            )
        roots = None
        if self.roots:
            changes = t.RootsCapability(list_changed=True if self.roots_changed else None)
            roots = capabilities.roots or changes
        return replace(capabilities, elicitation=elicitation, sampling=sampling, roots=roots)


class RequestDeclaration(Struct, frozen=True, cache_hash=True):
    """What one request declares of the client that it is made for, in revisions where each request
    declares it: the input requests that it can answer, None for those of the client that sends it,
    and the log level that it wants."""

    input: InputCapabilities | None = None
    log_level: t.LoggingLevel | None = None


NO_INPUT = InputCapabilities()
ALL_INPUT = InputCapabilities(*(True for _ in NO_INPUT))


def needed_capability(request: InputRequest) -> dict[str, Any]:
    """The capabilities that a client must have declared for this input request."""
    params = request.params
    if isinstance(params, t.ElicitRequestParams):
        return {"elicitation": {"url": {}} if request.is_url else {"form": {}}}
    if isinstance(params, t.CreateMessageRequestParams):
        inside: dict[str, Any] = {}
        if _with_tools(params):
            inside["tools"] = {}
        if _with_context(params):
            inside["context"] = {}
        return {"sampling": inside}
    return {"roots": {}}


def is_supported(
    request: InputRequest, capabilities: t.ClientCapabilities, revision: Revision
) -> bool:
    """Whether a client with these capabilities may get this input request, at this revision."""
    params = request.params
    if isinstance(params, t.ElicitRequestParams):
        mode = "url" if request.is_url else "form"
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
    # Before tools could be declared they could not be sent: downgrading drops them, and a model
    # that was promised tools would respond without them. So they are refused there, too.
    if _with_tools(params) and (not knows_tools or offered.tools is None):
        return False
    # R0647, R0669: the capability was added together with tools; before, the client alone decided.
    return not (_with_context(params) and knows_tools and offered.context is None)


def _with_tools(params: t.CreateMessageRequestParams) -> bool:
    if params.tools is not None or params.tool_choice is not None:
        return True
    blocks = (block for message in params.messages for block in _blocks(message.content))
    return any(isinstance(block, t.ToolUseContent | t.ToolResultContent) for block in blocks)


def _with_context(params: t.CreateMessageRequestParams) -> bool:
    return params.include_context in ("thisServer", "allServers")


def unsupported_input_request(request: InputRequest, peer: Peer, method: Method) -> Exception:
    """The error for a handler whose input request the client does not support (D10)."""
    what = {
        InputRequestKind.ELICIT: "elicitation",
        InputRequestKind.SAMPLE: "sampling",
        InputRequestKind.ROOTS: "roots",
    }[request.kind]
    if request.is_url:
        what = "URL elicitation"
    if "tools" in needed_capability(request).get("sampling", {}):
        what = "sampling with tools"
    words = f"this needs {what}, which the client does not support"
    if peer.revision.input_requests is InputRequests.AS_REQUEST and method.name == "tools/call":
        return ToolError(words)
    return missing_capability(words, **needed_capability(request))


def check_sendable(request: InputRequest, peer: Peer) -> None:
    """Raise `LocalProtocolError` for an input request that may not be sent to this peer."""
    capabilities = peer.capabilities
    if not isinstance(capabilities, t.ClientCapabilities):
        raise LocalProtocolError("only a server sends input requests, and only to a client")
    check_outgoing(request, peer.revision)
    if not is_supported(request, capabilities, peer.revision):
        raise LocalProtocolError(
            f"{request.kind.method} needs {_capability_paths(request)}, "
            f"and the client has not declared it in {peer.revision.date}"
        )


def check_outgoing(request: InputRequest, revision: Revision) -> None:
    """Raise `LocalProtocolError` for an invalid input request of the calling code."""
    try:
        _check_request(request, revision)
    except Fault as fault:
        raise LocalProtocolError(fault.message) from fault


def check_received(
    request: InputRequest, declared: t.ClientCapabilities, revision: Revision
) -> None:
    """Check an input request that a client received: only what it declared, and valid. Raises
    `Fault`."""
    wanted = without_context(request)
    if not is_supported(wanted, declared, revision):
        words = f"{request.kind.method} needs a capability that this client did not declare"
        raise Fault(FaultKind.INVALID_PARAMS, f"{words}: {_capability_paths(wanted)}")
    if isinstance(request.params, t.CreateMessageRequestParams):
        for message in request.params.messages:
            check_blocks(message.content, revision)
    _check_request(request, revision)


def without_context(request: InputRequest) -> InputRequest:
    """The same request without `includeContext`.

    The schema says that a client may ignore it, so a client that did not declare the context
    capability responds without one (D43).
    """
    params = request.params
    if isinstance(params, t.CreateMessageRequestParams) and _with_context(params):
        return InputRequest(replace(params, include_context=None))
    return request


def _capability_paths(request: InputRequest) -> str:
    ((name, inside),) = needed_capability(request).items()
    return ", ".join(f"{name}.{member}" for member in inside) or name


def _check_request(request: InputRequest, revision: Revision) -> None:
    """Raise `Fault` for an invalid input request."""
    params = request.params
    if isinstance(params, t.CreateMessageRequestParams):
        check_messages(params.messages)
    elif isinstance(params, t.ElicitRequestParams):
        if request.is_url or params.requested_schema is None:
            _check_url(params, revision)
        else:
            check_form(params.requested_schema)


def _check_url(params: t.ElicitRequestParams, revision: Revision) -> None:
    if not is_url(params.url or ""):
        raise Fault(FaultKind.INVALID_PARAMS, "url must be an absolute URL with a host")
    if revision.elicitation.url_required_error and params.elicitation_id is None:  # R0600
        raise Fault(FaultKind.INVALID_PARAMS, "a URL elicitation needs an elicitationId")


# ---------------------------------------------------------------- responses


def check_response(request: InputRequest, response: AnyInputResponse) -> None:
    """Raise `Fault` for a response that does not fit its request, before it is sent or used."""
    params = request.params
    if not isinstance(response, _RESPONSE_TYPES[request.kind]):
        words = f"{request.kind.method} is answered with {_RESPONSE_TYPES[request.kind].__name__}"
        raise Fault(FaultKind.INVALID_PARAMS, words)
    if isinstance(response, t.ElicitResult) and isinstance(params, t.ElicitRequestParams):
        form = params.requested_schema
        if request.is_url and response.content is not None:
            raise Fault(
                FaultKind.INVALID_PARAMS, "the response to a URL elicitation has no content"
            )
        if response.action == "accept" and form is not None and not request.is_url:
            check_content(form, response.content or {})
    elif isinstance(response, t.CreateMessageResult):
        choice = getattr(params, "tool_choice", None)
        if choice is not None and choice.mode == "none" and _uses_tools(response):  # R0651, R0688
            raise Fault(FaultKind.INVALID_PARAMS, "toolChoice is none, so no tool may be used")
    else:
        for root in response.roots if isinstance(response, t.ListRootsResult) else ():
            if not root.uri.lower().startswith("file://"):  # R0089
                raise Fault(FaultKind.INVALID_PARAMS, "a root must be a file:// URI")


def check_outgoing_response(request: InputRequest, response: AnyInputResponse) -> None:
    """Raise `LocalProtocolError` for a response of the calling code that does not fit (R0640)."""
    try:
        check_response(request, response)
    except Fault as fault:
        raise LocalProtocolError(fault.message) from fault


def accepted_content(response: t.ElicitResult) -> dict[str, t.ElicitValue]:
    """The content of an accepted form, empty for a URL elicitation. Raises `Declined`."""
    if response.action == "accept":
        return response.content or {}
    outcome = "declined the request" if response.action == "decline" else "cancelled the request"
    raise Declined(f"the user {outcome}", action=response.action)


Content = t.SamplingMessageContentBlock | list[t.SamplingMessageContentBlock]


def _blocks(content: Content) -> list[t.SamplingMessageContentBlock]:
    return content if isinstance(content, list) else [content]


def _uses_tools(message: t.CreateMessageResult) -> bool:
    return any(isinstance(block, t.ToolUseContent) for block in _blocks(message.content))


def check_blocks(content: Content, revision: Revision) -> None:
    """Raise `Fault` for content that a sampling message cannot have in this revision (R0104)."""
    if isinstance(content, list) and not revision.sampling.arrays:
        raise _bad_messages("a message holds one content block; send one message for each")
    for block in _blocks(content):
        if block.type not in revision.sampling.blocks:
            raise _bad_messages(f"content blocks of type {block.type[:40]!r} are not allowed here")


def check_messages(messages: Sequence[t.SamplingMessage]) -> None:
    """Check that each tool use has its result in the next message, which holds nothing else."""
    open_uses: list[str] = []
    for message in messages:
        blocks = _blocks(message.content)
        results = [block.tool_use_id for block in blocks if isinstance(block, t.ToolResultContent)]
        if results and len(results) != len(blocks):  # R0648
            raise _bad_messages("tool results beside other content; send them alone")
        if sorted(results) != open_uses:  # R0649, R0691
            raise _bad_messages("each tool use needs its result in the next message")
        if results and message.role != "user":
            raise _bad_messages("tool results belong in a user message")
        open_uses = sorted(block.id for block in blocks if isinstance(block, t.ToolUseContent))
        if open_uses and message.role != "assistant":
            raise _bad_messages("tool uses belong in an assistant message")
        if len(set(open_uses)) != len(open_uses):
            raise _bad_messages("two tool uses have the same id")
    if open_uses:
        raise _bad_messages("the last message uses tools; append their results")


def _bad_messages(message: str) -> Fault:
    return Fault(FaultKind.INVALID_PARAMS, f"messages: {message}")


# ---------------------------------------------------------------- URL elicitation by error


def url_elicitation_required(requests: Sequence[InputRequest], peer: Peer) -> Fault:
    """The error that requires URL elicitations first, in revisions that have it."""
    if not peer.revision.elicitation.url_required_error:
        raise LocalProtocolError(f"there is no URL elicitation error in {peer.revision.date}")
    if not requests or not all(request.is_url for request in requests):  # R0609, R0611
        raise LocalProtocolError(
            "the error needs at least one elicitation, and URL elicitations only"
        )
    for request in requests:
        check_sendable(request, peer)
    asked = [cast("t.ElicitRequestParams", request.params) for request in requests]
    data = t.URLElicitationRequiredData(
        elicitations=[replace(params, meta=None) for params in asked]
    )
    return Fault(FaultKind.URL_ELICITATION_REQUIRED, "open the given URLs, then retry", data)


def decode_url_elicitations(
    data: Raw, declared: t.ClientCapabilities, peer: Peer
) -> list[InputRequest]:
    """The input requests in such an error. Raises `Fault` if one is not a URL elicitation."""
    params = decode_as(t.URLElicitationRequiredData, data).elicitations
    _check_count(len(params))
    requests = [InputRequest(asked) for asked in params]
    if not requests or not all(request.is_url for request in requests):
        raise Fault(FaultKind.INVALID_PARAMS, "the error may hold URL elicitations only")
    for request in requests:
        check_received(request, declared, peer.revision)
    return requests


def elicitation_complete(request: InputRequest) -> t.ElicitationCompleteNotificationParams:
    """The params of the notification that a URL elicitation is complete, by its id (R0604)."""
    params = request.params
    id = params.elicitation_id if isinstance(params, t.ElicitRequestParams) else None
    if id is None or not request.is_url:
        raise LocalProtocolError("only a URL elicitation that has an id is reported complete")
    return t.ElicitationCompleteNotificationParams(elicitation_id=id)


# ---------------------------------------------------------------- input_required results


def input_requests_in(result: t.InputRequiredResult) -> dict[str, InputRequest]:
    """The input requests of a result, by key."""
    asked = result.input_requests or {}
    return {
        key: InputRequest(request.params or t.ListRootsRequestParams())
        for key, request in asked.items()
    }


def checked_input_requests(
    result: t.InputRequiredResult, declared: t.ClientCapabilities, revision: Revision
) -> dict[str, InputRequest]:
    """The input requests of a result, by key, each checked. Raises `Fault`."""
    requests = input_requests_in(result)
    _check_count(len(requests))
    for request in requests.values():
        check_received(request, declared, revision)
    return requests


def _check_count(requests: int) -> None:
    if requests > MAX_INPUT_REQUESTS:
        words = f"{requests} input requests at once; {MAX_INPUT_REQUESTS} are the most"
        raise Fault(FaultKind.INVALID_PARAMS, words)


P = TypeVar("P", bound=t.InputResponseRequestParams)


def retry_params(
    params: P,
    result: t.InputRequiredResult,
    responses: Mapping[str, AnyInputResponse],
    encoder: Encoder,
) -> P:
    """The params of the next attempt: every response, and the state exactly as it was given, or
    none.

    R0802: all input requests are answered before the request is sent again.
    """
    asked = input_requests_in(result)
    if responses.keys() != asked.keys():
        wrong = sorted(responses.keys() ^ asked.keys())
        raise LocalProtocolError(f"respond to each input request, and to no other; see {wrong[:5]}")
    raw: dict[str, Raw] = {}
    for key, response in responses.items():
        fit = cast("AnyInputResponse", encoder.downgrade(response))
        check_outgoing_response(asked[key], fit)
        raw[key] = Raw(encode(fit))
    return replace(params, input_responses=raw or None, request_state=result.request_state)
