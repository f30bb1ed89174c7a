"""Dependency injection: the context, `Depends(...)` and input requests as parameters.

Rules: a dependency is created once for each call and shared within it, and cleaned up in reverse
order when the call ends. One of scope "server" is created once and lives as long as the server, so
it cannot use the context of a call. Invalid dependencies are refused at registration.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args, get_origin

from msgspec import Struct

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.server.handlers.threads import Workers
from colonnade.signatures.signature import (
    CONTEXT_NAMES,
    ContextMarker,
    HiddenParameter,
    ParameterMarker,
)
from colonnade.signatures.type_hints import Namespace, signature_of

if TYPE_CHECKING:
    from colonnade.server.context.ask import InputParameter

Scope = Literal["call", "server"]
Provide: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Provide, Provide]


def Depends(provide: Provide, *, scope: Scope = "call") -> Any:  # noqa: N802
    """Marks a parameter whose value a function provides: `db: Annotated[Db, Depends(get_db)]`.

    A generator cleans up after its `yield`. With `scope="server"` all calls share one value.
    It can also be the default: `db: Db = Depends(get_db)`.
    """
    return Dependency(provide, scope)


class Dependency(ParameterMarker):
    """The marker that `Depends` returns."""

    def __init__(self, provide: Provide, scope: Scope) -> None:
        if not callable(provide):
            raise InvalidArgumentType("Depends takes a function that provides the value")
        if scope not in get_args(Scope):
            raise InvalidArgument(
                f"Depends has the scopes 'call' and 'server', not {scope!r}", argument="scope"
            )
        self.provide = provide
        self.scope: Scope = scope


class Injections(Struct, frozen=True):
    """The injected parameters of one function."""

    contexts: tuple[str, ...]
    dependencies: tuple[tuple[str, Dependency], ...]
    inputs: "tuple[InputParameter, ...]"

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.contexts or self.dependencies or self.inputs)


def is_injected(annotation: Any, default: Any) -> bool:
    """Whether a parameter is injected rather than sent by the caller."""
    return (
        context_kind(annotation) is not None
        or isinstance(default, ParameterMarker)
        or any(isinstance(item, ParameterMarker) for item in _metadata(annotation))
    )


def find_misplaced_marker(annotation: Any) -> str | None:
    """The name of a marker inside of a type, where it has no effect; None if there is none."""
    for inner in get_args(annotation):
        for item in _metadata(inner):
            if isinstance(item, ParameterMarker):
                return "Depends" if isinstance(item, Dependency) else type(item).__name__
        found = find_misplaced_marker(inner)
        if found is not None:
            return found
    return None


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def context_kind(annotation: Any) -> str | None:
    """The context type in an annotation, by name; None if it is no context."""
    if isinstance(annotation, str):
        name = annotation.rpartition(".")[2]
        return name if name in CONTEXT_NAMES else None
    if get_origin(annotation) is None:
        is_one = isinstance(annotation, type) and ContextMarker in annotation.__bases__
        return annotation.__name__ if is_one else None
    found = (context_kind(inner) for inner in get_args(annotation))
    return next((kind for kind in found if kind is not None), None)


def find_injections(
    hidden: Iterable[HiddenParameter], where: str, names: Namespace, *, is_async: bool
) -> Injections:
    """Sort the injected parameters of a function by kind. Raises `LocalProtocolError`.

    `is_async` is whether the function is `async`, and gets a `Context`.
    """
    hidden = tuple(hidden)
    if not hidden:
        return Injections((), (), ())
    from colonnade.server.context.ask import input_parameter

    contexts: list[str] = []
    dependencies: list[tuple[str, Dependency]] = []
    inputs: list[InputParameter] = []
    for one in hidden:
        name, annotation, default = one.name, one.annotation, one.default
        label = f"{where}: parameter {name!r}"
        kind = context_kind(annotation)
        if kind == "BlockingContext" and is_async:
            raise InvalidArgumentType(
                f"{label}: an async function takes Context, not BlockingContext"
            )
        parameter = input_parameter(name, annotation, default, label, names)
        if kind is not None:
            contexts.append(name)
        elif parameter is not None:
            inputs.append(parameter)
        else:
            dependencies.append((name, _dependency_of(annotation, default)))
    return Injections(tuple(contexts), tuple(dependencies), tuple(inputs))


def _dependency_of(annotation: Any, default: Any) -> Dependency:
    found = [item for item in (default, *_metadata(annotation)) if isinstance(item, Dependency)]
    return found[0]


class DependencyProvider:
    """A function that provides a value, and its own injected parameters."""

    def __init__(self, function: Provide) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", repr(function))
        plain = inspect.isfunction(function) or inspect.ismethod(function)
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.is_async_generator: bool = inspect.isasyncgenfunction(function)
        self.is_generator: bool = inspect.isgeneratorfunction(function)
        # A function may block, so it runs in a thread; a class is instantiated directly.
        self.threaded: bool = plain and not (self.is_async or self.is_async_generator)
        self.injections: Injections = self._find_injections()

    def _find_injections(self) -> Injections:
        names = Namespace.of(self.function)
        hidden: list[HiddenParameter] = []
        try:
            parameters = signature_of(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            message = f"{self.name}: its signature cannot be read: {error}"
            raise InvalidArgumentType(message) from None
        for parameter in parameters:
            where = f"{self.name}: parameter {parameter.name!r}"
            annotation = parameter.annotation
            if annotation is not inspect.Parameter.empty:
                annotation = names.evaluate(annotation, where)
            if is_injected(annotation, parameter.default):
                hidden.append(HiddenParameter(parameter.name, annotation, parameter.default))
            elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                raise InvalidArgumentType(
                    f"{where} of a dependency needs a default, Depends(...), Ask(...) or Context"
                )
        return find_injections(
            hidden, self.name, names, is_async=self.is_async or self.is_async_generator
        )


class Providers:
    """The providers of a server, each inspected once."""

    def __init__(self) -> None:
        self._read: dict[Provide, DependencyProvider] = {}
        self.overrides: dict[Provide, Provide] = {}

    def of(self, provide: Provide) -> DependencyProvider:
        """The provider of a dependency, or its override."""
        function = self.overrides.get(provide, provide)
        found = self._read.get(function)
        if found is None:
            found = self._read[function] = DependencyProvider(function)
        return found

    def check(
        self,
        injections: Injections,
        where: str,
        path: tuple[Provide, ...] = (),
        scope: Scope = "call",
    ) -> None:
        """Raise `LocalProtocolError` for dependencies of `where` that cannot be resolved."""
        for _, dependency in injections.dependencies:
            provider = self.of(dependency.provide)
            if dependency.provide in path:
                cycle = [self.of(one).name for one in path[path.index(dependency.provide) :]]
                raise InvalidArgument(
                    f"{where}: {provider.name} depends on itself: "
                    + " needs ".join([*cycle, provider.name])
                )
            if scope == "server" and dependency.scope == "call":
                raise InvalidArgument(
                    f"{where}: {provider.name} is created for each call and cannot be part of "
                    "a dependency with scope='server'; give it scope='server', too"
                )
            inner = provider.injections
            if dependency.scope == "server" and (inner.contexts or inner.inputs):
                raise InvalidArgument(
                    f"{where}: {provider.name} has scope='server' and cannot depend on a call; "
                    "remove scope='server', or its Context and input requests"
                )
            self.check(inner, where, (*path, dependency.provide), dependency.scope)

    def inputs(self, injections: Injections) -> "list[InputParameter]":
        """The input requests of a function and of all its dependencies."""
        return [parameter for _, one in self.all_injections(injections) for parameter in one.inputs]

    def all_injections(self, injections: Injections) -> Iterator[tuple[Provide | None, Injections]]:
        """The injections of a function and of all its dependencies, each once."""
        seen: set[Provide] = set()
        waiting: list[tuple[Provide | None, Injections]] = [(None, injections)]
        for owner, one in waiting:
            yield owner, one
            for _, dependency in one.dependencies:
                provider = self.of(dependency.provide)
                if provider.function not in seen:
                    seen.add(provider.function)
                    waiting.append((provider.function, provider.injections))


if TYPE_CHECKING:
    from colonnade.server.context.blocking import BlockingContext
    from colonnade.server.context.context import Context

Make: TypeAlias = Callable[[contextlib.AsyncExitStack], Awaitable[Any]]
InputValues: TypeAlias = dict[tuple[Provide | None, str], Any]


class ServerScope:
    """Dependencies of scope "server": created on first use, cleaned up when the server stops."""

    def __init__(self) -> None:
        self._values: dict[Provide, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._made: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    async def get(self, function: Provide, make: Make) -> Any:
        """The shared value of a provider function."""
        found = self._values.get(function)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._values[function] = loop.create_future()
            task = loop.create_task(self._hold(function, make, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(found)  # cancelling one call must not affect the others

    async def _hold(self, function: Provide, make: Make, value: asyncio.Future[Any]) -> None:
        done = asyncio.Event()
        try:
            async with contextlib.AsyncExitStack() as stack:
                value.set_result(await make(stack))
                # Its own dependencies were created before, so they are cleaned up after it.
                self._made.append((done, cast("asyncio.Task[None]", asyncio.current_task())))
                await done.wait()
        except BaseException as error:
            if value.done():
                raise
            self._values.pop(function, None)
            value.set_exception(error)
            value.exception()  # retrieved, so that asyncio does not warn

    async def close(self) -> None:
        """Clean up all values, in reverse order of creation."""
        self._values.clear()
        while self._made:
            done, task = self._made.pop()
            done.set()
            await task
        for task in tuple(self._tasks):
            task.cancel()
            await asyncio.wait([task])


class Resolver:
    """Resolves the injected parameters of one call."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        context: "Context",
        providers: Providers,
        server_scope: ServerScope,
        workers: Workers,
    ) -> None:
        self._stack = stack
        self._context = context
        self._providers = providers
        self._server_scope = server_scope
        self._workers = workers
        self._values: dict[Provide, Any] = {}
        self._inputs: InputValues = {}
        self._blocking_context: BlockingContext | None = None

    def _blocking(self) -> "BlockingContext":
        if self._blocking_context is None:
            from colonnade.server.context.blocking import BlockingContext

            self._blocking_context = BlockingContext(self._context, self._workers)
            self._stack.callback(self._blocking_context.close)
        return self._blocking_context

    async def request_inputs(self, injections: Injections, arguments: Mapping[str, Any]) -> None:
        """Send all declared input requests, also those of dependencies, in one round."""
        wanted = [
            (owner, parameter)
            for owner, one in self._providers.all_injections(injections)
            for parameter in one.inputs
        ]
        if wanted:
            values = await self._context.resolve_inputs([one for _, one in wanted], arguments)
            for (owner, parameter), value in zip(wanted, values, strict=True):
                self._inputs[owner, parameter.name] = value

    async def inject(
        self, injections: Injections, owner: Provide | None = None, *, is_async: bool
    ) -> dict[str, Any]:
        """The values of the injected parameters of a function."""
        given: dict[str, Any] = {}
        for name in injections.contexts:
            given[name] = self._context if is_async else self._blocking()
        for parameter in injections.inputs:
            given[parameter.name] = self._inputs[owner, parameter.name]
        for name, dependency in injections.dependencies:
            given[name] = await self._get(dependency)
        return given

    async def _get(self, dependency: Dependency) -> Any:
        provider = self._providers.of(dependency.provide)
        if provider.function in self._values:
            return self._values[provider.function]
        if dependency.scope == "server":
            value = await self._server_scope.get(
                provider.function, lambda stack: self._make(provider, stack)
            )
        else:
            value = await self._make(provider, self._stack)
        self._values[provider.function] = value
        return value

    async def _make(self, provider: DependencyProvider, stack: contextlib.AsyncExitStack) -> Any:
        given = await self.inject(
            provider.injections, provider.function, is_async=not provider.threaded
        )
        if provider.is_async_generator:
            manage = contextlib.asynccontextmanager(provider.function)
            return await stack.enter_async_context(manage(**given))
        if provider.is_generator:
            return await stack.enter_async_context(
                ThreadedGenerator(provider, given, self._workers)
            )
        if provider.is_async:
            return await provider.function(**given)
        if provider.threaded:
            return await self._workers.run(lambda: provider.function(**given), provider.name)
        return provider.function(**given)


class ThreadedGenerator:
    """A blocking generator as an async context manager: each step runs in a thread."""

    def __init__(
        self, provider: DependencyProvider, given: Mapping[str, Any], workers: Workers
    ) -> None:
        self._manage = contextlib.contextmanager(provider.function)(**given)
        self._workers = workers
        self._name = provider.name

    async def __aenter__(self) -> Any:
        return await self._workers.run(self._manage.__enter__, self._name)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await asyncio.shield(
            self._workers.run(
                lambda: self._manage.__exit__(kind, error, traceback), self._name, required=True
            )
        )
