"""Configuration file formats: of Claude Desktop, Claude Code, VS Code, Cursor, Codex and Colonnade.

Where each program keeps its files, how it writes a server entry, which keys an entry may have, and
which setting each key stands for.

Rules: data, and functions without I/O except `existing_files`. Keys that a program has and
Colonnade does not use are listed as well: they are no mistake.
"""

import ntpath
import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.settings import ConfigSyntaxError, Settings

Syntax: TypeAlias = Literal["json", "jsonc", "toml"]
Scope: TypeAlias = Literal["user", "project"]
Platform: TypeAlias = Literal["linux", "darwin", "win32"]

# A server name that every program accepts, also as the prefix of tool names.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FileFormat(NamedTuple):
    """The configuration file format of one program.

    - `syntax`: `json` is strict, `jsonc` allows comments and trailing commas.
    - `servers`: the key of the object that holds the entries.
    - `files`: the file of each scope; the part in braces depends on the platform (`file_path`).
    - `stdio_type`, `http_type`: the `type` that an entry needs, if any.
    - `supports_http`: whether the file may hold a server with a URL.
    - `reference`: how a value refers to an environment variable, if it can.
    - `passed_on`: the key that lists environment variables to pass on, if there is one.
    - `headers`, `header_variables`: the keys of headers, and of headers whose values are variables.
    - `afterwards`: what the user does for a new entry to take effect.
    """

    key: str
    title: str
    syntax: Syntax
    servers: str
    files: dict[Scope, str]
    stdio_type: str = ""
    http_type: str = ""
    supports_http: bool = True
    reference: str = ""
    passed_on: str = ""
    headers: str = "headers"
    header_variables: str = ""
    afterwards: str = ""

    @property
    def refers(self) -> bool:
        """Whether a value can be a reference to an environment variable."""
        return bool(self.reference or self.passed_on)

    def refer(self, variable: str) -> str:
        """The reference to an environment variable."""
        return self.reference.replace("NAME", variable)


FORMATS: Final[dict[str, FileFormat]] = {
    row.key: row
    for row in (
        FileFormat(
            "claude-desktop",
            "Claude Desktop",
            "json",
            "mcpServers",
            {"user": "{config}/Claude/claude_desktop_config.json"},
            supports_http=False,
            afterwards="quit Claude Desktop and start it again",
        ),
        FileFormat(
            "claude-code",
            "Claude Code",
            "json",
            "mcpServers",
            {"user": "{claude}/.claude.json", "project": "{folder}/.mcp.json"},
            stdio_type="stdio",
            http_type="http",
            reference="${NAME}",
            afterwards="start claude again; /mcp shows it",
        ),
        FileFormat(
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
        FileFormat(
            "cursor",
            "Cursor",
            "jsonc",
            "mcpServers",
            {"user": "{home}/.cursor/mcp.json", "project": "{folder}/.cursor/mcp.json"},
            reference="${env:NAME}",
            afterwards="switch it on in the settings of Cursor, under MCP",
        ),
        FileFormat(
            "codex",
            "Codex",
            "toml",
            "mcp_servers",
            {"user": "{codex}/config.toml", "project": "{folder}/.codex/config.toml"},
            passed_on="env_vars",
            headers="http_headers",
            header_variables="env_http_headers",
            afterwards="start codex again; /mcp shows it",
        ),
    )
}


# ---------------------------------------------------------------- existing_files


def file_path(
    file_format: FileFormat,
    scope: Scope,
    *,
    platform: Platform,
    home: str,
    folder: str,
    env: Mapping[str, str],
) -> str:
    """The file of a scope. Raises `KeyError` if the program has none."""
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
    start, *parts = file_format.files[scope].split("/")
    return join(starts[start], *parts)


# ---------------------------------------------------------------- entries


class StdioEntry(NamedTuple):
    """An entry with a command. A variable without a value is passed on from the environment."""

    command: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str | None], ...] = ()


