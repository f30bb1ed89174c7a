"""`colonnade add` and `colonnade remove`: a server in the configuration of another program.

Rules: without `--write`, nothing is read or written, and stdout has only the entry. The value of an
environment variable is never printed, and is written to a file only if the program cannot refer to
variables.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from shlex import quote
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import click

from colonnade.cli.config_file import ConfigFileEditor, FileTrust
from colonnade.cli.errors import FAILED, CliError, Reporter, output
from colonnade.cli.loader import CONFIG_SUFFIXES, parse_server_file
from colonnade.cli.options import (
    SCRIPT_SUFFIXES,
    Action,
    ServerCommand,
    complete_file,
    display_url,
    parse_env,
    parse_header,
    target_callback,
)
from colonnade.host.config.formats import (
    FORMATS,
    NAME,
    FileFormat,
    HttpEntry,
    Platform,
    Scope,
    StdioEntry,
    encode_entry,
    file_path,
    find,
    is_before,
    put,
    snippet,
)
from colonnade.host.config.formats import remove as remove_entry
from colonnade.host.config.settings import ConfigSyntaxError
from colonnade.text import clean, closest, one_line
from colonnade.transport.process.command import imports_colonnade

# Names of files that say nothing about the server; the name of the folder is used instead.
GENERIC_NAMES: Final = ("server", "main", "app", "mcp", "__main__", "index")
# Commands that start another program, whose name is used instead.
LAUNCHERS: Final = (
    "uvx",
    "npx",
    "uv",
    "node",
    "python",
    "python3",
    "bunx",
    "deno",
    "docker",
    "run",
)
# Names that are listed if there is no server of the given name.
MAX_NAMES = 20

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class AddOptions(NamedTuple):
    """The options of `colonnade add`."""

    target: str | tuple[str, ...]
    client: str
    name: str = ""
    envs: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    header_envs: tuple[str, ...] = ()
    file: str = ""
    project: bool = False
    write: bool = False
    replace: bool = False


def parse_client(name: str) -> str:
    """The name of a client. Raises `CliError` for an unknown one."""
    if name in FORMATS:
        return name
    near = closest(name, FORMATS)
    known = f"clients are {', '.join(FORMATS)}"
    raise CliError(f"there is no client {name}", hint=f"did you mean {near}?" if near else known)


# ---------------------------------------------------------------- click commands


CLIENTS: Final = "|".join(FORMATS)

F = TypeVar("F", bound=Callable[..., Any])


def _client(_: click.Context, __: click.Parameter, value: str) -> str:
    return parse_client(value)


def _complete_client(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    return [name for name in CLIENTS.split("|") if name.startswith(typed)]


def _file_options(command: F) -> F:
    """Add the options that choose the file."""
    options = [
        click.option(
            "--file",
            default="",
            metavar="PATH",
            shell_complete=complete_file,
            help="Use this file, not that of the client.",
        ),
        click.option(
            "--project", is_flag=True, help="Use the project file in this folder, not your own."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade add server.py --to claude-desktop            print the entry and its file
  colonnade add server.py --to cursor --write            write it, with a backup
  colonnade add server.py --to codex --env API_KEY       the value stays in your environment
  colonnade add https://example.com/mcp --to vscode --name example
  colonnade add --to claude-code --project -- uvx mcp-server-git
""",
)
@click.argument("target", metavar="TARGET", callback=target_callback, shell_complete=complete_file)
@click.option(
    "--to",
    "client",
    required=True,
    metavar=CLIENTS,
    callback=_client,
    shell_complete=_complete_client,
    help="Client to add it to.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the server in the client.")
