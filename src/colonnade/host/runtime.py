"""The runtime of a host: its middleware, its current generation of servers, reload and close.

Rules: a reload replaces the whole generation at once. Servers whose entry is the same are in both;
the others are drained in the background. `watch` callbacks are called once for a reload.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from inspect import isawaitable
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.input_callbacks import CallbackQueue
from colonnade.client.request import running_loop
from colonnade.errors import Fault, InvalidArgument, LocalProtocolError
from colonnade.host.agent.search import ToolSearch
from colonnade.host.config.settings import Config, HostProblem, ServerEntry
from colonnade.host.input_requests import InputRequestHandler, input_request_sender
from colonnade.host.router import (
    HostResult,
    HostRouter,
    LocalOptions,
    LocalRequestContext,
    local_exchange,
)
from colonnade.host.servers.callers import LastCaller
from colonnade.host.servers.generation import (
    Generation,
    HostedServer,
    ListView,
    Nameable,
    NameClaim,
)
from colonnade.host.servers.listings import ListKind, ListSource, ReviewedItems
from colonnade.host.servers.naming import MIN_NAME_LIMIT, NAME_LIMIT, NameClaims
from colonnade.host.servers.session import HostedSession, SessionCall, State, Status
from colonnade.host.servers.supervisor import ServerSupervisor
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import NO_INPUT, InputCapabilities, InputRequest
from colonnade.protocol.input_requests import InputRequestKind as InputKind
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import Revision, Tasks

if TYPE_CHECKING:  # most servers need no authorization
    from colonnade.auth.client.login import Auth
    from colonnade.host.credentials import UpstreamCredentials
    from colonnade.host.policy.containment import Containment
    from colonnade.host.policy.guard import PolicyGuard
    from colonnade.host.policy.request import CallerFacts, ForwardInput, RuleSet
    from colonnade.host.resource_updates import ResourceUpdates
    from colonnade.host.servers.homes import SessionHomes
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.host")

CLOSED = "this host is closed; make another one"
# Its connections belong to the event loop that they were opened in.
OTHER_LOOP = "this host is used in another event loop; make another one for this loop"

# The methods whose server is known by a name.
NAMED: dict[str, Nameable] = {"tools/call": "tools", "prompts/get": "prompts"}

# Principals whose last client is remembered, for sessions that are opened to read lists.
MAX_CLIENT_PEERS = 1000
# Removed servers that are remembered until callers are told, which takes a fraction of a second.
MAX_REMOVED = 100

ALL_KINDS: tuple[ListKind, ...] = ("tools", "prompts", "resources", "templates")


class ListChanges(NamedTuple):
    """Lists that have changed (`tools`, `prompts`, `resources`, `templates`), the servers that
    they are of, and the caller that sees them: None for all callers. `by_rules` is whether what
    callers may see has changed, so that those are told, too, who may not see the servers now."""

    kinds: tuple[ListKind, ...]
    servers: tuple[str, ...]
    caller: str | None = None
    by_rules: bool = False


OnChange: TypeAlias = Callable[[ListChanges], Any]
OnEvent: TypeAlias = Callable[[Status], Any]
# Whether a resource, by the key of its server and its URI, may be seen.
ResourceFilter: TypeAlias = Callable[[str, str], bool]


class CallerFilter(NamedTuple):
    """What one caller may see, by the rules that are in force whenever it is asked."""

    runtime: "HostRuntime"
    facts: "CallerFacts"

    def shows_servers(self, servers: Sequence[str]) -> bool:
        """Whether the caller may see one of these servers; without any, each server there is."""
        runtime = self.runtime
        if runtime.guard is None:
            return True
        view = runtime.guard.view_for(self.facts)
        if not servers:
            return all(view.shows_server(one) for one in runtime.generation.servers.values())
        return any(runtime.shows_server(view, key) for key in servers)


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
        guard: "PolicyGuard | None" = None,
    ) -> None:
        self.input_requests = input_requests
        self.guard = guard
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
        # The last servers that were removed, by key: their change is for those who could see them.
        self._removed: OrderedDict[str, HostedServer] = OrderedDict()
        self._states: dict[ServerSupervisor, State] = {}
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._config = config
        self.name_limit: int = NAME_LIMIT
        # Which of several replicas has a session; None without replicas.
        self.homes: SessionHomes | None = None
        # Changes when what a server offers becomes known.
        self.capabilities_version: int = 0
        self.generation: Generation = self._build(config, None)
        self._wait_s = wait_s
        self._routers: list[HostRouter] = []
        self._router = self.make_router(self.current)
        self._unwatch = upstream.watch(self._connected) if upstream is not None else None
        # For clients that connect to this host.
        self._client_peers: dict[str, Peer] = {}
        self._handle = self.client_handler(self._router)
        self.handler: Handler = stack(self._handle, self._middleware)

    def input_target(
        self, request: RequestContext, generation: Generation | None = None
    ) -> tuple[Revision | None, InputCapabilities, Tasks] | None:
        """See `Host.input_target`; `generation` has some of the servers, for a view."""
        kind = NAMED.get(request.exchange.method.name)
        if kind is None:
            return None
        name, caller = str(request.exchange.params.name), request.exchange.principal
        generation = self.current() if generation is None else generation
        try:
            server = generation.server_for(kind, name, caller, self.view(request))
        except Fault:  # there is no such server, which the router says
            return None, NO_INPUT, Tasks.NONE
        return *server.supervisor.input_target(request), server.tasks

    def client_handler(self, router: HostRouter) -> Handler:
        """The handler of requests of clients that connected."""

        def handle(request: RequestContext) -> Awaitable[t.ProtocolType]:
            exchange, peers = request.exchange, self._client_peers
            if peers.get(exchange.principal) is not exchange.peer:
                peers[exchange.principal] = exchange.peer
                if len(peers) > MAX_CLIENT_PEERS:
                    del peers[next(iter(peers))]
            return router.handle(request)

        return handle

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server, by key; of those that are known."""
        servers, guard = self.generation.servers, self.guard
        if guard is None:
            return {key: one.instructions for key, one in servers.items() if one.instructions}
        found = {key: guard.instructions(one) for key, one in servers.items()}
        return {key: text for key, text in found.items() if text}

    @property
    def has_middleware(self) -> bool:
        """Whether there is a middleware."""
        return bool(self._middleware)

    def make_router(self, current: Callable[[], Generation]) -> HostRouter:
        """A router for the servers of this host, or for some of them."""
        router = HostRouter(
            current, self._wait_s, self.upstream, self.guard, lambda: self.has_middleware
        )
        self._routers.append(router)
        return router

    def wrap(self, handler: Handler) -> Handler:
        """A handler inside the middleware."""
        return stack(handler, self._middleware)

    def _capabilities_changed(self) -> None:
        self.capabilities_version += 1

    def add_middleware(self, middleware: Middleware) -> None:
        """Add a middleware inside those that are there."""
        self._middleware.append(_checked(middleware))
        self.handler = stack(self._handle, self._middleware)

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
        return HostResult(result) if routed is None else replace(routed, result=result)

    def view(self, context: RequestContext) -> ListView | None:
        """What the caller of a request may see; None for everything."""
        return None if self.guard is None else self.guard.view(context)

    def view_of(self, caller: str) -> ListView | None:
        """What a caller of this program may see; None for everything."""
        if self.guard is None:
            return None
        from colonnade.host.policy.request import CallerFacts

        return self.guard.view_for(CallerFacts(caller))

    def sees_tool(self, key: str, tool: str, caller: str) -> bool:
        """Whether a caller of this program may see a tool, by its qualified name, as far as that is
        known without a request."""
        view, server = self.view_of(caller), self.generation.servers.get(key)
        if view is None or server is None:
            return True
        own = self.generation.listed_name("tools", tool, server, server.listings(caller))
        own = own or server.plain_name(tool) or tool
        return view.shows_server(server) and view.shows_item(server, "tools", own)

    async def hides_tools(self, key: str, context: RequestContext) -> bool:
        """Whether the rules hide any tool of a server from the caller of a request."""
        view, server = self.view(context), self.current().servers.get(key)
        if view is None or server is None:
            return False
        caller = context.exchange.principal
        listing = server.listings(caller).by_kind["tools"]
        listed = listing.content or await listing.fetch(caller)
        shown = view.visible(server, "tools", listed)
        return any(shown.find(name) is None for name in listed.items)

    def containment(self, key: str) -> "Containment | None":
        """What contains hidden text of a server; None if nothing does."""
        return self.guard.contain(key) if self.guard is not None else None

    def roots_changed(self, session: object, keys: Collection[str] | None = None) -> None:
        """Notify the servers, or those with these keys, that the roots of the client in a session
        have changed."""
        for key, server in self.generation.servers.items():
            if keys is None or key in keys:
                server.supervisor.roots_changed(session)

    async def hides_text(self, key: str, raw: Raw) -> bool:
        """Whether hidden text is anywhere in what a server wrote, that is contained: also in
        members that no type has, which nothing else looks at."""
        containment = self.containment(key)
        if containment is None:
            return False
        from colonnade.host.policy.containment import aside

        return await aside(containment.hides_text, raw)

    @asynccontextmanager
    async def session(
        self, server: str, context: RequestContext, tool: str | None = None, method: str = ""
    ) -> AsyncGenerator[SessionCall]:
        """A session of a server, for a request of this program, about a task of a tool if one is
        named; `method` is that of a request that is recorded. Raises `LocalProtocolError` if there
        is no such server, or none that its caller may see."""
        own = ""
        try:
            hosted = self.current().server(server, self.view(context))
            if tool is not None:
                _, own = await self._router.task_item(context, server, tool)
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None
        hosted.hold()
        try:
            async with AsyncExitStack() as stack, hosted.supervisor.acquire(context) as call:
                if self.guard is not None and tool is not None:
                    in_task = self.guard.in_task(context, hosted, own, method)
                    await stack.enter_async_context(in_task)
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

        return ResourceUpdates(self._followed_session, server, uris, make_request, on_update)

    def task_updates(
        self, server: str, ids: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """Changes of some tasks of a server, for a caller."""
        from colonnade.host.resource_updates import TaskUpdates

        def make_request() -> RequestContext:
            return self._list_request("tools/list", caller)

        return TaskUpdates(self._followed_session, server, ids, make_request, on_update)

    @asynccontextmanager
    async def _followed_session(
        self, server: str, context: RequestContext
    ) -> AsyncGenerator[SessionCall]:
        """A session of a server for a subscription that several callers may share. It is of no
        caller's view: the guard has decided for each of them, and `resource_filter` does for each
        update."""
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

    def resource_filter(self, context: RequestContext) -> "ResourceFilter":
        """Whether the caller of a request may see a resource of a server, by the rules that are in
        force whenever it is asked."""
        from colonnade.host.policy.request import CallerFacts

        facts = CallerFacts.of(context)

        def shows(server: str, uri: str) -> bool:
            if self.guard is None:
                return True
            hosted, view = self.generation.servers.get(server), self.guard.view_for(facts)
            return (
                hosted is not None
                and view.shows_server(hosted)
                and view.shows_item(hosted, "resources", uri)
            )

        return shows

    def caller_filter(self, context: RequestContext) -> CallerFilter:
        """What the caller of a request may see."""
        from colonnade.host.policy.request import CallerFacts

        return CallerFilter(self, CallerFacts.of(context))

    def current(self) -> Generation:
        """The current generation. Raises `LocalProtocolError` after `close`, and in another event
        loop."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)
        loop = self._loop
        if loop is None:
            self._loop, self._thread = running_loop(), get_ident()
        elif get_ident() != self._thread or not loop.is_running():  # as `BaseClient._check_loop`
            running_loop()
            raise LocalProtocolError(OTHER_LOOP)
        return self.generation

    # ------------------------------------------------------------ generations

    def _build(
        self, config: Config, before: Generation | None, *, renews: bool = False
    ) -> Generation:
        enabled = {key: one for key, one in config.entries.items() if one.settings.enabled}
        claims = NameClaims((key, entry.settings) for key, entry in enabled.items())
        servers: dict[str, HostedServer] = {}
        for key, namespace in claims.namespaces.items():
            entry = enabled[key]
            aliases = {alias: own for alias, (of, own) in claims.aliases.items() if of == key}
            claim = NameClaim(namespace, aliases, self.name_limit)
            old = before.servers.get(key) if before is not None else None
            if old is not None and not renews and _is_same(old, entry, claim):
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
                    self._review,
                )
        number = before.number + 1 if before is not None else 1
        problems = (*config.problems, *claims.problems, *self._lookalikes(enabled))
        return Generation(number, servers, claims.aliases, problems)

    def _lookalikes(self, entries: Mapping[str, ServerEntry]) -> list[HostProblem]:
        """The servers whose key looks like that of another one, if anything guards this host."""
        if self.guard is None:
            return []
        from colonnade.host.policy.lookalikes import confusable

        return [
            HostProblem(key, f"its name {key!r} looks like {other!r}", entries[key].place)
            for key, other in confusable(entries)
        ]

    def _make_supervisor(
        self, entry: ServerEntry, on_open: Callable[[ServerSupervisor, HostedSession], None]
    ) -> ServerSupervisor:
        send = input_request_sender(entry.key)
        if self.guard is not None:
            self.guard.add_server(entry)

        async def guarded(contexts: tuple[RequestContext, ...], request: InputRequest) -> Raw:
            if self.guard is None or (
                self.homes is not None and self.homes.is_carried(contexts[-1])
            ):
                return await send(contexts, request)
            forward = partial(send, contexts)
            return await self.guard.review_input(entry, contexts, request, forward)

        async def review_roots(
            contexts: tuple[RequestContext, ...],
            request: InputRequest,
            forward: "ForwardInput",
            last: LastCaller | None,
        ) -> Raw:
            if self.guard is None:
                return await forward(request)
            return await self.guard.review_roots(entry, contexts, request, forward, last)

        return ServerSupervisor(
            entry,
            input_kinds=tuple(InputKind),
            send_input_request=guarded,
            review_roots=review_roots,
            may_reconnect=self.guard is None or self.guard.may_reconnect(entry),
            contain=self._contain_value(entry.key),
            auth=self._auth,
            upstream=self.upstream,
            homes=self.homes,
            info=self._info,
            telemetry=self._telemetry,
            on_open=on_open,
            on_change=self._status_changed if self._on_event is not None else None,
        )

    def _contain_value(self, key: str) -> Callable[[Any], Any]:
        """Contains the data of log messages of a server."""

        def contain(value: Any) -> Any:
            found = self.containment(key)
            return value if found is None else found.value(value)

        return contain

    async def _review(
        self,
        server: HostedServer,
        kind: ListKind,
        caller: str,
        listed: Sequence[Any],
        source: ListSource,
    ) -> ReviewedItems:
        if self.guard is None:
            return ReviewedItems(listed)
        servers = self.generation.servers
        reviewed = await self.guard.review(server, kind, listed, source, servers)

        containment = self.containment(server.key)

        def may_pass(raw: Raw) -> bool:
            return containment is None or not containment.may_hide(raw)

        return reviewed._replace(may_pass=may_pass)

    def _list_request(self, method: str, caller: str) -> LocalRequestContext:
        """The request for a list, which the host makes in the session of a caller."""
        params = t.PaginatedRequestParams()
        # A session that is opened for the list is then one that the client's calls can use.
        peer = self._client_peers.get(caller, self.input_requests.peer)
        exchange = local_exchange(method, params, peer, caller)
        return LocalRequestContext(exchange, self.input_requests)

    def _set_rules(self, rules: "RuleSet | None") -> bool:
        """Use another policy from now on; whether it is another."""
        assert rules is None or self.guard is not None, "`use_guard` comes before rules"
        return self.guard is not None and self.guard.set_rules(rules)

    def use_guard(self, guard: "PolicyGuard") -> None:
        """Use a guard from now on, of a host that had none."""
        self.guard = guard
        for one in self.generation.servers.values():
            guard.add_server(one.entry)
            one.forget_lists()  # they were not reviewed
        for router in self._routers:
            router.guard = guard

    def use_homes(self, homes: "SessionHomes | None") -> bool:
        """See `Host.use_homes`."""
        if homes is not None and self.homes is not None:
            return False
        self.homes = homes
        for one in self.generation.servers.values():
            one.supervisor.use_homes(homes)
        return True

    def is_home(self, server: str, caller: str) -> bool:
        """See `Host.is_home`."""
        found = self.generation.servers.get(server)
        return found is not None and found.is_home(caller)

    def expire_lists(self, server: str, caller: str, kinds: Sequence[ListKind]) -> bool:
        """See `Host.expire_lists`."""
        found = self.generation.servers.get(server)
        return found is not None and found.expire_lists(caller, kinds)

    def notify_all(self) -> None:
        """Call the `watch` callbacks for every list: what callers may see has changed."""
        self._notify(ListChanges(ALL_KINDS, tuple(self.generation.servers), by_rules=True))

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

    def limit_list_wait(self, wait_s: float) -> None:
        """Limit how long the lists of newly connected clients wait for one server."""
        for router in self._routers:
            router.client_wait_s = wait_s

    def check_open(self) -> None:
        """Raise `LocalProtocolError` after `close`."""
        if self._is_closed:
            raise LocalProtocolError(CLOSED)

    def reload(
        self, config: Config, rules: "RuleSet | None" = None, *, renews: bool = False
    ) -> None:
        """Use another configuration and other rules from now on; with `renews` also for servers
        whose entry is the same. Raises `LocalProtocolError` after `close`."""
        self.check_open()
        self._config = config
        self.capabilities_version += 1
        has_other_rules = self._set_rules(rules)
        before = self.generation
        after = self._build(config, before, renews=renews)
        self.generation = after
        removed = [one for key, one in before.servers.items() if after.servers.get(key) is not one]
        added = [key for key, one in after.servers.items() if before.servers.get(key) is not one]
        self._keep_removed(removed)
        for one in removed:
            task = asyncio.get_running_loop().create_task(one.drain())
            self._draining[task] = one
            task.add_done_callback(self._drained)
        if removed or added or has_other_rules:
            # Other rules may change what is seen of every server.
            every = tuple(after.servers) if has_other_rules else ()
            servers = dict.fromkeys([*(one.key for one in removed), *added, *every])
            self._notify(ListChanges(ALL_KINDS, tuple(servers), by_rules=has_other_rules))

    def _keep_removed(self, removed: Iterable[HostedServer]) -> None:
        for one in removed:
            self._removed[one.key] = one
            self._removed.move_to_end(one.key)
        while len(self._removed) > MAX_REMOVED:
            self._removed.popitem(last=False)

    def _drained(self, task: "asyncio.Task[None]") -> None:
        one = self._draining.pop(task)
        self._states.pop(one.supervisor, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("server %r could not be stopped", one.key, exc_info=error)

    # ------------------------------------------------------------ callbacks

    def watch(self, callback: OnChange, *, all_callers: bool) -> Callable[[], None]:
        """Call a callback with changes of lists, until the returned function is called; without
        `all_callers` with those of servers that this program may see."""
        mark = object()
        self._watchers[mark] = callback if all_callers else partial(self._call_if_seen, callback)

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    def _call_if_seen(self, callback: OnChange, changes: ListChanges) -> object:
        if changes.by_rules:
            return callback(changes)
        view = self.view_of(changes.caller or "")
        seen = tuple(key for key in changes.servers if self.shows_server(view, key))
        return callback(changes._replace(servers=seen)) if seen else None

    def shows_server(self, view: "ListView | None", key: str) -> bool:
        """Whether a change of a server may be seen; of one that is removed, if it could be seen."""
        server = self.generation.servers.get(key) or self._removed.get(key)
        return view is None or (server is not None and view.shows_server(server))

    def _lists_changed(
        self, server: str, kinds: Sequence[ListKind], caller: str | None = None
    ) -> None:
        if server in self.generation.servers:
            self._notify(ListChanges(tuple(kinds), (server,), caller))

    def definitions_accepted(self, server: str, kind: ListKind | None) -> None:
        """Definitions of a list, or the instructions (None), of a server were accepted: callers can
        see them from now on."""
        if kind is None:
            self._capabilities_changed()
        else:
            self._lists_changed(server, [kind])

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
