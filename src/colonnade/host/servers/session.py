"""A hosted session: one open client connection to one server, and the calls that use it.

Input requests (elicitation, sampling), log messages and progress of the server are routed to the
call that they belong to. An input request in a result belongs to that call, and so does what comes
on the stream of the call, over HTTP; `session_input` has those that are sent as requests.

Rules: nothing of one caller reaches another: output that may have been written for one caller (a
log message, the last lines of stderr) is never given to another. Sessions are opened, chosen and
counted by the supervisor, not here. Input requests of a call that a gateway forwards are handed
back or sent on in the revision of its client; none is sent to one that did not declare it.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.structs import replace

from colonnade.client.client import Client
from colonnade.client.input_callbacks import CallbackQueue
from colonnade.client.request import (
    ELICITATION_COMPLETE,
    LOG_MESSAGE,
    MAX_ROUNDS,
    ROOTS_CHANGED,
    OnProgress,
    OriginalCaller,
)
from colonnade.client.results import show_crash
from colonnade.client.subscriptions import LISTS
from colonnade.client.transports import (
    ChannelTransport,
    MemoryTransport,
    ProcessTransport,
)
from colonnade.errors import (
    NO_OUTPUT,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    Refused,
    RemoteError,
    RemoteProtocolError,
)
from colonnade.host.servers.callers import CallerKey, LastCaller, SamplingRates
from colonnade.host.servers.restarts import SharedStart
from colonnade.host.servers.session_input import (
    ReviewRoots,
    SendInputRequest,
    SessionInputRequests,
    may_be_asked,
)
from colonnade.host.servers.url_elicitations import SessionUrlElicitations, url_of_request
from colonnade.ports import (
    ClientTransport,
    ConnectionEvents,
    Conversation,
    InputRelay,
    OpenConversation,
    RequestContext,
    Session,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import (
    NO_INPUT,
    AnyInputResponse,
    InputCapabilities,
    InputRequest,
    InputRequestKind,
    checked_input_requests,
    input_requests_in,
    retry_params,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.revision import InputRequests, LogControl
from colonnade.transport.process.output import plain

log: logging.Logger = logging.getLogger("colonnade.host")

# Of stderr: the reason why a program ended is in its last lines.
STDERR_LINES = 100
STDERR_CHARACTERS = 500

# Results that have input requests for the caller of a forwarded request.
HANDED_BACK = (t.InputRequiredResult, t.ExtGetTaskResult)

State: TypeAlias = Literal["idle", "starting", "ready", "backing_off", "given_up", "stopped"]


class Status(Struct, frozen=True, kw_only=True):
    """The status of a server. `since` is when the state began (Unix time); `pid` is its first
    process, for stdio; `sessions` is how many sessions are open; `stderr` is what it wrote last.
    Crashes are counted by caller: `callers_given_up` is how many callers are refused until the
    server is restarted or `crashes_s` have passed. Without open sessions, `state` is the worst
    state that any caller sees."""

    key: str
    state: State
    since: float
    revision: str | None = None
    pid: int | None = None
    sessions: int = 0
    in_flight: int = 0
    crashes: int = 0
    callers_given_up: int = 0
    last_error: str | None = None
    stderr: tuple[str, ...] = ()


class StderrBuffer:
    """A ring buffer of the last lines of stderr."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)

    def append(self, line: str) -> None:
        """Add a line."""
        for clean in plain(line.encode()):
            self._lines.append(clean[:STDERR_CHARACTERS])

    def last(self, most: int = STDERR_LINES) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)[-most:]


# ---------------------------------------------------------------- session


if TYPE_CHECKING:
    from colonnade.client.tasks.task import ClientTask
    from colonnade.host.servers.homes import SessionHome
    from colonnade.protocol.forwarded import ResultOrigin
    from colonnade.transport.process.child import Child
