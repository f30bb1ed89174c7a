"""A tool's function: arguments in, result out, and every way to fail.

Rules: a bad argument, a failure and a time-out become what each revision wants. A crash tells the
caller nothing but an id. What goes out as structured fits the schema that was promised.
"""

import asyncio
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from inspect import isawaitable
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec
from msgspec import UNSET

from colonnade.errors import Fault, FaultKind, InvalidArgument, LocalProtocolError, ToolError
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import LARGE
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
    text_result,
    too_large,
)
from colonnade.server.handlers.function import Bound, HandlerEnvironment, checked_schema, single
from colonnade.server.options import CallerLost
from colonnade.signatures.codecs import Codec

if TYPE_CHECKING:
    from colonnade.server.context.context import Context


# Up to this nothing is too large to be sent, even twice.
SMALL_BYTES = 1024 * 1024


class BoundTool(Bound):
    """A function that is offered as a tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        surroundings: HandlerEnvironment,
        *,
        inline: bool = False,
        timeout_s: float | None = None,
        text: bool = True,
        single_use: bool = False,
        input_schema: Schema | None = None,
        output_schema: Schema | None = None,
    ) -> None:
        super().__init__(function, name, surroundings, inline=inline, schema=input_schema)
        if timeout_s is not None and not timeout_s > 0:
            words = f"{name}: timeout_s is a number of seconds above 0, not {timeout_s!r}"
            raise InvalidArgument(words, argument="timeout_s")
        self._timeout_s = timeout_s
        self._text = text
        self._single_use = single_use
        # Whether the function's own types are all that arguments must fit.
        self._glances = input_schema is None
        self._simple = self.alone and self.inline and timeout_s is None
        self._codec: Codec | None = None
        self._promise: Validator | None = None
        if output_schema is not None:
            self._promise = checked_schema(output_schema, f"{name}: output_schema")
        elif not returns_content(self.signature.returns):
            self._codec = self.signature.output()
            if self._codec is not None:
                self._promise = self._codec.validator

    @property
    def output_schema(self) -> Schema | None:
        """What its structured results look like, if it has any."""
        return self._promise.document if self._promise is not None else None

    async def run(self, request: RequestContext, params: t.CallToolRequestParams) -> t.ProtocolType:
        """Answer a call. Errors call it what the caller does: mounted, it has another name."""
        name = params.name
        arguments = self.signature.decode_plain(params.arguments) if self._glances else None
        if arguments is None:
            refuse_duplicate_members(params.arguments)
            raw = bytes(params.arguments)
            if raw[:1] != b"{":
                raw = _none(raw, name)
            try:
                arguments = self.decode(raw)
                del raw  # a copy, which is not held while the function runs
            except Fault as fault:
                if request.exchange.peer.revision.bad_tool_input is BadToolInput.RESULT:  # D16
                    return failed(f"{name}: {fault.message}")
                raise Fault(fault.kind, f"{name}: {fault.message}") from None
        try:
            if self._simple:  # as most are, and without a detour
                made = self.function(**arguments)
                return self._result(await made if self.waits or isawaitable(made) else made, name)
            if self.alone:
                return await self._timed(arguments, None, name)
            return await self.surroundings.interviewed(
                request,
                params,
                lambda context: self._timed(arguments, context, name),
                self._single_use,
            )
        except GeneratorExit:
            raise
        except BaseException as error:  # whatever a function raises, it ends its own call alone
            told = self._told(request, error, name)
            if told is None:
                raise
            return told

    def _told(
        self, request: RequestContext, error: BaseException, name: str
    ) -> t.CallToolResult | None:
        """What the caller hears of an error; None where nobody is left to hear of it."""
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                return None
            # Nobody gave this up: it gave up itself, or awaited something that was cancelled.
            return failed(self.surroundings.crashes.words(name, error, request))
        cause = single(error)
        if isinstance(cause, ToolError):
            return failed(str(cause))
        if isinstance(cause, Fault | CallerLost):
            raise cause from None
        return failed(self.surroundings.crashes.words(name, error, request))

    async def _timed(
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
            return failed(f"{name} did not finish within {self._timeout_s:g} s; try less")

    def _result(self, value: Any, name: str) -> t.CallToolResult:
        codec = self._codec
        # As many are, and without a detour; a long text takes the one that writes it only once.
        if (
            codec is not None
            and type(value) in _SCALARS
            and (type(value) is not str or len(value) <= LARGE)
        ):
            try:
                data = codec.encode(value)
            except LocalProtocolError:
                data = encoded(value, codec)  # which puts right what can be
            result = data_result(value, data, self._text)
            if len(data) < SMALL_BYTES:
                return result
        else:
            result = self._made(value)
        words = too_large(result.content, result.structured_content)
        return failed(f"{name}: {words}") if words else result

    def _made(self, value: Any) -> t.CallToolResult:
        if isinstance(value, _WRITTEN_OUT):
            return self._checked(result_of(value, text=self._text))
        if self._codec is not None:
            if type(value) is str and self._text and self._codec.takes_any_string:
                return text_result(value)
            return data_result(value, encoded(value, self._codec), self._text)
        if self._promise is not None:
            return self._checked(data_result(value, encoded(value), self._text))
        return result_of(value, text=self._text)

    def _checked(self, result: t.CallToolResult) -> t.CallToolResult:
        """What an author wrote out still keeps the tool's promise (R0377)."""
        if self._promise is None or result.is_error:
            return result
        if result.structured_content is UNSET:
            raise LocalProtocolError(f"{self.name} has an output schema; pass data= to ToolReturn")
        data = result.structured_content
        raw = data if isinstance(data, msgspec.Raw) else encoded(data)
        problems = self._promise.check(msgspec.json.decode(raw))
        if problems:
            raise LocalProtocolError(
                f"{self.name}: the result breaks its schema: {join_problems(problems)}"
            )
        return result


