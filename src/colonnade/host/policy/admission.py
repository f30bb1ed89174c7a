"""Whether a request may be sent: the rules, the pins, a person, and all of them again before it
is sent.

Rules: an approval is for the definition and the policy that the person saw. Without a way to ask,
`ask` is a refusal.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from colonnade.errors import Refused
from colonnade.host.policy.caller_view import CallerView
from colonnade.host.policy.decisions import PolicyDecisions
from colonnade.host.policy.items import KINDS, GuardedItem
from colonnade.host.policy.pins.pin_guard import PinGuard
from colonnade.host.policy.request import Approver, Consent, Decision, PolicyRequest
from colonnade.host.policy.steps import RequestSteps, denied, done, no_approver
from colonnade.host.servers.generation import HostedServer
from colonnade.host.servers.session import SessionCall
from colonnade.host.servers.supervisor import BeforeSend
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

# Calls that may go on with another round: as many as wait for their clients at a time.
MAX_ROUNDS: Final = 1000
# How long a client may take to answer the input requests of a call that was approved.
ROUNDS_S: Final = 600.0


class ConsentedRounds:
    """Calls that were approved and have an `input_required` result: the consent holds for the next
    round of that very call, which has the state that its server gave, once. It is of this process;
    elsewhere the person is asked again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[Consent, float]] = OrderedDict()

    def keep(
        self, request: PolicyRequest, decision: Decision, consent: Consent, state: str | None
    ) -> None:
        """Let the round with this state use a consent; without a state there is nothing that tells
        the call from another one."""
        if state:
            self._kept[_round(request, decision, state)] = consent, self._clock() + ROUNDS_S
            if len(self._kept) > MAX_ROUNDS:
                self._kept.popitem(last=False)

    def take(self, request: PolicyRequest, decision: Decision, state: str) -> Consent | None:
        """The consent for this round, if there is one; it is used by that."""
        if not state:
            return None
        consent, ends_at = self._kept.pop(_round(request, decision, state), (None, 0.0))
        return consent if ends_at > self._clock() else None


def _round(request: PolicyRequest, decision: Decision, state: str) -> bytes:
    """What a round is of: as what an approval is for, and the state."""
    members = [
        request.principal,
        request.server,
        request.identity,
        request.method,
        request.name,
        request.arguments_digest,
        request.meta_digest,
        request.definition_digest,
        decision.policy_version,
        state,
    ]
    return hashlib.sha256(encode(members)).digest()


class Admission:
    """Decides, compares and asks, for one host."""

    def __init__(
        self, decisions: PolicyDecisions, pins: PinGuard | None, approver: Approver | None
    ) -> None:
        self._decisions = decisions
        self.pins = pins
        self.approver = approver
        self.rounds: ConsentedRounds = ConsentedRounds()

    async def admit(
        self, view: CallerView, server: HostedServer, item: GuardedItem, steps: RequestSteps
    ) -> BeforeSend:
        """Decide, compare with the pins, and ask. Returns the check right before it is sent."""
        request = steps.request
        decision = self._decisions.decide(request)
        steps.decided(decision)
        if decision.action == "deny":
            raise denied(request, decision)
        pins, caller = self.pins, view.facts.principal
        if pins is not None and pins.holds_any(server, item.kind, caller):
            await pins.check(server, item.kind, item.name, caller)
        consent: Consent | None = None
        if decision.action == "ask":
            consent = self.rounds.take(request, decision, item.state)
            if consent is None:
                consent = await self.ask(steps, decision)
            else:
                steps.answered(consent)

        return partial(self._before_send, view, server, item, steps, decision, consent)

    def _before_send(
        self,
        view: CallerView,
        server: HostedServer,
        item: GuardedItem,
        steps: RequestSteps,
        decision: Decision,
        consent: Consent | None,
        call: SessionCall,
    ) -> Awaitable[None] | None:
        """Check a request on the session that it is about to be sent on, and record it."""
        pins, decisions = self.pins, self._decisions
        is_accepted = pins is None or pins.accepts(call, server, item.kind, item.name)
        needs_list = consent is not None or decisions.uses_definitions
        if not is_accepted or needs_list or decisions.version != decision.policy_version:
            return self._check(view, server, item, steps, decision, consent, call)
        return steps.executed(call)  # as nearly always: nothing can have changed

    async def _check(
        self,
        view: CallerView,
        server: HostedServer,
        item: GuardedItem,
        steps: RequestSteps,
        decision: Decision,
        consent: Consent | None,
        call: SessionCall,
    ) -> None:
        if self.pins is not None:
            caller = view.facts.principal
            await self.pins.check_session(call, server, item.kind, item.name, caller)
        await self._check_again(view, server, item, steps, decision, consent)
        await done(steps.executed(call))

    async def ask(self, steps: RequestSteps, decision: Decision) -> Consent:
        """Ask a person. Raises `Refused` if it is declined, or there is no way to ask."""
        request = steps.request
        if self.approver is None:
            raise no_approver(steps, decision)
        with steps.asking(decision):
            consent = await self.approver.approve(request, decision)
        steps.answered(consent)
        return consent

    async def _check_again(
        self,
        view: CallerView,
        server: HostedServer,
        item: GuardedItem,
        steps: RequestSteps,
        decision: Decision,
        consent: Consent | None,
    ) -> None:
        """Compare policy and definition with those of the decision: time has passed, and the
        session may be a new process with another list."""
        request = steps.request
        needs_list = consent is not None or self._decisions.uses_definitions
        definition = request.definition
        if needs_list:
            definition = await self._current_definition(view, server, item)
        if definition is not request.definition:
            request = view.request(server, item, definition)
        is_same = request.definition_digest == steps.request.definition_digest
        if consent is not None and not is_same:
            message = f"the definition of {item.qualified!r} has changed since it was approved"
            raise Refused(message, server=server.key, hint="call it again", reason="changed")
        if not is_same or self._decisions.version != decision.policy_version:
            self._decide_again(request, decision, consent)
        steps.request = request

    def _decide_again(
        self, request: PolicyRequest, before: Decision, consent: Consent | None
    ) -> None:
        after = self._decisions.decide(request)
        if after.action == "deny":
            raise denied(request, after)
        approved_before = consent is not None and before.policy_version != after.policy_version
        if after.action == "ask" and (consent is None or approved_before):
            message = f"the policy or the definition of {request.qualified!r} has changed meanwhile"
            raise Refused(message, server=request.server, hint="call it again", reason="changed")

    async def _current_definition(
        self, view: CallerView, server: HostedServer, item: GuardedItem
    ) -> t.ProtocolType | None:
        """The definition in the list that the session has, which is read again if it may be of
        another process or of another time."""
        if item.kind in ("tool", "prompt"):
            caller = view.facts.principal
            listing = server.listings(caller).by_kind[KINDS[item.kind]]
            if not listing.is_fresh:
                await listing.fetch(caller)
        return view.definition(server, item)
