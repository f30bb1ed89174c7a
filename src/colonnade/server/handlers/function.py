"""From a function to something that can be called: its arguments, what it is given, where it runs.

All that can be decided is decided when the function is registered. Rules: the function itself is
never changed. Nothing here knows a method of the protocol.
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
from colonnade.server.handlers.dependencies import Providers, Wiring, is_marked, misplaced, wire
from colonnade.server.handlers.threads import Workers
from colonnade.signatures.coerce import parse
from colonnade.signatures.signature import Signature
from colonnade.signatures.type_hints import signature_of, unwrapped

if TYPE_CHECKING:
    from colonnade.server.context.context import Context
    from colonnade.server.handlers.dependencies import Shared

log: logging.Logger = logging.getLogger("colonnade.server")

# A traceback costs more than the call that it is about, and callers choose how often they fail.
MAX_TRACEBACKS = 60
TRACEBACKS_S = 60.0

Body: TypeAlias = Callable[["Context"], Awaitable[t.ProtocolType]]


class Interviewed(Protocol):
    """Runs a body that may ask. With `once` the answers to a round are taken only once."""

    def __call__(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
        /,
    ) -> Awaitable[t.ProtocolType]: ...


class Crashes:
    """What a failure is called: an id for the caller, the same id and the traceback for the log."""

    def __init__(self, *, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.debug: bool = debug
        self._clock = clock
        self._since = 0.0
        self._count = 0

    def words(self, what: str, error: BaseException, request: RequestContext | None = None) -> str:
        """What the caller is told; the log gets the rest. A turn may be of one who sees it all."""
        now = self._clock()
        if now - self._since > TRACEBACKS_S:
            self._since, self._count = now, 0
        self._count += 1
        id = os.urandom(3).hex()
        shown = error if self._count <= MAX_TRACEBACKS else None
        log.error("%s failed (id %s): %s", what, id, type(error).__name__, exc_info=shown)
        words = f"{what} failed (id {id})"
        shows = self.debug or (request is not None and request.debug)
        return f"{words}: {error!r}" if shows else words


class HandlerEnvironment:
    """What every function of a server runs in."""

    def __init__(self, interviewed: Interviewed, workers: Workers, crashes: Crashes) -> None:
        self.interviewed = interviewed
        self.workers = workers
        self.crashes = crashes
        self.providers: Providers = Providers()
        # Whether some function is given more than its arguments, and so may ask.
        self.asks: bool = False

    @cached_property
    def shared(self) -> "Shared":
        """What the functions have in common: made by the first that depends on something."""
        from colonnade.server.handlers.dependencies import Shared

        return Shared()

    async def close(self) -> None:
        """Clean up what they had in common, if they had anything."""
        if "shared" in vars(self):
            await self.shared.close()


class Bound:
    """A function, its arguments, and what it is given beside them."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        surroundings: HandlerEnvironment,
        *,
        inline: bool = False,
        schema: Schema | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.surroundings = surroundings
        _refuse_generator(function, name)
        self.waits: bool = is_async(function)
        self.inline: bool = inline or self.waits
        parameters = _parameters(function)
        _refuse_unbound(function, parameters, name)
        filled = {p.name for p in parameters if is_marked(None, p.default)}
        self._rest = _rest(parameters) if schema is not None else None
        if self._rest is not None:
            filled.add(self._rest)
        self.signature: Signature = Signature(
            function,
            hidden=lambda one, annotation: one in filled or self._is_filled(one, annotation),
            name=name,
            closed=schema is None,
        )
        self._validator = _checked_input(schema, name) if schema is not None else None
        hidden = [one for one in self.signature.hidden.values() if one.name != self._rest]
        self.wiring: Wiring = wire(hidden, name, self.signature.names, waits=self.waits)
        surroundings.providers.check(self.wiring, name)
        surroundings.asks |= not self.alone
        self._check_words()
        self._check_docs(parameters)
        self._defaults = {
            p.name: p.default
            for p in parameters
            if p.default is not inspect.Parameter.empty and p.name not in filled
        }

    def _check_words(self) -> None:
        """A question that names an argument which is never sent could never be put."""
        known = {parameter.name for parameter in self.signature.parameters}
        for question in self.surroundings.providers.questions(self.wiring):
            strangers = sorted(question.asked.mentions() - known)
            if strangers:
                raise InvalidArgument(
                    f"{self.name}: the question for {question.name!r} names {strangers}; "
                    f"there are {sorted(known)}"
                )

    def _is_filled(self, name: str, annotation: Any) -> bool:
        """Whether a parameter is filled by us. Raises for a mark that nobody would ever see."""
        if is_marked(annotation, None):
            return True
        mark = misplaced(annotation)
        if mark is not None:
            raise InvalidArgumentType(
                f"{self.name}: parameter {name!r}: {mark} is for a whole parameter, and stands "
                f"inside of its type; write {name}: Annotated[type, {mark}(...)]"
            )
        return False

    def _check_docs(self, parameters: list[inspect.Parameter]) -> None:
        """Words about an argument that is not there reach no model: mostly a misspelt name."""
        known = [p.name for p in parameters]
        strangers = [name for name in self.signature.docs.parameters if name not in known]
        if strangers and self._rest is None and not isinstance(self.function, partial):
            log.warning(
                "%s: its docstring describes %s, which it does not take; it takes %s",
                self.name,
                strangers,
                known,
            )

    @property
    def alone(self) -> bool:
        """Whether it needs nothing but its arguments."""
        return self.wiring.alone

    @property
    def knows_context(self) -> bool:
        """Whether it, or something that it depends on, is given a context."""
        return any(one.contexts for _, one in self.surroundings.providers.wirings(self.wiring))

    def decode(self, raw: bytes | Raw) -> dict[str, Any]:
        """The arguments to call it with. Raises `Fault` that says all that is wrong."""
        if self._validator is None:
            return self.signature.decode(raw)
        value = _members(raw)
        if value is None:
            raise Fault(FaultKind.INVALID_PARAMS, "arguments: expected an object, in JSON")
        problems = self._validator.check(value)
        if problems:
            raise Fault(FaultKind.INVALID_PARAMS, join_problems(problems))
        arguments = self.signature.decode(raw)
        if self._rest is not None:
            own = {parameter.wire_name for parameter in self.signature.parameters}
            arguments |= {name: one for name, one in value.items() if name not in own}
        return arguments

    async def call(self, arguments: dict[str, Any], context: "Context | None") -> Any:
        """Run it with its arguments and all that it depends on."""
        if self.alone:
            return await self._run(arguments)
        if context is None:
            raise LocalProtocolError(f"{self.name} needs a context to run in")
        from colonnade.server.handlers.dependencies import (
            Resolver,  # on use: most depend on nothing
        )

        own = self.surroundings
        async with contextlib.AsyncExitStack() as stack:
            resolver = Resolver(stack, context, own.providers, own.shared, own.workers)
            await resolver.ask(self.wiring, {**self._defaults, **arguments})
            given = await resolver.fill(self.wiring, waits=self.waits)
            return await self._run({**arguments, **given})

    async def _run(self, arguments: Mapping[str, Any]) -> Any:
        if not self.inline:
            return await self.surroundings.workers.run(
                lambda: self.function(**arguments), self.name
            )
        made = self.function(**arguments)
        return await made if inspect.isawaitable(made) else made


