"""Which file is whose: the program that reads it, the scope that it is of, and for which folder.

Rules: no file is opened here. A file in a place that a program looks into for a folder is a
project's, whoever put it there, unless it is the place of the user's own.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from colonnade.host.dialects import DIALECTS, Platform, path

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
