"""The lifespan of a server: entered once for all transports that serve it, exited with the last.

Rules: a later `start` waits for the first one; each needs a `stop`. What was entered in an event
loop that is closed cannot be exited any more, and is forgotten.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from colonnade.errors import InvalidArgumentType
from colonnade.signatures.type_hints import signature_of


class ServerLifespan:
    """How often a server was started, and what is exited after the last stop. `enter` is called
    with the exit stack for the first start."""

    def __init__(self, enter: Callable[[contextlib.AsyncExitStack], Awaitable[None]]) -> None:
        self._enter = enter
        self._entered: asyncio.Future[None] | None = None
        self._starts = 0
        self._exit_stack = contextlib.AsyncExitStack()

    @property
    def is_served(self) -> bool:
        """Whether the server was started, in an event loop that is not closed."""
        return self._entered is not None and not self._entered.get_loop().is_closed()

    @property
    def is_entered(self) -> bool:
        """Whether everything was entered."""
        return self._entered is not None and self._entered.done()

    async def start(self) -> None:
        """Enter everything, once; later calls wait for the first."""
        entered = self._entered
        if (
            entered is not None and entered.get_loop().is_closed()
        ):  # that loop can no longer stop it
            entered, self._starts, self._exit_stack = None, 0, contextlib.AsyncExitStack()
        self._starts += 1
        try:
            await (asyncio.shield(entered) if entered is not None else self._enter_all())
        except BaseException:
            self._starts -= 1
            raise

    async def _enter_all(self) -> None:
        entered = self._entered = asyncio.get_running_loop().create_future()
        try:
            await self._enter(self._exit_stack)
        except BaseException as error:
            self._entered = None
            entered.set_exception(error)
            entered.exception()  # retrieved, so that asyncio does not warn
            await self.exit()
            raise
        entered.set_result(None)

    def stop(self) -> bool:
        """Take back one start; True if it was the last one."""
        self._starts = max(self._starts - 1, 0)
        if self._starts:
            return False
        self._entered = None
        return True

    async def exit(self) -> None:
        """Exit what was entered."""
        exit_stack, self._exit_stack = self._exit_stack, contextlib.AsyncExitStack()
        await exit_stack.aclose()

    def add(self, inner: "ServerLifespan", stop: Callable[[], Awaitable[None]]) -> None:
        """Count a server that is mounted while this one is served as started by it."""
        inner._starts += 1
        self._exit_stack.push_async_callback(stop)


def call_lifespan(
    lifespan: Callable[..., contextlib.AbstractAsyncContextManager[Any]], server: object
) -> contextlib.AbstractAsyncContextManager[Any]:
    """Call the lifespan function of a server, with the server if it takes a parameter."""
    try:
        takes = bool(signature_of(lifespan).parameters)
    except (TypeError, ValueError):
        takes = True
    entered = lifespan(server) if takes else lifespan()
    if not hasattr(entered, "__aenter__"):
        raise InvalidArgumentType(
            f"the lifespan {getattr(lifespan, '__name__', lifespan)!s} returned "
            f"{type(entered).__name__}, not an async context manager; write an async function with "
            "one yield, and put @contextlib.asynccontextmanager above it",
            argument="lifespan",
        )
    return entered
