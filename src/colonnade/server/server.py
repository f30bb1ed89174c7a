"""The `Server` class: registration of handlers, lifespan, mounting and transports.

Rules: capabilities are computed from what is registered. Heavy libraries are imported when a
transport needs them.
"""

import asyncio
import contextlib
import logging as logs
import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import Handler, Middleware, RequestContext, Store
from colonnade.protocol import types as t
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.methods import Method
from colonnade.protocol.negotiation import Callers, Encoders, Identity, Peer
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.server.capabilities import DeclaredKinds, Kind
from colonnade.server.decorators import Decorators, check_ttls
from colonnade.server.dispatch import Dispatch, ListOptions
from colonnade.server.handlers.function import Body, ErrorReporter, HandlerEnvironment
from colonnade.server.handlers.threads import THREADS, Workers
from colonnade.server.hints import (
    attribute_error,
    check_auth,
    check_extension_list,
    check_lifespan,
    check_middleware,
    check_middleware_list,
    check_options,
    check_threads,
    with_hints,
)
from colonnade.server.lifespan import ServerLifespan, call_lifespan
from colonnade.server.registry import PAGE_SIZE, RunTool, ServerRegistry
from colonnade.server.run import RunnableService

if TYPE_CHECKING:  # imported on first use, to keep `import colonnade` fast
    from typing import Unpack

    from colonnade.auth.server.protection import Protection
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.server.auth import ProtectionGuard
    from colonnade.server.context.context import Context
    from colonnade.server.context.handles import Handles
    from colonnade.server.extensions import Extension, ExtensionRegistry
    from colonnade.server.handlers.input_rounds import InputRoundsRunner, Keys
    from colonnade.server.options import AsgiOptions
    from colonnade.server.tasks.options import TaskOptions, TaskTool
    from colonnade.server.tasks.service import ServerTasks
    from colonnade.telemetry.server import ServerRecorder
    from colonnade.telemetry.telemetry import Telemetry
    from colonnade.transport.http_server.app import HttpApp
    from colonnade.transport.http_server.custom_routes import HttpRequest, Route

log: logs.Logger = logs.getLogger("colonnade.server")

# A user types about ten characters a second; all unauthenticated callers share one limit.
COMPLETIONS_PER_S = 200.0
# One day: a shopping basket is still there the next morning.
HANDLE_TTL_S = 24 * 3600.0

T = TypeVar("T")
M = TypeVar("M", bound=Middleware)
F = TypeVar("F", bound="Callable[[HttpRequest], Any]")
Lifespan = (
    Callable[["Server"], contextlib.AbstractAsyncContextManager[Any]]
    | Callable[[], contextlib.AbstractAsyncContextManager[Any]]
)


