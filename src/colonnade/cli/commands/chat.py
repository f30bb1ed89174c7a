"""`colonnade chat`: a conversation with a model that can call the tools of servers.

Rules: the available tools, and each call, are shown (R0139, R0140), and a call is made after the
user has approved it in the inbox of the host (`inbox_prompt`), or by a rule. Stdout has the output
of the model, and nothing else. An error or an interrupt ends the turn, not the conversation. The
API key is never printed. Text from a model or a server never controls the terminal.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click
from msgspec.structs import replace

from colonnade.auth.client.login import Auth
from colonnade.cli.commands.add import name_for
from colonnade.cli.connections import load_config_for, login_for, show_problems
from colonnade.cli.errors import INTERRUPTED, CliError, exit_code
from colonnade.cli.inbox_prompt import (
    ShownRules,
    TerminalApprovals,
    argument_lines,
    indent,
)
from colonnade.cli.options import (
    Action,
    ConnectionOptions,
    ResolvedTarget,
    ServerCommand,
    is_configuration,
    optional_connection_options,
    resolve_target,
    take_connection_options,
)
from colonnade.cli.session import configure_logging, error_message, run_async
from colonnade.cli.task_records import CHAT_FILE
from colonnade.cli.terminal import Terminal, columns
from colonnade.client.auth import storage_folder
from colonnade.client.connect import PROGRAMS
from colonnade.errors import ColonnadeError, Declined, LocalProtocolError, Refused
from colonnade.host.agent.loop import MAX_TOOLS, ModelCall
from colonnade.host.agent.openai_model import (
    KeyRefused,
    Message,
    OpenAICompatible,
    text_of,
    with_tool_results,
)
from colonnade.host.agent.prompts import introduction, prompt_messages, with_resources
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, Settings
from colonnade.host.host import Host
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.policy.approvals.config import make_inbox
from colonnade.host.policy.approvals.inbox import Inbox
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.host.servers.listings import HostTool
from colonnade.ports import Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.text import clean, cut, first_line, one_line

if TYPE_CHECKING:  # most chats have no tasks
    from colonnade.host.tasks import HostTask

# ---------------------------------------------------------------- chat


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade chat mcp.json --model gpt-5-mini
  colonnade chat --model gpt-5-mini         the configuration found for this folder
  colonnade chat server.py --model qwen3 --url http://127.0.0.1:11434/v1
  colonnade chat --model gpt-5-mini -- uvx mcp-server-git
  colonnade chat mcp.json --model gpt-5-mini --yes < questions.txt
""",
)
@optional_connection_options
@click.option("--model", default="", metavar="NAME", help="Model name.  [env: OPENAI_MODEL]")
@click.option(
    "--url",
    default="",
    metavar="URL",
    help="Base URL of a Chat Completions API.  [env: OPENAI_BASE_URL; default: OpenAI]",
)
@click.option(
    "--key-env",
    default="",
    metavar="VARIABLE",
    help="Environment variable with the API key.  [default without --url: OPENAI_API_KEY]",
)
@click.option("--yes", is_flag=True, help="Approve every tool call of the model.")
def chat(model: str, url: str, key_env: str, yes: bool, **options: Any) -> Action:
    """Chat with a model that can call the tools of servers.

    TARGET is a configuration file with any number of servers, or one server: a URL, a Python file
    (FILE[:NAME]), or a command line after --. Without TARGET, the configuration files that
    `colonnade config explain` finds are used. Every tool call of the model is shown, and made after
    you have approved it. Type /help for the commands.

    Without a terminal, every line of stdin is a message to the model, the answers go to stdout, and
    tool calls are rejected unless --yes is given.
    """
    given = ModelOptions(model, url, key_env, yes)
    return partial(chat_target, take_connection_options(options), given)


def servers_of(options: ConnectionOptions, terminal: Terminal) -> Config:
    """The servers of the target. Raises `CliError`.

    Call it outside of an event loop: it may prompt for trust.
    """
    if is_configuration(options.target):
        return load_config_for(options, terminal)
    resolved = resolve_target(options)
    key = name_for(options.target)
    settings = Settings(timeout_s=options.timeout_s, revision=options.revision or None)
    # Decisions are remembered for the whole command, and not for its short name in messages.
    return Config(entries={key: entry_of(key, _target(resolved), settings)})


def _target(resolved: ResolvedTarget) -> dict[str, Any]:
    """The target as an entry of a configuration file."""
    target: str | list[str] = resolved.target
    if isinstance(target, str) and "://" in target:
        return {"url": target, "headers": dict(resolved.options["headers"])}
    if isinstance(target, str):
        target = [PROGRAMS[os.path.splitext(target)[1].lower()], target]
    return {"command": target[0], "args": target[1:], "env": resolved.options["env"]}