class HttpEntry(NamedTuple):
    """An entry with a URL. The values of `header_variables` are names of environment variables."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    header_variables: tuple[tuple[str, str], ...] = ()


def encode_entry(file_format: FileFormat, server: StdioEntry | HttpEntry) -> dict[str, Any]:
    """The entry in this format. Raises `ValueError` if the format does not support it: a URL, or a
    variable to pass on."""
    if isinstance(server, HttpEntry):
        return _encode_http(file_format, server)
    made: dict[str, Any] = {"type": file_format.stdio_type} if file_format.stdio_type else {}
    made["command"] = server.command
    if server.arguments:
        made["args"] = list(server.arguments)
    passed_on = [name for name, value in server.variables if value is None]
    if passed_on and not file_format.refers:
        raise ValueError(f"{file_format.title} cannot refer to a variable")
    if file_format.passed_on:
        env = {name: value for name, value in server.variables if value is not None}
    else:
        env = {n: file_format.refer(n) if value is None else value for n, value in server.variables}
    if env:
        made["env"] = env
    if passed_on and file_format.passed_on:
        made[file_format.passed_on] = passed_on
    return made


def _encode_http(file_format: FileFormat, server: HttpEntry) -> dict[str, Any]:
    if not file_format.supports_http:
        raise ValueError(f"{file_format.title} does not support URLs in its file")
    made: dict[str, Any] = {"type": file_format.http_type} if file_format.http_type else {}
    made["url"] = server.url
    headers = dict(server.headers)
    if file_format.header_variables:
        variables = dict(server.header_variables)
    else:
        headers |= {name: file_format.refer(variable) for name, variable in server.header_variables}
        variables = {}
    if headers:
        made[file_format.headers] = headers
    if variables:
        made[file_format.header_variables] = variables
    return made


class ValueKind(Enum):
    """The type of a value; the string is for errors, after "expected"."""

    STRING = "a string"
    STRINGS = "a list of strings"
    ROOTS = 'a list of folders, or "caller"'
    TABLE = "an object with string values"
    # With numbers, and null for a variable that is not to be set.
    LOOSE_TABLE = "an object with string, number or null values"
    # With tables { command = [...] } as well as strings.
    VALUE_TABLE = "a table with values that are strings or { command = [...] }"
    NAMES = "a list of names"
    BOOLEAN = "true or false"
    SECONDS = "a number of seconds above 0"
    MILLISECONDS = "a number of milliseconds above 0"
    SECONDS_OR_NEVER = "a number of seconds above 0, or false for never"
    COUNT = "a whole number above 0"
    SHARING = 'one of "caller", "pooled" and "shared"'
    CREDENTIALS = 'one of "own", "login", "exchange" and "id-jag"'
    PINS = 'one of "strict", "warn" and "off"'
    CONTAIN = 'one of "neutralise", "mark" and "off"'
    FIRST = 'one of "accept" and "review"'
    SANDBOX = '"strict", "workspace", a table, or false'
    OBJECT = "an object"
    ANY = "anything"


CHOICES: Final[dict[ValueKind, tuple[str, ...]]] = {
    ValueKind.SHARING: ("caller", "pooled", "shared"),
    ValueKind.CREDENTIALS: ("own", "login", "exchange", "id-jag"),
    ValueKind.PINS: ("strict", "warn", "off"),
    ValueKind.CONTAIN: ("neutralise", "mark", "off"),
    ValueKind.FIRST: ("accept", "review"),
}
# VS Code writes larger numbers in another way, and no count or time is that large.
TOO_LARGE: Final = 1e21


class _Never:
    """Stands for "never", where None means that a value is invalid."""

    def __repr__(self) -> str:
        return "never"


NEVER: Final = _Never()


def is_number(value: object) -> bool:
    """Whether this is a number that a configuration may have: neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < TOO_LARGE


def scalar_value(value: Any, kind: ValueKind) -> Any:
    """The value of a boolean, a number or a choice, as a setting has it; None if it is invalid."""
    if kind is ValueKind.BOOLEAN:
        return value if isinstance(value, bool) else None
    if kind in CHOICES:
        return value if value in CHOICES[kind] else None
    if kind is ValueKind.SECONDS_OR_NEVER and value is False:
        return NEVER
    if not is_number(value) or value <= 0:
        return None
    if kind is ValueKind.COUNT:
        return value if isinstance(value, int) else None
    return float(value) / 1000 if kind is ValueKind.MILLISECONDS else float(value)


class KeySpec(NamedTuple):
    """A key: the type of its value, and the field that it sets; empty if it is not used."""

    kind: ValueKind
    field: str = ""


# Fields that say what is started or connected to; the others are settings.
TARGET_FIELDS: Final = (
    *("type", "command", "args", "env", "env_file", "cwd"),
    *("url", "headers", "headers_helper", "login"),
)