class Server(Decorators, RunnableService):
    """An MCP server: tools, resources and prompts for clients of every revision.

    >>> server = Server("weather", version="1.0")
    >>> @server.tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> server.run()  # stdio; server.run("http", port=8000) for HTTP

    `keys` encrypt the request state that clients carry, and tasks in the store: the same on all
    replicas, newest first.
    `store` holds state that outlives a call (handles, single use): the same on all replicas.
    `middleware` are functions around every request, the first outermost.
    `ttl_s` and `cache_scope` are the cache hints of lists; `ttl_s={"tools": 300}` sets some of
    them: tools, prompts, resources, resource_templates. `declares` names kinds that are only
    registered later, at run time: clients of older revisions read the capabilities once.
    `completions_per_s` limits the completions of each caller (R0150); None is no limit.
    `threads` is how many functions that are not `async` run at once; further calls wait.
    `auth` protects the server over HTTP; on stdio the caller is the parent process (R0188).
    `extensions` are those that the server declares: `Extension("com.example/search")`.
    `tasks` are the limits of tools with `task=`, and the queue of their workers:
    `TaskOptions(max_unfinished=20)`.
    `telemetry=True` records spans and metrics with OpenTelemetry, if its SDK is configured;
    `Telemetry(metrics="127.0.0.1:9464")` also serves metrics for Prometheus.
    """

    @with_hints
    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[t.Icon] | None = None,
        instructions: str | None = None,
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
        revisions: Iterable[str] | None = None,
        keys: Iterable[bytes] = (),
        store: Store | None = None,
        page_size: int = PAGE_SIZE,
        ttl_s: float | Mapping[str, float] | None = None,
        cache_scope: "t.CacheScope | None" = None,
        logging: bool | None = None,
        declares: Iterable[Kind] = (),
        completions_per_s: float | None = COMPLETIONS_PER_S,
        threads: int = THREADS,
        auth: "Protection | None" = None,
        extensions: "Iterable[Extension]" = (),
        tasks: "TaskOptions | None" = None,
        telemetry: "bool | Telemetry" = False,
        debug: bool = False,
    ) -> None:
        check_threads(threads)
        check_middleware_list(middleware)
        if page_size < 1:
            raise InvalidArgument(
                f"page_size is {page_size}; it must be 1 or more", argument="page_size"
            )
        if lifespan is not None:
            check_lifespan(name, lifespan)
        self.info: t.Implementation = t.Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.instructions = instructions
        self.state: Any = None
        self.workers: Workers = Workers(threads)
        self._accepts = Revisions.of(*revisions) if revisions is not None else EVERY
        self._given_keys = list(keys)
        if self._given_keys:
            _ = self._keys  # raises for invalid keys
        self._logging = logging
        self._lifespan_function = lifespan
        self._lifespan = ServerLifespan(self._enter_lifespan)
        self._middleware: list[Middleware] = []
        self._mounts: list[Server] = []
        self._routes: list[Route] = []
        self._access_logged = False
        self._identity: Identity | None = None
        self._encoders: Encoders = {}
        self._store = store
        check_auth(auth)
        self._auth = auth
        self._guards: list[ProtectionGuard] = []
        # Wall-clock time, since replicas share no monotonic clock; tests replace it.
        self.clock: Callable[[], float] = time.time
        error_reporter = ErrorReporter(debug=debug)
        super().__init__(
            ServerRegistry(), HandlerEnvironment(self._run_rounds, self.workers, error_reporter)
        )
        self._kinds = DeclaredKinds(self._registry, declares)
        ttl_ms = check_ttls(ttl_s, cache_scope, name)
        listing = ListOptions(page_size=page_size, ttl_ms=ttl_ms, cache_scope=cache_scope)
        guards: dict[str, Middleware] = {}
        if completions_per_s is not None:
            if not (math.isfinite(completions_per_s) and completions_per_s > 0):
                message = (
                    f"completions_per_s is {completions_per_s}; give a number above 0, or None"
                )
                raise InvalidArgument(message, argument="completions_per_s")
            guards["completion/complete"] = _completion_limit(completions_per_s)
        self._dispatch = Dispatch(
            self._registry, lambda: self.identity, self._accepts, error_reporter, listing, guards
        )
        self._registry.observers.append(self._on_registry_change)
        for one in middleware:
            self.add_middleware(one)
        self._task_options = tasks
        self._tasks: ServerTasks | None = None
        self._recorder: ServerRecorder | None = None
        self._telemetry: Telemetry | None = None
        if telemetry is not False:
            self.add_telemetry(telemetry)
        self._extensions: ExtensionRegistry | None = None
        self._mounted_in: list[Server] = []
        check_extension_list(extensions)
        for extension in extensions:
            self.add_extension(extension)

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise attribute_error(self, name)

    def __repr__(self) -> str:
        return f"Server({self.info.name!r})"

    def _run_rounds(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
    ) -> Awaitable[t.ProtocolType]:
        return self._rounds_runner.run(request, params, body, once)

    @cached_property
    def _keys(self) -> "Keys":
        from colonnade.server.handlers.input_rounds import Keys

        return Keys(self._given_keys, self.info.name)

    def share_key(self, key: bytes) -> None:
        """Encrypt request state with this key of 32 bytes, unless the server was given `keys`: for
        several processes that serve the same clients and are started by one."""
        self._keys.share(key)

    @cached_property
    def _rounds_runner(self) -> "InputRoundsRunner":
        from colonnade.server.handlers.input_rounds import InputRoundsRunner

        return InputRoundsRunner(lambda: self._keys, self, lambda: self.clock())

    @property
    def store(self) -> Store:
        """The storage of state that outlives a call; in memory if no other was given."""
        if self._store is None:
            from colonnade.store.memory import MemoryStore

            self._store = MemoryStore()
        return self._store

    @property
    def shared_store(self) -> Store | None:
        """The store, if it is shared with other processes; None otherwise."""
        return self._store if self._store is not None and self._store.is_shared else None

    @property
    def shared_seal(self) -> "Keys | None":
        """The `keys`, which all replicas share; None without `keys=`."""
        return self._keys if self._given_keys else None

    def handles(self, kind: str, type: type[T], *, ttl_s: float = HANDLE_TTL_S) -> "Handles[T]":
        """State that outlives a call, addressed by handles that the caller sends:
        `baskets = server.handles("basket", Basket)`. It expires `ttl_s` after its last use."""
        from colonnade.server.context.handles import Handles

        return Handles(kind, type, lambda: self.store, ttl_s)

    # ------------------------------------------------------------ composition

    def add_middleware(self, middleware: Middleware) -> None:
        """Wrap every request in a function; the first added is the outermost.

        `async def timing(request, call_next)`: `await call_next(request)` is the result.
        """
        check_middleware(middleware)
        self._middleware.append(middleware)
        self._dispatch.set_middleware(self._middleware)

    def add_telemetry(self, telemetry: "bool | Telemetry" = True) -> None:
        """Record spans and metrics, as `Server(telemetry=...)` does; not while it is served.

        Raises `InvalidArgument` if a library is missing, or if it records already.
        """
        from colonnade.telemetry.telemetry import as_telemetry

        chosen = as_telemetry(telemetry)
        if chosen is None:
            return
        if self._recorder is not None:
            raise InvalidArgument(f"{self!r} has telemetry already", argument="telemetry")
        registry = self._registry

        def is_known(method: str, name: str) -> bool:
            found = registry.tools if method == "tools/call" else registry.prompts
            return found.get(name) is not None

        weak = ref(self)

        def install() -> None:
            # Telemetry that a process shares outlives a server, and must not keep it.
            server = weak()
            if server is not None and server._recorder is not None:
                server._middleware.insert(0, server._recorder.middleware)
                server._dispatch.set_middleware(server._middleware)

        self._telemetry, self._recorder = chosen, chosen.server(is_known)
        # Not before: a middleware costs something even if it does nothing.
        chosen.recorder.when_active(install)

    def middleware(self, function: M, /) -> M:
        """Decorator form of `add_middleware`: `@server.middleware`."""
        self.add_middleware(function)
        return function

    def add_extension(self, extension: "Extension") -> None:
        """Declare an extension and serve its methods, also those that are added to it later.

        Clients of revisions with a handshake see it from their next connection on. Raises
        `InvalidArgument` for one that the server has already, or whose methods it has.
        """
        self._extension_registry.add(extension)

    @property
    def _extension_registry(self) -> "ExtensionRegistry":
        if self._extensions is None:
            from colonnade.server.extensions import ExtensionRegistry

            self._extensions = ExtensionRegistry(
                self,
                self._environment,
                self._middleware,
                lambda name, entry: self._dispatch.add_extension_method(
                    name, entry, self._middleware
                ),
                self._registry.notify_observers,
                lambda: [outer._extension_registry for outer in self._mounted_in],
            )
        return self._extensions

    def _run_task_tool(self, tool: "TaskTool") -> RunTool:
        if self._tasks is None:
            from colonnade.server.tasks.options import TaskOptions
            from colonnade.server.tasks.service import ServerTasks

            self._tasks = ServerTasks(
                self.info.name,
                lambda: self.store,
                lambda: self.clock(),
                self._registry.tools,
                self._task_options or TaskOptions(),
                lambda: self.shared_seal,
            )
            self._dispatch.set_tasks(self._tasks, self._middleware)
            self.add_extension(self._tasks.extension())
            if self._lifespan.is_served:
                self._tasks.start()
        return self._tasks.handler(tool)

    @property
    def max_running_tasks(self) -> int:
        """How many tasks run in this process at once; 0 for none: `colonnade work` runs them.

        Set it before the server is started, to override `TaskOptions(max_running=…)`.
        """
        from colonnade.server.tasks.options import TaskOptions

        return (self._task_options or TaskOptions()).max_running

    @max_running_tasks.setter
    def max_running_tasks(self, max_running: int) -> None:
        from msgspec.structs import replace

        from colonnade.server.tasks.options import TaskOptions

        options = replace(self._task_options or TaskOptions(), max_running=max_running)
        self._task_options = options
        if self._tasks is not None:
            self._tasks.limit_running(options.max_running)

    @property
    def has_task_tools(self) -> bool:
        """Whether a tool can run as a task, here or in a mounted server."""
        return any(entry.task is not None for entry in self._registry.tools)

    @property
    def extensions(self) -> "list[Extension]":
        """The extensions, also those of mounted servers."""
        return list(self._extensions) if self._extensions is not None else []

    def route(self, path: str, *, methods: Iterable[str] = ("GET",)) -> Callable[[F], F]:
        """Add a plain HTTP route beside the MCP endpoint, if the server is served over HTTP:

        >>> @server.route("/version")
        ... async def version(request: HttpRequest) -> dict[str, str]:
        ...     return {"version": "1.0"}

        Return a string, bytes, `HttpResponse(…)`, a JSON value, None for 204, or the response of a
        web framework. `/items/{id}` sets `request.path_params["id"]`. A route is public: neither
        `auth=` nor `verify=` applies to it.
        """
        if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"@server.route needs a path, not {getattr(path, '__name__', repr(path))}: "
                'write @server.route("/version") above the function',
                argument="path",
            )

        def add(function: F) -> F:
            from colonnade.transport.http_server.custom_routes import Route

            added = Route(path, methods, function, self.workers.run)
            for one in self._routes:
                if one.path == added.path and set(one.methods) & set(added.methods):
                    raise InvalidArgument(
                        f"the route {added.path!r} is already registered; give it other methods",
                        argument="path",
                    )
            self._routes.append(added)
            return function

        return add

    def _all_routes(self) -> "list[Route]":
        """The routes of this server and of mounted servers."""
        return [*self._routes, *(route for one in self._mounts for route in one._all_routes())]

    @with_hints
    def mount(self, other: "Server", namespace: str | None = None) -> None:
        """Also serve what another server has registered, now and later.

        Names of tools and prompts are prefixed with the namespace: `maps_route`. URIs are not.
        """
        if not isinstance(other, Server):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"mount takes a Server, not {type(other).__name__}: write "
                "server.mount(other, namespace='maps')"
            )
        if other is self or self in other.mounted:
            raise InvalidArgument(f"{other!r} cannot be mounted in itself")
        if other._auth is not None and other._auth is not self._auth:
            raise InvalidArgument(
                f"{other!r} has its own auth=, which has no effect once it is mounted: give it to "
                f"{self!r}, and use scopes= for tools that not all callers may use"
            )
        is_served = self._lifespan.is_served
        has_lifespan = any(one._lifespan_function for one in (other, *other.mounted))
        if is_served and has_lifespan and not other._lifespan.is_served:
            raise LocalProtocolError(
                f"{other!r} has a lifespan, which would not be entered, since {self!r} is already "
                "running; mount it before serving"
            )
        if other._extensions is not None:
            self._extension_registry.check_mount(other._extensions)
        from colonnade.server.mount import Mount

        Mount(other._registry, self._registry, other._middleware, namespace, self._run_task_tool)
        if other._keys.private:
            other._keys = self._keys  # clients see one server, so it has one key ring
        self._mounts.append(other)
        other._mounted_in.append(self)
        if other._extensions is not None:
            self._extension_registry.mount(other._extensions)
        if is_served:  # as `_enter_lifespan` does for servers mounted earlier
            self._lifespan.add(other._lifespan, other.stop)

    @property
    def mounted(self) -> list["Server"]:
        """The mounted servers, including nested ones."""
        return [*self._mounts, *(inner for one in self._mounts for inner in one.mounted)]

    def enable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Show hidden tools, resources and prompts, by name, URI or tag."""
        self._registry.set_enabled(names, tags, enabled=True)

    def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Hide tools, resources and prompts, by name, URI or tag; clients are notified."""
        self._registry.set_enabled(names, tags, enabled=False)

    @contextlib.contextmanager
    def overrides(
        self, functions: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> Generator[None]:
        """Replace dependencies within a `with` block, for tests; also those of mounted servers."""
        servers = (self, *self.mounted)
        tables = [server._environment.providers.overrides for server in servers]
        before = [dict(table) for table in tables]
        for table in tables:
            table.update(functions)
        try:
            yield
        finally:
            for table, old in zip(tables, before, strict=True):
                table.clear()
                table.update(old)

    def updated(self, uri: str) -> None:
        """Notify subscribers that a resource has changed."""
        params = t.ResourceUpdatedNotificationParams(uri=uri)
        self._registry.changes.publish("notifications/resources/updated", params)

    # ------------------------------------------------------------ the Service protocol

    @property
    def accepts(self) -> Revisions:
        """The supported revisions."""
        return self._accepts

    @property
    def identity(self) -> Identity:
        """The implementation info and the current capabilities."""
        known = self._identity
        if known is None or (known.info, known.instructions) != (self.info, self.instructions):
            known = self._identity = self._identify()
        return known

    def _identify(self) -> Identity:
        logs = self._logging
        if logs is None:
            logs = any(entry.logs for entry in self._registry.entries())
            logs = logs or self._dispatch.extensions_log
        capabilities = self._kinds.capabilities(logs)
        by_callers: dict[Callers, t.ServerCapabilities] = {}
        extension_methods: Mapping[str, Method] = {}
        if self._extensions is not None:
            by_callers = self._extensions.declare(capabilities)
            extension_methods = self._extensions.methods
        return Identity(
            self.info,
            by_callers.get(Callers.ANONYMOUS, capabilities),
            self.instructions,
            encoders=self._encoders,
            extension_methods=extension_methods,
            by_callers=by_callers,
        )

    def _on_registry_change(self) -> None:
        self._identity = None
        if self._lifespan.is_entered and self._accepts.handshakes:
            self._kinds.warn_of_new()

    @property
    def logs(self) -> bool:
        """Whether the logging capability is declared (R0153)."""
        return self.identity.logs

    @property
    def telemetry(self) -> "ServerRecorder | None":
        """What records spans and metrics; None without telemetry."""
        return self._recorder

    def respond(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The encoded response to a request."""
        recorder = self._recorder
        if recorder is None or monotonic() < recorder.recorder.idle_until:
            return self._dispatch.answer(request)
        return recorder.respond(request, self._dispatch.answer)

    async def read(self, context: "Context", uri: str) -> "t.ReadResourceResult":
        """Read one of the server's own resources, as the caller of the handler."""
        params = t.ReadResourceRequestParams(uri=uri)
        result = await self._dispatch.read_resource(context.current_request, params, context)
        if not isinstance(result, t.ReadResourceResult):
            raise LocalProtocolError(f"{uri} cannot be read from a handler")
        return result

    def on_notification(self, notification: NotificationReceived, peer: Peer | None) -> None:
        """Handle a client's notification that belongs to no request: it is only logged.

        `notifications/roots/list_changed` needs no handling: `ctx.roots()` sends a request each
        time, roots are not cached, and the newest revision has no such notification.
        """
        log.debug("received %s from a client", notification.method.name)
        if self._recorder is not None:
            self._recorder.notified(notification, peer)

    def param_headers(self, tool: str) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that clients mirror in HTTP headers."""
        entry = self._registry.tools.get(tool)
        return entry.headers if entry is not None else ()

    def may_subscribe(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """Whether these scopes allow update notifications of a resource."""
        return self._dispatch.may_subscribe(uri, scopes)

    def watch_changes(
        self, on_change: Callable[[str, t.NotificationParams], None], principal: str = ""
    ) -> Callable[[], None]:
        """Call `on_change` for every change until the returned function is called; changes are the
        same for all principals."""
        return self._registry.changes.watch(on_change)

    async def start(self) -> None:
        """Enter the lifespan, once; later calls wait for the first. Each needs a `stop`."""
        await self._lifespan.start()

    async def _enter_lifespan(self, exit_stack: contextlib.AsyncExitStack) -> None:
        if self._telemetry is not None and self._telemetry.metrics_address is not None:
            from colonnade.transport.http_server.runner import AppListener

            listener = AppListener(self._telemetry.metrics_app, self._telemetry.metrics_address)
            await exit_stack.enter_async_context(listener)
        for other in self._mounts:
            await other.start()
            exit_stack.push_async_callback(other.stop)
        if self._lifespan_function is not None:
            self.state = await exit_stack.enter_async_context(
                call_lifespan(self._lifespan_function, self)
            )
        for guard in self._guards:
            await guard.start()
        self._registry.changes.start(asyncio.get_running_loop())
        store = self.shared_store
        if store is not None:
            seal = self.shared_seal
            await self._registry.changes.share(store, seal, self.info.name, exit_stack)
        if self._tasks is not None:
            self._tasks.start()
        self._kinds.on_served()

    def drain(self) -> None:
        """End open subscriptions with their result; calls continue, tasks are given back."""
        self._dispatch.drain()
        if self._tasks is not None:
            self._tasks.drain()

    async def stop(self) -> None:
        """Exit the lifespan once every `start` has had its `stop`."""
        if not self._lifespan.stop():
            return
        if self._tasks is not None:
            await self._tasks.stop()
        self._registry.changes.stop()
        for guard in self._guards:
            await guard.close()
        try:
            await self._environment.close()
        finally:
            await self._lifespan.exit()
            self.workers.stop()

    # ------------------------------------------------------------ transports

    @property
    def debug(self) -> bool:
        """Whether error messages for callers include the exception."""
        return self._environment.error_reporter.debug

    @debug.setter
    def debug(self, shown: bool) -> None:
        for server in (self, *self.mounted):
            server._environment.error_reporter.debug = shown

    def asgi(self, **options: "Unpack[AsgiOptions]") -> "HttpApp":
        """The server as an ASGI application.

        `server.asgi(path="/mcp", around=app)` serves the MCP paths and passes other requests to
        `app`. `hosts` and `origins` are the allowed `Host` and `Origin` headers besides loopback.
        """
        from colonnade.transport.http_server.app import HttpApp

        if options:
            check_options("Server.asgi", "http", options)
        asks = any(one._environment.may_request_input for one in (self, *self.mounted))
        seals = self._tasks is not None or self.shared_store is not None
        if asks or (self._given_keys and seals):
            from colonnade.auth.seal import load_cipher

            load_cipher()  # now, rather than during the first elicitation, task or message
        if options.get("access_log") and not self._access_logged:
            from colonnade.middleware import log as log_requests

            self._access_logged = True
            self._middleware.insert(0, log_requests())
            self._dispatch.set_middleware(self._middleware)
        if self._auth is None:
            return HttpApp(self, routes=self._all_routes, **options)
        if "verify" in options:
            raise InvalidArgument(
                "auth= and verify= both authenticate callers; remove one of them", argument="verify"
            )
        guard = self._make_guard(self._auth, options.get("path", "/mcp"))
        return HttpApp(self, guard=guard, routes=self._all_routes, **options)

    def _make_guard(self, auth: "Protection", path: str) -> "ProtectionGuard":
        from colonnade.server.auth import ProtectionGuard

        title = self.info.title or self.info.name
        required_scopes = self._dispatch.required_scopes
        guard = ProtectionGuard(
            auth, path, title, required_scopes, lambda: self.store, lambda: self._keys
        )
        self._guards.append(guard)
        return guard


def _completion_limit(per_s: float) -> Middleware:
    """Limit completions per second and caller; the rate limiter is imported on first use."""
    limiter: list[Middleware] = []

    def limited(request: RequestContext, handler: Handler) -> Awaitable[t.ProtocolType]:
        if not limiter:
            from colonnade.middleware import rate_limit

            limiter.append(rate_limit(per_s))
        return limiter[0](request, handler)

    return limited
