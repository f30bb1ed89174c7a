"""Threads for functions that block: few, started when needed, gone when idle.

Few, because threads that compute take the loop's time away; a thread that only waits for an answer
of the client steps aside and does not count. They are daemons: a function that never returns keeps
its thread, and must not keep the process.

Rules: a job's outcome is told to the loop that asked, once. A job that nobody waits for any more is
not begun; one that was begun goes on, and another may have its place.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

# More threads that compute make every answer later: four of them already cost the loop nine
# tenths of its calls.
THREADS = 8
# With those that wait for an answer of a client, or that nobody waits for: each costs a stack.
MAX_THREADS = 64
# An idle thread waits for so long for the next job.
IDLE_S = 10.0

T = TypeVar("T")


class Job(Generic[T]):
    """One call, and who waits for it."""

    __slots__ = ("_context", "_function", "_future", "_loop", "begun", "left")

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
        self._future: asyncio.Future[T] = loop.create_future()
        self._context = contextvars.copy_context()
        # Kept by `Workers`: whether a thread has it, and whether nobody waits for it any more.
        self.begun: bool = False
        self.left: bool = False

    @property
    def future(self) -> asyncio.Future[T]:
        """What the loop waits for."""
        return self._future

    def work(self) -> None:
        """Run it, in whichever thread this is, and tell the loop."""
        if self._future.cancelled():
            return
        try:
            value = self._context.run(self._function)
        except StopIteration as error:  # which no future can hold
            self._tell(self._fail, RuntimeError(f"the function raised {error!r}"))
        except BaseException as error:
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, value)

    def _tell(self, settle: Callable[[Any], None], outcome: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over, and nobody waits
            self._loop.call_soon_threadsafe(settle, outcome)

    def _succeed(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def _fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # whoever waits sees it; nobody else is to be warned


class Workers:
    """The threads of one server."""

    def __init__(self, threads: int = THREADS, most: int = MAX_THREADS) -> None:
        self._limit = threads
        self._most = max(most, threads)
        self._jobs: deque[Job[Any]] = deque()
        # Guards all that is below; who waits on it is idle.
        self._work = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._aside = 0
        self._stopping = False

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that blocks, in a thread, and wait for it."""
        job = Job(function, asyncio.get_running_loop())
        with self._work:
            self._stopping = False
            self._jobs.append(job)
            self._grow()
            self._work.notify()
        try:
            return await job.future
        except asyncio.CancelledError:
            self._leave(job)
            raise

    def _leave(self, job: Job[Any]) -> None:
        """Nobody waits for a job: if it still runs, another may have its place."""
        with self._work:
            if job.begun and not job.left:
                job.left = True
                self._aside += 1
                self._grow()

    def _grow(self) -> None:
        """Start a thread, if there is work for it and room."""
        room = self._threads - self._aside < self._limit and self._threads < self._most
        if room and len(self._jobs) > self._idle:
            self._threads += 1
            threading.Thread(target=self._live, name="portico-worker", daemon=True).start()

    def _live(self) -> None:
        while (job := self._next()) is not None:
            job.work()
            with self._work:
                job.begun = False
                self._aside -= job.left
            del job  # what it held must not wait for the next one

    def _next(self) -> Job[Any] | None:
        """The next job; None for a thread that is to end."""
        with self._work:
            while self._threads - self._aside <= self._limit:
                if self._jobs:
                    job = self._jobs.popleft()
                    job.begun = True
                    return job
                if self._stopping:
                    break
                self._idle += 1
                woken = self._work.wait(IDLE_S)
                self._idle -= 1
                if not woken and not self._jobs:
                    break
            self._threads -= 1
            return None

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """While a job waits for something else, another one may have its place."""
        with self._work:
            self._aside += 1
            self._grow()
        try:
            yield
        finally:
            with self._work:
                self._aside -= 1

    def stop(self) -> None:
        """Let the threads go as soon as there is nothing more to do."""
        with self._work:
            self._stopping = True
            self._work.notify_all()
