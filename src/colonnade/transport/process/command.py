"""What to start as a child: a list of words, where, and with which environment.

Rules: no process is started here. A command is never one string, and no shell ever sees it. A
child gets a few variables of ours and what it is given, never our whole environment. Errors name
the first word of a command and no other, and no value of an environment.
"""

import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from colonnade.errors import (
    CannotConnect,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
)

# What a program needs to find itself, its user and its language; the same few that other clients
# pass on. Proxies and certificates may hold credentials, and are given by name.
POSIX_NAMES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "LANG"})
WINDOWS_NAMES = frozenset(
    {"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT"}
    | {"PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT"}
    | {"TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"}
)
LOCALE = "LC_"
# Carries a word that no other process has, so that what a child leaves behind is known as its own.
# A child of a child carries both words.
MARK = "COLONNADE_CHILD"
# Windows runs these in a shell of its own, which reads its command line anew. There is no way to
# quote all of this for it (CVE-2024-27980 and its kin).
BATCH = (".bat", ".cmd")
UNQUOTABLE = frozenset('"&|<>^%!\r\n')
# For who wrote a whole command line as its first word.
ALONE = "command is the program alone"
ALONE_HINT = "the rest goes into args"
# A shorter value is a word or a number that says nothing, and stands in many a line.
SECRET_CHARS = 6

_SECRET_OPTION = re.compile(r"--?[\w-]*(?:key|token|secret|passw|credential|auth)[\w-]*", re.I)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that was looked at: its words, its name for people, where, and with what."""

    argv: tuple[str, ...]
    name: str
    cwd: str | None
    given: Mapping[str, str]
    word: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def of(
        cls,
        argv: Sequence[str | os.PathLike[str]],
        *,
        name: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> "Command":
        """Look at a command. Raises `LocalProtocolError` for what is none."""
        if isinstance(argv, str | bytes) or not argv:
            raise InvalidArgumentType(
                "a command is a list of words, such as ['uvx', 'mcp-server-git']; a string is "
                "never taken apart"
            )
        words = tuple(os.fspath(word) for word in argv)
        if not words[0] or any("\0" in word for word in words):
            raise InvalidArgument("a word of a command is empty, or has a NUL in it")
        given = dict(env or {})
        for key, value in given.items():
            if not key or "=" in key or "\0" in key or "\0" in value:
                raise InvalidArgument(
                    f"no environment can hold {key!r}, or what it is to be", argument="env"
                )
        folder = os.fspath(cwd) if cwd is not None else None
        return cls(words, name or os.path.basename(words[0]) or words[0], folder, given)

    @property
    def whom(self) -> str:
        """Who it is, in an error."""
        return f"server {self.name!r}"

    def environment(self, ours: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What the child is started with."""
        marks = f"{ours.get(MARK, '')} {self.word}".strip()
        return {**minimal_environment(ours), **self.given, MARK: marks}

    def secrets(self) -> list[str]:
        """What it was given and no error may show: variables, and options that sound like it.
        Places are none."""
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


def minimal_environment(ours: Mapping[str, str], platform: str = sys.platform) -> dict[str, str]:
    """The few of our variables that every child gets."""
    windows = platform == "win32"
    names = WINDOWS_NAMES if windows else POSIX_NAMES
    return {
        name: value
        for name, value in ours.items()
        if ((name.upper() if windows else name) in names or name.startswith(LOCALE))
        and not value.startswith("()")  # a function of a shell, which another one would run
    }


def refuse_batch(program: str, words: Sequence[str]) -> None:
    """Raise `Refused` for words that a batch file on Windows would take for more than words."""
    if program.lower().rstrip(" .").endswith(BATCH):
        for word in words:
            found = sorted(UNQUOTABLE & set(word))
            if found:
                raise Refused(
                    f"{os.path.basename(program)} is a batch file, and one of its arguments has "
                    f"{found[0]!r} in it, which Windows would run; start the program itself"
                )


def cannot_start(command: Command, error: OSError) -> CannotConnect:
    """Why a command did not start, and what to do."""
    reason = _REASONS.get(error.errno or 0)
    why, hint = reason(command) if reason else (error.strerror or type(error).__name__, "")
    return CannotConnect(f"cannot start {command.whom}: {why}", server=command.name, hint=hint)


def _missing(command: Command) -> tuple[str, str]:
    word, cwd = command.argv[0], command.cwd
    if cwd is not None and not os.path.isdir(cwd):
        return f"there is no folder {cwd!r} to start it in", ""
    if os.path.dirname(word) and os.path.exists(os.path.join(cwd or "", word)):
        return f"the program that the first line of {word!r} names is not there", "install that one"
    if is_whole_line(word, command.environment().get("PATH"), cwd):
        return ALONE, ALONE_HINT
    return f"there is no command {word!r}", "install it, or give its full path"


def is_whole_line(word: str, path: str | None, cwd: str | None) -> bool:
    """Whether this is no program, but a program and its arguments, with spaces between them."""
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
