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
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any

from msgspec import Raw

from colonnade.errors import (
    AuthError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.ports import Credentials, Hearer, Progressing
from colonnade.protocol.exchange import LISTEN, Exchange, RequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import EVENTS_TYPE, JSON_TYPE
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import ErrorResponse, RequestId, decode
from colonnade.protocol.link.events import (
    LinkEvent,
    NotificationReceived,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import MAX_S, Link
from colonnade.protocol.negotiation import HANDSHAKE_METHOD
from colonnade.protocol.revision import HttpCancellation, Revision
from colonnade.protocol.types import NotificationParams, RequestParams
from colonnade.transport.http_client.endpoint import Endpoint, Headers, error_of
from colonnade.transport.http_client.pool import Answer, HttpPool
from colonnade.transport.http_client.resumption import Resuming, passes, resumed


class Waiting:
    """One request of ours: what became of it. How long it may take is known to the link."""

    __slots__ = (
        "id",
        "limit",
        "method",
        "name",
        "outcome",
        "progressed",
        "runs",
        "task",
        "timeout_s",
    )

    def __init__(
        self, id: RequestId, method: str, timeout_s: float, name: str | None = None
    ) -> None:
        self.id: RequestId = id
        self.method: str = method
        self.name: str | None = name
        self.timeout_s: float = timeout_s
        self.outcome: Raw | ColonnadeError | None = None
        # Whether the server may still be at work on it, for all that we know.
        self.runs: bool = True
        self.progressed: Progressing | None = None
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[Raw] | None = None

    @property
    def label(self) -> str:
        """What it is called in an error: the tool or prompt that it is about, or its method."""
        return self.method if self.name is None else repr(self.name)

    def ends(self, when: float | None) -> None:
        """Its time runs out then, by what the link knows of it; None for what may stay open."""
        if self.outcome is None:
            self._set(when)

    def wake(self, now: float) -> None:
        """It is over, and whoever waits for it in a task of their own learns so."""
        self._set(now)

    def _set(self, when: float | None) -> None:
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(when)


class HttpClientTurn(RequestFields):
    """One question of the server, with the way back: POSTs of our own."""

    __slots__ = ("_tell", "exchange", "fault")

    def __init__(self, exchange: Exchange, tell: Callable[[bytes], Awaitable[None]]) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._tell = tell

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
        await self._tell(frame)

    def post(self, frame: bytes) -> bool:
        """Whoever writes here may have to wait."""
        return False

    async def ask(self, question: InputRequest) -> Raw:
        """A client does not ask while it answers."""
        raise RemoteProtocolError(f"{question.kind.method} is asked by servers")

    async def hang_up(self) -> None:
        """There is nothing to hang up."""


log: logging.Logger = logging.getLogger("colonnade.transport")

# As much as a line of a pipe may hold, since files travel in base64.
MAX_BODY_BYTES = 64 * 1024 * 1024
# For a message that gets no answer: the server only has to say that it has it.
TELL_S = 30.0
# For what is only courtesy: a cancellation, the end of a session.
COURTESY_S = 2.0
# Answers to pings and to what is no message, on their way at once: each is a connection.
MAX_COURTESIES = 64
# For the stream of a session to stand. Some servers say nothing before there is news.
NEWS_S = 1.0

SESSION_HEADER = rules.SESSION_HEADER.lower()


class SessionEnded(ConnectionLost):
    """The server does not know our session any more; what was sent had no effect (R0287)."""

    not_sent: bool = True


class HttpConversation:
    """One server at a URL. Raises `LocalProtocolError` for what is none."""

    def __init__(
        self,
        link: Link,
        hearer: Hearer,
        pool: HttpPool,
        url: str,
        *,
        headers: Headers = (),
        credentials: Credentials | None = None,
    ) -> None:
        self.link = link
        self._hearer = hearer
        self._endpoint = Endpoint(pool, url, headers, credentials, self._held)
        self._extensions = frozenset(link.identity.capabilities.extensions or ())
        self._session: str | None = None
        # Whether the server has ever had a stream for us by GET.
        self._streams = False
        self._over = False
        self._calls: dict[RequestId, Waiting] = {}
        self._exchanges: dict[Exchange, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._courtesies: set[asyncio.Task[Any]] = set()
        self._overwhelmed = False
        self._closed: str | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._gone = False

    @property
    def url(self) -> str:
        """Where the server is, by now."""
        return self._endpoint.url

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
        lines = self._lines(method, params, probing)
        lines += headers
        call, data = self._open(method, params, timeout_s, progressed is not None, probing)
        call.progressed = progressed
        return await self._wait(call, data, lines)

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
        id, data = self.link.request(
            method,
            params,
            now=_now(),
            timeout_s=timeout_s,
            max_s=max(MAX_S, timeout_s),
            progress=progress,
            revision=probing,
        )
        name = getattr(params, "name", None)
        call = self._calls[id] = Waiting(id, method, timeout_s, name)
        return call, data

    async def _wait(self, call: Waiting, data: bytes, lines: Headers) -> Raw:
        try:
            async with asyncio.timeout_at(self.link.ends_at(call.id)) as call.limit:
                await self._post(call, data, lines)
        except TimeoutError:
            if call.outcome is None:
                words = f"{self._where}: no answer to {call.method} within {call.timeout_s:g} s"
                raise TimedOut(words) from None
        except ColonnadeError as error:
            call.runs = isinstance(error, ConnectionLost) and error.status is None
            if not call.runs:
                raise
            words = f"{error}, during {call.label}"
            raise ConnectionLost(words, server=error.server) from None
        finally:
            self._leave(call)
        outcome = call.outcome
        if isinstance(outcome, ColonnadeError):
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
        with contextlib.suppress(ColonnadeError):  # initialize cannot be cancelled
            gone = self.link.cancel(call.id, "no longer wanted")
        if (
            gone is not None
            and call.runs
            and revision is not None
            and revision.http.cancellation is HttpCancellation.NOTIFICATION
        ):
            self._spawn_courtesy(gone)

    @property
    def _where(self) -> str:
        return self._endpoint.where

    def _lines(
        self, method: str, params: RequestParams, probing: Revision | None = None
    ) -> list[tuple[str, str]]:
        revision = probing or self._revision
        row = revision.method(method, self._extensions) if revision is not None else None
        if row is None:
            return rules.headers_for_post(revision, self._session)
        name = getattr(params, row.name_param, None) if row.name_param is not None else None
        return rules.headers_for_request(row, revision, name, session=self._session)

    def begin(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Ask the server beside everything else: for what stays open, as a subscription does."""
        lines = self._lines(method, params)
        call, data = self._open(method, params, timeout_s, progress=False)
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        call.task = self._spawn(self._wait(call, data, lines))
        call.task.add_done_callback(partial(self._ended, call, future))
        return call.id, future

    def _ended(self, call: Waiting, future: asyncio.Future[Raw], task: "asyncio.Task[Raw]") -> None:
        self._leave(call)  # which was not done where it was given up before it began
        error = call.outcome if task.cancelled() else task.exception()
        if future.done():
            return
        if isinstance(error, BaseException):
            future.set_exception(error)
        elif task.cancelled():
            future.cancel()
        else:
            future.set_result(task.result())

    def give_up(self, id: RequestId) -> None:
        """Nobody waits for what `begin` began."""
        call = self._calls.get(id)
        if call is not None and call.task is not None:
            call.task.cancel()

    # ------------------------------------------------------------ opening

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the conversation with a handshake, and a session where the server has them.

        R0056: giving up ends it; so does whatever is no answer.
        """
        id = self.link.snapshot().next_id
        begin = self.link.initialize(_now(), timeout_s, revision)
        call = self._calls[id] = Waiting(id, HANDSHAKE_METHOD, timeout_s)
        try:
            outcome = await self._wait(call, begin.data, rules.headers_for_post(None, None))
        finally:
            if self.link.phase in (Phase.OPENING, Phase.CLOSED):
                self._close("the handshake was given up")
        if self._courtesies:  # the word that it is done; what comes next must come after that
            await asyncio.wait(self._courtesies, timeout=COURTESY_S)
        agreed = self._revision
        if agreed is not None and (self._session is not None or agreed.http.sessions):
            stands = asyncio.get_running_loop().create_future()
            self._spawn(self._hear_news(agreed, stands))
            await asyncio.wait([stands], timeout=NEWS_S)
        return outcome

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Tell the server something. Raises where it does not take it."""
        if self._closed is not None:
            raise ConnectionLost(f"{self._closed} before {method}")
        await self._tell(self.link.notify(method, params), method)

    # ------------------------------------------------------------ POST

    async def _post(self, call: Waiting, data: bytes, lines: Headers) -> None:
        answer = await self._endpoint.send("POST", lines, data)
        async with answer:
            if answer.status != rules.OK:
                await self._hear_refusal(call, answer)
            else:
                if call.method == HANDSHAKE_METHOD:
                    self._session = rules.assigned_session(answer.header(SESSION_HEADER))
                self._endpoint.check_plain(answer)
                if answer.media == EVENTS_TYPE:
                    await self._stream(call, answer)
                    return
                body = await answer.whole(MAX_BODY_BYTES)
                if answer.media == JSON_TYPE:
                    self._hear_body(call, body)
                if call.outcome is None:
                    raise self._endpoint.refusal(call.method, answer, body)
            if isinstance(call.outcome, ColonnadeError):
                call.outcome.status = answer.status  # which tells the era of a server (D13)

    async def _hear_refusal(self, call: Waiting, answer: Answer) -> None:
        if self._forgets(answer):
            raise self._forgotten(call.method)
        body = await self._endpoint.refused(answer)
        refusal = self._endpoint.refusal(call.method, answer, body)
        if isinstance(refusal, AuthError):  # whatever its body says
            raise refusal
        if answer.media == JSON_TYPE:
            self._hear_body(call, body)
        if call.outcome is None:
            raise refusal

    def _forgets(self, answer: Answer) -> bool:
        return answer.status == rules.NOT_FOUND and self._session is not None  # R0288

    def _forgotten(self, method: str) -> SessionEnded:
        self._over = True
        words = f"{self._where} answered {method} with 404: it has forgotten this session"
        ended = SessionEnded(words, server=self._where)
        ended.status = rules.NOT_FOUND
        return ended

    def _hear_body(self, call: Waiting, body: bytes) -> None:
        try:
            frame = decode(body)
        except Fault as fault:
            # What is no JSON at all is quoted by whoever asked; that says more.
            if fault.settles is not None and fault.kind is not FaultKind.PARSE:
                self._act(self.link.refuse(fault), call)
            return
        if isinstance(frame, ErrorResponse) and frame.id is None:
            # It could not read our request, and so cannot say which one it was; there is one.
            call.outcome = error_of(frame)
            with contextlib.suppress(ColonnadeError):  # initialize cannot be cancelled
                self.link.cancel(call.id)
            return
        self._act(self.link.take(frame, _now()), call)

    async def _tell(self, data: bytes, method: str) -> None:
        """POST what gets no answer. Raises what the server has against it."""
        lines = rules.headers_for_post(self._revision, self._session)
        try:
            async with asyncio.timeout(TELL_S):
                answer = await self._endpoint.send("POST", lines, data)
                async with answer:
                    if answer.status < 300:
                        answer.linger()
                        return
                    body = await self._endpoint.refused(answer)
        except TimeoutError:
            words = f"{self._where} took no {method} within {TELL_S:g} s"
            raise TimedOut(words, server=self._where) from None
        if self._forgets(answer):
            raise self._forgotten(method)
        raise self._endpoint.objection(method, answer, body)

    async def _courtesy(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(COURTESY_S):
                await self._tell(data, "a message")
        except (ColonnadeError, TimeoutError) as error:
            log.debug("%s did not take a message: %s", self._where, error)

    # ------------------------------------------------------------ streams

    async def _stream(self, call: Waiting, answer: Answer) -> None:
        """Read the stream of a request until its answer is there; take it up where it breaks."""
        parser = EventStreamParser()
        back = Resuming()
        while True:
            cut = await self._read(answer, parser, call, back)
            if call.outcome is not None:
                return
            revision = self._revision
            words = f"{self._where}: the stream ended without an answer{cut and f' ({cut})'}"
            # Streamable HTTP carries every revision with a handshake, also the one before it.
            if revision is None or not revision.handshake or not parser.last_event_id:
                raise ConnectionLost(words)
            parser = resumed(parser)
            try:
                answer = await back.take_up(partial(self._fetch, revision, parser), parser)
            except ColonnadeError as error:  # D28: the server will not go on with it
                raise ConnectionLost(f"{words}, and cannot be taken up again: {error}") from None

    async def _read(
        self, answer: Answer, parser: EventStreamParser, call: Waiting | None, back: Resuming
    ) -> str:
        """Hear what a stream says until it ends, or has answered; why it did, if that was early.

        Raises `RemoteProtocolError` for a stream that breaks its bounds.
        """
        async with answer:
            try:
                while data := await answer.read():
                    for event in parser.feed(data):
                        if event.data and event.event == "message":
                            back.heard()
                            self._act(self.link.receive(event.data, _now()), call)
                    if call is not None and call.outcome is not None:
                        answer.linger()
                        return ""
                parser.end()
            except Fault as fault:
                raise RemoteProtocolError(f"{self._where}: {fault}") from None
            except (ConnectionLost, RemoteProtocolError) as error:
                return str(error)
        return ""

    async def _fetch(self, revision: Revision, parser: EventStreamParser) -> Answer:
        """A stream by GET. Raises where there is none, with its status."""
        lines = rules.headers_for_stream(revision, self._session, parser.last_event_id)
        answer = await self._endpoint.send("GET", lines)
        if answer.status == rules.OK and answer.media == EVENTS_TYPE:
            try:
                self._endpoint.check_plain(answer)
            except BaseException:
                answer.close()
                raise
            self._streams = True
            return answer
        async with answer:
            # Before there was any stream a 404 says that there is none: it takes POST alone.
            # If it has forgotten the session, the next POST says so (D45).
            if self._forgets(answer) and (self._streams or parser.last_event_id):
                raise self._forgotten("GET")
            raise self._endpoint.refusal("GET", answer, await self._endpoint.refused(answer))

    async def _hear_news(self, revision: Revision, stands: asyncio.Future[None]) -> None:
        """The stream of a session that belongs to no request, for as long as the server has one."""
        parser = EventStreamParser()
        back = Resuming(failures=None)
        try:
            try:
                answer = await self._fetch(revision, parser)
            except ColonnadeError as error:
                if not passes(error):
                    raise
                stands.set_result(None)
                answer = await self._take_up_news(revision, parser, back)
            if not stands.done():
                stands.set_result(None)
            while True:
                await self._read(answer, parser, None, back)
                parser = resumed(parser)
                try:
                    answer = await self._take_up_news(revision, parser, back)
                except RemoteProtocolError:
                    if not parser.last_event_id:
                        raise
                    parser = (
                        EventStreamParser()
                    )  # D28: it has forgotten where we were; from now on, then
                    answer = await self._take_up_news(revision, parser, back)
        except SessionEnded as ended:
            self._close(str(ended))
            self._say_gone()
        except ColonnadeError as error:  # it has none, or not for us
            log.debug("no news from %s: %s", self._where, error)
        finally:
            if not stands.done():
                stands.set_result(None)

    async def _take_up_news(
        self, revision: Revision, parser: EventStreamParser, back: Resuming
    ) -> Answer:
        """The next connection of the stream of a session. Where the server cannot know what we
        have heard, what it told meanwhile is lost."""
        answer = await back.take_up(partial(self._fetch, revision, parser), parser)
        if not parser.last_event_id:
            self._hearer.missed()
        return answer

    # ------------------------------------------------------------ what comes in

    def _act(self, events: list[LinkEvent], own: Waiting | None = None) -> None:
        """Do what a message means. `own` is the call on whose stream it came."""
        for event in events:
            match event:
                case RequestFinished():
                    call = self._calls.get(event.id)
                    if call is not None:
                        call.outcome = event.outcome
                        if call is not own:
                            call.wake(_now())
                case ProgressReceived():
                    call = self._calls.get(event.id)
                    if call is not None:
                        call.ends(self.link.ends_at(call.id))
                        if call.progressed is not None:
                            call.progressed(event.params)
                case NotificationReceived():
                    self._hearer.told(event)
                    if event.subscription is not None:
                        self._keep_open(event.subscription)
                case RequestReceived():
                    self._exchanges[event.exchange] = self._spawn(self._answer(event.exchange, own))
                case RequestCancelled():
                    task = self._exchanges.get(event.exchange)
                    if task is not None:
                        task.cancel()
                case Send():
                    self._reply(event.data)
                case _:
                    pass

    def _reply(self, data: bytes) -> None:
        """What the link itself has to say to a message."""
        if len(self._courtesies) < MAX_COURTESIES:
            self._spawn_courtesy(data)
        elif not self._overwhelmed:  # once: or it could fill a log as fast as it can ask
            self._overwhelmed = True
            log.warning("%s is not answered: it asks too much at once", self._where)

    def _keep_open(self, subscription: RequestId) -> None:
        """A subscription that was acknowledged may last."""
        call = self._calls.get(subscription)
        if call is not None and call.method == LISTEN:
            call.ends(self.link.ends_at(call.id))

    async def _answer(self, exchange: Exchange, own: Waiting | None) -> None:
        """Answer a question, which is about the call on whose stream it came; or who knows."""
        turn = HttpClientTurn(exchange, self._say)
        held: tuple[int, ...] = ()
        if exchange.input_request is not None:
            held = self.link.pause_timeouts(_now(), own.id if own is not None else None)
            self._reset(held)
        try:
            data = await self._hearer.answer(turn)
            if data is not None and self._closed is None:
                await self._tell(data, f"the answer to {exchange.method.name}")
        except asyncio.CancelledError:
            exchange.abandon()
        except ColonnadeError as error:
            log.warning("an answer did not arrive: %s", error)
        finally:
            self._exchanges.pop(exchange, None)
            self.link.resume_timeouts(held, _now())
            self._reset(held)

    def _reset(self, ids: Iterable[RequestId]) -> None:
        """The time of these calls stands still, or goes on."""
        for id in ids:
            call = self._calls.get(id)
            if call is not None:
                call.ends(self.link.ends_at(id))

    @contextlib.contextmanager
    def _held(self) -> Generator[None, None, None]:
        """Nobody runs out of time while somebody logs in, which has an end of its own."""
        held = self.link.pause_timeouts(_now())
        self._reset(held)
        try:
            yield
        finally:
            self.link.resume_timeouts(held, _now())
            self._reset(held)

    async def _say(self, data: bytes) -> None:
        await self._tell(data, "a message")

    # ------------------------------------------------------------ the end

    def _close(self, why: str) -> None:
        """From here on nothing is said: whoever waits learns so."""
        if self._closed is not None:
            return
        self._closed = why
        now = _now()
        for event in self.link.close(why):
            call = self._calls.get(event.id) if isinstance(event, RequestFinished) else None
            if call is not None and isinstance(event, RequestFinished):
                call.outcome = event.outcome
        for call in list(self._calls.values()):
            if call.task is not None:
                call.task.cancel()
            else:
                call.wake(now)

    async def leave(self, why: str) -> None:
        """End it: whoever waits learns so, a session is left. At any time, and twice."""
        self._close(why)
        if self._leaving is None:
            loop = asyncio.get_running_loop()
            self._leaving = loop.create_task(self._finish(asyncio.current_task()))
        if self._leaving is not asyncio.current_task():
            await asyncio.wait([self._leaving])

    async def _finish(self, asking: "asyncio.Task[Any] | None") -> None:
        """Wait until nothing is left, but for the task that waits for this."""
        tasks = self._tasks - {asking}
        for task in tasks:
            task.cancel()
        if tasks or self._courtesies:
            await asyncio.wait(tasks | self._courtesies, timeout=COURTESY_S)
        session, self._session = self._session, None
        if session is not None and not self._over:
            with contextlib.suppress(ColonnadeError, TimeoutError):
                async with asyncio.timeout(COURTESY_S):
                    lines = rules.headers_for_session(self._revision, session)  # R0290
                    (await self._endpoint.send("DELETE", lines)).linger()
        self._say_gone()

    def _say_gone(self) -> None:
        if not self._gone:
            self._gone = True
            self._hearer.gone()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _spawn_courtesy(self, data: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._courtesy(data))
        self._courtesies.add(task)
        task.add_done_callback(self._courtesies.discard)


def _now() -> float:
    return asyncio.get_running_loop().time()
