"""Registered functions: their arguments, their injected parameters, and the thread they run in.

Everything possible is computed when the function is registered. Rules: the function itself is not
changed. Independent of protocol methods.
"""

import contextlib
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from msgspec import Raw

from colonnade.errors import (
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
)
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.downgrade import is_object_schema
from colonnade.protocol.schema.error_messages import join_problems
from colonnade.protocol.schema.validate import Schema, Validator
from colonnade.server.handlers.dependencies import (
    Injections,
    Providers,
    find_injections,
    find_misplaced_marker,
    is_injected,
)
from colonnade.server.handlers.threads import Workers
from colonnade.signatures.signature import Signature
from colonnade.signatures.type_hints import signature_of, unwrapped

if TYPE_CHECKING:
    from colonnade.server.context.context import Context
    from colonnade.server.handlers.dependencies import ServerScope

log: logging.Logger = logging.getLogger("colonnade.server")

# Tracebacks are expensive, and callers can provoke failures: log so many per period.
MAX_TRACEBACKS = 60
TRACEBACKS_S = 60.0

Body: TypeAlias = Callable[["Context"], Awaitable[t.ProtocolType]]


class RunRounds(Protocol):
    """Runs a handler that may send input requests. `once`: each request state is accepted once."""

    def __call__(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
        /,
    ) -> Awaitable[t.ProtocolType]: ...


