"""What `colonnade chat` does: a person talks to a model, which may use the tools of servers.

Rules: which tools there are, and each call of one, is seen (R0139, R0140), and a call is made when
a person says so (`consent`). Standard output has what the model says, and nothing else. A turn that
goes wrong, or is interrupted, ends that turn and not the conversation. The key of the model is in
nothing that is shown. What a model or a server wrote never acts on the terminal.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from colonnade.auth.client.login import Auth
from colonnade.cli.commands.add import name_for
from colonnade.cli.commands.chat_consent import Consent, SaidNo, lend, lines_of, set_in
from colonnade.cli.config_session import config_for, show_problems
from colonnade.cli.credentials import login_for
from colonnade.cli.elicitation import asker
from colonnade.cli.errors import INTERRUPTED, Trouble, code_of
from colonnade.cli.options import Reach, Terms, is_configuration, reach
from colonnade.cli.session import prepare_log, run, sentence
from colonnade.cli.terminal import Screen, columns
from colonnade.client.connect import PROGRAMS
from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.host.agent.loop import MAX_TOOLS, ModelCall
from colonnade.host.agent.openai_model import (
    KeyRefused,
    Message,
    OpenAICompatible,
    text_of,
    with_tool_results,
)
from colonnade.host.agent.prompts import introduction, prompt_messages, with_resources
from colonnade.host.config.settings import Config, ServerEntry, Settings
from colonnade.host.host import Host
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from colonnade.text import clean, cut, first_line, one_line


def servers_of(terms: Terms, screen: Screen) -> Config:
    """The servers that were named. Raises `Trouble`.

    To be called where no loop runs: somebody may be asked whether a file is to be trusted.
    """
    if is_configuration(terms.target):
        return config_for(terms, screen, "")
    found = reach(terms)
    key = name_for(terms.target)
    target = _target(found)

    async def resolve() -> Any:
        return target

    settings = Settings(timeout_s=terms.timeout_s, revision=terms.revision or None)
    entry = ServerEntry(
        key=key, resolve=resolve, fingerprint=found.shown, shown=found.shown, settings=settings
    )
    return Config(entries={key: entry})


def _target(found: Reach) -> dict[str, Any]:
    """What reaches a server, as configurations have it."""
    target: str | list[str] = found.target
    if isinstance(target, str) and "://" in target:
        return {"url": target, "headers": dict(found.options["headers"])}
    if isinstance(target, str):
        target = [PROGRAMS[os.path.splitext(target)[1].lower()], target]
    return {"command": target[0], "args": target[1:], "env": found.options["env"]}


USUAL_URL: Final = "https://api.openai.com/v1"
USUAL_KEY: Final = "OPENAI_API_KEY"
# Names of tools that are shown of one server at the beginning; /tools shows all.
MAX_NAMES: Final = 12
PROMPT: Final = "you> "
BY_KEY: Final = "--key-env VARIABLE, where VARIABLE has the key of the model"
LOST: Final = "it was interrupted; whether it had an effect is not known"

HELP: Final = """\
  /tools [WORDS]           all tools, or those that fit these words
  /prompts, /resources     what else the servers offer
  /servers                 how each of them is
  /NAME key=value …        a prompt of a server, as /prompts lists them
  @URI, @SERVER/URI        anywhere in a line: give the model a resource along with it
  /new                     forget this conversation, and what was allowed in it
  /quit                    leave; so does Ctrl-D. Ctrl-C ends a turn, or drops what is typed
