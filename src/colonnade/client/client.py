"""A client: what a program asks of one server, in whichever revision the two speak.

It goes a way to a server and speaks with it; what the way is made of it does not know. Opening is
a handshake or not, questions come by request or by result, and news comes in the session or on
subscriptions, as the revision says; a program sees no difference.

Rules: every wait ends. Giving up a call tells the server so. A call that the server's capabilities
do not allow is refused before it is sent. What may have had an effect is never sent again, but for
a round of questions, which is how the protocol goes on.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

from msgspec import UNSET, Raw

from colonnade.client.cache import ListBudget
from colonnade.client.input_callbacks import Answering
from colonnade.client.request import Asker, Behalf, Headers, OnLog, OnProgress, ignored
from colonnade.client.results import Schemas, ToolResult, call_for_model, may_be_wrapped, show_crash
from colonnade.client.roots import Rooted
from colonnade.client.subscriptions import SUBSCRIBE, UNSUBSCRIBE, Following, Listening
from colonnade.client.tools import ListedTool
from colonnade.client.transports import ChildWay
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
    RemoteError,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import convert_to
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.link.link import DISCOVER, PING, SET_LEVEL
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import EVERY, ChangeNotifications, LogControl, OutputRoot
from colonnade.protocol.types import CallToolRequestParams, CallToolResult
from colonnade.providers import anthropic, openai
from colonnade.providers.tool_calls import ModelToolCall

# Between two letters of somebody who types: shorter pauses are not worth a question.
PAUSE_S = 0.15
# For as long as somebody goes back and forth in one word.
KEPT_S = 30.0
MAX_KEPT = 100
# Of one answer that is kept: a hundred values, which are the most, take a tenth of it.
MAX_KEPT_CHARS = 64 * 1024

Ask: TypeAlias = Callable[[str], Awaitable[t.Completion]]


class Completer:
    """Completes one argument: `await completer("par")`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._newest: object = None
        self._kept: dict[str, tuple[float, t.Completion]] = {}

    async def __call__(self, value: str) -> t.Completion | None:
        """What this may become; None where something newer was asked for meanwhile."""
        mine = self._newest = object()
        loop = asyncio.get_running_loop()
        kept = self._kept.get(value)
        if kept is not None and loop.time() < kept[0]:
            return kept[1]
        await asyncio.sleep(PAUSE_S)
        if self._newest is not mine:
            return None
        found = await self._ask(value)
        self._kept.pop(value, None)
        while len(self._kept) >= MAX_KEPT:
            self._kept.pop(next(iter(self._kept)))
        if sum(map(len, found.values)) <= MAX_KEPT_CHARS:
            self._kept[value] = (loop.time() + KEPT_S, found)
        return found if self._newest is mine else None


__all__ = ["Client", "OnLog", "OnProgress"]

# What says that there is no such resource: in the newest revision, and in all before it.
MISSING = frozenset(revision.codes[FaultKind.RESOURCE_MISSING] for revision in EVERY)
CALL = "tools/call"
# For the list of tools that is read for the output schema of one that has run: a result must not
# come much later for that.
SCHEMAS_S = 5.0

T = TypeVar("T")
R = TypeVar("R", bound=t.ListResult)
N = TypeVar("N", bound=t.ProtocolType)


