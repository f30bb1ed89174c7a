"""Threads for functions that block: how many there are, when they end, and who is told what."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from colonnade.server.handlers import threads as module
from colonnade.server.handlers.threads import Workers
from live import live, until


def alive() -> int:
    return sum(thread.name == "colonnade-worker" for thread in threading.enumerate())


async def gone() -> None:
    await until(lambda: alive() == 0)


class Gate:
    """Functions that wait, and how many of them do."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0

    def __call__(self) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self._open.wait(60)
        with self._lock:
            self.inside -= 1
        return "through"

    def open(self) -> None:
        self._open.set()


@live
async def test_no_more_threads_than_allowed_and_every_job_is_done() -> None:
    workers, gate = Workers(3), Gate()
    jobs = [asyncio.ensure_future(workers.run(gate)) for _ in range(10)]
    await until(lambda: gate.inside == 3)
    assert alive() == 3
    gate.open()
    assert await asyncio.gather(*jobs) == ["through"] * 10
    assert gate.most == 3
    workers.stop()
    await gone()


@live
async def test_a_thread_runs_one_call_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 60.0)
    workers = Workers(1)
    threads = [await workers.run(threading.current_thread) for _ in range(5)]
    assert len(set(threads)) == alive() == 1
    workers.stop()
    await gone()


@live
async def test_an_idle_thread_ends_and_the_next_call_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    workers = Workers(4)
    for _ in range(2):
        assert await workers.run(lambda: "done") == "done"
        await gone()


@live
async def test_who_waits_for_something_else_makes_room() -> None:
    workers, gate, inner = Workers(1, 3), Gate(), Gate()

    def aside() -> str:
        with workers.release_slot():
            return gate()

    waiting = [asyncio.ensure_future(workers.run(aside)) for _ in range(2)]
    await until(lambda: gate.inside == 2)
    working = [asyncio.ensure_future(workers.run(inner)) for _ in range(2)]
    await until(lambda: inner.inside == 1)
    assert alive() == 3
    gate.open()
    assert await asyncio.gather(*waiting) == ["through"] * 2
    inner.open()
    assert await asyncio.gather(*working) == ["through"] * 2
    assert inner.most == 1
    workers.stop()
    await gone()


@live
async def test_a_job_that_nobody_wants_any_more_is_not_begun() -> None:
    workers, gate, ran = Workers(1), Gate(), list[str]()
    first = asyncio.ensure_future(workers.run(gate))
    await until(lambda: gate.inside == 1)
    second = asyncio.ensure_future(workers.run(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    third = asyncio.ensure_future(workers.run(lambda: ran.append("third")))
    gate.open()
    await asyncio.wait([first, second, third])
    assert ran == ["third"]
    workers.stop()
    await gone()


@live
async def test_one_that_was_begun_goes_on_and_its_outcome_is_nobodys() -> None:
    workers, gate = Workers(1), Gate()
    job = asyncio.ensure_future(workers.run(gate))
    await until(lambda: gate.inside == 1)
    job.cancel()
    await asyncio.wait([job])
    gate.open()
    assert await workers.run(lambda: "next") == "next"
    workers.stop()
    await gone()


@live
async def test_threads_that_never_return_do_not_keep_the_places_of_others() -> None:
    workers, gate = Workers(2, max_threads=6), Gate()
    for number in range(1, 5):
        job = asyncio.ensure_future(workers.run(gate))
        await until(lambda number=number: gate.inside == number)
        job.cancel()
        await asyncio.wait([job])
    assert await asyncio.gather(*(workers.run(lambda: "next") for _ in range(5))) == ["next"] * 5
    gate.open()
    await until(lambda: workers._released == 0)
    assert await workers.run(lambda: "again") == "again"
    workers.stop()
    await gone()


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_function_raises_is_raised_to_who_waits(error: BaseException) -> None:
    workers = Workers(1)

    def fails() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(type(error)) as caught:
            await workers.run(fails)
        assert caught.value is error
        workers.stop()

    asyncio.run(main())


@live
async def test_context_variables_are_those_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="none")
    workers = Workers(1)

    def change() -> str:
        before = variable.get()
        variable.set("changed in a thread")
        return before

    variable.set("mine")
    assert await workers.run(change) == "mine"
    assert variable.get() == "mine"
    assert await workers.run(variable.get) == "mine"
    workers.stop()
    await gone()


@live
async def test_stopped_in_the_middle_it_goes_on_with_what_is_there() -> None:
    workers = Workers(2)
    results: list[Callable[[], int]] = [lambda n=n: n for n in range(50)]
    jobs = [asyncio.ensure_future(workers.run(one)) for one in results]
    await asyncio.sleep(0)
    workers.stop()
    assert await asyncio.gather(*jobs) == list(range(50))
    workers.stop()
    await gone()


def test_a_loop_that_is_over_is_not_told() -> None:
    workers, gate = Workers(1), Gate()

    async def leave() -> None:
        job = asyncio.ensure_future(workers.run(gate))
        await until(lambda: gate.inside == 1)
        job.cancel()
        await asyncio.wait([job])

    asyncio.run(leave())
    gate.open()
    asyncio.run(workers.run(lambda: None))  # type: ignore[arg-type]
    workers.stop()


class Slow(SimpleQueue[Any]):
    """Where whoever has taken something is held up on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = threading.Event()
        self.go = threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        found = super().get(block, timeout)
        self.taken.set()
        assert self.go.wait(60)
        return found


@live
async def test_a_thread_that_has_a_job_already_is_not_counted_on_for_another() -> None:
    workers, jobs, second = Workers(2), Slow(), threading.Event()
    workers._jobs = jobs
    first = asyncio.ensure_future(workers.run(lambda: second.wait(60)))
    await until(jobs.taken.is_set)
    last = asyncio.ensure_future(workers.run(second.set))
    await asyncio.sleep(0)
    jobs.go.set()
    assert await first, "the second job waited for the first"
    await last
    workers.stop()
    await gone()


@live
async def test_a_thread_that_the_system_does_not_give_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = Workers(1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            await workers.run(lambda: "never")
    assert await workers.run(lambda: "done") == "done"
    workers.stop()
    await gone()
