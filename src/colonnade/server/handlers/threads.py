"""The thread pool for blocking functions: started on demand, ended when idle, bounded.

By default at most forty functions run at once (`Server(threads=...)`). Eight threads are started
as calls arrive. More are started only for calls that have waited, and while the event loop runs its
timers on time: a thread that waits for a database costs the loop nothing, a thread that computes
holds the interpreter lock. With forty computing threads the loop needed five seconds for a request
that takes 0.1 s with eight. Threads are daemons: a function that never returns keeps its thread,
but must not keep the process alive.

Rules: the outcome of a job is delivered once, to the event loop that submitted it. A job that is
cancelled before it starts is dropped at once, with its arguments. One that is cancelled later
continues, and another thread may be started in its place, within limits: beyond them calls are
refused with a retry hint, instead of waiting for a thread that may never be free.
"""

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from colonnade.errors import FaultKind

if TYPE_CHECKING:  # imported on first use
    from colonnade.protocol.http.security import HttpError

# AnyIO's default, which Starlette, FastAPI and FastMCP use.
THREADS = 40
# Threads that are started without waiting. More computing threads delay every response.
INITIAL_THREADS = 8
# Threads in place of those that wait for an input response, or whose call was cancelled: each
# costs a stack, and may be blocked forever.
SPARE_THREADS = 64
# Cancelled calls of one function that may still run before it is refused: half of the spare
# threads, so that the other half is left for other functions.
MAX_ABANDONED = SPARE_THREADS // 2
# Calls that wait for a thread, as many as a client may have at once; each holds its arguments.
MAX_WAITING = 1000
# An idle thread ends after this time.
IDLE_S = 10.0
# A job that has waited this long may get a thread beyond the initial ones...
WAIT_S = 0.01
# ...if the event loop's timer is not later than this: a computing thread holds the interpreter lock
# for 5 ms at a time. If it is late, only after a second of waiting, and one thread at a time.
LATE_S = 0.0025
LATE_WAIT_S = 1.0
# Dropped jobs stay in the queue without their function; so many are removed together.
MAX_DROPPED = 64
# `Retry-After` of refused calls.
RETRY_S = 1

T = TypeVar("T")

# Reasons of refusals. Without names: those of dependencies are not for callers.
ABANDONED = "too many cancelled calls of this are still running"
BLOCKED = "every thread is blocked"

WAITING, RUNNING, DONE = "waiting", "running", "done"


class Job(Generic[T]):
    """One call, and the future that waits for its outcome.

    `name` is the name of the function, for limits. A `required` job is never refused.
    """

    __slots__ = (
        "_context",
        "_error",
        "_function",
        "_value",
        "abandoned",
        "future",
        "loop",
        "name",
        "required",
        "state",
    )

    def __init__(
        self,
        function: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        name: str = "",
        required: bool = False,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.name: str = name
        self.required: bool = required
        self.future: asyncio.Future[T] = loop.create_future()
        self._function: Callable[[], T] | None = function
        self._context: contextvars.Context | None = contextvars.copy_context()
        self._error: BaseException | None = None
        # Guarded by the lock of `Workers`. `abandoned`: its caller was cancelled.
        self.state: str = WAITING
        self.abandoned: bool = False

    def work(self) -> None:
        """Run the function in the current thread."""
        function, context = self._function, self._context
        assert function is not None
        assert context is not None
        try:
            self._value = context.run(function)
        except StopIteration as error:  # a future cannot hold it
            self._error = RuntimeError(f"the function raised {error!r}")
        except BaseException as error:
            self._error = error

    def drop(self, error: BaseException | None = None) -> None:
        """Release the function and its arguments; `error` becomes the outcome."""
        self._function = self._context = None
        self._error = error

    def settle(self) -> None:
        """Set the outcome; called in the event loop."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._value)
        else:
            self.future.set_exception(self._error)
            self.future.exception()  # retrieved, so that asyncio does not warn


class ResultQueue:
    """Delivers outcomes to one event loop, with one wake-up for all that are queued."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._done: deque[Job[Any]] = deque()
        self._scheduled = False

    def put(self, job: Job[Any]) -> None:
        """Add a finished job; thread-safe."""
        self._done.append(job)
        # Two threads may both schedule it, which does no harm. It is never missed: a job that was
        # appended before `_settle_all` runs is found, and a later one sees the flag cleared.
        if not self._scheduled:
            self._scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._settle_all)

    def _settle_all(self) -> None:
        self._scheduled = False
        while self._done:
            self._done.popleft().settle()


