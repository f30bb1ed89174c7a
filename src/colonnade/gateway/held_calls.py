"""Held calls: requests to a server that waits for input, while the client is asked in a result.

The server sends an input request in the middle of a call, and waits. The client gets an
`input_required` result, and brings the response with its next request. In between the call goes on,
in a task of its own; the requests of the client come and go.

Whatever happens to the client, the call ends: a call that no request waits for any more is
abandoned after `park_s`; its input requests are cancelled then, and it is cancelled itself if the
server does not finish within `finish_s`. The outcome of a call that was held is kept in the store
before it is sent.

Rules: a call belongs to one principal, and no other sees its input requests or its outcome. Input
responses are taken once, however often they are sent. Counts, sizes and times are limited; a call
that could exceed a count is refused before it begins.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Refused,
    RemoteError,
    without_frames,
)
from colonnade.gateway.input_requests import MAX_ROUNDS
from colonnade.ports import InputRelay, RequestContext, Seal, Session, Store
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import CallerLost, Exchange, Network, RequestFields
from colonnade.protocol.forwarded import RelayedToolResult
from colonnade.protocol.http.security import TOO_MANY_REQUESTS, Headers, HttpError
from colonnade.protocol.input_requests import InputRequest, InputRequestKind
from colonnade.protocol.jsonrpc import Notification, decode, encode
from colonnade.protocol.link.in_flight import MAX_PAUSED_S
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import NEWEST

log: logging.Logger = logging.getLogger("colonnade.gateway")

# 128 bits: the id is encrypted in the state, and found in the store by its principal only.
ID_BYTES = 16
# A user may answer one of the open forms within this.
RETRY_AFTER_S = "30"
# Iterations of the event loop that a round waits for input requests that are sent together.
COLLECT_TURNS = 3

INTERRUPTED = (
    "the call was interrupted while it waited for input; whether it had an effect is unknown: "
    "check, or call again"
)
TOO_MANY = "too many calls wait for input of this caller; finish one of them, or try again later"
TOO_LARGE = "the call has finished, but its result is too large to be kept until it is fetched"


class HeldLimits(NamedTuple):
    """Limits of held calls: counts, bytes and seconds."""

    # A user answers few forms at once; each held call takes a session of its server.
    per_principal: int = 8
    # Of all principals: with some 50 KiB each, and the outcome in the store.
    total: int = 1000
    # Of the params of a call: while it is held they are in memory, and in no request of a client.
    request_bytes: int = 1024 * 1024
    # Of the input requests of one call that wait for a response.
    input_bytes: int = 64 * 1024
    # Of an outcome that is kept until it is fetched.
    outcome_bytes: int = 1024 * 1024
    rounds: int = MAX_ROUNDS
    # For the server to finish after its input requests were cancelled.
    finish_s: float = 30.0
    # Without a request of the client, in all. The client of the server stops its timeouts for
    # `MAX_PAUSED_S` while input is awaited, and the server must be able to finish within that.
    park_s: float = MAX_PAUSED_S - 30.0
    # For an outcome to be fetched.
    outcome_s: float = 120.0


# ---------------------------------------------------------------- outcomes


class HeldOutcome(Struct, frozen=True, omit_defaults=True):
    """The outcome of a call, for the store: a result, or the error of the server or the gateway."""

    result: Raw = Raw(b"")
    code: int | None = None
    fault: str = ""
    message: str = ""
    data: Raw = Raw(b"")
    server: str = ""
    public: str = ""
    # Set if the call failed: whether the call was lost after it was sent, or never sent.
    lost: bool = False
    not_sent: bool = False


def describe_outcome(outcome: t.ProtocolType | Exception) -> HeldOutcome:
    """An outcome for the store."""
    if isinstance(outcome, RelayedToolResult):
        outcome = outcome.plain
    if isinstance(outcome, t.ProtocolType):
        return HeldOutcome(result=Raw(encode(outcome)))
    if isinstance(outcome, RemoteError):
        data = Raw(encode(outcome.data)) if outcome.data is not None else Raw(b"")
        server = outcome.server or ""
        return HeldOutcome(code=outcome.code, message=outcome.message, data=data, server=server)
    if isinstance(outcome, Fault):
        return HeldOutcome(fault=outcome.kind.name, message=outcome.message)
    if isinstance(outcome, ChannelError):
        not_sent = outcome.not_sent
        words = outcome.sentence
        return HeldOutcome(message=words, public=outcome.public, lost=True, not_sent=not_sent)
    if isinstance(outcome, ColonnadeError):
        return HeldOutcome(message=outcome.sentence, public=outcome.public)
    return HeldOutcome(message=INTERRUPTED, lost=True)


def restore_outcome(outcome: HeldOutcome, method: Method) -> t.ProtocolType | ColonnadeError:
    """The outcome of a call, from the store."""
    if outcome.result:
        assert method.result is not None
        return decode_as(method.result, outcome.result)
    if outcome.code is not None:
        data = msgspec.json.decode(outcome.data) if outcome.data else None
        error = RemoteError(outcome.code, outcome.message, data)
        error.server = outcome.server or None
        return error
    if outcome.fault:
        return Fault(getattr(FaultKind, outcome.fault), outcome.message)
    failure = ColonnadeError(outcome.message)
    if outcome.lost:
        failure = ConnectionLost(outcome.message)
        failure.not_sent = outcome.not_sent
    failure.public = outcome.public
    return failure


# ---------------------------------------------------------------- one call


class PendingInput:
    """An input request of a held call that waits for its response, and the round it is in."""

    def __init__(self, request: InputRequest, size: int) -> None:
        self.request = request
        self.size = size
        self.round = 0
        self.response: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    def move(self) -> None:
        """Let it be sent to another call: this one has ended."""
        if not self.response.done():
            self.response.set_exception(CallerLost("the call that was asked has ended"))

    def cancel(self) -> None:
        """Answer it without the client: a form is cancelled, sampling is refused."""
        if self.response.done():
            return
        if self.request.kind is InputRequestKind.ELICIT:
            self.response.set_result(Raw(encode(t.ElicitResult(action="cancel"))))
        elif self.request.kind is InputRequestKind.ROOTS:
            self.response.set_result(Raw(encode(t.ListRootsResult(roots=[]))))
        else:
            code = NEWEST.codes[FaultKind.USER_REJECTED]
            self.response.set_exception(RemoteError(code, "the request was not answered"))


class HeldRequest(RequestFields):
    """The request of a held call, which lasts longer than any request of the client.

    What the server sends beside the result goes to the request of the client that waits at the
    moment.
    """

    def __init__(self, request: RequestContext, exchange: Exchange, relay: InputRelay) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._relay = relay
        self._claims = request.claims
        self._headers = request.headers
        self._callers = request.callers
        self._network = request.network
        self._debug = request.debug
        # The call of this request. Cleared with its outcome, since both refer to each other.
        self.call: HeldCall | None = None

    @property
    def claims(self) -> Mapping[str, Any]:
        """Those of the first request."""
        return self._claims

    @property
    def headers(self) -> Headers:
        """Those of the first request."""
        return self._headers

    @property
    def callers(self) -> Callers:
        """Those of the first request."""
        return self._callers

    @property
    def network(self) -> Network:
        """That of the first request."""
        return self._network

    @property
    def debug(self) -> bool:
        """As in the first request."""
        return self._debug

    @property
    def session(self) -> Session | None:
        """None: clients that are asked in results have no session."""
        return None

    @property
    def input_relay(self) -> InputRelay:
        """Takes `input_required` results, if the server turns out to send those."""
        return self._relay

    def post(self, frame: bytes) -> bool:
        """Send a notification, if a request waits; progress is kept for the next one."""
        return self.call is None or self.call.post(frame)

    async def send(self, frame: bytes) -> None:
        """Send a notification to the request that waits."""
        if self.call is not None:
            await self.call.send(frame)

    async def ask(self, input_request: InputRequest) -> Raw:
        """Wait until a request of the client brings the response."""
        if self.call is None:
            raise CallerLost("the call that was asked has ended")
        return await self.call.ask(input_request)

    async def hang_up(self) -> None:
        """Nothing: the client reads a result."""


class HeldRound(NamedTuple):
    """A round of a held call: its number, what the client is asked, and how long it may take."""

    number: int
    requests: dict[str, t.AnyInputRequest]
    expires_at: float


class HeldCall:
    """One call in a task of its own, and the requests of the client that wait for it."""

    def __init__(
        self, calls: "HeldCalls", id: str, request: HeldRequest, policy_version: str
    ) -> None:
        self.id = id
        # That of the rules when it began: what they allowed then may be denied now.
        self.policy_version: str = policy_version
        self.request = request
        self.principal: str = request.exchange.principal
        self.outcome: t.ProtocolType | Exception | None = None
        self.is_held = False
        self.task: asyncio.Task[None] | None = None
        self._calls = calls
        self._limits = calls.limits
        self._pending: dict[str, PendingInput] = {}
        self._numbers = 0
        self._round = 0
        self._collecting = False
        self._abandoned = False
        # The requests of the client that wait, the latest last.
        self._waiting: dict[RequestContext, None] = {}
        self._changes: dict[asyncio.Future[None], None] = {}
        self._progress: t.ProgressNotificationParams | None = None
        self._parked_s = 0.0
        self._parked_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        request.call = self

    # ------------------------------------------------------------ the client

    async def wait(self, request: RequestContext, after: int) -> HeldRound | None:
        """Wait with a request of the client for the first round after this one; None if there is
        an outcome. If the client goes away, and no other request waits, the call is cancelled."""
        self._attach(request)
        try:
            await self._send_kept_progress(request)
            while self.outcome is None:
                if self._round > after and self._pending and not self._collecting:
                    return self._current_round()
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes[change] = None
                try:
                    await change
                finally:
                    self._changes.pop(change, None)
            return None
        except asyncio.CancelledError:
            if len(self._waiting) == 1 and self.outcome is None and self.task is not None:
                self.task.cancel()
            raise
        finally:
            self._detach(request)

    def _current_round(self) -> HeldRound:
        requests = {key: one.request.as_input() for key, one in self._pending.items()}
        left_s = max(self._limits.park_s - self._parked_s, 0.0)
        return HeldRound(self._round, requests, self._calls.clock() + left_s)

    def _attach(self, request: RequestContext) -> None:
        self._waiting[request] = None
        if self._parked_at is not None:
            self._parked_s += asyncio.get_running_loop().time() - self._parked_at
            self._parked_at = None
        if self._timer is not None and not self._abandoned:
            self._timer.cancel()
            self._timer = None

    def _detach(self, request: RequestContext) -> None:
        self._waiting.pop(request, None)
        if not self._waiting and self.outcome is None and not self._abandoned:
            loop = asyncio.get_running_loop()
            self._parked_at = loop.time()
            left_s = max(self._limits.park_s - self._parked_s, 0.0)
            self._timer = loop.call_later(left_s, self.abandon)

    def take(self, round: int, responses: Mapping[str, Raw]) -> None:
        """Take the input responses of a round; those that were taken before are ignored, and what
        has none is asked again. Raises `Fault` for a response that does not fit, and takes none."""
        asked = {key: one for key, one in self._pending.items() if 0 < one.round <= round}
        peer = self.request.exchange.peer
        for key, pending in asked.items():
            if key in responses:
                pending.request.decode_response(responses[key], peer.revision)
        for key, pending in asked.items():
            if key in responses and not pending.response.done():
                pending.response.set_result(responses[key])
                del self._pending[key]
        if any(key in self._pending for key in asked):
            self._start_round()

    # ------------------------------------------------------------ the server

    async def ask(self, request: InputRequest) -> Raw:
        """Ask the client in its next result, and wait for the response."""
        pending = PendingInput(InputRequest(request.params), len(encode(request.as_input())))
        if not self._has_room(pending):
            pending.cancel()
            return await pending.response
        self._numbers += 1
        key = f"{request.kind.name.lower()}-{self._numbers}"
        self._pending[key] = pending
        if not self._collecting:
            self._collecting = True
            asyncio.get_running_loop().call_soon(self._collect, COLLECT_TURNS)
        try:
            return await pending.response
        finally:
            self._pending.pop(key, None)

    def _has_room(self, pending: PendingInput) -> bool:
        """Whether the client may be asked; if not, the server gets no response of a user."""
        size = pending.size + sum(one.size for one in self._pending.values())
        if self._abandoned or size > self._limits.input_bytes:
            return False
        if len(self.request.exchange.request.params) > self._limits.request_bytes:
            return False
        if not self.is_held and not self._calls.hold(self):
            log.warning("an input request was cancelled: too many calls are held")
            return False
        return True

    def _collect(self, turns: int) -> None:
        """Start a round when input requests that are sent together have arrived."""
        if turns:
            asyncio.get_running_loop().call_soon(self._collect, turns - 1)
            return
        self._collecting = False
        if self._pending:
            self._start_round()

    def _start_round(self) -> None:
        if self._round >= self._limits.rounds:
            log.warning("a held call requested input %d times; it gets no more", self._round)
            self._cancel_pending()
            return
        self._round += 1
        for pending in self._pending.values():
            pending.round = pending.round or self._round
        self._notify()

    def _cancel_pending(self) -> None:
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()

    # ------------------------------------------------------------ notifications

    def post(self, frame: bytes) -> bool:
        """True if there is nothing to wait for: no request of the client waits."""
        if self._waiting:
            return False
        notification = decode(frame)
        if isinstance(notification, Notification) and notification.method == PROGRESS:
            self._progress = decode_as(t.ProgressNotificationParams, notification.params)
        return True

    async def send(self, frame: bytes) -> None:
        """Send a notification to the latest request of the client that waits."""
        notification, request = decode(frame), next(reversed(self._waiting), None)
        if request is None or not isinstance(notification, Notification):
            return
        exchange, own = request.exchange, None
        if notification.method == PROGRESS:
            params = decode_as(t.ProgressNotificationParams, notification.params)
            own = _progress_frame(exchange, params)
        elif notification.method == LOG_MESSAGE:
            message = decode_as(t.LoggingMessageNotificationParams, notification.params)
            own = exchange.log(message.level, message.data, message.logger)
        if own is not None and not request.post(own):
            await request.send(own)

    async def _send_kept_progress(self, request: RequestContext) -> None:
        params, self._progress = self._progress, None
        frame = _progress_frame(request.exchange, params) if params is not None else None
        if frame is not None and not request.post(frame):
            await request.send(frame)

    # ------------------------------------------------------------ the end

    async def run(self, handler: Callable[[RequestContext], Awaitable[t.ProtocolType]]) -> None:
        """Run the call until it has an outcome."""
        outcome: t.ProtocolType | Exception
        try:
            outcome = await handler(self.request)
            if isinstance(outcome, RelayedToolResult):
                _ = outcome.content  # it is kept for other replicas, so it must be valid
        except asyncio.CancelledError:
            outcome = interrupted()
        except ColonnadeError as error:
            outcome = without_frames(error)
        except Exception as error:  # keep its stack frames for the log
            outcome = error
        if self.is_held:
            await self._calls.keep(self, outcome)
        self.request.exchange.settled = True
        self.request.call = None
        self.outcome = outcome
        for pending in self._pending.values():
            pending.move()  # it may belong to another call of the same caller
        if self._timer is not None:
            self._timer.cancel()
        self._calls.remove(self)
        self._notify()

    def abandon(self) -> None:
        """Cancel the input requests: the client did not come back. The server may finish, within
        its time."""
        self._abandoned = True
        self._cancel_pending()
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._limits.finish_s, self.task.cancel)

    def _notify(self) -> None:
        changes, self._changes = self._changes, {}
        for change in changes:
            if not change.done():
                change.set_result(None)


PROGRESS = "notifications/progress"
LOG_MESSAGE = "notifications/message"


def too_many_held() -> Fault:
    """The refusal of a call that could become one held call too many."""
    headers = (("Retry-After", RETRY_AFTER_S),)
    return HttpError(TOO_MANY_REQUESTS, TOO_MANY, kind=FaultKind.TOO_MANY, headers=headers)


def interrupted() -> ConnectionLost:
    """The outcome of a call whose outcome is not known."""
    return ConnectionLost(INTERRUPTED)


def _progress_frame(exchange: Exchange, params: t.ProgressNotificationParams) -> bytes | None:
    try:
        return exchange.progress(params.progress, params.total, params.message)
    except LocalProtocolError:  # it did not increase
        return None


# ---------------------------------------------------------------- all calls


class HeldCalls:
    """The calls of this process that may be held, by id."""

    def __init__(
        self,
        store: Callable[[], Store],
        seal: Callable[[], Seal],
        limits: HeldLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._seal = seal
        self.limits: HeldLimits = limits or HeldLimits()
        self.clock = clock
        self._calls: dict[str, HeldCall] = {}
        self._held: dict[str, int] = {}
        # Outcomes that the store did not take, with their principals.
        self._unstored: dict[str, tuple[str, bytes]] = {}
        self._held_total = 0
        self._closed = False

    @property
    def count(self) -> int:
        """How many calls are held."""
        return self._held_total

    def begin(
        self,
        request: HeldRequest,
        handler: Callable[[RequestContext], Awaitable[t.ProtocolType]],
        policy_version: str = "",
    ) -> HeldCall:
        """Begin a call that may be held, under the rules of this version. Raises `Fault` if too
        many are."""
        principal = request.exchange.principal
        if self._closed or not self._may_hold(principal):
            raise too_many_held()
        call = HeldCall(self, secrets.token_hex(ID_BYTES), request, policy_version)
        self._calls[call.id] = call
        call.task = asyncio.get_running_loop().create_task(call.run(handler))
        return call

    def _may_hold(self, principal: str) -> bool:
        of_principal = self._held.get(principal, 0)
        return of_principal < self.limits.per_principal and self._held_total < self.limits.total

    def hold(self, call: HeldCall) -> bool:
        """Count a call that waits for input for the first time; False if there are too many."""
        if not self._may_hold(call.principal):
            return False
        call.is_held = True
        self._held[call.principal] = self._held.get(call.principal, 0) + 1
        self._held_total += 1
        return True

    def remove(self, call: HeldCall) -> None:
        """Forget a call that has its outcome."""
        self._calls.pop(call.id, None)
        if call.is_held:
            self._held_total -= 1
            self._held[call.principal] -= 1
            if not self._held[call.principal]:
                del self._held[call.principal]

    def get(self, id: str, principal: str) -> HeldCall | None:
        """A call of a principal that has no outcome yet."""
        call = self._calls.get(id)
        return call if call is not None and call.principal == principal else None

    # ------------------------------------------------------------ outcomes in the store

    async def keep(self, call: HeldCall, outcome: t.ProtocolType | Exception) -> None:
        """Keep the outcome of a call until it is fetched, perhaps by another replica."""
        value = encode(describe_outcome(outcome))
        if len(value) > self.limits.outcome_bytes:
            value = encode(HeldOutcome(message=TOO_LARGE))
        sealed = self._seal().encrypt(value, _place(call.id))
        try:
            await self._store().put(
                call.principal, _store_key(call.id), sealed, self.limits.outcome_s
            )
        except (ChannelError, Refused) as error:
            log.warning("the outcome of a held call is kept in this process: %s", error)
            if len(self._unstored) < self.limits.total:
                self._unstored[call.id] = call.principal, sealed
                loop = asyncio.get_running_loop()
                loop.call_later(self.limits.outcome_s, self._unstored.pop, call.id, None)
        except asyncio.CancelledError:
            log.warning("the outcome of a held call was not kept: the gateway stops")

    async def outcome(
        self, id: str, principal: str, method: Method
    ) -> t.ProtocolType | Exception | None:
        """The outcome that was kept for a principal; None if there is none."""
        owner, sealed = self._unstored.get(id, (None, None))
        if owner != principal:
            sealed = await self._store().get(principal, _store_key(id))
        if sealed is None:
            return None
        try:
            value = self._seal().decrypt(sealed, _place(id))
            return restore_outcome(decode_as(HeldOutcome, value), method)
        except Fault:
            log.warning("the outcome of a held call cannot be read")
            return None

    async def close(self) -> None:
        """Interrupt all calls, and keep that as their outcome."""
        self._closed = True
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        for call in list(self._calls.values()):
            call.abandon()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.finish_s)


def _store_key(id: str) -> str:
    return f"held outcome {id}"


def _place(id: str) -> bytes:
    return f"held outcome {id}".encode()