OPENAI_URL: Final = "https://api.openai.com/v1"
OPENAI_KEY_ENV: Final = "OPENAI_API_KEY"
# Names of tools that are listed for each server at the start; /tools lists all.
MAX_NAMES: Final = 12
PROMPT: Final = "you> "
KEY_OPTION: Final = "--key-env VARIABLE, where VARIABLE has the API key of the model"
INTERRUPTED_CALL: Final = "the call was interrupted; whether it had an effect is unknown"

HELP: Final = """\
  /tools [QUERY]           list all tools, or search them
  /prompts, /resources     list prompts and resources
  /servers                 show the state of each server
  /tasks [ID]              list calls that still run as tasks; with ID, wait for the result
  /NAME key=value …        use a prompt of a server, as /prompts lists them
  @URI, @SERVER/URI        anywhere in a line: attach a resource
  /new                     start a new conversation, without approvals
  /quit                    leave; so does Ctrl-D. Ctrl-C ends a turn, or drops the line
"""


class ModelOptions(NamedTuple):
    """The model and its endpoint, and whether every call is approved."""

    model: str = ""
    url: str = ""
    key_env: str = ""
    yes: bool = False


def chat_target(options: ConnectionOptions, given: ModelOptions) -> int:
    """Chat with a model that can use these servers; return the exit code. Raises `CliError`."""
    if options.as_json:
        raise CliError("chat has no --json", hint="without a terminal, it prints the model's text")
    terminal, model = Terminal(), choose_model(given)
    configure_logging(options.debug)
    config = servers_of(options, terminal)
    try:
        return run_async(options, terminal, _chat(config, model, terminal, yes=given.yes))
    except asyncio.CancelledError:
        return INTERRUPTED


def choose_model(given: ModelOptions) -> OpenAICompatible:
    """The model given by options and environment. Raises `CliError`."""
    name = given.model or os.environ.get("OPENAI_MODEL", "")
    if not name:
        raise CliError("missing option --model", hint="give --model NAME, or set OPENAI_MODEL")
    url = given.url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL
    if "://" not in url:
        shown = one_line(url.rpartition("@")[2].partition("?")[0])
        is_here = shown.startswith(("127.", "localhost", "[::1]"))
        scheme = "http" if is_here else "https"
        raise CliError("--url needs a scheme", hint=f"{scheme}://{shown}")
    # OPENAI_API_KEY is for OpenAI, or for OPENAI_BASE_URL: for the URL of --url, the key must be
    # given as well, so that it is not sent to another host.
    is_usual = not given.url or urlsplit(given.url).netloc == urlsplit(OPENAI_URL).netloc
    key_env = given.key_env or (
        OPENAI_KEY_ENV if is_usual and os.environ.get(OPENAI_KEY_ENV) else None
    )
    if key_env is None and url == OPENAI_URL:
        raise CliError(
            f"OpenAI requires an API key: {OPENAI_KEY_ENV} is not set",
            hint="set it, or name another variable with --key-env",
        )
    try:
        return OpenAICompatible(url, model=name, key_env=key_env)
    except LocalProtocolError as error:
        raise CliError(clean(str(error))) from None


def chat_policy() -> Policy:
    """The rules of a chat without rules of its own: each call of the model, sampling and roots are
    asked about. Prompts and resources are used by the user alone."""
    return Policy(
        [
            Rule("allow", prompts="*", name="prompts of the user"),
            Rule("allow", resources="**", name="resources of the user"),
            Rule("ask", requests=["sampling", "roots"], name="requests of servers"),
        ],
        default="ask",
    )


async def _chat(config: Config, model: OpenAICompatible, terminal: Terminal, *, yes: bool) -> int:
    inbox = make_inbox(config.approvals) if config.approvals is not None else None
    approvals = TerminalApprovals(terminal, inbox=inbox, yes=yes)
    # Rules of the files replace ours: of both, the strictest decision would count.
    policy = chat_policy() if config.policy is None else None
    if config.policy is not None:
        config = replace(config, policy=ShownRules(config.policy, terminal))

    async def on_input_request(request: HostInputRequest) -> object:
        if isinstance(request.params, t.ElicitRequestParams):
            return await approvals.answer_input(request)
        return await _sample(model, request.params, terminal)

    def auth(url: str) -> Auth | None:
        return login_for(url, terminal, ask=len(config.entries) == 1)

    async with (
        _task_store() as store,
        _closing(approvals.inbox),
        Host(
            config,
            on_input_request=on_input_request,
            auth=auth,
            store=store,
            policy=policy,
            inbox=approvals,
        ) as host,
    ):
        chat = Chat(host, model, terminal, approvals)
        await chat.begin()
        if store is not None and (storage_folder() / CHAT_FILE).exists():
            await chat.mention_tasks()
        with _interrupting(chat):
            return await chat.run()


