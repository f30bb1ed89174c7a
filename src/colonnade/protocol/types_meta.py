"""The names that may stand in `_meta`, and the ones that the protocol keeps for itself.

Rules: pure text; every check takes time linear in the key.
"""

import re
from typing import Final

PROGRESS_TOKEN_KEY: Final = "progressToken"
PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
RELATED_TASK_KEY: Final = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE_KEY: Final = "io.modelcontextprotocol/model-immediate-response"
TRACEPARENT_KEY: Final = "traceparent"
TRACESTATE_KEY: Final = "tracestate"
BAGGAGE_KEY: Final = "baggage"

TASKS_EXTENSION_ID: Final = "io.modelcontextprotocol/tasks"

# The reserved keys that have no prefix.
BARE_RESERVED_KEYS: Final = frozenset(
    {PROGRESS_TOKEN_KEY, TRACEPARENT_KEY, TRACESTATE_KEY, BAGGAGE_KEY}
)
_RESERVED_LABELS = frozenset({"modelcontextprotocol", "mcp"})

# Compiled on use: most servers have no keys of their own.
_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PREFIX = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def valid_meta_key(key: str) -> bool:
    """Whether `key` is an optional dotted prefix with its slash, and a name or nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_PREFIX, prefix):  # R0348, R0349
        return False
    return not name or re.fullmatch(_NAME, name) is not None  # R0350, R0351


def reserved_meta_key(key: str, *, anywhere: bool = False) -> bool:
    """Whether only the protocol itself may give `key` a meaning.

    The rule of today looks at the second label of the prefix (`io.modelcontextprotocol/`,
    `com.mcp.tools/`). `anywhere` asks by the rule of 2025-06-18, where one of the two words may
    stand at any place but the last (`mcp.dev/`, `tools.mcp.com/`).
    """
    if key in BARE_RESERVED_KEYS:
        return True
    prefix, slash, _ = key.partition("/")
    if not slash:
        return False
    labels = prefix.split(".")
    return not _RESERVED_LABELS.isdisjoint(labels[:-1] if anywhere else labels[1:2])


def valid_extension_id(identifier: str) -> bool:
    """Whether `identifier` is a `_meta` key that has both a prefix and a name (R0926)."""
    _, slash, name = identifier.partition("/")
    return bool(slash and name) and valid_meta_key(identifier)
