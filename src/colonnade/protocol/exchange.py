"""Exchange: one request from its arrival to its response.

An exchange belongs to the side that responds. It encodes the messages that belong to its request
for the revision of the caller, and none after it is settled: what a handler does then is dropped.

Rules: no I/O, no clock, no tasks. Methods return the bytes to send, or None for nothing; what
cannot be encoded is refused before anything has changed.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from colonnade.errors import ConnectionLost, Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as, decode_unchecked
from colonnade.protocol.codec.encode import Encoder, encode_finite
from colonnade.protocol.jsonrpc import (
    NOTHING,
    Request,
    SplitParams,
    encode_error,
    encode_notification,
)
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Callers, Peer, callers_of, check_progress_token
from colonnade.protocol.revision import (
    BadToolInput,
    InputRequests,
    LogControl,
    Revision,
    Tasks,
    error_code,
)

if TYPE_CHECKING:  # few exchanges request input, are forwarded, or have notifications of extensions
    from colonnade.protocol.extensions import ExtensionNotificationParams
    from colonnade.protocol.forwarded import ResultOrigin
    from colonnade.protocol.input_requests import AnyInputResponse, InputRequest

# The log level of a session before it sets one.
DEFAULT_LOG_LEVEL: t.LoggingLevel = "info"

LISTEN = "subscriptions/listen"


class Network(Struct, frozen=True):
    """How a peer is connected, in the terms of OpenTelemetry: `pipe` or `tcp`, the protocol above
    it, the address of the peer, and the `Mcp-Session-Id`. What is not known or does not apply is
    empty."""

    transport: str = ""
    protocol: str = ""
    version: str = ""
    address: str = ""
    port: int | None = None
    session_id: str = ""


NO_NETWORK: Final = Network()
PIPE: Final = Network("pipe")


class RequestRecord(Struct):
    """What telemetry records of one request while it is handled; an exchange without telemetry has
    none.

    `traceparent` is that of the span of this request, `earlier_traceparent` that of its first
    `input_required` round. `failure` is the class of an exception that was reported, and its id in
    the log; `refused` is why a middleware has refused it.
    """

    traceparent: str = ""
    earlier_traceparent: str = ""
    result: t.ProtocolType | None = None
    failure: tuple[str, str] | None = None
    refused: str = ""


class CallerLost(ConnectionLost):
    """The caller's connection is lost, as opposed to a connection of the handler itself."""