_STDIO: Final = {
    "type": KeySpec(ValueKind.STRING, "type"),
    "command": KeySpec(ValueKind.STRING, "command"),
    "args": KeySpec(ValueKind.STRINGS, "args"),
    "env": KeySpec(ValueKind.TABLE, "env"),
}
_HTTP: Final = {
    "url": KeySpec(ValueKind.STRING, "url"),
    "headers": KeySpec(ValueKind.TABLE, "headers"),
}

SETTINGS: Final[dict[str, KeySpec]] = {
    "enabled": KeySpec(ValueKind.BOOLEAN, "enabled"),
    "namespace": KeySpec(ValueKind.STRING, "namespace"),
    "only": KeySpec(ValueKind.STRINGS, "only"),
    "hidden": KeySpec(ValueKind.STRINGS, "hidden"),
    "aliases": KeySpec(ValueKind.TABLE, "aliases"),
    "owns": KeySpec(ValueKind.STRINGS, "owns"),
    "sharing": KeySpec(ValueKind.SHARING, "sharing"),
    "credentials": KeySpec(ValueKind.CREDENTIALS, "credentials"),
    "pins": KeySpec(ValueKind.PINS, "pins"),
    "contain": KeySpec(ValueKind.CONTAIN, "contain"),
    "sandbox": KeySpec(ValueKind.SANDBOX, "sandbox"),
    "elicitation": KeySpec(ValueKind.BOOLEAN, "elicitation"),
    "trusted": KeySpec(ValueKind.BOOLEAN, "trusted"),
    "sampling": KeySpec(ValueKind.BOOLEAN, "sampling"),
    "roots": KeySpec(ValueKind.ROOTS, "roots"),
    "revision": KeySpec(ValueKind.STRING, "revision"),
    "start_s": KeySpec(ValueKind.SECONDS, "start_s"),
    "timeout_s": KeySpec(ValueKind.SECONDS, "timeout_s"),
    "idle_s": KeySpec(ValueKind.SECONDS_OR_NEVER, "idle_s"),
    "max_crashes": KeySpec(ValueKind.COUNT, "max_crashes"),
    "crashes_s": KeySpec(ValueKind.SECONDS, "crashes_s"),
    "max_sessions": KeySpec(ValueKind.COUNT, "max_sessions"),
    "max_list_bytes": KeySpec(ValueKind.COUNT, "max_list_bytes"),
    "max_list_items": KeySpec(ValueKind.COUNT, "max_list_items"),
}
# Settings that cannot be a default for all servers.
OWN: Final = frozenset({"namespace", "aliases", "owns", "credentials"})

# A server that is disabled is not started, whichever program's file says so.
_ENABLED: Final = {
    "enabled": KeySpec(ValueKind.BOOLEAN, "enabled"),
    "disabled": KeySpec(ValueKind.BOOLEAN, "disabled"),
}
# Keys of Cline, Roo Code and Windsurf, whose files have the same form.
_COMMON: Final = {
    **_ENABLED,
    "disabledTools": KeySpec(ValueKind.NAMES, "hidden"),
    "autoApprove": KeySpec(ValueKind.ANY),
    "alwaysAllow": KeySpec(ValueKind.ANY),
}