"""


class Wish(NamedTuple):
    """Which model, as it was typed, and whether its calls are made unasked."""

    model: str = ""
    url: str = ""
    key_env: str = ""
    yes: bool = False


def chat_target(terms: Terms, wish: Wish) -> int:
    """Let a person talk to a model with these servers; the exit code. Raises `Trouble`."""
    if terms.as_json:
        raise Trouble("chat has no --json; without a terminal its output is what the model says")
    screen, model = Screen(), chosen(wish)
    prepare_log(terms.debug)
    config = servers_of(terms, screen)
    try:
        return run(terms, screen, _chat(config, model, screen, yes=wish.yes))
    except asyncio.CancelledError:
        return INTERRUPTED


def chosen(wish: Wish) -> OpenAICompatible:
    """The model that was asked for, by flags and by the environment. Raises `Trouble`."""
    name = wish.model or os.environ.get("OPENAI_MODEL", "")
    if not name:
        raise Trouble("say which model: --model NAME, or OPENAI_MODEL in the environment")
    url = wish.url or os.environ.get("OPENAI_BASE_URL", "") or USUAL_URL
    if "://" not in url:
        shown = one_line(url.rpartition("@")[2].partition("?")[0])
        is_here = shown.startswith(("127.", "localhost", "[::1]"))
        raise Trouble(f"write {'http' if is_here else 'https'}://{shown}")
    # The usual key belongs to the usual address, or to the one that stands beside it: whoever
    # types another one says which key goes there.
    is_usual = not wish.url or urlsplit(wish.url).netloc == urlsplit(USUAL_URL).netloc
    key_env = wish.key_env or (USUAL_KEY if is_usual and os.environ.get(USUAL_KEY) else None)
    if key_env is None and url == USUAL_URL:
        raise Trouble(
            f"OpenAI wants a key: put it into {USUAL_KEY}, or name the variable: --key-env"
        )
    try:
        return OpenAICompatible(url, model=name, key_env=key_env)
    except LocalProtocolError as error:
        raise Trouble(clean(str(error))) from None


async def _chat(config: Config, model: OpenAICompatible, screen: Screen, *, yes: bool) -> int:
    asking = asyncio.Lock()

    async def on_input_request(question: HostInputRequest) -> object:
        async with asking:
            return await _answer(question, model, screen)

    def auth(url: str) -> Auth | None:
        return login_for(url, screen, ask=len(config.entries) == 1)

    async with Host(config, on_input_request=on_input_request, auth=auth) as host:
        chat = Chat(host, model, screen, Consent(screen, asking, yes=yes))
        await chat.begin()
        with _interrupting(chat):
            return await chat.talk()


async def _answer(question: HostInputRequest, model: OpenAICompatible, screen: Screen) -> object:
    """A server's question, put to the person at the terminal, with who asks and for which call."""
    calls = ", ".join(one_line(call.name) for call in question.calls)
    who = f"{one_line(question.server)} (for {calls})" if calls else one_line(question.server)
    if isinstance(question.params, t.ElicitRequestParams):
        return await asker(screen, lambda: who)(question.params)
    return await lend(model, question.params, who, screen)