def _none(raw: bytes, name: str) -> bytes:
    """Arguments that begin like no object: none, or a mistake."""
    raw = raw.strip()
    if raw == b"null":  # what some clients send for none
        raw = b""
    if raw and raw[:1] != b"{":  # D16: that is not even a call
        words = expected(["object"], _KINDS.get(raw[:1], "number"))
        raise Fault(FaultKind.INVALID_PARAMS, f"{name}: arguments: {words}")
    return raw


_SCALARS = frozenset({str, int, float, bool, NoneType})
# What an author gives who says it all.
_WRITTEN_OUT = (t.CallToolResult, ToolReturn)
# What JSON that is no object begins with; whatever else it is, is not read.
_KINDS = {b"[": "array", b'"': "string", b"t": "boolean", b"f": "boolean"}


def failed(words: str) -> t.CallToolResult:
    """A failure that the model reads."""
    return t.CallToolResult(content=[t.TextContent(text=clean(words))], is_error=True)


_NOTHING = (inspect.Parameter.empty, Any, None, type(None))
# What may mix content: a dict of bytes is data.
_OPEN = (list, tuple, Sequence, typing.Union, types.UnionType, typing.Annotated)
_CONTENT = (
    *(Image, Audio, File, Link, ToolReturn, bytes, t.CallToolResult, t.TextContent),
    *(t.ImageContent, t.AudioContent, t.ResourceLink, t.EmbeddedResource),
)


def returns_content(annotation: Any) -> bool:
    """Whether a return type says content, or nothing at all, rather than data with a schema."""
    if annotation in _NOTHING or annotation in (list, tuple):
        return True
    several = get_origin(annotation) in (list, tuple, Sequence)
    if several and all(inner in (Any, object, ...) for inner in get_args(annotation)):
        return True  # of anything: pictures, perhaps
    return _holds_content(annotation)


def _holds_content(annotation: Any) -> bool:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        drawn = any(hasattr(annotation, name) for name in ("_repr_png_", "_repr_jpeg_"))
        return drawn or issubclass(annotation, _CONTENT)
    if get_origin(annotation) not in _OPEN:
        return False
    return any(_holds_content(inner) for inner in get_args(annotation))
