"""Client requests: the cache, `input_required` rounds, pings, and notifications of the server.

Rules: every wait has a timeout. Cancelling a call sends a cancellation to the server. A result that
took input requests is never cached. Errors name the server.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.client.cache import MAX_LIST_BYTES, MAX_LIST_ITEMS, Cache, ListBudget
from colonnade.client.connection import ManagedConnection, PingLoop
from colonnade.client.input_callbacks import (
    CallbackQueue,
    InputCallbacks,
    UrlElicitations,
)
from colonnade.client.probe import Opening
from colonnade.client.roots import RootsWatcher
from colonnade.client.subscriptions import LISTS, UPDATED, ChangeStreams
from colonnade.client.tools import ToolSchemas
from colonnade.client.transports import ChannelTransport, MemoryTransport
from colonnade.errors import (
    AuthError,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
    ToolError,
)
from colonnade.ports import (
    ClientTelemetry,
    ClientTransport,
    Conversation,
    InputResponder,
    OnMembers,
    OpenConversation,
    ProgressCallback,
    RequestContext,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import (
    convert_to,
    decode_as,
    decode_unchecked,
    readable_items,
)
from colonnade.protocol.exchange import decode_result
from colonnade.protocol.input_requests import (
    InputCapabilities,
    InputRequest,
    RequestDeclaration,
    checked_input_requests,
    retry_params,
)
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.in_flight import MAX_PAUSED_S
from colonnade.protocol.link.link import MAX_S, PROGRESS, SET_LEVEL, TIMEOUT_S
from colonnade.protocol.negotiation import Identity, Peer, defined_in
from colonnade.protocol.revision import (
    EVERY,
    ChangeNotifications,
    LogControl,
    Revision,
    Revisions,
)
from colonnade.protocol.types import InputRequiredResult

if TYPE_CHECKING:
    from colonnade.client.extensions import ClientExtensions
    from colonnade.client.tasks.requests import TaskRequests
    from colonnade.client.tasks.task import ClientTask
    from colonnade.protocol.forwarded import ResultOrigin
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.client")

# A server that always returns `input_required` never finishes; our servers have the same limit.
MAX_ROUNDS = 10
# The first request is not a round.
ROUND_NUMBERS = range(MAX_ROUNDS + 1)

T = TypeVar("T")


class RoundDeadlines:
    """The deadlines of one call with `input_required` rounds: of the server, and of the user."""

    def __init__(self, method: str, server: str, timeout_s: float, started: float) -> None:
        self._method = method
        self._server = server
        # A longer timeout of the caller counts once, not in each round.
        self._server_s = max(MAX_S, timeout_s)
        self._user_s = MAX_PAUSED_S
        self._ends_at = started + self._server_s

    @property
    def _call(self) -> str:
        return f"{self._method} of server {self._server!r}" if self._server else self._method

    async def wait_for_server(self, pending: Awaitable[T]) -> T:
        """Wait for the server until its deadline. Raises `TimedOut`."""
        message = f"{self._call} did not finish within {self._server_s:g} s, over all its rounds"
        try:
            return await _until(self._ends_at, pending, message, self._server)
        except ChannelError as error:
            error.not_sent = False  # an earlier round was sent, and may have had an effect
            raise
        except AuthError as error:
            error.accepted = True
            raise

    async def wait_for_user(self, responder: Awaitable[T]) -> T:
        """Wait for the user until the user's deadline. Raises `TimedOut`."""
        started = asyncio.get_running_loop().time()
        message = f"the input requests of {self._call} got no response within {MAX_PAUSED_S:g} s"
        try:
            return await _until(started + self._user_s, responder, message, self._server)
        finally:
            took_s = asyncio.get_running_loop().time() - started
            self._user_s -= took_s
            self._ends_at += took_s


async def _until(end: float, waiting: Awaitable[T], message: str, server: str) -> T:
    bound = asyncio.timeout_at(end)
    try:
        async with bound:
            return await waiting
    except TimeoutError:
        if bound.expired():
            raise TimedOut(message, server=server or None) from None
        raise


