"""Options that the commands share: which server (TARGET), and how to connect to it.

A Python file that uses Colonnade is started as `colonnade run` starts it, any other file by its
interpreter. What follows `--` is a command line, used as it is, and takes the place of TARGET.

Rules: no value of a header or an environment variable is ever in an error message. Nothing is
started here.
"""

import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from colonnade.cli.errors import CliError
from colonnade.cli.loader import CONFIG_SUFFIXES, parse_server_file

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# What a click command returns: the work itself, which runs after click has finished. Its result is
# the exit code.
Action: TypeAlias = Callable[[], int]

# No TARGET was given: the configuration files that `colonnade config explain` finds.
NO_TARGET: Final = ""
# What those are called in an error message.
FOUND_FILES: Final = "the configuration files of this folder"
SCRIPT_SUFFIXES: Final = (".js", ".mjs", ".cjs")
URL_SCHEMES: Final = ("http", "https")
# The client's own default; repeated here, because the client is not loaded for every command.
TIMEOUT_S: Final = 60.0

# Where the command line after `--` is kept until TARGET is read.
COMMAND_LINE: Final = "colonnade.command_line"
SEPARATOR: Final = "--"
# Fills the place of TARGET when a command line was given; it cannot be typed.
PLACEHOLDER: Final = "\0"

F = TypeVar("F", bound=Callable[..., Any])


class ConnectionOptions(NamedTuple):
    """Which server, and how to connect to it, as given on the command line."""

    target: str | tuple[str, ...]
    as_json: bool = False
    revision: str = ""
    headers: tuple[str, ...] = ()
    header_envs: tuple[str, ...] = ()
    envs: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    debug: bool = False
    # The key of one server of a configuration file.
    server: str = ""


# ---------------------------------------------------------------- click options


class ServerCommand(click.Command):
    """A command that takes a server; what follows `--` is the command line that starts it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, without what follows `--`."""
        if SEPARATOR in args:
            at = args.index(SEPARATOR)
            ctx.meta[COMMAND_LINE] = tuple(args[at + 1 :])
            args = [PLACEHOLDER, *args[:at]]
        return super().parse_args(ctx, args)


def complete_file(_: click.Context, __: click.Parameter, typed: str) -> "list[CompletionItem]":
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # which click itself loads on use

    return [CompletionItem(typed, type="file")]


def target_callback(ctx: click.Context, _: click.Parameter, value: str) -> str | tuple[str, ...]:
    """Return TARGET, or the command line after `--`."""
    return ctx.meta.get(COMMAND_LINE, value)


def _optional_target(
    ctx: click.Context, parameter: click.Parameter, value: str
) -> str | tuple[str, ...]:
    """Return TARGET, which may be left out, but not be given as an empty string."""
    target = target_callback(ctx, parameter, value)
    given = ctx.get_parameter_source("target") is not ParameterSource.DEFAULT
    if target == NO_TARGET and given:
        raise CliError("TARGET is empty", hint="leave it out to use the configuration found here")
    return target


def _timeout_callback(_: click.Context, __: click.Parameter, value: str) -> float:
    return parse_timeout(value)


def connection_options(command: F) -> F:
    """Add TARGET, and the options of every command that connects to a server."""
    target = click.argument(
        "target", metavar="TARGET", callback=target_callback, shell_complete=complete_file
    )
    return _connection_options(command, target)


def optional_connection_options(command: F) -> F:
    """Add the same; TARGET may be left out, and is then the configuration files that are found."""
    target = click.argument(
        "target",
        metavar="[TARGET]",
        default=NO_TARGET,
        callback=_optional_target,
        shell_complete=complete_file,
    )
    return _connection_options(command, target)


def task_options(command: F) -> F:
    """Add the same, with the ID of a task in the place of TARGET."""
    return _connection_options(command, click.argument("id", metavar="ID"))


