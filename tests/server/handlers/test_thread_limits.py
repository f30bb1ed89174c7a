"""What calls of sync functions may take of a server: threads, places to wait, and memory."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Generator

import pytest

from colonnade import Server
from colonnade.errors import LocalProtocolError
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.revision import Revision
from colonnade.server.handlers import threads as module
from colonnade.server.handlers.dependencies import Depends
from colonnade.server.handlers.threads import INITIAL_THREADS, THREADS, Workers
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live, live_for, until
from server.raw_client import Rejected, raw_client

WAIT_S = 30.0


class Gate:
    """A function that blocks until it is opened, and how many calls of it run."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.running = 0

    def __call__(self) -> str:
        with self._lock:
            self.running += 1
        assert self._open.wait(WAIT_S)
        with self._lock:
            self.running -= 1
        return "through"

    def open(self) -> None:
        self._open.set()


async def begun(workers: Workers, gate: Gate, count: int, name: str) -> list[asyncio.Task[str]]:
    """Calls that run in threads."""
    before = gate.running
    jobs = [asyncio.create_task(workers.run(gate, name)) for _ in range(count)]
    await until(lambda: gate.running == before + count)
    return jobs


async def cancelled(jobs: list[asyncio.Task[str]]) -> None:
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)


async def ended(workers: Workers, gate: Gate) -> None:
    gate.open()
    await until(lambda: gate.running == 0)
    workers.stop()
    await until(lambda: not any(t.name == "colonnade-worker" for t in threading.enumerate()))


# ---------------------------------------------------------------- what waits


class Argument:
    """Something large."""


@live
async def test_a_call_that_is_cancelled_while_it_waits_lets_go_of_its_arguments_at_once() -> None:
    workers, gate = Workers(1), Gate()
    await begun(workers, gate, 1, "slow")
    argument = Argument()
    kept = weakref.ref(argument)

    async def call(held: Argument) -> None:
        await workers.run(lambda: (held, gate()), "large")

    waiting = asyncio.create_task(call(argument))
    del argument
    await asyncio.sleep(0)
    assert kept() is not None
    waiting.cancel()
    await asyncio.wait([waiting])
    del waiting
    gc.collect()
    assert kept() is None
    await ended(workers, gate)


@live
async def test_calls_that_were_cancelled_while_they_waited_do_not_fill_the_queue() -> None:
    workers, gate = Workers(1, waiting=10), Gate()
    await begun(workers, gate, 1, "slow")
    for _ in range(100):
        jobs = [asyncio.create_task(workers.run(gate, "large")) for _ in range(10)]
        await asyncio.sleep(0)
        await cancelled(jobs)
    assert workers._jobs.qsize() <= 2 * module.MAX_DROPPED
    last = asyncio.create_task(workers.run(lambda: "last"))
    await ended(workers, gate)
    assert await last == "last"


