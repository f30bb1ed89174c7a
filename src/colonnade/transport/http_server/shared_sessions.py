"""Sessions that several processes serve, so that any of them can take any message; delete with
2025-11-25.

A session is a record in the store, and each process that has served a message of it has a copy.
What runs stays where it runs: a request and its stream in the process that received the POST, a
request to the client in the process whose name is in its id. Messages for another process are sent
to it; a change of the record is written to the store, and a message lets the other processes
read it.

Rules: a request of a session whose copy is here needs no operation of the store. What the store
cannot take now is kept here and written later; what only another process could do is refused with
503. Notifications between processes are delivered at most once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from itertools import islice
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import ChannelError, Fault, LocalProtocolError, Refused
from colonnade.ports import Service, Store
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import Headers, HttpError
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    ResultResponse,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_result,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import CANCELLED, PROGRESS, DuplexLink
from colonnade.protocol.negotiation import callers_of
from colonnade.protocol.types import CancelledNotificationParams, ProgressNotificationParams
from colonnade.replicas.replica import Replica, is_replica_name
from colonnade.transport.http_server.request import (
    IncomingRequest,
    Limits,
    RequestReaper,
    overload,
)
from colonnade.transport.http_server.session import (
    MAX_BACKLOG,
    HttpSession,
    PendingNotification,
    PostResponse,
    SessionResources,
    check_scopes,
)
from colonnade.transport.http_server.session_record import (
    LoggedEvents,
    SessionRecord,
    decode_events,
    decode_record,
    encode_events,
    encode_record,
    merge,
    record_key,
    store_principal,
    stream_key,
)
from colonnade.transport.http_server.session_registry import FIRST_USE_S, SessionRegistry
from colonnade.transport.http_server.stream_log import LoggedStream
from colonnade.transport.http_server.streams import Stream

log: logging.Logger = logging.getLogger("colonnade.transport")

# Records that are renewed at once: leases and requests need the store, too.
MAX_RENEWALS = 64
# Longer ids are not ours, and no record has them.
MAX_ID_LENGTH = 64
# How long sessions whose copies are here go on without the store.
WITHOUT_STORE_S = 60.0
# After a failure, the store is not asked again for so long.
RETRY_S = 1.0
# Another process may write the same record at the same time; each of them succeeds in the end.
MAX_SWAPS = 16
# Larger records are not sent to the other processes, which read them.
MAX_SENT_RECORD_BYTES = 32 * 1024
# Of one session: with each change of them, all are written, and read by the other processes.
MAX_SUBSCRIBED_BYTES = 512 * 1024
# Larger notifications are not sent to all processes: none needs as much.
MAX_SENT_PARAMS_BYTES = 16 * 1024
# How often the log of a stream is read if its process sends no message.
POLL_S = 1.0

T = TypeVar("T")

CHANGED = "session-changed"
ENDED = "session-ended"
MESSAGE = "session-message"
NOTIFY = "session-notify"
FOLLOW = "stream-follow"
GROWN = "stream-grown"


class SessionMessage(Struct, frozen=True, array_like=True):
    """A message between processes about a session.

    `name` is a stream, `frames` are JSON-RPC messages; of notifications, each with its method or
    an empty string, its subject, and the scopes that its reader needs. `record` is the record after
    a change, empty if it is too large to be sent around.
    """

    session: str
    principal: str
    name: str = ""
    frames: list[bytes] = []
    notifications: list[tuple[str, str | None, bytes, str | None, list[str]]] = []
    record: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionMessage).decode


class SharedSession(HttpSession):
    """The copy of a session in one process."""

    __slots__ = (
        "_notified",
        "_registry",
        "_saved_changes",
        "_saved_is_open",
        "_saved_log_level",
        "data",
        "generation",
        "record",
        "renewed_at",
        "ttl_s",
    )

    def __init__(
        self,
        id: str,
        link: DuplexLink,
        shared: SessionResources,
        registry: "SharedSessionRegistry",
        record: SessionRecord,
        data: bytes,
    ) -> None:
        super().__init__(id, link, shared)
        self._registry = registry
        replica = registry.replica.name
        link.send_as(replica)
        # Event ids name the process that has the stream.
        self._tag = f"{self._tag}-{replica}"
        self.created: float = self.created - max(time.time() - record.created_at, 0.0)
        self._set_record(record, data)
        self.generation: int = registry.generation
        self.renewed_at: float = shared.clock()
        self.ttl_s: float = FIRST_USE_S
        self._saved_changes = 0
        # The changes that the client was notified of since this process has the newest stream for
        # notifications: other processes hand over theirs, which are mostly the same.
        self._notified: set[tuple[str, str | None]] = set()
        self.subscriptions.max_bytes = MAX_SUBSCRIBED_BYTES
        try:
            self._set_subscriptions(record.subscriptions)
        except HttpError:
            self.close("too many resource subscriptions")
            raise

    @property
    def is_changed(self) -> bool:
        """Whether the client has changed something that is not in the record."""
        return (
            self.subscriptions.changes != self._saved_changes
            or self.peer.log_level != self._saved_log_level
            or (not self._saved_is_open and self.link.phase is Phase.OPEN)
        )

    async def save(self) -> None:
        """Write what the client has changed into the record."""
        await self._registry.save_changes(self)

    def _set_record(self, record: SessionRecord, data: bytes) -> None:
        # The record as it was last read or written, and its bytes in the store; what each request
        # compares is at hand.
        self.record: SessionRecord = record
        self.data: bytes = data
        self._saved_log_level = record.log_level
        self._saved_is_open = record.is_open

    def current_record(self) -> SessionRecord:
        """The record, with what was changed here."""
        link = replace(self.link.snapshot(), next_id=1, sent=())
        return replace(self.record, link=link, subscriptions=frozenset(self.subscriptions))

    def use(self, record: SessionRecord, data: bytes) -> None:
        """Use a record that was read or written, unless a newer one came meanwhile; what was
        changed here since is kept."""
        if record.number < self.record.number:
            return
        target = merge(record, self.record, self.current_record())
        earlier = self.record
        self._set_record(record, data)
        self.link.update(target.link)
        try:
            self._set_subscriptions(target.subscriptions)
        except HttpError as error:  # half of them would be written as all of them
            self._registry.end(self, error.message)
            return
        if target.subscriptions != record.subscriptions:
            self._saved_changes = -1
        if record.listener != earlier.listener and not self._is_listener:
            self._hand_over()

    def _set_subscriptions(self, uris: frozenset[str]) -> None:
        for uri in set(self.subscriptions) - uris:
            self.subscriptions.discard(uri)
        for uri in uris - self.subscriptions:
            self.subscriptions.restore(uri)
        self._saved_changes = self.subscriptions.changes

    # ------------------------------------------------------------ incoming messages

    async def take(self, frame: Notification | ResultResponse | ErrorResponse) -> None:
        """Take a notification or a response, or pass it to the process that it is for."""
        if not await self._pass_on(frame):
            self.take_here(frame)
            await self._registry.save_changes(self)

    async def _post_batch(self, incoming: IncomingRequest, batch: Batch) -> None:
        for item in batch.items:
            if isinstance(item, Notification | ResultResponse | ErrorResponse):
                await self._pass_on(item)  # here it is ignored
        self._registry.check_current(self)
        await super()._post_batch(incoming, batch)

    async def _pass_on(self, frame: Notification | ResultResponse | ErrorResponse) -> bool:
        """Pass a message on if it is about what runs elsewhere; False if it is for this process.
        Raises 503 if a response cannot be passed on."""
        registry = self._registry
        if isinstance(frame, Notification):
            if (
                frame.method == CANCELLED
                and len(frame.params) <= MAX_SENT_PARAMS_BYTES
                and not self._runs_here(frame)
            ):
                await registry.broadcast(self, MESSAGE, frame)
                return True
            replica = _progress_sender(frame) if frame.method == PROGRESS else ""
        else:
            replica = _sender(frame.id)
        if not replica or replica == registry.replica.name:
            return False
        await registry.send_to(replica, MESSAGE, self.message(frames=[_encode_frame(frame)]))
        return True

    def _runs_here(self, frame: Notification) -> bool:
        try:
            return decode_as(CancelledNotificationParams, frame.params).request_id in self._ids
        except Fault:
            return True  # the link ignores it

    def message(
        self,
        name: str = "",
        frames: list[bytes] | None = None,
        notifications: list[tuple[str, str | None, bytes, str | None, list[str]]] | None = None,
        record: bytes = b"",
    ) -> bytes:
        """An encoded message about this session."""
        about = SessionMessage(
            self.id, self.link.principal, name, frames or [], notifications or [], record
        )
        return _encode(about)

    # ------------------------------------------------------------ requests of the client

    async def _deliver(
        self, response: PostResponse, stream: Stream, status: int = rules.OK
    ) -> None:
        if self.is_changed:
            await self._registry.save_changes(self)
        await super()._deliver(response, stream, status)

    # ------------------------------------------------------------ streams

    def _make_stream(self, name: str, streamable: bool) -> Stream:
        http = self.peer.revision.http
        if not http.resumable or not streamable:
            return super()._make_stream(name, streamable)
        return LoggedStream(
            name,
            self._ledger,
            append=self._append,
            spawn=self.spawn,
            on_put=self._trim,
            on_finished=self.release,
            primed=http.prime_and_poll,
            retry_ms=self._limits.retry_ms,
        )

    async def _append(self, stream: LoggedStream, events: LoggedEvents) -> None:
        await self._registry.append(self, stream.name, events)
        for follower in list(stream.followers):
            await self._registry.tell(follower, GROWN, self.message(stream.name))

    async def follow(self, name: str, follower: str) -> bool:
        """Tell a process of new entries in the log of a stream, which is complete when this
        returns; False if there will be none."""
        stream = self._resumable.get(name) or self._streams.get(name)
        if not isinstance(stream, LoggedStream):
            return False
        if not stream.is_finished:
            stream.followers.add(follower)
        stream.abort_reader()
        await stream.wait_logged()
        return not stream.is_finished

    async def listen(self, incoming: IncomingRequest, after: str | None) -> None:
        """A GET: a new stream for notifications, or the rest of one, which may be that of another
        process."""
        if after is None:
            await self._claim_notifications()
            await super().listen(incoming, None)
            return
        name, _, number = after.rpartition("-")
        stream = self._resumable.get(name) or self._streams.get(name)
        if isinstance(stream, LoggedStream):  # else it is the copy of one
            if stream.for_notifications:
                await self._claim_notifications()
            await super().listen(incoming, after)
        elif number.isdecimal() and len(number) <= 15:
            await self._resume(incoming, name, int(number))
        else:
            raise rules.unknown_event()

    async def _claim_notifications(self) -> None:
        """From here on notifications go to this process. Raises 503 without the store."""
        self._notified = {kind for kind in self._backlog if kind[0]}
        if not await self._registry.save(self, listener=self._registry.replica.name):
            raise rules.unknown_session()
        self._registry.check_current(self)

    async def _resume(self, incoming: IncomingRequest, name: str, number: int) -> None:
        """Serve the rest of a stream of another process, from its log. Raises `HttpError`."""
        registry = self._registry
        owner = name.split("-")[1] if name.count("-") == 2 else ""
        entries = await registry.read(self, name, 0)
        if not entries:
            raise rules.unknown_event()
        check_scopes(entries[-1][1].scopes, incoming.scopes)
        _events_after(entries, number)
        grown = registry.growth_of(self, name)
        grows = await registry.ask_to_follow(owner, self, name)
        entries += await registry.read(self, name, entries[-1][0])
        missed = _events_after(entries, number)
        if entries[-1][1].for_notifications:
            await self._claim_notifications()
            stream = self._open_listener(incoming)
            stream.replayed = b"".join(
                [encode_event(frame, id=f"{name}-{number}") for number, frame in missed]
            )
            await self._serve_stream(incoming, stream, 0)
            return
        registry.check_current(self)
        if (earlier := self._streams.get(name)) is not None:
            earlier.abort_reader()
        self._check_streams()
        stream = Stream(name, self._ledger, streamable=True)
        stream.continue_after(number)
        stream.scopes = entries[-1][1].scopes
        for _, frame in missed:
            stream.put_response(frame)
        if entries[-1][1].is_last:
            stream.finish()
            grows = False
        self._streams[name] = stream
        following = registry.follow(self, stream, owner, entries[-1][0], grown if grows else None)
        task = self.spawn(following)
        try:
            await stream.serve(incoming, number)
        finally:
            task.cancel()
            if self._streams.get(name) is stream:
                del self._streams[name]
            stream.forget()

    def _trim(self, stream: Stream) -> None:
        stream.trim(self._limits.max_resumable_bytes_per_stream)
        if self.shared.ledger.size > self._limits.max_resumable_bytes:
            self.shared.shrink()

    # ------------------------------------------------------------ notifications

    @property
    def _is_listener(self) -> bool:
        """Whether notifications of this session are sent by this process: it has the newest stream
        for them, no process has one, or that process has ended."""
        listener = self.record.listener
        return not listener or self._registry.is_lost(listener)

    def _put_on_backlog(self, kind: tuple[str, str | None], pending: PendingNotification) -> None:
        if self._is_listener:
            self._note_change(kind)
            super()._put_on_backlog(kind, pending)
        elif not kind[0]:  # changes are known in every process
            listener = self.record.listener
            message = self.message(notifications=[_packed(kind, pending)])
            self.spawn(self._registry.tell(listener, NOTIFY, message))

    def _hand_over(self) -> None:
        """The client has opened a stream for notifications elsewhere: what waits goes there."""
        waiting = [_packed(*item) for item in self._backlog.items()]
        self._backlog.clear()
        if waiting:
            message = self.message(notifications=waiting)
            self.spawn(self._registry.tell(self.record.listener, NOTIFY, message))

    def take_over(self, message: SessionMessage) -> None:
        """Send notifications that another process had; each once, though several may have it."""
        for method, subject, frame, uri, scopes in message.notifications:
            kind = (method, subject)
            if method and kind in self._notified:
                continue
            self._note_change(kind)
            super()._put_on_backlog(kind, PendingNotification(frame, uri, frozenset(scopes)))

    def _note_change(self, kind: tuple[str, str | None]) -> None:
        if kind[0] and len(self._notified) < MAX_BACKLOG:
            self._notified.add(kind)


def _packed(
    kind: tuple[str, str | None], pending: PendingNotification
) -> tuple[str, str | None, bytes, str | None, list[str]]:
    return *kind, pending.frame, pending.uri, sorted(pending.scopes)


def _events_after(entries: list[tuple[int, LoggedEvents]], number: int) -> list[tuple[int, bytes]]:
    """The events in a log after this one. Raises 400 if some of them are not there: they are too
    old, or could not be logged."""
    events = [event for _, entry in entries for event in entry.events]
    first, last = (events[0][0], events[-1][0]) if events else (1, 0)
    missed = [event for event in events if event[0] > number]
    if not first - 1 <= number <= last or len(missed) != last - number:
        raise rules.unknown_event()
    return missed


def _sender(id: object) -> str:
    """The process that sent a request with this id; empty for an id that names none."""
    sender = id.rpartition(".")[0] if isinstance(id, str) else ""
    return sender if is_replica_name(sender) else ""


def _progress_sender(frame: Notification) -> str:
    try:
        return _sender(decode_as(ProgressNotificationParams, frame.params).progress_token)
    except Fault:
        return ""


def _encode_frame(frame: Notification | ResultResponse | ErrorResponse) -> bytes:
    if isinstance(frame, Notification):
        return encode_notification(frame.method, frame.params)
    raw_id = encode(frame.id)
    if isinstance(frame, ResultResponse):
        return encode_result(raw_id, frame.result)
    return encode_error(raw_id, frame.code, frame.message, frame.data or None)


class SharedSessionRegistry(SessionRegistry):
    """The sessions of one application that has replicas: their copies here, their records in the
    store."""

    replica: Replica

    def __init__(
        self, service: Service, limits: Limits, reaper: RequestReaper, store: Store
    ) -> None:
        super().__init__(service, limits, reaper)
        self._store = store
        # Increased when messages of other processes may have been missed.
        self.generation: int = 0
        # When the store has failed first and last, since it responded.
        self._failed_at: float | None = None
        self._failed_last = 0.0
        self._without_lease_at: float | None = None
        self._unsaved: dict[str, SharedSession] = {}
        # Of the records that are being read: each is set if the session changes meanwhile.
        self._restoring: dict[str, list[asyncio.Event]] = {}
        # Whose records are renewed next.
        self._to_renew: dict[str, SharedSession] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._maintaining: asyncio.Task[None] | None = None
        # Processes that have streams for notifications: whether they have ended.
        self._listeners_lost: dict[str, bool] = {}
        # Set when the log of a stream has grown; held by the requests that resume it.
        self._grown: WeakValueDictionary[tuple[str, str], asyncio.Event] = WeakValueDictionary()

    def join(self, replica: Replica) -> None:
        """Use this replica, before it is started."""
        self.replica = replica
        replica.on_missed(self._on_missed)
        replica.handle(CHANGED, self._on_changed)
        replica.handle(ENDED, self._on_ended)
        replica.handle(MESSAGE, self._on_message)
        replica.handle(NOTIFY, self._on_notify)
        replica.handle(FOLLOW, self._on_follow)
        replica.handle(GROWN, self._on_grown)

    # ------------------------------------------------------------ records

    async def current(self, headers: Headers, principal: str) -> HttpSession | None:
        """The session of the header: its copy here, or read from the store if there is none, or one
        that may be out of date. Raises 400 for what cannot be a session id, and 503."""
        session = self.named(headers, principal)
        if session is not None:
            return session
        return await self.restore(rules.session_id(headers), principal)

    def named(self, headers: Headers, principal: str) -> HttpSession | None:
        """The copy here of the session of the header; None if it may be out of date."""
        session = super().named(headers, principal)
        if session is not None:
            assert isinstance(session, SharedSession)
            # `notifications/initialized` may have been sent to another process.
            if session.generation != self.generation or session.link.phase is Phase.OPENING:
                return None
        return session

    def check_current(self, session: SharedSession) -> None:
        """Raise 503 for a copy that is not used any more: the session has ended, or the next
        request makes another one."""
        if self._by_id.get(session.id) is not session:
            raise overload("the session has ended, or is busy elsewhere; try again")

    async def restore(self, id: str | None, principal: str) -> HttpSession | None:
        """The session with this id, read from the store. Raises 503 if the store does not respond,
        unless a copy is here."""
        if id is None or len(id) > MAX_ID_LENGTH:
            return None
        generation, changed = self.generation, asyncio.Event()
        self._restoring.setdefault(id, []).append(changed)
        try:
            data = await self._get(id, principal)
        except (ChannelError, Refused):
            session = self.find(id, principal)
            if session is None or self._is_without_store_for_long():
                raise _store_lost() from None
            return session
        finally:
            self._restoring[id].remove(changed)
            if not self._restoring[id]:
                del self._restoring[id]
            if changed.is_set():  # while it was read: it is read again at the next use
                generation = -1
        session = self._by_id.get(id)
        if session is not None and session.link.principal != principal:
            return None
        record = decode_record(data) if data is not None else None
        if data is None or record is None or record.principal != principal:
            if session is not None:
                self.end(session, "the session was ended by its client, or has expired")
            return None
        if session is None:
            self._make_room(principal)
            session = self._restored(id, record, data)
            if session is None:
                return None
            self._by_id[id] = session
        else:
            assert isinstance(session, SharedSession)
            session.use(record, data)
        session.generation = generation
        return self._used(session, principal)

    async def _get(self, id: str, principal: str) -> bytes | None:
        """The record of a session. Raises `ChannelError`; soon after a failure, without asking."""
        if self._failed_lately:
            raise ChannelError("the store does not respond")
        return await self._tried(self._store.get(store_principal(principal), record_key(id)))

    @property
    def _failed_lately(self) -> bool:
        return self._failed_at is not None and self.shared.clock() - self._failed_last < RETRY_S

    async def _tried(self, operation: Awaitable[T]) -> T:
        """The result of an operation of the store; notes whether it responds."""
        try:
            result = await operation
        except ChannelError:
            self._failed_last = self.shared.clock()
            if self._failed_at is None:
                self._failed_at = self._failed_last
                log.warning("the store of the sessions does not respond")
            raise
        self._failed_at = None
        return result

    def _is_without_store_for_long(self) -> bool:
        failed_at = self._failed_at
        return failed_at is not None and self.shared.clock() - failed_at > WITHOUT_STORE_S

    def _restored(self, id: str, record: SessionRecord, data: bytes) -> SharedSession | None:
        accepts, principal = self._service.accepts, record.principal
        identity = self._service.identity.for_callers(callers_of(principal))
        try:
            link = DuplexLink.restore(record.link, identity, accepts, principal)
        except LocalProtocolError:  # another release accepts its revision
            return None
        return SharedSession(id, link, self.shared, self, record, data)

    async def _create(self, id: str, link: DuplexLink) -> HttpSession:
        snapshot = replace(link.snapshot(), next_id=1, sent=())
        record = SessionRecord(principal=link.principal, link=snapshot, created_at=time.time())
        data = encode_record(record)
        owner = store_principal(link.principal)
        try:
            await self._tried(self._store.put(owner, record_key(id), data, FIRST_USE_S))
        except ChannelError:
            raise _store_lost() from None
        except Refused as error:
            log.warning("a session cannot be stored: %s", error)
            raise overload("too many sessions; end one that is no longer needed") from None
        return SharedSession(id, link, self.shared, self, record, data)

    async def save_changes(self, session: SharedSession) -> None:
        """Write what the client has changed into the record; later, if the store does not
        respond."""
        if not session.is_changed:
            return
        try:
            await self.save(session)
        except HttpError:
            self._unsaved[session.id] = session

    async def save(self, session: SharedSession, listener: str | None = None) -> bool:
        """Write the record of a session, and tell the other processes; False if the session has
        ended. Raises 503."""
        id, principal = session.id, session.link.principal
        owner, key = store_principal(principal), record_key(id)
        stored, data = session.record, session.data
        ttl_s = self._ttl_s(session)
        try:
            for _ in range(MAX_SWAPS):
                record = merge(stored, session.record, session.current_record())
                if listener is not None:
                    record = replace(record, listener=listener)
                if record != stored:
                    record = replace(record, number=stored.number + 1)
                after = encode_record(record, data) if record != stored else data
                if await self._tried(self._store.swap(owner, key, data, after, ttl_s)):
                    session.use(record, after)
                    session.renewed_at, session.ttl_s = self.shared.clock(), ttl_s
                    if after != data:
                        await self.broadcast(session, CHANGED)
                    if record.subscriptions - stored.subscriptions:
                        await self._confirm_at_listener(session)
                    return True
                found = await self._tried(self._store.get(owner, key))
                newer = decode_record(found) if found is not None else None
                if found is None or newer is None:
                    self.end(session, "the session was ended by its client, or has expired")
                    return False
                stored, data = newer, found
        except ChannelError:
            raise _store_lost() from None
        except Refused as error:
            session.note(f"a session cannot be stored: {error}")
        raise overload("the session cannot be stored now; try again later")

    async def _confirm_at_listener(self, session: SharedSession) -> None:
        """Wait until the process that sends the notifications of a session knows its record: an
        update after the response to `resources/subscribe` may happen there."""
        listener = session.record.listener
        if listener and not self.is_lost(listener):
            with contextlib.suppress(ChannelError, Refused):  # it reads the record when it is back
                await self.replica.request(listener, CHANGED, self._change_message(session))

    def _change_message(self, session: SharedSession) -> bytes:
        is_sent = len(session.data) <= MAX_SENT_RECORD_BYTES
        return session.message(record=session.data if is_sent else b"")

    def _ttl_s(self, session: SharedSession) -> float:
        age = self.shared.clock() - session.created
        left = self._limits.max_session_age_s - age
        return max(min(self._limits.session_idle_timeout_s, left), 1.0)

    async def delete(self, session: HttpSession) -> None:
        """End a session in every process. Raises 503."""
        assert isinstance(session, SharedSession)
        owner = store_principal(session.link.principal)
        try:
            await self._tried(self._store.delete(owner, record_key(session.id)))
        except (ChannelError, Refused):
            raise _store_lost() from None
        await self.broadcast(session, ENDED)
        self.end(session, "the client ended the session")

    # ------------------------------------------------------------ streams

    async def append(self, session: SharedSession, stream: str, events: LoggedEvents) -> None:
        """Add to the log of a stream; without the store, it cannot be resumed elsewhere."""
        owner = store_principal(session.link.principal)
        key, ttl_s = stream_key(session.id, stream), self._limits.resume_window_s
        if self._failed_lately:  # each would wait for the timeout of the store
            return
        try:
            await self._tried(self._store.append(owner, key, encode_events(events), ttl_s))
        except (ChannelError, Refused) as error:
            log.debug("the events of a stream are not logged: %s", error)

    async def read(
        self, session: SharedSession, stream: str, after: int
    ) -> list[tuple[int, LoggedEvents]]:
        """The entries in the log of a stream after this one. Raises 503."""
        owner = store_principal(session.link.principal)
        try:
            found = await self._tried(
                self._store.read(owner, stream_key(session.id, stream), after)
            )
        except (ChannelError, Refused):
            raise _store_lost() from None
        return [(number, decode_events(entry)) for number, entry in found]

    async def ask_to_follow(self, replica: str, session: SharedSession, stream: str) -> bool:
        """Ask a process to tell us of new events of its stream; False if there will be none."""
        if not replica or replica == self.replica.name:
            return False
        try:
            return await self.replica.request(replica, FOLLOW, session.message(stream)) == b"1"
        except ChannelError:
            return False
        except Refused:
            raise overload("too many requests at once; try again later") from None

    def growth_of(self, session: SharedSession, stream: str) -> asyncio.Event:
        """What is set when the log of a stream has grown."""
        return self._grown.setdefault((session.id, stream), asyncio.Event())

    async def follow(
        self,
        session: SharedSession,
        stream: Stream,
        replica: str,
        after: int,
        grown: asyncio.Event | None,
    ) -> None:
        """Put what is added to the log of a stream on our copy of it, until it ends, or until the
        process that it belongs to has ended; at once if nothing is added (None)."""
        grows = True
        try:
            while grown is not None and grows:
                try:
                    async with asyncio.timeout(POLL_S):
                        await grown.wait()
                except TimeoutError:
                    grows = await self.replica.is_alive(replica)
                grown.clear()
                for position, entry in await self.read(session, stream.name, after):
                    after = position
                    for number, frame in entry.events:
                        if number > stream.last_number + 1:
                            return  # some could not be logged
                        if number == stream.last_number + 1:
                            stream.put_response(frame)
                    if entry.is_last:
                        return
        except (ChannelError, HttpError):
            log.debug("a stream of another process ends: the store does not respond")
        finally:
            stream.finish()

    # ------------------------------------------------------------ messages to other processes

    async def broadcast(
        self, session: SharedSession, kind: str, frame: Notification | None = None
    ) -> None:
        """Tell all other processes; at most once."""
        frames = [_encode_frame(frame)] if frame is not None else []
        body = session.message(frames=frames)
        if kind == CHANGED:
            body = self._change_message(session)
        try:
            await self.replica.broadcast(kind, body)
        except (ChannelError, Refused) as error:
            log.warning("%s of a session was not sent to other processes: %s", kind, error)

    async def send_to(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to a process. Raises 503 without the store."""
        try:
            await self.replica.send(replica, kind, body)
        except (ChannelError, Refused):
            raise _store_lost() from None

    async def tell(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to a process; at most once."""
        try:
            await self.replica.send(replica, kind, body)
        except (ChannelError, Refused) as error:
            log.debug("%s was not sent to another process: %s", kind, error)

    def is_lost(self, replica: str) -> bool:
        """Whether a process that had a stream for notifications is known to have ended."""
        if replica == self.replica.name:
            return True  # it is this one, which has them itself
        return self._listeners_lost.setdefault(replica, False)

    # ------------------------------------------------------------ messages from other processes

    def _copy_of(self, message: SessionMessage) -> SharedSession | None:
        session = self._by_id.get(message.session)
        for changed in self._restoring.get(message.session, ()):
            changed.set()
        if session is None or session.link.principal != message.principal:
            return None
        assert isinstance(session, SharedSession)
        return session

    def _on_missed(self) -> None:
        self.generation += 1

    async def _on_changed(self, sender: str, body: bytes) -> None:
        message = _decode(body)
        session = self._copy_of(message)
        if session is None:
            return
        data: bytes | None = message.record
        if not data:
            session.generation = -1  # until it is read
            try:
                data = await self._get(session.id, session.link.principal)
            except ChannelError:
                return
        record = decode_record(data) if data is not None else None
        if record is None:
            session.generation = -1
        elif data is not None and record.number > session.record.number:
            session.use(record, data)

    async def _on_ended(self, sender: str, body: bytes) -> None:
        session = self._copy_of(_decode(body))
        if session is not None:
            self.end(session, "the client ended the session")

    async def _on_message(self, sender: str, body: bytes) -> None:
        message = _decode(body)
        session = self._copy_of(message)
        if session is not None:
            for data in message.frames:
                frame: Frame | Batch = decode(data)
                if isinstance(frame, Notification | ResultResponse | ErrorResponse):
                    session.take_here(frame)

    async def _on_notify(self, sender: str, body: bytes) -> None:
        message = _decode(body)
        session = self._copy_of(message)
        if session is not None:
            session.take_over(message)

    async def _on_follow(self, sender: str, body: bytes) -> bytes:
        message = _decode(body)
        session = self._copy_of(message)
        grows = session is not None and await session.follow(message.name, sender)
        return b"1" if grows else b"0"

    async def _on_grown(self, sender: str, body: bytes) -> None:
        message = _decode(body)
        event = self._grown.get((message.session, message.name))
        if event is not None:
            event.set()

    # ------------------------------------------------------------ timeouts

    def _tick(self, now: float) -> bool:
        if self._by_id:
            self._check_lease(now)
        if self._maintaining is None and (self._unsaved or self._listeners_lost):
            self._maintaining = self.shared.spawn(self._maintain())
        return super()._tick(now)

    def _check_lease(self, now: float) -> None:
        """Without a lease the other processes cannot tell us that sessions have ended: after a
        while each copy is read before it is used."""
        if self.replica.holds_lease:
            self._without_lease_at = None
        elif self._without_lease_at is None:
            self._without_lease_at = now
        elif now - self._without_lease_at > WITHOUT_STORE_S:
            self.generation += 1
            self._failed_at = self._failed_at or self._without_lease_at

    async def _maintain(self) -> None:
        """Write what could not be written before, and see which processes have ended."""
        try:
            unsaved, self._unsaved = self._unsaved, {}
            for session in unsaved.values():
                if session.id in self._by_id:
                    await self.save_changes(session)
            listeners = {s.record.listener for s in self if isinstance(s, SharedSession)}
            for replica in list(self._listeners_lost):
                if replica not in listeners:
                    del self._listeners_lost[replica]
                    continue
                self._listeners_lost[replica] = not await self.replica.is_alive(replica)
        except ChannelError:
            log.debug("the store does not respond")
        finally:
            self._maintaining = None

    def check(self, session: HttpSession, now: float) -> None:
        """Renew the record of a session that is in use; forget the copy of one that is not."""
        super().check(session, now)
        assert isinstance(session, SharedSession)
        is_used = session.busy or session.used > session.renewed_at
        if session.id in self._by_id and is_used and now - session.renewed_at > session.ttl_s / 4:
            session.renewed_at = now  # whether or not that succeeds: again after as long
            self._to_renew[session.id] = session
            if self._renewing is None:
                self._renewing = self.shared.spawn(self._renew_all())

    async def _renew_all(self) -> None:
        """Renew the records that are due, some at once: thousands can be due in one moment."""
        try:
            while self._to_renew:
                due = list(islice(self._to_renew.values(), MAX_RENEWALS))
                for session in due:
                    del self._to_renew[session.id]
                await asyncio.gather(*map(self._renew, due))
        finally:
            self._renewing = None

    async def _renew(self, session: SharedSession) -> None:
        try:
            await self.save(session)
        except HttpError as error:
            log.debug("the record of a session was not renewed: %s", error)


def _store_lost() -> HttpError:
    return overload("the store of the sessions does not respond; try again later")
