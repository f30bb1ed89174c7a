"""Change notifications between replicas: what one publishes reaches the listeners of all.

Rules: at most once. A change of the same list or resource is sent at once, and repeated ones
together at the end of a short window. After messages were missed, the lists that ever changed are
announced as changed: to list again is cheap, to have an old list for ever is not. What came from
another replica is never published again.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from colonnade.errors import ColonnadeError, Fault
from colonnade.ports import SERVER_PRINCIPAL, Seal, Store
from colonnade.protocol import types as t
from colonnade.replicas.replica import follow_topic

log: logging.Logger = logging.getLogger("colonnade.replicas")

CHANGES_VERSION = 1
# Repeated changes within this time are merged.
WINDOW_S = 0.05
# Lists and resources that changed lately; further ones are not passed on before some are.
MAX_SUBJECTS = 4096
# Of one message: the queue of a listener of a topic is bounded.
MAX_MESSAGE_SUBJECTS = 256
MAX_MESSAGE_CHARACTERS = 64 * 1024
MAX_URI_CHARACTERS = 16 * 1024
# How long the last changes may take to be published at shutdown.
CLOSE_TIMEOUT_S = 1.0

RESOURCE_UPDATED = "notifications/resources/updated"
LISTS = frozenset(
    f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts")
)

# The method of a notification, and the URI of its resource; empty for a list.
ChangeSubject: TypeAlias = tuple[str, Annotated[str, Meta(max_length=MAX_URI_CHARACTERS)]]
DeliverChange: TypeAlias = Callable[[str, t.NotificationParams], None]


class ChangesMessage(Struct, frozen=True, array_like=True):
    """The changes of one replica. `sender` identifies its own messages."""

    version: int
    sender: str
    subjects: Annotated[list[ChangeSubject], Meta(max_length=MAX_MESSAGE_SUBJECTS)]


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ChangesMessage)


class ChangeWindow:
    """Merges repeated changes: the first passes at once, later ones at the end of the window.

    The last change of a subject always passes after it happened, since a listener may have read
    the state before it.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        # The end of the window of each subject, the earliest first, and those with a later change.
        self._ends: dict[ChangeSubject, float] = {}
        self._later: set[ChangeSubject] = set()

    def add(self, subject: ChangeSubject, now: float) -> bool | None:
        """Whether a change passes now, or later (False); None if there are too many to keep."""
        if subject in self._ends:
            self._later.add(subject)
            return False
        if len(self._ends) >= MAX_SUBJECTS:
            return None
        self._ends[subject] = now + self._window_s
        return True

    def due(self, now: float) -> list[ChangeSubject]:
        """The changes that pass now, since their windows have ended."""
        found: list[ChangeSubject] = []
        while self._ends:
            subject, end = next(iter(self._ends.items()))
            if end > now:
                break
            del self._ends[subject]
            if subject in self._later:
                self._later.discard(subject)
                found.append(subject)
        for subject in found:
            self._ends[subject] = now + self._window_s
        return found

    def flush(self) -> list[ChangeSubject]:
        """The changes that wait, without waiting any longer."""
        found = [subject for subject in self._ends if subject in self._later]
        self._later.clear()
        return found

    @property
    def next_end(self) -> float | None:
        """When to ask for what is due; None if nothing is."""
        return next(iter(self._ends.values()), None)


