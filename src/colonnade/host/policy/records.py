"""The requests of a guard: one record for each, from its beginning to its end.

Rules: a request is recorded once. A request for what is hidden is in the audit log, although its
caller is answered as if it did not exist.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from colonnade.errors import Fault, Refused
from colonnade.host.policy.caller_view import CallerView, CallerViews
from colonnade.host.policy.decisions import PolicyDecisions
from colonnade.host.policy.items import (
    NAMEABLE,
    NAMED_METHODS,
    GuardedItem,
    completed_arguments,
    named_item,
    resource_item,
)
from colonnade.host.policy.request import NO_ARGUMENTS, AuditSink, CallerFacts, PolicyRequest
from colonnade.host.policy.steps import RequestSteps, denied, done
from colonnade.host.servers.generation import Generation, HostedServer
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange

log: logging.Logger = logging.getLogger("colonnade.host")


class RequestRecords:
    """The requests that are being handled, and their steps."""

    def __init__(
        self, audit: AuditSink | None, decisions: PolicyDecisions, views: CallerViews
    ) -> None:
        self.audit = audit
        self._decisions = decisions
        self._views = views
        # Those with an audit log stay until `forget`: the router asks whether one is recorded.
        self._steps: dict[Exchange, RequestSteps] = {}

    def begin(self, context: RequestContext, request: PolicyRequest) -> RequestSteps:
        """A request has arrived. Raises `Refused` if that must be recorded and cannot be."""
        steps = self._steps[context.exchange] = RequestSteps(self.audit, request)
        return steps

    def end(self, context: RequestContext) -> None:
        """A request has its result or its error."""
        steps = self._steps.get(context.exchange)
        if steps is not None and steps.is_recorded:
            steps.is_in_flight = False
        else:
            self.forget(context)

    def forget(self, context: RequestContext) -> None:
        """The request has ended."""
        self._steps.pop(context.exchange, None)

    def in_flight(self, context: RequestContext) -> RequestSteps | None:
        """The steps of a request, while it is sent: input requests belong to it."""
        steps = self._steps.get(context.exchange)
        return steps if steps is not None and steps.is_in_flight else None

    def became_task(self, context: RequestContext, handle: str) -> None:
        """A call in flight has become a task, which this handle stands for."""
        steps = self.in_flight(context)
        if steps is not None:
            steps.became_task(handle)

    def record_failed(self, context: RequestContext, generation: Generation) -> None:
        """As `record_hidden`, if that is possible. Otherwise it is logged: the caller must not see
        from another error that there is something."""
        try:
            self.record_hidden(context, generation)
        except Refused as refused:
            log.error("a request for a hidden item is not in the audit log: %s", refused)

    def record_hidden(self, context: RequestContext, generation: Generation) -> None:
        """Record a request that failed before it came to `run`, if it was for a hidden item."""
        if context.exchange in self._steps:
            return
        try:
            found = self._asked_items(context, generation)
        except Fault:
            return  # there is no such server, or the params are invalid
        view = self._view(context)
        requests = [
            view.request(server, item, view.definition(server, item)) for server, item in found
        ]
        decisions = [self._decisions.decide(request) for request in requests]
        # A URI may be of any server: it is hidden if none of them may be asked for it.
        if decisions and all(one.action == "deny" for one in decisions):
            steps = RequestSteps(self.audit, requests[0])
            steps.decided(decisions[0])
            steps.abandoned(denied(requests[0], decisions[0]))

    def _asked_items(
        self, context: RequestContext, generation: Generation
    ) -> list[tuple[HostedServer, GuardedItem]]:
        """What a request may be about, on each server that it may be for. Raises `Fault`."""
        exchange = context.exchange
        method, params = exchange.method.name, exchange.params
        tasks = context.input_relay.tasks if context.input_relay is not None else None
        if tasks is not None and tasks.target is not None:
            server = generation.server(tasks.target.server)
            return [(server, named_item(method, "tool", tasks.target.tool, server, NO_ARGUMENTS))]
        name, kind, uri = params.name, NAMED_METHODS.get(method), params.uri
        arguments, about = params.arguments or NO_ARGUMENTS, t.RequestParams()
        if method == "completion/complete":
            about = decode_as(t.CompleteRequestParams, exchange.request.params)
            arguments = completed_arguments(about)
            if isinstance(about.ref, t.ResourceTemplateReference):
                uri = about.ref.uri
            else:
                name, kind = about.ref.name, "prompt"
        if kind is not None and isinstance(name, str):
            listed, caller = NAMEABLE[kind], exchange.principal
            server = generation.server_for(listed, name, caller)
            own = generation.listed_name(
                listed, name, server, server.listings(caller)
            ) or server.plain_name(name)
            if own is None:
                return []
            return [(server, named_item(method, kind, own, server, arguments))]
        if kind is not None or not isinstance(uri, str):
            return []
        servers = list(generation.servers.values())
        likely = [one for one in servers if _may_have(one, uri, exchange.principal)]
        return [(one, resource_item(method, uri, about)) for one in likely or servers]

    @asynccontextmanager
    async def in_task(
        self, context: RequestContext, server: HostedServer, own: str, method: str = ""
    ) -> AsyncGenerator[None]:
        """While requests about a task are sent: what its server asks belongs to the tool of the
        task. They are recorded as one with this method, if it is given."""
        view = self._view(context)
        item = named_item(method or "tools/call", "tool", own, server, NO_ARGUMENTS)
        request = view.request(server, item, view.definition(server, item))
        steps = RequestSteps(self.audit if method else None, request)
        before = self._steps.get(context.exchange)
        self._steps[context.exchange] = steps
        try:
            await done(steps.executed(None))
            yield
            steps.returned(NO_ARGUMENTS)
        except BaseException as error:
            steps.abandoned(error)
            raise
        finally:
            self.forget(context)
            if before is not None:
                self._steps[context.exchange] = before

    def _view(self, context: RequestContext) -> CallerView:
        return self._views.of(CallerFacts.of(context))


def _may_have(server: HostedServer, uri: str, caller: str) -> bool:
    """Whether a server lists a URI, as far as its lists are known, or the configuration says that
    it is its own."""
    lists = server.listings(caller).by_kind
    contents = [lists[kind].content for kind in ("resources", "templates")]
    return server.owns(uri) or any(one is not None and uri in one.known for one in contents)
