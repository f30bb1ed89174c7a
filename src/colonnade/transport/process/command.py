"""The command of a child process: arguments, working directory, environment, secrets.

Rules: no process is started here. A command is never one string, and never run by a shell. A child
gets a few of our variables and those it is given, never our whole environment. Errors show the
first word of a command and no other, and no value of an environment variable.
"""

import ast
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.errors import (
    CannotConnect,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
)
from colonnade.transport.process.sandbox import GivenSandbox, Sandbox, sandbox_of

# Variables that programs need for paths, user and language; the same few that other clients pass
# on. Proxies and certificates may hold credentials, and must be given explicitly.
POSIX_NAMES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "LANG"})
WINDOWS_NAMES = frozenset(
    {"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT"}
    | {"PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT"}
    | {"TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"}
)
LOCALE = "LC_"
# Has a random token for each child, by which its descendants are found. A child of a child has both
# tokens.
MARK = "COLONNADE_CHILD"
# Windows runs these with cmd.exe, which parses the command line again, and not all of this can be
# quoted for it (CVE-2024-27980).
BATCH = (".bat", ".cmd")
UNQUOTABLE = frozenset('"&|<>^%!\r\n')
# For a whole command line in the first word.
ALONE = "command is the program alone"
ALONE_HINT = "the rest goes into args"
# Shorter values are common words and numbers, and no secrets.
SECRET_CHARS = 6

_SECRET_OPTION = re.compile(r"--?[\w-]*(?:key|token|secret|passw|credential|auth)[\w-]*", re.I)


