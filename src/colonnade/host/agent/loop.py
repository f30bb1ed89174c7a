"""The model's turn: offer the tools, take its choice, call, tell the result, until it is done.

    run = await host.run(model, "Is it warm in Oslo?")
    run.text, run.calls, run.messages, run.stopped

A model is a function of (messages, tools) that gives its reply, in the form of Chat Completions;
`OpenAICompatible` is one for an endpoint. Calls of one reply are made at once, and told in their
order.

Rules: whatever becomes of a call is told to the model, in words that it can act on: an error of a
tool, a server that is gone, somebody who said no. Raised is what no model can mend: its own
provider's failures, and mistakes of the program. Rounds, calls and the length of a result have
bounds. What a server wrote to its standard error, and what it takes to log in, is for people, and
is not told to a model. The messages that were given are not changed.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
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
from colonnade.host.agent.openai_model import Message, conversation, read_reply, shorten, words_of
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from colonnade.protocol.schema.error_messages import suggestion
from colonnade.providers import openai
from colonnade.providers.openai import read_call
from colonnade.providers.schemas import remove_null_fillers
from colonnade.providers.tool_calls import ModelToolCall
from colonnade.text import cut, first_line

# Models choose well among some dozens; providers refuse more than 128.
MAX_TOOLS: Final = 40
# What one search gives, if the model does not say, and at the most.
FOUND: Final = 5
MAX_FOUND: Final = 20
# Of what is told to a model: servers that are named, names that are near, a line about a tool.
MAX_NAMED: Final = 30
MAX_NEAR: Final = 5
MAX_LINE: Final = 200

FIND: Final = "find_tools"


class Toolbox:
    """What a model may call, and what of it is shown in the next round.

    `only` are the names that it may call, None for all that there are.
    """

    def __init__(self, only: Iterable[str] | None = None, max_tools: int = MAX_TOOLS) -> None:
        if max_tools < 2:
            raise InvalidArgument(
                "max_tools must be at least 2: a search, and what it found", argument="max_tools"
            )
        self._only = None if only is None else frozenset(only)
        self._max_tools = max_tools
        # In the order in which they were found, so that what a provider keeps of a conversation
        # stays good; with each the moment when it was last of use.
        self._found: dict[str, int] = {}
        self._moment = 0
        # Every tool that may be called, by its name.
        self.tools: Mapping[str, HostTool] = {}
        self._named: Mapping[str, HostTool] = {}
        # What the search is called here; nothing where all tools are shown.
        self.search: str = ""

    def learn(self, tools: Iterable[HostTool]) -> None:
        """These are the tools now. Raises `LocalProtocolError` for one that was named and is none;
        a tool that has gone later is no mistake of who named it."""
        listed = list(tools)
        named = {name: tool for tool in listed for name in names_of(tool)}
        if self._only is not None:
            if not self._named and (missing := sorted(self._only - named.keys())):
                near = get_close_matches(missing[0], named, n=MAX_NEAR)
                more = f"; there is {', '.join(near)}" if near else ""
                raise InvalidArgument(
                    f"tools=: there is no tool {missing[0]!r}{more}", argument="tools"
                )
            listed = [tool for tool in listed if not self._only.isdisjoint(names_of(tool))]
        self.tools = {tool.name: tool for tool in listed}
        self._named = {name: tool for tool in listed for name in names_of(tool)}
        self.search = ""
        if len(listed) > self._max_tools:
            self.search = FIND
            while self.search in self._named:  # somebody's alias
                self.search += "_"

    def get(self, name: str) -> HostTool | None:
        """The tool that a model means by a name; None where it is none that it may call."""
        return self._named.get(name)

    def entries(self) -> list[dict[str, Any]]:
        """The tools that a model is shown now, as Chat Completions has them."""
        if not self.search:
            return [tool.to_openai() for tool in self.tools.values()]
        found = [self.tools[name] for name in self._found if name in self.tools]
        return [self._finder(), *(tool.to_openai() for tool in found)]

    def found(self, tools: Iterable[HostTool]) -> list[HostTool]:
        """A search gave these; those of them that may be called are shown from now on."""
        allowed = [self.tools[tool.name] for tool in tools if tool.name in self.tools]
        for tool in allowed:
            self._found.setdefault(tool.name, 0)
        self.used(*(tool.name for tool in reversed(allowed)))  # the best is kept longest
        return allowed

    def used(self, *names: str) -> None:
        """Tools were found, or called: they are shown for longer than those before."""
        if not self.search:
            return
        for name in names:
            self._moment += 1
            self._found[name] = self._moment
        while len(self._found) >= self._max_tools:
            del self._found[min(self._found, key=self._found.__getitem__)]

    # ------------------------------------------------------------ words for a model

    def no_such(self, name: str) -> str:
        """What a model is told that wants a tool which is none."""
        near = get_close_matches(name, self.tools, n=MAX_NEAR)
        if not near and not self.search:
            near = list(self.tools)[:MAX_NEAR]
        if near:
            return f"there is no tool {name!r}; there is {', '.join(near)}"
        more = f"; look for one with {self.search}" if self.search else "; there is none at all"
        return f"there is no tool {name!r}{more}"

    def told(self, words: str, found: list[HostTool]) -> str:
        """What a model is told that has searched."""
        if not found:
            return f"No tool was found for {words!r}; try other words. {self._servers()}"
        lines = [f"- {tool.signature}: {_line(tool.description)}" for tool in found]
        return "\n".join(["Found, and can be called from now on:", *lines])

    def _finder(self) -> dict[str, Any]:
        words = (
            f"Find tools by what they do. There are {len(self.tools)}, and only those that were "
            f"found can be seen. {self._servers()}"
        )
        what = "What the tool should do, in a few words, such as: list commits of a repository"
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {
                "words": {"type": "string", "description": what},
                "limit": {"type": "integer", "description": f"How many, 1 to {MAX_FOUND}"},
            },
            "required": ["words"],
        }
        return openai.tool_entry(self.search, words, parameters, "chat", want_strict=True)

    def _servers(self) -> str:
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.server] = counts.get(tool.server, 0) + 1
        named = [f"{server} ({count})" for server, count in list(counts.items())[:MAX_NAMED]]
        more = ", and others" if len(counts) > MAX_NAMED else ""
        return f"They are of these servers: {', '.join(named)}{more}."


def names_of(tool: HostTool) -> tuple[str, ...]:
    """All names of a tool in the catalogue."""
    return (tool.name, *tool.aliases)


def _line(description: str | None) -> str:
    return cut(first_line(description), MAX_LINE) or "it does not say what it does"


# Replies of the model. What needs more has lost its way, and each costs money.
MAX_ROUNDS: Final = 20
# Calls in all, and of one reply at the same time.
MAX_CALLS: Final = 100
AT_ONCE: Final = 8
# Of one result, in characters: some 12,000 tokens, of which a conversation bears several.
MAX_CHARACTERS: Final = 50_000
# Of the words of an error.
MAX_WORDS: Final = 1_000

# (messages, tools) -> reply, sync or async; one that is not async must not block.
Model: TypeAlias = Callable[[list[Message], list[dict[str, Any]]], Any]
# `done`: the model has said what it wanted. `length`: it was shorten short by its own limit.
Stopped: TypeAlias = Literal["done", "rounds", "calls", "length"]


class Turning(Protocol):
    """Who has the tools: a host, for one caller."""

    async def list_tools(self, *, caller: str | None = None) -> Sequence[HostTool]: ...

    async def search(
        self, words: str, limit: int = FOUND, *, caller: str | None = None
    ) -> Sequence[HostTool]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        caller: str | None = None,
        on_progress: Callable[[float, float | None, str | None], Any] | None = None,
    ) -> ToolResult[Any]: ...


class ModelCall(msgspec.Struct, kw_only=True):
    """One call that a model wanted: of which tool of which server, with what, and what came of it.

    `server` is empty for a search and for a tool that is none. `result` is what the model was told,
    before it was shorten; `error` is what was raised instead of a result of the tool's own.
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
    """What came of a model's turn: the whole conversation, the model's last words, its calls."""

    messages: list[Message]
    text: str = ""
    rounds: int = 0
    calls: list[ModelCall] = msgspec.field(default_factory=list[ModelCall])
    stopped: Stopped = "done"


