"""Whether a call that a model wants may be made: shown whole to a person, who says so.

Rules: a person sees the exact call, and nothing of it is left out without saying so (R0141). With
nobody to ask, the answer is no. What is allowed for a conversation is one tool that says that it
only reads, as it is defined now: another definition is asked for anew. What a model or a server
wrote cannot act on the terminal, nor pose as ours.
"""

import asyncio
from time import monotonic
from typing import Any, Final, cast

from msgspec import UNSET

from colonnade.cli.session import sentence
from colonnade.cli.terminal import Screen
from colonnade.errors import ColonnadeError, Declined, Refused
from colonnade.host.agent.loop import ModelCall
from colonnade.host.agent.openai_model import OpenAICompatible
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.providers.tool_calls import content_parts, part_as_text
from colonnade.text import clean, one_line

# Of a call that is shown at once; what is longer is shown when it is asked for.
MAX_SHOWN: Final = 4_000
# An answer that is none so often is meant to be none.
MAX_TRIES: Final = 10

YES: Final = frozenset({"y", "yes"})
NO: Final = frozenset({"", "n", "no"})
ALWAYS: Final = frozenset({"a", "always"})
SHOW: Final = frozenset({"s", "show"})


class SaidNo(Refused):
    """Whoever was asked said no, or nobody was there."""


class Consent:
    """Asks a person before each call. `lock` keeps others from asking at the same time."""

    def __init__(self, screen: Screen, lock: asyncio.Lock, *, yes: bool = False) -> None:
        self._screen = screen
        self._lock = lock
        self._yes = yes
        # What was allowed for the whole conversation: a tool's name, and what it was then.
        self._allowed: dict[str, bytes] = {}
        # Calls that are under way, and when each was allowed.
        self._since: dict[int, tuple[ModelCall, float]] = {}

    async def ask(self, call: ModelCall) -> None:
        """Show a call, and let a person decide. Raises `SaidNo`."""
        await self._ask(call)
        self._since[id(call)] = call, monotonic()

    def seconds(self, call: ModelCall) -> float:
        """How long a call took that is over, without the time in which a person thought of it."""
        found = self._since.pop(id(call), None)
        return call.seconds if found is None else monotonic() - found[1]

    async def _ask(self, call: ModelCall) -> None:
        async with self._lock:
            self._show(call)
            if self._yes:
                return
            if not self._screen.can_ask:
                self._screen.note(
                    "  refused: nobody is here to allow it; --yes allows every call\n"
                )
                raise SaidNo("there is nobody to ask whether it may be called")
            if self._allowed.get(call.name) == encode(call.tool):
                self._screen.note("  (you allowed this tool)\n")
                return
            await self._decide(call)

    def forget(self) -> None:
        """A new conversation: nothing is allowed."""
        self._allowed.clear()
        self._since.clear()

    async def _decide(self, call: ModelCall) -> None:
        reads = only_reads(call.tool)
        if reads:
            self._screen.note("  (it says that it only reads)\n")
        choices = "yes, no or always (for this tool)" if reads else "yes or no"
        for _ in range(MAX_TRIES):
            said = await self._screen.ask(f"  call it? {choices} [no] ")
            word = "no" if said is None else said.lower()
            if word in SHOW:
                self._screen.note(set_in("\n".join(lines_of(call.arguments))))
            elif word in YES:
                return
            elif reads and word in ALWAYS:
                self._allowed[call.name] = encode(call.tool)
                return
            elif word in NO:
                break
        raise SaidNo("the user said no")

    def _show(self, call: ModelCall) -> None:
        screen = self._screen
        name, server = one_line(call.name), one_line(call.server)
        screen.note(f"{screen.emphasis(f'-> {name}')} (server {server})\n")
        text = "\n".join(lines_of(call.arguments))
        if len(text) > MAX_SHOWN:
            left = len(text) - MAX_SHOWN
            screen.note(set_in(text[:MAX_SHOWN]))
            screen.note(f"  (and {left} more characters; show shows all)\n")
        elif text:
            screen.note(set_in(text))


def lines_of(arguments: dict[str, Any]) -> list[str]:
    """Arguments, one a line, each as JSON: what is sent, and nothing else."""
    return [f"{clean(name)} = {clean(encode(value).decode())}" for name, value in arguments.items()]


def only_reads(tool: HostTool | None) -> bool:
    """Whether a tool says that it only reads, which proves nothing (R0294)."""
    annotations = tool.annotations if tool is not None else None
    return annotations is not None and annotations.read_only_hint is True


def set_in(text: str) -> str:
    """What somebody else wrote, set in, so that it cannot pose as a line of ours."""
    return "".join(f"  | {line}\n" for line in text.splitlines())


async def lend(
    model: OpenAICompatible, params: t.CreateMessageRequestParams, who: str, screen: Screen
) -> t.CreateMessageResult:
    """What the model says to a server, if a person agrees to the question and to the answer.
    Raises `Declined`."""
    if not screen.can_ask:
        screen.note(
            f"colonnade: {who} asks for the model's words, and nobody is here to allow it\n"
        )
        raise Declined("there is nobody to ask")
    screen.note(f"{screen.emphasis(f'{who} wants your model to answer this:')}\n")
    if params.system_prompt:
        screen.note(_set_in("system", params.system_prompt))
    for message in params.messages:
        given: Any = message.content
        blocks = cast("list[t.ContentBlock]", given if isinstance(given, list) else [given])
        screen.note(
            _set_in(message.role, "\n".join(map(part_as_text, content_parts(blocks, UNSET))))
        )
    screen.note(f"  (in {params.max_tokens} tokens at the most)\n")
    await _agree(screen, "  let it answer? yes or no [no] ")
    try:
        result = await model.sample(params)
    except ColonnadeError as error:
        screen.note(f"colonnade: {sentence(error)}\n")
        raise Declined("the model has no answer") from None
    assert isinstance(result.content, t.TextContent), "it was offered no tools"
    screen.note(_set_in("assistant", result.content.text))
    await _agree(screen, f"  send this to {who}? yes or no [no] ")
    return result


async def _agree(screen: Screen, words: str) -> None:
    if (await screen.ask(words) or "").lower() not in YES:
        raise Declined("the user said no")


def _set_in(role: str, text: str) -> str:
    """What somebody else wrote, set in, so that it cannot pose as a line of ours."""
    return f"  {one_line(role)}:\n{set_in(clean(text, lines=True).strip())}"
