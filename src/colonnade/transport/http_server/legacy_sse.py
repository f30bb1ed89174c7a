"""The HTTP+SSE server transport of 2024-11-05; delete with that revision.

A GET opens an event stream whose first event has the URL for POSTs; every message of the server is
an event of this stream. The stream is the session and ends with it.

Rules: one stream, one client, one principal. Unread events are bounded; beyond that the stream
ends.
"""

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec
from msgspec.structs import replace

from colonnade.errors import ChannelError, ConnectionLost, Fault, Refused
from colonnade.ports import RequestContext, Service
from colonnade.protocol.http import rules
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.jsonrpc import Batch, Request, decode
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, callers_of
from colonnade.protocol.revision import Revisions
from colonnade.protocol.types import NotificationParams
from colonnade.transport.duplex import Duplex
from colonnade.transport.http_server.request import (
    SMALL_BODY_BYTES,
    IncomingRequest,
    Limits,
    overload,
    unexpected,
)
from colonnade.transport.http_server.sessions.session import SessionResources
from colonnade.transport.http_server.sessions.streams import QUEUE_BYTES, SubscribedUris

if TYPE_CHECKING:  # most servers have no replicas
    from colonnade.replicas.replica import Replica

log: logging.Logger = logging.getLogger("colonnade.transport")

SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"
# 192 bits: the id is all that a POST needs to reach a stream.
ID_BYTES = 24
# Our own query has one field; proxies may add some.
MAX_FIELDS = 10
# How long cancelled calls may clean up after their stream has ended.
ENDING_S = 5.0
# A client that leaves this much unread is disconnected; one message may be larger by itself.
MAX_UNREAD_BYTES = 1024 * 1024

# A POST that another process received, and the response to it.
POST = "sse-post"
TAKEN, UNKNOWN, BUSY = b"taken", b"unknown", b"busy"


class ForwardedPost(msgspec.Struct, frozen=True, array_like=True):
    """The body of a POST for a stream of another process."""

    session: str
    principal: str
    scopes: frozenset[str] | None
    body: bytes


