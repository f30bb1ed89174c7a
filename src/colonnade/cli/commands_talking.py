"""The commands that speak to a server, as they are typed: `colonnade call server.py add a=1 b=2`.

Rules: click parses and nothing else, as in `commands`. One rule for `--`: what stands after it is
the command line of a server, and takes the place of TARGET.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from colonnade.cli.errors import Trouble
from colonnade.cli.options import FOUND, TIMEOUT_S, Terms, seconds

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# What is to be done; it gives the exit code.
Deed: TypeAlias = Callable[[], int]

# Where the command line after `--` waits until the target is read.
COMMAND_LINE: Final = "colonnade.command_line"
DASHES: Final = "--"
# What fills the place of a target that comes after `--`; nobody can type it, and nobody sees it.
ELSEWHERE: Final = "\0"

F = TypeVar("F", bound=Callable[..., Any])


class Talking(click.Command):
    """A command that speaks to a server; what follows `--` is what starts it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The same as click does it, without what follows `--`."""
        if DASHES in args:
            at = args.index(DASHES)
            ctx.meta[COMMAND_LINE] = tuple(args[at + 1 :])
            args = [ELSEWHERE, *args[:at]]
        return super().parse_args(ctx, args)


def complete_file(_: click.Context, __: click.Parameter, typed: str) -> "list[CompletionItem]":
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # which click itself loads on use

    return [CompletionItem(typed, type="file")]


def _target(ctx: click.Context, _: click.Parameter, value: str) -> str | tuple[str, ...]:
    return ctx.meta.get(COMMAND_LINE, value)


def _given(ctx: click.Context, parameter: click.Parameter, value: str) -> str | tuple[str, ...]:
    """A target that may be left out; an empty one that was typed is none."""
    given = _target(ctx, parameter, value)
    typed = ctx.get_parameter_source("target") is not ParameterSource.DEFAULT
    if given == FOUND and typed:
        raise Trouble("the target is empty; leave it out for what is configured for this folder")
    return given


def _seconds(_: click.Context, __: click.Parameter, value: str) -> float:
    return seconds(value)


def reaching(command: F) -> F:
    """The target, and the flags that every command has which speaks to a server."""
    target = click.argument(
        "target", metavar="TARGET", callback=_target, shell_complete=complete_file
    )
    return _reaching(command, target)


def reaching_any(command: F) -> F:
    """The same, where no target means what is configured for this folder."""
    target = click.argument(
        "target",
        metavar="[TARGET]",
        default=FOUND,
        callback=_given,
        shell_complete=complete_file,
    )
    return _reaching(command, target)


def _reaching(command: F, target: Callable[[F], F]) -> F:
    flags = [
        target,
        click.option("--json", "as_json", is_flag=True, help="Give JSON, for programs."),
        click.option(
            "--as",
            "revision",
            default="",
            metavar="REVISION",
            help="Speak this revision, as a client of its time would.",
        ),
        click.option(
            "-H",
            "--header",
            "headers",
            multiple=True,
            metavar="NAME:VALUE",
            help="Send a header to an address; again for more.",
        ),
        click.option(
            "--header-env",
            "header_envs",
            multiple=True,
            metavar="NAME=VARIABLE",
            help="The same, with a value from the environment.",
        ),
        click.option(
            "--env",
            "envs",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="A variable for a server that is started here; it gets few others.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            default=f"{TIMEOUT_S:g}",
            show_default=True,
            metavar="SECONDS",
            callback=_seconds,
            help="Wait no longer for an answer, or the next sign of progress.",
        ),
        click.option("--debug", is_flag=True, help="Log what happens; show our own lines."),
        click.option(
            "--server",
            default="",
            metavar="KEY",
            help="Of a configuration, this server alone.",
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


OUT = click.option("--out", default="", metavar="DIR", help="Keep pictures, sounds and files here.")
ARGUMENTS = click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")


def terms_of(flags: dict[str, Any]) -> Terms:
    """What all commands share, taken out of what was typed."""
    return Terms(**{name: flags.pop(name) for name in Terms._fields})


def _check_out(terms: Terms, out: str) -> None:
    if out and terms.as_json:
        raise Trouble("--out and --json exclude each other: the JSON has all of it")


@click.command(
    cls=Talking,
    short_help="List tools, prompts and resources.",
    epilog="""\b
