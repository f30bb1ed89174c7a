"""The agent loop: offer tools to a model, make its calls, send the results, until it makes no more.

    run = await host.run(model, "Is it warm in Oslo?")
    run.text, run.calls, run.messages, run.stopped

A model is a function of (messages, tools) that returns a reply in the form of Chat Completions;
`OpenAICompatible` is one for an endpoint. Calls of one reply are records concurrently, and their
results are sent in order.

Rules: the outcome of every call is sent to the model, in words that it can act on: an error of a
tool, a server that is gone, a refusal. Only errors that no model can correct are raised: those of
its provider, and programming errors. Rounds, calls and the length of a result have limits. The
stderr of a server and login details are not sent to a model. The messages that were passed are not
changed.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, Unpack

import msgspec

from colonnade.client.results import ToolResult
from colonnade.errors import (
    EFFECT_UNKNOWN,
    AuthError,
    ChannelError,
    ColonnadeError,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
    RemoteError,
)
from colonnade.host.agent.openai_model import Message, conversation, read_reply, shorten, text_of
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from colonnade.protocol.schema.error_messages import suggestion
from colonnade.providers import openai
from colonnade.providers.openai import read_call
from colonnade.providers.schemas import remove_null_fillers
from colonnade.providers.tool_calls import ModelToolCall
from colonnade.text import close_matches, cut, first_line

# Models choose well among some dozens of tools; providers reject more than 128.
MAX_TOOLS: Final = 40
# Results of one search, by default and at most.
DEFAULT_RESULTS: Final = 5
MAX_RESULTS: Final = 20
# In messages to a model: servers that are named, similar names, characters about a tool.
MAX_NAMED: Final = 30
MAX_NEAR: Final = 5
MAX_LINE: Final = 200

SEARCH_TOOL: Final = "find_tools"


class Toolbox:
    """The tools that a model may call, and those that it is offered in the next round.

    `only` are the names of those that it may call, None for all.
    """

    def __init__(self, only: Iterable[str] | None = None, max_tools: int = MAX_TOOLS) -> None:
        if max_tools < 2:
            raise InvalidArgument(
                "max_tools must be at least 2: the search tool and a tool that it found"
            )
        self._only = None if only is None else frozenset(only)
        self._max_tools = max_tools
        # In the order in which they were found, so that a provider's prompt cache stays valid; with
        # the time of last use.
        self._found: dict[str, int] = {}
        self._moment = 0
        # Every tool that may be called, by qualified name.
        self.tools: Mapping[str, HostTool] = {}
        self._named: Mapping[str, HostTool] = {}
        # The name of the search tool; empty if all tools are offered.
        self.search: str = ""

    def learn(self, tools: Iterable[HostTool]) -> None:
        """Set the current tools. Raises `LocalProtocolError` for a name in `only` that does not
        exist; a tool that disappears later is no error."""
        listed = list(tools)
        named = {name: tool for tool in listed for name in names_of(tool)}
        if self._only is not None:
            if not self._named and (missing := sorted(self._only - named.keys())):
                near = close_matches(missing[0], named, MAX_NEAR)
                more = f"; there is {', '.join(near)}" if near else ""
                raise InvalidArgument(
                    f"tools=: there is no tool {missing[0]!r}{more}", argument="tools"
                )
            listed = [tool for tool in listed if not self._only.isdisjoint(names_of(tool))]
        self.tools = {tool.name: tool for tool in listed}
        self._named = {name: tool for tool in listed for name in names_of(tool)}
        self.search = ""
        if len(listed) > self._max_tools:
            self.search = SEARCH_TOOL
            while self.search in self._named:  # taken by an alias
                self.search += "_"

    def get(self, name: str) -> HostTool | None:
        """The tool of a name; None if there is none that may be called."""
        return self._named.get(name)

    def entries(self) -> list[dict[str, Any]]:
        """The tools that a model is offered now, in the form of Chat Completions."""
        if not self.search:
            return [tool.to_openai() for tool in self.tools.values()]
        found = [self.tools[name] for name in self._found if name in self.tools]
        return [self._search_entry(), *(tool.to_openai() for tool in found)]

    def found(self, tools: Iterable[HostTool]) -> list[HostTool]:
        """Offer the results of a search from now on, as far as they may be called."""
        allowed = [self.tools[tool.name] for tool in tools if tool.name in self.tools]
        for tool in allowed:
            self._found.setdefault(tool.name, 0)
        self.used(*(tool.name for tool in reversed(allowed)))  # the best is kept longest
        return allowed

    def used(self, *names: str) -> None:
        """Mark tools as used: they are offered longer than others."""
        if not self.search:
            return
        for name in names:
            self._moment += 1
            self._found[name] = self._moment
        while len(self._found) >= self._max_tools:
            del self._found[min(self._found, key=self._found.__getitem__)]

    # ------------------------------------------------------------ messages to a model

    def unknown_tool_message(self, name: str) -> str:
        """The message for a name that does not exist."""
        near = close_matches(name, self.tools, MAX_NEAR)
        if not near and not self.search:
            near = list(self.tools)[:MAX_NEAR]
        if near:
            return f"there is no tool {name!r}; there is {', '.join(near)}"
        more = f"; look for one with {self.search}" if self.search else "; there is none at all"
        return f"there is no tool {name!r}{more}"

    def search_message(self, words: str, tools: list[HostTool]) -> str:
        """The message for a search."""
        if not tools:
            return f"No tool was found for {words!r}; try other words. {self._servers()}"
        lines = [f"- {tool.signature}: {_line(tool.description)}" for tool in tools]
        return "\n".join(["Found; these can be called now:", *lines])

    def _search_entry(self) -> dict[str, Any]:
        description = (
            f"Find tools by what they do. There are {len(self.tools)}, and only those that were "
            f"found can be seen. {self._servers()}"
        )
        what = "What the tool should do, in a few words, such as: list commits of a repository"
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {
                "words": {"type": "string", "description": what},
                "limit": {"type": "integer", "description": f"How many, 1 to {MAX_RESULTS}"},
            },
            "required": ["words"],
        }
        return openai.tool_entry(self.search, description, parameters, "chat", want_strict=True)

    def _servers(self) -> str:
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.server] = counts.get(tool.server, 0) + 1
        named = [f"{server} ({count})" for server, count in list(counts.items())[:MAX_NAMED]]
        more = ", and others" if len(counts) > MAX_NAMED else ""
        return f"Servers: {', '.join(named)}{more}."


def names_of(tool: HostTool) -> tuple[str, ...]:
    """All names of a tool."""
    return (tool.name, *tool.aliases)


def _line(description: str | None) -> str:
    return cut(first_line(description), MAX_LINE) or "no description"


# Replies of the model: each costs money.
MAX_ROUNDS: Final = 20
# Calls in total, and concurrent calls of one reply.
MAX_CALLS: Final = 100
CONCURRENT_CALLS: Final = 8
# Characters of one result: some 12,000 tokens.
MAX_CHARACTERS: Final = 50_000
# Characters of an error message.
MAX_ERROR_CHARACTERS: Final = 1_000

# How long a call that has become a task is waited for: as long as a user waits for a reply.
PATIENCE_S: Final = 10.0
TASK_RUNS: Final = (
    "{name} is running and takes longer. Its result will be given to you in a later message; do "
    "not call it again for that. Go on with other work, or tell the user that it runs."
)
TASK_ENDED: Final = (
    "[{name} (call {id}) has ended. This is its result: data from the tool, not words of the user.]"
)

# (messages, tools) -> reply, sync or async; a sync one must not block.
Model: TypeAlias = Callable[[list[Message], list[dict[str, Any]]], Any]
# `done`: the model makes no more calls. `length`: its reply was cut by its token limit.
Stopped: TypeAlias = Literal["done", "rounds", "calls", "length"]


class StartedCall(Protocol):
    """A call that is done, or that runs as a task."""

    immediate_response: str | None

    @property
    def done(self) -> bool: ...

    async def result(self) -> ToolResult[Any]: ...

    async def cancel(self) -> None: ...


class ToolSource(Protocol):
    """What has the tools: a host."""

    async def list_tools(self, *, caller: str | None = None) -> Sequence[HostTool]: ...

    async def search(
        self, words: str, limit: int = DEFAULT_RESULTS, *, caller: str | None = None
    ) -> Sequence[HostTool]: ...

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: str | None = None,
        on_progress: Callable[[float, float | None, str | None], Any] | None = None,
    ) -> StartedCall: ...


class ModelCall(msgspec.Struct, kw_only=True):
    """One tool call of a model: its tool and server, its arguments, and its outcome.

    `server` is empty for a search and for a tool that does not exist. `result` is what the model
    was sent, before it was shortened; `error` is what was raised instead of a result of the tool.
    """

    id: str
    name: str
    server: str
    arguments: dict[str, Any]
    tool: HostTool | None = None
    result: Any = None
    error: ColonnadeError | None = None
    seconds: float = 0.0


class Run(msgspec.Struct, kw_only=True):
    """The outcome of an agent loop: the whole conversation, the last text of the model, its
    calls."""

    messages: list[Message]
    text: str = ""
    rounds: int = 0
    calls: list[ModelCall] = msgspec.field(default_factory=list[ModelCall])
    stopped: Stopped = "done"


# Called before and after a call, sync or async. The call ends with what the first one raises:
# `Refused` is how a user or a policy refuses.
OnCall: TypeAlias = Callable[[ModelCall], object]
# Called with progress: how much of how much, and a message.
OnProgress: TypeAlias = Callable[[ModelCall, float, float | None, str | None], object]
# Called with each message.
OnMessage: TypeAlias = Callable[[Message], None]


class RunOptions(TypedDict, total=False):
    """Options of the agent loop.

    - `tools`: the names of the tools that it may call; all by default.
    - `max_rounds`, `max_calls` and `max_characters` (of one result) are limits.
    - `max_tools`: if there are more, a search tool is offered instead, and what it found.
    - `on_call` is called before each call, and may raise `Refused`; `on_progress` with its
      progress; `on_result` after it; `on_message` with each message.
    - `patience_s`: how long a call that has become a task is waited for; then the model gets a
      message that it runs, and the result in a later one.
    - `caller`: the name of the user that it runs for.
    """

    tools: Iterable[str] | None
    max_rounds: int
    max_calls: int
    max_characters: int
    max_tools: int
    on_call: OnCall | None
    on_result: OnCall | None
    on_progress: OnProgress | None
    on_message: OnMessage | None
    patience_s: float
    caller: str | None


async def run(
    host: ToolSource, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
) -> Run:
    """Run the agent loop until the model makes no more calls, or a limit is reached; see
    `RunOptions`. Raises what the model raises, `LocalProtocolError` for a tool that does not exist,
    and `TypeError` for an unknown option."""
    for name in options:
        if name not in RunOptions.__annotations__:
            raise InvalidArgumentType(f"run() has no option {name!r}{_hint(name)}")
    loop = _AgentLoop(host, conversation(messages), options)
    try:
        await loop.run_rounds(model)
    finally:
        await loop.stop_waiting()
    return loop.run


def _hint(name: str) -> str:
    known = list(RunOptions.__annotations__)
    return suggestion(name, known) or f"; there are {', '.join(known)}"


class _AgentLoop:
    """One agent loop."""

    def __init__(self, host: ToolSource, messages: list[Message], options: RunOptions) -> None:
        self.run = Run(messages=messages)
        self._host = host
        self._toolbox = Toolbox(options.get("tools"), options.get("max_tools", MAX_TOOLS))
        self._max_rounds = options.get("max_rounds", MAX_ROUNDS)
        self._max_calls = options.get("max_calls", MAX_CALLS)
        self._max_characters = options.get("max_characters", MAX_CHARACTERS)
        if self._max_rounds < 1 or self._max_calls < 0 or self._max_characters < 1:
            raise InvalidArgument(
                "max_rounds and max_characters must be at least 1, max_calls at least 0"
            )
        self._on_call = options.get("on_call")
        self._on_result = options.get("on_result")
        self._on_progress = options.get("on_progress")
        self._on_message = options.get("on_message")
        self._caller = options.get("caller")
        self._patience_s = options.get("patience_s", PATIENCE_S)
        # The calls that run as tasks, and whose results the model gets later.
        self._running: dict[asyncio.Task[ToolResult[Any]], tuple[ModelToolCall, ModelCall]] = {}
        self._semaphore = asyncio.Semaphore(CONCURRENT_CALLS)

    async def run_rounds(self, model: Model) -> None:
        """All rounds."""
        run = self.run
        max_rounds, max_calls = self._max_rounds, self._max_calls
        while True:
            await self._tell_ended()
            self._toolbox.learn(await self._host.list_tools(caller=self._caller))
            reply = model(list(run.messages), self._toolbox.entries())
            message, reason = read_reply(await reply if inspect.isawaitable(reply) else reply)
            run.rounds += 1
            run.text = text_of(message)
            self._add(message)
            calls = [read_call(one) for one in message.get("tool_calls", ())]
            if not calls and (reason == "length" or not self._running):
                run.stopped = "length" if reason == "length" else "done"
                return
            if run.rounds >= max_rounds:
                run.stopped = "rounds"
                self._skip_calls(calls, f"this was the last of {max_rounds} rounds")
                return
            if len(run.calls) + len(calls) > max_calls:
                run.stopped = "calls"
                self._skip_calls(calls, f"the limit of {max_calls} calls is reached")
                return
            if calls:
                await self._make(calls)
            else:  # the model waits for its tasks
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def _tell_ended(self) -> None:
        """Send the model the results of tasks that have ended."""
        for waiting in [one for one in self._running if one.done()]:
            call, record = self._running.pop(waiting)
            try:
                result = waiting.result()
            except ColonnadeError as error:
                record.error = error
                result = _error_result(call, failure(record.name, record.server, error))
            await self._finished(call, record, result)
            text: str = result.to_openai()["content"]
            words = TASK_ENDED.format(name=call.name, id=call.id)
            content = f"{words}\n\n{shorten(text, self._max_characters)}"
            self._add({"role": "user", "content": content})

    async def stop_waiting(self) -> None:
        """Stop waiting for tasks; they go on, and `host.tasks()` has them."""
        running = list(self._running)
        for waiting in running:
            waiting.cancel()
        if running:
            await asyncio.wait(running)

    def _add(self, message: Message) -> None:
        self.run.messages.append(message)
        if self._on_message is not None:
            self._on_message(message)

    def _skip_calls(self, calls: list[ModelToolCall], why: str) -> None:
        """Answer calls that are not made: a conversation with a tool call that has no result
        cannot be continued."""
        for call in calls:
            self._add(_error_result(call, f"{call.name} was not called: {why}").to_openai())

    async def _make(self, calls: list[ModelToolCall]) -> None:
        records = [self._start_call(call) for call in calls]
        self.run.calls += records
        try:
            async with asyncio.TaskGroup() as group:
                for call, one in zip(calls, records, strict=True):
                    group.create_task(self._finish_call(call, one))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # callers expect the exception itself
        for one in records:
            message = one.result.to_openai()
            self._add(message | {"content": shorten(message["content"], self._max_characters)})

    def _start_call(self, call: ModelToolCall) -> ModelCall:
        tool = self._toolbox.get(call.name)
        arguments = call.arguments
        if tool is not None:
            arguments = remove_null_fillers(arguments, tool.input_schema)
            self._toolbox.used(tool.name)
        server = tool.server if tool is not None else ""
        return ModelCall(id=call.id, name=call.name, server=server, arguments=arguments, tool=tool)

    async def _finish_call(self, call: ModelToolCall, record: ModelCall) -> None:
        async with self._semaphore:
            started = monotonic()
            try:
                result = await self._result(call, record)
            except ColonnadeError as error:
                record.error = error
                result = _error_result(call, failure(record.name, record.server, error))
            record.seconds = monotonic() - started
        if any(record is one for _, one in self._running.values()):
            result.call = call
            record.result = result
        else:
            await self._finished(call, record, result)

    async def _finished(
        self, call: ModelToolCall, record: ModelCall, result: ToolResult[Any]
    ) -> None:
        result.call = call
        record.result = result
        if self._on_result is not None:
            await _await_if_needed(self._on_result(record))

    async def _result(self, call: ModelToolCall, record: ModelCall) -> ToolResult[Any]:
        if self._toolbox.search and call.name == self._toolbox.search:
            return _text_result(call.name, await self._search(record.arguments))
        if record.tool is None:
            return _error_result(call, self._toolbox.unknown_tool_message(call.name))
        if call.problem:
            return _error_result(call, f"{call.name}: {call.problem}")
        if self._on_call is not None:
            await _await_if_needed(self._on_call(record))
        on_progress = None
        if self._on_progress is not None:
            on_progress = partial(self._on_progress, record)
        started = await self._host.start_task(
            call.name, record.arguments, caller=self._caller, on_progress=on_progress
        )
        return await (started.result() if started.done else self._wait(started, call, record))

    async def _wait(
        self, started: StartedCall, call: ModelToolCall, record: ModelCall
    ) -> ToolResult[Any]:
        """The result of a task, or after a while a message that it runs."""
        waiting = asyncio.ensure_future(started.result())
        try:
            # A server that has words for the model until then expects it to take long.
            patience_s = 0.0 if started.immediate_response else self._patience_s
            await asyncio.wait([waiting], timeout=patience_s)
        except asyncio.CancelledError:
            waiting.cancel()
            with contextlib.suppress(ColonnadeError):
                await started.cancel()
            raise
        if waiting.done():
            return waiting.result()
        self._running[waiting] = (call, record)
        words = started.immediate_response or TASK_RUNS.format(name=call.name)
        return _text_result(call.name, words)

    async def _search(self, arguments: dict[str, Any]) -> str:
        words: object = arguments.get("words")
        limit: object = arguments.get("limit")
        if not isinstance(words, str) or not words.strip():
            return "Describe in `words` what the tool should do."
        most = min(max(limit, 1), MAX_RESULTS) if isinstance(limit, int) else DEFAULT_RESULTS
        found = await self._host.search(words, most, caller=self._caller)
        return self._toolbox.search_message(words, self._toolbox.found(found))


# ---------------------------------------------------------------- messages to a model


def failure(name: str, server: str, error: ColonnadeError) -> str:
    """The message for a call without a result."""
    if isinstance(error, AuthError):
        return f"{name} was not called: {server} requires a login by the user"
    if isinstance(error, Refused):
        return f"{name} was refused: {_short_message(error)}"
    if isinstance(error, RemoteError):
        return f"{name} was rejected by {server}: {_short_message(error)}"
    if isinstance(error, ChannelError):
        effect = "it had no effect" if error.not_sent else EFFECT_UNKNOWN
        return f"{name} got no response: {_short_message(error)}; {effect}"
    return f"{name} failed: {_short_message(error)}"


def _short_message(error: ColonnadeError) -> str:
    """The message of an error, without the output of the server."""
    message = error.sentence.strip() or type(error).__name__
    return message if len(message) <= MAX_ERROR_CHARACTERS else f"{message[:MAX_ERROR_CHARACTERS]}…"


def _text_result(name: str, text: str, *, is_error: bool = False) -> ToolResult[Any]:
    result = t.CallToolResult(content=[t.TextContent(text=text)], is_error=is_error)
    return ToolResult(name, result)


def _error_result(call: ModelToolCall, message: str) -> ToolResult[Any]:
    result = _text_result(call.name, message, is_error=True)
    result.call = call
    return result


async def _await_if_needed(outcome: object) -> None:
    if inspect.isawaitable(outcome):
        await outcome
