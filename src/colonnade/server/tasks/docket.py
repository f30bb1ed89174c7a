"""`DocketQueue`: the tasks of a server are delivered to workers by pydocket, through Redis.

    Server("press", store=…, tasks=TaskOptions(queue=DocketQueue("redis://queue.example.com")))

Rules: the library is imported when the first task is submitted or served. Only a string is passed
to it. It pickles what it delivers: who can write to that Redis can run code in the workers.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING

from colonnade.errors import ChannelError, ConnectionLost, InvalidArgument, LocalProtocolError
from colonnade.protocol.tasks.record import short_digest

if TYPE_CHECKING:
    from docket import Docket

# The name of the function in messages: another version of the worker must know it.
FUNCTION = "run_task"
# A finished delivery is of no use any more; the library keeps what was delivered for so long.
KEEP = timedelta(seconds=0)
WORKER_BYTES = 8


class _OpenDocket:
    """A docket that is open in one event loop, in a task of its own."""

    def __init__(self, docket: "Docket") -> None:
        self.docket = docket
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self.loop.create_future()
        self._over = asyncio.Event()
        self._holder = self.loop.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            async with self.docket:
                self._ready.set_result(None)
                await self._over.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
            self._ready.exception()  # so that asyncio does not log it as never retrieved

    async def opened(self) -> "Docket":
        await asyncio.shield(self._ready)
        return self.docket

    async def close(self) -> None:
        self._over.set()
        await asyncio.wait({self._holder})


class DocketQueue:
    """Delivers tasks with pydocket: `pip install 'colonnade[docket]'`.

    `url` is that of a Redis server, which needs not be the store. What a worker that died had is
    delivered to another one `redelivery_s` later, and up to a third of that. Raises
    `InvalidArgument`, and `LocalProtocolError` if pydocket is not installed.
    """

    def __init__(self, url: str, *, redelivery_s: float = 30.0, name: str = "colonnade") -> None:
        if "://" not in url:
            raise InvalidArgument(
                f"DocketQueue takes a URL, such as redis://127.0.0.1:6379, not {url!r}",
                argument="url",
            )
        if not (isfinite(redelivery_s) and redelivery_s > 0):
            words = f"redelivery_s is {redelivery_s}; give a number of seconds above 0"
            raise InvalidArgument(words, argument="redelivery_s")
        if find_spec("docket") is None:
            raise LocalProtocolError("DocketQueue needs pydocket; pip install 'colonnade[docket]'")
        self._url = url
        self._name = name
        self._redelivery = timedelta(seconds=redelivery_s)
        self._open: dict[str, _OpenDocket] = {}

    async def submit(self, server: str, reference: str) -> None:
        """Deliver a reference to one worker of this server. Raises `ChannelError`."""
        with _as_channel_error():
            docket = await self._docket(server)
            # Without a key: the same task is submitted again when it goes on.
            await docket.add(FUNCTION)(reference)

    async def serve(
        self, server: str, run: Callable[[str], Awaitable[None]], max_running: int
    ) -> None:
        """Await `run` with what is delivered, until this is cancelled. Raises `ChannelError`."""

        async def run_task(reference: str) -> None:
            await run(reference)

        with _as_channel_error():
            from docket import Worker

            docket = await self._docket(server)
            docket.register(run_task, [FUNCTION])
            worker = Worker(
                docket,
                # The default is host and process, which containers may have in common.
                name=secrets.token_hex(WORKER_BYTES),
                concurrency=max_running,
                redelivery_timeout=self._redelivery,
                schedule_automatic_tasks=False,
            )
            async with worker:
                await worker.run_forever()
        # The library ends its work, and then returns as if it had not been cancelled.
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise asyncio.CancelledError

    async def close(self) -> None:
        """Close the connections."""
        opened, self._open = self._open, {}
        for one in opened.values():
            if one.loop is asyncio.get_running_loop():
                await one.close()

    async def _docket(self, server: str) -> "Docket":
        known = self._open.get(server)
        if known is None or known.loop is not asyncio.get_running_loop():
            from docket import Docket

            name = f"{self._name}-{short_digest(server)}"
            docket = Docket(name, self._url, execution_ttl=KEEP)
            docket.register(_unserved, [FUNCTION])
            known = self._open[server] = _OpenDocket(docket)
        try:
            return await known.opened()
        except Exception:
            if self._open.get(server) is known:
                del self._open[server]
            raise


async def _unserved(reference: str) -> None:
    """What the library takes the signature of in a process that only submits."""


@contextlib.contextmanager
def _as_channel_error() -> Generator[None]:
    """Everything that the library raises for a server that does not respond."""
    try:
        yield
    except ChannelError:
        raise
    except Exception as error:
        raise ConnectionLost(f"the task queue failed: {error}") from error
