"""When a service starts and ends: with the lifespan of its web server, or without one.

Rules: a service is left in the task that entered it, and before the loop ends. Nobody is told
that it has started before it has.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from portico.transport.http_visit import App, Message, Receive, Scope, Send, overload

log = logging.getLogger("portico.transport")

Step = Callable[[], Awaitable[None]]


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

    async def run(self, scope: Scope, around: App | None) -> None:
        """Both enter before anybody is told, and both leave."""
        if around is not None:
            try:
                await around(scope, self._hear, self._say)
            except Exception:
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
                log.exception("the service could not be started")
                await self._send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
        return message

    async def _say(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            await self._send(message)
        else:
            await self._leave(message["type"], message.get("message", ""))

    async def _leave(self, type_: str, words: str = "") -> None:
        try:
            await self._stop()
        except Exception as error:
            log.exception("the service could not be stopped")
            type_, words = type_.replace("complete", "failed"), words or str(error)
        await self._send({"type": type_, "message": words} if words else {"type": type_})
