"""The commands about configuration files, as they are typed: `colonnade config explain mcp.json`.

Rules: click parses and nothing else, as in `commands`.
"""

from functools import partial

import click

from colonnade.cli.commands_talking import Deed, complete_file

JSON = click.option("--json", "as_json", is_flag=True, help="Give JSON, for programs.")


@click.group(
    short_help="Explain, check and trust files with servers in them.",
    epilog="Example: colonnade config explain .mcp.json",
)
def config() -> None:
    """Files with servers in them, of Claude, VS Code, Cursor, Codex, and colonnade.toml."""


@config.command(
    short_help="Show each value, and where it came from.",
    epilog="""\b
Examples:
  colonnade config explain                 all that is configured for this folder, by program
  colonnade config explain .mcp.json ~/.claude.json
  colonnade config explain colonnade.toml --all
""",
)
@click.argument("files", metavar="[FILE]...", nargs=-1, shell_complete=complete_file)
@click.option("--all", "everything", is_flag=True, help="Also settings that nobody said.")
@JSON
def explain(files: tuple[str, ...], everything: bool, as_json: bool) -> Deed:
    """Show each value of each server, and which file, line and scope it came from.

    A reference is shown as it is written, with whether it leads to anything, and never what it
    stands for. Nothing is started.
    """
    from colonnade.cli.commands.config import explain_files

    return partial(explain_files, files, everything=everything, as_json=as_json)


@config.command(
    short_help="Say what is wrong with files, for scripts.",
    epilog="""\b
Examples:
  colonnade config check .mcp.json         file:line:column: key: what is wrong
  colonnade config check colonnade.toml --json
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_file)
@JSON
def check(files: tuple[str, ...], as_json: bool) -> Deed:
    """Say what is wrong, one line each: file:line:column: key: words.

    The exit code is 1 where there is a mistake, and 0 where there are only warnings or nothing.
    Whether a file is trusted is not asked. Nothing is started.
    """
    from colonnade.cli.commands.config import check_files

    return partial(check_files, files, as_json=as_json)


@config.command(
    short_help="Let the servers of a project's file be started.",
    epilog="""\b
Examples:
  colonnade config trust .mcp.json         show what it wants, and ask
  colonnade config trust .mcp.json --yes   for scripts that know what is in it
  colonnade config trust .mcp.json --forget
""",
)
@click.argument("file", metavar="FILE", shell_complete=complete_file)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--forget", is_flag=True, help="Trust it no more.")
def trust(file: str, yes: bool, forget: bool) -> Deed:
    """Show every command line and address of a file, and ask whether it may be used.

    The answer is for these bytes alone, and for those of the files that it draws in: when one of
    them changes, it is asked again.
    """
    from colonnade.cli.commands.config import forget_file, trust_file

    return partial(forget_file, file) if forget else partial(trust_file, file, yes=yes)
