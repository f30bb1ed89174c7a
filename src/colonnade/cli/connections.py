"""What a command talks to: one server, or all servers of a configuration file, in one interface.

Rules: only what the commands use. Of a configuration file, no more servers are started than the
command needs, and an error of one server does not affect the others.
"""

import asyncio
import contextlib
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from colonnade.auth.client.discovery import DiscoveryResult
from colonnade.auth.client.login import Auth, Login
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import Flow, FlowContext
from colonnade.auth.client.tokens import Tokens
from colonnade.auth.jose import SigningKey
from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import display_url
from colonnade.cli.commands.config import problem_to_json
from colonnade.cli.config_target import TrustPrompt, configuration
from colonnade.cli.elicitation import elicitation_handler
from colonnade.cli.errors import TOKEN_OPTION, USAGE, CliError, exit_code
from colonnade.cli.options import FOUND_FILES, ConnectionOptions, shown_configuration
from colonnade.cli.terminal import Terminal
from colonnade.client.client import Client
from colonnade.client.request import OnLog, OnProgress
from colonnade.client.tasks.task import ClientTask
from colonnade.errors import ColonnadeError, Declined, Fault, FaultKind, LoginRequired, RemoteError
from colonnade.host.config.explain import line
from colonnade.host.config.settings import Config, HostProblem
from colonnade.host.host import Host
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.servers.listings import describe_error
from colonnade.host.servers.naming import BETWEEN, qualified_name
from colonnade.host.servers.supervisor import url_of
from colonnade.host.tasks import HostTask
from colonnade.protocol import types as t
from colonnade.text import clean, one_line

if TYPE_CHECKING:  # most commands use a single server
    from colonnade.host.host import Host

T = TypeVar("T")


