"""The front of a gateway: from a request of a client to the handler of the host, and back.

It is to a gateway what `server/dispatch` is to a server, and the only caller of `exchange.settle`
here.

Rules: independent of transports. A result or an error of a server keeps its meaning in the revision
of the client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from colonnade.errors import (
    NO_OUTPUT,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Output,
    RemoteError,
    RemoteProtocolError,
    without_frames,
)
from colonnade.gateway.bridge import InputBridge, required_of_session
from colonnade.gateway.changes import GatewayChanges
from colonnade.gateway.manifests import GatewayManifests
from colonnade.gateway.pages import LISTS, ListPages
from colonnade.gateway.subscriptions import GatewaySubscriptions
from colonnade.gateway.tasks import GatewayTasks
from colonnade.host.host import Host
from colonnade.host.router import TASK_METHODS
from colonnade.host.view import HostView
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.forwarded import code_for, kind_of
from colonnade.protocol.http.param_headers import check_params
from colonnade.protocol.jsonrpc import NOTHING
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.negotiation import Callers, Identity
from colonnade.protocol.revision import Revisions
from colonnade.server.dispatch import (
    LISTEN_BYTES,
    LISTEN_BYTES_PER_PRINCIPAL,
    too_many_subscriptions,
)
from colonnade.server.handlers.function import ErrorReporter
from colonnade.server.handlers.tools import error_result
from colonnade.server.notifications import Listener

log: logging.Logger = logging.getLogger("colonnade.gateway")

# Errors about a request of the gateway that say nothing of the request of the client.
HOP_FAULTS = (FaultKind.HEADER_MISMATCH, FaultKind.VERSION_UNSUPPORTED, FaultKind.PARSE)


class GatewayFront:
    """Responds to the requests of clients: some of them itself, the others by the host."""

    def __init__(
        self,
        host: Host | HostView,
        identity: Callable[[], Identity],
        accepts: Revisions,
        changes: GatewayChanges,
        subscriptions: GatewaySubscriptions,
        pages: ListPages,
        manifests: GatewayManifests | None,
        error_reporter: ErrorReporter,
        bridge: InputBridge,
        tasks: GatewayTasks,
    ) -> None:
        self._host = host
        self._tasks = tasks
        self._bridge = bridge
        self._identity = identity
        self._accepts = accepts
        self._changes = changes
        self._subscriptions = subscriptions
        self._listen_bytes = ByteBudget(LISTEN_BYTES, LISTEN_BYTES_PER_PRINCIPAL)
        self._pages = pages
        self._manifests = manifests
        self._error_reporter = error_reporter
        self._listeners: set[Listener] = set()
        self._failed: frozenset[str] = frozenset()
        # By server: what it printed when it did not start, as far as it was logged.
        self._outputs: dict[str, Output] = {}
        self._own_handlers: dict[str, Handler] = {
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
            "tools/call": self._call_tool,
            "resources/subscribe": subscriptions.subscribe,
            "resources/unsubscribe": subscriptions.unsubscribe,
            **dict.fromkeys(TASK_METHODS, tasks.handle),
            "tasks/list": tasks.list,
            **dict.fromkeys(LISTS, self._list),
        }

    # ------------------------------------------------------------ responses

    async def respond(self, request: RequestContext) -> bytes | None:
        """The encoded response, a result or an error."""
        exchange = request.exchange
        if self._host.policy is not None:
            self._changes.note(request.principal, self._host.caller_filter(request))
        try:
            handler = self._own_handlers.get(exchange.method.name) or self._bridge.handle
            try:
                if self._bridge.has_replicas:
                    elsewhere = await self._bridge.respond_elsewhere(request)
                    if elsewhere is not None:
                        return elsewhere
                result = await handler(request)
            except (CallerLost, asyncio.CancelledError, Fault):
                raise
            except RemoteError as error:
                without_frames(error)  # the origin of the result refers to it
                required = required_of_session(error, exchange)
                if required is None:
                    return self._pass_error(request, error)
                result = required
            except ColonnadeError as error:
                return self._report_failure(request, without_frames(error))
            return await self._settle(request, result)
        except Fault as fault:
            request.fault = without_frames(fault)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            request.fault = self._internal_error(request, error)
        except (ConnectionLost, GeneratorExit):
            raise
        except BaseException as error:
            request.fault = self._internal_error(request, error)
        try:
            return exchange.fail(request.fault)
        except LocalProtocolError as error:  # the error's data cannot be encoded as JSON
            request.fault = self._internal_error(request, error)
            return exchange.fail(request.fault)

    async def _settle(self, request: RequestContext, result: t.ProtocolType) -> bytes | None:
        """The response for a result: that of a server as it was written, if it may be."""
        exchange = request.exchange
        origin = exchange.origin
        if origin is None:
            return exchange.settle(result)
        is_inspected = self._host.inspects_results
        if is_inspected and origin.raw and await self._host.hides_text(origin.server, origin.raw):
            origin.raw = NOTHING  # in a member that nothing has looked at
        return exchange.settle_forwarded(result, origin, is_inspected=is_inspected)

    def _pass_error(self, request: RequestContext, error: RemoteError) -> bytes | None:
        """The response for an error response of a server: the same error, with the code that it has
        in the revision of the client."""
        exchange, revision = request.exchange, request.exchange.peer.revision
        origin = exchange.origin
        if origin is None or origin.outcome is not error or origin.revision is None:
            return exchange.pass_error(error.code, error.message, error.data)
        kind = kind_of(error.code, error.data, exchange.method.name, origin.revision)
        if kind in HOP_FAULTS:  # the server and the gateway disagree; the client is not to blame
            what = f"server {origin.server!r} refused the gateway: {error.message}"
            return self._report_failure(request, RemoteProtocolError(what))
        code = code_for(kind, error.code, revision)
        is_call = exchange.method.params is t.CallToolRequestParams
        if kind is FaultKind.CAPABILITY_MISSING and code != error.code and is_call:  # D10
            return exchange.settle(error_result(f"server {origin.server!r}: {error.message}"))
        return exchange.pass_error(code, error.message, error.data)

    def _report_failure(self, request: RequestContext, error: ColonnadeError) -> bytes | None:
        """The response for an error of the gateway itself: the server cannot be reached, did not
        respond, or a middleware refuses. A model can read the result of a tool."""
        origin = request.exchange.origin
        if isinstance(error, RemoteProtocolError) and not error.server and origin is not None:
            error.with_server(origin.server)  # raised when the server's result was decoded later
        self._log_failure(request, error)
        # What a server has printed and where a rule is written are for the operator, who is the
        # only caller on stdio.
        is_operator = request.callers is Callers.SINGLE
        message = str(error) if is_operator else error.public or _without_output(error)
        is_call = request.exchange.method.params is t.CallToolRequestParams
        effect = error.effect(is_call=is_call) if isinstance(error, ChannelError) else None
        if is_call:
            return request.exchange.settle(replace(error_result(message), meta=effect))
        raise Fault(FaultKind.INTERNAL, message, effect) from error

    def _log_failure(self, request: RequestContext, error: ColonnadeError) -> None:
        """Tell the operator what a server has printed that does not start, once for the same
        output."""
        output = error.output if isinstance(error, CannotConnect) else NO_OUTPUT
        level, server = logging.INFO, error.server or ""
        if output and self._outputs.get(server) != output:
            level, self._outputs[server] = logging.WARNING, output
        log.log(level, "%s of %r failed: %s", request.method, request.principal, error)

    def _internal_error(self, request: RequestContext, error: BaseException) -> Fault:
        message = self._error_reporter.report(request.exchange.method.name, error, request)
        without_frames(error)  # it may be the outcome of a held call
        return Fault(FaultKind.INTERNAL, message)

    # ------------------------------------------------------------ lists and calls

    async def _list(self, request: RequestContext) -> t.ProtocolType:
        position = self._pages.take_cursor(request)
        if self._manifests is not None:
            await self._manifests.load(request.principal)
        result = await self._host.handler(request)
        self._log_failures()
        if self._manifests is not None:
            self._manifests.save_soon(request.principal)
        if self._host.inspects_results and isinstance(result, t.ListResult):
            # A middleware may show each caller something else (R1029).
            result = replace(result, cache_scope="private")
        return self._pages.cut(request, position, result)

    def _log_failures(self) -> None:
        """Tell the operator which servers cannot be listed, once until they can be: a client is
        sent what the others have."""
        failures = self._host.failures
        for key in failures.keys() - self._failed:
            # With what it has printed: the log is for the operator.
            log.warning("server %r is left out of lists: %s", key, failures[key])
        self._failed = frozenset(failures)

    def _call_tool(self, request: RequestContext) -> Awaitable[t.ProtocolType]:
        exchange, headers = request.exchange, request.headers
        name = exchange.params.name
        if headers and exchange.peer.revision.http.routing_headers and isinstance(name, str):
            mirrored = self._host.listed_param_headers(name, request)
            if mirrored is None:
                return self._call_unlisted_tool(request, name)
            if mirrored:
                check_params(mirrored, headers, exchange.params.arguments)  # R0902
        return self._bridge.handle(request)

    async def _call_unlisted_tool(self, request: RequestContext, name: str) -> t.ProtocolType:
        """Call a tool whose server has to be listed first."""
        mirrored = await self._host.param_headers(name, request)
        if mirrored:
            check_params(mirrored, request.headers, request.exchange.params.arguments)  # R0902
        return await self._bridge.handle(request)

    # ------------------------------------------------------------ own methods

    async def _discover(self, request: RequestContext) -> t.ProtocolType:
        return self._identity().for_callers(request.callers).discover_result(self._accepts)

    async def _listen(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.protocol.subscriptions import Subscription

        pushed = t.SubscriptionFilter(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[],
            task_ids=[],
        )
        subscription = Subscription(request.exchange, pushed)
        principal, size = request.principal, subscription.held_bytes
        if not self._listen_bytes.reserve(principal, size):
            raise too_many_subscriptions()
        end, shows, feed = None, None, None
        try:
            task_ids = subscription.agreed.task_ids
            if task_ids:
                feed = await self._tasks.listen(request, task_ids)
                subscription.keep_tasks([id for id in task_ids if id in feed.tasks])
            uris = subscription.agreed.resource_subscriptions
            if uris:
                agreed, shows, end = await self._subscriptions.listen(request, uris)
                subscription.keep_resources(agreed)
            listener = Listener(subscription, request)
            self._listeners.add(listener)
            if feed is not None:
                feed.start(listener)
            try:
                sees = self._host.caller_filter(request).shows_servers
                return await listener.run(self._changes.of(principal, shows, sees))
            finally:
                self._listeners.discard(listener)
        finally:
            if end is not None:
                end()
            if feed is not None:
                feed.close()
            self._listen_bytes.release(principal, size)

    def drain(self) -> None:
        """End open subscriptions."""
        for listener in self._listeners:
            listener.end("the gateway is shutting down; listen again")


def _without_output(error: ColonnadeError) -> str:
    """The message of an error, without what a server process has printed."""
    if isinstance(error, ChannelError) and error.output:
        error = error.copy()
        error.output = NO_OUTPUT
    return str(error)
