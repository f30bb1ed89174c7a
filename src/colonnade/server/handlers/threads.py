"""Threads for functions that block: started when needed, ended when idle, bounded in number.

Forty functions run at once, unless `Server(threads=...)` says otherwise. Eight threads are started
as calls come in. More are started only for calls that have waited, and while the event loop runs
its timers in time: a thread that waits for a database costs the loop nothing, a thread that
computes holds the interpreter. Beside forty threads that compute, the loop needed five seconds for
a request that takes 0.1 s beside eight. Threads are daemons: a function that never returns keeps
its thread, and must not keep the process.

Rules: the outcome of a job is told once, to the loop that asked for it. A job that was cancelled
before it began is dropped at once, with its arguments. One that was cancelled later goes on, and
another thread may be started in place of its own, within limits: beyond them calls are refused, and
told to try again, instead of waiting for a thread that may never be free.
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

if TYPE_CHECKING:  # few servers are ever overloaded
    from colonnade.protocol.http.security import HttpError

# What Starlette, FastAPI and FastMCP run at once, by AnyIO's default.
THREADS = 40
# Threads that are started without a wait. More that compute make every answer later.
FEW_THREADS = 8
# Threads in place of those that wait for an answer of a client, or whose call was cancelled: each
# costs a stack, and may be blocked for ever.
SPARE_THREADS = 64
# Cancelled calls of one function that may still run before it is refused: half of the spare
# threads, so that the other half is left for other functions.
MAX_ABANDONED = SPARE_THREADS // 2
# Calls that wait for a thread, as many as a client may have at once; each holds its arguments.
MAX_WAITING = 1000
# An idle thread waits for so long for the next job.
IDLE_S = 10.0
# A job that waits for so long may get a thread beyond the few...
PATIENCE_S = 0.01
# ...if the loop's own timer is not later than this: a thread that computes holds the interpreter
# for 5 ms at a time. If it is, only after a second of waiting, and only one thread at a time.
LATE_S = 0.0025
LATE_PATIENCE_S = 1.0
# Dropped jobs stay in the queue as empty shells; so many are removed together.
MAX_SHELLS = 64
# What a refused caller is told to wait.
RETRY_S = 1

T = TypeVar("T")

# Why a call is refused. Names are left out: those of dependencies are not for callers.
ABANDONED = "too many cancelled calls of this are still running"
BLOCKED = "every thread is blocked"

WAITING, RUNNING, DONE = "waiting", "running", "done"


class Job(Generic[T]):
    """One call, and the future that waits for its outcome.

    `name` is what is called, for limits and errors. A `required` job is never refused.
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
        # Both guarded by the lock of `Workers`: how far it is, whether its caller was cancelled.
        self.state: str = WAITING
        self.abandoned: bool = False

    def work(self) -> None:
        """Run the function, in whichever thread this is."""
        function, context = self._function, self._context
        assert function is not None
        assert context is not None
        try:
            self._value = context.run(function)
        except StopIteration as error:  # which no future can hold
            self._error = RuntimeError(f"the function raised {error!r}")
        except BaseException as error:
            self._error = error

    def drop(self, error: BaseException | None = None) -> None:
        """Let go of the function and its arguments; `error` becomes the outcome."""
        self._function = self._context = None
        self._error = error

    def settle(self) -> None:
        """Set the outcome; in the loop."""
        if self.future.done():
            return
        if self._error is None:
            self.future.set_result(self._value)
        else:
            self.future.set_exception(self._error)
            self.future.exception()  # the caller sees it; the loop need not warn