class ServerListing(NamedTuple):
    """Everything that a server lists."""

    tools: Sequence[t.Tool]
    prompts: Sequence[t.Prompt]
    resources: Sequence[t.Resource]
    templates: Sequence[t.ResourceTemplate]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON, with the names of the protocol."""
        return {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "resourceTemplates": self.templates,
        }


# ---------------------------------------------------------------- one server


class SingleServer:
    """A single server. A list that it does not support is empty."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def list_tools(self) -> Sequence[t.Tool]:
        """List its tools."""
        return await self._list_if_offered(self.client.capabilities.tools, self.client.list_tools)

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """List its prompts."""
        offered = self.client.capabilities.prompts
        return await self._list_if_offered(offered, self.client.list_prompts)

    async def start_task(self, name: str, arguments: Mapping[str, Any]) -> ClientTask:
        """Call a tool; it is done, or runs as a task."""
        return await self.client.start_task(name, arguments)

    def resume_task(self, handle: str, tool: str) -> ClientTask:
        """The task of a handle."""
        return self.client.resume_task(handle)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """Get the messages of a prompt."""
        return await self.client.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read the contents of a resource."""
        return await self.client.read_resource(uri)

    async def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """What an argument of a prompt, or a variable of a template, may become."""
        return await self.client.complete(
            argument, value, prompt=prompt, template=template, context=context
        )

    async def list_all(self) -> ServerListing:
        """List everything."""
        has = self.client.capabilities.resources
        return ServerListing(
            await self.list_tools(),
            await self.list_prompts(),
            await self._list_if_offered(has, self.client.list_resources),
            await self._list_if_offered(has, self.client.list_resource_templates),
        )

    async def _list_if_offered(
        self, offered: object, listed: Callable[[], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        if offered is None:
            return []
        try:
            return await listed()
        except RemoteError as error:
            # Many servers have resources but no templates, and answer "method not found".
            if error.code == self.client.peer.revision.codes[FaultKind.METHOD_NOT_FOUND]:
                return []
            what = listed.__name__.removeprefix("list_").replace("_", " ")
            error.args = (f"{self.client.name} cannot list its {what}: {error}",)
            raise


# ---------------------------------------------------------------- a configuration file


class ConfiguredServers:
    """The servers of a configuration file, behind one `Host`. `server` is the key of the one that
    was chosen with `--server`, if any."""

    def __init__(
        self,
        host: "Host",
        *,
        server: str = "",
        on_progress: OnProgress | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        self.host = host
        self._server = server or None
        self._on_progress = on_progress
        self._on_log = on_log

    @property
    def problems(self) -> list[HostProblem]:
        """The problems known so far; of a server that failed, only why."""
        failed = self.host.failures
        found = [one for one in self.host.problems if one.server not in failed]
        return found + [
            HostProblem(key, describe_error(error, key)) for key, error in failed.items()
        ]

    def stderr_lines(self) -> list[tuple[str, str]]:
        """The last lines that the servers wrote to stderr, each with the key of its server."""
        return [(one.key, line) for one in self.host.status() for line in one.stderr]

    async def list_tools(self) -> Sequence[t.Tool]:
        """List every tool. Raises if there is none because a server failed."""
        return self._non_empty(await self.host.list_tools())

    async def list_prompts(self) -> Sequence[t.Prompt]:
        """List every prompt. Raises if there is none because a server failed."""
        return self._non_empty(await self.host.list_prompts())

    def _non_empty(self, listed: Sequence[T]) -> Sequence[T]:
        if not listed:
            for error in self.host.failures.values():
                raise error.with_traceback(None)
        return listed

    async def list_all(self) -> dict[str, ServerListing]:
        """List everything of each server, by its key, without the servers that failed."""
        # In parallel, so that each server is started once, for all lists.
        async with asyncio.TaskGroup() as group:
            listing = (
                group.create_task(self.host.list_tools()),
                group.create_task(self.host.list_prompts()),
                group.create_task(self.host.list_resources()),
                group.create_task(self.host.list_resource_templates()),
            )
        tools, prompts = listing[0].result(), listing[1].result()
        resources, templates = listing[2].result(), listing[3].result()
        silent = {one.server for one in self.problems}
        listings = {
            key: ServerListing(
                [one for one in tools if one.server == key],
                [one for one in prompts if one.server == key],
                [one for one in resources if one.server == key],
                [one for one in templates if one.server == key],
            )
            for key in self.host.servers
        }
        return {key: one for key, one in listings.items() if any(one) or key not in silent}

    async def start_task(self, name: str, arguments: Mapping[str, Any]) -> HostTask:
        """Call a tool by its name in the host; it is done, or runs as a task."""
        return await self.host.start_task(
            name, arguments, on_progress=self._on_progress, on_log=self._on_log
        )

    def resume_task(self, handle: str, tool: str) -> HostTask:
        """The task of a handle, and of the tool with this name in the host."""
        return self.host.resume_task(
            handle, self.host.server_of(tool) or "", on_progress=self._on_progress, tool=tool
        )

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> t.GetPromptResult:
        """Get the messages of a prompt, by its name in the host."""
        return await self.host.get_prompt(name, arguments)

    async def read_resource(self, uri: str) -> t.ReadResourceResult:
        """Read a resource, from the server that has it."""
        with _server_option_hint():
            return await self.host.read_resource(uri, self._server)

    async def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        template: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> t.Completion:
        """Complete an argument of a prompt, or a variable of a template."""
        with _server_option_hint():
            return await self.host.complete(
                argument,
                value,
                prompt=prompt,
                template=template,
                context=context,
                server=self._server if template is not None else None,
            )


@contextlib.contextmanager
def _server_option_hint() -> Generator[None]:
    """Replace the hint of a host, which names an argument of Python, by the option."""
    try:
        yield
    except RemoteError as error:
        if error.hint and isinstance(error.__cause__, Fault):
            error.hint = "choose the server with --server KEY"
        raise


# ---------------------------------------------------------------- credentials


class CommandLogin(Login):
    """The login of the command: one for each URL, whichever OAuth client it was made with."""

    @property
    def account(self) -> str:
        """One account for each URL."""
        return ""


class NonInteractiveLogin(CommandLogin):
    """The same without a user: the stored login is used and refreshed."""

    def grant(
        self,
        discovery: DiscoveryResult,
        context: FlowContext,
        dpop_key: SigningKey | None,
        scopes: Sequence[str],
    ) -> Flow[tuple[RegisteredClient, Tokens]]:
        """Refuse a new login."""
        where = display_url(discovery.server)
        hint = f"log in: colonnade login {where}, or send a token: {TOKEN_OPTION}"
        raise LoginRequired(f"{where} requires authentication", hint=hint)
        yield


def login_for(url: str, terminal: Terminal, *, ask: bool = True) -> Auth | None:
    """How commands log in to a URL, if it asks for it; None for a URL that credentials are never
    sent to. Without `ask` no browser is opened."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback_host(parts.hostname or ""):
        return None
    if not terminal.can_ask or not ask:
        return NonInteractiveLogin(keep=True)
    return CommandLogin(keep=True, on_show=lambda url: show_login_url(terminal, url))


def show_login_url(terminal: Terminal, url: str) -> None:
    """Print the URL of the login page."""
    terminal.note(f"colonnade: to log in, open this page if it does not open by itself:\n{url}\n")


# ---------------------------------------------------------------- config session


# A listing of all servers waits longer than each server's own timeout, whose message says more.
EXTRA_WAIT_S: Final = 5.0

if TYPE_CHECKING:  # most servers need no login
    from colonnade.auth.client.login import Auth


