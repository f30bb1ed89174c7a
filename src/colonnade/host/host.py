"""What a program asks of a host, for one caller.

Rules: everything goes through the host's one handler, in a turn of its own. What a handler or a
layer refuses is told as a client would be told; what nobody can mend by asking otherwise (a server
that is gone, a time-out) is raised as it is.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.client.connect import Target, client_info
from colonnade.client.request import OnLog, OnProgress
from colonnade.client.results import Schemas, ToolResult, call_for_model, may_be_wrapped
from colonnade.errors import ColonnadeError, Fault, LocalProtocolError, RemoteError, ToolError
from colonnade.host.agent.loop import Model, Run, RunOptions, run
from colonnade.host.config.inline import configured, is_broken
from colonnade.host.config.settings import Config, Entry, Problem
from colonnade.host.input_requests import Desk, OnQuestion
from colonnade.host.router import NO_WISHES, TOKEN, HostResult, LocalTurn, Wishes, local_exchange
from colonnade.host.runtime import OnChange, OnEvent, Roof
from colonnade.host.servers.listings import (
    WAIT_S,
    HostPrompt,
    HostResource,
    HostResourceTemplate,
    HostTool,
    Kind,
    Offer,
)
from colonnade.host.servers.supervisor import Status
from colonnade.ports import Handler, Middleware
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import write
from colonnade.protocol.revision import NEWEST, number
from colonnade.providers import anthropic, openai
from colonnade.providers.tool_calls import Call

T = TypeVar("T")
N = TypeVar("N", bound=t.Noun)


class Calls:
    """The tools, prompts and resources of all servers, as one caller uses them.

    A server that keeps state for whoever opened it never serves two callers in one conversation.
    """

    def __init__(self, roof: Roof, caller: str) -> None:
        self._roof = roof
        self._caller = caller

    # ------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False, caller: str | None = None) -> list[HostTool]:
        """Every tool of every server that can be listed; `host.problems` says what cannot. With
        `fresh` every server is asked, whatever it said before."""
        found = await self._listed("tools/list", "tools", fresh, caller)
        tools = cast("t.ListToolsResult", found.result).tools
        return _hosted(tools, found.lists, lambda one: one.name, _as_tool)

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
        """Call a tool by its name in the catalogue, or by an alias: only its server is started.

        An error of the tool is a result. Raised is `RemoteError` where the server, or this host,
        refuses the call, `ChannelError` where the server does not answer, and `Refused` where a
        layer says no. `meta` goes along, but for what the protocol keeps for itself.
        """
        raw = Raw(write(dict(arguments or {})))
        given: dict[str, Any] | None = dict(meta) if meta else None
        if on_progress is not None:
            given = (given or {}) | {t.PROGRESS_TOKEN_KEY: TOKEN}
        params = t.CallToolRequestParams(name=name, arguments=raw, meta=given)
        wishes = NO_WISHES if timeout_s is None else Wishes(timeout_s)
        turn = self._turn("tools/call", params, caller, on_progress, on_log)
        found = None
        try:
            answered = await self._answer(turn, wishes)
            result, found = cast("t.CallToolResult", answered.result), answered.tool
        except ToolError as error:  # of a layer, in words that whoever asked may read
            said = [t.TextContent(text=str(error))]
            result = t.CallToolResult(content=cast("list[t.ContentBlock]", said), is_error=True)
        if found is None:  # middleware has answered by itself
            return ToolResult(name, result, returns, wrapped=False)
        offers, own = found
        structured, wrapped = result.structured_content, False
        if structured is not UNSET and not result.is_error:
            await offers.learn_schemas(turn.exchange.principal)
            wrapped = may_be_wrapped(structured) and offers.is_wrapped(own, result)
        return ToolResult(name, result, returns, offers.output(own), wrapped=wrapped)

    async def search(
        self, words: str, limit: int = 5, *, caller: str | None = None
    ) -> list[HostTool]:
        """The tools that these words fit best, the best first: for a model that is not to be shown
        all of them."""
        tools = await self.list_tools(caller=caller)
        return await self._roof.looking.best(tools, words, limit)

    # ------------------------------------------------------------ for models

    async def run(
        self, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
    ) -> Run:
        """Let a model use the tools until it is done: offer them, make its calls, tell it the
        results. `model` is a function of (messages, tools), sync or async, that gives a reply of
        Chat Completions, or an `OpenAICompatible`. What more can be said (`RunOptions`):

        - `tools` are the names of those that it may call; without it, all.
        - `max_rounds`, `max_calls` and `max_characters` (of one result) are bounds.
        - Where there are more tools than `max_tools`, a search is shown instead.
        - `on_call` is told of a call before it is made, and may raise `Refused`; `on_progress`,
          `on_result` and `on_message` are told what comes of it.
        - `caller` is on whose behalf all of it is done.
        """
        return await run(self, model, messages, **options)

    async def to_openai(self, api: openai.Api = "chat", *, strict: bool = True) -> list[Any]:
        """Every tool as an entry of `tools` for OpenAI; `call_openai` makes what its model asks
        for."""
        return [tool.to_openai(api, strict=strict) for tool in await self.list_tools()]

    async def to_anthropic(self, *, strict: bool = False) -> list[Any]:
        """Every tool as an entry of `tools` for Anthropic; `call_anthropic` makes what its model
        asks for."""
        return [tool.to_anthropic(strict=strict) for tool in await self.list_tools()]

    async def call_openai(
        self,
        tool_call: object,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ToolResult[Any]:
        """Make the call that OpenAI's model asks for. `result.to_openai()` answers it.

        What the model did wrong is a result that tells it so; raised is only what it cannot mend.
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
        """Make the call that a `tool_use` block of Anthropic's model asks for.
        `result.to_anthropic()` answers it. Else as `call_openai`."""
        call = anthropic.read_call(tool_use)
        return await self._call_for_model(call, caller, timeout_s, on_progress)

    async def _call_for_model(
        self,
        call: Call,
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

        tool = self._roof.snapshot.tool(call.name, self._whose(caller))
        known = {call.name: tool.input_schema} if tool is not None else {}
        return await call_for_model(call, known, relist, call_tool)

    # ------------------------------------------------------------ prompts and resources

    async def list_prompts(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostPrompt]:
        """Every prompt of every server that can be listed."""
        found = await self._listed("prompts/list", "prompts", fresh, caller)
        prompts = cast("t.ListPromptsResult", found.result).prompts
        return _hosted(prompts, found.lists, lambda one: one.name, _as_prompt)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> t.GetPromptResult:
        """The messages of a prompt, by its name in the catalogue."""
        given = dict(arguments) if arguments is not None else None
        params = t.GetPromptRequestParams(name=name, arguments=given)
        found = await self._ask("prompts/get", params, caller, Wishes(timeout_s))
        return cast("t.GetPromptResult", found)

    async def list_resources(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostResource]:
        """Every resource of every server that can be listed, each under its own address."""
        found = await self._listed("resources/list", "resources", fresh, caller)
        resources = cast("t.ListResourcesResult", found.result).resources
        return _hosted(resources, found.lists, lambda one: one.uri, _as_resource)

    async def list_resource_templates(
        self, *, fresh: bool = False, caller: str | None = None
    ) -> list[HostResourceTemplate]:
        """Every template of addresses of every server that can be listed."""
        found = await self._listed("resources/templates/list", "templates", fresh, caller)
        templates = cast("t.ListResourceTemplatesResult", found.result).resource_templates
        return _hosted(templates, found.lists, lambda one: one.uri_template, _as_template)

    async def read_resource(
        self,
        uri: str,
        server: str | None = None,
        *,
        caller: str | None = None,
        timeout_s: float | None = None,
    ) -> t.ReadResourceResult:
        """The contents of a resource: of the server that lists it, or that `server` names by its
        key. An address that several list is read of none until one is named."""
        params = t.ReadResourceRequestParams(uri=uri)
        found = await self._ask("resources/read", params, caller, Wishes(timeout_s, server))
        return cast("t.ReadResourceResult", found)

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
        """What an argument of a prompt, or a variable of a template, may become."""
        if (prompt is None) is (template is None):
            raise LocalProtocolError("complete takes either prompt='name' or template='uri'")
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
        found = await self._ask("completion/complete", params, caller, Wishes(None, server))
        return cast("t.CompleteResult", found).completion

    # ------------------------------------------------------------ turns

    async def _listed(self, method: str, kind: Kind, fresh: bool, caller: str | None) -> HostResult:
        turn = self._turn(method, t.PaginatedRequestParams(), caller)
        found = await self._answer(turn, Wishes(fresh=fresh))
        if not found.lists:  # middleware has answered by itself, perhaps with what it kept
            return found._replace(lists=self._roof.snapshot.lists(kind, self._whose(caller)))
        return found

    async def _ask(
        self, method: str, params: t.RequestParams, caller: str | None, wishes: Wishes
    ) -> t.Noun:
        return (await self._answer(self._turn(method, params, caller), wishes)).result

    def _turn(
        self,
        method: str,
        params: t.RequestParams,
        caller: str | None,
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> LocalTurn:
        desk = self._roof.desk
        whose = self._whose(caller)
        peer = desk.peer if on_log is None else desk.listening
        exchange = local_exchange(method, params, peer, whose)
        return LocalTurn(exchange, desk, on_progress, on_log)

    def _whose(self, caller: str | None) -> str:
        return self._caller if caller is None else caller

    async def _answer(self, turn: LocalTurn, wishes: Wishes) -> HostResult:
        try:
            result = await self._roof.answer(turn, wishes)
            await turn.caught_up()
            return result
        except Fault as fault:
            await turn.caught_up()
            code = number(fault, NEWEST)
            raise RemoteError(code, fault.message, fault.data, hint=fault.hint) from fault
        except RemoteError as error:
            remedy = self._remedy(error)
            if not remedy:
                raise
            head = turn.exchange.head
            what = head.name if head.name is not None else head.uri
            words = f"{what!r} of server {error.server!r} asks, and nobody can be asked; {remedy}"
            told = RemoteError(error.code, f"{words} ({error.message})", error.data)
            told.server = error.server
            raise told from error
        finally:
            turn.exchange.settled = True

    def _remedy(self, error: RemoteError) -> str:
        """What this program has to say, so that a server may ask what it wanted to ask."""
        wanted = _required_capabilities(error)
        if not self._roof.desk.is_open and wanted & {"elicitation", "sampling"}:
            return "pass Host(on_question=…), which answers"
        hosted = self._roof.snapshot.hosted.get(error.server or "")
        if "sampling" in wanted and hosted is not None and not hosted.settings.sampling:
            return "its settings have to say sampling = true"
        return ""


def _required_capabilities(error: RemoteError) -> set[str]:
    """The capabilities that a server says it needs of its client, in the data of an error. One that
    says so in its message alone is not understood: the message is passed on as it is."""
    data: object = error.data
    if not isinstance(data, dict):
        return set()
    required = cast("dict[str, object]", data).get("requiredCapabilities")
    return set(cast("dict[str, object]", required)) if isinstance(required, dict) else set()


def _hosted(
    nouns: Iterable[Any],
    lists: Iterable[Offer[Any, Any]],
    key: Callable[[Any], str],
    made: Callable[..., T],
) -> list[T]:
    """The same with their servers; what a layer has changed stays as the layer made it."""
    same: dict[int, Any] = {}
    known: dict[str, Any] = {}
    for offer in lists:
        same |= {id(noun): offer.hosted[name] for name, noun in offer.nouns.items()}
        known = {**offer.hosted, **known}
    found: list[T] = []
    for noun in nouns:
        kept = same.get(id(noun))
        if kept is not None:
            found.append(kept)
        elif (origin := known.get(key(noun))) is not None:
            found.append(made(noun, origin))
    return found


def _as_tool(tool: t.Tool, origin: HostTool) -> HostTool:
    return HostTool.kept(tool, origin.server, origin.original, origin.aliases)


def _as_prompt(prompt: t.Prompt, origin: HostPrompt) -> HostPrompt:
    return HostPrompt.kept(prompt, origin.server, origin.original, origin.aliases)


def _as_resource(resource: t.Resource, origin: HostResource) -> HostResource:
    return HostResource.kept(resource, origin.server)


def _as_template(
    template: t.ResourceTemplate, origin: HostResourceTemplate
) -> HostResourceTemplate:
    return HostResourceTemplate.kept(template, origin.server)


if TYPE_CHECKING:  # most servers ask nobody who they are
    from colonnade.auth.client.login import Auth
    from colonnade.host.config.lookups import Inputs, OnInput
    from colonnade.host.config.reader import File
    from colonnade.host.config.trust import Trust

log: logging.Logger = logging.getLogger("colonnade.host")


class Host(Calls):
    """Servers by their keys, and everything that they offer.

    A server is whatever `connect` takes, or an `Entry` with settings of its own. `on_question`
    answers what servers ask (without it they are told that nobody can be asked), `on_event` hears
    of each server that starts, stops or fails, `layers` are around every request, the first
    outermost, and `auth` says who we are at a URL. Whoever looks at the whole catalogue waits
    `wait_s` for one server, at the most. `name`, `version` and `title` are what servers are told
    of this program (`clientInfo`), as with `connect`.
    """

    def __init__(
        self,
        servers: Mapping[str, Target | Entry] | Config,
        *,
        on_question: OnQuestion | None = None,
        on_event: OnEvent | None = None,
        layers: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
    ) -> None:
        self._read: Callable[[], Config] | None = None
        # What was last said by files that could be read, or by a program.
        self._sound: Config = configured(servers)
        roof = Roof(
            self._sound,
            Desk(on_question),
            layers=layers,
            wait_s=wait_s,
            on_event=on_event,
            auth=auth,
            info=client_info(name, version, title),
        )
        super().__init__(roof, "")

    @classmethod
    def from_config(
        cls,
        paths: "File | Sequence[File]",
        *,
        trust: "Trust" = None,
        on_input: "OnInput | Inputs | None" = None,
        folder: "File | None" = None,
        on_question: OnQuestion | None = None,
        on_event: OnEvent | None = None,
        layers: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        wait_s: float = WAIT_S,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
    ) -> "Host":
        """The servers of a file, or of several: of Claude Desktop, Claude Code, VS Code, Cursor,
        Codex, or our own `colonnade.toml`. What is wrong with one, or a file that is not there, is
        in `problems` and is logged; nothing is raised.

        A project's file is used only as far as somebody trusts it: `trust` is asked, or True.
        `on_input` answers VS Code's inputs, and `folder` is the one that is worked in, if not this.
        The rest is as with `Host` itself.
        """
        from colonnade.host.config.lookups import Inputs
        from colonnade.host.config.reader import read_config

        inputs = (
            on_input if isinstance(on_input, Inputs) else Inputs(on_input)
        )  # which are not asked for twice

        logged: set[Problem] = set()

        def read() -> Config:
            config = read_config(paths, trust=trust, on_input=inputs, folder=folder)
            for problem in config.problems:
                if problem not in logged:
                    log.warning("%s", problem)
            logged.clear()  # what was mended and comes again is news
            logged.update(config.problems)
            return config

        host = cls(
            read(),
            on_question=on_question,
            on_event=on_event,
            layers=layers,
            auth=auth,
            wait_s=wait_s,
            name=name,
            version=version,
            title=title,
        )
        host._read = read
        return host

    def __repr__(self) -> str:
        return f"<Host of {', '.join(map(repr, self.servers)) or 'no servers'}>"

    async def __aenter__(self) -> "Host":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every server, and whatever is under way on it; at any time, and twice."""
        await self._roof.close()

    # ------------------------------------------------------------ who is there

    def caller(self, name: str) -> Calls:
        """The same tools, prompts and resources, used on behalf of somebody else than others."""
        return Calls(self._roof, name)

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of all servers, in the order of the configuration."""
        return tuple(self._roof.snapshot.hosted)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of each server's tools and prompts begin with, up to the `__`."""
        return self._roof.snapshot.prefixes

    def server_of(self, name: str) -> str | None:
        """The key of the server that a name, or an alias, leads to, whether that has such a thing
        or not. No server is asked."""
        try:
            return self._roof.snapshot.holder("tools", name, "").key
        except Fault:
            return None

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the configuration, and what could not be listed when somebody last
        looked; none of it keeps anything else from working."""
        return self._roof.snapshot.problems

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed when somebody last looked, by their keys: for whoever
        wants to know more than the words in `problems`."""
        hosted = self._roof.snapshot.hosted
        return {key: one.failure for key, one in hosted.items() if one.failure is not None}

    @property
    def instructions(self) -> dict[str, str]:
        """What each server says of its use, by its key; of those that were started."""
        hosted = self._roof.snapshot.hosted
        return {key: one.instructions for key, one in hosted.items() if one.instructions}

    def tool(self, name: str, caller: str = "") -> HostTool | None:
        """The tool that a name of the catalogue, or an alias, leads to, as it was last listed for
        this caller; None where no list had it. For layers that decide by the tool, whatever it was
        called."""
        return self._roof.snapshot.tool(name, caller)

    def status(self) -> list[Status]:
        """How every server is at this moment."""
        return [one.supervised.status for one in self._roof.snapshot.hosted.values()]

    def restart(self, server: str) -> None:
        """Start a server anew for its next call, also one that was given up."""
        try:
            self._roof.snapshot.server(server).restart()
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None

    # ------------------------------------------------------------ the handler

    @property
    def handler(self) -> Handler:
        """What answers every request, with its layers around it: for whoever serves this host."""
        return self._roof.handler

    def use(self, layer: Middleware) -> Middleware:
        """Put a layer around every request, inside those that are there."""
        self._roof.use(layer)
        return layer

    # ------------------------------------------------------------ changes

    async def reload(self, servers: Mapping[str, Target | Entry] | Config | None = None) -> None:
        """Other servers from now on; without any, what the files of `from_config` say now. Those
        whose entry is the same go on; calls that are under way on others finish there, and then
        those stop. A file that cannot be read any more changes nothing but `problems`."""
        if servers is not None:
            config = self._sound = configured(servers)
        elif self._read is None:
            raise LocalProtocolError("this host has no files: say which servers there are now")
        else:
            config = self._read()
            if is_broken(config, self._sound):
                config = replace(config, entries=self._sound.entries)
            else:
                self._sound = config
        self._roof.reload(config)

    def watch(self, callback: OnChange) -> Callable[[], None]:
        """Be told of changes in the catalogue: a server said that a list is another, or there was
        a reload. Ends with a call of what this returns."""
        return self._roof.watch(callback)
