"""A command that starts a server: whether it is found, whether it runs on, what it said instead.

Rules: nothing is started here. A command is looked for as the system will look for it, with the
variables and in the folder that it will have. Only its first word is ever repeated, and the file
that an interpreter is told to run.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from colonnade.cli.doctor.check import Check, failed, fine, warned
from colonnade.cli.errors import UNREACHABLE
from colonnade.text import one_line
from colonnade.transport.process.command import (
    ALONE,
    ALONE_HINT,
    is_whole_line,
    minimal_environment,
)

# Programs that one looks at for a name that was mistyped: a PATH may hold many thousands.
MAX_PROGRAMS: Final = 20_000
# The first line of a script, as systems read it.
MAX_FIRST_LINE: Final = 256
# What a program wrote, in a table; an error of Python takes some ten lines.
MAX_LINES: Final = 12

COMMAND, PROCESS = "command", "process"

# Where what people need most comes from.
INSTALLING: Final = {
    "uvx": "install uv, which brings it: https://docs.astral.sh/uv",
    "uv": "install it: https://docs.astral.sh/uv",
    "npx": "install Node.js, which brings it: https://nodejs.org",
    "npm": "install Node.js, which brings it: https://nodejs.org",
    "node": "install Node.js: https://nodejs.org",
    "bun": "install it: https://bun.sh",
    "bunx": "install Bun, which brings it: https://bun.sh",
    "deno": "install it: https://deno.com",
    "docker": "install it: https://docs.docker.com/get-docker",
    "pipx": "install it: https://pipx.pypa.io",
    "python": "install Python, or write python3",
    "python3": "install Python: https://www.python.org",
}
_PYTHON = re.compile(r"python[0-9.]*(?:\.exe)?")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs")

# What is meant by the last words of programs that everybody uses; the first that is found counts.
_MEANINGS: Final = (
    (
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "install {0} for the Python that runs it",
    ),
    (re.compile(r"Cannot find (?:module|package) '([^']+)'"), "install {0} with npm"),
    (
        re.compile(
            r"not found in the package registry|E404|No matching distribution|could not be"
            r" found on the registry"
        ),
        "there is no such package; look for a mistake in its name",
    ),
    (re.compile(r"can't open file '([^']+)'"), "there is no file {0}; mend its path"),
    (
        re.compile(
            r"(?:[Rr]unning|[Ll]istening|[Ss]erving|started) (?:on|at) .*(https?://[\w.:\[\]/-]+)"
        ),
        "it serves HTTP: end this one, and name its address, {0} with its path",
    ),
    (re.compile(r"[Aa]ddress already in use|EADDRINUSE"), "another program has its port; end it"),
    (
        re.compile(r"KeyError: '([A-Z][A-Z0-9_]+)'"),
        "it wants the variable {0}, and gets few of yours: give it with --env, or in its entry",
    ),
)


# ---------------------------------------------------------------- found


def command_check(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Check:
    """Whether there is such a program, in the environment that it will have."""
    word = argv[0]
    if cwd is not None and not os.path.isdir(cwd):
        words = f"there is no folder {one_line(cwd)} to start it in"
        return failed(COMMAND, UNREACHABLE, words, "mend cwd, or make the folder")
    path = {**minimal_environment(os.environ), **env}.get("PATH") or os.defpath
    if os.path.dirname(word):
        place = os.path.join(cwd or "", word)
        is_line = not os.path.exists(place) and is_whole_line(word, path, cwd)
        return _line(word) if is_line else _at(place, argv, cwd)
    found = shutil.which(word, path=path)
    if found is None:
        return _line(word) if " " in word.strip() else _missing(word, path)
    return _script(found, argv, cwd)


def _at(place: str, argv: Sequence[str], cwd: str | None) -> Check:
    shown = one_line(argv[0])
    if os.path.isdir(place):
        mend = "name the program in it"
        return failed(COMMAND, UNREACHABLE, f"{shown} is a folder", mend)
    if not os.path.exists(place):
        near = _near(os.path.basename(place), _listed([os.path.dirname(place) or "."]))
        hint = f"did you mean {os.path.join(os.path.dirname(argv[0]), near)}?" if near else ""
        mend = hint or "install it, or mend its path"
        return failed(COMMAND, UNREACHABLE, f"there is no program {shown}", mend)
    if not os.access(place, os.X_OK):
        mend = f"chmod +x {shown}, or name its interpreter before it"
        return failed(COMMAND, UNREACHABLE, f"{shown} may not be run", mend)
    return _script(argv[0], argv, cwd)


def _line(word: str) -> Check:
    mend = f"{ALONE}; {ALONE_HINT}"
    return failed(COMMAND, UNREACHABLE, f"there is no command '{one_line(word)}'", mend)


def _missing(word: str, path: str) -> Check:
    shown = one_line(word)
    words = f"there is no command {shown} on the PATH"
    known = INSTALLING.get(word.removesuffix(".exe"))
    near = "" if known else _near(word, _listed(path.split(os.pathsep)))
    hint = f"did you mean {near}?" if near else "install it, or write its full path"
    return failed(COMMAND, UNREACHABLE, words, known or hint)


def _near(word: str, words: Iterable[str]) -> str:
    return one_line(next(iter(get_close_matches(word, list(words), n=1, cutoff=0.75)), ""))


def _listed(folders: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for folder in folders:
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    if len(found) >= MAX_PROGRAMS:
                        return list(found)
                    if os.access(entry.path, os.X_OK) and not entry.is_dir():
                        found[entry.name] = None
        except OSError:
            continue
    return list(found)


def _script(found: str, argv: Sequence[str], cwd: str | None) -> Check:
    """A program that was found; and the file that it is to run, if that can be seen."""
    name = os.path.basename(found)
    runner = _runner(os.path.join(cwd or "", found))
    if runner and not os.path.exists(runner):
        words = f"{one_line(found)} is run by {one_line(runner)}, which is not there"
        mend = "install it anew; a virtual environment cannot be moved"
        return failed(COMMAND, UNREACHABLE, words, mend)
    runs = _PYTHON.fullmatch(name) is not None or name in ("node", "node.exe", "deno", "bun")
    first = argv[1] if len(argv) > 1 else ""
    if runs and first.endswith(_SCRIPTS):
        place = os.path.join(cwd or "", first)
        if not os.path.exists(place):
            near = _near(os.path.basename(first), _files(os.path.dirname(place) or "."))
            beside = os.path.join(os.path.dirname(first), near) if near else ""
            where = os.path.abspath(os.path.dirname(place) or ".")
            hint = f"did you mean {beside}?" if near else f"look into {one_line(where)}"
            words = f"there is no file {one_line(first)} for {one_line(name)} to run"
            return failed(COMMAND, UNREACHABLE, words, hint)
    shown = "this Python" if found == sys.executable else one_line(found)
    return fine(COMMAND, f"it is {shown}")


def _runner(path: str) -> str:
    """The program that the first line of a script names; empty for what is no script."""
    try:
        with open(path, "rb") as file:
            first = file.read(MAX_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return ""
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    return words[0] if words else ""


def _files(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:MAX_PROGRAMS]
    except OSError:
        return []


# ---------------------------------------------------------------- running


def ended_check(what: str, lines: Sequence[str], mend: str) -> Check:
    """A process that is gone: what it did, and the last lines that it wrote."""
    told = [one_line(line) for line in lines][-MAX_LINES:]
    return failed(PROCESS, UNREACHABLE, f"it {what}", meaning(told) or mend, told)


def meaning(lines: Sequence[str]) -> str:
    """What to do about what a program wrote last; nothing, where nobody knows."""
    for pattern, words in _MEANINGS:
        for line in reversed(lines):
            found = pattern.search(line)
            if found is not None:
                return words.format(*found.groups())
    return ""


STDOUT_MEND: Final = (
    "standard output is for messages alone: in Python, print(…, file=sys.stderr); in JavaScript, "
    "console.error(…)"
)


def littered_check(count: int, first: str, *, works: bool) -> Check:
    """A process that prints what is no message to its standard output."""
    many = "a line that is no message" if count == 1 else f"{count} lines that are no messages"
    words = f"it prints to standard output: {many}"
    lines = [one_line(first)] if first else []
    if works:
        words += "; other clients may end here"
        return warned(PROCESS, words, STDOUT_MEND, lines)
    return failed(PROCESS, UNREACHABLE, words, STDOUT_MEND, lines)
