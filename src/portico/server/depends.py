"""What a handler is given beside its arguments: dependencies, with their clean-up.

Rules: resolved once for each call, shared within it; cleaned up in reverse when the call is over,
whatever became of it. One of scope "server" lives as long as the server runs.
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import Any, Literal, cast, get_args, get_origin

from portico.errors import LocalProtocolError
from portico.server.context import Context

Scope = Literal["call", "server"]


class Depends:
    """Marks a parameter that a function provides: `db: Annotated[Db, Depends(get_db)]`.

    A generator may clean up after its `yield`.
    """

    def __init__(self, provide: Callable[..., Any], *, scope: Scope = "call") -> None:
        if not callable(provide):
            raise LocalProtocolError("Depends takes a function that provides the value")
        self.provide = provide
        self.scope: Scope = scope


def marker_of(annotation: Any, default: Any, kind: type[Any]) -> Any:
    """The marker of this kind in an annotation, or as a default value; None for none."""
    if isinstance(default, kind):
        return default
    for item in getattr(annotation, "__metadata__", ()):
        if isinstance(item, kind):
            return item
    return None


def wants_context(annotation: Any) -> bool:
    """Whether a parameter is to be given the context."""
    if annotation is Context or (isinstance(annotation, type) and issubclass(annotation, Context)):
        return True
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Context"
    return get_origin(annotation) is not None and any(map(wants_context, get_args(annotation)))


class Provider:
    """A function that provides a value, and what it needs itself."""

    def __init__(self, depends: Depends) -> None:
        self.function = depends.provide
        self.scope = depends.scope
        self.contexts: list[str] = []
        self.needs: list[tuple[str, Depends]] = []
        for parameter in inspect.signature(depends.provide, eval_str=True).parameters.values():
            inner = marker_of(parameter.annotation, parameter.default, Depends)
            if inner is not None:
                self.needs.append((parameter.name, inner))
            elif wants_context(parameter.annotation):
                self.contexts.append(parameter.name)
            elif parameter.default is inspect.Parameter.empty:
                name = getattr(depends.provide, "__name__", "?")
                raise LocalProtocolError(
                    f"{name}: parameter {parameter.name!r} of a dependency needs a default, "
                    "Depends(...) or Context"
                )


class Shared:
    """The values of scope "server": made on first use, cleaned up when the server stops."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._values: dict[Callable[..., Any], asyncio.Future[Any]] = {}

    async def get(self, function: Callable[..., Any], make: Callable[[Any], Any]) -> Any:
        """The one value of this function."""
        found = self._values.get(function)
        if found is None:
            found = self._values[function] = asyncio.get_running_loop().create_future()
            try:
                found.set_result(await make(self._stack))
            except BaseException:
                del self._values[function]
                found.cancel()
                raise
        return await found

    async def close(self) -> None:
        """Clean all of them up."""
        self._values.clear()
        await self._stack.aclose()


class Resolver:
    """Gives one call its dependencies."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        context: Context,
        shared: Shared,
        overrides: Mapping[Callable[..., Any], Callable[..., Any]],
    ) -> None:
        self._stack = stack
        self._context = context
        self._shared = shared
        self._overrides = overrides
        self._values: dict[Callable[..., Any], Any] = {}

    async def get(self, depends: Depends) -> Any:
        """The value of a dependency."""
        function = self._overrides.get(depends.provide, depends.provide)
        if function in self._values:
            return self._values[function]
        provider = Provider(Depends(function, scope=depends.scope))
        if depends.scope == "server":
            value = await self._shared.get(function, lambda stack: self._make(provider, stack))
        else:
            value = await self._make(provider, self._stack)
        self._values[function] = value
        return value

    async def _make(self, provider: Provider, stack: contextlib.AsyncExitStack) -> Any:
        given: dict[str, Any] = dict.fromkeys(provider.contexts, self._context)
        for name, inner in provider.needs:
            given[name] = await self.get(inner)
        made = provider.function(**given)
        if inspect.isasyncgen(made):
            return await stack.enter_async_context(_closing_async(cast("AsyncIterator[Any]", made)))
        if inspect.isgenerator(made):
            return stack.enter_context(_closing(cast("Iterator[Any]", made)))
        return await made if inspect.isawaitable(made) else made


@contextlib.asynccontextmanager
async def _closing_async(values: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    yield await anext(values)
    with contextlib.suppress(StopAsyncIteration):
        await anext(values)


@contextlib.contextmanager
def _closing(values: Iterator[Any]) -> Generator[Any]:
    yield next(values)
    with contextlib.suppress(StopIteration):
        next(values)
