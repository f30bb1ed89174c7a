"""Runs tasks: leases, renewals, takeover from workers that died, input that is waited for.

Every process with the same store runs tasks. A worker has a lease on the record of each task that
it runs, and renews it; one that lapses is taken by another worker, which runs the handler again
from its beginning, with the effects and responses of the record. So a handler runs at least once,
what it does in `ctx.once` is recorded once, and a task ends once: what a worker does without the
lease is dropped.

With a queue (`TaskOptions(queue=…)`) a task is run where it is delivered, and the index is only
looked at for what the queue has lost.

Rules: nothing is kept in memory that the record does not have. A task that waits for input for
long is unwound and takes no memory.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from msgspec import Raw, Struct

from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    LocalProtocolError,
    Refused,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode_notification
from colonnade.protocol.tasks.lifecycle import (
    EffectRecorded,
    InputRequested,
    InputWithdrawn,
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    Outcome,
    ProgressReported,
    TaskCompleted,
    TaskEvent,
    TaskExpired,
    TaskFailed,
    apply,
    input_key,
    is_runnable,
)
from colonnade.protocol.tasks.record import TaskError, TaskRecord
from colonnade.protocol.tasks.results import task_progress
from colonnade.server.registry import ToolEntry
from colonnade.server.tasks.options import TaskOptions
from colonnade.server.tasks.queue import TaskQueue, TaskReference, decode_reference
from colonnade.server.tasks.request import TaskRequest, notification_encoder, revision_of
from colonnade.server.tasks.storage import (
    ChangeWaiter,
    IndexedTask,
    StoredTask,
    TaskChange,
    TaskStorage,
)

log: logging.Logger = logging.getLogger("colonnade.tasks")

T = TypeVar("T")

# The longest pause between two looks at leases that may have lapsed.
TICK_S = 1.0
# A task that waits for input is looked at so often, should the notice of a response be lost: its
# process may die between the response and the notice.
PARKED_CHECK_S = 60.0
# With a queue: how often a worker looks for tasks that the queue has lost. One that can be run is
# taken if it could be run a look before as well.
QUEUE_CHECK_S = 60.0
# How long the queue may take for a task; then it is found in the store later.
SUBMIT_S = 5.0
# Before a queue or a store that failed is tried again.
RETRY_S = 1.0
# Entries of the index that are read at once.
INDEX_PAGE = 500
# An entry of the index without a record, whose time is over: entries are kept longer than records.
ORPHAN_S = 600.0
# How long cancelled handlers may clean up before their leases are released all the same.
CLEAN_UP_S = 5.0


class Ending(Enum):
    """Why a run ends before its handler returns."""

    LOST = "the task has ended, or another worker runs it"
    PARKED = "it waits for input, and is run again when there is a response"
    RELEASED = "this process stops; another one goes on"
    INTERRUPTED = "the store did not respond; it is run again"


class RunOrigin(Struct, frozen=True):
    """What only the process knows in which a task was created."""

    log_level: "t.LoggingLevel | None" = None
    debug: bool = False


_ANYWHERE = RunOrigin()


class TaskRun:
    """One run of a task under a lease, and the journal of its handler."""

    def __init__(self, runner: "TaskRunner", task: StoredTask, origin: RunOrigin) -> None:
        self._runner = runner
        self._storage = runner.storage
        self._task = task
        self._lock = asyncio.Lock()
        self.lease: int = task.record.lease_number
        self.origin = origin
        self.worker: asyncio.Task[None] | None = None
        self.ending: Ending | None = None
        self.renewed_at: float = runner.storage.clock()
        # The keys of input requests that the handler waits for now.
        self.waiting: set[str] = set()

    @property
    def record(self) -> TaskRecord:
        """The record as this run last saw it."""
        return self._task.record

    @property
    def busy(self) -> bool:
        """Whether it reads or changes the record now, and so sees every change of others."""
        return self._lock.locked()

    # ------------------------------------------------------------ the record

    async def apply(self, event: TaskEvent | Callable[[TaskRecord], TaskEvent]) -> TaskChange:
        """Apply an event under the lease. Ends the run if the lease was lost."""
        async with self._lock:
            change = await self._storage.change(
                self.record.principal, self.record.id, event, self._task
            )
            if change is not None:
                self._task = change.task
        if change is None or change.outcome in (Outcome.ENDED, Outcome.STALE_LEASE):
            raise self.end(Ending.LOST)
        return change

    async def refresh(self) -> TaskRecord:
        """Read the record again. Ends the run if the lease was lost."""
        async with self._lock:
            found = await self._storage.read(self.record.principal, self.record.id)
            if found is not None:
                self._task = found
        record = self.record
        if found is None or record.ended or record.lease_number != self.lease:
            raise self.end(Ending.LOST)
        return record

    def end(self, ending: Ending) -> asyncio.CancelledError:
        """Cancel the handler; the exception ends the coroutine that found out."""
        if self.ending is None:
            self.ending = ending
            if self.worker is not None:
                self.worker.cancel()
        return asyncio.CancelledError()

    # ------------------------------------------------------------ the journal

    @property
    def effects(self) -> Mapping[str, Raw]:
        """The results of `ctx.once` in earlier runs."""
        return self.record.journal

    async def _stored(self, work: Awaitable[T]) -> T:
        """The outcome of what the handler lets us do in the store. Without the store the run ends,
        and the task is run again: its handler cannot tell what was recorded."""
        try:
            return await work
        except ChannelError as error:
            log.warning("task %s was interrupted: %s", self.record.id, error)
            raise self.end(Ending.INTERRUPTED) from error

    async def check_lease(self) -> None:
        """Renew a lease that has lapsed, before a side effect: this process may have been stopped,
        and another worker may have done it meanwhile. Ends the run if the lease was lost."""
        until, now = self.record.lease_until, self._storage.clock()
        if until is not None and now >= until:
            renewed = LeaseRenewed(self.lease, now + self._runner.options.lease_s)
            await self._stored(self.apply(renewed))

    async def record_effect(self, key: str, value: bytes) -> None:
        """Store the result of a side effect."""
        await self._stored(self.apply(EffectRecorded(self.lease, key, Raw(value))))

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Set the status message; in 2025-11-25 also notify the sessions that follow the task."""
        event = ProgressReported(self.lease, progress, total, message)
        change = await self._stored(self.apply(event))
        if change.applied:
            params = task_progress(change.task.record, event)
            if params is not None:
                body = notification_encoder(revision_of(self.record)).params(params)
                frame = encode_notification("notifications/progress", body)
                self._runner.notify_followers(self.record, frame, f"progress {self.record.id}")

    async def request_input(self, key: str, input_request: InputRequest) -> Raw:
        """Wait for a response: in memory at first, then unwound."""
        key = input_key(self.record, key, input_request)
        hold_until = asyncio.get_running_loop().time() + self._runner.options.hold_s
        with ChangeWaiter(self._storage.changes, self.record.id) as changed:
            await self._stored(self.apply(InputRequested(self.lease, key, input_request)))
            self.waiting.add(key)
            try:
                while True:
                    record = await self._stored(self.refresh())
                    if key in record.responses:
                        return record.responses[key]
                    if key in record.refusals:
                        raise record.refusals[key].error()
                    left_s = hold_until - asyncio.get_running_loop().time()
                    if not self._runner.may_hold() or not await changed.wait(max(left_s, 0.0)):
                        raise self.end(Ending.PARKED)
            except asyncio.CancelledError:
                if self.ending is None:  # the handler gave up waiting, and goes on
                    withdrawn = InputWithdrawn(self.lease, frozenset({key}))
                    self._storage.spawn(self._withdraw(withdrawn))
                raise
            finally:
                if self.ending is None:
                    self.waiting.discard(key)

    async def _withdraw(self, event: InputWithdrawn) -> None:
        await self.apply(event)