class Exchange(Struct, eq=False):
    """One request that is being handled.

    `input_request` is set if the request is one to a client. `deliver` is called at the end, and
    returns what is to be sent then: the response, or nothing until its batch is complete. `logs` is
    whether this side declared logging (R0153). `scopes` are the scopes of the caller's credentials,
    None if they are not checked. `token` caches `progress_token`. `record` is that of telemetry.
    `origin` is where the outcome comes from, if the request was forwarded to another server.
    `owner` is whose request it is on whose stream this one came, if the transport has such streams.
    """

    request: Request
    params: SplitParams
    method: Method
    peer: Peer
    encoder: Encoder
    principal: str = ""
    input_request: "InputRequest | None" = None
    deliver: "Callable[[Exchange, bytes | None], bytes | None] | None" = None
    logs: bool = True
    scopes: frozenset[str] | None = None
    last_progress: float | None = None
    settled: bool = False
    token: t.ProgressToken | UnsetType | None = UNSET
    record: RequestRecord | None = None
    origin: "ResultOrigin | None" = None
    owner: Any = None

    def __repr__(self) -> str:
        return f"Exchange({self.method.name}, id={self.request.id!r}, settled={self.settled})"

    @property
    def progress_token(self) -> t.ProgressToken | None:
        """The progress token of the caller, if it sent one. Raises `Fault` (R0075)."""
        if self.token is UNSET:
            self.token = _token_of(self.params.meta) if self.params.meta else None
        return self.token

    def check_token(self) -> None:
        """Refuse an invalid token before anything runs; that of an envelope was checked on
        decoding."""
        _ = self.progress_token

    # ------------------------------------------------------------ progress and logging

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> bytes | None:
        """A progress notification. It must increase; raises `LocalProtocolError` if it does not."""
        token = self.progress_token
        if self.settled or token is None or self.method.name == LISTEN:
            return None
        if _is_non_finite(progress) or _is_non_finite(total):
            raise LocalProtocolError("progress and total are finite numbers")
        if self.last_progress is not None and progress <= self.last_progress:
            raise LocalProtocolError(
                f"progress went from {self.last_progress} to {progress}; it must increase"
            )
        params = t.ProgressNotificationParams(
            progress_token=token, progress=progress, total=total, message=message
        )
        data = self._notify("notifications/progress", params)
        self.last_progress = progress
        return data

    def wants(self, level: t.LoggingLevel) -> bool:
        """Whether this caller wants log messages of this level."""
        if self.settled or not self.logs or self.method.name == LISTEN:
            return False
        wanted = self.log_level
        return wanted is not None and t.severe_enough(level, wanted)

    @property
    def log_level(self) -> t.LoggingLevel | None:
        """The minimum log level of this caller; None for no log messages."""
        wanted = self.peer.log_level
        if wanted is None and self.peer.revision.log_control is LogControl.BY_METHOD:
            return DEFAULT_LOG_LEVEL
        return wanted

    def log(self, level: t.LoggingLevel, data: Any, logger: str | None = None) -> bytes | None:
        """A log message notification, if the caller wants this level."""
        if not self.wants(level):
            return None
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=logger)
        return self._notify("notifications/message", params)

    def notify_extension(
        self, extension: str, method: str, params: "ExtensionNotificationParams"
    ) -> bytes | None:
        """A notification of an extension that belongs to this request; None if the caller did not
        declare the extension."""
        if self.settled or extension not in self.peer.extensions:
            return None
        return self._notify(method, params)

    def _notify(self, method: str, params: t.ProtocolType) -> bytes:
        return encode_notification(method, self.encoder.params(params))

    # ------------------------------------------------------------ response

    def settle(
        self, result: t.ProtocolType, wrap: bool | None = None, origin: Revision | None = None
    ) -> bytes | None:
        """Return the response with this result; None if there was a response already. `wrap` and
        `origin` are those of `Encoder.result`.

        Raises `LocalProtocolError` for a result that this request cannot have; it stays open then.
        """
        if self.settled:
            return None
        if type(result) is not self.method.result or self.input_request is not None:
            result = getattr(result, "plain", result)  # one that was decoded to be passed on
            self._check(result)
        data = self.encoder.response(self.request.raw_id, result, origin, wrap)
        self.settled = True
        return data if self.deliver is None else self.deliver(self, data)

    def _check(self, result: t.ProtocolType) -> None:
        if isinstance(result, t.InputRequiredResult):
            self._check_input_required(result)
        elif self.input_request is not None and isinstance(result, t.InputResponse):
            from colonnade.protocol.input_requests import check_outgoing_response

            check_outgoing_response(
                self.input_request, cast("AnyInputResponse", self.encoder.downgrade(result))
            )
        elif type(result) in (t.ExtCreateTaskResult, t.CreateTaskResult):
            self._check_task(result)
        elif self.method.result not in (type(result), t.GetTaskPayloadResult):
            raise LocalProtocolError(
                f"{type(result).__name__} is not a result of {self.method.name}"
            )

    def _check_input_required(self, result: "t.InputRequiredResult") -> None:
        """Check that `input_required` is allowed (R0785) and its capabilities were declared
        (R0798)."""
        if (
            self.peer.revision.input_requests is not InputRequests.IN_RESULT
            or not self.method.may_require_input
        ):
            raise LocalProtocolError(f"{self.method.name} may not have an input_required result")
        from colonnade.protocol.input_requests import check_sendable, input_requests_in

        for question in input_requests_in(result).values():
            check_sendable(question, self.peer)

    def _check_task(self, result: t.ProtocolType) -> None:
        """R1151: a task only for a caller that declared tasks on this very request."""
        tasks = self.peer.revision.tasks
        if isinstance(result, t.CreateTaskResult):
            good = tasks is Tasks.CORE
        else:
            declared = t.TASKS_EXTENSION_ID in self.peer.extensions
            good = tasks is Tasks.EXTENSION and declared and self.method.may_become_task
        if not good:
            raise LocalProtocolError(f"{self.method.name} cannot become a task for this caller")

    def fail(self, fault: Fault) -> bytes | None:
        """Return an error response; None if there was a response already.

        Raises `LocalProtocolError` for data that JSON cannot hold; the request stays open then.
        """
        if self.settled:
            return None
        code = error_code(fault, self.peer.revision)
        data = (
            self.encoder.downgrade(fault.data)
            if isinstance(fault.data, t.ProtocolType)
            else fault.data
        )
        if data is not None:
            data = Raw(encode_finite(data))
        return self._end(encode_error(self.request.raw_id, code, fault.message, data))

    def settle_forwarded(
        self, result: t.ProtocolType, origin: "ResultOrigin", *, is_inspected: bool = True
    ) -> bytes | None:
        """Return the response with a result of another server, as `settle` does."""
        if self.settled:
            return None
        if type(result) is not origin.tool_result or self.method.result is not t.CallToolResult:
            self._check(result)
        raw_id = self.request.raw_id
        return self._end(origin.encode(self.encoder, raw_id, result, is_inspected=is_inspected))

    def pass_error(self, code: int, message: str, data: Any) -> bytes | None:
        """Return an error response of another server, whose code is one for this client already;
        None if there was a response."""
        if self.settled:
            return None
        raw = None if data is None else Raw(encode_finite(data))
        return self._end(encode_error(self.request.raw_id, code, message, raw))

    def refuse_arguments(self, fault: Fault) -> bytes | None:
        """Report arguments that do not fit the schema of a tool, as the revision requires (D16)."""
        if self.peer.revision.bad_tool_input is BadToolInput.ERROR:
            return self.fail(fault)
        return self.settle(
            t.CallToolResult(content=[t.TextContent(text=fault.message)], is_error=True)
        )

    def settle_encoded(self, response: bytes) -> bytes | None:
        """Return a response that was encoded for this request elsewhere, such as in another
        process; None if there was a response already."""
        return None if self.settled else self._end(response)

    def abandon(self) -> bytes | None:
        """End without a response: the caller is gone or cancelled. Returns the rest of its
        batch, if any."""
        return None if self.settled else self._end(None)

    def _end(self, data: bytes | None) -> bytes | None:
        self.settled = True
        return self.deliver(self, data) if self.deliver is not None else data


