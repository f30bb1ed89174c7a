"""What a handler is given beside its arguments: the context, dependencies, answered questions.

Rules: a dependency is made once for each call and shared within it, and cleaned up in reverse when
the call is over, whatever became of it. One of scope "server" is made once and lives as long as
the server runs, so it may not know a call. What cannot work is refused when it is registered.
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
from colonnade.server.options import SITUATIONS, Mark, Situation
from colonnade.signatures.signature import HiddenParameter
from colonnade.signatures.type_hints import Namespace, signature_of

if TYPE_CHECKING:
    from colonnade.server.context.ask import Marked

Scope = Literal["call", "server"]
Provide: TypeAlias = Callable[..., Any]
Overrides: TypeAlias = Mapping[Provide, Provide]


def Depends(provide: Provide, *, scope: Scope = "call") -> Any:  # noqa: N802
    """Marks a parameter that a function provides: `db: Annotated[Db, Depends(get_db)]`.

    A generator may clean up after its `yield`. With `scope="server"` there is one for all calls.
    It may also stand as the default: `db: Db = Depends(get_db)`.
    """
    return Dependency(provide, scope)


class Dependency(Mark):
    """What `Depends` marks a parameter with."""

    def __init__(self, provide: Provide, scope: Scope) -> None:
        if not callable(provide):
            raise InvalidArgumentType("Depends takes a function that provides the value")
        if scope not in get_args(Scope):
            raise InvalidArgument(
                f"Depends has the scopes 'call' and 'server', not {scope!r}", argument="scope"
            )
        self.provide = provide
        self.scope: Scope = scope


class Wiring(Struct, frozen=True):
    """What one function is given beside its arguments."""

    contexts: tuple[str, ...]
    needs: tuple[tuple[str, Dependency], ...]
    questions: "tuple[Marked, ...]"

    @property
    def alone(self) -> bool:
        """Whether it is given nothing."""
        return not (self.contexts or self.needs or self.questions)


def is_marked(annotation: Any, default: Any) -> bool:
    """Whether a parameter is filled here, and so is none of the caller's."""
    return (
        context_kind(annotation) is not None
        or isinstance(default, Mark)
        or any(isinstance(item, Mark) for item in _metadata(annotation))
    )


def misplaced(annotation: Any) -> str | None:
    """What kind of mark stands inside of a type, where it would fill nothing."""
    for inner in get_args(annotation):
        for item in _metadata(inner):
            if isinstance(item, Mark):
                return "Depends" if isinstance(item, Dependency) else type(item).__name__
        found = misplaced(inner)
        if found is not None:
            return found
    return None


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def context_kind(annotation: Any) -> str | None:
    """Which context a parameter wants, by the name of its type; None where it wants none."""
    if isinstance(annotation, str):
        name = annotation.rpartition(".")[2]
        return name if name in SITUATIONS else None
    if get_origin(annotation) is None:
        is_one = isinstance(annotation, type) and Situation in annotation.__bases__
        return annotation.__name__ if is_one else None
    found = (context_kind(inner) for inner in get_args(annotation))
    return next((kind for kind in found if kind is not None), None)


def wire(hidden: Iterable[HiddenParameter], where: str, names: Namespace, *, waits: bool) -> Wiring:
    """Sort the hidden parameters of a function. Raises `LocalProtocolError`.

    `waits` is whether it is `async`, and gets the context that must be awaited.
    """
    hidden = tuple(hidden)
    if not hidden:
        return Wiring((), (), ())
    from colonnade.server.context.ask import marked

    contexts: list[str] = []
    needs: list[tuple[str, Dependency]] = []
    questions: list[Marked] = []
    for one in hidden:
        name, annotation, default = one.name, one.annotation, one.default
        spot = f"{where}: parameter {name!r}"
        kind = context_kind(annotation)
        if kind == "BlockingContext" and waits:
            raise InvalidArgumentType(f"{spot}: an async function gets Context, and awaits it")
        question = marked(name, annotation, default, spot, names)
        if kind is not None:
            contexts.append(name)
        elif question is not None:
            questions.append(question)
        else:
            needs.append((name, _depends(annotation, default)))
    return Wiring(tuple(contexts), tuple(needs), tuple(questions))