def _connection_options(command: F, target: Callable[[F], F]) -> F:
    options = [
        target,
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--as",
            "revision",
            default="",
            metavar="REVISION",
            help="Use this protocol revision, as a client of that revision does.",
        ),
        click.option(
            "-H",
            "--header",
            "headers",
            multiple=True,
            metavar="NAME:VALUE",
            help="Send this header to a URL. May be repeated.",
        ),
        click.option(
            "--header-env",
            "header_envs",
            multiple=True,
            metavar="NAME=VARIABLE",
            help="Send a header with the value of an environment variable. May be repeated.",
        ),
        click.option(
            "--env",
            "envs",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Set an environment variable of a server that is started; it inherits few. "
            "May be repeated.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            default=f"{TIMEOUT_S:g}",
            show_default=True,
            metavar="SECONDS",
            callback=_timeout_callback,
            help="Time to wait for a response, or for the next progress notification.",
        ),
        click.option("--debug", is_flag=True, help="Log debug messages; show full tracebacks."),
        click.option(
            "--server",
            default="",
            metavar="KEY",
            help="Use only this server of a configuration file.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


OUT: Final = click.option(
    "--out", default="", metavar="DIR", help="Save images, audio and files to this directory."
)
ARGUMENTS: Final = click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")


def take_connection_options(values: dict[str, Any]) -> ConnectionOptions:
    """Take the shared options out of the values that click parsed."""
    return ConnectionOptions(**{name: values.pop(name) for name in ConnectionOptions._fields})


# ---------------------------------------------------------------- TARGET


class ResolvedTarget(NamedTuple):
    """The arguments of `connect`, and the name of the server in messages."""

    target: Any
    options: dict[str, Any]
    shown: str
    # A URL, and no Authorization header was given.
    may_log_in: bool = False


def resolve_target(options: ConnectionOptions) -> ResolvedTarget:
    """Return what `connect` is called with. Raises `CliError`."""
    target, shown, own = locate_target(options)
    if options.server:
        raise CliError("--server is for configuration files; this target is a single server")
    headers = [
        *map(parse_header, options.headers),
        *map(parse_header_env, options.header_envs),
    ]
    env = dict(map(parse_env, options.envs))
    keywords: dict[str, Any] = {"timeout_s": options.timeout_s}
    if options.revision:
        keywords["revision"] = parse_revision(options.revision)
    is_url = isinstance(target, str) and "://" in target
    if is_url and env:
        raise CliError("--env is for servers that are started as a process; this target is a URL")
    if headers and not is_url:
        raise CliError(
            "--header is for URLs", hint="use --env for a server that is started as a process"
        )
    if is_url:
        keywords["headers"] = headers
    else:
        keywords["env"] = env
        if own:
            from colonnade.transport.process.command import search_path

            keywords["server_name"] = shown
            keywords["env"] = {**search_path(), **env}
    has_token = any(name.lower() == "authorization" for name, _ in headers)
    return ResolvedTarget(target, keywords, shown, is_url and not has_token)


def is_configuration(target: str | tuple[str, ...]) -> bool:
    """Whether the target is a configuration file with servers in it."""
    if not isinstance(target, str):
        return False
    if target == NO_TARGET:
        return True
    return os.path.splitext(target)[1].lower() in CONFIG_SUFFIXES and os.path.isfile(target)


def shown_configuration(options: ConnectionOptions) -> str:
    """The name of a configuration in messages."""
    return str(options.target) or FOUND_FILES


def locate_target(options: ConnectionOptions) -> tuple[str | list[str], str, bool]:
    """Return what to connect to, its name in messages, and whether it is a file that uses
    Colonnade. Raises `CliError`."""
    target = options.target
    if not isinstance(target, str):
        if not target or not target[0]:
            raise CliError(
                "-- must be followed by the command that starts the server",
                hint="for example -- uvx mcp-server-git",
            )
        return list(target), os.path.basename(target[0]) or target[0], False
    if "://" in target:
        return target, display_url(target), False
    suffix = os.path.splitext(target)[1].lower()
    if is_configuration(target):
        raise CliError(
            f"{target} is a configuration file, and this command takes a single server",
            hint="give its URL, its file, or its command line after --",
        )
    if suffix in SCRIPT_SUFFIXES and os.path.isfile(target):
        return target, target, False
    from colonnade.transport.process.command import (
        imports_colonnade,
        run_command,
    )  # `run` needs neither

    file = parse_server_file(target)
    if file.path and not file.name and not imports_colonnade(file.path):
        if not suffix:
            return [sys.executable, file.path], target, False
        return target, target, False
    return run_command(target, debug=options.debug), target, True


def check_order(command: str, target: str | tuple[str, ...], argument: str, name: str) -> None:
    """Raise `CliError` if the target stands after the argument that follows it."""
    if not isinstance(target, str) or "://" in target or os.path.exists(target):
        return
    is_url = argument.partition("://")[0].lower() in URL_SCHEMES and command != "read"
    if is_url or os.path.isfile(argument.rpartition(":")[0] or argument):
        raise CliError(
            f"TARGET comes before {name}", hint=f"colonnade {command} {argument} {target}"
        )


def display_url(url: str) -> str:
    """Return a URL without its query and user, which may hold a secret. Raises `CliError`."""
    scheme = url.partition("://")[0]
    if scheme.lower() not in URL_SCHEMES:
        raise CliError(f"{scheme} is not a URL scheme of MCP", hint="use https:// or http://")
    try:
        from urllib.parse import urlsplit  # `colonnade run` does not need it

        parts = urlsplit(url)
    except ValueError:
        raise CliError("invalid URL: its host or port cannot be parsed") from None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


# ---------------------------------------------------------------- values of options


def parse_header(text: str) -> tuple[str, str]:
    """Parse `NAME:VALUE`. Raises `CliError`, which never has the value."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise CliError("--header: expected NAME:VALUE")
    return name.strip(), value.strip()


def parse_header_env(text: str) -> tuple[str, str]:
    """Parse `NAME=VARIABLE`, and read the variable. Raises `CliError`."""
    name, equals, variable = text.partition("=")
    if not equals or not name.strip() or not variable.strip():
        raise CliError("--header-env: expected NAME=VARIABLE, such as Authorization=TOKEN")
    if variable.strip() not in os.environ:
        raise CliError(f"--header-env {name.strip()}: the environment variable is not set")
    return name.strip(), os.environ[variable.strip()].strip()


def parse_env(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, or `NAME` for a variable of this process. Raises `CliError`."""
    name, equals, value = text.partition("=")
    if not name:
        raise CliError("--env: expected NAME or NAME=VALUE")
    if equals:
        return name, value
    if name not in os.environ:
        raise CliError(
            f"--env {name}: the environment variable is not set", hint=f"give {name}=VALUE"
        )
    return name, os.environ[name]


def parse_revision(date: str) -> str:
    """Return the date of a known revision. Raises `CliError` for any other."""
    from colonnade.protocol.revision import EVERY

    if date not in EVERY.dates:
        raise CliError(
            f"--as {date}: unknown revision", hint=f"known revisions are {_join(EVERY.dates)}"
        )
    return date


def _join(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def parse_timeout(text: str) -> float:
    """Parse a number of seconds. Raises `CliError`."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not (isfinite(found) and found > 0):
        raise CliError(f"--timeout {text}: expected a number of seconds greater than 0")
    return found