@click.option(
    "--env",
    "envs",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Environment variable of the server; NAME alone refers to yours. May be repeated.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Header for a URL. May be repeated.",
)
@click.option(
    "--header-env",
    "header_envs",
    multiple=True,
    metavar="NAME=VARIABLE",
    help="Header with the value of an environment variable. May be repeated.",
)
@_file_options
@click.option("--write", is_flag=True, help="Write the entry to the file, with a backup.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
def add(**options: Any) -> Action:
    """Print the configuration entry of a server for a client; with --write, write it.

    TARGET is a Python file (FILE[:NAME]), a URL, or a command line after --. Nothing else in the
    file is changed: comments and order stay.
    """
    return partial(add_target, AddOptions(**options))


@click.command(
    epilog="""\b
Examples:
  colonnade remove weather --from claude-desktop         print the file that has it
  colonnade remove weather --from vscode --project --write
"""
)
@click.argument("server", metavar="NAME")
@click.option(
    "--from",
    "client",
    required=True,
    metavar=CLIENTS,
    callback=_client,
    shell_complete=_complete_client,
    help="Client to remove it from.",
)
@_file_options
@click.option("--write", is_flag=True, help="Remove the entry from the file, with a backup.")
def remove(server: str, client: str, file: str, project: bool, write: bool) -> Action:
    """Print the file of a client that has a server; with --write, remove the server from it.

    NAME is the name of the server in the client. Nothing else in the file is changed.
    """
    return partial(remove_name, server, client, file, project=project, write=write)


# ---------------------------------------------------------------- add


def add_target(options: AddOptions) -> int:
    """Print an entry, or write it; return the exit code."""
    dialect, reporter = FORMATS[options.client], Reporter()
    if options.replace and not options.write:
        raise CliError("--replace is only for --write")
    server, name = _server(options, dialect)
    name = _check_name(options.name) if options.name else _safe_name(name)
    where = _file_path(dialect, options.file, project=options.project)
    file = ConfigFileEditor(where, project=os.getcwd() if options.project else "")
    for warning in _secret_warnings(options, dialect, server):
        reporter.info(warning)
    if options.write:
        text = file.read()
        file_trust = FileTrust(where, text)
        made = encode_entry(dialect, server)
        new = _write(options, dialect, name, made, file, text, reporter)
        if message := file_trust.keep(new, {name: made}):
            reporter.info(message)
        return 0
    shown = snippet(dialect, name, encode_entry(dialect, _without_values(options, server)))
    with output():
        sys.stdout.write(shown)
        sys.stdout.flush()
    reporter.info(f"this entry belongs in {file.shown}; --write writes it")
    return 0


def _write(
    options: AddOptions,
    dialect: FileFormat,
    name: str,
    made: dict[str, Any],
    file: ConfigFileEditor,
    text: str | None,
    reporter: Reporter,
) -> str:
    """Write an entry to a file; return the new content."""
    try:
        before = find(dialect, text or "")
        if text is not None and before.get(name) == made:
            reporter.info(f"{name} is already in {file.shown}, with the same entry")
            return text
        if name in before and not options.replace:
            raise CliError(
                f"{file.shown} already has a server {name}",
                hint="--replace replaces it, --name adds this one under another name",
            )
        new = put(dialect, text or "", name, made)
    except ConfigSyntaxError as error:
        raise _syntax_error(file, error) from None
    created = not file.has_folder and not options.file and not options.project
    backup = file.replace(name, new, old=text)
    reporter.info(
        f"added {name} to {file.shown}{_backup_note(backup)}; {_next_step(options, dialect)}"
    )
    if created:
        installed = f"is {dialect.title} installed?"
        reporter.info(f"its directory did not exist, and was created: {installed}")
    return new


def _next_step(options: AddOptions, dialect: FileFormat) -> str:
    """What to do next: in the client, or with a file that is not the client's own."""
    usual = [_file_path(dialect, "", project=scope == "project") for scope in dialect.files]
    own = not options.file or os.path.abspath(options.file) in usual
    if own or not options.file.lower().endswith(CONFIG_SUFFIXES):
        return dialect.afterwards
    return f"colonnade ls {clean(quote(options.file))} shows it"


def _backup_note(backup: str) -> str:
    return f" (backup: {clean(backup)})" if backup else ""


def _syntax_error(file: ConfigFileEditor, error: ConfigSyntaxError) -> CliError:
    where = f"{file.shown}, line {error.line}, column {error.column}"
    return CliError(f"{where}: {one_line(error.why)}; nothing was written", FAILED)


# ---------------------------------------------------------------- remove


def remove_name(name: str, client: str, file: str, *, project: bool, write: bool) -> int:
    """Print which file has an entry, or remove it; return the exit code."""
    dialect, reporter = FORMATS[client], Reporter()
    where = _file_path(dialect, file, project=project)
    place = ConfigFileEditor(where, project=os.getcwd() if project else "")
    text = place.read()
    if text is None:
        raise CliError(f"there is no file {place.shown}, and so no server {clean(name)}")
    file_trust = FileTrust(where, text)
    new: str | None
    try:
        known = find(dialect, text)
        if name not in known:
            raise _unknown_server(name, list(known), place)
        if not write:
            reporter.info(f"{clean(name)} is in {place.shown}; --write removes it")
            return 0
        before = place.backup(name)
        if before is not None and is_before(dialect, before, text, name):
            place.replace(name, new := before)
            place.forget(name)
            how = ", which is as it was before"
        elif is_before(dialect, "", text, name):
            place.replace(name, new := None)
            place.forget(name)
            how = " and deleted the file, which had no other content"
        else:
            new = remove_entry(dialect, text, name)
            how = _backup_note(place.replace(name, new, old=text))
    except ConfigSyntaxError as error:
        raise _syntax_error(place, error) from None
    reporter.info(f"removed {clean(name)} from {place.shown}{how}")
    if message := file_trust.keep(new):
        reporter.info(message)
    return 0


def _unknown_server(name: str, known: list[str], file: ConfigFileEditor) -> CliError:
    near = closest(name, known)
    more = ", …" if len(known) > MAX_NAMES else ""
    listed = one_line(", ".join(known[:MAX_NAMES]))
    hint = f"servers are {listed}{more}" if known else "it has no servers"
    return CliError(
        f"there is no server {clean(name)} in {file.shown}",
        hint=f"did you mean {one_line(near)}?" if near else hint,
    )


# ---------------------------------------------------------------- file


def _file_path(dialect: FileFormat, file: str, *, project: bool) -> str:
    if file and project:
        raise CliError("--file and --project exclude each other")
    if file:
        return os.path.abspath(file)
    scope: Scope = "project" if project else "user"
    if scope not in dialect.files:
        raise CliError(f"{dialect.title} has no project file", hint="leave out --project")
    return file_path(
        dialect,
        scope,
        platform=_platform(),
        home=os.path.expanduser("~"),
        folder=os.getcwd(),
        env=os.environ,
    )


def _platform() -> Platform:
    known = sys.platform in ("win32", "darwin")
    return cast("Platform", sys.platform) if known else "linux"


# ---------------------------------------------------------------- server


def name_for(target: str | tuple[str, ...]) -> str:
    """The default name of a server. Raises `CliError`."""
    if not isinstance(target, str):
        return _safe_name(_parse_command(target)[1])
    if "://" in target:
        return _safe_name(urlsplit(target).hostname or "")
    if os.path.splitext(target)[1].lower() in SCRIPT_SUFFIXES or parse_server_file(target).path:
        return _safe_name(_parse_file(target)[1])
    return _safe_name(target.rpartition(":")[2].rpartition(".")[2])  # a module


def _server(options: AddOptions, dialect: FileFormat) -> tuple[StdioEntry | HttpEntry, str]:
    """The server, and its default name."""
    target = options.target
    if isinstance(target, str) and "://" in target:
        return _url_server(options, dialect, target)
    if options.headers or options.header_envs:
        raise CliError(
            "--header is for URLs", hint="use --env for a server that is started as a process"
        )
    variables = tuple(_parse_variable(text, dialect) for text in options.envs)
    if isinstance(target, str):
        line, name = _parse_file(target)
    else:
        line, name = _parse_command(target)
    return StdioEntry(line[0], tuple(line[1:]), variables), name


def _url_server(options: AddOptions, dialect: FileFormat, url: str) -> tuple[HttpEntry, str]:
    shown = display_url(url)
    if options.envs:
        raise CliError("--env is for servers that are started as a process; this target is a URL")
    if not dialect.supports_http:
        raise CliError(
            f"{dialect.title} does not read URLs from its file",
            hint=f"add {clean(shown)} in its settings, under Connectors",
        )
    pairs = tuple(_parse_header_variable(text) for text in options.header_envs)
    host = urlsplit(url).hostname or ""
    return HttpEntry(url, tuple(map(parse_header, options.headers)), pairs), host


def _parse_header_variable(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not _VARIABLE.fullmatch(value):
        raise CliError("--header-env: expected NAME=VARIABLE, such as Authorization=TOKEN")
    return name, value


def _parse_variable(text: str, dialect: FileFormat) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise CliError("--env: expected NAME or NAME=VALUE")
    if equals:
        return name, value
    return (name, None) if dialect.refers else parse_env(name)


def _parse_file(target: str) -> tuple[list[str], str]:
    """The command line for a file, with its full path: clients start servers in any directory."""
    stem = os.path.splitext(os.path.basename(target))[0]
    if os.path.splitext(target)[1].lower() in SCRIPT_SUFFIXES and os.path.isfile(target):
        return [shutil.which("node") or "node", os.path.abspath(target)], _better_name(stem, target)
    file = parse_server_file(target)
    if not file.path:
        raise CliError(
            f"{target} is a module, which is found from one directory only, and clients start "
            "servers in any directory",
            hint="give its file",
        )
    stem = os.path.splitext(os.path.basename(file.path))[0]
    name = file.name.rpartition(".")[2]
    if file.name and name not in GENERIC_NAMES:
        stem = name
    if not file.name and not imports_colonnade(file.path):
        return [sys.executable, file.path], _better_name(stem, file.path)
    return [*_run_command(), str(file)], _better_name(stem, file.path)


def _better_name(stem: str, file: str) -> str:
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    return folder if stem in GENERIC_NAMES and folder else stem


def _run_command() -> list[str]:
    """The command that runs a file in any directory, without PATH."""
    ending = ".exe" if sys.platform == "win32" else ""
    script = os.path.join(os.path.dirname(sys.executable), f"colonnade{ending}")
    if os.path.isfile(script):
        return [script, "run"]
    return [sys.executable, "-P", "-m", "colonnade", "run"]


def _parse_command(line: tuple[str, ...]) -> tuple[list[str], str]:
    if not line or not line[0]:
        raise CliError(
            "-- must be followed by the command that starts the server",
            hint="for example -- uvx mcp-server-git",
        )
    stems = [os.path.splitext(os.path.basename(word))[0] for word in line if word[:1] != "-"]
    cli_errors = [stem for stem in stems if stem and stem not in LAUNCHERS]
    return list(line), (cli_errors or stems)[0]


def _check_name(name: str) -> str:
    """A name that every client accepts. Raises `CliError`."""
    if not NAME.fullmatch(name):
        raise CliError(
            f"{clean(name)} is not a name that every client accepts",
            hint=f"use letters, digits, - and _, at most 64: --name {_safe_name(name)}",
        )
    return name


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:64] or "server"


# ---------------------------------------------------------------- secrets


def _without_values(options: AddOptions, server: StdioEntry | HttpEntry) -> StdioEntry | HttpEntry:
    """The same for printing: without the values of environment variables."""
    if isinstance(server, HttpEntry):
        return server
    typed = _typed_variables(options)
    shown = (
        (name, value if value is None or name in typed else f"<the value of {name}>")
        for name, value in server.variables
    )
    return server._replace(variables=tuple(shown))


def _typed_variables(options: AddOptions) -> set[str]:
    return {text.partition("=")[0] for text in options.envs if "=" in text}


def _secret_warnings(
    options: AddOptions, dialect: FileFormat, server: StdioEntry | HttpEntry
) -> list[str]:
    """Warnings about secrets and paths."""
    if isinstance(server, HttpEntry):
        return _url_warnings(server)
    warnings: list[str] = []
    for name, value in server.variables:
        if value is None:
            continue
        if name not in _typed_variables(options):
            warnings.append(
                f"{dialect.title} cannot refer to environment variables: --write writes the value "
                f"of {name} to the file as plain text"
            )
        elif _is_secret(f"{name}={value}"):
            hint = f"; --env {name} refers to your environment variable" if dialect.refers else ""
            warnings.append(f"{name} looks like a secret, and is plain text in the file{hint}")
    if not isinstance(options.target, str):
        warnings += _command_warnings(options.target)
    return warnings


def _url_warnings(server: HttpEntry) -> list[str]:
    warnings: list[str] = []
    if _is_secret(server.url):
        warnings.append(
            "the URL seems to contain a secret, which is plain text in the file; "
            "--header-env NAME=VARIABLE refers to an environment variable"
        )
    for name, value in server.headers:
        if _is_secret(f"{name}: {value}"):
            hint = f"--header-env {clean(name)}=VARIABLE refers to an environment variable"
            warnings.append(f"the header {clean(name)} is plain text in the file; {hint}")
    return warnings


def _command_warnings(line: tuple[str, ...]) -> list[str]:
    warnings: list[str] = []
    pairs = (f"{word}={after}" for word, after in pairwise(line))
    if any(map(_is_secret, line)) or any(_is_secret(p) for p in pairs if p.startswith("-")):
        warnings.append(
            "an argument looks like a secret: it is plain text in the file, and visible in the "
            "list of processes; use --env if the server supports it"
        )
    for word in line:
        near = os.path.sep in word or bool(os.path.splitext(word)[1])
        if near and not os.path.isabs(word) and os.path.exists(word):
            full = clean(os.path.abspath(word))
            warnings.append(
                f"{clean(word)} is a relative path, and clients start servers in any directory; "
                f"use {full}"
            )
    if not shutil.which(line[0]):
        warnings.append(f"there is no command {clean(line[0])} on PATH")
    return warnings


def _is_secret(text: str) -> bool:
    from colonnade.logs import redact

    return redact(text) != text