Examples:
  colonnade ls server.py
  colonnade ls https://example.com/mcp --json
  colonnade ls mcp.json
  colonnade ls                              all that is configured for this folder
  colonnade ls -- uvx mcp-server-git
""",
)
@reaching_any
def ls(**flags: Any) -> Deed:
    """List the tools, prompts, resources and templates of a server.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.
    Without one it is what `colonnade config explain` finds for this folder.
    Arguments in brackets may be left out.
    """
    from colonnade.cli.commands.ls import list_target

    return partial(list_target, terms_of(flags))


@click.command(
    cls=Talking,
    short_help="Show all that a server says of itself.",
    epilog="""\b
Examples:
  colonnade inspect server.py
  colonnade inspect server.py --as 2024-11-05
  colonnade inspect server.py --strict
  colonnade inspect mcp.json --server git
  colonnade inspect -- uvx mcp-server-git
""",
)
@reaching
@click.option("--strict", is_flag=True, help="End with 1 where there are warnings.")
def inspect(strict: bool, **flags: Any) -> Deed:
    """Show who a server is, what it speaks and can do, all that it offers, with signatures, and
    what its author may mend.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.
    With --as it shows what a client of that revision sees.
    """
    from colonnade.cli.commands.inspect import inspect_target

    return partial(inspect_target, terms_of(flags), strict)


@click.command(
    cls=Talking,
    short_help="Call a tool.",
    epilog="""\b
Examples:
  colonnade call server.py forecast city=Oslo days=3
  colonnade call server.py forecast city=Oslo 'days:=3' --json
  colonnade call https://example.com/mcp add @arguments.json
  colonnade call mcp.json files__read path=notes.txt
  colonnade call git_log repo_path=. -- uvx mcp-server-git
""",
)
@reaching
@click.argument("tool", metavar="TOOL")
@ARGUMENTS
@OUT
def call(tool: str, arguments: tuple[str, ...], out: str, **flags: Any) -> Deed:
    """Call a tool and show its result; exit code 1 where the tool says that it failed.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.

    KEY=VALUE is of the type that the tool wants, and again for one more of a list; KEY:=JSON is
    JSON; @FILE and - (standard input) hold a JSON object. Questions of the server are asked in
    the terminal.
    """
    from colonnade.cli.commands.call import call_target

    terms = terms_of(flags)
    _check_out(terms, out)
    return partial(call_target, terms, tool, arguments, out)


@click.command(
    cls=Talking,
    short_help="Read a resource.",
    epilog="""\b
Examples:
  colonnade read server.py notes://garden
  colonnade read server.py backup://notes.zip > notes.zip
  colonnade read server.py backup://notes.zip --out backups
  colonnade read mcp.json notes://garden --server notes
""",
)
@reaching
@click.argument("uri", metavar="URI")
@OUT
def read(uri: str, out: str, **flags: Any) -> Deed:
    """Read a resource: text as it is, bytes as they are unless a terminal would show them.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.
    """
    from colonnade.cli.commands.call import read_target

    terms = terms_of(flags)
    _check_out(terms, out)
    return partial(read_target, terms, uri, out)


@click.command(
    cls=Talking,
    short_help="Get the messages of a prompt.",
    epilog="""\b
Examples:
  colonnade prompt server.py review 'code=x = 1' language=python
  colonnade prompt https://example.com/mcp review @arguments.json --json
