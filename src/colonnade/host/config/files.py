"""Loads one configuration file: its bytes, its format, and every entry in it.

Rules: a file is opened once, and the bytes that are hashed are the bytes that are parsed. Nothing
is resolved or started. What cannot be read is a problem with a place, never an exception.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from colonnade.host.config import entry as documents
from colonnade.host.config.entry import EntryDraft, Origin, SourceNode, read_entry
from colonnade.host.config.formats import (
    FORMATS,
    KEYS,
    NAMED,
    OWN,
    SETTINGS,
    FileRole,
    Syntax,
    ValueKind,
    file_role,
    scalar_value,
)
from colonnade.host.config.gateway_table import read_gateway
from colonnade.host.config.lookups import Input, inputs_of
from colonnade.host.config.settings import (
    ConfigSyntaxError,
    GatewaySettings,
    HostProblem,
    PinsTable,
    Place,
)

# Claude Code keeps all of its state in the same file; this is many times its size.
MAX_OWN_BYTES: Final = 64 * 1024 * 1024
# Any other file is written by hand, or by an attacker.
MAX_BYTES: Final = 4 * 1024 * 1024

# A file that cannot be parsed and has this may deny what nothing else denies.
POLICY_HEADER: Final = b"[policy"
# What `colonnade.toml` has at its top.
OWN_TABLES: Final = (
    *("include", "servers", "defaults", "gateway", "policy", "audit", "approvals", "pins"),
)

# Tables that other code reads.
_SERVER_TABLES: Final = ("include", "servers", "defaults")

MCP_SERVERS, VSCODE_SERVERS, CODEX_SERVERS = "mcpServers", "servers", "mcp_servers"


class ReadContext(NamedTuple):
    """Where files are read: the home folder, the working folder, and the environment variables that
    move files."""

    home: str
    folder: str
    env: Mapping[str, str]
    # Whether every file has to be trusted that is not in a place of the user's own.
    strict: bool = False


class ConfigFile:
    """One file, and what is in it."""

    def __init__(self, file: str, whose: FileRole) -> None:
        self.file: str = file
        self.file_role: FileRole = whose
        self.digest: str = ""
        self.needs_trust: bool = False
        self.drafts: list[EntryDraft] = []
        self.includes: list[tuple[str, SourceNode]] = []
        self.defaults: EntryDraft | None = None
        # The tables of `colonnade.toml` that do not describe servers, by name.
        self.tables: dict[str, SourceNode] = {}
        self.audit: SourceNode | None = None
        self.gateway: GatewaySettings | None = None
        self.gateway_origin: Origin | None = None
        # The `[[policy]]` of the file, and whether it may have one that could not be read.
        self.policy: SourceNode | None = None
        self.has_broken_policy: bool = False
        # Its `[approvals]`.
        self.approvals: SourceNode | None = None
        self.pins: PinsTable | None = None
        self.inputs: dict[str, Input] = {}
        self.problems: list[HostProblem] = []
        self.warnings: list[HostProblem] = []

    def wrong(self, summary: str, place: Place | None = None, *, hint: str = "") -> None:
        """Add a problem of the file."""
        place = place or Place(self.file, 1, 1, "")
        self.problems.append(HostProblem("", summary, place, hint=hint))

    def origin(self, file_format: str, scope: str) -> Origin:
        """The origin of its values."""
        return Origin(self.file, file_format, scope, self.file_role.folder, self.needs_trust)


def read_bytes(file: str, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file. Raises `OSError`."""
    # An untrusted file may name a pipe or a device, which would block.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise OSError(0, f"it is larger than {limit >> 20} MiB")
    return data


def load(file: str, read_context: ReadContext, *, needs_trust: bool | None = None) -> ConfigFile:
    """Read one file. `needs_trust` overrides whether it has to be trusted."""
    whose = file_role(
        file, home=read_context.home, folder=read_context.folder, env=read_context.env
    )
    source = ConfigFile(file, whose)
    is_project = whose.scope == "project"
    source.needs_trust = (
        needs_trust
        if needs_trust is not None
        else is_project or (read_context.strict and not whose.own)
    )
    try:
        data = read_bytes(file, MAX_OWN_BYTES if whose.own else MAX_BYTES)
    except FileNotFoundError:
        source.wrong("file not found")
        return source
    except OSError as error:
        source.wrong(f"it cannot be read: {error.strerror or error}")
        return source
    source.digest = hashlib.sha256(data).hexdigest()
    try:
        _read(source, data)
    except ConfigSyntaxError as error:
        source.wrong(error.why, Place(file, error.line, error.column, error.key))
        source.has_broken_policy = file.lower().endswith(".toml") and POLICY_HEADER in data
    return source


def _read(source: ConfigFile, data: bytes) -> None:
    file_format = source.file_role.file_format
    root = documents.read(data, source.file, _syntax(source.file, file_format))
    if root is None or root.value == {}:
        source.warnings.append(HostProblem("", "it is empty", Place(source.file, 1, 1, "")))
        return
    if root.members is None:
        source.wrong("expected an object", root.place)
        return
    file_format = file_format or _detect_format(source, root)
    for duplicate in root.duplicates:
        source.wrong("duplicate key", duplicate.place, hint="keep one")
    if file_format == "colonnade":
        _read_own(source, root)
    elif file_format:
        _read_others(source, root, file_format)


