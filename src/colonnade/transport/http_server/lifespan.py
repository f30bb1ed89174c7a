"""When a service starts and ends: with the lifespan of its web server, or without one.

`Lifespan` and `Keeper` are the application's side, `Span` is that of our own web server.

Rules: a service is left in the task that entered it, and before the loop ends. Nobody is told
that it has started before it has.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.request import App, Message, Receive, Scope, Send, overload

log: logging.Logger = logging.getLogger("colonnade.transport")

Step = Callable[[], Awaitable[None]]

# In the scope of a web server that takes what is raised, and shows it itself.
RAISES_KEY: Final = "colonnade.raises"


class Keeper:
    """Starts a service that is mounted where no lifespan reaches it, when it is first needed.

    A task keeps it until the wish to end is heard, or until whoever ends the loop cancels it.
    """

    def __init__(self, start: Step, stop: Step) -> None:
        self._start = start
        self._stop = stop
        self.task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over: asyncio.Future[None] | None = None

    async def started(self) -> None:
        """Wait until it has started. Raises `Refusal` where it cannot; the next one tries again."""
        if self._ready is None or self.task is None or self.task.done():
            loop = asyncio.get_running_loop()
            self._ready, self._over = loop.create_future(), loop.create_future()
            self.task = loop.create_task(self._keep(self._ready, self._over))
        await asyncio.shield(self._ready)

    def end(self) -> None:
        """Leave the service, if it was started here."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _keep(self, ready: "asyncio.Future[None]", over: "asyncio.Future[None]") -> None:
        try:
            await self._start()
        except Exception:
            log.exception("the service could not be started")
            ready.set_exception(overload("the server could not be started; its log says why"))
            return
        ready.set_result(None)
        try:
            await over
        finally:
            await self._stop()


class Lifespan:
    """The lifespan of our service, and of the application around which it stands, as one."""

    def __init__(self, start: Step, stop: Step, receive: Receive, send: Send) -> None:
        self._start = start
        self._stop = stop
        self._receive = receive
        self._send = send
        self._begun = False
        self._started = False
        self._raises = False

    async def run(self, scope: Scope, around: App | None) -> None:
        """Both enter before anybody is told, and both leave."""
        self._raises = around is None and RAISES_KEY in scope
        if around is not None:
            try:
                await around(scope, self._hear, self._say)
            except Exception:
                if self._started:  # nothing else ends our service then
                    self._started = False
                    await self._stop()
                if self._begun:
                    raise
            if self._begun:
                return
        await self._hear()
        await self._send({"type": "lifespan.startup.complete"})
        await self._receive()
        await self._leave("lifespan.shutdown.complete")

    async def _hear(self) -> Message:
        message = await self._receive()
        if message["type"] == "lifespan.startup" and not self._begun:
            self._begun = True
            try:
                await self._start()
            except Exception as error:
                if not self._raises:
                    log.exception("the service could not be started")
                await self._send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            self._started = True
        return message

    async def _say(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            await self._send(message)
        else:
            await self._leave(message["type"], message.get("message", ""))

    async def _leave(self, type_: str, words: str = "") -> None:
        self._started = False
        try:
            await self._stop()
        except Exception as error:
            if self._raises:
                raise
            log.exception("the service could not be stopped")
            type_, words = type_.replace("complete", "failed"), words or str(error)
        await self._send({"type": type_, "message": words} if words else {"type": type_})


class Span:
    """An application's lifespan, entered and left in one task, whoever asks for it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._told = False
        self._over = asyncio.Event()
        self._words = ""
        self._failure: Exception | None = None

    async def enter(self) -> None:
        """Return once it has started. Raises what the application raised."""
        loop = asyncio.get_running_loop()
        self._begun = loop.create_future()
        self._task = loop.create_task(self._run(self._begun))
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait({self._task})
            raise

    async def leave(self) -> None:
        """Return once it has ended. Raises what the application raised, once."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def abort(self) -> None:
        """End it wherever it is; the task is given up if it does not heed that."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, begun: "asyncio.Future[None]") -> None:
        asgi = {"version": "3.0", "spec_version": "2.0"}
        scope = {"type": "lifespan", "asgi": asgi, "state": self.state, RAISES_KEY: True}
        failure: Exception | None = None
        try:
            await self._app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            begun.cancel()
            raise
        except Exception as error:
            failure = error
        if failure is None and (self._words or not begun.done()):
            failure = LocalProtocolError(self._words or "the application left before it started")
        if begun.done():
            self._failure = failure
        elif failure is not None:
            begun.set_exception(failure)
            begun.exception()  # whoever waits sees it

    async def _receive(self) -> Message:
        if not self._told:
            self._told = True
            return {"type": "lifespan.startup"}
        with contextlib.suppress(asyncio.CancelledError):  # by whoever ends the loop: leave it now
            await self._over.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        if message["type"].endswith(".failed"):
            self._words = self._words or message.get("message") or "the application failed"
        elif self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
