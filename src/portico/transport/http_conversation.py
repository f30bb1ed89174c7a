"""A conversation over HTTP as a client holds it: each message of ours is a POST of its own.

What a server answers, reports and asks comes back as the answer to that POST: one JSON body, or a
stream of events, which is taken up again where the revision knows how. Where there are sessions,
one stream more carries what belongs to no request.

Rules: no message is judged here, the link does that. A request is made in the task of whoever waits
for it, and giving it up is told in the way of its revision. Nothing that may have had an effect is
sent a second time. Every wait ends.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Iterable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Raw

from portico.errors import (
    AuthError,
    ChannelError,
    ConnectionLost,
    Fault,
    LoginRequired,
    PorticoError,
    RemoteError,
    RemoteProtocolError,
    ScopeRequired,
    TimedOut,
)
from portico.ports import Hearer, Progressing
from portico.protocol import httprules as rules
from portico.protocol.events import Answered, Call, Cancelled, Event, Progressed, Send, Told
from portico.protocol.exchange import LISTEN, Exchange
from portico.protocol.httprules_gate import EVENTS_TYPE, JSON_TYPE
from portico.protocol.jsonrpc import Failure, RequestId, decode
from portico.protocol.link import MAX_S, Link
from portico.protocol.methods import Method
from portico.protocol.questions import Question
from portico.protocol.reading import read
from portico.protocol.revision import Cancelling, Revision
from portico.protocol.sse import Parser
from portico.protocol.types import NotificationParams, RequestParams
from portico.transport.http_client import Answer, HttpPool

log: logging.Logger = logging.getLogger("portico.transport")

# As much as a line of a pipe may hold, since files travel in base64.
MAX_BODY_BYTES = 64 * 1024 * 1024
# Of an answer that is no message, for the words of an error.
SHOWN_CHARACTERS = 200
# To come back for a stream: at first and at most, where the server has not said when.
RETRY_S = 0.5
MAX_RETRY_S = 30.0
# Streams that end without a word, one after the other: nobody is at home.
MAX_SILENT_ENDS = 6
# For what is only courtesy: a cancellation, the end of a session.
COURTESY_S = 2.0

Headers = Iterable[tuple[str, str]]


class SessionEnded(ConnectionLost):
    """The server does not know our session any more; what was sent had no effect (R0287)."""

    unheard: bool = True


class Waiting:
    """One request of ours: what became of it, and how long it may take."""

    __slots__ = ("id", "latest", "limit", "method", "outcome", "progressed", "task", "timeout_s")

    def __init__(self, id: RequestId, method: str, timeout_s: float, latest: float) -> None:
        self.id: RequestId = id
        self.method: str = method
        self.timeout_s: float = timeout_s
        self.latest: float = latest
        self.outcome: Raw | PorticoError | None = None
        self.progressed: Progressing | None = None
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None

    def extend(self, now: float) -> None:
        """Progress begins the time anew, up to a bound (R0241)."""
        if self.limit is not None and self.limit.when() is not None:
            self.limit.reschedule(min(now + self.timeout_s, self.latest))


class HttpConversation:
    """One server at a URL."""

    def __init__(
        self, link: Link, hearer: Hearer, pool: HttpPool, url: str, *, headers: Headers = ()
    ) -> None:
        self.link = link
        self.url = url
        self._hearer = hearer
        self._pool = pool
        self._own = list(headers)
        self._where = urlsplit(url).netloc
        self._session: str | None = None
        self._calls: dict[RequestId, Waiting] = {}
        self._exchanges: dict[Exchange, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed: str | None = None

    @property
    def _revision(self) -> Revision | None:
        return self.link.peer.revision if self.link.peer is not None else None

    # ------------------------------------------------------------ requests

    async def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        *,
        progressed: Progressing | None = None,
        headers: Headers = (),
        probing: Revision | None = None,
    ) -> Raw:
        """Ask the server and wait for its raw answer, in this task."""
        call, data = self._open(method, params, timeout_s, progressed is not None, probing)
        call.progressed = progressed
        return await self._wait(call, data, self._lines(method, params, headers, probing))

    def _open(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        progress: bool,
        probing: Revision | None = None,
    ) -> tuple[Waiting, bytes]:
        if self._closed is not None:
            raise ConnectionLost(self._closed)
        now = _now()
        latest = max(MAX_S, timeout_s)
        id, data = self.link.request(
            method,
            params,
            now=now,
            timeout_s=timeout_s,
            max_s=latest,
            progress=progress,
            revision=probing,
        )
        call = self._calls[id] = Waiting(id, method, timeout_s, now + latest)
        return call, data

    async def _wait(self, call: Waiting, data: bytes, lines: Headers) -> Raw:
        try:
            async with asyncio.timeout(call.timeout_s) as call.limit:
                await self._post(call, data, lines)
        except TimeoutError:
            if call.outcome is None:
                words = f"{self._where}: no answer to {call.method} within {call.timeout_s:g} s"
                raise TimedOut(words) from None
        finally:
            self._leave(call)
        outcome = call.outcome
        if isinstance(outcome, PorticoError):
            raise outcome
        assert outcome is not None
        return outcome

    def _leave(self, call: Waiting) -> None:
        """It is over; a server that still works on it is told, where closing says nothing."""
        self._calls.pop(call.id, None)
        if call.outcome is not None or self._closed is not None:
            return
        revision = self._revision
        gone = None
        with contextlib.suppress(PorticoError):  # initialize cannot be cancelled
            gone = self.link.cancel(call.id, "no longer wanted")
        if (
            gone is not None
            and revision is not None
            and revision.http.cancelling is Cancelling.NOTIFICATION
        ):
            self._spawn(self._courtesy(gone))

    def _lines(
        self,
        method: str,
        params: RequestParams,
        more: Headers = (),
        probing: Revision | None = None,
    ) -> list[tuple[str, str]]:
        revision = probing or self._revision
        row: Method | None = None
        if revision is not None:
            row = revision.method(
                method, frozenset(self.link.identity.capabilities.extensions or ())
            )
        if row is None:
            return [*self._own, *rules.headers_for_post(revision, self._session)]
        name = getattr(params, row.named_by, None) if row.named_by is not None else None
        lines = rules.headers_for_request(row, revision, name, session=self._session)
        return [*self._own, *lines, *more]

    def begin(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Ask the server beside everything else: for what stays open, as a subscription does."""
        call, data = self._open(method, params, timeout_s, progress=False)
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                outcome = await self._wait(call, data, self._lines(method, params))
            except asyncio.CancelledError:
                future.cancel()
                raise
            except PorticoError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(outcome)

        call.task = self._spawn(run())
        return call.id, future

    def give_up(self, id: RequestId) -> None:
        """Nobody waits for what `begin` began."""
        call = self._calls.get(id)
        if call is not None and call.task is not None:
            call.task.cancel()

    # ------------------------------------------------------------ opening

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the conversation with a handshake, and a session where the server has them."""
        id = self.link.record().next_id
        begin = self.link.initialize(_now(), timeout_s, revision)
        call = self._calls[id] = Waiting(id, "initialize", timeout_s, _now() + timeout_s)
        outcome = await self._wait(
            call, begin.data, [*self._own, *rules.headers_for_post(None, None)]
        )
        await asyncio.gather(*[task for task in self._tasks if task.get_name() == "opening"])
        if self._session is not None or (self._revision and self._revision.http.sessions):
            self._spawn(self._hear_news())
        return outcome

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Tell the server something."""
        await self._tell(self.link.notify(method, params))

    # ------------------------------------------------------------ POST

    async def _post(self, call: Waiting, data: bytes, lines: Headers) -> None:
        answer = await self._pool.send("POST", self.url, lines, data)
        async with answer:
            if call.method == "initialize" and answer.status == rules.OK:
                self._session = rules.assigned_session(answer.header("mcp-session-id"))
            if answer.status == rules.OK and _media(answer) == EVENTS_TYPE:
                await self._stream(call, answer)
                return
            body = await answer.whole(MAX_BODY_BYTES)
            self._hear_body(call, answer, body)
            error = self._unanswered(call, answer, body) if call.outcome is None else call.outcome
            if isinstance(error, PorticoError):
                error.status = answer.status  # which tells the era of a server (D13)
                raise error

    def _hear_body(self, call: Waiting, answer: Answer, body: bytes) -> None:
        if _media(answer) != JSON_TYPE or not body:
            return
        try:
            frame = decode(body)
        except Fault as fault:
            if fault.settles is not None:
                self._act(self.link.refuse(fault))
            return
        if isinstance(frame, Failure) and frame.id is None:
            # It could not read our request, and so cannot say which one it was; there is one.
            call.outcome = RemoteError(frame.code, frame.message, _data(frame))
            self.link.cancel(call.id)
            return
        self._act(self.link.take(frame, _now()))

    def _unanswered(self, call: Waiting, answer: Answer, body: bytes) -> PorticoError:
        status = answer.status
        where = f"{self._where} answered {call.method} with {status}"
        if status == 401:
            return LoginRequired(f"{where}: it wants to know who you are")
        if status == 403:
            asked = answer.header("www-authenticate") or ""
            kind = ScopeRequired if "insufficient_scope" in asked else AuthError
            return kind(f"{where}: you may not do this")
        if status == 404 and self._session is not None:
            return SessionEnded(f"{where}: it does not know this session any more")
        if 300 <= status < 400:
            to = (answer.header("location") or "nowhere")[:SHOWN_CHARACTERS]
            return RemoteProtocolError(f"{where}: it has moved to {to}; connect there")
        if status >= 500 or status in (408, 425, 429):
            return ConnectionLost(f"{where}; try again later")
        media = _media(answer) or "no type"
        if status == rules.OK and media == JSON_TYPE:
            return RemoteProtocolError(f"{self._where}: its body is no answer to {call.method}")
        shown = body[:SHOWN_CHARACTERS].decode("utf-8", "replace").replace("\n", " ").strip()
        words = f"{where} and {media}, which is no MCP; is {self.url} the endpoint?"
        return RemoteProtocolError(f"{words} It begins: {shown!r}" if shown else words)

    async def _tell(self, data: bytes) -> None:
        """POST what gets no answer."""
        lines = [*self._own, *rules.headers_for_post(self._revision, self._session)]
        async with await self._pool.send("POST", self.url, lines, data) as answer:
            if answer.status == 404 and self._session is not None:
                raise SessionEnded(f"{self._where} does not know this session any more")
            if answer.status >= 400:
                body = await answer.whole(MAX_BODY_BYTES)
                shown = body[:SHOWN_CHARACTERS].decode("utf-8", "replace")
                log.warning("%s refused a message with %d: %s", self._where, answer.status, shown)

    async def _courtesy(self, data: bytes) -> None:
        with contextlib.suppress(PorticoError, TimeoutError):
            async with asyncio.timeout(COURTESY_S):
                await self._tell(data)

    # ------------------------------------------------------------ streams

    async def _stream(self, call: Waiting, answer: Answer) -> None:
        """Read the stream of a request until its answer is there; take it up where it breaks."""
        parser = Parser()
        silent = 0
        while True:
            cut, heard = await self._read(answer, parser, call)
            if call.outcome is not None:
                return
            silent = 0 if heard else silent + 1
            revision = self._revision
            fetchable = revision is not None and revision.http.resumable
            if not fetchable or not parser.last_event_id or silent > MAX_SILENT_ENDS:
                raise ConnectionLost(
                    f"{self._where}: the stream of {call.method} ended without its answer"
                    + (f": {cut}" if cut else "")
                )
            await asyncio.sleep(_pause(parser, silent))
            parser = _next(parser)
            again = await self._fetch(parser.last_event_id)
            async with again:
                if again.status != rules.OK or _media(again) != EVENTS_TYPE:
                    raise ConnectionLost(
                        f"{self._where}: the stream of {call.method} cannot be taken up again: "
                        f"it answered {again.status}"
                    )
                answer = again

    async def _read(self, answer: Answer, parser: Parser, call: Waiting | None) -> tuple[str, bool]:
        """What a stream says until it ends: why it did, and whether it said anything."""
        heard = False
        async with answer:
            try:
                while data := await answer.read():
                    for event in parser.feed(data):
                        if event.data:
                            heard = True
                            self._act(self.link.receive(event.data, _now()))
                    if call is not None and call.outcome is not None:
                        return "", heard
                parser.end()
            except (ConnectionLost, Fault) as error:
                return str(error), heard
        return "", heard

    async def _fetch(self, after: str) -> Answer:
        revision = self._revision
        assert revision is not None
        lines = rules.headers_for_stream(revision, self._session, after)
        return await self._pool.send("GET", self.url, [*self._own, *lines])

    async def _hear_news(self) -> None:
        """The stream of a session that belongs to no request, for as long as the server has one."""
        parser = Parser()
        silent = 0
        with contextlib.suppress(PorticoError):
            while silent <= MAX_SILENT_ENDS:
                try:
                    answer = await self._fetch(parser.last_event_id)
                except ChannelError:
                    silent += 1
                else:
                    if answer.status != rules.OK or _media(answer) != EVENTS_TYPE:
                        answer.close()
                        return  # R0269: it has none, or not for us
                    _, heard = await self._read(answer, parser, None)
                    silent = 0 if heard else silent + 1
                await asyncio.sleep(_pause(parser, silent))
                parser = _next(parser)

    # ------------------------------------------------------------ what comes in

    def _act(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Answered():
                    call = self._calls.get(event.id)
                    if call is not None:
                        call.outcome = event.outcome
                case Progressed():
                    call = self._calls.get(event.id)
                    if call is not None:
                        call.extend(_now())
                        if call.progressed is not None:
                            call.progressed(event.params)
                case Told():
                    self._hearer.told(event)
                    if event.subscription is not None:
                        self._keep_open(event.subscription)
                case Call():
                    self._exchanges[event.exchange] = self._spawn(self._answer(event.exchange))
                case Cancelled():
                    task = self._exchanges.get(event.exchange)
                    if task is not None:
                        task.cancel()
                case Send():
                    self._spawn(self._courtesy(event.data), name="opening")
                case _:
                    pass

    def _keep_open(self, subscription: RequestId) -> None:
        """A subscription that was acknowledged may last."""
        call = self._calls.get(subscription)
        if call is not None and call.method == LISTEN and call.limit is not None:
            call.limit.reschedule(None)

    async def _answer(self, exchange: Exchange) -> None:
        turn = HttpClientTurn(exchange, self)
        try:
            data = await self._hearer.answer(turn)
            if data is not None:
                await self._tell(data)
        except asyncio.CancelledError:
            exchange.abandon()
        except ChannelError as error:
            log.debug("an answer did not arrive: %s", error)
        finally:
            self._exchanges.pop(exchange, None)

    async def send(self, data: bytes) -> None:
        """POST a notification that belongs to an exchange."""
        await self._tell(data)

    # ------------------------------------------------------------ the end

    async def leave(self, why: str) -> None:
        """End it: whoever waits learns so, a session is left. At any time, and twice."""
        if self._closed is not None:
            return
        self._closed = why
        for event in self.link.close(why):
            if isinstance(event, Answered) and event.id in self._calls:
                self._calls[event.id].outcome = event.outcome
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for call in list(self._calls.values()):
            if call.limit is not None and call.task is None:
                call.limit.reschedule(_now())  # which ends whoever waits in a task of their own
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=COURTESY_S)
        if self._session is not None:
            with contextlib.suppress(PorticoError, TimeoutError):
                async with asyncio.timeout(COURTESY_S):
                    revision = self._revision
                    lines = rules.headers_for_session(revision, self._session)  # R0290
                    lines = [*self._own, *lines]
                    (await self._pool.send("DELETE", self.url, lines)).close()
            self._session = None
        self._hearer.gone()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "") -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class HttpClientTurn:
    """One question of the server, with the way back: POSTs of our own."""

    __slots__ = ("_conversation", "exchange", "fault")

    def __init__(self, exchange: Exchange, conversation: HttpConversation) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._conversation = conversation

    @property
    def wire(self) -> "HttpClientTurn":
        """The way back is the turn itself."""
        return self

    @property
    def session(self) -> None:
        """A client keeps nothing for its server."""
        return None

    async def send(self, frame: bytes) -> None:
        """POST a notification."""
        await self._conversation.send(frame)

    async def ask(self, question: Question) -> Raw:
        """A client does not ask while it answers."""
        raise RemoteProtocolError(f"{question.kind.method} is asked by servers")

    async def hang_up(self) -> None:
        """There is nothing to hang up."""


def _now() -> float:
    return asyncio.get_running_loop().time()


def _media(answer: Answer) -> str:
    return (answer.header("content-type") or "").partition(";")[0].strip().lower()


def _data(failure: Failure) -> Any:
    with contextlib.suppress(Fault):
        return read(object, failure.data) if failure.data else None


def _next(parser: Parser) -> Parser:
    """The reader of a stream that goes on where another one ended."""
    after = Parser(last_event_id=parser.last_event_id)
    after.retry_ms = parser.retry_ms
    return after


def _pause(parser: Parser, silent: int) -> float:
    """R0490: as long as the server said; else longer each time, and never in step with others."""
    if parser.retry_ms is not None:
        return min(parser.retry_ms / 1000, MAX_RETRY_S)
    return min(RETRY_S * 2**silent, MAX_RETRY_S) * (0.5 + random.random() / 2)