class MergedChanges:
    """A window with a timer: passes changes to a callback in the event loop."""

    def __init__(self, emit: Callable[[list[ChangeSubject]], None]) -> None:
        self._emit = emit
        self._window = ChangeWindow()
        self._timer: asyncio.TimerHandle | None = None
        self._warned = False

    def add(self, subjects: list[ChangeSubject]) -> None:
        """Pass changes now, or merged with others in a moment."""
        now = asyncio.get_running_loop().time()
        verdicts = [(subject, self._window.add(subject, now)) for subject in subjects]
        passing = [subject for subject, verdict in verdicts if verdict]
        if passing:
            self._emit(passing)
        if any(verdict is None for _, verdict in verdicts) and not self._warned:
            self._warned = True
            log.warning("more than %d resources change at once; some are left out", MAX_SUBJECTS)
        self._set_timer()

    def _set_timer(self) -> None:
        end = self._window.next_end
        if self._timer is None and end is not None:
            self._timer = asyncio.get_running_loop().call_at(end, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        due = self._window.due(asyncio.get_running_loop().time())
        if due:
            self._emit(due)
        self._set_timer()

    def close(self) -> None:
        """Pass what waits now, and nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._window.flush()
        if waiting:
            self._emit(waiting)


class SharedChanges:
    """The changes of one server, shared by its replicas.

    `server` is the name of the server: servers may share a store. `deliver` notifies the listeners
    of this process only. With `seal` messages are encrypted, and others are ignored.
    """

    def __init__(
        self, store: Store, server: str, deliver: DeliverChange, seal: Seal | None = None
    ) -> None:
        self._store = store
        self._seal = seal
        self._topic = f"changes {server}"
        self._deliver = deliver
        self._name = secrets.token_hex(8)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._outgoing = MergedChanges(self._queue)
        self._incoming = MergedChanges(self._notify)
        self._unpublished: dict[ChangeSubject, None] = {}
        self._publisher: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        # The lists that have changed in any replica.
        self._changed_lists: set[str] = set()
        self._logged: set[str] = set()

    async def start(self) -> None:
        """Follow the changes of other replicas from now on, also if the store is away now."""
        loop = self._loop = asyncio.get_running_loop()
        tried: asyncio.Future[None] = loop.create_future()
        work = follow_topic(self._store, self._topic, self._receive, self._on_missed, tried)
        self._listener = loop.create_task(work)
        await tried

    async def stop(self) -> None:
        """Publish what is left, and follow no more changes."""
        self._loop = None
        for changes in (self._outgoing, self._incoming):
            changes.close()
        if self._publisher is not None and not self._publisher.done():
            await asyncio.wait((self._publisher,), timeout=CLOSE_TIMEOUT_S)
        for task in (self._publisher, self._listener):
            if task is not None:
                task.cancel()

    # ------------------------------------------------------------ to other replicas

    def publish(self, method: str, params: t.NotificationParams) -> None:
        """Notify the other replicas of a change of this one, from any thread."""
        loop = self._loop
        if loop is None:
            return
        uri = params.uri if isinstance(params, t.ResourceUpdatedNotificationParams) else ""
        if (method not in LISTS and method != RESOURCE_UPDATED) or len(uri) > MAX_URI_CHARACTERS:
            return  # a server sends no others, and no client has subscribed to such a URI
        subjects: list[ChangeSubject] = [(method, uri)]
        if _running_loop() is loop:
            self._outgoing.add(subjects)
        else:
            with suppress(RuntimeError):  # the event loop was closed
                loop.call_soon_threadsafe(self._outgoing.add, subjects)

    def _queue(self, subjects: list[ChangeSubject]) -> None:
        self._note_lists(subjects)
        self._unpublished.update(dict.fromkeys(subjects))
        if self._publisher is None or self._publisher.done():
            self._publisher = asyncio.get_running_loop().create_task(self._publish_all())

    async def _publish_all(self) -> None:
        while self._unpublished:
            subjects: list[ChangeSubject] = []
            size = 0
            for subject in self._unpublished:
                size += len(subject[1])
                if subjects and size > MAX_MESSAGE_CHARACTERS:
                    break
                subjects.append(subject)
                if len(subjects) == MAX_MESSAGE_SUBJECTS:
                    break
            for subject in subjects:
                del self._unpublished[subject]
            message = _encode(ChangesMessage(CHANGES_VERSION, self._name, subjects))
            if self._seal is not None:
                message = self._seal.encrypt(message, self._topic.encode())
            try:
                await self._store.publish(SERVER_PRINCIPAL, self._topic, message)
            except ColonnadeError as error:
                self._log_once(f"changes were not passed on to other replicas: {error}")
            if self._unpublished:  # no more at once than the listeners of a topic can queue
                await asyncio.sleep(WINDOW_S)

    # ------------------------------------------------------------ of other replicas

    def _receive(self, data: bytes) -> None:
        if self._seal is not None:
            try:
                data = self._seal.decrypt(data, self._topic.encode())
            except Fault:
                self._log_once("ignored changes that were not encrypted with the keys")
                return
        try:
            message = _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError):
            self._log_once("changes of another release are ignored")
            return
        if message.sender == self._name:
            return
        known = [one for one in message.subjects if one[0] in LISTS or one[0] == RESOURCE_UPDATED]
        if message.version != CHANGES_VERSION or len(known) < len(message.subjects):
            self._log_once("changes of another release are ignored")
        if message.version == CHANGES_VERSION:
            self._incoming.add(known)

    def _notify(self, subjects: list[ChangeSubject]) -> None:
        self._note_lists(subjects)
        for method, uri in subjects:
            params = t.NotificationParams()
            if method == RESOURCE_UPDATED:
                params = t.ResourceUpdatedNotificationParams(uri=uri)
            self._deliver(method, params)

    def _on_missed(self) -> None:
        self._notify([(method, "") for method in sorted(self._changed_lists)])

    def _note_lists(self, subjects: list[ChangeSubject]) -> None:
        self._changed_lists.update(method for method, _ in subjects if method in LISTS)

    def _log_once(self, words: str) -> None:
        if words not in self._logged and len(self._logged) < MAX_MESSAGE_SUBJECTS:
            self._logged.add(words)
            log.warning("%s", words)


def _running_loop() -> "asyncio.AbstractEventLoop | Any":
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
