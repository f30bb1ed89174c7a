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
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec import Raw

from colonnade.errors import ColonnadeError, ConnectionLost, Fault, FaultKind
from colonnade.ports import Service
from colonnade.protocol import types as t
from colonnade.protocol.byte_budget import ByteBudget
from colonnade.protocol.exchange import Exchange, RequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import FORBIDDEN, NOT_FOUND, Headers, HttpError
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    ResultResponse,
    SplitParams,
)
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
)
from colonnade.protocol.link.events import Send as Sending
from colonnade.protocol.link.handshake import NOT_INITIALIZED, Phase
from colonnade.protocol.link.link import Link
from colonnade.protocol.negotiation import Peer
from colonnade.transport.duplex import news_for
from colonnade.transport.http_server.request import (
    Limits,
    Pairs,
    Visit,
    malformed,
    overload,
    unexpected,
)
from colonnade.transport.http_server.streams import (
    QUEUE_BYTES,
    STREAM_BYTES,
    Ledger,
    Stream,
    SubscribedUris,
    subscribed_budget,
)

log: logging.Logger = logging.getLogger("colonnade.transport")

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
        self.subscribed: ByteBudget = subscribed_budget()
        # The bodies of all requests that are being answered, in sessions and without one.
        self.bodies: ByteBudget = ByteBudget(
            limits.max_running_body_bytes, limits.max_running_body_bytes_per_principal
        )
        # Calls that are still worked on after their client has hung up, the oldest first.
        self.left: dict[Lane, None] = {}

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that belongs to a session, not to a connection."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def check_load(self) -> None:
        """Raise 503 where too much runs in all sessions together."""
        if len(self.tasks) >= self.limits.max_concurrent_requests:
            raise overload("too many requests at once; try again later")

    def hold_body(self, visit: Visit, size: int) -> None:
        """Count a body while its request is answered. Raises 503 where there are too many.

        Calls whose client has hung up give way then, the oldest first: a request that is sent
        again finds room.
        """
        if self.bodies.reserve(visit.principal, size):
            visit.body_bytes = size
            return
        self._stop_left(visit.principal, size)
        raise overload("too many large requests at once; try again later")

    def _stop_left(self, principal: str, size: int) -> None:
        """Stop calls whose client has hung up: those of this principal, unless the limit on all
        together is reached."""
        missing = self.bodies.used + size - self.bodies.total
        of_all = missing > 0
        if not of_all:
            missing = size
        for lane in list(self.left):
            if missing <= 0:
                break
            if of_all or lane.visit.principal == principal:
                missing -= lane.body_bytes
                lane.give_way()


class SessionTurn(RequestFields):
    """One exchange of a session, with its way back: that of its POST.

    `task` is the one that works on it, where that is not the task of its POST; `begun` is whether
    it has done its first step.
    """

    __slots__ = ("begun", "exchange", "fault", "lane", "session", "task")

    def __init__(self, exchange: Exchange, session: "Session", lane: "Lane") -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self.session: Session = session
        self.lane: Lane = lane
        self.task: asyncio.Task[None] | None = None
        self.begun: bool = False

    def stop(self) -> None:
        """Work on it no more; its exchange is settled."""
        if self.task is None:
            self.lane.visit.stop()
        elif self.begun:  # else it sees that, and a task that never began would clean up nothing
            self.task.cancel()

    @property
    def headers(self) -> Headers:
        """Those of its POST."""
        return self.lane.visit.headers

    @property
    def claims(self) -> Mapping[str, Any]:
        """What the token of its POST says."""
        return self.lane.visit.claims

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

    async def ask(self, question: InputRequest) -> Raw:
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

    __slots__ = ("_session", "body_bytes", "made", "task", "visit")

    def __init__(self, session: "Session", visit: Visit) -> None:
        self.visit: Visit = visit
        self.made: Stream | None = None
        self.task: asyncio.Task[None] | None = None
        # The size of the body from the moment that the client has hung up, where it is counted.
        self.body_bytes: int = 0
        self._session = session

    def stream(self) -> Stream:
        """Its stream, which is a new one where nothing was put on it yet."""
        stream = self.made
        if stream is None:
            stream = self.made = self._session.open_stream(self.visit.answers.events)
            stream.awaited = True
            stream.on_streaming = self._begin
            stream.scopes = self.visit.scopes
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
        if self.visit.body_bytes:
            # What a batch asked for is worked on even when its POST is over.
            self.body_bytes, self.visit.body_bytes = self.visit.body_bytes, 0
            self._session.shared.left[self] = None
        stream = self.made
        if stream is not None:
            if stream.boxed:  # whose answers are written by its POST, or not at all
                self.visit.stop()
                return
            self._stop(stream)
            self._let_go(stream)
        self.visit.drop()

    def give_way(self) -> None:
        """End what is still worked on though its client has gone: others need the memory."""
        self._session.shared.left.pop(self, None)
        self._session.stop(self, "the client hung up, and the server needed its memory")

    def settle(self) -> None:
        """What was asked for is worked on no more; its body counts no more, where it still did."""
        size, self.body_bytes = self.body_bytes, 0
        if size:
            shared = self._session.shared
            shared.left.pop(self, None)
            shared.bodies.release(self.visit.principal, size)

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
        if self.body_bytes and (stream is None or not stream.pending):
            self.settle()
        if stream is not None:
            self._stop(stream)
            stream.on_streaming = None
            self._let_go(stream)


