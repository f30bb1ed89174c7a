"""Tests with a loop and real sockets: `live` runs one, `served_app` serves a service for it.

Rules: a test that leaves a task behind, or lets an exception go unheard, has failed.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from colonnade.protocol.revision import EVERY, Revisions
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import DEFAULT_LIMITS, HttpRunner, RunLimits
from colonnade.transport.http_server.sessions.registry import SessionRegistry
from http_client import Caller, Response, Wire
from http_service import FakeService

P = ParamSpec("P")
# Safety nets for what would never end: a busy machine takes many times as long as a quiet one.
TEST_S = 300.0
WAIT_S = 60.0


def live(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in a loop of its own."""
    return live_for(TEST_S)(test)


def live_for(
    time_s: float | None,
) -> Callable[[Callable[P, Coroutine[Any, Any, None]]], Callable[P, None]]:
    """The same for a test that takes longer; None: for as long as it takes."""

    def made(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            asyncio.run(_watched(test(*args, **kwargs), time_s))

        return run

    return made


async def _watched(test: Coroutine[Any, Any, None], time_s: float | None) -> None:
    unheard: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unheard.append(repr(context)))
    async with asyncio.timeout(time_s):
        await test
    await asyncio.sleep(0)
    own = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not own]
    assert not left, f"tasks were left behind: {left}"
    assert not unheard, unheard


class ServedApp:
    """A service, the application that it is, the port where it is served, and a caller."""

    def __init__(
        self, service: FakeService, app: HttpApp, site: HttpRunner, caller: Caller
    ) -> None:
        self.service = service
        self.app = app
        self.site = site
        self.caller = caller

    @property
    def sessions(self) -> SessionRegistry:
        """Every session that is open."""
        return self.app._sessions

    async def begin_wait(self, id: Any = 1) -> tuple[Wire, asyncio.Task[Response]]:
        """A call in a session that waits for `go`, on a connection that can be lost."""
        before = self.service.running
        params = {"name": "wait", "arguments": {}}
        calling = asyncio.create_task(self.caller.ask("tools/call", params, id=id))
        calling.add_done_callback(lambda task: task.cancelled() or task.exception())
        await until(lambda: self.service.running > before)
        return self.caller.wires[-1], calling

    async def wait_for_disconnects(self) -> None:
        """Wait until every client that has gone is known to have."""
        await until(
            lambda: all(incoming.abort_reason or incoming.has_ended for incoming in self.app.reaper)
        )

    async def wait_until_idle(self) -> None:
        """Wait until nothing is being served."""
        await until(lambda: len(self.app.reaper) == 0 and self.service.running == 0)


@asynccontextmanager
async def served_app(
    accepts: Revisions = EVERY, *, run: RunLimits = DEFAULT_LIMITS, **settings: Any
) -> AsyncGenerator[ServedApp]:
    """Serve a fake service on a free port for as long as this is entered."""
    service = FakeService(accepts)
    app = HttpApp(service, **settings)
    site = HttpRunner(app, port=0, run_limits=run)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            yield ServedApp(service, app, site, caller)
    finally:
        await site.stop(0.0)


async def until(true: Callable[[], bool]) -> None:
    """Wait until this is true, by looking again and again."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.005)


class Records(logging.Handler):
    """What is logged while this is entered."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._loggers = [logging.getLogger(name) for name in names]

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def __enter__(self) -> "Records":
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)
