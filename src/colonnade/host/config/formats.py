"""Which keys a server may have in each dialect, of which kind each is, and what it means to us.

Rules: data only. What a program has and we have no use for is known, too: it is no mistake.
"""

import ntpath
import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from colonnade.host.config.settings import Settings

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


class Kind(Enum):
    """What may stand as a value; its words are for errors."""

    TEXT = "a text"
    TEXTS = "a list of texts"
    TABLE = "an object with a text for each name"
    # With numbers, and null for what is not to be set.
    LOOSE = "an object with a text, a number or null for each name"
    # With tables { command = [...] } beside texts.
    VALUES = "a table with a text, or { command = [...] }, for each name"
    NAMES = "a list of names"
    FLAG = "true or false"
    SECONDS = "a number of seconds above 0"
    MILLISECONDS = "a number of milliseconds above 0"
    SECONDS_OR_NEVER = "a number of seconds above 0, or false for never"
    COUNT = "a whole number above 0"
    SHARING = 'one of "caller", "pooled" and "shared"'
    OBJECT = "an object"
    ANY = "anything"


class Row(NamedTuple):
    """A key: what it takes, and which field of ours it fills; none, where it has no meaning."""

    kind: Kind
    field: str = ""


# Fields that say what is started or reached; the others are settings.
REACHING: Final = (
    *("type", "command", "args", "env", "env_file", "cwd"),
    *("url", "headers", "headers_helper", "login"),
)

_STARTED: Final = {
    "type": Row(Kind.TEXT, "type"),
    "command": Row(Kind.TEXT, "command"),
    "args": Row(Kind.TEXTS, "args"),
    "env": Row(Kind.TABLE, "env"),
}
_REACHED: Final = {"url": Row(Kind.TEXT, "url"), "headers": Row(Kind.TABLE, "headers")}

SETTINGS: Final[dict[str, Row]] = {
    "enabled": Row(Kind.FLAG, "enabled"),
    "namespace": Row(Kind.TEXT, "namespace"),
    "only": Row(Kind.TEXTS, "only"),
    "hidden": Row(Kind.TEXTS, "hidden"),
    "aliases": Row(Kind.TABLE, "aliases"),
    "sharing": Row(Kind.SHARING, "sharing"),
    "elicitation": Row(Kind.FLAG, "elicitation"),
    "sampling": Row(Kind.FLAG, "sampling"),
    "roots": Row(Kind.TEXTS, "roots"),
    "revision": Row(Kind.TEXT, "revision"),
    "start_s": Row(Kind.SECONDS, "start_s"),
    "timeout_s": Row(Kind.SECONDS, "timeout_s"),
    "idle_s": Row(Kind.SECONDS_OR_NEVER, "idle_s"),
    "max_crashes": Row(Kind.COUNT, "max_crashes"),
    "crashes_s": Row(Kind.SECONDS, "crashes_s"),
    "max_seats": Row(Kind.COUNT, "max_seats"),
    "max_list_bytes": Row(Kind.COUNT, "max_list_bytes"),
    "max_list_items": Row(Kind.COUNT, "max_list_items"),
}
# What is of one server alone, and no default for all.
OWN: Final = frozenset({"namespace", "aliases"})

# A server that is switched off is not started, whichever program's file says so.
_SWITCHED: Final = {
    "enabled": Row(Kind.FLAG, "enabled"),
    "disabled": Row(Kind.FLAG, "disabled"),
}
# What Cline, Roo Code and Windsurf have in files of the same form.
_OTHERS: Final = {
    **_SWITCHED,
    "disabledTools": Row(Kind.NAMES, "hidden"),
    "autoApprove": Row(Kind.ANY),
    "alwaysAllow": Row(Kind.ANY),
}

