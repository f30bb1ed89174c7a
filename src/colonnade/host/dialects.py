"""The configuration files of the programs that use servers: where they are, and what is in them.

Each program has its own dialect. All that is known of one is a row of `DIALECTS`: who writes an
entry and who reads one asks the same row.

Rules: no file is touched and no environment read: the platform, the home and the variables are
arguments. An entry is plain data, in the order in which it is written.
"""

import ntpath
import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Syntax: TypeAlias = Literal["json", "jsonc", "toml"]
Scope: TypeAlias = Literal["user", "project"]
Platform: TypeAlias = Literal["linux", "darwin", "win32"]

# What every program takes as the name of a server, and puts before the names of its tools.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Dialect(NamedTuple):
    """How one program is told of servers.

    - `syntax`: `json` is read to the letter, `jsonc` with comments and commas at the end.
    - `servers`: the key under which entries stand.
    - `files`: the file of each scope; what stands in braces depends on the platform (`path`).
    - `stdio_type`, `http_type`: the `type` that an entry needs, if any.
    - `addresses`: whether the file may hold a server that is reached by its address.
    - `reference`: how a value refers to a variable of the environment, if that is possible.
    - `passed_on`: the key that lists variables to pass on, where that is how it is done.
    - `headers`, `header_variables`: the keys of headers, and of headers whose values are variables.
    - `afterwards`: what a person does for it to be seen.
    """

    key: str
    title: str
    syntax: Syntax
    servers: str
    files: dict[Scope, str]
    stdio_type: str = ""
    http_type: str = ""
    addresses: bool = True
    reference: str = ""
    passed_on: str = ""
    headers: str = "headers"
    header_variables: str = ""
    afterwards: str = ""

    @property
    def refers(self) -> bool:
        """Whether a value can stay in the environment."""
        return bool(self.reference or self.passed_on)

    def refer(self, variable: str) -> str:
        """What stands for the value of a variable."""
        return self.reference.replace("NAME", variable)


DIALECTS: Final[dict[str, Dialect]] = {
    row.key: row
    for row in (
        Dialect(
            "claude-desktop",
            "Claude Desktop",
            "json",
            "mcpServers",
            {"user": "{config}/Claude/claude_desktop_config.json"},
            addresses=False,
            afterwards="quit Claude Desktop and start it again",
        ),
        Dialect(
            "claude-code",
            "Claude Code",
            "json",
            "mcpServers",
            {"user": "{claude}/.claude.json", "project": "{folder}/.mcp.json"},
            stdio_type="stdio",
            http_type="http",
            reference="${NAME}",
            afterwards="start claude anew; /mcp shows it",
        ),
        Dialect(
            "vscode",
            "VS Code",
            "jsonc",
            "servers",
            {"user": "{config}/Code/User/mcp.json", "project": "{folder}/.vscode/mcp.json"},
            stdio_type="stdio",
            http_type="http",
            reference="${env:NAME}",
            afterwards="start it with MCP: List Servers, and trust it",
        ),
        Dialect(
            "cursor",
            "Cursor",
            "jsonc",
            "mcpServers",
            {"user": "{home}/.cursor/mcp.json", "project": "{folder}/.cursor/mcp.json"},
            reference="${env:NAME}",
            afterwards="switch it on in the settings of Cursor, under MCP",
        ),
        Dialect(
            "codex",
            "Codex",
            "toml",
            "mcp_servers",
            {"user": "{codex}/config.toml", "project": "{folder}/.codex/config.toml"},
            passed_on="env_vars",
            headers="http_headers",
            header_variables="env_http_headers",
            afterwards="start codex anew; /mcp shows it",
        ),
    )
}


# ---------------------------------------------------------------- places


def path(
    dialect: Dialect,
    scope: Scope,
    *,
    platform: Platform,
    home: str,
    folder: str,
    env: Mapping[str, str],
) -> str:
    """The file of a scope. Raises `KeyError` where the program has none."""
    join = ntpath.join if platform == "win32" else posixpath.join
    if platform == "win32":
        config = env.get("APPDATA") or join(home, "AppData", "Roaming")
    elif platform == "darwin":
        config = join(home, "Library", "Application Support")
    else:
        config = env.get("XDG_CONFIG_HOME") or join(home, ".config")
    starts = {
        "{config}": config,
        "{home}": home,
        "{folder}": folder,
        "{claude}": env.get("CLAUDE_CONFIG_DIR") or home,
        "{codex}": env.get("CODEX_HOME") or join(home, ".codex"),
    }
    start, *parts = dialect.files[scope].split("/")
    return join(starts[start], *parts)


# ---------------------------------------------------------------- entries


class Started(NamedTuple):
    """A server that the program starts. A variable without a value is to be passed on."""

    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str | None], ...] = ()


class Reached(NamedTuple):
    """A server with an address. Of `header_variables` the values are names of variables."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    header_variables: tuple[tuple[str, str], ...] = ()


def entry(dialect: Dialect, server: Started | Reached) -> dict[str, Any]:
    """The server as this dialect says it. Raises `ValueError` for what cannot be said in it:
    an address, or a variable to pass on."""
    if isinstance(server, Reached):
        return _reached(dialect, server)
    made: dict[str, Any] = {"type": dialect.stdio_type} if dialect.stdio_type else {}
    made["command"] = server.command
    if server.arguments:
        made["args"] = list(server.arguments)
    passed_on = [name for name, value in server.variables if value is None]
    if passed_on and not dialect.refers:
        raise ValueError(f"{dialect.title} cannot refer to a variable")
    if dialect.passed_on:
        env = {name: value for name, value in server.variables if value is not None}
    else:
        env = {n: dialect.refer(n) if value is None else value for n, value in server.variables}
    if env:
        made["env"] = env
    if passed_on and dialect.passed_on:
        made[dialect.passed_on] = passed_on
    return made


def _reached(dialect: Dialect, server: Reached) -> dict[str, Any]:
    if not dialect.addresses:
        raise ValueError(f"{dialect.title} takes no addresses from its file")
    made: dict[str, Any] = {"type": dialect.http_type} if dialect.http_type else {}
    made["url"] = server.url
    headers = dict(server.headers)
    if dialect.header_variables:
        variables = dict(server.header_variables)
    else:
        headers |= {name: dialect.refer(variable) for name, variable in server.header_variables}
        variables = {}
    if headers:
        made[dialect.headers] = headers
    if variables:
        made[dialect.header_variables] = variables
    return made