class SseChannel:
    """The event stream as a channel of a `Duplex`; the task of the GET writes the events."""

    def __init__(self, incoming: IncomingRequest) -> None:
        self._incoming = incoming
        self._unread: list[bytes] = []
        self._size = 0
        self._lost = ""
        self._over = False
        self._changed: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def write(self, frame: bytes) -> None:
        """Add a message, which is kept until the client reads it."""
        if self._lost or self._over:
            return
        if self._size > MAX_UNREAD_BYTES:
            self._lost = "the client does not read"
            self._incoming.abort(self._lost)
        else:
            self._unread.append(encode_event(frame, event="message"))
            self._size += len(frame)
        self._wake()

    async def drain(self) -> None:
        """Wait while many events are unread."""
        while self._size > QUEUE_BYTES and not self._lost:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)
        if self._lost:
            raise ConnectionLost(self._lost)

    def finish(self) -> None:
        """End it: no more messages come."""
        self._over = True
        self._wake()

    def lose(self, why: str) -> None:
        """The client has disconnected."""
        self._lost = self._lost or why
        self._wake_writers()

    async def serve(self) -> None:
        """Write events until the end. Raises `ConnectionLost` if the client has disconnected."""
        incoming = self._incoming
        while True:
            if self._lost:
                raise ConnectionLost(self._lost)
            if self._unread:
                chunk = b"".join(self._unread)
                self._unread.clear()
                self._size = 0
                await incoming.write(chunk)
                self._wake_writers()
            elif self._over:
                await incoming.end_stream()
                return
            else:
                self._changed = asyncio.get_running_loop().create_future()
                await self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _wake_writers(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None


class SseSession:
    """One client with its stream."""

    def __init__(
        self,
        service: Service,
        link: DuplexLink,
        incoming: IncomingRequest,
        calls: set[RequestContext],
        shared: SessionResources,
    ) -> None:
        self.channel: SseChannel = SseChannel(incoming)
        self._calls = calls
        self._bodies = shared.bodies
        # The scopes of the client that opened the stream.
        self._scopes = incoming.scopes
        self.link = link
        self._service = service
        self._draining = False
        self._running = 0
        self.duplex: Duplex = Duplex(
            link,
            self.channel,
            self._respond,
            on_notification=self._on_notification,
            network=incoming.network_in(""),
            telemetry=service.telemetry,
        )
        self.duplex.subscriptions = SubscribedUris(shared.subscribed, link.principal)
        self._unwatch = service.watch_changes(self._notify, link.principal)

    def _notify(self, method: str, params: NotificationParams) -> None:
        uri: str | None = getattr(params, "uri", None)
        if uri is None or self._service.may_subscribe(uri, self._scopes):
            self.duplex.notify_change(method, params)

    async def _respond(self, request: RequestContext) -> bytes | None:
        size = len(request.exchange.request.params)
        if size <= SMALL_BODY_BYTES:
            return await self._handle(request)
        # Its POST is over already, so its body is counted here.
        principal = self.link.principal
        if not self._bodies.reserve(principal, size):
            return request.exchange.fail(
                overload("too many large requests at once; try again later")
            )
        try:
            return await self._handle(request)
        finally:
            self._bodies.release(principal, size)

    async def _handle(self, request: RequestContext) -> bytes | None:
        self._running += 1
        self._calls.add(request)
        try:
            data = await self._service.respond(request)
        except ConnectionLost:
            data = request.exchange.abandon()
        except Exception as error:
            data = request.exchange.fail(unexpected(error))
        finally:
            self._running -= 1
            self._calls.discard(request)
        if data is not None:
            self.channel.write(data)
        if self._draining and not self._running:
            self.channel.finish()
        return None

    def _on_notification(self, notification: NotificationReceived) -> None:
        self._service.on_notification(replace(notification, owner=self.duplex), self.link.peer)

    def drain(self) -> None:
        """End the stream as soon as no call runs."""
        self._draining = True
        if not self._running:
            self.channel.finish()

    def close(self, why: str) -> None:
        """The stream has ended: cancel all of its calls."""
        self._unwatch()
        self.channel.lose(why)
        self.duplex.close(why)
        self.duplex.subscriptions.clear()


class SseSessions:
    """All sessions of this transport, by the id in their endpoint URL."""

    def __init__(
        self, service: Service, limits: Limits, messages_path: str, shared: SessionResources
    ) -> None:
        self._service = service
        self._shared = shared
        self._limits = limits
        self._messages_path = messages_path
        self._by_id: dict[str, SseSession] = {}
        # The running calls of all streams: their POSTs are over long before.
        self._calls: set[RequestContext] = set()
        # This process, if there are others that receive POSTs for its streams.
        self._replica: Replica | None = None

    def __len__(self) -> int:
        return len(self._by_id)

    def join(self, replica: "Replica") -> None:
        """Take POSTs from other processes, before this replica is started."""
        self._replica = replica
        replica.handle(POST, self._on_post)

    async def listen(self, incoming: IncomingRequest, principal: str, root: str) -> None:
        """A GET: serve a stream, from its endpoint event to its end. Raises `HttpError`."""
        self._check_room(principal)
        accepts = Revisions(reversed(self._service.accepts.handshakes))
        service = self._service

        def identity() -> Identity:
            return service.identity.for_callers(callers_of(principal))

        link = DuplexLink(Side.SERVER, identity(), accepts, principal, identity)
        id = secrets.token_urlsafe(ID_BYTES)
        if self._replica is not None:
            id = f"{self._replica.name}.{id}"
        session = self._by_id[id] = SseSession(service, link, incoming, self._calls, self._shared)
        try:
            # R0050: a path alone, so it has the same origin behind every proxy.
            endpoint = f"{root}{self._messages_path}?session_id={id}"
            await incoming.start_stream(encode_event(endpoint.encode(), event="endpoint"))
            await session.channel.serve()
        finally:
            del self._by_id[id]
            session.close("the stream ended")
            await session.duplex.ended(ENDING_S)

    def _check_room(self, principal: str) -> None:
        mine = sum(s.link.principal == principal for s in self._by_id.values())
        if len(self._by_id) >= self._limits.max_sessions or (
            principal and mine >= self._limits.max_sessions_per_principal
        ):
            raise overload("too many streams; close one that is no longer needed")

    async def post(self, incoming: IncomingRequest, principal: str, query: bytes) -> None:
        """A POST: take one message for the stream of the query. Raises `Fault`."""
        id = _session_id(query)
        session = self._by_id.get(id)
        if session is None and self._replica is not None:
            body = await incoming.body()
            decode(body)
            await self._post_elsewhere(self._replica, id, incoming, body)
        else:
            rules.check_owner(session.link.principal if session else None, principal)
            body = await incoming.body()
            self._take(id, body, incoming.scopes)
        await incoming.respond(rules.ACCEPTED, b"")

    def _take(self, id: str, body: bytes, scopes: frozenset[str] | None) -> None:
        """Take a message for a stream. Raises `Fault`."""
        if (
            isinstance(decode(body), Request | Batch)
            and len(self._calls) >= self._limits.max_concurrent_requests
        ):
            raise overload("too many requests at once; try again later")
        session = self._by_id[id]
        session.link.scopes = scopes
        session.duplex.receive(body)

    # ------------------------------------------------------------ other processes

    async def _post_elsewhere(
        self, replica: "Replica", id: str, incoming: IncomingRequest, body: bytes
    ) -> None:
        """Pass a message to the process that has the stream. Raises `HttpError`."""
        from colonnade.replicas.replica import ReplicaLost  # on use: most servers have none

        message = ForwardedPost(id, incoming.principal, incoming.scopes, body)
        try:
            taken = await replica.request_again(
                id.partition(".")[0],
                POST,
                msgspec.msgpack.encode(message),
                self._limits.store_wait_s,
                once=True,
            )
        except ReplicaLost as error:
            is_lost = error.has_ended or error.effect_unknown
            if is_lost and not isinstance(error.__cause__, ChannelError):  # not the store
                raise rules.unknown_session() from None
            raise overload("the other processes cannot be reached; try again later") from None
        except Refused as error:
            log.debug("a message was not passed to another process: %s", error)
            taken = BUSY
        if taken == BUSY:
            raise overload("too many requests at once; try again later")
        if taken != TAKEN:
            raise rules.unknown_session()

    async def _on_post(self, sender: str, body: bytes) -> bytes:
        message = msgspec.msgpack.decode(body, type=ForwardedPost)
        session = self._by_id.get(message.session)
        if session is None or session.link.principal != message.principal:
            return UNKNOWN
        try:
            self._take(message.session, message.body, message.scopes)
        except Fault:
            return BUSY
        return TAKEN

    def drain(self) -> None:
        """End every stream as soon as no call runs on it."""
        for session in list(self._by_id.values()):
            session.drain()


def _session_id(query: bytes) -> str:
    """The session id of a query; empty if it names none."""
    try:
        names = parse_qs(query.decode("latin-1"), max_num_fields=MAX_FIELDS).get("session_id", [])
    except ValueError:  # more than that
        return ""
    return names[0] if len(names) == 1 else ""