""",
)
@reaching
@click.argument("name", metavar="NAME")
@ARGUMENTS
@OUT
def prompt(name: str, arguments: tuple[str, ...], out: str, **flags: Any) -> Deed:
    """Get the messages of a prompt. Its arguments are all text.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.
    """
    from colonnade.cli.commands.call import prompt_target

    terms = terms_of(flags)
    _check_out(terms, out)
    return partial(prompt_target, terms, name, arguments, out)


@click.command(
    cls=Talking,
    short_help="Complete an argument of a prompt or a template.",
    epilog="""\b
Examples:
  colonnade complete server.py prompt:invite person al team=docs
  colonnade complete server.py template:notes://{name} name g
""",
)
@reaching
@click.argument("reference", metavar="prompt:NAME|template:URI")
@click.argument("argument", metavar="ARGUMENT")
@click.argument("prefix", metavar="[PREFIX]", default="")
@ARGUMENTS
def complete(
    reference: str, argument: str, prefix: str, arguments: tuple[str, ...], **flags: Any
) -> Deed:
    """Show what an argument of a prompt, or a variable of a template, may become.

    TARGET is an address, a Python file (FILE[:NAME]), a configuration (then all its servers), or
    what stands after -- as a command line.
    PREFIX is what was typed of it so far, KEY=VALUE the other arguments.
    """
    from colonnade.cli.commands.call import complete_target

    return partial(complete_target, terms_of(flags), reference, argument, prefix, arguments)


@click.command(
    cls=Talking,
    short_help="Log in to a server, and keep the login.",
    epilog="""\b
Examples:
  colonnade login https://example.com/mcp
  colonnade login https://example.com/mcp --no-browser
  colonnade login https://example.com/mcp --client-id ID --issuer https://login.example.com
""",
)
@reaching
@click.option("--client-id", default="", metavar="ID", help="A client that was registered before.")
@click.option("--issuer", default="", metavar="URL", help="Whom it was registered with.")
@click.option(
    "--client-secret-env",
    "secret_env",
    default="",
    metavar="VARIABLE",
    help="Its secret, where it has one, from the environment.",
)
@click.option(
    "--scope", "scopes", multiple=True, metavar="SCOPE", help="Ask for this, too; again for more."
)
@click.option("--no-browser", is_flag=True, help="Only show the page to log in at.")
def login(
    client_id: str,
    issuer: str,
    secret_env: str,
    scopes: tuple[str, ...],
    no_browser: bool,
    **flags: Any,
) -> Deed:
    """Log in to a server, in a browser, and keep the login for every other command.

    TARGET is an address, or a configuration and --server. It is kept encrypted, in a folder that
    only you may read; COLONNADE_HOME says where, if it should be elsewhere.
    """
    from colonnade.cli.commands.login import Client, login_target

    client = Client(client_id, issuer, secret_env, scopes, not no_browser)
    return partial(login_target, terms_of(flags), client)


@click.command(
    cls=Talking,
    short_help="Forget a login, and tell whoever gave it.",
    epilog="Example: colonnade logout https://example.com/mcp",
)
@reaching
def logout(**flags: Any) -> Deed:
    """Forget the login that is kept for a server, and give back its tokens.

    TARGET is an address, or a configuration and --server.
    """
    from colonnade.cli.commands.login import logout_target

    return partial(logout_target, terms_of(flags))


@click.command(
    cls=Talking,
    short_help="Show the login that is kept for a server.",
    epilog="Example: colonnade whoami https://example.com/mcp --json",
)
@reaching
def whoami(**flags: Any) -> Deed:
    """Show the login that is kept for a server: whose, as what, for what, until when.

    TARGET is an address, or a configuration and --server. Nobody is asked anything, and no token
    is shown.
    """
    from colonnade.cli.commands.login import whoami_target

    return partial(whoami_target, terms_of(flags))


TALKING: Final = (ls, inspect, call, read, prompt, complete, login, logout, whoami)
