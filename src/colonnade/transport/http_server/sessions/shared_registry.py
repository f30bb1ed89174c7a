"""The registry of sessions that several processes serve, so that any of them can take any message;
delete with 2025-11-25.

A change of a record is written to the store, and a message lets the other processes read it.

Rules: what the store cannot take now is kept here and written later; what only another process
could do is refused with 503. Notifications between processes are delivered at most once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from itertools import islice
from weakref import WeakSet, WeakValueDictionary

from msgspec.structs import replace

from colonnade.errors import ChannelError, Fault, LocalProtocolError, Refused
from colonnade.log_rate import LogRate
from colonnade.ports import Service, Store
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import Headers, HttpError
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    ResultResponse,
    decode,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import callers_of
from colonnade.replicas.replica import Replica, ReplicaLost
from colonnade.transport.http_server.request import (
    Limits,
    RequestReaper,
    overload,
)
from colonnade.transport.http_server.sessions.record import (
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
from colonnade.transport.http_server.sessions.registry import FIRST_USE_S, SessionRegistry
from colonnade.transport.http_server.sessions.session import (
    HttpSession,
    check_scopes,
)
from colonnade.transport.http_server.sessions.shared_session import (
    CHANGED,
    CHECK,
    ENDED,
    FOLLOW,
    GROWN,
    MESSAGE,
    NOTIFY,
    SESSION_MESSAGE_VERSION,
    SessionMessage,
    SharedSession,
    decode_message,
    encode_frame,
)
from colonnade.transport.http_server.sessions.store_outage import WITHOUT_STORE_S, StoreOutage
from colonnade.transport.http_server.sessions.stream_log import LoggedStream
from colonnade.transport.http_server.sessions.streams import Stream

log: logging.Logger = logging.getLogger("colonnade.transport")

# Records that are renewed at once: leases and requests need the store, too.
MAX_RENEWALS = 64
# A record that seems to have been renewed later than so long from now is renewed once more.
MAX_CLOCK_SKEW_S = 60.0
# Longer ids are not ours, and no record has them.
MAX_ID_LENGTH = 64
# Another process may write the same record at the same time; each of them succeeds in the end.
MAX_SWAPS = 16
# Larger records are not sent to the other processes, which read them.
MAX_SENT_RECORD_BYTES = 32 * 1024
# How often the log of a stream is read if its process sends no message, and that process is asked
# whether it still has the stream.
POLL_S = 0.5
# A process that has not responded to so many of these requests in a row has ended: its lease would
# tell that later than the 5 s within which a client is told.
MAX_UNANSWERED = 3
CHECK_TIMEOUT_S = 0.8
# For this long after an outage of the store, twice as many: processes then need up to two seconds
# until they receive messages again.
AFTER_OUTAGE_S = 5.0
OWNER_ENDED = "the replica that ran this request has ended"


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
        self._missed_at = float("-inf")
        self._refusal_rate = LogRate()
        self._outage = StoreOutage(lambda: self.shared.clock(), limits.store_wait_s)
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
        # Streams of this process whose logs lack events; the sessions keep them alive.
        self._behind: WeakSet[LoggedStream] = WeakSet()
        # Set when the log of a stream has grown; held by the requests that resume it.
        self._grown: WeakValueDictionary[tuple[str, str], asyncio.Event] = WeakValueDictionary()

    def join(self, replica: Replica) -> None:
        """Use this replica, before it is started."""
        self.replica = replica
        replica.on_missed(self._on_missed)
        handlers = {
            CHANGED: self._on_changed,
            ENDED: self._on_ended,
            MESSAGE: self._on_message,
            NOTIFY: self._on_notify,
            FOLLOW: self._on_follow,
            CHECK: self._on_check,
            GROWN: self._on_grown,
        }
        for kind, handler in handlers.items():
            replica.handle(kind, handler, SESSION_MESSAGE_VERSION)

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
            if id in self._by_id:
                data = await self._get(id, principal)
            else:
                data = await self._outage.waited(lambda: self._get(id, principal))
        except (ChannelError, Refused):
            session = self.find(id, principal)
            if session is None or self._outage.is_long:
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
        if self._outage.is_recent:
            raise ChannelError("the store does not respond")
        return await self._outage.tried(self._store.get(store_principal(principal), record_key(id)))

    def _restored(self, id: str, record: SessionRecord, data: bytes) -> SharedSession | None:
        accepts, principal = self._service.accepts, record.principal
        identity = self._service.identity.for_callers(callers_of(principal))
        try:
            link = DuplexLink.restore(record.link, identity, accepts, principal)
        except LocalProtocolError:  # another release accepts its revision
            return None
        except Fault as fault:
            log.warning("the record of a session cannot be read: %s", fault)
            return None
        if link.peer is None:
            log.warning("the record of a session cannot be read: it names no revision")
            return None
        return SharedSession(id, link, self.shared, self, record, data)

    async def _create(self, id: str, link: DuplexLink) -> HttpSession:
        snapshot = replace(link.snapshot(), next_id=1, sent=())
        record = SessionRecord(principal=link.principal, link=snapshot, created_at=time.time())
        data = encode_record(record)
        owner = store_principal(link.principal)

        def put() -> Awaitable[None]:
            return self._outage.tried(self._store.put(owner, record_key(id), data, FIRST_USE_S))

        try:
            await self._outage.waited(put)
        except ChannelError:
            raise _store_lost() from None
        except Refused as error:
            more = self._refusal_rate.admit()
            if more is not None:
                log.warning("a session cannot be stored: %s%s", error, more)
            if error.reason == "store_full":
                raise overload("no session can be stored now; try again later") from None
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

    async def save(
        self, session: SharedSession, listener: str | None = None
    ) -> SessionRecord | None:
        """Write the record of a session, and notify the other processes. Returns the previous
        record, or None if the session has ended. With a listener, waits for the store. Raises
        503."""
        try:
            if listener is None:
                return await self._save(session, None)
            return await self._outage.waited(lambda: self._save(session, listener))
        except ChannelError:
            raise _store_lost() from None

    async def _save(self, session: SharedSession, listener: str | None) -> SessionRecord | None:
        id, principal = session.id, session.link.principal
        owner, key = store_principal(principal), record_key(id)
        stored, data = session.record, session.data
        ttl_s = self._ttl_s(session)
        try:
            for _ in range(MAX_SWAPS):
                record = merge(stored, session.record, session.current_record())
                if listener is not None:
                    record = replace(record, listener=listener)
                is_changed = record != stored
                number = stored.number + is_changed
                record = replace(record, number=number, renewed_at=time.time())
                after = encode_record(record, data)
                if await self._outage.tried(self._store.swap(owner, key, data, after, ttl_s)):
                    session.use(record, after)
                    session.renewed_at, session.ttl_s = self.shared.clock(), ttl_s
                    if is_changed:
                        await self.broadcast(session, CHANGED)
                    if record.subscriptions != stored.subscriptions:
                        await self._confirm_at_listener(session)
                    return stored
                found = await self._outage.tried(self._store.get(owner, key))
                newer = decode_record(found) if found is not None else None
                if found is None or newer is None:
                    self.end(session, "the session was ended by its client, or has expired")
                    return None
                stored, data = newer, found
        except Refused as error:
            session.note(f"a session cannot be stored: {error}")
        raise overload("the session cannot be stored now; try again later")

    async def _confirm_at_listener(self, session: SharedSession) -> None:
        """Wait until the process that sends the notifications of a session knows its record: an
        update after the response to `resources/subscribe` or `resources/unsubscribe` may happen
        there."""
        listener = session.record.listener
        if listener and not self.is_lost(listener):
            with contextlib.suppress(ChannelError, Refused):  # it reads the record when it is back
                await self.replica.request(listener, CHANGED, self._change_message(session))

    async def relieve(self, replica: str, session: SharedSession) -> bool:
        """Notify the process that had the stream for notifications. Returns whether that process
        responds and has missed no notification."""
        message = self._change_message(session)
        try:
            return await self.replica.request(replica, CHANGED, message, CHECK_TIMEOUT_S) == b"1"
        except (ChannelError, Refused):
            return False

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
        key = record_key(session.id)
        try:
            await self._outage.waited(lambda: self._outage.tried(self._store.delete(owner, key)))
        except (ChannelError, Refused):
            raise _store_lost() from None
        await self.broadcast(session, ENDED)
        self.end(session, "the client ended the session")

    # ------------------------------------------------------------ streams

    async def append(
        self, session: SharedSession, stream: LoggedStream, events: LoggedEvents
    ) -> bool:
        """Append to the log of a stream. Returns whether that succeeded. If not, the events are
        logged when the store is back; until then the stream cannot be resumed elsewhere."""
        owner = store_principal(session.link.principal)
        key, ttl_s = stream_key(session.id, stream.name), self._limits.resume_window_s
        if not self._outage.is_recent:  # otherwise each append would wait for the store's timeout
            work = self._store.append(owner, key, encode_events(events), ttl_s)
            try:
                await self._outage.tried(work)
                return True
            except (ChannelError, Refused) as error:
                log.debug("the events of a stream are not logged: %s", error)
        self._behind.add(stream)
        return False

    async def read(
        self, session: SharedSession, stream: str, after: int
    ) -> list[tuple[int, LoggedEvents]]:
        """The entries in the log of a stream after this one. Raises 503."""
        owner = store_principal(session.link.principal)
        key = stream_key(session.id, stream)
        try:
            found = await self._outage.waited(
                lambda: self._outage.tried(self._store.read(owner, key, after))
            )
        except (ChannelError, Refused):
            raise _store_lost() from None
        entries = [(number, decode_events(entry)) for number, entry in found]
        if any(events is None for _, events in entries):
            raise overload("the log of this stream is from a newer release; try again")
        return [(number, events) for number, events in entries if events is not None]

    async def ask_owner(
        self, kind: str, replica: str, session: SharedSession, stream: str, number: int
    ) -> bool | None:
        """Ask the process of a stream whether new events will follow, and to be notified of them
        (`FOLLOW`). Returns False if none will follow, None without a response. Raises 400 if that
        process has not sent an event with this number."""
        if replica == self.replica.name:
            return False
        try:
            body = session.message(stream, number=number)
            response = await self.replica.probe(replica, kind, body, CHECK_TIMEOUT_S)
        except ReplicaLost as error:
            return False if error.has_ended else None
        except Refused:
            raise overload("too many requests at once; try again later") from None
        if response == b"?":
            raise rules.unknown_event()
        return response == b"1"

    def growth_of(self, session: SharedSession, stream: str) -> asyncio.Event:
        """What is set when the log of a stream has grown."""
        return self._grown.setdefault((session.id, stream), asyncio.Event())

    async def follow(
        self,
        session: SharedSession,
        stream: Stream,
        replica: str,
        last: tuple[int, LoggedEvents],
        grown: asyncio.Event,
        grows: bool | None,
    ) -> None:
        """Put what is added to the log of a stream on our copy of it, until it ends. If the process
        that it belongs to has ended, its requests get an error.

        `last` is the last entry that was read, `grows` what that process said (`ask_owner`).
        """
        read, entry = last
        unanswered = int(grows is None)
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            while not entry.is_last and grows is not False and unanswered < self._max_unanswered:
                # A request that nobody receives fails at once.
                pause_s = started + CHECK_TIMEOUT_S - loop.time() if unanswered else POLL_S
                started = loop.time()
                if not await _is_set(grown, pause_s):
                    grows = await self.ask_owner(CHECK, replica, session, stream.name, 0)
                    unanswered = unanswered + 1 if grows is None else 0
                grown.clear()
                for position, entry in await self.read(session, stream.name, read):
                    read = position
                    check_scopes(entry.scopes, stream.scopes)
                    for number, frame in entry.events:
                        if number > stream.last_number:
                            stream.put_numbered(number, frame)
            if not entry.is_last:
                for raw_id in entry.requests:
                    stream.put_response(session.lost_response(raw_id, OWNER_ENDED))
        except (ChannelError, HttpError):
            log.debug("a stream of another process ends: the store does not respond")
        finally:
            stream.finish()

    # ------------------------------------------------------------ messages to other processes

    async def broadcast(
        self, session: SharedSession, kind: str, frame: Notification | None = None
    ) -> None:
        """Send a message about a session to all other processes; at most once."""
        frames = [encode_frame(frame)] if frame is not None else []
        body = session.message(frames=frames)
        if kind == CHANGED:
            body = self._change_message(session)
        try:
            await self.replica.broadcast(kind, body)
        except (ChannelError, Refused) as error:
            log.warning("%s of a session was not sent to other processes: %s", kind, error)

    async def deliver(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to a process until that process acknowledges it, or has ended. Raises
        503."""
        try:
            await self.replica.request_again(replica, kind, body, self._limits.store_wait_s)
        except ReplicaLost as error:
            if not error.has_ended:
                raise _store_lost() from None
        except Refused:
            raise overload("too many requests at once; try again later") from None

    async def notify(self, replica: str, kind: str, body: bytes) -> None:
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
        self._missed_at = self.shared.clock()

    @property
    def _max_unanswered(self) -> int:
        """The number of unanswered requests after which a process counts as ended."""
        missed_lately = self.shared.clock() - self._missed_at < AFTER_OUTAGE_S
        disturbed = missed_lately or self._outage.was_within(AFTER_OUTAGE_S)
        return 2 * MAX_UNANSWERED if disturbed else MAX_UNANSWERED

    async def _on_changed(self, sender: str, body: bytes) -> bytes:
        message = decode_message(body)
        session = self._copy_of(message)
        if session is None:
            return b"0"
        data: bytes | None = message.record
        if not data:
            session.generation = -1  # until it is read
            try:
                data = await self._get(session.id, session.link.principal)
            except ChannelError:
                return b"0"
        record = decode_record(data) if data is not None else None
        if record is None:
            session.generation = -1
        elif data is not None and record.number > session.record.number:
            session.use(record, data)
        # The message that `relieve` sends.
        return b"1" if session.has_listened else b"0"

    async def _on_ended(self, sender: str, body: bytes) -> None:
        session = self._copy_of(decode_message(body))
        if session is not None:
            self.end(session, "the client ended the session")

    async def _on_message(self, sender: str, body: bytes) -> None:
        message = decode_message(body)
        session = self._copy_of(message)
        if session is not None:
            for data in message.frames:
                frame: Frame | Batch = decode(data)
                if isinstance(frame, Notification | ResultResponse | ErrorResponse):
                    session.take_here(frame)

    async def _on_notify(self, sender: str, body: bytes) -> None:
        message = decode_message(body)
        session = self._copy_of(message)
        if session is not None:
            session.take_over(message)

    async def _on_follow(self, sender: str, body: bytes) -> bytes:
        message = decode_message(body)
        session = self._copy_of(message)
        if session is None:
            return b"0"
        return await session.follow(message.name, message.number, sender)

    async def _on_check(self, sender: str, body: bytes) -> bytes:
        message = decode_message(body)
        session = self._copy_of(message)
        return b"0" if session is None else await session.follow(message.name, message.number)

    async def _on_grown(self, sender: str, body: bytes) -> None:
        message = decode_message(body)
        event = self._grown.get((message.session, message.name))
        if event is not None:
            event.set()

    # ------------------------------------------------------------ timeouts

    def _tick(self, now: float) -> bool:
        if self._by_id:
            self._check_lease(now)
        if self._maintaining is None and (self._unsaved or self._listeners_lost or self._behind):
            self._maintaining = self.shared.spawn(self._maintain())
        return super()._tick(now)

    def _check_lease(self, now: float) -> None:
        """Without a lease no message arrives here that a session has ended: after a
        while each copy is read before it is used."""
        if self.replica.holds_lease:
            self._without_lease_at = None
        elif self._without_lease_at is None:
            self._without_lease_at = now
        elif now - self._without_lease_at > WITHOUT_STORE_S:
            self.generation += 1
            self._outage.note(self._without_lease_at)

    async def _maintain(self) -> None:
        """Write what could not be written before, and see which processes have ended."""
        try:
            unsaved, self._unsaved = self._unsaved, {}
            for session in unsaved.values():
                if session.id in self._by_id:
                    await self.save_changes(session)
            for stream in list(self._behind):
                self._behind.discard(stream)
                if not await stream.catch_up():  # the store is unavailable or full; try again later
                    break
            listeners = {s.record.listener for s in self if isinstance(s, SharedSession)}
            for replica in list(self._listeners_lost):
                if replica not in listeners:
                    del self._listeners_lost[replica]
                    continue
                is_alive = await self.replica.is_alive(replica)
                was_lost = self._listeners_lost.get(replica, False)
                self._listeners_lost[replica] = not is_alive
                if was_lost and is_alive:
                    self._hand_over_to(replica)
        except ChannelError:
            log.debug("the store does not respond")
        finally:
            self._maintaining = None

    def _hand_over_to(self, replica: str) -> None:
        """A process is back whose lease had lapsed: what waits here is sent there."""
        for session in self:
            if isinstance(session, SharedSession) and session.record.listener == replica:
                session.hand_over()

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
            if not await self._is_renewed_elsewhere(session):
                await self.save(session)
        except (HttpError, ChannelError, Refused) as error:
            log.debug("the record of a session was not renewed: %s", error)

    async def _is_renewed_elsewhere(self, session: SharedSession) -> bool:
        """Whether another process that serves the session has renewed its record lately; a read
        costs much less than a write."""
        data = await self._get(session.id, session.link.principal)
        record = decode_record(data) if data is not None else None
        if data is None or record is None or data == session.data:
            return False
        session.use(record, data)
        age_s = time.time() - record.renewed_at
        if not -MAX_CLOCK_SKEW_S < age_s < session.ttl_s / 4:
            return False
        session.renewed_at -= max(age_s, 0.0)
        return True


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether an event is set within this time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


def _store_lost() -> HttpError:
    return overload("the store of the sessions does not respond; try again later")
