"""The runtime of a host: its middleware, its current generation of servers, reload and close.

Rules: a reload replaces the whole generation at once. Servers whose entry is the same are in both;
the others are drained in the background. `watch` callbacks are called once for a reload.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from colonnade.client.input_callbacks import CallbackQueue
from colonnade.client.request import running_loop
from colonnade.errors import Fault, InvalidArgument, LocalProtocolError
from colonnade.host.agent.search import ToolSearch
from colonnade.host.config.settings import Config, ServerEntry
from colonnade.host.input_requests import InputRequestHandler, input_request_sender
from colonnade.host.router import (
    HostResult,
    HostRouter,
    LocalOptions,
    LocalRequestContext,
    local_exchange,
)
from colonnade.host.servers.generation import Generation, HostedServer, NameClaim
from colonnade.host.servers.listings import ListKind
from colonnade.host.servers.naming import MIN_NAME_LIMIT, NAME_LIMIT, NameClaims
from colonnade.host.servers.session import HostedSession, SessionCall, State, Status
from colonnade.host.servers.supervisor import ServerSupervisor
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequestKind as InputKind

if TYPE_CHECKING:  # most servers need no authorization
    from colonnade.auth.client.login import Auth
    from colonnade.host.credentials import UpstreamCredentials
    from colonnade.host.resource_updates import ResourceUpdates
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.host")

CLOSED = "this host is closed; make another one"
# Its connections belong to the event loop that they were opened in.
OTHER_LOOP = "this host is used in another event loop; make another one for this loop"

ALL_KINDS: tuple[ListKind, ...] = ("tools", "prompts", "resources", "templates")


class ListChanges(NamedTuple):
    """Lists that have changed (`tools`, `prompts`, `resources`, `templates`), the servers that
    they are of, and the caller that sees them: None for all callers."""

    kinds: tuple[ListKind, ...]
    servers: tuple[str, ...]
    caller: str | None = None


OnChange: TypeAlias = Callable[[ListChanges], Any]
OnEvent: TypeAlias = Callable[[Status], Any]


class HostRuntime:
    """What a host consists of, below its public methods."""

    def __init__(
        self,
        config: Config,
        input_requests: InputRequestHandler,
        *,
        middleware: Iterable[Middleware],
        wait_s: float,
        on_event: OnEvent | None = None,
        auth: "Callable[[str], Auth | None] | None" = None,
        upstream: "UpstreamCredentials | None" = None,
        info: t.Implementation | None = None,
        telemetry: "bool | Telemetry" = False,
    ) -> None:
        self.input_requests = input_requests
        self._info = info
        self._telemetry: bool | Telemetry = telemetry
        self.search: ToolSearch = ToolSearch()
        self._on_event = on_event
        self._auth = auth
        self.upstream = upstream
        self._middleware: list[Middleware] = [_checked(one) for one in middleware]
        self._watchers: dict[object, OnChange] = {}
        self._callbacks = CallbackQueue()
        self._draining: dict[asyncio.Task[None], HostedServer] = {}
        self._states: dict[ServerSupervisor, State] = {}
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._config = config
        self.name_limit: int = NAME_LIMIT
        # Changes when what a server offers becomes known.
        self.capabilities_version: int = 0
        self.generation: Generation = self._build(config, None)
        self._wait_s = wait_s
        self._router = self.make_router(self.current)
        self._unwatch = upstream.watch(self._connected) if upstream is not None else None
        # For clients that connect to this host.
        self.handler: Handler = stack(self._router.handle, self._middleware)

    @property
    def has_middleware(self) -> bool:
        """Whether there is a middleware."""
        return bool(self._middleware)

    def make_router(self, current: Callable[[], Generation]) -> HostRouter:
        """A router for the servers of this host, or for some of them."""
        return HostRouter(current, self._wait_s, self.upstream)

    def wrap(self, handler: Handler) -> Handler:
        """A handler inside the middleware."""
        return stack(handler, self._middleware)

    def _capabilities_changed(self) -> None:
        self.capabilities_version += 1

    def add_middleware(self, middleware: Middleware) -> None:
        """Add a middleware inside those that are there."""
        self._middleware.append(_checked(middleware))
        self.handler = stack(self._router.handle, self._middleware)

    def request(self, context: RequestContext, options: LocalOptions) -> Awaitable[HostResult]:
        """The result of a request of this program, through all middleware, and where it comes from:
        without `lists` and `tool` if a middleware has returned a result of its own."""
        if not self._middleware:
            return self._router.route(context, options)
        return self._through_middleware(context, options)

    async def _through_middleware(
        self, request: RequestContext, options: LocalOptions
    ) -> HostResult:
        # Middleware may pass on another request and return another result, so where the result
        # comes from is kept by a handler that belongs to this request alone.
        routed: HostResult | None = None

        async def innermost(request: RequestContext) -> t.ProtocolType:
            nonlocal routed
            routed = await self._router.route(request, options)
            return routed.result

        result = await stack(innermost, self._middleware)(request)
        return HostResult(result) if routed is None else routed._replace(result=result)

    @asynccontextmanager
    async def session(self, server: str, context: RequestContext) -> AsyncGenerator[SessionCall]:
        """A session of a server, for a request of this program. Raises `LocalProtocolError` if
        there is no such server."""
        try:
            hosted = self.current().server(server)
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None
        hosted.hold()
        try:
            async with hosted.supervisor.acquire(context) as call:
                yield call
        finally:
            hosted.release()

    def resource_updates(
        self, server: str, uris: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """Updates of some resources of a server, for a caller."""
        from colonnade.host.resource_updates import ResourceUpdates

        def make_request() -> RequestContext:
            return self._list_request("resources/list", caller)

        return ResourceUpdates(self.session, server, uris, make_request, on_update)

    def current(self) -> Generation:
        """The current generation. Raises `LocalProtocolError` after `close`, and in another event
        loop."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)
        loop = running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise LocalProtocolError(OTHER_LOOP)
            self._loop = loop
        return self.generation

    # ------------------------------------------------------------ generations

    def _build(self, config: Config, before: Generation | None) -> Generation:
        enabled = {key: one for key, one in config.entries.items() if one.settings.enabled}
        claims = NameClaims((key, entry.settings) for key, entry in enabled.items())
        servers: dict[str, HostedServer] = {}
        for key, namespace in claims.namespaces.items():
            entry = enabled[key]
            aliases = {alias: own for alias, (of, own) in claims.aliases.items() if of == key}
            claim = NameClaim(namespace, aliases, self.name_limit)
            old = before.servers.get(key) if before is not None else None
            if old is not None and _is_same(old, entry, claim):
                old.entry = entry  # its place in the file may have changed
                servers[key] = old
            else:
                servers[key] = HostedServer(
                    entry,
                    claim,
                    self._make_supervisor,
                    self._list_request,
                    self._lists_changed,
                    self._capabilities_changed,
                )
        number = before.number + 1 if before is not None else 1
        problems = (*config.problems, *claims.problems)
        return Generation(number, servers, claims.aliases, problems)

    def _make_supervisor(
        self, entry: ServerEntry, on_open: Callable[[ServerSupervisor, HostedSession], None]
    ) -> ServerSupervisor:
        can_answer = self.input_requests.can_answer
        return ServerSupervisor(
            entry,
            input_kinds=(InputKind.ELICIT, InputKind.SAMPLE) if can_answer else (),
            send_input_request=input_request_sender(entry.key),
            auth=self._auth,
            upstream=self.upstream,
            info=self._info,
            telemetry=self._telemetry,
            on_open=on_open,
            on_change=self._status_changed if self._on_event is not None else None,
        )

    def _list_request(self, method: str, caller: str) -> LocalRequestContext:
        """The request for a list, which the host makes in the session of a caller."""
        params = t.PaginatedRequestParams()
        exchange = local_exchange(method, params, self.input_requests.peer, caller)
        return LocalRequestContext(exchange, self.input_requests)

    def limit_names(self, limit: int) -> None:
        """Use names of at most this many characters from now on; not once there were requests.
        Raises `InvalidArgument`."""
        if not MIN_NAME_LIMIT <= limit <= NAME_LIMIT:
            message = f"a name limit is {MIN_NAME_LIMIT} to {NAME_LIMIT} characters, not {limit}"
            raise InvalidArgument(message, argument="name_limit")
        if limit == self.name_limit:
            return
        if self._loop is not None:
            raise LocalProtocolError(f"this host has names of {self.name_limit} characters in use")
        self.name_limit = limit
        self.generation = self._build(self._config, None)

    def reload(self, config: Config) -> None:
        """Use another configuration from now on. Raises `LocalProtocolError` after `close`."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)
        self._config = config
        self.capabilities_version += 1
        before = self.generation
        after = self._build(config, before)
        self.generation = after
        removed = [one for key, one in before.servers.items() if after.servers.get(key) is not one]
        added = [key for key, one in after.servers.items() if before.servers.get(key) is not one]
        for one in removed:
            task = asyncio.get_running_loop().create_task(one.drain())
            self._draining[task] = one
            task.add_done_callback(self._drained)
        if removed or added:
            servers = dict.fromkeys([*(one.key for one in removed), *added])
            self._notify(ListChanges(ALL_KINDS, tuple(servers)))

    def _drained(self, task: "asyncio.Task[None]") -> None:
        one = self._draining.pop(task)
        self._states.pop(one.supervisor, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("server %r could not be stopped", one.key, exc_info=error)

    # ------------------------------------------------------------ callbacks

    def watch(self, callback: OnChange) -> Callable[[], None]:
        """Call a callback with changes of lists, until the returned function is called."""
        mark = object()
        self._watchers[mark] = callback

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    def _lists_changed(
        self, server: str, kinds: Sequence[ListKind], caller: str | None = None
    ) -> None:
        if server in self.generation.servers:
            self._notify(ListChanges(tuple(kinds), (server,), caller))

    def _connected(self, server: str, principal: str) -> None:
        """A caller has connected its account to a server, which now has lists for it."""
        hosted = self.generation.servers.get(server)
        if hosted is not None and hosted.settings.is_per_caller:
            hosted.listings(principal).mark_stale()
            self._lists_changed(server, ALL_KINDS, principal)

    def _notify(self, changes: ListChanges) -> None:
        for callback in list(self._watchers.values()):
            self._callbacks.call(callback, changes)

    def _status_changed(self, supervisor: ServerSupervisor) -> None:
        status = supervisor.status
        if self._on_event is not None and self._states.get(supervisor) != status.state:
            self._states[supervisor] = status.state
            self._callbacks.call(self._on_event, status)

    # ------------------------------------------------------------ close

    async def close(self) -> None:
        """Close every server at once. May be called at any time, and twice."""
        self._is_closed = True
        self._watchers.clear()
        if self._unwatch is not None:
            self._unwatch()
        draining = dict(self._draining)
        for task in draining:
            task.cancel()
        servers = {*self.generation.servers.values(), *draining.values()}
        if draining:
            await asyncio.wait(draining)
        if servers:
            await asyncio.gather(*(one.close() for one in servers))
        await self._callbacks.close()


def _checked(middleware: Middleware) -> Middleware:
    """A middleware whose missing result is an error that names it."""

    async def checked(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        returned: object = middleware(request, call_next)
        result = await returned if isawaitable(returned) else None
        if result is None:
            name = getattr(middleware, "__qualname__", type(middleware).__qualname__)
            hint = "a middleware is async and returns a result: return await call_next(request)"
            raise LocalProtocolError(f"the middleware {name} returned no result; {hint}")
        return result

    return checked


def _is_same(server: HostedServer, entry: ServerEntry, claim: NameClaim) -> bool:
    """Whether nothing has changed for a server, so that it goes on."""
    return server.entry.fingerprint == entry.fingerprint and server.claim == claim