class TaskRunner:
    """The worker of this process for the tasks of one server."""

    def __init__(
        self,
        storage: TaskStorage,
        tools: Callable[[str], ToolEntry | None],
        options: TaskOptions,
        notify_followers: Callable[[TaskRecord, bytes, str], None],
        owner: str,
        server: str,
    ) -> None:
        self.storage = storage
        self._server = server
        self._task_queue = options.queue
        self._consumer: asyncio.Task[None] | None = None
        # With a queue: tasks that could be run at the last look at the index.
        self._unclaimed: set[str] = set()
        self.options = options
        # Tasks that run here at once; with 0 this process runs none, and looks for none.
        self.max_running: int = options.max_running
        self.notify_followers = notify_followers
        self._tools = tools
        self._owner = owner
        self._runs: dict[str, TaskRun] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._queue: deque[tuple[IndexedTask, RunOrigin]] = deque()
        self._queued: set[str] = set()
        # When to look at tasks that run elsewhere or wait; others are looked at now.
        self._due: dict[str, tuple[float, IndexedTask]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._next_listing = 0.0
        self._wake = asyncio.Event()
        self._accepting = False
        self._drained = asyncio.Event()
        storage.on_remote_change = self._on_remote_change
        storage.on_missed_changes = self._on_missed_changes

    # ------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Run tasks from now on, also those that other processes left behind."""
        self._accepting = self.max_running > 0
        self._drained = asyncio.Event()
        self._wake = asyncio.Event()
        self._next_listing = 0.0
        for left in (self._due, self._runs, self._workers):  # of an event loop that was closed
            left.clear()
        if self._accepting:
            loop = asyncio.get_running_loop()
            self._keeper = loop.create_task(self._keep())
            if self._task_queue is not None:
                self._consumer = loop.create_task(self._consume(self._task_queue))

    def drain(self) -> None:
        """Give the tasks of this process back: others go on with them."""
        self._accepting = False
        if self._consumer is not None:
            self._consumer.cancel()  # before tasks are given back, or it would get them again
        self._drained.set()
        self._queue.clear()
        self._queued.clear()
        for run in list(self._runs.values()):
            run.end(Ending.RELEASED)

    async def stop(self) -> None:
        """Give the tasks back, and wait until that is done."""
        self.drain()
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=CLEAN_UP_S)
            for run in list(self._runs.values()):  # their handlers ignore the cancellation
                if run.worker in late:
                    await self._try_release(run)
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._consumer is not None:
            await asyncio.wait([self._consumer], timeout=CLEAN_UP_S)
            self._consumer = None
        if self._task_queue is not None:
            await self._task_queue.close()

    # ------------------------------------------------------------ the queue

    async def _consume(self, task_queue: TaskQueue) -> None:
        """Run what the queue delivers."""
        while True:
            try:
                await task_queue.serve(self._server, self.run_delivered, self.max_running)
            except ColonnadeError as error:
                log.warning("tasks: %s", error)
            except Exception as error:  # it is tried again all the same
                log.error("tasks: the queue failed", exc_info=error)
            await asyncio.sleep(RETRY_S)

    async def run_delivered(self, text: str) -> None:
        """Run a task that the queue has delivered, to its end or until it waits for input.

        It may have been delivered before, to a worker that runs it, or has died.
        """
        reference = decode_reference(text)
        if reference is None or reference.server != self._server:
            log.warning("tasks: the queue delivered what is no task of %s", self._server)
            return
        task, seen, ran = IndexedTask(reference.principal, reference.id), 0.0, False
        while self._accepting:
            ran = False
            try:
                record = await self._read_unfinished(task)
                if record is None or task.id in self._runs or not self._can_run(record):
                    return
                now, until = self.storage.clock(), record.lease_until
                if is_runnable(record, now):
                    await self._take(task, _ANYWHERE)
                    run = self._runs.get(task.id)
                    if run is not None and run.worker is not None:
                        ran = True
                        await asyncio.wait({run.worker})
                elif until is None or 0.0 < seen < until:
                    return  # it waits for input, or its worker lives
                else:
                    seen = until
                    await self._pause(max(until - now, 0.0))
            except ColonnadeError as error:
                log.warning("task %s cannot be run: %s", task.id, error)
                await self._pause(RETRY_S)
        if not ran:  # this process stops; what has run was given back
            await self._deliver(task)

    async def _pause(self, delay_s: float) -> None:
        """Wait for so long, or until this process stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._drained.wait()

    async def _read_unfinished(self, task: IndexedTask) -> TaskRecord | None:
        try:
            found = await self.storage.read(task.principal, task.id)
        except Fault:  # it cannot be read by this version; it expires
            return None
        return None if found is None or found.record.ended else found.record

    async def _deliver(self, task: IndexedTask) -> None:
        """Submit a task to the queue, if there is one; without it workers find it in the store."""
        if self._task_queue is None:
            return
        reference = TaskReference(self._server, task.principal, task.id)
        try:
            async with asyncio.timeout(SUBMIT_S):
                await self._task_queue.submit(self._server, reference.encode())
        except (ColonnadeError, TimeoutError) as error:
            words = "task %s is not in the queue, and is found in the store in some minutes: %r"
            log.warning(words, task.id, error)

    async def resume(self, record: TaskRecord) -> None:
        """A task got a response: go on with it if no worker has it."""
        if self._task_queue is None:
            self.offer(record)
        elif is_runnable(record, self.storage.clock()):
            await self._deliver(IndexedTask(record.principal, record.id))

    # ------------------------------------------------------------ runs

    @property
    def takes_created(self) -> bool:
        """Whether a task is run here as soon as it was created."""
        return self._task_queue is None and self.has_room

    @property
    def has_room(self) -> bool:
        """Whether a new task can run here at once."""
        return self._accepting and len(self._runs) < self.max_running

    def may_hold(self) -> bool:
        """Whether a task that waits for input may wait in memory."""
        return sum(1 for run in self._runs.values() if run.waiting) <= self.options.max_held

    def lease(self) -> LeaseTaken:
        """The event that takes a task for this worker."""
        return LeaseTaken(self._owner, self.storage.clock() + self.options.lease_s)

    async def run_created(self, task: StoredTask, origin: RunOrigin) -> None:
        """Run a task that was just created, with its lease if it has one, here or elsewhere."""
        record = task.record
        if self._task_queue is not None:
            await self._deliver(IndexedTask(record.principal, record.id))
            return
        if record.lease_owner == self._owner and self._accepting:
            self._start(task, origin)
        elif record.lease_until is None:
            self.submit(IndexedTask(record.principal, record.id), origin)
            if not self._accepting:
                self.storage.announce(record.id, runnable=True)

    def offer(self, record: TaskRecord) -> None:
        """A task was read: run it if no worker has it, and no queue delivers it."""
        if (
            self._task_queue is None
            and is_runnable(record, self.storage.clock())
            and self._can_run(record)
        ):
            self.submit(IndexedTask(record.principal, record.id))

    def submit(self, task: IndexedTask, origin: RunOrigin = _ANYWHERE) -> None:
        """Run a task as soon as there is room, if it can be run."""
        if not self._accepting or task.id in self._runs or task.id in self._queued:
            return
        self._queue.append((task, origin))
        self._queued.add(task.id)
        self._start_queued()

    def _start_queued(self) -> None:
        while self._queue and self.has_room and len(self._workers) < self.max_running:
            task, origin = self._queue.popleft()
            self._queued.discard(task.id)
            self._spawn(self._take(task, origin))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        worker: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._on_worker_done)
        return worker

    def _on_worker_done(self, worker: "asyncio.Task[None]") -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None:
            log.error("a task worker failed", exc_info=worker.exception())
        self._start_queued()

    async def _take(self, task: IndexedTask, origin: RunOrigin) -> None:
        """Take the lease of a task and run it."""
        try:
            change = await self.storage.change(task.principal, task.id, self.lease())
        except ColonnadeError as error:
            log.warning("task %s cannot be taken: %s", task.id, error)
            return
        if change is None or not change.applied:
            return
        if not self._accepting:
            await self._try_release(TaskRun(self, change.task, origin))
            return
        self._start(change.task, origin)

    def _start(self, task: StoredTask, origin: RunOrigin) -> None:
        run = TaskRun(self, task, origin)
        self._due.pop(task.record.id, None)
        self._runs[task.record.id] = run
        self.storage.keep_running(task)
        run.worker = self._spawn(self._work(run))

    async def _work(self, run: TaskRun) -> None:
        record = run.record
        unwatch = self.storage.changes.watch(record.id, lambda: self._on_change(run))
        again = False
        try:
            try:
                ending = await self._run_handler(run)
                await self._finish(run, ending)
            except asyncio.CancelledError:
                if run.ending is None:
                    raise
                # `end` raises this, and also cancels the task: a second one may be pending, which
                # would end the release.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
                if run.ending is not Ending.LOST:
                    again = await self._try_release(run)
            except ColonnadeError as error:
                # The store failed: the lease lapses, and the task is run again.
                log.warning("task %s was interrupted: %s", record.id, error)
        finally:
            unwatch()
            if self._runs.get(record.id) is run:
                del self._runs[record.id]
                self.storage.forget_running(record.id)
        if again:
            self.submit(IndexedTask(record.principal, record.id), run.origin)

    def _on_change(self, run: TaskRun) -> None:
        """The task was changed, perhaps by another process: see whether it was cancelled."""
        if run.ending is None and not run.waiting and not run.busy:
            self.storage.spawn(self._refresh(run))

    async def _refresh(self, run: TaskRun) -> None:
        try:
            await run.refresh()
        except asyncio.CancelledError:
            if run.ending is None:
                raise

    async def _run_handler(self, run: TaskRun) -> TaskEvent:
        """Run the tool; the event that ends the task."""
        record = run.record
        entry = self._tools(record.tool)
        if record.attempt >= self.options.max_attempts:
            words = f"the server stopped {record.attempt} times while it ran this task"
            return TaskFailed(run.lease, TaskError.of(Fault(FaultKind.INTERNAL, words)))
        if entry is None or entry.task is None:
            words = f"this server no longer has the tool {record.tool!r} as a task"
            return TaskFailed(run.lease, TaskError.of(Fault(FaultKind.INTERNAL, words)))

        def notify(frame: bytes) -> None:
            self.notify_followers(record, frame, f"message {record.id}")

        origin = run.origin
        request = TaskRequest(record, run, notify, log_level=origin.log_level, debug=origin.debug)
        params = t.CallToolRequestParams(name=record.tool, arguments=record.arguments)
        try:
            result = await entry.task.bound.run(request, params)
        except Fault as fault:
            return TaskFailed(run.lease, _task_error(fault))
        if not isinstance(result, t.CallToolResult):
            words = f"{record.tool} returned what is no result of a tool"
            return TaskFailed(run.lease, TaskError.of(Fault(FaultKind.INTERNAL, words)))
        return await self._store_result(run, result)

    async def _store_result(self, run: TaskRun, result: t.CallToolResult) -> TaskEvent:
        data = encode_finite(result)
        if len(data) > self.options.max_result_bytes:
            words = f"the result has {len(data)} bytes; {self.options.max_result_bytes} are kept"
            return TaskFailed(run.lease, TaskError.of(Fault(FaultKind.INTERNAL, words)))
        is_error = bool(result.is_error)
        message = _text(result) if is_error else None
        event = TaskCompleted(run.lease, is_error, message)
        record = run.record
        ended = apply(record, event, self.storage.clock()).record
        try:
            await self.storage.put_result(ended, run.lease, data)
        except Refused as refused:
            words = f"the result cannot be kept: {refused}"
            return TaskFailed(run.lease, TaskError.of(Fault(FaultKind.INTERNAL, words)))
        return event

    async def _finish(self, run: TaskRun, event: TaskEvent) -> None:
        try:
            change = await run.apply(event)
        except asyncio.CancelledError:
            if isinstance(event, TaskCompleted):
                await self.storage.delete_result(run.record, run.lease)
            raise
        await self.finished(change.task.record)

    async def finished(self, record: TaskRecord) -> None:
        """A task has ended: log that, and remove it from the index."""
        log.info(
            "task %s of %s, principal %r: %s",
            record.id,
            record.tool,
            record.principal,
            record.status,
        )
        self._due.pop(record.id, None)
        await self.storage.unindex(record)

    async def _try_release(self, run: TaskRun) -> bool:
        try:
            return await self._release(run)
        except ColonnadeError as error:  # then the lease lapses
            log.warning("task %s was not given back: %s", run.record.id, error)
            return False

    async def _release(self, run: TaskRun) -> bool:
        """Give the lease back; whether the task is to be run again here."""
        parked = run.ending is Ending.PARKED

        def released(record: TaskRecord) -> LeaseReleased:
            # A response that arrived meanwhile is not waited for again.
            waits = parked and run.waiting <= record.pending.keys()
            return LeaseReleased(run.lease, waits)

        record = run.record
        change = await self.storage.change(record.principal, record.id, released)
        if change is None or not change.applied:
            return False
        self._due[record.id] = self._next_look(change.task.record)
        if change.task.record.parked:
            return False
        if self._task_queue is not None:
            await self._deliver(IndexedTask(record.principal, record.id))
            return False
        if run.ending is not Ending.INTERRUPTED:  # which the next sweep takes up: no busy loop
            self.storage.announce(record.id, runnable=True)
        return parked

    # ------------------------------------------------------------ leases

    async def _keep(self) -> None:
        """Renew the leases of this process, and look for tasks that were left behind."""
        tick_s = min(TICK_S, self.options.lease_s / 3)
        while True:
            try:
                await self._renew()
                await self._sweep()
            except ColonnadeError as error:
                log.warning("tasks: the store failed: %s", error)
            except Exception as error:  # the next round is tried all the same
                log.error("tasks: the sweep failed", exc_info=error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(tick_s):
                    await self._wake.wait()
            self._wake.clear()

    async def _renew(self) -> None:
        now = self.storage.clock()
        due = [
            run
            for run in self._runs.values()
            if run.ending is None
            and (now - run.renewed_at >= self.options.lease_s / 3 or now >= run.record.run_until)
        ]
        renewals = (self._renew_one(run, now) for run in due)
        for failure in await asyncio.gather(*renewals, return_exceptions=True):
            if failure is not None:  # the others are renewed all the same
                log.warning("the lease of a task was not renewed: %r", failure)

    async def _renew_one(self, run: TaskRun, now: float) -> None:
        try:
            if now >= run.record.run_until:
                change = await run.apply(TaskExpired())
                if change.applied:
                    run.end(Ending.LOST)
                    await self.finished(change.task.record)
            else:
                await run.apply(LeaseRenewed(run.lease, now + self.options.lease_s))
                run.renewed_at = now
        except asyncio.CancelledError:
            if run.ending is None:
                raise

    # ------------------------------------------------------------ what others left behind

    def _on_remote_change(self, id: str, runnable: bool) -> None:
        if self._task_queue is not None:
            return
        known = self._due.get(id)
        if known is not None:
            self._due[id] = (0.0, known[1])
        elif runnable and id not in self._runs:
            self._next_listing = 0.0
        if runnable:
            self._wake.set()

    def _on_missed_changes(self) -> None:
        """Look at all tasks again, soon: one may wait for a worker."""
        self._next_listing = 0.0
        soon = self.storage.clock() + self.options.lease_s
        for id, (at, task) in self._due.items():
            self._due[id] = (min(at, soon), task)

    @property
    def _listing_s(self) -> float:
        return self.options.lease_s / 3 if self._task_queue is None else QUEUE_CHECK_S

    async def _sweep(self) -> None:
        if self._task_queue is not None and not self.has_room:
            return  # the queue may hold what no worker has room for
        now = self.storage.clock()
        if now >= self._next_listing or self._next_listing > now + 6 * self._listing_s:
            self._next_listing = now + self._listing_s
            await self._list_index()
        due = [task for at, task in list(self._due.values()) if at <= now]
        for task in due:
            if task.id not in self._runs and task.id not in self._queued:
                await self._look(task, now)

    async def _list_index(self) -> None:
        """Find tasks that this process does not know yet, and forget those that are gone."""
        after, there = "", set[str]()
        while True:
            names = await self.storage.index_page(after, INDEX_PAGE)
            for name in names:
                id = name.rpartition("/")[2]
                there.add(id)
                if id not in self._due and id not in self._runs and id not in self._queued:
                    task = await self.storage.indexed(name)
                    if task is not None:
                        self._due[id] = (0.0, task)
            if len(names) < INDEX_PAGE:
                break
            after = names[-1]
        self._unclaimed &= there
        for id in self._due.keys() - there:
            del self._due[id]

    async def _look(self, task: IndexedTask, now: float) -> None:
        """See what an unfinished task needs."""
        try:
            found = await self.storage.read(task.principal, task.id)
        except Fault:  # it cannot be read by this version; it expires
            self._due[task.id] = (now + PARKED_CHECK_S, task)
            return
        if found is None:
            await self._look_at_orphan(task, now)
            return
        record = found.record
        if record.ended:
            await self.finished(record)
        elif now >= record.run_until:
            change = await self.storage.change(task.principal, task.id, TaskExpired())
            if change is not None and change.task.record.ended:
                await self.finished(change.task.record)
        elif is_runnable(record, now) and self._can_run(record):
            if self._task_queue is not None and task.id not in self._unclaimed:
                self._unclaimed.add(task.id)
                self._due[task.id] = (now + QUEUE_CHECK_S, task)
                return
            self._unclaimed.discard(task.id)
            self._due.pop(task.id, None)
            self.submit(task)
        else:
            self._due[task.id] = self._next_look(record)

    async def _look_at_orphan(self, task: IndexedTask, now: float) -> None:
        created_at = int(task.id.partition("-")[0], 16) / 1000
        if now - created_at > ORPHAN_S:
            self._due.pop(task.id, None)
            await self.storage.drop_index_entry(self.storage.index_key(task.principal, task.id))
        else:
            self._due[task.id] = (now + self.options.lease_s, task)

    def _can_run(self, record: TaskRecord) -> bool:
        entry = self._tools(record.tool)
        return entry is not None and entry.task is not None

    def _next_look(self, record: TaskRecord) -> tuple[float, IndexedTask]:
        now = self.storage.clock()
        if record.parked:
            at = now + PARKED_CHECK_S
        elif record.lease_until is not None:
            at = record.lease_until
        else:  # its tool is not here, or this process has no room
            at = now + self.options.lease_s
        if self._task_queue is not None:
            self._unclaimed.discard(record.id)
            at = max(at, now + QUEUE_CHECK_S)
        task = IndexedTask(record.principal, record.id)
        return min(at, record.run_until), task


def _task_error(fault: Fault) -> TaskError:
    try:
        return TaskError.of(fault)
    except LocalProtocolError:  # its data is no JSON
        return TaskError.of(Fault(fault.kind, fault.message))


def _text(result: t.CallToolResult) -> str | None:
    texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
    return "\n".join(texts) or None