def load_config_for(options: ConnectionOptions, terminal: Terminal, name: str = "") -> Config:
    """The servers of a file that a command needs: all, or the one that has the tool or prompt
    `name`. Raises `CliError`. Call it outside of an event loop: it may prompt the user."""
    config = configuration(options, terminal, TrustPrompt())
    if name:
        return _config_for_name(config, name, shown_configuration(options))
    if not any(one.settings.enabled for one in config.entries.values()):
        raise _no_servers(config, shown_configuration(options))
    return config


def _no_servers(config: Config, file: str) -> CliError:
    problems = map(clean, _problem_lines(config.problems))
    return CliError("; ".join(problems) or f"{one_line(file)} has no servers", USAGE)


def _config_for_name(config: Config, name: str, file: str) -> Config:
    """Only the server that has a name; names in a host do not depend on other servers."""
    host = Host(config)  # starts nothing
    key = host.server_of(name)
    if key is not None:
        return replace(config, entries={key: config.entries[key]}, problems=())
    for problem in config.problems:
        first = qualified_name(problem.server, "x").partition(BETWEEN)[0]
        if problem.server and name.partition(BETWEEN)[0] == first:
            raise CliError(clean(line(problem)), USAGE)
    prefixes = ", ".join(f"{one_line(prefix)}{BETWEEN}…" for prefix in host.prefixes)
    summary = f"there is no {clean(name)} in {one_line(file)}"
    if not prefixes:
        raise _no_servers(config, file)
    listing = f"colonnade ls {shlex.quote(file)}" if file != FOUND_FILES else "colonnade ls"
    hint = f"names start with the server: {prefixes}; {listing} lists them"
    raise CliError(summary, USAGE, hint=hint)


def open_configured_servers(
    config: Config, options: ConnectionOptions, terminal: Terminal, on_log: OnLog
) -> ConfiguredServers:
    """A host of these servers, which starts each when it is needed."""
    alone = len(config.entries) == 1

    def auth(url: str) -> "Auth | None":
        return login_for(url, terminal, ask=alone)

    wait_s = options.timeout_s + EXTRA_WAIT_S
    approvals = None
    if config.policy is not None:  # it may ask
        from colonnade.cli.inbox_prompt import TerminalApprovals  # on use: few files have rules

        approvals = TerminalApprovals(terminal)
    host = Host(
        replace(config, approvals=None),
        on_input_request=input_request_handler(terminal),
        auth=auth,
        wait_s=wait_s,
        inbox=approvals,
    )
    return ConfiguredServers(
        host,
        server=options.server,
        on_progress=terminal.progress,
        on_log=on_log if options.debug else None,
    )


def input_request_handler(terminal: Terminal) -> Callable[[HostInputRequest], Awaitable[Any]]:
    """The handler of input requests of all servers: it prompts the user."""
    one_at_a_time = asyncio.Lock()

    async def answer(question: HostInputRequest) -> Any:
        if not isinstance(question.params, t.ElicitRequestParams):
            raise Declined("the command has no model for sampling")
        calls = ", ".join(one_line(call.name) for call in question.calls)
        server_name = f"{one_line(question.server)}{f' (for {calls})' if calls else ''}"
        async with one_at_a_time:
            return await elicitation_handler(terminal, lambda: server_name)(question.params)

    return answer


async def url_in(config: Config, key: str) -> str:
    """The URL of a server; empty for one that is started as a process. Raises `CliError`."""
    entry = config.entries.get(key)
    if entry is None:  # it has a problem
        raise CliError("; ".join(clean(line(one)) for one in config.problems), USAGE)
    return url_of(await entry.resolve())


# ---------------------------------------------------------------- problems


def show_problems(problems: Sequence[HostProblem], terminal: Terminal) -> None:
    """Report problems on stderr."""
    for problem in _problem_lines(problems):
        terminal.note(f"colonnade: {clean(problem, lines=True)}\n")


def _problem_lines(problems: Sequence[HostProblem]) -> list[str]:
    """A line for each problem; that a file is not trusted is said once for all of its servers."""
    counts = Counter(one.message for one in problems if one.untrusted)
    lines = [
        line(one) if one.place is not None and counts[one.message] < 2 else one.message
        for one in problems
    ]
    return list(dict.fromkeys(lines))


def problems_to_json(problems: Sequence[HostProblem]) -> list[dict[str, Any]]:
    """Problems as JSON."""
    return [problem_to_json(one) for one in problems]


def combined_exit_code(working: Collection[object], errors: Iterable[ColonnadeError]) -> int:
    """0 if any server works, else the exit code of the first failure."""
    return 0 if working else next(map(exit_code, errors), 0)
