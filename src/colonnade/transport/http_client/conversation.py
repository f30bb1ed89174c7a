"""The Streamable HTTP client transport: each message to the server is a POST of its own.

Responses, notifications and requests of the server come in the HTTP response: one JSON body, or an
event stream, which is resumed if the revision allows that. In a session one more stream (GET) has
what belongs to no request.

Rules: messages are checked by the link, not here. A request is sent in the task that waits for it,
and cancelled as its revision says. No request that may have had an effect is sent a second time.
Every wait has a timeout.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import (
    AuthError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.ports import (
    ConnectionEvents,
    Credentials,
    InputResponder,
    OnMembers,
    ProgressCallback,
)
from colonnade.protocol.exchange import LISTEN, Exchange, Network, NonHttpRequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.security import EVENTS_TYPE, JSON_TYPE
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.protocol.input_requests import InputRequest, RequestDeclaration
from colonnade.protocol.jsonrpc import (
    ErrorResponse,
    RequestId,
    ResultResponse,
    decode,
    decode_members,
)
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
from colonnade.protocol.link.link import MAX_S, DuplexLink
from colonnade.protocol.negotiation import HANDSHAKE_METHOD
from colonnade.protocol.revision import HttpCancellation, Revision
from colonnade.protocol.types import CallToolRequestParams, NotificationParams, RequestParams
from colonnade.transport.http_client.connect import HeaderLines
from colonnade.transport.http_client.endpoint import (
    Headers,
    HttpEndpoint,
    error_of,
    network_of,
)
from colonnade.transport.http_client.pool import ClientResponse, HttpPool
from colonnade.transport.http_client.resumption import (
    StreamResumption,
    is_transient,
    resumed_parser,
)

# A timer may fire that much early, by rounding alone.
ROUNDING_S = 0.001


class RequestTimeouts:
    """The deadlines of the requests of one conversation, by id, on one timer: nearly all of them
    end before it fires, and a timer for each would take longer than the rest of its timeout."""

    __slots__ = ("_fires_at", "_requests", "_timer", "loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, requests: "Mapping[RequestId, PendingRequest]"
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._requests = requests
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0

    def wake_at(self, when: float) -> None:
        """Look at the deadlines at this time, if that is not done before."""
        if self._timer is not None:
            if self._fires_at <= when:
                return
            self._timer.cancel()
        self._fires_at = when
        self._timer = self.loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now, later = self.loop.time() + ROUNDING_S, list[float]()
        for request in list(self._requests.values()):
            when = request.deadline
            if when is not None and when <= now:
                request.expire()
            elif when is not None:
                later.append(when)
        if later:
            self.wake_at(min(later))

    def close(self) -> None:
        """Stop the timer, unless a request still waits for it."""
        if self._timer is not None and not self._requests:
            self._timer.cancel()
            self._timer = None


class PendingRequest(Struct, eq=False, weakref=True):
    """One request to the server, its deadline, and its outcome. The link has its timeout.

    While it is entered, the task that waits is cancelled at the deadline, as by
    `asyncio.timeout_at`, in a fraction of the time: each request has one.
    """

    _timeouts: RequestTimeouts
    id: RequestId
    method: str
    timeout_s: float
    name: str | None = None
    # None for one that may stay open.
    deadline: float | None = None
    outcome: Raw | ColonnadeError | None = None
    # Whether the server may still be handling it.
    runs: bool = True
    on_progress: ProgressCallback | None = None
    on_members: OnMembers | None = None
    # Whose request it is: what comes on its stream belongs to that.
    owner: InputResponder | None = None
    task: "asyncio.Task[Raw] | None" = None
    # The task that waits for it, and how often that was cancelled before.
    _waiting: "asyncio.Task[Any] | None" = None
    _cancelling: int = 0
    _expired: bool = False

    @property
    def label(self) -> str:
        """Its name in an error: that of the tool or prompt, or its method."""
        return self.method if self.name is None else repr(self.name)

    # ------------------------------------------------------------ its deadline

    def __enter__(self) -> None:
        timeouts = self._timeouts
        task = asyncio.current_task(timeouts.loop)
        assert task is not None
        self._waiting = task
        self._cancelling = task.cancelling()
        if self.deadline is not None:
            timeouts.wake_at(self.deadline)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        task, self._waiting = self._waiting, None
        if (
            self._expired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the task that waits: the deadline has passed. One that has not begun to wait looks
        at its deadline then."""
        if self._waiting is not None:
            self._expired, self.deadline = True, None
            self._waiting.cancel()

    def set_deadline(self, when: float | None) -> None:
        """Set its deadline; None for a request that may stay open."""
        if self.outcome is None:
            self._set(when)

    def wake(self, now: float) -> None:
        """Wake the task that waits for it, after its outcome is set."""
        self._set(now)

    def _set(self, when: float | None) -> None:
        if not self._expired:
            self.deadline = when  # also before it is entered, which looks at it then
            if when is not None and self._waiting is not None:
                self._timeouts.wake_at(when)