class Client(Asker):
    """One server, as a program sees it. `connect` makes one that is open already; whoever makes
    one by hand says how the server is reached, and calls `open`."""

    if not TYPE_CHECKING:  # where the signature is the one that is inherited

        def __init__(self, *args: Any, **options: Any) -> None:
            if "info" not in options:  # as FastMCP has it: Client(server)
                raise InvalidArgumentType(
                    "Client(...) needs a transport and info=; to connect, write connect(server): "
                    "`async with connect(server) as client`, where server is a Server, a URL "
                    "or a command",
                    argument="info",
                )
            super().__init__(*args, **options)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def revision(self) -> str:
        """The revision that the two speak."""
        return self.peer.revision.date

    @property
    def server(self) -> t.Implementation | None:
        """What the server says it is: for people and logs, never for decisions."""
        return self.peer.info

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """What the server offered when it was last asked."""
        return cast("t.ServerCapabilities", self.peer.capabilities)

    # ------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[ListedTool]:
        """Every tool, from all pages. `fresh` is for what the server answers now, whatever it said
        may be kept of its last answer."""
        changes = self._cache.changes
        kind = t.ListToolsResult
        tools = await self._items("tools/list", kind, lambda page: page.tools, fresh=fresh)
        mirrors = self._way.mirrors and self.peer.revision.http.routing_headers
        stale = changes != self._cache.changes
        return self._tools.learn(tools, mirrors=mirrors, stale=stale)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[T]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Call a tool. An error of the tool is a result; one of the protocol is raised.

        `returns` is the type of `result.data`. The time-out begins anew with every progress that
        the tool reports.
        """
        given = arguments if isinstance(arguments, dict) else dict(arguments or {})
        params = CallToolRequestParams(name=name, arguments=Raw(encode_finite(given)))
        report = on_progress or self._on_progress or ignored
        headers = self._tools.headers(params) if self._tools.mirrored else ()
        try:
            result = await self._ask(CALL, params, CallToolResult, timeout_s, report, headers)
        except ColonnadeError as error:
            result = await self._call_again(error, params, timeout_s, report, headers)
        structured, wrapped = result.structured_content, False
        may_wrap = type(structured) is dict and may_be_wrapped(structured)
        if (
            structured is not UNSET
            and not self._tools.asked
            and not result.is_error
            and (may_wrap or not self._is_local)  # a server in this process checks its own values
        ):
            await self._learn_schemas()
        if may_wrap:
            wrapped = self._is_wrapped(name, result)
        output = self._tools.output(name) if self._tools.outputs else None
        if result.is_error and isinstance(self._way, ChildWay) and not self._way.is_heard:
            show_crash(self._way.child, result)
        return ToolResult(name, result, returns, output, wrapped=wrapped)

    async def _call(
        self,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        on_progress: OnProgress | None,
        behalf: Behalf | None,
    ) -> t.CallToolResult:
        """The result of a call as the protocol has it."""
        report = on_progress or self._on_progress or ignored
        headers = self._tools.headers(params) if self._tools.mirrored else ()
        kind = t.CallToolResult
        try:
            return await self._ask(CALL, params, kind, timeout_s, report, headers, behalf=behalf)
        except ColonnadeError as error:
            return await self._call_again(error, params, timeout_s, report, headers, behalf)

    async def _call_again(
        self,
        error: ColonnadeError,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        report: OnProgress,
        before: Headers,
        behalf: Behalf | None = None,
    ) -> t.CallToolResult:
        """The result after all, where a call failed for the headers that were sent with it; else
        the error, with what it leaves open."""
        refused = False
        try:
            if not (isinstance(error, RemoteError) and self._is_mismatch(error)):
                raise error
            refused = True
            await self.list_tools(fresh=True)  # R0899
            refused = False
            headers = self._tools.headers(params)
            if headers == before:
                raise error
            kind = t.CallToolResult
            return await self._ask(CALL, params, kind, timeout_s, report, headers, behalf=behalf)
        except ChannelError as lost:
            if not (lost.not_sent or refused):  # D19
                lost.effect_unknown = True
            raise

    async def _learn_schemas(self) -> None:
        """List the tools once, where a program has not: structured content is checked against what
        the tool said that it gives, whether or not they were listed before the call (R0378)."""
        async with self._learning:
            if self._tools.asked:  # another call has listed them meanwhile
                return
            self._tools.asked = True
            # The tool has run, whatever comes of this.
            with contextlib.suppress(ColonnadeError, TimeoutError):
                async with asyncio.timeout(SCHEMAS_S):
                    await self.list_tools()

    def _is_wrapped(self, name: str, result: t.CallToolResult) -> bool:
        """Whether a value came in a wrapper, as far as the list of tools tells."""
        if result.is_error:
            return False
        bare = self.peer.revision.output_root is OutputRoot.ANY
        return self._tools.wraps(name, result.meta or {}, bare=bare)

    def _is_mismatch(self, error: RemoteError) -> bool:
        revision = self.peer.revision
        mirrors = self._way.mirrors and revision.http.routing_headers
        return mirrors and error.code == revision.codes[FaultKind.HEADER_MISMATCH]

    # ------------------------------------------------------------ calls of models

    async def call_openai(
        self,
        tool_call: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call that OpenAI's model asks for, of Chat Completions or of Responses, as JSON
        or as OpenAI's own library gives it. `result.to_openai()` answers it.

        What the model did wrong is a result that tells it so; raised is only what it cannot mend.
        """
        return await self._call_for_model(openai.read_call(tool_call), timeout_s, on_progress)

    async def call_anthropic(
        self,
        tool_use: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call that a `tool_use` block of Anthropic's model asks for.
        `result.to_anthropic()` answers it. Else as `call_openai`."""
        return await self._call_for_model(anthropic.read_call(tool_use), timeout_s, on_progress)

    async def _call_for_model(
        self, call: ModelToolCall, timeout_s: float | None, on_progress: OnProgress | None
    ) -> ToolResult[Any]:
        async def relist() -> Schemas:
            await self.list_tools()
            return self._tools.inputs

        def call_tool(name: str, arguments: dict[str, Any]) -> Awaitable[ToolResult[Any]]:
            return self.call_tool(name, arguments, timeout_s=timeout_s, on_progress=on_progress)

        return await call_for_model(call, self._tools.inputs, relist, call_tool)

    # ------------------------------------------------------------ resources

    async def list_resources(self, *, fresh: bool = False) -> list[t.Resource]:
        """Every resource that has an address of its own, from all pages."""
        kind = t.ListResourcesResult
        return await self._items("resources/list", kind, lambda page: page.resources, fresh=fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[t.ResourceTemplate]:
        """Every template of addresses, from all pages."""
        method, kind = "resources/templates/list", t.ListResourceTemplatesResult
        return await self._items(method, kind, lambda page: page.resource_templates, fresh=fresh)

    async def read_resource(
        self, uri: str, *, timeout_s: float | None = None, fresh: bool = False
    ) -> t.ReadResourceResult:
        """The contents of a resource."""
        params = t.ReadResourceRequestParams(uri=uri)
        kind = t.ReadResourceResult
        try:
            return await self._ask("resources/read", params, kind, timeout_s, fresh=fresh)
        except RemoteError as error:
            if error.code in MISSING:  # R0748, R0970
                error.args = (f"{self.name} has no resource {uri!r}: {error}",)
            raise

    async def subscribe(self, uri: str) -> None:
        """Ask for news of a resource, where the revision has sessions; `listen` works in all."""
        params = t.SubscribeRequestParams(uri=uri)
        await self._ask(SUBSCRIBE, params, t.EmptyResult)
        self._listenings.by_hand.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Ask for no more news of a resource."""
        params = t.UnsubscribeRequestParams(uri=uri)
        self._listenings.by_hand.discard(uri)
        await self._ask(UNSUBSCRIBE, params, t.EmptyResult)

    # ------------------------------------------------------------ prompts and completions

    async def list_prompts(self, *, fresh: bool = False) -> list[t.Prompt]:
        """Every prompt, from all pages."""
        kind = t.ListPromptsResult
        return await self._items("prompts/list", kind, lambda page: page.prompts, fresh=fresh)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """The messages of a prompt."""
        given = dict(arguments) if arguments is not None else None
        params = t.GetPromptRequestParams(name=name, arguments=given)
        return await self._ask("prompts/get", params, t.GetPromptResult, timeout_s)

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """What an argument of a prompt, or a variable of a template, may become.

        `context` has the other arguments, as far as they are known.
        """
        if (prompt is None) is (template is None):
            raise InvalidArgument("complete takes either prompt='name' or template='uri'")
        ref: t.PromptReference | t.ResourceTemplateReference
        ref = (
            t.PromptReference(name=prompt)
            if prompt is not None
            else t.ResourceTemplateReference(uri=template or "")
        )
        params = t.CompleteRequestParams(
            ref=ref,
            argument=t.CompletionArgument(name=argument, value=value),
            context=t.CompletionContext(arguments=dict(context)) if context else None,
        )
        return (await self._ask("completion/complete", params, t.CompleteResult)).completion

    def completer(
        self,
        argument: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> Completer:
        """Completion for somebody who types: asks after a pause, and not twice for the same.

        >>> completer = client.completer("city", prompt="forecast")
        >>> await completer("Os")  # None where something newer was asked for meanwhile
        """

        def ask(value: str) -> Awaitable[t.Completion]:
            return self.complete(argument, value, prompt=prompt, template=template, context=context)

        return Completer(ask)

    # ------------------------------------------------------------ passing requests on

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: Answering | None = None,
        principal: str = "",
        log_level: t.LoggingLevel | None = None,
    ) -> t.ProtocolType:
        """The result of any request, as the protocol has it: for those who pass requests on.

        With `answers` it is made on behalf of somebody else: they are asked what the server asks
        by its result, instead of this client's handlers, which say what can be asked at all;
        `principal` is who they are, for what may be kept for them, and `log_level` what they want
        to hear, where each request says so. What the server asks by request is asked of this
        client, because nothing says which of its requests that is about.
        """
        behalf = Behalf(answers, principal, log_level) if answers is not None else None
        if isinstance(params, t.CallToolRequestParams):
            return await self._call(params, timeout_s, on_progress, behalf)
        return await self._ask(
            method, params, t.ProtocolType, timeout_s, on_progress, behalf=behalf
        )

    # ------------------------------------------------------------ the conversation itself

    async def ping(self) -> None:
        """See whether the server is there; where there is no ping, discovery tells (D23)."""
        if PING in self.peer.revision.methods:
            await self._ask(PING, t.RequestParams(), t.EmptyResult)
            return
        found = await self._ask(DISCOVER, t.RequestParams(), t.DiscoverResult, fresh=True)
        info = convert_to(t.ResultMeta, found.meta or {}).server_info
        self._found = Peer(self.peer.revision, found.capabilities, info)
        self.instructions: str | None = found.instructions

    async def set_log_level(self, level: t.LoggingLevel) -> None:
        """How much is to be logged from now on."""
        if self.peer.revision.log_control is LogControl.BY_METHOD:
            await self._ask(SET_LEVEL, t.SetLevelRequestParams(level=level), t.EmptyResult)
        self._level = level

    async def roots_changed(self, roots: Rooted | None = None) -> None:
        """Others are the roots now: these, or what the handler says that was given for them.

        The server is told, where it can be; and whoever asks from now on gets the new ones.
        """
        mine = self._answers.roots
        if mine is None:
            raise LocalProtocolError("this client offers no roots; connect with roots=")
        if roots is not None:
            mine.replace(roots)
            self._start_watches()
        await self._tell_of_roots()

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: Iterable[str] = (),
    ) -> AsyncGenerator[Listening]:
        """Changes of lists and of these resources, from the moment this is entered.

        >>> async with client.listen(tools=True, resources=["notes://a"]) as changes:
        ...     async for change in changes: ...
        """
        wanted = t.SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resource_list or None,
            resource_subscriptions=list(resources) or None,
        )
        self._check_loop()
        listening = Listening(wanted)
        following = Following(self._speaker, self._listenings, listening, self.timeout_s)
        on_subscriptions = self.peer.revision.change_notifications is ChangeNotifications.LISTEN
        async with following.subscribed() if on_subscriptions else following.in_session():
            yield listening

    # ------------------------------------------------------------ pages

    async def _items(
        self, method: str, kind: type[R], items: Callable[[R], Sequence[N]], *, fresh: bool
    ) -> list[N]:
        """What is on all pages of a list, each page as fresh as it said it would be."""
        try:
            return await self._all_items(method, kind, items, fresh)
        except RemoteError as error:
            bad = error.code == self.peer.revision.codes[FaultKind.INVALID_PARAMS]
            if fresh or not bad or not self._cache.forget([method]):
                raise
        return await self._all_items(method, kind, items, True)  # R1026: a kept cursor was bad

    async def _all_items(
        self, method: str, kind: type[R], items: Callable[[R], Sequence[N]], fresh: bool
    ) -> list[N]:
        """Only a missing cursor is the end, an empty one is not."""
        budget = ListBudget(self.name, method, self._max_list_bytes, self._max_list_items)
        found: list[N] = []
        cursor: str | None = None
        while True:
            params = t.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(method, params, kind, fresh=fresh, budget=budget)
            listed = items(page)
            budget.add_items(len(listed))
            found.extend(listed)
            cursor = page.next_cursor
            if cursor is None:
                return found
            budget.add_cursor(cursor)
