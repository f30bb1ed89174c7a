"""`serve` inside a loop: however it ends, nothing of it is left there."""

import asyncio
import signal

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.request import Receive, Scope, Send
from colonnade.transport.http_server.runner import HttpRunner, serve
from http_client import Caller
from http_service import FakeService
from live import Records, live, until

LISTEN = {"notifications": {"toolsListChanged": True}}


class Slow(FakeService):
    """Takes its time to start, to stop, or fails at it."""

    def __init__(self, **steps: str) -> None:
        super().__init__()
        self.steps = steps

    async def _take(self, step: str) -> None:
        self.marks.mark(f"{step} begun")
        how = self.steps.get(step)
        if how == "fails":
            raise ValueError(f"{step} failed")
        if how == "waits":
            await self.go.reached(step)
        self.marks.mark(f"{step} done")

    async def start(self) -> None:
        await self._take("start")
        await super().start()

    async def stop(self) -> None:
        await self._take("stop")
        await super().stop()


class Served:
    """`serve` in a task, and the site that it told of."""

    def __init__(self, service: FakeService) -> None:
        self.service = service
        self.site: asyncio.Future[HttpRunner] = asyncio.get_running_loop().create_future()
        app = HttpApp(service)
        self.task = asyncio.create_task(serve(app, port=0, started=self.site.set_result))

    async def end(self) -> None:
        async with asyncio.timeout(60):
            await asyncio.wait({self.task})
        if self.site.done():
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", self.site.result().port)


@live
async def test_whoever_cancels_it_finds_nothing_of_it_left() -> None:
    served = Served(Slow())
    async with Caller((await served.site).port) as caller:
        assert (await caller.call("echo")).status == 200
    served.task.cancel()
    await served.end()
    assert served.task.cancelled()
    assert served.service.marks.log[-1] == "stop done"


@live
async def test_cancelled_with_calls_and_streams_it_tells_them() -> None:
    served = Served(Slow())
    async with Caller((await served.site).port) as caller:
        calling = asyncio.create_task(caller.call("wait"))
        await served.service.marks.reached("wait begun")
        _, stream = await caller.stream("subscriptions/listen", LISTEN)
        await stream.message()
        served.task.cancel()
        assert (await calling).status == 503
        assert b'"resultType":"complete"' in (await stream.rest())[-1].data
    await served.end()
    assert served.service.marks.log[-1] == "stop done"


@live
async def test_cancelled_before_it_has_started_it_is_not_served() -> None:
    served = Served(Slow(start="waits"))
    await served.service.marks.reached("start begun")
    served.task.cancel()
    await served.end()
    assert served.task.cancelled()
    assert not served.site.done()


@live
async def test_cancelled_again_it_leaves_even_a_service_that_does_not_end() -> None:
    served = Served(Slow(stop="waits"))
    await served.site
    served.task.cancel()
    await served.service.marks.reached("stop begun")
    served.task.cancel()
    await served.end()
    assert served.task.cancelled()
    await until(lambda: len(asyncio.all_tasks()) == 1)


@live
async def test_it_ends_as_told_from_another_thread() -> None:
    served = Served(Slow())
    site = await served.site
    await asyncio.to_thread(site.end)
    await served.end()
    assert served.task.result() is False
    site.end()  # once more does no harm


@live
async def test_a_wish_to_end_does_not_wait_for_a_service_that_does_not_start() -> None:
    served = Served(Slow(start="waits"))
    await served.service.marks.reached("start begun")
    signal.raise_signal(signal.SIGINT)
    await served.end()
    assert served.task.result() is True


@pytest.mark.parametrize("step", ["start", "stop"])
@live
async def test_what_the_service_raises_is_raised_and_not_logged_too(step: str) -> None:
    with Records("colonnade.transport") as records:
        served = Served(Slow(**{step: "fails"}))
        if step == "stop":
            (await served.site).end()
        await served.end()
    with pytest.raises(ValueError, match=f"{step} failed"):
        served.task.result()
    assert not records.lines


@live
async def test_what_an_application_around_raises_is_raised() -> None:
    async def theirs(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    with pytest.raises(LocalProtocolError, match="no database"):
        await serve(HttpApp(FakeService(), around=theirs), port=0)


def test_a_loop_that_ends_around_it_leaves_the_service() -> None:
    service = Slow()

    async def main() -> None:
        served = Served(service)
        await served.site

    asyncio.run(main())
    assert service.marks.log[-1] == "stop done"
