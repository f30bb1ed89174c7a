"""A session that several processes serve: its copy in one of them; delete with 2025-11-25.

A session is a record in the store, and each process that has served a message of it has a copy.
What runs stays where it runs: a request and its stream in the process that received the POST, a
request to the client in the process whose name is in its id. Messages for another process are sent
to it.

Rules: a request of a session whose copy is here needs no operation of the store, which only
`shared_registry` uses. Notifications between processes are delivered at most once.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Notification,
    Request,
    ResultResponse,
    SplitParams,
    encode,
    encode_error,
    encode_notification,
    encode_result,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import CANCELLED, PROGRESS, DuplexLink
from colonnade.protocol.types import CancelledNotificationParams, ProgressNotificationParams
from colonnade.replicas.replica import Replica, is_replica_name
from colonnade.transport.http_server.request import (
    IncomingRequest,
)
from colonnade.transport.http_server.sessions.event_ids import (
    bound_tag,
    ids_of,
    is_of,
    split_event_id,
)
from colonnade.transport.http_server.sessions.record import (
    LoggedEvents,
    SessionRecord,
    merge,
)
from colonnade.transport.http_server.sessions.registry import FIRST_USE_S
from colonnade.transport.http_server.sessions.session import (
    MAX_BACKLOG,
    HttpSession,
    PendingNotification,
    PostResponse,
    SessionResources,
    check_scopes,
)
from colonnade.transport.http_server.sessions.stream_log import LoggedStream
from colonnade.transport.http_server.sessions.streams import Stream

# Of one session: with each change of them, all are written, and read by the other processes.
MAX_SUBSCRIBED_BYTES = 512 * 1024
# How long a change that another process has handed over waits for the message about it to this one,
# which may be on its way: two polls of an SQLite file, and the windows of `replicas.changes`.
HAND_OVER_S = 0.25
# Requests that change the record. The copy here may not have the last change yet, and what it has
# already would not be written: these are handled with the record as it is stored.
RECORDED = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
# Larger notifications are not sent to all processes: none needs as much.
MAX_SENT_PARAMS_BYTES = 16 * 1024

# Raised with a change of `SessionMessage` that older releases cannot read, which a new member at
# its end is not. They then read the records of sessions before each use, and refuse requests.
SESSION_MESSAGE_VERSION = 1
CHANGED = "session-changed"
ENDED = "session-ended"
MESSAGE = "session-message"
NOTIFY = "session-notify"
FOLLOW = "stream-follow"
GROWN = "stream-grown"
CHECK = "stream-check"


class SessionMessage(Struct, frozen=True, array_like=True):
    """A message between processes about a session.

    `name` is a stream, `frames` are JSON-RPC messages. A notification has its method (or an empty
    string), its subject, and the scopes that its reader needs. `record` is the record after
    a change, empty if it is too large to be sent around. `number` is the event of the stream that
    the client named in `Last-Event-ID`.
    """

    session: str
    principal: str
    name: str = ""
    frames: list[bytes] = []
    notifications: list[tuple[str, str | None, bytes, str | None, list[str]]] = []
    record: bytes = b""
    number: int = 0


encode_message: Callable[[SessionMessage], bytes] = msgspec.msgpack.Encoder().encode
decode_message: Callable[[bytes], SessionMessage] = msgspec.msgpack.Decoder(SessionMessage).decode


class SharedSessionOwner(Protocol):
    """What a session needs of the registry that it is in."""

    replica: Replica
    generation: int

    def check_current(self, session: "SharedSession") -> None:
        """Raise 503 for a copy that is not used any more."""
        ...

    async def restore(self, id: str | None, principal: str) -> HttpSession | None:
        """Read a session from the store; None if it has ended. Raises 503."""
        ...

    def end(self, session: HttpSession, why: str) -> None:
        """End the copy of a session."""
        ...

    async def save(
        self, session: "SharedSession", listener: str | None = None
    ) -> SessionRecord | None:
        """Write the record of a session. Returns the previous record, or None if the session has
        ended. Raises 503."""
        ...

    async def save_changes(self, session: "SharedSession") -> None:
        """Write the record of a session if it has changed, now or later."""
        ...

    async def append(
        self, session: "SharedSession", stream: LoggedStream, events: LoggedEvents
    ) -> bool:
        """Append to the log of a stream. Returns whether that succeeded."""
        ...

    async def read(
        self, session: "SharedSession", stream: str, after: int
    ) -> list[tuple[int, LoggedEvents]]:
        """The entries in the log of a stream after this one. Raises 503."""
        ...

    async def ask_owner(
        self, kind: str, replica: str, session: "SharedSession", stream: str, number: int
    ) -> bool | None:
        """Ask the process of a stream whether new events will follow, and to be notified of them
        (`FOLLOW`). Returns False if none will follow, None without a response. Raises 400 if that
        process has not sent an event with this number."""
        ...

    async def relieve(self, replica: str, session: "SharedSession") -> bool:
        """Notify the process that had the stream for notifications. Returns whether that process
        responds and has missed no notification."""
        ...

    def growth_of(self, session: "SharedSession", stream: str) -> asyncio.Event:
        """What is set when the log of a stream has grown."""
        ...

    async def follow(
        self,
        session: "SharedSession",
        stream: Stream,
        replica: str,
        last: tuple[int, LoggedEvents],
        grown: asyncio.Event,
        grows: bool | None,
    ) -> None:
        """Put what is added to the log of a stream on our copy of it, until it ends."""
        ...

    async def broadcast(
        self, session: "SharedSession", kind: str, frame: Notification | None = None
    ) -> None:
        """Send a message about a session to all other processes; at most once."""
        ...

    async def deliver(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to a process until that process acknowledges it. Raises 503."""
        ...

    async def notify(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to a process; at most once."""
        ...

    def is_lost(self, replica: str) -> bool:
        """Whether a process that had a stream for notifications is known to have ended."""
        ...


class SharedSession(HttpSession):
    """The copy of a session in one process."""

    __slots__ = (
        "_held",
        "_notified",
        "_registry",
        "_saved_changes",
        "_saved_is_open",
        "_saved_log_level",
        "data",
        "generation",
        "has_listened",
        "record",
        "renewed_at",
        "ttl_s",
    )

    def __init__(
        self,
        id: str,
        link: DuplexLink,
        shared: SessionResources,
        registry: "SharedSessionOwner",
        record: SessionRecord,
        data: bytes,
    ) -> None:
        super().__init__(id, link, shared)
        self._registry = registry
        replica = registry.replica.name
        link.send_as(replica)
        # Event ids name the process that has the stream.
        self._tag = bound_tag(id, self._tag, replica)
        self.created: float = self.created - max(time.time() - record.created_at, 0.0)
        self._set_record(record, data)
        self.generation: int = registry.generation
        self.renewed_at: float = shared.clock()
        self.ttl_s: float = FIRST_USE_S
        self._saved_changes = 0
        # Whether a client has opened a stream for notifications here.
        self.has_listened: bool = False
        # The changes that the client was notified of since this process has the newest stream for
        # notifications: other processes hand over theirs, which are mostly the same.
        self._notified: set[tuple[str, str | None]] = set()
        # The changes that were handed over and wait for this process to be notified of them.
        self._held: dict[tuple[str, str | None], PendingNotification] = {}
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
            self.hand_over()

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

    def post(
        self, incoming: IncomingRequest, frame: Request | Batch, parts: SplitParams | None = None
    ) -> Coroutine[None, None, None]:
        """Handle a request or a batch. Raises `Fault`."""
        if isinstance(frame, Request) and frame.method in RECORDED:
            return self._post_recorded(incoming, frame, parts)
        return super().post(incoming, frame, parts)

    async def _post_recorded(
        self, incoming: IncomingRequest, frame: Request, parts: SplitParams | None
    ) -> None:
        await self._read_again()
        await super().post(incoming, frame, parts)

    async def _read_again(self) -> None:
        if await self._registry.restore(self.id, self.link.principal) is None:
            raise rules.unknown_session()
        self._registry.check_current(self)

    async def _post_batch(self, incoming: IncomingRequest, batch: Batch) -> None:
        if any(isinstance(item, Request) and item.method in RECORDED for item in batch.items):
            await self._read_again()
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
        message = self.message(frames=[encode_frame(frame)])
        if isinstance(frame, Notification):
            await registry.notify(replica, MESSAGE, message)
        else:
            await registry.deliver(replica, MESSAGE, message)
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
        number: int = 0,
    ) -> bytes:
        """An encoded message about this session."""
        about = SessionMessage(
            self.id, self.link.principal, name, frames or [], notifications or [], record, number
        )
        return encode_message(about)

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

    async def _append(self, stream: LoggedStream, events: LoggedEvents) -> bool:
        events = replace(events, requests=self._requests_without_response(stream))
        is_logged = await self._registry.append(self, stream, events)
        for follower in list(stream.followers) if is_logged else ():
            await self._registry.notify(follower, GROWN, self.message(stream.name))
        return is_logged

    def _requests_without_response(self, stream: LoggedStream) -> list[bytes]:
        """The ids of requests whose response is not on a stream yet, as they were written."""
        if stream.batch_size:  # whose responses are sent together
            return [*stream.batch_ids] if stream.pending else []
        running = self._running.items()
        return [one.request.raw_id for one, here in running if here.response.opened is stream]

    async def follow(self, name: str, number: int, follower: str = "") -> bytes:
        """Complete the log of a stream of this process. Returns `1` if more events will follow,
        otherwise `0`; `?` if the stream has no event with this number. A `follower` is notified of
        new entries."""
        stream = self._resumable.get(name) or self._streams.get(name)
        if not isinstance(stream, LoggedStream):
            return b"0"
        if number > stream.newest:
            return b"?"
        if follower:
            if not stream.is_finished:
                stream.followers.add(follower)
            stream.abort_reader()
        if follower or stream.is_behind:
            await stream.catch_up()
        return b"0" if stream.is_finished else b"1"

    async def listen(self, incoming: IncomingRequest, after: str | None) -> None:
        """A GET: a new stream for notifications, or the rest of one, which may be that of another
        process."""
        if after is None:
            lost = await self._claim_notifications()
            stream, number = self._open_listener(incoming), 0
        else:
            name, number = split_event_id(after)
            found = self._resumable.get(name) or self._streams.get(name)
            if not isinstance(found, LoggedStream):  # it may be a copy of a stream
                await self._resume(incoming, name, number)
                return
            lost = found.for_notifications and await self._claim_notifications()
            stream, number = self._find(after, incoming)
        if lost:
            self._announce_all(stream)
        await self._serve_stream(incoming, stream, number)

    async def _claim_notifications(self) -> bool:
        """Take over the notifications of this session. Returns whether changes may have been lost,
        because the process that had the stream has ended. Raises 503 without the store."""
        registry, own = self._registry, self._registry.replica.name
        if self.record.listener != own:
            self._notified.clear()
        # Else others may still hand over what was sent since the first of these streams.
        self._notified.update(kind for kind in self._backlog if kind[0])
        before = await registry.save(self, listener=own)
        if before is None:
            raise rules.unknown_session()
        had_listened, self.has_listened = self.has_listened, True
        if before.listener == own:
            lost = not had_listened
        else:
            lost = bool(before.listener) and not await registry.relieve(before.listener, self)
        registry.check_current(self)
        return lost

    async def _resume(self, incoming: IncomingRequest, name: str, number: int) -> None:
        """Serve the rest of a stream of another process, from its log. Raises `HttpError`."""
        registry = self._registry
        owner = name.split("-")[1] if name.count("-") == 2 else ""
        if not is_replica_name(owner):
            raise rules.unknown_event()
        entries = await registry.read(self, name, 0)
        if not entries or number > _newest(entries):
            # The store was unavailable, or has not yet acknowledged the event to the process of the
            # stream.
            await registry.ask_owner(CHECK, owner, self, name, number)
            entries = await registry.read(self, name, 0)
        if not entries:  # the log has expired, or its process ended before writing it
            if not is_of(name, self.id):
                raise rules.unknown_event()
            ids = ids_of(name)
            gone = LoggedEvents([], for_notifications=ids is None, requests=ids or [])
            entries = [(0, gone)]
        check_scopes(entries[-1][1].scopes, incoming.scopes)
        grown = registry.growth_of(self, name)
        grows = await registry.ask_owner(FOLLOW, owner, self, name, number)
        entries += await registry.read(self, name, entries[-1][0])
        last = entries[-1][1]
        check_scopes(last.scopes, incoming.scopes)
        if last.is_last and number > _newest(entries):
            raise rules.unknown_event()
        missed = [event for _, entry in entries for event in entry.events if event[0] > number]
        if last.for_notifications:
            lost = await self._claim_notifications()
            stream = self._open_listener(incoming)
            stream.replayed = b"".join(
                [encode_event(frame, id=f"{name}-{number}") for number, frame in missed]
            )
            if lost or not entries[0][0] or len(missed) != _newest(entries) - number:
                self._announce_all(stream)
            await self._serve_stream(incoming, stream, 0)
            return
        registry.check_current(self)
        if (earlier := self._streams.get(name)) is not None:
            earlier.abort_reader()
        self._check_streams()
        stream = Stream(name, self._ledger, streamable=True)
        stream.continue_after(number)
        stream.scopes = incoming.scopes
        for missed_number, frame in missed:
            stream.put_numbered(missed_number, frame)
        self._streams[name] = stream
        task = self.spawn(registry.follow(self, stream, owner, entries[-1], grown, grows))
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
            self._held.pop(kind, None)
            super()._put_on_backlog(kind, pending)
        elif not kind[0]:  # changes are known in every process
            listener = self.record.listener
            message = self.message(notifications=[_packed(kind, pending)])
            self.spawn(self._registry.notify(listener, NOTIFY, message))

    def hand_over(self) -> None:
        """The client has a stream for notifications elsewhere: what waits here goes there."""
        waiting = [_packed(*item) for item in (self._backlog | self._held).items()]
        self._backlog.clear()
        self._held.clear()
        if waiting:
            message = self.message(notifications=waiting)
            self.spawn(self._registry.notify(self.record.listener, NOTIFY, message))

    def take_over(self, message: SessionMessage) -> None:
        """Send notifications that another process had; each once, though several may have it."""
        for method, subject, frame, uri, scopes in message.notifications:
            kind, pending = (method, subject), PendingNotification(frame, uri, frozenset(scopes))
            if not method:  # which one process alone has
                super()._put_on_backlog(kind, pending)
            elif kind not in self._notified and len(self._held) < MAX_BACKLOG:
                if not self._held:
                    asyncio.get_running_loop().call_later(HAND_OVER_S, self._release_held)
                self._held[kind] = pending

    def _release_held(self) -> None:
        """Send the changes that this process was not notified of, or not since it has a copy."""
        for kind, pending in self._held.items():
            self._note_change(kind)
            super()._put_on_backlog(kind, pending)
        self._held.clear()

    def _note_change(self, kind: tuple[str, str | None]) -> None:
        if kind[0] and len(self._notified) < MAX_BACKLOG:
            self._notified.add(kind)


def _packed(
    kind: tuple[str, str | None], pending: PendingNotification
) -> tuple[str, str | None, bytes, str | None, list[str]]:
    return *kind, pending.frame, pending.uri, sorted(pending.scopes)


def _newest(entries: list[tuple[int, LoggedEvents]]) -> int:
    """The number of the newest event in a log."""
    return max((number for _, entry in entries for number, _ in entry.events), default=0)


def _sender(id: object) -> str:
    """The process that sent a request with this id; empty for an id that names none."""
    sender = id.rpartition(".")[0] if isinstance(id, str) else ""
    return sender if is_replica_name(sender) else ""


def _progress_sender(frame: Notification) -> str:
    try:
        return _sender(decode_as(ProgressNotificationParams, frame.params).progress_token)
    except Fault:
        return ""


def encode_frame(frame: Notification | ResultResponse | ErrorResponse) -> bytes:
    if isinstance(frame, Notification):
        return encode_notification(frame.method, frame.params)
    raw_id = encode(frame.id)
    if isinstance(frame, ResultResponse):
        return encode_result(raw_id, frame.result)
    return encode_error(raw_id, frame.code, frame.message, frame.data or None)
