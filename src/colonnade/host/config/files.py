"""A file of servers, read once: its bytes, what they are of, and every server in it as a draft.

Rules: a file is opened once, and what is hashed is what is read. Nothing is looked up or started.
Whatever cannot be read is a problem with a place, and never an exception.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from colonnade.host.config import entry as documents
from colonnade.host.config.entry import Draft, Node, Origin, drafted
from colonnade.host.config.formats import DIALECTS, KEYS, NAMED, OWN, SETTINGS, Role, Syntax, role
from colonnade.host.config.lookups import Input, inputs_of
from colonnade.host.config.settings import Broken, Place, Problem

# Claude Code keeps all that it remembers in the same file; many times of that is no such file.
MAX_OWN_BYTES: Final = 64 * 1024 * 1024
# Any other one is written by hand, or by a stranger who wants us to be busy.
MAX_BYTES: Final = 4 * 1024 * 1024

MCP_SERVERS, VSCODE_SERVERS, CODEX_SERVERS = "mcpServers", "servers", "mcp_servers"


class Terms(NamedTuple):
    """Where files are read: a home, a folder, and the variables that move files."""

    home: str
    folder: str
    env: Mapping[str, str]
    # Whether every file needs a person's word that is not in a place of the user's own.
    strict: bool = False


class Source:
    """One file, and what is in it."""

    def __init__(self, file: str, whose: Role) -> None:
        self.file: str = file
        self.role: Role = whose
        self.digest: str = ""
        self.guarded: bool = False
        self.drafts: list[Draft] = []
        self.includes: list[tuple[str, Node]] = []
        self.defaults: Draft | None = None
        self.questions: dict[str, Input] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def wrong(self, summary: str, place: Place | None = None, *, hint: str = "") -> None:
        """Say what is wrong with the file."""
        place = place or Place(self.file, 1, 1, "")
        self.problems.append(Problem("", summary, place, hint=hint))

    def origin(self, dialect: str, scope: str) -> Origin:
        """What its values are from."""
        return Origin(self.file, dialect, scope, self.role.folder, self.guarded)


def content(file: str, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a file. Raises `OSError`."""
    # A pipe or a device, which a stranger's file may name, would keep us waiting.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags), "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(0, "it is no file with text in it")
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise OSError(0, f"it has more than {limit >> 20} MiB")
    return data


def load(file: str, terms: Terms, *, guarded: bool | None = None) -> Source:
    """Read one file. `guarded` says whether it needs a person's word, whatever its place."""
    whose = role(file, home=terms.home, folder=terms.folder, env=terms.env)
    source = Source(file, whose)
    is_project = whose.scope == "project"
    source.guarded = (
        guarded if guarded is not None else is_project or (terms.strict and not whose.own)
    )
    try:
        data = content(file, MAX_OWN_BYTES if whose.own else MAX_BYTES)
    except FileNotFoundError:
        source.wrong("there is no such file")
        return source
    except OSError as error:
        source.wrong(f"it cannot be read: {error.strerror or error}")
        return source
    source.digest = hashlib.sha256(data).hexdigest()
    try:
        _read(source, data)
    except Broken as error:
        source.wrong(error.why, Place(file, error.line, error.column, error.key))
    return source


def _read(source: Source, data: bytes) -> None:
    dialect = source.role.dialect
    root = documents.read(data, source.file, _syntax(source.file, dialect))
    if root is None or root.value == {}:
        source.warnings.append(Problem("", "it is empty", Place(source.file, 1, 1, "")))
        return
    if root.members is None:
        source.wrong("an object in braces should stand here", root.place)
        return
    dialect = dialect or _told(source, root)
    for twice in root.twice:
        source.wrong("this is there for the second time", twice.place, hint="keep one")
    if dialect == "colonnade":
        _read_own(source, root)
    elif dialect:
        _read_others(source, root, dialect)


def _syntax(file: str, dialect: str) -> Syntax:
    if file.lower().endswith(".toml"):
        return "toml"
    # Where nobody knows yet whose it is, comments are no mistake.
    return DIALECTS[dialect].syntax if dialect in DIALECTS else "jsonc"


def _told(source: Source, root: Node) -> str:
    """The dialect that the content of a file tells."""
    if source.file.lower().endswith(".toml"):
        return "codex" if root.get(CODEX_SERVERS) else "colonnade"
    if root.get(MCP_SERVERS) is not None:
        return "claude-code"
    if root.get(VSCODE_SERVERS) is not None:
        return "vscode"
    source.wrong(f'it has no servers: they stand under "{MCP_SERVERS}", or "{VSCODE_SERVERS}"')
    return ""


# ---------------------------------------------------------------- the files of other programs


def _read_others(source: Source, root: Node, dialect: str) -> None:
    if dialect == "vscode":
        source.questions = inputs_of(root, source.problems)
    servers = DIALECTS[dialect].servers
    other = {MCP_SERVERS: VSCODE_SERVERS, VSCODE_SERVERS: MCP_SERVERS}.get(servers)
    if root.get(servers) is None and other and root.get(other) is not None:
        words = f'here servers stand under "{servers}", and "{other}" is another program\'s'
        source.wrong(words, _place(root, other))
    scope = source.role.scope
    if dialect == "claude-code" and scope == "user":
        for folder, node in _projects(root):
            if os.path.normcase(folder) == os.path.normcase(source.role.folder):
                _take(source, node.get(servers), source.origin(dialect, "local"))
    _take(source, root.get(servers), source.origin(dialect, scope))


def _projects(root: Node) -> Iterator[tuple[str, Node]]:
    projects = root.get("projects")
    if projects is not None and projects.members is not None:
        yield from projects.members.items()


def _place(root: Node, key: str) -> Place:
    node = root.get(key)
    return (node or root).place


def _take(source: Source, servers: Node | None, origin: Origin) -> None:
    """A draft for every server of a table."""
    if servers is None:
        return
    if servers.members is None:
        source.wrong("this should be an object with an object for each server", servers.place)
        return
    found = {key: drafted(key, node, origin) for key, node in servers.members.items()}
    for twice in servers.twice:
        draft = found[twice.key.removeprefix(f"{servers.key}.")]
        draft.wrong(twice, "there are two servers of this name in one file", hint="keep one")
    source.drafts += found.values()


# ---------------------------------------------------------------- our own file


def _read_own(source: Source, root: Node) -> None:
    origin = source.origin("colonnade", NAMED if source.role.scope == NAMED else source.role.scope)
    for key, node in (root.members or {}).items():
        if key not in ("include", "servers", "defaults"):
            hint = "; its servers are tables [servers.NAME]"
            if key in KEYS["codex"] or key in ("mcp_servers", "mcpServers"):
                hint = "; here servers are tables [servers.NAME]"
            words = f"there is no such key, and nothing is done with it{hint}"
            source.warnings.append(Problem("", words, node.place))
    _take(source, root.get("servers"), origin)
    include = root.get("include")
    if include is not None:
        if include.items is None or not all(isinstance(one.value, str) for one in include.items):
            source.wrong("include should be a list of paths", include.place)
        else:
            source.includes = [(item.value, item) for item in include.items]
    defaults = root.get("defaults")
    if defaults is not None:
        draft = drafted("", defaults, origin)
        for name, node in (defaults.members or {}).items():
            if name not in SETTINGS or name in OWN:
                draft.wrong(node, "this is no default for all servers", hint="say it for one")
        source.problems += draft.problems
        source.defaults = draft
