"""Dependencies at work: made for a call or for the server, and cleaned up after it.

Rules: functions that are not `async` run in a thread, their clean-up too. What one call shares is
that call's alone. A value of the server's is made, kept and cleaned up by one task of its own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from colonnade.server.depends import Dependency, Provide, Provider, Providers, Wiring
from colonnade.server.workers import Workers

if TYPE_CHECKING:
    from colonnade.server.blocking import BlockingContext
    from colonnade.server.context import Context

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
            from colonnade.server.blocking import BlockingContext

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
