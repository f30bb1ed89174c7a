"""The guard of a host: what the router asks before a request is forwarded, and before a list is
shown.

One request passes in this order: decide by the rules, compare the definition with the pins, ask for
an approval, check again on the session that it is sent on, send, contain the result; each step is
recorded in the audit log. What servers ask (elicitation, sampling, roots) passes the same rules.

Rules: the guard is inside all middleware, so no entry to a host is beside it. What was inspected is
sent, byte for byte. A hidden item is unknown: the guard raises no error of its own for it, and the
router raises the one for a name that does not exist. Without a way to ask, `ask` is a refusal.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import (
    ColonnadeError,
    Declined,
    Fault,
    FaultKind,
    Refused,
    RemoteError,
    RemoteProtocolError,
    TaskEnded,
)
from colonnade.host.config.settings import ServerEntry
from colonnade.host.policy.containment import Containment, ServerContainment, contain_all
from colonnade.host.policy.pin_guard import PinGuard
from colonnade.host.policy.pins import Pins
from colonnade.host.policy.request import (
    NO_ARGUMENTS,
    Approver,
    AuditSink,
    CallerFacts,
    Consent,
    Decision,
    ForwardInput,
    GuardedItem,
    ItemKind,
    PolicyRequest,
    RuleSet,
    digest_of,
    server_identity,
)
from colonnade.host.policy.steps import (
    HiddenNow,
    RequestSteps,
    denied,
    no_approver,
    not_reviewed,
)
from colonnade.host.servers.generation import Generation, HostedServer, Nameable
from colonnade.host.servers.listings import (
    ListedItems,
    ListKind,
    ListSource,
    ReviewedItems,
    VisibleItems,
)
from colonnade.host.servers.session import SessionCall
from colonnade.host.servers.supervisor import BeforeSend
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.input_requests import InputRequest, input_requests_in
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

log: logging.Logger = logging.getLogger("colonnade.host")

# Callers whose views are kept: as many as servers keep lists of. The oldest are made again.
MAX_VIEWS = 1000
# Servers and definitions of one view that are remembered; a host has fewer, or is read again.
MAX_REMEMBERED = 10_000

_STRICTNESS: Mapping[str, int] = {"allow": 0, "ask": 1, "deny": 2}

LISTS: Mapping[ListKind, tuple[str, ItemKind]] = {
    "tools": ("tools/list", "tool"),
    "prompts": ("prompts/list", "prompt"),
    "resources": ("resources/list", "resource"),
    "templates": ("resources/templates/list", "template"),
}
KINDS: Mapping[ItemKind, ListKind] = {
    "tool": "tools",
    "prompt": "prompts",
    "resource": "resources",
    "template": "templates",
}
_NAMEABLE: Mapping[str, Nameable] = {"tool": "tools", "prompt": "prompts"}
NAMED_METHODS: Mapping[str, Literal["tool", "prompt"]] = {
    "tools/call": "tool",
    "prompts/get": "prompt",
}
# Asked about if there is a person to ask and no rule: what they reveal leaves the user's hands.
REVIEWED_METHODS = frozenset({"sampling/createMessage", "roots/list"})
# Errors whose messages have words of a server in them.
_WORDS_OF_SERVERS = (RemoteError, RemoteProtocolError, TaskEnded)
# Input requests of tasks that are remembered: those of some hundred tasks at a time.
MAX_REVIEWED_TASKS = 1000
# Never asked about: a completion has no effect.
UNASKED_METHODS = frozenset({"completion/complete"})


class GuardedResult(NamedTuple):
    """A result for the caller, and the same as the server sent it."""

    result: t.ProtocolType
    untouched: t.ProtocolType


# ---------------------------------------------------------------- the view of one caller


class CallerView:
    """What one caller may see under one version of the policy: the `ListView` of the router."""

    def __init__(self, guard: "PolicyGuard", facts: CallerFacts) -> None:
        self._guard = guard
        self.facts = facts
        self._claims: Mapping[str, Any] = msgspec.json.decode(facts.claims) if facts.claims else {}
        self._servers: dict[str, bool] = {}
        self._visible: WeakKeyDictionary[ListedItems[Any, Any], VisibleItems[Any, Any]]
        self._visible = WeakKeyDictionary()
        self._shown: dict[tuple[str, ListKind, str], bool] = {}

    def request(
        self,
        server: HostedServer,
        item: GuardedItem,
        definition: t.ProtocolType | None = None,
        *,
        digest: bool = True,
    ) -> PolicyRequest:
        """A request of this caller, as the rules see it."""
        facts = self.facts
        return PolicyRequest(
            principal=facts.principal,
            claims=self._claims,
            client=facts.client,
            revision=facts.revision,
            server=server.key,
            identity=self._guard.identity(server),
            trusted=server.settings.trusted,
            method=item.method,
            kind=item.kind,
            name=item.name,
            qualified=item.qualified,
            arguments=item.arguments,
            meta=item.meta,
            definition=definition,
            definition_digest=self._guard.digest(definition) if digest else "",
            namespace=server.claim.namespace,
        )

    # ------------------------------------------------------------ ListView

    def shows_server(self, server: HostedServer) -> bool:
        """Whether the caller may see a server at all."""
        known = self._servers.get(server.key)
        if known is None:
            request = self.request(server, GuardedItem("", "tool", "", server.qualified_prefix))
            known = not self._guard.rules_hide_server(request)
            self._servers[server.key] = known
        return known

    def shows_item(self, server: HostedServer, kind: ListKind, name: str) -> bool:
        """Whether the caller may see an item, by its name on the server or its URI."""
        key = server.key, kind, name
        known = self._shown.get(key)
        if known is None:
            if len(self._shown) >= MAX_REMEMBERED:  # URIs are what callers make of them
                self._shown.clear()
            qualified = server.qualified(name) if kind in ("tools", "prompts") else name
            request = self._listed(server, kind, name, qualified, None)
            known = self._shown[key] = not self._guard.rules_hide(request)
        return known

    def visible(
        self, server: HostedServer, kind: ListKind, listed: ListedItems[Any, Any]
    ) -> ListedItems[Any, Any]:
        """The items of a list that the caller may see. An item whose definition is not accepted is
        not shown; it keeps its name, so that a call of it is refused with the reason."""
        found = self._visible.get(listed)
        if found is None:
            shown: set[str] = set()
            named: set[str] = set()
            for name, own in _own_names(listed):
                request = self._listed(server, kind, own, name, listed.definitions.get(name))
                if not self._guard.rules_hide(request):
                    named.add(name)
                    if self._guard.pins is None or self._guard.pins.shows(listed, own):
                        shown.add(name)
            found = self._visible[listed] = VisibleItems(listed, shown, named)
        return found

    def _listed(
        self,
        server: HostedServer,
        kind: ListKind,
        own: str,
        qualified: str,
        definition: t.ProtocolType | None,
    ) -> PolicyRequest:
        method, item_kind = LISTS[kind]
        return self.request(server, GuardedItem(method, item_kind, own, qualified), definition)

    def definition(self, server: HostedServer, item: GuardedItem) -> t.ProtocolType | None:
        """The definition of an item, as it was last listed for this caller."""
        listing = server.listings(self.facts.principal).by_kind[KINDS[item.kind]]
        content = listing.content
        return content.definitions.get(item.qualified) if content is not None else None


def _own_names(listed: ListedItems[Any, Any]) -> list[tuple[str, str]]:
    """The qualified name and the name on the server of each item; a URI is both."""
    if listed.names is None:
        return [(uri, uri) for uri in listed.items]
    return [(one.name, one.own) for one in listed.names if one.name in listed.items]


# ---------------------------------------------------------------- the guard


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
        self._rules = rules
        self.pins: PinGuard | None = PinGuard(pins) if pins is not None else None
        self._audit = audit
        self._approver = approver
        self._containment = ServerContainment(containment) if containment is not None else None
        # This program as a client, if the inbox answers the forms and URLs that are for it.
        self.form_peers: tuple[Peer, ...] = ()
        self._views: OrderedDict[CallerFacts, CallerView] = OrderedDict()
        self._identities: WeakKeyDictionary[HostedServer, str] = WeakKeyDictionary()
        # Definitions are kept by their lists; the digest of each is computed once.
        self._digests: OrderedDict[int, tuple[t.ProtocolType, str]] = OrderedDict()
        # The requests that are being sent, for the input requests that belong to them.
        self._in_flight: dict[Exchange, RequestSteps] = {}
        # Those that are in the audit log.
        self._recorded: set[Exchange] = set()
        # Digests of the input requests of tasks that were admitted.
        self._reviewed_tasks: dict[bytes, None] = {}

    @property
    def rules(self) -> RuleSet | None:
        """The rules."""
        return self._rules

    @property
    def version(self) -> str:
        """The version of the rules; empty without any."""
        return self._rules.version if self._rules is not None else ""

    @property
    def _uses_definitions(self) -> bool:
        return self._rules is not None and self._rules.uses_definitions

    def set_rules(self, rules: RuleSet | None) -> bool:
        """Use other rules from now on; whether they differ."""
        before = self.version
        self._rules = rules
        self.forget_views()
        return self.version != before

    def forget_views(self) -> None:
        """Decide anew what callers may see: the rules or the pins have changed."""
        self._views.clear()

    # ------------------------------------------------------------ items

    def named_item(
        self, method: str, kind: ItemKind, own: str, server: HostedServer, arguments: Raw
    ) -> GuardedItem:
        """A tool or a prompt, by its name on the server."""
        return GuardedItem(method, kind, own, server.qualified(own), arguments)

    def resource_item(self, method: str, uri: str, params: t.RequestParams) -> GuardedItem:
        """A resource, or the template whose variables are completed."""
        if isinstance(params, t.CompleteRequestParams):
            return GuardedItem(method, "template", uri, uri, self.completed_arguments(params))
        return GuardedItem(method, "resource", uri, uri)

    def completed_arguments(self, params: t.CompleteRequestParams) -> Raw:
        """The arguments of a completion: the one that is completed, and those before it."""
        before = params.context.arguments if params.context is not None else None
        return Raw(encode({**(before or {}), params.argument.name: params.argument.value}))

    # ------------------------------------------------------------ facts

    def view(self, context: RequestContext) -> CallerView:
        """What the caller of a request may see."""
        return self.view_for(CallerFacts.of(context))

    def view_for(self, facts: CallerFacts) -> CallerView:
        """What a caller may see."""
        found = self._views.get(facts)
        if found is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.popitem(last=False)
            found = self._views[facts] = CallerView(self, facts)
        return found

    def identity(self, server: HostedServer) -> str:
        """The identity of a server."""
        found = self._identities.get(server)
        if found is None:
            found = self._identities[server] = server_identity(server.entry)
        return found

    def digest(self, definition: t.ProtocolType | None) -> str:
        """The digest of a definition."""
        if definition is None:
            return ""
        found = self._digests.get(id(definition))
        if found is None or found[0] is not definition:
            if len(self._digests) >= MAX_REMEMBERED:
                self._digests.popitem(last=False)
            found = self._digests[id(definition)] = definition, digest_of(definition)
        return found[1]

    def rules_hide(self, request: PolicyRequest) -> bool:
        """Whether the rules deny an item whatever its arguments are."""
        return self._rules is not None and self._rules.hides(request)

    def rules_hide_server(self, request: PolicyRequest) -> bool:
        """Whether the rules deny everything of a server."""
        return self._rules is not None and self._rules.hides_server(request)

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
        return ReviewedItems(listed if contain is None else contain_all(contain, listed), review)

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
        server: HostedServer,
        item: GuardedItem,
        send: Callable[[BeforeSend], Awaitable[t.ProtocolType]],
        unknown: Callable[[], Fault],
    ) -> "GuardedResult":
        """Send a request if it is allowed, and return the result for the caller.

        `unknown` makes the error for an item that does not exist. Raises it for what is hidden,
        `Refused` for what is refused, and what `send` raises.
        """
        view = self.view(context)
        request = view.request(server, item, view.definition(server, item))
        steps = RequestSteps(self._audit, request)
        exchange = context.exchange
        self._in_flight[exchange] = steps
        if self._audit is not None:
            self._recorded.add(exchange)
        try:
            check = await self._admit(view, server, item, steps)
            result = await send(check)
            if isinstance(result, t.InputRequiredResult):
                await self._review_relayed(server.entry, context, result)
            elif isinstance(result, t.ExtGetTaskResult) and result.input_requests:
                await self._review_state(server.entry, context, result)
            steps.returned(result)
        except HiddenNow as hidden:
            steps.abandoned(hidden)
            raise unknown() from None
        except ColonnadeError as error:
            steps.abandoned(error)
            contain = self.contain(server.key)
            if contain is not None and isinstance(error, _WORDS_OF_SERVERS):
                contained = contain.failure(error)
                if contained is not error:
                    if exchange.origin is not None:  # its code is still that of the server
                        exchange.origin.outcome = contained
                    raise contained from None
            raise
        except BaseException as error:
            steps.abandoned(error)
            raise
        finally:
            self._in_flight.pop(exchange, None)
        contain = self.contain(server.key)
        return GuardedResult(result if contain is None else contain.contain(result), result)

    async def _admit(
        self, view: CallerView, server: HostedServer, item: GuardedItem, steps: "RequestSteps"
    ) -> BeforeSend:
        """Decide, compare with the pins, and ask. Returns the check right before it is sent."""
        request = steps.request
        decision = self.decide(request)
        steps.decided(decision)
        if decision.action == "deny":
            raise denied(request, decision)
        if self.pins is not None:
            await self.pins.check(server, item.kind, item.name, view.facts.principal)
        consent: Consent | None = None
        if decision.action == "ask":
            consent = await self._ask(steps, decision)

        async def check(call: SessionCall) -> None:
            if self.pins is not None:
                caller = view.facts.principal
                await self.pins.check_session(call, server, item.kind, item.name, caller)
            await self._check_again(view, server, item, steps, decision, consent)
            recorded = steps.executed(call)
            if recorded is not None:
                await recorded

        def before_send(call: SessionCall) -> Awaitable[None] | None:
            needs_list = self.pins is not None or consent is not None or self._uses_definitions
            if needs_list or self.version != decision.policy_version:
                return check(call)
            return steps.executed(call)  # as nearly always: nothing can have changed

        return before_send

    def decide(self, request: PolicyRequest) -> Decision:
        """What the rules say; `allow` without rules."""
        if self._rules is None:
            return self._reviewed(request, NO_RULES)
        if request.method.startswith("tasks/"):  # the arguments of its call are not known any more
            action = "deny" if self._rules.hides(request) else "allow"
            reason = "a task is decided as the list of tools is"
            return Decision(action, "the rules", False, self._rules.version, reason)
        decision = self._rules.decide(request)
        if decision.action == "ask" and request.method in UNASKED_METHODS:
            return replace(decision, action="allow", reason="it is not asked about")
        return self._reviewed(request, decision)

    def _reviewed(self, request: PolicyRequest, decision: Decision) -> Decision:
        """The same decision, but `ask` for sampling and roots that no rule is about."""
        is_default = decision.is_default and self._approver is not None
        if is_default and request.method in REVIEWED_METHODS:
            return replace(decision, action="ask", by_arguments=True)
        return decision

    async def _ask(self, steps: "RequestSteps", decision: Decision) -> Consent:
        request = steps.request
        if self._approver is None:
            raise no_approver(request, decision)
        steps.asked(decision)
        try:
            consent = await self._approver.approve(request, decision)
        except Refused as refused:
            steps.answered(None, str(refused))
            raise
        steps.answered(consent, "")
        return consent

    async def _check_again(
        self,
        view: CallerView,
        server: HostedServer,
        item: GuardedItem,
        steps: "RequestSteps",
        decision: Decision,
        consent: Consent | None,
    ) -> None:
        """Compare policy and definition with those of the decision: time has passed, and the
        session may be a new process with another list."""
        request = steps.request
        needs_list = consent is not None or self._uses_definitions
        definition = request.definition
        if needs_list:
            definition = await self._current_definition(view, server, item)
        if definition is not request.definition:
            request = view.request(server, item, definition)
        is_same = request.definition_digest == steps.request.definition_digest
        if consent is not None and not is_same:
            message = f"the definition of {item.qualified!r} has changed since it was approved"
            raise Refused(message, server=server.key, hint="call it again", reason="changed")
        if not is_same or self.version != decision.policy_version:
            self._decide_again(request, decision, consent)
        steps.request = request

    def _decide_again(
        self, request: PolicyRequest, before: Decision, consent: Consent | None
    ) -> None:
        after = self.decide(request)
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

    def became_task(self, context: RequestContext, handle: str) -> None:
        """A call in flight has become a task, which this handle stands for."""
        steps = self._in_flight.get(context.exchange)
        if steps is not None:
            steps.became_task(handle)

    # ------------------------------------------------------------ hidden items

    @property
    def is_audited(self) -> bool:
        """Whether requests are recorded."""
        return self._audit is not None

    def record_failed(self, context: RequestContext, generation: Generation) -> None:
        """As `record_hidden`, if that is possible. Otherwise it is logged: the caller must not see
        from another error that there is something."""
        try:
            self.record_hidden(context, generation)
        except Refused as refused:
            log.error("a request for a hidden item is not in the audit log: %s", refused)

    def record_hidden(self, context: RequestContext, generation: Generation) -> None:
        """Record a request that failed before it came to `run`, if it was for a hidden item."""
        if context.exchange in self._recorded:
            return
        try:
            found = self._asked_items(context, generation)
        except Fault:
            return  # there is no such server, or the params are invalid
        view = self.view(context)
        requests = [
            view.request(server, item, view.definition(server, item)) for server, item in found
        ]
        decisions = [self.decide(request) for request in requests]
        # A URI may be of any server: it is hidden if none of them may be asked for it.
        if decisions and all(one.action == "deny" for one in decisions):
            steps = RequestSteps(self._audit, requests[0])
            steps.decided(decisions[0])
            steps.abandoned(denied(requests[0], decisions[0]))

    def _asked_items(
        self, context: RequestContext, generation: Generation
    ) -> list[tuple[HostedServer, GuardedItem]]:
        """What a request may be about, on each server that it may be for. Raises `Fault`."""
        exchange = context.exchange
        method, params = exchange.method.name, exchange.params
        name, kind, uri = params.name, NAMED_METHODS.get(method), params.uri
        arguments, about = params.arguments or NO_ARGUMENTS, t.RequestParams()
        if method == "completion/complete":
            about = decode_as(t.CompleteRequestParams, exchange.request.params)
            arguments = self.completed_arguments(about)
            if isinstance(about.ref, t.ResourceTemplateReference):
                uri = about.ref.uri
            else:
                name, kind = about.ref.name, "prompt"
        if kind is not None and isinstance(name, str):
            listed, caller = _NAMEABLE[kind], exchange.principal
            server = generation.server_for(listed, name, caller)
            own = generation.listed_name(listed, name, server, caller) or server.plain_name(name)
            if own is None:
                return []
            return [(server, self.named_item(method, kind, own, server, arguments))]
        if kind is not None or not isinstance(uri, str):
            return []
        servers = list(generation.servers.values())
        likely = [one for one in servers if _may_have(one, uri, exchange.principal)]
        return [(one, self.resource_item(method, uri, about)) for one in likely or servers]

    def forget(self, context: RequestContext) -> None:
        """The request has ended."""
        self._recorded.discard(context.exchange)

    @asynccontextmanager
    async def in_task(
        self, context: RequestContext, server: HostedServer, own: str, method: str = ""
    ) -> AsyncGenerator[None]:
        """While requests about a task are sent: what its server asks belongs to the tool of the
        task. They are recorded as one with this method, if it is given."""
        view = self.view(context)
        item = self.named_item(method or "tools/call", "tool", own, server, NO_ARGUMENTS)
        request = view.request(server, item, view.definition(server, item))
        steps = RequestSteps(self._audit if method else None, request)
        self._in_flight[context.exchange] = steps
        try:
            await _recorded(steps.executed(None))
            yield
            steps.returned(NO_ARGUMENTS)
        except BaseException as error:
            steps.abandoned(error)
            raise
        finally:
            self._in_flight.pop(context.exchange, None)

    # ------------------------------------------------------------ input requests

    async def review_roots(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        """The roots that a server may see; `forward` returns all of them. Raises `Declined`."""
        try:
            return await self.review_input(entry, contexts, request, forward)
        except RemoteError as error:
            raise Declined(error.message) from None

    async def review_input(
        self,
        entry: ServerEntry,
        contexts: tuple[RequestContext, ...],
        input_request: InputRequest,
        forward: ForwardInput,
    ) -> Raw:
        """The result of an input request of a server, if the rules allow it. Raises `RemoteError`
        with the code of a user's refusal otherwise."""
        contain = self.contain(entry.key)
        if contain is not None:
            input_request = contain.input_request(input_request)
        request = self._strictest(
            [self._input_policy_request(entry, one, input_request) for one in contexts or (None,)]
        )
        steps = RequestSteps(self._audit, request)
        try:
            decision = self.decide(request)
            steps.decided(decision)
            if decision.action == "deny":
                raise Refused(decision.reason, reason="rule", rule=decision.rule)
            if decision.action == "allow":
                await _recorded(steps.executed(None))
                result = await forward(input_request)
            elif self._approver is None:
                raise no_approver(request, decision)
            else:
                result = await self._reviewed_input(
                    self._approver, steps, decision, contexts, input_request, forward
                )
            steps.returned(result)
            return result
        except Refused as refused:
            steps.abandoned(refused)
            log.info("%s of server %r is refused: %s", request.method, entry.key, refused)
            raise RemoteError(
                _code_of(contexts), "the request was refused by a policy of the user"
            ) from None
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
            await self._ask(steps, decision)
            await _recorded(steps.executed(None))
            return await forward(input_request)
        steps.asked(decision)
        await _recorded(steps.executed(None))
        if is_elicitation:
            result = await forward(input_request)
            accepted = msgspec.json.decode(result, type=t.ElicitResult).action == "accept"
            steps.answered(Consent() if accepted else None, "" if accepted else "it was declined")
            return result
        try:
            result = await approver.review_input(request, decision, input_request, forward)
        except Refused as refused:
            steps.answered(None, str(refused))
            raise
        steps.answered(Consent(), "")
        return result

    async def _review_relayed(
        self, entry: ServerEntry, context: RequestContext, result: t.InputRequiredResult
    ) -> None:
        """Decide about the input requests in a result that is handed back to the client, which
        answers them itself. Raises `Refused` for one that is denied, or not approved."""
        for input_request in input_requests_in(result).values():
            request = self._input_policy_request(entry, context, input_request)
            steps = RequestSteps(self._audit, request)
            try:
                decision = self.decide(request)
                steps.decided(decision)
                if decision.action == "deny":
                    message = f"server {entry.key!r} asked for what a policy denies"
                    raise Refused(message, server=entry.key, reason="rule", rule=decision.rule)
                if decision.action == "ask":
                    if request.method in REVIEWED_METHODS:  # the client answers out of sight
                        raise not_reviewed(request, decision)
                    await self._ask(steps, decision)
                await _recorded(steps.executed(None))
            except BaseException as error:
                steps.abandoned(error)
                raise
            steps.returned(result)

    async def _review_state(
        self, entry: ServerEntry, context: RequestContext, state: t.ExtGetTaskResult
    ) -> None:
        """The same for the input requests of a task, each once: its state is read again and
        again."""
        for key, one in (state.input_requests or {}).items():
            known = encode([entry.key, context.exchange.principal, state.task_id, key, one])
            digest = hashlib.sha256(known + self.version.encode()).digest()
            if digest not in self._reviewed_tasks:
                required = t.InputRequiredResult(input_requests={key: one})
                await self._review_relayed(entry, context, required)
                self._reviewed_tasks[digest] = None
                if len(self._reviewed_tasks) > MAX_REVIEWED_TASKS:
                    del self._reviewed_tasks[next(iter(self._reviewed_tasks))]

    def _strictest(self, requests: Sequence[PolicyRequest]) -> PolicyRequest:
        """The request that the rules are strictest with; the last one if they decide the same. A
        server that asks during several calls does not say for which."""
        return max(reversed(requests), key=lambda one: _STRICTNESS[self.decide(one).action])

    def _input_policy_request(
        self, entry: ServerEntry, context: RequestContext | None, input_request: InputRequest
    ) -> PolicyRequest:
        arguments = Raw(encode(input_request.params))
        method = input_request.kind.method
        steps = self._in_flight.get(context.exchange) if context is not None else None
        if steps is not None and steps.request.server == entry.key:
            return replace(
                steps.request,
                method=method,
                arguments=arguments,
                meta=NO_ARGUMENTS,
                during=steps.id,
            )
        facts = CallerFacts.of(context) if context is not None else CallerFacts()
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


def _may_have(server: HostedServer, uri: str, caller: str) -> bool:
    """Whether a server lists a URI, as far as its lists are known, or the configuration says that
    it is its own."""
    lists = server.listings(caller).by_kind
    contents = [lists[kind].content for kind in ("resources", "templates")]
    return server.owns(uri) or any(one is not None and uri in one.known for one in contents)


async def _recorded(recorded: Awaitable[None] | None) -> None:
    if recorded is not None:
        await recorded


NO_RULES = Decision("allow", "no rule", False, "", "there are no rules", is_default=True)


def _code_of(contexts: tuple[RequestContext, ...]) -> int:
    revision = contexts[-1].exchange.peer.revision if contexts else NEWEST
    return revision.codes[FaultKind.USER_REJECTED]
