"""A configuration file as the target of a command: read it, prompt for trust, apply the options.

Rules: a file that needs trust is shown completely, and used only after an explicit yes; without a
terminal, only files that were trusted before are used. A password is not echoed.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from colonnade.cli.errors import CliError
from colonnade.cli.options import (
    NO_TARGET,
    TIMEOUT_S,
    ConnectionOptions,
    parse_revision,
    shown_configuration,
)
from colonnade.cli.terminal import Terminal
from colonnade.host.config.formats import existing_files
from colonnade.host.config.lookups import Input
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import Config, ServerEntry
from colonnade.host.config.trust import TrustRequest
from colonnade.text import clean, closest, one_line

WARNING = (
    "This is dangerous if you do not know its author: it runs code on this machine, with your "
    "permissions."
)
_WORDS = {
    "run": "starts",
    "in": "in directory",
    "sandbox": "sandbox",
    "reach": "connects to",
    "set": "with environment variable",
    "send": "with header",
    "read": "with variables of file",
    "ask": "runs for a secret",
    "use": "uses",
}


def describe_request(question: TrustRequest) -> str:
    """Everything that a file asks for, as text."""
    lines: list[str] = []
    heading = None
    for action in question.actions:
        if heading != (heading := (action.server, action.table)):
            lines.append(f"  {action.table or action.server}")
        kind = _WORDS.get(action.what)
        lines.append(f"    {kind}: {action.text}" if kind else f"    {action.text}")
        lines += [f"      ! {danger}" for danger in action.dangers]
    return "".join(f"{line}\n" for line in lines)


def ask_trust(question: TrustRequest) -> bool:
    """Show what a file asks for, and prompt for trust; False without a terminal."""
    terminal = Terminal()
    if not terminal.can_ask:
        return False
    why = "has changed since it was trusted" if question.changed else "is not trusted yet"
    terminal.note(f"{clean(question.file)} {why}. It does this:\n{describe_request(question)}")
    return terminal.confirm(f"{terminal.emphasis(WARNING)}\nTrust it? [y/N] ")


class TrustPrompt:
    """Prompts for trust, and records the answers."""

    def __init__(self) -> None:
        # Servers of files that were not trusted, and the file of each.
        self.refused: dict[str, str] = {}
        self.agreed: set[str] = set()

    def __call__(self, question: TrustRequest) -> bool:
        """Whether a file may be used as it is now."""
        servers = dict.fromkeys(one.server for one in question.actions if not one.table)
        if ask_trust(question):
            self.agreed.update(servers)
            return True
        self.refused.update(dict.fromkeys(servers, question.file))
        return False


def input_prompt(terminal: Terminal) -> Callable[[Input], Awaitable[str | None]] | None:
    """Prompts for the `inputs` of a file; None without a terminal."""
    if not terminal.can_ask:
        return None

    async def ask(question: Input) -> str | None:
        about = one_line(question.description) or one_line(question.id)
        choices = f" ({', '.join(map(one_line, question.options))})" if question.options else ""
        default = question.default
        if question.password:
            typed = await _ask_hidden(terminal, f"{about}: ")
        else:
            typed = await terminal.ask(
                f"{about}{choices}{f' [{one_line(default)}]' if default else ''}: "
            )
        if not typed and typed is not None and default is not None:
            return default
        return typed if not question.options or typed in question.options else None

    return ask


async def _ask_hidden(terminal: Terminal, prompt: str) -> str | None:
    """Prompt for a line without echo."""
    if sys.platform == "win32":
        import getpass

        return await asyncio.to_thread(getpass.getpass, prompt)
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    after = [*before]
    after[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, after)
    try:
        return await terminal.ask(prompt)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        terminal.note("\n")


def configuration(
    options: ConnectionOptions, terminal: Terminal, trust_prompt: TrustPrompt
) -> Config:
    """Read the configuration of the target, and apply the options. Raises `CliError`.

    Call it outside of an event loop: it may prompt the user.
    """
    assert isinstance(options.target, str)
    _check_options(options)
    files = [options.target] if options.target != NO_TARGET else found_files()
    config = read_config(files, trust=trust_prompt, on_input=input_prompt(terminal), strict=True)
    if options.server:
        config = _only_server(config, options)
    entries = {key: _with_options(entry, options) for key, entry in config.entries.items()}
    return replace(config, entries=entries)


def found_files() -> list[str]:
    """The files of all programs that configure servers for this folder. Raises `CliError`."""
    found = existing_files(home=os.path.expanduser("~"), folder=os.getcwd(), env=os.environ)
    files = [file for _, some in found for file in some]
    if not files:
        raise CliError(
            "missing argument TARGET: no program has servers configured for this folder",
            hint="give a Python file, a URL or a configuration file",
        )
    return files


def _check_options(options: ConnectionOptions) -> None:
    if options.headers or options.header_envs:
        raise CliError("--header is for URLs", hint="add headers to the entry of the server")
    if options.envs:
        raise CliError("--env is for single servers", hint="add env to the entry of the server")
    if options.revision:
        parse_revision(options.revision)


def _only_server(config: Config, options: ConnectionOptions) -> Config:
    """The server that `--server` names, with its problems and those of its file."""
    known = [*config.entries, *(one.server for one in config.problems if one.server)]
    if options.server not in known:
        raise _unknown_server(options.server, list(dict.fromkeys(known)), options)
    return replace(
        config,
        entries={key: one for key, one in config.entries.items() if key == options.server},
        problems=tuple(one for one in config.problems if one.server in ("", options.server)),
        warnings=tuple(one for one in config.warnings if one.server in ("", options.server)),
    )


def _unknown_server(name: str, known: list[str], options: ConnectionOptions) -> CliError:
    near = closest(name, known)
    hint = f"servers are {one_line(', '.join(known))}" if known else "it has none"
    return CliError(
        f"there is no server {one_line(name)} in {one_line(shown_configuration(options))}",
        hint=f"did you mean {one_line(near)}?" if near else hint,
    )


def _with_options(entry: ServerEntry, options: ConnectionOptions) -> ServerEntry:
    """An entry with `--as` and `--timeout` applied."""
    settings = entry.settings
    if options.revision:
        settings = replace(settings, revision=options.revision)
    if options.timeout_s != TIMEOUT_S:
        settings = replace(settings, timeout_s=options.timeout_s, start_s=options.timeout_s)
    return replace(entry, settings=settings) if settings is not entry.settings else entry
