"""The input requests of one hosted session: which call each belongs to, and its caller's response.

An input request that names a task belongs to the requests about that task. Any other one that is
sent as a request belongs to one of the calls in flight on the session, which are all of one caller.
The host itself answers `roots/list`, unless the settings say that callers do.

Rules: an input request reaches the caller of a call on this session, and no other; it is cancelled
with the last call that it could belong to.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import ChannelError, ColonnadeError, Declined, Fault, FaultKind, RemoteError
from colonnade.host.servers.callers import LastCaller, SamplingRates
from colonnade.host.servers.url_elicitations import SessionUrlElicitations
from colonnade.ports import RequestContext, Session
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.forwarded import forwardable_meta
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputCapabilities,
    InputRequest,
    InputRequestKind,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.link.in_flight import MAX_PAUSED_S
from colonnade.transport.duplex import Duplex

log: logging.Logger = logging.getLogger("colonnade.host")

# The data of an error to the home of a session: the request that was asked has ended, and another
# one of the same caller may be meant.
CALLER_LOST: Final = {"callerLost": True}
# For roots that a server requests while there is no call: no user has to decide.
OUTSIDE_S = 10.0

# Sends an input request to the caller of these calls, one of which it belongs to. Returns the raw
# result.
SendInputRequest: TypeAlias = Callable[[tuple[RequestContext, ...], InputRequest], Awaitable[Raw]]

# Called with the calls in flight before `roots/list` is answered, with a function that returns the
# roots, and with the last caller, for a server that asks outside of calls; returns those that the
# server may see, or raises `Declined`.
ReviewRoots: TypeAlias = Callable[
    [
        tuple[RequestContext, ...],
        InputRequest,
        Callable[[InputRequest], Awaitable[Raw]],
        LastCaller | None,
    ],
    Awaitable[Raw],
]

# Its input requests arrive while it is open, in the revision whose core has tasks.
TASK_RESULT = "tasks/result"


def may_be_asked(request: RequestContext) -> bool:
    """Whether an input request may belong to a request; not to a list, which the host makes."""
    method = request.exchange.method
    return method.may_require_input or method.name == TASK_RESULT


def task_of(request: RequestContext) -> str | None:
    """The id of the task, at its server, that a forwarded request is about."""
    tasks = request.input_relay.tasks if request.input_relay is not None else None
    return tasks.target.task_id if tasks is not None and tasks.target is not None else None


def _related_task(request: InputRequest) -> str | None:
    """The id of the task that an input request names."""
    meta: dict[str, Any] = request.params.meta or {}
    related: Any = meta.get(t.RELATED_TASK_KEY)
    id: object = cast("dict[str, object]", related).get("taskId") if related else None
    return id if isinstance(id, str) else None


def _with_task(request: InputRequest, id: str | None) -> InputRequest:
    """The same input request, of the task with this id; None for no task."""
    if id is None and not request.params.meta:
        return request
    meta: dict[str, Any] = dict(request.params.meta or {})
    meta.pop(t.RELATED_TASK_KEY, None)
    if id is not None:
        meta[t.RELATED_TASK_KEY] = {"taskId": id}
    return InputRequest(replace(request.params, meta=meta or None))


async def send_to_latest_call(contexts: tuple[RequestContext, ...], request: InputRequest) -> Raw:
    """Send an input request to the caller of the latest call."""
    return await contexts[-1].ask(request)


class InputSession(Protocol):
    """What input requests need of their session."""

    @property
    def url_elicitations(self) -> SessionUrlElicitations: ...

    @property
    def is_elsewhere(self) -> bool: ...


class InputCall(Protocol):
    """What input requests need of a call that they may belong to."""

    @property
    def context(self) -> RequestContext: ...

    @property
    def session(self) -> InputSession: ...

    @property
    def input_requests(self) -> list[asyncio.Future[Raw]]: ...

    @property
    def may_be_asked(self) -> bool: ...


class SessionInputRequests(InputCallbacks):
    """Sends the input requests of one session to the callers of its calls. The host itself answers
    `roots/list`, unless the settings say that callers do.

    `input` is what the session declares to the server.
    """

    def __init__(
        self,
        calls: Callable[[], Collection[InputCall]],
        input: InputCapabilities,
        send: SendInputRequest,
        roots: Collection[str] | Literal["caller"],
        rates: SamplingRates,
        review_roots: ReviewRoots | None = None,
    ) -> None:
        self._asks_for_roots = roots == "caller"
        super().__init__(
            on_elicit=_advertised,
            on_sample=_advertised,
            roots=tuple(roots) or None if not isinstance(roots, str) else None,
        )
        self._calls = calls
        self._input = input
        self._send = send
        self._review_roots = review_roots
        self._rates = rates
        # What the last call of the caller brought, for a server that asks outside of a call, and
        # the principal of that caller: a session of a pool is used by several.
        self._last_roots: list[t.Root] = []
        self._last_principal = ""
        # Whose rules hold for a server that asks outside of a call.
        self.last_caller: LastCaller | None = None
        # The session of the client that has notified of a change since, and its principal.
        self.changed_in: tuple[Session, str] | None = None
        # Input requests of tasks that wait for a request about their task.
        self.arrivals: list[asyncio.Future[None]] = []

    @property
    def capabilities(self) -> t.ClientCapabilities:
        """What the session declares to the server."""
        own = super().capabilities
        return self._input.declared_in(t.ClientCapabilities(roots=own.roots))

    @property
    def answers_roots(self) -> bool:
        """Whether the host answers `roots/list`."""
        return self.roots is not None

    async def respond(self, request: InputRequest) -> AnyInputResponse:
        """Return the result from the caller of the calls that are in flight now. One that names its
        task belongs to a request about that task, and waits for it."""
        task = _related_task(request)
        if task is None:
            return await self.for_calls(_with_task(request, None), tuple(self._calls()))
        calls = await self._calls_about(task)
        relay = calls[-1].context.input_relay if calls else None
        is_known = bool(calls) and task_of(calls[-1].context) == task
        known = relay.tasks.task_id if relay is not None and relay.tasks and is_known else None
        return await self.for_calls(_with_task(request, known), calls)

    async def _calls_about(self, task: str) -> tuple[InputCall, ...]:
        """The requests in flight that carry the input requests of a task; the calls in flight, if
        there are none: one of them waits for the task. Without both, the next request about the
        task; none if there is none for too long."""
        limit = asyncio.timeout(MAX_PAUSED_S)
        try:
            async with limit:
                while True:
                    calls = tuple(self._calls())
                    asked = [call for call in calls if call.may_be_asked]
                    own = tuple(call for call in asked if task_of(call.context) == task)
                    other = tuple(call for call in asked if task_of(call.context) is None)
                    if own or other:
                        return own or other
                    arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self.arrivals.append(arrival)
                    await arrival
        except TimeoutError:
            if not limit.expired():
                raise
            return ()

    def call_added(self) -> None:
        """There is another call in flight."""
        arrivals, self.arrivals = self.arrivals, []
        for arrival in arrivals:
            if not arrival.done():
                arrival.set_result(None)

    async def for_calls(
        self, request: InputRequest, session_calls: tuple[InputCall, ...]
    ) -> AnyInputResponse:
        """Return the result from the caller of these calls. Cancelled when the last of them
        ends."""
        if request.kind is InputRequestKind.ROOTS:
            if not self._asks_for_roots:
                return await self._roots(request, tuple(call.context for call in session_calls))
            if not any(call.may_be_asked for call in session_calls):
                principals = {call.context.exchange.principal for call in session_calls}
                return t.ListRootsResult(roots=await self._roots_of(principals, request))
        if not session_calls:
            message = "no call is in flight that this input request could belong to"
            raise Fault(FaultKind.INVALID_REQUEST, message)
        if request.kind is InputRequestKind.SAMPLE:
            self.count_sample(session_calls[-1].context.exchange.principal)
        response = await self._send_to(request, session_calls)
        if isinstance(response, t.ListRootsResult):
            self._last_roots, self.changed_in = response.roots, None
            self._last_principal = session_calls[-1].context.exchange.principal
        return response

    async def _roots_of(self, principals: set[str], request: InputRequest) -> list[t.Root]:
        """The roots for a server that asks outside of calls that can be asked; none, if these
        principals have calls and are not the one that the roots are of."""
        if self.changed_in is not None:
            await self._read_changed_roots(*self.changed_in, request)
        return self._last_roots if principals <= {self._last_principal} else []

    async def _read_changed_roots(
        self, session: Session, principal: str, request: InputRequest
    ) -> None:
        """Ask the client that has notified of a change for its roots."""
        if self._review_roots is None:
            return

        async def ask(request: InputRequest) -> Raw:
            async with asyncio.timeout(OUTSIDE_S):
                if isinstance(session, Duplex):  # where all requests share the channel
                    return await session.request(request.kind.method, request.params)
                return await session.request_input(request, frozenset())

        try:
            raw = await self._review_roots((), request, ask, self.last_caller)
            self._last_roots = decode_as(t.ListRootsResult, raw).roots
        except (ColonnadeError, Fault, TimeoutError) as error:
            log.debug("the changed roots of a client are not known: %s", error)
        else:
            self._last_principal, self.changed_in = principal, None

    def count_sample(self, principal: str) -> None:
        """Count a sampling request of a caller. Raises `Fault` if there are too many."""
        self._rates.check(principal, asyncio.get_running_loop().time())

    async def _send_to(
        self, request: InputRequest, session_calls: tuple[InputCall, ...]
    ) -> AnyInputResponse:
        contexts = tuple(call.context for call in session_calls)
        urls = session_calls[-1].session.url_elicitations
        sent = urls.prepare(_without_hop_meta(request), contexts[-1])
        pending = asyncio.ensure_future(self._send(contexts, sent))
        pending.add_done_callback(_retrieve_exception)
        for call in session_calls:
            call.input_requests.append(pending)
        try:
            raw = await pending
            response = request.decode_response(raw, contexts[-1].exchange.peer.revision)
            if isinstance(response, t.ElicitResult) and response.action != "accept":
                urls.forget(sent)
            return response
        except Fault as fault:
            message = "the caller's result does not fit the input request"
            raise Fault(FaultKind.INTERNAL, message) from fault
        except asyncio.CancelledError:
            pending.cancel()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            message = "the call that this input request belongs to was cancelled"
            raise Fault(FaultKind.INTERNAL, message) from None
        except RemoteError as error:
            if error.code == contexts[-1].exchange.peer.revision.codes[FaultKind.USER_REJECTED]:
                raise Declined("the user declined") from None
            raise Fault(FaultKind.INTERNAL, "the caller could not answer") from error
        except ChannelError as error:
            # The call that was asked has ended; another one of the same caller may be meant.
            current = self._calls()
            left = tuple(call for call in session_calls[:-1] if call in current)
            if not left:
                data = CALLER_LOST if session_calls[-1].session.is_elsewhere else None
                raise Fault(FaultKind.INTERNAL, "the caller has disconnected", data) from error
        finally:
            for call in session_calls:
                if pending in call.input_requests:
                    call.input_requests.remove(pending)
        return await self._send_to(request, left)

    async def _roots(
        self, request: InputRequest, contexts: tuple[RequestContext, ...]
    ) -> AnyInputResponse:
        if self._review_roots is None:
            return await super().respond(request)
        respond = super().respond

        async def forward(request: InputRequest) -> Raw:
            return Raw(encode(await respond(request)))

        raw = await self._review_roots(contexts, request, forward, self.last_caller)
        return decode_as(t.ListRootsResult, raw)


def _without_hop_meta(request: InputRequest) -> InputRequest:
    """The same request for the next hop, which has a progress token of its own. The task that it is
    about is the one of that hop already."""
    meta = request.params.meta
    if not meta:
        return request
    passed = forwardable_meta(meta)
    if t.RELATED_TASK_KEY in meta:
        passed[t.RELATED_TASK_KEY] = meta[t.RELATED_TASK_KEY]
    return InputRequest(replace(request.params, meta=passed or None))


def _retrieve_exception(pending: "asyncio.Future[Raw]") -> None:
    # The task that waited for it may have been cancelled before it failed.
    if not pending.cancelled():
        pending.exception()


def _advertised(params: Any) -> Any:
    """Makes the client advertise a capability; requests are sent to the calls of the session."""
    raise LookupError("input requests of a session are sent to its calls")
