"""One session over HTTP, for the revisions that have them; to be deleted with 2025-11-25.

A session is a `Link` and its streams. Each POST with a request has a stream of its own: what its
handlers report, ask and answer goes there and nowhere else. News that belongs to no request goes
to the stream of a GET. A request is worked on in a task that belongs to the session, so a client
that loses its connection loses nothing: it comes back for the rest.

Rules: each message is on one stream. What runs is answered, whatever ends the session.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine

from msgspec import Raw

from portico.errors import ConnectionLost, Fault, FaultKind, PorticoError
from portico.ports import Service
from portico.protocol import httprules as rules
from portico.protocol import types as t
from portico.protocol.events import Answered, Call, Cancelled, Dropped, Event, Told
from portico.protocol.events import Send as Sending
from portico.protocol.exchange import Exchange
from portico.protocol.handshake import NOT_INITIALIZED, Phase
from portico.protocol.httprules_gate import NOT_FOUND
from portico.protocol.jsonrpc import (
    Batch,
    Failure,
    Head,
    Notification,
    Reply,
    Request,
    RequestId,
)
from portico.protocol.link import Link
from portico.protocol.negotiation import Peer
from portico.protocol.questions import Question
from portico.protocol.sse import write
from portico.transport.http_streams import QUEUE_BYTES, Ledger, Stream
from portico.transport.http_visit import Limits, Pairs, Visit, malformed, overload, unexpected
from portico.transport.news import news_for

log: logging.Logger = logging.getLogger("portico.transport")

# A person must find the window, read the question and decide.
ASK_S = 600.0
# News that nobody reads: one of each kind is kept, and this many kinds.
MAX_BACKLOG = 256


class Shared:
    """What all sessions of one application have in common.

    `shrink` is called where all of them together keep too much.
    """

    # The time that everything here goes by, as the loop does; to ask for the loop is a system call
    # before Python 3.12.
    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, service: Service, limits: Limits, shrink: Callable[[], None]) -> None:
        self.service = service
        self.limits = limits
        self.shrink = shrink
        self.ledger: Ledger = Ledger()
        self.tasks: set[asyncio.Task[None]] = set()
        self.asking: set[Session] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that belongs to a session, not to a connection."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def check_load(self) -> None:
        """Raise 503 where too much runs in all sessions together."""
        if len(self.tasks) >= self.limits.visits:
            raise overload("too many requests at once; try again later")


class SessionTurn:
    """One exchange of a session, with its way back: that of its POST.

    `task` is the one that works on it, where that is not the task of its POST.
    """

    __slots__ = ("exchange", "fault", "lane", "session", "task")

    def __init__(self, exchange: Exchange, session: "Session", lane: "Lane") -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self.session: Session = session
        self.lane: Lane = lane
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Work on it no more."""
        if self.task is not None:
            self.task.cancel()
        else:
            self.lane.visit.stop()

    @property
    def wire(self) -> "SessionTurn":
        """The way back is the turn itself."""
        return self

    async def send(self, frame: bytes) -> None:
        """Write a notification of this exchange, where the client takes a stream."""
        if self.lane.visit.answers.events:
            stream = self.lane.stream()
            self.session.put(stream, frame)
            await stream.drained()

    def post(self, frame: bytes) -> bool:
        """Whoever writes here may have to wait."""
        return False

    async def ask(self, question: Question) -> Raw:
        """Ask by request, on the stream of this very exchange, and wait."""
        return await self.session.ask(question, self.lane.stream())

    async def hang_up(self) -> None:
        """Let the connection go where the client knows how to come back (R0487)."""
        if self.lane.visit.answers.events:
            self.lane.stream().part()


class Lane:
    """The way back of one POST: its answer alone, or a stream, from the first event on.

    Most answers are no stream, and need none: it is made where there is something to put on it,
    and the task that writes it to the connection begins where it does.
    """

    __slots__ = ("_session", "made", "task", "visit")

    def __init__(self, session: "Session", visit: Visit) -> None:
        self.visit: Visit = visit
        self.made: Stream | None = None
        self.task: asyncio.Task[None] | None = None
        self._session = session

    def stream(self) -> Stream:
        """Its stream, which is a new one where nothing was put on it yet."""
        stream = self.made
        if stream is None:
            stream = self.made = self._session.open_stream(self.visit.answers.events)
            stream.awaited = True
            stream.on_streaming = self._begin
            if self.visit.gone:
                self._let_go(stream)
        return stream

    def commit(self) -> None:
        """Somebody has waited long enough for a first event."""
        self.stream().commit()

    def _begin(self) -> None:
        if self.made is not None and self.made.awaited:
            self.task = self._session.spawn(self._run(self.made))

    async def _run(self, stream: Stream) -> None:
        with contextlib.suppress(asyncio.CancelledError, ConnectionLost):
            await stream.serve(self.visit)

    def lose(self) -> None:
        """The client has gone: from here on the stream is kept for who comes back."""
        stream = self.made
        if stream is not None:
            if stream.boxed:  # whose answers are written by its POST, or not at all
                self.visit.stop()
                return
            self._stop(stream)
            self._let_go(stream)
        self.visit.drop()

    def _let_go(self, stream: Stream) -> None:
        stream.leave()
        self._session.release(stream)

    def _stop(self, stream: Stream) -> None:
        """Write no more."""
        if self.task is not None:
            self.task.cancel()
            stream.let_go(self.visit)

    def end(self) -> None:
        """The request is over. What points in a circle would wait for the garbage collector."""
        self.visit.way = None
        stream = self.made
        if stream is not None:
            self._stop(stream)
            stream.on_streaming = None
            self._let_go(stream)


