"""A server as its author sees it: decorators in, transports out.

Rules: capabilities are computed from what is registered; they cannot lie. Heavy libraries load when
a transport needs them.
"""

import asyncio
import contextlib
import inspect
import logging as logs
import math
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

from colonnade.errors import InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.ports import Handler, Middleware, RequestContext, Store
from colonnade.protocol import types as t
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.negotiation import Encoders, Identity, Peer
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.server.decorators import Offering, checked_ttls
from colonnade.server.dispatch import Dispatch, ListOptions
from colonnade.server.handlers.function import Body, Crashes, HandlerEnvironment
from colonnade.server.handlers.threads import THREADS, Workers
from colonnade.server.options import check_options, hinted, no_attribute
from colonnade.server.registry import PAGE_SIZE, Catalogue, Shelf
from colonnade.signatures.type_hints import signature_of

if TYPE_CHECKING:  # what few servers need is loaded when it is used, and HTTP when it is served
    from typing import Unpack

    from colonnade.auth.server.protection import Protection
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.server.auth import Door
    from colonnade.server.context.context import Context
    from colonnade.server.context.handles import Handles
    from colonnade.server.handlers.input_rounds import Interviewer, Keys
    from colonnade.server.options import AsgiOptions, HttpOptions, HttpRunOptions
    from colonnade.transport.http_server.app import HttpApp
    from colonnade.transport.http_server.custom_routes import HttpRequest, Route

log: logs.Logger = logs.getLogger("colonnade.server")

# A person types some ten letters a second; those whom nobody verifies are counted together.
COMPLETIONS_PER_S = 200.0
# A day: a basket outlives the night.
HANDLE_TTL_S = 24 * 3600.0

# The second is what the protocol calls it, and what other libraries take.
Http = Literal["http", "streamable-http"]

T = TypeVar("T")
M = TypeVar("M", bound=Middleware)
F = TypeVar("F", bound="Callable[[HttpRequest], Any]")
Kind = Literal["tools", "resources", "prompts", "completions"]
Lifespan = (
    Callable[["Server"], contextlib.AbstractAsyncContextManager[Any]]
    | Callable[[], contextlib.AbstractAsyncContextManager[Any]]
)


