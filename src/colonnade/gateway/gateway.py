"""`Gateway`: the servers of a host behind one endpoint, for clients of every revision.

    gateway = Gateway(Host.from_config("claude_desktop_config.json"))
    gateway.run("http", port=8000)

Rules: a gateway is a `Service` like a `Server`, so it has every transport. Requests go through
`front` to the one handler of the host; nothing reaches a server around its middleware.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from colonnade.client.request import ROOTS_CHANGED
from colonnade.errors import CannotConnect, ColonnadeError, InvalidArgument
from colonnade.gateway.bridge import InputBridge
from colonnade.gateway.changes import GatewayChanges, ServerLists
from colonnade.gateway.front import GatewayFront
from colonnade.gateway.identity import (
    for_callers,
    gateway_capabilities,
    gathered_instructions,
)
from colonnade.gateway.manifests import GatewayManifests
from colonnade.gateway.pages import ListPages
from colonnade.gateway.subscriptions import GatewaySubscriptions
from colonnade.gateway.tasks import GatewayTasks
from colonnade.host.host import Host
from colonnade.host.runtime import ListChanges
from colonnade.host.servers.listings import CLIENT_WAIT_S
from colonnade.host.view import HostView
from colonnade.ports import SERVER_PRINCIPAL, RequestContext, Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import Request
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.negotiation import Callers, Encoders, Identity, Peer
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.server.handlers.function import ErrorReporter
from colonnade.server.handlers.input_rounds import Keys
from colonnade.server.hints import check_auth, check_options
from colonnade.server.lifespan import ServerLifespan
from colonnade.server.registry import PAGE_SIZE
from colonnade.server.run import RunnableService

if TYPE_CHECKING:  # imported on first use
    from typing import Unpack

    from colonnade.auth.server.protection import Protection
    from colonnade.host.servers.listings import ListKind
    from colonnade.ports import ServerTelemetry
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.replicas.replica import Replica
    from colonnade.server.auth import ProtectionGuard
    from colonnade.server.options import AsgiOptions
    from colonnade.transport.http_server.app import HttpApp

log: logging.Logger = logging.getLogger("colonnade.gateway")

# Claude Code calls a tool `mcp__gateway__NAME`, Cursor counts the name of the server too, and model
# providers accept 64 characters.
NAME_LIMIT = 45

# For the store to respond when the gateway starts, and what is read: nothing writes it.
STORE_START_S = 10.0
STORE_KEY = "ready"

# The notification for each list that has changed.
LIST_NOTIFICATIONS = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "templates": "notifications/resources/list_changed",
}


class Gateway(RunnableService):
    """The servers of a host as one server.

    `auth` protects it over HTTP. `store` has the state that outlives a request, and `keys` encrypt
    what clients carry: both the same on all replicas, the newest key first. A host that was not
    entered with `async with` is closed when the gateway stops. `name_limit` is the length of the
    names of tools and prompts: clients put a prefix of their own before them. `wait_s` is how long
    a list waits for a server that has not answered yet. `instructions` are a text, or "gathered":
    those of all servers. `views` are further endpoints, each with some of the
    servers: `views={"dev": ["files", "git"]}` is at `/mcp/dev`.
    """

    class_label: ClassVar[str] = "Gateway"

    def __init__(
        self,
        host: Host | HostView,
        *,
        name: str = "gateway",
        version: str = "0",
        title: str | None = None,
        instructions: str | None = None,
        auth: "Protection | None" = None,
        store: Store | None = None,
        keys: Iterable[bytes] = (),
        revisions: Iterable[str] | None = None,
        name_limit: int = NAME_LIMIT,
        page_size: int = PAGE_SIZE,
        wait_s: float = CLIENT_WAIT_S,
        views: Mapping[str, Iterable[str]] | None = None,
        debug: bool = False,
    ) -> None:
        check_auth(auth)
        if page_size < 1:
            raise InvalidArgument(
                f"page_size is {page_size}; it must be 1 or more", argument="page_size"
            )
        if not wait_s > 0:
            message = f"wait_s is {wait_s!r}; give seconds above 0"
            raise InvalidArgument(message, argument="wait_s")
        host.limit_names(name_limit)
        host.limit_list_wait(wait_s)
        self.host: Host | HostView = host
        self._own_host = host if isinstance(host, Host) else None
        self.info: t.Implementation = t.Implementation(name=name, version=version, title=title)
        self.instructions: str | None = instructions
        self._accepts = Revisions.of(*revisions) if revisions is not None else EVERY
        self._auth = auth
        self._store = store
        self._given_keys = list(keys)
        if self._given_keys:
            _ = self.keys  # raises for invalid keys
        self._guards: list[ProtectionGuard] = []
        self._encoders: Encoders = {}
        self._identity: Identity | None = None
        self._identity_version = -1, False
        self._lifespan = ServerLifespan(self._enter)
        self._replica: Replica | None = None
        self.changes: GatewayChanges = GatewayChanges()
        self._subscriptions = GatewaySubscriptions(host, self.changes)
        # In memory they would be gone with the lists that the host has anyway.
        self._manifests = (
            GatewayManifests(host, lambda: self.store, lambda: self.shared_seal)
            if store is not None and isinstance(host, Host)
            else None
        )
        pages = ListPages(page_size, lambda: self.keys)
        self._tasks = GatewayTasks(
            host, lambda: self.keys, lambda: self.store, pages, self._declared, name
        )
        self._bridge = InputBridge(
            host, lambda: self.keys, lambda: self.store, self._tasks.relay_for
        )
        self._front = GatewayFront(
            host,
            lambda: self.identity,
            self._accepts,
            self.changes,
            self._subscriptions,
            pages,
            self._manifests,
            ErrorReporter(debug=debug),
            self._bridge,
            self._tasks,
        )

        self.views: dict[str, Gateway] = {
            view: self._make_view(view, list(servers), name_limit, page_size, wait_s, debug=debug)
            for view, servers in (views or {}).items()
        }

    def _make_view(
        self,
        view: str,
        servers: list[str],
        name_limit: int,
        page_size: int,
        wait_s: float,
        *,
        debug: bool,
    ) -> "Gateway":
        """A gateway to some of the servers. What one of them has sealed the others do not read."""
        if not isinstance(self.host, Host):
            raise InvalidArgument("a view has no views", argument="views")
        return Gateway(
            self.host.view(servers),
            name=f"{self.info.name}-{view}",
            version=self.info.version,
            instructions=self.instructions,
            auth=self._auth,
            store=self._store,
            keys=self._given_keys,
            revisions=self._accepts.dates,
            name_limit=name_limit,
            page_size=page_size,
            wait_s=wait_s,
            debug=debug,
        )

    def __repr__(self) -> str:
        return f"<Gateway {self.info.name!r} to {self.host!r}>"

    @cached_property
    def keys(self) -> Keys:
        """The keys that encrypt what clients carry."""
        return Keys(self._given_keys, self.info.name)

    @property
    def shared_seal(self) -> Keys | None:
        """The keys, if other processes and the next start have them, too."""
        return None if self.keys.private else self.keys

    def share_key(self, key: bytes) -> None:
        """Encrypt with this key of 32 bytes, unless the gateway was given `keys`: for several
        processes that serve the same clients and are started by one."""
        self.keys.share(key)
        for view in self.views.values():
            view.share_key(key)

    @property
    def is_protected(self) -> bool:
        """Whether callers are authenticated over HTTP."""
        return self._auth is not None

    def closes(self, host: Host) -> None:
        """Close this host when the gateway stops: for a view that is served alone."""
        self._own_host = host

    @property
    def store(self) -> Store:
        """The storage of state that outlives a request; in memory if no other was given."""
        if self._store is None:
            from colonnade.store.memory import MemoryStore

            self._store = MemoryStore()
        return self._store

    # ------------------------------------------------------------ the Service protocol

    @property
    def accepts(self) -> Revisions:
        """The supported revisions."""
        return self._accepts

    @property
    def telemetry(self) -> "ServerTelemetry | None":
        """None: spans of requests to servers are recorded by the host."""
        return None

    @property
    def identity(self) -> Identity:
        """The implementation info and the current capabilities."""
        # All clients are sent the same, so what rules may hide from one of them is left out.
        has_rules = self.host.policy is not None
        version = self.host.capabilities_version, has_rules
        if self._identity is None or self._identity_version != version:
            self._identity_version = version
            known = (None,) if has_rules else self.host.capabilities.values()
            capabilities = gateway_capabilities(known)
            gathered = {} if has_rules else self.host.instructions
            instructions = gathered_instructions(self.instructions, gathered)
            by_callers = {one: for_callers(capabilities, one) for one in Callers.members()}
            if self._identity is None or (by_callers, instructions) != (
                self._identity.by_callers,
                self._identity.instructions,
            ):
                self._identity = Identity(
                    self.info,
                    by_callers[Callers.ANONYMOUS],
                    instructions,
                    encoders=self._encoders,
                    by_callers=by_callers,
                )
        return self._identity

    def _declared(self) -> t.ServerCapabilities:
        declared = self.identity.capabilities
        assert isinstance(declared, t.ServerCapabilities)
        return declared

    def respond(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The encoded response to a request."""
        return self._front.respond(request)

    def on_notification(self, notification: NotificationReceived, peer: Peer | None) -> None:
        """Handle a client's notification that belongs to no request: changed roots are those of its
        own sessions with servers, and others are only logged."""
        if notification.method.name == ROOTS_CHANGED and notification.owner is not None:
            self.host.roots_changed(notification.owner)
        else:
            log.debug("received %s from a client", notification.method.name)

    def param_headers(self, tool: str) -> "tuple[ParamHeader, ...]":
        """None: which tool it is depends on the caller, so `front` checks the headers."""
        return ()

    def may_subscribe(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """Whether these scopes allow update notifications of a resource: the server decides."""
        return True

    @property
    def shared_store(self) -> Store | None:
        """The store, if it is shared with other processes; None otherwise."""
        return self._store if self._store is not None and self._store.is_shared else None

    def watch_changes(
        self, on_change: Callable[[str, t.NotificationParams], None], principal: str = ""
    ) -> Callable[[], None]:
        """Call `on_change` for every change that a principal can see, until the returned function
        is called."""
        shows = partial(self._subscriptions.shows, principal)
        end = self.changes.watch(
            on_change, principal, shows, partial(self._shows_servers, principal)
        )

        def unwatch() -> None:
            end()
            if self._lifespan.is_served:
                # The session that has ended loses its subscriptions in this step of the loop.
                asyncio.get_running_loop().call_soon(self._subscriptions.release_unused)

        return unwatch

    def _shows_servers(self, principal: str, servers: tuple[str, ...]) -> bool:
        """Whether the sessions of a principal may be notified of changed lists of servers."""
        return self.host.policy is None or self.changes.shows_servers(principal, servers)

    # ------------------------------------------------------------ lifespan

    async def start(self) -> None:
        """Start, once; later calls wait for the first. Each needs a `stop`."""
        await self._lifespan.start()

    async def _check_store(self, store: Store) -> None:
        """Raise `CannotConnect` if the store does not respond: without it lists would be empty, and
        calls be refused, for as long as it is away."""
        try:
            async with asyncio.timeout(STORE_START_S):
                await store.get(SERVER_PRINCIPAL, STORE_KEY)
            return
        except TimeoutError:
            why = f"its store did not respond within {STORE_START_S:g} s"
        except ColonnadeError as error:
            why = error.sentence
        raise CannotConnect(
            f"the gateway cannot start: {why}", hint="start the store, or correct its address"
        )

    async def _enter(self, exit_stack: contextlib.AsyncExitStack) -> None:
        if self._store is not None:
            await self._check_store(self._store)
        if self._own_host is not None and not self._own_host.is_entered:
            await exit_stack.enter_async_context(self._own_host)
        exit_stack.callback(self.host.watch(self._lists_changed, all_callers=True))
        exit_stack.push_async_callback(self._subscriptions.close)
        exit_stack.push_async_callback(self._tasks.close)
        if self._manifests is not None:
            await self._manifests.load(SERVER_PRINCIPAL)
            exit_stack.push_async_callback(self._manifests.close)
        for guard in self._guards:
            await guard.start()
            exit_stack.push_async_callback(guard.close)
        self.changes.start(asyncio.get_running_loop())
        exit_stack.callback(self._forget_replica)
        replica = self._own_replica()
        if replica is not None:
            from colonnade.gateway.home_lists import HomeLists

            lists = HomeLists(replica, self.host.is_home, self._lists_expired)
            exit_stack.push_async_callback(lists.close)
            exit_stack.callback(self.host.watch(lists.announce, all_callers=True))
        await self._bridge.start(exit_stack, self, replica)
        store = self.shared_store
        if store is not None:
            await self.changes.share(store, self.shared_seal, self.info.name, exit_stack)

    def make_replica(self, store: Store) -> "Replica":
        """A replica of this gateway, for an application: what the gateway itself is, if it is not
        served yet."""
        from colonnade.replicas.replica import Replica

        if self.keys.private:
            return Replica(store, group=self.info.name)
        replica = Replica(store, seal=self.keys, group=self.info.name)
        if not self._lifespan.is_served:
            self._replica = replica
        return replica

    def _own_replica(self) -> "Replica | None":
        """The replica that this gateway is; None without a shared store, and without the keys by
        which it would know the others."""
        store = self.shared_store
        if store is None or self.keys.private:
            return None
        if self._replica is None:
            from colonnade.replicas.replica import Replica

            self._replica = Replica(store, seal=self.keys, group=self.info.name)
        return self._replica

    def _forget_replica(self) -> None:
        self._replica = None

    def _lists_changed(self, changes: ListChanges) -> None:
        if changes.by_rules:
            self._tasks.followers.rules_changed()
        for method in dict.fromkeys(LIST_NOTIFICATIONS[kind] for kind in changes.kinds):
            servers = None if changes.by_rules else changes.servers
            self.changes.publish(method, ServerLists(servers=servers), changes.caller)

    def _lists_expired(self, server: str, caller: str, kinds: "Sequence[ListKind]") -> None:
        """Another replica has the session of a caller, and its lists have changed."""
        if self.host.expire_lists(server, caller, kinds):
            for method in dict.fromkeys(LIST_NOTIFICATIONS[kind] for kind in kinds):
                self.changes.publish(method, ServerLists(servers=(server,)), caller)

    def drain(self) -> None:
        """End open subscriptions with their result; calls continue."""
        self._front.drain()
        for view in self.views.values():
            view.drain()

    async def stop(self) -> None:
        """Stop once every `start` has had its `stop`."""
        if not self._lifespan.stop():
            return
        self.changes.stop()
        await self._lifespan.exit()

    # ------------------------------------------------------------ transports

    def asgi(self, **options: "Unpack[AsgiOptions]") -> "HttpApp":
        """The gateway as an ASGI application; the options are those of `Server.asgi`."""
        from colonnade.gateway.app import GatewayApp

        if options:
            check_options("Gateway.asgi", "http", options)
        if self.views:
            return self._with_views(options)
        if self._auth is None:
            return GatewayApp(self, (), **options)
        if "verify" in options:
            raise InvalidArgument(
                "auth= and verify= both authenticate callers; remove one of them", argument="verify"
            )
        guard = self._make_guard(self._auth, options.get("path", "/mcp"))
        return GatewayApp(self, (), guard=guard, **options)

    def _with_views(self, options: "AsgiOptions") -> "HttpApp":
        """The application, with that of each view around it: the last is around all others."""
        from colonnade.gateway.app import GatewayApp

        path = options.get("path", "/mcp").rstrip("/")
        apps: list[HttpApp] = []
        around = options.get("around")
        for name, view in self.views.items():
            below: AsgiOptions = {**options, "path": f"{path}/{name}"}
            if around is not None:
                below["around"] = around
            around = view.asgi(**below)
            apps.append(around)
        own: dict[str, Any] = {**options, "around": around}
        if self._auth is not None:
            own["guard"] = self._make_guard(self._auth, path)
        return GatewayApp(self, apps, **own)

    def _make_guard(self, auth: "Protection", path: str) -> "ProtectionGuard":
        from colonnade.server.auth import ProtectionGuard

        title = self.info.title or self.info.name
        guard = ProtectionGuard(
            auth, path, title, _no_scopes, lambda: self.store, lambda: self.keys
        )
        self._guards.append(guard)
        return guard


def _no_scopes(request: Request) -> frozenset[str]:
    """The scopes that a request needs beyond those of the gateway: none."""
    return frozenset()
