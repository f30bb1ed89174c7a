"""From a request to its answer: the method's handler, its layers, and the one place where an
exception becomes an error on the wire.

Rules: nothing here knows a transport. A handler gets a turn and returns a noun, or raises.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from portico.errors import ConnectionLost, Fault, FaultKind
from portico.ports import Handler, Middleware, Turn, stack
from portico.protocol import types as t
from portico.protocol.exchange import Subscription
from portico.protocol.identity import Identity
from portico.protocol.reading import read
from portico.protocol.revision import Revisions
from portico.server.binding import Crashes
from portico.server.catalogue import PAGE_SIZE, Catalogue, Entry, Shelf
from portico.server.completing import completion
from portico.server.context import Context
from portico.server.returning import missing
from portico.server.subscriptions import Listener

# Resources that one session may watch.
MAX_SUBSCRIPTIONS = 1000
# Each of them is kept; no address that people use is longer.
MAX_URI_CHARACTERS = 8192

E = TypeVar("E", bound=Entry)


class Listing(Struct, frozen=True, kw_only=True):
    """How lists are given out: in which pages, and how long, for whom, they keep."""

    page_size: int = PAGE_SIZE
    ttl_ms: int | None = None
    cache_scope: t.CacheScope | None = None


class Dispatch:
    """The handlers of a server, by method."""

    def __init__(
        self,
        catalogue: Catalogue,
        identity: Callable[[], Identity],
        accepts: Revisions,
        crashes: Crashes,
        listing: Listing,
    ) -> None:
        self._catalogue = catalogue
        self._identity = identity
        self._accepts = accepts
        self._crashes = crashes
        self._listing = listing
        self._listeners: set[Listener] = set()
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
        self._handlers = self._rows

    def use(self, layers: Sequence[Middleware]) -> None:
        """Put these layers around every handler, the first outermost."""
        self._handlers = {name: stack(handler, layers) for name, handler in self._rows.items()}

    # ------------------------------------------------------------ the one way out

    async def answer(self, turn: Turn) -> bytes | None:
        """The bytes of the answer, errors included."""
        exchange = turn.exchange
        try:
            handler = self._handlers.get(exchange.row.name)
            if handler is None:
                raise Fault(FaultKind.METHOD_NOT_FOUND, f"there is no {exchange.row.name} here")
            result = await handler(turn)
            return exchange.settle(result, self._wraps(turn, result))
        except Fault as fault:
            turn.fault = fault
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            turn.fault = self._crashed(turn, error)  # nobody gave this up: it gave up itself
        except ConnectionLost:
            raise
        except Exception as error:
            turn.fault = self._crashed(turn, error)
        return exchange.fail(turn.fault)

    def _wraps(self, turn: Turn, result: t.Noun) -> bool | None:
        if not isinstance(result, t.CallToolResult):
            return None
        entry = self._catalogue.tools.get(str(turn.exchange.head.name))
        return entry.wraps if entry is not None else None

    def _crashed(self, turn: Turn, error: BaseException) -> Fault:
        words = self._crashes.words(turn.exchange.row.name, error)
        return Fault(FaultKind.INTERNAL, words)

    # ------------------------------------------------------------ lists

    async def _discover(self, turn: Turn) -> t.Noun:
        return self._identity().discovery(self._accepts)

    def _page(self, turn: Turn, shelf: Shelf[E]) -> tuple[list[E], str | None]:
        cursor = read(t.PaginatedRequestParams, turn.exchange.request.params).cursor
        return shelf.page(cursor, self._listing.page_size, lambda entry: entry.enabled)

    async def _list_tools(self, turn: Turn) -> t.Noun:
        entries, after = self._page(turn, self._catalogue.tools)
        return t.ListToolsResult(
            tools=[entry.noun for entry in entries],
            next_cursor=after,
            ttl_ms=self._listing.ttl_ms,
            cache_scope=self._listing.cache_scope,
        )

    async def _list_resources(self, turn: Turn) -> t.Noun:
        entries, after = self._page(turn, self._catalogue.resources)
        return t.ListResourcesResult(
            resources=[entry.noun for entry in entries],
            next_cursor=after,
            ttl_ms=self._listing.ttl_ms,
            cache_scope=self._listing.cache_scope,
        )

    async def _list_templates(self, turn: Turn) -> t.Noun:
        entries, after = self._page(turn, self._catalogue.templates)
        return t.ListResourceTemplatesResult(
            resource_templates=[entry.noun for entry in entries],
            next_cursor=after,
            ttl_ms=self._listing.ttl_ms,
            cache_scope=self._listing.cache_scope,
        )

    async def _list_prompts(self, turn: Turn) -> t.Noun:
        entries, after = self._page(turn, self._catalogue.prompts)
        return t.ListPromptsResult(
            prompts=[entry.noun for entry in entries],
            next_cursor=after,
            ttl_ms=self._listing.ttl_ms,
            cache_scope=self._listing.cache_scope,
        )

    # ------------------------------------------------------------ calls

    async def _call_tool(self, turn: Turn) -> t.Noun:
        params = read(t.CallToolRequestParams, turn.exchange.request.params)
        entry = self._found(self._catalogue.tools, params.name, "tool", turn)
        return await entry.run(turn, params)

    async def _get_prompt(self, turn: Turn) -> t.Noun:
        params = read(t.GetPromptRequestParams, turn.exchange.request.params)
        entry = self._found(self._catalogue.prompts, params.name, "prompt", turn)
        return await entry.run(turn, params)

    def _found(self, shelf: Shelf[E], name: str, kind: str, turn: Turn) -> E:
        entry = shelf.get(name)
        if entry is None:  # D16: unknown is a protocol error in every revision
            words = f"there is no {kind} {name[:80]!r}; list the {kind}s to see their names"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        _admit(entry, turn)
        return entry

    async def _read_resource(self, turn: Turn) -> t.Noun:
        params = read(t.ReadResourceRequestParams, turn.exchange.request.params)
        return await self.read_resource(turn, params)

    async def read_resource(
        self, turn: Turn, params: t.ReadResourceRequestParams, context: Context | None = None
    ) -> t.Noun:
        """The contents of a resource, for this caller."""
        found = self._catalogue.find_resource(params.uri)
        if found is None:
            raise missing(params.uri)
        entry, values = found
        _admit(entry, turn)
        return await entry.run(turn, params, values, context)

    async def _complete(self, turn: Turn) -> t.Noun:
        params = read(t.CompleteRequestParams, turn.exchange.request.params)
        ref, argument = params.ref, params.argument
        if isinstance(ref, t.PromptReference):
            entry: Entry = self._found(self._catalogue.prompts, ref.name, "prompt", turn)
            known = {one.name for one in self._catalogue.prompts[ref.name].noun.arguments or ()}
        else:
            template = self._catalogue.templates.get(ref.uri)
            if template is None:
                if self._catalogue.find_resource(ref.uri) is None:
                    words = f"there is no template {ref.uri[:80]!r}"
                    raise Fault(FaultKind.INVALID_PARAMS, words)
                return completion([])  # an address without variables has nothing to complete
            entry, known = template, set(template.template.variables)
        if argument.name not in known:
            words = f"there is no argument {argument.name[:80]!r}; there are {sorted(known)}"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        completer = entry.completers.get(argument.name)
        if completer is None:
            return completion([])
        others = (params.context.arguments if params.context is not None else None) or {}
        return completion(await completer(turn, argument.value, others))

    # ------------------------------------------------------------ subscriptions

    async def _subscribe(self, turn: Turn) -> t.Noun:
        uri = read(t.SubscribeRequestParams, turn.exchange.request.params).uri
        session = turn.session
        if session is None:
            raise Fault(FaultKind.INVALID_REQUEST, "a subscription needs a session")
        if self._catalogue.find_resource(uri) is None and not self._has_below(uri):
            raise missing(uri)
        if len(uri) > MAX_URI_CHARACTERS:
            words = f"a URI of more than {MAX_URI_CHARACTERS} characters cannot be followed"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
            words = f"more than {MAX_SUBSCRIPTIONS} subscriptions; unsubscribe from some"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        session.subscriptions.add(uri)
        return t.EmptyResult()

    def _has_below(self, uri: str) -> bool:
        """Whether something is offered below an address that is nothing itself."""
        start = uri.rstrip("/") + "/"
        fixed = any(entry.noun.uri.startswith(start) for entry in self._catalogue.resources)
        return fixed or any(
            entry.noun.uri_template.startswith(start) for entry in self._catalogue.templates
        )

    async def _unsubscribe(self, turn: Turn) -> t.Noun:
        uri = read(t.UnsubscribeRequestParams, turn.exchange.request.params).uri
        if turn.session is not None:
            turn.session.subscriptions.discard(uri)
        return t.EmptyResult()

    async def _listen(self, turn: Turn) -> t.Noun:
        offered = self._identity().capabilities
        assert isinstance(offered, t.ServerCapabilities)
        resources = offered.resources
        pushed = t.SubscriptionFilter(
            tools_list_changed=offered.tools is not None or None,
            prompts_list_changed=offered.prompts is not None or None,
            resources_list_changed=resources is not None or None,
            resource_subscriptions=[] if resources is not None else None,
        )
        listener = Listener(Subscription(turn.exchange, pushed), turn)
        self._listeners.add(listener)
        try:
            return await listener.run(self._catalogue.news)
        finally:
            self._listeners.discard(listener)

    def drain(self) -> None:
        """End what only waits for news."""
        for listener in self._listeners:
            listener.end("the server is shutting down; listen again")


def _admit(entry: Entry, turn: Turn) -> None:
    """Let a caller in whose scopes are enough.

    Where nobody verifies callers there are no scopes to have; a caller who was verified without
    any has none.
    """
    if entry.scopes and turn.exchange.principal:
        granted: frozenset[str] = getattr(turn, "scopes", frozenset[str]())
        lacking = sorted(entry.scopes - granted)
        if lacking:
            words = f"this needs the scope {' '.join(lacking)}"
            raise Fault(FaultKind.INVALID_REQUEST, words)