# Input requests of tasks that a session remembers: those of some hundred tasks at a time.
MAX_TASK_INPUT = 1000
UPDATE_TASK = "tasks/update"

# What the names of `Mcp-Param` headers begin with. `protocol/http/param_headers` is loaded on use.
PARAM_KEY_PREFIX: Final = b"mcp-param-"

# How long a result waits for the progress callbacks of its call.
FINAL_PROGRESS_S = 1.0

# Called with the key of a server and the task that a call has become there; returns whether the
# caller waits for the task itself.
OnTask: TypeAlias = Callable[[str, "ClientTask"], Awaitable[bool]]


def remove_output(error: ChannelError) -> None:
    """Remove the server's output from an error, and the exceptions that it was raised from: the
    output may have been written for another caller."""
    error.output = NO_OUTPUT
    error.__cause__ = error.__context__ = None


def reads_list(request: RequestContext) -> bool:
    """Whether a request reads a list, which the host keeps for all clients of a principal."""
    result = request.exchange.method.result
    return result is not None and result.is_list_page


def _param_headers(context: RequestContext) -> Mapping[bytes, bytes] | None:
    """The headers of a request that has `Mcp-Param` headers, in a revision where these are compared
    with the body; None for nearly all."""
    headers = context.headers
    if not headers or not context.exchange.peer.revision.http.routing_headers:
        return None
    return headers if PARAM_KEY_PREFIX in b"\n".join(headers) else None


# ---------------------------------------------------------------- state


class Isolation(Enum):
    """Which callers may use a session."""

    # The server keeps state for the connection, or has credentials of the caller: one at a time.
    PER_CALLER = "per caller"
    # Each request is independent of the others: all callers.
    STATELESS = "stateless"
    # The settings say `sharing = "shared"`: all callers, without log messages or input requests.
    SHARED = "shared"


class SessionState(Enum):
    """Where a session is in its life."""

    STARTING = "starting"
    READY = "ready"
    # A call ended without a response, so the server may still be working on it.
    UNSETTLED = "unsettled"
    # The same, and it is being pinged because that call timed out.
    PROBING = "probing"
    # Takes no new calls; closed after the last one.
    RETIRED = "retired"
    CLOSED = "closed"


class SessionEvent(Enum):
    """What changes the state of a session."""

    OPENED = "opened"
    RESPONSE_MISSING = "a call ended without a response"
    PROBE_STARTED = "probe started"
    PROBE_ENDED = "probe ended"
    RETIRE = "retire"
    CLOSE = "close"


_S, _E = SessionState, SessionEvent

# An event that is not in the row of a state is a programming error there.
TRANSITIONS: Final[dict[SessionState, dict[SessionEvent, SessionState]]] = {
    _S.STARTING: {_E.OPENED: _S.READY, _E.CLOSE: _S.CLOSED},
    _S.READY: {
        _E.RESPONSE_MISSING: _S.UNSETTLED,
        _E.RETIRE: _S.RETIRED,
        _E.CLOSE: _S.CLOSED,
    },
    _S.UNSETTLED: {
        _E.RESPONSE_MISSING: _S.UNSETTLED,
        _E.PROBE_STARTED: _S.PROBING,
        _E.RETIRE: _S.RETIRED,
        _E.CLOSE: _S.CLOSED,
    },
    _S.PROBING: {
        _E.RESPONSE_MISSING: _S.PROBING,
        _E.PROBE_ENDED: _S.UNSETTLED,
        _E.RETIRE: _S.RETIRED,
        _E.CLOSE: _S.CLOSED,
    },
    _S.RETIRED: {
        _E.RESPONSE_MISSING: _S.RETIRED,
        _E.PROBE_ENDED: _S.RETIRED,
        _E.RETIRE: _S.RETIRED,
        _E.CLOSE: _S.CLOSED,
    },
    _S.CLOSED: {
        _E.RESPONSE_MISSING: _S.CLOSED,
        _E.PROBE_ENDED: _S.CLOSED,
        _E.RETIRE: _S.CLOSED,
        _E.CLOSE: _S.CLOSED,
    },
}