class Session:
    """One client that has opened a conversation with `initialize`."""

    def __init__(self, id: str, link: Link, shared: Shared) -> None:
        self.id = id
        self.link = link
        self.subscriptions: set[str] = SubscribedUris(shared.subscribed, link.principal)
        self.created: float = shared.clock()
        self.used: float = self.created
        self.shared: Shared = shared
        self._limits = shared.limits
        self._service = shared.service
        # Event ids of one session mean nothing in another.
        self._tag = secrets.token_hex(4)
        self._numbers = 0
        self._warned = False
        # Those that are read, or whose call still runs; and those that are kept for a client that
        # comes back, in the order in which they were left.
        self._streams: dict[str, Stream] = {}
        self._kept: dict[str, Stream] = {}
        self._ledger = Ledger(shared.ledger)
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
        return self._ledger.size

    # ------------------------------------------------------------ what comes in

    def post(
        self, visit: Visit, frame: Request | Batch, parts: SplitParams | None = None
    ) -> Coroutine[None, None, None]:
        """Something to answer; `parts` as in `Link.take`. Raises `Fault` where it is refused."""
        if isinstance(frame, Batch):
            self.shared.check_load()
        elif frame.id in self._ids:  # D3
            raise malformed("this id is in use by a running request; send another one")
        if len(self._streams) >= self._limits.max_streams_per_session:
            self._check_streams()
        self.link.scopes = visit.scopes  # of this very request, not of the one that opened it
        lane = Lane(self, visit)
        events = self.link.take(frame, self.used, parts)
        if (
            len(events) == 1
            and isinstance(call := events[0], RequestReceived)
            and parts is not None
        ):
            return self._answer_here(call.exchange, lane)
        return self._answer_all(events, frame, lane)

    async def _answer_all(
        self, events: list[LinkEvent], frame: Request | Batch, lane: Lane
    ) -> None:
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

    def take(self, frame: Notification | ResultResponse | ErrorResponse) -> None:
        """Something that gets no answer."""
        self._act(self.link.take(frame, self.shared.clock()), None)

    def _act(self, events: list[LinkEvent], lane: Lane | None) -> None:
        own = lane.stream() if lane is not None else None
        stream = own
        for event in events:
            match event:
                case RequestReceived():
                    assert lane is not None
                    self._call(event.exchange, lane)
                case Sending():
                    if stream is not None:
                        stream.answer(event.data)
                    stream = own
                case RequestCancelled():
                    log.debug(
                        "%s cancelled: %.200r", event.exchange.method.name, event.reason
                    )  # R0061
                    # What may be sent next is the rest of the batch that this one was in.
                    stream = self._cancel(event.exchange) or own
                case RequestFinished():
                    stream = self._settle(event) or own
                case NotificationReceived():
                    self._service.told(event, self.link.peer)
                case MessageIgnored():
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
        cancelled: asyncio.CancelledError | None = None
        try:
            try:
                data = await self._service.answer(turn)
            except asyncio.CancelledError as error:
                if visit.cancelled:
                    exchange.abandon()
                    if not visit.is_ours():
                        raise
                    data = None
                else:  # a handler cancelled its own task: it is answered, and cancelled
                    cancelled = error
                    data = _failed(exchange, error)
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
            if cancelled is not None:
                raise cancelled
        finally:
            lane.end()

    def _call(self, exchange: Exchange, lane: Lane) -> None:
        """Work on one request of a batch, beside the others."""
        lane.stream().pending += 1
        turn = SessionTurn(exchange, self, lane)
        turn.task = self.shared.spawn(self._answer_beside(turn))
        self._enter(turn)

    async def _answer_beside(self, turn: SessionTurn) -> None:
        data: bytes | None = None
        exchange, stream = turn.exchange, turn.lane.stream()
        turn.begun = True
        try:
            if not exchange.settled:  # else it was cancelled in the batch that it came in
                data = await self._service.answer(turn)
        except (Exception, asyncio.CancelledError) as error:
            data = _failed(exchange, error)
        finally:
            self._leave(exchange)
            if data is not None:
                stream.answer(data)
            stream.pending -= 1
            if not stream.pending:
                stream.finish()
                turn.lane.settle()

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

    async def ask(self, question: InputRequest, stream: Stream) -> Raw:
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
            now=self.shared.clock(),
            timeout_s=ASK_S,
            max_s=ASK_S,
        )
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (future, stream)
        stream.asked += 1
        self.shared.asking.add(self)
        self.put(stream, data)
        try:
            return await future
        finally:
            stream.asked -= 1
            asked = self._waiting.pop(id, None)
            if not self._waiting:
                self.shared.asking.discard(self)
            if asked is not None:
                gone = self.link.cancel(id, "no longer wanted")
                if gone is not None:
                    self.put(stream, gone)

    def _settle(self, event: RequestFinished) -> Stream | None:
        found = self._waiting.pop(event.id, None)
        if found is None:
            return None
        future, stream = found
        if not future.done():
            if isinstance(event.outcome, ColonnadeError):
                future.set_exception(event.outcome)
            else:
                future.set_result(event.outcome)
        return stream

    # ------------------------------------------------------------ streams

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that belongs to this session, and to no connection."""
        return self.shared.spawn(work)

    def _check_streams(self) -> None:
        """Raise 503 where too many are open at once."""
        if len(self._streams) >= self._limits.max_streams_per_session:
            raise overload("too many streams in this session; close some")

    def open_stream(self, streamable: bool) -> Stream:
        """A new stream of this session."""
        self._numbers += 1
        http = self.peer.revision.http
        stream = Stream(
            f"{self._tag}-{self._numbers}",
            self._ledger,
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
        stream.trim(self._limits.max_resumable_bytes_per_stream)
        if self.shared.ledger.size > self._limits.max_resumable_bytes:
            self.shared.shrink()

    def release(self, stream: Stream) -> None:
        """A stream has no reader: keep it for a client that comes back, forget any other one."""
        if stream.attended:
            return
        if not stream.fetchable:
            self._forget(stream)
        elif (stream.over or stream.for_news) and self._streams.pop(stream.name, None) is not None:
            self._kept[stream.name] = stream
            self._ledger.add(STREAM_BYTES)
            self.shrink(self._limits.max_resumable_bytes_per_session)

    def _forget(self, stream: Stream) -> None:
        if self._kept.pop(stream.name, None) is not None:
            self._ledger.add(-STREAM_BYTES)
        else:
            self._streams.pop(stream.name, None)
        stream.forget()  # what is still put on it reaches nobody
        if not stream.asked:
            return
        for future, asked_on in self._waiting.values():
            if asked_on is stream and not future.done():
                future.set_exception(ConnectionLost("the client has gone and cannot come back"))

    def shrink(self, limit: int, now: float | None = None) -> None:
        """Forget streams without a reader: the oldest beyond a size or a count, and all that are
        old. Looks at no more of them than it forgets, and one."""
        limits = self._limits
        while self._kept:
            stream = next(iter(self._kept.values()))
            old = now is not None and now - stream.left_at > limits.resume_window_s
            if (
                not old
                and len(self._kept) <= limits.max_resumable_streams_per_session
                and self.size <= limit
            ):
                return
            self._forget(stream)

    async def listen(self, visit: Visit, after: str | None) -> None:
        """A GET: a stream for news, or the rest of one that was lost. Raises `Refusal`."""
        if after is None:
            self._check_streams()
            stream, number = self.open_stream(streamable=True), 0
            stream.streaming = stream.for_news = True
            stream.on_caught_up = self._refill
            stream.scopes = visit.scopes
        else:
            stream, number = self._find(after, visit.scopes)
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

    def _find(self, event_id: str, scopes: frozenset[str] | None) -> tuple[Stream, int]:
        name, _, number = event_id.rpartition("-")
        stream = self._kept.get(name) or self._streams.get(name)
        if stream is None or not number.isdecimal() or len(number) > 15:
            raise rules.unknown_event()
        if not stream.streaming or not stream.has(int(number)):
            raise rules.unknown_event()
        if scopes is not None and stream.scopes is not None and not stream.scopes <= scopes:
            # What is on it was put there for a caller who may hear of more.
            words = "this stream was opened with more scopes than you have now; open a new one"
            raise HttpError(FORBIDDEN, words)
        if name in self._kept:
            self._check_streams()
            self._streams[name] = self._kept.pop(name)
            self._ledger.add(-STREAM_BYTES)
        return stream, int(number)

    # ------------------------------------------------------------ news

    def _hear(self, method: str, params: t.NotificationParams) -> None:
        frame = news_for(self.link, self.subscriptions, method, params)
        if frame is None:
            return
        kind = (method, getattr(params, "uri", None))
        self._backlog[kind] = frame
        self._refill()
        if len(self._backlog) > MAX_BACKLOG:  # with what no reader of the moment may hear of
            del self._backlog[kind]

    def _refill(self) -> None:
        """Give what is new to the newest stream that is read for it and may have it, if its reader
        keeps up."""
        if not self._backlog:
            return
        offered: set[frozenset[str] | None] = set()
        for stream in reversed(self._listeners):
            if stream.scopes in offered:
                continue
            for kind, frame in list(self._backlog.items()):
                if stream.unread > QUEUE_BYTES:
                    break
                if self._may_hear(stream, kind[1]):
                    del self._backlog[kind]
                    self.put(stream, frame)
            else:  # others with the same scopes may hear of nothing else
                offered.add(stream.scopes)

    def _may_hear(self, stream: Stream, uri: str | None) -> bool:
        """Whether the credentials of a stream's reader are enough to hear of a resource; those of
        the subscriber may have been others."""
        return uri is None or self._service.may_hear(uri, stream.scopes)

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
            self._stop_call(exchange, turn, why)
        self._act(self.link.close(why), None)
        for stream in [*self._streams.values(), *self._kept.values()]:
            self._forget(stream)
        self.subscriptions.clear()

    def stop(self, lane: Lane, why: str) -> None:
        """Answer the calls of one POST with an error, and work on them no more."""
        for exchange, turn in list(self._running.items()):
            if turn.lane is lane:
                self._stop_call(exchange, turn, why)

    def _stop_call(self, exchange: Exchange, turn: SessionTurn, why: str) -> None:
        data = exchange.fail(Fault(FaultKind.INTERNAL, why))
        if data is not None:
            turn.lane.stream().answer(data)
        turn.stop()


def _failed(exchange: Exchange, error: BaseException) -> bytes | None:
    """What is sent where a service raised what it must not, or lost who it speaks to. Nothing more
    is sent of a request that was cancelled by its client, or by the end of the session."""
    if exchange.settled:
        return None
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
        await visit.open(encode_event(frames[0]), more)
        await visit.end()
    elif status != rules.OK:
        await visit.reply(status, b"")
    elif visit.answers.events:
        await visit.end()
    else:
        await visit.reply(NOT_FOUND, b"")