class Mailbox:
    """Outcomes on their way to one loop, which is woken once for all that are there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._done: deque[Job[Any]] = deque()
        self._woken = False

    def put(self, job: Job[Any]) -> None:
        """An outcome, from any thread."""
        self._done.append(job)
        # Two may both wake it, which does no harm. That neither does cannot be: what was put here
        # before it woke is found, and what comes after that finds it unwoken.
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._woken = False
        while self._done:
            self._done.popleft().settle()


class Workers:
    """The threads of one server: `threads` run functions at once, `most` exist at the most."""

    def __init__(
        self,
        threads: int = THREADS,
        most: int | None = None,
        waiting: int = MAX_WAITING,
        abandoned: int = MAX_ABANDONED,
    ) -> None:
        self._limit = threads
        self._few = min(threads, FEW_THREADS)
        # How many go on beside a loop that is late: the few, and those begun after a long wait.
        self._late_limit = self._few
        self._most = max(most or threads + SPARE_THREADS, threads)
        self._max_waiting = waiting
        self._max_abandoned = abandoned
        # None wakes a thread that is to end.
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._mailbox: Mailbox | None = None
        # Guards all that is below.
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        # Threads that wait for an answer of a client, or whose call was cancelled.
        self._aside = 0
        # How many entries of the queue are None, and how many are jobs that were dropped.
        self._ends = 0
        self._shells = 0
        # The running calls that were cancelled, by name.
        self._abandoned: Counter[str] = Counter()
        # Jobs that were ever put into the queue, and that left it.
        self._put = 0
        self._taken = 0
        # The timer that looks after jobs that wait, with its loop; whether it was late; how many
        # jobs had been put when it was set, since when some of them wait while it is late, and how
        # many threads it starts the next time.
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._late = False
        self._known = 0
        self._since = 0.0
        self._step = 1

    async def run(self, function: Callable[[], T], name: str = "", *, required: bool = False) -> T:
        """Run a function that blocks, in a thread, and wait for it.

        `name` says what it is. Raises `Refusal` (503) where there is no thread for it and no place
        to wait, unless it is `required`: cleaning up is never refused.
        """
        loop = asyncio.get_running_loop()
        job = Job(function, loop, name, required)
        with self._lock:
            if self._abandoned and not required:
                self._check_abandoned(name)
            waiting = self._jobs.qsize() - self._ends - self._shells
            if waiting >= self._idle and not self._start(self._few):
                self._check_room(waiting, required)
                self._set_timer(loop)
            self._put += 1
            self._jobs.put(job)  # last of all: the thread that takes it needs the lock
        try:
            return await job.future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    # ------------------------------------------------------------ limits

    @property
    def _waiting(self) -> int:
        """How many jobs wait in the queue."""
        return self._jobs.qsize() - self._ends - self._shells

    def _check_abandoned(self, name: str) -> None:
        if self._abandoned[name] >= self._max_abandoned:
            raise _busy(ABANDONED)

    def _check_room(self, waiting: int, required: bool) -> None:
        """Whether a job may wait for a thread."""
        if required:
            return
        if self._blocked:
            raise _busy(BLOCKED)
        if waiting >= self._max_waiting:
            raise _busy(f"{waiting} calls wait for a thread")

    @property
    def _blocked(self) -> bool:
        """Whether every thread runs a cancelled call, or waits for an answer of a client."""
        return self._threads == self._aside

    def _abandon(self, job: Job[Any]) -> None:
        """The caller of a job was cancelled."""
        with self._lock:
            if job.state is WAITING:
                job.abandoned = True
                job.drop()
                self._shells += 1
                if self._shells > MAX_SHELLS and 2 * self._shells > self._jobs.qsize():
                    self._empty_queue(keep=True)
            elif job.state is RUNNING:
                job.abandoned = True
                self._abandoned[job.name] += 1
                self._step_aside()

    def _step_aside(self) -> None:
        """One more thread does no work that a caller waits for: another may have its place."""
        self._aside += 1
        if self._waiting > self._idle and not self._start(self._few) and self._blocked:
            self._empty_queue(keep=False)

    def _empty_queue(self, *, keep: bool) -> None:
        """Remove dropped jobs from the queue; without `keep` refuse those that wait, too."""
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
                self._shells -= 1
            else:
                self._refuse(job, _busy(BLOCKED))

    def _refuse(self, job: Job[Any], refusal: "HttpError") -> None:
        job.state = DONE
        job.drop(refusal)
        self._tell(job)

    # ------------------------------------------------------------ how many threads

    def _start(self, limit: int) -> bool:
        """Start a thread, where fewer than `limit` work; whether one was started."""
        if self._threads - self._aside >= limit or self._threads >= self._most:
            return False
        try:
            threading.Thread(target=self._live, name="colonnade-worker", daemon=True).start()
        except RuntimeError:  # the system gives none; those that are here do it in time
            if not self._threads:
                raise
            return False
        self._threads += 1  # it waits for the lock, and finds itself counted
        return True

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after a job that waits, if more threads than the few are allowed."""
        if self._few == self._limit or (self._timer is not None and self._timer[0] is loop):
            return
        due = time.monotonic() + PATIENCE_S
        self._known = self._put
        self._timer = loop, loop.call_later(PATIENCE_S, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Start threads for jobs that have waited since the timer was set; in the loop."""
        now = time.monotonic()
        with self._lock:
            self._timer = None
            self._late = now - due > LATE_S
            waiting = self._waiting - self._idle
            patient = min(waiting, self._known - self._taken)
            if patient <= 0 or self._late:
                self._step = 1
            if patient <= 0:
                self._since = 0.0
                self._late_limit = self._few
            elif not self._late:
                self._since = 0.0
                for _ in range(min(patient, self._step)):
                    self._start(self._limit)
                # Once may be by chance, beside threads that compute; several times is not.
                self._step *= 2
            elif not self._since:
                self._since = now
            elif now - self._since >= LATE_PATIENCE_S:
                self._since = now
                self._late_limit += 1  # or it would end as soon as it has begun
                self._start(self._limit)
            if waiting > 0:
                self._set_timer(loop)

    # ------------------------------------------------------------ in a thread

    def _live(self) -> None:
        while (job := self._next()) is not None:
            job.work()
            self._tell(job)
            with self._lock:
                job.state = DONE
                if job.abandoned:
                    self._aside -= 1
                    self._abandoned[job.name] -= 1
                    if not self._abandoned[job.name]:
                        del self._abandoned[job.name]
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
                if self._threads - self._aside > (self._late_limit if self._late else self._limit):
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
                    # It counted as idle until now, though it had this one: a job that came
                    # meanwhile may have relied on it.
                    if self._jobs.qsize() - self._ends - self._shells > self._idle:
                        self._start(self._few)
                    if job.abandoned or (self._abandoned and not self._may_begin(job)):
                        self._shells -= job.abandoned
                        continue
                    if job.future.cancelled():  # before the loop has told this of it
                        job.state = DONE
                        job.drop()
                        continue
                    job.state = RUNNING
                    return job
                self._ends -= job is None
                if self._jobs.qsize() <= self._ends:  # else a job counts on this one
                    self._threads -= 1
                    return None

    def _may_begin(self, job: Job[Any]) -> bool:
        """Whether not too many cancelled calls of the same function are running; else refuse it."""
        if job.required or self._abandoned[job.name] < self._max_abandoned:
            return True
        self._refuse(job, _busy(ABANDONED))
        return False

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """While a job waits for something else, another one may have its place."""
        with self._lock:
            self._step_aside()
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


def _busy(why: str) -> "HttpError":
    """503, and an internal error where there is no status: as whatever else is overloaded answers.
    Nothing was begun, so the call may be sent again."""
    from colonnade.protocol.http.security import UNAVAILABLE, HttpError

    words = f"the server is busy: {why}; try again in {RETRY_S} s"
    headers = (("Retry-After", str(RETRY_S)),)
    data = {"retryAfterMs": 1000 * RETRY_S}
    return HttpError(UNAVAILABLE, words, kind=FaultKind.INTERNAL, headers=headers, data=data)
