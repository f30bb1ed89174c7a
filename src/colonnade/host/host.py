"""`Host`: many servers behind one set of tools, prompts and resources.

Rules: every request of this program goes through the host's one handler and its middleware. What a
server, the router or a middleware rejects is raised as a client would raise it (`RemoteError`);
transport errors (the server is gone, a timeout) are raised as they are.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, get_args, overload

from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.client.connect import Target, client_info
from colonnade.client.request import OnLog, OnProgress, as_dict, complete_params, prompt_params
from colonnade.client.results import Schemas, ToolResult, call_for_model, may_be_wrapped
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    LocalProtocolError,
    RemoteError,
    ToolError,
)
from colonnade.host.agent.loop import Model, Run, RunOptions, run
from colonnade.host.config.inline import configured, is_broken
from colonnade.host.config.settings import Config, HostProblem, ServerEntry
from colonnade.host.input_requests import InputRequestHandler, OnInputRequest
from colonnade.host.router import (
    PROGRESS_TOKEN,
    HostResult,
    LocalOptions,
    LocalRequestContext,
    local_exchange,
)
from colonnade.host.runtime import HostRuntime, OnChange, OnEvent
from colonnade.host.servers.listings import (
    WAIT_S,
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    ListKind,
    with_servers,
)
from colonnade.host.servers.session import State, Status
from colonnade.ports import Handler, Middleware, Store
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.revision import NEWEST, error_code
from colonnade.providers import anthropic, openai
from colonnade.providers.tool_calls import ModelToolCall

if TYPE_CHECKING:  # most servers need no authorization, and many hosts no files
    from colonnade.auth.client.login import Auth
    from colonnade.client.tasks.task import ClientTask
    from colonnade.host.config.lookups import Inputs, OnInput
    from colonnade.host.config.reader import File
    from colonnade.host.config.trust import Trust
    from colonnade.host.tasks import HostTask, HostTaskRecords
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.host")

T = TypeVar("T")


class Host:
    """Servers by their keys, and everything that they offer.

    - A server is whatever `connect` takes, or an `ServerEntry` with settings of its own.
    - `on_input_request` answers elicitation and sampling of all servers; without it neither is
      advertised.
    - `on_event` is called when a server starts, stops or fails.
    - `middleware` is called for every request, the first outermost.
    - `auth` gives the credentials for a URL.
    - `wait_s` is how long a list of all servers waits for one server.
    - `store` keeps the tasks that calls have become, so that `tasks` finds them after a restart;
      without it they are known as long as the host is.
    - `name`, `version` and `title` are the `clientInfo` that servers are sent, as with `connect`.
    - `telemetry=True` records spans and metrics with OpenTelemetry, if its SDK is configured; a
      `Telemetry` with `metrics=` serves them for Prometheus while the host is entered.

    Most methods take `caller=`, the name of the user that a request is made for. A server that
    keeps state for a connection never serves two callers on one connection.
    """

    def __init__(
        self,
        servers: Mapping[str, Target | ServerEntry] | Config,
        *,
        on_input_request: OnInputRequest | None = None,
        on_event: OnEvent | None = None,
        middleware: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        store: Store | None = None,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
        telemetry: "bool | Telemetry" = False,
    ) -> None:
        self._read: Callable[[], Config] | None = None
        # The last configuration that was valid.
        self._valid: Config = configured(servers)
        self._exit_stack = AsyncExitStack()
        self._telemetry = self._watched(telemetry) if telemetry is not False else None
        self._runtime = HostRuntime(
            self._valid,
            InputRequestHandler(on_input_request),
            middleware=middleware,
            wait_s=wait_s,
            on_event=on_event,
            auth=auth,
            info=client_info(name, version, title),
            telemetry=telemetry,
        )
        self._store = store
        self._task_records: HostTaskRecords | None = None

    @classmethod
    def from_config(
        cls,
        paths: "File | Sequence[File]",
        *,
        trust: "Trust" = None,
        on_input: "OnInput | Inputs | None" = None,
        folder: "File | None" = None,
        on_input_request: OnInputRequest | None = None,
        on_event: OnEvent | None = None,
        middleware: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        store: Store | None = None,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
        telemetry: "bool | Telemetry" = False,
    ) -> "Host":
        """A host with the servers of one or several configuration files: of Claude Desktop, Claude
        Code, VS Code, Cursor, Codex, or `colonnade.toml`. Errors in a file, or a missing file, are
        in `problems` and are logged; nothing is raised.

        A project's file is used only if it is trusted: `trust` is called to decide, or is True.
        `on_input` answers the inputs of VS Code, and `folder` is the working folder, by default the
        current one. The other arguments are those of `Host`.
        """
        from colonnade.host.config.lookups import Inputs
        from colonnade.host.config.reader import read_config

        # Keeps the answers, so that a reload does not prompt again.
        inputs = on_input if isinstance(on_input, Inputs) else Inputs(on_input)

        logged: set[HostProblem] = set()

        def read() -> Config:
            config = read_config(paths, trust=trust, on_input=inputs, folder=folder)
            for problem in config.problems:
                if problem not in logged:
                    log.warning("%s", problem)
            logged.clear()  # a problem that was fixed is logged again when it comes back
            logged.update(config.problems)
            return config

        host = cls(
            read(),
            on_input_request=on_input_request,
            on_event=on_event,
            middleware=middleware,
            auth=auth,
            wait_s=wait_s,
            store=store,
            name=name,
            version=version,
            title=title,
            telemetry=telemetry,
        )
        host._read = read
        return host

    def __repr__(self) -> str:
        return f"<Host of {', '.join(map(repr, self.servers)) or 'no servers'}>"

    def _watched(self, given: "bool | Telemetry") -> "Telemetry | None":
        """The telemetry of this host, which shows the state of its servers."""
        from colonnade.telemetry.telemetry import as_telemetry

        telemetry = as_telemetry(given)
        if telemetry is not None:

            def read() -> list[tuple[str, str, int]]:
                return [(one.key, one.state, one.crashes) for one in self.status()]

            self._exit_stack.callback(telemetry.watch_host(read, get_args(State)))
        return telemetry

    async def __aenter__(self) -> "Host":
        telemetry = self._telemetry
        if telemetry is not None and telemetry.metrics_address is not None:
            from colonnade.transport.http_server.runner import AppListener

            listener = AppListener(telemetry.metrics_app, telemetry.metrics_address)
            await self._exit_stack.enter_async_context(listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every server; calls in flight fail. May be called at any time, and twice."""
        await self._runtime.close()
        await self._exit_stack.aclose()

    # ------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False, caller: str | None = None) -> list[HostTool]:
        """Every tool of every server that can be listed; `host.problems` has the errors of the
        others. With `fresh`, every server is asked again."""
        listed = await self._list("tools/list", "tools", fresh, caller)
        tools = cast("t.ListToolsResult", listed.result).tools
        return with_servers(tools, listed.lists, lambda one: one.name)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult[T]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult[Any]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult[Any]:
        """Call a tool by its qualified name or an alias; only its server is started.

        An error of the tool is a result. Raises `RemoteError` if the server or this host rejects
        the call, `ChannelError` if the server does not respond, and `Refused` if a middleware
        refuses. `meta` is sent along, except for keys that the protocol reserves.
        """
        request = self._call_context(name, arguments, caller, on_progress, on_log, meta)
        kept: list[HostTask] = []

        async def on_task(server: str, task: "ClientTask") -> bool:
            try:
                found = await self._keep_task(server, name, caller, task)
            except ColonnadeError as error:  # the call does not depend on it
                log.warning("a task of %s is not kept: %s", server, error)
                return False
            if found is not None:
                kept.append(found)
            return False

        options = LocalOptions(timeout_s, on_task=on_task)
        try:
            return await self._result(name, request, options, returns)
        except ChannelError:
            if not kept:
                raise
            return (await self._resume(kept.pop())).returning(returns)
        finally:
            for task in kept:
                with suppress(ColonnadeError):  # its record expires
                    await task.forget()

    async def _resume(self, task: "HostTask") -> ToolResult[Any]:
        """Wait for the task of a call whose connection was lost, as the caller would have."""
        try:
            return await task.result()
        except asyncio.CancelledError:
            with suppress(ColonnadeError):
                await task.cancel()
            raise

    def _call_context(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        caller: str | None,
        on_progress: OnProgress | None,
        on_log: OnLog | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> LocalRequestContext:
        plain = arguments if isinstance(arguments, dict) else as_dict(arguments, name)
        raw = Raw(encode_finite(plain))
        given: dict[str, Any] | None = dict(meta) if meta else None
        if on_progress is not None:
            given = (given or {}) | {t.PROGRESS_TOKEN_KEY: PROGRESS_TOKEN}
        params = t.CallToolRequestParams(name=name, arguments=raw, meta=given)
        return self._context("tools/call", params, caller, on_progress, on_log)

    async def _result(
        self, name: str, request: LocalRequestContext, options: LocalOptions, returns: Any
    ) -> ToolResult[Any]:
        """Send a call, or wait for the task that one became, and return the result."""
        tool = None
        try:
            routed = await self._send(request, options)
            result, tool = cast("t.CallToolResult", routed.result), routed.tool
        except ToolError as error:  # of a middleware, with a message for the caller
            text = [t.TextContent(text=str(error))]
            result = t.CallToolResult(content=cast("list[t.ContentBlock]", text), is_error=True)
        if tool is None:  # a middleware returned a result of its own
            return ToolResult(name, result, returns, wrapped=False)
        listings, original = tool
        structured, wrapped = result.structured_content, False
        if structured is not UNSET and not result.is_error:
            await listings.learn_schemas(request.exchange.principal)
            wrapped = may_be_wrapped(structured) and listings.is_wrapped(original, result)
        return ToolResult(name, result, returns, listings.output(original), wrapped=wrapped)

    # ------------------------------------------------------------ tasks

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> "HostTask":
        """Call a tool and return as soon as it runs as a task; a call that its server does not run
        as one is done already when this returns. Otherwise as `call_tool`.

        The task is in `tasks` until its result was read, also in another process with the same
        store.
        """
        from colonnade.host.tasks import HostTask, HostTaskRecord

        request = self._call_context(name, arguments, caller, on_progress, on_log)
        kept: list[HostTask] = []

        async def on_task(server: str, task: "ClientTask") -> bool:
            found = await self._keep_task(server, name, caller, task, on_progress)
            if found is not None:
                kept.append(found)
            return found is not None

        options = LocalOptions(timeout_s, wants_task=True, on_task=on_task)
        result = await self._result(name, request, options, None)
        if kept:
            return kept[0]
        status: t.TaskStatus = "failed" if result.is_error else "completed"
        server = self.server_of(name) or ""
        record = HostTaskRecord("", server, name, caller or "", time.time(), status)
        return HostTask(self, self._records, record, result=result)

    def resume_task(
        self,
        handle: str,
        server: str,
        *,
        caller: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> "HostTask":
        """The task of a handle, which `task.handle` of a task of this server returned. Nothing is
        sent yet. Raises `InvalidArgument` for what is not a handle."""
        from colonnade.host.servers.naming import qualified_name
        from colonnade.host.tasks import HostTask, HostTaskRecord
        from colonnade.protocol.tasks.client import TaskHandle

        tool = qualified_name(server, TaskHandle.decode(handle).tool)
        record = HostTaskRecord(handle, server, tool, caller or "", time.time())
        return HostTask(self, self._records, record, on_progress=on_progress)

    async def tasks(self, *, caller: str | None = None, refresh: bool = True) -> "list[HostTask]":
        """The tasks that calls have become, the oldest first: those that have not ended, and those
        whose result was not read; of one caller, or of all.

        Their servers are asked for the present status of each; with `refresh=False` none is, and
        nothing is started.
        """
        from colonnade.host.tasks import HostTask, refresh_all

        records = await self._records.list(caller)
        found = [HostTask(self, self._records, one) for one in records]
        return await refresh_all(found) if refresh else found

    @property
    def _records(self) -> "HostTaskRecords":
        from colonnade.host.tasks import HostTaskRecords  # on use: most calls are no tasks

        if self._task_records is None:
            if self._store is None:
                from colonnade.store.memory import MemoryStore

                self._store = MemoryStore()
            self._task_records = HostTaskRecords(self._store)
        return self._task_records

    async def _keep_task(
        self,
        server: str,
        name: str,
        caller: str | None,
        task: "ClientTask",
        on_progress: OnProgress | None = None,
    ) -> "HostTask | None":
        """Keep a task that a call has become, before the call goes on (R1166)."""
        from colonnade.host.tasks import HostTask, new_record

        record = new_record(task, server, name, caller or "")
        if record is None:
            return None
        await self._records.put(record)
        return HostTask(
            self,
            self._records,
            record,
            immediate_response=task.immediate_response,
            on_progress=on_progress,
        )

    @asynccontextmanager
    async def open_task(self, task: "HostTask") -> "AsyncGenerator[ClientTask]":
        """A task in a session of its server: for `HostTask`."""
        params = t.CallToolRequestParams(name=task.tool)
        context = self._context("tools/call", params, task.caller)
        async with self._runtime.session(task.server, context) as call:
            yield call.client.resume_task(
                task.handle or "", on_progress=task.on_progress, answers=call
            )

    async def wait_for_task(self, task: "HostTask") -> ToolResult[Any]:
        """The result of a task, through all middleware: for `HostTask`."""
        params = t.ExtGetTaskRequestParams(task_id=task.id)
        request = self._context("tasks/get", params, task.caller)
        return await self._result(task.tool, request, LocalOptions(task=task), None)

    async def search(
        self, words: str, limit: int = 5, *, caller: str | None = None
    ) -> list[HostTool]:
        """The tools that match these words best, the best first: for a model that is not shown all
        of them."""
        tools = await self.list_tools(caller=caller)
        return await self._runtime.search.best(tools, words, limit)

    # ------------------------------------------------------------ models

    async def run(
        self, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
    ) -> Run:
        """Run the agent loop: offer the tools to a model, make its calls and send it the results,
        until it makes no more. `model` is a function of (messages, tools), sync or async, that
        returns a Chat Completions response, or an `OpenAICompatible`. Options (`RunOptions`):

        - `tools`: the names of the tools that it may call; all by default.
        - `max_rounds`, `max_calls` and `max_characters` (of one result) are limits.
        - `max_tools`: if there are more, a search tool is offered instead.
        - `on_call` is called before each call, and may raise `Refused`; `on_progress`, `on_result`
          and `on_message` are called with what follows.
        - `patience_s`: how long a call that has become a task is waited for; then the model
          gets a message that it runs, and the result in a later one.
        - `caller`: the name of the user that it runs for.
        """
        return await run(self, model, messages, **options)

    async def to_openai(
        self, api: openai.Api = "chat", *, strict: bool = True, caller: str | None = None
    ) -> list[Any]:
        """Every tool as an entry of `tools` for OpenAI; `call_openai` makes the calls."""
        tools = await self.list_tools(caller=caller)
        return [tool.to_openai(api, strict=strict) for tool in tools]

    async def to_anthropic(self, *, strict: bool = False, caller: str | None = None) -> list[Any]:
        """Every tool as an entry of `tools` for Anthropic; `call_anthropic` makes the calls."""
        tools = await self.list_tools(caller=caller)
        return [tool.to_anthropic(strict=strict) for tool in tools]

    async def call_openai(
        self,
        tool_call: object,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make a tool call of an OpenAI model. `result.to_openai()` is the message for it.

        An invalid call is a result that tells the model what is wrong; only errors that it cannot
        correct are raised.
        """
        call = openai.read_call(tool_call)
        return await self._call_for_model(call, caller, timeout_s, on_progress)

    async def call_anthropic(
        self,
        tool_use: object,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call of a `tool_use` block of an Anthropic model. `result.to_anthropic()` is the
        block for it. Otherwise as `call_openai`."""
        call = anthropic.read_call(tool_use)
        return await self._call_for_model(call, caller, timeout_s, on_progress)

    async def _call_for_model(
        self,
        call: ModelToolCall,
        caller: str | None,
        timeout_s: float | None,
        on_progress: OnProgress | None,
    ) -> ToolResult[Any]:
        async def relist() -> Schemas:
            tools = await self.list_tools(caller=caller)
            names = ((name, tool) for tool in tools for name in (tool.name, *tool.aliases))
            return {name: tool.input_schema for name, tool in names}

        def call_tool(name: str, arguments: dict[str, Any]) -> Awaitable[ToolResult[Any]]:
            return self.call_tool(
                name, arguments, caller=caller, timeout_s=timeout_s, on_progress=on_progress
            )

        tool = self._runtime.generation.tool(call.name, caller or "")
        known = {call.name: tool.input_schema} if tool is not None else {}
        return await call_for_model(call, known, relist, call_tool)

    # ------------------------------------------------------------ prompts and resources

    async def list_prompts(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostPrompt]:
        """Every prompt of every server that can be listed."""
        listed = await self._list("prompts/list", "prompts", fresh, caller)
        prompts = cast("t.ListPromptsResult", listed.result).prompts
        return with_servers(prompts, listed.lists, lambda one: one.name)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """The messages of a prompt, by its qualified name or an alias."""
        params = prompt_params(name, arguments)
        result = await self._request("prompts/get", params, caller, LocalOptions(timeout_s))
        return cast("t.GetPromptResult", result)

    async def list_resources(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostResource]:
        """Every resource of every server that can be listed, each with its own URI."""
        listed = await self._list("resources/list", "resources", fresh, caller)
        resources = cast("t.ListResourcesResult", listed.result).resources
        return with_servers(resources, listed.lists, lambda one: one.uri)

    async def list_resource_templates(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostResourceTemplate]:
        """Every resource template of every server that can be listed."""
        listed = await self._list("resources/templates/list", "templates", fresh, caller)
        templates = cast("t.ListResourceTemplatesResult", listed.result).resource_templates
        return with_servers(templates, listed.lists, lambda one: one.uri_template)

    async def read_resource(
        self,
        uri: str,
        server: str | None = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> t.ReadResourceResult:
        """The contents of a resource, from the server that lists it, or the one with the key
        `server`. A URI that several servers list is refused unless one is named."""
        params = t.ReadResourceRequestParams(uri=uri)
        options = LocalOptions(timeout_s, server)
        result = await self._request("resources/read", params, caller, options)
        return cast("t.ReadResourceResult", result)

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
        server: str | None = None,
        caller: str | None = None,
    ) -> t.Completion:
        """Completions of an argument of a prompt, or of a variable of a resource template."""
        params = complete_params(argument, value, prompt, template, context)
        options = LocalOptions(None, server)
        result = await self._request("completion/complete", params, caller, options)
        return cast("t.CompleteResult", result).completion

    # ------------------------------------------------------------ servers and callers

    def caller(self, name: str) -> "HostCaller":
        """The same tools, prompts and resources, with `caller=name` in every request."""
        return HostCaller(self, name)

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of all servers, in the order of the configuration."""
        return tuple(self._runtime.generation.servers)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the qualified names of each server, up to the `__`."""
        return self._runtime.generation.prefixes

    def server_of(self, name: str) -> str | None:
        """The key of the server of a qualified name or alias, whether it has such an item or not.
        No request is made."""
        try:
            return self._runtime.generation.server_for("tools", name, "").key
        except Fault:
            return None

    @property
    def problems(self) -> list[HostProblem]:
        """Errors in the configuration, and lists that failed the last time; everything else
        works."""
        return self._runtime.generation.problems

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed the last time, by key: the exceptions behind
        `problems`."""
        servers = self._runtime.generation.servers
        return {key: one.failure for key, one in servers.items() if one.failure is not None}

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server, by key; of those that were started."""
        servers = self._runtime.generation.servers
        return {key: one.instructions for key, one in servers.items() if one.instructions}

    def tool(self, name: str, caller: str = "") -> HostTool | None:
        """The tool of a qualified name or an alias, as it was last listed for this caller; None if
        it was not listed. For middleware that decides by the tool, under whichever name it was
        called."""
        return self._runtime.generation.tool(name, caller)

    def status(self) -> list[Status]:
        """The status of every server."""
        return [one.supervisor.status for one in self._runtime.generation.servers.values()]

    def restart(self, server: str) -> None:
        """Start a server again for its next call, also one that was given up."""
        try:
            self._runtime.generation.server(server).restart()
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None

    # ------------------------------------------------------------ middleware

    @property
    def handler(self) -> Handler:
        """The handler of all requests, inside the middleware: to serve this host to clients."""
        return self._runtime.handler

    def add_middleware(self, middleware: Middleware) -> Middleware:
        """Add a middleware inside those that are there."""
        self._runtime.add_middleware(middleware)
        return middleware

    # ------------------------------------------------------------ changes

    async def reload(
        self, servers: Mapping[str, Target | ServerEntry] | Config | None = None
    ) -> None:
        """Use other servers from now on; without an argument, read the files of `from_config`
        again. Servers with an unchanged entry go on; the others are stopped after their calls in
        flight. A file that cannot be read any more changes nothing but `problems`."""
        if servers is not None:
            config = self._valid = configured(servers)
        elif self._read is None:
            raise LocalProtocolError("this host has no files; pass the servers to reload(…)")
        else:
            config = self._read()
            if is_broken(config, self._valid):
                config = replace(config, entries=self._valid.entries)
            else:
                self._valid = config
        self._runtime.reload(config)

    def watch(self, callback: OnChange) -> Callable[[], None]:
        """Call a callback when lists change: a server sent `list_changed`, or there was a reload.
        Ends when the returned function is called."""
        return self._runtime.watch(callback)

    # ------------------------------------------------------------ requests

    async def _list(
        self, method: str, kind: ListKind, fresh: bool, caller: str | None
    ) -> HostResult:
        request = self._context(method, t.PaginatedRequestParams(), caller)
        listed = await self._send(request, LocalOptions(fresh=fresh))
        if not listed.lists:  # a middleware returned a result of its own, perhaps a cached one
            lists = self._runtime.generation.cached_lists(kind, caller or "")
            return listed._replace(lists=lists)
        return listed

    async def _request(
        self, method: str, params: t.RequestParams, caller: str | None, options: LocalOptions
    ) -> t.ProtocolType:
        return (await self._send(self._context(method, params, caller), options)).result

    def _context(
        self,
        method: str,
        params: t.RequestParams,
        caller: str | None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> LocalRequestContext:
        input_requests = self._runtime.input_requests
        peer = input_requests.peer if on_log is None else input_requests.peer_with_logs
        exchange = local_exchange(method, params, peer, caller or "")
        return LocalRequestContext(exchange, input_requests, on_progress, on_log)

    async def _send(self, request: LocalRequestContext, options: LocalOptions) -> HostResult:
        try:
            result = await self._runtime.request(request, options)
            await request.wait_for_callbacks()
            return result
        except Fault as fault:
            await request.wait_for_callbacks()
            code = error_code(fault, NEWEST)
            raise RemoteError(code, fault.message, fault.data, hint=fault.hint) from fault
        except RemoteError as error:
            server = self._runtime.generation.servers.get(error.server or "")
            may_sample = server is None or server.settings.sampling
            hint = self._runtime.input_requests.hint(error, may_sample=may_sample)
            if not hint:
                raise
            params = request.exchange.params
            name = params.name if params.name is not None else params.uri
            reason = f"{name!r} of server {error.server!r} needs input that it cannot request"
            explained = RemoteError(error.code, f"{reason}; {hint} ({error.message})", error.data)
            explained.server = error.server
            raise explained from error
        finally:
            request.exchange.settled = True


class ModelCallOptions(TypedDict, total=False):
    """The options of a tool call of a model, as with `Host.call_openai`."""

    timeout_s: float | None
    on_progress: OnProgress | None


class CallOptions(ModelCallOptions, total=False):
    """The options of a tool call, as with `Host.call_tool`."""

    on_log: OnLog | None
    meta: Mapping[str, Any] | None


class HostCaller:
    """The tools, prompts and resources of a host, for one caller: what `host.caller(name)` returns.

    Each method is that of `Host`, with `caller=name`.
    """

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self._name = name

    def __repr__(self) -> str:
        return f"<HostCaller {self._name!r} of {self._host!r}>"

    async def list_tools(self, *, fresh: bool = False) -> list[HostTool]:
        """See `Host.list_tools`."""
        return await self._host.list_tools(fresh=fresh, caller=self._name)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: type[T],
        **options: Unpack[CallOptions],
    ) -> ToolResult[T]: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[Any]: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        returns: Any = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[Any]:
        """See `Host.call_tool`."""
        return await self._host.call_tool(
            name,
            arguments,
            returns=returns,
            caller=self._name,
            **options,
        )

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> "HostTask":
        """See `Host.start_task`."""
        return await self._host.start_task(
            name,
            arguments,
            caller=self._name,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_log=on_log,
        )

    def resume_task(
        self, handle: str, server: str, *, on_progress: OnProgress | None = None
    ) -> "HostTask":
        """See `Host.resume_task`."""
        return self._host.resume_task(handle, server, caller=self._name, on_progress=on_progress)

    async def tasks(self, *, refresh: bool = True) -> "list[HostTask]":
        """See `Host.tasks`."""
        return await self._host.tasks(caller=self._name, refresh=refresh)

    async def search(self, words: str, limit: int = 5) -> list[HostTool]:
        """See `Host.search`."""
        return await self._host.search(words, limit, caller=self._name)

    async def run(
        self, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
    ) -> Run:
        """See `Host.run`."""
        options["caller"] = self._name
        return await self._host.run(model, messages, **options)

    async def to_openai(self, api: openai.Api = "chat", *, strict: bool = True) -> list[Any]:
        """See `Host.to_openai`."""
        return await self._host.to_openai(api, strict=strict, caller=self._name)

    async def to_anthropic(self, *, strict: bool = False) -> list[Any]:
        """See `Host.to_anthropic`."""
        return await self._host.to_anthropic(strict=strict, caller=self._name)

    async def call_openai(
        self, tool_call: object, **options: Unpack[ModelCallOptions]
    ) -> ToolResult[Any]:
        """See `Host.call_openai`."""
        return await self._host.call_openai(tool_call, caller=self._name, **options)

    async def call_anthropic(
        self, tool_use: object, **options: Unpack[ModelCallOptions]
    ) -> ToolResult[Any]:
        """See `Host.call_anthropic`."""
        return await self._host.call_anthropic(tool_use, caller=self._name, **options)

    async def list_prompts(self, *, fresh: bool = False) -> list[HostPrompt]:
        """See `Host.list_prompts`."""
        return await self._host.list_prompts(fresh=fresh, caller=self._name)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """See `Host.get_prompt`."""
        return await self._host.get_prompt(name, arguments, caller=self._name, timeout_s=timeout_s)

    async def list_resources(self, *, fresh: bool = False) -> list[HostResource]:
        """See `Host.list_resources`."""
        return await self._host.list_resources(fresh=fresh, caller=self._name)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[HostResourceTemplate]:
        """See `Host.list_resource_templates`."""
        return await self._host.list_resource_templates(fresh=fresh, caller=self._name)

    async def read_resource(
        self, uri: str, server: str | None = None, *, timeout_s: float | None = None
    ) -> t.ReadResourceResult:
        """See `Host.read_resource`."""
        return await self._host.read_resource(uri, server, caller=self._name, timeout_s=timeout_s)

    async def complete(
        self,
        argument: str,
        value: str = "",
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
        server: str | None = None,
    ) -> t.Completion:
        """See `Host.complete`."""
        return await self._host.complete(
            argument,
            value,
            prompt=prompt,
            template=template,
            context=context,
            server=server,
            caller=self._name,
        )
