"""The commands, as they are typed: `colonnade run server.py`, `colonnade serve server.py`.

Those that speak to a server are in `commands_talking`, the one that lets a model do so in
`commands_chat`, the one that says what is wrong with it in `commands_doctor`, those for other
programs in `commands_adding`, those for configuration files in `commands_config`.

Rules: click parses and nothing else: a command gives what is to be done, and it is done when click
has gone. Each error is one sentence on standard error; each help has an example.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from colonnade import __version__
from colonnade.cli.commands_adding import ADDING, CLIENTS
from colonnade.cli.commands_chat import CHAT
from colonnade.cli.commands_config import config
from colonnade.cli.commands_doctor import DOCTOR
from colonnade.cli.commands_talking import TALKING, Deed, complete_file
from colonnade.cli.errors import INTERRUPTED, USAGE, Trouble, Voice
from colonnade.cli.terminal import OutputClosed, output
from colonnade.errors import LocalProtocolError

T = TypeVar("T")


def _port(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    from colonnade.transport.http_server.settings import read_port

    return _read(read_port, value)


def _level(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from colonnade.transport.http_server.settings import read_level

    return _read(read_level, value)


def _read(read: Callable[[str], T], value: str) -> T:
    """A value as what it is. Raises `Trouble`."""
    try:
        return read(value)
    except LocalProtocolError as error:
        raise Trouble(str(error)) from None


TARGET = click.argument("target", metavar="TARGET", shell_complete=complete_file)
DEBUG = click.option("--debug", is_flag=True, help="Tell callers why a tool failed; log more.")
LOG_JSON = click.option("--log-json", is_flag=True, help="Log in JSON, one object a line.")
LOG_LEVEL = click.option(
    "--log-level",
    metavar="LEVEL",
    callback=_level,
    help="Log from this level on: debug, info, warning (the default), error, critical.",
)
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 92}


class Commands(click.Group):
    """All commands in their order, with a word for one that there is not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, as a person would meet them: run a server first, then speak to it."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with. Raises `Trouble` where there is none."""
        names = self.list_commands(ctx)
        # While a shell completes, click takes an unknown word for unfinished.
        if args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], names, n=1)
            listed = f"there are {', '.join(names[:-1])} and {names[-1]}"
            hint = f"did you mean {near[0]}?" if near else listed
            raise Trouble(f"there is no command {args[0]}; {hint}")
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"colonnade {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings=SETTINGS, epilog="Example: colonnade run server.py")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Say which version this is.",
)
def colonnade() -> None:
    """MCP servers, from the command line: run them, and speak to them."""


@colonnade.command(
    short_help="Serve one client on standard input and output.",
    epilog="""\b
Examples:
  colonnade run server.py              the server in this file
  colonnade run server.py:weather      the one that is called weather there
  colonnade run tools.server           the one in this module, as python -m would find it
""",
)
@TARGET
@DEBUG
@LOG_LEVEL
@LOG_JSON
def run(target: str, debug: bool, log_json: bool, log_level: str | None) -> Deed:
    """Serve one client on standard input and output, as clients start servers.

    TARGET is a Python file or module with a colonnade.Server in it, and its name where there are
    several: FILE[:NAME]. Without a name it is the one called server, mcp or app, or the only one.
    Whatever the file prints goes to standard error.
    """
    from colonnade.cli.commands.serve import run_target

    voice = Voice(log_json=log_json, debug=debug, log_level=log_level)
    return partial(run_target, target, voice)