class Server(Offering):
    """Tools, resources and prompts for clients of every revision.

    >>> server = Server("weather", version="1.0")
    >>> @server.tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> server.run()  # stdio; server.run("http", port=8000) for HTTP

    `keys` seal what travels through clients: give all replicas the same, the newest first.
    `store` keeps what outlives a call (handles, single use): give all replicas the same.
    `middleware` are functions around every request, the first outermost.
    `ttl_s` and `cache_scope` say how long, and for whom, lists keep; `ttl_s={"tools": 300}` says it
    for some: tools, prompts, resources, resource_templates. `declares` names kinds that
    are added only later, at run time: clients of the older revisions ask once what there is.
    `completions_per_s` is how many completions each caller gets (R0150), None for any number.
    `threads` is how many functions that are not `async` run at once; further calls wait.
    `auth` says who may use it over HTTP; on a pipe its caller is whoever started it (R0188).
    """

    @hinted
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
        debug: bool = False,
    ) -> None:
        if not (isinstance(threads, int) and threads > 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            words = f"threads is {threads!r}; give how many sync functions may run at once, above 0"
            raise InvalidArgument(words, argument="threads")
        if not isinstance(middleware, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            one = getattr(middleware, "__name__", type(middleware).__name__)
            raise InvalidArgumentType(
                f"middleware= takes a list of functions, and not {one}: write middleware=[timing]",
                argument="middleware",
            )
        if page_size < 1:
            raise InvalidArgument("page_size is a number of entries above 0", argument="page_size")
        if lifespan is not None:
            _check_lifespan(name, lifespan)
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
            _ = self._keys  # what are no keys is refused here
        self._logging = logging
        self._lifespan = lifespan
        self._layers: list[Middleware] = []
        self._mounts: list[Server] = []
        self._routes: list[Route] = []
        self._access_logged = False
        self._declares = _kinds(declares)
        self._seen: frozenset[str] = frozenset()
        self._identity: Identity | None = None
        self._shapers: Encoders = {}
        self._running: asyncio.Future[None] | None = None
        self._users = 0
        self._exits = contextlib.AsyncExitStack()
        self._store = store
        if auth is not None and not hasattr(auth, "authenticate"):
            raise InvalidArgumentType(
                f"auth= takes Protection(URL, ...), and not {type(auth).__name__}: "
                "auth=Protection('https://notes.example.com/mcp', Jwt('https://login.example.com'))",
                argument="auth",
            )
        self._auth = auth
        self._doors: list[Door] = []
        # The time of day, which is all that replicas share; tests move it.
        self.clock: Callable[[], float] = time.time
        crashes = Crashes(debug=debug)
        super().__init__(Catalogue(), HandlerEnvironment(self._interviewed, self.workers, crashes))
        ttl_ms = checked_ttls(ttl_s, cache_scope, name)
        listing = ListOptions(page_size=page_size, ttl_ms=ttl_ms, cache_scope=cache_scope)
        guards: dict[str, Middleware] = {}
        if completions_per_s is not None:
            if not (math.isfinite(completions_per_s) and completions_per_s > 0):
                words = f"completions_per_s is {completions_per_s}; give a number above 0, or None"
                raise InvalidArgument(words, argument="completions_per_s")
            guards["completion/complete"] = _limited(completions_per_s)
        self._dispatch = Dispatch(
            self._catalogue, lambda: self.identity, self._accepts, crashes, listing, guards
        )
        self._catalogue.followers.append(self._changed)
        for one in middleware:
            self.add_middleware(one)

    if not TYPE_CHECKING:  # or nothing would be unknown to a type checker

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __repr__(self) -> str:
        return f"Server({self.info.name!r})"

    def _interviewed(
        self,
        request: RequestContext,
        params: t.InputResponseRequestParams,
        body: Body,
        once: bool = False,
    ) -> Awaitable[t.ProtocolType]:
        return self._interviewer.run(request, params, body, once)

    @cached_property
    def _keys(self) -> "Keys":
        from colonnade.server.handlers.input_rounds import Keys

        return Keys(self._given_keys, self.info.name)

    @cached_property
    def _interviewer(self) -> "Interviewer":
        from colonnade.server.handlers.input_rounds import Interviewer

        return Interviewer(lambda: self._keys, self, lambda: self.clock())

    @property
    def store(self) -> Store:
        """What outlives a call; in memory, where nothing else was given."""
        if self._store is None:
            from colonnade.store.memory import MemoryStore

            self._store = MemoryStore()
        return self._store

    def handles(self, kind: str, type: type[T], *, ttl_s: float = HANDLE_TTL_S) -> "Handles[T]":
        """State that outlives a call, behind handles that its caller carries:
        `baskets = server.handles("basket", Basket)`. Unused for `ttl_s`, it is forgotten."""
        from colonnade.server.context.handles import Handles

        return Handles(kind, type, lambda: self.store, ttl_s)

    # ------------------------------------------------------------ composition

    def add_middleware(self, middleware: Middleware) -> None:
        """Put a function around every request; the first is the outermost.

        `async def timing(request, call_next)`: `await call_next(request)` is the result.
        """
        _check_middleware(middleware)
        self._layers.append(middleware)
        self._dispatch.use(self._layers)

    def middleware(self, function: M, /) -> M:
        """The same as a decorator: `@server.middleware`."""
        self.add_middleware(function)
        return function

    def route(self, path: str, *, methods: Iterable[str] = ("GET",)) -> Callable[[F], F]:
        """Serve plain HTTP beside MCP, where this server is served over HTTP:

        >>> @server.route("/version")
        ... async def version(request: HttpRequest) -> dict[str, str]:
        ...     return {"version": "1.0"}

        Return a text, bytes, `HttpResponse(…)`, what JSON can hold, None for 204, or the response
        of a web framework. `/items/{id}` gives `request.path_params["id"]`. A route is for
        everybody who reaches the server: neither `auth=` nor `verify=` is asked.
        """
        if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"@server.route needs a path, and not {getattr(path, '__name__', repr(path))}: "
                'write @server.route("/version") above the function',
                argument="path",
            )

        def add(function: F) -> F:
            from colonnade.transport.http_server.custom_routes import Route

            made = Route(path, methods, function, self.workers.run)
            for one in self._routes:
                if one.path == made.path and set(one.methods) & set(made.methods):
                    raise InvalidArgument(
                        f"the route {made.path!r} is there already; give it other methods",
                        argument="path",
                    )
            self._routes.append(made)
            return function

        return add

    def _all_routes(self) -> "list[Route]":
        """Our routes, and those of what is mounted here."""
        return [*self._routes, *(route for one in self._mounts for route in one._all_routes())]

    @hinted
    def mount(self, other: "Server", namespace: str | None = None) -> None:
        """Offer all that another server offers, too, now and later.

        Names of tools and prompts get the namespace in front: `maps_route`. Addresses stay.
        """
        if not isinstance(other, Server):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                f"mount takes a Server, and not {type(other).__name__}: write "
                "server.mount(other, namespace='maps')"
            )
        if other is self or self in other.mounted:
            raise InvalidArgument(f"{other!r} cannot be mounted in itself")
        if other._auth is not None and other._auth is not self._auth:
            raise InvalidArgument(
                f"{other!r} has an auth= of its own, which nobody would ask here: give it to "
                f"{self!r}, and scopes to what only some may use"
            )
        late = self._is_served
        lives = any(one._lifespan for one in (other, *other.mounted))
        if late and lives and not other._is_served:
            raise LocalProtocolError(
                f"{other!r} has a lifespan, which nobody would enter any more: {self!r} is served "
                "already; mount it before that"
            )
        from colonnade.server.registry import Mount

        Mount(other._catalogue, self._catalogue, other._layers, namespace)
        if other._keys.private:
            other._keys = self._keys  # to clients it is one server, and so has one ring
        self._mounts.append(other)
        if late:  # as `_enter` does for all that were here then
            other._users += 1
            self._exits.push_async_callback(other.stop)

    @property
    def _is_served(self) -> bool:
        return self._running is not None and not self._running.get_loop().is_closed()

    @property
    def mounted(self) -> list["Server"]:
        """The servers that are mounted here, and those in them."""
        return [*self._mounts, *(inner for one in self._mounts for inner in one.mounted)]

    def enable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Show what was hidden, by name, address or tag."""
        self._switch(names, tags, enabled=True)

    def disable(self, *names: str, tags: Iterable[str] = ()) -> None:
        """Hide tools, resources and prompts, by name, address or tag; clients are told."""
        self._switch(names, tags, enabled=False)

    def _switch(self, names: tuple[str, ...], tags: Iterable[str], *, enabled: bool) -> None:
        wanted = frozenset(tags)
        shelves: list[Shelf[Any]] = [self.tools, self.resources, self.templates, self.prompts]
        for name in names:
            if not any(name in shelf for shelf in shelves):
                raise InvalidArgument(f"nothing here is called {name!r}", argument="name")
        for shelf in shelves:
            chosen = [shelf[name] for name in names if name in shelf]
            chosen += [entry for entry in shelf if entry.tags & wanted]
            shelf.switch(chosen, enabled=enabled)

    @contextlib.contextmanager
    def overrides(
        self, functions: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> Generator[None]:
        """Provide dependencies otherwise for a while, in tests; of what is mounted here, too."""
        servers = (self, *self.mounted)
        tables = [server._surroundings.providers.overrides for server in servers]
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
        """Tell everybody who subscribed that a resource has changed."""
        params = t.ResourceUpdatedNotificationParams(uri=uri)
        self._catalogue.news.announce("notifications/resources/updated", params)

    # ------------------------------------------------------------ what transports serve

    @property
    def accepts(self) -> Revisions:
        """The revisions that are spoken here."""
        return self._accepts

    @property
    def identity(self) -> Identity:
        """Who this is, and what it can do right now."""
        known = self._identity
        if known is None or (known.info, known.instructions) != (self.info, self.instructions):
            known = self._identity = self._identify()
        return known

    def _identify(self) -> Identity:
        kinds = self._kinds()
        logs = self._logging
        if logs is None:
            logs = any(entry.logs for entry in self._catalogue.entries())
        capabilities = t.ServerCapabilities(
            tools=t.ToolsCapability(list_changed=True) if "tools" in kinds else None,
            resources=t.ResourcesCapability(list_changed=True, subscribe=True)
            if "resources" in kinds
            else None,
            prompts=t.PromptsCapability(list_changed=True) if "prompts" in kinds else None,
            completions={} if "completions" in kinds else None,
            logging={} if logs else None,
        )
        return Identity(self.info, capabilities, self.instructions, encoders=self._shapers)

    def _kinds(self) -> frozenset[str]:
        """What there is, and what was announced: a list may be empty, and change (R0975)."""
        catalogue = self._catalogue
        found = {
            "tools": bool(len(catalogue.tools)),
            "resources": bool(len(catalogue.resources) or len(catalogue.templates)),
            "prompts": bool(len(catalogue.prompts)),
            "completions": any(entry.completers for entry in catalogue.entries()),
        }
        return self._declares | {kind for kind, there in found.items() if there}

    def _changed(self) -> None:
        self._identity = None
        if self._running is None or not self._running.done() or not self._accepts.handshakes:
            return
        new = self._kinds() - self._seen
        self._seen |= new
        for kind in sorted(new):
            log.warning(
                "the first of its %s came while it was served; clients of older revisions "
                "that are connected do not see them: Server(declares=[%r]) tells them in time",
                kind,
                kind,
            )

    @property
    def logs(self) -> bool:
        """Whether it says that it sends log messages (R0153)."""
        return self.identity.logs

    def answer(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The bytes of the answer to a request."""
        return self._dispatch.answer(request)

    async def read(self, context: "Context", uri: str) -> "t.ReadResourceResult":
        """One of the server's own resources, for a handler and as its caller."""
        params = t.ReadResourceRequestParams(uri=uri)
        result = await self._dispatch.read_resource(context.current_request, params, context)
        if not isinstance(result, t.ReadResourceResult):
            raise LocalProtocolError(f"{uri} cannot be read from a handler")
        return result

    def told(self, told: NotificationReceived, peer: Peer | None) -> None:
        """A client's notification that belongs to no request.

        None is passed on. That the roots have changed is no news here: `ctx.roots()` asks anew
        each time, nothing is kept of them, and the newest revision has no such notice.
        """
        log.debug("a client says %s", told.method.name)

    def param_headers(self, tool: str) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that clients mirror in headers."""
        entry = self._catalogue.tools.get(tool)
        return entry.headers if entry is not None else ()

    def may_hear(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """Whether credentials with these scopes may hear that a resource has changed."""
        return self._dispatch.may_hear(uri, scopes)

    def watch(self, news: Callable[[str, t.NotificationParams], None]) -> Callable[[], None]:
        """Be told of every change until the returned function is called."""
        return self._catalogue.news.watch(news)

    async def start(self) -> None:
        """Enter the lifespan, once; later calls wait for the first. Each is left by a `stop`."""
        running = self._running
        if running is not None and running.get_loop().is_closed():  # nobody there can stop it
            running, self._users, self._exits = None, 0, contextlib.AsyncExitStack()
        self._users += 1
        try:
            await (asyncio.shield(running) if running is not None else self._enter())
        except BaseException:
            self._users -= 1
            raise

    async def _enter(self) -> None:
        loop = asyncio.get_running_loop()
        running = self._running = loop.create_future()
        try:
            for other in self._mounts:
                await other.start()
                self._exits.push_async_callback(other.stop)
            if self._lifespan is not None:
                self.state = await self._exits.enter_async_context(_entered(self._lifespan, self))
            self._catalogue.news.start(loop)
        except BaseException as error:
            self._running = None
            running.set_exception(error)
            running.exception()  # whoever waits sees it
            await self._leave()
            raise
        self._seen = self._kinds()
        running.set_result(None)

    def drain(self) -> None:
        """What only waits for news ends now, with its result; calls go on."""
        self._dispatch.drain()

    async def stop(self) -> None:
        """Leave the lifespan, if nobody else who started it is still there."""
        self._users = max(self._users - 1, 0)
        if self._users:
            return
        self._running = None
        self._catalogue.news.stop()
        for door in self._doors:
            await door.close()
        try:
            await self._surroundings.close()
        finally:
            await self._leave()
            self.workers.stop()

    async def _leave(self) -> None:
        exits, self._exits = self._exits, contextlib.AsyncExitStack()
        await exits.aclose()

    # ------------------------------------------------------------ transports

    @property
    def debug(self) -> bool:
        """Whether callers are told why something failed."""
        return self._surroundings.crashes.debug

    @debug.setter
    def debug(self, shown: bool) -> None:
        for server in (self, *self.mounted):
            server._surroundings.crashes.debug = shown

    @overload
    def run(self, transport: Literal["stdio"] = "stdio") -> None: ...
    @overload
    def run(self, transport: Http, **options: "Unpack[HttpRunOptions]") -> None: ...
    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the end: on stdio, or `run("http", port=8000)`.

        On HTTP one line on standard output says where, unless `started` is given: it is told
        instead. What is not given is taken from the environment (`COLONNADE_PORT=9000`). On stdio a
        person at a terminal is told what is waited for. Raises what the lifespan raised, and
        `LocalProtocolError` for an address that cannot be served.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise LocalProtocolError(
                f"a loop is already running here: use `await server.serve({transport!r})`"
            )
        if options:
            _check_options("Server.run", transport, options)
        if transport == "stdio":
            from colonnade.transport.stdio import run_stdio

            run_stdio(self, **options)
        elif transport in get_args(Http):
            from colonnade.transport.http_server.runner import run

            settings = _settled(options)
            run(self.asgi(**_taken(settings)), **settings)
        else:
            raise _no_such(transport)

    @overload
    async def serve(self, transport: Literal["stdio"] = "stdio") -> None: ...
    @overload
    async def serve(self, transport: Http, **options: "Unpack[HttpOptions]") -> None: ...
    async def serve(self, transport: str = "stdio", **options: Any) -> None:
        """Serve inside a running loop until the end, and say nothing: `started` is told.

        Cancelled, it leaves nothing behind in the loop.
        """
        if options:
            _check_options("Server.serve", transport, options)
        if transport == "stdio":
            from colonnade.transport.stdio import serve_stdio

            await serve_stdio(self, **options)
        elif transport in get_args(Http):
            from colonnade.transport.http_server.runner import serve

            await serve(self.asgi(**_taken(options)), **options)
        else:
            raise _no_such(transport)

    def asgi(self, **options: "Unpack[AsgiOptions]") -> "HttpApp":
        """An ASGI application that mounts anywhere.

        `server.asgi(path="/mcp", around=app)` serves our paths, and hands the rest to `app`.
        Beside loopback it is reached by the names in `hosts`, and by web pages of `origins`.
        """
        from colonnade.transport.http_server.app import HttpApp

        if options:
            check_options("Server.asgi", "http", options)
        if any(one._surroundings.asks for one in (self, *self.mounted)):
            from colonnade.auth.seal import load_cipher

            load_cipher()  # now, and not while all callers wait for the first who is asked
        if options.get("access_log") and not self._access_logged:
            from colonnade.middleware import log as logged

            self._access_logged = True
            self._layers.insert(0, logged())
            self._dispatch.use(self._layers)
        if self._auth is None:
            return HttpApp(self, routes=self._all_routes, **options)
        if "verify" in options:
            raise InvalidArgument(
                "auth= says who comes in, and verify= too; leave one out", argument="verify"
            )
        door = self._door(self._auth, options.get("path", "/mcp"))
        return HttpApp(self, guard=door, routes=self._all_routes, **options)

    def _door(self, auth: "Protection", path: str) -> "Door":
        from colonnade.server.auth import Door

        title = self.info.title or self.info.name
        needs = self._dispatch.needs
        door = Door(auth, path, title, needs, lambda: self.store, lambda: self._keys)
        self._doors.append(door)
        return door


def _check_middleware(middleware: Any) -> None:
    """Refuse what could not be called with a request and what comes next."""
    words = "write async def timing(request, call_next): return await call_next(request)"
    if isinstance(middleware, type) or not callable(middleware):
        raise InvalidArgumentType(
            f"{middleware!r} is no middleware: {words}", argument="middleware"
        )
    if hasattr(middleware, "on_message") or hasattr(middleware, "on_request"):
        raise InvalidArgumentType(
            f"{type(middleware).__name__} has methods for each kind of request, and here a "
            f"middleware is one function, which asks request.method: {words}",
            argument="middleware",
        )
    try:
        inspect.signature(middleware).bind(None, None)
    except TypeError:
        name = getattr(middleware, "__name__", repr(middleware))
        raise InvalidArgumentType(
            f"{name} does not take two arguments: {words}", argument="middleware"
        ) from None
    except ValueError:  # one that Python cannot look into
        pass


def _limited(per_s: float) -> Middleware:
    """So many completions a second for each caller; what counts them is loaded with the first."""
    made: list[Middleware] = []

    def limited(request: RequestContext, handler: Handler) -> Awaitable[t.ProtocolType]:
        if not made:
            from colonnade.middleware import rate_limit

            made.append(rate_limit(per_s))
        return made[0](request, handler)

    return limited


def _kinds(declares: Iterable[str]) -> frozenset[str]:
    known = get_args(Kind)
    kinds = frozenset([declares] if isinstance(declares, str) else declares)
    strangers = sorted(kinds - frozenset(known))
    if strangers:
        raise InvalidArgument(
            f"declares: {strangers} is nothing to declare; there are {known}", argument="declares"
        )
    return kinds


def _check_lifespan(name: str, lifespan: Callable[..., Any]) -> None:
    """Refuse what would only fail when the server starts."""
    written = inspect.unwrap(lifespan)
    if inspect.isgeneratorfunction(written):
        wrong = "is not async: write it as async def, with @contextlib.asynccontextmanager"
    elif inspect.iscoroutinefunction(written):
        wrong = "does not yield: put @contextlib.asynccontextmanager above it, and one yield in it"
    elif inspect.isasyncgenfunction(lifespan):
        wrong = "is no context manager; put @contextlib.asynccontextmanager above it"
    else:
        return
    called = getattr(written, "__name__", repr(written))
    raise InvalidArgumentType(f"{name}: the lifespan {called} {wrong}", argument="lifespan")


def _entered(
    lifespan: Callable[..., contextlib.AbstractAsyncContextManager[Any]], server: Server
) -> contextlib.AbstractAsyncContextManager[Any]:
    """The lifespan of a server; one that takes nothing is not told whose it is."""
    try:
        takes = bool(signature_of(lifespan).parameters)
    except (TypeError, ValueError):
        takes = True
    return lifespan(server) if takes else lifespan()


def _settled(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a process of our own: those that are given, and those of the environment."""
    from colonnade.transport.http_server.settings import prepare_log, read_limits, with_environment

    found = with_environment(options)
    as_json, level = found.pop("log_json", False), found.pop("log_level", None)
    from colonnade.logs import log_json

    access = bool(found.get("access_log"))
    prepare_log(level, access_log=access, json=partial(log_json, None) if as_json else None)
    words = found.pop("limit", ())
    if words:
        limits, run_limits = read_limits(words)
        found.setdefault("limits", limits)
        found.setdefault("run_limits", run_limits)
    return found


def _taken(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the application, taken out of those of whoever runs it."""
    from colonnade.server.options import AppOptions

    return {name: options.pop(name) for name in AppOptions.__optional_keys__ if name in options}


def _check_options(called: str, transport: str, options: dict[str, Any]) -> None:
    if transport not in ("stdio", *get_args(Http)):
        raise _no_such(transport)  # rather than a word about its keywords
    check_options(called, transport, options)


def _no_such(transport: str) -> LocalProtocolError:
    return InvalidArgument(
        f"no transport {transport!r}; there are 'stdio' and 'http'", argument="transport"
    )
