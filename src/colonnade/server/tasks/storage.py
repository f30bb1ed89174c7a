"""The tasks of a server in its store: records, results, the index of unfinished tasks, changes.

A record is an entry of its owner, and so is the result. The index of unfinished tasks belongs to
the server itself: any process with the same store finds there what another left behind. A change
that clients can see is published, so that other processes look at the task.

Rules: the store is the truth. A record is only replaced if it is the one that was read (compare and
swap). Only `glance`, for polls, may return what this process knows of a task that it runs itself,
unless the task waits for input: another process may have cancelled it some milliseconds before. If
the server was given keys, records and results are encrypted, each for its place; others are not
read.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Raw

from colonnade.errors import ChannelError, ColonnadeError, Fault, FaultKind, InvalidArgument
from colonnade.ports import SERVER_PRINCIPAL, Seal, Store, Swap
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.tasks.lifecycle import (
    InputReceived,
    InputRefused,
    Outcome,
    TaskEvent,
    apply,
    retention_s,
)
from colonnade.protocol.tasks.record import (
    TaskRecord,
    decode_record,
    encode_record,
    is_task_id,
    short_digest,
    unknown_task,
)

log: logging.Logger = logging.getLogger("colonnade.tasks")

# A record that two processes change at once is read again; more than this is no coincidence.
MAX_SWAPS = 100
# An entry of the index is kept longer than the record, so that the end is never missed.
INDEX_EXTRA_S = 24 * 3600.0
# The result is kept a little longer than the record that names it.
RESULT_EXTRA_S = 60.0
# Tasks in one message: 5 kB, of the 256 kB that a listener may leave unread.
MAX_PUBLISHED = 100
# After the id of a task that another process may go on with.
RUNNABLE = "+"
# Owners whose digests are kept.
MAX_OWNERS = 1024
# Before listening again to a store that failed.
RETRY_S = 1.0


class StoredTask(NamedTuple):
    """A record, and the bytes that it has in the store."""

    record: TaskRecord
    data: bytes


class TaskChange(NamedTuple):
    """What became of an event, and the task after it."""

    outcome: Outcome
    task: StoredTask

    @property
    def applied(self) -> bool:
        """Whether there is a new record."""
        return self.outcome is Outcome.APPLIED


class IndexedTask(NamedTuple):
    """An entry of the index."""

    principal: str
    id: str


# The digests of owners in the names of the index: most tasks are of the same few.
_owner_digest = lru_cache(MAX_OWNERS)(short_digest)


def _place(principal: str, key: str) -> bytes:
    # Names have no NUL in them, so that no two places are the same bytes.
    return f"\0{principal}\0{key}".encode()


class TaskChanges:
    """Who in this process waits for changes of which task."""

    def __init__(self) -> None:
        self._callbacks: dict[str, dict[int, Callable[[], None]]] = {}
        self._next = 0

    def watch(self, id: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on every change of a task until the returned function is called."""
        self._next += 1
        number = self._next
        self._callbacks.setdefault(id, {})[number] = callback

        def unwatch() -> None:
            own = self._callbacks.get(id)
            if own is not None and own.pop(number, None) is not None and not own:
                del self._callbacks[id]

        return unwatch

    def notify(self, id: str) -> None:
        """The task has changed."""
        for callback in list(self._callbacks.get(id, {}).values()):
            callback()

    def notify_all(self) -> None:
        """Any task may have changed."""
        for id in list(self._callbacks):
            self.notify(id)


def store_lost() -> HttpError:
    """503, with Retry-After: the store does not respond, and nothing was changed, or the same
    request may be sent again."""
    words = "the store of the tasks does not respond; try again later"
    return HttpError(503, words, kind=FaultKind.INTERNAL, headers=(("Retry-After", "1"),))


