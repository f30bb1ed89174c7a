"""HTTP with SSE, the transport of the first revision; to be deleted with 2024-11-05.

A GET opens a stream whose first event says where to post; everything that the server says comes
as events of this stream. The stream is the session: where it ends, all ends.

Rules: one stream, one client, one principal. What is unread is bounded, and then the stream ends.
"""

import asyncio
import secrets
from urllib.parse import parse_qs

from colonnade.errors import ConnectionLost
from colonnade.ports import Service, Turn
from colonnade.protocol.http import rules
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.jsonrpc import Batch, Request, decode
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import Link
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import Revisions
from colonnade.protocol.types import NotificationParams
from colonnade.transport.duplex import Duplex
from colonnade.transport.http_server.request import (
    SMALL_BODY_BYTES,
    Limits,
    Visit,
    overload,
    unexpected,
)
from colonnade.transport.http_server.session import Shared
from colonnade.transport.http_server.streams import QUEUE_BYTES, SubscribedUris

SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"
# 192 bits: the name is all that leads to somebody's stream.
ID_BYTES = 24
# Our own query has one; proxies may add some.
MAX_FIELDS = 10
# What still runs when its stream is gone may clean up for so long.
ENDING_S = 5.0
# A reader that leaves this much unread is cut; one message may be larger by itself.
MAX_UNREAD_BYTES = 1024 * 1024


class Channel:
    """Events on one stream, for a `Duplex`; the task of the GET writes them."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._unread: list[bytes] = []
        self._size = 0
        self._lost = ""
        self._over = False
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def write(self, frame: bytes) -> None:
        """One message, kept until the reader takes it."""
        if self._lost or self._over:
            return
        if self._size > MAX_UNREAD_BYTES:
            self._lost = "the client does not read"
            self._visit.leave(self._lost)
        else:
            self._unread.append(encode_event(frame, event="message"))
            self._size += len(frame)
        self._wake()

    async def drain(self) -> None:
        """Wait while much is unread."""
        while self._size > QUEUE_BYTES and not self._lost:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)
        if self._lost:
            raise ConnectionLost(self._lost)

    def finish(self) -> None:
        """Nothing more comes."""
        self._over = True
        self._wake()

    def lose(self, why: str) -> None:
        """Nobody reads it any more."""
        self._lost = self._lost or why
        self._make_room()

    async def serve(self) -> None:
        """Write what comes until the end. Raises `ConnectionLost` where nobody reads."""
        visit = self._visit
        while True:
            if self._lost:
                raise ConnectionLost(self._lost)
            if self._unread:
                chunk = b"".join(self._unread)
                self._unread.clear()
                self._size = 0
                await visit.write(chunk)
                self._make_room()
            elif self._over:
                await visit.end()
                return
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None


class SseSession:
    """One client on one stream."""

    def __init__(
        self, service: Service, link: Link, visit: Visit, calls: set[Turn], shared: Shared
    ) -> None:
        self.channel: Channel = Channel(visit)
        self._calls = calls
        self._bodies = shared.bodies
        # What the credentials of the stream's reader allow.
        self._scopes = visit.scopes
        self.link = link
        self._service = service
        self._draining = False
        self._running = 0
        self.duplex: Duplex = Duplex(link, self.channel, self._answer, told=self._told)
        self.duplex.subscriptions = SubscribedUris(shared.subscribed, link.principal)
        self._unwatch = service.watch(self._hear)

    def _hear(self, method: str, params: NotificationParams) -> None:
        uri: str | None = getattr(params, "uri", None)
        if uri is None or self._service.may_hear(uri, self._scopes):
            self.duplex.news(method, params)

    async def _answer(self, turn: Turn) -> bytes | None:
        size = len(turn.exchange.request.raw)
        if size <= SMALL_BODY_BYTES:
            return await self._work(turn)
        # Its POST is over already, so that its body is counted here.
        principal = self.link.principal
        if not self._bodies.reserve(principal, size):
            return turn.exchange.fail(overload("too many large requests at once; try again later"))
        try:
            return await self._work(turn)
        finally:
            self._bodies.release(principal, size)

    async def _work(self, turn: Turn) -> bytes | None:
        self._running += 1
        self._calls.add(turn)
        try:
            data = await self._service.answer(turn)
        except ConnectionLost:
            data = turn.exchange.abandon()
        except Exception as error:
            data = turn.exchange.fail(unexpected(error))
        finally:
            self._running -= 1
            self._calls.discard(turn)
        if data is not None:
            self.channel.write(data)
        if self._draining and not self._running:
            self.channel.finish()
        return None

    def _told(self, told: NotificationReceived) -> None:
        self._service.told(told, self.link.peer)

    def drain(self) -> None:
        """End the stream as soon as nothing runs."""
        self._draining = True
        if not self._running:
            self.channel.finish()

    def close(self, why: str) -> None:
        """The stream is gone, and everything with it."""
        self._unwatch()
        self.channel.lose(why)
        self.duplex.close(why)
        self.duplex.subscriptions.clear()


class SseSessions:
    """Every stream of this kind, by the name that its endpoint has."""

    def __init__(
        self, service: Service, limits: Limits, messages_path: str, shared: Shared
    ) -> None:
        self._service = service
        self._shared = shared
        self._limits = limits
        self._messages_path = messages_path
        self._by_id: dict[str, SseSession] = {}
        # What runs on all streams together: the POST that asked for it is over long before.
        self._calls: set[Turn] = set()

    def __len__(self) -> int:
        return len(self._by_id)

    async def listen(self, visit: Visit, principal: str, root: str) -> None:
        """A GET: the stream, from its endpoint event to its end. Raises `Refusal`."""
        self._check_room(principal)
        accepts = Revisions(reversed(self._service.accepts.handshakes))
        service = self._service
        link = Link(Side.SERVER, service.identity, accepts, principal, lambda: service.identity)
        id = secrets.token_urlsafe(ID_BYTES)
        session = self._by_id[id] = SseSession(service, link, visit, self._calls, self._shared)
        try:
            # R0050: a path alone, so it is of the same origin whatever stands in between.
            endpoint = f"{root}{self._messages_path}?session_id={id}"
            await visit.open(encode_event(endpoint.encode(), event="endpoint"))
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
            raise overload("too many streams; close one that you no longer need")

    async def post(self, visit: Visit, principal: str, query: bytes) -> None:
        """One message for the stream that the query names. Raises `Fault`."""
        session = self._named(query)
        rules.check_owner(session.link.principal if session else None, principal)
        body = await visit.body()
        if (
            isinstance(decode(body), Request | Batch)
            and len(self._calls) >= self._limits.max_concurrent_requests
        ):
            raise overload("too many requests at once; try again later")
        assert session is not None
        session.link.scopes = visit.scopes
        session.duplex.receive(body)
        await visit.reply(rules.ACCEPTED, b"")

    def _named(self, query: bytes) -> SseSession | None:
        """The stream that a query names, if it names one."""
        try:
            names = parse_qs(query.decode("latin-1"), max_num_fields=MAX_FIELDS).get(
                "session_id", []
            )
        except ValueError:  # more than that
            return None
        return self._by_id.get(names[0]) if len(names) == 1 else None

    def drain(self) -> None:
        """End every stream as soon as nothing runs on it."""
        for session in list(self._by_id.values()):
            session.drain()
