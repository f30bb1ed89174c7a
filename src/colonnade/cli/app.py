"""The `colonnade` command: a click group that imports the module of a command when it runs.

Rules: click parses and nothing else: a command returns an `Action`, which runs after click has
finished. Every error is one message on standard error; every help text has an example. A command
is listed here and defined in its module, so that `colonnade run` does not import a client.
"""

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from colonnade import __version__
from colonnade.cli.errors import INTERRUPTED, USAGE, CliError, OutputClosed, Reporter, output
from colonnade.cli.options import Action


class LazyCommand(NamedTuple):
    """A command that is not imported yet: its module, and the line of help in the list."""

    module: str
    help: str


# In the order of the help: run a server first, then connect to it.
COMMANDS: Final = {
    "run": LazyCommand("commands.serve", "Serve one client on stdin and stdout."),
    "serve": LazyCommand("commands.serve", "Serve any number of clients over HTTP."),
    "gateway": LazyCommand("commands.gateway", "Serve many servers as one."),
    "work": LazyCommand("commands.work", "Run the tasks of a server, without serving clients."),
    "ls": LazyCommand("commands.ls", "List tools, prompts and resources."),
    "inspect": LazyCommand("commands.inspect", "Show everything a server reports about itself."),
    "call": LazyCommand("commands.call", "Call a tool."),
    "read": LazyCommand("commands.call", "Read a resource."),
    "prompt": LazyCommand("commands.call", "Get the messages of a prompt."),
    "complete": LazyCommand("commands.call", "Complete an argument of a prompt or template."),
    "tasks": LazyCommand("commands.tasks", "List, wait for, answer and cancel tasks."),
    "inbox": LazyCommand("commands.inbox", "Approve calls, and answer what servers ask."),
    "login": LazyCommand("commands.login", "Log in to a server and store the credentials."),
    "logout": LazyCommand("commands.login", "Revoke and delete stored credentials."),
    "whoami": LazyCommand("commands.login", "Show the credentials stored for a server."),
    "issuer": LazyCommand("commands.issuer", "Serve a login for development, without passwords."),
    "chat": LazyCommand("commands.chat", "Chat with a model that can call tools."),
    "doctor": LazyCommand("doctor.report", "Find out what is wrong with a server."),
    "add": LazyCommand("commands.add", "Add a server to Claude, VS Code, Cursor or Codex."),
    "remove": LazyCommand("commands.add", "Remove a server from one of them."),
    "pins": LazyCommand("commands.pins", "List, compare and accept definitions of servers."),
    "config": LazyCommand("commands.config", "Explain, check and trust configuration files."),
    "policy": LazyCommand("commands.policy", "Show, explain and test the rules of a policy."),
    "audit": LazyCommand("commands.audit", "List calls of the audit log, and verify it."),
}
SETTINGS: Final[dict[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 92,
}


class LazyGroup(click.Group):
    """The commands of the table, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name; None if there is none."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        return getattr(import_module(f"colonnade.cli.{lazy.module}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments begin with. Raises `CliError` for an unknown one."""
        # While a shell completes, click takes an unknown word for unfinished.
        known = args[0] in COMMANDS or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:
            from colonnade.text import closest  # on use

            near = closest(args[0], COMMANDS)
            if args[0].partition(":")[0].endswith(".py"):
                hint = f"to run a server: colonnade run {args[0]}"
            else:
                hint = f"did you mean {near}?" if near else f"commands are {', '.join(COMMANDS)}"
            raise CliError(f"there is no command {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"colonnade {__version__}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings=SETTINGS, epilog="Example: colonnade run server.py")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def colonnade() -> None:
    """Run MCP servers, and connect to them, from the command line."""


# ---------------------------------------------------------------- running a command


def start(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    try:
        with output():  # click prints help, and the version
            action: Action | int = colonnade.main(
                arguments, prog_name="colonnade", standalone_mode=False
            )
        return action if isinstance(action, int) else action()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        return _report(_usage_error(error))
    except CliError as error:
        return _report(error)
    except OutputClosed:
        return 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED


def _report(error: CliError) -> int:
    Reporter().error(error)
    return error.code


# What to type if a parameter is missing, by the name of the parameter.
_MISSING: Final = {
    "target": "for example: {command} server.py",
    "tool": "{example} TOOL key=value; colonnade ls server.py lists the tools",
    "uri": "{example} URI; colonnade ls server.py lists the resources",
    "name": "{example} NAME key=value; colonnade ls server.py lists the prompts",
    "reference": "{example} prompt:NAME ARGUMENT PREFIX",
    "argument": "{example} prompt:NAME ARGUMENT PREFIX",
    "server": "for example: {command} NAME --from claude-code",
    "client": "clients are {metavar}",
    "files": "for example: {command} .mcp.json",
    "file": "for example: {command} .mcp.json",
}
# Commands whose arguments are typed as key=value.
_KEY_VALUE: Final = ("call", "prompt", "complete")


def _usage_error(error: click.UsageError) -> CliError:
    """What click found wrong, as a message of ours."""
    command = error.ctx.command_path if error.ctx is not None else "colonnade"
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing_parameter(error.param, command)
    if isinstance(error, click.NoSuchOption):
        option = error.option_name
        if error.possibilities:
            hint = f"did you mean {error.possibilities[0]}?"
        elif command.rpartition(" ")[2] in _KEY_VALUE:
            hint = f"arguments are given as key=value: {option.lstrip('-')}=VALUE"
        else:
            hint = f"see {command} --help"
        return CliError(f"there is no option {option}", hint=hint)
    message = error.format_message().rstrip(".")
    return CliError(f"{message[:1].lower()}{message[1:]}", hint=f"see {command} --help")


def _missing_parameter(parameter: click.Parameter, command: str) -> CliError:
    is_option = isinstance(parameter, click.Option)
    metavar = parameter.metavar or parameter.name or ""
    name = f"option {parameter.opts[0]}" if is_option else f"argument {metavar.strip('.')}"
    hint = _MISSING.get(parameter.name or "", "see {command} --help")
    choices = metavar.replace("|", ", ")
    example = f"for example: {command} server.py"
    message = hint.format(command=command, example=example, metavar=choices)
    return CliError(f"missing {name}", hint=message)