class Session:
    """One client that has opened a conversation with `initialize`."""

    def __init__(self, id: str, link: Link, shared: Shared) -> None:
        self.id = id
        self.link = link
        self.subscriptions: set[str] = set()
        self.created: float = shared.clock()
        self.used: float = self.created
        self._shared = shared
        self._limits = shared.limits
        self._service = shared.service
        # Event ids of one session mean nothing in another.
        self._tag = secrets.token_hex(4)
        self._numbers = 0
        self._warned = False
        self._streams: dict[str, Stream] = {}
        self._listeners: list[Stream] = []
        self._backlog: dict[tuple[str, str | None], bytes] = {}
        self._running: dict[Exchange, SessionTurn] = {}
        self._ids: dict[RequestId, Exchange] = {}
        self._waiting: dict[RequestId, tuple[asyncio.Future[Raw], Stream]] = {}
        self._unwatch = self._service.watch(self._hear)

    @property
    def peer(self) -> Peer:
        """Who opened it; known from the first moment."""
        peer = self.link.peer
        assert peer is not None
        return peer

    @property
    def busy(self) -> bool:
        """Whether something runs in it, or somebody is connected."""
        return bool(self._running) or any(stream.read for stream in self._streams.values())

    @property
    def size(self) -> int:
        """The bytes that are kept for its streams."""
        return sum(stream.size for stream in self._streams.values())

    # ------------------------------------------------------------ what comes in

    def post(
        self, visit: Visit, frame: Request | Batch, parts: Head | None = None
    ) -> Coroutine[None, None, None]:
        """Something to answer; `parts` as in `Link.take`. Raises `Fault` where it is refused."""
        if isinstance(frame, Batch):
            self._shared.check_load()
        elif frame.id in self._ids:  # D3
            raise malformed("this id is in use by a running request; send another one")
        if len(self._streams) >= self._limits.session_streams:
            self._check_streams()
        self.link.scopes = visit.scopes  # of this very request, not of the one that opened it
        lane = Lane(self, visit)
        events = self.link.take(frame, self.used, parts)
        if len(events) == 1 and isinstance(call := events[0], Call) and parts is not None:
            return self._answer_here(call.exchange, lane)
        return self._answer_all(events, frame, lane)

    async def _answer_all(self, events: list[Event], frame: Request | Batch, lane: Lane) -> None:
        """Answer a batch, or what is answered or refused at once."""
        try:
            stream = lane.stream()
            status = rules.OK
            if isinstance(frame, Batch):
                lane.visit.way = lane
                status = rules.status_of_batch(frame)
                stream.boxed = len(frame.items)
            self._act(events, lane)
            if stream.pending:
                await stream.finished()
            await self._deliver(lane, stream, status)
        finally:
            lane.end()

    async def _deliver(self, lane: Lane, stream: Stream, status: int = rules.OK) -> None:
        """All is on the stream: it ends, or is no stream at all."""
        stream.finish()
        if lane.task is not None:
            await asyncio.wait({lane.task})
        elif not lane.visit.gone:
            await answer_at_once(lane.visit, stream.frames(), status)

    def note(self, warning: str) -> None:
        """Something was forgiven: said once, so that nobody fills our log with it."""
        if warning and not self._warned:
            self._warned = True
            log.warning("%s", warning)

    def take(self, frame: Notification | Reply | Failure) -> None:
        """Something that gets no answer."""
        self._act(self.link.take(frame, self._shared.clock()), None)

    def _act(self, events: list[Event], lane: Lane | None) -> None:
        own = lane.stream() if lane is not None else None
        stream = own
        for event in events:
            match event:
                case Call():
                    assert lane is not None
                    self._call(event.exchange, lane)
                case Sending():
                    if stream is not None:
                        stream.answer(event.data)
                    stream = own
                case Cancelled():
                    log.debug(
                        "%s cancelled: %.200r", event.exchange.row.name, event.reason
                    )  # R0061
                    # What may be sent next is the rest of the batch that this one was in.
                    stream = self._cancel(event.exchange) or own
                case Answered():
                    stream = self._settle(event) or own
                case Told():
                    self._service.told(event, self.link.peer)
                case Dropped():
                    log.debug("ignored: %s", event.why)
                case _:
                    pass

    # ------------------------------------------------------------ requests to us

    async def _answer_here(self, exchange: Exchange, lane: Lane) -> None:
        """Work on a request in the task of its own POST, whether or not its client stays."""
        visit = lane.visit
        turn = SessionTurn(exchange, self, lane)
        visit.way = lane
        self._enter(turn)
        try:
            try:
                data = await self._service.answer(turn)
            except asyncio.CancelledError:
                exchange.abandon()
                if not visit.is_ours():
                    raise
                data = None
            except Exception as error:
                data = _failed(exchange, error)
            finally:
                self._leave(exchange)
            stream = lane.made
            if stream is not None:
                if data is not None:
                    stream.answer(data)
                await self._deliver(lane, stream)
            elif not visit.gone:
                if data is None or not visit.answers.json:
                    frames = [data] if data is not None else []
                    await answer_at_once(visit, frames, rules.OK)
                elif not visit.reply_at_once(rules.OK, data):
                    await visit.reply(rules.OK, data)
        finally:
            lane.end()

    def _call(self, exchange: Exchange, lane: Lane) -> None:
        """Work on one request of a batch, beside the others."""
        lane.stream().pending += 1
        turn = SessionTurn(exchange, self, lane)
        turn.task = self._shared.spawn(self._answer_beside(turn))
        self._enter(turn)

    async def _answer_beside(self, turn: SessionTurn) -> None:
        data: bytes | None = None
        exchange, stream = turn.exchange, turn.lane.stream()
        try:
            data = await self._service.answer(turn)
        except Exception as error:
            data = _failed(exchange, error)
        except asyncio.CancelledError:
            data = exchange.abandon()  # the rest of its batch may be ready now
        finally:
            self._leave(exchange)
            if data is not None:
                stream.answer(data)
            stream.pending -= 1
            if not stream.pending:
                stream.finish()

    def _enter(self, turn: SessionTurn) -> None:
        exchange = turn.exchange
        self._running[exchange] = turn
        self._ids[exchange.request.id] = exchange

    def _leave(self, exchange: Exchange) -> None:
        del self._running[exchange]
        if self._ids.get(exchange.request.id) is exchange:
            del self._ids[exchange.request.id]

    def _cancel(self, exchange: Exchange) -> Stream | None:
        """Stop a call; the stream, where the rest of its batch is complete with that."""
        found = self._running.get(exchange)
        if found is None:
            return None
        self._ids.pop(exchange.request.id, None)
        found.stop()
        stream = found.lane.made
        return stream if stream is not None and stream.boxed and stream.pending == 1 else None

    # ------------------------------------------------------------ requests of ours

    async def ask(self, question: Question, stream: Stream) -> Raw:
        """Put a question on a stream and wait for its raw answer."""
        if not stream.streamable:
            words = "this client takes no event stream, so it cannot be asked anything"
            raise ConnectionLost(words)
        if stream.over:
            raise ConnectionLost("the client has gone and cannot come back")
        if self.link.phase is Phase.OPENING:
            raise ConnectionLost(NOT_INITIALIZED)
        id, data = self.link.request(
            question.kind.method,
            question.params,
            now=self._shared.clock(),
            timeout_s=ASK_S,
            max_s=ASK_S,
        )
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (future, stream)
        self._shared.asking.add(self)
        self.put(stream, data)
        try:
            return await future
        finally:
            asked = self._waiting.pop(id, None)
            if not self._waiting:
                self._shared.asking.discard(self)
            if asked is not None:
                gone = self.link.cancel(id, "no longer wanted")
                if gone is not None:
                    self.put(stream, gone)

    def _settle(self, event: Answered) -> Stream | None:
        found = self._waiting.pop(event.id, None)
        if found is None:
            return None
        future, stream = found
        if not future.done():
            if isinstance(event.outcome, PorticoError):
                future.set_exception(event.outcome)
            else:
                future.set_result(event.outcome)
        return stream

    # ------------------------------------------------------------ streams

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that belongs to this session, and to no connection."""
        return self._shared.spawn(work)

    def _check_streams(self) -> None:
        """Raise 503 where somebody reads too many at once."""
        if sum(stream.read for stream in self._streams.values()) >= self._limits.session_streams:
            raise overload("too many streams in this session; close some")

    def open_stream(self, streamable: bool) -> Stream:
        """A new stream of this session."""
        self._numbers += 1
        http = self.peer.revision.http
        stream = Stream(
            f"{self._tag}-{self._numbers}",
            self._shared.ledger,
            streamable=streamable,
            resumable=http.resumable,
            primed=http.prime_and_poll,
            retry_ms=self._limits.retry_ms,
        )
        self._streams[stream.name] = stream
        return stream

    def put(self, stream: Stream, frame: bytes) -> None:
        """A message on a stream, within what may be kept."""
        stream.put(frame)
        stream.trim(self._limits.stream_bytes)
        if self._shared.ledger.size > self._limits.kept_bytes:
            self._shared.shrink()

    def release(self, stream: Stream) -> None:
        """Nobody reads a stream: keep it for who may come back, forget any other one."""
        if stream.attended:
            return
        if not stream.fetchable:
            self._forget(stream)
        elif stream.over or stream.for_news:
            self.shrink(self._limits.session_bytes)

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.name, None)
        stream.forget()  # what is still put on it reaches nobody
        for future, asked_on in self._waiting.values():
            if asked_on is stream and not future.done():
                future.set_exception(ConnectionLost("the client has gone and cannot come back"))

    def shrink(self, limit: int, now: float | None = None) -> None:
        """Forget streams that nobody reads: the oldest beyond a size, and all that are old."""
        size = self.size
        for stream in list(self._streams.values()):
            if not stream.read and (stream.over or stream.for_news):
                old = now is not None and now - stream.left_at > self._limits.kept_s
                if old or size > limit:
                    size -= stream.size
                    self._forget(stream)

    async def listen(self, visit: Visit, after: str | None) -> None:
        """A GET: a stream for news, or the rest of one that was lost. Raises `Refusal`."""
        if after is None:
            self._check_streams()
            stream, number = self.open_stream(streamable=True), 0
            stream.streaming = stream.for_news = True
            stream.on_caught_up = self._refill
        else:
            stream, number = self._find(after)
        if stream.for_news:
            if stream in self._listeners:
                self._listeners.remove(stream)
            self._listeners.append(stream)
        try:
            await stream.serve(visit, number)
        finally:
            if not stream.read and stream in self._listeners:
                self._listeners.remove(stream)
            self.release(stream)

    def _find(self, event_id: str) -> tuple[Stream, int]:
        name, _, number = event_id.rpartition("-")
        stream = self._streams.get(name)
        if stream is None or not number.isdecimal() or len(number) > 15:
            raise rules.unknown_event()
        if not stream.streaming or not stream.has(int(number)):
            raise rules.unknown_event()
        return stream, int(number)

    # ------------------------------------------------------------ news

    def _hear(self, method: str, params: t.NotificationParams) -> None:
        frame = news_for(self.link, self.subscriptions, method, params)
        if frame is None:
            return
        kind = (method, getattr(params, "uri", None))
        if len(self._backlog) < MAX_BACKLOG or kind in self._backlog:
            self._backlog[kind] = frame
        self._refill()

    def _refill(self) -> None:
        """Give what is new to the one stream that is read for it, if its reader keeps up."""
        stream = self._listeners[-1] if self._listeners else None
        if stream is not None and self._backlog and stream.unread <= QUEUE_BYTES:
            for frame in self._backlog.values():
                self.put(stream, frame)
            self._backlog.clear()

    # ------------------------------------------------------------ time and end

    def tick(self, now: float) -> None:
        """End the questions that nobody answered in time."""
        self._act(self.link.tick(now), None)

    def drain(self) -> None:
        """Let those go who only wait for news (R0493)."""
        for stream in self._listeners:
            if not stream.part():
                stream.finish()

    def close(self, why: str) -> None:
        """Answer what runs, end every stream, and be no more."""
        self._unwatch()
        for exchange, turn in list(self._running.items()):
            data = exchange.fail(Fault(FaultKind.INTERNAL, why))
            if data is not None:
                turn.lane.stream().answer(data)
            turn.stop()
        self._act(self.link.close(why), None)
        for stream in list(self._streams.values()):
            self._forget(stream)


def _failed(exchange: Exchange, error: Exception) -> bytes | None:
    """What is sent where a service raised what it must not, or lost who it speaks to."""
    if isinstance(error, ConnectionLost):
        return exchange.abandon()
    return exchange.fail(unexpected(error))


async def answer_at_once(
    visit: Visit, frames: list[bytes], status: int, more: Pairs | None = None
) -> None:
    """One JSON body where the client takes it, else one event; nothing for what was cancelled."""
    if frames and visit.answers.json:
        await visit.reply(status, frames[0], more)
    elif frames:
        await visit.open(write(frames[0]), more)
        await visit.end()
    elif status != rules.OK:
        await visit.reply(status, b"")
    elif visit.answers.events:
        await visit.end()
    else:
        await visit.reply(NOT_FOUND, b"")
