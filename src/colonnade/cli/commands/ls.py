"""`colonnade ls`: list tools, prompts, resources and templates of one server, or of several.

Rules: a list that a server does not support is empty. What is cut in a table is complete with
`--json`.
"""

from functools import partial
from typing import Any

import click

from colonnade.cli.connections import ConfiguredServers, ServerListing
from colonnade.cli.options import (
    Action,
    ConnectionOptions,
    ServerCommand,
    optional_connection_options,
    take_connection_options,
)
from colonnade.cli.session import CommandSession, run_connected, show_json
from colonnade.cli.terminal import Terminal, columns
from colonnade.client.tools import names_of
from colonnade.protocol import types as t
from colonnade.text import cut, first_line, one_line

# The width of the arguments of a tool in a table; `inspect` shows all of them.
MAX_ARGUMENTS = 40
# The width of a URI in a table; a data: URI may be a whole image.
MAX_URI = 100


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade ls server.py
  colonnade ls https://example.com/mcp --json
  colonnade ls mcp.json
  colonnade ls                              the configuration found for this folder
  colonnade ls -- uvx mcp-server-git
""",
)
@optional_connection_options
def ls(**options: Any) -> Action:
    """List the tools, prompts, resources and resource templates of a server.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --.
    Without TARGET, the configuration files that `colonnade config explain` finds are used.
    Optional arguments of a tool are in brackets.
    """
    return partial(list_target, take_connection_options(options))


def list_target(options: ConnectionOptions) -> int:
    """List everything of a server, or of all servers of a configuration; return the exit code."""
    return run_connected(options, partial(_list, options=options))


async def _list(session: CommandSession, *, options: ConnectionOptions) -> int:
    servers, terminal = session
    if isinstance(servers, ConfiguredServers):
        return await _list_all(servers, terminal, options)
    listing = await servers.list_all()
    if options.as_json:
        show_json(listing.to_json(), terminal)
    else:
        shown = sections(listing, terminal)
        terminal.write("\n".join(shown) if shown else "the server lists nothing\n")
    return 0


async def _list_all(
    servers: ConfiguredServers, terminal: Terminal, options: ConnectionOptions
) -> int:
    from colonnade.cli.connections import combined_exit_code, problems_to_json, show_problems

    listings = await servers.list_all()
    problems = servers.problems
    if options.as_json:
        listed = {key: one.to_json() for key, one in listings.items()}
        show_json({"servers": listed, "problems": problems_to_json(problems)}, terminal)
    else:
        sections = [_server_section(key, one, terminal) for key, one in listings.items()]
        terminal.write("\n".join(sections))
        show_problems(problems, terminal)
    return combined_exit_code(listings, servers.host.failures.values())


def _server_section(key: str, listing: ServerListing, terminal: Terminal) -> str:
    """One server of several, indented below its key."""
    shown = sections(listing, terminal, indent=4) or ["    the server lists nothing\n"]
    lines = "\n".join(shown).splitlines(keepends=True)
    title = terminal.heading(one_line(key))
    return f"{title}\n" + "".join(_indent(line) for line in lines)


def _indent(line: str) -> str:
    return line if line[:1] in (" ", "\n", "") else f"  {line}"


def sections(listing: ServerListing, terminal: Terminal, indent: int = 2) -> list[str]:
    """A table for each kind of item."""
    tables = {
        "tools": [_tool(tool) for tool in listing.tools],
        "prompts": [_prompt(prompt) for prompt in listing.prompts],
        "resources": [_resource(one) for one in listing.resources],
        "templates": [_template(one) for one in listing.templates],
    }
    return [
        f"{terminal.heading(title)}\n{columns(rows, indent=indent, most=terminal.width)}"
        for title, rows in tables.items()
        if rows
    ]


def _tool(tool: t.Tool) -> list[str]:
    takes = cut(names_of(tool.input_schema), MAX_ARGUMENTS)
    return [one_line(tool.name), takes, first_line(tool.description) or title_of(tool)]


def _prompt(prompt: t.Prompt) -> list[str]:
    given = prompt.arguments or []
    takes = " ".join(one.name if one.required else f"[{one.name}]" for one in given)
    about = first_line(prompt.description) or title_of(prompt)
    return [one_line(prompt.name), cut(one_line(takes), MAX_ARGUMENTS), about]


def _resource(one: t.Resource) -> list[str]:
    uri, kind = cut(one_line(one.uri), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def _template(one: t.ResourceTemplate) -> list[str]:
    uri, kind = cut(one_line(one.uri_template), MAX_URI), one_line(one.mime_type)
    return [uri, one_line(t.display_name(one)), kind, first_line(one.description)]


def title_of(item: t.HasTitle) -> str:
    """The title, if it differs from the name."""
    title = one_line(t.display_name(item))
    return title if title != item.name else ""
