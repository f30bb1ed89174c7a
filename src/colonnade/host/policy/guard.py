"""The guard of a host: what the router asks before a request is forwarded, and before a list is
shown.

One request passes in this order: decide by the rules, compare the definition with the pins, ask for
an approval, check again on the session that it is sent on, send, contain the result; each step is
recorded in the audit log. What servers ask (elicitation, sampling, roots) passes the same rules.

Rules: the guard is inside all middleware, so no entry to a host is beside it. What was inspected is
sent, byte for byte. A hidden item is unknown: the guard raises no error of its own for it, and the
router raises the one for a name that does not exist. Without a way to ask, `ask` is a refusal.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from msgspec import Raw, Struct

from colonnade.errors import ColonnadeError, Fault, RemoteError, RemoteProtocolError, TaskEnded
from colonnade.host.config.settings import ServerEntry
from colonnade.host.policy.admission import Admission
from colonnade.host.policy.caller_view import CallerView, CallerViews
from colonnade.host.policy.containment import Containment, ServerContainment, aside
from colonnade.host.policy.decisions import PolicyDecisions
from colonnade.host.policy.input_review import InputReview
from colonnade.host.policy.items import (
    GuardedItem,
    completed_arguments,
    resource_item,
)
from colonnade.host.policy.pins.pin_guard import PinGuard
from colonnade.host.policy.pins.pins import Pins
from colonnade.host.policy.records import RequestRecords
from colonnade.host.policy.request import (
    Approver,
    AuditSink,
    CallerFacts,
    ForwardInput,
    RuleSet,
)
from colonnade.host.policy.steps import HiddenNow
from colonnade.host.servers.callers import LastCaller
from colonnade.host.servers.generation import Generation, HostedServer
from colonnade.host.servers.listings import ListKind, ListSource, ReviewedItems
from colonnade.host.servers.supervisor import BeforeSend
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import NOTHING
from colonnade.protocol.negotiation import Peer

# Errors whose messages have words of a server in them.
_WORDS_OF_SERVERS = (RemoteError, RemoteProtocolError, TaskEnded)


class GuardedResult(Struct, frozen=True):
    """A result for the caller, and the same as the server sent it."""

    result: t.ProtocolType
    untouched: t.ProtocolType


class PolicyGuard:
    """What a host consults for each request. Every part may be missing: without rules everything
    is allowed, without pins every definition is accepted."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        pins: Pins | None = None,
        audit: AuditSink | None = None,
        approver: Approver | None = None,
        containment: Containment | None = None,
    ) -> None:
        self._decisions = PolicyDecisions(rules, reviews_input=approver is not None)
        self.pins: PinGuard | None = PinGuard(pins) if pins is not None else None
        self._containment = ServerContainment(containment) if containment is not None else None
        self._views = CallerViews(self._decisions, self.pins)
        self._records = RequestRecords(audit, self._decisions, self._views)
        self._admission = Admission(self._decisions, self.pins, approver)
        self._input = InputReview(
            self._decisions, self._admission, self._records, self._containment
        )

    @property
    def rules(self) -> RuleSet | None:
        """The rules."""
        return self._decisions.rules

    @property
    def version(self) -> str:
        """The version of the rules; empty without any."""
        return self._decisions.version

    def set_rules(self, rules: RuleSet | None) -> bool:
        """Use other rules from now on; whether they differ."""
        before = self.version
        self._decisions.rules = rules
        self.forget_views()
        return self.version != before

    def use_parts(
        self, pins: Pins | None, audit: AuditSink | None, approver: Approver | None
    ) -> None:
        """Use other parts from now on; requests in flight end with those that they began with."""
        if pins is not (self.pins.pins if self.pins is not None else None):
            self.pins = PinGuard(pins) if pins is not None else None
            self._views.pins = self._admission.pins = self.pins
        self._records.audit = audit
        self._admission.approver = approver
        self._decisions.reviews_input = approver is not None
        self.forget_views()

    def forget_views(self) -> None:
        """Decide anew what callers may see: the rules or the pins have changed."""
        self._views.clear()

    def view(self, context: RequestContext) -> CallerView:
        """What the caller of a request may see."""
        return self._views.of(CallerFacts.of(context))

    def view_for(self, facts: CallerFacts) -> CallerView:
        """What a caller may see."""
        return self._views.of(facts)

    # ------------------------------------------------------------ items

    def named_item(
        self,
        method: str,
        kind: Literal["tool", "prompt"],
        own: str,
        server: HostedServer,
        arguments: Raw,
    ) -> GuardedItem:
        """A tool or a prompt, by its name on the server."""
        return GuardedItem(method, kind, own, server.qualified(own), arguments)

    def resource_item(self, method: str, uri: str, params: t.RequestParams) -> GuardedItem:
        """A resource, or the template whose variables are completed."""
        return resource_item(method, uri, params)

    def completed_arguments(self, params: t.CompleteRequestParams) -> Raw:
        """The arguments of a completion."""
        return completed_arguments(params)

    # ------------------------------------------------------------ lists

    async def review(
        self,
        server: HostedServer,
        kind: ListKind,
        listed: Sequence[Any],
        source: ListSource,
        keys: Iterable[str],
    ) -> ReviewedItems:
        """Review a list that has just been read; `keys` are those of all servers."""
        review = None
        if self.pins is not None:
            review = await self.pins.review(server, kind, source)
            self.pins.note_titles(server, source, keys)
        contain = self.contain(server.key)
        if contain is not None:
            listed, problems = await aside(contain.definitions, listed)
            for problem in problems:
                server.warn(problem)
        return ReviewedItems(listed, review)

    async def recheck(self, servers: Iterable[HostedServer], kind: ListKind, caller: str) -> None:
        """Have lists read again in which something was held that has been accepted since."""
        if self.pins is not None:
            for server in servers:
                await self.pins.recheck(server, kind, caller)

    def instructions(self, server: HostedServer) -> str | None:
        """The instructions of a server, as far as they may be shown."""
        text = server.instructions
        if not text or (self.pins is not None and not self.pins.shows_instructions(server, text)):
            return None
        contain = self.contain(server.key)
        return text if contain is None else contain.text(text)

    def contain(self, key: str) -> Containment | None:
        """What contains hidden text of a server; None if nothing does."""
        return self._containment.of(key) if self._containment is not None else None

    def add_server(self, entry: ServerEntry) -> None:
        """Use the settings of a server from now on."""
        if self._containment is not None:
            self._containment.add(entry.key, entry.settings.contain)

    def may_reconnect(self, entry: ServerEntry) -> bool:
        """Whether a session of a server may be opened again below a call: with pins its list has to
        be compared first."""
        return self.pins is None or (entry.settings.pins or self.pins.pins.mode) != "strict"

    # ------------------------------------------------------------ requests

    async def run(
        self,
        context: RequestContext,
        view: CallerView,
        server: HostedServer,
        item: GuardedItem,
        send: Callable[[BeforeSend, Containment | None], Awaitable[t.ProtocolType]],
        unknown: Callable[[], Fault],
    ) -> GuardedResult:
        """Send a request if it is allowed, and return the result for the caller.

        `send` gets the check right before it is sent, and what contains the text of the server.
        `unknown` makes the error for an item that does not exist. Raises it for what is hidden,
        `Refused` for what is refused, and what `send` raises.
        """
        contain = self.contain(server.key)
        definition = view.definition(server, item)
        request = view.request(server, item, definition)
        steps = self._records.begin(context, request)
        try:
            check = await self._admission.admit(view, server, item, steps)
            result = await send(check, contain)
            if isinstance(result, t.InputRequiredResult):
                result = await self._input.review_relayed(server.entry, context, result)
                if steps.decision is not None and steps.consent is not None:
                    self._admission.rounds.keep(
                        steps.request, steps.decision, steps.consent, result.request_state
                    )
            elif isinstance(result, t.ExtGetTaskResult) and result.input_requests:
                result = await self._input.review_task(server.entry, context, result)
            steps.returned(result)
        except HiddenNow as hidden:
            steps.abandoned(hidden)
            raise unknown() from None
        except ColonnadeError as error:
            steps.abandoned(error)
            if contain is not None and isinstance(error, _WORDS_OF_SERVERS):
                contained = contain.failure(error)
                if contained is not error:
                    if context.exchange.origin is not None:  # its code is still that of the server
                        context.exchange.origin.outcome = contained
                    raise contained from None
            raise
        except BaseException as error:
            steps.abandoned(error)
            raise
        finally:
            self._records.end(context)
        if contain is None:
            return GuardedResult(result, result)
        origin = context.exchange.origin
        raw = NOTHING if origin is None else origin.raw
        return GuardedResult(await aside(contain.contain, result, definition, raw), result)

    def became_task(self, context: RequestContext, handle: str) -> None:
        """A call in flight has become a task, which this handle stands for."""
        self._records.became_task(context, handle)

    def in_task(
        self, context: RequestContext, server: HostedServer, own: str, method: str = ""
    ) -> AbstractAsyncContextManager[None]:
        """While requests about a task are sent: what its server asks belongs to the tool of the
        task. They are recorded as one with this method, if it is given."""
        return self._records.in_task(context, server, own, method)

    # ------------------------------------------------------------ records

    @property
    def is_audited(self) -> bool:
        """Whether requests are recorded."""
        return self._records.audit is not None

    def record_failed(self, context: RequestContext, generation: Generation) -> None:
        """As `record_hidden`, if that is possible; otherwise it is logged."""
        self._records.record_failed(context, generation)

    def record_hidden(self, context: RequestContext, generation: Generation) -> None:
        """Record a request that failed before it came to `run`, if it was for a hidden item."""
        self._records.record_hidden(context, generation)

    def forget(self, context: RequestContext) -> None:
        """The request has ended."""
        self._records.forget(context)

    # ------------------------------------------------------------ input requests

    def answer_forms_of(self, *peers: Peer) -> None:
        """The inbox answers the forms and URLs that are for these."""
        self._input.form_peers = peers

    async def review_roots(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        request: InputRequest,
        forward: ForwardInput,
        last: LastCaller | None = None,
    ) -> Raw:
        """The roots that a server may see; `forward` returns all of them. Raises `Declined`."""
        return await self._input.review_roots(entry, contexts, request, forward, last)

    async def review_input(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        """The result of an input request of a server, if the rules allow it. Otherwise that of an
        elicitation is `decline` or `cancel`; for sampling and roots it raises `RemoteError`."""
        return await self._input.review_input(entry, contexts, request, forward)

    async def review_responses(
        self, entry: ServerEntry, context: RequestContext, responses: Mapping[str, Raw]
    ) -> dict[str, Raw]:
        """The input responses of a client that answers in its next request, as the server may get
        them. Raises `Refused`, and `Fault` for one that does not fit its request."""
        return await self._input.review_responses(entry, context, responses)

    async def review_task_responses(
        self,
        entry: ServerEntry,
        context: RequestContext,
        state: t.ExtGetTaskResult,
        responses: Mapping[str, Raw],
    ) -> dict[str, Raw]:
        """The same for the responses to the input requests of a task, whose state this is."""
        return await self._input.review_task_responses(entry, context, state, responses)