@live
async def test_more_calls_than_may_wait_are_refused_and_the_others_are_answered() -> None:
    workers, gate = Workers(2, waiting=3), Gate()
    running = await begun(workers, gate, 2, "slow")
    waiting = [asyncio.create_task(workers.run(gate, "slow")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(HttpError, match="busy: 3 calls wait for a thread; try again") as caught:
        await workers.run(gate, "slow")
    assert caught.value.status == 503
    cleaned = asyncio.create_task(workers.run(lambda: "cleaned up", required=True))
    gate.open()
    assert await asyncio.gather(*running, *waiting) == ["through"] * 5
    assert await cleaned == "cleaned up"
    await ended(workers, gate)


# ---------------------------------------------------------------- cancelled calls that go on


@live
async def test_cancelled_calls_of_one_function_leave_threads_for_other_functions() -> None:
    workers, gate = Workers(2, max_threads=8, abandoned=3), Gate()
    for _ in range(3):
        await cancelled(await begun(workers, gate, 1, "slow"))
    with pytest.raises(HttpError, match="too many cancelled calls of this are still running"):
        await workers.run(gate, "slow")
    assert await workers.run(lambda: "fine", "another") == "fine"
    await ended(workers, gate)
    assert await workers.run(lambda: "slow no more", "slow") == "slow no more"
    await ended(workers, gate)


@live
async def test_a_call_that_waited_meanwhile_is_refused_before_it_begins() -> None:
    workers, gate, other = Workers(2, max_threads=8, abandoned=2), Gate(), Gate()
    slow = await begun(workers, gate, 1, "slow")
    others = await begun(workers, other, 1, "other")
    waiting = [asyncio.create_task(workers.run(gate, "slow")) for _ in range(2)]
    await asyncio.sleep(0)
    await cancelled(slow)  # and the first that waits begins
    await until(lambda: gate.running == 2)
    await cancelled(waiting[:1])
    with pytest.raises(HttpError, match="too many cancelled calls"):
        await waiting[1]
    assert gate.running == 2
    other.open()
    assert await asyncio.gather(*others) == ["through"]
    await ended(workers, gate)


@live
async def test_where_every_thread_is_blocked_calls_are_refused_at_once_not_kept_waiting() -> None:
    workers, gate = Workers(1, max_threads=2), Gate()
    await cancelled(await begun(workers, gate, 1, "a"))
    last = await begun(workers, gate, 1, "b")
    waiting = asyncio.create_task(workers.run(lambda: "never", "c"))
    required = asyncio.create_task(workers.run(lambda: "cleaned up", "d", required=True))
    await asyncio.sleep(0)
    await cancelled(last)
    with pytest.raises(HttpError, match="busy: every thread is blocked"):
        await waiting
    with pytest.raises(HttpError, match="busy: every thread is blocked"):
        await workers.run(lambda: "never", "e")
    gate.open()
    assert await required == "cleaned up"
    assert await workers.run(lambda: "again", "e") == "again"
    await ended(workers, gate)


@live
async def test_who_waits_for_a_client_in_every_thread_makes_others_refused() -> None:
    workers, gate = Workers(1, max_threads=2), Gate()

    def asks() -> str:
        with workers.release_slot():
            return gate()

    asking = [asyncio.create_task(workers.run(asks, "asks")) for _ in range(2)]
    await until(lambda: gate.running == 2)
    with pytest.raises(HttpError, match="every thread is blocked"):
        await workers.run(lambda: "never", "c")
    gate.open()
    assert await asyncio.gather(*asking) == ["through"] * 2
    await ended(workers, gate)


# ---------------------------------------------------------------- how many threads


@live_for(60)
async def test_forty_functions_that_wait_run_at_once() -> None:
    workers, gate = Workers(), Gate()
    jobs = [asyncio.create_task(workers.run(gate, "wait")) for _ in range(THREADS + 1)]
    await until_within(WAIT_S, lambda: gate.running == THREADS == 40)
    await ended(workers, gate)
    assert await asyncio.gather(*jobs) == ["through"] * (THREADS + 1)


async def until_within(seconds: float, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


@live
async def test_a_loop_that_is_late_gets_no_more_threads_beside_it_before_a_second() -> None:
    workers, gate = Workers(), Gate()
    workers._timer = asyncio.get_running_loop(), None  # type: ignore[assignment] # set by hand here
    jobs = await begun(workers, gate, INITIAL_THREADS, "wait")
    jobs += [asyncio.create_task(workers.run(gate, "wait")) for _ in range(4)]
    await asyncio.sleep(0)
    loop, now = asyncio.get_running_loop(), time.monotonic
    workers._put_at_timer = workers._put

    def look(late_s: float) -> int:
        workers._check_waiting(loop, now() - late_s)
        assert workers._timer is not None
        workers._timer[1].cancel()
        workers._put_at_timer = workers._put
        return workers._threads

    assert [look(1.0) for _ in range(5)] == [INITIAL_THREADS] * 5
    workers._since -= module.LATE_WAIT_S
    assert look(1.0) == INITIAL_THREADS + 1
    await until(lambda: workers._taken == INITIAL_THREADS + 1)  # it stays, and takes a job
    assert look(1.0) == INITIAL_THREADS + 1
    assert look(0.0) == INITIAL_THREADS + 2
    await until(lambda: workers._taken == INITIAL_THREADS + 2)
    assert look(0.0) == INITIAL_THREADS + 4  # twice in time, so two at once
    await ended(workers, gate)
    assert await asyncio.gather(*jobs) == ["through"] * len(jobs)


@live
async def test_a_server_runs_as_many_functions_at_once_as_it_is_told(revision: Revision) -> None:
    server, gate = Server("s", threads=2), Gate()
    server.tool(name="gate")(lambda: gate())
    async with raw_client(server, revision) as client:
        calls = [asyncio.create_task(client.text("gate")) for _ in range(4)]
        await until(lambda: gate.running == 2)
        assert server.workers._threads == 2
        gate.open()
        assert await asyncio.gather(*calls) == ["through"] * 4
    await ended(server.workers, gate)


@pytest.mark.parametrize("threads", [0, -1, 1.5, None, "8"])
def test_a_number_of_threads_that_is_none_is_refused(threads: int) -> None:
    with pytest.raises(LocalProtocolError, match=r"threads is .*number of worker threads"):
        Server("s", threads=threads)


# ---------------------------------------------------------------- how it is told


def blocked(gate: Gate) -> Server:
    """A server with one thread, which is blocked, and no place to wait."""
    server = Server("s", threads=1)
    server.workers._max_waiting = 0
    server.tool(name="gate")(lambda: gate())
    server.resource("a://b")(lambda: "read")
    server.prompt(name="greet")(lambda: "hello")
    return server


@live
async def test_a_busy_server_says_so_on_a_pipe(revision: Revision) -> None:
    gate = Gate()
    server = blocked(gate)
    async with raw_client(server, revision) as client:
        first = asyncio.create_task(client.text("gate"))
        await until(lambda: gate.running == 1)
        for method, params in (
            ("tools/call", {"name": "gate", "arguments": {}}),
            ("resources/read", {"uri": "a://b"}),
            ("prompts/get", {"name": "greet"}),
        ):
            with pytest.raises(
                Rejected, match=r"the server is busy: .*; try again in 1 s"
            ) as caught:
                await client.ask(method, params)
            assert (caught.value.code, caught.value.data) == (-32603, {"retryAfterMs": 1000})
        gate.open()
        assert await first == "through"
    await ended(server.workers, gate)


@live
async def test_a_busy_server_answers_503_over_http() -> None:
    gate = Gate()
    server = blocked(gate)
    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            call = {"name": "gate", "arguments": {}}
            first = asyncio.create_task(caller.modern("tools/call", call, id=1))
            await until(lambda: gate.running == 1)
            refused = await caller.modern("tools/call", call, id=2)
            assert refused.status == 503
            assert refused.headers["retry-after"] == "1"
            assert refused.json["error"]["code"] == -32603
            assert "the server is busy" in refused.json["error"]["message"]
            gate.open()
            assert (await first).status == 200
    finally:
        await site.stop(0.0)
    await ended(server.workers, gate)


@live
async def test_what_a_dependency_made_is_cleaned_up_by_a_busy_server(revision: Revision) -> None:
    server, gate, log = Server("s", threads=1), Gate(), list[str]()
    holding: list[asyncio.Task[str]] = []

    def connection() -> Generator[str]:
        yield "made"
        log.append("cleaned up")

    @server.tool
    async def use(made: str = Depends(connection)) -> str:
        holding.append(asyncio.create_task(server.workers.run(gate)))
        await until(lambda: gate.running == 1)
        server.workers._max_waiting = 0
        return made

    async with raw_client(server, revision) as client:
        call = asyncio.create_task(client.text("use"))
        await until(lambda: gate.running == 1 and server.workers._waiting == 1)
        gate.open()
        assert await call == "made"
    assert log == ["cleaned up"]
    assert await asyncio.gather(*holding) == ["through"]
    await ended(server.workers, gate)