KEYS: Final[dict[str, dict[str, KeySpec]]] = {
    "claude-desktop": {**_STDIO, **_HTTP, **_COMMON},
    "claude-code": {
        **_STDIO,
        **_HTTP,
        **_COMMON,
        "headersHelper": KeySpec(ValueKind.STRING, "headers_helper"),
        "oauth": KeySpec(ValueKind.OBJECT, "login"),
        "alwaysLoad": KeySpec(ValueKind.BOOLEAN),
    },
    "vscode": {
        **_STDIO,
        "env": KeySpec(ValueKind.LOOSE_TABLE, "env"),
        "envFile": KeySpec(ValueKind.STRING, "env_file"),
        "cwd": KeySpec(ValueKind.STRING, "cwd"),
        **_HTTP,
        **_COMMON,
        "dev": KeySpec(ValueKind.OBJECT),
        "sandboxEnabled": KeySpec(ValueKind.BOOLEAN, "sandbox_enabled"),
        "sandbox": KeySpec(ValueKind.OBJECT, "sandbox_rules"),
        "gallery": KeySpec(ValueKind.ANY),
        "version": KeySpec(ValueKind.ANY),
    },
    "cursor": {
        **_STDIO,
        "envFile": KeySpec(ValueKind.STRING, "env_file"),
        **_HTTP,
        **_COMMON,
        "auth": KeySpec(ValueKind.OBJECT, "login"),
    },
    "codex": {
        "command": KeySpec(ValueKind.STRING, "command"),
        "args": KeySpec(ValueKind.STRINGS, "args"),
        "env": KeySpec(ValueKind.TABLE, "env"),
        "env_vars": KeySpec(ValueKind.NAMES, "env_vars"),
        "cwd": KeySpec(ValueKind.STRING, "cwd"),
        "url": KeySpec(ValueKind.STRING, "url"),
        "http_headers": KeySpec(ValueKind.TABLE, "headers"),
        "env_http_headers": KeySpec(ValueKind.TABLE, "env_headers"),
        "bearer_token_env_var": KeySpec(ValueKind.STRING, "bearer"),
        "startup_timeout_sec": KeySpec(ValueKind.SECONDS, "start_s"),
        "startup_timeout_ms": KeySpec(ValueKind.MILLISECONDS, "start_s"),
        "tool_timeout_sec": KeySpec(ValueKind.SECONDS, "timeout_s"),
        **_ENABLED,
        "enabled_tools": KeySpec(ValueKind.NAMES, "only"),
        "disabled_tools": KeySpec(ValueKind.NAMES, "hidden"),
        "required": KeySpec(ValueKind.BOOLEAN),
        "supports_parallel_tool_calls": KeySpec(ValueKind.BOOLEAN),
        "default_tools_approval_mode": KeySpec(ValueKind.STRING),
        "tools": KeySpec(ValueKind.OBJECT),
        "scopes": KeySpec(ValueKind.STRINGS, "scopes"),
        "oauth": KeySpec(ValueKind.OBJECT, "login"),
        "oauth_resource": KeySpec(ValueKind.STRING),
        "experimental_environment": KeySpec(ValueKind.STRING),
        "name": KeySpec(ValueKind.STRING),
    },
    "colonnade": {
        **_STDIO,
        "env": KeySpec(ValueKind.VALUE_TABLE, "env"),
        "cwd": KeySpec(ValueKind.STRING, "cwd"),
        "url": KeySpec(ValueKind.STRING, "url"),
        "headers": KeySpec(ValueKind.VALUE_TABLE, "headers"),
        "login": KeySpec(ValueKind.OBJECT, "login"),
        "disabled": KeySpec(ValueKind.BOOLEAN, "disabled"),
        **SETTINGS,
    },
}

# Keys in which each program resolves references, or in which a reference is likely to be tried.
REFERENCE_KEYS: Final[dict[str, frozenset[str]]] = {
    "claude-desktop": frozenset({"command", "args", "env"}),
    "claude-code": frozenset({"command", "args", "env", "url", "headers"}),
    "vscode": frozenset({"command", "args", "env", "envFile", "cwd", "url", "headers"}),
    "cursor": frozenset({"command", "args", "env", "envFile", "url", "headers"}),
    "codex": frozenset({"command", "args", "env", "url", "http_headers"}),
    "colonnade": frozenset({"command", "args", "env", "cwd", "url", "headers"}),
}

# Keys that are often written by mistake, or that another program has, and the key that is meant.
SYNONYMS: Final = {
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

# The login keys of each program, and the field of each.
LOGIN: Final[dict[str, dict[str, str]]] = {
    "claude-code": {"clientId": "client_id", "scopes": "scopes", "callbackPort": "port"},
    "cursor": {"CLIENT_ID": "client_id", "scopes": "scopes"},
    "codex": {"client_id": "client_id"},
    "colonnade": {"client_id": "client_id", "scopes": "scopes", "port": "port"},
}
# Further login keys. A client secret is not used, since the file does not say for which issuer.
LOGIN_UNUSED: Final = ("authServerMetadataUrl", "CLIENT_SECRET")

TYPES: Final = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}


def default_settings() -> dict[str, object]:
    """The default of every setting."""
    return {name: getattr(Settings(), name) for name in SETTINGS}


# Of two servers of one name in files of one program, the one with the lower rank wins.
RANKS: Final = {"managed": 0, "local": 1, "project": 2, "user": 3}
# The scope of a file that was named explicitly.
NAMED: Final = "file"

