"""The HTTP+SSE client transport of 2024-11-05; delete with that revision.

A GET opens an event stream whose first event has the URL for POSTs; every message of the server is
an event of this stream, and the connection ends with it.

    stream = await SseStream.open(pool, url)
    client = Client(stream.open_conversation, ...)

Rules: messages are sent one after the other, in the order in which they were written, as long as
the server accepts each of them at once. The URL for POSTs has the same origin. Every wait has a
timeout.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from colonnade.errors import (
    ColonnadeError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.ports import ConnectionEvents, Credentials
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import EVENTS_TYPE
from colonnade.protocol.http.sse import EventStreamParser, ServerSentEvent
from colonnade.protocol.jsonrpc import Request, RequestId, decode
from colonnade.protocol.link.link import DuplexLink
from colonnade.transport.duplex import ClientDuplex
from colonnade.transport.http_client.endpoint import Headers, HttpEndpoint, network_of
from colonnade.transport.http_client.pool import ClientResponse, HttpPool

log: logging.Logger = logging.getLogger("colonnade.transport")

# For the endpoint event: it is the first one, and the server knows it beforehand.
ENDPOINT_S = 10.0
# For a server to accept a message.
POST_S = 30.0
# A server that responds to a POST only when its work is done may send a request before that; the
# next message does not wait for it any longer than this.
ORDER_S = 1.0
# Of unsent messages: as much as the largest message, and above the other one senders wait.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
DRAIN_BYTES = 1024 * 1024
# For cancelled handlers to clean up.
CLEAN_UP_S = 5.0


class SseStream:
    """The event stream of one conversation, and its POSTs."""

    def __init__(
        self, endpoint: HttpEndpoint, response: ClientResponse, parser: EventStreamParser
    ) -> None:
        self._endpoint = endpoint
        self._response = response
        self._parser = parser
        self._post_to = ""
        self._early: list[ServerSentEvent] = []
        self._conversation: SseConversation | None = None
        self._events: ConnectionEvents | None = None
        self._unsent: deque[bytes] = deque()
        self._size = 0
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writer: asyncio.Task[None] | None = None
        self._over: str | None = None

    @classmethod
    async def open(
        cls,
        pool: HttpPool,
        url: str,
        *,
        headers: Headers = (),
        timeout_s: float = ENDPOINT_S,
        credentials: Credentials | None = None,
    ) -> "SseStream":
        """Open a stream, and wait for its endpoint event.

        Raises `ChannelError` if there is none, `RemoteProtocolError` for another kind of response
        or an endpoint of another origin, `AuthError` if credentials are required.
        """
        seconds = min(timeout_s, ENDPOINT_S)
        limits: list[asyncio.Timeout] = []
        endpoint = HttpEndpoint(pool, url, headers, credentials, lambda: _paused(limits))
        try:
            async with asyncio.timeout(seconds) as limit:
                limits.append(limit)
                response = await endpoint.send("GET", [("Accept", EVENTS_TYPE)])
                try:
                    stream = cls(endpoint, response, EventStreamParser())
                    await stream._begin()
                except BaseException:
                    response.close()
                    raise
                limits.clear()
        except TimeoutError:
            words = f"{endpoint.where} sent no endpoint event within {seconds:g} s"
            raise TimedOut(words, server=endpoint.where) from None
        return stream

    async def _begin(self) -> None:
        response, where = self._response, self._endpoint.where
        if response.status != rules.OK or response.media != EVENTS_TYPE:
            refused = (
                await self._endpoint.read_refusal(response) if response.status != rules.OK else b""
            )
            raise self._endpoint.refusal("GET", response, refused)
        self._endpoint.check_plain(response)
        while data := await response.read():
            events = self._parser.feed(data)
            for number, event in enumerate(events):
                if event.event == "endpoint":
                    self._post_to = self._endpoint.within(event.text().strip())  # R0050
                    self._early = events[number + 1 :]
                    return
        raise ConnectionLost(f"{where}: the stream ended before its endpoint event")

    def open_conversation(self, link: DuplexLink, events: ConnectionEvents) -> ClientDuplex:
        """Start the conversation of a client, the only one."""
        if self._conversation is not None:
            raise LocalProtocolError("this stream already has a conversation")
        self._events = events
        self._conversation = SseConversation(
            link, self, events, _now, network_of(self._endpoint.url)
        )
        self._spawn(self._read())
        return self._conversation

    # ------------------------------------------------------------ sending

    def write(self, frame: bytes) -> None:
        """Queue a message."""
        if self._over is not None:
            return
        self._unsent.append(frame)
        self._size += len(frame)
        if self._size > MAX_UNSENT_BYTES + len(frame):
            where = self._endpoint.where
            self._end(f"{where} does not accept messages", server=where)
        elif self._writer is None:
            self._writer = self._spawn(self._send())

    async def drain(self) -> None:
        """Wait while many messages are unsent."""
        while self._size > DRAIN_BYTES and self._over is None:
            self._room.clear()
            await self._room.wait()
        if self._over is not None:
            raise ConnectionLost(self._over)

    async def _send(self) -> None:
        """POST the queued messages."""
        try:
            while self._unsent:
                post = self._spawn(self._post(self._unsent.popleft()))
                await asyncio.wait([post], timeout=ORDER_S)
        finally:
            self._writer = None

    async def _post(self, frame: bytes) -> None:
        conversation = self._conversation
        assert conversation is not None
        peer = conversation.link.peer
        lines = rules.headers_for_post(peer.revision if peer is not None else None, None)
        try:
            async with asyncio.timeout(POST_S):
                response = await self._endpoint.send("POST", lines, frame, self._post_to)  # R0051
                async with response:
                    if response.status < 300:
                        response.linger()
                        return
                    body = await self._endpoint.read_refusal(response)
            error = self._endpoint.message_error("a message", response, body)
        except TimeoutError:
            words = f"{self._endpoint.where} accepted no message within {POST_S:g} s"
            error = TimedOut(words, server=self._endpoint.where)
        except ColonnadeError as failed:
            error = failed
        finally:
            self._size -= len(frame)
            self._room.set()
        self._failed(conversation, frame, error)

    def _failed(self, conversation: "SseConversation", frame: bytes, error: ColonnadeError) -> None:
        """Fail the request that was not accepted."""
        message = decode(frame)
        if isinstance(message, Request):
            conversation.fail(message.id, message.method, error)
        else:
            log.warning("%s did not accept a message: %s", self._endpoint.where, error)

    # ------------------------------------------------------------ receiving

    async def _read(self) -> None:
        why = f"{self._endpoint.where}: the stream ended"
        try:
            self._receive(self._early)
            while data := await self._response.read():
                self._receive(self._parser.feed(data))
        except (ConnectionLost, RemoteProtocolError) as error:
            why = f"{why}: {error}" if isinstance(error, Fault) else str(error)
        self._end(why)

    def _receive(self, events: Iterable[ServerSentEvent]) -> None:
        for event in events:
            if event.event == "message" and event.data and self._conversation is not None:
                self._conversation.receive(event.data)

    # ------------------------------------------------------------ closing

    async def close(self, why: str = "the connection was closed") -> None:
        """Close it, and wait for its tasks; may be called twice."""
        self._end(why)
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=CLEAN_UP_S)
        if self._conversation is not None:
            await self._conversation.ended(CLEAN_UP_S)

    def _end(self, why: str, *, server: str | None = None) -> None:
        if self._over is not None:
            return
        self._over = why
        self._unsent.clear()
        self._room.set()
        self._response.close()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        if self._conversation is not None:
            self._conversation.close(why, server=server)
        if self._events is not None:
            self._events.on_closed()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class SseConversation(ClientDuplex):
    """One client on one stream."""

    def fail(self, id: RequestId, method: str, error: ColonnadeError) -> None:
        """A request was not accepted by the server."""
        if id in self._waiting:
            self._settle(id, error)
            if method == "initialize":
                self.close(str(error), server=error.server)
            else:
                self.link.cancel(id)


@contextmanager
def _paused(limits: "list[asyncio.Timeout]") -> Generator[None, None, None]:
    """Pause these timeouts while a user logs in, which has a timeout of its own."""
    ends = [(limit, limit.when()) for limit in limits]
    began = _now()
    for limit, _ in ends:
        limit.reschedule(None)
    try:
        yield
    finally:
        for limit, when in ends:
            if when is not None and not limit.expired():
                limit.reschedule(when + _now() - began)


def _now() -> float:
    return asyncio.get_running_loop().time()