@asynccontextmanager
async def _closing(inbox: Inbox) -> "AsyncGenerator[None]":
    try:
        yield
    finally:
        await inbox.close()
        await inbox.store.close()


async def _sample(
    model: OpenAICompatible, params: t.CreateMessageRequestParams, terminal: Terminal
) -> t.CreateMessageResult:
    """The text of the model for a sampling request that the user has approved. Raises
    `Declined`."""
    try:
        return await model.sample(params)
    except ColonnadeError as error:
        terminal.note(f"colonnade: {error_message(error)}\n")
        raise Declined("the model failed") from None


@asynccontextmanager
async def _task_store() -> "AsyncGenerator[Store | None]":
    """The store of the tasks of all chats; None if there is no place for its file, which is only
    created for a task."""
    folder = storage_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        yield None
        return
    from colonnade.store.sqlite import SqliteStore

    store = SqliteStore(folder / CHAT_FILE)
    try:
        yield store
    finally:
        await store.close()


class Chat:
    """One conversation."""

    def __init__(
        self, host: Host, model: OpenAICompatible, terminal: Terminal, approvals: TerminalApprovals
    ) -> None:
        self._host = host
        self._model = model
        self._terminal = terminal
        self._approvals = approvals
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
            "/tasks": self._show_tasks,
            "/new": self._new,
        }

    async def begin(self) -> None:
        """Print the model and its tools (R0139)."""
        terminal = self._terminal
        tools = await self._host.list_tools()
        await self._new("")
        where = urlsplit(self._model.url).netloc
        name = one_line(self._model.model)
        terminal.note(f"{terminal.emphasis(name)} at {where} may call {_count(len(tools), 'tool')}")
        terminal.note(":\n" if tools else "\n")
        terminal.note(columns(_by_server(tools), most=terminal.width))
        if len(tools) > MAX_TOOLS:
            terminal.note("  (too many for one request: the model searches for tools)\n")
        self._show_problems()
        if terminal.can_ask:
            terminal.note("  (type /help for help)\n")

    async def run(self) -> int:
        """Read and handle lines until the end of input or /quit; return the exit code."""
        code = 0
        while (line := await self._line()) is not None and line != "/quit":
            self._warned = False
            if not line:
                continue
            self._turn = asyncio.create_task(self._handle_line(line))
            try:
                code = await self._turn
            except asyncio.CancelledError:
                if not self._turn.cancelled():
                    raise
                self._terminal.note("\n  (interrupted)\n")
                code = INTERRUPTED
            finally:
                self._turn = None
        return 0 if self._terminal.can_ask else code

    def interrupt(self) -> bool:
        """End the turn; at the prompt, drop the line, the first time. Returns False the second
        time, or if there is no terminal."""
        if self._turn is not None:
            return self._turn.cancel()
        if self._warned or not self._terminal.can_ask:
            return False
        self._warned = True
        self._terminal.forget_typed()  # the terminal has dropped its own part of the line
        self._terminal.note(f"\n  (press Ctrl-C again, or Ctrl-D, to leave)\n{PROMPT}")
        return True

    async def _line(self) -> str | None:
        if self._terminal.can_ask:
            return await self._terminal.ask(PROMPT)
        return await self._terminal.next_line()

    async def _handle_line(self, line: str) -> int:
        """Handle one line: a command, a prompt, or a message. Returns its exit code."""
        command, _, rest = line.partition(" ")
        try:
            if command in self._commands:
                done = self._commands[command](rest.strip())
                if done is not None:
                    await done
            elif line.startswith("/"):
                await self._run_turn(
                    await prompt_messages(self._host, line.removeprefix("/prompt "))
                )
            else:
                await self._run_turn(await with_resources(self._host, line))
        except KeyRefused as error:  # the hint for servers (a header) does not apply
            message = clean(str(error))
            self._terminal.note(f"colonnade: {message}; give the key with {KEY_OPTION}\n")
            return exit_code(error)
        except ColonnadeError as error:
            self._terminal.note(f"colonnade: {error_message(error)}\n")
            return exit_code(error)
        return 0

    # ------------------------------------------------------------ the model

    async def _run_turn(self, answer: list[Message]) -> None:
        """Let the model answer. However it ends, the messages so far are kept."""
        self._messages += answer
        try:
            turn = await self._host.run(
                self._model,
                list(self._messages),
                on_result=self._show_result,
                on_progress=self._show_progress,
                on_message=self._on_message,
            )
        finally:
            self._messages = with_tool_results(self._messages, INTERRUPTED_CALL)
        if turn.text:
            self._terminal.show(turn.text)
        if turn.stopped == "rounds":
            self._terminal.note(f"  (stopped after {turn.rounds} rounds; type 'go on')\n")
        elif turn.stopped == "calls":
            self._terminal.note(f"  (stopped after {len(turn.calls)} calls; type 'go on')\n")
        elif turn.stopped == "length":
            self._terminal.note("  (cut at the model's output limit)\n")

    def _on_message(self, message: Message) -> None:
        """Keep a message; print the text that comes with tool calls, which is not the answer."""
        self._messages.append(message)
        if message.get("tool_calls") and (text := text_of(message).strip()):
            self._terminal.note(indent(clean(text, lines=True)))

    def _show_progress(
        self, _: ModelCall, done: float, total: float | None, message: str | None
    ) -> None:
        self._terminal.progress(done, total, message)

    def _show_result(self, call: ModelCall) -> None:
        """Print the result of a call (R0140)."""
        terminal, result = self._terminal, call.result
        decision_s = self._approvals.decision_s(call.name, call.arguments)
        if isinstance(call.error, Refused) and call.error.reason in ("approval", "no_approver"):
            return  # the user knows
        summary = first_line(result.text) or ", ".join(block.type for block in result.content)
        more = len(result.text.strip().splitlines()) - 1
        lines = f" (and {_count(more, 'more line')})" if more > 0 else ""
        name = one_line(call.name)
        if not call.server:  # a search, or an unknown tool: it was not shown before
            name = " ".join([name, *argument_lines(encode(call.arguments).decode())])
        mark = "<- error:" if result.is_error else "<-"
        line = f"{mark} {name} {max(call.seconds - decision_s, 0.0):.1f} s: {summary}"
        terminal.note(f"{cut(line, (terminal.width or 100) - 20)}{lines}\n")

    # ------------------------------------------------------------ commands

    def _help(self, _: str) -> None:
        self._terminal.note(HELP)

    async def _new(self, _: str) -> None:
        instructions = introduction(self._host.instructions, await self._host.list_tools())
        self._messages = [{"role": "system", "content": instructions}]
        self._approvals.remembered.forget_session()

    async def _show_tools(self, words: str) -> None:
        tools = await (self._host.search(words) if words else self._host.list_tools())
        rows = [[one_line(one.signature), first_line(one.description)] for one in tools]
        self._show_rows(rows, "there are no tools" if not words else "no tool matches")

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

    async def mention_tasks(self) -> None:
        """Say that earlier calls still run as tasks, or have results that were not read."""
        count = len(await self._tasks(refresh=False))
        if count:
            self._terminal.note(f"  ({_count(count, 'task')} of earlier chats: type /tasks)\n")

    async def _tasks(self, *, refresh: bool) -> "list[HostTask]":
        """The tasks of the servers of this chat; other chats may have had others."""
        servers = {one.key for one in self._host.status()}
        kept = await self._host.tasks(refresh=False)
        own = [one for one in kept if one.server in servers]
        if refresh and own:
            from colonnade.host.tasks import refresh_all

            return await refresh_all(own)
        return own

    async def _show_tasks(self, id: str) -> None:
        if not id:
            rows = [
                [one.id, one_line(one.tool), one.status, one_line(one.message or "")]
                for one in await self._tasks(refresh=True)
            ]
            self._show_rows(rows, "there are no tasks")
            return
        for task in await self._tasks(refresh=False):
            if task.id == id:
                result = await task.result()
                self._terminal.show(result.text)
                return
        self._terminal.note(f"  (there is no task {one_line(id)}; type /tasks)\n")

    def _show_rows(self, rows: list[list[str]], nothing: str) -> None:
        shown = columns(rows, most=self._terminal.width) if rows else f"  ({nothing})\n"
        self._terminal.note(shown)
        self._show_problems()

    def _show_problems(self) -> None:
        show_problems(self._host.problems, self._terminal)


def _argument(argument: t.PromptArgument) -> str:
    name = one_line(argument.name)
    return f"{name}=…" if argument.required else f"[{name}=…]"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _by_server(tools: Iterable[HostTool]) -> list[list[str]]:
    """Each server, and the names of its tools."""
    names: dict[str, list[str]] = {}
    for tool in tools:
        names.setdefault(one_line(tool.server), []).append(one_line(tool.original))
    return [
        [server, ", ".join(found[:MAX_NAMES]) + (f", … ({len(found)})" * (len(found) > MAX_NAMES))]
        for server, found in names.items()
    ]


@contextlib.contextmanager
def _interrupting(chat: Chat) -> Generator[None, None, None]:
    """Handle Ctrl-C: it ends a turn, or drops the line; the second time it ends the chat."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None

    def on_interrupt() -> None:
        if not chat.interrupt():
            main.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    except NotImplementedError:  # Windows, where it ends the chat
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