MANAGED: Final = "managed-mcp.json"
MANAGED_FOLDERS: Final[dict[Platform, str]] = {
    "linux": "/etc/claude-code",
    "darwin": "/Library/Application Support/ClaudeCode",
    "win32": r"C:\Program Files\ClaudeCode",
}
OWN_FILE: Final = "colonnade.toml"

# The last parts of a path, and the format; the project's folder is the one above them.
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


class FileRole(NamedTuple):
    """The format and the scope of a file. Without a format, its content decides."""

    file_format: str
    scope: str
    folder: str
    # Whether only the user or the administrator writes files there.
    own: bool = False


def platform() -> Platform:
    """The current platform."""
    return cast("Platform", sys.platform) if sys.platform in ("win32", "darwin") else "linux"


def file_role(file: str, *, home: str, folder: str, env: Mapping[str, str]) -> FileRole:
    """The format and the scope of a file, by its absolute path."""
    for file_format in FORMATS.values():
        default = file_path(
            file_format, "user", platform=platform(), home=home, folder=folder, env=env
        )
        if _same(file, default):
            return FileRole(file_format.key, "user", folder, own=True)
    for parts, key in _PROJECTS.items():
        at, below = file, list(parts)
        while below and _same(os.path.basename(at), below[-1]):
            at = os.path.dirname(at)
            below.pop()
        if not below:
            return FileRole(key, "project", at)
    if _same(file, managed_file()):
        return FileRole("claude-code", "managed", folder, own=True)
    known, scope = _NAMES.get(os.path.basename(file), ("", NAMED))
    return FileRole(known, scope, folder, own=_same(file, own_file(home, env)))


def _same(one: str, other: str) -> bool:
    return os.path.normcase(one) == os.path.normcase(other)


def managed_file() -> str:
    """The file in which an administrator configures Claude Code."""
    return os.path.join(MANAGED_FOLDERS[platform()], MANAGED)


def own_file(home: str, env: Mapping[str, str]) -> str:
    """The user's own `colonnade.toml`."""
    start = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return os.path.join(start, "colonnade", OWN_FILE)


def existing_files(
    *, home: str, folder: str, env: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Every program with those of its configuration files for a folder that exist."""
    for file_format in FORMATS.values():
        default = [
            file_path(file_format, scope, platform=platform(), home=home, folder=folder, env=env)
            for scope in file_format.files
        ]
        if file_format.key == "claude-code":
            default.insert(0, managed_file())
        found = [file for file in default if os.path.isfile(file)]
        if found:
            yield file_format.title, found
    ours = [os.path.join(folder, OWN_FILE), own_file(home, env)]
    for file in ours:
        if os.path.isfile(file):
            yield "Colonnade", [file]


# ---------------------------------------------------------------- editing


def find(file_format: FileFormat, text: str) -> dict[str, Any]:
    """Every entry by the name of its server. Raises `ConfigSyntaxError`."""
    if file_format.syntax == "toml":
        whole: Any = toml_text.read(text)
    else:
        node = json_text.read(text, comments=file_format.syntax == "jsonc")
        if node is None:
            return {}
        whole = node.value
        if not isinstance(whole, dict):
            raise ConfigSyntaxError(text, node.start, "expected an object")
    found = cast("dict[str, Any]", whole).get(file_format.servers, {})
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def put(file_format: FileFormat, text: str, name: str, entry: dict[str, Any]) -> str:
    """The text with this entry, which replaces one of the same name. Raises `ConfigSyntaxError`."""
    keys = (file_format.servers, name)
    if file_format.syntax == "toml":
        return toml_text.put(text, keys, entry)
    return json_text.put(text, keys, entry, comments=file_format.syntax == "jsonc")


def remove(file_format: FileFormat, text: str, name: str) -> str:
    """The text without the entry. Raises `ConfigSyntaxError`, and `KeyError` if there is none."""
    keys = (file_format.servers, name)
    if file_format.syntax == "toml":
        return toml_text.remove(text, keys)
    return json_text.remove(text, keys, comments=file_format.syntax == "jsonc")


def is_before(file_format: FileFormat, before: str, text: str, name: str) -> bool:
    """Whether `before` is the text without the entry, to the byte."""
    try:
        if name in find(file_format, before):
            return False
        return put(file_format, before, name, find(file_format, text)[name]) == text
    except (ConfigSyntaxError, KeyError, TypeError):
        return False


def snippet(file_format: FileFormat, name: str, entry: dict[str, Any]) -> str:
    """A file with nothing but this entry."""
    return put(file_format, "", name, entry)