KEYS: Final[dict[str, dict[str, Row]]] = {
    "claude-desktop": {**_STARTED, **_REACHED, **_OTHERS},
    "claude-code": {
        **_STARTED,
        **_REACHED,
        **_OTHERS,
        "headersHelper": Row(Kind.TEXT, "headers_helper"),
        "oauth": Row(Kind.OBJECT, "login"),
        "alwaysLoad": Row(Kind.FLAG),
    },
    "vscode": {
        **_STARTED,
        "env": Row(Kind.LOOSE, "env"),
        "envFile": Row(Kind.TEXT, "env_file"),
        "cwd": Row(Kind.TEXT, "cwd"),
        **_REACHED,
        **_OTHERS,
        "dev": Row(Kind.OBJECT),
        "sandboxEnabled": Row(Kind.FLAG, "sandbox"),
        "sandbox": Row(Kind.OBJECT),
        "gallery": Row(Kind.ANY),
        "version": Row(Kind.ANY),
    },
    "cursor": {
        **_STARTED,
        "envFile": Row(Kind.TEXT, "env_file"),
        **_REACHED,
        **_OTHERS,
        "auth": Row(Kind.OBJECT, "login"),
    },
    "codex": {
        "command": Row(Kind.TEXT, "command"),
        "args": Row(Kind.TEXTS, "args"),
        "env": Row(Kind.TABLE, "env"),
        "env_vars": Row(Kind.NAMES, "env_vars"),
        "cwd": Row(Kind.TEXT, "cwd"),
        "url": Row(Kind.TEXT, "url"),
        "http_headers": Row(Kind.TABLE, "headers"),
        "env_http_headers": Row(Kind.TABLE, "env_headers"),
        "bearer_token_env_var": Row(Kind.TEXT, "bearer"),
        "startup_timeout_sec": Row(Kind.SECONDS, "start_s"),
        "startup_timeout_ms": Row(Kind.MILLISECONDS, "start_s"),
        "tool_timeout_sec": Row(Kind.SECONDS, "timeout_s"),
        **_SWITCHED,
        "enabled_tools": Row(Kind.NAMES, "only"),
        "disabled_tools": Row(Kind.NAMES, "hidden"),
        "required": Row(Kind.FLAG),
        "supports_parallel_tool_calls": Row(Kind.FLAG),
        "default_tools_approval_mode": Row(Kind.TEXT),
        "tools": Row(Kind.OBJECT),
        "scopes": Row(Kind.TEXTS, "scopes"),
        "oauth": Row(Kind.OBJECT, "login"),
        "oauth_resource": Row(Kind.TEXT),
        "experimental_environment": Row(Kind.TEXT),
        "name": Row(Kind.TEXT),
    },
    "colonnade": {
        **_STARTED,
        "env": Row(Kind.VALUES, "env"),
        "cwd": Row(Kind.TEXT, "cwd"),
        "url": Row(Kind.TEXT, "url"),
        "headers": Row(Kind.VALUES, "headers"),
        "login": Row(Kind.OBJECT, "login"),
        "disabled": Row(Kind.FLAG, "disabled"),
        **SETTINGS,
    },
}

# In which keys each program looks something up, or somebody may think that it does.
LOOKED_UP: Final[dict[str, frozenset[str]]] = {
    "claude-desktop": frozenset({"command", "args", "env"}),
    "claude-code": frozenset({"command", "args", "env", "url", "headers"}),
    "vscode": frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers"}),
    "cursor": frozenset({"command", "args", "env", "envFile", "url", "headers"}),
    "codex": frozenset({"command", "args", "env", "url", "http_headers"}),
    "colonnade": frozenset({"command", "args", "env", "cwd", "url", "headers"}),
}

# What people write for another key, and where another program has it.
MEANT: Final = {
    "arguments": "args",
    "environment": "env",
    "envs": "env",
    "serverUrl": "url",
    "httpUrl": "url",
    "endpoint": "url",
    "transport": "type",
    "header": "headers",
    "env_file": "envFile",
    "working_directory": "cwd",
    "workingDirectory": "cwd",
    "timeout": "timeout_s",
}