class Workers:
    """The worker threads of a server: `threads` run at once, `max_threads` may exist."""

    def __init__(
        self,
        threads: int = THREADS,
        max_threads: int | None = None,
        waiting: int = MAX_WAITING,
        abandoned: int = MAX_ABANDONED,
    ) -> None:
        self._limit = threads
        self._initial = min(threads, INITIAL_THREADS)
        # The limit while the loop is late: the initial threads, plus those after a long wait.
        self._late_limit = self._initial
        self._max_threads = max(max_threads or threads + SPARE_THREADS, threads)
        self._max_waiting = waiting
        self._max_abandoned = abandoned
        # None ends a thread.
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._results: ResultQueue | None = None
        # Guards all attributes below.
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        # Threads that wait for an input response, or whose call was cancelled.
        self._released = 0
        # How many items of the queue are None, and how many are dropped jobs.
        self._stop_markers = 0
        self._dropped = 0
        # Running calls that were cancelled, by name.
        self._abandoned: Counter[str] = Counter()
        # Total jobs put into the queue, and taken from it.
        self._put = 0
        self._taken = 0
        # The timer for waiting jobs, with its loop; whether it was late; how many jobs had been put
        # when it was set; since when jobs wait while it is late; how many threads it starts next.
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._late = False
        self._put_at_timer = 0
        self._since = 0.0
        self._step = 1

    async def run(self, function: Callable[[], T], name: str = "", *, required: bool = False) -> T:
        """Run a blocking function in a thread and wait for it.

        `name` is for the limits. Raises `HttpError` (503) if there is no free thread and the queue
        is full, unless it is `required`: cleaning up is never refused.
        """
        loop = asyncio.get_running_loop()
        job = Job(function, loop, name, required)
        with self._lock:
            if self._abandoned and not required:
                self._check_abandoned(name)
            waiting = self._jobs.qsize() - self._stop_markers - self._dropped
            if waiting >= self._idle and not self._start(self._initial):
                self._check_room(waiting, required)
                self._set_timer(loop)
            self._put += 1
            self._jobs.put(job)  # last: the thread that takes it needs the lock
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    # ------------------------------------------------------------ limits

    @property
    def _waiting(self) -> int:
        """The number of jobs in the queue."""
        return self._jobs.qsize() - self._stop_markers - self._dropped

    def _check_abandoned(self, name: str) -> None:
        if self._abandoned[name] >= self._max_abandoned:
            raise _busy(ABANDONED)

    def _check_room(self, waiting: int, required: bool) -> None:
        """Refuse a job that may not wait for a thread."""
        if required:
            return
        if self._blocked:
            raise _busy(BLOCKED)
        if waiting >= self._max_waiting:
            raise _busy(f"{waiting} calls wait for a thread")

    @property
    def _blocked(self) -> bool:
        """Whether every thread runs a cancelled call, or waits for an input response."""
        return self._threads == self._released

    def _abandon(self, job: Job[Any]) -> None:
        """Handle the cancellation of a job's caller."""
        with self._lock:
            if job.state is WAITING:
                job.abandoned = True
                job.drop()
                self._dropped += 1
                if self._dropped > MAX_DROPPED and 2 * self._dropped > self._jobs.qsize():
                    self._empty_queue(keep=True)
            elif job.state is RUNNING:
                job.abandoned = True
                self._abandoned[job.name] += 1
                self._release_slot()

    def _release_slot(self) -> None:
        """Release the slot of a thread that does no work for a caller; another may be started."""
        self._released += 1
        if self._waiting > self._idle and not self._start(self._initial) and self._blocked:
            self._empty_queue(keep=False)

    def _empty_queue(self, *, keep: bool) -> None:
        """Remove dropped jobs from the queue; without `keep` also refuse the waiting ones."""
        found: list[Job[Any] | None] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._jobs.get_nowait())
        for job in found:
            if job is None or not (job.abandoned or (not keep and not job.required)):
                self._jobs.put(job)
                continue
            self._taken += 1
            if job.abandoned:
                self._dropped -= 1
            else:
                self._refuse(job, _busy(BLOCKED))

    def _refuse(self, job: Job[Any], refusal: "HttpError") -> None:
        job.state = DONE
        job.drop(refusal)
        self._deliver(job)

    # ------------------------------------------------------------ how many threads

    def _start(self, limit: int) -> bool:
        """Start a thread if fewer than `limit` have a slot; whether one was started."""
        if self._threads - self._released >= limit or self._threads >= self._max_threads:
            return False
        try:
            threading.Thread(target=self._run_jobs, name="colonnade-worker", daemon=True).start()
        except RuntimeError:  # the system has none left; the existing threads take the job
            if not self._threads:
                raise
            return False
        self._threads += 1  # the new thread waits for the lock
        return True

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a check of waiting jobs, if more than the initial threads are allowed."""
        if self._initial == self._limit or (self._timer is not None and self._timer[0] is loop):
            return
        due = time.monotonic() + WAIT_S
        self._put_at_timer = self._put
        self._timer = loop, loop.call_later(WAIT_S, self._check_waiting, loop, due)

    def _check_waiting(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Start threads for jobs that have waited since the timer was set; in the event loop."""
        now = time.monotonic()
        with self._lock:
            self._timer = None
            self._late = now - due > LATE_S
            waiting = self._waiting - self._idle
            overdue = min(waiting, self._put_at_timer - self._taken)
            if overdue <= 0 or self._late:
                self._step = 1
            if overdue <= 0:
                self._since = 0.0
                self._late_limit = self._initial
            elif not self._late:
                self._since = 0.0
                for _ in range(min(overdue, self._step)):
                    self._start(self._limit)
                # A timer may be on time by chance beside computing threads, but not repeatedly.
                self._step *= 2
            elif not self._since:
                self._since = now
            elif now - self._since >= LATE_WAIT_S:
                self._since = now
                self._late_limit += 1  # or the new thread would end at once
                self._start(self._limit)
            if waiting > 0:
                self._set_timer(loop)

    # ------------------------------------------------------------ in a thread

    def _run_jobs(self) -> None:
        while (job := self._next()) is not None:
            job.work()
            self._deliver(job)
            with self._lock:
                job.state = DONE
                if job.abandoned:
                    self._released -= 1
                    self._abandoned[job.name] -= 1
                    if not self._abandoned[job.name]:
                        del self._abandoned[job.name]
            del job  # release its arguments before waiting for the next

    def _deliver(self, job: Job[Any]) -> None:
        results = self._results
        if results is None or results.loop is not job.loop:
            results = self._results = ResultQueue(job.loop)
        results.put(job)

    def _next(self) -> Job[Any] | None:
        """The next job; None if the thread is to end."""
        while True:
            with self._lock:
                if self._threads - self._released > (
                    self._late_limit if self._late else self._limit
                ):
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
                    self._taken += 1
                    # This thread counted as idle until now: a job put meanwhile may rely on it.
                    if self._jobs.qsize() - self._stop_markers - self._dropped > self._idle:
                        self._start(self._initial)
                    if job.abandoned or (self._abandoned and not self._may_begin(job)):
                        self._dropped -= job.abandoned
                        continue
                    if job.future.cancelled():  # `_abandon` has not run yet
                        job.state = DONE
                        job.drop()
                        continue
                    job.state = RUNNING
                    return job
                self._stop_markers -= job is None
                if self._jobs.qsize() <= self._stop_markers:  # else a job relies on this thread
                    self._threads -= 1
                    return None

    def _may_begin(self, job: Job[Any]) -> bool:
        """Refuse a job if too many cancelled calls of the same function are still running."""
        if job.required or self._abandoned[job.name] < self._max_abandoned:
            return True
        self._refuse(job, _busy(ABANDONED))
        return False

    @contextlib.contextmanager
    def release_slot(self) -> Generator[None]:
        """Release the slot of the current thread while it waits for the event loop."""
        with self._lock:
            self._release_slot()
        try:
            yield
        finally:
            with self._lock:
                self._released -= 1

    def stop(self) -> None:
        """End the threads once the queue is empty."""
        with self._lock:
            for _ in range(self._threads - self._stop_markers):
                self._stop_markers += 1
                self._jobs.put(None)


def _busy(reason: str) -> "HttpError":
    """HTTP 503, or an internal error without HTTP. The call was not started, so it can be
    retried."""
    from colonnade.protocol.http.security import UNAVAILABLE, HttpError

    message = f"the server is busy: {reason}; try again in {RETRY_S} s"
    headers = (("Retry-After", str(RETRY_S)),)
    data = {"retryAfterMs": 1000 * RETRY_S}
    return HttpError(UNAVAILABLE, message, kind=FaultKind.INTERNAL, headers=headers, data=data)
