"""From a request to its answer: the method's handler, its layers, and the one place where an
exception becomes an error on the wire.

Rules: nothing here knows a transport. A handler gets a turn and returns a noun, or raises.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from portico.errors import ConnectionLost, Fault, FaultKind, LocalProtocolError
from portico.ports import Handler, Middleware, Seal, Turn, stack
from portico.protocol import types as t
from portico.protocol.exchange import Subscription
from portico.protocol.identity import Identity
from portico.protocol.interview import Interview, recall, subject_of
from portico.protocol.reading import read
from portico.protocol.revision import Asking, Revisions
from portico.server.catalogue import Catalogue, Entry
from portico.server.context import Context
from portico.server.subscriptions import Listener

log = logging.getLogger("portico.server")

# How long a client may take between a question and its answer.
STATE_LIFETIME_S = 600.0
# Resources that one session may watch.
MAX_SUBSCRIPTIONS = 1000


class Dispatch:
    """The handlers of a server, by method."""

    def __init__(
        self,
        catalogue: Catalogue,
        identity: Callable[[], Identity],
        accepts: Revisions,
        seal: Seal,
        layers: Sequence[Middleware] = (),
        *,
        debug: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue = catalogue
        self._identity = identity
        self._accepts = accepts
        self._seal = seal
        self._debug = debug
        self._clock = clock
        self.complete: Callable[[Turn, t.CompleteRequestParams], Awaitable[t.Noun]] | None = None
        rows: dict[str, Handler] = {
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
        self._handlers = {name: stack(handler, layers) for name, handler in rows.items()}

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
            return exchange.fail(fault)
        except (asyncio.CancelledError, ConnectionLost):
            raise
        except Exception as error:
            fault = self.crashed(turn, error)
            turn.fault = fault
            return exchange.fail(fault)

    def _wraps(self, turn: Turn, result: t.Noun) -> bool | None:
        if not isinstance(result, t.CallToolResult):
            return None
        entry = self._catalogue.tools.get(str(turn.exchange.head.name))
        return entry.wraps if entry is not None else None

    def crashed(self, turn: Turn, error: BaseException) -> Fault:
        """A fault that says nothing but an id, which the log has with the traceback."""
        id = secrets.token_hex(3)
        what = turn.exchange.row.name
        log.error("%s failed (id %s)", what, id, exc_info=error)
        words = f"{what} failed (id {id})"
        return Fault(FaultKind.INTERNAL, f"{words}: {error!r}" if self._debug else words)

    # ------------------------------------------------------------ lists

    async def _discover(self, turn: Turn) -> t.Noun:
        return self._identity().discovery(self._accepts)

    def _visible(self, turn: Turn) -> Callable[[Entry], bool]:
        return lambda entry: entry.enabled

    async def _list_tools(self, turn: Turn) -> t.Noun:
        entries, after = self._catalogue.tools.page(self._cursor(turn), self._visible(turn))
        return t.ListToolsResult(tools=[entry.noun for entry in entries], next_cursor=after)

    async def _list_resources(self, turn: Turn) -> t.Noun:
        entries, after = self._catalogue.resources.page(self._cursor(turn), self._visible(turn))
        return t.ListResourcesResult(resources=[entry.noun for entry in entries], next_cursor=after)

    async def _list_templates(self, turn: Turn) -> t.Noun:
        entries, after = self._catalogue.templates.page(self._cursor(turn), self._visible(turn))
        found = [entry.noun for entry in entries]
        return t.ListResourceTemplatesResult(resource_templates=found, next_cursor=after)

    async def _list_prompts(self, turn: Turn) -> t.Noun:
        entries, after = self._catalogue.prompts.page(self._cursor(turn), self._visible(turn))
        return t.ListPromptsResult(prompts=[entry.noun for entry in entries], next_cursor=after)

    def _cursor(self, turn: Turn) -> str | None:
        return read(t.PaginatedRequestParams, turn.exchange.request.params).cursor

    # ------------------------------------------------------------ calls

    async def _call_tool(self, turn: Turn) -> t.Noun:
        params = read(t.CallToolRequestParams, turn.exchange.request.params)
        entry = self._catalogue.tools.get(params.name)
        if entry is None:
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no tool {params.name[:80]!r}")
        return await entry.run(turn, params)

    async def _get_prompt(self, turn: Turn) -> t.Noun:
        params = read(t.GetPromptRequestParams, turn.exchange.request.params)
        entry = self._catalogue.prompts.get(params.name)
        if entry is None:
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no prompt {params.name[:80]!r}")
        return await entry.run(turn, params)

    async def _read_resource(self, turn: Turn) -> t.Noun:
        params = read(t.ReadResourceRequestParams, turn.exchange.request.params)
        return await self.read_resource(turn, params)

    async def read_resource(self, turn: Turn, params: t.ReadResourceRequestParams) -> t.Noun:
        """The contents of a resource, for this caller."""
        found = self._catalogue.find_resource(params.uri)
        if found is None:
            raise missing(params.uri)
        entry, values = found
        return await entry.run(turn, params, values)

    async def _complete(self, turn: Turn) -> t.Noun:
        params = read(t.CompleteRequestParams, turn.exchange.request.params)
        if self.complete is None:
            return t.CompleteResult(completion=t.Completion(values=[]))
        return await self.complete(turn, params)

    # ------------------------------------------------------------ subscriptions

    async def _subscribe(self, turn: Turn) -> t.Noun:
        uri = read(t.SubscribeRequestParams, turn.exchange.request.params).uri
        session = turn.session
        if session is None:
            raise LocalProtocolError("a subscription needs a session")
        if self._catalogue.find_resource(uri) is None:
            raise missing(uri)
        if len(session.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Fault(FaultKind.INVALID_PARAMS, f"more than {MAX_SUBSCRIPTIONS} subscriptions")
        session.subscriptions.add(uri)
        return t.EmptyResult()

    async def _unsubscribe(self, turn: Turn) -> t.Noun:
        uri = read(t.UnsubscribeRequestParams, turn.exchange.request.params).uri
        if turn.session is not None:
            turn.session.subscriptions.discard(uri)
        return t.EmptyResult()

    async def _listen(self, turn: Turn) -> t.Noun:
        offered = t.SubscriptionFilter(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[],
        )
        subscription = Subscription(turn.exchange, offered)
        return await Listener(subscription, turn, self._catalogue).run()

    # ------------------------------------------------------------ questions

    async def interviewed(
        self,
        turn: Turn,
        params: t.InputResponseRequestParams,
        run: Callable[[Context], Awaitable[t.Noun]],
    ) -> t.Noun:
        """Run a handler that may ask. Where questions go by result, they are its result."""
        exchange = turn.exchange
        by_result = exchange.peer.revision.asking is Asking.BY_RESULT
        interview = self._interview(turn, params)
        context = Context(turn, interview, self._reread)
        try:
            result = await run(context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not context.asked or task is None or task.uncancel() > 0:
                raise  # somebody else wants this to end
        except Exception:
            if not (context.asked and by_result):
                raise
        else:
            if not (context.asked and by_result):
                return result
        if interview.unused:
            log.warning(
                "%s asks something else than last time: %d answers were not asked for; freeze "
                "what changes with ctx.once",
                exchange.row.name,
                len(interview.unused),
            )
        return interview.result(
            self._seal.seal,
            principal=exchange.principal,
            subject=subject_of(exchange.request.params),
            expires_at=self._clock() + STATE_LIFETIME_S,
        )

    def _interview(self, turn: Turn, params: t.InputResponseRequestParams) -> Interview:
        exchange = turn.exchange
        memory = None
        if params.request_state is not None:
            memory = recall(
                params.request_state,
                self._seal.unseal,
                principal=exchange.principal,
                method=exchange.row.name,
                subject=subject_of(exchange.request.params),
                now=self._clock(),
            )
        return Interview(exchange.peer, exchange.row, memory, params.input_responses)

    async def _reread(self, turn: Turn, uri: str) -> t.ReadResourceResult:
        result = await self.read_resource(turn, t.ReadResourceRequestParams(uri=uri))
        if not isinstance(result, t.ReadResourceResult):
            raise LocalProtocolError(f"{uri} asks a question and cannot be read from a handler")
        return result


def missing(uri: str) -> Fault:
    """A resource that is not there, with its address, as the specification wants it."""
    return Fault(FaultKind.RESOURCE_MISSING, "resource not found", {"uri": uri[:2000]})
