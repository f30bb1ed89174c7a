"""User approval in `colonnade chat`: of the model's tool calls, and of sampling requests.

Rules: the user sees the exact call, and where something is cut the output says so (R0141). Without
a terminal the answer is no. "Always" is for one tool with `readOnlyHint`, in its current
definition, for the rest of the conversation: a changed definition is asked for again. Text from a
model or a server cannot control the terminal, nor look like our own output.
"""

import asyncio
from time import monotonic
from typing import Any, Final, cast

from msgspec import UNSET

from colonnade.cli.session import error_message
from colonnade.cli.terminal import Terminal
from colonnade.errors import ColonnadeError, Declined, Refused
from colonnade.host.agent.loop import ModelCall
from colonnade.host.agent.openai_model import OpenAICompatible
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.tool_calls import content_parts, part_as_text
from colonnade.text import clean, one_line

# The most characters of a call that are shown at once; `show` prints the rest.
MAX_SHOWN: Final = 4_000
# Invalid answers before the call is rejected.
MAX_TRIES: Final = 10

YES: Final = frozenset({"y", "yes"})
NO: Final = frozenset({"", "n", "no"})
ALWAYS: Final = frozenset({"a", "always"})
SHOW: Final = frozenset({"s", "show"})


class CallRejected(Refused):
    """The user rejected the call, or there is no user."""


class CallApproval:
    """Asks the user before each call. `lock` is held while a question is open."""

    def __init__(self, terminal: Terminal, lock: asyncio.Lock, *, yes: bool = False) -> None:
        self._terminal = terminal
        self._lock = lock
        self._yes = yes
        # Tools that are always allowed: the name of each, and its definition at that time.
        self._allowed: dict[str, bytes] = {}
        # Calls that run, and when each was approved.
        self._since: dict[int, tuple[ModelCall, float]] = {}

    async def ask(self, call: ModelCall) -> None:
        """Show a call, and ask the user. Raises `CallRejected`."""
        await self._ask(call)
        self._since[id(call)] = call, monotonic()

    def seconds(self, call: ModelCall) -> float:
        """The duration of a finished call, without the time that the user took to decide."""
        found = self._since.pop(id(call), None)
        return call.seconds if found is None else monotonic() - found[1]

    async def _ask(self, call: ModelCall) -> None:
        async with self._lock:
            self._show(call)
            if self._yes:
                return
            if not self._terminal.can_ask:
                self._terminal.note(
                    "  rejected: there is no terminal to ask in; --yes approves every call\n"
                )
                raise CallRejected("there is no user to approve the call")
            if self._allowed.get(call.name) == encode(call.tool):
                self._terminal.note("  (always approved)\n")
                return
            await self._decide(call)

    def forget(self) -> None:
        """Start a new conversation: nothing is approved."""
        self._allowed.clear()
        self._since.clear()

    async def _decide(self, call: ModelCall) -> None:
        reads = is_read_only(call.tool)
        if reads:
            self._terminal.note("  (the tool declares itself read-only)\n")
        choices = "yes, no or always (for this tool)" if reads else "yes or no"
        for _ in range(MAX_TRIES):
            answer = await self._terminal.ask(f"  call it? {choices} [no] ")
            choice = "no" if answer is None else answer.lower()
            if choice in SHOW:
                self._terminal.note(indent("\n".join(argument_lines(call.arguments))))
            elif choice in YES:
                return
            elif reads and choice in ALWAYS:
                self._allowed[call.name] = encode(call.tool)
                return
            elif choice in NO:
                break
        raise CallRejected("the user rejected the call")

    def _show(self, call: ModelCall) -> None:
        terminal = self._terminal
        name, server = one_line(call.name), one_line(call.server)
        terminal.note(f"{terminal.emphasis(f'-> {name}')} (server {server})\n")
        text = "\n".join(argument_lines(call.arguments))
        if len(text) > MAX_SHOWN:
            left = len(text) - MAX_SHOWN
            terminal.note(indent(text[:MAX_SHOWN]))
            terminal.note(f"  (and {left} more characters; type show to see them)\n")
        elif text:
            terminal.note(indent(text))


def argument_lines(arguments: dict[str, Any]) -> list[str]:
    """Arguments as JSON, one per line, exactly as they are sent."""
    return [f"{clean(name)} = {clean(encode(value).decode())}" for name, value in arguments.items()]


def is_read_only(tool: HostTool | None) -> bool:
    """Whether a tool declares itself read-only, which is not proof (R0294)."""
    annotations = tool.annotations if tool is not None else None
    return annotations is not None and annotations.read_only_hint is True


def indent(text: str) -> str:
    """Text from a model or server, indented, so that it cannot look like our own output."""
    return "".join(f"  | {line}\n" for line in text.splitlines())


async def approve_sampling(
    model: OpenAICompatible,
    params: t.CreateMessageRequestParams,
    server_name: str,
    terminal: Terminal,
) -> t.CreateMessageResult:
    """Answer a sampling request, if the user approves the request and the result. Raises
    `Declined`."""
    if not terminal.can_ask:
        terminal.note(
            f"colonnade: {server_name} requests sampling; declined, because there is no terminal\n"
        )
        raise Declined("there is no user to ask")
    terminal.note(f"{terminal.emphasis(f'{server_name} requests sampling from your model:')}\n")
    if params.system_prompt:
        terminal.note(_format_message("system", params.system_prompt))
    for message in params.messages:
        given: Any = message.content
        blocks = cast("list[t.ContentBlock]", given if isinstance(given, list) else [given])
        terminal.note(
            _format_message(
                message.role, "\n".join(map(part_as_text, content_parts(blocks, UNSET)))
            )
        )
    terminal.note(f"  (at most {params.max_tokens} tokens)\n")
    await _agree(terminal, "  send it to the model? yes or no [no] ")
    try:
        result = await model.sample(params)
    except ColonnadeError as error:
        terminal.note(f"colonnade: {error_message(error)}\n")
        raise Declined("the model failed") from None
    assert isinstance(result.content, t.TextContent), "no tools were given to the model"
    terminal.note(_format_message("assistant", result.content.text))
    await _agree(terminal, f"  send this to {server_name}? yes or no [no] ")
    return result


async def _agree(terminal: Terminal, words: str) -> None:
    if (await terminal.ask(words) or "").lower() not in YES:
        raise Declined("the user declined")


def _format_message(role: str, text: str) -> str:
    """A message, indented below its role."""
    return f"  {one_line(role)}:\n{indent(clean(text, lines=True).strip())}"