# The level if there is an `on_log` callback; `set_log_level` changes it.
LOG_LEVEL: t.LoggingLevel = "info"
# Timeout for the log level and subscriptions at the start of a connection: a server that does not
# respond is used without them.
RESTORE_S = 10.0
# Of the server's input requests that are open at once: the maximum size of one message.
MAX_INPUT_REQUEST_BYTES = 64 * 1024 * 1024
# Invalid items of one page that are logged, one line each.
MAX_LOGGED_ITEMS = 10
WRONG_LOOP = (
    "this client was opened in another event loop or thread; connect inside the same asyncio.run, "
    "or use colonnade.sync.connect, which works in any thread"
)
NO_LOOP = (
    "no asyncio event loop is running; use asyncio.run(main()), and under trio or without "
    "an event loop colonnade.sync.connect (under trio in trio.to_thread.run_sync)"
)
LOG_MESSAGE = "notifications/message"
CORE_TASK_STATUS = "notifications/tasks/status"
SUBSCRIBE = "resources/subscribe"
ROOTS_CHANGED = "notifications/roots/list_changed"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
# The cached results that a list_changed notification makes stale.
STALE: dict[str, tuple[str, ...]] = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}

# Methods whose results a server may declare cacheable.
CACHEABLE = frozenset(
    name for revision in EVERY for name, row in revision.methods.items() if row.cacheable
)

R = TypeVar("R", bound=t.ProtocolType)

OnLog: TypeAlias = Callable[[t.LoggingMessageNotificationParams], Any]
# Called with progress, total and message.
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
Headers = Iterable[tuple[str, str]]


class OriginalCaller(Struct, frozen=True):
    """The caller of a forwarded request: what responds to its input requests, the principal for the
    cache, the log level, whether it asks for a task, and what is called with the task that a call
    has become: it returns whether the caller waits for the task itself. `origin` gets the result as
    it was written.

    `declared` are its input capabilities; None for those of the client. With `relay`, an
    `input_required` result is returned as it is, and with `relay_errors` the error that requires
    URL elicitations is raised: the caller handles them itself. `headers` are those of its request,
    in revisions whose headers are validated.
    """

    answers: InputResponder
    principal: str = ""
    log_level: t.LoggingLevel | None = None
    wants_task: bool = False
    on_task: "Callable[[ClientTask], Awaitable[bool]] | None" = None
    origin: "ResultOrigin | None" = None
    declared: InputCapabilities | None = None
    relay: bool = False
    relay_errors: bool = False
    headers: Mapping[bytes, bytes] | None = None