@colonnade.command(
    epilog="""\b
Examples:
  colonnade serve server.py --port 8000
  colonnade serve server.py --reload --debug
  colonnade serve server.py --host 0.0.0.0 --allow-host mcp.example.com
  colonnade serve server.py:app               what server.asgi(around=…) made in this file

Each setting has a variable, which an option overrides: COLONNADE_HOST, COLONNADE_PORT,
COLONNADE_PATH, COLONNADE_ALLOW_HOST, COLONNADE_ALLOW_ORIGIN, COLONNADE_STATELESS,
COLONNADE_LIMIT, COLONNADE_ACCESS_LOG, COLONNADE_LOG_LEVEL, COLONNADE_LOG_JSON,
COLONNADE_SSL_CERTFILE, COLONNADE_SSL_KEYFILE.
"""
)
@TARGET
@click.option("--host", help="The address to serve on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    metavar="NUMBER",
    callback=_port,
    help="The port; 0 for any free one.  [default: 8000]",
)
@click.option("--path", help="Where the endpoint is.  [default: /mcp]")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which it is reached; again for more. Needed where others can reach it.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="An origin whose web pages may use it; again for more.",
)
@click.option(
    "--stateless",
    is_flag=True,
    help="Keep no sessions, so that several processes may answer one client of an older revision.",
)
@click.option(
    "--ssl-certfile",
    metavar="FILE",
    shell_complete=complete_file,
    help="Serve TLS with this certificate (PEM).",
)
@click.option(
    "--ssl-keyfile",
    metavar="FILE",
    shell_complete=complete_file,
    help="Its key, where that is in another file.",
)
@click.option(
    "--limit",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another limit than the default, such as max_body_bytes=1048576; again for more.",
)
@click.option("--access-log", is_flag=True, help="Log one line for each request.")
@click.option("--reload", is_flag=True, help="Begin again when the file, or one it uses, changes.")
@DEBUG
@LOG_LEVEL
@LOG_JSON
def serve(target: str, debug: bool, reload: bool, **options: Any) -> Deed:
    """Serve any number of clients over HTTP.

    TARGET is a Python file or module with a colonnade.Server in it, and its name where there are
    several: FILE[:NAME]. One line on standard output says where it is served; SIGTERM lets calls
    finish, Ctrl-C does, too, and a second one does not wait.
    """
    from colonnade.cli.commands.serve import serve_target

    given = {name: value for name, value in options.items() if value}
    given |= {"port": 0} if options["port"] == 0 else {}
    return partial(serve_target, target, given, debug=debug, reload=reload)


for _command in (*TALKING, *CHAT, *DOCTOR, *ADDING, config):
    colonnade.add_command(_command)


# What is to be typed where something is missing.
_MISSING = {
    "tool": "say which tool: {command} server.py TOOL key=value; colonnade ls server.py lists them",
    "uri": "say which resource: {command} server.py URI; colonnade ls server.py lists them",
    "name": "say which prompt: {command} server.py NAME key=value; "
    "colonnade ls server.py lists them",
    "reference": "say what to complete: {command} server.py prompt:NAME ARGUMENT PREFIX",
    "server": "say which server: {command} NAME --from claude-code",
    "client": "say for which client: {option} CLIENT; there are {clients}",
    "files": "say which file: {command} .mcp.json",
    "file": "say which file: {command} .mcp.json",
    "argument": "say which argument to complete: {command} server.py prompt:NAME ARGUMENT PREFIX",
}


def start(arguments: list[str]) -> int:
    """Do what the arguments say; the exit code."""
    try:
        with output():  # of what click shows: help, and the version
            deed: Deed | int = colonnade.main(
                arguments, prog_name="colonnade", standalone_mode=False
            )
        return deed if isinstance(deed, int) else deed()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        return _refuse(Trouble(_sentence(error)))
    except Trouble as trouble:
        return _refuse(trouble)
    except OutputClosed:
        return 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _sentence(error: click.UsageError) -> str:
    """What click found, in one sentence."""
    command = error.ctx.command_path if error.ctx is not None else "colonnade"
    if isinstance(error, click.MissingParameter):
        name = error.param.name if error.param is not None else None
        words = _MISSING.get(name or "", "say which server: {command} server.py")
        option = error.param.opts[0] if error.param is not None else ""
        return words.format(command=command, option=option, clients=CLIENTS.replace("|", ", "))
    if isinstance(error, click.NoSuchOption):
        near = f"did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return f"there is no option {error.option_name}; {near or f'see {command} --help'}"
    words = error.format_message().rstrip(".")
    return f"{words[:1].lower()}{words[1:]}; see {command} --help"


def _refuse(trouble: Trouble) -> int:
    Voice().complain(trouble)
    return trouble.code
