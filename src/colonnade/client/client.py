"""The client: the requests that a program sends to one server, in any revision and transport.

The client uses a `ClientTransport` and does not know what it is made of. Whether there is an
`initialize` handshake, whether input requests arrive as requests or in an `input_required` result,
and whether change notifications arrive in the session or on a subscription depends on the revision;
the interface is the same.

Rules: every wait has a timeout. Cancelling a call sends a cancellation to the server. A request
that the server's capabilities do not allow is refused before it is sent. A request that may have
had an effect is never sent again, except as the next `input_required` round.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.client.cache import CacheHints, HintedList, ListBudget
from colonnade.client.request import (
    BaseClient,
    Headers,
    OnLog,
    OnProgress,
    OriginalCaller,
    as_dict,
    client_extensions,
    complete_params,
    ignore_progress,
    prompt_params,
)
from colonnade.client.results import (
    Schemas,
    ToolResult,
    call_for_model,
    decode_returns,
    may_be_wrapped,
    show_crash,
)
from colonnade.client.roots import RootInputs
from colonnade.client.subscriptions import SUBSCRIBE, UNSUBSCRIBE, ChangeStream, ChangeSubscription
from colonnade.client.tools import ListedTool, ToolSchemas
from colonnade.client.transports import ProcessTransport
from colonnade.errors import (
    AuthError,
    ChannelError,
    ColonnadeError,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
    RemoteError,
)
from colonnade.ports import InputResponder
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import convert_to
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.input_requests import InputCapabilities
from colonnade.protocol.link.link import DISCOVER, PING, SET_LEVEL
from colonnade.protocol.negotiation import Peer, defined_in
from colonnade.protocol.revision import EVERY, ChangeNotifications, LogControl, OutputRoot, Tasks
from colonnade.protocol.types import CallToolRequestParams, CallToolResult
from colonnade.providers import anthropic, openai
from colonnade.providers.tool_calls import ModelToolCall

if TYPE_CHECKING:
    from colonnade.client.extensions import OnExtensionNotification
    from colonnade.client.tasks.task import ClientTask
    from colonnade.protocol.forwarded import ResultOrigin

# Debounce between two keystrokes.
DEBOUNCE_S = 0.15
# Long enough for a user who edits one word back and forth.
CACHE_S = 30.0
MAX_CACHED = 100
# Of one cached completion. The most values that the protocol allows, 100, take a tenth of it.
MAX_CACHED_CHARS = 64 * 1024

Ask: TypeAlias = Callable[[str], Awaitable[t.Completion]]


class Completer:
    """Completes one argument: `await completer("par")`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._latest: object = None
        self._cache: dict[str, tuple[float, t.Completion]] = {}

    async def __call__(self, value: str) -> t.Completion | None:
        """The completion of a value; None if a newer value was requested in the meantime."""
        token = self._latest = object()
        loop = asyncio.get_running_loop()
        kept = self._cache.get(value)
        if kept is not None and loop.time() < kept[0]:
            return kept[1]
        await asyncio.sleep(DEBOUNCE_S)
        if self._latest is not token:
            return None
        found = await self._ask(value)
        self._cache.pop(value, None)
        while len(self._cache) >= MAX_CACHED:
            self._cache.pop(next(iter(self._cache)))
        if sum(map(len, found.values)) <= MAX_CACHED_CHARS:
            self._cache[value] = (loop.time() + CACHE_S, found)
        return found if self._latest is token else None


__all__ = ["Client", "OnLog", "OnProgress"]

# The error codes for an unknown resource, in the newest revision and in older ones.
MISSING = frozenset(revision.codes[FaultKind.RESOURCE_MISSING] for revision in EVERY)
CALL = "tools/call"
# Timeout for listing the tools to get the output schema of a tool that has run: the result must not
# be delayed much by it.
SCHEMAS_S = 5.0

T = TypeVar("T")
R = TypeVar("R", bound=t.ListResult)
N = TypeVar("N", bound=t.ProtocolType)


