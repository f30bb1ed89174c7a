"""The requests of this program to the servers of a host: tools, tasks, prompts and resources.

Rules: every request goes through the host's one handler and its middleware. What a server, the
router or a middleware rejects is raised as a client would raise it (`RemoteError`); transport
errors (the server is gone, a timeout) are raised as they are.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.client.request import OnLog, OnProgress, as_dict, complete_params, prompt_params
from colonnade.client.results import Schemas, ToolResult, call_for_model, may_be_wrapped
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    LoginRequired,
    RemoteError,
    TaskEnded,
    ToolError,
)
from colonnade.host.agent.loop import Model, Run, RunOptions, run
from colonnade.host.router import (
    PROGRESS_TOKEN,
    HostResult,
    LocalOptions,
    LocalRequestContext,
    contained_progress,
    local_exchange,
)
from colonnade.host.runtime import HostRuntime
from colonnade.host.servers.listings import (
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    ListKind,
    with_servers,
)
from colonnade.ports import Store
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.revision import NEWEST, error_code
from colonnade.providers import anthropic, openai
from colonnade.providers.tool_calls import ModelToolCall

if TYPE_CHECKING:  # loaded on use: most calls are no tasks
    from colonnade.client.tasks.task import ClientTask
    from colonnade.host.policy.containment import Containment
    from colonnade.host.tasks import HostTask, HostTaskRecords
    from colonnade.protocol.tasks.client import TaskState

log: logging.Logger = logging.getLogger("colonnade.host")

T = TypeVar("T")


class HostRequests:
    """The requests of a host, each for the caller that is named in it; `store` keeps the tasks that
    calls have become."""

    def __init__(self, runtime: HostRuntime, store: Store | None) -> None:
        self._runtime = runtime
        self._store = store
        self._task_records: HostTaskRecords | None = None

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
        tool = untouched = None
        try:
            routed = await self._send(request, options)
            result, tool = cast("t.CallToolResult", routed.result), routed.tool
            untouched = cast("t.CallToolResult | None", routed.untouched)
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
        output = listings.output(original)
        return ToolResult(name, result, returns, output, wrapped=wrapped, untouched=untouched)

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
        server = self.server_of(name, caller or "") or ""
        record = HostTaskRecord("", server, name, caller or "", time.time(), status)
        return HostTask(self, self._records, record, result=result)

    def resume_task(
        self,
        handle: str,
        server: str,
        *,
        caller: str | None = None,
        on_progress: OnProgress | None = None,
        tool: str | None = None,
    ) -> "HostTask":
        """The task of a handle, which `task.handle` of a task of this server returned. Nothing is
        sent yet. Raises `InvalidArgument` for what is not a handle.

        With a policy, the tool that decides is the one in the store, not the one in the handle. A
        task that is not in the store, of a server with tools that are hidden from the caller, is
        unknown; pass `tool`, the qualified name, if the program has kept it itself.
        """
        from colonnade.host.servers.naming import qualified_name
        from colonnade.host.tasks import HostTask, HostTaskRecord
        from colonnade.protocol.tasks.client import TaskHandle

        named = TaskHandle.decode(handle).tool
        name = tool or qualified_name(server, named, self._runtime.name_limit)
        record = HostTaskRecord(handle, server, name, caller or "", time.time())
        return HostTask(
            self, self._records, record, on_progress=on_progress, is_confirmed=tool is not None
        )

    async def tasks(self, *, caller: str | None = None, refresh: bool = True) -> "list[HostTask]":
        """The tasks that calls have become, the oldest first: those that have not ended, and those
        whose result was not read; of one caller, or of all.

        Their servers are asked for the present status of each; with `refresh=False` none is, and
        nothing is started.
        """
        from colonnade.host.tasks import HostTask, refresh_all

        records = await self._records.list(caller)
        found = [
            HostTask(self, self._records, one)
            for one in records
            if self._runtime.sees_tool(one.server, one.tool, one.caller)
        ]
        return await refresh_all(found) if refresh else found

    @property
    def _records(self) -> "HostTaskRecords":
        from colonnade.host.tasks import HostTaskRecords

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
        contain, immediate = self._runtime.containment(server), task.immediate_response
        if contain is not None:
            shown = None if record.message is None else contain.text(record.message)
            record = replace(record, message=shown)
            immediate = None if immediate is None else contain.text(immediate)
        await self._records.put(record)
        return HostTask(
            self,
            self._records,
            record,
            immediate_response=immediate,
            on_progress=on_progress,
        )

    @asynccontextmanager
    async def open_task(self, task: "HostTask", method: str = "") -> "AsyncGenerator[ClientTask]":
        """A task in a session of its server: for `HostTask`."""
        if self._runtime.guard is not None:
            await task.confirm()
        contain = self._runtime.containment(task.server)
        try:
            async with self._opened_task(task, method, contain) as opened:
                yield opened
        except ColonnadeError as error:
            contained = error if contain is None else contain.failure(error)
            if contained is error:
                raise
            raise contained from None

    @asynccontextmanager
    async def _opened_task(
        self, task: "HostTask", method: str, contain: "Containment | None"
    ) -> "AsyncGenerator[ClientTask]":
        meta = {t.RELATED_TASK_KEY: {"taskId": task.id}}
        params = t.CallToolRequestParams(name=task.tool, meta=meta)
        context = self._context("tools/call", params, task.caller)
        async with self._runtime.session(task.server, context, task.tool, method) as call:
            if not task.is_confirmed and await self._runtime.hides_tools(task.server, context):
                raise TaskEnded(f"the task of {task.tool!r} is not known", reason="unknown")
            on_progress = task.on_progress
            if contain is not None and on_progress is not None:
                on_progress = contained_progress(on_progress, contain.text)
            yield call.client.resume_task(task.handle or "", on_progress=on_progress, answers=call)

    async def contain_state(self, task: "HostTask", state: "TaskState") -> "TaskState":
        """A state of a task without hidden text: for `HostTask`."""
        contain = self._runtime.containment(task.server)
        if contain is None:
            return state
        from colonnade.host.policy.containment import aside

        return await aside(contain.task_state, state)

    async def connect_url(self, server: str, *, caller: str) -> str | None:
        """The URL of the page where a caller connects its account to a server whose `credentials`
        are `login`; None if it is connected. Only this caller can use it, once, for ten minutes."""
        upstream = self._runtime.upstream
        context = self._context("tools/list", t.PaginatedRequestParams(), caller)
        try:
            async with self._runtime.session(server, context):
                return None
        except LoginRequired as required:
            if upstream is None:
                raise
            return await upstream.link_url(caller, required)

    async def wait_for_task(self, task: "HostTask") -> ToolResult[Any]:
        """The result of a task, through all middleware: for `HostTask`."""
        if self._runtime.guard is not None:
            await task.confirm()
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

        view = self._runtime.view_of(caller or "")
        tool = self._runtime.generation.tool(call.name, caller or "", view)
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
        untouched: bool = False,
    ) -> t.GetPromptResult:
        """The messages of a prompt, by its qualified name or an alias; with `untouched` as the
        server sent them, also if there is hidden text in them."""
        params = prompt_params(name, arguments)
        sent = await self._send(
            self._context("prompts/get", params, caller), LocalOptions(timeout_s)
        )
        return cast("t.GetPromptResult", _chosen(sent, untouched))

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
        untouched: bool = False,
    ) -> t.ReadResourceResult:
        """The contents of a resource, from the server that lists it, or the one with the key
        `server`. A URI that several servers list is refused unless one is named. With `untouched`
        they are as the server sent them, also if there is hidden text in them."""
        params = t.ReadResourceRequestParams(uri=uri)
        options = LocalOptions(timeout_s, server)
        sent = await self._send(self._context("resources/read", params, caller), options)
        return cast("t.ReadResourceResult", _chosen(sent, untouched))

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

    def server_of(self, name: str, caller: str = "") -> str | None:
        """The key of the server of a qualified name or alias, whether it has such an item or not.
        No request is made."""
        view = self._runtime.view_of(caller)
        try:
            return self._runtime.generation.server_for("tools", name, caller, view).key
        except Fault:
            return None

    # ------------------------------------------------------------ requests

    async def _list(
        self, method: str, kind: ListKind, fresh: bool, caller: str | None
    ) -> HostResult:
        request = self._context(method, t.PaginatedRequestParams(), caller)
        listed = await self._send(request, LocalOptions(fresh=fresh))
        if not listed.lists:  # a middleware returned a result of its own, perhaps a cached one
            view = self._runtime.view(request)
            lists = self._runtime.generation.cached_lists(kind, caller or "", view)
            return replace(listed, lists=lists)
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


def _chosen(sent: HostResult, untouched: bool) -> t.ProtocolType:
    """The result for the caller, or the one that the server sent."""
    return sent.untouched if untouched and sent.untouched is not None else sent.result