def _syntax(file: str, file_format: str) -> Syntax:
    if file.lower().endswith(".toml"):
        return "toml"
    # Until the format is known, comments are allowed.
    return FORMATS[file_format].syntax if file_format in FORMATS else "jsonc"


def _detect_format(source: ConfigFile, root: SourceNode) -> str:
    """Detect the format by the content."""
    if source.file.lower().endswith(".toml"):
        return "codex" if root.get(CODEX_SERVERS) else "colonnade"
    if root.get(MCP_SERVERS) is not None:
        return "claude-code"
    if root.get(VSCODE_SERVERS) is not None:
        return "vscode"
    source.wrong(f'it has no servers: expected the key "{MCP_SERVERS}" or "{VSCODE_SERVERS}"')
    return ""


# ---------------------------------------------------------------- the files of other programs


def _read_others(source: ConfigFile, root: SourceNode, file_format: str) -> None:
    if file_format == "vscode":
        source.inputs = inputs_of(root, source.problems)
    servers = FORMATS[file_format].servers
    other = {MCP_SERVERS: VSCODE_SERVERS, VSCODE_SERVERS: MCP_SERVERS}.get(servers)
    if root.get(servers) is None and other and root.get(other) is not None:
        message = f'expected the key "{servers}"; "{other}" is the key of another program'
        source.wrong(message, _place(root, other))
    scope = source.file_role.scope
    if file_format == "claude-code" and scope == "user":
        for folder, node in _projects(root):
            if os.path.normcase(folder) == os.path.normcase(source.file_role.folder):
                _take(source, node.get(servers), source.origin(file_format, "local"))
    _take(source, root.get(servers), source.origin(file_format, scope))


def _projects(root: SourceNode) -> Iterator[tuple[str, SourceNode]]:
    projects = root.get("projects")
    if projects is not None and projects.members is not None:
        yield from projects.members.items()


def _place(root: SourceNode, key: str) -> Place:
    node = root.get(key)
    return (node or root).place


def _take(source: ConfigFile, servers: SourceNode | None, origin: Origin) -> None:
    """Read the entries of a table."""
    if servers is None:
        return
    if servers.members is None:
        source.wrong("expected an object with an object for each server", servers.place)
        return
    found = {key: read_entry(key, node, origin) for key, node in servers.members.items()}
    for duplicate in servers.duplicates:
        draft = found[duplicate.key.removeprefix(f"{servers.key}.")]
        draft.wrong(duplicate, "there are two servers of this name in the file", hint="keep one")
    source.drafts += found.values()


# ---------------------------------------------------------------- colonnade.toml


def _read_own(source: ConfigFile, root: SourceNode) -> None:
    origin = source.origin(
        "colonnade", NAMED if source.file_role.scope == NAMED else source.file_role.scope
    )
    for key, node in (root.members or {}).items():
        if key not in OWN_TABLES:
            hint = "; servers are tables [servers.NAME]"
            if key in KEYS["codex"] or key in ("mcp_servers", "mcpServers"):
                hint = "; in this file, servers are tables [servers.NAME]"
            message = f"unknown key, ignored{hint}"
            source.warnings.append(HostProblem("", message, node.place))
        elif key not in _SERVER_TABLES:
            source.tables[key] = node
    source.audit = root.get("audit")
    _take(source, root.get("servers"), origin)
    source.policy = root.get("policy")
    source.approvals = root.get("approvals")
    pins = root.get("pins")
    if pins is not None:
        source.pins = _read_pins(source, pins)
    include = root.get("include")
    if include is not None:
        if include.items is None or not all(isinstance(one.value, str) for one in include.items):
            source.wrong("expected a list of paths", include.place)
        else:
            source.includes = [(item.value, item) for item in include.items]
    gateway = root.get("gateway")
    if gateway is not None:

        def report(summary: str, node: SourceNode, hint: str) -> None:
            source.wrong(summary, node.place, hint=hint)

        source.gateway = read_gateway(gateway, report)
        source.gateway_origin = origin
    defaults = root.get("defaults")
    if defaults is not None:
        draft = read_entry("", defaults, origin)
        for name, node in (defaults.members or {}).items():
            if name not in SETTINGS or name in OWN:
                draft.wrong(node, "not allowed in defaults", hint="set it for each server")
        source.problems += draft.problems
        source.defaults = draft


_PINS: Final = {"mode": ValueKind.PINS, "first": ValueKind.FIRST}


def _read_pins(source: ConfigFile, node: SourceNode) -> PinsTable:
    """`[pins]`. What is wrong in it is a problem, and counts as the strictest value."""
    if node.members is None:
        source.wrong("expected a table with mode and first", node.place)
    found: dict[str, Any] = {}
    for name, member in (node.members or {}).items():
        kind = _PINS.get(name)
        if kind is None:
            known = ", ".join(_PINS)
            source.wrong(f"unknown key; known keys: {known}", member.place)
            continue
        found[name] = scalar_value(member.value, kind)
        if found[name] is None:
            source.wrong(f"expected {kind.value}", member.place)
            found[name] = "strict" if name == "mode" else "review"
    return PinsTable(**found)
