"""From a request to its answer: the method's handler, its layers, and the one place where an
exception becomes an error on the wire.

Rules: nothing here knows a transport. A handler gets a turn and returns a noun, or raises.
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
from colonnade.server.handlers.function import Crashes
from colonnade.server.handlers.tools import failed
from colonnade.server.registry import PAGE_SIZE, Catalogue, Entry, Page, Shelf

if TYPE_CHECKING:
    from colonnade.server.context.context import Context
    from colonnade.server.notifications import Listener

# Pages of lists that are kept while they are asked for again.
MAX_LISTS = 64
# What all open `subscriptions/listen` together, and those of one principal, may keep of what they
# listen to: 20,000 of some 300 bytes, as most are, need a tenth of it.
LISTEN_BYTES = 64 * 1024 * 1024
LISTEN_BYTES_PER_PRINCIPAL = 16 * 1024 * 1024

_ANY_ROOT = OutputRoot.ANY

E = TypeVar("E", bound=Entry)


class ListOptions(Struct, frozen=True, kw_only=True):
    """How lists are given out: in which pages, and how long, for whom, they keep."""

    page_size: int = PAGE_SIZE
    # By kind; of one that is not there it is left to the client.
    ttl_ms: Mapping[str, int] = MappingProxyType({})
    cache_scope: "t.CacheScope | None" = None


class Dispatch:
    """The handlers of a server, by method."""

    def __init__(
        self,
        catalogue: Catalogue,
        identity: Callable[[], Identity],
        accepts: Revisions,
        crashes: Crashes,
        listing: ListOptions,
        guards: Mapping[str, Middleware] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._identity = identity
        self._accepts = accepts
        self._crashes = crashes
        self._listing = listing
        self._listeners: set[Listener] = set()
        self._listen_bytes = ByteBudget(LISTEN_BYTES, LISTEN_BYTES_PER_PRINCIPAL)
        self._lists: dict[tuple[object, ...], tuple[Sequence[t.ProtocolType], t.ProtocolType]] = {}
        self._rows: dict[str, Handler] = {
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
            self._rows[name] = stack(self._rows[name], [guard])
        self._handlers = self._rows

    def use(self, layers: Sequence[Middleware]) -> None:
        """Put these layers around every handler, the first outermost."""
        self._handlers = {name: stack(handler, layers) for name, handler in self._rows.items()}

    # ------------------------------------------------------------ the one way out

    async def answer(self, request: RequestContext) -> bytes | None:
        """The bytes of the answer, errors included."""
        exchange = request.exchange
        try:
            handler = self._handlers.get(exchange.method.name)
            if handler is None:
                raise Fault(FaultKind.METHOD_NOT_FOUND, f"there is no {exchange.method.name} here")
            try:
                result = await handler(request)
            except (ToolError, Refused) as error:  # of middleware, in words for the caller
                if exchange.method.params is not CallToolRequestParams:
                    raise Fault(FaultKind.INTERNAL, str(error)) from error
                result = failed(str(error))
            if exchange.peer.revision.output_root is _ANY_ROOT:
                return exchange.settle(result)  # a value is sent as it is there
            return exchange.settle(result, self._wraps(request, result))
        except Fault as fault:
            request.fault = fault
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            request.fault = self._crashed(request, error)  # nobody gave this up: it gave up itself
        except (ConnectionLost, GeneratorExit):
            raise
        except BaseException as error:  # a handler's own SystemExit, or worse, ends its call alone
            request.fault = self._crashed(request, error)
        try:
            return exchange.fail(request.fault)
        except LocalProtocolError as error:  # its data is nothing that JSON can hold
            request.fault = self._crashed(request, error)
            return exchange.fail(request.fault)

    def _wraps(self, request: RequestContext, result: t.ProtocolType) -> bool | None:
        if not isinstance(result, CallToolResult):
            return None
        entry = self._catalogue.tools.get(str(request.exchange.params.name))
        return entry.wraps if entry is not None else None

    def _crashed(self, request: RequestContext, error: BaseException) -> Fault:
        words = self._crashes.words(request.exchange.method.name, error, request)
        return Fault(FaultKind.INTERNAL, words)

    # ------------------------------------------------------------ lists

    async def _discover(self, request: RequestContext) -> t.ProtocolType:
        return self._identity().discover_result(self._accepts)

    def _page(self, request: RequestContext, shelf: Shelf[E]) -> Page[E]:
        """What this caller may use; a list that is not the same for all is not public (R1029)."""
        cursor = decode_as(t.PaginatedRequestParams, request.exchange.request.params).cursor
        granted = _granted(request)
        shared = self._listing.cache_scope == "public" and not any(entry.scopes for entry in shelf)

        def visible(entry: E) -> bool:
            return entry.enabled and (granted is None or entry.scopes <= granted)

        return shelf.page(cursor, self._listing.page_size, visible, shared=shared)

    def _scope(self, page: Page[E]) -> "t.CacheScope | None":
        scope = self._listing.cache_scope
        return "private" if scope == "public" and not page.shared else scope

    def _listed(
        self,
        page: Page[E],
        nouns: Sequence[t.ProtocolType],
        made: Callable[..., t.ProtocolType],
        of: str,
    ) -> t.ProtocolType:
        """A page as a result: the very same one as long as nothing in it has changed."""
        scope = self._scope(page)
        key = (of, page.cursor, scope, len(nouns))
        known = self._lists.get(key)
        if known is None or not all(map(is_, known[0], nouns)):
            if len(self._lists) >= MAX_LISTS:
                self._lists.clear()
            ttl_ms = self._listing.ttl_ms.get(of)
            noun = made(next_cursor=page.cursor, ttl_ms=ttl_ms, cache_scope=scope, **{of: nouns})
            known = self._lists[key] = (nouns, noun)
        return known[1]

    async def _list_tools(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._catalogue.tools)
        nouns = [entry.noun for entry in page.entries]
        return self._listed(page, nouns, t.ListToolsResult, "tools")

    async def _list_resources(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._catalogue.resources)
        nouns = [entry.noun for entry in page.entries]
        return self._listed(page, nouns, t.ListResourcesResult, "resources")

    async def _list_templates(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._catalogue.templates)
        nouns = [entry.noun for entry in page.entries]
        return self._listed(page, nouns, t.ListResourceTemplatesResult, "resource_templates")

    async def _list_prompts(self, request: RequestContext) -> t.ProtocolType:
        page = self._page(request, self._catalogue.prompts)
        nouns = [entry.noun for entry in page.entries]
        return self._listed(page, nouns, t.ListPromptsResult, "prompts")

    # ------------------------------------------------------------ calls

    def _call_tool(self, context: RequestContext) -> Awaitable[t.ProtocolType]:
        # No coroutine of its own: this is the hot path, and what it raises is raised in time.
        exchange = context.exchange
        head, request = exchange.params, exchange.request
        if is_bare_call(request, head):  # as nearly all are: they were split already
            params = CallToolRequestParams(name=head.name, arguments=head.arguments)
        else:
            params = decode_as(CallToolRequestParams, request.params)
        entry = self._catalogue.tools.get(params.name)
        if entry is None or entry.scopes:
            refuse_duplicate_members(params.arguments)
            entry = self._found(self._catalogue.tools, params.name, "tool", context)
        return entry.run(context, params)

    async def _get_prompt(self, request: RequestContext) -> t.ProtocolType:
        params = decode_as(t.GetPromptRequestParams, request.exchange.request.params)
        entry = self._found(self._catalogue.prompts, params.name, "prompt", request)
        return await entry.run(request, params)

    def _found(self, shelf: Shelf[E], name: str, kind: str, request: RequestContext) -> E:
        entry = shelf.get(name)
        if entry is None:  # D16: unknown is a protocol error in every revision
            hint = (
                suggestion(name, _known(shelf, request)) or f"; list the {kind}s to see their names"
            )
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no {kind} {truncate(name)!r}{hint}")
        if entry.scopes:
            _admit(entry, request)
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
        """The contents of a resource, for this caller."""
        found = self._catalogue.find_resource(params.uri)
        if found is None:
            from colonnade.server.handlers.resources import missing

            raise missing(params.uri)
        entry, values = found
        _admit(entry, request)
        result = await entry.run(request, params, values, context)
        if entry.scopes and isinstance(result, t.ReadResourceResult) and result.cache_scope:
            return replace(result, cache_scope="private")  # R1029: it is not for everybody
        return result

    async def _complete(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.server.handlers.completion import completion  # on use: few servers complete

        params = decode_as(t.CompleteRequestParams, request.exchange.request.params)
        ref, argument = params.ref, params.argument
        if isinstance(ref, t.PromptReference):
            entry: Entry = self._found(self._catalogue.prompts, ref.name, "prompt", request)
            known = {one.name for one in self._catalogue.prompts[ref.name].noun.arguments or ()}
        else:
            template = self._catalogue.templates.get(ref.uri)
            if template is None:
                found = self._catalogue.find_resource(ref.uri)
                if found is None:
                    hint = suggestion(ref.uri, _known(self._catalogue.templates, request))
                    words = f"there is no template {truncate(ref.uri)!r}"
                    raise Fault(
                        FaultKind.INVALID_PARAMS, words + (hint or "; list the resource templates")
                    )
                _admit(found[0], request)
                return completion([])  # an address without variables has nothing to complete
            _admit(template, request)
            entry, known = template, set(template.template.variables)
        if argument.name not in known:
            words = (
                f"{ref.name if isinstance(ref, t.PromptReference) else ref.uri} has no argument "
                f"{truncate(argument.name)!r}; there are {sorted(known)}"
            )
            raise Fault(FaultKind.INVALID_PARAMS, words)
        completer = entry.completers.get(argument.name)
        if completer is None:
            return completion([])
        others = (params.context.arguments if params.context is not None else None) or {}
        return completion(await completer(request, argument.value, others))

    # ------------------------------------------------------------ scopes

    def needs(self, request: Request) -> frozenset[str]:
        """The scopes that a request needs, for whoever answers before it is read; what is not
        known or malformed needs none, and is refused in its own place."""
        row, params = request.method, request.params
        entry: Entry | None = None
        found = None
        try:
            if row == "tools/call":
                entry = self._catalogue.tools.get(decode_as(CallToolRequestParams, params).name)
            elif row == "prompts/get":
                entry = self._catalogue.prompts.get(
                    decode_as(t.GetPromptRequestParams, params).name
                )
            elif row == "resources/read":
                uri = decode_as(t.ReadResourceRequestParams, params).uri
                found = self._catalogue.find_resource(uri)
            elif row == "resources/subscribe":
                uri = decode_as(t.SubscribeRequestParams, params).uri
                found = self._catalogue.find_resource(uri)
        except Fault:
            return frozenset()
        entry = found[0] if found is not None else entry
        return entry.scopes if entry is not None else frozenset()

    # ------------------------------------------------------------ subscriptions

    async def _subscribe(self, request: RequestContext) -> t.ProtocolType:
        from colonnade.protocol.subscriptions import MAX_SUBSCRIPTIONS, MAX_URI_CHARACTERS

        uri = decode_as(t.SubscribeRequestParams, request.exchange.request.params).uri
        session = request.session
        if session is None:
            words = "a subscription needs a session, and this server keeps none; read it again"
            raise Fault(FaultKind.INVALID_REQUEST, words)
        found = self._catalogue.find_resource(uri)
        followed = [*([found[0]] if found is not None else []), *self._below(uri)]
        if not followed:
            from colonnade.server.handlers.resources import missing

            raise missing(uri)
        for entry in followed:  # a session is told of the whole folder
            _admit(entry, request)
        if len(uri) > MAX_URI_CHARACTERS:
            words = f"a URI of more than {MAX_URI_CHARACTERS} characters cannot be followed"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
            words = f"more than {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from some"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        session.subscriptions.add(uri)
        return t.EmptyResult()

    def _below(self, uri: str) -> list[Entry]:
        """What is offered below an address, which may be nothing itself."""
        start = uri.rstrip("/") + "/"
        fixed = [one for one in self._catalogue.resources if one.noun.uri.startswith(start)]
        templates = self._catalogue.templates
        return [*fixed, *(one for one in templates if one.noun.uri_template.startswith(start))]

    async def _unsubscribe(self, request: RequestContext) -> t.ProtocolType:
        uri = decode_as(t.UnsubscribeRequestParams, request.exchange.request.params).uri
        if request.session is not None:
            request.session.subscriptions.discard(uri)
        return t.EmptyResult()

    async def _listen(self, request: RequestContext) -> t.ProtocolType:
        offered = self._identity().capabilities
        assert isinstance(offered, t.ServerCapabilities)
        resources = offered.resources
        pushed = t.SubscriptionFilter(
            tools_list_changed=offered.tools is not None or None,
            prompts_list_changed=offered.prompts is not None or None,
            resources_list_changed=resources is not None or None,
            resource_subscriptions=[] if resources is not None else None,
        )
        granted = _granted(request)

        def allowed(uri: str) -> bool:
            return self.may_hear(uri, granted)

        from colonnade.protocol.subscriptions import Subscription
        from colonnade.server.notifications import Listener

        subscription = Subscription(request.exchange, pushed, None if granted is None else allowed)
        principal, size = request.exchange.principal, subscription.held_bytes
        if not self._listen_bytes.reserve(principal, size):
            raise _too_many_subscriptions()
        listener = Listener(subscription, request)
        self._listeners.add(listener)
        try:
            return await listener.run(self._catalogue.news)
        finally:
            self._listeners.discard(listener)
            self._listen_bytes.release(principal, size)

    def may_hear(self, uri: str, granted: frozenset[str] | None) -> bool:
        """Whether a caller with these scopes may hear of a resource, as of its contents."""
        if granted is None:
            return True
        found = self._catalogue.find_resource(uri)
        return found is None or found[0].scopes <= granted

    def drain(self) -> None:
        """End what only waits for news."""
        for listener in self._listeners:
            listener.end("the server is shutting down; listen again")


def _too_many_subscriptions() -> Fault:
    from colonnade.protocol.http.security import UNAVAILABLE, HttpError

    words = "too many resources are listened to at once; end a subscription, or try again later"
    retry = (("Retry-After", "60"),)
    return HttpError(UNAVAILABLE, words, kind=FaultKind.INTERNAL, headers=retry)


def _granted(request: RequestContext) -> frozenset[str] | None:
    """What the caller's credentials allow; None where nobody looks at any.

    Where nobody verifies callers there are no scopes to have; a caller who was verified without
    any has none.
    """
    exchange = request.exchange
    if exchange.scopes is None and exchange.principal:
        return frozenset()
    return exchange.scopes


def _known(shelf: Shelf[E], request: RequestContext) -> list[str]:
    """The names that this caller may hear of."""
    granted = _granted(request)
    if granted is None:
        return shelf.shown
    return [name for name in shelf.shown if shelf[name].scopes <= granted]


def _admit(entry: Entry, request: RequestContext) -> None:
    """Let a caller in whose scopes are enough."""
    if entry.scopes:
        granted = _granted(request)
        lacking = sorted(entry.scopes - granted) if granted is not None else []
        if lacking:
            from colonnade.protocol.http.security import FORBIDDEN, HttpError

            raise HttpError(FORBIDDEN, f"this needs the scope {' '.join(lacking)}")
