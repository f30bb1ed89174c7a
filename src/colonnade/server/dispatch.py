"""Request dispatch: from a method to its handler and middleware, and the one place where an
exception becomes a JSON-RPC error.

Rules: independent of transports. A handler gets a `RequestContext` and returns a protocol type, or
raises.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    Refused,
    ToolError,
    without_frames,
)
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.jsonrpc import Request, is_bare_call, refuse_duplicate_members
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import OutputRoot, Revisions
from colonnade.protocol.schema.error_messages import suggestion, truncate
from colonnade.protocol.types import CallToolRequestParams, CallToolResult
from colonnade.server.handlers.function import ErrorReporter
from colonnade.server.handlers.tools import error_result
from colonnade.server.registry import (
    PAGE_SIZE,
    Entry,
    Page,
    Registry,
    ServerRegistry,
    check_scopes,
    granted_scopes,
)

if TYPE_CHECKING:
    from colonnade.server.context.context import Context
    from colonnade.server.extensions import ExtensionEntry
    from colonnade.server.notifications import Listener
    from colonnade.server.tasks.service import ServerTasks

# Pages of lists whose results are cached.
MAX_LISTS = 64
# Memory for the filters of all open `subscriptions/listen`, and of those of one principal: 20,000
# filters of the usual 300 bytes need a tenth of it.
LISTEN_BYTES = 64 * 1024 * 1024
LISTEN_BYTES_PER_PRINCIPAL = 16 * 1024 * 1024

_ANY_ROOT = OutputRoot.ANY

E = TypeVar("E", bound=Entry)


class ListOptions(Struct, frozen=True, kw_only=True):
    """Page size and cache hints of lists."""

    page_size: int = PAGE_SIZE
    # By kind; no entry is no hint.
    ttl_ms: Mapping[str, int] = MappingProxyType({})
    cache_scope: "t.CacheScope | None" = None


class Dispatch:
    """The handlers of a server, by method."""

    def __init__(
        self,
        registry: ServerRegistry,
        identity: Callable[[], Identity],
        accepts: Revisions,
        error_reporter: ErrorReporter,
        listing: ListOptions,
        guards: Mapping[str, Middleware] | None = None,
    ) -> None:
        self._registry = registry
        self._identity = identity
        self._accepts = accepts
        self._error_reporter = error_reporter
        self._listing = listing
        self._listeners: set[Listener] = set()
        self._listen_bytes = ByteBudget(LISTEN_BYTES, LISTEN_BYTES_PER_PRINCIPAL)
        self._lists: dict[tuple[object, ...], tuple[Sequence[t.ProtocolType], t.ProtocolType]] = {}
        self._base_handlers: dict[str, Handler] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }
        for name, guard in (guards or {}).items():
            self._base_handlers[name] = stack(self._base_handlers[name], [guard])
        self._handlers = self._base_handlers
        self._extension_entries: dict[str, ExtensionEntry] = {}
        self._tasks: ServerTasks | None = None
        # Whether the function of an extension can send log messages.
        self.extensions_log: bool = False

    def set_middleware(self, middleware: Sequence[Middleware]) -> None:
        """Wrap every handler in these middleware, the first outermost."""
        self._handlers = {
            name: stack(handler, middleware) for name, handler in self._base_handlers.items()
        }

    def add_extension_method(
        self, name: str, entry: "ExtensionEntry", middleware: Sequence[Middleware]
    ) -> None:
        """Add the handler of a method of an extension."""

        def handle(request: RequestContext) -> Awaitable[t.ProtocolType]:
            check_scopes(entry, request)
            return entry.run(request)

        self._extension_entries[name] = entry
        self.extensions_log |= entry.logs
        self._base_handlers[name] = handle
        self.set_middleware(middleware)

    def set_tasks(self, tasks: "ServerTasks", middleware: Sequence[Middleware]) -> None:
        """Let tools run as tasks, and clients listen to them."""
        self._tasks = tasks
        self._base_handlers["tools/call"] = stack(
            self._base_handlers["tools/call"], [tasks.check_call]
        )
        self.set_middleware(middleware)

    # ------------------------------------------------------------ responses

    async def answer(self, request: RequestContext) -> bytes | None:
        """The encoded response, a result or an error."""
        exchange = request.exchange
        try:
            handler = self._handlers.get(exchange.method.name)
            if handler is None:
                raise Fault(
                    FaultKind.METHOD_NOT_FOUND, f"this server has no {exchange.method.name}"
                )
            try:
                result = await handler(request)
            except (
                ToolError,
                Refused,
            ) as error:  # raised by middleware, with a message for the caller
                if exchange.method.params is not CallToolRequestParams:
                    raise Fault(FaultKind.INTERNAL, str(error)) from error
                result = error_result(str(error))
            if exchange.peer.revision.output_root is _ANY_ROOT:
                return exchange.settle(result)  # structured content may be any value there
            return exchange.settle(result, self._wraps(request, result))
        except Fault as fault:
            request.fault = without_frames(fault)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The request was not cancelled: the handler raised it, or awaited a cancelled task.
            request.fault = self._internal_error(request, error)
        except (ConnectionLost, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit of a handler ends only its own request
            request.fault = self._internal_error(request, error)
        try:
            return exchange.fail(request.fault)
        except LocalProtocolError as error:  # the error's data cannot be encoded as JSON
            request.fault = self._internal_error(request, error)
            return exchange.fail(request.fault)

    def _wraps(self, request: RequestContext, result: t.ProtocolType) -> bool | None:
        if (
            not isinstance(result, CallToolResult)
            or request.exchange.method.params is not CallToolRequestParams
        ):
            return None  # that of `tasks/result` is what it is already
        entry = self._registry.tools.get(str(request.exchange.params.name))
        return entry.wraps if entry is not None else None

    def _internal_error(self, request: RequestContext, error: BaseException) -> Fault:
        message = self._error_reporter.report(request.exchange.method.name, error, request)
        return Fault(FaultKind.INTERNAL, message)

    # ------------------------------------------------------------ lists

    async def _discover(self, request: RequestContext) -> t.ProtocolType:
        return self._identity().for_callers(request.callers).discover_result(self._accepts)

    def _page(self, request: RequestContext, registry: Registry[E]) -> Page[E]:
        """A page of the entries that this caller may use; one with scopes is not public (R1029)."""
        cursor = decode_as(t.PaginatedRequestParams, request.exchange.request.params).cursor
        granted = granted_scopes(request)
        shared = self._listing.cache_scope == "public" and not any(one.scopes for one in registry)

        def visible(entry: E) -> bool:
            return entry.enabled and (granted is None or entry.scopes <= granted)

        return registry.page(cursor, self._listing.page_size, visible, shared=shared)

    def _cache_scope(self, page: Page[E]) -> "t.CacheScope | None":
        scope = self._listing.cache_scope
        return "private" if scope == "public" and not page.shared else scope

    def _list_result(
        self,
        page: Page[E],
        definitions: Sequence[t.ProtocolType],
        result_type: Callable[..., t.ProtocolType],
        kind: str,
    ) -> t.ProtocolType:
        """The result of a page: the same object as long as its entries have not changed."""
        scope = self._cache_scope(page)
        key = (kind, page.cursor, scope, len(definitions))
        known = self._lists.get(key)
        if known is None or not all(map(is_, known[0], definitions)):
            if len(self._lists) >= MAX_LISTS:
                self._lists.clear()
            ttl_ms = self._listing.ttl_ms.get(kind)
            result = result_type(
                next_cursor=page.cursor, ttl_ms=ttl_ms, cache_scope=scope, **{kind: definitions}
            )
            known = self._lists[key] = (definitions, result)
        return known[1]

    async def _list_tools(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._registry.tools)
        definitions = [entry.definition for entry in page.entries]
        return self._list_result(page, definitions, t.ListToolsResult, "tools")

    async def _list_resources(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._registry.resources)
        definitions = [entry.definition for entry in page.entries]
        return self._list_result(page, definitions, t.ListResourcesResult, "resources")

    async def _list_templates(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._registry.templates)
        definitions = [entry.definition for entry in page.entries]
        return self._list_result(
            page, definitions, t.ListResourceTemplatesResult, "resource_templates"
        )

    async def _list_prompts(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._registry.prompts)
        definitions = [entry.definition for entry in page.entries]
        return self._list_result(page, definitions, t.ListPromptsResult, "prompts")

    # ------------------------------------------------------------ calls

    def _call_tool(self, context: RequestContext) -> Awaitable[t.ProtocolType]:
        # Not a coroutine itself, since this is the hot path; it may raise before it is awaited.
        exchange = context.exchange
        call_params, request = exchange.params, exchange.request
        if is_bare_call(request, call_params):  # nearly all: name and arguments are decoded already
            params = CallToolRequestParams(name=call_params.name, arguments=call_params.arguments)
        else:
            params = decode_as(CallToolRequestParams, request.params)
        entry = self._registry.tools.get(params.name)
        if entry is None or entry.scopes:
            refuse_duplicate_members(params.arguments)
            entry = self._find(self._registry.tools, params.name, "tool", context)
        return entry.run(context, params)

    async def _get_prompt(self, request: RequestContext) -> t.ProtocolType:
        params = decode_as(t.GetPromptRequestParams, request.exchange.request.params)
        entry = self._find(self._registry.prompts, params.name, "prompt", request)
        return await entry.run(request, params)

    def _find(self, registry: Registry[E], name: str, kind: str, request: RequestContext) -> E:
        entry = registry.get(name)
        if entry is None:  # D16: unknown is a protocol error in every revision
            hint = (
                suggestion(name, _visible_names(registry, request))
                or f"; list the {kind}s to see their names"
            )
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no {kind} {truncate(name)!r}{hint}")
        if entry.scopes:
            check_scopes(entry, request)
        return entry

    async def _read_resource(self, request: RequestContext) -> t.ProtocolType:
        params = decode_as(t.ReadResourceRequestParams, request.exchange.request.params)
        return await self.read_resource(request, params)

    async def read_resource(
        self,
        request: RequestContext,
        params: "t.ReadResourceRequestParams",
        context: "Context | None" = None,
    ) -> t.ProtocolType:
        """Read a resource for this caller."""
        found = self._registry.find_resource(params.uri)
        if found is None:
            from colonnade.server.handlers.resources import resource_not_found

            raise resource_not_found(params.uri)
        entry, values = found
        check_scopes(entry, request)
        result = await entry.run(request, params, values, context)
        if entry.scopes and isinstance(result, t.ReadResourceResult) and result.cache_scope:
            return replace(result, cache_scope="private")  # R1029: it depends on scopes
        return result

    async def _complete(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.server.handlers.completion import (
            completion,
        )  # on use: few servers have completions

        params = decode_as(t.CompleteRequestParams, request.exchange.request.params)
        ref, argument = params.ref, params.argument
        if isinstance(ref, t.PromptReference):
            entry: Entry = self._find(self._registry.prompts, ref.name, "prompt", request)
            known = {
                one.name for one in self._registry.prompts[ref.name].definition.arguments or ()
            }
        else:
            template = self._registry.templates.get(ref.uri)
            if template is None:
                found = self._registry.find_resource(ref.uri)
                if found is None:
                    hint = suggestion(ref.uri, _visible_names(self._registry.templates, request))
                    message = f"there is no template {truncate(ref.uri)!r}"
                    raise Fault(
                        FaultKind.INVALID_PARAMS,
                        message + (hint or "; list the resource templates"),
                    )
                check_scopes(found[0], request)
                return completion([])  # a URI without variables has nothing to complete
            check_scopes(template, request)
            entry, known = template, set(template.template.variables)
        if argument.name not in known:
            message = (
                f"{ref.name if isinstance(ref, t.PromptReference) else ref.uri} has no argument "
                f"{truncate(argument.name)!r}; there are {sorted(known)}"
            )
            raise Fault(FaultKind.INVALID_PARAMS, message)
        completer = entry.completers.get(argument.name)
        if completer is None:
            return completion([])
        others = (params.context.arguments if params.context is not None else None) or {}
        return completion(await completer(request, argument.value, others))

    # ------------------------------------------------------------ scopes

    def required_scopes(self, request: Request) -> frozenset[str]:
        """The scopes that a request needs, checked before it is handled. Unknown names and
        malformed params need none: their handlers refuse them."""
        method, params = request.method, request.params
        entry: Entry | None = None
        match = None
        try:
            if method == "tools/call":
                entry = self._registry.tools.get(decode_as(CallToolRequestParams, params).name)
            elif method == "prompts/get":
                entry = self._registry.prompts.get(decode_as(t.GetPromptRequestParams, params).name)
            elif method == "resources/read":
                uri = decode_as(t.ReadResourceRequestParams, params).uri
                match = self._registry.find_resource(uri)
            elif method == "resources/subscribe":
                uri = decode_as(t.SubscribeRequestParams, params).uri
                match = self._registry.find_resource(uri)
            else:
                entry = self._extension_entries.get(method)
        except Fault:
            return frozenset()
        entry = match[0] if match is not None else entry
        return entry.scopes if entry is not None else frozenset()

    # ------------------------------------------------------------ subscriptions

    async def _subscribe(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.protocol.subscriptions import MAX_SUBSCRIPTIONS, MAX_URI_CHARACTERS

        uri = decode_as(t.SubscribeRequestParams, request.exchange.request.params).uri
        session = request.session
        if session is None:
            message = "a subscription needs a session, and this server is stateless; read it again"
            raise Fault(FaultKind.INVALID_REQUEST, message)
        found = self._registry.find_resource(uri)
        watched = [*([found[0]] if found is not None else []), *self._entries_below(uri)]
        if not watched:
            from colonnade.server.handlers.resources import resource_not_found

            raise resource_not_found(uri)
        for entry in watched:  # updates of everything below the URI are sent
            check_scopes(entry, request)
        if len(uri) > MAX_URI_CHARACTERS:
            message = f"cannot subscribe to a URI of more than {MAX_URI_CHARACTERS} characters"
            raise Fault(FaultKind.INVALID_PARAMS, message)
        if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
            message = f"more than {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from some"
            raise Fault(FaultKind.INVALID_PARAMS, message)
        session.subscriptions.add(uri)
        return t.EmptyResult()

    def _entries_below(self, uri: str) -> list[Entry]:
        """The entries below a URI, which need not be a resource itself."""
        start = uri.rstrip("/") + "/"
        fixed = [one for one in self._registry.resources if one.definition.uri.startswith(start)]
        templates = self._registry.templates
        return [
            *fixed,
            *(one for one in templates if one.definition.uri_template.startswith(start)),
        ]

    async def _unsubscribe(self, request: RequestContext) -> t.ProtocolType:
        uri = decode_as(t.UnsubscribeRequestParams, request.exchange.request.params).uri
        if request.session is not None:
            request.session.subscriptions.discard(uri)
        return t.EmptyResult()

    async def _listen(self, request: RequestContext) -> t.ProtocolType:
        capabilities = self._identity().capabilities
        assert isinstance(capabilities, t.ServerCapabilities)
        resources = capabilities.resources
        pushed = t.SubscriptionFilter(
            tools_list_changed=capabilities.tools is not None or None,
            prompts_list_changed=capabilities.prompts is not None or None,
            resources_list_changed=resources is not None or None,
            resource_subscriptions=[] if resources is not None else None,
            task_ids=[] if self._tasks is not None else None,
        )
        granted = granted_scopes(request)

        def allowed(uri: str) -> bool:
            return self.may_subscribe(uri, granted)

        from colonnade.protocol.subscriptions import Subscription
        from colonnade.server.notifications import Listener

        subscription = Subscription(request.exchange, pushed, None if granted is None else allowed)
        tasks, close_feed = self._tasks, None
        if tasks is not None and subscription.agreed.task_ids:
            visible = await tasks.methods.visible(request, subscription.agreed.task_ids)
            subscription.keep_tasks(visible)
        principal, size = request.exchange.principal, subscription.held_bytes
        if not self._listen_bytes.reserve(principal, size):
            raise too_many_subscriptions()
        listener = Listener(subscription, request)
        self._listeners.add(listener)
        if tasks is not None and subscription.agreed.task_ids:
            task_ids = subscription.agreed.task_ids
            close_feed = tasks.open_feed(request, task_ids, listener.on_change)
        try:
            return await listener.run(self._registry.changes)
        finally:
            if close_feed is not None:
                close_feed()
            self._listeners.discard(listener)
            self._listen_bytes.release(principal, size)

    def may_subscribe(self, uri: str, granted: frozenset[str] | None) -> bool:
        """Whether a caller with these scopes may get updates of a resource, as it may read it."""
        if granted is None:
            return True
        found = self._registry.find_resource(uri)
        return found is None or found[0].scopes <= granted

    def drain(self) -> None:
        """End open subscriptions."""
        for listener in self._listeners:
            listener.end("the server is shutting down; listen again")


def too_many_subscriptions() -> Fault:
    """The refusal of a `subscriptions/listen` that memory is not enough for."""
    from colonnade.protocol.http.security import UNAVAILABLE, HttpError

    message = "too many open subscriptions; end one, or try again later"
    retry = (("Retry-After", "60"),)
    return HttpError(UNAVAILABLE, message, kind=FaultKind.INTERNAL, headers=retry)


def _visible_names(registry: Registry[E], request: RequestContext) -> list[str]:
    """The names that this caller may see."""
    granted = granted_scopes(request)
    if granted is None:
        return registry.shown
    return [name for name in registry.shown if registry[name].scopes <= granted]
