"""What servers ask for (elicitation, sampling, roots), by the rules of a host.

Rules: an input request belongs to the call that it is sent in, and passes the same rules. What a
person must see is shown before the server has it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Declined, FaultKind, Refused, RemoteError
from colonnade.host.config.settings import ServerEntry
from colonnade.host.policy.admission import Admission
from colonnade.host.policy.containment import ServerContainment, aside
from colonnade.host.policy.decisions import REVIEWED_METHODS, PolicyDecisions
from colonnade.host.policy.records import RequestRecords
from colonnade.host.policy.request import (
    NO_ARGUMENTS,
    Approver,
    CallerFacts,
    Consent,
    Decision,
    Denial,
    DenialRemembered,
    DeniedByPerson,
    ForwardInput,
    PolicyRequest,
    server_identity,
)
from colonnade.host.policy.steps import RequestSteps, done, no_approver
from colonnade.host.servers.callers import LastCaller
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest, input_requests_in
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

log: logging.Logger = logging.getLogger("colonnade.host")

# Input requests of tasks that are remembered: those of some hundred tasks at a time.
MAX_REVIEWED_TASKS = 1000

R = TypeVar("R")


class InputReview:
    """Decides about the input requests of servers, for one host."""

    def __init__(
        self,
        decisions: PolicyDecisions,
        admission: Admission,
        records: RequestRecords,
        containment: ServerContainment | None,
    ) -> None:
        self._decisions = decisions
        self._admission = admission
        self._records = records
        self._containment = containment
        # This program as a client, if the inbox answers the forms and URLs that are for it.
        self.form_peers: tuple[Peer, ...] = ()
        # What came of the input requests of tasks, by their digests: None for those that a client
        # gets as they are.
        self._reviewed_tasks: dict[bytes, t.AnyInputRequest | DeniedByPerson | None] = {}
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        # Tasks and keys whose request a person was asked about, by their digests: so is the
        # response, whatever the server asks under the same key by then.
        self._under_review: dict[bytes, None] = {}

    async def review_roots(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        request: InputRequest,
        forward: ForwardInput,
        last: LastCaller | None = None,
    ) -> Raw:
        """The roots that a server may see; `forward` returns all of them. `last` is the caller if
        the server asks outside of calls. Raises `Declined`."""
        try:
            return await self.review_input(entry, contexts, request, forward, last)
        except RemoteError as error:
            raise Declined(error.message) from None

    async def review_input(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        input_request: InputRequest,
        forward: ForwardInput,
        last: LastCaller | None = None,
    ) -> Raw:
        """The result of an input request of a server, if the rules allow it. Otherwise that of an
        elicitation is `decline`, or `cancel` if there is no decision; for sampling and roots, whose
        results have no such member, it raises `RemoteError` with the code of a user's refusal."""
        try:
            input_request = await self._contained(entry, input_request)
        except Refused as refused:
            return _refusal(entry, contexts, input_request, refused)
        request = self._decisions.strictest(
            [
                self._input_policy_request(entry, one, input_request, last)
                for one in contexts or (None,)
            ]
        )
        steps = RequestSteps(self._records.audit, request)
        try:
            decision = self._decisions.decide(request)
            steps.decided(decision)
            if decision.action == "deny":
                raise Refused(decision.reason, reason="rule", rule=decision.rule)
            if decision.action == "allow":
                await done(steps.executed(None))
                result = await forward(input_request)
            elif self._admission.approver is None:
                raise no_approver(steps, decision)
            else:
                result = await self._reviewed_input(
                    self._admission.approver, steps, decision, contexts, input_request, forward
                )
            steps.returned(result)
            return result
        except Refused as refused:
            steps.abandoned(refused)
            return _refusal(entry, contexts, input_request, refused)
        except BaseException as error:
            steps.abandoned(error)
            raise

    async def _reviewed_input(
        self,
        approver: Approver,
        steps: RequestSteps,
        decision: Decision,
        contexts: tuple[RequestContext, ...],
        input_request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        """The result of an input request that a person is asked about. A form or a URL that the
        inbox answers is shown there once; one that goes to a callback or a client is approved
        first, because those may answer without a person."""
        request = steps.request
        is_elicitation = isinstance(input_request.params, t.ElicitRequestParams)
        in_inbox = bool(contexts) and all(
            any(one.exchange.peer is peer for peer in self.form_peers) for one in contexts
        )
        if is_elicitation and not in_inbox:
            await self._admission.ask(steps, decision)
            await done(steps.executed(None))
            return await forward(input_request)
        with steps.asking(decision):
            await done(steps.executed(None))
            if is_elicitation:
                result = await forward(input_request)
            else:
                result = await approver.review_input(request, decision, input_request, forward)
        action = "accept"
        if is_elicitation:
            action = msgspec.json.decode(result, type=t.ElicitResult).action
        if action == "cancel":
            steps.unanswered("cancelled", "it was cancelled, or expired without an answer")
        else:
            accepted = action == "accept"
            steps.answered(Consent() if accepted else Denial("it was declined"))
        return result

    async def review_relayed(
        self, entry: ServerEntry, context: RequestContext, result: t.InputRequiredResult
    ) -> t.InputRequiredResult:
        """Decide about the input requests in a result that is handed back to the client, which
        answers them in its next request. Returns the result to hand back, with what a person has
        edited. Raises `Refused` for one that is denied, or not approved."""
        asked, under_review = dict(result.input_requests or {}), dict[str, t.AnyInputRequest]()
        for key, input_request in input_requests_in(result).items():
            shown = await self._contained(entry, input_request)
            steps = self._proposed(entry, context, shown)
            with _recorded(steps):
                reviewed = await self._admitted(entry, steps, shown)
            if reviewed is not None:
                under_review[key] = _written(reviewed)
                if reviewed is not shown:
                    asked[key] = under_review[key]
            steps.returned(result)
        if not under_review:
            return result
        assert context.input_relay is not None, "there is a client that gets the result"
        context.input_relay.review_next(under_review)
        return replace(result, input_requests=asked)

    async def _admitted(
        self, entry: ServerEntry, steps: RequestSteps, shown: InputRequest
    ) -> InputRequest | None:
        """Let an input request pass to a client that answers it later. Returns what a person has
        made of one whose response is to be reviewed, too; None for all others. Raises `Refused`."""
        decision, reviewed = self._not_denied(entry, steps), None
        if decision.action == "ask" and steps.request.method in REVIEWED_METHODS:
            review = self._approver(steps, decision).review_request
            ask = partial(review, steps.request, decision, shown)
            reviewed = await self._answered(steps, decision, ask)
        elif decision.action == "ask":
            await self._admission.ask(steps, decision)
        await done(steps.executed(None))
        return reviewed

    async def review_responses(
        self, entry: ServerEntry, context: RequestContext, responses: Mapping[str, Raw]
    ) -> dict[str, Raw]:
        """The responses of a client to what a person was asked about in the round before, as the
        server may get them: the person sees each and may edit it. Raises `Refused`, and `Fault` for
        one that does not fit its request."""
        assert context.input_relay is not None, "the router asks for rounds that have something"
        found = dict(responses)
        asked = t.InputRequiredResult(input_requests=dict(context.input_relay.under_review))
        for key, input_request in input_requests_in(asked).items():
            response = found.get(key)
            if response is not None:  # otherwise the server requires it again
                found[key] = await self._response(
                    entry, context, input_request, response, always=True
                )
        return found

    async def _response(
        self,
        entry: ServerEntry,
        context: RequestContext,
        input_request: InputRequest,
        response: Raw,
        *,
        always: bool = False,
    ) -> Raw:
        """A response as the server may get it, after a person has seen it; `always` is whether one
        must, whatever the rules say now."""
        input_request.decode_response(response, context.exchange.peer.revision)
        steps = self._proposed(entry, context, input_request)
        with _recorded(steps):
            decision = self._not_denied(entry, steps)
            if always or decision.action == "ask":
                review = self._approver(steps, decision).review_response
                ask = partial(review, steps.request, decision, input_request, response)
                response = await self._answered(steps, decision, ask)
            await done(steps.executed(None))
        steps.returned(response)
        return response

    # ------------------------------------------------------------ tasks

    async def review_task(
        self, entry: ServerEntry, context: RequestContext, state: t.ExtGetTaskResult
    ) -> t.ExtGetTaskResult:
        """Decide about the input requests of a task that the client answers itself, each once: its
        state is read again and again. Returns the state to hand over, with what a person has
        edited. Raises `Refused`."""
        shown = dict(state.input_requests or {})
        for key, one in shown.items():
            known = encode([entry.key, context.exchange.principal, state.task_id, key, one])
            digest = hashlib.sha256(known + self._decisions.version.encode()).digest()
            lock = self._locks.setdefault(digest, asyncio.Lock())
            async with lock:  # of several reads at a time one asks
                if digest not in self._reviewed_tasks:
                    found = await self._review_of_task(entry, context, state.task_id, key, one)
                    self._keep_review(digest, found)
                reviewed = self._reviewed_tasks[digest]
            if isinstance(reviewed, DeniedByPerson):
                raise reviewed.copy()
            shown[key] = reviewed or one
        edited = any(shown[key] is not one for key, one in (state.input_requests or {}).items())
        return replace(state, input_requests=shown) if edited else state

    def _keep_review(
        self, digest: bytes, found: "t.AnyInputRequest | DeniedByPerson | None"
    ) -> None:
        self._reviewed_tasks[digest] = found
        if len(self._reviewed_tasks) > MAX_REVIEWED_TASKS:
            del self._reviewed_tasks[next(iter(self._reviewed_tasks))]

    async def _review_of_task(
        self,
        entry: ServerEntry,
        context: RequestContext,
        task_id: str,
        key: str,
        asked: t.AnyInputRequest,
    ) -> "t.AnyInputRequest | DeniedByPerson | None":
        """What a person has made of an input request of a task: another one, None for the same, or
        a refusal. Raises `Refused` if none has answered."""
        required = t.InputRequiredResult(input_requests={key: asked})
        shown = await self._contained(entry, input_requests_in(required)[key])
        steps = self._proposed(entry, context, shown)
        try:
            with _recorded(steps):
                reviewed = await self._admitted(entry, steps, shown)
        except DenialRemembered:
            raise
        except DeniedByPerson as denied:
            return denied
        steps.returned(NO_ARGUMENTS)
        if reviewed is None:
            return None
        self._under_review[_task_key(entry, context, task_id, key)] = None
        if len(self._under_review) > MAX_REVIEWED_TASKS:
            del self._under_review[next(iter(self._under_review))]
        return None if reviewed is shown else _written(reviewed)

    async def review_task_responses(
        self,
        entry: ServerEntry,
        context: RequestContext,
        state: t.ExtGetTaskResult,
        responses: Mapping[str, Raw],
    ) -> dict[str, Raw]:
        """The responses of a client to the input requests of a task, as the server may get them:
        where a person is asked, that person sees each and may edit it. One to what the task does
        not ask is left out. Raises `Refused`, and `Fault` for one that does not fit its request."""
        asked = {key: one for key, one in (state.input_requests or {}).items() if key in responses}
        await self.review_task(entry, context, replace(state, input_requests=asked))
        found: dict[str, Raw] = {}
        required = t.InputRequiredResult(input_requests=asked)
        for key, input_request in input_requests_in(required).items():
            found[key] = responses[key]
            # Each must fit: a server that asks for something else under the same key would get what
            # was meant to be reviewed.
            input_request.decode_response(responses[key], context.exchange.peer.revision)
            if input_request.kind.method in REVIEWED_METHODS:
                always = _task_key(entry, context, state.task_id, key) in self._under_review
                found[key] = await self._response(
                    entry, context, input_request, responses[key], always=always
                )
        return found

    async def _contained(self, entry: ServerEntry, input_request: InputRequest) -> InputRequest:
        """The input request as people, models and rules see it."""
        if self._containment is None:
            return input_request
        return await aside(self._containment.of(entry.key).input_request, input_request)

    def _proposed(
        self, entry: ServerEntry, context: RequestContext, input_request: InputRequest
    ) -> RequestSteps:
        request = self._input_policy_request(entry, context, input_request)
        return RequestSteps(self._records.audit, request)

    def _not_denied(self, entry: ServerEntry, steps: RequestSteps) -> Decision:
        """What the rules say of an input request for a client. Raises `Refused` for a denial."""
        decision = self._decisions.decide(steps.request)
        steps.decided(decision)
        if decision.action == "deny":
            message = f"server {entry.key!r} asked for what a policy denies"
            raise Refused(message, server=entry.key, reason="rule", rule=decision.rule)
        return decision

    def _approver(self, steps: RequestSteps, decision: Decision) -> Approver:
        if self._admission.approver is None:
            raise no_approver(steps, decision)
        return self._admission.approver

    async def _answered(
        self, steps: RequestSteps, decision: Decision, ask: Callable[[], Awaitable[R]]
    ) -> R:
        """What a person lets through."""
        with steps.asking(decision):
            found = await ask()
        steps.answered(Consent())
        return found

    def _input_policy_request(
        self,
        entry: ServerEntry,
        context: RequestContext | None,
        input_request: InputRequest,
        last: LastCaller | None = None,
    ) -> PolicyRequest:
        arguments = Raw(encode(input_request.params))
        method = input_request.kind.method
        steps = self._records.in_flight(context) if context is not None else None
        if steps is not None and steps.request.server == entry.key:
            return replace(
                steps.request,
                method=method,
                arguments=arguments,
                meta=NO_ARGUMENTS,
                during=steps.id,
            )
        facts = CallerFacts()
        if context is not None:
            facts = CallerFacts.of(context)
        elif last is not None:
            facts = CallerFacts.of_caller(last.principal, last.peer, last.claims)
        claims: dict[str, Any] = msgspec.json.decode(facts.claims) if facts.claims else {}
        return PolicyRequest(
            principal=facts.principal,
            claims=claims,
            client=facts.client,
            revision=facts.revision,
            server=entry.key,
            identity=server_identity(entry),
            trusted=entry.settings.trusted,
            method=method,
            kind="tool",
            name="",
            qualified="",
            arguments=arguments,
        )


def _refusal(
    entry: ServerEntry,
    contexts: tuple[RequestContext, ...],
    input_request: InputRequest,
    refused: Refused,
) -> Raw:
    """The result of an elicitation that is refused. Raises `RemoteError` for other requests."""
    method = input_request.kind.method
    log.info("%s of server %r is refused: %s", method, entry.key, refused)
    if isinstance(input_request.params, t.ElicitRequestParams):
        return Raw(encode(t.ElicitResult(action=_action_of(refused))))
    raise RemoteError(_code_of(contexts), "the request was refused by a policy of the user")


def _action_of(refused: Refused) -> Literal["decline", "cancel"]:
    """The action of an elicitation that is refused: `decline` for a decision, of a rule or a
    person, and `cancel` if there was none."""
    is_decided = refused.reason == "rule" or isinstance(refused, DeniedByPerson)
    return "decline" if is_decided else "cancel"


def _code_of(contexts: tuple[RequestContext, ...]) -> int:
    revision = contexts[-1].exchange.peer.revision if contexts else NEWEST
    return revision.codes[FaultKind.USER_REJECTED]


def _task_key(entry: ServerEntry, context: RequestContext, task_id: str, key: str) -> bytes:
    """One key of the input requests of a task of a caller."""
    about = encode([entry.key, context.exchange.principal, task_id, key])
    return hashlib.sha256(about).digest()


def _written(request: InputRequest) -> t.AnyInputRequest:
    """A request for sampling or roots, as it stands in an `input_required` result."""
    params = request.params
    if isinstance(params, t.CreateMessageRequestParams):
        return t.CreateMessageRequest(params=params)
    return t.ListRootsRequest()


@contextmanager
def _recorded(steps: RequestSteps) -> Generator[None]:
    """Record an error that ends a request."""
    try:
        yield
    except BaseException as error:
        steps.abandoned(error)
        raise