class ClientRequestContext(NonHttpRequestFields):
    """The context of one request of the server; its response and notifications are POSTs."""

    __slots__ = ("_post", "exchange", "fault")

    def __init__(self, exchange: Exchange, post: Callable[[bytes], Awaitable[None]]) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._post = post

    @property
    def session(self) -> None:
        """None: a client keeps no session of its server."""
        return None

    async def send(self, frame: bytes) -> None:
        """POST a notification."""
        await self._post(frame)

    def post(self, frame: bytes) -> bool:
        """False: a POST must be awaited."""
        return False

    async def ask(self, input_request: InputRequest) -> Raw:
        """A client sends no requests while it handles one."""
        raise RemoteProtocolError(f"{input_request.kind.method} is sent by servers")

    async def hang_up(self) -> None:
        """Nothing: there is no stream to close."""


log: logging.Logger = logging.getLogger("colonnade.transport")

# As much as a line on stdio, since files are sent in base64.
MAX_BODY_BYTES = 64 * 1024 * 1024
# For a notification or a response: the server only has to accept it.
POST_TIMEOUT_S = 30.0
# Before a response is sent again that may not have arrived.
RESPONSE_DELAYS_S = (0.1, 0.5, 2.0)
# For messages that need not arrive: a cancellation, the end of a session.
BEST_EFFORT_S = 2.0
# Concurrent POSTs of responses to pings and to invalid messages: each needs a connection.
MAX_BEST_EFFORT_POSTS = 64
# For the GET stream of a session to open. Some servers send no headers before the first event.
SESSION_STREAM_S = 1.0

# Tools whose headers are kept.
MAX_CALL_HEADERS = 256

SESSION_HEADER = rules.SESSION_HEADER.lower()


class SessionEnded(ConnectionLost):
    """The server does not know the session any more; the request had no effect (R0287)."""

    not_sent: bool = True


