"""The front of a gateway: from a request of a client to the handler of the host, and back.

It is to a gateway what `server/dispatch` is to a server, and the only caller of `exchange.settle`
here.

Rules: independent of transports. A result or an error of a server keeps its meaning in the revision
of the client.
"""

import asyncio
from collections.abc import Callable

from colonnade.errors import (
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
)
from colonnade.gateway.bridge import InputBridge
from colonnade.host.host import Host
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import Revisions
from colonnade.server.handlers.function import ErrorReporter
from colonnade.server.handlers.tools import error_result
from colonnade.server.notifications import ChangeNotifier, Listener


class GatewayFront:
    """Responds to the requests of clients: some of them itself, the others by the host."""

    def __init__(
        self,
        host: Host,
        identity: Callable[[], Identity],
        accepts: Revisions,
        changes: ChangeNotifier,
        error_reporter: ErrorReporter,
        bridge: InputBridge,
    ) -> None:
        self._host = host
        self._bridge = bridge
        self._identity = identity
        self._accepts = accepts
        self._changes = changes
        self._error_reporter = error_reporter
        self._listeners: set[Listener] = set()
        self._own_handlers: dict[str, Handler] = {
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
        }

    # ------------------------------------------------------------ responses

    async def respond(self, request: RequestContext) -> bytes | None:
        """The encoded response, a result or an error."""
        exchange = request.exchange
        try:
            handler = self._own_handlers.get(exchange.method.name) or self._bridge.handle
            try:
                if self._bridge.has_replicas:
                    elsewhere = await self._bridge.respond_elsewhere(request)
                    if elsewhere is not None:
                        return elsewhere
                return exchange.settle(await handler(request))
            except (CallerLost, asyncio.CancelledError, Fault):
                raise
            except ColonnadeError as error:
                return self._failed(request, error)
        except Fault as fault:
            request.fault = fault
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

    def _failed(self, request: RequestContext, error: ColonnadeError) -> bytes | None:
        """The response for an error of a server, or of the gateway itself."""
        if isinstance(error, RemoteError):
            raise Fault(FaultKind.INTERNAL, error.message, error.data) from error
        if request.exchange.method.params is t.CallToolRequestParams:
            return request.exchange.settle(error_result(error.sentence))
        raise Fault(FaultKind.INTERNAL, error.sentence) from error

    def _internal_error(self, request: RequestContext, error: BaseException) -> Fault:
        message = self._error_reporter.report(request.exchange.method.name, error, request)
        return Fault(FaultKind.INTERNAL, message)

    # ------------------------------------------------------------ own methods

    async def _discover(self, request: RequestContext) -> t.ProtocolType:
        return self._identity().for_callers(request.callers).discover_result(self._accepts)

    async def _listen(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.protocol.subscriptions import Subscription

        pushed = t.SubscriptionFilter(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        )
        listener = Listener(Subscription(request.exchange, pushed), request)
        self._listeners.add(listener)
        try:
            return await listener.run(self._changes)
        finally:
            self._listeners.discard(listener)

    def drain(self) -> None:
        """End open subscriptions."""
        for listener in self._listeners:
            listener.end("the gateway is shutting down; listen again")
