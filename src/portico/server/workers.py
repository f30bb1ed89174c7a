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
from queue import Empty, SimpleQueue
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

    __slots__ = ("_context", "_error", "_function", "_value", "begun", "future", "left", "loop")

    def __init__(self, function: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        # What the loop waits for.
        self.future: asyncio.Future[T] = loop.create_future()
        self._function = function
        self._context = contextvars.copy_context()
        self._error: BaseException | None = None
        # Kept by `Workers`: whether a thread has it, and whether nobody waits for it any more.
        self.begun: bool = False
        self.left: bool = False

    def work(self) -> bool:
        """Run it, in whichever thread this is; whether there is an outcome to tell."""
        if self.future.cancelled():
            return False
        try:
            self._value = self._context.run(self._function)
        except StopIteration as error:  # which no future can hold
            self._error = RuntimeError(f"the function raised {error!r}")
        except BaseException as error:
            self._error = error
        return True

    def settle(self) -> None:
        """Tell whoever waits; in the loop."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._value)
        else:
            self.future.set_exception(self._error)
            self.future.exception()  # whoever waits sees it; nobody else is to be warned


class Mailbox:
    """Outcomes on their way to one loop, which is woken once for all that are there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._done: deque[Job[Any]] = deque()
        self._woken = False

    def put(self, job: Job[Any]) -> None:
        """An outcome, from any thread."""
        self._done.append(job)
        # Two may both wake it, which does no harm. That nobody does cannot be: what was put here
        # before it woke is found, and what comes after that finds it unwoken.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is over, and nobody waits
                self.loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._woken = False
        while self._done:
            self._done.popleft().settle()


class Workers:
    """The threads of one server."""

    def __init__(self, threads: int = THREADS, most: int = MAX_THREADS) -> None:
        self._limit = threads
        self._most = max(most, threads)
        # None wakes a thread that is to end.
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._mailbox: Mailbox | None = None
        # Guards all that is below.
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._aside = 0
        # How many of the jobs are None.
        self._ends = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that blocks, in a thread, and wait for it."""
        job = Job(function, asyncio.get_running_loop())
        with self._lock:
            self._grow(1)
            self._jobs.put(job)  # last of all: whoever takes it needs the lock
        try:
            return await job.future
        except asyncio.CancelledError:
            self._leave(job)
            raise

    def _leave(self, job: Job[Any]) -> None:
        """Nobody waits for a job: if it still runs, another may have its place."""
        with self._lock:
            if job.begun and not job.left:
                job.left = True
                self._aside += 1
                self._grow()

    def _grow(self, coming: int = 0) -> None:
        """Start a thread, if there is work for it and room."""
        room = self._threads - self._aside < self._limit and self._threads < self._most
        if room and self._jobs.qsize() - self._ends + coming > self._idle:
            try:
                threading.Thread(target=self._live, name="portico-worker", daemon=True).start()
            except RuntimeError:  # the system gives none; those that are here do it in time
                if not self._threads:
                    raise
            else:
                self._threads += 1  # it waits for the lock, and finds itself counted

    def _live(self) -> None:
        while (job := self._next()) is not None:
            if job.work():
                self._tell(job)
            with self._lock:
                job.begun = False
                self._aside -= job.left
            del job  # what it held must not wait for the next one

    def _tell(self, job: Job[Any]) -> None:
        mailbox = self._mailbox
        if mailbox is None or mailbox.loop is not job.loop:
            mailbox = self._mailbox = Mailbox(job.loop)
        mailbox.put(job)

    def _next(self) -> Job[Any] | None:
        """The next job; None for a thread that is to end."""
        while True:
            with self._lock:
                if self._threads - self._aside > self._limit:
                    self._threads -= 1
                    return None
                self._idle += 1
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except Empty:
                job = False
            with self._lock:
                self._idle -= 1
                if job:
                    job.begun = True
                    # It counted as idle until now, though it had this one: a job that came
                    # meanwhile may have relied on it.
                    self._grow()
                    return job
                self._ends -= job is None
                if self._jobs.qsize() <= self._ends:  # else somebody counts on this one
                    self._threads -= 1
                    return None

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """While a job waits for something else, another one may have its place."""
        with self._lock:
            self._aside += 1
            self._grow()
        try:
            yield
        finally:
            with self._lock:
                self._aside -= 1

    def stop(self) -> None:
        """Let the threads go as soon as there is nothing more to do."""
        with self._lock:
            for _ in range(self._threads - self._ends):
                self._ends += 1
                self._jobs.put(None)
