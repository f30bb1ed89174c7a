"""A command's session with the servers of a configuration file: which of them it needs, the handler
of their input requests, and the problems that are reported.

Rules: for the name of a tool or prompt, only the server that has it is started. A problem of one
server is reported on stderr; the command fails for it only if no server is left.
"""

import asyncio
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from colonnade.cli.commands.config import problem_to_json
from colonnade.cli.config_target import TrustPrompt, configuration
from colonnade.cli.connections import ConfiguredServers
from colonnade.cli.credentials import login_for
from colonnade.cli.elicitation import elicitation_handler
from colonnade.cli.errors import USAGE, CliError, exit_code
from colonnade.cli.options import FOUND_FILES, ConnectionOptions, shown_configuration
from colonnade.cli.terminal import Terminal
from colonnade.client.request import OnLog
from colonnade.errors import ColonnadeError, Declined
from colonnade.host.config.explain import line
from colonnade.host.config.settings import Config, HostProblem
from colonnade.host.host import Host
from colonnade.host.input_requests import HostInputRequest
from colonnade.host.servers.naming import BETWEEN, qualified_name
from colonnade.host.servers.supervisor import url_of
from colonnade.protocol import types as t
from colonnade.text import clean, one_line

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
        problems = map(clean, _problem_lines(config.problems))
        empty = f"{one_line(shown_configuration(options))} has no servers"
        raise CliError("; ".join(problems) or empty, USAGE)
    return config


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
        raise CliError(f"{one_line(file)} has no servers", USAGE)
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
    host = Host(config, on_input_request=input_request_handler(terminal), auth=auth, wait_s=wait_s)
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
    counts = Counter(one.words for one in problems if one.untrusted)
    lines = [
        line(one) if one.place is not None and counts[one.words] < 2 else one.words
        for one in problems
    ]
    return list(dict.fromkeys(lines))


def problems_to_json(problems: Sequence[HostProblem]) -> list[dict[str, Any]]:
    """Problems as JSON."""
    return [problem_to_json(one) for one in problems]


def combined_exit_code(found: Collection[object], errors: Iterable[ColonnadeError]) -> int:
    """0 if any server works, else the exit code of the first failure."""
    return 0 if found else next(map(exit_code, errors), 0)
