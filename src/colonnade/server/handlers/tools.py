"""Tool calls: decoding arguments, running the function, encoding the result, errors.

Rules: invalid arguments, failures and timeouts become the error of each revision. After an
unexpected exception the caller gets only an id. Structured content is validated against the output
schema.
"""

import asyncio
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec
from msgspec import UNSET, UnsetType

from colonnade.errors import Fault, FaultKind, InvalidArgument, LocalProtocolError, ToolError
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.jsonrpc import refuse_duplicate_members
from colonnade.protocol.revision import BadToolInput
from colonnade.protocol.schema.error_messages import expected, join_problems
from colonnade.protocol.schema.validate import Schema, Validator
from colonnade.server.handlers.content import (
    Audio,
    File,
    Image,
    Link,
    ToolReturn,
    clean,
    data_result,
    encoded,
    result_of,
    size_error,
)
from colonnade.server.handlers.function import (
    Bound,
    HandlerEnvironment,
    compile_schema,
    unwrap_group,
)
from colonnade.signatures.codecs import Codec

if TYPE_CHECKING:
    from colonnade.server.context.context import Context


# Below this a result need not be checked against the size limit.
SMALL_BYTES = 1024 * 1024


class BoundTool(Bound):
    """A function that is registered as a tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        environment: HandlerEnvironment,
        *,
        inline: bool = False,
        timeout_s: float | None = None,
        text: bool = True,
        single_use: bool = False,
        input_schema: Schema | None = None,
        output_schema: Schema | UnsetType | None = UNSET,
    ) -> None:
        super().__init__(function, name, environment, inline=inline, schema=input_schema)
        if timeout_s is not None and not timeout_s > 0:
            message = f"{name}: timeout_s is {timeout_s!r}; give seconds above 0"
            raise InvalidArgument(message, argument="timeout_s")
        self._timeout_s = timeout_s
        self._text = text
        self._single_use = single_use
        # Whether arguments are validated by the function's types alone.
        self._decodes_plain = input_schema is None
        self._simple = self.only_arguments and self.inline and timeout_s is None
        self._codec: Codec | None = None
        self._output_validator: Validator | None = None
        if output_schema is None:
            if not text:
                message = f"{name}: structured_only=True needs an output schema, and it is None"
                raise InvalidArgument(message, argument="structured_only")
        elif output_schema is not UNSET:
            self._output_validator = compile_schema(output_schema, f"{name}: output_schema")
        elif not returns_content(self.signature.returns) and not (
            text and self.signature.returns in _TEXT_TYPES
        ):
            self._codec = self.signature.output()
            if self._codec is not None:
                self._output_validator = self._codec.validator

    @property
    def output_schema(self) -> Schema | None:
        """The output schema, if there is one."""
        return self._output_validator.document if self._output_validator is not None else None

    async def run(self, request: RequestContext, params: t.CallToolRequestParams) -> t.ProtocolType:
        """Run a call. Errors use the name of the params, since a mounted tool has another name."""
        name = params.name
        arguments = self.signature.decode_plain(params.arguments) if self._decodes_plain else None
        if arguments is None:
            checked = self._decode_checked(request, params)
            if isinstance(checked, t.CallToolResult):
                return checked
            arguments = checked
        try:
            if self._simple:  # fast path for most tools
                value = self.function(**arguments)
                if self.is_async or isawaitable(value):
                    value = await value
                return self._result(value, name)
            if self.only_arguments:
                return await self._call_with_timeout(arguments, None, name)
            return await self.environment.run_rounds(
                request,
                params,
                lambda context: self._call_with_timeout(arguments, context, name),
                self._single_use,
            )
        except GeneratorExit:
            raise
        except BaseException as error:  # even SystemExit ends only this call
            result = self._error_result(request, error, name)
            if result is None:
                raise
            return result

    def check_arguments(
        self, request: RequestContext, params: t.CallToolRequestParams
    ) -> dict[str, Any] | t.CallToolResult:
        """The decoded arguments of a call, or the error result for invalid ones, in revisions where
        that is no JSON-RPC error. Raises `Fault`."""
        plain = self.signature.decode_plain(params.arguments) if self._decodes_plain else None
        return self._decode_checked(request, params) if plain is None else plain

    def _decode_checked(
        self, request: RequestContext, params: t.CallToolRequestParams
    ) -> dict[str, Any] | t.CallToolResult:
        refuse_duplicate_members(params.arguments)
        raw = bytes(params.arguments)
        if raw[:1] != b"{":
            raw = _empty_arguments(raw, params.name)
        try:
            return self.decode(raw)
        except Fault as fault:
            if request.exchange.peer.revision.bad_tool_input is BadToolInput.RESULT:  # D16
                return error_result(f"{params.name}: {fault.message}")
            raise Fault(fault.kind, f"{params.name}: {fault.message}") from None

    async def settle_inputs(
        self,
        request: RequestContext,
        params: t.CallToolRequestParams,
        arguments: dict[str, Any],
        proceed: Callable[["Context"], Awaitable[t.ProtocolType]],
    ) -> t.ProtocolType:
        """Settle the declared input requests of a call, in as many rounds as they need; then the
        result is that of `proceed`."""

        async def body(context: "Context") -> t.ProtocolType:
            await self.request_inputs(arguments, context)
            return await proceed(context)

        try:
            return await self.environment.run_rounds(request, params, body, self._single_use)
        except Exception as error:
            result = self._error_result(request, error, params.name)
            assert result is not None  # which is only that of a cancellation
            return result

    def _error_result(
        self, request: RequestContext, error: BaseException, name: str
    ) -> t.CallToolResult | None:
        """The result for an exception; None if the request was cancelled."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                return None
            # The request was not cancelled: the function raised it, or awaited a cancelled task.
            return error_result(self.environment.error_reporter.report(name, error, request))
        cause = unwrap_group(error)
        if isinstance(cause, ToolError):
            return error_result(str(cause))
        if isinstance(cause, Fault | CallerLost):
            raise cause from None
        return error_result(self.environment.error_reporter.report(name, error, request))

    async def _call_with_timeout(
        self, arguments: dict[str, Any], context: "Context | None", name: str
    ) -> t.ProtocolType:
        if self._timeout_s is None:
            return self._result(await self.call(arguments, context), name)
        deadline = asyncio.timeout(self._timeout_s)
        if context is not None:
            context.deadline = deadline
        try:
            async with deadline:
                return self._result(await self.call(arguments, context), name)
        except TimeoutError:
            if not deadline.expired():
                raise
            return error_result(f"{name} did not finish within {self._timeout_s:g} s; try less")

    def _result(self, value: Any, name: str) -> t.CallToolResult:
        codec = self._codec
        if codec is not None and type(value) in _SCALARS:  # fast path
            try:
                data = codec.encode(value)
            except LocalProtocolError:
                data = encoded(value, codec)  # which replaces lone surrogates
            result = data_result(value, data, self._text)
            if len(data) < SMALL_BYTES:
                return result
        else:
            result = self._make_result(value)
        message = size_error(result.content, result.structured_content)
        return error_result(f"{name}: {message}") if message else result

    def _make_result(self, value: Any) -> t.CallToolResult:
        if isinstance(value, _EXPLICIT_RESULTS):
            return self._validated(result_of(value, text=self._text))
        if self._codec is not None:
            return data_result(value, encoded(value, self._codec), self._text)
        if self._output_validator is not None:
            return self._validated(data_result(value, encoded(value), self._text))
        return result_of(value, text=self._text)

    def _validated(self, result: t.CallToolResult) -> t.CallToolResult:
        """Validate an explicit result against the output schema (R0377)."""
        if self._output_validator is None or result.is_error:
            return result
        if result.structured_content is UNSET:
            raise LocalProtocolError(f"{self.name} has an output schema; pass data= to ToolReturn")
        data = result.structured_content
        raw = data if isinstance(data, msgspec.Raw) else encoded(data)
        problems = self._output_validator.check(msgspec.json.decode(raw))
        if problems:
            raise LocalProtocolError(
                f"{self.name}: the result does not match its schema: {join_problems(problems)}"
            )
        return result


