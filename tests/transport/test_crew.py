"""Tasks that rest and answer at once: whose task it is, its context, its end, and giving up."""

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from operator import is_
from typing import Any, TypeAlias

from colonnade.transport import eager_tasks as crews
from colonnade.transport.eager_tasks import Crew
from live import live, until

NOTE: contextvars.ContextVar[str] = contextvars.ContextVar("NOTE", default="nothing")
Job: TypeAlias = Callable[[], Awaitable[Any]]


class Bench:
    """A crew that does what it is given, and what each job came to."""

    def __init__(self) -> None:
        self.crew: Crew[Job] = Crew(self._do, lambda data: None)
        self.done: list[Any] = []

    async def _do(self, job: Job, task: "asyncio.Task[None]") -> None:
        assert asyncio.current_task() is task
        try:
            self.done.append(await job())
        except asyncio.CancelledError:
            self.done.append("given up")
        assert asyncio.current_task() is task

    async def warm(self) -> None:
        """Somebody has worked before, and rests now."""
        self.crew.call(who)
        await until(lambda: self.crew._resting is not None)
        self.done.clear()


@asynccontextmanager
async def bench() -> AsyncGenerator[Bench]:
    made = Bench()
    await made.warm()
    try:
        yield made
    finally:
        made.crew.end()
        if made.crew.tasks:
            await asyncio.wait(made.crew.tasks, timeout=60)
        assert not crews._nested
    # `live` sees that no task is left.


async def who() -> Any:
    return asyncio.current_task()


@live
async def test_what_never_waits_is_done_at_once_and_in_a_task_of_its_own() -> None:
    async with bench() as here:
        own = asyncio.current_task()
        here.crew.call(who)
        here.crew.call(who)
        assert asyncio.current_task() is own
        first, second = here.done
        assert first is second
        assert first is not own


@live
async def test_it_is_also_done_at_once_where_there_is_no_task_at_all() -> None:
    async with bench() as here:
        seen = asyncio.Event()

        def callback() -> None:
            here.crew.call(who)
            assert len(here.done) == 1
            seen.set()

        asyncio.get_running_loop().call_soon(callback)
        await seen.wait()


@live
async def test_what_waits_goes_on_in_the_task_in_whose_name_it_began() -> None:
    async with bench() as here:
        gate = asyncio.Event()

        async def job() -> Any:
            before = asyncio.current_task()
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(gate.wait())
                await asyncio.sleep(0)
            return before is asyncio.current_task()

        here.crew.call(job)
        here.crew.call(who)
        assert here.done == []
        gate.set()
        await until(lambda: len(here.done) == 2)
        assert True in here.done


@live
async def test_a_time_that_runs_out_ends_only_what_it_was_set_for() -> None:
    async with bench() as here:

        async def job() -> str:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            return "went on"

        here.crew.call(job)
        await until(lambda: here.done == ["went on"])


@live
async def test_a_failure_that_is_waited_for_reaches_who_waits() -> None:
    async with bench() as here:
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def job() -> str:
            with contextlib.suppress(KeyError):
                await failing
            await asyncio.sleep(0)
            return "heard"

        here.crew.call(job)
        failing.set_exception(KeyError("x"))
        await until(lambda: here.done == ["heard"])


@live
async def test_giving_up_reaches_what_has_just_begun_and_what_it_waits_for() -> None:
    for turns in range(3):
        async with bench() as here:
            inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tasks: list[Any] = []

            async def job(inner: "asyncio.Future[None]" = inner, tasks: list[Any] = tasks) -> None:
                tasks.append(asyncio.current_task())
                await inner

            here.crew.call(job)
            for _ in range(turns):
                await asyncio.sleep(0)
            tasks[0].cancel()
            await until(lambda here=here: here.done == ["given up"])
            assert inner.cancelled()


@live
async def test_giving_up_reaches_what_only_lets_others_have_a_turn() -> None:
    async with bench() as here:
        tasks: list[Any] = []

        async def job() -> None:
            tasks.append(asyncio.current_task())
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        here.crew.call(job)
        tasks[0].cancel()
        await until(lambda: here.done == ["given up"])


@live
async def test_what_gives_itself_up_is_given_up_where_it_next_waits() -> None:
    async with bench() as here:

        async def job() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()

        here.crew.call(job)
        await until(lambda: here.done == ["given up"])
        here.crew.call(who)
        await until(lambda: len(here.done) == 2)


