"""Which keys a server may have in each dialect, of which kind each is, and what it means to us.

Rules: data only. What a program has and we have no use for is known, too: it is no mistake.
"""

from enum import Enum
from typing import Final, NamedTuple

from colonnade.host.settings import Settings


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
