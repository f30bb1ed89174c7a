"""The router of a host: one handler that forwards a request to the server that it is for.

Requests of this program and of clients that connect to the host come through here, inside the
middleware of the host.

Rules: the router does not know where a request comes from. A call uses the generation of servers
that is current when it begins, and no other. Names are translated, and the hop-by-hop keys of
`_meta` are removed; nothing else of a request or a result is changed, but by the guard. With a
guard, every request to a server and every list passes it; what it hides is unknown here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from colonnade.client.cache import NO_HINTS, CacheHints
from colonnade.client.input_callbacks import CallbackQueue
from colonnade.client.request import OnLog, OnProgress
from colonnade.errors import (
    ChannelError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    LoginRequired,
    Refused,
    RemoteError,
    RemoteProtocolError,
)
from colonnade.host.servers.generation import (
    Generation,
    HostedServer,
    Nameable,
    unlisted_resource,
)
from colonnade.host.servers.listings import (
    CLIENT_WAIT_S,
    ListedItems,
    Listing,
    ListKind,
    ServerListings,
)
from colonnade.host.servers.session import OnTask
from colonnade.host.servers.supervisor import BeforeSend
from colonnade.ports import RequestContext, Session
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields
from colonnade.protocol.forwarded import (
    ResultOrigin,
    forwardable_meta,
    is_hop_meta,
    unreserved_meta,
)
from colonnade.protocol.jsonrpc import (
    NOTHING,
    Notification,
    Request,
    SplitParams,
    decode,
    encode,
    is_bare_call,
    refuse_duplicate_members,
)
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import NEWEST

if TYPE_CHECKING:  # most calls have no input requests, and many hosts no policy
    from colonnade.client.tasks.task import ClientTask
    from colonnade.host.credentials import UpstreamCredentials
    from colonnade.host.input_requests import InputRequestHandler
    from colonnade.host.policy.caller_view import CallerView
    from colonnade.host.policy.containment import Containment
    from colonnade.host.policy.guard import GuardedResult, PolicyGuard
    from colonnade.host.policy.items import GuardedItem
    from colonnade.host.task_relay import RelayedCall
    from colonnade.host.tasks import HostTask
    from colonnade.protocol.input_requests import InputRequest

# The progress token of a local call: each has its own callback, so they need not differ.
PROGRESS_TOKEN = 0
_RAW_ID = b"0"

_SHAPER = Encoder(NEWEST)
_members = msgspec.json.Decoder(dict[str, Raw])


class LocalOptions(NamedTuple):
    """What this program passes beside a request: the timeout, the server if a URI alone does
    not determine it, whether a list is to be read again, and the task to wait for. `wants_task` and
    `on_task` are for calls that may become tasks, as `SessionCall.request` has them."""

    timeout_s: float | None = None
    server: str | None = None
    fresh: bool = False
    task: "HostTask | None" = None
    wants_task: bool = False
    on_task: OnTask | None = None


NO_OPTIONS = LocalOptions()

# ---------------------------------------------------------------- requests of this program


class LocalRequestContext(NonHttpRequestFields):
    """One request of this program, and the callbacks for what belongs to it."""

    __slots__ = (
        "_callbacks",
        "_input_requests",
        "_on_log",
        "_on_progress",
        "exchange",
        "fault",
    )

    def __init__(
        self,
        exchange: Exchange,
        input_requests: "InputRequestHandler",
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._input_requests = input_requests
        self._on_progress = on_progress
        self._on_log = on_log
        self._callbacks: CallbackQueue | None = None

    @property
    def session(self) -> Session | None:
        """None: each request is independent."""
        return None

    def post(self, frame: bytes) -> bool:
        """Call the callback for a progress notification or a log message."""
        notification = decode(frame)
        assert isinstance(notification, Notification)
        callbacks = self._callbacks = self._callbacks or CallbackQueue()
        if notification.method == "notifications/progress" and self._on_progress is not None:
            params = decode_as(t.ProgressNotificationParams, notification.params)
            parts = params.progress, params.total, params.message
            callbacks.call(self._on_progress, *parts, size=len(frame))
        elif notification.method == "notifications/message" and self._on_log is not None:
            message = decode_as(t.LoggingMessageNotificationParams, notification.params)
            callbacks.call(self._on_log, message, size=len(frame))
        return True

    async def wait_for_callbacks(self) -> None:
        """Wait until the callbacks have been called, for a limited time."""
        if self._callbacks is not None:
            await self._callbacks.wait_for_callbacks()

    async def send(self, frame: bytes) -> None:
        """Call the callback for a notification."""
        self.post(frame)

    async def ask(self, input_request: "InputRequest") -> Raw:
        """Return the result of an input request, from `on_input_request`."""
        return await self._input_requests.answer(input_request)

    async def hang_up(self) -> None:
        """Nothing: there is no connection."""


def local_exchange(method: str, params: t.RequestParams, peer: Peer, caller: str = "") -> Exchange:
    """A request of this program. Raises `LocalProtocolError` for what is not JSON."""
    meta = Raw(encode(params.meta)) if params.meta else NOTHING
    if type(params) is t.CallToolRequestParams:  # nearly all are
        head = SplitParams(meta, params.name, None, params.arguments)
    else:
        head = SplitParams(meta, getattr(params, "name", None), getattr(params, "uri", None))
    request = Request(0, method, Raw(encode(params)), _RAW_ID)
    definition = NEWEST.methods.get(method) or NEWEST.extensions[t.TASKS_EXTENSION_ID][method]
    return Exchange(request, head, definition, peer, _SHAPER, caller)


# ---------------------------------------------------------------- _meta


def forwarded_meta(meta: Raw) -> dict[str, Any] | None:
    """The keys of a request's `_meta` that are forwarded to the server.

    Trace context is, and unreserved keys; the protocol version, the progress token and the like
    are hop-by-hop, and the client of the next hop sends its own.
    """
    if not meta or is_hop_meta(meta):
        return None
    return forwardable_meta(_members.decode(meta)) or None


def without_server_info(result: t.ProtocolType) -> t.ProtocolType:
    """A result without what its server says of itself: to the caller, the host is the server."""
    meta: dict[str, Any] | None = getattr(result, "meta", None)
    if not meta:
        return result
    kept = None if meta.keys() == _SERVER_INFO_ONLY else forwardable_meta(meta)
    if kept is not None and len(kept) == len(meta):
        return result
    return replace(result, meta=kept or None)


# The `_meta` of most results.
_SERVER_INFO_ONLY = {t.SERVER_INFO_KEY}


# ---------------------------------------------------------------- routing

CALL = "tools/call"
GET_PROMPT = "prompts/get"
COMPLETE = "completion/complete"
GET_TASK = "tasks/get"
UPDATE_TASK = "tasks/update"
TASK_METHODS = (GET_TASK, UPDATE_TASK, "tasks/cancel", "tasks/result")
SUBSCRIBE = "resources/subscribe"
# Logins of its caller that one request waits for: a login, and a step-up.
MAX_CONNECTS = 2


InputParams = TypeVar("InputParams", bound=t.InputResponseRequestParams)


class HostResult(Struct, frozen=True):
    """A result, and where it comes from: the lists that a list was made of, or the listings of the
    server of a tool, and the name of the tool on that server. `untouched` is the result as the
    server sent it, if hidden text in it was contained."""

    result: t.ProtocolType
    lists: Sequence[ListedItems[Any, Any]] = ()
    tool: tuple[ServerListings, str] | None = None
    untouched: t.ProtocolType | None = None


def _host_result(guarded: "GuardedResult") -> HostResult:
    return HostResult(guarded.result, untouched=guarded.untouched)


# In the `_meta` of a request for a URI that several servers have: the key of the one that is meant.
SERVER_KEY = "dev.colonnade/server"


class _NamedServer(Struct):
    server: str | None = field(name=SERVER_KEY, default=None)


# The options are None for a client that connected to the host.
Route: TypeAlias = Callable[[RequestContext, LocalOptions | None], Awaitable[HostResult]]


class HostRouter:
    """Forwards requests to servers.

    `current` returns the current generation; `wait_s` is how long a list of all servers waits for
    one server; `upstream` has the credentials of callers; `guard` decides what callers may do.
    `has_middleware` returns whether a middleware may read results.
    """

    def __init__(
        self,
        current: Callable[[], Generation],
        wait_s: float,
        upstream: "UpstreamCredentials | None" = None,
        guard: "PolicyGuard | None" = None,
        has_middleware: Callable[[], bool] = lambda: True,
    ) -> None:
        self._current = current
        self.guard = guard
        self._has_middleware = has_middleware
        self._upstream = upstream
        self._wait_s = wait_s
        # How long a list for a client of a gateway waits for one server.
        self.client_wait_s: float = CLIENT_WAIT_S
        self._routes: dict[str, Route] = {
            CALL: self._call_tool,
            "tools/list": self._list_tools,
            "prompts/list": self._list_prompts,
            GET_PROMPT: self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            COMPLETE: self._complete,
            **dict.fromkeys(TASK_METHODS, self._about_task),
            SUBSCRIBE: self._find_subscribed,
        }

    async def handle(self, request: RequestContext) -> t.ProtocolType:
        """The result of a request of a client that connected. Raises as `route` does."""
        return (await self.route(request, None)).result

    def route(self, request: RequestContext, options: LocalOptions | None) -> Awaitable[HostResult]:
        """The result of a request, and where it comes from. Raises `Fault` for an invalid request,
        and what the request to the server raises."""
        route = self._routes.get(request.exchange.method.name)
        if route is None:
            message = f"method not found: {request.exchange.method.name}"
            raise Fault(FaultKind.METHOD_NOT_FOUND, message)
        guard, upstream = self.guard, self._upstream
        if guard is not None and guard.is_audited:
            if upstream is None:
                return self._route_recorded(route, guard, request, options)
            route = partial(self._route_recorded, route, guard)
        if upstream is None:
            return route(request, options)
        return self._route_connected(route, request, options, upstream)

    async def _route_recorded(
        self,
        route: Route,
        guard: "PolicyGuard",
        request: RequestContext,
        options: LocalOptions | None,
    ) -> HostResult:
        """The result of a request; a request for what is hidden is recorded, although its caller is
        answered as if it did not exist."""
        try:
            return await route(request, options)
        except Fault:
            guard.record_failed(request, self._current())
            raise
        finally:
            guard.forget(request)

    async def _route_connected(
        self,
        route: Route,
        request: RequestContext,
        options: LocalOptions | None,
        upstream: "UpstreamCredentials",
    ) -> HostResult:
        """The result of a request, once its caller has the login that it needs. Without that the
        server has rejected the request (401, 403), so it is sent again without harm; one that it
        had accepted before is not."""
        for attempt in range(MAX_CONNECTS + 1):
            try:
                return await route(request, options)
            except LoginRequired as required:
                may_ask = attempt < MAX_CONNECTS and not required.accepted
                await upstream.connect(request, required, may_ask=may_ask)
        raise AssertionError("the last attempt has a result or raises")

    # ------------------------------------------------------------ lists

    async def _list_tools(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        lists, hints = await self._gather(request, "tools", options)
        tools = _items(lists)
        if options is None and any(tool.execution is not None for tool in tools):
            from colonnade.host.task_relay import with_task_support

            tools = with_task_support(tools, self._current(), request.exchange)
        return HostResult(t.ListToolsResult(tools=tools, **hints), lists)

    async def _list_prompts(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        lists, hints = await self._gather(request, "prompts", options)
        return HostResult(t.ListPromptsResult(prompts=_items(lists), **hints), lists)

    async def _list_resources(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        lists, hints = await self._gather(request, "resources", options)
        return HostResult(t.ListResourcesResult(resources=_items(lists), **hints), lists)

    async def _list_templates(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        lists, hints = await self._gather(request, "templates", options)
        found = _items(lists)
        return HostResult(t.ListResourceTemplatesResult(resource_templates=found, **hints), lists)

    async def _gather(
        self, request: RequestContext, kind: ListKind, options: LocalOptions | None
    ) -> tuple[list[ListedItems[Any, Any]], "ListHints"]:
        """One list of all servers, and its cache hints. It is one page, so every cursor is
        invalid."""
        if decode_as(t.PaginatedRequestParams, request.exchange.request.params).cursor is not None:
            raise Fault(FaultKind.INVALID_PARAMS, "unknown cursor; list from the beginning")
        generation, caller = self._current(), request.exchange.principal
        view = self._view(request)
        with _hold_all(generation):
            fresh = options is not None and options.fresh
            if self.guard is not None:
                await self.guard.recheck(generation.servers.values(), kind, caller)
            wait_s = self._wait_s if options is not None else min(self.client_wait_s, self._wait_s)
            gathered = await generation.gather(kind, caller, wait_s, fresh=fresh, view=view)
        lists = generation.visible_lists(gathered, kind, view)
        if options is None:  # the list is passed on to a client that connected
            items = {key: raw for listed in lists for key, raw in listed.raw.items()}
            request.exchange.origin = ResultOrigin("", items=items)
        return lists, merged_hints(gathered)

    def _view(self, request: RequestContext) -> "CallerView | None":
        return None if self.guard is None else self.guard.view(request)

    # ------------------------------------------------------------ calls

    async def _call_tool(self, context: RequestContext, options: LocalOptions | None) -> HostResult:
        head, request, given = context.exchange.params, context.exchange.request, None
        if options is not None:  # this program has just encoded it
            name, arguments = str(head.name), head.arguments
        elif is_bare_call(request, head):  # as nearly all are: the params are decoded already
            refuse_duplicate_members(head.arguments)
            name, arguments = str(head.name), head.arguments
        else:
            given = decode_as(t.CallToolRequestParams, request.params)
            name, arguments = given.name, given.arguments
        generation, caller = self._current(), context.exchange.principal
        view = None if self.guard is None else self.guard.view(context)
        found = generation.find_tool(name, caller, view)
        if found is not None:
            server, listings, own = found.server, found.listings, found.own
        else:
            server = generation.server_for("tools", name, caller, view)
            listings, own = server.listings(caller), None
        server.hold()
        try:
            if own is None:
                own = await generation.fetch_name("tools", name, server, caller, view)
                listings = server.listings(caller)  # others, once it is known that they differ
            meta = None
            if head.meta and not is_hop_meta(head.meta):
                meta = forwarded_meta(head.meta)
            forwarded = t.CallToolRequestParams(name=own, arguments=arguments, meta=meta)
            if given is not None:
                forwarded = _with_round(forwarded, given, context)
            call = None
            if options is None:
                find = partial(listings.tool, own)
                is_read = self.guard is not None or self._has_middleware()
                reader = None if is_read else context.exchange.peer.revision
                origin = ResultOrigin(server.key, find_tool=find, reader=reader)
                context.exchange.origin = origin
                relay = context.input_relay
                if relay is not None and relay.tasks is not None:
                    from colonnade.host.task_relay import RelayedCall

                    call = RelayedCall(relay.tasks, server, find(), own, context.exchange)
                    if call.wants_task and given is not None:
                        forwarded = replace(forwarded, task=given.task)
            if self.guard is None:
                check = self._check_unguarded
                result = await _forward(context, options, server, CALL, forwarded, check, call=call)
                return HostResult(result, (), (listings, own))
            item = self.guard.named_item(CALL, "tool", own, server, arguments)
            named: tuple[Nameable, str] = "tools", name
            guarded = await self._guarded(
                self.guard, context, options, server, item, forwarded, named, call, view
            )
            return HostResult(guarded.result, (), (listings, own), guarded.untouched)
        finally:
            server.release()

    def _guarded(
        self,
        guard: "PolicyGuard",
        context: RequestContext,
        options: LocalOptions | None,
        server: HostedServer,
        item: "GuardedItem",
        params: t.RequestParams,
        named: tuple[Nameable, str] | None = None,
        relayed: "RelayedCall | None" = None,
        view: "CallerView | None" = None,
    ) -> "Awaitable[GuardedResult]":
        """Forward a request if the guard allows it. `named` is the kind and the name that the
        caller used; without it the item has a URI. `relayed` is a call that may become a task;
        `view` is what the caller may see, if that is known."""
        if params.meta and (sent := unreserved_meta(params.meta)):
            item = replace(item, meta=Raw(encode(sent)))
        if state := getattr(params, "request_state", None):
            item = replace(item, state=state)
        # Annotations of functions are evaluated where the functions are made, so these have none.
        send = partial(_send_guarded, context, options, server, item.method, params, guard, relayed)
        unknown = partial(self._unknown_item, context, server, item, named, guard)
        view = view or guard.view(context)
        return guard.run(context, view, server, item, send, unknown)

    def _unknown_item(
        self,
        context: RequestContext,
        server: HostedServer,
        item: "GuardedItem",
        named: tuple[Nameable, str] | None,
        guard: "PolicyGuard",
    ) -> Fault:
        """The error for an item that does not exist."""
        if named is None:
            return unlisted_resource(item.name)
        caller, view = context.exchange.principal, guard.view(context)
        return self._current().unknown_item(*named, server, caller, view)

    def _check_unguarded(self, _: object) -> None:
        """Called before a request without a guard is sent: a reload may have brought one while it
        waited for its server. Raises `Refused`."""
        if self.guard is not None:
            message = "a policy was set while the request waited for its server"
            raise Refused(message, hint="repeat it", reason="changed")

    async def _about_task(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        """A request about a task: of this program, or of a caller whom a gateway forwards for."""
        if options is not None and options.task is not None:
            return await self._task_outcome(request, options.task)
        relay = request.input_relay
        target = relay.tasks.target if relay is not None and relay.tasks is not None else None
        if target is None or relay is None or relay.tasks is None:
            method = request.exchange.method.name
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"method not found: {method}")
        from colonnade.host.task_relay import RelayedTask, unknown_task

        try:
            server = self._current().server(target.server, self._view(request))
        except Fault:
            raise unknown_task() from None
        forward = partial(_forward, request, None, server)
        task = RelayedTask(request, relay.tasks.task_id, target, forward)
        server.hold()
        try:
            if self.guard is None:
                return HostResult(task.with_id(await task.send(self._check_unguarded)))
            guard, method = self.guard, request.exchange.method.name
            item = guard.named_item(method, "tool", target.tool, server, NOTHING)
            send = task.send
            if method == UPDATE_TASK:
                review = partial(guard.review_task_responses, server.entry, request)
                send = partial(task.send_reviewed, review)
            view = guard.view(request)
            guarded = await guard.run(request, view, server, item, send, unknown_task)
            return HostResult(task.with_id(guarded.result), untouched=guarded.untouched)
        finally:
            server.release()

    async def _task_outcome(self, request: RequestContext, task: "HostTask") -> HostResult:
        """The result of the call that became a task of this program."""
        if self.guard is not None:
            return await self._guarded_outcome(request, task, self.guard)
        result, own = await task.outcome()
        listings = self._current().server(task.server).listings(task.caller)
        return HostResult(without_server_info(result), (), (listings, own))

    async def _guarded_outcome(
        self, request: RequestContext, task: "HostTask", guard: "PolicyGuard"
    ) -> HostResult:
        """The same; the task passes the guard as its call did."""
        server, own = await self.task_item(request, task.server, task.tool)
        caller, view = task.caller, guard.view(request)
        item = guard.named_item(GET_TASK, "tool", own, server, NOTHING)

        async def wait(_: BeforeSend, __: "Containment | None") -> t.ProtocolType:
            return without_server_info((await task.outcome())[0])

        def unknown() -> Fault:
            return self._current().unknown_item("tools", task.tool, server, caller, view)

        guarded = await guard.run(request, view, server, item, wait, unknown)
        tool = server.listings(caller), own
        return HostResult(guarded.result, (), tool, guarded.untouched)

    async def task_item(
        self, request: RequestContext, key: str, tool: str
    ) -> tuple[HostedServer, str]:
        """The server of a task, and the name of its tool there, as far as the caller of a request
        may see them. Raises `Fault` as a call of the tool would."""
        generation, caller = self._current(), request.exchange.principal
        view = self._view(request)
        server = generation.server(key, view)
        if view is None:
            return server, tool
        server.hold()
        try:
            own = generation.listed_name("tools", tool, server, server.listings(caller), view)
            if own is None:
                own = await generation.fetch_name("tools", tool, server, caller, view)
        finally:
            server.release()
        return server, own

    async def _get_prompt(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        params = decode_as(t.GetPromptRequestParams, request.exchange.request.params)
        generation, view = self._current(), self._view(request)
        server = generation.server_for("prompts", params.name, request.exchange.principal, view)
        server.hold()
        try:
            own = await self._prompt_name(generation, params.name, server, request)
            meta = forwarded_meta(request.exchange.params.meta)
            forwarded = t.GetPromptRequestParams(name=own, arguments=params.arguments, meta=meta)
            forwarded = _with_round(forwarded, params, request)
            if self.guard is None:
                check = self._check_unguarded
                return HostResult(
                    await _forward(request, options, server, GET_PROMPT, forwarded, check)
                )
            arguments = Raw(encode(params.arguments)) if params.arguments else NOTHING
            item = self.guard.named_item(GET_PROMPT, "prompt", own, server, arguments)
            named: tuple[Nameable, str] = "prompts", params.name
            return _host_result(
                await self._guarded(self.guard, request, options, server, item, forwarded, named)
            )
        finally:
            server.release()

    async def _prompt_name(
        self, generation: Generation, name: str, server: HostedServer, request: RequestContext
    ) -> str:
        caller, view = request.exchange.principal, self._view(request)
        own = generation.listed_name("prompts", name, server, server.listings(caller), view)
        if own is not None:
            return own
        return await generation.fetch_name("prompts", name, server, caller, view)

    async def _read_resource(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        params = decode_as(t.ReadResourceRequestParams, request.exchange.request.params)
        forwarded = t.ReadResourceRequestParams(
            uri=params.uri, meta=forwarded_meta(request.exchange.params.meta)
        )
        forwarded = _with_round(forwarded, params, request)
        return await self._forward_by_uri(request, options, params.uri, "resources/read", forwarded)

    async def _forward_by_uri(
        self,
        request: RequestContext,
        options: LocalOptions | None,
        uri: str,
        method: str,
        params: t.RequestParams,
    ) -> HostResult:
        """Forward a request to the server that has a URI, or the one that the caller named."""
        named = options.server if options is not None else None
        server = await self._find_by_uri(request, uri, named)
        server.hold()
        try:
            if self.guard is None:
                check = self._check_unguarded
                return HostResult(await _forward(request, options, server, method, params, check))
            item = self.guard.resource_item(method, uri, params)
            return _host_result(
                await self._guarded(self.guard, request, options, server, item, params)
            )
        finally:
            server.release()

    async def _find_subscribed(
        self, request: RequestContext, options: LocalOptions | None
    ) -> HostResult:
        """The server of a resource that a client wants to subscribe to, in `origin`: the gateway
        follows it there."""
        uri = decode_as(t.SubscribeRequestParams, request.exchange.request.params).uri
        server = await self._find_by_uri(request, uri, below=True)

        async def agree(before_send: BeforeSend, _: "Containment | None") -> t.ProtocolType:
            # The subscription itself is made later, and may be shared: what is checked right before
            # a request is sent is checked here, on a session of the caller.
            async with server.supervisor.acquire(request) as call:
                checked = before_send(call)
                if checked is not None:
                    await checked
            return t.EmptyResult()

        if self.guard is not None:
            item = self.guard.resource_item(SUBSCRIBE, uri, t.SubscribeRequestParams(uri=uri))
            server.hold()
            try:
                unknown = partial(unlisted_resource, uri)
                view = self.guard.view(request)
                await self.guard.run(request, view, server, item, agree, unknown)
            finally:
                server.release()
        request.exchange.origin = ResultOrigin(server.key)
        return HostResult(t.EmptyResult())

    async def _find_by_uri(
        self, request: RequestContext, uri: str, named: str | None = None, *, below: bool = False
    ) -> HostedServer:
        """The server that has a URI, or the one that was named: by the program, or by a client in
        the `_meta` of its request. With `below`, also one that has resources below it. Raises
        `Fault`."""
        generation, meta = self._current(), request.exchange.params.meta
        view = self._view(request)
        if named is None and meta and SERVER_KEY.encode() in bytes(meta):
            named = decode_as(_NamedServer, meta).server
        if named is not None:
            return generation.server(named, view)
        with _hold_all(generation):
            caller = request.exchange.principal
            return await generation.server_for_uri(uri, caller, self._wait_s, view, below=below)

    async def _complete(self, request: RequestContext, options: LocalOptions | None) -> HostResult:
        params = decode_as(t.CompleteRequestParams, request.exchange.request.params)
        params = replace(params, meta=forwarded_meta(request.exchange.params.meta))
        if isinstance(params.ref, t.ResourceTemplateReference):
            return await self._forward_by_uri(request, options, params.ref.uri, COMPLETE, params)
        generation, view = self._current(), self._view(request)
        name = params.ref.name
        server = generation.server_for("prompts", name, request.exchange.principal, view)
        server.hold()
        try:
            own = await self._prompt_name(generation, name, server, request)
            forwarded = replace(params, ref=replace(params.ref, name=own))
            if self.guard is None:
                check = self._check_unguarded
                return HostResult(
                    await _forward(request, options, server, COMPLETE, forwarded, check)
                )
            arguments = self.guard.completed_arguments(params)
            item = self.guard.named_item(COMPLETE, "prompt", own, server, arguments)
            named: tuple[Nameable, str] = "prompts", name
            return _host_result(
                await self._guarded(self.guard, request, options, server, item, forwarded, named)
            )
        finally:
            server.release()


@contextmanager
def _hold_all(generation: Generation) -> Generator[None]:
    """Keep all servers open while they are listed."""
    for one in generation.servers.values():
        one.hold()
    try:
        yield
    finally:
        for one in generation.servers.values():
            one.release()


class ListHints(TypedDict):
    """The cache hints of a list."""

    ttl_ms: int | None
    cache_scope: t.CacheScope


def merged_hints(listings: Mapping[HostedServer, Listing[ListedItems[Any, Any]]]) -> ListHints:
    """The cache hints of the lists of several servers as one: what is left of the shortest time,
    and public only if all are (R1027). A list that is missing may be there at any time."""
    now, hints = asyncio.get_running_loop().time(), NO_HINTS
    for number, (server, listing) in enumerate(listings.items()):
        listed = listing.content
        if listed is None:
            own = CacheHints(0)
        else:
            own, age_ms = listed.hints, int((now - listed.read_at) * 1000)
            left_ms = None if own.ttl_ms is None else max(own.ttl_ms - age_ms, 0)
            own = CacheHints(left_ms, own.scope if server.is_common else "private")
        hints = own if number == 0 else hints.merged(own)
    return ListHints(ttl_ms=hints.ttl_ms, cache_scope=hints.scope)


def _items(lists: Sequence[ListedItems[Any, Any]]) -> list[Any]:
    return [one for listed in lists for one in listed.items.values()]


def _with_round(forwarded: InputParams, given: InputParams, request: RequestContext) -> InputParams:
    """Params with the input responses of the caller and the state of the server, if the caller
    handles `input_required` results itself."""
    if request.input_relay is None:
        return forwarded
    return replace(
        forwarded, input_responses=given.input_responses, request_state=given.request_state
    )


async def _record_task(
    on_task: OnTask, guard: "PolicyGuard", context: RequestContext, server: str, task: "ClientTask"
) -> bool:
    """The callback of a call that has become a task, after the guard has recorded that."""
    if task.handle is not None:
        guard.became_task(context, task.handle)
    return await on_task(server, task)


def _send_guarded(
    context: RequestContext,
    options: LocalOptions | None,
    server: HostedServer,
    method: str,
    params: t.RequestParams,
    guard: "PolicyGuard",
    relayed: "RelayedCall | None",
    before_send: BeforeSend,
    contain: "Containment | None",
) -> Awaitable[t.ProtocolType]:
    """Forward a request that the guard has admitted. Input responses that a person has to see are
    shown first."""
    words = contain.text if contain is not None else None
    relay = context.input_relay
    send = _forward if relay is None or not relay.under_review else _send_reviewed
    return send(context, options, server, method, params, before_send, words, relayed, guard)


async def _send_reviewed(
    context: RequestContext,
    options: LocalOptions | None,
    server: HostedServer,
    method: str,
    params: t.RequestParams,
    before_send: BeforeSend,
    contain: Callable[[str], str] | None,
    call: "RelayedCall | None",
    guard: "PolicyGuard",
) -> t.ProtocolType:
    """Forward a request with the input responses that a person lets through."""
    if isinstance(params, t.InputResponseRequestParams) and params.input_responses:
        seen = await guard.review_responses(server.entry, context, params.input_responses)
        params = replace(params, input_responses=seen)
    return await _forward(
        context, options, server, method, params, before_send, contain, call, guard
    )


async def _forward(
    request: RequestContext,
    options: LocalOptions | None,
    server: HostedServer,
    method: str,
    params: t.RequestParams,
    before_send: BeforeSend | None = None,
    contain: Callable[[str], str] | None = None,
    call: "RelayedCall | None" = None,
    guard: "PolicyGuard | None" = None,
    *,
    timeout_s: float | None = None,
) -> t.ProtocolType:
    """Forward a request. `call` is one that may become a task, which is handed back then; `guard`
    records that."""
    origin = None
    if options is None:  # the result is passed on to a client that connected
        origin = request.exchange.origin = request.exchange.origin or ResultOrigin(server.key)
        origin.is_private = server.settings.is_per_caller
    options = options or NO_OPTIONS
    relay = request.input_relay
    if relay is not None:
        relay.check_server(server.key)
    on_task = options.on_task if call is None else call.on_task
    if guard is not None and on_task is not None:
        on_task = partial(_record_task, on_task, guard, request)
    progress = None
    if request.exchange.progress_token is not None:
        progress = _progress_forwarder(request, contain)
    try:
        result = await server.supervisor.request(
            request,
            method,
            params,
            timeout_s=options.timeout_s if timeout_s is None else timeout_s,
            on_progress=progress,
            wants_task=options.wants_task if call is None else call.wants_task,
            on_task=on_task,
            before_send=before_send,
            origin=origin,
        )
    except Fault as fault:  # the server's response is invalid, not the request
        raise RemoteProtocolError(fault.message).with_server(server.key) from fault
    except ChannelError as error:
        error.with_server(server.key)
        raise
    except RemoteError as error:
        error.server = server.key
        if origin is not None:
            origin.outcome = error
        raise
    if call is not None and call.task is not None:
        result = await call.hand_back(call.task, contain)
    passed = result if getattr(result, "meta", None) is None else without_server_info(result)
    if origin is not None:
        origin.settle(result, passed)
    return passed


def contained_progress(on_progress: OnProgress, contain: Callable[[str], str]) -> OnProgress:
    """The same callback, with each message contained."""

    def report(progress: float, total: float | None, message: str | None) -> Any:
        return on_progress(progress, total, None if message is None else contain(message))

    return report


def _progress_forwarder(
    request: RequestContext, contain: Callable[[str], str] | None
) -> OnProgress:
    """Forwards progress to the caller, with its message contained."""
    exchange = request.exchange

    def report(progress: float, total: float | None, message: str | None) -> Awaitable[None] | None:
        if contain is not None and message is not None:
            message = contain(message)
        try:
            frame = exchange.progress(progress, total, message)
        except LocalProtocolError:  # the server's progress decreased
            return None
        return None if frame is None or request.post(frame) else send(frame)

    async def send(frame: bytes) -> None:
        with suppress(ConnectionLost):  # the caller has hung up, which cancels the call
            await request.send(frame)

    return report