@live
async def test_what_is_left_behind_is_for_nobody_and_its_task_ends() -> None:
    async with bench() as here:

        async def leave() -> Any:
            NOTE.set("left")
            return asyncio.current_task()

        async def swallow() -> Any:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return task

        async def look() -> Any:
            task = asyncio.current_task()
            assert task is not None
            return task, NOTE.get(), task.cancelling()

        for job in (leave, swallow):
            here.done.clear()
            here.crew.call(job)
            here.crew.call(look)
            await until(lambda: len(here.done) == 2)
            first, (second, note, cancelling) = here.done
            assert first is not second
            assert (note, cancelling) == ("nothing", 0)
            assert NOTE.get() == "nothing"
            await until(lambda: here.crew._resting is not None)


@live
async def test_each_sees_the_context_of_whoever_called() -> None:
    async with bench() as here:

        async def look() -> str:
            return NOTE.get()

        for note in ("a", "b", "b"):
            NOTE.set(note)
            here.crew.call(look)
            await asyncio.sleep(0)
            await until(lambda: here.crew._resting is not None)
        assert here.done == ["a", "b", "b"]


@live
async def test_each_sees_its_own_context_also_where_several_call_before_anything_begins() -> None:
    async with bench() as here:

        async def look() -> str:
            found = NOTE.get()
            NOTE.set("left behind")
            return found

        async def look_later() -> str:
            await asyncio.sleep(0)
            return NOTE.get()

        async def caller(note: str, job: Job) -> None:
            async def both() -> tuple[str, str]:
                return note, await job()

            NOTE.set(note)
            here.crew.call(both)

        for job in (look, look_later):
            here.done.clear()
            await asyncio.gather(*(caller(note, job) for note in "abbac"))
            await until(lambda: len(here.done) == 5)
            assert all(note == found for note, found in here.done)
            await until(lambda: not here.crew.busy)


@live
async def test_it_is_the_same_where_a_loop_begins_its_tasks_at_once() -> None:
    # Python 3.11 has no such loops.
    asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
    async with bench() as here:

        async def later() -> Any:
            await asyncio.sleep(0)
            return asyncio.current_task()

        for job in (who, later, who):
            here.crew.call(job)
        await until(lambda: len(here.done) == 3)
        assert asyncio.current_task() not in here.done


@live
async def test_what_is_only_equal_is_not_taken_for_what_the_caller_has() -> None:
    async with bench() as here:
        mine: contextvars.ContextVar[Any] = contextvars.ContextVar("mine")

        class Strange:
            def __eq__(self, other: object) -> bool:
                raise ValueError("an array of truths is none")

            __hash__ = None  # type: ignore[assignment]

        async def look() -> Any:
            return mine.get()

        given: list[Any] = [[], [], 1, True, Strange(), Strange()]
        for one in given:
            mine.set(one)
            here.crew.call(look)
            await asyncio.sleep(0)
            await until(lambda: here.crew._resting is not None)
        assert all(map(is_, here.done, given))


@live
async def test_what_is_called_while_more_is_coming_begins_after_that_in_order() -> None:
    async with bench() as here:
        gate = asyncio.Event()

        async def wait() -> str:
            await gate.wait()
            return "waited"

        async def number(of: int) -> int:
            return of

        here.crew.hold()
        for one in (1, 2, 3):
            here.crew.call(lambda one=one: number(one))
        here.crew.call(wait)
        here.crew.call(lambda: number(4))
        assert here.done == []
        here.crew.release()
        assert here.done == [1, 2, 3]
        await until(lambda: here.done == [1, 2, 3, 4])
        gate.set()
        await until(lambda: here.done[-1] == "waited")
        here.crew.hold()
        here.crew.release()


@live
async def test_not_even_calls_inside_of_calls_fill_the_stack() -> None:
    async with bench() as first, bench() as second:
        reached: list[int] = []

        async def deeper(depth: int) -> None:
            reached.append(depth)
            if depth < 500:  # far more than Python's stack would take
                here = first if depth % 2 else second
                made = asyncio.get_running_loop().create_future()

                async def inner() -> None:
                    await deeper(depth + 1)
                    made.set_result(None)

                here.crew.call(inner)
                await made

        first.crew.call(lambda: deeper(0))
        await until(lambda: len(first.done) + len(second.done) == 501)
        assert reached == list(range(501))


@live
async def test_after_the_end_nobody_rests_and_what_is_at_work_may_finish() -> None:
    made = Bench()
    await made.warm()
    gate = asyncio.Event()
    made.crew.call(gate.wait)
    made.crew.end()
    assert len(made.crew.busy) == 1
    gate.set()
    await asyncio.wait(made.crew.tasks, timeout=60)
    assert made.done == [True]
    assert made.crew.busy == []