# What each program calls the terms of a login, in ours.
LOGIN: Final[dict[str, dict[str, str]]] = {
    "claude-code": {"clientId": "client_id", "scopes": "scopes", "callbackPort": "port"},
    "cursor": {"CLIENT_ID": "client_id", "scopes": "scopes"},
    "codex": {"client_id": "client_id"},
    "colonnade": {"client_id": "client_id", "scopes": "scopes", "port": "port"},
}
# What they have beside it; a secret without the issuer that it is for is sent to nobody.
LOGIN_UNUSED: Final = ("authServerMetadataUrl", "CLIENT_SECRET")

TYPES: Final = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}


def defaults() -> dict[str, object]:
    """Every setting as it is where nobody says it."""
    return {name: getattr(Settings(), name) for name in SETTINGS}


# Of two servers of one name in files of one program, the one of the earlier scope counts.
RANKS: Final = {"managed": 0, "local": 1, "project": 2, "user": 3}
# A file that somebody named, which is of no scope.
NAMED: Final = "file"

MANAGED: Final = "managed-mcp.json"
MANAGED_FOLDERS: Final[dict[Platform, str]] = {
    "linux": "/etc/claude-code",
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}
OWN_FILE: Final = "colonnade.toml"

# The last parts of a path, and whose it is; how many of them are below the project's folder.
_PROJECTS: Final = {
    (".mcp.json",): "claude-code",
    (".vscode", "mcp.json"): "vscode",
    (".cursor", "mcp.json"): "cursor",
    (".codex", "config.toml"): "codex",
}
_NAMES: Final = {
    "claude_desktop_config.json": ("claude-desktop", "user"),
    ".claude.json": ("claude-code", "user"),
    OWN_FILE: ("colonnade", NAMED),
}


class Role(NamedTuple):
    """Whose a file is. Without a dialect, its content has to tell."""

    dialect: str
    scope: str
    folder: str
    # Whether it stands where only the user, or who manages the machine, puts files.
    own: bool = False


def platform() -> Platform:
    """The one that we are on, as `dialects` calls it."""
    return cast("Platform", sys.platform) if sys.platform in ("win32", "darwin") else "linux"


def role(file: str, *, home: str, folder: str, env: Mapping[str, str]) -> Role:
    """Whose a file is, by its path, which is absolute."""
    for dialect in DIALECTS.values():
        usual = path(dialect, "user", platform=platform(), home=home, folder=folder, env=env)
        if _same(file, usual):
            return Role(dialect.key, "user", folder, own=True)
    for parts, key in _PROJECTS.items():
        at, below = file, list(parts)
        while below and _same(os.path.basename(at), below[-1]):
            at = os.path.dirname(at)
            below.pop()
        if not below:
            return Role(key, "project", at)
    if _same(file, managed_file()):
        return Role("claude-code", "managed", folder, own=True)
    known, scope = _NAMES.get(os.path.basename(file), ("", NAMED))
    return Role(known, scope, folder, own=_same(file, own_file(home, env)))


def _same(one: str, other: str) -> bool:
    return os.path.normcase(one) == os.path.normcase(other)


def managed_file() -> str:
    """What who manages this machine says to Claude Code."""
    return os.path.join(MANAGED_FOLDERS[platform()], MANAGED)


def own_file(home: str, env: Mapping[str, str]) -> str:
    """The user's own `colonnade.toml`."""
    start = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(start, "colonnade", OWN_FILE)


def places(*, home: str, folder: str, env: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Every program with the files that it would read for a folder, and that are there."""
    for dialect in DIALECTS.values():
        usual = [
            path(dialect, scope, platform=platform(), home=home, folder=folder, env=env)
            for scope in dialect.files
        ]
        if dialect.key == "claude-code":
            usual.insert(0, managed_file())
        found = [file for file in usual if os.path.isfile(file)]
        if found:
            yield dialect.title, found
    ours = [os.path.join(folder, OWN_FILE), own_file(home, env)]
    for file in ours:
        if os.path.isfile(file):
            yield "Colonnade", [file]