_REFUSES_CALLS: Final = (_S.RETIRED, _S.CLOSED)


# ---------------------------------------------------------------- transport


class SessionTransport:
    """The transport of a session, which also reports log messages and the end of the connection to
    the session. `can_reconnect` is whether the client may connect again by itself."""

    def __init__(
        self, transport: ClientTransport, session: "HostedSession", *, can_reconnect: bool
    ) -> None:
        self.name: str = transport.name
        self.key: Hashable | None = transport.key
        self.can_reconnect: bool = can_reconnect
        self.restarts: bool = transport.restarts
        self.mirrors: bool = transport.mirrors
        self.always_handshakes: bool = transport.always_handshakes
        self.legacy_sse: ClientTransport | None = None
        if transport.legacy_sse is not None:
            self.legacy_sse = SessionTransport(
                transport.legacy_sse, session, can_reconnect=can_reconnect
            )
        self._transport = transport
        self._session = session

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """Open a channel, as the transport does."""
        carry = await self._transport.open_channel(timeout_s)

        def carry_for_session(link: DuplexLink, events: ConnectionEvents) -> Conversation:
            return carry(link, SessionEvents(events, self._session))

        return carry_for_session

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()


class SessionEvents:
    """Passes everything that a server sends on to the client, and log messages and the end of the
    connection to the session as well."""

    def __init__(self, client: ConnectionEvents, session: "HostedSession") -> None:
        self._client = client
        self._session = session

    def handle_request(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Answer a request of the server."""
        return self._client.handle_request(request)

    def on_notification(self, notification: NotificationReceived) -> None:
        """Handle a notification of the server."""
        self._client.on_notification(notification)
        if self._session.home is not None:
            self._session.home.notified(notification)
        if notification.method.name in LISTS:
            self._session.forget_reviews()
        elif notification.method.name == LOG_MESSAGE:
            with contextlib.suppress(Fault):  # R0233: never answered
                self._session.log_received(
                    decode_as(t.LoggingMessageNotificationParams, notification.params),
                    notification.owner,
                )
        elif notification.method.name == ELICITATION_COMPLETE:
            with contextlib.suppress(Fault):
                self._session.elicitation_completed(
                    decode_as(t.ElicitationCompleteNotificationParams, notification.params)
                )

    def on_missed_notifications(self) -> None:
        """Notifications were lost."""
        self._client.on_missed_notifications()
        self._session.forget_reviews()

    def on_closed(self) -> None:
        """The connection has ended."""
        self._session.interrupted = tuple(self._session.calls)
        self._client.on_closed()
        self._session.connection_lost()


# ---------------------------------------------------------------- calls


class SessionCall(Struct, eq=False, weakref=True):
    """One call on a session, from when it was given the session until it is done."""

    session: "HostedSession"
    context: RequestContext
    # The session of its client, and what its caller can be asked.
    client_session: Hashable
    input: InputCapabilities
    # Whether it lasts beside the requests of its caller, such as a subscription.
    is_background: bool = False
    # The input requests that its caller has not answered yet.
    input_requests: "list[asyncio.Future[Raw]]" = field(default_factory=list["asyncio.Future[Raw]"])
    _callbacks: CallbackQueue | None = None

    @property
    def client(self) -> Client:
        """The client, for requests that are not made for a caller, such as lists."""
        return self.session.client

    async def request(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        wants_task: bool = False,
        on_task: OnTask | None = None,
        origin: "ResultOrigin | None" = None,
    ) -> t.ProtocolType:
        """Send a request for this call and return the result. Input requests go to its caller.

        Progress that was received before the result is delivered before it, within
        `FINAL_PROGRESS_S`. `wants_task` is whether the caller asks for a task, in revisions where
        the client decides that; `on_task` is called if the call has become one. `origin` gets the
        result as it was written.
        """
        exchange, relay = self.context.exchange, self.context.input_relay
        if exchange.peer.log_level is not None:
            await self.session.lower_log_level(exchange.peer.log_level)
        client = self.session.client
        caller = OriginalCaller(
            self,
            exchange.principal,
            exchange.log_level,
            wants_task,
            None if on_task is None else partial(on_task, client.name),
            origin,
            self.input,
            relay is not None and relay.in_results,
            relay is not None,
            _param_headers(self.context),
        )
        report = None if on_progress is None else self._queued(on_progress)
        try:
            result = await client.forward(method, params, timeout_s, report, caller)
            if relay is not None and isinstance(result, HANDED_BACK):
                send = partial(
                    client.forward, method, timeout_s=timeout_s, on_progress=report, caller=caller
                )
                result = await self._hand_back(result, relay, params, send)
        except ChannelError as error:
            self.session.on(SessionEvent.RESPONSE_MISSING)
            if self.session.served_several:
                remove_output(error)
            raise
        except RemoteError as error:
            if origin is not None:
                origin.revision = self.client.peer.revision
            show_crash(self.session.child, error)
            if self.context.input_relay is not None:
                self.session.url_elicitations.pass_on(error, self.client.peer, self.context)
            raise
        except asyncio.CancelledError:
            self.session.on(SessionEvent.RESPONSE_MISSING)
            raise
        if self._callbacks is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FINAL_PROGRESS_S):
                    await self._callbacks.wait_for_callbacks()
        if isinstance(result, t.CallToolResult) and result.is_error:
            show_crash(self.session.child, result)
        if self.session.url_elicitations.asked:
            await self._complete_url_elicitations()
        return result

    async def _hand_back(
        self,
        result: t.InputRequiredResult | t.ExtGetTaskResult,
        relay: InputRelay,
        params: t.RequestParams,
        send: Callable[[t.RequestParams], Awaitable[t.ProtocolType]],
    ) -> t.ProtocolType:
        """A result for a caller that handles input requests itself."""
        if isinstance(result, t.ExtGetTaskResult):
            return await self._relay_state(result)
        return await self._relay(result, relay, params, send)

    async def _relay(
        self,
        result: t.ProtocolType,
        relay: InputRelay,
        params: t.RequestParams,
        send: Callable[[t.RequestParams], Awaitable[t.ProtocolType]],
    ) -> t.ProtocolType:
        """Hand a result that requires input back to the caller; the request is sent again for as
        long as the host can answer all that it requires."""
        for _ in range(MAX_ROUNDS):
            if not isinstance(result, t.InputRequiredResult):
                return result
            answered = await self._answer_roots(result)
            if not answered or answered.keys() != (result.input_requests or {}).keys():
                return self._handed_back(result, relay, answered)
            assert isinstance(params, t.InputResponseRequestParams)
            encoder = self.client.conversation.link.encoder(self.client.peer.revision)
            params = retry_params(params, result, answered, encoder)
            result = await send(params)
        message = f"the roots were required {MAX_ROUNDS} times without a result"
        raise RemoteProtocolError(message).with_server(self.client.name)

    async def _answer_roots(self, result: t.InputRequiredResult) -> dict[str, AnyInputResponse]:
        """The responses to what a result requires of the host: roots of the configuration."""
        if not self.session.input_requests.answers_roots:
            return {}
        return {
            key: await self.session.input_requests.for_calls(request, (self,))
            for key, request in input_requests_in(result).items()
            if request.kind is InputRequestKind.ROOTS
        }

    def _handed_back(
        self,
        result: t.InputRequiredResult,
        relay: InputRelay,
        answered: Mapping[str, AnyInputResponse],
    ) -> t.InputRequiredResult:
        """A result for the caller, without what is answered already."""
        rest = {
            key: request
            for key, request in (result.input_requests or {}).items()
            if key not in answered
        }
        for request in rest.values():
            if isinstance(request, t.CreateMessageRequest):
                try:
                    self.session.input_requests.count_sample(self.context.exchange.principal)
                except Fault as fault:
                    raise Refused(fault.message).with_server(self.client.name) from None
        relay.relayed(self.client.name, {key: Raw(encode(one)) for key, one in answered.items()})
        if not answered:
            return result
        return replace(result, input_requests=rest)

    async def _relay_state(self, state: t.ExtGetTaskResult) -> t.ExtGetTaskResult:
        """The state of a task for the caller, without the input requests that the host answers."""
        if not state.input_requests:
            return state
        required = t.InputRequiredResult(input_requests=state.input_requests)
        own, client = self.session.input_requests, self.client
        try:
            declared = self.input.declared_in(own.capabilities)
            checked_input_requests(required, declared, client.peer.revision)
        except Fault as fault:
            message = f"a task requires input that its caller does not support: {fault.message}"
            raise RemoteProtocolError(message).with_server(client.name) from None
        answered = await self._answer_roots(required)
        rest = {key: one for key, one in state.input_requests.items() if key not in answered}
        for key, request in rest.items():
            is_new = self.session.note_task_input(state.task_id, key)
            if is_new and isinstance(request, t.CreateMessageRequest):
                try:
                    own.count_sample(self.context.exchange.principal)
                except Fault as fault:
                    raise Refused(fault.message).with_server(client.name) from None
        if not answered:
            return state
        from colonnade.protocol.tasks.client import update_task_params  # on use: few are asked so

        encoder = client.conversation.link.encoder(client.peer.revision)
        given = update_task_params(state.task_id, state.input_requests, answered, encoder)
        await client.ask(UPDATE_TASK, given, answers=self)
        status: t.TaskStatus = "input_required" if rest else "working"
        return replace(state, status=status, input_requests=rest or None)

    @property
    def may_be_asked(self) -> bool:
        """Whether an input request may belong to it."""
        return may_be_asked(self.context)

    async def _complete_url_elicitations(self, asked_again: Collection[str] = ()) -> None:
        """Notify the caller that URL elicitations are complete: the server has gone on after them.
        One that sends input requests of its own sends that notification itself."""
        urls = self.session.url_elicitations
        if self.client.peer.revision.input_requests is InputRequests.IN_RESULT:
            for frame in urls.completed(self.context, asked_again):
                await self.send_notification(frame)

    def call_back(self, callback: Callable[..., Any], *arguments: Any, size: int) -> None:
        """Run a callback of this call after those before it; callbacks of other calls do not wait
        for it. `size` is how many bytes the server sent for it."""
        if self._callbacks is None:
            self._callbacks = CallbackQueue()
        self._callbacks.call(callback, *arguments, size=size)

    def _queued(self, on_progress: OnProgress) -> OnProgress:
        def report(progress: float, total: float | None, message: str | None) -> None:
            self.call_back(on_progress, progress, total, message, size=len(message or ""))

        return report

    async def send_notification(self, frame: bytes) -> None:
        """Send a notification to the caller, unless it has disconnected."""
        if not self.context.post(frame):
            with contextlib.suppress(ColonnadeError):
                await self.context.send(frame)

    async def respond(self, request: InputRequest) -> AnyInputResponse:
        """Return the caller's result of an input request that belongs to this call."""
        return await self.session.input_requests.for_calls(request, (self,))

    async def respond_all(
        self, requests: Mapping[str, InputRequest]
    ) -> dict[str, AnyInputResponse]:
        """Return the caller's results. Sent one after the other, since there is one user."""
        await self._complete_url_elicitations(
            [url for one in requests.values() if (url := url_of_request(one)) is not None]
        )
        return {key: await self.respond(request) for key, request in requests.items()}

    @property
    def has_callbacks(self) -> bool:
        """Whether `end` has anything to stop."""
        return self._callbacks is not None

    async def end(self) -> None:
        """Stop the callbacks of this call."""
        if self._callbacks is not None:
            await self._callbacks.close()


# ---------------------------------------------------------------- sessions


class HostedSession:
    """One client connection to one server. `caller` is the caller that it belongs to, None for
    all."""

    def __init__(
        self, on_lost: Callable[["HostedSession"], None], server_stderr: StderrBuffer
    ) -> None:
        self._on_lost = on_lost
        self._server_stderr = server_stderr
        self._stderr = StderrBuffer()
        self._transport: ClientTransport | None = None
        self._first_caller: str | None = None
        self._several_principals = False
        self._contain: Callable[[Any], Any] | None = None
        self._first_session: Hashable = None
        self._reconnects = False
        # The session of the client that it belongs to.
        self._client_session: tuple[Session, str] | None = None
        self._sends_roots_changed = False
        self._log_level: t.LoggingLevel | None = None
        # The caller that it belongs to, None for all; and whether it has served more than lists.
        self.key: CallerKey | None = None
        self.had_calls: bool = False
        self.state: SessionState = SessionState.STARTING
        self.isolation: Isolation = Isolation.PER_CALLER
        # Whether calls of more than one caller were made on it.
        self.served_several: bool = False
        self.start: SharedStart[HostedSession] | None = None
        # The right of this replica to have it, if there are several.
        self.home: SessionHome | None = None
        # Whether another replica has it, and this is a connection to it.
        self.is_elsewhere: bool = False
        self.caller: str | None = None
        self.calls: dict[SessionCall, None] = {}
        # The callers with calls in flight when the connection ended, and the caller whose call
        # opened the connection.
        self.interrupted: tuple[SessionCall, ...] = ()
        self.opened_for: Hashable = None
        # What the lists of this very session were found to be, by kind, and when they were read.
        # Empty without pins. A pinned session is not opened again below a call.
        self.is_pinned: bool = False
        self.reviews: dict[str, tuple[object, float]] = {}
        # How often they may have changed: a list that was read meanwhile is not current.
        self.list_changes: int = 0
        # The input requests of tasks that were passed on: a state is read again and again.
        self._task_input: dict[tuple[str, str], None] = {}
        self.opened_at: float = 0.0
        self.idle_since: float = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def on(self, event: SessionEvent) -> None:
        """Change the state as `TRANSITIONS` says."""
        self.state = TRANSITIONS[self.state][event]

    def forget_reviews(self) -> None:
        """Its lists may have changed, so that they are read again before the next call."""
        self.list_changes += 1
        self.reviews.clear()

    def create_client(
        self,
        transport: ClientTransport,
        *,
        input: InputCapabilities = NO_INPUT,
        send_input_request: SendInputRequest,
        roots: Collection[str] | Literal["caller"],
        rates: SamplingRates,
        review_roots: ReviewRoots | None = None,
        may_reconnect: bool = True,
        contain: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> Client:
        """Create the client on a transport; `input` is what it declares to the server. Without
        `may_reconnect`, a session that is lost is never opened again below a call: the call gets
        another session, and is checked again."""
        # Kept, since to get the running loop takes a system call in some versions of Python.
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._transport = transport
        self._contain = contain
        self.url_elicitations: SessionUrlElicitations = SessionUrlElicitations(transport.name)
        # A client of HTTP connects again by itself. For any other transport the supervisor decides
        # whether there is another session.
        self._reconnects = transport.can_reconnect and transport.mirrors and may_reconnect
        self.is_pinned = not may_reconnect
        self.input_requests: SessionInputRequests = SessionInputRequests(
            lambda: self.calls, input, send_input_request, roots, rates, review_roots
        )
        tracked = SessionTransport(transport, self, can_reconnect=self._reconnects)
        self.client: Client = Client(tracked, self.input_requests, **options)
        return self.client

    @property
    def has_client(self) -> bool:
        """Whether there is a client to close."""
        return self._transport is not None

    @property
    def can_stop(self) -> bool:
        """Whether it can be closed while it is idle; a server in this process cannot."""
        return not isinstance(self._transport, MemoryTransport | ChannelTransport)

    @property
    def has_url(self) -> bool:
        """Whether it is at a URL."""
        return self._transport is not None and self._transport.mirrors

    @property
    def accepts_calls(self) -> bool:
        """Whether a new call may use it."""
        return self.state not in _REFUSES_CALLS and not self.is_lost

    @property
    def is_unsettled(self) -> bool:
        """Whether the server may still be working on a call that ended without a response."""
        return self.state in (SessionState.UNSETTLED, SessionState.PROBING)

    @property
    def is_shared(self) -> bool:
        """Whether all callers use it."""
        return self.isolation is not Isolation.PER_CALLER

    @property
    def only_caller(self) -> CallerKey | None:
        """The only caller that has used it."""
        if self.served_several or self._first_caller is None:
            return None
        return CallerKey(self._first_caller, self._first_session)

    @property
    def suspects(self) -> frozenset[Hashable]:
        """The callers that may have caused the end of this session. Lists are read for the host,
        not for a caller. For a session that several callers have used, only callers with calls in
        flight are suspects."""
        if self.served_several:
            return frozenset(
                CallerKey(call.context.exchange.principal, call.client_session)
                for call in self.interrupted
                if not call.is_background and not reads_list(call.context)
            )
        return frozenset((self.only_caller if self.had_calls else self.opened_for,))

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it, nor waits for its start."""
        return not self.calls and not (self.start is not None and self.start.has_waiters)

    @property
    def contexts(self) -> tuple[RequestContext, ...]:
        """The calls in flight, oldest first."""
        return tuple(call.context for call in self.calls)

    @property
    def is_lost(self) -> bool:
        """Whether its connection has ended for good."""
        return not self._reconnects and self.client.conversation.link.phase is Phase.CLOSED

    @property
    def child(self) -> "Child | None":
        """The process, for stdio."""
        return self._transport.child if isinstance(self._transport, ProcessTransport) else None

    @property
    def lost_error(self) -> ConnectionLost:
        """Why the connection ended."""
        lost = self.child.lost if self.child is not None else None
        return lost or ConnectionLost("the connection ended")

    # ------------------------------------------------------------ calls

    def add_call(
        self, request: RequestContext, key: CallerKey, *, lists: bool = False
    ) -> SessionCall:
        """Add a call of a caller; `lists` is whether it reads a list."""
        if self._first_caller is None:
            self._first_caller = key.principal
        elif self._first_caller != key.principal:
            self.served_several = self._several_principals = True
        if not lists:  # a list is for all clients of a principal
            if self.had_calls and self._first_session != key.session:
                self.served_several = True
            if not self.had_calls:
                self.had_calls, self._first_session = True, key.session
            session, principal = request.session, request.exchange.principal
            self._client_session = (session, principal) if session is not None else None
            last = self.input_requests.last_caller
            peer, claims = request.exchange.peer, request.claims
            if last is None or last.peer is not peer or last != (principal, peer, claims):
                self.input_requests.last_caller = LastCaller(principal, peer, claims)
        call = SessionCall(self, request, key.session, key.input)
        self.calls[call] = None
        if self.input_requests.arrivals:
            self.input_requests.call_added()
        return call

    def remove_call(self, call: SessionCall, now: float) -> None:
        """Remove a call, and cancel the input requests that belong to no other call."""
        self.calls.pop(call, None)
        self.idle_since = now
        for pending in call.input_requests:
            if not any(pending in other.input_requests for other in self.calls):
                pending.cancel()

    def note_task_input(self, task: str, key: str) -> bool:
        """Note an input request of a task; whether it is the first time, as far as is known."""
        if (task, key) in self._task_input:
            return False
        self._task_input[task, key] = None
        if len(self._task_input) > MAX_TASK_INPUT:
            del self._task_input[next(iter(self._task_input))]
        return True

    # ------------------------------------------------------------ output of the server

    def stderr_received(self, line: str) -> None:
        """Keep a line of stderr."""
        self._stderr.append(line)
        self._server_stderr.append(line)

    def last_lines(self, most: int) -> tuple[str, ...]:
        """The last lines of stderr in this session."""
        return self._stderr.last(most)

    def log_received(
        self, message: t.LoggingMessageNotificationParams, owner: object = None
    ) -> None:
        """Send a log message to the caller. `owner` is the call on whose stream it came; without
        one it is dropped if there were several callers."""
        call = owner if isinstance(owner, SessionCall) else self._only_call()
        if call is None or call not in self.calls:
            return
        data, logger = message.data, message.logger
        if self._contain is not None:
            data, logger = self._contain(data), self._contain(logger)
        frame = call.context.exchange.log(message.level, data, logger)
        if frame is not None:
            call.call_back(call.send_notification, frame, size=len(frame))

    def _only_call(self) -> "SessionCall | None":
        """The latest call, if a message without an owner can only belong to its client."""
        calls = [call for call in self.calls if not call.is_background]
        if self.isolation is Isolation.SHARED or not calls:
            return None
        if self.served_several and not self._logs_for_one(calls):
            return None
        return calls[-1]

    def _logs_for_one(self, calls: list[SessionCall]) -> bool:
        """Whether a log message belongs to the client of these calls, although several clients of
        the principal have used the session: the server sends it for a request that has not ended
        (R1034), and no other client has one."""
        return (
            self.client.peer.revision.log_control is LogControl.PER_REQUEST
            and not self._several_principals
            and not self.is_unsettled
            and len({call.client_session for call in calls}) == 1
        )

    async def lower_log_level(self, wanted: t.LoggingLevel) -> None:
        """Let the server send log messages of this level, if it has one level for the session: the
        lowest that a call has wanted (D24). Each caller gets those of its own level."""
        peer, known = self.client.peer, self._log_level
        if (
            peer.revision.log_control is not LogControl.BY_METHOD
            or (self.isolation is Isolation.SHARED and not self.has_url)
            or not peer.offers("logging")
            or (known is not None and t.severe_enough(wanted, known))
        ):
            return
        self._log_level = wanted
        with contextlib.suppress(RemoteError):  # it goes on with its own level
            await self.client.set_log_level(wanted)

    def roots_changed(self) -> bool:
        """The roots of the client that it belongs to have changed: whether the server has to be
        notified, and is not being notified already."""
        has_notification = ROOTS_CHANGED in self.client.peer.revision.methods
        if self.key is None or not self.key.input.roots_changed or not has_notification:
            return False
        self.input_requests.changed_in = self._client_session
        is_first, self._sends_roots_changed = not self._sends_roots_changed, True
        return is_first

    async def send_roots_changed(self) -> None:
        """Notify the server of changed roots."""
        self._sends_roots_changed = False
        with contextlib.suppress(ColonnadeError):  # it has ended, or is not initialized
            await self.client.conversation.notify(ROOTS_CHANGED)

    def elicitation_completed(self, params: t.ElicitationCompleteNotificationParams) -> None:
        """Send the notification to the client that was sent the URL elicitation."""
        asked = self.url_elicitations.complete(params.elicitation_id)
        if asked is None:
            return
        frame = asked.frame
        for call in self.calls:
            if call.context.exchange is asked.exchange:
                call.call_back(call.send_notification, frame, size=len(frame))
                return
        if asked.session is not None:
            asked.session.post_notification(frame, f"elicitation {asked.id}", frozenset())

    def connection_lost(self) -> None:
        """Report the end of the connection, once the transport knows the reason."""
        asyncio.get_running_loop().call_soon(self._on_lost, self)