# Told of a call before it is made, and after, sync or async. What the first one raises, the call
# ends with: `Refused` is how a person or a policy says no.
OnCall: TypeAlias = Callable[[ModelCall], object]
# Told how a call is getting on: how much of how much, and in words.
OnProgress: TypeAlias = Callable[[ModelCall, float, float | None, str | None], object]
# Told of each message as it comes.
OnMessage: TypeAlias = Callable[[Message], None]


class RunOptions(TypedDict, total=False):
    """What may be said of a model's turn, all of it optional.

    - `tools` are the names of those that it may call; without it, all.
    - `max_rounds`, `max_calls` and `max_characters` (of one result) are bounds.
    - Where there are more tools than `max_tools`, a search is shown instead, and what it found.
    - `on_call` is told of a call before it is made, and may raise `Refused`; `on_progress` how it
      is getting on; `on_result` when it is over; `on_message` of each message as it comes.
    - `caller` is on whose behalf all of it is done.
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
    caller: str | None


async def run(
    host: Turning, model: Model, messages: str | Iterable[object], **options: Unpack[RunOptions]
) -> Run:
    """Let a model use the tools of a host until it is done, or a bound is reached; see
    `RunOptions`. Raises what the model raises, `LocalProtocolError` for a tool that is none, and
    `TypeError` for an option that is none."""
    for name in options:
        if name not in RunOptions.__annotations__:
            raise InvalidArgumentType(f"run() has no option {name!r}{_meant(name)}", argument=name)
    turn = _Turn(host, conversation(messages), options)
    await turn.go(model)
    return turn.run


def _meant(name: str) -> str:
    known = list(RunOptions.__annotations__)
    return suggestion(name, known) or f"; there are {', '.join(known)}"


class _Turn:
    """One turn of one model."""

    def __init__(self, host: Turning, messages: list[Message], options: RunOptions) -> None:
        self.run = Run(messages=messages)
        self._host = host
        self._toolbox = Toolbox(options.get("tools"), options.get("max_tools", MAX_TOOLS))
        self._max_rounds = options.get("max_rounds", MAX_ROUNDS)
        self._max_calls = options.get("max_calls", MAX_CALLS)
        self._max_characters = options.get("max_characters", MAX_CHARACTERS)
        if self._max_rounds < 1 or self._max_calls < 0 or self._max_characters < 1:
            raise InvalidArgument("max_rounds and max_characters are at least 1, max_calls 0")
        self._on_call = options.get("on_call")
        self._on_result = options.get("on_result")
        self._on_progress = options.get("on_progress")
        self._on_message = options.get("on_message")
        self._caller = options.get("caller")
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def go(self, model: Model) -> None:
        """All rounds."""
        run = self.run
        max_rounds, max_calls = self._max_rounds, self._max_calls
        while True:
            self._toolbox.learn(await self._host.list_tools(caller=self._caller))
            reply = model(list(run.messages), self._toolbox.entries())
            message, reason = read_reply(await reply if inspect.isawaitable(reply) else reply)
            run.rounds += 1
            run.text = words_of(message)
            self._add(message)
            wanted = [read_call(one) for one in message.get("tool_calls", ())]
            if not wanted:
                run.stopped = "length" if reason == "length" else "done"
                return
            if run.rounds >= max_rounds:
                run.stopped = "rounds"
                self._leave(wanted, f"this was the last of {max_rounds} rounds")
                return
            if len(run.calls) + len(wanted) > max_calls:
                run.stopped = "calls"
                self._leave(wanted, f"{max_calls} calls are the most in one turn")
                return
            await self._make(wanted)

    def _add(self, message: Message) -> None:
        self.run.messages.append(message)
        if self._on_message is not None:
            self._on_message(message)

    def _leave(self, wanted: list[ModelToolCall], why: str) -> None:
        """Answer calls that are not made: a conversation with a call that nobody answered cannot
        go on, and whoever reads this one may want to."""
        for call in wanted:
            self._add(_refusal(call, f"{call.name} was not called: {why}").to_openai())

    async def _make(self, wanted: list[ModelToolCall]) -> None:
        made = [self._begun(call) for call in wanted]
        self.run.calls += made
        try:
            async with asyncio.TaskGroup() as group:
                for call, one in zip(wanted, made, strict=True):
                    group.create_task(self._settle(call, one))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # whoever called made no group
        for one in made:
            told = one.result.to_openai()
            self._add(told | {"content": shorten(told["content"], self._max_characters)})

    def _begun(self, call: ModelToolCall) -> ModelCall:
        tool = self._toolbox.get(call.name)
        arguments = call.arguments
        if tool is not None:
            arguments = remove_null_fillers(arguments, tool.input_schema)
            self._toolbox.used(tool.name)
        server = tool.server if tool is not None else ""
        return ModelCall(id=call.id, name=call.name, server=server, arguments=arguments, tool=tool)

    async def _settle(self, call: ModelToolCall, made: ModelCall) -> None:
        async with self._at_once:
            started = monotonic()
            try:
                result = await self._result(call, made)
            except ColonnadeError as error:
                made.error = error
                result = _refusal(call, failure(made.name, made.server, error))
            made.seconds = monotonic() - started
        result.call = call
        made.result = result
        if self._on_result is not None:
            await _done(self._on_result(made))

    async def _result(self, call: ModelToolCall, made: ModelCall) -> ToolResult[Any]:
        if self._toolbox.search and call.name == self._toolbox.search:
            return _said(call.name, await self._search(made.arguments))
        if made.tool is None:
            return _refusal(call, self._toolbox.no_such(call.name))
        if call.problem:
            return _refusal(call, f"{call.name}: {call.problem}")
        if self._on_call is not None:
            await _done(self._on_call(made))
        on_progress = None
        if self._on_progress is not None:
            on_progress = partial(self._on_progress, made)
        return await self._host.call_tool(
            call.name, made.arguments, caller=self._caller, on_progress=on_progress
        )

    async def _search(self, arguments: dict[str, Any]) -> str:
        words: object = arguments.get("words")
        limit: object = arguments.get("limit")
        if not isinstance(words, str) or not words.strip():
            return "Say in `words` what the tool should do."
        most = min(max(limit, 1), MAX_FOUND) if isinstance(limit, int) else FOUND
        found = await self._host.search(words, most, caller=self._caller)
        return self._toolbox.told(words, self._toolbox.found(found))


# ---------------------------------------------------------------- words for a model


def failure(name: str, server: str, error: ColonnadeError) -> str:
    """What a model is told of a call that had no result."""
    if isinstance(error, AuthError):
        return f"{name} was not done: {server} wants a login, which only a person can make"
    if isinstance(error, Refused):
        return f"{name} was refused: {_short(error)}"
    if isinstance(error, RemoteError):
        return f"{name} was refused by {server}: {_short(error)}"
    if isinstance(error, ChannelError):
        effect = "it had no effect" if error.not_sent else EFFECT_UNKNOWN
        return f"{name} was not answered: {_short(error)}; {effect}"
    return f"{name} failed: {_short(error)}"


def _short(error: ColonnadeError) -> str:
    """The words of an error, without what a server wrote for the people who run it."""
    words = error.sentence.strip() or type(error).__name__
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"


def _said(name: str, words: str, *, is_error: bool = False) -> ToolResult[Any]:
    said = t.CallToolResult(content=[t.TextContent(text=words)], is_error=is_error)
    return ToolResult(name, said)


def _refusal(call: ModelToolCall, words: str) -> ToolResult[Any]:
    result = _said(call.name, words, is_error=True)
    result.call = call
    return result


async def _done(outcome: object) -> None:
    if inspect.isawaitable(outcome):
        await outcome
