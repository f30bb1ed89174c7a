"""The bridge for input requests: between a client and a server of any two revisions.

It stands in front of the handler of a host. A request of a client that is asked in results is
forwarded with what an earlier round brought, and its `input_required` result is wrapped; a call to
a server that sends requests of its own is held (`held_calls`). Clients of a session are asked with
requests, which the host sends.

Rules: what a client sends as a state or as input responses reaches a server only if the gateway
gave out that state, to this principal, for this very request and server. A held call that waits at
another replica is continued there.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Literal

from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.auth.seal import RequestStateStorage
from colonnade.errors import (
    ChannelError,
    ConnectionLost,
    Declined,
    Fault,
    FaultKind,
    Refused,
    RemoteError,
)
from colonnade.gateway.held_calls import HeldCall, HeldCalls, HeldLimits, HeldRequest, interrupted
from colonnade.gateway.input_requests import (
    FIRST_ROUND,
    MAX_ROUNDS,
    GatewayState,
    GivenRound,
    InputPath,
    can_open_urls,
    exchange_with_round,
    input_path,
    open_state,
    required_capabilities,
    required_urls,
    round_of,
    url_round,
    with_params,
    words_for_urls,
)
from colonnade.host.host import Host
from colonnade.host.view import HostView
from colonnade.ports import (
    RequestContext,
    Seal,
    Service,
    Session,
    Store,
    TaskRelay,
    WrappedRequest,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import CallerLost, Exchange
from colonnade.protocol.input_requests import NO_INPUT, InputCapabilities, needed_capability
from colonnade.protocol.input_rounds import invalid_request_state, subject_of
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer, missing_capability
from colonnade.protocol.revision import InputRequests, Tasks
from colonnade.server.handlers.tools import error_result

if TYPE_CHECKING:  # loaded with a shared store only
    from colonnade.replicas.remote_request import RemoteRequests
    from colonnade.replicas.replica import Replica

log: logging.Logger = logging.getLogger("colonnade.gateway")

# The lifetime of a state: the time for the user to respond.
STATE_LIFETIME_S = 600.0
POLICY_CHANGED = "the policy has changed while the call waited for input, so it was cancelled"
HOLDER_AWAY = (
    "the replica that holds this call cannot be reached; whether it had an effect is unknown: send "
    "the responses again, or check"
)
# What a request of another replica is for: the next round of a held call.
HELD_KEY = "held call"


class ForwardedInput(Struct, eq=False):
    """The caller of a forwarded request, as the host's sessions see it: the round before, if there
    was one, and the server that requires input now. `in_results` is whether `input_required`
    results are handed back."""

    in_results: bool
    before: GatewayState | None = None
    tasks: TaskRelay | None = None
    server: str = ""
    answered: dict[str, Raw] = {}
    reviewed_next: dict[str, t.AnyInputRequest] = {}

    @property
    def under_review(self) -> Mapping[str, t.AnyInputRequest]:
        """The input requests of the round before whose responses a person sees first."""
        return self.before.under_review if self.before is not None else {}

    def check_server(self, server: str) -> None:
        """Refuse to send the state of one server to another, which has its name now."""
        if self.before is not None and self.before.server != server:
            raise invalid_request_state()

    def relayed(self, server: str, answered: Mapping[str, Raw]) -> None:
        """An `input_required` result of this server is handed back."""
        self.server, self.answered = server, dict(answered)

    def review_next(self, requests: Mapping[str, t.AnyInputRequest]) -> None:
        """The responses to these are reviewed in the next round, in whichever process that is."""
        self.reviewed_next = dict(requests)


class ForwardedRequest(WrappedRequest):
    """A request of a client on its way to the host."""

    # What takes the input requests of servers, and the session of the client: they are looked at
    # several times on every call, so they are no properties here.
    input_relay: ForwardedInput | None = None
    session: Session | None = None

    def __init__(
        self, request: RequestContext, exchange: Exchange, relay: ForwardedInput | None
    ) -> None:
        self.fault: Fault | None = None
        self.exchange: Exchange = exchange
        self._request: RequestContext = request
        self.input_relay = relay  # pyright: ignore[reportIncompatibleMethodOverride]
        self.session = request.session  # pyright: ignore[reportIncompatibleMethodOverride]


class InputBridge:
    """Forwards the requests of clients to a host, with their input requests in both directions.

    `seal` encrypts what clients carry, and `store` has the outcomes of held calls. `tasks` returns
    what hands the task back that a call may become.
    """

    def __init__(
        self,
        host: Host | HostView,
        seal: Callable[[], Seal],
        store: Callable[[], Store],
        tasks: Callable[[RequestContext], TaskRelay | None],
        *,
        limits: HeldLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host = host
        self._tasks = tasks
        self._seal = seal
        self._clock = clock
        self._states = RequestStateStorage(seal, store)
        self.held: HeldCalls = HeldCalls(store, seal, limits, clock)
        # Requests of one client have the same peer, so the last one is most likely the next.
        self._last_peer: tuple[Peer | None, bool] = (None, False)
        self._replica: Replica | None = None
        self._remote: RemoteRequests | None = None

    async def start(
        self, exit_stack: AsyncExitStack, service: Service, replica: "Replica | None"
    ) -> None:
        """Start, until the stack is closed. As one of several replicas of the service, which have
        the same keys, each continues the held calls of the others."""
        if replica is not None:
            from colonnade.gateway.homes import KEY_PREFIX, GatewayHomes
            from colonnade.replicas.remote_request import RemoteRequests

            self._replica = replica
            remote = self._remote = RemoteRequests(replica, service)
            name = service.identity.info.name
            homes = GatewayHomes(replica, remote, name, self._seal())
            remote.route(KEY_PREFIX, homes.respond)
            await replica.start()
            exit_stack.push_async_callback(replica.close)
            exit_stack.push_async_callback(remote.close)
            if self._host.use_homes(homes):
                homes.start()
                exit_stack.callback(self._host.use_homes, None)
                exit_stack.push_async_callback(homes.close)
        exit_stack.push_async_callback(self.held.close)

    # ------------------------------------------------------------ requests

    def handle(self, request: RequestContext) -> Awaitable[t.ProtocolType]:
        """The result of a request, or `input_required`. Raises what the handler of the host does,
        and `Fault` for a state that is not valid for this request."""
        exchange = request.exchange
        if not exchange.method.may_require_input:
            return self._host.handler(request)
        if exchange.peer.revision.input_requests is InputRequests.AS_REQUEST:
            relay = ForwardedInput(in_results=False, tasks=self._tasks(request))
            return self._host.handler(ForwardedRequest(request, exchange, relay))
        given = round_of(exchange.request, exchange.params)
        if given.state is None:
            # Responses without a state belong to nothing that was asked here.
            return self._begin(request, FIRST_ROUND, None, strip=given.responses is not None)
        return self._continue(request, given, given.state)

    async def _continue(
        self, request: RequestContext, given: GivenRound, text: str
    ) -> t.ProtocolType:
        """Forward the next round of a request, by its state."""
        exchange = request.exchange
        state = await self._open(text, exchange)
        responses = given.responses or {}
        if state.kind == "held":
            return await self._resume(request, state, responses)
        if state.kind == "url":
            _check_consent(state, responses)
            return await self._begin(request, FIRST_ROUND, state, strip=True)
        # Those to input requests of this round: a server is sent no others.
        asked = {key: response for key, response in responses.items() if key in state.asked}
        known = asked | state.answered
        given = GivenRound(known or None, state.state)
        return await self._begin(request, given, state, strip=True)

    async def _open(self, text: str, exchange: Exchange) -> GatewayState:
        secret = await self._states.load(text, exchange.principal)
        return open_state(
            secret,
            principal=exchange.principal,
            method=exchange.method.name,
            subject=subject_of(exchange.request.params),
            now=self._clock(),
        )

    async def _begin(
        self,
        request: RequestContext,
        given: GivenRound,
        state: GatewayState | None,
        *,
        strip: bool,
    ) -> t.ProtocolType:
        """Forward a request, with a round of its server; `strip` is whether it has another one."""
        exchange = request.exchange
        if strip:
            exchange = exchange_with_round(exchange, given)
        before = state if state is not None and state.kind == "relay" else None
        relay = ForwardedInput(True, before, self._tasks(request))
        round = state.round if state is not None else 0
        if before is None and self._may_be_held(request, relay):
            own = replace(exchange, deliver=None)
            held = HeldRequest(request, own, relay)
            call = self.held.begin(held, self._host.handler, self._policy_version)
            return await self._wait(request, call, relay, round, 0)
        try:
            result = await self._host.handler(ForwardedRequest(request, exchange, relay))
        except RemoteError as error:
            return await self._required_by_error(error, request, round)
        finally:
            request.exchange.origin = exchange.origin
        if not isinstance(result, t.InputRequiredResult):
            return result
        return await self._wrap(result, request, relay, round)

    def _may_be_held(self, request: RequestContext, relay: ForwardedInput) -> bool:
        """Whether a server may require input while it handles this request, other than in a result,
        as far as its revision is known: with requests of its own, or in a task that is awaited."""
        peer = request.exchange.peer
        if self._last_peer[0] is not peer:
            self._last_peer = peer, InputCapabilities.of(peer) != NO_INPUT
        if not self._last_peer[1]:  # it has declared none
            return False
        target = self._host.input_target(request)
        if target is None:
            return True
        revision, input, tasks = target
        if input == NO_INPUT:
            return False
        if tasks is not Tasks.NONE and relay.tasks is None:
            return True
        client = peer.revision
        return revision is None or input_path(client, revision) is InputPath.HELD

    # ------------------------------------------------------------ results that require input

    async def _wrap(
        self, result: t.ProtocolType, request: RequestContext, relay: ForwardedInput, round: int
    ) -> t.ProtocolType:
        """The result of a server for the client: with a state of the gateway, if it requires
        input."""
        if not isinstance(result, t.InputRequiredResult):
            return result
        state = replace(
            self._state(request, "relay", round + 1),
            server=relay.server,
            state=result.request_state,
            asked=tuple(result.input_requests or ()),
            answered=relay.answered,
            under_review=relay.reviewed_next,
        )
        return await self._input_required(result.input_requests, state)

    async def _required_by_error(
        self, error: RemoteError, request: RequestContext, round: int
    ) -> t.ProtocolType:
        """The result for an error that requires input: URLs to open before the call is repeated."""
        exchange = request.exchange
        urls = required_urls(error)
        if urls and can_open_urls(exchange.peer):
            asked = url_round(urls)
            state = replace(self._state(request, "url", round + 1), asked=tuple(asked))
            return await self._input_required(asked, state)
        if urls:
            raise missing_capability(words_for_urls(urls), **needed_capability(urls[0])) from error
        if required_capabilities(error) is not None:
            kind = FaultKind.CAPABILITY_MISSING
            raise Fault(kind, error.message, error.data) from error
        raise error

    def _state(
        self, request: RequestContext, kind: Literal["relay", "held", "url"], round: int
    ) -> GatewayState:
        """The state for the next round. Raises `Fault` after too many of them."""
        if round > MAX_ROUNDS:
            message = f"the server required input {MAX_ROUNDS} times and is still not done"
            raise Fault(FaultKind.INTERNAL, message)
        exchange = request.exchange
        return GatewayState(
            kind=kind,
            principal=exchange.principal,
            method=exchange.method.name,
            subject=subject_of(exchange.request.params),
            expires_at=self._clock() + STATE_LIFETIME_S,
            round=round,
        )

    async def _input_required(
        self, requests: dict[str, t.AnyInputRequest] | None, state: GatewayState
    ) -> t.InputRequiredResult:
        ttl_s = max(state.expires_at - self._clock(), 0.0)
        sealed = await self._states.save(encode(state), state.principal, ttl_s)
        sent = {key: with_params(request) for key, request in (requests or {}).items()}
        return t.InputRequiredResult(
            result_type="input_required", input_requests=sent or None, request_state=sealed
        )

    # ------------------------------------------------------------ held calls

    async def _wait(
        self,
        request: RequestContext,
        call: HeldCall,
        relay: ForwardedInput | None,
        round: int,
        after: int,
    ) -> t.ProtocolType:
        """Wait for the outcome of a call, or for its next round."""
        asked = await call.wait(request, after)
        if asked is not None:
            state = replace(
                self._state(request, "held", asked.number),
                expires_at=asked.expires_at,
                replica=self._replica.name if self._replica is not None else "",
                call=call.id,
            )
            return await self._input_required(asked.requests, state)
        outcome = call.outcome
        assert outcome is not None
        request.exchange.origin = call.request.exchange.origin
        return await self._conclude(outcome, request, relay, round)

    async def _conclude(
        self,
        outcome: t.ProtocolType | Exception,
        request: RequestContext,
        relay: ForwardedInput | None,
        round: int,
    ) -> t.ProtocolType:
        if isinstance(outcome, RemoteError):
            return await self._required_by_error(outcome, request, round)
        if isinstance(outcome, Exception):
            raise outcome
        if relay is None:
            return outcome
        return await self._wrap(outcome, request, relay, round)

    async def _resume(
        self, request: RequestContext, state: GatewayState, responses: Mapping[str, Raw]
    ) -> t.ProtocolType:
        """The next round of a held call, or its outcome."""
        exchange = request.exchange
        call = self.held.get(state.call, exchange.principal)
        if call is not None:
            if call.policy_version != self._policy_version:
                call.abandon()
                raise Refused(POLICY_CHANGED, hint="call again")
            call.take(state.round, responses)
            return await self._wait(request, call, None, state.round, state.round)
        try:
            found = await self.held.outcome(state.call, exchange.principal, exchange.method)
        except ChannelError as error:
            log.warning("the round of a held call failed: %s", error)
            raise ConnectionLost(HOLDER_AWAY) from error
        if found is None:
            raise interrupted()
        return await self._conclude(found, request, None, state.round)

    @property
    def _policy_version(self) -> str:
        """The version of the rules that are in force; empty without any."""
        policy = self._host.policy
        return policy.version if policy is not None else ""

    @property
    def has_replicas(self) -> bool:
        """Whether a held call may wait at another replica."""
        return self._remote is not None

    async def respond_elsewhere(self, request: RequestContext) -> bytes | None:
        """The encoded response to the next round of a call that is held at another replica; None
        for all other requests, and if that replica is gone."""
        if self._remote is None or self._replica is None:
            return None
        exchange = request.exchange
        if not exchange.method.may_require_input:
            return None
        given = round_of(exchange.request, exchange.params)
        if given.state is None:
            return None
        state = await self._open(given.state, exchange)
        if state.kind != "held" or state.replica in ("", self._replica.name):
            return None
        try:
            return await self._send_round(request, state)
        except ChannelError as error:
            if isinstance(error, CallerLost):
                raise
            log.warning("the round of a held call failed: %s", error)
            raise ConnectionLost(HOLDER_AWAY) from error

    async def _send_round(self, request: RequestContext, state: GatewayState) -> bytes | None:
        """The response of the replica that holds a call; None if the call is not there any more.
        Raises `ChannelError` if that cannot be known."""
        assert self._remote is not None
        assert self._replica is not None
        exchange = request.exchange
        found = await self.held.outcome(state.call, exchange.principal, exchange.method)
        if found is not None or not await self._replica.is_alive(state.replica):
            return None
        # The round is settled below, unless the call has ended with its replica: what was done
        # before this round is not known then, although the round itself was not started.
        sent = WrappedRequest(request)
        sent.exchange = replace(exchange, deliver=None)
        response = await self._remote.run(sent, state.replica, HELD_KEY)
        fault = sent.fault
        if fault is not None and fault.data is not None:  # of this replica, not of the other one
            if not await self._replica.is_alive(state.replica):
                return None
            raise ConnectionLost("it does not respond")
        request.fault = fault
        return exchange.settle_encoded(response) if response is not None else exchange.abandon()


# ---------------------------------------------------------------- clients of a session


def required_of_session(error: RemoteError, exchange: Exchange) -> t.ProtocolType | None:
    """The result for an error that requires input of a client that is sent input requests as
    requests (D10); None for an error that is passed on. Raises `Fault`."""
    if not exchange.method.may_require_input:
        return None
    if exchange.peer.revision.input_requests is not InputRequests.AS_REQUEST:
        return None
    peer, urls = exchange.peer, required_urls(error)
    if urls and can_open_urls(peer) and peer.revision.elicitation.url_required_error:
        raise Fault(FaultKind.URL_ELICITATION_REQUIRED, error.message, error.data) from error
    is_call = exchange.method.params is t.CallToolRequestParams
    if urls:
        words = words_for_urls(urls)
        if is_call:
            return error_result(words)
        raise missing_capability(words, **needed_capability(urls[0])) from error
    if required_capabilities(error) is not None:
        if is_call:
            return error_result(f"server {error.server!r}: {error.message}")
        raise Fault(FaultKind.CAPABILITY_MISSING, error.message, error.data) from error
    return None


def _check_consent(state: GatewayState, responses: Mapping[str, Raw]) -> None:
    """Raise `Declined` if the user did not accept to open a URL that the server requires."""
    for key in state.asked:
        raw = responses.get(key)
        if raw is None:
            continue  # the server requires it again
        if decode_as(t.ElicitResult, raw).action != "accept":
            raise Declined("the user declined to open the URL of the server")