class Chat:
    """One conversation."""

    def __init__(
        self, host: Host, model: OpenAICompatible, screen: Screen, consent: Consent
    ) -> None:
        self._host = host
        self._model = model
        self._screen = screen
        self._consent = consent
        self._messages: list[Message] = []
        self._turn: asyncio.Task[int] | None = None
        # Whether Ctrl-C was pressed at this prompt before.
        self._warned = False
        self._commands: dict[str, Callable[[str], Awaitable[None] | None]] = {
            "/help": self._help,
            "/tools": self._show_tools,
            "/prompts": self._show_prompts,
            "/resources": self._show_resources,
            "/servers": self._show_servers,
            "/new": self._new,
        }

    async def begin(self) -> None:
        """Say who is here, and which tools the model has (R0139)."""
        screen = self._screen
        tools = await self._host.list_tools()
        await self._new("")
        where = urlsplit(self._model.url).netloc
        name = one_line(self._model.model)
        screen.note(f"{screen.emphasis(name)} at {where} may call {_count(len(tools), 'tool')}")
        screen.note(":\n" if tools else "\n")
        screen.note(columns(_by_server(tools), most=screen.places))
        if len(tools) > MAX_TOOLS:
            screen.note("  (they are many: the model is shown a search, and what it found)\n")
        self._show_problems()
        if screen.can_ask:
            screen.note("  (/help shows what can be typed)\n")

    async def talk(self) -> int:
        """All of it, until whoever speaks has had enough; the exit code."""
        code = 0
        while (line := await self._line()) is not None and line != "/quit":
            self._warned = False
            if not line:
                continue
            self._turn = asyncio.create_task(self._take(line))
            try:
                code = await self._turn
            except asyncio.CancelledError:
                if not self._turn.cancelled():
                    raise
                self._screen.note("\n  (interrupted)\n")
                code = INTERRUPTED
            finally:
                self._turn = None
        return 0 if self._screen.can_ask else code

    def interrupt(self) -> bool:
        """End the turn; at the prompt, drop what was typed, the first time. False where that was
        the second time, or there is no user at a terminal."""
        if self._turn is not None:
            return self._turn.cancel()
        if self._warned or not self._screen.can_ask:
            return False
        self._warned = True
        self._screen.forget_typed()  # the terminal has dropped its own part of the line
        self._screen.note(f"\n  (Ctrl-C once more ends the chat; so does Ctrl-D)\n{PROMPT}")
        return True

    async def _line(self) -> str | None:
        if self._screen.can_ask:
            return await self._screen.ask(PROMPT)
        return await self._screen.next_line()

    async def _take(self, line: str) -> int:
        """One line: a command of ours, a prompt, or words. The exit code that it means."""
        word, _, rest = line.partition(" ")
        try:
            if word in self._commands:
                done = self._commands[word](rest.strip())
                if done is not None:
                    await done
            elif line.startswith("/"):
                await self._say(await prompt_messages(self._host, line.removeprefix("/prompt ")))
            else:
                await self._say(await with_resources(self._host, line))
        except KeyRefused as error:  # the key of the model is for no server, and in no header
            words = clean(str(error))
            self._screen.note(f"colonnade: {words}; say where the key is: {BY_KEY}\n")
            return code_of(error)
        except ColonnadeError as error:
            self._screen.note(f"colonnade: {sentence(error)}\n")
            return code_of(error)
        return 0

    # ------------------------------------------------------------ the model

    async def _say(self, said: list[Message]) -> None:
        """Let the model answer. Whatever ends this, what was said and done is remembered."""
        self._messages += said
        try:
            turn = await self._host.run(
                self._model,
                list(self._messages),
                on_call=self._consent.ask,
                on_result=self._show_result,
                on_progress=self._show_progress,
                on_message=self._hear,
            )
        finally:
            self._messages = with_tool_results(self._messages, LOST)
        if turn.text:
            self._screen.show(turn.text)
        if turn.stopped == "rounds":
            self._screen.note(f"  (it was stopped after {turn.rounds} rounds; say go on)\n")
        elif turn.stopped == "calls":
            self._screen.note(f"  (it was stopped after {len(turn.calls)} calls; say go on)\n")
        elif turn.stopped == "length":
            self._screen.note("  (its answer was cut by its own limit)\n")

    def _hear(self, message: Message) -> None:
        """A message came. What a model says beside its calls is shown, and is not its answer."""
        self._messages.append(message)
        if message.get("tool_calls") and (words := text_of(message).strip()):
            self._screen.note(set_in(clean(words, lines=True)))

    def _show_progress(
        self, _: ModelCall, done: float, total: float | None, message: str | None
    ) -> None:
        self._screen.progress(done, total, message)

    def _show_result(self, call: ModelCall) -> None:
        """A call is over (R0140)."""
        screen, result = self._screen, call.result
        if isinstance(call.error, SaidNo):
            return  # which whoever said it knows
        words = first_line(result.text) or ", ".join(block.type for block in result.content)
        more = len(result.text.strip().splitlines()) - 1
        lines = f" (and {_count(more, 'more line')})" if more > 0 else ""
        name = one_line(call.name)
        if not call.server:  # nobody was asked for a search, nor for a tool that is none
            name = " ".join([name, *lines_of(call.arguments)])
        mark = "<- error:" if result.is_error else "<-"
        line = f"{mark} {name} {self._consent.seconds(call):.1f} s: {words}"
        screen.note(f"{cut(line, (screen.places or 100) - 20)}{lines}\n")

    # ------------------------------------------------------------ commands

    def _help(self, _: str) -> None:
        self._screen.note(HELP)

    async def _new(self, _: str) -> None:
        told = introduction(self._host.instructions, await self._host.list_tools())
        self._messages = [{"role": "system", "content": told}]
        self._consent.forget()

    async def _show_tools(self, words: str) -> None:
        tools = await (self._host.search(words) if words else self._host.list_tools())
        rows = [[one_line(one.signature), first_line(one.description)] for one in tools]
        self._show_rows(rows, "there are no tools" if not words else "no tool fits")

    async def _show_prompts(self, _: str) -> None:
        prompts = await self._host.list_prompts()
        rows = [
            [
                " ".join([f"/{one_line(one.name)}", *map(_argument, one.arguments or ())]),
                first_line(one.description),
            ]
            for one in prompts
        ]
        self._show_rows(rows, "there are no prompts")

    async def _show_resources(self, _: str) -> None:
        found = await self._host.list_resources()
        templates = await self._host.list_resource_templates()
        rows = [[one_line(one.uri), one_line(one.server), first_line(one.title)] for one in found]
        rows += [
            [one_line(one.uri_template), one_line(one.server), first_line(one.title)]
            for one in templates
        ]
        self._show_rows(rows, "there are no resources")

    def _show_servers(self, _: str) -> None:
        failed = self._host.failures
        rows = [
            [
                one_line(one.key),
                "failed" if one.state == "idle" and one.key in failed else one.state,
                one_line(one.revision or ""),
                one_line(one.last_error),
            ]
            for one in self._host.status()
        ]
        self._show_rows(rows, "there are no servers")

    def _show_rows(self, rows: list[list[str]], nothing: str) -> None:
        shown = columns(rows, most=self._screen.places) if rows else f"  ({nothing})\n"
        self._screen.note(shown)
        self._show_problems()

    def _show_problems(self) -> None:
        show_problems(self._host.problems, self._screen)


def _argument(argument: t.PromptArgument) -> str:
    name = one_line(argument.name)
    return f"{name}=…" if argument.required else f"[{name}=…]"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _by_server(tools: Iterable[HostTool]) -> list[list[str]]:
    """Each server, and what its tools are called."""
    names: dict[str, list[str]] = {}
    for tool in tools:
        names.setdefault(one_line(tool.server), []).append(one_line(tool.original))
    return [
        [server, ", ".join(found[:MAX_NAMES]) + (f", … ({len(found)})" * (len(found) > MAX_NAMES))]
        for server, found in names.items()
    ]


@contextlib.contextmanager
def _interrupting(chat: Chat) -> Generator[None, None, None]:
    """Ctrl-C ends a turn, or drops what is typed; a second one at a prompt ends all of it."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None

    def hear() -> None:
        if not chat.interrupt():
            main.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, hear)
    except NotImplementedError:  # Windows, where it ends all of it
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
