"""From a function to something that can be offered: its schema, and how a call reaches it.

All that can be decided is decided when the function is registered and stored on its entry: a call
decodes the arguments, runs the function and shapes what it returns.

Rules: the function itself is never changed. A bad argument, a failure and a time-out become what
each revision wants; a crash says nothing but an id.
"""

import asyncio
import contextlib
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin

from portico.errors import Fault, ToolError
from portico.ports import Turn
from portico.protocol import types as t
from portico.protocol.revision import BadToolInput
from portico.protocol.signature import Signature
from portico.protocol.signature_codec import Codec
from portico.server.content import Audio, File, Image, Link, Result, result_of
from portico.server.context import Context
from portico.server.depends import Depends, Resolver, Shared, marker_of, wants_context

log = logging.getLogger("portico.server")

Interviewed = Callable[
    [Turn, t.InputResponseRequestParams, Callable[[Context], Awaitable[Any]]], Awaitable[Any]
]


@dataclass
class Surroundings:
    """What every function of a server runs in."""

    interviewed: Interviewed
    shared: Shared = field(default_factory=Shared)
    overrides: dict[Callable[..., Any], Callable[..., Any]] = field(
        default_factory=lambda: dict[Callable[..., Any], Callable[..., Any]]()
    )
    debug: bool = False


class Bound:
    """A function, its arguments, and what it is given beside them."""

    def __init__(self, function: Callable[..., Any], name: str, *, inline: bool = False) -> None:
        self.function = function
        self.signature = Signature(function, hidden=_is_hidden, name=name)
        self.contexts: list[str] = []
        self.depends: list[tuple[str, Depends]] = []
        for hidden in self.signature.hidden.values():
            depends = marker_of(hidden.annotation, hidden.default, Depends)
            if depends is not None:
                self.depends.append((hidden.name, depends))
            else:
                self.contexts.append(hidden.name)
        self.waits = _is_async(function)
        self.inline = inline or self.waits

    @property
    def alone(self) -> bool:
        """Whether it needs nothing but its arguments."""
        return not (self.contexts or self.depends)

    async def call(
        self, arguments: dict[str, Any], context: Context | None, surroundings: Surroundings
    ) -> Any:
        """Run it with its arguments and all that it depends on."""
        if self.alone or context is None:
            return await self._run(arguments)
        async with contextlib.AsyncExitStack() as stack:
            resolver = Resolver(stack, context, surroundings.shared, surroundings.overrides)
            for name in self.contexts:
                arguments[name] = context if self.waits else context.blocking()
            for name, depends in self.depends:
                arguments[name] = await resolver.get(depends)
            return await self._run(arguments)

    async def _run(self, arguments: Mapping[str, Any]) -> Any:
        if not self.inline:
            return await asyncio.to_thread(self.function, **arguments)
        made = self.function(**arguments)
        return await made if inspect.isawaitable(made) else made


def _is_hidden(name: str, annotation: Any) -> bool:
    return wants_context(annotation) or marker_of(annotation, None, Depends) is not None


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class BoundTool(Bound):
    """A tool's function: arguments in, result out, and every way to fail."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        surroundings: Surroundings,
        *,
        inline: bool = False,
        timeout_s: float | None = None,
        text: bool = True,
    ) -> None:
        super().__init__(function, name, inline=inline)
        self.name = name
        self.output = self._output()
        self._surroundings = surroundings
        self._timeout_s = timeout_s
        self._text = text

    def _output(self) -> Codec | None:
        if _returns_content(self.signature.returns):
            return None
        return self.signature.output()

    async def run(self, turn: Turn, params: t.CallToolRequestParams) -> t.Noun:
        """Answer a call."""
        try:
            arguments = self.signature.decode(params.arguments)
        except Fault as fault:
            if turn.exchange.peer.revision.bad_tool_input is BadToolInput.RESULT:  # D16
                return _failed(f"{self.name}: {fault.message}")
            raise Fault(fault.kind, f"{self.name}: {fault.message}") from None
        if self.alone:
            return await self._guarded(arguments, None)
        return await self._surroundings.interviewed(
            turn, params, lambda context: self._guarded(arguments, context)
        )

    async def _guarded(self, arguments: dict[str, Any], context: Context | None) -> t.Noun:
        try:
            if self._timeout_s is None:
                value = await self.call(arguments, context, self._surroundings)
            else:
                async with asyncio.timeout(self._timeout_s):
                    value = await self.call(arguments, context, self._surroundings)
            return self._result(value)
        except ToolError as error:
            return _failed(str(error))
        except Fault:
            raise
        except TimeoutError as error:
            if self._timeout_s is None:
                return self._crashed(error)
            return _failed(f"{self.name} did not finish within {self._timeout_s:g} s")
        except Exception as error:
            return self._crashed(error)

    def _result(self, value: Any) -> t.CallToolResult:
        data = self.output.encode(value) if self.output is not None else None
        return result_of(value, data, text=self._text)

    def _crashed(self, error: Exception) -> t.CallToolResult:
        id = secrets.token_hex(3)
        log.error("%s failed (id %s)", self.name, id, exc_info=error)
        words = f"{self.name} failed (id {id})"
        return _failed(f"{words}: {error!r}" if self._surroundings.debug else words)


def _failed(words: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=words)], is_error=True)


_NOTHING = (inspect.Parameter.empty, Any, None, type(None))
_CONTENT = (
    *(Image, Audio, File, Link, Result, bytes, t.CallToolResult, t.TextContent),
    *(t.ImageContent, t.AudioContent, t.ResourceLink, t.EmbeddedResource),
)


def _returns_content(annotation: Any) -> bool:
    """Whether a return type says content, or nothing at all, rather than data with a schema."""
    return annotation in _NOTHING or _holds_content(annotation)


def _holds_content(annotation: Any) -> bool:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return issubclass(annotation, _CONTENT)
    return any(_holds_content(inner) for inner in get_args(annotation))