class ChangeWaiter:
    """Waits for changes of one task: `with` it, read the task, then `await wait()`, repeatedly."""

    def __init__(self, changes: TaskChanges, id: str) -> None:
        self._event = asyncio.Event()
        self._unwatch = changes.watch(id, self._event.set)

    def __enter__(self) -> "ChangeWaiter":
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a change since the last call; False if there was none."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class TaskStorage:
    """The tasks of one server, by owner and id."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Callable[[], float],
        server: str,
        process: str,
        seal: Callable[[], Seal | None],
    ) -> None:
        self._store = store
        self._seal = seal
        self.clock = clock
        self.changes: TaskChanges = TaskChanges()
        # Called with the id of each task that another process has changed, and whether it may have
        # to be run here.
        self.on_remote_change: Callable[[str, bool], None] | None = None
        self.on_missed_changes: Callable[[], None] | None = None
        self._process = process
        # Servers with different names can share a store.
        own = short_digest(server)
        self._records = f"task/{own}/"
        self._results = f"task-result/{own}/"
        self._index = f"task-index/{own}/"
        self._topic = f"task/{own}"
        # The last known state of tasks that run here; None if another process has changed it.
        self._running: dict[str, StoredTask | None] = {}
        # Whether the changes of other processes are noticed.
        self._following = False
        self._unpublished: dict[str, bool] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._publisher: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ records

    async def read(self, principal: str, id: str) -> StoredTask | None:
        """The task of this owner; None if there is none, or it has expired."""
        if not is_task_id(id):
            return None
        key = self._records + id
        data = await self._store().get(principal, key)
        if data is None:
            return None
        try:
            record = decode_record(self._decrypt(principal, key, data))
        except InvalidArgument as error:
            log.error("task %s: %s", id, error)
            raise Fault(FaultKind.INTERNAL, "the task cannot be read; the log says why") from error
        return self._known(StoredTask(record, data))

    def _encrypt(self, principal: str, key: str, data: bytes) -> bytes:
        seal = self._seal()
        return data if seal is None else seal.encrypt(data, _place(principal, key))

    def _decrypt(self, principal: str, key: str, data: bytes) -> bytes:
        """Raises `InvalidArgument` for what was not encrypted with the keys of the server."""
        seal = self._seal()
        if seal is None:
            return data
        try:
            return seal.decrypt(data, _place(principal, key))
        except Fault:
            words = (
                "this entry was not encrypted with the keys of this server, or not for its place"
            )
            raise InvalidArgument(
                words, hint="Server(keys=[…]) needs the older keys, too"
            ) from None

    def _known(self, task: StoredTask) -> StoredTask:
        if task.record.id in self._running:
            self._running[task.record.id] = task
        return task

    def keep_running(self, task: StoredTask) -> None:
        """Remember the state of a task that runs here, for polls."""
        self._running[task.record.id] = task

    def forget_running(self, id: str) -> None:
        """A task does not run here any more."""
        self._running.pop(id, None)

    async def glance(self, principal: str, id: str) -> StoredTask | None:
        """The task of this owner, for a poll in a generation where a status may be seen a little
        later: without the store if the task runs here, under a valid lease. An input request whose
        response another process has acknowledged is never seen again (R1169)."""
        known = self._running.get(id)
        if known is not None and self._following and known.record.principal == principal:
            until = known.record.lease_until
            asks_elsewhere = known.record.pending and self._store().is_shared
            if until is not None and until > self.clock() and not asks_elsewhere:
                return known
        return await self.read(principal, id)

    async def find(self, principal: str, id: str) -> StoredTask:
        """The task of this owner. Raises the `Fault` of an unknown one."""
        found = await self.read(principal, id)
        if found is None or found.record.principal != principal:
            raise unknown_task()
        return found

    async def create(self, record: TaskRecord) -> StoredTask:
        """Store a new task with its entry of the index; it is durable when this returns (R1159)."""
        name = self._records + record.id
        data = self._encrypt(record.principal, name, encode_record(record))
        kept_s = retention_s(record, self.clock())
        key = self.index_key(record.principal, record.id)
        owner = record.principal.encode()
        entries = (
            Swap(record.principal, name, None, data, kept_s),
            Swap(SERVER_PRINCIPAL, key, None, owner, kept_s + INDEX_EXTRA_S),
        )
        try:
            created = await self._store().swap_all(entries)
        except BaseException:  # it may take place all the same
            self.spawn(self._remove(record))
            raise
        if not created:  # R0525: 128 random bits were the same
            raise Fault(FaultKind.INTERNAL, "the task could not be created; call again")
        return StoredTask(record, data)

    async def _remove(self, record: TaskRecord) -> None:
        await self.unindex(record)
        await self._store().delete(record.principal, self._records + record.id)

    async def change(
        self,
        principal: str,
        id: str,
        event: TaskEvent | Callable[[TaskRecord], TaskEvent],
        known: StoredTask | None = None,
    ) -> TaskChange | None:
        """Apply an event to a task; None if there is no such task. `known` is its last known state.

        Raises `Fault` for responses that do not fit.
        """
        for _ in range(MAX_SWAPS):
            found = known or await self.read(principal, id)
            if found is None:
                return None
            record, now = found.record, self.clock()
            actual = event(record) if callable(event) else event
            transition = apply(record, actual, now)
            if not transition.applied:
                if known is None:
                    return TaskChange(transition.outcome, found)
                known = None  # it may have changed since
                continue
            known = None
            after = transition.record
            key, ttl_s = self._records + id, retention_s(after, now)
            data = self._encrypt(principal, key, encode_record(after))
            if await self._store().swap(principal, key, found.data, data, max(ttl_s, 1.0)):
                changed = self._known(StoredTask(after, data))
                if transition.notify:
                    self.announce(id)
                    if isinstance(actual, InputReceived | InputRefused):
                        # Before it is acknowledged: another process must know if this one dies.
                        self._unpublished.pop(id, None)
                        await self._publish([(id, True)])
                return TaskChange(transition.outcome, changed)
        raise Fault(FaultKind.INTERNAL, "the task changes too often; try again")

    # ------------------------------------------------------------ results

    def _result_key(self, record: TaskRecord, lease: int) -> str:
        return f"{self._results}{record.id}/{lease}"

    async def put_result(self, ended: TaskRecord, lease: int, data: bytes) -> None:
        """Store the result of a lease, before the record names it."""
        ttl_s = retention_s(ended, self.clock()) + RESULT_EXTRA_S
        key = self._result_key(ended, lease)
        data = self._encrypt(ended.principal, key, data)
        await self._store().put(ended.principal, key, data, ttl_s)

    async def delete_result(self, record: TaskRecord, lease: int) -> None:
        """Delete the result of a lease that was lost; the record may have that of another."""
        key = self._result_key(record, lease)
        await self._store().delete(record.principal, key)

    async def result(self, record: TaskRecord) -> Raw | None:
        """The result of a completed task, as it was stored."""
        if not record.result_of:
            return None
        key = self._result_key(record, record.result_of)
        data = await self._store().get(record.principal, key)
        if data is None:
            return None
        try:
            return Raw(self._decrypt(record.principal, key, data))
        except InvalidArgument as error:
            log.error("the result of task %s: %s", record.id, error)
            words = "the result of the task cannot be read; the log says why"
            raise Fault(FaultKind.INTERNAL, words) from error

    # ------------------------------------------------------------ lists

    def index_key(self, principal: str, id: str) -> str:
        """The name of the entry of the index for a task."""
        return f"{self._index}{_owner_digest(principal)}/{id}"

    async def unindex(self, record: TaskRecord) -> None:
        """Remove a task that has ended from the index."""
        key = self.index_key(record.principal, record.id)
        await self._store().delete(SERVER_PRINCIPAL, key)

    async def drop_index_entry(self, name: str) -> None:
        """Remove an entry whose record is gone."""
        await self._store().delete(SERVER_PRINCIPAL, name)

    async def ids(self, principal: str, after: str, limit: int) -> list[str]:
        """The ids of the tasks of one owner after this one, oldest first."""
        start = self._records + after if after else ""
        names = await self._store().names(principal, self._records, start, limit)
        return [name.removeprefix(self._records) for name in names]

    async def count_unfinished(self, principal: str, limit: int) -> int:
        """How many tasks of one owner have not ended; `limit` at most."""
        return await self._count(
            SERVER_PRINCIPAL, f"{self._index}{_owner_digest(principal)}/", limit
        )

    async def count_kept(self, principal: str, limit: int) -> int:
        """How many tasks of one owner are kept; `limit` at most."""
        return await self._count(principal, self._records, limit)

    async def _count(self, principal: str, prefix: str, limit: int) -> int:
        count, after = 0, ""
        while count < limit:
            page = min(limit - count, 1000)
            names = await self._store().names(principal, prefix, after, page)
            count += len(names)
            if len(names) < page:
                break
            after = names[-1]
        return count

    async def index_page(self, after: str, limit: int) -> list[str]:
        """The names of entries of the index after this one."""
        return await self._store().names(SERVER_PRINCIPAL, self._index, after, limit)

    async def indexed(self, name: str) -> IndexedTask | None:
        """The task of an entry of the index; None if it was removed."""
        principal = await self._store().get(SERVER_PRINCIPAL, name)
        if principal is None:
            return None
        return IndexedTask(principal.decode(), name.rpartition("/")[2])

    # ------------------------------------------------------------ changes

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; an error of the store is logged."""

        async def guarded() -> None:
            try:
                await work
            except ColonnadeError as error:
                log.warning("tasks: the store failed: %s", error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def announce(self, id: str, *, runnable: bool = False) -> None:
        """Notify this process at once, and others soon; `runnable` is whether one of them is to go
        on with the task."""
        self.changes.notify(id)
        self._unpublished[id] = self._unpublished.get(id, False) or runnable
        if self._publisher is None or self._publisher.done():
            self._publisher = asyncio.get_running_loop().create_task(self._publish_all())

    async def _publish_all(self) -> None:
        """Publish what has changed since the last message, in one."""
        while self._unpublished:
            changed = list(islice(self._unpublished.items(), MAX_PUBLISHED))
            for id, _ in changed:
                del self._unpublished[id]
            try:
                await self._publish(changed)
            except ColonnadeError as error:  # others look at the task later, by themselves
                log.warning("tasks: a change was not published: %s", error)

    async def _publish(self, changed: list[tuple[str, bool]]) -> None:
        ids = " ".join(id + RUNNABLE * runnable for id, runnable in changed)
        message = f"{self._process} {ids}".encode()
        seal = self._seal()
        if seal is not None:
            message = seal.encrypt(message, self._topic.encode())
        await self._store().publish(SERVER_PRINCIPAL, self._topic, message)

    def listen(self) -> None:
        """Follow the changes of other processes until `stop`."""
        self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                async with self._store().listen(SERVER_PRINCIPAL, self._topic) as messages:
                    self._on_missed()
                    self._following = True
                    async for message in messages:
                        self._on_message(message)
                return  # the store was closed
            except ChannelError as error:  # some were missed
                log.debug("tasks: listening again: %s", error)
            except ColonnadeError as error:
                log.warning("tasks: changes of other processes are not followed: %s", error)
                return
            finally:
                self._following = False
            await asyncio.sleep(RETRY_S)

    def _on_missed(self) -> None:
        self._running = dict.fromkeys(self._running)
        self.changes.notify_all()
        if self.on_missed_changes is not None:
            self.on_missed_changes()

    def _on_message(self, message: bytes) -> None:
        seal = self._seal()
        if seal is not None:
            try:
                message = seal.decrypt(message, self._topic.encode())
            except Fault:
                return  # forged, or from a release without encryption; waiters also poll the task
        process, *ids = message.decode(errors="replace").split(" ")
        for written in ids if process != self._process else ():
            id = written.removesuffix(RUNNABLE)
            if id in self._running:
                self._running[id] = None
            self.changes.notify(id)
            if self.on_remote_change is not None:
                self.on_remote_change(id, written != id)

    async def stop(self) -> None:
        """Publish what is left, and follow no more changes."""
        if self._listener is not None:
            self._listener.cancel()
        left = [*self._background, *filter(None, [self._publisher, self._listener])]
        if left:
            await asyncio.wait(left, timeout=5.0)
        for task in left:
            task.cancel()