class ErrorReporter:
    """Reports exceptions of handlers: an id to the caller, the id and the traceback to the log."""

    def __init__(self, *, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.debug: bool = debug
        self._clock = clock
        self._since = 0.0
        self._count = 0

    def report(self, what: str, error: BaseException, request: RequestContext | None = None) -> str:
        """Log an exception; returns the message for the caller, with details in debug mode."""
        now = self._clock()
        if now - self._since > TRACEBACKS_S:
            self._since, self._count = now, 0
        self._count += 1
        id = os.urandom(3).hex()
        shown = error if self._count <= MAX_TRACEBACKS else None
        log.error("%s failed (id %s): %s", what, id, type(error).__name__, exc_info=shown)
        if request is not None and request.exchange.record is not None:
            request.exchange.record.failure = (type(error).__name__, id)
        message = f"{what} failed (id {id})"
        with_details = self.debug or (request is not None and request.debug)
        return f"{message}: {error!r}" if with_details else message


class HandlerEnvironment:
    """What all functions of a server share: worker threads, dependencies, error reporting."""

    def __init__(
        self, run_rounds: RunRounds, workers: Workers, error_reporter: ErrorReporter
    ) -> None:
        self.run_rounds = run_rounds
        self.workers = workers
        self.error_reporter = error_reporter
        self.providers: Providers = Providers()
        # Whether some function has injected parameters, and so may send input requests.
        self.may_request_input: bool = False

    @cached_property
    def server_scope(self) -> "ServerScope":
        """The dependencies of scope "server", created on first use."""
        from colonnade.server.handlers.dependencies import ServerScope

        return ServerScope()

    async def close(self) -> None:
        """Clean up the dependencies of scope "server", if there are any."""
        if "server_scope" in vars(self):
            await self.server_scope.close()


class Bound:
    """A function, its arguments, and its injected parameters."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        environment: HandlerEnvironment,
        *,
        inline: bool = False,
        schema: Schema | None = None,
        closed: bool = True,
    ) -> None:
        """With `closed=False` undeclared arguments are ignored."""
        self.function = function
        self.name = name
        self.environment = environment
        _refuse_generator(function, name)
        self.is_async: bool = is_async(function)
        self.inline: bool = inline or self.is_async
        parameters = _parameters(function)
        _refuse_unbound(function, parameters, name)
        hidden_names = {p.name for p in parameters if is_injected(None, p.default)}
        self._var_keyword = _var_keyword(parameters) if schema is not None else None
        if self._var_keyword is not None:
            hidden_names.add(self._var_keyword)
        self.signature: Signature = Signature(
            function,
            hidden=lambda one, annotation: one in hidden_names or self._is_hidden(one, annotation),
            name=name,
            closed=closed and schema is None,
        )
        self._validator = _compile_input_schema(schema, name) if schema is not None else None
        hidden = [one for one in self.signature.hidden.values() if one.name != self._var_keyword]
        self.injections: Injections = find_injections(
            hidden, name, self.signature.names, is_async=self.is_async
        )
        # Most functions with injected parameters take a context and nothing else.
        self._takes_only_context = self.is_async and self.injections.are_contexts
        environment.providers.check(self.injections, name)
        environment.may_request_input |= not self.only_arguments
        self._check_placeholders()
        self._check_docstring(parameters)
        self._defaults = {
            p.name: p.default
            for p in parameters
            if p.default is not inspect.Parameter.empty and p.name not in hidden_names
        }

    def _check_placeholders(self) -> None:
        """Refuse messages of input requests that name unknown arguments."""
        known = {parameter.name for parameter in self.signature.parameters}
        for parameter in self.environment.providers.inputs(self.injections):
            unknown = sorted(parameter.spec.required_arguments() - known)
            if unknown:
                raise InvalidArgument(
                    f"{self.name}: the message for {parameter.name!r} names {unknown}; "
                    f"there are {sorted(known)}"
                )

    def _is_hidden(self, name: str, annotation: Any) -> bool:
        """Whether a parameter is injected. Raises for a marker inside of a type."""
        if is_injected(annotation, None):
            return True
        marker = find_misplaced_marker(annotation)
        if marker is not None:
            raise InvalidArgumentType(
                f"{self.name}: parameter {name!r}: {marker} marks a whole parameter, not a part of "
                f"its type; write {name}: Annotated[type, {marker}(...)]"
            )
        return False

    def _check_docstring(self, parameters: list[inspect.Parameter]) -> None:
        """Log descriptions of unknown arguments, mostly misspelt names: no model would see them."""
        known = [p.name for p in parameters]
        unknown = [name for name in self.signature.docs.parameters if name not in known]
        if unknown and self._var_keyword is None and not isinstance(self.function, partial):
            log.warning(
                "%s: its docstring describes %s, which it does not take; it takes %s",
                self.name,
                unknown,
                known,
            )

    @property
    def only_arguments(self) -> bool:
        """Whether it has no injected parameters."""
        return self.injections.is_empty

    @property
    def uses_context(self) -> bool:
        """Whether it or one of its dependencies takes a context."""
        return any(
            one.contexts for _, one in self.environment.providers.all_injections(self.injections)
        )

    def decode(self, raw: bytes | Raw) -> dict[str, Any]:
        """Decode and validate the arguments. Raises `Fault` with all problems."""
        if self._validator is None:
            return self.signature.decode(raw)
        value = _parse_object(raw)
        if value is None:
            raise Fault(FaultKind.INVALID_PARAMS, "arguments: expected an object, in JSON")
        problems = self._validator.check(value)
        if problems:
            raise Fault(FaultKind.INVALID_PARAMS, join_problems(problems))
        arguments = self.signature.decode(raw)
        if self._var_keyword is not None:
            own = {parameter.wire_name for parameter in self.signature.parameters}
            arguments |= {name: one for name, one in value.items() if name not in own}
        return arguments

    async def call(self, arguments: dict[str, Any], context: "Context | None") -> Any:
        """Run it with its arguments and injected parameters."""
        if self.only_arguments:
            return await self._run(arguments)
        if context is None:
            raise LocalProtocolError(f"{self.name} needs a context to run in")
        if self._takes_only_context:
            return await self._run(arguments | dict.fromkeys(self.injections.contexts, context))
        from colonnade.server.handlers.dependencies import (
            Resolver,  # on use: most functions have no dependencies
        )

        own = self.environment
        async with contextlib.AsyncExitStack() as stack:
            resolver = Resolver(stack, context, own.providers, own.server_scope, own.workers)
            await resolver.request_inputs(self.injections, {**self._defaults, **arguments})
            given = await resolver.inject(self.injections, is_async=self.is_async)
            return await self._run({**arguments, **given})

    @property
    def requests_inputs(self) -> bool:
        """Whether it or one of its dependencies has parameters marked with input requests."""
        return not self.only_arguments and bool(self.environment.providers.inputs(self.injections))

    async def request_inputs(self, arguments: dict[str, Any], context: "Context") -> None:
        """Send the declared input requests, and keep nothing but their responses, in the rounds of
        the context."""
        from colonnade.server.handlers.dependencies import Resolver

        own = self.environment
        async with contextlib.AsyncExitStack() as stack:
            resolver = Resolver(stack, context, own.providers, own.server_scope, own.workers)
            await resolver.request_inputs(self.injections, {**self._defaults, **arguments})

    async def _run(self, arguments: Mapping[str, Any]) -> Any:
        if not self.inline:
            return await self.environment.workers.run(lambda: self.function(**arguments), self.name)
        result = self.function(**arguments)
        return await result if inspect.isawaitable(result) else result


def compile_schema(schema: Any, where: str) -> Validator:
    """A validator for a schema of the author. Raises `LocalProtocolError`."""
    validator = Validator(schema, ours=True, name=where)
    validator.compile()
    return validator


def _compile_input_schema(schema: Any, name: str) -> Validator:
    validator = compile_schema(schema, f"{name}: input_schema")
    if not is_object_schema(schema):
        got = schema.get("type", "no type")
        raise InvalidArgument(
            f"{name}: input_schema has type {got!r}; arguments are an object: write "
            "{'type': 'object', 'properties': ...}",
            argument="input_schema",
        )
    return validator


def is_async(function: Any) -> bool:
    """Whether it is a coroutine function, or an object whose `__call__` is one."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def name_of(function: Any, name: str | None) -> str:
    """The name to register it under. Raises `LocalProtocolError` if it has none."""
    if not callable(function):
        raise InvalidArgumentType(f"{function!r} is not a function and cannot be registered")
    found = name or getattr(function, "__name__", "")
    if not found or found == "<lambda>":
        raise InvalidArgument(f"{function!r} has no name; pass name='...'", argument="name")
    return found


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):
        return []  # `Signature` raises a better error


