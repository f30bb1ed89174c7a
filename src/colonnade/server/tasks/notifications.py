"""Notifications of tasks: on `subscriptions/listen`, and in sessions of 2025-11-25.

Rules: only to a subscription or a session whose own request has read the task, as its owner; no
other one is known here (R0577). Repeated changes are merged: what is sent is the current state.
"""

from collections.abc import Callable, Iterable
from functools import partial
from weakref import WeakSet

from colonnade.ports import RequestContext, Session
from colonnade.protocol.jsonrpc import encode_notification
from colonnade.protocol.revision import Revision, Tasks
from colonnade.protocol.tasks.record import TaskRecord
from colonnade.protocol.tasks.results import ext_task_status, task_status
from colonnade.server.notifications import SubjectParams
from colonnade.server.registry import ToolEntry
from colonnade.server.tasks.methods import TaskMethods
from colonnade.server.tasks.request import notification_encoder
from colonnade.server.tasks.storage import TaskStorage

EXT_STATUS = "notifications/tasks"
CORE_STATUS = "notifications/tasks/status"

# What a client has seen of a task: a change of anything else is not sent.
SeenState = tuple[float, str]
OnInputRequired = Callable[[TaskRecord, Revision, Iterable[Session], frozenset[str]], None]


def _state(record: TaskRecord) -> SeenState:
    return record.updated_at, f"{record.status} {record.message} {sorted(record.pending)}"


class TaskFeed:
    """The tasks of one `subscriptions/listen`."""

    def __init__(
        self,
        storage: TaskStorage,
        methods: TaskMethods,
        request: RequestContext,
        on_change: Callable[[str, SubjectParams], None],
    ) -> None:
        self._storage = storage
        self._methods = methods
        self._request = request
        self._on_change = on_change
        self._changed: dict[str, None] = {}
        self._seen: dict[str, SeenState] = {}
        self._reading = False
        self._unwatch: list[Callable[[], None]] = []

    def open(self, ids: Iterable[str]) -> None:
        """Send the state of tasks that do not simply work, and every change from now on."""
        for id in ids:
            self._unwatch.append(self._storage.changes.watch(id, partial(self._notify, id)))
            self._notify(id)

    def close(self) -> None:
        """Send nothing more."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        self._changed.clear()

    def _notify(self, id: str) -> None:
        self._changed[id] = None
        if not self._reading:
            self._reading = True
            self._storage.spawn(self._read_changed())

    async def _read_changed(self) -> None:
        try:
            while self._changed:
                id = next(iter(self._changed))
                del self._changed[id]
                await self._read(id)
        finally:
            self._reading = False

    async def _read(self, id: str) -> None:
        exchange = self._request.exchange
        found = await self._storage.read(exchange.principal, id)
        if found is None:
            return
        record = found.record
        first, state = id not in self._seen, _state(record)
        if self._seen.get(id) == state:
            return
        self._seen[id] = state
        if first and record.status == "working" and record.message is None:
            return  # as the client has seen it when it was created
        result = await self._methods.encoded_result(self._request, record)
        self._on_change(EXT_STATUS, ext_task_status(record, exchange.peer.revision, result))


class FollowedTask:
    """A task, and the sessions of its owner that have used it."""

    def __init__(self, record: TaskRecord, revision: Revision) -> None:
        self.principal: str = record.principal
        self.revision = revision
        self.seen: SeenState = _state(record)
        self.sessions: WeakSet[Session] = WeakSet()
        self.reading: bool = False
        self.unwatch: Callable[[], None] = lambda: None


class SessionFollowers:
    """The sessions of 2025-11-25 that are notified of tasks: those that created or read them."""

    def __init__(self, storage: TaskStorage, tools: Callable[[str], ToolEntry | None]) -> None:
        self._storage = storage
        self._tools = tools
        self._followed: dict[str, FollowedTask] = {}
        # Called with a task that waits for input, the sessions that follow it, and the scopes that
        # a reader needs.
        self.on_input_required: OnInputRequired | None = None

    def follow(self, request: RequestContext, record: TaskRecord) -> None:
        """Notify the session of this request, which may see the task, until the task has ended."""
        session, revision = request.session, request.exchange.peer.revision
        if session is None or record.ended or revision.tasks is not Tasks.CORE:
            return
        followed = self._followed.get(record.id)
        if followed is None:
            followed = self._followed[record.id] = FollowedTask(record, revision)
            id = record.id
            followed.unwatch = self._storage.changes.watch(id, lambda: self._on_change(id))
        followed.sessions.add(session)
        self._check_input(record, followed)

    def _check_input(self, record: TaskRecord, followed: FollowedTask) -> None:
        if record.status == "input_required" and self.on_input_required is not None:
            scopes = self._scopes(record)
            self.on_input_required(record, followed.revision, followed.sessions, scopes)

    def _scopes(self, record: TaskRecord) -> frozenset[str]:
        entry = self._tools(record.tool)
        return entry.scopes if entry is not None else frozenset()

    def _on_change(self, id: str) -> None:
        followed = self._followed.get(id)
        if followed is not None and not followed.reading:
            followed.reading = True
            self._storage.spawn(self._send_state(id, followed))

    async def _send_state(self, id: str, followed: FollowedTask) -> None:
        try:
            found = await self._storage.read(followed.principal, id)
        finally:
            followed.reading = False
        if found is None or not followed.sessions:
            self._forget(id)
            return
        record = found.record
        state = _state(record)
        if state != followed.seen:
            followed.seen = state
            body = notification_encoder(followed.revision).params(task_status(record))
            self.notify(record, encode_notification(CORE_STATUS, body), f"status {id}")
            self._check_input(record, followed)
        if record.ended:
            self._forget(id)

    def _forget(self, id: str) -> None:
        followed = self._followed.pop(id, None)
        if followed is not None:
            followed.unwatch()

    def notify(self, record: TaskRecord, frame: bytes, subject: str) -> None:
        """Send a notification to the sessions that follow a task; a later one of the same subject
        replaces it while it waits."""
        followed = self._followed.get(record.id)
        if followed is None:
            return
        scopes = self._scopes(record)
        for session in list(followed.sessions):
            session.post_notification(frame, subject, scopes)

    def close(self) -> None:
        """Notify no session any more."""
        for id in list(self._followed):
            self._forget(id)
