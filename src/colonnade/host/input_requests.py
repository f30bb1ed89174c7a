"""Input requests of all servers (elicitation, sampling) in one callback: `on_input_request`.

    async def on_input_request(request: HostInputRequest) -> object:
        print(f"{request.server} asks: {request.params.message}")
        return {"seat": "12A"}

An input request is sent to the caller of the call that it belongs to: for a call of this program
that is `on_input_request`. An input request in a result belongs to that call; one that is sent as a
request belongs to one of the calls in flight in that session, and all of them are named.

Rules: without the callback nothing is advertised, and every input request is refused at once. No
result is made up that the user did not give. A callback that fails or times out is a refusal; the
server does not learn why.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Raw

from colonnade.client.input_callbacks import elicit_result, sampling_result
from colonnade.errors import Declined, Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.host.servers.session_input import SendInputRequest, may_be_asked
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputRequest,
    is_supported,
    without_context,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

log: logging.Logger = logging.getLogger("colonnade.host")

# A person must find the window, read the request and decide.
INPUT_TIMEOUT_S = 600.0
# The log level of a call that has an `on_log` callback.
LOG_LEVEL: t.LoggingLevel = "info"


class PendingCall(NamedTuple):
    """A call in flight: its qualified name or URI, its arguments, its caller and its method; the id
    of the task that it has become, if it is one."""

    name: str
    arguments: dict[str, Any]
    caller: str
    method: str = "tools/call"
    task: str = ""


class HostInputRequest(NamedTuple):
    """An input request of a server: `kind` is "elicit" for elicitation and "sample" for sampling,
    and `params` are those of the request. Roots are set in the configuration.

    `calls` are those that it may belong to: exactly one if that is known, and none if the server
    sent it outside of a call.
    """

    server: str
    kind: Literal["elicit", "sample"]
    params: t.ElicitRequestParams | t.CreateMessageRequestParams
    calls: tuple[PendingCall, ...] = ()


# Returns what `on_elicit` and `on_sample` of a client return; None, and every exception, declines.
OnInputRequest: TypeAlias = Callable[[HostInputRequest], Any | Awaitable[Any]]


class RoutedInputRequest(InputRequest, frozen=True):
    """An input request on its way to the caller, with the key of the server and the calls."""

    server: str = ""
    requests: tuple[RequestContext, ...] = ()


class InputRequestHandler:
    """Answers the input requests that belong to calls of this program, with the callback."""

    def __init__(
        self, on_input_request: OnInputRequest | None = None, timeout_s: float = INPUT_TIMEOUT_S
    ) -> None:
        self._on_input_request = on_input_request
        self._timeout_s = timeout_s
        capabilities = t.ClientCapabilities()
        if on_input_request is not None:
            capabilities = t.ClientCapabilities(
                elicitation=t.ElicitationCapability(form={}, url={}),
                sampling=t.SamplingCapability(),
            )
        # This program as the client of a call, without and with log messages.
        self.peer: Peer = Peer(NEWEST, capabilities)
        self.peer_with_logs: Peer = Peer(NEWEST, capabilities, None, LOG_LEVEL)

    @property
    def can_answer(self) -> bool:
        """Whether there is a callback."""
        return self._on_input_request is not None

    def hint(self, error: RemoteError, *, may_sample: bool) -> str:
        """What to change in this program, if a server could not send an input request; otherwise
        an empty string. `may_sample` is whether the settings of the server allow sampling."""
        required = _required_capabilities(error)
        if not self.can_answer and required & {"elicitation", "sampling"}:
            return "pass Host(on_input_request=…) to answer it"
        if "sampling" in required and not may_sample:
            return "set sampling = true in its settings"
        return ""

    async def answer(self, request: InputRequest) -> Raw:
        """The result, encoded. Raises `RemoteError` if there is none."""
        server, contexts = "", ()
        if isinstance(request, RoutedInputRequest):
            server, contexts = request.server, request.requests
        params = request.params
        if isinstance(params, t.ListRootsRequestParams):
            raise _refusal("roots are set in the configuration")
        kind = "elicit" if isinstance(params, t.ElicitRequestParams) else "sample"
        calls = tuple(call for context in contexts if (call := _pending_call(context)) is not None)
        try:
            returned = await self._call_back(HostInputRequest(server, kind, params, calls))
            result = Raw(encode(_result(params, returned)))
            request.decode_response(result, NEWEST)  # it must fit the request
            return result
        except Declined as declined:
            if isinstance(params, t.ElicitRequestParams):
                return Raw(encode(t.ElicitResult(action=declined.action)))
            raise _refusal(str(declined) or "the user declined") from None
        except Exception as error:
            log.error(
                "the input request of server %r is not answered: %s",
                server,
                _reason(error),
                exc_info=error,
            )
            if isinstance(params, t.ElicitRequestParams):
                return Raw(encode(t.ElicitResult(action="cancel")))
            raise _refusal("the input request was not answered") from None

    async def _call_back(self, request: HostInputRequest) -> Any:
        if self._on_input_request is None:
            raise Declined("input requests cannot be answered here")
        returned = self._on_input_request(request)
        if not inspect.isawaitable(returned):
            return returned
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await returned
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"no result within {self._timeout_s:g} s") from None
            raise


def _required_capabilities(error: RemoteError) -> set[str]:
    """The client capabilities that a server says it requires, in the data of an error. A server
    that says so in its message alone is not understood: the message is passed on as it is."""
    data: object = error.data
    if not isinstance(data, dict):
        return set()
    required = cast("dict[str, object]", data).get("requiredCapabilities")
    return set(cast("dict[str, object]", required)) if isinstance(required, dict) else set()


def _result(
    params: t.ElicitRequestParams | t.CreateMessageRequestParams, returned: Any
) -> AnyInputResponse:
    if isinstance(params, t.ElicitRequestParams):
        return elicit_result(params, returned)
    return sampling_result(returned, "unknown")


def _reason(error: Exception) -> str:
    """Why there is no result, for the author of the callback."""
    if isinstance(error, Fault | LocalProtocolError):
        return f"on_input_request returned no valid result: {error}"
    return f"on_input_request raised {type(error).__name__}: {error}"


def _refusal(message: str) -> RemoteError:
    return RemoteError(NEWEST.codes[FaultKind.USER_REJECTED], message)


def _pending_call(request: RequestContext) -> PendingCall | None:
    """The call of a request, for people; None for a list."""
    exchange = request.exchange
    name = exchange.params.name if exchange.params.name is not None else exchange.params.uri
    if not isinstance(name, str):
        return None
    arguments: dict[str, Any] = {}
    raw = exchange.params.arguments
    if raw:
        given: Any = msgspec.json.decode(raw)
        arguments = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    task = _task_of(exchange.params.meta)
    return PendingCall(name, arguments, exchange.principal, exchange.method.name, task)


def _task_of(meta: Raw) -> str:
    """The id of the task that a request of this program is about; empty if it is about none."""
    if not meta:
        return ""
    related: Any = msgspec.json.decode(meta).get(t.RELATED_TASK_KEY)
    id: object = cast("dict[str, object]", related).get("taskId") if related else ""
    return id if isinstance(id, str) else ""


def input_request_sender(server: str) -> SendInputRequest:
    """A function that sends the input requests of a server to the caller of the calls that they may
    belong to."""

    async def send(contexts: tuple[RequestContext, ...], request: InputRequest) -> Raw:
        # A list is made by the host itself, so there is no caller to send anything to.
        calls = tuple(context for context in contexts if may_be_asked(context))
        if not calls:
            raise _refusal("no call is in flight that this input request could belong to")
        # All are of one caller; the latest is the most likely.
        peer = calls[-1].exchange.peer
        capabilities = peer.capabilities
        if not isinstance(capabilities, t.ClientCapabilities):
            capabilities = t.ClientCapabilities()
        if not is_supported(request, capabilities, peer.revision):
            request = without_context(request)
        if not is_supported(request, capabilities, peer.revision):
            code = peer.revision.codes[FaultKind.METHOD_NOT_FOUND]
            raise RemoteError(code, f"the caller does not support {request.kind.method}")
        return await calls[-1].ask(RoutedInputRequest(request.params, server, calls))

    return send
