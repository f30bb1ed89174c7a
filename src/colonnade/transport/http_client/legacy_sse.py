"""HTTP with SSE as a client speaks it, the transport of the first revision.

To be deleted with 2024-11-05. A GET opens a stream whose first event says where to POST; whatever
the server says comes on this stream, and where it ends, all ends.

    stream = await SseStream.open(pool, url)
    client = Client(stream.carry, ...)

Rules: messages leave one after the other, in the order in which they were written, as long as the
server takes each of them at once. Where to POST is a place of the same origin. Every wait ends.
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
from colonnade.ports import Credentials, Hearer
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import EVENTS_TYPE
from colonnade.protocol.http.sse import EventStreamParser, ServerSentEvent
from colonnade.protocol.jsonrpc import Request, RequestId, decode
from colonnade.protocol.link.link import Link
from colonnade.transport.duplex import Held
from colonnade.transport.http_client.endpoint import Endpoint, Headers
from colonnade.transport.http_client.pool import Answer, HttpPool

log: logging.Logger = logging.getLogger("colonnade.transport")

# To say where to POST: it is the first thing that such a server says, and is known beforehand.
ENDPOINT_S = 10.0
# For a server to take a message.
POST_S = 30.0
# A server that answers a POST only when its work is done may ask us something before that; what
# comes next does not wait for it any longer than this.
ORDER_S = 1.0
# What is not sent yet: as much as the largest message, and above the other one senders wait.
MAX_UNSENT_BYTES = 64 * 1024 * 1024
DRAIN_BYTES = 1024 * 1024
# For handlers that were stopped to clean up.
CLEAN_UP_S = 5.0


class SseStream:
    """The stream of one conversation, and the way back: a line."""

    def __init__(self, endpoint: Endpoint, answer: Answer, parser: EventStreamParser) -> None:
        self._endpoint = endpoint
        self._answer = answer
        self._parser = parser
        self._post_to = ""
        self._early: list[ServerSentEvent] = []
        self._conversation: SseConversation | None = None
        self._hearer: Hearer | None = None
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
        """Open a stream, and wait until the server has said where to POST.

        Raises `ChannelError` where it does not, `RemoteProtocolError` for what is no such stream
        or leads elsewhere, `AuthError` where it wants to know who we are.
        """
        seconds = min(timeout_s, ENDPOINT_S)
        limits: list[asyncio.Timeout] = []
        endpoint = Endpoint(pool, url, headers, credentials, lambda: _standing_still(limits))
        try:
            async with asyncio.timeout(seconds) as limit:
                limits.append(limit)
                answer = await endpoint.send("GET", [("Accept", EVENTS_TYPE)])
                try:
                    stream = cls(endpoint, answer, EventStreamParser())
                    await stream._begin()
                except BaseException:
                    answer.close()
                    raise
                limits.clear()
        except TimeoutError:
            words = f"{endpoint.where} did not say where to POST within {seconds:g} s"
            raise TimedOut(words, server=endpoint.where) from None
        return stream

    async def _begin(self) -> None:
        answer, where = self._answer, self._endpoint.where
        if answer.status != rules.OK or answer.media != EVENTS_TYPE:
            refused = await self._endpoint.refused(answer) if answer.status != rules.OK else b""
            raise self._endpoint.refusal("GET", answer, refused)
        self._endpoint.check_plain(answer)
        while data := await answer.read():
            events = self._parser.feed(data)
            for number, event in enumerate(events):
                if event.event == "endpoint":
                    self._post_to = self._endpoint.within(event.text().strip())  # R0050
                    self._early = events[number + 1 :]
                    return
        raise ConnectionLost(f"{where}: the stream ended before it said where to POST")

    def carry(self, link: Link, hearer: Hearer) -> Held:
        """Carry a client's conversation, the only one."""
        if self._conversation is not None:
            raise LocalProtocolError("this stream has its conversation already")
        self._hearer = hearer
        self._conversation = SseConversation(link, self, hearer, _now)
        self._spawn(self._read())
        return self._conversation

    # ------------------------------------------------------------ out

    def write(self, frame: bytes) -> None:
        """Send a message on its way."""
        if self._over is not None:
            return
        self._unsent.append(frame)
        self._size += len(frame)
        if self._size > MAX_UNSENT_BYTES + len(frame):
            where = self._endpoint.where
            self._end(f"{where} does not take what it is sent", server=where)
        elif self._writer is None:
            self._writer = self._spawn(self._send())

    async def drain(self) -> None:
        """Wait while much is not sent yet."""
        while self._size > DRAIN_BYTES and self._over is None:
            self._room.clear()
            await self._room.wait()
        if self._over is not None:
            raise ConnectionLost(self._over)

    async def _send(self) -> None:
        """POST what waits, for as long as there is any."""
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
                answer = await self._endpoint.send("POST", lines, frame, self._post_to)  # R0051
                async with answer:
                    if answer.status < 300:
                        answer.linger()
                        return
                    body = await self._endpoint.refused(answer)
            error = self._endpoint.objection("a message", answer, body)
        except TimeoutError:
            words = f"{self._endpoint.where} took no message within {POST_S:g} s"
            error = TimedOut(words, server=self._endpoint.where)
        except ColonnadeError as failed:
            error = failed
        finally:
            self._size -= len(frame)
            self._room.set()
        self._failed(conversation, frame, error)

    def _failed(self, conversation: "SseConversation", frame: bytes, error: ColonnadeError) -> None:
        """Whoever waits for the answer to this learns that there will be none."""
        message = decode(frame)
        if isinstance(message, Request):
            conversation.fail(message.id, message.method, error)
        else:
            log.warning("%s did not take a message: %s", self._endpoint.where, error)

    # ------------------------------------------------------------ in

    async def _read(self) -> None:
        why = f"{self._endpoint.where}: the stream ended"
        try:
            self._hear(self._early)
            while data := await self._answer.read():
                self._hear(self._parser.feed(data))
        except (ConnectionLost, RemoteProtocolError) as error:
            why = f"{why}: {error}" if isinstance(error, Fault) else str(error)
        self._end(why)

    def _hear(self, events: Iterable[ServerSentEvent]) -> None:
        for event in events:
            if event.event == "message" and event.data and self._conversation is not None:
                self._conversation.receive(event.data)

    # ------------------------------------------------------------ the end

    async def close(self, why: str = "the connection was closed") -> None:
        """End it, and wait until nothing of it is left; at any time, and twice."""
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
        self._answer.close()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        if self._conversation is not None:
            self._conversation.close(why, server=server)
        if self._hearer is not None:
            self._hearer.gone()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class SseConversation(Held):
    """One client on one stream."""

    def fail(self, id: RequestId, method: str, error: ColonnadeError) -> None:
        """A request was not taken, and will not be answered."""
        if id in self._waiting:
            self._settle(id, error)
            if method == "initialize":
                self.close(str(error), server=error.server)
            else:
                self.link.cancel(id)


@contextmanager
def _standing_still(limits: "list[asyncio.Timeout]") -> Generator[None, None, None]:
    """Nobody runs out of time while somebody logs in, which has an end of its own."""
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