def _depends(annotation: Any, default: Any) -> Dependency:
    found = [item for item in (default, *_metadata(annotation)) if isinstance(item, Dependency)]
    return found[0]


class Provider:
    """A function that provides a value: how it runs, and what it needs itself."""

    def __init__(self, function: Provide) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__", repr(function))
        plain = inspect.isfunction(function) or inspect.ismethod(function)
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.is_async_generator: bool = inspect.isasyncgenfunction(function)
        self.is_generator: bool = inspect.isgeneratorfunction(function)
        # What is called may block; a class is only made.
        self.threaded: bool = plain and not (self.is_async or self.is_async_generator)
        self.wiring: Wiring = self._wire()

    def _wire(self) -> Wiring:
        names = Namespace.of(self.function)
        hidden: list[HiddenParameter] = []
        try:
            parameters = signature_of(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            words = f"{self.name}: cannot be read as a function: {error}"
            raise InvalidArgumentType(words) from None
        for parameter in parameters:
            where = f"{self.name}: parameter {parameter.name!r}"
            annotation = parameter.annotation
            if annotation is not inspect.Parameter.empty:
                annotation = names.evaluate(annotation, where)
            if is_marked(annotation, parameter.default):
                hidden.append(HiddenParameter(parameter.name, annotation, parameter.default))
            elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
                inspect.Parameter.VAR_POSITIONAL,
                inspect.Parameter.VAR_KEYWORD,
            ):
                raise InvalidArgumentType(
                    f"{where} of a dependency needs a default, Depends(...), Ask(...) or Context"
                )
        return wire(hidden, self.name, names, waits=self.is_async or self.is_async_generator)


class Providers:
    """All providers of a server, each read once."""

    def __init__(self) -> None:
        self._read: dict[Provide, Provider] = {}
        self.overrides: dict[Provide, Provide] = {}

    def of(self, provide: Provide) -> Provider:
        """The provider of a dependency, or what stands for it now."""
        function = self.overrides.get(provide, provide)
        found = self._read.get(function)
        if found is None:
            found = self._read[function] = Provider(function)
        return found

    def check(
        self,
        wiring: Wiring,
        where: str,
        path: tuple[Provide, ...] = (),
        scope: Scope = "call",
    ) -> None:
        """Raise `LocalProtocolError` for what cannot be resolved; `where` is who needs it."""
        for _, depends in wiring.needs:
            provider = self.of(depends.provide)
            if depends.provide in path:
                circle = [self.of(one).name for one in path[path.index(depends.provide) :]]
                raise InvalidArgument(
                    f"{where}: {provider.name} depends on itself: "
                    + " needs ".join([*circle, provider.name])
                )
            if scope == "server" and depends.scope == "call":
                raise InvalidArgument(
                    f"{where}: {provider.name} is made for each call and cannot be part of one "
                    "that is made once; give it scope='server', too"
                )
            inner = provider.wiring
            if depends.scope == "server" and (inner.contexts or inner.questions):
                raise InvalidArgument(
                    f"{where}: {provider.name} is made once for all calls and cannot know one of "
                    "them; leave out scope='server', or its Context and questions"
                )
            self.check(inner, where, (*path, depends.provide), depends.scope)

    def questions(self, wiring: Wiring) -> "list[Marked]":
        """The questions of a function and of all that it depends on."""
        return [question for _, one in self.wirings(wiring) for question in one.questions]

    def wirings(self, wiring: Wiring) -> Iterator[tuple[Provide | None, Wiring]]:
        """A function's wiring and those of all that it depends on, each once."""
        seen: set[Provide] = set()
        waiting: list[tuple[Provide | None, Wiring]] = [(None, wiring)]
        for owner, one in waiting:
            yield owner, one
            for _, depends in one.needs:
                provider = self.of(depends.provide)
                if provider.function not in seen:
                    seen.add(provider.function)
                    waiting.append((provider.function, provider.wiring))


if TYPE_CHECKING:
    from colonnade.server.context.blocking import BlockingContext
    from colonnade.server.context.context import Context

Make: TypeAlias = Callable[[contextlib.AsyncExitStack], Awaitable[Any]]
Answers: TypeAlias = dict[tuple[Provide | None, str], Any]