class BaseClient:
    """Sends requests to one server and handles its notifications; `Client` adds the methods."""

    def __init__(
        self,
        transport: ClientTransport | OpenConversation,
        answers: InputCallbacks | None = None,
        *,
        info: t.Implementation,
        accepts: Revisions = EVERY,
        timeout_s: float = TIMEOUT_S,
        open_s: float | None = None,
        on_log: OnLog | None = None,
        on_progress: OnProgress | None = None,
        ping_s: float | None = None,
        max_list_bytes: int = MAX_LIST_BYTES,
        max_list_items: int = MAX_LIST_ITEMS,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        tasks: bool = True,
        telemetry: "bool | Telemetry" = False,
    ) -> None:
        self.timeout_s: float = timeout_s
        self._max_list_bytes = max_list_bytes
        self._max_list_items = max_list_items
        self.instructions: str | None = None
        self._callbacks = answers or InputCallbacks()
        self._accepts = accepts
        self._on_log = on_log
        self._on_progress = on_progress
        self._level: t.LoggingLevel | None = LOG_LEVEL if on_log is not None else None
        self._last_declaration = RequestDeclaration()
        self._input_request_bytes = 0
        self._callback_queue = CallbackQueue()
        self._url_elicitations = UrlElicitations(self._callbacks)
        self._discovered: Peer | None = None
        self._cache = Cache()
        self._change_streams = ChangeStreams(self._invalidate)
        self._extensions = client_extensions(extensions) if extensions is not None else None
        # The extensions that every request declares.
        declared: dict[str, Any] = {t.TASKS_EXTENSION_ID: {}} if tasks else {}
        capabilities, methods = self._callbacks.capabilities, {}
        if self._extensions is not None:
            declared |= self._extensions.declared
            methods = self._extensions.methods
        self._declared = frozenset(declared)
        capabilities = replace(capabilities, extensions=declared or None)
        identity = Identity(info, capabilities, extension_methods=methods)
        self._task_requests: TaskRequests | None = None
        self._transport: ClientTransport = (
            ChannelTransport(transport) if callable(transport) else transport
        )
        # Opening may take longer than a call: a command may have to be downloaded first.
        seconds = timeout_s if open_s is None else open_s
        self._connection = ManagedConnection(
            self._transport,
            self,
            identity,
            accepts,
            seconds,
            on_reconnect=self._on_reconnect,
            telemetry=client_telemetry(telemetry) if telemetry is not False else None,
        )
        self._tools = ToolSchemas(self._transport.name)
        # Held by the call that lists the tools for their output schemas.
        self._learning = asyncio.Lock()
        self._is_local = isinstance(self._transport, MemoryTransport)
        self._closing: asyncio.Task[None] | None = None
        # The loop that the client was opened in.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._watchers: list[PingLoop | RootsWatcher] = []
        if ping_s is not None:
            self._watchers.append(PingLoop(self._connection, ping_s, timeout_s))
        if self._callbacks.roots is not None:
            self._watchers.append(RootsWatcher(self._callbacks.roots, self._send_roots_changed))

    # ------------------------------------------------------------ opening and closing

    async def open(self, revision: Revision | None = None) -> None:
        """Connect, in this revision or in the newest common one.

        Raises if there is no common revision, or no server.
        """
        self._loop = running_loop()
        self._thread = get_ident()
        if revision is not None:
            self._connection.limit(Revisions([revision]))
        try:
            opening = await self._connection.open()
            self._on_opened(opening)
            await self._set_level(self.conversation, opening)
        except ColonnadeError as error:
            raise self._with_server(error) from error.__cause__
        self._connection.touch()
        self._start_watches()

    def _start_watches(self) -> None:
        """Start pings and the roots watcher, in revisions with a session."""
        if self.peer.revision.handshake:
            for watch in self._watchers:
                watch.start()

    async def _send_roots_changed(self) -> None:
        """Send `roots/list_changed` (R0088), if the revision has it and a session is open."""
        if ROOTS_CHANGED in self.peer.revision.methods and not self._connection.ended:
            with contextlib.suppress(
                ChannelError
            ):  # the next `roots/list` gets the new ones anyway
                await self.conversation.notify(ROOTS_CHANGED)

    def _on_opened(self, opening: Opening) -> None:
        result = opening.result
        self.instructions = result.instructions
        self._discovered = None
        if isinstance(result, t.DiscoverResult):
            info = convert_to(t.ResultMeta, result.meta or {}).server_info
            capabilities = defined_in(opening.revision, result.capabilities)
            self._discovered = Peer(opening.revision, capabilities, info)

    async def _on_reconnect(self, conversation: Conversation, opening: Opening) -> None:
        """Restore the state of the session (log level, subscriptions) after a reconnect."""
        self._on_opened(opening)
        self._cache.clear()
        self._tools.clear()
        if opening.revision.change_notifications is ChangeNotifications.SESSION:
            await self._set_level(conversation, opening)
            for uri in sorted(self._change_streams.subscribed_uris):
                follow = t.SubscribeRequestParams(uri=uri)
                await self._restore(conversation, SUBSCRIBE, follow)
            self._change_streams.on_session_restored()
        else:
            error = ConnectionLost("the server has changed to another revision; listen again")
            self._change_streams.end(error, subscribed=False)

    async def _set_level(self, conversation: Conversation, opening: Opening) -> None:
        """Send `logging/setLevel`, in revisions that have it."""
        by_method = opening.revision.log_control is LogControl.BY_METHOD
        if (
            by_method
            and self._level is not None
            and opening.result.capabilities.logging is not None
        ):
            level = t.SetLevelRequestParams(level=self._level)
            await self._restore(conversation, SET_LEVEL, level)

    async def _restore(
        self, conversation: Conversation, method: str, params: t.RequestParams
    ) -> None:
        """Send a request that sets state of the session; a refusal is only logged."""
        try:
            await conversation.request(method, params, min(self.timeout_s, RESTORE_S))
        except (RemoteError, LocalProtocolError, TimedOut) as error:
            log.warning("%s refused %s: %s", self._transport.name or "the server", method, error)

    async def close(self, why: str = "the client was closed") -> None:
        """Close the connection; pending requests fail. May be called at any time, more than once.

        Cancelling the wait does not stop the closing.
        """
        self._check_loop()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(why))
        await asyncio.shield(self._closing)

    async def _close(self, why: str) -> None:
        self._change_streams.end(ConnectionLost(why))
        for watch in self._watchers:
            await watch.stop()
        await self._connection.close(why)
        await self._callback_queue.wait_for_callbacks()
        await self._callback_queue.close()

    def _check_loop(self) -> None:
        """Raise `LocalProtocolError` outside the event loop that the client was opened in: its
        futures would never be resolved there.

        A thread has one running loop, so comparing the thread is enough; getting the running loop
        takes a system call in some versions of Python.
        """
        loop = self._loop
        if loop is not None and (get_ident() != self._thread or not loop.is_running()):
            raise LocalProtocolError(WRONG_LOOP)

    async def wait_for_callbacks(self) -> None:
        """Wait until the progress and log callbacks have been called for all that was received so
        far, at most as long as calls wait for that."""
        await self._callback_queue.wait_for_callbacks()

    # ------------------------------------------------------------ the server

    @property
    def name(self) -> str:
        """The server's name in errors: as given to `connect`, or from its `serverInfo`."""
        if self._transport.name:
            return self._transport.name
        info = (
            self.peer.info if self._discovered is not None or not self._connection.ended else None
        )
        return info.name if info is not None else ""

    @property
    def conversation(self) -> Conversation:
        """The current conversation."""
        return self._connection.conversation

    @property
    def peer(self) -> Peer:
        """The server and the negotiated revision. Raises before the client is open."""
        peer = self._discovered or self._connection.conversation.link.peer
        if peer is None:
            raise LocalProtocolError("this client is not open yet")
        return peer

    def _with_server(self, error: ColonnadeError) -> ColonnadeError:
        """The same error with the name of the server."""
        name = self._transport.name
        if isinstance(error, RemoteError | LocalProtocolError | ToolError) or not name:
            return error
        return error.with_server(name)

    # ------------------------------------------------------------ requests

    async def _ask(
        self,
        method: str,
        params: t.RequestParams,
        kind: type[R],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        headers: Headers = (),
        *,
        fresh: bool = False,
        caller: OriginalCaller | None = None,
        budget: ListBudget | None = None,
    ) -> R:
        """Send a request and return its result, after any `input_required` rounds. A `budget` is
        for a page of a list."""
        self._check_loop()
        cacheable = method in CACHEABLE and not is_retry(params)
        responder: InputResponder
        owner: InputResponder | None
        origin: ResultOrigin | None
        input: InputCapabilities | None
        if caller is None:
            responder, owner, principal, level = self._callbacks, None, "", self._level
            relay = relay_errors = False
            origin = on_members = input = None
        else:
            responder = owner = caller.answers
            principal, level, origin = caller.principal, caller.log_level, caller.origin
            relay, relay_errors = caller.relay, caller.relay_errors
            on_members = None if origin is None else self._on_members(origin)
            input = caller.declared  # without effect in a session, which has declared them once
        declared = self._declaration(input, level)
        if cacheable and not fresh:
            kept = self._cached(method, params, principal)
            if kept is not None:
                return self._decode(method, kept, budget, origin)
        seconds = self.timeout_s if timeout_s is None else timeout_s
        progressed = None if on_progress is None else self._progress_callback(on_progress)
        made: dict[str, int] = {}
        first = params
        started = (self._loop or asyncio.get_running_loop()).time()
        rounds: RoundDeadlines | None = None
        for number in ROUND_NUMBERS:
            changes = self._cache.changes
            try:
                pending = self._connection.request(
                    method, params, seconds, progressed, headers, declared, owner, on_members
                )
                # The first request has its own timeout, and most calls have no rounds.
                raw = await (pending if rounds is None else rounds.wait_for_server(pending))
            except RemoteError as error:
                await self._callback_queue.wait_for_callbacks()
                if number == MAX_ROUNDS or relay_errors:
                    raise
                rounds = rounds or RoundDeadlines(method, self._transport.name, seconds, started)
                consent = self._url_elicitations.answer(error, made, self.peer, seconds, responder)
                if not await rounds.wait_for_user(consent):
                    raise
                continue
            except ColonnadeError as error:
                raise self._with_server(error) from error.__cause__
            result = self._decode(method, raw, budget, origin)
            if not isinstance(result, InputRequiredResult):
                # R1003: after rounds it depends on the input; after a change it may be stale.
                if cacheable and params is first and changes == self._cache.changes:
                    self._store_in_cache(method, params, raw, result, principal)
                if self._callback_queue.task is not None:
                    await self._callback_queue.wait_for_callbacks()
                return result
            requests = self._input_requests(method, result, input)
            if relay:
                return cast("R", result)
            if number == MAX_ROUNDS:
                break
            rounds = rounds or RoundDeadlines(method, self._transport.name, seconds, started)
            answers = await rounds.wait_for_user(responder.respond_all(requests))
            encoder = self.conversation.link.encoder(self.peer.revision)
            params = retry_params(
                cast("t.InputResponseRequestParams", params), result, answers, encoder
            )
        message = f"{method} returned input_required {MAX_ROUNDS + 1} times without a result"
        raise self._with_server(RemoteProtocolError(message))

    def _on_members(self, origin: "ResultOrigin") -> OnMembers | None:
        """What gets the members of a result, if nothing but a client of the same revision reads
        them."""
        if origin.reader is None or origin.reader is not self.peer.revision:
            return None
        return origin.found_members

    def _declaration(
        self, input: InputCapabilities | None, level: t.LoggingLevel | None
    ) -> RequestDeclaration | None:
        """What a request declares; None for what this client does. Most requests declare the same
        as the one before."""
        if input is None and level is None:
            return None
        last = self._last_declaration
        if last.input is not input or last.log_level != level:
            last = self._last_declaration = RequestDeclaration(input, level)
        return last

    def _input_requests(
        self, method: str, result: t.InputRequiredResult, declared: InputCapabilities | None
    ) -> dict[str, InputRequest]:
        capabilities = self._callbacks.capabilities
        if declared is not None:
            capabilities = declared.declared_in(capabilities)
        try:
            return checked_input_requests(result, capabilities, self.peer.revision)
        except Fault as fault:
            message = f"{method} requires input that this client does not support: {fault.message}"
            raise self._with_server(RemoteProtocolError(message)) from None

    def _decode(
        self,
        method: str,
        raw: Raw,
        budget: ListBudget | None,
        origin: "ResultOrigin | None" = None,
    ) -> Any:
        if budget is not None:
            budget.add_page(raw)
        peer = self._discovered or self.peer
        row = peer.revision.methods.get(method)
        if row is None:
            return self._decode_extension(method, raw, peer)
        try:
            if origin is None:
                return decode_result(row, raw, peer, self._declared)
            result: t.ProtocolType | None = None
            if row.result is t.CallToolResult:
                result = origin.unread(raw, peer.revision)
            if result is None:
                kind = origin.tool_result
                result = decode_result(row, raw, peer, self._declared, tool_result=kind)
            origin.received(peer.revision, raw, result)
            return result
        except Fault as fault:
            kept, wrong = raw, list[str]()
            if budget is not None and row.result is not None:
                kept, wrong = readable_items(row.result, raw)
            if not wrong:
                raise self._with_server(fault) from None
        for message in wrong[:MAX_LOGGED_ITEMS]:
            log.warning("%s: skipped an item of %s: %s", self._server_label, method, message)
        if len(wrong) > MAX_LOGGED_ITEMS:
            log.warning("%s: skipped %d items of %s", self._server_label, len(wrong), method)
        return self._decode(method, kept, None)

    def _decode_extension(self, method: str, raw: Raw, peer: Peer) -> t.ProtocolType:
        """The result of a method of an extension: one that the revision defines, or any other."""
        from colonnade.client.extensions import decode_extension

        row = peer.revision.method(method, self._declared)
        try:
            if row is not None and row.result is t.ExtGetTaskResult:
                return decode_unchecked(t.ExtGetTaskResult, raw)  # D69
            if row is not None:
                return decode_result(row, raw, peer, self._declared)
            return decode_extension(raw, method)
        except Fault as fault:
            raise self._with_server(fault) from None

    def _about_tasks(self) -> "TaskRequests":
        """What sends the requests about tasks."""
        from colonnade.client.tasks.requests import TaskRequests  # on use: most calls are no tasks

        if self._task_requests is None:
            self._task_requests = TaskRequests(
                self._connection,
                self._change_streams,
                self._callbacks,
                self._callback_queue,
                lambda: self.peer,
                lambda: self._server_label,
            )
        return self._task_requests

    @property
    def _server_label(self) -> str:
        return f"server {self.name!r}" if self.name else "the server"

    def _progress_callback(self, handler: OnProgress) -> ProgressCallback:
        if handler is ignore_progress:
            return _drop_progress

        def progressed(params: t.ProgressNotificationParams) -> None:
            size = len(params.message or "")
            self._callback_queue.call(
                handler, params.progress, params.total, params.message, size=size
            )

        return progressed

    # ------------------------------------------------------------ cache

    def _cached(self, method: str, params: t.RequestParams, principal: str) -> Raw | None:
        if not self.peer.revision.typed_results or self._connection.closed:
            return None
        return self._cache.get(principal, method, params, _now())

    def _store_in_cache(
        self, method: str, params: t.RequestParams, raw: Raw, result: t.ProtocolType, principal: str
    ) -> None:
        if self.peer.revision.typed_results and isinstance(result, t.CacheableResult):
            self._cache.put(principal, method, params, raw, result, _now())

    # ------------------------------------------------------------ messages of the server

    def handle_request(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Respond to an input request that the server sent as a request."""
        return self._respond(request)

    async def _respond(self, request: RequestContext) -> bytes | None:
        size = len(request.exchange.request.params or b"")
        if self._input_request_bytes and self._input_request_bytes + size > MAX_INPUT_REQUEST_BYTES:
            message = f"the open input requests have more than {MAX_INPUT_REQUEST_BYTES} bytes"
            request.fault = Fault(
                FaultKind.TOO_MANY, f"{message}; try again when others are finished"
            )
            return request.exchange.fail(request.fault)
        self._input_request_bytes += size
        self._connection.busy += 1  # a server may not respond to pings meanwhile
        try:
            return await self._callbacks.answer(request)
        finally:
            self._input_request_bytes -= size
            self._connection.busy -= 1
            self._connection.touch()

    def on_notification(self, notification: NotificationReceived) -> None:
        """Handle a notification of the server."""
        method = notification.method.name
        self._connection.touch()
        try:
            if method == LOG_MESSAGE:
                if self._on_log is not None:
                    message = decode_as(t.LoggingMessageNotificationParams, notification.params)
                    self._callback_queue.call(self._on_log, message, size=len(notification.params))
                return
            if method == ELICITATION_COMPLETE:
                ended = decode_as(t.ElicitationCompleteNotificationParams, notification.params)
                self._url_elicitations.complete(ended.elicitation_id)
            elif method == UPDATED:
                changed = decode_as(t.ResourceUpdatedNotificationParams, notification.params)
                self._cache.invalidate_resource(changed.uri)
            elif method in LISTS:
                self._cache.invalidate(STALE[LISTS[method]])
                if LISTS[method] == "tools":
                    self._tools.clear()
            elif method == PROGRESS:
                if self._task_requests is not None:
                    self._task_requests.on_progress(notification)
                return
            elif method == CORE_TASK_STATUS:
                if self._task_requests is not None:
                    self._task_requests.on_status(notification)
                return
            elif self._extensions is not None and method in self._extensions.handlers:
                from colonnade.client.extensions import decode_extension_notification

                params = decode_extension_notification(notification.params)
                handler = self._extensions.handlers[method]
                self._callback_queue.call(handler, params, size=len(notification.params))
                return
            self._change_streams.dispatch(notification)
        except Fault as fault:  # R0233: a notification gets no response
            log.debug("ignored %s: %s", method, fault.message)

    def _invalidate(self) -> None:
        """Notifications were missed: cached results may be stale."""
        self._cache.clear()
        self._tools.clear()

    def on_missed_notifications(self) -> None:
        """Notifications of the session were missed."""
        self._invalidate()
        self._change_streams.mark_session_gap()

    def on_closed(self) -> None:
        """The connection was lost or closed."""
        if self._transport.can_reconnect and not self._connection.closed:
            self._change_streams.on_session_lost()
        else:
            self._change_streams.end(ConnectionLost("the connection ended"))


def client_telemetry(given: "bool | Telemetry") -> ClientTelemetry | None:
    """What records the requests of a client. Raises `InvalidArgument`, `InvalidArgumentType`."""
    from colonnade.telemetry.telemetry import as_telemetry  # on use: most clients record nothing

    telemetry = as_telemetry(given)
    return telemetry.client if telemetry is not None else None


def client_extensions(declared: Mapping[str, Mapping[str, Any]]) -> "ClientExtensions":
    """The extensions that a client declares. Raises `InvalidArgument`, `InvalidArgumentType`."""
    from colonnade.client.extensions import ClientExtensions  # on use: few clients have any

    return ClientExtensions(declared)


def is_retry(params: t.RequestParams) -> bool:
    """Whether params continue an earlier request, with its state or with input responses."""
    return isinstance(params, t.InputResponseRequestParams) and (
        params.request_state is not None or params.input_responses is not None
    )


def prompt_params(name: str, arguments: Mapping[str, str] | None) -> t.GetPromptRequestParams:
    """The params of `prompts/get`."""
    given = as_dict(arguments, name) if arguments is not None else None
    return t.GetPromptRequestParams(name=name, arguments=given)


def complete_params(
    argument: str,
    value: str,
    prompt: str | None,
    template: str | None,
    context: Mapping[str, str] | None,
) -> t.CompleteRequestParams:
    """The params of `completion/complete`, of a prompt or of a resource template."""
    ref: t.PromptReference | t.ResourceTemplateReference
    if prompt is not None and template is None:
        ref = t.PromptReference(name=prompt)
    elif template is not None and prompt is None:
        ref = t.ResourceTemplateReference(uri=template)
    else:
        raise InvalidArgument("complete takes either prompt='name' or template='uri'")
    return t.CompleteRequestParams(
        ref=ref,
        argument=t.CompletionArgument(name=argument, value=value),
        context=t.CompletionContext(arguments=dict(context)) if context else None,
    )


def running_loop() -> asyncio.AbstractEventLoop:
    """The running asyncio event loop. Raises `LocalProtocolError` if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise LocalProtocolError(NO_LOOP) from None


def as_dict(arguments: object, name: str) -> dict[str, Any]:
    """The arguments of a tool or prompt. Raises `InvalidArgumentType` if they are no mapping."""
    try:
        return dict(cast("Mapping[str, Any]", arguments or {}))
    except (TypeError, ValueError):
        raise InvalidArgumentType(
            f"the arguments of {name} are a dict, such as {{'city': 'Oslo'}}, "
            f"not {type(arguments).__name__}",
            argument="arguments",
        ) from None


def ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """The default progress callback: progress that is ignored still restarts the timeout."""


def _drop_progress(params: t.ProgressNotificationParams) -> None:
    pass


def _now() -> float:
    return asyncio.get_running_loop().time()