def _empty_arguments(raw: bytes, name: str) -> bytes:
    """Arguments that are not an object: missing, or invalid."""
    raw = raw.strip()
    if raw == b"null":  # some clients send it instead of leaving arguments out
        raw = b""
    if raw and raw[:1] != b"{":  # D16: a protocol error in every revision
        message = expected(["object"], _JSON_TYPES.get(raw[:1], "number"))
        raise Fault(FaultKind.INVALID_PARAMS, f"{name}: arguments: {message}")
    return raw


_SCALARS = frozenset({str, int, float, bool, NoneType})
# Return values that are explicit results.
_EXPLICIT_RESULTS = (t.CallToolResult, ToolReturn)
# JSON types by their first byte.
_JSON_TYPES = {b"[": "array", b'"': "string", b"t": "boolean", b"f": "boolean"}


def error_result(message: str) -> t.CallToolResult:
    """A result with `isError`, whose message the model reads."""
    return t.CallToolResult(content=[t.TextContent(text=clean(message))], is_error=True)


# Some hosts give the model only the text, some only the structured content. Values of these types
# are plain text, so they have no output schema: as structured content they would be a JSON string,
# with quotes and escapes.
_TEXT_TYPES = (str, str | None)
_NO_ANNOTATION = (inspect.Parameter.empty, Any, None, type(None))
# Types that may contain content; a dict of bytes is data.
_CONTAINERS = (list, tuple, Sequence, typing.Union, types.UnionType, typing.Annotated)
_CONTENT = (
    *(Image, Audio, File, Link, ToolReturn, bytes, t.CallToolResult, t.TextContent),
    *(t.ImageContent, t.AudioContent, t.ResourceLink, t.EmbeddedResource),
)


def returns_content(annotation: Any) -> bool:
    """Whether a return type is content or unknown, rather than data with an output schema."""
    if annotation in _NO_ANNOTATION or annotation in (list, tuple):
        return True
    several = get_origin(annotation) in (list, tuple, Sequence)
    if several and all(inner in (Any, object, ...) for inner in get_args(annotation)):
        return True  # the items may be content
    return _holds_content(annotation)


def _holds_content(annotation: Any) -> bool:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        has_repr = any(hasattr(annotation, name) for name in ("_repr_png_", "_repr_jpeg_"))
        return has_repr or issubclass(annotation, _CONTENT)
    if get_origin(annotation) not in _CONTAINERS:
        return False
    return any(_holds_content(inner) for inner in get_args(annotation))