_EMPTY: Mapping[Any, Any] = MappingProxyType({})


class RequestFields:
    """The fields of a request, read-only: for middleware, which gets whatever has an exchange.

    Nothing is decoded before it is accessed, and then anew each time: changes to what is returned
    do not change the request.
    """

    __slots__ = ()
    exchange: Exchange

    @property
    def method(self) -> str:
        """The method: `tools/call`."""
        return self.exchange.method.name

    @property
    def params(self) -> dict[str, Any]:
        """The params as JSON values; empty if there are none."""
        raw = self.exchange.request.params
        return cast("dict[str, Any]", msgspec.json.decode(raw)) if raw else {}

    @property
    def tool(self) -> str | None:
        """The tool that is called, by the name that the caller used; None for other methods."""
        name = self.exchange.params.name
        return str(name) if self.exchange.method.params is t.CallToolRequestParams else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool or a prompt, not validated yet; empty if there are none."""
        found: Any = self.params.get("arguments")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    @property
    def principal(self) -> str:
        """The principal, as the verifier returned it; empty without one."""
        return self.exchange.principal

    @property
    def peer(self) -> Peer:
        """The client: its revision, its implementation info and its capabilities."""
        return self.exchange.peer

    @property
    def callers(self) -> Callers:
        """The callers of the connection, as far as its transport distinguishes them."""
        return callers_of(self.exchange.principal)

    @property
    def network(self) -> Network:
        """How the caller is connected; unknown here."""
        return NO_NETWORK

    @property
    def next_id(self) -> int | None:
        """The id of the next request that is sent to the caller; None if there can be none."""
        return None

    @property
    def debug(self) -> bool:
        """Whether the caller is sent the exception of a handler that failed."""
        return False

    @property
    def task_journal(self) -> Any:
        """The journal of the task that the request runs in; None outside of a task."""
        return None

    @property
    def input_relay(self) -> Any:
        """What takes the input requests of servers; None: they are sent with `ask`."""
        return None


class NonHttpRequestFields(RequestFields):
    """The fields of a request that did not arrive over HTTP: no headers, and no token."""

    __slots__ = ()

    @property
    def callers(self) -> Callers:
        """One caller, at the other end."""
        return Callers.SINGLE

    @property
    def claims(self) -> Mapping[str, Any]:
        """Empty."""
        return _EMPTY

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Empty."""
        return _EMPTY