class Shared:
    """The values of scope "server": made on first use, cleaned up when the server stops."""

    def __init__(self) -> None:
        self._values: dict[Provide, asyncio.Future[Any]] = {}
        self._keepers: set[asyncio.Task[None]] = set()
        self._made: list[tuple[asyncio.Event, asyncio.Task[None]]] = []

    async def get(self, function: Provide, make: Make) -> Any:
        """The one value of this function."""
        found = self._values.get(function)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._values[function] = loop.create_future()
            keeper = loop.create_task(self._keep(function, make, found))
            self._keepers.add(keeper)
            keeper.add_done_callback(self._keepers.discard)
        return await asyncio.shield(found)  # one call that gives up is none of the others' business

    async def _keep(self, function: Provide, make: Make, value: asyncio.Future[Any]) -> None:
        done = asyncio.Event()
        try:
            async with contextlib.AsyncExitStack() as stack:
                value.set_result(await make(stack))
                # What it is made of was made before it, and so is cleaned up after it.
                self._made.append((done, cast("asyncio.Task[None]", asyncio.current_task())))
                await done.wait()
        except BaseException as error:
            if value.done():
                raise
            self._values.pop(function, None)
            value.set_exception(error)
            value.exception()  # whoever waits sees it

    async def close(self) -> None:
        """Clean all of them up, the last that was made first."""
        self._values.clear()
        while self._made:
            done, keeper = self._made.pop()
            done.set()
            await keeper
        for keeper in tuple(self._keepers):
            keeper.cancel()
            await asyncio.wait([keeper])


class Resolver:
    """Gives one call its dependencies."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        context: "Context",
        providers: Providers,
        shared: Shared,
        workers: Workers,
    ) -> None:
        self._stack = stack
        self._context = context
        self._providers = providers
        self._shared = shared
        self._workers = workers
        self._values: dict[Provide, Any] = {}
        self._answers: Answers = {}
        self._twin: BlockingContext | None = None

    def _blocking(self) -> "BlockingContext":
        if self._twin is None:
            from colonnade.server.context.blocking import BlockingContext

            self._twin = BlockingContext(self._context, self._workers)
            self._stack.callback(self._twin.close)
        return self._twin

    async def ask(self, wiring: Wiring, arguments: Mapping[str, Any]) -> None:
        """Put every declared question, those of dependencies too, in one round."""
        wanted = [
            (owner, question)
            for owner, one in self._providers.wirings(wiring)
            for question in one.questions
        ]
        if wanted:
            values = await self._context.declared([one for _, one in wanted], arguments)
            for (owner, question), value in zip(wanted, values, strict=True):
                self._answers[owner, question.name] = value

    async def fill(
        self, wiring: Wiring, owner: Provide | None = None, *, waits: bool
    ) -> dict[str, Any]:
        """What a function is given beside its arguments."""
        given: dict[str, Any] = {}
        for name in wiring.contexts:
            given[name] = self._context if waits else self._blocking()
        for question in wiring.questions:
            given[question.name] = self._answers[owner, question.name]
        for name, depends in wiring.needs:
            given[name] = await self._get(depends)
        return given

    async def _get(self, depends: Dependency) -> Any:
        provider = self._providers.of(depends.provide)
        if provider.function in self._values:
            return self._values[provider.function]
        if depends.scope == "server":
            value = await self._shared.get(
                provider.function, lambda stack: self._make(provider, stack)
            )
        else:
            value = await self._make(provider, self._stack)
        self._values[provider.function] = value
        return value

    async def _make(self, provider: Provider, stack: contextlib.AsyncExitStack) -> Any:
        given = await self.fill(provider.wiring, provider.function, waits=not provider.threaded)
        if provider.is_async_generator:
            manage = contextlib.asynccontextmanager(provider.function)
            return await stack.enter_async_context(manage(**given))
        if provider.is_generator:
            return await stack.enter_async_context(Threaded(provider, given, self._workers))
        if provider.is_async:
            return await provider.function(**given)
        if provider.threaded:
            return await self._workers.run(lambda: provider.function(**given), provider.name)
        return provider.function(**given)


class Threaded:
    """A generator that blocks, as a context that does not: each step runs in a thread."""

    def __init__(self, provider: Provider, given: Mapping[str, Any], workers: Workers) -> None:
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