def checked_schema(schema: Any, where: str) -> Validator:
    """A schema that an author wrote, ready to check values. Raises `LocalProtocolError`."""
    validator = Validator(schema, ours=True, name=where)
    validator.compile()
    return validator


def _checked_input(schema: Any, name: str) -> Validator:
    validator = checked_schema(schema, f"{name}: input_schema")
    if not is_object_schema(schema):
        got = schema.get("type", "no type at all")
        raise InvalidArgument(
            f"{name}: input_schema says {got!r}; arguments come as an object: write "
            "{'type': 'object', 'properties': ...}",
            argument="input_schema",
        )
    return validator


def is_async(function: Any) -> bool:
    """Whether calling it gives something to wait for."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def name_of(function: Any, name: str | None) -> str:
    """What it is called. Raises `LocalProtocolError` for what has no name."""
    if not callable(function):
        raise InvalidArgumentType(f"{function!r} is no function, and cannot be offered as one")
    found = name or getattr(function, "__name__", "")
    if not found or found == "<lambda>":
        raise InvalidArgument(f"{function!r} has no name; pass name='...'", argument="name")
    return found


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):
        return []  # the signature says it in better words


def _refuse_generator(function: Any, name: str) -> None:
    """A result is one value: what a generator yields would not be sent."""
    plain = unwrapped(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidArgumentType(
            f"{name}: it yields, and a call has one result: collect what it yields and return the "
            "list; tell the caller of each step with ctx.progress(...) or ctx.info(...)"
        )


def _refuse_unbound(function: Any, parameters: list[inspect.Parameter], name: str) -> None:
    """A function of a class body, which has no instance to be called with."""
    first = parameters[0] if parameters else None
    if first is None or first.name not in ("self", "cls") or not inspect.isfunction(function):
        return
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if owner and owner != "<locals>" and first.annotation is inspect.Parameter.empty:
        raise InvalidArgumentType(
            f"{name}: it is a method of {owner}, and callers cannot send {first.name!r}: register "
            f"it of an instance, as server.tool({owner.lower()}.{function.__name__}), or move it "
            "out of the class"
        )


def _rest(parameters: list[inspect.Parameter]) -> str | None:
    kinds = (p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD)
    return next(kinds, None)


def _members(raw: bytes | Raw) -> dict[str, Any] | None:
    value = parse(bytes(raw) or b"{}")
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def single(error: BaseException) -> BaseException:
    """The one error in a group of one, in a group of one, …; else the error itself."""
    found: BaseException = error
    while isinstance(found, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", found).exceptions
        if len(inner) != 1:
            return error
        found = cast("BaseException", inner[0])
    return found
