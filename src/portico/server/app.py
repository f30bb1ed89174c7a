"""A server as its author sees it: decorators in, transports out.

Rules: a decorated function stays a plain function. Capabilities are computed from what is
registered; they cannot lie. Heavy libraries load when a transport needs them.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar, overload

from portico.auth.seal import KeyRing
from portico.errors import Fault, FaultKind, LocalProtocolError
from portico.ports import Middleware, Turn
from portico.protocol import types as t
from portico.protocol.events import Told
from portico.protocol.httprules_params import ParamHeader, param_headers
from portico.protocol.identity import Identity
from portico.protocol.negotiation import Peer
from portico.protocol.revision import EVERY, Revisions
from portico.protocol.shape_schema import is_object_schema
from portico.protocol.uritemplate import Template
from portico.server.binding import Bound, BoundTool, Surroundings
from portico.server.catalogue import (
    Catalogue,
    PromptEntry,
    ResourceEntry,
    Shelf,
    TemplateEntry,
    ToolEntry,
)
from portico.server.context import Context
from portico.server.dispatch import Dispatch
from portico.server.returning import prompter, reader

log = logging.getLogger("portico.server")

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["Server"], contextlib.AbstractAsyncContextManager[Any]]


class Server:
    """Tools, resources and prompts for clients of every revision.

    >>> server = Server("weather", version="1.0")
    >>> @server.tool
    ... def add(a: int, b: int) -> int:
    ...     return a + b
    >>> server.run()  # stdio; server.run("http", port=8000) for HTTP
    """

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
        revisions: Iterable[str] | None = None,
        keys: Iterable[bytes] = (),
        debug: bool = False,
    ) -> None:
        self.info = t.Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.instructions = instructions
        self._accepts = Revisions.of(*revisions) if revisions is not None else EVERY
        self._catalogue = Catalogue()
        self._completers: dict[tuple[str, str], Callable[..., Any]] = {}
        self._layers: list[Middleware] = []
        self._keys = KeyRing(list(keys))
        self._debug = debug
        self._lifespan = lifespan
        self._running: asyncio.Future[None] | None = None
        self._exits = contextlib.AsyncExitStack()
        self._surroundings = Surroundings(self._interviewed, debug=debug)
        self._dispatch = self._make_dispatch()
        self.state: Any = None

    def _make_dispatch(self) -> Dispatch:
        dispatch = Dispatch(
            self._catalogue,
            lambda: self.identity,
            self._accepts,
            self._keys,
            self._layers,
            debug=self._debug,
        )
        dispatch.complete = self._complete
        return dispatch

    def _interviewed(
        self,
        turn: Turn,
        params: t.InputResponseRequestParams,
        run: Callable[[Context], Awaitable[Any]],
    ) -> Awaitable[Any]:
        return self._dispatch.interviewed(turn, params, run)

    # ------------------------------------------------------------ what is offered

    @property
    def tools(self) -> Shelf[ToolEntry]:
        """The tools by name."""
        return self._catalogue.tools

    @property
    def resources(self) -> Shelf[ResourceEntry]:
        """The resources by address."""
        return self._catalogue.resources

    @property
    def templates(self) -> Shelf[TemplateEntry]:
        """The templates by their text."""
        return self._catalogue.templates

    @property
    def prompts(self) -> Shelf[PromptEntry]:
        """The prompts by name."""
        return self._catalogue.prompts

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[t.Icon] | None = None,
        tags: Iterable[str] = (),
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        scopes: Iterable[str] = (),
        timeout_s: float | None = None,
        inline: bool = False,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        structured_only: bool = False,
        meta: dict[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a tool: bare, or with keywords."""
        if function is not None:
            self._add_tool(function, {})
            return function

        def decorate(function: F) -> F:
            self._add_tool(function, options)
            return function

        return decorate

    def _add_tool(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        name = options.get("name") or getattr(function, "__name__", None)
        if not name:
            raise LocalProtocolError("this callable has no name; pass name='...'")
        bound = BoundTool(
            function,
            name,
            self._surroundings,
            inline=options.get("inline", False),
            timeout_s=options.get("timeout_s"),
            text=not options.get("structured_only", False),
        )
        output = options.get("output_schema")
        if output is None and bound.output is not None:
            output = bound.output.schema
        hints = t.ToolAnnotations(
            read_only_hint=options.get("read_only"),
            destructive_hint=options.get("destructive"),
            idempotent_hint=options.get("idempotent"),
            open_world_hint=options.get("open_world"),
        )
        noun = t.Tool(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.summary or None,
            input_schema=options.get("input_schema") or bound.signature.schema,
            output_schema=output,
            annotations=hints if hints != t.ToolAnnotations() else None,
            icons=options.get("icons"),
            meta=options.get("meta"),
        )
        entry = ToolEntry(
            noun=noun,
            run=bound.run,
            headers=param_headers(noun.input_schema),
            wraps=None if output is None else not is_object_schema(output),
            tags=frozenset(options.get("tags", ())),
            scopes=frozenset(options.get("scopes", ())),
        )
        self._catalogue.tools.add(name, entry)

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[t.Icon] | None = None,
        annotations: t.Annotations | None = None,
        tags: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """Offer a function as a resource, or as many where the address is a template."""

        def decorate(function: F) -> F:
            bound = Bound(function, name or getattr(function, "__name__", uri))
            said: dict[str, Any] = {
                "name": name or getattr(function, "__name__", uri),
                "title": title,
                "description": description or bound.signature.docs.summary or None,
                "mime_type": mime_type,
                "icons": icons,
                "annotations": annotations,
                "meta": meta,
            }
            run = reader(bound, mime_type, self._surroundings)
            labels = frozenset(tags)
            if "{" in uri:
                template = t.ResourceTemplate(uri_template=uri, **said)
                entry = TemplateEntry(noun=template, template=Template(uri), run=run, tags=labels)
                self._catalogue.templates.add(uri, entry)
            else:
                resource = t.Resource(uri=uri, size=size, **said)
                self._catalogue.resources.add(
                    uri, ResourceEntry(noun=resource, run=run, tags=labels)
                )
            return function

        return decorate

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[t.Icon] | None = None,
        tags: Iterable[str] = (),
        meta: dict[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Offer a function as a prompt: bare, or with keywords."""
        if function is not None:
            self._add_prompt(function, {})
            return function

        def decorate(function: F) -> F:
            self._add_prompt(function, options)
            return function

        return decorate

    def _add_prompt(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        name = options.get("name") or getattr(function, "__name__", "prompt")
        bound = Bound(function, name)
        arguments = [
            t.PromptArgument(
                name=parameter.wire,
                description=parameter.schema.get("description"),
                required=parameter.required,
            )
            for parameter in bound.signature.parameters
        ]
        noun = t.Prompt(
            name=name,
            title=options.get("title"),
            description=options.get("description") or bound.signature.docs.summary or None,
            arguments=arguments or None,
            icons=options.get("icons"),
            meta=options.get("meta"),
        )
        run = prompter(bound, noun, self._surroundings)
        tags = frozenset(options.get("tags", ()))
        self._catalogue.prompts.add(name, PromptEntry(noun=noun, run=run, tags=tags))

    def completion(self, of: Any, argument: str) -> Callable[[F], F]:
        """Complete one argument of a prompt (the function or its name) or of a template."""
        subject = of if isinstance(of, str) else getattr(of, "__name__", str(of))

        def decorate(function: F) -> F:
            self._completers[subject, argument] = function
            return function

        return decorate

    async def _complete(self, turn: Turn, params: t.CompleteRequestParams) -> t.Noun:
        ref = params.ref
        if isinstance(ref, t.PromptReference):
            if self._catalogue.prompts.get(ref.name) is None:
                raise Fault(FaultKind.INVALID_PARAMS, f"there is no prompt {ref.name[:80]!r}")
            subjects = [ref.name]
        else:
            entry = self._catalogue.templates.get(ref.uri)
            subjects = [ref.uri] + ([entry.noun.name] if entry is not None else [])
        for subject in subjects:
            completer = self._completers.get((subject, params.argument.name))
            if completer is not None:
                made = completer(params.argument.value)
                found = list(await made if inspect.isawaitable(made) else made)
                return t.CompleteResult(
                    completion=t.Completion(
                        values=found[: t.MAX_COMPLETIONS],
                        total=len(found),
                        has_more=len(found) > t.MAX_COMPLETIONS,
                    )
                )
        return t.CompleteResult(completion=t.Completion(values=[]))

    def use(self, layer: Middleware) -> Middleware:
        """Put a layer around every handler; the first is the outermost."""
        self._layers.append(layer)
        self._dispatch = self._make_dispatch()
        return layer

    @contextlib.contextmanager
    def overrides(
        self, functions: Mapping[Callable[..., Any], Callable[..., Any]]
    ) -> Generator[None]:
        """Provide dependencies otherwise for a while, in tests."""
        before = dict(self._surroundings.overrides)
        self._surroundings.overrides.update(functions)
        try:
            yield
        finally:
            self._surroundings.overrides.clear()
            self._surroundings.overrides.update(before)

    def updated(self, uri: str) -> None:
        """Tell everybody who subscribed that a resource has changed."""
        params = t.ResourceUpdatedNotificationParams(uri=uri)
        self._catalogue.announce("notifications/resources/updated", params)

    # ------------------------------------------------------------ what transports serve

    @property
    def accepts(self) -> Revisions:
        """The revisions that are spoken here."""
        return self._accepts

    @property
    def identity(self) -> Identity:
        """Who this is, and what it can do right now."""
        catalogue = self._catalogue
        resources = bool(len(catalogue.resources) or len(catalogue.templates))
        completes = bool(self._completers) or bool(len(catalogue.prompts))
        capabilities = t.ServerCapabilities(
            tools=t.ToolsCapability(list_changed=True) if len(catalogue.tools) else None,
            resources=t.ResourcesCapability(list_changed=True, subscribe=True)
            if resources
            else None,
            prompts=t.PromptsCapability(list_changed=True) if len(catalogue.prompts) else None,
            completions={} if completes else None,
            logging={},
        )
        return Identity(self.info, capabilities, self.instructions)

    async def answer(self, turn: Turn) -> bytes | None:
        """The bytes of the answer to a request."""
        return await self._dispatch.answer(turn)

    def told(self, told: Told, peer: Peer | None) -> None:
        """A client's notification that belongs to no request."""

    def param_headers(self, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that clients mirror in headers."""
        entry = self._catalogue.tools.get(tool)
        return entry.headers if entry is not None else ()

    def watch(self, news: Callable[[str, t.NotificationParams], None]) -> Callable[[], None]:
        """Be told of every change until the returned function is called."""
        return self._catalogue.watch(news)

    async def start(self) -> None:
        """Enter the lifespan, once."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_future()
            if self._lifespan is not None:
                self.state = await self._exits.enter_async_context(self._lifespan(self))
            self._running.set_result(None)
        await self._running

    async def stop(self) -> None:
        """Leave the lifespan."""
        self._running = None
        await self._surroundings.shared.close()
        exits, self._exits = self._exits, contextlib.AsyncExitStack()
        await exits.aclose()

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncGenerator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.stop()

    # ------------------------------------------------------------ transports

    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the end: on stdio, or `run("http", port=8000)`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise LocalProtocolError(
                f"a loop is already running here: use `await server.serve({transport!r})`"
            )
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(self.serve(transport, **options))

    async def serve(self, transport: str = "stdio", **options: Any) -> None:
        """Serve inside a running loop until the end."""
        if transport == "stdio":
            from portico.transport.stdio import serve_stdio

            async with self._started():
                await serve_stdio(self, **options)
        elif transport == "http":
            from portico.transport.http_run import serve

            await serve(self.asgi(), **options)
        else:
            raise LocalProtocolError(f"no transport {transport!r}; there are 'stdio' and 'http'")

    def asgi(self, **options: Any) -> Any:
        """An ASGI application that mounts anywhere."""
        from portico.transport.http_server import HttpApp

        return HttpApp(self, **options)