class Client(BaseClient):
    """A client of one server. `connect` returns one that is open. A client that is created directly
    takes a transport, and must be opened with `open`."""

    if not TYPE_CHECKING:  # type checkers use the inherited signature

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
        """The negotiated protocol revision."""
        return self.peer.revision.date

    @property
    def server(self) -> t.Implementation | None:
        """The server's `serverInfo`: for display and logs, not for decisions."""
        return self.peer.info

    @property
    def capabilities(self) -> t.ServerCapabilities:
        """The server's capabilities, as it last sent them."""
        return cast("t.ServerCapabilities", self.peer.capabilities)

    # ------------------------------------------------------------ tools

    async def list_tools(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[ListedTool]:
        """List all tools, from all pages. `fresh` skips the cache; each page is added to `pages`,
        as the server sent it."""
        changes = self._cache.changes
        kind = t.ListToolsResult
        tools = await self._items(
            "tools/list", kind, lambda page: page.tools, fresh=fresh, pages=pages
        )
        mirrors = self._transport.mirrors and self.peer.revision.http.routing_headers
        stale = changes != self._cache.changes
        tasks = self._has_core_tasks
        return self._tools.update(tools, mirrors=mirrors, stale=stale, tasks=tasks)

    def share_schemas(self, listed: Sequence[t.Tool], equal: ToolSchemas) -> None:
        """Replace the schemas of this client's list of tools by the schemas of an equal list, so
        that several clients share them."""
        self._tools.share(listed, equal)

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
        """Call a tool. An error of the tool is a result; a protocol error is raised.

        `returns` is the type of `result.data`. Each progress notification restarts the timeout.
        """
        given = arguments if isinstance(arguments, dict) else as_dict(arguments, name)
        params = CallToolRequestParams(name=name, arguments=Raw(encode_finite(given)))
        report = on_progress or self._on_progress or ignore_progress
        headers = self._tools.headers(params) if self._tools.mirrored else ()
        try:
            if name in self._tools.required_tasks:
                result = await self._call_as_task(params, timeout_s, report, headers)
            else:
                result = await self._ask(CALL, params, CallToolResult, timeout_s, report, headers)
        except ColonnadeError as error:
            result = await self._call_again(error, params, timeout_s, report, headers)
        if not isinstance(result, CallToolResult):
            result = await self._follow(result, params, timeout_s, report)
        return await self._make_result(name, result, returns)

    async def _make_result(
        self, name: str, result: t.CallToolResult, returns: Any
    ) -> ToolResult[Any]:
        """The result of a tool for the program."""
        structured, wrapped = result.structured_content, False
        may_wrap = type(structured) is dict and may_be_wrapped(structured)
        if (
            structured is not UNSET
            and not self._tools.listed
            and not result.is_error
            and (may_wrap or not self._is_local)  # a server in this process checks its own values
        ):
            await self._learn_schemas()
        if may_wrap:
            wrapped = self._is_wrapped(name, result)
        output = self._tools.output(name) if self._tools.outputs else None
        if result.is_error:
            self._show_crash(result)
        return ToolResult(name, result, returns, output, wrapped=wrapped)

    def _show_crash(self, outcome: t.CallToolResult | RemoteError) -> None:
        transport = self._transport
        if isinstance(transport, ProcessTransport) and not transport.has_stderr_handler:
            show_crash(transport.child, outcome)

    async def _call(
        self,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        on_progress: OnProgress | None,
        caller: OriginalCaller | None,
    ) -> t.ProtocolType:
        """Call a tool and return the protocol's result."""
        report = on_progress or self._on_progress or ignore_progress
        if (
            params.task is None
            and (caller is None or not caller.wants_task)
            and params.name not in self._tools.required_tasks
        ):  # as nearly all: what `_start_call` does for them, without a coroutine of its own
            headers: Headers = ()
            if self._tools.mirrored or (caller is not None and caller.headers):
                headers = self._param_headers(params, caller)
            kind = t.CallToolResult
            try:
                result: t.ProtocolType = await self._ask(
                    CALL, params, kind, timeout_s, report, headers, caller=caller
                )
            except ColonnadeError as error:
                result = await self._call_again(error, params, timeout_s, report, headers, caller)
        else:
            result = await self._start_call(params, timeout_s, report, caller)
        if not isinstance(result, CallToolResult) and not isinstance(result, t.InputRequiredResult):
            result = await self._follow(result, params, timeout_s, report, caller)
        return result

    async def _start_call(
        self,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        report: OnProgress,
        caller: OriginalCaller | None = None,
        *,
        wants_task: bool = False,
    ) -> t.ProtocolType:
        """Call a tool; the result may be a task. `wants_task` asks for one, if that is possible."""
        if caller is not None:
            wants_task = caller.wants_task
        if wants_task and self._has_core_tasks and not self._tools.listed:
            await self.list_tools()
        headers = self._param_headers(params, caller)
        kind = t.CallToolResult
        try:
            if params.name in (self._tools.tasks if wants_task else self._tools.required_tasks):
                return await self._call_as_task(params, timeout_s, report, headers)
            if params.task is not None:
                params = replace(params, task=None)
            return await self._ask(CALL, params, kind, timeout_s, report, headers, caller=caller)
        except ColonnadeError as error:
            return await self._call_again(error, params, timeout_s, report, headers, caller)

    def _param_headers(
        self, params: t.CallToolRequestParams, caller: OriginalCaller | None
    ) -> Headers:
        """The `Mcp-Param` headers of a call."""
        headers = self._tools.headers(params) if self._tools.mirrored else ()
        if caller is None or not caller.headers or not self.peer.revision.http.routing_headers:
            return headers
        from colonnade.protocol.http.param_headers import unknown_params

        known = self._tools.mirrored.get(params.name, ())
        return (*headers, *unknown_params(caller.headers, known))

    async def _call_again(
        self,
        error: ColonnadeError,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        report: OnProgress,
        before: Headers,
        caller: OriginalCaller | None = None,
    ) -> t.ProtocolType:
        """Call again if the call was refused because of its `Mcp-Param` headers, or because the
        tool runs as a task only; otherwise raise the error, marked if the effect of the call is
        unknown."""
        if isinstance(error, RemoteError) and await self._needs_task(error, params.name):
            return await self._call_as_task(params, timeout_s, report, before)
        refused = False
        try:
            if not (isinstance(error, RemoteError) and self._is_mismatch(error)):
                raise error
            refused = True
            await self.list_tools(fresh=True)  # R0899
            refused = False
            headers = self._param_headers(params, caller)
            if headers == before:
                raise error
            kind = t.CallToolResult
            return await self._ask(CALL, params, kind, timeout_s, report, headers, caller=caller)
        except ChannelError as lost:
            if not (lost.not_sent or refused):  # D19
                lost.effect_unknown = True
            raise
        finally:
            del error  # it refers to this frame, if it was raised here

    @property
    def _has_core_tasks(self) -> bool:
        """Whether a call can ask for a task, as in 2025-11-25 (R0502)."""
        peer = self.peer
        return peer.revision.tasks is Tasks.CORE and peer.offers("tasks.requests.tools.call")

    async def _needs_task(self, error: RemoteError, name: str) -> bool:
        """Whether a tool that was refused runs as a task only (R0509): it has not run then."""
        unknown = self.peer.revision.codes[FaultKind.METHOD_NOT_FOUND]
        if error.code != unknown or not self._has_core_tasks or self._tools.listed:
            return False
        with contextlib.suppress(ColonnadeError):  # the refusal is the better error
            await self.list_tools()
        return name in self._tools.required_tasks

    async def _call_as_task(
        self,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        report: OnProgress,
        headers: Headers,
    ) -> t.ProtocolType:
        """Call a tool and ask for a task, as in 2025-11-25."""
        self._check_loop()
        seconds = self.timeout_s if timeout_s is None else timeout_s
        progressed = None if report is ignore_progress else self._progress_callback(report)
        try:
            return await self._about_tasks().create(params, seconds, progressed, headers)
        except ColonnadeError as error:
            raise self._with_server(error) from error.__cause__

    async def _follow(
        self,
        created: t.ProtocolType,
        params: t.CallToolRequestParams,
        timeout_s: float | None,
        report: OnProgress,
        caller: OriginalCaller | None = None,
    ) -> t.CallToolResult:
        """Wait for the end of the task that a call became; it is cancelled with the call."""
        task = self._make_task(params.name, timeout_s, created, report, caller)
        task.created = created
        on_task = caller.on_task if caller is not None else None
        if on_task is not None:
            try:
                if await on_task(task):
                    return task.immediate_result()
            except BaseException:
                await task.abandon()
                raise
        try:
            return await task.outcome_or_cancel()
        except ChannelError as error:
            error.not_sent = False  # the call was sent; only a request about its task was not
            raise
        except AuthError as error:
            error.accepted = True
            raise

    async def _learn_schemas(self) -> None:
        """List the tools once if the program has not: structured content is validated against the
        output schema whether or not the tools were listed before the call (R0378)."""
        async with self._learning:
            if self._tools.listed:  # by another call in the meantime
                return
            self._tools.listed = True
            # The tool has run: a failure here must not lose its result.
            with contextlib.suppress(ColonnadeError, TimeoutError):
                async with asyncio.timeout(SCHEMAS_S):
                    await self.list_tools()

    def _is_wrapped(self, name: str, result: t.CallToolResult) -> bool:
        """Whether the value is wrapped in an object, as far as the tool list says."""
        if result.is_error:
            return False
        bare = self.peer.revision.output_root is OutputRoot.ANY
        return self._tools.wraps(name, result.meta or {}, bare=bare)

    def _is_mismatch(self, error: RemoteError) -> bool:
        revision = self.peer.revision
        mirrors = self._transport.mirrors and revision.http.routing_headers
        return mirrors and error.code == revision.codes[FaultKind.HEADER_MISMATCH]

    # ------------------------------------------------------------ tasks

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> "ClientTask":
        """Call a tool and return as soon as it runs as a task: iterate over its states, or wait
        for `task.result()`. `task.handle` finds it again in another process.

        A call that the server does not run as a task is done already when this returns. The task
        goes on if the wait for it is cancelled; `task.cancel()` ends it.
        """
        raw = Raw(encode_finite(as_dict(arguments, name)))
        params = CallToolRequestParams(name=name, arguments=raw)
        report = on_progress or self._on_progress or ignore_progress
        created = await self._start_call(params, timeout_s, report, wants_task=True)
        return self._make_task(name, timeout_s, created, report)

    def resume_task(
        self,
        handle: str,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: InputResponder | None = None,
    ) -> "ClientTask":
        """The task of a handle, which `task.handle` returned here or in another process. Nothing is
        sent yet. With `answers` its input requests go there, as with `ask`.

        Raises `InvalidArgument` for a handle of another server.
        """
        from colonnade.client.tasks.task import ClientTask
        from colonnade.protocol.tasks.client import TaskHandle

        found = TaskHandle.decode(handle)
        requests = self._about_tasks()
        if found.server != requests.endpoint:
            raise InvalidArgument(
                f"this is the handle of a task of another server, {found.server!r}; this client is "
                f"connected to {requests.endpoint!r}",
                argument="handle",
            )
        self._check_tasks()
        return ClientTask(
            requests,
            found.tool,
            self._make_result,
            self.timeout_s if timeout_s is None else timeout_s,
            task_id=found.task_id,
            responder=answers,
            on_progress=on_progress or self._on_progress,
            resumed=True,
        )

    def _check_tasks(self) -> None:
        """Raise `LocalProtocolError` if requests about tasks cannot be sent."""
        revision = self.peer.revision
        if revision.tasks is Tasks.NONE:
            raise LocalProtocolError(
                f"{self._server_label} uses revision {revision.date}, which has no tasks"
            )
        if revision.tasks is Tasks.EXTENSION and t.TASKS_EXTENSION_ID not in self._declared:
            raise LocalProtocolError("this client was opened with tasks=False")

    def _make_task(
        self,
        name: str,
        timeout_s: float | None,
        created: t.ProtocolType,
        report: OnProgress,
        caller: OriginalCaller | None = None,
    ) -> "ClientTask":
        """The task that a call has become, or one that is done already."""
        from colonnade.client.tasks.task import ClientTask
        from colonnade.protocol.tasks.client import state_of

        done = isinstance(created, CallToolResult)
        task = ClientTask(
            self._about_tasks(),
            name,
            self._make_result,
            self.timeout_s if timeout_s is None else timeout_s,
            state=None if done else state_of(cast("t.ExtCreateTaskResult", created)),
            result=created if done else None,
            responder=None if caller is None else caller.answers,
            declared=None if caller is None else caller.declared,
            on_progress=None if report is ignore_progress else report,
        )
        meta: dict[str, Any] = getattr(created, "meta", None) or {}
        immediate = meta.get(t.MODEL_IMMEDIATE_RESPONSE_KEY)
        task.immediate_response = immediate if isinstance(immediate, str) else None
        return task

    # ------------------------------------------------------------ tool calls of models

    async def call_openai(
        self,
        tool_call: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Run a tool call of an OpenAI model, from Chat Completions or Responses, as JSON or as an
        object of OpenAI's library. `result.to_openai()` is the message to send back.

        An invalid call is a result that tells the model what is wrong; only errors that it cannot
        correct are raised.
        """
        return await self._call_for_model(openai.read_call(tool_call), timeout_s, on_progress)

    async def call_anthropic(
        self,
        tool_use: object,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Run the call of a `tool_use` block of an Anthropic model. `result.to_anthropic()` is the
        block to send back. Otherwise like `call_openai`."""
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

    async def list_resources(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.Resource]:
        """List all resources, from all pages."""
        kind = t.ListResourcesResult
        return await self._items(
            "resources/list", kind, lambda page: page.resources, fresh=fresh, pages=pages
        )

    async def list_resource_templates(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.ResourceTemplate]:
        """List all resource templates, from all pages."""
        method, kind = "resources/templates/list", t.ListResourceTemplatesResult
        return await self._items(
            method, kind, lambda page: page.resource_templates, fresh=fresh, pages=pages
        )

    async def read_resource(
        self, uri: str, *, timeout_s: float | None = None, fresh: bool = False
    ) -> t.ReadResourceResult:
        """Read the contents of a resource."""
        params = t.ReadResourceRequestParams(uri=uri)
        kind = t.ReadResourceResult
        try:
            return await self._ask("resources/read", params, kind, timeout_s, fresh=fresh)
        except RemoteError as error:
            self._show_crash(error)
            if error.code in MISSING:  # R0748, R0970
                error.args = (f"{self.name} has no resource {uri!r}: {error}",)
            raise

    async def subscribe(self, uri: str) -> None:
        """Subscribe to updates of a resource, in revisions with sessions; `listen` works in all."""
        params = t.SubscribeRequestParams(uri=uri)
        await self._ask(SUBSCRIBE, params, t.EmptyResult)
        self._change_streams.manual.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from updates of a resource."""
        params = t.UnsubscribeRequestParams(uri=uri)
        self._change_streams.manual.discard(uri)
        await self._ask(UNSUBSCRIBE, params, t.EmptyResult)

    # ------------------------------------------------------------ prompts and completions

    async def list_prompts(
        self, *, fresh: bool = False, pages: list[Raw] | None = None
    ) -> list[t.Prompt]:
        """List all prompts, from all pages."""
        kind = t.ListPromptsResult
        return await self._items(
            "prompts/list", kind, lambda page: page.prompts, fresh=fresh, pages=pages
        )

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """Get the messages of a prompt."""
        params = prompt_params(name, arguments)
        try:
            return await self._ask("prompts/get", params, t.GetPromptResult, timeout_s)
        except RemoteError as error:
            self._show_crash(error)
            raise

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument of a prompt, or a variable of a resource template.

        `context` has the other arguments that are known.
        """
        params = complete_params(argument, value, prompt, template, context)
        return (await self._ask("completion/complete", params, t.CompleteResult)).completion

    def completer(
        self,
        argument: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> Completer:
        """Completion while a user types, debounced and cached.

        >>> completer = client.completer("city", prompt="forecast")
        >>> await completer("Os")  # None if a newer value was requested in the meantime
        """

        def ask(value: str) -> Awaitable[t.Completion]:
            return self.complete(argument, value, prompt=prompt, template=template, context=context)

        return Completer(ask)

    # ------------------------------------------------------------ extensions

    @overload
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: type[T],
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> T: ...
    @overload
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]: ...
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        extension: str,
        returns: Any = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """Send a request of an extension that both sides declared, and return its result: a dict,
        or an object of the type `returns`.

        Raises `LocalProtocolError` if one side has not declared the extension; nothing is sent
        then.
        """
        declared = self._extensions or client_extensions({})
        sent = declared.params(method, params, extension, self.peer, self._server_label)
        report = on_progress or self._on_progress or ignore_progress
        result: Any = await self._ask(method, sent, t.Result, timeout_s, report)
        raw = encode_finite(result.members)
        if returns is None:
            return cast("dict[str, Any]", msgspec.json.decode(raw))
        return decode_returns(returns, raw, f"the result of {method} of {self._server_label}")

    def add_notification_handler(
        self, method: str, handler: "OnExtensionNotification", *, extension: str
    ) -> None:
        """Call a function with the params of each notification of an extension:
        `client.add_notification_handler("search/found", show, extension="com.example/search")`.

        A later handler of the same method replaces it.
        """
        declared = self._extensions or client_extensions({})
        declared.add_handler(method, handler, extension)

    # ------------------------------------------------------------ forwarding requests

    async def ask(
        self,
        method: str,
        params: t.RequestParams,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        answers: InputResponder | None = None,
        principal: str = "",
        log_level: t.LoggingLevel | None = None,
        wants_task: bool = False,
        on_task: "Callable[[ClientTask], Awaitable[bool]] | None" = None,
        origin: "ResultOrigin | None" = None,
        declared: InputCapabilities | None = None,
        relay: bool = False,
        relay_errors: bool = False,
        headers: Mapping[bytes, bytes] | None = None,
    ) -> t.ProtocolType:
        """Send any request and return the protocol's result: for gateways that forward requests.

        With `answers` the request is sent on behalf of another caller: the input requests of an
        `input_required` result go there instead of to this client's callbacks. `declared` are the
        input capabilities of the caller, in revisions where each request declares them; without it,
        and in a session, this client's callbacks decide. `principal` is the caller, for the cache,
        and `log_level` the caller's level, in revisions where each request has one. `wants_task` is
        whether the caller asks for a task, in revisions where the client decides that; `on_task` is
        called with the task that a call has become, and if it returns True, the call returns at
        once, and the caller waits for the task itself. Input requests that arrive as
        requests of the server go to this client, since they do not say which request they belong
        to. `origin` gets the result as it was written, and its revision.

        With `relay` an `input_required` result is returned instead of answered, and the caller
        sends the next round itself, with `input_responses` and `request_state` in its params; with
        `relay_errors` the error that requires URL elicitations (-32042) is raised. `headers` are
        those of the caller's request: `Mcp-Param` headers that mirror no known argument are
        forwarded (R0900).
        """
        caller = None
        if answers is not None:
            caller = OriginalCaller(
                answers,
                principal,
                log_level,
                wants_task,
                on_task,
                origin,
                declared,
                relay,
                relay_errors,
                headers,
            )
        return await self.forward(method, params, timeout_s, on_progress, caller)

    def forward(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float | None,
        on_progress: OnProgress | None,
        caller: OriginalCaller | None,
    ) -> Awaitable[t.ProtocolType]:
        """`ask`, with what it takes of a caller in one argument."""
        if isinstance(params, t.CallToolRequestParams):
            return self._call(params, timeout_s, on_progress, caller)
        return self._ask(method, params, t.ProtocolType, timeout_s, on_progress, caller=caller)

    @asynccontextmanager
    async def listen_to_tasks(self, task_ids: Iterable[str]) -> AsyncGenerator[ChangeStream]:
        """Listen for changes of tasks of the extension, from the moment this is entered: for
        gateways. Those that the server agreed to are in `agreed.task_ids` of the stream."""
        self._check_loop()
        stream = ChangeStream(t.SubscriptionFilter(task_ids=list(task_ids)))
        subscription = ChangeSubscription(
            self._connection, self._change_streams, stream, self.timeout_s
        )
        async with subscription.subscribed():
            yield stream

    # ------------------------------------------------------------ the connection

    async def ping(self) -> None:
        """Ping the server; in revisions without `ping`, send `server/discover` (D23)."""
        if PING in self.peer.revision.methods:
            await self._ask(PING, t.RequestParams(), t.EmptyResult)
            return
        found = await self._ask(DISCOVER, t.RequestParams(), t.DiscoverResult, fresh=True)
        info = convert_to(t.ResultMeta, found.meta or {}).server_info
        capabilities = defined_in(self.peer.revision, found.capabilities)
        self._discovered = Peer(self.peer.revision, capabilities, info)
        self.instructions: str | None = found.instructions

    async def set_log_level(self, level: t.LoggingLevel) -> None:
        """Set the minimum level of the server's log messages."""
        if self.peer.revision.log_control is LogControl.BY_METHOD:
            await self._ask(SET_LEVEL, t.SetLevelRequestParams(level=level), t.EmptyResult)
        self._level = level

    async def roots_changed(self, roots: RootInputs | None = None) -> None:
        """Replace the roots, or announce that those of the `roots` callback have changed.

        Sends `notifications/roots/list_changed`, in revisions that have it; later `roots/list`
        requests get the new roots.
        """
        client_roots = self._callbacks.roots
        if client_roots is None:
            raise LocalProtocolError("this client offers no roots; connect with roots=")
        if roots is not None:
            client_roots.replace(roots)
            self._start_watches()
        await self._send_roots_changed()

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resource_list: bool = False,
        resources: Iterable[str] = (),
    ) -> AsyncGenerator[ChangeStream]:
        """Listen for changes of lists and of these resources, from the moment this is entered.

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
        stream = ChangeStream(wanted)
        subscription = ChangeSubscription(
            self._connection, self._change_streams, stream, self.timeout_s
        )
        uses_listen = self.peer.revision.change_notifications is ChangeNotifications.LISTEN
        async with subscription.subscribed() if uses_listen else subscription.in_session():
            yield stream

    # ------------------------------------------------------------ pages

    async def _items(
        self,
        method: str,
        kind: type[R],
        items: Callable[[R], Sequence[N]],
        *,
        fresh: bool,
        pages: list[Raw] | None,
    ) -> list[N]:
        """All items of a list, each page from the cache if it is fresh."""
        try:
            return await self._all_items(method, kind, items, fresh, pages)
        except RemoteError as error:
            bad = error.code == self.peer.revision.codes[FaultKind.INVALID_PARAMS]
            if fresh or not bad or not self._cache.invalidate([method]):
                raise
        if pages is not None:
            pages.clear()
        return await self._all_items(
            method, kind, items, True, pages
        )  # R1026: a cached cursor was invalid

    async def _all_items(
        self,
        method: str,
        kind: type[R],
        items: Callable[[R], Sequence[N]],
        fresh: bool,
        pages: list[Raw] | None,
    ) -> list[N]:
        """Read page by page. Only a missing cursor ends the list, an empty one does not."""
        most = self._max_list_bytes, self._max_list_items
        budget = ListBudget(self.name, method, *most, pages)
        result: HintedList[N] = HintedList()
        hints: CacheHints | None = None
        cursor: str | None = None
        while True:
            params = t.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(method, params, kind, fresh=fresh, budget=budget)
            listed = items(page)
            budget.add_items(len(listed))
            result.extend(listed)
            found = CacheHints(page.ttl_ms, page.cache_scope or "private")
            hints = found if hints is None else hints.merged(found)
            cursor = page.next_cursor
            if cursor is None:
                result.hints = hints
                return result
            budget.add_cursor(cursor)