def _refuse_generator(function: Any, name: str) -> None:
    """Refuse generators: a result is one value."""
    plain = unwrapped(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidArgumentType(
            f"{name}: it is a generator, and a call has one result: return a list; report each "
            "step with ctx.progress(...) or ctx.info(...)"
        )


def _refuse_unbound(function: Any, parameters: list[inspect.Parameter], name: str) -> None:
    """Refuse methods decorated in a class body, which are not bound to an instance."""
    first = parameters[0] if parameters else None
    if first is None or first.name not in ("self", "cls") or not inspect.isfunction(function):
        return
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if owner and owner != "<locals>" and first.annotation is inspect.Parameter.empty:
        raise InvalidArgumentType(
            f"{name}: it is a method of {owner}, and callers cannot send {first.name!r}: register "
            f"the method of an instance, server.tool({owner.lower()}.{function.__name__}), or move "
            "the function out of the class"
        )


def _var_keyword(parameters: list[inspect.Parameter]) -> str | None:
    kinds = (p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD)
    return next(kinds, None)


def _parse_object(raw: bytes | Raw) -> dict[str, Any] | None:
    from colonnade.signatures.coerce import parse  # on use: most tools have no schema of their own

    value = parse(bytes(raw) or b"{}")
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def unwrap_group(error: BaseException) -> BaseException:
    """The only exception of a group, also of nested groups; else the error itself."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", found).exceptions
        if len(inner) != 1:
            return error
        found = cast("BaseException", inner[0])
    return found
