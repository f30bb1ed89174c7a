"""The commands that put a server into other programs, as they are typed: `add`, `remove`.

Rules: click parses and nothing else, as in `commands`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import click

from colonnade.cli.commands_talking import COMMAND_LINE, Deed, Talking, complete_file

F = TypeVar("F", bound=Callable[..., Any])

CLIENTS: Final = "claude-desktop|claude-code|vscode|cursor|codex"


def _target(ctx: click.Context, _: click.Parameter, value: str) -> str | tuple[str, ...]:
    return ctx.meta.get(COMMAND_LINE, value)


def _client(_: click.Context, __: click.Parameter, value: str) -> str:
    from colonnade.cli.commands.add import client_named

    return client_named(value)


def _complete_client(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    return [name for name in CLIENTS.split("|") if name.startswith(typed)]


def placed(command: F) -> F:
    """The flags that say which file is meant."""
    flags = [
        click.option(
            "--file",
            default="",
            metavar="PATH",
            shell_complete=complete_file,
            help="Another file than the one of the client.",
        ),
        click.option(
            "--project", is_flag=True, help="The file of the folder where you are, not your own."
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


@click.command(
    cls=Talking,
    short_help="Put a server into Claude, VS Code, Cursor or Codex.",
    epilog="""\b
Examples:
  colonnade add server.py --to claude-desktop            show the entry, and where it belongs
  colonnade add server.py --to cursor --write            write it, and keep what was there
  colonnade add server.py --to codex --env API_KEY       its value stays in your environment
  colonnade add https://example.com/mcp --to vscode --name example
  colonnade add --to claude-code --project -- uvx mcp-server-git
""",
)
@click.argument("target", metavar="TARGET", callback=_target, shell_complete=complete_file)
@click.option(
    "--to",
    "client",
    required=True,
    metavar=CLIENTS,
    callback=_client,
    shell_complete=_complete_client,
    help="Which client.",
)
@click.option("--name", default="", metavar="NAME", help="What the client shall call it.")
@click.option(
    "--env",
    "envs",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the server; NAME alone refers to yours. Again for more.",
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="A header for an address; again for more.",
)
@click.option(
    "--header-env",
    "header_envs",
    multiple=True,
    metavar="NAME=VARIABLE",
    help="The same, with a value that stays in the environment.",
)
@placed
@click.option("--write", is_flag=True, help="Write it into the file, and keep what was there.")
@click.option("--replace", is_flag=True, help="Take the place of a server of this name.")
def add(**wish: Any) -> Deed:
    """Show what tells a client of a server, and where it belongs; with --write, put it there.

    TARGET is a Python file (FILE[:NAME]), an address, or what stands after -- as a command line.
    Nothing else in the file is changed, neither a comment nor the order.
    """
    from colonnade.cli.commands.add import Wish, add_target

    return partial(add_target, Wish(**wish))


@click.command(
    short_help="Take a server out again.",
    epilog="""\b
Examples:
  colonnade remove weather --from claude-desktop
  colonnade remove weather --from vscode --project
""",
)
@click.argument("server", metavar="NAME")
@click.option(
    "--from",
    "client",
    required=True,
    metavar=CLIENTS,
    callback=_client,
    shell_complete=_complete_client,
    help="Which client.",
)
@placed
def remove(server: str, client: str, file: str, project: bool) -> Deed:
    """Take a server out of the file of a client, and keep what was there.

    NAME is what the client calls it. Nothing else in the file is changed.
    """
    from colonnade.cli.commands.add import remove_name

    return partial(remove_name, server, client, file, project=project)


ADDING: Final = (add, remove)
