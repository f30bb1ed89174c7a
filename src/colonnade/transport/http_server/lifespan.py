"""The ASGI lifespan protocol, of the application and of our own server.

`Lifespan` is the application's side, `OnDemandLifespan` starts a service that is mounted where no
lifespan event reaches it, and `LifespanRunner` is the side of our own web server.

Rules: a service is stopped in the task that started it, and before the loop ends. Startup is
reported complete only after it is.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.transport.http_server.request import App, Message, Receive, Scope, Send, overload

log: logging.Logger = logging.getLogger("colonnade.transport")

Step = Callable[[], Awaitable[None]]

# In the scope of a server that lets startup errors raise, and reports them itself.
RAISES_KEY: Final = "colonnade.raises"


class OnDemandLifespan:
    """Starts a service that is mounted where no lifespan event reaches it, at its first request.

    A task holds it until the shutdown, or until that task is cancelled with the loop.
    """

    def __init__(self, start: Step, stop: Step) -> None:
        self._start = start
        self._stop = stop
        self.task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over: asyncio.Future[None] | None = None

    async def started(self) -> None:
        """Wait until it has started. Raises `HttpError` if it fails; the next call tries again."""
        if self._ready is None or self.task is None or self.task.done():
            loop = asyncio.get_running_loop()
            self._ready, self._over = loop.create_future(), loop.create_future()
            self.task = loop.create_task(self._hold(self._ready, self._over))
        await asyncio.shield(self._ready)

    def end(self) -> None:
        """Stop the service, if it was started here."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _hold(self, ready: "asyncio.Future[None]", over: "asyncio.Future[None]") -> None:
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
    """The lifespan of our service together with that of the application around it."""

    def __init__(self, start: Step, stop: Step, receive: Receive, send: Send) -> None:
        self._start = start
        self._stop = stop
        self._receive = receive
        self._send = send
        self._begun = False
        self._started = False
        self._raises = False

    async def run(self, scope: Scope, around: App | None) -> None:
        """Start both before startup is reported complete, and stop both."""
        self._raises = around is None and RAISES_KEY in scope
        if around is not None:
            try:
                await around(scope, self._intercept_receive, self._intercept_send)
            except Exception:
                if self._started:  # nothing else stops our service then
                    self._started = False
                    await self._stop()
                if self._begun:
                    raise
            if self._begun:
                return
        await self._intercept_receive()
        await self._send({"type": "lifespan.startup.complete"})
        await self._receive()
        await self._shut_down("lifespan.shutdown.complete")

    async def _intercept_receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "lifespan.startup" and not self._begun:
            self._begun = True
            try:
                await self._start()
            except Exception as error:
                if isinstance(error, ColonnadeError) and not self._raises:
                    log.error("the service could not be started: %s", error)  # it says why
                elif not self._raises:
                    log.exception("the service could not be started")
                await self._send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            self._started = True
        return message

    async def _intercept_send(self, message: Message) -> None:
        if message["type"] == "lifespan.startup.complete":
            await self._send(message)
        else:
            await self._shut_down(message["type"], message.get("message", ""))

    async def _shut_down(self, type_: str, message: str = "") -> None:
        self._started = False
        try:
            await self._stop()
        except Exception as error:
            if self._raises:
                raise
            log.exception("the service could not be stopped")
            type_, message = type_.replace("complete", "failed"), message or str(error)
        await self._send({"type": type_, "message": message} if message else {"type": type_})


class LifespanRunner:
    """Runs the lifespan of an application in one task, for a server."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.state: dict[str, Any] = {}
        self._task: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._startup_sent = False
        self._over = asyncio.Event()
        self._failure_message = ""
        self._failure: Exception | None = None

    async def enter(self) -> None:
        """Wait for the startup. Raises what the application raised."""
        loop = asyncio.get_running_loop()
        self._begun = loop.create_future()
        self._task = loop.create_task(self._run(self._begun))
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait({self._task})
            raise

    async def exit(self) -> None:
        """Wait for the shutdown. Raises what the application raised, once."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def abort(self) -> None:
        """Cancel it, wherever it is; a task that ignores its cancellation is abandoned."""
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
        if failure is None and (self._failure_message or not begun.done()):
            failure = LocalProtocolError(
                self._failure_message or "the application returned before its startup was complete"
            )
        if begun.done():
            self._failure = failure
        elif failure is not None:
            begun.set_exception(failure)
            begun.exception()  # so that asyncio does not log it as never retrieved

    async def _receive(self) -> Message:
        if not self._startup_sent:
            self._startup_sent = True
            return {"type": "lifespan.startup"}
        with contextlib.suppress(asyncio.CancelledError):  # with the loop: shut down now
            await self._over.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, message: Message) -> None:
        if message["type"].endswith(".failed"):
            self._failure_message = (
                self._failure_message or message.get("message") or "the application failed"
            )
        elif self._begun is not None and not self._begun.done():
            self._begun.set_result(None)