class HttpConversation:
    """The conversation with one server. Raises `InvalidArgument` for what is not a URL."""

    def __init__(
        self,
        link: DuplexLink,
        events: ConnectionEvents,
        pool: HttpPool,
        url: str,
        *,
        headers: Headers = (),
        credentials: Credentials | None = None,
    ) -> None:
        self.link = link
        self._events = events
        self._endpoint = HttpEndpoint(pool, url, headers, credentials, self._pause_timeouts)
        self._extensions = frozenset(link.identity.capabilities.extensions or ())
        self._session: str | None = None
        # The headers of calls by the name of the tool, in a revision and a session.
        self._call_place: tuple[Revision | None, str | None] = (None, None)
        self._call_headers: dict[str, HeaderLines] = {}
        # Whether the server has ever opened a GET stream.
        self._had_stream = False
        self._session_lost = False
        self._calls: dict[RequestId, PendingRequest] = {}
        # Kept, since to get the running loop takes a system call in some versions of Python.
        self._loop = asyncio.get_running_loop()
        self._timeouts = RequestTimeouts(self._loop, self._calls)
        self._exchanges: dict[Exchange, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._best_effort_posts: set[asyncio.Task[Any]] = set()
        self._overload_logged = False
        self._closed: str | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed_reported = False

    @property
    def url(self) -> str:
        """The URL of the server, after redirects."""
        return self._endpoint.url

    @property
    def network(self) -> Network:
        """The address of the server, and the session."""
        return network_of(self.url, self._session or "")

    @property
    def _revision(self) -> Revision | None:
        return self.link.peer.revision if self.link.peer is not None else None

    # ------------------------------------------------------------ requests

    def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        *,
        on_progress: ProgressCallback | None = None,
        headers: Headers = (),
        probing: Revision | None = None,
        declared: RequestDeclaration | None = None,
        owner: InputResponder | None = None,
        on_members: OnMembers | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request and wait for its raw result, in this task."""
        lines = self._headers(method, params, probing)
        if headers:
            lines = lines.with_more(headers)
        progress = on_progress is not None
        call, data = self._open(method, params, timeout_s, progress, probing, declared)
        call.on_progress, call.owner, call.on_members = on_progress, owner, on_members
        return self._wait(call, data, lines)

    def _open(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        progress: bool,
        probing: Revision | None = None,
        declared: RequestDeclaration | None = None,
    ) -> tuple[PendingRequest, bytes]:
        if self._closed is not None:
            raise ConnectionLost(self._closed)
        now = self._loop.time()
        id, data = self.link.request(
            method,
            params,
            now=now,
            timeout_s=timeout_s,
            max_s=max(MAX_S, timeout_s),
            progress=progress,
            revision=probing,
            declared=declared,
        )
        name = getattr(params, "name", None)
        call = self._calls[id] = PendingRequest(self._timeouts, id, method, timeout_s, name)
        call.deadline = now + timeout_s  # as that of the link, while nothing extends it
        return call, data

    async def _wait(self, call: PendingRequest, data: bytes, lines: HeaderLines) -> Raw:
        try:
            with call:
                response = await self._endpoint.post(lines, data)
                if not self._receive_whole(call, response):
                    if 300 <= response.status < 400:
                        response = await self._endpoint.follow_post(response, lines, data)
                    await self._receive(call, response)
        except TimeoutError:
            if call.outcome is None:
                words = f"{self._where}: no answer to {call.method} within {call.timeout_s:g} s"
                raise TimedOut(words) from None
        except ColonnadeError as error:
            call.runs = isinstance(error, ConnectionLost) and error.status is None
            if not call.runs:
                raise
            lost = ConnectionLost(f"{error}, during {call.label}", server=error.server)
            lost.not_sent = isinstance(error, ConnectionLost) and error.not_sent
            call.runs = not lost.not_sent  # what the server has never seen is not cancelled there
            raise lost from None
        finally:
            self._calls.pop(call.id, None)
            if call.outcome is None:
                self._finish_request(call)
        outcome = call.outcome
        if isinstance(outcome, ColonnadeError):
            try:
                raise outcome
            finally:  # the exception refers to this frame
                del outcome, call
        assert outcome is not None
        return outcome

    def _finish_request(self, call: PendingRequest) -> None:
        """Remove a request; a server that still handles it is sent `notifications/cancelled`, if
        closing the response does not cancel it."""
        self._calls.pop(call.id, None)
        if call.outcome is not None or self._closed is not None:
            return
        revision = self._revision
        notification = None
        with contextlib.suppress(ColonnadeError):  # initialize cannot be cancelled
            notification = self.link.cancel(call.id, "no longer needed")
        if (
            notification is not None
            and call.runs
            and revision is not None
            and revision.http.cancellation is HttpCancellation.NOTIFICATION
        ):
            self._spawn_best_effort(notification)

    @property
    def _where(self) -> str:
        return self._endpoint.where

    def _headers(
        self, method: str, params: RequestParams, probing: Revision | None = None
    ) -> HeaderLines:
        revision = probing or self._revision
        name: object = None
        if type(params) is CallToolRequestParams:
            place, name = (revision, self._session), params.name
            if self._call_place != place:
                self._call_place, self._call_headers = place, {}
            known = self._call_headers.get(params.name)
            if known is not None:
                return known
        row = revision.method(method, self._extensions) if revision is not None else None
        if row is None:
            lines = self._extension_headers(method, params, revision)
            return self._endpoint.header_lines(lines)
        if row.name_field is not None:
            name = getattr(params, row.name_field, None)
        headers = rules.headers_for_request(row, revision, name, session=self._session)
        lines = self._endpoint.header_lines(headers)
        if type(params) is CallToolRequestParams:
            if len(self._call_headers) >= MAX_CALL_HEADERS:
                self._call_headers.clear()
            self._call_headers[params.name] = lines
        return lines

    def _extension_headers(
        self, method: str, params: RequestParams, revision: Revision | None
    ) -> list[tuple[str, str]]:
        """The headers of a method that no revision defines; the link refuses it if it belongs to
        no extension."""
        extension: str | None = getattr(params, "extension", None)
        if extension is None:
            return rules.headers_for_post(revision, self._session)
        from colonnade.protocol.extensions import extension_request  # on use: few have any

        row = extension_request(method, extension)
        return rules.headers_for_request(row, revision, session=self._session)

    def start_request(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request that stays open (a subscription) in a task of its own."""
        lines = self._headers(method, params)
        call, data = self._open(method, params, timeout_s, progress=False)
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        call.task = self._spawn(self._wait(call, data, lines))
        call.task.add_done_callback(partial(self._request_done, call, future))
        return call.id, future

    def _request_done(
        self, call: PendingRequest, future: asyncio.Future[Raw], task: "asyncio.Task[Raw]"
    ) -> None:
        call.task = None  # once cancelled, it refers to the call
        self._finish_request(call)  # which was not done if it was cancelled before it began
        error = call.outcome if task.cancelled() else task.exception()
        if future.done():
            return
        if isinstance(error, BaseException):
            future.set_exception(error)
        elif task.cancelled():
            future.cancel()
        else:
            future.set_result(task.result())

    def cancel_request(self, id: RequestId) -> None:
        """Cancel a request of `start_request`."""
        call = self._calls.get(id)
        if call is not None and call.task is not None:
            call.task.cancel()

    # ------------------------------------------------------------ opening

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the conversation with `initialize`, and a session if the server assigns one.

        R0056: a cancellation ends it, and so does any failure.
        """
        id = self.link.snapshot().next_id
        message = self.link.initialize(_now(), timeout_s, revision)
        call = self._calls[id] = PendingRequest(self._timeouts, id, HANDSHAKE_METHOD, timeout_s)
        call.deadline = self.link.ends_at(id)
        try:
            lines = self._endpoint.header_lines(rules.headers_for_post(None, None))
            outcome = await self._wait(call, message.data, lines)
        finally:
            if self.link.phase in (Phase.OPENING, Phase.CLOSED):
                self._close("the handshake was cancelled")
        if (
            self._best_effort_posts
        ):  # notifications/initialized, which must come before what follows
            await asyncio.wait(self._best_effort_posts, timeout=BEST_EFFORT_S)
        agreed = self._revision
        if agreed is not None and (self._session is not None or agreed.http.sessions):
            opened = asyncio.get_running_loop().create_future()
            self._spawn(self._read_session_stream(agreed, opened))
            await asyncio.wait([opened], timeout=SESSION_STREAM_S)
        return outcome

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Send a notification. Raises if the server does not accept it."""
        if self._closed is not None:
            raise ConnectionLost(f"{self._closed} before {method}")
        await self._post_message(self.link.notify(method, params), method)

    # ------------------------------------------------------------ POST

    async def _receive(self, call: PendingRequest, response: ClientResponse) -> None:
        """Receive the response to a request: a body, an event stream or a refusal."""
        try:
            if response.status != rules.OK:
                await self._handle_refusal(call, response)
            elif response.media == EVENTS_TYPE:
                self._read_headers(call, response)
                await self._stream(call, response)
                return
            else:
                self._read_headers(call, response)
                self._take_body(call, response, await response.read_all(MAX_BODY_BYTES))
            if isinstance(call.outcome, ColonnadeError):
                # By which the probe knows the era of a server (D13).
                call.outcome.status = response.status
        finally:
            response.close()

    def _receive_whole(self, call: PendingRequest, response: ClientResponse) -> bool:
        """The same without waiting, for a result whose body has come with its headers, as nearly
        all do; False if it has not."""
        body = response.whole
        if body is None or response.status != rules.OK or response.media == EVENTS_TYPE:
            return False
        try:
            self._read_headers(call, response)
            self._take_body(call, response, body)
        finally:
            response.close()
        if isinstance(call.outcome, ColonnadeError):
            call.outcome.status = response.status
        return True

    def _read_headers(self, call: PendingRequest, response: ClientResponse) -> None:
        if call.method == HANDSHAKE_METHOD:
            self._session = rules.assigned_session(response.header(SESSION_HEADER))
        self._endpoint.check_plain(response)

    def _take_body(self, call: PendingRequest, response: ClientResponse, body: bytes) -> None:
        if response.media == JSON_TYPE:
            self._handle_body(call, body)
        if call.outcome is None:
            raise self._endpoint.refusal(call.method, response, body)

    async def _handle_refusal(self, call: PendingRequest, response: ClientResponse) -> None:
        if self._is_session_lost(response):
            raise self._session_ended(call.method)
        body = await self._endpoint.read_refusal(response)
        refusal = self._endpoint.refusal(call.method, response, body)
        if isinstance(refusal, AuthError):  # takes precedence over the body
            raise refusal
        if response.media == JSON_TYPE:
            self._handle_body(call, body)
        if call.outcome is None:
            raise refusal

    def _is_session_lost(self, response: ClientResponse) -> bool:
        return response.status == rules.NOT_FOUND and self._session is not None  # R0288

    def _session_ended(self, method: str) -> SessionEnded:
        self._session_lost = True
        words = f"{self._where} answered {method} with 404: the session has ended"
        ended = SessionEnded(words, server=self._where)
        ended.status = rules.NOT_FOUND
        return ended

    def _handle_body(self, call: PendingRequest, body: bytes) -> None:
        try:
            frame = decode(body) if call.on_members is None else decode_members(body)
        except Fault as fault:
            # A body that is not JSON is quoted in the error of the request, which is clearer.
            if fault.settles is not None and fault.kind is not FaultKind.PARSE:
                self._handle_events(self.link.refuse(fault), call)
            return
        if isinstance(frame, ErrorResponse) and frame.id is None:
            # It could not parse the request, and so has no id; there is only one.
            call.outcome = error_of(frame)
            with contextlib.suppress(ColonnadeError):  # initialize cannot be cancelled
                self.link.cancel(call.id)
            return
        if (
            type(frame) is ResultResponse
            and frame.id == call.id
            and call.method != HANDSHAKE_METHOD
            and self.link.settle_call(call.id)
        ):  # as nearly all are: what `take` returns as an event
            call.outcome = frame.result
        else:
            self._handle_events(self.link.take(frame, self._loop.time()), call)
        if call.on_members is not None and isinstance(frame, ResultResponse) and frame.members:
            call.on_members(frame.result, frame.members)

    async def _post_message(self, data: bytes, method: str) -> None:
        """POST a notification or a response. Raises the error of the server."""
        lines = rules.headers_for_post(self._revision, self._session)
        try:
            async with asyncio.timeout(POST_TIMEOUT_S):
                response = await self._endpoint.send("POST", lines, data)
                async with response:
                    if response.status < 300:
                        response.linger()
                        return
                    body = await self._endpoint.read_refusal(response)
        except TimeoutError:
            words = f"{self._where} accepted no {method} within {POST_TIMEOUT_S:g} s"
            raise TimedOut(words, server=self._where) from None
        if self._is_session_lost(response):
            raise self._session_ended(method)
        raise self._endpoint.message_error(method, response, body)

    async def _post_response(self, data: bytes, method: str) -> None:
        """POST a response, again if it may not have arrived: the server takes it once, by its id,
        and without it waits for as long as for a user."""
        for delay_s in (*RESPONSE_DELAYS_S, None):
            if self._closed is not None:
                return
            try:
                await self._post_message(data, method)
            except ColonnadeError as error:
                if delay_s is None or not is_transient(error):
                    raise
                await asyncio.sleep(delay_s)
            else:
                return

    async def _post_best_effort(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(BEST_EFFORT_S):
                await self._post_message(data, "a message")
        except (ColonnadeError, TimeoutError) as error:
            log.debug("%s did not accept a message: %s", self._where, error)

    # ------------------------------------------------------------ streams

    async def _stream(self, call: PendingRequest, response: ClientResponse) -> None:
        """Read the stream of a request until its response; resume it if it breaks."""
        parser = EventStreamParser()
        resumption = StreamResumption()
        while True:
            cut = await self._read(response, parser, call, resumption)
            if call.outcome is not None:
                return
            revision = self._revision
            words = f"{self._where}: the stream ended without a response{cut and f' ({cut})'}"
            # Streamable HTTP is used for every revision with a handshake, also the one before it.
            if revision is None or not revision.handshake or not parser.last_event_id:
                raise ConnectionLost(words)
            parser = resumed_parser(parser)
            try:
                response = await resumption.reconnect(
                    partial(self._fetch, revision, parser), parser
                )
            except ColonnadeError as error:  # D28: the server does not resume it
                raise ConnectionLost(f"{words}, and cannot be resumed: {error}") from None

    async def _read(
        self,
        response: ClientResponse,
        parser: EventStreamParser,
        call: PendingRequest | None,
        resumption: StreamResumption,
    ) -> str:
        """Read a stream until it ends, or the response has come; returns the error if it broke.

        Raises `RemoteProtocolError` for a stream that breaks its bounds.
        """
        async with response:
            try:
                while data := await response.read():
                    for event in parser.feed(data):
                        if event.data and event.event == "message":
                            resumption.on_event()
                            self._handle_events(self.link.receive(event.data, _now()), call)
                    if call is not None and call.outcome is not None:
                        response.linger()
                        return ""
                parser.end()
            except Fault as fault:
                raise RemoteProtocolError(f"{self._where}: {fault}") from None
            except (ConnectionLost, RemoteProtocolError) as error:
                return str(error)
        return ""

    async def _fetch(self, revision: Revision, parser: EventStreamParser) -> ClientResponse:
        """Open a GET stream. Raises if there is none, with the status."""
        lines = rules.headers_for_stream(revision, self._session, parser.last_event_id)
        response = await self._endpoint.send("GET", lines)
        if response.status == rules.OK and response.media == EVENTS_TYPE:
            try:
                self._endpoint.check_plain(response)
            except BaseException:
                response.close()
                raise
            self._had_stream = True
            return response
        async with response:
            # Before there was any stream, 404 means that the server has none and accepts POST only.
            # If the session has ended, the next POST fails with 404 (D45).
            if self._is_session_lost(response) and (self._had_stream or parser.last_event_id):
                raise self._session_ended("GET")
            raise self._endpoint.refusal(
                "GET", response, await self._endpoint.read_refusal(response)
            )

    async def _read_session_stream(self, revision: Revision, opened: asyncio.Future[None]) -> None:
        """Read the GET stream of a session, for as long as the server has one."""
        parser = EventStreamParser()
        resumption = StreamResumption(failures=None)
        try:
            try:
                response = await self._fetch(revision, parser)
            except ColonnadeError as error:
                if not is_transient(error):
                    raise
                opened.set_result(None)
                response = await self._reconnect_session_stream(revision, parser, resumption)
            if not opened.done():
                opened.set_result(None)
            while True:
                await self._read(response, parser, None, resumption)
                parser = resumed_parser(parser)
                try:
                    response = await self._reconnect_session_stream(revision, parser, resumption)
                except RemoteProtocolError:
                    if not parser.last_event_id:
                        raise
                    parser = EventStreamParser()  # D28: the events are gone; start a new stream
                    response = await self._reconnect_session_stream(revision, parser, resumption)
        except SessionEnded as ended:
            self._close(str(ended))
            self._report_closed()
        except ColonnadeError as error:  # it has none, or refuses it
            log.debug("no GET stream from %s: %s", self._where, error)
        finally:
            if not opened.done():
                opened.set_result(None)

    async def _reconnect_session_stream(
        self, revision: Revision, parser: EventStreamParser, resumption: StreamResumption
    ) -> ClientResponse:
        """Reconnect the GET stream of a session. Without a last event id, notifications that were
        sent meanwhile are lost."""
        response = await resumption.reconnect(partial(self._fetch, revision, parser), parser)
        if not parser.last_event_id:
            self._events.on_missed_notifications()
        return response

    # ------------------------------------------------------------ messages of the server

    def _handle_events(self, events: list[LinkEvent], own: PendingRequest | None = None) -> None:
        """Apply the events of a message. `own` is the call on whose stream it came."""
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
                        call.set_deadline(self.link.ends_at(call.id))
                        if call.on_progress is not None:
                            call.on_progress(event.params)
                case NotificationReceived():
                    self._events.on_notification(_owned(event, own))
                    if event.subscription is not None:
                        self._keep_open(event.subscription)
                case RequestReceived():
                    self._exchanges[event.exchange] = self._spawn(
                        self._handle_request(event.exchange, own)
                    )
                case RequestCancelled():
                    task = self._exchanges.get(event.exchange)
                    if task is not None:
                        task.cancel()
                case Send():
                    self._reply(event.data)
                case _:
                    pass

    def _reply(self, data: bytes) -> None:
        """Send a response of the link itself."""
        if len(self._best_effort_posts) < MAX_BEST_EFFORT_POSTS:
            self._spawn_best_effort(data)
        elif not self._overload_logged:  # once: a server must not fill the log
            self._overload_logged = True
            log.warning("%s sends too many requests at once; some get no response", self._where)

    def _keep_open(self, subscription: RequestId) -> None:
        """An acknowledged subscription has no timeout."""
        call = self._calls.get(subscription)
        if call is not None and call.method == LISTEN:
            call.set_deadline(self.link.ends_at(call.id))

    async def _handle_request(self, exchange: Exchange, own: PendingRequest | None) -> None:
        """Handle a request of the server, which belongs to the call on whose stream it came, if
        any."""
        exchange.owner = own.owner if own is not None else None
        request = ClientRequestContext(exchange, self._post_notification)
        paused: tuple[RequestId, ...] = ()
        if exchange.input_request is not None:
            paused = self.link.pause_timeouts(_now(), own.id if own is not None else None)
            self._reset(paused)
        try:
            data = await self._events.handle_request(request)
            if data is not None:
                await self._post_response(data, f"the response to {exchange.method.name}")
        except asyncio.CancelledError:
            exchange.abandon()
        except ColonnadeError as error:
            log.warning("a response did not arrive: %s", error)
        finally:
            self._exchanges.pop(exchange, None)
            self.link.resume_timeouts(paused, _now())
            self._reset(paused)

    def _reset(self, ids: Iterable[RequestId]) -> None:
        """Apply the timeouts of these calls, which were paused or resumed."""
        for id in ids:
            call = self._calls.get(id)
            if call is not None:
                call.set_deadline(self.link.ends_at(id))

    @contextlib.contextmanager
    def _pause_timeouts(self) -> Generator[None, None, None]:
        """Pause all timeouts while a user logs in, which has a timeout of its own."""
        paused = self.link.pause_timeouts(_now())
        self._reset(paused)
        try:
            yield
        finally:
            self.link.resume_timeouts(paused, _now())
            self._reset(paused)

    async def _post_notification(self, data: bytes) -> None:
        await self._post_message(data, "a message")

    # ------------------------------------------------------------ closing

    def _close(self, why: str) -> None:
        """Fail all pending requests; nothing is sent from here on."""
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

    async def aclose(self, why: str) -> None:
        """Close it: fail pending requests, delete the session. May be called twice."""
        self._close(why)
        if self._closing is None:
            loop = asyncio.get_running_loop()
            self._closing = loop.create_task(self._finish(asyncio.current_task()))
        if self._closing is not asyncio.current_task():
            await asyncio.wait([self._closing])

    async def _finish(self, current: "asyncio.Task[Any] | None") -> None:
        """Wait for all tasks, but for the one that waits for this."""
        tasks = self._tasks - {current}
        for task in tasks:
            task.cancel()
        if tasks or self._best_effort_posts:
            await asyncio.wait(tasks | self._best_effort_posts, timeout=BEST_EFFORT_S)
        self._timeouts.close()
        session, self._session = self._session, None
        if session is not None and not self._session_lost:
            with contextlib.suppress(ColonnadeError, TimeoutError):
                async with asyncio.timeout(BEST_EFFORT_S):
                    lines = rules.headers_for_session(self._revision, session)  # R0290
                    (await self._endpoint.send("DELETE", lines)).linger()
        self._report_closed()

    def _report_closed(self) -> None:
        if not self._closed_reported:
            self._closed_reported = True
            self._events.on_closed()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _spawn_best_effort(self, data: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._post_best_effort(data))
        self._best_effort_posts.add(task)
        task.add_done_callback(self._best_effort_posts.discard)


def _owned(event: NotificationReceived, own: PendingRequest | None) -> NotificationReceived:
    """A notification, with the owner of the request on whose stream it came."""
    return event if own is None or own.owner is None else replace(event, owner=own.owner)


def _now() -> float:
    return asyncio.get_running_loop().time()