@dataclass(frozen=True, slots=True)
class Command:
    """A checked command: its arguments, its name, its working directory and its environment."""

    argv: tuple[str, ...]
    name: str
    cwd: str | None
    given: Mapping[str, str]
    sandbox: Sandbox | None = None
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(
        cls,
        argv: Sequence[str | os.PathLike[str]],
        *,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        sandbox: GivenSandbox = None,
    ) -> "Command":
        """Check a command. Raises `InvalidArgument` and `InvalidArgumentType`."""
        if isinstance(argv, str | bytes) or not argv:
            raise InvalidArgumentType(
                "a command is a list of strings, such as ['uvx', 'mcp-server-git']; a string is "
                "never split"
            )
        words = tuple(os.fspath(word) for word in argv)
        if not words[0] or any("\0" in word for word in words):
            raise InvalidArgument("a word of a command is empty, or has a NUL in it")
        given = dict(env or {})
        for key, value in given.items():
            if not key or "=" in key or "\0" in key or "\0" in value:
                raise InvalidArgument(
                    f"{key!r} or its value cannot be an environment variable", argument="env"
                )
        folder = os.fspath(cwd) if cwd is not None else None
        shown = name or os.path.basename(words[0]) or words[0]
        return cls(words, shown, folder, given, sandbox_of(sandbox))

    @property
    def label(self) -> str:
        """Its name in an error."""
        return f"server {self.name!r}"

    def environment(self, ours: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The environment of the child."""
        marks = f"{ours.get(MARK, '')} {self.mark}".strip()
        return {**minimal_environment(ours), **self.given, MARK: marks}

    def secrets(self) -> list[str]:
        """What no error may show: variables that it was given, and options named like secrets.
        Paths are not secret."""
        values = list(self.given.values())
        for word, after in zip(self.argv, (*self.argv[1:], ""), strict=True):
            option, _, value = word.partition("=")
            if _SECRET_OPTION.fullmatch(option):
                values.append(value or after)
        return [
            value
            for value in values
            if len(value) >= SECRET_CHARS
            and not all(os.path.exists(part) for part in value.split(os.pathsep))
        ]


def minimal_environment(environ: Mapping[str, str], platform: str = sys.platform) -> dict[str, str]:
    """The variables that every child inherits."""
    windows = platform == "win32"
    names = WINDOWS_NAMES if windows else POSIX_NAMES
    return {
        name: value
        for name, value in environ.items()
        if ((name.upper() if windows else name) in names or name.startswith(LOCALE))
        and not value.startswith("()")  # a shell function, which another shell would run
    }


def refuse_batch(program: str, arguments: Sequence[str]) -> None:
    """Raise `Refused` for arguments that a batch file on Windows would run."""
    if program.lower().rstrip(" .").endswith(BATCH):
        for argument in arguments:
            unquotable = sorted(UNQUOTABLE & set(argument))
            if unquotable:
                raise Refused(
                    f"{os.path.basename(program)} is a batch file, and one of its arguments has "
                    f"{unquotable[0]!r} in it, which Windows would run; start the program itself"
                )


def cannot_start(command: Command, error: OSError) -> CannotConnect:
    """Why a command did not start, and what to do."""
    reason = _REASONS.get(error.errno or 0)
    why, hint = reason(command) if reason else (error.strerror or type(error).__name__, "")
    return CannotConnect(f"cannot start {command.label}: {why}", server=command.name, hint=hint)


def _missing(command: Command) -> tuple[str, str]:
    word, cwd = command.argv[0], command.cwd
    if cwd is not None and not os.path.isdir(cwd):
        return f"its working directory {cwd!r} does not exist", ""
    if os.path.dirname(word) and os.path.exists(os.path.join(cwd or "", word)):
        return f"the program that the first line of {word!r} names is not there", "install that one"
    if is_whole_line(word, command.environment().get("PATH"), cwd):
        return ALONE, ALONE_HINT
    return f"there is no command {word!r}", "install it, or give its full path"


def is_whole_line(word: str, path: str | None, cwd: str | None) -> bool:
    """Whether a word is a program and its arguments, with spaces between them."""
    first, _, rest = word.strip().partition(" ")
    place = os.path.join(cwd or "", first) if os.path.dirname(first) else first
    return bool(rest) and shutil.which(place, path=path) is not None


def _forbidden(command: Command) -> tuple[str, str]:
    word, cwd = command.argv[0], command.cwd
    if os.path.isdir(os.path.join(cwd or "", word)):
        return f"{word!r} is a folder", "name the program in it"
    if cwd is not None and not os.access(cwd, os.X_OK):
        return f"the folder {cwd!r} may not be entered", "choose another cwd"
    hint = "make it executable (chmod +x), or name its interpreter first"
    return f"{word!r} may not be run", hint


# Why it did not start, and what to do.
_REASONS: dict[int, Callable[[Command], tuple[str, str]]] = {
    errno.ENOENT: _missing,
    errno.ENOTDIR: _missing,
    errno.EACCES: _forbidden,
    errno.EPERM: _forbidden,
    errno.ENOEXEC: lambda command: (
        f"{command.argv[0]!r} is no program for this machine",
        "if it is a script, name its interpreter first",
    ),
    errno.E2BIG: lambda _: ("its arguments and its environment are too large", "send less"),
    errno.EMFILE: lambda _: (
        "this process has too many files open",
        "raise its limit (ulimit -n)",
    ),
    errno.EAGAIN: lambda _: ("this user may have no more processes", "end some (ulimit -u)"),
    errno.ENOMEM: lambda _: ("there is no memory left for another process", "end some"),
}


# ---------------------------------------------------------------- python file


# If it is set, the child may need it to import this package, too.
PATH = "PYTHONPATH"
# -P: a file or folder called colonnade in the working directory is not this package.
RUN = ("-P", "-m", "colonnade", "run")


def split_name(text: str) -> tuple[str, str]:
    """Split `server.py:name` into a file and the name of a server in it, empty without one."""
    if not os.path.exists(text):
        file, colon, name = text.rpartition(":")
        if colon and all(part.isidentifier() for part in name.split(".")):
            return file, name
    return text, ""


def run_command(target: str, *, debug: bool = False) -> list[str]:
    """The command that serves a target (`server.py:name`) on standard input and output."""
    return [sys.executable, *RUN, *(["--debug"] if debug else []), target]


def python_command(file: str, name: str = "") -> list[str]:
    """The command that starts the server of a file; with a name, always by `colonnade run`."""
    if name or imports_colonnade(file):
        return run_command(f"{file}:{name}" if name else file)
    return [sys.executable, file]


def search_path() -> dict[str, str]:
    """The variable of the environment that lets a child import what this process can."""
    return {PATH: os.environ[PATH]} if PATH in os.environ else {}


def package_folders() -> list[str]:
    """The folders that a child imports this package from: a sandbox has to show them."""
    here = str(Path(__file__).absolute().parents[3])
    given = os.environ.get(PATH, "").split(os.pathsep)
    return [here, *(one for one in given if os.path.isdir(one))]


def imports_colonnade(file: str) -> bool:
    """Whether a file imports this package. One that cannot be parsed counts, because `colonnade
    run` reports what is wrong with it."""
    try:
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
        else:
            continue
        if any(name.partition(".")[0] == "colonnade" for name in names):
            return True
    return False