def _is_non_finite(value: float | None) -> bool:
    return isinstance(value, float) and not isfinite(value)


class _Token(Struct):
    token: t.ProgressToken | None = msgspec.field(name=t.PROGRESS_TOKEN_KEY, default=None)


_TOKEN = t.PROGRESS_TOKEN_KEY.encode()
_BACKSLASH = ord("\\")


def _token_of(meta: Raw) -> t.ProgressToken | None:
    """The progress token in a `_meta`, if there is one. Raises `Fault` (R0075).

    Most requests have none: they are not decoded for it. A key may be written with escapes.
    """
    raw = bytes(meta)
    if raw.find(_TOKEN) < 0 and _BACKSLASH not in raw:
        return None
    return check_progress_token(decode_as(_Token, raw).token)


class _Task(Struct):
    task: Raw = NOTHING


def check_task_support(exchange: Exchange, support: t.TaskSupport | None) -> None:
    """Check that a tool is called as a task, or not, as it requires. Raises `Fault` (D35)."""
    if exchange.peer.revision.tasks is not Tasks.CORE:
        return
    asked = bool(decode_as(_Task, exchange.request.params).task)
    if support == "required" and not asked:
        raise Fault(FaultKind.METHOD_NOT_FOUND, "this tool runs as a task only; send task")
    if asked and support not in ("required", "optional"):
        raise Fault(FaultKind.METHOD_NOT_FOUND, "this tool does not run as a task; leave task out")


# ---------------------------------------------------------------- results of our own requests


class _ResultType(Struct):
    result_type: Any = msgspec.field(name="resultType", default=None)


_COMPLETE = ("complete", None)


def decode_result(
    method: Method,
    raw: Raw,
    peer: Peer,
    own_extensions: frozenset[str] = frozenset(),
    *,
    as_task: bool = False,
    tool_result: type[t.CallToolResult] = t.CallToolResult,
) -> t.ProtocolType:
    """Decode the result of a request. `own_extensions` are those that the request declared;
    `as_task` is whether it asked to run as a task, in the revision whose core has tasks, and
    `tool_result` what the result of a tool is decoded as.

    An absent `resultType` is `complete` (R0743); one that is not recognised is invalid (R0742).
    Raises `Fault`.
    """
    if method.result is None:
        raise LocalProtocolError(f"{method.name} has no result")
    if as_task and peer.revision.tasks is Tasks.CORE:
        return decode_unchecked(t.CreateTaskResult, raw)
    kind: Any = None
    result_type = method.result
    if result_type is t.CallToolResult:
        result_type = tool_result
    if peer.revision.typed_results:
        try:  # nearly all are complete; the others are decoded once more
            result = decode_unchecked(result_type, raw)
        except Fault:
            pass
        else:
            if getattr(result, "result_type", None) in _COMPLETE:
                return result
        kind = decode_unchecked(_ResultType, raw).result_type
    if kind in (None, "complete"):
        return decode_unchecked(result_type, raw)
    if (
        kind == "input_required"
        and method.may_require_input
        and peer.revision.input_requests is InputRequests.IN_RESULT
    ):
        return decode_unchecked(t.InputRequiredResult, raw)
    if kind == "task" and method.may_become_task and t.TASKS_EXTENSION_ID in own_extensions:
        return decode_unchecked(t.ExtCreateTaskResult, raw)
    words = f"the resultType of {method.name} is not recognised"
    raise Fault(FaultKind.INVALID_PARAMS, words)
